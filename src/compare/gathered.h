/* Gathered: rows inside of experts. A mixture of experts collects the tokens of each expert by a sort or a scatter that
 * keeps no order, so that two honest runs hold the same rows in another one. */
#ifndef TS_COMPARE_GATHERED_H
#define TS_COMPARE_GATHERED_H

#include "compare/delta.h"
#include "compare/row_match.h"

#define TS_GATHERED_LEAVES 0.5 /* another order explains an error when it leaves less than this of it */
#define TS_MOST_GATHERED   64  /* rows of a token */

/* Inside of experts, by its name. */
bool ts_is_gathered(const char *name);
/* The same experts, whatever their order: what comes out of them is the same sum. */
bool ts_are_same_experts(const int64_t *a, const int64_t *b, size_t count);
/* The order in which tokens were gathered: a vector of all whole numbers from 0 on, once, or as many as there are
 * tokens, each as often as any other; in another order on the other side. Which expert a token goes to is none. */
bool ts_is_gathering_order(const struct ts_pair *pair, uint64_t tokens);
/* Which token each row is that was gathered in this order, for one side; `of` has room for them. Slots, several to a
 * token, are counted token by token, or (`across`) all first ones first. False when they cannot be read. */
bool ts_gathered_tokens(const struct ts_pair *order, bool candidate, uint64_t tokens, bool across, size_t *of);
/* The rows of a pair inside of experts, each found again once, but for some that may be lost. False where more are; to
 * be released either way. */
bool ts_gathered_match(struct ts_row_match *match, const struct ts_pair *pair, size_t lost);
/* Which row of the reference each row of the candidate is, SIZE_MAX for those that are none of them; to be freed. NULL
 * when rows are where they belong, or another order explains nothing. */
size_t *ts_gathered_order(const struct ts_pair *pair, const struct ts_delta *delta);

#endif
