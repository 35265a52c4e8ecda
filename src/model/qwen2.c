/* Qwen 2: Llama with biases on the queries, keys and values, and a window in the upper layers where it is used. */
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
    struct ts_self_attention how = {
        .rotary = context, .bias = true, .attention.window = ts_window_of_layer(run, i, false)};
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

const struct ts_model_family ts_model_family_qwen2 = {.types = "qwen2", .forward = forward};
