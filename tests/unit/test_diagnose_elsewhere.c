/* Causes in runs that are no decoders: images, scans, encoders; and what may not be said there. */
#include "made_trace.h"

enum { CHANNELS = 24, SIDE = 8, PIXELS = SIDE * SIDE, IMAGE = CHANNELS * PIXELS };

/* Some images that agree, as those of a network of convolutions do. */
static void start_images(struct trace *trace)
{
    trace_start(trace);
    for (int i = 0; i < 5; i++) {
        float *a = made_values(IMAGE), b[IMAGE];
        shake(a, b, IMAGE, 1e-6);
        trace_add(trace, made_name("blocks.%d.conv1", i), a, b, SHAPE(1, CHANNELS, SIDE, SIDE));
        free(a);
    }
}

static void finish_image(struct trace *trace, const float *a, float *b, const char *id, const char *words)
{
    shake(b, b, IMAGE, 1e-6);
    trace_diagnose(trace, trace_add(trace, "blocks.5.conv1", a, b, SHAPE(1, CHANNELS, SIDE, SIDE)));
    assert_first(trace, id, words);
}

/* [1, channels, height, width]: what belongs to a channel is not called a token's, nor an affair of its mean. */
static void test_channels_of_images(void **state)
{
    struct trace trace;
    float *a, b[IMAGE];
    (void)state;
    for (int way = 0; way < 3; way++) {
        start_images(&trace);
        a = made_values(IMAGE);
        for (size_t i = 0; i < IMAGE; i++) {
            float own = (float)((i / PIXELS * 7 % 11) + 1) / 11;
            b[i] = way == 0 ? a[i] + own : way == 1 ? a[i] * (own + 1) : a[i] * (own + 1) + 1 - own;
        }
        finish_image(&trace, a, b,
                     way == 0   ? "offset"
                     : way == 1 ? "channel-scaled"
                                : "affine",
                     way == 0   ? "each channel is off by its own constant"
                     : way == 1 ? "has its own factor"
                                : "each channel has its own factor and its own offset");
        assert_null(trace_cause(&trace, "centering"));
        assert_null(trace_cause(&trace, "row-scaled"));
        assert_null(trace_cause(&trace, "heads"));
        trace_end(&trace);
        free(a);
    }
}

static void test_places_of_images(void **state)
{
    struct trace trace;
    float *a, *other, b[IMAGE];
    (void)state;
    for (int way = 0; way < 2; way++) {
        start_images(&trace);
        a = made_values(IMAGE);
        other = made_values(IMAGE);
        for (size_t i = 0; i < IMAGE; i++)
            b[i] = (way ? i % PIXELS / SIDE == SIDE - 1 : i / PIXELS == 3) ? other[i] : a[i];
        finish_image(&trace, a, b, way ? "rows" : "channels", way ? "line of the image 7 of 8" : "channel 3 of 24");
        trace_end(&trace);
        free(a);
        free(other);
    }
}

/* Embeddings of other tokens, with two channels that are far larger than the others and so hold most of any error. */
static void test_large_channels_are_no_place(void **state)
{
    enum { TOKENS = 6, WIDTH = 64, TOTAL = TOKENS * WIDTH };
    struct trace trace;
    float *a, *b;
    (void)state;
    trace_start(&trace);
    a = made_values(TOTAL);
    b = made_values(TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        if (i % WIDTH == 5 || i % WIDTH == 40) {
            a[i] *= 30;
            b[i] *= 30;
        }
    trace_diagnose(&trace, trace_add(&trace, "embeddings", a, b, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "unrelated", "");
    assert_null(trace_cause(&trace, "channels"));
    trace_end(&trace);
    free(a);
    free(b);
}

/* Few wrong numbers here and there are no channels; a short line of zeros is no handful of hits. */
static void test_seven_wrong_numbers(void **state)
{
    static const size_t hit[] = {31, 200, 433, 700, 901, 1100, 1499};
    struct trace trace;
    float *a, b[IMAGE];
    (void)state;
    start_images(&trace);
    a = made_values(IMAGE);
    memcpy(b, a, sizeof b);
    for (size_t i = 0; i < sizeof hit / sizeof *hit; i++)
        b[hit[i]] = -1.7f * a[hit[i]] + 0.4f;
    finish_image(&trace, a, b, "sparse", "7 of 1536 elements");
    trace_end(&trace);
    start_images(&trace);
    memcpy(b, a, sizeof b);
    memset(b + 5 * SIDE, 0, SIDE * sizeof *b);
    trace_diagnose(&trace, trace_add(&trace, "blocks.5.conv1", a, b, SHAPE(1, CHANNELS, SIDE, SIDE)));
    assert_null(trace_cause(&trace, "sparse"));
    trace_end(&trace);
    free(a);
}

enum { TOKENS = 12, WIDTH = 48, TOTAL = TOKENS * WIDTH };

/* One number of what was expected, and one of what is not: a run whose names are the given ones. */
static void diagnose_last(struct trace *trace, const char *before, const char *name, const float *a, const float *b,
                          size_t rows)
{
    float *same = made_values(TOTAL);
    trace_add(trace, before, same, same, SHAPE(TOKENS, WIDTH));
    trace_diagnose(trace, trace_add(trace, name, a, b, SHAPE(rows, WIDTH)));
    free(same);
}

/* The first token of a scan agrees whatever it carries on: there is no attention to blame. Where names tell of neither,
 * attention is what carries tokens on in nearly every model. */
static void test_first_token_of_a_scan(void **state)
{
    static const char *const names[][2] = {{"layers.0.mixer.dt_proj", "layers.0.mixer.scan"},
                                           {"layers.0.attn_norm", "layers.0.attn_out"},
                                           {"embeddings", "layers.0.output"}};
    struct trace trace;
    float *a, *other, b[TOTAL];
    (void)state;
    for (size_t run = 0; run < sizeof names / sizeof *names; run++) {
        trace_start(&trace);
        a = made_values(TOTAL);
        other = made_values(TOTAL);
        for (size_t i = 0; i < TOTAL; i++)
            b[i] = i < WIDTH ? a[i] : a[i] + other[i];
        diagnose_last(&trace, names[run][0], names[run][1], a, b, TOKENS);
        assert_first(&trace, run ? "softmax" : "rows", "the first token");
        trace_end(&trace);
        free(a);
        free(other);
    }
}

/* All but the last token are wrong where one side alone is causal, whichever it is. */
static void test_last_token_says_no_side(void **state)
{
    struct trace trace;
    float *a, *other, b[TOTAL];
    (void)state;
    trace_start(&trace);
    a = made_values(TOTAL);
    other = made_values(TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        b[i] = i >= TOTAL - WIDTH ? a[i] : a[i] + other[i];
    diagnose_last(&trace, "layers.0.self_attn.q_proj", "layers.0.self_attn.o_proj", a, b, TOKENS);
    assert_first(&trace, "mask", "on one side only");
    trace_end(&trace);
    free(a);
    free(other);
}

/* What is blurred is no sum that lacks a part, nor is a single row. */
static void test_no_part_is_missing(void **state)
{
    enum { ROWS = 24, WIDE = 96, MANY = ROWS * WIDE };
    struct trace trace;
    float *a = made_values(MANY), b[MANY];
    (void)state;
    trace_start(&trace);
    for (size_t i = 0; i < MANY; i++) /* neighbours have something in common */
        a[i] = i % WIDE ? 0.5f * a[i] + 0.5f * a[i - 1] : a[i];
    for (size_t i = 0; i < MANY; i++) {
        float left = i % WIDE ? a[i - 1] : a[i], right = i % WIDE < WIDE - 1 ? a[i + 1] : a[i];
        b[i] = 0.25f * left + 0.5f * a[i] + 0.25f * right;
    }
    trace_diagnose(&trace, trace_add(&trace, "up", a, b, SHAPE(ROWS, WIDE)));
    assert_null(trace_cause(&trace, "term-missing"));
    trace_end(&trace);
    trace_start(&trace);
    for (size_t i = 0; i < WIDTH; i++)
        b[i] = a[i] + 0.8f * a[WIDTH + i];
    diagnose_last(&trace, "norm", "pooled", b, a, 1);
    assert_null(trace_cause(&trace, "term-missing"));
    trace_end(&trace);
    free(a);
}

/* f16 makes an infinity of what a buffer was filled with: where there are no keys, that is no mask. */
static void test_no_mask_without_keys(void **state)
{
    struct trace trace;
    float *a, b[TOTAL];
    (void)state;
    trace_start(&trace);
    a = made_values(TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        b[i] = i < TOTAL - 100 ? a[i] : -INFINITY;
    diagnose_last(&trace, "layers.0.norm", "layers.0.v_proj", a, b, TOKENS);
    assert_first(&trace, "inf", "100 of 576");
    assert_null(trace_cause(&trace, "mask"));
    trace_end(&trace);
    free(a);
}

/* Scores of an encoder beside a decoder that most tensors belong to: [heads, tokens, tokens], where the encoder's
 * tokens are on the second axis. */
static void test_scores_of_an_encoder(void **state)
{
    enum { FEW = 7, MANY = 15, HEADS = 3, SCORES = HEADS * MANY * MANY };
    struct trace trace;
    float *decoder, *encoder, *scores, wrong[SCORES];
    size_t at;
    (void)state;
    trace_start(&trace);
    for (int i = 0; i < 8; i++) {
        encoder = made_values(MANY * WIDTH);
        trace_add(&trace, made_name("encoder_layer_%d_attn_norm_output", i), encoder, encoder, SHAPE(MANY, WIDTH));
        free(encoder);
    }
    scores = made_values(SCORES);
    for (size_t i = 0; i < SCORES; i++)
        wrong[i] = i % MANY > i / MANY % MANY ? -INFINITY : scores[i];
    at = trace_add(&trace, "encoder_layer_8_attn_scores", scores, wrong, SHAPE(HEADS, MANY, MANY));
    decoder = made_values(FEW * WIDTH);
    for (int i = 0; i < 20; i++)
        trace_add(&trace, made_name("layer_%d_layer_output", i), decoder, decoder, SHAPE(FEW, WIDTH));
    trace_diagnose(&trace, at);
    assert_first(&trace, "mask", "in the candidate each token sees itself and the tokens before it");
    assert_null(trace_cause(&trace, "inf"));
    trace_end(&trace);
    free(decoder);
    free(scores);
}

/* The step of a scan: softplus of a projection, and something else in its place. */
static void test_softplus(void **state)
{
    static const char *const words[] = {"relu(layers.0.mixer.dt_proj)", "exp(layers.0.mixer.dt_proj)"};
    struct trace trace;
    float x[2][TOTAL], y[2][TOTAL];
    (void)state;
    for (int way = 0; way < 3; way++) {
        float *drawn = made_values(TOTAL);
        trace_start(&trace);
        for (size_t i = 0; i < TOTAL; i++)
            x[0][i] = 2 * drawn[i];
        shake(x[0], x[1], TOTAL, 1e-6);
        for (size_t i = 0; i < TOTAL; i++) {
            y[0][i] = (float)log1p(exp((double)x[0][i]));
            y[1][i] = way == 0   ? fmaxf(x[1][i], 0)
                      : way == 1 ? (float)exp((double)x[1][i])
                                 : (float)log1p(exp((double)x[1][i]));
        }
        trace_add(&trace, "layers.0.mixer.dt_proj", x[0], x[1], SHAPE(TOKENS, WIDTH));
        trace_diagnose(&trace, trace_add(&trace, "layers.0.mixer.delta", y[0], y[1], SHAPE(TOKENS, WIDTH)));
        if (way < 2)
            assert_first(&trace, "activation", words[way]);
        else
            assert_silent(&trace);
        trace_end(&trace);
        free(drawn);
    }
}

/* Scores of experts that are sigmoids by themselves, and a softmax over all of them. */
static void test_softmax_for_sigmoids(void **state)
{
    enum { EXPERTS = 8, SCORES = TOKENS * EXPERTS };
    struct trace trace;
    float *logits = made_values(SCORES), a[SCORES], b[SCORES];
    (void)state;
    trace_start(&trace);
    for (size_t i = 0; i < SCORES; i++) {
        double sum = 0;
        for (size_t k = i / EXPERTS * EXPERTS; k < (i / EXPERTS + 1) * EXPERTS; k++)
            sum += exp((double)logits[k]);
        a[i] = (float)(1 / (1 + exp(-(double)logits[i])));
        b[i] = (float)(exp((double)logits[i]) / sum);
    }
    trace_add(&trace, "layers.0.mlp.gate", logits, logits, SHAPE(TOKENS, EXPERTS));
    trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.gate_scores", a, b, SHAPE(TOKENS, EXPERTS)));
    assert_first(&trace, "router-gate", "the candidate computes its scores as softmax probabilities");
    trace_end(&trace);
    free(logits);
}

static void norm_of(const float *x, const float *added, float *out)
{
    for (size_t row = 0; row < TOKENS; row++) {
        double square = 0;
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            out[i] = x[i] + (added ? added[i] : 0);
            square += (double)out[i] * (double)out[i];
        }
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
            out[i] *= (float)((1 + 0.01 * (double)(i % WIDTH)) / sqrt(square / WIDTH + 1e-6));
    }
}

/* Attention and MLP side by side in the reference, one behind the other in the candidate. */
static void test_blocks_in_a_row(void **state)
{
    struct trace trace;
    float *stream = made_values(TOTAL), *attention = made_values(TOTAL), a[TOTAL], b[TOTAL];
    (void)state;
    trace_start(&trace);
    trace_add(&trace, "layers.0", stream, stream, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "layers.1.attention.dense", attention, attention, SHAPE(TOKENS, WIDTH));
    norm_of(stream, NULL, a);
    norm_of(stream, attention, b);
    trace_diagnose(&trace, trace_add(&trace, "layers.1.post_attention_layernorm", a, b, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "wrong-input",
                 "the candidate normalizes layers.0 + layers.1.attention.dense instead of layers.0");
    trace_end(&trace);
    free(stream);
    free(attention);
}

/* Outputs of layers alone. The third layer of the candidate adds to what the layer `from` left, and what it adds has
 * changed as well. */
static void diagnose_layers(size_t from, bool changed, const char *words)
{
    enum { LAYERS = 4, MANY = 40, NUMBERS = MANY * WIDTH };
    float *stream[LAYERS], *own, *other, a[NUMBERS], b[NUMBERS];
    struct trace trace;
    trace_start(&trace);
    own = made_values(NUMBERS);
    other = made_values(NUMBERS);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        stream[layer] = made_values(NUMBERS);
        for (size_t i = 0; i < NUMBERS && layer; i++)
            stream[layer][i] = stream[layer - 1][i] + stream[layer][i];
        trace_add(&trace, layer ? made_name("model.layers.%d", (int)layer - 1) : "model.embed_tokens", stream[layer],
                  stream[layer], SHAPE(MANY, WIDTH));
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        a[i] = stream[LAYERS - 1][i] + own[i];
        b[i] = stream[from][i] + (changed ? other[i] : own[i]);
    }
    trace_diagnose(&trace, trace_add(&trace, "model.layers.3", a, b, SHAPE(MANY, WIDTH)));
    if (words)
        assert_first(&trace, "wrong-input", words);
    else
        assert_null(trace_cause(&trace, "wrong-input"));
    trace_end(&trace);
    for (size_t layer = 0; layer < LAYERS; layer++)
        free(stream[layer]);
    free(own);
    free(other);
}

static void test_a_stream_that_goes_on_from_elsewhere(void **state)
{
    (void)state;
    diagnose_layers(0, true, "the sum contains model.embed_tokens instead of model.layers.2");
    diagnose_layers(1, true, "the sum contains model.layers.0 instead of model.layers.2");
    diagnose_layers(0, false, "wrong tensor: model.embed_tokens instead of model.layers.2");
    diagnose_layers(3, true, NULL); /* the right stream, and something else is added to it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softplus),
        cmocka_unit_test(test_softmax_for_sigmoids),
        cmocka_unit_test(test_blocks_in_a_row),
        cmocka_unit_test(test_a_stream_that_goes_on_from_elsewhere),
        cmocka_unit_test(test_channels_of_images),
        cmocka_unit_test(test_places_of_images),
        cmocka_unit_test(test_large_channels_are_no_place),
        cmocka_unit_test(test_seven_wrong_numbers),
        cmocka_unit_test(test_first_token_of_a_scan),
        cmocka_unit_test(test_last_token_says_no_side),
        cmocka_unit_test(test_no_part_is_missing),
        cmocka_unit_test(test_no_mask_without_keys),
        cmocka_unit_test(test_scores_of_an_encoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
