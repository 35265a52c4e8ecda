/* Which tensors stand at the same point of other layers, and that a long run is not searched for each of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compare/judge_points.h"

enum { MANY = 100000, LONGEST = 40 };

static void test_same_point(void **state)
{
    (void)state;
    assert_true(ts_judge_same_point("layers.1.mlp", "layers.12.mlp"));
    assert_true(ts_judge_same_point("blk_09_out", "blk_10_out"));
    assert_true(ts_judge_same_point("step_3/layers.1.mlp", "step_4/layers.1.mlp"));
    assert_false(ts_judge_same_point("step_3/layers.1.mlp", "step_4/layers.2.mlp"));
    assert_false(ts_judge_same_point("layers.1.mlp", "layers.1.mlp"));
    assert_false(ts_judge_same_point("layers.01.mlp", "layers.1.mlp"));
    assert_false(ts_judge_same_point("layers.1.mlp", "layers.1.mlp_out"));
    assert_false(ts_judge_same_point("layers.1.mlp", "layers.2.attn"));
}

/* One module in another step is no other layer; another expert is no other step. */
static void test_repeated(void **state)
{
    (void)state;
    assert_true(ts_judge_is_repeated("step_3/layers.1.mlp", "step_4/layers.1.mlp"));
    assert_true(ts_judge_is_repeated("0.model.layers.1", "12.model.layers.1"));
    assert_true(ts_judge_is_repeated("step_0/3_query", "step_1/3_query"));
    assert_true(ts_judge_is_repeated("layers.1.mlp#2", "layers.1.mlp#3"));
    assert_false(ts_judge_is_repeated("step_3/layers.1.mlp", "step_3/layers.2.mlp"));
    assert_false(ts_judge_is_repeated("step_3/layers.1.mlp", "step_4/layers.2.mlp"));
    assert_false(ts_judge_is_repeated("layers.1.experts.3.up", "layers.1.experts.4.up"));
    assert_false(ts_judge_is_repeated("down_blocks.1.layers.0", "down_blocks.2.layers.0"));
    assert_false(ts_judge_is_repeated("step_3/embed", "step_4/embed"));
}

/* What a search through all of them finds. */
static void test_found_as_by_a_search(void **state)
{
    static const char *const names[] = {"embed",         "layers.0.attn",  "layers.0.mlp.1", "layers.0.mlp.2",
                                        "layers.1.attn", "layers.01.attn", "layers.1.mlp.1", "layers.1.mlp.2",
                                        "norm",          "layers.2.attn",  "layers.2.mlp.1", "layers.2.mlp.2"};
    enum { COUNT = sizeof names / sizeof *names };
    struct ts_pair pairs[COUNT] = {0};
    struct ts_points points;
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        pairs[i].name = names[i];
    assert_true(ts_points_open(&points, pairs, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        size_t near[2 * TS_POINTS_NEAR], count = ts_points_near(&points, i, near), at = 0;
        for (size_t k = 0; k < COUNT; k++)
            if (ts_judge_same_point(names[k], names[i])) {
                assert_true(at < count);
                assert_int_equal(near[at++], k);
            }
        assert_int_equal(at, count);
    }
    ts_points_release(&points);
}

static void test_work_of_a_long_run(void **state)
{
    char(*names)[LONGEST] = malloc(MANY * sizeof *names);
    struct ts_pair *pairs = calloc(MANY, sizeof *pairs);
    struct ts_points points;
    (void)state;
    assert_true(names && pairs);
    for (size_t i = 0; i < MANY; i++) {
        snprintf(names[i], LONGEST, i % 2 ? "layers.%zu.mlp" : "layers.%zu.attn", i / 2);
        pairs[i].name = names[i];
    }
    assert_true(ts_points_open(&points, pairs, MANY));
    for (size_t i = 0; i < MANY; i += 7) {
        size_t near[2 * TS_POINTS_NEAR], count = ts_points_near(&points, i, near);
        size_t before = i / 2 < TS_POINTS_NEAR ? i / 2 : TS_POINTS_NEAR, after = MANY / 2 - 1 - i / 2;
        after = after < TS_POINTS_NEAR ? after : TS_POINTS_NEAR;
        assert_int_equal(count, before + after);
        assert_int_equal(near[0], i - 2 * before + (before ? 0 : 2));
        assert_int_equal(near[count - 1], i + 2 * after - (after ? 0 : 2));
    }
    assert_in_range(points.asked, 1, (MANY / 7 + 1) * (2 * TS_POINTS_NEAR + 1));
    ts_points_release(&points);
    free(pairs);
    free(names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_point),
        cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_found_as_by_a_search),
        cmocka_unit_test(test_work_of_a_long_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
