/* Cut: the parts of a fused tensor (q, k and v; gate and up), which may be one tensor or the shards of a parallel run.
 * Internal to fuse.c, stack_parts.c and the cut*.c files. */
#ifndef TS_PAIR_CUT_H
#define TS_PAIR_CUT_H

#include "pair/pairing.h"

#define TS_CUT_PARTS 6

/* How parts stand in a fused tensor, along one axis. */
enum ts_cut_kind {
    TS_CUT_BLOCKS,      /* one behind the other */
    TS_CUT_PER_RANK,    /* in every shard its share of each, one behind the other */
    TS_CUT_ALTERNATING, /* an element of each in turn */
    TS_CUT_BY_HEAD,     /* for each head, or group of heads with its k and v, one behind the other; of gate and up for
                           each rank whose shares were put together as they stood */
    TS_CUT_TURNED_HALF, /* kv_b: for each head its rows of k, stored transposed elsewhere, then those of v */
    TS_CUT_BY_KEY_HEAD, /* Qwen3-Next: for each head of keys its rows of q, k, v and z; z is the second part */
    TS_CUT_KINDS
};

struct ts_cut {
    enum ts_cut_kind kind;
    bool transposed; /* the fused tensor's last two axes are swapped first */
    unsigned join;   /* the axis on which shards are joined */
    uint64_t groups; /* BY_HEAD: heads of k, each with its share of q and v; or ranks */
    uint64_t of;     /* PER_RANK: ranks in all, of which some may be missing */
    uint64_t copies; /* PER_RANK: ranks that hold the same share of what stands behind the first part */
};

/* How a whole fused tensor is looked at before it is cut. */
enum ts_cut_taken {
    TS_CUT_AS_IT_IS,
    TS_CUT_AS_ROW,   /* of numbers: vectors in a stack of any shape */
    TS_CUT_AS_FRAMES /* [out, in, frames, height, width]: a frame each */
};

/* What is cut: one fused side, its parts on the other. */
struct ts_cut_job {
    struct ts_pairer *pairer;
    bool fused_is_b;
    struct ts_view *shards; /* of the fused tensor; one when it is whole */
    size_t shard_count;
    const uint64_t *ranks; /* of the shards; NULL when there are none */
    struct ts_view parts[TS_CUT_PARTS];
    const char *part_words[TS_CUT_PARTS]; /* how a part was put together; "" */
    size_t count;
    const char *kinds[TS_CUT_PARTS];
    bool weights, matrices; /* parameters; and not biases */
    enum ts_cut_taken taken;
    bool any_heads; /* where nobody says how many heads there are, every number of them is tried */
    /* where the views are pieces of tensors: their names, and the recipe that cut them out; else NULL */
    const char *fused_name, *part_names[TS_CUT_PARTS], *before;
};

/* Which kinds are fused in which, without their endings. */
struct ts_cut_rule {
    const char *fused, *parts[TS_CUT_PARTS];
    size_t count;
    enum ts_cut_taken taken;
};
extern const struct ts_cut_rule ts_cut_rules[]; /* fuse.c */
extern const size_t ts_cut_rule_count;

/* The axis that parts lie along. Matrices are cut along their outputs: [out, in], or [experts, out, in]; biases and
 * what was computed, along their last axis. */
unsigned ts_cut_axis(const struct ts_cut_job *job);

/* Every cut that is worth a try, in turn, from *number on; false when there are no more. */
bool ts_cut_next(const struct ts_cut_job *job, size_t *number, struct ts_cut *cut);

/* Piece `part` of the fused tensor and what it stands against, which is the part itself unless ranks are missing. False
 * when the sizes do not allow it. */
bool ts_cut_out(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part, struct ts_arena *arena,
                struct ts_view *piece, struct ts_view *other);

/* The next copy of a share of the part that the piece leaves out, and that share of the piece; *number begins at 0.
 * False when there are no more. */
bool ts_cut_copy(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part, size_t *number,
                 struct ts_arena *arena, struct ts_view *copy, struct ts_view *taken, uint64_t *start, uint64_t *size);

/* A part under a cut: how far it is from its partner. */
struct ts_cut_trial {
    double error;
    int turned;     /* rows of q and k: 0 as they are, 1 those of the fused tensor, 2 those of the part */
    uint64_t heads; /* that were turned */
};

/* How well a cut does. */
struct ts_cut_score {
    struct ts_cut cut;
    size_t agreeing; /* parts */
    double error;    /* the largest of those that agree */
    bool possible;
};

/* Finds the cut under which most parts agree; *ambiguous: another one does as well. */
enum ts_status ts_cut_choose(struct ts_cut_job *job, struct ts_cut_score *best, bool *ambiguous,
                             struct ts_error *error);
/* One part under a cut, rows of q and k turned or not; on so many runs of 16 elements. */
enum ts_status ts_cut_try(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part, unsigned runs,
                          struct ts_cut_trial *trial, struct ts_error *error);
/* Lays the part and the piece against each other, rows of so many heads turned as in ts_cut_trial; *fits is false when
 * that is impossible, or no layout agrees. */
enum ts_status ts_cut_lay(const struct ts_cut_job *job, const struct ts_cut *cut, int turned, uint64_t heads,
                          struct ts_arena *arena, struct ts_view *piece, struct ts_view *other,
                          struct ts_alignment *out, bool *fits, struct ts_error *error);

/* fuse.c: finds the cut under which the parts agree, and makes the pairs. guess: also where none does, if the sizes
 * allow one. */
enum ts_status ts_cut_pair(struct ts_cut_job *job, const struct ts_slot *fused,
                           const struct ts_slot *const slots[TS_CUT_PARTS], bool guess, bool *done,
                           struct ts_error *error);

/* "A: shards 0 1 of 4 on axis 0; B: attn_q cut out of 2 shards, joined on axis 0"; NULL without memory. */
const char *ts_cut_words(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part);

#endif
