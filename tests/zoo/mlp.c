/* Owns the feed-forward half of a layer: gated or not, or a mixture of experts. */
#include <math.h>
#include <string.h>

#include "zoo.h"

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
        zoo_emit_fused(run, ZOO_GATE_UP, index, parts, (const int[]){up->out, up->out}, 2, rows);
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
