/* Honesty: what may make a comparison lie, looked for before anything is blamed. Each finding is a sentence for the
 * report: captures that are copies of each other, buffers nobody wrote, runs over other tokens, inputs too small to
 * reveal what people look for. */
#ifndef TS_COMPARE_HONESTY_H
#define TS_COMPARE_HONESTY_H

#include "compare/comparison.h"

#define TS_MOST_DOUBTS 24

/* Adds texts (in the arena) to those the comparison has and returns how many there are. */
size_t ts_honesty_doubts(const struct ts_comparison *comparison, struct ts_arena *arena,
                         const char *doubts[TS_MOST_DOUBTS]);

/* The token ids that a capture says it was made from, as they are written there ("1,2", "[1, 2]", "[[1, 2]]"); NULL
 * when it does not say. In metadata of their own, or in the run's description as the captures for C and Python have it.
 */
const char *ts_capture_tokens(const struct ts_bundle *bundle, struct ts_arena *arena);

#endif
