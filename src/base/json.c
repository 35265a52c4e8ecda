/* The JSON reader of json.h; the writer is in json_writer.c.
 *
 * It is a state machine with one state per place in the grammar (`expect`) and one bit per open level. It moves `at`
 * and the token only when a whole token was good, so calling it again after an error gives the same error. Only the
 * syntax of strings and numbers is checked on the way; converting them is left to the functions that hand them out,
 * because most of a large header is skipped. */
#include "base/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

enum {
    EXPECT_TOP,           /* the one top-level value */
    EXPECT_FIRST_KEY,     /* after '{': a key or '}' */
    EXPECT_COLON,         /* after a key: ':' and a value */
    EXPECT_FIRST_ELEMENT, /* after '[': a value or ']' */
    EXPECT_MORE,          /* after a value inside something: ',' or its end */
    EXPECT_NOTHING        /* after the top-level value */
};

/* The exact decimal form of the midpoint between two neighbouring doubles has less than 800 significant
 * digits. With so many kept and a last one standing for "something not zero follows", rounding cannot differ
 * from that of the whole number. */
#define SIGNIFICANT_DIGITS 800

void ts_json_init(struct ts_json *json, const void *text, size_t size)
{
    *json = (struct ts_json){.text = size ? text : "", .size = size};
}

static void describe_byte(char *out, size_t out_size, unsigned char byte)
{
    if (byte > ' ' && byte < 0x7f)
        snprintf(out, out_size, "'%c'", byte);
    else
        snprintf(out, out_size, "byte 0x%02x", byte);
}

__attribute__((cold, noinline)) static enum ts_status expected(const struct ts_json *json, size_t at, const char *what,
                                                               struct ts_error *error)
{
    char found[16];
    if (at >= json->size)
        return ts_fail(error, TS_ERR_FORMAT, json->size, "JSON ends too early, expected %s", what);
    describe_byte(found, sizeof found, (unsigned char)json->text[at]);
    return ts_fail(error, TS_ERR_FORMAT, at, "expected %s, found %s", what, found);
}

static const char *kind_name(enum ts_json_kind kind)
{
    static const char *const names[] = {
        [TS_JSON_END] = "the end of the text",
        [TS_JSON_OBJECT] = "an object",
        [TS_JSON_OBJECT_END] = "the end of an object",
        [TS_JSON_ARRAY] = "an array",
        [TS_JSON_ARRAY_END] = "the end of an array",
        [TS_JSON_KEY] = "a key",
        [TS_JSON_STRING] = "a string",
        [TS_JSON_NUMBER] = "a number",
        [TS_JSON_TRUE] = "true",
        [TS_JSON_FALSE] = "false",
        [TS_JSON_NULL] = "null",
    };
    return names[kind];
}

static bool in_object(const struct ts_json *json)
{
    unsigned level = json->depth - 1;
    return json->in_object[level / 64] >> (level % 64) & 1;
}

static inline size_t skip_white(const char *text, size_t at, size_t size)
{
    while (at < size && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
        at++;
    return at;
}

/* Marks with 0x80 the bytes that end plain text: quote, backslash, and below 0x20. A borrow can spill a mark
 * only into bytes above a true one, so the lowest mark is always right; bytes from 0x80 up never are. */
static inline uint64_t mark_special(uint64_t eight)
{
    const uint64_t each = 0x0101010101010101u;
    return ((eight - each * 0x20) | ((eight ^ each * '"') - each) | ((eight ^ each * '\\') - each)) & ~eight &
           each * 0x80;
}

/* The first quote, backslash or control character from `at` on, or size. Collects the high bits passed. */
static inline size_t find_special(const char *text, size_t at, size_t size, uint64_t *high)
{
    for (; size - at >= 8; at += 8) {
        uint64_t eight = ts_load_le64(text + at);
        uint64_t marks = mark_special(eight);
        if (marks) {
            *high |= eight & ((marks & -marks) - 1);
            return at + (size_t)__builtin_ctzll(marks) / 8;
        }
        *high |= eight;
    }
    for (; at < size; at++) {
        unsigned char c = (unsigned char)text[at];
        if (c < 0x20 || c == '"' || c == '\\')
            break;
        *high |= c;
    }
    return at;
}

/* Checks the escape whose backslash is at `at` and moves *end behind it. Surrogates are not paired here: the
 * grammar allows lone ones, and ts_json_copy refuses them. */
static enum ts_status check_escape(const struct ts_json *json, size_t at, size_t *end, struct ts_error *error)
{
    const char *text = json->text;
    size_t i;
    if (at + 1 >= json->size)
        return expected(json, at + 1, "the rest of an escape", error);
    if (text[at + 1] != 'u') {
        if (!memchr("\"\\/bfnrt", text[at + 1], 8))
            return expected(json, at + 1, "one of \" \\ / b f n r t u after a backslash", error);
        *end = at + 2;
        return TS_OK;
    }
    for (i = at + 2; i < at + 6; i++)
        if (i >= json->size || ts_hex_value(text[i]) < 0)
            return expected(json, i, "four hexadecimal digits after \\u", error);
    *end = at + 6;
    return TS_OK;
}

__attribute__((cold, noinline)) static enum ts_status bad_string(const struct ts_json *json, size_t open, size_t at,
                                                                 struct ts_error *error)
{
    char what[80];
    if (at < json->size)
        return ts_fail(error, TS_ERR_FORMAT, at,
                       "expected an escape in place of a control character, found byte 0x%02x",
                       (unsigned char)json->text[at]);
    snprintf(what, sizeof what, "'\"' to close the string that starts at byte %zu", open);
    return expected(json, at, what, error);
}

static inline enum ts_status read_string(struct ts_json *json, size_t open, enum ts_json_kind kind,
                                         struct ts_error *error)
{
    const char *text = json->text;
    size_t start = open + 1, at = start;
    uint64_t high = 0;
    bool escaped = false;
    for (;;) {
        at = find_special(text, at, json->size, &high);
        if (at < json->size && text[at] == '"')
            break;
        if (at >= json->size || text[at] != '\\')
            return bad_string(json, open, at, error);
        escaped = true;
        TS_TRY(check_escape(json, at, &at, error));
    }
    if (high & 0x8080808080808080u) {
        size_t valid = ts_utf8_valid_prefix(text + start, at - start);
        if (valid < at - start)
            return ts_fail(error, TS_ERR_FORMAT, start + valid, "expected valid UTF-8 in a string, found byte 0x%02x",
                           (unsigned char)text[start + valid]);
    }
    json->kind = kind;
    json->offset = open;
    json->raw = text + start;
    json->raw_size = at - start;
    json->escaped = escaped;
    json->at = at + 1;
    return TS_OK;
}

static inline void set_token(struct ts_json *json, enum ts_json_kind kind, size_t start, size_t end)
{
    json->kind = kind;
    json->offset = start;
    json->raw = json->text + start;
    json->raw_size = end - start;
    json->escaped = false;
    json->at = end;
}

static inline void after_value(struct ts_json *json)
{
    json->expect = json->depth ? EXPECT_MORE : EXPECT_NOTHING;
}

static enum ts_status read_word(struct ts_json *json, size_t start, const char *word, enum ts_json_kind kind,
                                struct ts_error *error)
{
    size_t at = start;
    const char *w = word;
    for (; *w; w++, at++)
        if (at >= json->size || json->text[at] != *w) {
            char what[32];
            snprintf(what, sizeof what, "the word %s", word);
            return expected(json, at, what, error);
        }
    set_token(json, kind, start, at);
    after_value(json);
    return TS_OK;
}

static inline enum ts_status read_number(struct ts_json *json, size_t start, struct ts_error *error)
{
    const char *text = json->text;
    size_t at = start, size = json->size;
    if (text[at] == '-') {
        at++;
        if (json->allow_nan && at < size && text[at] == 'I')
            return read_word(json, start, "-Infinity", TS_JSON_NUMBER, error);
    }
    if (at >= size || !ts_is_digit(text[at]))
        return expected(json, at, "a digit after '-'", error);
    if (text[at] == '0') {
        at++;
        if (at < size && ts_is_digit(text[at]))
            return expected(json, at, "no digit after a leading 0", error);
    } else {
        while (at < size && ts_is_digit(text[at]))
            at++;
    }
    if (at < size && text[at] == '.') {
        at++;
        if (at >= size || !ts_is_digit(text[at]))
            return expected(json, at, "a digit after '.'", error);
        while (at < size && ts_is_digit(text[at]))
            at++;
    }
    if (at < size && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < size && (text[at] == '+' || text[at] == '-'))
            at++;
        if (at >= size || !ts_is_digit(text[at]))
            return expected(json, at, "a digit in the exponent", error);
        while (at < size && ts_is_digit(text[at]))
            at++;
    }
    set_token(json, TS_JSON_NUMBER, start, at);
    after_value(json);
    return TS_OK;
}

static enum ts_status open_level(struct ts_json *json, size_t at, enum ts_json_kind kind, struct ts_error *error)
{
    unsigned level = json->depth;
    uint64_t bit = (uint64_t)1 << (level % 64);
    if (level >= TS_JSON_MAX_DEPTH)
        return ts_fail(error, TS_ERR_LIMIT, at, "JSON is nested deeper than %d levels", TS_JSON_MAX_DEPTH);
    if (kind == TS_JSON_OBJECT)
        json->in_object[level / 64] |= bit;
    else
        json->in_object[level / 64] &= ~bit;
    json->depth++;
    json->expect = kind == TS_JSON_OBJECT ? EXPECT_FIRST_KEY : EXPECT_FIRST_ELEMENT;
    set_token(json, kind, at, at + 1);
    return TS_OK;
}

static enum ts_status close_level(struct ts_json *json, size_t at, enum ts_json_kind kind)
{
    json->depth--;
    after_value(json);
    set_token(json, kind, at, at + 1);
    return TS_OK;
}

static inline enum ts_status read_value(struct ts_json *json, size_t at, const char *what, struct ts_error *error)
{
    if (at >= json->size)
        return expected(json, at, what, error);
    switch (json->text[at]) {
    case '"':
        TS_TRY(read_string(json, at, TS_JSON_STRING, error));
        after_value(json);
        return TS_OK;
    case '{':
        return open_level(json, at, TS_JSON_OBJECT, error);
    case '[':
        return open_level(json, at, TS_JSON_ARRAY, error);
    case 't':
        return read_word(json, at, "true", TS_JSON_TRUE, error);
    case 'f':
        return read_word(json, at, "false", TS_JSON_FALSE, error);
    case 'n':
        return read_word(json, at, "null", TS_JSON_NULL, error);
    default:
        break;
    }
    if (ts_is_digit(json->text[at]) || json->text[at] == '-')
        return read_number(json, at, error);
    if (json->allow_nan && json->text[at] == 'N')
        return read_word(json, at, "NaN", TS_JSON_NUMBER, error);
    if (json->allow_nan && json->text[at] == 'I')
        return read_word(json, at, "Infinity", TS_JSON_NUMBER, error);
    return expected(json, at, what, error);
}

static inline enum ts_status read_key(struct ts_json *json, size_t at, const char *what, struct ts_error *error)
{
    if (at >= json->size || json->text[at] != '"')
        return expected(json, at, what, error);
    TS_TRY(read_string(json, at, TS_JSON_KEY, error));
    json->expect = EXPECT_COLON;
    return TS_OK;
}

enum ts_status ts_json_next(struct ts_json *json, struct ts_error *error)
{
    const char *text = json->text;
    size_t size = json->size, at = skip_white(text, json->at, size);
    bool object;
    switch (json->expect) {
    case EXPECT_TOP:
        return read_value(json, at, "a value", error);
    case EXPECT_FIRST_KEY:
        if (at < size && text[at] == '}')
            return close_level(json, at, TS_JSON_OBJECT_END);
        return read_key(json, at, "a key or '}'", error);
    case EXPECT_COLON:
        if (at >= size || text[at] != ':')
            return expected(json, at, "':' after the key", error);
        return read_value(json, skip_white(text, at + 1, size), "a value after ':'", error);
    case EXPECT_FIRST_ELEMENT:
        if (at < size && text[at] == ']')
            return close_level(json, at, TS_JSON_ARRAY_END);
        return read_value(json, at, "a value or ']'", error);
    case EXPECT_MORE:
        object = in_object(json);
        if (at < size && text[at] == ',') {
            at = skip_white(text, at + 1, size);
            return object ? read_key(json, at, "a key after ','", error)
                          : read_value(json, at, "a value after ','", error);
        }
        if (at < size && text[at] == (object ? '}' : ']'))
            return close_level(json, at, object ? TS_JSON_OBJECT_END : TS_JSON_ARRAY_END);
        return expected(json, at, object ? "',' or '}'" : "',' or ']'", error);
    default:
        if (at < size)
            return expected(json, at, "the end of the text", error);
        set_token(json, TS_JSON_END, at, at);
        return TS_OK;
    }
}

enum ts_status ts_json_skip_value(struct ts_json *json, struct ts_error *error)
{
    unsigned depth;
    if (json->kind == TS_JSON_KEY)
        TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_OBJECT && json->kind != TS_JSON_ARRAY)
        return TS_OK;
    depth = json->depth;
    do {
        TS_TRY(ts_json_next(json, error));
    } while (json->depth >= depth);
    return TS_OK;
}

enum ts_status ts_json_expect(struct ts_json *json, enum ts_json_kind kind, const char *what, struct ts_error *error)
{
    TS_TRY(ts_json_next(json, error));
    if (json->kind != kind)
        return ts_fail(error, TS_ERR_FORMAT, json->offset, "expected %s, found %s", what, kind_name(json->kind));
    return TS_OK;
}

static uint32_t four_hex(const char *digits)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value = value << 4 | (uint32_t)ts_hex_value(digits[i]);
    return value;
}

static bool is_surrogate(uint32_t code)
{
    return code >= 0xd800 && code < 0xe000;
}

size_t ts_json_escape(const char *at, const char *end, uint32_t *code)
{
    static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    uint32_t low;
    if (at[1] != 'u') {
        const char *letter = strchr(letters, at[1]);
        *code = (unsigned char)(letter ? meanings[letter - letters] : at[1]);
        return 2;
    }
    *code = four_hex(at + 2);
    if (*code >= 0xd800 && *code < 0xdc00 && end - at >= 12 && at[6] == '\\' && at[7] == 'u') {
        low = four_hex(at + 8);
        if (low >= 0xdc00 && low < 0xe000) {
            *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
            return 12;
        }
    }
    return 6;
}

static bool is_text(const struct ts_json *json)
{
    return json->kind == TS_JSON_KEY || json->kind == TS_JSON_STRING;
}

bool ts_json_equals(const struct ts_json *json, const char *text)
{
    const char *at = json->raw, *end;
    size_t left = strlen(text);
    if (!is_text(json))
        return false;
    if (!json->escaped)
        return left == json->raw_size && memcmp(at, text, left) == 0;
    end = at + json->raw_size;
    while (at < end) {
        char piece[4];
        size_t length = 1;
        if (*at == '\\') {
            uint32_t code;
            at += ts_json_escape(at, end, &code);
            if (is_surrogate(code))
                return false;
            length = ts_utf8_put(code, piece);
        } else {
            piece[0] = *at++;
        }
        if (left < length || memcmp(piece, text, length) != 0)
            return false;
        text += length;
        left -= length;
    }
    return left == 0;
}

enum ts_status ts_json_copy(const struct ts_json *json, struct ts_arena *arena, const char **text,
                            struct ts_error *error)
{
    const char *at = json->raw, *end;
    char *copy, *out;
    if (!is_text(json))
        return ts_fail(error, TS_ERR_FORMAT, json->offset, "expected a string, found %s", kind_name(json->kind));
    /* No escape is shorter than the UTF-8 it stands for, so the raw size is enough. */
    copy = json->escaped ? ts_arena_alloc(arena, json->raw_size + 1) : ts_arena_copy(arena, at, json->raw_size);
    if (!copy)
        return ts_fail_memory(error);
    *text = copy;
    if (!json->escaped)
        return TS_OK;
    end = at + json->raw_size;
    out = copy;
    while (at < end) {
        const char *stop = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((stop ? stop : end) - at);
        uint32_t code;
        size_t used;
        memcpy(out, at, plain);
        out += plain;
        at += plain;
        if (!stop)
            break;
        used = ts_json_escape(at, end, &code);
        if (code == 0)
            return ts_fail(error, TS_ERR_FORMAT, (uint64_t)(at - json->text),
                           "expected a string without NUL characters, found \\u0000");
        if (is_surrogate(code))
            return ts_fail(error, TS_ERR_FORMAT, (uint64_t)(at - json->text),
                           "expected surrogates in pairs, found a lone \\u%04" PRIx32, code);
        out += ts_utf8_put(code, out);
        at += used;
    }
    *out = '\0';
    return TS_OK;
}

static enum ts_status expect_number(const struct ts_json *json, struct ts_error *error)
{
    if (json->kind != TS_JSON_NUMBER)
        return ts_fail(error, TS_ERR_FORMAT, json->offset, "expected a number, found %s", kind_name(json->kind));
    return TS_OK;
}

/* The digits as an unsigned number; false for a fraction, an exponent, NaN, or more than 64 bits. */
static bool whole_number(const struct ts_json *json, bool *negative, uint64_t *value)
{
    const char *at = json->raw, *end = at + json->raw_size;
    uint64_t result = 0;
    *negative = *at == '-';
    for (at += *negative; at < end; at++)
        if (!ts_is_digit(*at) || __builtin_mul_overflow(result, 10, &result) ||
            __builtin_add_overflow(result, (uint64_t)(*at - '0'), &result))
            return false;
    *value = result;
    return true;
}

static enum ts_status not_in_range(const struct ts_json *json, const char *range, struct ts_error *error)
{
    const int shown = json->raw_size > 40 ? 40 : (int)json->raw_size;
    return ts_fail(error, TS_ERR_FORMAT, json->offset, "expected a whole number %s, found %.*s%s", range, shown,
                   json->raw, json->raw_size > 40 ? "..." : "");
}

enum ts_status ts_json_uint64(const struct ts_json *json, uint64_t *value, struct ts_error *error)
{
    bool negative;
    uint64_t magnitude;
    TS_TRY(expect_number(json, error));
    if (!whole_number(json, &negative, &magnitude) || (negative && magnitude > 0))
        return not_in_range(json, "from 0 to 2^64 - 1", error);
    *value = magnitude;
    return TS_OK;
}

enum ts_status ts_json_int64(const struct ts_json *json, int64_t *value, struct ts_error *error)
{
    bool negative;
    uint64_t magnitude;
    TS_TRY(expect_number(json, error));
    if (!whole_number(json, &negative, &magnitude) || magnitude > (uint64_t)INT64_MAX + negative)
        return not_in_range(json, "from -2^63 to 2^63 - 1", error);
    if (!negative)
        *value = (int64_t)magnitude;
    else
        *value = magnitude > INT64_MAX ? INT64_MIN : -(int64_t)magnitude;
    return TS_OK;
}

/* strtod takes the digits as an integer with an exponent: no locale disagrees about a decimal point. */
static double convert_digits(const char *digits, size_t count, int64_t exponent)
{
    char copy[SIGNIFICANT_DIGITS + 32];
    /* Past these bounds the result is 0 or infinite whatever the digits, of which there are at most 801. */
    exponent = exponent > 9999 ? 9999 : exponent < -9999 ? -9999 : exponent;
    memcpy(copy, digits, count);
    snprintf(copy + count, sizeof copy - count, "e%d", (int)exponent);
    return strtod(copy, NULL);
}

/* Correctly rounded value of a number that follows the JSON grammar. */
static double parse_double(const char *text, size_t size)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *at = text, *end = text + size;
    char digits[SIGNIFICANT_DIGITS + 1];
    size_t count = 0;
    uint64_t mantissa = 0; /* of the first 19 digits, which always fit */
    int64_t scale = 0;     /* power of ten of the last digit kept */
    bool negative = *at == '-', fraction = false, dropped = false;
    double value;
    at += negative;
    if (*at == 'N')
        return (double)NAN;
    if (*at == 'I')
        return negative ? -(double)INFINITY : (double)INFINITY;
    for (; at < end && (ts_is_digit(*at) || *at == '.'); at++) {
        if (*at == '.') {
            fraction = true;
        } else if (count == SIGNIFICANT_DIGITS) {
            dropped |= *at != '0';
            scale += !fraction;
        } else {
            scale -= fraction;
            if (count == 0 && *at == '0')
                continue;
            if (count < 19)
                mantissa = mantissa * 10 + (uint64_t)(*at - '0');
            digits[count++] = *at;
        }
    }
    if (at < end) {
        int64_t exponent = 0;
        bool down = *++at == '-';
        at += *at == '-' || *at == '+';
        for (; at < end; at++)
            if (exponent < INT64_MAX / 100) /* far more than any text has digits to make up for */
                exponent = exponent * 10 + (*at - '0');
        scale += down ? -exponent : exponent;
    }
    if (dropped) {
        digits[count++] = '1';
        scale--;
    }
    if (count == 0)
        value = 0;
    else if (FLT_EVAL_METHOD == 0 && count <= 19 && mantissa <= (uint64_t)1 << 53 && scale >= -22 && scale <= 22)
        /* Both operands are exact, so the one operation rounds once. */
        value = scale < 0 ? (double)mantissa / tens[-scale] : (double)mantissa * tens[scale];
    else
        value = convert_digits(digits, count, scale);
    return negative ? -value : value;
}

enum ts_status ts_json_double(const struct ts_json *json, double *value, struct ts_error *error)
{
    TS_TRY(expect_number(json, error));
    *value = parse_double(json->raw, json->raw_size);
    return TS_OK;
}
