/* Align: the recipe under which two tensors, or one tensor and the shards of another, hold the same values.
 *
 * Candidates come from the shapes: squeeze, permute any axes, split and merge adjacent axes, a shard of n along an
 * axis, extra rows or padding, a slice of the batch or of the sequence, a first-token offset; for shards of all ranks:
 * joined along an axis, head-interleaved, per-rank fused parts (QKV, gate/up), added up (partial sums), or replicated.
 * The one that wins wins by its values: agreement on samples first, then on everything, up to four million elements.
 *
 * A recipe says for each side what was done to it, in order; every operation numbers the axes of the shape that the
 * operations before it left, the first one those of the tensor itself:
 *
 *     recipe     "" | side | side "; " side           "A: split 1 as 4x32; B: squeeze 0, swap 0 1"
 *     side       ("A" | "B") ": " operation {", " operation}
 *
 *     squeeze 0 2                  axes of one element dropped; without numbers: all of them, a scalar is left
 *     split 1 as 4x32              one axis into several, the outermost first
 *     transpose | swap 0 2         two axes exchanged
 *     permute 1 2 0                axis i of the result is the i-th number
 *     merge 1 2                    neighbouring axes into one
 *     read as [8,3]                the same numbers in the same order under another shape
 *     complex read as [9,16,2]     complex numbers against real ones: an axis for their two parts
 *     index 2 of 4 on axis 0       one entry, and the axis dropped
 *     shard 3 of 8 on axis 1       the fourth of 8 equal pieces
 *     shards 0 1 3 of 4 on axis 1  the pieces of the ranks that are there, one after the other
 *         ..., heads of 64 interleaved    heads are dealt to the shards in turn; the axis is left split by heads
 *         ..., in 3 parts 64+16+16        the piece of each part, one after the other
 *     take 0..6 of 8 on axis 0     entries 0 to 5; "(the rest is zero)" where all that was left out is
 *     skip the first of 9 on axis 0
 *     step 4 from 0 on axis 0      entries 0, 4, 8 and so on
 *     corners 3+3 of 9 on axis 1   what a shortened print of the other shows: the first 3 and the last 3
 *     ungroup axis 0, 8 groups of 4+1+1 heads of 64
 *                                  fused rows, from group by group to all of q, all of k, all of v
 *     pack the first 5+8+3 of 3x8 rows
 *                                  a batch of sequences without its padding, one behind the other; or the last
 *     join 8 shards on axis 1      in the order of the ranks
 *         ..., heads of 64 interleaved    as above; without a size: one entry at a time
 *         ..., in 3 parts 16+4+4          as above, the sizes being those in one shard
 *         ..., 2 copies of each but the first    fewer key and value heads than ranks
 *         ..., zigzag                     a piece from the front and one from the back for each rank
 *     join 4 of 8 shards, step 2, on axis 1
 *                                  neighbouring ranks hold the same
 *     sum of 8 shards              partial sums
 *     rank 0 of 8 equal shards     or "rank 0 of 8, ranks 3 5 differ", "rank 3 of 8, which differ" */
#ifndef TS_PAIR_ALIGN_H
#define TS_PAIR_ALIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensor/view.h"

struct ts_alignment {
    struct ts_view a, b; /* equal shapes, unless problem is set */
    const char *recipe;  /* "" when nothing had to be done */
    double error;        /* relative L2 of b - a on the sample under this recipe */
    double runner_up;    /* the same of the best different recipe; infinity when there was none */
    bool ambiguous;      /* the runner-up fits as well, and would pair other elements */
    bool guess;          /* the values do not agree under any recipe; this is the best or the plainest */
    bool zeros;          /* something was left out, and all of it is zero: padding */
    bool copied[2];      /* A's or B's shards hold the same several times, and only one of each is read */
    uint64_t ranks_of;   /* not 0: ranks are missing, and the values say that there are so many in all */
    unsigned lacking;    /* ... on this side, 0 or 1 */
    const char *problem; /* not NULL: no recipe at all; a and b are as given */
};

/* Lengths of the sequences of a run, once a padded batch of it was met: the same for all its tensors. For one thread.
 */
struct ts_lengths {
    struct ts_arena *arena;
    uint64_t sequences, rows, in_all; /* of the batch, of each with its padding, of all without; 0: not known yet */
    uint64_t *starts, *counts;
    bool from_the_end;
};

struct ts_align_hints {
    const char *axes_a, *axes_b; /* axis names, "tokens heads dim", or NULL */
    bool weights;   /* a checkpoint's weight rather than an activation: try transposes even of equal shapes */
    bool separate;  /* the name says that it is not several projections fused: what looks so are heads */
    unsigned heads; /* number of heads when known, else 0: for head-interleaved shards and row permutations */
    /* of A and of B, where they are shards: which ranks these are, or NULL, and how many there are at least */
    const uint64_t *ranks[2];
    uint64_t rank_count[2];
    struct ts_lengths *lengths; /* or NULL; filled in by the first that shows them */
};

/* a against b. Equal shapes whose values agree come back untouched and fast, and so do those of activations whose
 * values do not: another order of equal axes is a bug there, and for others to report. Thread-safe as long as the arena
 * is not shared. */
enum ts_status ts_align(const struct ts_view *a, const struct ts_view *b, const struct ts_align_hints *hints,
                        struct ts_arena *arena, struct ts_alignment *out, struct ts_error *error);

/* The view of a stored complex tensor as one of real numbers, with an axis of two more: a tensor of that type at the
 * same bytes. False where there is none. */
bool ts_align_real(const struct ts_view *view, struct ts_arena *arena, struct ts_view *out);

/* One whole tensor against the shards of all ranks, in rank order. `shards_are_b` says on which side they stand. */
enum ts_status ts_align_shards(const struct ts_view *whole, struct ts_view *shards, size_t count, bool shards_are_b,
                               const struct ts_align_hints *hints, struct ts_arena *arena, struct ts_alignment *out,
                               struct ts_error *error);

/* The shards of all ranks of A against those of all ranks of B, other numbers of them: whole tensors are put together
 * on both sides. One view on a side is a whole tensor. */
enum ts_status ts_align_ranks(struct ts_view *a, size_t count_a, struct ts_view *b, size_t count_b,
                              const struct ts_align_hints *hints, struct ts_arena *arena, struct ts_alignment *out,
                              struct ts_error *error);

#endif
