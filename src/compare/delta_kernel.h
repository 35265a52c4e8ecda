/* The inner loops of measuring a difference: two runs of numbers of one type that stand side by side.
 *
 * As in stats_kernel.h, a run with NaN, infinities or magnitudes that leave the accumulators' range comes back with
 * clean = false and is walked element by element by the caller. Results are the same to the last bit at every SIMD
 * level: lanes are fixed at 64 bytes, and no product is fused with an addition. */
#ifndef TS_COMPARE_DELTA_KERNEL_H
#define TS_COMPARE_DELTA_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers per call: both sides of f32, decoded, stay in the first-level cache. */
#define TS_DELTA_RUN 2048

struct ts_delta_sums {
    double sum_a, sum_b, squares_a, squares_b; /* of a, b, a^2, b^2; the product follows from |d|^2 */
    double sum_abs, squares;                   /* of |d|, d^2 */
    double min_a, max_a, min_b, max_b, max_abs;
    uint64_t unequal;
    uint64_t mismatched; /* |d| > atol + rtol * |a|, in f32 */
    bool exceeds;        /* some |d| > ratio * |a| */
    bool clean;
};

struct ts_delta_limits {
    float rtol, atol, ratio;
};

typedef void ts_delta_kernel(const uint8_t *a, const uint8_t *b, size_t count, struct ts_delta_limits limits,
                             struct ts_delta_sums *sums);

struct ts_delta_kernels {
    ts_delta_kernel *f32, *bf16, *f16;
};

extern const struct ts_delta_kernels ts_delta_kernels_portable;
#if defined(__x86_64__)
extern const struct ts_delta_kernels ts_delta_kernels_avx2, ts_delta_kernels_avx512;
#elif defined(__aarch64__)
extern const struct ts_delta_kernels ts_delta_kernels_neon;
#endif

#endif
