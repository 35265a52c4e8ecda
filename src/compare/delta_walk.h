/* What is measured of some elements of a pair, and the walk that measures it. */
#ifndef TS_COMPARE_DELTA_WALK_H
#define TS_COMPARE_DELTA_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "compare/delta.h"
#include "compare/moments.h"
#include "pair/pair.h"

struct ts_delta_piece {
    struct ts_moments a, b;
    double min_a, max_a, min_b, max_b;
    uint64_t nan_a, nan_b, plus_a, plus_b, minus_a, minus_b, nan_both, inf_both, masked, non_finite, first_non_finite;
    uint64_t unequal, mismatched;
    double sum, sum_abs, squares; /* of d */
    double max_abs, max_rel;      /* max_rel as found in f32 where the kernels found it */
    uint64_t worst, steepest;     /* where they are: the element, or the start of its run */
    bool apart[TS_DELTA_TOLERANCES];
    /* where the least number of both sides is one that masks are written with: the same without the elements that are
     * that on both sides */
    struct ts_moments seen_a, seen_b;
    double seen_min_a, seen_min_b;
    bool beside; /* these are known */
    /* of boxes, whose elements are no run of the pair's: where worst is an element, what is to be known about it */
    double worst_a, worst_b, worst_ulp, steepest_ratio, steepest_ulp;
};

void ts_delta_piece_init(struct ts_delta_piece *piece);

/* Whether the pair goes through the kernels of f32, so that `worst` and `steepest` are starts of runs. Those know
 * nothing of masked scores. */
bool ts_delta_is_fast(const struct ts_pair *pair);

/* Elements as doubles, and how far apart they are: of integers of 64 bits, which are not always doubles, exactly. */
enum ts_status ts_delta_read(const struct ts_pair *pair, uint64_t first, size_t count, double *x, double *y,
                             double *differences, struct ts_error *error);

/* Adds elements [first, end) to a piece. ratio: a |d| / |a| that was found elsewhere; smaller ones need not be told. */
enum ts_status ts_delta_walk(const struct ts_pair *pair, uint64_t first, uint64_t end, double ratio,
                             const struct ts_tolerance *tolerance, struct ts_delta_piece *piece,
                             struct ts_error *error);

/* Powers of two by which doubles are taken, which is exact, so that squares of the largest and smallest stay numbers.
 */
struct ts_delta_shifts {
    int a, b, d;
};

/* The moments, the least numbers and the sums alone, of elements [first, end), times 2^shift each. Elements that are
 * `mask` on both sides are left out; NaN: there is none. */
enum ts_status ts_delta_walk_shifted(const struct ts_pair *pair, uint64_t first, uint64_t end,
                                     const struct ts_delta_shifts *shifts, double mask, struct ts_delta_piece *piece,
                                     struct ts_error *error);

/* Whether the least number of both sides of a piece is one that masks are written with. */
bool ts_delta_may_mask(const struct ts_pair *pair, const struct ts_delta_piece *piece);

#endif
