/* Llama 2 and 3: pre-norm, rotary positions with any scaling, grouped queries, a gated MLP. */
#include "model/decoder.h"
#include "model/families.h"

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    bool bias = ts_flag(run, "attention_bias", false);
    struct ts_self_attention how = {.bias = bias, .output_bias = bias};
    (void)i, (void)context;
    x = ts_add_attention(run, decoder, x, TS_NORM_RMS, &how);
    return ts_add_mlp(run, decoder, x, ts_flag(run, "mlp_bias", false));
}

static void forward(struct ts_run *run)
{
    ts_decoder_plain(run, layer);
}

const struct ts_model_family ts_model_family_llama = {.types = "llama", .forward = forward};
