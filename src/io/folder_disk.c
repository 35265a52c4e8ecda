/* Folders on disk: the walk through them and the rules about symbolic links.
 *
 * A link is followed when what it leads to lies inside the folder, so that opening a folder that somebody sent never
 * reads files elsewhere. A snapshot in the Hugging Face cache consists of links into the blobs of its repository:
 * there, inside means inside the repository. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/progress.h"
#include "base/text.h"
#include "io/folder.h"
#include "io/listing.h"

/* Deeper than any dump; bounds the recursion and the open folders. */
#define MAX_DEPTH 32
#define MAX_PATH  ((size_t)64 << 10)

struct disk {
    char *inside;       /* links may lead to what is below here; a path without links */
    bool is_repository; /* a repository of the Hugging Face cache as a whole */
    bool follow_links;
};

struct scan {
    struct ts_folder *folder;
    struct disk *disk;
    struct ts_buffer path; /* of the entry at hand, relative to the folder */
    struct ts_error *error;
    struct stat above[MAX_DEPTH + 1]; /* the folders around the entry at hand */
    size_t folders;
};

static bool lies_inside(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    if (strcmp(folder, "/") == 0)
        return true;
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static bool is_repository_name(const char *name)
{
    return ts_starts_with(name, "models--") || ts_starts_with(name, "datasets--") || ts_starts_with(name, "spaces--");
}

/* Cuts .../models--owner--name/snapshots/revision/... down to the repository. */
static void widen_to_repository(char *path)
{
    for (char *at = path; (at = strstr(at, "/snapshots/")); at++) {
        char *name = at;
        while (name > path && name[-1] != '/')
            name--;
        if (is_repository_name(name)) {
            *at = '\0';
            return;
        }
    }
}

static enum ts_status scan_folder(struct scan *scan, int file, unsigned depth);

static enum ts_status add(struct scan *scan, uint64_t size, const char *problem)
{
    return ts_listing_add(scan->folder, scan->path.data, size, problem, 0, scan->error);
}

static enum ts_status add_problem(struct scan *scan, const char *format, ...) __attribute__((format(printf, 2, 3)));

static enum ts_status add_problem(struct scan *scan, const char *format, ...)
{
    char problem[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    return add(scan, 0, problem);
}

/* The folder at hand is entered unless it is one of those around it. */
static enum ts_status enter(struct scan *scan, int parent, const char *name, bool link, unsigned depth)
{
    struct stat *info = &scan->above[depth];
    enum ts_status status;
    int file;
    if (depth > MAX_DEPTH)
        return add_problem(scan, "lies more than %d folders deep; open it by itself", MAX_DEPTH);
    file = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (link ? 0 : O_NOFOLLOW));
    if (file < 0)
        return add_problem(scan, "cannot open the folder: %s", strerror(errno));
    if (fstat(file, info) < 0) {
        int number = errno;
        close(file);
        return add_problem(scan, "cannot look at the folder: %s", strerror(number));
    }
    for (unsigned i = 0; i < depth; i++) {
        if (scan->above[i].st_dev == info->st_dev && scan->above[i].st_ino == info->st_ino) {
            close(file);
            return add_problem(scan, "is a symbolic link to a folder around it");
        }
    }
    status = scan_folder(scan, file, depth);
    close(file);
    return status;
}

/* Whether the link at hand may be followed; info then describes what it leads to. Otherwise lists it, with why. */
static enum ts_status follow(struct scan *scan, int parent, const char *name, struct stat *info, bool *followed)
{
    char *path = ts_listing_join(scan->folder->path, scan->path.data);
    char *real = path ? realpath(path, NULL) : NULL;
    int number = errno;
    enum ts_status status = TS_OK;
    *followed = false;
    free(path);
    if (!path)
        return ts_fail_memory(scan->error);
    if (!real) {
        char target[512];
        ssize_t length = readlinkat(parent, name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        return number == ENOENT ? add_problem(scan, "is a symbolic link to %s, which does not exist", target)
                                : add_problem(scan, "is a symbolic link to %s: %s", target, strerror(number));
    }
    if (!scan->disk->follow_links && !lies_inside(real, scan->disk->inside))
        status = add_problem(scan, "is a symbolic link to %s, outside the folder; follow it with --follow-links", real);
    else if (stat(real, info) < 0)
        status = add_problem(scan, "cannot look at %s: %s", real, strerror(errno));
    else
        *followed = true;
    free(real);
    return status;
}

static enum ts_status scan_entry(struct scan *scan, int parent, const char *name, unsigned depth)
{
    struct stat info;
    bool link;
    if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
        return ts_fail(scan->error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? TS_OK : add_problem(scan, "cannot look at it: %s", strerror(errno));
    link = S_ISLNK(info.st_mode);
    if (link) {
        bool followed;
        TS_TRY(follow(scan, parent, name, &info, &followed));
        if (!followed)
            return TS_OK;
    }
    if (S_ISREG(info.st_mode))
        return add(scan, (uint64_t)info.st_size, NULL);
    if (S_ISDIR(info.st_mode))
        return enter(scan, parent, name, link, depth + 1);
    return add_problem(scan, "is a %s, not a file",
                       S_ISFIFO(info.st_mode)   ? "named pipe"
                       : S_ISSOCK(info.st_mode) ? "socket"
                                                : "device");
}

static int compare_names(const void *one, const void *other)
{
    return ts_natural_compare(*(char *const *)one, *(char *const *)other);
}

/* The names in a folder, sorted, without those that are left out. Freed with free_names. */
struct names {
    char **list;
    size_t count, capacity;
};

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
}

static bool is_left_out(const struct scan *scan, const char *name, unsigned depth)
{
    if (name[0] == '.' || ts_listing_is_junk(name))
        return true;
    /* A repository's blobs are what its snapshots link to. */
    return depth == 0 && scan->disk->is_repository && (strcmp(name, "blobs") == 0 || strcmp(name, "refs") == 0);
}

static enum ts_status read_names(struct scan *scan, DIR *stream, unsigned depth, struct names *names)
{
    struct dirent *entry;
    while (errno = 0, (entry = readdir(stream))) {
        if (is_left_out(scan, entry->d_name, depth))
            continue;
        if (names->count == names->capacity) {
            size_t capacity = names->capacity ? 2 * names->capacity : 64;
            char **list = realloc(names->list, capacity * sizeof *list);
            if (!list)
                return ts_fail_memory(scan->error);
            names->list = list;
            names->capacity = capacity;
        }
        names->list[names->count] = strdup(entry->d_name);
        if (!names->list[names->count])
            return ts_fail_memory(scan->error);
        if (++names->count > TS_FOLDER_MAX_MEMBERS)
            break; /* one too many: adding them will say so */
    }
    if (names->count)
        qsort(names->list, names->count, sizeof *names->list, compare_names);
    return TS_OK;
}

static enum ts_status scan_folder(struct scan *scan, int file, unsigned depth)
{
    struct names names = {0};
    size_t prefix = scan->path.size;
    int again = dup(file);
    DIR *stream = again < 0 ? NULL : fdopendir(again);
    enum ts_status status;
    if (!stream) {
        int number = errno;
        if (again >= 0)
            close(again);
        return depth == 0 ? ts_fail_errno(scan->error, number, "cannot list the folder")
                          : add_problem(scan, "cannot list the folder: %s", strerror(number));
    }
    /* Links make a folder's folders as many as its files; both are bounded. */
    if (++scan->folders > TS_FOLDER_MAX_MEMBERS)
        status = ts_fail(scan->error, TS_ERR_LIMIT, TS_NO_OFFSET, "holds more than %d folders; open a part of it",
                         TS_FOLDER_MAX_MEMBERS);
    else
        status = read_names(scan, stream, depth, &names);
    closedir(stream);
    for (size_t i = 0; i < names.count && status == TS_OK; i++) {
        if (prefix)
            ts_buffer_byte(&scan->path, '/');
        ts_buffer_string(&scan->path, names.list[i]);
        status = scan->path.failed ? ts_fail_memory(scan->error) : scan_entry(scan, file, names.list[i], depth);
        scan->path.size = prefix;
        if (scan->path.data)
            scan->path.data[prefix] = '\0';
    }
    free_names(&names);
    return status;
}

static enum ts_status scan_root(struct ts_folder *folder, struct ts_error *error)
{
    struct scan scan = {.folder = folder, .disk = folder->private, .error = error};
    enum ts_status status;
    int file = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0 || fstat(file, &scan.above[0]) < 0) {
        int number = errno;
        if (file >= 0)
            close(file);
        return ts_fail_errno(error, number, "cannot open the folder");
    }
    ts_buffer_init(&scan.path, MAX_PATH);
    status = scan_folder(&scan, file, 0);
    ts_buffer_release(&scan.path);
    close(file);
    return status;
}

static enum ts_status open_file(const struct ts_folder *folder, const char *path, struct ts_source **source,
                                struct ts_error *error)
{
    char *joined = ts_listing_join(folder->path, path);
    enum ts_status status = joined ? ts_source_open(joined, source, error) : ts_fail_memory(error);
    free(joined);
    return status;
}

static enum ts_status open_member(struct ts_folder *folder, size_t index, struct ts_source **source,
                                  struct ts_error *error)
{
    return open_file(folder, folder->members[index].path, source, error);
}

static enum ts_status open_path(struct ts_folder *folder, const char *path, struct ts_source **source,
                                struct ts_error *error)
{
    struct disk *disk = folder->private;
    char *joined = ts_listing_join(folder->path, path);
    char *real = joined ? realpath(joined, NULL) : NULL;
    enum ts_status status;
    if (!joined)
        status = ts_fail_memory(error);
    else if (!real && (errno == ENOENT || errno == ENOTDIR))
        status = ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "no such file");
    else if (!real)
        status = ts_fail_errno(error, errno, "cannot open the file");
    else if (!disk->follow_links && !lies_inside(real, disk->inside))
        status = ts_fail(error, TS_ERR_IO, TS_NO_OFFSET,
                         "is a symbolic link to %s, outside the folder; follow it with --follow-links", real);
    else
        status = ts_source_open(joined, source, error);
    free(joined);
    free(real);
    return status;
}

static void release(struct ts_folder *folder)
{
    struct disk *disk = folder->private;
    if (disk)
        free(disk->inside);
    free(disk);
}

static const struct ts_folder_kind disk_kind = {.open = open_member, .open_path = open_path, .release = release};

static enum ts_status prepare(struct ts_folder *folder, bool follow_links, struct ts_error *error)
{
    struct disk *disk = folder->private = calloc(1, sizeof *disk);
    struct stat info;
    if (!disk)
        return ts_fail_memory(error);
    disk->follow_links = follow_links;
    disk->inside = realpath(folder->path, NULL);
    if (!disk->inside || stat(disk->inside, &info) < 0)
        return ts_fail_errno(error, errno, "cannot open the folder");
    if (!S_ISDIR(info.st_mode))
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "is not a folder");
    disk->is_repository = is_repository_name(strrchr(disk->inside, '/') + 1);
    widen_to_repository(disk->inside);
    return TS_OK;
}

enum ts_status ts_folder_open_disk(const char *path, bool scan, bool follow_links, struct ts_folder **folder,
                                   struct ts_error *error)
{
    struct ts_folder *opened = ts_listing_new(*path ? path : ".", &disk_kind);
    enum ts_status status;
    if (!opened)
        return ts_fail_memory(error);
    status = prepare(opened, follow_links, error);
    if (status == TS_OK && scan)
        status = scan_root(opened, error);
    if (status == TS_OK)
        status = ts_listing_finish(opened, error);
    if (status != TS_OK) {
        ts_folder_free(opened);
        return ts_error_path(error, path);
    }
    *folder = opened;
    return TS_OK;
}
