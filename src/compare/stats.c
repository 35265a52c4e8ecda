/* Owns how tensors are cut into pieces and how pieces are joined; the inner loop is stats_kernel.c. */
#include "compare/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/pieces.h"
#include "compare/stats_kernel.h"

/* Elements per piece: some hundred microseconds of work, and a multiple of every block size. */
#define PIECE       ((uint64_t)1 << 20)
#define PIECE_BYTES ((uint64_t)4 << 20)
#define SMALL       ((uint64_t)1 << 18) /* elements of a tensor */

/* See add_sums. Sums in double are good to some 2^-50, so this keeps 2^-30 of the variance; sums of sixteen-bit numbers
 * go through f32 in between and are good to 2^-22. */
#define SPREAD_DOUBLE 0x1p-20
#define SPREAD_FLOAT  0x1p-3

/* Between these, squares of doubles and sums of 2^63 of them neither overflow nor vanish. */
#define MODERATE_LEAST 0x1p-450
#define MODERATE_MOST  0x1p450

/* Moments about the piece's own mean are joined by Chan's rule, which does not cancel. */
struct piece {
    struct ts_stats stats;  /* mean and std unused */
    double mean, deviation; /* sum of squared distances from mean */
    double squares;
};

struct job {
    struct ts_pieces cut;
    struct ts_tensor *const *tensors;
    const struct ts_tensor **views; /* what is walked: a tensor, or its collapsed copy */
    struct piece *pieces;
    struct ts_progress *progress;
    const struct ts_stats_kernels *kernels;
};

static void piece_init(struct piece *piece)
{
    *piece = (struct piece){.stats = {.first_nan = TS_NOWHERE,
                                      .first_inf = TS_NOWHERE,
                                      .at_min = TS_NOWHERE,
                                      .at_max = TS_NOWHERE,
                                      .min = INFINITY,
                                      .max = -INFINITY}};
}

/* Adds n finite numbers by their mean, squared distances from it, and squares. */
static void add_moments(struct piece *piece, uint64_t n, double mean, double deviation, double squares)
{
    double total = (double)piece->stats.finite, delta = mean - piece->mean;
    if (!n)
        return;
    piece->deviation += deviation + delta * delta * (total * (double)n / (total + (double)n));
    piece->mean += delta * ((double)n / (total + (double)n));
    piece->squares += squares;
    piece->stats.finite += n;
}

/* Element by element: any values. first is the flat index of values[0]; `per` numbers make one element. */
static void add_carefully(struct piece *piece, const double *values, size_t count, uint64_t first, unsigned per)
{
    double sum = 0, squares = 0, mean, deviation = 0, rest = 0, low = INFINITY, high = -INFINITY;
    uint64_t n = 0;
    struct ts_stats *stats = &piece->stats;
    for (size_t i = 0; i < count; i++) {
        double value = values[i];
        uint64_t at = first + i / per;
        if (isnan(value)) {
            if (!stats->nan++)
                stats->first_nan = at;
        } else if (isinf(value)) {
            if (stats->positive_inf + stats->negative_inf == 0)
                stats->first_inf = at;
            *(value > 0 ? &stats->positive_inf : &stats->negative_inf) += 1;
        } else {
            n++;
            sum += value;
            squares += value * value;
            stats->zeros += value == 0;
            low = value < low ? value : low;
            high = value > high ? value : high;
            if (value < stats->min) {
                stats->min = value + 0.0; /* no negative zero */
                stats->at_min = at;
            }
            if (value > stats->max) {
                stats->max = value + 0.0;
                stats->at_max = at;
            }
        }
    }
    mean = !n ? 0 : low == high ? low : sum / (double)n; /* constant is to be seen as exactly that */
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) {
            rest += values[i] - mean;
            deviation += (values[i] - mean) * (values[i] - mean);
        }
    if (rest != 0) { /* by how much rounding moved the mean */
        deviation -= rest * (rest / (double)n);
        mean += rest / (double)n;
    }
    add_moments(piece, n, mean, deviation > 0 ? deviation : 0, squares);
    stats->count += count;
}

/* A run from the fast kernel; false when it has to be walked element by element. at_min and at_max are only the start
 * of the run here; join finds the element. spread: the least share of the squares that the squared distances from the
 * mean may be, since they are what is left when two numbers near the squares are subtracted, and errors grow by as
 * much. */
static bool add_sums(struct piece *piece, const struct ts_stats_sums *sums, double spread, uint64_t first, size_t count)
{
    struct ts_stats *stats = &piece->stats;
    double mean = sums->sum / (double)count, deviation = sums->sum_squares - sums->sum * mean;
    if (!sums->clean)
        return false;
    if (sums->min == sums->max) { /* constant, and to be seen as exactly that */
        mean = sums->min;
        deviation = 0;
    } else if (!(deviation >= sums->sum_squares * spread)) {
        return false;
    }
    stats->count += count;
    stats->zeros += sums->zeros;
    add_moments(piece, count, mean, deviation, sums->sum_squares);
    if (sums->min < stats->min) {
        stats->min = sums->min + 0.0;
        stats->at_min = first;
    }
    if (sums->max > stats->max) {
        stats->max = sums->max + 0.0;
        stats->at_max = first;
    }
    return true;
}

/* From the start of the run that holds an extreme to its first element. */
static uint64_t find_value(const struct ts_tensor *view, uint64_t from, double value)
{
    double values[256];
    struct ts_error ignored;
    while (from < view->count) {
        size_t now = view->count - from < 256 ? (size_t)(view->count - from) : 256;
        if (ts_tensor_read_f64(view, from, now, values, &ignored) != TS_OK)
            return TS_NOWHERE;
        for (size_t i = 0; i < now; i++)
            if (values[i] == value)
                return from + i;
        from += now;
    }
    return TS_NOWHERE;
}

typedef void run_kernel(const uint8_t *src, size_t count, struct ts_stats_sums *sums);

static run_kernel *kernel_of(const struct job *job, const struct ts_tensor *view)
{
    if (view->swapped || view->type == TS_CODED)
        return NULL;
    switch (view->type) {
    case TS_F32:
        return job->kernels->f32;
    case TS_BF16:
        return job->kernels->bf16;
    case TS_F16:
        return job->kernels->f16;
    default:
        return NULL;
    }
}

static enum ts_status walk_careful(const struct ts_tensor *view, uint64_t first, uint64_t end, struct piece *piece,
                                   struct ts_error *error)
{
    const unsigned per = ts_type_info(view->type)->components;
    double values[2 * 1024];
    while (first < end) {
        size_t now = end - first < 1024 ? (size_t)(end - first) : 1024;
        TS_TRY(ts_tensor_read_f64(view, first, now, values, error));
        add_carefully(piece, values, now * per, first, per);
        first += now;
    }
    return TS_OK;
}

/* Plain bytes of a type that has a kernel. */
static enum ts_status walk_direct(const struct ts_tensor *view, run_kernel *kernel, uint64_t first, uint64_t end,
                                  struct piece *piece, struct ts_error *error)
{
    const uint8_t *bytes = ts_tensor_bytes(view);
    const unsigned size = ts_type_info(view->type)->block_bytes;
    const double spread = view->type == TS_F32 ? SPREAD_DOUBLE : SPREAD_FLOAT;
    while (first < end) {
        size_t now = end - first < TS_STATS_RUN ? (size_t)(end - first) : TS_STATS_RUN;
        struct ts_stats_sums sums;
        kernel(bytes + first * size, now, &sums);
        if (!add_sums(piece, &sums, spread, first, now))
            TS_TRY(walk_careful(view, first, first + now, piece, error));
        first += now;
    }
    return TS_OK;
}

/* Everything that decodes to f32 exactly enough: quantized blocks, small floats, strided f32. */
static enum ts_status walk_decoded(const struct job *job, const struct ts_tensor *view, uint64_t first, uint64_t end,
                                   struct piece *piece, struct ts_error *error)
{
    float values[TS_STATS_RUN];
    while (first < end) {
        size_t now = end - first < TS_STATS_RUN ? (size_t)(end - first) : TS_STATS_RUN;
        struct ts_stats_sums sums;
        TS_TRY(ts_tensor_read_f32(view, first, now, values, error));
        job->kernels->f32((const uint8_t *)values, now, &sums);
        if (!add_sums(piece, &sums, SPREAD_DOUBLE, first, now))
            TS_TRY(walk_careful(view, first, first + now, piece, error));
        first += now;
    }
    return TS_OK;
}

static enum ts_status walk_integers(const struct ts_tensor *view, uint64_t first, uint64_t end, struct piece *piece,
                                    struct ts_error *error)
{
    struct ts_stats *stats = &piece->stats;
    const bool is_unsigned = view->type == TS_U64;
    int64_t whole[1024];
    double values[1024];
    bool some = false;
    while (first < end) {
        size_t now = end - first < 1024 ? (size_t)(end - first) : 1024;
        TS_TRY(ts_tensor_read_i64(view, first, now, whole, error));
        for (size_t i = 0; i < now; i++) {
            values[i] = is_unsigned ? (double)(uint64_t)whole[i] : (double)whole[i];
            if (!some || (is_unsigned ? (uint64_t)whole[i] < (uint64_t)stats->exact_min : whole[i] < stats->exact_min))
                stats->exact_min = whole[i];
            if (!some || (is_unsigned ? (uint64_t)whole[i] > (uint64_t)stats->exact_max : whole[i] > stats->exact_max))
                stats->exact_max = whole[i];
            some = true;
        }
        add_carefully(piece, values, now, first, 1);
        first += now;
    }
    return TS_OK;
}

static bool decodes_to_f32(const struct ts_tensor *view)
{
    const struct ts_type_info *info = ts_type_info(view->type);
    return info->components == 1 && (info->kind == TS_CLASS_QUANT ||
                                     (info->kind == TS_CLASS_FLOAT && view->type != TS_F64 && view->type != TS_F80));
}

/* A piece, and the elements of which view it is. */
static const struct ts_tensor *elements_of_piece(const struct job *job, uint64_t index, uint64_t *first, uint64_t *end)
{
    const size_t item = ts_pieces_item(&job->cut, index, first);
    const struct ts_tensor *view = job->views[item];
    const uint64_t size = job->cut.sizes[item];
    *end = view->count - *first < size ? view->count : *first + size;
    return view;
}

static void forget_elements(void *context, size_t item, uint64_t first, uint64_t end)
{
    struct job *job = context;
    const struct ts_tensor *view = job->views[item];
    const struct ts_type_info *info = ts_type_info(view->type);
    end = end < view->count ? end : view->count;
    if (view->count < SMALL) { /* not worth a system call each */
        if (ts_pieces_enough(&job->cut, view->bytes))
            ts_source_forget(view->source, 0, view->source->size);
    } else if (ts_tensor_is_contiguous(view)) {
        ts_source_forget(view->source, view->offset + first / info->block_elements * info->block_bytes,
                         (end - first) / info->block_elements * info->block_bytes);
    }
}

static void work(void *context, uint64_t index)
{
    struct job *job = context;
    uint64_t first, end;
    const struct ts_tensor *view = elements_of_piece(job, index, &first, &end);
    struct piece *piece = &job->pieces[index];
    struct ts_error error;
    enum ts_status status;
    run_kernel *kernel = kernel_of(job, view);
    piece_init(piece);
    if (kernel && ts_tensor_is_contiguous(view))
        status = walk_direct(view, kernel, first, end, piece, &error);
    else if (decodes_to_f32(view))
        status = walk_decoded(job, view, first, end, piece, &error);
    else if (ts_type_is_integer(view->type))
        status = walk_integers(view, first, end, piece, &error);
    else
        status = walk_careful(view, first, end, piece, &error);
    ts_progress_add(job->progress,
                    view->count ? (uint64_t)((double)view->bytes * (double)(end - first) / (double)view->count) : 0);
    if (status != TS_OK)
        ts_pieces_fail(&job->cut, &error, view->name);
}

/* A view that repeats its data along an axis (stride 0) may claim more elements than time allows to look at: walk one
 * copy and multiply. Returns how often everything counts, 0 without memory. */
static uint64_t collapse(const struct ts_tensor *tensor, const struct ts_tensor **view)
{
    struct ts_tensor *copy;
    uint64_t times = 1;
    *view = tensor;
    if (!tensor->strides || !tensor->count)
        return 1;
    for (unsigned i = 0; i < tensor->rank; i++)
        if (tensor->strides[i] == 0)
            times *= tensor->shape[i];
    if (times == 1)
        return 1;
    copy = malloc(sizeof *copy + tensor->rank * sizeof *tensor->shape);
    if (!copy)
        return 0;
    *copy = *tensor;
    copy->shape = (uint64_t *)(copy + 1);
    for (unsigned i = 0; i < tensor->rank; i++)
        copy->shape[i] = tensor->strides[i] == 0 ? 1 : tensor->shape[i];
    copy->count = tensor->count / times;
    *view = copy;
    return times;
}

/* The flat index in the whole tensor of an element of its collapsed view: the same coordinates. */
static uint64_t expand_index(const struct ts_tensor *tensor, const struct ts_tensor *view, uint64_t index)
{
    uint64_t at[TS_MAX_RANK], flat = 0;
    if (index == TS_NOWHERE || tensor == view)
        return index;
    ts_flat_to_coordinates(view, index, at);
    for (unsigned i = 0; i < tensor->rank; i++)
        flat = flat * tensor->shape[i] + at[i];
    return flat;
}

/* Moments of numbers whose squares leave the range of double (f64 above 1e135 or below 1e-135): once more, scaled. */
static bool scaled_moments(const struct ts_tensor *view, int exponent, struct piece *all)
{
    double values[2 * 1024];
    const unsigned per = ts_type_info(view->type)->components;
    struct ts_error ignored;
    piece_init(all);
    for (uint64_t first = 0; first < view->count;) {
        size_t now = view->count - first < 1024 ? (size_t)(view->count - first) : 1024;
        if (ts_tensor_read_f64(view, first, now, values, &ignored) != TS_OK)
            return false;
        for (size_t i = 0; i < now * per; i++)
            values[i] = ldexp(values[i], -exponent);
        add_carefully(all, values, now * per, first, per);
        first += now;
    }
    return true;
}

static void finish_moments(const struct ts_tensor *view, struct piece *all, uint64_t times, struct ts_stats *out)
{
    double largest = out->max > -out->min ? out->max : -out->min;
    int exponent = 0;
    if (largest > 0 && !(largest >= MODERATE_LEAST && largest <= MODERATE_MOST)) {
        exponent = ilogb(largest);
        if (!scaled_moments(view, exponent, all))
            all->mean = all->deviation = all->squares = NAN;
    }
    out->mean = ldexp(all->mean, exponent);
    out->std = ldexp(sqrt(all->deviation / (double)out->finite), exponent);
    out->norm = ldexp(sqrt(all->squares) * sqrt((double)times), exponent);
}

static void join(const struct job *job, size_t tensor, uint64_t times, struct ts_stats *out)
{
    const struct ts_tensor *view = job->views[tensor], *whole = job->tensors[tensor];
    struct piece all;
    bool some = false;
    piece_init(&all);
    for (uint64_t i = job->cut.first[tensor]; i < job->cut.first[tensor + 1]; i++) {
        const struct piece *piece = &job->pieces[i];
        struct ts_stats *sum = &all.stats;
        const struct ts_stats *add = &piece->stats;
        double total = (double)sum->finite, n = (double)add->finite, delta = piece->mean - all.mean;
        if (add->finite) {
            all.deviation += piece->deviation + delta * delta * (total * n / (total + n));
            all.mean += delta * (n / (total + n));
            all.squares += piece->squares;
        }
        if (ts_type_is_integer(view->type)) {
            bool lower = view->type == TS_U64 ? (uint64_t)add->exact_min < (uint64_t)sum->exact_min
                                              : add->exact_min < sum->exact_min;
            bool higher = view->type == TS_U64 ? (uint64_t)add->exact_max > (uint64_t)sum->exact_max
                                               : add->exact_max > sum->exact_max;
            if (!some || lower)
                sum->exact_min = add->exact_min;
            if (!some || higher)
                sum->exact_max = add->exact_max;
            some = true;
        }
        if (sum->first_nan == TS_NOWHERE)
            sum->first_nan = add->first_nan;
        if (sum->first_inf == TS_NOWHERE)
            sum->first_inf = add->first_inf;
        if (add->min < sum->min) {
            sum->min = add->min;
            sum->at_min = add->at_min;
        }
        if (add->max > sum->max) {
            sum->max = add->max;
            sum->at_max = add->at_max;
        }
        sum->count += add->count;
        sum->finite += add->finite;
        sum->nan += add->nan;
        sum->positive_inf += add->positive_inf;
        sum->negative_inf += add->negative_inf;
        sum->zeros += add->zeros;
    }
    *out = all.stats;
    if (!out->finite) {
        out->min = out->max = out->mean = out->std = NAN;
        out->at_min = out->at_max = TS_NOWHERE;
        out->norm = 0;
    } else {
        finish_moments(view, &all, times, out);
        if (ts_type_info(view->type)->components == 1) {
            out->at_min = find_value(view, out->at_min, out->min);
            out->at_max = find_value(view, out->at_max, out->max);
        }
    }
    out->count *= times;
    out->finite *= times;
    out->nan *= times;
    out->positive_inf *= times;
    out->negative_inf *= times;
    out->zeros *= times;
    out->first_nan = expand_index(whole, view, out->first_nan);
    out->first_inf = expand_index(whole, view, out->first_inf);
    out->at_min = expand_index(whole, view, out->at_min);
    out->at_max = expand_index(whole, view, out->at_max);
}

static uint64_t piece_size(const struct job *job, const struct ts_tensor *view)
{
    const struct ts_type_info *info = ts_type_info(view->type);
    uint64_t size = PIECE >> job->cut.halved;
    while (size > SMALL && size / info->block_elements * info->block_bytes > PIECE_BYTES >> job->cut.halved)
        size /= 2;
    return size;
}

static enum ts_status run_batch(struct ts_pool *pool, struct job *job, size_t count, struct ts_stats *out,
                                struct ts_error *error)
{
    uint64_t *times = calloc(count, sizeof *times);
    enum ts_status status = TS_OK;
    if (!times)
        return ts_fail_memory(error);
    ts_pieces_begin(&job->cut);
    for (size_t i = 0; i < count; i++) {
        times[i] = collapse(job->tensors[i], &job->views[i]);
        ts_pieces_add(&job->cut, job->views[i]->count, piece_size(job, job->views[i]));
        if (!times[i])
            status = ts_fail_memory(error);
    }
    job->pieces = status == TS_OK ? calloc(ts_pieces_count(&job->cut) + 1, sizeof *job->pieces) : NULL;
    if (job->pieces)
        status = ts_pieces_run(&job->cut, pool, work, forget_elements, job, error);
    else if (status == TS_OK)
        status = ts_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        if (status == TS_OK) {
            join(job, i, times[i], &out[i]);
            forget_elements(job, i, 0, job->views[i]->count); /* where the extremes are was looked up */
        }
        if (job->views[i] != job->tensors[i])
            free((void *)job->views[i]);
    }
    free(job->pieces);
    free(times);
    return status;
}

enum ts_status ts_stats_run(struct ts_pool *pool, struct ts_tensor *const *tensors, size_t count, struct ts_stats *out,
                            struct ts_progress *progress, struct ts_error *error)
{
    struct job job = {.progress = progress, .kernels = TS_TABLE(ts_stats_kernels)};
    enum ts_status status = TS_OK;
    job.views = calloc(TS_PIECES_BATCH, sizeof(struct ts_tensor *));
    if (!ts_pieces_init(&job.cut, pool) || !job.views)
        status = ts_fail_memory(error);
    for (size_t i = 0; i < count && status == TS_OK; i += TS_PIECES_BATCH) {
        job.tensors = tensors + i;
        status = run_batch(pool, &job, count - i < TS_PIECES_BATCH ? count - i : TS_PIECES_BATCH, out + i, error);
    }
    ts_pieces_release(&job.cut);
    free(job.views);
    return status;
}

enum ts_status ts_stats_histogram(const struct ts_tensor *tensor, const struct ts_stats *stats, unsigned bins,
                                  uint64_t *counts, uint64_t *sampled, struct ts_error *error)
{
    const uint64_t runs = 256, length = 256;
    const unsigned per = ts_type_info(tensor->type)->components;
    double values[2 * 256], width = stats->max - stats->min;
    uint64_t step = tensor->count / runs + (tensor->count % runs != 0);
    *sampled = 0;
    memset(counts, 0, bins * sizeof *counts);
    if (step < length)
        step = length;
    for (uint64_t first = 0; first < tensor->count; first += step) {
        size_t now = tensor->count - first < length ? (size_t)(tensor->count - first) : (size_t)length;
        TS_TRY(ts_tensor_read_f64(tensor, first, now, values, error));
        for (size_t i = 0; i < now * per; i++)
            if (isfinite(values[i])) {
                /* halves, so that the width of the whole double range does not overflow */
                double place = width > 0 ? (values[i] / 2 - stats->min / 2) / (stats->max / 2 - stats->min / 2) : 0;
                unsigned bin = place >= 1 ? bins - 1 : place > 0 ? (unsigned)(place * bins) : 0;
                counts[bin < bins ? bin : bins - 1]++;
            }
        *sampled += now;
    }
    if (tensor->type != TS_CODED && tensor->bytes > (uint64_t)1 << 20)
        ts_source_forget(tensor->source, tensor->span_offset, tensor->bytes);
    return TS_OK;
}

void ts_flat_to_coordinates(const struct ts_tensor *tensor, uint64_t index, uint64_t *coordinates)
{
    for (unsigned i = tensor->rank; i-- > 0;) {
        coordinates[i] = tensor->shape[i] ? index % tensor->shape[i] : 0;
        index = tensor->shape[i] ? index / tensor->shape[i] : 0;
    }
}
