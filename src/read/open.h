/* Open: from what a user typed to a bundle. */
#ifndef TS_READ_OPEN_H
#define TS_READ_OPEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/bundle.h"

struct ts_open_options {
    bool raw;             /* leave quantized weights as their stored parts */
    bool follow_links;    /* symbolic links in folders may leave the folder */
    uint64_t spool_limit; /* bytes that may be unpacked to temporary space; 0 for the default */
};

#define TS_SPOOL_LIMIT ((uint64_t)64 << 30)

/* path: a file, a folder, an archive, or hf://owner/repo[@revision][/path] in the local Hugging Face cache. options may
 * be NULL. An input without a single readable tensor is no error as long as something could be opened: look at the
 * skips. On error *bundle is NULL. */
enum ts_status ts_open(const char *path, const struct ts_open_options *options, struct ts_bundle **bundle,
                       struct ts_error *error);

#endif
