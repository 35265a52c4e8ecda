/* The spool owns one unlinked file and the mappings into it. Room is handed out from the current extent; what is larger
 * than an extent gets one of its own. An extent is a source, and what leaves the spool is a slice of one, so an extent
 * is unmapped when the spool and the last slice are gone.
 *
 * Blocks are allocated before they are handed out: writing to a hole of a full disk through a mapping would end the
 * process with SIGBUS, while a refused allocation is a message. */
#include "io/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/number.h"
#include "base/system.h"
#include "base/text.h"

#define ALIGNMENT 64
/* Extents double from the first to the last of these. The first is small because the kernel reads ahead as far as the
 * file reaches when its first page is touched, which takes milliseconds for 64 MiB. With the last, 64 GiB (the usual
 * limit) are a thousand mappings of the 65,530 that Linux grants a process. */
#define FIRST_EXTENT ((uint64_t)256 << 10)
#define LAST_EXTENT  ((uint64_t)64 << 20)
/* Blocks are asked for in steps, so that thousands of small members do not each cost a system call. */
#define ALLOCATION_STEP ((uint64_t)1 << 20)
/* A stream that ends below this is copied into the current extent; a longer one goes straight to the file and is mapped
 * by itself. */
#define STREAM_BUFFER ((size_t)4 << 20)
/* What is larger leaves this process's resident memory as soon as it is complete. */
#define FORGET_SIZE ((uint64_t)1 << 20)

struct extent {
    struct ts_source *source; /* the whole mapping; our reference */
    uint8_t *data;
    uint64_t offset;    /* in the file */
    uint64_t size;      /* a multiple of the page size */
    uint64_t used;      /* handed out */
    uint64_t allocated; /* blocks are there for this much */
};

struct ts_spool {
    uint64_t limit, used;
    int file; /* -1 until the first reserve */
    uint64_t file_size;
    uint64_t page;
    struct extent *extents;
    size_t count, capacity;
    size_t current; /* the extent that small room comes from; SIZE_MAX: none */
    /* the stream being written */
    uint8_t *buffer;   /* STREAM_BUFFER bytes, kept between streams */
    size_t buffered;   /* bytes in it */
    uint64_t streamed; /* bytes in the file, from file_size on */
};

struct ts_spool *ts_spool_new(uint64_t limit)
{
    struct ts_spool *spool = calloc(1, sizeof *spool);
    long page = sysconf(_SC_PAGESIZE);
    if (!spool)
        return NULL;
    spool->limit = limit;
    spool->file = -1;
    spool->page = page > 0 ? (uint64_t)page : 4096;
    spool->current = SIZE_MAX;
    return spool;
}

void ts_spool_free(struct ts_spool *spool)
{
    if (!spool)
        return;
    for (size_t i = 0; i < spool->count; i++)
        ts_source_release(spool->extents[i].source);
    if (spool->file >= 0)
        close(spool->file);
    free(spool->extents);
    free(spool->buffer);
    free(spool);
}

static const char *spool_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

static enum ts_status fail_disk(struct ts_error *error, int number, uint64_t wanted)
{
    char text[16];
    if (number == ENOSPC || number == EDQUOT || number == EFBIG)
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET,
                       "no room for %s of unpacked data in %s: %s; free some, or set TMPDIR to a larger disk",
                       ts_human_bytes(wanted, text), spool_folder(), strerror(number));
    return ts_fail_errno(error, number, "cannot write unpacked data to %s (set TMPDIR to use another folder)",
                         spool_folder());
}

static enum ts_status open_file(struct ts_spool *spool, struct ts_error *error)
{
    char path[4096];
    int length;
    if (spool->file >= 0)
        return TS_OK;
    length = snprintf(path, sizeof path, "%s/tsleuth-XXXXXX", spool_folder());
    if (length < 0 || (size_t)length >= sizeof path)
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "the path in TMPDIR is too long");
    spool->file = mkostemp(path, O_CLOEXEC);
    if (spool->file < 0)
        return ts_fail_errno(error, errno,
                             "cannot create a temporary file in %s for unpacked data (set TMPDIR to use another "
                             "folder)",
                             spool_folder());
    unlink(path);
    return TS_OK;
}

static enum ts_status write_file(struct ts_spool *spool, const uint8_t *data, uint64_t size, uint64_t offset,
                                 struct ts_error *error)
{
    /* Linux writes at most 2 GiB less a page in one call. */
    const uint64_t most = (uint64_t)1 << 30;
    while (size) {
        ssize_t written = pwrite(spool->file, data, (size_t)(size < most ? size : most), (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fail_disk(error, written < 0 ? errno : ENOSPC, size);
        data += written;
        offset += (uint64_t)written;
        size -= (uint64_t)written;
    }
    return TS_OK;
}

/* Makes the file system promise blocks for a range that was never written. */
static enum ts_status allocate(struct ts_spool *spool, uint64_t offset, uint64_t size, struct ts_error *error)
{
    static const uint8_t zeros[64 * 1024];
#if TS_LINUX
    int number;
    do
        number = posix_fallocate(spool->file, (off_t)offset, (off_t)size);
    while (number == EINTR);
    if (number == 0)
        return TS_OK;
    if (number != EINVAL && number != EOPNOTSUPP && number != ENOSYS)
        return fail_disk(error, number, size);
#endif
    while (size) {
        uint64_t piece = size < sizeof zeros ? size : sizeof zeros;
        TS_TRY(write_file(spool, zeros, piece, offset, error));
        offset += piece;
        size -= piece;
    }
    return TS_OK;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Maps [file_size, file_size + size) of the file as a new extent; size is a multiple of the page size. */
static enum ts_status add_extent(struct ts_spool *spool, uint64_t size, struct extent **extent, struct ts_error *error)
{
    struct extent *added;
    void *mapping;
    if (spool->count == spool->capacity) {
        size_t capacity = spool->capacity ? 2 * spool->capacity : 16;
        struct extent *extents = realloc(spool->extents, capacity * sizeof *extents);
        if (!extents)
            return ts_fail_memory(error);
        spool->extents = extents;
        spool->capacity = capacity;
    }
    added = &spool->extents[spool->count];
    memset(added, 0, sizeof *added);
    added->source = calloc(1, sizeof *added->source);
    if (!added->source)
        return ts_fail_memory(error);
    added->source->path = strdup("temporary space");
    if (!added->source->path) {
        free(added->source);
        return ts_fail_memory(error);
    }
    mapping = MAP_FAILED;
    if (size > SIZE_MAX || ftruncate(spool->file, (off_t)(spool->file_size + size)) < 0 ||
        (mapping = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, spool->file,
                        (off_t)spool->file_size)) == MAP_FAILED) {
        int number = size > SIZE_MAX ? ENOMEM : errno;
        free((char *)added->source->path);
        free(added->source);
        return fail_disk(error, number, size);
    }
    added->source->data = mapping;
    added->source->size = size;
    added->source->mapping = mapping;
    added->source->mapping_size = (size_t)size;
    ts_source_attach(added->source, spool->file, spool->file_size);
    atomic_init(&added->source->references, 1);
    added->data = mapping;
    added->offset = spool->file_size;
    added->size = size;
    spool->file_size += size;
    spool->count++;
    *extent = added;
    return TS_OK;
}

static enum ts_status fail_limit(const struct ts_spool *spool, struct ts_error *error)
{
    char text[16];
    return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET,
                   "unpacking takes more than the %s of temporary space it may use; raise that with --spool-limit",
                   ts_human_bytes(spool->limit, text));
}

static uint64_t extent_size(const struct ts_spool *spool, uint64_t needed)
{
    uint64_t size = spool->file_size < FIRST_EXTENT ? FIRST_EXTENT : spool->file_size;
    if (size > LAST_EXTENT)
        size = LAST_EXTENT;
    return round_up(needed > size ? needed : size, spool->page);
}

/* Room in one extent. Anything up to `limit` fits the arithmetic: what is larger was refused before. */
static enum ts_status take(struct ts_spool *spool, uint64_t size, uint8_t **data, struct ts_error *error)
{
    struct extent *extent = spool->current == SIZE_MAX ? NULL : &spool->extents[spool->current];
    uint64_t start = extent ? round_up(extent->used, ALIGNMENT) : 0, end;
    if (!extent || !ts_span_fits(start, size, extent->size)) {
        uint64_t left = extent ? extent->size - extent->used : 0;
        TS_TRY(add_extent(spool, extent_size(spool, size), &extent, error));
        if (extent->size - size >= left) /* else the old one has more to give */
            spool->current = spool->count - 1;
        start = 0;
    }
    end = start + size;
    if (end > extent->allocated) {
        uint64_t wanted = round_up(end, ALLOCATION_STEP);
        if (wanted > extent->size)
            wanted = extent->size;
        TS_TRY(allocate(spool, extent->offset + extent->allocated, wanted - extent->allocated, error));
        extent->allocated = wanted;
    }
    extent->used = end;
    *data = extent->data + start;
    return TS_OK;
}

/* Drops an extent that nobody uses, and its blocks where it is the last of the file. */
static void drop_last_extent(struct ts_spool *spool)
{
    struct extent *extent = &spool->extents[spool->count - 1];
    ts_source_release(extent->source);
    if (extent->offset + extent->size == spool->file_size && ftruncate(spool->file, (off_t)extent->offset) == 0)
        spool->file_size = extent->offset;
    spool->count--;
    if (spool->current == spool->count)
        spool->current = SIZE_MAX;
}

enum ts_status ts_spool_reserve(struct ts_spool *spool, uint64_t size, uint8_t **data, struct ts_error *error)
{
    size_t extents = spool->count;
    enum ts_status status;
    if (spool->streamed || spool->buffered)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "spool: room reserved while a stream is being written");
    if (size > spool->limit - spool->used)
        return fail_limit(spool, error);
    /* Sizes near 2^64 would wrap when rounded, and no file is larger than off_t. */
    if (size > INT64_MAX / 2 || spool->file_size > INT64_MAX / 2)
        return fail_disk(error, EFBIG, size);
    TS_TRY(open_file(spool, error));
    status = take(spool, size, data, error);
    if (status != TS_OK) {
        if (spool->count > extents)
            drop_last_extent(spool);
        return status;
    }
    spool->used += size;
    return TS_OK;
}

static struct extent *find_extent(const struct ts_spool *spool, const uint8_t *data, uint64_t size)
{
    for (size_t i = spool->count; i-- > 0;) { /* asked for right after it was reserved, so near the end */
        struct extent *extent = &spool->extents[i];
        uintptr_t at = (uintptr_t)data - (uintptr_t)extent->data;
        if ((uintptr_t)data >= (uintptr_t)extent->data && ts_span_fits(at, size, extent->used))
            return extent;
    }
    return NULL;
}

void ts_spool_unreserve(struct ts_spool *spool, const uint8_t *data, uint64_t size)
{
    struct extent *extent = find_extent(spool, data, size);
    uint64_t start;
    if (!extent)
        return;
    start = (uint64_t)(data - extent->data);
    if (start + size != extent->used) /* not the latest: it stays counted */
        return;
    spool->used -= size;
    if (start == 0 && extent == &spool->extents[spool->count - 1]) {
        drop_last_extent(spool);
        return;
    }
    if (size)
        memset(extent->data + start, 0, (size_t)size); /* the next one expects zeros */
    extent->used = start;
}

static enum ts_status hand_out(struct extent *extent, uint64_t start, uint64_t size, const char *path,
                               struct ts_source **source, struct ts_error *error)
{
    TS_TRY(ts_source_slice(extent->source, start, size, path, source, error));
    if (size >= FORGET_SIZE)
        ts_source_forget(*source, 0, size);
    return TS_OK;
}

enum ts_status ts_spool_source(struct ts_spool *spool, const uint8_t *data, uint64_t size, const char *path,
                               struct ts_source **source, struct ts_error *error)
{
    struct extent *extent = find_extent(spool, data, size);
    if (!extent)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "spool: source of bytes that were not reserved");
    return hand_out(extent, (uint64_t)(data - extent->data), size, path, source, error);
}

static enum ts_status flush_stream(struct ts_spool *spool, struct ts_error *error)
{
    TS_TRY(write_file(spool, spool->buffer, spool->buffered, spool->file_size + spool->streamed, error));
    spool->streamed += spool->buffered;
    spool->buffered = 0;
    return TS_OK;
}

enum ts_status ts_spool_write(struct ts_spool *spool, const void *data, uint64_t size, struct ts_error *error)
{
    const uint8_t *from = data;
    if (size == 0)
        return TS_OK;
    if (size > spool->limit - spool->used)
        return fail_limit(spool, error);
    TS_TRY(open_file(spool, error));
    if (!spool->buffer && !(spool->buffer = malloc(STREAM_BUFFER)))
        return ts_fail_memory(error);
    while (size) {
        size_t room = STREAM_BUFFER - spool->buffered;
        size_t piece = size < room ? (size_t)size : room;
        if (spool->buffered == 0 && size >= STREAM_BUFFER) { /* no need to go through the buffer */
            uint64_t whole = size / STREAM_BUFFER * STREAM_BUFFER;
            TS_TRY(write_file(spool, from, whole, spool->file_size + spool->streamed, error));
            spool->streamed += whole;
            spool->used += whole;
            from += whole;
            size -= whole;
            continue;
        }
        memcpy(spool->buffer + spool->buffered, from, piece);
        spool->buffered += piece;
        spool->used += piece;
        from += piece;
        size -= piece;
        if (spool->buffered == STREAM_BUFFER)
            TS_TRY(flush_stream(spool, error));
    }
    return TS_OK;
}

void ts_spool_cancel(struct ts_spool *spool)
{
    spool->used -= spool->streamed + spool->buffered;
    if (spool->streamed && ftruncate(spool->file, (off_t)spool->file_size) < 0) {
        /* The blocks stay behind the end as garbage, and room must be zeroed: begin after them. */
        spool->file_size += round_up(spool->streamed, spool->page);
    }
    spool->streamed = 0;
    spool->buffered = 0;
}

enum ts_status ts_spool_finish(struct ts_spool *spool, const char *path, struct ts_source **source,
                               struct ts_error *error)
{
    enum ts_status status;
    struct extent *extent;
    uint64_t size;
    if (spool->streamed == 0) {
        size_t buffered = spool->buffered;
        uint8_t *data;
        spool->buffered = 0; /* reserve counts it again */
        spool->used -= buffered;
        TS_TRY(ts_spool_reserve(spool, buffered, &data, error));
        if (buffered)
            memcpy(data, spool->buffer, buffered);
        return ts_spool_source(spool, data, buffered, path, source, error);
    }
    status = flush_stream(spool, error);
    size = spool->streamed;
    if (status == TS_OK)
        status = add_extent(spool, round_up(size, spool->page), &extent, error);
    if (status != TS_OK) {
        ts_spool_cancel(spool);
        return status;
    }
    spool->streamed = 0;
    extent->used = extent->allocated = extent->size;
    return hand_out(extent, 0, size, path, source, error);
}
