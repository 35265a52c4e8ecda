/* Causes that a coarse run hides or makes up: lines that are nothing, signs that look like turns, inputs that are all
 * of a product, candidates that are lost in noise. */
#include "made_trace.h"

enum { TOKENS = 24, WIDTH = 48, TOTAL = TOKENS * WIDTH };

/* Products of coarse weights, so that an error of this size is what the run makes. */
static void add_coarse(struct trace *trace, size_t tokens, double error)
{
    static const char *const names[] = {"layer_0_q_proj", "layer_0_k_proj", "layer_0_v_proj", "layer_0_attn_o_proj"};
    for (int i = 0; i < 4; i++) {
        float *a = made_values(TOTAL), *errors = made_values(TOTAL), b[TOTAL];
        for (size_t k = 0; k < TOTAL; k++)
            b[k] = a[k] + (float)error * errors[k];
        trace_add(trace, names[i], a, b, SHAPE(tokens, WIDTH));
        free(a);
        free(errors);
    }
}

/* One token or one channel of the next product is one number; its error is less than what the run makes of the rest. */
static void diagnose_line(bool token, size_t tokens, float value, const char *summary)
{
    struct trace trace;
    float *a, *errors, b[TOTAL];
    trace_start(&trace);
    add_coarse(&trace, tokens, 0.4);
    a = made_values(TOTAL);
    errors = made_values(TOTAL);
    for (size_t k = 0; k < TOTAL; k++)
        b[k] = (token ? k / WIDTH : k % WIDTH) == 7 ? value : a[k] + 0.4f * errors[k];
    trace_diagnose(&trace, trace_add(&trace, "layer_0_mlp_up_proj", a, b, SHAPE(tokens, WIDTH)));
    assert_first(&trace, "zeros", summary);
    free(a);
    free(errors);
    trace_end(&trace);
}

static void test_lines_that_are_nothing(void **state)
{
    (void)state;
    diagnose_line(true, TOKENS, 0, "zero in token 7");
    diagnose_line(false, TOKENS, 0, "zero in channel 7, in every token");
    diagnose_line(false, 5, 0, "zero in channel 7, in every token");
    diagnose_line(false, TOKENS, 0.25f, "channel 7: one value per channel, the same in every token");
}

/* A token that is zero is told as that, and not as one of those that are off by a factor. */
static void test_a_zero_is_no_factor(void **state)
{
    struct trace trace;
    float *a, *errors, b[TOTAL];
    (void)state;
    trace_start(&trace);
    add_coarse(&trace, TOKENS, 0.03);
    a = made_values(TOTAL);
    errors = made_values(TOTAL);
    for (size_t k = 0; k < TOTAL; k++) {
        size_t token = k / WIDTH;
        b[k] = token == TOKENS - 1 ? 0 : a[k] * (token == 5 || token == 9 ? 1.2F : 1) + 0.03F * errors[k];
    }
    trace_diagnose(&trace, trace_add(&trace, "layer_0_mlp_down_proj", a, b, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "zeros", "zero in token 23");
    if (trace_cause(&trace, "row-scaled"))
        assert_null(strstr(trace_cause(&trace, "row-scaled")->summary, "from 0 "));
    free(a);
    free(errors);
    trace_end(&trace);
}

/* Everything is doubled, and so is the noise of coarse weights, which has a factor of its own for each channel where
 * tokens are alike: one factor says it. */
static void test_one_factor_for_all(void **state)
{
    struct trace trace;
    float *a, *errors, b[TOTAL];
    (void)state;
    trace_start(&trace);
    add_coarse(&trace, TOKENS, 0.03);
    a = made_values(TOTAL);
    errors = made_values(TOTAL);
    for (size_t k = 0; k < TOTAL; k++)
        b[k] = 2 * a[k] * (1 + 0.03f * errors[k % WIDTH] + 0.004f * errors[k]);
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_context", a, b, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "scaled", "which is 2");
    free(a);
    free(errors);
    trace_end(&trace);
}

/* Near zero silu halves what it is given, but a half says it as well. */
static void test_a_half_is_no_function(void **state)
{
    struct trace trace;
    float *a, *errors, b[TOTAL];
    (void)state;
    trace_start(&trace);
    add_coarse(&trace, TOKENS, 0.1);
    a = made_values(TOTAL);
    errors = made_values(TOTAL);
    for (size_t k = 0; k < TOTAL; k++) {
        a[k] *= 0.2f;
        b[k] = 0.5f * (a[k] + 0.02f * errors[k]);
    }
    trace_diagnose(&trace, trace_add(&trace, "logits", a, b, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "scaled", "1/2");
    free(a);
    free(errors);
    trace_end(&trace);
}

/* The first of two heads of the values has the other sign: no rotation, though pairs keep their lengths. */
static void test_a_sign_is_no_turn(void **state)
{
    struct trace trace;
    float *a, b[TOTAL];
    (void)state;
    trace_start(&trace);
    add_coarse(&trace, TOKENS, 1e-3);
    a = made_values(TOTAL);
    shake(a, b, TOTAL, 1e-3);
    for (size_t k = 0; k < TOTAL; k++)
        b[k] = k % WIDTH < WIDTH / 2 ? -b[k] : b[k];
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_v_proj_raw", a, b, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "channels", "channels 0 to 23 of 48 are -");
    free(a);
    trace_end(&trace);
}

/* One channel of what goes in is far larger than the others: it makes nearly all of any product, and of the difference
 * of two. With a weight of its own for the candidate nothing is left out; with a zero in that column something is. */
static void diagnose_column(bool left_out)
{
    struct trace trace;
    float *x, *weights[2], out[2][TOTAL];
    trace_start(&trace);
    x = made_values(TOTAL);
    weights[0] = made_values(WIDTH * WIDTH);
    weights[1] = made_values(WIDTH * WIDTH);
    for (size_t row = 0; row < TOKENS; row++)
        x[row * WIDTH + 5] *= left_out ? 12 : 20;
    if (left_out) {
        memcpy(weights[1], weights[0], WIDTH * WIDTH * sizeof **weights);
        for (size_t o = 0; o < WIDTH; o++)
            weights[1][5 * WIDTH + o] = 0;
    }
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < TOTAL; i++) {
            double sum = 0;
            for (size_t k = 0; k < WIDTH; k++)
                sum += (double)x[i / WIDTH * WIDTH + k] * (double)weights[side][k * WIDTH + i % WIDTH];
            out[side][i] = (float)sum;
        }
    if (!left_out)
        add_coarse(&trace, TOKENS, 0.2);
    trace_add(&trace, "layer_0_attn_context", x, x, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_out", out[0], out[1], SHAPE(TOKENS, WIDTH)));
    if (left_out)
        assert_first(&trace, "term-missing", "the difference is what channel 5 of layer_0_attn_context contributes");
    for (size_t i = 0; i < trace.diagnosis.count && !left_out; i++)
        assert_string_not_equal(trace.diagnosis.causes[i].id, "term-missing");
    free(x);
    free(weights[0]);
    free(weights[1]);
    trace_end(&trace);
}

static void test_a_column_that_is_all_there_is(void **state)
{
    (void)state;
    diagnose_column(true);
    diagnose_column(false);
}

/* What the candidate holds is smaller than the run's noise and has nothing to do with what is expected: that is no
 * factor, and no other tensor. */
static void test_a_candidate_lost_in_noise(void **state)
{
    struct trace trace;
    float *a, *other, b[TOTAL];
    (void)state;
    trace_start(&trace);
    add_coarse(&trace, TOKENS, 0.4);
    a = made_values(TOTAL);
    other = made_values(TOTAL);
    for (size_t k = 0; k < TOTAL; k++)
        b[k] = 0.03f * a[k] + 0.1f * other[k];
    trace_diagnose(&trace, trace_add(&trace, "layer_0_mlp_down_proj", a, b, SHAPE(TOKENS, WIDTH)));
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        assert_false(strcmp(trace.diagnosis.causes[i].id, "scaled") == 0 ||
                     strcmp(trace.diagnosis.causes[i].id, "skipped-op") == 0 ||
                     strcmp(trace.diagnosis.causes[i].id, "swapped-with") == 0);
    free(a);
    free(other);
    trace_end(&trace);
}

/* Probabilities over three keys, of one head, are no router. */
static void test_attention_is_no_router(void **state)
{
    enum { FEW = 3 };
    struct trace trace;
    float probs[FEW * FEW] = {1, 0, 0, 0.4f, 0.6f, 0, 0.2f, 0.3f, 0.5f}, *x, *near_x, *a, *b;
    (void)state;
    trace_start(&trace);
    x = made_values(FEW * WIDTH);
    near_x = made_values(FEW * WIDTH);
    a = made_values(FEW * WIDTH);
    b = made_values(FEW * WIDTH);
    shake(x, near_x, FEW * WIDTH, 1e-4);
    trace_add(&trace, "layer_0_norm", x, near_x, SHAPE(FEW, WIDTH));
    trace_add(&trace, "layer_0_attn_scores", probs, probs, SHAPE(FEW, 1, FEW));
    trace_add(&trace, "layer_0_attn_probs", probs, probs, SHAPE(FEW, 1, FEW));
    trace_add(&trace, "layer_0_attn_residual", x, near_x, SHAPE(FEW, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_mlp_up_proj", a, b, SHAPE(FEW, WIDTH)));
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        assert_string_not_equal(trace.diagnosis.causes[i].id, "router-gate");
    free(x);
    free(near_x);
    free(a);
    free(b);
    trace_end(&trace);
}

/* One head of the scores has a factor: that is one number, not one for each token. */
static void test_a_factor_of_one_head(void **state)
{
    enum { HEADS = 4, MANY = 48, ALL = MANY * HEADS * MANY };
    struct trace trace;
    float *q, *a, *b = malloc(ALL * sizeof *b);
    (void)state;
    assert_non_null(b);
    trace_start(&trace);
    q = made_values(MANY * WIDTH);
    a = made_values(ALL);
    for (size_t k = 0; k < ALL; k++)
        b[k] = a[k] * (k / MANY % HEADS == 2 ? 1.5f : 1);
    trace_add(&trace, "layer_0_attn_q", q, q, SHAPE(MANY, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_scores", a, b, SHAPE(MANY, HEADS, MANY)));
    assert_first(&trace, "heads", "head 2 is 1.5 times what it should be");
    free(q);
    free(a);
    free(b);
    trace_end(&trace);
}

/* Tokens that are much alike, and a candidate that has much the same in all of them but for what they differ by: they
 * match each other in any order, and nothing was moved. */
static void test_tokens_that_are_alike_do_not_move(void **state)
{
    struct trace trace;
    float *common, *own, *other, a[TOTAL], b[TOTAL];
    (void)state;
    trace_start(&trace);
    add_coarse(&trace, TOKENS, 0.05);
    common = made_values(WIDTH);
    own = made_values(TOTAL);
    other = made_values(TOTAL);
    for (size_t k = 0; k < TOTAL; k++) {
        const size_t token = k / WIDTH, near = (token + token * 7 % 11 + 3) % TOKENS;
        a[k] = 2 * common[k % WIDTH] + own[k];
        b[k] = 2 * common[k % WIDTH] + 0.6f * own[near * WIDTH + k % WIDTH] + 0.3f * other[k];
    }
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_out", a, b, SHAPE(TOKENS, WIDTH)));
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        assert_string_not_equal(trace.diagnosis.causes[i].id, "permuted");
    free(common);
    free(own);
    free(other);
    trace_end(&trace);
}

/* Other weights, whose result is half as large: in the noise of such a run it is near what any reading of bits gives
 * that makes small numbers of all. */
static void test_noise_is_no_other_type(void **state)
{
    struct trace trace;
    float *a, *b;
    (void)state;
    trace_start(&trace);
    add_coarse(&trace, 7, 0.3);
    a = made_values(TOTAL);
    b = made_values(TOTAL);
    for (size_t k = 0; k < TOTAL; k++)
        b[k] *= 0.5f;
    trace_diagnose(&trace, trace_add(&trace, "layer_0_mlp_up_proj", a, b, SHAPE(7, WIDTH)));
    assert_null(trace_cause(&trace, "dtype-confusion"));
    free(a);
    free(b);
    trace_end(&trace);
}

/* Weights of a router that are all but alike, without their factor: one number is no border. */
static void test_one_number_is_no_clamp(void **state)
{
    struct trace trace;
    float a[2 * TOKENS], b[2 * TOKENS];
    (void)state;
    trace_start(&trace);
    add_coarse(&trace, TOKENS, 0.02);
    for (size_t k = 0; k < 2 * TOKENS; k++) {
        a[k] = 1.25f + (k % 2 ? -0.02f : 0.02f) * (float)(k % 7);
        b[k] = to_bf16(0.4f * a[k]);
    }
    trace_diagnose(&trace, trace_add(&trace, "layer_0_router_weights", a, b, SHAPE(TOKENS, 2)));
    assert_null(trace_cause(&trace, "clamped"));
    assert_first(&trace, "scaled", "every element is");
    trace_end(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_that_are_nothing),    cmocka_unit_test(test_a_zero_is_no_factor),
        cmocka_unit_test(test_one_factor_for_all),        cmocka_unit_test(test_a_half_is_no_function),
        cmocka_unit_test(test_a_sign_is_no_turn),         cmocka_unit_test(test_a_column_that_is_all_there_is),
        cmocka_unit_test(test_a_candidate_lost_in_noise), cmocka_unit_test(test_attention_is_no_router),
        cmocka_unit_test(test_a_factor_of_one_head),      cmocka_unit_test(test_tokens_that_are_alike_do_not_move),
        cmocka_unit_test(test_noise_is_no_other_type),    cmocka_unit_test(test_one_number_is_no_clamp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
