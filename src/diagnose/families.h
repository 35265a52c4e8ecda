/* The families of causes, each in its own file, and what they share beyond family.h. Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_FAMILIES_H
#define TS_DIAGNOSE_FAMILIES_H

#include <math.h>
#include <stdint.h>

#include "diagnose/family.h"
#include "diagnose/glance.h"
#include "tensor/mask.h"

extern const struct ts_family ts_family_memory;
extern const struct ts_family ts_family_rotary;
extern const struct ts_family ts_family_turns;
extern const struct ts_family ts_family_turned;
extern const struct ts_family ts_family_activation;
extern const struct ts_family ts_family_attention;
extern const struct ts_family ts_family_experts;
extern const struct ts_family ts_family_modulation;
extern const struct ts_family ts_family_wiring;
extern const struct ts_family ts_family_layout;
extern const struct ts_family ts_family_weights;
extern const struct ts_family ts_family_products;
extern const struct ts_family ts_family_given;
extern const struct ts_family ts_family_hidden;
extern const struct ts_family ts_family_vectors;
extern const struct ts_family ts_family_norm;
extern const struct ts_family ts_family_algebra;
extern const struct ts_family ts_family_places;
extern const struct ts_family ts_family_types;
extern const struct ts_family ts_family_twins;

/* expected is -inf where the reference masks ("anything that low will do"), so families that compute with it must look.
 * What one element adds to the error when `value` was expected of it; -1 when it does not count (NaN and +inf, which
 * have causes of their own). */
static inline double ts_element_cost(double found, double value, double expected)
{
    bool found_masked = found == -INFINITY || (expected == -INFINITY && ts_is_masked_score(found));
    if (isnan(found) || isnan(value) || found == INFINITY || value == INFINITY)
        return -1;
    if (value == -INFINITY)
        return found_masked || ts_is_masked_score(found) ? 0 : found * found + 1;
    if (found_masked)
        return value * value + 1;
    return (found - value) * (found - value);
}

/* Rows that do not count: tokens that were routed to other experts on a near tie. */
bool ts_case_aside(const struct ts_case *the_case, size_t row);
/* The index along the original first axis (the token) that a row of the case stands for. */
uint64_t ts_case_row(const struct ts_case *the_case, size_t row);
/* The values were read directly from the pair, not through the scene: a weight, integers, a giant. There are no earlier
 * actors then, and rows are rows of the matrix [all but the last axis, last axis]. */
bool ts_case_direct(const struct ts_case *the_case);
/* What a row is called: "token"; "row" where it was read directly; "channel" of images, [1, channels, height, width],
 * whose other axes are lines and columns of pixels. */
const char *ts_case_row_word(const struct ts_case *the_case);
bool ts_case_is_image(const struct ts_case *the_case);
/* The same, and a row is no row of the matrix but a stretch of a very long axis. */
bool ts_case_folded(const struct ts_case *the_case);
/* The values are one term of a sum, what is left of it without the others. */
bool ts_case_is_part(const struct ts_case *the_case);
/* Of a long sequence, of which the case holds some tokens: the error of every one; NULL when all are here. */
const struct ts_glance *ts_case_glance(const struct ts_case *the_case);
/* Whether causes of this id are asked for: a proof asks for one. Worth a look before anything expensive. */
bool ts_case_wants(const struct ts_case *the_case, const char *id);
/* Every element of the pair is in the case. */
bool ts_case_complete(const struct ts_case *the_case);
const struct ts_pair *ts_case_pair(const struct ts_case *the_case);
size_t ts_case_pair_count(const struct ts_case *the_case);
/* Nothing but rounding is left of the error. */
bool ts_case_quiet(const struct ts_case *the_case);
/* A weight that differs no more than the others of its file do: where it differs most tells nothing. */
bool ts_case_ordinary(const struct ts_case *the_case);
/* What the candidate's norm is given, when the operation is one: its input, or the sum of its two inputs. Valid until
 * the family returns; NULL otherwise. */
const double *ts_case_norm_input(struct ts_case *the_case);
/* Where a norm's weights and biases are chunks of a captured tensor, as in adaptive norms, the candidate's own chunks
 * take the place of the reference's in the case's operation. In family_modulation.c. */
void ts_adapt_norm(struct ts_case *the_case);
/* A name that ends as parameters of a checkpoint do. */
bool ts_is_weight(const char *name);
/* What to check: about a step of a run, or about a weight, which no step has made and which has no tokens. */
const char *ts_case_check(const struct ts_case *the_case, const char *of_step, const char *of_weight);
/* Where element i of the case stands in the pair's own shape, flat; false when that cannot be told. */
bool ts_case_index(const struct ts_case *the_case, size_t i, uint64_t *flat);
/* Text in the diagnosis' arena, "" without memory. */
const char *ts_case_text(struct ts_case *the_case, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
