/* What a product was given, told without its weight: each where it is planted, and silence where the weight is what is
 * wrong, the bias, or nothing. */
#include "diagnose/odds_noise.h"
#include "made_trace.h"

enum { TOKENS = 14, HIDDEN = 48, INNER = 80, HEADS = 4 };

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double relu(double x)
{
    return x > 0 ? x : 0;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double clip(double x, double limit)
{
    return x < -limit ? -limit : x > limit ? limit : x;
}

/* y = x W + b, W of [out, in]. */
static float *product(const float *x, const float *weight, const float *bias, size_t in, size_t out)
{
    float *y = malloc(TOKENS * out * sizeof *y);
    assert_non_null(y);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t o = 0; o < out; o++) {
            double sum = bias ? (double)bias[o] : 0;
            for (size_t i = 0; i < in; i++)
                sum += (double)x[t * in + i] * (double)weight[o * in + i];
            y[t * out + o] = (float)(sum / sqrt((double)in));
        }
    return y;
}

enum way {
    RIGHT,
    FUNCTION,
    SWAPPED,
    UNGATED,
    ADDED,
    CLIPPED,
    CLIPPED_OTHER,
    CLIPPED_RESULT,
    AFTERWARDS,
    ON_BOTH,
    ONE_MORE,
    REVERSED,
    HALF,
    OTHER_WEIGHT,
    OTHER_BIAS
};

static double hidden_value(enum way way, double (*f)(double), double x, double y)
{
    switch (way) {
    case SWAPPED:
        return f(y) * x;
    case UNGATED:
        return f(x);
    case ADDED:
        return f(x) + y;
    case CLIPPED:
        return f(x < 1 ? x : 1) * clip(y, 1);
    case CLIPPED_OTHER:
        return f(x) * clip(y, 0.7);
    case CLIPPED_RESULT:
        return clip(f(x) * y, 0.7);
    case AFTERWARDS:
        return f(x * y);
    case ON_BOTH:
        return f(x) * f(y);
    case ONE_MORE:
        return f(x) * (y + 1);
    default:
        return f(x) * y;
    }
}

/* Gate, up and down, nothing between them, and no weights. */
static void expect_function(enum way way, double (*right)(double), double (*wrong)(double), double noise,
                            const char *id, const char *words)
{
    struct trace trace;
    float *inputs[2][2], *hidden[2], *outputs[2], *weights[2], *biases[2];
    trace_start(&trace);
    for (int k = 0; k < 2; k++) {
        inputs[0][k] = made_values(TOKENS * INNER);
        inputs[1][k] = made_values(TOKENS * INNER);
        shake(inputs[0][k], inputs[1][k], TOKENS * INNER, noise);
        weights[k] = made_values(HIDDEN * INNER);
        biases[k] = made_values(HIDDEN);
    }
    for (int side = 0; side < 2; side++) {
        hidden[side] = made_values(TOKENS * INNER);
        for (size_t i = 0; i < TOKENS * INNER; i++) {
            size_t from = side && way == REVERSED ? i / INNER * INNER + INNER - 1 - i % INNER : i;
            hidden[side][i] = (float)hidden_value(side ? way : RIGHT, side ? wrong : right,
                                                  (double)inputs[side][0][from], (double)inputs[side][1][from]);
            if (side && way == HALF && i % INNER < INNER / 2)
                hidden[side][i] = 0;
        }
        outputs[side] = product(hidden[side], weights[side && way == OTHER_WEIGHT], biases[side && way == OTHER_BIAS],
                                INNER, HIDDEN);
        shake(outputs[side], outputs[side], TOKENS * HIDDEN, side ? noise : 0);
    }
    trace_add(&trace, "model.layers.2.mlp.gate_proj", inputs[0][0], inputs[1][0], SHAPE(TOKENS, INNER));
    trace_add(&trace, "model.layers.2.mlp.up_proj", inputs[0][1], inputs[1][1], SHAPE(TOKENS, INNER));
    trace_diagnose(&trace,
                   trace_add(&trace, "model.layers.2.mlp.down_proj", outputs[0], outputs[1], SHAPE(TOKENS, HIDDEN)));
    if (id)
        assert_first(&trace, id, words);
    for (size_t i = 0; i < trace.diagnosis.count && !id; i++)
        if (strstr(trace.diagnosis.causes[i].summary, "its weight is not at hand")) {
            trace_print(&trace);
            fail_msg("an input is blamed for what it has not done");
        }
    trace_end(&trace);
    for (int k = 0; k < 2; k++) {
        free(inputs[0][k]);
        free(inputs[1][k]);
        free(weights[k]);
        free(biases[k]);
        free(hidden[k]);
        free(outputs[k]);
    }
}

#define GATE "model.layers.2.mlp.gate_proj"
#define UP   "model.layers.2.mlp.up_proj"

static void test_functions_without_weights(void **state)
{
    static const double noises[] = {1e-7, 3e-3};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        expect_function(FUNCTION, silu, relu, noises[n], "activation", "is given relu(" GATE ") * " UP " instead of");
        expect_function(FUNCTION, silu, sigmoid, noises[n], "activation",
                        "is given sigmoid(" GATE ") * " UP " instead of silu(" GATE ") * " UP);
        expect_function(FUNCTION, gelu, relu, noises[n], "activation", "is given relu(" GATE ") * " UP);
        expect_function(SWAPPED, silu, silu, noises[n], "activation", "is given silu(" UP ") * " GATE " instead of");
        expect_function(UNGATED, silu, silu, noises[n], "activation", "is given silu(" GATE ") instead of");
        expect_function(ADDED, silu, silu, noises[n], "activation", "is given silu(" GATE ") + " UP " instead of");
        expect_function(CLIPPED, silu, silu, noises[n], "clamped", "with both of them clipped at 1 instead of");
        /* 14 tokens hardly tell silu from a gelu; the limit is 0.7 */
        expect_function(CLIPPED_OTHER, silu, silu, noises[n], "clamped", "with " UP " clipped at 0.");
        expect_function(CLIPPED_RESULT, silu, silu, noises[n], "clamped", UP ", clipped at 0.");
        expect_function(AFTERWARDS, silu, silu, noises[n], "activation", "is given silu(" GATE " * " UP ") instead of");
        expect_function(ON_BOTH, silu, silu, noises[n], "activation", "is given silu(" GATE ") * silu(" UP ") instead");
        expect_function(ONE_MORE, silu, silu, noises[n], "activation",
                        "is given silu(" GATE ") * (" UP " + 1) instead");
        expect_function(REVERSED, silu, silu, noises[n], "permuted", "with its channels in reverse instead of");
        expect_function(HALF, silu, silu, noises[n], "term-missing",
                        "is given all but piece 0 of 2 equal pieces of the channels of silu(" GATE ") * " UP);
    }
}

static void test_weights_are_not_inputs(void **state)
{
    static const double noises[] = {1e-7, 3e-3};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        expect_function(RIGHT, silu, silu, noises[n], NULL, NULL);
        expect_function(OTHER_WEIGHT, silu, silu, noises[n], NULL, NULL);
        expect_function(OTHER_WEIGHT, gelu, gelu, noises[n], NULL, NULL);
        expect_function(OTHER_BIAS, silu, silu, noises[n], NULL, NULL);
    }
}

/* x, its norm with a weight per channel, and a product of one of them. */
static void expect_input(bool skipped, bool other_weight, double noise, const char *id, const char *words)
{
    struct trace trace;
    float *x[2], *normed[2], *outputs[2], *gains, *weights[2];
    trace_start(&trace);
    gains = made_values(HIDDEN);
    weights[0] = made_values(INNER * HIDDEN);
    weights[1] = made_values(INNER * HIDDEN);
    for (int side = 0; side < 2; side++) {
        x[side] = made_values(TOKENS * HIDDEN);
        normed[side] = made_values(TOKENS * HIDDEN);
    }
    for (size_t t = 0; t < TOKENS; t++) /* tokens of different sizes */
        for (size_t i = 0; i < HIDDEN; i++)
            x[0][t * HIDDEN + i] *= (float)(1 + t % 3);
    shake(x[0], x[1], TOKENS * HIDDEN, noise);
    for (int side = 0; side < 2; side++) {
        for (size_t t = 0; t < TOKENS; t++) {
            double size = 0;
            for (size_t i = 0; i < HIDDEN; i++)
                size += (double)x[side][t * HIDDEN + i] * (double)x[side][t * HIDDEN + i];
            for (size_t i = 0; i < HIDDEN; i++)
                normed[side][t * HIDDEN + i] = (float)((1 + 0.3 * (double)gains[i]) * (double)x[side][t * HIDDEN + i] /
                                                       sqrt(size / HIDDEN + 1e-6));
        }
        outputs[side] =
            product(side && skipped ? x[side] : normed[side], weights[side && other_weight], NULL, HIDDEN, INNER);
        shake(outputs[side], outputs[side], TOKENS * INNER, side ? noise : 0);
    }
    trace_add(&trace, "model.layers.1", x[0], x[1], SHAPE(TOKENS, HIDDEN));
    trace_add(&trace, "model.layers.2.input_layernorm", normed[0], normed[1], SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace,
                   trace_add(&trace, "model.layers.2.self_attn.v_proj", outputs[0], outputs[1], SHAPE(TOKENS, INNER)));
    if (id)
        assert_first(&trace, id, words);
    else
        assert_null(trace_cause(&trace, "wrong-input"));
    trace_end(&trace);
    for (int side = 0; side < 2; side++) {
        free(x[side]);
        free(normed[side]);
        free(outputs[side]);
        free(weights[side]);
    }
    free(gains);
}

static void test_norm_that_is_passed_by(void **state)
{
    (void)state;
    expect_input(true, false, 1e-7, "wrong-input", "is given model.layers.1 instead of model.layers.2.input_layernorm");
    expect_input(true, false, 3e-3, "wrong-input", "is given model.layers.1 instead of model.layers.2.input_layernorm");
    expect_input(false, false, 3e-3, NULL, NULL);
    expect_input(false, true, 1e-7, NULL, NULL);
    expect_input(false, true, 3e-3, NULL, NULL);
}

/* A router that is given the stream instead of its norm. There are so many tokens that they tell nearly all of the
 * weight, and what is left is far less than of a few. */
static void test_tokens_that_tell_most_of_a_weight(void **state)
{
    enum { MANY = 36, EXPERTS = 16 };
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct trace trace;
        float *x, *gains, *weights[2], normed[MANY * HIDDEN], out[2][MANY * EXPERTS];
        trace_start(&trace);
        x = made_values(MANY * HIDDEN);
        gains = made_values(HIDDEN);
        weights[0] = made_values(EXPERTS * HIDDEN);
        weights[1] = made_values(EXPERTS * HIDDEN);
        for (size_t t = 0; t < MANY; t++) {
            double size = 0;
            for (size_t i = t * HIDDEN; i < (t + 1) * HIDDEN; i++) {
                x[i] *= (float)(1 + t % 3);
                size += (double)x[i] * (double)x[i] / HIDDEN;
            }
            for (size_t i = t * HIDDEN; i < (t + 1) * HIDDEN; i++)
                normed[i] = (float)((1 + 0.3 * (double)gains[i % HIDDEN]) * (double)x[i] / sqrt(size));
        }
        for (size_t at = 0; at < MANY * EXPERTS; at++) {
            double sums[2] = {0, 0};
            for (size_t i = 0; i < HIDDEN; i++) {
                const size_t in = at / EXPERTS * HIDDEN + i, of = at % EXPERTS * HIDDEN + i;
                sums[0] += (double)normed[in] * (double)weights[0][of];
                sums[1] += (double)(wrong ? normed : x)[in] * (double)weights[wrong][of];
            }
            out[0][at] = (float)sums[0];
            out[1][at] = (float)sums[1];
        }
        trace_add(&trace, "input_embeddings", x, x, SHAPE(MANY, HIDDEN));
        trace_add(&trace, "layer_0_mlp_norm_output", normed, normed, SHAPE(MANY, HIDDEN));
        trace_diagnose(&trace, trace_add(&trace, "layer_0_router_logits", out[0], out[1], SHAPE(MANY, EXPERTS)));
        if (wrong)
            assert_null(trace_cause(&trace, "wrong-input"));
        else
            assert_first(&trace, "wrong-input", "is given input_embeddings instead of layer_0_mlp_norm_output");
        trace_end(&trace);
        free(x);
        free(gains);
        free(weights[0]);
        free(weights[1]);
    }
}

/* The norm at the beginning of the layer in the place of that before the MLP, with all of attention between them. */
static void test_the_other_norm_of_a_layer(void **state)
{
    struct trace trace;
    float *first, *second, *weight, *gate, *between[12], *outputs[2];
    (void)state;
    trace_start(&trace);
    first = made_values(TOKENS * HIDDEN);
    second = made_values(TOKENS * HIDDEN);
    gate = made_values(TOKENS * INNER);
    weight = made_values(INNER * HIDDEN);
    trace_add(&trace, "layer_0_attn_norm_output", first, first, SHAPE(TOKENS, HIDDEN));
    for (int i = 0; i < 12; i++) {
        between[i] = made_values(TOKENS * HIDDEN);
        trace_add(&trace, made_name("layer_0_step_%d", i), between[i], between[i], SHAPE(TOKENS, HIDDEN));
    }
    trace_add(&trace, "layer_0_mlp_norm_output", second, second, SHAPE(TOKENS, HIDDEN));
    trace_add(&trace, "layer_0_mlp_gate_proj", gate, gate, SHAPE(TOKENS, INNER));
    outputs[0] = product(second, weight, NULL, HIDDEN, INNER);
    outputs[1] = product(first, weight, NULL, HIDDEN, INNER);
    trace_diagnose(&trace, trace_add(&trace, "layer_0_mlp_up_proj", outputs[0], outputs[1], SHAPE(TOKENS, INNER)));
    assert_first(&trace, "wrong-input", "is given layer_0_attn_norm_output instead of layer_0_mlp_norm_output");
    trace_end(&trace);
    for (int i = 0; i < 12; i++)
        free(between[i]);
    free(first);
    free(second);
    free(gate);
    free(weight);
    free(outputs[0]);
    free(outputs[1]);
}

/* Heads of a context that are put together in the wrong order. */
static void expect_order(bool by_head, const char *words)
{
    enum { SIZE = HIDDEN / HEADS };
    struct trace trace;
    float *context, *turned, *outputs[2], *weight;
    trace_start(&trace);
    context = made_values(TOKENS * HIDDEN);
    turned = made_values(TOKENS * HIDDEN);
    weight = made_values(HIDDEN * HIDDEN);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t h = 0; h < HEADS; h++)
            for (size_t i = 0; i < SIZE; i++)
                turned[by_head ? (h * TOKENS + t) * SIZE + i : t * HIDDEN + i * HEADS + h] =
                    context[(t * HEADS + h) * SIZE + i];
    outputs[0] = product(context, weight, NULL, HIDDEN, HIDDEN);
    outputs[1] = product(turned, weight, NULL, HIDDEN, HIDDEN);
    trace_add(&trace, "layer_0_attn_context", context, context, SHAPE(TOKENS, HEADS, SIZE));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_o_proj", outputs[0], outputs[1], SHAPE(TOKENS, HIDDEN)));
    assert_first(&trace, "permuted", words);
    trace_end(&trace);
    free(context);
    free(turned);
    free(outputs[0]);
    free(outputs[1]);
    free(weight);
}

static void test_heads_in_another_order(void **state)
{
    (void)state;
    expect_order(true, "read as [tokens, heads * size] while memory holds [heads, tokens, size]");
    expect_order(false, "with each row as [size, heads] instead of [heads, size]");
}

/* Attention from captured queries, keys and values to the projection behind it, with a rotary embedding on the way. */
struct attention {
    double theta, scale, key_turns, key_from;
    long ahead; /* how many tokens ahead are seen */
    bool half_missing, other_weight;
    size_t one_missing; /* head, counted from one */
};

static void turn_head(const struct attention *how, double position, const float *from, double *out)
{
    enum { SIZE = HIDDEN / HEADS };
    for (size_t i = 0; i < SIZE / 2; i++) {
        double angle = position * pow(how->theta, -2 * (double)i / SIZE);
        double x = (double)from[i], y = (double)from[i + SIZE / 2];
        out[i] = x * cos(angle) - y * sin(angle);
        out[i + SIZE / 2] = x * sin(angle) + y * cos(angle);
    }
}

static float *attend(const struct attention *how, float *const *operands)
{
    enum { SIZE = HIDDEN / HEADS };
    float *context = calloc(TOKENS * HIDDEN, sizeof *context);
    assert_non_null(context);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t h = 0; h < HEADS; h++) {
            double q[SIZE], k[SIZE], weights[TOKENS], sum = 0;
            turn_head(how, (double)t, operands[0] + t * HIDDEN + h * SIZE, q);
            for (size_t s = 0; s < TOKENS && (long)s <= (long)t + how->ahead; s++) {
                double score = 0;
                turn_head(how, how->key_turns * (double)s + how->key_from, operands[1] + s * HIDDEN + h * SIZE, k);
                for (size_t i = 0; i < SIZE; i++)
                    score += q[i] * k[i];
                weights[s] = exp(how->scale * score / sqrt(SIZE));
                sum += weights[s];
            }
            for (size_t s = 0; s < TOKENS && (long)s <= (long)t + how->ahead; s++)
                for (size_t i = 0; i < SIZE && !(how->half_missing && h >= HEADS / 2) && h + 1 != how->one_missing; i++)
                    context[t * HIDDEN + h * SIZE + i] +=
                        (float)(weights[s] / sum * (double)operands[2][s * HIDDEN + h * SIZE + i]);
        }
    return context;
}

static void expect_attention(struct attention wrong, double noise, const char *id, const char *words)
{
    static const char *const names[] = {"model.layers.2.self_attn.q_proj", "model.layers.2.self_attn.k_proj",
                                        "model.layers.2.self_attn.v_proj"};
    const struct attention right = {.theta = 1e4, .scale = 1, .key_turns = 1};
    struct trace trace;
    float *operands[2][3], *contexts[2], *outputs[2], *weights[2];
    trace_start(&trace);
    for (int k = 0; k < 3; k++) {
        operands[0][k] = made_values(TOKENS * HIDDEN);
        operands[1][k] = made_values(TOKENS * HIDDEN);
        for (size_t i = 0; i < TOKENS * HIDDEN && k < 2; i++)
            operands[0][k][i] *= 2;
        shake(operands[0][k], operands[1][k], TOKENS * HIDDEN, noise);
        trace_add(&trace, names[k], operands[0][k], operands[1][k], SHAPE(TOKENS, HEADS, HIDDEN / HEADS));
    }
    weights[0] = made_values(INNER * HIDDEN);
    weights[1] = made_values(INNER * HIDDEN);
    for (int side = 0; side < 2; side++) {
        contexts[side] = attend(side ? &wrong : &right, operands[side]);
        outputs[side] = product(contexts[side], weights[side && wrong.other_weight], NULL, HIDDEN, INNER);
        shake(outputs[side], outputs[side], TOKENS * INNER, side ? noise : 0);
    }
    trace_diagnose(&trace,
                   trace_add(&trace, "model.layers.2.self_attn.o_proj", outputs[0], outputs[1], SHAPE(TOKENS, INNER)));
    if (id)
        assert_first(&trace, id, words);
    for (size_t i = 0; i < trace.diagnosis.count && !id; i++)
        if (strstr(trace.diagnosis.causes[i].summary, "is not at hand")) {
            trace_print(&trace);
            fail_msg("attention is blamed for what it has not done");
        }
    trace_end(&trace);
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < 3; k++)
            free(operands[side][k]);
        free(contexts[side]);
        free(outputs[side]);
        free(weights[side]);
    }
}

static void test_attention_without_weights(void **state)
{
    static const double noises[] = {1e-7, 3e-3};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        const double noise = noises[n];
        expect_attention((struct attention){.theta = 1e6, .scale = 1, .key_turns = 1}, noise, "rotation",
                         "theta = 1000000, the reference's theta = 10000 (the weight behind it is not at hand");
        expect_attention((struct attention){.theta = 1e4, .scale = 1, .key_turns = -1}, noise, "rotation",
                         "rotates the keys in the opposite direction");
        expect_attention((struct attention){.theta = 1e4, .scale = 1, .key_turns = 1, .key_from = 3}, noise, "rotation",
                         "keys are off by +3 from those of its queries");
        expect_attention((struct attention){.theta = 1e4, .scale = 0.5, .key_turns = 1}, noise, "softmax",
                         "0.5 times the reference's");
        expect_attention((struct attention){.theta = 1e4, .scale = 1, .key_turns = 1, .ahead = 1}, noise, "mask",
                         "each token sees one token ahead");
        expect_attention((struct attention){.theta = 1e4, .scale = 1, .key_turns = 1, .half_missing = true}, noise,
                         "term-missing", "of 2 equal pieces of the context, piece 1 is missing");
        expect_attention((struct attention){.theta = 1e4, .scale = 1, .key_turns = 1, .one_missing = 2}, noise,
                         "term-missing", "heads of the context, head 1 is missing (");
        expect_attention((struct attention){.theta = 1e4, .scale = 1, .key_turns = 1}, noise, NULL, NULL);
        expect_attention((struct attention){.theta = 1e4, .scale = 1, .key_turns = 1, .other_weight = true}, noise,
                         NULL, NULL);
    }
}

/* The likelihood of rows with a covariance, a scale and rounding, beside what elimination makes of the same. */
static void test_noise_of_a_covariance(void **state)
{
    enum { COUNT = 7, NUMBERS = 20 };
    double covariance[COUNT * COUNT], given[COUNT * COUNT], products[COUNT * COUNT], energy[COUNT];
    struct ts_odds_noise noise;
    (void)state;
    for (int rank = 2; rank <= NUMBERS; rank += 9) { /* of fewer directions than rows, too */
        float *x = made_values(COUNT * NUMBERS), *y = made_values(COUNT * NUMBERS);
        for (size_t i = 0; i < COUNT * COUNT; i++) {
            covariance[i] = products[i] = 0;
            for (int k = 0; k < NUMBERS; k++) {
                const size_t s = i / COUNT * NUMBERS + (size_t)k, t = i % COUNT * NUMBERS + (size_t)k;
                covariance[i] += k < rank ? (double)x[s] * (double)x[t] : 0;
                products[i] += (double)y[s] * (double)y[t];
            }
            given[i] = covariance[i];
        }
        for (size_t t = 0; t < COUNT; t++)
            energy[t] = 0.5 + (double)t;
        ts_odds_noise_open(&noise, given, products, COUNT, NUMBERS, energy);
        for (int way = 0; way < 4; way++) {
            const double scale = way % 2 ? 3 : 0.2, share = way / 2 ? 1e-6 : 0.1;
            double table[COUNT][2 * COUNT], logs = 0, trace = 0, left, found;
            for (size_t s = 0; s < COUNT; s++)
                for (size_t t = 0; t < COUNT; t++) {
                    table[s][t] = scale * covariance[s * COUNT + t] + (s == t ? share * energy[s] : 0);
                    table[s][COUNT + t] = products[s * COUNT + t];
                }
            for (size_t k = 0; k < COUNT; k++) {
                const double pivot = table[k][k];
                logs += log(pivot);
                for (size_t t = 0; t < 2 * COUNT; t++)
                    table[k][t] /= pivot;
                for (size_t s = 0; s < COUNT; s++) {
                    const double factor = table[s][k];
                    for (size_t t = 0; t < 2 * COUNT && s != k; t++)
                        table[s][t] -= factor * table[k][t];
                }
            }
            for (size_t k = 0; k < COUNT; k++)
                trace += table[k][COUNT + k];
            found = ts_odds_noise_try(&noise, scale, share, &left);
            trace /= COUNT * NUMBERS;
            assert_true(fabs(left - trace) < 1e-6 * trace);
            assert_true(fabs(found + 0.5 * (logs / COUNT + trace)) < 1e-6 * (1 + trace));
        }
        free(x);
        free(y);
    }
}

/* Attention over `MIXED` tokens, of which nothing inside was captured. */
enum { MIXED = 36, MIXED_WIDTH = 96, MIXED_HEADS = 6 };

static void mix(const float *x, float *const weights[4], double factor, float *out)
{
    enum { SIZE_OF_HEAD = MIXED_WIDTH / MIXED_HEADS };
    float *parts[4];
    for (int k = 0; k < 4; k++)
        parts[k] = calloc((size_t)MIXED * MIXED_WIDTH, sizeof(float));
    for (int k = 0; k < 4; k++) {
        for (size_t t = 0; t < MIXED; t++)
            for (size_t o = 0; o < MIXED_WIDTH; o++) {
                double sum = 0;
                for (size_t i = 0; i < MIXED_WIDTH; i++)
                    sum += (double)(k == 3 ? out : x)[t * MIXED_WIDTH + i] * (double)weights[k][o * MIXED_WIDTH + i];
                parts[k][t * MIXED_WIDTH + o] = (float)(sum / sqrt(MIXED_WIDTH));
            }
        for (size_t head = 0; k == 2 && head < MIXED_HEADS; head++)
            for (size_t t = 0; t < MIXED; t++) {
                double scores[MIXED], sum = 0;
                const size_t at = head * SIZE_OF_HEAD;
                for (size_t s = 0; s < MIXED; s++) {
                    double dot = 0;
                    for (size_t i = at; i < at + SIZE_OF_HEAD; i++)
                        dot += (double)parts[0][t * MIXED_WIDTH + i] * (double)parts[1][s * MIXED_WIDTH + i];
                    scores[s] = exp(factor * dot / sqrt(SIZE_OF_HEAD));
                    sum += scores[s];
                }
                for (size_t i = at; i < at + SIZE_OF_HEAD; i++) {
                    double value = 0;
                    for (size_t s = 0; s < MIXED; s++)
                        value += scores[s] / sum * (double)parts[2][s * MIXED_WIDTH + i];
                    out[t * MIXED_WIDTH + i] = (float)value;
                }
            }
    }
    memcpy(out, parts[3], (size_t)MIXED * MIXED_WIDTH * sizeof *out);
    for (int k = 0; k < 4; k++)
        free(parts[k]);
}

/* A module's attention as a whole, at half the temperature: what came before it is not what a product was given. */
static void test_attention_is_no_product(void **state)
{
    (void)state;
    for (int seed = 0; seed < 9; seed++) {
        struct trace trace;
        float *weights[4], *before, *x, *blocks, a[MIXED * MIXED_WIDTH], b[MIXED * MIXED_WIDTH];
        trace_start(&trace);
        dice_state = 100 + (uint64_t)seed;
        for (int k = 0; k < 4; k++)
            weights[k] = made_values((size_t)MIXED_WIDTH * MIXED_WIDTH);
        x = made_values((size_t)MIXED * MIXED_WIDTH);
        before = made_values((size_t)MIXED * MIXED_WIDTH);
        blocks = made_values((size_t)MIXED * MIXED_WIDTH);
        for (size_t i = 0; i < (size_t)MIXED * MIXED_WIDTH; i++) { /* what a shift adds, tokens have in common */
            x[i] += before[i % MIXED_WIDTH] * (float)(seed % 3);
            blocks[i] = x[i] + 0.3F * blocks[i];
        }
        mix(x, weights, 1, a);
        mix(x, weights, 0.5, b);
        trace_add(&trace, "transformer_blocks.0.attn", before, before, SHAPE(MIXED, MIXED_WIDTH));
        trace_add(&trace, "transformer_blocks.0", blocks, blocks, SHAPE(MIXED, MIXED_WIDTH));
        trace_add(&trace, "transformer_blocks.1.norm1", x, x, SHAPE(MIXED, MIXED_WIDTH));
        trace_diagnose(&trace, trace_add(&trace, "transformer_blocks.1.attn", a, b, SHAPE(MIXED, MIXED_WIDTH)));
        for (size_t i = 0; i < trace.diagnosis.count; i++)
            if (strstr(trace.diagnosis.causes[i].summary, "the product that makes this"))
                fail_msg("%s", trace.diagnosis.causes[i].summary);
        for (int k = 0; k < 4; k++)
            free(weights[k]);
        free(before);
        free(x);
        free(blocks);
        trace_end(&trace);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_is_no_product),   cmocka_unit_test(test_noise_of_a_covariance),
        cmocka_unit_test(test_functions_without_weights), cmocka_unit_test(test_weights_are_not_inputs),
        cmocka_unit_test(test_norm_that_is_passed_by),    cmocka_unit_test(test_tokens_that_tell_most_of_a_weight),
        cmocka_unit_test(test_the_other_norm_of_a_layer), cmocka_unit_test(test_heads_in_another_order),
        cmocka_unit_test(test_attention_without_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
