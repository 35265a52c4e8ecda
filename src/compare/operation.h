/* Operation: what a model did between captured points, learnt from the reference alone.
 *
 * Most tensors of a trace are a simple function of earlier ones: a sum, a norm, a rotation, an activation with a gate,
 * scores, softmax, context, a modulation. Which function, of which earlier tensors and with which constants is found by
 * trying: it must reproduce the reference's own output to within rounding. Replaying it on the candidate's captured
 * inputs then shows the error that the candidate makes *here*, whatever its inputs carry. Operations with weights that
 * a few tokens cannot determine (projections, embeddings, experts) are not learnt. */
#ifndef TS_COMPARE_OPERATION_H
#define TS_COMPARE_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "compare/scene.h"

enum ts_operation_kind {
    TS_OPERATION_NONE,
    TS_OPERATION_COPY,
    TS_OPERATION_SUM,        /* of two or three */
    TS_OPERATION_SCALED_SUM, /* x + factor * y */
    TS_OPERATION_NORM,       /* x / rms(x) * w (+ bias), with or without the mean removed */
    TS_OPERATION_ROTARY,
    TS_OPERATION_ACTIVATION, /* f(x), or f(x) * y, f(x) * (y + 1) or f(x + y) with two operands */
    TS_OPERATION_SCORES,     /* factor * q . k, grouped heads */
    TS_OPERATION_SOFTMAX,    /* with the mask read off the reference; of one input, or of factor * q . k */
    TS_OPERATION_CONTEXT,    /* probabilities times values, grouped heads */
    TS_OPERATION_ATTENTION,  /* context of queries, keys and values, nothing between them captured */
    TS_OPERATION_TOPK,       /* the largest probabilities of a router, renormalized or not */
    TS_OPERATION_MODULATE,   /* x * (1 + scale) + shift, chunks of a modulation tensor; or without a shift */
    TS_OPERATION_GATED_SUM,  /* x + factor * gate * y, gate a chunk of a modulation tensor, or its tanh */
    TS_OPERATION_SCALE       /* factor * x, or factor * tanh(x / factor) */
};

enum ts_activation {
    TS_ACTIVATION_SILU,
    TS_ACTIVATION_GELU,
    TS_ACTIVATION_GELU_TANH,
    TS_ACTIVATION_QUICK_GELU,
    TS_ACTIVATION_RELU,
    TS_ACTIVATION_SIGMOID,
    TS_ACTIVATION_TANH,
    TS_ACTIVATION_RELU_SQUARED,
    TS_ACTIVATION_SOFTPLUS,
    TS_ACTIVATION_IDENTITY,
    TS_ACTIVATION_COUNT
};

/* Scales, shifts and gates of a block that one modulation tensor holds, at most. */
#define TS_MOST_CHUNKS 9
#define TS_NO_CHUNK    UINT32_MAX

struct ts_operation {
    enum ts_operation_kind kind;
    size_t inputs[3]; /* pairs */
    unsigned input_count;
    double residual; /* relative error of the learnt operation on the reference itself */
    double factor;
    double epsilon;   /* NORM */
    double shaken;    /* ATTENTION, SOFTMAX of two: by how much scores are moved, which were rounded and not captured; 0
                         but where it is asked what rounding does */
    double cap;       /* ATTENTION, SCORES, SOFTMAX of two: softcap of the scores, 0 when there is none */
    bool centred;     /* NORM: the mean is removed */
    bool interleaved; /* ROTARY: pairs (2 i, 2 i + 1) instead of (i, i + half) */
    bool flag;    /* TOPK: renormalized; MODULATE: 1 + scale; GATED_SUM: tanh of the gate; SCALE: softcap; ATTENTION:
                     causal */
    bool sigmoid; /* TOPK: of sigmoids instead of softmax */
    bool fused;   /* ACTIVATION: both operands are parts of one input */
    bool summed;  /* ACTIVATION: f(x + y) */
    bool plus;    /* ACTIVATION: f(x) * (y + 1) */
    double limit; /* ACTIVATION of two operands: x is no larger, nor is y, either way; 0 when there is none */
    enum ts_activation activation;
    bool part[2]; /* ACTIVATION: this operand is a part of a wider input, from column places[] on */
    size_t places[2];
    bool alternate; /* ACTIVATION: parts are every second column of their input, from places[] on */
    size_t group;   /* NORM: numbers per norm; ROTARY: numbers of a head that turn; ATTENTION: window, 0 when there is
                       none */
    size_t heads;   /* ROTARY, SCORES, SOFTMAX of two, ATTENTION: heads of the output, whatever shape the inputs were
                       captured in */
    size_t size;    /* ATTENTION: numbers of a query, and of a key; ACTIVATION: of an operand */
    /* COPY, NORM, ROTARY, CONTEXT: of every `stride` numbers of the input (the values) those from `place` on, as many
     * as there are in a head of the output, as a tensor has them that holds more than one thing; 0 where it is as wide
     * as that */
    size_t stride, place;
    unsigned chunk, other_chunk; /* MODULATE: scale and shift, TS_NO_CHUNK without one; GATED_SUM: gate */
    /* NORM: weights, then biases; ROTARY: cosines, then sines, per token and pair; SOFTMAX: a sink per head, or NULL;
     * TOPK: the experts that the candidate chose, by row, where a bias or groups choose them, else NULL;
     * SCORES: a bias per head and distance key - row, from 1 - sequence on, or NULL; ATTENTION: where each head begins
     * in a row of queries, then of keys, then of values */
    double *table;
    size_t table_count;
};

const char *ts_activation_name(enum ts_activation activation);
double ts_activation_value(enum ts_activation activation, double x);

/* Learns how `actor` (the newest of the scene) came about; kind is NONE when nothing fits. */
enum ts_status ts_operation_learn(struct ts_scene *scene, const struct ts_actor *actor, struct ts_operation *operation,
                                  struct ts_error *error);
/* Where nothing was learnt, or a rotation or attention, and another rotation has been learnt before since: looks again
 * for one, and is true when that took the place of what was learnt. */
bool ts_operation_turn_again(struct ts_scene *scene, const struct ts_actor *actor, struct ts_operation *operation);
/* Of a router's weights: makes them those of the experts that the candidate chose, as captured shortly before or behind
 * them, whatever the largest are. *choice is that pair; false when there is none. */
bool ts_operation_choice(struct ts_scene *scene, const struct ts_actor *actor, struct ts_operation *operation,
                         size_t *choice);
void ts_operation_release(struct ts_operation *operation);

/* The actor that serves as input `slot`: keys and values with every token, everything else with the scene's own rows.
 * NULL when it is not to be had. */
const struct ts_actor *ts_operation_input(struct ts_scene *scene, const struct ts_operation *operation, unsigned slot);
/* Each number is made of those at its own place: a channel or a token that is far larger than the others has roundings
 * of its own, which are none of theirs. */
bool ts_operation_is_by_place(enum ts_operation_kind kind);
/* A matrix product of captured tensors: rows of its second input are keys, not rows of the output. */
bool ts_operation_is_product(const struct ts_operation *operation);

/* Applies it to inputs given as doubles, [rows, width] of the actors of ts_operation_input; out has the actor's rows *
 * width. -inf in the result says "must be masked". */
void ts_operation_apply(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                        double *const *inputs, double *out);

/* Of an activation: whether it has two operands, and element i of one; from and inputs as in ts_operation_apply. */
bool ts_operation_has_two(const struct ts_operation *operation);
double ts_operation_operand(const struct ts_operation *operation, const struct ts_actor *actor,
                            const struct ts_actor *const from[3], double *const *inputs, unsigned slot, size_t i);

/* By what an input is shaken: a number near a normal distribution of variance 1 that depends on its arguments only. */
double ts_noise_at(uint64_t seed, uint64_t index);

struct ts_replay {
    double ratio;      /* error made here, in units of what rounding explains, or of what is left of it where another
                          usual function, epsilon, soft cap or axis leaves far less; where each number is made of those
                          at its place, that of the middle channel if it is larger */
    double rival;      /* one does, by this factor: it is no rounding, in whatever precision; else 0 */
    double worst_part; /* the same for the worst row (or head of a row) */
    size_t worst_row, worst_head;
    double calm;  /* share of the rows (or heads of rows) that are as near as rounding explains */
    double local; /* relative L2 of the error made here */
    double
        worst_channel_part; /* as worst_part, for the worst channel over at least four rows; 0 when there are fewer */
    size_t worst_channel;
    double slope; /* correlation of the error made here with what was expected, -1 to 1; the smaller one of all numbers
                     as they are and of every channel counted alike */
    const char *rounded; /* what inputs were rounded to between where they were captured and used; NULL: nothing */
    double matched;      /* by ts_operation_match; only asked where nothing else speaks against rounding */
};

/* Whether all numbers together tell that the two sides differ by the kind of gelu, or by an epsilon, which may be far
 * below what each number is rounded by: how many standard errors they are apart, and what the reference and the
 * candidate compute, with borrowed tables; else 0. */
double ts_operation_match(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                          struct ts_operation sides[2]);
/* One side of an actor's values, as operations take them; to be freed; NULL without memory. */
double *ts_as_doubles(const float *values, size_t count);
/* Replays it on the candidate. */
enum ts_status ts_operation_replay(struct ts_scene *scene, const struct ts_operation *operation,
                                   const struct ts_actor *actor, struct ts_replay *replay, struct ts_error *error);
/* Where a norm's replay is off, and the candidate's weights are the reference's as sixteen bits store them: the replay
 * with those instead. */
enum ts_status ts_operation_replay_stored(struct ts_scene *scene, const struct ts_operation *operation,
                                          const struct ts_actor *actor, struct ts_replay *replay,
                                          struct ts_error *error);

/* Where a replay is off, and rounding what goes in or halfway explains all of it: that replay instead. */
enum ts_status ts_operation_replay_rounded(struct ts_scene *scene, const struct ts_operation *operation,
                                           const struct ts_actor *actor, struct ts_replay *replay,
                                           struct ts_error *error);

/* "silu(mlp.gate_proj) * mlp.up_proj" */
void ts_operation_text(const struct ts_scene *scene, const struct ts_operation *operation, struct ts_buffer *out);

/* How many numbers of a head may turn, the n-th guess: all, half or a quarter of them, as most models have it, then any
 * other even number. 0 behind the last. */
size_t ts_turning_numbers(size_t head, size_t n);
/* Nearly every guess is wrong, so that the angles of all rows are fitted only where a look at one row, best the last
 * one, which turns most, allows it: a few of its pairs have turned by one angle in all heads, up to one factor, and
 * what stands behind them is as it was. Some are fitted in vain even so, where nothing turns at all, but no more than
 * so many. */
bool ts_may_turn(const float *from, const float *to, size_t width, const struct ts_operation *rotary, double tolerance);
#define TS_TURNS_FITTED 48

#endif
