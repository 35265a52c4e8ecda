/* Owns the walk over the elements of a view: long runs are decoded where they stand, other layouts are gathered into
 * small tiles and decoded from there. */
#include <inttypes.h>
#include <math.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "io/window.h"
#include "tensor/view.h"
#include "tensor/view_far.h"
#include "tensor/view_walk.h"

enum form { AS_F32, AS_F64, AS_I64 };

/* Elements gathered before they are decoded: 16 bytes is the largest type, so a tile takes 32 KB of stack at most and
 * stays in the first-level cache. */
#define TILE 2048
/* Rows shorter than this are gathered even when their elements stand side by side: a call per row would cost more. */
#define SHORT_ROW 32
#define CHUNK     512

struct walker {
    enum form form;
    const struct ts_tensor *tensor;
    const uint8_t *data; /* of element index 0, when elements can be addressed; else NULL: ask the tensor */
    size_t size;         /* bytes per element, when data is set */
    size_t out_size;     /* bytes per element in the output */
    struct ts_view_walk axes;
    uint64_t base;   /* index of the view's first element; wraps on the way with negative strides */
    bool far;        /* elements are read by position, not through the mapping */
    uint64_t places; /* far: others that are visited between two neighbours */
};

/* Elements between one and its neighbour in the file, where they do not follow each other. */
static uint64_t places_between(const struct ts_view_walk *axes)
{
    uint64_t places = 1, best = UINT64_MAX, result = 1;
    for (unsigned i = axes->rank; i-- > 0;) {
        const uint64_t stride = (uint64_t)llabs(axes->strides[i]);
        if (stride == 1 && i + 1 == axes->rank)
            continue; /* one place */
        if (stride && stride < best) {
            best = stride;
            result = places;
        }
        places *= axes->shape[i];
    }
    return result;
}

/* For a plain view with elements. */
static void walker_init(const struct ts_view *view, enum form form, struct walker *walker)
{
    const struct ts_type_info *info = ts_type_info(view->tensor->type);
    walker->form = form;
    walker->tensor = view->tensor;
    walker->out_size = (form == AS_F32 ? sizeof(float) : sizeof(double)) * info->components;
    walker->data = NULL;
    walker->far = false;
    walker->size = info->block_bytes;
    walker->base = view->offset;
    ts_view_walk_merge(view->shape, view->strides, view->rank, &walker->axes);
    if (view->tensor->type == TS_CODED || info->block_elements != 1)
        return;
    if (view->tensor->strides) { /* axes that follow each other may be far apart where they are stored */
        struct ts_view_walk stored;
        if (!ts_view_axes(view, &stored, &walker->base)) {
            walker->base = view->offset;
            return;
        }
        ts_view_walk_merge(stored.shape, stored.strides, stored.rank, &walker->axes);
    }
    walker->data = view->tensor->source->data + view->tensor->offset;
    walker->far = view->tensor->bytes >= TS_VIEW_FAR && ts_view_walk_is_far(&walker->axes, walker->size) &&
                  ts_source_is_open(view->tensor->source);
    if (walker->far)
        walker->places = places_between(&walker->axes);
}

static const uint8_t *element(const struct walker *walker, uint64_t index)
{
    return walker->data + (int64_t)index * (int64_t)walker->size;
}

static void decode(const struct walker *walker, const uint8_t *src, size_t count, char *out)
{
    const struct ts_tensor *tensor = walker->tensor;
    if (walker->form == AS_F32)
        ts_type_decode_f32(tensor->type, tensor->swapped, src, count, (float *)(void *)out);
    else if (walker->form == AS_F64)
        ts_type_decode_f64(tensor->type, tensor->swapped, src, count, (double *)(void *)out);
    else
        ts_type_decode_i64(tensor->type, tensor->swapped, src, count, (int64_t *)(void *)out);
}

static enum ts_status ask(const struct walker *walker, uint64_t first, size_t count, char *out, struct ts_error *error)
{
    if (walker->form == AS_F32)
        return ts_tensor_read_f32(walker->tensor, first, count, (float *)(void *)out, error);
    if (walker->form == AS_F64)
        return ts_tensor_read_f64(walker->tensor, first, count, (double *)(void *)out, error);
    return ts_tensor_read_i64(walker->tensor, first, count, (int64_t *)(void *)out, error);
}

#define GATHER(bytes)                                                                                                  \
    for (size_t i = 0; i < count; i++)                                                                                 \
    memcpy(dst + i * dst_step, src + (int64_t)i * src_step, bytes)

/* Steps in bytes. One loop per size, so that each copy is one move. */
static void gather(const uint8_t *src, int64_t src_step, size_t count, size_t size, uint8_t *dst, size_t dst_step)
{
    switch (size) {
    case 1:
        GATHER(1);
        break;
    case 2:
        GATHER(2);
        break;
    case 4:
        GATHER(4);
        break;
    case 8:
        GATHER(8);
        break;
    default:
        GATHER(size);
    }
}

/* count elements from index, stride apart, to places dst_step bytes apart. */
static enum ts_status fetch(const struct walker *walker, uint64_t index, int64_t stride, size_t count, uint8_t *dst,
                            size_t dst_step, struct ts_error *error)
{
    const struct ts_gather far = {.offset = walker->tensor->offset + index * walker->size,
                                  .step = stride * (int64_t)walker->size,
                                  .count = count,
                                  .size = walker->size,
                                  .out = dst,
                                  .out_step = dst_step,
                                  .places = walker->places};
    if (walker->far)
        return ts_window_gather(walker->tensor->source, &far, error);
    gather(element(walker, index), far.step, count, walker->size, dst, dst_step);
    return TS_OK;
}

/* count elements from index, stride apart. */
static enum ts_status read_row(const struct walker *walker, uint64_t index, int64_t stride, size_t count, char *out,
                               struct ts_error *error)
{
    alignas(double) uint8_t tile[TILE * 16];
    if (stride == 1 && walker->data && !walker->far) {
        decode(walker, element(walker, index), count, out);
        return TS_OK;
    }
    if (stride == 1 && !walker->data)
        return ask(walker, index, count, out, error);
    if (!walker->data) {
        for (size_t i = 0; i < count; i++, index += (uint64_t)stride)
            TS_TRY(ask(walker, index, 1, out + i * walker->out_size, error));
        return TS_OK;
    }
    while (count) {
        size_t now = count < TILE ? count : TILE;
        TS_TRY(fetch(walker, index, stride, now, tile, walker->size, error));
        decode(walker, tile, now, out);
        index += now * (uint64_t)stride;
        out += now * walker->out_size;
        count -= now;
    }
    return TS_OK;
}

/* `rows` whole rows of the innermost axis, cut into tiles: runs along whichever of the two last axes has its elements
 * closer together, so that every cache line is fetched once and every block decoded once. */
static enum ts_status read_rows(const struct walker *walker, uint64_t index, size_t rows, char *out,
                                struct ts_error *error)
{
    const unsigned last = walker->axes.rank - 1;
    const size_t columns = (size_t)walker->axes.shape[last], size = walker->size, wide = TILE / rows;
    const uint64_t across = (uint64_t)walker->axes.strides[last], down = (uint64_t)walker->axes.strides[last - 1];
    const bool downwards = llabs((int64_t)down) < llabs((int64_t)across);
    alignas(double) uint8_t tile[TILE * 16];
    for (size_t column = 0; column < columns && !walker->data; column++) {
        TS_TRY(ask(walker, index + column * across, rows, (char *)tile, error));
        for (size_t j = 0; j < rows; j++)
            memcpy(out + (j * columns + column) * walker->out_size, tile + j * walker->out_size, walker->out_size);
    }
    for (size_t column = 0; column < columns && walker->data; column += wide) {
        const size_t now = columns - column < wide ? columns - column : wide;
        const uint64_t corner = index + column * across;
        if (downwards)
            for (size_t i = 0; i < now; i++)
                TS_TRY(fetch(walker, corner + i * across, (int64_t)down, rows, tile + i * size, now * size, error));
        else
            for (size_t j = 0; j < rows; j++)
                TS_TRY(fetch(walker, corner + j * down, (int64_t)across, now, tile + j * now * size, size, error));
        if (now == columns)
            decode(walker, tile, rows * columns, out);
        for (size_t j = 0; j < rows && now < columns; j++)
            decode(walker, tile + j * now * size, now, out + (j * columns + column) * walker->out_size);
    }
    return TS_OK;
}

/* How many rows are better taken at a time; 1 where there is nothing to gain. Where the tensor must be asked, only when
 * that makes runs. */
static uint64_t rows_at_a_time(const struct walker *walker)
{
    const struct ts_view_walk *axes = &walker->axes;
    uint64_t columns;
    int64_t across, down;
    if (axes->rank < 2)
        return 1;
    columns = axes->shape[axes->rank - 1];
    across = axes->strides[axes->rank - 1];
    down = axes->strides[axes->rank - 2];
    if (!walker->data)
        return down == 1 ? 256 : 1; /* no type has larger blocks */
    if (columns < SHORT_ROW)
        return TILE / columns;
    return llabs(down) < llabs(across) ? 64 : 1;
}

static enum ts_status read_slabs(const struct ts_view *view, const struct walker *walker, uint64_t first, size_t count,
                                 char *out, struct ts_error *error)
{
    alignas(double) uint8_t tile[TILE * 16];
    while (count) {
        size_t now;
        TS_TRY(ts_view_slab_read(view, first, count < TILE ? count : TILE, tile, &now, error));
        decode(walker, tile, now, out);
        first += now;
        count -= now;
        out += now * walker->out_size;
    }
    return TS_OK;
}

static enum ts_status read_plain(const struct ts_view *view, enum form form, uint64_t first, size_t count, char *out,
                                 struct ts_error *error)
{
    struct walker walker;
    const struct ts_view_walk *axes = &walker.axes;
    uint64_t at[TS_MAX_RANK], index;
    uint64_t together;
    unsigned last;
    walker_init(view, form, &walker);
    if (!walker.far)
        ts_tensor_look(view->tensor, first, view->count);
    else if (ts_view_slab_follows(view, first, count))
        return read_slabs(view, &walker, first, count, out, error);
    index = walker.base;
    if (axes->rank == 0)
        return read_row(&walker, index, 1, count, out, error);
    for (unsigned i = axes->rank; i-- > 0;) {
        at[i] = first % axes->shape[i];
        first /= axes->shape[i];
        index += at[i] * (uint64_t)axes->strides[i];
    }
    last = axes->rank - 1;
    together = rows_at_a_time(&walker);
    while (count) {
        uint64_t columns = axes->shape[last], now = columns - at[last];
        if (together > 1 && at[last] == 0 && count / columns >= 2) {
            uint64_t rows = axes->shape[last - 1] - at[last - 1];
            rows = rows < count / columns ? rows : count / columns;
            rows = rows < together ? rows : together;
            TS_TRY(read_rows(&walker, index, (size_t)rows, out, error));
            now = rows * columns;
            at[last - 1] += rows;
            index += rows * (uint64_t)axes->strides[last - 1];
        } else {
            now = now < count ? now : count;
            TS_TRY(read_row(&walker, index, axes->strides[last], (size_t)now, out, error));
            at[last] += now;
            index += now * (uint64_t)axes->strides[last];
        }
        out += now * walker.out_size;
        count -= (size_t)now;
        for (unsigned i = last; i > 0; i--) { /* carry; a tile may have filled the axis above the last */
            if (at[i] != axes->shape[i])
                continue;
            index += (uint64_t)axes->strides[i - 1] - axes->shape[i] * (uint64_t)axes->strides[i];
            at[i] = 0;
            at[i - 1]++;
        }
    }
    return TS_OK;
}

/* 0 for what is shown, -inf for what is hidden. */
static void add_up_to(enum form form, enum ts_flags flags, size_t numbers, char *out)
{
    for (size_t i = 0; i < numbers; i++) {
        const bool set = form == AS_F32 ? ((float *)(void *)out)[i] != 0 : ((double *)(void *)out)[i] != 0;
        const double sum = set == (flags == TS_FLAGS_SHOW) ? 0 : -INFINITY;
        if (form == AS_F32)
            ((float *)(void *)out)[i] = (float)sum;
        else
            ((double *)(void *)out)[i] = sum;
    }
}

static enum ts_status read_view(const struct ts_view *view, enum form form, uint64_t first, size_t count, char *out,
                                struct ts_error *error);

/* A row of the joined axis is a piece of every part, one after the other. */
static enum ts_status read_concat(const struct ts_view *view, enum form form, uint64_t first, size_t count, char *out,
                                  size_t out_size, struct ts_error *error)
{
    uint64_t inner = 1, row, outer, rest;
    size_t start = 0;
    for (unsigned i = view->axis + 1; i < view->rank; i++)
        inner *= view->shape[i];
    row = view->shape[view->axis] * inner;
    outer = first / row;
    rest = first % row;
    if (view->even) {
        start = (size_t)(rest / (view->parts[0].shape[view->axis] * inner));
        rest %= view->parts[0].shape[view->axis] * inner;
    }
    for (size_t i = start; count; i++) {
        uint64_t piece, now;
        if (i == view->part_count) {
            i = 0;
            outer++;
            rest = 0;
        }
        piece = view->parts[i].shape[view->axis] * inner;
        if (rest >= piece) {
            rest -= piece;
            continue;
        }
        now = piece - rest < count ? piece - rest : count;
        TS_TRY(read_view(&view->parts[i], form, outer * piece + rest, (size_t)now, out, error));
        out += now * out_size;
        count -= (size_t)now;
        rest = 0;
    }
    return TS_OK;
}

/* In double, and rounded once at the end. Integers wrap, as the sum that was taken apart did. */
static enum ts_status read_sum(const struct ts_view *view, enum form form, uint64_t first, size_t count, char *out,
                               size_t components, struct ts_error *error)
{
    union {
        double f64[2 * CHUNK];
        int64_t i64[CHUNK];
    } part, sum;
    while (count) {
        size_t now = count < CHUNK ? count : CHUNK, numbers = now * components;
        memset(&sum, 0, sizeof sum);
        for (size_t i = 0; i < view->part_count; i++) {
            TS_TRY(read_view(&view->parts[i], form == AS_I64 ? AS_I64 : AS_F64, first, now, (char *)&part, error));
            for (size_t k = 0; k < numbers; k++)
                if (form == AS_I64)
                    sum.i64[k] = (int64_t)((uint64_t)sum.i64[k] + (uint64_t)part.i64[k]);
                else
                    sum.f64[k] += part.f64[k];
        }
        if (form == AS_F32)
            for (size_t k = 0; k < numbers; k++)
                ((float *)(void *)out)[k] = (float)sum.f64[k];
        else
            memcpy(out, &sum, numbers * sizeof(double));
        out += numbers * (form == AS_F32 ? sizeof(float) : sizeof(double));
        first += now;
        count -= now;
    }
    return TS_OK;
}

/* Of complex numbers only the real part moves. */
static void add_to_all(enum form form, double add, size_t count, size_t components, char *out)
{
    for (size_t i = 0; i < count * components; i += components)
        if (form == AS_F32)
            ((float *)(void *)out)[i] = (float)((double)((float *)(void *)out)[i] + add);
        else if (form == AS_F64)
            ((double *)(void *)out)[i] += add;
        else
            ((int64_t *)(void *)out)[i] = (int64_t)(((uint64_t *)(void *)out)[i] + (uint64_t)(int64_t)add);
}

static void decay_all(enum form form, size_t numbers, char *out)
{
    for (size_t i = 0; i < numbers; i++)
        if (form == AS_F32)
            ((float *)(void *)out)[i] = (float)-exp((double)((float *)(void *)out)[i]);
        else
            ((double *)(void *)out)[i] = -exp(((double *)(void *)out)[i]);
}

static enum ts_status read_view(const struct ts_view *view, enum form form, uint64_t first, size_t count, char *out,
                                struct ts_error *error)
{
    const size_t components = ts_type_info(view->tensor->type)->components;
    if (!ts_span_fits(first, count, view->count)) {
        ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "elements %" PRIu64 " to %" PRIu64 " of %" PRIu64 " were asked for",
                first, first + count, view->count);
        return ts_error_tensor(error, view->tensor->name);
    }
    if (form == AS_I64 && !ts_type_is_integer(view->tensor->type)) {
        ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "type %s holds no integers", ts_tensor_type_name(view->tensor));
        return ts_error_tensor(error, view->tensor->name);
    }
    if (count == 0)
        return TS_OK;
    if (view->join == TS_JOIN_NONE)
        TS_TRY(read_plain(view, form, first, count, out, error));
    else if (view->join == TS_JOIN_CONCAT)
        TS_TRY(read_concat(view, form, first, count, out,
                           (form == AS_F32 ? sizeof(float) : sizeof(double)) * components, error));
    else
        TS_TRY(read_sum(view, form, first, count, out, components, error));
    if (view->decay && form != AS_I64)
        decay_all(form, count * components, out);
    if (view->flags && form != AS_I64)
        add_up_to(form, view->flags, count * components, out);
    if (view->add != 0)
        add_to_all(form, view->add, count, components, out);
    return TS_OK;
}

enum ts_status ts_view_read_f32(const struct ts_view *view, uint64_t first, size_t count, float *out,
                                struct ts_error *error)
{
    return read_view(view, AS_F32, first, count, (char *)out, error);
}

enum ts_status ts_view_read_f64(const struct ts_view *view, uint64_t first, size_t count, double *out,
                                struct ts_error *error)
{
    return read_view(view, AS_F64, first, count, (char *)out, error);
}

enum ts_status ts_view_read_i64(const struct ts_view *view, uint64_t first, size_t count, int64_t *out,
                                struct ts_error *error)
{
    return read_view(view, AS_I64, first, count, (char *)out, error);
}

const uint8_t *ts_view_bytes(const struct ts_view *view)
{
    struct walker walker;
    if (view->join != TS_JOIN_NONE || ts_view_is_computed(view) || view->tensor->type == TS_CODED ||
        (view->tensor->swapped && ts_type_info(view->tensor->type)->block_bytes != 1) ||
        ts_type_info(view->tensor->type)->block_elements != 1)
        return NULL;
    if (view->count == 0)
        return view->tensor->source->data + view->tensor->offset;
    walker_init(view, AS_F32, &walker);
    if (!walker.data || walker.axes.rank > 1 || (walker.axes.rank == 1 && walker.axes.strides[0] != 1))
        return NULL;
    return element(&walker, walker.base);
}

static void forget_elements(const struct ts_tensor *tensor, uint64_t first, uint64_t count)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    uint64_t from = first / info->block_elements, to = (first + count) / info->block_elements;
    if (to > from)
        ts_source_forget(tensor->source, tensor->offset + from * info->block_bytes, (to - from) * info->block_bytes);
}

static void forget_whole(const struct ts_tensor *tensor)
{
    if (tensor->type != TS_CODED) {
        ts_source_forget(tensor->source, tensor->span_offset, tensor->bytes);
        return;
    }
    for (size_t i = 0; i < tensor->part_count; i++)
        if (tensor->parts[i] && tensor->parts[i]->type != TS_CODED)
            ts_source_forget(tensor->parts[i]->source, tensor->parts[i]->span_offset, tensor->parts[i]->bytes);
}

/* Exact where the elements stand in the order of the view, or where the rows of its outermost axis do; other layouts
 * touch everything until the end, and are forgotten there. */
static void forget_plain(const struct ts_view *view, uint64_t first, uint64_t count)
{
    const struct ts_tensor *tensor = view->tensor;
    struct ts_view_walk axes;
    uint64_t row = 1, reach = 0, stride, from, to;
    ts_view_walk_merge(view->shape, view->strides, view->rank, &axes);
    for (unsigned i = 1; i < axes.rank; i++) {
        row *= axes.shape[i];
        reach += (axes.shape[i] - 1) * (uint64_t)axes.strides[i];
    }
    stride = axes.rank ? (uint64_t)axes.strides[0] : 1;
    from = (first + row - 1) / row;
    to = (first + count) / row;
    if (ts_tensor_is_contiguous(tensor) && stride > reach) {
        if (to > from)
            forget_elements(tensor, view->offset + from * stride, (to - 1 - from) * stride + reach + 1);
    } else if (first + count == view->count) {
        forget_whole(tensor);
    }
}

void ts_view_forget(const struct ts_view *view, uint64_t first, uint64_t count)
{
    uint64_t row, inner = 1, from, to;
    size_t start = 0, end = view->part_count;
    if (count == 0 || !ts_span_fits(first, count, view->count))
        return;
    if (view->join == TS_JOIN_NONE) {
        forget_plain(view, first, count);
        return;
    }
    if (view->join == TS_JOIN_SUM) {
        for (size_t i = 0; i < view->part_count; i++)
            ts_view_forget(&view->parts[i], first, count);
        return;
    }
    for (unsigned i = view->axis + 1; i < view->rank; i++)
        inner *= view->shape[i];
    row = view->shape[view->axis] * inner;
    from = first / row;
    to = (first + count - 1) / row;
    if (view->even && from == to) {
        start = (size_t)((first - from * row) / (view->parts[0].shape[view->axis] * inner));
        end = (size_t)((first + count - 1 - from * row) / (view->parts[0].shape[view->axis] * inner)) + 1;
    }
    for (size_t i = start, begin = start * view->parts[0].shape[view->axis] * inner; i < end; i++) {
        uint64_t piece = view->parts[i].shape[view->axis] * inner, low, high;
        /* of the first and the last row only what lies inside */
        low = first - from * row > begin ? first - from * row - begin : 0;
        low = from * piece + (low < piece ? low : piece);
        high = first + count - to * row > begin ? first + count - to * row - begin : 0;
        high = to * piece + (high < piece ? high : piece);
        if (high > low)
            ts_view_forget(&view->parts[i], low, high - low);
        begin += piece;
    }
}
