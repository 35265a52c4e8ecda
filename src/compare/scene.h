/* Scene: the values of a trace around one place in execution order, in one simple layout.
 *
 * Learning an operation needs the tensors before it side by side. A scene holds the last TS_SCENE_WINDOW pairs as
 * dense floats, tokens first: [tokens, rest...], whatever axis the tokens were on, leading ones squeezed. Of long
 * sequences a spread of tokens is taken, the same for every tensor. Memory is bounded by the window, not by the trace.
 *
 * Where a batch of sequences ran at once, [batch, tokens, ...], the rows are the tokens of all of them, one sequence
 * behind the other, and a tensor without tokens (a modulation, [batch, 6 * hidden]) has one row per sequence. Only what
 * works across tokens must know: the keys of another sequence are not its own. */
#ifndef TS_COMPARE_SCENE_H
#define TS_COMPARE_SCENE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "pair/pair.h"

#define TS_SCENE_WINDOW 48

struct ts_actor {
    size_t pair; /* index */
    bool usable; /* loaded; false for scalars, integers, giants, and pairs with problems */
    bool whole;  /* every token is here, so that products over tokens can be done */
    bool apart;  /* no tokens in it: one row per sequence */
    float *a, *b;
    size_t rows, width; /* tokens taken, numbers per token */
    size_t sequence;    /* whole: rows of one sequence, which are all of them unless a batch ran */
    size_t heads;       /* the first axis after the tokens when there are two, else 1 */
    size_t inner;       /* width / heads */
    int bits_a, bits_b; /* mantissa bits the values use */
    double norm_a;      /* of the loaded part */
    double error;       /* relative L2 of b - a over the rows that count; NaN when it cannot be told */
};

/* The last rotation that was learnt: angles per token and pair. */
struct ts_turn {
    double *table;            /* cosines, then sines; NULL before the first */
    size_t rows, group, head; /* tokens, numbers of a head that turn, size of a head */
    double factor;
    bool interleaved;
};

struct ts_scene {
    const struct ts_pair *pairs;
    size_t pair_count;
    uint64_t tokens;  /* of all sequences together, 0 when unknown */
    uint64_t batch;   /* sequences that ran at once; 1 is the rule */
    bool heads_first; /* [heads, tokens, size]: how most tensors with heads are laid out */
    uint64_t *taken;  /* which tokens, in order */
    size_t taken_count;
    bool *aside;                             /* per taken token: not judged any more (routed otherwise on a near tie) */
    struct ts_actor window[TS_SCENE_WINDOW]; /* ring: pair i is at i % TS_SCENE_WINDOW */
    struct ts_turn turn;
    size_t score_heads; /* heads of the scores, 0 when there are none: flat captures do not show them */
    size_t loaded;      /* pairs [0, loaded) have been through */
};

enum ts_status ts_scene_open(struct ts_scene *scene, const struct ts_pair *pairs, size_t count, struct ts_error *error);
void ts_scene_release(struct ts_scene *scene);

/* Before anything is loaded: of a batch only the sequence of this token. */
void ts_scene_choose(struct ts_scene *scene, uint64_t token);
/* Before anything is loaded: takes these tokens of a long sequence as well, in place of others. */
void ts_scene_take(struct ts_scene *scene, const uint64_t *tokens, size_t count);
/* Which token the element at this flat index of pair i belongs to; false when the pair has no tokens. */
bool ts_scene_token(const struct ts_scene *scene, size_t i, uint64_t index, uint64_t *token);

/* The flat index, in its pair's own shape, of element i of an actor; false when it has none. */
bool ts_scene_index(const struct ts_scene *scene, const struct ts_actor *actor, size_t i, uint64_t *index);

/* Loads the next pair in order and returns its actor; NULL on error. */
struct ts_actor *ts_scene_next(struct ts_scene *scene, struct ts_error *error);
/* The actor of an earlier pair, NULL when it has left the window or is not usable. */
struct ts_actor *ts_scene_actor(struct ts_scene *scene, size_t pair);

/* The row of `from` that serves row `row` of the tokens: its own, its sequence's, or the one for all. */
size_t ts_scene_row(const struct ts_scene *scene, const struct ts_actor *from, size_t row);
/* The first token of the sequence that was chosen of a batch, else 0. */
uint64_t ts_scene_first(const struct ts_scene *scene);
/* "token 5", or "token 5 of sequence 1" of a batch. */
void ts_scene_token_text(const struct ts_scene *scene, uint64_t token, char *out, size_t size);

/* Mantissa bits that values really use: 7 for bf16 in any storage, 10 for f16 and TF32, 3 and 2 for fp8, 23 otherwise;
 * counted over the non-zero finite ones, a few stray values aside. */
int ts_mantissa_bits(const float *values, size_t count);
/* RMS relative error of one rounding to that many stored mantissa bits: 2^-bits * 0.2123 (mantissas spread evenly on a
 * logarithmic scale). */
double ts_rounding(int mantissa_bits);

#endif
