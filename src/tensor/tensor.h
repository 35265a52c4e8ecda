/* Tensor: a description of numbers in a source. No data.
 *
 * Element [i, j, ...] stands at byte `offset + (i * strides[0] + j * strides[1] + ...) * element size` of the source.
 * strides is NULL for row-major without gaps, the only layout that block types, types under a byte and coded tensors
 * have. A reader fills in the fields and calls ts_tensor_finish, which is where every size is checked; after that the
 * whole span is known to lie inside the source. */
#ifndef TS_TENSOR_TENSOR_H
#define TS_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "io/source.h"
#include "tensor/type.h"

#define TS_MAX_RANK 64

struct ts_tensor;

/* How values come out of several stored tensors. */
struct ts_codec {
    const char *name; /* "awq", "gptq", "nf4", "torch affine per channel" */
    /* count values from flat row-major index first. Called from several threads. */
    enum ts_status (*read_f32)(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                               struct ts_error *error);
    /* One line on how element `index` is made: "code 11, zero 8, scale 0.0123 (group 4)". May be NULL. */
    void (*explain)(const struct ts_tensor *tensor, uint64_t index, struct ts_buffer *out);
};

struct ts_attribute {
    const char *key, *value; /* "axes" -> "tokens,heads", "scheme" -> "awq 4 bits, groups of 128" */
    struct ts_attribute *next;
};

struct ts_tensor {
    const char *name;
    const char *file; /* the member it came from, relative to the input; set by open */
    enum ts_type type;
    bool swapped;     /* big-endian file */
    int printed_bits; /* numbers that were printed with few digits: mantissa bits that are worth as much; else 0 */
    bool parsed;      /* its bytes were made here from text: they are not those of the file */
    bool sampled;     /* the file holds only some of the elements (truncated dump); shape says what was written */
    unsigned rank;
    uint64_t *shape;       /* rank entries; may be NULL when rank is 0 */
    uint64_t *whole_shape; /* sampled by its corners: rank entries, the shape of the whole; else NULL */
    uint64_t *whole_head;  /* then: of axis i the first whole_head[i] entries are there, the others are the last ones */
    int64_t *strides;      /* in elements, or NULL */
    uint64_t count;        /* product of shape; by ts_tensor_finish */
    uint64_t bytes;        /* distinct bytes it spans; for coded tensors the sum of its parts; by ts_tensor_finish */
    struct ts_source *source; /* kept alive by the bundle */
    uint64_t offset;
    uint64_t span_offset;         /* first byte touched, below offset with negative strides; by ts_tensor_finish */
    const struct ts_codec *codec; /* TS_CODED only */
    void *codec_data;
    struct ts_tensor **parts; /* TS_CODED only: what the codec reads */
    size_t part_count;
    struct ts_attribute *attributes;
};

/* Computes count, bytes and span, and checks them: product of the shape fits, rank within TS_MAX_RANK, the span lies
 * in the source, whole blocks in the last axis for ggml types. */
enum ts_status ts_tensor_finish(struct ts_tensor *tensor, struct ts_error *error);

bool ts_tensor_same_shape(const struct ts_tensor *a, const struct ts_tensor *b);
/* Its bytes stand side by side in row-major order (so ts_tensor_bytes may be used). */
bool ts_tensor_is_contiguous(const struct ts_tensor *tensor);
/* Its bytes, when contiguous and not coded; else NULL. */
const uint8_t *ts_tensor_bytes(const struct ts_tensor *tensor);

/* The functions that read say here where: element `first` of `count` that stand for the tensor (see ts_source_look). */
void ts_tensor_look(const struct ts_tensor *tensor, uint64_t first, uint64_t count);

/* Decode count elements from flat row-major index first: in range, any alignment to blocks, any strides, any type.
 * Complex elements give two numbers each. Thread-safe. Ask for some thousand elements at a time. */
enum ts_status ts_tensor_read_f32(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                                  struct ts_error *error);
enum ts_status ts_tensor_read_f64(const struct ts_tensor *tensor, uint64_t first, size_t count, double *out,
                                  struct ts_error *error);
/* Integer and bool types only. u64 keeps its bits. */
enum ts_status ts_tensor_read_i64(const struct ts_tensor *tensor, uint64_t first, size_t count, int64_t *out,
                                  struct ts_error *error);

/* Appends one element as text: integers exactly, floats with `precision` significant digits (0: as many as the type
 * needs to be read back), complex as "1+2i", bool as true/false. */
enum ts_status ts_tensor_element_text(const struct ts_tensor *tensor, uint64_t index, int precision,
                                      struct ts_buffer *out, struct ts_error *error);

/* Appends "[3,5]" ("[]" for a scalar). */
/* Equal but for axes of one element. */
bool ts_same_sizes(const uint64_t *a, unsigned rank_a, const uint64_t *b, unsigned rank_b);
void ts_tensor_shape_text(const struct ts_tensor *tensor, struct ts_buffer *out);
/* The name of its element type as printed: the codec's for coded tensors. */
const char *ts_tensor_type_name(const struct ts_tensor *tensor);
const char *ts_tensor_attribute(const struct ts_tensor *tensor, const char *key); /* or NULL */

#endif
