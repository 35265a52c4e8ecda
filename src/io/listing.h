/* Listing: how the folders on disk, in zip files and in archives build their list of members. Private to src/io.
 *
 * Every ts_folder is the first member of a ts_listing; ts_listing_new makes it, ts_listing_add fills it,
 * ts_listing_finish makes it searchable, ts_folder_free ends it at any stage. */
#ifndef TS_IO_LISTING_H
#define TS_IO_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/folder.h"

struct ts_listing {
    struct ts_folder folder;
    size_t capacity;
    uint32_t *by_path; /* hash table of indices + 1; NULL until finished */
    size_t table_size;
};

struct ts_folder *ts_listing_new(const char *path, const struct ts_folder_kind *kind); /* NULL without memory */

/* Path and problem (which may be NULL) are copied. Past TS_FOLDER_MAX_MEMBERS or the room for names: TS_ERR_LIMIT. */
enum ts_status ts_listing_add(struct ts_folder *folder, const char *path, uint64_t size, const char *problem,
                              uint64_t private_index, struct ts_error *error);

/* Indexes the paths. Of several members with one path the last without a problem counts, as when an archive is
 * unpacked; the others get a problem that says so. */
enum ts_status ts_listing_finish(struct ts_folder *folder, struct ts_error *error);

/* The path of an archive member as we write paths: no "./", no double slashes, and slashes for backslashes where there
 * are only those. Returns what is wrong with it (then clean is a plain copy), or NULL. clean has room for strlen(name)
 * + 1 bytes; an empty result is the archive's own root. */
const char *ts_listing_clean(const char *name, char *clean);

/* What macOS leaves in archives and folders: resource forks and Finder settings. */
bool ts_listing_is_junk(const char *path);

/* "folder/path", from malloc; just path when folder is ".". NULL without memory. */
char *ts_listing_join(const char *folder, const char *path);

#endif
