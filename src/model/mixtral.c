/* Mixtral: Mistral with a mixture of experts for an MLP: two of them per token, their weights adding up to one. */
#include "model/decoder.h"
#include "model/experts.h"
#include "model/families.h"

static struct ts_act mixture(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x)
{
    size_t scope = ts_enter(run, "mlp"), experts = ts_need(run, "num_local_experts");
    struct ts_gated_experts how = {.inner = decoder->inner,
                                   .function = decoder->function,
                                   .name = "experts",
                                   .gate = "w1",
                                   .up = "w3",
                                   .down = "w2",
                                   .other_scope = "block_sparse_moe"};
    struct ts_router_settings router = {.kind = TS_ROUTER_SOFTMAX,
                                        .experts = experts,
                                        .chosen = ts_need(run, "num_experts_per_tok"),
                                        .renormalise = true,
                                        .wide = true};
    struct ts_routing routing =
        ts_route(run, "gate", ts_router_logits(run, "gate", "block_sparse_moe", x, experts, false), &router);
    x = ts_mix(run, x, &routing, how.inner, &ts_gated_expert, &how);
    x.layout = TS_BATCHED;
    ts_capture(run, "", x);
    ts_leave(run, scope);
    return x;
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    struct ts_self_attention how = {.attention.window = ts_window_of_layer(run, i, true)};
    struct ts_act h;
    (void)context;
    x = ts_add_attention(run, decoder, x, TS_NORM_RMS, &how);
    h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    return ts_sum(run, "", x, mixture(run, decoder, h));
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run, &(struct ts_decoder){.eps = 1e-5, .theta = 1e6});
    ts_decoder_walk(run, &decoder, &(struct ts_walk){.norm = TS_NORM_RMS, .layer = layer});
}

const struct ts_model_family ts_model_family_mixtral = {.types = "mixtral", .forward = forward};
