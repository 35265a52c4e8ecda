/* Gemma 3: Gemma 2 with a norm over each head of queries and keys in place of the softcaps, and two rotary bases: one
 * for layers with a window, one for those without. */
#include <math.h>
#include <stdio.h>

#include "model/decoder.h"
#include "model/families.h"

struct rotaries {
    struct ts_rotary sliding, full;
};

static bool slides(struct ts_run *run, size_t i)
{
    char key[64];
    snprintf(key, sizeof key, "layer_types.%zu", i);
    if (ts_model_config_text(run->config, key))
        return ts_model_config_is(run->config, key, "sliding_attention");
    return (i + 1) % ts_need(run, ts_model_config_text(run->config, "sliding_window_pattern")
                                      ? "sliding_window_pattern"
                                      : "_sliding_window_pattern");
}

static bool any(struct ts_run *run, const struct ts_decoder *decoder, bool sliding)
{
    for (size_t i = 0; i < decoder->layers; i++)
        if (slides(run, i) == sliding)
            return true;
    return false;
}

static void prepare(struct ts_run *run, const struct ts_decoder *decoder, void *context)
{
    struct rotaries *rotaries = context;
    bool newer = ts_model_config_text(run->config, "rope_parameters.full_attention.rope_theta") ||
                 ts_model_config_text(run->config, "rope_parameters.sliding_attention.rope_theta");
    *rotaries = (struct rotaries){{0}, {0}};
    if (!newer) {
        rotaries->full = ts_rotary_make(run, "rope_scaling", decoder->head_size, false);
        rotaries->sliding = ts_rotary_plain(run, decoder->head_size, ts_number(run, "rope_local_base_freq", 10000));
        return;
    }
    if (any(run, decoder, true))
        rotaries->sliding = ts_rotary_make(run, "rope_parameters.sliding_attention", decoder->head_size, false);
    if (any(run, decoder, false))
        rotaries->full = ts_rotary_make(run, "rope_parameters.full_attention", decoder->head_size, false);
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    const struct rotaries *rotaries = context;
    bool bias = ts_model_config_flag(run->config, "attention_bias", false), sliding = slides(run, i);
    double query = ts_number(run, "query_pre_attn_scalar", (double)decoder->head_size);
    struct ts_self_attention how = {.rotary = sliding ? &rotaries->sliding : &rotaries->full,
                                    .query_norm = TS_QUERY_NORM_LATER,
                                    .norm = TS_NORM_RMS_PLUS,
                                    .bias = bias,
                                    .output_bias = bias,
                                    .attention = {.scale = 1 / sqrt(query),
                                                  .window = sliding ? ts_count(run, "sliding_window", 4096) : 0,
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
    struct rotaries rotaries;
    decoder.tied = ts_model_config_flag(run->config, "tie_word_embeddings", true);
    /* the pictures of a multimodal checkpoint are not looked at */
    ts_model_weights_ignore(run->weights, "vision_tower.");
    ts_model_weights_ignore(run->weights, "multi_modal_projector.");
    ts_decoder_walk(run, &decoder,
                    &(struct ts_walk){.norm = TS_NORM_RMS_PLUS,
                                      .embedding_scale = sqrt((double)decoder.hidden),
                                      .logit_cap = ts_number(run, "final_logit_softcapping", 0),
                                      .prepare = prepare,
                                      .layer = layer,
                                      .context = &rotaries});
}

const struct ts_model_family ts_model_family_gemma3 = {.types = "gemma3_text gemma3", .forward = forward};
