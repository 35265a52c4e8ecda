/* Linear: products of activations with a weight, in a fixed order of summation.
 *
 * y[r][c] = sum over k of x[r][k] * w[c][k]. Sixteen running sums take every sixteenth product each, and are added in
 * one fixed tree at the end, so the bits do not depend on threads, on the size of a panel or on the width of vectors;
 * machines without fused multiply-add round once more per product. */
#ifndef TS_MODEL_LINEAR_H
#define TS_MODEL_LINEAR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/pool.h"
#include "tensor/view.h"

struct ts_linear_kernels {
    /* rows by columns results; x and w have the given distance between rows, and at least `depth` numbers in each. */
    void (*product)(const float *x, size_t x_stride, size_t rows, const float *w, size_t w_stride, size_t columns,
                    size_t depth, float *y, size_t y_stride);
};

TS_DECLARE_TABLES(const struct ts_linear_kernels, ts_linear_kernels);
const struct ts_linear_kernels *ts_linear_kernels(void); /* of this machine's level */

/* y [rows, columns] = x [rows, depth] · weightᵀ, weight of shape [columns, depth], decoded a panel at a time. fast: by
 * OpenBLAS, where it is installed. */
enum ts_status ts_linear_apply(struct ts_pool *pool, const float *x, size_t rows, const struct ts_view *weight,
                               bool fast, float *y, struct ts_error *error);

#endif
