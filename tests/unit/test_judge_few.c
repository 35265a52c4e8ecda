/* Tensors of few numbers a token, and of few tokens: what can be seen in them all the same, beside weights of four bits
 * that err as much. */
#include "judged_trace.h"

enum { TOKENS = 64, WIDTH = 48, EXPERTS = 4 };

static void add_erring(struct trace *trace, const char *name, size_t tokens, size_t width, double error)
{
    float *a = made_values(tokens * width), *b = malloc(tokens * width * sizeof *b);
    assert_non_null(b);
    err(a, b, tokens * width, error);
    trace_add(trace, name, a, b, SHAPE(tokens, width));
    free(a);
    free(b);
}

/* A router of four experts, whose logits err by `error` and follow the right ones by `factor`. */
static void judge_router(double error, double factor, size_t expected)
{
    struct judged judged;
    float *a, b[TOKENS * EXPERTS];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", TOKENS, WIDTH, 1e-6);
    add_erring(&judged.trace, "layers.0.mlp_norm_output", TOKENS, WIDTH, 1e-6);
    a = made_values(TOKENS * EXPERTS);
    err(a, b, TOKENS * EXPERTS, error);
    for (size_t i = 0; i < TOKENS * EXPERTS; i++)
        b[i] *= (float)factor;
    trace_add(&judged.trace, "layers.0.router_logits", a, b, SHAPE(TOKENS, EXPERTS));
    free(a);
    for (int layer = 0; layer < 3; layer++) {
        if (layer) {
            add_erring(&judged.trace, made_name("layers.%d.mlp_norm_output", layer), TOKENS, WIDTH, 0.15);
            add_erring(&judged.trace, made_name("layers.%d.router_logits", layer), TOKENS, EXPERTS, 0.2);
        }
        add_erring(&judged.trace, made_name("layers.%d.experts_output", layer), TOKENS, WIDTH, 0.15);
        add_erring(&judged.trace, made_name("layers.%d.shared_expert_output", layer), TOKENS, WIDTH, 0.15);
    }
    expect_first(&judged, expected);
}

static void test_a_factor_of_four_numbers_a_token(void **state)
{
    (void)state;
    judge_router(0.1, 1, SIZE_MAX);
    judge_router(0.02, 0.8, 2);
    judge_router(0.02, 1.2, 2);
}

/* Three tokens, the last of which was never written. */
static void judge_three(bool zero, size_t expected)
{
    enum { FEW = 3 };
    struct judged judged;
    float *a, b[FEW * WIDTH];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_erring(&judged.trace, made_name("blocks.0.part_%d", i), FEW, WIDTH, 0.3);
    a = made_values(FEW * WIDTH);
    err(a, b, FEW * WIDTH, 0.3);
    for (size_t i = (FEW - 1) * WIDTH; i < FEW * WIDTH && zero; i++)
        b[i] = 0;
    trace_add(&judged.trace, "blocks.0.out", a, b, SHAPE(FEW, WIDTH));
    free(a);
    expect_first(&judged, expected);
}

static void test_one_of_three_tokens_is_zero(void **state)
{
    (void)state;
    judge_three(false, SIZE_MAX);
    judge_three(true, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_factor_of_four_numbers_a_token),
        cmocka_unit_test(test_one_of_three_tokens_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
