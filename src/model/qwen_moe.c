/* Qwen 2 and Qwen 3 with experts, and OLMoE: the same frame of many small experts. Qwen 2 adds biases on q, k, v and an
 * expert that every token visits behind a gate of its own; Qwen 3 norms each head of queries and keys; OLMoE norms all
 * heads at once. */
#include <stdio.h>

#include "model/decoder.h"
#include "model/experts.h"
#include "model/families.h"

struct variant {
    enum ts_query_norm query_norm;
    bool bias, shared_expert;
    size_t (*window)(struct ts_run *run, size_t i); /* NULL: none */
    const char *inner_key;                          /* width of an expert */
    double eps;                                     /* where the config says nothing; 0: as most */
};

static size_t expert_count(struct ts_run *run)
{
    return ts_need(run, ts_model_config_text(run->config, "num_experts") ? "num_experts" : "num_local_experts");
}

/* Some layers may keep an ordinary MLP. */
static bool has_experts(struct ts_run *run, size_t i, size_t layers)
{
    size_t step = ts_count(run, "decoder_sparse_step", 1);
    char key[64];
    for (size_t k = 0; ts_ok(run); k++) {
        snprintf(key, sizeof key, "mlp_only_layers.%zu", k);
        if (!ts_model_config_text(run->config, key))
            break;
        if (ts_count(run, key, 0) == i)
            return false;
        if (k >= layers)
            ts_run_fail(run, TS_ERR_FORMAT, "the config lists more mlp_only_layers than there are layers, %zu", layers);
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
                                        .renormalise = ts_flag(run, "norm_topk_prob", false)};
    struct ts_act shared = {0}, gate, out;
    struct ts_routing routing;
    x.layout = TS_FLAT;
    if (variant->shared_expert)
        shared = ts_gated_mlp(run, "shared_expert", x, ts_need(run, "shared_expert_intermediate_size"),
                              decoder->function, false);
    routing = ts_route(run, "gate", ts_router_logits(run, "gate", NULL, x, experts, false), &router);
    out = ts_mix(run, x, &routing, how.inner, &ts_gated_expert, &how);
    if (variant->shared_expert) {
        gate = ts_activate(run, "", ts_linear(run, "shared_expert_gate", x, 1, false), TS_SIGMOID);
        for (size_t t = 0; t < shared.rows && ts_real(run); t++)
            for (size_t j = 0; j < shared.width; j++)
                shared.data[t * shared.width + j] *= gate.data[t];
        if (ts_real(run))
            ts_round(run, shared.data, shared.rows * shared.width);
        out = ts_sum(run, "", out, shared);
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
    bool bias = ts_flag(run, "attention_bias", false);
    struct ts_self_attention how = {.query_norm = variant->query_norm,
                                    .norm = TS_NORM_RMS,
                                    .bias = variant->bias || bias,
                                    .output_bias = bias,
                                    .attention.window = variant->window ? variant->window(run, i) : 0};
    struct ts_act h;
    x = ts_add_attention(run, decoder, x, TS_NORM_RMS, &how);
    if (!has_experts(run, i, decoder->layers))
        return ts_add_mlp(run, decoder, x, false);
    h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    return ts_sum(run, "", x, mixture(run, decoder, variant, h));
}

static void walk(struct ts_run *run, struct variant *variant)
{
    struct ts_decoder decoder = ts_decoder_read(run, &(struct ts_decoder){.eps = variant->eps});
    ts_decoder_walk(run, &decoder, &(struct ts_walk){.norm = TS_NORM_RMS, .layer = layer, .context = variant});
}

/* Every other one of the lower layers, where the config does not list them. */
static size_t window_of_qwen2(struct ts_run *run, size_t i)
{
    if (ts_model_config_has_parts(run->config, "layer_types"))
        return ts_window_of_layer(run, i, false);
    return ts_flag(run, "use_sliding_window", false) && i % 2 == 0 && i < ts_count(run, "max_window_layers", 28)
               ? ts_window(run, 4096)
               : 0;
}

/* All layers or none. */
static size_t window_of_qwen3(struct ts_run *run, size_t i)
{
    (void)i;
    return ts_flag(run, "use_sliding_window", false) ? ts_window(run, 4096) : 0;
}

static void qwen2_moe(struct ts_run *run)
{
    struct variant variant = {.bias = ts_flag(run, "qkv_bias", true),
                              .shared_expert = true,
                              .window = window_of_qwen2,
                              .inner_key = "moe_intermediate_size"};
    walk(run, &variant);
}

static void qwen3_moe(struct ts_run *run)
{
    struct variant variant = {
        .query_norm = TS_QUERY_NORM_HEADS, .window = window_of_qwen3, .inner_key = "moe_intermediate_size"};
    walk(run, &variant);
}

static void olmoe(struct ts_run *run)
{
    struct variant variant = {.query_norm = TS_QUERY_NORM_WHOLE, .inner_key = "intermediate_size", .eps = 1e-5};
    if (ts_model_config_text(run->config, "clip_qkv"))
        ts_run_fail(run, TS_ERR_UNSUPPORTED,
                    "clip_qkv is set in the config, and clipped queries are not supported yet");
    walk(run, &variant);
}

const struct ts_model_family ts_model_family_qwen2_moe = {.types = "qwen2_moe", .forward = qwen2_moe};
const struct ts_model_family ts_model_family_qwen3_moe = {.types = "qwen3_moe", .forward = qwen3_moe};
const struct ts_model_family ts_model_family_olmoe = {.types = "olmoe", .forward = olmoe};
