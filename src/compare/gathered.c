/* Owns which tensors hold rows that experts gathered, and what counts as the same row there. What comes out of the
 * experts is in the order of the tokens again, and none of this. */
#include "compare/gathered.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE     0.25 /* of a row's energy may be left: weights of three bits leave less */
#define FLOOR     1e-3 /* and of an ordinary row's, for those that are next to nothing */
#define LOST_MOST 2    /* one row in so many may be found nowhere */

/* Inside the module of the experts: "mlp.experts.act_fn", not "mlp.experts" itself, which holds what comes out. */
static bool is_inside_experts(const char *name)
{
    for (const char *at = name; (at = strstr(at, "experts.")); at++)
        if ((at == name || at[-1] == '.' || at[-1] == '_' || at[-1] == '/') && !strstr(name, "shared_expert"))
            return true;
    return false;
}

bool ts_gathered_match(struct ts_row_match *match, const struct ts_pair *pair, size_t lost)
{
    const struct ts_row_rule rule = {.close = CLOSE, .floor = FLOOR, .lost = lost, .once = true};
    *match = (struct ts_row_match){0};
    return !pair->problem && is_inside_experts(pair->name) && ts_row_match_open(match, pair, &rule);
}

size_t *ts_gathered_order(const struct ts_pair *pair, const struct ts_delta *delta)
{
    struct ts_row_match match;
    double left = 0, energy = 0;
    size_t *from = NULL;
    if (ts_gathered_match(&match, pair, ts_row_match_count(pair) / LOST_MOST) &&
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
