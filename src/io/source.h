/* Source: where bytes are. A mapped file, a slice of another source (a stored archive member), or bytes in memory or
 * in the spool. Whatever it is, its bytes are addressable: `data[0 .. size)`.
 *
 * Sources are counted: whoever stores a pointer retains it. A slice keeps its parent alive. Bytes are read only and
 * never trusted: every offset and length from a file goes through ts_source_at, which says no instead of wrapping. */
#ifndef TS_IO_SOURCE_H
#define TS_IO_SOURCE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct ts_source {
    const uint8_t *data; /* never NULL */
    uint64_t size;
    const char *path; /* as shown to people: "runs/a.zip/layer_3/q.pt" */
    /* private */
    struct ts_source *parent; /* slices */
    void *mapping;            /* to unmap or to free */
    size_t mapping_size;      /* 0: mapping came from malloc */
    atomic_uint references;
};

/* Maps a regular file. Folders, devices, pipes and sockets are refused by name. */
enum ts_status ts_source_open(const char *path, struct ts_source **source, struct ts_error *error);
/* A view of [offset, offset + size) of parent; fails when it does not fit. path is copied. */
enum ts_status ts_source_slice(struct ts_source *parent, uint64_t offset, uint64_t size, const char *path,
                               struct ts_source **source, struct ts_error *error);
/* A copy of bytes in memory, for small things (a Python number, a decoded header). path is copied. */
enum ts_status ts_source_copy(const void *data, size_t size, const char *path, struct ts_source **source,
                              struct ts_error *error);

struct ts_source *ts_source_retain(struct ts_source *source);
void ts_source_release(struct ts_source *source); /* NULL is fine */

/* The bytes [offset, offset + length), or NULL when they are not all there. */
static inline const uint8_t *ts_source_at(const struct ts_source *source, uint64_t offset, uint64_t length)
{
    return offset <= source->size && length <= source->size - offset ? source->data + offset : NULL;
}

/* The last component of the path. */
const char *ts_source_name(const struct ts_source *source);

/* Says that [offset, offset + length) has been walked and will not be needed soon: its pages leave this process (they
 * stay in the system's cache), so that resident memory does not grow with the file. Only a hint. */
void ts_source_forget(const struct ts_source *source, uint64_t offset, uint64_t length);
/* Says where the caller looks next: one look may bring two megabytes of a mapped file into this process. Whoever looks
 * here and there, or at all of it in small steps, holds no more than so many of them: then all pages are given back.
 * Per thread and file, of which few are read in turn. */
void ts_source_look(const struct ts_source *source, uint64_t offset);

#endif
