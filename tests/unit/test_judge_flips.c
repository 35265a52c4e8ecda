/* The judge where the router's logits were captured and not what it chose: tokens that took other experts on a near tie
 * are found by their logits, and nothing else hides behind them. */
#include "judged_trace.h"

enum {
    TOKENS = 40,
    WIDTH = 32,
    EXPERTS = 8,
    LAYERS = 4,
    PARTS = 4,
    PER_LAYER = PARTS + 2,
    GATE = PARTS,
    MLP = GATE + 1
};

#define NOISE 1e-3

/* What happens in one layer: tokens whose k-th and next expert are nearly tied and change places, and tokens whose
 * result is another's. Ends at TOKENS. */
struct layer {
    size_t tied[4], strays[4];
    size_t kept;
    bool wrong_logits; /* the first of those that stray has the logits of the token before it */
    double shaken;     /* its logits err so many times as much as others, and those that stray are so much larger */
    float larger;
};

static bool is_among(size_t token, const size_t *tokens)
{
    for (size_t i = 0; i < 4 && tokens[i] < TOKENS; i++)
        if (tokens[i] == token)
            return true;
    return false;
}

#define NONE TOKENS

/* Logits a half apart or more, each token's in an order of its own; those of tied tokens meet at rank `kept`. */
static void add_logits(struct trace *trace, const char *name, const struct layer *layer, double noise)
{
    float a[TOKENS * EXPERTS], b[TOKENS * EXPERTS];
    for (size_t token = 0; token < TOKENS; token++) {
        float *row = a + token * EXPERTS, *other = b + token * EXPERTS;
        bool shaken = layer->shaken > 0 && layer->strays[0] == token;
        size_t upper = 0, lower = 0, turn = 2 * (token % 4) + 1;
        for (size_t i = 0; i < EXPERTS; i++) {
            size_t rank = (i * turn + token) % EXPERTS;
            row[i] = (float)(2.0 - 0.6 * (double)rank + 0.1 * dice_number());
            upper = rank == layer->kept - 1 ? i : upper;
            lower = rank == layer->kept ? i : lower;
        }
        if (is_among(token, layer->tied))
            row[lower] = row[upper] - (float)(0.1 * noise);
        for (size_t i = 0; i < EXPERTS; i++)
            other[i] = row[i] + (float)(noise * dice_number() * (shaken ? layer->shaken : 1));
        if (is_among(token, layer->tied))
            other[lower] = other[upper] + (float)(0.1 * noise);
        if (layer->wrong_logits && layer->strays[0] == token)
            memcpy(other, other - EXPERTS, EXPERTS * sizeof *other);
    }
    trace_add(trace, name, a, b, SHAPE(TOKENS, EXPERTS));
}

/* Logits without any order: of many tokens some are nearly tied at any rank. */
static void add_random_logits(struct trace *trace, const char *name, double noise)
{
    float *a = made_values(TOKENS * EXPERTS), b[TOKENS * EXPERTS];
    for (size_t i = 0; i < TOKENS * EXPERTS; i++)
        b[i] = a[i] + (float)(noise * dice_number());
    trace_add(trace, name, a, b, SHAPE(TOKENS, EXPERTS));
    free(a);
}

static void add_rows(struct trace *trace, const char *name, const struct layer *layer, double noise)
{
    float *a = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, noise);
    for (size_t token = 0; token < TOKENS && layer; token++)
        for (size_t i = token * WIDTH; i < (token + 1) * WIDTH && is_among(token, layer->strays); i++)
            b[i] = other[i] * (layer->larger > 0 ? layer->larger : 1);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    free(other);
}

static bool dense; /* what comes before a gate is no wider than it, as an activation's */

static void run_layers(struct judged *judged, const struct layer *layers, bool ordered, double level)
{
    trace_start(&judged->trace);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        char name[64];
        double noise = level < 0 && layer == 0 ? 1e-6 : fabs(level); /* negative: it starts behind the first layer */
        for (int i = 0; i < PARTS; i++) {
            snprintf(name, sizeof name, "layers.%zu.attn.part_%c", layer, 'a' + i);
            if (dense && i == PARTS - 1)
                add_random_logits(&judged->trace, name, noise);
            else
                add_rows(&judged->trace, name, NULL, noise);
        }
        snprintf(name, sizeof name, "layers.%zu.mlp.gate", layer);
        if (ordered)
            add_logits(&judged->trace, name, &layers[layer], noise);
        else
            add_random_logits(&judged->trace, name, noise);
        snprintf(name, sizeof name, "layers.%zu.mlp", layer);
        add_rows(&judged->trace, name, &layers[layer], noise);
    }
}

#define CALM                                                                                                           \
    {                                                                                                                  \
        .tied = {NONE}, .strays = {NONE}, .kept = 2                                                                    \
    }

static void test_ties_of_the_logits_alone(void **state)
{
    static const struct layer once[LAYERS] = {
        CALM, {.tied = {5, 19, NONE}, .strays = {5, 19, NONE}, .kept = 2}, CALM, CALM};
    static const struct layer thrice[LAYERS] = {CALM,
                                                {.tied = {5, 19, NONE}, .strays = {5, 19, NONE}, .kept = 2},
                                                {.tied = {30, NONE}, .strays = {30, NONE}, .kept = 2},
                                                CALM};
    struct judged judged;
    (void)state;
    run_layers(&judged, once, true, NOISE);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.aside_count, 2);
    assert_int_equal(judged.judgement.aside[0], 5);
    assert_int_equal(judged.judgement.aside[1], 19);
    /* two tokens may stray at some rank by chance: how many experts each takes is a guess */
    assert_true(judged.judgement.guessed && judged.judgement.guessed[0] && judged.judgement.guessed[1]);
    assert_non_null(strstr(judged.judgement.verdicts[PER_LAYER + GATE].why, "2 tokens may have taken other experts;"));
    assert_int_equal(judged.judgement.note_count, 1);
    assert_non_null(strstr(judged.judgement.notes[0], "too few tokens tell"));
    judged_end(&judged);
    run_layers(&judged, thrice, true, NOISE);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.aside_count, 3);
    assert_null(judged.judgement.guessed);
    assert_non_null(
        strstr(judged.judgement.verdicts[PER_LAYER + GATE].why, "2 tokens took other experts on a near tie;"));
    assert_int_equal(judged.judgement.note_count, 0);
    judged_end(&judged);
    dense = true; /* then nothing is chosen */
    run_layers(&judged, once, true, NOISE);
    expect_first(&judged, PER_LAYER + MLP);
    dense = false;
}

/* However many experts a token has, as long as it is the same number everywhere. */
static void test_how_many_experts(void **state)
{
    struct judged judged;
    (void)state;
    for (size_t kept = 1; kept <= 6; kept++) {
        const struct layer same[LAYERS] = {CALM,
                                           {.tied = {7, NONE}, .strays = {7, NONE}, .kept = kept},
                                           CALM,
                                           {.tied = {20, NONE}, .strays = {20, NONE}, .kept = kept}};
        const struct layer others[LAYERS] = {
            CALM,
            {.tied = {7, NONE}, .strays = {7, NONE}, .kept = kept},
            CALM,
            {.tied = {20, NONE}, .strays = {20, NONE}, .kept = kept == 6 ? 1 : kept + 1}};
        run_layers(&judged, same, true, NOISE);
        expect_first(&judged, SIZE_MAX);
        run_layers(&judged, others, true, NOISE);
        judged_run(&judged);
        assert_int_not_equal(judged.judgement.first, SIZE_MAX);
        judged_end(&judged);
    }
}

static void test_tokens_without_a_tie(void **state)
{
    static const struct layer one[LAYERS] = {CALM, {.tied = {NONE}, .strays = {19, NONE}, .kept = 2}, CALM, CALM},
                              beside[LAYERS] = {CALM,
                                                {.tied = {5, 11, NONE}, .strays = {5, 11, 19, NONE}, .kept = 2},
                                                CALM,
                                                CALM},
                              later[LAYERS] = {{.tied = {5, 11, NONE}, .strays = {5, 11, NONE}, .kept = 2},
                                               CALM,
                                               {.tied = {NONE}, .strays = {19, NONE}, .kept = 2},
                                               CALM};
    struct judged judged;
    (void)state;
    run_layers(&judged, one, true, NOISE);
    expect_first(&judged, PER_LAYER + MLP);
    run_layers(&judged, beside, true, NOISE); /* two flipped, and one is wrong */
    expect_first(&judged, PER_LAYER + MLP);
    run_layers(&judged, later, true, NOISE);
    expect_first(&judged, 2 * PER_LAYER + MLP);
}

/* Ties at the rank that would explain it, which nobody takes notice of: that is not where the choice is made. */
static void test_ties_that_say_nothing(void **state)
{
    static const struct layer one[LAYERS] = {
        CALM, {.tied = {5, 19, 30, NONE}, .strays = {19, NONE}, .kept = 2}, CALM, CALM};
    static const struct layer some[LAYERS] = {CALM,
                                              {.tied = {3, 9, 14, 25}, .strays = {3, 9, 14, NONE}, .kept = 2},
                                              {.tied = {5, 19, 30, NONE}, .strays = {5, 19, NONE}, .kept = 2},
                                              CALM};
    struct judged judged;
    (void)state;
    run_layers(&judged, one, true, NOISE);
    expect_first(&judged, PER_LAYER + MLP);
    run_layers(&judged, some, true, NOISE); /* five do, and two do not */
    expect_first(&judged, PER_LAYER + MLP);
}

/* Logits that are wrong give other experts as well. */
static void test_wrong_logits(void **state)
{
    static const struct layer one[LAYERS] = {
        CALM, {.tied = {NONE}, .strays = {19, NONE}, .kept = 2, .wrong_logits = true}, CALM, CALM};
    struct judged judged;
    (void)state;
    run_layers(&judged, one, true, NOISE);
    judged_run(&judged);
    assert_in_range(judged.judgement.first, PER_LAYER + GATE, PER_LAYER + MLP);
    assert_int_equal(judged.judgement.aside_count, 0);
    judged_end(&judged);
}

/* Ties that explain what they should not: the token was wrong before it was routed, its result is larger than any
 * expert's, the logits of all tokens are wrong, or it is one tie against one token without. */
static void test_ties_that_excuse_nothing(void **state)
{
    static const struct layer
        shaken[LAYERS] = {CALM, {.tied = {19, NONE}, .strays = {19, NONE}, .kept = 2, .shaken = 20}, CALM, CALM},
        large[LAYERS] = {CALM, {.tied = {19, NONE}, .strays = {19, NONE}, .kept = 2, .larger = 8}, CALM, CALM},
        good[LAYERS] = {CALM, {.tied = {19, NONE}, .strays = {19, NONE}, .kept = 2}, CALM, CALM},
        even[LAYERS] = {{.tied = {19, NONE}, .strays = {19, NONE}, .kept = 2},
                        CALM,
                        {.tied = {NONE}, .strays = {7, NONE}, .kept = 2},
                        CALM};
    struct judged judged;
    (void)state;
    run_layers(&judged, good, true, NOISE);
    expect_first(&judged, SIZE_MAX);
    run_layers(&judged, shaken, true, NOISE);
    judged_run(&judged);
    assert_in_range(judged.judgement.first, PER_LAYER + GATE, PER_LAYER + MLP);
    assert_int_equal(judged.judgement.aside_count, 0);
    judged_end(&judged);
    run_layers(&judged, large, true, NOISE);
    expect_first(&judged, PER_LAYER + MLP);
    run_layers(&judged, good, true, -NOISE);
    judged_run(&judged);
    assert_int_not_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.aside_count, 0);
    judged_end(&judged);
    run_layers(&judged, even, true, NOISE);
    expect_first(&judged, MLP);
}

/* Tokens stray in several layers and no rank tells why: the choice is made by more than the logits. Their errors must
 * be such that so many tokens may have met a tie. */
static void judge_other_rule(const struct layer *layers, double noise, size_t expected)
{
    struct judged judged;
    run_layers(&judged, layers, false, noise);
    judged_run(&judged);
    if (expected == SIZE_MAX) {
        assert_int_equal(judged.judgement.note_count, 1);
        assert_non_null(strstr(judged.judgement.notes[0], "does not follow from the logits alone"));
        assert_non_null(strstr(judged.judgement.notes[0], "capture the chosen experts"));
        assert_int_equal(judged.judgement.aside_count, 2);
        assert_true(judged.judgement.guessed && judged.judgement.guessed[0] && judged.judgement.guessed[1]);
    }
    ts_judgement_release(&judged.judgement);
    expect_first(&judged, expected);
}

static void test_choices_by_another_rule(void **state)
{
    static const struct layer two[LAYERS] = {{.tied = {NONE}, .strays = {7, NONE}, .kept = 2},
                                             {.tied = {NONE}, .strays = {22, NONE}, .kept = 2},
                                             CALM,
                                             CALM},
                              once[LAYERS] = {{.tied = {NONE}, .strays = {7, NONE}, .kept = 2}, CALM, CALM, CALM},
                              ends[LAYERS] = {{.tied = {NONE}, .strays = {0, NONE}, .kept = 2},
                                              {.tied = {NONE}, .strays = {22, NONE}, .kept = 2},
                                              CALM,
                                              CALM},
                              many[LAYERS] = {{.tied = {NONE}, .strays = {7, 12, 20, 31}, .kept = 2},
                                              {.tied = {NONE}, .strays = {22, NONE}, .kept = 2},
                                              CALM,
                                              CALM};
    (void)state;
    judge_other_rule(two, NOISE, SIZE_MAX);
    judge_other_rule(two, 1e-6, MLP);   /* nothing is tied as nearly as that */
    judge_other_rule(once, NOISE, MLP); /* one place: a bug may well be there */
    judge_other_rule(ends, NOISE, MLP); /* the first token alone is no accident */
    judge_other_rule(many, NOISE, MLP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties_of_the_logits_alone),
        cmocka_unit_test(test_how_many_experts),
        cmocka_unit_test(test_tokens_without_a_tie),
        cmocka_unit_test(test_ties_that_say_nothing),
        cmocka_unit_test(test_wrong_logits),
        cmocka_unit_test(test_ties_that_excuse_nothing),
        cmocka_unit_test(test_choices_by_another_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
