/* Statistics of all that is not an ordinary run of floats: integers, complex numbers, quantized blocks, views, codecs.
 */
#include "stats_sample.h"

#include <time.h>

#include "base/number.h"
#include "dice.h"

static void test_integers(void **state)
{
    int64_t whole[4000];
    double values[4000];
    struct sample sample;
    struct ts_stats stats;
    (void)state;
    for (size_t i = 0; i < 4000; i++)
        values[i] = (double)(whole[i] = (int64_t)dice());
    whole[3999] = INT64_MIN, whole[1500] = INT64_MAX, whole[1499] = INT64_MAX - 1, whole[0] = 0;
    values[3999] = -0x1p63, values[1500] = 0x1p63, values[1499] = 0x1p63, values[0] = 0;
    make_flat(&sample, TS_I64, whole, sizeof whole, 4000);
    stats = stats_of(&sample.tensor);
    assert_int_equal(stats.exact_min, INT64_MIN);
    assert_int_equal(stats.exact_max, INT64_MAX);
    check(&sample, values, 4000, 1);
    ts_source_release(sample.source);

    for (size_t i = 0; i < 4000; i++)
        values[i] = (double)(uint64_t)whole[i]; /* the same bits without a sign */
    whole[7] = -1;                              /* 2^64 - 1 */
    values[7] = 0x1p64;
    make_flat(&sample, TS_U64, whole, sizeof whole, 4000);
    stats = stats_of(&sample.tensor);
    assert_true((uint64_t)stats.exact_max == UINT64_MAX);
    assert_true(stats.exact_min == 0);
    assert_true(stats.max == 0x1p64);
    check(&sample, values, 4000, 1);
    ts_source_release(sample.source);

    for (size_t i = 0; i < 4000; i++) /* only above 2^63: as signed numbers all negative */
        values[i] = (double)(uint64_t)(whole[i] = (int64_t)((UINT64_C(1) << 63) + (i << 40)));
    make_flat(&sample, TS_U64, whole, sizeof whole, 4000);
    stats = stats_of(&sample.tensor);
    assert_true((uint64_t)stats.exact_min == UINT64_C(1) << 63);
    assert_true((uint64_t)stats.exact_max == (UINT64_C(1) << 63) + (UINT64_C(3999) << 40));
    check(&sample, values, 4000, 1);
    ts_source_release(sample.source);

    for (size_t i = 0; i < 1000; i++) /* so close together that even the mean's rounding is large beside the spread */
        values[i] = (double)(uint64_t)(whole[i] = (int64_t)((UINT64_C(1) << 63) + (i << 11)));
    make_flat(&sample, TS_U64, whole, 1000 * sizeof *whole, 1000);
    check(&sample, values, 1000, 1);
    ts_source_release(sample.source);
}

static void test_small_integers(void **state)
{
    static const struct {
        enum ts_type type;
        unsigned bits;
        bool is_signed;
    } kinds[] = {{TS_I32, 32, true}, {TS_I16, 16, true},  {TS_I8, 8, true},    {TS_I4, 4, true},
                 {TS_I2, 2, true},   {TS_U32, 32, false}, {TS_U16, 16, false}, {TS_U8, 8, false},
                 {TS_U4, 4, false},  {TS_U2, 2, false},   {TS_U1, 1, false}};
    const size_t count = 5000; /* 1000 is no multiple of 1024, 5000 is one of 8 */
    uint8_t bytes[5000 * 4];
    double values[5000];
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct sample sample;
        struct ts_stats stats;
        double least = INFINITY, most = -INFINITY;
        memset(bytes, 0, sizeof bytes);
        for (size_t i = 0; i < count; i++) {
            uint64_t bits = dice() >> (64 - kinds[k].bits);
            for (unsigned b = 0; b < kinds[k].bits; b++)
                if (bits >> b & 1)
                    bytes[(i * kinds[k].bits + b) / 8] |= (uint8_t)(1u << ((i * kinds[k].bits + b) % 8));
            values[i] = (double)bits;
            if (kinds[k].is_signed && bits >> (kinds[k].bits - 1))
                values[i] -= ldexp(1, (int)kinds[k].bits);
            least = fmin(least, values[i]);
            most = fmax(most, values[i]);
        }
        make_flat(&sample, kinds[k].type, bytes, count * kinds[k].bits / 8, count);
        stats = stats_of(&sample.tensor);
        assert_true((double)stats.exact_min == least && (double)stats.exact_max == most);
        check(&sample, values, count, 1);
        ts_source_release(sample.source);
    }
}

static void test_bool(void **state)
{
    const uint8_t bytes[] = {0, 1, 255, 0, 2, 0, 0, 0};
    const double values[] = {0, 1, 1, 0, 1, 0, 0, 0};
    struct sample sample;
    (void)state;
    make_flat(&sample, TS_BOOL, bytes, 8, 8);
    check(&sample, values, 8, 1);
    ts_source_release(sample.source);
}

static void test_complex(void **state)
{
    const size_t count = 3000;
    float *parts = malloc(2 * count * sizeof *parts);
    double *values = malloc(2 * count * sizeof *values);
    struct sample sample;
    (void)state;
    assert_non_null(parts);
    assert_non_null(values);
    for (size_t i = 0; i < 2 * count; i++)
        values[i] = (double)(parts[i] = (float)dice_number());
    values[2 * 1700 + 1] = (double)(parts[2 * 1700 + 1] = NAN); /* element 1700: its imaginary part */
    values[2 * 2000] = (double)(parts[2 * 2000] = -INFINITY);
    values[2 * 2999 + 1] = (double)(parts[2 * 2999 + 1] = -7);
    make_flat(&sample, TS_C64, parts, 2 * count * sizeof *parts, count);
    check(&sample, values, 2 * count, 2);
    ts_source_release(sample.source);
    make_flat(&sample, TS_C128, values, 2 * count * sizeof *values, count);
    check(&sample, values, 2 * count, 2);
    ts_source_release(sample.source);
    free(parts);
    free(values);
}

static void test_small_floats(void **state)
{
    uint8_t bytes[20000];
    double values[20000];
    struct sample sample;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) { /* e5m2 is the upper half of f16 */
        bytes[i] = (uint8_t)dice();
        values[i] = value_of_f16((uint16_t)(bytes[i] << 8));
    }
    make_flat(&sample, TS_F8_E5M2, bytes, sizeof bytes, sizeof bytes);
    check(&sample, values, sizeof bytes, 1);
    ts_source_release(sample.source);
    for (size_t i = 0; i < sizeof bytes; i++) { /* powers of two, with NaN and, at 2^127, far from the rest */
        bytes[i] = (uint8_t)(i % 100 ? 100 + dice() % 40 : 254 + i / 100 % 2);
        values[i] = bytes[i] == 255 ? (double)NAN : ldexp(1, bytes[i] - 127);
    }
    make_flat(&sample, TS_F8_E8M0, bytes, sizeof bytes, sizeof bytes);
    check(&sample, values, sizeof bytes, 1);
    ts_source_release(sample.source);
}

static void test_quantized_blocks(void **state)
{
    const size_t blocks = 1000; /* of 32 elements: a factor in f16 and 32 signed bytes */
    uint8_t *bytes = malloc(blocks * 34);
    double *values = malloc(blocks * 32 * sizeof *values);
    struct sample sample;
    const uint64_t shape[] = {10, 3200};
    (void)state;
    assert_non_null(bytes);
    assert_non_null(values);
    for (size_t b = 0; b < blocks; b++) {
        uint16_t factor = nearest(value_of_f16, dice_number());
        memcpy(bytes + b * 34, &factor, 2);
        for (size_t i = 0; i < 32; i++) {
            int8_t code = (int8_t)dice();
            memcpy(bytes + b * 34 + 2 + i, &code, 1);
            values[b * 32 + i] = value_of_f16(factor) * code; /* exact in f32: 11 and 8 bits */
        }
    }
    make_view(&sample, ts_type_of_block(TS_BLOCK_Q8_0), bytes, blocks * 34, 0, 2, shape, NULL);
    check(&sample, values, blocks * 32, 1);
    ts_source_release(sample.source);
    memcpy(bytes + 20 * 34, "\x00\x7e", 2); /* a factor that is NaN takes its block with it */
    for (size_t i = 0; i < 32; i++)
        values[20 * 32 + i] = (double)NAN;
    make_view(&sample, ts_type_of_block(TS_BLOCK_Q8_0), bytes, blocks * 34, 0, 2, shape, NULL);
    check(&sample, values, blocks * 32, 1);
    ts_source_release(sample.source);
    free(bytes);
    free(values);
}

static void test_views(void **state)
{
    enum { ROWS = 70, COLUMNS = 300 };
    static float stored[ROWS * COLUMNS];
    static double values[ROWS * COLUMNS];
    struct sample sample;
    (void)state;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        stored[i] = (float)dice_number();
    stored[5 * COLUMNS + 7] = NAN;
    stored[60 * COLUMNS + 1] = INFINITY;

    for (size_t i = 0; i < ROWS * COLUMNS; i++) /* transposed */
        values[i] = (double)stored[i % ROWS * COLUMNS + i / ROWS];
    make_view(&sample, TS_F32, stored, sizeof stored, 0, 2, (uint64_t[]){COLUMNS, ROWS}, (int64_t[]){1, COLUMNS});
    check(&sample, values, ROWS * COLUMNS, 1);
    ts_source_release(sample.source);

    for (size_t i = 0; i < ROWS * COLUMNS; i++) /* backwards */
        values[i] = (double)stored[ROWS * COLUMNS - 1 - i];
    make_view(&sample, TS_F32, stored, sizeof stored, sizeof stored - 4, 1, (uint64_t[]){ROWS * COLUMNS},
              (int64_t[]){-1});
    check(&sample, values, ROWS * COLUMNS, 1);
    ts_source_release(sample.source);

    for (size_t i = 0; i < 20 * 100; i++) /* a part, every third column */
        values[i] = (double)stored[(i / 100 + 50) * COLUMNS + i % 100 * 3];
    make_view(&sample, TS_F32, stored, sizeof stored, 50 * COLUMNS * 4, 2, (uint64_t[]){20, 100},
              (int64_t[]){COLUMNS, 3});
    check(&sample, values, 20 * 100, 1);
    ts_source_release(sample.source);
}

/* A view that repeats its data may claim any number of elements. */
static void test_expanded(void **state)
{
    const float stored[] = {3, -1, NAN, 0, INFINITY, 3};
    const uint64_t times = UINT64_C(1) << 40;
    struct sample sample;
    struct ts_stats stats;
    struct timespec start, end;
    uint64_t counts[4], sampled;
    struct ts_error error;
    (void)state;
    /* [2, 2^40, 3]: element [i, j, k] is stored[3 i + k] */
    make_view(&sample, TS_F32, stored, sizeof stored, 0, 3, (uint64_t[]){2, times, 3}, (int64_t[]){3, 0, 1});
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    stats = stats_of(&sample.tensor);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    assert_true(end.tv_sec - start.tv_sec <= 10);
    assert_int_equal(stats.count, 6 * times);
    assert_int_equal(stats.finite, 4 * times);
    assert_int_equal(stats.nan, times);
    assert_int_equal(stats.positive_inf, times);
    assert_int_equal(stats.negative_inf, 0);
    assert_int_equal(stats.zeros, times);
    assert_int_equal(stats.first_nan, 2);
    assert_int_equal(stats.first_inf, 3 * times + 1);
    assert_true(stats.min == -1 && stats.max == 3);
    assert_int_equal(stats.at_min, 1);
    assert_int_equal(stats.at_max, 0);
    assert_near(stats.mean, 1.25L, 1e-15L, "mean");
    assert_near(stats.std, sqrtl(3.1875L), 1e-15L, "std");
    assert_near(stats.norm, sqrtl(19) * 0x1p20L, 1e-8L, "norm");
    assert_int_equal(ts_stats_histogram(&sample.tensor, &stats, 4, counts, &sampled, &error), TS_OK);
    assert_true(sampled <= 65536);
    ts_source_release(sample.source);

    /* one number, 2^62 times */
    make_view(&sample, TS_F32, stored, 4, 0, 2, (uint64_t[]){UINT64_C(1) << 31, UINT64_C(1) << 31}, (int64_t[]){0, 0});
    stats = stats_of(&sample.tensor);
    assert_int_equal(stats.finite, UINT64_C(1) << 62);
    assert_true(stats.mean == 3 && stats.std == 0);
    assert_near(stats.norm, 3 * 0x1p31L, 0, "norm");
    ts_source_release(sample.source);
}

static void test_empty(void **state)
{
    static const enum ts_type types[] = {TS_F32, TS_BF16, TS_I64, TS_BOOL, TS_C64, TS_F64};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct sample sample;
        make_view(&sample, types[i], "", 0, 0, 2, (uint64_t[]){0, 4}, NULL);
        check(&sample, NULL, 0, 1);
        ts_source_release(sample.source);
    }
}

static void test_swapped(void **state)
{
    uint8_t bytes[4 * 100];
    double values[100];
    struct sample sample;
    (void)state;
    for (size_t i = 0; i < 100; i++) {
        float number = (float)dice_number();
        uint32_t bits = __builtin_bswap32(ts_float_bits(number));
        memcpy(bytes + 4 * i, &bits, 4);
        values[i] = (double)number;
    }
    make_flat(&sample, TS_F32, bytes, sizeof bytes, 100);
    sample.tensor.swapped = true;
    check(&sample, values, 100, 1);
    ts_source_release(sample.source);
}

static enum ts_status read_half(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                                struct ts_error *error)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(first + i) / 2;
    if (first + count > 10000)
        return ts_fail(error, TS_ERR_FORMAT, 5, "scale is missing");
    (void)tensor;
    return TS_OK;
}

static void test_coded(void **state)
{
    static const struct ts_codec codec = {.name = "half", .read_f32 = read_half};
    double values[10000];
    uint64_t shape = 10000;
    struct ts_tensor part = {.bytes = 10}, *parts = &part;
    struct sample sample = {0};
    struct ts_tensor *tensor = &sample.tensor;
    struct ts_stats stats;
    struct ts_error error;
    (void)state;
    for (size_t i = 0; i < 10000; i++)
        values[i] = (double)i / 2;
    *tensor = (struct ts_tensor){.name = "w", .type = TS_CODED, .rank = 1, .shape = &shape};
    tensor->codec = &codec;
    tensor->parts = &parts;
    tensor->part_count = 1;
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    check(&sample, values, 10000, 1);
    shape = 10001; /* a codec that fails on the way */
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    assert_int_equal(ts_stats_run(team, &tensor, 1, &stats, NULL, &error), TS_ERR_FORMAT);
    assert_string_equal(error.message, "scale is missing");
    assert_string_equal(error.tensor, "w");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers), cmocka_unit_test(test_small_integers), cmocka_unit_test(test_bool),
        cmocka_unit_test(test_complex),  cmocka_unit_test(test_small_floats),   cmocka_unit_test(test_quantized_blocks),
        cmocka_unit_test(test_views),    cmocka_unit_test(test_expanded),       cmocka_unit_test(test_empty),
        cmocka_unit_test(test_swapped),  cmocka_unit_test(test_coded),
    };
    return cmocka_run_group_tests(tests, make_pools, free_pools);
}
