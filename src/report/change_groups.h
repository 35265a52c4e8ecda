/* Change groups: where in a model some of its tensors are, in the words of a person: "layers 4-7 self_attn.{q,v}_proj",
 * "lm_head". Tensors are grouped by their kind, which is the name without the layer's number, and kinds by the layers
 * they occur in. */
#ifndef TS_REPORT_CHANGE_GROUPS_H
#define TS_REPORT_CHANGE_GROUPS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "pair/pair.h"

/* Appends the groups of the pairs that are marked, the one with most tensors first, with "; " between them; beyond
 * `most` it says how many more there are. Names are not escaped. Returns how many groups there are, 0 without memory.
 */
size_t ts_put_groups(struct ts_buffer *out, const struct ts_pair *pairs, const bool *marked, size_t count, size_t most);

#endif
