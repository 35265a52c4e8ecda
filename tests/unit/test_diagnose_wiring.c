/* Causes that name a step of the model: a small decoder layer with attention, a mixture of experts and a diffusion
 * block are run twice, the second time with one fault. Each fault must be named where it is made, with its numbers;
 * without one nothing may be said, whatever the rounding. */
#include "made_trace.h"

enum {
    TOKENS = 12,
    HEADS = 4,
    SERVED = 2,
    SIZE = 8,
    HIDDEN = HEADS * SIZE,
    KEYS = SERVED * SIZE,
    INNER = 24,
    EXPERTS = 6,
    CHOSEN = 2
};

enum residual { WHOLE, MISSING, DOUBLED, SUBTRACTED, FROM_NORM };

/* What goes wrong; all zero: nothing. Numbers are added to what is right. */
struct faults {
    double base, position, last_position, turn_sign, softmax_scale, gate_sign;
    bool unturned, pairs, half_turned, twice_turned;
    bool tiled, tiled_keys, tiled_values, exchanged, over_queries, masked_late, unmasked, swapped_projections,
        o_transposed, o_unrelated, norm_skipped, norm_of_input;
    int mask_shift, window, stale_token;
    enum residual attn_residual, mlp_residual;
    int activation; /* 1: relu, 2: none, 3: on the other operand, 4: gate missing, 5: a curve of no name */
    int column;     /* of the down projection: left out, counted from 1 */
    bool rounded;
};

struct layer {
    float x[TOKENS * HIDDEN], normed[TOKENS * HIDDEN], q[TOKENS * HIDDEN], k[TOKENS * KEYS], v[TOKENS * KEYS];
    float q_rope[TOKENS * HIDDEN], k_rope[TOKENS * KEYS], scores[TOKENS * HEADS * TOKENS],
        probs[TOKENS * HEADS * TOKENS], context[TOKENS * HIDDEN], o[TOKENS * HIDDEN], residual[TOKENS * HIDDEN],
        mlp_normed[TOKENS * HIDDEN], gate[TOKENS * INNER], up[TOKENS * INNER], middle[TOKENS * INNER],
        down[TOKENS * HIDDEN], out[TOKENS * HIDDEN];
};

struct weights {
    float norm[HIDDEN], mlp_norm[HIDDEN], q[HIDDEN * HIDDEN], k[KEYS * HIDDEN], v[KEYS * HIDDEN], o[HIDDEN * HIDDEN],
        other[HIDDEN * HIDDEN], gate[INNER * HIDDEN], up[INNER * HIDDEN], down[HIDDEN * INNER];
};

static void fill(float *values, size_t count, double mean, double size)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(mean + size * (dice_number() + dice_number()));
}

static void settle(const struct faults *faults, float *values, size_t count)
{
    for (size_t i = 0; i < count && faults->rounded; i++)
        values[i] = to_bf16(values[i]);
}

static void project(const struct faults *faults, const float *x, const float *weight, size_t in, size_t out,
                    bool turned, float *to)
{
    for (size_t row = 0; row < TOKENS; row++)
        for (size_t i = 0; i < out; i++) {
            double sum = 0;
            for (size_t k = 0; k < in; k++)
                sum += (double)x[row * in + k] * (double)(turned ? weight[k * out + i] : weight[i * in + k]);
            to[row * out + i] = (float)sum;
        }
    settle(faults, to, TOKENS * out);
}

static void normalize(const struct faults *faults, const float *x, const float *weight, float *to)
{
    for (size_t row = 0; row < TOKENS; row++) {
        double square = 0;
        for (size_t i = 0; i < HIDDEN; i++)
            square += (double)x[row * HIDDEN + i] * (double)x[row * HIDDEN + i] / HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++)
            to[row * HIDDEN + i] = (float)((double)x[row * HIDDEN + i] / sqrt(square + 1e-6) * (double)weight[i]);
    }
    settle(faults, to, TOKENS * HIDDEN);
}

static void turn(const struct faults *faults, const float *x, size_t heads, float *to)
{
    size_t size = faults->half_turned ? SIZE / 2 : SIZE, pairs = size / 2;
    memcpy(to, x, TOKENS * heads * SIZE * sizeof *to);
    for (size_t at = 0; at < TOKENS * heads * pairs && !faults->unturned; at++) {
        size_t i = at % pairs, head = at / pairs % heads, row = at / pairs / heads;
        double position = (double)row + faults->position + (row + 1 == TOKENS ? faults->last_position : 0);
        double angle = position * pow(faults->base > 0 ? faults->base : 10000, -(double)i / (double)pairs) *
                       (faults->turn_sign < 0 ? -1 : 1) * (faults->twice_turned ? 2 : 1);
        float *first = to + (row * heads + head) * SIZE + (faults->pairs ? 2 * i : i);
        float *second = faults->pairs ? first + 1 : first + pairs, old = *first;
        *first = (float)((double)old * cos(angle) - (double)*second * sin(angle));
        *second = (float)((double)old * sin(angle) + (double)*second * cos(angle));
    }
    settle(faults, to, TOKENS * heads * SIZE);
}

static bool sees(const struct faults *faults, size_t row, size_t key)
{
    long distance = (long)row - (long)key;
    return faults->unmasked || (distance >= -faults->mask_shift && (!faults->window || distance < faults->window));
}

static void attend(const struct faults *faults, struct layer *layer)
{
    double scale = 1 / sqrt(SIZE);
    for (size_t at = 0; at < TOKENS * HEADS * TOKENS; at++) {
        size_t key = at % TOKENS, head = at / TOKENS % HEADS, row = at / TOKENS / HEADS;
        size_t served = faults->tiled || faults->tiled_keys ? head % SERVED : head / (HEADS / SERVED);
        size_t from = (int)key + 1 == faults->stale_token ? key - 1 : key;
        double sum = 0;
        for (size_t i = 0; i < SIZE; i++)
            sum += (double)layer->q_rope[((faults->exchanged ? from : row) * HEADS + head) * SIZE + i] *
                   (double)layer->k_rope[((faults->exchanged ? row : from) * SERVED + served) * SIZE + i];
        layer->scores[at] = (float)(sum * scale);
    }
    settle(faults, layer->scores, TOKENS * HEADS * TOKENS);
    for (size_t lane = 0; lane < TOKENS * HEADS; lane++) {
        size_t head = lane % HEADS, line = lane / HEADS; /* a row, or a key when the axis is wrong */
        double sum = 0;
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < TOKENS; i++) {
                size_t row = faults->over_queries ? i : line, key = faults->over_queries ? line : i;
                size_t at = (row * HEADS + head) * TOKENS + key;
                bool seen = sees(faults, row, key);
                double e = exp((double)layer->scores[at] * (1 + faults->softmax_scale));
                if (!pass)
                    sum += seen || faults->masked_late ? e : 0;
                else
                    layer->probs[at] = (float)(seen ? e / sum : 0);
            }
    }
    settle(faults, layer->probs, TOKENS * HEADS * TOKENS);
    for (size_t at = 0; at < TOKENS * HIDDEN; at++) {
        size_t i = at % SIZE, head = at / SIZE % HEADS, row = at / SIZE / HEADS;
        size_t served = faults->tiled || faults->tiled_values ? head % SERVED : head / (HEADS / SERVED);
        double sum = 0;
        for (size_t key = 0; key < TOKENS; key++)
            sum += (double)layer->probs[(row * HEADS + head) * TOKENS + key] *
                   (double)layer->v[(key * SERVED + served) * SIZE + i];
        layer->context[at] = (float)sum;
    }
    settle(faults, layer->context, TOKENS * HIDDEN);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void activate(const struct faults *faults, struct layer *layer)
{
    for (size_t i = 0; i < TOKENS * INNER; i++) {
        double gate = (double)layer->gate[i], up = (double)layer->up[i];
        double value = faults->activation == 1   ? (gate > 0 ? gate : 0) * up
                       : faults->activation == 2 ? gate * up
                       : faults->activation == 3 ? silu(up) * gate
                       : faults->activation == 4 ? silu(gate)
                       : faults->activation == 5 ? sin(gate) * up
                       : faults->activation == 6 ? 0.5 * gate * (1 + erf(gate / sqrt(2))) * up
                       : faults->activation == 7
                           ? 0.5 * gate * (1 + tanh(sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up
                       : faults->activation == 8 ? gate / (1 + exp(-1.702 * gate)) * up
                       : faults->activation == 9 ? silu(gate < 1 ? gate : 1) * (up > 1    ? 1
                                                                                : up < -1 ? -1
                                                                                          : up)
                                                 : silu(gate) * up;
        layer->middle[i] = (float)value;
    }
    settle(faults, layer->middle, TOKENS * INNER);
}

static void add(const struct faults *faults, enum residual how, const float *x, const float *normed, const float *y,
                float *to)
{
    static const double kept[] = {1, 0, 2, 1, 0};
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        to[i] = (float)(kept[how] * (double)x[i] + (how == SUBTRACTED ? -1 : 1) * (double)y[i] +
                        (how == FROM_NORM ? (double)normed[i] : 0));
    settle(faults, to, TOKENS * HIDDEN);
}

static void run(const struct faults *faults, const struct weights *weights, struct layer *layer)
{
    settle(faults, layer->x, TOKENS * HIDDEN);
    normalize(faults, layer->x, weights->norm, layer->normed);
    project(faults, layer->normed, weights->q, HIDDEN, HIDDEN, false, layer->q);
    project(faults, layer->normed, faults->swapped_projections ? weights->v : weights->k, HIDDEN, KEYS, false,
            layer->k);
    project(faults, layer->normed, faults->swapped_projections ? weights->k : weights->v, HIDDEN, KEYS, false,
            layer->v);
    turn(faults, layer->q, HEADS, layer->q_rope);
    turn(faults, layer->k, SERVED, layer->k_rope);
    attend(faults, layer);
    project(faults, layer->context, faults->o_unrelated ? weights->other : weights->o, HIDDEN, HIDDEN,
            faults->o_transposed, layer->o);
    add(faults, faults->attn_residual, layer->x, layer->normed, layer->o, layer->residual);
    if (faults->norm_skipped)
        memcpy(layer->mlp_normed, layer->residual, sizeof layer->residual);
    else
        normalize(faults, faults->norm_of_input ? layer->x : layer->residual, weights->mlp_norm, layer->mlp_normed);
    project(faults, layer->mlp_normed, weights->gate, HIDDEN, INNER, false, layer->gate);
    project(faults, layer->mlp_normed, weights->up, HIDDEN, INNER, false, layer->up);
    activate(faults, layer);
    project(faults, layer->middle, weights->down, INNER, HIDDEN, false, layer->down);
    for (size_t at = 0; at < TOKENS * HIDDEN && faults->column; at++)
        layer->down[at] -= layer->middle[at / HIDDEN * INNER + (size_t)faults->column - 1] *
                           weights->down[at % HIDDEN * INNER + (size_t)faults->column - 1];
    add(faults, faults->mlp_residual, layer->residual, layer->mlp_normed, layer->down, layer->out);
}

enum point {
    X,
    NORMED,
    Q,
    K,
    V,
    Q_ROPE,
    K_ROPE,
    SCORES,
    PROBS,
    CONTEXT,
    O,
    RESIDUAL,
    MLP_NORMED,
    GATE,
    UP,
    MIDDLE,
    DOWN,
    OUT,
    POINTS
};

static const char *const names[POINTS] = {"layer_0_input",           "layer_0_attn_norm_output", "layer_0_attn_q_proj",
                                          "layer_0_attn_k_proj",     "layer_0_attn_v_proj",      "layer_0_attn_q_rope",
                                          "layer_0_attn_k_rope",     "layer_0_attn_scores",      "layer_0_attn_probs",
                                          "layer_0_attn_context",    "layer_0_attn_o_proj",      "layer_0_residual",
                                          "layer_0_mlp_norm_output", "layer_0_mlp_gate_proj",    "layer_0_mlp_up_proj",
                                          "layer_0_mlp_act",         "layer_0_mlp_down_proj",    "layer_0_output"};

/* Both sides; diagnoses one point. hidden: points that were not captured, as bits. */
static void diagnose(struct trace *trace, const struct faults *faults, enum point point, unsigned hidden)
{
    static struct layer sides[2];
    static struct weights weights;
    static const struct faults none;
    static const uint64_t per_head[3] = {TOKENS, HEADS, SIZE}, per_served[3] = {TOKENS, SERVED, SIZE},
                          square[3] = {TOKENS, HEADS, TOKENS}, flat[2] = {TOKENS, HIDDEN}, inner[2] = {TOKENS, INNER};
    size_t index = 0;
    trace_start(trace);
    fill(sides[0].x, TOKENS * HIDDEN, 0.1, 1);
    fill(weights.norm, HIDDEN, 1, 0.2);
    fill(weights.mlp_norm, HIDDEN, 1, 0.2);
    fill(weights.q, HIDDEN * HIDDEN, 0, 0.3);
    fill(weights.k, KEYS * HIDDEN, 0, 0.3);
    fill(weights.v, KEYS * HIDDEN, 0, 0.3);
    fill(weights.o, HIDDEN * HIDDEN, 0, 0.3);
    fill(weights.other, HIDDEN * HIDDEN, 0, 0.3);
    fill(weights.gate, INNER * HIDDEN, 0, 0.3);
    fill(weights.up, INNER * HIDDEN, 0, 0.3);
    fill(weights.down, HIDDEN * INNER, 0, 0.3);
    memcpy(sides[1].x, sides[0].x, sizeof sides[0].x);
    run(&none, &weights, &sides[0]);
    run(faults, &weights, &sides[1]);
    for (int p = 0; p < POINTS; p++) {
        const struct layer *a = &sides[0], *b = &sides[1];
        const float *values[POINTS][2] = {{a->x, b->x},
                                          {a->normed, b->normed},
                                          {a->q, b->q},
                                          {a->k, b->k},
                                          {a->v, b->v},
                                          {a->q_rope, b->q_rope},
                                          {a->k_rope, b->k_rope},
                                          {a->scores, b->scores},
                                          {a->probs, b->probs},
                                          {a->context, b->context},
                                          {a->o, b->o},
                                          {a->residual, b->residual},
                                          {a->mlp_normed, b->mlp_normed},
                                          {a->gate, b->gate},
                                          {a->up, b->up},
                                          {a->middle, b->middle},
                                          {a->down, b->down},
                                          {a->out, b->out}};
        bool heads = p == Q || p == Q_ROPE, served = p == K || p == V || p == K_ROPE, table = p == SCORES || p == PROBS;
        bool narrow = p == GATE || p == UP || p == MIDDLE;
        if (hidden >> p & 1)
            continue;
        if (p == (int)point)
            index = trace->count;
        trace_add(trace, names[p], values[p][0], values[p][1], heads || served || table ? 3 : 2,
                  heads    ? per_head
                  : served ? per_served
                  : table  ? square
                  : narrow ? inner
                           : flat);
    }
    trace_diagnose(trace, index);
}

static void expect(struct faults faults, enum point point, unsigned hidden, const char *id, const char *words)
{
    for (int rounded = 0; rounded < 2; rounded++) {
        struct trace trace;
        faults.rounded = rounded;
        diagnose(&trace, &faults, point, hidden);
        assert_first(&trace, id, words);
        trace_end(&trace);
    }
}

/* The two kinds of gelu are nearer to each other than bf16 can tell. */
static void expect_clean(struct faults faults, enum point point, const char *id, const char *words)
{
    struct trace trace;
    diagnose(&trace, &faults, point, 0);
    assert_first(&trace, id, words);
    trace_end(&trace);
}

#define EXPECT(point, hidden, id, words, ...) expect((struct faults){__VA_ARGS__}, point, hidden, id, words)
#define BIT(point)                            (1u << (point))

static void test_honest_runs_are_silent(void **state)
{
    static const unsigned captures[] = {0, BIT(SCORES) | BIT(PROBS),
                                        BIT(Q_ROPE) | BIT(K_ROPE) | BIT(SCORES) | BIT(PROBS) | BIT(CONTEXT) |
                                            BIT(RESIDUAL)};
    (void)state;
    for (size_t c = 0; c < sizeof captures / sizeof *captures; c++)
        for (int point = NORMED; point < POINTS; point++) {
            struct trace trace;
            struct faults faults = {.rounded = true};
            if (captures[c] >> point & 1)
                continue;
            diagnose(&trace, &faults, (enum point)point, captures[c]);
            assert_silent(&trace);
            trace_end(&trace);
        }
}

/* An error made earlier is not explained where it only arrives. */
static void test_inherited_errors_are_silent(void **state)
{
    static const int points[] = {K_ROPE, SCORES, PROBS, CONTEXT, RESIDUAL, MLP_NORMED, MIDDLE, OUT};
    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        struct trace trace;
        struct faults faults = {.swapped_projections = true, .rounded = true};
        diagnose(&trace, &faults, (enum point)points[i], 0);
        assert_silent(&trace);
        trace_end(&trace);
    }
}

static void test_rotation(void **state)
{
    (void)state;
    EXPECT(Q_ROPE, 0, "rotation", "theta = 1000000, the reference's theta = 10000", .base = 1e6);
    EXPECT(Q_ROPE, 0, "rotation", "off by +1", .position = 1);
    EXPECT(Q_ROPE, 0, "rotation", "off by -3", .position = -3);
    EXPECT(Q_ROPE, 0, "rotation", "token 11 is rotated as if at position 12", .last_position = 1);
    EXPECT(Q_ROPE, 0, "rotation", "the other way", .turn_sign = -1);
    EXPECT(Q_ROPE, 0, "rotation", "wrong pairs", .pairs = true);
    EXPECT(Q_ROPE, 0, "rotation", "rotates 4 channels of each head, the reference 8", .half_turned = true);
    EXPECT(Q_ROPE, 0, "rotation", "applied twice", .twice_turned = true);
    EXPECT(Q_ROPE, 0, "skipped-op", "layer_0_attn_q_proj", .unturned = true);
}

static void test_attention(void **state)
{
    (void)state;
    EXPECT(PROBS, 0, "mask", "sees 1 token ahead", .mask_shift = 1);
    EXPECT(PROBS, 0, "mask", "each token sees every token", .unmasked = true);
    EXPECT(PROBS, 0, "mask", "at most 3 tokens back", .window = 4);
    EXPECT(PROBS, 0, "mask", "after the softmax", .masked_late = true);
    EXPECT(PROBS, 0, "softmax", "over the queries", .over_queries = true);
    EXPECT(PROBS, 0, "softmax", "another temperature", .softmax_scale = 0.83);
    EXPECT(SCORES, 0, "heads", "tiles", .tiled = true);
    EXPECT(SCORES, 0, "wrong-input", "swaps queries and keys", .exchanged = true);
    EXPECT(SCORES, 0, "stale", "key of token 5 is that of token 4", .stale_token = 6);
}

/* With the scores and probabilities inside a kernel the context shows the same; behind an unknown output projection the
 * hypotheses still differ in how they move the tokens. */
static void test_attention_unseen(void **state)
{
    unsigned kernel = BIT(SCORES) | BIT(PROBS);
    unsigned hooks = kernel | BIT(Q_ROPE) | BIT(K_ROPE) | BIT(CONTEXT) | BIT(RESIDUAL);
    (void)state;
    EXPECT(CONTEXT, kernel, "mask", "one token ahead", .mask_shift = 1);
    EXPECT(CONTEXT, kernel, "softmax", "2 times", .softmax_scale = 1);
    EXPECT(CONTEXT, kernel, "heads", "tiles key and value heads", .tiled = true);
    EXPECT(CONTEXT, kernel, "heads", "tiles the value heads instead of repeating each; the key heads are right",
           .tiled_values = true);
    EXPECT(CONTEXT, kernel, "heads", "tiles the key heads instead of repeating each; the value heads are right",
           .tiled_keys = true);
    EXPECT(O, hooks, "mask", "no causal mask", .unmasked = true);
    EXPECT(O, hooks, "rotation", "rotary angles fit theta", .base = 1e6);
    EXPECT(O, hooks, "rotation", "wrong pairs", .pairs = true);
    EXPECT(O, hooks, "rotation", "opposite direction", .turn_sign = -1);
    EXPECT(O, hooks, "softmax", "queries", .over_queries = true);
    EXPECT(O, hooks, "softmax", "before the softmax, the candidate's scores are", .softmax_scale = 3);
    EXPECT(O, hooks, "heads", "tiles", .tiled = true);
}

static void test_activation(void **state)
{
    (void)state;
    EXPECT(MIDDLE, 0, "activation", "relu(layer_0_mlp_gate_proj)", .activation = 1);
    EXPECT(MIDDLE, 0, "activation", "layer_0_mlp_gate_proj * layer_0_mlp_up_proj without an activation",
           .activation = 2);
    EXPECT(MIDDLE, 0, "activation", "wrong operand", .activation = 3);
    EXPECT(MIDDLE, 0, "activation", "not multiplied by layer_0_mlp_up_proj", .activation = 4);
    EXPECT(MIDDLE, 0, "activation", "an unknown function of", .activation = 5);
    EXPECT(MIDDLE, 0, "activation", "gelu(layer_0_mlp_gate_proj)", .activation = 6);
    EXPECT(MIDDLE, 0, "activation", "quick", .activation = 8);
    EXPECT(MIDDLE, 0, "clamped", NULL, .activation = 9);
    expect_clean((struct faults){.activation = 7}, MIDDLE, "activation", "tanh");
}

static void test_wiring(void **state)
{
    (void)state;
    EXPECT(K, 0, "swapped-with", "layer_0_attn_v_proj", .swapped_projections = true);
    EXPECT(MLP_NORMED, 0, "skipped-op", "layer_0_residual", .norm_skipped = true);
    EXPECT(MLP_NORMED, 0, "wrong-input", "layer_0_input instead of layer_0_residual", .norm_of_input = true);
    EXPECT(MLP_NORMED, BIT(RESIDUAL), "wrong-input", "layer_0_input alone", .norm_of_input = true);
    EXPECT(MLP_NORMED, BIT(RESIDUAL), "term-missing", "layer_0_input is missing", .attn_residual = MISSING);
    EXPECT(RESIDUAL, 0, "term-missing", "minus layer_0_input", .attn_residual = MISSING);
    EXPECT(RESIDUAL, 0, "term-extra", "adds layer_0_input twice", .attn_residual = DOUBLED);
    EXPECT(RESIDUAL, 0, "sign-flipped", "subtracts layer_0_attn_o_proj", .attn_residual = SUBTRACTED);
    EXPECT(OUT, 0, "wrong-input", "layer_0_mlp_norm_output instead of layer_0_residual", .mlp_residual = FROM_NORM);
    EXPECT(O, 0, "transposed-weight", "mirrored", .o_transposed = true);
    EXPECT(O, BIT(CONTEXT) | BIT(SCORES) | BIT(PROBS) | BIT(Q) | BIT(K) | BIT(V) | BIT(Q_ROPE) | BIT(K_ROPE),
           "unrelated", "no simple relation", .o_unrelated = true);
    EXPECT(DOWN, 0, "term-missing", "channel 16 of layer_0_mlp_act", .column = 17);
}
/* Experts. */

struct mixture {
    float x[TOKENS * HIDDEN], logits[TOKENS * EXPERTS], weights[TOKENS * CHOSEN], out[TOKENS * HIDDEN];
    int64_t indices[TOKENS * CHOSEN];
};

struct mixture_faults {
    bool sigmoid, unnormalized, ignored, reversed, tied;
    int exchanged; /* this expert and the next, counted from 1 */
};

static void choose(const struct mixture_faults *faults, struct mixture *mixture, size_t row)
{
    const float *logits = mixture->logits + row * EXPERTS;
    double all = 0, kept = 0;
    bool taken[EXPERTS] = {false};
    for (size_t e = 0; e < EXPERTS; e++)
        all += exp((double)logits[e]);
    for (size_t k = 0; k < CHOSEN; k++) {
        size_t best = EXPERTS;
        double value;
        for (size_t e = 0; e < EXPERTS; e++)
            if (!taken[e] && (best == EXPERTS || logits[e] > logits[best]))
                best = e;
        taken[best] = true;
        value = faults->sigmoid ? 1 / (1 + exp(-(double)logits[best])) : exp((double)logits[best]) / all;
        kept += value;
        mixture->indices[row * CHOSEN + k] = (int64_t)best;
        mixture->weights[row * CHOSEN + k] = (float)value;
    }
    for (size_t k = 0; k < CHOSEN && !faults->unnormalized; k++)
        mixture->weights[row * CHOSEN + k] = (float)((double)mixture->weights[row * CHOSEN + k] / kept);
}

static void mix(const struct mixture_faults *faults, const float *router, const float *experts, struct mixture *mixture)
{
    for (size_t row = 0; row < TOKENS; row++) {
        for (size_t e = 0; e < EXPERTS; e++) {
            double sum = 0;
            for (size_t i = 0; i < HIDDEN; i++)
                sum += (double)mixture->x[row * HIDDEN + i] * (double)router[e * HIDDEN + i];
            mixture->logits[row * EXPERTS + e] = (float)sum;
        }
        /* token 3 is tied between two experts, and rounding decides */
        if (row == 3) {
            mixture->logits[row * EXPERTS] = 5;
            mixture->logits[row * EXPERTS + 1] = faults->tied ? 4.0001F : 4;
            mixture->logits[row * EXPERTS + 2] = faults->tied ? 4 : 4.0001F;
        }
        choose(faults, mixture, row);
        for (size_t o = 0; o < HIDDEN; o++) {
            double sum = 0;
            for (size_t k = 0; k < CHOSEN; k++) {
                int64_t expert = mixture->indices[row * CHOSEN + k];
                double value = 0, weight = (double)mixture->weights[row * CHOSEN + (faults->reversed ? 1 - k : k)];
                if (faults->exchanged && (expert == faults->exchanged - 1 || expert == faults->exchanged))
                    expert = 2 * faults->exchanged - 1 - expert;
                for (size_t i = 0; i < HIDDEN; i++)
                    value += (double)mixture->x[row * HIDDEN + i] *
                             (double)experts[((size_t)expert * HIDDEN + o) * HIDDEN + i];
                sum += (faults->ignored ? 1 : weight) * value;
            }
            mixture->out[row * HIDDEN + o] = (float)sum;
        }
    }
}

static void diagnose_mixture(struct trace *trace, const struct mixture_faults *faults, size_t index)
{
    static struct mixture sides[2];
    static const struct mixture_faults none;
    float *router, *experts;
    trace_start(trace);
    router = made_values(EXPERTS * HIDDEN);
    experts = made_values((size_t)EXPERTS * HIDDEN * HIDDEN);
    for (size_t i = 0; i < EXPERTS * HIDDEN; i++)
        router[i] *= 0.3F;
    fill(sides[0].x, TOKENS * HIDDEN, 0, 1);
    memcpy(sides[1].x, sides[0].x, sizeof sides[0].x);
    mix(&none, router, experts, &sides[0]);
    mix(faults, router, experts, &sides[1]);
    trace_add(trace, "layer_0_mlp_norm_output", sides[0].x, sides[1].x, SHAPE(TOKENS, HIDDEN));
    trace_add(trace, "layer_0_router_logits", sides[0].logits, sides[1].logits, SHAPE(TOKENS, EXPERTS));
    trace_add(trace, "layer_0_router_weights", sides[0].weights, sides[1].weights, SHAPE(TOKENS, CHOSEN));
    trace_add_integers(trace, "layer_0_router_indices", sides[0].indices, sides[1].indices, TOKENS, CHOSEN);
    trace_add(trace, "layer_0_experts_output", sides[0].out, sides[1].out, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(trace, index);
    free(router);
    free(experts);
}

static void expect_mixture(struct mixture_faults faults, size_t index, const char *id, const char *words)
{
    struct trace trace;
    diagnose_mixture(&trace, &faults, index);
    assert_first(&trace, id, words);
    trace_end(&trace);
}

static void test_experts(void **state)
{
    (void)state;
    expect_mixture((struct mixture_faults){.sigmoid = true}, 2, "router-gate", "sigmoids divided by their sum");
    expect_mixture((struct mixture_faults){.unnormalized = true}, 2, "router-gate", "not divided by their sum");
    expect_mixture((struct mixture_faults){.ignored = true}, 4, "router-gate", "without the router's weights");
    expect_mixture((struct mixture_faults){.exchanged = 3}, 4, "router-gate", "are wrong; the other");
    expect_mixture((struct mixture_faults){.tied = true}, 3, "routing", "not a bug: 1 token (3)");
}

static void test_experts_are_silent(void **state)
{
    struct mixture_faults none = {0};
    (void)state;
    for (size_t index = 2; index < 5; index++) {
        struct trace trace;
        diagnose_mixture(&trace, &none, index);
        assert_silent(&trace);
        trace_end(&trace);
    }
}

/* Adaptive norms. */

struct block {
    float x[TOKENS * HIDDEN], modulation[6 * HIDDEN], normed[TOKENS * HIDDEN], modulated[TOKENS * HIDDEN],
        attention[TOKENS * HIDDEN], residual[TOKENS * HIDDEN];
};

struct block_faults {
    bool exchanged, one_missing, shift_missing, gate_missing, gate_other;
    double gate_sign;
};

static void run_block(const struct block_faults *faults, const float *weight, struct block *block)
{
    static const struct faults none;
    unsigned scale = faults->exchanged ? 0 : 1, shift = faults->exchanged ? 1 : 0;
    for (size_t row = 0; row < TOKENS; row++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < HIDDEN; i++)
            mean += (double)block->x[row * HIDDEN + i] / HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++)
            square += pow((double)block->x[row * HIDDEN + i] - mean, 2) / HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++) {
            size_t at = row * HIDDEN + i;
            block->normed[at] = (float)(((double)block->x[at] - mean) / sqrt(square + 1e-6));
            block->modulated[at] = (float)((double)block->normed[at] * ((faults->one_missing ? 0 : 1) +
                                                                        (double)block->modulation[scale * HIDDEN + i]) +
                                           (faults->shift_missing ? 0 : (double)block->modulation[shift * HIDDEN + i]));
        }
    }
    project(&none, block->modulated, weight, HIDDEN, HIDDEN, false, block->attention);
    for (size_t at = 0; at < TOKENS * HIDDEN; at++) {
        double gate = (double)block->modulation[(faults->gate_other ? 5U : 2U) * HIDDEN + at % HIDDEN];
        gate = faults->gate_missing ? 1 : faults->gate_sign < 0 ? -gate : gate;
        block->residual[at] = (float)((double)block->x[at] + gate * (double)block->attention[at]);
    }
}

static void diagnose_block(struct trace *trace, const struct block_faults *faults, size_t index)
{
    static struct block sides[2];
    static const struct block_faults none;
    float *weight;
    trace_start(trace);
    weight = made_values(HIDDEN * HIDDEN);
    fill(sides[0].x, TOKENS * HIDDEN, 0, 1);
    fill(sides[0].modulation, 6 * HIDDEN, 0.1, 0.5);
    sides[1] = sides[0];
    run_block(&none, weight, &sides[0]);
    run_block(faults, weight, &sides[1]);
    trace_add(trace, "block_0_input", sides[0].x, sides[1].x, SHAPE(TOKENS, HIDDEN));
    trace_add(trace, "block_0_modulation", sides[0].modulation, sides[1].modulation, SHAPE(1, 6 * HIDDEN));
    trace_add(trace, "block_0_normed", sides[0].normed, sides[1].normed, SHAPE(TOKENS, HIDDEN));
    trace_add(trace, "block_0_modulated", sides[0].modulated, sides[1].modulated, SHAPE(TOKENS, HIDDEN));
    trace_add(trace, "block_0_attn_out", sides[0].attention, sides[1].attention, SHAPE(TOKENS, HIDDEN));
    trace_add(trace, "block_0_residual", sides[0].residual, sides[1].residual, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(trace, index);
    free(weight);
}

static void expect_block(struct block_faults faults, size_t index, const char *id, const char *words)
{
    struct trace trace;
    diagnose_block(&trace, &faults, index);
    assert_first(&trace, id, words);
    trace_end(&trace);
}

static void test_modulation(void **state)
{
    (void)state;
    expect_block((struct block_faults){.exchanged = true}, 3, "modulation",
                 "the candidate swaps scale and shift of block_0_modulation");
    expect_block((struct block_faults){.one_missing = true}, 3, "term-missing", "\"1 +\" is missing");
    expect_block((struct block_faults){.shift_missing = true}, 3, "modulation",
                 "does not apply the shift of block_0_modulation");
    expect_block((struct block_faults){.gate_sign = -1}, 5, "modulation", "subtracts gate * block_0_attn_out");
    expect_block((struct block_faults){.gate_missing = true}, 5, "modulation",
                 "does not apply the gate of block_0_modulation");
    expect_block((struct block_faults){.gate_other = true}, 5, "modulation", "with chunk 5");
}

static void test_modulation_is_silent(void **state)
{
    struct block_faults none = {0};
    (void)state;
    for (size_t index = 2; index < 6; index++) {
        struct trace trace;
        diagnose_block(&trace, &none, index);
        assert_silent(&trace);
        trace_end(&trace);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest_runs_are_silent),
        cmocka_unit_test(test_inherited_errors_are_silent),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_unseen),
        cmocka_unit_test(test_activation),
        cmocka_unit_test(test_wiring),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_experts_are_silent),
        cmocka_unit_test(test_modulation),
        cmocka_unit_test(test_modulation_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
