/* Qwen 3: Llama with a norm over each head of the queries and keys before they turn. */
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
    struct ts_self_attention how = {.rotary = context,
                                    .query_norm = TS_QUERY_NORM_HEADS,
                                    .norm = TS_NORM_RMS,
                                    .bias = bias,
                                    .output_bias = bias,
                                    .attention.window = ts_window_of_layer(run, i, false)};
    struct ts_act h = ts_norm(run, "input_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    h = ts_self_attention(run, "self_attn", decoder, h, &how);
    x = ts_add(run, "attn_residual", x, h);
    h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    h = ts_gated_mlp(run, "mlp", h, decoder->inner, decoder->function, false);
    return ts_add(run, "", x, h);
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run);
    struct ts_rotary rotary;
    ts_decoder_walk(run, &decoder,
                    &(struct ts_walk){.norm = TS_NORM_RMS, .prepare = prepare, .layer = layer, .context = &rotary});
}

const struct ts_model_family ts_model_family_qwen3 = {.types = "qwen3", .forward = forward};
