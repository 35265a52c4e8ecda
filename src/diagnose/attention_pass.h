/* Attention in one step for many tokens of a long sequence: keys and values of some key heads are read once, by all
 * threads, and queries are put to them many at a time (attention_kernel.h). Internal to src/diagnose.
 *
 * In place of whole contexts a pass may give their products with a few random directions, which takes half the time:
 * what is left of a difference there tells its square to within sqrt(2 / TS_PASS_DIRECTIONS) of it in one head at one
 * token, and ever nearer where many are added up. No difference can hide: one in a single number shows in all of them,
 * others in all but very few. */
#ifndef TS_DIAGNOSE_ATTENTION_PASS_H
#define TS_DIAGNOSE_ATTENTION_PASS_H

#include <stdatomic.h>

#include "base/pool.h"
#include "diagnose/attention_chain.h"

#define TS_PASS_ROWS       96 /* queries that are done together */
#define TS_PASS_DIRECTIONS 16

struct ts_pass_worker;

struct ts_pass {
    struct ts_case *the_case;
    const struct ts_chain *chain;
    bool candidate, projected;
    struct ts_pool *pool;
    size_t tokens, room;    /* of a sequence, and with zeros behind them */
    uint64_t first;         /* token of the sequence that is held */
    size_t served, held;    /* the first of the serving heads that are held, and how many there are; at most `most` */
    size_t most;            /* as many as there is memory for, one at least */
    size_t *heads, count;   /* query heads that those serve, in order */
    size_t numbers, padded; /* of a context, or its products; with zeros behind them */
    float *keys, *values;   /* as the kernel takes them, [most, room, ...] */
    double *directions;     /* [serving heads, size, TS_PASS_DIRECTIONS]; NULL: contexts are whole */
    struct ts_pass_worker *workers;
    atomic_bool failed;
};

/* Whether the chain can be done this way. */
bool ts_pass_reaches(const struct ts_chain *chain);
/* The chain is borrowed. False without memory; to be closed either way. */
bool ts_pass_open(struct ts_pass *pass, struct ts_case *the_case, const struct ts_chain *chain, bool candidate,
                  bool projected);
void ts_pass_close(struct ts_pass *pass);
/* Reads keys and values of key heads from this one on, of the sequence whose first token this is. False when they
 * cannot be read, or are not all finite. */
bool ts_pass_hold(struct ts_pass *pass, uint64_t first, size_t served);
/* Contexts of pass->heads [from, to) at up to TS_PASS_ROWS tokens of the sequence: [heads, tokens, padded], the
 * worker's until it is asked again. NULL when queries cannot be read. Called from the threads of the pool. */
const double *ts_pass_run(struct ts_pass *pass, unsigned worker, size_t from, size_t to, const size_t *tokens,
                          size_t count);
/* The directions of a query head, [size, TS_PASS_DIRECTIONS]. */
const double *ts_pass_directions(const struct ts_pass *pass, size_t head);

/* The context of the case's rows, heads * size numbers each, one behind the other; in double where a pass cannot do
 * it. Not from the threads of a pool. */
bool ts_pass_rows(struct ts_case *the_case, const struct ts_chain *chain, bool candidate, double *out);
/* The same for some of them, in their places among all. False where a pass cannot do it. */
bool ts_pass_some(struct ts_case *the_case, const struct ts_chain *chain, bool candidate, const size_t *list,
                  size_t count, double *out);

#endif
