/* What a confidence means, which of several causes comes first, and what is a tie. */
#include "made_trace.h"

enum { TOKENS = 16, HIDDEN = 48, TOTAL = TOKENS * HIDDEN };

static void look(struct trace *trace, const float *a, const float *b)
{
    float *before = made_values(TOTAL);
    trace_add(trace, "x", before, before, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(trace, trace_add(trace, "y", a, b, SHAPE(TOKENS, HIDDEN)));
    free(before);
}

/* What has a number of its own. */
enum parts { ALL, ROWS, CHANNELS, UNEVEN_ROWS };

static double factor_of(enum parts parts, size_t i)
{
    bool odd = (parts == CHANNELS ? i % HIDDEN : i / HIDDEN) % 2;
    return parts == ALL ? 1 : parts == UNEVEN_ROWS ? (odd ? 0.4 : 1.6) : odd ? -1 : 1;
}

/* Half as much again, or half as much in every second part, and something on top that no factor explains and that makes
 * a share of the error's energy. */
static void half_as_much_again(struct trace *trace, enum parts parts, double share, uint64_t seed)
{
    double error = 0, noise = 0, factor;
    float *a, *e, b[TOTAL];
    trace_start(trace);
    dice_state = seed;
    a = made_values(TOTAL);
    e = made_values(TOTAL);
    for (size_t i = 0; i < TOTAL; i++) {
        error += 0.25 * (double)a[i] * (double)a[i];
        noise += (double)e[i] * (double)e[i];
    }
    factor = sqrt(error / noise * share / (1 - share));
    for (size_t i = 0; i < TOTAL; i++)
        b[i] = (float)((1 + 0.5 * factor_of(parts, i)) * (double)a[i] + factor * (double)e[i]);
    look(trace, a, b);
    free(a);
    free(e);
}

static void test_confidence_is_a_share(void **state)
{
    static const double shares[] = {0, 0.01, 0.03, 0.06};
    (void)state;
    for (size_t s = 0; s < sizeof shares / sizeof *shares; s++)
        for (uint64_t seed = 1; seed < 4; seed++) {
            struct trace trace;
            const struct ts_cause *cause;
            half_as_much_again(&trace, ALL, shares[s], seed);
            cause = trace_cause(&trace, "scaled");
            assert_non_null(cause);
            assert_true(fabs(cause->confidence - (1 - shares[s])) < 0.01);
            assert_true(cause->proof.predicted && cause->proof.fitted == 1);
            assert_true(fabs(cause->proof.explained - (1 - shares[s])) < 0.01);
            assert_true(fabs(cause->proof.left * cause->proof.left -
                             shares[s] * cause->proof.error * cause->proof.error) < 0.01 * cause->proof.error);
            trace_end(&trace);
        }
}

/* In a clean run what leaves a third of the error is no factor. */
static void test_a_claim_must_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        struct trace trace;
        half_as_much_again(&trace, ALL, 0.35, seed);
        assert_null(trace_cause(&trace, "scaled"));
        trace_end(&trace);
    }
}

/* A factor for each row or channel, or an offset as well, fits a single factor at least as closely. */
static void test_freedom_must_pay(void **state)
{
    static const char *const shadows[] = {"affine", "channel-scaled", "row-scaled", "offset", "heads"};
    (void)state;
    for (uint64_t seed = 1; seed < 6; seed++) {
        struct trace trace;
        half_as_much_again(&trace, ALL, 0, seed);
        assert_first(&trace, "scaled", "1.5 times");
        for (size_t i = 0; i < sizeof shadows / sizeof *shadows; i++)
            assert_null(trace_cause(&trace, shadows[i]));
        assert_false(trace.diagnosis.causes[0].tied);
        trace_end(&trace);
    }
}

/* Where all numbers are the same, twice as much and one more cannot be told apart: said as a tie. */
static void test_ties_are_said(void **state)
{
    struct trace trace;
    float a[TOTAL], b[TOTAL];
    const struct ts_cause *scaled, *offset;
    (void)state;
    trace_start(&trace);
    for (size_t i = 0; i < TOTAL; i++) {
        a[i] = 1;
        b[i] = 2;
    }
    look(&trace, a, b);
    scaled = trace_cause(&trace, "scaled");
    offset = trace_cause(&trace, "offset");
    assert_non_null(scaled);
    assert_non_null(offset);
    assert_true(scaled->tied && offset->tied);
    assert_true(trace.diagnosis.causes[0].tied);
    trace_end(&trace);
}

/* A run in bf16 whose error is some roundings large: a factor for each row, or one for all, and as much again (times
 * `rest`, in energy) that follows nothing. */
static void in_noise(struct trace *trace, enum parts parts, double rest, uint64_t seed)
{
    double made = 0, other = 0;
    float *before, *a, *e, b[TOTAL], x[TOTAL];
    trace_start(trace);
    dice_state = seed;
    before = made_values(TOTAL);
    a = made_values(TOTAL);
    e = made_values(TOTAL);
    for (size_t i = 0; i < TOTAL; i++) {
        double factor = 0.01 * factor_of(parts, i);
        x[i] = to_bf16(before[i]);
        b[i] = (float)(factor * (double)a[i]);
        made += (double)b[i] * (double)b[i];
        other += (double)e[i] * (double)e[i];
    }
    for (size_t i = 0; i < TOTAL; i++)
        b[i] = to_bf16((float)((double)a[i] + (double)b[i] + sqrt(rest * made / other) * (double)e[i]));
    trace_add(trace, "x", before, x, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(trace, trace_add(trace, "y", a, b, SHAPE(TOKENS, HIDDEN)));
    free(before);
    free(a);
    free(e);
}

/* Sixteen numbers, one for each row, must leave less than one number for all; forty-eight no less than that. */
static void test_more_freedom_must_explain_more(void **state)
{
    static const struct {
        enum parts parts;
        bool noisy;
        double rest;
        const char *id;
        bool said;
    } rows[] = {
        {ALL, false, 0.06, "scaled", true},
        {ROWS, false, 0.03, "row-scaled", true},
        {ROWS, false, 0.06, "row-scaled", false},
        {CHANNELS, false, 0.01, "channel-scaled", true},
        {CHANNELS, false, 0.06, "channel-scaled", false},
        {ALL, true, 0.9, "scaled", true},
        {ROWS, true, 0.4, "row-scaled", true},
        {ROWS, true, 0.9, "row-scaled", false},
        {CHANNELS, true, 0.1, "channel-scaled", true},
        {CHANNELS, true, 0.9, "channel-scaled", false},
    };
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (uint64_t seed = 1; seed < 6; seed++) {
            struct trace trace;
            (rows[r].noisy ? in_noise : half_as_much_again)(&trace, rows[r].parts, rows[r].rest, seed);
            if (rows[r].said)
                assert_first(&trace, rows[r].id, NULL);
            else
                assert_null(trace_cause(&trace, rows[r].id));
            trace_end(&trace);
        }
}

/* More numbers follow noise more closely, by chance, and that is no reason to say them beside one that does it. */
static void test_chance_is_no_explanation(void **state)
{
    (void)state;
    for (double rest = 0.1; rest < 0.65; rest += 0.1)
        for (uint64_t seed = 1; seed < 4; seed++) {
            struct trace trace;
            in_noise(&trace, ALL, rest, seed);
            assert_first(&trace, "scaled", NULL);
            assert_int_equal(trace.diagnosis.count, 1);
            trace_end(&trace);
        }
}

/* Rows that differ a little: one factor explains most of it, a factor for each row all. Both are said, and no tie. */
static void test_no_tie_where_one_explains_more(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        struct trace trace;
        in_noise(&trace, UNEVEN_ROWS, 0.25, seed);
        assert_first(&trace, "row-scaled", NULL);
        assert_non_null(trace_cause(&trace, "scaled"));
        for (size_t i = 0; i < trace.diagnosis.count; i++)
            assert_false(trace.diagnosis.causes[i].tied);
        trace_end(&trace);
    }
}

/* relu leaves what is above zero as it was: that is told as relu, not as a step that is missing. */
static void test_relu_is_a_step(void **state)
{
    enum { UNITS = 80, NUMBERS = TOKENS * UNITS };
    struct trace trace;
    float *up, a[NUMBERS], b[NUMBERS];
    (void)state;
    trace_start(&trace);
    up = made_values(NUMBERS);
    for (size_t i = 0; i < NUMBERS; i++) {
        b[i] = up[i] > 0 ? up[i] : 0;
        a[i] = b[i] * b[i];
    }
    trace_add(&trace, "model.layers.0.mlp.up_proj", up, up, SHAPE(TOKENS, UNITS));
    trace_diagnose(&trace, trace_add(&trace, "model.layers.0.mlp.act_fn", a, b, SHAPE(TOKENS, UNITS)));
    assert_first(&trace, "activation", "relu(");
    assert_null(trace_cause(&trace, "skipped-op"));
    free(up);
    trace_end(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confidence_is_a_share),
        cmocka_unit_test(test_a_claim_must_hold),
        cmocka_unit_test(test_freedom_must_pay),
        cmocka_unit_test(test_ties_are_said),
        cmocka_unit_test(test_more_freedom_must_explain_more),
        cmocka_unit_test(test_chance_is_no_explanation),
        cmocka_unit_test(test_no_tie_where_one_explains_more),
        cmocka_unit_test(test_relu_is_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
