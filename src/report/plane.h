/* Plane: a pair of tensors as a small grid of cells, for a picture.
 *
 * The last axis runs to the right, all others downward; what has one axis only is wrapped. The plane is cut into at
 * most TS_PLANE_CELLS by TS_PLANE_CELLS cells, and a cell holds the element of largest magnitude among those looked at:
 * all of them, or an even spread where the tensor is large, and the worst element in any case. */
#ifndef TS_REPORT_PLANE_H
#define TS_REPORT_PLANE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "pair/pair.h"

#define TS_PLANE_CELLS 128u

struct ts_plane {
    const struct ts_pair *pair;
    uint64_t mark; /* the element to point at, UINT64_MAX for none */
    double mark_a, mark_b;
    uint64_t rows, columns, count; /* count: of elements; the last row of a wrapped one may be short */
    uint64_t wrapped;              /* the width it was wrapped at, or 0 */
    unsigned height, width;        /* cells */
    float *a, *b, *difference;     /* per cell */
    uint8_t *seen;                 /* per cell: something was looked at */
    bool sampled;                  /* not everything was looked at */
    /* private */
    uint64_t take_rows, take_columns; /* per cell */
    unsigned components;              /* numbers per element */
    float *buffer_a, *buffer_b;
};

/* Looks at the pair of a plane in which only pair and mark are set. The pair has no problem, at least one element, and
 * as many numbers per element on both sides. Release it also after an error, which leaves the layout in place. */
enum ts_status ts_plane_read(struct ts_plane *plane, struct ts_error *error);
void ts_plane_release(struct ts_plane *plane);

/* The first element of a cell when `size` of them are cut into `cells`: floor(cell * size / cells) without overflow. */
static inline uint64_t ts_cut(uint64_t size, unsigned cells, unsigned cell)
{
    return size / cells * cell + size % cells * cell / cells;
}

/* Numbers per element: 2 for complex types. */
unsigned ts_view_components(const struct ts_view *view);

#endif
