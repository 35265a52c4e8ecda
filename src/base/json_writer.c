/* The JSON writer of json.h; the reader is in json.c. */
#include "base/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define FLUSH_SIZE ((size_t)64 * 1024)
/* Text is appended in pieces, so that with a flush function a long string needs no buffer of its size. */
#define PIECE_SIZE ((size_t)32 * 1024)

void ts_json_writer_init(struct ts_json_writer *writer, struct ts_buffer *out, unsigned indent)
{
    *writer = (struct ts_json_writer){.out = out, .indent = indent, .first = true};
}

/* A failed buffer stays as it is: clearing it would forget the failure and leave a hole in the text. */
static void hand_over(struct ts_json_writer *writer)
{
    if (!writer->flush || writer->out->failed || writer->out->size == 0)
        return;
    writer->flush(writer->flush_context, writer->out->data, writer->out->size);
    ts_buffer_clear(writer->out);
}

static void put(struct ts_json_writer *writer, const char *data, size_t size)
{
    while (size > 0) {
        size_t piece = size < PIECE_SIZE ? size : PIECE_SIZE;
        if (!ts_buffer_append(writer->out, data, piece))
            return;
        if (writer->out->size >= FLUSH_SIZE)
            hand_over(writer);
        data += piece;
        size -= piece;
    }
}

static void put_text(struct ts_json_writer *writer, const char *text)
{
    put(writer, text, strlen(text));
}

static void break_line(struct ts_json_writer *writer)
{
    static const char spaces[] = "                                ";
    size_t left = (size_t)writer->indent * writer->depth;
    if (writer->indent == 0)
        return;
    put(writer, "\n", 1);
    while (left > 0 && !writer->out->failed) {
        size_t piece = left < sizeof spaces - 1 ? left : sizeof spaces - 1;
        put(writer, spaces, piece);
        left -= piece;
    }
}

/* What belongs before a key or a value: nothing after a key and at the top, else a comma and a new line. */
static void separate(struct ts_json_writer *writer)
{
    if (writer->after_key) {
        writer->after_key = false;
        return;
    }
    if (writer->depth > 0) {
        if (!writer->first)
            put(writer, ",", 1);
        break_line(writer);
    }
    writer->first = false;
}

static void begin(struct ts_json_writer *writer, const char *bracket)
{
    separate(writer);
    put_text(writer, bracket);
    writer->depth++;
    writer->first = true;
}

static void end(struct ts_json_writer *writer, const char *bracket)
{
    writer->depth--;
    if (!writer->first)
        break_line(writer);
    put_text(writer, bracket);
    writer->first = false;
}

void ts_json_begin_object(struct ts_json_writer *writer)
{
    begin(writer, "{");
}

void ts_json_end_object(struct ts_json_writer *writer)
{
    end(writer, "}");
}

void ts_json_begin_array(struct ts_json_writer *writer)
{
    begin(writer, "[");
}

void ts_json_end_array(struct ts_json_writer *writer)
{
    end(writer, "]");
}

static void put_escape(struct ts_json_writer *writer, unsigned char c)
{
    static const char named[][3] = {['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f", ['\r'] = "\\r"};
    char escape[8];
    if (c < sizeof named / sizeof named[0] && named[c][0])
        put_text(writer, named[c]);
    else if (c == '"' || c == '\\')
        put(writer, (char[]){'\\', (char)c}, 2);
    else {
        snprintf(escape, sizeof escape, "\\u%04x", c);
        put_text(writer, escape);
    }
}

/* Text that is valid UTF-8. JSON lets DEL and the C1 controls stand; a terminal should not see them. */
static void put_valid(struct ts_json_writer *writer, const char *text, size_t size)
{
    size_t done = 0;
    for (size_t at = 0; at < size; at++) {
        unsigned char c = (unsigned char)text[at];
        bool c1 = c == 0xc2 && (unsigned char)text[at + 1] < 0xa0;
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f && !c1)
            continue;
        put(writer, text + done, at - done);
        at += c1;
        put_escape(writer, (unsigned char)text[at]);
        done = at + 1;
    }
    put(writer, text + done, size - done);
}

static void put_string(struct ts_json_writer *writer, const char *text, size_t size)
{
    put(writer, "\"", 1);
    while (size > 0) {
        size_t valid = ts_utf8_valid_prefix(text, size);
        put_valid(writer, text, valid);
        if (valid < size) {
            put_text(writer, "\xef\xbf\xbd");
            valid++;
        }
        text += valid;
        size -= valid;
    }
    put(writer, "\"", 1);
}

void ts_json_key(struct ts_json_writer *writer, const char *key)
{
    separate(writer);
    put_string(writer, key, strlen(key));
    put_text(writer, writer->indent ? ": " : ":");
    writer->after_key = true;
}

void ts_json_string(struct ts_json_writer *writer, const char *text)
{
    ts_json_string_sized(writer, text, strlen(text));
}

void ts_json_string_sized(struct ts_json_writer *writer, const char *text, size_t size)
{
    separate(writer);
    put_string(writer, text, size);
}

void ts_json_uint(struct ts_json_writer *writer, uint64_t value)
{
    char text[24];
    separate(writer);
    snprintf(text, sizeof text, "%" PRIu64, value);
    put_text(writer, text);
}

void ts_json_int(struct ts_json_writer *writer, int64_t value)
{
    char text[24];
    separate(writer);
    snprintf(text, sizeof text, "%" PRId64, value);
    put_text(writer, text);
}

/* printf with the locale's decimal point, of one byte or several, put back to '.'. */
static size_t format_double(char *out, size_t out_size, int digits, double value)
{
    size_t length = 0;
    bool in_point = false;
    snprintf(out, out_size, "%.*g", digits, value);
    for (const char *at = out; *at; at++) {
        bool known = (*at >= '0' && *at <= '9') || *at == 'e' || *at == '+' || *at == '-';
        if (known)
            out[length++] = *at;
        else if (!in_point)
            out[length++] = '.';
        in_point = !known;
    }
    out[length] = '\0';
    return length;
}

/* What a reader makes of the digits. */
static double read_back(const char *text, size_t size)
{
    const struct ts_json token = {.kind = TS_JSON_NUMBER, .raw = text, .raw_size = size};
    struct ts_error error;
    double value = 0;
    ts_json_double(&token, &value, &error);
    return value;
}

void ts_json_number_text(char text[TS_JSON_NUMBER_SIZE], double value)
{
    /* Fifteen digits come out of %g without trailing zeros, so fewer need no trial, but for subnormals: these
     * have fewer digits to tell them apart. */
    int digits = fabs(value) < DBL_MIN ? 1 : 15;
    if (isnan(value) || isinf(value))
        snprintf(text, TS_JSON_NUMBER_SIZE, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    else if (value == 0) /* "-0" is an integer to many readers, and loses its sign there */
        snprintf(text, TS_JSON_NUMBER_SIZE, "%s", signbit(value) ? "-0.0" : "0");
    else if (fabs(value) <= 0x1p53 && value == trunc(value))
        snprintf(text, TS_JSON_NUMBER_SIZE, "%.0f", value);
    else
        while (read_back(text, format_double(text, TS_JSON_NUMBER_SIZE, digits, value)) != value && digits < 17)
            digits++;
}

void ts_json_number(struct ts_json_writer *writer, double value)
{
    char text[TS_JSON_NUMBER_SIZE];
    ts_json_number_text(text, value);
    if (isnan(value) || isinf(value)) {
        ts_json_string(writer, text);
        return;
    }
    separate(writer);
    put_text(writer, text);
}

void ts_json_bool(struct ts_json_writer *writer, bool value)
{
    separate(writer);
    put_text(writer, value ? "true" : "false");
}

void ts_json_null(struct ts_json_writer *writer)
{
    separate(writer);
    put_text(writer, "null");
}

void ts_json_finish(struct ts_json_writer *writer)
{
    put(writer, "\n", 1);
    hand_over(writer);
    writer->first = true;
}
