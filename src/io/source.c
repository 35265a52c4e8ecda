#include "io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system.h"
#include "io/window.h"

/* See ts_source_look. */
#define LOOK_BITS 21
#define LOOKS     ((uint64_t)8)
#define FILES     8
/* Pages of files that may stay: some looks of a few threads, small beside the limit of 256 MB. */
#define RESIDENT ((uint64_t)32 << 20)

/* Files from this size on stay open for ts_source_read, so many at most: most systems allow a process 1024, macOS 256
 * to begin with. */
#define LARGE     ((uint64_t)8 << 20)
#define MOST_OPEN 128
/* Linux reads at most 2 GiB less a page in one call, macOS refuses more. */
#define MOST_AT_ONCE ((size_t)1 << 30)

static _Atomic unsigned open_files;
static _Atomic uint64_t serials;

static const uint8_t nothing[1];

static struct ts_source *new_source(const char *path)
{
    struct ts_source *source = calloc(1, sizeof *source);
    if (!source || !(source->path = strdup(path))) {
        free(source);
        return NULL;
    }
    source->data = nothing;
    atomic_init(&source->references, 1);
    return source;
}

void ts_source_attach(struct ts_source *source, int file, uint64_t offset)
{
    if (source->size < LARGE)
        return;
    if (atomic_fetch_add(&open_files, 1) < MOST_OPEN)
        source->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    else
        source->file = -1;
    source->has_file = source->file >= 0;
    source->file_offset = offset;
    source->serial = source->has_file ? 1 + atomic_fetch_add(&serials, 1) : 0;
    if (!source->has_file)
        atomic_fetch_sub(&open_files, 1);
}

/* Files up to this size are read, not mapped: a folder of a hundred thousand dumps would run out of mappings. */
#define SMALL 16384

static enum ts_status read_file(int file, size_t size, const char *path, struct ts_source **source,
                                struct ts_error *error)
{
    uint8_t bytes[SMALL];
    size_t have = 0;
    while (have < size) {
        ssize_t got = read(file, bytes + have, size - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ts_fail_errno(error, errno, "cannot read the file");
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return ts_source_copy(bytes, have, path, source, error);
}

static enum ts_status map_file(int file, const char *path, struct ts_source **source, struct ts_error *error)
{
    struct stat info;
    struct ts_source *mapped;
    if (fstat(file, &info) != 0)
        return ts_fail_errno(error, errno, "cannot look at the file");
    if (S_ISDIR(info.st_mode))
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "is a folder, not a file");
    if (!S_ISREG(info.st_mode))
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "is a device, pipe or socket, not a file");
    if (info.st_size < 0 || (uint64_t)info.st_size > SIZE_MAX)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "is too large to be mapped");
    if (info.st_size <= SMALL)
        return read_file(file, (size_t)info.st_size, path, source, error);
    mapped = new_source(path);
    if (!mapped)
        return ts_fail_memory(error);
    {
        void *mapping = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, file, 0);
        if (mapping == MAP_FAILED) {
            int number = errno;
            ts_source_release(mapped);
            return ts_fail_errno(error, number, "cannot map the file");
        }
        mapped->data = mapped->mapping = mapping;
        mapped->size = mapped->mapping_size = (size_t)info.st_size;
        ts_source_attach(mapped, file, 0);
    }
    *source = mapped;
    return TS_OK;
}

enum ts_status ts_source_open(const char *path, struct ts_source **source, struct ts_error *error)
{
    enum ts_status status;
    /* O_NONBLOCK: opening a pipe must not wait for a writer. It means nothing to regular files. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        ts_fail_errno(error, errno, "cannot open the file");
    status = file < 0 ? TS_ERR_IO : map_file(file, path, source, error);
    if (file >= 0)
        close(file);
    return status == TS_OK ? TS_OK : ts_error_path(error, path);
}

enum ts_status ts_source_slice(struct ts_source *parent, uint64_t offset, uint64_t size, const char *path,
                               struct ts_source **source, struct ts_error *error)
{
    struct ts_source *slice;
    if (!ts_source_at(parent, offset, size))
        return ts_fail(error, TS_ERR_FORMAT, offset, "needs %" PRIu64 " bytes from here, the file has %" PRIu64, size,
                       parent->size);
    slice = new_source(path);
    if (!slice)
        return ts_fail_memory(error);
    slice->data = parent->data + offset;
    slice->size = size;
    slice->parent = ts_source_retain(parent);
    *source = slice;
    return TS_OK;
}

enum ts_status ts_source_copy(const void *data, size_t size, const char *path, struct ts_source **source,
                              struct ts_error *error)
{
    struct ts_source *copy = new_source(path);
    if (!copy)
        return ts_fail_memory(error);
    if (size) {
        copy->mapping = malloc(size);
        if (!copy->mapping) {
            ts_source_release(copy);
            return ts_fail_memory(error);
        }
        memcpy(copy->mapping, data, size);
        copy->data = copy->mapping;
        copy->size = size;
    }
    *source = copy;
    return TS_OK;
}

struct ts_source *ts_source_retain(struct ts_source *source)
{
    atomic_fetch_add_explicit(&source->references, 1, memory_order_relaxed);
    return source;
}

void ts_source_release(struct ts_source *source)
{
    /* A loop, not recursion: a slice of a slice of a slice lets go of its parents in turn. */
    while (source && atomic_fetch_sub_explicit(&source->references, 1, memory_order_acq_rel) == 1) {
        struct ts_source *parent = source->parent;
        if (source->mapping_size)
            munmap(source->mapping, source->mapping_size);
        else
            free(source->mapping);
        if (source->has_file) {
            ts_window_drop(source);
            close(source->file);
            atomic_fetch_sub(&open_files, 1);
        }
        free((char *)source->path);
        free(source);
        source = parent;
    }
}

const char *ts_source_name(const struct ts_source *source)
{
    const char *slash = strrchr(source->path, '/');
    return slash && slash[1] ? slash + 1 : source->path;
}

static const struct ts_source *root_of(const struct ts_source *source)
{
    while (source->parent)
        source = source->parent;
    return source;
}

bool ts_source_is_open(const struct ts_source *source)
{
    return root_of(source)->has_file;
}

uint64_t ts_source_serial(const struct ts_source *source)
{
    return root_of(source)->serial;
}

enum ts_status ts_source_read(const struct ts_source *source, uint64_t offset, uint64_t length, void *out,
                              struct ts_error *error)
{
    const struct ts_source *root = root_of(source);
    const uint8_t *bytes = ts_source_at(source, offset, length);
    uint8_t *to = out;
    off_t at;
    if (!bytes)
        return ts_fail(error, TS_ERR_FORMAT, offset, "needs %" PRIu64 " bytes from here, the file has %" PRIu64, length,
                       source->size);
    if (!root->has_file) {
        memcpy(out, bytes, (size_t)length);
        return TS_OK;
    }
    at = (off_t)(root->file_offset + (uint64_t)(bytes - root->data));
    while (length) {
        ssize_t got = pread(root->file, to, length < MOST_AT_ONCE ? (size_t)length : MOST_AT_ONCE, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ts_fail_errno(error, errno, "cannot read \"%s\"", source->path);
        if (got == 0)
            return ts_fail(error, TS_ERR_IO, (uint64_t)at, "\"%s\" became shorter while it was read", root->path);
        to += got;
        at += got;
        length -= (uint64_t)got;
    }
    return TS_OK;
}

void ts_mapped_forget(const uint8_t *data, uint64_t length)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first, last;
    /* Whole pages inside the range only: its ends may be shared with what is still being read. */
    first = ((uintptr_t)data + page - 1) & ~(page - 1);
    last = (uintptr_t)(data + length) & ~(page - 1);
    if (first < last)
        madvise((void *)first, last - first, MADV_DONTNEED);
}

void ts_source_forget(const struct ts_source *source, uint64_t offset, uint64_t length)
{
    if (root_of(source)->mapping_size && ts_source_at(source, offset, length))
        ts_mapped_forget(source->data + offset, length);
}

/* Whether the pages of files in this process are few, as far as the system tells: 64 KB and not two megabytes come with
 * a look where the system keeps the file in small pages. */
static bool few_pages(void)
{
#if TS_LINUX
    static _Atomic int statm = -1;
    char text[128], *field = text;
    unsigned long long shared = 0;
    ssize_t got;
    int file = atomic_load(&statm), none = -1;
    if (file == -1) {
        file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
        file = file < 0 ? -2 : file;
        if (!atomic_compare_exchange_strong(&statm, &none, file)) {
            if (file >= 0)
                close(file);
            file = none;
        }
    }
    got = file >= 0 ? pread(file, text, sizeof text - 1, 0) : 0;
    text[got > 0 ? got : 0] = 0;
    for (int i = 0; i < 2 && field; i++) /* size, resident, shared: in pages */
        field = (field = strchr(field, ' ')) ? field + 1 : NULL;
    if (!field || *field < '0' || *field > '9')
        return false;
    shared = strtoull(field, NULL, 10);
    return shared < RESIDENT / (uint64_t)sysconf(_SC_PAGESIZE);
#else
    return false;
#endif
}

void ts_source_look(const struct ts_source *source, uint64_t offset)
{
    static _Thread_local struct {
        const struct ts_source *source;
        uint64_t place;
        unsigned count;
    } looks[FILES], *look;
    static _Thread_local unsigned oldest;
    const uint64_t place = offset >> LOOK_BITS;
    if (source->size < LOOKS << LOOK_BITS)
        return;
    look = looks;
    while (look < looks + FILES && look->source != source)
        look++;
    if (look == looks + FILES) {
        look = &looks[oldest++ % FILES];
        look->source = source;
        look->count = 0;
    } else if (look->place == place) {
        return;
    }
    look->place = place;
    if (++look->count < LOOKS)
        return;
    look->count = 0;
    if (!few_pages())
        ts_source_forget(source, 0, source->size);
}
