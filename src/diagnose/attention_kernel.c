/* Compiled once per instruction set; see base/level.h and base/vector.h. */
#include "diagnose/attention_kernel.h"

#include <math.h>
#include <string.h>

#include "base/level.h"
#include "base/matrix.h"
#include "base/vector.h"

#define LANES TS_ATTEND_WHOLE
#define EACH  (TS_VECTOR_BYTES / 4)
_Static_assert(TS_ATTEND_PANEL % TS_MATRIX_WHOLE == 0 && TS_ATTEND_BLOCK % TS_ATTEND_PANEL == 0, "whole tiles");
_Static_assert(TS_ATTEND_BLOCK <= TS_MATRIX_BLOCK && TS_ATTEND_WHOLE % TS_MATRIX_WHOLE == 0, "as products want them");

#define LEAST_EXPONENT (-87.0f) /* below it a weight is nothing, and 2^n would be no normal number */

/* exp(x) = 2^n (1 + p) for x of at least LEAST_EXPONENT and not too large: p, and 2^n. */
TS_KERNEL_INLINE ts_vf32 split_exponential(ts_vf32 x, ts_vf32 *power)
{
    const ts_vf32 shift = ts_vf32_all(0x1.8p23f); /* brings whole numbers into the last bits */
    ts_vf32 n = ts_vf32_accumulate(shift, x, ts_vf32_all(0x1.715476p0f)), r, p;
    *power = (ts_vf32)(((ts_vu32)n << 23) + 0x3f800000);
    n -= shift;
    r = ts_vf32_accumulate(x, n, ts_vf32_all(-0x1.62e4p-1f)); /* the logarithm of two, in two parts */
    r = ts_vf32_accumulate(r, n, ts_vf32_all(-0x1.7f7d1cp-20f));
    /* the series: beyond it comes r^8 / 8!, below 6e-9 */
    p = ts_vf32_accumulate(ts_vf32_all(1.0f / 720), r, ts_vf32_all(1.0f / 5040));
    p = ts_vf32_accumulate(ts_vf32_all(1.0f / 120), p, r);
    p = ts_vf32_accumulate(ts_vf32_all(1.0f / 24), p, r);
    p = ts_vf32_accumulate(ts_vf32_all(1.0f / 6), p, r);
    p = ts_vf32_accumulate(ts_vf32_all(0.5f), p, r);
    p = ts_vf32_accumulate(ts_vf32_all(1.0f), p, r);
    return p * r;
}

/* exp(x), nothing where that is next to nothing. */
TS_KERNEL_INLINE ts_vf32 exponential(ts_vf32 x)
{
    ts_vf32 least = ts_vf32_all(LEAST_EXPONENT), power, p = split_exponential(ts_vf32_max(x, least), &power);
    return (ts_vf32)((ts_vi32)ts_vf32_accumulate(power, power, p) & (ts_vi32)(x > least));
}

/* tanh(x) = m / (m + 2), where m is exp(2x) - 1: of the absolute value, then with its sign. */
TS_KERNEL_INLINE ts_vf32 hyperbolic_tangent(ts_vf32 x)
{
    ts_vi32 sign = (ts_vi32)x & (ts_vi32)ts_vf32_all(-0.0f);
    ts_vf32 power, twice = (ts_vf32)((ts_vi32)x ^ sign), p, m;
    twice = ts_vf32_min(twice + twice, ts_vf32_all(40.0f));
    p = split_exponential(twice, &power);
    m = ts_vf32_accumulate(power - 1.0f, power, p);
    return (ts_vf32)((ts_vi32)(m / (m + 2.0f)) | sign);
}

/* The largest lane, and the sum of a group's: in a tree, so that one step need not wait for all before it. */
static float largest_of(ts_vf32 v)
{
    float lanes[EACH];
    memcpy(lanes, &v, sizeof v);
    for (size_t half = EACH / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
    return lanes[0];
}

static double sum_of(const ts_vf32 *group)
{
    float lanes[LANES];
    double sums[LANES / 2];
    memcpy(lanes, group, sizeof lanes);
    for (size_t i = 0; i < LANES / 2; i++)
        sums[i] = (double)lanes[i] + (double)lanes[i + LANES / 2];
    for (size_t half = LANES / 4; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            sums[i] += sums[i + half];
    return sums[0];
}

/* Scores of a query with keys [from, to) of a block become weights; it sees [low, high) of them. Tells by what its
 * earlier sums are to be multiplied. */
static double weigh(const struct ts_attend_head *head, struct ts_attend_query *query, float *scores, size_t from,
                    size_t to, size_t low, size_t high)
{
    const ts_vf32 cap = ts_vf32_all(head->cap);
    ts_vf32 sums[TS_VECTORS], largest = ts_vf32_all(query->largest), before;
    float most;
    double factor;
    low = low > from ? low : from;
    if (low >= high) {
        memset(scores + from, 0, (to - from) * sizeof *scores);
        return 1;
    }
    for (size_t i = from; i < to && head->cap > 0; i += EACH) {
        ts_vf32 score = cap * hyperbolic_tangent(ts_vf32_load(scores + i) / cap);
        memcpy(scores + i, &score, sizeof score);
    }
    for (size_t i = from; i < low; i++)
        scores[i] = head->plain ? 0 : -INFINITY;
    for (size_t i = high; i < to; i++)
        scores[i] = head->plain ? 0 : -INFINITY;
    if (head->plain)
        return 1;
    for (size_t i = from; i < to; i += EACH)
        largest = ts_vf32_max(ts_vf32_load(scores + i), largest);
    most = largest_of(largest);
    before = ts_vf32_all(most);
    memset(sums, 0, sizeof sums);
    for (size_t i = from; i < to; i += LANES)
        for (size_t v = 0; v < TS_VECTORS; v++) {
            float *at = scores + i + v * EACH;
            ts_vf32 weight = exponential(ts_vf32_load(at) - before);
            memcpy(at, &weight, sizeof weight);
            sums[v] += weight;
        }
    factor = query->largest < most ? exp((double)query->largest - (double)most) : 1;
    query->largest = most;
    query->sum = query->sum * factor + sum_of(sums);
    return factor;
}

static void attend(const struct ts_attend_head *head, const float *queries, struct ts_attend_query *each, size_t count,
                   float *scores, float *piece, double *out)
{
    const struct ts_matrix_kernels *matrix = &TS_AT_LEVEL(ts_matrix_kernels);
    size_t first = SIZE_MAX, end = 0, padded = head->padded;
    for (size_t row = 0; row < count; row++) {
        first = each[row].first < first ? each[row].first : first;
        end = each[row].end > end ? each[row].end : end;
        each[row].largest = head->plain ? 0 : -INFINITY;
        each[row].sum = 0;
    }
    memset(out, 0, count * padded * sizeof *out);
    for (size_t block = first / TS_ATTEND_BLOCK * TS_ATTEND_BLOCK; block < end; block += TS_ATTEND_BLOCK) {
        size_t from = block < first ? (first - block) / TS_ATTEND_PANEL * TS_ATTEND_PANEL : 0, to = TS_ATTEND_BLOCK;
        if (end - block < to)
            to = (end - block + TS_ATTEND_PANEL - 1) / TS_ATTEND_PANEL * TS_ATTEND_PANEL;
        for (size_t at = from; at < to; at += TS_ATTEND_PANEL)
            matrix->product(queries, head->size, count, head->keys + (block + at) * head->size, TS_ATTEND_PANEL,
                            TS_ATTEND_PANEL, head->size, scores + at, TS_ATTEND_BLOCK);
        for (size_t row = 0; row < count; row++) {
            size_t low = each[row].first > block ? each[row].first - block : 0;
            size_t high = each[row].end > block ? each[row].end - block : 0;
            double factor =
                weigh(head, &each[row], scores + row * TS_ATTEND_BLOCK, from, to, low, high < to ? high : to);
            for (size_t i = 0; i < padded && factor != 1; i++)
                out[row * padded + i] *= factor;
        }
        matrix->product(scores + from, TS_ATTEND_BLOCK, count, head->values + (block + from) * padded, padded, padded,
                        to - from, piece, padded);
        for (size_t i = 0; i < count * padded; i++)
            out[i] += (double)piece[i];
    }
}

const struct ts_attend_kernels TS_AT_LEVEL(ts_attend_kernels) = {.attend = attend};
