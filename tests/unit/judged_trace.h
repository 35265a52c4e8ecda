/* Traces made in memory and judged, for tests of the judge. */
#ifndef TS_TEST_JUDGED_TRACE_H
#define TS_TEST_JUDGED_TRACE_H

#include "compare/judge.h"
#include "made_trace.h"

struct judged {
    struct trace trace;
    struct ts_judgement judgement;
};

static void expect_same_text(const char *one, const char *other)
{
    assert_string_equal(one ? one : "", other ? other : "");
}

/* Threads change nothing. */
static void expect_same_judgement(const struct ts_judgement *one, const struct ts_judgement *other)
{
    assert_int_equal(one->first, other->first);
    assert_int_equal(one->aside_count, other->aside_count);
    for (size_t i = 0; i < one->count; i++) {
        const struct ts_verdict *a = &one->verdicts[i], *b = &other->verdicts[i];
        assert_int_equal(a->judged, b->judged);
        assert_memory_equal(&a->noise_ratio, &b->noise_ratio, sizeof a->noise_ratio);
        expect_same_text(a->operation, b->operation);
        expect_same_text(a->why, b->why);
    }
}

__attribute__((unused)) static void judged_run(struct judged *judged)
{
    struct ts_delta_options options = {0};
    struct ts_judgement by_threads;
    struct ts_pool *pool = ts_pool_new(4);
    struct ts_error error;
    ts_error_clear(&error);
    assert_non_null(pool);
    if (ts_delta_run(pool, judged->trace.pairs, judged->trace.count, &options, judged->trace.deltas, NULL, &error) !=
            TS_OK ||
        ts_judge_run(judged->trace.pairs, judged->trace.deltas, judged->trace.count, NULL, &judged->judgement,
                     &error) != TS_OK ||
        ts_judge_run(judged->trace.pairs, judged->trace.deltas, judged->trace.count, pool, &by_threads, &error) !=
            TS_OK)
        fail_msg("%s", error.message);
    expect_same_judgement(&judged->judgement, &by_threads);
    ts_judgement_release(&by_threads);
    ts_pool_free(pool);
}

__attribute__((unused)) static void judged_end(struct judged *judged)
{
    ts_judgement_release(&judged->judgement);
    trace_end(&judged->trace);
}

/* Judges and ends it: the first divergence must be this pair, or none (SIZE_MAX). */
__attribute__((unused)) static void expect_first(struct judged *judged, size_t expected)
{
    const struct ts_judgement *judgement = &judged->judgement;
    judged_run(judged);
    if (judgement->first != expected) {
        for (size_t i = 0; i < judgement->count; i++)
            print_message("# %s: %d, ratio %g, %s; %s\n", judged->trace.pairs[i].name,
                          (int)judgement->verdicts[i].judged, judgement->verdicts[i].noise_ratio,
                          judgement->verdicts[i].operation ? judgement->verdicts[i].operation : "not learnt",
                          judgement->verdicts[i].why ? judgement->verdicts[i].why : "");
        fail_msg("the first divergence is %zd, not %zd", (ssize_t)judgement->first, (ssize_t)expected);
    }
    judged_end(judged);
}

/* Adds an error of this size, relative to all numbers, that has no direction. */
__attribute__((unused)) static void err(const float *a, float *b, size_t count, double error)
{
    double square = 0;
    for (size_t i = 0; i < count; i++)
        square += (double)a[i] * (double)a[i];
    for (size_t i = 0; i < count; i++)
        b[i] = (float)((double)a[i] + error * sqrt(3 * square / (double)count) * dice_number());
}

/* (x - mean) / deviation, row by row. */
__attribute__((unused)) static void normalize(const float *x, size_t rows, size_t width, float *to)
{
    for (size_t row = 0; row < rows; row++, x += width, to += width) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < width; i++)
            mean += (double)x[i] / (double)width;
        for (size_t i = 0; i < width; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)width;
        for (size_t i = 0; i < width; i++)
            to[i] = (float)(((double)x[i] - mean) / sqrt(square + 1e-6));
    }
}

/* out = x . weight, [rows, in] and [in, out]. */
__attribute__((unused)) static void matmul(const float *x, const float *weight, size_t rows, size_t in, size_t out,
                                           float *to)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < out; column++) {
            double sum = 0;
            for (size_t i = 0; i < in; i++)
                sum += (double)x[row * in + i] * (double)weight[i * out + column];
            to[row * out + column] = (float)(sum / sqrt((double)in));
        }
}

__attribute__((unused)) static void round_all(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = to_bf16(values[i]);
}

/* To four significant bits, as e4m3 keeps them. */
__attribute__((unused)) static float to_four_bits(double value)
{
    int exponent;
    double mantissa = frexp(value, &exponent);
    return (float)ldexp(nearbyint(mantissa * 16) / 16, exponent);
}

#endif
