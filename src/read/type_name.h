/* Type names: the many ways in which people write an element type in a header or a sidecar. */
#ifndef TS_READ_TYPE_NAME_H
#define TS_READ_TYPE_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/type.h"

/* The type called name: this program's own names, those of numpy (also "<f4"), torch ("torch.bfloat16"), safetensors
 * ("BF16"), C and MLX, in any case. *swapped is set when the name says big-endian and left alone otherwise. False when
 * no type has that name. */
bool ts_type_from_name(const char *name, size_t size, enum ts_type *type, bool *swapped);

#endif
