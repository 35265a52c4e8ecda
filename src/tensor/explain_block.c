/* Takes one element of a block apart. Written for one element at a time and apart from the decoders, so that each
 * checks the other in the tests. */
#include "base/number.h"
#include "tensor/codebooks.h"
#include "tensor/decode_blocks.h"

static float f16_at(const uint8_t *from)
{
    return ts_f16_to_float(ts_load_le16(from));
}

static uint32_t bits_of(uint32_t word, uint32_t from, uint32_t width)
{
    return word >> from & ((1u << width) - 1);
}

/* Code i of 4 bits, in 16 bytes that hold the first 16 elements in their low halves. */
static uint32_t nibble_at(const uint8_t *from, uint32_t i)
{
    return bits_of(from[i % 16], i / 16 * 4, 4);
}

/* Code i of 2 bits in a super-block: 32 bytes for each half of 128, a quarter of it at each pair of bits. */
static uint32_t pair_at(const uint8_t *from, uint32_t i)
{
    return bits_of(from[i / 128 * 32 + i % 32], i / 32 % 4 * 2, 2);
}

static void put(struct ts_block_part *part, uint32_t stored, int32_t offset)
{
    part->stored = stored;
    part->code = (int32_t)stored + offset;
}

static void put_signed(struct ts_block_part *part, uint8_t stored)
{
    part->stored = stored;
    part->code = (int8_t)stored;
}

static void explain_simple(enum ts_block_type type, const uint8_t *block, uint32_t i, struct ts_block_part *part)
{
    part->scale = f16_at(block);
    part->sub_block = ts_block_infos[type].elements;
    switch (type) {
    case TS_BLOCK_Q4_0:
        put(part, nibble_at(block + 2, i), -8);
        break;
    case TS_BLOCK_Q4_1:
        part->minimum = f16_at(block + 2);
        put(part, nibble_at(block + 4, i), 0);
        break;
    case TS_BLOCK_Q5_0:
        put(part, nibble_at(block + 6, i) | bits_of(ts_load_le32(block + 2), i, 1) << 4, -16);
        break;
    case TS_BLOCK_Q5_1:
        part->minimum = f16_at(block + 2);
        put(part, nibble_at(block + 8, i) | bits_of(ts_load_le32(block + 4), i, 1) << 4, 0);
        break;
    case TS_BLOCK_Q8_0:
        put_signed(part, block[2 + i]);
        break;
    case TS_BLOCK_Q8_1:
        put_signed(part, block[4 + i]);
        break;
    case TS_BLOCK_Q1_0:
        part->stored = bits_of(block[2 + i / 8], i % 8, 1);
        part->code = part->stored != 0 ? 1 : -1;
        break;
    case TS_BLOCK_Q2_0:
        put(part, bits_of(block[2 + i / 4], i % 4 * 2, 2), -1);
        break;
    case TS_BLOCK_IQ4_NL:
        part->stored = nibble_at(block + 2, i);
        part->code = ts_values_iq4[part->stored];
        break;
    case TS_BLOCK_TQ2_0:
        part->scale = f16_at(block + 64);
        put(part, pair_at(block, i), -1);
        break;
    case TS_BLOCK_MXFP4: {
        uint32_t exponent = block[0];
        part->scale = ts_float_from_bits(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
        part->stored = nibble_at(block + 1, i);
        part->code = ts_values_fp4[part->stored];
        break;
    }
    default: { /* TS_BLOCK_NVFP4: 16 elements in 8 bytes, and the scale a float of 4 and 3 bits, halved */
        uint8_t scale = block[i / 16];
        uint32_t mantissa = bits_of(scale, 0, 3), exponent = bits_of(scale, 3, 4);
        float subnormal = (float)mantissa * 0x1p-10f, normal = (float)(8 + mantissa) * 0x1p-11f;
        part->scale = scale == 0x7f ? 0 : exponent == 0 ? subnormal : normal * (float)(1u << exponent);
        part->sub_block = 16;
        part->stored = bits_of(block[4 + i / 16 * 8 + i % 8], i / 8 % 2 * 4, 4);
        part->code = ts_values_fp4[part->stored];
        break;
    }
    }
}

/* Digit k of a byte is what three times the byte's k-th remainder carries beyond eight bits. */
static void explain_tq1_0(const uint8_t *block, uint32_t i, struct ts_block_part *part)
{
    uint32_t byte = i < 160 ? block[i % 32] : i < 240 ? block[32 + i % 16] : block[48 + i % 4];
    uint32_t digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
    for (; digit > 0; digit--)
        byte = byte * 3 & 0xff;
    part->scale = f16_at(block + 52);
    part->sub_block = 256;
    put(part, byte * 3 >> 8, -1);
}

/* Scale and minimum `group` of 32 elements of Q4_K and Q5_K. */
static void explain_range(const uint8_t *block, uint32_t group, struct ts_block_part *part)
{
    const uint8_t *six = block + 4;
    uint32_t scale, minimum;
    if (group < 4) {
        scale = bits_of(six[group], 0, 6);
        minimum = bits_of(six[group + 4], 0, 6);
    } else {
        scale = bits_of(six[group + 4], 0, 4) | bits_of(six[group - 4], 6, 2) << 4;
        minimum = bits_of(six[group + 4], 4, 4) | bits_of(six[group], 6, 2) << 4;
    }
    part->scale = f16_at(block) * (float)scale;
    part->minimum = -(f16_at(block + 2) * (float)minimum);
    part->sub_block = 32;
}

static void explain_k(enum ts_block_type type, const uint8_t *block, uint32_t i, struct ts_block_part *part)
{
    uint32_t group = i / 16;
    part->sub_block = 16;
    switch (type) {
    case TS_BLOCK_Q2_K:
        part->scale = f16_at(block + 80) * (float)bits_of(block[group], 0, 4);
        part->minimum = -(f16_at(block + 82) * (float)bits_of(block[group], 4, 4));
        put(part, pair_at(block + 16, i), 0);
        break;
    case TS_BLOCK_Q3_K: {
        uint32_t scale =
            bits_of(block[96 + group % 8], group / 8 * 4, 4) | bits_of(block[104 + group % 4], group / 4 * 2, 2) << 4;
        part->scale = f16_at(block + 108) * (float)((int32_t)scale - 32);
        put(part, pair_at(block + 32, i) | bits_of(block[i % 32], i / 32, 1) << 2, -4);
        break;
    }
    case TS_BLOCK_Q4_K:
        explain_range(block, i / 32, part);
        put(part, bits_of(block[16 + i / 64 * 32 + i % 32], i / 32 % 2 * 4, 4), 0);
        break;
    case TS_BLOCK_Q5_K:
        explain_range(block, i / 32, part);
        put(part,
            bits_of(block[48 + i / 64 * 32 + i % 32], i / 32 % 2 * 4, 4) | bits_of(block[16 + i % 32], i / 32, 1) << 4,
            0);
        break;
    case TS_BLOCK_Q6_K:
        part->scale = f16_at(block + 208) * (float)(int8_t)block[192 + group];
        put(part, bits_of(block[i / 128 * 64 + i % 64], i / 64 % 2 * 4, 4) | pair_at(block + 128, i) << 4, -32);
        break;
    default: /* TS_BLOCK_Q8_K */
        part->scale = ts_float_from_bits(ts_load_le32(block));
        part->sub_block = 256;
        put_signed(part, block[4 + i]);
        break;
    }
}

/* The sign of element i where a word holds four times seven of them, the eighth making an even number. */
static bool is_negative(uint32_t word, uint32_t i)
{
    uint32_t seven = bits_of(word, i / 8 % 4 * 7, 7);
    return i % 8 < 7 ? bits_of(seven, i % 8, 1) : (uint32_t)__builtin_parity(seven);
}

static void explain_iq(enum ts_block_type type, const uint8_t *block, uint32_t i, struct ts_block_part *part)
{
    float d = f16_at(block);
    uint32_t group = i / 8, sub = i / 32; /* group: elements of one grid entry, two entries in IQ3 */
    uint32_t scale, magnitude = 0;
    bool negative;
    part->sub_block = 32;
    switch (type) {
    case TS_BLOCK_IQ4_XS:
        scale = bits_of(ts_load_le32(block + 4), sub * 4, 4) | bits_of(ts_load_le16(block + 2), sub * 2, 2) << 4;
        part->scale = d * (float)((int32_t)scale - 32);
        part->stored = nibble_at(block + 8 + sub * 16, i % 32);
        part->code = ts_values_iq4[part->stored];
        return;
    case TS_BLOCK_IQ2_XXS: {
        uint32_t word = ts_load_le32(block + 6 + sub * 8);
        part->scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
        part->stored = block[2 + sub * 8 + group % 4];
        magnitude = (uint32_t)(ts_grid_iq2_xxs[part->stored] >> i % 8 * 8);
        negative = is_negative(word, i);
        break;
    }
    case TS_BLOCK_IQ2_XS: {
        uint32_t word = ts_load_le16(block + 2 + group * 2);
        part->scale = d * (0.5f + (float)bits_of(block[66 + sub], i / 16 % 2 * 4, 4)) * 0.25f;
        part->sub_block = 16;
        part->stored = word & 511;
        magnitude = (uint32_t)(ts_grid_iq2_xs[part->stored] >> i % 8 * 8);
        negative = is_negative(word >> 9, i % 8);
        break;
    }
    case TS_BLOCK_IQ2_S:
        part->scale = d * (0.5f + (float)bits_of(block[74 + sub], i / 16 % 2 * 4, 4)) * 0.25f;
        part->sub_block = 16;
        part->stored = block[2 + group] | bits_of(block[66 + sub], group % 4 * 2, 2) << 8;
        magnitude = (uint32_t)(ts_grid_iq2_s[part->stored] >> i % 8 * 8);
        negative = bits_of(block[34 + group], i % 8, 1);
        break;
    case TS_BLOCK_IQ3_XXS: {
        uint32_t word = ts_load_le32(block + 66 + sub * 4);
        part->scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
        part->stored = block[2 + i / 4];
        magnitude = ts_grid_iq3_xxs[part->stored] >> i % 4 * 8;
        negative = is_negative(word, i);
        break;
    }
    default: /* TS_BLOCK_IQ3_S */
        part->scale = d * (float)(1 + 2 * bits_of(block[106 + sub / 2], sub % 2 * 4, 4));
        part->stored = block[2 + i / 4] | bits_of(block[66 + sub], i / 4 % 8, 1) << 8;
        magnitude = ts_grid_iq3_s[part->stored] >> i % 4 * 8;
        negative = bits_of(block[74 + group], i % 8, 1);
        break;
    }
    part->code = negative ? -(int32_t)(magnitude & 0xff) : (int32_t)(magnitude & 0xff);
}

/* scale * (code + delta): an eighth of the scale, with either sign, is what code 0 stands for. */
static void explain_iq1(enum ts_block_type type, const uint8_t *block, uint32_t i, struct ts_block_part *part)
{
    uint32_t group = i / 8, scale, high;
    bool minus;
    float d;
    if (type == TS_BLOCK_IQ1_S) {
        uint32_t word = ts_load_le16(block + 34 + i / 32 * 2);
        d = f16_at(block);
        scale = bits_of(word, 12, 3);
        high = bits_of(word, group % 4 * 3, 3);
        minus = word >> 15;
        part->sub_block = 32;
        part->stored = block[2 + group] | high << 8;
    } else {
        uint32_t nibble = bits_of(block[32 + group / 2], group % 2 * 4, 4), bits = 0;
        for (uint32_t word = 0; word < 4; word++)
            bits |= (uint32_t)ts_load_le16(block + 48 + word * 2) >> 12 << word * 4;
        d = ts_f16_to_float((uint16_t)bits);
        scale = bits_of(ts_load_le16(block + 48 + i / 64 * 2), i / 16 % 4 * 3, 3);
        high = nibble & 7;
        minus = nibble >> 3;
        part->sub_block = 16;
        part->stored = block[group] | high << 8;
    }
    part->scale = d * (float)(2 * scale + 1);
    part->minimum = part->scale * (minus ? -0.125f : 0.125f);
    part->code = (int8_t)(ts_grid_iq1[part->stored] >> i % 8 * 8) / 8;
}

bool ts_block_explain(enum ts_block_type type, const uint8_t *block, uint32_t index, struct ts_block_part *part)
{
    if (index >= ts_block_infos[type].elements)
        return false;
    *part = (struct ts_block_part){0};
    switch (type) {
    case TS_BLOCK_TQ1_0:
        explain_tq1_0(block, index, part);
        return true;
    case TS_BLOCK_Q2_K:
    case TS_BLOCK_Q3_K:
    case TS_BLOCK_Q4_K:
    case TS_BLOCK_Q5_K:
    case TS_BLOCK_Q6_K:
    case TS_BLOCK_Q8_K:
        explain_k(type, block, index, part);
        return true;
    case TS_BLOCK_IQ2_XXS:
    case TS_BLOCK_IQ2_XS:
    case TS_BLOCK_IQ2_S:
    case TS_BLOCK_IQ3_XXS:
    case TS_BLOCK_IQ3_S:
    case TS_BLOCK_IQ4_XS:
        explain_iq(type, block, index, part);
        return true;
    case TS_BLOCK_IQ1_S:
    case TS_BLOCK_IQ1_M:
        explain_iq1(type, block, index, part);
        return true;
    default:
        explain_simple(type, block, index, part);
        return true;
    }
}
