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
#include "pair/expert_tokens.h"
#include "pair/pairing.h"

#define WORD        "experts."
#define NEAR_PAIRS  64                /* a router stands so near before its experts, or behind them */
#define MOST_PIECES ((size_t)1 << 22) /* stretches of rows of a run; each takes some 150 bytes */
#define SAME_ROWS   0.1               /* relative error of rows that are the same tokens' as far as they go */

/* The experts of one layer. */
struct layer {
    const char *base; /* A's names up to the number */
    struct ts_expert_module *modules, *last;
    size_t pairs, first; /* how many modules have a partner, and the first of those pairs */
    uint64_t experts;    /* one more than the largest number */
    uint64_t rows;       /* most of an expert */
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
        return *expert < TS_MOST_EXPERTS;
    }
    return false;
}

/* A matrix of activations that is all there. It has no rows where a module was called without tokens. */
static bool has_rows(const struct ts_tensor *tensor)
{
    return tensor && tensor->rank == 2 && tensor->shape[1] && !tensor->sampled && !ts_type_is_integer(tensor->type) &&
           ts_type_info(tensor->type)->components == 1 && !ts_ends_with(tensor->name, "weight") &&
           !ts_ends_with(tensor->name, "bias");
}

/* Of a pair, both sides may have other numbers of rows. */
static bool have_rows(const struct ts_pair *pair)
{
    const struct ts_tensor *a = ts_pair_only_tensor(&pair->a), *b = ts_pair_only_tensor(&pair->b);
    return has_rows(a) && has_rows(b) && a->shape[1] == b->shape[1] && !pair->by_hand &&
           !ts_view_is_computed(&pair->a) && !ts_view_is_computed(&pair->b);
}

static bool add_module(struct layer *layer, const struct ts_pairer *pairer, size_t found, const size_t *index,
                       uint64_t expert, struct ts_arena *arena)
{
    const struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    struct ts_expert_module *module = ts_arena_alloc(arena, sizeof *module);
    if (!module)
        return false;
    *module = (struct ts_expert_module){.found = found, .index = {index[0], index[1]}, .expert = expert};
    for (int side = 0; side < 2; side++) {
        if (index[side] == SIZE_MAX)
            continue;
        if (!ts_view_of(sides[side]->bundle->tensors[index[side]], arena, &module->whole[side]))
            return false;
        module->rows[side] = module->whole[side].shape[0];
        module->width = module->whole[side].shape[1];
        layer->rows = module->rows[side] > layer->rows ? module->rows[side] : layer->rows;
    }
    if (layer->last)
        layer->last->next = module;
    else
        layer->modules = module;
    layer->last = module;
    layer->pairs += found != SIZE_MAX;
    layer->experts = expert < layer->experts ? layer->experts : expert + 1;
    return true;
}

/* bases: from the names of experts up to their number to the layer, by side. */
static bool list_paired(struct ts_pairer *pairer, struct layer *layers, size_t *count, struct ts_table *bases)
{
    struct ts_arena *arena = &pairer->scratch;
    for (size_t i = 0; i < pairer->count; i++) {
        const struct ts_found *found = &pairer->found[i];
        const char *names[2] = {pairer->a.names[found->a], pairer->b.names[found->b]};
        size_t length[2], at = *count;
        uint64_t expert[2];
        char *base[2];
        if (!module_of(names[0], &length[0], &expert[0]) || !module_of(names[1], &length[1], &expert[1]) ||
            expert[0] != expert[1] || !have_rows(&found->pair))
            continue;
        for (int side = 0; side < 2; side++)
            if (!(base[side] = ts_arena_copy(arena, names[side], length[side])))
                return false;
        if (ts_table_put(&bases[0], base[0], at, &at)) {
            layers[(*count)++] = (struct layer){.base = base[0], .first = i};
            ts_table_put(&bases[1], base[1], at, NULL);
        }
        if (!add_module(&layers[at], pairer, i, (const size_t[]){found->a, found->b}, expert[0], arena))
            return false;
    }
    return true;
}

static bool list_lone(struct ts_pairer *pairer, int which, struct layer *layers, const struct ts_table *bases)
{
    const struct ts_side *side = which ? &pairer->b : &pairer->a;
    for (size_t i = 0; i < side->count; i++) {
        const size_t index[2] = {which ? SIZE_MAX : i, which ? i : SIZE_MAX};
        size_t length, at;
        uint64_t expert;
        char *base;
        if (side->taken[i] || !module_of(side->names[i], &length, &expert) || !has_rows(side->bundle->tensors[i]))
            continue;
        if (!(base = ts_arena_copy(&pairer->scratch, side->names[i], length)))
            return false;
        at = ts_table_get(&bases[which], base);
        if (at != SIZE_MAX && !add_module(&layers[at], pairer, SIZE_MAX, index, expert, &pairer->scratch))
            return false;
    }
    return true;
}

static enum ts_status list_layers(struct ts_pairer *pairer, struct layer **layers, size_t *count,
                                  struct ts_error *error)
{
    struct ts_table bases[2] = {{0}, {0}};
    bool listed;
    *count = 0;
    *layers = ts_arena_array(&pairer->scratch, pairer->count, sizeof **layers);
    listed = *layers && ts_table_init(&bases[0], pairer->count + 1) && ts_table_init(&bases[1], pairer->count + 1) &&
             list_paired(pairer, *layers, count, bases) && list_lone(pairer, 0, *layers, bases) &&
             list_lone(pairer, 1, *layers, bases);
    ts_table_release(&bases[0]);
    ts_table_release(&bases[1]);
    return listed ? TS_OK : ts_fail_memory(error);
}

enum explained { TOO_FEW, EXPLAINED, TOO_MANY };

/* Whether every expert has as many rows as tokens took it, or may have taken; else, whether they took too few or too
 * many. */
static enum explained explain_rows(const struct layer *layer, const struct ts_expert_choice *choice, size_t *counts)
{
    enum explained explained = EXPLAINED;
    memset(counts, 0, 4 * TS_MOST_EXPERTS * sizeof *counts);
    for (int side = 0; side < 2; side++)
        for (size_t token = 0; token < choice->tokens; token++) {
            const uint16_t *experts = choice->sides[side].experts + token * choice->listed;
            size_t first, end;
            ts_expert_choice_tied(choice, side, token, &first, &end);
            for (size_t place = 0; place < end; place++)
                counts[(size_t)(2 * side + (place >= first)) * TS_MOST_EXPERTS + experts[place]]++;
        }
    for (const struct ts_expert_module *module = layer->modules; module; module = module->next)
        for (int side = 0; side < 2 && module->found != SIZE_MAX; side++) {
            const size_t sure = counts[(size_t)(2 * side) * TS_MOST_EXPERTS + module->expert];
            if (module->rows[side] < sure)
                return TOO_MANY;
            if (module->rows[side] - sure > counts[(size_t)(2 * side + 1) * TS_MOST_EXPERTS + module->expert])
                explained = TOO_FEW;
        }
    return explained;
}

/* How many experts each token takes: as many as the rows say. False where no number explains them. */
static bool count_chosen(const struct layer *layer, struct ts_expert_choice *choice)
{
    size_t *counts = malloc(4 * TS_MOST_EXPERTS * sizeof *counts);
    enum explained explained = TOO_FEW;
    choice->per_token = choice->whole ? choice->listed - 1 : 0;
    while (counts && explained == TOO_FEW && choice->per_token < choice->listed) {
        choice->per_token++;
        explained = explain_rows(layer, choice, counts);
    }
    choice->sure = choice->per_token == choice->listed;
    if (explained == EXPLAINED && !choice->sure) { /* experts that were not captured might tell */
        choice->per_token++;
        choice->sure = explain_rows(layer, choice, counts) != EXPLAINED;
        choice->per_token--;
    }
    free(counts);
    return explained == EXPLAINED;
}

/* The router of a layer, among what stands around its experts in the same module; false when nothing there explains
 * which rows they have. */
static bool find_choice(struct ts_pairer *pairer, const struct layer *layer, struct ts_expert_choice *choice)
{
    const size_t before = strlen(layer->base) - strlen(WORD);
    for (size_t step = 1; step <= NEAR_PAIRS + layer->pairs; step++)
        for (int behind = 0; behind < 2; behind++) {
            const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
            struct ts_pair *pair;
            size_t length;
            uint64_t expert;
            if (behind ? step >= pairer->count - layer->first : step > layer->first || step > NEAR_PAIRS)
                continue;
            pair = &pairer->found[behind ? layer->first + step : layer->first - step].pair;
            if (strncmp(pair->name, layer->base, before) != 0 || module_of(pair->name, &length, &expert))
                continue;
            if (ts_expert_choice_read(pair, layer->experts, layer->rows, &pairer->scratch, choice) &&
                count_chosen(layer, choice) && ts_expert_choice_list(choice, &pairer->scratch)) {
                choice->router = pair;
                return true;
            }
            ts_arena_rewind(&pairer->scratch, mark);
        }
    return false;
}

/* What was done to a side; "" where all of its rows stay as they are. NULL without memory. */
static const char *words_of(const uint64_t *starts, size_t common, size_t count, int side, struct ts_arena *arena)
{
    bool moved = false;
    for (size_t row = 1; row < common && !moved; row++)
        moved = starts[row] < starts[row - 1];
    if (common == count && !moved)
        return "";
    return ts_arena_printf(arena, "%c: rows of %zu of %zu tokens, which both sides sent there%s", side ? 'B' : 'A',
                           common, count, moved ? ", in the order of A" : "");
}

/* The rows at `starts`, of which those that follow each other are one piece. */
static bool take_rows(const struct ts_tensor *tensor, const uint64_t *starts, size_t count, struct ts_arena *scratch,
                      struct ts_arena *arena, struct ts_view *out, size_t *pieces)
{
    uint64_t *firsts = ts_arena_array(scratch, count, sizeof *firsts);
    uint64_t *lengths = ts_arena_array(scratch, count, sizeof *lengths);
    struct ts_view whole;
    size_t used = 0;
    for (size_t i = 0; i < count && firsts && lengths; i++) {
        if (i && starts[i] == starts[i - 1] + 1) {
            lengths[used - 1]++;
            continue;
        }
        firsts[used] = starts[i];
        lengths[used++] = 1;
    }
    *pieces += used;
    return firsts && lengths && ts_view_of(tensor, arena, &whole) &&
           ts_layout_gather(&whole, 0, firsts, lengths, 1, used, arena, out);
}

/* Rows of an expert that were put beside each other by what they hold: the first of its tensors tells for all. */
struct matched {
    bool known, moved;
    uint64_t expert;
    size_t rows[2], common;
};

/* What a run's layers have in common. */
struct aligned {
    struct matched matched;
    bool *gone;                 /* pairs without a common token */
    const char *changed, *idle; /* the first of them */
    size_t changed_count, idle_count;
    size_t pieces; /* of all views */
    enum ts_expert_taking taking;
    char *part; /* the layers of one step of a run, in which tokens stray */
    size_t tokens;
    bool *strayed;
};

/* Puts the rows of tokens that both sides have beside each other. */
static enum ts_status take_common(struct ts_pairer *pairer, const struct ts_expert_module *module,
                                  const struct ts_expert_rows *rows, uint64_t *const *starts, size_t common,
                                  struct aligned *aligned, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    struct ts_pair *pair = &pairer->found[module->found].pair;
    const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
    const char *words[2];
    for (int side = 0; side < 2; side++) {
        struct ts_view *view = side ? &pair->b : &pair->a;
        if (!take_rows(view->tensor, starts[side], common, &pairer->scratch, arena, view, &aligned->pieces) ||
            !(words[side] = words_of(starts[side], common, rows->count[side], side, arena)))
            return ts_fail_memory(error);
    }
    ts_arena_rewind(&pairer->scratch, mark);
    pair->recipe = !*words[0] ? words[1] : !*words[1] ? words[0] : ts_arena_printf(arena, "%s; %s", words[0], words[1]);
    pair->guess = pair->ambiguous = pair->by_size = pair->zeros = false;
    pair->padded = true; /* what was left out is told */
    pair->problem = NULL;
    return pair->recipe ? TS_OK : ts_fail_memory(error);
}

/* What one expert holds, token by token. */
static enum ts_status align_module(struct ts_pairer *pairer, const struct ts_expert_module *module,
                                   const struct ts_expert_choice *choice, const struct ts_expert_rows *rows,
                                   uint64_t *const *starts, struct aligned *aligned, struct ts_error *error)
{
    struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    struct matched *matched = &aligned->matched;
    size_t common;
    if (!matched->known || matched->expert != module->expert || matched->rows[0] != rows->count[0] ||
        matched->rows[1] != rows->count[1]) {
        *matched = (struct matched){.expert = module->expert, .rows = {rows->count[0], rows->count[1]}};
        matched->common = ts_expert_common(choice, rows, false, starts);
        matched->known = ts_expert_tangled(choice, module, aligned->taking);
        if (matched->known && !ts_expert_match(choice, module, rows, starts, &matched->common, &matched->moved))
            return ts_fail_memory(error);
    }
    common = matched->common;
    if (ts_expert_rows_same(rows) && common == rows->count[0] && !matched->moved)
        return TS_OK;
    if (common) {
        struct ts_pair *pair = &pairer->found[module->found].pair;
        if (aligned->pieces > MOST_PIECES) {
            pair->problem = "experts got other tokens of A than of B, in too many places to follow all of them";
            return TS_OK;
        }
        aligned->changed = aligned->changed ? aligned->changed : pair->name;
        aligned->changed_count++;
        return take_common(pairer, module, rows, starts, common, aligned, error);
    }
    if (module->found != SIZE_MAX)
        aligned->gone[module->found] = true;
    for (int side = 0; side < 2; side++)
        if (module->index[side] != SIZE_MAX) {
            const char *name = sides[side]->bundle->tensors[module->index[side]]->name;
            sides[side]->idle[module->index[side]] = true;
            aligned->idle = aligned->idle ? aligned->idle : name;
            aligned->idle_count++;
        }
    return TS_OK;
}

/* Tokens of one side's rows that the other does not have. */
static void mark_strayed(const struct ts_expert_rows *rows, const struct ts_expert_choice *choice)
{
    for (int side = 0; side < 2; side++) {
        ts_expert_places(choice, rows, !side, true);
        for (size_t row = 0; row < rows->count[side]; row++)
            if (choice->places[rows->tokens[side][row]] == SIZE_MAX)
                choice->strayed[rows->tokens[side][row]] = true;
        ts_expert_places(choice, rows, !side, false);
    }
}

/* An expert that got more tokens on one side, and nothing tells which: what stands beside each other are other tokens
 * from the first one on that is not there, unless those are the last. */
static enum ts_status leave_unknown(struct ts_pairer *pairer, const struct ts_expert_module *module,
                                    struct ts_error *error)
{
    struct ts_pair *pair = module->found == SIZE_MAX ? NULL : &pairer->found[module->found].pair;
    struct ts_agreement agreement = {.error = 1};
    if (!pair || pair->problem || module->rows[0] == module->rows[1])
        return TS_OK;
    TS_TRY(ts_agree(&pair->a, &pair->b, TS_GLANCED_ROWS, &agreement, error));
    if (!(agreement.error <= SAME_ROWS))
        pair->problem = ts_arena_printf(&pairer->out->arena,
                                        "%" PRIu64 " tokens of A against %" PRIu64
                                        " of B, and no captured router tells which they are",
                                        module->rows[0], module->rows[1]);
    return agreement.error <= SAME_ROWS || pair->problem ? TS_OK : ts_fail_memory(error);
}

static enum ts_status align_layer(struct ts_pairer *pairer, const struct layer *layer,
                                  const struct ts_expert_choice *choice, struct aligned *aligned,
                                  struct ts_error *error)
{
    uint64_t *starts[2] = {ts_arena_array(&pairer->scratch, choice->tokens, sizeof **starts),
                           ts_arena_array(&pairer->scratch, choice->tokens, sizeof **starts)};
    enum ts_status status = starts[0] && starts[1] ? TS_OK : ts_fail_memory(error);
    aligned->matched.known = false;
    if (status == TS_OK)
        aligned->taking = ts_expert_order(layer->modules, choice, starts, aligned->taking);
    if (status == TS_OK && aligned->taking == TS_BY_RANK)
        ts_expert_settle(layer->modules, choice, starts);
    for (int pass = 0; pass < 2; pass++) /* first all who stray */
        for (const struct ts_expert_module *module = layer->modules; module && status == TS_OK; module = module->next) {
            struct ts_expert_rows rows;
            const bool told_apart = ts_expert_rows_of(choice, module, aligned->taking, &rows);
            if (told_apart && !pass)
                mark_strayed(&rows, choice);
            else if (pass)
                status = told_apart ? align_module(pairer, module, choice, &rows, starts, aligned, error)
                                    : leave_unknown(pairer, module, error);
            ts_expert_rows_free(&rows);
        }
    return status;
}

/* The name of a layer's experts without its number: the same for all layers of one step of a run. */
static char *part_of(const struct layer *layer)
{
    char *part = strdup(layer->base);
    size_t end = part ? strlen(part) - strlen(WORD) : 0, start;
    while (end > 0 && !ts_is_digit(part[end - 1]))
        end--;
    start = end;
    while (start > 0 && ts_is_digit(part[start - 1]))
        start--;
    if (part)
        memmove(part + start, part + end, strlen(part + end) + 1);
    return part;
}

/* Who strayed in the layers before this one; nobody where another step of the run begins. */
static bool carry_strayed(const struct layer *layer, struct ts_expert_choice *choice, struct aligned *aligned)
{
    char *part = part_of(layer);
    if (part && aligned->part && strcmp(aligned->part, part) == 0 && aligned->tokens == choice->tokens) {
        free(part);
    } else {
        free(aligned->part);
        free(aligned->strayed);
        aligned->part = part;
        aligned->tokens = choice->tokens;
        aligned->strayed = calloc(choice->tokens, sizeof *aligned->strayed);
    }
    choice->strayed = aligned->strayed;
    return aligned->part && aligned->strayed;
}

/* Lists those who strayed in this layer and not before. */
static enum ts_status list_strays(struct ts_pairer *pairer, const struct ts_expert_choice *choice, const bool *before,
                                  bool all, struct ts_error *error)
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
    *strays = (struct ts_strays){.tokens = tokens, .all = all};
    for (size_t token = 0; token < choice->tokens; token++)
        if (choice->strayed[token] && !before[token])
            tokens[strays->count++] = token;
    choice->router->strays = strays;
    return TS_OK;
}

static enum ts_status align_one(struct ts_pairer *pairer, const struct layer *layer, struct ts_expert_choice *choice,
                                struct aligned *aligned, struct ts_error *error)
{
    bool all, *before = choice->before = ts_arena_array(&pairer->scratch, choice->tokens, sizeof *before);
    if (!before || !carry_strayed(layer, choice, aligned))
        return ts_fail_memory(error);
    memcpy(before, choice->strayed, choice->tokens * sizeof *before);
    all = choice->sure && ts_expert_choice_strays(choice);
    TS_TRY(align_layer(pairer, layer, choice, aligned, error));
    return choice->sure ? list_strays(pairer, choice, before, all, error) : TS_OK;
}

static enum ts_status align_layers(struct ts_pairer *pairer, const struct layer *layers, size_t count,
                                   struct aligned *aligned, struct ts_error *error)
{
    enum ts_status status = TS_OK;
    for (size_t i = 0; i < count && status == TS_OK; i++) {
        const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
        struct ts_expert_choice choice;
        if (find_choice(pairer, &layers[i], &choice))
            status = align_one(pairer, &layers[i], &choice, aligned, error);
        else
            for (const struct ts_expert_module *module = layers[i].modules; module && status == TS_OK;
                 module = module->next)
                status = leave_unknown(pairer, module, error);
        ts_arena_rewind(&pairer->scratch, mark);
    }
    free(aligned->part);
    free(aligned->strayed);
    return status;
}

static enum ts_status tell(struct ts_pairer *pairer, const struct aligned *aligned, struct ts_error *error)
{
    const size_t changed = aligned->changed_count, idle = aligned->idle_count;
    if (changed)
        TS_TRY(
            ts_pairer_note(pairer, error,
                           "experts got other tokens of A than of B in %zu tensor%s, the first of them %s: only rows "
                           "of tokens that chose them on both sides are compared there",
                           changed, changed == 1 ? "" : "s", aligned->changed));
    if (idle)
        TS_TRY(ts_pairer_note(
            pairer, error, "%zu tensor%s of experts hold%s no token that both sides sent there, the first of them %s",
            idle, idle == 1 ? "" : "s", idle == 1 ? "s" : "", aligned->idle));
    return TS_OK;
}

enum ts_status ts_align_expert_rows(struct ts_pairer *pairer, struct ts_error *error)
{
    struct aligned aligned = {0};
    struct layer *layers;
    size_t count, kept = 0;
    TS_TRY(list_layers(pairer, &layers, &count, error));
    if (!count)
        return TS_OK;
    aligned.gone = ts_arena_array(&pairer->scratch, pairer->count, sizeof *aligned.gone);
    pairer->a.idle = ts_arena_array(&pairer->out->arena, pairer->a.count, sizeof *pairer->a.idle);
    pairer->b.idle = ts_arena_array(&pairer->out->arena, pairer->b.count, sizeof *pairer->b.idle);
    if (!aligned.gone || !pairer->a.idle || !pairer->b.idle)
        return ts_fail_memory(error);
    TS_TRY(align_layers(pairer, layers, count, &aligned, error));
    for (size_t i = 0; i < pairer->count; i++)
        if (!aligned.gone[i])
            pairer->found[kept++] = pairer->found[i];
    pairer->count = kept;
    return tell(pairer, &aligned, error);
}
