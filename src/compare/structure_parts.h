/* What structure.c and structure_elements.c share. */
#ifndef TS_COMPARE_STRUCTURE_PARTS_H
#define TS_COMPARE_STRUCTURE_PARTS_H

#include "compare/structure.h"

#define TS_STRUCTURE_WIDTH 8 /* channels that have statistics */

/* Reorders values. */
static inline double median_of(double *values, size_t count)
{
    return ts_nth(values, count, count / 2);
}

/* Where the others do not err at all, the one that does stands out by far. */
static inline double ratio_to(double value, double median)
{
    return median > value * 1e-6 ? value / median : value > 0 ? 1e6 : 0;
}

/* The token of this row is not set aside. */
static inline bool counts(const struct ts_scene *scene, const struct ts_actor *actor, size_t row)
{
    return actor->rows == 1 || actor->apart || !scene->aside[row];
}

/* Every number by itself: element and what belongs to it, scattered. */
void ts_structure_elements(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure);

#endif
