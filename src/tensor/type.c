/* Owns the table of element types and the plain decoders. Each decoder is a loop over one load and one conversion, so
 * that the compiler vectorizes what can be; the quantized blocks live in decode_blocks.c. */
#include "tensor/type.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/number.h"
#include "tensor/widen_kernel.h"

#define FLOAT(text, bytes, bits)                                                                                       \
    {                                                                                                                  \
        .name = text, .block_elements = 1, .block_bytes = bytes, .components = 1, .mantissa_bits = bits,               \
        .kind = TS_CLASS_FLOAT                                                                                         \
    }
#define PACKED(text, elements, bytes, bits, class)                                                                     \
    {                                                                                                                  \
        .name = text, .block_elements = elements, .block_bytes = bytes, .components = 1, .mantissa_bits = bits,        \
        .kind = class                                                                                                  \
    }
#define COMPLEX(text, bytes, bits)                                                                                     \
    {                                                                                                                  \
        .name = text, .block_elements = 1, .block_bytes = bytes, .components = 2, .mantissa_bits = bits,               \
        .kind = TS_CLASS_COMPLEX                                                                                       \
    }
#define WHOLE(text, bytes, class) PACKED(text, 1, bytes, -1, class)

static const struct ts_type_info plain_types[TS_BLOCK_TYPES] = {
    [TS_F64] = FLOAT("f64", 8, 52),
    [TS_F32] = FLOAT("f32", 4, 23),
    [TS_F16] = FLOAT("f16", 2, 10),
    [TS_BF16] = FLOAT("bf16", 2, 7),
    [TS_F8_E4M3] = FLOAT("f8_e4m3", 1, 3),
    [TS_F8_E5M2] = FLOAT("f8_e5m2", 1, 2),
    [TS_F8_E4M3FNUZ] = FLOAT("f8_e4m3fnuz", 1, 3),
    [TS_F8_E5M2FNUZ] = FLOAT("f8_e5m2fnuz", 1, 2),
    [TS_F8_E8M0] = FLOAT("f8_e8m0", 1, 0),
    [TS_F8_E4M3B11FNUZ] = FLOAT("f8_e4m3b11fnuz", 1, 3),
    [TS_F8_E3M4] = FLOAT("f8_e3m4", 1, 4),
    [TS_F6_E2M3] = PACKED("f6_e2m3", 4, 3, 3, TS_CLASS_FLOAT),
    [TS_F6_E3M2] = PACKED("f6_e3m2", 4, 3, 2, TS_CLASS_FLOAT),
    [TS_F4_E2M1] = PACKED("f4_e2m1", 2, 1, 1, TS_CLASS_FLOAT),
    [TS_F80] = FLOAT("f80", 16, 63),
    [TS_I64] = WHOLE("i64", 8, TS_CLASS_INT),
    [TS_I32] = WHOLE("i32", 4, TS_CLASS_INT),
    [TS_I16] = WHOLE("i16", 2, TS_CLASS_INT),
    [TS_I8] = WHOLE("i8", 1, TS_CLASS_INT),
    [TS_I4] = PACKED("i4", 2, 1, -1, TS_CLASS_INT),
    [TS_I2] = PACKED("i2", 4, 1, -1, TS_CLASS_INT),
    [TS_U64] = WHOLE("u64", 8, TS_CLASS_UINT),
    [TS_U32] = WHOLE("u32", 4, TS_CLASS_UINT),
    [TS_U16] = WHOLE("u16", 2, TS_CLASS_UINT),
    [TS_U8] = WHOLE("u8", 1, TS_CLASS_UINT),
    [TS_U4] = PACKED("u4", 2, 1, -1, TS_CLASS_UINT),
    [TS_U2] = PACKED("u2", 4, 1, -1, TS_CLASS_UINT),
    [TS_U1] = PACKED("u1", 8, 1, -1, TS_CLASS_UINT),
    [TS_BOOL] = WHOLE("bool", 1, TS_CLASS_BOOL),
    [TS_C32] = COMPLEX("c32", 4, 10),
    [TS_C64] = COMPLEX("c64", 8, 23),
    [TS_C128] = COMPLEX("c128", 16, 52),
    [TS_CODED] = PACKED("coded", 1, 0, -1, TS_CLASS_QUANT),
};

static struct ts_type_info block_types[TS_BLOCK_COUNT];

static void fill_block_types(void)
{
    for (int i = 0; i < TS_BLOCK_COUNT; i++)
        block_types[i] = (struct ts_type_info){.name = ts_block_infos[i].name,
                                               .block_elements = (uint16_t)ts_block_infos[i].elements,
                                               .block_bytes = (uint16_t)ts_block_infos[i].bytes,
                                               .components = 1,
                                               .mantissa_bits = -1,
                                               .kind = TS_CLASS_QUANT};
}

const struct ts_type_info *ts_type_info(enum ts_type type)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (type < TS_BLOCK_TYPES)
        return &plain_types[type];
    pthread_once(&once, fill_block_types);
    return &block_types[type - TS_BLOCK_TYPES];
}

bool ts_type_bytes(enum ts_type type, uint64_t count, uint64_t *bytes)
{
    const struct ts_type_info *info = ts_type_info(type);
    uint64_t blocks = count / info->block_elements + (count % info->block_elements != 0);
    return ts_mul(blocks, info->block_bytes, bytes);
}

/* A small float of any split: sign, exponent, mantissa bits, bias. Exact: every such value is a float. */
static float small_float(unsigned bits, unsigned exponent_bits, unsigned mantissa_bits, int bias)
{
    unsigned mantissa = bits & ((1u << mantissa_bits) - 1u);
    unsigned exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1u);
    bool negative = (bits >> (mantissa_bits + exponent_bits)) & 1u;
    float value;
    if (exponent == 0)
        value = ldexpf((float)mantissa, 1 - bias - (int)mantissa_bits);
    else
        value = ldexpf((float)(mantissa | (1u << mantissa_bits)), (int)exponent - bias - (int)mantissa_bits);
    return negative ? -value : value;
}

static float from_f8_e4m3(uint8_t bits)
{
    return (bits & 0x7f) == 0x7f ? NAN : small_float(bits, 4, 3, 7);
}

static float from_f8_e5m2(uint8_t bits)
{
    /* an f16 without its low byte */
    return ts_f16_to_float((uint16_t)(bits << 8));
}

static float from_fnuz(uint8_t bits, unsigned exponent_bits, unsigned mantissa_bits, int bias)
{
    return bits == 0x80 ? NAN : small_float(bits, exponent_bits, mantissa_bits, bias);
}

static float from_f8_e3m4(uint8_t bits)
{
    if ((bits & 0x70) == 0x70) /* IEEE-like: the widest exponent is infinity or NaN */
        return bits & 0x0f ? NAN : bits & 0x80 ? -INFINITY : INFINITY;
    return small_float(bits, 3, 4, 3);
}

static float from_f8_e8m0(uint8_t bits)
{
    return bits == 0xff ? NAN : ldexpf(1.0f, (int)bits - 127);
}

/* Tables for the types of eight bits and fewer: filled once, then a decoder is a look-up. */
static float f8_tables[7][256];
static float f6_tables[2][64];
static float f4_table[16];

enum { E4M3, E5M2, E4M3FNUZ, E5M2FNUZ, E8M0, E4M3B11FNUZ, E3M4 };

static void compute_tables(void)
{
    for (unsigned i = 0; i < 256; i++) {
        uint8_t bits = (uint8_t)i;
        f8_tables[E4M3][i] = from_f8_e4m3(bits);
        f8_tables[E5M2][i] = from_f8_e5m2(bits);
        f8_tables[E4M3FNUZ][i] = from_fnuz(bits, 4, 3, 8);
        f8_tables[E5M2FNUZ][i] = from_fnuz(bits, 5, 2, 16);
        f8_tables[E8M0][i] = from_f8_e8m0(bits);
        f8_tables[E4M3B11FNUZ][i] = from_fnuz(bits, 4, 3, 11);
        f8_tables[E3M4][i] = from_f8_e3m4(bits);
    }
    for (unsigned i = 0; i < 64; i++) {
        f6_tables[0][i] = small_float(i, 2, 3, 1);
        f6_tables[1][i] = small_float(i, 3, 2, 3);
    }
    for (unsigned i = 0; i < 16; i++)
        f4_table[i] = small_float(i, 2, 1, 1);
}

static void fill_tables(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, compute_tables);
}

static const float *f8_table(enum ts_type type)
{
    static const uint8_t index[] = {[TS_F8_E4M3] = E4M3,         [TS_F8_E5M2] = E5M2, [TS_F8_E4M3FNUZ] = E4M3FNUZ,
                                    [TS_F8_E5M2FNUZ] = E5M2FNUZ, [TS_F8_E8M0] = E8M0, [TS_F8_E4M3B11FNUZ] = E4M3B11FNUZ,
                                    [TS_F8_E3M4] = E3M4};
    fill_tables();
    return f8_tables[index[type]];
}

static uint16_t load16(const uint8_t *src, bool swapped)
{
    return swapped ? ts_load_be16(src) : ts_load_le16(src);
}

static uint32_t load32(const uint8_t *src, bool swapped)
{
    return swapped ? ts_load_be32(src) : ts_load_le32(src);
}

static uint64_t load64(const uint8_t *src, bool swapped)
{
    return swapped ? ts_load_be64(src) : ts_load_le64(src);
}

/* x87: 64-bit mantissa with an explicit leading one, 15-bit exponent, in the low ten bytes of sixteen. for_float: the
 * bits that a double has no room for are folded into the lowest one that it has, so that the double is no rounded value
 * and the rounding to f32 is the only one. */
static double from_f80(const uint8_t *src, bool swapped, bool for_float)
{
    uint64_t mantissa = swapped ? ts_load_be64(src + 8) : ts_load_le64(src);
    uint16_t top = swapped ? ts_load_be16(src + 6) : ts_load_le16(src + 8);
    int exponent = top & 0x7fff;
    double value;
    if (for_float && mantissa & 0x7ff)
        mantissa = (mantissa | 0x800) & ~UINT64_C(0x7ff);
    if (exponent == 0x7fff)
        value = mantissa << 1 ? (double)NAN : (double)INFINITY;
    else
        value = ldexp((double)mantissa, exponent - 16383 - 63);
    return top & 0x8000 ? -value : value;
}

static unsigned six_bits(const uint8_t *src, size_t index)
{
    const uint8_t *group = src + index / 4 * 3;
    uint32_t word = (uint32_t)group[0] | (uint32_t)group[1] << 8 | (uint32_t)group[2] << 16;
    return word >> (index % 4 * 6) & 0x3f;
}

/* count elements of a type of `bits` (1, 2, 4), low bits first. */
static unsigned packed_bits(const uint8_t *src, size_t index, unsigned bits)
{
    unsigned per_byte = 8 / bits;
    return (unsigned)src[index / per_byte] >> (index % per_byte * bits) & ((1u << bits) - 1u);
}

static int sign_extend(unsigned value, unsigned bits)
{
    unsigned sign = 1u << (bits - 1);
    return (int)(value ^ sign) - (int)sign;
}

/* Decodes whole ggml blocks; for big-endian files a copy of each block is brought into order first. */
static void decode_ggml(enum ts_type type, bool swapped, const uint8_t *src, size_t count, float *dst)
{
    enum ts_block_type block = (enum ts_block_type)(type - TS_BLOCK_TYPES);
    const struct ts_block_info *info = &ts_block_infos[block];
    size_t blocks = count / info->elements, rest = count % info->elements;
    float last[256];
    uint8_t copy[512];
    if (!swapped) {
        ts_decode_blocks(block, src, blocks, dst);
    } else {
        for (size_t i = 0; i < blocks; i++) {
            memcpy(copy, src + i * info->bytes, info->bytes);
            ts_block_swap(block, copy);
            ts_decode_blocks(block, copy, 1, dst + i * info->elements);
        }
    }
    if (rest) {
        memcpy(copy, src + blocks * info->bytes, info->bytes);
        if (swapped)
            ts_block_swap(block, copy);
        ts_decode_blocks(block, copy, 1, last);
        memcpy(dst + blocks * info->elements, last, rest * sizeof *dst);
    }
}

/* One body for both precisions. */
#define DECODE_BODY(NUMBER)                                                                                            \
    switch (type) {                                                                                                    \
    case TS_F64:                                                                                                       \
    case TS_C128:                                                                                                      \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)ts_double_from_bits(load64(src + i * 8, swapped));                                        \
        break;                                                                                                         \
    case TS_F32:                                                                                                       \
    case TS_C64:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = ts_float_from_bits(load32(src + i * 4, swapped));                                                 \
        break;                                                                                                         \
    case TS_F16:                                                                                                       \
    case TS_C32:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = ts_f16_to_float(load16(src + i * 2, swapped));                                                    \
        break;                                                                                                         \
    case TS_BF16:                                                                                                      \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = ts_bf16_to_float(load16(src + i * 2, swapped));                                                   \
        break;                                                                                                         \
    case TS_F8_E4M3:                                                                                                   \
    case TS_F8_E5M2:                                                                                                   \
    case TS_F8_E4M3FNUZ:                                                                                               \
    case TS_F8_E5M2FNUZ:                                                                                               \
    case TS_F8_E8M0:                                                                                                   \
    case TS_F8_E4M3B11FNUZ:                                                                                            \
    case TS_F8_E3M4: {                                                                                                 \
        const float *table = f8_table(type);                                                                           \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = table[src[i]];                                                                                    \
        break;                                                                                                         \
    }                                                                                                                  \
    case TS_F6_E2M3:                                                                                                   \
    case TS_F6_E3M2:                                                                                                   \
        fill_tables();                                                                                                 \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = f6_tables[type == TS_F6_E3M2][six_bits(src, i)];                                                  \
        break;                                                                                                         \
    case TS_F4_E2M1:                                                                                                   \
        fill_tables();                                                                                                 \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = f4_table[packed_bits(src, i, 4)];                                                                 \
        break;                                                                                                         \
    case TS_F80:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)from_f80(src + i * 16, swapped, sizeof(NUMBER) == sizeof(float));                         \
        break;                                                                                                         \
    case TS_I64:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)(int64_t)load64(src + i * 8, swapped);                                                    \
        break;                                                                                                         \
    case TS_I32:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)(int32_t)load32(src + i * 4, swapped);                                                    \
        break;                                                                                                         \
    case TS_I16:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (int16_t)load16(src + i * 2, swapped);                                                            \
        break;                                                                                                         \
    case TS_I8:                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (int8_t)src[i];                                                                                   \
        break;                                                                                                         \
    case TS_I4:                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)sign_extend(packed_bits(src, i, 4), 4);                                                   \
        break;                                                                                                         \
    case TS_I2:                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)sign_extend(packed_bits(src, i, 2), 2);                                                   \
        break;                                                                                                         \
    case TS_U64:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)load64(src + i * 8, swapped);                                                             \
        break;                                                                                                         \
    case TS_U32:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)load32(src + i * 4, swapped);                                                             \
        break;                                                                                                         \
    case TS_U16:                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = load16(src + i * 2, swapped);                                                                     \
        break;                                                                                                         \
    case TS_U8:                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = src[i];                                                                                           \
        break;                                                                                                         \
    case TS_U4:                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)packed_bits(src, i, 4);                                                                   \
        break;                                                                                                         \
    case TS_U2:                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)packed_bits(src, i, 2);                                                                   \
        break;                                                                                                         \
    case TS_U1:                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = (NUMBER)packed_bits(src, i, 1);                                                                   \
        break;                                                                                                         \
    case TS_BOOL:                                                                                                      \
        for (size_t i = 0; i < count; i++)                                                                             \
            dst[i] = src[i] != 0;                                                                                      \
        break;                                                                                                         \
    default:                                                                                                           \
        break;                                                                                                         \
    }

void ts_type_decode_f32(enum ts_type type, bool swapped, const uint8_t *src, size_t count, float *dst)
{
    if (ts_type_is_block(type)) {
        decode_ggml(type, swapped, src, count, dst);
        return;
    }
    if (ts_type_info(type)->components == 2)
        count *= 2;
    if (type == TS_BF16 && !swapped)
        TS_TABLE(ts_widen_kernels)->bf16(src, count, dst);
    else if ((type == TS_F16 || type == TS_C32) && !swapped)
        TS_TABLE(ts_widen_kernels)->f16(src, count, dst);
    else
        DECODE_BODY(float)
}

void ts_type_decode_f64(enum ts_type type, bool swapped, const uint8_t *src, size_t count, double *dst)
{
    if (ts_type_is_block(type)) {
        /* Through a small float buffer: blocks have at most 256 elements. */
        const struct ts_type_info *info = ts_type_info(type);
        float part[256];
        while (count) {
            size_t now = count < info->block_elements ? count : info->block_elements;
            decode_ggml(type, swapped, src, now, part);
            for (size_t i = 0; i < now; i++)
                dst[i] = (double)part[i];
            src += info->block_bytes;
            dst += now;
            count -= now;
        }
        return;
    }
    if (ts_type_info(type)->components == 2)
        count *= 2;
    DECODE_BODY(double)
}

void ts_type_decode_i64(enum ts_type type, bool swapped, const uint8_t *src, size_t count, int64_t *dst)
{
    switch (type) {
    case TS_I64:
    case TS_U64:
        for (size_t i = 0; i < count; i++)
            dst[i] = (int64_t)load64(src + i * 8, swapped);
        break;
    case TS_I32:
        for (size_t i = 0; i < count; i++)
            dst[i] = (int32_t)load32(src + i * 4, swapped);
        break;
    case TS_U32:
        for (size_t i = 0; i < count; i++)
            dst[i] = load32(src + i * 4, swapped);
        break;
    default: /* f32 has all of their values */
        for (size_t done = 0; done < count;) {
            float part[256]; /* a multiple of what a byte holds */
            size_t now = count - done < 256 ? count - done : 256;
            if (ts_type_is_integer(type))
                ts_type_decode_f32(type, swapped, src, now, part);
            for (size_t i = 0; i < now; i++)
                dst[done + i] = ts_type_is_integer(type) ? (int64_t)part[i] : 0;
            src += now / ts_type_info(type)->block_elements * ts_type_info(type)->block_bytes;
            done += now;
        }
        break;
    }
}
