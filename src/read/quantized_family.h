/* Quantized family: what one way of storing quantized weights has to provide, and what all of them share. Internal to
 * the files quantized*.c.
 *
 * A family lists name endings (anchors). For every tensor that has one, its join is called; it looks for the other
 * parts by name, checks that types and shapes fit together, and either replaces the main part by one TS_CODED tensor or
 * adds a finding and leaves everything as it is. What is checked in join is never checked again: reading trusts it. */
#ifndef TS_READ_QUANTIZED_FAMILY_H
#define TS_READ_QUANTIZED_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/number.h"
#include "base/table.h"
#include "tensor/bundle.h"
#include "tensor/tensor.h"

enum ts_answer { TS_UNSAID, TS_NO, TS_YES };

/* MLX keeps these three for the whole model and again for the modules that differ. */
struct ts_mlx_settings {
    const char *module; /* NULL for the whole model */
    char mode[16];      /* "affine", "mxfp4", ...; "" when unsaid */
    unsigned bits;      /* 0 when unsaid */
    uint64_t group;
};

/* The quantization settings of config.json. Everything may be unsaid. */
struct ts_quantized_settings {
    char method[32];          /* "awq", "gptq", "fp8", "compressed-tensors"; "" when unsaid */
    char format[40];          /* layout within the method: "gemm", "gptq_v2", "pack-quantized" */
    unsigned bits;            /* 0 when unsaid */
    int64_t group;            /* 0 when unsaid, -1 for one group over the whole row */
    uint64_t block[2];        /* rows and columns that share a scale, 0 when unsaid */
    enum ts_answer symmetric; /* no zero points, the middle code stands for zero */
    bool per_module;          /* some modules have settings of their own, by patterns that are not evaluated here */
    unsigned widths;          /* bit n: some scheme of compressed-tensors has n bits */
    uint64_t groups[8];       /* group sizes of those schemes */
    unsigned group_count;
    bool has_mlx;
    struct ts_mlx_settings mlx;
    struct ts_mlx_settings *modules; /* from malloc */
    size_t module_count, module_capacity;
    struct ts_table module_names;
};

/* A config that cannot be parsed gives a finding and no settings. */
enum ts_status ts_quantized_settings_read(struct ts_quantized_settings *settings, struct ts_bundle *bundle,
                                          struct ts_error *error);
void ts_quantized_settings_release(struct ts_quantized_settings *settings);

/* One run of ts_quantized_join. */
struct ts_quantized {
    struct ts_bundle *bundle;
    struct ts_quantized_settings settings;
    struct ts_table names;   /* of all tensors, to their place in the bundle */
    struct ts_buffer wanted; /* a name put together for look-up */
    bool ready;              /* the above are filled in */
};

struct ts_quantized_anchor {
    const char *suffix;
    size_t size;
    bool (*fits)(const struct ts_tensor *tensor); /* NULL: whatever it is */
};

#define TS_ANCHOR(suffix, fits)                                                                                        \
    {                                                                                                                  \
        (suffix), sizeof(suffix) - 1, (fits)                                                                           \
    }
#define TS_NO_ANCHOR                                                                                                   \
    {                                                                                                                  \
        NULL, 0, NULL                                                                                                  \
    }

struct ts_quantized_family {
    const char *name;
    const struct ts_quantized_anchor *anchors; /* ends with TS_NO_ANCHOR */
    /* stem: length of the tensor's name without the suffix. Fails only without memory. */
    enum ts_status (*join)(struct ts_quantized *q, struct ts_tensor *tensor, size_t stem, const char *suffix,
                           struct ts_error *error);
};

extern const struct ts_quantized_family ts_quantized_awq_gptq;
extern const struct ts_quantized_family ts_quantized_bnb;
extern const struct ts_quantized_family ts_quantized_compressed;
extern const struct ts_quantized_family ts_quantized_fp8;
extern const struct ts_quantized_family ts_quantized_mlx;
extern const struct ts_quantized_family ts_quantized_mxfp4;

/* The stored tensor called name[0 .. stem) + suffix, or NULL; not one that has been joined already. */
struct ts_tensor *ts_quantized_part(struct ts_quantized *q, const char *name, size_t stem, const char *suffix);

#define TS_QUANTIZED_MAX_PARTS 8

struct ts_quantized_weight {
    const char *name; /* of the logical tensor: name[0 .. stem) + suffix */
    size_t stem;
    const char *suffix;
    const struct ts_codec *codec;
    void *data; /* in the bundle's arena */
    unsigned rank;
    uint64_t shape[TS_MAX_RANK];
    struct ts_tensor *parts[TS_QUANTIZED_MAX_PARTS]; /* the main part first; the others NULL where there is none */
    char scheme[96];
};

/* Puts the logical tensor in the place of parts[0] and takes all parts out of the bundle's list. When another tensor
 * has that name already, adds a finding instead. */
enum ts_status ts_quantized_replace(struct ts_quantized *q, const struct ts_quantized_weight *weight,
                                    struct ts_error *error);

/* "[4096,512]", shortened with dots where it does not fit. Returns text. */
#define TS_SHAPE_TEXT 80
char *ts_quantized_shape(const struct ts_tensor *tensor, char text[TS_SHAPE_TEXT]);

/* Appends ", groups of 128" to a scheme, or ", one group". */
void ts_quantized_say_groups(struct ts_quantized_weight *weight, uint64_t group, uint64_t columns);

/* The grouped codec: rows of codes, and factors that neighbouring codes share. Every family is one of these.
 *
 *     value = (code - zero) * scale          or, affine:          value = code * scale + bias
 *
 * in float, each operation rounded, which is how the libraries compute when asked for float32. */
struct ts_factor {
    float scale;
    float zero; /* the bias of affine codes */
};

struct ts_grouped {
    uint64_t columns; /* of a row. A row may be the whole tensor where groups do not care about rows */
    uint64_t group;   /* columns that share a factor */
    uint64_t groups;  /* per row */
    bool affine;
    const struct ts_tensor *order; /* the group of each column where that is not column / group */
    const char *unit;              /* for explanations: "group", "block", "row"; NULL: one factor for all */
    const char *code;              /* for explanations: "code", "nf4" */
    /* count codes of a row from column on, as numbers. */
    void (*codes)(const struct ts_grouped *grouped, uint64_t row, uint64_t column, size_t count, float *out);
    void (*factor)(const struct ts_grouped *grouped, uint64_t row, uint64_t group, struct ts_factor *factor);
    /* Where words hold codes of several rows: how many (a power of two), and all codes of `rows` whole rows at once,
     * which lie in the same words. NULL elsewhere. */
    unsigned tile;
    void (*tile_codes)(const struct ts_grouped *grouped, uint64_t row, unsigned rows, float *out);
    /* for those two functions; each family says which it uses */
    const uint8_t *packed;
    uint64_t stride; /* words or bytes of packed from one row of storage to the next */
    unsigned bits;
    bool tell_zero; /* explanations mention the zero point */
    const struct ts_tensor *main, *scales, *zeros, *global;
};

enum ts_status ts_grouped_read(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                               struct ts_error *error);
void ts_grouped_explain(const struct ts_tensor *tensor, uint64_t index, struct ts_buffer *out);

/* For tables of codecs, which differ in nothing but the name that is shown as the type. */
#define TS_GROUPED_CODEC(shown)                                                                                        \
    {                                                                                                                  \
        .name = (shown), .read_f32 = ts_grouped_read, .explain = ts_grouped_explain                                    \
    }

/* Codes of `bits` (1 to 8) side by side, low bits first, across bytes: code i begins at bit i * bits. What 32-bit
 * little-endian words filled from the low end are, too. Nothing behind the last code is touched. */
void ts_unpack_codes(const uint8_t *bytes, unsigned bits, uint64_t first, size_t count, float *out);

/* One such code. */
static inline unsigned ts_code_at(const uint8_t *bytes, unsigned bits, uint64_t index)
{
    uint64_t bit = index * bits;
    unsigned shift = (unsigned)(bit & 7), value = bytes[bit >> 3];
    if (shift + bits > 8)
        value |= (unsigned)bytes[(bit >> 3) + 1] << 8;
    return value >> shift & ((1u << bits) - 1);
}

/* Two E2M1 floats in a byte, the first in the low half. */
void ts_unpack_fp4(const uint8_t *bytes, uint64_t first, size_t count, float *out);

/* A power of two with a bias of 127; 255 is NaN. Exponent -127 is a subnormal float. */
static inline float ts_e8m0(uint8_t bits)
{
    return ts_float_from_bits(bits == 255 ? 0x7fc00000u : bits == 0 ? 0x00400000u : (uint32_t)bits << 23);
}

/* Element `index` (in range) of a part. */
float ts_part_f32(const struct ts_tensor *part, uint64_t index);
/* As above, but bytes are E8M0 exponents. */
float ts_part_exponent(const struct ts_tensor *part, uint64_t index);

/* Stored side by side in little-endian order: the bytes of packed codes may be looked at directly. */
static inline bool ts_part_is_plain(const struct ts_tensor *part)
{
    return ts_tensor_is_contiguous(part) && !part->swapped && !ts_type_is_block(part->type);
}

static inline bool ts_part_is_float(const struct ts_tensor *part)
{
    return part->type == TS_F32 || part->type == TS_F16 || part->type == TS_BF16 || part->type == TS_F64;
}

static inline bool ts_part_is_word(const struct ts_tensor *part)
{
    return part->type == TS_I32 || part->type == TS_U32;
}

static inline uint64_t ts_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

#endif
