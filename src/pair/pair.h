/* Pair: which tensor of the reference (A) stands beside which of the candidate (B), in which layout, and in what order.
 *
 * Pairs are found by exact name, by the user's map, by canonical name across conventions, with a layer offset, and last
 * by content; each pair says how. Where shapes differ, or the conventions are known to store another layout, a recipe
 * is searched and proved by the values: on samples first, then on everything. Nothing is dropped: what has no partner
 * is listed on its side. */
#ifndef TS_PAIR_PAIR_H
#define TS_PAIR_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/progress.h"
#include "tensor/bundle.h"
#include "tensor/view.h"

/* Tokens that were sent to other experts by this router, and not by one before it, ascending. */
struct ts_strays {
    const uint64_t *tokens;
    size_t count;
    bool all; /* no token has equal logits that leave open what it took */
};

struct ts_pair {
    const char *name;           /* A's tensor; for joins the common part of the names */
    const char *name_b;         /* B's */
    struct ts_view a, b;        /* equal shapes, unless `problem` is set */
    const char *how;            /* "name", "map", "canonical name", "layer offset +3", "content", ... */
    const char *recipe;         /* "" when both are taken as they are; else for example "B: squeeze 0, swap 0 1" */
    const char *members[2];     /* A's and B's tensors as a map lists them, where there are several; or NULL */
    const char *by_hand;        /* the words of a mapping (pair/mapping.h) that a person gave, or NULL */
    const struct ts_turn *turn; /* what a converter did to one side (pair/pairing.h), or NULL */
    bool ambiguous;             /* another recipe fits equally well */
    bool guess;                 /* no recipe makes the values agree; this is the best one */
    bool by_size;               /* nor here, but no two axes have one size, and so only this order of them fits */
    bool by_order;              /* nothing but its place says that the two belong together */
    bool zeros;                 /* what an alignment left out is zero */
    bool padded;                /* padding was taken out, or rows of tokens put beside each other, and a note says so */
    bool masked;                /* scores of attention with their mask in them, on one side at least */
    bool partial;               /* a tensor of it has a part that no pair reads, as the other side has no such part */
    const struct ts_strays *strays; /* a router, and rows of experts tell who was sent elsewhere; or NULL */
    const char *problem;            /* not NULL: cannot be compared, and why ("[3,4] against [5]: no layout fits") */
};

struct ts_pairing {
    struct ts_arena arena;
    struct ts_pair *pairs; /* in execution order; a piece of memory of their own */
    size_t count;
    const struct ts_tensor **only_a, **only_b; /* without partner, each in its bundle's order */
    size_t only_a_count, only_b_count;
    const struct ts_tensor **idle_a,
        **idle_b; /* further ones: of experts that got no token which both sides sent there */
    size_t idle_a_count, idle_b_count;
    size_t lacking;         /* pairs of which a side is not whole, because ranks of its run are missing */
    size_t lacking_experts; /* pairs of a stack and experts of which some are missing */
    int64_t layer_offset;   /* layer in A minus layer in B; 0 when there is none */
    const char *order;      /* where the execution order comes from */
    const char *notes[16];  /* sentences for the report: "layers 3.. of A stand against 0.. of B" */
    size_t note_count;
};

struct ts_pair_options {
    const char *map_file;       /* lines "name of A = name of B", or JSON {"a": "b"} */
    const char *const *renames; /* "s/regex/replacement/" applied to B's names, NULL-terminated */
    const char *order_file;     /* names in execution order, one per line */
    const char *dims;           /* declared axis names: "REGEX: tokens heads dim; A:REGEX: ...": see below */
    bool layer_offset_given;
    int64_t layer_offset;
    bool by_content; /* pair what names leave over by content; on by default in the command */
};

/* The axes that `dims` declares hold for tensors of both sides whose names match; with "A:" or "B:" before the
 * expression for those of one side. */
enum ts_status ts_pair_run(const struct ts_bundle *a, const struct ts_bundle *b, const struct ts_pair_options *options,
                           struct ts_pool *pool, struct ts_progress *progress, struct ts_pairing *pairing,
                           struct ts_error *error);
void ts_pairing_release(struct ts_pairing *pairing);

/* Whether a pair is `masked`, by its numbers. */
bool ts_pair_is_masked(const struct ts_pair *pair);

/* Which tensor element `flat` (row-major) of a view comes from, and its index there: of shards, which rank's. NULL for
 * one that was added up of several. */
const struct ts_tensor *ts_pair_origin(const struct ts_view *view, uint64_t flat, uint64_t *index);
/* The name of that tensor where the view is made of several, else NULL. */
const char *ts_pair_member(const struct ts_view *view, uint64_t flat);

/* The map that reproduces the pairing, for --map: appended, or written to a file. */
enum ts_status ts_pairing_put(const struct ts_pairing *pairing, struct ts_buffer *out, struct ts_error *error);
enum ts_status ts_pairing_save(const struct ts_pairing *pairing, const char *path, struct ts_error *error);

#endif
