/* The sort that keeps equal things in their order, with room and without; and qsort, whichever it is, keeps it too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dice.h"

static bool has_room;

static void *give_room(size_t size)
{
    return has_room ? malloc(size) : NULL;
}

void sort_under_test(void *data, size_t count, size_t size, int (*compare)(const void *a, const void *b));

#define malloc         give_room
#define ts_stable_sort sort_under_test
#include "base/sort.c"
#undef malloc
#undef ts_stable_sort

#define MOST 1500

/* Larger than the pieces that things are moved in. */
struct thing {
    uint32_t key, place;
    uint8_t filling[92];
};

static int by_key(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

static void check(void (*sorter)(void *, size_t, size_t, int (*)(const void *, const void *)), size_t count,
                  uint32_t keys, unsigned shape)
{
    static struct thing things[MOST + 1];
    uint32_t seen[MOST] = {0};
    for (size_t i = 0; i < count; i++) {
        things[i].key = shape == 0 ? (uint32_t)(dice() % keys) : (uint32_t)(shape == 1 ? i : count - i) * keys / MOST;
        things[i].place = (uint32_t)i;
        seen[i] = things[i].key;
        memset(things[i].filling, (int)(i % 251), sizeof things[i].filling);
    }
    memset(&things[count], 0xee, sizeof things[count]);
    sorter(things, count, sizeof *things, by_key);
    for (size_t i = 0; i < count; i++) {
        const uint32_t place = things[i].place;
        assert_in_range(place, 0, count - 1);
        assert_int_equal(things[i].key, seen[place]); /* a thing stays whole */
        assert_int_equal(things[i].filling[0], place % 251);
        assert_int_equal(things[i].filling[91], place % 251);
        if (i)
            assert_true(things[i - 1].key < things[i].key ||
                        (things[i - 1].key == things[i].key && things[i - 1].place < place));
    }
    assert_int_equal(things[count].key, 0xeeeeeeee);
}

static void check_all(void (*sorter)(void *, size_t, size_t, int (*)(const void *, const void *)))
{
    for (unsigned shape = 0; shape < 3; shape++) {
        for (size_t count = 0; count < 70; count++)
            check(sorter, count, 1 + (uint32_t)count / 3, shape);
        check(sorter, MOST, 1, shape);
        check(sorter, MOST, 40, shape);
        check(sorter, MOST, 1000000, shape);
    }
}

static void test_equals_keep_their_order(void **state)
{
    (void)state;
    has_room = true;
    check_all(sort_under_test);
}

static void test_without_room(void **state)
{
    (void)state;
    has_room = false;
    check_all(sort_under_test);
}

static void test_the_one_in_use(void **state)
{
    (void)state;
    check_all(qsort);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_keep_their_order),
        cmocka_unit_test(test_without_room),
        cmocka_unit_test(test_the_one_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
