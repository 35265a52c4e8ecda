/* Attention of which the operands and the projection behind it were captured: hypotheses weighed by their odds
 * (odds.h). Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_ATTENTION_ODDS_H
#define TS_DIAGNOSE_ATTENTION_ODDS_H

#include "diagnose/attention_chain.h"
#include "diagnose/odds.h"

#define TS_ODDS_CHAINS 4 /* ways to make the reference that are followed up */

struct ts_attention_odds {
    struct ts_case *the_case;
    size_t rows, width;                /* of the case, numbers of a context */
    size_t list[TS_ODDS_ROWS], listed; /* rows that are looked at */
    size_t tokens, onset;              /* of the sequence; the first that is wrong */
    bool turned;                       /* queries and keys were captured behind the rotary embedding */
    void *from;
    /* The context of one side in those rows, in their places in [rows, width]. False when it cannot be told. */
    bool (*run)(void *from, const struct ts_chain *chain, bool candidate, double *out);
    /* What a candidate may do otherwise than `own`. */
    size_t (*guess)(void *from, const struct ts_chain *own, const struct ts_chain_guess **guesses);
    double *basis, *own, *other;
    struct ts_chain chains[TS_ODDS_CHAINS]; /* best first */
    double evidence[TS_ODDS_CHAINS];
    size_t chain_count;
};

/* False without memory; to be closed in any case. */
bool ts_attention_odds_open(struct ts_attention_odds *it);
/* A way in which the reference may do it. */
void ts_attention_odds_take(struct ts_attention_odds *it, const struct ts_chain *chain);
/* Proposes what the candidate does; false when nothing holds. */
bool ts_attention_odds_propose(struct ts_attention_odds *it);
void ts_attention_odds_close(struct ts_attention_odds *it);

#endif
