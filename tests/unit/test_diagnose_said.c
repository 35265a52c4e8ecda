/* What is said of a fault beside its id: which head where heads are folded into the channels, what a factor may be
 * where it stands, and nothing about attention that was captured and agrees. */
#include "made_trace.h"

enum { TOKENS = 12, HEADS = 4, SIZE = 16, WIDTH = HEADS * SIZE };

/* A layer from the norm to the output projection, all of which agrees but for what a test spoils. */
struct layer {
    struct trace trace;
    float *norm, *q, *k, *v, *context, *output;
};

static float *plain(size_t count)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(dice_number() * 2);
    return values;
}

static void start(struct layer *layer)
{
    trace_start(&layer->trace);
    layer->norm = plain(TOKENS * WIDTH);
    layer->q = plain(TOKENS * WIDTH);
    layer->k = plain(TOKENS * WIDTH);
    layer->v = plain(TOKENS * WIDTH);
    layer->context = plain(TOKENS * WIDTH);
    layer->output = plain(TOKENS * WIDTH);
}

static void finish(struct layer *layer)
{
    trace_end(&layer->trace);
    free(layer->norm);
    free(layer->q);
    free(layer->k);
    free(layer->v);
    free(layer->context);
    free(layer->output);
}

/* Adds the pairs up to and with `last`; that one is spoilt, the others are shaken by `noise`. */
static void diagnose(struct layer *layer, const char *last, void (*spoil)(float *values), double noise)
{
    const struct {
        const char *name;
        const float *values;
        bool heads;
    } points[] = {{"layer_0_attn_norm_output", layer->norm, false}, {"layer_0_attn_q_rope", layer->q, true},
                  {"layer_0_attn_k_rope", layer->k, true},          {"layer_0_attn_v", layer->v, true},
                  {"layer_0_attn_context", layer->context, false},  {"layer_0_attn_o_proj", layer->output, false}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        float *found = malloc(TOKENS * WIDTH * sizeof *found);
        bool here = strcmp(points[i].name, last) == 0;
        size_t index;
        assert_non_null(found);
        shake(points[i].values, found, TOKENS * WIDTH, noise);
        if (here)
            spoil(found);
        index = points[i].heads
                    ? trace_add(&layer->trace, points[i].name, points[i].values, found, SHAPE(TOKENS, HEADS, SIZE))
                    : trace_add(&layer->trace, points[i].name, points[i].values, found, SHAPE(TOKENS, WIDTH));
        free(found);
        if (here) {
            trace_diagnose(&layer->trace, index);
            return;
        }
    }
}

static void junk_in_a_head(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] = i % WIDTH / SIZE == 2 ? (float)(dice_number() * 2) : values[i];
}

static void empty_head(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] = i % WIDTH / SIZE == 2 ? 0 : values[i];
}

static void expect(const char *point, void (*spoil)(float *values), double noise, const char *id, const char *words)
{
    struct layer layer;
    start(&layer);
    diagnose(&layer, point, spoil, noise);
    assert_first(&layer.trace, id, words);
    finish(&layer);
}

/* The context has its heads one behind the other, which the queries show; an output projection has none. */
static void test_folded_heads(void **state)
{
    (void)state;
    expect("layer_0_attn_context", junk_in_a_head, 1e-6, "heads", "head 2 of 4");
    expect("layer_0_attn_context", empty_head, 1e-6, "zeros", "zero in head 2");
    expect("layer_0_attn_o_proj", junk_in_a_head, 1e-6, "channels", "channels 32 to 47 of 64");
    expect("layer_0_attn_o_proj", empty_head, 1e-6, "zeros", "zero in channels 32 to 47");
}

/* One head of the probabilities looks at other tokens; most get next to nothing, and only some of the keys stand out.
 */
static void test_head_of_probabilities(void **state)
{
    enum { LENGTH = 40, PROBABILITIES = LENGTH * HEADS * LENGTH };
    float *x = plain(LENGTH * WIDTH), *a = calloc(PROBABILITIES, sizeof *a), *b = calloc(PROBABILITIES, sizeof *b);
    struct trace trace;
    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    for (size_t i = 0; i < PROBABILITIES; i++) {
        const size_t head = i / LENGTH / LENGTH, query = i / LENGTH % LENGTH, key = i % LENGTH;
        a[i] = (float)(key > query ? 0 : exp(4 * dice_number()) / 1000);
        b[i] = head == 2 && key % 3 == 0 && key <= query ? (float)(exp(4 * dice_number()) / 1000) : a[i];
    }
    trace_start(&trace);
    trace_add(&trace, "layer_0_attn_norm_output", x, x, SHAPE(LENGTH, WIDTH));
    trace_add(&trace, "layer_0_attn_v", x, x, SHAPE(LENGTH, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_probs", a, b, SHAPE(HEADS, LENGTH, LENGTH)));
    assert_first(&trace, "heads", "head 2 of 4");
    assert_null(trace_cause(&trace, "channels"));
    trace_end(&trace);
    free(x);
    free(a);
    free(b);
}

static void four_times(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] *= 4;
}

static void two_times(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] *= 2;
}

static void half(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] /= 2;
}

static void three_times(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] *= 3;
}

static void a_thirtieth(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] /= 30;
}

static void five_times(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] *= 5;
}

/* Four is the root of the head size where the scale of the scores may stand, and four ranks elsewhere. */
static void test_factors(void **state)
{
    (void)state;
    expect("layer_0_attn_q_rope", four_times, 1e-6, "scaled", "which is sqrt(16), from head_dim");
    expect("layer_0_attn_q_rope", two_times, 1e-6, "scaled",
           "2 times what it should be: summed or applied more than once");
    expect("layer_0_attn_q_rope", two_times, 1e-6, "scaled", "or 16^(1/4), from head_dim");
    expect("layer_0_attn_o_proj", four_times, 1e-6, "scaled",
           "4 times what it should be: summed or applied more than once");
    expect("layer_0_attn_o_proj", three_times, 1e-6, "scaled",
           "3 times what it should be: summed or applied more than once");
    expect("layer_0_attn_o_proj", a_thirtieth, 1e-6, "scaled", "1/30: perhaps a softcap that is not multiplied");
    expect("layer_0_attn_o_proj", half, 1e-6, "scaled", "which is 1/2: averaged");
    expect("layer_0_attn_o_proj", half, 2e-2, "scaled", "which is 1/2: averaged");
}

/* A number that says nothing is not said twice. */
static void test_plain_factor(void **state)
{
    struct layer layer;
    (void)state;
    start(&layer);
    diagnose(&layer, "layer_0_attn_o_proj", five_times, 0);
    assert_first(&layer.trace, "scaled", "every element is 5 times what it should be");
    assert_null(strstr(layer.trace.diagnosis.causes[0].summary, "which is 5"));
    finish(&layer);
}

static void later_tokens(float *values)
{
    for (size_t i = 5 * WIDTH; i < TOKENS * WIDTH; i++)
        values[i] += (float)(dice_number() * 2);
}

/* The context is there and agrees: no mask and no softmax can be at fault behind it. */
static void test_attention_that_agrees(void **state)
{
    struct layer layer;
    (void)state;
    start(&layer);
    diagnose(&layer, "layer_0_attn_o_proj", later_tokens, 1e-6);
    assert_null(trace_cause(&layer.trace, "mask"));
    assert_null(trace_cause(&layer.trace, "softmax"));
    assert_null(trace_cause(&layer.trace, "rotation"));
    assert_first(&layer.trace, "rows", "tokens 5 to 11 of 12");
    finish(&layer);
}

static void on_one_grid(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] = nearbyintf(values[i] / 0.03125f) * 0.03125f;
}

/* One step for all is no grid of its own in each block. */
static void test_one_grid(void **state)
{
    (void)state;
    expect("layer_0_attn_o_proj", on_one_grid, 0, "quantization", "all values lie on one grid");
    expect("layer_0_attn_o_proj", on_one_grid, 0, "quantization", "a step of 0.03125");
}

static void two_bits(float *values)
{
    values[3 * WIDTH + 9] = ts_float_from_bits(ts_float_bits(values[3 * WIDTH + 9]) ^ 0x00500000u);
}

static void signs(float *values)
{
    values[3 * WIDTH + 9] = copysignf(1.5f, -values[3 * WIDTH + 9]);
    values[7 * WIDTH + 2] = copysignf(1.5f, -values[7 * WIDTH + 2]);
}

/* The bits are shown where few differ, and where one flip leads back to within the noise. */
static void test_bits(void **state)
{
    struct layer layer;
    (void)state;
    expect("layer_0_attn_o_proj", two_bits, 0, "sparse", "(xor 0x500000: 2 bits)");
    start(&layer);
    layer.output[3 * WIDTH + 9] = -1.45f; /* three hundredths apart */
    layer.output[7 * WIDTH + 2] = 1.55f;
    diagnose(&layer, "layer_0_attn_o_proj", signs, 3e-2);
    assert_first(&layer.trace, "sparse", "channel 9: 1.5 instead of -1.45 (xor 0x80000000: bit 31)");
    assert_first(&layer.trace, "sparse", "channel 2: -1.5 instead of 1.55 (xor 0x80000000: bit 31)");
    finish(&layer);
}

/* Below zero: added behind the root. */
static void normalize(const float *x, float *y, size_t piece, double epsilon)
{
    for (size_t start_at = 0; start_at < TOKENS * WIDTH; start_at += piece) {
        double squares = 0;
        for (size_t i = start_at; i < start_at + piece; i++)
            squares += (double)x[i] * (double)x[i] / (double)piece;
        for (size_t i = start_at; i < start_at + piece; i++)
            y[i] = (float)((double)x[i] / (epsilon < 0 ? sqrt(squares) - epsilon : sqrt(squares + epsilon)) *
                           (1 + 0.3 * sin((double)(i % WIDTH))));
    }
}

static void expect_norm(size_t piece, double epsilon, bool halves, const char *words)
{
    float *x, out[2][TOKENS * WIDTH];
    struct trace trace;
    trace_start(&trace);
    x = plain(TOKENS * WIDTH);
    for (size_t i = 0; i < TOKENS * WIDTH; i++) /* of f16, so that all of the error is made by the norm */
        x[i] = nearbyintf(x[i] * (float)(256 >> i / WIDTH % 4)) / 256;
    normalize(x, out[0], WIDTH, 1e-6);
    normalize(x, out[1], piece, epsilon);
    for (size_t i = 0; i < TOKENS * WIDTH && halves; i++) { /* ten bits behind the first */
        int exponent;
        (void)frexpf(out[1][i], &exponent);
        out[1][i] = ldexpf(nearbyintf(ldexpf(out[1][i], 11 - exponent)), exponent - 11);
    }
    trace_add(&trace, "layer_0_input", x, x, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_norm_output", out[0], out[1], SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "row-scaled", words);
    trace_end(&trace);
    free(x);
}

/* Rows that are divided by the mean of their magnitudes: before the norm nothing is wrong but rounding, and no single
 * numbers are to blame. */
static void test_rows_of_another_size(void **state)
{
    float *x = made_values(TOKENS * WIDTH), out[2][TOKENS * WIDTH];
    struct trace trace;
    (void)state;
    trace_start(&trace);
    for (size_t start_at = 0; start_at < TOKENS * WIDTH; start_at += WIDTH) {
        double mean = 0, squares = 0, magnitudes = 0;
        for (size_t i = start_at; i < start_at + WIDTH; i++) {
            x[i] *= i % WIDTH < 3 ? 3 : 1;
            mean += (double)x[i] / WIDTH;
        }
        for (size_t i = start_at; i < start_at + WIDTH; i++) {
            squares += ((double)x[i] - mean) * ((double)x[i] - mean) / WIDTH;
            magnitudes += fabs((double)x[i] - mean) / WIDTH;
        }
        for (size_t i = start_at; i < start_at + WIDTH; i++) {
            double weight = exp(0.35 * sin((double)(7 * (i % WIDTH)))), bias = 0.2 * cos((double)(i % WIDTH));
            double size = sqrt(squares + 1e-5);
            out[0][i] = (float)(((double)x[i] - mean) / size * weight + bias);
            out[1][i] = (float)((double)(float)(((double)x[i] - mean) / magnitudes) * weight + bias);
        }
    }
    trace_add(&trace, "layer_0_input", x, x, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_norm_output", out[0], out[1], SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "row-scaled", "each token has its own factor");
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        assert_null(strstr(trace.diagnosis.causes[i].summary, "in the input of the norm"));
    trace_end(&trace);
    free(x);
}

/* A rank, a head or a group that is normalized by itself; and an epsilon whose trace is no larger than rounding, but
 * does nothing else than follow the result. */
static void test_norms(void **state)
{
    (void)state;
    expect_norm(WIDTH / 2, 1e-6, false, "pieces of 32 channels instead of all 64");
    expect_norm(WIDTH / 4, 1e-6, true, "pieces of 16 channels instead of all 64");
    expect_norm(WIDTH, 1e-3, true, "another epsilon: 0.001 in the candidate");
    expect_norm(WIDTH, 3e-3, true, "another epsilon: 0.003 in the candidate");
    expect_norm(WIDTH, 1, false, "another epsilon: 1 in the candidate");
    expect_norm(WIDTH, 2.5, true, "another epsilon: 2.5 in the candidate");
    expect_norm(WIDTH, -0.3, false, "the candidate adds an epsilon of 0.3 behind the root, x / (root + eps)");
    expect_norm(WIDTH, -0.01, true, "the candidate adds an epsilon of 0.01 behind the root, x / (root + eps)");
}

/* A product of an activation, captured behind it, and something else. */
static void expect_function(bool product, const char *words)
{
    struct trace trace;
    float *x = plain(TOKENS * WIDTH), *y = plain(TOKENS * WIDTH), *a = plain(TOKENS * WIDTH);
    bool said = false;
    trace_start(&trace);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        a[i] = product ? x[i] * y[i] : x[i] / (1 + expf(-x[i]));
    trace_add(&trace, "model.layers.1.mlp.first", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "model.layers.1.mlp.second", y, y, SHAPE(TOKENS, WIDTH));
    for (size_t i = 0; i < TOKENS * WIDTH && !product; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
    trace_diagnose(&trace, trace_add(&trace, "model.layers.1.mlp.act", a, product ? x : y, SHAPE(TOKENS, WIDTH)));
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        said = said || strstr(trace.diagnosis.causes[i].summary, words);
    if (!said) {
        trace_print(&trace);
        fail_msg("%s is not said", words);
    }
    trace_end(&trace);
    free(x);
    free(y);
    free(a);
}

/* A function that does nothing needs no name, and two that make the same of all numbers are not told apart by rounding
 * or without it. */
static void test_functions(void **state)
{
    (void)state;
    expect_function(true, "the candidate computes model.layers.1.mlp.first, without model.layers.1.mlp.second; the "
                          "reference computes model.layers.1.mlp.second * model.layers.1.mlp.first");
    expect_function(false, "relu(model.layers.1.mlp.first) (or relu6; of these numbers it makes the same)");
}

static void scale_a_channel(float *values)
{
    for (size_t t = 0; t < TOKENS; t++)
        values[t * WIDTH + 7] *= 3;
}

static void spoil_nothing(float *values)
{
    (void)values;
}

/* What came in with an error and goes on with it is no rounding. */
static void test_what_is_carried(void **state)
{
    struct layer layer;
    (void)state;
    start(&layer);
    diagnose(&layer, "layer_0_attn_o_proj", spoil_nothing, 5e-2);
    assert_silent(&layer.trace);
    assert_non_null(strstr(layer.trace.diagnosis.strongest, "no larger than what comes in makes it"));
    finish(&layer);
    start(&layer);
    diagnose(&layer, "layer_0_attn_o_proj", spoil_nothing, 1e-7);
    assert_silent(&layer.trace);
    assert_non_null(strstr(layer.trace.diagnosis.strongest, "is spread like rounding"));
    finish(&layer);
}

static void spoil_first_less(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] += (float)((i < 3 * WIDTH ? 0.02 : 0.3) * dice_number());
}

static void spoil_last(float *values)
{
    for (size_t i = 3 * WIDTH; i < TOKENS * WIDTH; i++)
        values[i] += (float)(0.3 * dice_number());
}

/* Tokens that err less than others do not agree, and nothing begins behind them. */
static void test_where_it_begins(void **state)
{
    struct layer layer;
    (void)state;
    start(&layer);
    diagnose(&layer, "layer_0_attn_o_proj", spoil_last, 1e-7);
    assert_non_null(trace_cause(&layer.trace, "rows"));
    assert_non_null(strstr(trace_cause(&layer.trace, "rows")->summary, "tokens 3 to 11 of 12"));
    finish(&layer);
    start(&layer);
    diagnose(&layer, "layer_0_attn_o_proj", spoil_first_less, 1e-7);
    assert_null(trace_cause(&layer.trace, "rows"));
    finish(&layer);
}

static void scale_tokens(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] *= (float)(0.3 + 0.05 * (double)(i / WIDTH));
}

/* What attention makes is not divided by a norm. */
static void test_advice_about_tokens(void **state)
{
    struct layer layer;
    (void)state;
    start(&layer);
    diagnose(&layer, "layer_0_attn_o_proj", scale_tokens, 1e-7);
    assert_first(&layer.trace, "row-scaled", "each token has its own factor");
    assert_non_null(strstr(layer.trace.diagnosis.causes[0].check, "probabilities that do not add up to one"));
    finish(&layer);
    start(&layer);
    diagnose(&layer, "layer_0_attn_v", scale_tokens, 1e-7);
    assert_first(&layer.trace, "row-scaled", "each token has its own factor");
    assert_null(strstr(layer.trace.diagnosis.causes[0].check, "probabilities"));
    finish(&layer);
}

static void spoil_all(float *values)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        values[i] = (float)(2 * dice_number());
}

/* Where a step takes no weights, none of them is to be looked at. */
static void test_advice_without_weights(void **state)
{
    struct layer layer;
    float *sum = plain(TOKENS * WIDTH), *found = plain(TOKENS * WIDTH);
    (void)state;
    start(&layer);
    spoil_all(found);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        sum[i] = layer.q[i] + layer.v[i];
    trace_add(&layer.trace, "layers.0", layer.q, layer.q, SHAPE(TOKENS, WIDTH));
    trace_add(&layer.trace, "layers.1.self_attn", layer.v, layer.v, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&layer.trace, trace_add(&layer.trace, "layers.1.residual", sum, found, SHAPE(TOKENS, WIDTH)));
    assert_first(&layer.trace, "unrelated", NULL);
    assert_non_null(strstr(layer.trace.diagnosis.causes[0].check, "which no weight goes into"));
    finish(&layer);
    free(sum);
    free(found);
}

/* Behind attention that was not captured, the weights are not all that may be wrong; behind a context they are. */
static void test_advice_behind_attention(void **state)
{
    (void)state;
    for (int context = 0; context < 2; context++) {
        struct layer layer;
        const char *check;
        float *found = plain(TOKENS * WIDTH);
        start(&layer);
        spoil_all(found);
        trace_add(&layer.trace, "h.0.attn.c_attn", layer.q, layer.q, SHAPE(TOKENS, WIDTH));
        if (context)
            trace_add(&layer.trace, "h.0.attn.context", layer.context, layer.context, SHAPE(TOKENS, WIDTH));
        trace_diagnose(&layer.trace,
                       trace_add(&layer.trace, "h.0.attn.c_proj", layer.output, found, SHAPE(TOKENS, WIDTH)));
        assert_first(&layer.trace, "unrelated", NULL);
        check = layer.trace.diagnosis.causes[0].check;
        assert_true(context == !strstr(check, "how attention splits queries, keys and values into heads"));
        finish(&layer);
        free(found);
    }
}

/* A projection has no norm's weight: one channel of it is a row of the weight. */
static void test_advice_about_channels(void **state)
{
    struct layer layer;
    (void)state;
    start(&layer);
    diagnose(&layer, "layer_0_attn_o_proj", scale_a_channel, 1e-7);
    assert_first(&layer.trace, "channel-scaled", "channel 7 is 3 times what it should be");
    assert_non_null(strstr(layer.trace.diagnosis.causes[0].check, "of the weight that makes these"));
    finish(&layer);
    start(&layer);
    diagnose(&layer, "layer_0_attn_norm_output", scale_a_channel, 1e-7);
    assert_first(&layer.trace, "channel-scaled", "channel 7 is 3 times what it should be");
    assert_null(strstr(layer.trace.diagnosis.causes[0].check, "of the weight that makes these"));
    finish(&layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folded_heads),
        cmocka_unit_test(test_head_of_probabilities),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_plain_factor),
        cmocka_unit_test(test_attention_that_agrees),
        cmocka_unit_test(test_one_grid),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rows_of_another_size),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_advice_about_channels),
        cmocka_unit_test(test_what_is_carried),
        cmocka_unit_test(test_where_it_begins),
        cmocka_unit_test(test_advice_about_tokens),
        cmocka_unit_test(test_advice_without_weights),
        cmocka_unit_test(test_advice_behind_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
