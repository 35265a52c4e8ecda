/* Owns the frame of a decoder and the self-attention that most families share. */
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct ts_decoder ts_decoder_read(struct ts_run *run)
{
    struct ts_decoder decoder = {.layers = ts_need(run, "num_hidden_layers"),
                                 .hidden = ts_need(run, "hidden_size"),
                                 .heads = ts_need(run, "num_attention_heads"),
                                 .vocabulary = ts_need(run, "vocab_size")};
    decoder.kv_heads = ts_count(run, "num_key_value_heads", decoder.heads);
    decoder.head_size = ts_count(run, "head_dim", decoder.hidden / decoder.heads);
    decoder.inner = ts_count(run, "intermediate_size", 4 * decoder.hidden);
    decoder.eps = ts_number(run, "rms_norm_eps", 1e-6);
    decoder.tied = ts_model_config_flag(run->config, "tie_word_embeddings", false);
    decoder.function = ts_function_named(
        run, ts_model_config_text(run->config, "hidden_activation") ? "hidden_activation" : "hidden_act", "silu");
    if (!decoder.kv_heads || decoder.heads % decoder.kv_heads)
        ts_run_fail(run, TS_ERR_FORMAT, "the config has %zu heads over %zu key heads, which do not divide",
                    decoder.heads, decoder.kv_heads);
    if (!decoder.head_size || decoder.layers > 100000)
        ts_run_fail(run, TS_ERR_FORMAT, "the config has heads of %zu numbers and %zu layers", decoder.head_size,
                    decoder.layers);
    return decoder;
}

size_t ts_window_of_layer(struct ts_run *run, size_t i, bool everywhere)
{
    size_t window = ts_count(run, "sliding_window", 0);
    const char *type;
    char key[64];
    snprintf(key, sizeof key, "layer_types.%zu", i);
    type = ts_model_config_text(run->config, key);
    if (type)
        return strcmp(type, "sliding_attention") == 0 ? window : 0;
    if (everywhere)
        return window;
    if (!ts_model_config_flag(run->config, "use_sliding_window", false))
        return 0;
    return i >= ts_count(run, "max_window_layers", 0) ? window : 0;
}

/* One of q, k, v with its heads. */
static struct ts_act project(struct ts_run *run, const char *name, struct ts_act x, size_t heads, size_t size,
                             bool bias)
{
    struct ts_act y = ts_linear(run, name, x, heads * size, bias);
    y.heads = heads;
    return y;
}

static struct ts_act norm_heads(struct ts_run *run, const char *name, const struct ts_decoder *decoder, struct ts_act x,
                                const struct ts_self_attention *how)
{
    bool whole = how->query_norm == TS_QUERY_NORM_WHOLE;
    x.layout = whole ? TS_BATCHED : how->query_norm == TS_QUERY_NORM_LATER ? TS_HEADS_TOKENS : TS_TOKENS_HEADS;
    return ts_norm(run, name, x, how->norm, decoder->eps, whole ? 0 : x.heads);
}

struct ts_act ts_self_attention(struct ts_run *run, const char *name, const struct ts_decoder *decoder, struct ts_act x,
                                const struct ts_self_attention *how)
{
    size_t scope = ts_enter(run, "%s", name), size = decoder->head_size;
    bool at_once = how->query_norm == TS_QUERY_NORM_HEADS || how->query_norm == TS_QUERY_NORM_WHOLE;
    struct ts_attention attention = how->attention;
    struct ts_act q, k, v, context, out;
    if (attention.scale == 0)
        attention.scale = 1 / sqrt((double)size);
    q = project(run, "q_proj", x, decoder->heads, size, how->bias);
    if (at_once)
        q = norm_heads(run, "q_norm", decoder, q, how);
    k = project(run, "k_proj", x, decoder->kv_heads, size, how->bias);
    if (at_once)
        k = norm_heads(run, "k_norm", decoder, k, how);
    v = project(run, "v_proj", x, decoder->kv_heads, size, how->bias);
    if (how->query_norm == TS_QUERY_NORM_LATER) {
        q = norm_heads(run, "q_norm", decoder, q, how);
        k = norm_heads(run, "k_norm", decoder, k, how);
    }
    if (how->rotary) {
        q.layout = k.layout = TS_HEADS_TOKENS;
        q = ts_rotate(run, "q_rope", q, how->rotary, false);
        k = ts_rotate(run, "k_rope", k, how->rotary, false);
    }
    context = ts_attend(run, q, k, v, &attention);
    out = ts_linear(run, "o_proj", context, decoder->hidden, how->output_bias);
    ts_capture(run, "", out);
    ts_leave(run, scope);
    return out;
}

void ts_decoder_walk(struct ts_run *run, const struct ts_decoder *decoder, const struct ts_walk *walk)
{
    size_t model = ts_enter(run, "model"), layers = ts_layers(run, decoder->layers);
    struct ts_act x = ts_embed(run, "embed_tokens", decoder->vocabulary, decoder->hidden,
                               walk->embedding_scale > 0 ? walk->embedding_scale : 1);
    if (walk->prepare)
        walk->prepare(run, decoder, walk->context);
    for (size_t i = 0; i < layers && ts_ok(run); i++) {
        struct ts_block *mark = ts_mark(run);
        size_t scope = ts_enter(run, "layers.%zu", i);
        x = walk->layer(run, decoder, i, x, walk->context);
        ts_capture(run, "", x);
        ts_leave(run, scope);
        ts_forget(run, mark, &x);
    }
    if (!run->cut)
        x = ts_norm(run, "norm", x, walk->norm, decoder->eps, 0);
    ts_leave(run, model);
    ts_head(run, x, "model.embed_tokens.weight", decoder->vocabulary, decoder->tied, walk->logit_cap);
}
