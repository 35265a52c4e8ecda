/* Owns sums over a long depth. */
#include "base/matrix.h"

void ts_matrix_add(const float *a, size_t a_stride, size_t rows, const float *b, size_t b_stride, size_t columns,
                   size_t depth, float *piece, double *out, size_t out_stride)
{
    const struct ts_matrix_kernels *kernels = TS_TABLE(ts_matrix_kernels);
    for (size_t from = 0; from < depth; from += TS_MATRIX_BLOCK) {
        size_t count = depth - from < TS_MATRIX_BLOCK ? depth - from : TS_MATRIX_BLOCK;
        kernels->product(a + from, a_stride, rows, b + from * b_stride, b_stride, columns, count, piece, columns);
        for (size_t row = 0; row < rows; row++)
            for (size_t i = 0; i < columns; i++)
                out[row * out_stride + i] += (double)piece[row * columns + i];
    }
}
