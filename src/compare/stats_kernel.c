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
#include "base/number.h"
#include "base/vector.h"

/* Fusing is harmless here, since every product below is exact, and saves an instruction in four. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast")
#endif

#define FLUSH 16

/* Squares of sixteen-bit numbers must stay in range in f32: 2^60 squared and summed TS_STATS_RUN times is below 2^134,
 * spread over 32 accumulators and flushed, far below 2^127 each. Squares below 2^-126 are no longer exact there (so
 * that fusing shows) but wrong by 2^-150 at most, 2^-137 for a whole run; when the largest number is above 2^-30, that
 * is 2^-25 of the sum's last bit. */
#define LARGEST  0x1p60
#define SMALLEST 0x1p-30

/* Sums the eight accumulators of a group in one fixed order. */
TS_KERNEL_INLINE double total_of(const ts_vf64 v[TS_VECTORS])
{
    double lane[8];
    memcpy(lane, v, sizeof lane);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

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
    ts_vf32 low[TS_VECTORS], high[TS_VECTORS];
    ts_vi32 zeros[TS_VECTORS] = {{0}};
    size_t whole = count / 16 * 16, i;
    double wide[16], wide_squares[16];
    for (int k = 0; k < TS_VECTORS; k++) {
        low[k] = (ts_vf32){0} + INFINITY;
        high[k] = -low[k];
    }
    for (i = 0; i < whole; i += 16)
#pragma GCC unroll 4
        for (int k = 0; k < TS_VECTORS; k++) {
            ts_vf32 v = ts_vf32_load(src + i * 4 + k * TS_VECTOR_BYTES);
            ts_vf64 a = ts_vf64_low(v), b = ts_vf64_high(v);
            sum_low[k] += a;
            sum_high[k] += b;
            squares_low[k] += a * a;
            squares_high[k] += b * b;
            low[k] = ts_vf32_min(v, low[k]);
            high[k] = ts_vf32_max(v, high[k]);
            zeros[k] -= (ts_vi32)(v == 0.0f);
        }
    /* back to the sixteen numbers of a group, so that the order of additions is the same at every width */
    for (int k = 0; k < TS_VECTORS; k++) {
        memcpy((char *)wide + k * 2 * TS_VECTOR_BYTES, &sum_low[k], TS_VECTOR_BYTES);
        memcpy((char *)wide + (k * 2 + 1) * TS_VECTOR_BYTES, &sum_high[k], TS_VECTOR_BYTES);
        memcpy((char *)wide_squares + k * 2 * TS_VECTOR_BYTES, &squares_low[k], TS_VECTOR_BYTES);
        memcpy((char *)wide_squares + (k * 2 + 1) * TS_VECTOR_BYTES, &squares_high[k], TS_VECTOR_BYTES);
    }
    *sums = (struct ts_stats_sums){.min = INFINITY, .max = -INFINITY};
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++) {
            wide[k] += wide[k + half];
            wide_squares[k] += wide_squares[k + half];
        }
    sums->sum = wide[0];
    sums->sum_squares = wide_squares[0];
    for (int k = 0; k < TS_VECTORS; k++)
        for (size_t lane = 0; lane < TS_VECTOR_BYTES / 4; lane++) {
            sums->min = (double)low[k][lane] < sums->min ? (double)low[k][lane] : sums->min;
            sums->max = (double)high[k][lane] > sums->max ? (double)high[k][lane] : sums->max;
            sums->zeros += (uint64_t)(uint32_t)zeros[k][lane];
        }
    for (; i < count; i++)
        add_tail(ts_float_from_bits(ts_load_le32(src + i * 4)), sums);
    sums->clean = isfinite(sums->sum_squares); /* the square of any f32 is finite in double */
}

/* Extremes and zeros of sixteen-bit floats on their bits. Flipping the magnitude of negative numbers makes their order
 * that of signed integers. */
struct sixteen {
    ts_vi16 low[TS_VECTORS], high[TS_VECTORS];
    ts_vu16 zeros[TS_VECTORS];
};

TS_KERNEL_INLINE void sixteen_init(struct sixteen *s)
{
    for (int k = 0; k < TS_VECTORS; k++) {
        s->low[k] = (ts_vi16){0} + INT16_MAX;
        s->high[k] = (ts_vi16){0} + INT16_MIN;
        s->zeros[k] = (ts_vu16){0};
    }
}

TS_KERNEL_INLINE void sixteen_add(struct sixteen *s, int k, ts_vu16 bits)
{
    ts_vi16 key = (ts_vi16)bits ^ (((ts_vi16)bits >> 15) & 0x7fff);
    s->low[k] = ts_vi16_min(s->low[k], key);
    s->high[k] = ts_vi16_max(s->high[k], key);
    s->zeros[k] -= (ts_vu16)((bits & 0x7fff) == 0);
}

TS_KERNEL_INLINE uint16_t bits_of_key(int16_t key)
{
    return (uint16_t)(key ^ ((key >> 15) & 0x7fff));
}

TS_KERNEL_INLINE void sixteen_finish(const struct sixteen *s, float (*value)(uint16_t bits), struct ts_stats_sums *sums)
{
    int16_t low = INT16_MAX, high = INT16_MIN;
    for (int k = 0; k < TS_VECTORS; k++)
        for (size_t lane = 0; lane < TS_VECTOR_BYTES / 2; lane++) {
            low = s->low[k][lane] < low ? s->low[k][lane] : low;
            high = s->high[k][lane] > high ? s->high[k][lane] : high;
            sums->zeros += s->zeros[k][lane];
        }
    sums->min = (double)value(bits_of_key(low)) + 0.0; /* no negative zero */
    sums->max = (double)value(bits_of_key(high)) + 0.0;
}

TS_KERNEL_INLINE void flush(ts_vf64 total[TS_VECTORS], const ts_vf32 a[TS_VECTORS], const ts_vf32 b[TS_VECTORS])
{
    /* accumulator i of a and b, i from 0 to 15, goes to total i modulo 8 in this order: a, a + 8, b, b + 8 */
    float lanes[2][16];
    double sums[8];
    memcpy(lanes[0], a, sizeof lanes[0]);
    memcpy(lanes[1], b, sizeof lanes[1]);
    memcpy(sums, total, sizeof sums);
    for (int i = 0; i < 8; i++)
        sums[i] += ((double)lanes[0][i] + (double)lanes[0][i + 8]) + ((double)lanes[1][i] + (double)lanes[1][i + 8]);
    memcpy(total, sums, sizeof sums);
}

/* One body for both sixteen-bit types. SPLIT takes 64 bytes of them apart into two groups of f32. */
#define STATS_SIXTEEN_BITS(NAME, SPLIT, SCALAR)                                                                        \
    static void NAME(const uint8_t *src, size_t count, struct ts_stats_sums *sums)                                     \
    {                                                                                                                  \
        ts_vf64 total[TS_VECTORS] = {{0}}, total_squares[TS_VECTORS] = {{0}};                                          \
        struct sixteen sixteen;                                                                                        \
        size_t whole = count / 32 * 32, i = 0;                                                                         \
        double largest;                                                                                                \
        sixteen_init(&sixteen);                                                                                        \
        *sums = (struct ts_stats_sums){.min = INFINITY, .max = -INFINITY};                                             \
        while (i < whole) {                                                                                            \
            size_t end = whole - i < 32 * FLUSH ? whole : i + 32 * FLUSH;                                              \
            ts_vf32 sum_a[TS_VECTORS] = {{0}}, sum_b[TS_VECTORS] = {{0}};                                              \
            ts_vf32 squares_a[TS_VECTORS] = {{0}}, squares_b[TS_VECTORS] = {{0}};                                      \
            for (; i < end; i += 32)                                                                                   \
                _Pragma("GCC unroll 4") for (int k = 0; k < TS_VECTORS; k++)                                           \
                {                                                                                                      \
                    ts_vf32 a, b;                                                                                      \
                    sixteen_add(&sixteen, k, ts_vu16_load(src + i * 2 + k * TS_VECTOR_BYTES));                         \
                    SPLIT(src + i * 2, k, &a, &b);                                                                     \
                    sum_a[k] += a;                                                                                     \
                    sum_b[k] += b;                                                                                     \
                    squares_a[k] += a * a;                                                                             \
                    squares_b[k] += b * b;                                                                             \
                }                                                                                                      \
            flush(total, sum_a, sum_b);                                                                                \
            flush(total_squares, squares_a, squares_b);                                                                \
        }                                                                                                              \
        if (whole)                                                                                                     \
            sixteen_finish(&sixteen, SCALAR, sums);                                                                    \
        sums->sum = total_of(total);                                                                                   \
        sums->sum_squares = total_of(total_squares);                                                                   \
        for (; i < count; i++)                                                                                         \
            add_tail(SCALAR(ts_load_le16(src + i * 2)), sums);                                                         \
        largest = sums->max > -sums->min ? sums->max : -sums->min;                                                     \
        sums->clean = isfinite(sums->sum_squares) && (largest == 0 || (largest < LARGEST && largest > SMALLEST));      \
    }

/* bf16: the even and the odd numbers of each pair, by shift and by mask. */
TS_KERNEL_INLINE void split_bf16(const uint8_t *group, int k, ts_vf32 *a, ts_vf32 *b)
{
    ts_vu32 pairs;
    memcpy(&pairs, group + k * TS_VECTOR_BYTES, sizeof pairs);
    *a = (ts_vf32)(pairs << 16);
    *b = (ts_vf32)(pairs & 0xffff0000u);
}

/* f16: the first sixteen and the second sixteen. */
TS_KERNEL_INLINE void split_f16(const uint8_t *group, int k, ts_vf32 *a, ts_vf32 *b)
{
    *a = ts_vf32_from_f16(group + k * (TS_VECTOR_BYTES / 2));
    *b = ts_vf32_from_f16(group + 32 + k * (TS_VECTOR_BYTES / 2));
}

STATS_SIXTEEN_BITS(stats_bf16, split_bf16, ts_bf16_to_float)
STATS_SIXTEEN_BITS(stats_f16, split_f16, ts_f16_to_float)

const struct ts_stats_kernels TS_AT_LEVEL(ts_stats_kernels) = {
    .f32 = stats_f32,
    .bf16 = stats_bf16,
    .f16 = stats_f16,
};
