/* Owns bitsandbytes: 4-bit (nf4, fp4) and LLM.int8 weights.
 *
 * 4 bits: `weight` holds two codes per byte, the first in the HIGH half, whatever its declared type and shape (usually
 * u8 [n / 2, 1]). Blocks of `blocksize` codes run over the flattened tensor and share an entry of `weight.absmax`:
 * value = quant_map[code] * absmax[i / blocksize]. `weight.quant_state.bitsandbytes__nf4` (or __fp4) is a byte tensor
 * of JSON with quant_type, blocksize, dtype and the shape. With double quantization absmax holds bytes, and
 * `weight.nested_absmax`, `weight.nested_quant_map` and three more settings give
 * absmax[b] = nested_quant_map[byte] * nested_absmax[b / nested_blocksize] + nested_offset.
 *
 * int8: `weight` i8 [out, in] with `SCB` f32 [out], the largest magnitude of each row: value = code * SCB / 127,
 * computed as a product with the float next to 1/127. `weight_format` is 0 for rows in plain order; the tiled orders of
 * old versions (col32, col_turing, col_ampere) have other numbers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "read/quantized_family.h"

static const struct ts_codec nf4_codec = TS_GROUPED_CODEC("nf4");
static const struct ts_codec fp4_codec = TS_GROUPED_CODEC("fp4");

/* What the JSON may hold; a real one has some 150 bytes. */
#define STATE_LIMIT 65536

struct blocks {
    struct ts_grouped grouped;
    float map[16];
    float nested_map[256];
    const struct ts_tensor *absmax, *nested;
    uint64_t nested_block;
    float nested_offset;
};

struct state {
    char type[8];
    int64_t block, nested_block;
    double nested_offset;
    unsigned rank;
    bool has_shape;
    uint64_t shape[TS_MAX_RANK];
};

static void blocks_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    const struct blocks *blocks = (const struct blocks *)grouped;
    (void)row;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = column + i;
        out[i] = blocks->map[grouped->packed[at / 2] >> (at & 1 ? 0 : 4) & 15];
    }
}

static void blocks_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    const struct blocks *blocks = (const struct blocks *)grouped;
    (void)row;
    factor->zero = 0;
    if (blocks->nested) {
        uint8_t code = ts_tensor_bytes(blocks->absmax)[group];
        factor->scale = blocks->nested_map[code] * ts_part_f32(blocks->nested, group / blocks->nested_block);
        factor->scale += blocks->nested_offset;
    } else {
        factor->scale = ts_part_f32(blocks->absmax, group);
    }
}

static void int8_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    const int8_t *from = (const int8_t *)grouped->packed + row * grouped->columns + column;
    const float absmax = ts_part_f32(grouped->scales, row);
    for (size_t i = 0; i < count; i++)
        out[i] = (float)from[i] * absmax;
}

/* The row's magnitude is multiplied first, as the library does: rounding depends on it. */
static void int8_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    (void)grouped, (void)row, (void)group;
    *factor = (struct ts_factor){.scale = 0x1.020408p-7f, .zero = 0}; /* float(1 / 127) */
}

static void int8_explain(const struct ts_tensor *tensor, uint64_t index, struct ts_buffer *out)
{
    const struct ts_grouped *grouped = tensor->codec_data;
    if (index >= tensor->count)
        return;
    ts_buffer_printf(out, "code %d, row's magnitude %.6g / 127 (row %" PRIu64 ")", (int)(int8_t)grouped->packed[index],
                     (double)ts_part_f32(grouped->scales, index / grouped->columns), index / grouped->columns);
}

static const struct ts_codec int8_row_codec = {.name = "int8", .read_f32 = ts_grouped_read, .explain = int8_explain};

static enum ts_status take_shape(struct ts_json *json, struct state *state, struct ts_error *error)
{
    TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_ARRAY)
        return ts_json_skip_value(json, error);
    state->has_shape = true;
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_ARRAY_END)
            return TS_OK;
        if (json->kind != TS_JSON_NUMBER || state->rank == TS_MAX_RANK)
            return ts_fail(error, TS_ERR_FORMAT, json->offset, "the shape is not one");
        TS_TRY(ts_json_uint64(json, &state->shape[state->rank++], error));
    }
}

static enum ts_status take_number(struct ts_json *json, int64_t *whole, double *real, struct ts_error *error)
{
    TS_TRY(ts_json_expect(json, TS_JSON_NUMBER, "a number", error));
    return whole ? ts_json_int64(json, whole, error) : ts_json_double(json, real, error);
}

static enum ts_status parse_state(const struct ts_tensor *tensor, struct state *state, struct ts_error *error)
{
    struct ts_json json;
    if (tensor->type != TS_U8 || !ts_part_is_plain(tensor) || tensor->count > STATE_LIMIT)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "it is no text");
    ts_json_init(&json, ts_tensor_bytes(tensor), (size_t)tensor->count);
    json.allow_nan = true;
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            return TS_OK;
        if (ts_json_equals(&json, "quant_type")) {
            TS_TRY(ts_json_expect(&json, TS_JSON_STRING, "the type as a string", error));
            if (ts_json_equals(&json, "nf4") || ts_json_equals(&json, "fp4"))
                memcpy(state->type, ts_json_equals(&json, "nf4") ? "nf4" : "fp4", 4);
        } else if (ts_json_equals(&json, "blocksize")) {
            TS_TRY(take_number(&json, &state->block, NULL, error));
        } else if (ts_json_equals(&json, "nested_blocksize")) {
            TS_TRY(take_number(&json, &state->nested_block, NULL, error));
        } else if (ts_json_equals(&json, "nested_offset")) {
            TS_TRY(take_number(&json, NULL, &state->nested_offset, error));
        } else if (ts_json_equals(&json, "shape")) {
            TS_TRY(take_shape(&json, state, error));
        } else {
            TS_TRY(ts_json_skip_value(&json, error));
        }
    }
}

/* A table of codes: NULL when it is fine, else what is wrong. */
static const char *read_map(const struct ts_tensor *map, size_t entries, float *values)
{
    struct ts_error ignored;
    ts_error_clear(&ignored);
    if (!ts_part_is_float(map) || map->count != entries)
        return "is no table of codes";
    return ts_tensor_read_f32(map, 0, entries, values, &ignored) == TS_OK ? NULL : "cannot be read";
}

struct found {
    struct ts_tensor *weight, *state, *absmax, *map, *nested, *nested_map;
};

/* Checks the double quantization of absmax; NULL when it is fine. */
static const char *take_nested(const struct found *found, const struct state *state, struct blocks *blocks)
{
    const struct ts_tensor *absmax = found->absmax;
    if (!found->nested != !found->nested_map)
        return found->nested ? "its nested_quant_map is missing" : "its nested_absmax is missing";
    if (!found->nested)
        return ts_part_is_float(absmax) ? NULL : "its absmax is quantized, and nested_absmax is missing";
    if (absmax->type != TS_U8 || !ts_part_is_plain(absmax) || !ts_part_is_float(found->nested))
        return "its absmax has another type than double quantization writes";
    if (state->nested_block <= 0 || found->nested->count < ts_ceil_div(absmax->count, (uint64_t)state->nested_block))
        return "its nested_absmax does not fit nested_blocksize";
    if (read_map(found->nested_map, 256, blocks->nested_map))
        return "its nested_quant_map is no table of 256 codes";
    blocks->nested = found->nested;
    blocks->nested_block = (uint64_t)state->nested_block;
    blocks->nested_offset = (float)state->nested_offset;
    return NULL;
}

/* Fills in blocks and the logical shape; NULL when everything fits. */
static const char *fit(const struct found *found, struct state *state, struct blocks *blocks, uint64_t *count)
{
    if (!state->type[0])
        return "its quant_type is neither nf4 nor fp4";
    if (state->block <= 0)
        return "it has no blocksize";
    if (!found->absmax)
        return "its absmax is missing";
    if (!found->map)
        return "its quant_map is missing";
    if (!ts_part_is_plain(found->weight) || ts_type_info(found->weight->type)->block_elements != 1)
        return "its codes are not stored side by side";
    if (!state->has_shape) {
        state->rank = 1;
        state->shape[0] = found->weight->bytes * 2;
    }
    *count = 1;
    for (unsigned i = 0; i < state->rank; i++)
        if (!ts_mul(*count, state->shape[i], count))
            return "its shape is too large";
    if (*count == 0 || *count / 2 + (*count & 1) > found->weight->bytes)
        return "its shape has another number of elements than codes are stored";
    if (found->absmax->count < ts_ceil_div(*count, (uint64_t)state->block))
        return "its absmax does not fit blocksize";
    if (read_map(found->map, 16, blocks->map))
        return "its quant_map is no table of 16 codes";
    return take_nested(found, state, blocks);
}

static enum ts_status join_4bit(struct ts_quantized *q, struct ts_tensor *weight, struct ts_tensor *state_tensor,
                                struct ts_error *error)
{
    const size_t stem = strlen(weight->name);
    const struct found found = {
        .weight = weight,
        .state = state_tensor,
        .absmax = ts_quantized_part(q, weight->name, stem, ".absmax"),
        .map = ts_quantized_part(q, weight->name, stem, ".quant_map"),
        .nested = ts_quantized_part(q, weight->name, stem, ".nested_absmax"),
        .nested_map = ts_quantized_part(q, weight->name, stem, ".nested_quant_map"),
    };
    struct blocks *blocks = ts_arena_alloc(&q->bundle->arena, sizeof *blocks);
    struct state state = {0};
    struct ts_quantized_weight logical = {
        .name = weight->name,
        .stem = stem,
        .suffix = "",
        .data = blocks,
        .parts = {weight, found.absmax, found.map, found.state, found.nested, found.nested_map},
    };
    struct ts_error why;
    const char *problem;
    uint64_t count;
    if (!blocks)
        return ts_fail_memory(error);
    ts_error_clear(&why);
    if (parse_state(state_tensor, &state, &why) != TS_OK)
        return ts_bundle_find(q->bundle, weight->name, error, "stays as its parts: its quant_state cannot be read: %s",
                              why.message);
    if ((problem = fit(&found, &state, blocks, &count)) != NULL)
        return ts_bundle_find(q->bundle, weight->name, error, "stays as its parts: %s", problem);
    blocks->absmax = found.absmax;
    blocks->grouped = (struct ts_grouped){
        .columns = count,
        .group = (uint64_t)state.block,
        .groups = ts_ceil_div(count, (uint64_t)state.block),
        .unit = "block",
        .code = strcmp(state.type, "nf4") == 0 ? "nf4" : "fp4",
        .codes = blocks_codes,
        .factor = blocks_factor,
        .packed = ts_tensor_bytes(weight),
        .main = weight,
    };
    logical.codec = strcmp(state.type, "nf4") == 0 ? &nf4_codec : &fp4_codec;
    logical.rank = state.rank;
    memcpy(logical.shape, state.shape, sizeof state.shape);
    snprintf(logical.scheme, sizeof logical.scheme, "bitsandbytes %s, blocks of %" PRId64 "%s", state.type, state.block,
             found.nested ? ", scales quantized too" : "");
    return ts_quantized_replace(q, &logical, error);
}

static enum ts_status join_int8(struct ts_quantized *q, struct ts_tensor *weight, struct ts_tensor *scb,
                                struct ts_tensor *format, struct ts_error *error)
{
    struct ts_grouped *grouped;
    struct ts_quantized_weight logical = {
        .name = weight->name,
        .stem = strlen(weight->name),
        .suffix = "",
        .codec = &int8_row_codec,
        .rank = 2,
        .parts = {weight, scb, format},
        .scheme = "bitsandbytes int8, a scale per row",
    };
    struct ts_error ignored;
    int64_t layout = 0;
    char shape[TS_SHAPE_TEXT], scales[TS_SHAPE_TEXT];
    ts_error_clear(&ignored);
    if (weight->rank != 2 || !weight->count || !ts_part_is_plain(weight) || !ts_part_is_float(scb) ||
        scb->count != weight->shape[0])
        return ts_bundle_find(q->bundle, weight->name, error,
                              "stays as its parts: weight %s needs a scale per row, SCB is %s",
                              ts_quantized_shape(weight, shape), ts_quantized_shape(scb, scales));
    if (format && format->count == 1 && ts_type_is_integer(format->type) &&
        ts_tensor_read_i64(format, 0, 1, &layout, &ignored) == TS_OK && layout != 0)
        return ts_bundle_find(q->bundle, weight->name, error,
                              "stays as its parts: its rows are tiled (weight_format %" PRId64
                              "), which only old versions of bitsandbytes read",
                              layout);
    if (!(grouped = ts_arena_alloc(&q->bundle->arena, sizeof *grouped)))
        return ts_fail_memory(error);
    *grouped = (struct ts_grouped){
        .columns = weight->shape[1],
        .group = weight->shape[1],
        .groups = 1,
        .code = "code",
        .codes = int8_codes,
        .factor = int8_factor,
        .packed = ts_tensor_bytes(weight),
        .main = weight,
        .scales = scb,
    };
    logical.data = grouped;
    logical.shape[0] = weight->shape[0];
    logical.shape[1] = weight->shape[1];
    return ts_quantized_replace(q, &logical, error);
}

static enum ts_status bnb_join(struct ts_quantized *q, struct ts_tensor *tensor, size_t stem, const char *suffix,
                               struct ts_error *error)
{
    struct ts_tensor *weight, *other;
    if (strcmp(suffix, ".SCB") == 0) {
        /* beside the weight, or below it */
        size_t module = stem > 7 && memcmp(tensor->name + stem - 7, ".weight", 7) == 0 ? stem - 7 : stem;
        weight = ts_quantized_part(q, tensor->name, module, ".weight");
        return weight && weight->type == TS_I8
                   ? join_int8(q, weight, tensor, ts_quantized_part(q, tensor->name, module, ".weight_format"), error)
                   : TS_OK;
    }
    if (strcmp(suffix, ".weight_format") == 0) {
        weight = ts_quantized_part(q, tensor->name, stem, ".weight");
        if (!weight || weight->type != TS_I8 || ts_quantized_part(q, tensor->name, stem, ".SCB") ||
            ts_quantized_part(q, tensor->name, stem, ".weight.SCB"))
            return TS_OK;
        return ts_bundle_find(q->bundle, weight->name, error,
                              "stays as its parts: its scales, \"%.*s.SCB\", are missing", (int)stem, tensor->name);
    }
    weight = ts_quantized_part(q, tensor->name, stem, "");
    if (!weight)
        return TS_OK;
    if (strcmp(suffix, ".absmax") != 0)
        return join_4bit(q, weight, tensor, error);
    other = ts_quantized_part(q, tensor->name, stem, ".quant_state.bitsandbytes__nf4");
    if (!other)
        other = ts_quantized_part(q, tensor->name, stem, ".quant_state.bitsandbytes__fp4");
    if (other)
        return TS_OK; /* which is an anchor itself */
    return ts_bundle_find(q->bundle, weight->name, error, "stays as its parts: it has an absmax and no quant_state");
}

const struct ts_quantized_family ts_quantized_bnb = {
    .name = "bitsandbytes",
    .anchors = (const struct ts_quantized_anchor[]){TS_ANCHOR(".quant_state.bitsandbytes__nf4", NULL),
                                                    TS_ANCHOR(".quant_state.bitsandbytes__fp4", NULL),
                                                    TS_ANCHOR(".absmax", NULL), TS_ANCHOR(".SCB", NULL),
                                                    TS_ANCHOR(".weight_format", NULL), TS_NO_ANCHOR},
    .join = bnb_join,
};
