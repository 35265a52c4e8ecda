/* Owns tiles: 256 by 256 numbers of a plane through a tensor, at full size or reduced so that no bad element
 * disappears. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "serve/opened.h"
#include "serve/server.h"

#define TILE       256
#define LEVEL_MOST 40
#define QUICK_MOST ((uint64_t)1 << 19) /* elements that a quick answer may look at */
#define LOOK_MOST  ((uint64_t)1 << 26) /* bytes of one side for a tile; above, rows and columns are sampled */
#define PAGE       4096

/* The plane, and the part of it that the tile shows. */
struct plane {
    struct ts_focus *subject;
    struct ts_view views[2];             /* [rows, columns, 1, ...], columns taken every `column_step` */
    int axes[2];                         /* of the subject: rows, columns; -1 where the plane has none */
    uint64_t at[TS_MAX_RANK];            /* the other axes */
    uint64_t size[2], first[2], span[2]; /* entries of the axes; what the tile covers */
    unsigned level;
    uint64_t row_step, column_step, columns; /* columns that are read of each row */
    uint32_t rows_out, columns_out;
};

static bool take_axes(struct ts_call *call, struct plane *plane)
{
    const struct ts_focus *subject = plane->subject;
    uint64_t axes[2], fixed[TS_MAX_RANK];
    size_t count, given;
    unsigned spanned, other = 0;
    if (!ts_call_counts(call, "axes", axes, 2, &count) || !ts_call_counts(call, "at", fixed, TS_MAX_RANK, &given))
        return false;
    spanned = subject->rank < 2 ? subject->rank : 2;
    plane->axes[0] = subject->rank >= 2 ? (int)subject->rank - 2 : -1;
    plane->axes[1] = (int)subject->rank - 1;
    if (count == 2 && subject->rank >= 2) {
        if (axes[0] >= subject->rank || axes[1] >= subject->rank || axes[0] == axes[1]) {
            ts_call_fail(call, 400, NULL, "axes must be two different axes below %u", subject->rank);
            return false;
        }
        plane->axes[0] = (int)axes[0];
        plane->axes[1] = (int)axes[1];
    } else if (count == 1 && subject->rank >= 1) { /* one row along that axis */
        if (axes[0] >= subject->rank) {
            ts_call_fail(call, 400, NULL, "the axis must be below %u", subject->rank);
            return false;
        }
        plane->axes[0] = -1;
        plane->axes[1] = (int)axes[0];
        spanned = 1;
    }
    if (given && given != subject->rank && given != subject->rank - spanned) {
        ts_call_fail(call, 400, NULL, "at needs %u numbers, one per axis", subject->rank);
        return false;
    }
    for (unsigned i = 0; i < subject->rank; i++) {
        bool in_plane = (int)i == plane->axes[0] || (int)i == plane->axes[1];
        plane->at[i] = given == subject->rank ? fixed[i] : !in_plane && given ? fixed[other] : 0;
        other += !in_plane;
        if (in_plane) {
            plane->at[i] = 0;
        } else if (plane->at[i] >= subject->shape[i]) {
            ts_call_fail(call, 400, NULL, "axis %u has %" PRIu64 " entries; there is none at %" PRIu64, i,
                         subject->shape[i], plane->at[i]);
            return false;
        }
    }
    return true;
}

/* Bytes between two neighbours in a row. */
static uint64_t column_bytes(const struct plane *plane)
{
    const struct ts_view *view = &plane->subject->views[plane->subject->has[0] ? 0 : 1];
    int64_t stride = view->join == TS_JOIN_NONE && plane->axes[1] >= 0 ? view->strides[plane->axes[1]] : 1;
    uint64_t distance = (uint64_t)(stride < 0 ? -stride : stride);
    return distance < PAGE ? 4 * distance : PAGE;
}

/* What is not beside its neighbours costs a page for each element. Whole rows are cheap to read: of a cell they are
 * thinned out first, to two; then columns; one element of each cell is always looked at. */
static void thin_out(struct plane *plane)
{
    uint64_t cell = (uint64_t)1 << plane->level, apart = column_bytes(plane);
    plane->row_step = plane->column_step = 1;
    for (;;) {
        uint64_t rows = (plane->span[0] - 1) / plane->row_step + 1;
        uint64_t columns = (plane->span[1] - 1) / plane->column_step + 1;
        uint64_t each = apart < PAGE / plane->column_step ? apart * plane->column_step : PAGE;
        if (columns <= LOOK_MOST / each / rows || (plane->row_step == cell && plane->column_step == cell))
            return;
        if (2 * plane->row_step < cell || plane->column_step == cell)
            plane->row_step *= 2;
        else
            plane->column_step *= 2;
    }
}

/* Where the tile lies and how closely it can be looked at. */
static bool take_place(struct ts_call *call, struct plane *plane)
{
    uint64_t place[2] = {0, 0}, level = 0;
    uint32_t *out[2] = {&plane->rows_out, &plane->columns_out};
    if (!ts_call_count(call, "level", LEVEL_MOST, &level) || !ts_call_count(call, "y", INT64_MAX, &place[0]) ||
        !ts_call_count(call, "x", INT64_MAX, &place[1]))
        return false;
    plane->level = (unsigned)level;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t width = (uint64_t)TILE << level, cell = (uint64_t)1 << level;
        plane->size[i] = plane->axes[i] < 0 ? 1 : plane->subject->shape[plane->axes[i]];
        if (plane->subject->count == 0 || place[i] > (plane->size[i] - 1) / width) {
            ts_call_fail(call, 404, NULL, "there is no tile at x %" PRIu64 ", y %" PRIu64 " of level %u", place[1],
                         place[0], plane->level);
            return false;
        }
        plane->first[i] = place[i] * width;
        plane->span[i] = plane->size[i] - plane->first[i] < width ? plane->size[i] - plane->first[i] : width;
        *out[i] = (uint32_t)((plane->span[i] - 1) / cell + 1);
    }
    thin_out(plane);
    plane->columns = (plane->span[1] - 1) / plane->column_step + 1;
    return true;
}

static bool cut_views(struct plane *plane)
{
    struct ts_focus *subject = plane->subject;
    unsigned order[TS_MAX_RANK], count = 0;
    for (unsigned i = 0; i < 2; i++)
        if (plane->axes[i] >= 0)
            order[count++] = (unsigned)plane->axes[i];
    for (unsigned i = 0; i < subject->rank; i++)
        if ((int)i != plane->axes[0] && (int)i != plane->axes[1])
            order[count++] = i;
    for (unsigned side = 0; side < 2; side++) {
        struct ts_view *view = &plane->views[side];
        if (!subject->has[side])
            continue;
        *view = subject->views[side];
        for (unsigned i = 0; i < subject->rank; i++) {
            bool rows = (int)i == plane->axes[0], columns = (int)i == plane->axes[1];
            uint64_t start = rows ? plane->first[0] : columns ? plane->first[1] : plane->at[i];
            uint64_t entries = rows ? plane->span[0] : columns ? plane->columns : 1;
            if (!ts_view_slice(view, i, start, entries, columns ? plane->column_step : 1, &subject->arena, view))
                return false;
        }
        if (!ts_view_permute(view, order, &subject->arena, view))
            return false;
    }
    return true;
}

static enum ts_status read_row(const struct plane *plane, unsigned side, uint64_t row, float *out,
                               struct ts_error *error)
{
    size_t count = (size_t)plane->columns;
    TS_TRY(ts_view_read_f32(&plane->views[side], row * plane->columns, count, out, error));
    if (plane->subject->components == 2) /* complex numbers are shown by their magnitude */
        for (size_t i = 0; i < count; i++)
            out[i] = hypotf(out[2 * i], out[2 * i + 1]);
    return TS_OK;
}

static float badness(float a, float b)
{
    if (isnan(a) && isnan(b))
        return FLT_MAX;
    if (isnan(a) || isnan(b))
        return INFINITY;
    return a == b ? 0 : fabsf(a - b);
}

/* The worst element of each cell so far. */
struct cells {
    float *worst, *a, *b; /* one row of cells */
};

/* One row of elements into its row of cells. */
static void reduce(const struct plane *plane, const float *a, const float *b, struct cells *cells)
{
    uint64_t per_cell = ((uint64_t)1 << plane->level) / plane->column_step;
    size_t column = 0;
    if (per_cell == 0)
        per_cell = 1;
    for (uint32_t cell = 0; cell < plane->columns_out; cell++) {
        size_t end = column + (size_t)per_cell;
        float worst = cells->worst[cell];
        end = end < plane->columns ? end : (size_t)plane->columns;
        for (; column < end; column++) {
            float difference = b ? fabsf(a[column] - b[column]) : fabsf(a[column]);
            if (difference <= worst)
                continue;
            difference = b ? badness(a[column], b[column]) : isnan(a[column]) ? INFINITY : difference;
            if (difference <= worst)
                continue;
            worst = difference;
            cells->a[cell] = a[column];
            if (b)
                cells->b[cell] = b[column];
        }
        cells->worst[cell] = worst;
    }
}

/* An element that is known to be bad takes its cell even where rows or columns are left out. */
static enum ts_status put_known(const struct plane *plane, uint64_t index, float *tile, size_t plane_size,
                                struct ts_error *error)
{
    const struct ts_focus *subject = plane->subject;
    uint64_t at[TS_MAX_RANK] = {0}, rest = index, row, column;
    size_t cell;
    float a[2], b[2];
    if (index >= subject->count || !subject->has[0] || !subject->has[1] || subject->components == 2)
        return TS_OK;
    for (unsigned i = subject->rank; i-- > 0;) {
        at[i] = rest % subject->shape[i];
        rest /= subject->shape[i];
        if ((int)i != plane->axes[0] && (int)i != plane->axes[1] && at[i] != plane->at[i])
            return TS_OK;
    }
    row = plane->axes[0] < 0 ? 0 : at[plane->axes[0]];
    column = plane->axes[1] < 0 ? 0 : at[plane->axes[1]];
    if (row < plane->first[0] || row - plane->first[0] >= plane->span[0] || column < plane->first[1] ||
        column - plane->first[1] >= plane->span[1])
        return TS_OK;
    cell = (size_t)((row - plane->first[0]) >> plane->level) * plane->columns_out +
           (size_t)((column - plane->first[1]) >> plane->level);
    TS_TRY(ts_view_read_f32(&subject->views[0], index, 1, a, error));
    TS_TRY(ts_view_read_f32(&subject->views[1], index, 1, b, error));
    if (badness(a[0], b[0]) > badness(tile[cell], tile[plane_size + cell])) {
        tile[cell] = a[0];
        tile[plane_size + cell] = b[0];
    }
    return TS_OK;
}

static enum ts_status put_all_known(const struct plane *plane, float *tile, size_t plane_size, struct ts_error *error)
{
    struct ts_focus *subject = plane->subject;
    struct ts_worst known = {0};
    if (!subject->pair || !subject->delta)
        return TS_OK;
    if (!subject->remap) {
        pthread_mutex_lock(&subject->opened->lock);
        if (subject->opened->worst[subject->index])
            known = *subject->opened->worst[subject->index];
        pthread_mutex_unlock(&subject->opened->lock);
    }
    for (size_t i = known.count; i-- > 0;)
        TS_TRY(put_known(plane, known.index[i], tile, plane_size, error));
    TS_TRY(put_known(plane, subject->delta->worst, tile, plane_size, error));
    return put_known(plane, subject->delta->first_non_finite_mismatch, tile, plane_size, error);
}

/* At full size there is nothing to choose. */
static enum ts_status copy_rows(struct ts_call *call, const struct plane *plane, float *tile, struct ts_error *error)
{
    const struct ts_focus *subject = plane->subject;
    uint64_t places = column_bytes(plane) < PAGE ? 1 : plane->columns;
    for (unsigned side = 0; side < 2; side++)
        for (uint64_t row = 0; subject->has[side] && row < plane->span[0]; row++) {
            TS_TRY(ts_view_read_f32(&plane->views[side], row * plane->columns, (size_t)plane->columns, tile, error));
            ts_opened_touch(call->opened, places, plane->columns * 4);
            tile += plane->columns;
        }
    return TS_OK;
}

/* Fills tile[sides][rows][columns]. */
static enum ts_status paint(struct ts_call *call, const struct plane *plane, float *tile, struct ts_error *error)
{
    const struct ts_focus *subject = plane->subject;
    size_t plane_size = (size_t)plane->rows_out * plane->columns_out, width = (size_t)plane->columns;
    unsigned one = subject->has[0] ? 0 : 1;
    bool both = subject->has[0] && subject->has[1];
    uint64_t apart = column_bytes(plane) * plane->column_step, cell = (uint64_t)1 << plane->level;
    float *rows[2], *worst = malloc(TILE * sizeof *worst);
    enum ts_status status = TS_OK;
    rows[0] = malloc((2 * width + 1) * sizeof *rows[0]);
    rows[1] = malloc((2 * width + 1) * sizeof *rows[1]);
    if (!rows[0] || !rows[1] || !worst)
        status = ts_fail_memory(error);
    for (uint32_t row = 0; row < plane->rows_out && status == TS_OK; row++) {
        uint64_t end = ((uint64_t)row + 1) * cell < plane->span[0] ? ((uint64_t)row + 1) * cell : plane->span[0];
        struct cells cells = {worst, tile + (size_t)row * plane->columns_out,
                              tile + plane_size + (size_t)row * plane->columns_out};
        for (uint32_t i = 0; i < plane->columns_out; i++)
            worst[i] = -1;
        for (uint64_t from = row * cell; from < end && status == TS_OK; from += plane->row_step) {
            status = read_row(plane, one, from, rows[0], error);
            if (status == TS_OK && both)
                status = read_row(plane, 1, from, rows[1], error);
            if (status == TS_OK)
                reduce(plane, rows[0], both ? rows[1] : NULL, &cells);
            ts_opened_touch(call->opened, apart < PAGE ? 2 : 2 * plane->columns, plane->columns * 8);
        }
        if (atomic_load(&call->server->stopping))
            status = ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "the server stops");
    }
    if (status == TS_OK && (plane->row_step > 1 || plane->column_step > 1))
        status = put_all_known(plane, tile, plane_size, error);
    free(rows[0]);
    free(rows[1]);
    free(worst);
    return status;
}

/* The data goes over to the answer as it is. */
static void answer(struct ts_call *call, struct ts_cached_tile *tile)
{
    ts_buffer_release(&call->out);
    ts_buffer_init(&call->out, TS_CALL_ANSWER);
    call->out.data = tile->data;
    call->out.size = tile->size;
    call->out.capacity = tile->size + 1;
    call->out.data[tile->size] = '\0';
    tile->data = NULL;
    call->status = 200;
    call->type = "application/octet-stream";
    ts_call_header(call, "X-Tsleuth-Shape", "%u,%u,%u", tile->sides, tile->rows, tile->columns);
    if (tile->sampled)
        ts_call_header(call, "X-Tsleuth-Sampled", "1");
}

static void make_key(const struct plane *plane, char *key, size_t size)
{
    int used = snprintf(key, size, "%s/%d,%d/%u/%" PRIu64 ",%" PRIu64, plane->subject->key, plane->axes[0],
                        plane->axes[1], plane->level, plane->first[0], plane->first[1]);
    for (unsigned i = 0; i < plane->subject->rank && (size_t)used < size; i++)
        used += snprintf(key + used, size - (size_t)used, ",%" PRIu64, plane->at[i]);
}

static void make_tile(struct ts_call *call, struct plane *plane)
{
    struct ts_focus *subject = plane->subject;
    uint64_t looked = (plane->span[0] - 1) / plane->row_step * plane->columns + plane->columns;
    /* an element in a page of its own costs as much as dozens side by side */
    bool dear = looked * (column_bytes(plane) * plane->column_step < PAGE ? 1 : 64) > QUICK_MOST;
    struct ts_cached_tile tile = {.rows = plane->rows_out, .columns = plane->columns_out};
    struct ts_error error;
    char key[2048];
    make_key(plane, key, sizeof key);
    if (dear && ts_tile_cache_get(&call->server->tiles, key, &tile)) {
        answer(call, &tile);
        return;
    }
    if (dear && !call->later) { /* not in the way of quick answers */
        call->later = true;
        return;
    }
    tile.sides = (uint32_t)subject->has[0] + (uint32_t)subject->has[1];
    tile.sampled = plane->row_step > 1 || plane->column_step > 1;
    tile.size = (size_t)tile.sides * tile.rows * tile.columns * sizeof(float);
    tile.data = malloc(tile.size + 1);
    if (!tile.data || !cut_views(plane)) {
        ts_call_fail(call, 503, NULL, "out of memory");
    } else if ((plane->level == 0 && subject->components == 1 ? copy_rows : paint)(call, plane, tile.data, &error) !=
               TS_OK) {
        ts_call_error(call, &error);
    } else {
        if (dear)
            ts_tile_cache_put(&call->server->tiles, key, &tile);
        answer(call, &tile);
    }
    free(tile.data);
}

void ts_handle_tile(struct ts_call *call)
{
    struct ts_focus subject;
    struct plane plane;
    if (!ts_focus_take(call, &subject))
        return;
    plane = (struct plane){.subject = &subject};
    if (take_axes(call, &plane) && take_place(call, &plane))
        make_tile(call, &plane);
    ts_focus_release(&subject);
}
