/* Rankings of logits, against numbers worked out by hand. */
#include <math.h>

#include "compare/ranking.h"
#include "opened.h"

struct made {
    struct ts_source *source[2];
    struct ts_tensor tensor[2];
    uint64_t shape[2];
    struct ts_pair pair;
    struct ts_arena arena;
};

static void make(struct made *made, const char *name, const float *a, const float *b, uint64_t rows, uint64_t width)
{
    const float *data[2] = {a, b};
    struct ts_error error;
    *made = (struct made){.shape = {rows, width}};
    ts_arena_init(&made->arena, 1 << 20);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ts_source_copy(data[i], (size_t)(rows * width) * 4, "memory", &made->source[i], &error),
                         TS_OK);
        made->tensor[i] = (struct ts_tensor){
            .name = name, .type = TS_F32, .rank = 2, .shape = made->shape, .source = made->source[i]};
        assert_int_equal(ts_tensor_finish(&made->tensor[i], &error), TS_OK);
    }
    made->pair.name = name;
    assert_true(ts_view_of(&made->tensor[0], &made->arena, &made->pair.a));
    assert_true(ts_view_of(&made->tensor[1], &made->arena, &made->pair.b));
}

static void drop(struct made *made)
{
    ts_source_release(made->source[0]);
    ts_source_release(made->source[1]);
    ts_arena_release(&made->arena);
}

static void probabilities_by_hand(void **state)
{
    /* KL of {.5, .5, 0} from {.25, .75, 0} is .5 ln 2 + .5 ln (2/3) */
    const float a[] = {0.5f, 0.5f, 0, 0.2f, 0.3f, 0.5f}, b[] = {0.25f, 0.75f, 0, 0.2f, 0.3f, 0.5f};
    struct made made;
    struct ts_ranking ranking;
    struct ts_error error;
    double divergence = 0.5 * log(2) + 0.5 * log(2.0 / 3.0);
    (void)state;
    make(&made, "layer_0_attn_probs", a, b, 2, 3);
    assert_true(ts_ranking_applies(&made.pair));
    assert_int_equal(ts_ranking_measure(&made.pair, &ranking, &error), TS_OK);
    assert_true(ranking.known && ranking.probabilities && ranking.rows == 2);
    assert_true(ranking.same_first == 0.5); /* the tie of the first row goes to the earlier one */
    assert_true(ranking.worst_rank == 2);
    assert_true(ranking.top_overlap == 1);
    assert_true(fabs(ranking.max_divergence - divergence) < 1e-9);
    assert_true(fabs(ranking.divergence - divergence / 2) < 1e-9);
    drop(&made);
}

static void logits_that_only_shift_choose_the_same(void **state)
{
    float a[24], b[24];
    struct made made;
    struct ts_ranking ranking;
    struct ts_error error;
    (void)state;
    for (int i = 0; i < 24; i++) {
        a[i] = (float)((i * 7) % 24) / 4;
        b[i] = a[i] + 100; /* softmax does not see it */
    }
    make(&made, "logits", a, b, 1, 24);
    assert_int_equal(ts_ranking_measure(&made.pair, &ranking, &error), TS_OK);
    assert_true(ranking.same_first == 1 && ranking.top_overlap == 1 && ranking.worst_rank == 1);
    assert_true(fabs(ranking.max_divergence) < 1e-6);
    drop(&made);
    for (int i = 0; i < 24; i++)
        b[i] = -a[i]; /* all in reverse */
    make(&made, "logits", a, b, 1, 24);
    assert_int_equal(ts_ranking_measure(&made.pair, &ranking, &error), TS_OK);
    assert_true(ranking.same_first == 0 && ranking.worst_rank == 24 && ranking.top_overlap == 0);
    assert_true(ranking.max_divergence > 1);
    drop(&made);
}

/* The one row of six hundred whose first choice moved is not left out. */
static void every_row_of_ordinary_logits_counts(void **state)
{
    static float a[600 * 3], b[600 * 3];
    struct made made;
    struct ts_ranking ranking;
    struct ts_error error;
    (void)state;
    for (int i = 0; i < 600 * 3; i++)
        a[i] = b[i] = (float)(i % 3);
    b[301 * 3] = 5;
    make(&made, "logits", a, b, 600, 3);
    assert_int_equal(ts_ranking_measure(&made.pair, &ranking, &error), TS_OK);
    assert_true(ranking.rows == 600 && ranking.all_rows == 600 && ranking.worst_rank == 2);
    assert_true(fabs(ranking.same_first - 599.0 / 600) < 1e-12);
    drop(&made);
}

static void weights_are_no_logits(void **state)
{
    const float a[] = {1, 2, 3, 4};
    struct made made;
    (void)state;
    make(&made, "lm_head.weight", a, a, 2, 2);
    assert_false(ts_ranking_applies(&made.pair));
    drop(&made);
    make(&made, "lm_head.input", a, a, 2, 2); /* what it was given */
    assert_false(ts_ranking_applies(&made.pair));
    drop(&made);
    make(&made, "logits", a, a, 2, 2);
    made.tensor[1].sampled = true; /* the largest of some */
    assert_false(ts_ranking_applies(&made.pair));
    drop(&made);
}

/* One rank's share of a vocabulary has a largest logit that need not be the largest; a padded one is whole. */
static void shares_of_a_vocabulary_choose_nothing(void **state)
{
    float values[32] = {0};
    (void)state;
    for (uint64_t width = 8; width < 16; width += 7) {
        struct made made;
        make(&made, "logits", values, values, 2, 16);
        made.pair.partial = true;
        assert_true(ts_view_slice(&made.pair.a, 1, 0, width, 1, &made.arena, &made.pair.a));
        assert_true(ts_view_slice(&made.pair.b, 1, 0, width, 1, &made.arena, &made.pair.b));
        assert_true(ts_ranking_applies(&made.pair) == (width == 15));
        drop(&made);
    }
}

static void names_of_logits(void **state)
{
    static const char *const names[] = {"logits", "model.lm_head", "output_probabilities", "block_2_probs"};
    const float a[] = {1, 2, 3, 4};
    struct made made;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        make(&made, names[i], a, a, 2, 2);
        assert_true(ts_ranking_applies(&made.pair));
        drop(&made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_by_hand),
        cmocka_unit_test(logits_that_only_shift_choose_the_same),
        cmocka_unit_test(every_row_of_ordinary_logits_counts),
        cmocka_unit_test(weights_are_no_logits),
        cmocka_unit_test(shares_of_a_vocabulary_choose_nothing),
        cmocka_unit_test(names_of_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
