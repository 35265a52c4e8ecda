#include "pair/expert_tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"

#define GLANCE       16   /* numbers of a row that are looked at */
#define MOST_MOVABLE 8    /* tokens whose places are tried together, */
#define MOST_WAYS    256  /* in so many ways, */
#define MOST_GROUPS  2    /* so often, */
#define MOST_SETTLED 1024 /* where an expert has not too many rows */
#define MOST_TANGLED 64   /* rows of an expert in another order */
#define LATER        4    /* tokens with equal logits one behind the other */
#define CLOSE        0.25

void ts_expert_places(const struct ts_expert_choice *choice, const struct ts_expert_rows *rows, int side, bool noted)
{
    for (size_t row = 0; row < rows->count[side]; row++)
        choice->places[rows->tokens[side][row]] = noted ? row : SIZE_MAX;
}

/* Energy of the difference of two rows, and of both, by their first numbers. */
static bool add_difference(const struct ts_expert_module *module, int side, uint64_t row, uint64_t other, double *error,
                           double *size)
{
    const size_t looked = module->width < GLANCE ? (size_t)module->width : GLANCE;
    double x[GLANCE], y[GLANCE];
    struct ts_error ignored;
    if (row >= module->rows[side] || other >= module->rows[!side] ||
        ts_view_read_f64(&module->whole[side], row * module->width, looked, x, &ignored) != TS_OK ||
        ts_view_read_f64(&module->whole[!side], other * module->width, looked, y, &ignored) != TS_OK)
        return false;
    for (size_t i = 0; i < looked; i++)
        if (isfinite(x[i]) && isfinite(y[i])) {
            *error += (x[i] - y[i]) * (x[i] - y[i]);
            *size += x[i] * x[i] + y[i] * y[i];
        }
    return true;
}

/* How far they differ, beside their size. */
static double apart(const struct ts_expert_module *module, int side, uint64_t row, uint64_t other)
{
    double error = 0, size = 0;
    return add_difference(module, side, row, other, &error, &size) && size > 0 ? error / size : INFINITY;
}

/* Which of equal logits a side takes: what rows of the other side tell, or always the first or the last of them. */
enum rule { AS_ROWS_TELL, FIRST_OF_EQUAL, LAST_OF_EQUAL };

/* The rank by which an expert takes a token: of equal logits, any may be the last. */
static size_t rank_of(const struct ts_expert_choice *choice, const struct ts_expert_member *member,
                      enum ts_expert_taking taking)
{
    return taking == TS_BY_TOKEN ? 0 : member->tied ? choice->per_token - 1 : member->place;
}

/* A token with equal logits took this expert when the row that would be its own is more like the one that it has on the
 * other side than like the next one's; and where it has none there, when the next one's row comes later. next: the
 * first member behind it that surely has a row on both sides, or end. The places are those of the other side. */
static bool has_row(const struct ts_expert_choice *choice, const struct ts_expert_module *module, int side, size_t row,
                    const struct ts_expert_member *member, const struct ts_expert_member *next,
                    const struct ts_expert_member *end)
{
    const size_t own = choice->places[member->token];
    const double like = own == SIZE_MAX ? INFINITY : apart(module, side, row, own);
    double now;
    if (next == end)
        return own == SIZE_MAX ? row < module->rows[side] : like < CLOSE;
    now = apart(module, side, row, choice->places[next->token]);
    if (own != SIZE_MAX)
        return like < CLOSE && like <= now;
    for (size_t later = row + 1; later <= row + (size_t)(next - member) && later <= row + LATER; later++)
        if (apart(module, side, later, choice->places[next->token]) < now)
            return true;
    return false;
}

static bool follows_rule(const struct ts_expert_choice *choice, int side, const struct ts_expert_member *member,
                         enum rule rule)
{
    size_t first, end;
    ts_expert_choice_tied(choice, side, member->token, &first, &end);
    return rule == FIRST_OF_EQUAL ? member->place < choice->per_token
                                  : member->place >= end - (choice->per_token - first);
}

/* How many tokens with equal logits may take the expert, and how many of them have a row. False where these are more.
 */
static bool count_tied(const struct ts_expert_choice *choice, const struct ts_expert_module *module, int side,
                       size_t *tied, size_t *wanted)
{
    const struct ts_expert_takers *own = &choice->sides[side];
    const size_t first = own->firsts[module->expert], end = own->firsts[module->expert + 1];
    *tied = *wanted = 0;
    for (size_t i = first; i < end; i++)
        *tied += own->members[i].tied;
    if (module->rows[side] > end - first || module->rows[side] < end - first - *tied)
        return false;
    *wanted = (size_t)module->rows[side] - (end - first - *tied);
    return true;
}

/* All of them or none, so that nothing is left to find out. */
static bool is_certain(const struct ts_expert_choice *choice, const struct ts_expert_module *module, int side)
{
    size_t tied, wanted;
    return count_tied(choice, module, side, &tied, &wanted) && (wanted == 0 || wanted == tied);
}

/* False when they are not as many as its rows. */
static bool list_rows(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                      enum ts_expert_taking taking, int side, enum rule rule, struct ts_expert_rows *rows)
{
    const struct ts_expert_takers *own = &choice->sides[side];
    const struct ts_expert_member *members = own->members + own->firsts[module->expert];
    const struct ts_expert_member *end = own->members + own->firsts[module->expert + 1];
    const bool by_count = rule == AS_ROWS_TELL || is_certain(choice, module, side);
    size_t *count = &rows->count[side], tied, wanted;
    *count = 0;
    if (!count_tied(choice, module, side, &tied, &wanted))
        return false;
    for (size_t rank = 0; rank < (taking == TS_BY_RANK ? choice->per_token : 1); rank++)
        for (const struct ts_expert_member *member = members, *next = members; member < end; member++) {
            bool taken = !member->tied;
            if (rank_of(choice, member, taking) != rank)
                continue;
            while (rule == AS_ROWS_TELL && member->tied && next < end &&
                   (next <= member || next->tied || rank_of(choice, next, taking) != rank ||
                    choice->places[next->token] == SIZE_MAX))
                next++;
            if (member->tied) {
                if (by_count && (wanted == 0 || wanted == tied))
                    taken = wanted > 0;
                else
                    taken = rule == AS_ROWS_TELL ? has_row(choice, module, side, *count, member, next, end)
                                                 : follows_rule(choice, side, member, rule);
                tied--;
                wanted -= taken && wanted;
            }
            if (taken)
                rows->tokens[side][(*count)++] = member->token;
        }
    return *count == module->rows[side];
}

bool ts_expert_rows_of(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                       enum ts_expert_taking taking, struct ts_expert_rows *rows)
{
    const int first = !is_certain(choice, module, 0); /* the side that tells about the other */
    bool listed;
    *rows = (struct ts_expert_rows){0};
    for (int side = 0; side < 2; side++) {
        const size_t *firsts = choice->sides[side].firsts + module->expert;
        rows->tokens[side] = calloc(firsts[1] - firsts[0] + 1, sizeof **rows->tokens);
    }
    if (!rows->tokens[0] || !rows->tokens[1] ||
        (!list_rows(choice, module, taking, first, FIRST_OF_EQUAL, rows) &&
         !list_rows(choice, module, taking, first, LAST_OF_EQUAL, rows)))
        return false;
    ts_expert_places(choice, rows, first, true);
    listed = list_rows(choice, module, taking, !first, AS_ROWS_TELL, rows);
    ts_expert_places(choice, rows, first, false);
    return listed;
}

void ts_expert_rows_free(struct ts_expert_rows *rows)
{
    free(rows->tokens[0]);
    free(rows->tokens[1]);
}

bool ts_expert_rows_same(const struct ts_expert_rows *rows)
{
    return rows->count[0] == rows->count[1] &&
           memcmp(rows->tokens[0], rows->tokens[1], rows->count[0] * sizeof **rows->tokens) == 0;
}

size_t ts_expert_common(const struct ts_expert_choice *choice, const struct ts_expert_rows *rows, bool all,
                        uint64_t *const *starts)
{
    size_t common = 0;
    ts_expert_places(choice, rows, 1, true);
    for (size_t row = 0; row < rows->count[0]; row++) {
        const size_t token = rows->tokens[0][row];
        if (choice->places[token] == SIZE_MAX || (choice->before[token] && !all))
            continue;
        starts[0][common] = row;
        starts[1][common++] = choice->places[token];
    }
    ts_expert_places(choice, rows, 1, false);
    return common;
}

bool ts_expert_tangled(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                       enum ts_expert_taking taking)
{
    const uint32_t last = (uint32_t)1 << (choice->per_token - 1);
    const uint32_t mask = taking == TS_BY_RANK ? last | (last - 1) : last;
    for (int side = 0; side < 2; side++) {
        const struct ts_expert_takers *own = &choice->sides[side];
        for (size_t i = own->firsts[module->expert]; i < own->firsts[module->expert + 1]; i++)
            if (own->equal[own->members[i].token] & mask)
                return true;
    }
    return false;
}

/* Leaves out all but `kept` rows: those that are least alike. False without memory. */
static bool leave_unlike(const struct ts_expert_module *module, uint64_t *const *starts, size_t count, size_t kept)
{
    double *own = calloc(2 * count + 1, sizeof *own), *sorted = own ? own + count : NULL, most;
    size_t used = 0;
    for (size_t row = 0; row < count && own; row++) {
        const double one = apart(module, 0, starts[0][row], starts[1][row]);
        own[row] = sorted[row] = isfinite(one) ? one : 0; /* no token becomes NaN by going elsewhere */
    }
    most = own ? ts_nth(sorted, count, kept - 1) : 0;
    for (size_t row = 0; row < count && own && used < kept; row++)
        if (own[row] <= most) {
            starts[0][used] = starts[0][row];
            starts[1][used++] = starts[1][row];
        }
    free(own);
    return own != NULL;
}

/* Rows that have no partner yet are given the one that holds the same; those that find none get any, to be judged, as
 * long as there should be more pairs. partners: of rows of A, and of rows of B. False where they are too many. */
static bool match_odd(const struct ts_expert_module *module, const struct ts_expert_rows *rows, size_t *const *partners,
                      size_t lacking)
{
    size_t odd[2][MOST_TANGLED], count[2] = {0, 0};
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < rows->count[side]; row++)
            if (partners[side][row] == SIZE_MAX) {
                if (count[side] == MOST_TANGLED)
                    return false;
                odd[side][count[side]++] = row;
            }
    for (int any = 0; any < 2; any++)
        for (size_t i = 0; i < count[0] && lacking; i++) {
            double least = any ? INFINITY : CLOSE;
            size_t best = SIZE_MAX;
            for (size_t k = 0; k < count[1] && partners[0][odd[0][i]] == SIZE_MAX; k++) {
                const double own = apart(module, 0, odd[0][i], odd[1][k]);
                if (partners[1][odd[1][k]] != SIZE_MAX || !(own < least || (any && best == SIZE_MAX)))
                    continue;
                least = own;
                best = odd[1][k];
            }
            if (best == SIZE_MAX)
                continue;
            partners[0][odd[0][i]] = best;
            partners[1][best] = odd[0][i];
            lacking--;
        }
    return true;
}

bool ts_expert_match(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                     const struct ts_expert_rows *rows, uint64_t *const *starts, size_t *common, bool *moved)
{
    const size_t all = ts_expert_common(choice, rows, true, starts);
    size_t *partners[2] = {calloc(rows->count[0] + 1, sizeof **partners),
                           calloc(rows->count[1] + 1, sizeof **partners)};
    size_t close = 0, used = 0;
    bool done = partners[0] && partners[1];
    for (int side = 0; side < 2 && done; side++)
        for (size_t row = 0; row < rows->count[side]; row++)
            partners[side][row] = SIZE_MAX;
    for (size_t i = 0; i < all && done; i++)
        if (apart(module, 0, starts[0][i], starts[1][i]) <= CLOSE) {
            partners[0][starts[0][i]] = (size_t)starts[1][i];
            partners[1][starts[1][i]] = (size_t)starts[0][i];
            close++;
        }
    *moved = done && close < all && match_odd(module, rows, partners, all - close);
    for (size_t row = 0; row < rows->count[0] && *moved; row++)
        if (partners[0][row] != SIZE_MAX) {
            starts[0][used] = row;
            starts[1][used++] = partners[0][row];
        }
    free(partners[0]);
    free(partners[1]);
    used = *moved ? used : all;
    *common = *common < used ? *common : used;
    return done && leave_unlike(module, starts, used, *common);
}

/* How far the first numbers of rows that stand beside each other differ, beside their size. */
static double distance(const struct ts_expert_module *module, uint64_t *const *starts, size_t common)
{
    double error = 0, size = 0;
    for (size_t row = 0; row < common && row < TS_GLANCED_ROWS; row++)
        add_difference(module, 0, starts[0][row], starts[1][row], &error, &size);
    return size > 0 ? error / size : 0;
}

enum ts_expert_taking ts_expert_order(const struct ts_expert_module *modules, const struct ts_expert_choice *choice,
                                      uint64_t *const *starts, enum ts_expert_taking before)
{
    double apart[TS_TAKINGS] = {0, 0};
    for (const struct ts_expert_module *module = modules; module; module = module->next) {
        double own[TS_TAKINGS] = {0, 0};
        bool tells = false;
        for (enum ts_expert_taking taking = TS_BY_TOKEN; taking < TS_TAKINGS; taking++) {
            struct ts_expert_rows rows;
            if (ts_expert_rows_of(choice, module, taking, &rows)) {
                tells = tells || !ts_expert_rows_same(&rows);
                own[taking] = distance(module, starts, ts_expert_common(choice, &rows, false, starts));
            }
            ts_expert_rows_free(&rows);
        }
        for (enum ts_expert_taking taking = TS_BY_TOKEN; taking < TS_TAKINGS && tells; taking++)
            apart[taking] += own[taking];
    }
    return apart[TS_BY_RANK] == apart[TS_BY_TOKEN]  ? before
           : apart[TS_BY_RANK] < apart[TS_BY_TOKEN] ? TS_BY_RANK
                                                    : TS_BY_TOKEN;
}

/* What rows that stand beside each other differ by, all of them added up; infinite where they cannot be listed. */
static double apart_by_rank(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                            uint64_t *const *starts)
{
    struct ts_expert_rows rows;
    double sum = INFINITY;
    if (ts_expert_rows_of(choice, module, TS_BY_RANK, &rows)) {
        const size_t common = ts_expert_common(choice, &rows, true, starts);
        sum = 0;
        for (size_t row = 0; row < common; row++) {
            const double own = apart(module, 0, starts[0][row], starts[1][row]);
            sum += isfinite(own) ? own : 1;
        }
    }
    ts_expert_rows_free(&rows);
    return sum;
}

/* Places that hold the same logit as one of them, among those that are taken. */
static void equal_places(const struct ts_expert_choice *choice, uint32_t equal, size_t place, size_t *first,
                         size_t *last)
{
    *first = *last = place;
    while (*first > 0 && equal >> (*first - 1) & 1)
        --*first;
    while (*last + 1 < choice->per_token && equal >> *last & 1)
        ++*last;
}

/* A token that may stand at another place. */
struct movable {
    struct ts_expert_member *member;
    size_t first, last, best;
};

/* Tries all places of some of them together. */
static void settle(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                   uint64_t *const *starts, struct movable *movables, size_t count)
{
    double least = count ? apart_by_rank(choice, module, starts) : 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        movables[i].best = movables[i].member->place;
    for (size_t i = 0; i < count; i++)
        movables[i].member->place = (uint16_t)movables[i].first;
    while (at < count) {
        const double sum = apart_by_rank(choice, module, starts);
        for (size_t i = 0; i < count && sum < least; i++)
            movables[i].best = movables[i].member->place;
        least = sum < least ? sum : least;
        for (at = 0; at < count && movables[at].member->place == movables[at].last; at++)
            movables[at].member->place = (uint16_t)movables[at].first;
        if (at < count)
            movables[at].member->place++;
    }
    for (size_t i = 0; i < count; i++)
        movables[i].member->place = (uint16_t)movables[i].best;
}

static void settle_expert(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                          uint64_t *const *starts)
{
    struct movable movables[MOST_MOVABLE];
    size_t count = 0, ways = 1, groups = 0;
    for (int side = 0; side < 2; side++) {
        const struct ts_expert_takers *own = &choice->sides[side];
        for (size_t i = own->firsts[module->expert]; i < own->firsts[module->expert + 1] && groups < MOST_GROUPS; i++) {
            struct movable one = {.member = &own->members[i]};
            equal_places(choice, own->equal[one.member->token], one.member->place, &one.first, &one.last);
            if (one.member->tied || one.first == one.last)
                continue;
            if (count == MOST_MOVABLE || ways * (one.last - one.first + 1) > MOST_WAYS) {
                settle(choice, module, starts, movables, count);
                groups++;
                count = 0;
                ways = 1;
            }
            ways *= one.last - one.first + 1;
            movables[count++] = one;
        }
    }
    settle(choice, module, starts, movables, count);
}

void ts_expert_settle(const struct ts_expert_module *modules, const struct ts_expert_choice *choice,
                      uint64_t *const *starts)
{
    uint64_t settled = UINT64_MAX;
    for (const struct ts_expert_module *module = modules; module; module = module->next)
        if (module->found != SIZE_MAX && module->expert != settled &&
            module->rows[0] + module->rows[1] < MOST_SETTLED) {
            settled = module->expert; /* its other tensors have the same rows */
            settle_expert(choice, module, starts);
        }
}
