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
    size_t sequence;    /* tokens of one sequence, whether they are all here or not; without tokens: rows */
    size_t skipped;     /* of some rows of an actor: how many come before them */
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
    bool borrowed; /* the table is another scene's */
};

#define TS_SCENE_ALL 12

struct ts_scene {
    const struct ts_pair *pairs;
    size_t pair_count;
    uint64_t tokens;    /* of all sequences together, 0 when unknown */
    uint64_t batch;     /* sequences that ran at once; 1 is the rule */
    bool heads_first;   /* [heads, tokens, size]: how most tensors with heads are laid out */
    bool in_one_step;   /* attention is learnt from queries, keys and values as well */
    bool in_parts;      /* and norms, rotations and values of a part of what a wider tensor holds; copies are in any
                           case */
    bool first_will_do; /* of tensors that are very wide, as logits are, the first of the tokens */
    bool in_f32;        /* the rows are of one sequence, and f32 will do for products across tokens */
    uint64_t *taken;    /* which tokens, in order */
    size_t taken_count;
    bool *aside;                             /* per taken token: not judged any more (routed otherwise on a near tie) */
    struct ts_actor window[TS_SCENE_WINDOW]; /* ring: pair i is at i % TS_SCENE_WINDOW */
    struct ts_turn turn;
    size_t score_heads;                /* heads of the scores, 0 when there are none: flat captures do not show them */
    size_t loaded;                     /* pairs [0, loaded) have been through */
    struct ts_actor all[TS_SCENE_ALL]; /* of long sequences: keys and values with every token, until the next pair */
    size_t all_count;
};

enum ts_status ts_scene_open(struct ts_scene *scene, const struct ts_pair *pairs, size_t count, struct ts_error *error);
/* A second scene of the same pairs that takes the same tokens. */
enum ts_status ts_scene_open_like(struct ts_scene *scene, const struct ts_scene *other, struct ts_error *error);
/* The same for a look at one pair. A trace may hold two sequences of different lengths (an encoder's and a decoder's, a
 * picture's and a text's): the tokens are those of the sequence that this pair belongs to. */
enum ts_status ts_scene_open_near(struct ts_scene *scene, const struct ts_pair *pairs, size_t count, size_t index,
                                  struct ts_error *error);
void ts_scene_release(struct ts_scene *scene);

/* Before anything is loaded: of a batch only the sequence of this token. */
void ts_scene_choose(struct ts_scene *scene, uint64_t token);
/* Before anything is loaded: takes these tokens of a long sequence as well, in place of others. */
void ts_scene_take(struct ts_scene *scene, const uint64_t *tokens, size_t count);
/* Which token the element at this flat index of pair i belongs to; false when the pair has no tokens. */
bool ts_scene_token(const struct ts_scene *scene, size_t i, uint64_t index, uint64_t *token);

/* Where the tokens of a pair are, for walks over all of it: the token at a flat index is index / after % size, and
 * those of the sequence index / length come behind those of the ones before. */
struct ts_token_axis {
    uint64_t after, size, length, sequence;
};
bool ts_scene_axis(const struct ts_scene *scene, size_t i, struct ts_token_axis *axis);

/* The flat index, in its pair's own shape, of element i of an actor; false when it has none. */
bool ts_scene_index(const struct ts_scene *scene, const struct ts_actor *actor, size_t i, uint64_t *index);

/* Loads the next pair in order and returns its actor; NULL on error. */
struct ts_actor *ts_scene_next(struct ts_scene *scene, struct ts_error *error);

/* The same in two steps, so that several pairs can be loaded at once: any thread loads a pair that is to come, and it
 * enters when it is the next. What did not enter is dropped. */
enum ts_status ts_scene_load(const struct ts_scene *scene, size_t pair, struct ts_actor *actor, struct ts_error *error);
struct ts_actor *ts_scene_enter(struct ts_scene *scene, struct ts_actor *actor);
void ts_scene_drop(struct ts_actor *actor);
/* The scene as it will be when these actors, the next ones, have entered it: for one thread to look at while others
 * look at theirs. Everything is borrowed, but for what it reads or learns itself, which the release gives back. Returns
 * the last of them, there. */
const struct ts_actor *ts_scene_foresee(const struct ts_scene *scene, const struct ts_actor *next, size_t count,
                                        struct ts_scene *foreseen);
void ts_scene_foreseen_release(struct ts_scene *foreseen);
/* Norm and error of an actor, over the rows that count. */
void ts_scene_measure(const struct ts_scene *scene, struct ts_actor *actor);
/* The actor of an earlier pair, NULL when it has left the window or is not usable. */
struct ts_actor *ts_scene_actor(struct ts_scene *scene, size_t pair);

/* The same pair with every token of the sequences that are looked at, for what works across tokens: the actor itself
 * where it has them. Stays until the next pair is loaded. NULL when it is too large, or has no tokens. */
const struct ts_actor *ts_scene_all(struct ts_scene *scene, size_t pair);
/* Which token of its sequence a row of a tensor with tokens is. */
size_t ts_scene_position(const struct ts_scene *scene, const struct ts_actor *actor, size_t row);
/* The row of ts_scene_all's actors that holds the first token of the sequence of this row. */
size_t ts_scene_keys(const struct ts_scene *scene, const struct ts_actor *actor, size_t row);
/* Reads `count` numbers from `column` on of `tokens` tokens from `first` on, in the layout of an actor, whatever the
 * layout of the pair is. */
enum ts_status ts_scene_read(const struct ts_scene *scene, size_t pair, bool candidate, uint64_t first, size_t tokens,
                             size_t column, size_t count, float *out, struct ts_error *error);
/* Tokens of one sequence. */
uint64_t ts_scene_sequence(const struct ts_scene *scene);

/* The row of `from` that serves row `row` of the tokens: its own, its sequence's, or the one for all. */
size_t ts_scene_row(const struct ts_scene *scene, const struct ts_actor *from, size_t row);
/* The first token of the sequence that was chosen of a batch, else 0. */
uint64_t ts_scene_first(const struct ts_scene *scene);
/* "token 5", or "token 5 of sequence 1" of a batch. */
void ts_scene_token_text(const struct ts_scene *scene, uint64_t token, char *out, size_t size);

/* Mantissa bits that values really use: 7 for bf16 in any storage, 10 for f16 and TF32, 3 and 2 for fp8, 23 otherwise;
 * counted over the non-zero finite ones, a few stray values aside. */
int ts_mantissa_bits(const float *values, size_t count);
/* The same of values that were printed with digits worth so many bits: fewer, where they are as near to bf16 or f16 as
 * what the print left of such numbers is. */
int ts_printed_mantissa_bits(const float *values, size_t count, int printed);
/* RMS relative error of one rounding to that many stored mantissa bits: 2^-bits * 0.2123 (mantissas spread evenly on a
 * logarithmic scale). */
double ts_rounding(int mantissa_bits);

#endif
