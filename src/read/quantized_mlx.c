/* Owns MLX: `weight` u32, `scales` and `biases` beside one another.
 *
 * Affine: the last axis of the weight is a stream of codes of 2, 3, 4, 5, 6 or 8 bits, low bits first across bytes and
 * words, whole words per row: [..., in * bits / 32]. Groups of 32, 64 or 128 along it share a scale and a bias
 * [..., in / group]: value = scale * code + bias.
 *
 * The newer modes have no biases, and scales of one byte: "mxfp4" E2M1 floats, two in a byte, the first in the low
 * half, groups of 32 with E8M0 exponents; "mxfp8" E4M3 floats with the same; "nvfp4" E2M1 floats in groups of 16 with
 * E4M3 scales.
 *
 * config.json says group_size and bits in "quantization", for the model and again for modules that differ. Shapes alone
 * give the product of the two: words * 32 / scales of a row. That decides the newer modes, and the affine one when only
 * one pair has this product. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "read/quantized_family.h"

static const struct ts_codec affine_codecs[9] = {
    [2] = TS_GROUPED_CODEC("mlx2"), [3] = TS_GROUPED_CODEC("mlx3"), [4] = TS_GROUPED_CODEC("mlx4"),
    [5] = TS_GROUPED_CODEC("mlx5"), [6] = TS_GROUPED_CODEC("mlx6"), [8] = TS_GROUPED_CODEC("mlx8"),
};
static const struct ts_codec mxfp4_codec = TS_GROUPED_CODEC("mxfp4");
static const struct ts_codec mxfp8_codec = TS_GROUPED_CODEC("mxfp8");
static const struct ts_codec nvfp4_codec = TS_GROUPED_CODEC("nvfp4");

/* Rows are whole words and whole groups, so the tensor is one row as far as the codec is concerned. */
static void affine_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    (void)row;
    ts_unpack_codes(grouped->packed, grouped->bits, column, count, out);
}

static void affine_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    (void)row;
    factor->scale = ts_part_f32(grouped->scales, group);
    factor->zero = ts_part_f32(grouped->zeros, group);
}

static void fp4_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    (void)row;
    ts_unpack_fp4(grouped->packed, column, count, out);
}

static void fp8_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    (void)row;
    ts_type_decode_f32(TS_F8_E4M3, false, grouped->packed + column, count, out);
}

static void exponent_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    (void)row;
    factor->scale = ts_part_exponent(grouped->scales, group);
    factor->zero = 0;
}

static void e4m3_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    uint8_t code = (uint8_t)ts_part_f32(grouped->scales, group);
    (void)row;
    ts_type_decode_f32(TS_F8_E4M3, false, &code, 1, &factor->scale);
    factor->zero = 0;
}

struct found {
    struct ts_quantized *q;
    struct ts_tensor *weight, *scales, *biases;
    uint64_t words, groups; /* in the last axis */
};

static enum ts_status finish(const struct found *found, const struct ts_codec *codec, struct ts_grouped layout,
                             const char *mode, struct ts_error *error)
{
    struct ts_grouped *grouped = ts_arena_alloc(&found->q->bundle->arena, sizeof *grouped);
    struct ts_quantized_weight weight = {
        .name = found->weight->name,
        .stem = strlen(found->weight->name),
        .suffix = "",
        .codec = codec,
        .data = grouped,
        .rank = found->weight->rank,
        .parts = {found->weight, found->scales, found->biases},
    };
    uint64_t columns = found->groups * layout.group;
    if (!grouped)
        return ts_fail_memory(error);
    memcpy(weight.shape, found->weight->shape, weight.rank * sizeof *weight.shape);
    weight.shape[weight.rank - 1] = columns;
    *grouped = layout;
    grouped->groups = found->scales->count;
    grouped->columns = grouped->groups * layout.group;
    grouped->unit = "group";
    grouped->packed = ts_tensor_bytes(found->weight);
    grouped->main = found->weight;
    grouped->scales = found->scales;
    grouped->zeros = found->biases;
    if (grouped->affine)
        snprintf(weight.scheme, sizeof weight.scheme, "mlx %s %u bits", mode, layout.bits);
    else
        snprintf(weight.scheme, sizeof weight.scheme, "mlx %s", mode);
    ts_quantized_say_groups(&weight, layout.group, columns);
    return ts_quantized_replace(found->q, &weight, error);
}

static bool is_affine_width(uint64_t bits)
{
    return bits >= 2 && bits <= 8 && bits != 7;
}

static size_t find_module(struct ts_quantized *q, const char *name, size_t stem)
{
    ts_buffer_clear(&q->wanted);
    if (!ts_buffer_append(&q->wanted, name, stem))
        return SIZE_MAX;
    return ts_table_get(&q->settings.module_names, q->wanted.data);
}

/* The settings that hold for the module of this tensor, `name` without ".weight". Several files in one folder put the
 * file's name and a colon in front. */
static struct ts_mlx_settings settings_of(struct ts_quantized *q, const char *name, size_t stem)
{
    const struct ts_quantized_settings *settings = &q->settings;
    struct ts_mlx_settings found = settings->mlx;
    const char *colon = strrchr(name, ':');
    size_t place;
    if (!settings->module_count)
        return found;
    place = find_module(q, name, stem);
    if (place == SIZE_MAX && colon)
        place = find_module(q, colon + 1, stem - (size_t)(colon + 1 - name));
    if (place != SIZE_MAX) {
        const struct ts_mlx_settings *own = &settings->modules[place];
        if (own->bits)
            found.bits = own->bits;
        if (own->group)
            found.group = own->group;
        memcpy(found.mode, own->mode, sizeof found.mode);
    }
    return found;
}

static enum ts_status join_affine(const struct found *found, const struct ts_mlx_settings *said, struct ts_error *error)
{
    static const uint64_t sizes[] = {32, 64, 128};
    const uint64_t product = found->words * 32 / found->groups; /* bits times group size */
    char weight[TS_SHAPE_TEXT], scales[TS_SHAPE_TEXT];
    uint64_t group = 0;
    unsigned fits = 0;
    ts_quantized_shape(found->weight, weight);
    ts_quantized_shape(found->scales, scales);
    if (found->words * 32 % found->groups)
        return ts_bundle_find(found->q->bundle, found->weight->name, error,
                              "stays as its parts: weight %s is no whole number of groups for scales %s", weight,
                              scales);
    if (said->bits && said->group) {
        if (!is_affine_width(said->bits) || product / said->bits != said->group || product % said->bits)
            return ts_bundle_find(found->q->bundle, found->weight->name, error,
                                  "stays as its parts: weight %s and scales %s do not fit %u bits in groups of %" PRIu64
                                  ", the config's settings",
                                  weight, scales, said->bits, said->group);
        group = said->group;
        fits = 1;
    }
    for (size_t i = 0; !(said->bits && said->group) && i < 3; i++)
        if (product % sizes[i] == 0 && is_affine_width(product / sizes[i]) &&
            (!said->bits || said->bits == product / sizes[i]) && (!said->group || said->group == sizes[i])) {
            group = sizes[i];
            fits++;
        }
    if (fits != 1)
        return ts_bundle_find(found->q->bundle, found->weight->name, error,
                              "stays as its parts: bits times group size is %" PRIu64 ", which %s; a config.json with "
                              "\"quantization\" would tell",
                              product, fits ? "several settings give" : "no setting gives");
    return finish(found, &affine_codecs[product / group],
                  (struct ts_grouped){
                      .group = group,
                      .bits = (unsigned)(product / group),
                      .affine = true,
                      .code = "code",
                      .codes = affine_codes,
                      .factor = affine_factor,
                  },
                  "affine", error);
}

/* Scales of one byte: the mode follows from the width of a group, 128 bits of mxfp4, 256 of mxfp8, 64 of nvfp4. */
static enum ts_status join_float(const struct found *found, const struct ts_mlx_settings *said, struct ts_error *error)
{
    static const struct {
        const char *mode;
        uint64_t product, group;
        void (*codes)(const struct ts_grouped *, uint64_t, uint64_t, size_t, float *);
        void (*factor)(const struct ts_grouped *, uint64_t, uint64_t, struct ts_factor *);
        const struct ts_codec *codec;
        const char *code;
    } modes[] = {
        {"mxfp4", 128, 32, fp4_codes, exponent_factor, &mxfp4_codec, "fp4"},
        {"mxfp8", 256, 32, fp8_codes, exponent_factor, &mxfp8_codec, "fp8"},
        {"nvfp4", 64, 16, fp4_codes, e4m3_factor, &nvfp4_codec, "fp4"},
    };
    const uint64_t product = found->words * 32 / found->groups;
    char weight[TS_SHAPE_TEXT], scales[TS_SHAPE_TEXT];
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (product == modes[i].product && found->words * 32 % found->groups == 0 &&
            (!said->mode[0] || strcmp(said->mode, "affine") == 0 || strcmp(said->mode, modes[i].mode) == 0))
            return finish(
                found, modes[i].codec,
                (struct ts_grouped){
                    .group = modes[i].group, .code = modes[i].code, .codes = modes[i].codes, .factor = modes[i].factor},
                modes[i].mode, error);
    return ts_bundle_find(found->q->bundle, found->weight->name, error,
                          "stays as its parts: weight %s and scales %s of one byte fit no mode of mlx",
                          ts_quantized_shape(found->weight, weight), ts_quantized_shape(found->scales, scales));
}

static bool leading_axes_equal(const struct ts_tensor *a, const struct ts_tensor *b, unsigned but_last)
{
    if (a->rank != b->rank)
        return false;
    for (unsigned i = 0; i + but_last < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

static enum ts_status join_parts(struct ts_quantized *q, struct ts_tensor *weight, size_t stem, struct ts_error *error)
{
    struct found found = {
        .q = q,
        .weight = weight,
        .scales = ts_quantized_part(q, weight->name, stem, ".scales"),
        .biases = ts_quantized_part(q, weight->name, stem, ".biases"),
    };
    struct ts_mlx_settings said = settings_of(q, weight->name, stem);
    char shape[TS_SHAPE_TEXT], scales[TS_SHAPE_TEXT];
    if (!found.scales) {
        if (!found.biases && !q->settings.has_mlx)
            return TS_OK; /* unsigned integers of another kind */
        return ts_bundle_find(q->bundle, weight->name, error, "stays as its parts: \"%.*s.scales\" is missing",
                              (int)stem, weight->name);
    }
    if (weight->rank < 2 || !weight->count || !found.scales->count || !ts_part_is_plain(weight) ||
        !leading_axes_equal(weight, found.scales, 1) ||
        (found.biases && !leading_axes_equal(found.scales, found.biases, 0)) ||
        (found.biases && !ts_part_is_float(found.biases)))
        return ts_bundle_find(q->bundle, weight->name, error,
                              "stays as its parts: weight %s, scales %s and biases do not fit together",
                              ts_quantized_shape(weight, shape), ts_quantized_shape(found.scales, scales));
    found.words = weight->shape[weight->rank - 1];
    found.groups = found.scales->shape[weight->rank - 1];
    if (found.scales->type == TS_U8 && !found.biases)
        return join_float(&found, &said, error);
    if (!found.biases)
        return ts_bundle_find(q->bundle, weight->name, error, "stays as its parts: \"%.*s.biases\" is missing",
                              (int)stem, weight->name);
    if (!ts_part_is_float(found.scales))
        return ts_bundle_find(q->bundle, weight->name, error, "stays as its parts: its scales are no floats");
    return join_affine(&found, &said, error);
}

static bool is_packed(const struct ts_tensor *tensor)
{
    return tensor->type == TS_U32;
}

static enum ts_status mlx_join(struct ts_quantized *q, struct ts_tensor *tensor, size_t stem, const char *suffix,
                               struct ts_error *error)
{
    (void)suffix;
    return join_parts(q, tensor, stem, error);
}

const struct ts_quantized_family ts_quantized_mlx = {
    .name = "mlx",
    .anchors = (const struct ts_quantized_anchor[]){TS_ANCHOR(".weight", is_packed), TS_NO_ANCHOR},
    .join = mlx_join,
};
