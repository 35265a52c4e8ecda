/* Files: what the workspaces do with the disk. */
#ifndef TS_SERVE_FILES_H
#define TS_SERVE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Makes a folder and those above it, for the user alone. */
bool ts_make_folders(const char *path);
/* Makes the folders above a file. */
bool ts_make_parents(const char *path);
/* Removes a file or a folder with all that is in it. Links are removed, not followed. */
void ts_remove_tree(const char *path);
/* The file appears whole or not at all, and is on the disk. */
enum ts_status ts_write_whole(const char *path, const void *data, size_t size, struct ts_error *error);
/* Flushes the folder that a path is in. */
void ts_sync_parent(const char *path);

struct ts_listed {
    char *name; /* relative to the folder */
    uint64_t bytes;
};

struct ts_listing {
    struct ts_listed *files; /* sorted by name */
    size_t count, capacity;
    uint64_t bytes;
    bool failed; /* something could not be read, or there are too many */
};

#define TS_LISTED_MOST 200000

/* Every regular file below a folder; a folder that is not there has none. */
void ts_list_files(const char *folder, struct ts_listing *listing);
void ts_listing_release(struct ts_listing *listing);

#endif
