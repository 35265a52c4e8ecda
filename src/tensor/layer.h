/* Layer: the number of the layer that a tensor's name speaks of. */
#ifndef TS_TENSOR_LAYER_H
#define TS_TENSOR_LAYER_H

#include <stdbool.h>
#include <stdint.h>

/* "model.layers.3.mlp", "blk.3.attn_q", "h.3.", "block_3", "layer_3_x", "3_query", "runs/3_query", "ffn_norm-3" -> 3.
 * Of several numbered words the first counts (encoder.layer.2.experts.5 is layer 2). */
bool ts_layer_of(const char *name, uint64_t *layer);
/* Both speak of one, and it is the same. */
bool ts_same_layer(const char *name, const char *other);

#endif
