/* Compiled once per instruction set: see base/level.h. */
#include "compare/change_rank_kernel.h"

#include "base/level.h"
#include "base/vector.h"

typedef double group __attribute__((vector_size(TS_RANK_PANEL * sizeof(double)), aligned(8)));

/* Half of the rows at a time: their sums stay in registers. */
#define HALF (TS_RANK_ROWS / 2)

TS_KERNEL_INLINE group load(const double *from)
{
    group values;
    memcpy(&values, from, sizeof values);
    return values;
}

static void project(const double *rows, size_t n, const double *panel, double *out)
{
    for (size_t from = 0; from < TS_RANK_ROWS; from += HALF) {
        group sums[HALF] = {{0}};
        for (size_t j = 0; j < n; j++) {
            const group column = load(panel + j * TS_RANK_PANEL);
            const double *row = rows + j * TS_RANK_ROWS + from;
            for (size_t r = 0; r < HALF; r++)
                sums[r] += column * row[r];
        }
        memcpy(out + from * TS_RANK_PANEL, sums, sizeof sums);
    }
}

static void gather(const double *rows, size_t n, const double *in, double *panel)
{
    group parts[TS_RANK_ROWS];
    for (size_t r = 0; r < TS_RANK_ROWS; r++)
        parts[r] = load(in + r * TS_RANK_PANEL);
    for (size_t j = 0; j < n; j++) {
        const double *row = rows + j * TS_RANK_ROWS;
        group sum = load(panel + j * TS_RANK_PANEL);
        for (size_t r = 0; r < TS_RANK_ROWS; r++)
            sum += parts[r] * row[r];
        memcpy(panel + j * TS_RANK_PANEL, &sum, sizeof sum);
    }
}

const struct ts_rank_kernels TS_AT_LEVEL(ts_rank_kernels) = {.project = project, .gather = gather};
