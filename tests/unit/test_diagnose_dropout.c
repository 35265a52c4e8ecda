/* Dropout that is on in the candidate: of a tensor, of what is added to the stream, under noise; and zeros that are
 * none. */
#include "made_trace.h"

enum { TOKENS = 24, WIDTH = 48, TOTAL = TOKENS * WIDTH };

/* A share of the numbers becomes zero, the others grow by `factor`. */
static void drop(float *values, double share, double factor)
{
    for (size_t i = 0; i < TOTAL; i++)
        values[i] = (dice_number() + 1) / 2 < share ? 0 : (float)(factor * (double)values[i]);
}

/* Explains one tensor, with nothing before it, and finds no dropout. */
static void assert_none(const char *name, const float *a, const float *b)
{
    struct trace trace;
    trace_start(&trace);
    trace_diagnose(&trace, trace_add(&trace, name, a, b, SHAPE(TOKENS, WIDTH)));
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        assert_null(strstr(trace.diagnosis.causes[i].summary, "dropout"));
    trace_end(&trace);
}

static void diagnose(double share, double factor, double noise, bool lone)
{
    struct trace trace;
    float *a, b[TOTAL];
    trace_start(&trace);
    a = made_values(TOTAL);
    shake(a, b, TOTAL, noise);
    if (!lone)
        trace_add(&trace, "layer_0_attn_o_proj", a, b, SHAPE(TOKENS, WIDTH));
    drop(b, share, factor);
    trace_diagnose(&trace, trace_add(&trace, "layer_0_mlp_up_proj", a, b, SHAPE(TOKENS, WIDTH)));
    if (factor != 1) {
        char words[64];
        snprintf(words, sizeof words, "dropout is on, with p = %.1g", share);
        assert_first(&trace, "zeros", words);
    }
    for (size_t i = 0; i < trace.diagnosis.count && factor == 1; i++)
        assert_null(strstr(trace.diagnosis.causes[i].summary, "dropout"));
    free(a);
    trace_end(&trace);
}

static void test_of_a_tensor(void **state)
{
    (void)state;
    for (int lone = 0; lone < 2; lone++) {
        diagnose(0.1, 1 / 0.9, 1e-7, lone);
        diagnose(0.5, 2, 1e-7, lone);
        diagnose(0.1, 1 / 0.9, 4e-3, lone);
    }
}

static void test_zeros_without_a_factor(void **state)
{
    (void)state;
    diagnose(0.1, 1, 1e-7, false);
    diagnose(0.5, 1, 1e-7, true);
}

/* The branch was captured before it, the sum behind it. */
static void test_of_a_branch(void **state)
{
    struct trace trace;
    float *x, *y, sums[2][TOTAL], dropped[TOTAL];
    (void)state;
    trace_start(&trace);
    x = made_values(TOTAL);
    y = made_values(TOTAL);
    memcpy(dropped, y, sizeof dropped);
    drop(dropped, 0.2, 1.25);
    for (size_t i = 0; i < TOTAL; i++) {
        sums[0][i] = x[i] + y[i];
        sums[1][i] = x[i] + dropped[i];
    }
    trace_add(&trace, "layer_0_input", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "layer_0_attn_o_proj", y, y, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_residual_output", sums[0], sums[1], SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "zeros", "dropout is on, with p = 0.2");
    free(x);
    free(y);
    trace_end(&trace);
}

/* One token of 24 is zero, and all others are larger: as much is missing on average as there is too much. */
static void test_a_line_is_none(void **state)
{
    float *a = made_values(TOTAL), b[TOTAL];
    (void)state;
    for (size_t i = 0; i < TOTAL; i++)
        b[i] = i / WIDTH == 5 ? 0 : a[i] * 24 / 23;
    assert_none("layer_0_mlp_up_proj", a, b);
    free(a);
}

/* Half of the numbers are zero, and the others are what they should be. */
static void test_relu_is_none(void **state)
{
    float *a = made_values(TOTAL), b[TOTAL];
    (void)state;
    for (size_t i = 0; i < TOTAL; i++)
        b[i] = a[i] > 0 ? a[i] : 0;
    assert_none("layer_0_mlp_act", a, b);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_a_tensor),  cmocka_unit_test(test_zeros_without_a_factor),
        cmocka_unit_test(test_of_a_branch),  cmocka_unit_test(test_a_line_is_none),
        cmocka_unit_test(test_relu_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
