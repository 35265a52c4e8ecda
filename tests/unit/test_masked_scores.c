/* Scores that were captured with their mask in them, whatever number that is, put in their place or added to them: what
 * is masked on both sides is no error, what else is wrong is found and called what it is, and numbers that are merely
 * as low are none of a mask. */
#include "judged_trace.h"
#include "tensor/mask.h"

enum { TOKENS = 24, HEADS = 2, SIZE = 8, WIDTH = HEADS * SIZE, SCORES = TOKENS * HEADS * TOKENS, LAYERS = 2 };

enum bug { HONEST, UNMASKED, AHEAD, NO_WINDOW, MORE_WINDOW, FACTOR };

/* How one side writes its masks. */
struct mask {
    float number;
    bool added;
    bool half; /* in bf16, like all of its numbers */
};

struct shown {
    bool window;   /* else all tokens before it */
    bool all;      /* the reference has no mask at all */
    bool operands; /* queries and keys are captured as well */
};

static bool sees(const struct shown *shown, enum bug bug, size_t token, size_t key)
{
    const bool window = shown->window ? bug != NO_WINDOW : bug == MORE_WINDOW;
    if (bug == UNMASKED || (shown->all && bug != MORE_WINDOW))
        return true;
    return key <= token + (bug == AHEAD) && (!window || key + 6 > token);
}

static float kept(const struct mask *mask, float value)
{
    return mask->half && isfinite(value) ? to_bf16(value) : value;
}

static void attend(const struct shown *shown, const struct mask *mask, enum bug bug, const float *q, const float *k,
                   float *scores, float *probabilities)
{
    const double factor = (bug == FACTOR ? 2 : 1) / sqrt(SIZE);
    const float number = kept(mask, mask->number);
    for (size_t row = 0; row < (size_t)TOKENS * HEADS; row++) {
        float *out = scores + row * TOKENS;
        double sum = 0, most = -INFINITY;
        for (size_t key = 0; key < TOKENS; key++) {
            double score = 0;
            for (size_t i = 0; i < SIZE; i++)
                score += (double)q[row * SIZE + i] * (double)k[(key * HEADS + row % HEADS) * SIZE + i];
            out[key] = kept(mask, (float)(factor * score));
            if (!sees(shown, bug, row / HEADS, key))
                out[key] = mask->added ? kept(mask, out[key] + number) : number;
            most = fmax(most, (double)out[key]);
        }
        for (size_t key = 0; key < TOKENS; key++)
            sum += exp((double)out[key] - most);
        for (size_t key = 0; key < TOKENS; key++)
            probabilities[row * TOKENS + key] = kept(mask, (float)(exp((double)out[key] - most) / sum));
    }
}

/* The bug is one of the last layer. Returns the pair of its scores. */
static size_t add_layers(struct trace *trace, const struct shown *shown, const struct mask *masks, enum bug bug)
{
    size_t last = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        float *q[2], *k[2], scores[2][SCORES], probabilities[2][SCORES];
        for (int side = 0; side < 2; side++) {
            q[side] = side ? malloc(TOKENS * WIDTH * sizeof(float)) : made_values(TOKENS * WIDTH);
            k[side] = side ? malloc(TOKENS * WIDTH * sizeof(float)) : made_values(TOKENS * WIDTH);
            assert_true(q[side] && k[side]);
            for (size_t i = 0; i < TOKENS * WIDTH && side; i++) {
                q[1][i] = kept(&masks[1], q[0][i]);
                k[1][i] = kept(&masks[1], k[0][i]);
            }
            attend(shown, &masks[side], side && layer + 1 == LAYERS ? bug : HONEST, q[side], k[side], scores[side],
                   probabilities[side]);
        }
        if (shown->operands) {
            trace_add(trace, made_name("layer_%d_attn_q", layer), q[0], q[1], SHAPE(TOKENS, HEADS, SIZE));
            trace_add(trace, made_name("layer_%d_attn_k", layer), k[0], k[1], SHAPE(TOKENS, HEADS, SIZE));
        }
        last = trace_add(trace, made_name("layer_%d_attn_scores", layer), scores[0], scores[1],
                         SHAPE(TOKENS, HEADS, TOKENS));
        trace_add(trace, made_name("layer_%d_attn_probs", layer), probabilities[0], probabilities[1],
                  SHAPE(TOKENS, HEADS, TOKENS));
        for (int side = 0; side < 2; side++) {
            free(q[side]);
            free(k[side]);
        }
    }
    return last;
}

static const struct mask references[] = {
    {-1e4f, false, false}, {-1e4f, true, false}, {-INFINITY, false, false}, {-1e9f, true, false}};
static const struct mask candidates[] = {{-1e4f, false, false},         {-1e4f, true, false},     {-1e4f, false, true},
                                         {-1e4f, true, true},           {-INFINITY, false, true}, {-1e9f, false, true},
                                         {-3.4028235e38f, true, false}, {-65504, true, false}};

#define COUNT(of) (sizeof(of) / sizeof *(of))

static void expect(const struct shown *shown, const struct mask *masks, enum bug bug, const char *id, const char *words)
{
    struct judged judged = {0};
    size_t scores;
    trace_start(&judged.trace);
    scores = add_layers(&judged.trace, shown, masks, bug);
    if (bug != HONEST) {
        trace_diagnose(&judged.trace, scores);
        if (!judged.trace.diagnosis.count || strcmp(judged.trace.diagnosis.causes[0].id, id) != 0)
            print_message("# %g%s against %g%s\n", (double)masks[0].number, masks[0].added ? " added" : "",
                          (double)masks[1].number, masks[1].added ? " added" : "");
        assert_first(&judged.trace, id, words);
    }
    expect_first(&judged, bug == HONEST ? SIZE_MAX : scores);
}

static void expect_all(const struct shown *shown, enum bug bug, const char *id, const char *words)
{
    for (size_t a = 0; a < COUNT(references); a++)
        for (size_t b = 0; b < COUNT(candidates); b++)
            expect(shown, (const struct mask[]){references[a], candidates[b]}, bug, id, words);
}

static void test_honest_masks(void **state)
{
    (void)state;
    for (int operands = 0; operands < 2; operands++)
        for (int window = 0; window < 2; window++)
            expect_all(&(struct shown){.operands = operands, .window = window}, HONEST, NULL, NULL);
}

static void test_masks_that_are_wrong(void **state)
{
    (void)state;
    for (int operands = 0; operands < 2; operands++) {
        const struct shown causal = {.operands = operands}, window = {.operands = operands, .window = true},
                           all = {.operands = operands, .all = true};
        expect_all(&causal, UNMASKED, "mask",
                   "in the candidate each token sees every token; in the reference each token "
                   "sees itself and the tokens before it");
        expect_all(&causal, AHEAD, "mask", "in the candidate each token sees 1 token ahead");
        expect_all(&window, NO_WINDOW, "mask",
                   "in the reference each token sees itself and the tokens before it, at most "
                   "5 tokens back (a window of 6)");
        expect_all(&causal, MORE_WINDOW, "mask",
                   "in the candidate each token sees itself and the tokens before it, at "
                   "most 5 tokens back (a window of 6)");
        expect_all(&all, MORE_WINDOW, "mask", "in the reference each token sees every token");
    }
}

/* Of what is seen, which a mask must not drown. */
static void test_another_factor(void **state)
{
    (void)state;
    for (int operands = 0; operands < 2; operands++)
        expect_all(&(struct shown){.operands = operands}, FACTOR, "scaled", "every element is 2");
}

/* Only a mask's number, a score added to it, or two of them. */
static void test_numbers_of_masks(void **state)
{
    static const double near[] = {
        -1e4, -9984, -10003.2, -19992.5, -65504, -65472, -1e9, -998244352, -3.4028234663852886e38, -(double)INFINITY};
    static const double far[] = {0, 9984, -240, -5000, -8999, -9500, -12000, -25443, -40000, -1.6947e38, (double)NAN};
    (void)state;
    for (size_t i = 0; i < COUNT(near); i++)
        if (!ts_is_masked_score(near[i]) || !ts_is_near_mask_number(near[i], 10))
            fail_msg("%g is no mask", near[i]);
    for (size_t i = 0; i < COUNT(far); i++)
        if (ts_is_near_mask_number(far[i], 10))
            fail_msg("%g is a mask", far[i]);
}

/* What is no score, or no mask, however low it is: its error counts. */
static void expect_no_mask(const float *a, const float *b, unsigned rank, const uint64_t *shape)
{
    struct judged judged = {0};
    float *x;
    trace_start(&judged.trace);
    x = made_values(TOKENS * WIDTH);
    trace_add(&judged.trace, "embeddings", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layer_0_residual", a, b, rank, shape);
    assert_false(judged.trace.pairs[1].masked);
    free(x);
    expect_first(&judged, 1);
}

static void test_low_numbers_that_mask_nothing(void **state)
{
    float *a = made_values(SCORES), *b = malloc(SCORES * sizeof *b);
    (void)state;
    assert_non_null(b);
    for (size_t i = 0; i < SCORES; i++) { /* a channel of a stream */
        a[i] = i % (HEADS * TOKENS) == 7 ? -10000 + 30 * a[i] : a[i];
        b[i] = i % (HEADS * TOKENS) == 7 ? a[i] + 500 * (float)dice_number() : a[i];
    }
    expect_no_mask(a, b, SHAPE(TOKENS, HEADS * TOKENS));
    for (size_t i = 0; i < SCORES; i++) { /* scores of thousands */
        a[i] *= 4000;
        b[i] = a[i] < -4000 ? 1.05F * a[i] : a[i];
    }
    expect_no_mask(a, b, SHAPE(TOKENS, HEADS, TOKENS));
    for (size_t i = 0; i < SCORES; i++) {
        a[i] = i % TOKENS == 3 ? -5000 : a[i] / 4000;
        b[i] = i % TOKENS == 3 ? -5200 : a[i];
    }
    expect_no_mask(a, b, SHAPE(TOKENS, HEADS, TOKENS));
    free(a);
    free(b);
}

/* What both sides mask is in no sum, and what one of them shows is a difference. */
static void test_sums_without_masks(void **state)
{
    const float a[] = {1, -10003.2F, -9998, 2, 3, -10002, -10004, 5, 6},
                b[] = {1, -10003.3F, -INFINITY, 2.5F, 3, 4, -10004, 5, 6};
    const struct ts_delta_options options = {0};
    struct ts_pool *pool = ts_pool_new(1);
    struct trace trace;
    struct ts_error error;
    (void)state;
    trace_start(&trace);
    trace_add(&trace, "layer_0_attn_scores", a, b, SHAPE(3, 3));
    assert_true(trace.pairs[0].masked);
    assert_int_equal(ts_delta_run(pool, trace.pairs, 1, &options, trace.deltas, NULL, &error), TS_OK);
    assert_int_equal(trace.deltas[0].masked, 2); /* with different numbers */
    assert_int_equal(trace.deltas[0].compared, 6);
    assert_int_equal(trace.deltas[0].unequal, 2);
    assert_int_equal(trace.deltas[0].non_finite_mismatch, 0);
    assert_int_equal(trace.deltas[0].worst, 5);
    assert_true(trace.deltas[0].max_abs == 10006 && trace.deltas[0].a.max == 6 && trace.deltas[0].b.min == 1);
    ts_pool_free(pool);
    trace_end(&trace);
}

/* Pairing says which scores are masked, by their numbers alone. */
static void test_masks_that_pairing_finds(void **state)
{
    const struct mask masks[] = {{-1e4F, true, false}, {-INFINITY, false, true}};
    struct trace trace;
    struct ts_pairing pairing;
    struct ts_pool *pool = ts_pool_new(1);
    struct ts_error error;
    (void)state;
    trace_start(&trace);
    (void)add_layers(&trace, &(struct shown){.operands = true}, masks, HONEST);
    assert_int_equal(ts_pair_run(trace.a, trace.b, NULL, pool, NULL, &pairing, &error), TS_OK);
    assert_int_equal(pairing.count, 4 * LAYERS);
    for (size_t i = 0; i < pairing.count; i++)
        assert_true(pairing.pairs[i].masked == (strstr(pairing.pairs[i].name, "scores") != NULL));
    ts_pairing_release(&pairing);
    ts_pool_free(pool);
    trace_end(&trace);
}

/* One token and all of a cache: no axis is as long as that of the keys, and the name says what they are. */
static void test_scores_of_one_token(void **state)
{
    const struct mask masks[] = {{-1e4F, true, false}, {-INFINITY, false, false}};
    const size_t last = (TOKENS - 1) * HEADS * TOKENS;
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct judged judged = {0};
        float *q, *k, scores[2][SCORES], probabilities[2][SCORES];
        trace_start(&judged.trace);
        q = made_values(TOKENS * WIDTH);
        k = made_values(TOKENS * WIDTH);
        for (int side = 0; side < 2; side++)
            attend(&(struct shown){.window = true}, &masks[side], side && wrong ? FACTOR : HONEST, q, k, scores[side],
                   probabilities[side]);
        trace_add(&judged.trace, "embeddings", q, q, SHAPE(1, WIDTH));
        trace_add(&judged.trace, "layer_0_attn_scores", scores[0] + last, scores[1] + last, SHAPE(1, HEADS, TOKENS));
        trace_add(&judged.trace, "layer_1_residual", scores[0] + last, scores[0] + last, SHAPE(1, HEADS, TOKENS));
        assert_true(judged.trace.pairs[1].masked && !judged.trace.pairs[2].masked);
        free(q);
        free(k);
        expect_first(&judged, wrong ? 1 : SIZE_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_without_masks),   cmocka_unit_test(test_masks_that_pairing_finds),
        cmocka_unit_test(test_honest_masks),         cmocka_unit_test(test_scores_of_one_token),
        cmocka_unit_test(test_masks_that_are_wrong), cmocka_unit_test(test_another_factor),
        cmocka_unit_test(test_numbers_of_masks),     cmocka_unit_test(test_low_numbers_that_mask_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
