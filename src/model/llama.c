/* Llama 2 and 3: pre-norm, rotary positions with any scaling, grouped queries, a gated MLP. */
#include "model/decoder.h"
#include "model/families.h"

static void prepare(struct ts_run *run, const struct ts_decoder *decoder, void *context)
{
    struct ts_rotary *rotary = context;
    *rotary = ts_rotary_make(run, "rope_parameters", decoder->head_size, false);
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    bool bias = ts_model_config_flag(run->config, "attention_bias", false);
    struct ts_self_attention how = {.rotary = context, .bias = bias, .output_bias = bias};
    struct ts_act h = ts_norm(run, "input_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    (void)i;
    h = ts_self_attention(run, "self_attn", decoder, h, &how);
    x = ts_add(run, "attn_residual", x, h);
    h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    h = ts_gated_mlp(run, "mlp", h, decoder->inner, decoder->function,
                     ts_model_config_flag(run->config, "mlp_bias", false));
    return ts_add(run, "", x, h);
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run);
    struct ts_rotary rotary;
    ts_decoder_walk(run, &decoder,
                    &(struct ts_walk){.norm = TS_NORM_RMS, .prepare = prepare, .layer = layer, .context = &rotary});
}

const struct ts_model_family ts_model_family_llama = {.types = "llama", .forward = forward};
