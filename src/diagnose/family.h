/* One family of causes: one file with one descriptor, listed once in families.c.
 *
 * A family is given the case and proposes causes. A proposal is a prediction of the candidate's values under the
 * hypothesis; the core turns it into a confidence: the share of the error's energy that the prediction explains,
 * lowered by the number of free parameters it was fitted with. Proposals that explain little are dropped there, so that
 * a family may propose freely. */
#ifndef TS_DIAGNOSE_FAMILY_H
#define TS_DIAGNOSE_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

#include "compare/operation.h"
#include "compare/scene.h"
#include "diagnose/diagnose.h"

struct ts_case {
    struct ts_scene *scene;        /* loaded up to the diverging pair; earlier actors are in its window */
    const struct ts_actor *actor;  /* the diverging pair */
    struct ts_operation operation; /* how the reference makes it; kind NONE when it was not learnt */
    const struct ts_delta *delta;
    size_t total;           /* rows * width */
    const double *expected; /* what the candidate should hold: the operation replayed on its own inputs, or the
                               reference when nothing was learnt */
    const double *found;    /* what it holds */
    double error;           /* sum of (found - expected)^2 over finite elements */
    double noise;           /* the part of it that rounding explains */
    struct ts_diagnosis *diagnosis;
};

struct ts_family {
    const char *name;
    void (*propose)(struct ts_case *the_case);
};

extern const struct ts_family *const ts_families[]; /* ends with NULL */

/* Offers a prediction of `found`. freedom: how many numbers were fitted to the candidate to make it. summary and check
 * are printf-like and copied. Returns the confidence it got (0 when dropped). */
double ts_propose(struct ts_case *the_case, const char *id, const double *prediction, size_t freedom, const char *check,
                  const char *summary, ...) __attribute__((format(printf, 6, 7)));
/* The same for causes that are not predictions (NaN born here, error confined to rows): the confidence is given. */
void ts_propose_plain(struct ts_case *the_case, const char *id, double confidence, const char *check,
                      const char *summary, ...) __attribute__((format(printf, 5, 6)));

/* The same for what many numbers tell together: it is kept where rounding is all that each of them shows. */
void ts_propose_below_noise(struct ts_case *the_case, const char *id, double confidence, const char *check,
                            const char *summary, ...) __attribute__((format(printf, 5, 6)));

/* The same for what shapes say, of which there is no doubt. */
void ts_propose_fact(struct ts_case *the_case, const char *id, const char *check, const char *summary, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for a prediction of a sample: left_share is the energy it leaves over the energy there was to explain in
 * the sample, which stands for the whole. */
double ts_propose_measured(struct ts_case *the_case, const char *id, double left_share, size_t freedom,
                           const char *check, const char *summary, ...) __attribute__((format(printf, 6, 7)));

/* Share of the error's energy that a prediction explains: 1 - |found - prediction|^2 / made, with the noise taken off
 * both; below 0 when it is worse than none. made is the smaller one of |found - expected|^2 and |found|^2: where the
 * candidate has nothing to do with what was expected, predicting zero must not count as an explanation. */
double ts_explained(const struct ts_case *the_case, const double *prediction);

/* Doubles of an earlier actor's candidate (or reference) side, in the case's own scratch arena; NULL when it does not
 * have as many rows and numbers. Valid until the case ends. */
const double *ts_case_values(struct ts_case *the_case, const struct ts_actor *actor, bool candidate);
/* Scratch of `total` doubles, valid until the family returns. */
double *ts_case_scratch(struct ts_case *the_case);
/* A name for people: the pair's name. */
const char *ts_case_name(const struct ts_case *the_case, const struct ts_actor *actor);

#endif
