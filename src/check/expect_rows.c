/* Owns the walk along the rows of a tensor's last axis: sums, entropy, sparsity. */
#include <math.h>
#include <stdlib.h>

#include "check/expect.h"

#define PIECE 65536
/* Below this share of the largest of its row a value counts as shut. */
#define SHUT 0.01

struct row {
    double sum, bits, largest;
    uint64_t visible, shut;
};

static void look(struct row *row, const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double value = values[i], size = fabs(value);
        row->sum += value;
        row->largest = size > row->largest ? size : row->largest;
        if (value > 0) {
            row->visible++;
            row->bits -= value * log(value);
        }
    }
}

static void look_again(struct row *row, const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        row->shut += fabs(values[i]) <= SHUT * row->largest;
}

static void count_row(struct ts_rows *rows, const struct row *row, double *shut)
{
    if (!(row->sum >= rows->least_sum)) /* a NaN stays */
        rows->least_sum = isnan(rows->least_sum) ? rows->least_sum : row->sum;
    if (!(row->sum <= rows->most_sum))
        rows->most_sum = isnan(rows->most_sum) ? rows->most_sum : row->sum;
    if (row->visible > 1) {
        rows->entropy += row->bits / log((double)row->visible);
        rows->counted++;
    }
    *shut += (double)row->shut;
    rows->rows++;
}

static enum ts_status walk(const struct ts_tensor *tensor, uint64_t width, double *values, struct ts_rows *rows,
                           double *shut, struct ts_error *error)
{
    uint64_t together = width < PIECE ? PIECE / width * width : PIECE;
    for (uint64_t at = 0; at < tensor->count;) {
        uint64_t left = tensor->count - at;
        struct row row = {0};
        if (width <= PIECE) {
            size_t count = (size_t)(left < together ? left : together);
            TS_TRY(ts_tensor_read_f64(tensor, at, count, values, error));
            for (size_t i = 0; i < count; i += (size_t)width) {
                row = (struct row){0};
                look(&row, values + i, (size_t)width);
                look_again(&row, values + i, (size_t)width);
                count_row(rows, &row, shut);
            }
            at += count;
            continue;
        }
        for (int pass = 0; pass < 2; pass++)
            for (uint64_t first = 0; first < width; first += PIECE) {
                size_t count = (size_t)(width - first < PIECE ? width - first : PIECE);
                TS_TRY(ts_tensor_read_f64(tensor, at + first, count, values, error));
                if (pass)
                    look_again(&row, values, count);
                else
                    look(&row, values, count);
            }
        count_row(rows, &row, shut);
        at += width;
    }
    return TS_OK;
}

enum ts_status ts_rows_measure(const struct ts_tensor *tensor, struct ts_rows *rows, struct ts_error *error)
{
    uint64_t width = tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
    double shut = 0, *values;
    enum ts_status status;
    *rows = (struct ts_rows){.least_sum = INFINITY, .most_sum = -INFINITY, .measured = true};
    if (!tensor->count)
        return TS_OK;
    /* complex numbers are two each, and have no rows of this kind */
    if (ts_type_info(tensor->type)->components != 1) {
        rows->measured = false;
        return TS_OK;
    }
    if (!(values = malloc(PIECE * sizeof *values)))
        return ts_fail_memory(error);
    status = walk(tensor, width, values, rows, &shut, error);
    free(values);
    rows->entropy = rows->counted ? rows->entropy / (double)rows->counted : NAN;
    rows->sparsity = shut / (double)tensor->count;
    return status;
}
