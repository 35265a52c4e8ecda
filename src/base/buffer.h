/* Buffer: growable bytes that know their maximum from birth.
 *
 * A failed append (over the limit, out of memory) leaves the contents as they were and sets `failed`, which stays set:
 * a writer may append many times and look once at the end. The bytes are always followed by a NUL. */
#ifndef TS_BASE_BUFFER_H
#define TS_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct ts_buffer {
    char *data; /* NULL until the first append */
    size_t size, capacity, limit;
    bool failed;
};

void ts_buffer_init(struct ts_buffer *buffer, size_t limit);
void ts_buffer_release(struct ts_buffer *buffer);
void ts_buffer_clear(struct ts_buffer *buffer); /* size 0, failed false, memory kept */

bool ts_buffer_append(struct ts_buffer *buffer, const void *data, size_t size);
bool ts_buffer_string(struct ts_buffer *buffer, const char *text);
bool ts_buffer_byte(struct ts_buffer *buffer, char byte);
bool ts_buffer_printf(struct ts_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
