/* Phi 3: Llama with q, k, v in one product, gate and up in one, and rotary positions that may turn only a part of a
 * head. */
#include <math.h>

#include "model/decoder.h"
#include "model/families.h"

static struct ts_act heads_of(struct ts_run *run, struct ts_act fused, size_t first, size_t heads, size_t size)
{
    struct ts_act x = ts_columns(run, fused, first * size, heads * size);
    x.heads = heads;
    x.layout = TS_HEADS_TOKENS;
    return x;
}

static struct ts_act attention(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x)
{
    size_t scope = ts_enter(run, "self_attn"), heads = decoder->heads, kv = decoder->kv_heads,
           size = decoder->head_size;
    struct ts_act fused = ts_linear(run, "qkv_proj", x, (heads + 2 * kv) * size, false);
    struct ts_act q = ts_rotate(run, "q_rope", heads_of(run, fused, 0, heads, size), &decoder->rotary, false);
    struct ts_act k = ts_rotate(run, "k_rope", heads_of(run, fused, heads, kv, size), &decoder->rotary, false);
    struct ts_act v = heads_of(run, fused, heads + kv, kv, size);
    struct ts_act context =
        ts_attend(run, q, k, v,
                  &(struct ts_attention){.scale = 1 / sqrt((double)size), .window = ts_window_of_layer(run, i, true)});
    struct ts_act out = ts_linear(run, "o_proj", context, decoder->hidden, false);
    ts_capture(run, "", out);
    ts_leave(run, scope);
    return out;
}

static struct ts_act mlp(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x)
{
    size_t scope = ts_enter(run, "mlp"), inner = decoder->inner;
    struct ts_act both = ts_linear(run, "gate_up_proj", x, 2 * inner, false);
    struct ts_act gate = ts_activate(run, "activation_fn", ts_columns(run, both, 0, inner), decoder->function);
    struct ts_act product = ts_multiply(run, "intermediate", ts_columns(run, both, inner, inner), gate);
    struct ts_act down = ts_linear(run, "down_proj", product, x.width, false);
    ts_capture(run, "", down);
    ts_leave(run, scope);
    return down;
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    struct ts_act h = ts_norm(run, "input_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    (void)context;
    h = attention(run, decoder, i, h);
    ts_capture(run, "resid_attn_dropout", h);
    x = ts_sum(run, "attn_residual", x, h);
    h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    h = mlp(run, decoder, h);
    ts_capture(run, "resid_mlp_dropout", h);
    return ts_sum(run, "", x, h);
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run, &(struct ts_decoder){.eps = 1e-5});
    double part = ts_number(run, "rope_parameters.partial_rotary_factor", ts_number(run, "partial_rotary_factor", 1));
    decoder.turned = part > 0 && part <= 1 ? (size_t)((double)decoder.head_size * part) : 0;
    ts_decoder_walk(run, &decoder, &(struct ts_walk){.norm = TS_NORM_RMS, .layer = layer});
}

const struct ts_model_family ts_model_family_phi3 = {.types = "phi3", .forward = forward};
