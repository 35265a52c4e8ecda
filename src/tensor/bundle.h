/* Bundle: everything one input opened into. Tensors in execution order, metadata, and what was skipped and why.
 *
 * Everything it points to lives in its arena or in sources it keeps. Names may be any bytes but NUL; they are escaped
 * where they are shown. */
#ifndef TS_TENSOR_BUNDLE_H
#define TS_TENSOR_BUNDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "io/source.h"
#include "tensor/tensor.h"

struct ts_meta {
    const char *file; /* the member it came from, or NULL */
    const char *key;
    const char *value; /* as text; long arrays are shortened by the reader to their first entries and a count */
};

struct ts_skip {
    const char *path;   /* member, or member:tensor */
    const char *reason; /* "truncated: ...", "not a tensor file" */
    bool harmless;      /* nothing of value was lost: a README, a tokenizer, a licence */
    bool inside;        /* member:tensor: the rest of the member may have been read */
};

/* A finding of a reader that is no error: something a person should know and --check reports. */
struct ts_finding {
    const char *tensor; /* or NULL */
    const char *text;
};

struct ts_bundle {
    struct ts_arena arena;
    const char *path;   /* the input as given */
    const char *format; /* "safetensors", "gguf v3", "folder", "zip": of the outermost thing */
    struct ts_tensor **tensors;
    size_t count, capacity;
    struct ts_meta *metas;
    size_t meta_count, meta_capacity;
    struct ts_skip *skips;
    size_t skip_count, skip_capacity;
    struct ts_finding *findings;
    size_t finding_count, finding_capacity;
    struct ts_source **sources;
    size_t source_count, source_capacity;
    struct ts_source *config; /* config.json when the input has one, else NULL */
    const char *order;   /* where the order comes from: "order of the file", "metadata", "natural order of names" */
    uint64_t file_bytes; /* of the files that were opened */
};

struct ts_bundle *ts_bundle_new(const char *path); /* NULL without memory */
void ts_bundle_free(struct ts_bundle *bundle);     /* NULL is fine */

/* A new zeroed tensor at the end, its name copied, its shape allocated for rank entries. The caller fills in the rest
 * and calls ts_tensor_finish; when that fails, ts_bundle_drop_last and ts_bundle_skip_error. "" is the name of a
 * tensor that is a file by itself. */
enum ts_status ts_bundle_add(struct ts_bundle *bundle, const char *name, unsigned rank, struct ts_tensor **tensor,
                             struct ts_error *error);
void ts_bundle_drop_last(struct ts_bundle *bundle);

/* Keeps a source alive as long as the bundle. Taking it twice is fine. */
enum ts_status ts_bundle_keep(struct ts_bundle *bundle, struct ts_source *source, struct ts_error *error);

enum ts_status ts_bundle_meta(struct ts_bundle *bundle, const char *key, const char *value, struct ts_error *error);
const char *ts_bundle_meta_value(const struct ts_bundle *bundle, const char *key); /* or NULL */
enum ts_status ts_bundle_skip(struct ts_bundle *bundle, const char *path, bool harmless, const char *reason,
                              struct ts_error *error);
/* The same from an error: "at byte 12: ...". name may be NULL, else a tensor of that file. An interruption is no
 * reason: it is given back as the error. */
enum ts_status ts_bundle_skip_error(struct ts_bundle *bundle, const char *path, const char *name,
                                    const struct ts_error *why, struct ts_error *error);
enum ts_status ts_bundle_find(struct ts_bundle *bundle, const char *tensor, struct ts_error *error, const char *format,
                              ...) __attribute__((format(printf, 4, 5)));
enum ts_status ts_bundle_attribute(struct ts_bundle *bundle, struct ts_tensor *tensor, const char *key,
                                   const char *value, struct ts_error *error);

/* The tensor with exactly that name, or NULL. Linear: for a few look-ups. */
struct ts_tensor *ts_bundle_tensor(const struct ts_bundle *bundle, const char *name);

#endif
