/* The inner loop of statistics: sums, extremes and zeros of a run of numbers that stand side by side.
 *
 * Built for speed on ordinary data: a run with a NaN, an infinity, or magnitudes whose squares leave the accumulators'
 * range comes back with clean = false, and the caller walks it element by element. Results are the same to the last bit
 * at every SIMD level: lanes are fixed at 64 bytes, and every product is exact in its accumulator, so that it does not
 * matter whether it is fused with the addition. */
#ifndef TS_COMPARE_STATS_KERNEL_H
#define TS_COMPARE_STATS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

struct ts_stats_sums {
    double sum, sum_squares, min, max;
    uint64_t zeros;
    bool clean;
};

/* Up to TS_STATS_RUN numbers, at least one. The bytes need no alignment and are little-endian. */
#define TS_STATS_RUN 8192

struct ts_stats_kernels {
    void (*f32)(const uint8_t *src, size_t count, struct ts_stats_sums *sums);
    void (*bf16)(const uint8_t *src, size_t count, struct ts_stats_sums *sums);
    void (*f16)(const uint8_t *src, size_t count, struct ts_stats_sums *sums);
};

TS_DECLARE_TABLES(const struct ts_stats_kernels, ts_stats_kernels);

#endif
