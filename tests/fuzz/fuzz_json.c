/* JSON: whatever the reader accepts is written again and read back, token by token, to the same thing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static void check_error(const struct ts_error *error, enum ts_status status, size_t size)
{
    CHECK(error->status == status && status != TS_OK);
    CHECK(error->offset <= size);
    CHECK(error->message[0] != '\0');
}

static bool is_text(const struct ts_json *json)
{
    return json->kind == TS_JSON_KEY || json->kind == TS_JSON_STRING;
}

/* The current string in the arena, or NULL where it cannot be a C string. */
static const char *copy_text(const struct ts_json *json, struct ts_arena *arena)
{
    struct ts_error error;
    const char *text = NULL;
    enum ts_status status = ts_json_copy(json, arena, &text, &error);
    if (status == TS_ERR_FORMAT) {
        check_error(&error, status, json->size);
        CHECK(json->escaped); /* only an escape can stand for a NUL or a lone surrogate */
        return NULL;
    }
    if (status != TS_OK)
        return NULL;
    CHECK(strlen(text) <= json->raw_size);
    CHECK(ts_utf8_valid_prefix(text, strlen(text)) == strlen(text));
    CHECK(ts_json_equals(json, text));
    return text;
}

static double number(const struct ts_json *json)
{
    struct ts_error error;
    double value = 0;
    uint64_t whole;
    int64_t with_sign;
    CHECK(ts_json_double(json, &value, &error) == TS_OK);
    if (ts_json_uint64(json, &whole, &error) == TS_OK)
        CHECK((double)whole == value);
    if (ts_json_int64(json, &with_sign, &error) == TS_OK)
        CHECK((double)with_sign == value);
    return value;
}

static void write_token(struct ts_json_writer *writer, const struct ts_json *json, struct ts_arena *arena)
{
    const char *text;
    switch (json->kind) {
    case TS_JSON_END:
        ts_json_finish(writer);
        break;
    case TS_JSON_OBJECT:
        ts_json_begin_object(writer);
        break;
    case TS_JSON_OBJECT_END:
        ts_json_end_object(writer);
        break;
    case TS_JSON_ARRAY:
        ts_json_begin_array(writer);
        break;
    case TS_JSON_ARRAY_END:
        ts_json_end_array(writer);
        break;
    case TS_JSON_KEY:
        text = copy_text(json, arena);
        ts_json_key(writer, text ? text : "");
        break;
    case TS_JSON_STRING:
        text = copy_text(json, arena);
        if (text)
            ts_json_string(writer, text);
        else
            ts_json_string_sized(writer, json->raw, json->raw_size);
        break;
    case TS_JSON_NUMBER:
        ts_json_number(writer, number(json));
        break;
    case TS_JSON_TRUE:
        ts_json_bool(writer, true);
        break;
    case TS_JSON_FALSE:
        ts_json_bool(writer, false);
        break;
    case TS_JSON_NULL:
        ts_json_null(writer);
        break;
    }
}

/* Whether the text was accepted; what was written is in out then. */
static bool rewrite(const uint8_t *data, size_t size, bool allow_nan, unsigned indent, struct ts_buffer *out)
{
    struct ts_json json;
    struct ts_json_writer writer;
    struct ts_arena arena;
    struct ts_error error;
    enum ts_status status;
    ts_arena_init(&arena, (size_t)64 << 20);
    ts_json_init(&json, data, size);
    json.allow_nan = allow_nan;
    ts_json_writer_init(&writer, out, indent);
    do {
        size_t before = json.at;
        status = ts_json_next(&json, &error);
        if (status != TS_OK) {
            check_error(&error, status, size);
            break;
        }
        CHECK(json.at <= size && json.offset < json.at + (json.kind == TS_JSON_END));
        CHECK(json.at > before || json.kind == TS_JSON_END);
        CHECK(json.depth <= TS_JSON_MAX_DEPTH);
        write_token(&writer, &json, &arena);
    } while (json.kind != TS_JSON_END);
    ts_arena_release(&arena);
    return status == TS_OK;
}

static void check_same(const uint8_t *data, size_t size, bool allow_nan, const struct ts_buffer *written)
{
    struct ts_json first, second;
    struct ts_arena arena;
    struct ts_error error;
    ts_arena_init(&arena, (size_t)64 << 20);
    ts_json_init(&first, data, size);
    first.allow_nan = allow_nan;
    ts_json_init(&second, written->data, written->size);
    do {
        CHECK(ts_json_next(&first, &error) == TS_OK);
        CHECK(ts_json_next(&second, &error) == TS_OK);
        CHECK(first.depth == second.depth);
        if (first.kind == TS_JSON_NUMBER && !isfinite(number(&first))) {
            CHECK(second.kind == TS_JSON_STRING);
            continue;
        }
        CHECK(first.kind == second.kind);
        if (first.kind == TS_JSON_NUMBER)
            CHECK(number(&first) == number(&second) && !signbit(number(&first)) == !signbit(number(&second)));
        if (is_text(&first)) {
            const char *text = copy_text(&first, &arena);
            CHECK(!text || ts_json_equals(&second, text));
        }
    } while (first.kind != TS_JSON_END);
    ts_arena_release(&arena);
}

static void check_skip(const uint8_t *data, size_t size, bool accepted)
{
    struct ts_json json;
    struct ts_error error;
    enum ts_status status;
    ts_json_init(&json, data, size);
    status = ts_json_next(&json, &error);
    if (status == TS_OK)
        status = ts_json_skip_value(&json, &error);
    if (status == TS_OK) {
        CHECK(json.depth == 0);
        status = ts_json_next(&json, &error);
    }
    CHECK((status == TS_OK) == accepted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ts_buffer out;
    bool strict = false;
    ts_buffer_init(&out, (size_t)256 << 20);
    for (int allow_nan = 0; allow_nan < 2; allow_nan++) {
        bool accepted = false;
        for (unsigned indent = 0; indent <= 3; indent += 3) {
            ts_buffer_clear(&out);
            accepted = rewrite(data, size, allow_nan, indent, &out);
            if (accepted && !out.failed)
                check_same(data, size, allow_nan, &out);
        }
        if (!allow_nan)
            strict = accepted;
        else
            CHECK(accepted || !strict);
    }
    check_skip(data, size, strict);
    ts_buffer_release(&out);
    return 0;
}
