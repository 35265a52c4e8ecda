/* For delta_kernel.c: numbers in double, and what a second look at a run finds where the first could not tell. */
#ifndef TS_COMPARE_DELTA_LOOK_H
#define TS_COMPARE_DELTA_LOOK_H

#include <math.h>

#include "compare/lanes.h"

/* Squared distances from the mean that are a smaller share of the squares than this are added up once more: they are
 * what is left when two near numbers are subtracted, and rounding would show. */
#define SPREAD 0x1p-2

TS_KERNEL_INLINE ts_vf32 absolute(ts_vf32 v)
{
    return (ts_vf32)((ts_vi32)v & 0x7fffffff);
}

/* The larger of two that are not negative, or a NaN. */
TS_KERNEL_INLINE ts_vf32 further(ts_vf32 a, ts_vf32 b)
{
    return (ts_vf32)ts_vi32_max((ts_vi32)a, (ts_vi32)b);
}

/* As ts_vf32_fused, of one number. */
TS_KERNEL_INLINE float fused(float a, float b, float c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return ts_vf32_fused((ts_vf32){a}, (ts_vf32){b}, (ts_vf32){c})[0];
#endif
}

/* How many lanes of a are not equal to b, and how many are above it. */
#if defined(__AVX512F__)
/* GCC 12, short of registers, writes the sixteen bits of a mask to memory and counts thirty-two there: the mask is to
 * be in a register before. */
TS_KERNEL_INLINE uint64_t count_mask(uint32_t mask)
{
    __asm__("" : "+r"(mask));
    return (uint64_t)__builtin_popcount(mask);
}
#define COUNT_UNEQUAL(a, b) count_mask(_mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_NEQ_UQ))
#define COUNT_ABOVE(a, b)   count_mask(_mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_GT_OQ))
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
#if defined(__aarch64__)
    return (uint64_t)vaddvq_u32((uint32x4_t)(mask & 1));
#else
    uint64_t count = 0;
    for (size_t i = 0; i < TS_VECTOR_BYTES / 4; i++)
        count += (uint64_t)(mask[i] & 1);
    return count;
#endif
}
#define COUNT_UNEQUAL(a, b) count_lanes((ts_vi32)((a) != (b)))
#define COUNT_ABOVE(a, b)   count_lanes((ts_vi32)((a) > (b)))
#endif

/* The numbers of a vector in double, or sums of them. */
struct halves {
    ts_vf64 low, high;
};

TS_KERNEL_INLINE struct halves widen(const uint8_t *from)
{
    return (struct halves){ts_vf64_widened(from), ts_vf64_widened(from + TS_VECTOR_BYTES / 2)};
}

TS_KERNEL_INLINE void add(struct halves *sum, struct halves v)
{
    sum->low += v.low;
    sum->high += v.high;
}

/* Of numbers that f32 has, whose squares double has: fusing does not change a bit. */
TS_KERNEL_INLINE void add_squares(struct halves *sum, struct halves v)
{
    sum->low = ts_vf64_add_product(sum->low, v.low, v.low);
    sum->high = ts_vf64_add_product(sum->high, v.high, v.high);
}

TS_KERNEL_INLINE void keep(struct wide *wide, int k, struct halves sum)
{
    wide->low[k] += sum.low;
    wide->high[k] += sum.high;
}

TS_KERNEL_INLINE uint64_t beyond(enum kind kind, const uint8_t *a, const uint8_t *b, size_t count, float rtol,
                                 float atol)
{
    const ts_vf32 wide_rtol = (ts_vf32){0} + rtol, wide_atol = (ts_vf32){0} + atol;
    uint64_t found = 0;
    size_t i = 0;
    for (; i + GROUP(kind) <= count; i += GROUP(kind))
        for (int k = 0; k < TS_VECTORS; k++) {
            ts_vf32 x[2], y[2];
            load(kind, a + i * SIZE(kind), k, x);
            load(kind, b + i * SIZE(kind), k, y);
            for (int p = 0; p < PARTS(kind); p++)
                found += COUNT_ABOVE(absolute(y[p] - x[p]), ts_vf32_fused(absolute(x[p]), wide_rtol, wide_atol));
        }
    for (; i < count; i++) {
        float x = scalar(kind, a + i * SIZE(kind)), y = scalar(kind, b + i * SIZE(kind));
        found += fabsf(y - x) > fused(fabsf(x), rtol, atol);
    }
    return found;
}

/* Pairs of a zero and a negative zero, of sixteen-bit numbers. */
TS_KERNEL_INLINE uint64_t count_other_zeros(const uint8_t *a, const uint8_t *b, size_t groups)
{
    const ts_vu16 one = (ts_vu16){0} + 1;
    uint64_t found = 0;
    for (size_t at = 0; at < groups * 64; at += TS_VECTOR_BYTES) {
        const ts_vu16 of_a = ts_vu16_load(a + at), of_b = ts_vu16_load(b + at);
        const ts_vu16 sizes = (of_a | of_b) + (of_a | of_b);
        if (!ts_vu16_any_below(sizes, one))
            continue;
        for (size_t lane = 0; lane < TS_VECTOR_BYTES / 2; lane++)
            found += sizes[lane] == 0 && of_a[lane] != of_b[lane];
    }
    return found;
}

/* The bits of the largest number of a sixteen-bit type that is not above a limit. */
TS_KERNEL_INLINE uint16_t bits_up_to(enum kind kind, double limit)
{
    uint16_t bits = 0;
    for (uint16_t bit = 0x4000; bit; bit >>= 1)
        if (from_bits(kind, bits | bit) <= limit) /* of NaN and infinity false, unless the limit is one */
            bits |= bit;
    return bits;
}

/* The largest |d| / |a| with a != 0, if any is above the ratio: |a| is at most max_abs / ratio there. */
TS_KERNEL_INLINE double steepest(enum kind kind, const uint8_t *a, const uint8_t *b, size_t count, double max_abs,
                                 double ratio_before)
{
    const uint16_t limit = PARTS(kind) == 1 ? 0 : bits_up_to(kind, max_abs / ratio_before * (1 + 0x1p-20));
    const ts_vu16 below = (ts_vu16){0} + (uint16_t)(2 * limit);
    ts_vf32 most[TS_VECTORS] = {{0}};
    float highest_ratio;
    size_t i = 0;
    for (; i + GROUP(kind) <= count; i += GROUP(kind))
        for (int k = 0; k < TS_VECTORS; k++) {
            ts_vf32 x[2], y[2];
            if (kind == BF16 || (kind == F16 && TS_VECTORS == 1)) { /* where one vector holds the bits of x */
                ts_vu16 bits = ts_vu16_load(a + i * SIZE(kind) + k * TS_VECTOR_BYTES);
                if (!ts_vu16_any_below(bits + bits - 1, below)) /* zero is 0xffff there */
                    continue;
            }
            load(kind, a + i * SIZE(kind), k, x);
            load(kind, b + i * SIZE(kind), k, y);
            for (int p = 0; p < PARTS(kind); p++) {
                ts_vf32 size = absolute(x[p]), ratio = absolute(y[p] - x[p]) / size;
                ratio = (ts_vf32)((ts_vi32)ratio & (ts_vi32)(size > 0.0f));
                most[k] = ts_vf32_max(ratio, most[k]);
            }
        }
    highest_ratio = highest(most);
    for (; i < count; i++) {
        float x = scalar(kind, a + i * SIZE(kind)), y = scalar(kind, b + i * SIZE(kind)),
              ratio = fabsf(y - x) / fabsf(x);
        highest_ratio = x != 0 && ratio > highest_ratio ? ratio : highest_ratio;
    }
    return (double)highest_ratio;
}

TS_KERNEL_INLINE bool is_spread(double sum, double squares, size_t count)
{
    return squares - sum * (sum / (double)count) >= squares * SPREAD;
}

/* Moments from sums, and once more about the mean where the numbers lie far from zero and close together, or where the
 * sum is known to be a rough one. */
TS_KERNEL_INLINE struct ts_moments moments_of(enum kind kind, const uint8_t *from, size_t count, double sum,
                                              double squares, bool constant, bool rough)
{
    struct ts_moments moments = {.count = count, .squares = squares, .mean = sum / (double)count};
    moments.deviation = squares - sum * moments.mean;
    if (constant) { /* and to be seen as exactly that */
        moments.mean = (double)scalar(kind, from) + 0.0;
        moments.deviation = 0;
    } else if (rough || !is_spread(sum, squares, count)) {
        const double middle = moments.mean;
        struct wide wide_sum = {0}, wide_squares = {0};
        const size_t whole = count / GROUP(kind) * GROUP(kind);
        for (int k = 0; k < TS_VECTORS; k++) {
            struct halves part = {{0}, {0}}, part_squares = part;
            for (size_t i = 0; i < whole; i += GROUP(kind)) {
                ts_vf32 x[2];
                load(kind, from + i * SIZE(kind), k, x);
                for (int p = 0; p < PARTS(kind); p++) {
                    const struct halves rest = {ts_vf64_low(x[p]) - middle, ts_vf64_high(x[p]) - middle};
                    add(&part, rest);
                    add(&part_squares, (struct halves){rest.low * rest.low, rest.high * rest.high});
                }
            }
            keep(&wide_sum, k, part);
            keep(&wide_squares, k, part_squares);
        }
        sum = total_of(&wide_sum);
        squares = total_of(&wide_squares);
        for (size_t i = whole; i < count; i++) {
            double rest = (double)scalar(kind, from + i * SIZE(kind)) - middle;
            sum += rest;
            squares += rest * rest;
        }
        moments.mean = middle + sum / (double)count;
        moments.deviation = squares - sum * (sum / (double)count);
        moments.deviation = moments.deviation > 0 ? moments.deviation : 0;
    }
    return moments;
}

/* Those of numbers [first, end), beside what was found. */
TS_KERNEL_INLINE void add_extremes(enum kind kind, const uint8_t *from, size_t first, size_t end, double *min,
                                   double *max)
{
    for (size_t i = first; i < end; i++) {
        double x = (double)scalar(kind, from + i * SIZE(kind));
        *min = x < *min ? x + 0.0 : *min;
        *max = x > *max ? x + 0.0 : *max;
    }
}

TS_KERNEL_INLINE void look_for_extremes(enum kind kind, const uint8_t *from, size_t count, double *min, double *max)
{
    const size_t groups = count / GROUP(kind);
    struct extremes extremes;
    extremes_init(kind, &extremes);
    for (size_t i = 0; i < groups * STRIDE(kind); i += STRIDE(kind))
        for (int k = 0; k < TS_VECTORS; k++) {
            ts_vu32 bits = load_bits(kind, from + i, k);
            extremes.as_signed[k] = extend_signed(kind, extremes.as_signed[k], bits);
            extremes.as_unsigned[k] = extend_unsigned(kind, extremes.as_unsigned[k], bits);
        }
    find_extremes(kind, &extremes, from, groups, min, max);
    add_extremes(kind, from, groups * GROUP(kind), count, min, max);
}

#endif
