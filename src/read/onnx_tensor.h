/* ONNX's TensorProto: where its numbers are, whichever of the eight ways they are stored in. For onnx.c only. */
#ifndef TS_READ_ONNX_TENSOR_H
#define TS_READ_ONNX_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "read/protobuf.h"
#include "read/reader.h"
#include "tensor/bundle.h"

/* A field as the switch over one sees it: its number and wire type in one, as in the tag. A known number with another
 * wire type is an unknown field, as for every parser of protocol buffers. */
#define TS_WIRE_KEY(number, type) ((uint64_t)(number) << 3 | (type))
#define TS_WIRE_KEY_OF(field)     TS_WIRE_KEY((field).number, (field).type)

/* Text or bytes inside the file. size 0 where the field is absent, which protocol buffers do not tell from empty. */
struct ts_onnx_span {
    uint64_t offset, size;
};

struct ts_onnx_tensor {
    struct ts_wire message; /* all of it, for a second walk */
    struct ts_onnx_span name, raw, location;
    unsigned rank;
    uint64_t dims[TS_MAX_RANK];
    uint64_t data_type;
    uint32_t typed; /* bit per field number that holds numbers */
    bool external, segmented;
    struct ts_onnx_span external_offset, external_length;
};

struct ts_onnx_external {
    const char *location;
    struct ts_source *source;
};

/* What is shared by all tensors of one file. */
struct ts_onnx {
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_onnx_external *externals; /* the files opened so far, each once */
    size_t external_count, external_capacity;
};

void ts_onnx_release(struct ts_onnx *onnx);

/* Only the structure is checked: wire format, number of axes, no negative ones. */
enum ts_status ts_onnx_tensor_parse(const struct ts_wire *message, struct ts_onnx_tensor *parsed,
                                    struct ts_error *error);

/* Adds it to the bundle under that name. On failure the bundle is as it was. */
enum ts_status ts_onnx_tensor_add(struct ts_onnx *onnx, const struct ts_onnx_tensor *parsed, const char *name,
                                  struct ts_error *error);

/* The numbers of a repeated (or single) field of any message, as an array of one axis, or as a scalar: the float (f32)
 * and the int64 (i64) attributes of nodes. */
enum ts_status ts_onnx_numbers_add(struct ts_onnx *onnx, const struct ts_wire *message, uint32_t field,
                                   enum ts_type type, bool scalar, const char *name, struct ts_error *error);

/* Whether the numbers are all there, inside the message: enough to know a bare tensor from noise. */
bool ts_onnx_tensor_is_whole(const struct ts_onnx_tensor *parsed);

/* A NUL-terminated copy in the bundle's arena. Fails on a NUL inside and on text longer than a name may be. */
enum ts_status ts_onnx_text(struct ts_onnx *onnx, struct ts_onnx_span span, const char **text, struct ts_error *error);

/* "float", as ONNX calls data type 1, and our name for it; "type 99" is NULL. */
const char *ts_onnx_type_name(uint64_t data_type);

#endif
