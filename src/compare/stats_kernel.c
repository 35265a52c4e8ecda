/* Compiled once per instruction set; see base/level.h and base/vector.h.
 *
 * f32 goes through double: two conversions, additions and multiply-adds for sixteen numbers, well below the time a core
 * takes to fetch them. The sixteen-bit types are twice as many numbers per byte, so they accumulate in f32, where their
 * squares are exact (8 or 11 significant bits give at most 22), and flush into double every FLUSH groups; with so few
 * additions between flushes the relative error stays near 2^-24 / sqrt(count). Their extremes and zeros are found on
 * the bits, thirty-two at a time. */
#include "compare/stats_kernel.h"

#include <math.h>

#include "base/level.h"
#include "compare/lanes.h"

/* Fusing is harmless here, since every product below is exact, and saves an instruction in four. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast")
#endif

#define FLUSH 32

/* Squares of sixteen-bit numbers must stay in range in f32: 2^60 squared and summed TS_STATS_RUN times is below 2^134,
 * spread over 32 accumulators and flushed, far below 2^127 each. Squares below 2^-126 are no longer exact there (so
 * that fusing shows) but wrong by 2^-150 at most, 2^-137 for a whole run; when the largest number is above 2^-30, that
 * is 2^-25 of the sum's last bit. */
#define LARGEST  0x1p60
#define SMALLEST 0x1p-30

/* The numbers behind the last whole group. */
static void add_tail(float value, struct ts_stats_sums *sums)
{
    double wide = (double)value;
    sums->sum += wide;
    sums->sum_squares += wide * wide;
    sums->min = wide < sums->min ? wide : sums->min;
    sums->max = wide > sums->max ? wide : sums->max;
    sums->zeros += value == 0.0f;
}

static void stats_f32(const uint8_t *src, size_t count, struct ts_stats_sums *sums)
{
    /* accumulators 0..7 take the lower halves of vectors, 8..15 the upper: one pair per vector of the group */
    ts_vf64 sum_low[TS_VECTORS] = {{0}}, sum_high[TS_VECTORS] = {{0}};
    ts_vf64 squares_low[TS_VECTORS] = {{0}}, squares_high[TS_VECTORS] = {{0}};
    struct extremes extremes;
    ts_vi32 zeros[TS_VECTORS] = {{0}};
    size_t whole = count / 16 * 16, i;
    double wide[16], wide_squares[16];
    extremes_init(F32, &extremes);
    for (i = 0; i < whole; i += 16)
#pragma GCC unroll 4
        for (int k = 0; k < TS_VECTORS; k++) {
            const uint8_t *from = src + i * 4 + k * TS_VECTOR_BYTES;
            const ts_vf32 v = ts_vf32_load(from);
            const ts_vf64 a = ts_vf64_widened(from), b = ts_vf64_widened(from + TS_VECTOR_BYTES / 2);
            FETCH_AHEAD(from, AHEAD);
            sum_low[k] += a;
            sum_high[k] += b;
            squares_low[k] += a * a;
            squares_high[k] += b * b;
            extremes.as_signed[k] = extend_signed(F32, extremes.as_signed[k], (ts_vu32)v);
            extremes.as_unsigned[k] = extend_unsigned(F32, extremes.as_unsigned[k], (ts_vu32)v);
            zeros[k] -= (ts_vi32)(v == 0.0f);
        }
    /* back to the sixteen numbers of a group, so that the order of additions is the same at every width */
    for (int k = 0; k < TS_VECTORS; k++) {
        memcpy((char *)wide + k * 2 * TS_VECTOR_BYTES, &sum_low[k], TS_VECTOR_BYTES);
        memcpy((char *)wide + (k * 2 + 1) * TS_VECTOR_BYTES, &sum_high[k], TS_VECTOR_BYTES);
        memcpy((char *)wide_squares + k * 2 * TS_VECTOR_BYTES, &squares_low[k], TS_VECTOR_BYTES);
        memcpy((char *)wide_squares + (k * 2 + 1) * TS_VECTOR_BYTES, &squares_high[k], TS_VECTOR_BYTES);
    }
    *sums = (struct ts_stats_sums){0};
    find_extremes(F32, &extremes, src, whole / 16, &sums->min, &sums->max);
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++) {
            wide[k] += wide[k + half];
            wide_squares[k] += wide_squares[k + half];
        }
    sums->sum = wide[0];
    sums->sum_squares = wide_squares[0];
    for (int k = 0; k < TS_VECTORS; k++)
        for (size_t lane = 0; lane < TS_VECTOR_BYTES / 4; lane++)
            sums->zeros += (uint64_t)(uint32_t)zeros[k][lane];
    for (; i < count; i++)
        add_tail(ts_float_from_bits(ts_load_le32(src + i * 4)), sums);
    sums->clean = isfinite(sums->sum_squares); /* the square of any f32 is finite in double */
}

/* Both sixteen-bit types. */
TS_KERNEL_INLINE void stats_sixteen(enum kind kind, const uint8_t *src, size_t count, struct ts_stats_sums *sums)
{
    const size_t groups = count / GROUP(kind);
    struct wide total = {0}, total_squares = {0};
    struct extremes extremes;
    ts_vu16 zeros[TS_VECTORS] = {{0}};
    double largest;
    *sums = (struct ts_stats_sums){0};
    extremes_init(kind, &extremes);
    for (size_t first = 0; first < groups; first += FLUSH) {
        const size_t end = groups - first < FLUSH ? groups : first + FLUSH;
        for (int k = 0; k < TS_VECTORS; k++) {
            ts_vf32 sum[2] = {{0}}, squares[2] = {{0}};
            ts_vi32 as_signed = extremes.as_signed[k];
            ts_vu32 as_unsigned = extremes.as_unsigned[k];
            ts_vu16 zero = zeros[k];
            for (size_t i = first; i < end; i += 2)
#pragma GCC unroll 2
                for (size_t turn = 0; turn < 2; turn++) { /* two sums, as each addition waits for the one before */
                    const uint8_t *group = src + (i + turn) * 64;
                    ts_vu16 bits;
                    ts_vf32 x[2];
                    if (i + turn == end)
                        break;
                    bits = ts_vu16_load(group + k * TS_VECTOR_BYTES);
                    FETCH_AHEAD(group, AHEAD);
                    as_signed = extend_signed(kind, as_signed, (ts_vu32)bits);
                    as_unsigned = extend_unsigned(kind, as_unsigned, (ts_vu32)bits);
#if defined(__AVX512BW__)
                    sums->zeros +=
                        (uint64_t)__builtin_popcount(_mm512_testn_epi16_mask((__m512i)bits, _mm512_set1_epi16(0x7fff)));
#else
                    zero -= (ts_vu16)((bits & 0x7fff) == 0);
#endif
                    if (HAS_DOT && kind == BF16) {
                        sum[turn] = dot(sum[turn], bits, (ts_vu16){0} + 0x3f80); /* times one */
                        squares[turn] = dot(squares[turn], bits, bits);
                        continue;
                    }
                    load(kind, group, k, x);
                    for (int p = 1; p >= 0; p--) {
                        sum[turn] += x[p];
                        squares[turn] = ts_vf32_add_exact_square(squares[turn], x[p]);
                    }
                }
            for (int p = 0; p < 2; p++) {
                flush(&total, k, sum[p]);
                flush(&total_squares, k, squares[p]);
            }
            extremes.as_signed[k] = as_signed;
            extremes.as_unsigned[k] = as_unsigned;
            zeros[k] = zero;
        }
    }
    find_extremes(kind, &extremes, src, groups, &sums->min, &sums->max);
    sums->sum = total_of(&total);
    sums->sum_squares = total_of(&total_squares);
    for (int k = 0; k < TS_VECTORS; k++)
        for (size_t lane = 0; lane < TS_VECTOR_BYTES / 2; lane++)
            sums->zeros += zeros[k][lane];
    for (size_t i = groups * GROUP(kind); i < count; i++)
        add_tail(scalar(kind, src + i * 2), sums);
    largest = sums->max > -sums->min ? sums->max : -sums->min;
    sums->clean = isfinite(sums->sum_squares) && (largest == 0 || (largest < LARGEST && largest > SMALLEST));
}

static void stats_bf16(const uint8_t *src, size_t count, struct ts_stats_sums *sums)
{
    stats_sixteen(BF16, src, count, sums);
}

static void stats_f16(const uint8_t *src, size_t count, struct ts_stats_sums *sums)
{
    stats_sixteen(F16, src, count, sums);
}

const struct ts_stats_kernels TS_AT_LEVEL(ts_stats_kernels) = {
    .f32 = stats_f32,
    .bf16 = stats_bf16,
    .f16 = stats_f16,
};
