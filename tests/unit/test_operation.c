/* Operations that are learnt from the reference and replayed on the candidate: each must be recognized, pass an honest
 * candidate in bf16, and fail one that computes something else. */
#include <time.h>

#include "compare/grid.h"
#include "compare/structure.h"
#include "judged_trace.h"

enum { TOKENS = 10, HEADS = 4, SERVED = 2, SIZE = 8, HIDDEN = HEADS * SIZE, KEYS = SERVED * SIZE };

/* The last pair must have been learnt as this, whatever else is said. */
static void expect_operation(struct judged *judged, const char *words)
{
    const char *operation;
    judged_run(judged);
    operation = judged->judgement.verdicts[judged->trace.count - 1].operation;
    if (!operation || !strstr(operation, words))
        fail_msg("%s is no %s", operation ? operation : "not learnt, and", words);
    ts_judgement_release(&judged->judgement);
}

static void judge_scaled_sum(double factor_b, size_t expected)
{
    size_t total = TOKENS * HIDDEN;
    struct judged judged;
    float *x, *y, *near_x, *near_y, *sum[2];
    trace_start(&judged.trace);
    x = made_values(total);
    y = made_values(total);
    near_x = malloc(total * sizeof(float));
    near_y = malloc(total * sizeof(float));
    sum[0] = malloc(total * sizeof(float));
    sum[1] = malloc(total * sizeof(float));
    for (size_t i = 0; i < total; i++) {
        near_x[i] = to_bf16(x[i]);
        near_y[i] = to_bf16(y[i]);
        sum[0][i] = (float)((double)x[i] + 0.22 * (double)y[i]);
        sum[1][i] = to_bf16(near_x[i] + to_bf16((float)(factor_b * (double)near_y[i])));
    }
    trace_add(&judged.trace, "embed", x, near_x, SHAPE(TOKENS, HIDDEN));
    trace_add(&judged.trace, "layers.0.o_proj", y, near_y, SHAPE(TOKENS, HIDDEN));
    trace_add(&judged.trace, "layers.0.residual", sum[0], sum[1], SHAPE(TOKENS, HIDDEN));
    free(x);
    free(y);
    free(near_x);
    free(near_y);
    free(sum[0]);
    free(sum[1]);
    expect_operation(&judged, "+ 0.22 * layers.0.o_proj");
    expect_first(&judged, expected);
}

static void test_sums_with_a_factor(void **state)
{
    (void)state;
    judge_scaled_sum(0.22, SIZE_MAX);
    judge_scaled_sum(1, 2);
    judge_scaled_sum(0.26, 2);
}

/* Probabilities with a sink per head. */
static void softmax(const float *scores, const double *sinks, float *out)
{
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < TOKENS; row++) {
            size_t start = (head * TOKENS + row) * TOKENS;
            double sum = sinks ? exp(sinks[head]) : 0;
            for (size_t key = 0; key <= row; key++)
                sum += exp((double)scores[start + key]);
            for (size_t key = 0; key < TOKENS; key++)
                out[start + key] = key <= row ? (float)(exp((double)scores[start + key]) / sum) : 0;
        }
}

static void judge_sinks(const double *sinks, const double *sinks_b, size_t expected)
{
    size_t total = HEADS * TOKENS * TOKENS;
    struct judged judged;
    float *scores, *near_scores, *hidden, *probabilities[2];
    trace_start(&judged.trace);
    hidden = made_values(TOKENS * HIDDEN);
    scores = made_values(total);
    near_scores = malloc(total * sizeof(float));
    memcpy(near_scores, scores, total * sizeof(float));
    round_all(near_scores, total);
    for (int side = 0; side < 2; side++)
        probabilities[side] = malloc(total * sizeof(float));
    softmax(scores, sinks, probabilities[0]);
    softmax(near_scores, sinks_b ? sinks_b : sinks, probabilities[1]);
    round_all(probabilities[1], total);
    for (int i = 0; i < 3; i++)
        trace_add(&judged.trace, made_name("hidden.%d", i), hidden, hidden, SHAPE(TOKENS, HIDDEN));
    trace_add(&judged.trace, "scores", scores, near_scores, SHAPE(HEADS, TOKENS, TOKENS));
    trace_add(&judged.trace, "probs", probabilities[0], probabilities[1], SHAPE(HEADS, TOKENS, TOKENS));
    free(hidden);
    free(scores);
    free(near_scores);
    free(probabilities[0]);
    free(probabilities[1]);
    expect_operation(&judged, "with sinks");
    expect_first(&judged, expected);
}

static void test_softmax_with_sinks(void **state)
{
    static const double sinks[HEADS] = {0.3, -1, 1.2, 0}, faint[HEADS] = {0.3, -1, -9, -INFINITY};
    static const double other[HEADS] = {0.3, -1, 1.2, 0.5}, none[HEADS] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    (void)state;
    judge_sinks(sinks, NULL, SIZE_MAX);
    judge_sinks(sinks, none, 4);
    judge_sinks(sinks, other, 4);
    /* a head whose sink takes next to nothing, and one that has none, do not hide those of the others */
    judge_sinks(faint, NULL, SIZE_MAX);
    judge_sinks(faint, none, 4);
}

/* Layers that all err alike hide a precision only where they multiply matrices; a softmax of captured scores does not.
 */
static void judge_temperature(double factor, size_t expected)
{
    size_t total = HEADS * TOKENS * TOKENS;
    struct judged judged;
    float *hidden;
    trace_start(&judged.trace);
    hidden = made_values(TOKENS * HIDDEN);
    for (int i = 0; i < 3; i++)
        trace_add(&judged.trace, made_name("hidden.%d", i), hidden, hidden, SHAPE(TOKENS, HIDDEN));
    for (int layer = 0; layer < 4; layer++) {
        float *scores = made_values(total), *scaled = malloc(total * sizeof(float));
        float *probabilities[2] = {malloc(total * sizeof(float)), malloc(total * sizeof(float))};
        for (size_t i = 0; i < total; i++)
            scaled[i] = (float)((double)scores[i] * factor);
        softmax(scores, NULL, probabilities[0]);
        softmax(scaled, NULL, probabilities[1]);
        shake(probabilities[1], probabilities[1], total, 1e-7);
        trace_add(&judged.trace, made_name("layers.%d.scores", layer), scores, scores, SHAPE(HEADS, TOKENS, TOKENS));
        trace_add(&judged.trace, made_name("layers.%d.probs", layer), probabilities[0], probabilities[1],
                  SHAPE(HEADS, TOKENS, TOKENS));
        free(scores);
        free(scaled);
        free(probabilities[0]);
        free(probabilities[1]);
    }
    free(hidden);
    expect_first(&judged, expected);
}

static void test_the_same_softmax_error_everywhere(void **state)
{
    (void)state;
    judge_temperature(1, SIZE_MAX);
    judge_temperature(1.05, 4);
}

/* Scores with a slope per head and distance, keys shared by two heads each. */
static void score(const float *q, const float *k, double slope, float *out)
{
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < TOKENS; row++)
            for (size_t key = 0; key < TOKENS; key++) {
                double sum = 0;
                for (size_t i = 0; i < SIZE; i++)
                    sum += (double)q[row * HIDDEN + head * SIZE + i] *
                           (double)k[key * KEYS + head / (HEADS / SERVED) * SIZE + i];
                out[(head * TOKENS + row) * TOKENS + key] =
                    key > row ? -INFINITY
                              : (float)(0.35 * sum - slope * pow(2, -(double)head) * ((double)row - (double)key));
            }
}

static void judge_slopes(double slope_b, size_t expected)
{
    size_t total = HEADS * TOKENS * TOKENS;
    struct judged judged;
    float *q[2], *k[2], *scores[2];
    trace_start(&judged.trace);
    q[0] = made_values(TOKENS * HIDDEN);
    k[0] = made_values(TOKENS * KEYS);
    q[1] = malloc(TOKENS * HIDDEN * sizeof(float));
    k[1] = malloc(TOKENS * KEYS * sizeof(float));
    memcpy(q[1], q[0], TOKENS * HIDDEN * sizeof(float));
    memcpy(k[1], k[0], TOKENS * KEYS * sizeof(float));
    round_all(q[1], TOKENS * HIDDEN);
    round_all(k[1], TOKENS * KEYS);
    for (int side = 0; side < 2; side++) {
        scores[side] = malloc(total * sizeof(float));
        score(q[side], k[side], side ? slope_b : 0.5, scores[side]);
    }
    round_all(scores[1], total);
    trace_add(&judged.trace, "q_proj", q[0], q[1], SHAPE(TOKENS, HIDDEN));
    trace_add(&judged.trace, "k_proj", k[0], k[1], SHAPE(TOKENS, KEYS));
    trace_add(&judged.trace, "scores", scores[0], scores[1], SHAPE(HEADS, TOKENS, TOKENS));
    for (int side = 0; side < 2; side++) {
        free(q[side]);
        free(k[side]);
        free(scores[side]);
    }
    expect_operation(&judged, "a bias by distance");
    expect_first(&judged, expected);
}

static void test_scores_with_a_bias_by_distance(void **state)
{
    (void)state;
    judge_slopes(0.5, SIZE_MAX);
    judge_slopes(0, 2);
    judge_slopes(0.4, 2);
}

/* As many heads as tokens: a rotation is learnt only where the heads are told from the tokens by the keys. */
static void rotate(const float *x, size_t tokens, size_t heads, float *out)
{
    for (size_t token = 0; token < tokens; token++)
        for (size_t head = 0; head < heads; head++)
            for (size_t i = 0; i < SIZE / 2; i++) {
                double angle = (double)(token + 1) * pow(100, -2.0 * (double)i / SIZE);
                const float *from = x + (token * heads + head) * SIZE;
                float *to = out + (head * tokens + token) * SIZE;
                to[i] = (float)((double)from[i] * cos(angle) - (double)from[i + SIZE / 2] * sin(angle));
                to[i + SIZE / 2] = (float)((double)from[i] * sin(angle) + (double)from[i + SIZE / 2] * cos(angle));
            }
}

static void test_as_many_heads_as_tokens(void **state)
{
    enum { SAME = 4 };
    struct judged judged;
    float *q, *k, turned_q[SAME * SAME * SIZE], turned_k[SAME * SERVED * SIZE], near_k[SAME * SERVED * SIZE];
    (void)state;
    trace_start(&judged.trace);
    q = made_values(SAME * SAME * SIZE);
    k = made_values(SAME * SERVED * SIZE);
    rotate(q, SAME, SAME, turned_q);
    rotate(k, SAME, SERVED, turned_k);
    for (size_t i = 0; i < SAME * SERVED * SIZE; i++)
        near_k[i] = to_bf16(turned_k[i]); /* of equal runs nothing is learnt */
    trace_add(&judged.trace, "q_norm", q, q, SHAPE(SAME, SAME, SIZE));
    trace_add(&judged.trace, "k_norm", k, k, SHAPE(SAME, SERVED, SIZE));
    trace_add(&judged.trace, "k_rope", turned_k, near_k, SHAPE(SERVED, SAME, SIZE));
    trace_add(&judged.trace, "q_rope", turned_q, turned_q, SHAPE(SAME, SAME, SIZE));
    free(q);
    free(k);
    expect_operation(&judged, "rotary(q_norm)");
    trace_end(&judged.trace);
}

/* One head leaves the lengths of its pairs as equations: they tell that it turns, and keys turn as queries do. */
static void test_one_head_turns(void **state)
{
    struct judged judged;
    float *q, *k, turned[TOKENS * SIZE], near_turned[TOKENS * SIZE], near_k[TOKENS * SIZE];
    (void)state;
    trace_start(&judged.trace);
    q = made_values(TOKENS * SIZE);
    k = made_values(TOKENS * SIZE);
    rotate(q, TOKENS, 1, turned);
    for (size_t i = 0; i < TOKENS * SIZE; i++)
        near_turned[i] = to_bf16(turned[i]);
    trace_add(&judged.trace, "q_norm", q, q, SHAPE(TOKENS, 1, SIZE));
    trace_add(&judged.trace, "k_norm", k, k, SHAPE(TOKENS, 1, SIZE));
    trace_add(&judged.trace, "q_rope", turned, near_turned, SHAPE(TOKENS, 1, SIZE));
    rotate(k, TOKENS, 1, turned);
    for (size_t i = 0; i < TOKENS * SIZE; i++) /* not applied */
        near_k[i] = to_bf16(k[i]);
    trace_add(&judged.trace, "k_rope", turned, near_k, SHAPE(TOKENS, 1, SIZE));
    free(q);
    free(k);
    expect_operation(&judged, "rotary(k_norm)");
    expect_first(&judged, 3);
}

/* The same where keys have no fewer heads: the projection, a matrix, has each head where it belongs. Heads stand in
 * front after the rotation, and behind the tokens without it. */
static void judge_heads_like_a_matrix(bool heads_first)
{
    enum { SAME = 6, WIDE = 24, TOTAL = SAME * SAME * WIDE };
    struct judged judged;
    float *q, turned[TOTAL], near_turned[TOTAL];
    trace_start(&judged.trace);
    q = made_values(TOTAL);
    for (size_t token = 0; token < SAME; token++)
        for (size_t head = 0; head < SAME; head++)
            for (size_t i = 0; i < WIDE / 2; i++) {
                double angle = (double)(token + 1) * pow(100, -2.0 * (double)i / WIDE);
                const float *from = q + (token * SAME + head) * WIDE;
                float *to = turned + (heads_first ? head * SAME + token : token * SAME + head) * WIDE;
                to[i] = (float)((double)from[i] * cos(angle) - (double)from[i + WIDE / 2] * sin(angle));
                to[i + WIDE / 2] = (float)((double)from[i] * sin(angle) + (double)from[i + WIDE / 2] * cos(angle));
            }
    for (size_t i = 0; i < TOTAL; i++)
        near_turned[i] = to_bf16(turned[i]);
    trace_add(&judged.trace, "layers.0.q_proj", q, q, SHAPE(SAME, SAME * WIDE));
    trace_add(&judged.trace, "layers.0.q_rope", turned, near_turned, SHAPE(SAME, SAME, WIDE));
    free(q);
    expect_operation(&judged, "rotary(layers.0.q_proj)");
    trace_end(&judged.trace);
}

static void test_heads_are_known_by_a_matrix(void **state)
{
    (void)state;
    judge_heads_like_a_matrix(true);
    judge_heads_like_a_matrix(false);
}

/* Layers that change their stream by little keep the length of every row, and are no rotation: of the thousands of ways
 * in which heads may turn, next to none may be tried on everything. */
static void test_a_stream_that_changes_little(void **state)
{
    enum { ROWS = 96, WIDE = 2048, LAYERS = 4 };
    const size_t total = (size_t)ROWS * WIDE;
    struct judged judged;
    float *x, *near_x = malloc(total * sizeof *near_x), *change;
    clock_t since;
    (void)state;
    assert_non_null(near_x);
    trace_start(&judged.trace);
    x = made_values(total);
    for (int layer = 0; layer < LAYERS; layer++) {
        change = made_values(total);
        for (size_t i = 0; i < total; i++) {
            x[i] += 0.02f * change[i];
            near_x[i] = to_bf16(x[i]);
        }
        free(change);
        trace_add(&judged.trace, made_name("model.layers.%d", layer), x, near_x, SHAPE(ROWS, WIDE));
    }
    free(x);
    free(near_x);
    since = clock();
    judged_run(&judged);
    assert_null(judged.judgement.verdicts[LAYERS - 1].operation);
    assert_true(clock() - since < 5 * CLOCKS_PER_SEC);
    ts_judgement_release(&judged.judgement);
    trace_end(&judged.trace);
}

/* A cache in eight bits: each head of each token scaled to the grid's end, rounded, and given back in bf16. */
static void store(const float *from, size_t parts, size_t size, int levels, float *to)
{
    for (size_t part = 0; part < parts; part++) {
        double largest = 0, step;
        for (size_t i = part * size; i < (part + 1) * size; i++)
            largest = fabs((double)from[i]) > largest ? fabs((double)from[i]) : largest;
        step = largest / (levels ? levels : 448);
        for (size_t i = part * size; i < (part + 1) * size; i++)
            to[i] = (float)(step * (levels ? nearbyint((double)from[i] / step)
                                           : (double)to_four_bits((double)from[i] / step)));
    }
}

static void test_grids_are_seen(void **state)
{
    enum { PARTS = 12, COUNT = PARTS * SIZE };
    float *values, stored[COUNT];
    double difference = 0, size = 0;
    (void)state;
    dice_state = 3;
    values = made_values(COUNT);
    assert_true(ts_grid_error(values, PARTS, SIZE) == 0);
    store(values, PARTS, SIZE, 0, stored);
    round_all(stored, COUNT);
    assert_true(fabs(ts_grid_error(stored, PARTS, SIZE) - 0.0265) < 0.001);
    store(values, PARTS, SIZE, 127, stored);
    for (size_t i = 0; i < COUNT; i++) {
        difference += ((double)stored[i] - (double)values[i]) * ((double)stored[i] - (double)values[i]);
        size += (double)values[i] * (double)values[i];
    }
    assert_true(fabs(ts_grid_error(stored, PARTS, SIZE) / sqrt(difference / size) - 1) < 0.2);
    store(values, PARTS, SIZE, 7, stored);
    assert_true(ts_grid_error(stored, PARTS, SIZE) > 0.03);
    for (size_t i = 0; i < COUNT; i++) /* one scale for all, that nothing else tells */
        stored[i] = to_bf16((float)(0.0371 * (double)to_four_bits((double)values[i] / 0.0371)));
    assert_true(fabs(ts_grid_error(stored, PARTS, SIZE) - 0.0265) < 0.001);
    /* a few numbers lie on anything */
    assert_true(ts_grid_error(stored, 1, 8) == 0);
    free(values);
}

enum stored { AS_IT_WAS, ON_A_GRID, SHAKEN, GRID_AND_WRONG };

/* `flat`: without an axis of heads. */
static void judge_stored(enum stored stored, bool flat, size_t expected)
{
    size_t total = SERVED * SIZE;
    struct judged judged;
    float *key, *hidden, kept[SERVED * SIZE];
    trace_start(&judged.trace);
    hidden = made_values(HIDDEN);
    key = made_values(total);
    round_all(key, total);
    memcpy(kept, key, sizeof kept);
    if (stored == GRID_AND_WRONG)
        for (size_t i = 0; i < total; i++)
            kept[i] = key[(i + 1) % total];
    if (stored == ON_A_GRID || stored == GRID_AND_WRONG)
        store(kept, SERVED, SIZE, 0, kept);
    if (stored == SHAKEN)
        shake(key, kept, total, 0.08);
    round_all(kept, total);
    trace_add(&judged.trace, "hidden", hidden, hidden, SHAPE(1, HIDDEN));
    trace_add(&judged.trace, "k_proj", key, key, SHAPE(1, SERVED * SIZE));
    if (flat)
        trace_add(&judged.trace, "k_rope", key, kept, SHAPE(1, SERVED * SIZE));
    else
        trace_add(&judged.trace, "k_rope", key, kept, SHAPE(1, SERVED, SIZE));
    free(hidden);
    free(key);
    expect_first(&judged, expected);
}

static void test_what_a_store_rounds_off_is_no_error(void **state)
{
    (void)state;
    for (int flat = 0; flat < 2; flat++) {
        judge_stored(AS_IT_WAS, flat, SIZE_MAX);
        judge_stored(ON_A_GRID, flat, SIZE_MAX);
        judge_stored(SHAKEN, flat, 2);
        judge_stored(GRID_AND_WRONG, flat, 2);
    }
}

static void measure_structure(const float *a, const float *b, struct ts_structure *structure)
{
    struct trace trace;
    struct ts_scene scene;
    struct ts_error error;
    const struct ts_actor *actor;
    trace_start(&trace);
    trace_add(&trace, "x", a, b, SHAPE(TOKENS, HIDDEN));
    assert_int_equal(ts_scene_open(&scene, trace.pairs, 1, &error), TS_OK);
    actor = ts_scene_next(&scene, &error);
    assert_non_null(actor);
    *structure = (struct ts_structure){0};
    ts_structure_measure(&scene, actor, structure);
    ts_scene_release(&scene);
    trace_end(&trace);
}

/* One number must stand out from the median, from those next to it, and of many tokens from its token and channel. */
static void test_an_element_stands_out(void **state)
{
    struct ts_structure many = {.known = true, .element = 61, .element_gap = 8.1, .element_alone = 20.1};
    struct ts_structure few = {.element = 41, .element_gap = 12.1};
    (void)state;
    assert_true(ts_element_stands_out(&many));
    assert_true(ts_element_stands_out(&few));
    many.element = 59;
    assert_false(ts_element_stands_out(&many));
    many.element = 61;
    many.element_gap = 7.9;
    assert_false(ts_element_stands_out(&many));
    many.element_gap = 8.1;
    many.element_alone = 19.9;
    assert_false(ts_element_stands_out(&many));
    few.element = 39;
    assert_false(ts_element_stands_out(&few));
    few.element = 41;
    few.element_gap = 11.9;
    assert_false(ts_element_stands_out(&few));
}

/* One huge channel decides neither whether an error follows the reference nor anything else by itself. */
static void test_slope_of_an_outlier(void **state)
{
    struct ts_structure structure;
    float *a, b[TOKENS * HIDDEN];
    (void)state;
    dice_state = 5;
    a = made_values(TOKENS * HIDDEN);
    for (size_t row = 0; row < TOKENS; row++)
        a[row * HIDDEN + 3] = 1000 + (float)row;
    shake(a, b, TOKENS * HIDDEN, 1e-3);
    for (size_t row = 0; row < TOKENS; row++)
        b[row * HIDDEN + 3] = a[row * HIDDEN + 3] * 1.001f;
    measure_structure(a, b, &structure);
    assert_true(fabs(structure.slope) < 0.5);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        b[i] = a[i] * 1.01f;
    measure_structure(a, b, &structure);
    assert_true(structure.slope > 0.99);
    free(a);
}

/* Tokens that are nearly equal err alike; an offset is the same where they are not. */
static void test_offset_of_equal_tokens(void **state)
{
    struct ts_structure structure;
    float *row, *other, a[TOKENS * HIDDEN], b[TOKENS * HIDDEN];
    (void)state;
    dice_state = 6;
    row = made_values(HIDDEN);
    other = made_values(HIDDEN);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++) {
        a[i] = row[i % HIDDEN] * (float)(1 + 0.01 * dice_number());
        b[i] = a[i] + 0.1f * other[i % HIDDEN];
    }
    measure_structure(a, b, &structure);
    assert_true(structure.offset > 0.99 && structure.alike > 0.99);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++) {
        a[i] = (float)dice_number();
        b[i] = a[i] + 0.1f * other[i % HIDDEN];
    }
    measure_structure(a, b, &structure);
    assert_true(structure.offset > 0.99 && structure.alike < 0.3);
    free(row);
    free(other);
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void test_nth(void **state)
{
    double values[200], sorted[200], again[200];
    (void)state;
    dice_state = 9;
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 200; i++)
            values[i] = sorted[i] = round % 2 ? dice_number() : (double)(dice() % 7);
        qsort(sorted, 200, sizeof *sorted, by_value);
        for (size_t nth = 0; nth < 200; nth += 13) {
            memcpy(again, values, sizeof again);
            assert_true(ts_nth(again, 200, nth) == sorted[nth]);
        }
    }
    assert_true(ts_nth(values, 0, 0) == 0);
    assert_true(ts_nth(values, 1, 0) == values[0]);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double gelu_of_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double quick_gelu(double x)
{
    return x / (1 + exp(-1.702 * x));
}

static double coarse(double x)
{
    return (double)to_bf16((float)x);
}

/* Both with every step rounded to bf16: what is left of 1 - 1 is far from what should be. */
static double gelu_by_steps(double x)
{
    return coarse(coarse(0.5 * x) * coarse(1 + coarse(erf(coarse(x / sqrt(2))))));
}

static double tanh_by_steps(double x)
{
    double inner = coarse(x + coarse(0.044715 * coarse(coarse(x * x) * x)));
    return coarse(coarse(0.5 * x) * coarse(1 + coarse(tanh(coarse(sqrt(2 / M_PI) * inner)))));
}

/* As rounding to bf16, but bits are cut off. */
static float cut_off(float value)
{
    return ts_float_from_bits(ts_float_bits(value) & 0xffff0000u);
}

/* A function of one tensor, in bf16 on the candidate's side, or on both. */
static void judge_function(double (*right)(double), double (*wrong)(double), bool both, float (*rounded)(float),
                           size_t expected)
{
    enum { MANY = 41, INNER = 60 };
    struct judged judged;
    float *x, *near_x, *y[2];
    trace_start(&judged.trace);
    x = made_values(MANY * INNER);
    near_x = malloc(MANY * INNER * sizeof(float));
    y[0] = malloc(MANY * INNER * sizeof(float));
    y[1] = malloc(MANY * INNER * sizeof(float));
    for (size_t i = 0; i < MANY * INNER; i++) {
        near_x[i] = to_bf16(2 * x[i]);
        x[i] = both ? near_x[i] : 2 * x[i];
        y[0][i] = (float)right((double)x[i]);
        y[0][i] = both ? to_bf16(y[0][i]) : y[0][i];
        y[1][i] = rounded((float)wrong((double)near_x[i]));
    }
    trace_add(&judged.trace, "layers.0.mlp.up_proj", x, near_x, SHAPE(MANY, INNER));
    trace_add(&judged.trace, "layers.0.mlp.act_fn", y[0], y[1], SHAPE(MANY, INNER));
    free(x);
    free(near_x);
    free(y[0]);
    free(y[1]);
    expect_first(&judged, expected);
}

/* What another usual function explains is none of rounding, however small it is beside that of bf16. */
static void test_another_function_in_coarse_numbers(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        judge_function(gelu, quick_gelu, both, to_bf16, 1);
        judge_function(gelu_of_tanh, quick_gelu, both, to_bf16, 1);
        judge_function(quick_gelu, gelu, both, to_bf16, 1);
        judge_function(gelu, gelu, both, to_bf16, SIZE_MAX);
        judge_function(gelu, gelu, both, cut_off, SIZE_MAX);
        /* nearer than bf16 tells in any one number, but not in all of them together */
        judge_function(gelu, gelu_of_tanh, both, to_bf16, 1);
        judge_function(gelu_of_tanh, gelu, both, to_bf16, 1);
        judge_function(gelu_of_tanh, gelu_of_tanh, both, to_bf16, SIZE_MAX);
        judge_function(gelu_of_tanh, gelu_of_tanh, both, cut_off, SIZE_MAX);
        judge_function(gelu, gelu_by_steps, both, to_bf16, SIZE_MAX);
        judge_function(gelu_of_tanh, tanh_by_steps, both, to_bf16, SIZE_MAX);
        judge_function(quick_gelu, quick_gelu, both, cut_off, SIZE_MAX);
    }
}

/* Tokens whose sizes differ by exp(spread). */
static void judge_epsilon(double epsilon, double spread, float (*rounded)(float), size_t expected)
{
    enum { MANY = 41, INNER = 60 };
    struct judged judged;
    float *x, *near_x, *weight, *y[2];
    trace_start(&judged.trace);
    x = made_values(MANY * INNER);
    weight = made_values(INNER);
    near_x = malloc(MANY * INNER * sizeof(float));
    for (size_t row = 0; row < MANY; row++) {
        double size = exp(spread * dice_number());
        for (size_t i = 0; i < INNER; i++) {
            x[row * INNER + i] *= (float)size;
            near_x[row * INNER + i] = to_bf16(x[row * INNER + i]);
        }
    }
    for (int side = 0; side < 2; side++) {
        y[side] = malloc(MANY * INNER * sizeof(float));
        for (size_t row = 0; row < MANY; row++) {
            const float *from = (side ? near_x : x) + row * INNER;
            double square = 0;
            for (size_t i = 0; i < INNER; i++)
                square += (double)from[i] * (double)from[i] / INNER;
            for (size_t i = 0; i < INNER; i++) {
                double value = (double)from[i] / sqrt(square + (side ? epsilon : 1e-6)) * (1 + 0.3 * (double)weight[i]);
                y[side][row * INNER + i] = side ? rounded((float)value) : (float)value;
            }
        }
    }
    trace_add(&judged.trace, "embed", x, near_x, SHAPE(MANY, INNER));
    trace_add(&judged.trace, "layers.0.input_layernorm", y[0], y[1], SHAPE(MANY, INNER));
    free(x);
    free(near_x);
    free(weight);
    free(y[0]);
    free(y[1]);
    expect_first(&judged, expected);
}

static void test_another_epsilon_in_coarse_numbers(void **state)
{
    (void)state;
    judge_epsilon(1e-2, 1.5, to_bf16, 1);
    judge_epsilon(1e-6, 1.5, to_bf16, SIZE_MAX);
    judge_epsilon(1e-5, 1.5, to_bf16, SIZE_MAX); /* too small to be seen */
    judge_epsilon(1e-6, 1.5, cut_off, SIZE_MAX);
    judge_epsilon(1e-6, 0, cut_off, SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_with_a_factor),
        cmocka_unit_test(test_softmax_with_sinks),
        cmocka_unit_test(test_the_same_softmax_error_everywhere),
        cmocka_unit_test(test_scores_with_a_bias_by_distance),
        cmocka_unit_test(test_as_many_heads_as_tokens),
        cmocka_unit_test(test_one_head_turns),
        cmocka_unit_test(test_heads_are_known_by_a_matrix),
        cmocka_unit_test(test_a_stream_that_changes_little),
        cmocka_unit_test(test_grids_are_seen),
        cmocka_unit_test(test_what_a_store_rounds_off_is_no_error),
        cmocka_unit_test(test_an_element_stands_out),
        cmocka_unit_test(test_slope_of_an_outlier),
        cmocka_unit_test(test_offset_of_equal_tokens),
        cmocka_unit_test(test_another_function_in_coarse_numbers),
        cmocka_unit_test(test_another_epsilon_in_coarse_numbers),
        cmocka_unit_test(test_nth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
