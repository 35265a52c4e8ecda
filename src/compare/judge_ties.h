/* Ties: what a router's logits say about the experts that tokens took, where the choice was not captured, and how far
 * tokens stray behind it. For judge_flips.c, which makes something of it. */
#ifndef TS_COMPARE_JUDGE_TIES_H
#define TS_COMPARE_JUDGE_TIES_H

#include "compare/judge_state.h"

#define TS_MOST_KEPT 16 /* experts of a token */
/* Error energy of a token's logits over the median token's: beyond it the token was wrong before it was routed. */
#define TS_ROUTER_CLEAN 25.0

/* One router whose choice was not captured. Bit k - 1 stands for the k largest. */
struct ts_router {
    size_t pair, experts;
    uint32_t possible; /* every k there may be */
    uint32_t *changed; /* per token: for which k its experts are others, and what comes out must show it */
    uint32_t *tied;    /* the same, and those that it may not show, or that rounding for the capture may have hidden */
    double *before;    /* how far the token stood out in the logits, 1 at least */
    double *behind;    /* and in what came out of the experts, 0 where nothing was captured */
    double *error;     /* its relative error there */
    double usual;      /* that of the median token, the largest of what came out */
    double *came;      /* and in the logits */
    bool after;        /* tokens strayed behind earlier routers */
    bool own;          /* what came out of them is its own layer's, with no attention between */
    double level;      /* relative error of the median token's logits */
    double expected;   /* tokens that the errors of the logits give another expert at one rank */
};

/* Every k there may be, as bits. Weights of the chosen say it where they were captured; where indices were, the choice
 * is judged by them, and there is none. */
uint32_t ts_router_ranks(const struct ts_judge *state, size_t i, size_t experts);
/* Everything about one router; false when there is nothing to tell from. */
bool ts_router_open(const struct ts_judge *state, size_t i, size_t experts, uint32_t possible, bool after,
                    struct ts_router *router);
void ts_router_release(struct ts_router *router);
/* Its logits err as those of others do, or as attention carries the error of tokens that flipped before. */
bool ts_router_clean(const struct ts_router *router, size_t row);

/* Numbers of a token, one row of them, that can be read; 0 for anything else. */
size_t ts_router_width(const struct ts_judge *state, size_t i);
/* The tokens that are looked at, of one side. */
bool ts_router_rows(const struct ts_judge *state, size_t i, bool candidate, size_t width, float *out);
/* Error energy of each row over its size, and the median of these; a small row errs by the size of the others. False
 * when most rows are equal, which leaves nothing to measure by. */
bool ts_router_errors(const float *a, const float *b, size_t rows, size_t width, double *errors, double *median);

#endif
