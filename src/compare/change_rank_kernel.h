/* The inner loops of change_rank.c: a few rows of a matrix times a narrow panel, and back.
 *
 * Rows stand interleaved, element j of row r at j * TS_RANK_ROWS + r; a panel is n by TS_RANK_PANEL, row-major. Each
 * sum runs over its terms in one order, so that results are the same to the last bit at every SIMD level. */
#ifndef TS_COMPARE_CHANGE_RANK_KERNEL_H
#define TS_COMPARE_CHANGE_RANK_KERNEL_H

#include <stddef.h>

#include "base/cpu.h"

#define TS_RANK_ROWS  8
#define TS_RANK_PANEL 8

struct ts_rank_kernels {
    /* out[r][c] = sum over j of rows[j][r] * panel[j][c] */
    void (*project)(const double *rows, size_t n, const double *panel, double *out);
    /* panel[j][c] += sum over r of rows[j][r] * in[r][c] */
    void (*gather)(const double *rows, size_t n, const double *in, double *panel);
};

TS_DECLARE_TABLES(const struct ts_rank_kernels, ts_rank_kernels);

#endif
