/* Owns the close look at one tensor or pair: profiles of the error along each axis, histograms, quantiles. One walk
 * over the elements, of giants over stretches spread evenly. */
#include "serve/detail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "serve/server.h"

#define LOOK_MOST ((uint64_t)1 << 23) /* elements */
#define STRETCH   8192

struct walk {
    struct ts_focus *subject;
    struct ts_detail *detail;
    double *sides[2];
    double *errors; /* for the quantiles */
    size_t error_count;
    uint64_t error_step, seen;
};

static unsigned bin_of(uint64_t at, uint64_t size)
{
    if (size <= TS_PROFILE_BINS)
        return (unsigned)at;
    return (unsigned)((__uint128_t)at * TS_PROFILE_BINS / size);
}

static void count_value(uint64_t *bins, const double range[2], double value)
{
    double place;
    if (!isfinite(value) || !(range[1] >= range[0]))
        return;
    place = range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) * TS_HISTOGRAM_BINS : 0;
    bins[place <= 0 ? 0 : place >= TS_HISTOGRAM_BINS ? TS_HISTOGRAM_BINS - 1 : (int)place]++;
}

/* Part of a row: elements side by side along the last axis, the others at one place. */
static void take_row(struct walk *walk, const uint64_t *at, size_t count, size_t offset)
{
    const struct ts_focus *subject = walk->subject;
    struct ts_detail *detail = walk->detail;
    bool both = subject->has[0] && subject->has[1];
    const double *a = walk->sides[subject->has[0] ? 0 : 1] + offset, *b = walk->sides[1] + offset;
    unsigned rank = subject->rank;
    double sum = 0, most = 0;
    uint64_t measured = 0;
    for (size_t i = 0; i < count; i++) {
        double value = both ? (a[i] == b[i] ? 0 : b[i] - a[i]) : a[i], size = fabs(value);
        count_value(detail->counts[subject->has[0] ? 0 : 1], detail->range, a[i]);
        if (both) {
            count_value(detail->counts[1], detail->range, b[i]);
            count_value(detail->counts[2], detail->difference_range, value);
        }
        if (!isfinite(value))
            continue;
        sum += value * value;
        most = size > most ? size : most;
        measured++;
        if (rank) {
            struct ts_axis_profile *profile = &detail->profiles[rank - 1];
            unsigned bin = bin_of(at[rank - 1] + i, subject->shape[rank - 1]);
            profile->sum[bin] += value * value;
            profile->count[bin]++;
            profile->max[bin] = size > profile->max[bin] ? size : profile->max[bin];
        }
        if (walk->seen++ % walk->error_step == 0 && walk->error_count < TS_DETAIL_SAMPLE)
            walk->errors[walk->error_count++] = size;
    }
    for (unsigned axis = 0; axis + 1 < rank; axis++) {
        struct ts_axis_profile *profile = &detail->profiles[axis];
        unsigned bin = bin_of(at[axis], subject->shape[axis]);
        profile->sum[bin] += sum;
        profile->count[bin] += measured;
        profile->max[bin] = most > profile->max[bin] ? most : profile->max[bin];
    }
}

static void take_stretch(struct walk *walk, uint64_t first, size_t count)
{
    const struct ts_focus *subject = walk->subject;
    uint64_t at[TS_MAX_RANK] = {0}, rest = first, row = subject->rank ? subject->shape[subject->rank - 1] : 1;
    for (unsigned i = subject->rank; i-- > 0;) {
        at[i] = rest % subject->shape[i];
        rest /= subject->shape[i];
    }
    for (size_t done = 0; done < count;) {
        uint64_t left = subject->rank ? row - at[subject->rank - 1] : 1;
        size_t here = count - done < left ? count - done : (size_t)left;
        take_row(walk, at, here, done);
        done += here;
        for (unsigned i = subject->rank; i-- > 0;) { /* the next row begins */
            if (i == subject->rank - 1)
                at[i] += here;
            else
                at[i]++;
            if (at[i] < subject->shape[i])
                break;
            at[i] = 0;
        }
    }
}

static enum ts_status read_stretch(struct walk *walk, uint64_t first, size_t count, struct ts_error *error)
{
    struct ts_focus *subject = walk->subject;
    for (unsigned side = 0; side < 2; side++) {
        if (!subject->has[side])
            continue;
        TS_TRY(ts_view_read_f64(&subject->views[side], first, count, walk->sides[side], error));
        for (size_t i = 0; subject->components == 2 && i < count; i++)
            walk->sides[side][i] = hypot(walk->sides[side][2 * i], walk->sides[side][2 * i + 1]);
    }
    ts_opened_touch(subject->opened, 2, count * 16);
    return TS_OK;
}

/* The range of a tensor that nobody measured yet. */
static void widen(struct walk *walk, size_t count)
{
    double *range = walk->detail->range;
    const double *values = walk->sides[walk->subject->has[0] ? 0 : 1];
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) {
            range[0] = values[i] < range[0] || isnan(range[0]) ? values[i] : range[0];
            range[1] = values[i] > range[1] || isnan(range[1]) ? values[i] : range[1];
        }
}

static enum ts_status walk_all(struct ts_call *call, struct walk *walk, bool measure, struct ts_error *error)
{
    uint64_t total = walk->subject->count, stretches = (total + STRETCH - 1) / STRETCH, most = LOOK_MOST / STRETCH;
    uint64_t looked = stretches < most ? stretches : most;
    walk->detail->looked = 0;
    walk->detail->sampled = looked < stretches;
    walk->error_step = looked * STRETCH / TS_DETAIL_SAMPLE + 1;
    for (uint64_t i = 0; i < looked; i++) {
        uint64_t first = (uint64_t)((__uint128_t)stretches * i / looked) * STRETCH;
        size_t count = (size_t)(total - first < STRETCH ? total - first : STRETCH);
        TS_TRY(read_stretch(walk, first, count, error));
        if (atomic_load(&call->server->stopping))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "the server stops");
        if (measure)
            widen(walk, count);
        else
            take_stretch(walk, first, count);
        walk->detail->looked += count;
    }
    return TS_OK;
}

static void find_quantiles(struct walk *walk)
{
    static const double places[TS_DELTA_QUANTILES] = {0.5, 0.9, 0.99, 0.999, 1};
    struct ts_detail *detail = walk->detail;
    const struct ts_delta *delta = walk->subject->delta;
    detail->has_quantiles = walk->error_count > 0 && walk->subject->has[0] && walk->subject->has[1];
    if (!detail->has_quantiles)
        return;
    qsort(walk->errors, walk->error_count, sizeof *walk->errors, ts_by_value);
    for (unsigned i = 0; i < TS_DELTA_QUANTILES; i++)
        detail->quantiles[i] = walk->errors[(size_t)(places[i] * (double)(walk->error_count - 1))];
    if (delta && walk->subject->components == 1)
        detail->quantiles[TS_DELTA_QUANTILES - 1] = delta->max_abs;
}

/* The worst element may lie between the stretches. */
static void add_worst(const struct ts_focus *subject, struct ts_detail *detail)
{
    uint64_t rest;
    if (!subject->delta || !subject->has[0] || !subject->has[1] || subject->delta->worst >= subject->count)
        return;
    rest = subject->delta->worst;
    for (unsigned i = subject->rank; i-- > 0;) {
        unsigned bin = bin_of(rest % subject->shape[i], subject->shape[i]);
        if (subject->delta->max_abs > detail->profiles[i].max[bin])
            detail->profiles[i].max[bin] = subject->delta->max_abs;
        rest /= subject->shape[i];
    }
}

static double lower(double a, double b)
{
    return isnan(a) || b < a ? b : a;
}

static double higher(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

enum ts_status ts_detail_make(struct ts_call *call, struct ts_focus *subject, struct ts_detail *detail,
                              struct ts_error *error)
{
    struct walk walk = {.subject = subject, .detail = detail, .error_step = 1};
    const struct ts_delta *delta = subject->delta;
    bool both = subject->has[0] && subject->has[1];
    enum ts_status status = TS_OK;
    *detail = (struct ts_detail){.range = {(double)NAN, (double)NAN}};
    detail->profiles = calloc(subject->rank + 1, sizeof *detail->profiles);
    for (unsigned side = 0; side < 2; side++)
        walk.sides[side] = malloc(2 * STRETCH * sizeof(double));
    walk.errors = malloc(TS_DETAIL_SAMPLE * sizeof(double));
    if (!detail->profiles || !walk.sides[0] || !walk.sides[1] || !walk.errors)
        status = ts_fail_memory(error);
    if (delta && both && delta->compared) {
        detail->range[0] = lower(delta->a.min, delta->b.min);
        detail->range[1] = higher(delta->a.max, delta->b.max);
        detail->difference_range[0] = -delta->max_abs;
        detail->difference_range[1] = delta->max_abs;
    } else if (status == TS_OK) {
        status = walk_all(call, &walk, true, error);
    }
    if (status == TS_OK)
        status = walk_all(call, &walk, false, error);
    if (status == TS_OK) {
        find_quantiles(&walk);
        add_worst(subject, detail);
    }
    free(walk.sides[0]);
    free(walk.sides[1]);
    free(walk.errors);
    return status;
}

void ts_detail_release(struct ts_detail *detail)
{
    free(detail->profiles);
}
