/* Folder: a set of named members that can be opened, wherever they lie: on disk, in a zip, in a tar.
 *
 * Member paths are relative with '/' between components, as shown to people. Members that must not or cannot be opened
 * (path leaves the folder, symbolic link that leaves it, encrypted, unsupported compression, lies about its size) are
 * listed with `problem` set, so that reports can name them. */
#ifndef TS_IO_FOLDER_H
#define TS_IO_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "io/source.h"
#include "io/spool.h"

/* More members than any dump has; a million-member archive is refused with a message instead of filling memory. */
#define TS_FOLDER_MAX_MEMBERS 500000

struct ts_member {
    const char *path;    /* escaped by whoever shows it; no NUL, may be any other bytes */
    uint64_t size;       /* unpacked */
    const char *problem; /* not NULL: cannot be opened, and why */
    bool taken;          /* some reader has read it as part of another member (shard, external data) */
    uint64_t private_index;
};

struct ts_folder {
    const char *path; /* as shown to people */
    struct ts_member *members;
    size_t count;
    struct ts_arena arena; /* members and their names */
    const struct ts_folder_kind *kind;
    void *private;
};

struct ts_folder_kind {
    enum ts_status (*open)(struct ts_folder *folder, size_t index, struct ts_source **source, struct ts_error *error);
    /* Opens by path what is not listed (disk folders that were not scanned); NULL when the list is everything. */
    enum ts_status (*open_path)(struct ts_folder *folder, const char *path, struct ts_source **source,
                                struct ts_error *error);
    void (*release)(struct ts_folder *folder);
};

/* A folder on disk. scan: list everything below it, in natural order, following symbolic links to files and folders
 * that stay inside; with follow_links also those that leave it (loops are still refused). Without scan nothing is
 * listed and members are opened by path only: the surroundings of a single file. Hidden files and folders (".git")
 * are left out. A Hugging Face cache snapshot links into ../../blobs; that is inside. */
enum ts_status ts_folder_open_disk(const char *path, bool scan, bool follow_links, struct ts_folder **folder,
                                   struct ts_error *error);
/* The members of a zip file (see io/zip.h), in the order of its directory. */
enum ts_status ts_folder_open_zip(struct ts_source *source, struct ts_spool *spool, struct ts_folder **folder,
                                  struct ts_error *error);
/* Everything libarchive unpacks: tar (plain members are slices of the file), tar.gz, tar.bz2, tar.xz, tar.zst, 7z; in
 * the order stored. Unpacks compressed ones into the spool at once. */
enum ts_status ts_folder_open_archive(struct ts_source *source, struct ts_spool *spool, struct ts_folder **folder,
                                      struct ts_error *error);
/* True when the bytes look like something ts_folder_open_archive unpacks. A bare .gz/.zst/.xz/.bz2 of one file counts:
 * it is a folder with one member named as the file without its last suffix. */
bool ts_folder_is_archive(const struct ts_source *source);

void ts_folder_free(struct ts_folder *folder);

enum ts_status ts_folder_open_member(struct ts_folder *folder, size_t index, struct ts_source **source,
                                     struct ts_error *error);
/* Opens a file that stands beside `beside` (a member's path) or below: marks a listed member as taken. Absolute paths,
 * drive letters, "..", backslashes and empty components are refused. A missing file is TS_ERR_IO "no such file". */
enum ts_status ts_folder_open_beside(struct ts_folder *folder, const char *beside, const char *path,
                                     struct ts_source **source, struct ts_error *error);
/* Index of the member with that path, or SIZE_MAX. */
size_t ts_folder_find(const struct ts_folder *folder, const char *path);

#endif
