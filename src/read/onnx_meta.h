/* What an ONNX model says about itself, as metadata of the bundle. For onnx.c only. */
#ifndef TS_READ_ONNX_META_H
#define TS_READ_ONNX_META_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "read/onnx_tensor.h"

/* Counts the operators of a model. Fixed in size: real models have some dozens of kinds; past the room they count as
 * nodes only. */
#define TS_ONNX_OP_SLOTS 1024

struct ts_onnx_ops {
    struct {
        const char *name; /* in the file, not terminated; NULL: free */
        uint64_t size, count;
    } slots[TS_ONNX_OP_SLOTS];
    size_t used;
    uint64_t nodes;
};

void ts_onnx_ops_count(struct ts_onnx_ops *ops, const char *name, uint64_t size);

/* Producer, versions, operator sets, metadata_props, the graph's name, inputs and outputs. */
enum ts_status ts_onnx_describe_model(struct ts_onnx *onnx, struct ts_error *error);
/* Number of nodes and the ten most frequent operators. */
enum ts_status ts_onnx_describe_ops(struct ts_onnx *onnx, const struct ts_onnx_ops *ops, struct ts_error *error);

/* A repeated int64 field as "[3,4]". What does not fit is cut and ends in "...". */
enum ts_status ts_onnx_dims_text(struct ts_wire message, uint32_t field, char *text, size_t room,
                                 struct ts_error *error);

#endif
