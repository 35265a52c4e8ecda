/* Statistics of ordinary floats against torch's (tests/golden/compare) and against plain loops over values that the
 * tests make themselves; histograms. Other types and views are in test_stats_types.c. */
#include "stats_sample.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "dice.h"
#include "read/open.h"

#define PIECE ((size_t)1 << 20) /* where stats.c cuts tensors */

/* The types with kernels, and f64 without: count values given as doubles that the type holds or nearly holds. */
static void check_floats(enum ts_type type, double *values, size_t count)
{
    const size_t size = ts_type_info(type)->block_bytes;
    uint8_t *bytes = malloc(count * size + 1);
    struct sample sample;
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++) {
        float as_float = (float)values[i];
        uint16_t half;
        if (type == TS_F64) {
            memcpy(bytes + i * size, &values[i], size);
        } else if (type == TS_F32) {
            values[i] = (double)as_float;
            memcpy(bytes + i * size, &as_float, size);
        } else {
            double (*value_of)(uint16_t) = type == TS_F16 ? value_of_f16 : value_of_bf16;
            half = isnan(values[i])   ? 0x7fff
                   : isinf(values[i]) ? (uint16_t)((type == TS_F16 ? 0x7c00 : 0x7f80) | (values[i] < 0 ? 0x8000 : 0))
                                      : nearest(value_of, values[i]);
            values[i] = value_of(half);
            memcpy(bytes + i * size, &half, size);
        }
    }
    make_flat(&sample, type, bytes, count * size, count);
    check(&sample, values, count, 1);
    ts_source_release(sample.source);
    free(bytes);
}

static const enum ts_type float_types[] = {TS_F32, TS_BF16, TS_F16, TS_F64};

/* Around every boundary there is: groups of 16 and 32, flushes of 512, runs of 8192, pieces of 2^20. */
static void test_counts(void **state)
{
    static const size_t counts[] = {
        1,   2,   3,    15,   16,   17,        31,        32,        33,    511,       512,
        513, 544, 8191, 8192, 8193, 8192 + 32, 16384 + 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 8193};
    double *values = malloc((2 * PIECE + 8193) * sizeof *values);
    (void)state;
    assert_non_null(values);
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int turn = 0; turn < (counts[c] < 20000 ? 4 : 1); turn++) {
                dice_state = t * 100 + c;
                for (size_t i = 0; i < counts[c]; i++)
                    values[i] = dice_number();
                if (turn == 1) /* the extremes at the ends */
                    values[0] = -3, values[counts[c] - 1] = 3;
                if (turn == 2) /* the other way round, twice each */
                    values[0] = values[counts[c] / 2] = 3, values[counts[c] - 1] = values[counts[c] / 3] = -3;
                if (turn == 3)
                    for (size_t i = 0; i < counts[c]; i += 3)
                        values[i] = i % 2 ? 0.0 : -0.0;
                check_floats(float_types[t], values, counts[c]);
            }
    free(values);
}

/* Squares minus the square of the mean would leave nothing but rounding errors here. */
static void test_far_from_zero(void **state)
{
    static const double means[] = {1, 100, -1000, 30000}, spreads[] = {0, 1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.3, 1};
    const size_t count = 30000;
    double *values = malloc(count * sizeof *values);
    (void)state;
    assert_non_null(values);
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++)
        for (size_t m = 0; m < sizeof means / sizeof *means; m++)
            for (size_t s = 0; s < sizeof spreads / sizeof *spreads; s++) {
                for (size_t i = 0; i < count; i++)
                    values[i] = means[m] * (1 + spreads[s] * dice_number());
                check_floats(float_types[t], values, count);
            }
    free(values);
}

static void test_constants(void **state)
{
    static const double constants[] = {0.1, -0.1, 1, 0, -0.0, 1.0 / 3, 12345.678, 1e-6, -65504};
    double *values = malloc((PIECE + 5) * sizeof *values);
    (void)state;
    assert_non_null(values);
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++)
        for (size_t c = 0; c < sizeof constants / sizeof *constants; c++) {
            const size_t count = c == 0 ? PIECE + 5 : 1000 + c;
            for (size_t i = 0; i < count; i++)
                values[i] = constants[c];
            check_floats(float_types[t], values, count);
        }
    free(values);
}

static void test_nan_and_infinity(void **state)
{
    const size_t count = PIECE + 20000;
    double *values = malloc(count * sizeof *values);
    (void)state;
    assert_non_null(values);
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        for (size_t i = 0; i < count; i++)
            values[i] = dice_number();
        values[PIECE + 9000] = (double)NAN; /* first places in different pieces and runs */
        values[PIECE + 17000] = (double)NAN;
        values[12345] = -INFINITY;
        values[PIECE - 1] = INFINITY;
        check_floats(float_types[t], values, count);
        for (size_t i = 0; i < 40; i++) { /* at every place of a group, and in the tail */
            for (size_t k = 0; k < 40; k++)
                values[k] = dice_number();
            values[i] = i % 3 == 0 ? (double)NAN : i % 3 == 1 ? INFINITY : -INFINITY;
            check_floats(float_types[t], values, 40);
        }
        for (size_t i = 0; i < 100; i++)
            values[i] = (double)NAN;
        check_floats(float_types[t], values, 100);
        for (size_t i = 0; i < 100; i++)
            values[i] = i % 2 ? INFINITY : -INFINITY;
        check_floats(float_types[t], values, 100);
        values[77] = 5;
        check_floats(float_types[t], values, 100);
    }
    free(values);
}

static void test_huge_and_tiny(void **state)
{
    double values[1000];
    (void)state;
    for (int exponent = -148; exponent <= 127; exponent += 5) { /* all of f32, subnormals too */
        for (size_t i = 0; i < 1000; i++)
            values[i] = ldexp(dice_number(), exponent);
        check_floats(TS_F32, values, 1000);
    }
    for (int exponent = -132; exponent <= 127; exponent += 5) {
        for (size_t i = 0; i < 1000; i++)
            values[i] = ldexp(dice_number(), exponent);
        check_floats(TS_BF16, values, 1000);
    }
    for (int exponent = -23; exponent <= 16; exponent++) {
        for (size_t i = 0; i < 1000; i++)
            values[i] = ldexp(dice_number(), exponent) * 0.99;
        check_floats(TS_F16, values, 1000);
    }
    for (int exponent = -1074; exponent <= 1023; exponent += 13) {
        if (LDBL_MAX_EXP == DBL_MAX_EXP && abs(exponent) > 400)
            continue; /* where long double is double, the expected squares have no range for more */
        for (size_t i = 0; i < 1000; i++)
            values[i] = ldexp(dice_number(), exponent);
        check_floats(TS_F64, values, 1000);
    }
    for (size_t i = 0; i < 1000; i++)
        values[i] = (double)FLT_MAX;
    check_floats(TS_F32, values, 1000);
    values[500] = -(double)FLT_MAX;
    check_floats(TS_F32, values, 1000);
    for (size_t i = 0; i < 1000; i++) /* very different sizes in one tensor */
        values[i] = ldexp(dice_number(), (int)(dice() % 250) - 125);
    check_floats(TS_F32, values, 1000);
    check_floats(TS_BF16, values, 1000);
}

static void test_norm_does_not_overflow(void **state)
{
    double values[300];
    struct sample sample;
    struct ts_stats stats;
    (void)state;
    for (size_t i = 0; i < 300; i++)
        values[i] = i % 2 ? 1e300 : -1e300;
    make_flat(&sample, TS_F64, values, sizeof values, 300);
    stats = stats_of(&sample.tensor);
    assert_near(stats.norm / 1e300, sqrtl(300), 1e-13L, "norm");
    assert_near(stats.std / 1e300, 1, 1e-13L, "std");
    assert_true(fabs(stats.mean) < 1e285);
    ts_source_release(sample.source);
    for (size_t i = 0; i < 300; i++)
        values[i] = i % 2 ? 1e-300 : -1e-300;
    make_flat(&sample, TS_F64, values, sizeof values, 300);
    stats = stats_of(&sample.tensor);
    assert_near(stats.norm * 1e300, sqrtl(300), 1e-13L, "norm");
    assert_near(stats.std * 1e300, 1, 1e-13L, "std");
    ts_source_release(sample.source);
}

/* More tensors than one batch, of many sizes, some of them empty: every result at its place. */
static void test_many_tensors(void **state)
{
    enum { TENSORS = 9000 };
    static struct ts_tensor tensors[TENSORS];
    static struct ts_tensor *list[TENSORS];
    static struct ts_stats found[TENSORS];
    static uint64_t shapes[TENSORS];
    static float stored[TENSORS + 100];
    struct ts_source *source;
    struct ts_error error;
    struct ts_progress progress = {0};
    uint64_t bytes = 0;
    (void)state;
    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++)
        stored[i] = (float)i;
    assert_int_equal(ts_source_copy(stored, sizeof stored, "many", &source, &error), TS_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        shapes[i] = i % 50;
        tensors[i] = (struct ts_tensor){.name = "t", .type = TS_F32, .rank = 1, .shape = &shapes[i], .offset = 4 * i};
        tensors[i].source = source;
        assert_int_equal(ts_tensor_finish(&tensors[i], &error), TS_OK);
        bytes += tensors[i].bytes;
        list[i] = &tensors[i];
    }
    assert_int_equal(ts_stats_run(team, list, TENSORS, found, &progress, &error), TS_OK);
    assert_int_equal(atomic_load(&progress.done), bytes);
    for (size_t i = 0; i < TENSORS; i++) {
        assert_int_equal(found[i].count, shapes[i]);
        if (shapes[i])
            assert_true(found[i].min == (double)i && found[i].max == (double)(i + shapes[i] - 1));
    }
    assert_int_equal(ts_stats_run(team, NULL, 0, NULL, NULL, &error), TS_OK);
    ts_source_release(source);
}

static void test_cancelled(void **state)
{
    const float one = 1;
    struct sample sample;
    struct ts_tensor *tensor = &sample.tensor;
    struct ts_stats stats;
    struct ts_error error;
    (void)state;
    make_flat(&sample, TS_F32, &one, 4, 1);
    atomic_store(&ts_cancelled, true);
    assert_int_equal(ts_stats_run(team, &tensor, 1, &stats, NULL, &error), TS_ERR_CANCELLED);
    atomic_store(&ts_cancelled, false);
    ts_source_release(sample.source);
}

static void test_histogram(void **state)
{
    static float stored[65536 * 4 + 255];
    const size_t count = sizeof stored / sizeof *stored;
    struct sample sample;
    struct ts_stats stats;
    struct ts_error error;
    uint64_t counts[8], sampled, sum = 0;
    (void)state;
    for (size_t i = 0; i < count; i++)
        stored[i] = (float)(i % 8) + 0.5f;
    stored[0] = 0, stored[7] = 8, stored[9] = NAN, stored[10] = INFINITY;
    make_flat(&sample, TS_F32, stored, 32, 8); /* all of a small one */
    stats = stats_of(&sample.tensor);
    assert_int_equal(ts_stats_histogram(&sample.tensor, &stats, 8, counts, &sampled, &error), TS_OK);
    assert_int_equal(sampled, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(counts[i], 1);
    ts_source_release(sample.source);

    make_flat(&sample, TS_F32, stored, sizeof stored, count); /* a sample of a large one */
    stats = stats_of(&sample.tensor);
    assert_int_equal(ts_stats_histogram(&sample.tensor, &stats, 8, counts, &sampled, &error), TS_OK);
    assert_in_range(sampled, 60000, 65536);
    for (int i = 0; i < 8; i++) {
        sum += counts[i];
        assert_in_range(counts[i], sampled / 8 - 40, sampled / 8 + 40);
    }
    assert_int_equal(sum, sampled - 2); /* what is not finite is in no bin */
    ts_source_release(sample.source);

    {
        const double ends[] = {-DBL_MAX, DBL_MAX, 0, -1e308}; /* their distance is no double */
        make_flat(&sample, TS_F64, ends, sizeof ends, 4);
        stats = stats_of(&sample.tensor);
        assert_int_equal(ts_stats_histogram(&sample.tensor, &stats, 2, counts, &sampled, &error), TS_OK);
        assert_int_equal(counts[0], 2);
        assert_int_equal(counts[1], 2);
        ts_source_release(sample.source);
    }
}

static void test_coordinates(void **state)
{
    uint64_t shape[] = {4, 1, 5, 3}, at[4];
    const struct ts_tensor tensor = {.rank = 4, .shape = shape}, scalar = {.rank = 0};
    (void)state;
    ts_flat_to_coordinates(&tensor, 2 * 15 + 4 * 3 + 1, at);
    assert_true(at[0] == 2 && at[1] == 0 && at[2] == 4 && at[3] == 1);
    ts_flat_to_coordinates(&scalar, 0, at);
    shape[2] = 0; /* no division by the length of an empty axis */
    ts_flat_to_coordinates(&tensor, 0, at);
    assert_true(at[0] == 0 && at[3] == 0);
}

struct golden {
    double mean, std, least, most;
    uint64_t count, nan, infinite;
    bool has_values;
};

static double number_in(struct ts_json *json)
{
    struct ts_error error;
    double value = 0;
    assert_int_equal(ts_json_next(json, &error), TS_OK);
    if (json->kind != TS_JSON_NUMBER)
        fail_msg("a number was expected at byte %zu", json->offset);
    assert_int_equal(ts_json_double(json, &value, &error), TS_OK);
    return value;
}

static struct golden read_golden(struct ts_json *json)
{
    struct golden golden = {0};
    struct ts_error error;
    assert_int_equal(ts_json_expect(json, TS_JSON_OBJECT, "an object", &error), TS_OK);
    for (;;) {
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_OBJECT_END)
            return golden;
        if (ts_json_equals(json, "mean_a"))
            golden.mean = number_in(json), golden.has_values = true;
        else if (ts_json_equals(json, "std_a"))
            golden.std = number_in(json);
        else if (ts_json_equals(json, "min_a"))
            golden.least = number_in(json);
        else if (ts_json_equals(json, "max_a"))
            golden.most = number_in(json);
        else if (ts_json_equals(json, "n"))
            golden.count = (uint64_t)number_in(json);
        else if (ts_json_equals(json, "nan_a"))
            golden.nan = (uint64_t)number_in(json);
        else if (ts_json_equals(json, "inf_a"))
            golden.infinite = (uint64_t)number_in(json);
        else
            assert_int_equal(ts_json_skip_value(json, &error), TS_OK);
    }
}

/* torch's std with correction 0, so that of the population: the integers -8 to 7 have sqrt(255 / 12). */
static void test_golden(void **state)
{
    struct ts_bundle *bundle;
    struct ts_source *source;
    struct ts_error error;
    struct ts_json json;
    const char *name;
    size_t compared = 0;
    (void)state;
    assert_int_equal(ts_open("tests/golden/compare/a.safetensors", NULL, &bundle, &error), TS_OK);
    assert_int_equal(ts_source_open("tests/golden/compare/expected.json", &source, &error), TS_OK);
    ts_json_init(&json, source->data, (size_t)source->size);
    assert_int_equal(ts_json_expect(&json, TS_JSON_OBJECT, "an object", &error), TS_OK);
    for (;;) {
        struct ts_tensor *tensor;
        struct golden golden;
        struct ts_stats stats;
        assert_int_equal(ts_json_next(&json, &error), TS_OK);
        if (json.kind == TS_JSON_OBJECT_END)
            break;
        assert_int_equal(ts_json_copy(&json, &bundle->arena, &name, &error), TS_OK);
        tensor = ts_bundle_tensor(bundle, name);
        assert_non_null(tensor);
        golden = read_golden(&json);
        /* Where only b has a NaN or an infinity, the values of a were taken without that element. */
        if (!golden.has_values || strcmp(name, "nan_in_b") == 0 || strcmp(name, "inf_in_b") == 0)
            continue;
        stats = stats_of(tensor);
        assert_int_equal(stats.count, golden.count);
        assert_int_equal(stats.nan, golden.nan);
        assert_int_equal(stats.positive_inf + stats.negative_inf, golden.infinite);
        assert_true(stats.min == golden.least && stats.max == golden.most);
        assert_near(stats.mean, golden.mean, 1e-6L * fabsl(golden.mean), name);
        assert_near(stats.std, golden.std, 1e-6L * golden.std, name);
        compared++;
    }
    assert_int_equal(compared, 21);
    ts_source_release(source);
    ts_bundle_free(bundle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),        cmocka_unit_test(test_far_from_zero),
        cmocka_unit_test(test_constants),     cmocka_unit_test(test_nan_and_infinity),
        cmocka_unit_test(test_huge_and_tiny), cmocka_unit_test(test_norm_does_not_overflow),
        cmocka_unit_test(test_many_tensors),  cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_histogram),     cmocka_unit_test(test_coordinates),
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, make_pools, free_pools);
}
