/* What a product may make of the error that came in, where its weight is not known. */
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 32, TOTAL = TOKENS * WIDTH, LAYERS = 5 };

#define FINE 1e-6

static void add_erring(struct trace *trace, const char *name, double error)
{
    float *a = made_values(TOTAL), b[TOTAL];
    err(a, b, TOTAL, error);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

/* Five layers that take the same, in which one product errs by so much of its own size, which is so large beside that
 * of the others. */
static void judge_small(float size, double error, size_t expected)
{
    enum { THIS = 3 };
    struct judged judged;
    float *input = made_values(TOTAL), near_input[TOTAL];
    trace_start(&judged.trace);
    err(input, near_input, TOTAL, 0.06);
    trace_add(&judged.trace, "embed", input, near_input, SHAPE(TOKENS, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++) {
        float *a = made_values(TOTAL), b[TOTAL];
        trace_add(&judged.trace, made_name("layers.%d.input", layer), input, near_input, SHAPE(TOKENS, WIDTH));
        for (size_t i = 0; i < TOTAL; i++)
            a[i] *= layer == THIS ? size : 1;
        err(a, b, TOTAL, layer == THIS ? error : 0.06);
        trace_add(&judged.trace, made_name("layers.%d.product", layer), a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    free(input);
    expect_first(&judged, expected);
}

/* Rounded weights make an error of the size of what goes in, however much of the result cancels. */
static void test_a_small_result(void **state)
{
    (void)state;
    judge_small(1, 0.06, SIZE_MAX);
    judge_small(0.1f, 0.72, SIZE_MAX);
    judge_small(1, 0.72, 8);
    judge_small(0.6f, 0.72, 8);
    judge_small(0.1f, 1.2, 8); /* nor does that explain any error */
}

/* Five layers that take the same, in which one product has a channel that is larger than all others together. */
static void judge_large_channel(double error, size_t expected)
{
    enum { THIS = 3, CHANNEL = 5 };
    struct judged judged;
    float *input = made_values(TOTAL), near_input[TOTAL];
    trace_start(&judged.trace);
    err(input, near_input, TOTAL, 0.012);
    trace_add(&judged.trace, "embed", input, near_input, SHAPE(TOKENS, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++) {
        float *a = made_values(TOTAL), b[TOTAL], one[TOKENS], near_one[TOKENS];
        trace_add(&judged.trace, made_name("layers.%d.input", layer), input, near_input, SHAPE(TOKENS, WIDTH));
        err(a, b, TOTAL, 0.017);
        for (size_t row = 0; row < TOKENS; row++)
            one[row] = 20 * a[row * WIDTH + CHANNEL];
        err(one, near_one, TOKENS, error);
        for (size_t row = 0; row < TOKENS && layer == THIS; row++) {
            a[row * WIDTH + CHANNEL] = one[row];
            b[row * WIDTH + CHANNEL] = near_one[row];
        }
        trace_add(&judged.trace, made_name("layers.%d.product", layer), a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    free(input);
    expect_first(&judged, expected);
}

/* What one channel errs by, however large that is, is no growth of the product; what it errs by beyond chance is. */
static void test_a_large_channel(void **state)
{
    (void)state;
    judge_large_channel(0.16, SIZE_MAX);
    judge_large_channel(0.4, 8);
}

/* Experts behind a norm and a router, all of them off by factors beside what bf16 rounds off. */
static void judge_factor_of_experts(float norm, float logits, float experts, size_t expected)
{
    static const char *const names[] = {"embed", "layer_0_mlp_norm_output", "layer_0_router_logits",
                                        "layer_0_experts_output"};
    const float factors[] = {1, norm, logits, experts};
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t k = 0; k < 4; k++) {
        float *a = made_values(TOTAL), b[TOTAL];
        for (size_t i = 0; i < TOTAL; i++)
            b[i] = to_bf16(factors[k] * a[i]);
        trace_add(&judged.trace, names[k], a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

/* A factor that came in is one of what comes out. */
static void test_a_factor_that_came_in(void **state)
{
    (void)state;
    judge_factor_of_experts(1.012f, 1.012f, 1.028f, SIZE_MAX);
    judge_factor_of_experts(1.012f, 1.012f, 1.07f, 3);
    judge_factor_of_experts(1, 1, 1.028f, 3);
}

/* A tensor behind others that err by a fifth; inside: of its module as well. */
static void judge_module(const char *name, bool inside, double error, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", 0.2);
    add_erring(&judged.trace, "layers.0.q_proj", 0.2);
    add_erring(&judged.trace, "layers.0.k_proj", 0.2);
    add_erring(&judged.trace, "layers.0.o_proj", 0.2);
    if (inside)
        add_erring(&judged.trace, "layers.0.mlp.up_proj", 0.2);
    add_erring(&judged.trace, name, error);
    expect_first(&judged, expected);
}

/* Three products are between what goes into experts or an MLP and what comes out of them, unless something inside was
 * captured. */
static void test_products_of_a_module(void **state)
{
    (void)state;
    judge_module("layers.0.mlp.experts", false, 0.8, SIZE_MAX);
    judge_module("layers.0.mlp.shared_experts", false, 0.8, SIZE_MAX);
    judge_module("layers.0.mlp.down_proj", false, 0.8, SIZE_MAX);
    judge_module("layers.0.mlp.down_proj", true, 0.8, 5);
    judge_module("layers.0.mlp.up_proj", false, 0.8, 4);
    judge_module("layers.0.mlp.experts", false, 1.3, 4);
}

/* Behind what errs by three tenths of its size, a product that is so much larger, and errs as much besides. */
static void judge_enlarged(double factor, size_t expected)
{
    struct judged judged;
    float *a, b[TOTAL];
    trace_start(&judged.trace);
    a = made_values(TOTAL);
    add_erring(&judged.trace, "embed", 0.3);
    add_erring(&judged.trace, "layers.0.q_proj", 0.3);
    add_erring(&judged.trace, "layers.0.k_proj", 0.3);
    add_erring(&judged.trace, "layers.0.o_proj", 0.3);
    err(a, b, TOTAL, 0.3);
    for (size_t i = 0; i < TOTAL; i++)
        b[i] += (float)((factor - 1) * (double)a[i]);
    trace_add(&judged.trace, "layers.0.mlp.up_proj", a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    expect_first(&judged, expected);
}

/* However large the noise is, it makes nothing larger by half, nor smaller by half. */
static void test_noise_enlarges_nothing(void **state)
{
    (void)state;
    judge_enlarged(1, SIZE_MAX);
    judge_enlarged(1.15, SIZE_MAX);
    judge_enlarged(1.5, 4);
    judge_enlarged(0.8, SIZE_MAX);
    judge_enlarged(0.5, 4);
}

/* A layer behind one that errs by far more inside than its stream does; its own product has no relation any more. */
static void test_what_came_into_the_layer(void **state)
{
    struct judged judged;
    float *a, *other, b[TOTAL];
    (void)state;
    trace_start(&judged.trace);
    a = made_values(TOTAL);
    other = made_values(TOTAL);
    add_erring(&judged.trace, "embed", 0.4);
    add_erring(&judged.trace, "layers.0.q_proj", 0.4);
    add_erring(&judged.trace, "layers.0.mlp.act", 0.75);
    add_erring(&judged.trace, "layers.0.mlp.down_proj", 0.75);
    err(a, b, TOTAL, 0.45);
    trace_add(&judged.trace, "layers.0.output", a, b, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.1.input", a, b, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.1.q_proj", other, a, SHAPE(TOKENS, WIDTH));
    free(a);
    free(other);
    expect_first(&judged, 6);
}

/* Of so many tokens, a product that errs by more than three times what came in. */
static void judge_tokens(size_t tokens, size_t expected)
{
    static const char *const names[] = {"embed", "layers.0.q_proj", "layers.0.k_proj", "layers.0.o_proj",
                                        "layers.0.mlp.up_proj"};
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        float *a = made_values(TOTAL), b[TOTAL];
        err(a, b, tokens * WIDTH, k < 4 ? 0.22 : 0.72);
        trace_add(&judged.trace, names[k], a, b, SHAPE(tokens, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

/* How much a product makes of one token's error is chance. */
static void test_few_tokens(void **state)
{
    (void)state;
    judge_tokens(12, 4);
    judge_tokens(4, SIZE_MAX);
}

/* The scale and shift of a model's first block, as weights of four bits make them; the replay of the norm behind it
 * fails, of which nobody behind is asked. */
static void judge_modulation(bool wrong, double error, size_t expected)
{
    enum { CHUNKS = 6 };
    struct judged judged;
    float *input = made_values(TOTAL), *scale = made_values(CHUNKS * WIDTH), near_scale[CHUNKS * WIDTH];
    float modulated[2][TOTAL];
    trace_start(&judged.trace);
    err(scale, near_scale, CHUNKS * WIDTH, error);
    for (size_t i = 0; i < TOTAL; i++) {
        const float *from = near_scale + i % WIDTH;
        modulated[0][i] = input[i] * (1 + scale[WIDTH + i % WIDTH]) + scale[i % WIDTH];
        modulated[1][i] = input[i] * (from[WIDTH] + (wrong ? 0 : 1)) + *from;
    }
    trace_add(&judged.trace, "img_in", input, input, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "block_0_modulation", scale, near_scale, SHAPE(1, CHUNKS * WIDTH));
    trace_add(&judged.trace, "block_0_normed", input, input, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "block_0_modulated", modulated[0], modulated[1], SHAPE(TOKENS, WIDTH));
    free(input);
    free(scale);
    expect_first(&judged, expected);
}

static void test_a_modulation_before_a_bug(void **state)
{
    (void)state;
    judge_modulation(true, 0.1, 3);
    judge_modulation(true, 0.9, 1);
}

/* Layers that take the same, each with three products, one of which makes more of it. */
static void judge_steady(int layers, double error, size_t expected)
{
    static const char *const names[] = {"layers.%d.q_proj", "layers.%d.k_proj", "layers.%d.v_proj"};
    struct judged judged;
    float *input, near_input[TOTAL];
    trace_start(&judged.trace); /* from here on no numbers come twice */
    input = made_values(TOTAL);
    err(input, near_input, TOTAL, 0.06);
    trace_add(&judged.trace, "embed", input, near_input, SHAPE(TOKENS, WIDTH));
    for (int layer = 0; layer < layers; layer++) {
        trace_add(&judged.trace, made_name("layers.%d.input", layer), input, near_input, SHAPE(TOKENS, WIDTH));
        for (int i = 0; i < 3; i++)
            add_erring(&judged.trace, made_name(names[i], layer), layer == 1 && i == 2 ? error : 0.06);
    }
    free(input);
    expect_first(&judged, expected);
}

/* What other layers make of as much tells what may become of it, by less than what a layer alone could make. */
static void test_growth_is_steady(void **state)
{
    (void)state;
    judge_steady(8, 0.12, SIZE_MAX);
    judge_steady(8, 0.23, 8);
    judge_steady(3, 0.23, SIZE_MAX);
}

/* The first of nine layers gets less error than the others, and one product makes more of it than theirs do, which are
 * uneven. */
static void judge_first_layer(size_t tokens, size_t expected)
{
    static const char *const names[] = {"layers.%d.input", "layers.%d.q_proj", "layers.%d.k_proj", "layers.%d.v_proj"};
    struct judged judged;
    trace_start(&judged.trace);
    for (int k = 0; k < 36; k++) {
        const double error = k < 3 ? 0.03 : k == 3 ? 0.2 : k % 16 == 3 ? 0.14 : 0.1;
        float *a = made_values(TOTAL), b[TOTAL];
        err(a, b, tokens * WIDTH, error);
        trace_add(&judged.trace, made_name(names[k % 4], k / 4), a, b, SHAPE(tokens, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

/* A few tokens are as uneven as chance makes them: then the most of what others err by counts. */
static void test_few_tokens_are_uneven(void **state)
{
    (void)state;
    judge_first_layer(TOKENS, 3);
    judge_first_layer(6, SIZE_MAX);
}

/* Outputs of two layers alone, which err by this, as much again of what follows the result, and far more in one
 * token; the head's numbers are bf16, or f32. */
static void judge_streams(double first, double second, bool sixteen, size_t expected)
{
    const double errors[] = {0.0009, first, second, second, second};
    static const char *const names[] = {"embed", "layers.0.output", "layers.1.output", "norm", "logits"};
    struct judged judged;
    trace_start(&judged.trace);
    for (int i = 0; i < 5; i++) {
        float *a = made_values(TOTAL), b[TOTAL];
        err(a, b, TOTAL, errors[i]);
        for (int k = 0; k < TOTAL && i; k++)
            b[k] = a[k] + (k < WIDTH ? 8.0F : 1.0F) * (b[k] - a[k]) + (float)errors[i] * a[k];
        if (sixteen && i == 4)
            round_all(b, TOTAL);
        trace_add(&judged.trace, names[i], a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

/* A stream that is kept in f32 errs by what its products were rounded to, which logits tell; not where a layer before
 * errs by less than that. */
static void test_products_in_sixteen_bits(void **state)
{
    (void)state;
    judge_streams(0.006, 0.007, true, SIZE_MAX);
    judge_streams(0.006, 0.007, false, 1);
    judge_streams(FINE, 0.007, true, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_in_sixteen_bits),  cmocka_unit_test(test_a_small_result),
        cmocka_unit_test(test_a_large_channel),           cmocka_unit_test(test_a_factor_that_came_in),
        cmocka_unit_test(test_products_of_a_module),      cmocka_unit_test(test_noise_enlarges_nothing),
        cmocka_unit_test(test_what_came_into_the_layer),  cmocka_unit_test(test_growth_is_steady),
        cmocka_unit_test(test_few_tokens_are_uneven),     cmocka_unit_test(test_few_tokens),
        cmocka_unit_test(test_a_modulation_before_a_bug),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
