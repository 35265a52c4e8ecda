/* Compiled once per instruction set; see base/level.h and base/vector.h.
 *
 * Memory hands a core 64 bytes in some eight cycles, so every vector operation counts. Sums begin in f32, a few numbers
 * at a time, so that what they lose is bounded whatever the numbers are: of sixteen pairs of f32 numbers, double would
 * take four conversions, which cost two operations each, and twice the operations of every sum. What sixteen-bit
 * numbers allow is done on their bits, thirty-two at a time: extremes, equality, and how far apart two numbers can be
 * at most, which mostly settles the questions of tolerance without asking them of each element. Runs whose squares
 * would leave the range of f32 are handed back, and come once more as f32 numbers that are added up in double. */
#include "compare/delta_kernel.h"

#include <math.h>

#include "base/level.h"
#include "compare/delta_look.h"
#include "compare/delta_parts.h"

/* So many groups are added up in f32, one addition after the other: eight numbers to a lane. These sums are added up
 * with what each addition loses kept beside it, so that nothing else is lost.
 *
 * It is 2^-24 in each of seven additions. Of f32, products are fused with them, which is one more, and each difference
 * is rounded, which counts twice in its square. Of sixteen-bit numbers, whose squares f32 has, few differences are no
 * f32 numbers, and their squares are fused: at most 4.8e-7 of a sum of magnitudes and 6e-7 of one of squares in both
 * cases, and near 2^-24 / sqrt(count) for most. */
#define STRETCH(kind)   ((size_t)((kind) == DOUBLED ? 1 : 8 / PARTS(kind)))
#define BLOCKS          (TS_DELTA_RUN / GROUP(F16) / FLUSH) /* in a run of sixteen-bit numbers */
#define FRACTION(kind)  ((kind) == BF16 ? 7 : 10)           /* bits behind the point of the sixteen-bit types */
#define SUBNORMAL(kind) ((kind) == BF16 ? 0x1p-133 : 0x1p-24)
/* Instead of differences the numbers of b are added up: sums of few bf16 numbers are nearly always exact in f32, and
 * one operation adds two of them. */
#define SUMS_B(kind) ((kind) == BF16)

/* Sixteen-bit numbers with other bits: counted, or those with the same ones in lanes. */
#if defined(__AVX512BW__)
#define COUNT_OTHER_BITS(to, a, b)                                                                                     \
    ((to)->unequal += (uint64_t)__builtin_popcount(_mm512_cmpneq_epi16_mask((__m512i)(a), (__m512i)(b))))
#else
#define COUNT_OTHER_BITS(to, a, b) ((to)->equal -= (ts_vu16)((a) == (b)))
#endif

/* What is kept over a whole run. */
struct state {
    struct run_sums run; /* sum: of d, or of b; see SUMS_B */
    struct extremes a;   /* of f32 */
    ts_vf32
        excess[TS_VECTORS];   /* of f32: the most that |d| has beyond the ratio given times |a|, or something below 0 */
    ts_vu32 most[TS_VECTORS]; /* of sixteen bits: the largest magnitude of a; unless same, as `least` has them */
    ts_vf32 furthest[TS_VECTORS];
    ts_vu16 apart[TS_VECTORS]; /* sixteen bits, not eager: distance of the bits of a and b, small for near numbers */
    ts_vi32 differ;            /* same: bits that are not */
    uint64_t unequal;          /* sixteen bits, eager: bits that differ, so that 0 and -0 are not equal */
    uint64_t mismatched;
    /* Sixteen bits, of each FLUSH groups: the bits of the least magnitude of a, less one, so that zero is more than
     * any. Small numbers are rare, so that few blocks have to be looked at again because of them. */
    ts_vu16 least[BLOCKS][TS_VECTORS];
};

/* What is kept of vector k of f32 numbers over the groups of a block. */
struct singles {
    struct halves sum_a, sum, sum_abs, squares_a, squares_b, squares; /* where all is in double, or */
    struct compensated all;                                           /* not */
    ts_vf32 furthest, excess;
    ts_vi32 signed_a, differ;
    ts_vu32 unsigned_a;
    uint64_t unequal, mismatched;
    uintptr_t ahead_a, ahead_b;
};

/* Some groups of f32. same: b is taken to be a, bit for bit. */
TS_KERNEL_INLINE void add_single_stretch(enum kind kind, bool same, bool eager, const uint8_t *a, const uint8_t *b,
                                         size_t groups, struct ts_delta_limits limits, struct singles *singles)
{
    const ts_vf32 rtol = (ts_vf32){0} + limits.rtol, atol = (ts_vf32){0} + limits.atol;
    struct parts parts = {0};
    for (size_t i = 0; i < groups; i++, a += 64, b += 64) {
        const ts_vf32 x = ts_vf32_load(a), y = ts_vf32_load(b), size = absolute(x), d = y - x, distance = absolute(d);
        const struct halves wide_x = widen(a), wide_y = widen(b);
        if (kind == F32) { /* into the second-level cache: numbers that were decoded are in the first */
            __builtin_prefetch((const void *)singles->ahead_a, 0, 2);
            __builtin_prefetch((const void *)singles->ahead_b, 0, 2);
        } else {
            __builtin_prefetch((const void *)singles->ahead_a, 0, 3);
            __builtin_prefetch((const void *)singles->ahead_b, 0, 3);
        }
        singles->ahead_a += limits.ahead[0].step;
        singles->ahead_b += limits.ahead[1].step;
        if (kind == F32) {
            parts.sum_a += x;
            parts.squares_a = ts_vf32_fused(x, x, parts.squares_a);
        } else {
            add(&singles->sum_a, wide_x);
            add_squares(&singles->squares_a, wide_x);
        }
        singles->signed_a = ts_vi32_max(singles->signed_a, (ts_vi32)x);
        singles->unsigned_a = ts_vu32_max(singles->unsigned_a, (ts_vu32)x);
        if (same) {
            singles->differ |= (ts_vi32)x ^ (ts_vi32)y;
            continue;
        }
        if (kind == F32) {
            parts.sum += d;
            parts.sum_abs += distance;
            parts.squares_b = ts_vf32_fused(y, y, parts.squares_b);
            parts.squares = ts_vf32_fused(d, d, parts.squares);
        } else {
            const struct halves wide_d = {wide_y.low - wide_x.low, wide_y.high - wide_x.high};
            add_squares(&singles->squares_b, wide_y);
            add(&singles->sum, wide_d);
            add(&singles->sum_abs, (struct halves){(ts_vf64)((ts_vi64)wide_d.low & INT64_MAX),
                                                   (ts_vf64)((ts_vi64)wide_d.high & INT64_MAX)});
            add(&singles->squares, (struct halves){wide_d.low * wide_d.low, wide_d.high * wide_d.high});
        }
        singles->furthest = further(distance, singles->furthest);
        if (eager)
            singles->mismatched += COUNT_ABOVE(distance, ts_vf32_fused(size, rtol, atol));
        /* eager: one bit less, so that zero becomes a NaN below 0, which no maximum is */
        singles->excess = further(
            ts_vf32_subtract_product(distance, (ts_vf32)((ts_vi32)size - (int32_t)eager), (ts_vf32){0} + limits.ratio),
            singles->excess);
        singles->unequal += COUNT_UNEQUAL(x, y);
    }
    if (kind == F32)
        add_parts(same, &singles->all, &parts);
}

/* A block of them, vector k of each group, so that the accumulators are registers at every width. */
TS_KERNEL_INLINE void add_singles(enum kind kind, bool same, bool eager, const uint8_t *a, const uint8_t *b,
                                  size_t groups, int k, struct ts_delta_limits limits, struct state *state)
{
    struct singles singles = {.furthest = state->furthest[k],
                              .excess = state->excess[k],
                              .signed_a = state->a.as_signed[k],
                              .unsigned_a = state->a.as_unsigned[k],
                              .differ = state->differ,
                              .ahead_a = limits.ahead[0].at,
                              .ahead_b = limits.ahead[1].at};
    const size_t step = STRETCH(kind);
    size_t i = 0;
    a += k * TS_VECTOR_BYTES;
    b += k * TS_VECTOR_BYTES;
    for (; i + step <= groups; i += step)
        add_single_stretch(kind, same, eager, a + i * 64, b + i * 64, step, limits, &singles);
    for (; i < groups; i++)
        add_single_stretch(kind, same, eager, a + i * 64, b + i * 64, 1, limits, &singles);
    if (kind == DOUBLED) {
        keep(&state->run.sum_a, k, singles.sum_a);
        keep(&state->run.squares_a, k, singles.squares_a);
    } else {
        flush_all(same, &state->run, k, &singles.all);
    }
    state->a.as_signed[k] = singles.signed_a;
    state->a.as_unsigned[k] = singles.unsigned_a;
    state->differ = singles.differ;
    if (same)
        return;
    if (kind == DOUBLED) {
        keep(&state->run.sum, k, singles.sum);
        keep(&state->run.sum_abs, k, singles.sum_abs);
        keep(&state->run.squares_b, k, singles.squares_b);
        keep(&state->run.squares, k, singles.squares);
    }
    state->furthest[k] = singles.furthest;
    state->excess[k] = singles.excess;
    state->unequal += singles.unequal;
    state->mismatched += singles.mismatched;
}

/* What is kept of vector k of sixteen-bit numbers over the groups of a block. */
struct couples {
    struct compensated all;
    ts_vf32 furthest;
    ts_vu32 most;
    ts_vu16 furthest_bits, apart, least;
    ts_vi32 differ;
    uint64_t unequal, mismatched;
    ts_vu16 equal;
};

/* Some groups of sixteen-bit numbers, two to a lane, which are added up in f32. Without eager, they are taken to be
 * near each other; see is_near. The odd one of a lane comes first, as dot takes them. */
TS_KERNEL_INLINE void add_stretch(enum kind kind, bool same, bool eager, const uint8_t *a, const uint8_t *b,
                                  size_t groups, int k, struct ts_delta_limits limits, struct couples *couples)
{
    const bool dots = HAS_DOT && kind == BF16 && !same;
    const ts_vu16 ones = (ts_vu16){0} + 0x3f80; /* 1.0 */
    const ts_vf32 rtol = (ts_vf32){0} + limits.rtol, atol = (ts_vf32){0} + limits.atol;
    struct parts parts = {0};
    for (size_t i = 0; i < groups; i++, a += 64, b += 64) {
        ts_vf32 x[2], y[2];
        const ts_vu16 bits_a = ts_vu16_load(a + k * TS_VECTOR_BYTES), bits_b = ts_vu16_load(b + k * TS_VECTOR_BYTES);
        const ts_vu16 sizes = bits_a & 0x7fff;
        FETCH_AHEAD(a, same ? AHEAD : AHEAD_OF_BOTH);
        FETCH_AHEAD(b, same ? AHEAD : AHEAD_OF_BOTH);
        load(kind, a, k, x);
        couples->most = extend_unsigned(kind, couples->most, (ts_vu32)(same ? sizes : sizes - 1));
        if (same) {
            couples->differ |= (ts_vi32)bits_a ^ (ts_vi32)bits_b;
        } else {
            load(kind, b, k, y);
            COUNT_OTHER_BITS(couples, bits_a, bits_b);
            couples->least = ts_vu16_min(couples->least, sizes - 1);
            if (!eager)
                couples->apart = ts_vu16_max(couples->apart, ts_vi16_abs((ts_vi16)(bits_a - bits_b)));
        }
        if (dots) {
            parts.sum_a = dot(parts.sum_a, bits_a, ones);
            parts.squares_a = dot(parts.squares_a, bits_a, bits_a);
            parts.squares_b = dot(parts.squares_b, bits_b, bits_b);
            parts.sum = dot(parts.sum, bits_b, ones);
        }
        if (dots && !eager) { /* the differences are bf16 numbers too */
            const ts_vu16 bits = pack(y[0] - x[0], y[1] - x[1]), size = bits & 0x7fff;
            parts.sum_abs = dot(parts.sum_abs, size, ones);
            parts.squares = dot(parts.squares, bits, bits);
            couples->furthest_bits = ts_vu16_max(couples->furthest_bits, size);
            continue;
        }
        for (int p = 1; p >= 0; p--) {
            if (!dots) {
                parts.sum_a += x[p];
                parts.squares_a = ts_vf32_add_exact_square(parts.squares_a, x[p]);
            }
            if (!same) {
                const ts_vf32 d = y[p] - x[p], distance = absolute(d);
                if (!dots) {
                    parts.sum += SUMS_B(kind) ? y[p] : d;
                    parts.squares_b = ts_vf32_add_exact_square(parts.squares_b, y[p]);
                }
                parts.sum_abs += distance;
                parts.squares = eager ? ts_vf32_fused(d, d, parts.squares) : ts_vf32_add_exact_square(parts.squares, d);
                couples->furthest = further(distance, couples->furthest);
                if (eager)
                    couples->mismatched += COUNT_ABOVE(distance, ts_vf32_fused(absolute(x[p]), rtol, atol));
            }
        }
    }
    add_parts(same, &couples->all, &parts);
}

/* A block of them. */
TS_KERNEL_INLINE void add_couples(enum kind kind, bool same, bool eager, const uint8_t *a, const uint8_t *b,
                                  size_t groups, int k, struct ts_delta_limits limits, struct state *state,
                                  size_t block)
{
    const ts_vu16 none = (ts_vu16){0} + 0xffff;
    struct couples couples = {.furthest = state->furthest[k],
                              .most = state->most[k],
                              .apart = state->apart[k],
                              .least = none,
                              .differ = state->differ};
    size_t i = 0;
    for (; i + STRETCH(kind) <= groups; i += STRETCH(kind))
        add_stretch(kind, same, eager, a + i * 64, b + i * 64, STRETCH(kind), k, limits, &couples);
    for (; i < groups; i++)
        add_stretch(kind, same, eager, a + i * 64, b + i * 64, 1, k, limits, &couples);
    flush_all(same, &state->run, k, &couples.all);
    state->most[k] = couples.most;
    state->differ = couples.differ;
    if (same)
        return;
    if (HAS_DOT && kind == BF16 && !eager)
        couples.furthest =
            ts_vf32_max(couples.furthest, ts_vf32_max((ts_vf32)((ts_vu32)couples.furthest_bits << 16),
                                                      (ts_vf32)((ts_vu32)couples.furthest_bits & 0xffff0000u)));
    state->furthest[k] = couples.furthest;
    state->apart[k] = couples.apart;
    state->least[block][k] = couples.least;
    state->unequal += couples.unequal;
    state->mismatched += couples.mismatched;
#if !defined(__AVX512BW__)
    state->unequal += groups * (TS_VECTOR_BYTES / 2);
    for (size_t lane = 0; lane < TS_VECTOR_BYTES / 2; lane++)
        state->unequal -= couples.equal[lane];
#endif
}

TS_KERNEL_INLINE void add_groups(enum kind kind, bool same, bool eager, const uint8_t *a, const uint8_t *b,
                                 size_t groups, int k, struct ts_delta_limits limits, struct state *state, size_t block)
{
    if (PARTS(kind) == 1)
        add_singles(kind, same, eager, a, b, groups, k, limits, state);
    else
        add_couples(kind, same, eager, a, b, groups, k, limits, state, block);
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

/* The least of all blocks, in lanes as theirs are. */
TS_KERNEL_INLINE void join_least(const ts_vu16 least[BLOCKS][TS_VECTORS], size_t blocks, ts_vu16 out[TS_VECTORS])
{
    for (int k = 0; k < TS_VECTORS; k++) {
        out[k] = (ts_vu16){0} + 0xffff;
        for (size_t block = 0; block < blocks; block++)
            out[k] = ts_vu16_min(out[k], least[block][k]);
    }
}

/* Of sixteen-bit numbers, with the least of the run: only those blocks are looked at that can have what is looked for.
 */
TS_KERNEL_INLINE double steepest_of_run(enum kind kind, const uint8_t *a, const uint8_t *b, size_t count,
                                        struct ts_delta_limits limits, const struct state *state,
                                        const ts_vu16 least[TS_VECTORS], unsigned apart, double max_abs)
{
    const double ratio = (double)limits.ratio;
    const size_t step = FLUSH * GROUP(kind), whole = count / GROUP(kind) * GROUP(kind);
    double most = steepest(kind, a + whole * SIZE(kind), b + whole * SIZE(kind), count - whole, max_abs, ratio);
    if (!(steepest_bound(kind, apart, least_of(least), max_abs) > ratio))
        return most;
    for (size_t first = 0; first < whole; first += step) {
        const size_t now = whole - first < step ? whole - first : step;
        const unsigned of_block = least_of(state->least[first / step]);
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

/* No number of a is larger than `largest`, and none of b further from one of a than max_abs. Where these bounds are
 * inside of what runs before have shown, nobody has to look. */
TS_KERNEL_INLINE void find_bounds_a(enum kind kind, const uint8_t *a, size_t count, struct ts_delta_limits limits,
                                    const struct state *state, const struct total *total, struct ts_delta_sums *sums)
{
    if (PARTS(kind) == 1) {
        const size_t groups = count / GROUP(kind);
        find_extremes(kind, &state->a, a, groups, &sums->min_a, &sums->max_a);
        add_extremes(kind, a, groups * GROUP(kind), count, &sums->min_a, &sums->max_a);
        return;
    }
    find_bounds_of_largest(kind, a, count, limits, total, sums);
}

TS_KERNEL_INLINE void add_tail(enum kind kind, const uint8_t *a, const uint8_t *b, struct ts_delta_limits limits,
                               struct total *total, struct bounds *bounds, struct ts_delta_sums *sums)
{
    const float x = scalar(kind, a), y = scalar(kind, b);
    add_to_total(total, x, y, limits, sums);
    bounds->above = bounds->above || fabsf(y - x) > fabsf(x) * limits.ratio;
    if (PARTS(kind) == 2) {
        unsigned apart = (uint16_t)(ts_load_le16(a) - ts_load_le16(b));
        apart = apart > 0x8000 ? 0x10000 - apart : apart;
        bounds->apart = apart > bounds->apart ? apart : bounds->apart;
    }
}

TS_KERNEL_INLINE void add_run(enum kind kind, bool same, const uint8_t *a, const uint8_t *b, size_t groups,
                              struct ts_delta_limits limits, struct state *state)
{
    memset(state, 0, offsetof(struct state, least));
    extremes_init(kind, &state->a);
    for (size_t i = 0; i < groups; i += FLUSH, a += FLUSH * 64, b += FLUSH * 64) {
        size_t now = groups - i < FLUSH ? groups - i : FLUSH;
        for (int k = 0; k < TS_VECTORS; k++) {
            if (same)
                add_groups(kind, true, false, a, b, now, k, limits, state, i / FLUSH);
            else if (limits.eager)
                add_groups(kind, false, true, a, b, now, k, limits, state, i / FLUSH);
            else
                add_groups(kind, false, false, a, b, now, k, limits, state, i / FLUSH);
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

/* The largest magnitude of a, out of what was kept of it. */
TS_KERNEL_INLINE double largest_of(enum kind kind, bool same, uint32_t most)
{
    return PARTS(kind) == 1 || same ? number_of(kind, most) : largest_beside_zeros(kind, most);
}

TS_KERNEL_INLINE void measure(enum kind kind, const uint8_t *a, const uint8_t *b, size_t count,
                              struct ts_delta_limits limits, struct ts_delta_sums *sums)
{
    const size_t groups = count / GROUP(kind);
    const size_t tail = groups * STRIDE(kind); /* where it begins */
    bool same = limits.same || memcmp(a, b, count * SIZE(kind)) == 0;
    struct state state;
    struct total total;
    struct bounds bounds;
    ts_vu16 least[TS_VECTORS] = {{0}};
    uint32_t most;
    add_run(kind, same, a, b, groups, limits, &state);
    if (same && (ts_any_bit(state.differ) || memcmp(a + tail, b + tail, count * SIZE(kind) - tail) != 0)) {
        same = false;
        add_run(kind, false, a, b, groups, limits, &state);
    }
    if (PARTS(kind) == 2 && !same && !limits.eager && !is_near(kind, &state)) {
        limits.eager = true;
        add_run(kind, false, a, b, groups, limits, &state);
    }
    most = most_unsigned(kind, state.most);
    *sums = (struct ts_delta_sums){.unequal = state.unequal, .mismatched = state.mismatched, .same = same};
    bounds = (struct bounds){.above = highest_i32((const ts_vi32 *)state.excess) > 0};
    if (PARTS(kind) == 2 && !same) {
        join_least(state.least, (groups + FLUSH - 1) / FLUSH, least);
        bounds.apart = limits.eager ? UINT16_MAX : highest_u16(state.apart);
        if (limits.eager && most == UINT16_MAX) /* 0 and -0 are equal after all */
            sums->unequal -= count_other_zeros(a, b, groups);
    }
    sums->max_abs = (double)highest(state.furthest);
    total = (struct total){.sum_a = total_of(&state.run.sum_a),
                           .squares_a = total_of(&state.run.squares_a),
                           .largest = largest_of(kind, same, most)};
    if (same) {
        total.squares_b = total.squares_a;
    } else {
        total.squares_b = total_of(&state.run.squares_b);
        total.sum = total_of(&state.run.sum) - (SUMS_B(kind) ? total.sum_a : 0);
        total.sum_abs = total_of(&state.run.sum_abs);
        total.squares = total_of(&state.run.squares);
    }
    for (size_t i = groups * GROUP(kind); i < count; i++)
        add_tail(kind, a + i * SIZE(kind), b + i * SIZE(kind), limits, &total, &bounds, sums);
    find_bounds_a(kind, a, count, limits, &state, &total, sums);
    if (same)
        sums->min_b = sums->min_a, sums->max_b = sums->max_a;
    else if (!is_inside(limits, sums) ||
             (kind != DOUBLED && !(total.squares_b > (double)count * SMALLEST_FUSED * SMALLEST_FUSED)) ||
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
KERNEL(doubled, DOUBLED)
KERNEL(bf16, BF16)
KERNEL(f16, F16)

const struct ts_delta_kernels TS_AT_LEVEL(ts_delta_kernels) = {
    .of = {[TS_DELTA_F32] = {measure_f32, beyond_f32},
           [TS_DELTA_DOUBLED] = {measure_doubled, beyond_doubled},
           [TS_DELTA_BF16] = {measure_bf16, beyond_bf16},
           [TS_DELTA_F16] = {measure_f16, beyond_f16}},
};
