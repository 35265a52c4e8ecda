/* Causes in traces that hold less than one would like: no input of a rotation, a second sequence, a router with a bias
 * of its own, an adaptive norm of which only the end was captured, products whose weights nobody has. */
#include "made_trace.h"

#include "io/source.h"

enum { TOKENS = 12, HEADS = 3, SIZE = 8, WIDTH = HEADS * SIZE, TOTAL = TOKENS * WIDTH };

static void multiply(const float *x, const float *matrix, size_t rows, size_t inputs, size_t outputs, float *out)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < outputs; i++) {
            double sum = 0;
            for (size_t k = 0; k < inputs; k++)
                sum += (double)x[row * inputs + k] * (double)matrix[i * inputs + k];
            out[row * outputs + i] = (float)sum;
        }
}

static void finish(struct trace *trace, const char *id, const char *words)
{
    trace_diagnose(trace, trace->count - 1);
    if (id)
        assert_first(trace, id, words);
    else
        assert_silent(trace);
    trace_end(trace);
}

/* An encoder of 15 tokens beside a decoder of 7, which most tensors belong to. */
static void test_second_sequence(void **state)
{
    enum { FEW = 7, MANY = 15 };
    struct trace trace;
    float *decoder, *encoder, *wrong;
    (void)state;
    trace_start(&trace);
    decoder = made_values(FEW * WIDTH);
    for (int i = 0; i < 8; i++) {
        encoder = made_values(MANY * WIDTH);
        trace_add(&trace, made_name("encoder_layer_%d_attn_norm_output", i), encoder, encoder, SHAPE(MANY, WIDTH));
        free(encoder);
    }
    encoder = made_values(MANY * WIDTH);
    wrong = made_values(MANY * WIDTH);
    for (size_t i = 0; i < MANY * WIDTH; i++)
        if (i / WIDTH != 4)
            wrong[i] = encoder[i];
    trace_add(&trace, "encoder_layer_8_mlp_down_proj", encoder, wrong, SHAPE(MANY, WIDTH));
    for (int i = 0; i < 20; i++)
        trace_add(&trace, made_name("layer_%d_layer_output", i), decoder, decoder, SHAPE(FEW, WIDTH));
    trace_diagnose(&trace, 8);
    assert_first(&trace, "rows", "token 4 of 15");
    trace_end(&trace);
    free(decoder);
    free(encoder);
    free(wrong);
}

/* Pairs (i, i + half) turned by `constant + rate * token` times their frequency. */
static void turn_more(const float *x, double constant, double rate, float *out)
{
    for (size_t i = 0; i < TOTAL; i++) {
        size_t channel = i % SIZE, pair = channel % (SIZE / 2);
        double angle = (constant + rate * (double)(i / WIDTH)) * pow(10000, -2.0 * (double)pair / SIZE);
        double other = (double)x[channel < SIZE / 2 ? i + SIZE / 2 : i - SIZE / 2];
        out[i] = (float)((double)x[i] * cos(angle) + (channel < SIZE / 2 ? -1 : 1) * other * sin(angle));
    }
}

static void expect_turned(double constant, double rate, float sign, const char *id, const char *words)
{
    struct trace trace;
    float *before, *x, found[TOTAL];
    trace_start(&trace);
    before = made_values(TOTAL);
    x = made_values(TOTAL);
    turn_more(x, constant, rate, found);
    for (size_t i = 0; i < TOTAL; i++)
        found[i] *= sign;
    trace_add(&trace, "layer_0_attn_norm_output", before, before, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "layer_0_attn_q_rope", x, found, SHAPE(TOKENS, HEADS, SIZE));
    finish(&trace, id, words);
    free(before);
    free(x);
}

/* What is turned was not captured: the candidate against the reference still shows the turn. */
static void test_turned_without_input(void **state)
{
    (void)state;
    expect_turned(1, 0, 1, "rotation", "positions are off by +1 (the angles fit theta = 10000)");
    expect_turned(0, 0.4, 1, "rotation", "every angle is 1.4 times");
    expect_turned(0, 0, -1, "sign-flipped", NULL);
}

/* The queries were split otherwise before they were turned. */
static void test_layout_before_rotation(void **state)
{
    struct trace trace;
    float *x, other[TOTAL], turned[2][TOTAL];
    (void)state;
    trace_start(&trace);
    x = made_values(TOTAL);
    for (size_t i = 0; i < TOTAL; i++) /* [size, heads] read as [heads, size] */
        other[i] = x[i / WIDTH * WIDTH + i % SIZE * HEADS + i % WIDTH / SIZE];
    turn_more(x, 0, 1, turned[0]);
    turn_more(other, 0, 1, turned[1]);
    trace_add(&trace, "layer_0_attn_q_proj", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "layer_0_attn_q_rope", turned[0], turned[1], SHAPE(TOKENS, HEADS, SIZE));
    finish(&trace, "permuted", "rotation gets the values of");
    free(x);
}

struct soft_faults {
    bool one_more, undivided, as_they_are;
    bool sinks;     /* on both sides */
    bool sinks_out; /* of the candidate, where the reference has them */
    bool first_out; /* nobody sees the first token, but itself */
    size_t shift;   /* of the values */
};

static void attend(const float *scores, const float *values, const struct soft_faults *faults, float *probs,
                   float *context)
{
    for (size_t row = 0; row < TOKENS; row++)
        for (size_t head = 0; head < HEADS; head++) {
            const float *lane = scores + (row * HEADS + head) * TOKENS;
            double weights[TOKENS] = {0}, largest = -INFINITY, sum = 0;
            for (size_t key = 0; key <= row; key++)
                largest = (double)lane[key] > largest ? (double)lane[key] : largest;
            for (size_t key = 0; key <= row; key++)
                if (!(faults->first_out && key == 0 && row > 0)) {
                    weights[key] = exp((double)lane[key] - largest);
                    sum += weights[key];
                }
            sum += faults->sinks ? exp(0.3 * (double)head - largest) : 0;
            sum += faults->one_more ? 1 : 0;
            for (size_t key = 0; key < TOKENS; key++)
                probs[(row * HEADS + head) * TOKENS + key] =
                    faults->as_they_are ? (key <= row ? 1.000001f * lane[key] : 0)
                                        : (float)(weights[key] / (faults->undivided ? 1 : sum));
            for (size_t i = 0; i < SIZE; i++) {
                double out = 0;
                for (size_t key = 0; key < TOKENS; key++)
                    out += (double)probs[(row * HEADS + head) * TOKENS + key] *
                           (double)values[(key + TOKENS - faults->shift) % TOKENS * WIDTH + head * SIZE + i];
                context[row * WIDTH + head * SIZE + i] = (float)out;
            }
        }
}

static void expect_soft(struct soft_faults faults, bool at_context, const char *id, const char *words)
{
    struct trace trace;
    struct soft_faults right = {.sinks = faults.sinks || faults.sinks_out};
    float *scores, *values, probs[2][TOKENS * HEADS * TOKENS], context[2][TOTAL];
    trace_start(&trace);
    scores = made_values(TOKENS * HEADS * TOKENS);
    values = made_values(TOTAL);
    for (size_t i = 0; i < TOKENS * HEADS * TOKENS && faults.as_they_are; i++) /* masked as they were captured */
        scores[i] = i % TOKENS > i / TOKENS / HEADS ? -INFINITY : scores[i];
    attend(scores, values, &right, probs[0], context[0]);
    attend(scores, values, &faults, probs[1], context[1]);
    trace_add(&trace, "layer_0_attn_v_proj", values, values, SHAPE(TOKENS, HEADS, SIZE));
    trace_add(&trace, "layer_0_attn_scores", scores, scores, SHAPE(TOKENS, HEADS, TOKENS));
    trace_add(&trace, "layer_0_attn_probs", probs[0], probs[1], SHAPE(TOKENS, HEADS, TOKENS));
    if (at_context)
        trace_add(&trace, "layer_0_attn_context", context[0], context[1], SHAPE(TOKENS, HEADS, SIZE));
    finish(&trace, id, words);
    free(scores);
    free(values);
}

static void test_softmax(void **state)
{
    (void)state;
    expect_soft((struct soft_faults){.one_more = true}, false, "softmax", "an extra 1");
    expect_soft((struct soft_faults){.undivided = true}, false, "softmax", "does not normalize");
    expect_soft((struct soft_faults){.as_they_are = true}, false, "skipped-op", "applies no softmax");
    expect_soft((struct soft_faults){.sinks = true, .first_out = true}, false, "mask", NULL);
    expect_soft((struct soft_faults){.sinks_out = true}, false, "softmax", "leaves out the attention sinks");
    expect_soft((struct soft_faults){.shift = 1}, true, "shifted", "value of the token before it");
    expect_soft((struct soft_faults){0}, true, NULL, NULL);
}

/* A factor of each head of each token is what probabilities make that are divided by another sum; one of each token is
 * a norm's, though its name speaks of attention. */
static void test_factors_of_heads_and_tokens(void **state)
{
    enum { HEAD = 80, WIDE = 2 * HEAD, ALL = TOKENS * WIDE };
    (void)state;
    for (int by_head = 0; by_head < 2; by_head++) {
        struct trace trace;
        float *x, *other, *found;
        trace_start(&trace);
        x = made_values(ALL);
        other = made_values(ALL);
        found = made_values(ALL);
        for (size_t i = 0; i < ALL; i++)
            found[i] = x[i] * (float)(1.3 + 0.25 * sin((double)(by_head ? i / HEAD * 5 : i / WIDE)));
        trace_add(&trace, "layers.0.input", other, other, SHAPE(TOKENS, WIDE));
        trace_add(&trace, by_head ? "layers.0.attn_context" : "layers.0.post_attention_layernorm", x, found,
                  SHAPE(TOKENS, WIDE));
        finish(&trace, by_head ? "softmax" : "row-scaled",
               by_head ? "softmax has another denominator" : "each token has its own factor");
        free(x);
        free(other);
        free(found);
    }
}

enum { EXPERTS = 6, CHOSEN = 2 };

/* Experts are chosen with a bias that is not in the weights, so that the choice cannot be learnt from the logits: it
 * follows with the captured one, which stands behind the weights, next to them or so many tensors further. */
static void judge_chosen_with_a_bias(size_t further, const char *words)
{
    struct trace trace;
    float *x, *logits, weights[2][TOKENS * CHOSEN];
    int64_t chosen[TOKENS * CHOSEN];
    trace_start(&trace);
    x = made_values(TOTAL);
    logits = made_values(TOKENS * EXPERTS);
    for (size_t row = 0; row < TOKENS; row++) {
        const float *own = logits + row * EXPERTS;
        double first, second;
        chosen[row * CHOSEN] = (int64_t)(row % EXPERTS);
        chosen[row * CHOSEN + 1] = (int64_t)((row * 2 + 1) % EXPERTS);
        if (chosen[row * CHOSEN] == chosen[row * CHOSEN + 1])
            chosen[row * CHOSEN + 1] = (chosen[row * CHOSEN] + 2) % EXPERTS;
        first = (double)own[chosen[row * CHOSEN]];
        second = (double)own[chosen[row * CHOSEN + 1]];
        weights[0][row * CHOSEN] = (float)(2.5 / (1 + exp(-first)));
        weights[0][row * CHOSEN + 1] = (float)(2.5 / (1 + exp(-second)));
        weights[1][row * CHOSEN] = (float)(2.5 / (1 + exp(second - first)));
        weights[1][row * CHOSEN + 1] = (float)(2.5 / (1 + exp(first - second)));
    }
    trace_add(&trace, "layer_0_mlp_norm_output", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "layer_0_router_logits", logits, logits, SHAPE(TOKENS, EXPERTS));
    trace_add(&trace, "layer_0_router_weights", weights[0], weights[1], SHAPE(TOKENS, CHOSEN));
    for (size_t i = 0; i < further; i++)
        trace_add(&trace, i ? "layer_0_router_entropy" : "layer_0_router_z", x, x, SHAPE(TOKENS, 1));
    trace_add_integers(&trace, "layer_0_router_indices", chosen, chosen, TOKENS, CHOSEN);
    trace_diagnose(&trace, 2);
    assert_first(&trace, "router-gate", words);
    trace_end(&trace);
    free(x);
    free(logits);
}

static void test_chosen_with_a_bias(void **state)
{
    (void)state;
    judge_chosen_with_a_bias(0, "softmax probabilities divided by their sum, the reference as sigmoids");
    judge_chosen_with_a_bias(2, "softmax probabilities divided by their sum; the reference's are sigmoids");
}

/* x, the modulation, and nothing between them and the modulated norm. */
static void test_adaptive_norm(void **state)
{
    struct trace trace;
    float *x, *modulation, out[2][TOTAL];
    (void)state;
    trace_start(&trace);
    x = made_values(TOTAL);
    modulation = made_values(2 * WIDTH);
    for (size_t row = 0; row < TOKENS; row++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < WIDTH; i++)
            mean += (double)x[row * WIDTH + i] / WIDTH;
        for (size_t i = 0; i < WIDTH; i++)
            square += pow((double)x[row * WIDTH + i] - mean, 2) / WIDTH;
        for (size_t i = 0; i < WIDTH; i++) {
            double n = ((double)x[row * WIDTH + i] - mean) / sqrt(square + 1e-6);
            out[0][row * WIDTH + i] = (float)(n * (1 + (double)modulation[WIDTH + i]) + (double)modulation[i]);
            out[1][row * WIDTH + i] = (float)(n * (1 + (double)modulation[i]) + (double)modulation[WIDTH + i]);
        }
    }
    trace_add(&trace, "block_3_block_output", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "final_modulation", modulation, modulation, SHAPE(1, 2 * WIDTH));
    trace_add(&trace, "norm_out", out[0], out[1], SHAPE(TOKENS, WIDTH));
    finish(&trace, "modulation", "chunk 0 of final_modulation for the scale");
    free(x);
    free(modulation);
}

/* A product of x, whose weights are not there; `found` was made from another, and stands behind it. */
struct projection {
    struct trace trace;
    float *x, *weight, *spare, expected[TOTAL], found[TOTAL];
};

static void projection_start(struct projection *projection)
{
    trace_start(&projection->trace);
    projection->x = made_values(TOTAL);
    projection->weight = made_values(WIDTH * WIDTH);
    projection->spare = made_values(WIDTH * WIDTH);
    multiply(projection->x, projection->weight, TOKENS, WIDTH, WIDTH, projection->expected);
    memcpy(projection->found, projection->expected, sizeof projection->found);
}

static void projection_finish(struct projection *projection, const char *name, const char *id, const char *words)
{
    trace_add(&projection->trace, "layer_0_mlp_norm_output", projection->x, projection->x, SHAPE(TOKENS, WIDTH));
    trace_add(&projection->trace, name, projection->expected, projection->found, SHAPE(TOKENS, WIDTH));
    finish(&projection->trace, id, words);
    free(projection->x);
    free(projection->weight);
    free(projection->spare);
}

/* `added`: the same seen behind a residual sum, where anything inside a layer may have made the error. */
static void expect_rounded(bool added, const char *id, const char *words)
{
    struct projection p;
    projection_start(&p);
    for (size_t i = 0; i < TOTAL; i++) /* three kinds of tokens */
        p.x[i] = 0.7F * p.x[i] + 1.5F * p.spare[i / WIDTH % 3 * WIDTH + i % WIDTH];
    multiply(p.x, p.weight, TOKENS, WIDTH, WIDTH, p.expected);
    for (size_t i = 0; i < WIDTH * WIDTH; i++)
        p.weight[i] = (float)(nearbyint((double)p.weight[i] * 3) / 3);
    multiply(p.x, p.weight, TOKENS, WIDTH, WIDTH, p.found);
    for (size_t i = 0; i < TOTAL && added; i++) {
        p.expected[i] += 4 * p.x[i];
        p.found[i] += 4 * p.x[i];
    }
    projection_finish(&p, added ? "layer_0_layer_output" : "layer_0_mlp_up_proj", id, words);
}

static void test_rounded_weights(void **state)
{
    (void)state;
    expect_rounded(false, "quantization", "keeps the angles between tokens");
    expect_rounded(true, NULL, NULL); /* a whole layer: no known cause fits */
}

/* A run of channels with one factor is told as that, not as a factor per channel. */
static void test_run_of_channels(void **state)
{
    struct projection p;
    (void)state;
    projection_start(&p);
    for (size_t i = 0; i < TOTAL; i++)
        p.found[i] *= i % WIDTH >= 7 && i % WIDTH < 14 ? -1 : 1;
    projection_finish(&p, "layer_0_mlp_up_proj", "channels", "channels 7 to 13 of 24 are -1 times");
}

/* Tokens that have most in common: other weights move that by a constant per channel, and are no bias. */
static void test_alike_tokens(void **state)
{
    struct projection p;
    (void)state;
    projection_start(&p);
    for (size_t i = 0; i < TOTAL; i++)
        p.x[i] = (float)(0.1 * (double)p.x[i] + 2 * sin((double)(i % WIDTH)));
    multiply(p.x, p.weight, TOKENS, WIDTH, WIDTH, p.expected);
    multiply(p.x, p.spare, TOKENS, WIDTH, WIDTH, p.found);
    trace_add(&p.trace, "layer_0_mlp_norm_output", p.x, p.x, SHAPE(TOKENS, WIDTH));
    trace_add(&p.trace, "layer_0_mlp_up_proj", p.expected, p.found, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&p.trace, 1);
    assert_null(trace_cause(&p.trace, "offset"));
    assert_null(trace_cause(&p.trace, "affine"));
    trace_end(&p.trace);
    free(p.x);
    free(p.weight);
    free(p.spare);
}

/* The projection takes what the norm should have divided. */
static void test_undivided_input(void **state)
{
    struct projection p;
    float *normed;
    (void)state;
    projection_start(&p);
    normed = made_values(TOTAL);
    for (size_t row = 0; row < TOKENS; row++) {
        double square = 0, size = exp(0.2 * (double)(row % 7) - 0.6);
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            p.x[i] *= (float)size;
            square += (double)p.x[i] * (double)p.x[i] / WIDTH;
        }
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
            normed[i] = (float)((double)p.x[i] / sqrt(square) * (1 + 0.3 * sin((double)(i % WIDTH))));
    }
    multiply(normed, p.weight, TOKENS, WIDTH, WIDTH, p.expected);
    multiply(p.x, p.weight, TOKENS, WIDTH, WIDTH, p.found);
    trace_add(&p.trace, "layer_0_attn_residual_output", p.x, p.x, SHAPE(TOKENS, WIDTH));
    trace_add(&p.trace, "layer_0_mlp_norm_output", normed, normed, SHAPE(TOKENS, WIDTH));
    trace_add(&p.trace, "layer_0_mlp_up_proj", p.expected, p.found, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&p.trace, 2);
    assert_non_null(trace_cause(&p.trace, "wrong-input"));
    assert_non_null(strstr(trace_cause(&p.trace, "wrong-input")->summary, "layer_0_attn_residual_output"));
    trace_end(&p.trace);
    free(normed);
    free(p.x);
    free(p.weight);
    free(p.spare);
}

/* The keys' weight where the values' belongs, with the values' bias. */
static void test_sibling_but_bias(void **state)
{
    struct projection p;
    float keys[TOTAL];
    (void)state;
    projection_start(&p);
    multiply(p.x, p.spare, TOKENS, WIDTH, WIDTH, keys);
    for (size_t i = 0; i < TOTAL; i++)
        p.found[i] = keys[i] + (float)cos((double)(i % WIDTH));
    trace_add(&p.trace, "layer_0_attn_k_proj", keys, keys, SHAPE(TOKENS, WIDTH));
    projection_finish(&p, "layer_0_attn_v_proj", "swapped-with", "except for a constant per channel");
}

/* Blocks of eight numbers on a grid of fifteen levels. */
static void test_small_blocks(void **state)
{
    struct projection p;
    (void)state;
    projection_start(&p);
    for (size_t start = 0; start < TOTAL; start += 8) {
        double largest = 0;
        for (size_t i = start; i < start + 8; i++)
            largest = fabs((double)p.expected[i]) > largest ? fabs((double)p.expected[i]) : largest;
        for (size_t i = start; i < start + 8; i++)
            p.found[i] = (float)(nearbyint((double)p.expected[i] / largest * 7) * largest / 7);
    }
    projection_finish(&p, "layer_0_mlp_up_proj", "quantization", "each block of 8");
}

/* One number of the weight is wrong, behind an input that hardly differs from token to token; or one of a bias. */
static void expect_one_weight(double weight, double bias, const char *id, const char *words)
{
    struct projection p;
    projection_start(&p);
    for (size_t t = 0; t < TOKENS; t++)
        p.x[t * WIDTH + 5] = 3 + 0.5F * p.x[t * WIDTH + 5];
    multiply(p.x, p.weight, TOKENS, WIDTH, WIDTH, p.expected);
    shake(p.expected, p.found, TOTAL, 0.005);
    for (size_t t = 0; t < TOKENS; t++)
        p.found[t * WIDTH + 11] += (float)(weight * (double)p.x[t * WIDTH + 5] + bias);
    projection_finish(&p, "layer_0_mlp_up_proj", id, words);
}

static void test_one_weight(void **state)
{
    (void)state;
    expect_one_weight(1.1, 0, "channels",
                      "times channel 5 of layer_0_mlp_norm_output: one number of the weight is wrong");
    expect_one_weight(0, 3.3, "offset", "channel 11 is off by");
}

/* One number is wrong: no channel of an input explains that, however large it is there. */
static void test_one_number(void **state)
{
    struct projection p;
    (void)state;
    projection_start(&p);
    for (size_t i = 0; i < TOTAL; i++)
        p.x[i] *= i % WIDTH == 5 && i / WIDTH != 3 ? 0.001F : 1;
    p.x[3 * WIDTH + 5] = 9;
    multiply(p.x, p.weight, TOKENS, WIDTH, WIDTH, p.expected);
    shake(p.expected, p.found, TOTAL, 0.02);
    p.found[3 * WIDTH + 11] += 9;
    trace_add(&p.trace, "layer_0_mlp_norm_output", p.x, p.x, SHAPE(TOKENS, WIDTH));
    trace_add(&p.trace, "layer_0_mlp_up_proj", p.expected, p.found, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&p.trace, 1);
    assert_first(&p.trace, "sparse", NULL);
    for (size_t i = 0; i < p.trace.diagnosis.count; i++)
        assert_null(strstr(p.trace.diagnosis.causes[i].summary, "one number of the weight"));
    trace_end(&p.trace);
    free(p.x);
    free(p.weight);
    free(p.spare);
}

/* Attention that is spread more evenly loses a part that is unrelated to the rest. It leaves the first token alone. */
static void test_first_token_agrees(void **state)
{
    struct projection p;
    (void)state;
    projection_start(&p);
    multiply(p.x, p.spare, TOKENS, WIDTH, WIDTH, p.found);
    for (size_t i = 0; i < TOTAL; i++) {
        float other = p.found[i];
        p.found[i] = p.expected[i];
        p.expected[i] += i < WIDTH ? 0 : 0.8F * other;
    }
    trace_add(&p.trace, "layer_0_attn_o_proj", p.expected, p.found, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&p.trace, 0);
    assert_null(trace_cause(&p.trace, "term-missing"));
    trace_end(&p.trace);
    free(p.x);
    free(p.weight);
    free(p.spare);
}

/* Scores of queries that are turned the other way, against keys that nobody captured. With a mask the first token sees
 * itself alone, and scale and softmax spare it as well. */
static void expect_scores(bool masked, const char *id, const char *words)
{
    enum { SCORES = TOKENS * HEADS * TOKENS };
    struct trace trace;
    float *q, *k, turned[2][TOTAL], scores[2][SCORES];
    trace_start(&trace);
    q = made_values(TOTAL);
    k = made_values(TOTAL);
    for (int side = 0; side < 2; side++) {
        turn_more(q, 0, side ? -40 : 40, turned[side]);
        for (size_t i = 0; i < SCORES; i++) {
            const size_t token = i / (HEADS * TOKENS), head = i / TOKENS % HEADS, key = i % TOKENS;
            double sum = 0;
            for (size_t c = 0; c < SIZE; c++)
                sum += (double)turned[side][token * WIDTH + head * SIZE + c] * (double)k[key * WIDTH + head * SIZE + c];
            scores[side][i] = masked && key > token ? -INFINITY : (float)(3 * sum);
        }
    }
    trace_add(&trace, "layer_0_attn_q_proj_raw", q, q, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "layer_0_attn_scores", scores[0], scores[1], SHAPE(TOKENS, HEADS, TOKENS));
    trace_diagnose(&trace, 1);
    assert_first(&trace, id, words);
    assert_null(trace_cause(&trace, "unrelated"));
    trace_end(&trace);
    free(q);
    free(k);
}

static void test_scores_of_the_first_token(void **state)
{
    (void)state;
    expect_scores(false, "rotation", "the queries are turned otherwise");
    expect_scores(true, "softmax", "sees only itself");
}

/* Of a batch one sequence is looked at: the one with the NaN, whatever larger errors the others have. */
static void test_nan_in_a_batch(void **state)
{
    enum { LONG = 20, ALL = 2 * LONG * WIDTH };
    struct trace trace;
    float *values, found[ALL];
    (void)state;
    trace_start(&trace);
    for (int i = 0; i < 4; i++) {
        values = made_values(ALL);
        memcpy(found, values, sizeof found);
        found[3] += i == 3 ? 5 : 0;
        found[(LONG + 13) * WIDTH + 2] = i == 3 ? NAN : found[(LONG + 13) * WIDTH + 2];
        trace_add(&trace, made_name("layer_%d_layer_output", i), values, found, SHAPE(2, LONG, WIDTH));
        free(values);
    }
    finish(&trace, "nan", "at [1,13,2]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_sequence),
        cmocka_unit_test(test_turned_without_input),
        cmocka_unit_test(test_layout_before_rotation),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_chosen_with_a_bias),
        cmocka_unit_test(test_adaptive_norm),
        cmocka_unit_test(test_rounded_weights),
        cmocka_unit_test(test_run_of_channels),
        cmocka_unit_test(test_alike_tokens),
        cmocka_unit_test(test_undivided_input),
        cmocka_unit_test(test_sibling_but_bias),
        cmocka_unit_test(test_small_blocks),
        cmocka_unit_test(test_one_weight),
        cmocka_unit_test(test_one_number),
        cmocka_unit_test(test_first_token_agrees),
        cmocka_unit_test(test_scores_of_the_first_token),
        cmocka_unit_test(test_nan_in_a_batch),
        cmocka_unit_test(test_factors_of_heads_and_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
