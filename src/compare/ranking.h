/* Ranking: what a difference means for logits and probabilities. Errors in numbers matter less there than whether the
 * same token would be chosen. */
#ifndef TS_COMPARE_RANKING_H
#define TS_COMPARE_RANKING_H

#include <stdbool.h>

#include "base/error.h"
#include "pair/pair.h"

struct ts_ranking {
    bool known;
    bool probabilities; /* rows are probabilities already; else softmax is taken for the divergence */
    double rows;        /* looked at: all, or of large tensors some spread over it */
    double all_rows;    /* that the tensor has */
    double same_first;  /* share of rows whose largest entry is the same */
    double top_overlap; /* mean share of the reference's ten largest that are among the candidate's */
    double worst_rank;  /* the lowest place that a reference's first has in the candidate, 1 is first */
    double divergence;  /* mean Kullback-Leibler divergence of the candidate from the reference, in nats */
    double max_divergence;
};

/* The pair's name says that its rows are logits or probabilities, and they are whole. */
bool ts_ranking_applies(const struct ts_pair *pair);
enum ts_status ts_ranking_measure(const struct ts_pair *pair, struct ts_ranking *ranking, struct ts_error *error);

#endif
