/* Hub: where a Hugging Face repository lies in the local cache. Nothing is downloaded.
 *
 *     hf://[models/|datasets/|spaces/][owner/]name[@revision][/path]
 *
 * A revision is a branch, a tag or a commit; main when none is given. Slashes in a branch are written %2F, except in
 * refs/pr/N and refs/convert/NAME. */
#ifndef TS_IO_HUB_H
#define TS_IO_HUB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

bool ts_hub_is_url(const char *text); /* begins with hf:// */

/* The file or folder that the url names, written to path. TS_ERR_USAGE for a url that is none; TS_ERR_IO for what is
 * not in the cache, with a message that says how to get it there. */
enum ts_status ts_hub_resolve(const char *url, char *path, size_t size, struct ts_error *error);

#endif
