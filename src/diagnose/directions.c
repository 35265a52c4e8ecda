/* Owns products with random directions. */
#include "diagnose/directions.h"

#include <math.h>
#include <stdlib.h>

#include "base/matrix.h"
#include "compare/operation.h"

_Static_assert(TS_DIRECTIONS % TS_MATRIX_WHOLE == 0, "whole tiles");

float *ts_directions_draw(size_t width)
{
    float *out = malloc(width * TS_DIRECTIONS * sizeof *out);
    for (size_t i = 0; i < width * TS_DIRECTIONS && out; i++)
        out[i] = (float)((ts_noise_at(1, i) < 0 ? -1 : 1) / sqrt(TS_DIRECTIONS));
    return out;
}

bool ts_directed_open(struct ts_directed *directed, const struct ts_product *product, size_t width,
                      const float *directions)
{
    directed->inputs = product->input->width;
    directed->weights = malloc(directed->inputs * TS_DIRECTIONS * sizeof *directed->weights);
    return directed->weights &&
           ts_product_directions(product, width, directions, TS_DIRECTIONS, directed->weights, directed->offsets);
}

void ts_directed_close(struct ts_directed *directed)
{
    free(directed->weights);
}

bool ts_directions_of(const float *rows, size_t count, size_t width, const float *by, const double *offsets,
                      double *out)
{
    float *piece = malloc(count * TS_DIRECTIONS * sizeof *piece);
    if (!piece)
        return false;
    for (size_t i = 0; i < count * TS_DIRECTIONS; i++)
        out[i] = offsets ? offsets[i % TS_DIRECTIONS] : 0;
    ts_matrix_add(rows, width, count, by, TS_DIRECTIONS, TS_DIRECTIONS, width, piece, out, TS_DIRECTIONS);
    free(piece);
    return true;
}

struct ts_sums ts_sums_directed(const double *expected, const double *found, const double *out)
{
    struct ts_sums sums = {0};
    for (size_t k = 0; k < TS_DIRECTIONS; k++) {
        sums.error += (found[k] - expected[k]) * (found[k] - expected[k]);
        sums.left += (found[k] - out[k]) * (found[k] - out[k]);
        sums.expected += expected[k] * expected[k];
        sums.found += found[k] * found[k];
    }
    return sums;
}
