/* Owns the arithmetic of quantized weights: codes unpacked for a stretch of a row, then scaled group by group. */
#include <inttypes.h>
#include <math.h>

#include "read/quantized_family.h"

/* Codes are unpacked and scaled in stretches that stay in the first-level cache. */
#define STRETCH 1024
/* With an order of their own, columns jump between groups; all factors of a row are then fetched at once when there are
 * no more than this. 4096 columns in groups of 32 are 128. */
#define ROW_FACTORS 512

static const float fp4_values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

void ts_unpack_codes(const uint8_t *bytes, unsigned bits, uint64_t first, size_t count, float *out)
{
    size_t i = 0;
    if (bits == 8) {
        for (; i < count; i++)
            out[i] = (float)bytes[first + i];
        return;
    }
    if (bits == 4) {
        if (first & 1 && count)
            out[i++] = (float)(bytes[first / 2] >> 4);
        for (const uint8_t *at = bytes + (first + i) / 2; i + 1 < count; i += 2, at++) {
            out[i] = (float)(*at & 15);
            out[i + 1] = (float)(*at >> 4);
        }
    }
    for (; i < count; i++)
        out[i] = (float)ts_code_at(bytes, bits, first + i);
}

void ts_unpack_fp4(const uint8_t *bytes, uint64_t first, size_t count, float *out)
{
    size_t i = 0;
    if (first & 1 && count)
        out[i++] = fp4_values[bytes[first / 2] >> 4];
    for (const uint8_t *at = bytes + (first + i) / 2; i < count; i += 2, at++) {
        out[i] = fp4_values[*at & 15];
        if (i + 1 < count)
            out[i + 1] = fp4_values[*at >> 4];
    }
}

/* Parts were finished by ts_tensor_finish and the index was checked when they were joined, so that reading cannot fail;
 * the common types skip the way through ts_tensor_read_f32. */
float ts_part_f32(const struct ts_tensor *part, uint64_t index)
{
    float value = NAN;
    if (ts_part_is_plain(part)) {
        const uint8_t *bytes = ts_tensor_bytes(part);
        if (part->type == TS_F16)
            return ts_f16_to_float(ts_load_le16(bytes + index * 2));
        if (part->type == TS_BF16)
            return ts_bf16_to_float(ts_load_le16(bytes + index * 2));
        if (part->type == TS_F32)
            return ts_float_from_bits(ts_load_le32(bytes + index * 4));
    }
    struct ts_error ignored;
    ts_error_clear(&ignored);
    (void)ts_tensor_read_f32(part, index, 1, &value, &ignored);
    return value;
}

float ts_part_exponent(const struct ts_tensor *part, uint64_t index)
{
    if (part->type != TS_U8)
        return ts_part_f32(part, index);
    return ts_e8m0((uint8_t)ts_part_f32(part, index));
}

static void apply(const struct ts_grouped *grouped, const struct ts_factor *factor, size_t count, float *values)
{
    const float scale = factor->scale, zero = factor->zero;
    if (grouped->affine)
        for (size_t i = 0; i < count; i++)
            values[i] = values[i] * scale + zero;
    else
        for (size_t i = 0; i < count; i++)
            values[i] = (values[i] - zero) * scale;
}

static enum ts_status bad_order(const struct ts_grouped *grouped, uint64_t column, int64_t group,
                                struct ts_error *error)
{
    ts_fail(error, TS_ERR_FORMAT, grouped->order->span_offset,
            "column %" PRIu64 " is in group %" PRId64 ", of %" PRIu64 " groups", column, group, grouped->groups);
    return ts_error_tensor(error, grouped->order->name);
}

/* The groups of some columns. g_idx is nearly always i32 in plain order. */
static enum ts_status read_order(const struct ts_tensor *order, uint64_t column, size_t count, int64_t *groups,
                                 struct ts_error *error)
{
    const uint8_t *bytes;
    if (order->type != TS_I32 || !ts_part_is_plain(order))
        return ts_tensor_read_i64(order, column, count, groups, error);
    bytes = ts_tensor_bytes(order) + column * 4;
    for (size_t i = 0; i < count; i++)
        groups[i] = (int32_t)ts_load_le32(bytes + i * 4);
    return TS_OK;
}

/* Columns in an order of their own: the group of each is looked up. */
static enum ts_status apply_ordered(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count,
                                    const struct ts_factor *row_factors, float *values, struct ts_error *error)
{
    int64_t groups[STRETCH];
    TS_TRY(read_order(grouped->order, column, count, groups, error));
    for (size_t i = 0, end; i < count; i = end) {
        struct ts_factor factor;
        if (groups[i] < 0 || (uint64_t)groups[i] >= grouped->groups)
            return bad_order(grouped, column + i, groups[i], error);
        if (row_factors)
            factor = row_factors[groups[i]];
        else
            grouped->factor(grouped, row, (uint64_t)groups[i], &factor);
        /* Without act-order g_idx counts up and runs are long; with it they are of one. */
        for (end = i + 1; end < count && groups[end] == groups[i];)
            end++;
        apply(grouped, &factor, end - i, values + i);
    }
    return TS_OK;
}

static void apply_groups(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *values)
{
    while (count) {
        uint64_t group = column / grouped->group, left = grouped->group - column % grouped->group;
        size_t now = left < count ? (size_t)left : count;
        struct ts_factor factor;
        grouped->factor(grouped, row, group, &factor);
        apply(grouped, &factor, now, values);
        values += now;
        column += now;
        count -= now;
    }
}

/* Part of one row, whose codes may be in `out` already. */
static enum ts_status read_row(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count,
                               bool has_codes, float *out, struct ts_error *error)
{
    struct ts_factor row_factors[ROW_FACTORS];
    bool fetched = grouped->order && grouped->groups <= ROW_FACTORS && grouped->groups <= count;
    for (uint64_t i = 0; fetched && i < grouped->groups; i++)
        grouped->factor(grouped, row, i, &row_factors[i]);
    while (count) {
        size_t now = count < STRETCH ? count : STRETCH;
        if (!has_codes)
            grouped->codes(grouped, row, column, now, out);
        if (grouped->order)
            TS_TRY(apply_ordered(grouped, row, column, now, fetched ? row_factors : NULL, out, error));
        else
            apply_groups(grouped, row, column, now, out);
        out += now;
        column += now;
        count -= now;
    }
    return TS_OK;
}

enum ts_status ts_grouped_read(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                               struct ts_error *error)
{
    const struct ts_grouped *grouped = tensor->codec_data;
    uint64_t row = first / grouped->columns, column = first % grouped->columns;
    while (count) {
        uint64_t left = grouped->columns - column, rows = 1;
        size_t now = left < count ? (size_t)left : count;
        if (grouped->tile && column == 0 && count / grouped->columns > 1) {
            rows = grouped->tile - row % grouped->tile;
            if (rows > count / grouped->columns)
                rows = count / grouped->columns;
        }
        if (rows > 1)
            grouped->tile_codes(grouped, row, (unsigned)rows, out);
        for (uint64_t i = 0; i < rows; i++) {
            TS_TRY(read_row(grouped, row, column, now, rows > 1, out, error));
            out += now;
            count -= now;
            column = 0;
            row++;
        }
    }
    return TS_OK;
}

void ts_grouped_explain(const struct ts_tensor *tensor, uint64_t index, struct ts_buffer *out)
{
    const struct ts_grouped *grouped = tensor->codec_data;
    uint64_t row, column, group;
    struct ts_factor factor;
    float code;
    if (index >= tensor->count)
        return;
    row = index / grouped->columns;
    column = index % grouped->columns;
    group = column / grouped->group;
    if (grouped->order) {
        struct ts_error ignored;
        int64_t ordered = -1;
        ts_error_clear(&ignored);
        (void)ts_tensor_read_i64(grouped->order, column, 1, &ordered, &ignored);
        if (ordered < 0 || (uint64_t)ordered >= grouped->groups) {
            ts_buffer_printf(out, "column %" PRIu64 " is in group %" PRId64 ", which does not exist", column, ordered);
            return;
        }
        group = (uint64_t)ordered;
    }
    grouped->codes(grouped, row, column, 1, &code);
    grouped->factor(grouped, row, group, &factor);
    ts_buffer_printf(out, "%s %.6g", grouped->code, (double)code);
    if (!grouped->affine && grouped->tell_zero)
        ts_buffer_printf(out, ", zero %.6g", (double)factor.zero);
    ts_buffer_printf(out, ", scale %.6g", (double)factor.scale);
    if (grouped->affine)
        ts_buffer_printf(out, ", bias %.6g", (double)factor.zero);
    if (grouped->unit)
        ts_buffer_printf(out, " (%s %" PRIu64 ")", grouped->unit, grouped->groups == 1 ? row : group);
}
