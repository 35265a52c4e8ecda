/* Delta: the measured difference of one pair. One pass over both sides at memory speed, for any mix of element types.
 *
 * d = b - a, a the reference. Elements where both are finite count in the sums; NaN and infinities are counted apart.
 * An infinity on both sides with the same sign is equal. -inf against the most negative finite number of its type (or
 * another constant that masks are written with: delta_close.h) counts as masked on both sides and leaves the sums; so
 * does such a constant that is the least number of both sides and there many times.
 * Integers and booleans are compared exactly. Sums are in double or compensated, cut at fixed places, so that neither
 * thread count nor SIMD level changes them beyond 1e-12. */
#ifndef TS_COMPARE_DELTA_H
#define TS_COMPARE_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/progress.h"
#include "compare/ranking.h"
#include "pair/pair.h"

#define TS_DELTA_TOLERANCES 3
#define TS_DELTA_QUANTILES  5 /* 50, 90, 99, 99.9, 100 % */

/* Error energy along one axis of the pair's shape, by ts_delta_detail. */
struct ts_profile {
    uint64_t size;
    double *error;     /* sum of d^2 at this index */
    double *reference; /* sum of a^2 at this index */
};

struct ts_side {
    uint64_t nan, positive_inf, negative_inf;
    double min, max, mean, std, norm; /* of elements that are finite on both sides and not masked */
};

struct ts_delta {
    uint64_t count;    /* elements; complex numbers count twice */
    uint64_t compared; /* both finite */
    bool identical;    /* the same values everywhere, bit for bit when the types are equal */
    struct ts_side a, b;
    uint64_t nan_both, inf_both, masked; /* coinciding; masked: see above */
    uint64_t non_finite_mismatch;        /* one side non-finite where the other is not, or of another kind */
    uint64_t first_non_finite_mismatch;  /* flat index or UINT64_MAX */
    uint64_t unequal;                    /* elements whose values differ at all */
    double max_abs;                      /* of d */
    uint64_t worst;                      /* flat index of it, UINT64_MAX when nothing was compared */
    double worst_a, worst_b;
    double mean_abs, mean, mse, rmse; /* of d; mse is infinite where that square is no double, as of 1e200 */
    double rel_l2;                    /* |d| / |a|; 0 when both are zero, inf when only a is */
    double max_rel;                   /* largest |d| / |a| over elements with a != 0; inf when only a is zero */
    double norm_ratio;                /* |b| / |a| */
    double cosine;       /* 1 when both are zero, NaN when one is; from the products themselves where one norm
                            is many times the other */
    double max_ulp;      /* units in the last place of the coarser type (delta_close.h): around the worst and
                            around max_rel until ts_delta_detail or ts_delta_ulps looked at the others */
    uint64_t mismatched; /* |d| > atol + rtol * |a| at the options' tolerance */
    bool allclose[TS_DELTA_TOLERANCES];   /* no |d| > t + t * |a|, for t = 1e-3, 1e-4, 1e-5 */
    double quantiles[TS_DELTA_QUANTILES]; /* of |d|, from a sample where the pair is large */
    uint64_t looked_at;                   /* elements in that sample */
    struct ts_profile *profiles;          /* one per axis of the pair's shape, or NULL */
    unsigned rank;
    int precision_a, precision_b; /* mantissa bits the values really use: bf16 values in f32 storage give 7 */
    bool exact;                   /* integers: compared without rounding */
    struct ts_ranking ranking;    /* logits and probabilities, by ts_delta_detail */
};

struct ts_tolerance {
    double rtol, atol;
};

struct ts_delta_options {
    bool given; /* the tolerance is the user's; else that of the pair's coarser type is taken */
    struct ts_tolerance tolerance;
    bool exact; /* bit-exact mode: compare bytes, stop at the first difference */
};

/* deltas[i] for pairs[i]; pairs with a problem are left zeroed. Profiles and quantiles are left for
 * ts_delta_detail. */
enum ts_status ts_delta_run(struct ts_pool *pool, const struct ts_pair *pairs, size_t count,
                            const struct ts_delta_options *options, struct ts_delta *deltas,
                            struct ts_progress *progress, struct ts_error *error);

/* Raises max_ulp to that of every element: one more pass, for rules that ask for it. */
enum ts_status ts_delta_ulps(const struct ts_pair *pair, struct ts_delta *delta, struct ts_error *error);

/* Fills in profiles (in the arena) and quantiles of pairs[which[i]]: a second pass, for pairs that will be shown. Of
 * giants it looks at a spread of rows, a million elements, and at all where these do not account for the error. */
enum ts_status ts_delta_detail(struct ts_pool *pool, const struct ts_pair *pairs, const size_t *which, size_t count,
                               struct ts_arena *arena, struct ts_delta *deltas, struct ts_progress *progress,
                               struct ts_error *error);

#endif
