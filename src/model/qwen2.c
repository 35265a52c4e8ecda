/* Qwen 2: Llama with biases on the queries, keys and values, and a window in the upper layers where it is used. */
#include "model/decoder.h"
#include "model/families.h"

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    struct ts_self_attention how = {.bias = true, .attention.window = ts_window_of_layer(run, i, false)};
    (void)context;
    x = ts_add_attention(run, decoder, x, TS_NORM_RMS, &how);
    return ts_add_mlp(run, decoder, x, false);
}

static void forward(struct ts_run *run)
{
    ts_decoder_plain(run, layer);
}

const struct ts_model_family ts_model_family_qwen2 = {.types = "qwen2", .forward = forward};
