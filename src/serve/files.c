/* Owns the walks over folders, with a stack of their own: how deep folders go is decided by whoever uploads. */
#include "serve/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool make_folders(char *path, size_t from)
{
    for (size_t i = from; path[i]; i++)
        if (path[i] == '/') {
            path[i] = '\0';
            if (i && mkdir(path, 0700) != 0 && errno != EEXIST) {
                path[i] = '/';
                return false;
            }
            path[i] = '/';
        }
    return true;
}

bool ts_make_folders(const char *path)
{
    char *copy = strdup(path);
    struct stat info;
    bool made = copy && make_folders(copy, 0) && (mkdir(path, 0700) == 0 || errno == EEXIST);
    free(copy);
    return made && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool ts_make_parents(const char *path)
{
    char *copy = strdup(path);
    bool made = copy && make_folders(copy, 0);
    free(copy);
    return made;
}

/* Folders that are still to be visited. */
struct stack {
    char **paths;
    size_t count, capacity;
};

static bool push(struct stack *stack, const char *folder, const char *name)
{
    char *path = NULL;
    if (stack->count == stack->capacity) {
        size_t capacity = stack->capacity ? 2 * stack->capacity : 16;
        char **paths = realloc(stack->paths, capacity * sizeof *paths);
        if (!paths)
            return false;
        stack->paths = paths;
        stack->capacity = capacity;
    }
    if (asprintf(&path, "%s%s%s", folder, name ? "/" : "", name ? name : "") < 0)
        return false;
    stack->paths[stack->count++] = path;
    return true;
}

static void release(struct stack *stack)
{
    for (size_t i = 0; i < stack->count; i++)
        free(stack->paths[i]);
    free(stack->paths);
}

/* Empties one folder of files; folders in it go on the stack. */
static void empty_folder(const char *path, struct stack *stack)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    if (!folder)
        return;
    while ((entry = readdir(folder))) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode))
            push(stack, path, entry->d_name);
        else
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
}

void ts_remove_tree(const char *path)
{
    struct stack stack = {0};
    struct stat info;
    if (lstat(path, &info) != 0)
        return;
    if (!S_ISDIR(info.st_mode)) {
        unlink(path);
        return;
    }
    push(&stack, path, NULL);
    /* emptied in the order they are found, so that every folder stands behind the one it is in */
    for (size_t i = 0; i < stack.count; i++)
        empty_folder(stack.paths[i], &stack);
    for (size_t i = stack.count; i-- > 0;)
        rmdir(stack.paths[i]);
    release(&stack);
}

void ts_sync_parent(const char *path)
{
    char *copy = strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    int folder;
    if (slash) {
        *slash = '\0';
        folder = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder >= 0) {
            fsync(folder);
            close(folder);
        }
    }
    free(copy);
}

static bool write_all(int file, const char *data, size_t size)
{
    while (size) {
        ssize_t written = write(file, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        data += written;
        size -= (size_t)written;
    }
    return true;
}

enum ts_status ts_write_whole(const char *path, const void *data, size_t size, struct ts_error *error)
{
    char temporary[4200];
    int file, number;
    bool good;
    if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "the path \"%s\" is too long", path);
    file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return ts_fail_errno(error, errno, "cannot write \"%s\"", temporary);
    good = write_all(file, data, size) && fsync(file) == 0;
    number = errno;
    if (close(file) != 0 && good) {
        number = errno;
        good = false;
    }
    if (good && rename(temporary, path) != 0) {
        number = errno;
        good = false;
    }
    if (!good) {
        unlink(temporary);
        return ts_fail_errno(error, number, "cannot write \"%s\"", path);
    }
    ts_sync_parent(path);
    return TS_OK;
}

static bool add_file(struct ts_listing *listing, const char *name, uint64_t bytes)
{
    if (listing->count == listing->capacity) {
        size_t capacity = listing->capacity ? 2 * listing->capacity : 16;
        struct ts_listed *files = realloc(listing->files, capacity * sizeof *files);
        if (!files)
            return false;
        listing->files = files;
        listing->capacity = capacity;
    }
    listing->files[listing->count].name = strdup(name);
    listing->files[listing->count].bytes = bytes;
    if (!listing->files[listing->count].name)
        return false;
    listing->bytes += bytes;
    listing->count++;
    return listing->count < TS_LISTED_MOST;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ts_listed *)a)->name, ((const struct ts_listed *)b)->name);
}

static void list_folder(const char *path, size_t root, struct stack *stack, struct ts_listing *listing)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    char *name;
    if (!folder) {
        listing->failed = listing->failed || errno != ENOENT;
        return;
    }
    while (!listing->failed && (entry = readdir(folder))) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(info.st_mode)) {
            listing->failed = !push(stack, path, entry->d_name);
        } else if (S_ISREG(info.st_mode)) {
            if (asprintf(&name, "%s/%s", path, entry->d_name) < 0) {
                listing->failed = true;
                break;
            }
            listing->failed = !add_file(listing, name + root + 1, (uint64_t)info.st_size);
            free(name);
        }
    }
    closedir(folder);
}

void ts_list_files(const char *folder, struct ts_listing *listing)
{
    struct stack stack = {0};
    *listing = (struct ts_listing){0};
    listing->failed = !push(&stack, folder, NULL);
    for (size_t i = 0; i < stack.count && !listing->failed; i++)
        list_folder(stack.paths[i], strlen(folder), &stack, listing);
    release(&stack);
    if (listing->count)
        qsort(listing->files, listing->count, sizeof *listing->files, by_name);
}

void ts_listing_release(struct ts_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        free(listing->files[i].name);
    free(listing->files);
    *listing = (struct ts_listing){0};
}
