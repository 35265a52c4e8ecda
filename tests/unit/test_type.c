/* Every element type's decoder against values from the definition of the type, worked out here another way, and against
 * values known by heart. The ggml blocks have tests of their own (test_decode_blocks.c); here only how they are
 * reached. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "dice.h"
#include "tensor/type.h"
#include "tensor/widen_kernel.h"

static void reverse(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size / 2; i++) {
        uint8_t byte = bytes[i];
        bytes[i] = bytes[size - 1 - i];
        bytes[size - 1 - i] = byte;
    }
}

/* The same number, signs of zeros included; any NaN equals any NaN. */
static void same(double found, double expected, unsigned code)
{
    if (isnan(expected) ? !isnan(found) : ts_double_bits(found) != ts_double_bits(expected))
        fail_msg("code 0x%x decodes to %.17g, expected %.17g", code, found, expected);
}

/* One element in `size` bytes, in both orders, to both precisions. */
static void decodes_to(enum ts_type type, uint64_t code, size_t size, double expected)
{
    uint8_t bytes[8], turned[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = turned[i] = (uint8_t)(code >> (8 * i));
    reverse(turned, size);
    for (int swapped = 0; swapped < 2; swapped++) {
        double as_double;
        float as_float;
        ts_type_decode_f64(type, swapped, swapped ? turned : bytes, 1, &as_double);
        ts_type_decode_f32(type, swapped, swapped ? turned : bytes, 1, &as_float);
        same(as_double, expected, (unsigned)code);
        same((double)as_float, (double)(float)expected, (unsigned)code);
    }
}

/* Sign, exponent, mantissa: (-1)^s * 2^(e - bias) * (1 + m / 2^M), and with e = 0 the same exponent as 1 without the 1.
 */
static double from_parts(unsigned code, unsigned exponent_bits, unsigned mantissa_bits, int bias)
{
    unsigned exponent = code >> mantissa_bits & ((1u << exponent_bits) - 1);
    double fraction = (code & ((1u << mantissa_bits) - 1)) / (double)(1u << mantissa_bits);
    double size = exponent ? (1 + fraction) * exp2((int)exponent - bias) : fraction * exp2(1 - bias);
    return code >> (exponent_bits + mantissa_bits) & 1 ? -size : size;
}

static void test_f8_e4m3(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++)
        decodes_to(TS_F8_E4M3, code, 1, (code & 0x7f) == 0x7f ? (double)NAN : from_parts(code, 4, 3, 7));
    decodes_to(TS_F8_E4M3, 0x7e, 1, 448);
    decodes_to(TS_F8_E4M3, 0x38, 1, 1);
    decodes_to(TS_F8_E4M3, 0x81, 1, -0x1p-9);
    decodes_to(TS_F8_E4M3, 0x78, 1, 256); /* the widest exponent is an ordinary one */
}

static void test_f8_e5m2(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        bool special = (code & 0x7c) == 0x7c;
        double value = special ? (code & 3      ? (double)NAN
                                  : code & 0x80 ? -INFINITY
                                                : INFINITY)
                               : from_parts(code, 5, 2, 15);
        decodes_to(TS_F8_E5M2, code, 1, value);
    }
    decodes_to(TS_F8_E5M2, 0x7b, 1, 57344);
    decodes_to(TS_F8_E5M2, 0x01, 1, 0x1p-16);
    decodes_to(TS_F8_E5M2, 0xbc, 1, -1);
}

static void test_f8_fnuz(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        decodes_to(TS_F8_E4M3FNUZ, code, 1, code == 0x80 ? (double)NAN : from_parts(code, 4, 3, 8));
        decodes_to(TS_F8_E5M2FNUZ, code, 1, code == 0x80 ? (double)NAN : from_parts(code, 5, 2, 16));
        decodes_to(TS_F8_E4M3B11FNUZ, code, 1, code == 0x80 ? (double)NAN : from_parts(code, 4, 3, 11));
    }
    decodes_to(TS_F8_E4M3FNUZ, 0x7f, 1, 240);
    decodes_to(TS_F8_E4M3FNUZ, 0x40, 1, 1);
    decodes_to(TS_F8_E5M2FNUZ, 0x7f, 1, 57344);
    decodes_to(TS_F8_E5M2FNUZ, 0x40, 1, 1);
    decodes_to(TS_F8_E4M3B11FNUZ, 0x7f, 1, 30);
    decodes_to(TS_F8_E4M3B11FNUZ, 0x58, 1, 1);
}

static void test_f8_e3m4(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        bool special = (code & 0x70) == 0x70;
        double value = special ? (code & 15     ? (double)NAN
                                  : code & 0x80 ? -INFINITY
                                                : INFINITY)
                               : from_parts(code, 3, 4, 3);
        decodes_to(TS_F8_E3M4, code, 1, value);
    }
    decodes_to(TS_F8_E3M4, 0x6f, 1, 15.5);
    decodes_to(TS_F8_E3M4, 0x01, 1, 0x1p-6);
    decodes_to(TS_F8_E3M4, 0x30, 1, 1);
}

static void test_f8_e8m0(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 255; code++)
        decodes_to(TS_F8_E8M0, code, 1, exp2((int)code - 127));
    decodes_to(TS_F8_E8M0, 255, 1, (double)NAN);
    decodes_to(TS_F8_E8M0, 127, 1, 1);
    decodes_to(TS_F8_E8M0, 0, 1, 0x1p-127); /* a subnormal float */
}

static void test_f16(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 65536; code++) {
        bool special = (code & 0x7c00) == 0x7c00;
        double value = special ? (code & 0x3ff    ? (double)NAN
                                  : code & 0x8000 ? -INFINITY
                                                  : INFINITY)
                               : from_parts(code, 5, 10, 15);
        decodes_to(TS_F16, code, 2, value);
    }
    decodes_to(TS_F16, 0x3c00, 2, 1);
    decodes_to(TS_F16, 0x7bff, 2, 65504);
    decodes_to(TS_F16, 0x0001, 2, 0x1p-24);
    decodes_to(TS_F16, 0x3555, 2, 0.333251953125);
}

static void test_bf16(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 65536; code++) {
        bool special = (code & 0x7f80) == 0x7f80;
        double value = special ? (code & 0x7f     ? (double)NAN
                                  : code & 0x8000 ? -INFINITY
                                                  : INFINITY)
                               : from_parts(code, 8, 7, 127);
        decodes_to(TS_BF16, code, 2, value);
    }
    decodes_to(TS_BF16, 0x3f80, 2, 1);
    decodes_to(TS_BF16, 0xc049, 2, -3.140625);
    decodes_to(TS_BF16, 0x0001, 2, 0x1p-133);
}

static void test_f32_and_f64(void **state)
{
    (void)state;
    decodes_to(TS_F32, 0x3f800000, 4, 1);
    decodes_to(TS_F32, 0xc0490fdb, 4, -3.1415927410125732421875);
    decodes_to(TS_F32, 0x00000001, 4, 0x1p-149);
    decodes_to(TS_F32, 0x7f7fffff, 4, 0x1.fffffep127);
    decodes_to(TS_F32, 0x80000000, 4, -0.0);
    decodes_to(TS_F32, 0xff800000, 4, -INFINITY);
    decodes_to(TS_F32, 0x7fc00000, 4, (double)NAN);
    decodes_to(TS_F64, 0x3ff0000000000000, 8, 1);
    decodes_to(TS_F64, 0xc00921fb54442d18, 8, -3.141592653589793);
    decodes_to(TS_F64, 0x0000000000000001, 8, 0x1p-1074);
    decodes_to(TS_F64, 0x7fefffffffffffff, 8, DBL_MAX);        /* infinite in f32 */
    decodes_to(TS_F64, 0x3ff0000010000000, 8, 0x1.00000100p0); /* half way between two floats: to the even one */
    decodes_to(TS_F64, 0x7ff8000000000000, 8, (double)NAN);
    for (int i = 0; i < 20000; i++) {
        uint32_t code = (uint32_t)dice();
        if ((code & 0x7f800000) != 0x7f800000)
            decodes_to(TS_F32, code, 4,
                       (code >> 31 ? -1.0 : 1.0) *
                           (code >> 23 & 255 ? ldexp((code & 0x7fffff) + 0x1p23, (int)(code >> 23 & 255) - 150)
                                             : ldexp(code & 0x7fffff, -149)));
    }
}

/* Sixteen bytes, of which the upper six mean nothing. */
static void put_f80(uint8_t bytes[16], uint64_t mantissa, unsigned top)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(mantissa >> (8 * i));
    bytes[8] = (uint8_t)top;
    bytes[9] = (uint8_t)(top >> 8);
    memset(bytes + 10, 0xa5, 6);
}

static void f80_decodes_to(uint64_t mantissa, unsigned top, double expected, float expected_float)
{
    uint8_t bytes[16];
    put_f80(bytes, mantissa, top);
    for (int swapped = 0; swapped < 2; swapped++) {
        double as_double;
        float as_float;
        ts_type_decode_f64(TS_F80, swapped, bytes, 1, &as_double);
        ts_type_decode_f32(TS_F80, swapped, bytes, 1, &as_float);
        same(as_double, expected, top);
        same((double)as_float, (double)expected_float, top);
        reverse(bytes, 16);
    }
}

static void test_f80(void **state)
{
    (void)state;
    f80_decodes_to(UINT64_C(1) << 63, 0x3fff, 1, 1);
    f80_decodes_to(UINT64_C(5) << 61, 0xc000, -2.5, -2.5f);
    f80_decodes_to(0xc90fdaa22168c235, 0x4000, 3.141592653589793, 3.14159274f);
    f80_decodes_to(0, 0, 0, 0);
    f80_decodes_to(0, 0x8000, -0.0, -0.0f);
    f80_decodes_to(UINT64_C(1) << 63, 0x7fff, INFINITY, INFINITY);
    f80_decodes_to(UINT64_C(1) << 63, 0xffff, -INFINITY, -INFINITY);
    f80_decodes_to(UINT64_C(3) << 62, 0x7fff, (double)NAN, NAN);
    f80_decodes_to(UINT64_C(1) << 63, 0x7ffe, INFINITY, INFINITY); /* 2^16383 */
    f80_decodes_to(UINT64_C(1) << 63, 1, 0, 0);
    f80_decodes_to(1, 0, 0, 0);
    /* Just above half way between two floats, by less than a double shows: 1 + 2^-24 + 2^-63 */
    f80_decodes_to((UINT64_C(1) << 63) + (UINT64_C(1) << 39) + 1, 0x3fff, 1 + 0x1p-24, 1 + 0x1p-23f);
#if LDBL_MANT_DIG == 64
    for (int i = 0; i < 20000; i++) { /* this machine has the type: its own conversions */
        uint8_t bytes[16];
        long double value = 0;
        uint64_t mantissa = dice() | UINT64_C(1) << 63;
        unsigned top = (unsigned)(16383 - 160 + dice() % 320) | (dice() & 1 ? 0x8000u : 0);
        put_f80(bytes, mantissa, top);
        memcpy(&value, bytes, 10);
        f80_decodes_to(mantissa, top, (double)value, (float)value);
    }
#endif
}

static void test_complex(void **state)
{
    uint8_t bytes[32];
    double numbers[4];
    float floats[4];
    (void)state;
    memcpy(bytes, "\x00\x3c\x00\xc0\x00\x7c\x00\x38", 8); /* 1 - 2i, inf + 0.5i */
    ts_type_decode_f64(TS_C32, false, bytes, 2, numbers);
    ts_type_decode_f32(TS_C32, false, bytes, 2, floats);
    assert_true(numbers[0] == 1 && numbers[1] == -2 && isinf(numbers[2]) && numbers[3] == 0.5);
    assert_true(floats[0] == 1 && floats[1] == -2 && isinf(floats[2]) && floats[3] == 0.5f);
    memcpy(bytes, "\x3f\x80\x00\x00\xc0\x00\x00\x00", 8); /* each part is turned by itself */
    ts_type_decode_f64(TS_C64, true, bytes, 1, numbers);
    assert_true(numbers[0] == 1 && numbers[1] == -2);
    memcpy(bytes, "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\xc0", 16);
    ts_type_decode_f64(TS_C128, false, bytes, 1, numbers);
    assert_true(numbers[0] == 1 && numbers[1] == -2);
    ts_type_decode_f32(TS_C128, false, bytes, 1, floats);
    assert_true(floats[0] == 1 && floats[1] == -2);
}

static void test_six_and_four_bits(void **state)
{
    static const double fours[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6}; /* and their negatives */
    double values[64];
    float floats[64];
    uint8_t bytes[48];
    (void)state;
    for (unsigned i = 0; i < 16; i++) { /* codes 4 i, 4 i + 1, ... in three bytes each, the first in the low bits */
        uint32_t word = (4 * i) | (4 * i + 1) << 6 | (4 * i + 2) << 12 | (4 * i + 3) << 18;
        bytes[3 * i] = (uint8_t)word;
        bytes[3 * i + 1] = (uint8_t)(word >> 8);
        bytes[3 * i + 2] = (uint8_t)(word >> 16);
    }
    ts_type_decode_f64(TS_F6_E2M3, false, bytes, 64, values);
    ts_type_decode_f32(TS_F6_E2M3, false, bytes, 64, floats);
    for (unsigned code = 0; code < 64; code++) {
        same(values[code], from_parts(code, 2, 3, 1), code);
        same((double)floats[code], from_parts(code, 2, 3, 1), code);
    }
    assert_true(values[31] == 7.5 && values[1] == 0.125 && values[63] == -7.5);
    ts_type_decode_f64(TS_F6_E3M2, false, bytes, 64, values);
    for (unsigned code = 0; code < 64; code++)
        same(values[code], from_parts(code, 3, 2, 3), code);
    assert_true(values[31] == 28 && values[1] == 0.0625);
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(2 * i | (2 * i + 1) << 4);
    ts_type_decode_f64(TS_F4_E2M1, false, bytes, 16, values);
    ts_type_decode_f32(TS_F4_E2M1, false, bytes, 15, floats); /* ends within a byte */
    for (unsigned code = 0; code < 16; code++) {
        same(values[code], code < 8 ? fours[code] : -fours[code - 8], code);
        if (code < 15)
            same((double)floats[code], values[code], code);
    }
}

static void integer_decodes_to(enum ts_type type, uint64_t code, size_t size, int64_t exact, double expected)
{
    uint8_t bytes[8];
    int64_t whole;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(code >> (8 * i));
    ts_type_decode_i64(type, false, bytes, 1, &whole);
    assert_int_equal(whole, exact);
    reverse(bytes, size);
    ts_type_decode_i64(type, true, bytes, 1, &whole);
    assert_int_equal(whole, exact);
    decodes_to(type, code, size, expected);
}

static void test_integers(void **state)
{
    (void)state;
    integer_decodes_to(TS_I64, 0x8000000000000000, 8, INT64_MIN, -0x1p63);
    integer_decodes_to(TS_I64, 0x7fffffffffffffff, 8, INT64_MAX, 0x1p63);
    integer_decodes_to(TS_I64, 0xfffffffffffffffe, 8, -2, -2);
    integer_decodes_to(TS_I64, 0x0020000000000001, 8, 0x20000000000001, 0x1p53); /* 2^53 + 1 */
    integer_decodes_to(TS_U64, 0xffffffffffffffff, 8, -1, 0x1p64);
    integer_decodes_to(TS_U64, 0x8000000000000000, 8, INT64_MIN, 0x1p63);
    integer_decodes_to(TS_I32, 0x80000000, 4, INT32_MIN, -2147483648.0);
    integer_decodes_to(TS_I32, 0xffffffff, 4, -1, -1);
    integer_decodes_to(TS_U32, 0xffffffff, 4, 4294967295, 4294967295.0);
    integer_decodes_to(TS_I16, 0x8000, 2, -32768, -32768);
    integer_decodes_to(TS_U16, 0x8000, 2, 32768, 32768);
    for (unsigned code = 0; code < 256; code++) {
        int value = code < 128 ? (int)code : (int)code - 256;
        integer_decodes_to(TS_I8, code, 1, value, value);
        integer_decodes_to(TS_U8, code, 1, code, code);
        integer_decodes_to(TS_BOOL, code, 1, code != 0, code != 0);
    }
    /* Rounded once, not by way of double: 2^60 + 2^36 + 1 lies just above half way between two floats. */
    {
        const uint64_t number = (UINT64_C(1) << 60) + (UINT64_C(1) << 36) + 1;
        uint8_t bytes[8];
        float value;
        for (int i = 0; i < 8; i++)
            bytes[i] = (uint8_t)(number >> (8 * i));
        ts_type_decode_f32(TS_I64, false, bytes, 1, &value);
        assert_true(value == 0x1p60f + 0x1p37f);
        ts_type_decode_f32(TS_U64, false, bytes, 1, &value);
        assert_true(value == 0x1p60f + 0x1p37f);
    }
}

static void test_packed_integers(void **state)
{
    static const struct {
        enum ts_type type;
        unsigned bits;
        bool is_signed;
    } kinds[] = {{TS_I4, 4, true}, {TS_I2, 2, true}, {TS_U4, 4, false}, {TS_U2, 2, false}, {TS_U1, 1, false}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (unsigned byte = 0; byte < 256; byte++) {
            const uint8_t bytes[] = {(uint8_t)byte, (uint8_t)~byte};
            const unsigned per = 8 / kinds[k].bits, modulus = 1u << kinds[k].bits;
            int64_t whole[16];
            double values[16];
            float floats[16];
            ts_type_decode_i64(kinds[k].type, false, bytes, 2 * per, whole);
            ts_type_decode_f64(kinds[k].type, false, bytes, 2 * per, values);
            ts_type_decode_f32(kinds[k].type, false, bytes, 2 * per, floats);
            for (unsigned i = 0; i < 2 * per; i++) {
                int digit = bytes[i / per]; /* digits to the base of the type, the lowest first */
                for (unsigned j = 0; j < i % per; j++)
                    digit /= (int)modulus;
                digit %= (int)modulus;
                if (kinds[k].is_signed && digit >= (int)modulus / 2)
                    digit -= (int)modulus;
                assert_int_equal(whole[i], digit);
                assert_true(values[i] == digit && floats[i] == (float)digit);
            }
        }
    {
        const uint8_t byte = 0x2f;
        int64_t whole[8];
        ts_type_decode_i64(TS_U4, false, &byte, 2, whole);
        assert_true(whole[0] == 15 && whole[1] == 2);
        ts_type_decode_i64(TS_I4, false, &byte, 2, whole);
        assert_true(whole[0] == -1 && whole[1] == 2);
        ts_type_decode_i64(TS_U1, false, &byte, 8, whole);
        assert_true(whole[0] == 1 && whole[3] == 1 && whole[4] == 0 && whole[5] == 1 && whole[7] == 0);
    }
}

/* Addresses of any kind, and not one byte beyond what is asked for (a sanitizer sees it). */
static void test_unaligned(void **state)
{
    (void)state;
    for (int t = 0; t < TS_TYPE_COUNT; t++) {
        const enum ts_type type = (enum ts_type)t;
        const struct ts_type_info *info = ts_type_info(type);
        const size_t count = (size_t)3 * info->block_elements, numbers = count * info->components;
        const size_t size = (size_t)3 * info->block_bytes;
        uint8_t *plain = malloc(size + 1), *moved = malloc(size + 1);
        float *floats = malloc(2 * numbers * sizeof *floats);
        double *doubles = malloc(2 * numbers * sizeof *doubles);
        if (type == TS_CODED) {
            free(plain), free(moved), free(floats), free(doubles);
            continue;
        }
        assert_true(plain && moved && floats && doubles);
        for (size_t i = 0; i < size; i++)
            plain[i] = moved[i + 1] = (uint8_t)dice();
        ts_type_decode_f32(type, false, plain, count, floats);
        ts_type_decode_f32(type, false, moved + 1, count, floats + numbers);
        assert_memory_equal(floats, floats + numbers, numbers * sizeof *floats);
        ts_type_decode_f64(type, false, plain, count, doubles);
        ts_type_decode_f64(type, false, moved + 1, count, doubles + numbers);
        assert_memory_equal(doubles, doubles + numbers, numbers * sizeof *doubles);
        free(plain), free(moved), free(floats), free(doubles);
    }
}

static void test_blocks(void **state)
{
    (void)state;
    for (int b = 0; b < TS_BLOCK_COUNT; b++) {
        const enum ts_block_type block = (enum ts_block_type)b;
        const enum ts_type type = ts_type_of_block(block);
        const size_t elements = ts_block_infos[b].elements, bytes = ts_block_infos[b].bytes;
        uint8_t src[3 * 512], turned[3 * 512];
        float expected[3 * 256], found[3 * 256];
        double wide[3 * 256];
        assert_true(ts_type_is_block(type));
        assert_string_equal(ts_type_info(type)->name, ts_block_infos[b].name);
        for (size_t i = 0; i < 3 * bytes; i++)
            src[i] = turned[i] = (uint8_t)dice();
        for (size_t i = 0; i < 3; i++)
            ts_block_swap(block, turned + i * bytes);
        ts_decode_blocks(block, src, 3, expected);
        for (size_t count = 1; count <= 3 * elements; count += count < elements ? 13 : 17) { /* ends inside blocks */
            for (int swapped = 0; swapped < 2; swapped++) {
                memset(found, 0x55, sizeof found);
                ts_type_decode_f32(type, swapped, swapped ? turned : src, count, found);
                for (size_t i = 0; i < count; i++)
                    same((double)found[i], (double)expected[i], (unsigned)b);
                if (count < 3 * elements)
                    assert_int_equal(ts_float_bits(found[count]), 0x55555555); /* not written past the end */
                ts_type_decode_f64(type, swapped, swapped ? turned : src, count, wide);
                for (size_t i = 0; i < count; i++)
                    same(wide[i], (double)expected[i], (unsigned)b);
            }
        }
    }
}

/* By hand: d = 0.5 in front of the codes 1, -1, 127, -128, 0, 0 ... */
static void test_block_by_hand(void **state)
{
    uint8_t block[34] = {0x00, 0x38, 1, 0xff, 127, 0x80};
    float values[32];
    (void)state;
    ts_type_decode_f32(ts_type_of_block(TS_BLOCK_Q8_0), false, block, 32, values);
    assert_true(values[0] == 0.5f && values[1] == -0.5f && values[2] == 63.5f && values[3] == -64 && values[4] == 0);
    block[0] = 0x38, block[1] = 0x00;
    ts_type_decode_f32(ts_type_of_block(TS_BLOCK_Q8_0), true, block, 32, values);
    assert_true(values[0] == 0.5f && values[3] == -64);
}

static void test_bytes(void **state)
{
    uint64_t bytes;
    (void)state;
    assert_true(ts_type_bytes(TS_F32, 0, &bytes) && bytes == 0);
    assert_true(ts_type_bytes(TS_F32, 7, &bytes) && bytes == 28);
    assert_true(ts_type_bytes(TS_F80, 2, &bytes) && bytes == 32);
    assert_true(ts_type_bytes(TS_I4, 5, &bytes) && bytes == 3);
    assert_true(ts_type_bytes(TS_U1, 9, &bytes) && bytes == 2);
    assert_true(ts_type_bytes(TS_F6_E2M3, 5, &bytes) && bytes == 6);
    assert_true(ts_type_bytes(TS_C128, 3, &bytes) && bytes == 48);
    assert_true(ts_type_bytes(ts_type_of_block(TS_BLOCK_Q4_K), 256, &bytes) && bytes == 144);
    assert_true(ts_type_bytes(ts_type_of_block(TS_BLOCK_Q4_K), 257, &bytes) && bytes == 288);
    assert_true(ts_type_bytes(TS_CODED, UINT64_MAX, &bytes) && bytes == 0);
    assert_true(ts_type_bytes(TS_U8, UINT64_MAX, &bytes) && bytes == UINT64_MAX);
    assert_true(ts_type_bytes(TS_U1, UINT64_MAX, &bytes) && bytes == UINT64_C(1) << 61);
    assert_false(ts_type_bytes(TS_F32, UINT64_C(1) << 62, &bytes));
    assert_false(ts_type_bytes(TS_F64, UINT64_MAX, &bytes));
}

static void test_infos(void **state)
{
    (void)state;
    for (int t = 0; t < TS_TYPE_COUNT; t++) {
        const struct ts_type_info *info = ts_type_info((enum ts_type)t);
        assert_non_null(info->name);
        assert_in_range(info->block_elements, 1, 256); /* tensor.c decodes one block on its stack */
        assert_in_range(info->components, 1, 2);
        assert_int_equal(info->components == 2, info->kind == TS_CLASS_COMPLEX);
        assert_int_equal(ts_type_is_integer((enum ts_type)t),
                         info->kind == TS_CLASS_INT || info->kind == TS_CLASS_UINT || info->kind == TS_CLASS_BOOL);
        for (int other = 0; other < t; other++)
            assert_string_not_equal(info->name, ts_type_info((enum ts_type)other)->name);
    }
}

/* Sixteen-bit numbers many at a time, at every level: all that there are, and runs of any length from any address. */
static void test_widening(void **state)
{
    static uint8_t bytes[2 * 65536 + 1];
    static float out[65536 + 1];
    const struct ts_widen_kernels *tables[4] = {&ts_widen_kernels_portable};
    size_t levels = 1;
    (void)state;
#if defined(__x86_64__)
    if (ts_simd_level() >= TS_SIMD_AVX2)
        tables[levels++] = &ts_widen_kernels_avx2;
    if (ts_simd_level() >= TS_SIMD_AVX512)
        tables[levels++] = &ts_widen_kernels_avx512;
    if (ts_simd_level() >= TS_SIMD_AVX512BF16)
        tables[levels++] = &ts_widen_kernels_avx512bf16;
#elif defined(__aarch64__)
    if (ts_simd_level() == TS_SIMD_NEON)
        tables[levels++] = &ts_widen_kernels_neon;
#endif
    for (int turn = 0; turn < 60; turn++) {
        uint8_t *from = bytes + turn % 2;
        const size_t count = turn < 2 ? 65536 : (size_t)turn;
        for (size_t i = 0; i < 65536; i++) {
            const uint16_t code = (uint16_t)i;
            memcpy(from + 2 * i, &code, 2);
        }
        for (size_t level = 0; level < levels; level++)
            for (int wide = 0; wide < 2; wide++) { /* bf16, f16 */
                out[count] = 7;
                (wide ? tables[level]->f16 : tables[level]->bf16)(from, count, out);
                for (size_t i = 0; i < count; i++)
                    same((double)out[i], (double)(wide ? ts_f16_to_float((uint16_t)i) : ts_bf16_to_float((uint16_t)i)),
                         (unsigned)i);
                assert_true(out[count] == 7);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f8_e4m3),       cmocka_unit_test(test_f8_e5m2),
        cmocka_unit_test(test_f8_fnuz),       cmocka_unit_test(test_f8_e3m4),
        cmocka_unit_test(test_f8_e8m0),       cmocka_unit_test(test_f16),
        cmocka_unit_test(test_bf16),          cmocka_unit_test(test_widening),
        cmocka_unit_test(test_f32_and_f64),   cmocka_unit_test(test_f80),
        cmocka_unit_test(test_complex),       cmocka_unit_test(test_six_and_four_bits),
        cmocka_unit_test(test_integers),      cmocka_unit_test(test_packed_integers),
        cmocka_unit_test(test_unaligned),     cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_block_by_hand), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_infos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
