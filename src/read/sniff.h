/* Sniff: what to tell about bytes that no reader wants. */
#ifndef TS_READ_SNIFF_H
#define TS_READ_SNIFF_H

#include <stdbool.h>

#include "io/source.h"

/* One line: what it looks like and what to do. Never NULL. */
const char *ts_sniff_reason(const struct ts_source *source);
/* Nothing of value is lost by leaving it out: text, pictures, tokenizers. False for anything that may hold tensors. */
bool ts_sniff_is_harmless(const struct ts_source *source);
/* By its name it may hold tensors. */
bool ts_has_tensor_suffix(const char *name);

#endif
