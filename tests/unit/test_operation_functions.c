/* A function of a sum, a gate to whose other operand 1 is added, and one that is a part of a wider tensor: learnt from
 * the reference, silent on an honest candidate in bf16, and told where the candidate computes something else, also
 * where each number hides it. */
#include "judged_trace.h"

enum { TOKENS = 14, WIDTH = 24, TAIL = 10, TOTAL = TOKENS * WIDTH };

static double relu(double x)
{
    return x > 0 ? x : 0;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* How a side makes its result of a first and a second operand; `third` stands where the second should not be. */
typedef double (*step)(double first, double second, double third);

static double relu_of_sum(double x, double y, double z)
{
    (void)z;
    return relu(x + y);
}

static double silu_of_sum(double x, double y, double z)
{
    (void)z;
    return silu(x + y);
}

static double relu_before_sum(double x, double y, double z)
{
    (void)z;
    return relu(x) + y;
}

static double both_before_sum(double x, double y, double z)
{
    (void)z;
    return relu(x) + relu(y);
}

static double relu_of_first(double x, double y, double z)
{
    (void)y;
    (void)z;
    return relu(x);
}

static double gated(double x, double y, double z)
{
    (void)z;
    return x * silu(y);
}

static double gated_by_relu(double x, double y, double z)
{
    (void)z;
    return x * relu(y);
}

static double gate_alone(double x, double y, double z)
{
    (void)z;
    return silu(x) * y;
}

static double gated_by_other(double x, double y, double z)
{
    (void)y;
    return x * silu(z);
}

/* What gpt-oss computes of a gate y and x, and what programs make of it. */
static double quick_gelu(double x)
{
    return x / (1 + exp(-1.702 * x));
}

static double cut(double x, double least, double most)
{
    return fmax(least, fmin(x, most));
}

static double oss(double x, double y, double z)
{
    (void)z;
    return (cut(x, -7, 7) + 1) * quick_gelu(fmin(y, 7));
}

static double oss_without_one(double x, double y, double z)
{
    (void)z;
    return cut(x, -7, 7) * quick_gelu(fmin(y, 7));
}

static double oss_unclipped(double x, double y, double z)
{
    (void)z;
    return (x + 1) * quick_gelu(y);
}

static double oss_clipped_at_five(double x, double y, double z)
{
    (void)z;
    return (cut(x, -5, 5) + 1) * quick_gelu(fmin(y, 5));
}

static double oss_of_silu(double x, double y, double z)
{
    (void)z;
    return (cut(x, -7, 7) + 1) * silu(fmin(y, 7));
}

static double oss_exchanged(double x, double y, double z)
{
    return oss(y, x, z);
}

static float larger = 1; /* times what is captured elsewhere */

/* Fills in what was captured: of a sum both terms, of a gate the other operand and a tensor that holds the gate behind
 * (or before) as many other numbers, and a tail. Returns the index of the result. */
static size_t plant(struct trace *trace, bool sum, bool gate_first, step right, step wrong)
{
    const size_t wide = sum ? WIDTH : 2 * WIDTH + TAIL;
    float *x = made_values(TOTAL), *near_x = malloc(TOTAL * sizeof *near_x), *out[2];
    float *y = made_values(TOKENS * wide), *near_y = malloc(TOKENS * wide * sizeof *near_y);
    size_t at;
    assert_true(near_x && near_y);
    for (size_t i = 0; i < TOTAL; i++) {
        x[i] *= larger;
        near_x[i] = to_bf16(x[i]);
    }
    for (size_t i = 0; i < TOKENS * wide; i++) {
        y[i] *= larger;
        near_y[i] = to_bf16(y[i]);
    }
    for (int side = 0; side < 2; side++) {
        out[side] = malloc(TOTAL * sizeof(float));
        assert_non_null(out[side]);
        for (size_t i = 0; i < TOTAL; i++) {
            const float *row = (side ? near_y : y) + i / WIDTH * wide + i % WIDTH;
            double first = (double)(side ? near_x : x)[i], second = (double)row[sum || gate_first ? 0 : WIDTH];
            double third = (double)row[sum || !gate_first ? 0 : WIDTH];
            out[side][i] = (float)(side ? wrong : right)(first, second, third);
            out[side][i] = side ? to_bf16(out[side][i]) : out[side][i];
        }
    }
    trace_add(trace, sum ? "layers.0" : "mixer.in_proj", y, near_y, SHAPE(TOKENS, wide));
    trace_add(trace, sum ? "layers.1.bn2" : "mixer.scan", x, near_x, SHAPE(TOKENS, WIDTH));
    at = trace_add(trace, sum ? "layers.1" : "mixer.out_proj.input", out[0], out[1], SHAPE(TOKENS, WIDTH));
    for (int side = 0; side < 2; side++)
        free(out[side]);
    free(x);
    free(y);
    free(near_x);
    free(near_y);
    return at;
}

static void expect_learnt(bool sum, bool gate_first, step right, step wrong, const char *operation)
{
    struct judged judged;
    const char *learnt;
    size_t at;
    trace_start(&judged.trace);
    at = plant(&judged.trace, sum, gate_first, right, wrong);
    judged_run(&judged);
    learnt = judged.judgement.verdicts[at].operation;
    if (!learnt || strcmp(learnt, operation) != 0)
        fail_msg("%s, not %s", learnt ? learnt : "nothing was learnt", operation);
    ts_judgement_release(&judged.judgement);
    expect_first(&judged, right == wrong ? SIZE_MAX : at);
}

static void expect_cause(bool sum, bool gate_first, step right, step wrong, const char *id, const char *words)
{
    struct trace trace;
    trace_start(&trace);
    trace_diagnose(&trace, plant(&trace, sum, gate_first, right, wrong));
    assert_first(&trace, id, words);
    trace_end(&trace);
}

static void test_a_function_of_a_sum(void **state)
{
    const char *learnt = "relu(layers.1.bn2 + layers.0)";
    (void)state;
    expect_learnt(true, false, relu_of_sum, relu_of_sum, learnt);
    expect_learnt(true, false, silu_of_sum, silu_of_sum, "silu(layers.1.bn2 + layers.0)");
    expect_learnt(true, false, relu_of_sum, silu_of_sum, learnt);
    expect_cause(true, false, relu_of_sum, silu_of_sum, "activation",
                 "computes silu(layers.1.bn2 + layers.0); the reference computes relu(layers.1.bn2 + layers.0)");
    expect_cause(true, false, relu_of_sum, relu_before_sum, "activation",
                 "relu(layers.1.bn2) + layers.0 (the activation is applied before the sum)");
    expect_cause(true, false, relu_of_sum, both_before_sum, "activation", "relu(layers.1.bn2) + relu(layers.0)");
    expect_cause(true, false, relu_of_sum, relu_of_first, "term-missing", "without adding layers.0");
}

static void test_a_gate_with_one_added(void **state)
{
    const char *learnt = "quick_gelu(layers.0) * (layers.1.bn2 + 1)";
    const char *clipped = "quick_gelu(layers.0) * (layers.1.bn2 + 1), its inputs clipped at 7";
    (void)state;
    expect_learnt(true, false, oss, oss, learnt);
    expect_learnt(true, false, oss, oss_of_silu, learnt);
    expect_cause(true, false, oss, oss_of_silu, "activation", "computes silu(layers.0) * (layers.1.bn2 + 1)");
    expect_cause(true, false, oss, oss_without_one, "activation", "computes quick_gelu(layers.0) * layers.1.bn2");
    expect_cause(true, false, oss_without_one, oss, "activation", "computes quick_gelu(layers.0) * (layers.1.bn2 + 1)");
    expect_cause(true, false, oss, oss_exchanged, "activation",
                 "quick_gelu(layers.1.bn2) * (layers.0 + 1) (the activation is on the wrong operand)");
    larger = 12;
    expect_learnt(true, false, oss, oss, clipped);
    expect_learnt(true, false, oss, oss_unclipped, clipped);
    expect_cause(true, false, oss, oss_unclipped, "clamped",
                 "quick_gelu(layers.0) * (layers.1.bn2 + 1) without clipping them");
    expect_cause(true, false, oss, oss_clipped_at_five, "clamped", "clipped at 5");
    expect_cause(true, false, oss, oss_without_one, "activation", "computes quick_gelu(layers.0) * layers.1.bn2");
    larger = 1;
}

static void test_a_gate_in_a_wider_tensor(void **state)
{
    (void)state;
    expect_learnt(false, false, gated, gated, "silu(mixer.in_proj[24:48]) * mixer.scan");
    expect_learnt(false, true, gated, gated, "silu(mixer.in_proj[0:24]) * mixer.scan");
    expect_learnt(false, true, gated, gated_by_relu, "silu(mixer.in_proj[0:24]) * mixer.scan");
    expect_cause(false, false, gated, gated_by_relu, "activation", "relu(mixer.in_proj[24:48]) * mixer.scan");
    expect_cause(false, true, gated, gate_alone, "activation", "silu(mixer.scan) * mixer.in_proj[0:24]");
    expect_cause(false, false, gated, gated_by_other, "wrong-input",
                 "mixer.in_proj[0:24] instead of mixer.in_proj[24:48]");
}

enum { MANY = 40, INNER = 128 };

/* A function of one tensor, or a norm, in bf16 on the candidate's side, and what is said of it. */
static void diagnose_twins(double (*right)(double), double (*wrong)(double), double epsilon, const char *id,
                           const char *words)
{
    const size_t total = MANY * INNER;
    float *x, *near_x, *out[2];
    struct trace trace;
    trace_start(&trace);
    x = made_values(total);
    near_x = malloc(total * sizeof(float));
    out[0] = malloc(total * sizeof(float));
    out[1] = malloc(total * sizeof(float));
    assert_true(near_x && out[0] && out[1]);
    for (size_t row = 0; row < MANY; row++) {
        double size = right ? 1 : exp(dice_number()), square = 0;
        for (size_t i = row * INNER; i < (row + 1) * INNER; i++) {
            x[i] = near_x[i] = to_bf16((float)(size * (double)x[i]));
            square += (double)x[i] * (double)x[i] / INNER;
        }
        for (size_t i = row * INNER; i < (row + 1) * INNER; i++) {
            double value = (double)x[i], norm = value / sqrt(square + 1e-6), other = value / sqrt(square + epsilon);
            out[0][i] = (float)(right ? right(value) : norm);
            out[1][i] = to_bf16((float)(wrong ? wrong(value) : other));
        }
    }
    trace_add(&trace, "layers.0.mlp.up_proj", x, near_x, SHAPE(MANY, INNER));
    trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.act_fn", out[0], out[1], SHAPE(MANY, INNER)));
    if (words)
        assert_first(&trace, id, words);
    else
        assert_null(trace_cause(&trace, id));
    trace_end(&trace);
    free(x);
    free(near_x);
    free(out[0]);
    free(out[1]);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double gelu_of_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* Gate and up of one projection, as halves or as every second column; a side may take them the other way. */
static void judge_split(bool alternate, bool other, const char *operation)
{
    static float fused[2][2 * TOTAL], out[2][TOTAL];
    struct judged judged;
    float *x = made_values(2 * TOTAL);
    const char *learnt;
    for (size_t i = 0; i < 2 * TOTAL; i++) {
        fused[0][i] = x[i];
        fused[1][i] = to_bf16(x[i]);
    }
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < TOTAL; i++) {
            const bool by_two = alternate != (side && other);
            const float *row = fused[side] + i / WIDTH * 2 * WIDTH;
            const size_t at = i % WIDTH;
            const double value =
                gated((double)row[by_two ? 2 * at + 1 : WIDTH + at], (double)row[by_two ? 2 * at : at], 0);
            out[side][i] = side ? to_bf16((float)value) : (float)value;
        }
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0.mlp.gate_up_proj", fused[0], fused[1], SHAPE(TOKENS, 2 * WIDTH));
    trace_add(&judged.trace, "layers.0.mlp.act", out[0], out[1], SHAPE(TOKENS, WIDTH));
    judged_run(&judged);
    learnt = judged.judgement.verdicts[1].operation;
    assert_string_equal(learnt ? learnt : "nothing", operation);
    assert_int_equal(judged.judgement.first, other ? 1 : SIZE_MAX);
    ts_judgement_release(&judged.judgement);
    trace_diagnose(&judged.trace, 1);
    if (other)
        assert_first(&judged.trace, "wrong-input",
                     alternate ? "the first half of layers.0.mlp.gate_up_proj and the second half of "
                                 "layers.0.mlp.gate_up_proj instead of the even columns of"
                               : "the even columns of layers.0.mlp.gate_up_proj and the odd columns of "
                                 "layers.0.mlp.gate_up_proj instead of the first half of");
    trace_end(&judged.trace);
    free(x);
}

static void test_a_fused_gate_that_alternates(void **state)
{
    const char *alternating = "silu(layers.0.mlp.gate_up_proj[0::2]) * layers.0.mlp.gate_up_proj[1::2]";
    const char *halves = "silu(layers.0.mlp.gate_up_proj[0:24]) * layers.0.mlp.gate_up_proj[24:48]";
    (void)state;
    judge_split(true, false, alternating);
    judge_split(true, true, alternating);
    judge_split(false, false, halves);
    judge_split(false, true, halves);
}

static void test_twins_that_rounding_hides(void **state)
{
    (void)state;
    diagnose_twins(gelu, gelu_of_tanh, 0, "activation", "the candidate applies gelu_tanh, the reference gelu;");
    diagnose_twins(gelu_of_tanh, gelu, 0, "activation", "the candidate applies gelu, the reference gelu_tanh;");
    diagnose_twins(gelu, gelu, 0, "activation", NULL);
    diagnose_twins(gelu_of_tanh, gelu_of_tanh, 0, "activation", NULL);
    diagnose_twins(NULL, NULL, 1e-3, "row-scaled", "another epsilon: 0.001 in the candidate, 1e-06 in the reference");
    diagnose_twins(NULL, NULL, 1e-6, "row-scaled", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_function_of_a_sum),       cmocka_unit_test(test_a_gate_with_one_added),
        cmocka_unit_test(test_a_gate_in_a_wider_tensor),  cmocka_unit_test(test_a_fused_gate_that_alternates),
        cmocka_unit_test(test_twins_that_rounding_hides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
