/* For view.c and view_read.c only: axes reduced to what a walk over the elements has to know. */
#ifndef TS_TENSOR_VIEW_WALK_H
#define TS_TENSOR_VIEW_WALK_H

#include <stdint.h>

#include "tensor/tensor.h"

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

#endif
