/* Statistics of single tensors: one pass over the bytes, on all cores, at memory speed for f32, bf16 and f16.
 *
 * Sums are in double, tensors are cut into pieces at fixed places and the pieces joined in order, so the result depends
 * neither on the number of threads nor on the SIMD level. NaN and infinities are counted and left out of the rest.
 * Complex numbers count as two numbers each. Memory does not grow with the tensors. */
#ifndef TS_COMPARE_STATS_H
#define TS_COMPARE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/progress.h"
#include "tensor/bundle.h"

#define TS_NOWHERE UINT64_MAX

struct ts_stats {
    uint64_t count;  /* numbers looked at: elements, twice that for complex */
    uint64_t finite; /* of them */
    uint64_t nan, positive_inf, negative_inf, zeros;
    uint64_t first_nan, first_inf; /* flat index of the element, or TS_NOWHERE */
    uint64_t at_min, at_max;
    double min, max;              /* of the finite ones; NaN when there are none */
    double mean, std, norm;       /* population standard deviation, Euclidean norm */
    int64_t exact_min, exact_max; /* integer types: the same without rounding (u64 keeps its bits) */
};

/* Statistics of each tensor, out[i] for tensors[i]. progress may be NULL; it counts the tensors' bytes. */
enum ts_status ts_stats_run(struct ts_pool *pool, struct ts_tensor *const *tensors, size_t count, struct ts_stats *out,
                            struct ts_progress *progress, struct ts_error *error);

/* Counts of values between stats->min and stats->max in `bins` equal steps, from a sample of at most 65,536 elements
 * spread over the tensor; *sampled is how many were looked at. */
enum ts_status ts_stats_histogram(const struct ts_tensor *tensor, const struct ts_stats *stats, unsigned bins,
                                  uint64_t *counts, uint64_t *sampled, struct ts_error *error);

/* Splits a flat index into coordinates, rank of them. */
void ts_flat_to_coordinates(const struct ts_tensor *tensor, uint64_t index, uint64_t *coordinates);

#endif
