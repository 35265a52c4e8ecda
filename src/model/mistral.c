/* Mistral: Llama with a sliding window. */
#include "model/decoder.h"
#include "model/families.h"

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    struct ts_self_attention how = {.attention.window = ts_window_of_layer(run, i, true)};
    (void)context;
    x = ts_add_attention(run, decoder, x, TS_NORM_RMS, &how);
    return ts_add_mlp(run, decoder, x, false);
}

static void forward(struct ts_run *run)
{
    ts_decoder_plain(run, layer);
}

const struct ts_model_family ts_model_family_mistral = {.types = "mistral", .forward = forward};
