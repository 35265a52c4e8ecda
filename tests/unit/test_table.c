/* Names to numbers: src/base/table.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/table.h"

static void test_put_and_get(void **state)
{
    struct ts_table table;
    size_t present = 77;
    (void)state;
    assert_true(ts_table_init(&table, 3));
    assert_int_equal(ts_table_get(&table, "model.norm"), SIZE_MAX);
    assert_true(ts_table_put(&table, "model.norm", 5, &present));
    assert_int_equal(present, 77); /* untouched when the key is new */
    assert_true(ts_table_put(&table, "", 0, NULL));
    assert_int_equal(ts_table_get(&table, "model.norm"), 5);
    assert_int_equal(ts_table_get(&table, ""), 0);
    assert_int_equal(ts_table_get(&table, "model.nor"), SIZE_MAX);
    assert_int_equal(ts_table_get(&table, "model.norm."), SIZE_MAX);
    ts_table_release(&table);
}

static void test_repeated_keys(void **state)
{
    struct ts_table table;
    char copy[] = "layer_1";
    size_t present = 0;
    (void)state;
    assert_true(ts_table_init(&table, 2));
    assert_true(ts_table_put(&table, "layer_1", 10, NULL));
    assert_false(ts_table_put(&table, copy, 11, &present)); /* the text counts, not the pointer */
    assert_int_equal(present, 10);
    assert_false(ts_table_put(&table, copy, 12, NULL));
    assert_int_equal(ts_table_get(&table, "layer_1"), 10);
    assert_true(ts_table_put(&table, "layer_2", 20, NULL)); /* a repeated key took no room */
    ts_table_release(&table);
}

/* A file that announces fewer names than it has must not fill the table until a search never ends. */
static void test_room(void **state)
{
    static char names[40][16];
    (void)state;
    for (size_t room = 0; room < 40; room++) {
        struct ts_table table;
        size_t present = 0;
        assert_true(ts_table_init(&table, room));
        for (size_t i = 0; i < 40; i++) {
            snprintf(names[i], sizeof names[i], "n%zu", i);
            assert_int_equal(ts_table_put(&table, names[i], i, &present), i < room);
            if (i >= room)
                assert_int_equal(present, SIZE_MAX);
        }
        for (size_t i = 0; i < 40; i++)
            assert_int_equal(ts_table_get(&table, names[i]), i < room ? i : SIZE_MAX);
        if (room) { /* a key that is there is found in a full table too */
            assert_false(ts_table_put(&table, names[0], 99, &present));
            assert_int_equal(present, 0);
        }
        ts_table_release(&table);
    }
}

static void test_many_names(void **state)
{
    const size_t count = 100000, width = 40;
    char *names = malloc(count * width);
    struct ts_table table;
    (void)state;
    assert_non_null(names);
    assert_true(ts_table_init(&table, count));
    for (size_t i = 0; i < count; i++) {
        snprintf(names + i * width, width, "model.layers.%zu.experts.%zu.w", i / 64, i % 64);
        assert_true(ts_table_put(&table, names + i * width, i, NULL));
    }
    assert_false(ts_table_put(&table, "one too many", 0, NULL));
    for (size_t i = 0; i < count; i++) {
        char other[48];
        assert_int_equal(ts_table_get(&table, names + i * width), i);
        snprintf(other, sizeof other, "%sx", names + i * width);
        assert_int_equal(ts_table_get(&table, other), SIZE_MAX);
    }
    ts_table_release(&table);
    free(names);
}

static void test_edges(void **state)
{
    struct ts_table table = {0};
    (void)state;
    assert_int_equal(ts_table_get(&table, "x"), SIZE_MAX); /* never initialized */
    ts_table_release(&table);
    assert_false(ts_table_init(&table, SIZE_MAX)); /* no wrap on the way to a small table */
    assert_int_equal(ts_table_get(&table, "x"), SIZE_MAX);
    ts_table_release(&table);
    assert_false(ts_table_init(&table, SIZE_MAX / 64 + 1));
    ts_table_release(&table);
    assert_true(ts_table_init(&table, 1));
    assert_true(ts_table_put(&table, "x", SIZE_MAX - 1, NULL));
    assert_int_equal(ts_table_get(&table, "x"), SIZE_MAX - 1);
    ts_table_release(&table);
    assert_int_equal(ts_table_get(&table, "x"), SIZE_MAX); /* released */
    ts_table_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_and_get), cmocka_unit_test(test_repeated_keys), cmocka_unit_test(test_room),
        cmocka_unit_test(test_many_names),  cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
