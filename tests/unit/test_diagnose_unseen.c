/* Attention of which nothing but the end was captured, told by which tokens are wrong; and orders that have a rule,
 * told under noise. */
#include "made_trace.h"

enum { TOKENS = 24, WIDTH = 32 };

/* Layer outputs, of which row i errs by levels[i] of its size. */
static void expect_of(const double *levels, size_t tokens, const char *id, const char *words)
{
    struct trace trace;
    float *before = made_values(tokens * WIDTH), *x = made_values(tokens * WIDTH),
          *y = malloc(tokens * WIDTH * sizeof *y);
    for (size_t i = 0; i < tokens * WIDTH; i++)
        y[i] = x[i] + (float)levels[i / WIDTH] * (float)dice_number();
    trace_start(&trace);
    trace_add(&trace, "input_embeddings", before, before, SHAPE(tokens, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_layer_output", x, y, SHAPE(tokens, WIDTH)));
    if (id)
        assert_first(&trace, id, words);
    else
        for (size_t i = 0; i < trace.diagnosis.count; i++)
            if (strcmp(trace.diagnosis.causes[i].id, "softmax") == 0 ||
                strcmp(trace.diagnosis.causes[i].id, "mask") == 0) {
                trace_print(&trace);
                fail_msg("attention is blamed");
            }
    trace_end(&trace);
    free(before);
    free(x);
    free(y);
}

static void level(double *levels, double all)
{
    for (size_t i = 0; i < TOKENS; i++)
        levels[i] = all * (1 + 0.3 * dice_number());
}

/* The first token sees only itself: it errs as the precision does, and the others far more, but for one or two whose
 * attention is as sure as ever. */
static void test_first_token(void **state)
{
    double levels[TOKENS];
    (void)state;
    level(levels, 0.4);
    levels[0] = 0.02;
    expect_of(levels, TOKENS, "softmax", "the first token, which sees only itself");
    levels[9] = levels[17] = 0.02;
    expect_of(levels, TOKENS, "softmax", "the first token, which sees only itself");
    expect_of(levels, 5, "softmax", "the first token, which sees only itself");
    expect_of(levels, 3, "softmax", "the first token, which sees only itself");
    for (size_t i = 4; i < 12; i++)
        levels[i] = 0.02;
    expect_of(levels, TOKENS, NULL, NULL);
    level(levels, 0.4); /* and another one that agrees is no first one */
    levels[5] = 0.02;
    expect_of(levels, TOKENS, NULL, NULL);
}

/* A first row of zeros on both sides agrees with anything. */
static void test_no_first_token(void **state)
{
    struct trace trace;
    float *before = made_values(TOKENS * WIDTH), *x = made_values(TOKENS * WIDTH), *y = made_values(TOKENS * WIDTH);
    (void)state;
    memset(x, 0, WIDTH * sizeof *x);
    memset(y, 0, WIDTH * sizeof *y);
    trace_start(&trace);
    trace_add(&trace, "input_embeddings", before, before, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_layer_output", x, y, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "unrelated", NULL);
    assert_null(trace_cause(&trace, "softmax"));
    trace_end(&trace);
    free(before);
    free(x);
    free(y);
}

/* Embeddings and what a trace begins with come before any attention. */
static void test_before_any_attention(void **state)
{
    static const char *const names[] = {"hidden_states", "model.embed_tokens"};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct trace trace;
        float *x = made_values(TOKENS * WIDTH), *y = made_values(TOKENS * WIDTH);
        size_t first;
        memcpy(y, x, WIDTH * sizeof *y);
        for (size_t i = WIDTH; i < (size_t)TOKENS * WIDTH; i++)
            y[i] = x[i] + 0.4f * y[i];
        trace_start(&trace);
        if (k)
            trace_add(&trace, "position_vectors", x, x, SHAPE(TOKENS, WIDTH));
        first = trace_add(&trace, names[k], x, y, SHAPE(TOKENS, WIDTH));
        trace_add(&trace, "layers.0.output", x, y, SHAPE(TOKENS, WIDTH));
        trace_diagnose(&trace, first);
        assert_null(trace_cause(&trace, "softmax"));
        trace_end(&trace);
        free(x);
        free(y);
    }
}

/* What was captured alone may be the end. */
static void test_nothing_else_captured(void **state)
{
    struct trace trace;
    float *x = made_values(TOKENS * WIDTH), *y = made_values(TOKENS * WIDTH);
    (void)state;
    memcpy(y, x, WIDTH * sizeof *y);
    for (size_t i = WIDTH; i < (size_t)TOKENS * WIDTH; i++)
        y[i] = x[i] + 0.4f * y[i];
    trace_start(&trace);
    trace_diagnose(&trace, trace_add(&trace, "logits", x, y, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "softmax", "the first token, which sees only itself, agrees");
    trace_end(&trace);
    free(x);
    free(y);
}

/* Angles and scales make more of an error the more keys there are: no window begins where it can be seen. */
static void test_rising(void **state)
{
    double levels[TOKENS];
    (void)state;
    for (size_t i = 0; i < TOKENS; i++)
        levels[i] = 0.01 + 0.4 * fmin(1, 0.08 * (double)i);
    expect_of(levels, TOKENS, "softmax", "the first token, which sees only itself");
    level(levels, 0.3);
    levels[0] = 1e-6;
    levels[1] = 4e-5;
    expect_of(levels, TOKENS, "softmax", "the first token, which sees only itself");
    level(levels, 0.3);
    for (size_t i = 0; i < 4; i++)
        levels[i] = 1e-6;
    expect_of(levels, TOKENS, "mask", "the first 4 tokens agree");
}

/* Without a mask the very last tokens see next to nothing more, and the last one nothing at all. */
static void test_last_token(void **state)
{
    double levels[TOKENS];
    (void)state;
    level(levels, 0.4);
    levels[TOKENS - 3] = 0.1;
    levels[TOKENS - 2] = 0.01;
    levels[TOKENS - 1] = 0.01;
    expect_of(levels, TOKENS, "mask", "only the last token agrees");
    levels[3] = 0.01;
    levels[7] = 0.01;
    levels[11] = 0.01;
    expect_of(levels, TOKENS, NULL, NULL);
    level(levels, 0.4); /* several that agree are not the last one */
    levels[13] = levels[14] = levels[15] = 0;
    expect_of(levels, 16, NULL, NULL);
}

enum order { CHANNELS, EACH_HEAD, ROWS, BUT_BIAS };

/* Of coarse weights, and of few tokens, no line is known by what it holds: what is the other way round is. */
static void expect_flipped(enum order order, size_t tokens, double noise, const char *words)
{
    enum { HEADS = 4, SIZE = WIDTH / HEADS };
    struct trace trace;
    float *before = made_values(tokens * WIDTH), *x = made_values(tokens * WIDTH);
    float *y = malloc(tokens * WIDTH * sizeof *y), *bias = made_values(WIDTH);
    for (size_t row = 0; row < tokens; row++)
        for (size_t i = 0; i < WIDTH; i++) {
            const size_t from = order == ROWS        ? (tokens - 1 - row) * WIDTH + i
                                : order == EACH_HEAD ? row * WIDTH + i / SIZE * SIZE + SIZE - 1 - i % SIZE
                                                     : row * WIDTH + WIDTH - 1 - i;
            y[row * WIDTH + i] = x[from] + (float)(noise * dice_number()) + (order == BUT_BIAS ? 3 * bias[i] : 0);
        }
    for (size_t i = 0; i < tokens * WIDTH && order == BUT_BIAS; i++)
        x[i] += 3 * bias[i % WIDTH];
    trace_start(&trace);
    trace_add(&trace, "layers.0.norm", before, before, SHAPE(tokens, WIDTH));
    if (order == EACH_HEAD)
        trace_diagnose(&trace, trace_add(&trace, "layers.0.v_proj", x, y, SHAPE(tokens, HEADS, SIZE)));
    else
        trace_diagnose(&trace, trace_add(&trace, "layers.0.v_proj", x, y, SHAPE(tokens, WIDTH)));
    assert_first(&trace, "permuted", words);
    trace_end(&trace);
    free(before);
    free(x);
    free(y);
    free(bias);
}

static void test_flipped(void **state)
{
    (void)state;
    expect_flipped(CHANNELS, TOKENS, 0.3, "channels are in reverse order");
    expect_flipped(CHANNELS, 3, 0.1, "channels are in reverse order");
    expect_flipped(EACH_HEAD, TOKENS, 0.3, "the channels of each head are in reverse order");
    expect_flipped(ROWS, TOKENS, 0.3, "tokens are in reverse order");
    expect_flipped(BUT_BIAS, 3, 0.01, "channels are in reverse order, except for a constant");
}

/* Keys of the other end of cross-attention have other rows than the tokens, and two tensors of a layer are like them.
 */
static void test_rows_of_the_other_end(void **state)
{
    enum { LAYERS = 4, BESIDE = 10, OTHERS = 15 };
    struct trace trace;
    float *y = malloc(OTHERS * WIDTH * sizeof *y), *keys;
    size_t wrong = 0;
    (void)state;
    trace_start(&trace);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int i = 0; i < BESIDE; i++) {
            float *own = made_values(TOKENS * WIDTH);
            trace_add(&trace, made_name("layer_step_%d", layer * BESIDE + i), own, own, SHAPE(TOKENS, WIDTH));
            free(own);
        }
        for (int i = 0; i < 2; i++) {
            keys = made_values(OTHERS * WIDTH);
            for (size_t k = 0; k < OTHERS * WIDTH; k++)
                y[k] = keys[k / WIDTH * WIDTH + WIDTH - 1 - k % WIDTH];
            if (layer == 0 && i == 0)
                wrong = trace_add(&trace, "layer_0_cross_attn_k_proj", keys, y, SHAPE(OTHERS, WIDTH));
            else
                trace_add(&trace, made_name("cross_attn_proj_%d", 2 * layer + i), keys, keys, SHAPE(OTHERS, WIDTH));
            free(keys);
        }
    }
    trace_diagnose(&trace, wrong);
    assert_first(&trace, "permuted", "channels are in reverse order");
    trace_end(&trace);
    free(y);
}

/* Behind the softmax a mask takes from each token what it gave to those that come later. */
static void test_mask_behind_the_softmax(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct trace trace;
        float *before = made_values(TOKENS * WIDTH), *x = made_values(TOKENS * WIDTH), y[TOKENS * WIDTH];
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            const size_t row = way ? i / WIDTH * 7 % TOKENS : i / WIDTH; /* or in no order */
            y[i] = x[i] * (float)(row + 1) / TOKENS * (float)(1 + 0.02 * dice_number());
        }
        trace_start(&trace);
        trace_add(&trace, "layers.0.norm", before, before, SHAPE(TOKENS, WIDTH));
        trace_diagnose(&trace, trace_add(&trace, "layers.0.self_attn.o_proj", x, y, SHAPE(TOKENS, WIDTH)));
        if (way)
            assert_null(trace_cause(&trace, "mask"));
        else
            assert_first(&trace, "mask", "rises from 0.04");
        trace_end(&trace);
        free(before);
        free(x);
    }
}

/* Without a bias it is a factor and nothing else, whatever constants noise makes. */
static void test_factor_without_a_bias(void **state)
{
    enum { LONG = 48, WIDE = 16 };
    struct trace trace;
    float *before = made_values(LONG * WIDE), *x = made_values(LONG * WIDE), *y = malloc(LONG * WIDE * sizeof *y);
    (void)state;
    trace_start(&trace);
    for (size_t i = 0; i < LONG * WIDE; i++)
        y[i] = before[i] + (float)(0.28 * dice_number());
    trace_add(&trace, "layers.0.mlp.up_proj", before, y, SHAPE(LONG, WIDE));
    for (size_t i = 0; i < LONG * WIDE; i++)
        y[i] = 5.6f * (x[i] + (float)(0.28 * dice_number())) + 0.012f;
    trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.down_proj", x, y, SHAPE(LONG, WIDE)));
    assert_first(&trace, "scaled", "every element is 5.");
    trace_end(&trace);
    free(before);
    free(x);
    free(y);
}

/* What goes into a product is multiplied, and its bias is not. */
static void test_factors_beside_a_bias(void **state)
{
    static const double factors[] = {-1, 4, 0.25};
    (void)state;
    for (size_t k = 0; k < sizeof factors / sizeof *factors; k++) {
        struct trace trace;
        float *before = made_values(TOKENS * WIDTH), *x = made_values(TOKENS * WIDTH), *bias = made_values(WIDTH);
        float y[TOKENS * WIDTH];
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            y[i] = (float)factors[k] * x[i] * (float)(1 + 0.02 * dice_number()) + bias[i % WIDTH];
            x[i] += bias[i % WIDTH];
        }
        trace_start(&trace);
        trace_add(&trace, "layers.0.norm", before, before, SHAPE(TOKENS, WIDTH));
        trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.down_proj", x, y, SHAPE(TOKENS, WIDTH)));
        assert_first(&trace, k ? "scaled" : "sign-flipped", k ? "what differs between tokens is" : NULL);
        trace_end(&trace);
        free(before);
        free(x);
        free(bias);
    }
}

/* The same token many times: what differs between its rows is rounding, of which no factor is told. */
static void test_bias_of_one_token(void **state)
{
    enum { TIMES = 8 };
    struct trace trace;
    float *before = made_values(TIMES * WIDTH), *one = made_values(WIDTH), *bias = made_values(WIDTH);
    float x[TIMES * WIDTH], y[TIMES * WIDTH], shaken[TIMES * WIDTH];
    (void)state;
    for (size_t i = 0; i < (size_t)TIMES * WIDTH; i++) {
        x[i] = one[i % WIDTH];
        y[i] = one[i % WIDTH] + 0.2f * bias[i % WIDTH];
        x[i] = i / WIDTH % 3 ? x[i] : nextafterf(x[i], 10);
        y[i] = i / WIDTH % 2 ? y[i] : nextafterf(y[i], 10);
    }
    shake(before, shaken, (size_t)TIMES * WIDTH, 1e-6);
    trace_start(&trace);
    trace_add(&trace, "layers.0.norm", before, shaken, SHAPE(TIMES, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.down_proj", x, y, SHAPE(TIMES, WIDTH)));
    assert_non_null(trace_cause(&trace, "offset"));
    assert_null(trace_cause(&trace, "scaled"));
    trace_end(&trace);
    free(before);
    free(one);
    free(bias);
}

/* Larger values take the mean along: that is no sharper attention, "around nearly the same mean". */
static void test_larger_values_are_not_sharper(void **state)
{
    enum { ROWS_OF_IT = 20, CHANNELS_OF_IT = 40, NUMBERS = ROWS_OF_IT * CHANNELS_OF_IT };
    struct trace trace;
    float *means, *x, *noise, *before, b[NUMBERS];
    (void)state;
    trace_start(&trace);
    means = made_values(CHANNELS_OF_IT);
    x = made_values(NUMBERS);
    noise = made_values(NUMBERS);
    before = made_values(NUMBERS);
    for (size_t i = 0; i < NUMBERS; i++) {
        x[i] += means[i % CHANNELS_OF_IT];
        b[i] = 2.25F * x[i] + noise[i];
    }
    trace_add(&trace, "model.layers.0", before, before, SHAPE(ROWS_OF_IT, CHANNELS_OF_IT));
    trace_diagnose(&trace, trace_add(&trace, "model.layers.1.self_attn", x, b, SHAPE(ROWS_OF_IT, CHANNELS_OF_IT)));
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        if (strstr(trace.diagnosis.causes[i].summary, "same mean"))
            fail_msg("%s", trace.diagnosis.causes[i].summary);
    free(means);
    free(x);
    free(noise);
    free(before);
    trace_end(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_token),
                                       cmocka_unit_test(test_no_first_token),
                                       cmocka_unit_test(test_before_any_attention),
                                       cmocka_unit_test(test_nothing_else_captured),
                                       cmocka_unit_test(test_rising),
                                       cmocka_unit_test(test_last_token),
                                       cmocka_unit_test(test_flipped),
                                       cmocka_unit_test(test_rows_of_the_other_end),
                                       cmocka_unit_test(test_mask_behind_the_softmax),
                                       cmocka_unit_test(test_factor_without_a_bias),
                                       cmocka_unit_test(test_factors_beside_a_bias),
                                       cmocka_unit_test(test_bias_of_one_token),
                                       cmocka_unit_test(test_larger_values_are_not_sharper)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
