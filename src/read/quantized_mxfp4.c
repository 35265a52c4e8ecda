/* Owns MXFP4 as GPT-OSS stores its experts: `X_blocks` u8 [experts, rows, groups, 16] and `X_scales` u8
 * [experts, rows, groups] stand for X [experts, rows, groups * 32]. The model's original files write `X.blocks` and
 * `X.scales`.
 *
 * A byte holds two E2M1 floats, the even element in the low half; the 32 of a group are multiplied by 2^(scale - 127).
 * Rows are the outputs of the projection: transformers turns them into columns when it unpacks, so its unquantized
 * weight is this one with the last two axes exchanged. */
#include <stdio.h>
#include <string.h>

#include "read/quantized_family.h"

static const struct ts_codec mxfp4_codec = TS_GROUPED_CODEC("mxfp4");

static void block_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    (void)row;
    ts_unpack_fp4(grouped->packed, column, count, out);
}

static void block_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    (void)row;
    factor->scale = ts_part_exponent(grouped->scales, group);
    factor->zero = 0;
}

static bool is_blocks(const struct ts_tensor *tensor)
{
    return tensor->type == TS_U8 && tensor->rank >= 2 && tensor->shape[tensor->rank - 1] == 16;
}

static bool scales_fit(const struct ts_tensor *blocks, const struct ts_tensor *scales)
{
    if ((scales->type != TS_U8 && scales->type != TS_F8_E8M0) || scales->rank != blocks->rank - 1)
        return false;
    for (unsigned i = 0; i < scales->rank; i++)
        if (scales->shape[i] != blocks->shape[i])
            return false;
    return true;
}

static enum ts_status mxfp4_join(struct ts_quantized *q, struct ts_tensor *blocks, size_t stem, const char *suffix,
                                 struct ts_error *error)
{
    const char *scales_suffix = suffix[0] == '_' ? "_scales" : ".scales";
    struct ts_tensor *scales = ts_quantized_part(q, blocks->name, stem, scales_suffix);
    struct ts_quantized_weight weight = {
        .name = blocks->name,
        .stem = stem,
        .suffix = "",
        .codec = &mxfp4_codec,
        .rank = blocks->rank - 1,
        .parts = {blocks, scales},
        .scheme = "mxfp4, groups of 32",
    };
    struct ts_grouped *grouped;
    char shape[TS_SHAPE_TEXT], text[TS_SHAPE_TEXT];
    if (!scales)
        return ts_bundle_find(q->bundle, blocks->name, error, "stays as its parts: \"%.*s%s\" is missing", (int)stem,
                              blocks->name, scales_suffix);
    if (!blocks->count || !ts_part_is_plain(blocks) || !scales_fit(blocks, scales))
        return ts_bundle_find(q->bundle, blocks->name, error,
                              "stays as its parts: blocks %s need a scale of one byte each, the scales are %s",
                              ts_quantized_shape(blocks, shape), ts_quantized_shape(scales, text));
    if (!(grouped = ts_arena_alloc(&q->bundle->arena, sizeof *grouped)))
        return ts_fail_memory(error);
    *grouped = (struct ts_grouped){
        .columns = blocks->count * 2,
        .group = 32,
        .groups = scales->count,
        .unit = "group",
        .code = "fp4",
        .codes = block_codes,
        .factor = block_factor,
        .packed = ts_tensor_bytes(blocks),
        .main = blocks,
        .scales = scales,
    };
    weight.data = grouped;
    memcpy(weight.shape, blocks->shape, weight.rank * sizeof *weight.shape);
    weight.shape[weight.rank - 1] *= 32;
    return ts_quantized_replace(q, &weight, error);
}

const struct ts_quantized_family ts_quantized_mxfp4 = {
    .name = "mxfp4 blocks",
    .anchors = (const struct ts_quantized_anchor[]){TS_ANCHOR("_blocks", is_blocks), TS_ANCHOR(".blocks", is_blocks),
                                                    TS_NO_ANCHOR},
    .join = mxfp4_join,
};
