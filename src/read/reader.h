/* Reader: one file format. One .c file with one descriptor, listed once in readers.c.
 *
 * Readers bid on bytes, never on extensions alone: bid returns how many bits of evidence it checked (0: not mine; a
 * magic of n bytes that matches is 8n), and the highest bid reads. A reader that can take part of its data from other
 * files (shards, external data, sidecars) sets `gathers`: in a folder it goes first, and what it opens beside itself
 * is not read again.
 *
 * read adds tensors to the bundle in execution order, named as in the file. Failing one tensor is no reason to fail:
 * ts_bundle_skip_error and go on. When read returns an error, the whole file counts as unreadable and what it added
 * is taken back. */
#ifndef TS_READ_READER_H
#define TS_READ_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "io/folder.h"
#include "io/source.h"
#include "io/spool.h"
#include "io/zip.h"
#include "tensor/bundle.h"

/* What a reader is given: the file and its surroundings. */
struct ts_input {
    struct ts_source *source;
    const char *member;       /* its path inside folder, or its file name */
    struct ts_folder *folder; /* where it lies; may be NULL (fuzzers) */
    struct ts_spool *spool;
    struct ts_zip *zip; /* its directory when it is a zip file that opened, else NULL; owned by the caller */
};

struct ts_reader {
    const char *name;    /* "safetensors" */
    const char *summary; /* "Hugging Face safetensors, single and sharded" */
    bool gathers;
    bool for_folder; /* a file of it describes the folder it lies in: its tensors are named by that */
    unsigned (*bid)(const struct ts_input *input);
    enum ts_status (*read)(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error);
};

extern const struct ts_reader *const ts_readers[]; /* ends with NULL */

/* Opens the file at `path` relative to the input's own place; see ts_folder_open_beside. */
enum ts_status ts_input_beside(struct ts_input *input, const char *path, struct ts_source **source,
                               struct ts_error *error);

/* Runs one reader (NULL: the one with the highest bid) over a file that another reader opened, such as a shard. */
enum ts_status ts_read_source(struct ts_input *input, const struct ts_reader *reader, struct ts_source *source,
                              const char *member, struct ts_bundle *bundle, struct ts_error *error);

/* The reader with the highest bid, or NULL. */
const struct ts_reader *ts_reader_for(const struct ts_input *input);

#endif
