/* Variant: the learnt operation done in another way on the candidate's own inputs. What the families that know
 * operations share. Internal to src/diagnose.
 *
 * A variant is tried on a run of rows around the worst one first; only what explains something there is worth computing
 * for everything. */
#ifndef TS_DIAGNOSE_VARIANT_H
#define TS_DIAGNOSE_VARIANT_H

#include <stdbool.h>
#include <stddef.h>

#include "diagnose/families.h"
#include "diagnose/formula.h"
#include "tensor/mask.h"

struct ts_variants {
    struct ts_case *the_case;
    const struct ts_operation *operation;
    const struct ts_actor *from[3]; /* its inputs */
    double *inputs[3];              /* the candidate's values of them, whole */
    size_t first, count;            /* the rows that are tried first */
    double cost;                    /* of what was expected, on those rows */
    double *out;                    /* the case's total; predictions are made here */
};

/* The operation is the case's, or one that the family has learnt. False when it is none, or without memory; then
 * nothing is to be closed. */
bool ts_variants_open(struct ts_variants *variants, struct ts_case *the_case, const struct ts_operation *operation);
void ts_variants_close(struct ts_variants *variants);

/* Share of the error on the rows tried first that the operation on these inputs explains; leaves its values for those
 * rows in variants->out. Inputs are whole arrays, of which only those rows need to be filled where rows go by rows. */
double ts_variants_try(struct ts_variants *variants, const struct ts_operation *operation, double *const *inputs);
/* The same share for values already in variants->out. */
double ts_variants_share(const struct ts_variants *variants, const double *prediction);
/* Everything, in variants->out. */
const double *ts_variants_apply(struct ts_variants *variants, const struct ts_operation *operation,
                                double *const *inputs);
/* Whether row r of input `slot` makes row r of the output; keys and values of attention do not. */
bool ts_variants_by_rows(const struct ts_variants *variants, const struct ts_operation *operation, unsigned slot);

/* The run of rows around the one with the largest error, about `elements` long. */
void ts_worst_rows(const struct ts_case *the_case, size_t elements, size_t *first, size_t *count);
/* Squared differences between what was found and a prediction over a run of rows; rows set aside do not count. */
double ts_rows_cost(const struct ts_case *the_case, const double *prediction, size_t first, size_t count);

/* The case can be looked at by families that know operations: values through the scene, an error above noise. */
bool ts_case_in_scene(const struct ts_case *the_case);

/* A number with so many digits that count, written out as configurations do: 500000, not 5e+05. */
const char *ts_plain_number(double value, int digits, char text[32]);

/* What a name says: queries, keys or values; what attention makes of them. In attention_operands.c. */
bool ts_names_operand(const char *name);
bool ts_names_attention(const char *name);
/* What the probabilities make of the values, before the projection that follows. */
bool ts_names_context(const char *name);

/* Attention whose scores or probabilities were not captured (fused kernels): learnt here, from queries, keys and values
 * to probabilities or context, and its variants proposed. In attention_fused.c. */
void ts_propose_fused_attention(struct ts_case *the_case);
/* Of scores and probabilities; true when they follow from captured queries and keys, whatever is said. */
bool ts_propose_inner_attention(struct ts_case *the_case);
/* Keys or values that are other tokens': one of them, and all of them one place off. In attention_stale.c. */
void ts_propose_stale_token(struct ts_case *the_case, struct ts_variants *variants);
void ts_propose_shifted_tokens(struct ts_case *the_case, struct ts_variants *variants);
/* Another function of what was not captured. In activation_values.c. */
void ts_propose_other_function(struct ts_case *the_case);
/* A function of what is right already. In activation_values.c. */
void ts_propose_function_on_top(struct ts_case *the_case);
/* Attention of which only the end was captured. In attention_unseen.c. */
void ts_propose_unseen_attention(struct ts_case *the_case);
/* Probabilities alone, on both sides. In attention_probabilities.c. */
void ts_propose_probabilities(struct ts_case *the_case);
/* Gates of a block's branches that were not captured. In modulation_gates.c. */
void ts_propose_learnt_gates(struct ts_case *the_case);
/* The norm of a gated sum that was not captured. In modulation_hidden.c. */
void ts_propose_gated_norm(struct ts_case *the_case);
static inline bool ts_is_allowed(double score)
{
    return score >= TS_MASKED_SCORE;
}

/* Heads of keys or values that are not those of the reference, and exchanged operands. In attention_heads.c. */
void ts_propose_heads(struct ts_case *the_case, struct ts_variants *variants);
void ts_propose_exchanged(struct ts_case *the_case, struct ts_variants *variants);
/* Queries, keys or values split into heads in another way. In attention_splits.c. */
void ts_propose_splits(struct ts_case *the_case, struct ts_variants *variants);

/* Scores that differ by a slope over the distance. In attention_bias.c. */
void ts_propose_distance_bias(struct ts_case *the_case);
/* Contexts whose heads have a factor each, in every token. In attention_bias.c. */
void ts_propose_head_factors(struct ts_case *the_case);

#endif
