/* The judge where the router's logits were captured and not what it chose: tokens that took other experts on a near tie
 * are found by their logits, and nothing else hides behind them. */
#include "compare/judge_state.h"
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
    double noise; /* its own, where it is not that of the run */
    bool unseen;  /* what comes out was not captured: what the next layer makes of it is */
    double wrong; /* what comes out errs by so much, in every token */
    bool carried; /* attention brings every eighth token ten times the error */
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

static void add_weights(struct trace *trace, const char *name, size_t chosen, double noise)
{
    float *a = made_values(TOKENS * chosen), *b = made_values(TOKENS * chosen);
    shake(a, b, TOKENS * chosen, noise);
    trace_add(trace, name, a, b, SHAPE(TOKENS, chosen));
    free(a);
    free(b);
}

static void add_rows(struct trace *trace, const char *name, const struct layer *layer, double noise)
{
    float *a = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, noise);
    for (size_t token = 0; token < TOKENS && layer; token++)
        for (size_t i = token * WIDTH; i < (token + 1) * WIDTH && is_among(token, layer->strays); i++)
            b[i] = a[i] + (other[i] * (layer->larger > 0 ? layer->larger : 1) - a[i]) / sqrtf((float)layer->kept);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    free(other);
}

static void add_carried(struct trace *trace, const char *name, double noise)
{
    float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, noise);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        b[i] = i / WIDTH % 8 == 3 ? a[i] + 10 * (b[i] - a[i]) : b[i];
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

static void add_column(struct trace *trace, const char *name, double noise)
{
    float *a = made_values(TOKENS), b[TOKENS];
    shake(a, b, TOKENS, noise);
    trace_add(trace, name, a, b, SHAPE(TOKENS, 1));
    free(a);
}

static bool dense;   /* what comes before a gate is no wider than it, as an activation's */
static bool weighed; /* weights of the chosen were captured */
static bool shared;  /* an expert of every token, with a gate of its own */
static const char *router = "gate";

static void run_layers(struct judged *judged, const struct layer *layers, bool ordered, double level)
{
    trace_start(&judged->trace);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        char name[64];
        double noise = level < 0 && layer == 0 ? 1e-6 : fabs(level); /* negative: it starts behind the first layer */
        noise = layers[layer].noise > 0 ? layers[layer].noise : noise;
        for (int i = 0; i < PARTS; i++) {
            snprintf(name, sizeof name, "layers.%zu.attn.part_%c", layer, 'a' + i);
            if (layers[layer].carried)
                add_carried(&judged->trace, name, noise);
            else if (dense && i == PARTS - 1)
                add_random_logits(&judged->trace, name, noise);
            else
                add_rows(&judged->trace, name, layer && layers[layer - 1].unseen ? &layers[layer - 1] : NULL, noise);
        }
        snprintf(name, sizeof name, "layers.%zu.mlp.%s", layer, router);
        if (ordered)
            add_logits(&judged->trace, name, &layers[layer], noise);
        else
            add_random_logits(&judged->trace, name, noise);
        snprintf(name, sizeof name, "layers.%zu.mlp.%s.weights", layer, router);
        if (weighed)
            add_weights(&judged->trace, name, layers[layer].kept, noise);
        snprintf(name, sizeof name, "layers.%zu.mlp.shared_expert_gate", layer);
        if (shared)
            add_column(&judged->trace, name, noise);
        snprintf(name, sizeof name, "layers.%zu.mlp", layer);
        if (!layers[layer].unseen)
            add_rows(&judged->trace, name, &layers[layer], layers[layer].wrong > 0 ? layers[layer].wrong : noise);
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
    assert_non_null(
        strstr(judged.judgement.verdicts[PER_LAYER + GATE].why, "2 tokens may have taken different experts;"));
    assert_null(judged.judgement.verdicts[GATE].why);
    assert_int_equal(judged.judgement.note_count, 1);
    assert_non_null(strstr(judged.judgement.notes[0], "too few tokens tell"));
    judged_end(&judged);
    run_layers(&judged, thrice, true, NOISE);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.aside_count, 3);
    assert_null(judged.judgement.guessed);
    assert_non_null(
        strstr(judged.judgement.verdicts[PER_LAYER + GATE].why, "2 tokens took different experts on a near tie;"));
    assert_int_equal(judged.judgement.note_count, 0);
    judged_end(&judged);
    dense = true; /* then nothing is chosen */
    run_layers(&judged, once, true, NOISE);
    expect_first(&judged, PER_LAYER + MLP);
    router = "router"; /* unless it is called one */
    run_layers(&judged, once, true, NOISE);
    expect_first(&judged, SIZE_MAX);
    router = "gate";
    dense = false;
    weighed = true; /* then it is known how many are chosen */
    run_layers(&judged, once, true, NOISE);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.aside_count, 2);
    assert_null(judged.judgement.guessed);
    judged_end(&judged);
    weighed = false;
}

/* Attention carries the error of tokens that flipped to the logits of all others, and ties among those count. */
static void test_ties_behind_ties(void **state)
{
    static const struct layer layers[LAYERS] = {CALM,
                                                {.tied = {5, 19, 30, NONE}, .strays = {5, 19, 30, NONE}, .kept = 2},
                                                {.tied = {7, NONE}, .strays = {7, NONE}, .kept = 2, .noise = 1e-2},
                                                {.tied = {NONE}, .strays = {NONE}, .kept = 2, .noise = 1e-2}};
    struct judged judged;
    (void)state;
    run_layers(&judged, layers, true, 1e-4);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.aside_count, 4);
    judged_end(&judged);
}

/* Tokens that stray behind attention say nothing about the router before it: two are told, one is not. */
static void test_tokens_behind_attention(void **state)
{
    static const struct layer layers[LAYERS] = {{.tied = {5, 11, NONE}, .strays = {5, 11, NONE}, .kept = 2},
                                                {.tied = {NONE}, .strays = {19, NONE}, .kept = 2},
                                                {.tied = {NONE}, .strays = {26, NONE}, .kept = 2, .unseen = true},
                                                CALM};
    struct judged judged;
    (void)state;
    run_layers(&judged, layers, true, NOISE);
    expect_first(&judged, PER_LAYER + MLP);
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
                                               CALM},
                              mostly[LAYERS] = {{.tied = {5, NONE}, .strays = {5, NONE}, .kept = 2},
                                                {.tied = {11, NONE}, .strays = {11, 19, 26, NONE}, .kept = 2},
                                                CALM,
                                                CALM};
    struct judged judged;
    (void)state;
    run_layers(&judged, one, true, NOISE);
    expect_first(&judged, PER_LAYER + MLP);
    run_layers(&judged, beside, true, NOISE); /* two flipped, and one is wrong */
    expect_first(&judged, PER_LAYER + MLP);
    run_layers(&judged, later, true, NOISE);
    expect_first(&judged, 2 * PER_LAYER + MLP);
    run_layers(&judged, mostly, true, NOISE); /* a router that explains one of three explains nothing */
    expect_first(&judged, MLP);
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

/* Behind a bug of every token, who took another expert errs as the others do: that speaks against no rank. */
static void test_ties_before_a_bug(void **state)
{
    static const struct layer once[LAYERS] = {{.tied = {5, NONE}, .strays = {5, NONE}, .kept = 2},
                                              {.tied = {7, 19, 30, NONE}, .strays = {NONE}, .kept = 2, .wrong = 0.7},
                                              {.tied = {3, 11, NONE}, .strays = {NONE}, .kept = 2, .noise = 0.5},
                                              {.tied = {9, 14, NONE}, .strays = {NONE}, .kept = 2, .noise = 0.5}};
    struct judged judged;
    (void)state;
    run_layers(&judged, once, true, NOISE);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, PER_LAYER + MLP);
    assert_int_equal(judged.judgement.aside_count, 1);
    assert_int_equal(judged.judgement.aside[0], 5);
    judged_end(&judged);
}

/* Who took another expert makes others err through attention. What most tokens err by is known all the same. */
static void test_bug_behind_ties(void **state)
{
    static const struct layer
        one[LAYERS] = {{.tied = {5, 20, NONE}, .strays = {5, 20, NONE}, .kept = 2, .carried = true},
                       {.tied = {NONE}, .strays = {NONE}, .kept = 2, .carried = true, .wrong = 0.02},
                       {.tied = {NONE}, .strays = {NONE}, .kept = 2, .carried = true},
                       {.tied = {NONE}, .strays = {NONE}, .kept = 2, .carried = true}},
        none[LAYERS] = {{.tied = {5, 20, NONE}, .strays = {5, 20, NONE}, .kept = 2, .carried = true},
                        {.tied = {NONE}, .strays = {NONE}, .kept = 2, .carried = true},
                        {.tied = {NONE}, .strays = {NONE}, .kept = 2, .carried = true},
                        {.tied = {NONE}, .strays = {NONE}, .kept = 2, .carried = true}};
    struct judged judged;
    (void)state;
    run_layers(&judged, none, true, NOISE);
    expect_first(&judged, SIZE_MAX);
    run_layers(&judged, one, true, NOISE);
    expect_first(&judged, PER_LAYER + MLP);
}

/* The gate of a shared expert is no router, behind which another choice begins. */
static void test_gate_of_a_shared_expert(void **state)
{
    static const struct layer once[LAYERS] = {CALM, {.tied = {5, NONE}, .strays = {5, NONE}, .kept = 2}, CALM, CALM};
    struct judged judged;
    (void)state;
    shared = true;
    run_layers(&judged, once, true, NOISE);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.aside_count, 1);
    judged_end(&judged);
    shared = false;
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
 * expert's, or than the last one's part, the logits of all tokens are wrong, or it is one tie against one token
 * without. */
static void test_ties_that_excuse_nothing(void **state)
{
    static const struct layer
        shaken[LAYERS] = {CALM, {.tied = {19, NONE}, .strays = {19, NONE}, .kept = 2, .shaken = 20}, CALM, CALM},
        large[LAYERS] = {CALM, {.tied = {19, NONE}, .strays = {19, NONE}, .kept = 2, .larger = 8}, CALM, CALM},
        heavy[LAYERS] = {CALM, {.tied = {19, NONE}, .strays = {19, NONE}, .kept = 6, .larger = 4}, CALM, CALM},
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
    run_layers(&judged, heavy, true, NOISE); /* the sixth of six experts has no such part in the sum */
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
static void judge_other_rule(const struct layer *layers, double noise, size_t aside, size_t expected)
{
    struct judged judged;
    run_layers(&judged, layers, false, noise);
    judged_run(&judged);
    if (expected == SIZE_MAX) {
        assert_int_equal(judged.judgement.note_count, 1);
        assert_non_null(strstr(judged.judgement.notes[0], "does not follow from the logits alone"));
        assert_non_null(strstr(judged.judgement.notes[0], "capture the chosen experts"));
        assert_int_equal(judged.judgement.aside_count, aside);
        for (size_t i = 0; i < aside; i++)
            assert_true(judged.judgement.guessed && judged.judgement.guessed[i]);
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
                                              CALM},
                              last[LAYERS] = {{.tied = {NONE}, .strays = {TOKENS - 1, NONE}, .kept = 2},
                                              {.tied = {NONE}, .strays = {22, NONE}, .kept = 2},
                                              CALM,
                                              CALM},
                              three[LAYERS] = {{.tied = {NONE}, .strays = {7, 12, 20, NONE}, .kept = 2},
                                               {.tied = {NONE}, .strays = {22, NONE}, .kept = 2},
                                               CALM,
                                               CALM},
                              row[LAYERS] = {{.tied = {NONE}, .strays = {7, 8, 9, NONE}, .kept = 2},
                                             {.tied = {NONE}, .strays = {22, NONE}, .kept = 2},
                                             CALM,
                                             CALM};
    (void)state;
    judge_other_rule(two, NOISE, 2, SIZE_MAX);
    judge_other_rule(two, 1e-6, 0, MLP);   /* nothing is tied as nearly as that */
    judge_other_rule(once, NOISE, 0, MLP); /* one place: a bug may well be there */
    judge_other_rule(ends, NOISE, 0, MLP); /* the first token alone is no accident, */
    judge_other_rule(last, NOISE, 0, MLP); /* nor is the last, */
    judge_other_rule(many, NOISE, 0, MLP);
    judge_other_rule(three, 3 * NOISE, 4, SIZE_MAX);
    judge_other_rule(row, 3 * NOISE, 0, MLP);        /* nor are three in a row */
    judge_other_rule(once, 28 * NOISE, 1, SIZE_MAX); /* at every rank others were tied, and took no notice */
}

/* Nothing tells of another rule where one token strays behind one router: as many as the errors of its logits exchange
 * may have taken other experts, and nobody knows. Where all tokens are wrong behind another router, they have. */
static void test_choices_that_nothing_tells(void **state)
{
    static const struct layer once[LAYERS] = {CALM, {.tied = {NONE}, .strays = {7, NONE}, .kept = 2}, CALM, CALM},
                              end[LAYERS] = {CALM, {.tied = {NONE}, .strays = {0, NONE}, .kept = 2}, CALM, CALM},
                              before[LAYERS] = {{.tied = {NONE}, .strays = {7, NONE}, .kept = 2},
                                                {.tied = {NONE}, .strays = {NONE}, .kept = 2, .wrong = 0.7},
                                                {.tied = {NONE}, .strays = {NONE}, .kept = 2, .noise = 0.5},
                                                {.tied = {NONE}, .strays = {NONE}, .kept = 2, .noise = 0.5}};
    struct judged judged;
    (void)state;
    run_layers(&judged, once, false, 4 * NOISE);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.verdicts[PER_LAYER + MLP].judged, TS_JUDGED_UNKNOWN);
    assert_int_equal(judged.judgement.note_count, 1);
    assert_non_null(strstr(judged.judgement.notes[0], "(7), but the choice was not captured"));
    judged_end(&judged);
    run_layers(&judged, end, false, 4 * NOISE);
    expect_first(&judged, PER_LAYER + MLP);
    run_layers(&judged, before, false, NOISE);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, PER_LAYER + MLP);
    assert_int_equal(judged.judgement.aside_count, 1);
    assert_int_equal(judged.judgement.aside[0], 7);
    assert_non_null(strstr(judged.judgement.notes[0], "a bug of these tokens looks the same"));
    judged_end(&judged);
}

/* Layers that continue each other: from the third on these tokens hold another result, and all err so much. */
static void judge_stream(size_t strays, float share, double noise, bool noted)
{
    struct judged judged;
    struct ts_error error;
    float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH], off[TOKENS * WIDTH] = {0};
    trace_start(&judged.trace);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        float *update = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH);
        char name[64];
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            a[i] += update[i];
            off[i] += layer == 2 && i / WIDTH % 5 == 2 && i / WIDTH / 5 < strays ? share * (other[i] - update[i]) : 0;
        }
        shake(a, b, TOKENS * WIDTH, layer < 2 ? NOISE : noise);
        for (size_t i = 0; i < TOKENS * WIDTH; i++)
            b[i] += off[i];
        snprintf(name, sizeof name, "layers.%zu", layer);
        trace_add(&judged.trace, name, a, b, SHAPE(TOKENS, WIDTH));
        free(update);
        free(other);
    }
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, 2);
    assert_int_equal(judged.judgement.note_count, noted);
    if (noted) {
        assert_non_null(strstr(judged.judgement.notes[0], "at \"layers.2\" only a few tokens are wrong (2, 7)"));
        assert_non_null(strstr(judged.judgement.notes[0], "the router's logits would tell"));
        assert_non_null(strstr(judged.judgement.notes[0], "--config would say so"));
        ts_judgement_release(&judged.judgement);
        assert_int_equal(ts_judge_run_as(TS_SUBJECT_TRACES, TS_EXPERTS_NONE, judged.trace.pairs, judged.trace.deltas,
                                         judged.trace.count, NULL, &judged.judgement, &error),
                         TS_OK);
        assert_int_equal(judged.judgement.first, 2);
        assert_int_equal(judged.judgement.note_count, 0);
    }
    judged_end(&judged);
    free(a);
}

/* Where nothing tells of experts, few tokens are a difference, and a note says what else they may be; not so of many,
 * nor where the others are not calm, nor where a configuration tells that there are none. */
static void test_note_of_few_tokens(void **state)
{
    (void)state;
    judge_stream(2, 1, NOISE, true);
    judge_stream(7, 1, NOISE, false);
    judge_stream(2, 0.22f, 0.05, false);
}

/* A token stays what it was set aside for first. */
static void test_first_reason_counts(void **state)
{
    bool aside[3] = {false};
    struct ts_judge judge = {.scene = {.aside = aside, .taken_count = 3}};
    (void)state;
    ts_judge_leave_out(&judge, 0, false);
    assert_null(judge.guesses);
    ts_judge_leave_out(&judge, 1, true);
    ts_judge_leave_out(&judge, 0, true);
    ts_judge_leave_out(&judge, 1, false);
    assert_true(aside[0] && aside[1] && !aside[2]);
    assert_true(!judge.guesses[0] && judge.guesses[1] && !judge.guesses[2]);
    free(judge.guesses);
}

/* Weights of the one expert that each token takes, in its place among zeros, before the logits or without them. Some
 * tokens take another one: nearly tied with it (`gap`), or not; or one that weighs something else. */
static void judge_scattered(size_t flipped, double gap, float weight, bool seen, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOKENS * WIDTH), y[TOKENS * WIDTH];
    float logits[2][TOKENS * EXPERTS], scattered[2][TOKENS * EXPERTS] = {{0}};
    err(x, y, TOKENS * WIDTH, NOISE);
    for (size_t token = 0; token < TOKENS; token++) {
        const size_t best = token % EXPERTS, next = (token + 3) % EXPERTS, taken = token < flipped ? next : best;
        for (size_t i = 0; i < EXPERTS; i++)
            logits[0][token * EXPERTS + i] = (float)(-1 - 0.2 * (double)i);
        logits[0][token * EXPERTS + best] = 1;
        logits[0][token * EXPERTS + next] = (float)(token < flipped ? 1 - gap : 0.2);
        for (size_t i = token * EXPERTS; i < (token + 1) * EXPERTS; i++)
            logits[1][i] = logits[0][i] + (float)(NOISE * dice_number());
        scattered[0][token * EXPERTS + best] = 0.7310586f; /* the sigmoid of one */
        scattered[1][token * EXPERTS + taken] =
            (token < flipped ? weight : 0.7310586f) + (float)(0.1 * NOISE * dice_number());
    }
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0.norm", x, y, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.router.0", scattered[0], scattered[1], SHAPE(TOKENS, EXPERTS));
    if (seen)
        trace_add(&judged.trace, "layers.0.router.1", logits[0], logits[1], SHAPE(TOKENS, EXPERTS));
    expect_first(&judged, expected);
    free(x);
}

static void test_weights_in_the_places_of_experts(void **state)
{
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        judge_scattered(0, 0, 0, seen, SIZE_MAX);
        judge_scattered(2, 1e-4, 0.7310586f, seen, SIZE_MAX);
        judge_scattered(2, 1e-4, 0.7f, seen, 1);
        judge_scattered(20, 1e-4, 0.7310586f, seen, 1);
    }
    judge_scattered(2, 0.5, 0.7310586f, true, 1);
}

/* Whole numbers behind a tensor that errs: `width` of them for each token, one of which the candidate has otherwise. */
static void judge_integers(const char *name, size_t width, const int64_t *of_row, int64_t step, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOKENS * WIDTH), y[TOKENS * WIDTH];
    int64_t a[TOKENS * 4], b[TOKENS * 4];
    err(x, y, TOKENS * WIDTH, NOISE);
    for (size_t i = 0; i < TOKENS * width; i++)
        a[i] = b[i] = of_row[i % width] + step * (int64_t)(i / width);
    b[5 * width] += of_row[0] ? -1 : 1;
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0.norm", x, y, SHAPE(TOKENS, WIDTH));
    trace_add_integers(&judged.trace, name, a, b, TOKENS, width);
    expect_first(&judged, expected);
    free(x);
}

/* What no router chose is told from what one did: noise on the way does not excuse it. */
static void test_integers_that_nobody_chose(void **state)
{
    (void)state;
    judge_integers("layers.0.mlp.x", 2, (int64_t[]){3, 5}, 0, SIZE_MAX);
    judge_integers("layers.0.mlp.x", 2, (int64_t[]){3, -1}, 0, SIZE_MAX);
    judge_integers("layers.0.mlp.x", 2, (int64_t[]){3, -5}, 0, 1);
    judge_integers("layers.0.attention_mask", 1, (int64_t[]){1}, 0, 1);
    judge_integers("layers.0.moe.expert_mask", 1, (int64_t[]){1}, 0, SIZE_MAX);
    judge_integers("layers.0.position_ids", 1, (int64_t[]){0}, 0, 1);
    judge_integers("layers.0.x", 1, (int64_t[]){7}, 1, 1); /* positions by another name */
    judge_integers("layers.0.x", 4, (int64_t[]){1, 0, 1, 1}, 0, 1);
}

/* Of three experts of the reference, of which the last may be a shared one, two were compared, which are those of the
 * candidate; what they make errs by so much. */
static void judge_counts(bool with_shared, double error, size_t expected)
{
    static int64_t chosen[TOKENS * 2], all[TOKENS * 3];
    struct judged judged;
    struct trace *trace = &judged.trace;
    for (size_t token = 0; token < TOKENS; token++)
        for (size_t k = 0; k < 3; k++) {
            all[token * 3 + k] = k == 2 && with_shared ? EXPERTS : (int64_t)((token * 3 + k * 5) % EXPERTS);
            if (k < 2)
                chosen[token * 2 + k] = all[token * 3 + k];
        }
    trace_start(trace);
    for (size_t layer = 0; layer < 2; layer++) {
        char name[64];
        struct ts_pair *pair;
        struct ts_view whole;
        for (int i = 0; i < PARTS; i++) {
            snprintf(name, sizeof name, "layers.%zu.attn.part_%c", layer, 'a' + i);
            add_rows(trace, name, NULL, NOISE);
        }
        snprintf(name, sizeof name, "layers.%zu.mlp.experts_chosen", layer);
        trace_add_integers(trace, name, all, all, TOKENS, 3);
        snprintf(name, sizeof name, "candidate's %zu", layer);
        trace_add_integers(trace, name, chosen, chosen, TOKENS, 2);
        pair = &trace->pairs[--trace->count - 1];
        whole = pair->a;
        assert_true(ts_view_slice(&whole, 1, 0, 2, 1, &trace->arena, &pair->a));
        pair->b = pair[1].b;
        snprintf(name, sizeof name, "layers.%zu.mlp", layer);
        add_rows(trace, name, NULL, layer ? error : NOISE);
    }
    expect_first(&judged, expected);
}

/* Where what they make is wrong, their number is; a shared expert is one for all tokens, and may be one of the list on
 * one side alone. */
static void test_another_number_of_experts(void **state)
{
    (void)state;
    judge_counts(false, NOISE, SIZE_MAX);
    judge_counts(false, 0.3, PER_LAYER + GATE);
    judge_counts(true, NOISE, SIZE_MAX);
    judge_counts(true, 0.9, PER_LAYER + GATE + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties_of_the_logits_alone),   cmocka_unit_test(test_how_many_experts),
        cmocka_unit_test(test_tokens_without_a_tie),       cmocka_unit_test(test_ties_that_say_nothing),
        cmocka_unit_test(test_ties_before_a_bug),          cmocka_unit_test(test_bug_behind_ties),
        cmocka_unit_test(test_gate_of_a_shared_expert),    cmocka_unit_test(test_wrong_logits),
        cmocka_unit_test(test_ties_that_excuse_nothing),   cmocka_unit_test(test_choices_by_another_rule),
        cmocka_unit_test(test_choices_that_nothing_tells), cmocka_unit_test(test_ties_behind_ties),
        cmocka_unit_test(test_tokens_behind_attention),    cmocka_unit_test(test_note_of_few_tokens),
        cmocka_unit_test(test_first_reason_counts),        cmocka_unit_test(test_weights_in_the_places_of_experts),
        cmocka_unit_test(test_integers_that_nobody_chose), cmocka_unit_test(test_another_number_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
