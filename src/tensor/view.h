/* View: a tensor seen in another layout, or several seen as one. The arithmetic of a recipe.
 *
 * A plain view walks one tensor: element [i, j, ...] of the view is the element of the tensor whose flat row-major
 * index is offset + i * strides[0] + j * strides[1] + ..., whatever the tensor's own storage is. Squeezing, permuting,
 * splitting and merging axes and slicing are all changes of shape, strides and offset. A joined view is made of parts:
 * concatenated along an axis (shards) or added up (partial sums). `add` is added to every value ((1 + w) norms);
 * `decay` takes -exp of it first (the decay of a state, which some formats keep as its logarithm), and `flags` makes 0
 * and -inf of the flags of a mask.
 *
 * Views are small values without ownership; parts live in an arena of whoever made them. */
#ifndef TS_TENSOR_VIEW_H
#define TS_TENSOR_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensor/tensor.h"

enum ts_join { TS_JOIN_NONE, TS_JOIN_CONCAT, TS_JOIN_SUM };

/* Flags of a mask that are read as what is added to scores: what is not 0 shows an entry, or hides it. */
enum ts_flags { TS_FLAGS_NONE, TS_FLAGS_SHOW, TS_FLAGS_HIDE };

struct ts_view {
    const struct ts_tensor *tensor; /* TS_JOIN_NONE; for joins the first part's, for its type */
    unsigned rank;
    uint64_t *shape;  /* in an arena */
    int64_t *strides; /* in an arena; TS_JOIN_NONE only */
    uint64_t offset;
    uint64_t count;
    double add;
    bool decay;
    enum ts_flags flags; /* TS_JOIN_NONE only */
    bool even; /* TS_JOIN_CONCAT: all parts are of one size along the axis, and one is found without the others */
    enum ts_join join;
    unsigned axis; /* TS_JOIN_CONCAT: of the joined shape */
    struct ts_view *parts;
    size_t part_count;
};

/* The values are not those of the tensor. */
static inline bool ts_view_is_computed(const struct ts_view *view)
{
    return view->add != 0 || view->decay || view->flags;
}

/* The tensor as it is. */
bool ts_view_of(const struct ts_tensor *tensor, struct ts_arena *arena, struct ts_view *view);
bool ts_view_same_shape(const struct ts_view *a, const struct ts_view *b);
/* Axes in another order: axis i of the result is axis order[i] of the view. False without memory. */
bool ts_view_permute(const struct ts_view *view, const unsigned *order, struct ts_arena *arena, struct ts_view *out);
/* The last two axes changed places. False without two of them or without memory. */
bool ts_view_transpose(const struct ts_view *view, struct ts_arena *arena, struct ts_view *out);
/* Another shape with the same elements in the same row-major order, when strides allow it; else false. */
bool ts_view_reshape(const struct ts_view *view, const uint64_t *shape, unsigned rank, struct ts_arena *arena,
                     struct ts_view *out);
/* Elements [start, start + count * step) along an axis. */
bool ts_view_slice(const struct ts_view *view, unsigned axis, uint64_t start, uint64_t count, uint64_t step,
                   struct ts_arena *arena, struct ts_view *out);
/* Parts along an axis (their other axes equal), or their sum (all axes equal). The parts array is kept. */
bool ts_view_join(enum ts_join join, unsigned axis, struct ts_view *parts, size_t count, struct ts_arena *arena,
                  struct ts_view *out);

/* Values from flat row-major index `first` of the view. Thread-safe. Complex elements give two numbers each. */
enum ts_status ts_view_read_f32(const struct ts_view *view, uint64_t first, size_t count, float *out,
                                struct ts_error *error);
enum ts_status ts_view_read_f64(const struct ts_view *view, uint64_t first, size_t count, double *out,
                                struct ts_error *error);
enum ts_status ts_view_read_i64(const struct ts_view *view, uint64_t first, size_t count, int64_t *out,
                                struct ts_error *error);

/* The bytes of the view when it is a plain, contiguous, unswapped piece of a contiguous tensor of a type with one
 * element per block, and its values are the tensor's own; else NULL. */
const uint8_t *ts_view_bytes(const struct ts_view *view);
/* Says that elements [first, first + count) will not be needed soon; see ts_source_forget. */
void ts_view_forget(const struct ts_view *view, uint64_t first, uint64_t count);

#endif
