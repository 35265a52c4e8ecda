/* Owns weights of one byte per element, or of two 4-bit floats per byte, that keep their name and have scales beside
 * them.
 *
 *     X (fp8)   X_scale_inv            DeepSeek and what followed it: blocks, usually 128 x 128. Multiplied, whatever
 *                                      the name says; the last block of an axis may be shorter
 *               X_scale                one scale, one per row ([out, 1] or [out]), per group or per block; the scales
 *                                      of mxfp8 are one-byte exponents, one per 32 columns
 *               <module>.scale         DeepSeek's own inference format, V4
 *               <module>.scale_weight  image models
 *     X (i8)    X_scale                compressed-tensors "int-quantized", with X_zero_point when it is not symmetric
 *                                      and X_g_idx when columns are in groups of their own
 *     X (u8)    X_scale (fp8), X_scale_2   nvfp4 of modelopt: two E2M1 floats per byte, the first in the low half,
 *                                      groups of 16, value = code * (scale * scale_2)
 *               X_scale (exponents)    mxfp4: the same codes in groups of 32
 *     X (i8)    <module>.scale (exponents)  DeepSeek V4's experts, which are mxfp4
 *
 * input_scale, k_scale and v_scale concern activations: they are no part of a weight. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "read/quantized_family.h"

/* Scales over blocks of any axes. Leading axes of length 1 apart, weights have up to three: experts, rows, columns. */
#define MAX_AXES 8

struct blocked {
    struct ts_grouped grouped;
    unsigned leading;          /* axes but the last */
    uint64_t shape[MAX_AXES];  /* of the leading axes */
    uint64_t block[MAX_AXES];  /* elements that share a scale, per leading axis */
    uint64_t stride[MAX_AXES]; /* scales from one block to the next, per leading axis */
    bool exponents;            /* bytes of the scales are exponents */
    uint64_t global_rows;      /* rows per entry of the second scale */
};

static void byte_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    ts_type_decode_f32(grouped->main->type, false, grouped->packed + row * grouped->columns + column, count, out);
}

static void nibble_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    ts_unpack_fp4(grouped->packed + row * (grouped->columns / 2), column, count, out);
}

static uint64_t scale_index(const struct blocked *blocked, uint64_t row, uint64_t group)
{
    uint64_t index = group;
    for (unsigned i = blocked->leading; i-- > 0;) {
        index += row % blocked->shape[i] / blocked->block[i] * blocked->stride[i];
        row /= blocked->shape[i];
    }
    return index;
}

static void blocked_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    const struct blocked *blocked = (const struct blocked *)grouped;
    uint64_t index = scale_index(blocked, row, group);
    factor->scale = blocked->exponents ? ts_part_exponent(grouped->scales, index) : ts_part_f32(grouped->scales, index);
    if (grouped->global)
        factor->scale *= ts_part_f32(grouped->global, row / blocked->global_rows);
    factor->zero = grouped->zeros ? ts_part_f32(grouped->zeros, index) : 0;
}

/* Where a row is not the whole story: which entry of the scales it is. */
static void blocked_explain(const struct ts_tensor *tensor, uint64_t index, struct ts_buffer *out)
{
    const struct blocked *blocked = tensor->codec_data;
    const struct ts_grouped *grouped = &blocked->grouped;
    ts_grouped_explain(tensor, index, out);
    if (index < tensor->count && grouped->scales->count > 1 && !grouped->order) {
        uint64_t row = index / grouped->columns, group = index % grouped->columns / grouped->group;
        ts_buffer_printf(out, " (scale %" PRIu64 ")", scale_index(blocked, row, group));
    }
}

#define BLOCKED_CODEC(shown)                                                                                           \
    {                                                                                                                  \
        .name = (shown), .read_f32 = ts_grouped_read, .explain = blocked_explain                                       \
    }

static const struct ts_codec fp8_codec = BLOCKED_CODEC("fp8 scaled");
static const struct ts_codec int8_codec = BLOCKED_CODEC("int8");
static const struct ts_codec mxfp8_codec = BLOCKED_CODEC("mxfp8");
static const struct ts_codec mxfp4_codec = BLOCKED_CODEC("mxfp4");
static const struct ts_codec nvfp4_codec = BLOCKED_CODEC("nvfp4");

static bool is_fp8(const struct ts_tensor *tensor)
{
    return tensor->type == TS_F8_E4M3 || tensor->type == TS_F8_E5M2 || tensor->type == TS_F8_E4M3FNUZ ||
           tensor->type == TS_F8_E5M2FNUZ;
}

struct found {
    struct ts_quantized *q;
    struct ts_tensor *weight, *scale, *zeros, *order, *second;
    const char *spelling; /* how the scale's name ends */
    bool packed;          /* two elements per byte */
    bool exponents;       /* scales are exponents */
};

/* How many of an axis share a scale, given so many scales along it. 0: cannot be told, or not what the config says. */
static uint64_t block_of(uint64_t length, uint64_t scales, uint64_t said)
{
    uint64_t even = scales && length % scales == 0 ? length / scales : 0;
    if (scales == 1 || even == 1)
        return even;
    if (said)
        return ts_ceil_div(length, said) == scales ? said : 0;
    if (even && (even & (even - 1)) == 0)
        return even;
    /* Blocks that leave a shorter last one are DeepSeek's, of 128. */
    return ts_ceil_div(length, 128) == scales ? 128 : even;
}

/* What the config says of an axis: blocks have two, groups are along the last. */
static uint64_t said_of(const struct ts_quantized_settings *settings, unsigned from_last, uint64_t length,
                        uint64_t scales)
{
    if (from_last > 1)
        return 0;
    for (unsigned i = 0; from_last == 0 && i < settings->group_count; i++)
        if (ts_ceil_div(length, settings->groups[i]) == scales)
            return settings->groups[i];
    return settings->block[1 - from_last];
}

static uint64_t axis(const struct found *found, unsigned i)
{
    return found->weight->shape[i] * (found->packed && i + 1 == found->weight->rank ? 2 : 1);
}

/* Lays the scales over the weight, axis by axis from the first; axes that the scales do not have share one. */
static bool lay(const struct found *found, struct blocked *blocked)
{
    const struct ts_tensor *weight = found->weight, *scale = found->scale;
    uint64_t stride = 1;
    if (weight->rank < 1 || weight->rank > MAX_AXES || (scale->rank > weight->rank && scale->count != 1))
        return false;
    blocked->leading = weight->rank - 1;
    for (unsigned i = weight->rank; i-- > 0;) {
        uint64_t along = scale->count == 1 || i >= scale->rank ? 1 : scale->shape[i];
        uint64_t length = axis(found, i);
        uint64_t block = block_of(length, along, said_of(&found->q->settings, weight->rank - 1 - i, length, along));
        if (!block)
            return false;
        if (i == blocked->leading) {
            blocked->grouped.group = block;
            blocked->grouped.groups = along;
        } else {
            blocked->shape[i] = weight->shape[i];
            blocked->block[i] = block;
            blocked->stride[i] = stride;
        }
        stride *= along;
    }
    return true;
}

static void say_blocks(const struct found *found, const struct blocked *blocked, struct ts_quantized_weight *weight)
{
    size_t used = strlen(weight->scheme), left = sizeof weight->scheme - used;
    const uint64_t columns = blocked->grouped.columns, group = blocked->grouped.group;
    uint64_t rows = blocked->leading ? blocked->block[blocked->leading - 1] : 1;
    if (found->scale->count == 1)
        snprintf(weight->scheme + used, left, ", one scale");
    else if (rows == 1 && group == columns)
        snprintf(weight->scheme + used, left, ", a scale per row");
    else if (rows == 1)
        snprintf(weight->scheme + used, left, ", groups of %" PRIu64, group);
    else
        snprintf(weight->scheme + used, left, ", blocks of %" PRIu64 "x%" PRIu64, rows, group);
}

static enum ts_status refuse(const struct found *found, const char *why, struct ts_error *error)
{
    char weight[TS_SHAPE_TEXT], scale[TS_SHAPE_TEXT];
    ts_quantized_shape(found->weight, weight);
    ts_quantized_shape(found->scale, scale);
    return ts_bundle_find(found->q->bundle, found->weight->name, error, "stays as its parts: %s (weight %s, %s %s)",
                          why, weight, found->spelling, scale);
}

static enum ts_status finish(const struct found *found, struct ts_error *error)
{
    const uint64_t *said = found->q->settings.block;
    struct blocked *blocked = ts_arena_alloc(&found->q->bundle->arena, sizeof *blocked);
    struct ts_quantized_weight weight = {
        .name = found->weight->name,
        .stem = strlen(found->weight->name),
        .suffix = "",
        .data = blocked,
        .rank = found->weight->rank,
        .parts = {found->weight, found->scale, found->second, found->zeros, found->order},
    };
    const char *kind;
    if (!blocked)
        return ts_fail_memory(error);
    if (!found->weight->count || !found->scale->count || !ts_part_is_plain(found->weight))
        return refuse(found, "it is empty or not stored side by side", error);
    if (!lay(found, blocked)) {
        char why[120];
        snprintf(why, sizeof why, "the scales do not fit the config's blocks of %" PRIu64 "x%" PRIu64, said[0],
                 said[1]);
        return refuse(found, said[0] ? why : "the scales do not fit", error);
    }
    if (found->order &&
        (found->order->count != axis(found, found->weight->rank - 1) || !ts_type_is_integer(found->order->type)))
        return refuse(found, "its g_idx does not fit the columns", error);
    if (found->zeros && found->zeros->count != found->scale->count)
        return refuse(found, "its zero points do not fit the scales", error);
    blocked->exponents = found->exponents;
    blocked->grouped.columns = axis(found, found->weight->rank - 1);
    blocked->grouped.order = found->order;
    blocked->grouped.codes = found->packed ? nibble_codes : byte_codes;
    blocked->grouped.factor = blocked_factor;
    blocked->grouped.packed = ts_tensor_bytes(found->weight);
    blocked->grouped.main = found->weight;
    blocked->grouped.scales = found->scale;
    blocked->grouped.zeros = found->zeros;
    blocked->grouped.tell_zero = found->zeros != NULL;
    blocked->grouped.global = found->second;
    if (found->second)
        blocked->global_rows =
            found->weight->count / found->weight->shape[found->weight->rank - 1] / found->second->count;
    memcpy(weight.shape, found->weight->shape, weight.rank * sizeof *weight.shape);
    weight.shape[weight.rank - 1] = blocked->grouped.columns;
    weight.codec = found->packed           ? found->second ? &nvfp4_codec : &mxfp4_codec
                   : is_fp8(found->weight) ? found->exponents ? &mxfp8_codec : &fp8_codec
                                           : &int8_codec;
    kind = found->packed || found->exponents ? weight.codec->name
           : is_fp8(found->weight)           ? ts_type_info(found->weight->type)->name
                                             : "int8";
    blocked->grouped.code = found->packed ? "fp4" : is_fp8(found->weight) ? "fp8" : "code";
    snprintf(weight.scheme, sizeof weight.scheme, "%s", kind);
    say_blocks(found, blocked, &weight);
    return ts_quantized_replace(found->q, &weight, error);
}

/* A second scale stands for the whole tensor or for one matrix of several. */
static bool second_fits(const struct found *found)
{
    const struct ts_tensor *second = found->second;
    return ts_part_is_float(second) &&
           (second->count == 1 || (found->weight->rank == 3 && second->count == found->weight->shape[0]));
}

/* Decides between one element per byte and two, and how scales are read; false when this is no scheme of ours. */
static bool recognize(struct found *found)
{
    const struct ts_tensor *weight = found->weight, *scale = found->scale;
    const uint64_t columns = weight->rank ? weight->shape[weight->rank - 1] : 0;
    const uint64_t groups = scale->rank ? scale->shape[scale->rank - 1] : 0;
    found->exponents = scale->type == TS_F8_E8M0 || scale->type == TS_U8;
    if (!found->exponents && scale->type != TS_F8_E4M3 && !ts_part_is_float(scale))
        return false;
    if (is_fp8(weight))
        return true;
    if (weight->type != TS_U8 && weight->type != TS_I8)
        return false;
    if (found->second && scale->type == TS_F8_E4M3)
        return found->packed = weight->type == TS_U8;
    if (found->exponents && scale->rank == weight->rank && groups && columns % 16 == 0 && columns / 16 == groups)
        return found->packed = true;
    return weight->type == TS_I8 && !found->exponents && scale->type != TS_F8_E4M3;
}

/* The spellings of a scale, by what they replace at the end of the weight's name. */
static const struct {
    const char *own, *instead;
} spellings[] = {
    {"", "_scale_inv"},
    {"", "_scale"},
    {".weight", ".scale"},
    {".weight", ".scale_weight"},
};

static bool find_scale(struct found *found)
{
    const char *name = found->weight->name;
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        if (!ts_ends_with(name, spellings[i].own))
            continue;
        found->scale = ts_quantized_part(found->q, name, length - strlen(spellings[i].own), spellings[i].instead);
        found->spelling = spellings[i].instead + 1;
        if (found->scale)
            return true;
    }
    return false;
}

static enum ts_status join_weight(struct ts_quantized *q, struct ts_tensor *weight, struct ts_error *error)
{
    struct found found = {.q = q, .weight = weight};
    const size_t length = strlen(weight->name);
    const char *method = q->settings.method;
    if (!find_scale(&found)) {
        /* Casting to fp8 without scales is done, too: only a config that promises them makes it wrong. */
        if (!is_fp8(weight) || (strcmp(method, "fp8") != 0 && strcmp(method, "compressed-tensors") != 0 &&
                                strcmp(method, "fbgemm_fp8") != 0 && strcmp(method, "modelopt") != 0))
            return TS_OK;
        return ts_bundle_find(q->bundle, weight->name, error,
                              "its scales are missing: the config says \"%s\", and there "
                              "is no \"%s_scale\" or \"%s_scale_inv\"",
                              method, weight->name, weight->name);
    }
    found.zeros = ts_quantized_part(q, weight->name, length, "_zero_point");
    found.order = ts_quantized_part(q, weight->name, length, "_g_idx");
    found.second = ts_quantized_part(q, weight->name, length, "_scale_2");
    if (!recognize(&found))
        return ts_ends_with(weight->name, ".weight") && method[0]
                   ? refuse(&found, "its scales fit no scheme that is known to this program", error)
                   : TS_OK;
    if (found.second && !second_fits(&found))
        return refuse(&found, "its scale_2 does not fit", error);
    if (found.zeros && !ts_part_is_float(found.zeros) && !ts_type_is_integer(found.zeros->type) && !is_fp8(found.zeros))
        return refuse(&found, "its zero points have another type", error);
    return finish(&found, error);
}

static bool is_byte(const struct ts_tensor *tensor)
{
    return is_fp8(tensor) || tensor->type == TS_I8 || tensor->type == TS_U8;
}

/* Reached from the weight, or from a scale whose weight has a name of its own (fused experts). */
static enum ts_status fp8_join(struct ts_quantized *q, struct ts_tensor *tensor, size_t stem, const char *suffix,
                               struct ts_error *error)
{
    struct ts_tensor *weight;
    if (strcmp(suffix, ".weight") == 0)
        return join_weight(q, tensor, error);
    weight = ts_quantized_part(q, tensor->name, stem, "");
    return weight && is_byte(weight) && !ts_ends_with(weight->name, ".weight") ? join_weight(q, weight, error) : TS_OK;
}

const struct ts_quantized_family ts_quantized_fp8 = {
    .name = "fp8 and int8 with scales",
    .anchors = (const struct ts_quantized_anchor[]){TS_ANCHOR(".weight", is_byte), TS_ANCHOR("_scale_inv", NULL),
                                                    TS_ANCHOR("_scale", NULL), TS_NO_ANCHOR},
    .join = fp8_join,
};
