/* JSON: a pull reader over bytes in memory and a writer into a buffer. No tree.
 *
 * Headers of checkpoints and tokenizer files reach tens of megabytes, so the reader hands out one token at a time,
 * pointing into the caller's bytes; nothing is allocated. It is strict (RFC 8259, valid UTF-8, no trailing bytes but
 * white space) and every error carries the byte offset. Depth is bounded by TS_JSON_MAX_DEPTH.
 *
 *     struct ts_json json;
 *     ts_json_init(&json, text, size);
 *     TS_TRY(ts_json_next(&json, error));              -> TS_JSON_OBJECT
 *     while (1) {
 *         TS_TRY(ts_json_next(&json, error));          -> TS_JSON_KEY or TS_JSON_OBJECT_END
 *         if (json.kind == TS_JSON_OBJECT_END) break;
 *         if (ts_json_equals(&json, "shape")) { TS_TRY(ts_json_next(&json, error)); ... }
 *         else TS_TRY(ts_json_skip_value(&json, error));
 *     } */
#ifndef TS_BASE_JSON_H
#define TS_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"

#define TS_JSON_MAX_DEPTH 256

enum ts_json_kind {
    TS_JSON_END, /* after the top-level value and the white space behind it */
    TS_JSON_OBJECT,
    TS_JSON_OBJECT_END,
    TS_JSON_ARRAY,
    TS_JSON_ARRAY_END,
    TS_JSON_KEY,
    TS_JSON_STRING,
    TS_JSON_NUMBER,
    TS_JSON_TRUE,
    TS_JSON_FALSE,
    TS_JSON_NULL
};

struct ts_json {
    /* the current token; read only */
    enum ts_json_kind kind;
    const char *raw; /* for keys and strings: between the quotes, still escaped; for numbers: the digits */
    size_t raw_size;
    size_t offset; /* of the token's first byte */
    bool escaped;  /* the string holds at least one backslash */
    unsigned depth;
    /* settings, to be changed between init and the first next */
    bool allow_nan; /* accept NaN, Infinity, -Infinity as numbers, as Python writes them */
    /* private */
    const char *text;
    size_t size, at;
    unsigned char expect;
    uint64_t in_object[TS_JSON_MAX_DEPTH / 64]; /* bit per level: object or array */
};

void ts_json_init(struct ts_json *json, const void *text, size_t size);
enum ts_status ts_json_next(struct ts_json *json, struct ts_error *error);

/* Skips one whole value: called when the current token is a KEY it skips the key's value; when the current token
 * opens an object or array it skips to the matching end; on any other value it does nothing. */
enum ts_status ts_json_skip_value(struct ts_json *json, struct ts_error *error);

/* The current key or string, unescaped, equals text. */
bool ts_json_equals(const struct ts_json *json, const char *text);
/* The current key or string, unescaped, NUL-terminated, in the arena. NUL characters inside are refused (an error
 * naming the offset), since names are C strings everywhere else. Lone surrogates are refused. */
enum ts_status ts_json_copy(const struct ts_json *json, struct ts_arena *arena, const char **text,
                            struct ts_error *error);
/* The character of the escape at `at`, which lies in the raw text of a key or string that was read, and the bytes it
 * takes. A surrogate pair is one character; a lone surrogate comes back as it is. */
size_t ts_json_escape(const char *at, const char *end, uint32_t *code);
/* The current number. uint64 and int64 refuse fractions, exponents and what does not fit; double takes any number. */
enum ts_status ts_json_uint64(const struct ts_json *json, uint64_t *value, struct ts_error *error);
enum ts_status ts_json_int64(const struct ts_json *json, int64_t *value, struct ts_error *error);
enum ts_status ts_json_double(const struct ts_json *json, double *value, struct ts_error *error);
/* next + check in one: fails with "expected <what>" at the token when the next token is of another kind. */
enum ts_status ts_json_expect(struct ts_json *json, enum ts_json_kind kind, const char *what, struct ts_error *error);

/* Writer. Puts commas, colons and (indent > 0) line breaks where they belong. Errors stick in out->failed. Strings
 * that are not valid UTF-8 are written with U+FFFD for each bad byte; control characters are escaped. NaN and
 * infinities become the strings "nan", "inf", "-inf". Doubles are written with the fewest digits that read back
 * equal. With flush set, the buffer is handed over and cleared whenever it passes 64 KiB and at the end. */
struct ts_json_writer {
    struct ts_buffer *out;
    unsigned indent; /* spaces per level, 0 for one line */
    void (*flush)(void *context, const char *data, size_t size);
    void *flush_context;
    unsigned depth;
    bool after_key, first;
};

void ts_json_writer_init(struct ts_json_writer *writer, struct ts_buffer *out, unsigned indent);
void ts_json_begin_object(struct ts_json_writer *writer);
void ts_json_end_object(struct ts_json_writer *writer);
void ts_json_begin_array(struct ts_json_writer *writer);
void ts_json_end_array(struct ts_json_writer *writer);
void ts_json_key(struct ts_json_writer *writer, const char *key);
void ts_json_string(struct ts_json_writer *writer, const char *text);
void ts_json_string_sized(struct ts_json_writer *writer, const char *text, size_t size);
void ts_json_uint(struct ts_json_writer *writer, uint64_t value);
void ts_json_int(struct ts_json_writer *writer, int64_t value);
void ts_json_number(struct ts_json_writer *writer, double value);
/* The digits alone, as few as give the same double when read; "nan", "inf" and "-inf" without quotes. */
#define TS_JSON_NUMBER_SIZE 48
void ts_json_number_text(char text[TS_JSON_NUMBER_SIZE], double value);
void ts_json_bool(struct ts_json_writer *writer, bool value);
void ts_json_null(struct ts_json_writer *writer);
void ts_json_finish(struct ts_json_writer *writer); /* a line break, and the last flush */

#endif
