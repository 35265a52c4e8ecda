#include "tensor/slice.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ts_slice_all(const struct ts_tensor *tensor, struct ts_slice *slice)
{
    slice->rank = tensor->rank;
    for (unsigned i = 0; i < tensor->rank; i++)
        slice->axes[i] = (struct ts_slice_axis){.start = 0, .count = tensor->shape[i], .step = 1};
}

uint64_t ts_slice_count(const struct ts_slice *slice)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < slice->rank; i++)
        count *= slice->axes[i].count; /* each at most the tensor's: the product fits */
    return count;
}

/* One part of start:stop:step. Empty is allowed: *given says. */
static bool parse_number(const char **at, const char *end, int64_t *number, bool *given)
{
    bool negative = false, sign = false;
    uint64_t value = 0;
    while (*at < end && isspace((unsigned char)**at))
        (*at)++;
    if (*at < end && (**at == '-' || **at == '+')) {
        sign = true;
        negative = *(*at)++ == '-';
    }
    *given = *at < end && isdigit((unsigned char)**at);
    if (sign && !*given)
        return false;
    while (*at < end && isdigit((unsigned char)**at)) {
        value = value * 10 + (uint64_t)(**at - '0');
        if (value > (uint64_t)INT64_MAX / 16)
            return false;
        (*at)++;
    }
    while (*at < end && isspace((unsigned char)**at))
        (*at)++;
    *number = negative ? -(int64_t)value : (int64_t)value;
    return true;
}

/* Negative counts from the end; then into [0, size], as Python does for ranges. */
static uint64_t clamp(int64_t number, uint64_t size)
{
    if (number < 0)
        return (uint64_t)-number > size ? 0 : size - (uint64_t)-number;
    return (uint64_t)number > size ? size : (uint64_t)number;
}

static enum ts_status parse_axis(const char *text, const char *end, unsigned axis, uint64_t size,
                                 struct ts_slice_axis *out, struct ts_error *error)
{
    int64_t parts[3] = {0, 0, 1};
    bool given[3] = {false, false, false};
    const char *at = text;
    int count = 0;
    for (; count < 3; count++) {
        if (!parse_number(&at, end, &parts[count], &given[count]))
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%.*s\" is not an index for axis %u", (int)(end - text),
                           text, axis);
        if (at == end || *at != ':')
            break;
        at++;
    }
    if (at != end || count == 3 || (count == 0 && !given[0]))
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%.*s\" is not an index for axis %u", (int)(end - text),
                       text, axis);
    if (count == 0) {
        int64_t index = parts[0] < 0 ? parts[0] + (int64_t)size : parts[0];
        if (index < 0 || (uint64_t)index >= size)
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                           "index %" PRId64 " is outside axis %u, which has %" PRIu64, parts[0], axis, size);
        *out = (struct ts_slice_axis){.start = (uint64_t)index, .count = 1, .step = 1, .single = true};
        return TS_OK;
    }
    if (given[2] && parts[2] < 1)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "the step of axis %u must be at least 1", axis);
    out->step = given[2] ? (uint64_t)parts[2] : 1;
    out->single = false;
    out->start = given[0] ? clamp(parts[0], size) : 0;
    {
        uint64_t stop = given[1] ? clamp(parts[1], size) : size;
        out->count = stop > out->start ? (stop - out->start + out->step - 1) / out->step : 0;
    }
    return TS_OK;
}

static bool is_ellipsis(const char *text, const char *end)
{
    while (text < end && isspace((unsigned char)*text))
        text++;
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    return end - text == 3 && memcmp(text, "...", 3) == 0;
}

enum ts_status ts_slice_parse(const struct ts_tensor *tensor, const char *text, size_t size, struct ts_slice *slice,
                              struct ts_error *error)
{
    const char *end = text + size, *at = text;
    unsigned pieces = 0, axis = 0;
    bool ellipsis = false;
    ts_slice_all(tensor, slice);
    while (at < end && isspace((unsigned char)*at))
        at++;
    if (at == end)
        return TS_OK;
    for (const char *c = text; c < end; c++)
        pieces += *c == ',';
    pieces++;
    for (at = text; pieces; pieces--) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (is_ellipsis(at, stop)) {
            if (ellipsis)
                return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "only one \"...\" is allowed");
            ellipsis = true;
            if (pieces - 1 > tensor->rank - axis)
                return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "too many indices: the tensor has %u axes",
                               tensor->rank);
            axis = tensor->rank - (pieces - 1);
        } else {
            if (axis == tensor->rank)
                return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "too many indices: the tensor has %u axes",
                               tensor->rank);
            TS_TRY(parse_axis(at, stop, axis, tensor->shape[axis], &slice->axes[axis], error));
            axis++;
        }
        at = stop + 1;
    }
    return TS_OK;
}
