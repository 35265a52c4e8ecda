/* What the files of the memory family share. Internal to them. */
#ifndef TS_DIAGNOSE_MEMORY_H
#define TS_DIAGNOSE_MEMORY_H

#include "diagnose/formula.h"

/* "[3,0,17]" where a token or a row is more than a list of numbers, else in words. */
void ts_place_text(const struct ts_case *the_case, const struct ts_tally_place *place, char *text, size_t room);
/* " looked at" where the case is a sample of its tensor. */
const char *ts_looked_at(const struct ts_case *the_case);
/* The one bit that makes this NaN of a value near what was expected; -1 when none does. */
int ts_bit_of_nan(const struct ts_case *the_case, double found, double expected, double *value);
/* NaN and infinities on one side only. */
void ts_propose_non_finite(struct ts_case *the_case);
/* Tokens that are zero and channels that are one number, under noise. */
void ts_propose_empty_lines(struct ts_case *the_case);
/* Numbers that are dropped by lot; what is no larger than `nothing` is zero. */
void ts_propose_dropout(struct ts_case *the_case, double nothing);

#endif
