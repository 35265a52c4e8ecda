/* For tests of the ONNX reader: messages built field by field after onnx.proto, and the reader run over them. */
#ifndef TS_TEST_ONNX_MESSAGE_H
#define TS_TEST_ONNX_MESSAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "io/folder.h"
#include "read/readers.h"

struct opened {
    struct ts_input input;
    struct ts_bundle *bundle;
    struct ts_error error;
    enum ts_status status;
};

static inline void finish(struct opened *opened)
{
    ts_bundle_free(opened->bundle);
    if (opened->input.folder)
        ts_folder_free(opened->input.folder);
    ts_spool_free(opened->input.spool);
    ts_source_release(opened->input.source);
}

static inline void read_now(struct opened *opened)
{
    opened->input.spool = ts_spool_new((uint64_t)1 << 24);
    opened->bundle = ts_bundle_new("test");
    assert_non_null(opened->input.spool);
    assert_non_null(opened->bundle);
    opened->status = ts_reader_onnx.read(&opened->input, opened->bundle, &opened->error);
}

/* A message under construction. */
struct message {
    uint8_t data[4096];
    size_t size;
};

static inline void raw_varint(struct message *message, uint64_t value)
{
    assert_true(message->size + 10 <= sizeof message->data);
    for (; value >= 0x80; value >>= 7)
        message->data[message->size++] = (uint8_t)(value | 0x80);
    message->data[message->size++] = (uint8_t)value;
}

static inline void varint(struct message *message, unsigned field, uint64_t value)
{
    raw_varint(message, field << 3);
    raw_varint(message, value);
}

static inline void bytes(struct message *message, unsigned field, const void *data, size_t size)
{
    raw_varint(message, field << 3 | 2);
    raw_varint(message, size);
    assert_true(message->size + size <= sizeof message->data);
    if (size)
        memcpy(message->data + message->size, data, size);
    message->size += size;
}

static inline void text(struct message *message, unsigned field, const char *value)
{
    bytes(message, field, value, strlen(value));
}

static inline void inside(struct message *message, unsigned field, const struct message *inner)
{
    bytes(message, field, inner->data, inner->size);
}

static inline void fixed32(struct message *message, unsigned field, float value)
{
    raw_varint(message, field << 3 | 5);
    memcpy(message->data + message->size, &value, 4);
    message->size += 4;
}

static inline struct message tensor_of(const char *name, unsigned type, unsigned count)
{
    struct message tensor = {.size = 0};
    varint(&tensor, 1, count);
    varint(&tensor, 2, type);
    text(&tensor, 8, name);
    return tensor;
}

static inline struct message model_of(const struct message *graph)
{
    struct message model = {.size = 0}, opset = {.size = 0};
    varint(&model, 1, 8);
    inside(&model, 7, graph);
    varint(&opset, 2, 17);
    inside(&model, 8, &opset);
    return model;
}

static inline struct opened open_bytes(const void *data, size_t size)
{
    struct opened opened = {.input = {.member = "m.onnx"}};
    ts_error_clear(&opened.error);
    assert_int_equal(ts_source_copy(data, size, "m.onnx", &opened.input.source, &opened.error), TS_OK);
    read_now(&opened);
    return opened;
}

static inline struct opened open_graph(const struct message *graph)
{
    struct message model = model_of(graph);
    return open_bytes(model.data, model.size);
}

static inline void pack_varints(struct message *tensor, unsigned field, const int64_t *values, size_t count)
{
    struct message row = {.size = 0};
    for (size_t i = 0; i < count; i++)
        raw_varint(&row, (uint64_t)values[i]);
    inside(tensor, field, &row);
}

static inline void check(const struct opened *opened, size_t index, const char *name, enum ts_type type,
                         const double *expected, size_t count)
{
    double values[64];
    struct ts_error error;
    if (opened->status != TS_OK)
        fail_msg("%s", opened->error.message);
    if (index >= opened->bundle->count)
        fail_msg("no tensor %s: %s", name, opened->bundle->skip_count ? opened->bundle->skips[0].reason : "");
    const struct ts_tensor *tensor = opened->bundle->tensors[index];
    assert_string_equal(tensor->name, name);
    assert_int_equal(tensor->type, type);
    assert_int_equal(tensor->count, count);
    size_t numbers = count * ts_type_info(type)->components;
    assert_true(numbers <= 64);
    assert_int_equal(ts_tensor_read_f64(tensor, 0, count, values, &error), TS_OK);
    for (size_t i = 0; i < numbers; i++)
        if (!(values[i] == expected[i]))
            fail_msg("%s[%zu] is %.17g, not %.17g", name, i, values[i], expected[i]);
}

#define VALUES(...) (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)

#endif
