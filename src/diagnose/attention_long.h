/* Attention in one step over a long sequence, of which a case holds some tokens: internal to src/diagnose.
 *
 * A query sees every key, so keys and values are read head by head, all tokens of one head at a time; queries and
 * contexts one token at a time. Memory is that of one head, whatever the model's width. */
#ifndef TS_DIAGNOSE_ATTENTION_LONG_H
#define TS_DIAGNOSE_ATTENTION_LONG_H

#include "diagnose/attention_chain.h"

#define TS_LONG_TOGETHER 8

/* One head of an operand at all tokens: of which, and how it is split off. No actor: none. */
struct ts_long_head {
    struct ts_operand operand;
    enum ts_split split;
    size_t heads, head, size;
    bool candidate;
};

struct ts_long {
    struct ts_case *the_case;
    size_t tokens;                  /* of the sequence */
    uint64_t first;                 /* its first token */
    size_t room;                    /* numbers of a head */
    float *keys, *values, *read;    /* [tokens, room]; what is taken apart */
    double *turned, *scores;        /* keys [tokens, room]; [TS_LONG_TOGETHER, tokens] */
    struct ts_long_head key, value; /* whose they are */
    struct ts_chain held;           /* for which they are turned, */
    size_t turned_count;            /* so many of the keys, */
    bool turned_values;             /* and the values as well */
};

bool ts_long_open(struct ts_long *it, struct ts_case *the_case, size_t largest_head);
void ts_long_close(struct ts_long *it);
/* The context of one query head at one token, `size` numbers. False when something cannot be read. */
bool ts_long_context(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                     double *out);
/* The same for some tokens in a row, at most TS_LONG_TOGETHER, which see the same keys while they are at hand; the next
 * one's are `stride` numbers further on. */
bool ts_long_contexts(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                      size_t count, double *out, size_t stride);
/* What each key of the sequence weighs for a query head at a token (with TS_WEIGH_SCORES, its score); 0 for those that
 * it does not see. Until anything else is asked. NULL when something cannot be read. */
const double *ts_long_weights(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head,
                              size_t token);
/* Captured numbers of a head at a token. */
bool ts_long_captured(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                      double *out);

/* The context of the case's rows, heads * size numbers each, one behind the other. */
bool ts_long_rows(struct ts_case *the_case, const struct ts_chain *chain, bool candidate, double *out);
/* Whether a chain can be done for some queries alone. */
bool ts_long_reaches(const struct ts_chain *chain);

/* Finds the chain that gives the reference's context, then what the candidate does otherwise, and proposes it. False
 * when no chain does. `chains` calls back with every way a reference may do attention. */
typedef bool (*ts_long_test)(void *context, const struct ts_chain *chain);
bool ts_propose_long_attention(struct ts_case *the_case, size_t largest_head,
                               void (*chains)(void *from, ts_long_test test, void *context), void *from,
                               const struct ts_other_values *others);

/* The softmax over the queries of each key, of which the case holds some: the other scores are read. False when that is
 * too much, or cannot be done. */
bool ts_softmax_over_queries(struct ts_case *the_case, const double *scores, double *out);
/* The next proposal is such a softmax, where all queries of the sequence can be held. */
void ts_give_over_queries(struct ts_case *the_case);

#endif
