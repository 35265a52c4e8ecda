/* Patterns of an error that no hypothesis explains: what it follows, for the sentence that is said then. Internal to
 * src/diagnose. */
#ifndef TS_DIAGNOSE_PATTERN_H
#define TS_DIAGNOSE_PATTERN_H

#include "diagnose/families.h"

/* The share of the error's energy that follows from what each element should be, whatever the function: less what so
 * many free numbers follow by chance. 0 where there are too few elements. */
double ts_pattern_of_value(const struct ts_case *the_case);
/* The share that is one row of numbers, times a number for each row. 0 where there are too few rows or channels. */
double ts_pattern_of_rank_one(const struct ts_case *the_case);

#endif
