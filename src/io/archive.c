/* Tar files, 7z files and bare compressed files, through libarchive.
 *
 * Only the formats and filters named in ts_folder_is_archive are switched on: libarchive knows many more, and each is
 * code that hostile bytes could reach. Everything is unpacked when the archive is opened, since a compressed stream can
 * be walked only once; members of a plain tar file are slices of it. A damaged archive keeps what could be read. */
#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include "base/number.h"
#include "base/progress.h"
#include "base/text.h"
#include "io/folder.h"
#include "io/listing.h"

#define TAR_BLOCK      512u
#define HOLE_MAX_RATIO 1032u
#define FORGET_STEP    ((uint64_t)4 << 20)

/* Under what name a report tells of a part that could not be read. */
#define LOST_PATH "(part of the archive)"

struct link {
    size_t member;
    char *target;
};

/* What the folder keeps: the members' bytes, by private_index. */
struct unpacked {
    struct ts_source **sources;
    size_t count, capacity;
};

struct unpacking {
    struct archive *reader;
    struct ts_source *source;
    struct ts_spool *spool;
    struct ts_folder *folder;
    struct unpacked *unpacked;
    struct link *links; /* hard links, looked up when all members are known */
    size_t link_count, link_capacity;
    bool compressed;    /* skipping a member costs as much as unpacking it */
    uint64_t forgotten; /* of the archive, as far as it was read */
    uint64_t holes;     /* bytes of sparse members that are stored nowhere */
    struct ts_error *error;
};

struct filter {
    const char *name;
    const char *(*version)(void); /* NULL: not compiled into this libarchive, which would run a program instead */
    int (*support)(struct archive *);
};

static const struct filter filters[] = {
    {"gzip", archive_zlib_version, archive_read_support_filter_gzip},
    {"bzip2", archive_bzlib_version, archive_read_support_filter_bzip2},
    {"xz", archive_liblzma_version, archive_read_support_filter_xz},
    {"zstd", archive_libzstd_version, archive_read_support_filter_zstd},
    {"lz4", archive_liblz4_version, archive_read_support_filter_lz4},
};

/* The filter whose stream the bytes begin, or NULL. */
static const struct filter *find_filter(const struct ts_source *source)
{
    const uint8_t *head = ts_source_at(source, 0, 10);
    if (!head)
        return NULL;
    if (head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 && (head[3] & 0xe0) == 0) /* reserved flags are 0 */
        return &filters[0];
    if (memcmp(head, "BZh", 3) == 0 && head[3] >= '1' && head[3] <= '9' &&
        (memcmp(head + 4, "\x31\x41\x59\x26\x53\x59", 6) == 0 || memcmp(head + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0))
        return &filters[1]; /* pi before a block, its root at the end of an empty file */
    if (memcmp(head, "\xfd\x37zXZ", 6) == 0)
        return &filters[2];
    if (ts_load_le32(head) == 0xfd2fb528u || (ts_load_le32(head) & ~0xfu) == 0x184d2a50u) /* or a skippable frame */
        return &filters[3];
    if (ts_load_le32(head) == 0x184d2204u)
        return &filters[4];
    return NULL;
}

static bool is_seven_zip(const struct ts_source *source)
{
    const uint8_t *head = ts_source_at(source, 0, 6);
    return head && memcmp(head, "7z\xbc\xaf\x27\x1c", 6) == 0;
}

/* A tar header holds the sum of its bytes, with blanks in place of the sum itself; old writers added signed bytes. */
static bool is_tar(const struct ts_source *source)
{
    const uint8_t *head = ts_source_at(source, 0, TAR_BLOCK);
    int64_t unsigned_sum = 0, signed_sum = 0, stated = 0;
    size_t at = 148;
    if (!head)
        return false;
    if (memcmp(head + 257, "ustar", 5) == 0)
        return true;
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        uint8_t byte = i >= 148 && i < 156 ? ' ' : head[i];
        unsigned_sum += byte;
        signed_sum += (int8_t)byte;
    }
    while (at < 156 && head[at] == ' ')
        at++;
    for (; at < 156 && head[at] >= '0' && head[at] <= '7'; at++)
        stated = 8 * stated + head[at] - '0';
    return head[0] && (stated == unsigned_sum || stated == signed_sum);
}

bool ts_folder_is_archive(const struct ts_source *source)
{
    return find_filter(source) || is_seven_zip(source) || is_tar(source);
}

static enum ts_status check_cancelled(struct unpacking *unpacking)
{
    if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
        return ts_fail(unpacking->error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    return TS_OK;
}

/* A text for the reader's last error, in our words where it is about the end. */
static void describe(const struct unpacking *unpacking, char *text, size_t size)
{
    const char *why = archive_error_string(unpacking->reader);
    why = why ? why : "";
    snprintf(text, size, "%s%s%s", strstr(why, "runcated") ? "the archive ends early" : "the archive is damaged",
             *why ? ": " : "", why);
}

static enum ts_status add_member(struct unpacking *unpacking, const char *path, uint64_t size, const char *problem,
                                 struct ts_source *source)
{
    struct unpacked *unpacked = unpacking->unpacked;
    if (unpacked->count == unpacked->capacity) {
        size_t capacity = unpacked->capacity ? 2 * unpacked->capacity : 64;
        struct ts_source **sources = realloc(unpacked->sources, capacity * sizeof(struct ts_source *));
        if (!sources) {
            ts_source_release(source);
            return ts_fail_memory(unpacking->error);
        }
        unpacked->sources = sources;
        unpacked->capacity = capacity;
    }
    unpacked->sources[unpacked->count++] = source;
    return ts_listing_add(unpacking->folder, path, size, problem, unpacked->count - 1, unpacking->error);
}

static enum ts_status add_link(struct unpacking *unpacking, const char *path, const char *target)
{
    char problem[1024], *clean = malloc(strlen(target) + 1);
    if (!clean)
        return ts_fail_memory(unpacking->error);
    if (unpacking->link_count == unpacking->link_capacity) {
        size_t capacity = unpacking->link_capacity ? 2 * unpacking->link_capacity : 16;
        struct link *links = realloc(unpacking->links, capacity * sizeof *links);
        if (!links) {
            free(clean);
            return ts_fail_memory(unpacking->error);
        }
        unpacking->links = links;
        unpacking->link_capacity = capacity;
    }
    ts_listing_clean(target, clean);
    unpacking->links[unpacking->link_count].member = unpacking->folder->count;
    unpacking->links[unpacking->link_count++].target = clean;
    snprintf(problem, sizeof problem, "is a hard link to %s, which is not in the archive", target);
    return add_member(unpacking, path, 0, problem, NULL);
}

/* A hard link to a member that is there has that member's bytes. */
static enum ts_status resolve_links(struct unpacking *unpacking)
{
    struct ts_folder *folder = unpacking->folder;
    for (size_t i = 0; i < unpacking->link_count; i++) {
        struct ts_member *member = &folder->members[unpacking->links[i].member];
        size_t index = ts_folder_find(folder, unpacking->links[i].target);
        struct ts_source *target, **source = &unpacking->unpacked->sources[member->private_index];
        enum ts_status status;
        char *path;
        if (index == SIZE_MAX || folder->members[index].problem)
            continue;
        target = unpacking->unpacked->sources[folder->members[index].private_index];
        path = ts_listing_join(folder->path, member->path);
        status = path ? ts_source_slice(target, 0, target->size, path, source, unpacking->error)
                      : ts_fail_memory(unpacking->error);
        free(path);
        TS_TRY(status);
        member->size = target->size;
        member->problem = NULL;
    }
    return TS_OK;
}

/* The bytes of one member while they are read: a run of the archive's own bytes as long as that holds, else a stream in
 * the spool. */
struct body {
    uint64_t length;
    const uint8_t *run; /* NULL: in the spool, or nothing yet */
    bool spooled;
};

/* Leaves the archive's own bytes for the spool. */
static enum ts_status spool_body(struct unpacking *unpacking, struct body *body)
{
    if (!body->spooled && body->length)
        TS_TRY(ts_spool_write(unpacking->spool, body->run, body->length, unpacking->error));
    body->spooled = true;
    return TS_OK;
}

/* Writes the zeros of a hole. A sparse file may be mostly holes, but a small archive that claims gigabytes of them is
 * after the disk: the bound is the one that deflate has by nature. */
static enum ts_status fill_hole(struct unpacking *unpacking, struct body *body, uint64_t count)
{
    static const uint8_t zeros[64 * 1024];
    uint64_t most;
    if (count == 0)
        return TS_OK;
    if (!ts_mul(unpacking->source->size, HOLE_MAX_RATIO, &most))
        most = UINT64_MAX;
    if (count > most - unpacking->holes)
        return ts_fail(unpacking->error, TS_ERR_LIMIT, TS_NO_OFFSET,
                       "is a sparse file with %" PRIu64 " empty bytes in an archive of %" PRIu64
                       "; unpack it first and open the file",
                       count, unpacking->source->size);
    unpacking->holes += count;
    TS_TRY(spool_body(unpacking, body));
    body->length += count;
    while (count) {
        uint64_t piece = count < sizeof zeros ? count : sizeof zeros;
        TS_TRY(ts_spool_write(unpacking->spool, zeros, piece, unpacking->error));
        TS_TRY(check_cancelled(unpacking));
        count -= piece;
    }
    return TS_OK;
}

/* Adds a piece that belongs at offset; what lies between is a hole of a sparse file. */
static enum ts_status add_piece(struct unpacking *unpacking, struct body *body, const uint8_t *data, size_t size,
                                uint64_t offset)
{
    const struct ts_source *source = unpacking->source;
    bool inside = (uintptr_t)data >= (uintptr_t)source->data &&
                  ts_span_fits((uintptr_t)data - (uintptr_t)source->data, size, source->size);
    if (offset < body->length)
        return ts_fail(unpacking->error, TS_ERR_FORMAT, TS_NO_OFFSET, "its pieces overlap");
    if (size == 0)
        return TS_OK;
    if (inside && !body->spooled && offset == body->length && (!body->run || data == body->run + body->length)) {
        if (!body->run)
            body->run = data;
    } else {
        TS_TRY(fill_hole(unpacking, body, offset - body->length));
        TS_TRY(spool_body(unpacking, body));
        TS_TRY(ts_spool_write(unpacking->spool, data, size, unpacking->error));
    }
    body->length = offset + size;
    return TS_OK;
}

static enum ts_status finish_body(struct unpacking *unpacking, struct body *body, struct archive_entry *entry,
                                  const char *path, struct ts_source **source)
{
    uint64_t stated = archive_entry_size_is_set(entry) ? (uint64_t)archive_entry_size(entry) : body->length;
    if (stated > body->length) /* a hole at the end: data that is missing was an error before */
        TS_TRY(fill_hole(unpacking, body, stated - body->length));
    if (body->spooled)
        return ts_spool_finish(unpacking->spool, path, source, unpacking->error);
    return ts_source_slice(unpacking->source, body->run ? (uint64_t)(body->run - unpacking->source->data) : 0,
                           body->length, path, source, unpacking->error);
}

/* What was read of a compressed archive is not needed any more. */
static void forget_read(struct unpacking *unpacking)
{
    const la_int64_t read = archive_filter_bytes(unpacking->reader, -1);
    if (!unpacking->compressed || read < 0 || (uint64_t)read < unpacking->forgotten + FORGET_STEP)
        return;
    ts_source_forget(unpacking->source, unpacking->forgotten, (uint64_t)read - unpacking->forgotten);
    unpacking->forgotten = (uint64_t)read & ~(FORGET_STEP - 1);
}

/* Reads one member's bytes. A failure of the archive fills in problem and leaves source NULL; end tells that nothing
 * can be read behind it. */
static enum ts_status read_body(struct unpacking *unpacking, struct archive_entry *entry, const char *path,
                                struct ts_source **source, char *problem, size_t problem_size, bool *end)
{
    struct body body = {0};
    enum ts_status status = TS_OK;
    while (status == TS_OK) {
        const void *data;
        size_t size;
        la_int64_t offset;
        int code = archive_read_data_block(unpacking->reader, &data, &size, &offset);
        if (code == ARCHIVE_EOF) {
            status = finish_body(unpacking, &body, entry, path, source);
            break;
        }
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN) {
            ts_spool_cancel(unpacking->spool);
            describe(unpacking, problem, problem_size);
            *end = code == ARCHIVE_FATAL;
            return TS_OK;
        }
        status = check_cancelled(unpacking);
        forget_read(unpacking);
        if (status == TS_OK)
            status = add_piece(unpacking, &body, data, size, offset < 0 ? 0 : (uint64_t)offset);
    }
    if (status == TS_OK)
        return TS_OK;
    ts_spool_cancel(unpacking->spool);
    if (status != TS_ERR_LIMIT && status != TS_ERR_FORMAT)
        return status;
    snprintf(problem, problem_size, "%s", unpacking->error->message);
    /* To get behind a bomb one would have to unpack it. */
    *end = unpacking->compressed;
    return TS_OK;
}

static const char *entry_problem(struct archive_entry *entry, char *text, size_t size)
{
    const char *target = archive_entry_symlink(entry);
    switch (archive_entry_filetype(entry)) {
    case AE_IFLNK:
        snprintf(text, size, "is a symbolic link to %s", target ? target : "something");
        return text;
    case AE_IFCHR:
    case AE_IFBLK:
        return "is a device, not a file";
    case AE_IFIFO:
        return "is a named pipe, not a file";
    case AE_IFSOCK:
        return "is a socket, not a file";
    default:
        return archive_entry_is_data_encrypted(entry) ? "is encrypted" : NULL;
    }
}

/* A bare compressed file is a folder of one member, named as the file without its last suffix. */
static char *bare_name(const struct ts_source *source)
{
    const char *name = ts_source_name(source), *dot = strrchr(name, '.');
    return strndup(name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

static char *member_name(const struct unpacking *unpacking, struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);
    if (archive_format(unpacking->reader) == ARCHIVE_FORMAT_RAW)
        return bare_name(unpacking->source);
    if (!name)
        name = archive_entry_pathname_utf8(entry);
    return strdup(name ? name : "(a name that cannot be read)");
}

static enum ts_status read_member(struct unpacking *unpacking, struct archive_entry *entry, const char *path,
                                  const char *path_problem, bool *end)
{
    char text[1024] = "";
    const char *target = archive_entry_hardlink(entry), *problem = path_problem;
    uint64_t size = archive_entry_size_is_set(entry) ? (uint64_t)archive_entry_size(entry) : 0;
    struct ts_source *source = NULL;
    if (!problem && target)
        return add_link(unpacking, path, target);
    if (!problem)
        problem = entry_problem(entry, text, sizeof text);
    if (!problem) {
        char *shown = ts_listing_join(unpacking->folder->path, path);
        enum ts_status status = shown ? read_body(unpacking, entry, shown, &source, text, sizeof text, end)
                                      : ts_fail_memory(unpacking->error);
        free(shown);
        TS_TRY(status);
        if (*end)
            snprintf(text + strlen(text), sizeof text - strlen(text), "; nothing behind it was read");
        problem = source ? NULL : text;
        size = source ? source->size : size;
    }
    return add_member(unpacking, path, size, problem, source);
}

static enum ts_status read_entry(struct unpacking *unpacking, struct archive_entry *entry, bool *end)
{
    enum ts_status status = TS_OK;
    char *name = member_name(unpacking, entry), *clean = name ? malloc(strlen(name) + 1) : NULL;
    if (!clean) {
        status = ts_fail_memory(unpacking->error);
    } else {
        const char *problem = ts_listing_clean(name, clean);
        if (archive_entry_filetype(entry) != AE_IFDIR && *clean && !ts_listing_is_junk(clean))
            status = read_member(unpacking, entry, clean, problem, end);
    }
    free(name);
    free(clean);
    return status;
}

static enum ts_status read_entries(struct unpacking *unpacking)
{
    bool end = false, damaged = false;
    while (!end) {
        struct archive_entry *entry;
        char problem[1024];
        int code = archive_read_next_header(unpacking->reader, &entry);
        if (code == ARCHIVE_EOF)
            break;
        TS_TRY(check_cancelled(unpacking));
        if (code == ARCHIVE_OK || code == ARCHIVE_WARN) {
            unpacking->compressed =
                archive_filter_count(unpacking->reader) > 1 || archive_format(unpacking->reader) == ARCHIVE_FORMAT_7ZIP;
            TS_TRY(read_entry(unpacking, entry, &end));
            damaged = false;
            continue;
        }
        end = code != ARCHIVE_RETRY;
        if (damaged && !end) /* still looking for the next sound header */
            continue;
        damaged = true;
        describe(unpacking, problem, sizeof problem);
        if (end && unpacking->folder->count == 0)
            return ts_fail(unpacking->error, TS_ERR_FORMAT, TS_NO_OFFSET, "%s", problem);
        TS_TRY(add_member(unpacking, LOST_PATH, 0, problem, NULL));
    }
    TS_TRY(ts_listing_finish(unpacking->folder, unpacking->error));
    return resolve_links(unpacking);
}

static enum ts_status start(struct unpacking *unpacking)
{
    struct archive *reader = unpacking->reader;
    const struct filter *filter = find_filter(unpacking->source);
    if (filter && !filter->version())
        return ts_fail(unpacking->error, TS_ERR_UNSUPPORTED, 0,
                       "is compressed with %s, which the libarchive of this system cannot unpack", filter->name);
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (filters[i].version())
            filters[i].support(reader);
    archive_read_support_format_tar(reader);
    archive_read_support_format_7zip(reader);
    if (filter) /* takes anything, so only behind a filter */
        archive_read_support_format_raw(reader);
    if (archive_read_open_memory(reader, unpacking->source->data, (size_t)unpacking->source->size) != ARCHIVE_OK) {
        char problem[512];
        describe(unpacking, problem, sizeof problem);
        return ts_fail(unpacking->error, TS_ERR_FORMAT, TS_NO_OFFSET, "%s", problem);
    }
    return TS_OK;
}

static enum ts_status open_member(struct ts_folder *folder, size_t index, struct ts_source **source,
                                  struct ts_error *error)
{
    struct unpacked *unpacked = folder->private;
    (void)error;
    *source = ts_source_retain(unpacked->sources[folder->members[index].private_index]);
    return TS_OK;
}

static void release(struct ts_folder *folder)
{
    struct unpacked *unpacked = folder->private;
    for (size_t i = 0; unpacked && i < unpacked->count; i++)
        ts_source_release(unpacked->sources[i]);
    if (unpacked)
        free(unpacked->sources);
    free(unpacked);
}

static const struct ts_folder_kind archive_kind = {.open = open_member, .release = release};

static enum ts_status unpack(struct unpacking *unpacking)
{
    enum ts_status status;
    unpacking->reader = archive_read_new();
    unpacking->unpacked = unpacking->folder->private = calloc(1, sizeof *unpacking->unpacked);
    status = unpacking->reader && unpacking->unpacked ? start(unpacking) : ts_fail_memory(unpacking->error);
    if (status == TS_OK)
        status = read_entries(unpacking);
    archive_read_free(unpacking->reader);
    for (size_t i = 0; i < unpacking->link_count; i++)
        free(unpacking->links[i].target);
    free(unpacking->links);
    return status;
}

enum ts_status ts_folder_open_archive(struct ts_source *source, struct ts_spool *spool, struct ts_folder **folder,
                                      struct ts_error *error)
{
    struct unpacking unpacking = {.source = source, .spool = spool, .error = error};
    /* libarchive turns names into the locale's encoding, and the C locale has no letters beyond ASCII. */
    locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0), before;
    enum ts_status status;
    if (!unicode)
        unicode = newlocale(LC_CTYPE_MASK, "en_US.UTF-8", (locale_t)0);
    unpacking.folder = ts_listing_new(source->path, &archive_kind);
    if (!unpacking.folder) {
        if (unicode)
            freelocale(unicode);
        return ts_fail_memory(error);
    }
    before = unicode ? uselocale(unicode) : (locale_t)0;
    status = unpack(&unpacking);
    if (unicode) {
        uselocale(before);
        freelocale(unicode);
    }
    if (status != TS_OK) {
        ts_folder_free(unpacking.folder);
        return ts_error_path(error, source->path);
    }
    *folder = unpacking.folder;
    return TS_OK;
}
