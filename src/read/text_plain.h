/* Plain text: numbers without a header of ours. One per line, a matrix (white space, commas or semicolons between;
 * numpy.savetxt; CSV with a line of names), or what Python prints for a tensor, an array or a nested list. */
#ifndef TS_READ_TEXT_PLAIN_H
#define TS_READ_TEXT_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "read/values.h"

struct ts_plain {
    uint64_t numbers;
    /* lines */
    uint64_t rows, columns; /* columns of the first row */
    bool uneven;            /* some row has another number of columns */
    const char *names;      /* the line of names that stands before the numbers, or NULL */
    size_t names_size;
    /* brackets */
    bool bracketed; /* then nest says the shape */
    bool ellipsis;  /* a print that was shortened */
    struct ts_nest nest;
    const char *dtype, *shape; /* of "tensor([...], dtype=..., size=...)", or NULL */
    size_t dtype_size, shape_size;
};

/* Walks the text and adds its numbers to values. values may be NULL to only look, and then lists without a shape and
 * missing numbers are passed over: a text with such an error is still one of numbers. With cut set the text may end
 * anywhere between two tokens. */
enum ts_status ts_plain_parse(const char *text, size_t size, bool cut, struct ts_values *values, struct ts_plain *plain,
                              struct ts_error *error);

/* Fails with: line 812: "abc" is not a number */
enum ts_status ts_plain_fail(const char *text, size_t size, size_t at, struct ts_error *error);
/* The line that byte `at` stands in, from 1. */
uint64_t ts_plain_line(const char *text, size_t at);

/* True for what may follow a number: white space, a separator, a closing bracket, a comment. */
static inline bool ts_plain_ends(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == ',' || c == ';' || c == ']' || c == ')' || c == '#';
}

/* Reads a shape: "(1, 3)", "3x5", "[3, 5]", "torch.Size([3])", "()" and "" for a scalar. shape has room for
 * TS_MAX_RANK entries. */
bool ts_plain_shape(const char *text, size_t size, uint64_t *shape, unsigned *rank);

#endif
