/* The judge: every rule with a trace on which it must speak and one on which it must not. */
#include "compare/judge_state.h"
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 32, LAYERS = 4 };

/* Residual layers: norm, up, silu, down, sum. What changes in the candidate's weights: */
struct change {
    double coarse; /* relative error of every weight from layer `from` on */
    int from;
    int wrong_layer; /* -1: none */
    double wrong;    /* relative error of this layer's down projection */
    int skipped;     /* the layer whose norm was left out, -1: none */
};

static void rms_norm(const float *x, float *out)
{
    for (size_t row = 0; row < TOKENS; row++) {
        double square = 0;
        for (size_t i = 0; i < WIDTH; i++)
            square += (double)x[row * WIDTH + i] * (double)x[row * WIDTH + i];
        for (size_t i = 0; i < WIDTH; i++)
            out[row * WIDTH + i] = (float)((double)x[row * WIDTH + i] / sqrt(square / WIDTH + 1e-6));
    }
}

static void worsen(float *values, size_t count, double error)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((double)values[i] * (1 + 1.7 * error * dice_number()));
}

enum { TENSORS = 5 };

/* The pair of tensor t (norm, up, act, down, output) of a layer. */
static size_t pair_of(int layer, int t)
{
    return 1 + (size_t)(layer * TENSORS + t);
}

static void run_layers(struct judged *judged, const struct change *change)
{
    static const char *const names[TENSORS] = {"layers.%d.norm", "layers.%d.mlp.up_proj", "layers.%d.mlp.act",
                                               "layers.%d.mlp.down_proj", "layers.%d"};
    size_t total = TOKENS * WIDTH;
    float *x[2], *weights[2][LAYERS][2], *made[2][TENSORS];
    trace_start(&judged->trace);
    x[0] = made_values(total);
    x[1] = malloc(total * sizeof *x[1]);
    memcpy(x[1], x[0], total * sizeof *x[1]);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int m = 0; m < 2; m++) {
            weights[0][layer][m] = made_values(WIDTH * WIDTH);
            weights[1][layer][m] = malloc(WIDTH * WIDTH * sizeof(float));
            memcpy(weights[1][layer][m], weights[0][layer][m], WIDTH * WIDTH * sizeof(float));
            if (layer >= change->from)
                worsen(weights[1][layer][m], WIDTH * WIDTH, change->coarse);
            if (layer == change->wrong_layer && m == 1)
                worsen(weights[1][layer][m], WIDTH * WIDTH, change->wrong);
        }
    trace_add(&judged->trace, "embed", x[0], x[1], SHAPE(TOKENS, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int side = 0; side < 2; side++) {
            for (int t = 0; t < TENSORS; t++)
                made[side][t] = calloc(total, sizeof(float));
            rms_norm(x[side], made[side][0]);
            if (side == 1 && layer == change->skipped)
                memcpy(made[1][0], x[1], total * sizeof(float));
            matmul(made[side][0], weights[side][layer][0], TOKENS, WIDTH, WIDTH, made[side][1]);
            for (size_t i = 0; i < total; i++)
                made[side][2][i] = (float)((double)made[side][1][i] / (1 + exp(-(double)made[side][1][i])));
            matmul(made[side][2], weights[side][layer][1], TOKENS, WIDTH, WIDTH, made[side][3]);
            for (size_t i = 0; i < total; i++)
                x[side][i] = made[side][4][i] = x[side][i] + made[side][3][i];
        }
        for (int t = 0; t < TENSORS; t++) {
            trace_add(&judged->trace, made_name(names[t], layer), made[0][t], made[1][t], SHAPE(TOKENS, WIDTH));
            free(made[0][t]);
            free(made[1][t]);
        }
    }
    for (int layer = 0; layer < LAYERS; layer++)
        for (int m = 0; m < 2; m++) {
            free(weights[0][layer][m]);
            free(weights[1][layer][m]);
        }
    free(x[0]);
    free(x[1]);
}

static void judge_layers(const struct change *change, size_t expected)
{
    struct judged judged;
    run_layers(&judged, change);
    expect_first(&judged, expected);
}

static void test_equal_runs_match(void **state)
{
    (void)state;
    judge_layers(&(struct change){.wrong_layer = -1, .skipped = -1}, SIZE_MAX);
}

/* Coarse weights begin somewhere, the first layers being kept, and go on from there. */
static void test_a_precision_may_start(void **state)
{
    (void)state;
    judge_layers(&(struct change){.coarse = 0.05, .wrong_layer = -1, .skipped = -1}, SIZE_MAX);
    judge_layers(&(struct change){.coarse = 0.05, .from = 1, .wrong_layer = -1, .skipped = -1}, SIZE_MAX);
    judge_layers(&(struct change){.coarse = 0.002, .from = 1, .wrong_layer = -1, .skipped = -1}, SIZE_MAX);
}

/* The same error in one place only is a bug: those behind it add nothing. */
static void test_one_wrong_weight_is_no_precision(void **state)
{
    (void)state;
    judge_layers(&(struct change){.wrong_layer = 1, .wrong = 0.3, .skipped = -1}, pair_of(1, 3));
    judge_layers(&(struct change){.wrong_layer = 1, .wrong = 0.02, .skipped = -1}, pair_of(1, 3));
    judge_layers(&(struct change){.coarse = 0.01, .wrong_layer = 1, .wrong = 0.5, .skipped = -1}, pair_of(1, 3));
}

/* A replay that fails further on ends what may be asked: an honest start before it stays honest. */
static void test_a_failed_replay_ends_the_view(void **state)
{
    (void)state;
    judge_layers(&(struct change){.coarse = 0.03, .wrong_layer = -1, .skipped = 1}, pair_of(1, 0));
}

/* The router's choice is replayed on the candidate's own logits. Tokens that took other experts are set aside; those
 * whose experts have another order are not, as the same sum comes out of them. */
enum { EXPERTS = 8, CHOSEN = 2 };

static void choose(const float *logits, int64_t *chosen)
{
    for (size_t row = 0; row < TOKENS; row++)
        for (size_t k = 0; k < CHOSEN; k++) {
            int64_t best = -1;
            for (int64_t e = 0; e < EXPERTS; e++)
                if (!(k == 1 && chosen[row * CHOSEN] == e) &&
                    (best < 0 || logits[row * EXPERTS + (size_t)e] > logits[row * EXPERTS + (size_t)best]))
                    best = e;
            chosen[row * CHOSEN + k] = best;
        }
}

/* Other experts, and not the same ones in another order. */
static bool took_others(const int64_t *a, const int64_t *b)
{
    return !(a[0] == b[0] && a[1] == b[1]) && !(a[0] == b[1] && a[1] == b[0]);
}

/* Four products of coarse weights, the last of them a router's; then its choice. */
static void route(struct judged *judged, int64_t wrong_by, size_t *flipped, size_t *turned)
{
    static const char *const names[4] = {"layers.0.q_proj", "layers.0.k_proj", "layers.0.v_proj", "layers.0.router"};
    float *hidden, logits[2][TOKENS * EXPERTS];
    int64_t chosen[2][TOKENS * CHOSEN];
    trace_start(&judged->trace);
    hidden = made_values(TOKENS * WIDTH);
    trace_add(&judged->trace, "embed", hidden, hidden, SHAPE(TOKENS, WIDTH));
    for (int product = 0; product < 4; product++) {
        float *weight = made_values(WIDTH * EXPERTS);
        matmul(hidden, weight, TOKENS, WIDTH, EXPERTS, logits[0]);
        worsen(weight, WIDTH * EXPERTS, 0.3);
        matmul(hidden, weight, TOKENS, WIDTH, EXPERTS, logits[1]);
        trace_add(&judged->trace, names[product], logits[0], logits[1], SHAPE(TOKENS, EXPERTS));
        free(weight);
    }
    choose(logits[0], chosen[0]);
    choose(logits[1], chosen[1]);
    chosen[1][4] = (chosen[1][4] + wrong_by) % EXPERTS;
    *flipped = *turned = 0;
    for (size_t row = 0; row < TOKENS; row++) {
        const int64_t *a = chosen[0] + row * CHOSEN, *b = chosen[1] + row * CHOSEN;
        *flipped += took_others(a, b);
        *turned += !took_others(a, b) && a[0] != b[0];
    }
    trace_add_integers(&judged->trace, "layers.0.router.indices", chosen[0], chosen[1], TOKENS, CHOSEN);
    free(hidden);
}

static void test_chosen_experts_follow_the_candidates_logits(void **state)
{
    struct judged judged;
    size_t flipped, turned;
    (void)state;
    route(&judged, 0, &flipped, &turned);
    judged_run(&judged);
    assert_true(flipped >= 3 && turned >= 1); /* or this test shows nothing */
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.verdicts[5].judged, TS_JUDGED_NOISE);
    assert_int_equal(judged.judgement.aside_count, flipped);
    judged_end(&judged);
    route(&judged, 3, &flipped, &turned);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, 5);
    assert_non_null(strstr(judged.judgement.verdicts[5].why, "token 2"));
    judged_end(&judged);
}

/* Integers that no router chose must be equal, wherever they stand in a long run. */
static void test_token_ids_must_be_equal(void **state)
{
    enum { LONG = 300, NARROW = 16 };
    (void)state;
    for (size_t wrong = 140; wrong < 150; wrong++) {
        int64_t ids[2][LONG];
        struct judged judged;
        float *x = made_values(LONG * NARROW);
        trace_start(&judged.trace);
        for (size_t i = 0; i < LONG; i++)
            ids[0][i] = ids[1][i] = (int64_t)(i * 7 % 100);
        ids[1][wrong]++;
        trace_add(&judged.trace, "embed", x, x, SHAPE(LONG, NARROW));
        trace_add(&judged.trace, "hidden", x, x, SHAPE(LONG, NARROW));
        trace_add_integers(&judged.trace, "input_ids", ids[0], ids[1], LONG, 1);
        free(x);
        expect_first(&judged, 2);
    }
}

/* A norm of 300 tokens that is wrong in one, and right in all. */
static void judge_long(size_t wrong_token, size_t expected)
{
    enum { LONG = 300, NARROW = 16 };
    struct judged judged;
    float *x = made_values(LONG * NARROW), *y[2];
    trace_start(&judged.trace);
    for (int side = 0; side < 2; side++) {
        y[side] = malloc(LONG * NARROW * sizeof(float));
        for (size_t row = 0; row < LONG; row++) {
            double square = 0;
            for (size_t i = 0; i < NARROW; i++)
                square += (double)x[row * NARROW + i] * (double)x[row * NARROW + i];
            for (size_t i = 0; i < NARROW; i++)
                y[side][row * NARROW + i] = (float)((double)x[row * NARROW + i] / sqrt(square / NARROW + 1e-6) *
                                                    (side && row == wrong_token ? 1.3 : 1));
        }
    }
    shake(y[1], y[1], LONG * NARROW, 1e-7);
    trace_add(&judged.trace, "embed", x, x, SHAPE(LONG, NARROW));
    trace_add(&judged.trace, "norm", y[0], y[1], SHAPE(LONG, NARROW));
    free(x);
    free(y[0]);
    free(y[1]);
    expect_first(&judged, expected);
}

static void test_the_worst_tokens_of_a_long_run_are_seen(void **state)
{
    (void)state;
    for (size_t token = 100; token < 110; token++)
        judge_long(token, 1);
    judge_long(SIZE_MAX, SIZE_MAX);
}

/* One token has no statistics over channels; its numbers have. */
static void judge_single(int wrong, size_t expected)
{
    enum { NUMBERS = 64 };
    struct judged judged;
    float *x, *y, *near_y;
    trace_start(&judged.trace);
    x = made_values(NUMBERS);
    y = made_values(NUMBERS);
    near_y = malloc(NUMBERS * sizeof *near_y);
    shake(y, near_y, NUMBERS, 2e-3);
    if (wrong >= 0)
        near_y[wrong] = -near_y[wrong];
    trace_add(&judged.trace, "embed", x, x, SHAPE(1, NUMBERS));
    trace_add(&judged.trace, "layers.0.up_proj", y, near_y, SHAPE(1, NUMBERS));
    free(x);
    free(y);
    free(near_y);
    expect_first(&judged, expected);
}

static void test_one_number_of_one_token(void **state)
{
    (void)state;
    judge_single(-1, SIZE_MAX);
    judge_single(11, 1);
}

/* Logits whose cap is missing, or that alone have one: the error grows to some six times what came in, which one
 * product may make, but half of it follows the reference, which no product's does. */
static void judge_logits(bool capped_a, bool capped_b, size_t expected)
{
    enum { MANY = 20, TOTAL = MANY * 48 };
    static const char *const names[] = {"layers.0.q_proj", "layers.0.k_proj", "layers.0.o_proj",
                                        "layers.1.q_proj", "layers.1.k_proj", "layers.1.o_proj"};
    struct judged judged;
    float *x, *y = malloc(TOTAL * sizeof *y);
    trace_start(&judged.trace);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        x = made_values(TOTAL);
        shake(x, y, TOTAL, 0.05);
        trace_add(&judged.trace, names[i], x, y, SHAPE(MANY, TOTAL / MANY));
        free(x);
    }
    x = made_values(TOTAL);
    shake(x, y, TOTAL, capped_a && capped_b ? 0.28 : capped_b ? 0.12 : 0.05);
    for (size_t i = 0; i < TOTAL; i++) {
        x[i] = capped_a ? (float)(2.5 * tanh((double)x[i] / 2.5)) : x[i];
        y[i] = capped_b ? (float)(2.5 * tanh((double)y[i] / 2.5)) : y[i];
    }
    trace_add(&judged.trace, "lm_head", x, y, SHAPE(MANY, TOTAL / MANY));
    free(x);
    free(y);
    expect_first(&judged, expected);
}

static void test_an_error_that_follows_and_grows(void **state)
{
    (void)state;
    judge_logits(true, false, 6);
    judge_logits(false, true, 6);
    judge_logits(true, true, SIZE_MAX);
}

/* Captures that begin inside of a run, of two streams that are far apart: the first norm may have been made of noise,
 * but what has no relation to the reference behind the first divergence is none, and the report tells of both. */
static void test_unrelated_is_no_noise(void **state)
{
    static const char *const names[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    struct judged judged;
    (void)state;
    trace_start(&judged.trace);
    for (int layer = 1; layer < 3; layer++) {
        float *a = made_values(TOKENS * WIDTH), *b = malloc(TOKENS * WIDTH * sizeof *b);
        err(a, b, TOKENS * WIDTH, 0.62);
        trace_add(&judged.trace, made_name("model.layers.%d.input_layernorm", layer), a, b, SHAPE(TOKENS, WIDTH));
        free(a);
        free(b);
        for (int i = 0; i < 4; i++) {
            char name[64];
            a = made_values(TOKENS * WIDTH);
            b = made_values(TOKENS * WIDTH);
            snprintf(name, sizeof name, "model.layers.%d.self_attn.%s", layer, names[i]);
            trace_add(&judged.trace, name, a, b, SHAPE(TOKENS, WIDTH));
            free(a);
            free(b);
        }
    }
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, 1);
    for (size_t i = 1; i < judged.judgement.count; i++)
        assert_int_equal(judged.judgement.verdicts[i].judged, i == 5 ? TS_JUDGED_NOISE : TS_JUDGED_DIFFERS);
    assert_non_null(strstr(judged.judgement.notes[0], "from \"model.layers.1.input_layernorm\" on"));
    judged_end(&judged);
}

/* A factor that f32 makes by adding up a token's numbers in another order is none; a larger one is. */
static void judge_factor(double by, size_t expected)
{
    enum { MANY = 4, WIDE = 128, TOTAL = MANY * WIDE };
    struct judged judged;
    float *x = made_values(TOTAL), *y = made_values(TOTAL), *near_y = malloc(TOTAL * sizeof *near_y);
    trace_start(&judged.trace);
    for (size_t i = 0; i < TOTAL; i++)
        near_y[i] = (float)((double)y[i] * (1 + by));
    trace_add(&judged.trace, "embed", x, x, SHAPE(MANY, WIDE));
    trace_add(&judged.trace, "ln_1", y, near_y, SHAPE(MANY, WIDE));
    free(x);
    free(y);
    free(near_y);
    expect_first(&judged, expected);
}

static void test_factor_of_a_sum(void **state)
{
    (void)state;
    judge_factor(2.5e-7, SIZE_MAX);
    judge_factor(4e-6, 1);
}

/* A channel that is the same in every token, under noise as large as that of four bits: no noise makes that, unless it
 * is a grid on which numbers elsewhere are the same as well. */
static void judge_constant(bool wrong, double grid, size_t expected)
{
    enum { MANY = 40, WIDE = 64, TOTAL = MANY * WIDE, CONSTANT = 5 };
    static const char *const names[] = {"layers.0.q_proj", "layers.0.k_proj", "layers.0.o_proj", "layers.1.q_proj"};
    struct judged judged;
    float *y = malloc(TOTAL * sizeof *y);
    trace_start(&judged.trace);
    for (size_t tensor = 0; tensor < sizeof names / sizeof *names; tensor++) {
        float *x = made_values(TOTAL);
        for (size_t row = 0; row < MANY; row++)
            x[row * WIDE + CONSTANT] *= 0.4f;
        shake(x, y, TOTAL, grid > 0 ? 0 : 0.2);
        for (size_t i = 0; i < TOTAL; i++) {
            y[i] = grid > 0 ? (float)(grid * nearbyint((double)y[i] / grid)) : y[i];
            y[i] = tensor == 2 && wrong && i % WIDE == CONSTANT ? 0.1f : y[i];
        }
        if (grid > 0) /* or this test shows nothing */
            for (size_t row = 0; row < MANY; row++)
                assert_true(y[row * WIDE + CONSTANT] == 0);
        trace_add(&judged.trace, names[tensor], x, y, SHAPE(MANY, WIDE));
        free(x);
    }
    free(y);
    expect_first(&judged, expected);
}

/* Attention has collapsed in a run of four bits: its tokens lie on one line, along which one channel hardly moves, and
 * is the same number for all of them. Channels beside it lost as much of what they were. */
static void judge_collapsed(bool collapsed, size_t expected)
{
    enum { MANY = 12, WIDE = 64, TOTAL = MANY * WIDE, CONSTANT = 5 };
    static const char *const names[] = {"layers.0.q_proj", "layers.0.k_proj", "layers.0.v_proj", "layers.0.o_proj"};
    struct judged judged;
    float *y = malloc(TOTAL * sizeof *y);
    trace_start(&judged.trace);
    for (size_t tensor = 0; tensor < sizeof names / sizeof *names; tensor++) {
        float *x = made_values(TOTAL), *common = made_values(WIDE), *along = made_values(WIDE);
        common[CONSTANT] *= 0.1f;
        for (size_t i = 0; i < TOTAL; i++)
            x[i] = 3 * common[i % WIDE] + 0.3f * x[i];
        shake(x, y, TOTAL, 0.1);
        for (size_t i = 0; i < TOTAL && tensor == 3; i++) {
            if (collapsed)
                y[i] = 3 * common[i % WIDE] + 0.3f * along[i % WIDE] * (float)(i / WIDE % 3);
            if (i % WIDE == CONSTANT)
                y[i] = 0.125f;
        }
        trace_add(&judged.trace, names[tensor], x, y, SHAPE(MANY, WIDE));
        free(x);
        free(common);
        free(along);
    }
    free(y);
    expect_first(&judged, expected);
}

static void test_a_constant_channel(void **state)
{
    (void)state;
    judge_collapsed(false, 3);
    judge_collapsed(true, SIZE_MAX);
    judge_constant(false, 0, SIZE_MAX);
    judge_constant(true, 0, 2);
    judge_constant(false, 2.4, SIZE_MAX);
}

static void test_times_in_words(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{1.734, "1.73"},         {999, "999"},        {1000, "1,000"},     {1151, "1,200"},
                 {11500, "12,000"},       {123456, "120,000"}, {994000, "990,000"}, {1.73e6, "1.73 million"},
                 {2.2e11, "220 billion"}, {INFINITY, "inf"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ts_judge_times(cases[i].value).text, cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_runs_match),
        cmocka_unit_test(test_times_in_words),
        cmocka_unit_test(test_a_precision_may_start),
        cmocka_unit_test(test_one_wrong_weight_is_no_precision),
        cmocka_unit_test(test_a_failed_replay_ends_the_view),
        cmocka_unit_test(test_chosen_experts_follow_the_candidates_logits),
        cmocka_unit_test(test_token_ids_must_be_equal),
        cmocka_unit_test(test_the_worst_tokens_of_a_long_run_are_seen),
        cmocka_unit_test(test_one_number_of_one_token),
        cmocka_unit_test(test_an_error_that_follows_and_grows),
        cmocka_unit_test(test_unrelated_is_no_noise),
        cmocka_unit_test(test_factor_of_a_sum),
        cmocka_unit_test(test_a_constant_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
