/* What hooks on modules show: the inputs of a function and the product behind it, router logits and what the experts
 * make, nothing between. Each cause where it is planted, and silence where it is not. */
#include "made_trace.h"

enum { TOKENS = 22, HIDDEN = 36, INNER = 52, EXPERTS = 7, CHOSEN = 2 };

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

static double same(double x)
{
    return x;
}

/* y = x W, W of [out, in], plus a bias. */
static void multiply(const float *x, const float *weight, const float *bias, size_t tokens, size_t in, size_t out,
                     float *y)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t o = 0; o < out; o++) {
            double sum = bias ? (double)bias[o] : 0;
            for (size_t i = 0; i < in; i++)
                sum += (double)x[t * in + i] * (double)weight[o * in + i];
            y[t * out + o] = (float)sum;
        }
}

/* A gated or a plain step between projections, with the file's down weight at hand. way: what the candidate does. */
enum way { RIGHT, OTHER, EXCHANGED, UNGATED, OTHER_WEIGHT };

static void hidden_function(size_t tokens, bool gated, double (*right)(double), double (*wrong)(double), enum way way,
                            double noise, const char *words)
{
    struct trace trace;
    struct ts_error error;
    struct ts_bundle *file = ts_bundle_new("weights");
    float *down, *bias, *inputs[2][2], *outputs[2], *x, *later;
    trace_start(&trace);
    later = made_values(HIDDEN * INNER);
    down = made_values(HIDDEN * INNER);
    bias = made_values(HIDDEN);
    x = made_values(tokens * HIDDEN);
    for (int k = 0; k < 2; k++) {
        inputs[0][k] = made_values(tokens * INNER);
        inputs[1][k] = made_values(tokens * INNER);
        shake(inputs[0][k], inputs[1][k], tokens * INNER, noise);
    }
    made_add(file, "model.layers.4.mlp.down_proj.weight", down, SHAPE(HIDDEN, INNER));
    made_add(file, "model.layers.4.mlp.down_proj.bias", bias, SHAPE(HIDDEN));
    made_add(file, "model.layers.3.mlp.down_proj.weight", inputs[0][0], SHAPE(HIDDEN, INNER < tokens ? INNER : tokens));
    made_add(file, "model.layers.5.mlp.down_proj.weight", later, SHAPE(HIDDEN, INNER));
    made_add(file, "model.layers.5.mlp.down_proj.bias", bias, SHAPE(HIDDEN));
    if (ts_evidence_make(file, NULL, NULL, &trace.evidence, &error) != TS_OK)
        fail_msg("%s", error.message);
    for (int side = 0; side < 2; side++) {
        float *hidden = malloc(tokens * INNER * sizeof *hidden);
        outputs[side] = malloc(tokens * HIDDEN * sizeof *outputs[side]);
        assert_true(hidden && outputs[side]);
        for (size_t i = 0; i < tokens * INNER; i++) {
            double a = (double)inputs[side][0][i], b = (double)inputs[side][1][i];
            double (*f)(double) = side && way == OTHER ? wrong : right;
            hidden[i] = (float)(!gated || (side && way == UNGATED) ? f(a)
                                : side && way == EXCHANGED         ? f(b) * a
                                                                   : f(a) * b);
        }
        multiply(hidden, side && way == OTHER_WEIGHT ? later : down, bias, tokens, INNER, HIDDEN, outputs[side]);
        shake(outputs[side], outputs[side], tokens * HIDDEN, side ? noise : 0);
        free(hidden);
    }
    trace_add(&trace, "model.layers.4.post_attention_layernorm", x, x, SHAPE(tokens, HIDDEN));
    trace_add(&trace, "model.layers.4.mlp.gate_proj", inputs[0][0], inputs[1][0], SHAPE(tokens, INNER));
    if (gated)
        trace_add(&trace, "model.layers.4.mlp.up_proj", inputs[0][1], inputs[1][1], SHAPE(tokens, INNER));
    trace_diagnose(&trace,
                   trace_add(&trace, "model.layers.4.mlp.down_proj", outputs[0], outputs[1], SHAPE(tokens, HIDDEN)));
    if (words)
        assert_first(&trace, way == OTHER_WEIGHT ? "swapped-with" : "activation", words);
    else
        assert_null(trace_cause(&trace, "activation"));
    trace_end(&trace);
    free(later);
    for (int k = 0; k < 2; k++) {
        free(inputs[0][k]);
        free(inputs[1][k]);
        free(outputs[k]);
    }
    free(down);
    free(bias);
    free(x);
}

#define GATE "model.layers.4.mlp.gate_proj"
#define UP   "model.layers.4.mlp.up_proj"

static void test_hidden_function(void **state)
{
    static const double noises[] = {1e-7, 2e-3};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        hidden_function(TOKENS, true, silu, gelu, OTHER, noises[n], " instead of silu(" GATE ") * " UP);
        hidden_function(TOKENS, true, silu, relu, OTHER, noises[n], "is given relu(" GATE ") * " UP " instead of");
        hidden_function(TOKENS, true, gelu, same, OTHER, noises[n], "is given " GATE " * " UP " instead of");
        hidden_function(TOKENS, true, silu, silu, EXCHANGED, noises[n], "is given silu(" UP ") * " GATE " instead of");
        hidden_function(TOKENS, true, silu, silu, UNGATED, noises[n], "is given silu(" GATE ") instead of");
        hidden_function(TOKENS, false, gelu, relu, OTHER, noises[n], "is given relu(" GATE ") instead of");
        hidden_function(TOKENS, false, gelu, same, OTHER, noises[n], "is given " GATE " unchanged instead of");
    }
    for (size_t n = 0; n < 2; n++)
        hidden_function(TOKENS, true, silu, silu, OTHER_WEIGHT, noises[n],
                        "the candidate uses model.layers.5.mlp.down_proj.weight instead of "
                        "model.layers.4.mlp.down_proj.weight, given silu(" GATE ") * " UP);
    hidden_function(400, false, gelu, gelu, OTHER_WEIGHT, 1e-7, "checked on all 400 tokens");
    /* of a long sequence some tokens are looked at, and all are tried */
    hidden_function(400, true, silu, relu, OTHER, 1e-7, "checked on all 400 tokens");
}

static void test_hidden_function_is_silent(void **state)
{
    (void)state;
    hidden_function(TOKENS, true, silu, silu, RIGHT, 1e-7, NULL);
    hidden_function(TOKENS, true, gelu, gelu, RIGHT, 2e-3, NULL);
    hidden_function(TOKENS, false, relu, relu, RIGHT, 2e-3, NULL);
}

/* A mixture of experts of which the logits and the sum were captured. */
struct mixture {
    bool undivided, sigmoid, one_wrong, rows_wrong;
    bool shared; /* another expert, which sees every token, is added, and was captured */
    bool before; /* the logits are those of the layer before, in a model whose name has a number */
    bool tied;   /* tokens 4 and 17 choose by a hair, and otherwise in the candidate */
    double noise;
};

static void mix(const struct mixture *mixture, bool candidate, const float *logits, float *const *experts, float *out)
{
    for (size_t t = 0; t < TOKENS; t++) {
        const float *row = logits + t * EXPERTS;
        size_t chosen[CHOSEN];
        double weights[CHOSEN], all = 0, sum = 0;
        for (size_t k = 0; k < CHOSEN; k++) {
            chosen[k] = EXPERTS;
            for (size_t e = 0; e < EXPERTS; e++)
                if ((k == 0 || e != chosen[0]) && (chosen[k] == EXPERTS || row[e] > row[chosen[k]]))
                    chosen[k] = e;
        }
        for (size_t e = 0; e < EXPERTS; e++)
            all += exp((double)row[e]);
        for (size_t k = 0; k < CHOSEN; k++) {
            double x = (double)row[chosen[k]];
            weights[k] = mixture->sigmoid ? 1 / (1 + exp(-x)) : exp(x) / all;
            sum += weights[k];
        }
        for (size_t i = 0; i < HIDDEN; i++) {
            double value = 0;
            for (size_t k = 0; k < CHOSEN; k++) {
                size_t e = candidate && mixture->one_wrong && chosen[k] == 2 ? 3 : chosen[k];
                value += weights[k] / (candidate && mixture->undivided ? 1 : sum) * (double)experts[e][t * HIDDEN + i];
            }
            if (candidate && mixture->rows_wrong && t >= 5 && t < 9)
                value += dice_number();
            out[t * HIDDEN + i] = (float)value;
        }
    }
}

static void expect_mixture(struct mixture mixture, const char *id, const char *words)
{
    struct trace trace;
    float *logits[2], *experts[EXPERTS], *outputs[2], *x;
    trace_start(&trace);
    x = made_values(TOKENS * HIDDEN);
    for (size_t e = 0; e < EXPERTS; e++)
        experts[e] = made_values(TOKENS * HIDDEN);
    for (int side = 0; side < 2; side++) {
        logits[side] = made_values(TOKENS * EXPERTS);
        outputs[side] = made_values(TOKENS * HIDDEN);
    }
    /* near ties, which noise may turn over: the first is far ahead, then come two */
    for (size_t t = 4; t < TOKENS && (mixture.tied || mixture.undivided || mixture.one_wrong); t += 13) {
        for (size_t e = 0; e < EXPERTS; e++)
            logits[0][t * EXPERTS + e] = (float)(e == 1 ? 2.5 : e == 5 ? 1.5 : e == 6 ? 1.4995 : -0.5);
    }
    shake(logits[0], logits[1], TOKENS * EXPERTS, mixture.noise);
    for (size_t t = 4; t < TOKENS && mixture.tied; t += 13)
        logits[1][t * EXPERTS + 6] = 1.51f;
    for (int side = 0; side < 2; side++)
        mix(&mixture, side, logits[side], experts, outputs[side]);
    for (size_t i = 0; i < TOKENS * HIDDEN && mixture.shared; i++) {
        outputs[0][i] += 1.5f * x[i];
        outputs[1][i] += 1.5f * x[i];
        x[i] *= 1.5f;
    }
    shake(outputs[1], outputs[1], TOKENS * HIDDEN, mixture.noise);
    trace_add(&trace, "model.layers.1.post_attention_layernorm", x, x, SHAPE(TOKENS, HIDDEN));
    trace_add(&trace, mixture.before ? "qwen2.layers.0.mlp.gate" : "model.layers.1.mlp.gate", logits[0], logits[1],
              SHAPE(TOKENS, EXPERTS));
    if (mixture.shared)
        trace_add(&trace, "model.layers.1.mlp.shared_expert", x, x, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace,
                   trace_add(&trace, mixture.before ? "qwen2.layers.1.mlp.experts" : "model.layers.1.mlp.experts",
                             outputs[0], outputs[1], SHAPE(TOKENS, HIDDEN)));
    if (id)
        assert_first(&trace, id, words);
    else if (mixture.before)
        assert_null(trace_cause(&trace, "router-gate"));
    else
        assert_silent(&trace);
    trace_end(&trace);
    for (size_t e = 0; e < EXPERTS; e++)
        free(experts[e]);
    for (int side = 0; side < 2; side++) {
        free(logits[side]);
        free(outputs[side]);
    }
    free(x);
}

static void test_logits_alone(void **state)
{
    static const double noises[] = {1e-7, 2e-3};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        double noise = noises[n];
        expect_mixture((struct mixture){.undivided = true, .noise = noise}, "router-gate",
                       "the sum of the 2 largest softmax probabilities of model.layers.1.mlp.gate");
        expect_mixture((struct mixture){.undivided = true, .sigmoid = true, .noise = noise}, "router-gate",
                       "the sum of the 2 largest sigmoids of model.layers.1.mlp.gate");
        expect_mixture((struct mixture){.undivided = true, .shared = true, .noise = noise}, "router-gate",
                       "in what is added to model.layers.1.mlp.shared_expert: each token is scaled by the sum of the 2 "
                       "largest softmax probabilities of model.layers.1.mlp.gate");
        expect_mixture((struct mixture){.shared = true, .noise = noise}, NULL, NULL);
        expect_mixture((struct mixture){.one_wrong = true, .noise = noise}, "router-gate", "that went to expert 2 ");
        expect_mixture((struct mixture){.rows_wrong = true, .noise = noise}, "rows", "tokens 5 to 8 of 22");
        expect_mixture((struct mixture){.tied = true, .noise = noise}, "routing", "in 2 tokens (4, 17) whose top");
        expect_mixture((struct mixture){.undivided = true, .before = true, .noise = noise}, NULL, NULL);
        expect_mixture((struct mixture){.noise = noise}, NULL, NULL);
        expect_mixture((struct mixture){.sigmoid = true, .noise = noise}, NULL, NULL);
    }
}

/* Two tokens with a near tie are wrong in the next layer; they came into it wrong, or as all others did. */
static void expect_next_layer(bool came_in, const char *id)
{
    struct trace trace;
    float *logits = made_values(TOKENS * EXPERTS), *x = made_values(TOKENS * HIDDEN), *y = made_values(TOKENS * HIDDEN);
    float near_logits[TOKENS * EXPERTS], near_x[TOKENS * HIDDEN], found[TOKENS * HIDDEN];
    for (size_t t = 4; t < TOKENS; t += 13)
        for (size_t e = 0; e < EXPERTS; e++)
            logits[t * EXPERTS + e] = (float)(e == 1 ? 2.5 : e == 5 ? 1.5 : e == 6 ? 1.4995 : -0.5);
    shake(logits, near_logits, TOKENS * EXPERTS, 1e-4);
    shake(x, near_x, TOKENS * HIDDEN, 1e-3);
    shake(y, found, TOKENS * HIDDEN, 1e-3);
    for (size_t t = 4; t < TOKENS; t += 13) {
        near_logits[t * EXPERTS + 6] = 1.51f;
        for (size_t i = t * HIDDEN; i < (t + 1) * HIDDEN; i++) {
            found[i] += (float)dice_number();
            near_x[i] += came_in ? (float)dice_number() : 0;
        }
    }
    trace_start(&trace);
    trace_add(&trace, "model.layers.1.mlp.gate", logits, near_logits, SHAPE(TOKENS, EXPERTS));
    trace_add(&trace, "model.layers.2.input_layernorm", x, near_x, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "model.layers.2.self_attn.o_proj", y, found, SHAPE(TOKENS, HIDDEN)));
    assert_first(&trace, id, NULL);
    trace_end(&trace);
    free(logits);
    free(x);
    free(y);
}

static void test_routing_of_the_layer_before(void **state)
{
    (void)state;
    expect_next_layer(true, "routing");
    expect_next_layer(false, "rows");
}

/* The largest numbers of a dense gate may tie as well, and choose nothing: a wrong token stays a wrong token. */
static void test_dense_gate_is_no_router(void **state)
{
    struct trace trace;
    float *x = made_values(TOKENS * HIDDEN), *gate = made_values(TOKENS * HIDDEN), *up = made_values(TOKENS * HIDDEN);
    float near_gate[TOKENS * HIDDEN], near_up[TOKENS * HIDDEN], found[TOKENS * HIDDEN];
    (void)state;
    gate[4 * HIDDEN + 1] = 5;
    gate[4 * HIDDEN + 2] = 4.999f;
    shake(gate, near_gate, TOKENS * HIDDEN, 1e-4);
    near_gate[4 * HIDDEN + 2] = 5.01f;
    shake(up, near_up, TOKENS * HIDDEN, 1e-3);
    shake(x, found, TOKENS * HIDDEN, 1e-3);
    for (size_t i = 4 * HIDDEN; i < 5 * HIDDEN; i++)
        found[i] += (float)dice_number();
    trace_start(&trace);
    trace_add(&trace, "ffn_up-1", up, near_up, SHAPE(TOKENS, HIDDEN));
    trace_add(&trace, "ffn_gate-1", gate, near_gate, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "ffn_out-1", x, found, SHAPE(TOKENS, HIDDEN)));
    assert_first(&trace, "rows", "token 4 of 22");
    trace_end(&trace);
    free(x);
    free(gate);
    free(up);
}

/* A block of a diffusion transformer, of which hooks show the stream before and behind it and what its branches make,
 * and no gate. What the candidate does with the gates, one number per channel each. */
struct block {
    size_t tokens;
    bool one_branch, others; /* others: gates of its own in the nearer branch */
    double sign, one, zero;  /* of the nearer gate: times sign, plus one, times one less zero */
    bool missing, exchanged, far_sign;
    double noise;
};

static void run_block(struct trace *trace, struct block block)
{
    const size_t total = block.tokens * HIDDEN;
    float *x = made_values(total), *branches[2][2], *out[2], *gates = made_values(3 * HIDDEN), *stream;
    stream = made_values(total);
    shake(x, stream, total, block.noise);
    for (int side = 0; side < 2; side++)
        out[side] = made_values(total);
    for (int k = 0; k < 2; k++) {
        branches[0][k] = made_values(total);
        branches[1][k] = made_values(total);
        shake(branches[0][k], branches[1][k], total, block.noise);
    }
    for (size_t i = 0; i < total; i++) {
        const double near = (double)gates[i % HIDDEN], far = block.one_branch ? 0 : (double)gates[HIDDEN + i % HIDDEN];
        double own = block.others ? (double)gates[2 * HIDDEN + i % HIDDEN] : near, other = far;
        own = block.missing ? 1 : (block.sign * own + block.one) * (1 - block.zero);
        own = block.exchanged ? far : own;
        other = block.exchanged ? near : block.far_sign ? -far : far;
        out[0][i] = (float)((double)x[i] + near * (double)branches[0][1][i] + far * (double)branches[0][0][i]);
        out[1][i] = (float)((double)stream[i] + own * (double)branches[1][1][i] + other * (double)branches[1][0][i]);
    }
    shake(out[1], out[1], total, block.noise);
    trace_start(trace);
    trace_add(trace, "blocks.0", x, stream, SHAPE(block.tokens, HIDDEN));
    if (!block.one_branch)
        trace_add(trace, "blocks.1.attn.proj", branches[0][0], branches[1][0], SHAPE(block.tokens, HIDDEN));
    trace_add(trace, "blocks.1.mlp.fc2", branches[0][1], branches[1][1], SHAPE(block.tokens, HIDDEN));
    trace_diagnose(trace, trace_add(trace, "blocks.1", out[0], out[1], SHAPE(block.tokens, HIDDEN)));
    for (int k = 0; k < 2; k++) {
        free(branches[0][k]);
        free(branches[1][k]);
        free(out[k]);
    }
    free(x);
    free(stream);
    free(gates);
}

static void expect_gate(struct block block, const char *id, const char *words)
{
    static const double noises[] = {1e-7, 2e-3};
    struct trace trace;
    for (size_t way = 0; way < 4; way++) {
        block.noise = noises[way % 2];
        block.tokens = way / 2 ? TOKENS : 300;
        run_block(&trace, block);
        assert_first(&trace, id, words);
        trace_end(&trace);
    }
}

static void test_hidden_gates(void **state)
{
    (void)state;
    for (int one = 0; one < 2; one++) {
        struct block right = {.sign = 1, .one_branch = one}, block = right;
        block.sign = -1;
        expect_gate(block, "modulation",
                    "the gate of blocks.1.mlp.fc2, learnt from the reference, has the opposite sign");
        block = right;
        block.missing = true;
        expect_gate(block, "modulation", "adds blocks.1.mlp.fc2 ungated");
        block = right;
        block.one = 1;
        expect_gate(block, "modulation", "the candidate gates blocks.1.mlp.fc2 with 1 + gate");
        block = right;
        block.others = true;
        expect_gate(block, "modulation", "the candidate's gate of blocks.1.mlp.fc2, one number per channel, differs");
    }
    expect_gate((struct block){.sign = 1, .zero = 1}, "term-missing", "does not add the gated term blocks.1.mlp.fc2");
    expect_gate((struct block){.sign = 1, .exchanged = true}, "modulation",
                "the candidate swaps the gates of blocks.1.mlp.fc2 and blocks.1.attn.proj");
    expect_gate((struct block){.sign = 1, .far_sign = true}, "modulation",
                "the gate of blocks.1.attn.proj, learnt from the reference, has the opposite sign");
}

/* Gates that are right, in bf16; and few tokens, of which nothing can be learnt. */
static void test_hidden_gates_are_silent(void **state)
{
    struct trace trace;
    (void)state;
    run_block(&trace, (struct block){.sign = 1, .tokens = TOKENS, .noise = 2e-3});
    assert_null(trace_cause(&trace, "modulation"));
    trace_end(&trace);
    run_block(&trace, (struct block){.sign = -1, .tokens = 4, .noise = 1e-7});
    assert_null(trace_cause(&trace, "modulation"));
    trace_end(&trace);
}

/* The norm of x + gate * branch, the sum not captured; the gate is chunk 2 of six, scale and shift 4 and 3. */
struct gated_norm {
    bool modulated, missing, squashed;
    bool exchanged, bare; /* scale and shift; without the 1 + */
    double sign, one;
    size_t chunk;
    double noise;
};

static void run_norm(struct trace *trace, struct gated_norm norm)
{
    float *x[2], *y[2], *m[2], *out[2];
    for (int side = 0; side < 2; side++) {
        const size_t chunk = side ? norm.chunk : 2;
        x[side] = made_values(TOKENS * HIDDEN);
        y[side] = made_values(TOKENS * HIDDEN);
        m[side] = made_values(6 * HIDDEN);
        out[side] = made_values(TOKENS * HIDDEN);
        if (side) {
            shake(x[0], x[1], TOKENS * HIDDEN, norm.noise);
            shake(y[0], y[1], TOKENS * HIDDEN, norm.noise);
            shake(m[0], m[1], 6 * HIDDEN, norm.noise);
        }
        for (size_t row = 0; row < TOKENS; row++) {
            double values[HIDDEN], mean = 0, square = 0;
            for (size_t i = 0; i < HIDDEN; i++) {
                double gate = (double)m[side][chunk * HIDDEN + i];
                gate = !side ? gate : norm.missing ? 1 : norm.sign * (norm.squashed ? tanh(gate) : gate) + norm.one;
                values[i] = (double)x[side][row * HIDDEN + i] + gate * (double)y[side][row * HIDDEN + i];
                mean += values[i] / HIDDEN;
            }
            for (size_t i = 0; i < HIDDEN; i++)
                square += (values[i] - mean) * (values[i] - mean) / HIDDEN;
            for (size_t i = 0; i < HIDDEN; i++) {
                double value = (values[i] - mean) / sqrt(square + 1e-6);
                if (norm.modulated) {
                    const float *scale = m[side] + (side && norm.exchanged ? 3 : 4) * HIDDEN;
                    const float *shift = m[side] + (side && norm.exchanged ? 4 : 3) * HIDDEN;
                    value = value * ((side && norm.bare ? 0 : 1) + (double)scale[i]) + (double)shift[i];
                }
                out[side][row * HIDDEN + i] = (float)value;
            }
        }
    }
    shake(out[1], out[1], TOKENS * HIDDEN, norm.noise);
    trace_start(trace);
    trace_add(trace, "blocks.0", x[0], x[1], SHAPE(TOKENS, HIDDEN));
    trace_add(trace, "blocks.1.adaLN", m[0], m[1], SHAPE(1, 6 * HIDDEN));
    trace_add(trace, "blocks.1.attn.proj", y[0], y[1], SHAPE(TOKENS, HIDDEN));
    trace_diagnose(trace, trace_add(trace, "blocks.1.norm2", out[0], out[1], SHAPE(TOKENS, HIDDEN)));
    for (int side = 0; side < 2; side++) {
        free(x[side]);
        free(y[side]);
        free(m[side]);
        free(out[side]);
    }
}

static void expect_norm(struct gated_norm norm, const char *words)
{
    static const double noises[] = {1e-7, 2e-3};
    struct trace trace;
    for (int way = norm.exchanged || norm.bare ? 2 : 0; way < 4; way++) {
        norm.noise = noises[way % 2];
        norm.modulated = way / 2;
        run_norm(&trace, norm);
        if (words)
            assert_first(&trace, "modulation", words);
        else
            assert_null(trace_cause(&trace, "modulation"));
        trace_end(&trace);
    }
}

static void test_gates_before_a_norm(void **state)
{
    (void)state;
    expect_norm((struct gated_norm){.sign = -1, .chunk = 2},
                "the gate has the opposite sign: the candidate subtracts gate * blocks.1.attn.proj");
    expect_norm((struct gated_norm){.missing = true, .chunk = 2}, "does not apply the gate of blocks.1.adaLN");
    expect_norm((struct gated_norm){.sign = 1, .one = 1, .chunk = 2}, "gates blocks.1.attn.proj with 1 + gate");
    expect_norm((struct gated_norm){.sign = 1, .chunk = 5},
                "with chunk 5 of blocks.1.adaLN, the reference with chunk 2");
    expect_norm((struct gated_norm){.sign = 1, .chunk = 2}, NULL);
    expect_norm((struct gated_norm){.chunk = 2, .sign = 1, .squashed = true}, "tanh to the gate of blocks.1.adaLN");
    expect_norm((struct gated_norm){.chunk = 2, .sign = 1, .exchanged = true},
                "are swapped: the candidate takes chunk 3 of blocks.1.adaLN for the scale (1 +) and chunk 4");
    expect_norm((struct gated_norm){.chunk = 2, .sign = 1, .bare = true}, "the \"1 +\" of an adaptive norm is missing");
}

/* A stream of which the candidate has an offset per channel more than the reference: it does not hold another block's
 * weights, and what tokens add for themselves is not missing, unless it is. */
static void stream_and_offset(bool added, const char *words)
{
    struct trace trace;
    float *x = made_values(TOKENS * HIDDEN), *update = made_values(TOKENS * HIDDEN), *offset = made_values(HIDDEN);
    float *a = made_values(TOKENS * HIDDEN), *b = made_values(TOKENS * HIDDEN);
    const struct ts_cause *cause;
    for (size_t i = 0; i < TOKENS * HIDDEN; i++) {
        a[i] = x[i] + 0.07f * update[i];
        b[i] = x[i] + (added ? 0.07f * update[i] : 0) + offset[i % HIDDEN];
    }
    trace_start(&trace);
    trace_add(&trace, "blocks.0", x, x, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "blocks.1", a, b, SHAPE(TOKENS, HIDDEN)));
    assert_null(trace_cause(&trace, "swapped-with"));
    cause = trace_cause(&trace, "skipped-op");
    if (!words != !cause || (words && !strstr(cause->summary, words)))
        fail_msg("said %s", cause ? cause->summary : "nothing");
    trace_end(&trace);
    free(x);
    free(update);
    free(offset);
    free(a);
    free(b);
}

static void test_streams_and_offsets(void **state)
{
    (void)state;
    stream_and_offset(true, NULL);
    stream_and_offset(false, "the candidate adds the same numbers to its own blocks.0 in every token");
}

/* A block that is left out hands on what it was given; where the next one is right, it was captured for another. */
static void test_block_left_out(void **state)
{
    (void)state;
    for (int captured = 0; captured < 2; captured++) {
        struct trace trace;
        float *x = made_values(TOKENS * HIDDEN), *a = made_values(TOKENS * HIDDEN),
              *next = made_values(TOKENS * HIDDEN);
        float b[TOKENS * HIDDEN], next_b[TOKENS * HIDDEN];
        size_t index;
        shake(x, b, TOKENS * HIDDEN, 1e-3);
        for (size_t i = 0; i < TOKENS * HIDDEN; i++) {
            next_b[i] = (captured ? x[i] + 1.2f * a[i] : b[i]) + next[i];
            a[i] = x[i] + 1.2f * a[i];
            next[i] += a[i];
        }
        trace_start(&trace);
        trace_add(&trace, "model.layers.0", x, b, SHAPE(TOKENS, HIDDEN));
        index = trace_add(&trace, "model.layers.1", a, b, SHAPE(TOKENS, HIDDEN));
        trace_add(&trace, "model.layers.2", next, next_b, SHAPE(TOKENS, HIDDEN));
        trace_diagnose(&trace, index);
        assert_first(&trace, captured ? "swapped-with" : "skipped-op",
                     captured ? "holds its own model.layers.0 here"
                              : "holds model.layers.0 unchanged: this step was not applied");
        trace_end(&trace);
        free(x);
        free(a);
        free(next);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hidden_function),
                                       cmocka_unit_test(test_hidden_function_is_silent),
                                       cmocka_unit_test(test_logits_alone),
                                       cmocka_unit_test(test_routing_of_the_layer_before),
                                       cmocka_unit_test(test_dense_gate_is_no_router),
                                       cmocka_unit_test(test_hidden_gates),
                                       cmocka_unit_test(test_hidden_gates_are_silent),
                                       cmocka_unit_test(test_streams_and_offsets),
                                       cmocka_unit_test(test_block_left_out),
                                       cmocka_unit_test(test_gates_before_a_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
