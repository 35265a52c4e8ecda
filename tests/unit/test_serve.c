#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/progress.h"
#include "serve/call.h"
#include "serve/files.h"
#include "serve/lane.h"
#include "serve/opened.h"
#include "serve/options.h"
#include "serve/upload.h"
#include "serve/workspace.h"

static bool is_name(const char *name)
{
    struct ts_error error;
    return ts_upload_check_name(name, &error) == TS_OK;
}

static void names_stay_inside(void **state)
{
    static const char *const good[] = {"a",   "a/b",     "layer 3/ä.npy", "...", "..a",
                                       "a..", ".hidden", "a/.b/c",        "C:",  "%2e%2e"};
    static const char *const bad[] = {"",
                                      "/a",
                                      "a/",
                                      "//",
                                      ".",
                                      "..",
                                      "a/../b",
                                      "../a",
                                      "a/..",
                                      "./a",
                                      "a//b",
                                      "a\\b",
                                      "a\tb",
                                      "a\nb",
                                      "\x7f",
                                      "\xff",
                                      "\xc0\xae\xc0\xae/x",
                                      "a/\x1b[2J",
                                      "a/./b"};
    char text[2000];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!is_name(good[i]))
            fail_msg("\"%s\" is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (is_name(bad[i]))
            fail_msg("\"%s\" is taken", bad[i]);
    memset(text, 'x', sizeof text);
    text[255] = '\0';
    assert_true(is_name(text));
    text[255] = 'x';
    text[256] = '\0';
    assert_false(is_name(text));
    for (size_t i = 0; i < 1100; i++)
        text[i] = i % 2 ? '/' : 'y';
    text[63] = '\0'; /* 32 parts */
    assert_true(is_name(text));
    text[63] = '/';
    text[65] = '\0';
    assert_false(is_name(text));
}

static void percent_decoding(void **state)
{
    char plain[] = "a%20b%2F%c3%a4", cut[] = "a%2", none[] = "a%zz", nul[] = "a%00b";
    (void)state;
    assert_true(ts_decode_percent(plain));
    assert_string_equal(plain, "a b/\xc3\xa4");
    assert_false(ts_decode_percent(cut));
    assert_false(ts_decode_percent(none));
    assert_false(ts_decode_percent(nul));
}

static void options_of_a_run(void **state)
{
    static const char text[] = "{\"map\": {\"x\": [\"y\", \"z\"]}, \"rtol\": 0.5, \"layer_offset\": -3, \"order\": "
                               "[\"b\", \"a\"], \"dims\": \"x: a b\"}";
    struct ts_run_options options;
    struct ts_arena arena;
    struct ts_error error;
    (void)state;
    ts_arena_init(&arena, 65536);
    assert_int_equal(ts_run_options_parse(text, strlen(text), &arena, &options, &error), TS_OK);
    assert_int_equal(options.map_size, strlen("{\"x\": [\"y\", \"z\"]}"));
    assert_memory_equal(options.map, "{\"x\": [\"y\", \"z\"]}", options.map_size);
    assert_true(options.compare.fixed_tolerance && options.compare.delta.given);
    assert_true(options.compare.delta.tolerance.rtol == 0.5 && options.compare.delta.tolerance.atol == 0);
    assert_true(options.compare.pair.layer_offset_given && options.compare.pair.layer_offset == -3);
    assert_int_equal(options.order_count, 2);
    assert_string_equal(options.order[0], "b");
    assert_string_equal(options.compare.pair.dims, "x: a b");
    for (size_t size = 1; size < strlen(text); size++) /* every cut is refused, none is believed */
        assert_int_not_equal(ts_run_options_parse(text, size, &arena, &options, &error), TS_OK);
    assert_int_equal(ts_run_options_parse("", 0, &arena, &options, &error), TS_OK);
    assert_false(options.compare.delta.given);
    ts_arena_release(&arena);
}

struct watched {
    struct ts_watch watch;
    struct ts_progress progress;
    _Atomic unsigned seen;
};

static void look(void *context, uint64_t index, unsigned worker)
{
    struct watched *watched = context;
    (void)index;
    (void)worker;
    atomic_fetch_add(&watched->seen, atomic_load(&ts_cancelled));
    ts_progress_add(&watched->progress, 3);
}

static void watches_reach_the_pool(void **state)
{
    struct watched watched = {0};
    struct ts_pool *pool = ts_pool_new(4);
    (void)state;
    assert_non_null(pool);
    ts_watched = &watched.watch;
    ts_progress_start(&watched.progress, "comparing", 300);
    ts_pool_run(pool, 100, look, &watched);
    assert_int_equal(watched.seen, 0);
    assert_int_equal(watched.watch.done, 300);
    assert_int_equal(watched.watch.total, 300);
    assert_string_equal(watched.watch.label, "comparing");
    atomic_store(&watched.watch.cancelled, true);
    ts_pool_run(pool, 100, look, &watched);
    assert_int_equal(watched.seen, 100);
    ts_watched = NULL; /* the flag of the program is another */
    watched.seen = 0;
    ts_pool_run(pool, 100, look, &watched);
    assert_int_equal(watched.seen, 0);
    ts_pool_free(pool);
}

static void badness_orders(void **state)
{
    double nan = (double)NAN, inf = (double)INFINITY;
    (void)state;
    assert_true(ts_badness_of(1, 3) == 2 && ts_badness_of(3, 1) == 2);
    assert_true(ts_badness_of(inf, inf) == 0 && ts_badness_of(-inf, inf) == inf && ts_badness_of(1, inf) == inf);
    assert_true(ts_badness_of(nan, 1) == inf && ts_badness_of(1, nan) == inf);
    assert_true(ts_badness_of(nan, nan) == DBL_MAX);
}

struct counted {
    struct ts_task task;
    _Atomic unsigned *runs;
};

static void run_counted(struct ts_task *task)
{
    atomic_fetch_add(((struct counted *)task)->runs, 1);
}

static void lanes_finish_what_they_have(void **state)
{
    _Atomic unsigned runs = 0;
    struct counted tasks[50], late = {.task.run = run_counted, .runs = &runs};
    struct ts_lane *lane = ts_lane_new(3, 50);
    (void)state;
    assert_non_null(lane);
    for (size_t i = 0; i < 50; i++) {
        tasks[i] = (struct counted){.task.run = run_counted, .runs = &runs};
        assert_true(ts_lane_push(lane, &tasks[i].task));
    }
    ts_lane_close(lane);
    assert_int_equal(runs, 50);
    assert_false(ts_lane_push(lane, &late.task));
    ts_lane_free(lane);
}

static void folders_are_removed_whole(void **state)
{
    char root[] = "/tmp/tsleuth-test-XXXXXX", path[8200];
    struct ts_listing listing;
    struct ts_error error;
    struct stat info;
    size_t used;
    (void)state;
    assert_non_null(mkdtemp(root));
    used = (size_t)snprintf(path, sizeof path, "%s", root);
    for (int i = 0; i < 60; i++) /* deep, and a link that leads out */
        used += (size_t)snprintf(path + used, sizeof path - used, "/d%d", i);
    snprintf(path + used, sizeof path - used, "/file");
    assert_true(ts_make_parents(path));
    assert_int_equal(ts_write_whole(path, "12345", 5, &error), TS_OK);
    snprintf(path, sizeof path, "%s/d0/link", root);
    assert_int_equal(symlink("/etc", path), 0);
    ts_list_files(root, &listing);
    assert_int_equal(listing.count, 1);
    assert_int_equal(listing.bytes, 5);
    assert_false(listing.failed);
    ts_listing_release(&listing);
    ts_remove_tree(root);
    assert_int_not_equal(lstat(root, &info), 0);
    assert_int_equal(stat("/etc/passwd", &info), 0);
}

/* A comparison that ends while the keeper looks around is younger than the keeper's clock. */
static void what_was_just_done_does_not_rest(void **state)
{
    struct ts_workspace workspace = {.opened = ts_opened_new(), .touched_ms = 5000};
    (void)state;
    assert_non_null(workspace.opened);
    assert_false(ts_workspace_rests(&workspace, 4999));
    assert_false(ts_workspace_rests(&workspace, 5000));
    assert_false(ts_workspace_rests(&workspace, 605000));
    assert_true(ts_workspace_rests(&workspace, 605001));
    ts_opened_drop(workspace.opened);
    workspace.opened = NULL;
    assert_false(ts_workspace_rests(&workspace, 605001));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stay_inside),
        cmocka_unit_test(percent_decoding),
        cmocka_unit_test(options_of_a_run),
        cmocka_unit_test(watches_reach_the_pool),
        cmocka_unit_test(badness_orders),
        cmocka_unit_test(lanes_finish_what_they_have),
        cmocka_unit_test(folders_are_removed_whole),
        cmocka_unit_test(what_was_just_done_does_not_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
