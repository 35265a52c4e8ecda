/* Every cause of the vocabulary, put to the proof of its power and of its silence.
 *
 * A row of a table plants one fault in a small made run and says what must be told of it. The same run is then made
 * without the fault, in several precisions, and nothing may be said. Runs are made in double arithmetic that shares
 * nothing with the library, in several sizes, each with numbers of its own. test_causes.c runs the tables and fails
 * when a cause that src/diagnose can name has no row. */
#ifndef TS_TEST_CAUSES_H
#define TS_TEST_CAUSES_H

#include "made_trace.h"

struct size {
    size_t tokens, heads, served, head, inner, experts, chosen; /* served: heads of keys; inner: of the MLP */
    uint64_t seed;
    bool heads_first; /* queries, keys, scores and probabilities are stored as [1, heads, tokens, ...] */
};

enum precision { F32, BF16, F16 };

enum norm_weight { WEIGHT, ONE_PLUS_WEIGHT, NO_WEIGHT, WEIGHT_TWICE, WEIGHT_OF_THE_FIRST };
enum residual { WHOLE, MISSING, DOUBLED, SUBTRACTED, FROM_NORM, BRANCH_MISSING, BRANCH_DOUBLED };
enum function { SILU, GELU, GELU_TANH, GELU_QUICK, RELU, NO_FUNCTION, ON_THE_OTHER, WITHOUT_UP, SINE, LIMITED };

/* What is done with the weights of a file. */
enum weighing {
    AS_IT_SHOULD,
    OF_ANOTHER_LAYER,
    OF_THE_KEYS,
    TRANSPOSED,
    RANDOM,
    WITHOUT_BIAS,
    BIAS_TWICE,
    BIAS_OF_ANOTHER,
    OTHER_INPUT,
    ROTARY_ROWS,
    NORM_OF_ANOTHER,
    NORM_PLUS_ONE,
    NORM_NOT_APPLIED
};

/* How a run computes. All zero: as most models do. */
struct way {
    bool small;      /* the input */
    bool zero_token; /* the third token is nothing but zeros */
    bool layer_norm, undivided, norm_bias, no_bias;
    enum norm_weight norm_weight, mlp_norm_weight;
    double epsilon, base, position, last_position, temperature, cap, cap_logits, limit;
    bool backwards, interleaved, half_turned, most_turned, unturned, turned_twice;
    bool masked_scores; /* minus infinity stands in the scores */
    bool unmasked, masked_late, over_queries, no_softmax, tiled, exchanged, unscaled;
    int ahead, window;  /* keys that are seen too early; how far back is seen */
    size_t stale_token; /* its key is its predecessor's; counted from 1 */
    bool swapped_projections, o_transposed, o_random, norm_skipped, norm_of_input, bias_twice, bias_missing;
    enum residual attn_residual, mlp_residual;
    enum function function;
    size_t column; /* of the down projection, left out; counted from 1 */
    /* experts */
    bool rolled; /* half of the experts stand where the other half belongs */
    bool sigmoid, unnormalized, ignored, reversed, tied, shared_missing, shared, shared_gated, gate_before, ungated,
        gate_bare, twice, first_alone, biased, bias_in_weights;
    size_t exchanged_expert;      /* with the next; counted from 1 */
    double routed_scale, sharper; /* factors of the weights, of the logits */
    size_t first_rank;            /* the best so many are passed over */
    enum weighing weights;
    /* adaptive norms */
    bool chunks_exchanged, one_missing, shift_missing, shift_early, gate_missing, gate_other, gate_negative, large,
        modulated_unnormed, one_twice, shift_negative, shift_absent, chunks_interleaved, gate_tanh, gate_sigmoid,
        gate_on_stream, gate_on_both;
};

struct point {
    const char *name;
    unsigned rank;
    uint64_t shape[4];
    size_t count;
    double *values;
    bool integers;
    bool by_head;      /* [tokens, heads, ...], which heads_first turns around */
    char own_name[64]; /* of a weight */
};

struct row;

/* One run of the two. */
struct side {
    const struct row *row;
    const struct size *size;
    const struct way *way;
    enum precision precision;
    bool candidate, planted;
    struct point points[40];
    size_t count;
    struct point file[24]; /* the model's weights, where they are at hand */
    size_t file_count;
    const struct side *reference; /* of a candidate */
    double told[8];               /* numbers of the fault, for the words */
};

struct row {
    const char *id;       /* of the first cause; NULL: no cause at all */
    const char *variant;  /* for people */
    const char *at;       /* the point that is diagnosed, and where `plant` does its work */
    const char *words[5]; /* that the summary must hold; {tokens}, {hidden} ..., {0} and {~0} are filled in */
    const char *check;    /* that the advice must hold */
    const char *near;     /* ids that it could be confused with and that may not be said first */
    const char *beside;   /* ids that may be said after it; no other is */
    void (*made)(struct side *side);
    void (*plant)(struct side *side, double *values, size_t count);
    struct way reference, candidate;
    double number;      /* for the planter */
    const char *hidden; /* points that were not captured: parts of their names, with spaces between */
    bool clean;         /* finer than bf16 can tell */
    bool rough;         /* its figures come from a sample */
    bool wide;          /* numbers that f16 cannot hold */
    bool undo;          /* the advice is a reshape and a transpose, which must bring the reference back */
};

struct table {
    const char *name;
    const struct row *rows;
    size_t count;
};

#define TABLE(name, rows)                                                                                              \
    {                                                                                                                  \
        name, rows, sizeof(rows) / sizeof *(rows)                                                                      \
    }

/* What the makers below are made of. */
void draw_from(uint64_t seed);
double drawn(void); /* from -1 to 1 */
double *point(struct side *side, const char *name, unsigned rank, const uint64_t *shape);
void settle(struct side *side, double *values);          /* plants the fault, rounds */
double *weights(size_t count, double mean, double size); /* until the next forget_weights */
/* A candidate in f32 adds in the other order, and in single precision. */
double dot(const struct side *side, const double *x, const double *weight, size_t count, size_t stride);
void forget_weights(void);
const double *value_of(const struct side *side, const char *name);
size_t hidden(const struct size *size);
/* The candidate's numbers; `from` may be the reference's. */
double round_to(double value, enum precision precision);
uint16_t f16_code(double value); /* of a number that f16 holds; by search, which has nothing to do with an encoder */

/* A decoder layer; a mixture of experts; a block of a diffusion model; two tensors that have nothing to do with each
 * other, small and large; a checkpoint; a stream of hidden states. */
void make_layer(struct side *side);
void make_mixture(struct side *side);
void make_block(struct side *side);
void make_two(struct side *side);
void make_large(struct side *side);
void make_checkpoint(struct side *side);
void make_stream(struct side *side);

extern const struct table causes_algebra, causes_layout, causes_rotary, causes_wiring, causes_attention, causes_experts,
    causes_modulation, causes_memory, causes_types, causes_weights;

#endif
