/* Diagnosis of a few wrong elements, and words that must not be said of tensors they do not fit. */
#include "base/progress.h"
#include "made_trace.h"

enum { TOKENS = 12, HIDDEN = 48, TOTAL = TOKENS * HIDDEN };

/* The element is among the rows that a diagnosis takes of a long run, and its place is told by all axes. */
static void test_place_of_a_nan(void **state)
{
    enum { LONG = 700, NARROW = 16 };
    struct trace trace;
    float *x, *y;
    (void)state;
    for (size_t token = 301; token < 304; token++) {
        char words[64];
        trace_start(&trace);
        x = made_values(LONG * NARROW);
        y = malloc(LONG * NARROW * sizeof *y);
        memcpy(y, x, LONG * NARROW * sizeof *y);
        trace_add(&trace, "embed", x, x, SHAPE(LONG, NARROW));
        y[token * NARROW + 5] = NAN;
        trace_add(&trace, "hidden", x, y, SHAPE(LONG, NARROW));
        trace_diagnose(&trace, 1);
        snprintf(words, sizeof words, "token %zu, channel 5", token);
        assert_first(&trace, "nan", words);
        trace_end(&trace);
        free(x);
        free(y);
    }
    trace_start(&trace);
    x = made_values(3 * 5 * 8 * 8);
    y = malloc(3 * 5 * 8 * 8 * sizeof *y);
    memcpy(y, x, 3 * 5 * 8 * 8 * sizeof *y);
    y[((1 * 5 + 2) * 8 + 3) * 8 + 4] = NAN;
    trace_add(&trace, "patches", x, y, SHAPE(3, 5, 8, 8));
    trace_diagnose(&trace, 0);
    assert_first(&trace, "nan", "[1,2,3,4]");
    assert_non_null(strstr(trace.diagnosis.causes[0].summary, "1 of 960 elements is NaN, at"));
    trace_end(&trace);
    free(x);
    free(y);
}

/* Three tokens, each in the place of the next. */
static void test_three_tokens_that_are_shifted(void **state)
{
    enum { FEW = 3 };
    struct trace trace;
    float *x = made_values(FEW * HIDDEN), y[FEW * HIDDEN];
    (void)state;
    for (size_t i = 0; i < FEW * HIDDEN; i++)
        y[(i + HIDDEN) % (FEW * HIDDEN)] = x[i];
    trace_start(&trace);
    trace_diagnose(&trace, trace_add(&trace, "layers.0.k_proj", x, y, SHAPE(FEW, HIDDEN)));
    assert_first(&trace, "shifted", "wrapping around");
    trace_end(&trace);
    free(x);
}

/* Six tokens behind attention, all scores of which were halved: what differs between tokens is, around the same mean. A
 * factor and an offset for each channel give that as well. */
static void test_flatter_attention_of_few_tokens(void **state)
{
    enum { FEW = 6 };
    struct trace trace;
    float *x = made_values(FEW * HIDDEN), *mean = made_values(HIDDEN), y[FEW * HIDDEN];
    (void)state;
    for (size_t i = 0; i < FEW * HIDDEN; i++) {
        y[i] = mean[i % HIDDEN] + 0.1f * x[i] + 0.01f * (float)dice_number();
        x[i] = mean[i % HIDDEN] + 0.2f * x[i];
    }
    trace_start(&trace);
    trace_diagnose(&trace, trace_add(&trace, "block_1_attn_out", x, y, SHAPE(FEW, HIDDEN)));
    assert_first(&trace, "softmax", "the candidate's attention is flatter");
    trace_end(&trace);
    free(x);
    free(mean);
}

/* Whatever else is found in the numbers beside it, and proved on all of them. */
static void test_a_nan_comes_first(void **state)
{
    struct trace trace;
    float *x = made_values(TOTAL), y[TOTAL];
    (void)state;
    for (size_t i = 0; i < TOTAL; i++)
        y[i] = 1.5f * x[i];
    y[7 * HIDDEN + 9] = NAN;
    trace_start(&trace);
    trace_add(&trace, "embed", x, x, SHAPE(TOKENS, HIDDEN));
    trace_add(&trace, "hidden", x, y, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, 1);
    assert_first(&trace, "nan", "token 7, channel 9");
    assert_true(trace.diagnosis.count > 1);
    assert_string_equal(trace.diagnosis.causes[1].id, "scaled");
    trace_end(&trace);
    free(x);
}

/* Sums of twelve: as normal as a fresh initialization is. */
static void fill_normal(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < 12; k++)
            sum += dice_number();
        values[i] = (float)(0.01 * sum);
    }
}

/* `guess`: a pair that shapes and values brought together is looked at by itself. */
static const struct ts_cause *unrelated(struct trace *trace, const char *name, bool guess)
{
    float a[TOTAL], b[TOTAL];
    trace_start(trace);
    fill_normal(a, TOTAL);
    fill_normal(b, TOTAL);
    trace_add(trace, name, a, b, SHAPE(TOKENS, HIDDEN));
    for (int i = 0; i < 4; i++) /* what was captured behind it has other tokens */
        trace_add(trace, made_name("layers.%d", i), a, a, SHAPE(5, HIDDEN));
    trace->pairs[0].guess = guess;
    trace_diagnose(trace, 0);
    assert_first(trace, "unrelated", NULL);
    return &trace->diagnosis.causes[0];
}

/* What a run computed was not loaded; what a file holds was. */
static void test_advice_for_runs(void **state)
{
    struct trace trace;
    const struct ts_cause *cause;
    (void)state;
    for (int guess = 0; guess < 2; guess++) {
        cause = unrelated(&trace, "model.embed_tokens", guess);
        assert_null(strstr(cause->check, "this weight was loaded"));
        assert_null(strstr(cause->summary, "initialization"));
        assert_null(strstr(cause->summary, "its inputs agree")); /* nothing does */
        assert_non_null(strstr(cause->check, "same input"));
        trace_end(&trace);
    }
    cause = unrelated(&trace, "model.embed_tokens.weight", false);
    assert_non_null(strstr(cause->check, "this weight was loaded"));
    trace_end(&trace);
}

/* Low numbers are a mask only where something is masked. */
static void low_numbers(struct trace *trace, float low_a, float low_b)
{
    float *a, b[TOTAL];
    trace_start(trace);
    a = made_values(TOTAL);
    for (size_t i = 0; i < TOTAL; i++) {
        bool low = i % 7 == 3;
        b[i] = low && i % 2 ? low_b : a[i];
        a[i] = low && !(i % 2) ? low_a : a[i];
        b[i] = low && !(i % 2) ? low_a : b[i];
    }
    trace_add(trace, "hidden", a, b, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(trace, 0);
    free(a);
}

static void test_no_mask_without_masks(void **state)
{
    struct trace trace;
    (void)state;
    low_numbers(&trace, 1, -30000);
    assert_null(trace_cause(&trace, "mask"));
    trace_end(&trace);
    low_numbers(&trace, -30000, -30000);
    assert_non_null(trace_cause(&trace, "mask"));
    trace_end(&trace);
}

/* One wrong number on top of rounding is the finding, and the rounding is not. */
static void test_one_number_on_top_of_rounding(void **state)
{
    struct trace trace;
    float *a, b[TOTAL];
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        trace_start(&trace);
        a = made_values(TOTAL);
        for (size_t i = 0; i < TOTAL; i++)
            b[i] = to_bf16(a[i]);
        if (wrong)
            b[3 * HIDDEN + 7] = 5;
        trace_add(&trace, "hidden", a, b, SHAPE(TOKENS, HIDDEN));
        trace_diagnose(&trace, 0);
        if (wrong) {
            assert_first(&trace, "sparse", "token 3, channel 7: 5 instead of");
            assert_null(trace_cause(&trace, "rounding"));
        } else {
            assert_first(&trace, "rounding", "rounded to bf16");
        }
        trace_end(&trace);
        free(a);
    }
}

static void diagnose_curve(struct trace *trace, const float *a, const float *b)
{
    trace_start(trace);
    trace_add(trace, "logits", a, b, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(trace, 0);
}

/* Anything constant, and anything tiny, lies on the curve of some cap. */
static void test_softcap_needs_a_curve(void **state)
{
    struct trace trace;
    float a[TOTAL], b[TOTAL];
    (void)state;
    for (int capped = 0; capped < 2; capped++) { /* a real one, here and missing */
        dice_state = 5;
        for (size_t i = 0; i < TOTAL; i++) {
            float x = (float)(60 * dice_number()), y = (float)(30 * tanh((double)x / 30));
            a[i] = capped ? x : y;
            b[i] = capped ? y : x;
        }
        diagnose_curve(&trace, a, b);
        assert_first(&trace, "clamped", "30 * tanh(x / 30)");
        trace_end(&trace);
    }
    for (size_t i = 0; i < TOTAL; i++) {
        a[i] = 1;
        b[i] = 2;
    }
    diagnose_curve(&trace, a, b);
    assert_null(trace_cause(&trace, "clamped"));
    trace_end(&trace);
    for (size_t i = 0; i < TOTAL; i++) {
        a[i] = ts_float_from_bits((uint32_t)(1 + i % 700));
        b[i] = ts_float_from_bits((uint32_t)(1 + i % 700 + (i % 700) * (i % 700) / 900));
    }
    diagnose_curve(&trace, a, b);
    assert_null(trace_cause(&trace, "clamped"));
    trace_end(&trace);
}

/* A square of more tokens than are looked at whole, its sides having changed places. */
static void test_a_large_square_that_is_turned(void **state)
{
    enum { SIDE = 300 };
    struct trace trace;
    float *a, *b = malloc(SIDE * SIDE * sizeof *b);
    (void)state;
    trace_start(&trace);
    a = made_values(SIDE * SIDE);
    for (size_t i = 0; i < SIDE; i++)
        for (size_t k = 0; k < SIDE; k++)
            b[i * SIDE + k] = to_bf16(a[k * SIDE + i]);
    trace_add(&trace, "w", a, b, SHAPE(SIDE, SIDE));
    trace_diagnose(&trace, 0);
    assert_first(&trace, "permuted", "it is transposed");
    trace_end(&trace);
    free(a);
    free(b);
}

/* Whoever stops the program does not wait for every hypothesis. */
static void test_interrupted(void **state)
{
    float a[TOTAL], b[TOTAL];
    struct trace trace;
    struct ts_diagnosis diagnosis;
    struct ts_error error;
    (void)state;
    fill_normal(a, TOTAL);
    fill_normal(b, TOTAL);
    trace_start(&trace);
    trace_add(&trace, "hidden", a, b, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, 0); /* measures */
    atomic_store(&ts_cancelled, true);
    assert_int_equal(ts_diagnose(trace.pairs, trace.deltas, 1, 0, &diagnosis, &error), TS_ERR_CANCELLED);
    atomic_store(&ts_cancelled, false);
    trace_end(&trace);
}

/* A reference of zeros has no size for anything to stand out against, and infinities of another sign are no rounding.
 */
static void test_nothing_to_compare_with(void **state)
{
    float a[TOTAL] = {0}, b[TOTAL];
    struct trace trace;
    (void)state;
    fill_normal(b, TOTAL);
    trace_start(&trace);
    trace_add(&trace, "hidden", a, b, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, 0);
    if (!trace.diagnosis.count)
        assert_non_null(strstr(trace.diagnosis.strongest, "only zeros are expected"));
    trace_end(&trace);
    for (size_t i = 0; i < TOTAL; i++) {
        a[i] = INFINITY;
        b[i] = -INFINITY;
    }
    trace_start(&trace);
    trace_add(&trace, "hidden", a, b, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, 0);
    if (!trace.diagnosis.count)
        assert_null(strstr(trace.diagnosis.strongest, "rounding"));
    trace_end(&trace);
}

/* Attention that looks at everything alike gives all tokens one row, but for noise. Another row in its place is a
 * constant per channel away from the right one, and so is a bias; what it is shows in how much they are alike. */
static void expect_one_row(double bias)
{
    struct trace trace;
    float *x, *row, *other, a[TOTAL], b[TOTAL];
    trace_start(&trace);
    x = made_values(TOTAL);
    row = made_values(HIDDEN);
    other = made_values(HIDDEN);
    for (size_t i = 0; i < TOTAL; i++) {
        double apart = 1e-4 * dice_number();
        double wrong =
            bias > 0 ? (double)row[i % HIDDEN] + bias * (double)other[i % HIDDEN] : (double)other[i % HIDDEN];
        a[i] = (float)((double)row[i % HIDDEN] + apart);
        b[i] = to_bf16((float)(wrong + 1e-3 * dice_number()));
        x[i] = to_bf16(x[i]);
    }
    trace_add(&trace, "block_0_modulated", x, x, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "block_0_attn_out", a, b, SHAPE(TOKENS, HIDDEN)));
    if (bias > 0)
        assert_non_null(trace_cause(&trace, "offset"));
    else
        assert_true(!trace_cause(&trace, "offset") && !trace_cause(&trace, "channel-scaled"));
    trace_end(&trace);
    free(x);
    free(row);
    free(other);
}

static void test_tokens_that_are_all_alike(void **state)
{
    (void)state;
    expect_one_row(0);
    expect_one_row(0.3);
}

/* A norm that was not applied, where the first token has two channels far larger than all others, as trained models
 * have: these hold nearly all of the error, but all others are wrong as well. */
static void test_large_channels_are_no_few_numbers(void **state)
{
    struct trace trace;
    float *x = made_values(TOTAL), *next = made_values(TOTAL), *weights = made_values(HIDDEN), a[TOTAL], b[TOTAL];
    (void)state;
    trace_start(&trace);
    x[5] = 90;
    x[9] = -70;
    for (size_t row = 0; row < TOKENS; row++) {
        double squares = 0;
        for (size_t i = row * HIDDEN; i < (row + 1) * HIDDEN; i++) {
            b[i] = x[i] + 0.5f * next[i]; /* what a step that nobody captured added */
            squares += (double)b[i] * (double)b[i];
        }
        for (size_t i = row * HIDDEN; i < (row + 1) * HIDDEN; i++)
            a[i] = (float)((double)b[i] / sqrt(squares / HIDDEN)) * 0.3f * weights[i % HIDDEN];
    }
    trace_add(&trace, "layer_0_attn_residual_output", x, x, SHAPE(TOKENS, HIDDEN));
    trace_add(&trace, "layer_1_mlp_norm_output", a, b, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, 1);
    assert_first(&trace, "skipped-op", "layer_0_attn_residual_output");
    trace_end(&trace);
    free(x);
    free(next);
    free(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_nothing_to_compare_with),
        cmocka_unit_test(test_place_of_a_nan),
        cmocka_unit_test(test_three_tokens_that_are_shifted),
        cmocka_unit_test(test_flatter_attention_of_few_tokens),
        cmocka_unit_test(test_a_nan_comes_first),
        cmocka_unit_test(test_advice_for_runs),
        cmocka_unit_test(test_no_mask_without_masks),
        cmocka_unit_test(test_one_number_on_top_of_rounding),
        cmocka_unit_test(test_softcap_needs_a_curve),
        cmocka_unit_test(test_a_large_square_that_is_turned),
        cmocka_unit_test(test_tokens_that_are_all_alike),
        cmocka_unit_test(test_large_channels_are_no_few_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
