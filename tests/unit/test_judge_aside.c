/* Tokens that a router sends elsewhere: those whose experts only changed places stay, and a run in which few or none
 * are left says so. */
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 32, CHOSEN = 2, EXPERTS = 16 };

/* Values of their own, and the same with a relative error. */
static void add_shaken(struct trace *trace, const char *name, double error)
{
    float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, error);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

/* Tokens 3 and 7 have their two experts the other way round. Whatever has a place for each expert is so as well: their
 * weights, which a bias makes unlike each other, and what comes out of each. wrong: the sum of token 7 is another one.
 */
static void judge_turned(bool weights_first, bool wrong, size_t expected)
{
    struct judged judged;
    int64_t chosen[2][TOKENS * CHOSEN];
    float weights[2][TOKENS * CHOSEN];
    float *each, *out, each_b[TOKENS * CHOSEN * WIDTH], out_b[TOKENS * WIDTH];
    trace_start(&judged.trace);
    each = made_values(TOKENS * CHOSEN * WIDTH);
    out = made_values(TOKENS * WIDTH);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.attn_%d", i), 1e-2);
    for (size_t row = 0; row < TOKENS; row++)
        for (size_t k = 0; k < CHOSEN; k++) {
            const size_t at = row * CHOSEN + k, to = row == 3 || row == 7 ? at + 1 - 2 * k : at;
            chosen[0][at] = chosen[1][to] = (int64_t)((row * 3 + k * 5) % EXPERTS);
            weights[0][at] = k ? 0.3f + 0.01f * (float)row : 0.7f - 0.01f * (float)row;
            weights[1][to] = weights[0][at] * (1 + 1e-2f * (float)dice_number());
            shake(each + at * WIDTH, each_b + to * WIDTH, WIDTH, 1e-2);
        }
    shake(out, out_b, TOKENS * WIDTH, 1e-2);
    for (size_t i = 7 * WIDTH; wrong && i < 8 * WIDTH; i++)
        out_b[i] = 2 * out[i];
    if (weights_first)
        trace_add(&judged.trace, "layers.0.mlp.gate_weights", weights[0], weights[1], SHAPE(TOKENS, CHOSEN));
    trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    if (!weights_first)
        trace_add(&judged.trace, "layers.0.mlp.gate_weights", weights[0], weights[1], SHAPE(TOKENS, CHOSEN));
    trace_add(&judged.trace, "layers.0.mlp.down_proj", each, each_b, SHAPE(TOKENS, CHOSEN, WIDTH));
    trace_add(&judged.trace, "layers.0.mlp.output", out, out_b, SHAPE(TOKENS, WIDTH));
    free(each);
    free(out);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, expected);
    assert_int_equal(judged.judgement.aside_count, 0);
    assert_non_null(strstr(judged.judgement.verdicts[weights_first ? 5 : 4].why, "in another order"));
    judged_end(&judged);
}

static void test_experts_in_another_order(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        judge_turned(first, false, SIZE_MAX);
        judge_turned(first, true, 7);
    }
}

/* So many products, a router that sends so many tokens elsewhere, and so many products behind it: of these nothing is
 * known but those tokens. `open` of them are left open. */
static void judge_left(size_t before, size_t moved, size_t behind, const char *note, size_t open)
{
    struct judged judged;
    int64_t chosen[2][TOKENS * CHOSEN];
    bool said = false;
    trace_start(&judged.trace);
    for (size_t i = 0; i < before; i++)
        add_shaken(&judged.trace, made_name("layers.0.product_%d", (int)i), 0.1);
    for (size_t i = 0; i < TOKENS * CHOSEN; i++) {
        chosen[0][i] = (int64_t)(i % CHOSEN);
        chosen[1][i] = (int64_t)(i % CHOSEN + (i % CHOSEN && i / CHOSEN < moved ? 7 : 0));
    }
    trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    for (size_t k = 0; k < behind; k++) {
        float *a = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        shake(a, b, TOKENS * WIDTH, 0.1);
        for (size_t i = 0; i < moved * WIDTH; i++)
            b[i] = a[i] + other[i];
        trace_add(&judged.trace, made_name("layers.1.later_%d", (int)k), a, b, SHAPE(TOKENS, WIDTH));
        free(a);
        free(other);
    }
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.aside_count, moved);
    assert_int_equal(judged.judgement.counts[TS_JUDGED_UNKNOWN], open);
    for (size_t i = 0; i < judged.judgement.note_count; i++)
        said = said || (strstr(judged.judgement.notes[i], note) && strstr(judged.judgement.notes[i], "longer prompt"));
    assert_int_equal(said, note[0] != 0);
    judged_end(&judged);
}

static void test_tokens_that_are_left(void **state)
{
    (void)state;
    judge_left(4, 5, 4, "", 0);
    judge_left(4, 8, 4, "from \"layers.1.later_0\" on, fewer than half of the tokens could be judged, 4 of 12", 0);
    /* none is left: most of the run cannot be told, or the last of it only */
    judge_left(4, 12, 6, "from \"layers.1.later_0\" on, all 12 tokens", 6);
    judge_left(6, 12, 4, "from \"layers.1.later_0\" on, all 12 tokens", 0);
}

/* All tokens take other experts in the first layer, whose output errs by so much, and so does all of the second. wrong:
 * one of its products has nothing to do with the reference. */
static void judge_back(double stream, bool wrong, size_t expected, size_t open)
{
    enum { BEFORE = 4, BEHIND = 6, WRONG = 3 };
    struct judged judged;
    int64_t chosen[2][TOKENS * CHOSEN];
    bool said = false;
    trace_start(&judged.trace);
    for (int i = 0; i < BEFORE; i++)
        add_shaken(&judged.trace, made_name("layers.0.product_%d", i), 0.1);
    for (size_t i = 0; i < TOKENS * CHOSEN; i++) {
        chosen[0][i] = (int64_t)(i % CHOSEN);
        chosen[1][i] = (int64_t)(i % CHOSEN + (i % CHOSEN ? 7 : 0));
    }
    trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    for (int k = -1; k < BEHIND; k++) {
        float *a = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        err(a, b, TOKENS * WIDTH, stream);
        trace_add(&judged.trace, k < 0 ? "layers.0.output" : made_name("layers.1.later_%d", k), a,
                  wrong && k == WRONG ? other : b, SHAPE(TOKENS, WIDTH));
        free(a);
        free(other);
    }
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, expected);
    assert_int_equal(judged.judgement.aside_count, TOKENS);
    assert_int_equal(judged.judgement.counts[TS_JUDGED_UNKNOWN], open);
    for (size_t i = 0; i < judged.judgement.note_count; i++)
        said = said || strstr(judged.judgement.notes[i], "by what came into them");
    assert_int_equal(said, !open);
    judged_end(&judged);
}

static void test_tokens_that_come_back(void **state)
{
    (void)state;
    judge_back(0.4, false, SIZE_MAX, 0);
    judge_back(0.2, true, 9, 0);
    judge_back(0.9, false, SIZE_MAX, 7); /* nothing is left of the reference */
}

/* Of five tokens the reference took the experts with the largest logits, whatever a bias would have changed. In the
 * candidate's last token, whose logits err by so much, expert 2 is chosen before expert 3 all the same, by a bias that
 * keeps it in its place in all others; far: an expert is chosen that no bias explains. */
static void judge_few_with_a_bias(float error, bool far, size_t expected)
{
    enum { FEW = 5, OF = 4, WIDE = 64 };
    static const float logits[FEW * OF] = {2, 1, -2, -1, 2, 0.5f, -3, 1, 1, 2, -2, -1, 0, 3, -1, 1, 3, -2, 0.5f, 1};
    struct judged judged;
    float own[FEW * OF];
    int64_t chosen[2][FEW * CHOSEN];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++) {
        float *a = made_values(FEW * WIDE), b[FEW * WIDE];
        shake(a, b, FEW * WIDE, 1e-2);
        trace_add(&judged.trace, made_name("layers.0.attn_%d", i), a, b, SHAPE(FEW, WIDE));
        free(a);
    }
    for (size_t i = 0; i < FEW * OF; i++)
        own[i] = logits[i] * (1 + 0.01f * error * (float)dice_number());
    own[FEW * OF - 2] += 0.3f * error;
    for (size_t row = 0; row < FEW; row++)
        for (size_t k = 0; k < CHOSEN; k++) {
            static const int64_t largest[FEW][CHOSEN] = {{0, 1}, {0, 3}, {1, 0}, {1, 3}, {0, 3}};
            chosen[0][row * CHOSEN + k] = chosen[1][row * CHOSEN + k] = largest[row][k];
        }
    chosen[1][FEW * CHOSEN - 1] = far ? 1 : 2;
    trace_add(&judged.trace, "layers.0.mlp.gate", logits, own, SHAPE(FEW, OF));
    trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], FEW, CHOSEN);
    expect_first(&judged, expected);
}

static void test_a_bias_that_few_tokens_hide(void **state)
{
    (void)state;
    judge_few_with_a_bias(1, false, SIZE_MAX);
    judge_few_with_a_bias(1, true, 5);
    judge_few_with_a_bias(1e-6f, false, 5); /* nothing has changed that could exchange them */
}

/* Two layers alike, and a router between them that sends so many tokens elsewhere. The last product of the second errs
 * more in those that are left: by chance, where they are few. */
static void judge_last(size_t moved, size_t expected)
{
    static const char *const names[] = {"layers.%d.first", "layers.%d.second", "layers.%d.third", "layers.%d.fourth"};
    struct judged judged;
    int64_t chosen[2][TOKENS * CHOSEN];
    trace_start(&judged.trace);
    for (int layer = 0; layer < 2; layer++) {
        for (int k = 0; k < 4; k++) {
            float *a = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
            shake(a, b, TOKENS * WIDTH, layer && k == 3 ? 0.75 : 0.1);
            for (size_t i = 0; layer && i < moved * WIDTH; i++)
                b[i] = a[i] + other[i];
            trace_add(&judged.trace, made_name(names[k], layer), a, b, SHAPE(TOKENS, WIDTH));
            free(a);
            free(other);
        }
        for (size_t i = 0; i < TOKENS * CHOSEN; i++) {
            chosen[0][i] = (int64_t)(i % CHOSEN);
            chosen[1][i] = (int64_t)(i % CHOSEN + (i % CHOSEN && i / CHOSEN < moved ? 7 : 0));
        }
        if (!layer)
            trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    }
    expect_first(&judged, expected);
}

static void test_growth_in_few_tokens(void **state)
{
    (void)state;
    judge_last(4, 8);
    judge_last(8, SIZE_MAX);
}

/* One number errs more than the others: a fault, unless tokens were set aside that it may come from. */
static void judge_number(size_t moved, float error, size_t expected)
{
    enum { MANY = 512 };
    struct judged judged;
    int64_t chosen[2][TOKENS * CHOSEN];
    float *a, b[TOKENS * MANY];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.attn_%d", i), 0.1);
    for (size_t i = 0; i < TOKENS * CHOSEN; i++) {
        chosen[0][i] = (int64_t)(i % CHOSEN);
        chosen[1][i] = (int64_t)(i % CHOSEN + (i % CHOSEN && i / CHOSEN < moved ? 7 : 0));
    }
    trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    a = made_values(TOKENS * MANY);
    shake(a, b, TOKENS * MANY, 0.1);
    b[9 * MANY + 5] += error;
    trace_add(&judged.trace, "layers.1.attn_context", a, b, SHAPE(TOKENS, MANY));
    free(a);
    expect_first(&judged, expected);
}

static void test_a_number_beside_tokens_set_aside(void **state)
{
    (void)state;
    judge_number(0, 4, 5);
    judge_number(3, 4, SIZE_MAX);
    judge_number(3, 40, 5);
}

/* All tokens but one took other experts, on near ties. Of its eight numbers little can be told: they err by so many
 * times what others do by chance. */
static void judge_last_token(double times, size_t expected)
{
    enum { MANY = 12, OF = 8, WIDE = 32, LEFT = 5 };
    struct judged judged;
    float *spread = made_values(MANY * OF), own[2][MANY * OF], *last = made_values(MANY * OF);
    float near_last[MANY * OF];
    int64_t chosen[2][MANY];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++) {
        float *a = made_values(MANY * WIDE), b[MANY * WIDE];
        shake(a, b, MANY * WIDE, 0.01);
        trace_add(&judged.trace, made_name("layers.0.part_%d", i), a, b, SHAPE(MANY, WIDE));
        free(a);
    }
    for (size_t i = 0; i < MANY * OF; i++)
        own[0][i] = own[1][i] = -1 + 0.2f * spread[i];
    for (size_t row = 0; row < MANY; row++) {
        own[0][row * OF + 1] = own[1][row * OF + 2] = 1;
        own[0][row * OF + 2] = own[1][row * OF + 1] = row == LEFT ? 0.5f : 0.99f;
        if (row == LEFT) {
            own[1][row * OF + 1] = 1;
            own[1][row * OF + 2] = 0.5f;
        }
        chosen[0][row] = 1;
        chosen[1][row] = row == LEFT ? 1 : 2;
    }
    shake(last, near_last, MANY * OF, times * 0.01);
    trace_add(&judged.trace, "layers.0.mlp.gate", own[0], own[1], SHAPE(MANY, OF));
    trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], MANY, 1);
    trace_add(&judged.trace, "layers.1.mlp.gate", last, near_last, SHAPE(MANY, OF));
    free(spread);
    free(last);
    expect_first(&judged, expected);
}

static void test_the_last_token_that_is_left(void **state)
{
    (void)state;
    judge_last_token(1, SIZE_MAX);
    judge_last_token(20, SIZE_MAX);
    judge_last_token(50, 6);
}

/* Of three hundred tokens some are looked at. A key that errs far more than others did so before, or took other
 * experts, and nobody knows; of the first one, which is looked at, it is known. */
static void judge_keys_of_all(size_t key, bool small, size_t expected)
{
    enum { ALL = 300, OF = 8 };
    struct judged judged;
    static float scores[ALL * ALL];
    float *table = made_values(ALL * ALL), *errors = made_values(ALL * ALL);
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++) {
        float *a = made_values(ALL * OF), *errors_a = made_values(ALL * OF), b[ALL * OF];
        for (size_t k = 0; k < ALL * OF; k++) {
            a[k] *= small && k / OF == key ? 0.02f : 1;
            b[k] = a[k] + 4e-3f * errors_a[k];
        }
        trace_add(&judged.trace, made_name("layers.0.part_%d", i), a, b, SHAPE(ALL, OF));
        free(a);
        free(errors_a);
    }
    for (size_t i = 0; i < ALL * ALL; i++)
        scores[i] = table[i] + (i % ALL == key ? 0.2f : 4e-3f) * errors[i];
    trace_add(&judged.trace, "layers.0.attn_scores", table, scores, SHAPE(ALL, 1, ALL));
    free(table);
    free(errors);
    expect_first(&judged, expected);
}

static void test_keys_that_are_not_looked_at(void **state)
{
    (void)state;
    judge_keys_of_all(108, false, SIZE_MAX);
    judge_keys_of_all(0, true, SIZE_MAX); /* a small one, which errs by as much as others do */
    judge_keys_of_all(0, false, 4);
}

/* Outputs of layers alone, of which one token errs by fifty times as much as the others in the last. */
static void judge_layers(enum ts_experts experts, size_t expected)
{
    enum { LAYERS = 2, LONG = 24 };
    struct ts_delta_options options = {0};
    struct judged judged;
    struct ts_pool *pool = ts_pool_new(2);
    struct ts_error error;
    ts_error_clear(&error);
    assert_non_null(pool);
    trace_start(&judged.trace);
    for (int layer = -1; layer < LAYERS; layer++) {
        float *a = made_values(LONG * WIDTH), b[LONG * WIDTH];
        shake(a, b, LONG * WIDTH, 2e-3);
        for (size_t i = 7 * WIDTH; layer == LAYERS - 1 && i < 8 * WIDTH; i++)
            b[i] = a[i] + 50 * (b[i] - a[i]);
        trace_add(&judged.trace, layer < 0 ? "embed" : made_name("layers.%d.output", layer), a, b, SHAPE(LONG, WIDTH));
        free(a);
    }
    assert_int_equal(
        ts_delta_run(pool, judged.trace.pairs, judged.trace.count, &options, judged.trace.deltas, NULL, &error), TS_OK);
    assert_int_equal(ts_judge_run_as(TS_SUBJECT_TRACES, experts, judged.trace.pairs, judged.trace.deltas,
                                     judged.trace.count, pool, &judged.judgement, &error),
                     TS_OK);
    ts_pool_free(pool);
    assert_int_equal(judged.judgement.first, expected);
    if (experts == TS_EXPERTS_SOME)
        assert_non_null(strstr(judged.judgement.notes[0], "different experts (7)"));
    judged_end(&judged);
}

/* A token that took another expert looks like one that is wrong, and only a model that is known to have some has that
 * excuse, however little experts add to the stream. */
static void test_a_model_that_is_known_to_have_experts(void **state)
{
    (void)state;
    judge_layers(TS_EXPERTS_UNTOLD, 2);
    judge_layers(TS_EXPERTS_NONE, 2);
    judge_layers(TS_EXPERTS_SOME, SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_that_is_known_to_have_experts),
        cmocka_unit_test(test_the_last_token_that_is_left),
        cmocka_unit_test(test_keys_that_are_not_looked_at),
        cmocka_unit_test(test_experts_in_another_order),
        cmocka_unit_test(test_tokens_that_are_left),
        cmocka_unit_test(test_growth_in_few_tokens),
        cmocka_unit_test(test_a_number_beside_tokens_set_aside),
        cmocka_unit_test(test_tokens_that_come_back),
        cmocka_unit_test(test_a_bias_that_few_tokens_hide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
