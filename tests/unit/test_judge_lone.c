/* The judge where a tensor has one row though the run has more tokens: poolers and heads of classifiers, the embedding
 * of a time step, and pictures, whose channels stand before their places. What is done element by element is learnt
 * from its numbers, and neither weights nor other rows are needed. */
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 96, CHANNELS = 8, PLACES = 16, PICTURE = CHANNELS * PLACES };

#define TINY 1e-6
#define BF16 4e-3

static double gelu(double x)
{
    return x * 0.5 * (1 + erf(x / sqrt(2)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void add_tokens(struct trace *trace, double error)
{
    for (int i = 0; i < 4; i++) {
        float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        shake(a, b, TOKENS * WIDTH, error);
        trace_add(trace, made_name("layers.0.part_%d.proj", i), a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
}

/* The operation must be learnt, so that the error is known to be made there, and nowhere before it. */
static void expect_learnt(struct judged *judged, size_t i, const char *operation, size_t expected)
{
    const struct ts_verdict *verdict;
    judged_run(judged);
    verdict = &judged->judgement.verdicts[i];
    assert_non_null(verdict->operation);
    assert_string_equal(verdict->operation, operation);
    assert_int_equal(judged->judgement.first, expected);
    judged_end(judged);
}

static void add_lone(struct trace *trace, const char *name, double error)
{
    float *a = made_values(WIDTH), b[WIDTH];
    shake(a, b, WIDTH, error);
    trace_add(trace, name, a, b, SHAPE(1, WIDTH));
    free(a);
}

/* A head behind a pooler, of a run whose products err by `error`; the candidate's activation is the reference's or
 * another, and what comes behind carries it as products do. */
static void judge_head(double error, bool other, size_t expected)
{
    struct judged judged;
    float *a, b[WIDTH], out[2][WIDTH];
    trace_start(&judged.trace);
    add_tokens(&judged.trace, error);
    a = made_values(WIDTH);
    shake(a, b, WIDTH, error);
    for (size_t i = 0; i < WIDTH; i++) {
        out[0][i] = (float)gelu((double)a[i]);
        out[1][i] = (float)(other ? silu((double)b[i]) : gelu((double)b[i]));
    }
    trace_add(&judged.trace, "head.fc1", a, b, SHAPE(1, WIDTH));
    trace_add(&judged.trace, "head.activation", out[0], out[1], SHAPE(1, WIDTH));
    add_lone(&judged.trace, "head.fc2", other ? 0.3 : error);
    add_lone(&judged.trace, "head", other ? 0.25 : error);
    free(a);
    expect_learnt(&judged, 5, "gelu(head.fc1)", expected);
}

static void test_the_activation_of_a_head(void **state)
{
    (void)state;
    judge_head(TINY, false, SIZE_MAX);
    judge_head(TINY, true, 5);
    judge_head(0.1, false, SIZE_MAX); /* weights of four bits */
}

/* relu(x + y) of [1, channels, places], as convolutions leave it. */
static void judge_picture(bool other, size_t expected)
{
    static const char *const names[2] = {"stages.0.shortcut", "stages.0.layer"};
    struct judged judged;
    float parts[2][2][PICTURE], out[2][PICTURE];
    trace_start(&judged.trace);
    add_tokens(&judged.trace, BF16);
    for (int part = 0; part < 2; part++) {
        float *a = made_values(PICTURE);
        memcpy(parts[part][0], a, sizeof parts[part][0]);
        shake(a, parts[part][1], PICTURE, BF16);
        trace_add(&judged.trace, names[part], a, parts[part][1], SHAPE(1, CHANNELS, 4, PLACES / 4));
        free(a);
    }
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < PICTURE; i++) {
            const double sum = (double)parts[0][side][i] + (double)parts[1][side][i];
            out[side][i] = (float)(side && other ? gelu(sum) : sum > 0 ? sum : 0);
        }
    trace_add(&judged.trace, "stages.0.activation", out[0], out[1], SHAPE(1, CHANNELS, 4, PLACES / 4));
    expect_learnt(&judged, 6, "relu(stages.0.layer + stages.0.shortcut)", expected);
}

static void test_the_activation_of_a_picture(void **state)
{
    (void)state;
    judge_picture(false, SIZE_MAX);
    judge_picture(true, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_activation_of_a_head),
        cmocka_unit_test(test_the_activation_of_a_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
