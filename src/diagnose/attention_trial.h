/* Where guesses about attention over a long sequence are tried before they are worked out in full: a few heads of a few
 * tokens, those that err most. Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_ATTENTION_TRIAL_H
#define TS_DIAGNOSE_ATTENTION_TRIAL_H

#include "base/pool.h"
#include "diagnose/attention_long.h"

#define TS_TRIAL_ROWS  6
#define TS_TRIAL_HEADS 2

/* What a chain is held against. */
enum ts_trial_of { TS_TRIAL_CONTEXT, TS_TRIAL_PROBABILITIES, TS_TRIAL_SCORES };

/* Each head is held by itself, so that its keys are read once for all guesses, and worked on by a thread of its own. */
struct ts_trial {
    struct ts_long *it, others[TS_TRIAL_HEADS - 1];
    struct ts_pool *pool; /* NULL: one head after the other, in `it` */
    enum ts_trial_of of;
    size_t numbers; /* of a head at a token */
    size_t rows[TS_TRIAL_ROWS], row_count, heads[TS_TRIAL_HEADS], head_count;
};

/* `it` is used until the trial is closed, and may be used otherwise between two scores. */
void ts_trial_open(struct ts_trial *trial, struct ts_long *it, size_t heads, enum ts_trial_of of);
void ts_trial_close(struct ts_trial *trial);
/* Share of the error that a chain explains there. `from` is the trial. */
double ts_trial_score(void *from, const struct ts_chain *chain);

#endif
