/* Owns what handlers use to read a request and to write its answer. */
#include "serve/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "report/json_fields.h"

struct ts_json_writer *ts_call_json(struct ts_call *call, unsigned status)
{
    ts_buffer_clear(&call->out);
    call->status = status;
    call->type = "application/json";
    ts_json_writer_init(&call->json, &call->out, 0);
    return &call->json;
}

void ts_call_fail(struct ts_call *call, unsigned status, const char *fix, const char *format, ...)
{
    struct ts_json_writer *json = ts_call_json(call, status);
    char message[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ts_json_begin_object(json);
    ts_json_key(json, "error");
    ts_json_begin_object(json);
    ts_field_count(json, "status", status);
    ts_field_text(json, "message", message);
    if (fix)
        ts_field_text(json, "fix", fix);
    ts_json_end_object(json);
    ts_json_end_object(json);
    ts_json_finish(json);
}

void ts_call_error(struct ts_call *call, const struct ts_error *error)
{
    static const unsigned statuses[] = {[TS_OK] = 500,         [TS_ERR_USAGE] = 400,       [TS_ERR_IO] = 500,
                                        [TS_ERR_FORMAT] = 422, [TS_ERR_UNSUPPORTED] = 422, [TS_ERR_LIMIT] = 422,
                                        [TS_ERR_MEMORY] = 503, [TS_ERR_CANCELLED] = 409};
    const char *fix = error->status == TS_ERR_MEMORY ? "close other workspaces and try again" : NULL;
    if (error->tensor[0])
        ts_call_fail(call, statuses[error->status], fix, "%s: %s", error->tensor, error->message);
    else
        ts_call_fail(call, statuses[error->status], fix, "%s", error->message);
}

void ts_call_header(struct ts_call *call, const char *name, const char *format, ...)
{
    va_list args;
    if (call->header_count == TS_CALL_HEADERS)
        return;
    call->headers[call->header_count].name = name;
    va_start(args, format);
    vsnprintf(call->headers[call->header_count].value, sizeof call->headers[0].value, format, args);
    va_end(args);
    call->header_count++;
}

bool ts_decode_percent(char *text)
{
    char *out = text;
    for (const char *at = text; *at; at++) {
        int high, low;
        if (*at != '%') {
            *out++ = *at;
            continue;
        }
        high = ts_hex_value(at[1]);
        low = high < 0 ? -1 : ts_hex_value(at[2]);
        if (low < 0 || high * 16 + low == 0)
            return false;
        *out++ = (char)(high * 16 + low);
        at += 2;
    }
    *out = '\0';
    return true;
}

bool ts_call_parameter(struct ts_call *call, const char *name, char *out, size_t size)
{
    const char *value = MHD_lookup_connection_value(call->connection, MHD_GET_ARGUMENT_KIND, name);
    size_t length = value ? strlen(value) : size;
    if (length >= size)
        return false;
    memcpy(out, value, length + 1);
    return ts_decode_percent(out);
}

/* Digits alone: no sign, no blank, no fraction. */
static bool parse_number(const char *text, size_t length, uint64_t most, uint64_t *value)
{
    uint64_t number = 0;
    if (length == 0 || length > 20)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number))
            return false;
    *value = number;
    return number <= most;
}

bool ts_call_count(struct ts_call *call, const char *name, uint64_t most, uint64_t *value)
{
    char text[64];
    if (!MHD_lookup_connection_value(call->connection, MHD_GET_ARGUMENT_KIND, name))
        return true;
    if (ts_call_parameter(call, name, text, sizeof text) && parse_number(text, strlen(text), most, value))
        return true;
    ts_call_fail(call, 400, NULL, "%s must be a whole number from 0 to %llu", name, (unsigned long long)most);
    return false;
}

bool ts_call_counts(struct ts_call *call, const char *name, uint64_t *values, size_t room, size_t *count)
{
    char text[2048];
    const char *at = text;
    *count = 0;
    if (!MHD_lookup_connection_value(call->connection, MHD_GET_ARGUMENT_KIND, name))
        return true;
    if (!ts_call_parameter(call, name, text, sizeof text)) {
        ts_call_fail(call, 400, NULL, "%s is too long or badly encoded", name);
        return false;
    }
    while (*at) { /* nothing at all is a list too: of a scalar */
        size_t length = strcspn(at, ",");
        if (*count == room || !parse_number(at, length, INT64_MAX, &values[*count])) {
            ts_call_fail(call, 400, NULL, "%s must be at most %zu whole numbers with commas between them, not \"%s\"",
                         name, room, text);
            return false;
        }
        ++*count;
        at += length;
        if (*at == ',' && *++at == '\0')
            at = ",";
    }
    return true;
}
