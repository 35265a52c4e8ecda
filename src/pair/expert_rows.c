/* Owns rows of experts that are modules of their own: "mlp.experts.6.up_proj", one row for each token that chose it.
 *
 * Where two logits are nearly tied, two honest runs send a token to different experts. Then one of them has a row more,
 * and all behind it stand elsewhere. Which tokens chose an expert follows from what the router of its layer gave out,
 * logits or the choice itself, and is proved by the rows of all experts of the layer on both sides. Rows of tokens that
 * an expert has on both sides are put beside each other; the others have no counterpart, and neither has an expert that
 * no token of the other side chose. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/text.h"
#include "pair/pairing.h"

#define WORD         "experts."
#define MOST_EXPERTS 4096
#define MOST_CHOSEN  32 /* experts of a token */
#define MOST_NUMBERS ((uint64_t)1 << 26)
#define NEAR_PAIRS   64 /* a router stands so near before its experts, or behind them */
#define GLANCE       16 /* numbers of a row that are looked at */
#define CLOSE        0.25

/* What an expert gave out, [rows, ...]. */
struct module {
    size_t found; /* index of the pair */
    uint64_t expert;
    struct ts_view whole[2]; /* all rows of each side */
    struct module *next;
};

/* The experts of one layer. */
struct layer {
    const char *base[2]; /* their names up to the number, on each side */
    struct module *modules, *last;
    uint64_t experts; /* one more than the largest number */
};

/* Of equal logits any may be taken: then it is told by the rows. */
enum taken { NOT_TAKEN, MAY_BE_TAKEN, TAKEN };

/* A token that takes an expert, or may. */
struct member {
    size_t token, rank; /* rank: the expert's place among those of the token */
    enum taken taken;
};

/* Who chose whom, by side. */
struct choice {
    size_t tokens, listed, per_token;
    bool whole;          /* the choice itself, not logits */
    int64_t *experts[2]; /* [tokens, listed]: those with the largest logits, falling */
    double *logits[2];
    struct member *members[2]; /* expert by expert, ascending */
    size_t *firsts[2];         /* where each one's begin, and where all of them end */
    size_t *places;            /* room for a number of each token; SIZE_MAX between uses */
    struct ts_pair *router;
    bool *strayed; /* tokens that took other experts in this layer or one before */
};

/* Which order experts take their tokens in: by their places, or first those whose first choice it is. */
enum taking { BY_TOKEN, BY_RANK, TAKINGS };

/* Tokens of one expert on each side, in the order of its rows. */
struct rows {
    size_t *tokens[2];
    size_t count[2];
};

/* Up to where the name says that it is in the module of the experts, and which one. */
static bool module_of(const char *name, size_t *length, uint64_t *expert)
{
    for (const char *at = name; (at = strstr(at, WORD)); at++) {
        const char *number = at + strlen(WORD);
        const size_t digits = strspn(number, "0123456789");
        if ((at > name && !strchr("._/", at[-1])) || digits == 0 || digits > 4 ||
            (number[digits] && number[digits] != '.') || (at - name >= 7 && strncmp(at - 7, "shared_", 7) == 0))
            continue;
        *length = (size_t)(number - name);
        *expert = strtoull(number, NULL, 10);
        return *expert < MOST_EXPERTS;
    }
    return false;
}

static bool is_of(const char *name, const char *base, uint64_t *expert)
{
    size_t length;
    return module_of(name, &length, expert) && strncmp(name, base, length) == 0 && !base[length];
}

/* A matrix of activations on both sides, which may have other numbers of rows. */
static bool has_rows(const struct ts_pair *pair)
{
    const struct ts_tensor *a = ts_pair_only_tensor(&pair->a), *b = ts_pair_only_tensor(&pair->b);
    return a && b && !pair->by_hand && a->rank == 2 && b->rank == 2 && a->shape[1] == b->shape[1] && a->count &&
           b->count && !ts_view_is_computed(&pair->a) && !ts_view_is_computed(&pair->b) &&
           !ts_type_is_integer(a->type) && !ts_type_is_integer(b->type) && !ts_ends_with(pair->name, "weight") &&
           !ts_ends_with(pair->name, "bias");
}

static enum ts_status list_layers(struct ts_pairer *pairer, struct layer **layers, size_t *count,
                                  struct ts_error *error)
{
    struct ts_arena *arena = &pairer->scratch;
    struct ts_table bases = {0};
    *count = 0;
    *layers = ts_arena_array(arena, pairer->count + 1, sizeof **layers);
    if (!*layers || !ts_table_init(&bases, pairer->count + 1)) {
        ts_table_release(&bases);
        return ts_fail_memory(error);
    }
    for (size_t i = 0; i < pairer->count; i++) {
        const struct ts_pair *pair = &pairer->found[i].pair;
        size_t length[2], at = *count;
        uint64_t expert[2];
        struct module *module;
        const char *base;
        if (!module_of(pair->name, &length[0], &expert[0]) || !module_of(pair->name_b, &length[1], &expert[1]) ||
            expert[0] != expert[1] || !has_rows(pair))
            continue;
        module = ts_arena_alloc(arena, sizeof *module);
        base = ts_arena_printf(arena, "%.*s", (int)length[0], pair->name);
        if (!module || !base || !ts_view_of(pair->a.tensor, arena, &module->whole[0]) ||
            !ts_view_of(pair->b.tensor, arena, &module->whole[1])) {
            ts_table_release(&bases);
            return ts_fail_memory(error);
        }
        if (ts_table_put(&bases, base, at, &at))
            (*layers)[(*count)++] =
                (struct layer){.base = {base, ts_arena_printf(arena, "%.*s", (int)length[1], pair->name_b)}};
        module->found = i;
        module->expert = expert[0];
        if ((*layers)[at].last)
            (*layers)[at].last->next = module;
        else
            (*layers)[at].modules = module;
        (*layers)[at].last = module;
        (*layers)[at].experts = expert[0] < (*layers)[at].experts ? (*layers)[at].experts : expert[0] + 1;
    }
    ts_table_release(&bases);
    return TS_OK;
}

/* The largest of a token's logits, falling; of equal ones the first. */
static void list_largest(const double *numbers, size_t count, size_t listed, int64_t *experts, double *logits)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = i < listed ? i : listed;
        for (; at > 0 && numbers[i] > logits[at - 1]; at--)
            if (at < listed) {
                experts[at] = experts[at - 1];
                logits[at] = logits[at - 1];
            }
        if (at < listed) {
            experts[at] = (int64_t)i;
            logits[at] = numbers[i];
        }
    }
}

/* What a side's tokens would choose, as many as may be; false where a number is no logit, or no expert's. */
static bool read_side(const struct ts_view *view, struct choice *choice, int side, size_t last, double *numbers)
{
    struct ts_error ignored;
    for (size_t token = 0; token < choice->tokens; token++) {
        int64_t *experts = choice->experts[side] + token * choice->listed;
        double *logits = choice->logits[side] + token * choice->listed;
        if (ts_view_read_f64(view, token * last, last, numbers, &ignored) != TS_OK)
            return false;
        for (size_t i = 0; i < last; i++)
            if (choice->whole ? !(numbers[i] >= 0 && numbers[i] < MOST_EXPERTS) : !isfinite(numbers[i]))
                return false;
        for (size_t i = 0; i < choice->listed && choice->whole; i++) {
            experts[i] = (int64_t)numbers[i];
            logits[i] = -(double)i;
        }
        if (!choice->whole)
            list_largest(numbers, last, choice->listed, experts, logits);
    }
    return true;
}

/* A router's logits, or its choice. False where it is neither. */
static bool read_choice(const struct ts_pair *pair, const struct layer *layer, struct ts_arena *arena,
                        struct choice *choice)
{
    const uint64_t last = pair->a.rank ? pair->a.shape[pair->a.rank - 1] : 0, tokens = last ? pair->a.count / last : 0;
    const bool whole = ts_type_is_integer(pair->a.tensor->type);
    double *numbers;
    bool good;
    if (pair->problem || !tokens || !ts_view_same_shape(&pair->a, &pair->b) || pair->a.count > MOST_NUMBERS ||
        whole != ts_type_is_integer(pair->b.tensor->type) || ts_type_info(pair->a.tensor->type)->components != 1 ||
        ts_type_info(pair->b.tensor->type)->components != 1 ||
        (whole ? last > MOST_CHOSEN : last < layer->experts || last < 2 || last > MOST_EXPERTS))
        return false;
    *choice = (struct choice){
        .tokens = (size_t)tokens, .listed = last < MOST_CHOSEN ? (size_t)last : MOST_CHOSEN, .whole = whole};
    numbers = calloc((size_t)last, sizeof *numbers);
    good = numbers != NULL;
    for (int side = 0; side < 2 && good; side++) {
        choice->experts[side] = ts_arena_array(arena, choice->tokens, choice->listed * sizeof **choice->experts);
        choice->logits[side] = ts_arena_array(arena, choice->tokens, choice->listed * sizeof **choice->logits);
        good = choice->experts[side] && choice->logits[side] &&
               read_side(side ? &pair->b : &pair->a, choice, side, (size_t)last, numbers);
    }
    free(numbers);
    return good;
}

/* Whether a token takes the expert that is at this place of its list. */
static enum taken is_taken(const struct choice *choice, int side, size_t token, size_t place)
{
    const double *logits = choice->logits[side] + token * choice->listed;
    const size_t k = choice->per_token;
    if (choice->whole || k == choice->listed)
        return place < k ? TAKEN : NOT_TAKEN;
    if (place < k)
        return logits[place] > logits[k] ? TAKEN : MAY_BE_TAKEN;
    return logits[place] < logits[k - 1] ? NOT_TAKEN : MAY_BE_TAKEN;
}

/* Every expert has as many rows as tokens took it, or may have taken. */
static bool explains_rows(const struct ts_pairer *pairer, const struct layer *layer, const struct choice *choice,
                          size_t *counts)
{
    memset(counts, 0, 4 * MOST_EXPERTS * sizeof *counts);
    for (int side = 0; side < 2; side++)
        for (size_t token = 0; token < choice->tokens; token++)
            for (size_t place = 0; place < choice->listed; place++) {
                const enum taken taken = is_taken(choice, side, token, place);
                if (taken == NOT_TAKEN)
                    break;
                counts[(size_t)(2 * side + (taken == MAY_BE_TAKEN)) * MOST_EXPERTS +
                       (size_t)choice->experts[side][token * choice->listed + place]]++;
            }
    for (const struct module *module = layer->modules; module; module = module->next)
        for (int side = 0; side < 2; side++) {
            const struct ts_pair *pair = &pairer->found[module->found].pair;
            const uint64_t rows = (side ? pair->b : pair->a).tensor->shape[0];
            const size_t least = counts[(size_t)(2 * side) * MOST_EXPERTS + module->expert];
            if (rows < least || rows - least > counts[(size_t)(2 * side + 1) * MOST_EXPERTS + module->expert])
                return false;
        }
    return true;
}

/* How many experts each token takes: as many as the rows say. False where no number explains them. */
static bool count_chosen(const struct ts_pairer *pairer, const struct layer *layer, struct choice *choice)
{
    size_t *counts = malloc(4 * MOST_EXPERTS * sizeof *counts);
    bool found = false;
    for (choice->per_token = choice->whole ? choice->listed : 1; choice->per_token <= choice->listed && counts;
         choice->per_token++)
        if ((found = explains_rows(pairer, layer, choice, counts)))
            break;
    free(counts);
    return found;
}

/* The tokens of each expert. False without memory. */
static bool list_members(struct choice *choice, struct ts_arena *arena)
{
    for (int side = 0; side < 2; side++) {
        size_t *firsts = ts_arena_array(arena, MOST_EXPERTS + 2, sizeof *firsts);
        choice->firsts[side] = firsts;
        for (int pass = 0; pass < 2 && firsts; pass++) { /* count, then list */
            for (size_t token = 0; token < choice->tokens; token++)
                for (size_t place = 0; place < choice->listed; place++) {
                    const enum taken taken = is_taken(choice, side, token, place);
                    const size_t expert = (size_t)choice->experts[side][token * choice->listed + place];
                    if (taken == NOT_TAKEN)
                        break;
                    if (pass)
                        choice->members[side][firsts[expert + 1]] =
                            (struct member){.token = token,
                                            .rank = taken == MAY_BE_TAKEN ? choice->per_token - 1 : place,
                                            .taken = taken};
                    firsts[expert + (pass ? 1 : 2)]++; /* the second pass moves them to where they belong */
                }
            for (size_t expert = 2; expert < MOST_EXPERTS + 2 && !pass; expert++)
                firsts[expert] += firsts[expert - 1];
            if (!pass)
                choice->members[side] = ts_arena_array(arena, firsts[MOST_EXPERTS + 1], sizeof **choice->members);
            if (!choice->members[side])
                return false;
        }
    }
    choice->places = ts_arena_array(arena, choice->tokens, sizeof *choice->places);
    for (size_t token = 0; token < choice->tokens && choice->places; token++)
        choice->places[token] = SIZE_MAX;
    return choice->firsts[0] && choice->firsts[1] && choice->places;
}

/* The router of a layer; false when nothing near it explains which rows its experts have. */
static bool find_choice(struct ts_pairer *pairer, const struct layer *layer, struct choice *choice)
{
    const size_t first = layer->modules->found, before = strlen(layer->base[0]) - strlen(WORD);
    for (size_t step = 1; step <= NEAR_PAIRS + layer->last->found - first; step++)
        for (int behind = 0; behind < 2; behind++) {
            struct ts_pair *pair;
            size_t length;
            uint64_t expert;
            if (behind ? first + step >= pairer->count : step > first || step > NEAR_PAIRS)
                continue;
            pair = &pairer->found[behind ? first + step : first - step].pair;
            if (strncmp(pair->name, layer->base[0], before) == 0 && !module_of(pair->name, &length, &expert) &&
                read_choice(pair, layer, &pairer->scratch, choice) && count_chosen(pairer, layer, choice) &&
                list_members(choice, &pairer->scratch)) {
                choice->router = pair;
                return true;
            }
        }
    return false;
}

/* Two rows hold the same, by their first numbers. */
static bool are_close(const struct module *module, int side, uint64_t row, uint64_t other)
{
    const uint64_t width = module->whole[0].shape[1];
    const size_t looked = width < GLANCE ? (size_t)width : GLANCE;
    double x[GLANCE], y[GLANCE], error = 0, size = 0;
    struct ts_error ignored;
    if (row >= module->whole[side].shape[0] || other >= module->whole[!side].shape[0] ||
        ts_view_read_f64(&module->whole[side], row * width, looked, x, &ignored) != TS_OK ||
        ts_view_read_f64(&module->whole[!side], other * width, looked, y, &ignored) != TS_OK)
        return false;
    for (size_t i = 0; i < looked; i++) {
        error += (x[i] - y[i]) * (x[i] - y[i]);
        size += x[i] * x[i] + y[i] * y[i];
    }
    return error < CLOSE * size;
}

static size_t place_of(const struct rows *rows, int side, size_t token)
{
    for (size_t row = 0; row < rows->count[side]; row++)
        if (rows->tokens[side][row] == token)
            return row;
    return SIZE_MAX;
}

/* A token with equal logits took this expert when the row that would be its own is the one that it has on the other
 * side, and else when that row is not the next one's. end: behind the last member. */
static bool has_row(const struct module *module, const struct rows *rows, int side, const struct member *member,
                    const struct member *end)
{
    const size_t row = rows->count[side], other = place_of(rows, !side, member->token);
    if (other != SIZE_MAX)
        return are_close(module, side, row, other);
    for (const struct member *next = member + 1; next < end; next++)
        if (next->taken == TAKEN && place_of(rows, !side, next->token) != SIZE_MAX)
            return !are_close(module, side, row, place_of(rows, !side, next->token));
    return row < module->whole[side].shape[0];
}

/* Which of equal logits a side takes: what rows of the other side tell, or always the first or the last of them. */
enum rule { AS_ROWS_TELL, FIRST_OF_EQUAL, LAST_OF_EQUAL };

static bool follows_rule(const struct choice *choice, int side, size_t token, uint64_t expert, enum rule rule)
{
    const int64_t *experts = choice->experts[side] + token * choice->listed;
    size_t place = 0, first = 0, end;
    while (experts[place] != (int64_t)expert)
        place++;
    while (is_taken(choice, side, token, first) == TAKEN)
        first++;
    end = first;
    while (end < choice->listed && is_taken(choice, side, token, end) == MAY_BE_TAKEN)
        end++;
    return rule == FIRST_OF_EQUAL ? place < choice->per_token : place >= end - (choice->per_token - first);
}

/* False when they are not as many as its rows. */
static bool list_rows(const struct choice *choice, const struct module *module, enum taking taking, int side,
                      enum rule rule, struct rows *rows)
{
    const struct member *members = choice->members[side] + choice->firsts[side][module->expert];
    const struct member *end = choice->members[side] + choice->firsts[side][module->expert + 1];
    rows->count[side] = 0;
    for (size_t rank = 0; rank < (taking == BY_RANK ? choice->per_token : 1); rank++)
        for (const struct member *member = members; member < end; member++) {
            if ((taking == BY_RANK && member->rank != rank) ||
                (member->taken == MAY_BE_TAKEN &&
                 !(rule == AS_ROWS_TELL ? has_row(module, rows, side, member, end)
                                        : follows_rule(choice, side, member->token, module->expert, rule))))
                continue;
            rows->tokens[side][rows->count[side]++] = member->token;
        }
    return rows->count[side] == module->whole[side].shape[0];
}

static bool is_certain(const struct choice *choice, const struct module *module, int side)
{
    for (size_t i = choice->firsts[side][module->expert]; i < choice->firsts[side][module->expert + 1]; i++)
        if (choice->members[side][i].taken == MAY_BE_TAKEN)
            return false;
    return true;
}

/* The tokens of an expert, by its rows. False where they are not as many as its rows are, or without memory; to be
 * freed. */
static bool rows_of(const struct choice *choice, const struct module *module, enum taking taking, struct rows *rows)
{
    const int first = !is_certain(choice, module, 0); /* the side that tells about the other */
    *rows = (struct rows){0};
    for (int side = 0; side < 2; side++)
        rows->tokens[side] = calloc(choice->firsts[side][module->expert + 1] - choice->firsts[side][module->expert] + 1,
                                    sizeof **rows->tokens);
    return rows->tokens[0] && rows->tokens[1] &&
           (list_rows(choice, module, taking, first, FIRST_OF_EQUAL, rows) ||
            list_rows(choice, module, taking, first, LAST_OF_EQUAL, rows)) &&
           list_rows(choice, module, taking, !first, AS_ROWS_TELL, rows);
}

static void free_rows(struct rows *rows)
{
    free(rows->tokens[0]);
    free(rows->tokens[1]);
}

static bool are_same(const struct rows *rows)
{
    return rows->count[0] == rows->count[1] &&
           memcmp(rows->tokens[0], rows->tokens[1], rows->count[0] * sizeof **rows->tokens) == 0;
}

/* Rows of tokens that both sides have, and that did not stray before: starts[side] gets their places, in the order of
 * A. Returns how many. */
static size_t list_common(const struct choice *choice, const struct rows *rows, uint64_t *const *starts)
{
    size_t common = 0;
    for (size_t row = 0; row < rows->count[1]; row++)
        choice->places[rows->tokens[1][row]] = row;
    for (size_t row = 0; row < rows->count[0]; row++) {
        const size_t token = rows->tokens[0][row];
        if (choice->places[token] == SIZE_MAX || choice->strayed[token])
            continue;
        starts[0][common] = row;
        starts[1][common++] = choice->places[token];
    }
    for (size_t row = 0; row < rows->count[1]; row++)
        choice->places[rows->tokens[1][row]] = SIZE_MAX;
    return common;
}

/* How far the first numbers of rows that stand beside each other differ, beside their size. */
static double distance(const struct module *module, uint64_t *const *starts, size_t common)
{
    const uint64_t width = module->whole[0].shape[1];
    const size_t looked = width < GLANCE ? (size_t)width : GLANCE;
    double error = 0, size = 0, a[GLANCE], b[GLANCE];
    struct ts_error ignored;
    for (size_t row = 0; row < common; row++) {
        if (ts_view_read_f64(&module->whole[0], starts[0][row] * width, looked, a, &ignored) != TS_OK ||
            ts_view_read_f64(&module->whole[1], starts[1][row] * width, looked, b, &ignored) != TS_OK)
            continue;
        for (size_t i = 0; i < looked; i++)
            if (isfinite(a[i]) && isfinite(b[i])) {
                error += (b[i] - a[i]) * (b[i] - a[i]);
                size += a[i] * a[i] + b[i] * b[i];
            }
    }
    return size > 0 ? error / size : 0;
}

/* The order in which the experts of this layer take their tokens: the one that makes their rows agree. */
static enum taking order_of_rows(const struct layer *layer, const struct choice *choice, uint64_t *const *starts)
{
    double apart[TAKINGS] = {0, 0};
    for (const struct module *module = layer->modules; module; module = module->next)
        for (enum taking taking = BY_TOKEN; taking < TAKINGS; taking++) {
            struct rows rows;
            if (rows_of(choice, module, taking, &rows) && !are_same(&rows))
                apart[taking] += distance(module, starts, list_common(choice, &rows, starts));
            free_rows(&rows);
        }
    return apart[BY_RANK] < apart[BY_TOKEN] ? BY_RANK : BY_TOKEN;
}

/* What was done to a side; "" where all of its rows stay as they are. NULL without memory. */
static const char *words_of(const uint64_t *starts, size_t common, size_t count, int side, struct ts_arena *arena)
{
    bool moved = false;
    for (size_t row = 1; row < common && !moved; row++)
        moved = starts[row] < starts[row - 1];
    if (common == count && !moved)
        return "";
    return ts_arena_printf(arena, "%c: rows of %zu of %zu tokens, which both sides sent the same way%s",
                           side ? 'B' : 'A', common, count, moved ? ", in the order of A" : "");
}

/* The rows at `starts`, of which those that follow each other are one piece. */
static bool take_rows(const struct ts_view *whole, const uint64_t *starts, size_t count, struct ts_arena *scratch,
                      struct ts_arena *arena, struct ts_view *out)
{
    uint64_t *firsts = ts_arena_array(scratch, count, sizeof *firsts);
    uint64_t *lengths = ts_arena_array(scratch, count, sizeof *lengths);
    size_t pieces = 0;
    for (size_t i = 0; i < count && firsts && lengths; i++) {
        if (i && starts[i] == starts[i - 1] + 1) {
            lengths[pieces - 1]++;
            continue;
        }
        firsts[pieces] = starts[i];
        lengths[pieces++] = 1;
    }
    return firsts && lengths && ts_layout_gather(whole, 0, firsts, lengths, 1, pieces, arena, out);
}

/* Puts the rows of tokens that both sides have beside each other. */
static enum ts_status take_common(struct ts_pairer *pairer, const struct module *module, const struct rows *rows,
                                  uint64_t *const *starts, size_t common, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    struct ts_pair *pair = &pairer->found[module->found].pair;
    const char *words[2];
    for (int side = 0; side < 2; side++) {
        struct ts_view whole, *view = side ? &pair->b : &pair->a;
        if (!ts_view_of(view->tensor, arena, &whole) ||
            !take_rows(&whole, starts[side], common, &pairer->scratch, arena, view) ||
            !(words[side] = words_of(starts[side], common, rows->count[side], side, arena)))
            return ts_fail_memory(error);
    }
    pair->recipe = !*words[0] ? words[1] : !*words[1] ? words[0] : ts_arena_printf(arena, "%s; %s", words[0], words[1]);
    pair->guess = pair->ambiguous = pair->by_size = pair->zeros = false;
    pair->padded = true; /* what was left out is told */
    pair->problem = NULL;
    return pair->recipe ? TS_OK : ts_fail_memory(error);
}

/* Tokens that took other experts, of one step of a run. */
struct strayed {
    char *part;
    size_t tokens;
    bool *rows;
};

/* What a note tells. */
struct told {
    const char *changed, *idle; /* the first of them */
    size_t changed_count, idle_count;
};

static void set_idle(struct ts_side *side, size_t i, struct told *told)
{
    side->idle[i] = true;
    told->idle = told->idle ? told->idle : side->bundle->tensors[i]->name;
    told->idle_count++;
}

/* Tokens of one side's rows that the other does not have. */
static void mark_strayed(const struct rows *rows, const struct choice *choice)
{
    for (int side = 0; side < 2; side++) {
        for (size_t row = 0; row < rows->count[!side]; row++)
            choice->places[rows->tokens[!side][row]] = row;
        for (size_t row = 0; row < rows->count[side]; row++)
            if (choice->places[rows->tokens[side][row]] == SIZE_MAX)
                choice->strayed[rows->tokens[side][row]] = true;
        for (size_t row = 0; row < rows->count[!side]; row++)
            choice->places[rows->tokens[!side][row]] = SIZE_MAX;
    }
}

/* What one expert holds, token by token. */
static enum ts_status align_module(struct ts_pairer *pairer, const struct module *module, const struct choice *choice,
                                   const struct rows *rows, uint64_t *const *starts, bool *gone, struct told *told,
                                   struct ts_error *error)
{
    const struct ts_found *found = &pairer->found[module->found];
    const size_t common = list_common(choice, rows, starts);
    if (are_same(rows) && common == rows->count[0])
        return TS_OK;
    if (common) {
        told->changed = told->changed ? told->changed : found->pair.name;
        told->changed_count++;
        return take_common(pairer, module, rows, starts, common, error);
    }
    *gone = true;
    set_idle(&pairer->a, found->a, told);
    set_idle(&pairer->b, found->b, told);
    return TS_OK;
}

/* Pairs without a common token are marked as gone. */
static enum ts_status align_layer(struct ts_pairer *pairer, const struct layer *layer, const struct choice *choice,
                                  bool *gone, struct told *told, struct ts_error *error)
{
    uint64_t *starts[2] = {ts_arena_array(&pairer->scratch, choice->tokens, sizeof **starts),
                           ts_arena_array(&pairer->scratch, choice->tokens, sizeof **starts)};
    enum ts_status status = starts[0] && starts[1] ? TS_OK : ts_fail_memory(error);
    const enum taking taking = status == TS_OK ? order_of_rows(layer, choice, starts) : BY_TOKEN;
    for (int pass = 0; pass < 2; pass++) /* first all who stray */
        for (const struct module *module = layer->modules; module && status == TS_OK; module = module->next) {
            struct rows rows;
            const bool told_apart = rows_of(choice, module, taking, &rows);
            if (told_apart && !pass)
                mark_strayed(&rows, choice);
            else if (told_apart)
                status = align_module(pairer, module, choice, &rows, starts, &gone[module->found], told, error);
            free_rows(&rows);
        }
    return status;
}

/* Tensors without a partner, of experts that no token of the other side took: those who took them here stray. */
static void find_idle(struct ts_side *side, const struct layer *layer, const struct choice *choice, int which,
                      struct told *told)
{
    for (size_t i = 0; i < side->count; i++) {
        const struct ts_tensor *tensor = side->bundle->tensors[i];
        size_t sure[2] = {0, 0}, unsure[2] = {0, 0};
        uint64_t expert;
        if (side->taken[i] || tensor->rank != 2 || !is_of(side->names[i], layer->base[which], &expert))
            continue;
        for (int s = 0; s < 2; s++)
            for (size_t k = choice->firsts[s][expert]; k < choice->firsts[s][expert + 1]; k++) {
                const struct member *member = &choice->members[s][k];
                sure[s] += member->taken == TAKEN;
                unsure[s] += member->taken == MAY_BE_TAKEN;
            }
        if (tensor->shape[0] < sure[which] || tensor->shape[0] > sure[which] + unsure[which] || sure[!which])
            continue;
        set_idle(side, i, told);
        for (size_t k = choice->firsts[which][expert]; k < choice->firsts[which][expert + 1]; k++)
            if (choice->members[which][k].taken == TAKEN)
                choice->strayed[choice->members[which][k].token] = true;
    }
}

static enum ts_status tell(struct ts_pairer *pairer, const struct told *told, struct ts_error *error)
{
    if (told->changed_count)
        TS_TRY(
            ts_pairer_note(pairer, error,
                           "experts got other tokens of A than of B in %zu tensor%s, the first of them %s: only rows "
                           "of tokens that chose them on both sides are compared there",
                           told->changed_count, told->changed_count == 1 ? "" : "s", told->changed));
    if (told->idle_count)
        TS_TRY(ts_pairer_note(
            pairer, error, "%zu tensor%s of experts hold%s no token that both sides sent there, the first of them %s",
            told->idle_count, told->idle_count == 1 ? "" : "s", told->idle_count == 1 ? "s" : "", told->idle));
    return TS_OK;
}

/* The name of a layer's experts without its number: the same for all layers of one step of a run. */
static const char *part_of(const struct layer *layer, struct ts_arena *arena)
{
    char *part = ts_arena_string(arena, layer->base[0]);
    size_t end = part ? strlen(part) - strlen(WORD) : 0, start;
    while (end > 0 && !(part[end - 1] >= '0' && part[end - 1] <= '9'))
        end--;
    start = end;
    while (start > 0 && part[start - 1] >= '0' && part[start - 1] <= '9')
        start--;
    if (part)
        memmove(part + start, part + end, strlen(part + end) + 1);
    return part;
}

/* Who strayed in the layers before this one; nobody where another step of the run begins. */
static enum ts_status carry_strayed(struct ts_pairer *pairer, const struct layer *layer, struct choice *choice,
                                    struct strayed *strayed, struct ts_error *error)
{
    const char *part = part_of(layer, &pairer->scratch);
    if (!part)
        return ts_fail_memory(error);
    if (!strayed->part || strcmp(strayed->part, part) != 0 || strayed->tokens != choice->tokens) {
        free(strayed->part);
        free(strayed->rows);
        *strayed = (struct strayed){
            .part = strdup(part), .tokens = choice->tokens, .rows = calloc(choice->tokens, sizeof *strayed->rows)};
    }
    choice->strayed = strayed->rows;
    return strayed->part && strayed->rows ? TS_OK : ts_fail_memory(error);
}

/* Lists those who strayed in this layer and not before. */
static enum ts_status list_strays(struct ts_pairer *pairer, const struct choice *choice, const bool *before,
                                  struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    struct ts_strays *strays = ts_arena_alloc(arena, sizeof *strays);
    uint64_t *tokens;
    size_t count = 0;
    for (size_t token = 0; token < choice->tokens; token++)
        count += choice->strayed[token] && !before[token];
    tokens = ts_arena_array(arena, count, sizeof *tokens);
    if (!strays || !tokens)
        return ts_fail_memory(error);
    *strays = (struct ts_strays){.tokens = tokens};
    for (size_t token = 0; token < choice->tokens; token++)
        if (choice->strayed[token] && !before[token])
            tokens[strays->count++] = token;
    choice->router->strays = strays;
    return TS_OK;
}

static enum ts_status align_one(struct ts_pairer *pairer, const struct layer *layer, struct choice *choice,
                                struct strayed *strayed, bool *gone, struct told *told, struct ts_error *error)
{
    bool *before = ts_arena_array(&pairer->scratch, choice->tokens, sizeof *before);
    TS_TRY(carry_strayed(pairer, layer, choice, strayed, error));
    if (!before)
        return ts_fail_memory(error);
    memcpy(before, choice->strayed, choice->tokens * sizeof *before);
    find_idle(&pairer->a, layer, choice, 0, told);
    find_idle(&pairer->b, layer, choice, 1, told);
    TS_TRY(align_layer(pairer, layer, choice, gone, told, error));
    return list_strays(pairer, choice, before, error);
}

static enum ts_status align_layers(struct ts_pairer *pairer, const struct layer *layers, size_t count, bool *gone,
                                   struct told *told, struct ts_error *error)
{
    enum ts_status status = TS_OK;
    struct strayed strayed = {0};
    for (size_t i = 0; i < count && status == TS_OK; i++) {
        const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
        struct choice choice;
        if (find_choice(pairer, &layers[i], &choice))
            status = align_one(pairer, &layers[i], &choice, &strayed, gone, told, error);
        ts_arena_rewind(&pairer->scratch, mark);
    }
    free(strayed.part);
    free(strayed.rows);
    return status;
}

enum ts_status ts_align_expert_rows(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    struct told told = {0};
    struct layer *layers;
    size_t count, kept = 0;
    bool *gone;
    TS_TRY(list_layers(pairer, &layers, &count, error));
    if (!count)
        return TS_OK;
    gone = ts_arena_array(&pairer->scratch, pairer->count, sizeof *gone);
    for (int s = 0; s < 2; s++)
        sides[s]->idle = ts_arena_array(&pairer->out->arena, sides[s]->count, sizeof *sides[s]->idle);
    if (!gone || !pairer->a.idle || !pairer->b.idle)
        return ts_fail_memory(error);
    TS_TRY(align_layers(pairer, layers, count, gone, &told, error));
    for (size_t i = 0; i < pairer->count; i++)
        if (!gone[i])
            pairer->found[kept++] = pairer->found[i];
    pairer->count = kept;
    pairer->out->idle[0] = pairer->out->idle[1] = 0;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < sides[s]->count; i++)
            pairer->out->idle[s] += sides[s]->idle[i];
    return tell(pairer, &told, error);
}
