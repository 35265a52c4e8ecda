/* A close look at the elements of a pair, in double: which are masks, where the largest differences are, how far apart
 * two numbers are in units of the last place, how many bits of its type a tensor uses. */
#ifndef TS_COMPARE_DELTA_CLOSE_H
#define TS_COMPARE_DELTA_CLOSE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "compare/delta.h"
#include "pair/pair.h"
#include "tensor/mask.h"

/* Integers or booleans on both sides. */
static inline bool ts_is_exact(const struct ts_pair *pair)
{
    return ts_type_is_integer(pair->a.tensor->type) && ts_type_is_integer(pair->b.tensor->type);
}

/* Stored mantissa bits of the coarser type of a pair; quantized types count as f32, which they decode to. */
int ts_coarser_bits(const struct ts_pair *pair);

/* The most negative number of each side's type, where that is small enough to be an ordinary number elsewhere. */
struct ts_masks {
    double lowest_a, lowest_b;
    bool scores; /* whatever is as low as a mask makes scores is masked */
};
struct ts_masks ts_masks_of(const struct ts_pair *pair);

/* What masks are written with: minus infinity, the lowest number of the type, or one of the constants in use, as the
 * types round them. */
bool ts_is_mask(double value, double lowest);

/* Whether a tensor whose least number is this may hold a mask. */
static inline bool ts_may_mask(double least, double lowest)
{
    return least <= lowest || ts_is_masked_score(least);
}

/* No mask is larger: the lowest number of f8_e4m3fnuz is -240. */
#define TS_MASKS_BELOW (-200)

/* Equal numbers as low as this are a mask as well, and would drown every other number of their tensor in the sums. */
#define TS_MASKED_FOR_SURE (-1e29)

/* The most negative number of f16, with a score added or not. */
static inline bool ts_is_f16_mask(double value)
{
    return value >= -65504 && value < -6e4;
}

/* Masked on both sides, by two different numbers or by one that would drown every other in the sums. A number by hand,
 * as -3.4e38 is, may have become minus infinity in a type that is coarser or ends earlier. Scores with a mask added to
 * them have another number each, of which softmax makes nothing. */
static inline bool ts_is_masked(const struct ts_masks *masks, double x, double y)
{
    const double infinity = -(double)INFINITY;
    if (masks->scores && ts_is_masked_score(x) && ts_is_masked_score(y))
        return x != y || x > infinity;
    if (!(x < TS_MASKS_BELOW && y < TS_MASKS_BELOW) || (x == y && !(x < TS_MASKED_FOR_SURE && x > infinity)))
        return false;
    return (ts_is_mask(x, masks->lowest_a) && ts_is_mask(y, masks->lowest_b)) ||
           (x < TS_MASKED_FOR_SURE && ts_is_f16_mask(y) && ts_is_mask(x, masks->lowest_a)) ||
           (y < TS_MASKED_FOR_SURE && ts_is_f16_mask(x) && ts_is_mask(y, masks->lowest_b)) ||
           (x == infinity && y < TS_MASKED_FOR_SURE) || (y == infinity && x < TS_MASKED_FOR_SURE);
}

/* Units in the last place between two numbers of a pair: |b - a| over the distance of neighbours, at the larger of the
 * two, in the coarser type. Of integers the unit is one. */
struct ts_unit {
    int bits[2], least[2]; /* of each side: mantissa bits, exponent of the smallest step */
    double most_units;     /* that a number can be from 0: two to the bits of the coarser type and one */
    bool whole;
};
struct ts_unit ts_unit_of(const struct ts_pair *pair);
double ts_ulps(const struct ts_unit *unit, double a, double b);
/* Raises *most to the units between a and b. A unit is more than 2^-(bits + 1) of the larger number, so that most pairs
 * need no exact count. */
static inline void ts_raise_ulps(const struct ts_unit *unit, double a, double b, double *most)
{
    const double left = a < 0 ? -a : a, right = b < 0 ? -b : b, distance = b > a ? b - a : a - b;
    if (unit->most_units * distance > *most * (left > right ? left : right)) {
        const double units = ts_ulps(unit, a, b);
        *most = units > *most ? units : *most;
    }
}

/* From the runs that hold the largest differences to the elements: worst, max_rel, and a max_ulp that ts_delta_detail
 * and ts_delta_ulps raise where another run has more. */
enum ts_status ts_find_largest(const struct ts_pair *pair, uint64_t worst_run, uint64_t steepest_run,
                               struct ts_delta *delta, struct ts_error *error);

/* The norms and the distance leave nothing of a cosine where one norm is many times the other. ts_delta_cosine takes it
 * from the products instead: one more pass. */
bool ts_delta_needs_cosine(const struct ts_delta *delta);
enum ts_status ts_delta_cosine(const struct ts_pair *pair, struct ts_delta *delta, struct ts_error *error);

/* Mantissa bits that the stored values of a view use, from a sample. */
int ts_bits_in_use(const struct ts_view *view);

#endif
