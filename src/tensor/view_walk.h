/* For the files of views only: axes reduced to what a walk over the elements has to know. */
#ifndef TS_TENSOR_VIEW_WALK_H
#define TS_TENSOR_VIEW_WALK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "tensor/tensor.h"
#include "tensor/view.h"

/* What a walk may keep mapped: tensors of fewer bytes are never far, and neither are elements that stand closer. */
#define TS_VIEW_FAR  ((uint64_t)48 << 20)
#define TS_VIEW_NEAR ((uint64_t)16 << 20)

struct ts_view_walk {
    unsigned rank;
    uint64_t shape[TS_MAX_RANK]; /* none is 1 */
    int64_t strides[TS_MAX_RANK];
};

/* Leaves out axes of one element and merges each axis with the next one where a step of the outer is as far as all
 * steps of the inner. Row-major order stays the same. For shapes without a zero. */
static inline void ts_view_walk_merge(const uint64_t *shape, const int64_t *strides, unsigned rank,
                                      struct ts_view_walk *walk)
{
    walk->rank = 0;
    for (unsigned i = 0; i < rank; i++) {
        unsigned last = walk->rank - 1;
        if (shape[i] == 1)
            continue;
        if (walk->rank && (uint64_t)walk->strides[last] == shape[i] * (uint64_t)strides[i]) {
            walk->shape[last] *= shape[i];
            walk->strides[last] = strides[i];
        } else {
            walk->shape[walk->rank] = shape[i];
            walk->strides[walk->rank++] = strides[i];
        }
    }
}

/* For a tensor with strides of its own: turns the axes, of steps in its logical order, into those of its storage, and
 * base into the view's first element there. Each axis must run along one axis of the tensor, without crossing its end:
 * false where it does not. */
bool ts_view_walk_through(const struct ts_view *view, struct ts_view_walk *axes, uint64_t *base);

/* The axes of a plain view as they are stored, none left out, and its first element there. False as above. */
bool ts_view_axes(const struct ts_view *view, struct ts_view_walk *axes, uint64_t *base);

/* Whether some thousand to some million elements in the order of the walk stand over more than four times what they
 * take, and over more than may stay mapped, and the walk comes back to them. */
static inline bool ts_view_walk_is_far(const struct ts_view_walk *axes, uint64_t size)
{
    const uint64_t most = (uint64_t)4 << 20;
    uint64_t elements = 1, reach = 0;
    bool back = false;
    for (unsigned i = 1; i < axes->rank && !back; i++)
        back = llabs(axes->strides[i]) > llabs(axes->strides[i - 1]);
    if (!back)
        return false;
    for (unsigned i = axes->rank; i-- > 0 && elements < most;) {
        const uint64_t left = (most + elements - 1) / elements, count = axes->shape[i] < left ? axes->shape[i] : left;
        reach += (count - 1) * (uint64_t)llabs(axes->strides[i]);
        elements *= count;
        if (reach / 4 > elements && reach * (size ? size : 1) > TS_VIEW_NEAR)
            return true;
    }
    return false;
}

#endif
