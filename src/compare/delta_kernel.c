/* Compiled once per instruction set; see base/level.h and base/vector.h.
 *
 * Memory hands a core 64 bytes in some eight cycles, so every vector operation counts. f32 goes through double: sixteen
 * pairs are four conversions and some twenty operations. Of sixteen-bit numbers there are twice as many in the same
 * time; their sums accumulate in f32 and are flushed into double every FLUSH groups, so that what they lose is bounded
 * whatever the numbers are, and near 2^-24 / sqrt(count) of the sum for most. What they allow is done on their bits,
 * thirty-two at a time: extremes, equality, and how far apart two numbers can be at most, which mostly settles the
 * questions of tolerance without asking them of each element. Runs whose squares would leave the range of f32 are
 * handed back. */
#include "compare/delta_kernel.h"

#include <math.h>

#include "base/level.h"
#include "compare/lanes.h"

/* So many groups are added up in registers. Of f16 that is thirty-two numbers to a lane of f32, of bf16 sixty-four.
 * Equal numbers may all be rounded to one side, by less than 6e-7 of thirty-two. Of bf16 they are not rounded, since a
 * square has sixteen bits and the sum of sixty-four twenty-two; and if differences are, then by less than 1e-6: all
 * were tried. Of f32, in double, it is as many as the first-level cache has for the vectors of a group one after
 * another. */
#define FLUSH(kind) ((size_t)((kind) == BF16 ? 32 : (kind) == F16 ? 16 : 64))
#define BLOCKS      (TS_DELTA_RUN / GROUP(F16) / FLUSH(F16)) /* of so many groups, in a run of sixteen-bit numbers */
/* As in stats_kernel.c: squares of sixteen-bit numbers stay finite, and what underflows does not count. Where products
 * are fused, what underflows must not change a bit of the sum either. In f32 larger numbers are masks. */
#define LARGEST        0x1p60
#define SMALLEST       0x1p-50
#define SMALLEST_FUSED 0x1p-30
/* Squared distances from the mean that are a smaller share of the squares than this are added up once more: they are
 * what is left when two near numbers are subtracted, and rounding would show. */
#define SPREAD 0x1p-2

#define FRACTION(kind)  ((kind) == BF16 ? 7 : 10) /* bits behind the point of the sixteen-bit types */
#define SUBNORMAL(kind) ((kind) == BF16 ? 0x1p-133 : 0x1p-24)
/* Instead of differences the numbers of b are added up: sums of few bf16 numbers are nearly always exact in f32, and
 * one operation adds two of them. */
#define SUMS_B(kind) ((kind) == BF16)

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
    return (float)((double)a * (double)b + (double)c);
#endif
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

/* Sixteen-bit numbers with other bits: counted, or those with the same ones in lanes. */
#if defined(__AVX512BW__)
#define COUNT_OTHER_BITS(a, b)                                                                                         \
    (unequal += (uint64_t)__builtin_popcount(_mm512_cmpneq_epi16_mask((__m512i)(a), (__m512i)(b))))
#else
#define COUNT_OTHER_BITS(a, b) (equal -= (ts_vu16)((a) == (b)))
#endif

/* What is kept over a whole run. */
struct state {
    struct wide sum_a, sum, sum_abs, squares_a, squares_b, squares; /* sum: of d, or of b; see SUMS_B */
    struct extremes a;                                              /* of f32 */
    ts_vf32
        excess[TS_VECTORS];   /* of f32: the most that |d| has beyond the ratio given times |a|, or something below 0 */
    ts_vu32 most[TS_VECTORS]; /* of sixteen bits: the largest magnitude of a */
    ts_vf32 furthest[TS_VECTORS];
    ts_vu16 apart[TS_VECTORS]; /* sixteen bits, not eager: distance of the bits of a and b, small for near numbers */
    ts_vi32 differ;            /* same: bits that are not */
    uint64_t unequal;          /* sixteen bits, eager: bits that differ, so that 0 and -0 are not equal */
    uint64_t mismatched;
    /* Sixteen bits, of each FLUSH groups: -2 times the least magnitude of a that is not zero; eager: the least.
     * Small numbers are rare, so that few blocks have to be looked at again because of them. */
    ts_vu16 least[BLOCKS][TS_VECTORS];
};

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

/* f32: some groups, vector k of each, so that the accumulators are registers at every width. same: b is taken to be a,
 * bit for bit. */
TS_KERNEL_INLINE void add_singles(bool same, bool eager, const uint8_t *a, const uint8_t *b, size_t groups, int k,
                                  struct ts_delta_limits limits, struct state *state)
{
    struct halves sum_a = {{0}, {0}}, squares_a = sum_a, sum = sum_a, sum_abs = sum_a, squares_b = sum_a,
                  squares = sum_a;
    const ts_vf32 rtol = (ts_vf32){0} + limits.rtol, atol = (ts_vf32){0} + limits.atol;
    ts_vf32 furthest = state->furthest[k], excess = state->excess[k];
    ts_vi32 signed_a = state->a.as_signed[k], differ = state->differ;
    ts_vu32 unsigned_a = state->a.as_unsigned[k];
    uint64_t unequal = 0, mismatched = 0;
    uintptr_t ahead_a = limits.ahead[0].at, ahead_b = limits.ahead[1].at;
    a += k * TS_VECTOR_BYTES;
    b += k * TS_VECTOR_BYTES;
    for (size_t i = 0; i < groups; i++, a += 64, b += 64) {
        const ts_vf32 x = ts_vf32_load(a), y = ts_vf32_load(b);
        const struct halves wide_x = widen(a);
        __builtin_prefetch((const void *)ahead_a, 0, 3);
        __builtin_prefetch((const void *)ahead_b, 0, 3);
        ahead_a += limits.ahead[0].step;
        ahead_b += limits.ahead[1].step;
        add(&sum_a, wide_x);
        add_squares(&squares_a, wide_x);
        signed_a = ts_vi32_max(signed_a, (ts_vi32)x);
        unsigned_a = ts_vu32_max(unsigned_a, (ts_vu32)x);
        if (same) {
            differ |= (ts_vi32)x ^ (ts_vi32)y;
        } else {
            const ts_vf32 distance = absolute(y - x), size = absolute(x);
            const struct halves wide_y = widen(b), d = {wide_y.low - wide_x.low, wide_y.high - wide_x.high};
            add_squares(&squares_b, wide_y);
            add(&sum, d);
            add(&sum_abs,
                (struct halves){(ts_vf64)((ts_vi64)d.low & INT64_MAX), (ts_vf64)((ts_vi64)d.high & INT64_MAX)});
            add(&squares, (struct halves){d.low * d.low, d.high * d.high});
            furthest = further(distance, furthest);
            if (eager)
                mismatched += COUNT_ABOVE(distance, ts_vf32_fused(size, rtol, atol));
            /* eager: one bit less, so that zero becomes a NaN below 0, which no maximum is */
            excess = further(ts_vf32_subtract_product(distance, (ts_vf32)((ts_vi32)size - (int32_t)eager),
                                                      (ts_vf32){0} + limits.ratio),
                             excess);
            unequal += COUNT_UNEQUAL(x, y);
        }
    }
    keep(&state->sum_a, k, sum_a);
    keep(&state->squares_a, k, squares_a);
    state->a.as_signed[k] = signed_a;
    state->a.as_unsigned[k] = unsigned_a;
    state->differ = differ;
    if (same)
        return;
    keep(&state->sum, k, sum);
    keep(&state->sum_abs, k, sum_abs);
    keep(&state->squares_b, k, squares_b);
    keep(&state->squares, k, squares);
    state->furthest[k] = furthest;
    state->excess[k] = excess;
    state->unequal += unequal;
    state->mismatched += mismatched;
}

/* The same of sixteen-bit numbers, two to a lane, no more groups than may go without flushing. Without eager, they are
 * taken to be near each other; see is_near. The odd one of a lane comes first, as dot takes them. */
TS_KERNEL_INLINE void add_couples(enum kind kind, bool same, bool eager, const uint8_t *a, const uint8_t *b,
                                  size_t groups, int k, struct ts_delta_limits limits, struct state *state,
                                  size_t block)
{
    ts_vf32 sum = {0}, sum_abs = {0}, squares_b = {0}, squares = {0};
    ts_vf32 sum_a[2] = {{0}}, squares_a[2] = {{0}}; /* two, where each addition would wait for the one before */
    const bool dots = HAS_DOT && kind == BF16 && !same;
    const ts_vu16 ones = (ts_vu16){0} + 0x3f80; /* 1.0 */
    const ts_vf32 rtol = (ts_vf32){0} + limits.rtol, atol = (ts_vf32){0} + limits.atol;
    ts_vu16 furthest_bits = {0};
    ts_vf32 furthest = state->furthest[k];
    ts_vu32 most = state->most[k];
    ts_vu16 apart = state->apart[k], minus_two = (ts_vu16){0} + 0xfffe;
    ts_vu16 least = (ts_vu16){0} + (uint16_t)(eager ? 0xffff : 0);
    ts_vi32 differ = state->differ;
    uint64_t unequal = 0, mismatched = 0;
#if !defined(__AVX512BW__)
    ts_vu16 equal = {0};
#endif
#if defined(__x86_64__)
    __asm__("" : "+x"(minus_two)); /* one multiplication, not a shift and a subtraction */
#endif
    for (size_t i = 0; i < groups; i++, a += 64, b += 64) {
        ts_vf32 x[2], y[2];
        const ts_vu16 bits_a = ts_vu16_load(a + k * TS_VECTOR_BYTES), bits_b = ts_vu16_load(b + k * TS_VECTOR_BYTES);
        const ts_vu16 sizes = bits_a & 0x7fff;
        FETCH_AHEAD(a);
        FETCH_AHEAD(b);
        load(kind, a, k, x);
        most = extend_unsigned(kind, most, (ts_vu32)sizes);
        if (same) {
            differ |= (ts_vi32)bits_a ^ (ts_vi32)bits_b;
        } else {
            load(kind, b, k, y);
            COUNT_OTHER_BITS(bits_a, bits_b);
            least = eager ? ts_vu16_min(least, sizes) : ts_vu16_max(least, bits_a * minus_two);
            if (!eager)
                apart = ts_vu16_max(apart, ts_vi16_abs((ts_vi16)(bits_a - bits_b)));
        }
        if (dots) {
            sum_a[0] = dot(sum_a[0], bits_a, ones);
            squares_a[0] = dot(squares_a[0], bits_a, bits_a);
            squares_b = dot(squares_b, bits_b, bits_b);
            sum = dot(sum, bits_b, ones);
        }
        if (dots && !eager) { /* the differences are bf16 numbers too */
            ts_vu16 bits = pack(y[0] - x[0], y[1] - x[1]), size = bits & 0x7fff;
            sum_abs = dot(sum_abs, size, ones);
            squares = dot(squares, bits, bits);
            furthest_bits = ts_vu16_max(furthest_bits, size);
            continue;
        }
        for (int p = 1; p >= 0; p--) {
            const int which = same ? p : 0;
            if (!dots) {
                sum_a[which] += x[p];
                squares_a[which] = ts_vf32_add_exact_square(squares_a[which], x[p]);
            }
            if (!same) {
                ts_vf32 d = y[p] - x[p], distance = absolute(d);
                if (!dots)
                    sum += SUMS_B(kind) ? y[p] : d;
                sum_abs += distance;
                squares = eager ? ts_vf32_fused(d, d, squares) : ts_vf32_add_exact_square(squares, d);
                squares_b = dots ? squares_b : ts_vf32_add_exact_square(squares_b, y[p]);
                furthest = further(distance, furthest);
                if (eager)
                    mismatched += COUNT_ABOVE(distance, ts_vf32_fused(absolute(x[p]), rtol, atol));
            }
        }
    }
    for (int p = 0; p < (same ? 2 : 1); p++) {
        flush(&state->sum_a, k, sum_a[p]);
        flush(&state->squares_a, k, squares_a[p]);
    }
    state->most[k] = most;
    state->differ = differ;
    if (same)
        return;
    flush(&state->sum, k, sum);
    flush(&state->sum_abs, k, sum_abs);
    flush(&state->squares_b, k, squares_b);
    flush(&state->squares, k, squares);
    if (dots && !eager)
        furthest = ts_vf32_max(furthest, ts_vf32_max((ts_vf32)((ts_vu32)furthest_bits << 16),
                                                     (ts_vf32)((ts_vu32)furthest_bits & 0xffff0000u)));
    state->furthest[k] = furthest;
    state->apart[k] = apart;
    state->least[block][k] = least;
    state->unequal += unequal;
    state->mismatched += mismatched;
#if !defined(__AVX512BW__)
    state->unequal += groups * (TS_VECTOR_BYTES / 2);
    for (size_t i = 0; i < TS_VECTOR_BYTES / 2; i++)
        state->unequal -= equal[i];
#endif
}

TS_KERNEL_INLINE void add_groups(enum kind kind, bool same, bool eager, const uint8_t *a, const uint8_t *b,
                                 size_t groups, int k, struct ts_delta_limits limits, struct state *state, size_t block)
{
    if (kind == F32)
        add_singles(same, eager, a, b, groups, k, limits, state);
    else
        add_couples(kind, same, eager, a, b, groups, k, limits, state, block);
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

/* Pairs of a zero and a negative zero, of sixteen-bit numbers, in the blocks that have zeros. */
TS_KERNEL_INLINE uint64_t count_other_zeros(enum kind kind, const uint8_t *a, const uint8_t *b, size_t groups,
                                            const ts_vu16 least[BLOCKS][TS_VECTORS])
{
    uint64_t found = 0;
    for (size_t i = 0; i < groups; i++) {
        if (i % FLUSH(kind) == 0 && lowest_u16(least[i / FLUSH(kind)])) {
            i += FLUSH(kind) - 1;
            continue;
        }
        for (size_t at = i * 64; at < i * 64 + 64; at += TS_VECTOR_BYTES) {
            ts_vu16 of_a = ts_vu16_load(a + at), of_b = ts_vu16_load(b + at), one = (ts_vu16){0} + 1;
            ts_vu16 sizes = (of_a | of_b) + (of_a | of_b);
            if (!ts_vu16_any_below(sizes, one))
                continue;
            for (size_t lane = 0; lane < TS_VECTOR_BYTES / 2; lane++)
                found += sizes[lane] == 0 && of_a[lane] != of_b[lane];
        }
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

/* What a second look has to find out after all, once the first has said how far apart the numbers can be. */
struct bounds {
    unsigned apart; /* largest distance of bits; more than any when it was not looked for */
    bool above;     /* f32: some |d| / |a| is above the ratio; unless eager, perhaps with a = 0 */
};

/* Two numbers of one sign whose bits are `apart` apart, less than a binade: |d| is at most apart / 2^FRACTION of |a|,
 * the most when a is a power of two; of a subnormal it is apart / bits. least: the least magnitude of a that is not
 * zero, as bits; 0: all are zero. */
TS_KERNEL_INLINE double steepest_bound(enum kind kind, unsigned apart, unsigned least, double max_abs)
{
    const unsigned one = 1u << FRACTION(kind);
    double by_size, by_bits = INFINITY;
    if (!least)
        return 0;
    by_size = max_abs / from_bits(kind, (uint16_t)least);
    if (apart < one)
        by_bits = (double)apart / (double)(least < one ? least : one);
    return by_bits < by_size ? by_bits : by_size;
}

/* Of a block. Where it has zeros, eager does not know and says the least there is. */
TS_KERNEL_INLINE unsigned least_of(const ts_vu16 least[TS_VECTORS], bool eager)
{
    const unsigned found = eager ? lowest_u16(least) : highest_u16(least);
    if (!eager)
        return found ? (0x10000 - found) / 2 : 0;
    return found ? found : 1;
}

/* The least of all blocks, in lanes as theirs are. */
TS_KERNEL_INLINE void join_least(const struct state *state, size_t blocks, bool eager, ts_vu16 out[TS_VECTORS])
{
    for (int k = 0; k < TS_VECTORS; k++) {
        out[k] = (ts_vu16){0} + (uint16_t)(eager ? 0xffff : 0);
        for (size_t block = 0; block < blocks; block++)
            out[k] = eager ? ts_vu16_min(out[k], state->least[block][k]) : ts_vu16_max(out[k], state->least[block][k]);
    }
}

/* Of sixteen-bit numbers, with the least of the run: only those blocks are looked at that can have what is looked for.
 */
TS_KERNEL_INLINE double steepest_of_run(enum kind kind, const uint8_t *a, const uint8_t *b, size_t count,
                                        struct ts_delta_limits limits, const struct state *state,
                                        const ts_vu16 least[TS_VECTORS], unsigned apart, double max_abs)
{
    const double ratio = (double)limits.ratio;
    const size_t step = FLUSH(kind) * GROUP(kind), whole = count / GROUP(kind) * GROUP(kind);
    double most = steepest(kind, a + whole * SIZE(kind), b + whole * SIZE(kind), count - whole, max_abs, ratio);
    if (!(steepest_bound(kind, apart, least_of(least, limits.eager), max_abs) > ratio))
        return most;
    for (size_t first = 0; first < whole; first += step) {
        const size_t now = whole - first < step ? whole - first : step;
        const unsigned of_block = least_of(state->least[first / step], limits.eager);
        if (steepest_bound(kind, apart, of_block, max_abs) > ratio) {
            double found = steepest(kind, a + first * SIZE(kind), b + first * SIZE(kind), now, max_abs, ratio);
            most = found > most ? found : most;
        }
    }
    return most;
}

TS_KERNEL_INLINE bool cannot_mismatch(enum kind kind, const struct bounds *bounds, struct ts_delta_limits limits,
                                      double max_abs)
{
    const double one = (double)(1u << FRACTION(kind));
    if (max_abs <= (double)limits.atol)
        return true;
    if (PARTS(kind) == 1 && !bounds->above && (double)limits.ratio <= (double)limits.rtol * (1 - 0x1p-20))
        return true;
    return PARTS(kind) == 2 && bounds->apart < one && bounds->apart / one <= (double)limits.rtol * (1 - 0x1p-20) &&
           2 * bounds->apart * SUBNORMAL(kind) <= (double)limits.atol;
}

/* The sums of a tail, in double; of one side or of both. */
struct tail {
    double sum_a, squares_a, squares_b, sum, sum_abs, squares;
    double largest; /* magnitude of a */
};

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

/* No number of a is larger than `largest`, and none of b further from one of a than max_abs. Where these bounds are
 * inside of what runs before have shown, nobody has to look. Numbers that are close together are looked at all the
 * same: whether they are constant is to be known. */
TS_KERNEL_INLINE void find_bounds_a(enum kind kind, const uint8_t *a, size_t count, struct ts_delta_limits limits,
                                    const struct state *state, const struct tail *total, struct ts_delta_sums *sums)
{
    const double largest = total->largest, sum = total->sum_a, squares = total->squares_a;
    if (PARTS(kind) == 1) {
        const size_t groups = count / GROUP(kind);
        find_extremes(kind, &state->a, a, groups, &sums->min_a, &sums->max_a);
        add_extremes(kind, a, groups * GROUP(kind), count, &sums->min_a, &sums->max_a);
        return;
    }
    sums->min_a = -largest;
    sums->max_a = largest;
    if (!(-largest >= limits.min_a && largest <= limits.max_a && is_spread(sum, squares, count)))
        look_for_extremes(kind, a, count, &sums->min_a, &sums->max_a);
}

TS_KERNEL_INLINE bool is_inside(struct ts_delta_limits limits, struct ts_delta_sums *sums)
{
    const double reach = sums->max_abs * (1 + 0x1p-20);
    sums->min_b = sums->min_a - reach;
    sums->max_b = sums->max_a + reach;
    return sums->min_b >= limits.min_b && sums->max_b <= limits.max_b;
}

TS_KERNEL_INLINE void add_tail(enum kind kind, const uint8_t *a, const uint8_t *b, struct ts_delta_limits limits,
                               struct tail *tail, struct bounds *bounds, struct ts_delta_sums *sums)
{
    float low = scalar(kind, a), high = scalar(kind, b), distance = fabsf(high - low);
    double x = (double)low, y = (double)high, d = y - x;
    tail->sum_a += x;
    tail->squares_a += x * x;
    tail->squares_b += y * y;
    tail->sum += d;
    tail->sum_abs += fabs(d);
    tail->squares += d * d;
    tail->largest = fabs(x) > tail->largest ? fabs(x) : tail->largest;
    sums->max_abs = (double)distance > sums->max_abs ? (double)distance : sums->max_abs;
    sums->unequal += x != y;
    sums->mismatched += limits.eager && distance > fused(fabsf(low), limits.rtol, limits.atol);
    bounds->above = bounds->above || distance > fabsf(low) * limits.ratio;
    if (PARTS(kind) == 2) {
        unsigned apart = (uint16_t)(ts_load_le16(a) - ts_load_le16(b));
        apart = apart > 0x8000 ? 0x10000 - apart : apart;
        bounds->apart = apart > bounds->apart ? apart : bounds->apart;
    }
}

/* All zero, or some number whose square does not vanish. */
TS_KERNEL_INLINE bool is_visible(double min, double max)
{
    return (min == 0 && max == 0) || max > SMALLEST_FUSED || min < -SMALLEST_FUSED;
}

TS_KERNEL_INLINE bool within_range(enum kind kind, const struct ts_delta_sums *sums, const struct tail *total)
{
    /* each for itself: a NaN would slip through a maximum */
    if (!(sums->max_a < LARGEST && sums->min_a > -LARGEST && sums->max_b < LARGEST && sums->min_b > -LARGEST))
        return false;
    if (!isfinite(total->squares_a) || !isfinite(total->squares_b) || !isfinite(total->squares))
        return false;
    return kind == F32 || (is_visible(sums->min_a, sums->max_a) && is_visible(sums->min_b, sums->max_b) &&
                           (sums->max_abs == 0 || sums->max_abs > SMALLEST));
}

TS_KERNEL_INLINE void add_run(enum kind kind, bool same, const uint8_t *a, const uint8_t *b, size_t groups,
                              struct ts_delta_limits limits, struct state *state)
{
    memset(state, 0, offsetof(struct state, least));
    extremes_init(kind, &state->a);
    for (size_t i = 0; i < groups; i += FLUSH(kind), a += FLUSH(kind) * 64, b += FLUSH(kind) * 64) {
        size_t now = groups - i < FLUSH(kind) ? groups - i : FLUSH(kind);
        for (int k = 0; k < TS_VECTORS; k++) {
            if (same)
                add_groups(kind, true, false, a, b, now, k, limits, state, i / FLUSH(kind));
            else if (limits.eager)
                add_groups(kind, false, true, a, b, now, k, limits, state, i / FLUSH(kind));
            else
                add_groups(kind, false, false, a, b, now, k, limits, state, i / FLUSH(kind));
        }
        for (int side = 0; side < 2; side++)
            limits.ahead[side].at += now * limits.ahead[side].step;
    }
}

/* Numbers less than a binade apart have a difference of at most FRACTION + 1 bits, whose square is exact in f32. */
TS_KERNEL_INLINE bool is_near(enum kind kind, const struct state *state)
{
    float furthest = highest(state->furthest);
    return highest_u16(state->apart) < 1u << FRACTION(kind) && (furthest == 0 || furthest > (float)SMALLEST_FUSED);
}

TS_KERNEL_INLINE void measure(enum kind kind, const uint8_t *a, const uint8_t *b, size_t count,
                              struct ts_delta_limits limits, struct ts_delta_sums *sums)
{
    const size_t groups = count / GROUP(kind);
    const size_t tail = groups * STRIDE(kind); /* where it begins */
    bool same = limits.same || memcmp(a, b, count * SIZE(kind)) == 0;
    struct state state;
    struct tail total;
    struct bounds bounds;
    ts_vu16 least[TS_VECTORS] = {{0}};
    add_run(kind, same, a, b, groups, limits, &state);
    if (same && (ts_any_bit(state.differ) || memcmp(a + tail, b + tail, count * SIZE(kind) - tail) != 0)) {
        same = false;
        add_run(kind, false, a, b, groups, limits, &state);
    }
    if (PARTS(kind) == 2 && !same && !limits.eager && !is_near(kind, &state)) {
        limits.eager = true;
        add_run(kind, false, a, b, groups, limits, &state);
    }
    *sums = (struct ts_delta_sums){.unequal = state.unequal, .mismatched = state.mismatched, .same = same};
    bounds = (struct bounds){.above = highest_i32((const ts_vi32 *)state.excess) > 0};
    if (PARTS(kind) == 2 && !same) {
        join_least(&state, (groups + FLUSH(kind) - 1) / FLUSH(kind), limits.eager, least);
        bounds.apart = limits.eager ? UINT16_MAX : highest_u16(state.apart);
        if (limits.eager && !lowest_u16(least)) /* 0 and -0 are equal after all */
            sums->unequal -= count_other_zeros(kind, a, b, groups, state.least);
    }
    sums->max_abs = (double)highest(state.furthest);
    total = (struct tail){.sum_a = total_of(&state.sum_a),
                          .squares_a = total_of(&state.squares_a),
                          .largest = number_of(kind, most_unsigned(kind, state.most))};
    if (same) {
        total.squares_b = total.squares_a;
    } else {
        total.squares_b = total_of(&state.squares_b);
        total.sum = total_of(&state.sum) - (SUMS_B(kind) ? total.sum_a : 0);
        total.sum_abs = total_of(&state.sum_abs);
        total.squares = total_of(&state.squares);
    }
    for (size_t i = groups * GROUP(kind); i < count; i++)
        add_tail(kind, a + i * SIZE(kind), b + i * SIZE(kind), limits, &total, &bounds, sums);
    find_bounds_a(kind, a, count, limits, &state, &total, sums);
    if (same)
        sums->min_b = sums->min_a, sums->max_b = sums->max_a;
    else if (!is_inside(limits, sums) ||
             (kind != F32 && !(total.squares_b > (double)count * SMALLEST_FUSED * SMALLEST_FUSED)) ||
             !is_spread(total.sum_a + total.sum, total.squares_b, count) || !within_range(kind, sums, &total))
        look_for_extremes(kind, b, count, &sums->min_b, &sums->max_b);
    sums->clean = within_range(kind, sums, &total);
    if (!sums->clean)
        return;
    sums->sum = total.sum;
    sums->sum_abs = total.sum_abs;
    sums->squares = total.squares;
    sums->a = moments_of(kind, a, count, total.sum_a, total.squares_a, sums->min_a == sums->max_a, false);
    if (same) {
        sums->b = sums->a;
        return;
    }
    /* b as a + d: rough when a is much the larger */
    sums->b = moments_of(kind, b, count, total.sum_a + total.sum, total.squares_b, sums->min_b == sums->max_b,
                         total.squares_a > 64 * total.squares_b);
    if (PARTS(kind) == 2)
        sums->max_rel = steepest_of_run(kind, a, b, count, limits, &state, least, bounds.apart, sums->max_abs);
    else if (bounds.above)
        sums->max_rel = steepest(kind, a, b, count, sums->max_abs, (double)limits.ratio);
    if (!(sums->max_rel > (double)limits.ratio))
        sums->max_rel = 0;
    sums->eager = !cannot_mismatch(kind, &bounds, limits, sums->max_abs);
    if (sums->eager && !limits.eager)
        sums->mismatched = beyond(kind, a, b, count, limits.rtol, limits.atol);
    if (PARTS(kind) == 2 && limits.eager) /* nobody looked whether they are near */
        sums->eager = true;
}

#define KERNEL(NAME, KIND)                                                                                             \
    static void measure_##NAME(const uint8_t *a, const uint8_t *b, size_t count, struct ts_delta_limits limits,        \
                               struct ts_delta_sums *sums)                                                             \
    {                                                                                                                  \
        measure(KIND, a, b, count, limits, sums);                                                                      \
    }                                                                                                                  \
    static uint64_t beyond_##NAME(const uint8_t *a, const uint8_t *b, size_t count, float rtol, float atol)            \
    {                                                                                                                  \
        return beyond(KIND, a, b, count, rtol, atol);                                                                  \
    }

KERNEL(f32, F32)
KERNEL(bf16, BF16)
KERNEL(f16, F16)

const struct ts_delta_kernels TS_AT_LEVEL(ts_delta_kernels) = {
    .of = {{measure_f32, beyond_f32}, {measure_bf16, beyond_bf16}, {measure_f16, beyond_f16}},
};
