/* Numbers that the candidate rounds between where it captures and where it uses them: a stored accumulator, a sum of
 * two before a third is added, keys in a cache of eight bits. That is a precision; what rounding does not explain is
 * not. */
#include "compare/structure.h"
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 64, TOTAL = TOKENS * WIDTH, HEADS = 4, SIZE = WIDTH / HEADS };

/* `factor` of the second of those that are rounded together. */
static void judge_sum(double factor, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *experts = made_values(TOTAL), *shared = made_values(TOTAL);
    float one[TOTAL], other[TOTAL], rounded[2][TOTAL];
    for (size_t i = 0; i < TOTAL; i++) {
        one[i] = x[i] + experts[i] + shared[i];
        rounded[0][i] = to_bf16(experts[i]);
        rounded[1][i] = to_bf16(shared[i]);
        other[i] = x[i] + to_bf16(rounded[0][i] + (float)factor * rounded[1][i]);
    }
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0.stream", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.experts", experts, rounded[0], SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.shared", shared, rounded[1], SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.output", one, other, SHAPE(TOKENS, WIDTH));
    expect_first(&judged, expected);
    free(x);
    free(experts);
    free(shared);
}

static void test_a_sum_that_is_rounded_halfway(void **state)
{
    (void)state;
    judge_sum(1, SIZE_MAX);
    judge_sum(1.01, 3);
}

static void norm_of(const float *x, const float *weights, float *out)
{
    for (size_t row = 0; row < TOKENS; row++) {
        double square = 0;
        for (size_t i = 0; i < WIDTH; i++)
            square += (double)x[row * WIDTH + i] * (double)x[row * WIDTH + i];
        for (size_t i = 0; i < WIDTH; i++)
            out[row * WIDTH + i] =
                (float)((double)x[row * WIDTH + i] / sqrt(square / WIDTH + 1e-6) * (double)weights[i]);
    }
}

/* The accumulator is captured, and what is stored of it is used. */
static void judge_norm(float wrong, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *weights = made_values(WIDTH), stored[TOTAL], one[TOTAL], other[TOTAL];
    for (size_t i = 0; i < WIDTH; i++)
        weights[i] = (float)exp(0.4 * (double)weights[i]);
    for (size_t i = 0; i < TOTAL; i++)
        stored[i] = to_bf16(x[i]);
    norm_of(x, weights, one);
    weights[9] *= wrong;
    norm_of(stored, weights, other);
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "norm", one, other, SHAPE(TOKENS, WIDTH));
    expect_first(&judged, expected);
    free(x);
    free(weights);
}

static void test_an_accumulator_that_is_stored_in_sixteen_bits(void **state)
{
    (void)state;
    judge_norm(1, SIZE_MAX);
    judge_norm(1.02f, 1);
}

/* Scores of keys that come back from a cache: as e4m3 has them, with scales or without.
 * shared: what all keys have in common, and no query sees; scores are small then beside what makes them. */
enum scales { NO_SCALE, OF_HEADS, OF_TOKENS, OF_ALL };

static void judge_keys(enum scales scales, bool flat, double shared, double factor, size_t expected)
{
    struct judged judged;
    float *q = made_values(TOTAL), *k = made_values(TOTAL), cached[TOTAL];
    float one[TOKENS * HEADS * TOKENS], other[TOKENS * HEADS * TOKENS];
    for (size_t start = 0; start < TOTAL && shared > 0; start += SIZE) {
        double along = 0;
        for (size_t i = start; i < start + SIZE; i++)
            along += (i % 2 ? -1 : 1) * (double)q[i] / SIZE;
        for (size_t i = start; i < start + SIZE; i++) {
            k[i] += (float)(i % 2 ? -shared : shared);
            q[i] -= (float)(i % 2 ? -along : along);
        }
    }
    for (size_t start = 0, size = scales == OF_ALL      ? TOTAL
                                  : scales == OF_TOKENS ? WIDTH
                                                        : SIZE;
         start < TOTAL; start += size) {
        double most = 0, step;
        for (size_t i = start; i < start + size; i++)
            most = fmax(most, fabs((double)k[i]));
        step = scales != NO_SCALE ? most / 448 : 1;
        for (size_t i = start; i < start + size; i++) {
            double value = (double)k[i] / step;
            cached[i] =
                (float)(step * (fabs(value) < 0x1p-6 ? nearbyint(value * 512) / 512 : (double)to_four_bits(value)));
        }
    }
    for (size_t row = 0; row < TOKENS; row++)
        for (size_t head = 0; head < HEADS; head++)
            for (size_t key = 0; key < TOKENS; key++) {
                double sums[2] = {0, 0};
                for (size_t i = 0; i < SIZE; i++) {
                    double query = (double)q[row * WIDTH + head * SIZE + i];
                    sums[0] += query * (double)k[key * WIDTH + head * SIZE + i];
                    sums[1] += query * (double)cached[key * WIDTH + head * SIZE + i];
                }
                one[(row * HEADS + head) * TOKENS + key] = (float)(sums[0] / sqrt(SIZE));
                other[(row * HEADS + head) * TOKENS + key] = (float)(factor * sums[1] / sqrt(SIZE));
            }
    trace_start(&judged.trace);
    if (flat) {
        trace_add(&judged.trace, "layers.0.q", q, q, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, "layers.0.k", k, k, SHAPE(TOKENS, WIDTH));
    } else {
        trace_add(&judged.trace, "layers.0.q", q, q, SHAPE(TOKENS, HEADS, SIZE));
        trace_add(&judged.trace, "layers.0.k", k, k, SHAPE(TOKENS, HEADS, SIZE));
    }
    trace_add(&judged.trace, "layers.0.scores", one, other, SHAPE(TOKENS, HEADS, TOKENS));
    expect_first(&judged, expected);
    free(q);
    free(k);
}

static void test_keys_from_a_cache_of_eight_bits(void **state)
{
    (void)state;
    for (enum scales scales = NO_SCALE; scales <= OF_ALL; scales++) {
        judge_keys(scales, false, 0, 1, SIZE_MAX);
        judge_keys(scales, true, 0, 1, SIZE_MAX);
        judge_keys(scales, false, 0, 1.05, 2);
        judge_keys(scales, true, 0, 1.05, 2);
    }
    judge_keys(NO_SCALE, false, 9, 1, SIZE_MAX);
    judge_keys(NO_SCALE, false, 9, 1.05, 2);
}

/* The context of values that come back from a cache of int8 with a scale for each head of a token, of which the capture
 * has no axis. The largest of each is 127 steps of 1/128; some lie between two steps and are given the larger one, as
 * some kernels do. beside: so many larger numbers stand in front of those of each head. */
static void judge_values(size_t tokens, size_t beside, double factor, size_t expected)
{
    struct judged judged;
    const size_t total = tokens * WIDTH, lanes = tokens * HEADS;
    float *v = made_values(TOTAL), *p = made_values(TOKENS * HEADS * TOKENS), cached[TOTAL], one[TOTAL], other[TOTAL];
    float *wide = malloc(lanes * (beside + SIZE) * sizeof *wide);
    for (size_t lane = 0; lane < lanes; lane++) {
        double sum = 0;
        for (size_t i = lane * SIZE; i < (lane + 1) * SIZE; i++)
            v[i] = fminf(fmaxf(0.3f * v[i], -0.9f), 0.9f);
        v[lane * SIZE] = 127.0f / 128;
        if (lane % 16 == 5)
            v[lane * SIZE + 1] = 20.5F / 128;
        for (size_t i = lane * SIZE; i < (lane + 1) * SIZE; i++)
            cached[i] = (float)(floor((double)v[i] * 128 + 0.5) / 128);
        for (size_t key = 0; key < tokens; key++)
            sum += exp((double)p[lane * tokens + key]);
        for (size_t key = 0; key < tokens; key++)
            p[lane * tokens + key] = (float)(exp((double)p[lane * tokens + key]) / sum);
    }
    for (size_t i = 0; i < total; i++) {
        const size_t lane = i / SIZE, row = i / WIDTH;
        double sums[2] = {0, 0};
        for (size_t key = 0; key < tokens; key++) {
            sums[0] += (double)p[lane * tokens + key] * (double)v[i + key * WIDTH - row * WIDTH];
            sums[1] += (double)p[lane * tokens + key] * (double)cached[i + key * WIDTH - row * WIDTH];
        }
        one[i] = (float)sums[0];
        other[i] = (float)(factor * sums[1]);
    }
    trace_start(&judged.trace);
    for (size_t i = 0; i < lanes * (beside + SIZE); i++)
        wide[i] = i % (beside + SIZE) < beside ? 3 + (float)(i % 7)
                                               : v[i / (beside + SIZE) * SIZE + i % (beside + SIZE) - beside];
    trace_add(&judged.trace, "layers.0.v", wide, wide, SHAPE(tokens, HEADS * (beside + SIZE)));
    trace_add(&judged.trace, "layers.0.probs", p, p, SHAPE(tokens, HEADS, tokens));
    trace_add(&judged.trace, "layers.0.context", one, other, SHAPE(tokens, HEADS, SIZE));
    free(wide);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, expected);
    if (expected == SIZE_MAX)
        assert_non_null(
            strstr(judged.judgement.verdicts[2].operation, "rounded to int8 with a scale for each head on the way"));
    judged_end(&judged);
    free(v);
    free(p);
}

static void test_values_from_a_cache_of_int8(void **state)
{
    (void)state;
    judge_values(TOKENS, 0, 1, SIZE_MAX);
    judge_values(TOKENS, SIZE / 2, 1, SIZE_MAX);
    judge_values(5, 0, 1, SIZE_MAX);
    judge_values(TOKENS, 0, 1.02, 2);
}

/* The first token sees one key, of which it has all, whatever the scores are: that it does not err says nothing. */
static void test_a_certain_token_is_no_calm_one(void **state)
{
    struct trace trace;
    struct ts_scene scene;
    struct ts_structure structure = {0};
    struct ts_error error;
    float one[TOKENS * TOKENS] = {0}, other[TOKENS * TOKENS] = {0};
    (void)state;
    trace_start(&trace);
    one[0] = other[0] = 1;
    for (size_t row = 1; row < TOKENS; row++)
        for (size_t key = 0; key <= row; key++) {
            one[row * TOKENS + key] = 1.0f / (float)(row + 1);
            other[row * TOKENS + key] = one[row * TOKENS + key] * (key % 2 ? 1.01f : 0.99f);
        }
    trace_add(&trace, "layers.0.probs", one, other, SHAPE(TOKENS, TOKENS));
    assert_int_equal(ts_scene_open(&scene, trace.pairs, 1, &error), TS_OK);
    ts_structure_measure(&scene, ts_scene_next(&scene, &error), &structure);
    assert_true(structure.known);
    assert_true(structure.least_row > 0.1);
    ts_scene_release(&scene);
    trace_end(&trace);
}

/* One point of one layer is rounded to bf16, a few numbers; another layer, as fine as all before it, says that
 * this is not the candidate's way. Where the other layer is rounded as well, it is. */
static void judge_layers(bool both, size_t expected)
{
    enum { FEW = 6, ROWS = 12 };
    static const char *names[] = {"embed", "layers.0.norm", "layers.0.up", "layers.1.norm", "layers.1.up"};
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t k = 0; k < 5; k++) {
        float *a = made_values(FEW * ROWS), b[FEW * ROWS];
        err(a, b, FEW * ROWS, 1e-7);
        for (size_t i = 0; i < FEW * ROWS && (k == 4 || (k == 2 && both)); i++)
            b[i] = to_bf16(a[i]);
        trace_add(&judged.trace, names[k], a, b, SHAPE(ROWS, FEW));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_one_of_two_layers_is_rounded(void **state)
{
    (void)state;
    judge_layers(false, 4);
    judge_layers(true, SIZE_MAX);
}

/* One layer, all of it in f32: of these the projections that are given are stored in sixteen bits. */
static void judge_one_layer(const char *first, const char *second, size_t expected)
{
    static const char *const names[] = {"embed",
                                        "layers.0.norm",
                                        "layers.0.q_proj",
                                        "layers.0.k_proj",
                                        "layers.0.v_proj",
                                        "layers.0.attn_context",
                                        "layers.0.o_proj",
                                        "layers.0.up",
                                        "layers.0.gate",
                                        "layers.0.act",
                                        "layers.0.down",
                                        "layers.0.out",
                                        "norm",
                                        "logits"};
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        float *a = made_values(TOTAL), b[TOTAL];
        shake(a, b, TOTAL, 1e-7);
        if (strcmp(names[k], first) == 0 || strcmp(names[k], second) == 0)
            round_all(b, TOTAL);
        trace_add(&judged.trace, names[k], a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_one_tensor_of_one_layer_is_rounded(void **state)
{
    (void)state;
    judge_one_layer("", "", SIZE_MAX);
    judge_one_layer("layers.0.q_proj", "", 2);
    judge_one_layer("layers.0.o_proj", "", 6);
    judge_one_layer("layers.0.q_proj", "layers.0.up", SIZE_MAX); /* a precision of products */
    judge_one_layer("layers.0.attn_context", "", SIZE_MAX);      /* a kernel that takes and gives sixteen bits */
    judge_one_layer("logits", "", SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sum_that_is_rounded_halfway),
        cmocka_unit_test(test_an_accumulator_that_is_stored_in_sixteen_bits),
        cmocka_unit_test(test_keys_from_a_cache_of_eight_bits),
        cmocka_unit_test(test_values_from_a_cache_of_int8),
        cmocka_unit_test(test_a_certain_token_is_no_calm_one),
        cmocka_unit_test(test_one_of_two_layers_is_rounded),
        cmocka_unit_test(test_one_tensor_of_one_layer_is_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
