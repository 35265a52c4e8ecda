/* Slice: the part of a tensor that a person asked for: "[0, :5, -1, ...]". */
#ifndef TS_TENSOR_SLICE_H
#define TS_TENSOR_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/tensor.h"

struct ts_slice_axis {
    uint64_t start, count; /* first index, how many */
    uint64_t step;         /* at least 1 */
    bool single;           /* given as one index: the axis does not count in the result's shape */
};

struct ts_slice {
    unsigned rank;
    struct ts_slice_axis axes[TS_MAX_RANK];
};

void ts_slice_all(const struct ts_tensor *tensor, struct ts_slice *slice);
/* text: what stands between the brackets. Indices, start:stop:step with any part left out, negative ones from the end,
 * one "..." for as many whole axes as fit. Indices out of range are errors that say the size. */
enum ts_status ts_slice_parse(const struct ts_tensor *tensor, const char *text, size_t size, struct ts_slice *slice,
                              struct ts_error *error);
/* Elements it selects. */
uint64_t ts_slice_count(const struct ts_slice *slice);

#endif
