/* For the kernels of differences (delta_kernel.c, delta_mixed_kernel.c): how their sums are kept, and what of a run
 * they know once it is added up. */
#ifndef TS_COMPARE_DELTA_PARTS_H
#define TS_COMPARE_DELTA_PARTS_H

#include <math.h>

#include "compare/delta_kernel.h"
#include "compare/delta_look.h"
#include "compare/lanes.h"

/* So many groups go by until sums in f32 go to double: as many as the first-level cache has for the vectors of a group
 * one after another. */
#define FLUSH ((size_t)64)
/* As in stats_kernel.c: squares in f32 stay finite, and what underflows does not count. Where products are fused, what
 * underflows must not change a bit of the sum either. Larger numbers of f32 are masks. */
#define LARGEST        0x1p60
#define SMALLEST       0x1p-50
#define SMALLEST_FUSED 0x1p-30

/* Sums of a few numbers, in f32; of d, or of b, is `sum`. */
struct parts {
    ts_vf32 sum_a, sum, sum_abs, squares_a, squares_b, squares;
};

/* Many such sums: what rounding takes from the first is kept in the second. */
struct compensated {
    struct parts sums, rest;
};

TS_KERNEL_INLINE void add_part(ts_vf32 *sum, ts_vf32 *rest, ts_vf32 part)
{
    const ts_vf32 next = *sum + part;
    *rest += part - (next - *sum);
    *sum = next;
}

TS_KERNEL_INLINE void add_parts(bool same, struct compensated *all, const struct parts *parts)
{
    add_part(&all->sums.sum_a, &all->rest.sum_a, parts->sum_a);
    add_part(&all->sums.squares_a, &all->rest.squares_a, parts->squares_a);
    if (same)
        return;
    add_part(&all->sums.sum, &all->rest.sum, parts->sum);
    add_part(&all->sums.sum_abs, &all->rest.sum_abs, parts->sum_abs);
    add_part(&all->sums.squares_b, &all->rest.squares_b, parts->squares_b);
    add_part(&all->sums.squares, &all->rest.squares, parts->squares);
}

/* The sums of a run, in double. */
struct run_sums {
    struct wide sum_a, sum, sum_abs, squares_a, squares_b, squares;
};

TS_KERNEL_INLINE void flush_parts(bool same, struct run_sums *run, int k, const struct parts *parts)
{
    flush(&run->sum_a, k, parts->sum_a);
    flush(&run->squares_a, k, parts->squares_a);
    if (same)
        return;
    flush(&run->sum, k, parts->sum);
    flush(&run->sum_abs, k, parts->sum_abs);
    flush(&run->squares_b, k, parts->squares_b);
    flush(&run->squares, k, parts->squares);
}

TS_KERNEL_INLINE void flush_all(bool same, struct run_sums *run, int k, const struct compensated *all)
{
    flush_parts(same, run, k, &all->sums);
    flush_parts(same, run, k, &all->rest);
}

/* What a run came to, its tail with it. */
struct total {
    double sum_a, squares_a, squares_b, sum, sum_abs, squares;
    double largest; /* magnitude of a */
};

/* Two numbers of the tail. */
TS_KERNEL_INLINE void add_to_total(struct total *total, float x, float y, struct ts_delta_limits limits,
                                   struct ts_delta_sums *sums)
{
    const double a = (double)x, b = (double)y, d = b - a, distance = (double)fabsf(y - x);
    total->sum_a += a;
    total->squares_a += a * a;
    total->squares_b += b * b;
    total->sum += d;
    total->sum_abs += fabs(d);
    total->squares += d * d;
    total->largest = fabs(a) > total->largest ? fabs(a) : total->largest;
    sums->max_abs = distance > sums->max_abs ? distance : sums->max_abs;
    sums->unequal += a != b;
    sums->mismatched += limits.eager && fabsf(y - x) > fused(fabsf(x), limits.rtol, limits.atol);
}

/* No number of b is further from one of a than max_abs; whether that is inside of what runs before have shown. */
TS_KERNEL_INLINE bool is_inside(struct ts_delta_limits limits, struct ts_delta_sums *sums)
{
    const double reach = sums->max_abs * (1 + 0x1p-20);
    sums->min_b = sums->min_a - reach;
    sums->max_b = sums->max_a + reach;
    return sums->min_b >= limits.min_b && sums->max_b <= limits.max_b;
}

/* All zero, or some number whose square does not vanish. */
TS_KERNEL_INLINE bool is_visible(double min, double max)
{
    return (min == 0 && max == 0) || max > SMALLEST_FUSED || min < -SMALLEST_FUSED;
}

TS_KERNEL_INLINE bool within_range(enum kind kind, const struct ts_delta_sums *sums, const struct total *total)
{
    /* each for itself: a NaN would slip through a maximum */
    if (!(sums->max_a < LARGEST && sums->min_a > -LARGEST && sums->max_b < LARGEST && sums->min_b > -LARGEST))
        return false;
    if (!isfinite(total->squares_a) || !isfinite(total->squares_b) || !isfinite(total->squares))
        return false;
    return kind == DOUBLED || (is_visible(sums->min_a, sums->max_a) && is_visible(sums->min_b, sums->max_b) &&
                               (sums->max_abs == 0 || sums->max_abs > SMALLEST));
}

/* The largest magnitude of sixteen-bit numbers, of which the bits less one were kept; infinity: not known, since there
 * are zeros. */
TS_KERNEL_INLINE double largest_beside_zeros(enum kind kind, uint32_t most)
{
    return most == UINT16_MAX ? (double)INFINITY : number_of(kind, most + 1);
}

/* The extremes of a, of sixteen bits. Numbers that are close together are looked at all the same: whether they are
 * constant is to be known. */
TS_KERNEL_INLINE void find_bounds_of_largest(enum kind kind, const uint8_t *a, size_t count,
                                             struct ts_delta_limits limits, const struct total *total,
                                             struct ts_delta_sums *sums)
{
    sums->min_a = -total->largest;
    sums->max_a = total->largest;
    if (!(sums->min_a >= limits.min_a && sums->max_a <= limits.max_a &&
          is_spread(total->sum_a, total->squares_a, count)))
        look_for_extremes(kind, a, count, &sums->min_a, &sums->max_a);
}

/* The least magnitude, of which the bits less one were kept. */
TS_KERNEL_INLINE unsigned least_of(const ts_vu16 least[TS_VECTORS])
{
    return (uint16_t)(lowest_u16(least) + 1);
}

#endif
