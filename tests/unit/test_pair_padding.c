/* Padding that a mask tells: of ones and zeros or added to scores, for all rows or for each, with windows, on both
 * sides or on one. */
#include <float.h>
#include <math.h>

#include "made_bundle.h"

enum { SEQUENCES = 3, ROWS = 7, WIDTH = 8, ALL = SEQUENCES * ROWS };

static const int lengths[SEQUENCES] = {4, ROWS, 2};

static bool is_token(int sequence, int row, bool behind)
{
    return behind ? row < lengths[sequence] : row >= ROWS - lengths[sequence];
}

enum form { ONES, ADDED, ADDED_TO_ALL, CAUSAL, WINDOW, OPEN_ROWS, FORMS };

/* What the query sees of the key. */
static bool sees(enum form form, int sequence, int query, int key, bool behind, bool padded)
{
    const bool token = !padded || is_token(sequence, key, behind);
    if (form == OPEN_ROWS && padded && !is_token(sequence, query, behind))
        return true; /* a row of padding that would see nothing */
    return token && (form < CAUSAL || key <= query) && (form != WINDOW || key > query - 3);
}

static void add_mask(struct ts_bundle *bundle, enum form form, bool behind, bool padded, float lowest)
{
    static const char *const names[FORMS] = {"attention_mask",    "attention_mask",           "model.extended_mask",
                                             "model.causal_mask", "layers.0.attn.local_mask", "model.attn_mask"};
    const int queries = form < CAUSAL ? 1 : ROWS;
    float *values = made_values((size_t)(ALL * queries));
    const uint64_t shape[4] = {SEQUENCES, 1, (uint64_t)queries, ROWS};
    for (int i = 0; i < ALL * queries; i++) {
        const bool seen = sees(form, i / (queries * ROWS), i / ROWS % queries, i % ROWS, behind, padded);
        values[i] = form == ONES ? (float)seen : seen ? 0 : lowest;
    }
    if (form < ADDED_TO_ALL)
        made_add(bundle, names[form], values, SHAPE(SEQUENCES, ROWS));
    else
        made_add(bundle, names[form], values, 4, shape);
    free(values);
}

/* A tensor with junk where there is padding, one of them as a list of rows. */
static void add_run(struct ts_bundle *bundle, const float *values, bool behind, float junk)
{
    float here[ALL * WIDTH];
    for (int i = 0; i < ALL * WIDTH; i++)
        here[i] = is_token(i / (ROWS * WIDTH), i / WIDTH % ROWS, behind) ? values[i] : junk * (float)(i % 5 - 2);
    made_add(bundle, "model.layers.0.input_layernorm", here, SHAPE(SEQUENCES, ROWS, WIDTH));
    made_add(bundle, "model.layers.0.mlp.down_proj", here, SHAPE(ALL, WIDTH));
}

static void test_masks(void **state)
{
    (void)state;
    for (int way = 0; way < FORMS * 2 * 3; way++) {
        const enum form form = (enum form)(way % FORMS);
        const bool behind = way / FORMS % 2;
        const int sides = way / (2 * FORMS); /* both, A, B */
        struct paired paired;
        float *values;
        if (form == OPEN_ROWS && behind)
            continue; /* rows behind the tokens see these */
        values = made_values(ALL * WIDTH);
        paired_start(&paired);
        if (sides != 2)
            add_mask(paired.a, form, behind, true, -1e9f);
        if (sides != 1)
            add_mask(paired.b, form, behind, true, sides ? -INFINITY : -FLT_MAX);
        add_run(paired.a, values, behind, 1);
        add_run(paired.b, values, behind, 3);
        paired_run(&paired, NULL);
        assert_int_equal(paired.status, TS_OK);
        for (int i = 0; i < 2; i++) {
            const char *name = i ? "model.layers.0.mlp.down_proj" : "model.layers.0.input_layernorm";
            const struct ts_pair *pair = paired_find(&paired, name, name);
            assert_true(pair->padded);
            assert_int_equal(pair->a.shape[0], 4 + ROWS + 2);
            assert_true(pair_error(pair) == 0);
            assert_non_null(
                strstr(pair->recipe, behind ? "pack the first 4+7+2 of 3x7 rows" : "pack the last 4+7+2 of 3x7 rows"));
        }
        free(values);
        paired_end(&paired);
    }
}

/* Masks that hide no padding, or not the same on both sides: what differs is compared. */
static void test_masks_that_tell_nothing(void **state)
{
    (void)state;
    for (int way = 0; way < 2 * FORMS; way++) {
        const enum form form = (enum form)(way % FORMS);
        const bool unlike = way / FORMS;
        float *values = made_values(ALL * WIDTH);
        struct paired paired;
        paired_start(&paired);
        add_mask(paired.a, form, false, unlike, -1e9f);
        add_mask(paired.b, form, false, false, -1e9f);
        add_run(paired.a, values, false, 1);
        add_run(paired.b, values, false, 3);
        paired_run(&paired, NULL);
        for (size_t i = 0; i < paired.pairing.count; i++)
            assert_false(paired.pairing.pairs[i].padded);
        assert_true(pair_error(paired_find(&paired, "model.layers.0.mlp.down_proj", NULL)) > 0.1);
        free(values);
        paired_end(&paired);
    }
}

/* Two experts of every token, of which two tokens chose others behind a fault, so that one stands in the other's place:
 * no sequences of two that were moved. */
static void test_experts_that_changed_places(void **state)
{
    enum { TOKENS = 24 };
    int32_t chosen[2][TOKENS * 2];
    struct paired paired;
    float *a = made_values(TOKENS * 2 * WIDTH), *b = made_values(TOKENS * 2 * WIDTH);
    (void)state;
    for (int i = 0; i < TOKENS; i++) {
        const bool fault = i == 9 || i == 17;
        chosen[0][2 * i] = fault ? 3 : i % 8;
        chosen[0][2 * i + 1] = fault ? 5 : (i + 3) % 8;
        chosen[1][2 * i] = fault ? 5 : i % 8;
        chosen[1][2 * i + 1] = fault ? 3 : (i + 3) % 8;
    }
    paired_start(&paired);
    for (int side = 0; side < 2; side++) {
        struct ts_bundle *bundle = side ? paired.b : paired.a;
        float bits[TOKENS * 2];
        memcpy(bits, chosen[side], sizeof bits);
        made_add(bundle, "model.layers.0.mlp.gate.2", bits, SHAPE(TOKENS, 2));
        ts_bundle_tensor(bundle, "model.layers.0.mlp.gate.2")->type = TS_I32;
    }
    made_add(paired.a, "model.layers.0.mlp.experts.act_fn", a, SHAPE(TOKENS * 2, WIDTH));
    made_add(paired.b, "model.layers.0.mlp.experts.act_fn", b, SHAPE(TOKENS * 2, WIDTH));
    paired_run(&paired, NULL);
    for (size_t i = 0; i < paired.pairing.count; i++)
        assert_false(paired.pairing.pairs[i].padded);
    free(a);
    free(b);
    paired_end(&paired);
}

/* A causal mask of one sequence is no batch of as many sequences as the longest has tokens: where there are as many
 * heads as tokens, nothing of their scores is padding. */
static void test_causal_mask_is_no_batch(void **state)
{
    float mask[2][ROWS * ROWS], *scores = made_values(ROWS * ROWS * ROWS), *others = made_values(ROWS * ROWS * ROWS);
    struct paired paired;
    (void)state;
    for (int i = 0; i < ROWS * ROWS; i++) {
        mask[0][i] = i % ROWS <= i / ROWS ? 0 : -FLT_MAX;
        mask[1][i] = i % ROWS <= i / ROWS ? 0 : -65504;
    }
    for (int i = 0; i < ROWS * ROWS * ROWS; i++)
        others[i] = i / ROWS % ROWS <= i / (ROWS * ROWS) ? scores[i] : others[i];
    paired_start(&paired);
    made_add(paired.a, "attn_mask", mask[0], SHAPE(ROWS, ROWS));
    made_add(paired.b, "attn_mask", mask[1], SHAPE(ROWS, ROWS));
    made_add(paired.a, "layers.0.scores", scores, SHAPE(ROWS, ROWS, ROWS));
    made_add(paired.b, "layers.0.scores", others, SHAPE(ROWS, ROWS, ROWS));
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 2);
    for (size_t i = 0; i < 2; i++)
        assert_false(paired.pairing.pairs[i].padded);
    assert_true(pair_error(paired_find(&paired, "layers.0.scores", NULL)) > 0.1);
    paired_end(&paired);
    free(scores);
    free(others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal_mask_is_no_batch),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_masks_that_tell_nothing),
        cmocka_unit_test(test_experts_that_changed_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
