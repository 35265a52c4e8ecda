/* Owns the arithmetic of layouts: what squeezing, permuting, splitting, merging, slicing and joining do to shape,
 * strides and offset. How the elements are then fetched is in view_read.c. */
#include "tensor/view.h"

#include <string.h>

#include "base/number.h"
#include "tensor/view_walk.h"

static bool count_of(const uint64_t *shape, unsigned rank, uint64_t *count)
{
    *count = 1;
    for (unsigned i = 0; i < rank; i++)
        if (shape[i] == 0) { /* empty, however large the other axes are */
            *count = 0;
            return true;
        }
    for (unsigned i = 0; i < rank; i++)
        if (!ts_mul(*count, shape[i], count) || *count > INT64_MAX)
            return false;
    return true;
}

/* A view with room for a shape of rank axes, everything else as in `like`. */
static bool start(const struct ts_view *like, unsigned rank, struct ts_arena *arena, struct ts_view *out)
{
    struct ts_view made = *like;
    if (rank > TS_MAX_RANK)
        return false;
    made.rank = rank;
    made.shape = ts_arena_array(arena, rank, sizeof *made.shape);
    made.strides = NULL;
    if (like->join == TS_JOIN_NONE)
        made.strides = ts_arena_array(arena, rank, sizeof *made.strides);
    if (!made.shape || (like->join == TS_JOIN_NONE && !made.strides))
        return false;
    *out = made;
    return true;
}

static bool start_parts(const struct ts_view *view, size_t count, struct ts_arena *arena, struct ts_view *out)
{
    out->parts = ts_arena_array(arena, count, sizeof *out->parts);
    out->part_count = count;
    return out->parts && view->join != TS_JOIN_NONE;
}

bool ts_view_of(const struct ts_tensor *tensor, struct ts_arena *arena, struct ts_view *view)
{
    struct ts_view whole = {.tensor = tensor, .count = tensor->count};
    uint64_t stride = 1;
    if (!start(&whole, tensor->rank, arena, view))
        return false;
    for (unsigned i = tensor->rank; i-- > 0;) {
        view->shape[i] = tensor->shape[i];
        view->strides[i] = (int64_t)stride;
        stride *= tensor->shape[i]; /* fits unless the tensor is empty, and then no stride is ever used */
    }
    return true;
}

bool ts_view_walk_through(const struct ts_view *view, struct ts_view_walk *axes, uint64_t *base)
{
    const struct ts_tensor *tensor = view->tensor;
    struct ts_view_walk own;
    uint64_t inner[TS_MAX_RANK], reach[TS_MAX_RANK], at = view->offset;
    ts_view_walk_merge(tensor->shape, tensor->strides, tensor->rank, &own);
    *base = 0;
    for (unsigned k = own.rank; k-- > 0;) {
        inner[k] = k + 1 < own.rank ? inner[k + 1] * own.shape[k + 1] : 1;
        reach[k] = at % own.shape[k];
        at /= own.shape[k];
        *base += reach[k] * (uint64_t)own.strides[k];
    }
    for (unsigned i = 0; i < axes->rank; i++) {
        uint64_t stride = (uint64_t)axes->strides[i], steps;
        unsigned k = 0;
        if (axes->shape[i] == 1)
            continue;
        while (k + 1 < own.rank && inner[k] > stride)
            k++;
        if (own.rank == 0 || stride % inner[k] != 0)
            return false;
        steps = stride / inner[k];
        reach[k] += steps * (axes->shape[i] - 1);
        if (reach[k] >= own.shape[k])
            return false;
        axes->strides[i] = (int64_t)(steps * (uint64_t)own.strides[k]);
    }
    return true;
}

bool ts_view_axes(const struct ts_view *view, struct ts_view_walk *axes, uint64_t *base)
{
    axes->rank = view->rank;
    for (unsigned i = 0; i < view->rank; i++) {
        axes->shape[i] = view->shape[i];
        axes->strides[i] = view->shape[i] == 1 ? 0 : view->strides[i];
    }
    *base = view->offset;
    return !view->tensor->strides || ts_view_walk_through(view, axes, base);
}

bool ts_view_same_shape(const struct ts_view *a, const struct ts_view *b)
{
    return a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

bool ts_view_permute(const struct ts_view *view, const unsigned *order, struct ts_arena *arena, struct ts_view *out)
{
    struct ts_view made;
    if (!start(view, view->rank, arena, &made))
        return false;
    for (unsigned i = 0; i < view->rank; i++) {
        if (order[i] >= view->rank)
            return false;
        made.shape[i] = view->shape[order[i]];
        if (made.strides)
            made.strides[i] = view->strides[order[i]];
        if (order[i] == view->axis)
            made.axis = i;
    }
    if (view->join != TS_JOIN_NONE) {
        if (!start_parts(view, view->part_count, arena, &made))
            return false;
        for (size_t i = 0; i < view->part_count; i++)
            if (!ts_view_permute(&view->parts[i], order, arena, &made.parts[i]))
                return false;
    }
    *out = made;
    return true;
}

bool ts_view_transpose(const struct ts_view *view, struct ts_arena *arena, struct ts_view *out)
{
    unsigned order[TS_MAX_RANK];
    if (view->rank < 2)
        return false;
    for (unsigned i = 0; i < view->rank; i++)
        order[i] = i;
    order[view->rank - 2] = view->rank - 1;
    order[view->rank - 1] = view->rank - 2;
    return ts_view_permute(view, order, arena, out);
}

/* Strides of the new shape. Neighbouring axes that can be merged are merged first, so that a new axis must lie inside
 * one of those that are left; walk both from the innermost. */
static bool reshape_strides(const struct ts_view *view, const uint64_t *shape, unsigned rank, int64_t *strides)
{
    struct ts_view_walk walk;
    uint64_t left = 1, stride = 1;
    unsigned old;
    memset(strides, 0, rank * sizeof *strides);
    if (view->count == 0)
        return true;
    ts_view_walk_merge(view->shape, view->strides, view->rank, &walk);
    old = walk.rank;
    for (unsigned i = rank; i-- > 0;) {
        if (shape[i] == 1)
            continue;
        if (left == 1) {
            old--; /* cannot be 0: the counts are equal */
            left = walk.shape[old];
            stride = (uint64_t)walk.strides[old];
        }
        if (left % shape[i] != 0)
            return false;
        strides[i] = (int64_t)stride;
        stride *= shape[i];
        left /= shape[i];
    }
    return true;
}

/* Seen from outside, a concatenation is `outer` rows, each made of a piece of every part. Another shape will do when
 * one of its axes begins where these rows begin and its steps end where the pieces end. */
static bool reshape_concat(const struct ts_view *view, const uint64_t *shape, unsigned rank, struct ts_arena *arena,
                           struct ts_view *out)
{
    uint64_t outer = 1, inner = 1, before = 1, step, part_shape[TS_MAX_RANK];
    for (unsigned i = 0; i < view->rank; i++) {
        outer *= i < view->axis ? view->shape[i] : 1;
        inner *= i > view->axis ? view->shape[i] : 1;
    }
    for (unsigned axis = 0; axis < rank && before <= outer; before *= shape[axis++]) {
        bool fits = before == outer;
        step = 1;
        for (unsigned i = axis + 1; i < rank; i++)
            step *= shape[i];
        for (size_t i = 0; fits && i < view->part_count; i++)
            fits = view->parts[i].shape[view->axis] * inner % step == 0;
        if (!fits)
            continue;
        memcpy(part_shape, shape, rank * sizeof *shape);
        for (size_t i = 0; i < view->part_count && fits; i++) {
            part_shape[axis] = view->parts[i].shape[view->axis] * inner / step;
            fits = ts_view_reshape(&view->parts[i], part_shape, rank, arena, &out->parts[i]);
        }
        out->axis = axis;
        if (fits)
            return true;
    }
    return false;
}

bool ts_view_reshape(const struct ts_view *view, const uint64_t *shape, unsigned rank, struct ts_arena *arena,
                     struct ts_view *out)
{
    struct ts_view made;
    uint64_t count;
    if (!count_of(shape, rank, &count) || count != view->count || !start(view, rank, arena, &made))
        return false;
    if (rank)
        memcpy(made.shape, shape, rank * sizeof *shape);
    if (view->join == TS_JOIN_NONE) {
        if (!reshape_strides(view, shape, rank, made.strides))
            return false;
    } else if (!start_parts(view, view->part_count, arena, &made)) {
        return false;
    } else if (view->join == TS_JOIN_SUM) {
        for (size_t i = 0; i < view->part_count; i++)
            if (!ts_view_reshape(&view->parts[i], shape, rank, arena, &made.parts[i]))
                return false;
    } else if (count == 0) {
        made.part_count = 0;
    } else if (!reshape_concat(view, shape, rank, arena, &made)) {
        return false;
    }
    *out = made;
    return true;
}

/* What remains of each part when the joined axis is sliced; parts that lose everything are left out. */
static bool slice_concat(const struct ts_view *view, uint64_t start_at, uint64_t count, uint64_t step,
                         struct ts_arena *arena, struct ts_view *out)
{
    uint64_t begin = 0, next = start_at, left = count; /* next: index of the joined axis that is wanted */
    size_t kept = 0;
    for (size_t i = 0; i < view->part_count && left; i++) {
        uint64_t size = view->parts[i].shape[view->axis], here;
        if (next < begin + size) {
            here = (begin + size - next - 1) / step + 1;
            here = here < left ? here : left;
            if (!ts_view_slice(&view->parts[i], view->axis, next - begin, here, step, arena, &out->parts[kept++]))
                return false;
            next += here * step;
            left -= here;
        }
        begin += size;
    }
    out->part_count = kept;
    out->even = false;
    return true;
}

bool ts_view_slice(const struct ts_view *view, unsigned axis, uint64_t start_at, uint64_t count, uint64_t step,
                   struct ts_arena *arena, struct ts_view *out)
{
    struct ts_view made;
    if (axis >= view->rank || step == 0 || start_at > view->shape[axis] ||
        (count && (start_at >= view->shape[axis] || (view->shape[axis] - 1 - start_at) / step < count - 1)) ||
        !start(view, view->rank, arena, &made))
        return false;
    memcpy(made.shape, view->shape, view->rank * sizeof *made.shape);
    made.shape[axis] = count;
    if (!count_of(made.shape, made.rank, &made.count))
        return false;
    if (view->join == TS_JOIN_NONE) {
        memcpy(made.strides, view->strides, view->rank * sizeof *made.strides);
        if (count > 1)
            made.strides[axis] = (int64_t)((uint64_t)view->strides[axis] * step);
        if (made.count)
            made.offset += start_at * (uint64_t)view->strides[axis];
    } else if (!start_parts(view, view->part_count, arena, &made)) {
        return false;
    } else if (view->join == TS_JOIN_CONCAT && axis == view->axis) {
        if (!slice_concat(view, start_at, count, step, arena, &made))
            return false;
    } else {
        for (size_t i = 0; i < view->part_count; i++)
            if (!ts_view_slice(&view->parts[i], axis, start_at, count, step, arena, &made.parts[i]))
                return false;
    }
    if (made.join == TS_JOIN_CONCAT && made.part_count == 1) { /* nothing is joined any more */
        const double add = made.add;
        const bool decay = made.decay;
        made = made.parts[0];
        made.add += add;
        made.decay = made.decay || decay;
    }
    *out = made;
    return true;
}

bool ts_view_join(enum ts_join join, unsigned axis, struct ts_view *parts, size_t count, struct ts_arena *arena,
                  struct ts_view *out)
{
    struct ts_view made = {
        .join = join, .axis = axis, .parts = parts, .part_count = count, .even = join == TS_JOIN_CONCAT};
    const struct ts_view *first = parts;
    if (count == 0 || join == TS_JOIN_NONE || (join == TS_JOIN_CONCAT && axis >= first->rank))
        return false;
    made.tensor = first->tensor;
    if (!start(&made, first->rank, arena, &made))
        return false;
    if (made.rank)
        memcpy(made.shape, first->shape, made.rank * sizeof *made.shape);
    for (size_t i = 1; i < count; i++) {
        if (parts[i].rank != made.rank ||
            ts_type_info(parts[i].tensor->type)->components != ts_type_info(made.tensor->type)->components)
            return false;
        for (unsigned k = 0; k < made.rank; k++) {
            if (join == TS_JOIN_CONCAT && k == axis) {
                made.even = made.even && parts[i].shape[k] == first->shape[k];
                if (!ts_add(made.shape[k], parts[i].shape[k], &made.shape[k]))
                    return false;
            } else if (parts[i].shape[k] != made.shape[k]) {
                return false;
            }
        }
    }
    if (!count_of(made.shape, made.rank, &made.count))
        return false;
    *out = made;
    return true;
}
