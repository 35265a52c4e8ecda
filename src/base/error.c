#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ts_error_clear(struct ts_error *error)
{
    error->status = TS_OK;
    error->offset = TS_NO_OFFSET;
    error->path[0] = '\0';
    error->tensor[0] = '\0';
    error->message[0] = '\0';
}

enum ts_status ts_fail(struct ts_error *error, enum ts_status status, uint64_t offset, const char *format, ...)
{
    va_list args;
    ts_error_clear(error);
    error->status = status;
    error->offset = offset;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return status;
}

enum ts_status ts_fail_memory(struct ts_error *error)
{
    return ts_fail(error, TS_ERR_MEMORY, TS_NO_OFFSET, "out of memory");
}

enum ts_status ts_fail_errno(struct ts_error *error, int number, const char *format, ...)
{
    va_list args;
    size_t used;
    ts_error_clear(error);
    error->status = TS_ERR_IO;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    used = strlen(error->message);
    snprintf(error->message + used, sizeof error->message - used, ": %s", strerror(number));
    return TS_ERR_IO;
}

static void copy_if_empty(char *field, size_t size, const char *text)
{
    if (field[0] == '\0')
        snprintf(field, size, "%s", text);
}

enum ts_status ts_error_path(struct ts_error *error, const char *path)
{
    copy_if_empty(error->path, sizeof error->path, path);
    return error->status;
}

enum ts_status ts_error_tensor(struct ts_error *error, const char *name)
{
    copy_if_empty(error->tensor, sizeof error->tensor, name);
    return error->status;
}
