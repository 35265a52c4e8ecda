/* The made runs: a decoder layer, a mixture of experts, a block of a diffusion model and smaller ones, in double
 * arithmetic, one side after the other with the same weights. */
#include "test_causes.h"

static double *kept[256]; /* weights of the run that is being made */
static size_t kept_count;

/* dice.h has a state of its own in every file: this one's is used. */
void draw_from(uint64_t seed)
{
    dice_state = seed;
}

double drawn(void)
{
    return dice_number();
}

size_t hidden(const struct size *size)
{
    return size->heads * size->head;
}

double *weights(size_t count, double mean, double size)
{
    double *values = malloc(count * sizeof *values);
    assert_non_null(values);
    assert_true(kept_count < sizeof kept / sizeof *kept);
    for (size_t i = 0; i < count; i++)
        values[i] = (double)(float)(mean + size * (drawn() + drawn()));
    return kept[kept_count++] = values;
}

void forget_weights(void)
{
    while (kept_count)
        free(kept[--kept_count]);
}

double round_to(double value, enum precision precision)
{
    int exponent, bits = precision == BF16 ? 8 : 11;
    double fraction;
    if (precision == F32 || !isfinite(value) || value == 0)
        return (double)(float)value;
    fraction = frexp(value, &exponent);
    if (precision == F16 && exponent < -13) /* subnormal */
        return nearbyint(value * 0x1p24) * 0x1p-24;
    value = ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
    return precision == F16 && fabs(value) > 65504 ? copysign((double)INFINITY, value) : value;
}

uint16_t f16_code(double value)
{
    uint32_t low = 0, high = 0x7c00, sign = signbit(value) ? 0x8000 : 0;
    while (low + 1 < high) {
        uint32_t middle = (low + high) / 2;
        if ((double)ts_f16_to_float((uint16_t)middle) <= fabs(value))
            low = middle;
        else
            high = middle;
    }
    return (uint16_t)(isnan(value) ? 0x7e00 : isinf(value) ? sign | 0x7c00 : sign | low);
}

double *point(struct side *side, const char *name, unsigned rank, const uint64_t *shape)
{
    struct point *new = &side->points[side->count++];
    assert_true(side->count <= sizeof side->points / sizeof *side->points);
    *new = (struct point){.name = name, .rank = rank, .count = 1};
    for (unsigned i = 0; i < rank; i++)
        new->count *= (size_t)(new->shape[i] = shape[i]);
    new->values = calloc(new->count, sizeof *new->values);
    assert_non_null(new->values);
    return new->values;
}

void settle(struct side *side, double *values)
{
    size_t p = 0;
    while (side->points[p].values != values)
        p++;
    if (side->candidate && side->planted && side->row->plant && strcmp(side->points[p].name, side->row->at) == 0) {
        uint64_t state = dice_state; /* the next weights are the reference's */
        for (size_t i = 0; i < side->points[p].count; i++)
            values[i] = round_to(values[i], side->precision);
        side->row->plant(side, values, side->points[p].count);
        dice_state = state;
    }
    for (size_t i = 0; i < side->points[p].count && !side->points[p].integers; i++)
        values[i] = round_to(values[i], side->precision);
}

const double *value_of(const struct side *side, const char *name)
{
    for (size_t p = 0; p < side->count; p++)
        if (strcmp(side->points[p].name, name) == 0)
            return side->points[p].values;
    fail_msg("no point %s", name);
    return NULL;
}

#define SHAPED(...) SHAPE(__VA_ARGS__)

double dot(const struct side *side, const double *x, const double *weight, size_t count, size_t stride)
{
    float rough = 0;
    double sum = 0;
    for (size_t k = 0; k < count; k++) {
        sum += x[k] * weight[k * stride];
        rough += (float)x[count - 1 - k] * (float)weight[(count - 1 - k) * stride];
    }
    return side->candidate && side->precision == F32 ? (double)rough : sum;
}

static double *project(struct side *side, const char *name, const double *x, const double *weight, size_t in,
                       size_t out, bool turned, const double *bias, size_t heads)
{
    double *to = heads ? point(side, name, SHAPED(side->size->tokens, heads, out / heads))
                       : point(side, name, SHAPED(side->size->tokens, out));
    for (size_t at = 0; at < side->size->tokens * out; at++)
        to[at] =
            dot(side, x + at / out * in, turned ? weight + at % out : weight + at % out * in, in, turned ? out : 1) +
            (bias ? bias[at % out] : 0);
    settle(side, to);
    return to;
}

static double *normalize(struct side *side, const char *name, const double *x, const double *weight, const double *bias,
                         enum norm_weight kind)
{
    const struct way *way = side->way;
    size_t width = hidden(side->size);
    double *to = point(side, name, SHAPED(side->size->tokens, width));
    for (size_t row = 0; row < side->size->tokens; row++) {
        const double *from = x + row * width;
        double mean = 0, square = 0;
        for (size_t i = 0; i < width; i++)
            mean += way->layer_norm ? from[i] / (double)width : 0;
        for (size_t i = 0; i < width; i++)
            square += (from[i] - mean) * (from[i] - mean) / (double)width;
        for (size_t i = 0; i < width; i++) {
            double w = weight[i];
            w = kind == ONE_PLUS_WEIGHT ? 1 + w : kind == NO_WEIGHT ? 1 : kind == WEIGHT_TWICE ? w * w : w;
            to[row * width + i] =
                (from[i] - mean) / (way->undivided ? 1 : sqrt(square + (way->epsilon > 0 ? way->epsilon : 1e-6))) * w +
                (way->norm_bias && !way->no_bias ? bias[i] : 0);
        }
    }
    settle(side, to);
    return to;
}

static double *turn(struct side *side, const char *name, const double *x, size_t heads)
{
    const struct way *way = side->way;
    size_t size = side->size->head, pairs = (way->half_turned ? size / 2 : way->most_turned ? size * 3 / 4 : size) / 2;
    double *to = point(side, name, SHAPED(side->size->tokens, heads, size));
    side->points[side->count - 1].by_head = true;
    memcpy(to, x, side->size->tokens * heads * size * sizeof *to);
    for (size_t at = 0; at < side->size->tokens * heads * pairs && !way->unturned; at++) {
        size_t i = at % pairs, row = at / pairs / heads;
        double *first = to + at / pairs * size + (way->interleaved ? 2 * i : i);
        double *second = way->interleaved ? first + 1 : first + pairs, old = *first;
        double where = (double)row + way->position + (row + 1 == side->size->tokens ? way->last_position : 0);
        double angle = where * pow(way->base > 0 ? way->base : 10000, -(double)i / (double)pairs) *
                       (way->backwards ? -1 : 1) * (way->turned_twice ? 2 : 1);
        *first = old * cos(angle) - *second * sin(angle);
        *second = old * sin(angle) + *second * cos(angle);
    }
    settle(side, to);
    return to;
}

static bool sees(const struct way *way, size_t row, size_t key)
{
    long distance = (long)row - (long)key;
    return way->unmasked || (distance >= -way->ahead && (!way->window || distance < way->window));
}

static void attend(struct side *side, const double *q, const double *k, const double *v)
{
    const struct way *way = side->way;
    size_t tokens = side->size->tokens, heads = side->size->heads, served = side->size->served, size = side->size->head;
    double *scores = point(side, "layer_0_attn_scores", SHAPED(tokens, heads, tokens)), *probs, *context;
    side->points[side->count - 1].by_head = true;
    for (size_t at = 0; at < tokens * heads * tokens; at++) {
        size_t key = at % tokens, head = at / tokens % heads, row = at / tokens / heads, sum_of = 0;
        size_t group = way->tiled ? head % served : head / (heads / served);
        size_t from = key + 1 == way->stale_token ? key - 1 : key;
        double sum = 0;
        for (; sum_of < size; sum_of++)
            sum += q[((way->exchanged ? from : row) * heads + head) * size + sum_of] *
                   k[((way->exchanged ? row : from) * served + group) * size + sum_of];
        scores[at] = sum * (way->unscaled ? 1 : 1 / sqrt((double)size));
        if (way->cap > 0)
            scores[at] = way->cap * tanh(scores[at] / way->cap);
        if (way->masked_scores && !sees(way, row, key))
            scores[at] = -(double)INFINITY;
    }
    settle(side, scores);
    probs = point(side, "layer_0_attn_probs", SHAPED(tokens, heads, tokens));
    side->points[side->count - 1].by_head = true;
    for (size_t lane = 0; lane < tokens * heads; lane++) {
        double sum = 0;
        for (size_t pass = 0; pass < 2 * tokens; pass++) {
            size_t row = way->over_queries ? pass % tokens : lane / heads;
            size_t key = way->over_queries ? lane / heads : pass % tokens;
            size_t at = (row * heads + lane % heads) * tokens + key;
            double e = exp(scores[at] * (1 + way->temperature));
            if (pass < tokens)
                sum += sees(way, row, key) || way->masked_late ? e : 0;
            else
                probs[at] = !sees(way, row, key) ? 0 : way->no_softmax ? scores[at] : e / sum;
        }
    }
    settle(side, probs);
    context = point(side, "layer_0_attn_context", SHAPED(tokens, heads * size));
    for (size_t at = 0; at < tokens * heads * size; at++) {
        size_t head = at / size % heads, group = way->tiled ? head % served : head / (heads / served);
        for (size_t key = 0; key < tokens; key++)
            context[at] +=
                probs[(at / size / heads * heads + head) * tokens + key] * v[(key * served + group) * size + at % size];
    }
    settle(side, context);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double function_of(const struct way *way, double gate, double up)
{
    switch (way->function) {
    case GELU:
        return 0.5 * gate * (1 + erf(gate / sqrt(2))) * up;
    case GELU_TANH:
        return 0.5 * gate * (1 + tanh(sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case GELU_QUICK:
        return gate / (1 + exp(-1.702 * gate)) * up;
    case RELU:
        return (gate > 0 ? gate : 0) * up;
    case NO_FUNCTION:
        return gate * up;
    case ON_THE_OTHER:
        return gate * silu(up);
    case WITHOUT_UP:
        return silu(gate);
    case SINE:
        return sin(2 * gate) * up;
    case LIMITED:
        return silu(fmin(gate, way->limit)) * fmax(-way->limit, fmin(up, way->limit));
    default:
        return silu(gate) * up;
    }
}

static double *add(struct side *side, const char *name, enum residual how, const double *x, const double *normed,
                   const double *y)
{
    static const double stream[] = {1, 0, 2, 1, 0, 1, 1}, branch[] = {1, 1, 1, -1, 1, 0, 2};
    size_t width = hidden(side->size);
    double *to = point(side, name, SHAPED(side->size->tokens, width));
    for (size_t i = 0; i < side->size->tokens * width; i++)
        to[i] = stream[how] * x[i] + branch[how] * y[i] + (how == FROM_NORM ? normed[i] : 0);
    settle(side, to);
    return to;
}

static double *start(struct side *side, const char *name, double mean)
{
    size_t width = hidden(side->size);
    double *x = point(side, name, SHAPED(side->size->tokens, width));
    double *random = weights(side->size->tokens * width, mean, side->way->large ? 900 : side->way->small ? 0.003 : 1);
    memcpy(x, random, side->size->tokens * width * sizeof *x);
    for (size_t i = 2 * width; i < 3 * width && side->way->zero_token; i++)
        x[i] = 0;
    settle(side, x);
    return x;
}

void make_layer(struct side *side)
{
    const struct way *way = side->way;
    const struct size *size = side->size;
    size_t wide = hidden(size), keys = size->served * size->head, inner = size->inner;
    bool one = side->row->reference.norm_weight == ONE_PLUS_WEIGHT;
    double *x = start(side, "layer_0_input", way->small ? 0 : 0.1), *norm = weights(wide, one ? 0 : 1, 0.2);
    double narrow = 1.2 / sqrt((double)wide); /* so that products have the size of their inputs */
    double *mlp_norm = weights(wide, 1, 0.2), *bias = weights(wide, 0, 0.2), *wq = weights(wide * wide, 0, narrow);
    double *wk = weights(keys * wide, 0, narrow), *wv = weights(keys * wide, 0, narrow),
           *wo = weights(wide * wide, 0, narrow);
    double *other = weights(wide * wide, 0, narrow), *wg = weights(inner * wide, 0, narrow);
    double *wu = weights(inner * wide, 0, narrow), *wd = weights(wide * inner, 0, 2 / sqrt((double)inner)),
           *q_bias = weights(wide, 0, 0.5);
    double *normed, *q, *k, *v, *o, *residual, *mlp_normed, *gate, *up, *middle, *down, *logits;
    for (size_t i = 0; i < wide; i++)
        q_bias[i] *= way->bias_missing ? 0 : way->bias_twice ? 2 : 1;
    normed = normalize(side, "layer_0_attn_norm_output", x, norm, bias, way->norm_weight);
    q = project(side, "layer_0_attn_q_proj", normed, wq, wide, wide, false, q_bias, size->heads);
    k = project(side, "layer_0_attn_k_proj", normed, way->swapped_projections ? wv : wk, wide, keys, false, NULL,
                size->served);
    v = project(side, "layer_0_attn_v_proj", normed, way->swapped_projections ? wk : wv, wide, keys, false, NULL,
                size->served);
    q = turn(side, "layer_0_attn_q_rope", q, size->heads);
    k = turn(side, "layer_0_attn_k_rope", k, size->served);
    attend(side, q, k, v);
    o = project(side, "layer_0_attn_o_proj", value_of(side, "layer_0_attn_context"), way->o_random ? other : wo, wide,
                wide, way->o_transposed, NULL, 0);
    residual = add(side, "layer_0_residual", way->attn_residual, x, normed, o);
    if (way->norm_skipped) {
        mlp_normed = point(side, "layer_0_mlp_norm_output", SHAPED(size->tokens, wide));
        memcpy(mlp_normed, residual, size->tokens * wide * sizeof *residual);
        settle(side, mlp_normed);
    } else {
        mlp_normed = normalize(side, "layer_0_mlp_norm_output", way->norm_of_input ? x : residual,
                               way->mlp_norm_weight == WEIGHT_OF_THE_FIRST ? norm : mlp_norm, bias, WEIGHT);
    }
    gate = project(side, "layer_0_mlp_gate_proj", mlp_normed, wg, wide, inner, false, NULL, 0);
    up = project(side, "layer_0_mlp_up_proj", mlp_normed, wu, wide, inner, false, NULL, 0);
    middle = point(side, "layer_0_mlp_act", SHAPED(size->tokens, inner));
    for (size_t i = 0; i < size->tokens * inner; i++)
        middle[i] = function_of(way, gate[i], up[i]);
    settle(side, middle);
    for (size_t i = 0; i < wide && way->column; i++)
        wd[i * inner + way->column - 1] = 0;
    down = project(side, "layer_0_mlp_down_proj", middle, wd, inner, wide, false, NULL, 0);
    add(side, "layer_0_output", way->mlp_residual, residual, mlp_normed, down);
    logits = point(side, "logits", SHAPED(size->tokens, 2 * wide));
    for (size_t i = 0; i < size->tokens * 2 * wide; i++) {
        logits[i] = 40 * down[i / (2 * wide) * wide + i % wide] * (i % (2 * wide) < wide ? 1 : -0.7);
        if (way->cap_logits > 0)
            logits[i] = way->cap_logits * tanh(logits[i] / way->cap_logits);
    }
    settle(side, logits);
}

static double gate_of(const struct way *way, const double *modulation, size_t wide, size_t i)
{
    double gate = modulation[way->chunks_interleaved ? i * 6 + 2 : (way->gate_other ? 5 : 2) * wide + i];
    if (way->gate_tanh)
        gate = tanh(gate);
    if (way->gate_sigmoid)
        gate = 1 / (1 + exp(-gate));
    return way->gate_missing ? 1 : way->gate_negative ? -gate : gate;
}

/* The bias that chooses experts, where there is one. */
static double bias_of(size_t expert)
{
    return 0.3 * sin(2.3 * (double)expert + 1);
}

/* What an expert is chosen by. */
static double score_of(const struct way *way, double logit, size_t expert)
{
    return way->biased ? 1 / (1 + exp(-logit)) + bias_of(expert) : logit;
}

static void choose(const struct side *side, const double *logits, double *chosen, double *gates)
{
    const struct way *way = side->way;
    size_t experts = side->size->experts;
    double all = 0, kept_sum = 0;
    bool taken[64] = {false};
    double sharper = way->sharper > 0 ? way->sharper : 1;
    for (size_t e = 0; e < experts; e++)
        all += exp(sharper * logits[e]);
    for (size_t rank = 0; rank < side->size->chosen + way->first_rank; rank++) {
        size_t best = experts, k = rank - way->first_rank;
        for (size_t e = 0; e < experts; e++)
            if (!taken[e] && (best == experts || score_of(way, logits[e], e) > score_of(way, logits[best], best)))
                best = e;
        taken[best] = true;
        if (rank < way->first_rank)
            continue;
        chosen[k] = (double)best;
        gates[k] = way->sigmoid ? 1 / (1 + exp(-sharper * logits[best])) : exp(sharper * logits[best]) / all;
        gates[k] += way->bias_in_weights ? bias_of(best) : 0;
        kept_sum += gates[k];
    }
    for (size_t k = 0; k < side->size->chosen; k++)
        gates[k] *= (way->unnormalized ? 1 : 1 / kept_sum) * (way->routed_scale > 0 ? way->routed_scale : 1);
}

void make_mixture(struct side *side)
{
    const struct way *way = side->way;
    const struct size *size = side->size;
    size_t wide = hidden(size);
    double *x = start(side, "layer_0_mlp_norm_output", 0), *random = weights(size->tokens * size->experts, 0, 1.5);
    double *experts = weights(size->experts * wide * wide, 0, 1), *common = weights(wide * wide, 0, 1);
    double *logits = point(side, "layer_0_router_logits", SHAPED(size->tokens, size->experts)), *gates, *indices;
    double *out, *shared = NULL, *share = weights(size->tokens, 0, 1.5);
    for (size_t at = 0; at < size->tokens * size->experts; at++)
        logits[at] = random[at] + (side->candidate ? 1e-6 * drawn() : 0);
    for (size_t row = 3; row < size->tokens; row += 4) { /* tied between two experts: rounding decides */
        double *tie = logits + row * size->experts, top = 0;
        for (size_t e = 0; e < size->experts; e++)
            top = fmax(top, tie[e]);
        for (size_t k = 0; k + 1 < size->chosen; k++)
            tie[3 + k] = top + 2 + (double)k;
        tie[1] = top + 1 + (way->tied ? 1e-4 : 0);
        tie[2] = top + 1 + (way->tied ? 0 : 1e-4);
    }
    for (size_t at = 0; at < size->tokens * size->experts; at++)
        logits[at] = (double)(float)logits[at]; /* routers run in f32 */
    gates = point(side, "layer_0_router_weights", SHAPED(size->tokens, size->chosen));
    indices = point(side, "layer_0_router_indices", SHAPED(size->tokens, size->chosen));
    side->points[side->count - 1].integers = true;
    for (size_t row = 0; row < size->tokens; row++)
        choose(side, logits + row * size->experts, indices + row * size->chosen, gates + row * size->chosen);
    settle(side, gates);
    settle(side, indices);
    if (way->shared)
        shared = project(side, "layer_0_shared_expert_output", x, common, wide, wide, false, NULL, 0);
    if (way->shared_gated) {
        double *gate = point(side, "layer_0_shared_expert_gate", SHAPED(size->tokens, 1));
        memcpy(gate, share, size->tokens * sizeof *gate);
        settle(side, gate);
    }
    out = point(side, way->shared ? "layer_0_mlp_output" : "layer_0_experts_output", SHAPED(size->tokens, wide));
    for (size_t at = 0; at < size->tokens * wide; at++) {
        size_t row = at / wide;
        for (size_t k = 0; k < size->chosen; k++) {
            size_t expert = (size_t)indices[row * size->chosen + k], swap = way->exchanged_expert;
            double gate = gates[row * size->chosen + (way->reversed ? size->chosen - 1 - k : k)];
            if (swap && (expert + 1 == swap || expert == swap))
                expert = 2 * swap - 1 - expert;
            gate *= way->twice ? gate : way->first_alone && k ? 0 : 1;
            expert = way->rolled ? (expert + size->experts / 2) % size->experts : expert;
            out[at] += (way->ignored ? 1 : gate) *
                       dot(side, x + row * wide, experts + (expert * wide + at % wide) * wide, wide, 1);
        }
        if (shared && !way->shared_missing)
            out[at] += shared[at] * (way->gate_bare                       ? share[row]
                                     : way->shared_gated && !way->ungated ? 1 / (1 + exp(-share[row]))
                                                                          : 1);
    }
    settle(side, out);
}

void make_block(struct side *side)
{
    const struct way *way = side->way;
    size_t wide = hidden(side->size), tokens = side->size->tokens;
    double *x = start(side, "block_0_input", 0), *random = weights(6 * wide, 0.1, 0.5), *weight, *normed, *modulated;
    double *modulation = point(side, "block_0_modulation", SHAPED(1, 6 * wide)), *attention, *gated, *residual;
    memcpy(modulation, random, 6 * wide * sizeof *random);
    settle(side, modulation);
    normed = point(side, "block_0_normed", SHAPED(tokens, wide));
    for (size_t at = 0; at < tokens * wide; at += wide) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < wide; i++)
            mean += x[at + i] / (double)wide;
        for (size_t i = 0; i < wide; i++)
            square += (x[at + i] - mean) * (x[at + i] - mean) / (double)wide;
        for (size_t i = 0; i < wide; i++)
            normed[at + i] = (x[at + i] - mean) / sqrt(square + 1e-6);
    }
    settle(side, normed);
    modulated = point(side, "block_0_modulated", SHAPED(tokens, wide));
    for (size_t at = 0; at < tokens * wide; at++) {
        double shift = modulation[(way->chunks_exchanged ? wide : 0) + at % wide];
        double scale = modulation[(way->chunks_exchanged ? 0 : wide) + at % wide];
        if (way->chunks_interleaved) {
            shift = modulation[at % wide * 6];
            scale = modulation[at % wide * 6 + 1];
        }
        if (way->shift_missing || way->shift_absent)
            shift = 0;
        if (way->shift_negative)
            shift = -shift;
        if (way->shift_early)
            shift *= 1 + scale;
        modulated[at] = (way->modulated_unnormed ? x : normed)[at] * ((way->one_missing ? 0
                                                                       : way->one_twice ? 2
                                                                                        : 1) +
                                                                      scale) +
                        shift;
    }
    settle(side, modulated);
    weight = weights(wide * wide, 0, way->large ? 60 : 0.7);
    attention = project(side, "block_0_attn_out", modulated, weight, wide, wide, false, NULL, 0);
    gated = point(side, "block_0_gated", SHAPED(tokens, wide));
    for (size_t at = 0; at < tokens * wide; at++) {
        gated[at] = gate_of(way, modulation, wide, at % wide) * attention[at];
    }
    settle(side, gated);
    residual = point(side, "block_0_residual", SHAPED(tokens, wide));
    for (size_t at = 0; at < tokens * wide; at++) {
        const double gate = gate_of(way, modulation, wide, at % wide);
        residual[at] = (way->gate_on_stream || way->gate_on_both ? gate : 1) * x[at] +
                       (way->gate_on_stream ? 1 : gate) * attention[at];
    }
    settle(side, residual);
}

void make_two(struct side *side)
{
    size_t count = side->size->tokens * hidden(side->size);
    double *x = start(side, "x", 0), *y, *random = weights(count, 0, 1.2);
    (void)x;
    y = point(side, "q_proj", SHAPED(side->size->tokens, side->size->heads, side->size->head));
    for (size_t i = 0; i < count; i++) /* a product whose rounding differs */
        y[i] = random[i] * (side->candidate ? 1 + 1e-7 * drawn() : 1);
    settle(side, y);
}

void make_large(struct side *side)
{
    size_t count = side->size->tokens * hidden(side->size);
    double *x = start(side, "x", 0), *y, *random = weights(count, 0, 40000);
    (void)x;
    y = point(side, "y", SHAPED(side->size->tokens, hidden(side->size)));
    for (size_t i = 0; i < count; i++)
        y[i] = random[i] * (side->candidate ? 1 + 1e-7 * drawn() : 1);
    settle(side, y);
}

void make_checkpoint(struct side *side)
{
    static const char *const names[] = {
        "model.layers.0.self_attn.q_proj.weight",   "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",      "model.layers.0.self_attn.qkv_proj.weight",
        "model.layers.0.mlp.gate_up_proj.weight",   "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.self_attn.o_proj.weight",   "model.layers.1.mlp.gate_proj.weight",
        "model.layers.1.self_attn.qkv_proj.weight", "model.layers.1.mlp.gate_up_proj.weight"};
    size_t wide = hidden(side->size), inner = side->size->inner;
    for (size_t p = 0; p < sizeof names / sizeof *names; p++) {
        const size_t rows = (size_t[]){wide, wide, inner, 3 * wide, 2 * inner}[p % 5];
        double *random = weights(rows * wide, 0, 0.03), *values = point(side, names[p], SHAPED(rows, wide));
        memcpy(values, random, rows * wide * sizeof *values);
        settle(side, values);
    }
    for (size_t p = 0; p < 2; p++) { /* and two vectors */
        size_t count = p ? 3 * wide : wide;
        double *random = weights(count, p ? 0 : 0.05, 0.1);
        double *values =
            point(side, p ? "model.layers.0.modulation.bias" : "model.layers.0.input_layernorm.weight", SHAPED(count));
        memcpy(values, random, count * sizeof *values);
        settle(side, values);
    }
}

void make_stream(struct side *side)
{
    static const char *const names[] = {"hidden_states.0", "hidden_states.1", "hidden_states.2", "hidden_states.3"};
    size_t wide = hidden(side->size), count = side->size->tokens * wide;
    double *x = start(side, names[0], 0);
    for (size_t p = 1; p < 4; p++) {
        double *weight = weights(wide * wide, 0, 0.4), *next = point(side, names[p], SHAPED(side->size->tokens, wide));
        for (size_t at = 0; at < count; at++)
            next[at] = x[at] + tanh(dot(side, x + at / wide * wide, weight + at % wide * wide, wide, 1));
        settle(side, next);
        x = next;
    }
}
