/* What a comparison says of itself before it blames anybody. */
#include <math.h>

#include "compare/comparison.h"
#include "made_bundle.h"

enum { SIZE = 16, COUNT = SIZE * SIZE };

static void compare(struct paired *runs, struct ts_comparison *comparison)
{
    const struct ts_comparison_options options = {.subject = TS_SUBJECT_TRACES};
    struct ts_pool *pool = ts_pool_new(2);
    struct ts_error error;
    assert_non_null(pool);
    if (ts_comparison_run(runs->a, runs->b, &options, pool, comparison, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_pool_free(pool);
}

static bool is_doubted(const struct ts_comparison *comparison, const char *words)
{
    for (size_t i = 0; i < comparison->doubt_count; i++)
        if (strstr(comparison->doubts[i], words))
            return true;
    return false;
}

/* A causal mask of zeros and `hidden`; with_more hides one entry more. */
static void add_mask(struct ts_bundle *bundle, const char *name, float hidden, bool with_more)
{
    float mask[COUNT];
    for (int i = 0; i < COUNT; i++)
        mask[i] = i % SIZE > i / SIZE || (with_more && i == 3 * SIZE) ? hidden : 0;
    made_add(bundle, name, mask, SHAPE(SIZE, SIZE));
}

/* Of a mask only the entries that hide nothing are compared, which are all 0: it holds two values all the same. */
static void test_masks_hold_two_values(void **state)
{
    (void)state;
    for (int with_more = 0; with_more < 2; with_more++)
        for (int same = 0; same < 2; same++) {
            struct paired runs;
            struct ts_comparison comparison;
            paired_start(&runs);
            for (int i = 0; i < 3; i++) {
                add_mask(runs.a, made_name("layers.%d.mask", i), -INFINITY, false);
                add_mask(runs.b, made_name("layers.%d.mask", i), same ? -INFINITY : -65504, with_more);
            }
            compare(&runs, &comparison);
            assert_false(is_doubted(&comparison, "one value everywhere"));
            ts_comparison_release(&comparison);
        }
}

/* A buffer of zeros is one also where the other side has what cannot be compared. */
static void test_zeros_beside_a_mask(void **state)
{
    float scores[COUNT], zeros[COUNT] = {0};
    struct paired runs;
    struct ts_comparison comparison;
    (void)state;
    paired_start(&runs);
    for (int i = 0; i < COUNT; i++)
        scores[i] = i % SIZE > i / SIZE ? -INFINITY : (float)(i * 37 % 101) - 50;
    made_add(runs.a, "layers.0.scores", scores, SHAPE(SIZE, SIZE));
    made_add(runs.b, "layers.0.scores", zeros, SHAPE(SIZE, SIZE));
    compare(&runs, &comparison);
    assert_true(is_doubted(&comparison, "1 tensor of the candidate holds one value everywhere"));
    ts_comparison_release(&comparison);
}

/* NaN in the same places is equal, and whoever reads "match" must know that nothing was compared there. */
static void test_nan_on_both_sides_is_told(void **state)
{
    (void)state;
    for (int sides = 1; sides < 3; sides++) {
        struct paired runs;
        struct ts_comparison comparison;
        paired_start(&runs);
        for (int layer = 0; layer < 4; layer++) {
            float *values = made_values(COUNT);
            made_add(runs.b, made_name("layers.%d.out", layer), values, SHAPE(SIZE, SIZE));
            for (int i = 0; i < SIZE && layer >= 2; i++)
                values[i * SIZE + 3] = NAN;
            made_add(runs.a, made_name("layers.%d.out", layer), values, SHAPE(SIZE, SIZE));
            if (sides == 2 && layer >= 2) { /* both, in another tensor */
                made_add(runs.a, made_name("layers.%d.mlp", layer), values, SHAPE(SIZE, SIZE));
                made_add(runs.b, made_name("layers.%d.mlp", layer), values, SHAPE(SIZE, SIZE));
            }
            free(values);
        }
        compare(&runs, &comparison);
        assert_int_equal(is_doubted(&comparison, "2 of 6 tensors hold NaN at the same places on both sides, the first "
                                                 "\"layers.2.mlp\" (16 of 256 elements)"),
                         sides == 2);
        assert_int_equal(is_doubted(&comparison, "NaN at the same places"), sides == 2);
        ts_comparison_release(&comparison);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_hold_two_values),
        cmocka_unit_test(test_zeros_beside_a_mask),
        cmocka_unit_test(test_nan_on_both_sides_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
