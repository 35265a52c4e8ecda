#include "report/plane.h"

#include <math.h>
#include <stdlib.h>

#include "base/progress.h"

#define BUDGET ((uint64_t)1 << 22) /* elements looked at, per side: about 10 ms */
#define PIECE  4096u               /* elements per read */

unsigned ts_view_components(const struct ts_view *view)
{
    return view->tensor ? ts_type_info(view->tensor->type)->components : 1;
}

static void lay_out(struct ts_plane *plane)
{
    const struct ts_view *view = &plane->pair->a;
    uint64_t per_cell, block_rows, block_columns;
    plane->count = view->count;
    plane->columns = view->rank ? view->shape[view->rank - 1] : 1;
    plane->rows = plane->columns ? view->count / plane->columns : 0;
    if (plane->rows == 1 || plane->columns == 1) {
        plane->rows = 1;
        plane->columns = view->count;
        if (plane->columns > TS_PLANE_CELLS) {
            for (plane->columns = TS_PLANE_CELLS / 2; plane->columns < view->count / plane->columns;)
                plane->columns *= 2;
            plane->rows = (view->count + plane->columns - 1) / plane->columns;
            plane->wrapped = plane->columns;
        }
    }
    plane->height = plane->rows < TS_PLANE_CELLS ? (unsigned)plane->rows : TS_PLANE_CELLS;
    plane->width = plane->columns < TS_PLANE_CELLS ? (unsigned)plane->columns : TS_PLANE_CELLS;
    per_cell = BUDGET / ((uint64_t)plane->height * plane->width);
    block_rows = (plane->rows + plane->height - 1) / plane->height;
    block_columns = (plane->columns + plane->width - 1) / plane->width;
    plane->take_columns = block_columns < per_cell ? block_columns : per_cell;
    if (plane->take_columns > PIECE)
        plane->take_columns = PIECE;
    plane->take_rows = per_cell / plane->take_columns;
    plane->take_rows = plane->take_rows < 1 ? 1 : plane->take_rows > block_rows ? block_rows : plane->take_rows;
}

static bool is_sampled(const struct ts_plane *plane)
{
    return plane->take_rows < (plane->rows + plane->height - 1) / plane->height ||
           plane->take_columns < (plane->columns + plane->width - 1) / plane->width;
}

/* NaN stays, then infinities, then the larger magnitude. */
static float more_telling(float old, float new)
{
    if (isnan(old) || isnan(new))
        return isnan(old) ? old : new;
    return fabsf(new) > fabsf(old) ? new : old;
}

/* Masks come as -inf or as some huge negative number; side by side they agree. */
static bool is_mask(float value)
{
    return value < -1e4f;
}

static float difference_of(float a, float b)
{
    if (a == b || (isnan(a) && isnan(b)) || (is_mask(a) && is_mask(b) && (isinf(a) || isinf(b))))
        return 0;
    return b - a; /* NaN or infinite when one side is */
}

static void look_at(struct ts_plane *plane, unsigned row, unsigned column, float a, float b)
{
    size_t cell = (size_t)row * plane->width + column;
    plane->a[cell] = more_telling(plane->a[cell], a);
    plane->b[cell] = more_telling(plane->b[cell], b);
    plane->difference[cell] = more_telling(plane->difference[cell], difference_of(a, b));
    plane->seen[cell] = 1;
}

static void look_at_complex(struct ts_plane *plane, unsigned row, unsigned column, const float *a, const float *b)
{
    size_t cell = (size_t)row * plane->width + column;
    plane->a[cell] = more_telling(plane->a[cell], hypotf(a[0], a[1]));
    plane->b[cell] = more_telling(plane->b[cell], hypotf(b[0], b[1]));
    plane->difference[cell] =
        more_telling(plane->difference[cell], hypotf(difference_of(a[0], b[0]), difference_of(a[1], b[1])));
    plane->seen[cell] = 1;
}

/* Elements [first, first + size) of a row into the cells they belong to, from the cell `column` on. */
static enum ts_status read_piece(struct ts_plane *plane, unsigned row, uint64_t at, uint64_t first, uint64_t size,
                                 unsigned column, struct ts_error *error)
{
    uint64_t flat = at * plane->columns + first;
    if (flat >= plane->count)
        return TS_OK;
    if (size > plane->count - flat)
        size = plane->count - flat;
    TS_TRY(ts_view_read_f32(&plane->pair->a, flat, (size_t)size, plane->buffer_a, error));
    TS_TRY(ts_view_read_f32(&plane->pair->b, flat, (size_t)size, plane->buffer_b, error));
    for (uint64_t i = 0, next = ts_cut(plane->columns, plane->width, column + 1); i < size; i++) {
        while (first + i >= next)
            next = ts_cut(plane->columns, plane->width, ++column + 1);
        if (plane->components == 2)
            look_at_complex(plane, row, column, plane->buffer_a + 2 * i, plane->buffer_b + 2 * i);
        else
            look_at(plane, row, column, plane->buffer_a[i], plane->buffer_b[i]);
    }
    return TS_OK;
}

static enum ts_status read_row(struct ts_plane *plane, unsigned row, uint64_t at, struct ts_error *error)
{
    if (plane->columns <= PIECE && plane->take_columns * plane->width >= plane->columns)
        return read_piece(plane, row, at, 0, plane->columns, 0, error);
    for (unsigned column = 0; column < plane->width; column++) {
        uint64_t first = ts_cut(plane->columns, plane->width, column);
        uint64_t size = ts_cut(plane->columns, plane->width, column + 1) - first;
        if (size > plane->take_columns)
            size = plane->take_columns;
        TS_TRY(read_piece(plane, row, at, first, size, column, error));
    }
    return TS_OK;
}

/* Cells begin as zeros, and anything is more telling than those. */
static enum ts_status read_cells(struct ts_plane *plane, struct ts_error *error)
{
    uint64_t mark = plane->mark;
    for (unsigned row = 0; row < plane->height; row++) {
        uint64_t first = ts_cut(plane->rows, plane->height, row);
        uint64_t size = ts_cut(plane->rows, plane->height, row + 1) - first;
        uint64_t taken = plane->take_rows < size ? plane->take_rows : size;
        if (atomic_load(&ts_cancelled))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        for (uint64_t k = 0; k < taken; k++)
            TS_TRY(read_row(plane, row, first + size / taken * k + size % taken * k / taken, error));
    }
    if (mark < plane->count && plane->sampled) {
        unsigned row = 0, column = 0;
        while (row + 1 < plane->height && mark / plane->columns >= ts_cut(plane->rows, plane->height, row + 1))
            row++;
        while (column + 1 < plane->width && mark % plane->columns >= ts_cut(plane->columns, plane->width, column + 1))
            column++;
        look_at(plane, row, column, (float)plane->mark_a, (float)plane->mark_b);
    }
    return TS_OK;
}

enum ts_status ts_plane_read(struct ts_plane *plane, struct ts_error *error)
{
    size_t cells;
    plane->components = ts_view_components(&plane->pair->a);
    lay_out(plane);
    plane->sampled = is_sampled(plane);
    cells = (size_t)plane->height * plane->width;
    plane->a = calloc(cells, sizeof *plane->a);
    plane->b = calloc(cells, sizeof *plane->b);
    plane->difference = calloc(cells, sizeof *plane->difference);
    plane->seen = calloc(cells, 1);
    plane->buffer_a = calloc((size_t)2 * PIECE, sizeof *plane->buffer_a);
    plane->buffer_b = calloc((size_t)2 * PIECE, sizeof *plane->buffer_b);
    if (!plane->a || !plane->b || !plane->difference || !plane->seen || !plane->buffer_a || !plane->buffer_b)
        return ts_fail_memory(error);
    return read_cells(plane, error);
}

void ts_plane_release(struct ts_plane *plane)
{
    free(plane->a);
    free(plane->b);
    free(plane->difference);
    free(plane->seen);
    free(plane->buffer_a);
    free(plane->buffer_b);
    *plane = (struct ts_plane){0};
}
