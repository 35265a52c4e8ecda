#include "base/buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ts_buffer_init(struct ts_buffer *buffer, size_t limit)
{
    *buffer = (struct ts_buffer){.limit = limit};
}

void ts_buffer_release(struct ts_buffer *buffer)
{
    free(buffer->data);
    ts_buffer_init(buffer, buffer->limit);
}

void ts_buffer_clear(struct ts_buffer *buffer)
{
    buffer->size = 0;
    buffer->failed = false;
    if (buffer->data)
        buffer->data[0] = '\0';
}

static bool reserve(struct ts_buffer *buffer, size_t more)
{
    const size_t limit = buffer->limit < SIZE_MAX ? buffer->limit : SIZE_MAX - 1; /* one byte is for the NUL */
    size_t need, capacity;
    char *data;
    if (buffer->failed || more > limit - buffer->size)
        return !(buffer->failed = true);
    need = buffer->size + more + 1; /* cannot wrap: size + more <= limit < SIZE_MAX */
    if (need <= buffer->capacity)
        return true;
    capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity < need)
        capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
    data = realloc(buffer->data, capacity);
    if (!data)
        return !(buffer->failed = true);
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

bool ts_buffer_append(struct ts_buffer *buffer, const void *data, size_t size)
{
    if (!reserve(buffer, size))
        return false;
    if (size)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    buffer->data[buffer->size] = '\0';
    return true;
}

bool ts_buffer_string(struct ts_buffer *buffer, const char *text)
{
    return ts_buffer_append(buffer, text, strlen(text));
}

bool ts_buffer_byte(struct ts_buffer *buffer, char byte)
{
    return ts_buffer_append(buffer, &byte, 1);
}

bool ts_buffer_printf(struct ts_buffer *buffer, const char *format, ...)
{
    va_list args;
    int length;
    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !reserve(buffer, (size_t)length))
        return !(buffer->failed = true);
    va_start(args, format);
    vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, args);
    va_end(args);
    buffer->size += (size_t)length;
    return true;
}
