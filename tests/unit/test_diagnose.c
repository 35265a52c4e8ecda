/* The core, and causes of the algebra, the norm, the places and the rank: each named when it is there, and silent when
 * it is not. */
#include "made_trace.h"

enum { TOKENS = 10, HEADS = 4, SIZE = 12, HIDDEN = HEADS * SIZE, TOTAL = TOKENS * HIDDEN };

/* A layer in small: x, a norm of it, a product of that, and their sum. Both sides, the candidate with rounding noise.
 */
struct layer {
    struct trace trace;
    float x[2][TOTAL], normed[2][TOTAL], product[2][TOTAL], sum[2][TOTAL];
    float weight[HIDDEN];
};

static void norm(const float *x, const float *weight, double epsilon, bool centred, double one, float *out)
{
    for (size_t row = 0; row < TOKENS; row++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < HIDDEN; i++)
            mean += (double)x[row * HIDDEN + i] / HIDDEN;
        mean = centred ? mean : 0;
        for (size_t i = 0; i < HIDDEN; i++)
            square += ((double)x[row * HIDDEN + i] - mean) * ((double)x[row * HIDDEN + i] - mean) / HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++)
            out[row * HIDDEN + i] = (float)(((double)x[row * HIDDEN + i] - mean) / sqrt(square + epsilon) *
                                            ((weight ? (double)weight[i] : 1) + one));
    }
}

static void multiply(const float *x, const float *matrix, float *out)
{
    for (size_t row = 0; row < TOKENS; row++)
        for (size_t i = 0; i < HIDDEN; i++) {
            double sum = 0;
            for (size_t k = 0; k < HIDDEN; k++)
                sum += (double)x[row * HIDDEN + k] * (double)matrix[i * HIDDEN + k];
            out[row * HIDDEN + i] = (float)sum;
        }
}

static void layer_start(struct layer *layer, double noise)
{
    float *matrix;
    trace_start(&layer->trace);
    matrix = made_values(HIDDEN * HIDDEN);
    for (size_t i = 0; i < TOTAL; i++)
        layer->x[0][i] = (float)(dice_number() + dice_number() + 0.2);
    for (size_t i = 0; i < HIDDEN; i++)
        layer->weight[i] = (float)(1 + 0.4 * dice_number());
    for (size_t i = 0; i < HIDDEN * HIDDEN; i++)
        matrix[i] /= 8;
    shake(layer->x[0], layer->x[1], TOTAL, noise);
    norm(layer->x[0], layer->weight, 1e-6, false, 0, layer->normed[0]);
    norm(layer->x[1], layer->weight, 1e-6, false, 0, layer->normed[1]);
    multiply(layer->normed[0], matrix, layer->product[0]);
    multiply(layer->normed[1], matrix, layer->product[1]);
    shake(layer->normed[1], layer->normed[1], TOTAL, noise);
    shake(layer->product[1], layer->product[1], TOTAL, noise);
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < TOTAL; i++)
            layer->sum[side][i] = layer->x[side][i] + layer->product[side][i];
    free(matrix);
}

static void round_candidate(struct layer *layer)
{
    float *values[] = {layer->x[1], layer->normed[1], layer->product[1], layer->sum[1]};
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < TOTAL; i++)
            values[k][i] = to_bf16(values[k][i]);
}

enum point { X, NORMED, PRODUCT, SUM };

static void layer_diagnose(struct layer *layer, enum point point)
{
    static const char *const names[] = {"x", "norm_output", "q_proj", "layer_output"};
    const float *values[][2] = {{layer->x[0], layer->x[1]},
                                {layer->normed[0], layer->normed[1]},
                                {layer->product[0], layer->product[1]},
                                {layer->sum[0], layer->sum[1]}};
    for (int i = 0; i <= (int)point; i++) {
        if (i == PRODUCT) /* with heads */
            trace_add(&layer->trace, names[i], values[i][0], values[i][1], SHAPE(TOKENS, HEADS, SIZE));
        else
            trace_add(&layer->trace, names[i], values[i][0], values[i][1], SHAPE(TOKENS, HIDDEN));
    }
    trace_diagnose(&layer->trace, point);
}

#define EACH(i) for (size_t i = 0; i < TOTAL; i++)

static void test_noise_is_silent(void **state)
{
    static const double sizes[] = {1e-7, 2e-3};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int point = NORMED; point <= SUM; point++) {
            struct layer layer;
            layer_start(&layer, sizes[s]);
            if (s)
                round_candidate(&layer);
            layer_diagnose(&layer, (enum point)point);
            assert_silent(&layer.trace);
            trace_end(&layer.trace);
        }
}

static void test_equal_is_silent(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 0);
    layer_diagnose(&layer, SUM);
    assert_silent(&layer.trace);
    trace_end(&layer.trace);
}

/* An error without structure has no cause, and the diagnosis says so. */
static void test_random_error_is_silent(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    layer.product[1][i] += (float)(0.6 * (dice_number() + dice_number()));
    layer_diagnose(&layer, PRODUCT);
    assert_silent(&layer.trace);
    assert_non_null(strstr(layer.trace.diagnosis.strongest, "no known cause fits"));
    trace_end(&layer.trace);
}

/* What has no name still has a shape: a function of the value, one pattern in every row. */
static void test_strongest_structure(void **state)
{
    for (int way = 0; way < 3; way++) {
        struct layer layer;
        layer_start(&layer, 0);
        EACH(i)
        {
            double value = (double)layer.product[0][i];
            layer.product[1][i] = way == 0 ? (float)tanh(2 * value)
                                  : way == 1
                                      ? (float)(value + sin((double)(i / HIDDEN * 5)) * cos((double)(i % HIDDEN * 3)))
                                      : (float)(value + 0.6 * (dice_number() + dice_number()));
        }
        (void)state;
        layer_diagnose(&layer, PRODUCT);
        assert_silent(&layer.trace);
        assert_non_null(strstr(layer.trace.diagnosis.strongest, way == 0   ? "another function of the same values"
                                                                : way == 1 ? "times a factor for each row"
                                                                           : "spread over rows and channels"));
        trace_end(&layer.trace);
    }
}

static void test_problem_is_said(void **state)
{
    struct layer layer;
    struct ts_error error;
    struct ts_diagnosis diagnosis;
    (void)state;
    layer_start(&layer, 1e-6);
    layer_diagnose(&layer, SUM);
    layer.trace.pairs[1].problem = "[3,4] against [5]: no layout fits";
    assert_int_equal(ts_diagnose(layer.trace.pairs, layer.trace.deltas, 4, 1, &diagnosis, &error), TS_OK);
    assert_int_equal(diagnosis.count, 0);
    assert_string_equal(diagnosis.strongest, "[3,4] against [5]: no layout fits");
    ts_diagnosis_release(&diagnosis);
    assert_int_equal(ts_diagnose(layer.trace.pairs, layer.trace.deltas, 4, 4, &diagnosis, &error), TS_ERR_USAGE);
    ts_diagnosis_release(&diagnosis);
    trace_end(&layer.trace);
}

static void test_scaled(void **state)
{
    static const struct {
        double factor;
        const char *words;
    } factors[] = {{0.288675134594813, "1/sqrt(12)"},        {3.4641016151377544, "sqrt(12)"},
                   {2, "2 times what it should be: summed"}, {0.5, "1/2"},
                   {6.928203230275509, "sqrt(48)"},          {0.73, "0.73 times"}};
    (void)state;
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
        struct layer layer;
        layer_start(&layer, 1e-6);
        EACH(i)
        layer.product[1][i] *= (float)factors[f].factor;
        layer_diagnose(&layer, PRODUCT);
        assert_first(&layer.trace, "scaled", factors[f].words);
        assert_true(layer.trace.diagnosis.causes[0].confidence > 0.95);
        /* what has more freedom and says no more is not listed first, and what is refuted not at all */
        assert_null(trace_cause(&layer.trace, "offset"));
        trace_end(&layer.trace);
    }
}

static void test_scaled_under_noise(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 0.02);
    EACH(i)
    layer.product[1][i] = to_bf16(layer.product[1][i] * 1.5f);
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "scaled", "every element is 1.49");
    trace_end(&layer.trace);
}

static void test_sign_flipped(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    layer.product[1][i] *= -1;
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "sign-flipped", NULL);
    assert_null(trace_cause(&layer.trace, "unrelated"));
    trace_end(&layer.trace);
}

static void test_offset(void **state)
{
    struct layer layer;
    float bias[HIDDEN];
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    layer.product[1][i] += 0.25f;
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "offset", "0.25");
    trace_end(&layer.trace);

    layer_start(&layer, 1e-6);
    for (size_t i = 0; i < HIDDEN; i++)
        bias[i] = (float)dice_number();
    EACH(i)
    layer.product[1][i] += bias[i % HIDDEN];
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "offset", "each channel");
    trace_end(&layer.trace);
}

static void test_affine(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    layer.product[1][i] = layer.product[1][i] * 1.25f + 0.5f;
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "affine", "1.25 times what it should be, plus 0.5");
    trace_end(&layer.trace);
}

static void test_channel_scaled(void **state)
{
    struct layer layer;
    float factor[HIDDEN];
    (void)state;
    layer_start(&layer, 1e-6);
    for (size_t i = 0; i < HIDDEN; i++)
        factor[i] = (float)(1.5 + 0.8 * dice_number());
    EACH(i)
    layer.product[1][i] *= factor[i % HIDDEN];
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "channel-scaled", "each channel");
    trace_end(&layer.trace);

    layer_start(&layer, 0.01); /* one of them, under noise */
    EACH(i)
    layer.product[1][i] *= i % HIDDEN == 7 ? 3 : 1;
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "channel-scaled", "7");
    trace_end(&layer.trace);
}

static void test_row_scaled(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    layer.product[1][i] *= 1 + 0.1f * (float)(i / HIDDEN % 5);
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "row-scaled", NULL);
    trace_end(&layer.trace);
}

static void test_norm(void **state)
{
    static const struct {
        double epsilon, one;
        bool centred, weighted;
        const char *id, *words;
    } wrong[] = {
        {1e-2, 0, false, true, "row-scaled", "0.01 in the candidate, 1e-06"},
        {1e-6, 1, false, true, "channel-scaled", "(1 + w) / w"},
        {1e-6, -1, false, true, "channel-scaled", "leaves out the 1 of 1 + w"},
        {1e-6, 0, false, false, "channel-scaled", "does not apply"},
        {1e-6, 0, true, true, "centering", "LayerNorm"},
    };
    (void)state;
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
        struct layer layer;
        layer_start(&layer, 1e-6);
        norm(layer.x[1], wrong[w].weighted ? layer.weight : NULL, wrong[w].epsilon, wrong[w].centred, wrong[w].one,
             layer.normed[1]);
        layer_diagnose(&layer, NORMED);
        assert_first(&layer.trace, wrong[w].id, wrong[w].words);
        trace_end(&layer.trace);
    }
}

static void test_norm_not_divided(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    layer.normed[1][i] = layer.x[1][i] * layer.weight[i % HIDDEN];
    layer_diagnose(&layer, NORMED);
    assert_first(&layer.trace, "row-scaled", "does not divide the row");
    trace_end(&layer.trace);
}

/* The error is in one term of a sum; the others hide it. */
static void test_term_of_a_sum(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-7);
    EACH(i)
    layer.sum[1][i] = layer.x[1][i] + (float)fmax(-0.5, fmin(0.5, (double)layer.product[1][i]));
    layer_diagnose(&layer, SUM);
    assert_first(&layer.trace, "clamped", "term q_proj");
    trace_end(&layer.trace);
}

/* A norm spreads over the row what is wrong with one of its inputs. */
static void test_input_of_a_norm(void **state)
{
    struct layer layer;
    float wrong[TOTAL];
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    wrong[i] = layer.x[1][i] * (i % HIDDEN == 5 ? 6 : 1);
    norm(wrong, layer.weight, 1e-6, false, 0, layer.normed[1]);
    layer_diagnose(&layer, NORMED);
    assert_first(&layer.trace, "channel-scaled", "in the input of the norm: channel 5 is 6 times what it should be");
    trace_end(&layer.trace);
}

static void test_rows(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    for (size_t i = TOTAL - HIDDEN; i < TOTAL; i++)
        layer.product[1][i] = (float)(1.5 * dice_number());
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "rows", "the last token");
    trace_end(&layer.trace);
}

static void test_heads(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    if (i % HIDDEN / SIZE == 2)
        layer.product[1][i] = (float)(1.5 * dice_number());
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "heads", "head 2 of 4");
    trace_end(&layer.trace);
    layer_start(&layer, 1e-6); /* all but a few of its channels */
    EACH(i)
    if (i % HIDDEN / SIZE == 2 && i % HIDDEN % SIZE > 1)
        layer.product[1][i] = (float)(1.5 * dice_number());
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "heads", "head 2 of 4");
    trace_end(&layer.trace);
}

static void test_channels(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    if (i % HIDDEN >= 16 && i % HIDDEN < 24)
        layer.sum[1][i] = (float)(1.5 * dice_number());
    layer_diagnose(&layer, SUM);
    assert_first(&layer.trace, "channels", "piece 2 of 6");
    trace_end(&layer.trace);
}

/* One input channel of a product weighs too much. */
static void test_input_channel(void **state)
{
    struct layer layer;
    float pattern[HIDDEN];
    (void)state;
    layer_start(&layer, 1e-6);
    for (size_t i = 0; i < HIDDEN; i++)
        pattern[i] = (float)dice_number();
    EACH(i)
    layer.product[1][i] += layer.normed[1][i / HIDDEN * HIDDEN + 31] * pattern[i % HIDDEN];
    layer_diagnose(&layer, PRODUCT);
    assert_first(&layer.trace, "term-missing", "channel 31 of norm_output");
    trace_end(&layer.trace);
}

/* Replayed on its own inputs the candidate is right: what differs came in. */
static void test_carried_error_is_no_cause(void **state)
{
    struct layer layer;
    (void)state;
    layer_start(&layer, 1e-6);
    EACH(i)
    layer.x[1][i] += (float)(0.5 * dice_number());
    norm(layer.x[1], layer.weight, 1e-6, false, 0, layer.normed[1]);
    layer_diagnose(&layer, NORMED);
    assert_silent(&layer.trace);
    assert_non_null(strstr(layer.trace.diagnosis.strongest, "the error comes from x"));
    trace_end(&layer.trace);
}

/* Of two inputs it came in with the one that errs. */
static void test_error_of_the_second_input(void **state)
{
    float *gate = made_values(TOKENS * HIDDEN), *up = made_values(TOKENS * HIDDEN), wrong[TOKENS * HIDDEN];
    float out[2][TOKENS * HIDDEN];
    struct trace trace;
    (void)state;
    trace_start(&trace);
    EACH(i)
    {
        const double silu = (double)gate[i] / (1 + exp(-(double)gate[i]));
        wrong[i] = up[i] + (float)dice_number();
        out[0][i] = (float)(silu * (double)up[i]);
        out[1][i] = (float)(silu * (double)wrong[i]);
    }
    trace_add(&trace, "layers.0.mlp.gate_proj", gate, gate, SHAPE(TOKENS, HIDDEN));
    trace_add(&trace, "layers.0.mlp.up_proj", up, wrong, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.act", out[0], out[1], SHAPE(TOKENS, HIDDEN)));
    assert_silent(&trace);
    assert_non_null(strstr(trace.diagnosis.strongest, "the error comes from layers.0.mlp.up_proj"));
    trace_end(&trace);
    free(gate);
    free(up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise_is_silent),
        cmocka_unit_test(test_equal_is_silent),
        cmocka_unit_test(test_random_error_is_silent),
        cmocka_unit_test(test_strongest_structure),
        cmocka_unit_test(test_problem_is_said),
        cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_scaled_under_noise),
        cmocka_unit_test(test_sign_flipped),
        cmocka_unit_test(test_offset),
        cmocka_unit_test(test_affine),
        cmocka_unit_test(test_channel_scaled),
        cmocka_unit_test(test_row_scaled),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_norm_not_divided),
        cmocka_unit_test(test_term_of_a_sum),
        cmocka_unit_test(test_input_of_a_norm),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_input_channel),
        cmocka_unit_test(test_error_of_the_second_input),
        cmocka_unit_test(test_carried_error_is_no_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
