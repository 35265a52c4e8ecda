/* Directions: rows that a weight makes, told by their products with some random directions in place of their numbers.
 * Internal to src/diagnose.
 *
 * (x . W) . D is x . (W . D): the weight is multiplied with the directions once, and a row then costs so many products
 * of its input instead of all of them. A direction is a sign for each channel, drawn once and for all, so that what is
 * wrong with a row vanishes in one of them with a chance of a half at most, and in all of them with one of 2^-64. The
 * squares of what is seen add up to those of the difference, to within sqrt(2 / 64), or 18 %, for one row and ever
 * nearer where many rows that err in their own ways are added up. */
#ifndef TS_DIAGNOSE_DIRECTIONS_H
#define TS_DIAGNOSE_DIRECTIONS_H

#include "diagnose/product.h"
#include "diagnose/stretch_sums.h"

#define TS_DIRECTIONS 64

/* Signs for so many channels, [width, TS_DIRECTIONS], over the root of how many there are; to be freed. */
float *ts_directions_draw(size_t width);

/* A product with a weight, in the directions. */
struct ts_directed {
    float *weights; /* [inputs, TS_DIRECTIONS] */
    size_t inputs;
    double offsets[TS_DIRECTIONS];
};
bool ts_directed_open(struct ts_directed *directed, const struct ts_product *product, size_t width,
                      const float *directions);
void ts_directed_close(struct ts_directed *directed);

/* out [rows, TS_DIRECTIONS] = rows [count, width] . by [width, TS_DIRECTIONS] + offsets, which may be NULL. False
 * without memory. */
bool ts_directions_of(const float *rows, size_t count, size_t width, const float *by, const double *offsets,
                      double *out);

/* What a row adds, from what is expected of it, what was found and what is predicted, in the directions. Which elements
 * carry the error is not known. */
struct ts_sums ts_sums_directed(const double *expected, const double *found, const double *out);

#endif
