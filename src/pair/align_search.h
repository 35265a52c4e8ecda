/* For the align_*.c files only: the search that ts_align and ts_align_shards share.
 *
 * A search collects candidates: two views of equal shape and the words for how they were made. Whoever makes them asks
 * no values; ts_align_choose measures them all on small samples, the best on larger ones, and decides. Everything made
 * on the way lives in the scratch arena, and what was chosen is copied out of it. */
#ifndef TS_PAIR_ALIGN_SEARCH_H
#define TS_PAIR_ALIGN_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "pair/align.h"
#include "tensor/view.h"

/* How well values agree under a candidate. fit and relation are 0 for equal values and about 1.4 for unrelated ones;
 * where noise is small both are about the relative error. See align_fit.c. */
struct ts_align_fit {
    double fit;      /* distance of the values */
    double relation; /* distance once a factor, its sign and an offset are allowed for */
    double score;    /* fit below TS_ALIGN_AGREES, else that plus relation: what candidates are ordered by */
    double error;    /* plain relative L2 of b - a */
};

#define TS_ALIGN_AGREES 0.9

/* Entries [start, start + count) were taken of an axis of `of`, which has so many elements in all; of is NULL when
 * nothing was left out. */
struct ts_align_cut {
    const struct ts_view *of;
    unsigned axis;
    uint64_t start, count, all;
};

struct ts_align_candidate {
    struct ts_view view[2]; /* A, B */
    const char *words[2];   /* operations, "" when the side is as it was */
    unsigned cost;          /* the smaller the plainer */
    unsigned family;        /* not 0: candidates of one family differ only in which copy of something they take */
    bool named;             /* axis names say so */
    bool certain;           /* no values of the other side are needed: equal shapes, and all ranks hold the same */
    bool copied[2], zeros;  /* as in ts_alignment */
    uint64_t ranks_of;
    unsigned lacking;
    struct ts_align_cut cut;
    struct ts_align_fit fit;
};

struct ts_align_search {
    struct ts_arena scratch;
    const struct ts_align_hints *hints;
    struct ts_align_candidate *list;
    size_t count, capacity;
    size_t limit;       /* of count */
    double scale[2];    /* the usual size of a value on each side */
    bool whole_numbers; /* both sides hold integers: values are equal or not */
};

#define TS_ALIGN_LIMIT 4096
/* No run has more ranks: a smaller piece is no shard, and none at all where no values speak for it. */
#define TS_ALIGN_MOST_SHARDS 1024
/* Elements below which a piece that was looked for agrees by chance. */
#define TS_ALIGN_FEWEST 16

enum ts_status ts_align_search_init(struct ts_align_search *search, const struct ts_view *a, const struct ts_view *b,
                                    const struct ts_align_hints *hints, struct ts_error *error);
void ts_align_search_release(struct ts_align_search *search);

/* NULL when the list is full. */
struct ts_align_candidate *ts_align_add(struct ts_align_search *search);

/* The candidate's fit on about `budget` elements, spread evenly; on all of them when there are no more. */
enum ts_status ts_align_measure(const struct ts_align_search *search, const struct ts_view *a, const struct ts_view *b,
                                uint64_t budget, struct ts_align_fit *fit, struct ts_error *error);
/* The smallest score on small samples of all candidates so far; infinity when there are none. */
enum ts_status ts_align_best_score(struct ts_align_search *search, double *score, struct ts_error *error);

/* Every way to lay views of equal counts against each other; the words given go before its own. moving: which side is
 * permuted (0 or 1); the other is only split. */
struct ts_align_layouts {
    struct ts_view view[2];
    const char *words[2];
    unsigned moving;
    unsigned cost, family;
    uint64_t ranks_of; /* as in ts_alignment */
    unsigned lacking;
    struct ts_align_cut cut;
    size_t limit;    /* only so many, the plainest */
    bool whole_axes; /* no splitting and merging */
    bool in_order;   /* no permuting: axis by axis or nothing */
    bool deep;       /* also pieces that are only common divisors: for shapes cut and merged on both sides */
};
void ts_align_add_layouts(struct ts_align_search *search, const struct ts_align_layouts *layouts);
/* Views of equal shapes: rows permuted inside an axis, as rotary embeddings and fused weights have them. */
void ts_align_add_row_orders(struct ts_align_search *search, const struct ts_align_layouts *layouts);
/* Captured queries and keys of two programs: axes in another order, rotary embeddings as halves or as pairs. */
void ts_align_add_turned_heads(struct ts_align_search *search, const struct ts_align_layouts *layouts);

/* The same: fused projections group by group. */
void ts_align_add_groups(struct ts_align_search *search, const struct ts_align_layouts *layouts);

/* Views of unequal counts: the larger one sliced to fit the smaller, then every layout. Looks at values to stop early.
 */
enum ts_status ts_align_add_slices(struct ts_align_search *search, const struct ts_align_layouts *layouts,
                                   struct ts_error *error);

/* The same: a batch of sequences, padded, against the sequences one behind the other. */
enum ts_status ts_align_add_packed(struct ts_align_search *search, const struct ts_align_layouts *layouts,
                                   struct ts_error *error);

/* Says so when everything that a cut left out is zero: then it was padding. */
enum ts_status ts_align_look_at_rest(struct ts_align_search *search, struct ts_align_candidate *winner,
                                     struct ts_error *error);
/* Decides, and fills out->{error, runner_up, ambiguous, guess}, and *winner; NULL when no candidate is worth showing.
 */
enum ts_status ts_align_choose(struct ts_align_search *search, struct ts_alignment *out,
                               const struct ts_align_candidate **winner, struct ts_error *error);
/* Copies the winner out of the scratch arena: views and recipe. */
enum ts_status ts_align_finish(const struct ts_align_candidate *winner, struct ts_arena *arena,
                               struct ts_alignment *out, struct ts_error *error);

/* Nothing done yet: the views as given. */
void ts_alignment_init(struct ts_alignment *out, const struct ts_view *a, const struct ts_view *b);
/* Fills in the problem: no layout fits. shards_a and shards_b: how many shards like a or b there are, or 0. */
enum ts_status ts_align_no_layout(const struct ts_view *a, const struct ts_view *b, size_t shards_a, size_t shards_b,
                                  struct ts_arena *arena, struct ts_alignment *out, struct ts_error *error);

/* Both candidates put every element beside the same other element. */
bool ts_align_same_map(const struct ts_align_candidate *one, const struct ts_align_candidate *other);

/* Joins two lists of operations with a comma. */
const char *ts_align_words(struct ts_align_search *search, const char *first, const char *second);

static inline bool ts_align_equal_shapes(const struct ts_view *a, const struct ts_view *b)
{
    if (a->rank != b->rank)
        return false;
    for (unsigned i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/* Reading its elements out of order costs much more than reading them in order. */
bool ts_align_is_costly(const struct ts_view *view);

#endif
