/* What goes wrong inside of experts is not told as other weights of theirs: weights differ from token to token, and
 * what is wrong inside does not follow them. */
#include "made_trace.h"
#include "unwritten.h"

enum { TOKENS = 24, WIDTH = 48, INNER = 32, EXPERTS = 16, CHOSEN = 2, TOTAL = TOKENS * WIDTH };

enum fault { NOTHING, EXCHANGED, NO_FUNCTION, MEAN, BACKWARDS };

/* One expert: down(silu(gate x) * up x), or what a fault makes of it. */
static void add_expert(const float *x, const float *const weights[3], enum fault fault, double weight, double *out)
{
    double middle[INNER];
    for (size_t i = 0; i < INNER; i++) {
        double gate = 0, up = 0;
        for (size_t k = 0; k < WIDTH; k++) {
            gate += (double)x[k] * (double)weights[0][i * WIDTH + k] / sqrt(WIDTH);
            up += (double)x[k] * (double)weights[1][i * WIDTH + k] / sqrt(WIDTH);
        }
        middle[i] = fault == EXCHANGED     ? up / (1 + exp(-up)) * gate
                    : fault == NO_FUNCTION ? gate * up
                                           : gate / (1 + exp(-gate)) * up;
    }
    for (size_t k = 0; k < WIDTH; k++)
        for (size_t i = 0; i < INNER; i++)
            out[k] += weight * middle[i] * (double)weights[2][k * INNER + i] / sqrt(INNER);
}

/* The summaries, one after the other; good until the next call. */
static const char *said_of(enum fault fault)
{
    static char text[4096];
    struct trace trace;
    float *x, *logits, *experts[3], out[2][TOTAL], gates[TOKENS * CHOSEN];
    size_t index;
    trace_start(&trace);
    x = made_values(TOTAL);
    logits = made_values(TOKENS * EXPERTS);
    for (int i = 0; i < 3; i++)
        experts[i] = made_values(EXPERTS * INNER * WIDTH);
    for (size_t row = 0; row < TOKENS; row++) {
        const float *of = logits + row * EXPERTS;
        size_t chosen[CHOSEN] = {of[1] > of[0], of[1] <= of[0]};
        double sum = 0, weights[CHOSEN];
        for (size_t e = CHOSEN; e < EXPERTS; e++)
            if (of[e] > of[chosen[0]]) {
                chosen[1] = chosen[0];
                chosen[0] = e;
            } else if (of[e] > of[chosen[1]]) {
                chosen[1] = e;
            }
        for (size_t k = 0; k < CHOSEN; k++)
            sum += weights[k] = exp((double)logits[row * EXPERTS + chosen[k]]);
        for (size_t k = 0; k < CHOSEN; k++)
            gates[row * CHOSEN + k] = (float)(weights[k] / sum);
        for (int side = 0; side < 2; side++) {
            double values[WIDTH] = {0};
            for (size_t k = 0; k < CHOSEN; k++) {
                const size_t from = chosen[k] * INNER * WIDTH;
                const float *const own[3] = {experts[0] + from, experts[1] + from, experts[2] + from};
                const double weight = side && fault == MEAN        ? 1.0 / CHOSEN
                                      : side && fault == BACKWARDS ? weights[CHOSEN - 1 - k] / sum
                                                                   : weights[k] / sum;
                add_expert(x + row * WIDTH, own, side ? fault : NOTHING, weight, values);
            }
            for (size_t i = 0; i < WIDTH; i++)
                out[side][row * WIDTH + i] = (float)values[i];
        }
    }
    trace_add(&trace, "layers.0.mlp_norm_output", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "layers.0.router_logits", logits, logits, SHAPE(TOKENS, EXPERTS));
    trace_add(&trace, "layers.0.router_weights", gates, gates, SHAPE(TOKENS, CHOSEN));
    index = trace_add(&trace, "layers.0.experts_output", out[0], out[1], SHAPE(TOKENS, WIDTH));
    trace_diagnose(&trace, index);
    *text = '\0';
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", trace.diagnosis.causes[i].summary);
    trace_end(&trace);
    free(x);
    free(logits);
    for (int i = 0; i < 3; i++)
        free(experts[i]);
    return text;
}

static void expect_said(enum fault fault, const char *words, bool expected)
{
    const char *said = said_of(fault);
    if ((strstr(said, words) != NULL) != expected)
        fail_msg("\"%s\" %s said: %s", words, expected ? "is not" : "is", said);
}

static void test_what_is_wrong_inside_of_experts(void **state)
{
    (void)state;
    expect_said(EXCHANGED, "the rows look", false);
    expect_said(NO_FUNCTION, "the rows look", false);
}

static void test_experts_that_are_weighed_otherwise(void **state)
{
    (void)state;
    expect_said(MEAN, "a plain mean of the chosen experts", true);
    expect_said(BACKWARDS, "went to the wrong one of the chosen experts", true);
}

/* A long sequence with a shared expert in the sum: what is left without it is looked at, in every row. */
static void test_beside_a_shared_expert(void **state)
{
    enum { LONG = 1200 };
    const size_t total = (size_t)LONG * WIDTH;
    struct trace trace;
    float *logits, *shared, *gates, *experts, *out[2];
    size_t index;
    (void)state;
    fill_unwritten(true);
    trace_start(&trace);
    logits = made_values((size_t)LONG * EXPERTS);
    shared = made_values(total);
    gates = made_values((size_t)LONG * CHOSEN);
    experts = made_values(total * CHOSEN);
    out[0] = made_values(total);
    out[1] = made_values(total);
    for (size_t row = 0; row < LONG; row++) {
        float *of = logits + row * EXPERTS, *gate = gates + row * CHOSEN;
        of[row % EXPERTS] = 5 + (float)dice_number();
        of[(row + 3) % EXPERTS] = 3 + (float)dice_number();
        gate[0] = 1 / (1 + expf(of[(row + 3) % EXPERTS] - of[row % EXPERTS]));
        gate[1] = 1 - gate[0];
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            out[0][i] = gate[0] * experts[CHOSEN * i] + gate[1] * experts[CHOSEN * i + 1] + shared[i];
            out[1][i] = gate[1] * experts[CHOSEN * i] + gate[0] * experts[CHOSEN * i + 1] + shared[i];
        }
    }
    trace_add(&trace, "layers.0.router_logits", logits, logits, SHAPE(LONG, EXPERTS));
    trace_add(&trace, "layers.0.router_weights", gates, gates, SHAPE(LONG, CHOSEN));
    trace_add(&trace, "layers.0.shared_expert_output", shared, shared, SHAPE(LONG, WIDTH));
    index = trace_add(&trace, "layers.0.moe_output", out[0], out[1], SHAPE(LONG, WIDTH));
    trace_diagnose(&trace, index);
    assert_first(&trace, "router-gate", "went to the wrong one of the chosen experts");
    assert_non_null(strstr(trace.diagnosis.causes[0].summary, "all 1200 tokens"));
    trace_end(&trace);
    free(logits);
    free(shared);
    free(gates);
    free(experts);
    free(out[0]);
    free(out[1]);
    fill_unwritten(false);
}

/* Experts are chosen by scores and biases that nobody captured: in one token two are as good as tied that way, whose
 * scores are far apart. */
static void test_tied_with_biases(void **state)
{
    enum { MANY = 48, TIED = 20 };
    struct trace trace;
    float *logits[2], gates[2][MANY * CHOSEN], bias[EXPERTS];
    int64_t chosen[2][MANY * CHOSEN];
    (void)state;
    trace_start(&trace);
    logits[0] = made_values(MANY * EXPERTS);
    logits[1] = made_values(MANY * EXPERTS);
    for (size_t e = 0; e < EXPERTS; e++)
        bias[e] = (float)(0.25 * (double)(e % 5));
    for (size_t e = 0; e < EXPERTS; e++)
        logits[0][TIED * EXPERTS + e] = e == 2 ? 3 : -5;
    logits[0][TIED * EXPERTS + 1] = (float)log(0.95 / 0.05); /* 0.95 + 0.25 */
    logits[0][TIED * EXPERTS + 4] = (float)log(0.2 / 0.8);   /* 0.2 + 1 */
    shake(logits[0], logits[1], MANY * EXPERTS, 1e-4);
    logits[1][TIED * EXPERTS + 1] += 0.002f;
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < MANY; row++) {
            double sum = 0, weight[CHOSEN], score[EXPERTS];
            for (size_t e = 0; e < EXPERTS; e++)
                score[e] = 1 / (1 + exp(-(double)logits[side][row * EXPERTS + e]));
            for (size_t k = 0; k < CHOSEN; k++) {
                size_t best = SIZE_MAX;
                for (size_t e = 0; e < EXPERTS; e++)
                    if (!(k && chosen[side][row * CHOSEN] == (int64_t)e) &&
                        (best == SIZE_MAX || score[e] + (double)bias[e] > score[best] + (double)bias[best]))
                        best = e;
                chosen[side][row * CHOSEN + k] = (int64_t)best;
                sum += weight[k] = score[best];
            }
            for (size_t k = 0; k < CHOSEN; k++)
                gates[side][row * CHOSEN + k] = (float)(weight[k] / sum);
        }
    assert_int_equal(chosen[0][TIED * CHOSEN + 1], 4);
    assert_int_equal(chosen[1][TIED * CHOSEN + 1], 1);
    trace_add(&trace, "layers.0.router_logits", logits[0], logits[1], SHAPE(MANY, EXPERTS));
    trace_add_integers(&trace, "layers.0.router_indices", chosen[0], chosen[1], MANY, CHOSEN);
    trace_diagnose(&trace, trace_add(&trace, "layers.0.router_weights", gates[0], gates[1], SHAPE(MANY, CHOSEN)));
    assert_null(trace_cause(&trace, "router-gate"));
    trace_end(&trace);
    free(logits[0]);
    free(logits[1]);
}

/* The order in which experts gather tokens holds tokens: it is as long as the chosen experts of all of them, and is no
 * choice. */
static void test_the_order_of_gathering_is_no_choice(void **state)
{
    enum { MANY = 24, GATHERED = MANY * CHOSEN };
    struct trace trace;
    float *logits, *shaken;
    int64_t order[2][GATHERED];
    (void)state;
    trace_start(&trace);
    logits = made_values(MANY * EXPERTS);
    shaken = made_values(MANY * EXPERTS);
    shake(logits, shaken, MANY * EXPERTS, 1e-4);
    for (size_t k = 0; k < GATHERED; k++) {
        order[0][k] = (int64_t)(5 * k % MANY);
        order[1][k] = (int64_t)(7 * k % MANY);
    }
    trace_add(&trace, "layers.0.mlp.router", logits, shaken, SHAPE(MANY, EXPERTS));
    trace_add_integers(&trace, "layers.0.mlp.experts.order", order[0], order[1], GATHERED, 1);
    trace_diagnose(&trace, trace.count - 1);
    assert_null(trace_cause(&trace, "router-gate"));
    assert_null(trace_cause(&trace, "routing"));
    trace_end(&trace);
    free(logits);
    free(shaken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_wrong_inside_of_experts),
        cmocka_unit_test(test_experts_that_are_weighed_otherwise),
        cmocka_unit_test(test_beside_a_shared_expert),
        cmocka_unit_test(test_tied_with_biases),
        cmocka_unit_test(test_the_order_of_gathering_is_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
