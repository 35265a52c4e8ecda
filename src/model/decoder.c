/* Owns the frame of a decoder, the halves of a layer and the self-attention that most families share. */
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_LAYERS 100000

/* A size that must be known: from the config, or what the family takes without it. */
static size_t size_of(struct ts_run *run, const char *key, size_t usual)
{
    return usual && !ts_model_config_text(run->config, key) ? usual : ts_need(run, key);
}

struct ts_decoder ts_decoder_read(struct ts_run *run, const struct ts_decoder *usual)
{
    static const struct ts_decoder none;
    const char *function = ts_model_config_text(run->config, "hidden_activation") ? "hidden_activation" : "hidden_act";
    struct ts_decoder decoder = usual ? *usual : none;
    usual = usual ? usual : &none;
    decoder.layers = ts_need(run, "num_hidden_layers");
    decoder.hidden = ts_need(run, "hidden_size");
    decoder.heads = size_of(run, "num_attention_heads", usual->heads);
    decoder.vocabulary = size_of(run, "vocab_size", usual->vocabulary);
    decoder.kv_heads = ts_count(run, "num_key_value_heads", usual->kv_heads ? usual->kv_heads : decoder.heads);
    decoder.head_size = ts_count(run, "head_dim", usual->head_size ? usual->head_size : decoder.hidden / decoder.heads);
    decoder.turned = decoder.head_size;
    if (!ts_model_config_has_parts(run->config, "intermediate_size")) /* a list is for the family to look at */
        decoder.inner = ts_count(run, "intermediate_size", 4 * decoder.hidden);
    decoder.eps = ts_positive(run, "rms_norm_eps", usual->eps > 0 ? usual->eps : 1e-6);
    decoder.theta = usual->theta > 0 ? usual->theta : 10000;
    decoder.tied = ts_flag(run, "tie_word_embeddings", usual->tied);
    if (ts_model_config_text(run->config, function))
        decoder.function = ts_function_named(run, function, "");
    if (!decoder.kv_heads || decoder.heads % decoder.kv_heads)
        ts_run_fail(run, TS_ERR_FORMAT, "the config has %zu heads over %zu key heads, which do not divide",
                    decoder.heads, decoder.kv_heads);
    if (!decoder.head_size)
        ts_run_fail(run, TS_ERR_FORMAT,
                    "the config has heads of 0 numbers: hidden_size is %zu, and there are %zu heads", decoder.hidden,
                    decoder.heads);
    if (decoder.layers > MOST_LAYERS)
        ts_run_fail(run, TS_ERR_FORMAT, "the config has %zu layers, and at most %d are believed", decoder.layers,
                    MOST_LAYERS);
    return decoder;
}

size_t ts_window(struct ts_run *run, size_t otherwise)
{
    size_t window = ts_count(run, "sliding_window", otherwise);
    if (!window && ts_model_config_text(run->config, "sliding_window"))
        ts_run_fail(run, TS_ERR_FORMAT,
                    "the config says sliding_window is 0, and layers are to slide: a token would not see itself");
    return window;
}

bool ts_layer_slides(struct ts_run *run, size_t i, bool otherwise)
{
    const char *type, *list = "layer_types";
    char key[64];
    snprintf(key, sizeof key, "%s.%zu", list, i);
    type = ts_model_config_text(run->config, key);
    if (type && strcmp(type, "sliding_attention") != 0 && strcmp(type, "full_attention") != 0)
        ts_run_fail(run, TS_ERR_UNSUPPORTED,
                    "the config says layer %zu is of type \"%.60s\"; known are "
                    "full_attention and sliding_attention",
                    i, type);
    if (!type && (ts_model_config_text(run->config, list) || ts_model_config_has_parts(run->config, list)))
        ts_run_fail(run, TS_ERR_FORMAT, "the config's %s has no entry for layer %zu", list, i);
    return type ? strcmp(type, "sliding_attention") == 0 : otherwise;
}

size_t ts_window_of_layer(struct ts_run *run, size_t i, bool everywhere)
{
    bool slides =
        everywhere || (ts_flag(run, "use_sliding_window", false) && i >= ts_count(run, "max_window_layers", 28));
    return ts_layer_slides(run, i, slides) ? ts_window(run, 0) : 0;
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

static struct ts_act self_attention(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x,
                                    const struct ts_self_attention *how)
{
    size_t scope = ts_enter(run, "self_attn"), size = decoder->head_size;
    const struct ts_rotary *rotary = how->rotary ? how->rotary : &decoder->rotary;
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
    q.layout = k.layout = TS_HEADS_TOKENS;
    q = ts_rotate(run, "q_rope", q, rotary, false);
    k = ts_rotate(run, "k_rope", k, rotary, false);
    context = ts_attend(run, q, k, v, &attention);
    out = ts_linear(run, "o_proj", context, decoder->hidden, how->output_bias);
    ts_capture(run, "", out);
    ts_leave(run, scope);
    return out;
}

struct ts_act ts_add_attention(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x, enum ts_norm norm,
                               const struct ts_self_attention *how)
{
    struct ts_act h = ts_norm(run, "input_layernorm", x, norm, decoder->eps, 0);
    return ts_sum(run, "attn_residual", x, self_attention(run, decoder, h, how));
}

struct ts_act ts_add_mlp(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x, bool bias)
{
    struct ts_act h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS, decoder->eps, 0);
    return ts_sum(run, "", x, ts_gated_mlp(run, "mlp", h, decoder->inner, decoder->function, bias));
}

struct ts_act ts_sandwich_layer(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x,
                                const struct ts_self_attention *how)
{
    const enum ts_norm norm = TS_NORM_RMS_PLUS;
    struct ts_act h = ts_norm(run, "input_layernorm", x, norm, decoder->eps, 0);
    h = self_attention(run, decoder, h, how);
    h = ts_norm(run, "post_attention_layernorm", h, norm, decoder->eps, 0);
    x = ts_sum(run, "attn_residual", x, h);
    h = ts_norm(run, "pre_feedforward_layernorm", x, norm, decoder->eps, 0);
    h = ts_gated_mlp(run, "mlp", h, decoder->inner, decoder->function, false);
    h = ts_norm(run, "post_feedforward_layernorm", h, norm, decoder->eps, 0);
    return ts_sum(run, "", x, h);
}

void ts_decoder_walk(struct ts_run *run, struct ts_decoder *decoder, const struct ts_walk *walk)
{
    size_t model = ts_enter(run, "model"), layers = ts_layers(run, decoder->layers);
    struct ts_act x = ts_embed(run, "embed_tokens", decoder->vocabulary, decoder->hidden,
                               walk->embedding_scale > 0 ? walk->embedding_scale : 1);
    if (walk->prepare)
        walk->prepare(run, decoder, walk->context);
    else
        decoder->rotary = ts_rotary_make(run, "rope_parameters", decoder->turned, decoder->theta, decoder->half_angles);
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

void ts_decoder_plain(struct ts_run *run, ts_layer *layer)
{
    struct ts_decoder decoder = ts_decoder_read(run, NULL);
    ts_decoder_walk(run, &decoder, &(struct ts_walk){.norm = TS_NORM_RMS, .layer = layer});
}
