/* Match: rows or columns found again by content in another place. Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_MATCH_H
#define TS_DIAGNOSE_MATCH_H

#include "diagnose/families.h"

/* Propose "shifted" when all moved alike, "permuted" otherwise. prediction: scratch. */
void ts_match_rows(struct ts_case *the_case, double *prediction);
void ts_match_columns(struct ts_case *the_case, double *prediction);
/* The same for the blocks of a vector. */
void ts_match_blocks(struct ts_case *the_case, double *prediction);

/* The pair's own layout is [tokens, numbers of each], as the case has it. */
bool ts_tokens_come_first(const struct ts_case *the_case);
/* What is said behind a recipe: "" where it holds for the tensor as it is stored. */
const char *ts_recipe_remark(const struct ts_case *the_case);

#endif
