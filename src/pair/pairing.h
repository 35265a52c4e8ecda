/* What the files of src/pair share while two bundles are being paired. Internal. */
#ifndef TS_PAIR_PAIRING_H
#define TS_PAIR_PAIRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/table.h"
#include "pair/align.h"
#include "pair/facts.h"
#include "pair/map.h"
#include "pair/name_rows.h"
#include "pair/names.h"
#include "pair/pair.h"

struct ts_side {
    const struct ts_bundle *bundle;
    size_t count;
    const char **names;   /* as they are matched: B's after renames */
    struct ts_names read; /* what they mean; its list is NULL until ts_pairer_read_names */
    bool *taken;
    bool *idle;          /* of experts that no token of the other side chose (expert_rows.c), or NULL */
    uint64_t *copied;    /* elements of each tensor that no pair reads, as they are the same as in other ranks */
    const bool *counted; /* names that count other things than equal ones of the other side (counted.c), or NULL */
    const char **labels; /* groups (files) that belong together have the same on both sides; see match.c */
    struct ts_facts facts;
    /* ranks of a parallel run that names speak of, below rank_end; set by ts_ranks_read */
    bool *has_rank;
    uint64_t rank_end, rank_count;
    bool apart; /* folders with numbers are no ranks here */
};

/* A pair and what its place in execution order is found by. */
struct ts_found {
    struct ts_pair pair;
    size_t a, b; /* the first tensor on each side */
};

struct ts_pairer {
    struct ts_side a, b;
    const struct ts_pair_options *options;
    struct ts_pool *pool;
    struct ts_progress *progress;
    struct ts_pairing *out;
    struct ts_arena scratch; /* for what is tried and for tables; the pairing's own arena is for what stays */
    struct ts_dims dims;
    struct ts_found *found;
    size_t count, room;
    int64_t offset;                 /* layer in A minus layer in B */
    const char *offset_text;        /* "layer offset +3", or NULL when it is 0 */
    unsigned strange;               /* weights that a converter should have changed and did not */
    bool ranks_only;                /* match.c looks only at what both sides have in shards */
    bool pieces, unlabelled;        /* hardly any name stands in several files; match.c looks at no labels now */
    bool resharded;                 /* ... and some of it is in other shards than on the other side */
    bool same_kinds[TS_KIND_PAIRS]; /* rows of ts_kind_pairs that were found to be one kind in some layer */
    uint64_t lacking_of[2];         /* not 0: ranks of A or of B are missing, of so many */
    struct ts_lengths lengths;      /* of the sequences of a padded batch */
    const char *first_lacking;      /* the first stack that lacks experts, and which */
    size_t differing[2];            /* tensors of ranks of A or of B that are not the same as those of the first rank */
};

enum ts_status ts_pairer_note(struct ts_pairer *pairer, struct ts_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum ts_status ts_pairer_read_side(struct ts_pairer *pairer, struct ts_side *side, struct ts_error *error);
enum ts_status ts_pairer_read_names(struct ts_pairer *pairer, struct ts_error *error);
/* A step that leaves nothing in the scratch arena: its room there is given back behind it. */
enum ts_status ts_pairer_step(struct ts_pairer *pairer, enum ts_status (*step)(struct ts_pairer *, struct ts_error *),
                              struct ts_error *error);
/* Adds the pair and marks its first tensors as taken. */
enum ts_status ts_pairer_add(struct ts_pairer *pairer, size_t a, size_t b, const struct ts_pair *pair,
                             struct ts_error *error);

/* The one tensor that a view is made of, whatever its layout; NULL when it is made of several. */
const struct ts_tensor *ts_pair_only_tensor(const struct ts_view *view);

/* Takes tensors as they stand that agree only in a layout which their siblings do not need. */
enum ts_status ts_drop_odd_layouts(struct ts_pairing *pairing, struct ts_error *error);

/* Takes padding out of batches where it stands at other ends on the two sides, or where it is told and errs. In
 * execution order. */
enum ts_status ts_leave_padding(struct ts_pairer *pairer, struct ts_error *error);

/* Puts rows of experts that are modules of their own beside each other, token by token. */
enum ts_status ts_align_expert_rows(struct ts_pairer *pairer, struct ts_error *error);

/* Tells what share of paired tensors no pair reads. When all pairs are as they stay. */
enum ts_status ts_explain_rest(struct ts_pairer *pairer, struct ts_error *error);

/* How far two views of equal counts agree on a spread of elements. */
struct ts_agreement {
    double error;       /* relative L2 of b - a; infinity when a is zero and b is not */
    double correlation; /* 1 where there is nothing to correlate: constants that agree, fewer than 8 elements */
};
enum ts_status ts_agree(const struct ts_view *a, const struct ts_view *b, unsigned runs, struct ts_agreement *agreement,
                        struct ts_error *error);

/* Below this relative error on the sample two tensors are the same one in two formats: even two bits per weight leave
 * less, and unrelated tensors are at 1.4. */
#define TS_SAME_TENSOR 0.6

/* layout.c: one tensor against one. `how` is kept. same: both names come from one convention, so that a difference in
 * layout is a finding and not something to undo. */
enum ts_status ts_layout_single(struct ts_pairer *pairer, size_t a, size_t b, const char *how, bool same,
                                struct ts_error *error);
/* The same, taken back unless the values agree. */
enum ts_status ts_layout_proved(struct ts_pairer *pairer, size_t a, size_t b, const char *how, struct ts_error *error);
enum ts_status ts_layout_shards_proved(struct ts_pairer *pairer, size_t whole, const size_t *shards, size_t count,
                                       bool shards_are_b, const char *how, struct ts_error *error);
/* As ts_layout_single for given views, with the recipe so far and the names to show. */
enum ts_status ts_layout_views(struct ts_pairer *pairer, size_t a, size_t b, const struct ts_view *view_a,
                               const struct ts_view *view_b, const char *recipe, const char *name, const char *name_b,
                               const char *how, bool same, struct ts_error *error);
/* One whole tensor against shards, in rank order. */
enum ts_status ts_layout_shards(struct ts_pairer *pairer, size_t whole, const size_t *shards, size_t count,
                                bool shards_are_b, const char *how, struct ts_error *error);
/* experts.c: one stack against its experts, by their numbers. Some may be missing: where most are there, or the values
 * agree. *done is false when the shapes do not allow it. */
enum ts_status ts_layout_stack(struct ts_pairer *pairer, size_t stack, const size_t *experts, size_t count,
                               bool experts_are_b, const char *how, bool *done, struct ts_error *error);
enum ts_status ts_experts_explain(struct ts_pairer *pairer, struct ts_error *error); /* says which are missing */
/* The tensors as one view, [count, ...]; for count 1 the tensor itself. False where shapes differ. */
bool ts_layout_stacked(const struct ts_side *side, const size_t *indices, size_t count, struct ts_arena *arena,
                       struct ts_view *view);
/* "rank0/x + rank1/x" as a map lists them; NULL without memory. */
const char *ts_layout_members(const struct ts_side *side, const size_t *indices, size_t count, struct ts_arena *arena);
/* "model.layers.0.experts.*.w1.weight" */
const char *ts_layout_common_name(const struct ts_side *side, const size_t *indices, size_t count,
                                  struct ts_arena *arena);

/* sample.c: axis i of the view, in the order of its axes, is axis match[i] of a tensor known by its corners. False
 * where sizes do not allow it. */
bool ts_sample_fits(const struct ts_view *view, const struct ts_tensor *corners, unsigned match[TS_MAX_RANK]);
/* Takes of a whole tensor what a print shows of the other. before: what was done to it already. False: it has another
 * size, and is left alone. */
bool ts_sample_corners(struct ts_view *view, const struct ts_tensor *corners, char side, const char *before,
                       struct ts_arena *arena, const char **recipe);
/* The same for a dump that holds the first numbers and the last ones; leaves the view alone where that is not so. */
enum ts_status ts_sample_ends(struct ts_view *view, const struct ts_tensor *dump, char side, struct ts_arena *arena,
                              const char **recipe, struct ts_error *error);

/* What a converter does to one side. */
enum ts_turn_kind { TS_TURN_NOTHING, TS_TURN_ROWS, TS_TURN_ADD, TS_TURN_UNMIX, TS_TURN_SWAP_HALVES, TS_TURN_TILE };
struct ts_turn {
    enum ts_turn_kind kind;
    bool on_b, expected; /* expected: the architecture asks for it */
    uint64_t heads, in_group;
    uint64_t before; /* TILE: entries of the axis that stand in front of the heads */
    unsigned axis;   /* TILE */
    double add;      /* ADD */
};
#define TS_MAX_TURNS 40
#define TS_MAX_HEADS 4096 /* more are none */
/* What the conventions might have done to a weight of this kind. The first is to take it as it is. *expected is the one
 * that the architecture asks for. */
size_t ts_layout_list_turns(const struct ts_pairer *pairer, const char *kind, const struct ts_view *view,
                            struct ts_turn turns[TS_MAX_TURNS], size_t *expected);
/* False when the shape does not allow it, or without memory. */
bool ts_layout_turn(const struct ts_turn *turn, const struct ts_view *view, struct ts_arena *arena,
                    struct ts_view *out);
const char *ts_layout_turn_text(const struct ts_turn *turn, struct ts_arena *arena); /* NULL without memory */

/* A mask of flags against what is added to scores: its view gives 0 and -inf from then on, and the recipe says so.
 * Where names say that both are masks and sizes that they are not the same, the pair has a problem. */
enum ts_status ts_layout_flags(struct ts_pairer *pairer, struct ts_pair *pair, struct ts_error *error);

/* Rows of each head from (half, 2) to (2, half): what llama.cpp's converter and Meta's own files need to meet Hugging
 * Face's. False when heads do not divide the rows so. */
bool ts_layout_turn_rows(const struct ts_view *view, uint64_t heads, struct ts_arena *arena, struct ts_view *out);
/* Pieces of an axis put together: starts[i], counts[i], every steps. */
bool ts_layout_gather(const struct ts_view *view, unsigned axis, const uint64_t *starts, const uint64_t *counts,
                      uint64_t step, size_t count, struct ts_arena *arena, struct ts_view *out);
uint64_t ts_layout_heads(const struct ts_pairer *pairer, const char *kind); /* of q or k rows; 0 when unknown */
/* The same, or where it is unknown those that rows may have, as heads are of some usual size; returns how many. */
#define TS_LIKELY_HEADS 10
size_t ts_layout_likely_heads(const struct ts_pairer *pairer, const char *kind, uint64_t rows,
                              uint64_t heads[TS_LIKELY_HEADS]);

struct ts_align_hints ts_layout_hints(struct ts_pairer *pairer, size_t a, size_t b, bool weights);
bool ts_layout_weights(const struct ts_pairer *pairer, size_t a, size_t b); /* both are parameters */
/* Two recipes, one after the other. */
enum ts_status ts_layout_recipes(struct ts_pairer *pairer, const char *first, const char *second, const char **out,
                                 struct ts_error *error);

/* match.c: everything that names tell. fuse.c: fused against separate; guess: also where no values agree, if the sizes
 * allow it, and whatever part of a model names speak of. content.c: what is left, by content. */
enum ts_status ts_match_names(struct ts_pairer *pairer, struct ts_error *error);
enum ts_status ts_match_fused(struct ts_pairer *pairer, bool guess, struct ts_error *error);
enum ts_status ts_match_stacks(struct ts_pairer *pairer, struct ts_error *error); /* stacks.c: one against all layers */
enum ts_status ts_match_stack_parts(struct ts_pairer *pairer, struct ts_error *error); /* and what is fused besides */
/* What no name tells: that it is fused, or a product. Once names were read. */
enum ts_status ts_name_fused(struct ts_pairer *pairer, struct ts_error *error);
enum ts_status ts_match_tied(struct ts_pairer *pairer, struct ts_error *error); /* heads that are embeddings */
enum ts_status ts_match_content(struct ts_pairer *pairer, struct ts_error *error);
/* What content says of some tensors, and is surely so: pairs of indices, ascending. *pairs is in the scratch arena. */
enum ts_status ts_content_find(struct ts_pairer *pairer, const bool *only_a, const bool *only_b, size_t (**pairs)[2],
                               size_t *count, struct ts_error *error);
enum ts_status ts_match_stack_values(struct ts_pairer *pairer, struct ts_error *error); /* stacks that no name tells */
enum ts_status ts_match_counted(struct ts_pairer *pairer, struct ts_error *error); /* counted.c: before equal names */
enum ts_status ts_match_only(struct ts_pairer *pairer, struct ts_error *error);    /* carry.c: one tensor each */
enum ts_status ts_match_carried(struct ts_pairer *pairer, struct ts_error *error); /* carry.c: behind content */
enum ts_status ts_match_sums(struct ts_pairer *pairer, struct ts_error *error);    /* sums.c: behind all of these */
enum ts_status ts_match_steps(struct ts_pairer *pairer, struct ts_error *error);   /* before any names are read */
/* folders.c: folders of one side that hold the same names. Stages before names are read, copies behind: of a side
 * without ranks. */
enum ts_status ts_match_stages(struct ts_pairer *pairer, struct ts_error *error);
enum ts_status ts_match_hidden(struct ts_pairer *pairer, struct ts_error *error); /* hidden.c: before names are read */
enum ts_status ts_match_copies(struct ts_pairer *pairer, struct ts_side *side, const struct ts_side *other,
                               struct ts_error *error);
enum ts_status ts_find_offset(struct ts_pairer *pairer, struct ts_error *error);
enum ts_status ts_order_found(struct ts_pairer *pairer, struct ts_error *error);

/* Tensors that are left with one key, in bundle order: a slot. */
enum ts_slot_kind {
    TS_SLOT_SINGLE,
    TS_SLOT_EXPERTS,
    TS_SLOT_SHARDS,
    TS_SLOT_GRID, /* experts, each in the shards of the same ranks: by expert, then by rank */
    TS_SLOT_AMBIGUOUS
};
struct ts_slot {
    const char *key;
    size_t *indices; /* by expert or rank where it has those */
    size_t count;
    size_t ranks; /* GRID: shards of each expert */
    enum ts_slot_kind kind;
};
struct ts_slots {
    struct ts_slot *list;
    size_t count;
    struct ts_table table; /* key -> index; to be released */
};
/* keys[i] NULL: not in any slot. */
enum ts_status ts_slots_make(const struct ts_side *side, const char *const *keys, struct ts_arena *arena,
                             struct ts_slots *slots, struct ts_error *error);
const struct ts_slot *ts_slots_get(const struct ts_slots *slots, const char *key); /* or NULL */

/* ranks.c: parallel runs. Names must have been read. */
enum ts_status ts_ranks_read(struct ts_pairer *pairer, struct ts_side *side, struct ts_error *error);
const uint64_t *ts_ranks_of(struct ts_pairer *pairer, const struct ts_side *side, const size_t *indices, size_t count);
/* The two hold one tensor, so many elements in all, in other shards. */
bool ts_ranks_differ(const struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b);
/* Two slots in shards as whole tensors. *done is false where they are to be paired rank by rank. */
enum ts_status ts_ranks_pair(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                             const char *how, bool *done, struct ts_error *error);
/* Experts in shards against experts, a stack, shards of stacks, or experts in shards. */
enum ts_status ts_ranks_experts(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                                const char *how, struct ts_error *error);
/* Shards that a pair does not read because they hold what others hold: each that does not is paired by itself. whole:
 * the tensor of the other side. */
enum ts_status ts_ranks_copies(struct ts_pairer *pairer, const struct ts_pair *pair, bool shards_are_b,
                               const size_t *indices, const struct ts_view *shards, size_t count, size_t whole,
                               struct ts_error *error);
enum ts_status ts_ranks_identical(const struct ts_view *one, const struct ts_view *other, bool *identical,
                                  struct ts_error *error);
/* Shards of both sides as one tensor, whatever their ranks. */
enum ts_status ts_ranks_whole(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                              const char *how, struct ts_error *error);
/* Whether folders with numbers are ranks: their tensors are pieces of the other side's, or all the same. Where they are
 * not, the names of the side are read again. */
enum ts_status ts_ranks_of_folders(struct ts_pairer *pairer, struct ts_side *side, const struct ts_side *other,
                                   struct ts_error *error);
/* Remembers that an alignment found ranks missing; ts_ranks_explain says so. */
void ts_ranks_lacking(struct ts_pairer *pairer, const struct ts_alignment *alignment);
enum ts_status ts_ranks_explain(struct ts_pairer *pairer, struct ts_error *error);

#endif
