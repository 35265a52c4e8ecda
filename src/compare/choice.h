/* Choice: a few whole numbers for each token, which say what experts it goes to, and their weights. */
#ifndef TS_COMPARE_CHOICE_H
#define TS_COMPARE_CHOICE_H

#include "pair/pair.h"

#define TS_MOST_LISTED 64 /* experts of a token */

/* Of the experts of a layer, by its name. */
bool ts_is_of_experts(const char *name);
/* So many integers for each token, which a router may have chosen. */
bool ts_may_be_chosen(const struct ts_pair *pair, size_t count, uint64_t tokens);
/* How many experts each side lists for a token in a pair of which as many are compared as both have: false where they
 * are as many, it is no list of experts, or what one side has beyond the other is shared experts, which are the same
 * for every token. weights: it is known to hold theirs. */
bool ts_counts_otherwise(const struct ts_pair *pair, uint64_t tokens, bool weights, uint64_t *of_a, uint64_t *of_b);

#endif
