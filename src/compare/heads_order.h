/* Where the heads of a tensor stand when there are as many of them as tokens, so that its shape does not say. */
#ifndef TS_COMPARE_HEADS_ORDER_H
#define TS_COMPARE_HEADS_ORDER_H

#include "tensor/view.h"

enum ts_heads_order { TS_HEADS_UNTOLD, TS_HEADS_FIRST, TS_TOKENS_FIRST };

/* matrix: [tokens, heads * size], what the tensor of [count, count, size] was made from. A norm and a rotation leave
 * enough of each head to know it by; of a batch the first sequence is looked at. */
enum ts_heads_order ts_heads_order(const struct ts_view *matrix, const struct ts_view *tensor, uint64_t count,
                                   uint64_t size);

#endif
