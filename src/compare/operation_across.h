/* Products of many rows with what every token of their sequence holds, in f32 and in tiles (base/matrix.h): for proofs,
 * where what was learnt in double is put to all rows. */
#ifndef TS_COMPARE_OPERATION_ACROSS_H
#define TS_COMPARE_OPERATION_ACROSS_H

#include <stdbool.h>
#include <stddef.h>

struct ts_across {
    const double *rows; /* queries or probabilities, [row_count, heads * part] */
    size_t row_count, heads, part;
    const double *all; /* keys or values of every token, [keys, width]: head g begins at g * size */
    size_t keys, width, size;
    const size_t *serves; /* which head of `all` serves each; NULL: as many in a row the same as there are */
};

/* out [row_count, heads * keys]: queries times keys, part is size. False without memory. */
bool ts_across_scores(const struct ts_across *across, double *out);
/* out [row_count, heads * size]: probabilities times values, part is keys. False as well where a value is no number,
 * which counts for those alone that see it. */
bool ts_across_context(const struct ts_across *across, double *out);

#endif
