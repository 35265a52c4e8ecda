/* GGUF, between gguf.c (header, tensors, split files) and gguf_metadata.c (keys and values). Not for other
 * readers.
 *
 * The layout, in the file's byte order but for the magic:
 *
 *     "GGUF", u32 version, size tensors, size keys
 *     per key     string, u32 type, value
 *     per tensor  string name, u32 rank, size dims[rank] (fastest first), u32 type, u64 offset into the data
 *     padding to general.alignment, data
 *
 * where a size is a u32 in version 1 and a u64 since, and a string is a size and that many bytes. */
#ifndef TS_READ_GGUF_H
#define TS_READ_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "io/source.h"
#include "tensor/bundle.h"

/* A string in the mapped file: not terminated, any bytes. */
struct ts_gguf_string {
    const char *text;
    uint64_t size;
};

/* One file and how far it has been read. */
struct ts_gguf {
    struct ts_source *source;
    const char *member; /* as skips name it */
    uint64_t at;
    bool swapped; /* big-endian */
    uint32_t version;
    uint64_t tensor_count, key_count;
    uint32_t alignment;
    uint64_t split_no, split_count, split_tensors; /* UINT64_MAX where the key is absent */
};

/* Each moves `at` behind what it took, or fails with "truncated: <what> needs ..." and leaves `at` alone. */
enum ts_status ts_gguf_bytes(struct ts_gguf *file, uint64_t size, const char *what, const uint8_t **bytes,
                             struct ts_error *error);
enum ts_status ts_gguf_u32(struct ts_gguf *file, const char *what, uint32_t *value, struct ts_error *error);
enum ts_status ts_gguf_u64(struct ts_gguf *file, const char *what, uint64_t *value, struct ts_error *error);
enum ts_status ts_gguf_size(struct ts_gguf *file, const char *what, uint64_t *value, struct ts_error *error);
enum ts_status ts_gguf_string(struct ts_gguf *file, const char *what, struct ts_gguf_string *string,
                              struct ts_error *error);

/* Bytes of a size field: 4 in version 1, else 8. */
static inline unsigned ts_gguf_size_width(const struct ts_gguf *file)
{
    return file->version == 1 ? 4 : 8;
}

/* Longer keys and names are against the format (keys end at 2^16 - 1 bytes, names at 63) and are skipped. */
#define TS_GGUF_MAX_NAME 65535

/* The string in the bundle's arena, or NULL without memory; of one that is too long only the beginning. A NUL byte
 * inside stays there: compare its strlen with the size. */
const char *ts_gguf_copy(struct ts_bundle *bundle, struct ts_gguf_string string);

/* Reads the key_count keys at file->at into the bundle's metadata and file's own fields. A key that stands there twice
 * keeps its first value. */
enum ts_status ts_gguf_metadata(struct ts_gguf *file, struct ts_bundle *bundle, struct ts_error *error);

/* Reads the tensor_count tensors at file->at, behind the keys, into the bundle. */
enum ts_status ts_gguf_directory(struct ts_gguf *file, struct ts_bundle *bundle, struct ts_error *error);

#endif
