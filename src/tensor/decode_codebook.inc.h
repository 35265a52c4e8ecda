/* Part of decode_blocks.c: the types whose codes are looked up (tensor/codebooks.h). */

static void decode_iq4_nl(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 18, dst += 32) {
        float scale = load_f16(src);
        bytes packed = load_16(src + 2);
        scale_16(dst, look_up(low_nibbles(packed), ts_values_iq4), scale, NONE, 0);
        scale_16(dst + 16, look_up(high_nibbles(packed), ts_values_iq4), scale, NONE, 0);
    }
}

/* Eight scales of six bits with an offset of 32: the lower four bits are the nibbles of bytes 4 to 7, the upper two
 * the pairs of bits of the word at byte 2, the first in the lowest bits. */
static void decode_iq4_xs(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 136, dst += SUPER) {
        float d = load_f16(src);
        uint32_t high = ts_load_le16(src + 2), low = ts_load_le32(src + 4);
        for (int i = 0; i < 8; i++) {
            float scale = d * (float)((int)((low >> 4 * i & 15) | (high >> 2 * i & 3) << 4) - 32);
            bytes packed = load_16(src + 8 + 16 * i);
            scale_16(dst + 32 * i, look_up(low_nibbles(packed), ts_values_iq4), scale, NONE, 0);
            scale_16(dst + 32 * i + 16, look_up(high_nibbles(packed), ts_values_iq4), scale, NONE, 0);
        }
    }
}

/* The scale is the exponent of a power of two with a bias of 127. The codes are doubled, so it is halved, and the two
 * smallest become subnormal floats. Like ggml, takes 255 for 2^128 and not for NaN. */
static void decode_mxfp4(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 17, dst += 32) {
        uint32_t exponent = src[0];
        float scale = ts_float_from_bits(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
        bytes packed = load_16(src + 1);
        scale_16(dst, look_up(low_nibbles(packed), ts_values_fp4), scale, NONE, 0);
        scale_16(dst + 16, look_up(high_nibbles(packed), ts_values_fp4), scale, NONE, 0);
    }
}

/* Half the value of a float with four bits of exponent, biased by 7, and three of mantissa. Put in the place of the
 * fields of a 32-bit float it is too small by 2^(127 - 7), subnormals included. Like ggml, takes the positive NaN for
 * zero and otherwise ignores the sign bit, so that 0xff is half of 480. */
ALWAYS_INLINE float half_of_e4m3(uint8_t bits)
{
    return bits == 0x7f ? 0 : ts_float_from_bits((uint32_t)(bits & 0x7f) << 20) * 0x1p119f;
}

/* Four scales, then four times 8 bytes of 16 elements: element i in the low half of byte i, i + 8 in the high. */
static void decode_nvfp4(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 36, dst += 64) {
        for (int i = 0; i < 4; i++) {
            uint64_t packed = ts_load_le64(src + 4 + 8 * i);
            bytes nibbles = low_nibbles(from_eights(packed, packed >> 4));
            scale_16(dst + 16 * i, look_up(nibbles, ts_values_fp4), half_of_e4m3(src[i]), NONE, 0);
        }
    }
}

/* Negates the elements whose bit is set. ggml multiplies by -1 in the end instead, which gives the same float. */
ALWAYS_INLINE codes with_signs(bytes magnitude, uint32_t signs)
{
    codes negative = (codes)mask_of_bits(signs);
    return ((codes)magnitude ^ negative) - negative;
}

/* IQ2_XXS, IQ2_XS and IQ3_XXS store seven signs of eight: the last one makes the number of minus signs even. Does so
 * for two bytes at once: the lowest bit of each gathers the parity of the byte. */
ALWAYS_INLINE uint32_t complete_signs(uint32_t first, uint32_t second)
{
    uint32_t signs = (first & 127) | (second & 127) << 8;
    uint32_t parity = signs ^ signs >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return signs | (parity & 0x0101) << 7;
}

/* Per 32 elements: four grid indices of eight bits, then a word of four times seven signs and a scale of four. */
static void decode_iq2_xxs(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    const uint64_t *grid = ts_grid_iq2_xxs;
    for (; blocks > 0; blocks--, src += 66) {
        float d = load_f16(src);
        for (int i = 0; i < 8; i++, dst += 32) {
            const uint8_t *index = src + 2 + 8 * i;
            uint32_t word = ts_load_le32(index + 4);
            float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
            bytes first = from_eights(grid[index[0]], grid[index[1]]);
            bytes second = from_eights(grid[index[2]], grid[index[3]]);
            scale_16(dst, with_signs(first, complete_signs(word, word >> 7)), scale, NONE, 0);
            scale_16(dst + 16, with_signs(second, complete_signs(word >> 14, word >> 21)), scale, NONE, 0);
        }
    }
}

/* IQ2_XS and IQ2_S: eight bytes hold a scale of four bits per 16 elements, the even ones in their low halves. ggml
 * computes d * (0.5 + s) * 0.25, which is (d / 8) * (2s + 1), exactly: the product of 11 and 5 bits fits a float. */
struct scales_iq2 {
    float of[16]; /* even, then odd */
};

ALWAYS_INLINE struct scales_iq2 load_scales_iq2(float d, const uint8_t *from)
{
    uint64_t packed = ts_load_le64(from);
    codes four_bits = (codes)from_eights(packed & EACH_BYTE(15), packed >> 4 & EACH_BYTE(15));
    struct scales_iq2 scales;
    scale_16(scales.of, four_bits * 2 + 1, d * 0.125f, NONE, 0);
    return scales;
}

/* Per 8 elements a word: nine bits of grid index, seven signs. */
static void decode_iq2_xs(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 74, dst += SUPER) {
        struct scales_iq2 scales = load_scales_iq2(load_f16(src), src + 66);
        for (int i = 0; i < 16; i++) {
            uint32_t word = ts_load_le32(src + 2 + 4 * i); /* two */
            bytes magnitude = from_eights(ts_grid_iq2_xs[word & 511], ts_grid_iq2_xs[word >> 16 & 511]);
            codes code = with_signs(magnitude, complete_signs(word >> 9, word >> 25));
            scale_16(dst + 16 * i, code, scales.of[i / 2 + i % 2 * 8], NONE, 0);
        }
    }
}

/* 32 grid indices, 32 bytes of signs, 8 bytes with two more bits for four indices each, 8 of scales. */
static void decode_iq2_s(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 82, dst += SUPER) {
        struct scales_iq2 scales = load_scales_iq2(load_f16(src), src + 74);
        for (int i = 0; i < 16; i++) {
            const uint8_t *index = src + 2 + 2 * i;
            uint32_t high = (uint32_t)src[66 + i / 2] >> i % 2 * 4;
            bytes magnitude =
                from_eights(ts_grid_iq2_s[index[0] | (high & 3) << 8], ts_grid_iq2_s[index[1] | (high >> 2 & 3) << 8]);
            codes code = with_signs(magnitude, ts_load_le16(src + 34 + 2 * i));
            scale_16(dst + 16 * i, code, scales.of[i / 2 + i % 2 * 8], NONE, 0);
        }
    }
}

/* The grids of IQ3 give four elements. */
ALWAYS_INLINE bytes from_fours(uint64_t first, uint64_t second, uint64_t third, uint64_t fourth)
{
    return from_eights(first | second << 32, third | fourth << 32);
}

/* 64 grid indices, then a word per 32 elements as in IQ2_XXS. */
static void decode_iq3_xxs(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    const uint32_t *grid = ts_grid_iq3_xxs;
    for (; blocks > 0; blocks--, src += 98) {
        float d = load_f16(src);
        for (int i = 0; i < 8; i++, dst += 32) {
            const uint8_t *index = src + 2 + 8 * i;
            uint32_t word = ts_load_le32(src + 66 + 4 * i);
            float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
            bytes first = from_fours(grid[index[0]], grid[index[1]], grid[index[2]], grid[index[3]]);
            bytes second = from_fours(grid[index[4]], grid[index[5]], grid[index[6]], grid[index[7]]);
            scale_16(dst, with_signs(first, complete_signs(word, word >> 7)), scale, NONE, 0);
            scale_16(dst + 16, with_signs(second, complete_signs(word >> 14, word >> 21)), scale, NONE, 0);
        }
    }
}

/* 64 grid indices, 8 bytes with their ninth bits, 32 of signs, 4 with a scale of four bits per 32 elements. */
static void decode_iq3_s(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    const uint32_t *grid = ts_grid_iq3_s;
    for (; blocks > 0; blocks--, src += 110, dst += SUPER) {
        float d = load_f16(src);
        for (int i = 0; i < 16; i++) {
            const uint8_t *index = src + 2 + 4 * i;
            uint32_t ninth = (uint32_t)src[66 + i / 2] << 8 >> i % 2 * 4;
            float scale = d * (float)(1 + 2 * (src[106 + i / 4] >> i / 2 % 2 * 4 & 15));
            bytes magnitude = from_fours(grid[index[0] | (ninth & 256)], grid[index[1] | (ninth >> 1 & 256)],
                                         grid[index[2] | (ninth >> 2 & 256)], grid[index[3] | (ninth >> 3 & 256)]);
            scale_16(dst + 16 * i, with_signs(magnitude, ts_load_le16(src + 74 + 2 * i)), scale, NONE, 0);
        }
    }
}

/* IQ1: ggml computes scale * (g + delta), where g is -1, 0 or 1 from the grid and delta is 1/8 or -1/8. Eight times
 * that sum is an integer, the grid holds 8 * g, and an eighth of the scale is exact, so that (scale / 8) * (8 * g + 1)
 * rounds to the same float. */
ALWAYS_INLINE codes with_deltas(bytes grid, bool first_minus, bool second_minus)
{
    return (codes)grid +
           (codes)(eights){first_minus ? EACH_BYTE(0xff) : EACH_BYTE(1), second_minus ? EACH_BYTE(0xff) : EACH_BYTE(1)};
}

/* 32 grid indices, then a word per 32 elements: three more bits for each of four indices, a scale of three bits, the
 * sign of delta. */
static void decode_iq1_s(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 50, dst += SUPER) {
        float d = load_f16(src);
        for (int i = 0; i < 16; i++) {
            const uint8_t *index = src + 2 + 2 * i;
            uint32_t word = ts_load_le16(src + 34 + i / 2 * 2);
            uint32_t high = word >> i % 2 * 6;
            float scale = d * (float)(2 * (word >> 12 & 7) + 1) * 0.125f;
            codes code = with_deltas(
                from_eights(ts_grid_iq1[index[0] | (high & 7) << 8], ts_grid_iq1[index[1] | (high >> 3 & 7) << 8]),
                word >> 15, word >> 15);
            scale_16(dst + 16 * i, code, scale, NONE, 0);
        }
    }
}

/* 32 grid indices, then a nibble for each: three more bits and the sign of delta. Then four words, each with four
 * scales of three bits for 16 elements; their upper four bits make up the block's scale, the low part first. */
static void decode_iq1_m(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 56, dst += SUPER) {
        uint64_t scales = ts_load_le64(src + 48);
        uint8_t d_bytes[2] = {(uint8_t)((scales >> 12 & 0x0f) | (scales >> 24 & 0xf0)),
                              (uint8_t)((scales >> 44 & 0x0f) | (scales >> 56 & 0xf0))};
        float d = load_f16(d_bytes);
        for (int i = 0; i < 16; i++) {
            const uint8_t *index = src + 2 * i;
            uint32_t high = src[32 + i];
            float scale = d * (float)(2 * (int)(scales >> (i / 4 * 16 + i % 4 * 3) & 7) + 1) * 0.125f;
            codes code = with_deltas(
                from_eights(ts_grid_iq1[index[0] | (high & 7) << 8], ts_grid_iq1[index[1] | (high >> 4 & 7) << 8]),
                high & 8, high & 128);
            scale_16(dst + 16 * i, code, scale, NONE, 0);
        }
    }
}
