/* Owns scaled dot products: scores, mask, softmax, context, head by head. */
#include "model/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "model/linear.h"

#define ROWS_AT_ONCE 256

struct work {
    const struct ts_run *run;
    const struct ts_attention *how;
    struct ts_act q, k, v;
    size_t size, value_size, group; /* of a head; query heads per key head */
    float *keys, *values;           /* [kv heads][tokens][size], and values turned: [kv heads][value size][tokens] */
    float *scores;                  /* [heads][tokens][tokens], or one such square per worker when nobody looks */
    bool whole;
    float *context;
    const struct ts_linear_kernels *kernels;
};

static float *square(const struct work *work, uint64_t head, unsigned worker)
{
    return work->scores + (work->whole ? (size_t)head : worker) * work->q.rows * work->k.rows;
}

/* A head's rows are worked on in pieces, so that an interruption does not wait for a long prompt's whole square. What
 * is left undone then is never seen: no point is captured after an interruption. */
static bool next_rows(const struct work *work, size_t *first, size_t *count)
{
    *first += *count;
    *count = work->q.rows - *first < ROWS_AT_ONCE ? work->q.rows - *first : ROWS_AT_ONCE;
    return *count && !atomic_load_explicit(&ts_cancelled, memory_order_relaxed);
}

static void soften(const struct ts_run *run, float *scores, size_t count, float limit)
{
    for (size_t i = 0; i < count; i++)
        scores[i] = scores[i] / limit;
    ts_round(run, scores, count);
    for (size_t i = 0; i < count; i++)
        scores[i] = tanhf(scores[i]);
    ts_round(run, scores, count);
    for (size_t i = 0; i < count; i++)
        scores[i] *= limit;
    ts_round(run, scores, count);
}

static void score(void *context, uint64_t head, unsigned worker)
{
    const struct work *work = context;
    size_t keys = work->k.rows;
    for (size_t first = 0, rows = 0; next_rows(work, &first, &rows);) {
        float *scores = square(work, head, worker) + first * keys;
        work->kernels->product(work->q.data + first * work->q.width + head * work->size, work->q.width, rows,
                               work->keys + head / work->group * keys * work->size, work->size, keys, work->size,
                               scores, keys);
        ts_round(work->run, scores, rows * keys);
        for (size_t i = 0; i < rows * keys; i++)
            scores[i] *= (float)work->how->scale;
        ts_round(work->run, scores, rows * keys);
        if (work->how->softcap > 0)
            soften(work->run, scores, rows * keys, (float)work->how->softcap);
    }
}

static void mask(void *context, uint64_t head, unsigned worker)
{
    const struct work *work = context;
    size_t rows = work->q.rows, keys = work->k.rows, window = work->how->window;
    float *scores = square(work, head, worker);
    for (size_t i = 0; i < rows; i++) {
        size_t last = i + keys - rows; /* the token itself */
        for (size_t j = 0; j < keys; j++)
            if (j > last || (window && j + window <= last))
                scores[i * keys + j] = -(float)INFINITY;
    }
}

static void normalise_row(const struct work *work, uint64_t head, float *row)
{
    size_t keys = work->k.rows;
    float largest = work->how->sinks ? work->how->sinks[head] : -(float)INFINITY;
    double sum = 0;
    for (size_t j = 0; j < keys; j++)
        largest = row[j] > largest ? row[j] : largest;
    for (size_t j = 0; j < keys; j++)
        row[j] -= largest;
    if (work->how->sinks) { /* here the library stores the difference */
        float sink = work->how->sinks[head] - largest;
        ts_round(work->run, &sink, 1);
        ts_round(work->run, row, keys);
        sum = (double)expf(sink);
    }
    for (size_t j = 0; j < keys; j++) {
        row[j] = expf(row[j]);
        sum += (double)row[j];
    }
    for (size_t j = 0; j < keys; j++)
        row[j] = (float)((double)row[j] / sum);
    ts_round(work->run, row, keys);
}

static void normalise(void *context, uint64_t head, unsigned worker)
{
    const struct work *work = context;
    for (size_t first = 0, rows = 0; next_rows(work, &first, &rows);)
        for (size_t i = first; i < first + rows; i++)
            normalise_row(work, head, square(work, head, worker) + i * work->k.rows);
}

static void gather(void *context, uint64_t head, unsigned worker)
{
    const struct work *work = context;
    size_t keys = work->k.rows, width = work->q.heads * work->value_size;
    for (size_t first = 0, rows = 0; next_rows(work, &first, &rows);)
        work->kernels->product(square(work, head, worker) + first * keys, keys, rows,
                               work->values + head / work->group * keys * work->value_size, keys, work->value_size,
                               keys, work->context + first * width + head * work->value_size, width);
}

static void head_at_once(void *context, uint64_t head, unsigned worker)
{
    score(context, head, worker);
    mask(context, head, worker);
    normalise(context, head, worker);
    gather(context, head, worker);
}

static void arrange(struct work *work)
{
    size_t keys = work->k.rows;
    for (size_t h = 0; h < work->k.heads; h++)
        for (size_t j = 0; j < keys; j++) {
            memcpy(work->keys + (h * keys + j) * work->size, work->k.data + j * work->k.width + h * work->size,
                   work->size * sizeof(float));
            for (size_t d = 0; d < work->value_size; d++)
                work->values[(h * work->value_size + d) * keys + j] =
                    work->v.data[j * work->v.width + h * work->value_size + d];
        }
}

struct ts_act ts_attend(struct ts_run *run, struct ts_act q, struct ts_act k, struct ts_act v,
                        const struct ts_attention *how)
{
    struct work work = {.run = run, .how = how, .q = q, .k = k, .v = v, .kernels = ts_linear_kernels()};
    struct ts_act context;
    struct ts_block *mark;
    uint64_t shape[4] = {1, q.heads, q.rows, k.rows};
    if (ts_ok(run) &&
        (!q.heads || !k.heads || q.heads % k.heads || q.width % q.heads || k.width % k.heads || v.width % k.heads ||
         q.width / q.heads != k.width / k.heads || k.rows != v.rows || k.rows < q.rows || v.heads != k.heads))
        ts_run_fail(run, TS_ERR_FORMAT, "%zu heads of queries over %zu of keys, %zu and %zu wide: these do not fit",
                    q.heads, k.heads, q.width, k.width);
    if (!ts_ok(run))
        return ts_new(run, q.rows, q.width);
    if (how->window && (!run->window || how->window < run->window))
        run->window = how->window;
    work.size = q.width / q.heads;
    work.value_size = v.width / v.heads;
    work.group = q.heads / k.heads;
    work.whole = run->watcher->replace || ts_wanted(run, "attn_scores") || ts_wanted(run, "attn_scores_masked") ||
                 ts_wanted(run, "attn_probs");
    context = ts_new(run, q.rows, q.heads * work.value_size);
    context.heads = q.heads;
    context.layout = TS_TOKENS_HEADS;
    mark = ts_mark(run);
    work.context = context.data;
    work.keys = ts_scratch(run, k.rows * k.width);
    work.values = ts_scratch(run, v.rows * v.width);
    work.scores = ts_scratch(run, (work.whole ? q.heads : ts_pool_width(run->pool)) * q.rows * k.rows);
    if (ts_real(run))
        arrange(&work);
    if (work.whole || run->plan) {
        if (ts_real(run))
            ts_pool_run(run->pool, q.heads, score, &work);
        ts_capture_values(run, "attn_scores", work.scores, 4, shape);
        if (ts_real(run))
            ts_pool_run(run->pool, q.heads, mask, &work);
        ts_capture_values(run, "attn_scores_masked", work.scores, 4, shape);
        if (ts_real(run))
            ts_pool_run(run->pool, q.heads, normalise, &work);
        ts_capture_values(run, "attn_probs", work.scores, 4, shape);
        if (ts_real(run))
            ts_pool_run(run->pool, q.heads, gather, &work);
    } else if (ts_real(run)) {
        ts_pool_run(run->pool, q.heads, head_at_once, &work);
    }
    if (ts_real(run))
        ts_round(run, context.data, context.rows * context.width);
    ts_forget(run, mark, NULL);
    ts_capture(run, "attn_context", context);
    context.layout = TS_BATCHED;
    return context;
}
