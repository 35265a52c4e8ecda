/* Points: which pairs stand at the same point of other layers. Names are put in groups once, so that a run of many
 * tensors is not searched for each of them. For the judge. */
#ifndef TS_COMPARE_JUDGE_POINTS_H
#define TS_COMPARE_JUDGE_POINTS_H

#include <stdbool.h>
#include <stddef.h>

#include "pair/pair.h"

#define TS_POINTS_NEAR 128 /* that are looked at, on either side: more layers than any model has */

struct ts_points {
    const struct ts_pair *pairs;
    size_t *before, *after; /* per pair: 1 + the nearest whose name has the same letters; 0: none */
    size_t asked;           /* pairs of names that were looked at so far */
};

/* The same point of another layer: names that are equal but for one number. */
bool ts_judge_same_point(const char *a, const char *b);
/* The same point of the same layer, once more: in another step or rank, or at another call of the module. */
bool ts_judge_is_repeated(const char *a, const char *b);

/* False without memory. */
bool ts_points_open(struct ts_points *points, const struct ts_pair *pairs, size_t count);
void ts_points_release(struct ts_points *points);
/* Those nearest to pair i, in the order of the run; i itself is not among them. */
size_t ts_points_near(struct ts_points *points, size_t i, size_t near[2 * TS_POINTS_NEAR]);

#endif
