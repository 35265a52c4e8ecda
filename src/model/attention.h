/* Attention: rotary positions and scaled dot products, with every step captured. */
#ifndef TS_MODEL_ATTENTION_H
#define TS_MODEL_ATTENTION_H

#include "model/run.h"

/* Angles per position: cosine and sine of size/2 frequencies, already times the scaling of attention that some kinds
 * (yarn, longrope) ask for. */
struct ts_rotary {
    float *cosine, *sine; /* [positions][size / 2]; NULL in a plan */
    size_t positions, size;
};

/* From the settings under `key` ("rope_parameters", or "rope_parameters.full_attention" where layers differ), with the
 * older spelling (rope_theta, rope_scaling) as a fallback, and base where neither has a theta. Types: default, linear,
 * dynamic, llama3, yarn, longrope, and factors (a divisor for each frequency, as GGUF files keep llama3's); another one
 * is an error that names it. size: the part of a head that turns. Captures "rotary_emb.0" and ".1" as transformers
 * does: cosine and sine, both halves; half: just one. */
struct ts_rotary ts_rotary_make(struct ts_run *run, const char *key, size_t size, double base, bool half);
/* The same without captures, with a base given by hand. */
struct ts_rotary ts_rotary_plain(struct ts_run *run, size_t size, double base);

/* Turns the first rotary->size numbers of each head, each number with the one half a turn away; interleaved: each with
 * its neighbour, the result in halves' order as DeepSeek has it (even ones first). x.heads must be set. */
struct ts_act ts_rotate(struct ts_run *run, const char *name, struct ts_act x, const struct ts_rotary *rotary,
                        bool interleaved);

struct ts_attention {
    double scale;       /* of the products */
    size_t window;      /* a token sees itself and window - 1 before it; 0: all before it */
    double softcap;     /* 0: none */
    const float *sinks; /* a logit per head that takes part in the softmax and is dropped; or NULL */
};

/* q [tokens, heads * size], k and v [tokens, kv heads * size]: x.heads set on all. Captures attn_scores (scaled,
 * capped, before the mask), attn_scores_masked, attn_probs and attn_context in the scope. Returns the context [tokens,
 * heads * size of v]. */
struct ts_act ts_attend(struct ts_run *run, struct ts_act q, struct ts_act k, struct ts_act v,
                        const struct ts_attention *how);

#endif
