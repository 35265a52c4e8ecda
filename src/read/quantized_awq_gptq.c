/* Owns AWQ and GPTQ: `qweight`, `scales`, `qzeros` and GPTQ's `g_idx` beside one another, standing for `weight`.
 *
 * Both pack codes into 32-bit words, both store the matrix transposed against nn.Linear ([in, out] for a weight of
 * [out, in]), and both have scales [groups, out]: value = (code - zero) * scale, a group being neighbours along `in`.
 *
 * AWQ (AutoAWQ's "gemm"): 4 bits, eight neighbours along `out` in a word, so qweight [in, out / 8] and qzeros
 * [groups, out / 8]. From the low end a word holds columns 0 2 4 6 1 3 5 7. Zero points are stored as they are.
 * AutoAWQ's "gemv": qweight [out, in / 8] in plain order, qzeros [out, w] and scales [out, 8 w], w padded to the groups
 * that the kernel reads at once.
 *
 * GPTQ: neighbours along `in` in a word, so qweight [in * bits / 32, out]; qzeros [groups, out * bits / 32], packed
 * along `out`; scales [groups, out]. 2, 4 and 8 bits fill words from the low end; 3 bits run on across words, 32 codes
 * in three. The first version of the format (checkpoint_format "gptq", also when unsaid) stores zero points less one,
 * wrapping around; "gptq_v2" stores them as they are. g_idx gives the group of each of the `in` rows: with act-order
 * (desc_act) they are not in sequence. "gptq_p" and all of 5, 6 and 7 bits keep codes in planes: of each 32 codes first
 * the low bits (4, or 2 of a 3-bit code), then the next bits, whole words per plane; their zero points are as in v2.
 * Some writers pack into 8 or 16-bit words instead, which changes nothing else. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "read/quantized_family.h"

static const struct ts_codec awq_codec = TS_GROUPED_CODEC("awq4");
static const struct ts_codec gptq_codecs[9] = {
    [2] = TS_GROUPED_CODEC("gptq2"), [3] = TS_GROUPED_CODEC("gptq3"), [4] = TS_GROUPED_CODEC("gptq4"),
    [5] = TS_GROUPED_CODEC("gptq5"), [6] = TS_GROUPED_CODEC("gptq6"), [7] = TS_GROUPED_CODEC("gptq7"),
    [8] = TS_GROUPED_CODEC("gptq8"),
};

struct matrix {
    struct ts_grouped grouped; /* first: what the codec knows of it */
    uint64_t rows;             /* `out` */
    unsigned word;             /* bytes of a packed word */
    unsigned zero_step;        /* what is added to a stored zero point */
    bool planar;
};

/* Where column j of eight stands in a word of AWQ, in codes from the low end. */
static const unsigned awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static void awq_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    const uint8_t *at = grouped->packed + (column * grouped->stride + row / 8) * 4;
    const uint64_t step = grouped->stride * 4;
    const unsigned shift = awq_place[row % 8] * 4;
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(ts_load_le32(at + i * step) >> shift & 15);
}

/* Rows up to the next multiple of eight: each word is loaded once. */
static void awq_tile(const struct ts_grouped *grouped, uint64_t row, unsigned rows, float *out)
{
    const uint8_t *at = grouped->packed + row / 8 * 4;
    const uint64_t step = grouped->stride * 4;
    for (uint64_t i = 0; i < grouped->columns; i++) {
        uint32_t word = ts_load_le32(at + i * step);
        for (unsigned r = 0; r < rows; r++)
            out[r * grouped->columns + i] = (float)(word >> awq_place[(row + r) % 8] * 4 & 15);
    }
}

static void awq_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    const struct matrix *matrix = (const struct matrix *)grouped;
    factor->scale = ts_part_f32(grouped->scales, group * matrix->rows + row);
    factor->zero = 8;
    if (grouped->zeros) {
        const uint8_t *at = ts_tensor_bytes(grouped->zeros) + (group * grouped->stride + row / 8) * 4;
        factor->zero = (float)(ts_load_le32(at) >> awq_place[row % 8] * 4 & 15);
    }
}

static void gemv_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    ts_unpack_codes(grouped->packed + row * grouped->stride * 4, 4, column, count, out);
}

static void gemv_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    uint64_t width = grouped->scales->shape[1];
    factor->scale = ts_part_f32(grouped->scales, row * width + group);
    factor->zero = (float)ts_code_at(ts_tensor_bytes(grouped->zeros) + row * (width / 8) * 4, 4, group);
}

static uint32_t load_word(const uint8_t *at, unsigned bytes)
{
    return bytes == 4 ? ts_load_le32(at) : bytes == 2 ? ts_load_le16(at) : *at;
}

/* Codes that do not straddle words: one load for all codes of a word. */
static void gptq_codes(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    const struct matrix *matrix = (const struct matrix *)grouped;
    const unsigned bits = grouped->bits, per_word = 8 * matrix->word / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (size_t i = 0; i < count;) {
        uint64_t word = (column + i) / per_word;
        unsigned place = (unsigned)((column + i) % per_word);
        uint32_t packed = load_word(grouped->packed + (word * grouped->stride + row) * matrix->word, matrix->word);
        for (packed >>= place * bits; place < per_word && i < count; place++, packed >>= bits)
            out[i++] = (float)(packed & mask);
    }
}

/* Three bits across words: a code that begins in the last two bits of a word ends in the next. */
static void gptq_codes_of_3(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    const uint8_t *base = grouped->packed + row * 4;
    for (size_t i = 0; i < count; i++) {
        uint64_t bit = (column + i) * 3;
        unsigned shift = (unsigned)(bit % 32);
        uint32_t code = ts_load_le32(base + bit / 32 * grouped->stride * 4) >> shift;
        if (shift > 29)
            code |= ts_load_le32(base + (bit / 32 + 1) * grouped->stride * 4) << (32 - shift);
        out[i] = (float)(code & 7);
    }
}

/* The code at `index` of a planar sequence of words that stand `step` bytes apart. */
static unsigned planar_code(const uint8_t *base, uint64_t step, unsigned bits, uint64_t index)
{
    unsigned within = (unsigned)(index % 32), done = 0, code = 0;
    const uint8_t *at = base + index / 32 * bits * step;
    while (done < bits) {
        unsigned left = bits - done, width = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        unsigned per_word = 32 / width;
        uint32_t word = ts_load_le32(at + (done + within / per_word) * step);
        code |= (word >> within % per_word * width & ((1u << width) - 1)) << done;
        done += width;
    }
    return code;
}

static void gptq_codes_planar(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)planar_code(grouped->packed + row * 4, grouped->stride * 4, grouped->bits, column + i);
}

static unsigned gptq_stored_zero(const struct matrix *matrix, uint64_t row, uint64_t group)
{
    const struct ts_tensor *zeros = matrix->grouped.zeros;
    const uint8_t *from = ts_tensor_bytes(zeros) + group * zeros->shape[1] * matrix->word;
    return matrix->planar ? planar_code(from, 4, matrix->grouped.bits, row)
                          : ts_code_at(from, matrix->grouped.bits, row);
}

static void gptq_factor(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor)
{
    const struct matrix *matrix = (const struct matrix *)grouped;
    factor->scale = ts_part_f32(grouped->scales, group * matrix->rows + row);
    if (grouped->zeros)
        factor->zero =
            (float)((gptq_stored_zero(matrix, row, group) + matrix->zero_step) & ((1u << grouped->bits) - 1));
    else
        factor->zero = (float)(1u << (grouped->bits - 1));
}

struct found {
    struct ts_quantized *q;
    struct ts_tensor *qweight, *scales, *qzeros, *g_idx;
    size_t stem;
};

static enum ts_status finish(const struct found *found, struct matrix *matrix, const struct ts_codec *codec,
                             const char *method, struct ts_error *error)
{
    struct ts_grouped *grouped = &matrix->grouped;
    struct ts_quantized_weight weight = {
        .name = found->qweight->name,
        .stem = found->stem,
        .suffix = ".weight",
        .codec = codec,
        .data = matrix,
        .rank = 2,
        .shape = {matrix->rows, grouped->columns},
        .parts = {found->qweight, found->scales, found->qzeros, found->g_idx},
    };
    grouped->main = found->qweight;
    grouped->packed = ts_tensor_bytes(found->qweight);
    grouped->scales = found->scales;
    grouped->zeros = found->qzeros;
    grouped->tell_zero = true;
    grouped->code = "code";
    grouped->unit = "group";
    snprintf(weight.scheme, sizeof weight.scheme, "%s %u bits", method, grouped->bits);
    ts_quantized_say_groups(&weight, grouped->group, grouped->columns);
    if (grouped->order)
        strncat(weight.scheme, ", order by g_idx", sizeof weight.scheme - strlen(weight.scheme) - 1);
    return ts_quantized_replace(found->q, &weight, error);
}

/* Columns per group: what the config says where it fits, else what the number of groups says. 0: neither fits. */
static uint64_t group_size(const struct ts_quantized_settings *settings, uint64_t columns, uint64_t groups)
{
    uint64_t said = settings->group < 0 ? columns : (uint64_t)settings->group;
    if (said && ts_ceil_div(columns, said) == groups)
        return said;
    if (said && !settings->per_module)
        return 0;
    return columns % groups == 0 ? columns / groups : 0;
}

static enum ts_status refuse_groups(const struct found *found, uint64_t columns, struct ts_error *error)
{
    char scales[TS_SHAPE_TEXT];
    const struct ts_quantized_settings *settings = &found->q->settings;
    ts_quantized_shape(found->scales, scales);
    if (settings->group == 0)
        return ts_bundle_find(found->q->bundle, found->qweight->name, error,
                              "stays as its parts: %" PRIu64
                              " columns are no whole groups for scales %s, and no config "
                              "gives a group_size",
                              columns, scales);
    return ts_bundle_find(found->q->bundle, found->qweight->name, error,
                          "stays as its parts: scales %s do not fit %" PRIu64 " columns in groups of %" PRId64
                          ", the config's group_size",
                          scales, columns, settings->group < 0 ? (int64_t)columns : settings->group);
}

static enum ts_status refuse_shapes(const struct found *found, const char *why, struct ts_error *error)
{
    char qweight[TS_SHAPE_TEXT], scales[TS_SHAPE_TEXT], qzeros[TS_SHAPE_TEXT] = "missing";
    ts_quantized_shape(found->qweight, qweight);
    ts_quantized_shape(found->scales, scales);
    if (found->qzeros)
        ts_quantized_shape(found->qzeros, qzeros);
    return ts_bundle_find(found->q->bundle, found->qweight->name, error,
                          "stays as its parts: %s (qweight %s, scales %s, qzeros %s)", why, qweight, scales, qzeros);
}

static enum ts_status join_awq(const struct found *found, struct ts_error *error)
{
    const uint64_t groups = found->scales->shape[0], columns = found->qweight->shape[0];
    struct matrix *matrix;
    uint64_t group = group_size(&found->q->settings, columns, groups);
    if (!ts_part_is_word(found->qweight) || (found->qzeros && !ts_part_is_word(found->qzeros)))
        return refuse_shapes(found, "awq packs into 32-bit words", error);
    if (found->qzeros ? found->qzeros->shape[0] != groups || found->qzeros->shape[1] != found->qweight->shape[1]
                      : found->q->settings.symmetric != TS_YES)
        return refuse_shapes(found, found->qzeros ? "the zero points do not fit" : "the zero points are missing",
                             error);
    if (!group)
        return refuse_groups(found, columns, error);
    if (!(matrix = ts_arena_alloc(&found->q->bundle->arena, sizeof *matrix)))
        return ts_fail_memory(error);
    matrix->rows = found->scales->shape[1];
    matrix->grouped = (struct ts_grouped){
        .columns = columns,
        .group = group,
        .groups = groups,
        .codes = awq_codes,
        .factor = awq_factor,
        .tile = 8,
        .tile_codes = awq_tile,
        .stride = found->qweight->shape[1],
        .bits = 4,
    };
    return finish(found, matrix, &awq_codec, "awq", error);
}

static enum ts_status join_gemv(const struct found *found, struct ts_error *error)
{
    const struct ts_quantized_settings *settings = &found->q->settings;
    const struct ts_tensor *qweight = found->qweight, *scales = found->scales, *qzeros = found->qzeros;
    uint64_t columns = qweight->shape[1] * 8, group = settings->group < 0 ? columns : (uint64_t)settings->group;
    struct matrix *matrix;
    if (!ts_part_is_word(qweight) || !qzeros || !ts_part_is_word(qzeros) || qzeros->shape[0] != qweight->shape[0] ||
        scales->shape[0] != qweight->shape[0] || scales->shape[1] != qzeros->shape[1] * 8)
        return refuse_shapes(found, "the shapes do not fit awq's version gemv", error);
    if (!group || ts_ceil_div(columns, group) > scales->shape[1])
        return refuse_groups(found, columns, error);
    if (!(matrix = ts_arena_alloc(&found->q->bundle->arena, sizeof *matrix)))
        return ts_fail_memory(error);
    matrix->rows = qweight->shape[0];
    matrix->grouped = (struct ts_grouped){
        .columns = columns,
        .group = group,
        .groups = ts_ceil_div(columns, group),
        .codes = gemv_codes,
        .factor = gemv_factor,
        .stride = qweight->shape[1],
        .bits = 4,
    };
    return finish(found, matrix, &awq_codec, "awq gemv", error);
}

/* A width that all shapes allow: qzeros tell it from `out`, g_idx from `in`. */
static bool bits_fit(const struct found *found, unsigned bits, unsigned word_bits)
{
    uint64_t columns, packed, rows = found->qweight->shape[1];
    if (bits < 2 || bits > 8 || (word_bits != 32 && (bits & (bits - 1))))
        return false;
    if (found->g_idx) {
        columns = found->g_idx->count;
    } else {
        if (!ts_mul(found->qweight->shape[0], word_bits, &columns) || columns % bits)
            return false;
        columns /= bits;
    }
    if (!ts_mul(columns, bits, &packed) || ts_ceil_div(packed, word_bits) != found->qweight->shape[0])
        return false;
    if (!found->qzeros)
        return found->g_idx || bits == found->q->settings.bits;
    return ts_mul(rows, bits, &packed) && ts_ceil_div(packed, word_bits) == found->qzeros->shape[1];
}

/* The config's bits, or the only ones that fit. 0: none, or several without a config to choose. */
static unsigned find_bits(const struct found *found, unsigned word_bits)
{
    const struct ts_quantized_settings *settings = &found->q->settings;
    unsigned fit = 0;
    if (bits_fit(found, settings->bits, word_bits))
        return settings->bits;
    if (settings->bits && !settings->per_module)
        return 0;
    for (unsigned bits = 2; bits <= 8; bits++)
        if (bits_fit(found, bits, word_bits)) {
            if (fit)
                return 0;
            fit = bits;
        }
    return fit;
}

/* Whether zero points are stored as they are. Where the config does not say: symmetric weights have the middle code
 * everywhere, so a first row of nothing else gives the convention away. */
static bool zeros_are_plain(const struct found *found, const struct matrix *matrix)
{
    const char *format = found->q->settings.format;
    const uint64_t rows = matrix->rows < 4096 ? matrix->rows : 4096;
    if (matrix->planar || strcmp(format, "gptq_v2") == 0 || strstr(format, "gptqmodel"))
        return true;
    if (strcmp(format, "gptq") == 0 || strstr(format, "auto_gptq") || !found->qzeros)
        return false;
    for (uint64_t i = 0; i < rows; i++)
        if (gptq_stored_zero(matrix, i, 0) != 1u << (matrix->grouped.bits - 1))
            return false;
    return true;
}

/* Exporters without act-order may leave g_idx all zero; kernels then take groups in sequence. Looks at the whole of it
 * only when both ends are zero. */
static bool order_is_blank(const struct ts_tensor *g_idx, uint64_t groups)
{
    struct ts_error ignored;
    int64_t ends[2] = {0, 0};
    ts_error_clear(&ignored);
    if (groups < 2)
        return true;
    if (ts_tensor_read_i64(g_idx, 0, 1, &ends[0], &ignored) != TS_OK ||
        ts_tensor_read_i64(g_idx, g_idx->count - 1, 1, &ends[1], &ignored) != TS_OK || ends[0] || ends[1])
        return false;
    for (uint64_t at = 0; at < g_idx->count;) {
        int64_t part[256];
        size_t now = g_idx->count - at < 256 ? (size_t)(g_idx->count - at) : 256;
        if (ts_tensor_read_i64(g_idx, at, now, part, &ignored) != TS_OK)
            return false;
        for (size_t i = 0; i < now; i++)
            if (part[i])
                return false;
        at += now;
    }
    return true;
}

static enum ts_status join_gptq(const struct found *found, struct ts_error *error)
{
    const struct ts_quantized_settings *settings = &found->q->settings;
    const uint64_t groups = found->scales->shape[0];
    const unsigned word = ts_type_info(found->qweight->type)->block_bytes;
    struct matrix *matrix;
    struct ts_grouped *grouped;
    unsigned bits;
    if (found->qzeros ? found->qzeros->shape[0] != groups || found->qzeros->type != found->qweight->type
                      : settings->symmetric != TS_YES)
        return refuse_shapes(found, found->qzeros ? "the zero points do not fit" : "the zero points are missing",
                             error);
    bits = find_bits(found, word * 8);
    if (!bits)
        return refuse_shapes(found,
                             settings->bits ? "the shapes do not fit the config's bits"
                                            : "several numbers of bits fit or none, and no config gives them",
                             error);
    if (!(matrix = ts_arena_alloc(&found->q->bundle->arena, sizeof *matrix)))
        return ts_fail_memory(error);
    grouped = &matrix->grouped;
    matrix->rows = found->qweight->shape[1];
    matrix->word = word;
    matrix->planar = (bits > 4 && bits < 8) || (bits == 3 && strcmp(settings->format, "gptq_p") == 0);
    if (matrix->planar && (found->qweight->shape[0] % bits || (found->qzeros && found->qzeros->shape[1] % bits)))
        return refuse_shapes(found, "bit planes come in whole blocks of 32 codes", error);
    grouped->bits = bits;
    grouped->columns = found->g_idx ? found->g_idx->count : found->qweight->shape[0] * word * 8 / bits;
    grouped->groups = groups;
    grouped->group = group_size(settings, grouped->columns, groups);
    if (found->g_idx && !order_is_blank(found->g_idx, groups))
        grouped->order = found->g_idx;
    if (!grouped->group && grouped->order && !settings->group)
        grouped->group = ts_ceil_div(grouped->columns, groups);
    if (!grouped->group)
        return refuse_groups(found, grouped->columns, error);
    grouped->stride = matrix->rows;
    grouped->codes = matrix->planar ? gptq_codes_planar : bits == 3 ? gptq_codes_of_3 : gptq_codes;
    grouped->factor = gptq_factor;
    grouped->zeros = found->qzeros;
    matrix->zero_step = zeros_are_plain(found, matrix) ? 0 : 1;
    return finish(found, matrix, &gptq_codecs[bits], "gptq", error);
}

static bool is_packed_matrix(const struct ts_tensor *part)
{
    return part->rank == 2 && part->count &&
           (ts_part_is_word(part) || part->type == TS_I16 || part->type == TS_I8 || part->type == TS_U8);
}

static enum ts_status awq_gptq_join(struct ts_quantized *q, struct ts_tensor *tensor, size_t stem, const char *suffix,
                                    struct ts_error *error)
{
    struct found found = {
        .q = q,
        .qweight = tensor,
        .scales = ts_quantized_part(q, tensor->name, stem, ".scales"),
        .qzeros = ts_quantized_part(q, tensor->name, stem, ".qzeros"),
        .g_idx = ts_quantized_part(q, tensor->name, stem, ".g_idx"),
        .stem = stem,
    };
    const char *method = q->settings.method, *format = q->settings.format;
    (void)suffix;
    if (!found.scales)
        return ts_bundle_find(q->bundle, tensor->name, error, "stays as its parts: \"%.*s.scales\" is missing",
                              (int)stem, tensor->name);
    if (strcmp(method, "awq") == 0 && (strcasecmp(format, "gemv_fast") == 0 || strcasecmp(format, "llm-awq") == 0))
        return refuse_shapes(&found, "awq's gemv_fast layout is not known to this program", error);
    if (!ts_part_is_plain(tensor) || (found.qzeros && !ts_part_is_plain(found.qzeros)))
        return refuse_shapes(&found, "its codes are not stored side by side in little-endian order", error);
    if (!is_packed_matrix(tensor) || found.scales->rank != 2 || !found.scales->count ||
        !ts_part_is_float(found.scales) || (found.qzeros && !is_packed_matrix(found.qzeros)) ||
        (found.g_idx && (!ts_type_is_integer(found.g_idx->type) || found.g_idx->rank != 1 || !found.g_idx->count)))
        return refuse_shapes(&found, "the types or shapes of its parts are not those of awq or gptq", error);
    if (strcmp(method, "awq") == 0 && strcasecmp(format, "gemv") == 0)
        return join_gemv(&found, error);
    if (tensor->shape[1] == found.scales->shape[1])
        return join_gptq(&found, error);
    if (found.scales->shape[1] % 8 == 0 && tensor->shape[1] == found.scales->shape[1] / 8)
        return join_awq(&found, error);
    return refuse_shapes(&found, "the shapes fit neither awq nor gptq", error);
}

const struct ts_quantized_family ts_quantized_awq_gptq = {
    .name = "awq and gptq",
    .anchors = (const struct ts_quantized_anchor[]){TS_ANCHOR(".qweight", NULL), TS_NO_ANCHOR},
    .join = awq_gptq_join,
};
