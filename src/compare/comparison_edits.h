/* Edits: changes of weights that neither rounding to a type nor quantizing makes, however small they are beside the
 * whole tensor. Both look at pairs that passed as noise, and tell whether any verdict is another now. */
#ifndef TS_COMPARE_COMPARISON_EDITS_H
#define TS_COMPARE_COMPARISON_EDITS_H

#include "compare/comparison.h"

/* Whether a quantized tensor is a multiple of what it was quantized from by more than quantizing makes of it: the
 * factor, and the error beside it. */
bool ts_is_multiple(const struct ts_pair *pair, const struct ts_delta *delta, double *slope, double *beside);
/* Elements further off than a step of the coarser type, and quantized tensors that are a multiple of the reference; the
 * other way round, those that differ by no more than quantizing does to tensors of their kind. */
bool ts_find_edits(struct ts_comparison *comparison);
/* Rows of quantized tensors, and experts, that err as much as they are large: once profiles were made. What a rule of
 * the user's allows stays allowed. */
bool ts_find_odd_rows(struct ts_comparison *comparison);

#endif
