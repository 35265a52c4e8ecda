/* Pickle text: the numbers and strings that protocol 0 writes as lines of text, and big integers. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "read/pickle.h"

static enum ts_status bytes_value(struct ts_arena *arena, enum ts_pickle_kind kind, const uint8_t *data, uint64_t size,
                                  struct ts_pickle_value *value, struct ts_error *error)
{
    struct ts_pickle_bytes *bytes = ts_arena_alloc(arena, sizeof *bytes);
    if (!bytes)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "the pickle needs too much memory");
    bytes->data = data;
    bytes->size = size;
    *value = (struct ts_pickle_value){.kind = kind, .bytes = bytes};
    return TS_OK;
}

/* "-12", "12L" (Python 2's long), "00" and "01" (bool in protocol 0). */
enum ts_status ts_pickle_parse_integer(struct ts_arena *arena, const uint8_t *line, uint64_t size, uint64_t offset,
                                       struct ts_pickle_value *value, struct ts_error *error)
{
    uint64_t at = 0, digits;
    int64_t sum = 0;
    bool negative = false, fits = true;
    if (size == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1')) {
        *value = (struct ts_pickle_value){.kind = TS_PICKLE_BOOL, .truth = line[1] == '1'};
        return TS_OK;
    }
    if (size && line[size - 1] == 'L')
        size--;
    if (size && (line[0] == '-' || line[0] == '+'))
        negative = line[at++] == '-';
    digits = at;
    for (; at < size && line[at] >= '0' && line[at] <= '9'; at++) {
        int digit = line[at] - '0';
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, negative ? -digit : digit, &sum))
            fits = false;
        if (!fits)
            sum = 0;
    }
    if (at == digits || at != size)
        return ts_fail(error, TS_ERR_FORMAT, offset, "an integer is written with something else than digits");
    if (fits) {
        *value = (struct ts_pickle_value){.kind = TS_PICKLE_INT, .integer = sum};
        return TS_OK;
    }
    TS_TRY(bytes_value(arena, TS_PICKLE_BIG, line, size, value, error));
    value->bytes->decimal = true;
    return TS_OK;
}

enum ts_status ts_pickle_parse_float(const uint8_t *line, uint64_t size, uint64_t offset, double *number,
                                     struct ts_error *error)
{
    char text[64], *end;
    if (size == 0 || size >= sizeof text)
        return ts_fail(error, TS_ERR_FORMAT, offset, "a float is written with %" PRIu64 " characters", size);
    memcpy(text, line, size);
    text[size] = '\0';
    *number = strtod(text, &end); /* reads inf and nan as Python writes them; the C locale is never changed */
    if (end != text + size || text[0] == ' ')
        return ts_fail(error, TS_ERR_FORMAT, offset, "a float is written with something else than digits");
    return TS_OK;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads `count` hexadecimal digits; false when they are not there. */
static bool read_hex(const uint8_t *text, uint64_t size, unsigned count, uint32_t *code)
{
    *code = 0;
    if (size < count)
        return false;
    for (unsigned i = 0; i < count; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

/* One escape of a Python string literal after its backslash, at text[*at]; writes at most one byte. */
static bool unescape(const uint8_t *text, uint64_t size, uint64_t *at, uint8_t *out)
{
    static const char names[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    const uint8_t c = text[(*at)++];
    const char *known = c ? strchr(names, c) : NULL;
    uint32_t code;
    if (known) {
        *out = (uint8_t)values[known - names];
    } else if (c == 'x') {
        if (!read_hex(text + *at, size - *at, 2, &code))
            return false;
        *out = (uint8_t)code;
        *at += 2;
    } else if (c >= '0' && c <= '7') {
        code = (uint32_t)(c - '0');
        for (unsigned i = 0; i < 2 && *at < size && text[*at] >= '0' && text[*at] <= '7'; i++)
            code = code << 3 | (uint32_t)(text[(*at)++] - '0');
        *out = (uint8_t)code;
    } else {
        return false;
    }
    return true;
}

/* Python 2's repr of a str: quoted, with escapes. */
enum ts_status ts_pickle_parse_string(struct ts_arena *arena, const uint8_t *line, uint64_t size, uint64_t offset,
                                      struct ts_pickle_value *value, struct ts_error *error)
{
    uint64_t used = 0;
    uint8_t *text;
    if (size < 2 || (line[0] != '\'' && line[0] != '"') || line[size - 1] != line[0])
        return ts_fail(error, TS_ERR_FORMAT, offset, "a string has no quotes around it");
    line++;
    size -= 2;
    if (size == 0 || !memchr(line, '\\', size))
        return bytes_value(arena, TS_PICKLE_STRING, line, size, value, error);
    if (!(text = ts_arena_alloc(arena, size)))
        return ts_fail(error, TS_ERR_LIMIT, offset, "the pickle needs too much memory");
    for (uint64_t at = 0; at < size;) {
        uint8_t c = line[at++];
        if (c != '\\') {
            text[used++] = c;
        } else if (at == size || !unescape(line, size, &at, &c)) {
            return ts_fail(error, TS_ERR_FORMAT, offset + 1 + at, "a string has an escape that Python does not know");
        } else {
            text[used++] = c;
        }
    }
    return bytes_value(arena, TS_PICKLE_STRING, text, used, value, error);
}

/* Latin-1 with \uXXXX and \UXXXXXXXX for the rest; every other backslash is itself. */
enum ts_status ts_pickle_parse_unicode(struct ts_arena *arena, const uint8_t *line, uint64_t size, uint64_t offset,
                                       struct ts_pickle_value *value, struct ts_error *error)
{
    uint64_t used = 0, plain = 0, most;
    uint8_t *text;
    while (plain < size && line[plain] < 0x80 && line[plain] != '\\')
        plain++;
    if (plain == size)
        return bytes_value(arena, TS_PICKLE_TEXT, line, size, value, error);
    /* One byte of Latin-1 becomes at most two; an escape of six bytes at most three, of ten at most four. */
    if (!ts_mul(size, 2, &most) || !(text = ts_arena_alloc(arena, most)))
        return ts_fail(error, TS_ERR_LIMIT, offset, "the pickle needs too much memory");
    for (uint64_t at = 0; at < size;) {
        uint32_t code = line[at];
        unsigned digits = code == '\\' && at + 1 < size ? (line[at + 1] == 'u' ? 4 : line[at + 1] == 'U' ? 8 : 0) : 0;
        if (!digits) {
            at++;
        } else if (!read_hex(line + at + 2, size - at - 2, digits, &code) || code > 0x10ffff) {
            return ts_fail(error, TS_ERR_FORMAT, offset + at, "a string has an escape that Python does not know");
        } else {
            at += 2 + digits;
        }
        used += ts_utf8_put(code, (char *)text + used);
    }
    return bytes_value(arena, TS_PICKLE_TEXT, text, used, value, error);
}

double ts_pickle_big_to_double(const struct ts_pickle_bytes *big)
{
    const bool negative = big->size && (big->decimal ? big->data[0] == '-' : big->data[big->size - 1] & 0x80);
    uint8_t magnitude[130];
    uint64_t carry = 1, top = 0;
    unsigned last = 0;
    if (big->decimal ? big->size > 400 : big->size > 129) /* 2^1024 has 309 digits, and 128 bytes without its sign */
        return negative ? -INFINITY : INFINITY;
    if (big->decimal) {
        char text[401];
        memcpy(text, big->data, big->size);
        text[big->size] = '\0';
        return strtod(text, NULL);
    }
    for (unsigned i = 0; i < sizeof magnitude; i++) {
        uint64_t byte = i < big->size ? big->data[i] : negative ? 0xff : 0;
        if (negative) { /* the magnitude of a two's complement number: invert and add one */
            byte = (byte ^ 0xff) + carry;
            carry = byte >> 8;
        }
        magnitude[i] = (uint8_t)byte;
        if (magnitude[i])
            last = i;
    }
    /* The highest eight bytes, and whether anything is below them: a conversion then rounds as if it saw all. */
    for (unsigned i = 0; i < 8; i++)
        top = top << 8 | (last >= i ? magnitude[last - i] : 0);
    for (unsigned i = 8; i <= last; i++)
        top |= magnitude[last - i] != 0;
    return ldexp(negative ? -(double)top : (double)top, (int)last * 8 - 56);
}

void ts_pickle_big_text(const struct ts_pickle_bytes *big, struct ts_buffer *out)
{
    /* Up to 512 bits exactly, as 16 digits of base 2^32, the highest first. */
    uint32_t digits[17] = {0};
    char text[176], *at = text + sizeof text;
    uint64_t carry = 1, rest;
    bool negative;
    if (big->decimal) {
        ts_buffer_append(out, big->data, (size_t)(big->size < 200 ? big->size : 200));
        return;
    }
    if (big->size == 0 || big->size > 64) {
        ts_buffer_printf(out, "an integer of %" PRIu64 " bytes", big->size);
        return;
    }
    negative = big->data[big->size - 1] & 0x80;
    for (unsigned i = 0; i < 68; i++) {
        uint64_t byte = i < big->size ? big->data[i] : negative ? 0xff : 0;
        if (negative) { /* the magnitude of a two's complement number: invert and add one */
            byte = (byte ^ 0xff) + carry;
            carry = byte >> 8;
        }
        digits[16 - i / 4] |= (uint32_t)(byte & 0xff) << (8 * (i % 4));
    }
    *--at = '\0';
    do { /* 544 bits have at most 164 decimal digits */
        uint64_t left = 0;
        rest = 0;
        for (unsigned i = 0; i < 17; i++) {
            uint64_t value = left << 32 | digits[i];
            digits[i] = (uint32_t)(value / 10);
            left = value % 10;
            rest |= digits[i];
        }
        *--at = (char)('0' + left);
    } while (rest);
    if (negative)
        *--at = '-';
    ts_buffer_string(out, at);
}
