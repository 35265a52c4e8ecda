/* Where guesses about attention over a long sequence are tried before they are worked out in full: a few heads of a few
 * tokens, those that err most. Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_ATTENTION_TRIAL_H
#define TS_DIAGNOSE_ATTENTION_TRIAL_H

#include "diagnose/attention_long.h"

#define TS_TRIAL_ROWS  6
#define TS_TRIAL_HEADS 2

/* What a chain is held against. */
enum ts_trial_of { TS_TRIAL_CONTEXT, TS_TRIAL_PROBABILITIES, TS_TRIAL_SCORES };

struct ts_trial {
    struct ts_long *it;
    enum ts_trial_of of;
    size_t numbers; /* of a head at a token */
    size_t rows[TS_TRIAL_ROWS], row_count, heads[TS_TRIAL_HEADS], head_count;
};

void ts_trial_choose(struct ts_trial *trial, struct ts_long *it, size_t heads, enum ts_trial_of of);
/* Share of the error that a chain explains there. `from` is the trial. */
double ts_trial_score(void *from, const struct ts_chain *chain);

#endif
