/* Attention of many queries of one head over all keys that they see, in f32; compiled once per instruction set
 * (base/level.h). The keys come in blocks that stay in the cache; weights are of the largest score so far, and what was
 * added up before is brought down to it. Sums over a block are f32, over blocks double. What a query comes to depends
 * on itself and its keys alone, not on who is done with it, and the bits are the same at every level. */
#ifndef TS_DIAGNOSE_ATTENTION_KERNEL_H
#define TS_DIAGNOSE_ATTENTION_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cpu.h"

#define TS_ATTEND_PANEL 64  /* keys whose numbers stand side by side */
#define TS_ATTEND_BLOCK 256 /* keys that are weighed at a time */
#define TS_ATTEND_WHOLE 16  /* values are filled up with zeros to a multiple of this */

/* One key head. */
struct ts_attend_head {
    const float *keys;   /* panels, [size, TS_ATTEND_PANEL] each; the last is filled up with zeros */
    const float *values; /* [keys, padded], filled up likewise */
    size_t size, padded; /* numbers of a head, and with zeros behind them */
    float cap;           /* of scores; 0: none */
    bool plain;          /* scores weigh as they are */
};

struct ts_attend_query {
    size_t first, end; /* keys that it sees */
    float largest;     /* score: weights are exp(score - largest) */
    double sum;        /* of the weights */
};

struct ts_attend_kernels {
    /* queries [count, size], the scale in them; out [count, padded]: values times weights, added up. scores has room
     * for count * TS_ATTEND_BLOCK numbers, piece for count * padded. */
    void (*attend)(const struct ts_attend_head *head, const float *queries, struct ts_attend_query *each, size_t count,
                   float *scores, float *piece, double *out);
};

TS_DECLARE_TABLES(const struct ts_attend_kernels, ts_attend_kernels);

#endif
