/* Block: the part of a tensor that a request asks for. */
#ifndef TS_SERVE_BLOCK_H
#define TS_SERVE_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "serve/call.h"
#include "serve/opened.h"

/* start= and count= of the query, one number per axis each, checked; *elements is UINT64_MAX when it does not fit.
 * False after failing the call. */
bool ts_block_take(struct ts_call *call, const struct ts_focus *subject, uint64_t *start, uint64_t *count,
                   uint64_t *elements);

#endif
