/* Gathered: rows inside of experts, which collect their tokens in an order of their own. In judge_order.c. */
#ifndef TS_COMPARE_GATHERED_H
#define TS_COMPARE_GATHERED_H

#include "compare/delta.h"
#include "pair/pair.h"

/* Which row of the reference each row of the candidate is, told by what they hold, SIZE_MAX for those that are none of
 * them; to be freed. NULL when rows are where they belong, or another order explains nothing. */
size_t *ts_gathered_order(const struct ts_pair *pair, const struct ts_delta *delta);

#endif
