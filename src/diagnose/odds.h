/* Odds: what a product was given, where nobody has its weight. Internal to src/diagnose.
 *
 * y = x W + b was captured, and x or what x is made of. A hypothesis says what the candidate's product was given
 * instead, x'. If nothing is known of W but that its numbers have no preference, each output channel is drawn from a
 * Gaussian whose covariance between tokens is the products of the rows of x, and the candidate's channel, given the
 * reference's, from one that follows from x and x' alone: W is integrated out. So every hypothesis has a likelihood,
 * without a number fitted to it, and a measure of fit: what it leaves, over what it says it must leave. The reference
 * itself tells how far the assumption holds: how many independent channels the products of its own tokens are worth. */
#ifndef TS_DIAGNOSE_ODDS_H
#define TS_DIAGNOSE_ODDS_H

#include <stdbool.h>
#include <stddef.h>

#include "diagnose/families.h"
#include "diagnose/odds_noise.h"

struct ts_odds {
    struct ts_case *the_case;
    size_t rows, inputs, outputs; /* outputs: channels that are looked at, all of them or a spread */
    size_t list[TS_ODDS_ROWS];    /* which rows of the case */
    double *expected, *found;     /* products of their rows, [rows, rows] */
    double *both;                 /* those of the rows of expected with those of found */
    double energy[TS_ODDS_ROWS];  /* of what was found, over the outputs */
    double *x, *other;            /* [rows, inputs]: what the reference's product is given, and the candidate's */
    double *root;                 /* [rows, rows], of the covariance of expected, without the scale */
    double *solved, *solved_both; /* products with the root's inverse times expected, instead of expected */
    double level, scale;          /* of the bias' variance, and of everything */
    double channels;              /* how many independent ones the outputs are worth */
    double own;                   /* evidence that x makes the reference, in nats */
    double none;                  /* log-likelihood of a number, of the best that can be said without any other input */
    bool put_to_all;              /* what holds is put to the other tokens as well; set after rows were chosen */
    double noise;                 /* least share of a token's energy that is rounding */
};

struct ts_odds_fit {
    double evidence; /* in nats, above what can be said without it */
    double left;     /* over what it must leave: near 1 when it fits */
    bool fits;
    bool told;     /* so near to 1 in the directions of which it tells more than rounding */
    double uneven; /* how far these are from having as much left as any other: near 1 when it fits */
    double keeps;  /* how much of the error the candidate would hold, whatever the weight of each channel is */
    double rest;   /* share of the error for which it takes rounding of its own */
};

/* A spread of rows, as many as can be told from each other in time. Returns how many. */
size_t ts_odds_spread(size_t rows, size_t inputs, size_t list[TS_ODDS_ROWS]);
/* Takes those of some rows of the case, at most TS_ODDS_ROWS, that count for themselves in `basis`, [rows, inputs], of
 * which no other rows are read. False when there are too few of them. */
bool ts_odds_choose(struct ts_odds *odds, struct ts_case *the_case, const size_t *list, size_t count,
                    const double *basis, size_t inputs);
/* x is what the reference's product is given, own what the candidate's is, if nothing is wrong, both [rows, inputs], of
 * which the chosen rows are read. False when x does not make the reference, or without memory; then nothing is to be
 * closed. */
bool ts_odds_open(struct ts_odds *odds, const double *x, const double *own);
/* The same of the reference alone: nothing can be tried then. */
bool ts_odds_learn(struct ts_odds *odds, const double *x);
/* The candidate's product is given `other`, [rows, inputs]; and `apart`, of the same size, by weights of their own, or
 * NULL. */
bool ts_odds_try(struct ts_odds *odds, const double *other, const double *apart, struct ts_odds_fit *fit);
/* How much of the error the candidate holds: their product over the error's square, and what chance makes of it. Of
 * what is left out it holds nothing; of what something as large and unrelated replaces, a half; of what is multiplied
 * by c, c / (c - 1). */
double ts_odds_kept(const struct ts_odds *odds, double *chance);
/* Whether it can be that it holds so much. */
bool ts_odds_keep(const struct ts_odds *odds, double share);
/* Whether the weight prefers no direction of x, so that sizes tell of what it was given. */
bool ts_odds_even(const struct ts_odds *odds);
void ts_odds_close(struct ts_odds *odds);
/* Whether it fits, and is far from chance. */
bool ts_odds_hold(const struct ts_odds_fit *fit);
/* The same of what must explain all of the error, in every direction. */
bool ts_odds_hold_exactly(const struct ts_odds_fit *fit, double uneven);
/* How sure evidence makes: 0.5 to 0.9, for nothing but products of tokens was seen. */
double ts_odds_sure(double evidence);

#endif
