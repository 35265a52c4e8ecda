/* Folders on disk, in zip files and in archives: what is listed, in which order, what opens and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>
#include <dirent.h>
#include <locale.h>

#include "base/progress.h"
#include "io/folder.h"
#include "scratch.h"

#define GOLDEN    "tests/golden/archives/"
#define MALFORMED "tests/malformed/archive/"
#define MIB       ((size_t)1 << 20)

static struct ts_error error;

static struct ts_folder *open_disk(const char *path, bool scan, bool follow_links)
{
    struct ts_folder *folder;
    if (ts_folder_open_disk(path, scan, follow_links, &folder, &error) != TS_OK)
        fail_msg("%s: %s", error.path, error.message);
    return folder;
}

/* The paths of all members with '|' between, a '!' before those with a problem. */
static const char *listed(const struct ts_folder *folder)
{
    static char text[65536];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < folder->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s", i ? "|" : "",
                                 folder->members[i].problem ? "!" : "", folder->members[i].path);
    return text;
}

static void check_text(struct ts_folder *folder, const char *path, const char *text)
{
    size_t index = ts_folder_find(folder, path);
    struct ts_source *source;
    if (index == SIZE_MAX)
        fail_msg("%s holds no %s", folder->path, path);
    assert_string_equal(folder->members[index].path, path);
    if (ts_folder_open_member(folder, index, &source, &error) != TS_OK)
        fail_msg("%s: %s", error.path, error.message);
    assert_int_equal(source->size, strlen(text));
    assert_int_equal(folder->members[index].size, strlen(text));
    assert_memory_equal(source->data, text, strlen(text));
    ts_source_release(source);
}

static void check_problem(struct ts_folder *folder, const char *path, const char *problem)
{
    size_t index = ts_folder_find(folder, path);
    struct ts_source *source;
    if (index == SIZE_MAX)
        fail_msg("%s holds no %s", folder->path, path);
    assert_int_not_equal(ts_folder_open_member(folder, index, &source, &error), TS_OK);
    if (!strstr(error.message, problem))
        fail_msg("%s: \"%s\" lacks \"%s\"", path, error.message, problem);
    assert_non_null(strstr(error.path, path));
}

static void disk_lists_in_natural_order(void **state)
{
    struct ts_folder *folder;
    (void)state;
    scratch_text("order/layer10.txt", "ten");
    scratch_text("order/layer9.txt", "nine");
    scratch_text("order/layer9/b.txt", "below nine");
    scratch_text("order/layer9/a.txt", "also");
    scratch_text("order/layer10/x/y.txt", "deep");
    scratch_text("order/layer1.txt", "");
    scratch_text("order/.git/config", "hidden");
    scratch_text("order/.hidden", "hidden");
    scratch_text("order/__MACOSX/._a", "junk");
    folder = open_disk(scratch_path("order"), true, false);
    assert_string_equal(listed(folder), "layer1.txt|layer9/a.txt|layer9/b.txt|layer9.txt|layer10/x/y.txt|layer10.txt");
    check_text(folder, "layer10/x/y.txt", "deep");
    check_text(folder, "layer1.txt", "");
    assert_int_equal(ts_folder_find(folder, "layer2.txt"), SIZE_MAX);
    ts_folder_free(folder);
}

static void disk_shows_paths_as_given(void **state)
{
    struct ts_folder *folder;
    struct ts_source *source;
    char *before = getcwd(NULL, 0);
    (void)state;
    scratch_text("given/a.txt", "a");
    assert_int_equal(chdir(scratch_path("given")), 0);
    folder = open_disk(".", true, false);
    assert_int_equal(ts_folder_open_member(folder, 0, &source, &error), TS_OK);
    assert_string_equal(source->path, "a.txt");
    ts_source_release(source);
    ts_folder_free(folder);
    folder = open_disk("../given/", true, false);
    assert_int_equal(ts_folder_open_member(folder, 0, &source, &error), TS_OK);
    assert_string_equal(source->path, "../given/a.txt");
    ts_source_release(source);
    ts_folder_free(folder);
    assert_int_equal(chdir(before), 0);
    free(before);
}

static void disk_links(void **state)
{
    struct ts_folder *folder;
    (void)state;
    scratch_text("outside.txt", "outside");
    scratch_text("beyond/b.txt", "beyond");
    scratch_text("links/real.txt", "real");
    scratch_text("links/folder/f.txt", "in folder");
    scratch_link("links/good", "real.txt");
    scratch_link("links/good_folder", "folder");
    scratch_link("links/leaves", "../outside.txt");
    scratch_link("links/leaves_absolute", "/etc/passwd");
    scratch_link("links/leaves_folder", "../beyond");
    scratch_link("links/broken", "nowhere");
    scratch_link("links/itself", "itself");
    scratch_link("links/folder/up", "..");
    scratch_text("links_prefix/x.txt", "x"); /* a name that begins like the folder's is not inside it */
    scratch_link("links/leaves_prefix", "../links_prefix/x.txt");

    folder = open_disk(scratch_path("links"), true, false);
    assert_string_equal(listed(folder),
                        "!broken|folder/f.txt|!folder/up|good|good_folder/f.txt|!good_folder/up|!itself|"
                        "!leaves|!leaves_absolute|!leaves_folder|!leaves_prefix|real.txt");
    check_text(folder, "good", "real");
    check_text(folder, "good_folder/f.txt", "in folder");
    check_problem(folder, "leaves", "outside the folder; follow it with --follow-links");
    check_problem(folder, "broken", "is a symbolic link to nowhere, which does not exist");
    check_problem(folder, "folder/up", "is a symbolic link to a folder around it");
    check_problem(folder, "itself", "is a symbolic link to itself");
    ts_folder_free(folder);

    folder = open_disk(scratch_path("links"), true, true);
    check_text(folder, "leaves", "outside");
    check_text(folder, "leaves_folder/b.txt", "beyond");
    check_problem(folder, "folder/up", "is a symbolic link to a folder around it");
    ts_folder_free(folder);

    /* named by a file inside, not listed */
    folder = open_disk(scratch_path("links"), false, false);
    struct ts_source *source;
    assert_int_equal(folder->count, 0);
    assert_int_equal(ts_folder_open_beside(folder, "x.json", "leaves", &source, &error), TS_ERR_IO);
    assert_non_null(strstr(error.message, "outside the folder"));
    assert_int_equal(ts_folder_open_beside(folder, "x.json", "good", &source, &error), TS_OK);
    assert_int_equal(source->size, 4);
    ts_source_release(source);
    ts_folder_free(folder);
}

static void disk_odd_things(void **state)
{
    struct ts_folder *folder;
    char deep[512] = "odd";
    (void)state;
    scratch_text("odd/file", "file");
    assert_int_equal(mkfifo(scratch_path("odd/pipe"), 0666), 0);
    for (unsigned i = 0; i < 40; i++)
        strcat(deep, "/d");
    strcat(deep, "/x.txt");
    scratch_text(deep, "too deep");
    folder = open_disk(scratch_path("odd"), true, false);
    assert_int_equal(folder->count, 3);
    check_problem(folder, "pipe", "is a named pipe, not a file");
    assert_non_null(strstr(folder->members[0].problem, "more than 32 folders deep"));
    check_text(folder, "file", "file");
    ts_folder_free(folder);

    if (geteuid() != 0) { /* root may read everything */
        scratch_text("closed/shut/x", "x");
        scratch_text("closed/open", "open");
        chmod(scratch_path("closed/shut"), 0);
        folder = open_disk(scratch_path("closed"), true, false);
        assert_string_equal(listed(folder), "open|!shut");
        check_problem(folder, "shut", "cannot open the folder");
        ts_folder_free(folder);
        chmod(scratch_path("closed/shut"), 0777);
    }
    assert_int_equal(ts_folder_open_disk(scratch_path("odd/file"), true, false, &folder, &error), TS_ERR_IO);
    assert_non_null(strstr(error.message, "is not a folder"));
    assert_int_equal(ts_folder_open_disk(scratch_path("nowhere"), true, false, &folder, &error), TS_ERR_IO);
    assert_string_equal(error.path, scratch_path("nowhere"));
}

/* A snapshot of the Hugging Face cache is links into the repository's blobs. */
static void disk_snapshot_of_the_hub(void **state)
{
    struct ts_folder *folder;
    struct ts_source *source;
    (void)state;
    scratch_text("hub/models--o--n/blobs/123", "weights");
    scratch_text("hub/models--o--other/blobs/9", "not ours");
    scratch_text("hub/models--o--n/refs/main", "abc");
    scratch_link("hub/models--o--n/snapshots/abc/model.bin", "../../blobs/123");
    scratch_link("hub/models--o--n/snapshots/abc/onnx/model.bin", "../../../blobs/123");
    scratch_link("hub/models--o--n/snapshots/abc/thief.bin", "../../../models--o--other/blobs/9");
    folder = open_disk(scratch_path("hub/models--o--n/snapshots/abc"), true, false);
    assert_string_equal(listed(folder), "model.bin|onnx/model.bin|!thief.bin");
    check_text(folder, "model.bin", "weights");
    ts_folder_free(folder);
    folder = open_disk(scratch_path("hub/models--o--n/snapshots/abc/onnx"), false, false);
    assert_int_equal(ts_folder_open_beside(folder, "x", "model.bin", &source, &error), TS_OK);
    ts_source_release(source);
    ts_folder_free(folder);
    /* the repository as a whole: its blobs are not listed beside what links to them */
    folder = open_disk(scratch_path("hub/models--o--n"), true, false);
    assert_string_equal(listed(folder),
                        "snapshots/abc/model.bin|snapshots/abc/onnx/model.bin|!snapshots/abc/thief.bin");
    ts_folder_free(folder);
    /* the same links outside the cache are links that leave */
    scratch_text("blobs/123", "weights");
    scratch_link("plain/snapshots/abc/model.bin", "../../../blobs/123");
    folder = open_disk(scratch_path("plain/snapshots/abc"), true, false);
    assert_string_equal(listed(folder), "!model.bin");
    ts_folder_free(folder);
}

static void beside(void **state)
{
    static const char *const refused[] = {"",         "/etc/passwd", "../a.txt", "b/../../a.txt", "b//c.txt", "b/",
                                          "C:/a.txt", "b\\c.txt",    "..",       "b/..",          "/"};
    struct ts_folder *folder;
    struct ts_source *source;
    (void)state;
    scratch_text("beside/a.txt", "outer a");
    scratch_text("beside/in/a.txt", "inner a");
    scratch_text("beside/in/b/c.txt", "c");
    for (unsigned scan = 0; scan < 2; scan++) {
        folder = open_disk(scratch_path("beside"), scan, false);
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
            assert_int_equal(ts_folder_open_beside(folder, "in/x.json", refused[i], &source, &error), TS_ERR_FORMAT);
            assert_non_null(strstr(error.message, "not a plain path"));
            assert_non_null(strstr(error.path, "in/x.json"));
        }
        assert_int_equal(ts_folder_open_beside(folder, "in/x.json", "a.txt", &source, &error), TS_OK);
        assert_memory_equal(source->data, "inner a", 7);
        ts_source_release(source);
        assert_int_equal(ts_folder_open_beside(folder, "in/x.json", "./b/c.txt", &source, &error), TS_OK);
        assert_memory_equal(source->data, "c", 1);
        ts_source_release(source);
        assert_int_equal(ts_folder_open_beside(folder, "x.json", "b/c.txt", &source, &error), TS_ERR_IO);
        assert_string_equal(error.message, "no such file");
        assert_string_equal(error.path, scratch_path("beside/b/c.txt"));
        if (scan) {
            assert_true(folder->members[ts_folder_find(folder, "in/a.txt")].taken);
            assert_true(folder->members[ts_folder_find(folder, "in/b/c.txt")].taken);
            assert_false(folder->members[ts_folder_find(folder, "a.txt")].taken);
        }
        ts_folder_free(folder);
    }
}

static void interrupted(void **state)
{
    struct ts_spool *spool = ts_spool_new(MIB);
    struct ts_folder *folder;
    struct ts_source *source;
    (void)state;
    assert_int_equal(ts_source_open(GOLDEN "model1_tp8.tar.gz", &source, &error), TS_OK);
    atomic_store(&ts_cancelled, true);
    assert_int_equal(ts_folder_open_disk("tests", true, false, &folder, &error), TS_ERR_CANCELLED);
    assert_int_equal(ts_folder_open_archive(source, spool, &folder, &error), TS_ERR_CANCELLED);
    atomic_store(&ts_cancelled, false);
    ts_source_release(source);
    ts_spool_free(spool);
}

static struct ts_folder *open_archive(const char *path, struct ts_spool *spool)
{
    struct ts_folder *folder;
    struct ts_source *source;
    assert_int_equal(ts_source_open(path, &source, &error), TS_OK);
    assert_true(ts_folder_is_archive(source));
    if (ts_folder_open_archive(source, spool, &folder, &error) != TS_OK)
        fail_msg("%s: %s", error.path, error.message);
    ts_source_release(source);
    return folder;
}

/* The same dump packed by zip and by tar. */
static void zip_and_tar_of_one_folder(void **state)
{
    struct ts_spool *spool = ts_spool_new(MIB);
    struct ts_folder *tar = open_archive(GOLDEN "model1_tp8.tar.gz", spool), *zip;
    struct ts_source *source;
    (void)state;
    assert_int_equal(ts_source_open(GOLDEN "model1_tp8.zip", &source, &error), TS_OK);
    assert_false(ts_folder_is_archive(source));
    assert_int_equal(ts_folder_open_zip(source, spool, &zip, &error), TS_OK);
    ts_source_release(source);
    assert_int_equal(tar->count, 26);
    assert_int_equal(zip->count, 26);
    for (size_t i = 0; i < zip->count; i++) {
        struct ts_source *a, *b, *again;
        size_t index = ts_folder_find(tar, zip->members[i].path);
        assert_true(index < tar->count);
        assert_int_equal(ts_folder_open_member(zip, i, &a, &error), TS_OK);
        assert_int_equal(ts_folder_open_member(tar, index, &b, &error), TS_OK);
        assert_int_equal(a->size, b->size);
        assert_int_equal(a->size, zip->members[i].size);
        assert_int_equal(b->size, tar->members[index].size);
        assert_memory_equal(a->data, b->data, a->size);
        assert_int_equal(ts_folder_open_member(zip, i, &again, &error), TS_OK);
        assert_ptr_equal(a->data, again->data); /* not inflated a second time */
        ts_source_release(a);
        ts_source_release(b);
        ts_source_release(again);
    }
    ts_folder_free(zip);
    ts_folder_free(tar);
    ts_spool_free(spool);
}

enum packing { TAR, TAR_GZ, TAR_BZ2, TAR_XZ, TAR_ZST, TAR_LZ4, SEVEN_ZIP };

static struct archive *new_writer(enum packing packing)
{
    struct archive *writer = archive_write_new();
    if (packing == SEVEN_ZIP)
        archive_write_set_format_7zip(writer);
    else
        archive_write_set_format_pax_restricted(writer);
    switch (packing) {
    case TAR_GZ:
        archive_write_add_filter_gzip(writer);
        break;
    case TAR_BZ2:
        archive_write_add_filter_bzip2(writer);
        break;
    case TAR_XZ:
        archive_write_add_filter_xz(writer);
        break;
    case TAR_ZST:
        archive_write_add_filter_zstd(writer);
        break;
    case TAR_LZ4:
        archive_write_add_filter_lz4(writer);
        break;
    default:
        break;
    }
    return writer;
}

static void write_member(struct archive *writer, const char *name, const void *data, size_t size)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname_utf8(entry, name);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (la_int64_t)size);
    assert_true(archive_write_header(writer, entry) >= ARCHIVE_WARN);
    if (size)
        assert_int_equal(archive_write_data(writer, data, size), (la_ssize_t)size);
    archive_entry_free(entry);
}

static void every_packing(void **state)
{
    static const char *const names[] = {"p.tar", "p.tar.gz", "p.tar.bz2", "p.tar.xz", "p.tar.zst", "p.tar.lz4", "p.7z"};
    size_t size = 5 * MIB + 123;
    uint8_t *large = malloc(size);
    (void)state;
    for (size_t i = 0; i < size; i++)
        large[i] = (uint8_t)((i * 2654435761u) >> (i / MIB));
    for (enum packing packing = TAR; packing <= SEVEN_ZIP; packing++) {
        bool unicode = setlocale(LC_CTYPE, "C.UTF-8") || setlocale(LC_CTYPE, "en_US.UTF-8"); /* for the writer */
        struct archive *writer = new_writer(packing);
        struct ts_spool *spool = ts_spool_new(64 * MIB);
        struct ts_folder *folder;
        struct ts_source *source;
        assert_int_equal(archive_write_open_filename(writer, scratch_path(names[packing])), ARCHIVE_OK);
        write_member(writer, "./z/first.txt", "first", 5);
        write_member(writer, "large.bin", large, size);
        write_member(writer, "empty", "", 0);
        if (unicode)
            write_member(writer, "f\xc3\xbcnf.txt", "five", 4);
        assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
        archive_write_free(writer);
        setlocale(LC_CTYPE, "C"); /* reading must not depend on it */

        folder = open_archive(scratch_path(names[packing]), spool);
        ts_spool_free(spool);
        assert_int_equal(folder->count, unicode ? 4 : 3);
        check_text(folder, "z/first.txt", "first");
        check_text(folder, "empty", "");
        if (packing != SEVEN_ZIP) /* whose writer puts empty files last */
            assert_string_equal(folder->members[0].path, "z/first.txt");
        if (unicode)
            check_text(folder, "f\xc3\xbcnf.txt", "five");
        assert_int_equal(ts_folder_open_member(folder, ts_folder_find(folder, "large.bin"), &source, &error), TS_OK);
        assert_int_equal(source->size, size);
        assert_memory_equal(source->data, large, size);
        assert_string_equal(ts_source_name(source), "large.bin");
        ts_folder_free(folder);
        assert_memory_equal(source->data, large, size); /* outlives the folder */
        ts_source_release(source);
    }
    free(large);
}

/* Members of a plain tar file are slices of it: nothing goes through the spool. */
static void plain_tar_is_not_copied(void **state)
{
    struct archive *writer = new_writer(TAR);
    struct ts_spool *spool = ts_spool_new(0);
    struct ts_folder *folder;
    struct ts_source *file, *source;
    (void)state;
    assert_int_equal(archive_write_open_filename(writer, scratch_path("plain.tar")), ARCHIVE_OK);
    write_member(writer, "a", "some bytes", 10);
    write_member(writer, "b", "", 0);
    write_member(writer, "c", "others", 6);
    archive_write_close(writer);
    archive_write_free(writer);
    assert_int_equal(ts_source_open(scratch_path("plain.tar"), &file, &error), TS_OK);
    assert_int_equal(ts_folder_open_archive(file, spool, &folder, &error), TS_OK);
    assert_string_equal(listed(folder), "a|b|c");
    check_text(folder, "c", "others");
    assert_int_equal(ts_folder_open_member(folder, 0, &source, &error), TS_OK);
    assert_true(source->data >= file->data && source->data + source->size <= file->data + file->size);
    ts_source_release(source);
    ts_folder_free(folder);
    ts_source_release(file);
    ts_spool_free(spool);
}

static void bomb_stops_at_the_limit(void **state)
{
    static const enum packing packings[] = {TAR_GZ, TAR_ZST, TAR_XZ};
    uint8_t *zeros = calloc(20, MIB);
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct archive *writer = new_writer(packings[i]);
        struct ts_spool *spool = ts_spool_new(2 * MIB);
        struct ts_folder *folder;
        assert_int_equal(archive_write_open_filename(writer, scratch_path("bomb")), ARCHIVE_OK);
        write_member(writer, "good", "good", 4);
        write_member(writer, "bomb", zeros, 20 * MIB);
        write_member(writer, "late", "late", 4);
        archive_write_close(writer);
        archive_write_free(writer);
        folder = open_archive(scratch_path("bomb"), spool);
        assert_string_equal(listed(folder), "good|!bomb");
        check_text(folder, "good", "good");
        check_problem(folder, "bomb", "--spool-limit");
        check_problem(folder, "bomb", "nothing behind it was read");
        ts_folder_free(folder);
        ts_spool_free(spool);
    }
    free(zeros);
}

/* Writes with libarchive what a compressor makes of one file. */
static void bare_compressed_file(void **state)
{
    static const char *const names[] = {"bare/model.npy.gz", "bare/noext", "bare/.gz"};
    static const char *const members[] = {"model.npy", "noext", ".gz"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct archive *writer = archive_write_new();
        struct ts_spool *spool = ts_spool_new(MIB);
        struct ts_folder *folder;
        archive_write_set_format_raw(writer);
        archive_write_add_filter_gzip(writer);
        assert_int_equal(archive_write_open_filename(writer, scratch_above(names[i])), ARCHIVE_OK);
        write_member(writer, "x", "no tar inside", 13);
        archive_write_close(writer);
        archive_write_free(writer);
        folder = open_archive(scratch_path(names[i]), spool);
        assert_string_equal(listed(folder), members[i]);
        check_text(folder, members[i], "no tar inside");
        ts_folder_free(folder);
        ts_spool_free(spool);
    }
}

static void is_archive(void **state)
{
    struct ts_source *source;
    uint8_t noise[1024];
    (void)state;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(i * 37 + 11);
    assert_int_equal(ts_source_copy(noise, sizeof noise, "noise", &source, &error), TS_OK);
    assert_false(ts_folder_is_archive(source));
    ts_source_release(source);
    memset(noise, 0, sizeof noise);
    for (size_t size = 0; size <= sizeof noise; size += 128) {
        assert_int_equal(ts_source_copy(noise, size, "zeros", &source, &error), TS_OK);
        assert_false(ts_folder_is_archive(source));
        ts_source_release(source);
    }
    /* a header of 1979: a name, a size and a checksum (sum of all bytes with blanks for itself), no magic */
    memcpy(noise, "name", 4);
    memcpy(noise + 124, "00000000000", 11);
    snprintf((char *)noise + 148, 8, "%06o", 'n' + 'a' + 'm' + 'e' + 11 * '0' + 8 * ' ');
    noise[155] = ' ';
    assert_int_equal(ts_source_copy(noise, sizeof noise, "old.tar", &source, &error), TS_OK);
    assert_true(ts_folder_is_archive(source));
    ts_source_release(source);
}

static bool read_expected(const char *name, char *expected, size_t size)
{
    char path[512];
    FILE *file;
    snprintf(path, sizeof path, MALFORMED "%s.expect", name);
    file = fopen(path, "r");
    if (!file)
        return false;
    expected[0] = '\0';
    if (fgets(expected, (int)size, file))
        expected[strcspn(expected, "\n")] = '\0';
    fclose(file);
    return true;
}

/* Every archive of make_archive.py: the good members open, before and behind the bad one, which says what is wrong. */
static void evil_members_do_not_hide_good_ones(void **state)
{
    DIR *stream = opendir(MALFORMED);
    size_t checked = 0;
    (void)state;
    if (!stream)
        return; /* not skip(): cmocka reports it as a failure in TAP */
    for (struct dirent *file; (file = readdir(stream));) {
        struct ts_spool *spool;
        struct ts_folder *folder;
        struct ts_source *source;
        char path[512], expected[256];
        bool seen = false;
        if (!read_expected(file->d_name, expected, sizeof expected))
            continue;
        snprintf(path, sizeof path, MALFORMED "%s", file->d_name);
        spool = ts_spool_new(MIB);
        assert_int_equal(ts_source_open(path, &source, &error), TS_OK);
        assert_true(ts_folder_is_archive(source));
        if (ts_folder_open_archive(source, spool, &folder, &error) != TS_OK) {
            if (!expected[0] || !strstr(error.message, expected))
                fail_msg("%s: \"%s\" lacks \"%s\"", path, error.message, expected);
        } else {
            for (size_t i = 0; i < folder->count; i++) {
                struct ts_source *member;
                const char *name = folder->members[i].path;
                if (ts_folder_open_member(folder, i, &member, &error) != TS_OK) {
                    if (!expected[0] || !strstr(error.message, expected))
                        fail_msg("%s: %s: \"%s\" lacks \"%s\"", path, name, error.message, expected);
                    seen = true;
                    continue;
                }
                if (strcmp(name, "good.safetensors") == 0 || strcmp(name, "late.safetensors") == 0) {
                    float value;
                    assert_int_equal(member->size, 76);
                    memcpy(&value, member->data + 72, 4);
                    assert_true(value == (*name == 'g' ? 1.0f : 3.0f));
                }
                ts_source_release(member);
            }
            if (strstr(file->d_name, "dotdot") || strstr(file->d_name, "checksum-wrong.tar") ||
                strstr(file->d_name, "sparse")) {
                assert_true(ts_folder_find(folder, "good.safetensors") < folder->count);
                assert_true(ts_folder_find(folder, "late.safetensors") < folder->count);
            }
            if (expected[0] && !seen && strcmp(expected, "is empty") != 0)
                fail_msg("%s: nothing said \"%s\"", path, expected);
            ts_folder_free(folder);
        }
        checked++;
        ts_source_release(source);
        ts_spool_free(spool);
    }
    closedir(stream);
    assert_true(checked > 20);
}

static void sparse_member_has_its_holes(void **state)
{
    struct ts_spool *spool = ts_spool_new(MIB);
    struct ts_folder *folder;
    struct ts_source *source;
    float value;
    (void)state;
    if (access(MALFORMED "sparse-fine.tar", R_OK) != 0)
        return; /* not skip(): cmocka reports it as a failure in TAP */
    folder = open_archive(MALFORMED "sparse-fine.tar", spool);
    assert_int_equal(ts_folder_open_member(folder, ts_folder_find(folder, "hollow.safetensors"), &source, &error),
                     TS_OK);
    assert_int_equal(source->size, 4608);
    for (size_t at = 72; at < 4608; at += 4) { /* 1, then zeros, some of them stored, then 3 */
        memcpy(&value, source->data + at, 4);
        assert_true(value == (at == 72 ? 1.0f : at == 4604 ? 3.0f : 0.0f));
    }
    ts_source_release(source);
    ts_folder_free(folder);
    ts_spool_free(spool);
}

static void hard_link_has_the_bytes_of_its_target(void **state)
{
    struct ts_spool *spool = ts_spool_new(MIB);
    struct ts_folder *folder;
    struct ts_source *a, *b;
    (void)state;
    if (access(MALFORMED "hard-link-fine.tar", R_OK) != 0)
        return; /* not skip(): cmocka reports it as a failure in TAP */
    folder = open_archive(MALFORMED "hard-link-fine.tar", spool);
    assert_string_equal(listed(folder), "good.safetensors|other.safetensors");
    assert_int_equal(ts_folder_open_member(folder, 0, &a, &error), TS_OK);
    assert_int_equal(ts_folder_open_member(folder, 1, &b, &error), TS_OK);
    assert_ptr_equal(a->data, b->data);
    assert_int_equal(a->size, b->size);
    assert_int_equal(folder->members[1].size, 76);
    ts_source_release(a);
    ts_source_release(b);
    ts_folder_free(folder);
    ts_spool_free(spool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disk_lists_in_natural_order),
        cmocka_unit_test(disk_shows_paths_as_given),
        cmocka_unit_test(disk_links),
        cmocka_unit_test(disk_odd_things),
        cmocka_unit_test(disk_snapshot_of_the_hub),
        cmocka_unit_test(beside),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(zip_and_tar_of_one_folder),
        cmocka_unit_test(every_packing),
        cmocka_unit_test(plain_tar_is_not_copied),
        cmocka_unit_test(bomb_stops_at_the_limit),
        cmocka_unit_test(bare_compressed_file),
        cmocka_unit_test(is_archive),
        cmocka_unit_test(evil_members_do_not_hide_good_ones),
        cmocka_unit_test(sparse_member_has_its_holes),
        cmocka_unit_test(hard_link_has_the_bytes_of_its_target),
    };
    return cmocka_run_group_tests_name("folder", tests, scratch_make, scratch_remove);
}
