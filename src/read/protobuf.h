/* The wire format of protocol buffers: a cursor over the fields of one message.
 *
 * A message is a row of fields, each a tag (number << 3 | wire type) and a payload. The cursor knows no schema: it
 * hands out number, wire type and where the payload lies, as offsets in the source, and never reads past the message's
 * end.
 *
 *     struct ts_wire wire = ts_wire_all(source);
 *     struct ts_wire_field field;
 *     while (ts_wire_next(&wire, &field, error) == TS_OK && field.number) ... */
#ifndef TS_READ_PROTOBUF_H
#define TS_READ_PROTOBUF_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/number.h"
#include "io/source.h"

enum { TS_WIRE_VARINT = 0, TS_WIRE_FIXED64 = 1, TS_WIRE_BYTES = 2, TS_WIRE_FIXED32 = 5 };

struct ts_wire {
    const struct ts_source *source;
    uint64_t at, end; /* what is left of the message: offsets in the source, end within its size */
};

struct ts_wire_field {
    uint32_t number; /* 0 at the end of the message: no field has that number */
    unsigned type;
    uint64_t start;  /* of the tag */
    uint64_t value;  /* varints and fixed ones */
    uint64_t offset; /* of the payload */
    uint64_t size;   /* of the payload */
};

static inline struct ts_wire ts_wire_all(const struct ts_source *source)
{
    return (struct ts_wire){.source = source, .at = 0, .end = source->size};
}

/* The message, or the packed row of numbers, that a field of bytes holds. */
static inline struct ts_wire ts_wire_inside(const struct ts_wire *wire, const struct ts_wire_field *field)
{
    return (struct ts_wire){.source = wire->source, .at = field->offset, .end = field->offset + field->size};
}

/* Up to ten bytes of seven bits, lowest first. Bits past the 64th are refused. */
static inline enum ts_status ts_wire_varint(struct ts_wire *wire, uint64_t *value, struct ts_error *error)
{
    uint64_t start = wire->at;
    *value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (wire->at == wire->end)
            return ts_fail(error, TS_ERR_FORMAT, start, "protobuf: the message ends inside a number");
        uint8_t byte = wire->source->data[wire->at++];
        if (shift == 63 && byte > 1)
            break;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return TS_OK;
    }
    return ts_fail(error, TS_ERR_FORMAT, start, "protobuf: a number of more than 64 bits");
}

static inline enum ts_status ts_wire_next(struct ts_wire *wire, struct ts_wire_field *field, struct ts_error *error)
{
    uint64_t tag;
    *field = (struct ts_wire_field){.number = 0, .start = wire->at};
    if (wire->at == wire->end)
        return TS_OK;
    TS_TRY(ts_wire_varint(wire, &tag, error));
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return ts_fail(error, TS_ERR_FORMAT, field->start, "protobuf: field number %" PRIu64 " does not exist",
                       tag >> 3);
    field->type = tag & 7;
    field->offset = wire->at;
    if (field->type == TS_WIRE_VARINT) {
        TS_TRY(ts_wire_varint(wire, &field->value, error));
        field->size = wire->at - field->offset;
        field->number = (uint32_t)(tag >> 3);
        return TS_OK;
    }
    if (field->type == TS_WIRE_BYTES) {
        TS_TRY(ts_wire_varint(wire, &field->size, error));
        field->offset = wire->at;
    } else if (field->type == TS_WIRE_FIXED64 || field->type == TS_WIRE_FIXED32) {
        field->size = field->type == TS_WIRE_FIXED64 ? 8 : 4;
    } else {
        return ts_fail(error, TS_ERR_FORMAT, field->start, "protobuf: field %" PRIu64 " has wire type %u", tag >> 3,
                       field->type);
    }
    if (field->size > wire->end - wire->at)
        return ts_fail(error, TS_ERR_FORMAT, field->start,
                       "truncated: field %" PRIu64 " takes %" PRIu64 " bytes, %" PRIu64 " are left", tag >> 3,
                       field->size, wire->end - wire->at);
    if (field->type == TS_WIRE_FIXED64)
        field->value = ts_load_le64(wire->source->data + field->offset);
    else if (field->type == TS_WIRE_FIXED32)
        field->value = ts_load_le32(wire->source->data + field->offset);
    wire->at += field->size;
    field->number = (uint32_t)(tag >> 3);
    return TS_OK;
}

#endif
