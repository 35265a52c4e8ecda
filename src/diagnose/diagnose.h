/* Diagnose: why the first divergence diverges. Hypotheses are tested against the tensors at hand; those that hold are
 * reported, best first, each with its evidence and what to check in the candidate. */
#ifndef TS_DIAGNOSE_DIAGNOSE_H
#define TS_DIAGNOSE_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "compare/delta.h"
#include "diagnose/evidence.h"
#include "pair/pair.h"

#define TS_MOST_CAUSES 8

/* What was measured when a cause was put to the proof. Sizes are L2 norms over that of what was expected,
 * or as they are where nothing but zeros was. */
struct ts_cause_proof {
    bool predicted;   /* the cause predicts values; else it is a finding: explained, left and fitted say nothing */
    double explained; /* share of the error's energy that follows from it, rounding's part taken off */
    double error;     /* size of the error */
    double left;      /* size of what stays when the cause is granted */
    double rounding;  /* size of what rounding explains */
    double elements;  /* how many carry the error */
    size_t fitted;    /* numbers that were fitted to the candidate */
    const char *of;   /* what part of the tensor was looked at; NULL: all of it */
    double rows;      /* of a tensor that is not held whole: tokens or rows that it was tried on; 0: on all there is */
    double of_rows;   /* and how many there are */
};

struct ts_cause {
    const char *id;      /* of the vocabulary: "scaled", "rotation", ... */
    double confidence;   /* 0 to 1: the share of the error's energy it explains, less what its freedom would explain */
    const char *summary; /* a sentence a person understands, with the measured numbers */
    const char *check;   /* what to look at in the candidate */
    bool tied;           /* explains as much as the first one, as precisely: the data do not choose between them */
    struct ts_cause_proof proof;
};

struct ts_diagnosis {
    struct ts_arena arena;
    size_t pair;                            /* what was looked at */
    struct ts_cause causes[TS_MOST_CAUSES]; /* best first */
    size_t count;
    const char *against;   /* what the candidate was held against, a phrase */
    const char *strongest; /* when there is no cause: the strongest structure that was found, a sentence */
};

/* Looks at pair `index`. deltas, one per pair, may be NULL: then nothing is known about the noise of other pairs. */
enum ts_status ts_diagnose(const struct ts_pair *pairs, const struct ts_delta *deltas, size_t count, size_t index,
                           struct ts_diagnosis *diagnosis, struct ts_error *error);
/* The same with the model's weights and configuration at hand; evidence may be NULL. */
enum ts_status ts_diagnose_with(const struct ts_pair *pairs, const struct ts_delta *deltas, size_t count, size_t index,
                                const struct ts_evidence *evidence, struct ts_diagnosis *diagnosis,
                                struct ts_error *error);
void ts_diagnosis_release(struct ts_diagnosis *diagnosis);

/* The vocabulary: every id that a cause can have, in no order; NULL past the last. */
const char *ts_cause_id(size_t index);

#endif
