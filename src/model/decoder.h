/* Decoder: what most families share, as words for their files: the sizes, self-attention with its variants, the halves
 * of a layer, the walk over the layers. */
#ifndef TS_MODEL_DECODER_H
#define TS_MODEL_DECODER_H

#include "model/attention.h"
#include "model/operations.h"

struct ts_decoder {
    size_t layers, hidden, heads, kv_heads, head_size, inner, vocabulary;
    double eps, theta; /* of the norms; base of the rotary frequencies */
    enum ts_function function;
    bool tied;
    size_t turned;           /* numbers of a head that turn with the position: the head, unless the family changes it */
    bool half_angles;        /* the rotary tables are shown one half wide */
    struct ts_rotary rotary; /* made by the walk, where the family does not prepare its own */
};

/* From the usual keys of a config. usual: what the family's own configuration class takes where the file says nothing;
 * a zero there is what most families take, or an error for a size that must be known. May be NULL. */
struct ts_decoder ts_decoder_read(struct ts_run *run, const struct ts_decoder *usual);

enum ts_query_norm {
    TS_QUERY_NORM_NONE,
    TS_QUERY_NORM_HEADS, /* over each head, right after its projection: Qwen 3 */
    TS_QUERY_NORM_LATER, /* over each head, after all three projections: Gemma 3 */
    TS_QUERY_NORM_WHOLE  /* over all heads at once: OLMoE */
};

struct ts_self_attention {
    const struct ts_rotary *rotary; /* NULL: the decoder's */
    enum ts_query_norm query_norm;
    enum ts_norm norm;             /* of the query norm */
    bool bias, output_bias;        /* of q, k, v; of o */
    struct ts_attention attention; /* scale 0: one over the root of the head size */
};

/* x + attention(norm(x)), the first half of a layer: input_layernorm, the module self_attn with q, k, v, rotation,
 * attention and o, attn_residual. */
struct ts_act ts_add_attention(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x, enum ts_norm norm,
                               const struct ts_self_attention *how);
/* x + mlp(norm(x)), the second half with a gated MLP: post_attention_layernorm, the module mlp. */
struct ts_act ts_add_mlp(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x, bool bias);
/* A whole layer with norms before and after attention and MLP: Gemma 2 and 3. */
struct ts_act ts_sandwich_layer(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x,
                                const struct ts_self_attention *how);

/* Tokens that layer i looks back on: the config's sliding_window where its layer_types (or the older use_sliding_window
 * and max_window_layers) say so, else 0: all of them. everywhere: for families whose every layer slides. */
size_t ts_window_of_layer(struct ts_run *run, size_t i, bool everywhere);
/* Whether the config's layer_types say that it slides; otherwise: without such a list. */
bool ts_layer_slides(struct ts_run *run, size_t i, bool otherwise);
/* The config's sliding_window for a layer that slides. */
size_t ts_window(struct ts_run *run, size_t otherwise);

typedef struct ts_act ts_layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                               void *context);

/* The common frame: embed_tokens, layers, norm, head, all of them below "model.". */
struct ts_walk {
    enum ts_norm norm;
    double embedding_scale; /* 0: none */
    double logit_cap;       /* 0: none */
    ts_layer *layer;
    void (*prepare)(struct ts_run *run, const struct ts_decoder *decoder,
                    void *context); /* the family's own rotary tables; NULL: the decoder's are made */
    void *context;
};
void ts_decoder_walk(struct ts_run *run, struct ts_decoder *decoder, const struct ts_walk *walk);
/* The same for families that need nothing but their layer and the usual settings. */
void ts_decoder_plain(struct ts_run *run, ts_layer *layer);

#endif
