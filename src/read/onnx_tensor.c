/* Owns ONNX's TensorProto. Numbers that stand in the file as fixed-width little-endian arrays (raw_data, external
 * files, packed float_data and double_data) are described in place; the varint-coded ones (int32_data, int64_data,
 * uint64_data) and unpacked rows are decoded into the spool. */
#include "read/onnx_tensor.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/system.h"
#include "base/text.h"

/* Longer than any name or path; keeps prefixes and duplicates from multiplying. */
#define MAX_TEXT 65536

enum { FLOAT_DATA = 4, INT32_DATA = 5, STRING_DATA = 6, INT64_DATA = 7, DOUBLE_DATA = 10, UINT64_DATA = 11 };

enum coding { VARINT, FIXED32, FIXED64 };

/* TensorProto.DataType, in order; field: where the numbers are when they are not raw. */
static const struct {
    const char *name;
    enum ts_type type;
    uint32_t field;
} types[] = {
    {NULL, TS_F32, 0},
    {"float", TS_F32, FLOAT_DATA},
    {"uint8", TS_U8, INT32_DATA},
    {"int8", TS_I8, INT32_DATA},
    {"uint16", TS_U16, INT32_DATA},
    {"int16", TS_I16, INT32_DATA},
    {"int32", TS_I32, INT32_DATA},
    {"int64", TS_I64, INT64_DATA},
    {"string", TS_U8, STRING_DATA},
    {"bool", TS_BOOL, INT32_DATA},
    {"float16", TS_F16, INT32_DATA},
    {"double", TS_F64, DOUBLE_DATA},
    {"uint32", TS_U32, UINT64_DATA},
    {"uint64", TS_U64, UINT64_DATA},
    {"complex64", TS_C64, FLOAT_DATA},
    {"complex128", TS_C128, DOUBLE_DATA},
    {"bfloat16", TS_BF16, INT32_DATA},
    {"float8e4m3fn", TS_F8_E4M3, INT32_DATA},
    {"float8e4m3fnuz", TS_F8_E4M3FNUZ, INT32_DATA},
    {"float8e5m2", TS_F8_E5M2, INT32_DATA},
    {"float8e5m2fnuz", TS_F8_E5M2FNUZ, INT32_DATA},
    {"uint4", TS_U4, INT32_DATA},
    {"int4", TS_I4, INT32_DATA},
    {"float4e2m1", TS_F4_E2M1, INT32_DATA},
    {"float8e8m0", TS_F8_E8M0, INT32_DATA},
    {"uint2", TS_U2, INT32_DATA},
    {"int2", TS_I2, INT32_DATA},
};

#define TYPE_COUNT (sizeof types / sizeof *types)

static const char *field_name(uint32_t field)
{
    switch (field) {
    case FLOAT_DATA:
        return "float_data";
    case INT32_DATA:
        return "int32_data";
    case STRING_DATA:
        return "string_data";
    case INT64_DATA:
        return "int64_data";
    case DOUBLE_DATA:
        return "double_data";
    default:
        return "uint64_data";
    }
}

const char *ts_onnx_type_name(uint64_t data_type)
{
    return data_type < TYPE_COUNT ? types[data_type].name : NULL;
}

void ts_onnx_release(struct ts_onnx *onnx)
{
    for (size_t i = 0; i < onnx->external_count; i++)
        ts_source_release(onnx->externals[i].source);
    free(onnx->externals);
    onnx->externals = NULL;
    onnx->external_count = onnx->external_capacity = 0;
}

enum ts_status ts_onnx_text(struct ts_onnx *onnx, struct ts_onnx_span span, const char **text, struct ts_error *error)
{
    const uint8_t *from = onnx->input->source->data + span.offset;
    if (span.size > MAX_TEXT)
        return ts_fail(error, TS_ERR_LIMIT, span.offset, "a name of %" PRIu64 " bytes, at most %d are read", span.size,
                       MAX_TEXT);
    if (memchr(from, 0, (size_t)span.size))
        return ts_fail(error, TS_ERR_FORMAT, span.offset, "a name with a NUL byte inside");
    *text = ts_arena_copy(&onnx->bundle->arena, (const char *)from, (size_t)span.size);
    return *text ? TS_OK : ts_fail_memory(error);
}

static enum ts_status add_dim(struct ts_onnx_tensor *parsed, uint64_t value, uint64_t offset, struct ts_error *error)
{
    if (value > INT64_MAX)
        return ts_fail(error, TS_ERR_FORMAT, offset, "negative axis length %" PRId64, (int64_t)value);
    if (parsed->rank == TS_MAX_RANK)
        return ts_fail(error, TS_ERR_LIMIT, offset, "more than %d axes", TS_MAX_RANK);
    parsed->dims[parsed->rank++] = value;
    return TS_OK;
}

/* StringStringEntryProto: key 1, value 2. */
static enum ts_status parse_external(struct ts_wire entry, struct ts_onnx_tensor *parsed, struct ts_error *error)
{
    struct ts_onnx_span key = {0, 0}, value = {0, 0};
    struct ts_wire_field field;
    do {
        TS_TRY(ts_wire_next(&entry, &field, error));
        if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(1, TS_WIRE_BYTES))
            key = (struct ts_onnx_span){field.offset, field.size};
        else if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(2, TS_WIRE_BYTES))
            value = (struct ts_onnx_span){field.offset, field.size};
    } while (field.number);
    const void *text = entry.source->data + key.offset;
    if (key.size == 8 && memcmp(text, "location", 8) == 0)
        parsed->location = value;
    else if (key.size == 6 && memcmp(text, "offset", 6) == 0)
        parsed->external_offset = value;
    else if (key.size == 6 && memcmp(text, "length", 6) == 0)
        parsed->external_length = value;
    return TS_OK;
}

enum ts_status ts_onnx_tensor_parse(const struct ts_wire *message, struct ts_onnx_tensor *parsed,
                                    struct ts_error *error)
{
    struct ts_wire wire = *message, inside;
    struct ts_wire_field field;
    memset(parsed, 0, sizeof *parsed);
    parsed->message = *message;
    do {
        TS_TRY(ts_wire_next(&wire, &field, error));
        inside = ts_wire_inside(&wire, &field);
        switch (TS_WIRE_KEY_OF(field)) {
        case TS_WIRE_KEY(1, TS_WIRE_VARINT):
            TS_TRY(add_dim(parsed, field.value, field.start, error));
            break;
        case TS_WIRE_KEY(1, TS_WIRE_BYTES):
            while (inside.at < inside.end) {
                uint64_t value, at = inside.at;
                TS_TRY(ts_wire_varint(&inside, &value, error));
                TS_TRY(add_dim(parsed, value, at, error));
            }
            break;
        case TS_WIRE_KEY(2, TS_WIRE_VARINT):
            parsed->data_type = field.value;
            break;
        case TS_WIRE_KEY(3, TS_WIRE_BYTES):
            parsed->segmented = true;
            break;
        case TS_WIRE_KEY(8, TS_WIRE_BYTES):
            parsed->name = (struct ts_onnx_span){field.offset, field.size};
            break;
        case TS_WIRE_KEY(9, TS_WIRE_BYTES):
            parsed->raw = (struct ts_onnx_span){field.offset, field.size};
            break;
        case TS_WIRE_KEY(13, TS_WIRE_BYTES):
            TS_TRY(parse_external(inside, parsed, error));
            break;
        case TS_WIRE_KEY(14, TS_WIRE_VARINT):
            parsed->external = field.value == 1;
            break;
        case TS_WIRE_KEY(FLOAT_DATA, TS_WIRE_BYTES):
        case TS_WIRE_KEY(FLOAT_DATA, TS_WIRE_FIXED32):
        case TS_WIRE_KEY(DOUBLE_DATA, TS_WIRE_BYTES):
        case TS_WIRE_KEY(DOUBLE_DATA, TS_WIRE_FIXED64):
        case TS_WIRE_KEY(INT32_DATA, TS_WIRE_BYTES):
        case TS_WIRE_KEY(INT32_DATA, TS_WIRE_VARINT):
        case TS_WIRE_KEY(INT64_DATA, TS_WIRE_BYTES):
        case TS_WIRE_KEY(INT64_DATA, TS_WIRE_VARINT):
        case TS_WIRE_KEY(UINT64_DATA, TS_WIRE_BYTES):
        case TS_WIRE_KEY(UINT64_DATA, TS_WIRE_VARINT):
        case TS_WIRE_KEY(STRING_DATA, TS_WIRE_BYTES):
            parsed->typed |= 1u << field.number;
            break;
        default:
            break;
        }
    } while (field.number);
    return TS_OK;
}

/* A repeated field of numbers inside one message: packed into one piece, into several, or one piece per number; all
 * three may be mixed. */
struct numbers {
    struct ts_wire message;
    uint32_t field;
    enum coding coding;
    uint64_t count, pieces;
    uint64_t offset; /* of the first piece's payload */
};

static unsigned scalar_wire_type(enum coding coding)
{
    return coding == VARINT ? TS_WIRE_VARINT : coding == FIXED32 ? TS_WIRE_FIXED32 : TS_WIRE_FIXED64;
}

static enum ts_status count_numbers(struct numbers *numbers, struct ts_error *error)
{
    struct ts_wire wire = numbers->message;
    struct ts_wire_field field;
    uint64_t width = numbers->coding == FIXED32 ? 4 : 8;
    numbers->count = numbers->pieces = 0;
    for (;;) {
        TS_TRY(ts_wire_next(&wire, &field, error));
        if (!field.number)
            return TS_OK;
        if (field.number != numbers->field)
            continue;
        if (field.type == scalar_wire_type(numbers->coding)) {
            numbers->count++;
        } else if (field.type != TS_WIRE_BYTES || field.size == 0) {
            continue;
        } else if (numbers->coding == VARINT) { /* each ends with the only byte below 0x80 */
            for (uint64_t i = 0; i < field.size; i++)
                numbers->count += wire.source->data[field.offset + i] < 0x80;
        } else if (field.size % width == 0) {
            numbers->count += field.size / width;
        } else {
            return ts_fail(error, TS_ERR_FORMAT, field.start,
                           "%" PRIu64 " bytes of packed numbers are not whole ones of %" PRIu64 " bytes", field.size,
                           width);
        }
        if (numbers->pieces++ == 0)
            numbers->offset = field.offset;
    }
}

struct writer {
    uint8_t *at;
    uint64_t written, count;
    unsigned width; /* bytes of one number in the tensor */
};

/* A number fits when it is one of the width's bits, signed or not: writers put int8 -1 down as -1 and as 255. */
static enum ts_status put_number(struct writer *writer, uint64_t value, uint64_t offset, struct ts_error *error)
{
    if (writer->written == writer->count)
        return ts_fail(error, TS_ERR_FORMAT, offset, "more numbers than the shape needs");
    unsigned bits = 8 * writer->width;
    if (bits < 64 && value >> bits != 0 && (int64_t)value >> (bits - 1) != -1)
        return ts_fail(error, TS_ERR_FORMAT, offset, "number %" PRIu64 " is %" PRId64 ", which does not fit %u bits",
                       writer->written, (int64_t)value, bits);
    for (unsigned i = 0; i < writer->width; i++)
        *writer->at++ = (uint8_t)(value >> 8 * i);
    writer->written++;
    return TS_OK;
}

static enum ts_status decode_numbers(const struct numbers *numbers, struct writer *writer, struct ts_error *error)
{
    struct ts_wire wire = numbers->message;
    struct ts_wire_field field;
    for (;;) {
        TS_TRY(ts_wire_next(&wire, &field, error));
        if (!field.number)
            break;
        if (field.number != numbers->field)
            continue;
        if (field.type == scalar_wire_type(numbers->coding)) {
            TS_TRY(put_number(writer, field.value, field.start, error));
        } else if (field.type == TS_WIRE_BYTES) {
            struct ts_wire inside = ts_wire_inside(&wire, &field);
            while (inside.at < inside.end) {
                uint64_t value, at = inside.at;
                if (numbers->coding == VARINT) {
                    TS_TRY(ts_wire_varint(&inside, &value, error));
                } else { /* whole ones: counted before */
                    value = numbers->coding == FIXED32 ? ts_load_le32(wire.source->data + at)
                                                       : ts_load_le64(wire.source->data + at);
                    inside.at += numbers->coding == FIXED32 ? 4 : 8;
                }
                TS_TRY(put_number(writer, value, at, error));
            }
        }
    }
    if (writer->written != writer->count)
        return ts_fail(error, TS_ERR_FORMAT, numbers->offset, "%" PRIu64 " numbers, expected %" PRIu64, writer->written,
                       writer->count);
    return TS_OK;
}

/* Points the tensor at the numbers: in place when they stand there as an array, else decoded, `width` bytes each. */
static enum ts_status place_numbers(struct ts_onnx *onnx, const struct numbers *numbers, unsigned width,
                                    struct ts_tensor *tensor, struct ts_error *error)
{
    tensor->source = onnx->input->source;
    tensor->offset = numbers->offset;
    if (numbers->coding != VARINT && numbers->pieces == 1)
        return TS_OK;
    uint64_t bytes;
    struct writer writer = {.count = numbers->count, .width = width};
    if (!ts_mul(numbers->count, width, &bytes))
        return ts_fail_memory(error);
    TS_TRY(ts_spool_reserve(onnx->input->spool, bytes, &writer.at, error));
    const uint8_t *start = writer.at;
    TS_TRY(decode_numbers(numbers, &writer, error));
    struct ts_source *source;
    TS_TRY(ts_spool_source(onnx->input->spool, start, bytes, onnx->input->source->path, &source, error));
    enum ts_status status = ts_bundle_keep(onnx->bundle, source, error);
    ts_source_release(source);
    tensor->source = source;
    tensor->offset = 0;
    return status;
}

static enum ts_status parse_decimal(const struct ts_onnx *onnx, struct ts_onnx_span span, uint64_t *value,
                                    struct ts_error *error)
{
    const uint8_t *text = onnx->input->source->data + span.offset;
    *value = 0;
    for (uint64_t i = 0; i < span.size; i++)
        if (text[i] < '0' || text[i] > '9' || !ts_mul(*value, 10, value) ||
            !ts_add(*value, (uint64_t)(text[i] - '0'), value))
            return ts_fail(error, TS_ERR_FORMAT, span.offset, "external data: \"%.*s\" is not a number of bytes",
                           (int)(span.size < 40 ? span.size : 40), (const char *)text);
    return TS_OK;
}

/* Models keep all weights in one file, or each in its own: the last one used is tried first. */
static enum ts_status open_external(struct ts_onnx *onnx, const char *location, struct ts_source **source,
                                    struct ts_error *error)
{
    for (size_t i = onnx->external_count; i-- > 0;)
        if (strcmp(onnx->externals[i].location, location) == 0) {
            *source = onnx->externals[i].source;
            return TS_OK;
        }
    if (onnx->external_count == onnx->external_capacity) {
        size_t capacity = onnx->external_capacity ? 2 * onnx->external_capacity : 8;
        struct ts_onnx_external *grown = ts_reallocarray(onnx->externals, capacity, sizeof *grown);
        if (!grown)
            return ts_fail_memory(error);
        onnx->externals = grown;
        onnx->external_capacity = capacity;
    }
    struct ts_source *opened;
    TS_TRY(ts_input_beside(onnx->input, location, &opened, error));
    enum ts_status status = ts_bundle_keep(onnx->bundle, opened, error);
    if (status != TS_OK) {
        ts_source_release(opened);
        return status;
    }
    onnx->externals[onnx->external_count++] = (struct ts_onnx_external){location, opened};
    *source = opened;
    return TS_OK;
}

static enum ts_status place_external(struct ts_onnx *onnx, const struct ts_onnx_tensor *parsed, uint64_t bytes,
                                     struct ts_tensor *tensor, struct ts_error *error)
{
    const char *location;
    uint64_t length = bytes;
    if (parsed->location.size == 0)
        return ts_fail(error, TS_ERR_FORMAT, parsed->message.at, "external data without a location");
    TS_TRY(ts_onnx_text(onnx, parsed->location, &location, error));
    while (ts_starts_with(location, "./"))
        location += 2;
    TS_TRY(parse_decimal(onnx, parsed->external_offset, &tensor->offset, error));
    if (parsed->external_length.size)
        TS_TRY(parse_decimal(onnx, parsed->external_length, &length, error));
    if (length != bytes)
        return ts_fail(error, TS_ERR_FORMAT, parsed->external_length.offset,
                       "external data of %" PRIu64 " bytes, shape and type need %" PRIu64, length, bytes);
    if (open_external(onnx, location, &tensor->source, error) != TS_OK) {
        struct ts_error why = *error;
        return ts_fail(error, why.status, TS_NO_OFFSET, "external data \"%.100s\": %.300s", location, why.message);
    }
    if (!ts_span_fits(tensor->offset, bytes, tensor->source->size))
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "truncated: external data \"%.100s\" has %" PRIu64 " bytes, needed are %" PRIu64
                       " from byte %" PRIu64,
                       location, tensor->source->size, bytes, tensor->offset);
    return TS_OK;
}

/* How many entries of its typed field a tensor of so many bytes has, and how wide one is when decoded. Types below
 * eight bits have a byte of packed elements in each entry; complex ones have two entries per element. */
static unsigned entry_width(enum ts_type type)
{
    const struct ts_type_info *info = ts_type_info(type);
    return info->block_elements > 1 ? 1u : (unsigned)info->block_bytes / info->components;
}

static struct numbers typed_numbers(const struct ts_onnx_tensor *parsed)
{
    uint32_t field = types[parsed->data_type].field;
    return (struct numbers){.message = parsed->message,
                            .field = field,
                            .coding = field == FLOAT_DATA    ? FIXED32
                                      : field == DOUBLE_DATA ? FIXED64
                                                             : VARINT};
}

static enum ts_status place_typed(struct ts_onnx *onnx, const struct ts_onnx_tensor *parsed, uint64_t bytes,
                                  struct ts_tensor *tensor, struct ts_error *error)
{
    struct numbers numbers = typed_numbers(parsed);
    unsigned width = entry_width(tensor->type);
    uint64_t at = parsed->message.at;
    if (parsed->typed & ~(1u << numbers.field))
        return ts_fail(error, TS_ERR_FORMAT, at, "its numbers are in %s, those of type %s belong in %s",
                       field_name((uint32_t)__builtin_ctz(parsed->typed & ~(1u << numbers.field))),
                       types[parsed->data_type].name, field_name(numbers.field));
    if (!parsed->typed)
        return ts_fail(error, TS_ERR_FORMAT, at, "has no data: neither raw_data, nor %s, nor external data",
                       field_name(numbers.field));
    TS_TRY(count_numbers(&numbers, error));
    if (numbers.count != bytes / width)
        return ts_fail(error, TS_ERR_FORMAT, at, "%s holds %" PRIu64 " numbers, shape and type need %" PRIu64,
                       field_name(numbers.field), numbers.count, bytes / width);
    return place_numbers(onnx, &numbers, width, tensor, error);
}

static enum ts_status place(struct ts_onnx *onnx, const struct ts_onnx_tensor *parsed, struct ts_tensor *tensor,
                            struct ts_error *error)
{
    uint64_t bytes, count = 1, at = parsed->message.at;
    bool fits = true, empty = false;
    for (unsigned i = 0; i < parsed->rank; i++) {
        tensor->shape[i] = parsed->dims[i];
        empty = empty || parsed->dims[i] == 0;
        fits = fits && ts_mul(count, parsed->dims[i], &count);
    }
    if (empty) {
        tensor->source = onnx->input->source;
        tensor->offset = at;
        return TS_OK;
    }
    if (!fits || !ts_type_bytes(tensor->type, count, &bytes))
        return ts_fail(error, TS_ERR_FORMAT, at, "its shape has more than 2^63 elements");
    if (parsed->external)
        return place_external(onnx, parsed, bytes, tensor, error);
    if (!parsed->raw.size)
        return place_typed(onnx, parsed, bytes, tensor, error);
    if (parsed->raw.size != bytes)
        return ts_fail(error, TS_ERR_FORMAT, parsed->raw.offset,
                       "raw_data has %" PRIu64 " bytes, shape and type need %" PRIu64, parsed->raw.size, bytes);
    tensor->source = onnx->input->source;
    tensor->offset = parsed->raw.offset;
    return TS_OK;
}

enum ts_status ts_onnx_tensor_add(struct ts_onnx *onnx, const struct ts_onnx_tensor *parsed, const char *name,
                                  struct ts_error *error)
{
    uint64_t at = parsed->message.at;
    if (!ts_onnx_type_name(parsed->data_type))
        return ts_fail(error, TS_ERR_UNSUPPORTED, at, "has type %" PRIu64 ", which this program does not know",
                       parsed->data_type);
    if (types[parsed->data_type].field == STRING_DATA)
        return ts_fail(error, TS_ERR_UNSUPPORTED, at, "holds strings, not numbers");
    if (parsed->segmented)
        return ts_fail(error, TS_ERR_UNSUPPORTED, at,
                       "is one segment of a tensor in parts, which this program does not join");
    struct ts_tensor *tensor;
    TS_TRY(ts_bundle_add(onnx->bundle, name, parsed->rank, &tensor, error));
    tensor->type = types[parsed->data_type].type;
    enum ts_status status = place(onnx, parsed, tensor, error);
    if (status == TS_OK)
        status = ts_tensor_finish(tensor, error);
    if (status != TS_OK)
        ts_bundle_drop_last(onnx->bundle);
    return status;
}

enum ts_status ts_onnx_numbers_add(struct ts_onnx *onnx, const struct ts_wire *message, uint32_t field,
                                   enum ts_type type, bool scalar, const char *name, struct ts_error *error)
{
    struct numbers numbers = {.message = *message, .field = field, .coding = type == TS_F32 ? FIXED32 : VARINT};
    struct ts_tensor *tensor;
    TS_TRY(count_numbers(&numbers, error));
    if (scalar && numbers.count != 1)
        return ts_fail(error, TS_ERR_FORMAT, message->at, "%" PRIu64 " numbers, expected one", numbers.count);
    TS_TRY(ts_bundle_add(onnx->bundle, name, scalar ? 0 : 1, &tensor, error));
    tensor->type = type;
    if (!scalar)
        tensor->shape[0] = numbers.count;
    enum ts_status status = TS_OK;
    if (numbers.count)
        status = place_numbers(onnx, &numbers, entry_width(type), tensor, error);
    else
        tensor->source = onnx->input->source;
    if (status == TS_OK)
        status = ts_tensor_finish(tensor, error);
    if (status != TS_OK)
        ts_bundle_drop_last(onnx->bundle);
    return status;
}

bool ts_onnx_tensor_is_whole(const struct ts_onnx_tensor *parsed)
{
    uint64_t count = 1, bytes;
    struct ts_error ignored;
    if (!ts_onnx_type_name(parsed->data_type) || types[parsed->data_type].field == STRING_DATA || parsed->external)
        return false;
    for (unsigned i = 0; i < parsed->rank; i++)
        if (!ts_mul(count, parsed->dims[i], &count))
            return false;
    enum ts_type type = types[parsed->data_type].type;
    if (count == 0 || !ts_type_bytes(type, count, &bytes))
        return false;
    if (parsed->raw.size)
        return parsed->raw.size == bytes;
    struct numbers numbers = typed_numbers(parsed);
    return parsed->typed == 1u << numbers.field && count_numbers(&numbers, &ignored) == TS_OK &&
           numbers.count == bytes / entry_width(type);
}
