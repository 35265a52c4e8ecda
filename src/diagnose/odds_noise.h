/* Odds under noise: how likely some rows are, with a covariance, a scale of it, and rounding on top. Internal to
 * odds.c.
 *
 * Many sizes of rounding are tried on one covariance, and many scales. Rows are measured by their own energy, so that
 * rounding adds the same number to the whole diagonal, and turned until the covariance has nothing outside its diagonal
 * and the numbers beside it: that is done once, and each try takes a walk along those. */
#ifndef TS_DIAGNOSE_ODDS_NOISE_H
#define TS_DIAGNOSE_ODDS_NOISE_H

#include <stddef.h>

#define TS_ODDS_ROWS 48

struct ts_odds_noise {
    size_t rows;
    double diagonal[TS_ODDS_ROWS], beside[TS_ODDS_ROWS]; /* beside[i]: between rows i and i + 1 */
    double products[TS_ODDS_ROWS][TS_ODDS_ROWS];         /* of what is to be explained, measured and turned alike */
    double log_energy;                                   /* mean over the rows */
};

/* covariance: [rows, rows], destroyed; products: those of the rows that it is to explain, each of `width` numbers;
 * energy: of each row, above zero. */
void ts_odds_noise_open(struct ts_odds_noise *noise, double *covariance, const double *products, size_t rows,
                        size_t width, const double *energy);
/* Log-likelihood of a number, with the covariance times `scale` and rounding of this share of each row's energy; left:
 * what it leaves over what it must. Minus infinity where there is none. */
double ts_odds_noise_try(const struct ts_odds_noise *noise, double scale, double share, double *left);
/* What is left over what must be where the covariance tells of more than rounding: each direction of the rows counts
 * for as much as it is no rounding there, and so many there are in all. uneven: how far the directions are from having
 * as much left as any other; 1 with endless columns. */
double ts_odds_noise_left(const struct ts_odds_noise *noise, double scale, double share, double *directions,
                          double *uneven);

#endif
