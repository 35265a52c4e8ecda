/* Owns the second look at one pair: where along each axis its error lies, and how large it usually is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/delta.h"

/* Elements looked at; of larger pairs every n-th row. */
#define MOST   ((uint64_t)1 << 20)
#define SAMPLE 8192 /* for the quantiles */
#define RUN    4096

#define BEHIND ((uint64_t)4 << 20) /* elements whose pages may stay resident behind the walk */

struct look {
    const struct ts_pair *pair;
    struct ts_profile *profiles;
    double *sample;
    size_t sample_count;
    uint64_t sample_step; /* every so many elements one goes into the sample */
};

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static bool make_profiles(struct look *look, struct ts_arena *arena)
{
    const struct ts_view *view = &look->pair->a;
    look->profiles = ts_arena_array(arena, view->rank + 1, sizeof *look->profiles);
    for (unsigned i = 0; look->profiles && i < view->rank; i++) {
        struct ts_profile *profile = &look->profiles[i];
        profile->size = view->shape[i];
        /* an axis of millions is no axis a person looks along */
        if (profile->size > (uint64_t)1 << 22)
            continue;
        profile->error = ts_arena_array(arena, (size_t)profile->size, sizeof *profile->error);
        profile->reference = ts_arena_array(arena, (size_t)profile->size, sizeof *profile->reference);
        if (!profile->error || !profile->reference)
            return false;
    }
    return look->profiles != NULL;
}

/* Elements [first, first + count) of one row (the last axis); at[] are the coordinates of the first. */
static enum ts_status add_run(struct look *look, uint64_t first, size_t count, const uint64_t *at,
                              struct ts_error *error)
{
    const struct ts_view *view = &look->pair->a;
    double x[RUN], y[RUN], errors = 0, references = 0;
    struct ts_profile *last = view->rank ? &look->profiles[view->rank - 1] : NULL;
    TS_TRY(ts_view_read_f64(&look->pair->a, first, count, x, error));
    TS_TRY(ts_view_read_f64(&look->pair->b, first, count, y, error));
    for (size_t i = 0; i < count; i++) {
        double d = y[i] - x[i];
        if (!isfinite(d))
            continue;
        errors += d * d;
        references += x[i] * x[i];
        if (last && last->error) {
            last->error[at[view->rank - 1] + i] += d * d;
            last->reference[at[view->rank - 1] + i] += x[i] * x[i];
        }
        if ((first + i) % look->sample_step == 0 && look->sample_count < SAMPLE)
            look->sample[look->sample_count++] = fabs(d);
    }
    for (unsigned axis = 0; axis + 1 < view->rank; axis++)
        if (look->profiles[axis].error) {
            look->profiles[axis].error[at[axis]] += errors;
            look->profiles[axis].reference[at[axis]] += references;
        }
    return TS_OK;
}

static enum ts_status walk(struct look *look, struct ts_error *error)
{
    const struct ts_view *view = &look->pair->a;
    uint64_t width = view->rank ? view->shape[view->rank - 1] : 1, rows = width ? view->count / width : 0;
    uint64_t step = view->count / MOST + 1, at[TS_MAX_RANK], forgotten = 0;
    for (uint64_t row = 0; row < rows; row += step) {
        uint64_t rest = row;
        if ((row - forgotten) * width >= BEHIND) { /* also what lies between the rows: the system reads ahead */
            ts_view_forget(view, forgotten * width, (row - forgotten) * width);
            ts_view_forget(&look->pair->b, forgotten * width, (row - forgotten) * width);
            forgotten = row;
        }
        for (unsigned i = view->rank; i-- > 0;) {
            if (i + 1 == view->rank) {
                at[i] = 0;
                continue;
            }
            at[i] = rest % view->shape[i];
            rest /= view->shape[i];
        }
        for (uint64_t start = 0; start < width; start += RUN) {
            size_t now = width - start < RUN ? (size_t)(width - start) : RUN;
            if (view->rank)
                at[view->rank - 1] = start;
            TS_TRY(add_run(look, row * width + start, now, at, error));
        }
    }
    return TS_OK;
}

enum ts_status ts_delta_detail(const struct ts_pair *pair, struct ts_arena *arena, struct ts_delta *delta,
                               struct ts_error *error)
{
    static const double shares[TS_DELTA_QUANTILES] = {0.5, 0.9, 0.99, 0.999, 1};
    struct look look = {.pair = pair, .sample_step = pair->a.count / SAMPLE + 1};
    enum ts_status status;
    if (pair->problem || ts_type_info(pair->a.tensor->type)->components != 1)
        return TS_OK;
    look.sample = malloc(SAMPLE * sizeof *look.sample);
    if (!look.sample || !make_profiles(&look, arena)) {
        free(look.sample);
        return ts_fail_memory(error);
    }
    status = walk(&look, error);
    qsort(look.sample, look.sample_count, sizeof *look.sample, by_value);
    for (int i = 0; status == TS_OK && i < TS_DELTA_QUANTILES && look.sample_count; i++) {
        size_t place = (size_t)(shares[i] * (double)(look.sample_count - 1) + 0.5);
        delta->quantiles[i] = i + 1 == TS_DELTA_QUANTILES ? delta->max_abs : look.sample[place];
    }
    if (pair->a.count > MOST) {
        ts_view_forget(&pair->a, 0, pair->a.count);
        ts_view_forget(&pair->b, 0, pair->b.count);
    }
    delta->profiles = look.profiles;
    free(look.sample);
    if (status == TS_OK && ts_ranking_applies(pair))
        status = ts_ranking_measure(pair, &delta->ranking, error);
    return status;
}
