/* What a row, or a part of one, adds to a walk over all rows of a pair (stretch.c). Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_STRETCH_SUMS_H
#define TS_DIAGNOSE_STRETCH_SUMS_H

#include <stdbool.h>
#include <stddef.h>

/* Squares of what is wrong, of what a prediction leaves of it, of what was expected and found; how many elements carry
 * some of the error; of exact predictions, how many count and how many are equal. */
struct ts_sums {
    double error, left, expected, found, elements, counted, equal;
};

/* least: error of an element that carries some. */
struct ts_sums ts_sums_of(const double *expected, const double *found, const double *out, size_t count, double least,
                          bool exact);
void ts_sums_add(struct ts_sums *sums, const struct ts_sums *more);

#endif
