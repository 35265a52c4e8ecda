/* Numbers that masks of attention leave in scores: minus infinity, the lowest number of a type, or a constant that is
 * put in the place of a score or added to it. */
#ifndef TS_TENSOR_MASK_H
#define TS_TENSOR_MASK_H

#include <stdbool.h>
#include <stddef.h>

/* The smallest constant in use is 10000, which is 9984 in bf16. Added to a score it is as much more or less as the
 * score is: by hundreds at most, as softmax of more is of one key alone. A score of thousands is a score. */
#define TS_MASKED_SCORE (-9000)

/* A score that a mask has made, whatever constant was used. Of scores alone: in other tensors such numbers are ordinary
 * ones. */
static inline bool ts_is_masked_score(double score)
{
    return score < TS_MASKED_SCORE;
}

/* Minus infinity or one of the constants, as the types round them. */
bool ts_is_mask_number(double value);

/* The same with a score of at most so much added, and rounded; or two of such constants that were added. */
bool ts_is_near_mask_number(double value, double score);

/* Minus infinity in the place of all such scores, so that they are alike whatever they were written with. */
void ts_hide_masked_scores(float *scores, size_t count);

#endif
