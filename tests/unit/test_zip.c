/* Zip files: those that numpy, torch and libarchive wrote, those that make_zip.py broke, and large ones made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>

#include "base/progress.h"
#include "io/folder.h"
#include "io/zip.h"
#include "scratch.h"

#define GOLDEN    "tests/golden/"
#define MALFORMED "tests/malformed/zip/"

static struct ts_error error;

static struct ts_source *open_source(const char *path)
{
    struct ts_source *source;
    if (ts_source_open(path, &source, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    return source;
}

static struct ts_zip *open_zip(const char *path, struct ts_spool *spool)
{
    struct ts_source *source = open_source(path);
    struct ts_zip *zip;
    if (ts_zip_open(source, spool, &zip, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    ts_source_release(source); /* the zip holds it */
    return zip;
}

static struct ts_source *member(struct ts_zip *zip, const char *name)
{
    const struct ts_zip_entry *entry = ts_zip_find(zip, name);
    struct ts_source *source;
    if (!entry)
        fail_msg("%s holds no %s", zip->source->path, name);
    if (ts_zip_member(zip, entry, &source, &error) != TS_OK)
        fail_msg("%s: %s", error.path, error.message);
    return source;
}

static void check_text(struct ts_zip *zip, const char *name, const char *text)
{
    struct ts_source *source = member(zip, name);
    assert_int_equal(source->size, strlen(text));
    assert_memory_equal(source->data, text, strlen(text));
    ts_source_release(source);
}

/* numpy wrote the same arrays stored and deflated: the members are equal, and the stored ones are not copied. */
static void numpy_stored_and_deflated(void **state)
{
    struct ts_spool *spool = ts_spool_new(1 << 20);
    struct ts_zip *stored = open_zip(GOLDEN "numpy/all.npz", NULL);
    struct ts_zip *deflated = open_zip(GOLDEN "numpy/all_compressed.npz", spool);
    struct ts_source *kept;
    (void)state;
    assert_true(stored->count > 3);
    assert_int_equal(stored->count, deflated->count);
    for (size_t i = 0; i < stored->count; i++) {
        struct ts_source *a = member(stored, stored->entries[i].name);
        struct ts_source *b = member(deflated, stored->entries[i].name);
        char path[512];
        assert_int_equal(stored->entries[i].method, 0);
        assert_int_equal(deflated->entries[i].method, 8);
        assert_true(a->data >= stored->source->data &&
                    a->data + a->size <= stored->source->data + stored->source->size);
        assert_int_equal(a->size, b->size);
        assert_memory_equal(a->data, b->data, a->size);
        assert_memory_equal(a->data, "\x93NUMPY", 6);
        snprintf(path, sizeof path, GOLDEN "numpy/all.npz/%s", stored->entries[i].name);
        assert_string_equal(a->path, path);
        ts_source_release(a);
        ts_source_release(b);
    }
    assert_null(ts_zip_find(stored, "no such name"));
    assert_null(ts_zip_find(stored, ""));
    kept = member(deflated, deflated->entries[0].name);
    ts_zip_free(stored);
    ts_zip_free(deflated);
    ts_spool_free(spool);
    assert_memory_equal(kept->data, "\x93NUMPY", 6); /* outlives zip and spool */
    ts_source_release(kept);
}

static void torch_members_are_aligned(void **state)
{
    struct ts_zip *zip = open_zip(GOLDEN "torchfiles/state_dict.pth", NULL);
    struct ts_source *version;
    size_t storages = 0;
    (void)state;
    for (size_t i = 0; i < zip->count; i++) {
        assert_null(zip->entries[i].problem);
        if (strstr(zip->entries[i].name, "/data/") && !strstr(zip->entries[i].name, "/.data/")) {
            assert_int_equal(zip->entries[i].data_offset % 64, 0); /* torch pads local headers to that */
            storages++;
        }
    }
    assert_true(storages > 0);
    version = member(zip, "state_dict/version");
    assert_memory_equal(version->data, "3\n", 2);
    ts_source_release(version);
    ts_zip_free(zip);
}

static void without_spool_only_stored_members_open(void **state)
{
    struct ts_zip *zip = open_zip(GOLDEN "numpy/all_compressed.npz", NULL);
    struct ts_source *source;
    (void)state;
    assert_int_equal(ts_zip_member(zip, &zip->entries[0], &source, &error), TS_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "compressed"));
    ts_zip_free(zip);
}

static void inflating_stops_at_the_spool_limit(void **state)
{
    struct ts_spool *spool = ts_spool_new(100);
    struct ts_zip *zip = open_zip(GOLDEN "numpy/all_compressed.npz", spool);
    struct ts_source *source;
    (void)state;
    assert_int_equal(ts_zip_member(zip, &zip->entries[0], &source, &error), TS_ERR_LIMIT);
    assert_non_null(strstr(error.path, zip->entries[0].name));
    ts_zip_free(zip);
    ts_spool_free(spool);
}

static void is_zip(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        bool is;
    } cases[] = {{"PK\3\4", 4, true}, {"PK\5\6", 4, true}, {"PK\3", 3, false}, {"PK\1\2", 4, false}, {"", 0, false}};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        struct ts_source *source;
        assert_int_equal(ts_source_copy(cases[i].bytes, cases[i].size, "x", &source, &error), TS_OK);
        assert_int_equal(ts_zip_is(source), cases[i].is);
        ts_source_release(source);
    }
}

/* libarchive as the writer: more members than 16 bits count, so the end records are zip64. */
static void write_many(const char *path, unsigned count)
{
    struct archive *writer = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    archive_write_set_format_zip(writer);
    assert_int_equal(archive_write_open_filename(writer, path), ARCHIVE_OK);
    for (unsigned i = 0; i < count; i++) {
        char name[64], text[64];
        int length = snprintf(text, sizeof text, "this is number %u", i);
        snprintf(name, sizeof name, "folder/%u.txt", i);
        archive_entry_clear(entry);
        archive_entry_set_pathname(entry, name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, length);
        if (i % 3)
            archive_write_zip_set_compression_store(writer);
        else
            archive_write_zip_set_compression_deflate(writer);
        assert_int_equal(archive_write_header(writer, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(writer, text, (size_t)length), length);
    }
    archive_entry_free(entry);
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    archive_write_free(writer);
}

static void more_members_than_16_bits(void **state)
{
    enum { COUNT = 70001 };
    struct ts_spool *spool = ts_spool_new(1 << 26);
    struct ts_zip *zip;
    (void)state;
    write_many(scratch_path("many.zip"), COUNT);
    zip = open_zip(scratch_path("many.zip"), spool);
    assert_int_equal(zip->count, COUNT);
    for (unsigned i = 0; i < COUNT; i += 7) {
        char name[64], text[64];
        snprintf(text, sizeof text, "this is number %u", i);
        snprintf(name, sizeof name, "folder/%u.txt", i);
        check_text(zip, name, text);
    }
    check_text(zip, "folder/70000.txt", "this is number 70000");
    ts_zip_free(zip);
    ts_spool_free(spool);
}

static uint8_t *put(uint8_t *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *to++ = (uint8_t)(value >> (8 * i));
    return to;
}

static uint8_t *put_text(uint8_t *to, const char *text)
{
    memcpy(to, text, strlen(text));
    return to + strlen(text);
}

static uint8_t *put_local(uint8_t *to, const char *name, const char *text)
{
    to = put(to, 0x04034b50, 4);
    memset(to, 0, 22); /* version to sizes: nobody is to believe them */
    to = put(put(to + 22, strlen(name), 2), 0, 2);
    return put_text(put_text(to, name), text);
}

static uint8_t *put_entry(uint8_t *to, const char *name, uint64_t size, uint64_t offset, bool wide)
{
    to = put(to, 0x02014b50, 4);
    memset(to, 0, 16); /* version to checksum; method 0 */
    to = put(put(to + 16, wide ? UINT32_MAX : size, 4), wide ? UINT32_MAX : size, 4);
    to = put(put(put(to, strlen(name), 2), wide ? 4 + 28 : 0, 2), 0, 2);
    memset(to, 0, 8);
    to = put_text(put(to + 8, wide ? UINT32_MAX : offset, 4), name);
    if (wide) {
        to = put(put(put(to, 0x5455, 2), 0, 2), 1, 2); /* another field comes first */
        to = put(put(put(put(to, 24, 2), size, 8), size, 8), offset, 8);
    }
    return to;
}

static uint8_t *put_end(uint8_t *to, uint64_t count, uint64_t size, uint64_t offset)
{
    to = put(put(to, 0x06054b50, 4), 0, 4);
    return put(put(put(put(put(to, count, 2), count, 2), size, 4), offset, 4), 0, 2);
}

/* A sparse file: one member at the start, one behind five gigabytes, and the directory behind that. */
static void beyond_four_gigabytes(void **state)
{
    const uint64_t far = (uint64_t)5 << 30;
    uint8_t buffer[1024], *at, *directory;
    int file = open(scratch_path("far.zip"), O_CREAT | O_RDWR, 0666);
    struct ts_zip *zip;
    uint64_t directory_at, end_at;
    (void)state;
    at = put_local(buffer, "near", "abc");
    assert_int_equal(pwrite(file, buffer, (size_t)(at - buffer), 0), at - buffer);
    directory = at = put_local(buffer, "far", "defgh");
    directory_at = far + (uint64_t)(at - buffer);
    at = put_entry(at, "near", 3, 0, true);
    at = put_entry(at, "far", 5, far, true);
    end_at = far + (uint64_t)(at - buffer);
    at = put(put(put(put(at, 0x06064b50, 4), 44, 8), 0, 8), 0, 4); /* versions and disks */
    at = put(put(put(put(at, 2, 8), 2, 8), end_at - directory_at, 8), directory_at, 8);
    at = put(put(put(put(at, 0x07064b50, 4), 0, 4), end_at, 8), 1, 4);
    at = put_end(at, UINT16_MAX, UINT32_MAX, UINT32_MAX);
    assert_true(directory < at);
    if (pwrite(file, buffer, (size_t)(at - buffer), (off_t)far) != at - buffer) {
        close(file);
        skip(); /* no sparse files here */
    }
    close(file);
    zip = open_zip(scratch_path("far.zip"), NULL);
    assert_int_equal(zip->count, 2);
    check_text(zip, "near", "abc");
    check_text(zip, "far", "defgh");
    assert_int_equal(ts_zip_find(zip, "far")->header_offset, far);
    ts_zip_free(zip);
    unlink(scratch_path("far.zip"));
}

static struct ts_zip *zip_of(const uint8_t *bytes, size_t size)
{
    struct ts_source *source;
    struct ts_zip *zip;
    assert_int_equal(ts_source_copy(bytes, size, "made.zip", &source, &error), TS_OK);
    if (ts_zip_open(source, NULL, &zip, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_source_release(source);
    return zip;
}

/* Self-extracting archives: a program, then the archive, whose offsets may count from either. */
static void data_before_and_behind(void **state)
{
    (void)state;
    for (unsigned counts_prefix = 0; counts_prefix < 2; counts_prefix++) {
        uint8_t buffer[1024] = "#!/bin/sh and something\n", *at = buffer + 24, *directory;
        uint64_t shift = counts_prefix ? 0 : 24;
        struct ts_zip *zip;
        at = put_local(at, "a", "first");
        directory = at = put_local(at, "b", "second");
        at = put_entry(at, "a", 5, 24 - shift, false);
        at = put_entry(at, "b", 6, 24 + 36 - shift, false);
        at = put_end(at, 2, (uint64_t)(at - directory), (uint64_t)(directory - buffer) - shift);
        at = put_text(at, "\r\n"); /* and a line break behind it, from a careless download */
        zip = zip_of(buffer, (size_t)(at - buffer));
        assert_int_equal(zip->count, 2);
        check_text(zip, "a", "first");
        check_text(zip, "b", "second");
        ts_zip_free(zip);
    }
}

/* One archive behind the other, of equal size and each with a zip64 record, as torch.distributed.checkpoint leaves
 * them: the last one is the archive, and that something stands before it is told. */
static void archives_one_behind_the_other(void **state)
{
    static const char *const texts[] = {"first", "other"};
    uint8_t buffer[1024], *at = buffer;
    size_t single = 0;
    struct ts_zip *zip;
    (void)state;
    for (int i = 0; i < 2; i++) {
        uint8_t *start = at, *directory = put_local(at, "a", texts[i]), *end;
        end = at = put_entry(directory, "a", 5, 0, false);
        at = put(put(put(put(at, 0x06064b50, 4), 44, 8), 0, 8), 0, 4);
        at = put(put(put(put(at, 1, 8), 1, 8), (uint64_t)(end - directory), 8), (uint64_t)(directory - start), 8);
        at = put(put(put(put(at, 0x07064b50, 4), 0, 4), (uint64_t)(end - start), 8), 1, 4);
        at = put_end(at, 1, (uint64_t)(end - directory), (uint64_t)(directory - start));
        if (i == 0) {
            single = (size_t)(at - buffer);
            zip = zip_of(buffer, single);
            assert_int_equal(zip->before, 0);
            ts_zip_free(zip);
        }
    }
    zip = zip_of(buffer, (size_t)(at - buffer));
    assert_int_equal(zip->count, 1);
    assert_int_equal(zip->before, single);
    check_text(zip, "a", "other");
    ts_zip_free(zip);
}

static void last_of_two_names_wins(void **state)
{
    uint8_t buffer[1024], *at = buffer, *directory;
    struct ts_zip *zip;
    (void)state;
    at = put_local(at, "a", "first");
    directory = at = put_local(at, "a", "second");
    at = put_entry(at, "a", 5, 0, false);
    at = put_entry(at, "a", 6, 36, false);
    at = put_end(at, 2, (uint64_t)(at - directory), (uint64_t)(directory - buffer));
    zip = zip_of(buffer, (size_t)(at - buffer));
    check_text(zip, "a", "second");
    ts_zip_free(zip);
    /* unless it cannot be opened: its size now reaches over the directory */
    put(directory + 46 + 1 + 20, 5000, 4);
    put(directory + 46 + 1 + 24, 5000, 4);
    zip = zip_of(buffer, (size_t)(at - buffer));
    assert_non_null(zip->entries[1].problem);
    check_text(zip, "a", "first");
    ts_zip_free(zip);
}

static void empty_directory(void **state)
{
    uint8_t buffer[22];
    struct ts_zip *zip;
    (void)state;
    put_end(buffer, 0, 0, 0);
    zip = zip_of(buffer, sizeof buffer);
    assert_int_equal(zip->count, 0);
    assert_null(ts_zip_find(zip, "a"));
    ts_zip_free(zip);
}

/* Members of many megabytes are unpacked step by step, and with the same care. */
static void large_members(void **state)
{
    const size_t size = (size_t)40 << 20;
    struct ts_spool *spool = ts_spool_new((uint64_t)1 << 30);
    const char *path = scratch_path("large.zip");
    uint8_t *data = malloc(size);
    struct archive *writer = archive_write_new();
    struct archive_entry *header = archive_entry_new();
    struct ts_source *source;
    struct ts_zip *zip;
    struct ts_zip_entry *entry, right;
    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)((i >> 9) * (i >> 15));
    archive_write_set_format_zip(writer);
    assert_int_equal(archive_write_open_filename(writer, path), ARCHIVE_OK);
    archive_entry_set_pathname(header, "x");
    archive_entry_set_filetype(header, AE_IFREG);
    archive_entry_set_size(header, (la_int64_t)size);
    assert_int_equal(archive_write_header(writer, header), ARCHIVE_OK);
    assert_int_equal(archive_write_data(writer, data, size), (la_ssize_t)size);
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    archive_entry_free(header);
    archive_write_free(writer);

    zip = open_zip(path, spool);
    source = member(zip, "x");
    assert_int_equal(source->size, size);
    assert_memory_equal(source->data, data, size);
    ts_source_release(source);
    entry = &zip->entries[0];
    right = *entry;
    assert_true(entry->packed < size / 2);
    entry->crc32 ^= 1;
    assert_int_equal(ts_zip_member(zip, entry, &source, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "its checksum is wrong"));
    *entry = right;
    entry->size++;
    assert_int_equal(ts_zip_member(zip, entry, &source, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "unpacks to 41943040 bytes, the directory says 41943041"));
    *entry = right;
    entry->size--;
    assert_int_equal(ts_zip_member(zip, entry, &source, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "unpacks to more than the 41943039 bytes"));
    *entry = right;
    entry->packed /= 2;
    assert_int_equal(ts_zip_member(zip, entry, &source, &error), TS_ERR_FORMAT);
    *entry = right;
    entry->data_offset += 7;
    assert_int_equal(ts_zip_member(zip, entry, &source, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "corrupt"));
    *entry = right;
    atomic_store(&ts_cancelled, true);
    assert_int_equal(ts_zip_member(zip, entry, &source, &error), TS_ERR_CANCELLED);
    atomic_store(&ts_cancelled, false);
    source = member(zip, "x"); /* nothing of those is left in the way */
    assert_memory_equal(source->data, data, size);
    ts_source_release(source);
    ts_zip_free(zip);
    ts_spool_free(spool);
    free(data);
}

/* Every file of make_zip.py that opens at all gives its good member, whatever stands beside it; and what is wrong with
 * a member says so. */
static void evil_members_do_not_hide_good_ones(void **state)
{
    DIR *stream = opendir(MALFORMED);
    size_t opened = 0, refused = 0;
    (void)state;
    if (!stream)
        skip();
    for (struct dirent *file; (file = readdir(stream));) {
        char path[512], expected[256] = "";
        struct ts_spool *spool = ts_spool_new(1 << 20);
        struct ts_folder *folder;
        struct ts_source *source, *good;
        FILE *expect;
        bool seen = false;
        float value;
        if (!strstr(file->d_name, ".zip") || strstr(file->d_name, ".expect") || strstr(file->d_name, "nested")) {
            ts_spool_free(spool);
            continue;
        }
        snprintf(path, sizeof path, MALFORMED "%s.expect", file->d_name);
        expect = fopen(path, "r");
        assert_non_null(expect);
        if (fgets(expected, sizeof expected, expect))
            expected[strcspn(expected, "\n")] = '\0';
        fclose(expect);
        snprintf(path, sizeof path, MALFORMED "%s", file->d_name);
        source = open_source(path);
        if (ts_folder_open_zip(source, spool, &folder, &error) != TS_OK) {
            if (!expected[0] || !strstr(error.message, expected))
                fail_msg("%s: \"%s\" lacks \"%s\"", path, error.message, expected);
            refused++;
        } else {
            size_t index = ts_folder_find(folder, "good.safetensors");
            assert_true(index < folder->count);
            if (ts_folder_open_member(folder, index, &good, &error) != TS_OK)
                fail_msg("%s: %s", path, error.message);
            assert_int_equal(good->size, 76);
            memcpy(&value, good->data + 72, 4);
            assert_true(value == 1.0f);
            ts_source_release(good);
            for (size_t i = 0; i < folder->count; i++) {
                if (ts_folder_open_member(folder, i, &good, &error) == TS_OK)
                    ts_source_release(good);
                else if (expected[0] && strstr(error.message, expected))
                    seen = true;
                else
                    fail_msg("%s: %s: \"%s\" lacks \"%s\"", path, folder->members[i].path, error.message, expected);
            }
            if (expected[0] && !seen)
                fail_msg("%s: nothing said \"%s\"", path, expected);
            ts_folder_free(folder);
            opened++;
        }
        ts_source_release(source);
        ts_spool_free(spool);
    }
    closedir(stream);
    assert_true(opened > 20);
    assert_true(refused > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numpy_stored_and_deflated),
        cmocka_unit_test(torch_members_are_aligned),
        cmocka_unit_test(without_spool_only_stored_members_open),
        cmocka_unit_test(inflating_stops_at_the_spool_limit),
        cmocka_unit_test(is_zip),
        cmocka_unit_test(more_members_than_16_bits),
        cmocka_unit_test(beyond_four_gigabytes),
        cmocka_unit_test(data_before_and_behind),
        cmocka_unit_test(archives_one_behind_the_other),
        cmocka_unit_test(last_of_two_names_wins),
        cmocka_unit_test(empty_directory),
        cmocka_unit_test(large_members),
        cmocka_unit_test(evil_members_do_not_hide_good_ones),
    };
    return cmocka_run_group_tests_name("zip", tests, scratch_make, scratch_remove);
}
