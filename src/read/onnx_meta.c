/* Owns the metadata of ONNX models: versions, producer, operator sets, inputs and outputs, operator counts. */
#include "read/onnx_meta.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"

/* Entries of metadata that are shown; a model has some dozens at most, and old ones list every initializer among the
 * inputs. */
#define MAX_PROPERTIES 1024
#define MAX_VALUES     64
/* Of one value: class lists and licence texts fit. */
#define MAX_VALUE_BYTES 65536

static struct ts_onnx_span span_of(const struct ts_wire_field *field)
{
    return (struct ts_onnx_span){field->offset, field->size};
}

static const char *text_at(const struct ts_onnx *onnx, struct ts_onnx_span span)
{
    return (const char *)onnx->input->source->data + span.offset;
}

/* Unlike names, values may be cut: at a NUL, and where they are very long. */
static enum ts_status add_text(struct ts_onnx *onnx, const char *key, struct ts_onnx_span span, struct ts_error *error)
{
    const char *text = text_at(onnx, span), *value;
    uint64_t shown = span.size < MAX_VALUE_BYTES ? span.size : MAX_VALUE_BYTES;
    if (shown == span.size)
        value = ts_arena_copy(&onnx->bundle->arena, text, (size_t)shown);
    else
        value = ts_arena_printf(&onnx->bundle->arena, "%.*s... (%" PRIu64 " bytes)", (int)shown, text, span.size);
    if (!value)
        return ts_fail_memory(error);
    return *value ? ts_bundle_meta(onnx->bundle, key, value, error) : TS_OK;
}

static enum ts_status add_number(struct ts_onnx *onnx, const char *key, uint64_t value, struct ts_error *error)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, (int64_t)value);
    return ts_bundle_meta(onnx->bundle, key, text, error);
}

/* StringStringEntryProto: key 1, value 2. */
static enum ts_status add_property(struct ts_onnx *onnx, struct ts_wire entry, struct ts_error *error)
{
    struct ts_onnx_span key = {0, 0}, value = {0, 0};
    struct ts_wire_field field;
    const char *name;
    do {
        TS_TRY(ts_wire_next(&entry, &field, error));
        if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(1, TS_WIRE_BYTES))
            key = span_of(&field);
        else if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(2, TS_WIRE_BYTES))
            value = span_of(&field);
    } while (field.number);
    TS_TRY(ts_onnx_text(onnx, key, &name, error));
    return add_text(onnx, name, value, error);
}

/* OperatorSetIdProto: domain 1 (absent: ai.onnx), version 2. */
static enum ts_status add_opset(struct ts_onnx *onnx, struct ts_wire entry, struct ts_error *error)
{
    struct ts_onnx_span domain = {0, 0};
    uint64_t version = 0;
    struct ts_wire_field field;
    const char *name = "ai.onnx";
    char key[128];
    do {
        TS_TRY(ts_wire_next(&entry, &field, error));
        if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(1, TS_WIRE_BYTES))
            domain = span_of(&field);
        else if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(2, TS_WIRE_VARINT))
            version = field.value;
    } while (field.number);
    if (domain.size)
        TS_TRY(ts_onnx_text(onnx, domain, &name, error));
    snprintf(key, sizeof key, "opset.%s", name);
    return add_number(onnx, key, version, error);
}

enum ts_status ts_onnx_dims_text(struct ts_wire message, uint32_t number, char *text, size_t room,
                                 struct ts_error *error)
{
    struct ts_buffer out;
    struct ts_wire_field field;
    enum ts_status status;
    ts_buffer_init(&out, room - 5); /* "...]" and the NUL */
    while ((status = ts_wire_next(&message, &field, error)) == TS_OK && field.number) {
        struct ts_wire inside = ts_wire_inside(&message, &field); /* a row of them, or the one number itself */
        if (field.number != number || (field.type != TS_WIRE_BYTES && field.type != TS_WIRE_VARINT))
            continue;
        while (inside.at < inside.end && status == TS_OK) {
            uint64_t value;
            status = ts_wire_varint(&inside, &value, error);
            if (status == TS_OK && !out.failed)
                ts_buffer_printf(&out, "%s%" PRId64, out.size ? "," : "", (int64_t)value);
        }
        if (status != TS_OK)
            break;
    }
    snprintf(text, room, "[%s%s]", out.data ? out.data : "", out.failed ? "..." : "");
    ts_buffer_release(&out);
    return status;
}

/* TensorShapeProto: dim 1, each a dim_value 1 or a dim_param 2. */
static enum ts_status shape_text(const struct ts_onnx *onnx, struct ts_wire shape, struct ts_buffer *out,
                                 struct ts_error *error)
{
    struct ts_wire_field field, part;
    unsigned count = 0;
    ts_buffer_byte(out, '[');
    do {
        TS_TRY(ts_wire_next(&shape, &field, error));
        if (TS_WIRE_KEY_OF(field) != TS_WIRE_KEY(1, TS_WIRE_BYTES))
            continue;
        if (count++ >= TS_MAX_RANK)
            continue;
        struct ts_wire dim = ts_wire_inside(&shape, &field);
        struct ts_onnx_span symbol = {0, 0};
        uint64_t value = UINT64_MAX;
        do {
            TS_TRY(ts_wire_next(&dim, &part, error));
            if (TS_WIRE_KEY_OF(part) == TS_WIRE_KEY(1, TS_WIRE_VARINT))
                value = part.value;
            else if (TS_WIRE_KEY_OF(part) == TS_WIRE_KEY(2, TS_WIRE_BYTES))
                symbol = span_of(&part);
        } while (part.number);
        ts_buffer_string(out, count > 1 ? "," : "");
        if (symbol.size)
            ts_buffer_printf(out, "%.*s", (int)(symbol.size < 40 ? symbol.size : 40), text_at(onnx, symbol));
        else if (value <= INT64_MAX)
            ts_buffer_printf(out, "%" PRIu64, value);
        else
            ts_buffer_byte(out, '?');
    } while (field.number);
    ts_buffer_string(out, count > TS_MAX_RANK ? ",...]" : "]");
    return TS_OK;
}

/* TypeProto: tensor 1, sequence 4, map 5, opaque 7, sparse tensor 8, optional 9. Tensors: elem_type 1, shape 2. */
static enum ts_status type_text(const struct ts_onnx *onnx, struct ts_wire type, struct ts_buffer *out,
                                struct ts_error *error)
{
    static const char *const kinds[] = {[4] = "sequence", [5] = "map", [7] = "opaque", [9] = "optional"};
    struct ts_wire_field field, part;
    do {
        TS_TRY(ts_wire_next(&type, &field, error));
        if (field.type != TS_WIRE_BYTES)
            continue;
        if (field.number < sizeof kinds / sizeof *kinds && kinds[field.number])
            ts_buffer_string(out, kinds[field.number]);
        if (field.number != 1 && field.number != 8)
            continue;
        struct ts_wire tensor = ts_wire_inside(&type, &field), shape = {.source = NULL};
        uint64_t element = 0;
        do {
            TS_TRY(ts_wire_next(&tensor, &part, error));
            if (TS_WIRE_KEY_OF(part) == TS_WIRE_KEY(1, TS_WIRE_VARINT))
                element = part.value;
            else if (TS_WIRE_KEY_OF(part) == TS_WIRE_KEY(2, TS_WIRE_BYTES))
                shape = ts_wire_inside(&tensor, &part);
        } while (part.number);
        const char *name = ts_onnx_type_name(element);
        ts_buffer_printf(out, "%s%s", field.number == 8 ? "sparse " : "", name ? name : "unknown type");
        if (shape.source) {
            ts_buffer_byte(out, ' ');
            TS_TRY(shape_text(onnx, shape, out, error));
        }
    } while (field.number);
    return TS_OK;
}

/* ValueInfoProto: name 1, type 2; as "input.x" -> "float [1,4]". */
static enum ts_status add_value(struct ts_onnx *onnx, const char *kind, struct ts_wire value, struct ts_error *error)
{
    struct ts_onnx_span name = {0, 0};
    struct ts_wire_field field;
    struct ts_buffer out;
    enum ts_status status;
    const char *text, *key;
    ts_buffer_init(&out, 4096);
    while ((status = ts_wire_next(&value, &field, error)) == TS_OK && field.number) {
        if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(1, TS_WIRE_BYTES))
            name = span_of(&field);
        else if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(2, TS_WIRE_BYTES))
            status = type_text(onnx, ts_wire_inside(&value, &field), &out, error);
        if (status != TS_OK)
            break;
    }
    if (status == TS_OK)
        status = ts_onnx_text(onnx, name, &text, error);
    if (status == TS_OK) {
        key = ts_arena_printf(&onnx->bundle->arena, "%s.%s", kind, text);
        status = key ? ts_bundle_meta(onnx->bundle, key, out.data ? out.data : "", error) : ts_fail_memory(error);
    }
    ts_buffer_release(&out);
    return status;
}

/* GraphProto: name 2, input 11, output 12. */
static enum ts_status describe_graph(struct ts_onnx *onnx, struct ts_wire graph, struct ts_error *error)
{
    struct ts_wire_field field;
    uint64_t inputs = 0, outputs = 0;
    do {
        TS_TRY(ts_wire_next(&graph, &field, error));
        if (field.type != TS_WIRE_BYTES)
            continue;
        if (field.number == 2)
            TS_TRY(add_text(onnx, "graph", span_of(&field), error));
        else if (field.number == 11 && inputs++ < MAX_VALUES)
            TS_TRY(add_value(onnx, "input", ts_wire_inside(&graph, &field), error));
        else if (field.number == 12 && outputs++ < MAX_VALUES)
            TS_TRY(add_value(onnx, "output", ts_wire_inside(&graph, &field), error));
    } while (field.number);
    if (inputs > MAX_VALUES)
        TS_TRY(add_number(onnx, "inputs", inputs, error));
    return outputs > MAX_VALUES ? add_number(onnx, "outputs", outputs, error) : TS_OK;
}

static enum ts_status describe_field(struct ts_onnx *onnx, struct ts_wire inside, const struct ts_wire_field *field,
                                     struct ts_error *error)
{
    switch (TS_WIRE_KEY_OF(*field)) {
    case TS_WIRE_KEY(1, TS_WIRE_VARINT):
        return add_number(onnx, "ir_version", field->value, error);
    case TS_WIRE_KEY(2, TS_WIRE_BYTES):
        return add_text(onnx, "producer_name", span_of(field), error);
    case TS_WIRE_KEY(3, TS_WIRE_BYTES):
        return add_text(onnx, "producer_version", span_of(field), error);
    case TS_WIRE_KEY(4, TS_WIRE_BYTES):
        return add_text(onnx, "domain", span_of(field), error);
    case TS_WIRE_KEY(5, TS_WIRE_VARINT):
        return add_number(onnx, "model_version", field->value, error);
    case TS_WIRE_KEY(6, TS_WIRE_BYTES):
        return add_text(onnx, "doc_string", span_of(field), error);
    case TS_WIRE_KEY(7, TS_WIRE_BYTES):
        return describe_graph(onnx, inside, error);
    case TS_WIRE_KEY(8, TS_WIRE_BYTES):
        return add_opset(onnx, inside, error);
    case TS_WIRE_KEY(14, TS_WIRE_BYTES):
        return add_property(onnx, inside, error);
    default:
        return TS_OK;
    }
}

enum ts_status ts_onnx_describe_model(struct ts_onnx *onnx, struct ts_error *error)
{
    struct ts_wire wire = ts_wire_all(onnx->input->source);
    struct ts_wire_field field;
    unsigned shown = 0;
    do {
        TS_TRY(ts_wire_next(&wire, &field, error));
        struct ts_error why;
        ts_error_clear(&why);
        /* Metadata that cannot be read is a pity; the tensors may be fine. */
        if (shown++ < MAX_PROPERTIES && describe_field(onnx, ts_wire_inside(&wire, &field), &field, &why) != TS_OK)
            TS_TRY(ts_bundle_find(onnx->bundle, NULL, error, "metadata at byte %" PRIu64 ": %s", field.start,
                                  why.message));
    } while (field.number);
    return TS_OK;
}

/* FNV-1a, 64 bits. */
static uint64_t hash(const char *text, uint64_t size)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < size; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return h;
}

void ts_onnx_ops_count(struct ts_onnx_ops *ops, const char *name, uint64_t size)
{
    ops->nodes++;
    if (size == 0 || size > 100)
        return;
    size_t i = (size_t)(hash(name, size) % TS_ONNX_OP_SLOTS);
    while (ops->slots[i].name && (ops->slots[i].size != size || memcmp(ops->slots[i].name, name, (size_t)size) != 0))
        i = (i + 1) % TS_ONNX_OP_SLOTS;
    if (!ops->slots[i].name) {
        if (ops->used == TS_ONNX_OP_SLOTS / 2) /* half empty: every search ends soon */
            return;
        ops->used++;
        ops->slots[i].name = name;
        ops->slots[i].size = size;
    }
    ops->slots[i].count++;
}

enum ts_status ts_onnx_describe_ops(struct ts_onnx *onnx, const struct ts_onnx_ops *ops, struct ts_error *error)
{
    struct ts_buffer out;
    uint64_t ceiling = UINT64_MAX;
    size_t last = 0, shown = 0;
    TS_TRY(add_number(onnx, "nodes", ops->nodes, error));
    ts_buffer_init(&out, 4096);
    while (shown < 10) { /* the next in the order of count, then of slot */
        size_t best = TS_ONNX_OP_SLOTS;
        for (size_t i = 0; i < TS_ONNX_OP_SLOTS; i++) {
            uint64_t count = ops->slots[i].count;
            if (count && (count < ceiling || (count == ceiling && i > last)) &&
                (best == TS_ONNX_OP_SLOTS || count > ops->slots[best].count))
                best = i;
        }
        if (best == TS_ONNX_OP_SLOTS)
            break;
        ts_buffer_printf(&out, "%s%.*s %" PRIu64, shown++ ? ", " : "", (int)ops->slots[best].size,
                         ops->slots[best].name, ops->slots[best].count);
        ceiling = ops->slots[best].count;
        last = best;
    }
    if (ops->used > shown)
        ts_buffer_printf(&out, ", %zu more kinds", ops->used - shown);
    enum ts_status status = TS_OK;
    if (out.data && !out.failed)
        status = ts_bundle_meta(onnx->bundle, "operators", out.data, error);
    ts_buffer_release(&out);
    return status;
}
