/* Claims about the order of values and about what a step was given, put to every row: of batches, of long sequences,
 * and of what lies before a norm. */
#include "hidden_rows.h"

enum { TOKENS = 320, HEADS = 4, SIZE = 16, WIDTH = HEADS * SIZE, TOTAL = TOKENS * WIDTH };

static float x[TOTAL], y[TOTAL], right[TOTAL], wrong[TOTAL];

static void fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(dice_number() + dice_number());
}

static bool is_hidden(const bool *hidden, size_t row)
{
    return hidden && hidden[row];
}

static double noise_at(size_t row, size_t i)
{
    return sin(0.37 * (double)(row * row % 9973) + 1.9 * (double)(i * i) + (double)(row * i));
}

/* A little of something else, so that the worst element stays where it is. */
static void damage(const bool *hidden)
{
    for (size_t i = 0; i < TOTAL; i++)
        if (is_hidden(hidden, i / WIDTH))
            wrong[i] = right[i] + (float)(0.4 * noise_at(i / WIDTH, i % WIDTH));
}

/* Batches. Inside the rows: numbers of each head interleaved. Between them: [heads, tokens, size] taken for [tokens,
 * heads, size]; or in no order that has a name. */
enum ordered { INSIDE, BETWEEN, NAMELESS };

static enum ordered ordered;
static size_t batch;

static size_t build_ordered(struct trace *trace, const bool *hidden)
{
    size_t length = TOKENS / batch;
    fill(x, TOTAL);
    fill(right, TOTAL);
    for (size_t i = 0; i < TOTAL; i++) {
        size_t row = i / WIDTH, first = row / length * length, within = i % SIZE, flat = i - first * WIDTH, from = i;
        if (ordered == INSIDE)
            from = i - within + within % 2 * (SIZE / 2) + within / 2;
        if (ordered == BETWEEN) {
            size_t token = flat / SIZE % length, head = flat / SIZE / length;
            from = (first + token) * WIDTH + head * SIZE + within;
        }
        if (ordered == NAMELESS)
            from = (first + ((row - first) * 27 + 11) % length) * WIDTH + i % WIDTH;
        wrong[i] = right[from];
    }
    damage(hidden);
    trace_add(trace, "layers.0.norm", x, x, SHAPE(batch, length, WIDTH));
    return trace_add(trace, "layers.0.output", right, wrong, SHAPE(batch, length, HEADS, SIZE));
}

static void test_orders(void **state)
{
    struct hidden_plan plan = {.rows = TOKENS, .unit = "tokens", .build = build_ordered, .id = "permuted"};
    (void)state;
    batch = 8;
    ordered = INSIDE;
    plan.words = "the same values in another order";
    expect_everywhere(&plan);
    ordered = BETWEEN;
    expect_everywhere(&plan);
    ordered = NAMELESS;
    plan.words = "tokens are out of place";
    expect_everywhere(&plan);
    batch = 4; /* of which not every token is at hand */
    expect_everywhere(&plan);
}

/* A swap that leaves an eighth of all rows wrong is no surer than that. */
static void test_partly(void **state)
{
    enum { ROWS = 1500 };
    static float a[ROWS * WIDTH], b[ROWS * WIDTH];
    bool looked[ROWS] = {false};
    struct trace trace;
    const struct ts_cause *cause;
    size_t index;
    (void)state;
    for (int pass = 0; pass < 3; pass++) { /* with everything, then without a part of what nobody looks at */
        trace_start(&trace);
        fill(a, ROWS * WIDTH);
        for (size_t i = 0; i < ROWS * WIDTH; i++) {
            size_t within = i % SIZE;
            bool other = pass && i / WIDTH % 8 == 1 && !looked[i / WIDTH];
            b[i] = other ? (float)(0.8 * noise_at(i / WIDTH, i % WIDTH))
                         : a[i - within + within % 2 * (SIZE / 2) + within / 2];
        }
        index = trace_add(&trace, "layers.0.output", a, b, SHAPE(1, ROWS, WIDTH));
        look_at_rows(&trace, index, looked);
        trace_diagnose(&trace, index);
        cause = trace_cause(&trace, "permuted");
        assert_non_null(cause);
        if (pass ? cause->confidence > 0.9 : cause->confidence < 0.99)
            fail_msg("%.3f %s", cause->confidence, cause->summary);
        trace_end(&trace);
    }
}

static void turn_row(const float *from, size_t row, bool mixed, float *out)
{
    for (size_t head = 0; head < HEADS; head++)
        for (size_t i = 0; i < SIZE / 2; i++) {
            double angle = (double)row * pow(1e4, -2.0 * (double)i / SIZE), c = cos(angle), s = sin(angle);
            size_t p = head * SIZE + i, q = p + SIZE / 2;
            double a = (double)from[mixed ? i * HEADS + head : p];
            double b = (double)from[mixed ? (i + SIZE / 2) * HEADS + head : q];
            out[p] = (float)(a * c - b * s);
            out[q] = (float)(a * s + b * c);
        }
}

static bool mixed;

/* A rotation of another tensor, or of numbers in another order. */
static size_t build_turned(struct trace *trace, const bool *hidden)
{
    fill(x, TOTAL);
    fill(y, TOTAL);
    for (size_t row = 0; row < TOKENS; row++) {
        turn_row(x + row * WIDTH, row, false, right + row * WIDTH);
        turn_row((mixed ? x : y) + row * WIDTH, row, mixed, wrong + row * WIDTH);
    }
    damage(hidden);
    trace_add(trace, "layers.0.attn.k_norm", y, y, SHAPE(TOKENS, HEADS, SIZE));
    trace_add(trace, "layers.0.attn.q_norm", x, x, SHAPE(TOKENS, HEADS, SIZE));
    return trace_add(trace, "layers.0.attn.q_rope", right, wrong, SHAPE(TOKENS, HEADS, SIZE));
}

static void test_turned(void **state)
{
    struct hidden_plan plan = {.rows = TOKENS, .unit = "tokens", .build = build_turned};
    (void)state;
    mixed = false;
    plan.id = "wrong-input";
    plan.words = "wrong tensor: layers.0.attn.k_norm instead of layers.0.attn.q_norm";
    expect_everywhere(&plan);
    mixed = true;
    plan.id = "permuted";
    plan.words = "the candidate's rotation gets the values of layers.0.attn.q_norm in another order";
    expect_everywhere(&plan);
}

/* What a norm is given has some channels too large: its result is wrong everywhere. */
static size_t build_before(struct trace *trace, const bool *hidden)
{
    fill(x, TOTAL);
    for (size_t row = 0; row < TOKENS; row++) {
        double sums[2] = {0, 0};
        for (size_t i = 0; i < WIDTH; i++) {
            double value = (double)x[row * WIDTH + i], times = i % 8 < 3 ? 4 : 1;
            sums[0] += value * value / WIDTH;
            sums[1] += value * value * times * times / WIDTH;
        }
        for (size_t i = 0; i < WIDTH; i++) {
            double value = (double)x[row * WIDTH + i] * (0.5 + (double)(i % 7) / 4);
            right[row * WIDTH + i] = (float)(value / sqrt(sums[0] + 1e-6));
            wrong[row * WIDTH + i] = (float)(value * (i % 8 < 3 ? 4 : 1) / sqrt(sums[1] + 1e-6));
        }
    }
    damage(hidden);
    trace_add(trace, "layers.0.residual", x, x, SHAPE(1, TOKENS, WIDTH));
    return trace_add(trace, "layers.0.norm", right, wrong, SHAPE(1, TOKENS, WIDTH));
}

static void test_before(void **state)
{
    struct hidden_plan plan = {.rows = TOKENS, .unit = "tokens", .build = build_before};
    (void)state;
    plan.id = "channel-scaled";
    plan.words = "in the input of the norm";
    plan.in_part = true;
    expect_everywhere(&plan);
}

/* Probabilities of a batch that sum to one over the queries. */
static size_t build_over_queries(struct trace *trace, const bool *hidden)
{
    enum { SEQUENCES = 8, LENGTH = TOKENS / SEQUENCES, ALL = SEQUENCES * HEADS * LENGTH * LENGTH };
    static float scores[ALL], made[2][ALL];
    fill(scores, ALL);
    for (size_t head = 0; head < SEQUENCES * HEADS; head++) {
        const float *own = scores + head * LENGTH * LENGTH;
        for (size_t row = 0; row < LENGTH; row++)
            for (size_t key = 0; key < LENGTH; key++) {
                double sums[2] = {0, 0}, value = exp((double)own[row * LENGTH + key]);
                size_t at = head * LENGTH * LENGTH + row * LENGTH + key, token = head / HEADS * LENGTH + row;
                for (size_t other = 0; other < LENGTH; other++) {
                    sums[0] += exp((double)own[row * LENGTH + other]);
                    sums[1] += exp((double)own[other * LENGTH + key]);
                }
                made[0][at] = (float)(value / sums[0]);
                made[1][at] =
                    is_hidden(hidden, token) ? (float)(0.9 * value / sums[0] + 0.1 / LENGTH) : (float)(value / sums[1]);
            }
    }
    fill(x, TOTAL);
    trace_add(trace, "layers.0.norm", x, x, SHAPE(SEQUENCES, LENGTH, WIDTH));
    trace_add(trace, "layers.0.attn.scores", scores, scores, SHAPE(SEQUENCES, HEADS, LENGTH, LENGTH));
    return trace_add(trace, "layers.0.attn.probs", made[0], made[1], SHAPE(SEQUENCES, HEADS, LENGTH, LENGTH));
}

static void test_over_queries(void **state)
{
    struct hidden_plan plan = {.rows = TOKENS, .unit = "tokens", .build = build_over_queries, .id = "softmax"};
    (void)state;
    plan.words = "softmax runs over the queries instead of the keys";
    expect_everywhere(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders), cmocka_unit_test(test_partly),       cmocka_unit_test(test_turned),
        cmocka_unit_test(test_before), cmocka_unit_test(test_over_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
