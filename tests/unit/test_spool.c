/* The spool: room and streams of all sizes, the limit, what is left behind, and what a full disk says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#include "io/spool.h"
#include "scratch.h"

#define MIB ((uint64_t)1 << 20)

static uint8_t pattern(uint64_t seed, uint64_t at)
{
    return (uint8_t)((at * 2654435761u + seed * 40503u) >> 13);
}

static void fill(uint8_t *data, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i < size; i++)
        data[i] = pattern(seed, i);
}

static void check(const struct ts_source *source, uint64_t size, uint64_t seed)
{
    assert_int_equal(source->size, size);
    for (uint64_t i = 0; i < size; i++)
        if (source->data[i] != pattern(seed, i))
            fail_msg("byte %llu of %llu is wrong", (unsigned long long)i, (unsigned long long)size);
}

static void check_zeros(const uint8_t *data, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if (data[i])
            fail_msg("byte %llu is not zero", (unsigned long long)i);
}

static struct ts_source *reserved(struct ts_spool *spool, uint64_t size, uint64_t seed)
{
    struct ts_error error;
    struct ts_source *source;
    uint8_t *data;
    if (ts_spool_reserve(spool, size, &data, &error) != TS_OK)
        fail_msg("%s", error.message);
    assert_int_equal((uintptr_t)data % 64, 0);
    check_zeros(data, size);
    fill(data, size, seed);
    assert_int_equal(ts_spool_source(spool, data, size, "made/by/hand", &source, &error), TS_OK);
    assert_string_equal(source->path, "made/by/hand");
    return source;
}

static struct ts_source *streamed(struct ts_spool *spool, uint64_t size, uint64_t piece, uint64_t seed)
{
    struct ts_error error;
    struct ts_source *source;
    uint8_t *data = malloc(size ? size : 1);
    fill(data, size, seed);
    for (uint64_t at = 0; at < size; at += piece)
        if (ts_spool_write(spool, data + at, at + piece <= size ? piece : size - at, &error) != TS_OK)
            fail_msg("%s", error.message);
    free(data);
    if (ts_spool_finish(spool, "stream", &source, &error) != TS_OK)
        fail_msg("%s", error.message);
    return source;
}

static void room_of_all_sizes(void **state)
{
    static const uint64_t sizes[] = {0,      1,        63,      64,      65,           5000,
                                     262144, 262145,   100000,  MIB,     3 * MIB + 17, 70 * MIB,
                                     10,     64 * MIB, MIB + 1, 5 * MIB, 1234567};
    const size_t count = sizeof sizes / sizeof *sizes;
    struct ts_source *sources[sizeof sizes / sizeof *sizes];
    struct ts_spool *spool = ts_spool_new(1024 * MIB);
    (void)state;
    for (size_t i = 0; i < count; i++)
        sources[i] = reserved(spool, sizes[i], i);
    ts_spool_free(spool); /* sources stay */
    for (size_t i = 0; i < count; i++) {
        check(sources[i], sizes[i], i);
        ts_source_release(sources[i]);
    }
}

static void many_small_ones(void **state)
{
    enum { COUNT = 20000 };
    struct ts_source **sources = calloc(COUNT, sizeof(struct ts_source *));
    struct ts_spool *spool = ts_spool_new(1024 * MIB);
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        sources[i] = i % 2 ? reserved(spool, i % 700, i) : streamed(spool, i % 700, 97, i);
    for (size_t i = 0; i < COUNT; i++) {
        check(sources[i], i % 700, i);
        ts_source_release(sources[i]);
    }
    ts_spool_free(spool);
    free(sources);
}

static void streams_of_all_sizes(void **state)
{
    static const uint64_t sizes[] = {0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 8 * MIB, 9 * MIB + 4097, 30};
    static const uint64_t pieces[] = {MIB / 3, 5 * MIB, 64 * MIB};
    struct ts_source *sources[24], *room[24];
    struct ts_spool *spool = ts_spool_new(1024 * MIB);
    size_t count = 0;
    (void)state;
    for (size_t p = 0; p < 3; p++)
        for (size_t s = 0; s < 8; s++, count++) {
            sources[count] = streamed(spool, sizes[s], pieces[p], count);
            room[count] = reserved(spool, 1000, 100 + count);
        }
    ts_spool_free(spool);
    for (size_t i = 0; i < count; i++) {
        check(sources[i], sizes[i % 8], i);
        check(room[i], 1000, 100 + i);
        ts_source_release(sources[i]);
        ts_source_release(room[i]);
    }
}

static void limit_stops_and_says_how_to_raise_it(void **state)
{
    struct ts_spool *spool = ts_spool_new(10 * MIB);
    struct ts_error error;
    struct ts_source *source;
    uint8_t *data, *zeros = calloc(1, 6 * MIB);
    (void)state;
    assert_int_equal(ts_spool_reserve(spool, 10 * MIB + 1, &data, &error), TS_ERR_LIMIT);
    assert_non_null(strstr(error.message, "10.5 MB"));
    assert_non_null(strstr(error.message, "--spool-limit"));
    assert_int_equal(ts_spool_reserve(spool, UINT64_MAX, &data, &error), TS_ERR_LIMIT);
    assert_int_equal(ts_spool_reserve(spool, 4 * MIB, &data, &error), TS_OK);
    assert_int_equal(ts_spool_write(spool, zeros, 6 * MIB, &error), TS_OK);
    assert_int_equal(ts_spool_write(spool, zeros, 1, &error), TS_ERR_LIMIT);
    ts_spool_cancel(spool); /* gives its six back */
    source = reserved(spool, 6 * MIB, 3);
    assert_int_equal(ts_spool_reserve(spool, 1, &data, &error), TS_ERR_LIMIT);
    check(source, 6 * MIB, 3);
    ts_source_release(source);
    ts_spool_free(spool);
    free(zeros);
}

static void room_given_back_is_zeroed_and_uncounted(void **state)
{
    static const uint64_t sizes[] = {1000, 300000, 80 * MIB};
    struct ts_spool *spool = ts_spool_new(100 * MIB);
    struct ts_source *first = reserved(spool, 100, 1), *second;
    struct ts_error error;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (unsigned times = 0; times < 3; times++) {
            uint8_t *data;
            assert_int_equal(ts_spool_reserve(spool, sizes[i], &data, &error), TS_OK);
            memset(data, 0xff, sizes[i]);
            ts_spool_unreserve(spool, data, sizes[i]);
        }
        second = reserved(spool, 5000, 2);
        check(second, 5000, 2);
        ts_source_release(second);
    }
    check(first, 100, 1);
    ts_source_release(first);
    ts_spool_free(spool);
}

static void cancelled_stream_leaves_zeros(void **state)
{
    struct ts_spool *spool = ts_spool_new(1024 * MIB);
    struct ts_error error;
    struct ts_source *source;
    uint8_t *ones = malloc(9 * MIB);
    (void)state;
    memset(ones, 0xff, 9 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(ts_spool_write(spool, ones, 9 * MIB, &error), TS_OK);
        ts_spool_cancel(spool);
    }
    source = reserved(spool, 12 * MIB, 5); /* checks that it is all zeros */
    ts_source_release(source);
    free(ones);
    ts_spool_free(spool);
}

static void reserve_during_a_stream_is_refused(void **state)
{
    struct ts_spool *spool = ts_spool_new(MIB);
    struct ts_error error;
    uint8_t *data;
    (void)state;
    assert_int_equal(ts_spool_write(spool, "abc", 3, &error), TS_OK);
    assert_int_equal(ts_spool_reserve(spool, 1, &data, &error), TS_ERR_USAGE);
    ts_spool_cancel(spool);
    assert_int_equal(ts_spool_reserve(spool, 1, &data, &error), TS_OK);
    ts_spool_free(spool);
}

static void foreign_bytes_are_no_source(void **state)
{
    struct ts_spool *spool = ts_spool_new(MIB);
    struct ts_error error;
    struct ts_source *source;
    uint8_t mine[8] = {0}, *data;
    (void)state;
    assert_int_equal(ts_spool_reserve(spool, 8, &data, &error), TS_OK);
    assert_int_equal(ts_spool_source(spool, mine, 8, "x", &source, &error), TS_ERR_USAGE);
    assert_int_equal(ts_spool_source(spool, data, 9, "x", &source, &error), TS_ERR_USAGE);
    ts_spool_free(spool);
}

static size_t files_in(const char *path)
{
    DIR *stream = opendir(path);
    size_t count = 0;
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));)
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

static void nothing_is_left_in_tmpdir(void **state)
{
    const char *before = getenv("TMPDIR");
    char *kept = before ? strdup(before) : NULL;
    struct ts_spool *spool = ts_spool_new(100 * MIB);
    struct ts_error error;
    uint8_t *data;
    (void)state;
    mkdir(scratch_path("empty"), 0777);
    setenv("TMPDIR", scratch_path("empty"), 1);
    ts_source_release(streamed(spool, 9 * MIB, MIB, 1));
    ts_source_release(reserved(spool, 1000, 1));
    assert_int_equal(files_in(scratch_path("empty")), 0);
    ts_spool_free(spool);

    setenv("TMPDIR", scratch_path("missing"), 1);
    spool = ts_spool_new(MIB);
    assert_int_equal(ts_spool_reserve(spool, 1, &data, &error), TS_ERR_IO);
    assert_non_null(strstr(error.message, scratch_path("missing")));
    assert_non_null(strstr(error.message, "TMPDIR"));
    assert_int_equal(ts_spool_write(spool, "x", 1, &error), TS_ERR_IO);
    ts_spool_cancel(spool);
    ts_spool_free(spool);
    if (kept)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    free(kept);
}

/* A limit on file sizes refuses as a full disk does: the program goes on, with a message. */
static void full_disk_is_an_error(void **state)
{
    struct ts_spool *spool = ts_spool_new(1024 * MIB);
    struct ts_source *first = reserved(spool, 1000, 1), *second;
    struct rlimit before, small;
    struct ts_error error;
    uint8_t *data, *zeros = calloc(1, 9 * MIB);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 2 * MIB;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(ts_spool_reserve(spool, 8 * MIB, &data, &error), TS_ERR_IO);
    assert_non_null(strstr(error.message, "TMPDIR"));
    assert_int_equal(ts_spool_write(spool, zeros, 9 * MIB, &error), TS_ERR_IO);
    assert_non_null(strstr(error.message, "TMPDIR"));
    ts_spool_cancel(spool);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    second = reserved(spool, 8 * MIB, 2); /* there is room again */
    check(first, 1000, 1);
    check(second, 8 * MIB, 2);
    ts_source_release(first);
    ts_source_release(second);
    ts_spool_free(spool);
    free(zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_of_all_sizes),
        cmocka_unit_test(many_small_ones),
        cmocka_unit_test(streams_of_all_sizes),
        cmocka_unit_test(limit_stops_and_says_how_to_raise_it),
        cmocka_unit_test(room_given_back_is_zeroed_and_uncounted),
        cmocka_unit_test(cancelled_stream_leaves_zeros),
        cmocka_unit_test(reserve_during_a_stream_is_refused),
        cmocka_unit_test(foreign_bytes_are_no_source),
        cmocka_unit_test(nothing_is_left_in_tmpdir),
        cmocka_unit_test(full_disk_is_an_error),
    };
    return cmocka_run_group_tests_name("spool", tests, scratch_make, scratch_remove);
}
