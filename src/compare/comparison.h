/* Comparison: two inputs, paired, measured and judged. What every report is made from. */
#ifndef TS_COMPARE_COMPARISON_H
#define TS_COMPARE_COMPARISON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/progress.h"
#include "compare/change_rank.h"
#include "compare/delta.h"
#include "compare/judge.h"
#include "pair/pair.h"
#include "tensor/bundle.h"

enum ts_outcome { TS_OUTCOME_MATCH, TS_OUTCOME_DIFFER, TS_OUTCOME_INCOMPLETE };

struct ts_comparison {
    struct ts_bundle *a, *b; /* owned */
    struct ts_pairing pairing;
    size_t filtered;         /* pairs that the filter left out */
    size_t paired[2];        /* tensors of A and of B that stand in pairs, with or without the filter */
    struct ts_arena arena;   /* profiles */
    struct ts_delta *deltas; /* one per pair */
    struct ts_judgement judgement;
    struct ts_change_rank *ranks; /* one per pair when they were asked for, else NULL */
    uint64_t *first_bytes;        /* bit by bit: one per pair, see exact.h; else NULL */
    enum ts_outcome outcome;
    const char *outcome_text; /* one clause: "37 of 62 tensors differ", "2 tensors could not be compared" */
    const char *doubts[24];   /* what may make this comparison lie: sentences for the report (honesty.h) */
    size_t doubt_count;
};

struct ts_comparison_options {
    struct ts_pair_options pair;
    struct ts_delta_options delta;
    enum ts_subject subject;    /* runs or checkpoints; a guess when the user did not say */
    enum ts_experts experts;    /* of the model, whatever names tell */
    bool partial;               /* the candidate may have captured fewer points: what only A has is no gap */
    bool rank;                  /* the ranks of changes as well */
    bool fixed_tolerance;       /* --rtol/--atol given: judge by them alone */
    const char *const *rules;   /* NULL-terminated texts, or NULL */
    bool grades;                /* EXCELLENT, GOOD, ACCEPTABLE, SIGNIFICANT */
    const char *high_precision; /* path of a third trace, or NULL */
    const char *filter;         /* POSIX extended regex on A's names, or NULL */
};

/* Takes the bundles over, also on error. */
enum ts_status ts_comparison_run(struct ts_bundle *a, struct ts_bundle *b, const struct ts_comparison_options *options,
                                 struct ts_pool *pool, struct ts_comparison *comparison, struct ts_error *error);
void ts_comparison_release(struct ts_comparison *comparison);

/* Bit by bit, and the same bytes: equal for certain, and nothing else was measured. */
bool ts_comparison_same_bytes(const struct ts_comparison *comparison, size_t index);

/* Pairs of complex numbers with real ones get a problem, so that the others can be compared. */
void ts_set_complex_aside(struct ts_pairing *pairing);

/* A grade of one pair in the manner of the Qwen3 comparison system. */
const char *ts_comparison_grade(const struct ts_delta *delta);

#endif
