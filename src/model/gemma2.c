/* Gemma 2: norms before and after each block with weights around zero, softcapped scores and logits, every other layer
 * with a window. */
#include <math.h>

#include "model/decoder.h"
#include "model/families.h"

/* what a config that says nothing means */
static const struct ts_decoder usual = {.head_size = 256, .function = TS_GELU_TANH, .tied = true};

static size_t window_of(struct ts_run *run, size_t i)
{
    return ts_layer_slides(run, i, i % 2 == 0) ? ts_window(run, 4096) : 0;
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    bool bias = ts_flag(run, "attention_bias", false);
    double query = ts_positive(run, "query_pre_attn_scalar", 256);
    struct ts_self_attention how = {.bias = bias,
                                    .output_bias = bias,
                                    .attention = {.scale = 1 / sqrt(query),
                                                  .window = window_of(run, i),
                                                  .softcap = ts_number(run, "attn_logit_softcapping", 0)}};
    (void)context;
    return ts_sandwich_layer(run, decoder, x, &how);
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run, &usual);
    ts_decoder_walk(run, &decoder,
                    &(struct ts_walk){.norm = TS_NORM_RMS_PLUS,
                                      .embedding_scale = sqrt((double)decoder.hidden),
                                      .logit_cap = ts_number(run, "final_logit_softcapping", 0),
                                      .layer = layer});
}

const struct ts_model_family ts_model_family_gemma2 = {.types = "gemma2", .forward = forward};
