/* Owns which tensors hold rows that experts gathered, and what counts as the same row there. What comes out of the
 * experts is in the order of the tokens again, and none of this. */
#include "compare/gathered.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE      0.25 /* of a row's energy may be left: weights of three bits leave less */
#define FLOOR      1e-3 /* and of an ordinary row's, for those that are next to nothing */
#define LOST_MOST  2    /* one row in so many may be found nowhere */
#define MOST_SLOTS ((uint64_t)1 << 22)

/* Inside the module of the experts: "mlp.experts.act_fn", not "mlp.experts" itself, which holds what comes out. */
bool ts_is_gathered(const char *name)
{
    for (const char *at = name; (at = strstr(at, "experts.")); at++)
        if ((at == name || at[-1] == '.' || at[-1] == '_' || at[-1] == '/') && !strstr(name, "shared_expert"))
            return true;
    return false;
}

/* Counts each of the numbers of a side, which are all below `count`. */
static bool count_slots(const struct ts_view *view, size_t count, int64_t *slots, size_t *counts)
{
    struct ts_error ignored;
    memset(counts, 0, count * sizeof *counts);
    if (ts_view_read_i64(view, 0, count, slots, &ignored) != TS_OK)
        return false;
    for (size_t k = 0; k < count; k++) {
        if (slots[k] < 0 || (uint64_t)slots[k] >= count)
            return false;
        counts[slots[k]]++;
    }
    return true;
}

/* 0, 1, ... and so on, each so many times, and no others. */
static size_t each_so_often(const size_t *counts, size_t count)
{
    const size_t often = counts[0];
    if (!often || count % often)
        return 0;
    for (size_t k = 1; k < count / often; k++)
        if (counts[k] != often)
            return 0;
    return often;
}

bool ts_are_same_experts(const int64_t *a, const int64_t *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < count && b[k] != a[i])
            k++;
        if (k == count)
            return false;
    }
    return true;
}

bool ts_is_gathering_order(const struct ts_pair *pair, uint64_t tokens)
{
    const size_t count = (size_t)pair->a.count;
    int64_t *slots;
    size_t *counts, often = 0;
    if (pair->problem || count < 4 || pair->a.count > MOST_SLOTS || pair->b.count != count || !pair->a.rank ||
        pair->a.shape[0] != count || !ts_type_is_integer(pair->a.tensor->type) ||
        !ts_type_is_integer(pair->b.tensor->type))
        return false;
    slots = malloc(count * sizeof *slots);
    counts = malloc(count * sizeof *counts);
    if (slots && counts && count_slots(&pair->a, count, slots, counts) && (often = each_so_often(counts, count)) &&
        (!count_slots(&pair->b, count, slots, counts) || each_so_often(counts, count) != often))
        often = 0;
    free(slots);
    free(counts);
    return often == 1 || (often && count / often == tokens);
}

bool ts_gathered_tokens(const struct ts_pair *order, bool candidate, uint64_t tokens, bool across, size_t *of)
{
    const size_t count = (size_t)order->a.count, chosen = tokens ? count / (size_t)tokens : 0;
    int64_t *slots = malloc(count * sizeof *slots);
    struct ts_error ignored;
    bool good =
             slots && chosen && ts_view_read_i64(candidate ? &order->b : &order->a, 0, count, slots, &ignored) == TS_OK,
         are_slots = false;
    for (size_t row = 0; row < count && good; row++) {
        good = slots[row] >= 0 && (uint64_t)slots[row] < count;
        are_slots = are_slots || (uint64_t)slots[row] >= tokens;
    }
    for (size_t row = 0; row < count && good; row++)
        of[row] = (size_t)slots[row] / (are_slots && !across ? chosen : 1) % (size_t)tokens;
    free(slots);
    return good;
}

bool ts_gathered_match(struct ts_row_match *match, const struct ts_pair *pair, size_t lost)
{
    const struct ts_row_rule rule = {.close = CLOSE, .floor = FLOOR, .lost = lost, .once = true};
    *match = (struct ts_row_match){0};
    return !pair->problem && ts_row_match_open(match, pair, &rule);
}

size_t *ts_gathered_order(const struct ts_pair *pair, const struct ts_delta *delta)
{
    struct ts_row_match match = {0};
    double left = 0, energy = 0;
    size_t *from = NULL;
    if (ts_is_gathered(pair->name) && ts_gathered_match(&match, pair, ts_row_match_count(pair) / LOST_MOST) &&
        (from = malloc(match.count * sizeof *from)))
        for (size_t row = 0; row < match.count; row++) {
            from[row] = match.rows[row].from;
            left += match.rows[row].left;
            energy += match.rows[row].energy;
        }
    if (from && (match.moved < 2 || !(sqrt(left / energy) < TS_GATHERED_LEAVES * delta->rel_l2))) {
        free(from);
        from = NULL;
    }
    ts_row_match_release(&match);
    return from;
}
