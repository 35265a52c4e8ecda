/* Trace file: a safetensors file whose tensors are known before their values are.
 *
 * A plan announces every point; the header is written once, complete, with its order and the facts of the run; values
 * then go to their places as they come. The caller gives a file that nobody sees until it is whole. */
#ifndef TS_MODEL_TRACE_FILE_H
#define TS_MODEL_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/table.h"
#include "model/run.h"

struct ts_trace_entry {
    const char *name;
    enum ts_type type;
    unsigned rank;
    uint64_t shape[4], offset, bytes;
};

struct ts_trace_file {
    struct ts_arena arena;
    struct ts_trace_entry *entries;
    size_t count, capacity;
    struct ts_table names;
    uint64_t data_start, data_bytes;
    enum ts_compute compute; /* floats are stored in the precision of the run */
    int file;
};

void ts_trace_file_init(struct ts_trace_file *trace, enum ts_compute compute);
void ts_trace_file_release(struct ts_trace_file *trace);
/* One more tensor. */
enum ts_status ts_trace_file_announce(struct ts_trace_file *trace, const struct ts_point *point,
                                      struct ts_error *error);
/* Writes the header. metadata: pairs of key and value, ended by NULL. The file is empty and can be seeked. */
enum ts_status ts_trace_file_begin(struct ts_trace_file *trace, int file, const char *const *metadata,
                                   struct ts_error *error);
/* The values of an announced point; others are passed over. */
enum ts_status ts_trace_file_put(struct ts_trace_file *trace, const struct ts_point *point, struct ts_error *error);

#endif
