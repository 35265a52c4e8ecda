/* The judge where one channel or one token is far from the others, as in large models: how its few numbers were rounded
 * says nothing of the tensor. Each with the same trace where all of it is wrong. */
#include "judged_trace.h"

enum { TOKENS = 16, WIDTH = 64, TOTAL = TOKENS * WIDTH, LARGE = 5 };

/* A norm in bf16 of tokens with one channel that is all of their size: it gives nearly the same number in each of them.
 * Its weight lies just below the middle of two bf16 numbers and is rounded down. */
static void judge_norm(double factor, size_t expected)
{
    struct judged judged;
    float *x, *weight, near_x[TOTAL], y[2][TOTAL];
    trace_start(&judged.trace);
    x = made_values(TOTAL);
    weight = made_values(WIDTH);
    weight[LARGE] = 1.00385f;
    for (size_t row = 0; row < TOKENS; row++)
        x[row * WIDTH + LARGE] = (row % 3 ? 400.0f : -600.0f) + x[row * WIDTH + LARGE];
    memcpy(near_x, x, sizeof near_x);
    round_all(near_x, TOTAL);
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < TOKENS; row++) {
            const float *from = (side ? near_x : x) + row * WIDTH;
            double square = 0;
            for (size_t i = 0; i < WIDTH; i++)
                square += (double)from[i] * (double)from[i];
            for (size_t i = 0; i < WIDTH; i++) {
                double by = (double)(side ? to_bf16(weight[i]) : weight[i]) * (side ? factor : 1);
                y[side][row * WIDTH + i] = (float)((double)from[i] / sqrt(square / WIDTH + 1e-6) * by);
            }
        }
    round_all(y[1], TOTAL);
    trace_add(&judged.trace, "embed", x, near_x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.norm", y[0], y[1], SHAPE(TOKENS, WIDTH));
    free(x);
    free(weight);
    expect_first(&judged, expected);
}

static void test_a_norm_of_a_large_channel(void **state)
{
    (void)state;
    judge_norm(1, SIZE_MAX);
    judge_norm(0.984, 1);
}

/* A sum in bf16 of a stream with one channel that is all of its size: what that is rounded by is more than a tenth of
 * the other channels, and none of theirs. */
static void judge_sum(double factor, size_t expected)
{
    struct judged judged;
    float *x, *y, near_x[TOTAL], near_y[TOTAL], sum[2][TOTAL];
    trace_start(&judged.trace);
    x = made_values(TOTAL);
    y = made_values(TOTAL);
    for (size_t row = 0; row < TOKENS; row++)
        x[row * WIDTH + LARGE] = (row % 3 ? 400.0f : -600.0f) + x[row * WIDTH + LARGE];
    memcpy(near_x, x, sizeof near_x);
    memcpy(near_y, y, sizeof near_y);
    round_all(near_x, TOTAL);
    round_all(near_y, TOTAL);
    for (size_t i = 0; i < TOTAL; i++) {
        sum[0][i] = x[i] + y[i];
        sum[1][i] = near_x[i] + (float)factor * near_y[i];
    }
    round_all(sum[1], TOTAL);
    trace_add(&judged.trace, "layers.0.stream", x, near_x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.branch", y, near_y, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.sum", sum[0], sum[1], SHAPE(TOKENS, WIDTH));
    free(x);
    free(y);
    expect_first(&judged, expected);
}

static void test_a_sum_beside_a_large_channel(void **state)
{
    (void)state;
    judge_sum(1, SIZE_MAX);
    judge_sum(0.9, 2);
}

/* Products of weights of three bits, the last of which has a channel that is large in every token, as its error is; or
 * every channel has the same error in every token. */
static void judge_product(bool everywhere, size_t expected)
{
    static const char *const names[] = {"layers.0.q", "layers.0.k", "layers.0.v", "layers.0.up", "layers.0.down"};
    struct judged judged;
    trace_start(&judged.trace);
    for (int i = 0; i < 5; i++) {
        float *a = made_values(TOTAL), *errors = made_values(TOTAL), b[TOTAL];
        for (size_t k = 0; k < TOTAL; k++) {
            b[k] = a[k] + 0.2f * errors[k];
            if (i < 4)
                continue;
            if (k % WIDTH == LARGE)
                a[k] = b[k] = 10 * a[k] + (everywhere ? 0 : 15);
            if (everywhere)
                b[k] += k % WIDTH % 3 ? 0.8f : -0.8f;
            else if (k % WIDTH == LARGE)
                b[k] += 12;
        }
        trace_add(&judged.trace, names[i], a, b, SHAPE(TOKENS, WIDTH));
        free(a);
        free(errors);
    }
    expect_first(&judged, expected);
}

static void test_an_offset_of_one_channel(void **state)
{
    (void)state;
    judge_product(false, SIZE_MAX);
    judge_product(true, 4);
}

/* Logits of a few experts, a token of which carries another expert's error: all its numbers are far from the others. */
static void test_a_token_of_few_numbers(void **state)
{
    enum { EXPERTS = 4, MANY = 24 };
    static const char *const names[] = {"layers.1.q", "layers.1.k", "layers.1.v", "layers.1.router"};
    struct judged judged;
    (void)state;
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++) {
        const size_t width = i < 3 ? WIDTH : EXPERTS;
        float *a = made_values(MANY * width), *b = malloc(MANY * width * sizeof *b);
        shake(a, b, MANY * width, i < 3 ? 0.02 : 0.005);
        for (size_t k = 0; k < width && i == 3; k++)
            b[21 * width + k] += k % 2 ? 0.3f : -0.4f;
        trace_add(&judged.trace, names[i], a, b, SHAPE(MANY, width));
        free(a);
        free(b);
    }
    expect_first(&judged, SIZE_MAX);
}

/* What an activation leaves: nearly half of all numbers, and most of one token and one channel, are zero on both sides.
 * Where these meet a number is zero in the reference alone, and errs by no more than the others do. */
static void judge_rectified(double by, size_t expected)
{
    static const size_t token = 3, channel = 7;
    struct judged judged;
    trace_start(&judged.trace);
    for (int t = 0; t < 4; t++) {
        float *a = made_values(TOTAL), *b = malloc(TOTAL * sizeof *b);
        for (size_t i = 0; i < TOTAL; i++) {
            bool calm = i / WIDTH == token || i % WIDTH == channel;
            a[i] = calm && i % 5 ? 0 : i % 100 < (calm ? 0 : 46) ? 0 : i % 100 < 60 ? 1e-5f : fabsf(a[i]) + 0.1f;
            a[i] = calm && a[i] > 0 ? 1e-5f : a[i];
            b[i] = a[i] * (float)(1 + 0.005 * dice_number());
        }
        a[token * WIDTH + channel] = 0;
        b[token * WIDTH + channel] = t == 3 ? (float)by : 0;
        trace_add(&judged.trace, made_name("layers.%d.relu", t), a, b, SHAPE(TOKENS, WIDTH));
        free(a);
        free(b);
    }
    expect_first(&judged, expected);
}

static void test_numbers_that_are_zero_on_both_sides(void **state)
{
    (void)state;
    judge_rectified(0.005, SIZE_MAX);
    judge_rectified(30, 3);
}

/* Products, all of which are made with weights of few bits; or some numbers of the first one were hit, one in so many.
 */
static void judge_hits(size_t one_in, size_t expected)
{
    static const char *const names[] = {"embed",       "layers.0.up",   "layers.0.down",
                                        "layers.1.up", "layers.1.down", "lm_head"};
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t i = 0; i < 6; i++) {
        float *a = made_values(TOTAL), b[TOTAL];
        shake(a, b, TOTAL, i == 0 || (i == 1 && one_in) ? 3e-7 : 0.15);
        for (size_t k = 0; k < TOTAL && i == 1 && one_in; k++)
            b[k] += dice() % one_in ? 0 : 0.7f * (float)dice_number();
        trace_add(&judged.trace, names[i], a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_scattered_hits_are_no_low_precision(void **state)
{
    (void)state;
    judge_hits(0, SIZE_MAX);
    judge_hits(20, 1);
    judge_hits(5, 1);
}

/* No tokens at all, with heads and without, and no number that tells of any. */
static void test_tensors_without_numbers(void **state)
{
    static const float none[1] = {0};
    struct judged judged;
    (void)state;
    trace_start(&judged.trace);
    trace_add(&judged.trace, "x", none, none, SHAPE(0, 8));
    trace_add(&judged.trace, "scores", none, none, SHAPE(0, 0, 0));
    trace_add(&judged.trace, "scores_of_heads", none, none, SHAPE(4, 0, 0));
    expect_first(&judged, SIZE_MAX);
}

/* In one token some numbers are large, and err by as much as one among them that is small; or that one errs alone. */
static void judge_small_number(bool alone, size_t expected)
{
    enum { WIDE = 8192, MANY = TOKENS * WIDE, TOKEN = 9, FIRST = 40, SOME = 8 };
    struct judged judged;
    trace_start(&judged.trace);
    for (int i = 0; i < 5; i++) {
        float *a = made_values(MANY), *errors = made_values(MANY), *b = malloc(MANY * sizeof *b);
        assert_non_null(b);
        for (size_t k = 0; k < MANY; k++) {
            const size_t at = k - (TOKEN * WIDE + FIRST);
            const bool some = i == 4 && k >= TOKEN * WIDE + FIRST && at < SOME;
            a[k] = !some ? a[k] : at == 3 ? 0.01f : at % 2 ? 20.0f : -20.0f;
            b[k] = a[k] + (some && (at == 3 || !alone) ? 0.5f : 3e-3f * errors[k]);
        }
        trace_add(&judged.trace, i < 4 ? made_name("layers.0.part_%d.proj", i) : "layers.0.mixer.norm", a, b,
                  SHAPE(TOKENS, WIDE));
        free(a);
        free(errors);
        free(b);
    }
    expect_first(&judged, expected);
}

static void test_a_small_number_among_large_ones(void **state)
{
    (void)state;
    judge_small_number(false, SIZE_MAX);
    judge_small_number(true, 4);
}

/* Seven tokens of two heads. The first head errs by so much, in all of them or in one: a near tie of its softmax. */
static void judge_head(bool all, double error, size_t expected)
{
    enum { FEW = 7, HEADS = 2, SIZE = 8, OF = HEADS * SIZE };
    struct judged judged;
    trace_start(&judged.trace);
    for (int k = 0; k < 5; k++) {
        float *a = made_values(FEW * OF), b[FEW * OF];
        for (size_t row = 0; row < FEW; row++)
            for (size_t i = row * OF; i < (row + 1) * OF; i += SIZE)
                err(a + i, b + i, SIZE, k == 4 && i == row * OF && (all || row == 4) ? error : 0.05);
        trace_add(&judged.trace, k < 4 ? made_name("layers.0.part_%d", k) : "layers.0.attn_context", a, b,
                  SHAPE(FEW, HEADS, SIZE));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_one_token_of_a_head(void **state)
{
    (void)state;
    judge_head(false, 0.8, SIZE_MAX);
    judge_head(true, 0.3, 4);
}

/* A sum in a stream of pictures, with numbers as low as masks are written: those of a candidate that takes a little
 * less end just above that. Or one of them was lost. */
static void judge_low_numbers(float lost, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *y = made_values(TOTAL), near_x[TOTAL], near_y[TOTAL], sum[2][TOTAL];
    trace_start(&judged.trace);
    for (size_t i = 0; i < TOTAL; i++) {
        x[i] = i % 9 ? 3000 * x[i] : -6004 - (float)(i % 7);
        y[i] = i % 9 ? 3000 * y[i] : -4000;
        near_x[i] = 0.999f * x[i];
        near_y[i] = 0.999f * y[i];
        sum[0][i] = x[i] + y[i];
        sum[1][i] = near_x[i] + near_y[i];
    }
    sum[1][9] += lost;
    trace_add(&judged.trace, "layers.0.residual", x, near_x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.mlp", y, near_y, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0", sum[0], sum[1], SHAPE(TOKENS, WIDTH));
    free(x);
    free(y);
    expect_first(&judged, expected);
}

static void test_numbers_as_low_as_masks(void **state)
{
    (void)state;
    judge_low_numbers(0, SIZE_MAX);
    judge_low_numbers(-8000, 2);
}

/* Numbers with an error of this size, both as they are for a token. */
static void add_errors(const float *a, float *b, size_t count, double error)
{
    for (size_t i = 0; i < count; i++)
        b[i] = a[i] + (float)(error * dice_number());
}

/* A product of numbers few of which are large: what becomes of a token's error depends on which of them err. Half of
 * the tokens err little there, and that stays; the others err five times as much, of which a fifth is left. The last
 * token errs by `came`, and by `left` behind it. */
static void judge_gain(double came, double left, size_t expected)
{
    enum { ODD = 17 };
    struct judged judged;
    float *a, b[ODD * WIDTH];
    trace_start(&judged.trace);
    for (int i = 0; i < 5; i++) {
        a = made_values(ODD * WIDTH);
        for (size_t row = 0; row < ODD; row++) {
            const double error = i < 3               ? 0.2
                                 : row + 1 == ODD    ? (i == 3 ? came : left)
                                 : i == 3 && row % 2 ? 0.02
                                                     : 0.004;
            for (size_t k = 0; k < WIDTH && i == 4; k++)
                a[row * WIDTH + k] *= 0.2f;
            add_errors(a + row * WIDTH, b + row * WIDTH, WIDTH, error);
        }
        trace_add(&judged.trace,
                  i < 3    ? made_name("layers.0.product_%d", i)
                  : i == 3 ? "layers.0.mlp.intermediate"
                           : "layers.0.mlp.down_proj",
                  a, b, SHAPE(ODD, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_what_becomes_of_a_token(void **state)
{
    (void)state;
    judge_gain(0.2, 0.2, SIZE_MAX);
    judge_gain(0.004, 0.2, 4);
}

/* The first projections of a run, in eight bits, which are given an axis of heads behind them. One head, of twelve,
 * errs by so many times what the others do. */
static void judge_projection(double times, size_t expected)
{
    enum { ROWS = 8, HEADS = 12, SIZE = 16, ACROSS = HEADS * SIZE };
    static const char *const names[][2] = {{"layers.0.q_proj", "layers.0.q"}, {"layers.0.k_proj", "layers.0.k"}};
    struct judged judged;
    float *embed = made_values(ROWS * ACROSS);
    trace_start(&judged.trace);
    trace_add(&judged.trace, "embed", embed, embed, SHAPE(ROWS, ACROSS));
    free(embed);
    for (int i = 0; i < 2; i++) {
        float *a = made_values(ROWS * ACROSS), b[ROWS * ACROSS];
        for (size_t k = 0; k < ROWS * ACROSS; k++)
            b[k] = a[k] + (float)((i == 0 && k % ACROSS / SIZE == 3 ? times : 1) * 0.01 * dice_number());
        trace_add(&judged.trace, names[i][0], a, b, SHAPE(ROWS, ACROSS));
        trace_add(&judged.trace, names[i][1], a, b, SHAPE(ROWS, HEADS, SIZE));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_a_head_of_the_first_projection(void **state)
{
    (void)state;
    judge_projection(1, SIZE_MAX);
    judge_projection(8, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_token_of_a_head),
        cmocka_unit_test(test_a_small_number_among_large_ones),
        cmocka_unit_test(test_a_norm_of_a_large_channel),
        cmocka_unit_test(test_a_sum_beside_a_large_channel),
        cmocka_unit_test(test_an_offset_of_one_channel),
        cmocka_unit_test(test_a_token_of_few_numbers),
        cmocka_unit_test(test_what_becomes_of_a_token),
        cmocka_unit_test(test_a_head_of_the_first_projection),
        cmocka_unit_test(test_numbers_as_low_as_masks),
        cmocka_unit_test(test_numbers_that_are_zero_on_both_sides),
        cmocka_unit_test(test_scattered_hits_are_no_low_precision),
        cmocka_unit_test(test_tensors_without_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
