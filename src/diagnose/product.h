/* Product: a captured tensor as an earlier one times a weight of the file. Internal to src/diagnose.
 *
 * Which weight makes a tensor is found by content, from the reference alone: a few numbers of the product against the
 * same numbers of the trace. Names only say where to look first. What was found is then replayed on the candidate's own
 * input, and other weights, inputs and layouts in the same way. */
#ifndef TS_DIAGNOSE_PRODUCT_H
#define TS_DIAGNOSE_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnose/evidence.h"
#include "diagnose/family.h"

/* Rows of a weight within each head of `size` numbers: as they stand, or halves read as pairs and the reverse. */
enum ts_turn_of_rows { TS_ROWS_PLAIN, TS_ROWS_INTERLEAVED, TS_ROWS_HALVES };

struct ts_product {
    const struct ts_weight *weight; /* NULL: there is none */
    enum ts_weights_of where;
    struct ts_view matrix; /* [channels, inputs]: the weight, or its transpose */
    bool transposed;
    uint64_t first; /* row of the matrix that makes channel 0 */
    enum ts_turn_of_rows turn;
    size_t head; /* numbers per head, for the turn */
    const struct ts_actor *input;
    const size_t *order;          /* the input's numbers in another order; NULL: as they stand */
    const struct ts_weight *bias; /* NULL: none is added */
    double bias_times;
    double residual; /* of the reference, relative */
};

/* Some tokens and some channels of a tensor. */
#define TS_SAMPLE_ROWS     64
#define TS_SAMPLE_CHANNELS 512
struct ts_sample {
    size_t rows[TS_SAMPLE_ROWS], row_count;
    size_t channels[TS_SAMPLE_CHANNELS], channel_count;
};

/* About so many of each, spread without a pattern; the case's worst row is among them. */
void ts_sample_take(const struct ts_case *the_case, size_t rows, size_t channels, struct ts_sample *sample);
/* The product's values of one side, [row_count, channel_count]. False when they cannot be read. */
bool ts_product_values(const struct ts_product *product, bool candidate, const struct ts_sample *sample, double *out);
/* All rows and channels of the actor; multiplications are counted before. */
bool ts_product_replay(const struct ts_product *product, const struct ts_actor *actor, double *out);
double ts_product_work(const struct ts_product *product, const struct ts_actor *actor);
/* What makes the products of a row's `width` channels with directions, [width, count], of the row's input: weights
 * [inputs, count], and offsets [count] from the bias. The order of the input is not looked at. */
bool ts_product_directions(const struct ts_product *product, size_t width, const float *directions, size_t count,
                           float *weights, double *offsets);

/* The weight that makes the reference; product->weight is NULL when none does. */
void ts_product_learn(struct ts_case *the_case, const struct ts_evidence *evidence, struct ts_product *product);
/* "model.layers.3.self_attn.q_proj.weight", or its rows: "rows 64 to 127 of ...". */
const char *ts_product_name(struct ts_case *the_case, const struct ts_product *product);

/* What the weights of the file say about the case: NULL without a file, or when none makes this tensor. */
const struct ts_product *ts_case_product(const struct ts_case *the_case);
const struct ts_evidence *ts_case_evidence(const struct ts_case *the_case); /* may be NULL */
/* Weights of the reference were given, whether one of them makes this tensor or not. */
bool ts_case_has_weights(const struct ts_case *the_case);

#endif
