/* Owns the forward pass: the order of operations, the points that are captured, and what happens at a point. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "zoo.h"

void zoo_trace_release(struct zoo_trace *trace)
{
    zoo_arena_release(&trace->arena);
    free(trace->tensors);
    *trace = (struct zoo_trace){0};
}

const struct zoo_tensor *zoo_trace_find(const struct zoo_trace *trace, enum zoo_point point, int layer)
{
    for (int i = 0; i < trace->count; i++)
        if (trace->tensors[i].point == point && trace->tensors[i].layer == layer)
            return &trace->tensors[i];
    return NULL;
}

void zoo_emit(struct zoo_run *run, enum zoo_point point, int layer, float *values, int rows, int heads, int inner)
{
    struct zoo_trace *trace = run->trace;
    size_t size = (size_t)(rows * heads * inner) * sizeof *values;
    struct zoo_tensor *tensor;
    zoo_damage_apply(run, values, layer, point, rows, heads, inner);
    if (!run->model->config->shown[point])
        return;
    if (trace->count == trace->room) {
        trace->room = trace->room ? 2 * trace->room : 64;
        trace->tensors = realloc(trace->tensors, (size_t)trace->room * sizeof *trace->tensors);
        if (!trace->tensors)
            abort();
    }
    tensor = &trace->tensors[trace->count++];
    *tensor = (struct zoo_tensor){.point = point, .layer = layer, .rows = rows, .heads = heads, .inner = inner};
    tensor->values = zoo_floats(&trace->arena, rows * heads * inner);
    memcpy(tensor->values, values, size);
    if (run->forced)
        memcpy(values, zoo_trace_find(run->forced, point, layer)->values, size);
}

static enum zoo_format sum_format(const struct zoo_numerics *numerics)
{
    return numerics->wide_sums ? ZOO_F32 : numerics->format;
}

/* Parts beside each other in one captured tensor, and apart again: what a fused projection gives. */
static void emit_fused(struct zoo_run *run, enum zoo_point point, int index, float **parts, const int *widths,
                       int count, int rows)
{
    int width = 0;
    float *whole;
    for (int i = 0; i < count; i++)
        width += widths[i];
    whole = zoo_floats(&run->arena, rows * width);
    for (int pass = 0; pass < 2; pass++) {
        for (int row = 0; row < rows; row++)
            for (int i = 0, at = row * width; i < count; at += widths[i++])
                memcpy(pass ? parts[i] + row * widths[i] : whole + at, pass ? whole + at : parts[i] + row * widths[i],
                       (size_t)widths[i] * sizeof *whole);
        if (!pass)
            zoo_emit(run, point, index, whole, rows, 1, width);
    }
}

/* Gate and up projections; the points of an expert are not captured. */
static void gate_and_up(struct zoo_run *run, int index, const struct zoo_matrix *gate, const struct zoo_matrix *up,
                        const float *in, int rows, bool shown, float *g, float *u)
{
    float *parts[2] = {g, u};
    if (gate->weight)
        zoo_linear(run, gate, in, rows, g);
    zoo_linear(run, up, in, rows, u);
    if (!shown)
        return;
    if (gate->weight) {
        emit_fused(run, ZOO_GATE_UP, index, parts, (const int[]){up->out, up->out}, 2, rows);
        zoo_emit(run, ZOO_GATE, index, g, rows, 1, up->out);
    }
    zoo_emit(run, ZOO_UP, index, u, rows, 1, up->out);
}

/* y = f(gate) * up, or f(up) without a gate, and the projection down. */
static void feed(struct zoo_run *run, int index, const struct zoo_matrix *gate, const struct zoo_matrix *up,
                 const struct zoo_matrix *down, const float *in, int rows, bool shown, float *out)
{
    const struct zoo_numerics *n = run->numerics;
    const struct zoo_layer *layer = &run->model->layer[index];
    int width = up->out;
    float *g = zoo_floats(&run->arena, rows * width), *u = zoo_floats(&run->arena, rows * width);
    float *act = zoo_floats(&run->arena, rows * width);
    bool gated = gate->weight != NULL;
    bool table = n->table && (layer->activation == ZOO_GELU || layer->activation == ZOO_GELU_TANH);
    gate_and_up(run, index, gate, up, in, rows, shown, g, u);
    if (gated && layer->gate_up_swapped) {
        float *other = g;
        g = u;
        u = other;
    }
    for (int i = 0; i < rows * width; i++) {
        float x = gated ? g[i] : u[i];
        act[i] = zoo_activate(layer->activation, table ? zoo_round(ZOO_F16, x) : x);
        if (table)
            act[i] = zoo_round(ZOO_F16, act[i]);
        if (!n->fused || !gated || (shown && run->model->config->shown[ZOO_ACT]))
            act[i] = zoo_round(n->format, act[i]);
    }
    if (shown)
        zoo_emit(run, ZOO_ACT, index, act, rows, 1, width);
    for (int i = 0; i < rows * width && gated; i++)
        act[i] = zoo_round(n->format, act[i] * u[i]);
    if (shown && gated)
        zoo_emit(run, ZOO_INTERMEDIATE, index, act, rows, 1, width);
    zoo_linear(run, down, act, rows, out);
    if (shown)
        zoo_emit(run, ZOO_DOWN, index, out, rows, 1, down->out);
}

/* The chosen experts of one token and their weights, best first. */
static void choose(const struct zoo_run *run, const struct zoo_layer *layer, const float *logits, float *weight,
                   float *chosen)
{
    const struct zoo_config *c = run->model->config;
    float probability[ZOO_MOST_EXPERTS], largest = -INFINITY, sum = 0, kept = 0;
    enum zoo_format format = run->numerics->router_exact ? ZOO_F32 : run->numerics->format;
    for (int e = 0; e < c->experts; e++)
        largest = logits[e] > largest ? logits[e] : largest;
    for (int e = 0; e < c->experts; e++) {
        probability[e] = layer->sigmoid_router ? 1 / (1 + expf(-logits[e])) : expf(logits[e] - largest);
        sum += probability[e];
    }
    for (int k = 0; k < c->top; k++) {
        int best = -1;
        for (int e = 0; e < c->experts; e++) {
            bool taken = false;
            for (int j = 0; j < k; j++)
                taken = taken || (int)chosen[j] == e;
            if (!taken && (best < 0 || probability[e] > probability[best]))
                best = e;
        }
        chosen[k] = (float)best;
        weight[k] = probability[best] / (layer->sigmoid_router ? 1 : sum);
        kept += weight[k];
    }
    for (int k = 0; k < c->top; k++)
        weight[k] = zoo_round(format, weight[k] / (layer->renormalized ? kept : 1) * (float)layer->router_factor);
}

static void run_experts(struct zoo_run *run, int index, const float *in, const float *weight, const float *chosen,
                        float *out)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    float *part = zoo_floats(&run->arena, c->hidden);
    memset(out, 0, (size_t)(c->tokens * c->hidden) * sizeof *out);
    for (int row = 0; row < c->tokens; row++)
        for (int k = 0; k < c->top; k++) {
            const struct zoo_matrix *expert = layer->expert[(int)chosen[row * c->top + k]];
            float gate = weight[row * c->top + (layer->gates_reversed ? c->top - 1 - k : k)];
            if (layer->gates_ignored)
                gate = 1 / (float)c->top;
            feed(run, index, &expert[0], &expert[1], &expert[2], in + row * c->hidden, 1, false, part);
            for (int i = 0; i < c->hidden; i++)
                out[row * c->hidden + i] = zoo_round(run->numerics->format, out[row * c->hidden + i] + gate * part[i]);
        }
}

static void mixture(struct zoo_run *run, int index, float *in, float *out)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    const struct zoo_numerics *n = run->numerics;
    struct zoo_numerics exact = *zoo_numerics_named("float32");
    int rows = c->tokens, total = rows * c->hidden;
    float *logits = zoo_floats(&run->arena, rows * c->experts), *weight = zoo_floats(&run->arena, rows * c->top);
    float *chosen = zoo_floats(&run->arena, rows * c->top), *shared = zoo_floats(&run->arena, total);
    float *gate = zoo_floats(&run->arena, rows);
    if (n->router_exact)
        run->numerics = &exact;
    zoo_linear(run, &layer->router, in, rows, logits);
    run->numerics = n;
    zoo_emit(run, ZOO_ROUTER_LOGITS, index, logits, rows, 1, c->experts);
    for (int row = 0; row < rows; row++)
        choose(run, layer, logits + row * c->experts, weight + row * c->top, chosen + row * c->top);
    zoo_emit(run, ZOO_ROUTER_WEIGHTS, index, weight, rows, 1, c->top);
    zoo_emit(run, ZOO_ROUTER_INDICES, index, chosen, rows, 1, c->top);
    run_experts(run, index, in, weight, chosen, out);
    zoo_emit(run, ZOO_EXPERTS, index, out, rows, 1, c->hidden);
    if (c->shared_expert) {
        feed(run, index, &layer->shared[0], &layer->shared[1], &layer->shared[2], in, rows, false, shared);
        if (c->shared_gate) {
            zoo_linear(run, &layer->shared_gate, in, rows, gate);
            for (int i = 0; i < total; i++)
                shared[i] = zoo_round(n->format, shared[i] / (1 + expf(-gate[i / c->hidden])));
        }
        zoo_emit(run, ZOO_SHARED, index, shared, rows, 1, c->hidden);
        for (int i = 0; i < total && !layer->shared_missing; i++)
            out[i] = zoo_round(n->format, out[i] + shared[i]);
    }
}

void zoo_mlp(struct zoo_run *run, int index, float *in, float *out)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    if (c->experts)
        mixture(run, index, in, out);
    else
        feed(run, index, &layer->gate, &layer->up, &layer->down, in, c->tokens, true, out);
    zoo_emit(run, ZOO_MLP, index, out, c->tokens, 1, c->hidden);
}

/* Keys or values as a quantized cache gives them back, per token and head. */
static void store(const struct zoo_run *run, float *values)
{
    const struct zoo_config *c = run->model->config;
    if (run->numerics->cache == ZOO_WEIGHTS_PLAIN)
        return;
    for (int i = 0; i < c->tokens * c->kv_heads; i++)
        zoo_quantize_row(run->numerics->cache, values + i * c->head_size, c->head_size);
    for (int i = 0; i < c->tokens * c->kv_heads * c->head_size; i++)
        values[i] = zoo_round(run->numerics->format, values[i]);
}

/* Query, key and value from the normed input to what attention takes. */
static void project(struct zoo_run *run, int index, const float *in, float **q, float **k, float **v)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    int t = c->tokens, d = c->head_size, wide = c->heads * d, narrow = c->kv_heads * d;
    float *parts[3] = {zoo_floats(&run->arena, t * wide), zoo_floats(&run->arena, t * narrow),
                       zoo_floats(&run->arena, t * narrow)};
    const struct zoo_matrix *matrices[3] = {&layer->q, &layer->k, &layer->v};
    for (int i = 0; i < 3; i++)
        zoo_linear(run, matrices[i], in, t, parts[i]);
    if (c->fused_qkv)
        emit_fused(run, ZOO_QKV, index, parts, (const int[]){wide, narrow, narrow}, 3, t);
    if (layer->swap_qk) { /* only where both have the same size */
        float *other = parts[0];
        parts[0] = parts[1];
        parts[1] = other;
    }
    if (run->numerics->cache_shown) {
        if (!c->rotary_size)
            store(run, parts[1]);
        store(run, parts[2]);
    }
    zoo_emit(run, ZOO_Q, index, parts[0], t, c->heads, d);
    zoo_emit(run, ZOO_K, index, parts[1], t, c->kv_heads, d);
    zoo_emit(run, ZOO_V, index, parts[2], t, c->kv_heads, d);
    *q = parts[0];
    *k = parts[1];
    *v = parts[2];
}

static void head_layout(const struct zoo_config *c, const float *in, float *out)
{
    for (int row = 0; row < c->tokens; row++)
        for (int head = 0; head < c->heads; head++)
            for (int i = 0; i < c->head_size; i++)
                out[(row * c->heads + head) * c->head_size + i] =
                    in[row * c->heads * c->head_size + i * c->heads + head];
}

static void norm_and_turn(struct zoo_run *run, int index, float **q, float **k)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    int t = c->tokens, d = c->head_size;
    float *out;
    if (layer->head_layout) {
        out = zoo_floats(&run->arena, t * c->heads * d);
        head_layout(c, *q, out);
        *q = out;
    }
    if (c->qk_norm) {
        out = zoo_floats(&run->arena, t * c->heads * d);
        if (layer->q_norm.on)
            zoo_norm(run, &layer->q_norm, *q, t * c->heads, out);
        else
            memcpy(out, *q, (size_t)(t * c->heads * d) * sizeof *out);
        zoo_emit(run, ZOO_Q_NORM, index, out, t, c->heads, d);
        *q = out;
        out = zoo_floats(&run->arena, t * c->kv_heads * d);
        if (layer->k_norm.on)
            zoo_norm(run, &layer->k_norm, *k, t * c->kv_heads, out);
        else
            memcpy(out, *k, (size_t)(t * c->kv_heads * d) * sizeof *out);
        zoo_emit(run, ZOO_K_NORM, index, out, t, c->kv_heads, d);
        *k = out;
    }
    if (c->rotary_size) {
        out = zoo_floats(&run->arena, t * c->heads * d);
        zoo_rotate(run, &layer->q_rope, *q, t, c->heads, d, out);
        zoo_emit(run, ZOO_Q_ROPE, index, out, t, c->heads, d);
        *q = out;
        out = zoo_floats(&run->arena, t * c->kv_heads * d);
        zoo_rotate(run, &layer->k_rope, *k, t, c->kv_heads, d, out);
        if (run->numerics->cache_shown)
            store(run, out);
        zoo_emit(run, ZOO_K_ROPE, index, out, t, c->kv_heads, d);
        *k = out;
    }
}

/* What the cache makes of keys and values. */
static void cached(struct zoo_run *run, const struct zoo_layer *layer, float **k, float **v)
{
    const struct zoo_config *c = run->model->config;
    int width = c->kv_heads * c->head_size, total = c->tokens * width, stale = layer->stale_token;
    float *keys = zoo_floats(&run->arena, total), *values = zoo_floats(&run->arena, total);
    memcpy(keys, *k, (size_t)total * sizeof *keys);
    memcpy(values, layer->previous_v && run->previous_v ? run->previous_v : *v, (size_t)total * sizeof *values);
    store(run, keys);
    store(run, values);
    if (stale > 0) {
        memcpy(keys + stale * width, keys + (stale - 1) * width, (size_t)width * sizeof *keys);
        memcpy(values + stale * width, values + (stale - 1) * width, (size_t)width * sizeof *values);
    }
    run->previous_v = *v;
    *k = keys;
    *v = values;
}

static void attention(struct zoo_run *run, int index, float *in, float *out)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    float *q, *k, *v, *context = zoo_floats(&run->arena, c->tokens * c->heads * c->head_size);
    project(run, index, in, &q, &k, &v);
    norm_and_turn(run, index, &q, &k);
    cached(run, layer, &k, &v);
    zoo_attention(run, index, q, k, v, context);
    zoo_emit(run, ZOO_CONTEXT, index, context, c->tokens, c->heads, c->head_size);
    zoo_linear(run, &layer->o, context, c->tokens, out);
    zoo_emit(run, ZOO_O, index, out, c->tokens, 1, c->hidden);
    zoo_emit(run, ZOO_ATTENTION, index, out, c->tokens, 1, c->hidden);
}

static void norm_point(struct zoo_run *run, enum zoo_point point, int index, const struct zoo_norm *norm,
                       const float *in, float *out)
{
    const struct zoo_config *c = run->model->config;
    if (norm->on)
        zoo_norm(run, norm, in, c->tokens, out);
    else
        memcpy(out, in, (size_t)(c->tokens * c->hidden) * sizeof *out);
    zoo_emit(run, point, index, out, c->tokens, 1, c->hidden);
}

/* out = in * (one + scale) + shift; scale and shift are chunks of the modulation. */
static void modulate(const struct zoo_run *run, const float *modulation, int chunks, int shift, int scale, double one,
                     const float *in, float *out)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_numerics *n = run->numerics;
    for (int i = 0; i < c->tokens * c->hidden; i++) {
        int row = c->modulation_rows == 1 ? 0 : i / c->hidden;
        const float *from = modulation + row * chunks * c->hidden + i % c->hidden;
        float factor = (float)one + from[scale * c->hidden], product;
        if (!n->fused)
            factor = zoo_round(n->format, factor);
        product = n->fused ? in[i] * factor : zoo_round(n->format, in[i] * factor);
        out[i] = zoo_round(n->format, product + from[shift * c->hidden]);
    }
}

/* The stream plus what a branch gave, with everything that can go wrong there. */
static void add_branch(const struct zoo_run *run, enum zoo_residual residual, const float *stream, const float *normed,
                       const float *branch, const float *gate, int gate_rows, int gate_width, double sign, float *out)
{
    const struct zoo_config *c = run->model->config;
    for (int i = 0; i < c->tokens * c->hidden; i++) {
        float base = residual == ZOO_RESIDUAL_MISSING ? 0 : residual == ZOO_RESIDUAL_NORMED ? normed[i] : stream[i];
        float term = residual == ZOO_RESIDUAL_ONLY ? 0 : branch[i];
        if (gate) {
            term *= (float)sign * gate[(gate_rows == 1 ? 0 : i / c->hidden) * gate_width + i % c->hidden];
            if (!run->numerics->fused)
                term = zoo_round(run->numerics->format, term);
        }
        base = residual == ZOO_RESIDUAL_DOUBLED ? 2 * base : base;
        out[i] = zoo_round(sum_format(run->numerics), base + term);
    }
}

static void transformer_layer(struct zoo_run *run, int index, float *x)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    int t = c->tokens, total = t * c->hidden;
    float *before = zoo_floats(&run->arena, total), *normed = zoo_floats(&run->arena, total);
    float *attended = zoo_floats(&run->arena, total), *fed = zoo_floats(&run->arena, total);
    float *post = zoo_floats(&run->arena, total), *input, *modulation = NULL;
    const float *gates[2] = {NULL, NULL};
    zoo_emit(run, ZOO_INPUT, index, x, t, 1, c->hidden);
    memcpy(before, x, (size_t)total * sizeof *x);
    if (c->dit) {
        modulation = zoo_floats(&run->arena, c->modulation_rows * 6 * c->hidden);
        zoo_linear(run, &layer->modulation, run->model->condition, c->modulation_rows, modulation);
        zoo_emit(run, ZOO_MODULATION, index, modulation, c->modulation_rows, 1, 6 * c->hidden);
        for (int i = 0; i < 2; i++)
            gates[i] = layer->gate_missing[i] ? NULL : modulation + layer->chunk[3 * i + 2] * c->hidden;
    }
    norm_point(run, ZOO_ATTN_NORM, index, &layer->attn_norm, x, normed);
    input = normed;
    if (c->dit) {
        input = zoo_floats(&run->arena, total);
        modulate(run, modulation, 6, layer->chunk[0], layer->chunk[1], layer->one_plus[0], normed, input);
        zoo_emit(run, ZOO_ATTN_MODULATED, index, input, t, 1, c->hidden);
    }
    attention(run, index, input, attended);
    if (c->post_norms) {
        norm_point(run, ZOO_POST_ATTN_NORM, index, &layer->post_attn_norm, attended, post);
        memcpy(attended, post, (size_t)total * sizeof *post);
    }
    if (!c->parallel) {
        add_branch(run, layer->attn_residual, before, normed, attended, gates[0], c->modulation_rows, 6 * c->hidden,
                   layer->gate_sign[0], x);
        zoo_emit(run, ZOO_ATTN_RESIDUAL, index, x, t, 1, c->hidden);
    }
    if (!(c->parallel && c->shared_norm)) {
        norm_point(run, ZOO_MLP_NORM, index, &layer->mlp_norm, layer->mlp_norm_of_input ? before : x, normed);
        input = normed;
    }
    if (c->dit) {
        input = zoo_floats(&run->arena, total);
        modulate(run, modulation, 6, layer->chunk[3], layer->chunk[4], layer->one_plus[1], normed, input);
        zoo_emit(run, ZOO_MLP_MODULATED, index, input, t, 1, c->hidden);
    }
    zoo_mlp(run, index, input, fed);
    if (c->post_norms) {
        norm_point(run, ZOO_POST_MLP_NORM, index, &layer->post_mlp_norm, fed, post);
        memcpy(fed, post, (size_t)total * sizeof *post);
    }
    if (c->parallel) /* both branches meet first, then the stream */
        for (int i = 0; i < total; i++)
            fed[i] = zoo_round(sum_format(run->numerics),
                               fed[i] + (layer->attn_residual == ZOO_RESIDUAL_ONLY ? 0 : attended[i]));
    add_branch(run, layer->mlp_residual, x, normed, fed, gates[1], c->modulation_rows, 6 * c->hidden,
               layer->gate_sign[1], x);
    zoo_emit(run, ZOO_LAYER, index, x, t, 1, c->hidden);
}

static void embed(struct zoo_run *run, float *x)
{
    const struct zoo_model *model = run->model;
    const struct zoo_config *c = model->config;
    const struct zoo_numerics *n = run->numerics;
    int total = c->tokens * c->hidden;
    if (c->dit)
        zoo_linear(run, &model->embed, model->picture, c->tokens, x);
    for (int i = 0; i < total && !c->dit; i++)
        x[i] = zoo_round(n->format, model->embed.weight[model->token[i / c->hidden] * c->hidden + i % c->hidden]);
    zoo_emit(run, ZOO_EMBED, -1, x, c->tokens, 1, c->hidden);
    if (c->embed_scale != 1) {
        float factor = zoo_round(n->fused ? ZOO_F32 : n->format, (float)model->embed_scale);
        for (int i = 0; i < total; i++)
            x[i] = zoo_round(n->format, x[i] * factor);
        zoo_emit(run, ZOO_EMBED_SCALED, -1, x, c->tokens, 1, c->hidden);
    }
    if (c->learned_positions) {
        float *position = zoo_floats(&run->arena, total);
        for (int i = 0; i < total; i++)
            position[i] = zoo_round(n->format, model->position.weight[i]);
        zoo_emit(run, ZOO_POSITION, -1, position, c->tokens, 1, c->hidden);
        for (int i = 0; i < total && !model->position_missing; i++)
            x[i] = zoo_round(sum_format(n), x[i] + position[i]);
        zoo_emit(run, ZOO_EMBED_SUM, -1, x, c->tokens, 1, c->hidden);
    }
}

void zoo_forward(const struct zoo_model *model, const struct zoo_numerics *numerics, const struct zoo_trace *forced,
                 struct zoo_trace *trace)
{
    const struct zoo_config *c = model->config;
    struct zoo_run run = {.model = model, .numerics = numerics, .forced = forced, .trace = trace};
    int total = c->tokens * c->hidden, outputs = model->head.out;
    float *x = zoo_floats(&run.arena, total), *normed = zoo_floats(&run.arena, total);
    float *logits = zoo_floats(&run.arena, c->tokens * outputs);
    embed(&run, x);
    for (int i = 0; i < c->layers; i++)
        transformer_layer(&run, i, x);
    if (c->dit) {
        float *modulation = zoo_floats(&run.arena, c->modulation_rows * 2 * c->hidden);
        zoo_linear(&run, &model->final_modulation, model->condition, c->modulation_rows, modulation);
        zoo_emit(&run, ZOO_FINAL_MODULATION, -1, modulation, c->modulation_rows, 1, 2 * c->hidden);
        norm_point(&run, ZOO_FINAL_NORM, -1, &model->final_norm, x, normed);
        modulate(&run, modulation, 2, 0, 1, 1, normed, x);
        memcpy(normed, x, (size_t)total * sizeof *x);
        zoo_emit(&run, ZOO_FINAL_MODULATED, -1, normed, c->tokens, 1, c->hidden);
    } else {
        norm_point(&run, ZOO_FINAL_NORM, -1, &model->final_norm, x, normed);
    }
    zoo_linear(&run, &model->head, normed, c->tokens, logits);
    if (c->logit_cap > 0) {
        zoo_emit(&run, ZOO_LOGITS_RAW, -1, logits, c->tokens, 1, outputs);
        for (int i = 0; i < c->tokens * outputs && model->logit_cap > 0; i++)
            logits[i] =
                zoo_round(numerics->format, (float)model->logit_cap * tanhf(logits[i] / (float)model->logit_cap));
    }
    zoo_emit(&run, ZOO_LOGITS, -1, logits, c->tokens, 1, outputs);
    zoo_arena_release(&run.arena);
}
