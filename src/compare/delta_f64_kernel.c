/* Compiled once per instruction set; see base/level.h and base/vector.h.
 *
 * Deviations are taken from the first number of each side, so that numbers that differ little from each other keep
 * their digits. */
#include "compare/delta_f64_kernel.h"

#include <math.h>

#include "base/level.h"
#include "base/vector.h"

#define LANES ((size_t)8)                        /* at every width */
#define WIDTH (TS_VECTOR_BYTES / sizeof(double)) /* lanes of one vector */

enum { SUM_A, DEVIATION_A, SQUARES_A, SUM_B, DEVIATION_B, SQUARES_B, SUM, SUM_ABS, SQUARES, ADDED };
enum { MIN_A, MIN_B, LEAST };                 /* of which the least is kept, */
enum { MAX_A, MAX_B, FURTHEST, MOST };        /* and the most */
enum { UNEQUAL, MISMATCHED, ABOVE, COUNTED }; /* -1 for each; above: bits of those */

struct state {
    ts_vf64 added[ADDED][TS_VECTORS], least[LEAST][TS_VECTORS], most[MOST][TS_VECTORS];
    ts_vi64 counted[COUNTED][TS_VECTORS];
};

TS_KERNEL_INLINE ts_vf64 load(const double *from)
{
    ts_vf64 v;
    memcpy(&v, from, sizeof v);
    return v;
}

TS_KERNEL_INLINE ts_vf64 absolute(ts_vf64 v)
{
    return (ts_vf64)((ts_vi64)v & INT64_MAX);
}

/* Vector k of each group of eight, so that the accumulators are registers at every width. */
TS_KERNEL_INLINE void add_groups(const double *a, const double *b, size_t groups, size_t k,
                                 struct ts_delta_f64_limits limits, struct state *state)
{
    const ts_vf64 zero = {0}, origin_a = zero + a[0], origin_b = zero + b[0];
    ts_vf64 added[ADDED] = {{0}}, least[LEAST] = {origin_a, origin_b}, most[MOST] = {origin_a, origin_b};
    ts_vi64 counted[COUNTED] = {{0}};
    for (size_t i = k * WIDTH; i < groups * LANES; i += LANES) {
        const ts_vf64 x = load(a + i), y = load(b + i), d = y - x, distance = absolute(d), size = absolute(x);
        const ts_vf64 from_a = x - origin_a, from_b = y - origin_b;
        added[SUM_A] += from_a;
        added[DEVIATION_A] += from_a * from_a;
        added[SQUARES_A] += x * x;
        added[SUM_B] += from_b;
        added[DEVIATION_B] += from_b * from_b;
        added[SQUARES_B] += y * y;
        added[SUM] += d;
        added[SUM_ABS] += distance;
        added[SQUARES] += d * d;
        least[MIN_A] = ts_vf64_min(x, least[MIN_A]);
        least[MIN_B] = ts_vf64_min(y, least[MIN_B]);
        most[MAX_A] = ts_vf64_max(x, most[MAX_A]);
        most[MAX_B] = ts_vf64_max(y, most[MAX_B]);
        most[FURTHEST] = ts_vf64_max(distance, most[FURTHEST]);
        counted[UNEQUAL] += (ts_vi64)(x != y);
        counted[MISMATCHED] += (ts_vi64)(distance > size * limits.rtol + limits.atol);
        counted[ABOVE] |= (ts_vi64)(distance > size * limits.ratio) & (ts_vi64)(size > zero);
    }
    for (int i = 0; i < ADDED; i++)
        state->added[i][k] = added[i];
    for (int i = 0; i < LEAST; i++)
        state->least[i][k] = least[i];
    for (int i = 0; i < MOST; i++)
        state->most[i][k] = most[i];
    for (int i = 0; i < COUNTED; i++)
        state->counted[i][k] = counted[i];
}

/* What remains of less than a group goes through the first lane of a group of its own. */
struct totals {
    double added[ADDED], least[LEAST], most[MOST];
    int64_t counted[COUNTED];
};

static void join(const struct state *state, struct totals *totals)
{
    double lane[LANES];
    int64_t count[LANES];
    for (int i = 0; i < ADDED; i++) {
        memcpy(lane, state->added[i], sizeof lane);
        totals->added[i] = ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
    }
    for (int i = 0; i < LEAST; i++) {
        memcpy(lane, state->least[i], sizeof lane);
        totals->least[i] = lane[0];
        for (size_t k = 1; k < LANES; k++)
            totals->least[i] = lane[k] < totals->least[i] ? lane[k] : totals->least[i];
    }
    for (int i = 0; i < MOST; i++) {
        memcpy(lane, state->most[i], sizeof lane);
        totals->most[i] = lane[0];
        for (size_t k = 1; k < LANES; k++)
            totals->most[i] = lane[k] > totals->most[i] ? lane[k] : totals->most[i];
    }
    for (int i = 0; i < COUNTED; i++) {
        memcpy(count, state->counted[i], sizeof count);
        totals->counted[i] = 0;
        for (size_t k = 0; k < LANES; k++)
            totals->counted[i] += count[k];
    }
}

static struct ts_moments moments_of(size_t count, double origin, const double *added)
{
    const double n = (double)count, sum = added[SUM_A], deviation = added[DEVIATION_A] - sum * (sum / n);
    return (struct ts_moments){.count = count,
                               .mean = origin + sum / n,
                               .deviation = deviation > 0 ? deviation : 0,
                               .squares = added[SQUARES_A]};
}

static double steepest(const double *a, const double *b, size_t count, double ratio)
{
    double found = 0;
    for (size_t i = 0; i < count; i++) {
        const double distance = fabs(b[i] - a[i]), size = fabs(a[i]);
        if (size > 0 && distance > ratio * size && distance > found * size)
            found = distance / size;
    }
    return found;
}

static void measure(const double *a, const double *b, size_t count, struct ts_delta_f64_limits limits,
                    struct ts_delta_sums *sums)
{
    const size_t whole = count / LANES * LANES;
    struct state state;
    struct totals totals;
    for (size_t k = 0; k < TS_VECTORS; k++)
        add_groups(a, b, whole / LANES, k, limits, &state);
    join(&state, &totals);
    for (size_t i = whole; i < count; i++) {
        const double x = a[i], y = b[i], d = y - x, distance = fabs(d), size = fabs(x);
        totals.added[SUM_A] += x - a[0];
        totals.added[DEVIATION_A] += (x - a[0]) * (x - a[0]);
        totals.added[SQUARES_A] += x * x;
        totals.added[SUM_B] += y - b[0];
        totals.added[DEVIATION_B] += (y - b[0]) * (y - b[0]);
        totals.added[SQUARES_B] += y * y;
        totals.added[SUM] += d;
        totals.added[SUM_ABS] += distance;
        totals.added[SQUARES] += d * d;
        totals.least[MIN_A] = x < totals.least[MIN_A] ? x : totals.least[MIN_A];
        totals.least[MIN_B] = y < totals.least[MIN_B] ? y : totals.least[MIN_B];
        totals.most[MAX_A] = x > totals.most[MAX_A] ? x : totals.most[MAX_A];
        totals.most[MAX_B] = y > totals.most[MAX_B] ? y : totals.most[MAX_B];
        totals.most[FURTHEST] = distance > totals.most[FURTHEST] ? distance : totals.most[FURTHEST];
        totals.counted[UNEQUAL] -= x != y;
        totals.counted[MISMATCHED] -= distance > size * limits.rtol + limits.atol;
        totals.counted[ABOVE] |= size > 0 && distance > size * limits.ratio;
    }
    *sums = (struct ts_delta_sums){.a = moments_of(count, a[0], totals.added),
                                   .b = moments_of(count, b[0], totals.added + SUM_B),
                                   .sum = totals.added[SUM],
                                   .sum_abs = totals.added[SUM_ABS],
                                   .squares = totals.added[SQUARES],
                                   .min_a = totals.least[MIN_A] + 0.0, /* no negative zero */
                                   .max_a = totals.most[MAX_A] + 0.0,
                                   .min_b = totals.least[MIN_B] + 0.0,
                                   .max_b = totals.most[MAX_B] + 0.0,
                                   .max_abs = totals.most[FURTHEST],
                                   .unequal = (uint64_t)-totals.counted[UNEQUAL],
                                   .mismatched = (uint64_t)-totals.counted[MISMATCHED]};
    sums->clean = isfinite(sums->a.squares) && isfinite(sums->b.squares) && isfinite(sums->squares) &&
                  isfinite(sums->a.deviation) && isfinite(sums->b.deviation);
    if (sums->clean && totals.counted[ABOVE])
        sums->max_rel = steepest(a, b, count, limits.ratio);
}

const struct ts_delta_f64_kernels TS_AT_LEVEL(ts_delta_f64_kernels) = {.measure = measure};
