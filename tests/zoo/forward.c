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
void zoo_emit_fused(struct zoo_run *run, enum zoo_point point, int index, float **parts, const int *widths, int count,
                    int rows)
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
                       const float *branch, double factor, const float *gate, int gate_rows, int gate_width,
                       double sign, float *out)
{
    const struct zoo_config *c = run->model->config;
    for (int i = 0; i < c->tokens * c->hidden; i++) {
        float base = residual == ZOO_RESIDUAL_MISSING ? 0 : residual == ZOO_RESIDUAL_NORMED ? normed[i] : stream[i];
        float term = residual == ZOO_RESIDUAL_ONLY ? 0 : branch[i] * (float)factor;
        if (factor != 1 && !run->numerics->fused)
            term = zoo_round(run->numerics->format, term);
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
    if (c->norm_after || c->no_pre_norm)
        memcpy(normed, x, (size_t)total * sizeof *x);
    else
        norm_point(run, ZOO_ATTN_NORM, index, &layer->attn_norm, x, normed);
    input = normed;
    if (c->dit) {
        input = zoo_floats(&run->arena, total);
        modulate(run, modulation, 6, layer->chunk[0], layer->chunk[1], layer->one_plus[0], normed, input);
        zoo_emit(run, ZOO_ATTN_MODULATED, index, input, t, 1, c->hidden);
    }
    zoo_attention(run, index, input, attended);
    if (c->post_norms) {
        norm_point(run, ZOO_POST_ATTN_NORM, index, &layer->post_attn_norm, attended, post);
        memcpy(attended, post, (size_t)total * sizeof *post);
    }
    if (!c->parallel) {
        add_branch(run, layer->attn_residual, before, normed, attended, layer->residual_factor, gates[0],
                   c->modulation_rows, 6 * c->hidden, layer->gate_sign[0], x);
        zoo_emit(run, ZOO_ATTN_RESIDUAL, index, x, t, 1, c->hidden);
    }
    if (c->norm_after) { /* the normed stream goes on */
        norm_point(run, ZOO_MLP_NORM, index, &layer->mlp_norm, layer->mlp_norm_of_input ? before : x, normed);
        memcpy(x, normed, (size_t)total * sizeof *x);
        input = normed;
    } else if (c->no_pre_norm) {
        memcpy(normed, x, (size_t)total * sizeof *x);
        input = normed;
    } else if (!(c->parallel && c->shared_norm)) {
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
    add_branch(run, layer->mlp_residual, x, normed, fed, layer->residual_factor, gates[1], c->modulation_rows,
               6 * c->hidden, layer->gate_sign[1], x);
    if (c->norm_after) {
        zoo_emit(run, ZOO_MLP_RESIDUAL, index, x, t, 1, c->hidden);
        norm_point(run, ZOO_LAYER, index, &layer->attn_norm, x, normed);
        memcpy(x, normed, (size_t)total * sizeof *x);
    } else {
        zoo_emit(run, ZOO_LAYER, index, x, t, 1, c->hidden);
    }
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
