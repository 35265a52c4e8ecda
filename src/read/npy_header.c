/* The header of a .npy file: magic, version, length, and a Python dictionary literal. A small
 * recursive-descent parser for just the literals that can stand there: strings, integers, tuples, lists, True
 * and False. */
#include "read/npy_header.h"

#include <inttypes.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

/* numpy itself refuses headers over 10,000 characters unless told otherwise; records of thousands of fields
 * pass it. */
#define MAX_HEADER  ((uint32_t)1 << 20)
#define MAX_FIELDS  4096
#define MAX_NESTING 8
/* 4096 fields of about 1.2 KiB, doubled by the growth of the list, and every string of the header. */
#define ARENA_LIMIT ((size_t)16 << 20)

struct parser {
    struct ts_npy_header *header;
    struct ts_error *error;
    const char *text;
    size_t size, at;
    uint64_t base; /* offset of text in the source */
    bool latin1;   /* versions 1 and 2; version 3 is UTF-8 */
};

#define FAIL(parser, ...) ts_fail((parser)->error, TS_ERR_FORMAT, (parser)->base + (parser)->at, __VA_ARGS__)

/* The arena has room for every honest header; without memory at all this is as good an answer. */
static enum ts_status no_room(struct parser *parser)
{
    return ts_fail(parser->error, TS_ERR_LIMIT, parser->base, "header: its names and fields take more than %zu bytes",
                   ARENA_LIMIT);
}

static int peek(struct parser *parser)
{
    while (parser->at < parser->size && strchr(" \t\r\n\f", parser->text[parser->at]) && parser->text[parser->at])
        parser->at++;
    return parser->at < parser->size ? (unsigned char)parser->text[parser->at] : -1;
}

static bool accept(struct parser *parser, char byte)
{
    if (peek(parser) != (unsigned char)byte)
        return false;
    parser->at++;
    return true;
}

static enum ts_status expect(struct parser *parser, char byte)
{
    if (accept(parser, byte))
        return TS_OK;
    return FAIL(parser, "header: expected '%c'", byte);
}

/* After the backslash. repr() writes quotes, backslashes, \n, \r, \t and \x, \u, \U with a fixed number of
 * digits. */
static enum ts_status escape(struct parser *parser, uint32_t *code)
{
    char kind = parser->at < parser->size ? parser->text[parser->at++] : '\0';
    int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits == 0) {
        if (!kind || !strchr("\\'\"nrt", kind))
            return FAIL(parser, "header: unknown escape in a string");
        *code = (unsigned char)(kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind == 't' ? '\t' : kind);
        return TS_OK;
    }
    *code = 0;
    for (; digits > 0; digits--) {
        char c = parser->at < parser->size ? parser->text[parser->at++] : '\0';
        int value = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (value < 0)
            return FAIL(parser, "header: expected a hexadecimal digit in a string");
        *code = *code << 4 | (uint32_t)value;
    }
    if (*code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
        return FAIL(parser, "header: \\%c escape is no character", kind);
    return TS_OK;
}

/* 'text' or "text", with the prefixes u and b of Python 2, as UTF-8 in the arena. */
static enum ts_status string(struct parser *parser, const char **text)
{
    int first = peek(parser);
    if ((first == 'u' || first == 'b') && parser->at + 1 < parser->size)
        parser->at++;
    char quote = parser->at < parser->size ? parser->text[parser->at] : '\0';
    if (quote != '\'' && quote != '"')
        return FAIL(parser, "header: expected a string");
    size_t start = ++parser->at, end = start;
    while (end < parser->size && parser->text[end] != quote)
        end += parser->text[end] == '\\' ? 2 : 1;
    if (end >= parser->size)
        return FAIL(parser, "header: string without an end");
    /* A Latin-1 byte takes two in UTF-8; an escape never takes more than it had. */
    char *out = ts_arena_alloc(&parser->header->arena, 2 * (end - start) + 1);
    if (!out)
        return no_room(parser);
    size_t length = 0;
    while (parser->at < end) {
        unsigned char c = (unsigned char)parser->text[parser->at++];
        uint32_t code = c;
        if (c == '\\')
            TS_TRY(escape(parser, &code));
        if (code == 0)
            return FAIL(parser, "header: NUL in a string");
        if (c < 0x80 || parser->latin1)
            length += ts_utf8_put(code, out + length);
        else
            out[length++] = (char)c;
    }
    out[length] = '\0';
    parser->at = end + 1;
    *text = out;
    return TS_OK;
}

static enum ts_status integer(struct parser *parser, uint64_t *value)
{
    int first = peek(parser);
    if (first == '-')
        return FAIL(parser, "header: shape has a negative number");
    if (first < '0' || first > '9')
        return FAIL(parser, "header: expected a number");
    *value = 0;
    for (; parser->at < parser->size; parser->at++) {
        char c = parser->text[parser->at];
        if (c < '0' || c > '9')
            break;
        if (!ts_mul(*value, 10, value) || !ts_add(*value, (uint64_t)(c - '0'), value) || *value > INT64_MAX)
            return FAIL(parser, "header: number too large");
    }
    if (parser->at < parser->size && parser->text[parser->at] == 'L') /* Python 2 */
        parser->at++;
    return TS_OK;
}

/* (), (3,), (3, 4), also with brackets; where a subarray may have it, a number alone. */
static enum ts_status shape(struct parser *parser, bool alone, unsigned *rank, uint64_t *sizes)
{
    *rank = 0;
    int first = peek(parser);
    if (alone && first >= '0' && first <= '9') {
        *rank = 1;
        return integer(parser, &sizes[0]);
    }
    if (first != '(' && first != '[')
        return FAIL(parser, "header: expected a shape in parentheses");
    char close = first == '(' ? ')' : ']';
    parser->at++;
    while (!accept(parser, close)) {
        if (*rank == TS_MAX_RANK)
            return FAIL(parser, "header: shape has more than %d axes", TS_MAX_RANK);
        TS_TRY(integer(parser, &sizes[(*rank)++]));
        if (!accept(parser, ',') && peek(parser) != close)
            return FAIL(parser, "header: expected ',' or '%c' in the shape", close);
    }
    return TS_OK;
}

static enum ts_status add_field(struct parser *parser, const char *name, const char *descr, uint64_t offset,
                                struct ts_npy_field **field)
{
    struct ts_npy_header *header = parser->header;
    if (header->field_count == MAX_FIELDS)
        return FAIL(parser, "header: record of more than %d fields", MAX_FIELDS);
    if (header->field_count == header->field_capacity) {
        size_t capacity = header->field_capacity ? 2 * header->field_capacity : 4;
        struct ts_npy_field **grown = ts_arena_array(&header->arena, capacity, sizeof *grown);
        if (!grown)
            return no_room(parser);
        if (header->field_count)
            memcpy(grown, header->fields, header->field_count * sizeof *grown);
        header->fields = grown;
        header->field_capacity = capacity;
    }
    *field = ts_arena_alloc(&header->arena, sizeof **field);
    if (!*field)
        return no_room(parser);
    (*field)->name = name;
    (*field)->descr = descr;
    (*field)->offset = offset;
    header->fields[header->field_count++] = *field;
    return TS_OK;
}

/* The fields from `first` on stand `count` times in a row of `rank` axes: those axes go outside their own. */
static enum ts_status repeat(struct parser *parser, size_t first, unsigned rank, const uint64_t *sizes, uint64_t *size)
{
    uint64_t steps[TS_MAX_RANK];
    for (unsigned axis = rank; axis-- > 0;) {
        steps[axis] = *size;
        if (!ts_mul(*size, sizes[axis], size) || *size > INT64_MAX)
            return FAIL(parser, "header: record too large");
    }
    for (size_t i = first; i < parser->header->field_count; i++) {
        struct ts_npy_field *field = parser->header->fields[i];
        if (field->rank + rank > TS_MAX_RANK)
            return FAIL(parser, "header: field has more than %d axes", TS_MAX_RANK);
        memmove(field->shape + rank, field->shape, field->rank * sizeof *sizes);
        memmove(field->steps + rank, field->steps, field->rank * sizeof *sizes);
        memcpy(field->shape, sizes, rank * sizeof *sizes);
        memcpy(field->steps, steps, rank * sizeof *sizes);
        field->rank += rank;
    }
    return TS_OK;
}

static enum ts_status descr(struct parser *parser, const char *name, uint64_t offset, unsigned depth, uint64_t *size);

/* [('a', '<f4'), (('title', 'b'), '<i2', (2, 3)), ...] */
static enum ts_status record(struct parser *parser, const char *prefix, uint64_t offset, unsigned depth, uint64_t *size)
{
    *size = 0;
    TS_TRY(expect(parser, '['));
    while (!accept(parser, ']')) {
        TS_TRY(expect(parser, '('));
        const char *name;
        if (accept(parser, '(')) { /* a title and a name */
            TS_TRY(string(parser, &name));
            TS_TRY(expect(parser, ','));
            TS_TRY(string(parser, &name));
            TS_TRY(expect(parser, ')'));
        } else {
            TS_TRY(string(parser, &name));
        }
        TS_TRY(expect(parser, ','));
        const char *full = name;
        if (*prefix && *name)
            full = ts_arena_printf(&parser->header->arena, "%s.%s", prefix, name);
        if (!full)
            return no_room(parser);
        size_t first = parser->header->field_count;
        uint64_t one = 0, at = 0;
        if (!ts_add(offset, *size, &at))
            return FAIL(parser, "header: record too large");
        TS_TRY(descr(parser, full, at, depth + 1, &one));
        if (parser->header->field_count == first + 1)
            (void)ts_npy_dtype_named(parser->header->fields[first], name);
        if (accept(parser, ',') && peek(parser) != ')') {
            unsigned rank;
            uint64_t sizes[TS_MAX_RANK];
            TS_TRY(shape(parser, true, &rank, sizes));
            TS_TRY(repeat(parser, first, rank, sizes, &one));
            (void)accept(parser, ',');
        }
        TS_TRY(expect(parser, ')'));
        if (!*name) /* padding */
            parser->header->field_count = first;
        if (!ts_add(*size, one, size) || *size > INT64_MAX)
            return FAIL(parser, "header: record too large");
        if (!accept(parser, ',') && peek(parser) != ']')
            return FAIL(parser, "header: expected ',' or ']' after a field");
    }
    return TS_OK;
}

/* A type: a string, a record, or (type, shape). */
static enum ts_status descr(struct parser *parser, const char *name, uint64_t offset, unsigned depth, uint64_t *size)
{
    if (depth > MAX_NESTING)
        return FAIL(parser, "header: types nested more than %d deep", MAX_NESTING);
    int first = peek(parser);
    if (first == '[')
        return record(parser, name, offset, depth, size);
    if (first == '(') {
        parser->at++;
        size_t from = parser->header->field_count;
        unsigned rank;
        uint64_t sizes[TS_MAX_RANK];
        TS_TRY(descr(parser, name, offset, depth + 1, size));
        TS_TRY(expect(parser, ','));
        TS_TRY(shape(parser, true, &rank, sizes));
        TS_TRY(repeat(parser, from, rank, sizes, size));
        (void)accept(parser, ',');
        return expect(parser, ')');
    }
    const char *text;
    TS_TRY(string(parser, &text));
    struct ts_npy_field *field;
    TS_TRY(add_field(parser, name, text, offset, &field));
    if (!ts_npy_dtype(field, text))
        return ts_fail(parser->error, TS_ERR_UNSUPPORTED, parser->base + parser->at,
                       "element type '%s', which this program does not know", text);
    if (text[strspn(text, "<>=|!")] == 'O')
        parser->header->objects = true;
    *size = field->size;
    return TS_OK;
}

static enum ts_status boolean(struct parser *parser, bool *value)
{
    (void)peek(parser);
    size_t left = parser->size - parser->at;
    if (left >= 4 && memcmp(parser->text + parser->at, "True", 4) == 0) {
        *value = true;
        parser->at += 4;
    } else if (left >= 5 && memcmp(parser->text + parser->at, "False", 5) == 0) {
        *value = false;
        parser->at += 5;
    } else {
        return FAIL(parser, "header: fortran_order is neither True nor False");
    }
    return TS_OK;
}

static enum ts_status dictionary(struct parser *parser)
{
    struct ts_npy_header *header = parser->header;
    bool has_descr = false, has_order = false, has_shape = false;
    TS_TRY(expect(parser, '{'));
    while (!accept(parser, '}')) {
        const char *key;
        TS_TRY(string(parser, &key));
        TS_TRY(expect(parser, ':'));
        bool *seen = strcmp(key, "descr") == 0           ? &has_descr
                     : strcmp(key, "fortran_order") == 0 ? &has_order
                     : strcmp(key, "shape") == 0         ? &has_shape
                                                         : NULL;
        if (!seen)
            return FAIL(parser, "header: unknown key '%s'", key);
        if (*seen)
            return FAIL(parser, "header: key '%s' stands there twice", key);
        *seen = true;
        if (seen == &has_descr) {
            header->record = peek(parser) == '[';
            TS_TRY(descr(parser, "", 0, 0, &header->item_size));
        } else if (seen == &has_order) {
            TS_TRY(boolean(parser, &header->fortran));
        } else {
            TS_TRY(shape(parser, false, &header->rank, header->shape));
        }
        if (!accept(parser, ',') && peek(parser) != '}')
            return FAIL(parser, "header: expected ',' or '}'");
    }
    if (peek(parser) != -1)
        return FAIL(parser, "header: something stands behind the dictionary");
    if (!has_descr || !has_order || !has_shape)
        return FAIL(parser, "header: key '%s' is missing",
                    !has_descr   ? "descr"
                    : !has_order ? "fortran_order"
                                 : "shape");
    return TS_OK;
}

enum ts_status ts_npy_header_read(struct ts_npy_header *header, const struct ts_source *source, uint64_t offset,
                                  struct ts_error *error)
{
    memset(header, 0, sizeof *header);
    const uint8_t *start = ts_source_at(source, offset, TS_NPY_MAGIC_SIZE + 2);
    if (!start || memcmp(start, TS_NPY_MAGIC, TS_NPY_MAGIC_SIZE) != 0)
        return ts_fail(error, TS_ERR_FORMAT, offset, "not a npy file: it does not begin with \\x93NUMPY and a version");
    header->major = start[6];
    header->minor = start[7];
    if (header->major < 1 || header->major > 3)
        return ts_fail(error, TS_ERR_UNSUPPORTED, offset + 6, "npy version %u.%u, this program knows 1 to 3",
                       header->major, header->minor);
    unsigned width = header->major == 1 ? 2 : 4;
    uint64_t text_offset = offset + TS_NPY_MAGIC_SIZE + 2 + width;
    const uint8_t *length = ts_source_at(source, text_offset - width, width);
    if (!length)
        return ts_fail(error, TS_ERR_FORMAT, text_offset - width,
                       "truncated: the file ends inside the header's length");
    uint32_t size = width == 2 ? ts_load_le16(length) : ts_load_le32(length);
    if (size > MAX_HEADER)
        return ts_fail(error, TS_ERR_LIMIT, text_offset - width,
                       "header of %" PRIu32 " bytes, at most %" PRIu32 " are read", size, MAX_HEADER);
    const uint8_t *text = ts_source_at(source, text_offset, size);
    if (!text)
        return ts_fail(error, TS_ERR_FORMAT, text_offset - width,
                       "truncated: the header takes %" PRIu32 " bytes, %" PRIu64 " are left", size,
                       source->size - text_offset);
    header->data_offset = text_offset + size;
    ts_arena_init(&header->arena, ARENA_LIMIT);
    struct parser parser = {.header = header,
                            .error = error,
                            .text = (const char *)text,
                            .size = size,
                            .base = text_offset,
                            .latin1 = header->major < 3};
    enum ts_status status = dictionary(&parser);
    if (status != TS_OK)
        ts_arena_release(&header->arena);
    return status;
}

void ts_npy_header_release(struct ts_npy_header *header)
{
    ts_arena_release(&header->arena);
}

bool ts_npy_header_bytes(const struct ts_npy_header *header, uint64_t *bytes)
{
    *bytes = header->item_size;
    bool fits = true;
    for (unsigned i = 0; i < header->rank; i++) {
        if (header->shape[i] == 0) { /* whatever the other axes say */
            *bytes = 0;
            return true;
        }
        fits = fits && ts_mul(*bytes, header->shape[i], bytes);
    }
    return fits;
}
