/* Facts: what every form of a report says about a comparison, worked out once. */
#ifndef TS_REPORT_FACTS_H
#define TS_REPORT_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "compare/comparison.h"

#define TS_MOST_INPUTS 4

const char *ts_judged_name(enum ts_judged judged);    /* "ok", "noise", "differs", "cannot tell" */
const char *ts_outcome_name(enum ts_outcome outcome); /* "match", "differ", "incomplete" */

/* "[9,4,16]" of a pair that can be compared; "[9,4] / [9]" of one that cannot. */
void ts_put_pair_shape(struct ts_buffer *out, const struct ts_pair *pair);
void ts_put_view_shape(struct ts_buffer *out, const struct ts_view *view);
/* "[8,0,3]" for a flat index of the view. */
void ts_put_coordinates(struct ts_buffer *out, const struct ts_view *view, uint64_t index);
/* Splits a flat index; coordinates has room for the rank, at most TS_MAX_RANK. */
void ts_view_coordinates(const struct ts_view *view, uint64_t index, uint64_t *coordinates);
/* The element type as printed; joins give their first part's. */
const char *ts_view_type_name(const struct ts_view *view);

/* A number in few characters: two significant digits, no exponent where it can be helped; "nan" and "inf". */
void ts_put_short(struct ts_buffer *out, double value);

/* Element types of a bundle by number of tensors, most first: "f32", "bf16, f32 and 3 more". Returns how many. */
size_t ts_put_types(struct ts_buffer *out, const struct ts_bundle *bundle);
/* The precision most of the compared tensors of one side really use, in stored mantissa bits, when it is lower than
 * what their types can hold; else -1. */
int ts_held_precision(const struct ts_comparison *comparison, bool candidate);
void ts_put_precision(struct ts_buffer *out, int mantissa_bits); /* "bf16", "f16", "fp8 e4m3", "f32", or "12-bit" */
/* The types of one side and what its values really use: "f32 holding bf16 values". */
void ts_put_types_in_use(struct ts_buffer *out, const struct ts_comparison *comparison, bool candidate);
/* The coarser of the two precisions of a pair. */
int ts_pair_precision(const struct ts_delta *delta);

struct ts_report_cost;
/* ", in 0.25 s, at most 41 MB of memory", or nothing. costs: of A and of B, or NULL. */
void ts_put_cost(struct ts_buffer *out, const struct ts_report_cost *costs, bool candidate);

/* Of tensors that are idle (pair/pair.h). */
#define TS_IDLE_TEXT "of experts that got no token which both sides sent there"
/* Why the pair was judged as it was, or "". */
const char *ts_reason(const struct ts_comparison *comparison, size_t index);

/* "2 of 76 tokens that were routed to other experts on a near tie: 3, 17", `most` of them by number; of those that were
 * set aside by a guess, or of the others. Nothing, and false, when there are none. */
bool ts_put_aside(struct ts_buffer *out, const struct ts_judgement *judgement, bool guessed, size_t most);

/* One of the files holds only some of the elements. */
bool ts_is_sampled(const struct ts_pair *pair);

/* Skipped members that mattered. */
size_t ts_harmful_skips(const struct ts_bundle *bundle);

/* Pairs before `index` that the text of its operation names; at most TS_MOST_INPUTS. */
size_t ts_operation_inputs(const struct ts_comparison *comparison, size_t index, size_t inputs[TS_MOST_INPUTS]);

/* How many tensors of the reference stand between the pair before this one and this one, and have no partner; *from:
 * the first of them in only_a, where they follow each other. 0 also where the reference's own order is not that of the
 * run, and nothing tells what stands where. */
size_t ts_uncaptured(const struct ts_comparison *comparison, size_t index, size_t *from);
/* "the reference has 16 tensors between model.layers.1 and this one that the candidate lacks, ...: capture them, too",
 * where no inputs of it were compared; else nothing. */
void ts_put_uncaptured(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index);

/* The element to show for a pair: the first NaN or infinity that stands on one side only, else the largest difference.
 * UINT64_MAX when there is none or it cannot be read. */
uint64_t ts_worst_element(const struct ts_comparison *comparison, size_t index, double *a, double *b);

/* "reference 1.5, candidate 2", which the pair holds at this place: six digits, and as many more as tell the two apart;
 * of integers all. */
void ts_put_two(struct ts_buffer *out, const struct ts_pair *pair, uint64_t at, double a, double b);
/* The same of integers, which a double has only up to 2^53. False where the pair is not of integers. */
bool ts_put_integers(struct ts_buffer *out, const struct ts_pair *pair, uint64_t at);

/* The delta with NaN for its measures where no element was finite on both sides: zeros and a cosine of one would read
 * as agreement. */
struct ts_delta ts_shown_delta(const struct ts_delta *delta);

/* How bad a pair is, for "the worst first": NaN and infinities on one side above all numbers, then relative L2. -1 for
 * a pair that could not be compared. */
double ts_badness(const struct ts_comparison *comparison, size_t index);
/* "top-1 agrees in 8 of 9 rows, ...": what a difference means for logits and probabilities. */
void ts_put_ranking(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index);
/* Its rows are logits or probabilities, and there in full: the largest of a sample is not the largest of the row. */
bool ts_has_ranking(const struct ts_comparison *comparison, size_t index);
/* Its rows choose tokens. */
bool ts_is_output(const struct ts_comparison *comparison, size_t index);

/* No difference was found: the same values everywhere, and not judged otherwise (bit by bit, 0 and -0 differ). */
bool ts_is_equal(const struct ts_comparison *comparison, size_t index);
/* Equivalent roundings mean something for it: floats, measured, all finite. */
bool ts_has_roundings(const struct ts_comparison *comparison, size_t index);

/* How a pair stands in a few words: "noise, 2.1 roundings of bf16", "equal", "differs, 12 nan/inf on one side". */
void ts_put_standing(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index);

/* The pairs by how they were found: "62 of 62 by name", "62 of 64 and 70: 60 by name, 2 by content". With
 * a filter it counts what passed. */
void ts_put_pairing(struct ts_buffer *out, const struct ts_comparison *comparison);

/* What a row says besides its numbers: "candidate blk.1.q, B: swap 0 1, a guess". Empty when there is nothing. Names
 * are not escaped. */
void ts_put_remark(struct ts_buffer *out, const struct ts_pair *pair);

#endif
