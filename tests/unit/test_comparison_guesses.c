/* Pairs whose layout is a guess: what they say of the candidate, and what they do not. */
#include "compare/comparison.h"
#include "made_bundle.h"

enum { LAYERS = 4, TOKENS = 9, HEADS = 4, SIZE = 16, WIDTH = HEADS * SIZE, COUNT = TOKENS * WIDTH };

enum q_layout { BY_HEAD, STRANGE };

/* [tokens, heads, size] as [heads, tokens, size]; in a strange layout the numbers of each head and token stand in an
 * order of their own, which no recipe knows. */
static void lay(const float *from, enum q_layout layout, float *to)
{
    for (size_t token = 0; token < TOKENS; token++)
        for (size_t head = 0; head < HEADS; head++)
            for (size_t i = 0; i < SIZE; i++) {
                const size_t row = head * TOKENS + token;
                const size_t place = layout == STRANGE ? (i * 5 + row * row + 3) % SIZE : i;
                to[row * SIZE + place] = from[(token * HEADS + head) * SIZE + i];
            }
}

/* q and what the layer gives, for each layer. q: what the candidate has, rolled from layer wrong_q on; out: other
 * numbers from layer wrong_out on. */
static void make_runs(struct paired *runs, enum q_layout layout, int wrong_q, int wrong_out)
{
    paired_start(runs);
    for (int layer = 0; layer < LAYERS; layer++) {
        float *q = made_values(COUNT), *out = made_values(COUNT), *other = made_values(COUNT),
              *laid = made_values(COUNT);
        made_add(runs->a, made_name("layers.%d.q", layer), q, SHAPE(TOKENS, WIDTH));
        made_add(runs->a, made_name("layers.%d.out", layer), out, SHAPE(TOKENS, WIDTH));
        if (layer >= wrong_q) {
            const float first = q[0];
            memmove(q, q + 1, (COUNT - 1) * sizeof *q);
            q[COUNT - 1] = first;
        }
        lay(q, layout, laid);
        made_add(runs->b, made_name("layers.%d.q", layer), laid, SHAPE(HEADS, TOKENS, SIZE));
        made_add(runs->b, made_name("layers.%d.out", layer), layer >= wrong_out ? other : out, SHAPE(TOKENS, WIDTH));
        free(q);
        free(out);
        free(other);
        free(laid);
    }
}

static void compare(struct paired *runs, const struct ts_comparison_options *options, struct ts_comparison *comparison)
{
    struct ts_pool *pool = ts_pool_new(2);
    struct ts_error error;
    assert_non_null(pool);
    if (ts_comparison_run(runs->a, runs->b, options, pool, comparison, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_pool_free(pool);
}

static const struct ts_verdict *verdict_of(const struct ts_comparison *comparison, const char *name)
{
    for (size_t i = 0; i < comparison->pairing.count; i++)
        if (strcmp(comparison->pairing.pairs[i].name, name) == 0)
            return &comparison->judgement.verdicts[i];
    fail_msg("no pair %s", name);
    return NULL;
}

static const struct ts_comparison_options plain = {.pair = {.by_content = true}, .subject = TS_SUBJECT_TRACES};

/* Nothing is wrong but that nobody knows the layout of q: the run does not differ, and is not a match either. */
static void test_unknown_layout(void **state)
{
    struct ts_comparison comparison;
    struct paired runs;
    (void)state;
    make_runs(&runs, STRANGE, LAYERS, LAYERS);
    compare(&runs, &plain, &comparison);
    assert_int_equal(comparison.outcome, TS_OUTCOME_INCOMPLETE);
    assert_int_equal(comparison.judgement.counts[TS_JUDGED_DIFFERS], 0);
    assert_int_equal(comparison.judgement.counts[TS_JUDGED_UNKNOWN], LAYERS);
    assert_int_equal(comparison.judgement.first, SIZE_MAX);
    for (int layer = 0; layer < LAYERS; layer++)
        assert_non_null(strstr(verdict_of(&comparison, made_name("layers.%d.q", layer))->why, "not known"));
    ts_comparison_release(&comparison);
}

/* A fault in layer 2 is found there, although q has agreed in no layer. */
static void test_fault_behind_an_unknown_layout(void **state)
{
    struct ts_comparison comparison;
    struct paired runs;
    (void)state;
    make_runs(&runs, STRANGE, LAYERS, 2);
    compare(&runs, &plain, &comparison);
    assert_int_equal(comparison.outcome, TS_OUTCOME_DIFFER);
    assert_string_equal(comparison.pairing.pairs[comparison.judgement.first].name, "layers.2.out");
    assert_int_equal(verdict_of(&comparison, "layers.0.q")->judged, TS_JUDGED_UNKNOWN);
    assert_int_equal(verdict_of(&comparison, "layers.3.q")->judged, TS_JUDGED_UNKNOWN);
    ts_comparison_release(&comparison);
}

/* Where everything behind it is wrong, a guess that does not agree stays what it seems to be. In a layout that other
 * layers prove it is no guess at all. */
static void test_fault_in_a_guess(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct ts_comparison comparison;
        struct paired runs;
        make_runs(&runs, BY_HEAD, wrong, wrong);
        compare(&runs, &plain, &comparison);
        assert_int_equal(comparison.outcome, TS_OUTCOME_DIFFER);
        assert_string_equal(comparison.pairing.pairs[comparison.judgement.first].name, made_name("layers.%d.q", wrong));
        assert_int_equal(comparison.judgement.counts[TS_JUDGED_UNKNOWN], 0);
        ts_comparison_release(&comparison);
    }
}

/* Other numbers are others in every layout; and what the user calls too much is. */
static void test_other_numbers(void **state)
{
    (void)state;
    for (int tolerance = 0; tolerance < 2; tolerance++) {
        struct ts_comparison_options options = plain;
        struct ts_comparison comparison;
        struct paired runs;
        float *one = made_values(COUNT), *other = made_values(COUNT);
        options.fixed_tolerance = tolerance;
        paired_start(&runs);
        made_add(runs.a, "q", one, SHAPE(TOKENS, WIDTH));
        if (tolerance)
            lay(one, STRANGE, other);
        made_add(runs.b, "q", other, SHAPE(HEADS, TOKENS, SIZE));
        compare(&runs, &options, &comparison);
        assert_true(comparison.pairing.pairs[0].guess);
        assert_int_equal(comparison.outcome, TS_OUTCOME_DIFFER);
        free(one);
        free(other);
        ts_comparison_release(&comparison);
    }
}

/* Of checkpoints every tensor speaks for itself. */
static void test_weights_of_other_sizes(void **state)
{
    struct ts_comparison_options options = plain;
    struct ts_comparison comparison;
    struct paired runs;
    float *one = made_values(COUNT), *other = made_values(COUNT);
    (void)state;
    options.subject = TS_SUBJECT_CHECKPOINTS;
    paired_start(&runs);
    made_add(runs.a, "layers.0.up.weight", one, SHAPE(TOKENS, WIDTH));
    made_add(runs.b, "layers.0.up.weight", other, SHAPE(TOKENS - 2, WIDTH));
    made_add(runs.a, "layers.0.down.weight", one, SHAPE(TOKENS, WIDTH));
    made_add(runs.b, "layers.0.down.weight", other, SHAPE(TOKENS, WIDTH));
    compare(&runs, &options, &comparison);
    assert_int_equal(verdict_of(&comparison, "layers.0.up.weight")->judged, TS_JUDGED_UNKNOWN);
    assert_int_equal(verdict_of(&comparison, "layers.0.down.weight")->judged, TS_JUDGED_DIFFERS);
    free(one);
    free(other);
    ts_comparison_release(&comparison);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_layout),         cmocka_unit_test(test_fault_behind_an_unknown_layout),
        cmocka_unit_test(test_fault_in_a_guess),       cmocka_unit_test(test_other_numbers),
        cmocka_unit_test(test_weights_of_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
