/* Window: a bounded copy of parts of large files, for reads that jump from page to page.
 *
 * Through a mapping every jump brings 64 KB and more into this process, and what was brought cannot be given back
 * before the walk comes by again. Here it brings one block, which stays until the room is needed: a few files at a
 * time, 16 MB each. Thread-safe. */
#ifndef TS_IO_WINDOW_H
#define TS_IO_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "io/source.h"

/* `count` items of `size` bytes, the first at `offset` of the source and each `step` bytes after the one before. */
struct ts_gather {
    uint64_t offset;
    int64_t step;
    size_t count, size;
    uint8_t *out;
    size_t out_step;
    uint64_t places; /* other places the caller goes to before it comes back beside the first: the more, the smaller the
                        blocks that are brought */
};

/* Of a source for which ts_source_is_open. */
enum ts_status ts_window_gather(const struct ts_source *source, const struct ts_gather *gather, struct ts_error *error);
/* For source.c: the file is about to be closed. */
void ts_window_drop(const struct ts_source *root);

#endif
