/* Sketch tree: which of many sketches are near one, without a look at all of them.
 *
 * A sketch is a point with a coordinate for each wave, and two are as far apart as the wave in which they differ most
 * (ts_sketch_distance). The points are split in halves by one wave after the other; a search goes into both halves
 * only where it reaches across the middle. */
#ifndef TS_PAIR_SKETCH_TREE_H
#define TS_PAIR_SKETCH_TREE_H

#include <stddef.h>

#include "pair/sketch.h"

struct ts_sketch_point {
    float waves[TS_SKETCH_WAVES];
    size_t at; /* whatever the caller knows the sketch by */
};

struct ts_sketch_point ts_sketch_point(const struct ts_sketch *sketch, size_t at);

/* Puts the points in order. Their sketches have to be of tensors of one size. */
void ts_sketch_tree_build(struct ts_sketch_point *points, size_t count);

/* Calls `visit` for every point whose waves are nearer than the limit, and for a few beyond it; the visitor looks at
 * the sketches themselves. It may lower the limit; below 0 the search ends. */
typedef void ts_sketch_visit(void *context, size_t at, double *limit);
void ts_sketch_tree_search(const struct ts_sketch_point *points, size_t count, const struct ts_sketch *sketch,
                           double limit, ts_sketch_visit *visit, void *context);

#endif
