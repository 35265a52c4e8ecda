/* Order: putting tensors of a file that does not keep one into the order a model computes them. */
#ifndef TS_READ_ORDER_H
#define TS_READ_ORDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "tensor/bundle.h"

/* Sorts the tensors from index start on by name, numbers as numbers: layer 9 before layer 10. */
void ts_order_natural(struct ts_bundle *bundle, size_t start);

/* Puts the tensors from index start on into the order of a JSON array of names; tensors it does not name keep their
 * order and come last. A text that is no array of strings changes nothing and returns false. */
bool ts_order_by_list(struct ts_bundle *bundle, size_t start, const char *json, size_t size);

/* Sorts the tensors from index start on by their place in the file; those without bytes keep theirs among them. False
 * without memory, and nothing is changed. */
bool ts_order_by_offset(struct ts_bundle *bundle, size_t start);

/* The tensors from index start on are sorted by name as bytes, possibly within runs of one type: the mark of a library
 * that sorts before it writes, so the order says nothing. */
bool ts_order_is_sorted(const struct ts_bundle *bundle, size_t start);

#endif
