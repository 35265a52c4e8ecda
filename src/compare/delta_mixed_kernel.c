/* Compiled once per instruction set; see base/level.h and base/vector.h.
 *
 * A bf16 tensor beside f32 numbers, which mostly were decoded just now: a checkpoint and what a quantizer made of it.
 * Numbers that are decoded for the second-level cache are worked on while memory waits, so that operations are all that
 * counts. Those of bf16 are widened on the way, and what their bits tell is taken from the bits, thirty-two at a time:
 * the extremes, and which numbers are small enough for a large quotient. Two precisions are mostly further apart than
 * tolerances are wide, so that elements beyond them are counted at once. */
#include "compare/delta_kernel.h"

#include <math.h>

#include "base/level.h"
#include "compare/delta_parts.h"

/* Sixteen lanes of two numbers: 64 bytes of a, 128 of b. */
#define NUMBERS GROUP(BF16)
/* Eight numbers to a lane are added up in f32; see STRETCH in delta_kernel.c. */
#define STEP   ((size_t)4)
#define BLOCKS (TS_DELTA_RUN / NUMBERS / FLUSH)

struct state {
    struct run_sums run; /* sum: of d */
    ts_vu32 most[TS_VECTORS];
    ts_vf32 furthest[TS_VECTORS];
    uint64_t unequal, mismatched;
    ts_vu16 least[BLOCKS][TS_VECTORS]; /* of a, the bits less one, so that zero is more than any */
};

/* What is kept of vector k over the groups of a block. */
struct both {
    struct compensated all;
    ts_vf32 furthest;
    ts_vu16 most, least;
    uint64_t unequal, mismatched;
};

/* Vector k of the first or the second half of a group, in the order of b. */
TS_KERNEL_INLINE void load_both(const uint8_t *a, const uint8_t *b, int half, int k, ts_vf32 *x, ts_vf32 *y)
{
    *x = ts_vf32_from_bf16(a + half * 32 + k * (TS_VECTOR_BYTES / 2));
    *y = ts_vf32_load(b + half * 64 + k * TS_VECTOR_BYTES);
}

TS_KERNEL_INLINE void add_stretch(const uint8_t *a, const uint8_t *b, size_t groups, int k,
                                  struct ts_delta_limits limits, struct both *both)
{
    const ts_vf32 rtol = ts_vf32_all(limits.rtol), atol = ts_vf32_all(limits.atol);
    const ts_vu16 ones = (ts_vu16){0} + 0x3f80; /* 1.0 */
    struct parts parts = {0};
    for (size_t i = 0; i < groups; i++, a += 64, b += 128) {
        const ts_vu16 bits = ts_vu16_load(a + k * TS_VECTOR_BYTES), sizes = (bits & 0x7fff) - 1;
        both->most = ts_vu16_max(both->most, sizes);
        both->least = ts_vu16_min(both->least, sizes);
        if (HAS_DOT) {
            parts.sum_a = dot(parts.sum_a, bits, ones);
            parts.squares_a = dot(parts.squares_a, bits, bits);
        } else {
            ts_vf32 x[2];
            load(BF16, a, k, x);
            for (int p = 1; p >= 0; p--) {
                parts.sum_a += x[p];
                parts.squares_a = ts_vf32_add_exact_square(parts.squares_a, x[p]);
            }
        }
        for (int half = 0; half < 2; half++) {
            ts_vf32 x, y, d, distance;
            load_both(a, b, half, k, &x, &y);
            d = y - x;
            distance = absolute(d);
            parts.sum += d;
            parts.sum_abs += distance;
            parts.squares_b = ts_vf32_fused(y, y, parts.squares_b);
            parts.squares = ts_vf32_fused(d, d, parts.squares);
            both->furthest = further(distance, both->furthest);
            both->mismatched += COUNT_ABOVE(distance, ts_vf32_fused(absolute(x), rtol, atol));
            both->unequal += COUNT_UNEQUAL(x, y);
        }
    }
    add_parts(false, &both->all, &parts);
}

/* A block, vector k of each group, so that the accumulators are registers at every width. Each two lines of b that are
 * worked on, memory is asked for what comes later; see ts_ahead. */
TS_KERNEL_INLINE void add_block(const uint8_t *a, const uint8_t *b, size_t groups, int k, struct ts_delta_limits limits,
                                struct state *state, size_t block)
{
    struct both both = {
        .furthest = state->furthest[k], .most = (ts_vu16)state->most[k], .least = (ts_vu16){0} + 0xffff};
    for (size_t i = 0, now; i < groups; i += now, a += now * 64, b += now * 128) {
        now = groups - i < STEP ? groups - i : STEP;
        for (int side = 0; side < 2 && k == 0; side++)
            for (size_t line = 0; line < 2 * now; line++, limits.ahead[side].at += limits.ahead[side].step)
                __builtin_prefetch((const void *)limits.ahead[side].at, 0, 3);
        if (now == STEP)
            add_stretch(a, b, STEP, k, limits, &both);
        else
            add_stretch(a, b, now, k, limits, &both);
    }
    flush_all(false, &state->run, k, &both.all);
    state->furthest[k] = both.furthest;
    state->most[k] = (ts_vu32)both.most;
    state->least[block][k] = both.least;
    state->unequal += both.unequal;
    state->mismatched += both.mismatched;
}

static uint64_t beyond_mixed(const uint8_t *a, const uint8_t *b, size_t count, float rtol, float atol)
{
    const ts_vf32 wide_rtol = ts_vf32_all(rtol), wide_atol = ts_vf32_all(atol);
    uint64_t found = 0;
    size_t i = 0;
    for (; i + NUMBERS <= count; i += NUMBERS)
        for (int k = 0; k < TS_VECTORS; k++)
            for (int half = 0; half < 2; half++) {
                ts_vf32 x, y;
                load_both(a + i * 2, b + i * 4, half, k, &x, &y);
                found += COUNT_ABOVE(absolute(y - x), ts_vf32_fused(absolute(x), wide_rtol, wide_atol));
            }
    for (; i < count; i++) {
        const float x = scalar(BF16, a + i * 2), y = scalar(F32, b + i * 4);
        found += fabsf(y - x) > fused(fabsf(x), rtol, atol);
    }
    return found;
}

/* The largest |d| / |a| with a != 0 of numbers [first, end), if any is above the ratio: |a| is at most max_abs / ratio
 * there. */
TS_KERNEL_INLINE float steepest_mixed(const uint8_t *a, const uint8_t *b, size_t first, size_t end, double max_abs,
                                      float ratio, float most)
{
    const uint16_t limit = bits_up_to(BF16, max_abs / (double)ratio * (1 + 0x1p-20));
    const ts_vu16 below = (ts_vu16){0} + (uint16_t)(2 * limit);
    size_t i = first;
    for (; i + NUMBERS <= end; i += NUMBERS) {
        bool any = false;
        for (int k = 0; k < TS_VECTORS && !any; k++) {
            const ts_vu16 bits = ts_vu16_load(a + i * 2 + k * TS_VECTOR_BYTES);
            any = ts_vu16_any_below(bits + bits - 1, below); /* zero is 0xffff there */
        }
        for (size_t n = i; n < i + NUMBERS && any; n++) {
            const float x = scalar(BF16, a + n * 2), quotient = fabsf(scalar(F32, b + n * 4) - x) / fabsf(x);
            most = x != 0 && quotient > most ? quotient : most;
        }
    }
    for (; i < end; i++) {
        const float x = scalar(BF16, a + i * 2), quotient = fabsf(scalar(F32, b + i * 4) - x) / fabsf(x);
        most = x != 0 && quotient > most ? quotient : most;
    }
    return most;
}

/* Only those blocks are looked at that can have what is looked for. */
TS_KERNEL_INLINE double steepest_of_run(const uint8_t *a, const uint8_t *b, size_t count, const struct state *state,
                                        float ratio, double max_abs)
{
    const size_t whole = count / NUMBERS * NUMBERS, step = FLUSH * NUMBERS;
    float most = steepest_mixed(a, b, whole, count, max_abs, ratio, 0);
    for (size_t first = 0; first < whole; first += step) {
        const unsigned least = least_of(state->least[first / step]);
        if (least && max_abs / from_bits(BF16, (uint16_t)least) > (double)ratio)
            most = steepest_mixed(a, b, first, whole - first < step ? whole : first + step, max_abs, ratio, most);
    }
    return most > ratio ? (double)most : 0;
}

static void measure_mixed(const uint8_t *a, const uint8_t *b, size_t count, struct ts_delta_limits limits,
                          struct ts_delta_sums *sums)
{
    const size_t groups = count / NUMBERS;
    struct state state;
    struct total total;
    memset(&state, 0, offsetof(struct state, least));
    for (size_t i = 0; i < groups; i += FLUSH) {
        const size_t now = groups - i < FLUSH ? groups - i : FLUSH;
        for (int k = 0; k < TS_VECTORS; k++)
            add_block(a + i * 64, b + i * 128, now, k, limits, &state, i / FLUSH);
        for (int side = 0; side < 2; side++)
            limits.ahead[side].at += 2 * now * limits.ahead[side].step;
    }
    *sums = (struct ts_delta_sums){.unequal = state.unequal,
                                   .mismatched = state.mismatched,
                                   .max_abs = (double)highest(state.furthest),
                                   .eager = true};
    total = (struct total){.sum_a = total_of(&state.run.sum_a),
                           .sum = total_of(&state.run.sum),
                           .sum_abs = total_of(&state.run.sum_abs),
                           .squares_a = total_of(&state.run.squares_a),
                           .squares_b = total_of(&state.run.squares_b),
                           .squares = total_of(&state.run.squares),
                           .largest = groups ? largest_beside_zeros(BF16, most_unsigned(BF16, state.most)) : 0};
    limits.eager = true;
    for (size_t i = groups * NUMBERS; i < count; i++)
        add_to_total(&total, scalar(BF16, a + i * 2), scalar(F32, b + i * 4), limits, sums);
    find_bounds_of_largest(BF16, a, count, limits, &total, sums);
    if (!is_inside(limits, sums) || !(total.squares_b > (double)count * SMALLEST_FUSED * SMALLEST_FUSED) ||
        !is_spread(total.sum_a + total.sum, total.squares_b, count) || !within_range(BF16, sums, &total))
        look_for_extremes(F32, b, count, &sums->min_b, &sums->max_b);
    sums->clean = within_range(BF16, sums, &total);
    if (!sums->clean)
        return;
    sums->sum = total.sum;
    sums->sum_abs = total.sum_abs;
    sums->squares = total.squares;
    sums->a = moments_of(BF16, a, count, total.sum_a, total.squares_a, sums->min_a == sums->max_a, false);
    /* b as a + d: rough when a is much the larger */
    sums->b = moments_of(F32, b, count, total.sum_a + total.sum, total.squares_b, sums->min_b == sums->max_b,
                         total.squares_a > 64 * total.squares_b);
    sums->max_rel = steepest_of_run(a, b, count, &state, limits.ratio, sums->max_abs);
}

const struct ts_delta_kernel TS_AT_LEVEL(ts_delta_mixed_kernel) = {measure_mixed, beyond_mixed};
