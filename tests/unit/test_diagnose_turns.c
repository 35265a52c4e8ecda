/* Tables of rotary angles, norms with a bias, rolls of tokens that repeat, and steps left out under a mask. */
#include "made_trace.h"

enum { TOKENS = 20, SIZE = 16, HIDDEN = 32 };

struct turns {
    double theta, factor, height;
    int offset;
    bool bent;
};

/* Cosines, both halves alike. */
static void fill(const struct turns *turns, bool bf16, float *out)
{
    for (size_t row = 0; row < TOKENS; row++)
        for (size_t i = 0; i < SIZE; i++) {
            double f = pow(turns->theta, -(double)(i % (SIZE / 2)) / (SIZE / 2)) / turns->factor;
            f = turns->bent && f < 0.2 ? f / 8 : f;
            out[row * SIZE + i] = (float)(turns->height * cos(((double)row + turns->offset) * f));
            out[row * SIZE + i] = bf16 ? to_bf16(out[row * SIZE + i]) : out[row * SIZE + i];
        }
}

static void diagnose_turns(struct trace *trace, const struct turns *reference, const struct turns *candidate, bool bf16)
{
    float a[TOKENS * SIZE], b[TOKENS * SIZE], *x = NULL;
    trace_start(trace);
    x = made_values(TOKENS * HIDDEN);
    fill(reference, false, a);
    fill(candidate, bf16, b);
    trace_add(trace, "embed", x, x, SHAPE(1, TOKENS, HIDDEN));
    trace_diagnose(trace, trace_add(trace, "rotary.cos", a, b, SHAPE(1, TOKENS, SIZE)));
    free(x);
}

static void test_tables_of_angles(void **state)
{
    static const struct turns plain = {1e4, 1, 1, 0, false};
    static const struct {
        struct turns turns;
        bool bf16;
        const char *words;
    } cases[] = {
        {{1e6, 1, 1, 0, false}, false, "theta is 1000000 in the candidate, 10000 in the reference"},
        {{1e4, 1, 1, 1, false}, false, "positions are off by +1"},
        {{1e4, 4, 1, 0, false}, false, "positions are divided by 4 in the candidate, by 1 in the reference"},
        {{5e5, 1, 1, 3, false},
         true,
         "theta is 500000 in the candidate, 10000 in the reference; positions are off by +3"},
        {{1e4, 1, 1, 0, true}, false, "0.125 to 0.125 times the reference's"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trace trace;
        diagnose_turns(&trace, &plain, &cases[i].turns, cases[i].bf16);
        assert_first(&trace, "rotation", cases[i].words);
        trace_end(&trace);
    }
}

/* Few pairs in sixteen bits: one wave moves from token to token, and says nothing of the base. */
static void test_table_of_few_pairs(void **state)
{
    enum { ROWS = 48, FEW = 8 };
    float a[ROWS * FEW], b[ROWS * FEW], *x;
    struct trace trace;
    (void)state;
    for (size_t i = 0; i < ROWS * FEW; i++) {
        double place = (double)(i % (FEW / 2)) / (FEW / 2), row = (double)(i / FEW);
        a[i] = (float)cos(row * pow(1e4, -place));
        b[i] = to_bf16((float)cos(row * pow(5e5, -place)));
    }
    trace_start(&trace);
    x = made_values(ROWS * HIDDEN);
    trace_add(&trace, "embed", x, x, SHAPE(ROWS, HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "rotary.cos", a, b, SHAPE(ROWS, FEW)));
    assert_first(&trace, "rotation", "theta is 500000 in the candidate, 10000 in the reference");
    trace_end(&trace);
    free(x);
}

/* The same angles in bf16; and a damaged table is not said to be another one. */
static void test_tables_are_silent(void **state)
{
    static const struct turns plain = {1e4, 1, 1, 0, false};
    struct trace trace;
    float a[TOKENS * SIZE], b[TOKENS * SIZE], *x;
    (void)state;
    diagnose_turns(&trace, &plain, &plain, true);
    assert_null(trace_cause(&trace, "rotation"));
    trace_end(&trace);
    trace_start(&trace);
    x = made_values(TOKENS * HIDDEN);
    fill(&plain, false, a);
    memcpy(b, a, sizeof b);
    memset(b + 10 * SIZE, 0, 10 * SIZE * sizeof *b);
    trace_add(&trace, "embed", x, x, SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "rotary.cos", a, b, SHAPE(TOKENS, SIZE)));
    assert_first(&trace, "zeros", NULL);
    assert_null(trace_cause(&trace, "rotation"));
    trace_end(&trace);
    free(x);
}

enum norm_fault { SUM_OF_SQUARES, OVER_ONE_LESS, ROOT_MEAN_SQUARE };

static void layer_norm(const float *x, const float *weight, const float *bias, int fault, float *out)
{
    for (size_t row = 0; row < TOKENS; row++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < HIDDEN && fault != ROOT_MEAN_SQUARE; i++)
            mean += (double)x[row * HIDDEN + i] / HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++)
            square += pow((double)x[row * HIDDEN + i] - mean, 2);
        square /= fault == SUM_OF_SQUARES ? 1 : fault == OVER_ONE_LESS ? HIDDEN - 1 : HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++)
            out[row * HIDDEN + i] =
                (float)(((double)x[row * HIDDEN + i] - mean) / sqrt(square + 1e-5) * (double)weight[i] +
                        (fault == ROOT_MEAN_SQUARE ? 0 : (double)bias[i]));
    }
}

static void test_norms_with_a_bias(void **state)
{
    static const struct {
        const char *id, *words;
    } said[] = {{"scaled", "the sum of its squares"}, {"scaled", "n - 1"}, {"centering", "an RMSNorm"}};
    (void)state;
    for (int fault = 0; fault < 3; fault++) {
        struct trace trace;
        float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN], *x, *weight, *bias;
        trace_start(&trace);
        x = made_values(TOKENS * HIDDEN);
        weight = made_values(HIDDEN);
        bias = made_values(HIDDEN);
        for (size_t i = 0; i < TOKENS * HIDDEN; i++)
            x[i] += 0.5f;
        layer_norm(x, weight, bias, -1, a);
        layer_norm(x, weight, bias, fault, b);
        trace_add(&trace, "x", x, x, SHAPE(TOKENS, HIDDEN));
        trace_diagnose(&trace, trace_add(&trace, "norm", a, b, SHAPE(TOKENS, HIDDEN)));
        assert_first(&trace, said[fault].id, said[fault].words);
        trace_end(&trace);
        free(x);
        free(weight);
        free(bias);
    }
}

/* The weight of a norm that comes later in the trace, as when layers are counted from one. */
static void test_weight_of_a_later_norm(void **state)
{
    struct trace trace;
    float a[3][TOKENS * HIDDEN], b[TOKENS * HIDDEN], *x[3], *weight[3], none[HIDDEN] = {0};
    size_t first = 0;
    (void)state;
    trace_start(&trace);
    for (size_t i = 0; i < 3; i++) {
        x[i] = made_values(TOKENS * HIDDEN);
        weight[i] = made_values(HIDDEN);
        layer_norm(x[i], weight[i], none, -1, a[i]);
    }
    layer_norm(x[0], weight[2], none, -1, b);
    for (int i = 0; i < 3; i++) {
        size_t at;
        trace_add(&trace, made_name("layers.%d.input", i), x[i], x[i], SHAPE(TOKENS, HIDDEN));
        at = trace_add(&trace, made_name("layers.%d.norm", i), a[i], i ? a[i] : b, SHAPE(TOKENS, HIDDEN));
        first = i ? first : at;
    }
    trace_diagnose(&trace, first);
    assert_first(&trace, "channel-scaled", "w' is the weight of layers.2.norm");
    trace_end(&trace);
    for (size_t i = 0; i < 3; i++) {
        free(x[i]);
        free(weight[i]);
    }
}

/* Tokens that occur several times make more than one permutation of a roll. */
static void test_a_roll_of_repeated_tokens(void **state)
{
    static const size_t ids[8] = {0, 1, 2, 1, 0, 3, 1, 2};
    struct trace trace;
    float a[8 * HIDDEN], b[8 * HIDDEN], *table;
    (void)state;
    trace_start(&trace);
    table = made_values(4 * HIDDEN);
    for (size_t row = 0; row < 8; row++) {
        memcpy(a + row * HIDDEN, table + ids[row] * HIDDEN, HIDDEN * sizeof *a);
        memcpy(b + row * HIDDEN, table + ids[(row + 7) % 8] * HIDDEN, HIDDEN * sizeof *b);
    }
    trace_diagnose(&trace, trace_add(&trace, "embed", a, b, SHAPE(8, HIDDEN)));
    assert_first(&trace, "shifted", "shifted by 1");
    trace_end(&trace);
    free(table);
}

/* Neighbours turn in pairs, in heads that are folded into one axis: how many heads there are, how many numbers of each
 * turn and by which base shows all the same. */
static void turn_neighbours(const float *x, size_t numbers, double theta, float *out)
{
    enum { HEADS = 4, HEAD = 40 };
    memcpy(out, x, sizeof(float) * TOKENS * HEADS * HEAD);
    for (size_t head = 0; head < TOKENS * HEADS; head++)
        for (size_t i = 0; i < numbers; i += 2) {
            double angle = (double)(head / HEADS) * pow(theta, -(double)i / (double)numbers);
            size_t at = head * HEAD + i;
            out[at] = (float)((double)x[at] * cos(angle) - (double)x[at + 1] * sin(angle));
            out[at + 1] = (float)((double)x[at] * sin(angle) + (double)x[at + 1] * cos(angle));
        }
}

static void test_parts_of_heads_turn(void **state)
{
    enum { WIDTH = 160 };
    static const struct {
        size_t reference, candidate;
        double theta;
        const char *words;
    } cases[] = {
        {40, 40, 27825, "theta = 27825, which is the reference's theta = 10000"},
        {10, 10, 27825, "theta = 27825, the reference's theta = 10000 (10 rotated"},
        {40, 16, 1e4, "rotates 16 channels of each head, the reference 40 of 40"},
        {40, 30, 1e4, "rotates 30 channels of each head, the reference 40 of 40"},
        {30, 40, 1e4, "rotates 40 channels of each head, the reference 30 of 40"},
        {16, 30, 1e4, "rotates 30 channels of each head, the reference 16 of 40"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trace trace;
        float a[TOKENS * WIDTH], b[TOKENS * WIDTH], *x;
        trace_start(&trace);
        x = made_values(TOKENS * WIDTH);
        turn_neighbours(x, cases[i].reference, 1e4, a);
        turn_neighbours(x, cases[i].candidate, cases[i].theta, b);
        trace_add(&trace, "layer_0_attn_q", x, x, SHAPE(TOKENS, WIDTH));
        trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_q_rope", a, b, SHAPE(TOKENS, WIDTH)));
        assert_first(&trace, "rotation", cases[i].words);
        trace_end(&trace);
        free(x);
    }
}

/* Both sides were captured behind the rotary embedding, and nothing before it: the turn between them tells bases,
 * factors and positions. */
static void test_numbers_of_a_turn(void **state)
{
    static const struct {
        double theta[2], factor, positions;
        const char *words;
    } cases[] = {
        {{1e4, 5e5}, 1, 0, "the candidate's angles fit theta = 500000, the reference's theta = 10000"},
        {{1e6, 1e4}, 1, 0, "the candidate's angles fit theta = 10000, the reference's theta = 1e+06"},
        {{1e4, 1e4}, -1, 0, "rotates the other way: the sign of the angle (of the sine) is flipped (theta = 10000)"},
        {{5e5, 5e5}, 0, 0, "only the reference is rotated, with theta = 500000"},
        {{1e4, 1e4}, 0.125, 0, "every angle is 0.125 times the reference's: positions are scaled (theta = 10000)"},
        {{1e4, 1e4}, 1, 3, "positions are off by +3 (the angles fit theta = 10000)"},
        {{1e6, 1e6}, 1, -1, "positions are off by -1 (the angles fit theta = 1e+06)"},
    };
    enum { WIDTH = 4 * SIZE, MOST_ROWS = 700 };
    static const size_t sizes[] = {12, 40, MOST_ROWS};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases * 6; n++) {
        const size_t which = n / 6, rows = sizes[n % 3], count = rows * WIDTH;
        struct trace trace;
        float *x, *sides[2] = {malloc(count * sizeof(float)), malloc(count * sizeof(float))};
        assert_true(sides[0] && sides[1]);
        trace_start(&trace);
        x = made_values(count);
        for (size_t i = 0; i < count; i++)
            for (int side = 0; side < 2; side++) {
                size_t place = i % SIZE, pair = place % (SIZE / 2);
                size_t other = place < SIZE / 2 ? i + SIZE / 2 : i - SIZE / 2;
                double at = (double)(i / WIDTH) + (side ? cases[which].positions : 0);
                double angle = at * pow(cases[which].theta[side], -(double)pair / (SIZE / 2));
                angle *= side ? cases[which].factor : 1;
                sides[side][i] =
                    (float)((double)x[i] * cos(angle) + (place < SIZE / 2 ? -1 : 1) * (double)x[other] * sin(angle));
            }
        for (size_t i = 0; i < count && n % 6 > 2; i++)
            sides[1][i] = to_bf16(sides[1][i]);
        trace_diagnose(&trace, trace_add(&trace, "q_rope", sides[0], sides[1], SHAPE(rows, WIDTH)));
        assert_first(&trace, "rotation", cases[which].words);
        trace_end(&trace);
        free(x);
        free(sides[0]);
        free(sides[1]);
    }
}

/* Queries that were captured behind the rotary embedding on one side, before it on the other, with heads folded into
 * the channels and nothing else to tell how many there are. */
static void test_turned_on_one_side(void **state)
{
    enum { WIDTH = 8 * SIZE };
    (void)state;
    for (int n = 0; n < 4; n++) {
        size_t rows = n / 2 ? 24 : 13;
        struct trace trace;
        float *x, *a, *b;
        trace_start(&trace);
        x = made_values(rows * WIDTH);
        a = made_values(rows * WIDTH);
        b = made_values(rows * WIDTH);
        for (size_t i = 0; i < rows * WIDTH; i++) {
            size_t place = i % SIZE, pair = place % (SIZE / 2);
            double angle = (double)(i / WIDTH) * pow(1e4, -(double)pair / (SIZE / 2));
            size_t other = place < SIZE / 2 ? i + SIZE / 2 : i - SIZE / 2;
            b[i] = (float)((double)a[i] * cos(angle) + (place < SIZE / 2 ? -1 : 1) * (double)a[other] * sin(angle));
        }
        shake(b, b, rows * WIDTH, n % 2 ? 2e-3 : 1e-7);
        trace_add(&trace, "model.layers.1.input_layernorm", x, x, SHAPE(rows, WIDTH));
        trace_diagnose(&trace, trace_add(&trace, "model.layers.1.self_attn.q_proj", a, b, SHAPE(rows, WIDTH)));
        assert_first(&trace, "rotation", "only the candidate is rotated, with theta = 10000");
        trace_end(&trace);
        free(x);
        free(a);
        free(b);
    }
}

/* One constant for every row is one constant. */
static void test_one_offset_for_all(void **state)
{
    struct trace trace;
    float *a, b[TOKENS * HIDDEN];
    (void)state;
    trace_start(&trace);
    a = made_values(TOKENS * HIDDEN);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        b[i] = a[i] + 0.4f;
    trace_diagnose(&trace, trace_add(&trace, "x", a, b, SHAPE(TOKENS, HIDDEN)));
    assert_first(&trace, "offset", "0.4");
    assert_null(trace_cause(&trace, "centering"));
    trace_end(&trace);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_of_angles),          cmocka_unit_test(test_table_of_few_pairs),
        cmocka_unit_test(test_tables_are_silent),         cmocka_unit_test(test_norms_with_a_bias),
        cmocka_unit_test(test_a_roll_of_repeated_tokens), cmocka_unit_test(test_one_offset_for_all),
        cmocka_unit_test(test_numbers_of_a_turn),         cmocka_unit_test(test_turned_on_one_side),
        cmocka_unit_test(test_parts_of_heads_turn),       cmocka_unit_test(test_weight_of_a_later_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
