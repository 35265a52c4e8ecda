/* The header of a .npy file: a Python dictionary in text, parsed without Python.
 *
 * A plain array has one field named "". An array of records has one field for each number in the record,
 * nested records flattened ("a.b") and padding left out. Fields that this program cannot show carry a
 * `problem`; the layout of the others is known all the same. */
#ifndef TS_READ_NPY_HEADER_H
#define TS_READ_NPY_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "io/source.h"
#include "tensor/tensor.h"
#include "tensor/type.h"

#define TS_NPY_MAGIC      "\x93NUMPY"
#define TS_NPY_MAGIC_SIZE 6

struct ts_npy_field {
    const char *name; /* UTF-8, no NUL */
    const char *descr;
    enum ts_type type;
    bool swapped;
    /* Not 0: ml_dtypes gives each element of a type below eight bits a byte of its own, of which only these
     * low bits count. */
    unsigned bits;
    uint64_t offset; /* in the record */
    uint64_t size;   /* of one element in the file */
    unsigned rank;   /* axes inside the record, outermost first: their lengths and their steps in bytes */
    uint64_t shape[TS_MAX_RANK], steps[TS_MAX_RANK];
    const char *note;    /* what a person should know, or NULL */
    bool guess;          /* the type is not certain; the note says why */
    const char *problem; /* why it cannot be read, or NULL */
};

struct ts_npy_header {
    unsigned major, minor;
    bool fortran;
    bool record;  /* descr is a list: fields are named */
    bool objects; /* Python objects: the data is a pickle */
    unsigned rank;
    uint64_t shape[TS_MAX_RANK];
    uint64_t item_size;
    uint64_t data_offset; /* in the source */
    struct ts_npy_field **fields;
    size_t field_count, field_capacity;
    struct ts_arena arena;
};

/* Parses the header at byte `offset` of the source. On failure nothing is left to release. */
enum ts_status ts_npy_header_read(struct ts_npy_header *header, const struct ts_source *source, uint64_t offset,
                                  struct ts_error *error);
void ts_npy_header_release(struct ts_npy_header *header);

/* Bytes of the whole array; false when the product does not fit. */
bool ts_npy_header_bytes(const struct ts_npy_header *header, uint64_t *bytes);

/* Fills in type, byte order, size, note and problem from a descriptor string. False: there is no such type.
 */
bool ts_npy_dtype(struct ts_npy_field *field, const char *descr);
/* Records of one field were, and are, used to give bare bytes a type by the field's name: [('bfloat16',
 * '<u2')]. When name is such a type and the field is bare bytes of its size, takes the type and returns true.
 */
bool ts_npy_dtype_named(struct ts_npy_field *field, const char *name);

#endif
