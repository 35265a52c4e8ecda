/* Claims about values and memory, put to every element of tensors of which a case holds a few rows: types, grids, NaN,
 * leftovers, rows that stand elsewhere. What is counted is counted in all of it. */
#include "hidden_rows.h"

enum { ROWS = 1500, WIDTH = 64, TOTAL = ROWS * WIDTH, OUTPUTS = 40000 };

static float right[TOTAL], wrong[TOTAL];

static void fill_right(void)
{
    for (size_t i = 0; i < TOTAL; i++)
        right[i] = (float)(dice_number() + dice_number() + dice_number());
}

static bool is_hidden(const bool *hidden, size_t i)
{
    return hidden && hidden[i / WIDTH];
}

/* What stands where nobody looks at first: numbers of their own. */
static float other_number(size_t i)
{
    return (float)(1.5 * (double)right[(i * 7 + 13) % TOTAL] + 0.37);
}

static size_t add(struct trace *trace)
{
    return trace_add(trace, "layer.0.output", right, wrong, SHAPE(1, ROWS, WIDTH));
}

/* As a run of its own: nothing was learnt, and rows are tokens. */
static void test_counts(void **state)
{
    struct trace trace;
    size_t nans = 0, beyond = 0, zeros = 0, index;
    char words[128];
    (void)state;
    trace_start(&trace);
    fill_right();
    memcpy(wrong, right, sizeof wrong);
    for (size_t row = 3; row < ROWS; row += 4, nans += 2)
        wrong[row * WIDTH + row % 50] = wrong[row * WIDTH + 60] = NAN;
    trace_diagnose(&trace, add(&trace));
    snprintf(words, sizeof words, "%zu of %d elements are NaN, the first at token 3, channel 3;", nans, TOTAL);
    assert_first(&trace, "nan", words);
    assert_non_null(strstr(trace.diagnosis.causes[0].summary, "checked on all 1500 tokens"));
    assert_owned_up(&trace);
    trace_end(&trace);

    trace_start(&trace);
    fill_right();
    for (size_t i = 0; i < TOTAL; i++) {
        wrong[i] = right[i] > 1.25f ? 1.25f : right[i];
        beyond += right[i] > 1.25f;
    }
    trace_diagnose(&trace, add(&trace));
    snprintf(words, sizeof words, "%zu elements are clamped: nothing lies above 1.25;", beyond);
    assert_first(&trace, "clamped", words);
    assert_true(trace.diagnosis.causes[0].confidence > 0.99);
    trace_end(&trace);

    trace_start(&trace);
    fill_right();
    for (size_t i = 0; i < TOTAL; i++) {
        bool zero = i % WIDTH >= 48;
        wrong[i] = zero ? 0 : right[i];
        zeros += zero;
    }
    trace_diagnose(&trace, add(&trace));
    snprintf(words, sizeof words, "zero in channels 48 to 63 (%zu of %d elements)", zeros, TOTAL);
    assert_first(&trace, "zeros", words);
    trace_end(&trace);

    /* two tokens of a hundred are right: nearly all of it */
    trace_start(&trace);
    fill_right();
    for (size_t i = 0; i < TOTAL; i++)
        wrong[i] = i / WIDTH % 100 == 50 && i % WIDTH < 32 ? right[i] : 0;
    trace_diagnose(&trace, add(&trace));
    snprintf(words, sizeof words, "zero in scattered elements (%d of %d elements)", TOTAL - 15 * 32, TOTAL);
    assert_first(&trace, "zeros", words);
    trace_end(&trace);

    /* one flipped bit in each five hundred tokens */
    trace_start(&trace);
    fill_right();
    memcpy(wrong, right, sizeof wrong);
    for (size_t row = 40; row < ROWS; row += 500) {
        size_t at = row * WIDTH + 5 + row / 500;
        right[at] = 0.7f;
        wrong[at] = ts_float_from_bits(ts_float_bits(right[at]) ^ (uint32_t)1 << 26);
    }
    index = add(&trace);
    trace_diagnose(&trace, index);
    snprintf(words, sizeof words, "3 of %d elements account for 100 %% of the error: token 40, channel 5:", TOTAL);
    if (strcmp(trace.diagnosis.causes[0].id, "sparse") == 0) {
        assert_first(&trace, "sparse", words);
        assert_non_null(strstr(trace.diagnosis.causes[0].summary, "; token 1040, channel 7:"));
    } else {
        trace_print(&trace);
        fail();
    }
    trace_end(&trace);
}

/* One flipped bit of an exponent, beside rounding of which tokens that are not looked at have a hundred times more. */
static void test_flip_among_noise(void **state)
{
    const size_t at = 700 * WIDTH + 9;
    bool looked[ROWS] = {0};
    struct trace trace;
    (void)state;
    for (int round = 0; round < 2; round++) {
        trace_start(&trace);
        fill_right();
        for (size_t i = 0; i < TOTAL; i++)
            wrong[i] = right[i] + (float)((round && !looked[i / WIDTH] ? 1e-5 : 1e-7) * dice_number());
        right[at] = 4.04f;
        wrong[at] = ts_float_from_bits(ts_float_bits(right[at]) ^ (uint32_t)1 << 29);
        if (round)
            trace_diagnose(&trace, add(&trace));
        else
            (void)look_at_rows(&trace, add(&trace), looked);
        if (round) {
            assert_first(&trace, "sparse", "1 of 96000 elements accounts for 100 % of the error: token 700, channel 9");
            assert_non_null(strstr(trace.diagnosis.causes[0].summary, "(xor 0x20000000: bit 29)"));
        }
        trace_end(&trace);
    }
}

/* Grids of even steps: one for all, one in each block, one in each channel. */
static size_t build_one_grid(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t i = 0; i < TOTAL; i++)
        wrong[i] = is_hidden(hidden, i) ? right[i] + (float)(0.013 * dice_number())
                                        : (float)(nearbyint((double)right[i] / 0.027) * 0.027);
    return add(trace);
}

static size_t build_blocks(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t block = 0; block < TOTAL; block += 16) {
        double largest = 0, step;
        for (size_t i = block; i < block + 16; i++)
            largest = fmax(largest, fabs((double)right[i]));
        step = largest / 7;
        for (size_t i = block; i < block + 16; i++)
            wrong[i] = is_hidden(hidden, i) ? right[i] + (float)(0.5 * step * dice_number())
                                            : (float)(nearbyint((double)right[i] / step) * step);
    }
    return add(trace);
}

/* A parameter, of which a case holds a spread of rows. */
static size_t build_channels(struct trace *trace, const bool *hidden)
{
    size_t total = (size_t)OUTPUTS * WIDTH, index;
    float *a = malloc(total * sizeof *a), *b = malloc(total * sizeof *b);
    assert_true(a && b);
    for (size_t i = 0; i < total; i++) {
        double step = 0.03 + 0.0007 * (double)(i % WIDTH);
        a[i] = (float)(dice_number() + dice_number());
        b[i] = is_hidden(hidden, i) ? a[i] + (float)(0.5 * step * dice_number())
                                    : (float)(nearbyint((double)a[i] / step) * step);
    }
    index = trace_add(trace, "layer.0.proj.weight", a, b, SHAPE(OUTPUTS, WIDTH));
    free(a);
    free(b);
    return index;
}

/* e4m3 under a scale for each row. */
static size_t build_small_floats(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t row = 0; row < ROWS; row++) {
        double largest = 0;
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
            largest = fmax(largest, fabs((double)right[i]));
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            double scale = largest / 448, x = fabs((double)right[i]) / scale, spacing;
            int exponent;
            (void)frexp(fmax(x, 0x1p-6), &exponent);
            spacing = ldexp(1, exponent - 4);
            x = nearbyint(x / spacing) * spacing;
            wrong[i] = is_hidden(hidden, i) ? right[i] * (float)(1 + 0.05 * dice_number())
                                            : (float)copysign(x * scale, (double)right[i]);
        }
    }
    return add(trace);
}

static void test_grids(void **state)
{
    (void)state;
    expect_everywhere(&(struct hidden_plan){.id = "quantization",
                                            .words = "all values lie on one grid",
                                            .build = build_one_grid,
                                            .rows = ROWS,
                                            .unit = "tokens"});
    expect_everywhere(
        &(struct hidden_plan){.id = "quantization",
                              .words = "each block of 16 lie on a grid of their own: up to 15 levels (4 bits)",
                              .build = build_blocks,
                              .rows = ROWS,
                              .unit = "tokens"});
    expect_everywhere(&(struct hidden_plan){.id = "quantization",
                                            .words = "the values of each channel lie on a grid of their own",
                                            .build = build_channels,
                                            .rows = OUTPUTS,
                                            .unit = "rows"});
    expect_everywhere(&(struct hidden_plan){.id = "quantization",
                                            .words = "on the levels of e4m3 with a scale for each row",
                                            .build = build_small_floats,
                                            .rows = ROWS,
                                            .unit = "tokens"});
}

static size_t build_bits(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t i = 0; i < TOTAL; i++) {
        right[i] = to_bf16(right[i]);
        wrong[i] = ts_f16_to_float((uint16_t)(ts_float_bits(right[i]) >> 16));
    }
    for (size_t i = 0; i < TOTAL; i++)
        wrong[i] = is_hidden(hidden, i) ? other_number(i) : wrong[i];
    return add(trace);
}

/* Two of 16 bits as one of 32, in the first half of the tensor; anything in the second. */
static size_t build_widths(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t i = 0; i < TOTAL; i++)
        right[i] = to_bf16(right[i]);
    for (size_t i = 0; i < TOTAL; i++) {
        size_t from = 2 * i % TOTAL;
        wrong[i] =
            ts_float_from_bits((ts_float_bits(right[from + 1]) & 0xffff0000u) | ts_float_bits(right[from]) >> 16);
        wrong[i] = is_hidden(hidden, i) ? other_number(i) : wrong[i];
    }
    return add(trace);
}

static void test_bits(void **state)
{
    (void)state;
    expect_everywhere(&(struct hidden_plan){.id = "dtype-confusion",
                                            .words = "100 % of the elements are what you get when bf16 bits are read "
                                                     "as f16",
                                            .build = build_bits,
                                            .rows = ROWS,
                                            .unit = "tokens"});
    expect_everywhere(&(struct hidden_plan){.id = "dtype-confusion",
                                            .words = "100 % of the elements are what you get when pairs of bf16 are "
                                                     "read as f32",
                                            .build = build_widths,
                                            .rows = ROWS,
                                            .unit = "tokens"});
}

/* Two of three tokens repeat what the candidate holds before them. */
static size_t build_repeats(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t i = 0; i < TOTAL; i++)
        wrong[i] = i / WIDTH % 3 == 0 ? right[i] : is_hidden(hidden, i) ? other_number(i) : wrong[i - WIDTH];
    return add(trace);
}

/* Rows stand elsewhere: a source for each. */
static size_t build_from(struct trace *trace, const bool *hidden, const size_t *from)
{
    for (size_t i = 0; i < TOTAL; i++)
        wrong[i] = is_hidden(hidden, i) ? other_number(i) : right[from[i / WIDTH] * WIDTH + i % WIDTH];
    return add(trace);
}

static size_t from[ROWS];

static size_t build_shuffled(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t row = 0; row < ROWS; row++)
        from[row] = (row * 7 + 5) % ROWS;
    for (size_t row = 0; row + 1 < ROWS; row += 5) {
        size_t other = from[row];
        from[row] = from[row + 1];
        from[row + 1] = other;
    }
    return build_from(trace, hidden, from);
}

static size_t build_reversed(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t row = 0; row < ROWS; row++)
        from[row] = ROWS - 1 - row;
    return build_from(trace, hidden, from);
}

static size_t build_moved_blocks(struct trace *trace, const bool *hidden)
{
    static const size_t order[] = {2, 0, 1};
    fill_right();
    for (size_t row = 0; row < ROWS; row++)
        from[row] = order[row / 500] * 500 + row % 500;
    return build_from(trace, hidden, from);
}

/* Some tokens hold those of others, which are where they belong as well. */
static size_t build_copies(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t row = 0; row < ROWS; row++)
        from[row] = row % 4 == 1 ? (row * 12 + 400) % ROWS / 4 * 4 : row;
    for (size_t i = 0; i < TOTAL; i++)
        wrong[i] = from[i / WIDTH] == i / WIDTH ? right[i]
                   : is_hidden(hidden, i)       ? other_number(i)
                                                : right[from[i / WIDTH] * WIDTH + i % WIDTH];
    return add(trace);
}

static size_t build_pitch(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t i = 0; i < TOTAL; i++) {
        size_t at = i / WIDTH * (WIDTH - 4) + i % WIDTH;
        wrong[i] = is_hidden(hidden, i) ? other_number(i) : right[at];
    }
    return add(trace);
}

/* Rows are written further apart than they are read: what lies between them was never written. */
static size_t build_written(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t i = 0; i < TOTAL; i++) {
        size_t row = i / (WIDTH + 8), column = i % (WIDTH + 8);
        wrong[i] = column < WIDTH ? right[row * WIDTH + column] : 0;
        wrong[i] = is_hidden(hidden, i) ? other_number(i) : wrong[i];
    }
    return add(trace);
}

/* The candidate masks more than the reference does. */
static size_t build_masked(struct trace *trace, const bool *hidden)
{
    fill_right();
    for (size_t i = 0; i < TOTAL; i++) {
        size_t seen = i / WIDTH % WIDTH, column = i % WIDTH;
        wrong[i] = is_hidden(hidden, i) ? right[i] + 3 : column > seen / 2 ? -INFINITY : right[i];
        if (column > seen)
            right[i] = wrong[i] = -INFINITY;
    }
    return add(trace);
}

/* A weight that was not loaded. */
static size_t build_fresh(struct trace *trace, const bool *hidden)
{
    size_t total = (size_t)OUTPUTS * WIDTH, index;
    float *a = malloc(total * sizeof *a), *b = malloc(total * sizeof *b);
    assert_true(a && b);
    for (size_t i = 0; i < total; i++) {
        a[i] = (float)(dice_number() * dice_number());
        b[i] = (float)(dice_number() / 8);
        b[i] = is_hidden(hidden, i) ? 1.5f * a[i] + b[i] : b[i];
    }
    index = trace_add(trace, "layer.0.proj.weight", a, b, SHAPE(OUTPUTS, WIDTH));
    free(a);
    free(b);
    return index;
}

static void test_more(void **state)
{
    (void)state;
    expect_everywhere(&(struct hidden_plan){.id = "permuted",
                                            .words = "rows were written 72 elements apart but are read 64 apart",
                                            .build = build_written,
                                            .rows = ROWS,
                                            .unit = "tokens"});
    expect_everywhere(
        &(struct hidden_plan){.id = "mask",
                              .words = " entries that the reference does not mask are masked in the candidate",
                              .build = build_masked,
                              .rows = ROWS,
                              .unit = "tokens",
                              .least = 0.8});
    expect_everywhere(&(struct hidden_plan){.id = "unrelated",
                                            .words = "it is uniform between -1/sqrt(inputs) and 1/sqrt(inputs)",
                                            .build = build_fresh,
                                            .rows = OUTPUTS,
                                            .unit = "rows"});
}

static void test_rows(void **state)
{
    (void)state;
    expect_everywhere(&(struct hidden_plan){.id = "stale",
                                            .words = "1000 tokens repeat the token before them, first token 1",
                                            .build = build_repeats,
                                            .rows = ROWS,
                                            .unit = "tokens"});
    expect_everywhere(&(struct hidden_plan){.id = "permuted",
                                            .words = "1500 of 1500 tokens are out of place",
                                            .build = build_shuffled,
                                            .rows = ROWS,
                                            .unit = "tokens"});
    expect_everywhere(&(struct hidden_plan){.id = "permuted",
                                            .words = "tokens are in reverse order",
                                            .build = build_reversed,
                                            .rows = ROWS,
                                            .unit = "tokens"});
    expect_everywhere(&(struct hidden_plan){.id = "permuted",
                                            .words = "blocks of 500 tokens are in the order 2, 0, 1",
                                            .build = build_moved_blocks,
                                            .rows = ROWS,
                                            .unit = "tokens"});
    expect_everywhere(&(struct hidden_plan){
        .id = "rows", .words = "is a copy of", .build = build_copies, .rows = ROWS, .unit = "tokens"});
    expect_everywhere(&(struct hidden_plan){.id = "permuted",
                                            .words = "rows are 60 elements apart instead of 64",
                                            .build = build_pitch,
                                            .rows = ROWS,
                                            .unit = "tokens"});
}

/* Integers are a grid by themselves: that they differ is no quantization. */
static void test_integers(void **state)
{
    static int64_t a[TOTAL], b[TOTAL];
    struct trace trace;
    (void)state;
    for (int codes = 8; codes <= 200; codes += 96) {
        trace_start(&trace);
        for (size_t i = 0; i < TOTAL; i++) {
            a[i] = (int64_t)(dice() % (uint64_t)codes);
            b[i] = a[i] + (int64_t)(dice() % 3) - 1;
        }
        trace_add_integers(&trace, "tokens", a, b, ROWS, WIDTH);
        trace_diagnose(&trace, 0);
        if (trace_cause(&trace, "quantization")) {
            trace_print(&trace);
            fail_msg("integers are called quantized");
        }
        trace_end(&trace);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),   cmocka_unit_test(test_flip_among_noise),
        cmocka_unit_test(test_grids),    cmocka_unit_test(test_bits),
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_more),
        cmocka_unit_test(test_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
