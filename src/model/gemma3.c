/* Gemma 3: Gemma 2 with a norm over each head of queries and keys in place of the softcaps, and two rotary bases: one
 * for layers with a window, one for those without. */
#include <math.h>

#include "model/decoder.h"
#include "model/families.h"

#define LOCAL_THETA 10000 /* of layers with a window */

/* What a config that says nothing means: that of the 4B model leaves out nearly all of it. */
static const struct ts_decoder usual = {.heads = 8,
                                        .kv_heads = 4,
                                        .head_size = 256,
                                        .vocabulary = 262208,
                                        .theta = 1e6,
                                        .function = TS_GELU_TANH,
                                        .tied = true};

struct rotaries {
    struct ts_rotary sliding, full;
};

/* Older configs have a period instead of a list. */
static bool slides(struct ts_run *run, size_t i)
{
    const char *key = ts_model_config_text(run->config, "sliding_window_pattern") ? "sliding_window_pattern"
                                                                                  : "_sliding_window_pattern";
    size_t period = ts_model_config_text(run->config, key) ? ts_need(run, key) : 6;
    return ts_layer_slides(run, i, (i + 1) % period != 0);
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
        rotaries->full = ts_rotary_make(run, "rope_scaling", decoder->turned, decoder->theta, false);
        rotaries->sliding =
            ts_rotary_plain(run, decoder->head_size, ts_number(run, "rope_local_base_freq", LOCAL_THETA));
        return;
    }
    if (any(run, decoder, true))
        rotaries->sliding =
            ts_rotary_make(run, "rope_parameters.sliding_attention", decoder->turned, LOCAL_THETA, false);
    if (any(run, decoder, false))
        rotaries->full = ts_rotary_make(run, "rope_parameters.full_attention", decoder->turned, decoder->theta, false);
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    const struct rotaries *rotaries = context;
    bool bias = ts_flag(run, "attention_bias", false), sliding = slides(run, i);
    double query = ts_positive(run, "query_pre_attn_scalar", 256);
    struct ts_self_attention how = {.rotary = sliding ? &rotaries->sliding : &rotaries->full,
                                    .query_norm = TS_QUERY_NORM_LATER,
                                    .norm = TS_NORM_RMS_PLUS,
                                    .bias = bias,
                                    .output_bias = bias,
                                    .attention = {.scale = 1 / sqrt(query),
                                                  .window = sliding ? ts_window(run, 4096) : 0,
                                                  .softcap = ts_number(run, "attn_logit_softcapping", 0)}};
    return ts_sandwich_layer(run, decoder, x, &how);
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run, &usual);
    struct rotaries rotaries;
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
