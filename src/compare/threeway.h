/* Three ways: with a third run in high precision, the candidate's error is judged by the reference's own. When both
 * stray from the truth by the same amount, neither is broken, whatever lies between them. */
#ifndef TS_COMPARE_THREEWAY_H
#define TS_COMPARE_THREEWAY_H

#include "compare/comparison.h"

/* Beyond these times the reference's own error the candidate differs: in relative L2, and in its worst element. */
#define TS_THREEWAY_L2  3.0
#define TS_THREEWAY_MAX 5.0

/* Opens `path` and replaces the verdicts of every pair that it holds too. */
enum ts_status ts_threeway_judge(struct ts_comparison *comparison, const char *path,
                                 const struct ts_comparison_options *options, struct ts_pool *pool,
                                 struct ts_error *error);

#endif
