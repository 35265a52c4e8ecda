/* Owns the rank of a change: the walk over rows, the range finder, the floor. See change_rank.h for the method. */
#include "compare/change_rank.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "compare/change_rank_kernel.h"
#include "compare/symmetric.h"

/* Columns of the first look and of the second; some more than are counted, so that the last counted is exact. */
#define FIRST_COLUMNS  32
#define FIRST_MOST     24
#define SECOND_COLUMNS 144
/* Kernels of three or more axes: a last axis up to this is a convolution's, else it is a stack of matrices. */
#define KERNEL_MOST 16
/* Squares of singular values come out of sums in double, so the values themselves are known to about 1e-8. */
#define RESOLUTION 1e-7
#define FLOOR_ROOM 1.1
/* The energy left below the floor may be that of rounding, and half as much again when updates are below one step of
 * the grid: an error of up to u / 2 has at most u^2 / 4, and u^2 / 6 is granted. */
#define LEFT_ROOM 1.5
/* Updates below a step of the grid do not round independently: a part of their rounding follows them and stands a few
 * times above the floor, in values far below the true ones. So far above it, as a share of all the energy granted, a
 * fall by this factor ends the count. */
#define LEAK_SHARE 0.25
#define CLIFF      3.0
/* Memory of one matrix, and of all that are looked at at once. */
#define MEMORY_ONE ((uint64_t)128 << 20)
#define MEMORY_ALL ((uint64_t)512 << 20)

/* Elements after which the pages that were read are given back. */
#define FORGET_AFTER ((uint64_t)1 << 22)

struct matrix {
    const struct ts_pair *pair;
    const struct ts_delta *delta;
    const struct ts_rank_kernels *kernels;
    struct ts_progress *progress;
    size_t m, n, columns; /* of v, a multiple of TS_RANK_PANEL */
    double *rows;         /* TS_RANK_ROWS of d, interleaved */
    double *line;         /* one row of a, one of b, one of granted variances */
    double *v, *next;     /* panels */
    double *product;      /* TS_RANK_ROWS rows of d v, panel after panel */
    double *gram;         /* columns by columns */
    double *column_noise; /* variance granted to each column, in rows that changed */
    bool *column_changed;
    double energy, noise, most_row; /* of d; granted in all; and to the row that gets most */
};

/* The variance of rounding x to `bits` stored mantissa bits: a twelfth of the square of the grid's spacing there. */
static double rounding_variance(double x, int bits, int least_exponent)
{
    int exponent = (int)(ts_double_bits(x) >> 52 & 0x7ff) - 1023;
    if (exponent < least_exponent) /* zero and subnormals: the grid gets no finer */
        exponent = least_exponent;
    return ldexp(1.0 / 12, 2 * (exponent - bits));
}

/* Stored mantissa bits to which its values were rounded. Types wider than bf16 often hold bf16 or f16 values; values of
 * fewer bits (ternary weights, ones) are rather such by nature than rounded to it. */
static int bits_of(const struct ts_view *view, int in_use)
{
    int declared = ts_type_info(view->tensor->type)->mantissa_bits, least = declared < 7 ? declared : 7;
    if (view->tensor->type == TS_F64 && in_use >= 23) /* values are looked at as f32, so of f64 no more can be told */
        return declared;
    return in_use > least ? in_use : least;
}

/* Of the smallest normal number of a type: below it the grid gets no finer. */
static int least_exponent(const struct ts_view *view)
{
    switch (view->tensor->type) {
    case TS_F64:
    case TS_F80: /* read as f64 */
        return -1022;
    case TS_F16:
    case TS_F8_E5M2:
        return -14;
    case TS_F8_E5M2FNUZ:
        return -15;
    case TS_F8_E4M3:
        return -6;
    case TS_F8_E4M3FNUZ:
        return -7;
    case TS_F8_E4M3B11FNUZ:
        return -10;
    case TS_F8_E3M4:
    case TS_F6_E3M2:
        return -2;
    case TS_F6_E2M3:
    case TS_F4_E2M1:
        return 0;
    default:
        return -126;
    }
}

/* Row i of d into place r of the interleaved rows; on the first walk also what is known before. */
static enum ts_status read_row(struct matrix *matrix, size_t i, size_t r, bool measure, struct ts_error *error)
{
    const struct ts_pair *pair = matrix->pair;
    double *a = matrix->line, *b = a + matrix->n, *granted = b + matrix->n, noise = 0;
    bool changed = false;
    for (size_t at = 0; at < matrix->n; at += 4096) {
        size_t now = matrix->n - at < 4096 ? matrix->n - at : 4096;
        TS_TRY(ts_view_read_f64(&pair->a, (uint64_t)i * matrix->n + at, now, a + at, error));
        TS_TRY(ts_view_read_f64(&pair->b, (uint64_t)i * matrix->n + at, now, b + at, error));
    }
    for (size_t j = 0; j < matrix->n; j++) {
        double d = b[j] - a[j];
        matrix->rows[j * TS_RANK_ROWS + r] = d;
        changed = changed || d != 0;
    }
    if (!measure || !changed)
        return TS_OK;
    for (size_t j = 0; j < matrix->n; j++) {
        double d = b[j] - a[j];
        granted[j] = rounding_variance(a[j], bits_of(&pair->a, matrix->delta->precision_a), least_exponent(&pair->a)) +
                     rounding_variance(b[j], bits_of(&pair->b, matrix->delta->precision_b), least_exponent(&pair->b));
        matrix->energy += d * d;
        matrix->column_noise[j] += granted[j];
        matrix->column_changed[j] = matrix->column_changed[j] || d != 0;
        noise += granted[j];
    }
    matrix->noise += noise;
    matrix->most_row = fmax(matrix->most_row, noise);
    return TS_OK;
}

/* One walk over the rows of d. With `next` it becomes d^T d v, else gram becomes (d v)^T (d v). */
static enum ts_status walk(struct matrix *matrix, bool measure, bool last, struct ts_error *error)
{
    const size_t panels = matrix->columns / TS_RANK_PANEL, n = matrix->n, width = matrix->columns;
    const size_t block = TS_RANK_ROWS * TS_RANK_PANEL;
    size_t kept = 0; /* rows before it are forgotten */
    memset(last ? matrix->gram : matrix->next, 0, (last ? width : n) * width * sizeof(double));
    for (size_t i = 0; i < matrix->m; i += TS_RANK_ROWS) {
        size_t now = matrix->m - i < TS_RANK_ROWS ? matrix->m - i : TS_RANK_ROWS;
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        if (now < TS_RANK_ROWS)
            memset(matrix->rows, 0, n * TS_RANK_ROWS * sizeof *matrix->rows);
        for (size_t r = 0; r < now; r++)
            TS_TRY(read_row(matrix, i + r, r, measure, error));
        for (size_t p = 0; p < panels; p++) {
            double *product = matrix->product + p * block;
            matrix->kernels->project(matrix->rows, n, matrix->v + p * n * TS_RANK_PANEL, product);
            if (!last)
                matrix->kernels->gather(matrix->rows, n, product, matrix->next + p * n * TS_RANK_PANEL);
        }
        for (size_t x = 0; last && x < width; x++)
            for (size_t y = 0; y <= x; y++) {
                const double *left = matrix->product + x / TS_RANK_PANEL * block + x % TS_RANK_PANEL;
                const double *right = matrix->product + y / TS_RANK_PANEL * block + y % TS_RANK_PANEL;
                double sum = 0;
                for (size_t r = 0; r < TS_RANK_ROWS; r++)
                    sum += left[r * TS_RANK_PANEL] * right[r * TS_RANK_PANEL];
                matrix->gram[x * width + y] += sum;
            }
        if ((uint64_t)(i + now - kept) * n >= FORGET_AFTER || i + now == matrix->m) {
            ts_view_forget(&matrix->pair->a, (uint64_t)kept * n, (uint64_t)(i + now - kept) * n);
            ts_view_forget(&matrix->pair->b, (uint64_t)kept * n, (uint64_t)(i + now - kept) * n);
            kept = i + now;
        }
        ts_progress_add(matrix->progress, (uint64_t)now * n);
    }
    if (last)
        for (size_t x = 0; x < width; x++)
            for (size_t y = x + 1; y < width; y++)
                matrix->gram[x * width + y] = matrix->gram[y * width + x];
    return TS_OK;
}

/* Columns from panels into one after the other, made orthonormal, and back into v. */
static void orthonormalize(struct matrix *matrix)
{
    const size_t n = matrix->n;
    double *columns = matrix->v;
    for (size_t c = 0; c < matrix->columns; c++)
        for (size_t j = 0; j < n; j++)
            columns[c * n + j] = matrix->next[(c / TS_RANK_PANEL * n + j) * TS_RANK_PANEL + c % TS_RANK_PANEL];
    ts_orthonormalize(columns, n, matrix->columns);
    for (size_t c = 0; c < matrix->columns; c++)
        for (size_t j = 0; j < n; j++)
            matrix->next[(c / TS_RANK_PANEL * n + j) * TS_RANK_PANEL + c % TS_RANK_PANEL] = columns[c * n + j];
    matrix->v = matrix->next;
    matrix->next = columns;
}

/* Normal numbers from a counter: the same matrix is looked at with the same directions every time. */
static void fill_random(double *out, size_t count)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < count; i++) {
        double uniform[2];
        for (int k = 0; k < 2; k++) {
            uint64_t x = state += UINT64_C(0x9e3779b97f4a7c15);
            x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
            x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
            uniform[k] = ((double)((x ^ x >> 31) >> 11) + 0.5) * 0x1p-53;
        }
        out[i] = sqrt(-2 * log(uniform[0])) * cos(6.283185307179586 * uniform[1]);
    }
}

static double floor_of(const struct matrix *matrix)
{
    double most = 0;
    for (size_t j = 0; j < matrix->n; j++)
        if (matrix->column_changed[j])
            most = fmax(most, matrix->column_noise[j]);
    return FLOOR_ROOM * (sqrt(matrix->most_row) + sqrt(most));
}

/* From the squares of the singular values, largest first. */
static void count_values(const struct matrix *matrix, const double *squares, unsigned most, struct ts_change_rank *out)
{
    double largest = sqrt(fmax(squares[0], 0)), leak = LEAK_SHARE * sqrt(matrix->noise);
    double counted = 0, sum = 0, entropy = 0;
    out->floor = fmax(floor_of(matrix), RESOLUTION * largest);
    out->probed = most;
    out->rank = 0;
    out->value_count = 0;
    for (size_t i = 0; i < most; i++) {
        double value = sqrt(fmax(squares[i], 0));
        if (out->value_count < TS_RANK_VALUES)
            out->values[out->value_count++] = value;
        if (value <= out->floor || (value < leak && i && value * CLIFF < sqrt(squares[i - 1])))
            break;
        out->rank++;
        counted += value * value;
        sum += value;
    }
    for (size_t i = 0; i < out->rank; i++) {
        double share = sqrt(squares[i]) / sum;
        entropy -= share * log(share);
    }
    out->stable = largest > 0 ? matrix->energy / (largest * largest) : (double)NAN;
    out->at_least = out->rank < (matrix->m < matrix->n ? matrix->m : matrix->n) &&
                    (out->rank == most || matrix->energy - counted > LEFT_ROOM * matrix->noise + 1e-9 * counted);
    out->effective = out->rank && !out->at_least ? exp(entropy) : (double)NAN;
}

static uint64_t memory_of(size_t n, size_t columns)
{
    return ((uint64_t)2 * n * columns + (uint64_t)n * (TS_RANK_ROWS + 4)) * sizeof(double);
}

/* Looks with so many columns; *most of what they find can be counted. */
static enum ts_status look(struct matrix *matrix, size_t columns, unsigned most, struct ts_change_rank *out,
                           struct ts_error *error)
{
    const size_t n = matrix->n, side = matrix->m < n ? matrix->m : n;
    double *squares;
    enum ts_status status;
    if (columns >= side) { /* all of them are found, exactly */
        columns = side;
        most = (unsigned)side;
    }
    matrix->columns = (columns + TS_RANK_PANEL - 1) / TS_RANK_PANEL * TS_RANK_PANEL;
    matrix->energy = matrix->noise = matrix->most_row = 0;
    matrix->rows = calloc(n * TS_RANK_ROWS, sizeof *matrix->rows);
    matrix->line = calloc(3 * n, sizeof *matrix->line);
    matrix->v = calloc(n * matrix->columns, sizeof *matrix->v);
    matrix->next = calloc(n * matrix->columns, sizeof *matrix->next);
    matrix->product = calloc(TS_RANK_ROWS * matrix->columns, sizeof *matrix->product);
    matrix->gram = calloc(matrix->columns * matrix->columns, sizeof *matrix->gram);
    matrix->column_noise = calloc(n, sizeof *matrix->column_noise);
    matrix->column_changed = calloc(n, sizeof *matrix->column_changed);
    squares = calloc(matrix->columns, sizeof *squares);
    status = matrix->rows && matrix->line && matrix->v && matrix->next && matrix->product && matrix->gram &&
                     matrix->column_noise && matrix->column_changed && squares
                 ? TS_OK
                 : ts_fail_memory(error);
    if (status == TS_OK)
        fill_random(matrix->v, n * matrix->columns);
    for (int turn = 0; turn < 2 && status == TS_OK; turn++) {
        status = walk(matrix, turn == 0, false, error);
        if (status == TS_OK)
            orthonormalize(matrix);
    }
    if (status == TS_OK)
        status = walk(matrix, false, true, error);
    if (status == TS_OK) {
        ts_symmetric_eigenvalues(matrix->gram, matrix->columns, squares);
        count_values(matrix, squares, most, out);
        out->known = true;
    }
    free(matrix->rows);
    free(matrix->line);
    free(matrix->v);
    free(matrix->next);
    free(matrix->product);
    free(matrix->gram);
    free(matrix->column_noise);
    free(matrix->column_changed);
    free(squares);
    return status;
}

/* Axes of size 1 aside: two axes are a matrix, a convolution is output by everything else. */
static const char *shape_of(const struct ts_view *view, uint64_t *rows, uint64_t *columns)
{
    uint64_t axes[3] = {1, 1, 1}, last = 1;
    unsigned count = 0;
    for (unsigned i = 0; i < view->rank; i++) {
        if (view->shape[i] == 1)
            continue;
        if (count < 3)
            axes[count] = view->shape[i];
        last = view->shape[i];
        count++;
    }
    if (count < 2)
        return "not a matrix";
    if (count > 2 && last > KERNEL_MOST)
        return "a stack of matrices";
    *rows = axes[0];
    *columns = view->count / axes[0];
    return NULL;
}

static const char *reason_against(const struct ts_pair *pair, const struct ts_delta *delta, uint64_t *rows,
                                  uint64_t *columns)
{
    const struct ts_type_info *a, *b;
    const char *reason;
    if (pair->problem)
        return "it could not be compared";
    a = ts_type_info(pair->a.tensor->type);
    b = ts_type_info(pair->b.tensor->type);
    reason = shape_of(&pair->a, rows, columns);
    if (reason)
        return reason;
    if (a->kind == TS_CLASS_QUANT || b->kind == TS_CLASS_QUANT || pair->a.tensor->type == TS_CODED ||
        pair->b.tensor->type == TS_CODED)
        return "quantized: its rounding has no known size";
    if (a->kind != TS_CLASS_FLOAT || b->kind != TS_CLASS_FLOAT)
        return "not real numbers";
    if (delta->compared != delta->count)
        return "it has elements that are NaN or infinite";
    if (*rows > SIZE_MAX / 64 || *columns > (uint64_t)1 << 22)
        return "its rows are too long";
    return NULL;
}

struct job {
    const struct ts_pair *pairs;
    const struct ts_delta *deltas;
    struct ts_change_rank *ranks;
    const struct ts_rank_kernels *kernels;
    struct ts_progress *progress;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t freed;
    uint64_t memory;
    struct ts_error error;
};

static void take_memory(struct job *job, uint64_t amount)
{
    pthread_mutex_lock(&job->lock);
    while (job->memory && job->memory + amount > MEMORY_ALL)
        pthread_cond_wait(&job->freed, &job->lock);
    job->memory += amount;
    pthread_mutex_unlock(&job->lock);
}

static void give_memory(struct job *job, uint64_t amount)
{
    pthread_mutex_lock(&job->lock);
    job->memory -= amount;
    pthread_cond_broadcast(&job->freed);
    pthread_mutex_unlock(&job->lock);
}

static enum ts_status measure(struct job *job, struct matrix *matrix, struct ts_change_rank *out,
                              struct ts_error *error)
{
    static const struct {
        size_t columns;
        unsigned most;
    } looks[] = {{FIRST_COLUMNS, FIRST_MOST}, {SECOND_COLUMNS, TS_RANK_MOST}};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        size_t columns = looks[i].columns, spare = columns - looks[i].most, fitting;
        uint64_t amount;
        enum ts_status status;
        for (fitting = columns; fitting > FIRST_COLUMNS && memory_of(matrix->n, fitting) > MEMORY_ONE;)
            fitting -= TS_RANK_PANEL;
        amount = memory_of(matrix->n, fitting);
        take_memory(job, amount);
        status = look(matrix, fitting, (unsigned)(fitting - spare), out, error);
        give_memory(job, amount);
        TS_TRY(status);
        if (out->rank < out->probed)
            break;
    }
    return TS_OK;
}

static void work(void *context, uint64_t index, unsigned worker)
{
    struct job *job = context;
    struct ts_change_rank *out = &job->ranks[index];
    struct matrix matrix = {
        .pair = &job->pairs[index], .delta = &job->deltas[index], .kernels = job->kernels, .progress = job->progress};
    struct ts_error error;
    (void)worker;
    *out = (struct ts_change_rank){.stable = (double)NAN, .effective = (double)NAN};
    if (atomic_load(&ts_cancelled))
        return;
    out->reason = reason_against(matrix.pair, matrix.delta, &out->rows, &out->columns);
    if (out->reason)
        return;
    if (!matrix.delta->unequal) {
        out->known = true;
        return;
    }
    matrix.m = (size_t)out->rows;
    matrix.n = (size_t)out->columns;
    if (measure(job, &matrix, out, &error) != TS_OK) {
        ts_error_tensor(&error, matrix.pair->name);
        pthread_mutex_lock(&job->lock);
        if (job->error.status == TS_OK)
            job->error = error;
        pthread_mutex_unlock(&job->lock);
    }
}

enum ts_status ts_change_rank_run(struct ts_pool *pool, const struct ts_pair *pairs, const struct ts_delta *deltas,
                                  size_t count, struct ts_change_rank *ranks, struct ts_progress *progress,
                                  struct ts_error *error)
{
    struct job job = {
        .pairs = pairs, .deltas = deltas, .ranks = ranks, .progress = progress, .kernels = TS_TABLE(ts_rank_kernels)};
    pthread_mutex_init(&job.lock, NULL);
    pthread_cond_init(&job.freed, NULL);
    ts_error_clear(&job.error);
    ts_pool_run(pool, count, work, &job);
    pthread_cond_destroy(&job.freed);
    pthread_mutex_destroy(&job.lock);
    if (atomic_load(&ts_cancelled))
        return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    if (job.error.status != TS_OK) {
        *error = job.error;
        return error->status;
    }
    return TS_OK;
}
