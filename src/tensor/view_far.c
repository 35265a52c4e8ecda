/* Owns the slabs of views that are walked, and the reading of scattered rows. */
#include "tensor/view_far.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "tensor/view_box.h"
#include "tensor/view_walk.h"

#define SLABS      2
#define SLAB_BYTES ((size_t)32 << 20)
/* Elements read in a row after which more are expected. */
#define LONG ((uint64_t)1 << 15)
#define RUNS 8 /* walks of a thread that are followed */
/* Rows are read together when so few bytes stand between them: a call of its own would cost more; and so many in all.
 */
#define GAP  ((uint64_t)8 << 10)
#define SPAN ((uint64_t)256 << 10)

/* What a slab is of: two views that agree here have the same elements. */
struct identity {
    uint64_t serial; /* of the file */
    const uint8_t *data;
    uint64_t offset, count;
    enum ts_type type;
    unsigned rank;
    uint64_t shape[TS_MAX_RANK];
    int64_t strides[TS_MAX_RANK];
};

struct slab {
    struct identity of;
    uint64_t first, end; /* elements it has */
    uint64_t used;
    uint8_t *bytes;
};

static struct slab slabs[SLABS];
static uint64_t clock_now;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_of(const struct slab *slab, const struct ts_view *view)
{
    const struct identity *of = &slab->of;
    return slab->bytes && of->serial == ts_source_serial(view->tensor->source) &&
           of->data == view->tensor->source->data + view->tensor->offset && of->offset == view->offset &&
           of->count == view->count && of->type == view->tensor->type && of->rank == view->rank &&
           memcmp(of->shape, view->shape, view->rank * sizeof *view->shape) == 0 &&
           memcmp(of->strides, view->strides, view->rank * sizeof *view->strides) == 0;
}

bool ts_view_slab_follows(const struct ts_view *view, uint64_t first, size_t count)
{
    static _Thread_local struct {
        const struct ts_tensor *tensor;
        uint64_t next, length;
    } runs[RUNS], *run;
    static _Thread_local unsigned oldest;
    enum ts_type type;
    if (view->rank == 0 || !ts_view_box_type(view, &type))
        return false;
    run = runs;
    while (run < runs + RUNS && run->tensor != view->tensor)
        run++;
    if (run == runs + RUNS) {
        run = &runs[oldest++ % RUNS];
        run->tensor = view->tensor;
        run->next = first;
        run->length = 0;
    }
    run->length = run->next == first ? run->length + count : count;
    run->next = first + count;
    return run->length >= LONG;
}

/* Loads the rows from `first` on: as many steps as there is room for of the outermost axis that has room for one. */
static enum ts_status load(struct slab *slab, const struct ts_view *view, uint64_t first, struct ts_error *error)
{
    const uint64_t most = SLAB_BYTES / ts_type_info(view->tensor->type)->block_bytes;
    uint64_t at[TS_MAX_RANK], count[TS_MAX_RANK], inner = 1, rest = first, left;
    unsigned axis = view->rank;
    uint8_t *scratch = malloc(TS_VIEW_BOX_SCRATCH);
    enum ts_status status;
    slab->of.serial = 0;
    if (!slab->bytes)
        slab->bytes = malloc(SLAB_BYTES);
    if (!slab->bytes || !scratch) {
        free(scratch);
        return ts_fail_memory(error);
    }
    for (unsigned i = view->rank; i-- > 0;) {
        at[i] = rest % view->shape[i];
        rest /= view->shape[i];
        count[i] = 1;
    }
    while (axis > 0 && (axis == view->rank || inner * view->shape[axis] <= most)) {
        if (axis < view->rank) {
            inner *= view->shape[axis];
            count[axis] = view->shape[axis];
            at[axis] = 0;
        }
        axis--;
    }
    left = view->shape[axis] - at[axis];
    count[axis] = most / inner < left ? most / inner : left;
    slab->first = first / inner * inner;
    slab->end = slab->first + count[axis] * inner;
    status = ts_view_read_box(view, at, count, slab->bytes, scratch, error);
    free(scratch);
    if (status != TS_OK)
        return status;
    slab->of = (struct identity){.serial = ts_source_serial(view->tensor->source),
                                 .data = view->tensor->source->data + view->tensor->offset,
                                 .offset = view->offset,
                                 .count = view->count,
                                 .type = view->tensor->type,
                                 .rank = view->rank};
    memcpy(slab->of.shape, view->shape, view->rank * sizeof *view->shape);
    memcpy(slab->of.strides, view->strides, view->rank * sizeof *view->strides);
    return TS_OK;
}

static enum ts_status copy_from(const struct ts_view *view, uint64_t first, size_t count, uint8_t *out, size_t *copied,
                                struct ts_error *error)
{
    const size_t size = ts_type_info(view->tensor->type)->block_bytes;
    struct slab *slab = NULL;
    for (int i = 0; i < SLABS; i++)
        if (is_of(&slabs[i], view))
            slab = &slabs[i];
    for (int i = 0; i < SLABS && !slab; i++)
        if (i == SLABS - 1 || slabs[i].used < slabs[i + 1].used)
            slab = &slabs[i];
    slab->used = ++clock_now;
    if (!is_of(slab, view) || first < slab->first || first >= slab->end)
        TS_TRY(load(slab, view, first, error));
    *copied = slab->end - first < count ? (size_t)(slab->end - first) : count;
    memcpy(out, slab->bytes + (first - slab->first) * size, *copied * size);
    return TS_OK;
}

enum ts_status ts_view_slab_read(const struct ts_view *view, uint64_t first, size_t count, uint8_t *out, size_t *copied,
                                 struct ts_error *error)
{
    enum ts_status status;
    pthread_mutex_lock(&lock);
    status = copy_from(view, first, count, out, copied, error);
    pthread_mutex_unlock(&lock);
    return status;
}

/* A row, and where its first element is stored. */
struct row {
    uint64_t base;
    size_t place; /* in the result */
};

static int by_base(const void *a, const void *b)
{
    const struct row *left = a, *right = b;
    return left->base < right->base ? -1 : left->base > right->base;
}

/* Rows [from, to) of those in order of their place in the file: one element of each, `index` past their first. */
static enum ts_status read_together(const struct ts_tensor *tensor, const struct row *rows, size_t from, size_t to,
                                    uint64_t index, size_t width, uint8_t *scratch, uint8_t *out,
                                    struct ts_error *error)
{
    const size_t size = ts_type_info(tensor->type)->block_bytes;
    TS_TRY(ts_source_read(tensor->source, tensor->offset + (rows[from].base + index) * size,
                          (rows[to - 1].base - rows[from].base + 1) * size, scratch, error));
    for (size_t i = from; i < to; i++)
        memcpy(out + rows[i].place * width * size, scratch + (rows[i].base - rows[from].base) * size, size);
    return TS_OK;
}

/* All rows as they are stored. */
static enum ts_status read_far_rows(const struct ts_view *view, const struct ts_view_walk *axes, struct row *rows,
                                    size_t count, uint8_t *scratch, uint8_t *out, struct ts_error *error)
{
    const struct ts_tensor *tensor = view->tensor;
    const size_t size = ts_type_info(tensor->type)->block_bytes, width = (size_t)view->shape[view->rank - 1];
    const uint64_t across = (uint64_t)axes->strides[view->rank - 1];
    qsort(rows, count, sizeof *rows, by_base);
    for (size_t from = 0, to; from < count; from = to) {
        to = from + 1;
        while (to < count && (rows[to].base - rows[to - 1].base) * size <= GAP &&
               (rows[to].base - rows[from].base + 1) * size <= SPAN)
            to++;
        for (size_t column = 0; column < width; column++)
            TS_TRY(read_together(tensor, rows, from, to, column * across, width, scratch, out + column * size, error));
    }
    return TS_OK;
}

/* The rows of a view that is read this way, as they are stored; NULL for others, or without memory. */
static uint8_t *load_rows(const struct ts_view *view, const uint64_t *rows, size_t count, enum ts_status *status,
                          struct ts_error *error)
{
    struct ts_view_walk axes;
    struct row *order;
    uint8_t *bytes = NULL, *scratch;
    uint64_t base;
    *status = TS_OK;
    if (view->join != TS_JOIN_NONE || ts_view_is_computed(view) || view->rank < 2 || count == 0 ||
        view->tensor->type == TS_CODED || ts_type_info(view->tensor->type)->block_elements != 1 ||
        !ts_view_is_far(view) || !ts_source_is_open(view->tensor->source) || !ts_view_axes(view, &axes, &base) ||
        llabs(axes.strides[view->rank - 1]) == 1)
        return NULL;
    order = malloc(count * sizeof *order);
    scratch = malloc(SPAN);
    if (order && scratch)
        bytes = malloc(count * (size_t)view->shape[view->rank - 1] * ts_type_info(view->tensor->type)->block_bytes);
    for (size_t i = 0; i < count && bytes; i++) {
        uint64_t rest = rows[i];
        if (rest >= view->count / view->shape[view->rank - 1]) {
            *status = ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a row behind the last of its view");
            break;
        }
        order[i] = (struct row){.base = base, .place = i};
        for (unsigned k = view->rank - 1; k-- > 0;) {
            order[i].base += rest % view->shape[k] * (uint64_t)axes.strides[k];
            rest /= view->shape[k];
        }
    }
    if (bytes && *status == TS_OK)
        *status = read_far_rows(view, &axes, order, count, scratch, bytes, error);
    free(order);
    free(scratch);
    return bytes;
}

/* As doubles, or as floats where those are asked for. */
static enum ts_status read_rows(const struct ts_view *view, const uint64_t *rows, size_t count, double *doubles,
                                float *floats, struct ts_error *error)
{
    const struct ts_tensor *tensor = view->tensor;
    const size_t width = view->rank ? (size_t)view->shape[view->rank - 1] : 1;
    const size_t numbers = width * ts_type_info(tensor->type)->components;
    enum ts_status status;
    uint8_t *bytes = load_rows(view, rows, count, &status, error);
    if (bytes && status == TS_OK && doubles)
        ts_type_decode_f64(tensor->type, tensor->swapped, bytes, count * width, doubles);
    else if (bytes && status == TS_OK)
        ts_type_decode_f32(tensor->type, tensor->swapped, bytes, count * width, floats);
    for (size_t i = 0; i < count && !bytes && status == TS_OK; i++)
        status = doubles ? ts_view_read_f64(view, rows[i] * width, width, doubles + i * numbers, error)
                         : ts_view_read_f32(view, rows[i] * width, width, floats + i * numbers, error);
    free(bytes);
    return status;
}

enum ts_status ts_view_read_rows_f64(const struct ts_view *view, const uint64_t *rows, size_t count, double *out,
                                     struct ts_error *error)
{
    return read_rows(view, rows, count, out, NULL, error);
}

enum ts_status ts_view_read_rows_f32(const struct ts_view *view, const uint64_t *rows, size_t count, float *out,
                                     struct ts_error *error)
{
    return read_rows(view, rows, count, NULL, out, error);
}
