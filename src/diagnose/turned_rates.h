/* What rotary embeddings make of pairs on both sides, read off the turns between the two alone: internal to
 * src/diagnose. */
#ifndef TS_DIAGNOSE_TURNED_RATES_H
#define TS_DIAGNOSE_TURNED_RATES_H

#include <complex.h>
#include <stdbool.h>
#include <stddef.h>

struct ts_turned_rates {
    double theta;     /* of the reference */
    double theta_b;   /* of the candidate, where that is another; else 0 */
    double factor;    /* on the reference's angles; else 1 */
    double positions; /* that the candidate is ahead; else 0 */
};

/* Turns per pair that are the same in every token: positions that are off. */
bool ts_read_shift(const double complex *turns, size_t pairs, struct ts_turned_rates *found);
/* What each position adds to the turn of a pair, counted for its weight: angles times a factor (none and the other way
 * round are such), or another theta. */
bool ts_read_growth(const double *rates, const double *weights, size_t pairs, struct ts_turned_rates *found);
/* The turn of each pair, which every token has or every position adds. */
void ts_turned_angles(const struct ts_turned_rates *rates, size_t pairs, double *angles);

#endif
