/* Compiled once per instruction set; see base/level.h and base/vector.h.
 *
 * Two streams of f32 leave a core about seventeen vector operations per 128 bytes before it falls behind memory, so
 * everything accumulates in f32 and is flushed into double every FLUSH groups: the relative error of the sums stays
 * near 2^-24 / sqrt(count), far below what is reported. Runs whose squares would leave the range of f32 are handed
 * back. No multiplication is fused with an addition: with and without FMA the bits must be the same. */
#include "compare/delta_kernel.h"

#include <math.h>

#include "base/level.h"
#include "base/number.h"
#include "base/vector.h"

#define FLUSH 32
/* As in stats_kernel.c: squares stay finite, and what underflows does not count. */
#define LARGEST  0x1p60
#define SMALLEST 0x1p-50

TS_KERNEL_INLINE ts_vf32 absolute(ts_vf32 v)
{
    return (ts_vf32)((ts_vi32)v & 0x7fffffff);
}

static void add_tail(float a, float b, struct ts_delta_limits limits, struct ts_delta_sums *sums)
{
    double x = (double)a, y = (double)b, d = y - x;
    sums->sum_a += x;
    sums->sum_b += y;
    sums->squares_a += x * x;
    sums->squares_b += y * y;
    sums->sum_abs += fabs(d);
    sums->squares += d * d;
    sums->min_a = x < sums->min_a ? x : sums->min_a;
    sums->max_a = x > sums->max_a ? x : sums->max_a;
    sums->min_b = y < sums->min_b ? y : sums->min_b;
    sums->max_b = y > sums->max_b ? y : sums->max_b;
    sums->max_abs = fabs(d) > sums->max_abs ? fabs(d) : sums->max_abs;
    sums->unequal += a != b;
    sums->mismatched += fabsf(b - a) > fabsf(a) * limits.rtol + limits.atol;
    sums->exceeds = sums->exceeds || fabsf(b - a) > fabsf(a) * limits.ratio;
}

/* Sixteen doubles that the f32 accumulators are flushed into, number i into number i. */
struct wide {
    ts_vf64 low[TS_VECTORS], high[TS_VECTORS];
};

TS_KERNEL_INLINE void flush(struct wide *wide, const ts_vf32 part[TS_VECTORS])
{
    for (int k = 0; k < TS_VECTORS; k++) {
        wide->low[k] += ts_vf64_low(part[k]);
        wide->high[k] += ts_vf64_high(part[k]);
    }
}

/* Their sum, in one order at every width. */
static double total_of(const struct wide *wide)
{
    double lane[16];
    for (int k = 0; k < TS_VECTORS; k++) {
        memcpy((char *)lane + k * 2 * TS_VECTOR_BYTES, &wide->low[k], TS_VECTOR_BYTES);
        memcpy((char *)lane + (k * 2 + 1) * TS_VECTOR_BYTES, &wide->high[k], TS_VECTOR_BYTES);
    }
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

TS_KERNEL_INLINE float lowest(const ts_vf32 v[TS_VECTORS])
{
    float lane[16], low;
    memcpy(lane, v, sizeof lane);
    low = lane[0];
    for (int i = 1; i < 16; i++)
        low = lane[i] < low ? lane[i] : low;
    return low;
}

TS_KERNEL_INLINE float highest(const ts_vf32 v[TS_VECTORS])
{
    float lane[16], high;
    memcpy(lane, v, sizeof lane);
    high = lane[0];
    for (int i = 1; i < 16; i++)
        high = lane[i] > high ? lane[i] : high;
    return high;
}

/* How many lanes of a are not equal to b, and how many are above it. */
#if defined(__AVX512F__)
#define COUNT_UNEQUAL(a, b) ((uint64_t)__builtin_popcount(_mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_NEQ_UQ)))
#define COUNT_ABOVE(a, b)   ((uint64_t)__builtin_popcount(_mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_GT_OQ)))
#elif defined(__AVX2__)
#define COUNT_LANES(how, a, b)                                                                                         \
    ((uint64_t)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)(a), (__m256)(b), how))))
#define COUNT_UNEQUAL(a, b) COUNT_LANES(_CMP_NEQ_UQ, a, b)
#define COUNT_ABOVE(a, b)   COUNT_LANES(_CMP_GT_OQ, a, b)
#elif defined(__x86_64__)
#define COUNT_UNEQUAL(a, b)                                                                                            \
    ((uint64_t)__builtin_popcount((unsigned)_mm_movemask_ps(_mm_cmpneq_ps((__m128)(a), (__m128)(b)))))
#define COUNT_ABOVE(a, b)                                                                                              \
    ((uint64_t)__builtin_popcount((unsigned)_mm_movemask_ps(_mm_cmpgt_ps((__m128)(a), (__m128)(b)))))
#else
TS_KERNEL_INLINE uint64_t count_lanes(ts_vi32 mask)
{
    uint64_t count = 0;
    for (size_t i = 0; i < TS_VECTOR_BYTES / 4; i++)
        count += (uint64_t)(mask[i] & 1);
    return count;
}
#define COUNT_UNEQUAL(a, b) count_lanes((ts_vi32)((a) != (b)))
#define COUNT_ABOVE(a, b)   count_lanes((ts_vi32)((a) > (b)))
#endif

TS_KERNEL_INLINE ts_vf32 load_f32(const uint8_t *from)
{
    return ts_vf32_load(from);
}

TS_KERNEL_INLINE ts_vf32 load_bf16(const uint8_t *from)
{
    ts_vu16_half half;
    memcpy(&half, from, sizeof half);
    return (ts_vf32)(__builtin_convertvector(half, ts_vu32) << 16);
}

TS_KERNEL_INLINE float scalar_f32(const uint8_t *from)
{
    return ts_float_from_bits(ts_load_le32(from));
}

TS_KERNEL_INLINE float scalar_bf16(const uint8_t *from)
{
    return ts_bf16_to_float(ts_load_le16(from));
}

TS_KERNEL_INLINE float scalar_f16(const uint8_t *from)
{
    return ts_f16_to_float(ts_load_le16(from));
}

/* One body for the three types. Each sum is an array over the vectors of a group only, which unrolls into registers. */
#define DELTA(NAME, SIZE, LOAD, SCALAR)                                                                                \
    static void NAME(const uint8_t *a, const uint8_t *b, size_t count, struct ts_delta_limits limits,                  \
                     struct ts_delta_sums *sums)                                                                       \
    {                                                                                                                  \
        ts_vf32 low_a[TS_VECTORS], high_a[TS_VECTORS], low_b[TS_VECTORS], high_b[TS_VECTORS];                          \
        ts_vf32 furthest[TS_VECTORS] = {{0}};                                                                          \
        size_t whole = count / 16 * 16, i = 0;                                                                         \
        uint64_t unequal = 0, mismatched = 0, above = 0;                                                               \
        double largest;                                                                                                \
        struct wide wide_sum_a = {0}, wide_sum_b = {0}, wide_squares_a = {0}, wide_squares_b = {0};                    \
        struct wide wide_sum_abs = {0}, wide_squares = {0};                                                            \
        *sums = (struct ts_delta_sums){.min_a = INFINITY, .max_a = -INFINITY, .min_b = INFINITY, .max_b = -INFINITY};  \
        for (int k = 0; k < TS_VECTORS; k++) {                                                                         \
            low_a[k] = low_b[k] = (ts_vf32){0} + INFINITY;                                                             \
            high_a[k] = high_b[k] = (ts_vf32){0} - INFINITY;                                                           \
        }                                                                                                              \
        while (i < whole) {                                                                                            \
            size_t end = whole - i < 16 * FLUSH ? whole : i + 16 * FLUSH;                                              \
            ts_vf32 sum_a[TS_VECTORS] = {{0}}, sum_b[TS_VECTORS] = {{0}};                                              \
            ts_vf32 squares_a[TS_VECTORS] = {{0}}, squares_b[TS_VECTORS] = {{0}};                                      \
            ts_vf32 sum_abs[TS_VECTORS] = {{0}}, squares[TS_VECTORS] = {{0}};                                          \
            for (; i < end; i += 16)                                                                                   \
                _Pragma("GCC unroll 4") for (int k = 0; k < TS_VECTORS; k++)                                           \
                {                                                                                                      \
                    ts_vf32 x = LOAD(a + i * (SIZE) + k * (TS_VECTOR_BYTES * (SIZE) / 4));                             \
                    ts_vf32 y = LOAD(b + i * (SIZE) + k * (TS_VECTOR_BYTES * (SIZE) / 4));                             \
                    ts_vf32 d = y - x, distance = absolute(d);                                                         \
                    sum_a[k] += x;                                                                                     \
                    sum_b[k] += y;                                                                                     \
                    squares_a[k] += x * x;                                                                             \
                    squares_b[k] += y * y;                                                                             \
                    sum_abs[k] += distance;                                                                            \
                    squares[k] += d * d;                                                                               \
                    low_a[k] = ts_vf32_min(x, low_a[k]);                                                               \
                    high_a[k] = ts_vf32_max(x, high_a[k]);                                                             \
                    low_b[k] = ts_vf32_min(y, low_b[k]);                                                               \
                    high_b[k] = ts_vf32_max(y, high_b[k]);                                                             \
                    furthest[k] = ts_vf32_max(distance, furthest[k]);                                                  \
                    unequal += COUNT_UNEQUAL(x, y);                                                                    \
                    mismatched += COUNT_ABOVE(distance, absolute(x) * limits.rtol + limits.atol);                      \
                    above |= COUNT_ABOVE(distance, absolute(x) * limits.ratio);                                        \
                }                                                                                                      \
            flush(&wide_sum_a, sum_a);                                                                                 \
            flush(&wide_sum_b, sum_b);                                                                                 \
            flush(&wide_squares_a, squares_a);                                                                         \
            flush(&wide_squares_b, squares_b);                                                                         \
            flush(&wide_sum_abs, sum_abs);                                                                             \
            flush(&wide_squares, squares);                                                                             \
        }                                                                                                              \
        sums->unequal = unequal;                                                                                       \
        sums->mismatched = mismatched;                                                                                 \
        sums->exceeds = above != 0;                                                                                    \
        if (whole) {                                                                                                   \
            sums->sum_a = total_of(&wide_sum_a);                                                                       \
            sums->sum_b = total_of(&wide_sum_b);                                                                       \
            sums->squares_a = total_of(&wide_squares_a);                                                               \
            sums->squares_b = total_of(&wide_squares_b);                                                               \
            sums->sum_abs = total_of(&wide_sum_abs);                                                                   \
            sums->squares = total_of(&wide_squares);                                                                   \
            sums->min_a = (double)lowest(low_a);                                                                       \
            sums->max_a = (double)highest(high_a);                                                                     \
            sums->min_b = (double)lowest(low_b);                                                                       \
            sums->max_b = (double)highest(high_b);                                                                     \
            sums->max_abs = (double)highest(furthest);                                                                 \
        }                                                                                                              \
        for (; i < count; i++)                                                                                         \
            add_tail(SCALAR(a + i * (SIZE)), SCALAR(b + i * (SIZE)), limits, sums);                                    \
        largest = fmax(fmax(sums->max_a, -sums->min_a), fmax(sums->max_b, -sums->min_b));                              \
        sums->clean = isfinite(sums->squares_a) && isfinite(sums->squares_b) && isfinite(sums->squares) &&             \
                      (largest == 0 || (largest < LARGEST && largest > SMALLEST)) &&                                   \
                      (sums->max_abs == 0 || sums->max_abs > SMALLEST);                                                \
    }

DELTA(delta_f32, 4, load_f32, scalar_f32)
DELTA(delta_bf16, 2, load_bf16, scalar_bf16)
DELTA(delta_f16, 2, ts_vf32_from_f16, scalar_f16)

const struct ts_delta_kernels TS_AT_LEVEL(ts_delta_kernels) = {
    .f32 = delta_f32,
    .bf16 = delta_bf16,
    .f16 = delta_f16,
};
