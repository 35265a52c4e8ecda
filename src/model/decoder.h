/* Decoder: what most families share, as words for their files: the sizes, self-attention with its variants, the walk
 * over the layers. */
#ifndef TS_MODEL_DECODER_H
#define TS_MODEL_DECODER_H

#include "model/attention.h"
#include "model/operations.h"

struct ts_decoder {
    size_t layers, hidden, heads, kv_heads, head_size, inner, vocabulary;
    double eps;
    enum ts_function function;
    bool tied;
};

/* From the usual keys of a config. */
struct ts_decoder ts_decoder_read(struct ts_run *run);

enum ts_query_norm {
    TS_QUERY_NORM_NONE,
    TS_QUERY_NORM_HEADS, /* over each head, right after its projection: Qwen 3 */
    TS_QUERY_NORM_LATER, /* over each head, after all three projections: Gemma 3 */
    TS_QUERY_NORM_WHOLE  /* over all heads at once: OLMoE */
};

struct ts_self_attention {
    const struct ts_rotary *rotary;
    enum ts_query_norm query_norm;
    enum ts_norm norm;             /* of the query norm */
    bool bias, output_bias;        /* of q, k, v; of o */
    struct ts_attention attention; /* scale 0: one over the root of the head size */
};

/* The module `name`: q, k, v, rotation, attention, o. */
struct ts_act ts_self_attention(struct ts_run *run, const char *name, const struct ts_decoder *decoder, struct ts_act x,
                                const struct ts_self_attention *how);

/* Tokens that layer i looks back on: the config's sliding_window where its layer_types (or the older use_sliding_window
 * and max_window_layers) say so, else 0: all of them. everywhere: for families whose every layer slides. */
size_t ts_window_of_layer(struct ts_run *run, size_t i, bool everywhere);

/* The common frame: embed_tokens, layers, norm, head, all of them below "model.". */
struct ts_walk {
    enum ts_norm norm;
    double embedding_scale; /* 0: none */
    double logit_cap;       /* 0: none */
    struct ts_act (*layer)(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context);
    void (*prepare)(struct ts_run *run, const struct ts_decoder *decoder,
                    void *context); /* rotary tables; in "model" */
    void *context;
};
void ts_decoder_walk(struct ts_run *run, const struct ts_decoder *decoder, const struct ts_walk *walk);

#endif
