/* May a precision start here? Each thing that is weighed, with a trace that it decides for and one that it decides
 * against. */
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 32, TOTAL = TOKENS * WIDTH };

#define FINE 1e-6

/* Adds an error of this size, relative to all numbers, that has no direction. */
static void err(const float *a, float *b, size_t count, double error)
{
    double square = 0;
    for (size_t i = 0; i < count; i++)
        square += (double)a[i] * (double)a[i];
    for (size_t i = 0; i < count; i++)
        b[i] = (float)((double)a[i] + error * sqrt(3 * square / (double)count) * dice_number());
}

static void add_erring(struct trace *trace, const char *name, double error)
{
    float *a = made_values(TOTAL), b[TOTAL];
    err(a, b, TOTAL, error);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

struct step {
    const char *name;
    double error;
};

/* Tensors that nothing explains, with these errors; the first divergence is the one of this name, or none. */
static void judge_steps(const struct step *steps, size_t count, const char *expected)
{
    struct judged judged;
    size_t first = SIZE_MAX;
    trace_start(&judged.trace);
    for (size_t i = 0; i < count; i++) {
        add_erring(&judged.trace, steps[i].name, steps[i].error);
        if (expected && strcmp(steps[i].name, expected) == 0)
            first = i;
    }
    expect_first(&judged, first);
}

#define JUDGE(expected, ...)                                                                                           \
    judge_steps((const struct step[]){__VA_ARGS__}, sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step),  \
                expected)

/* One kind of weight is coarse in every layer, or was wrong once. */
static void test_the_same_points_decide(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.o", FINE}, {"layers.0.down", 0.3},
          {"layers.1.q", 0.12}, {"layers.1.o", 0.12}, {"layers.1.down", 0.33}, {"layers.2.q", 0.16},
          {"layers.2.o", 0.16}, {"layers.2.down", 0.35});
    JUDGE("layers.0.down", {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.o", FINE}, {"layers.0.down", 0.3},
          {"layers.1.q", 0.12}, {"layers.1.o", 0.12}, {"layers.1.down", 0.13}, {"layers.2.q", 0.12},
          {"layers.2.o", 0.12}, {"layers.2.down", 0.13});
    JUDGE("layers.0.down", {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.o", FINE}, {"layers.0.down", 0.1},
          {"layers.1.q", 0.04}, {"layers.1.o", 0.04}, {"layers.1.down", 0.04}, {"layers.2.q", 0.04},
          {"layers.2.o", 0.04}, {"layers.2.down", 0.04});
}

/* Where the earlier layers were fine, and none is left to speak, it is no precision. */
static void test_the_layers_before_were_fine(void **state)
{
    (void)state;
    JUDGE("layers.2.o", {"embed", FINE}, {"layers.0.o", FINE}, {"layers.1.o", FINE}, {"layers.1.x", FINE},
          {"layers.2.y", FINE}, {"layers.2.o", 0.1});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", FINE}, {"layers.1.z", FINE}, {"layers.1.x", FINE}, {"layers.2.y", FINE},
          {"layers.2.o", 0.1});
}

/* Those that share its input start with it, or do not. */
static void test_siblings_start_together(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", 0.3}, {"layers.0.k", 0.3}, {"layers.0.v", 0.3});
    JUDGE("layers.0.q", {"embed", FINE}, {"layers.0.q", 0.3}, {"layers.0.k", FINE}, {"layers.0.v", FINE});
}

/* A bias makes the error of a sibling look small. */
static void judge_biased(double error, size_t expected)
{
    static const char *const names[] = {"layers.0.q", "layers.0.k"};
    struct judged judged;
    float *a, b[TOTAL];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    for (int i = 0; i < 2; i++) {
        a = made_values(TOTAL);
        err(a, b, TOTAL, i ? error : 0.25);
        for (size_t k = 0; i && k < TOTAL; k++) {
            a[k] += 8 + (float)(k % WIDTH % 5);
            b[k] += 8 + (float)(k % WIDTH % 5);
        }
        trace_add(&judged.trace, names[i], a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_a_bias_beside_it(void **state)
{
    (void)state;
    judge_biased(0.25, SIZE_MAX);
    judge_biased(1e-3, 1);
}

/* q, k and v of one product, captured once more, are no siblings of it. */
static void judge_parts(bool of_it, size_t expected)
{
    static const char *const names[] = {"layers.0.q", "layers.0.k", "layers.0.v"};
    struct judged judged;
    float *a, b[3 * TOTAL], part[2][TOTAL];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    a = made_values(3 * TOTAL);
    err(a, b, 3 * TOTAL, 0.3);
    trace_add(&judged.trace, "layers.0.qkv", a, b, SHAPE(TOKENS, 3 * WIDTH));
    for (size_t i = 0; i < 3; i++) {
        if (!of_it) {
            add_erring(&judged.trace, names[i], 0.3);
            continue;
        }
        for (size_t row = 0; row < TOKENS; row++) {
            memcpy(part[0] + row * WIDTH, a + (row * 3 + i) * WIDTH, WIDTH * sizeof *a);
            memcpy(part[1] + row * WIDTH, b + (row * 3 + i) * WIDTH, WIDTH * sizeof *b);
        }
        trace_add(&judged.trace, names[i], part[0], part[1], SHAPE(TOKENS, WIDTH));
    }
    free(a);
    expect_first(&judged, expected);
}

static void test_parts_are_no_witnesses(void **state)
{
    (void)state;
    judge_parts(true, 1);
    judge_parts(false, SIZE_MAX);
}

/* A whole layer errs more than one of its products. */
static void test_a_layer_holds_many_products(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0", 0.28}, {"head", 0.28});
    JUDGE("layers.0.o", {"embed", FINE}, {"layers.0.x", FINE}, {"layers.0.o", 0.28}, {"head", 0.28});
    JUDGE("layers.0", {"embed", FINE}, {"layers.0", 0.8}, {"layers.1", 1.0}, {"layers.2", 1.2});
}

/* A stream that layers add to, seen through their outputs alone. Coarse layers add an error of their own each; behind
 * a bug they add what came in. The stream's own error is the same in both. */
static void judge_stream(double own_later, size_t expected)
{
    enum { LAYERS = 6 };
    struct judged judged;
    float *x, y[TOTAL];
    trace_start(&judged.trace);
    x = made_values(TOTAL);
    memcpy(y, x, sizeof y);
    trace_add(&judged.trace, "embed", x, y, SHAPE(TOKENS, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++) {
        float *added = made_values(TOTAL), wrong[TOTAL];
        err(added, wrong, TOTAL, layer ? own_later : 0.4);
        for (size_t i = 0; i < TOTAL; i++) {
            x[i] += added[i];
            y[i] += wrong[i];
        }
        trace_add(&judged.trace, made_name("layers.%d", layer), x, y, SHAPE(TOKENS, WIDTH));
        free(added);
    }
    free(x);
    expect_first(&judged, expected);
}

static void test_what_layers_add_to_a_stream(void **state)
{
    (void)state;
    judge_stream(0.45, SIZE_MAX);
    judge_stream(0.1, 1);
}

/* Outputs of layers that continue nothing: coarse weights in all of them add up; a bug in one adds once, and where it
 * does not begin with the first it is none of the run's. */
static void test_outputs_of_layers_alone(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", 0}, {"layers.0", 0.21}, {"layers.1", 0.28}, {"layers.2", 0.34}, {"layers.3", 0.4});
    JUDGE("layers.0", {"embed", 0}, {"layers.0", 0.36}, {"layers.1", 0.36}, {"layers.2", 0.35}, {"layers.3", 0.36});
    JUDGE("layers.2", {"embed", 0}, {"layers.0", 1e-3}, {"layers.1", 1e-3}, {"layers.2", 0.36}, {"layers.3", 0.37},
          {"layers.4", 0.37}, {"layers.5", 0.37});
}

enum shape { EVEN, FOLLOWING, ONE_TOKEN_FREE, THE_SAME_IN_ALL };

/* One product that errs by a tenth, everything before it fine, nothing behind it. */
static void judge_shape(enum shape shape, size_t expected)
{
    struct judged judged;
    float *a, b[TOTAL];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    add_erring(&judged.trace, "layers.0.x", FINE);
    a = made_values(TOTAL);
    err(a, b, TOTAL, 0.1);
    for (size_t i = 0; i < TOTAL; i++) {
        if (shape == FOLLOWING)
            b[i] -= 0.06f * a[i];
        if (shape == ONE_TOKEN_FREE && i / WIDTH == 5)
            b[i] = a[i];
        if (shape == THE_SAME_IN_ALL)
            b[i] = a[i] + 0.4f * (b[i] - a[i]) + (i % WIDTH % 3 ? 0.09f : -0.09f);
    }
    trace_add(&judged.trace, "layers.0.o", a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    expect_first(&judged, expected);
}

static void test_structure_is_no_precision(void **state)
{
    (void)state;
    judge_shape(EVEN, SIZE_MAX);
    judge_shape(FOLLOWING, 2);
    judge_shape(ONE_TOKEN_FREE, 2);
    judge_shape(THE_SAME_IN_ALL, 2);
}

/* Layers that are equal bit for bit have been seen: what comes behind them is not the first of the run. */
static void test_equal_layers_were_seen(void **state)
{
    (void)state;
    JUDGE("layers.3.o", {"embed", 0}, {"layers.0.o", 0}, {"layers.1.o", 0}, {"layers.2.o", 0}, {"layers.3.o", 0.008},
          {"layers.4.x", 0.006}, {"layers.4.y", 0.006}, {"layers.4.o", 0.006}, {"layers.5.x", 0.006},
          {"layers.5.y", 0.006}, {"layers.5.o", 0.006});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_points_decide),      cmocka_unit_test(test_the_layers_before_were_fine),
        cmocka_unit_test(test_siblings_start_together),     cmocka_unit_test(test_a_bias_beside_it),
        cmocka_unit_test(test_parts_are_no_witnesses),      cmocka_unit_test(test_a_layer_holds_many_products),
        cmocka_unit_test(test_what_layers_add_to_a_stream), cmocka_unit_test(test_outputs_of_layers_alone),
        cmocka_unit_test(test_structure_is_no_precision),   cmocka_unit_test(test_equal_layers_were_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
