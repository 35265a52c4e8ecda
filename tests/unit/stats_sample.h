/* For tests of statistics: small tensors made from bytes, and what plain loops in long double say about their values.
 */
#ifndef TS_TEST_STATS_SAMPLE_H
#define TS_TEST_STATS_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/stats.h"

static struct ts_pool *alone, *team;

static inline int make_pools(void **state)
{
    (void)state;
    alone = ts_pool_new(1);
    team = ts_pool_new(4);
    return alone && team ? 0 : -1;
}

static inline int free_pools(void **state)
{
    (void)state;
    ts_pool_free(alone);
    ts_pool_free(team);
    return 0;
}

/* Values of the sixteen-bit floats from their definition. */
static inline double value_of_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
        return mantissa ? (double)NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

static inline double value_of_bf16(uint16_t bits)
{
    int exponent = bits >> 7 & 255, mantissa = bits & 127;
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == 255)
        return mantissa ? (double)NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(128 + mantissa, exponent - 134) : ldexp(mantissa, -133));
}

/* The nearest sixteen-bit float, by search in what grows with the bits. */
static inline uint16_t nearest(double (*value_of)(uint16_t), double value)
{
    double size = fabs(value);
    unsigned low = 0, high = value_of == value_of_f16 ? 0x7bff : 0x7f7f;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (value_of((uint16_t)middle) <= size)
            low = middle;
        else
            high = middle;
    }
    if (value_of((uint16_t)high) - size < size - value_of((uint16_t)low))
        low = high;
    return (uint16_t)(low | (value < 0 ? 0x8000u : 0));
}

struct sample {
    struct ts_source *source;
    struct ts_tensor tensor;
    uint64_t shape[4];
    int64_t strides[4];
};

static inline void make_view(struct sample *sample, enum ts_type type, const void *bytes, size_t size, uint64_t offset,
                             unsigned rank, const uint64_t *shape, const int64_t *strides)
{
    struct ts_error error;
    *sample = (struct sample){.tensor = {.name = "sample", .type = type, .rank = rank, .offset = offset}};
    assert_int_equal(ts_source_copy(bytes, size, "sample", &sample->source, &error), TS_OK);
    memcpy(sample->shape, shape, rank * sizeof *shape);
    sample->tensor.shape = sample->shape;
    sample->tensor.source = sample->source;
    if (strides) {
        memcpy(sample->strides, strides, rank * sizeof *strides);
        sample->tensor.strides = sample->strides;
    }
    if (ts_tensor_finish(&sample->tensor, &error) != TS_OK)
        fail_msg("%s", error.message);
}

static inline void make_flat(struct sample *sample, enum ts_type type, const void *bytes, size_t size, uint64_t count)
{
    make_view(sample, type, bytes, size, 0, 1, &count, NULL);
}

static inline struct ts_stats stats_of(struct ts_tensor *tensor)
{
    struct ts_stats first, second;
    struct ts_error error;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    assert_int_equal(ts_stats_run(alone, &tensor, 1, &first, NULL, &error), TS_OK);
    assert_int_equal(ts_stats_run(team, &tensor, 1, &second, NULL, &error), TS_OK);
    assert_memory_equal(&first, &second, sizeof first); /* to the last bit, however many threads */
    return first;
}

static inline void assert_near(double found, long double expected, long double tolerance, const char *what)
{
    if (!(fabsl((long double)found - expected) <= tolerance + (long double)DBL_TRUE_MIN))
        fail_msg("%s is %.17g, expected %.17Lg within %.3Lg", what, found, expected, tolerance);
}

/* All of it against plain loops. `per` numbers make one element. */
static inline void check(struct sample *sample, const double *values, size_t count, unsigned per)
{
    struct ts_stats found = stats_of(&sample->tensor), expected = {.count = count};
    long double sum = 0, squares = 0, deviation = 0, mean, std, rms;
    double least = INFINITY, most = -INFINITY;
    expected.first_nan = expected.first_inf = expected.at_min = expected.at_max = TS_NOWHERE;
    for (size_t i = 0; i < count; i++) {
        if (isnan(values[i])) {
            if (expected.nan++ == 0)
                expected.first_nan = i / per;
        } else if (isinf(values[i])) {
            if (expected.positive_inf + expected.negative_inf == 0)
                expected.first_inf = i / per;
            expected.positive_inf += values[i] > 0;
            expected.negative_inf += values[i] < 0;
        } else {
            expected.finite++;
            expected.zeros += values[i] == 0;
            sum += values[i];
            squares += (long double)values[i] * values[i];
            if (values[i] < least) {
                least = values[i];
                expected.at_min = i / per;
            }
            if (values[i] > most) {
                most = values[i];
                expected.at_max = i / per;
            }
        }
    }
    assert_int_equal(found.count, expected.count);
    assert_int_equal(found.finite, expected.finite);
    assert_int_equal(found.nan, expected.nan);
    assert_int_equal(found.positive_inf, expected.positive_inf);
    assert_int_equal(found.negative_inf, expected.negative_inf);
    assert_int_equal(found.zeros, expected.zeros);
    assert_int_equal(found.first_nan, expected.first_nan);
    assert_int_equal(found.first_inf, expected.first_inf);
    assert_int_equal(found.at_min, expected.at_min);
    assert_int_equal(found.at_max, expected.at_max);
    if (!expected.finite) {
        assert_true(isnan(found.min) && isnan(found.max) && isnan(found.mean) && isnan(found.std));
        assert_true(found.norm == 0);
        return;
    }
    mean = sum / (long double)expected.finite;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            deviation += (values[i] - mean) * (values[i] - mean);
    std = sqrtl(deviation / (long double)expected.finite);
    rms = sqrtl(squares / (long double)expected.finite);
    assert_true(found.min == least && found.max == most);
    assert_false(signbit(found.min) && found.min == 0);
    assert_false(signbit(found.max) && found.max == 0);
    assert_near(found.mean, mean, 1e-7L * rms, "mean");
    if (least == most)
        assert_true(found.std == 0 && found.mean == least); /* what is constant must look constant */
    else
        assert_near(found.std, std, 1e-6L * std, "std");
    assert_near(found.norm, sqrtl(squares), 1e-6L * sqrtl(squares), "norm");
}

#endif
