/* Reads through views whose walk is far from the order of their file (view_box.h), without the mapping.
 *
 * Elements that are read one after the other come from a slab: some rows of the view, turned into its order at once.
 * Rows that are read here and there are read together. */
#ifndef TS_TENSOR_VIEW_FAR_H
#define TS_TENSOR_VIEW_FAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/view.h"

/* For view_read.c: whether this thread walks a plain view and has come to `first` that way, or asks for much at once;
 * to be asked with every read of a far view. Then elements as they are stored, some of those that are asked for: tells
 * how many. Thread-safe. */
bool ts_view_slab_follows(const struct ts_view *view, uint64_t first, size_t count);
enum ts_status ts_view_slab_read(const struct ts_view *view, uint64_t first, size_t count, uint8_t *out, size_t *copied,
                                 struct ts_error *error);

/* Rows of the last axis, out[i * width ..] for rows[i]. Of far views they are read together, in one walk over the file;
 * other views are read row by row. Complex elements give two numbers each. */
enum ts_status ts_view_read_rows_f64(const struct ts_view *view, const uint64_t *rows, size_t count, double *out,
                                     struct ts_error *error);
enum ts_status ts_view_read_rows_f32(const struct ts_view *view, const uint64_t *rows, size_t count, float *out,
                                     struct ts_error *error);

#endif
