/* Change rank: how many directions the change of a matrix has. A merged LoRA of rank 8 moves a matrix of thousands of
 * rows in eight directions; training moves it in all of them.
 *
 * d = b - a is m by n and is read row by row, three times (six when the first look finds too many directions). The
 * space of its rows is found at random: v = orth((d^T d) (d^T d) w) for a fixed Gaussian w of k + some columns, which
 * is a range finder with power iterations; the singular values of d v are then d's own to many digits. The cost is
 * O(m n k), the memory O(n k).
 *
 * Storing b rounds each element to its grid, and that noise has full rank. Rounding to a grid of spacing u leaves an
 * error of variance u^2 / 12; both files are granted theirs, in rows that changed at all. A matrix of independent
 * errors has no singular value above the largest norm of a row of deviations plus the largest of a column, so this sum,
 * with a tenth of room, is the floor; what stands above it is counted. Nothing below 1e-7 of the largest is counted
 * either. When more energy is left below the floor than rounding explains, the count is a lower bound. */
#ifndef TS_COMPARE_CHANGE_RANK_H
#define TS_COMPARE_CHANGE_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/progress.h"
#include "compare/delta.h"
#include "pair/pair.h"

#define TS_RANK_MOST   128 /* that can be counted */
#define TS_RANK_VALUES 16

struct ts_change_rank {
    bool known;
    const char *reason;     /* when it is not: "a vector", "quantized" */
    uint64_t rows, columns; /* of the matrix; convolutions are taken as output by everything else */
    unsigned rank;          /* singular values above the floor */
    bool at_least;          /* there are more than could be counted */
    unsigned probed;        /* the most that could have been counted */
    double floor;
    double stable;                 /* |d|^2 / (largest singular value)^2; NaN when d is 0 */
    double effective;              /* exp of the entropy of the counted values; NaN when that is not all of them */
    double values[TS_RANK_VALUES]; /* the largest singular values */
    unsigned value_count;
};

/* ranks[i] for pairs[i]. Pairs without a matrix, without change or with NaN say so in `reason`; one that is unchanged
 * has rank 0. */
enum ts_status ts_change_rank_run(struct ts_pool *pool, const struct ts_pair *pairs, const struct ts_delta *deltas,
                                  size_t count, struct ts_change_rank *ranks, struct ts_progress *progress,
                                  struct ts_error *error);

#endif
