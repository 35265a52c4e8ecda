/* The chain of attention, from captured queries, keys and values to the context, done in one of many ways. Internal to
 * src/diagnose: for attention whose inner steps were not captured. */
#ifndef TS_DIAGNOSE_ATTENTION_CHAIN_H
#define TS_DIAGNOSE_ATTENTION_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnose/families.h"

#define TS_NO_INDEX     SIZE_MAX
#define TS_MOST_GUESSES 144 /* there are fewer of any reference, which test_attention_guesses.c sees to */

/* Some columns of every row of an earlier tensor. */
struct ts_operand {
    const struct ts_actor *actor;
    size_t offset, width;
};

enum ts_role { TS_ROLE_QUERY, TS_ROLE_KEY, TS_ROLE_VALUE };

/* How scores weigh the values. */
enum ts_weighing {
    TS_WEIGH_SOFTMAX,
    TS_WEIGH_LOWERED,   /* exponentials below the largest one, not divided by their sum */
    TS_WEIGH_EXPONENTS, /* plain exponentials, not divided by their sum */
    TS_WEIGH_SCORES,    /* the scores themselves */
};

/* How the numbers of all tokens are split into heads. */
enum ts_split {
    TS_SPLIT_HEADS,    /* [tokens, heads, size], as it should be */
    TS_SPLIT_NUMBERS,  /* read as [tokens, size, heads] */
    TS_SPLIT_UNTURNED, /* read as [heads, tokens, size] */
};

/* What is taken from another key head. */
enum ts_copy { TS_COPY_BOTH, TS_COPY_KEYS, TS_COPY_VALUES };

/* A rotary embedding. */
struct ts_turning {
    double base; /* 0: none */
    bool interleaved;
    size_t group; /* numbers of a head that turn */
};

struct ts_chain {
    struct ts_operand q, k, v;
    enum ts_role roles[3]; /* which of them serves as query, key and value */
    bool turned_before;    /* queries and keys turn whatever they serve as; else what serves as query and key does */
    enum ts_weighing weighing;
    size_t heads, served, size; /* query heads, key heads, numbers per head */
    double scale, cap;
    long window, shift;     /* keys from row - window + 1 (0: from the first) to row + shift */
    bool first_sees_itself; /* whatever the shift is */
    bool masked_late;       /* the mask comes behind the softmax, which sees every key */
    double base;            /* of a rotary embedding on the way; 0: none */
    bool interleaved;
    size_t group;                   /* numbers of a head that turn */
    struct ts_turning apart;        /* how queries or keys turn, */
    bool queries_apart, keys_apart; /* where those do so in another way */
    double q_turns, k_turns;        /* how often they turn: 1 as it should be */
    double k_from, late;            /* added to the positions of all keys, and of the last query */
    bool tiled, over_queries;
    bool tiled_keys, tiled_values; /* of the two one alone */
    size_t copied, copied_from;    /* a key head in place of another, */
    enum ts_copy copies;           /* with its values or without */
    size_t stale, stale_from;      /* a token's key and value in place of another's */
    int moved[3];                  /* what serves as key or value stands so many places late, around the end */
    const double *values;          /* v, where it is not among the inputs that are loaded */
    bool heads_first;              /* [heads, tokens, size] in memory, read as [tokens, heads * size] */
    enum ts_split splits[3];       /* of queries, keys and values, whatever they serve as */
};

/* Operands of one side, [tokens, width]. */
struct ts_chain_inputs {
    double *q, *k, *v;
};

/* With nothing wrong. */
struct ts_chain ts_chain_plain(size_t heads, size_t served, size_t size);
double *ts_operand_load(const struct ts_operand *operand, bool candidate, size_t tokens); /* to be freed */
const struct ts_operand *ts_chain_operand(const struct ts_chain *chain, enum ts_role served_as);
enum ts_split ts_chain_split(const struct ts_chain *chain, enum ts_role served_as);
/* Whether rows depend on all others: no row can be done alone. */
bool ts_chain_mixes_rows(const struct ts_chain *chain);
/* Where number i of a head of a token stands. */
static inline size_t ts_split_place(enum ts_split split, size_t tokens, size_t heads, size_t size, size_t token,
                                    size_t head, size_t i)
{
    return split == TS_SPLIT_NUMBERS    ? (token * size + i) * heads + head
           : split == TS_SPLIT_UNTURNED ? (head * tokens + token) * size + i
                                        : (token * heads + head) * size + i;
}
/* Whether what serves as that is turned. */
bool ts_chain_turns(const struct ts_chain *chain, enum ts_role served_as);
/* The token whose key or value a token meets. */
size_t ts_chain_place(const struct ts_chain *chain, enum ts_role served_as, size_t token, size_t tokens);
/* How what serves as that turns. */
struct ts_turning ts_chain_turning(const struct ts_chain *chain, enum ts_role served_as);
/* Turns heads, [count, size], that serve as that, by so many times their positions, which are those from `position` on.
 */
void ts_chain_turn(const struct ts_chain *chain, enum ts_role served_as, double times, double position, size_t count,
                   double *rows);
/* The keys that a query sees, up to but not with `end`. False: none, and then it is every key alike. */
bool ts_chain_sees(const struct ts_chain *chain, size_t token, size_t tokens, size_t *first, size_t *end);
/* Takes the mask away. */
void ts_chain_open(struct ts_chain *chain, size_t tokens);
/* Heads of keys with heads of values: how many there are, which of them serves a query head, and of whose keys or
 * values it is. */
size_t ts_chain_serving(const struct ts_chain *chain);
size_t ts_chain_served(const struct ts_chain *chain, size_t head);
size_t ts_chain_head(const struct ts_chain *chain, enum ts_role served_as, size_t serving);
/* What a score weighs; the largest is of its row. */
double ts_chain_weight(const struct ts_chain *chain, double score, double largest);
bool ts_chain_load(struct ts_chain_inputs *inputs, const struct ts_chain *chain, bool candidate, size_t tokens);
void ts_chain_inputs_release(struct ts_chain_inputs *inputs);
/* The context of rows [first, first + count), each heads * size numbers, at out + row * heads * size; out has room for
 * all tokens. False without memory. */
bool ts_chain_run(const struct ts_chain *chain, const struct ts_chain_inputs *in, size_t tokens, size_t first,
                  size_t count, double *out);
/* The same for what each key weighs, [rows, heads, tokens]. */
bool ts_chain_weights(const struct ts_chain *chain, const struct ts_chain_inputs *in, size_t tokens, size_t first,
                      size_t count, double *out);

struct ts_chain_guess {
    const char *id;
    char text[200];
    struct ts_chain chain;
    bool reversed; /* the chain is the reference's, and the candidate does what was taken for the reference */
    bool fine;     /* too near to others to be told by likeness */
    bool refined;  /* its number was fitted to the candidate */
    double score;
};

/* What may be taken for the values. */
#define TS_MOST_OTHERS 2
struct ts_other_values {
    struct ts_operand operand;
    double *values; /* the candidate's, NULL where chains read them */
    const char *text;
};

/* The one number in which a guess departs from the reference's chain, NULL when it is none of those that there are any
 * of; and what is said then, "about" where it was not measured to more than two digits. */
double *ts_chain_number(struct ts_chain *chain, const struct ts_chain *own);
void ts_chain_say_number(struct ts_chain_guess *guess, const struct ts_chain *own, int digits);
/* Of guesses that differ in one number, the list has the usual ones. For each such number the best of these is moved to
 * where the score, the share of the error that is explained, is largest, and `refined` is set where that is another
 * one.
 */
typedef double (*ts_chain_score)(void *from, const struct ts_chain *chain);
void ts_chain_refine(struct ts_chain_guess *guesses, size_t count, const struct ts_chain *own, ts_chain_score score,
                     void *from);

/* What rows may depend on, beside the keys that they see. */
enum ts_mixing {
    TS_MIXES_NOTHING,
    TS_MIXES_HEADS, /* heads of other tokens, which can be read */
    TS_MIXES_ALL,   /* all of them, which are at hand */
};

/* What a candidate may do otherwise than `own`. onset: the first wrong token. others: TS_MOST_OTHERS of them, or fewer
 * and one without an actor. Returns how many; guesses has room for TS_MOST_GUESSES. */
size_t ts_chain_guesses(const struct ts_chain *own, size_t tokens, enum ts_mixing mixing, size_t hidden, size_t onset,
                        const struct ts_other_values *others, struct ts_chain_guess *guesses);

#endif
