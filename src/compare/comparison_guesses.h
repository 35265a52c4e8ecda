/* Guesses: pairs of which no layout makes the values agree. A guess that does not agree says nothing about the
 * candidate by itself, as the layout may be one that nobody knows. */
#ifndef TS_COMPARE_COMPARISON_GUESSES_H
#define TS_COMPARE_COMPARISON_GUESSES_H

#include "compare/comparison.h"

/* Takes back that such pairs differ where nothing else says so; *changed: some verdict is another now. They still
 * differ where both sides hold as many numbers and not the same ones, in whatever order: no layout makes these agree.
 * And in a run in which something differs that is no guess, unless a later layer agrees: what goes wrong in one layer
 * goes wrong in the next. Where that says of one layer that the layout is not known, it is not in the others. */
enum ts_status ts_leave_guesses_open(struct ts_comparison *comparison, bool *changed, struct ts_error *error);

#endif
