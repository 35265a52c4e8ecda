/* Source: where bytes are. A mapped file, a slice of another source (a stored archive member), or bytes in memory or
 * in the spool. Whatever it is, its bytes are addressable: `data[0 .. size)`.
 *
 * Sources are counted: whoever stores a pointer retains it. A slice keeps its parent alive. Bytes are read only and
 * never trusted: every offset and length from a file goes through ts_source_at, which says no instead of wrapping. */
#ifndef TS_IO_SOURCE_H
#define TS_IO_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
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
    bool has_file;            /* `file` is open on what is mapped, which begins at file_offset there */
    int file;
    uint64_t file_offset;
    uint64_t serial; /* of the file */
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
/* The same for room in a file that is mapped shared, also while it is written: what was written is in the file. */
void ts_mapped_forget(const uint8_t *data, uint64_t length);
/* Says where the caller looks next: one look may bring two megabytes of a mapped file into this process. Whoever looks
 * here and there, or at all of it in small steps, holds no more than so many of them: then all pages are given back,
 * where the system does not say that they are few. Per thread and file, of which few are read in turn. */
void ts_source_look(const struct ts_source *source, uint64_t offset);

/* Whether ts_source_read reads a file without its pages coming into this process. Large mapped files are kept open for
 * that, as many as a process may well have open. */
bool ts_source_is_open(const struct ts_source *source);
/* A number that no other open file has or had; 0 for what is not open. */
uint64_t ts_source_serial(const struct ts_source *source);
/* Copies the bytes [offset, offset + length). Fails where they are not there, also when a file was shortened since. */
enum ts_status ts_source_read(const struct ts_source *source, uint64_t offset, uint64_t length, void *out,
                              struct ts_error *error);
/* For the spool: what is mapped at the offset of a file, of which the source gets a descriptor of its own. */
void ts_source_attach(struct ts_source *source, int file, uint64_t offset);

#endif
