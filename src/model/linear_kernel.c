/* The inner loop of every product; compiled once per instruction set (base/level.h). */
#include "base/level.h"
#include "base/vector.h"
#include "model/linear.h"

#define LANES    16
#define PER_LOAD (TS_VECTOR_BYTES / 4)

/* The sixteen sums of one result, added in a tree of fixed shape. */
TS_KERNEL_INLINE float total(const ts_vf32 *sums)
{
    float lanes[LANES];
    memcpy(lanes, sums, sizeof lanes);
    for (unsigned width = LANES / 2; width; width /= 2)
        for (unsigned i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

/* A tile of R rows and C columns; both are constants where it is called, so the sums stay in registers. */
TS_KERNEL_INLINE void tile(const float *x, size_t x_stride, const float *w, size_t w_stride, size_t depth, float *y,
                           size_t y_stride, unsigned R, unsigned C)
{
    ts_vf32 sums[4][4][TS_VECTORS];
    size_t k = 0;
    memset(sums, 0, sizeof sums);
    for (; k + LANES <= depth; k += LANES)
        for (unsigned v = 0; v < TS_VECTORS; v++) {
            ts_vf32 columns[4];
            for (unsigned c = 0; c < C; c++)
                columns[c] = ts_vf32_load(w + c * w_stride + k + v * PER_LOAD);
            for (unsigned r = 0; r < R; r++) {
                ts_vf32 row = ts_vf32_load(x + r * x_stride + k + v * PER_LOAD);
                for (unsigned c = 0; c < C; c++)
                    sums[r][c][v] = ts_vf32_accumulate(sums[r][c][v], row, columns[c]);
            }
        }
    if (k < depth) { /* the rest, with zeros behind it: they change no sum */
        float rest_x[4][LANES] = {{0}}, rest_w[4][LANES] = {{0}};
        for (unsigned r = 0; r < R; r++)
            memcpy(rest_x[r], x + r * x_stride + k, (depth - k) * sizeof(float));
        for (unsigned c = 0; c < C; c++)
            memcpy(rest_w[c], w + c * w_stride + k, (depth - k) * sizeof(float));
        for (unsigned r = 0; r < R; r++)
            for (unsigned c = 0; c < C; c++)
                for (unsigned v = 0; v < TS_VECTORS; v++)
                    sums[r][c][v] = ts_vf32_accumulate(sums[r][c][v], ts_vf32_load(rest_x[r] + v * PER_LOAD),
                                                       ts_vf32_load(rest_w[c] + v * PER_LOAD));
    }
    for (unsigned r = 0; r < R; r++)
        for (unsigned c = 0; c < C; c++)
            y[r * y_stride + c] = total(sums[r][c]);
}

/* As many sums as registers hold: sixteen vectors of AVX-512, eight of the others. */
#if TS_VECTORS == 1
#define TILE_ROWS    4
#define TILE_COLUMNS 4
#elif TS_VECTORS == 2
#define TILE_ROWS    2
#define TILE_COLUMNS 2
#else
#define TILE_ROWS    1
#define TILE_COLUMNS 2
#endif

static void product(const float *x, size_t x_stride, size_t rows, const float *w, size_t w_stride, size_t columns,
                    size_t depth, float *y, size_t y_stride)
{
    for (size_t c = 0; c < columns;) {
        size_t wide = columns - c >= TILE_COLUMNS ? TILE_COLUMNS : 1;
        for (size_t r = 0; r < rows;) {
            const float *from = x + r * x_stride, *by = w + c * w_stride;
            float *to = y + r * y_stride + c;
            if (rows - r >= TILE_ROWS && wide == TILE_COLUMNS) {
                tile(from, x_stride, by, w_stride, depth, to, y_stride, TILE_ROWS, TILE_COLUMNS);
                r += TILE_ROWS;
            } else if (wide == TILE_COLUMNS) {
                tile(from, x_stride, by, w_stride, depth, to, y_stride, 1, TILE_COLUMNS);
                r++;
            } else {
                tile(from, x_stride, by, w_stride, depth, to, y_stride, 1, 1);
                r++;
            }
        }
        c += wide;
    }
}

const struct ts_linear_kernels TS_AT_LEVEL(ts_linear_kernels) = {.product = product};
