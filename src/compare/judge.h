/* Judge: noise or bug, for each pair and for the run, and the first tensor that is really wrong.
 *
 * A fixed tolerance cannot tell rounding from bugs: honest int4 weights move tensors by half their size, and a wrong
 * epsilon moves them by a thousandth. So error is judged where it is made:
 *  - where the operation can be learnt from the reference (operation.h), it is replayed on the candidate's own inputs,
 *    and what remains is measured in units of what one more rounding of those inputs would do;
 *  - where it cannot (projections, embeddings, experts), error may grow from the inputs as it does elsewhere in the
 * same run, may start where a run's precision starts (siblings that share the input start with it), and must be without
 *    structure: no channel, head or token that stands out, no correlation with the reference;
 *  - NaN and infinities on one side, unequal integers and tensors without relation are never noise;
 *  - tokens that a router sent elsewhere on a near tie are named and set aside.
 * Weights of two checkpoints are no run: each pair is judged by itself, against what its precision or quantization
 * allows. The user's own rules, when there are any, come before all of this. */
#ifndef TS_COMPARE_JUDGE_H
#define TS_COMPARE_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/pool.h"
#include "compare/delta.h"
#include "compare/operation.h"
#include "pair/pair.h"

enum ts_judged { TS_JUDGED_OK, TS_JUDGED_NOISE, TS_JUDGED_DIFFERS, TS_JUDGED_UNKNOWN };

struct ts_verdict {
    enum ts_judged judged;
    bool made_here;        /* DIFFERS: the error is made here, not only carried */
    bool allowed;          /* NOISE: by a rule or tolerance of the user's, whatever the judge thinks of it */
    double roundings;      /* (rel_l2 / rounding)^2 in the coarser precision of the pair */
    double noise_ratio;    /* replayed: error made here over what rounding explains; NaN when it was not replayed */
    double error;          /* of runs: relative L2 of what counts, without tokens set aside, rows that experts gather in
                              one order; NaN: integers, or nothing was compared */
    bool three_ways;       /* judged by a third run, in higher precision: */
    double over_own[2];    /* its error there over the reference's own, in relative L2 and in the worst element */
    const char *operation; /* "silu(gate_proj) * up_proj", or NULL when it was not learnt */
    const char *why;       /* one clause: "the operation, replayed on the candidate's inputs, is off by 81 roundings" */
};

struct ts_judgement {
    struct ts_arena arena;
    struct ts_verdict *verdicts; /* one per pair */
    size_t count;
    size_t first;     /* index of the first divergence, SIZE_MAX when there is none */
    size_t counts[4]; /* per enum ts_judged */
    bool weights;     /* two checkpoints, not two runs: each tensor is judged by itself */
    int precision_b;  /* mantissa bits most tensors of the candidate use */
    uint64_t tokens;  /* length of the sequence, 0 when unknown */
    uint64_t *aside;  /* tokens set aside: routed otherwise on a near tie */
    size_t aside_count;
    bool keys_aside; /* some of them look at other keys, for the same reason */
    bool *guessed; /* which of these by a guess, as neither the choice nor what it follows from was captured; or NULL */
    size_t coarse; /* the first pair whose error was taken for a low precision that starts there, or SIZE_MAX */
    const char *notes[16]; /* what the run cannot show, what looks odd: sentences for the report */
    size_t note_count;
};

/* What two inputs are: two runs, judged along execution order, or two checkpoints, judged tensor by tensor. */
enum ts_subject { TS_SUBJECT_GUESS, TS_SUBJECT_TRACES, TS_SUBJECT_CHECKPOINTS };

/* What is known of a model's experts, whether names tell or not. */
enum ts_experts { TS_EXPERTS_UNTOLD, TS_EXPERTS_NONE, TS_EXPERTS_SOME };

/* deltas[i] belongs to pairs[i]. A guess goes by the names: see ts_judge_are_weights. The result does not depend on the
 * pool's threads; NULL: the calling one does it all. */
enum ts_status ts_judge_run_as(enum ts_subject subject, enum ts_experts experts, const struct ts_pair *pairs,
                               const struct ts_delta *deltas, size_t count, struct ts_pool *pool,
                               struct ts_judgement *judgement, struct ts_error *error);
enum ts_status ts_judge_run(const struct ts_pair *pairs, const struct ts_delta *deltas, size_t count,
                            struct ts_pool *pool, struct ts_judgement *judgement, struct ts_error *error);
void ts_judgement_release(struct ts_judgement *judgement);

/* Two checkpoints rather than two runs: most names end as weights do. */
bool ts_judge_are_weights(const struct ts_pair *pairs, size_t count);

#endif
