/* Owns what compressed-tensors packs: `weight_packed` with its scales, standing for `weight`. (Its formats of one byte
 * per element keep the name `weight`: quantized_fp8.c.)
 *
 * "pack-quantized": integers of 1 to 8 bits, stored plus 2^(bits - 1) so that they are not negative, low bits first in
 * 32-bit words along the last axis, each row filled up to whole words. Widths that do not divide 32 run on across words
 * in newer files; older ones left the top bits of each word empty (3 bits: ten codes per word). weight_shape holds the
 * shape without the filling. weight_scale [out, groups] ([out, 1] per channel, [1] for the tensor); weight_zero_point,
 * where it is not symmetric, is packed the same way, but along the first axis: [out * bits / 32, groups]. weight_g_idx
 * is the group of each column (-1 throughout: not used). value = (code - zero) * scale.
 *
 * "nvfp4-pack-quantized": two E2M1 floats per byte, the first in the low half, weight_scale fp8 [out, in / 16],
 * weight_global_scale f32: value = code * (scale / global). "mxfp4-pack-quantized": the same with one-byte exponents
 * [out, in / 32] and no global scale. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "read/quantized_family.h"

static const struct ts_codec int_codecs[9] = {
    [1] = TS_GROUPED_CODEC("int1"), [2] = TS_GROUPED_CODEC("int2"), [3] = TS_GROUPED_CODEC("int3"),
    [4] = TS_GROUPED_CODEC("int4"), [5] = TS_GROUPED_CODEC("int5"), [6] = TS_GROUPED_CODEC("int6"),
    [7] = TS_GROUPED_CODEC("int7"), [8] = TS_GROUPED_CODEC("int8"),
};
static const struct ts_codec nvfp4_codec = TS_GROUPED_CODEC("nvfp4");
static const struct ts_codec mxfp4_codec = TS_GROUPED_CODEC("mxfp4");

struct packed {
    struct ts_grouped grouped; /* stride: bytes of a packed row */
    bool spaced;               /* 32 / bits codes per word, the rest of it empty */
    uint64_t rows;             /* of one matrix */
    uint64_t row_step;         /* scales from one row to the next: 0 when all rows share them */
    bool exponents;
};

static unsigned spaced_code(const uint8_t *words, unsigned bits, uint64_t step, uint64_t index)
{
    unsigned per_word = 32 / bits;
    return ts_load_le32(words + index / per_word * step) >> index % per_word * bits & ((1u << bits) - 1);
}

static void integer_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    const struct packed *packed = (const struct packed *)grouped;
    const uint8_t *from = grouped->packed + row * grouped->stride;
    const float middle = (float)(1u << (grouped->bits - 1));
    if (packed->spaced)
        for (size_t i = 0; i < count; i++)
            out[i] = (float)spaced_code(from, grouped->bits, 4, column + i);
    else
        ts_unpack_codes(from, grouped->bits, column, count, out);
    for (size_t i = 0; i < count; i++)
        out[i] -= middle;
}

static void fp4_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    ts_unpack_fp4(grouped->packed + row * grouped->stride, column, count, out);
}

/* Packed along the rows: the words of one column stand a row of words apart. */
static float packed_zero(const struct packed *packed, uint64_t row, uint64_t group)
{
    const struct ts_tensor *zeros = packed->grouped.zeros;
    const unsigned bits = packed->grouped.bits;
    const uint64_t groups = zeros->shape[zeros->rank - 1], words = zeros->shape[zeros->rank - 2];
    const uint8_t *from = ts_tensor_bytes(zeros) + (row / packed->rows * words * groups + group) * 4;
    uint64_t within = row % packed->rows, bit = within * bits;
    unsigned shift = (unsigned)(bit % 32);
    uint32_t code;
    if (packed->spaced) {
        code = spaced_code(from, bits, groups * 4, within);
    } else {
        code = ts_load_le32(from + bit / 32 * groups * 4) >> shift;
        if (shift + bits > 32)
            code |= ts_load_le32(from + (bit / 32 + 1) * groups * 4) << (32 - shift);
        code &= (1u << bits) - 1;
    }
    return (float)((int)code - (1 << (bits - 1)));
}

static void packed_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    const struct packed *packed = (const struct packed *)grouped;
    uint64_t index = row * packed->row_step + group;
    factor->scale = packed->exponents ? ts_part_exponent(grouped->scales, index) : ts_part_f32(grouped->scales, index);
    if (grouped->global)
        factor->scale /= ts_part_f32(grouped->global, 0);
    factor->zero = 0;
    if (grouped->zeros)
        factor->zero =
            ts_part_is_word(grouped->zeros) ? packed_zero(packed, row, group) : ts_part_f32(grouped->zeros, index);
}

struct found {
    struct ts_quantized *q;
    struct ts_tensor *codes, *scale, *zeros, *shape, *order, *global;
    size_t stem;
};

static enum ts_status refuse(const struct found *found, const char *why, struct ts_error *error)
{
    char codes[TS_SHAPE_TEXT], scale[TS_SHAPE_TEXT];
    ts_quantized_shape(found->codes, codes);
    ts_quantized_shape(found->scale, scale);
    return ts_bundle_find(found->q->bundle, found->codes->name, error, "stays as its parts: %s (packed %s, scale %s)",
                          why, codes, scale);
}

/* Words of a row of so many codes, in either way of packing. */
static uint64_t dense_words(uint64_t codes, unsigned bits)
{
    return codes / 32 * bits + (codes % 32 * bits + 31) / 32;
}

static uint64_t spaced_words(uint64_t codes, unsigned bits)
{
    return ts_ceil_div(codes, 32 / bits);
}

/* The length of rows: the last entry of weight_shape. Without one, whatever fills the words if the config has a single
 * scheme and its groups fill them, too. 0: cannot be told. */
static uint64_t find_columns(const struct found *found)
{
    const struct ts_quantized_settings *settings = &found->q->settings;
    const struct ts_tensor *codes = found->codes, *scale = found->scale;
    const uint64_t words = codes->shape[codes->rank - 1];
    struct ts_error ignored;
    uint64_t columns;
    int64_t length;
    ts_error_clear(&ignored);
    if (found->shape) {
        if (!ts_type_is_integer(found->shape->type) || found->shape->count != codes->rank ||
            ts_tensor_read_i64(found->shape, found->shape->count - 1, 1, &length, &ignored) != TS_OK || length <= 0)
            return 0;
        return (uint64_t)length;
    }
    for (unsigned bits = 1; bits <= 8; bits *= 2)
        if (settings->widths == 1u << bits && settings->group_count == 1 && scale->rank == codes->rank &&
            ts_mul(scale->shape[scale->rank - 1], settings->groups[0], &columns) && columns == words * (32 / bits))
            return columns;
    return 0;
}

/* The width that fits the words of a row: one of the config's; without a config, the usual ones first. 0: none. */
static unsigned find_bits(const struct found *found, uint64_t columns, bool *spaced)
{
    static const unsigned usual[] = {4, 8, 2, 3, 5, 6, 7, 1};
    const uint64_t words = found->codes->shape[found->codes->rank - 1];
    const unsigned widths = found->q->settings.widths;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        if (widths && !(widths >> usual[i] & 1))
            continue;
        *spaced = dense_words(columns, usual[i]) != words;
        if (!*spaced || spaced_words(columns, usual[i]) == words)
            return usual[i];
    }
    return 0;
}

/* Scales are [..., rows, groups] like the weight, or one for all. */
static bool lay_scales(const struct found *found, struct packed *packed)
{
    const struct ts_tensor *codes = found->codes, *scale = found->scale;
    const struct ts_quantized_settings *settings = &found->q->settings;
    struct ts_grouped *grouped = &packed->grouped;
    grouped->group = grouped->columns;
    grouped->groups = 1;
    packed->row_step = 0;
    if (scale->count == 1)
        return true;
    if (scale->rank != codes->rank)
        return false;
    for (unsigned i = 0; i + 1 < codes->rank; i++)
        if (scale->shape[i] != codes->shape[i])
            return false;
    packed->row_step = grouped->groups = scale->shape[scale->rank - 1];
    if (grouped->groups == 1)
        return true;
    for (unsigned i = 0; i < settings->group_count; i++)
        if (ts_ceil_div(grouped->columns, settings->groups[i]) == grouped->groups) {
            grouped->group = settings->groups[i];
            return true;
        }
    grouped->group = grouped->columns / grouped->groups;
    return settings->group_count == 0 && grouped->group && grouped->columns % grouped->groups == 0;
}

static bool zeros_fit(const struct found *found, const struct packed *packed)
{
    const struct ts_tensor *zeros = found->zeros;
    const unsigned bits = packed->grouped.bits;
    if (!ts_part_is_word(zeros))
        return zeros->count == found->scale->count && (zeros->type == TS_I8 || ts_part_is_float(zeros));
    if (zeros->rank != found->codes->rank || !ts_part_is_plain(zeros) ||
        zeros->shape[zeros->rank - 1] != packed->grouped.groups ||
        zeros->shape[zeros->rank - 2] !=
            (packed->spaced ? spaced_words(packed->rows, bits) : dense_words(packed->rows, bits)))
        return false;
    for (unsigned i = 0; i + 2 < zeros->rank; i++)
        if (zeros->shape[i] != found->codes->shape[i])
            return false;
    return packed->row_step != 0;
}

static enum ts_status finish(const struct found *found, struct packed *packed, const struct ts_codec *codec,
                             struct ts_error *error)
{
    struct ts_grouped *grouped = &packed->grouped;
    struct ts_quantized_weight weight = {
        .name = found->codes->name,
        .stem = found->stem,
        .suffix = "",
        .codec = codec,
        .data = packed,
        .rank = found->codes->rank,
        .parts = {found->codes, found->scale, found->zeros, found->shape, found->order, found->global},
    };
    memcpy(weight.shape, found->codes->shape, weight.rank * sizeof *weight.shape);
    weight.shape[weight.rank - 1] = grouped->columns;
    grouped->main = found->codes;
    grouped->packed = ts_tensor_bytes(found->codes);
    grouped->scales = found->scale;
    grouped->zeros = found->zeros;
    grouped->tell_zero = found->zeros != NULL;
    grouped->unit = found->scale->count == 1 ? NULL : grouped->groups == 1 ? "row" : "group";
    grouped->factor = packed_factor;
    snprintf(weight.scheme, sizeof weight.scheme, "compressed-tensors %s%s", codec->name,
             found->zeros ? " with zero points" : "");
    ts_quantized_say_groups(&weight, grouped->group, grouped->columns);
    return ts_quantized_replace(found->q, &weight, error);
}

static enum ts_status join_integers(struct found *found, struct ts_error *error)
{
    struct packed *packed = ts_arena_alloc(&found->q->bundle->arena, sizeof *packed);
    struct ts_grouped *grouped;
    if (!packed)
        return ts_fail_memory(error);
    grouped = &packed->grouped;
    grouped->columns = find_columns(found);
    if (!grouped->columns)
        return refuse(found, found->shape ? "its weight_shape does not fit" : "its weight_shape is missing", error);
    grouped->bits = find_bits(found, grouped->columns, &packed->spaced);
    if (!grouped->bits)
        return refuse(found,
                      found->q->settings.widths ? "the shapes do not fit the config's num_bits"
                                                : "its weight_shape fits no number of bits",
                      error);
    packed->rows = found->codes->shape[found->codes->rank - 2];
    grouped->stride = found->codes->shape[found->codes->rank - 1] * 4;
    if (!ts_part_is_float(found->scale) || !lay_scales(found, packed))
        return refuse(found, "the scales do not fit the group size", error);
    if (!found->zeros && found->q->settings.symmetric == TS_NO)
        return refuse(found, "its zero points are missing", error);
    if (found->zeros && !zeros_fit(found, packed))
        return refuse(found, "its zero points do not fit the scales", error);
    if (found->order) {
        struct ts_error ignored;
        int64_t first = -1;
        ts_error_clear(&ignored);
        if (!ts_type_is_integer(found->order->type) || found->order->count != grouped->columns)
            return refuse(found, "its g_idx does not fit the columns", error);
        (void)ts_tensor_read_i64(found->order, 0, 1, &first, &ignored);
        if (first >= 0)
            grouped->order = found->order;
    }
    grouped->code = "code";
    grouped->codes = integer_codes;
    return finish(found, packed, &int_codecs[grouped->bits], error);
}

static enum ts_status join_floats(struct found *found, struct ts_error *error)
{
    const struct ts_tensor *codes = found->codes, *scale = found->scale;
    const bool exponents = scale->type == TS_U8 || scale->type == TS_F8_E8M0;
    struct packed *packed = ts_arena_alloc(&found->q->bundle->arena, sizeof *packed);
    uint64_t columns = codes->shape[codes->rank - 1] * 2, group = exponents ? 32 : 16;
    if (!packed)
        return ts_fail_memory(error);
    if (!exponents && scale->type != TS_F8_E4M3)
        return refuse(found, "its scales are neither fp8 nor exponents", error);
    if (!exponents && !found->global)
        return refuse(found, "its weight_global_scale is missing", error);
    if (found->global && (!ts_part_is_float(found->global) || found->global->count != 1))
        return refuse(found, "its weight_global_scale is not one number", error);
    if (scale->rank != codes->rank || columns % group || scale->shape[scale->rank - 1] != columns / group)
        return refuse(found, exponents ? "the scales do not fit groups of 32" : "the scales do not fit groups of 16",
                      error);
    for (unsigned i = 0; i + 1 < codes->rank; i++)
        if (scale->shape[i] != codes->shape[i])
            return refuse(found, "the scales do not fit the rows", error);
    packed->exponents = exponents;
    packed->row_step = columns / group;
    packed->rows = codes->shape[codes->rank - 2];
    packed->grouped = (struct ts_grouped){
        .columns = columns,
        .group = group,
        .groups = columns / group,
        .code = "fp4",
        .codes = fp4_codes,
        .stride = columns / 2,
        .global = found->global,
    };
    found->zeros = NULL;
    return finish(found, packed, exponents ? &mxfp4_codec : &nvfp4_codec, error);
}

static bool is_packed(const struct ts_tensor *tensor)
{
    return (tensor->type == TS_I32 || tensor->type == TS_U8) && tensor->rank >= 2 && tensor->rank <= 8;
}

static enum ts_status compressed_join(struct ts_quantized *q, struct ts_tensor *tensor, size_t stem, const char *suffix,
                                      struct ts_error *error)
{
    struct found found = {
        .q = q,
        .codes = tensor,
        .scale = ts_quantized_part(q, tensor->name, stem, "_scale"),
        .zeros = ts_quantized_part(q, tensor->name, stem, "_zero_point"),
        .shape = ts_quantized_part(q, tensor->name, stem, "_shape"),
        .order = ts_quantized_part(q, tensor->name, stem, "_g_idx"),
        .global = ts_quantized_part(q, tensor->name, stem, "_global_scale"),
        .stem = stem,
    };
    (void)suffix;
    if (!found.scale && !ts_ends_with(tensor->name, "weight_packed"))
        return TS_OK; /* something else that is packed */
    if (!found.scale)
        return ts_bundle_find(q->bundle, tensor->name, error, "stays as its parts: \"%.*s_scale\" is missing",
                              (int)stem, tensor->name);
    if (!tensor->count || !found.scale->count || !ts_part_is_plain(tensor))
        return refuse(&found, "it is empty or not stored side by side", error);
    return tensor->type == TS_U8 ? join_floats(&found, error) : join_integers(&found, error);
}

const struct ts_quantized_family ts_quantized_compressed = {
    .name = "compressed-tensors",
    .anchors = (const struct ts_quantized_anchor[]){TS_ANCHOR("_packed", is_packed), TS_NO_ANCHOR},
    .join = compressed_join,
};
