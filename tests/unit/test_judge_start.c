/* May a precision start here? Each thing that is weighed, with a trace that it decides for and one that it decides
 * against. */
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 32, TOTAL = TOKENS * WIDTH };

#define FINE 1e-6

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

/* Far more comes out of one kind of product than a precision makes of it and of what came in, in every layer: so it is
 * when all of them take what they should not. Coarse weights err as much in each. */
static void test_the_same_bug_in_every_layer(void **state)
{
    (void)state;
    JUDGE("layers.0.q_proj", {"embed", 0}, {"layers.0.norm", 0}, {"layers.0.q_proj", 0.38}, {"layers.0.k_proj", 0.39},
          {"layers.0.v_proj", 0.38}, {"layers.0.o_proj", 0.62}, {"layers.1.norm", 0.48}, {"layers.1.q_proj", 1.2},
          {"layers.1.k_proj", 1.2}, {"layers.1.v_proj", 1.3}, {"layers.1.o_proj", 2.0}, {"layers.2.norm", 0.62},
          {"layers.2.q_proj", 1.6}, {"layers.2.k_proj", 1.6}, {"layers.2.v_proj", 1.7}, {"layers.2.o_proj", 2.3},
          {"layers.3.norm", 0.74}, {"layers.3.q_proj", 2.2}, {"layers.3.k_proj", 2.0}, {"layers.3.v_proj", 2.1},
          {"layers.3.o_proj", 3.0}, {"layers.4.norm", 0.84}, {"layers.4.q_proj", 2.6}, {"layers.4.k_proj", 2.0},
          {"layers.4.v_proj", 2.5}, {"layers.4.o_proj", 3.7});
    JUDGE(NULL, {"embed", 0}, {"layers.0.norm", 0}, {"layers.0.q_proj", 0.38}, {"layers.0.k_proj", 0.39},
          {"layers.0.v_proj", 0.38}, {"layers.0.o_proj", 0.62}, {"layers.1.norm", 0.48}, {"layers.1.q_proj", 0.61},
          {"layers.1.k_proj", 0.61}, {"layers.1.v_proj", 0.61}, {"layers.1.o_proj", 0.7}, {"layers.2.norm", 0.62},
          {"layers.2.q_proj", 0.73}, {"layers.2.k_proj", 0.73}, {"layers.2.v_proj", 0.73}, {"layers.2.o_proj", 0.8},
          {"layers.3.norm", 0.74}, {"layers.3.q_proj", 0.83}, {"layers.3.k_proj", 0.83}, {"layers.3.v_proj", 0.83},
          {"layers.3.o_proj", 0.9});
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

/* A bug of one layer is there in every step, and no precision for that; a precision is in the other layers. */
static void test_steps_are_no_witnesses(void **state)
{
    (void)state;
    JUDGE("0.layers.1.o", {"0.layers.0.q", 0}, {"0.layers.0.o", 0}, {"0.layers.0.up", 0}, {"0.layers.1.q", 0},
          {"0.layers.1.o", 0.1}, {"0.layers.1.norm", 0.03}, {"0.layers.1.up", 0.03}, {"1.layers.0.q", 0},
          {"1.layers.0.o", 0}, {"1.layers.0.up", 0}, {"1.layers.1.q", 0}, {"1.layers.1.o", 0.1},
          {"1.layers.1.norm", 0.03}, {"1.layers.1.up", 0.03}, {"2.layers.0.q", 0}, {"2.layers.0.o", 0},
          {"2.layers.0.up", 0}, {"2.layers.1.q", 0}, {"2.layers.1.o", 0.1}, {"2.layers.1.norm", 0.03},
          {"2.layers.1.up", 0.03});
    JUDGE(NULL, {"0.layers.0.q", FINE}, {"0.layers.0.o", 0.1}, {"0.layers.0.norm", 0.03}, {"0.layers.0.up", 0.03},
          {"0.layers.1.q", 0.03}, {"0.layers.1.norm", 0.03}, {"0.layers.1.o", 0.11}, {"1.layers.0.q", FINE},
          {"1.layers.0.o", 0.1}, {"1.layers.0.norm", 0.03}, {"1.layers.0.up", 0.03}, {"1.layers.1.q", 0.03},
          {"1.layers.1.norm", 0.03}, {"1.layers.1.o", 0.11});
}

/* Outputs of layers that nothing behind them takes are others than the reference's, and no precision. */
static void test_an_error_that_is_left_behind(void **state)
{
    (void)state;
    JUDGE("layers.0", {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.down", FINE}, {"layers.0", 0.5},
          {"layers.1.norm", FINE}, {"layers.1.q", FINE}, {"layers.1.k", FINE}, {"layers.1.down", FINE},
          {"layers.1", 0.5}, {"layers.2.norm", FINE}, {"layers.2.q", FINE}, {"layers.2.k", FINE},
          {"layers.2.down", FINE}, {"layers.2", 0.5});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.down", FINE}, {"layers.0", 0.2},
          {"layers.1.norm", 0.15}, {"layers.1.q", 0.15}, {"layers.1.k", 0.15}, {"layers.1.down", 0.15},
          {"layers.1", 0.25}, {"layers.2.norm", 0.2}, {"layers.2.q", 0.2}, {"layers.2.k", 0.2}, {"layers.2.down", 0.2},
          {"layers.2", 0.3});
}

/* Tensors in bf16 that nothing explains: all are equal but the last, which errs by so much. */
static void judge_last_in_bf16(double error, size_t expected)
{
    static const char *const names[] = {"embed", "layers.0.q", "layers.0.o", "layers.0.x", "layers.1.q", "layers.1.o"};
    enum { COUNT = sizeof names / sizeof *names };
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t i = 0; i < COUNT; i++) {
        float *a = made_values(TOTAL), b[TOTAL];
        round_all(a, TOTAL);
        err(a, b, TOTAL, i + 1 < COUNT ? 0 : error);
        round_all(b, TOTAL);
        trace_add(&judged.trace, names[i], a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

/* Where nothing errs, what four roundings may become is not granted to the first that does. */
static void test_an_error_out_of_nothing(void **state)
{
    (void)state;
    judge_last_in_bf16(0.004, SIZE_MAX);
    judge_last_in_bf16(0.008, SIZE_MAX);
    judge_last_in_bf16(0.03, 5);
}

/* Those that share its input start with it, or do not. */
static void test_siblings_start_together(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", 0.4}, {"layers.0.k", 0.4}, {"layers.0.v", 0.4});
    JUDGE("layers.0.q", {"embed", FINE}, {"layers.0.q", 0.4}, {"layers.0.k", FINE}, {"layers.0.v", FINE});
}

/* Two siblings outweigh one layer that carried what came in, two layers outweigh them, and no more than two are heard.
 */
static void test_how_much_witnesses_count(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", 0.1}, {"layers.0.k", 0.1}, {"layers.0.v", 0.1}, {"layers.1.x", 0.03},
          {"layers.1.q", 0.03});
    JUDGE("layers.0.q", {"embed", FINE}, {"layers.0.q", 0.1}, {"layers.0.k", 0.1}, {"layers.0.v", 0.1},
          {"layers.1.x", 0.03}, {"layers.1.q", 0.03}, {"layers.2.x", 0.03}, {"layers.2.q", 0.03});
    JUDGE("layers.0.q", {"embed", FINE}, {"layers.0.q", 0.1}, {"layers.0.k", 0.1}, {"layers.0.v", 0.1},
          {"layers.0.g", 0.1}, {"layers.0.u", 0.1}, {"layers.1.x", 0.03}, {"layers.1.q", 0.03}, {"layers.2.x", 0.03},
          {"layers.2.q", 0.03});
    /* layers before it say half of what one behind it does */
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.k", FINE}, {"layers.1.norm", FINE},
          {"layers.1.q", 0.1}, {"layers.1.k", 0.1});
    /* between both stories it says little */
    JUDGE(NULL, {"embed", FINE}, {"layers.0.o", 0.1}, {"layers.1.x", 0.05}, {"layers.1.o", 0.07});
    JUDGE("layers.0.o", {"embed", FINE}, {"layers.0.o", 0.1}, {"layers.1.x", 0.05}, {"layers.1.o", 0.055});
}

/* Siblings that err by less may be of another kind: they count little against it, and from a tenth on they do. */
static void test_siblings_of_another_kind(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", 0.4}, {"layers.0.k", 0.3}, {"layers.0.v", 0.3});
    JUDGE("layers.0.q", {"embed", FINE}, {"layers.0.q", 0.4}, {"layers.0.k", 0.04}, {"layers.0.v", 0.04});
    /* and those behind it that err by half of it may carry it; those before cannot */
    JUDGE("layers.0.q", {"embed", FINE}, {"layers.0.q", 0.4}, {"layers.0.k", 0.2}, {"layers.0.v", 0.2});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", 0.11}, {"layers.0.k", 0.11}, {"layers.0.v", 0.4});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.x", 0.275}, {"layers.0.y", FINE}, {"layers.0.z", FINE});
    JUDGE("layers.0.x", {"embed", FINE}, {"layers.0.x", 0.32}, {"layers.0.y", FINE}, {"layers.0.z", FINE});
    JUDGE("layers.0.z", {"embed", FINE}, {"layers.0.x", FINE}, {"layers.0.y", FINE}, {"layers.0.z", 0.32});
    /* but queries, keys and values are stored in one way, and so are gate and up; values may come from a cache */
    JUDGE("layers.0.q_proj", {"embed", FINE}, {"layers.0.q_proj", 0.05}, {"layers.0.k_proj", FINE},
          {"layers.0.v_proj", FINE});
    JUDGE("layers.0.v_proj", {"embed", FINE}, {"layers.0.q_proj", FINE}, {"layers.0.k_proj", FINE},
          {"layers.0.v_proj", 0.1});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q_proj", FINE}, {"layers.0.k_proj", FINE}, {"layers.0.v_proj", 0.05});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q_proj", 0.1}, {"layers.0.k_proj", 0.1}, {"layers.0.v_proj", FINE});
    JUDGE("layers.0.mlp.up_proj", {"embed", FINE}, {"layers.0.mlp.gate_proj", FINE}, {"layers.0.mlp.up_proj", 0.1});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.norm", FINE}, {"layers.0.q", 0.335}); /* a norm is none */
}

/* Products alone were captured: what q, k and v of the second layer took may be wrong, and they err alike for that. */
static void test_siblings_whose_input_is_not_there(void **state)
{
    (void)state;
    JUDGE("layers.1.q", {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.k", FINE}, {"layers.1.q", 0.25},
          {"layers.1.k", 0.25}, {"layers.1.v", 0.25});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.k", FINE}, {"layers.1.norm", FINE},
          {"layers.1.q", 0.25}, {"layers.1.k", 0.25}, {"layers.1.v", 0.25});
}

/* Both sides are equal to the last bit in several products, so that they run the same code. */
static void test_a_precision_after_equal_products(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", 0}, {"layers.0.q", 0}, {"lm_head", 0.1});
    JUDGE("lm_head", {"embed", 0}, {"layers.0.q", 0}, {"layers.0.k", 0}, {"layers.0.v", 0}, {"lm_head", 0.1});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.k", FINE}, {"layers.0.v", FINE}, {"lm_head", 0.1});
}

/* q, the same captured once more, which is learnt, and k: they share no input. */
static void test_no_siblings_of_what_is_learnt_between(void **state)
{
    struct judged judged;
    float *a, b[TOTAL];
    (void)state;
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    a = made_values(TOTAL);
    err(a, b, TOTAL, 0.4);
    trace_add(&judged.trace, "layers.0.q", a, b, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.q_again", a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    add_erring(&judged.trace, "layers.0.k", 0.4);
    expect_first(&judged, 1);
}

/* Products of other kinds, behind a norm that says what came into them; integers between them say nothing. */
static void judge_others(double came_in, double q, double k, size_t expected)
{
    struct judged judged;
    int64_t ids[TOKENS] = {0};
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    add_erring(&judged.trace, "layers.0.o", FINE);
    add_erring(&judged.trace, "layers.1.norm", FINE);
    add_erring(&judged.trace, "layers.1.o", 0.2);
    add_erring(&judged.trace, "layers.2.norm", came_in);
    trace_add_integers(&judged.trace, "layers.2.ids", ids, ids, TOKENS, 1);
    add_erring(&judged.trace, "layers.2.q", q);
    add_erring(&judged.trace, "layers.2.k", k);
    expect_first(&judged, expected);
}

static void test_products_of_other_kinds(void **state)
{
    (void)state;
    judge_others(0.1, 0.22, 0.22, SIZE_MAX);
    judge_others(0.1, 0.22, 0.1, 3);
    judge_others(0.1, 0.1, 0.1, 3);
}

/* The same point of the next layer, behind a norm and another product; what came in is what the norm says. And behind
 * integers alone: then nobody knows. */
static void test_what_came_in(void **state)
{
    struct judged judged;
    int64_t ids[TOKENS] = {0};
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0.x", FINE}, {"layers.0.o", 0.4}, {"layers.1.norm", 0.1}, {"layers.1.x", 0.4},
          {"layers.1.o", 0.4});
    JUDGE("layers.0.o", {"embed", FINE}, {"layers.0.norm", FINE}, {"layers.0.o", 0.4}, {"layers.1.q", 0.4});
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    add_erring(&judged.trace, "layers.0.x", FINE);
    add_erring(&judged.trace, "layers.0.o", 0.4);
    trace_add_integers(&judged.trace, "layers.1.ids", ids, ids, TOKENS, 1);
    add_erring(&judged.trace, "layers.1.o", 0.45);
    expect_first(&judged, 2);
}

/* A product that errs, and layers behind it that carry what came in. Where one of them is wrong before them, whatever
 * came in, they show that. */
static void judge_witnesses_behind(float factor, size_t expected)
{
    struct judged judged;
    float *a, b[TOTAL], copy[TOTAL];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    add_erring(&judged.trace, "layers.0.x", FINE);
    add_erring(&judged.trace, "layers.0.o", 0.1);
    a = made_values(TOTAL);
    err(a, b, TOTAL, 0.03);
    for (size_t i = 0; i < TOTAL; i++)
        copy[i] = factor * b[i];
    trace_add(&judged.trace, "layers.1.y", a, b, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.1.z", a, copy, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.1.w", a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    add_erring(&judged.trace, "layers.1.x", 0.03);
    add_erring(&judged.trace, "layers.1.o", 0.03);
    add_erring(&judged.trace, "layers.2.x", 0.03);
    add_erring(&judged.trace, "layers.2.o", 0.03);
    expect_first(&judged, expected);
}

static void test_witnesses_behind_a_bug(void **state)
{
    (void)state;
    judge_witnesses_behind(2, 4);
    judge_witnesses_behind(1, 2);
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
        err(a, b, TOTAL, i ? error : 0.4);
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
    judge_biased(0.4, SIZE_MAX);
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
    err(a, b, 3 * TOTAL, 0.45);
    trace_add(&judged.trace, "layers.0.qkv", a, b, SHAPE(TOKENS, 3 * WIDTH));
    for (size_t i = 0; i < 3; i++) {
        if (!of_it) {
            add_erring(&judged.trace, names[i], 0.45);
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
    JUDGE(NULL, {"embed", FINE}, {"layers.0", 0.5}, {"head", 0.5});
    JUDGE("layers.0.o", {"embed", FINE}, {"layers.0.x", FINE}, {"layers.0.o", 0.45}, {"head", 0.45});
    JUDGE("layers.0", {"embed", FINE}, {"layers.0", 0.8}, {"layers.1", 1.0}, {"layers.2", 1.2});
}

/* And what comes behind layers that were left out errs by all of them, a norm as well. */
static void test_layers_that_were_left_out(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.5", 0.6}, {"layers.11", 0.62});
    JUDGE("layers.0", {"embed", FINE}, {"layers.0", 0.6}, {"layers.1", 0.62});
    JUDGE(NULL, {"embed", FINE}, {"layers.4.norm", 0.1}, {"layers.4.q", 0.14});
    JUDGE("layers.0.norm", {"embed", FINE}, {"layers.0.norm", 0.1}, {"layers.0.q", 0.14});
    JUDGE(NULL, {"embed", FINE}, {"norm", 0.45}, {"head", 0.45});
    JUDGE("head", {"embed", FINE}, {"layers.0", FINE}, {"head", 0.45});
}

/* Two tokens are too few to learn a norm from, which is no sign that something was left out; nor do they show how
 * evenly they err. */
static void judge_last_of_two(const char *name, size_t expected)
{
    const char *const names[] = {"embed", "layers.0", name};
    struct judged judged;
    float *a, b[2 * WIDTH];
    trace_start(&judged.trace);
    for (int i = 0; i < 3; i++) {
        a = made_values(2 * WIDTH);
        err(a, b, 2 * WIDTH, i == 2 ? 0.04 : FINE);
        trace_add(&judged.trace, names[i], a, b, SHAPE(2, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_the_last_of_two_tokens(void **state)
{
    (void)state;
    judge_last_of_two("norm", 2);
    judge_last_of_two("head", SIZE_MAX);
    judge_last_of_two("layers.1", 2);
}

/* A stream that is equal on both sides where it begins; y is the candidate's. */
static float *start_stream(struct trace *trace, float *y)
{
    float *x;
    trace_start(trace);
    x = made_values(TOTAL);
    memcpy(y, x, TOTAL * sizeof *y);
    trace_add(trace, "embed", x, y, SHAPE(TOKENS, WIDTH));
    return x;
}

/* A stream that layers add to, seen through their outputs alone. Coarse layers add an error of their own each; behind
 * a bug they add what came in. The stream's own error is the same in both. */
static void judge_stream(double own, double own_later, int layers, size_t expected)
{
    struct judged judged;
    float *x, y[TOTAL];
    x = start_stream(&judged.trace, y);
    for (int layer = 0; layer < layers; layer++) {
        float *added = made_values(TOTAL), wrong[TOTAL];
        err(added, wrong, TOTAL, layer ? own_later : own);
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
    judge_stream(0.4, 0.45, 6, SIZE_MAX);
    judge_stream(0.4, 0.1, 6, 1);
    judge_stream(0.4, 0.1, 2, 1);
    /* nothing starts with as much as this, however small a part of the stream it is */
    judge_stream(0.8, 1.2, 6, 1);
}

/* Layers whose attention looks at all tokens alike: what their coarse weights make of that is the same in each token. A
 * bias that is missing once is all that its layer is wrong by. */
static void judge_shared(double share, double later, size_t expected)
{
    struct judged judged;
    float *x, y[TOTAL];
    x = start_stream(&judged.trace, y);
    for (int layer = 0; layer < 5; layer++) {
        float *added = made_values(TOTAL), *shared = made_values(WIDTH), *own = made_values(TOTAL);
        const double error = layer ? later : 0.1;
        for (size_t i = 0; i < TOTAL; i++) {
            x[i] += added[i];
            y[i] += added[i] +
                    (float)(error * (sqrt(share) * (double)shared[i % WIDTH] + sqrt(1 - share) * (double)own[i]));
        }
        trace_add(&judged.trace, made_name("layers.%d", layer), x, y, SHAPE(TOKENS, WIDTH));
        free(added);
        free(shared);
        free(own);
    }
    free(x);
    expect_first(&judged, expected);
}

static void test_layers_that_give_all_tokens_the_same(void **state)
{
    (void)state;
    judge_shared(0.6, 0.1, SIZE_MAX);
    judge_shared(0.6, 1e-6, 1);
    judge_shared(0.95, 0.1, 1);
}

/* A stream whose first layers are fine and whose next one is not: by what comes in, the others add more and more that
 * is wrong. Coarse layers did so from the first on. */
static void test_what_grows_in_a_stream(void **state)
{
    static const double wrong[] = {1e-6, 0.65, 0.72, 0.79, 0.84};
    struct judged judged;
    float *x, y[TOTAL];
    (void)state;
    x = start_stream(&judged.trace, y);
    for (size_t layer = 0; layer < sizeof wrong / sizeof *wrong; layer++) {
        float *added = made_values(TOTAL), near[TOTAL];
        err(added, near, TOTAL, wrong[layer]);
        for (size_t i = 0; i < TOTAL; i++) {
            x[i] += (layer == 1 ? 1.5f : 1) * added[i];
            y[i] += (layer == 1 ? 1.5f : 1) * near[i];
        }
        trace_add(&judged.trace, made_name("layers.%d", (int)layer), x, y, SHAPE(TOKENS, WIDTH));
        free(added);
    }
    free(x);
    expect_first(&judged, 2);
}

/* A kernel that computes in less is the same in every layer: the last one does not start with it alone. */
static void test_a_small_error_of_the_last_layer(void **state)
{
    (void)state;
    JUDGE("layers.2.o", {"embed", FINE}, {"layers.0.o", FINE}, {"layers.1.x", FINE}, {"layers.1.o", FINE},
          {"layers.2.x", FINE}, {"layers.2.o", 2e-4});
    /* nothing usual is known of two layers; and where others follow, these tell */
    JUDGE(NULL, {"embed", FINE}, {"layers.0.o", FINE}, {"layers.1.x", FINE}, {"layers.1.o", 2e-4});
    JUDGE(NULL, {"embed", FINE}, {"layers.0.o", FINE}, {"layers.1.x", FINE}, {"layers.1.o", FINE}, {"layers.2.x", FINE},
          {"layers.2.o", 2e-4}, {"layers.3.x", 1e-5}, {"layers.3.o", 2e-4});
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

/* Layers that were seen by their outputs alone, the first of which is half wrong: no capture tells coarse weights from
 * a bug, and nothing is said to match. */
static void test_layers_that_are_half_wrong(void **state)
{
    static const double errors[] = {0, 0.5, 0.75, 0.9, 1};
    struct judged judged;
    (void)state;
    trace_start(&judged.trace);
    for (int i = 0; i < 5; i++)
        add_erring(&judged.trace, i ? made_name("layers.%d", i - 1) : "embed", errors[i]);
    judged_run(&judged);
    assert_int_equal(judged.judgement.verdicts[1].judged, TS_JUDGED_UNKNOWN);
    assert_non_null(strstr(judged.judgement.verdicts[1].why, "attention and MLP"));
    assert_true(judged.judgement.first == SIZE_MAX);
    judged_end(&judged);
}

enum shape { EVEN, FACTOR, FACTOR_OF_TOKEN, TOKENS_APART, LARGE_TOKENS, OFFSET };

/* One product that errs by so much, everything before it fine; behind it so many layers, that err by so many times it
 * where half of it came in. */
static void judge_shape_before(double error, enum shape shape, double much, int witnesses, double anew, size_t expected)
{
    struct judged judged;
    float *a, b[TOTAL], by = (float)much;
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    add_erring(&judged.trace, "positions", FINE);
    add_erring(&judged.trace, "types", FINE);
    a = made_values(TOTAL);
    err(a, b, TOTAL, error);
    for (size_t i = 0; i < TOTAL; i++) {
        if (shape == FACTOR)
            b[i] += by * a[i];
        if (shape == TOKENS_APART) /* every other token errs so many times as much, and all of them as much as ever */
            b[i] = a[i] + (i / WIDTH % 2 ? by : 1) * sqrtf(2 / (1 + by * by)) * (b[i] - a[i]);
        if (shape == LARGE_TOKENS && i / WIDTH < 3) { /* as the first of a prompt is in large models */
            b[i] = by * a[i] + 3 * (b[i] - a[i]);
            a[i] *= by;
        }
        if (shape == FACTOR_OF_TOKEN && i / WIDTH == 5)
            b[i] = a[i] + by * (b[i] - a[i]);
        if (shape == OFFSET)
            b[i] += i % WIDTH % 3 ? by : -by;
    }
    trace_add(&judged.trace, "layers.0.o", a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    for (int layer = 1; layer <= witnesses; layer++) {
        add_erring(&judged.trace, made_name("layers.%d.x", layer), 0.5 * error);
        add_erring(&judged.trace, made_name("layers.%d.o", layer), anew * error);
    }
    expect_first(&judged, expected);
}

/* The layers behind it err as coarse ones do. */
static void judge_shape_of(double error, enum shape shape, double much, int witnesses, size_t expected)
{
    judge_shape_before(error, shape, much, witnesses, 1.2, expected);
}

static void judge_shape(enum shape shape, double much, int witnesses, size_t expected)
{
    judge_shape_of(0.1, shape, much, witnesses, expected);
}

static void test_an_error_that_follows(void **state)
{
    (void)state;
    judge_shape(EVEN, 0, 0, SIZE_MAX);
    judge_shape(EVEN, 0, 5, SIZE_MAX);
    judge_shape(FACTOR, 0.029, 0, SIZE_MAX);
    judge_shape(FACTOR, 0.09, 0, 3);
    judge_shape(FACTOR, 0.07, 5, 3);
    /* blocks that cut off their largest numbers make results smaller, by some of what they err; a factor by all */
    judge_shape(FACTOR, -0.055, 0, SIZE_MAX);
    judge_shape(FACTOR, -0.12, 0, 3);
    judge_shape(FACTOR, -0.25, 5, 3);
}

static void test_tokens_err_alike(void **state)
{
    (void)state;
    judge_shape(TOKENS_APART, 1.7, 0, SIZE_MAX);
    judge_shape(TOKENS_APART, 4, 0, 3);
    /* however far they are apart, other layers may say more; one is not enough */
    judge_shape(TOKENS_APART, 4, 1, 3);
    judge_shape(TOKENS_APART, 4, 5, SIZE_MAX);
    judge_shape_before(0.1, TOKENS_APART, 4, 2, 0.85, SIZE_MAX);
    judge_shape_before(0.1, TOKENS_APART, 4, 2, 0.7, 3);
    /* where errors are as small as those of tensor cores, it is not asked */
    judge_shape_of(0.008, TOKENS_APART, 4, 0, SIZE_MAX);
    judge_shape_of(0.015, TOKENS_APART, 4, 0, 3);
    /* those that are larger by far err less for their size and more by themselves */
    judge_shape(LARGE_TOKENS, 30, 0, SIZE_MAX);
}

/* Whatever other layers say. */
static void test_a_token_free_of_error(void **state)
{
    (void)state;
    judge_shape(FACTOR_OF_TOKEN, 0, 5, 3);
    judge_shape(FACTOR_OF_TOKEN, 0.185, 5, 3);
    judge_shape(FACTOR_OF_TOKEN, 0.25, 5, SIZE_MAX);
}

static void test_an_error_that_all_tokens_share(void **state)
{
    (void)state;
    judge_shape(OFFSET, 0.085, 5, SIZE_MAX);
    judge_shape(OFFSET, 0.14, 5, 3);
    judge_shape_of(0.004, OFFSET, 0.0056, 5, SIZE_MAX); /* as small as those of tensor cores */
}

/* One tensor by itself, whose tokens err unevenly or by a factor: what is said of it. */
static void judge_end(const char *name, size_t tokens, double error, enum shape shape, double much,
                      enum ts_judged expected)
{
    struct judged judged;
    float *a = made_values(TOTAL), b[TOTAL], by = (float)much;
    trace_start(&judged.trace);
    err(a, b, tokens * WIDTH, error);
    for (size_t i = 0; i < tokens * WIDTH; i++)
        if (shape == FACTOR)
            b[i] += by * a[i];
        else if (shape == TOKENS_APART)
            b[i] = a[i] + (i / WIDTH % 2 ? by : 1) * sqrtf(2 / (1 + by * by)) * (b[i] - a[i]);
    trace_add(&judged.trace, name, a, b, SHAPE(tokens, WIDTH));
    free(a);
    judged_run(&judged);
    if (judged.judgement.verdicts[0].judged != expected)
        fail_msg("%s of %zu tokens: %d, not %d", name, tokens, (int)judged.judgement.verdicts[0].judged, (int)expected);
    assert_true((judged.judgement.first == SIZE_MAX) == (expected != TS_JUDGED_DIFFERS));
    judged_end(&judged);
}

/* Behind a whole model that was not captured, weights of few bits and bugs leave the same. What has a shape is a bug
 * all the same, and so is what no layers lie before, or lies above what weights of four bits make of one. */
static void test_what_nothing_tells(void **state)
{
    (void)state;
    judge_end("lm_head", TOKENS, 0.2, EVEN, 0, TS_JUDGED_NOISE);
    judge_end("lm_head", TOKENS, 0.2, TOKENS_APART, 3, TS_JUDGED_UNKNOWN);
    judge_end("logits", TOKENS, 0.35, TOKENS_APART, 3, TS_JUDGED_UNKNOWN);
    judge_end("logits", TOKENS, 0.35, EVEN, 0, TS_JUDGED_NOISE);
    judge_end("lm_head", 1, 0.15, EVEN, 0, TS_JUDGED_UNKNOWN);
    judge_end("layers.3", TOKENS, 0.2, TOKENS_APART, 2.7, TS_JUDGED_UNKNOWN);
    judge_end("lm_head", TOKENS, 0.2, FACTOR, 0.2, TS_JUDGED_DIFFERS);
    judge_end("lm_head", 1, 0.05, FACTOR, 0.1, TS_JUDGED_DIFFERS);
    judge_end("lm_head", TOKENS, 0.2, TOKENS_APART, 8, TS_JUDGED_DIFFERS);
    judge_end("lm_head", TOKENS, 0.5, EVEN, 0, TS_JUDGED_DIFFERS);
    judge_end("layers.0", TOKENS, 0.45, TOKENS_APART, 2.7, TS_JUDGED_DIFFERS);
    judge_end("x", TOKENS, 0.2, TOKENS_APART, 3, TS_JUDGED_DIFFERS);
    judge_end("x", 1, 0.15, EVEN, 0, TS_JUDGED_DIFFERS);
    /* where layers are there and fine, it is made behind them */
    JUDGE("lm_head", {"layers.0", FINE}, {"layers.1", FINE}, {"layers.2", FINE}, {"lm_head", 0.5});
}

/* Of tokens of eight numbers each, that err unevenly by chance. */
static void test_tokens_of_few_numbers(void **state)
{
    enum { NARROW = 8 };
    struct judged judged;
    float *a, b[TOKENS * NARROW];
    (void)state;
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    a = made_values(TOKENS * NARROW);
    err(a, b, TOKENS * NARROW, 0.04);
    for (size_t i = 0; i < TOKENS * NARROW; i++)
        if (i / NARROW % 2)
            b[i] = a[i] + 2.4f * (b[i] - a[i]);
    trace_add(&judged.trace, "layers.0.o", a, b, SHAPE(TOKENS, NARROW));
    free(a);
    expect_first(&judged, SIZE_MAX);
}

/* Layers that are equal bit for bit have been seen: what comes behind them is not the first of the run. */
static void test_equal_layers_were_seen(void **state)
{
    (void)state;
    JUDGE("layers.3.o", {"embed", 0}, {"layers.0.o", 0}, {"layers.1.o", 0}, {"layers.2.o", 0}, {"layers.3.o", 0.008},
          {"layers.4.x", 0.006}, {"layers.4.y", 0.006}, {"layers.4.o", 0.006}, {"layers.5.x", 0.006},
          {"layers.5.y", 0.006}, {"layers.5.o", 0.006});
}

/* A norm has no products of its own. */
static void test_norms_start_none(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.out", 0.1});
    JUDGE("layers.0.norm", {"embed", FINE}, {"layers.0.q", FINE}, {"layers.0.norm", 0.1});
    /* nor has that of embeddings, though their sum was not captured; before the last one there may be some */
    JUDGE("embeddings.norm", {"embeddings.words", FINE}, {"embeddings.positions", FINE}, {"embeddings.types", FINE},
          {"embeddings.norm", 0.19}, {"layers.0.q", 0.2}, {"layers.0.k", 0.2}, {"layers.0.o", 0.2}, {"layers.1.q", 0.2},
          {"layers.1.k", 0.2}, {"layers.1.o", 0.2});
    JUDGE(NULL, {"embeddings.words", FINE}, {"embeddings.positions", FINE}, {"layers.0.q", FINE}, {"norm", 0.19},
          {"logits", 0.2});
}

/* The first tensor of a run, which a lookup made, or one product: an error of six times what four bits make is believed
 * where the same point of other layers says so. */
static void test_large_errors_want_witnesses(void **state)
{
    (void)state;
    JUDGE("layers.0.input", {"layers.0.input", 0.6}, {"layers.0.o", 0.35}, {"layers.0.sum", 0.6}, {"layers.0.up", 0.7},
          {"layers.1.o", 0.3});
    JUDGE(NULL, {"layers.0.input", 0.25}, {"layers.0.o", 0.25}, {"layers.0.sum", 0.3}, {"layers.0.up", 0.3},
          {"layers.1.o", 0.3});
    JUDGE(NULL, {"layers.0.down", 0.6}, {"layers.1.x", 0.2}, {"layers.1.down", 0.65}, {"layers.2.x", 0.2},
          {"layers.2.down", 0.65});
}

/* Small errors are what is usual: products run in another precision than what they give. */
static void test_small_errors_are_usual(void **state)
{
    (void)state;
    JUDGE(NULL, {"embed", FINE}, {"layers.0.o", FINE}, {"layers.1.x", FINE}, {"layers.2.o", 0.008});
    JUDGE("layers.2.o", {"embed", FINE}, {"layers.0.o", FINE}, {"layers.1.x", FINE}, {"layers.2.o", 0.05});
    JUDGE(NULL, {"embed", FINE}, {"positions", FINE}, {"layers.0.x", FINE}, {"layers.0.o", FINE}, {"layers.1.o", 0.008},
          {"layers.2.x", 0.004}, {"layers.2.o", 0.005});
}

/* A large error that may or may not be a precision, and a copy further on that is none: one bug is enough, unless the
 * layer before it speaks against a precision as well. */
static void judge_copy(const char *before, float factor, size_t expected)
{
    struct judged judged;
    float *a, b[TOTAL], copy[TOTAL];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", FINE);
    add_erring(&judged.trace, before, FINE);
    add_erring(&judged.trace, "layers.1.x", FINE);
    add_erring(&judged.trace, "layers.1.o", 0.6);
    a = made_values(TOTAL);
    err(a, b, TOTAL, FINE);
    for (size_t i = 0; i < TOTAL; i++)
        copy[i] = factor * b[i];
    trace_add(&judged.trace, "layers.2.x", a, b, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.2.y", a, copy, SHAPE(TOKENS, WIDTH));
    free(a);
    expect_first(&judged, expected);
}

static void test_one_bug_is_enough(void **state)
{
    (void)state;
    judge_copy("layers.0.z", 2, 5);
    judge_copy("layers.0.z", 1, 3);
    judge_copy("layers.0.o", 2, 3);
}

/* Of two tokens by themselves nothing is known: a small error is believed, a large one is not, nor any of a few
 * numbers.
 */
static void judge_alone(size_t width, double error, size_t expected)
{
    struct judged judged;
    float *a = made_values(2 * width), b[2 * WIDTH];
    err(a, b, 2 * width, error);
    trace_start(&judged.trace);
    trace_add(&judged.trace, "x", a, b, SHAPE(2, width));
    free(a);
    expect_first(&judged, expected);
}

static void test_a_tensor_by_itself(void **state)
{
    (void)state;
    judge_alone(WIDTH, 0.03, SIZE_MAX);
    judge_alone(WIDTH, 0.07, 0);
    judge_alone(WIDTH, 0.1, 0);
    judge_alone(10, 0.03, SIZE_MAX);
    judge_alone(6, 0.03, 0);
}

/* One token, whose tensors have no structure: other products say whether it is by itself. */
static void judge_one_token(double others, size_t expected)
{
    static const char *const names[] = {"embed",         "layers.0",      "layers.1.q", "layers.2.norm",
                                        "layers.2.gate", "layers.3.norm", "layers.3.up"};
    const double errors[] = {FINE, FINE, 0.09, 0.03, others, 0.04, others};
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        float *a = made_values(TOTAL), b[TOTAL];
        err(a, b, TOTAL, errors[i]);
        trace_add(&judged.trace, names[i], a, b, SHAPE(1, TOTAL));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_others_of_one_token(void **state)
{
    (void)state;
    judge_one_token(0.1, SIZE_MAX);
    judge_one_token(0.04, 2);
}

/* Few numbers: what is made of eight strays further from what is usual than what is made of many. */
static void judge_few(size_t count, double error, size_t expected)
{
    static const char *const names[] = {"layers.0.q", "layers.0.k", "layers.1.q", "layers.1.k"};
    struct judged judged;
    float *a, b[TOTAL];
    trace_start(&judged.trace);
    for (size_t i = 0; i < 5; i++) {
        size_t numbers = i < 4 ? TOTAL : count;
        a = made_values(numbers);
        err(a, b, numbers, i < 4 ? 0.02 : error);
        for (size_t k = 0; i == 4 && k < numbers; k++) /* of exactly this size, and not the same in all */
            b[k] = a[k] * (float)(1 + error * (k % 2 ? 1.2 : -0.8));
        trace_add(&judged.trace, i < 4 ? names[i] : "layers.1.scores", a, b, SHAPE(1, numbers));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_few_numbers_stray(void **state)
{
    (void)state;
    judge_few(8, 0.3, SIZE_MAX);
    judge_few(8, 0.9, 4);
    judge_few(256, 0.3, 4);
}

/* One token: a score per head. They are the products of q and k, and replayed as those of many tokens are. */
static void judge_scores_of_one(double factor, size_t expected)
{
    enum { HEADS = 8, SIZE = 16 };
    struct judged judged;
    float *values[2], wrong[2][HEADS * SIZE], scores[2][HEADS];
    trace_start(&judged.trace);
    for (size_t i = 0; i < 2; i++) {
        values[i] = made_values(HEADS * SIZE);
        err(values[i], wrong[i], HEADS * SIZE, 0.2);
        trace_add(&judged.trace, i ? "layers.0.k" : "layers.0.q", values[i], wrong[i], SHAPE(1, HEADS * SIZE));
    }
    for (size_t head = 0; head < HEADS; head++) {
        double a = 0, b = 0;
        for (size_t i = head * SIZE; i < (head + 1) * SIZE; i++) {
            a += (double)values[0][i] * (double)values[1][i];
            b += (double)wrong[0][i] * (double)wrong[1][i];
        }
        scores[0][head] = (float)(a / 4);
        scores[1][head] = (float)(b / 4 * factor);
    }
    trace_add(&judged.trace, "layers.0.scores", scores[0], scores[1], SHAPE(HEADS, 1, 1));
    free(values[0]);
    free(values[1]);
    judged_run(&judged);
    assert_non_null(strstr(judged.judgement.verdicts[2].operation, "0.25 * "));
    ts_judgement_release(&judged.judgement);
    expect_first(&judged, expected);
}

static void test_scores_of_one_token(void **state)
{
    (void)state;
    judge_scores_of_one(1, SIZE_MAX);
    judge_scores_of_one(1.5, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_points_decide),
        cmocka_unit_test(test_the_same_bug_in_every_layer),
        cmocka_unit_test(test_the_layers_before_were_fine),
        cmocka_unit_test(test_steps_are_no_witnesses),
        cmocka_unit_test(test_an_error_that_is_left_behind),
        cmocka_unit_test(test_an_error_out_of_nothing),
        cmocka_unit_test(test_siblings_start_together),
        cmocka_unit_test(test_how_much_witnesses_count),
        cmocka_unit_test(test_siblings_of_another_kind),
        cmocka_unit_test(test_siblings_whose_input_is_not_there),
        cmocka_unit_test(test_a_precision_after_equal_products),
        cmocka_unit_test(test_no_siblings_of_what_is_learnt_between),
        cmocka_unit_test(test_products_of_other_kinds),
        cmocka_unit_test(test_what_came_in),
        cmocka_unit_test(test_witnesses_behind_a_bug),
        cmocka_unit_test(test_a_bias_beside_it),
        cmocka_unit_test(test_parts_are_no_witnesses),
        cmocka_unit_test(test_a_layer_holds_many_products),
        cmocka_unit_test(test_layers_that_were_left_out),
        cmocka_unit_test(test_the_last_of_two_tokens),
        cmocka_unit_test(test_what_layers_add_to_a_stream),
        cmocka_unit_test(test_layers_that_give_all_tokens_the_same),
        cmocka_unit_test(test_what_grows_in_a_stream),
        cmocka_unit_test(test_a_small_error_of_the_last_layer),
        cmocka_unit_test(test_outputs_of_layers_alone),
        cmocka_unit_test(test_layers_that_are_half_wrong),
        cmocka_unit_test(test_an_error_that_follows),
        cmocka_unit_test(test_tokens_err_alike),
        cmocka_unit_test(test_a_token_free_of_error),
        cmocka_unit_test(test_an_error_that_all_tokens_share),
        cmocka_unit_test(test_what_nothing_tells),
        cmocka_unit_test(test_tokens_of_few_numbers),
        cmocka_unit_test(test_equal_layers_were_seen),
        cmocka_unit_test(test_norms_start_none),
        cmocka_unit_test(test_large_errors_want_witnesses),
        cmocka_unit_test(test_small_errors_are_usual),
        cmocka_unit_test(test_one_bug_is_enough),
        cmocka_unit_test(test_a_tensor_by_itself),
        cmocka_unit_test(test_few_numbers_stray),
        cmocka_unit_test(test_others_of_one_token),
        cmocka_unit_test(test_scores_of_one_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
