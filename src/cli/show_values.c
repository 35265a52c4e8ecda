/* Owns how a slice is laid out: the last two axes as a grid with row and column numbers, the others one after another.
 * Long axes are shortened to their ends unless everything is wanted. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/show.h"

/* Past this many values an axis longer than 2 * ENDS + 2 shows its first and last ENDS entries. */
#define SHORTEN_ABOVE 1000
#define ENDS          3

#define GAP UINT64_MAX

/* The entries of one axis that are shown: true indices, GAP where some are left out. */
struct entries {
    uint64_t *at;
    size_t count;
};

static bool list_entries(const struct ts_slice_axis *axis, bool shorten, struct entries *entries)
{
    bool cut = shorten && axis->count > 2 * ENDS + 2;
    uint64_t count = cut ? 2 * ENDS + 1 : axis->count;
    entries->count = (size_t)count;
    entries->at = calloc((size_t)count + 1, sizeof *entries->at);
    if (!entries->at)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = !cut || i < ENDS ? i : axis->count - (count - i);
        entries->at[i] = cut && i == ENDS ? GAP : axis->start + index * axis->step;
    }
    return true;
}

static uint64_t flat_index(const struct ts_tensor *tensor, const uint64_t *at)
{
    uint64_t flat = 0;
    for (unsigned i = 0; i < tensor->rank; i++)
        flat = flat * tensor->shape[i] + at[i];
    return flat;
}

/* The byte of an element that stands alone in its bytes. */
static uint64_t byte_of(const struct ts_tensor *tensor, uint64_t index)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    int64_t place = (int64_t)index;
    if (tensor->strides) {
        place = 0;
        for (unsigned i = tensor->rank; i-- > 0;) {
            place += (int64_t)(index % tensor->shape[i]) * tensor->strides[i];
            index /= tensor->shape[i];
        }
    }
    return tensor->offset + (uint64_t)(place / info->block_elements * info->block_bytes);
}

static void put_bits(struct ts_buffer *out, const struct ts_tensor *tensor, uint64_t index)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    if (tensor->type == TS_CODED) {
        ts_buffer_string(out, "--raw");
    } else if (ts_type_is_block(tensor->type)) {
        struct ts_block_part part;
        uint8_t block[512];
        const uint8_t *from = tensor->source->data + tensor->offset + index / info->block_elements * info->block_bytes;
        memcpy(block, from, info->block_bytes);
        if (tensor->swapped)
            ts_block_swap((enum ts_block_type)(tensor->type - TS_BLOCK_TYPES), block);
        if (ts_block_explain((enum ts_block_type)(tensor->type - TS_BLOCK_TYPES), block,
                             (uint32_t)(index % info->block_elements), &part))
            ts_buffer_printf(out, "0x%" PRIx32, part.stored);
    } else if (info->block_elements > 1) { /* packed low bits first */
        const uint8_t *bytes = tensor->source->data + byte_of(tensor, index);
        unsigned bits = info->block_bytes * 8u / info->block_elements,
                 shift = (unsigned)(index % info->block_elements) * bits;
        uint32_t word = 0;
        memcpy(&word, bytes, info->block_bytes);
        ts_buffer_printf(out, "0x%0*x", (int)(bits + 3) / 4, (ts_load_le32(&word) >> shift) & ((1u << bits) - 1));
    } else {
        const uint8_t *bytes = tensor->source->data + byte_of(tensor, index);
        ts_buffer_string(out, "0x");
        for (unsigned i = 0; i < info->block_bytes; i++)
            ts_buffer_printf(out, "%02x", bytes[tensor->swapped ? i : info->block_bytes - 1u - i]);
    }
}

static void put_cell(struct ts_buffer *out, const struct view *view, uint64_t index)
{
    struct ts_error ignored;
    if (view->bits)
        put_bits(out, view->tensor, index);
    else if (ts_tensor_element_text(view->tensor, index, view->precision, out, &ignored) != TS_OK)
        ts_buffer_byte(out, '?');
}

struct grid {
    const struct view *view;
    struct entries rows, columns;
    int row_axis, column_axis; /* -1: there is none, and one entry stands for it */
    uint64_t at[TS_MAX_RANK];
};

static uint64_t cell_index(struct grid *grid, size_t row, size_t column)
{
    if (grid->row_axis >= 0)
        grid->at[grid->row_axis] = grid->rows.at[row];
    if (grid->column_axis >= 0)
        grid->at[grid->column_axis] = grid->columns.at[column];
    return flat_index(grid->view->tensor, grid->at);
}

static size_t digits_of(uint64_t number)
{
    size_t digits = 1;
    while (number >= 10) {
        number /= 10;
        digits++;
    }
    return digits;
}

static void put_right(struct ts_buffer *out, const char *text, size_t columns, size_t width)
{
    put_spaces(out, width > columns ? width - columns : 0);
    ts_buffer_string(out, text);
}

static const char *gap_text(void)
{
    return terminal.unicode ? "…" : "~";
}

/* The widest cell of the grid decides the width of all: columns stay aligned down the page. */
static size_t cell_width(struct grid *grid)
{
    struct ts_buffer cell;
    size_t width = 1;
    ts_buffer_init(&cell, 4096);
    for (size_t row = 0; row < grid->rows.count; row++)
        for (size_t column = 0; column < grid->columns.count; column++) {
            if (grid->rows.at[row] == GAP || grid->columns.at[column] == GAP)
                continue;
            ts_buffer_clear(&cell);
            put_cell(&cell, grid->view, cell_index(grid, row, column));
            width = cell.size > width ? cell.size : width;
        }
    for (size_t column = 0; column < grid->columns.count; column++)
        if (grid->column_axis >= 0 && grid->columns.at[column] != GAP) {
            size_t digits = digits_of(grid->columns.at[column]);
            width = digits > width ? digits : width;
        }
    ts_buffer_release(&cell);
    return width;
}

static void put_label(struct ts_buffer *out, uint64_t index, size_t width)
{
    char text[24];
    struct ts_buffer styled;
    ts_buffer_init(&styled, 128);
    if (index == GAP) {
        put_right(out, gap_text(), 1, width);
    } else {
        snprintf(text, sizeof text, "%" PRIu64, index);
        put_spaces(out, width > strlen(text) ? width - strlen(text) : 0);
        put_styled(out, TS_STYLE_DIM, text);
    }
    ts_buffer_release(&styled);
}

static bool put_grid(struct ts_buffer *out, struct grid *grid)
{
    size_t width = cell_width(grid), labels = 0, fit;
    for (size_t row = 0; grid->row_axis >= 0 && row < grid->rows.count; row++)
        if (grid->rows.at[row] != GAP && digits_of(grid->rows.at[row]) > labels)
            labels = digits_of(grid->rows.at[row]);
    fit = terminal.width > labels + 2 ? (terminal.width - labels - 2) / (width + 1) : 1;
    fit = fit ? fit : 1;
    for (size_t first = 0; first < grid->columns.count || first == 0; first += fit) {
        size_t last = grid->columns.count - first < fit ? grid->columns.count : first + fit;
        if (grid->column_axis >= 0) {
            put_spaces(out, 2 + labels);
            for (size_t column = first; column < last; column++) {
                ts_buffer_byte(out, ' ');
                put_label(out, grid->columns.at[column], width);
            }
            ts_buffer_byte(out, '\n');
        }
        for (size_t row = 0; row < grid->rows.count; row++) {
            put_spaces(out, 2);
            if (grid->row_axis >= 0)
                put_label(out, grid->rows.at[row], labels);
            for (size_t column = first; column < last; column++) {
                struct ts_buffer cell;
                ts_buffer_byte(out, ' ');
                if (grid->rows.at[row] == GAP || grid->columns.at[column] == GAP) {
                    put_right(out, gap_text(), 1, width);
                    continue;
                }
                ts_buffer_init(&cell, 4096);
                put_cell(&cell, grid->view, cell_index(grid, row, column));
                put_right(out, cell.data ? cell.data : "", cell.size, width);
                ts_buffer_release(&cell);
            }
            ts_buffer_byte(out, '\n');
            if (out->size > 1 << 16 && !flush_out(out))
                return false;
        }
    }
    return true;
}

/* How one element of a quantized tensor is made. */
static void put_making(struct ts_buffer *out, const struct view *view, uint64_t index)
{
    const struct ts_tensor *tensor = view->tensor;
    const struct ts_type_info *info = ts_type_info(tensor->type);
    struct ts_buffer text;
    ts_buffer_init(&text, 4096);
    if (tensor->type == TS_CODED && tensor->codec->explain) {
        tensor->codec->explain(tensor, index, &text);
    } else if (ts_type_is_block(tensor->type)) {
        struct ts_block_part part;
        uint64_t block = index / info->block_elements;
        uint8_t copy[512];
        memcpy(copy, tensor->source->data + tensor->offset + block * info->block_bytes, info->block_bytes);
        if (tensor->swapped)
            ts_block_swap((enum ts_block_type)(tensor->type - TS_BLOCK_TYPES), copy);
        if (ts_block_explain((enum ts_block_type)(tensor->type - TS_BLOCK_TYPES), copy,
                             (uint32_t)(index % info->block_elements), &part)) {
            ts_buffer_printf(&text,
                             "block %" PRIu64 " (%u bytes at byte %" PRIu64 "), element %" PRIu64
                             " of %u in it: code %" PRId32 ", scale %.9g",
                             block, info->block_bytes, tensor->offset + block * info->block_bytes,
                             index % info->block_elements, info->block_elements, part.code, (double)part.scale);
            if (part.minimum != 0)
                ts_buffer_printf(&text, ", minimum %.9g", (double)part.minimum);
            ts_buffer_printf(&text, "; the scale is shared by %" PRIu32 " elements", part.sub_block);
        }
    }
    if (text.size) {
        put_spaces(out, 2);
        put_wrapped(out, text.data, 2, 4);
        ts_buffer_byte(out, '\n');
    }
    ts_buffer_release(&text);
}

static void put_title(struct ts_buffer *out, const struct view *view, uint64_t count)
{
    struct ts_buffer shape;
    const char *scheme = ts_tensor_attribute(view->tensor, "scheme");
    char human[32];
    ts_buffer_init(&shape, 4096);
    ts_tensor_shape_text(view->tensor, &shape);
    put_name(out, view->tensor->name, SIZE_MAX);
    ts_buffer_printf(out, "  %s %s", scheme ? scheme : ts_tensor_type_name(view->tensor), shape.data ? shape.data : "");
    if (count != view->tensor->count)
        ts_buffer_printf(out, ", %s of %" PRIu64 " values", ts_human_count(count, human), view->tensor->count);
    if (view->tensor->whole_shape)
        ts_buffer_printf(out, ",\n  %s", ts_tensor_attribute(view->tensor, "sample"));
    else if (view->tensor->sampled)
        ts_buffer_string(out, ", a sample: the file does not hold the rest");
    ts_buffer_byte(out, '\n');
    ts_buffer_release(&shape);
}

/* The axes that are ranges, the last two of them as the grid; the ones before are walked like an odometer. */
static bool put_all(struct ts_buffer *out, const struct view *view, bool shorten)
{
    struct grid grid = {.view = view, .row_axis = -1, .column_axis = -1};
    struct entries outer[TS_MAX_RANK];
    size_t turn[TS_MAX_RANK] = {0};
    unsigned outer_axes[TS_MAX_RANK], outer_count = 0, ranges = 0, seen = 0;
    uint64_t nowhere[1] = {0};
    bool good = true;
    for (unsigned i = 0; i < view->slice.rank; i++) {
        grid.at[i] = view->slice.axes[i].start;
        ranges += !view->slice.axes[i].single;
    }
    grid.rows = grid.columns = (struct entries){nowhere, 1};
    for (unsigned i = 0; i < view->slice.rank && good; i++) {
        const struct ts_slice_axis *axis = &view->slice.axes[i];
        if (axis->single)
            continue;
        seen++;
        if (seen == ranges) {
            grid.column_axis = (int)i;
            good = list_entries(axis, shorten, &grid.columns);
        } else if (seen + 1 == ranges) {
            grid.row_axis = (int)i;
            good = list_entries(axis, shorten, &grid.rows);
        } else {
            good = list_entries(axis, shorten, &outer[outer_count]);
            outer_axes[outer_count++] = i;
        }
    }
    for (bool more = good; more;) {
        bool gap = false;
        for (unsigned i = 0; i < outer_count; i++) {
            gap = gap || outer[i].at[turn[i]] == GAP;
            grid.at[outer_axes[i]] = outer[i].at[turn[i]];
        }
        if (outer_count) {
            ts_buffer_string(out, "  [");
            for (unsigned i = 0; i < view->slice.rank; i++) {
                bool is_grid = (int)i == grid.row_axis || (int)i == grid.column_axis;
                if (is_grid)
                    ts_buffer_printf(out, "%s:", i ? "," : "");
                else if (grid.at[i] == GAP)
                    ts_buffer_printf(out, "%s%s", i ? "," : "", gap_text());
                else
                    ts_buffer_printf(out, "%s%" PRIu64, i ? "," : "", grid.at[i]);
            }
            ts_buffer_string(out, "]\n");
        }
        if (!gap)
            good = put_grid(out, &grid);
        more = false;
        for (unsigned i = outer_count; good && i-- > 0;) {
            if (++turn[i] < outer[i].count) {
                more = true;
                break;
            }
            turn[i] = 0;
        }
    }
    for (unsigned i = 0; i < outer_count; i++)
        free(outer[i].at);
    if (grid.rows.at != nowhere)
        free(grid.rows.at);
    if (grid.columns.at != nowhere)
        free(grid.columns.at);
    return good;
}

bool show_text(const struct view *view)
{
    struct ts_buffer out;
    uint64_t count = ts_slice_count(&view->slice);
    bool shorten = !view->all && count > SHORTEN_ABOVE, single = true, good = true;
    ts_buffer_init(&out, (size_t)64 << 20);
    put_title(&out, view, count);
    for (unsigned i = 0; i < view->slice.rank; i++)
        single = single && view->slice.axes[i].single;
    if (!count) {
        ts_buffer_string(&out, "  no values\n");
    } else {
        good = put_all(&out, view, shorten);
        if (single) {
            uint64_t at[TS_MAX_RANK];
            for (unsigned i = 0; i < view->slice.rank; i++)
                at[i] = view->slice.axes[i].start;
            put_making(&out, view, flat_index(view->tensor, at));
        }
    }
    if (shorten)
        ts_buffer_string(&out, "shortened; give a slice, or --all for every value\n");
    good = flush_out(&out) && good;
    ts_buffer_release(&out);
    return good;
}

static void value_json(struct ts_json_writer *json, const struct view *view, uint64_t index)
{
    const struct ts_tensor *tensor = view->tensor;
    struct ts_buffer text;
    struct ts_error ignored;
    double value[2];
    int64_t whole;
    if (!view->bits && ts_type_is_integer(tensor->type) &&
        ts_tensor_read_i64(tensor, index, 1, &whole, &ignored) == TS_OK) {
        if (tensor->type == TS_BOOL)
            ts_json_bool(json, whole != 0);
        else if (tensor->type == TS_U64)
            ts_json_uint(json, (uint64_t)whole);
        else
            ts_json_int(json, whole);
    } else if (!view->bits && ts_type_info(tensor->type)->components == 1 &&
               ts_tensor_read_f64(tensor, index, 1, value, &ignored) == TS_OK) {
        ts_json_number(json, value[0]);
    } else {
        ts_buffer_init(&text, 4096);
        put_cell(&text, view, index);
        ts_json_string(json, text.data ? text.data : "");
        ts_buffer_release(&text);
    }
}

/* Nested arrays, one level per axis that is a range. */
static void axis_json(struct ts_json_writer *json, const struct view *view, unsigned axis, uint64_t *at)
{
    const struct ts_slice_axis *range = &view->slice.axes[axis];
    if (axis == view->slice.rank) {
        value_json(json, view, flat_index(view->tensor, at));
        return;
    }
    if (range->single) {
        at[axis] = range->start;
        axis_json(json, view, axis + 1, at);
        return;
    }
    ts_json_begin_array(json);
    for (uint64_t i = 0; i < range->count; i++) {
        at[axis] = range->start + i * range->step;
        axis_json(json, view, axis + 1, at);
    }
    ts_json_end_array(json);
}

bool show_json(const struct view *view, const char *path)
{
    struct json_file file;
    struct ts_json_writer *json = &file.writer;
    uint64_t at[TS_MAX_RANK] = {0};
    if (!json_file_open(&file, path))
        return false;
    json->indent = 0;
    ts_json_begin_object(json);
    ts_json_key(json, "schema");
    ts_json_string(json, "tsleuth.show/1");
    ts_json_key(json, "name");
    ts_json_string(json, view->tensor->name);
    ts_json_key(json, "dtype");
    ts_json_string(json, ts_tensor_type_name(view->tensor));
    ts_json_key(json, "shape");
    ts_json_begin_array(json);
    for (unsigned i = 0; i < view->tensor->rank; i++)
        ts_json_uint(json, view->tensor->shape[i]);
    ts_json_end_array(json);
    ts_json_key(json, "slice");
    ts_json_begin_array(json);
    for (unsigned i = 0; i < view->slice.rank; i++) {
        ts_json_begin_object(json);
        ts_json_key(json, "start");
        ts_json_uint(json, view->slice.axes[i].start);
        ts_json_key(json, "count");
        ts_json_uint(json, view->slice.axes[i].count);
        ts_json_key(json, "step");
        ts_json_uint(json, view->slice.axes[i].step);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "values");
    axis_json(json, view, 0, at);
    ts_json_end_object(json);
    return json_file_close(&file);
}
