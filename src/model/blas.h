/* OpenBLAS for the fast mode, loaded when it is asked for: linked, it would start threads in every command. */
#ifndef TS_MODEL_BLAS_H
#define TS_MODEL_BLAS_H

#include <stddef.h>

struct ts_blas {
    /* y[i][j] = x[i] . w[j], of rows and columns that stand side by side; y's rows are `stride` apart. */
    void (*product)(const struct ts_blas *blas, const float *x, size_t rows, const float *w, size_t columns,
                    size_t depth, float *y, size_t stride);
    void (*sgemv)(int order, int transpose, int rows, int columns, float alpha, const float *a, int lda, const float *x,
                  int step_x, float beta, float *y, int step_y);
    void (*sgemm)(int order, int transpose_a, int transpose_b, int rows, int columns, int depth, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
};

/* NULL where it is not installed. It runs on the caller's thread. */
const struct ts_blas *ts_blas_load(void);

#endif
