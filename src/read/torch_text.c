/* Torch text: small values of a pickle in words, for metadata and for the keys of dicts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read/torch.h"

/* Bytes that are written as text are counted so far: the same text may be named over and over. */
#define MAX_COUNTED 4096

/* With as few digits as read back equal. */
static bool append_float(struct ts_buffer *out, double number)
{
    char text[32];
    snprintf(text, sizeof text, "%.15g", number);
    if (strtod(text, NULL) != number)
        snprintf(text, sizeof text, "%.17g", number);
    return ts_buffer_string(out, text);
}

static void append_bytes(struct ts_buffer *out, const struct ts_pickle_bytes *bytes)
{
    ts_buffer_append(out, bytes->data, (size_t)(bytes->size < TS_TORCH_MAX_NAME ? bytes->size : TS_TORCH_MAX_NAME));
}

bool ts_torch_describe_items(struct ts_buffer *out, const struct ts_pickle_value *items, uint64_t count, unsigned depth)
{
    for (uint64_t i = 0; i < count && out->size <= TS_TORCH_META_CUT; i++) {
        if (i)
            ts_buffer_string(out, ", ");
        if (!ts_torch_describe(out, items[i], depth + 1))
            return false;
    }
    return true;
}

/* torch.Size([2, 3]), cpu, <module.Class>, <module.Enum>(3). */
static bool describe_object(struct ts_buffer *out, const struct ts_pickle_object *object, unsigned depth)
{
    const struct ts_pickle_tuple *arguments = object->arguments.tuple;
    char name[TS_TORCH_META_CUT];
    enum ts_torch_known known = ts_torch_known(object->callable);
    struct ts_pickle_value first = ts_torch_argument(object, 0);
    if (known == TS_TORCH_SIZE && first.kind == TS_PICKLE_TUPLE) {
        bool whole;
        ts_buffer_string(out, "torch.Size([");
        whole = ts_torch_describe_items(out, first.tuple->items, first.tuple->count, depth);
        ts_buffer_string(out, "])");
        return whole;
    }
    if (known == TS_TORCH_DEVICE)
        return ts_torch_describe_items(out, arguments->items, arguments->count, depth);
    if (known == TS_TORCH_ENCODE && first.kind == TS_PICKLE_TEXT) {
        uint64_t count = 0, looked_at = first.bytes->size < MAX_COUNTED ? first.bytes->size : MAX_COUNTED;
        for (uint64_t i = 0; i < looked_at; i++) /* characters, one byte each */
            count += (first.bytes->data[i] & 0xc0) != 0x80;
        return ts_buffer_printf(out, "%s%" PRIu64 " bytes", looked_at < first.bytes->size ? "more than " : "", count);
    }
    if (known == TS_TORCH_LAYOUT || known == TS_TORCH_CONVERSION)
        return ts_torch_describe(out, first, depth + 1);
    if (object->callable.kind != TS_PICKLE_GLOBAL || ts_torch_is_tensor(known) || known == TS_TORCH_MAPPING ||
        known == TS_TORCH_SEQUENCE)
        return false;
    ts_torch_global_text(object->callable.global, name, sizeof name);
    ts_buffer_printf(out, "<%s>", name);
    if (arguments->count) {
        bool whole;
        ts_buffer_byte(out, '(');
        whole = ts_torch_describe_items(out, arguments->items, arguments->count, depth);
        ts_buffer_byte(out, ')');
        return whole;
    }
    return true;
}

bool ts_torch_describe(struct ts_buffer *out, struct ts_pickle_value value, unsigned depth)
{
    char name[TS_TORCH_META_CUT];
    bool whole;
    if (depth > 4)
        return false;
    switch (value.kind) {
    case TS_PICKLE_NONE:
        return ts_buffer_string(out, "None");
    case TS_PICKLE_BOOL:
        return ts_buffer_string(out, value.truth ? "True" : "False");
    case TS_PICKLE_INT:
        return ts_buffer_printf(out, "%" PRId64, value.integer);
    case TS_PICKLE_BIG:
        ts_pickle_big_text(value.bytes, out);
        return true;
    case TS_PICKLE_FLOAT:
        return append_float(out, value.number);
    case TS_PICKLE_TEXT:
    case TS_PICKLE_STRING:
        append_bytes(out, value.bytes);
        return true;
    case TS_PICKLE_BYTES:
        return ts_buffer_printf(out, "%" PRIu64 " bytes", value.bytes->size);
    case TS_PICKLE_TUPLE:
        ts_buffer_byte(out, '(');
        whole = ts_torch_describe_items(out, value.tuple->items, value.tuple->count, depth);
        ts_buffer_byte(out, ')');
        return whole;
    case TS_PICKLE_GLOBAL:
        ts_torch_global_text(value.global, name, sizeof name);
        return ts_buffer_printf(out, ts_torch_known(value) == TS_TORCH_DTYPE ? "%s" : "<%s>", name);
    case TS_PICKLE_OBJECT:
        return describe_object(out, value.object, depth);
    default:
        return false;
    }
}
