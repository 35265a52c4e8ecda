/* Boxes: rectangular parts of a view, read by position and turned into the order of the view on the way.
 *
 * A view whose walk is far from the order in which its elements are stored comes by every page of them again and again:
 * through a mapping all of it stays in this process. A box that is some kilobytes wide both ways of the walk and of the
 * store is read in few long pieces, once, into the caller's memory. */
#ifndef TS_TENSOR_VIEW_BOX_H
#define TS_TENSOR_VIEW_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/view.h"

/* Whether elements that follow each other in the view, some millions of them, stand over much more of their file than
 * they take. False for what is small enough to stay mapped. */
bool ts_view_is_far(const struct ts_view *view);

/* The type that boxes of a view have their elements in: that of its tensors, f32 for those that have values in packs
 * or through a codec. False for views that are not read in boxes: sums, parts of several types, something added. */
bool ts_view_box_type(const struct ts_view *view, enum ts_type *type);

/* How far apart the neighbours along each axis are stored, in elements; of parts, those of the first. */
void ts_view_box_strides(const struct ts_view *view, uint64_t *strides);

/* Bytes of memory that reading takes beside its result. */
#define TS_VIEW_BOX_SCRATCH ((size_t)1 << 20)

/* Elements [first[i], first[i] + count[i]) of each axis i, none of them empty, as ts_view_box_type says and row-major,
 * swapped as they are stored. */
enum ts_status ts_view_read_box(const struct ts_view *view, const uint64_t *first, const uint64_t *count, uint8_t *out,
                                uint8_t *scratch, struct ts_error *error);

#endif
