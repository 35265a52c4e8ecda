/* The inner loops of measuring a difference: two runs of numbers of one type, f32, bf16 or f16, or bf16 beside f32.
 * Sums are compensated, with a loss of less than 1e-6 that delta_kernel.c derives, or in double throughout.
 *
 * As in stats_kernel.h, a run with NaN, infinities or magnitudes that leave the accumulators' range comes back with
 * clean = false and is walked element by element by the caller. Results are the same to the last bit at every SIMD
 * level: lanes are fixed at 64 bytes, and a product is fused with an addition where it is exact, or at every level. */
#ifndef TS_COMPARE_DELTA_KERNEL_H
#define TS_COMPARE_DELTA_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "compare/moments.h"

/* Most numbers per call. What a run costs beside its numbers (adding up lanes) is then a few percent, and what has to
 * be looked at twice is still in the second-level cache. */
#define TS_DELTA_RUN 16384

struct ts_delta_limits {
    float rtol, atol;
    float ratio;                       /* the largest |d| / |a| so far */
    double min_a, max_a, min_b, max_b; /* the extremes so far */
    /* What was true of the run before, and may be of this one; results are the same, only sooner when it is. */
    bool eager; /* some elements may be beyond the tolerance: count them on the way */
    bool same;  /* both sides are equal, bit for bit */
    /* Where b is f32: bytes of a and of b to be asked for on the way, so many for each sixteen numbers. Memory is idle
     * while numbers are worked on that were decoded, and what is decoded next can come meanwhile. */
    struct ts_ahead {
        uintptr_t at; /* no pointer: it may lie beyond the end */
        size_t step;
    } ahead[2];
};

struct ts_delta_sums {
    struct ts_moments a, b;
    double sum, sum_abs, squares; /* of d = b - a, |d|, d^2 */
    double max_abs;
    double min_a, max_a, min_b, max_b; /* or bounds of them, where these are inside of the limits given */
    double max_rel; /* the largest |d| / |a| with a != 0 in f32 when it is above the ratio given, else 0 */
    uint64_t unequal;
    uint64_t mismatched; /* |d| > atol + rtol * |a|, in f32 */
    bool eager, same;    /* for the limits of the next run */
    bool clean;
};

typedef void ts_delta_measure(const uint8_t *a, const uint8_t *b, size_t count, struct ts_delta_limits limits,
                              struct ts_delta_sums *sums);
/* How many have |d| > atol + rtol * |a|, in f32. Any numbers; NaN is never above anything. */
typedef uint64_t ts_delta_beyond(const uint8_t *a, const uint8_t *b, size_t count, float rtol, float atol);

struct ts_delta_kernel {
    ts_delta_measure *measure;
    ts_delta_beyond *beyond;
};

/* The types that they know; f32, which others are decoded or widened to, in two ways: doubled is for what the first
 * hands back. */
enum ts_delta_kind { TS_DELTA_F32, TS_DELTA_DOUBLED, TS_DELTA_BF16, TS_DELTA_F16, TS_DELTA_KINDS };

struct ts_delta_kernels {
    struct ts_delta_kernel of[TS_DELTA_KINDS];
};

TS_DECLARE_TABLES(const struct ts_delta_kernels, ts_delta_kernels);

/* A bf16 tensor beside numbers of f32. */
TS_DECLARE_TABLES(const struct ts_delta_kernel, ts_delta_mixed_kernel);

#endif
