/* What the reader makes of a trace: order by offset, notes, the spare, parts; and of traces that lie. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opened.h"
#include "read/open.h"

#define HEAD "{\"__metadata__\":{\"tsleuth.order\":\"offset\",\"tsleuth.part\":\"%d\""

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tsleuth-trace-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"t.safetensors", "t-00002.safetensors", "t-00003.safetensors"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

/* A file of that header (for one %d, the part) and `bytes` of data, byte i holding i. */
static const char *write_trace(const char *name, const char *header, int part, size_t bytes)
{
    static char path[128];
    char text[4096];
    uint64_t length = (uint64_t)snprintf(text, sizeof text, header, part);
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&length, 8, 1, file), 1); /* little-endian machines */
    assert_int_equal(fwrite(text, 1, length, file), length);
    for (size_t i = 0; i < bytes; i++)
        fputc((int)i, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static struct ts_bundle *open_path(const char *path)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    return bundle;
}

static void assert_names(const struct ts_bundle *bundle, const char *names)
{
    char all[256] = "";
    for (size_t i = 0; i < bundle->count; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", bundle->tensors[i]->name);
    assert_string_equal(all, names);
}

static void tensors_come_in_the_order_of_their_offsets(void **state)
{
    struct ts_bundle *bundle =
        open_path(write_trace("t.safetensors",
                              HEAD "},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]},"
                                   "\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                                   "\"empty2\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},"
                                   "\"empty1\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},"
                                   "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]}}   ",
                              1, 6));
    (void)state;
    assert_names(bundle, "c a empty2 empty1 b");
    assert_string_equal(bundle->order, "order given in the metadata");
    assert_int_equal(bundle->finding_count, 0);
    ts_bundle_free(bundle);
}

static void the_spare_is_no_tensor(void **state)
{
    /* twice, as for a moment when a page of the header is full; and the file ends before it does or after */
    for (size_t bytes = 3; bytes <= 12; bytes += 3) {
        struct ts_bundle *bundle = open_path(
            write_trace("t.safetensors",
                        HEAD "},\"__tsleuth_spare__\":{\"dtype\":\"U8\",\"shape\":[7],\"data_offsets\":[2,9]}  ,"
                             "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                             "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},"
                             "\"__tsleuth_spare__\":{\"dtype\":\"U8\",\"shape\":[ 6],\"data_offsets\":[ 3,  9]}  }",
                        1, bytes));
        (void)state;
        assert_names(bundle, "a b");
        assert_int_equal(bundle->skip_count, 0);
        assert_int_equal(bundle->finding_count, 0);
        assert_non_null(ts_bundle_meta_value(bundle, "tsleuth.spare"));
        assert_true(strncmp(ts_bundle_meta_value(bundle, "tsleuth.spare"), "6 bytes", 7) == 0);
        ts_bundle_free(bundle);
    }
}

static void a_spare_that_makes_no_sense_is_ignored(void **state)
{
    static const char *const spares[] = {"3", "{\"dtype\":\"X\",\"shape\":[[[1]]],\"data_offsets\":{}}",
                                         "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9,1]}"};
    (void)state;
    for (size_t i = 0; i < sizeof spares / sizeof *spares; i++) {
        char header[512];
        struct ts_bundle *bundle;
        snprintf(header, sizeof header,
                 HEAD "},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"__tsleuth_spare__\":%s}", 1,
                 spares[i]);
        bundle = open_path(write_trace("t.safetensors", header, 1, 2));
        assert_names(bundle, "a");
        ts_bundle_free(bundle);
    }
}

static void notes_become_attributes(void **state)
{
    struct ts_bundle *bundle = open_path(
        write_trace("t.safetensors",
                    HEAD ",\"tsleuth.note.a\":\"{\\\"axes\\\":\\\"x,y\\\",\\\"layer\\\":3,\\\"sampled\\\":true,"
                         "\\\"whole_shape\\\":[4,2]}\",\"tsleuth.note.gone\":\"{}\",\"tsleuth.note.b\":\"not json\","
                         "\"tsleuth.lost.c\":\"no space\",\"kept\":\"yes\"},"
                         "\"a\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[0,2]},"
                         "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                    1, 3));
    const struct ts_tensor *a = ts_bundle_tensor(bundle, "a"), *b = ts_bundle_tensor(bundle, "b");
    (void)state;
    assert_true(a->sampled);
    assert_string_equal(ts_tensor_attribute(a, "axes"), "x,y");
    assert_string_equal(ts_tensor_attribute(a, "layer"), "3");
    assert_string_equal(ts_tensor_attribute(a, "whole_shape"), "[4,2]");
    assert_false(b->sampled);
    assert_null(b->attributes);
    assert_int_equal(bundle->finding_count, 1);
    assert_string_equal(bundle->findings[0].tensor, "b");
    assert_int_equal(bundle->skip_count, 1);
    assert_non_null(strstr(bundle->skips[0].reason, "no space"));
    assert_string_equal(ts_bundle_meta_value(bundle, "kept"), "yes");
    assert_null(ts_bundle_meta_value(bundle, "tsleuth.note.a"));
    ts_bundle_free(bundle);
}

#define PART(name, next)                                                                                               \
    HEAD "," next "\"x\":\"y\"},\"" name "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"

static void parts_follow_each_other(void **state)
{
    struct ts_bundle *bundle;
    (void)state;
    write_trace("t-00002.safetensors", PART("b", "\"tsleuth.next\":\"t-00003.safetensors\","), 2, 2);
    write_trace("t-00003.safetensors", PART("c", ""), 3, 2);
    bundle = open_path(write_trace("t.safetensors", PART("a", "\"tsleuth.next\":\"t-00002.safetensors\","), 1, 2));
    assert_names(bundle, "a b c");
    ts_bundle_free(bundle);
    /* in a folder the later parts are not read again by themselves */
    bundle = open_path(folder);
    assert_names(bundle, "a b c");
    ts_bundle_free(bundle);
    /* in a circle: the part numbers end it */
    write_trace("t-00003.safetensors", PART("c", "\"tsleuth.next\":\"t-00002.safetensors\","), 3, 2);
    bundle = open_path(write_trace("t.safetensors", PART("a", "\"tsleuth.next\":\"t-00002.safetensors\","), 1, 2));
    assert_names(bundle, "a b c");
    assert_int_equal(bundle->skip_count, 1);
    ts_bundle_free(bundle);
}

static void a_part_that_is_missing_or_elsewhere_is_told(void **state)
{
    static const char *const next[] = {
        PART("a", "\"tsleuth.next\":\"none.safetensors\","), PART("a", "\"tsleuth.next\":\"../../etc/passwd\","),
        PART("a", "\"tsleuth.next\":\"t.safetensors\","), PART("a", "\"tsleuth.next\":\"\",")};
    (void)state;
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        struct ts_bundle *bundle = open_path(write_trace("t.safetensors", next[i], 1, 2));
        assert_names(bundle, "a");
        assert_int_equal(bundle->skip_count, 1);
        ts_bundle_free(bundle);
    }
}

#define PAGE       4096
#define LIVE_PAGES 2000
#define PER_PAGE   32

/* Appends to page after page of a header, entry by entry, as a captured program does. */
struct writer {
    int file;
    unsigned pages; /* of the header, entries in the first and the last */
    unsigned wait;  /* turns before it goes on */
    unsigned next;
    atomic_bool runs;
    pthread_t thread;
};

static void append(struct writer *writer)
{
    const unsigned i = writer->next++, page = i < PER_PAGE ? 0 : writer->pages - 1;
    char entry[128];
    int size = snprintf(entry, sizeof entry, ",\"t.%u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}", i,
                        i, i + 1);
    assert_int_equal(pwrite(writer->file, entry, (size_t)size, page * PAGE + 256 + 100 * (i % PER_PAGE)), size);
}

static void *go_on(void *argument)
{
    struct writer *writer = argument;
    atomic_store(&writer->runs, true);
    for (volatile unsigned i = 0; i < writer->wait; i++)
        ;
    while (writer->next < 2 * PER_PAGE)
        append(writer);
    return NULL;
}

/* Between two pages of a long header, which takes its time to look at, the writer fills both. */
static void what_is_read_while_it_is_written_has_no_gap(void **state)
{
    static const char start[] = "{\"__metadata__\":{\"tsleuth.order\":\"offset\"}";
    const size_t length = LIVE_PAGES * PAGE - 8;
    char path[128], *header = malloc(length);
    unsigned torn = 0;
    (void)state;
    assert_non_null(header);
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    for (unsigned round = 0; round < 80; round++) {
        struct writer writer = {.pages = LIVE_PAGES, .wait = round * 30000};
        struct ts_bundle *bundle;
        uint64_t size = length;
        memset(header, ' ', length);
        memcpy(header, start, sizeof start - 1);
        header[length - 1] = '}';
        writer.file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_true(writer.file >= 0);
        assert_int_equal(pwrite(writer.file, &size, 8, 0), 8); /* little-endian machines */
        assert_int_equal(pwrite(writer.file, header, length, 8), length);
        assert_int_equal(ftruncate(writer.file, (off_t)(8 + length + 2 * PER_PAGE)), 0);
        for (unsigned i = 0; i < PER_PAGE / 2; i++)
            append(&writer);
        assert_int_equal(pthread_create(&writer.thread, NULL, go_on, &writer), 0);
        while (!atomic_load(&writer.runs))
            ;
        bundle = open_path(path);
        assert_int_equal(pthread_join(writer.thread, NULL), 0);
        assert_in_range(bundle->count, PER_PAGE / 2, 2 * PER_PAGE);
        for (size_t i = 0; i < bundle->count; i++) {
            char name[32];
            snprintf(name, sizeof name, "t.%zu", i);
            if (strcmp(bundle->tensors[i]->name, name) != 0) {
                torn++;
                break;
            }
        }
        assert_int_equal(bundle->skip_count, 0);
        ts_bundle_free(bundle);
        close(writer.file);
    }
    assert_int_equal(torn, 0);
    free(header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensors_come_in_the_order_of_their_offsets, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_spare_is_no_tensor, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_spare_that_makes_no_sense_is_ignored, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(notes_become_attributes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(parts_follow_each_other, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_part_that_is_missing_or_elsewhere_is_told, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_read_while_it_is_written_has_no_gap, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
