/* Causes that are told by the results of a step alone: functions whose argument was not captured, rows that experts
 * gather as they come, and weights that stand elsewhere while their bias does not. */
#include "compare/operation.h"
#include "judged_trace.h"

enum { TOKENS = 12, HIDDEN = 32, WIDTH = 48, TOTAL = TOKENS * WIDTH };

static float before[TOKENS * HIDDEN], a[TOTAL], b[TOTAL];

static void start(struct trace *trace)
{
    trace_start(trace);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        before[i] = (float)dice_number();
}

static void diagnose(struct trace *trace, const char *name)
{
    trace_add(trace, "x", before, before, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(trace, trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH)));
}

static void fill(enum ts_activation reference, enum ts_activation candidate, bool bf16)
{
    for (size_t i = 0; i < TOTAL; i++) {
        double x = 1.5 * (dice_number() + dice_number());
        a[i] = (float)ts_activation_value(reference, x);
        b[i] = (float)(ts_activation_value(candidate, x) * (1 + 1e-6 * dice_number()));
        b[i] = bf16 ? to_bf16(b[i]) : b[i];
    }
}

static void test_other_function(void **state)
{
    static const struct {
        enum ts_activation reference, candidate;
        bool bf16;
        const char *words;
    } cases[] = {
        {TS_ACTIVATION_SILU, TS_ACTIVATION_GELU, false, "applies gelu, the reference silu"},
        {TS_ACTIVATION_SILU, TS_ACTIVATION_GELU, true, "rounding hides the difference), the reference silu"},
        {TS_ACTIVATION_SILU, TS_ACTIVATION_RELU, false, "applies relu, the reference silu"},
        {TS_ACTIVATION_SILU, TS_ACTIVATION_IDENTITY, true, "applies no activation, the reference silu"},
        {TS_ACTIVATION_GELU_TANH, TS_ACTIVATION_SILU, true, "applies silu, the reference gelu_tanh"},
        {TS_ACTIVATION_GELU, TS_ACTIVATION_GELU_TANH, false, "applies gelu_tanh, the reference gelu ("},
        {TS_ACTIVATION_QUICK_GELU, TS_ACTIVATION_GELU, false, "applies gelu, the reference quick_gelu"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trace trace;
        start(&trace);
        fill(cases[i].reference, cases[i].candidate, cases[i].bf16);
        diagnose(&trace, "mlp.act_fn");
        assert_first(&trace, "activation", cases[i].words);
        trace_end(&trace);
    }
}

static double square(double x)
{
    return x * x;
}

static double signed_square(double x)
{
    return x * fabs(x);
}

/* A function of numbers that were right, at any tensor and under coarse rounding; a factor or a limit is none. */
static void test_function_on_top(void **state)
{
    static const struct {
        double (*function)(double);
        const char *words;
    } cases[] = {{square, "is x * x where"},
                 {signed_square, "is x * |x| where"},
                 {tanh, "is tanh(x) where"},
                 {fabs, "is abs(x) where"}};
    static const double noises[] = {1e-6, 3e-2};
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        struct trace trace;
        start(&trace);
        for (size_t k = 0; k < TOTAL; k++) {
            a[k] = (float)(2 * dice_number());
            b[k] = (float)(cases[i / 2].function((double)a[k]) * (1 + noises[i % 2] * dice_number()));
        }
        diagnose(&trace, "k_proj");
        assert_first(&trace, "activation", cases[i / 2].words);
        trace_end(&trace);
    }
    for (size_t i = 0; i < 3; i++) {
        static const char *const ids[] = {"scaled", "clamped", "offset"};
        struct trace trace;
        start(&trace);
        for (size_t k = 0; k < TOTAL; k++) {
            double x = 2 * dice_number(), y = i == 0 ? 0.7 * x : i == 1 ? fmax(fmin(x, 1), -1) : x + 0.5;
            a[k] = (float)x;
            b[k] = (float)(y * (1 + 1e-3 * dice_number()));
        }
        diagnose(&trace, "k_proj");
        assert_first(&trace, ids[i], NULL);
        trace_end(&trace);
    }
}

/* The other sign is neither an unknown function of what was captured nor half a turn of each pair. */
static void test_other_sign(void **state)
{
    static float x[TOTAL], y[TOTAL];
    struct trace trace;
    (void)state;
    start(&trace);
    for (size_t k = 0; k < TOTAL; k++) {
        x[k] = (float)(3 * dice_number());
        y[k] = (float)dice_number();
        a[k] = (float)ts_activation_value(TS_ACTIVATION_SILU, (double)x[k]) * y[k];
        b[k] = -to_bf16((float)((double)a[k] * (1 + 3e-3 * dice_number())));
    }
    trace_add(&trace, "mlp.gate_proj", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&trace, "mlp.up_proj", y, y, SHAPE(TOKENS, WIDTH));
    diagnose(&trace, "mlp.intermediate");
    assert_first(&trace, "sign-flipped", NULL);
    trace_end(&trace);
    start(&trace);
    for (size_t k = 0; k < TOTAL; k++) {
        a[k] = (float)(dice_number() + dice_number());
        b[k] = (float)(-(double)a[k] + 0.4 * dice_number());
    }
    trace_add(&trace, "x", before, before, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_q_proj_raw", a, b, SHAPE(TOKENS, 3, WIDTH / 3)));
    assert_first(&trace, "sign-flipped", NULL);
    assert_null(trace_cause(&trace, "rotation"));
    trace_end(&trace);
}

/* What else happens to the results of a function, and results that are none of a function's. */
static void test_function_is_silent(void **state)
{
    struct trace trace;
    (void)state;
    for (int way = 0; way < 4; way++) {
        start(&trace);
        fill(TS_ACTIVATION_SILU, TS_ACTIVATION_SILU, false);
        for (size_t i = 0; i < TOTAL; i++) {
            if (way == 0)
                b[i] *= 1.3f;
            else if (way == 1)
                b[i] = b[i] > 0.5f ? 0.5f : b[i];
            else if (way == 2)
                b[i] += (float)(0.2 * dice_number());
            else /* another function of numbers that are no results of one */
                a[i] = (float)(dice_number() + dice_number()),
                b[i] = (float)ts_activation_value(TS_ACTIVATION_GELU, (double)a[i]);
        }
        diagnose(&trace, "mlp.act_fn");
        for (size_t i = 0; i < trace.diagnosis.count; i++)
            assert_null(strstr(trace.diagnosis.causes[i].summary, "inferred from the outputs alone"));
        trace_end(&trace);
    }
}

/* Rows inside of experts stand in another order, which is no matter, and are made by another function, which is. A row
 * that is none of the reference's is that of a token which chose otherwise, or it is wrong. */
static void test_function_inside_experts(void **state)
{
    enum { FLIPPED = 5 };
    static float gathered[TOTAL];
    int64_t chosen[2][TOKENS];
    struct trace trace;
    (void)state;
    for (int way = 0; way < 3; way++) {
        start(&trace);
        fill(TS_ACTIVATION_SILU, way < 2 ? TS_ACTIVATION_GELU : TS_ACTIVATION_SILU, false);
        for (size_t row = 0; row < TOKENS; row++) {
            size_t from = row / 4 * 4 + (3 - row % 4);
            memcpy(gathered + row * WIDTH, b + from * WIDTH, WIDTH * sizeof *b);
            chosen[0][row] = (int64_t)(row / 4);
            chosen[1][row] = way == 1 && row == FLIPPED ? 0 : chosen[0][row];
        }
        for (size_t i = 0; i < WIDTH && way; i++)
            gathered[FLIPPED * WIDTH + i] = (float)ts_activation_value(TS_ACTIVATION_GELU, 3 * dice_number());
        memcpy(b, gathered, sizeof b);
        trace_add_integers(&trace, "mlp.gate.indices", chosen[0], chosen[1], TOKENS, 1);
        diagnose(&trace, "mlp.experts.act_fn");
        if (way < 2)
            assert_first(&trace, "activation", "applies gelu, the reference silu");
        else
            assert_first(&trace, "rows", "5");
        assert_null(trace_cause(&trace, "permuted"));
        trace_end(&trace);
    }
}

/* Each token has a row for both of its experts; some chose an expert and the one whose weights it has. Other weights
 * altogether are no order, nor is it one when four rows of all are exchanged. */
static void test_experts_moved(void **state)
{
    enum { EXPERTS = 6, CHOSEN = 2, COUNT = TOKENS * CHOSEN };
    static float weights[EXPERTS][WIDTH], logits[TOKENS * EXPERTS], wanted[COUNT * WIDTH], found[COUNT * WIDTH];
    int64_t chosen[COUNT];
    struct trace trace;
    (void)state;
    for (int other = 0; other < 3; other++) {
        size_t row = 0;
        start(&trace);
        for (size_t i = 0; i < EXPERTS * WIDTH; i++)
            weights[i / WIDTH][i % WIDTH] = (float)dice_number();
        for (size_t i = 0; i < COUNT; i++)
            chosen[i] = (int64_t)((i / 2 % EXPERTS + i % 2 * (1 + i / 2 % 3)) % EXPERTS);
        for (size_t i = 0; i < TOKENS * EXPERTS; i++)
            logits[i] = (float)(dice_number() + 8 * (chosen[i / EXPERTS * 2] == (int64_t)(i % EXPERTS) ||
                                                     chosen[i / EXPERTS * 2 + 1] == (int64_t)(i % EXPERTS)));
        for (size_t expert = 0; expert < EXPERTS; expert++)
            for (size_t i = 0; i < COUNT; i++) {
                const float *of = weights[(expert + EXPERTS - 1) % EXPERTS], *token = before + i / 2 * HIDDEN;
                if (chosen[i] != (int64_t)expert)
                    continue;
                for (size_t k = 0; k < WIDTH; k++) {
                    double x = (double)token[k % HIDDEN] + 0.5 * (double)token[(7 * k + 3) % HIDDEN];
                    wanted[row * WIDTH + k] = (float)(x * (double)weights[expert][k]);
                    found[row * WIDTH + k] = other == 1   ? (float)dice_number()
                                             : other == 2 ? wanted[row * WIDTH + k]
                                                          : (float)(x * (double)of[k]);
                }
                row++;
            }
        for (size_t i = 0; i < 4 && other == 2; i++) { /* and four others are wrong */
            memcpy(found + i * 6 * WIDTH, wanted + (i * 6 + 6) % COUNT * WIDTH, WIDTH * sizeof *found);
            for (size_t k = 0; k < WIDTH; k++)
                found[(i * 6 + 1) * WIDTH + k] = (float)dice_number();
        }
        trace_add(&trace, "layers.0.x", before, before, SHAPE(TOKENS, HIDDEN));
        trace_add(&trace, "layers.0.mlp.gate.logits", logits, logits, SHAPE(TOKENS, EXPERTS));
        trace_add_integers(&trace, "layers.0.mlp.gate.indices", chosen, chosen, TOKENS, CHOSEN);
        trace_diagnose(&trace, trace_add(&trace, other == 2 ? "layers.0.mlp.act" : "layers.0.mlp.experts.act_fn",
                                         wanted, found, SHAPE(COUNT, WIDTH)));
        if (other)
            assert_null(trace_cause(&trace, "router-gate"));
        else
            assert_first(&trace, "router-gate", "always the expert 1 places before");
        trace_end(&trace);
    }
}

/* What goes into experts is the same row for each that a token chose, so that every row stands in the places of several
 * experts. Wrong rows are no sign of another order then, and neither are those that an expert took in another one. */
static void test_rows_of_several_experts(void **state)
{
    enum { EXPERTS = 16, CHOSEN = 8, COUNT = TOKENS * CHOSEN };
    static float logits[TOKENS * EXPERTS], wanted[COUNT * WIDTH], found[COUNT * WIDTH];
    int64_t chosen[COUNT];
    struct trace trace;
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        size_t row = 0;
        start(&trace);
        for (size_t i = 0; i < COUNT; i++)
            chosen[i] = (int64_t)((i / CHOSEN + i % CHOSEN * (1 + i / CHOSEN % 2)) % EXPERTS);
        for (size_t i = 0; i < TOKENS * EXPERTS; i++)
            logits[i] = (float)dice_number();
        for (size_t i = 0; i < COUNT; i++)
            logits[i / CHOSEN * EXPERTS + (size_t)chosen[i]] += 8;
        for (size_t expert = 0; expert < EXPERTS; expert++) {
            const size_t first = row;
            for (size_t i = 0; i < COUNT; i++)
                for (size_t k = 0; k < WIDTH && chosen[i] == (int64_t)expert; k++, row += k == WIDTH)
                    wanted[row * WIDTH + k] = before[i / CHOSEN * HIDDEN + k % HIDDEN];
            for (size_t i = first * WIDTH; i < row * WIDTH; i++)
                found[i] = wanted[turned ? (first + row - 1 - i / WIDTH) * WIDTH + i % WIDTH : i];
        }
        for (size_t i = 0; i < COUNT * WIDTH; i++)
            found[i] = i / WIDTH % 9 ? found[i] : (float)dice_number();
        trace_add(&trace, "layers.0.x", before, before, SHAPE(TOKENS, HIDDEN));
        trace_add(&trace, "layers.0.mlp.gate.logits", logits, logits, SHAPE(TOKENS, EXPERTS));
        trace_add_integers(&trace, "layers.0.mlp.gate.indices", chosen, chosen, TOKENS, CHOSEN);
        trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.permuted", wanted, found, SHAPE(COUNT, WIDTH)));
        assert_null(trace_cause(&trace, "router-gate"));
        trace_end(&trace);
    }
}

/* Lists of chosen experts keep no order, and neither does what gathers tokens: nobody took another expert, and all
 * tokens tell what is wrong behind them. Weights in such a list are another thing: each belongs to its expert. */
static void test_order_of_experts(void **state)
{
    enum { CHOSEN = 4, COUNT = TOKENS * CHOSEN };
    int64_t chosen[2][COUNT], order[2][COUNT];
    float weights[2][COUNT];
    struct trace trace;
    (void)state;
    start(&trace);
    for (size_t i = 0; i < COUNT; i++) {
        const size_t turned = i / CHOSEN * CHOSEN + (i + 1) % CHOSEN;
        chosen[0][i] = chosen[1][turned] = (int64_t)((i / CHOSEN + 3 * (i % CHOSEN)) % 16);
        weights[0][i] = weights[1][turned] = (float)dice_number();
        order[0][i] = (int64_t)i;
        order[1][i] = (int64_t)(COUNT - 1 - i);
    }
    for (size_t i = 0; i < TOTAL; i++)
        a[i] = b[i] = (float)dice_number();
    trace_add(&trace, "layers.0.x", before, before, SHAPE(TOKENS, HIDDEN));
    trace_add_integers(&trace, "layers.0.mlp.gate.indices", chosen[0], chosen[1], TOKENS, CHOSEN);
    trace_add_integers(&trace, "layers.0.mlp.experts.order", order[0], order[1], COUNT, 1);
    trace_diagnose(&trace,
                   trace_add(&trace, "layers.0.mlp.gate.weights", weights[0], weights[1], SHAPE(TOKENS, CHOSEN)));
    assert_null(trace_cause(&trace, "permuted"));
    for (size_t i = 0; i < TOTAL; i++)
        b[i] *= (float)(1 + i % WIDTH % 5);
    trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.output", a, b, SHAPE(TOKENS, WIDTH)));
    assert_first(&trace, "channel-scaled", "factor");
    trace_end(&trace);
}

/* y = W x + b, with the rows of W in another order: heads, or one further on. */
static void test_bias_stays(void **state)
{
    static const size_t heads[] = {2, 0, 1};
    float bias[WIDTH];
    struct trace trace;
    (void)state;
    for (int way = 0; way < 3; way++) {
        start(&trace);
        for (size_t i = 0; i < WIDTH; i++)
            bias[i] = (float)(4 * dice_number());
        for (size_t i = 0; i < TOTAL; i++)
            a[i] = (float)(dice_number() + dice_number());
        for (size_t i = 0; i < TOTAL; i++) {
            size_t column = i % WIDTH, from = heads[column / 16] * 16 + column % 16;
            from = way == 0 ? from : way == 1 ? (column + WIDTH - 1) % WIDTH : column;
            b[i] = a[i - column + from] + bias[column] + (way == 2 ? 1 : 0);
        }
        for (size_t i = 0; i < TOTAL; i++)
            a[i] += bias[i % WIDTH];
        diagnose(&trace, "k_proj");
        if (way == 0)
            assert_first(&trace, "permuted", "in the order 2, 0, 1, except for a constant added to each");
        else if (way == 1)
            assert_first(&trace, "shifted", "the weights are out of place, the bias is not");
        else
            assert_null(trace_cause(&trace, "permuted"));
        trace_end(&trace);
    }
}

/* The same of three to five tokens, by which no channel is known: an order that has a rule, and one that has none. */
static void test_bias_stays_in_few_tokens(void **state)
{
    enum { STEP, HALVES, ANY };
    struct trace trace;
    (void)state;
    for (int way = STEP; way <= ANY; way++)
        for (size_t tokens = 3; tokens <= 5; tokens += 2) {
            float bias[WIDTH];
            start(&trace);
            for (size_t i = 0; i < WIDTH; i++)
                bias[i] = (float)(2 * dice_number());
            for (size_t i = 0; i < tokens * WIDTH; i++)
                a[i] = (float)(dice_number() + dice_number());
            for (size_t i = 0; i < tokens * WIDTH; i++) {
                const size_t column = i % WIDTH, within = column % 16;
                const size_t from = way == STEP     ? (column + 1) % WIDTH
                                    : way == HALVES ? column - within + within % 2 * 8 + within / 2
                                                    : column * 11 % WIDTH;
                b[i] = (a[i - column + from] + bias[column]) * (float)(1 + 0.01 * dice_number());
            }
            for (size_t i = 0; i < tokens * WIDTH; i++)
                a[i] += bias[i % WIDTH];
            trace_diagnose(&trace, trace_add(&trace, "layers.0.self_attn.k_proj", a, b, SHAPE(tokens, WIDTH)));
            if (way == STEP)
                assert_first(&trace, "shifted", "1 further back, around the end, except for a constant");
            else if (way == HALVES)
                assert_first(&trace, "permuted", "interleaved (0,8,1,...) instead of in halves, except for a constant");
            else
                assert_null(trace_cause(&trace, "permuted"));
            trace_end(&trace);
        }
}

/* A pair that is looked at by itself comes without deltas, and may have no cause. */
static void test_without_deltas(void **state)
{
    enum { ROWS_ALONE = 64, WIDTH_ALONE = 48 };
    struct trace trace;
    struct ts_diagnosis diagnosis;
    struct ts_error error;
    float *right, *wrong;
    (void)state;
    trace_start(&trace);
    right = made_values(ROWS_ALONE * WIDTH_ALONE);
    wrong = made_values(ROWS_ALONE * WIDTH_ALONE);
    shake(right, wrong, ROWS_ALONE * WIDTH_ALONE, 1e-7);
    trace_add(&trace, "fc.weight", right, wrong, SHAPE(ROWS_ALONE, WIDTH_ALONE));
    assert_int_equal(ts_diagnose(trace.pairs, NULL, 1, 0, &diagnosis, &error), TS_OK);
    assert_int_equal(diagnosis.count, 0);
    ts_diagnosis_release(&diagnosis);
    trace_end(&trace);
    free(right);
    free(wrong);
}

/* Weights of one size of which signs are lost, off by as much as a byte that is read as unsigned. */
static void test_lost_signs_of_one_size(void **state)
{
    enum { ROWS_OF = 32, WIDTH_OF = 64 };
    struct trace trace;
    float *right, *wrong;
    (void)state;
    trace_start(&trace);
    right = made_values(ROWS_OF * WIDTH_OF);
    wrong = made_values(ROWS_OF * WIDTH_OF);
    for (size_t i = 0; i < (size_t)ROWS_OF * WIDTH_OF; i++) {
        right[i] = right[i] > 0.5f ? 0.03f : right[i] < -0.5f ? -0.03f : 0;
        wrong[i] = fabsf(right[i]);
    }
    trace_diagnose(&trace, trace_add(&trace, "layers.0.mlp.up_proj.weight", right, wrong, SHAPE(ROWS_OF, WIDTH_OF)));
    assert_null(trace_cause(&trace, "dtype-confusion"));
    trace_end(&trace);
    free(right);
    free(wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_function),
        cmocka_unit_test(test_function_is_silent),
        cmocka_unit_test(test_function_inside_experts),
        cmocka_unit_test(test_experts_moved),
        cmocka_unit_test(test_rows_of_several_experts),
        cmocka_unit_test(test_order_of_experts),
        cmocka_unit_test(test_bias_stays),
        cmocka_unit_test(test_bias_stays_in_few_tokens),
        cmocka_unit_test(test_function_on_top),
        cmocka_unit_test(test_other_sign),
        cmocka_unit_test(test_without_deltas),
        cmocka_unit_test(test_lost_signs_of_one_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
