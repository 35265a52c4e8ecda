/* Qwen 3: Llama with a norm over each head of the queries and keys before they turn. */
#include "model/decoder.h"
#include "model/families.h"

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    bool bias = ts_flag(run, "attention_bias", false);
    struct ts_self_attention how = {.query_norm = TS_QUERY_NORM_HEADS,
                                    .norm = TS_NORM_RMS,
                                    .bias = bias,
                                    .output_bias = bias,
                                    .attention.window = ts_window_of_layer(run, i, false)};
    (void)context;
    x = ts_add_attention(run, decoder, x, TS_NORM_RMS, &how);
    return ts_add_mlp(run, decoder, x, false);
}

static void forward(struct ts_run *run)
{
    ts_decoder_plain(run, layer);
}

const struct ts_model_family ts_model_family_qwen3 = {.types = "qwen3", .forward = forward};
