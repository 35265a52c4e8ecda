/* The decoders of one SIMD level: see base/level.h. All but one symbol here is static.
 *
 * Every decoder works the same way, 16 elements at a time: unpack their codes into a vector of signed bytes,
 * then scale that into floats. Unpacking is written with 16-byte vectors, which every processor we care for has;
 * scaling moves four times as many bytes and is written per instruction set.
 *
 * Exactness: products are formed in the order that ggml forms them and never contracted. Where a decoder takes
 * another way, a comment says why the result is the same float. */
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/level.h"
#include "base/number.h"
#include "tensor/codebooks.h"
#include "tensor/decode_blocks.h"

/* Elements of a super-block, which all K and most IQ types have. */
#define SUPER 256

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef uint8_t bytes __attribute__((vector_size(16)));
typedef int8_t codes __attribute__((vector_size(16)));
typedef uint16_t words __attribute__((vector_size(16)));
typedef int32_t integers __attribute__((vector_size(16)));
typedef uint64_t eights __attribute__((vector_size(16))); /* two groups of eight elements */
typedef float floats __attribute__((vector_size(16)));

/* a[0], b[0], a[1], b[1] ... from the lower and the upper halves of two vectors. */
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define INTERLEAVE_HIGH(a, b)                                                                                          \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

enum minimum { NONE, PLUS, MINUS };

/* dst[i] = code[i] * scale, then + or - minimum. */
ALWAYS_INLINE void scale_16(float *dst, codes code, float scale, enum minimum sign, float minimum)
{
#if defined(__AVX512F__)
    __m512 value = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)code));
    value = _mm512_mul_ps(value, _mm512_set1_ps(scale));
    if (sign == PLUS)
        value = _mm512_add_ps(value, _mm512_set1_ps(minimum));
    if (sign == MINUS)
        value = _mm512_sub_ps(value, _mm512_set1_ps(minimum));
    _mm512_storeu_ps(dst, value);
#elif defined(__AVX2__)
    __m128i half = (__m128i)code;
    for (int i = 0; i < 16; i += 8, half = _mm_unpackhi_epi64(half, half)) {
        __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half));
        value = _mm256_mul_ps(value, _mm256_set1_ps(scale));
        if (sign == PLUS)
            value = _mm256_add_ps(value, _mm256_set1_ps(minimum));
        if (sign == MINUS)
            value = _mm256_sub_ps(value, _mm256_set1_ps(minimum));
        _mm256_storeu_ps(dst + i, value);
    }
#else
    /* Interleaved twice with itself, each code fills 32 bits; the top byte, shifted down, is the code again. */
    codes half[2] = {INTERLEAVE_LOW(code, code), INTERLEAVE_HIGH(code, code)};
    for (int i = 0; i < 4; i++) {
        codes two = half[i / 2];
        integers four = (integers)(i % 2 == 0 ? INTERLEAVE_LOW(two, two) : INTERLEAVE_HIGH(two, two));
        floats value = __builtin_convertvector(four >> 24, floats) * scale;
        if (sign == PLUS)
            value = value + minimum;
        if (sign == MINUS)
            value = value - minimum;
        memcpy(dst + 4 * i, &value, sizeof value);
    }
#endif
}

/* table[nibble] for each of 16 nibbles. */
ALWAYS_INLINE codes look_up(bytes nibbles, const int8_t table[16])
{
#if defined(__AVX2__)
    return (codes)_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)table), (__m128i)nibbles);
#elif defined(__aarch64__)
    return (codes)vqtbl1q_s8(vld1q_s8(table), (uint8x16_t)nibbles);
#else
    eights values = {0};
    for (int i = 0; i < 16; i++) { /* in two registers, as vectors are slow to take apart */
        int shift = i % 8 * 8;
        values[i / 8] |= (uint64_t)(uint8_t)table[((eights)nibbles)[i / 8] >> shift & 15] << shift;
    }
    return (codes)values;
#endif
}

ALWAYS_INLINE float load_f16(const uint8_t *from)
{
#if defined(__F16C__)
    return _cvtsh_ss(ts_load_le16(from));
#else
    return ts_f16_to_float(ts_load_le16(from));
#endif
}

ALWAYS_INLINE bytes load_16(const uint8_t *from)
{
    bytes loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

/* Two words whose lowest bytes are elements 0 and 8. */
ALWAYS_INLINE bytes from_eights(uint64_t first, uint64_t second)
{
    return (bytes)(eights){first, second};
}

/* The `width` bits from bit `from` on of each byte, moved to bit `to`. Shifts are done on 16-bit lanes, as processors
 * have none on bytes; what crosses from byte to byte is masked. */
ALWAYS_INLINE bytes move_bits(bytes packed, int from, int to, int width)
{
    words lanes = from > to ? (words)packed >> (from - to) : (words)packed << (to - from);
    return (bytes)lanes & (uint8_t)(((1 << width) - 1) << to);
}

ALWAYS_INLINE bytes low_nibbles(bytes packed)
{
    return packed & 15;
}

ALWAYS_INLINE bytes high_nibbles(bytes packed)
{
    return move_bits(packed, 4, 0, 4);
}

#define EACH_BYTE(value) (0x0101010101010101u * (value))

/* All ones in the elements whose bit is set, element i at bit i. */
ALWAYS_INLINE bytes mask_of_bits(uint32_t bits)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    return (bytes)_mm_movm_epi8((__mmask16)bits);
#else
    /* Copy each eight bits into eight bytes, of which each keeps its own. */
    const bytes own = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    eights copies = {EACH_BYTE((uint64_t)bits & 0xff), EACH_BYTE((uint64_t)bits >> 8)};
    return (bytes)(((bytes)copies & own) == own);
#endif
}

/* Blocks of 32 codes of four bits: byte i holds element i in its low and element i + 16 in its high half. */
static void decode_q4_0(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 18, dst += 32) {
        float scale = load_f16(src);
        bytes packed = load_16(src + 2);
        scale_16(dst, (codes)low_nibbles(packed) - 8, scale, NONE, 0);
        scale_16(dst + 16, (codes)high_nibbles(packed) - 8, scale, NONE, 0);
    }
}

static void decode_q4_1(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 20, dst += 32) {
        float scale = load_f16(src), minimum = load_f16(src + 2);
        bytes packed = load_16(src + 4);
        scale_16(dst, (codes)low_nibbles(packed), scale, PLUS, minimum);
        scale_16(dst + 16, (codes)high_nibbles(packed), scale, PLUS, minimum);
    }
}

/* Before the nibbles stand the fifth bits of the 32 elements, four bytes, element i at bit i. */
ALWAYS_INLINE codes fifth_bits(const uint8_t *from)
{
    return (codes)(mask_of_bits(ts_load_le16(from)) & 16);
}

static void decode_q5_0(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 22, dst += 32) {
        float scale = load_f16(src);
        bytes packed = load_16(src + 6);
        scale_16(dst, ((codes)low_nibbles(packed) | fifth_bits(src + 2)) - 16, scale, NONE, 0);
        scale_16(dst + 16, ((codes)high_nibbles(packed) | fifth_bits(src + 4)) - 16, scale, NONE, 0);
    }
}

static void decode_q5_1(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 24, dst += 32) {
        float scale = load_f16(src), minimum = load_f16(src + 2);
        bytes packed = load_16(src + 8);
        scale_16(dst, (codes)low_nibbles(packed) | fifth_bits(src + 4), scale, PLUS, minimum);
        scale_16(dst + 16, (codes)high_nibbles(packed) | fifth_bits(src + 6), scale, PLUS, minimum);
    }
}

static void decode_q8_0(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 34, dst += 32) {
        float scale = load_f16(src);
        scale_16(dst, (codes)load_16(src + 2), scale, NONE, 0);
        scale_16(dst + 16, (codes)load_16(src + 18), scale, NONE, 0);
    }
}

/* Bytes 2 and 3 hold the scaled sum of the codes, which decoding does not need. */
static void decode_q8_1(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 36, dst += 32) {
        float scale = load_f16(src);
        scale_16(dst, (codes)load_16(src + 4), scale, NONE, 0);
        scale_16(dst + 16, (codes)load_16(src + 20), scale, NONE, 0);
    }
}

/* The last 32 bytes are sums of 16 codes each. */
static void decode_q8_k(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 292, dst += SUPER) {
        float scale = ts_float_from_bits(ts_load_le32(src));
        for (int i = 0; i < SUPER; i += 16)
            scale_16(dst + i, (codes)load_16(src + 4 + i), scale, NONE, 0);
    }
}

/* Where a super-block packs two bits per element (Q2_K, Q3_K, TQ2_0, the upper bits of Q6_K), each half of 128 elements
 * has 32 bytes, and its quarter k stands at bits 2k and 2k + 1 of them. Q2_K: a byte per 16 elements holds their scale
 * in its low half and their minimum in its high half. */
static void decode_q2_k(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 84, dst += SUPER) {
        float scale[16], minimum[16];
        scale_16(scale, (codes)low_nibbles(load_16(src)), load_f16(src + 80), NONE, 0);
        scale_16(minimum, (codes)high_nibbles(load_16(src)), load_f16(src + 82), NONE, 0);
        for (int i = 0; i < 4; i++) { /* half i / 2, and 16 elements of each quarter of it */
            bytes packed = load_16(src + 16 + 16 * i);
            for (int quarter = 0; quarter < 4; quarter++) {
                int group = i / 2 * 8 + quarter * 2 + i % 2;
                codes code = (codes)move_bits(packed, 2 * quarter, 0, 2);
                scale_16(dst + 16 * group, code, scale[group], MINUS, minimum[group]);
            }
        }
    }
}

/* The third bit of the codes stands in the first 32 bytes: that of element e in byte e % 32, bit e / 32. A code
 * without it is lower by 4. Scales have six bits and an offset of 32. The lower four bits of scales 0 to 7 are the low
 * halves of eight bytes, those of scales 8 to 15 the high halves; the upper two bits of scale s stand in byte
 * 8 + s % 4 from bit 2 * (s / 4) on. */
static void decode_q3_k(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 110, dst += SUPER) {
        uint64_t low = ts_load_le64(src + 96), high = ts_load_le32(src + 104);
        high |= high << 30; /* bits 2 and 3 of the four bytes come down to 0 and 1 of the next four, and so on */
        bytes six_bits = from_eights((low & EACH_BYTE(15)) | (high << 4 & EACH_BYTE(48)),
                                     (low >> 4 & EACH_BYTE(15)) | (high & EACH_BYTE(48)));
        float scale[16];
        scale_16(scale, (codes)six_bits - 32, load_f16(src + 108), NONE, 0);
        for (int i = 0; i < 4; i++) {
            bytes packed = load_16(src + 32 + 16 * i), thirds = load_16(src + 16 * (i % 2));
            for (int quarter = 0; quarter < 4; quarter++) {
                int group = i / 2 * 8 + quarter * 2 + i % 2;
                bytes third = move_bits(thirds, i / 2 * 4 + quarter, 2, 1);
                codes code = (codes)(move_bits(packed, 2 * quarter, 0, 2) | third) - 4;
                scale_16(dst + 16 * group, code, scale[group], NONE, 0);
            }
        }
    }
}

/* Q4_K and Q5_K start with the f16 factors of all scales and of all minimums, then twelve bytes hold eight scales and
 * eight minimums of six bits, one pair for 32 elements. Bytes 0 to 3 are scales 0 to 3, bytes 4 to 7 minimums 0 to 3,
 * in their lower six bits. Bytes 8 to 11 hold four bits of scales 4 to 7 in their low and of minimums 4 to 7 in their
 * high halves; the two bits missing are the top ones of bytes 0 to 7. */
struct ranges {
    float scale[16], minimum[16]; /* the first eight count */
};

ALWAYS_INLINE void load_ranges(struct ranges *ranges, const uint8_t *from)
{
    uint64_t first = ts_load_le64(from + 4), low = ts_load_le32(from + 12);
    low |= low << 28; /* the high halves come down to the low halves of the next four bytes */
    uint64_t second = (low & EACH_BYTE(15)) | (first >> 2 & EACH_BYTE(48));
    first &= EACH_BYTE(63);
    uint64_t scales = (first & 0xffffffff) | second << 32, minimums = first >> 32 | (second >> 32 << 32);
    scale_16(ranges->scale, (codes)from_eights(scales, 0), load_f16(from), NONE, 0);
    scale_16(ranges->minimum, (codes)from_eights(minimums, 0), load_f16(from + 2), NONE, 0);
}

#if defined(__AVX512F__)
/* The sixteen numbers that a group's codes can stand for, made as scale_16 makes each. */
ALWAYS_INLINE __m512 values_of_codes(float scale, float minimum)
{
    const __m512 code = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_sub_ps(_mm512_mul_ps(code, _mm512_set1_ps(scale)), _mm512_set1_ps(minimum));
}
#endif

/* Each quarter of 64 elements has 32 bytes: the first 32 elements are their low halves, the others the high. */
static void decode_q4_k(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 144, dst += SUPER) {
        struct ranges ranges;
        load_ranges(&ranges, src);
#if defined(__AVX512F__)
        for (int quarter = 0; quarter < 4; quarter++) { /* looked up: of an index its lowest four bits count */
            const __m512 low = values_of_codes(ranges.scale[2 * quarter], ranges.minimum[2 * quarter]);
            const __m512 high = values_of_codes(ranges.scale[2 * quarter + 1], ranges.minimum[2 * quarter + 1]);
            for (int i = 0; i < 2; i++) {
                const __m512i packed = _mm512_cvtepu8_epi32((__m128i)load_16(src + 16 + 32 * quarter + 16 * i));
                float *to = dst + 64 * quarter + 16 * i;
                _mm512_storeu_ps(to, _mm512_permutexvar_ps(packed, low));
                _mm512_storeu_ps(to + 32, _mm512_permutexvar_ps(_mm512_srli_epi32(packed, 4), high));
            }
        }
#else
        for (int i = 0; i < 8; i++) { /* i / 2 is the quarter, i % 2 the half of each 32 elements */
            bytes packed = load_16(src + 16 + 16 * i);
            int group = i / 2 * 2;
            float *to = dst + 32 * group + 16 * (i % 2);
            scale_16(to, (codes)low_nibbles(packed), ranges.scale[group], MINUS, ranges.minimum[group]);
            scale_16(to + 32, (codes)high_nibbles(packed), ranges.scale[group + 1], MINUS, ranges.minimum[group + 1]);
        }
#endif
    }
}

/* As Q4_K, but for 32 bytes before the nibbles: the fifth bit of element e in byte e % 32, bit e / 32. */
static void decode_q5_k(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 176, dst += SUPER) {
        struct ranges ranges;
        load_ranges(&ranges, src);
        for (int i = 0; i < 8; i++) {
            bytes packed = load_16(src + 48 + 16 * i), fifth = load_16(src + 16 + 16 * (i % 2));
            int group = i / 2 * 2;
            float *to = dst + 32 * group + 16 * (i % 2);
            codes low = (codes)(low_nibbles(packed) | move_bits(fifth, group, 4, 1));
            codes high = (codes)(high_nibbles(packed) | move_bits(fifth, group + 1, 4, 1));
            scale_16(to, low, ranges.scale[group], MINUS, ranges.minimum[group]);
            scale_16(to + 32, high, ranges.scale[group + 1], MINUS, ranges.minimum[group + 1]);
        }
    }
}

/* The lower four bits of each half of 128 elements stand in 64 bytes, quarters 0 and 1 in the low halves of these,
 * 2 and 3 in the high; then the upper two bits and a signed scale per 16 elements. */
static void decode_q6_k(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 210, dst += SUPER) {
        float scale[16];
        scale_16(scale, (codes)load_16(src + 192), load_f16(src + 208), NONE, 0);
        for (int i = 0; i < 4; i++) {
            bytes high = load_16(src + 128 + 16 * i);
            const uint8_t *low = src + i / 2 * 64 + i % 2 * 16;
            bytes nibbles[4] = {low_nibbles(load_16(low)), low_nibbles(load_16(low + 32)), high_nibbles(load_16(low)),
                                high_nibbles(load_16(low + 32))};
            for (int quarter = 0; quarter < 4; quarter++) {
                int group = i / 2 * 8 + quarter * 2 + i % 2;
                codes code = (codes)(nibbles[quarter] | move_bits(high, 2 * quarter, 4, 2)) - 32;
                scale_16(dst + 16 * group, code, scale[group], NONE, 0);
            }
        }
    }
}

/* Element i at bit i of the 128 that follow the scale: 1 stands for 1, 0 for -1. */
static void decode_q1_0(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 18, dst += 128) {
        float scale = load_f16(src);
        for (int i = 0; i < 8; i++) {
            codes set = (codes)mask_of_bits(ts_load_le16(src + 2 + 2 * i));
            scale_16(dst + 16 * i, -1 - 2 * set, scale, NONE, 0);
        }
    }
}

/* Four elements to a byte, the first in the lowest bits. */
static void decode_q2_0(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 18) {
        float scale = load_f16(src);
        bytes packed = load_16(src + 2), low = low_nibbles(packed), high = high_nibbles(packed);
        bytes pairs[2] = {INTERLEAVE_LOW(low, high), INTERLEAVE_HIGH(low, high)};
        for (int i = 0; i < 2; i++, dst += 32) {
            codes even = (codes)move_bits(pairs[i], 0, 0, 2) - 1, odd = (codes)move_bits(pairs[i], 2, 0, 2) - 1;
            scale_16(dst, INTERLEAVE_LOW(even, odd), scale, NONE, 0);
            scale_16(dst + 16, INTERLEAVE_HIGH(even, odd), scale, NONE, 0);
        }
    }
}

static void decode_tq2_0(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 66, dst += SUPER) {
        float scale = load_f16(src + 64);
        for (int i = 0; i < 4; i++) {
            bytes packed = load_16(src + 16 * i);
            for (int quarter = 0; quarter < 4; quarter++) {
                codes code = (codes)move_bits(packed, 2 * quarter, 0, 2) - 1;
                scale_16(dst + i / 2 * 128 + quarter * 32 + i % 2 * 16, code, scale, NONE, 0);
            }
        }
    }
}

/* A byte is a fraction of 256 whose first digits in base three are elements. Times three, what goes beyond the byte is
 * the first digit, which is 1 from 256 / 3 and 2 from 512 / 3 on, and what stays in the byte holds the others. */
ALWAYS_INLINE codes next_digit(bytes *fraction)
{
    codes digit = -(codes)(*fraction >= 86) - (codes)(*fraction >= 171);
    *fraction = *fraction + *fraction + *fraction;
    return digit - 1;
}

/* 32 bytes of five digits give elements 0 to 159, digit k those from 32k on; 16 bytes of five digits give 160 to 239;
 * four bytes of four digits the last 16. */
static void decode_tq1_0(const uint8_t *restrict src, size_t blocks, float *restrict dst)
{
    for (; blocks > 0; blocks--, src += 54, dst += SUPER) {
        float scale = load_f16(src + 52);
        bytes packed[3] = {load_16(src), load_16(src + 16), load_16(src + 32)};
        for (int digit = 0; digit < 5; digit++) {
            scale_16(dst + 32 * digit, next_digit(&packed[0]), scale, NONE, 0);
            scale_16(dst + 32 * digit + 16, next_digit(&packed[1]), scale, NONE, 0);
            scale_16(dst + 160 + 16 * digit, next_digit(&packed[2]), scale, NONE, 0);
        }
        /* Each group of four skips one digit more. */
        const bytes skip = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
        uint64_t last = ts_load_le32(src + 48);
        last |= last << 32;
        bytes digits = from_eights(last, last) * skip;
        scale_16(dst + 240, next_digit(&digits), scale, NONE, 0);
    }
}

#include "tensor/decode_codebook.inc.h"

ts_decode_blocks_at_level *const TS_AT_LEVEL(ts_decode_kernels)[TS_BLOCK_COUNT] = {
    [TS_BLOCK_Q4_0] = decode_q4_0,       [TS_BLOCK_Q4_1] = decode_q4_1,     [TS_BLOCK_Q5_0] = decode_q5_0,
    [TS_BLOCK_Q5_1] = decode_q5_1,       [TS_BLOCK_Q8_0] = decode_q8_0,     [TS_BLOCK_Q8_1] = decode_q8_1,
    [TS_BLOCK_Q2_K] = decode_q2_k,       [TS_BLOCK_Q3_K] = decode_q3_k,     [TS_BLOCK_Q4_K] = decode_q4_k,
    [TS_BLOCK_Q5_K] = decode_q5_k,       [TS_BLOCK_Q6_K] = decode_q6_k,     [TS_BLOCK_Q8_K] = decode_q8_k,
    [TS_BLOCK_IQ2_XXS] = decode_iq2_xxs, [TS_BLOCK_IQ2_XS] = decode_iq2_xs, [TS_BLOCK_IQ3_XXS] = decode_iq3_xxs,
    [TS_BLOCK_IQ1_S] = decode_iq1_s,     [TS_BLOCK_IQ4_NL] = decode_iq4_nl, [TS_BLOCK_IQ3_S] = decode_iq3_s,
    [TS_BLOCK_IQ2_S] = decode_iq2_s,     [TS_BLOCK_IQ4_XS] = decode_iq4_xs, [TS_BLOCK_IQ1_M] = decode_iq1_m,
    [TS_BLOCK_TQ1_0] = decode_tq1_0,     [TS_BLOCK_TQ2_0] = decode_tq2_0,   [TS_BLOCK_MXFP4] = decode_mxfp4,
    [TS_BLOCK_NVFP4] = decode_nvfp4,     [TS_BLOCK_Q1_0] = decode_q1_0,     [TS_BLOCK_Q2_0] = decode_q2_0,
};
