/* Owns products with a weight: panels of it are decoded and multiplied, one task per panel. */
#include "model/linear.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "model/blas.h"

/* Rows of the weight per task: a panel of 32 rows of 4096 is 512 KiB, which the second level cache holds while every
 * token passes over it. */
#define PANEL      32
#define FAST_PANEL 256 /* for a library that blocks by itself */
/* Elements of the weight that are given back at a time: enough for all threads to be past them when as many more are
 * done. */
#define TOGETHER ((size_t)1 << 23)

const struct ts_linear_kernels *ts_linear_kernels(void)
{
    return TS_TABLE(ts_linear_kernels);
}

struct job {
    const float *x;
    float *y;
    size_t rows, columns, depth;
    const struct ts_view *weight;
    const struct ts_linear_kernels *kernels;
    float **panels;             /* one per worker */
    size_t panel;               /* rows of the weight in a task */
    size_t together;            /* tasks whose pages are given back at a time */
    const struct ts_blas *blas; /* of the fast mode, or NULL */
    struct ts_error *errors;    /* one per worker */
};

static void multiply(void *context, uint64_t index, unsigned worker)
{
    const struct job *job = context;
    size_t first = (size_t)index * job->panel,
           count = job->columns - first < job->panel ? job->columns - first : job->panel;
    const float *w = (const float *)(const void *)ts_view_bytes(job->weight);
    if (job->errors[worker].status != TS_OK || atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
        return;
    if (w && job->weight->tensor->type == TS_F32 && (uintptr_t)w % sizeof(float) == 0) {
        w += first * job->depth;
    } else {
        if (ts_view_read_f32(job->weight, first * job->depth, count * job->depth, job->panels[worker],
                             &job->errors[worker]) != TS_OK)
            return;
        w = job->panels[worker];
    }
    if (job->blas)
        job->blas->product(job->blas, job->x, job->rows, w, count, job->depth, job->y + first, job->columns);
    else
        job->kernels->product(job->x, job->depth, job->rows, w, job->depth, count, job->depth, job->y + first,
                              job->columns);
    /* behind all threads, since forgetting interrupts every one of them */
    if ((index + 1) % job->together == 0 && index + 1 >= 2 * job->together)
        ts_view_forget(job->weight, (index + 1 - 2 * job->together) * job->panel * job->depth,
                       job->together * job->panel * job->depth);
}

enum ts_status ts_linear_apply(struct ts_pool *pool, const float *x, size_t rows, const struct ts_view *weight,
                               bool fast, float *y, struct ts_error *error)
{
    unsigned width = ts_pool_width(pool);
    struct job job = {.x = x,
                      .y = y,
                      .rows = rows,
                      .columns = (size_t)weight->shape[0],
                      .depth = (size_t)weight->shape[1],
                      .weight = weight,
                      .kernels = ts_linear_kernels(),
                      .panel = fast ? FAST_PANEL : PANEL,
                      .blas = fast ? ts_blas_load() : NULL};
    enum ts_status status = TS_OK;
    job.together = TOGETHER / (job.panel * job.depth + 1) + 1;
    job.panels = calloc(width, sizeof *job.panels);
    job.errors = calloc(width, sizeof *job.errors);
    for (unsigned i = 0; job.panels && i < width; i++)
        job.panels[i] = malloc((job.panel * job.depth + 1) * sizeof(float));
    for (unsigned i = 0; i < width; i++)
        if (!job.panels || !job.errors || !job.panels[i])
            status = ts_fail_memory(error);
    if (status == TS_OK)
        ts_pool_run(pool, (job.columns + job.panel - 1) / job.panel, multiply, &job);
    ts_view_forget(weight, 0, weight->count);
    for (unsigned i = 0; i < width && status == TS_OK; i++)
        if (job.errors[i].status != TS_OK) {
            *error = job.errors[i];
            status = error->status;
        }
    if (status == TS_OK && atomic_load(&ts_cancelled))
        status = ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    for (unsigned i = 0; job.panels && i < width; i++)
        free(job.panels[i]);
    free(job.panels);
    free(job.errors);
    return status;
}
