/* What all folders share: the list of members and its index, opening by index and by path, and the folder that a zip
 * file is. Disk folders and archives stand in files of their own. */
#include "io/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/text.h"
#include "io/listing.h"
#include "io/zip.h"

/* 500 bytes of path for each of the most members. */
#define NAMES_LIMIT ((size_t)256 << 20)

static struct ts_listing *listing_of(struct ts_folder *folder)
{
    return (struct ts_listing *)folder;
}

struct ts_folder *ts_listing_new(const char *path, const struct ts_folder_kind *kind)
{
    struct ts_listing *listing = calloc(1, sizeof *listing);
    if (!listing)
        return NULL;
    ts_arena_init(&listing->folder.arena, NAMES_LIMIT);
    listing->folder.path = ts_arena_string(&listing->folder.arena, path);
    listing->folder.kind = kind;
    if (!listing->folder.path) {
        ts_folder_free(&listing->folder);
        return NULL;
    }
    return &listing->folder;
}

void ts_folder_free(struct ts_folder *folder)
{
    if (!folder)
        return;
    if (folder->kind->release)
        folder->kind->release(folder);
    ts_arena_release(&folder->arena);
    free(folder->members);
    free(listing_of(folder)->by_path);
    free(folder);
}

enum ts_status ts_listing_add(struct ts_folder *folder, const char *path, uint64_t size, const char *problem,
                              uint64_t private_index, struct ts_error *error)
{
    struct ts_listing *listing = listing_of(folder);
    struct ts_member *member;
    if (folder->count == TS_FOLDER_MAX_MEMBERS)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "holds more than %d files; open a part of it",
                       TS_FOLDER_MAX_MEMBERS);
    if (folder->count == listing->capacity) {
        size_t capacity = listing->capacity ? 2 * listing->capacity : 64;
        struct ts_member *members = realloc(folder->members, capacity * sizeof *members);
        if (!members)
            return ts_fail_memory(error);
        folder->members = members;
        listing->capacity = capacity;
    }
    member = &folder->members[folder->count];
    member->path = ts_arena_string(&folder->arena, path);
    member->size = size;
    member->problem = problem ? ts_arena_string(&folder->arena, problem) : NULL;
    member->taken = false;
    member->private_index = private_index;
    if (!member->path || (problem && !member->problem))
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "the paths of its files take more than %zu bytes",
                       NAMES_LIMIT);
    folder->count++;
    return TS_OK;
}

/* The slot of that path, or the free one where it would go. The seed is an address, so that an archive cannot bring
 * paths that collide. */
static uint32_t *find_slot(const struct ts_listing *listing, const char *path)
{
    uint64_t hash = XXH3_64bits_withSeed(path, strlen(path), (uint64_t)(uintptr_t)listing->by_path);
    size_t mask = listing->table_size - 1, slot = (size_t)hash & mask;
    while (listing->by_path[slot] && strcmp(listing->folder.members[listing->by_path[slot] - 1].path, path) != 0)
        slot = (slot + 1) & mask;
    return &listing->by_path[slot];
}

enum ts_status ts_listing_finish(struct ts_folder *folder, struct ts_error *error)
{
    struct ts_listing *listing = listing_of(folder);
    size_t size = 16;
    while (size < 2 * folder->count)
        size *= 2;
    listing->by_path = calloc(size, sizeof *listing->by_path);
    if (!listing->by_path)
        return ts_fail_memory(error);
    listing->table_size = size;
    for (size_t i = 0; i < folder->count; i++) {
        uint32_t *slot = find_slot(listing, folder->members[i].path);
        struct ts_member *before = *slot ? &folder->members[*slot - 1] : NULL;
        if (before && !before->problem) {
            if (folder->members[i].problem)
                continue;
            before->problem = "stands in the archive again further on, and the last one counts";
        }
        *slot = (uint32_t)(i + 1);
    }
    return TS_OK;
}

size_t ts_folder_find(const struct ts_folder *folder, const char *path)
{
    const struct ts_listing *listing = (const struct ts_listing *)folder;
    uint32_t slot = listing->by_path ? *find_slot(listing, path) : 0;
    return slot ? slot - 1 : SIZE_MAX;
}

static bool is_separator(char c)
{
    return c == '/' || c == '\\';
}

/* Absolute, with a drive letter, or with ".." in it, read the Unix or the Windows way. */
static bool leaves(const char *path)
{
    const char *at = path;
    if (is_separator(*path))
        return true;
    if (((*path >= 'a' && *path <= 'z') || (*path >= 'A' && *path <= 'Z')) && path[1] == ':' && is_separator(path[2]))
        return true;
    while (*at) {
        size_t length = strcspn(at, "/\\");
        if (length == 2 && at[0] == '.' && at[1] == '.')
            return true;
        at += length + (at[length] != '\0');
    }
    return false;
}

const char *ts_listing_clean(const char *name, char *clean)
{
    bool windows = strchr(name, '\\') && !strchr(name, '/');
    char *out = clean;
    if (leaves(name)) {
        memcpy(clean, name, strlen(name) + 1);
        return "its path leaves the archive";
    }
    while (*name) {
        size_t length = strcspn(name, windows ? "\\" : "/");
        if (length && !(length == 1 && *name == '.')) {
            if (out != clean)
                *out++ = '/';
            memcpy(out, name, length);
            out += length;
        }
        name += length + (name[length] != '\0');
    }
    *out = '\0';
    return NULL;
}

bool ts_listing_is_junk(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return ts_starts_with(path, "__MACOSX/") || strcmp(path, "__MACOSX") == 0 || ts_starts_with(name, "._") ||
           strcmp(name, ".DS_Store") == 0;
}

char *ts_listing_join(const char *folder, const char *path)
{
    size_t size = strlen(folder) + 1 + strlen(path) + 1;
    char *joined = malloc(size);
    if (!joined)
        return NULL;
    if (strcmp(folder, ".") == 0)
        memcpy(joined, path, strlen(path) + 1);
    else
        snprintf(joined, size, "%s%s%s", folder, ts_ends_with(folder, "/") ? "" : "/", path);
    return joined;
}

/* Adds where a failure happened. */
static enum ts_status fail_at(const struct ts_folder *folder, const char *path, struct ts_error *error)
{
    char *joined = ts_listing_join(folder->path, path);
    ts_error_path(error, joined ? joined : path);
    free(joined);
    return error->status;
}

enum ts_status ts_folder_open_member(struct ts_folder *folder, size_t index, struct ts_source **source,
                                     struct ts_error *error)
{
    const struct ts_member *member;
    enum ts_status status;
    if (index >= folder->count)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "folder: member %zu of %zu", index, folder->count);
    member = &folder->members[index];
    status = member->problem ? ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "%s", member->problem)
                             : folder->kind->open(folder, index, source, error);
    return status == TS_OK ? TS_OK : fail_at(folder, member->path, error);
}

/* Whether a file may name that path: relative, forward, plain. */
static bool is_plain(const char *path)
{
    if (!*path || strchr(path, '\\') || leaves(path))
        return false;
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length == 0 || (path[length] == '/' && path[length + 1] == '\0'))
            return false;
        path += length + (path[length] != '\0');
    }
    return true;
}

static enum ts_status open_path(struct ts_folder *folder, const char *path, struct ts_source **source,
                                struct ts_error *error)
{
    size_t index = ts_folder_find(folder, path);
    if (index != SIZE_MAX) {
        TS_TRY(ts_folder_open_member(folder, index, source, error));
        folder->members[index].taken = true;
        return TS_OK;
    }
    if (folder->kind->open_path)
        return folder->kind->open_path(folder, path, source, error);
    return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "no such file");
}

enum ts_status ts_folder_open_beside(struct ts_folder *folder, const char *beside, const char *path,
                                     struct ts_source **source, struct ts_error *error)
{
    const char *slash = strrchr(beside, '/');
    size_t prefix = slash ? (size_t)(slash - beside) + 1 : 0;
    enum ts_status status;
    char *joined;
    if (!is_plain(path)) {
        ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                "names the file \"%s\" as a part of it, which is not a plain path beside it", path);
        return fail_at(folder, beside, error);
    }
    joined = malloc(prefix + strlen(path) + 1);
    if (!joined)
        return ts_fail_memory(error);
    memcpy(joined, beside, prefix);
    ts_listing_clean(path, joined + prefix); /* takes "./" away */
    status = open_path(folder, joined, source, error);
    if (status != TS_OK)
        fail_at(folder, joined, error);
    free(joined);
    return status;
}

/* Inflated members are kept: they stay in the spool anyway, and a member is often opened first to see what it is. */
struct zip_folder {
    struct ts_zip *zip;
    struct ts_source **inflated; /* by entry; NULL where not opened yet or stored */
};

static enum ts_status open_zip_member(struct ts_folder *folder, size_t index, struct ts_source **source,
                                      struct ts_error *error)
{
    struct zip_folder *private = folder->private;
    struct ts_member *member = &folder->members[index];
    const struct ts_zip_entry *entry = &private->zip->entries[member->private_index];
    struct ts_source **kept = &private->inflated[member->private_index];
    if (*kept) {
        *source = ts_source_retain(*kept);
        return TS_OK;
    }
    TS_TRY(ts_zip_member(private->zip, entry, source, error));
    if (entry->method != 0)
        *kept = ts_source_retain(*source);
    return TS_OK;
}

static void release_zip(struct ts_folder *folder)
{
    struct zip_folder *private = folder->private;
    if (!private)
        return;
    for (size_t i = 0; private->inflated && i < private->zip->count; i++)
        ts_source_release(private->inflated[i]);
    free(private->inflated);
    ts_zip_free(private->zip);
    free(private);
}

static const struct ts_folder_kind zip_kind = {.open = open_zip_member, .release = release_zip};

static enum ts_status list_zip(struct ts_folder *folder, const struct ts_zip *zip, struct ts_error *error)
{
    char clean[UINT16_MAX + 1]; /* names have 16-bit lengths */
    if (zip->count > TS_FOLDER_MAX_MEMBERS)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "holds %zu files; at most %d are read", zip->count,
                       TS_FOLDER_MAX_MEMBERS);
    for (size_t i = 0; i < zip->count; i++) {
        const struct ts_zip_entry *entry = &zip->entries[i];
        const char *problem = ts_listing_clean(entry->name, clean);
        if (entry->is_folder || !*clean || ts_listing_is_junk(clean))
            continue;
        TS_TRY(ts_listing_add(folder, clean, entry->size, problem ? problem : entry->problem, i, error));
    }
    return ts_listing_finish(folder, error);
}

enum ts_status ts_folder_open_zip(struct ts_source *source, struct ts_spool *spool, struct ts_folder **folder,
                                  struct ts_error *error)
{
    struct ts_folder *opened = ts_listing_new(source->path, &zip_kind);
    struct zip_folder *private = calloc(1, sizeof *private);
    enum ts_status status;
    if (!opened || !private) {
        ts_folder_free(opened);
        free(private);
        return ts_fail_memory(error);
    }
    opened->private = private;
    status = ts_zip_open(source, spool, &private->zip, error);
    if (status == TS_OK) {
        private->inflated = calloc(private->zip->count + 1, sizeof(struct ts_source *));
        status = private->inflated ? list_zip(opened, private->zip, error) : ts_fail_memory(error);
    }
    if (status != TS_OK) {
        ts_folder_free(opened);
        return ts_error_path(error, source->path);
    }
    *folder = opened;
    return TS_OK;
}
