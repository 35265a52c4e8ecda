/* Owns writing a trace. */
#include "model/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/number.h"
#include "base/progress.h"
#include "model/round.h"

#define ARENA_LIMIT  ((size_t)1 << 30)
#define HEADER_LIMIT ((size_t)100 << 20) /* what the safetensors library takes */
#define PIECE        16384               /* numbers converted at a time */
#define MOST_WRITTEN ((size_t)64 << 20)  /* at a time: between two an interruption is seen */

void ts_trace_file_init(struct ts_trace_file *trace, enum ts_compute compute)
{
    *trace = (struct ts_trace_file){.compute = compute, .file = -1};
    ts_arena_init(&trace->arena, ARENA_LIMIT);
}

void ts_trace_file_release(struct ts_trace_file *trace)
{
    free(trace->entries);
    ts_table_release(&trace->names);
    ts_arena_release(&trace->arena);
    *trace = (struct ts_trace_file){.file = -1};
}

static enum ts_type float_type(enum ts_compute compute)
{
    return compute == TS_COMPUTE_BF16 ? TS_BF16 : compute == TS_COMPUTE_F16 ? TS_F16 : TS_F32;
}

enum ts_status ts_trace_file_announce(struct ts_trace_file *trace, const struct ts_point *point, struct ts_error *error)
{
    struct ts_trace_entry *entry;
    uint64_t count = 1;
    if (trace->count == trace->capacity) {
        size_t capacity = trace->capacity ? 2 * trace->capacity : 256;
        struct ts_trace_entry *larger = realloc(trace->entries, capacity * sizeof *larger);
        if (!larger)
            return ts_fail_memory(error);
        trace->entries = larger;
        trace->capacity = capacity;
    }
    entry = &trace->entries[trace->count];
    *entry = (struct ts_trace_entry){.name = ts_arena_string(&trace->arena, point->name),
                                     .type = point->integer ? TS_I64
                                             : point->wide  ? TS_F32
                                                            : float_type(trace->compute),
                                     .rank = point->rank,
                                     .offset = trace->data_bytes};
    if (!entry->name)
        return ts_fail_memory(error);
    for (unsigned i = 0; i < point->rank; i++) {
        entry->shape[i] = point->shape[i];
        if (!ts_mul(count, point->shape[i], &count))
            return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "%s has more elements than 64 bits count", point->name);
    }
    if (!ts_type_bytes(entry->type, count, &entry->bytes) ||
        !ts_add(trace->data_bytes, entry->bytes, &trace->data_bytes) || trace->data_bytes > INT64_MAX / 2)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "the trace would be too large for a file");
    trace->count++;
    return TS_OK;
}

static enum ts_status write_at(struct ts_trace_file *trace, const void *data, size_t size, uint64_t offset,
                               struct ts_error *error)
{
    const char *from = data;
    while (size) {
        ssize_t written = pwrite(trace->file, from, size < MOST_WRITTEN ? size : MOST_WRITTEN, (off_t)offset);
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return ts_fail_errno(error, errno, "cannot write the trace");
        from += written;
        size -= (size_t)written;
        offset += (uint64_t)written;
    }
    return TS_OK;
}

static void write_order(struct ts_json_writer *json, const struct ts_trace_file *trace)
{
    struct ts_buffer text;
    struct ts_json_writer order;
    ts_buffer_init(&text, HEADER_LIMIT);
    ts_json_writer_init(&order, &text, 0);
    ts_json_begin_array(&order);
    for (size_t i = 0; i < trace->count; i++)
        ts_json_string(&order, trace->entries[i].name);
    ts_json_end_array(&order);
    ts_json_key(json, "tsleuth.order");
    ts_json_string_sized(json, text.data ? text.data : "[]", text.data ? text.size : 2);
    json->out->failed = json->out->failed || text.failed;
    ts_buffer_release(&text);
}

static void write_entry(struct ts_json_writer *json, const struct ts_trace_entry *entry)
{
    ts_json_key(json, entry->name);
    ts_json_begin_object(json);
    ts_json_key(json, "dtype");
    ts_json_string(json, entry->type == TS_I64    ? "I64"
                         : entry->type == TS_BF16 ? "BF16"
                         : entry->type == TS_F16  ? "F16"
                                                  : "F32");
    ts_json_key(json, "shape");
    ts_json_begin_array(json);
    for (unsigned i = 0; i < entry->rank; i++)
        ts_json_uint(json, entry->shape[i]);
    ts_json_end_array(json);
    ts_json_key(json, "data_offsets");
    ts_json_begin_array(json);
    ts_json_uint(json, entry->offset);
    ts_json_uint(json, entry->offset + entry->bytes);
    ts_json_end_array(json);
    ts_json_end_object(json);
}

enum ts_status ts_trace_file_begin(struct ts_trace_file *trace, int file, const char *const *metadata,
                                   struct ts_error *error)
{
    struct ts_buffer header;
    struct ts_json_writer json;
    uint8_t length[8];
    enum ts_status status = TS_OK;
    trace->file = file;
    if (!ts_table_init(&trace->names, trace->count ? trace->count : 1))
        return ts_fail_memory(error);
    ts_buffer_init(&header, HEADER_LIMIT);
    ts_json_writer_init(&json, &header, 0);
    ts_json_begin_object(&json);
    ts_json_key(&json, "__metadata__");
    ts_json_begin_object(&json);
    for (size_t i = 0; metadata[i]; i += 2) {
        ts_json_key(&json, metadata[i]);
        ts_json_string(&json, metadata[i + 1]);
    }
    write_order(&json, trace);
    ts_json_end_object(&json);
    for (size_t i = 0; i < trace->count; i++) {
        ts_table_put(&trace->names, trace->entries[i].name, i, NULL);
        write_entry(&json, &trace->entries[i]);
    }
    ts_json_end_object(&json);
    while (header.size % 8 && !header.failed)
        ts_buffer_byte(&header, ' ');
    if (header.failed)
        status = ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "too many points for one file: choose some with --points");
    for (unsigned i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header.size >> 8 * i);
    trace->data_start = 8 + header.size;
    if (status == TS_OK)
        status = write_at(trace, length, sizeof length, 0, error);
    if (status == TS_OK)
        status = write_at(trace, header.data, header.size, sizeof length, error);
    if (status == TS_OK && ftruncate(file, (off_t)(trace->data_start + trace->data_bytes)) != 0)
        status = ts_fail_errno(error, errno, "cannot make room for the trace");
    ts_buffer_release(&header);
    return status;
}

static enum ts_status put_halves(struct ts_trace_file *trace, const float *values, uint64_t count, uint64_t at,
                                 struct ts_error *error)
{
    uint16_t piece[PIECE];
    for (uint64_t first = 0; first < count; first += PIECE) {
        size_t some = count - first < PIECE ? (size_t)(count - first) : PIECE;
        for (size_t i = 0; i < some; i++)
            piece[i] =
                trace->compute == TS_COMPUTE_BF16 ? ts_bf16_bits(values[first + i]) : ts_f16_bits(values[first + i]);
        TS_TRY(write_at(trace, piece, some * sizeof *piece, at + first * sizeof *piece, error));
    }
    return TS_OK;
}

enum ts_status ts_trace_file_put(struct ts_trace_file *trace, const struct ts_point *point, struct ts_error *error)
{
    size_t index = ts_table_get(&trace->names, point->name);
    const struct ts_trace_entry *entry;
    uint64_t at;
    if (index == SIZE_MAX)
        return TS_OK;
    entry = &trace->entries[index];
    at = trace->data_start + entry->offset;
    if (entry->type == TS_I64)
        return write_at(trace, point->integers, (size_t)entry->bytes, at, error);
    if (entry->type == TS_F32)
        return write_at(trace, point->values, (size_t)entry->bytes, at, error);
    return put_halves(trace, point->values, entry->bytes / 2, at, error);
}
