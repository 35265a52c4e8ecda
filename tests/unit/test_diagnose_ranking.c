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

/* Half as much again, and something on top that no factor explains and that makes a share of the error's energy. */
static void half_as_much_again(struct trace *trace, double share, uint64_t seed)
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
        b[i] = (float)(1.5 * (double)a[i] + factor * (double)e[i]);
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
            half_as_much_again(&trace, shares[s], seed);
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
        half_as_much_again(&trace, 0.35, seed);
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
        half_as_much_again(&trace, 0, seed);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confidence_is_a_share),
        cmocka_unit_test(test_a_claim_must_hold),
        cmocka_unit_test(test_freedom_must_pay),
        cmocka_unit_test(test_ties_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
