/* Ordered: numbers by size. */
#ifndef TS_BASE_ORDERED_H
#define TS_BASE_ORDERED_H

#include <stddef.h>

/* For qsort and bsearch: double, the same with the largest first, and uint64_t. */
int ts_by_value(const void *a, const void *b);
int ts_by_falling_value(const void *a, const void *b);
int ts_by_number(const void *a, const void *b);

/* The number that would be at place `nth` if the values were sorted; 0 when there are none. Reorders them. */
double ts_nth(double *values, size_t count, size_t nth);

#endif
