/* Sketch: a few numbers that tell whether two tensors hold the same values, in whatever order.
 *
 * Besides norm and sum there is a hash that does not depend on order (equal bags of values have equal ones) and a set
 * of waves: sums of a triangle wave of each value, at several frequencies and phases, in units of what chance makes of
 * them. Unrelated tensors of one distribution differ by about 1 in each, copies with a rounding error of e by about e.
 */
#ifndef TS_PAIR_SKETCH_H
#define TS_PAIR_SKETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/tensor.h"

#define TS_SKETCH_WAVES 12

struct ts_sketch {
    uint64_t count;
    uint64_t hash;     /* of the bag of values as floats; zeros of both signs are one value */
    double norm;       /* Euclidean; finite values only */
    double sum;        /* of finite values, divided by the norm */
    double projection; /* on random signs, divided by the norm: depends on order, tells equal bags apart */
    double waves[TS_SKETCH_WAVES];
    uint64_t broken; /* values that are not finite */
    bool constant;
};

/* Two walks over the tensor. */
enum ts_status ts_sketch_make(const struct ts_tensor *tensor, struct ts_sketch *sketch, struct ts_error *error);

/* 0 for equal bags of values; about the relative error for noisy copies; about 1 for unrelated ones. */
double ts_sketch_distance(const struct ts_sketch *a, const struct ts_sketch *b);
/* The same below a limit; what is further away is somewhere between the limit and its distance. */
double ts_sketch_distance_below(const struct ts_sketch *a, const struct ts_sketch *b, double limit);

#endif
