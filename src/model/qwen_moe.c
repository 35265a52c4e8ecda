/* Qwen 2 and Qwen 3 with experts, and OLMoE: the same frame of many small experts. Qwen 2 adds biases on q, k, v and an
 * expert that every token visits behind a gate of its own; Qwen 3 norms each head of queries and keys; OLMoE norms all
 * heads at once. */
#include <stdio.h>

#include "model/decoder.h"
#include "model/experts.h"
#include "model/families.h"

struct variant {
    struct ts_rotary rotary;
    enum ts_query_norm query_norm;
    bool bias, shared_expert, window;
    const char *inner_key; /* width of an expert */
};

static void prepare(struct ts_run *run, const struct ts_decoder *decoder, void *context)
{
    struct variant *variant = context;
    variant->rotary = ts_rotary_make(run, "rope_parameters", decoder->head_size, false);
}

static size_t expert_count(struct ts_run *run)
{
    return ts_need(run, ts_model_config_text(run->config, "num_experts") ? "num_experts" : "num_local_experts");
}

/* Some layers may keep an ordinary MLP. */
static bool has_experts(struct ts_run *run, size_t i)
{
    size_t step = ts_count(run, "decoder_sparse_step", 1);
    char key[64];
    for (size_t k = 0;; k++) {
        snprintf(key, sizeof key, "mlp_only_layers.%zu", k);
        if (!ts_model_config_text(run->config, key))
            break;
        if (ts_count(run, key, 0) == i)
            return false;
    }
    return step && (i + 1) % step == 0;
}

static struct ts_act mixture(struct ts_run *run, const struct ts_decoder *decoder, const struct variant *variant,
                             struct ts_act x)
{
    size_t scope = ts_enter(run, "mlp"), experts = expert_count(run);
    struct ts_gated_experts how = {.inner = ts_need(run, variant->inner_key),
                                   .function = decoder->function,
                                   .name = "experts",
                                   .gate = "gate_proj",
                                   .up = "up_proj",
                                   .down = "down_proj"};
    struct ts_router_settings router = {.kind = TS_ROUTER_SOFTMAX,
                                        .experts = experts,
                                        .chosen = ts_need(run, "num_experts_per_tok"),
                                        .renormalise = ts_model_config_flag(run->config, "norm_topk_prob", false)};
    struct ts_act shared = {0}, gate, out;
    struct ts_routing routing;
    x.layout = TS_FLAT;
    if (variant->shared_expert)
        shared = ts_gated_mlp(run, "shared_expert", x, ts_need(run, "shared_expert_intermediate_size"),
                              decoder->function, false);
    routing = ts_route(run, "gate", ts_router_logits(run, "gate", NULL, x, experts, false), &router);
    out = ts_mix(run, x, &routing, how.inner, ts_gated_expert, &how);
    if (variant->shared_expert) {
        gate = ts_activate(run, "", ts_linear(run, "shared_expert_gate", x, 1, false), TS_SIGMOID);
        for (size_t t = 0; t < shared.rows && ts_real(run); t++)
            for (size_t j = 0; j < shared.width; j++)
                shared.data[t * shared.width + j] *= gate.data[t];
        if (ts_real(run))
            ts_round(run, shared.data, shared.rows * shared.width);
        out = ts_add(run, "", out, shared);
    }
    out.layout = TS_BATCHED;
    ts_capture(run, "", out);
    ts_leave(run, scope);
    return out;
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    const struct variant *variant = context;
    bool bias = ts_model_config_flag(run->config, "attention_bias", false);
    struct ts_self_attention how = {.rotary = &variant->rotary,
                                    .query_norm = variant->query_norm,
                                    .norm = TS_NORM_RMS,
                                    .bias = variant->bias || bias,
                                    .output_bias = bias,
                                    .attention.window = variant->window ? ts_window_of_layer(run, i, false) : 0};
    struct ts_act h = ts_norm(run, "input_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    h = ts_self_attention(run, "self_attn", decoder, h, &how);
    x = ts_add(run, "attn_residual", x, h);
    h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    h = has_experts(run, i) ? mixture(run, decoder, variant, h)
                            : ts_gated_mlp(run, "mlp", h, decoder->inner, decoder->function, false);
    return ts_add(run, "", x, h);
}

static void walk(struct ts_run *run, struct variant *variant)
{
    struct ts_decoder decoder = ts_decoder_read(run);
    ts_decoder_walk(run, &decoder,
                    &(struct ts_walk){.norm = TS_NORM_RMS, .prepare = prepare, .layer = layer, .context = variant});
}

static void qwen2_moe(struct ts_run *run)
{
    struct variant variant = {.bias = ts_model_config_flag(run->config, "qkv_bias", true),
                              .shared_expert = true,
                              .window = true,
                              .inner_key = "moe_intermediate_size"};
    walk(run, &variant);
}

static void qwen3_moe(struct ts_run *run)
{
    struct variant variant = {.query_norm = TS_QUERY_NORM_HEADS, .window = true, .inner_key = "moe_intermediate_size"};
    walk(run, &variant);
}

static void olmoe(struct ts_run *run)
{
    struct variant variant = {.query_norm = TS_QUERY_NORM_WHOLE, .inner_key = "intermediate_size"};
    if (ts_model_config_text(run->config, "clip_qkv"))
        ts_run_fail(run, TS_ERR_UNSUPPORTED,
                    "clip_qkv is set in the config, and clipped queries are not supported yet");
    walk(run, &variant);
}

const struct ts_model_family ts_model_family_qwen2_moe = {.types = "qwen2_moe", .forward = qwen2_moe};
const struct ts_model_family ts_model_family_qwen3_moe = {.types = "qwen3_moe", .forward = qwen3_moe};
const struct ts_model_family ts_model_family_olmoe = {.types = "olmoe", .forward = olmoe};
