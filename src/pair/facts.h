/* Facts: what metadata and config.json say about a model, as far as pairing needs it. */
#ifndef TS_PAIR_FACTS_H
#define TS_PAIR_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/bundle.h"

struct ts_facts {
    char architecture[64];              /* of llama.cpp, or model_type; "" */
    uint64_t heads, kv_heads, head_dim; /* 0 when unknown */
    uint64_t key_dim, value_dim;        /* of latent attention: per head without rotary part, and of values */
    uint64_t key_heads, value_heads;    /* of linear attention */
    uint64_t inner;                     /* of it or of a state space: size of all values */
    bool gguf;
    bool weights; /* most tensors are parameters */
};

void ts_facts_read(const struct ts_bundle *bundle, struct ts_facts *facts);

/* Ends as parameters do. */
bool ts_is_parameter(const char *name);

/* llama.cpp's converter turns the rows of q and k for this architecture (or adds one to norms). */
bool ts_facts_turns_rows(const struct ts_facts *facts);
bool ts_facts_adds_one(const struct ts_facts *facts);
bool ts_facts_tiles(const struct ts_facts *facts); /* heads of values of linear attention stand in turns */

#endif
