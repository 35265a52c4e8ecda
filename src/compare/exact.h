/* Exact: byte for byte. For checkpoints that should be the same file twice: tells which tensors are, at the speed of
 * memcmp, and names the first byte of those that are not. */
#ifndef TS_COMPARE_EXACT_H
#define TS_COMPARE_EXACT_H

#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/progress.h"
#include "pair/pair.h"

#define TS_EXACT_EQUAL   UINT64_MAX       /* the same bytes */
#define TS_EXACT_UNKNOWN (UINT64_MAX - 1) /* other types or layouts: no bytes to compare */

/* first[i]: index of the first byte of pair i, counted from the tensor's start, that differs; or one of the above. */
enum ts_status ts_exact_run(struct ts_pool *pool, const struct ts_pair *pairs, size_t count, uint64_t *first,
                            struct ts_progress *progress, struct ts_error *error);

/* Where the byte `first` of a pair's data stands in the source of each side, which is the file but for members that
 * were unpacked; nowhere in a file of text. */
#define TS_EXACT_NOWHERE UINT64_MAX
void ts_exact_places(const struct ts_pair *pair, uint64_t first, uint64_t *in_a, uint64_t *in_b);

#endif
