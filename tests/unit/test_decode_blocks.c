/* Block decoders, at every SIMD level this machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/number.h"
#include "tensor/decode_blocks.h"

#define MAX_BYTES    292
#define MAX_ELEMENTS 256

extern ts_decode_blocks_at_level *const ts_decode_kernels_portable[TS_BLOCK_COUNT];
#if defined(__x86_64__)
extern ts_decode_blocks_at_level *const ts_decode_kernels_avx2[TS_BLOCK_COUNT];
extern ts_decode_blocks_at_level *const ts_decode_kernels_avx512[TS_BLOCK_COUNT];
#elif defined(__aarch64__)
extern ts_decode_blocks_at_level *const ts_decode_kernels_neon[TS_BLOCK_COUNT];
#endif

static ts_decode_blocks_at_level *const *levels[3];
static int level_count;

static int find_levels(void **state)
{
    (void)state;
    levels[level_count++] = ts_decode_kernels_portable;
#if defined(__x86_64__)
    if (ts_simd_level() >= TS_SIMD_AVX2)
        levels[level_count++] = ts_decode_kernels_avx2;
    if (ts_simd_level() >= TS_SIMD_AVX512)
        levels[level_count++] = ts_decode_kernels_avx512;
#elif defined(__aarch64__)
    levels[level_count++] = ts_decode_kernels_neon;
#endif
    return 0;
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *data = malloc(1 << 20);
    assert_non_null(data);
    *size = fread(data, 1, 1 << 20, file);
    assert_true(*size > 0 && *size < 1 << 20);
    fclose(file);
    return data;
}

/* ggml writes names in lower case, but for the K. */
static void golden_name(enum ts_block_type type, char name[32])
{
    snprintf(name, 32, "t.%s", ts_block_infos[type].name);
    for (char *c = name; *c != 0; c++)
        *c = (char)(*c == 'K' ? 'K' : tolower((unsigned char)*c));
}

/* Where a GGUF file describes a tensor: the name with its length before it; then the number of dimensions, those, the
 * type, the offset. Returns the end of the description. */
static const uint8_t *find_gguf_tensor(const uint8_t *data, size_t size, const char *name, uint32_t *type,
                                       uint64_t *offset)
{
    uint8_t needle[40] = {0};
    size_t length = strlen(name);
    needle[0] = (uint8_t)length;
    memcpy(needle + 8, name, length);
    const uint8_t *at = memmem(data, size, needle, length + 8);
    if (at == NULL)
        return NULL;
    at += length + 8;
    at += 4 + (size_t)ts_load_le32(at) * 8;
    *type = ts_load_le32(at);
    *offset = ts_load_le64(at + 4);
    return at + 12;
}

static const float *find_expected(const uint8_t *data, const char *name)
{
    uint64_t header = ts_load_le64(data), begin;
    char key[48];
    snprintf(key, sizeof key, "\"%s\"", name);
    const char *at = memmem(data + 8, header, key, strlen(key));
    assert_non_null(at);
    at = strstr(at, "data_offsets\":");
    assert_non_null(at);
    begin = strtoull(strchr(at, '[') + 1, NULL, 10);
    return (const float *)(const void *)(data + 8 + header + begin);
}

static void test_golden(void **state)
{
    enum { ELEMENTS = 4 * 1024 };
    size_t gguf_size, expected_size;
    uint8_t *gguf = read_file("tests/golden/gguf/all_types.gguf", &gguf_size);
    uint8_t *expected = read_file("tests/golden/gguf/all_types.expected.safetensors", &expected_size);
    char name[32];
    uint32_t ggml_type;
    uint64_t offset;
    int found = 0;
    (void)state;

    /* The data starts at the next multiple of 32 after the last description. */
    const uint8_t *data = find_gguf_tensor(gguf, gguf_size, "t.f32", &ggml_type, &offset);
    for (int type = 0; type < TS_BLOCK_COUNT; type++) {
        golden_name((enum ts_block_type)type, name);
        const uint8_t *end = find_gguf_tensor(gguf, gguf_size, name, &ggml_type, &offset);
        if (end > data)
            data = end;
    }
    data = gguf + ((size_t)(data - gguf) + 31) / 32 * 32;

    for (int i = 0; i < TS_BLOCK_COUNT; i++) {
        const struct ts_block_info *info = &ts_block_infos[i];
        enum ts_block_type type;
        golden_name((enum ts_block_type)i, name);
        if (find_gguf_tensor(gguf, gguf_size, name, &ggml_type, &offset) == NULL) {
            assert_true(i == TS_BLOCK_Q8_1 || i == TS_BLOCK_Q8_K);
            continue;
        }
        found++;
        assert_true(ts_block_from_ggml(ggml_type, &type));
        assert_int_equal(type, i);
        size_t blocks = ELEMENTS / info->elements, bytes = blocks * info->bytes;
        const float *want = find_expected(expected, name);
        assert_true((size_t)(data - gguf) + offset + bytes <= gguf_size);

        for (int level = 0; level < level_count; level++) {
            /* Exact sizes for the sanitizer, and every alignment modulo 16 of the source. */
            for (size_t shift = 0; shift < 16; shift++) {
                uint8_t *src = malloc(bytes + shift);
                float *got = malloc(ELEMENTS * sizeof *got);
                assert_true(src && got);
                memcpy(src + shift, data + offset, bytes);
                levels[level][type](src + shift, blocks, got);
                assert_memory_equal(got, want, ELEMENTS * sizeof *got);
                free(src);
                free(got);
            }
        }
        float *got = malloc(ELEMENTS * sizeof *got);
        assert_non_null(got);
        ts_decode_blocks(type, data + offset, blocks, got);
        assert_memory_equal(got, want, ELEMENTS * sizeof *got);
        free(got);
    }
    assert_int_equal(found, TS_BLOCK_COUNT - 2);
    free(gguf);
    free(expected);
}

static bool same(float a, float b)
{
    return ts_float_bits(a) == ts_float_bits(b) || (isnan(a) && isnan(b));
}

/* Decodes one block at every level and checks that they agree, that nothing around dst is touched, and, where the
 * parts are finite, that they make up the value. */
static void decode_one(enum ts_block_type type, const uint8_t *block, float values[MAX_ELEMENTS])
{
    const struct ts_block_info *info = &ts_block_infos[type];
    uint8_t *src = malloc(info->bytes);
    float room[1 + MAX_ELEMENTS + 1];
    assert_non_null(src);
    memcpy(src, block, info->bytes);
    for (int level = 0; level < level_count; level++) {
        room[0] = room[1 + info->elements] = -12345;
        levels[level][type](src, 1, room + 1);
        assert_true(room[0] == -12345 && room[1 + info->elements] == -12345);
        if (level == 0)
            memcpy(values, room + 1, info->elements * sizeof *values);
        for (uint32_t i = 0; i < info->elements; i++)
            assert_true(same(values[i], room[1 + i]));
    }
    for (uint32_t i = 0; i < info->elements; i++) {
        struct ts_block_part part;
        assert_true(ts_block_explain(type, src, i, &part));
        assert_true(part.sub_block > 0 && info->elements % part.sub_block == 0);
        if (isfinite(part.scale) && isfinite(part.minimum))
            assert_true(part.scale * (float)part.code + part.minimum == values[i]);
        if (!info->has_min)
            assert_true(part.minimum == 0);
    }
    free(src);
}

static void test_levels_and_parts_agree(void **state)
{
    uint64_t random = 88172645463325252;
    uint8_t block[MAX_BYTES];
    float values[MAX_ELEMENTS];
    (void)state;
    for (int type = 0; type < TS_BLOCK_COUNT; type++) {
        for (int round = 0; round < 1002; round++) {
            for (int i = 0; i < MAX_BYTES; i++) {
                random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                block[i] = round == 1000 ? 0 : round == 1001 ? 0xff : (uint8_t)(random >> 24);
            }
            decode_one((enum ts_block_type)type, block, values);
        }
    }
}

static void put_le16(uint8_t *to, unsigned value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

enum { F16_ONE = 0x3c00, F16_MINUS_TWO = 0xc000, F16_INF = 0x7c00, F16_NAN = 0x7e00, F16_TINY = 1 /* 2^-24 */ };

/* Types with one f16 that scales everything: a NaN reaches every element; infinity gives NaN for code 0 only, and in
 * IQ1, where a delta is added to the code, for none; the smallest subnormal is not flushed. */
static void test_special_scales(void **state)
{
    static const struct {
        enum ts_block_type type;
        uint32_t scale_at;
    } cases[] = {
        {TS_BLOCK_Q4_0, 0},   {TS_BLOCK_Q5_0, 0},   {TS_BLOCK_Q8_0, 0},    {TS_BLOCK_Q8_1, 0},   {TS_BLOCK_Q1_0, 0},
        {TS_BLOCK_Q2_0, 0},   {TS_BLOCK_IQ4_NL, 0}, {TS_BLOCK_TQ1_0, 52},  {TS_BLOCK_TQ2_0, 64}, {TS_BLOCK_IQ2_XXS, 0},
        {TS_BLOCK_IQ2_XS, 0}, {TS_BLOCK_IQ2_S, 0},  {TS_BLOCK_IQ3_XXS, 0}, {TS_BLOCK_IQ3_S, 0},  {TS_BLOCK_IQ1_S, 0},
    };
    uint8_t block[MAX_BYTES];
    float values[MAX_ELEMENTS];
    struct ts_block_part part;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum ts_block_type type = cases[i].type;
        for (unsigned j = 0; j < MAX_BYTES; j++)
            block[j] = (uint8_t)(j * 37 + 11);

        put_le16(block + cases[i].scale_at, F16_NAN);
        decode_one(type, block, values);
        for (uint32_t e = 0; e < ts_block_infos[type].elements; e++)
            assert_true(isnan(values[e]));

        put_le16(block + cases[i].scale_at, F16_INF);
        decode_one(type, block, values);
        for (uint32_t e = 0; e < ts_block_infos[type].elements; e++) {
            assert_true(ts_block_explain(type, block, e, &part));
            if (type == TS_BLOCK_IQ1_S)
                assert_true(isinf(values[e]));
            else
                assert_true(part.code == 0 ? isnan(values[e]) : values[e] == (part.code < 0 ? -INFINITY : INFINITY));
        }

        put_le16(block + cases[i].scale_at, F16_TINY);
        decode_one(type, block, values);
        for (uint32_t e = 0; e < ts_block_infos[type].elements; e++) {
            assert_true(ts_block_explain(type, block, e, &part));
            assert_true(part.scale > 0 && part.scale < 0x1p-10f);
            assert_true((values[e] == 0) == (part.code == 0 && type != TS_BLOCK_IQ1_S));
        }
    }
}

/* Code 0 under a negative scale is minus zero, as in ggml. */
static void test_signs_of_zero(void **state)
{
    uint8_t block[MAX_BYTES] = {0};
    float values[MAX_ELEMENTS];
    (void)state;
    put_le16(block, F16_MINUS_TWO);
    memset(block + 2, 0x88, 16);
    decode_one(TS_BLOCK_Q4_0, block, values);
    for (int i = 0; i < 32; i++)
        assert_int_equal(ts_float_bits(values[i]), 0x80000000u);

    put_le16(block, 0x8000);
    memset(block + 2, 0xfe, 16);
    decode_one(TS_BLOCK_Q1_0, block, values);
    for (int i = 0; i < 128; i++)
        assert_int_equal(ts_float_bits(values[i]), i % 8 == 0 ? 0 : 0x80000000u);
}

static void test_q4_k_ranges(void **state)
{
    uint8_t block[MAX_BYTES] = {0};
    float values[MAX_ELEMENTS];
    (void)state;
    /* Scale s is 7 * s + 1, minimum s is 63 - 5 * s: six bits each, spread as ggml spreads them. */
    put_le16(block, F16_MINUS_TWO);
    put_le16(block + 2, F16_ONE);
    for (int s = 0; s < 4; s++) {
        int low_scale = 7 * s + 1, high_scale = 7 * (s + 4) + 1, low_min = 63 - 5 * s, high_min = 63 - 5 * (s + 4);
        block[4 + s] = (uint8_t)(low_scale | (high_scale >> 4) << 6);
        block[8 + s] = (uint8_t)(low_min | (high_min >> 4) << 6);
        block[12 + s] = (uint8_t)((high_scale & 15) | (high_min & 15) << 4);
    }
    for (int i = 0; i < 128; i++)
        block[16 + i] = (uint8_t)(i * 5);
    decode_one(TS_BLOCK_Q4_K, block, values);
    for (int i = 0; i < 256; i++) {
        int s = i / 32, byte = (uint8_t)((i / 64 * 32 + i % 32) * 5), code = s % 2 == 0 ? byte & 15 : byte >> 4;
        assert_true(values[i] == (float)(-2 * (7 * s + 1) * code - (63 - 5 * s)));
    }

    put_le16(block + 2, F16_INF); /* no minimum is 0 here */
    decode_one(TS_BLOCK_Q4_K, block, values);
    for (int i = 0; i < 256; i++)
        assert_true(values[i] == -INFINITY);
    put_le16(block + 2, F16_NAN);
    decode_one(TS_BLOCK_Q4_K, block, values);
    for (int i = 0; i < 256; i++)
        assert_true(isnan(values[i]));
}

static void test_q8_1(void **state)
{
    uint8_t block[MAX_BYTES];
    float values[MAX_ELEMENTS];
    (void)state;
    put_le16(block, 0x3555); /* 0.333251953125 */
    put_le16(block + 2, F16_NAN);
    for (int i = 0; i < 32; i++)
        block[4 + i] = (uint8_t)(i == 31 ? 127 : i == 30 ? -128 : i - 15);
    decode_one(TS_BLOCK_Q8_1, block, values);
    for (int i = 0; i < 30; i++)
        assert_true(values[i] == 0.333251953125f * (float)(i - 15));
    assert_true(values[30] == -42.65625f);
    assert_true(values[31] == 42.322998046875f);
}

static void test_q8_k(void **state)
{
    uint8_t block[MAX_BYTES];
    float values[MAX_ELEMENTS];
    const float d = -0.1f;
    uint32_t bits = ts_float_bits(d);
    (void)state;
    memset(block, 0xff, sizeof block); /* the sums at the end must not matter */
    for (int i = 0; i < 4; i++)
        block[i] = (uint8_t)(bits >> 8 * i);
    for (int i = 0; i < 256; i++)
        block[4 + i] = (uint8_t)(i - 128);
    decode_one(TS_BLOCK_Q8_K, block, values);
    assert_true(values[0] == 12.8f && values[255] == -12.7f);
    assert_int_equal(ts_float_bits(values[128]), 0x80000000u);
    for (int i = 0; i < 256; i++)
        assert_true(values[i] == d * (float)(i - 128));
}

/* All codes under the scales at the ends of the range and those that ggml does not take for what they are. */
static void test_fp4_scales(void **state)
{
    static const float doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    static const struct {
        uint8_t bits;
        float half;
    } mx[] = {{0, 0x1p-128f}, {1, 0x1p-127f}, {2, 0x1p-126f}, {127, 0.5f}, {254, 0x1p126f}, {255, 0x1p127f}},
      nv[] = {{0, 0},      {1, 0x1p-10f}, {7, 7 * 0x1p-10f}, {8, 0x1p-7f}, {0x38, 0.5f}, {0x3f, 0.9375f},
              {0x7e, 224}, {0x7f, 0},     {0x80, 0},         {0xb8, 0.5f}, {0xff, 240}};
    uint8_t block[MAX_BYTES];
    float values[MAX_ELEMENTS];
    (void)state;
    for (size_t i = 0; i < sizeof mx / sizeof *mx; i++) {
        block[0] = mx[i].bits;
        for (int j = 0; j < 16; j++)
            block[1 + j] = (uint8_t)(j | (15 - j) << 4);
        decode_one(TS_BLOCK_MXFP4, block, values);
        for (int j = 0; j < 16; j++)
            assert_true(values[j] == doubled[j] * mx[i].half && values[31 - j] == doubled[j] * mx[i].half);
    }
    for (size_t i = 0; i < sizeof nv / sizeof *nv; i++) {
        memset(block, 0, 4);
        block[2] = nv[i].bits; /* elements 32 to 47 */
        memset(block + 4, 0x77, 32);
        for (int j = 0; j < 8; j++)
            block[20 + j] = (uint8_t)(j | (8 + j) << 4);
        decode_one(TS_BLOCK_NVFP4, block, values);
        for (int j = 0; j < 64; j++)
            assert_true(values[j] == (j / 16 == 2 ? doubled[j % 16] * nv[i].half : 0));
    }
}

/* All of TQ1_0's 243 bytes that an encoder writes, and the 13 that it does not. */
static void test_tq1_0_digits(void **state)
{
    uint8_t block[MAX_BYTES] = {0};
    float values[MAX_ELEMENTS];
    (void)state;
    put_le16(block + 52, F16_ONE);
    for (int n = 0; n < 243; n++) {
        block[3] = (uint8_t)((n * 256 + 242) / 243);
        decode_one(TS_BLOCK_TQ1_0, block, values);
        for (int digit = 0, power = 81; digit < 5; digit++, power /= 3)
            assert_true(values[32 * digit + 3] == (float)(n / power % 3 - 1));
    }
    for (int byte = 0; byte < 256; byte++) {
        memset(block, byte, 52);
        decode_one(TS_BLOCK_TQ1_0, block, values);
        for (int i = 0; i < 256; i++)
            assert_true(values[i] >= -1 && values[i] <= 1);
    }
}

static void test_explain(void **state)
{
    uint8_t block[MAX_BYTES] = {0};
    struct ts_block_part part;
    (void)state;
    put_le16(block, F16_MINUS_TWO);
    block[2 + 5] = 0xe3;
    assert_true(ts_block_explain(TS_BLOCK_Q4_0, block, 21, &part));
    assert_true(part.scale == -2 && part.minimum == 0 && part.code == 6 && part.stored == 14 && part.sub_block == 32);
    assert_true(ts_block_explain(TS_BLOCK_IQ4_NL, block, 5, &part));
    assert_true(part.code == -65 && part.stored == 3);
    assert_false(ts_block_explain(TS_BLOCK_Q4_0, block, 32, &part));
    for (int type = 0; type < TS_BLOCK_COUNT; type++)
        assert_false(ts_block_explain((enum ts_block_type)type, block, ts_block_infos[type].elements, &part));
}

static void test_swap(void **state)
{
    uint8_t block[MAX_BYTES], swapped[MAX_BYTES];
    (void)state;
    for (int i = 0; i < MAX_BYTES; i++)
        block[i] = (uint8_t)i;
    for (int type = 0; type < TS_BLOCK_COUNT; type++) {
        memcpy(swapped, block, sizeof block);
        ts_block_swap((enum ts_block_type)type, swapped);
        assert_true((memcmp(swapped, block, sizeof block) == 0) == (type == TS_BLOCK_MXFP4 || type == TS_BLOCK_NVFP4));
        assert_memory_equal(swapped + ts_block_infos[type].bytes, block + ts_block_infos[type].bytes,
                            MAX_BYTES - ts_block_infos[type].bytes);
        ts_block_swap((enum ts_block_type)type, swapped);
        assert_memory_equal(swapped, block, sizeof block);
    }
    memcpy(swapped, block, sizeof block);
    ts_block_swap(TS_BLOCK_Q5_1, swapped);
    assert_memory_equal(swapped, ((uint8_t[]){1, 0, 3, 2, 7, 6, 5, 4, 8, 9}), 10);
    memcpy(swapped, block, sizeof block);
    ts_block_swap(TS_BLOCK_Q6_K, swapped);
    assert_memory_equal(swapped, block, 208);
    assert_memory_equal(swapped + 208, ((uint8_t[]){209, 208, 210}), 3);
}

static void test_numbering(void **state)
{
    static const uint32_t not_blocks[] = {0,  1,  4,  5,  24, 25, 26, 27, 28,        30,
                                          31, 32, 33, 36, 37, 38, 43, 44, UINT32_MAX};
    enum ts_block_type type;
    int known = 0;
    (void)state;
    for (size_t i = 0; i < sizeof not_blocks / sizeof *not_blocks; i++) {
        type = TS_BLOCK_TQ2_0;
        assert_false(ts_block_from_ggml(not_blocks[i], &type));
        assert_int_equal(type, TS_BLOCK_TQ2_0);
    }
    for (uint32_t number = 0; number < 100; number++) {
        if (ts_block_from_ggml(number, &type)) {
            assert_int_equal(ts_block_infos[type].ggml_type, number);
            known++;
        }
    }
    assert_int_equal(known, TS_BLOCK_COUNT);
    for (int i = 0; i < TS_BLOCK_COUNT; i++)
        assert_true(ts_block_infos[i].bytes <= MAX_BYTES && ts_block_infos[i].elements <= MAX_ELEMENTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),         cmocka_unit_test(test_levels_and_parts_agree),
        cmocka_unit_test(test_special_scales), cmocka_unit_test(test_signs_of_zero),
        cmocka_unit_test(test_q4_k_ranges),    cmocka_unit_test(test_q8_1),
        cmocka_unit_test(test_q8_k),           cmocka_unit_test(test_fp4_scales),
        cmocka_unit_test(test_tq1_0_digits),   cmocka_unit_test(test_explain),
        cmocka_unit_test(test_swap),           cmocka_unit_test(test_numbering),
    };
    return cmocka_run_group_tests_name("decode_blocks", tests, find_levels, NULL);
}
