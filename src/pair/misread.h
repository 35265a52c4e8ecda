/* Misread: the bytes of one tensor are the numbers of another in a type of another width: halves that were declared as
 * floats, floats as halves, doubles as floats. */
#ifndef TS_PAIR_MISREAD_H
#define TS_PAIR_MISREAD_H

#include <stdbool.h>

#include "tensor/tensor.h"

/* Whether the bytes of a tensor, read as `type`, are the first numbers of the other. */
bool ts_misread(const struct ts_tensor *tensor, const struct ts_tensor *other, enum ts_type *type);

/* As ts_misread, where they are all numbers of the other, which has more or fewer than the tensor is said to have. Of
 * two halves in a float the second makes its value: every second number agrees then, and would pass for a slice. */
bool ts_misread_whole(const struct ts_tensor *tensor, const struct ts_tensor *other, enum ts_type *type);

#endif
