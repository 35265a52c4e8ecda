/* Gemma 2: norms before and after each block with weights around zero, softcapped scores and logits, every other layer
 * with a window. */
#include <math.h>

#include "model/decoder.h"
#include "model/families.h"

static void prepare(struct ts_run *run, const struct ts_decoder *decoder, void *context)
{
    struct ts_rotary *rotary = context;
    *rotary = ts_rotary_make(run, "rope_parameters", decoder->head_size, false);
}

static size_t window_of(struct ts_run *run, size_t i)
{
    if (ts_model_config_text(run->config, "layer_types.0"))
        return ts_window_of_layer(run, i, false);
    return i % 2 ? 0 : ts_count(run, "sliding_window", 4096); /* older configs: the even ones */
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    bool bias = ts_model_config_flag(run->config, "attention_bias", false);
    double query = ts_number(run, "query_pre_attn_scalar", (double)decoder->head_size);
    struct ts_self_attention how = {.rotary = context,
                                    .bias = bias,
                                    .output_bias = bias,
                                    .attention = {.scale = 1 / sqrt(query),
                                                  .window = window_of(run, i),
                                                  .softcap = ts_number(run, "attn_logit_softcapping", 0)}};
    struct ts_act h = ts_norm(run, "input_layernorm", x, TS_NORM_RMS_PLUS, decoder->eps, 0);
    h = ts_self_attention(run, "self_attn", decoder, h, &how);
    h = ts_norm(run, "post_attention_layernorm", h, TS_NORM_RMS_PLUS, decoder->eps, 0);
    x = ts_add(run, "attn_residual", x, h);
    h = ts_norm(run, "pre_feedforward_layernorm", x, TS_NORM_RMS_PLUS, decoder->eps, 0);
    h = ts_gated_mlp(run, "mlp", h, decoder->inner, decoder->function, false);
    h = ts_norm(run, "post_feedforward_layernorm", h, TS_NORM_RMS_PLUS, decoder->eps, 0);
    return ts_add(run, "", x, h);
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run);
    struct ts_rotary rotary;
    decoder.tied = ts_model_config_flag(run->config, "tie_word_embeddings", true);
    ts_decoder_walk(run, &decoder,
                    &(struct ts_walk){.norm = TS_NORM_RMS_PLUS,
                                      .embedding_scale = sqrt((double)decoder.hidden),
                                      .logit_cap = ts_number(run, "final_logit_softcapping", 0),
                                      .prepare = prepare,
                                      .layer = layer,
                                      .context = &rotary});
}

const struct ts_model_family ts_model_family_gemma2 = {.types = "gemma2", .forward = forward};
