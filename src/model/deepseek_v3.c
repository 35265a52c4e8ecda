/* DeepSeek 3: keys and values are rebuilt from a narrow latent per token (MLA), only a part of each head turns with the
 * position and that part of the keys is common to all heads; experts are chosen in groups, by sigmoids with a bias. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/decoder.h"
#include "model/experts.h"
#include "model/families.h"

#define MOST_FURTHER 64

struct shape {
    size_t q_rank, kv_rank, plain, turned, value; /* ranks of the latents; parts of a head */
    bool bias, interleaved;
    double scale;
};

/* Columns [first, first + count) of every head. */
static struct ts_act part_of_heads(struct ts_run *run, struct ts_act x, size_t heads, size_t first, size_t count)
{
    size_t size = x.width / heads;
    struct ts_act y = ts_new(run, x.rows, heads * count);
    y.heads = heads;
    y.layout = TS_HEADS_TOKENS;
    for (size_t i = 0; i < x.rows * heads && ts_real(run); i++)
        memcpy(y.data + i * count, x.data + i * size + first, count * sizeof *y.data);
    return y;
}

/* Heads of two parts; a second part of one head is given to all. */
static struct ts_act join_heads(struct ts_run *run, struct ts_act a, struct ts_act b, size_t heads)
{
    size_t size_a = a.width / heads, size_b = b.width / b.heads;
    struct ts_act y = ts_new(run, a.rows, heads * (size_a + size_b));
    y.heads = heads;
    y.layout = TS_HEADS_TOKENS;
    for (size_t t = 0; t < a.rows && ts_real(run); t++)
        for (size_t h = 0; h < heads; h++) {
            float *to = y.data + t * y.width + h * (size_a + size_b);
            memcpy(to, a.data + t * a.width + h * size_a, size_a * sizeof *to);
            memcpy(to + size_a, b.data + t * b.width + (b.heads == 1 ? 0 : h) * size_b, size_b * sizeof *to);
        }
    return y;
}

static struct ts_act attention(struct ts_run *run, const struct ts_decoder *decoder, const struct shape *shape,
                               struct ts_act x)
{
    size_t scope = ts_enter(run, "self_attn"), heads = decoder->heads, size = shape->plain + shape->turned;
    struct ts_act q, latent, common, rebuilt, k, v, out;
    if (shape->q_rank) {
        q = ts_linear(run, "q_a_proj", x, shape->q_rank, shape->bias);
        q = ts_norm(run, "q_a_layernorm", q, TS_NORM_RMS, 1e-6, 0);
        q = ts_linear(run, "q_b_proj", q, heads * size, false);
    } else {
        q = ts_linear(run, "q_proj", x, heads * size, false);
    }
    latent = ts_linear(run, "kv_a_proj_with_mqa", x, shape->kv_rank + shape->turned, shape->bias);
    common = ts_columns(run, latent, shape->kv_rank, shape->turned);
    common.heads = 1;
    common.layout = TS_HEADS_TOKENS;
    rebuilt = ts_norm(run, "kv_a_layernorm", ts_columns(run, latent, 0, shape->kv_rank), TS_NORM_RMS, 1e-6, 0);
    rebuilt = ts_linear(run, "kv_b_proj", rebuilt, heads * (shape->plain + shape->value), false);
    q = join_heads(run, part_of_heads(run, q, heads, 0, shape->plain),
                   ts_rotate(run, "q_rope", part_of_heads(run, q, heads, shape->plain, shape->turned), &decoder->rotary,
                             shape->interleaved),
                   heads);
    k = join_heads(run, part_of_heads(run, rebuilt, heads, 0, shape->plain),
                   ts_rotate(run, "k_rope", common, &decoder->rotary, shape->interleaved), heads);
    v = part_of_heads(run, rebuilt, heads, shape->plain, shape->value);
    out = ts_attend(run, q, k, v, &(struct ts_attention){.scale = shape->scale});
    out = ts_linear(run, "o_proj", out, decoder->hidden, shape->bias);
    ts_capture(run, "", out);
    ts_leave(run, scope);
    return out;
}

static struct ts_act mixture(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x)
{
    size_t scope = ts_enter(run, "mlp"), experts = ts_need(run, "n_routed_experts"),
           inner = ts_need(run, "moe_intermediate_size"), shared = ts_count(run, "n_shared_experts", 0);
    struct ts_gated_experts how = {.inner = inner,
                                   .function = decoder->function,
                                   .name = "experts",
                                   .gate = "gate_proj",
                                   .up = "up_proj",
                                   .down = "down_proj"};
    struct ts_router_settings router = {.kind = TS_ROUTER_SIGMOID,
                                        .experts = experts,
                                        .chosen = ts_need(run, "num_experts_per_tok"),
                                        .renormalise = ts_flag(run, "norm_topk_prob", true),
                                        .groups = ts_count(run, "n_group", 1),
                                        .chosen_groups = ts_count(run, "topk_group", 1),
                                        .factor = ts_number(run, "routed_scaling_factor", 1),
                                        .wide = true};
    struct ts_act logits, out, by_all;
    struct ts_routing routing;
    run->wide = true; /* the router computes in fp32 */
    logits = ts_router_logits(run, "gate", NULL, x, experts, false);
    run->wide = false;
    router.bias = ts_parameter_values(run, ts_parameter(run, "gate.e_score_correction_bias", 1, (uint64_t[]){experts}));
    routing = ts_route(run, "gate", logits, &router);
    out = ts_mix(run, x, &routing, inner, &ts_gated_expert, &how);
    out.layout = TS_BATCHED;
    if (shared) {
        by_all = ts_gated_mlp(run, "shared_experts", x, shared * inner, decoder->function, false);
        out = ts_sum(run, "", out, by_all);
    }
    ts_capture(run, "", out);
    ts_leave(run, scope);
    return out;
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    struct ts_act h = ts_norm(run, "input_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    h = attention(run, decoder, context, h);
    x = ts_sum(run, "attn_residual", x, h);
    if (i < ts_count(run, "first_k_dense_replace", 0))
        return ts_add_mlp(run, decoder, x, false);
    h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    return ts_sum(run, "", x, mixture(run, decoder, h));
}

/* Yarn also sharpens the scores, by the square of what its settings ask for. */
static double score_scale(struct ts_run *run, size_t size)
{
    const char *key =
        ts_model_config_text(run->config, "rope_parameters.rope_type") ? "rope_parameters" : "rope_scaling";
    char name[64];
    double all, factor, scale = 1 / sqrt((double)size);
    snprintf(name, sizeof name, "%s.mscale_all_dim", key);
    all = ts_number(run, name, 0);
    snprintf(name, sizeof name, "%s.factor", key);
    factor = ts_number(run, name, 1);
    if (all > 0 && factor > 1) {
        double by = 0.1 * all * log(factor) + 1;
        scale *= by * by;
    }
    return scale;
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run, NULL);
    struct shape shape = {.q_rank = ts_count(run, "q_lora_rank", 0),
                          .kv_rank = ts_need(run, "kv_lora_rank"),
                          .plain = ts_need(run, "qk_nope_head_dim"),
                          .turned = ts_need(run, "qk_rope_head_dim"),
                          .value = ts_need(run, "v_head_dim"),
                          .bias = ts_flag(run, "attention_bias", false),
                          .interleaved = ts_flag(run, "rope_interleave", true)};
    size_t further = ts_count(run, "num_nextn_predict_layers", 0);
    char extra[64];
    shape.scale = score_scale(run, shape.plain + shape.turned);
    /* layers behind the last one predict further tokens, and do not take part in a forward pass */
    if (further > MOST_FURTHER)
        ts_run_fail(run, TS_ERR_FORMAT, "the config says num_nextn_predict_layers is %zu, and at most %d are believed",
                    further, MOST_FURTHER);
    for (size_t i = 0; i < further && ts_ok(run); i++) {
        snprintf(extra, sizeof extra, "model.layers.%zu.", decoder.layers + i);
        ts_model_weights_ignore(run->weights, extra);
    }
    decoder.turned = shape.turned;
    ts_decoder_walk(run, &decoder, &(struct ts_walk){.norm = TS_NORM_RMS, .layer = layer, .context = &shape});
}

const struct ts_model_family ts_model_family_deepseek_v3 = {.types = "deepseek_v3", .forward = forward};
