/* Matrix: products of f32 matrices in tiles that stay in registers; compiled once per instruction set (base/level.h).
 *
 * What a row comes to depends on itself and the second factor alone, not on who is done with it, and the bits are the
 * same at every level that fuses. The product of a model's run is another (model/linear.h): its order of summation is
 * promised to users, and it takes weights as they lie in files. */
#ifndef TS_BASE_MATRIX_H
#define TS_BASE_MATRIX_H

#include <stddef.h>

#include "base/cpu.h"

#define TS_MATRIX_WHOLE 16  /* columns come in multiples of this, with zeros behind them where they must */
#define TS_MATRIX_BLOCK 256 /* numbers that are summed up in f32 at most: blocks are added in double */

struct ts_matrix_kernels {
    /* c [rows, columns] = a [rows, depth] . b [depth, columns]; rows are so many numbers apart. */
    void (*product)(const float *a, size_t a_stride, size_t rows, const float *b, size_t b_stride, size_t columns,
                    size_t depth, float *c, size_t c_stride);
};

TS_DECLARE_TABLES(const struct ts_matrix_kernels, ts_matrix_kernels);

/* out [rows, columns] += a [rows, depth] . b [depth, columns], over any depth. piece has room for rows * columns. */
void ts_matrix_add(const float *a, size_t a_stride, size_t rows, const float *b, size_t b_stride, size_t columns,
                   size_t depth, float *piece, double *out, size_t out_stride);

#endif
