/* Trace: what a capture writes into a safetensors file besides tensors, and how a file is read that is being written.
 *
 * The metadata "tsleuth.order" is "offset" when tensors were appended in the order they were computed. The tensor
 * "__tsleuth_spare__" is room for more of them, not a tensor. "tsleuth.note.NAME" holds a JSON object about a tensor,
 * "tsleuth.lost.NAME" says why one is missing, "tsleuth.next" names the file in which the trace goes on. */
#ifndef TS_READ_TRACE_H
#define TS_READ_TRACE_H

#include <stdbool.h>

#include "read/reader.h"

struct ts_trace_note {
    const char *name, *text;
};

struct ts_trace {
    struct ts_trace_note *notes, *lost;
    size_t note_count, note_capacity, lost_count, lost_capacity;
};

/* The bytes begin as the capture header for C writes them, so another program may be changing them right now. */
bool ts_trace_is(const struct ts_source *source);
bool ts_trace_is_spare(const char *name);

/* Takes a metadata entry when it is about one tensor. Both strings must live as long as the trace. */
enum ts_status ts_trace_take(struct ts_trace *trace, const char *key, const char *value, bool *taken,
                             struct ts_error *error);
/* Hands the notes to the tensors of the bundle from start on, and what was lost to its skips. */
enum ts_status ts_trace_apply(const struct ts_trace *trace, const struct ts_input *input, struct ts_bundle *bundle,
                              size_t start, struct ts_error *error);
void ts_trace_release(struct ts_trace *trace);

#endif
