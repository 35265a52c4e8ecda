/* Reads the directory of a zip file (APPNOTE.TXT 6.3, sections 4.3 to 4.5) and opens its members.
 *
 * Only the directory at the end of the file is believed about names, sizes and places; a local header is looked at for
 * its signature and for where the data behind it begins. Everything an entry says is checked when the file is opened,
 * so that opening a member can fail only on what the compressed bytes themselves hold. */
#include "io/zip.h"

#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/number.h"
#include "base/progress.h"

#define END_SIGNATURE     0x06054b50u
#define END_SIZE          22u
#define LOCATOR_SIGNATURE 0x07064b50u
#define LOCATOR_SIZE      20u
#define END64_SIGNATURE   0x06064b50u
#define END64_SIZE        56u
#define ENTRY_SIGNATURE   0x02014b50u
#define ENTRY_SIZE        46u
#define LOCAL_SIGNATURE   0x04034b50u
#define LOCAL_SIZE        30u

#define METHOD_STORED   0
#define METHOD_DEFLATED 8
#define FLAG_ENCRYPTED  0x0001u

/* Deflate's shortest code for its longest match is two bits for 258 bytes. */
#define DEFLATE_MAX_RATIO 1032u

/* Members of this size are unpacked in steps. */
#define LARGE ((uint64_t)32 << 20)
#define STEP  ((uint64_t)1 << 20)

#define TOO_LONG  "unpacks to more than the %" PRIu64 " bytes that the directory says"
#define TOO_SHORT "unpacks to %" PRIu64 " bytes, the directory says %" PRIu64
#define CORRUPT   "its compressed data is corrupt"
#define WRONG_SUM "its checksum is wrong: the unpacked data is not what was packed"

struct directory {
    uint64_t start, size; /* in the file */
    uint64_t shift;       /* bytes before the archive: added to every offset it names */
    uint64_t claimed;     /* entries, by the end record */
    bool wide;            /* that came from a zip64 record */
};

/* A local header and its data, and whose they are. */
struct span {
    uint64_t start, end;
    size_t entry;
};

bool ts_zip_is(const struct ts_source *source)
{
    const uint8_t *start = ts_source_at(source, 0, 4);
    return start && (ts_load_le32(start) == LOCAL_SIGNATURE || ts_load_le32(start) == END_SIGNATURE);
}

/* The end record closest to the end whose comment reaches exactly to the end, else the last whose comment fits: some
 * downloads carry a few bytes behind the archive. */
static bool find_end(const struct ts_source *source, uint64_t *position)
{
    const uint64_t reach = END_SIZE + 0xffff;
    uint64_t first = source->size > reach ? source->size - reach : 0;
    bool found = false;
    if (source->size < END_SIZE)
        return false;
    for (uint64_t at = source->size - END_SIZE + 1; at-- > first;) {
        const uint8_t *record = source->data + at;
        uint64_t end;
        if (record[0] != 'P' || ts_load_le32(record) != END_SIGNATURE)
            continue;
        end = at + END_SIZE + ts_load_le16(record + 20);
        if (end == source->size) {
            *position = at;
            return true;
        }
        if (end < source->size && !found) {
            *position = at;
            found = true;
        }
    }
    return found;
}

/* The zip64 end record, which stands before its locator, which stands before the end record. 0: there is none. */
static enum ts_status find_end64(const struct ts_source *source, uint64_t end, uint64_t *position,
                                 struct ts_error *error)
{
    const uint8_t *locator;
    uint64_t before = end - LOCATOR_SIZE, named;
    *position = 0;
    if (end < LOCATOR_SIZE || ts_load_le32(locator = source->data + before) != LOCATOR_SIGNATURE)
        return TS_OK;
    /* Mostly it stands right here, also with something before the archive, when its offset is short of the place or
     * leads into another archive. */
    if (before >= END64_SIZE && ts_load_le32(source->data + before - END64_SIZE) == END64_SIGNATURE) {
        *position = before - END64_SIZE;
        return TS_OK;
    }
    named = ts_load_le64(locator + 8);
    if (ts_span_fits(named, END64_SIZE, before) && ts_load_le32(source->data + named) == END64_SIGNATURE) {
        *position = named;
        return TS_OK;
    }
    return ts_fail(error, TS_ERR_FORMAT, before,
                   "the zip64 locator says the end record is at byte %" PRIu64 ", where there is none", named);
}

static enum ts_status find_directory(const struct ts_source *source, struct directory *directory,
                                     struct ts_error *error)
{
    uint64_t end = 0, end64 = 0, offset, limit;
    const uint8_t *record, *first;
    if (!find_end(source, &end))
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "begins like a zip file, but has no end record in its last %u bytes: it is truncated",
                       END_SIZE + 0xffff);
    TS_TRY(find_end64(source, end, &end64, error));
    record = source->data + end;
    directory->claimed = ts_load_le16(record + 10);
    directory->size = ts_load_le32(record + 12);
    offset = ts_load_le32(record + 16);
    limit = end;
    directory->wide = false;
    if (end64) {
        record = source->data + end64;
        limit = end64;
        if (directory->claimed == UINT16_MAX) {
            directory->claimed = ts_load_le64(record + 32);
            directory->wide = true;
        }
        if (directory->size == UINT32_MAX)
            directory->size = ts_load_le64(record + 40);
        if (offset == UINT32_MAX)
            offset = ts_load_le64(record + 48);
    }
    if (!ts_span_fits(offset, directory->size, limit))
        return ts_fail(error, TS_ERR_FORMAT, end64 ? end64 : end,
                       "the end record says the directory has %" PRIu64 " bytes at byte %" PRIu64 ", but only %" PRIu64
                       " bytes stand before it",
                       directory->size, offset, limit);
    /* The directory ends where the end record begins. What its offset falls short of that is data before the archive,
     * unless the directory does stand at its offset and something lies behind it. */
    directory->shift = limit - directory->size - offset;
    directory->start = offset + directory->shift;
    first = ts_source_at(source, offset, 4);
    if (directory->shift && directory->size >= 4 && first && ts_load_le32(first) == ENTRY_SIGNATURE &&
        ts_load_le32(source->data + directory->start) != ENTRY_SIGNATURE) {
        directory->shift = 0;
        directory->start = offset;
    }
    return TS_OK;
}

/* The size of the entry at `at`, or 0 when it is none or is cut off. */
static uint64_t entry_size(const struct ts_source *source, const struct directory *directory, uint64_t at)
{
    uint64_t left = directory->start + directory->size - at, size;
    const uint8_t *record = source->data + at;
    if (left < ENTRY_SIZE || ts_load_le32(record) != ENTRY_SIGNATURE)
        return 0;
    size = (uint64_t)ENTRY_SIZE + ts_load_le16(record + 28) + ts_load_le16(record + 30) + ts_load_le16(record + 32);
    return size <= left ? size : 0;
}

static enum ts_status count_entries(const struct ts_source *source, const struct directory *directory, size_t *count,
                                    size_t *name_bytes, struct ts_error *error)
{
    uint64_t at = directory->start, end = directory->start + directory->size;
    *count = *name_bytes = 0;
    while (at < end) {
        uint64_t size = entry_size(source, directory, at);
        if (!size)
            return ts_fail(error, TS_ERR_FORMAT, at, "entry %zu of the directory is %s", *count,
                           end - at >= 4 && ts_load_le32(source->data + at) == ENTRY_SIGNATURE
                               ? "longer than the directory"
                               : "no directory entry");
        *name_bytes += ts_load_le16(source->data + at + 28) + 1u;
        ++*count;
        at += size;
    }
    /* Writers without zip64 let the 16-bit count wrap. */
    if (directory->wide ? *count != directory->claimed : (*count & UINT16_MAX) != directory->claimed)
        return ts_fail(error, TS_ERR_FORMAT, directory->start,
                       "the end record counts %" PRIu64 " entries, the directory holds %zu", directory->claimed,
                       *count);
    if (*count > UINT32_MAX / 4)
        return ts_fail(error, TS_ERR_LIMIT, directory->start, "the directory holds %zu entries, which is too many",
                       *count);
    return TS_OK;
}

/* A problem with numbers in it. Without memory the plain words do. */
static const char *problem(struct ts_zip *zip, const char *plain, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static const char *problem(struct ts_zip *zip, const char *plain, const char *format, ...)
{
    const char *copy;
    va_list args;
    va_start(args, format);
    copy = ts_arena_vprintf(&zip->arena, format, args);
    va_end(args);
    return copy ? copy : plain;
}

/* Sizes and the offset that do not fit 32 bits stand in extra field 1, in this order, only those that do not fit. */
static bool widen(struct ts_zip_entry *entry, const uint8_t *extra, size_t left)
{
    uint64_t *wide[] = {&entry->size, &entry->packed, &entry->header_offset};
    size_t next = 0;
    while (left >= 4) {
        unsigned id = ts_load_le16(extra), length = ts_load_le16(extra + 2);
        extra += 4;
        left -= 4;
        if (length > left)
            break;
        if (id == 1) {
            for (; next < 3; next++) {
                if (*wide[next] != UINT32_MAX)
                    continue;
                if (length < 8)
                    return false;
                *wide[next] = ts_load_le64(extra);
                extra += 8;
                length -= 8;
            }
            return true;
        }
        extra += length;
        left -= length;
    }
    return entry->size != UINT32_MAX && entry->packed != UINT32_MAX && entry->header_offset != UINT32_MAX;
}

static const char *method_name(unsigned method)
{
    switch (method) {
    case 1:
        return " (shrink)";
    case 6:
        return " (implode)";
    case 9:
        return " (deflate64)";
    case 12:
        return " (bzip2)";
    case 14:
        return " (lzma)";
    case 93:
        return " (zstd)";
    case 95:
        return " (xz)";
    case 98:
        return " (ppmd)";
    default:
        return "";
    }
}

/* What is wrong with how an entry is packed, or NULL. */
static const char *check_packing(struct ts_zip *zip, const struct ts_zip_entry *entry)
{
    uint64_t most;
    if (entry->flags & FLAG_ENCRYPTED || entry->method == 99) /* 99: the WinZip way of marking AES */
        return "is encrypted";
    if (entry->method == METHOD_STORED && entry->packed != entry->size)
        return problem(zip, "is stored with two different sizes",
                       "is stored without compression, but with %" PRIu64 " bytes for a size of %" PRIu64,
                       entry->packed, entry->size);
    if (entry->method == METHOD_DEFLATED && ts_mul(entry->packed, DEFLATE_MAX_RATIO, &most) && entry->size > most)
        return problem(zip, "claims more than deflate can hold",
                       "claims to unpack %" PRIu64 " bytes into %" PRIu64 ", more than deflate can hold", entry->packed,
                       entry->size);
    if (entry->method != METHOD_STORED && entry->method != METHOD_DEFLATED)
        return problem(zip, "uses a compression method that is not supported",
                       "uses compression method %u%s, which is not supported", entry->method,
                       method_name(entry->method));
    return NULL;
}

/* Finds the data through the local header; fills in span. */
static const char *locate(struct ts_zip *zip, const struct directory *directory, struct ts_zip_entry *entry,
                          struct span *span)
{
    uint64_t start, data;
    const uint8_t *local;
    if (!ts_add(entry->header_offset, directory->shift, &start) || !ts_span_fits(start, LOCAL_SIZE, directory->start))
        return problem(zip, "lies outside the file", "its header at byte %" PRIu64 " lies outside the file",
                       entry->header_offset);
    entry->header_offset = start;
    local = zip->source->data + start;
    if (ts_load_le32(local) != LOCAL_SIGNATURE)
        return problem(zip, "has no header", "has no header at byte %" PRIu64 ", where the directory says", start);
    data = start + LOCAL_SIZE + ts_load_le16(local + 26) + ts_load_le16(local + 28);
    if (!ts_span_fits(data, entry->packed, directory->start))
        return problem(zip, "lies outside the file",
                       "its %" PRIu64 " bytes at byte %" PRIu64 " do not end before the directory at byte %" PRIu64,
                       entry->packed, data, directory->start);
    entry->data_offset = data;
    span->start = start;
    span->end = data + entry->packed;
    return NULL;
}

static const char *check_link(struct ts_zip *zip, const struct ts_zip_entry *entry, const uint8_t *record)
{
    unsigned host = record[5], mode = ts_load_le32(record + 38) >> 16;
    if ((host != 3 && host != 19) || !S_ISLNK(mode)) /* Unix and Darwin store the mode there */
        return NULL;
    if (entry->method == METHOD_STORED && entry->size <= 200)
        return problem(zip, "is a symbolic link", "is a symbolic link to %.*s", (int)entry->size,
                       (const char *)zip->source->data + entry->data_offset);
    return "is a symbolic link";
}

static void read_entry(struct ts_zip *zip, const struct directory *directory, const uint8_t *record, char *name,
                       struct ts_zip_entry *entry, struct span *span)
{
    size_t name_size = ts_load_le16(record + 28), extra_size = ts_load_le16(record + 30);
    bool complete, nul = false;
    const char *why;
    memcpy(name, record + ENTRY_SIZE, name_size);
    name[name_size] = '\0';
    for (char *at = name; (at = memchr(at, '\0', (size_t)(name + name_size - at))); nul = true)
        *at = '?';
    entry->name = name;
    entry->flags = ts_load_le16(record + 8);
    entry->method = ts_load_le16(record + 10);
    entry->crc32 = ts_load_le32(record + 16);
    entry->packed = ts_load_le32(record + 20);
    entry->size = ts_load_le32(record + 24);
    entry->header_offset = ts_load_le32(record + 42);
    entry->is_folder = name_size && name[name_size - 1] == '/';
    complete = widen(entry, record + ENTRY_SIZE + name_size, extra_size);
    /* The span is found whatever else is wrong, so that what overlaps is seen. */
    why = complete ? locate(zip, directory, entry, span) : "lacks the zip64 field that its sizes are to stand in";
    if (!why)
        why = check_packing(zip, entry);
    if (!why)
        why = check_link(zip, entry, record);
    entry->problem = nul ? "has a NUL character in its name" : why;
}

static int compare_ends(const void *one, const void *other)
{
    const struct span *a = one, *b = other;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    if (a->start != b->start) /* the shorter one */
        return a->start > b->start ? -1 : 1;
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

/* No byte belongs to two members. Walking the spans by where they end and keeping each that begins after the last one
 * kept leaves the most members: a hostile one that spans the file is refused, not those that it covers. */
static void check_overlaps(struct ts_zip *zip, struct span *spans)
{
    uint64_t end = 0;
    size_t count = 0;
    bool sorted = true;
    for (size_t i = 0; i < zip->count; i++) {
        if (spans[i].end == 0) /* not located */
            continue;
        sorted = sorted && spans[i].start >= end;
        end = spans[i].end;
        spans[count] = spans[i];
        spans[count++].entry = i;
    }
    if (sorted)
        return;
    qsort(spans, count, sizeof *spans, compare_ends);
    end = 0;
    for (size_t i = 0; i < count; i++) {
        struct ts_zip_entry *entry = &zip->entries[spans[i].entry];
        if (spans[i].start >= end)
            end = spans[i].end;
        else if (!entry->problem)
            entry->problem = "overlaps another member, as in a decompression bomb";
    }
}

static uint64_t hash_name(const struct ts_zip *zip, const char *name)
{
    /* Seeded with an address, so that a file cannot bring names that collide. */
    return XXH3_64bits_withSeed(name, strlen(name), (uint64_t)(uintptr_t)zip->entries);
}

/* The slot of the entry with that name, or the free one where it would go. */
static uint32_t *find_slot(const struct ts_zip *zip, const char *name)
{
    size_t mask = zip->table_size - 1, slot = (size_t)hash_name(zip, name) & mask;
    while (zip->by_name[slot] && strcmp(zip->entries[zip->by_name[slot] - 1].name, name) != 0)
        slot = (slot + 1) & mask;
    return &zip->by_name[slot];
}

static enum ts_status index_names(struct ts_zip *zip, struct ts_error *error)
{
    size_t size = 16;
    while (size < 2 * zip->count)
        size *= 2;
    zip->by_name = ts_arena_array(&zip->arena, size, sizeof *zip->by_name);
    if (!zip->by_name)
        return ts_fail_memory(error);
    zip->table_size = size;
    for (size_t i = 0; i < zip->count; i++) {
        uint32_t *slot = find_slot(zip, zip->entries[i].name);
        if (!*slot || !zip->entries[i].problem || zip->entries[*slot - 1].problem)
            *slot = (uint32_t)(i + 1);
    }
    return TS_OK;
}

static enum ts_status read_directory(struct ts_zip *zip, struct ts_error *error)
{
    struct directory directory = {0};
    size_t count, name_bytes;
    uint64_t at;
    char *names;
    struct span *spans;
    TS_TRY(find_directory(zip->source, &directory, error));
    zip->before = ts_zip_is(zip->source) ? directory.shift : 0;
    TS_TRY(count_entries(zip->source, &directory, &count, &name_bytes, error));
    zip->entries = ts_arena_array(&zip->arena, count, sizeof *zip->entries);
    names = ts_arena_alloc(&zip->arena, name_bytes);
    spans = calloc(count ? count : 1, sizeof *spans);
    if (!zip->entries || !names || !spans) {
        free(spans);
        return ts_fail_memory(error);
    }
    zip->count = count;
    at = directory.start;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = zip->source->data + at;
        read_entry(zip, &directory, record, names, &zip->entries[i], &spans[i]);
        names += ts_load_le16(record + 28) + 1u;
        at += entry_size(zip->source, &directory, at);
    }
    check_overlaps(zip, spans);
    free(spans);
    return index_names(zip, error);
}

enum ts_status ts_zip_open(struct ts_source *source, struct ts_spool *spool, struct ts_zip **zip,
                           struct ts_error *error)
{
    struct ts_zip *opened = calloc(1, sizeof *opened);
    enum ts_status status;
    if (!opened)
        return ts_fail_memory(error);
    /* An entry of at least 46 bytes costs its struct, its name, two slots of the table and perhaps a problem.
     */
    ts_arena_init(&opened->arena, (size_t)16 * (size_t)source->size + ((size_t)1 << 20));
    opened->source = ts_source_retain(source);
    opened->spool = spool;
    status = read_directory(opened, error);
    if (status != TS_OK) {
        ts_zip_free(opened);
        return ts_error_path(error, source->path);
    }
    *zip = opened;
    return TS_OK;
}

void ts_zip_free(struct ts_zip *zip)
{
    if (!zip)
        return;
    ts_source_release(zip->source);
    ts_arena_release(&zip->arena);
    free(zip);
}

const struct ts_zip_entry *ts_zip_find(const struct ts_zip *zip, const char *name)
{
    uint32_t slot = *find_slot(zip, name);
    return slot ? &zip->entries[slot - 1] : NULL;
}

static enum ts_status inflate(const struct ts_zip *zip, const struct ts_zip_entry *entry, uint8_t *data,
                              struct ts_error *error)
{
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    enum libdeflate_result result;
    size_t used = 0, made = 0;
    if (!decompressor)
        return ts_fail_memory(error);
    result = libdeflate_deflate_decompress_ex(decompressor, zip->source->data + entry->data_offset,
                                              (size_t)entry->packed, data, (size_t)entry->size, &used, &made);
    libdeflate_free_decompressor(decompressor);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
        return ts_fail(error, TS_ERR_FORMAT, entry->data_offset, TOO_LONG, entry->size);
    if (result != LIBDEFLATE_SUCCESS)
        return ts_fail(error, TS_ERR_FORMAT, entry->data_offset, CORRUPT);
    if (made != entry->size)
        return ts_fail(error, TS_ERR_FORMAT, entry->data_offset, TOO_SHORT, (uint64_t)made, entry->size);
    if (libdeflate_crc32(0, data, made) != entry->crc32)
        return ts_fail(error, TS_ERR_FORMAT, entry->data_offset, WRONG_SUM);
    return TS_OK;
}

/* Deflated bytes as a gzip file: a head, what is in the archive, and an end. */
struct packed {
    const struct ts_source *source;
    uint64_t at, left;
    uint8_t head[10], end[8];
    enum { PACKED_HEAD, PACKED_DATA, PACKED_DONE } next;
};

static la_ssize_t read_packed(struct archive *reader, void *context, const void **data)
{
    struct packed *packed = context;
    uint64_t now = packed->left < STEP ? packed->left : STEP;
    (void)reader;
    if (packed->next == PACKED_HEAD) {
        packed->next = PACKED_DATA;
        *data = packed->head;
        return (la_ssize_t)sizeof packed->head;
    }
    if (packed->next == PACKED_DATA && now) {
        *data = packed->source->data + packed->at;
        /* the step before the last: of the last one the reader may still hold the end */
        ts_source_forget(packed->source, packed->at > 2 * STEP ? packed->at - 2 * STEP : 0, STEP);
        packed->at += now;
        packed->left -= now;
        return (la_ssize_t)now;
    }
    *data = packed->end;
    if (packed->next == PACKED_DONE)
        return 0;
    packed->next = PACKED_DONE;
    return (la_ssize_t)sizeof packed->end;
}

/* The reader stands before the unpacked bytes. */
static enum ts_status inflate_steps(struct archive *reader, const struct ts_zip_entry *entry, uint8_t *data,
                                    struct ts_error *error)
{
    uint64_t made = 0;
    uint32_t sum = libdeflate_crc32(0, NULL, 0);
    uint8_t more;
    while (made < entry->size) {
        uint64_t now = entry->size - made < STEP ? entry->size - made : STEP;
        la_ssize_t got = archive_read_data(reader, data + made, (size_t)now);
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        if (got < 0)
            return ts_fail(error, TS_ERR_FORMAT, entry->data_offset, CORRUPT);
        if (got == 0)
            return ts_fail(error, TS_ERR_FORMAT, entry->data_offset, TOO_SHORT, made, entry->size);
        sum = libdeflate_crc32(sum, data + made, (size_t)got);
        ts_mapped_forget(data + made, (uint64_t)got);
        made += (uint64_t)got;
    }
    if (archive_read_data(reader, &more, 1) > 0)
        return ts_fail(error, TS_ERR_FORMAT, entry->data_offset, TOO_LONG, entry->size);
    if (sum != entry->crc32)
        return ts_fail(error, TS_ERR_FORMAT, entry->data_offset, WRONG_SUM);
    return TS_OK;
}

/* Step by step, so that neither what is packed nor what is unpacked stays in memory, and whoever waits can stop it:
 * libdeflate, which is faster, takes all at once. */
static enum ts_status inflate_large(const struct ts_zip *zip, const struct ts_zip_entry *entry, uint8_t *data,
                                    struct ts_error *error)
{
    struct packed packed = {.source = zip->source,
                            .at = entry->data_offset,
                            .left = entry->packed,
                            .head = {0x1f, 0x8b, METHOD_DEFLATED, [9] = 255}};
    struct archive *reader = archive_read_new();
    struct archive_entry *unpacked;
    enum ts_status status;
    for (unsigned i = 0; i < 4; i++) {
        packed.end[i] = (uint8_t)(entry->crc32 >> 8 * i);
        packed.end[4 + i] = (uint8_t)(entry->size >> 8 * i);
    }
    if (!reader)
        return ts_fail_memory(error);
    archive_read_support_filter_gzip(reader);
    archive_read_support_format_raw(reader);
    if (archive_read_open(reader, &packed, NULL, read_packed, NULL) != ARCHIVE_OK ||
        archive_read_next_header(reader, &unpacked) != ARCHIVE_OK)
        status = ts_fail(error, TS_ERR_FORMAT, entry->data_offset, CORRUPT);
    else
        status = inflate_steps(reader, entry, data, error);
    archive_read_free(reader);
    return status;
}

static enum ts_status open_member(struct ts_zip *zip, const struct ts_zip_entry *entry, const char *path,
                                  struct ts_source **source, struct ts_error *error)
{
    enum ts_status status;
    uint8_t *data;
    if (entry->problem)
        return ts_fail(error,
                       entry->flags & FLAG_ENCRYPTED ||
                               (entry->method != METHOD_STORED && entry->method != METHOD_DEFLATED)
                           ? TS_ERR_UNSUPPORTED
                           : TS_ERR_FORMAT,
                       entry->header_offset, "%s", entry->problem);
    if (entry->method == METHOD_STORED)
        return ts_source_slice(zip->source, entry->data_offset, entry->size, path, source, error);
    if (!zip->spool)
        return ts_fail(error, TS_ERR_UNSUPPORTED, entry->data_offset,
                       "is compressed, and there is no temporary space to unpack it");
    TS_TRY(ts_spool_reserve(zip->spool, entry->size, &data, error));
    status = (entry->size < LARGE && entry->packed < LARGE ? inflate : inflate_large)(zip, entry, data, error);
    if (status == TS_OK)
        status = ts_spool_source(zip->spool, data, entry->size, path, source, error);
    if (status != TS_OK)
        ts_spool_unreserve(zip->spool, data, entry->size);
    return status;
}

enum ts_status ts_zip_member(struct ts_zip *zip, const struct ts_zip_entry *entry, struct ts_source **source,
                             struct ts_error *error)
{
    size_t size = strlen(zip->source->path) + 1 + strlen(entry->name) + 1;
    char *path = malloc(size);
    enum ts_status status;
    if (!path)
        return ts_fail_memory(error);
    snprintf(path, size, "%s/%s", zip->source->path, entry->name);
    status = open_member(zip, entry, path, source, error);
    if (status != TS_OK)
        ts_error_path(error, path);
    free(path);
    return status;
}
