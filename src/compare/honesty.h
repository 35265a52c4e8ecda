/* Honesty: what may make a comparison lie, looked for before anything is blamed. Each finding is a sentence for the
 * report: captures that are copies of each other, buffers nobody wrote, runs over other tokens, inputs too small to
 * reveal what people look for. */
#ifndef TS_COMPARE_HONESTY_H
#define TS_COMPARE_HONESTY_H

#include "compare/comparison.h"

#define TS_MOST_DOUBTS 24

/* Fills texts (in the arena) and returns how many. */
size_t ts_honesty_doubts(const struct ts_comparison *comparison, struct ts_arena *arena,
                         const char *doubts[TS_MOST_DOUBTS]);

#endif
