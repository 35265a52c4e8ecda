/* Pieces: many tensors, or pairs of them, cut into equal parts that threads take in turn.
 *
 * Numbers every piece over all items of a batch, finds the item again, gives pages back behind all threads, and keeps
 * the first thing that went wrong. What is measured in a piece and how pieces are joined is the business of stats.c,
 * delta.c and exact.c. */
#ifndef TS_COMPARE_PIECES_H
#define TS_COMPARE_PIECES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "pair/pair.h"

/* Items done together, so that the pieces of a huge file do not fill memory. */
#define TS_PIECES_BATCH 4096

struct ts_pieces {
    unsigned halved;      /* so often a piece should be halved, since many threads hold one each */
    unsigned width;       /* threads */
    uint64_t together;    /* pieces that are forgotten at a time */
    _Atomic uint64_t *at; /* piece that each thread works on */
    uint64_t *first;      /* piece of each item, and the number of all behind the last */
    uint64_t *sizes;      /* elements of a piece of each item; the last of an item may have fewer */
    size_t items;
    _Atomic uint64_t small; /* bytes of items that had no call of their own */
    pthread_mutex_t lock;   /* guards error */
    struct ts_error error;
};

bool ts_pieces_init(struct ts_pieces *pieces, const struct ts_pool *pool); /* false without memory */
void ts_pieces_release(struct ts_pieces *pieces);

/* A batch: begin, add up to TS_PIECES_BATCH items of so many elements, in pieces of such a size, run. */
void ts_pieces_begin(struct ts_pieces *pieces);
void ts_pieces_add(struct ts_pieces *pieces, uint64_t elements, uint64_t size);
static inline uint64_t ts_pieces_count(const struct ts_pieces *pieces)
{
    return pieces->first[pieces->items];
}

/* The item a piece is of, and the first of its elements there. */
size_t ts_pieces_item(const struct ts_pieces *pieces, uint64_t index, uint64_t *first);

typedef void ts_piece_task(void *context, uint64_t index);
/* Gives back the pages of elements [first, end) of an item. NULL: work does. */
typedef void ts_piece_forget(void *context, size_t item, uint64_t first, uint64_t end);
/* Calls work for every piece, by all threads, and forget when all threads are past it: the system maps more than the
 * page that is asked for, so the end of one piece brings back pages of the next. Each time all processors are
 * interrupted, which with sixteen of them takes as long as fetching a megabyte, so that many pieces are forgotten at a
 * time. After an interruption the rest is skipped. */
enum ts_status ts_pieces_run(struct ts_pieces *pieces, struct ts_pool *pool, ts_piece_task *work,
                             ts_piece_forget *forget, void *context, struct ts_error *error);
/* Items that are too small for a call of their own: counts their bytes, and tells every so many that it is time to give
 * back all of the file. */
bool ts_pieces_enough(struct ts_pieces *pieces, uint64_t bytes);
/* Gives back elements [first, end) of a pair, or what lies before its end; of small pairs, which are not worth a call
 * each, all that was read of their files every now and then. */
void ts_pieces_forget_pair(struct ts_pieces *pieces, const struct ts_pair *pair, uint64_t first, uint64_t end);
/* From within work: what went wrong, with which tensor. */
void ts_pieces_fail(struct ts_pieces *pieces, const struct ts_error *error, const char *name);

#endif
