/* Owns the second look at one pair: where along each axis its error lies, how large it usually is, and the cosine of
 * tensors of very different size. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "compare/delta_close.h"
#include "compare/delta_walk.h"
#include "compare/pieces.h"
#include "tensor/view_box.h"
#include "tensor/view_far.h"

/* Elements looked at; of larger pairs every n-th row, unless the error is in others. */
#define MOST   ((uint64_t)1 << 20)
#define SAMPLE ((uint64_t)1 << 15) /* for the quantiles: of smaller pairs every element */
#define RUN    4096

/* The cosine of sums of squares has the rounding of the larger norm, this many times as large as the smaller one. */
#define FAR_SIZES 16.0

#define BEHIND ((uint64_t)4 << 20) /* elements whose pages may stay resident behind the walks of all threads */

struct look {
    const struct ts_pair *pair;
    struct ts_profile *profiles;
    struct ts_masks masks;
    struct ts_unit unit;
    unsigned per; /* numbers to an element: two of a complex one */
    double scale; /* a power of two that squares are taken at, 1 unless they would leave the range of a double */
    double max_ulp;
    double squares, fourths; /* of differences at that scale: the sums of runs, and the squares of these added up */
    uint64_t runs;
    uint64_t behind; /* elements whose pages may stay */
    double *sample;
    size_t sample_count;
    uint64_t sample_step; /* about every so many elements one goes into the sample */
    uint64_t until_next;  /* elements until then */
    uint64_t random;
};

/* Puts the number that sorting would put there at `place` of values[0 .. count), smaller ones before it and larger
 * behind. */
static void select_place(double *values, size_t count, size_t place)
{
    size_t low = 0, high = count - 1;
    while (low < high) {
        const double pivot = values[low + (high - low) / 2];
        size_t left = low, right = high;
        for (;;) {
            double kept;
            while (values[left] < pivot)
                left++;
            while (values[right] > pivot)
                right--;
            if (left >= right)
                break;
            kept = values[left];
            values[left++] = values[right];
            values[right--] = kept;
        }
        if (place <= right)
            high = right;
        else
            low = right + 1;
    }
}

/* The quantile between values[place] and the next larger, as if sorted; the numbers from `end` on are larger. */
static double quantile_at(double *values, size_t end, double place)
{
    const size_t below = (size_t)place;
    double above;
    select_place(values, end, below);
    if (below + 1 >= end)
        return values[below];
    above = values[below + 1];
    for (size_t i = below + 2; i < end; i++)
        above = values[i] < above ? values[i] : above;
    return values[below] + (place - (double)below) * (above - values[below]);
}

/* From the largest down, so that each looks only at what is below the one before. */
static void find_quantiles(double *values, size_t count, const double *shares, double *quantiles)
{
    size_t end = count;
    for (int i = TS_DELTA_QUANTILES - 1; i-- > 0 && count;) {
        const double place = shares[i] * (double)(count - 1);
        /* the next larger may be the first that the step before left out */
        quantiles[i] = quantile_at(values, end, place);
        end = (size_t)place + 2 < end ? (size_t)place + 2 : end;
    }
}

/* Steps of random length, the same in every run: a fixed one would meet the same columns in every row. */
static uint64_t next_step(struct look *look)
{
    look->random = look->random * 6364136223846793005u + 1442695040888963407u;
    return look->sample_step == 1 ? 1 : 1 + (look->random >> 33) % (2 * look->sample_step - 1);
}

static bool make_profiles(const struct ts_pair *pair, struct ts_arena *arena, struct ts_delta *delta)
{
    const struct ts_view *view = &pair->a;
    delta->profiles = ts_arena_array(arena, view->rank + 1, sizeof *delta->profiles);
    for (unsigned i = 0; delta->profiles && i < view->rank; i++) {
        struct ts_profile *profile = &delta->profiles[i];
        profile->size = view->shape[i];
        /* an axis of millions is no axis a person looks along */
        if (profile->size > (uint64_t)1 << 22)
            continue;
        profile->error = ts_arena_array(arena, (size_t)profile->size, sizeof *profile->error);
        profile->reference = ts_arena_array(arena, (size_t)profile->size, sizeof *profile->reference);
        if (!profile->error || !profile->reference)
            return false;
    }
    return delta->profiles != NULL;
}

/* As wide as every processor has them: wider ones would be taken apart. */
typedef double doubles __attribute__((vector_size(16), aligned(8), may_alias));
typedef int64_t truths __attribute__((vector_size(16), aligned(8), may_alias));
#define LANES (sizeof(doubles) / sizeof(double))

static bool any(truths found)
{
    int64_t some = 0;
    for (size_t i = 0; i < LANES; i++)
        some |= found[i];
    return some != 0;
}

#define EXPONENT INT64_C(0x7ff0000000000000) /* of a double: what is left is the power of two below it */

/* Whether all differences are numbers and no element may be masked, and whether some pair may be further apart, in
 * units, than any before: a unit is the power of two below the larger number over two to the bits of the type, or more.
 */
static bool is_ordinary(const struct look *look, const double *x, const double *y, const double *d, size_t count,
                        bool *further)
{
    const double units = look->unit.most_units / 2, most = look->max_ulp;
    truths odd = {0}, far = {0};
    bool fine = true;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const doubles of_x = *(const doubles *)(x + i), of_y = *(const doubles *)(y + i);
        const doubles of_d = *(const doubles *)(d + i);
        const doubles left = (doubles)((truths)of_x & EXPONENT), right = (doubles)((truths)of_y & EXPONENT);
        const doubles distance = units * (doubles)((truths)of_d & INT64_MAX);
        odd |= (truths)(of_d - of_d != 0) | ((truths)(of_x < TS_MASKS_BELOW) & (truths)(of_y < TS_MASKS_BELOW));
        far |= (truths)(distance > most * left) & (truths)(distance > most * right);
    }
    *further = any(far);
    for (; i < count; i++) {
        fine = fine && isfinite(d[i]) && !(x[i] < TS_MASKS_BELOW && y[i] < TS_MASKS_BELOW);
        *further = *further || 2 * units * fabs(d[i]) > most * fmax(fabs(x[i]), fabs(y[i]));
    }
    return fine && !any(odd);
}

/* The squares of one row's numbers, added to what is kept of each place and returned as a sum. */
static double add_squares(const double *numbers, double scale, size_t count, double *places)
{
    doubles sums[4] = {{0}};
    double sum = 0;
    size_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES)
        for (size_t k = 0; k < 4; k++) {
            const doubles scaled = *(const doubles *)(numbers + i + k * LANES) * scale, squares = scaled * scaled;
            sums[k] += squares;
            if (places)
                *(doubles *)(places + i + k * LANES) += squares;
        }
    for (size_t k = 0; k < 4 * LANES; k++)
        sum += sums[k / LANES][k % LANES];
    for (; i < count; i++) {
        const double scaled = numbers[i] * scale;
        sum += scaled * scaled;
        if (places)
            places[i] += scaled * scaled;
    }
    return sum;
}

static void sample_one(struct look *look, double difference)
{
    if (look->sample_count < SAMPLE)
        look->sample[look->sample_count++] = fabs(difference);
}

static void add_ordinary(struct look *look, const double *x, const double *differences, size_t count, double *error,
                         double *reference, double *errors, double *references)
{
    *errors = add_squares(differences, look->scale, count, error);
    *references = add_squares(x, look->scale, count, reference);
    while (look->until_next <= count) {
        const size_t at = (size_t)look->until_next - 1;
        sample_one(look, differences[at]);
        look->until_next += next_step(look);
    }
    look->until_next -= count;
}

/* The same one by one, where some are to be left out. */
static void add_others(struct look *look, const double *x, const double *y, const double *differences, size_t count,
                       double *error, double *reference, double *errors, double *references)
{
    for (size_t i = 0; i < count; i++) {
        const double d = differences[i], scaled = d * look->scale, size = x[i] * look->scale;
        if (!isfinite(d) || (!look->unit.whole && ts_is_masked(&look->masks, x[i], y[i])))
            continue;
        *errors += scaled * scaled;
        *references += size * size;
        if (error) {
            error[i / look->per] += scaled * scaled;
            reference[i / look->per] += size * size;
        }
        ts_raise_ulps(&look->unit, x[i], y[i], &look->max_ulp);
        if (--look->until_next == 0) {
            look->until_next = next_step(look);
            sample_one(look, d);
        }
    }
}

/* count numbers of one row (the last axis) and their differences; at[] are the coordinates of the first. */
static void add_run(struct look *look, const double *x, const double *y, const double *differences, size_t count,
                    const uint64_t *at)
{
    const struct ts_view *view = &look->pair->a;
    const struct ts_profile *last = view->rank ? &look->profiles[view->rank - 1] : NULL;
    const bool kept = last && last->error;
    double *error = kept ? last->error + at[view->rank - 1] : NULL;
    double *reference = kept ? last->reference + at[view->rank - 1] : NULL;
    double errors = 0, references = 0;
    bool further;
    if (look->per > 1 || !is_ordinary(look, x, y, differences, count, &further)) {
        add_others(look, x, y, differences, count, error, reference, &errors, &references);
    } else {
        add_ordinary(look, x, differences, count, error, reference, &errors, &references);
        for (size_t i = 0; further && i < count; i++)
            ts_raise_ulps(&look->unit, x[i], y[i], &look->max_ulp);
    }
    look->squares += errors;
    look->fourths += errors * errors;
    look->runs++;
    for (unsigned axis = 0; axis + 1 < view->rank; axis++)
        if (look->profiles[axis].error) {
            look->profiles[axis].error[at[axis]] += errors;
            look->profiles[axis].reference[at[axis]] += references;
        }
}

static void place_of(const struct ts_view *view, uint64_t row, uint64_t *at)
{
    for (unsigned i = view->rank; i-- > 0;) {
        at[i] = i + 1 == view->rank ? 0 : row % view->shape[i];
        row /= i + 1 == view->rank ? 1 : view->shape[i];
    }
}

/* The same rows where they are stored far from each other: read together, and then looked at. */
static enum ts_status walk_far(struct look *look, uint64_t step, struct ts_error *error)
{
    const struct ts_view *view = &look->pair->a;
    const uint64_t width = view->shape[view->rank - 1], rows = view->count / width;
    const size_t most = (size_t)(MOST / width + 1), numbers = (size_t)width * look->per;
    uint64_t *taken = malloc(most * sizeof *taken), at[TS_MAX_RANK];
    double *x = malloc(most * numbers * sizeof *x), *y = malloc(most * numbers * sizeof *y), d[RUN];
    enum ts_status status = taken && x && y ? TS_OK : ts_fail_memory(error);
    for (uint64_t row = 0; row < rows && status == TS_OK;) {
        size_t count = 0;
        for (; row < rows && count < most; row += step)
            taken[count++] = row;
        status = ts_view_read_rows_f64(view, taken, count, x, error);
        if (status == TS_OK)
            status = ts_view_read_rows_f64(&look->pair->b, taken, count, y, error);
        for (size_t i = 0; i < count && status == TS_OK; i++) {
            place_of(view, taken[i], at);
            for (size_t start = 0; start < numbers; start += RUN) { /* sums as of other pairs */
                const size_t now = numbers - start < RUN ? numbers - start : RUN;
                const double *of_a = x + i * numbers + start, *of_b = y + i * numbers + start;
                for (size_t k = 0; k < now; k++)
                    d[k] = of_b[k] - of_a[k];
                at[view->rank - 1] = start / look->per;
                add_run(look, of_a, of_b, d, now, at);
            }
        }
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
            status = ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    }
    free(taken);
    free(x);
    free(y);
    return status;
}

static bool is_far(const struct ts_pair *pair)
{
    return pair->a.rank > 1 && pair->a.shape[pair->a.rank - 1] <= MOST &&
           (ts_view_is_far(&pair->a) || ts_view_is_far(&pair->b));
}

/* A step that shares no factor with an axis but the last, so that it meets every index of each. */
static uint64_t row_step(const struct ts_view *view, uint64_t step)
{
    for (unsigned axis = 0; step > 1 && axis + 1 < view->rank;) {
        uint64_t a = step, b = view->shape[axis];
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a > 1) {
            step++;
            axis = 0;
        } else {
            axis++;
        }
    }
    return step;
}

static enum ts_status walk(struct look *look, uint64_t step, struct ts_error *error)
{
    const struct ts_view *view = &look->pair->a;
    uint64_t width = view->rank ? view->shape[view->rank - 1] : 1, rows = width ? view->count / width : 0;
    uint64_t at[TS_MAX_RANK], forgotten = 0;
    const size_t run = RUN / look->per;
    double x[RUN], y[RUN], d[RUN];
    if (is_far(look->pair))
        return walk_far(look, step, error);
    for (uint64_t row = 0; row < rows; row += step) {
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        if ((row - forgotten) * width >= look->behind) { /* also what lies between the rows: the system reads ahead */
            ts_view_forget(view, forgotten * width, (row - forgotten) * width);
            ts_view_forget(&look->pair->b, forgotten * width, (row - forgotten) * width);
            forgotten = row;
        }
        place_of(view, row, at);
        for (uint64_t start = 0; start < width; start += run) {
            size_t now = width - start < run ? (size_t)(width - start) : run;
            if (view->rank)
                at[view->rank - 1] = start;
            TS_TRY(ts_delta_read(look->pair, row * width + start, now, x, y, d, error));
            add_run(look, x, y, d, now * look->per, at);
        }
    }
    return TS_OK;
}

/* What numbers are divided by, so that neither their squares nor the sums of them leave the range of a double. */
static double largest_of(const struct ts_side *side)
{
    return fmax(fabs(side->min), fabs(side->max));
}

/* Profiles compare squares with each other: at any scale, as long as all have the same. */
static double scale_of(const struct ts_delta *delta)
{
    const double largest = delta->compared ? fmax(largest_of(&delta->a), delta->max_abs) : 0;
    if (!isfinite(largest) || largest == 0)
        return 1;
    return largest > 0x1p480 ? 0x1p-500 : largest < 0x1p-480 ? 0x1p500 : 1;
}

/* Looks at every step-th row, from the start. */
static enum ts_status look_at_rows(struct look *look, uint64_t step, struct ts_error *error)
{
    const struct ts_view *view = &look->pair->a;
    for (unsigned i = 0; i < view->rank; i++)
        if (look->profiles[i].error) {
            memset(look->profiles[i].error, 0, (size_t)look->profiles[i].size * sizeof *look->profiles[i].error);
            memset(look->profiles[i].reference, 0,
                   (size_t)look->profiles[i].size * sizeof *look->profiles[i].reference);
        }
    look->squares = look->fourths = 0;
    look->runs = 0;
    look->sample_count = 0;
    look->sample_step = (view->count / step * look->per + SAMPLE - 1) / SAMPLE;
    look->sample_step = look->sample_step ? look->sample_step : 1;
    look->until_next = 1;
    return walk(look, step, error);
}

/* Some rows tell where an error lies that most of them share. They miss the one row that has all of it, or take it for
 * many: then they do not add up to all there is, or few of them have what they have. */
static bool tells(const struct look *look, const struct ts_delta *delta, uint64_t step)
{
    const uint64_t width = look->pair->a.shape[look->pair->a.rank - 1], rows = look->pair->a.count / width;
    const uint64_t taken = (rows + step - 1) / step;
    const double root = delta->rmse * look->scale, all = root * root * (double)delta->compared;
    const double told = look->squares / (double)taken * (double)rows;
    if (taken == rows)
        return true;
    return told <= 2 * all && all <= 2 * told &&
           look->squares * look->squares >= look->fourths * (double)look->runs / 4;
}

/* With profiles of zeros, made before. */
static enum ts_status look_at_pair(const struct ts_pair *pair, unsigned threads, struct ts_delta *delta,
                                   struct ts_error *error)
{
    static const double shares[TS_DELTA_QUANTILES] = {0.5, 0.9, 0.99, 0.999, 1};
    struct look look = {.pair = pair, .masks = ts_masks_of(pair), .unit = ts_unit_of(pair), .behind = BEHIND / threads};
    const uint64_t step = row_step(&pair->a, pair->a.count / MOST + 1);
    enum ts_status status;
    look.per = ts_type_info(pair->a.tensor->type)->components;
    look.profiles = delta->profiles;
    look.scale = scale_of(delta);
    look.max_ulp = delta->exact ? 0 : delta->max_ulp;
    look.sample = malloc((delta->count < SAMPLE ? delta->count + 1 : SAMPLE) * sizeof *look.sample);
    if (!look.sample)
        return ts_fail_memory(error);
    status = look_at_rows(&look, step, error);
    if (status == TS_OK && step > 1 && pair->a.rank && !tells(&look, delta, step))
        status = look_at_rows(&look, 1, error);
    if (status == TS_OK)
        find_quantiles(look.sample, look.sample_count, shares, delta->quantiles);
    delta->quantiles[TS_DELTA_QUANTILES - 1] = delta->max_abs;
    delta->looked_at = look.sample_count;
    delta->max_ulp = delta->exact ? delta->max_ulp : look.max_ulp;
    free(look.sample);
    if (status == TS_OK && ts_ranking_applies(pair))
        status = ts_ranking_measure(pair, &delta->ranking, error);
    return status;
}

struct details {
    struct ts_pieces cut; /* a pair is a piece */
    const struct ts_pair *pairs;
    const size_t *which;
    struct ts_delta *deltas;
    struct ts_progress *progress;
};

static void work(void *context, uint64_t index)
{
    struct details *details = context;
    const size_t i = details->which[index];
    const struct ts_pair *pair = &details->pairs[i];
    struct ts_error error;
    if (pair->problem || is_far(pair))
        return;
    if (look_at_pair(pair, details->cut.width, &details->deltas[i], &error) != TS_OK)
        ts_pieces_fail(&details->cut, &error, pair->name);
    ts_pieces_forget_pair(&details->cut, pair, 0, pair->a.count);
    ts_progress_add(details->progress, pair->a.count);
}

/* Those that are stored far apart take memory for their rows, so that one thread does them. */
static enum ts_status look_at_far(struct details *details, size_t count, struct ts_error *error)
{
    for (size_t k = 0; k < count; k++) {
        const struct ts_pair *pair = &details->pairs[details->which[k]];
        if (pair->problem || !is_far(pair))
            continue;
        if (look_at_pair(pair, 1, &details->deltas[details->which[k]], error) != TS_OK)
            return ts_error_tensor(error, pair->name);
        ts_pieces_forget_pair(&details->cut, pair, 0, pair->a.count);
        ts_progress_add(details->progress, pair->a.count);
    }
    return TS_OK;
}

enum ts_status ts_delta_detail(struct ts_pool *pool, const struct ts_pair *pairs, const size_t *which, size_t count,
                               struct ts_arena *arena, struct ts_delta *deltas, struct ts_progress *progress,
                               struct ts_error *error)
{
    struct details details = {.pairs = pairs, .deltas = deltas, .progress = progress};
    enum ts_status status = ts_pieces_init(&details.cut, pool) ? TS_OK : ts_fail_memory(error);
    for (size_t i = 0; i < count && status == TS_OK; i++)
        if (!pairs[which[i]].problem && !make_profiles(&pairs[which[i]], arena, &deltas[which[i]]))
            status = ts_fail_memory(error);
    for (size_t i = 0; i < count && status == TS_OK; i += TS_PIECES_BATCH) {
        const size_t now = count - i < TS_PIECES_BATCH ? count - i : TS_PIECES_BATCH;
        details.which = which + i;
        ts_pieces_begin(&details.cut);
        for (size_t k = 0; k < now; k++)
            ts_pieces_add(&details.cut, 1, 1);
        status = ts_pieces_run(&details.cut, pool, work, NULL, &details, error);
        if (status == TS_OK)
            status = look_at_far(&details, now, error);
    }
    ts_pieces_release(&details.cut);
    return status;
}

bool ts_delta_needs_cosine(const struct ts_delta *delta)
{
    const double size_a = largest_of(&delta->a), size_b = largest_of(&delta->b);
    return delta->compared && size_a > 0 && size_b > 0 && isfinite(size_a) && isfinite(size_b) &&
           !(delta->norm_ratio > 1 / FAR_SIZES && delta->norm_ratio < FAR_SIZES);
}

enum ts_status ts_delta_cosine(const struct ts_pair *pair, struct ts_delta *delta, struct ts_error *error)
{
    const unsigned components = ts_type_info(pair->a.tensor->type)->components;
    const double size_a = largest_of(&delta->a), size_b = largest_of(&delta->b);
    const struct ts_masks masks = ts_masks_of(pair);
    const bool whole = ts_unit_of(pair).whole;
    double x[RUN], y[RUN], aa = 0, bb = 0, ab = 0;
    uint64_t forgotten = 0;
    for (uint64_t start = 0; start < pair->a.count;) {
        const uint64_t left = pair->a.count - start;
        const size_t now = left < RUN / components ? (size_t)left : RUN / components;
        double run_aa = 0, run_bb = 0, run_ab = 0;
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        TS_TRY(ts_view_read_f64(&pair->a, start, now, x, error));
        TS_TRY(ts_view_read_f64(&pair->b, start, now, y, error));
        for (size_t i = 0; i < now * components; i++) {
            const double one = x[i] / size_a, other = y[i] / size_b;
            if (!isfinite(x[i]) || !isfinite(y[i]) || (!whole && ts_is_masked(&masks, x[i], y[i])))
                continue;
            run_aa += one * one;
            run_bb += other * other;
            run_ab += one * other;
        }
        aa += run_aa;
        bb += run_bb;
        ab += run_ab;
        start += now;
        if (start - forgotten >= BEHIND) {
            ts_view_forget(&pair->a, forgotten, start - forgotten);
            ts_view_forget(&pair->b, forgotten, start - forgotten);
            forgotten = start;
        }
    }
    if (aa > 0 && bb > 0)
        delta->cosine = fmax(-1, fmin(1, ab / (sqrt(aa) * sqrt(bb))));
    return TS_OK;
}
