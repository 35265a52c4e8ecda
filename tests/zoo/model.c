/* Owns random numbers, memory, and models: their random weights, and what a precision makes of them. */
#include "zoo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t zoo_random_next(struct zoo_random *random)
{
    uint64_t x = random->state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct zoo_random zoo_random_from(uint64_t seed, uint64_t salt)
{
    struct zoo_random random = {.state = seed * 0xd1342543de82ef95u + salt};
    zoo_random_next(&random);
    return random;
}

double zoo_random_unit(struct zoo_random *random)
{
    return (double)(zoo_random_next(random) >> 11) * 0x1p-53;
}

/* Four sixteen-bit uniform numbers have a variance of one third together; the tails end at 3.5 sigma. */
double zoo_random_normal(struct zoo_random *random)
{
    uint64_t bits = zoo_random_next(random);
    uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return ((double)sum / 65536.0 - 2) * 1.7320508075688772;
}

int zoo_random_below(struct zoo_random *random, int limit)
{
    return (int)(zoo_random_next(random) % (uint64_t)limit);
}

bool zoo_random_chance(struct zoo_random *random, double p)
{
    return zoo_random_unit(random) < p;
}

void *zoo_alloc(struct zoo_arena *arena, size_t size)
{
    void *block = calloc(1, size ? size : 1);
    if (arena->count == arena->room) {
        arena->room = arena->room ? 2 * arena->room : 32;
        arena->blocks = realloc(arena->blocks, arena->room * sizeof *arena->blocks);
    }
    if (!block || !arena->blocks) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    arena->blocks[arena->count++] = block;
    return block;
}

float *zoo_floats(struct zoo_arena *arena, int count)
{
    return zoo_alloc(arena, (size_t)count * sizeof(float));
}

void zoo_arena_release(struct zoo_arena *arena)
{
    for (size_t i = 0; i < arena->count; i++)
        free(arena->blocks[i]);
    free(arena->blocks);
    *arena = (struct zoo_arena){0};
}

static void fill(const struct zoo_model *model, float *values, int count, double mean, double deviation,
                 struct zoo_random *random)
{
    for (int i = 0; i < count; i++) {
        values[i] = (float)(mean + deviation * zoo_random_normal(random));
        if (model->config->bf16_weights)
            values[i] = zoo_round(ZOO_BF16, values[i]);
    }
}

/* Outputs about `gain` times as large as the inputs. */
static struct zoo_matrix matrix(struct zoo_model *model, int out, int in, bool bias, double gain,
                                struct zoo_random *random)
{
    struct zoo_matrix made = {.out = out, .in = in, .weight = zoo_floats(&model->arena, out * in)};
    fill(model, made.weight, out * in, 0, gain / sqrt(in), random);
    if (bias) {
        made.bias = zoo_floats(&model->arena, out);
        fill(model, made.bias, out, 0, 0.3 * gain, random);
    }
    return made;
}

static struct zoo_norm norm(struct zoo_model *model, int size, bool layer_norm, struct zoo_random *random)
{
    const struct zoo_config *c = model->config;
    struct zoo_norm made = {
        .on = true, .centred = layer_norm, .plus_one = c->plus_one, .size = size, .epsilon = c->epsilon};
    if (c->dit && size == c->hidden) /* adaptive norms have no weights of their own */
        return made;
    made.weight = zoo_floats(&model->arena, size);
    fill(model, made.weight, size, c->plus_one ? 0 : 1, 0.2, random);
    if (c->norm_bias) {
        made.bias = zoo_floats(&model->arena, size);
        fill(model, made.bias, size, 0, 0.15, random);
    }
    return made;
}

/* Real models carry a few residual channels, and a first token, tens of times larger than the rest. */
static void add_outliers(struct zoo_model *model, struct zoo_random *random)
{
    const struct zoo_config *c = model->config;
    int channels[2] = {zoo_random_below(random, c->hidden), zoo_random_below(random, c->hidden)};
    for (int k = 0; k < 2; k++) {
        for (int row = 0; row < model->embed.out; row++)
            model->embed.weight[row * c->hidden + channels[k]] *= 12;
        for (int l = 0; l < c->layers; l++) {
            struct zoo_matrix *down = &model->layer[l].down;
            for (int i = 0; i < down->in && down->weight; i++)
                down->weight[channels[k] * down->in + i] *= 6;
        }
    }
    for (int i = 0; i < c->hidden; i++)
        model->embed.weight[model->token[0] * c->hidden + i] *= 8;
}

static void build_layer(struct zoo_model *model, struct zoo_layer *layer, int index, struct zoo_random *random)
{
    const struct zoo_config *c = model->config;
    int wide = c->heads * c->head_size, narrow = c->kv_heads * c->head_size, h = c->hidden;
    double gain = c->dit ? 0.7 : 0.9 / sqrt(c->layers) + 0.1;
    struct zoo_rope rope = {.size = c->rotary_size,
                            .interleaved = c->interleaved,
                            .theta = c->theta,
                            .factor = c->rope_factor,
                            .times = 1,
                            .sign = 1};
    /* branches are as large as the stream they enter, whatever size the embeddings have */
    gain *= c->embed_size * fabs(c->embed_scale) > 0.3 ? 1 : 0.3;
    layer->attn_norm = norm(model, h, c->layer_norm, random);
    layer->mlp_norm = norm(model, h, c->layer_norm, random);
    if (c->qk_norm) {
        layer->q_norm = norm(model, c->whole_qk_norm ? wide : c->head_size, false, random);
        layer->k_norm = norm(model, c->whole_qk_norm ? narrow : c->head_size, false, random);
        layer->q_norm.bias = layer->k_norm.bias = NULL;
    }
    if (c->post_norms) {
        layer->post_attn_norm = norm(model, h, c->layer_norm, random);
        layer->post_mlp_norm = norm(model, h, c->layer_norm, random);
    }
    layer->q = matrix(model, wide, h, c->qkv_bias, 1.2, random);
    layer->k = matrix(model, narrow, h, c->qkv_bias, 1.2, random);
    layer->v = matrix(model, narrow, h, c->qkv_bias, 1, random);
    layer->o = matrix(model, h, wide, c->out_bias, gain, random);
    if (c->experts) {
        layer->router = matrix(model, c->experts, h, false, 1.5, random);
        for (int e = 0; e < c->experts; e++) {
            layer->expert[e][0] = matrix(model, c->intermediate, h, false, 1.2, random);
            layer->expert[e][1] = matrix(model, c->intermediate, h, false, 1, random);
            layer->expert[e][2] = matrix(model, h, c->intermediate, false, 2 * gain, random);
        }
        if (c->shared_expert) {
            layer->shared[0] = matrix(model, c->intermediate, h, false, 1.2, random);
            layer->shared[1] = matrix(model, c->intermediate, h, false, 1, random);
            layer->shared[2] = matrix(model, h, c->intermediate, false, 2 * gain, random);
        }
        if (c->shared_gate)
            layer->shared_gate = matrix(model, 1, h, false, 1, random);
    } else {
        if (c->gated)
            layer->gate = matrix(model, c->intermediate, h, c->mlp_bias, 1.2, random);
        layer->up = matrix(model, c->intermediate, h, c->mlp_bias, c->gated ? 1 : 1.5, random);
        layer->down = matrix(model, h, c->intermediate, c->mlp_bias, 2 * gain, random);
    }
    if (c->dit)
        layer->modulation = matrix(model, 6 * h, h, true, 0.6, random);
    layer->q_rope = layer->k_rope = rope;
    layer->scale = c->attention_scale;
    layer->temperature = 1;
    layer->score_cap = c->score_cap;
    layer->slope = c->alibi ? 0.5 : 0;
    layer->residual_factor = c->residual_factor;
    if (c->sinks) {
        layer->sink = zoo_floats(&model->arena, c->heads);
        fill(model, layer->sink, c->heads, 0.5, 1, random);
    }
    layer->causal = c->causal;
    layer->window = c->window && index % 2 == 0 ? c->window : 0;
    layer->kv_copied = layer->stale_token = -1;
    layer->activation = c->activation;
    layer->renormalized = c->renormalized;
    layer->sigmoid_router = c->sigmoid_router;
    layer->router_factor = c->router_factor;
    for (int i = 0; i < 6; i++)
        layer->chunk[i] = c->scale_first && i % 3 < 2 ? i / 3 * 3 + 1 - i % 3 : i;
    layer->one_plus[0] = layer->one_plus[1] = 1;
    layer->gate_sign[0] = layer->gate_sign[1] = 1;
}

void zoo_model_build(struct zoo_model *model, const struct zoo_config *config)
{
    struct zoo_random random = zoo_random_from(config->seed, 17);
    int h = config->hidden;
    *model = (struct zoo_model){.config = config};
    model->embed_scale = config->embed_scale;
    model->logit_cap = config->logit_cap;
    model->token = zoo_alloc(&model->arena, (size_t)config->tokens * sizeof *model->token);
    for (int i = 0; i < config->tokens; i++)
        model->token[i] = zoo_random_below(&random, config->vocabulary);
    if (config->dit) {
        model->embed = matrix(model, h, h, true, 1, &random);
        model->picture = zoo_floats(&model->arena, config->tokens * h);
        model->condition = zoo_floats(&model->arena, config->modulation_rows * h);
        fill(model, model->picture, config->tokens * h, 0, 1, &random);
        for (int i = 0; i < config->modulation_rows * h; i++)
            model->condition[i] = zoo_activate(ZOO_SILU, (float)(1.5 * zoo_random_normal(&random)));
        model->final_modulation = matrix(model, 2 * h, h, true, 0.6, &random);
        model->head = matrix(model, config->vocabulary, h, true, 1, &random);
    } else {
        model->embed = matrix(model, config->vocabulary, h, false, config->embed_size * sqrt(h), &random);
        model->head = config->tied ? model->embed : matrix(model, config->vocabulary, h, false, 1.5, &random);
        if (config->tied) { /* its own copy: numerics may keep one and quantize the other */
            model->head.weight = zoo_floats(&model->arena, config->vocabulary * h);
            memcpy(model->head.weight, model->embed.weight, (size_t)(config->vocabulary * h) * sizeof(float));
        }
    }
    if (config->learned_positions)
        model->position = matrix(model, config->tokens, h, false, config->embed_size * sqrt(h), &random);
    for (int i = 0; i < config->layers; i++)
        build_layer(model, &model->layer[i], i, &random);
    model->final_norm = norm(model, h, config->layer_norm, &random);
    if (config->outliers && !config->dit)
        add_outliers(model, &random);
}

void zoo_model_release(struct zoo_model *model)
{
    zoo_arena_release(&model->arena);
}

static void lower_vector(float *values, int count, enum zoo_format format)
{
    for (int i = 0; values && i < count; i++)
        values[i] = zoo_round(format, values[i]);
}

static void lower(struct zoo_matrix *matrix_, const struct zoo_numerics *numerics, bool quantized)
{
    if (!matrix_->weight)
        return;
    if (quantized)
        zoo_quantize(numerics->weights, matrix_->weight, matrix_->out, matrix_->in);
    lower_vector(matrix_->weight, matrix_->out * matrix_->in, numerics->format);
    lower_vector(matrix_->bias, matrix_->out, numerics->format);
}

static void lower_norm(struct zoo_norm *site, const struct zoo_numerics *numerics)
{
    if (numerics->wide_norms)
        return;
    lower_vector(site->weight, site->weight ? site->size : 0, numerics->format);
    lower_vector(site->bias, site->bias ? site->size : 0, numerics->format);
}

void zoo_model_lower(struct zoo_model *model, const struct zoo_numerics *numerics)
{
    const struct zoo_config *c = model->config;
    lower(&model->embed, numerics, false);
    lower(&model->position, numerics, false);
    lower(&model->head, numerics, !numerics->head_kept);
    lower(&model->final_modulation, numerics, false);
    lower_norm(&model->final_norm, numerics);
    for (int i = 0; i < c->layers; i++) {
        struct zoo_layer *layer = &model->layer[i];
        bool quantized = !numerics->from_half || i >= c->layers / 2;
        struct zoo_matrix *matrices[] = {&layer->q,         &layer->k,        &layer->v,    &layer->o,
                                         &layer->gate,      &layer->up,       &layer->down, &layer->shared[0],
                                         &layer->shared[1], &layer->shared[2]};
        struct zoo_norm *norms[] = {&layer->attn_norm, &layer->mlp_norm,       &layer->q_norm,
                                    &layer->k_norm,    &layer->post_attn_norm, &layer->post_mlp_norm};
        for (size_t k = 0; k < sizeof matrices / sizeof *matrices; k++)
            lower(matrices[k], numerics,
                  quantized && !(numerics->mlp_only && k < 4)); /* the first four are attention's */
        for (int e = 0; e < c->experts; e++)
            for (int k = 0; k < 3; k++)
                lower(&layer->expert[e][k], numerics, quantized);
        if (!numerics->router_exact)
            lower(&layer->router, numerics, false); /* routers and modulations are left alone by all quantizers */
        lower_vector(layer->sink, c->heads, numerics->format);
        lower(&layer->shared_gate, numerics, false);
        lower(&layer->modulation, numerics, false);
        for (size_t k = 0; k < sizeof norms / sizeof *norms; k++)
            lower_norm(norms[k], numerics);
    }
}
