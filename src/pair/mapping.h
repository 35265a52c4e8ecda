/* Mapping: what a person says is to be done to B's tensor of a pair: axes in another order, then parts of axes. In
 * words, as map files have them: "permute 1 0 2 | slice 0 3:11", stretches from and up to an index, the end when it is
 * left out. */
#ifndef TS_PAIR_MAPPING_H
#define TS_PAIR_MAPPING_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "tensor/view.h"

#define TS_MAPPING_SLICES 64

struct ts_mapping_slice {
    uint64_t axis, start, count; /* UINT64_MAX: to the end */
};

struct ts_mapping {
    unsigned permute[TS_MAX_RANK];
    unsigned permuted; /* how many; 0: as it is */
    struct ts_mapping_slice slices[TS_MAPPING_SLICES];
    size_t slice_count;
};

enum ts_status ts_mapping_parse(const char *words, struct ts_mapping *mapping, struct ts_error *error);
void ts_mapping_put(struct ts_buffer *out, const struct ts_mapping *mapping, const char *between);
/* Permutes b, cuts it, and gives it a's shape, from which it may differ by axes of one element. */
enum ts_status ts_mapping_apply(const struct ts_mapping *mapping, const struct ts_view *a, struct ts_view *b,
                                struct ts_arena *arena, struct ts_error *error);

#endif
