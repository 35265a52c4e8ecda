/* Experts that are chosen by scores and biases which nobody captured: what the choices say about the biases, and what
 * the judge makes of choices that a candidate's own logits explain, or do not. */
#include "compare/router_bias.h"
#include "judged_trace.h"

enum { TOKENS = 60, EXPERTS = 16, CHOSEN = 3 };

/* As the router has it: the largest sums of score and bias, in falling order. */
static void choose(const float *logits, const double *biases, enum ts_router_scores scores, int64_t *chosen)
{
    double sums[EXPERTS], all = 0;
    for (size_t i = 0; i < EXPERTS; i++)
        all += exp((double)logits[i]);
    for (size_t i = 0; i < EXPERTS; i++) {
        const double logit = (double)logits[i];
        sums[i] = biases[i] + (scores == TS_ROUTER_SIGMOID   ? 1 / (1 + exp(-logit))
                               : scores == TS_ROUTER_SOFTMAX ? exp(logit) / all
                                                             : logit);
    }
    for (size_t k = 0; k < CHOSEN; k++) {
        size_t best = 0;
        for (size_t i = 1; i < EXPERTS; i++)
            best = sums[i] > sums[best] ? i : best;
        chosen[k] = (int64_t)best;
        sums[best] = -INFINITY;
    }
}

static void draw_biases(double *biases, double size)
{
    for (size_t i = 0; i < EXPERTS; i++)
        biases[i] = size * dice_number();
}

static void test_bounds_of_biases(void **state)
{
    static const double sizes[] = {0.2, 0.05, 1};
    (void)state;
    for (int scores = 0; scores < TS_ROUTER_SCORES; scores++) {
        struct ts_router_bias bias;
        const double none[EXPERTS] = {0};
        double biases[EXPERTS];
        float *logits = made_values(2 * TOKENS * EXPERTS);
        int64_t chosen[CHOSEN];
        size_t refused = 0;
        draw_biases(biases, sizes[scores]);
        assert_true(ts_router_bias_open(&bias, EXPERTS, (enum ts_router_scores)scores));
        for (size_t token = 0; token < TOKENS; token++) {
            choose(logits + token * EXPERTS, biases, (enum ts_router_scores)scores, chosen);
            ts_router_bias_hear(&bias, logits + token * EXPERTS, 23, chosen, CHOSEN);
        }
        assert_true(ts_router_bias_settle(&bias));
        for (size_t one = 0; one < EXPERTS; one++)
            for (size_t other = 0; other < EXPERTS; other++)
                assert_true(biases[one] - biases[other] <= (double)bias.most[one * EXPERTS + other] + 1e-4);
        for (size_t token = TOKENS; token < 2 * TOKENS; token++) { /* others than those that were heard */
            choose(logits + token * EXPERTS, biases, (enum ts_router_scores)scores, chosen);
            assert_true(ts_router_bias_allows(&bias, logits + token * EXPERTS, 23, chosen, CHOSEN));
            choose(logits + token * EXPERTS, none, (enum ts_router_scores)scores, chosen);
            refused += !ts_router_bias_allows(&bias, logits + token * EXPERTS, 23, chosen, CHOSEN);
        }
        assert_true(refused > TOKENS / 8);
        ts_router_bias_close(&bias);
        free(logits);
    }
}

/* Three tokens that prefer each the next of three experts, all with the same scores; and what is no choice at all. */
static void test_contradictions(void **state)
{
    static const float even[3] = {0.5f, 0.5f, 0.5f}, nothing[3] = {NAN, 0, 0};
    static const int64_t first[] = {0, 1}, outside[] = {0, 3}, twice[] = {1, 1};
    struct ts_router_bias bias;
    (void)state;
    assert_false(ts_router_bias_open(&bias, TS_MOST_BIASED + 1, TS_ROUTER_SIGMOID));
    ts_router_bias_close(&bias);
    for (int wrong = 0; wrong < 5; wrong++) {
        const float one[3] = {1, 0, wrong ? 0.5f : -1.0f}, other[3] = {0, 1, wrong ? 0.5f : -1.0f};
        assert_true(ts_router_bias_open(&bias, 3, TS_ROUTER_PLAIN));
        ts_router_bias_hear(&bias, one, 23, wrong == 1 ? (int64_t[]){1} : (int64_t[]){0}, 1);
        ts_router_bias_hear(&bias, other, 23, wrong == 1 ? (int64_t[]){0} : (int64_t[]){1}, 1);
        if (wrong == 2)
            ts_router_bias_hear(&bias, even, 23, outside, 2);
        if (wrong == 3)
            ts_router_bias_hear(&bias, even, 23, twice, 2);
        if (wrong == 4)
            ts_router_bias_hear(&bias, nothing, 23, first, 2);
        assert_int_equal(ts_router_bias_settle(&bias), wrong == 0);
        assert_int_equal(ts_router_bias_allows(&bias, one, 23, outside, 2), false);
        ts_router_bias_close(&bias);
    }
}

/* The logits err by `noise`; the candidate has biases of its own where they are not `same`. Logits have much in common,
 * where `common`, so that an error of a few percent is as large as what distinguishes experts: no choice is a near tie
 * then, and most are others. */
static void judge_choices(double noise, bool common, bool same, size_t expected)
{
    struct judged judged;
    double biases[2][EXPERTS];
    float *x = made_values(TOKENS * EXPERTS), *a = made_values(TOKENS * EXPERTS), b[TOKENS * EXPERTS];
    int64_t chosen[2][TOKENS * CHOSEN];
    for (size_t i = 0; i < TOKENS * EXPERTS && common; i++)
        a[i] = 8 + 0.3f * a[i];
    draw_biases(biases[0], common ? 1e-4 : 0.3);
    draw_biases(biases[1], common ? 1e-4 : 0.3);
    err(a, b, TOKENS * EXPERTS, noise);
    for (size_t token = 0; token < TOKENS; token++) {
        choose(a + token * EXPERTS, biases[0], TS_ROUTER_SIGMOID, chosen[0] + token * CHOSEN);
        choose(b + token * EXPERTS, biases[same ? 0 : 1], TS_ROUTER_SIGMOID, chosen[1] + token * CHOSEN);
    }
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0.input", x, x, SHAPE(TOKENS, EXPERTS));
    trace_add(&judged.trace, "layers.0.router_logits", a, b, SHAPE(TOKENS, EXPERTS));
    trace_add_integers(&judged.trace, "layers.0.router_indices", chosen[0], chosen[1], TOKENS, CHOSEN);
    expect_first(&judged, expected);
    free(x);
    free(a);
}

static void test_choices_with_a_bias(void **state)
{
    (void)state;
    judge_choices(1e-3, false, true, SIZE_MAX);
    judge_choices(0.03, true, true, SIZE_MAX);
    judge_choices(1e-3, false, false, 2);
    judge_choices(0.03, true, false, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_of_biases),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_choices_with_a_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
