/* Text dialects: tensors as lines of numbers under a header of "# Key: value" lines. debug dumps that people write by
 * hand: whole, or the first and last 50 elements, or the first 100, or the bits of fp16 in hexadecimal. */
#ifndef TS_READ_TEXT_DIALECT_H
#define TS_READ_TEXT_DIALECT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "read/reader.h"
#include "read/values.h"

/* The comment lines at the start name a tensor and its shape. */
bool ts_dialect_is(const char *text, size_t size);
/* text is the input's source behind a byte order mark. Several dumps may follow one another. */
enum ts_status ts_dialect_read(struct ts_input *input, const char *text, size_t size, struct ts_values *values,
                               struct ts_bundle *bundle, struct ts_error *error);

#endif
