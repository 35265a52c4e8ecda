/* The inner loop of measuring a difference in double: what is not f32, bf16 or f16, as doubles.
 *
 * A run with NaN, infinities or squares that overflow comes back with clean = false, and the caller walks it element by
 * element. Results are the same to the last bit at every SIMD level: eight lanes, and no product is fused with an
 * addition. */
#ifndef TS_COMPARE_DELTA_F64_KERNEL_H
#define TS_COMPARE_DELTA_F64_KERNEL_H

#include <stddef.h>

#include "base/cpu.h"
#include "compare/delta_kernel.h"

struct ts_delta_f64_limits {
    double rtol, atol;
    double ratio; /* the largest |d| / |a| so far */
};

struct ts_delta_f64_kernels {
    /* One number at least. Of the sums all but `eager` and `same`; max_rel and mismatched are exact in double. */
    void (*measure)(const double *a, const double *b, size_t count, struct ts_delta_f64_limits limits,
                    struct ts_delta_sums *sums);
};

TS_DECLARE_TABLES(const struct ts_delta_f64_kernels, ts_delta_f64_kernels);

#endif
