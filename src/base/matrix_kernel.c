/* Compiled once per instruction set; see base/level.h and base/vector.h. */
#include "base/matrix.h"

#include <string.h>

#include "base/level.h"
#include "base/vector.h"

#define EACH (TS_VECTOR_BYTES / 4)
/* As many sums as registers hold beside a row of the second factor. */
#define TILE_ROWS   6
#define NARROW_ROWS 12 /* where a row is one vector */
#if TS_VECTOR_BYTES == 64 || defined(__aarch64__)
#define TILE_VECTORS 4
#else
#define TILE_VECTORS 2
#endif

/* What is read after this product, brought nearer while it is made: so many cache lines of it by each tile. */
struct ahead {
    const char *at;
    size_t lines;
};
#define LINE 64

/* R rows by C vectors of columns; both are constants where it is called. */
TS_KERNEL_INLINE void tile(const float *a, size_t a_stride, const float *b, size_t b_stride, size_t depth, float *c,
                           size_t c_stride, struct ahead *ahead, unsigned R, unsigned C)
{
    ts_vf32 sums[NARROW_ROWS][TILE_VECTORS];
    /* one by one, that and what is stored below: sums that are cleared or copied as a whole have their place in memory
     */
    for (unsigned r = 0; r < R; r++)
        for (unsigned i = 0; i < C; i++)
            sums[r][i] = ts_vf32_all(0);
    for (size_t k = 0; k < depth; k++) {
        ts_vf32 row[TILE_VECTORS];
        if (C > 1 && k < ahead->lines)
            __builtin_prefetch(ahead->at + k * LINE);
        for (unsigned i = 0; i < C; i++)
            row[i] = ts_vf32_load(b + k * b_stride + i * EACH);
        for (unsigned r = 0; r < R; r++) {
            ts_vf32 number = ts_vf32_all(a[r * a_stride + k]);
            for (unsigned i = 0; i < C; i++)
                sums[r][i] = ts_vf32_accumulate(sums[r][i], number, row[i]);
        }
    }
    for (unsigned r = 0; r < R; r++)
        for (unsigned i = 0; i < C; i++)
            memcpy(c + r * c_stride + i * EACH, &sums[r][i], sizeof sums[r][i]);
    ahead->at += ahead->lines * LINE;
}

TS_KERNEL_INLINE void column(const float *a, size_t a_stride, size_t rows, const float *b, size_t b_stride,
                             size_t depth, float *c, size_t c_stride, unsigned C)
{
    const unsigned R = C == 1 ? NARROW_ROWS : TILE_ROWS;
    struct ahead ahead = {.at = (const char *)(b + depth * b_stride)};
    size_t r = 0;
    if (C > 1 && rows >= R && b_stride == C * EACH) /* panels stand one behind the other */
        ahead.lines = depth * b_stride * sizeof *b / LINE / (rows / R);
    for (; r + R <= rows; r += R)
        tile(a + r * a_stride, a_stride, b, b_stride, depth, c + r * c_stride, c_stride, &ahead, R, C);
    for (; r < rows; r++)
        tile(a + r * a_stride, a_stride, b, b_stride, depth, c + r * c_stride, c_stride, &ahead, 1, C);
}

/* c [rows, columns] = a [rows, depth] . b [depth, columns] */
static void product(const float *a, size_t a_stride, size_t rows, const float *b, size_t b_stride, size_t columns,
                    size_t depth, float *c, size_t c_stride)
{
    size_t at = 0;
    for (; at + TILE_VECTORS * EACH <= columns; at += TILE_VECTORS * EACH)
        column(a, a_stride, rows, b + at, b_stride, depth, c + at, c_stride, TILE_VECTORS);
    for (; at < columns; at += EACH)
        column(a, a_stride, rows, b + at, b_stride, depth, c + at, c_stride, 1);
}

const struct ts_matrix_kernels TS_AT_LEVEL(ts_matrix_kernels) = {.product = product};
