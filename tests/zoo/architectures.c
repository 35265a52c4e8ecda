/* Owns the architectures: which parts a model has, which sizes the seed gives it, and what a trace of it shows. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "zoo.h"

enum architecture {
    LLAMA,
    LLAMA_HOOKS,
    LLAMA_FUSED,
    LLAMA_DEEP,
    LLAMA_LONG,
    LLAMA_OUTLIERS,
    LLAMA_LAYERS,
    SINGLE_TOKEN,
    QWEN,
    QWEN_HALF_REFERENCE,
    GEMMA,
    GEMMA_HOOKS,
    GPT,
    GPT_J,
    NEOX,
    MULTI_QUERY,
    MIXTURE,
    MIXTURE_SHARED,
    MIXTURE_SIGMOID,
    DIT,
    DIT_TOKENS,
    VISION,
    ENCODER,
    OLMO,
    SLOPES,
    SINKS,
    FACTORS,
    THREE_HUNDRED,
    LLAMA_PROJECTIONS,
    LONE_LAYER,
    ARCHITECTURES
};

static const char *const names[ARCHITECTURES] = {"llama",
                                                 "llama_hooks",
                                                 "llama_fused",
                                                 "llama_deep",
                                                 "llama_long",
                                                 "llama_outliers",
                                                 "llama_layers",
                                                 "single_token",
                                                 "qwen",
                                                 "qwen_half",
                                                 "gemma",
                                                 "gemma_hooks",
                                                 "gpt",
                                                 "gptj",
                                                 "neox",
                                                 "mqa",
                                                 "moe",
                                                 "moe_shared",
                                                 "moe_sigmoid",
                                                 "dit",
                                                 "dit_tokens",
                                                 "vit",
                                                 "bert",
                                                 "olmo",
                                                 "alibi",
                                                 "sinks",
                                                 "granite",
                                                 "long300",
                                                 "llama_projections",
                                                 "lone_layer"};

int zoo_architecture_count(void)
{
    return ARCHITECTURES;
}

#define PICK(random, ...)                                                                                              \
    ((const int[]){__VA_ARGS__})[zoo_random_below(random, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))]

/* The points a capture shows, of those the model has. */
static void show(struct zoo_config *c)
{
    static const enum zoo_point hooks[] = {ZOO_EMBED,
                                           ZOO_POSITION,
                                           ZOO_MODULATION,
                                           ZOO_ATTN_NORM,
                                           ZOO_QKV,
                                           ZOO_Q,
                                           ZOO_K,
                                           ZOO_V,
                                           ZOO_Q_NORM,
                                           ZOO_K_NORM,
                                           ZOO_O,
                                           ZOO_ATTENTION,
                                           ZOO_POST_ATTN_NORM,
                                           ZOO_MLP_NORM,
                                           ZOO_ROUTER_LOGITS,
                                           ZOO_SHARED,
                                           ZOO_GATE,
                                           ZOO_UP,
                                           ZOO_ACT,
                                           ZOO_DOWN,
                                           ZOO_MLP,
                                           ZOO_POST_MLP_NORM,
                                           ZOO_LAYER,
                                           ZOO_FINAL_MODULATION,
                                           ZOO_FINAL_NORM,
                                           ZOO_LOGITS};
    static const enum zoo_point blocks[] = {ZOO_EMBED, ZOO_EMBED_SUM,     ZOO_MODULATION, ZOO_ATTN_NORM,
                                            ZOO_O,     ZOO_ATTN_RESIDUAL, ZOO_MLP_NORM,   ZOO_ROUTER_LOGITS,
                                            ZOO_MLP,   ZOO_LAYER,         ZOO_FINAL_NORM, ZOO_LOGITS};
    static const enum zoo_point fused[] = {
        ZOO_EMBED, ZOO_ATTN_NORM, ZOO_QKV,     ZOO_Q_NORM,       ZOO_K_NORM, ZOO_Q_ROPE, ZOO_K_ROPE,     ZOO_CONTEXT,
        ZOO_O,     ZOO_MLP_NORM,  ZOO_GATE_UP, ZOO_INTERMEDIATE, ZOO_DOWN,   ZOO_LAYER,  ZOO_FINAL_NORM, ZOO_LOGITS};
    static const enum zoo_point projections[] = {ZOO_EMBED, ZOO_Q, ZOO_K, ZOO_V, ZOO_O, ZOO_DOWN, ZOO_LOGITS};
    static const enum zoo_point layers[] = {ZOO_EMBED, ZOO_LAYER, ZOO_ROUTER_LOGITS, ZOO_FINAL_NORM, ZOO_LOGITS};
    if (c->capture == ZOO_CAPTURE_FULL) {
        for (int i = 0; i < ZOO_POINTS; i++)
            c->shown[i] = true;
        c->shown[ZOO_INPUT] = c->naming == ZOO_NAMES_PLAIN;
        c->shown[ZOO_ATTENTION] = false;
        c->shown[ZOO_MLP] = c->experts > 0;
        c->shown[ZOO_ACT] = !c->gated;
        c->shown[ZOO_GATE_UP] = false;
        c->shown[ZOO_QKV] = c->fused_qkv;
        c->shown[ZOO_ROUTER_INDICES] = !c->no_indices;
        c->shown[ZOO_Q] = c->shown[ZOO_K] = c->shown[ZOO_V] = true;
        return;
    }
    if (c->capture == ZOO_CAPTURE_HOOKS) {
        for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
            c->shown[hooks[i]] = true;
        if (c->fused_qkv)
            c->shown[ZOO_Q] = c->shown[ZOO_K] = c->shown[ZOO_V] = false;
        else
            c->shown[ZOO_QKV] = false;
    } else if (c->capture == ZOO_CAPTURE_FUSED) {
        for (size_t i = 0; i < sizeof fused / sizeof *fused; i++)
            c->shown[fused[i]] = true;
    } else if (c->capture == ZOO_CAPTURE_BLOCKS) {
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
            c->shown[blocks[i]] = true;
    } else if (c->capture == ZOO_CAPTURE_PROJECTIONS) {
        for (size_t i = 0; i < sizeof projections / sizeof *projections; i++)
            c->shown[projections[i]] = true;
    } else {
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
            c->shown[layers[i]] = true;
    }
}

static void draw_sizes(struct zoo_config *c, struct zoo_random *random)
{
    c->tokens = PICK(random, 5, 12, 12, 21, 33);
    c->head_size = PICK(random, 8, 16, 16, 24, 32);
    c->heads = PICK(random, 4, 6, 8);
    c->kv_heads = c->heads / PICK(random, 1, 2, 2);
    if (zoo_random_chance(random, 0.08)) /* which axis is the sequence? */
        c->tokens = c->heads;
    c->hidden = zoo_random_chance(random, 0.7) ? c->heads * c->head_size : PICK(random, 32, 64, 96, 128);
    if (c->hidden > 128)
        c->hidden = 128;
    c->intermediate = c->hidden * PICK(random, 3, 4, 5) / 2 / 4 * 4;
    c->layers = PICK(random, 2, 3, 4, 6);
    while (c->layers > 2 && c->layers * c->hidden * c->tokens > 16000) /* the whole set is to take seconds */
        c->layers--;
    c->vocabulary = 80 + zoo_random_below(random, 80);
}

static void draw_defaults(struct zoo_config *c, struct zoo_random *random)
{
    c->causal = c->gated = true;
    c->epsilon = zoo_random_chance(random, 0.5) ? 1e-6 : 1e-5;
    c->theta = zoo_random_chance(random, 0.5) ? 10000 : 500000;
    c->embed_scale = c->router_factor = c->residual_factor = 1;
    c->activation = ZOO_SILU;
    c->attention_scale = 1 / sqrt(c->head_size);
    c->rotary_size = c->head_size;
    c->modulation_rows = 1;
    c->embed_size = zoo_random_chance(random, 0.3) ? 0.02 : 1;
    c->bf16_weights = zoo_random_chance(random, 0.5);
    c->naming = zoo_random_chance(random, 0.5) ? ZOO_NAMES_HF : ZOO_NAMES_PLAIN;
    c->layout = (enum zoo_layout)PICK(random, ZOO_LAYOUT_TOKENS, ZOO_LAYOUT_BATCH, ZOO_LAYOUT_HEADS, ZOO_LAYOUT_FLAT);
    c->masked = (enum zoo_masked)PICK(random, ZOO_SCORES_UNMASKED, ZOO_SCORES_INFINITE, ZOO_SCORES_LOWEST);
    c->native_storage = zoo_random_chance(random, 0.3);
    c->reference = zoo_numerics_named("float32");
    c->qkv_bias = zoo_random_chance(random, 0.2);
    c->rope_factor = zoo_random_chance(random, 0.25) ? 4 : 1;
}

static void gemma(struct zoo_config *c, struct zoo_random *random)
{
    c->plus_one = c->post_norms = c->tied = true;
    c->qkv_bias = false;
    c->qk_norm = zoo_random_chance(random, 0.4);
    c->embed_size = 0.1;
    c->embed_scale = sqrt(c->hidden);
    c->activation = ZOO_GELU_TANH;
    c->score_cap = 4 + zoo_random_below(random, 6);
    c->logit_cap = 2 + zoo_random_below(random, 4);
    c->tokens = PICK(random, 12, 21, 33);
    c->window = 4 + zoo_random_below(random, 5);
    c->attention_scale = 1 / sqrt(c->head_size * (zoo_random_chance(random, 0.5) ? 1.0 : 0.5));
}

static void gpt(struct zoo_config *c)
{
    c->layer_norm = c->norm_bias = c->qkv_bias = c->out_bias = c->mlp_bias = c->fused_qkv = true;
    c->learned_positions = c->tied = true;
    c->gated = false;
    c->activation = ZOO_GELU_TANH;
    c->rotary_size = 0;
    c->kv_heads = c->heads;
    c->embed_size = 0.2;
    c->epsilon = 1e-5;
    c->naming = ZOO_NAMES_GPT;
}

static void parallel(struct zoo_config *c, bool two_norms)
{
    c->layer_norm = c->norm_bias = c->parallel = c->mlp_bias = true;
    c->shared_norm = !two_norms;
    c->gated = false;
    c->kv_heads = c->heads;
    c->activation = two_norms ? ZOO_GELU : ZOO_GELU_TANH;
    c->epsilon = 1e-5;
    c->naming = ZOO_NAMES_GPT;
}

static void mixture(struct zoo_config *c, struct zoo_random *random)
{
    c->experts = PICK(random, 4, 8, 12);
    c->top = PICK(random, 2, 2, 3);
    c->tokens = PICK(random, 12, 24, 33);
    c->layers = PICK(random, 2, 3, 4);
    c->intermediate = c->hidden / 2;
    c->renormalized = true;
}

static void dit(struct zoo_config *c, struct zoo_random *random)
{
    c->dit = c->layer_norm = c->qkv_bias = c->out_bias = c->mlp_bias = true;
    c->causal = c->gated = false;
    c->kv_heads = c->heads;
    c->rotary_size = 0;
    c->epsilon = 1e-6;
    c->activation = ZOO_GELU_TANH;
    c->qk_norm = zoo_random_chance(random, 0.5);
    c->vocabulary = 16;
    c->hidden = c->heads * c->head_size < 128 ? c->heads * c->head_size : 96;
    c->tokens = PICK(random, 12, 16, 25, 36);
    c->intermediate = 2 * c->hidden;
    c->scale_first = zoo_random_chance(random, 0.3);
    c->naming = ZOO_NAMES_DIT;
    c->masked = ZOO_SCORES_UNMASKED;
}

void zoo_config_draw(struct zoo_config *c, int architecture, uint64_t seed)
{
    struct zoo_random random = zoo_random_from(seed, (uint64_t)architecture + 1000);
    *c = (struct zoo_config){.seed = seed * 100 + (uint64_t)architecture};
    snprintf(c->name, sizeof c->name, "%s_%d", names[architecture], (int)seed);
    draw_sizes(c, &random);
    draw_defaults(c, &random);
    switch ((enum architecture)architecture) {
    case LLAMA:
        c->naming = zoo_random_chance(&random, 0.5) ? ZOO_NAMES_GGML : ZOO_NAMES_HF;
        break;
    case LLAMA_HOOKS:
        c->capture = ZOO_CAPTURE_HOOKS;
        c->naming = ZOO_NAMES_HF;
        c->layout = ZOO_LAYOUT_BATCH;
        break;
    case LLAMA_FUSED:
        c->capture = ZOO_CAPTURE_FUSED;
        c->fused_qkv = true;
        c->naming = ZOO_NAMES_HF;
        c->qk_norm = zoo_random_chance(&random, 0.3);
        c->layout = zoo_random_chance(&random, 0.5) ? ZOO_LAYOUT_FLAT : ZOO_LAYOUT_TOKENS;
        break;
    case LLAMA_DEEP:
        c->layers = 20 + zoo_random_below(&random, 5);
        c->heads = 4;
        c->kv_heads = 2;
        c->head_size = 12;
        c->hidden = 48;
        c->intermediate = 80;
        c->tokens = PICK(&random, 5, 12);
        c->rotary_size = 12;
        c->attention_scale = 1 / sqrt(12);
        c->capture = zoo_random_chance(&random, 0.5) ? ZOO_CAPTURE_FULL : ZOO_CAPTURE_HOOKS;
        break;
    case LLAMA_LONG:
        c->tokens = 70;
        c->hidden = 192 + 64 * zoo_random_below(&random, 2);
        c->heads = 8;
        c->head_size = c->hidden / 8;
        c->rotary_size = c->head_size;
        c->kv_heads = 2;
        c->intermediate = 256;
        c->layers = 2;
        c->rope_factor = 4;
        c->attention_scale = 1 / sqrt(c->head_size);
        break;
    case LLAMA_OUTLIERS:
        c->outliers = true;
        c->layers = PICK(&random, 4, 6, 8);
        c->capture = zoo_random_chance(&random, 0.5) ? ZOO_CAPTURE_FULL : ZOO_CAPTURE_HOOKS;
        break;
    case LLAMA_LAYERS:
        c->capture = zoo_random_chance(&random, 0.5) ? ZOO_CAPTURE_LAYERS : ZOO_CAPTURE_BLOCKS;
        c->layers = PICK(&random, 4, 6, 8);
        break;
    case LLAMA_PROJECTIONS:
        c->capture = ZOO_CAPTURE_PROJECTIONS;
        c->naming = zoo_random_chance(&random, 0.5) ? ZOO_NAMES_GGML : ZOO_NAMES_HF;
        c->layers = PICK(&random, 3, 6, 9);
        break;
    case LONE_LAYER: /* nothing behind says whether a precision starts */
        c->capture = zoo_random_chance(&random, 0.5) ? ZOO_CAPTURE_LAYERS : ZOO_CAPTURE_BLOCKS;
        c->layers = 1;
        break;
    case SINGLE_TOKEN:
        c->tokens = 1;
        break;
    case QWEN:
        c->qk_norm = true;
        c->naming = ZOO_NAMES_PLAIN;
        break;
    case QWEN_HALF_REFERENCE:
        c->qk_norm = true;
        c->reference = zoo_numerics_named(zoo_random_chance(&random, 0.5) ? "bfloat16" : "float16");
        c->native_storage = true;
        break;
    case GEMMA:
        gemma(c, &random);
        break;
    case GEMMA_HOOKS:
        gemma(c, &random);
        c->capture = ZOO_CAPTURE_HOOKS;
        c->naming = ZOO_NAMES_HF;
        c->layout = ZOO_LAYOUT_BATCH;
        break;
    case GPT:
        gpt(c);
        break;
    case GPT_J:
        parallel(c, false);
        c->interleaved = true;
        c->rotary_size = c->head_size / 2;
        break;
    case NEOX:
        parallel(c, true);
        c->fused_qkv = c->qkv_bias = c->out_bias = true;
        c->rotary_size = c->head_size % 16 == 0 ? c->head_size / 4 : c->head_size / 2;
        break;
    case MULTI_QUERY:
        c->kv_heads = 1;
        c->parallel = c->shared_norm = c->layer_norm = c->norm_bias = true;
        c->gated = false;
        c->activation = ZOO_GELU;
        break;
    case MIXTURE:
        mixture(c, &random);
        break;
    case MIXTURE_SHARED:
        mixture(c, &random);
        c->renormalized = false;
        c->shared_expert = c->shared_gate = true;
        c->no_indices = zoo_random_chance(&random, 0.5);
        break;
    case MIXTURE_SIGMOID:
        mixture(c, &random);
        c->sigmoid_router = c->shared_expert = true;
        c->router_factor = 2.5;
        break;
    case VISION:
        gpt(c);
        c->causal = c->tied = false;
        c->fused_qkv = zoo_random_chance(&random, 0.5);
        c->activation = zoo_random_chance(&random, 0.5) ? ZOO_QUICK_GELU : ZOO_GELU;
        c->naming = ZOO_NAMES_PLAIN;
        c->masked = ZOO_SCORES_UNMASKED;
        c->tokens = PICK(&random, 17, 26, 37);
        break;
    case ENCODER:
        gpt(c);
        c->norm_after = true;
        c->causal = c->fused_qkv = c->tied = false;
        c->activation = ZOO_GELU;
        c->naming = zoo_random_chance(&random, 0.5) ? ZOO_NAMES_HF : ZOO_NAMES_PLAIN;
        c->masked = ZOO_SCORES_UNMASKED;
        c->capture = zoo_random_chance(&random, 0.5) ? ZOO_CAPTURE_FULL : ZOO_CAPTURE_HOOKS;
        break;
    case OLMO:
        c->no_pre_norm = c->post_norms = c->qk_norm = c->whole_qk_norm = true;
        c->capture = zoo_random_chance(&random, 0.5) ? ZOO_CAPTURE_FULL : ZOO_CAPTURE_HOOKS;
        break;
    case SLOPES:
        c->alibi = c->layer_norm = c->norm_bias = c->qkv_bias = c->out_bias = c->mlp_bias = true;
        c->gated = false;
        c->activation = ZOO_GELU_TANH;
        c->kv_heads = c->heads;
        c->rotary_size = 0;
        break;
    case SINKS:
        c->sinks = true;
        c->window = 4 + zoo_random_below(&random, 5);
        c->capture = zoo_random_chance(&random, 0.7) ? ZOO_CAPTURE_FULL : ZOO_CAPTURE_FUSED;
        c->fused_qkv = c->capture == ZOO_CAPTURE_FUSED;
        break;
    case FACTORS:
        c->residual_factor = 0.22;
        c->embed_size = 0.1;
        c->embed_scale = 12;
        c->attention_scale = 1.0 / c->head_size;
        break;
    case THREE_HUNDRED:
        c->tokens = 300;
        c->heads = 4;
        c->kv_heads = 2;
        c->head_size = c->rotary_size = 8;
        c->hidden = 32;
        c->intermediate = 48;
        c->layers = 2;
        c->vocabulary = 40;
        c->attention_scale = 1 / sqrt(8);
        c->capture = zoo_random_chance(&random, 0.5) ? ZOO_CAPTURE_HOOKS : ZOO_CAPTURE_FUSED;
        c->fused_qkv = c->capture == ZOO_CAPTURE_FUSED;
        break;
    case DIT_TOKENS:
        dit(c, &random);
        c->modulation_rows = c->tokens;
        break;
    default:
        dit(c, &random);
        break;
    }
    if (c->experts && c->naming == ZOO_NAMES_GGML)
        c->naming = ZOO_NAMES_HF;
    show(c);
}
