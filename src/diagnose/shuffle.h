/* Shuffle: the same values in another order, as an index map. Internal to src/diagnose.
 *
 * Nearly every wrong layout is one swap of two neighbouring axes of the right factorization: a flat array seen as
 * [outer, first, second, inner] and written as [outer, second, first, inner]. Transposing, interleaving against halves,
 * head orders, q/k/v per head against q/k/v per tensor and a strided buffer read as contiguous are all of this kind. */
#ifndef TS_DIAGNOSE_SHUFFLE_H
#define TS_DIAGNOSE_SHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ts_shuffle {
    uint64_t outer, first, second, inner; /* their product is the count of the domain */
    int where;                            /* enum ts_shuffle_where: what it was enumerated for */
};

enum ts_shuffle_where { TS_SHUFFLE_COLUMNS, TS_SHUFFLE_ROWS, TS_SHUFFLE_AXES };

/* Where the element at flat index i of the shuffled array comes from. */
static inline uint64_t ts_shuffle_source(const struct ts_shuffle *shuffle, uint64_t i)
{
    uint64_t inner = i % shuffle->inner, rest = i / shuffle->inner;
    uint64_t first = rest % shuffle->first, second = rest / shuffle->first % shuffle->second;
    uint64_t outer = rest / shuffle->first / shuffle->second;
    return ((outer * shuffle->first + first) * shuffle->second + second) * shuffle->inner + inner;
}

/* Calls `each` for every way to swap: inside the rows of a matrix [rows, columns], among its rows when across is set,
 * and of the axes of `shape` (may be NULL). Stops after `most`. */
void ts_shuffle_each(uint64_t rows, uint64_t columns, bool across, const uint64_t *shape, unsigned rank, size_t most,
                     void (*each)(const struct ts_shuffle *shuffle, void *context), void *context);

/* In words, with the head size where it is known (0 otherwise): "halves of each head are interleaved". */
void ts_shuffle_text(const struct ts_shuffle *shuffle, uint64_t rows, uint64_t columns, uint64_t heads, char *text,
                     size_t room);
/* What undoes it: "reshape(4, 8, 2, 64).swap(1, 2)". */
void ts_shuffle_recipe(const struct ts_shuffle *shuffle, char *text, size_t room);

#endif
