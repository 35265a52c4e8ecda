/* Expectations: the language, what is measured, and the verdicts. */
#include "made_bundle.h"
#include "scratch.h"

#include <math.h>

#include "check/expect.h"

struct held {
    struct ts_expect expect;
    struct ts_expect_result results[64];
    struct ts_arena arena;
};

static void hold(const struct ts_bundle *bundle, const char *text, struct held *held)
{
    struct ts_pool *pool = ts_pool_new(2);
    struct ts_error error;
    ts_arena_init(&held->arena, (size_t)1 << 20);
    if (ts_expect_parse(text, strlen(text), &held->expect, &error) != TS_OK)
        fail_msg("%s", error.message);
    assert_true(held->expect.count <= 64);
    if (ts_expect_run(pool, bundle, &held->expect, scratch, held->results, &held->arena, NULL, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_pool_free(pool);
}

static void let_go(struct held *held)
{
    ts_expect_release(&held->expect);
    ts_arena_release(&held->arena);
}

/* The verdicts of all expectations of the text, as letters: p, f, u. */
static void expect_verdicts(const struct ts_bundle *bundle, const char *text, const char *letters)
{
    struct held held;
    char found[65] = "";
    hold(bundle, text, &held);
    for (size_t i = 0; i < held.expect.count; i++)
        found[i] = "pfu"[held.results[i].verdict];
    if (strcmp(found, letters) != 0)
        fail_msg("%s: %s, expected %s", text, found, letters);
    let_go(&held);
}

static void expect_error(const char *text, const char *message)
{
    struct ts_expect expect;
    struct ts_error error;
    enum ts_status status = ts_expect_parse(text, strlen(text), &expect, &error);
    if (status == TS_OK || !strstr(error.message, message))
        fail_msg("%s: \"%s\", expected \"%s\"", text, status == TS_OK ? "no error" : error.message, message);
}

static void patterns_fit_names(void **state)
{
    (void)state;
    assert_true(ts_expect_fits("a.b", "a.b") && !ts_expect_fits("a.b", "a.c") && !ts_expect_fits("a", "ab"));
    assert_true(ts_expect_fits("*", "") && ts_expect_fits("*", "any.thing") && ts_expect_fits("**", "x"));
    assert_true(ts_expect_fits("layers.*.q", "layers.0.q") && ts_expect_fits("layers.*.q", "layers.0.attn.q"));
    assert_true(!ts_expect_fits("layers.*.q", "layers.q") && !ts_expect_fits("layers.*.q", "layers.0.qq"));
    assert_true(ts_expect_fits("*a*b", "xaxbxb") && !ts_expect_fits("*a*b", "xbxa"));
    assert_true(ts_expect_fits("l?.x", "l3.x") && !ts_expect_fits("l?.x", "l33.x") && !ts_expect_fits("l?", "l"));
    assert_true(ts_expect_fits("l[0-3]", "l2") && !ts_expect_fits("l[0-3]", "l4") && ts_expect_fits("l[!0-3]", "l4"));
    assert_true(ts_expect_fits("[]]", "]") && ts_expect_fits("a[", "a[") && ts_expect_fits("[ab", "[ab"));
    /* no more than the product of the lengths */
    assert_false(ts_expect_fits("a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b",
                                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static void the_language_is_read(void **state)
{
    static const char text[] = "# a comment\n"
                               "\n"
                               "  x*  shape [1, 4,*,*]  range [-1e2,inf]  finite  # behind it\r\n"
                               "quant: \"a \\\"b\\x41\\\\\" norm 123 ±5%  mean -1+-0.5 max<3 min >= -2 optional\n"
                               "y relative-error-to \"my ref.safetensors\" z.w <= 0.02 shape[] dtype f32,bf16";
    struct ts_expect expect;
    struct ts_error error;
    (void)state;
    assert_int_equal(ts_expect_parse(text, strlen(text), &expect, &error), TS_OK);
    assert_int_equal(expect.count, 10);
    assert_string_equal(expect.list[0].pattern, "x*");
    assert_int_equal(expect.list[0].line, 3);
    assert_int_equal(expect.list[0].column, 7);
    assert_int_equal(expect.list[0].rank, 4);
    assert_true(expect.list[0].shape[1] == 4 && expect.list[0].shape[2] == TS_ANY_SIZE);
    assert_string_equal(expect.list[0].text, "shape [1, 4,*,*]");
    assert_true(expect.list[1].bounds.low == -100 && isinf(expect.list[1].bounds.high));
    assert_int_equal(expect.list[2].property, TS_PROPERTY_FINITE);
    assert_string_equal(expect.list[3].label, "quant");
    assert_string_equal(expect.list[3].pattern, "a \"bA\\");
    assert_true(expect.list[3].exact && expect.list[3].optional && expect.list[6].optional);
    assert_true(fabs(expect.list[3].bounds.low - 116.85) < 1e-9 && fabs(expect.list[3].bounds.high - 129.15) < 1e-9);
    assert_true(expect.list[4].bounds.low == -1.5 && expect.list[4].bounds.high == -0.5);
    assert_true(expect.list[5].bounds.high == 3 && expect.list[5].bounds.high_open);
    assert_true(expect.list[6].bounds.low == -2 && !expect.list[6].bounds.low_open);
    assert_string_equal(expect.list[7].file, "my ref.safetensors");
    assert_string_equal(expect.list[7].tensor, "z.w");
    assert_true(expect.list[7].bounds.high == 0.02 && !expect.list[7].bounds.high_open);
    assert_int_equal(expect.list[8].rank, 0);
    assert_string_equal(expect.list[9].types, "f32,bf16");
    ts_expect_release(&expect);
}

static void errors_name_line_and_column(void **state)
{
    (void)state;
    expect_error("", "not one expectation");
    expect_error("# nothing\n", "not one expectation");
    expect_error("x\n", "line 1, column 2: expected a property behind \"x\"");
    expect_error("\n\n  x finit\n", "line 3, column 5: \"finit\" is not a property; these are: shape, dtype");
    expect_error("x range\n", "line 1, column 8: expected [LOW,HIGH]");
    expect_error("x range [1\n", "line 1, column 11: expected a comma");
    expect_error("x range [1,\n", "line 1, column 12: expected a number");
    expect_error("x range [1,2\n", "line 1, column 13: expected ]");
    expect_error("x range [2,1]\n", "line 1, column 9: the lower bound 2 is above the upper one, 1");
    expect_error("x range [1,nan]\n", "expected a number");
    expect_error("x range <3\n", "range takes [LOW,HIGH]");
    expect_error("x range [1,2]finite\n", "line 1, column 14: expected a blank behind \"range [1,2]\"");
    expect_error("x norm 1 ±-2\n", "less than nothing");
    expect_error("x shape 3\n", "line 1, column 9: expected a shape");
    expect_error("x shape [3;4]\n", "expected a comma or ]");
    expect_error("x shape [a]\n", "expected a size");
    expect_error("x shape [99999999999999999999]\n", "past 2^63");
    expect_error("x relative-error-to\n", "expected a file");
    expect_error("x relative-error-to f > 1\n", "expected < and the largest error");
    expect_error("x dtype\n", "expected an element type");
    expect_error("\"x finite\n", "line 1, column 1: a name in quotes that does not end");
    expect_error("\"\\q\" finite\n", "line 1, column 2: a backslash");
    expect_error("\"\\x00\" finite\n", "not 00");
    expect_error("label:\n", "expected a tensor's name or a pattern behind \"label:\"");
    expect_error("x optional\n", "expected a property beside \"optional\"");
}

static void values_are_measured(void **state)
{
    static const float probabilities[] = {1, 0, 0, 0, 0.5f, 0.5f, 0, 0, 0.25f, 0.25f, 0.25f, 0.25f},
                       mixed[] = {3, -4, 0, 0, 100, 0.5f, -2, 50}, spoilt[] = {1, NAN, -INFINITY, 2};
    struct ts_bundle *bundle = ts_bundle_new("made");
    struct held held;
    (void)state;
    made_add(bundle, "l.0.probs", probabilities, SHAPE(1, 3, 4));
    made_add(bundle, "l.1.probs", probabilities, SHAPE(3, 4));
    made_add(bundle, "mixed", mixed, SHAPE(2, 4));
    made_add(bundle, "spoilt", spoilt, SHAPE(4));
    made_add(bundle, "empty", spoilt, SHAPE(0, 4));
    expect_verdicts(bundle, "l.*.probs range [0,1] finite rows-sum 1 ±1e-6 entropy [0.99,1] zeros 0.41666 ±0.001",
                    "ppppp");
    expect_verdicts(bundle, "l.*.probs shape [3,4]\nl.1.probs shape [*,4] shape [3,*] shape [3]", "fppf");
    expect_verdicts(
        bundle,
        "l.*.probs tensors 2 tensors > 2\nnone.* tensors 0 finite\nnone tensors 0 optional\nnone norm 1 optional",
        "pfpfpp");
    /* of 3, -4, 0, 0 and of 100, 0.5, -2, 50: zeros twice, and 0.5 against 100 */
    expect_verdicts(bundle, "mixed sparsity 0.375 ±1e-9 zeros 0.25 sum 147.5 ±1e-9 mean 18.4375 min -4 max 100",
                    "pppppp");
    expect_verdicts(bundle,
                    "mixed norm 112 ±1 rms 39.6 ±0.1 std 34.99 ±0.1 max < 100 max <= 100 min > -4 range [-3,100]",
                    "pppfpff");
    expect_verdicts(bundle, "mixed rows-sum [-1,148.5] rows-sum [-0.5,200] rows-sum [-1,100] dtype f32 dtype f16,bf16",
                    "pffpf");
    expect_verdicts(bundle, "spoilt finite range [1,2] rows-sum [-1,1] mean 1.5", "fpfp");
    expect_verdicts(bundle, "empty finite shape [0,4] norm 0 rows-sum 1", "ppuu");

    hold(bundle, "l.*.probs max < 0.9 entropy [0,0.5]\nspoilt finite\n\"l.*.probs\" finite", &held);
    assert_int_equal(held.results[0].tensors, 2);
    assert_int_equal(held.results[0].failed, 2);
    assert_string_equal(held.results[0].first->name, "l.0.probs");
    assert_true(held.results[0].measured == 1 && held.results[0].low == 1 && held.results[0].high == 1);
    assert_true(fabs(held.results[1].measured - 1) < 1e-12); /* rows with one entry do not count */
    assert_string_equal(held.results[2].why, "1 NaN, 1 inf, the first at [1]");
    assert_int_equal(held.results[3].verdict, TS_EXPECTED_FAIL); /* in quotes it is no pattern */
    assert_string_equal(held.results[3].why, "no tensor fits");
    let_go(&held);
    bundle->tensors[2]->sampled = true;
    expect_verdicts(bundle, "mixed range [-5,101] range [-3,101] norm 112 ±1 shape [2,4]", "ufup");
    ts_bundle_free(bundle);
}

/* Rows that are longer than a piece are walked twice. */
static void long_rows_are_measured(void **state)
{
    const size_t width = 200001;
    float *values = calloc(2 * width, sizeof *values);
    struct ts_bundle *bundle = ts_bundle_new("made");
    (void)state;
    for (size_t i = 0; i < width; i++)
        values[width + i] = 1;
    values[width - 1] = 1000;
    values[3] = 9;
    values[4] = 11;
    made_add(bundle, "x", values, SHAPE(2, width));
    expect_verdicts(bundle, "x rows-sum [1020,200001] rows-sum [1021,200001] rows-sum [1020,200000]", "pff");
    /* all of the first row but two */
    expect_verdicts(bundle, "x sparsity [0.499994,0.499996]", "p");
    ts_bundle_free(bundle);
    free(values);
}

static void write_safetensors(const char *name, const char *header, const void *data, size_t size)
{
    char path[4200], count[8];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned i = 0; i < 8; i++)
        count[i] = (char)(strlen(header) >> 8 * i);
    fwrite(count, 1, 8, file);
    fputs(header, file);
    fwrite(data, 1, size, file);
    assert_int_equal(fclose(file), 0);
}

static void errors_against_a_reference(void **state)
{
    static const float ours[] = {3, 4.1f, 0, 0}, theirs[] = {3, 4, 0, 0};
    struct ts_bundle *bundle = ts_bundle_new("made");
    struct held held;
    (void)state;
    made_add(bundle, "w", ours, SHAPE(1, 4));
    made_add(bundle, "v", ours, SHAPE(2, 2));
    made_add(bundle, "u", ours, SHAPE(4));
    write_safetensors("ref.safetensors", "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", theirs,
                      16);
    hold(bundle,
         "w relative-error-to ref.safetensors < 0.03\nw relative-error-to ref.safetensors < 0.01\n"
         "v relative-error-to ref.safetensors < 1\nv relative-error-to ref.safetensors w < 1\n"
         "u relative-error-to ref.safetensors w < 0.03",
         &held);
    assert_true(fabs(held.results[0].low - 0.02) < 1e-6); /* 0.1 of 5 */
    assert_int_equal(held.results[0].verdict, TS_EXPECTED_PASS);
    assert_int_equal(held.results[1].verdict, TS_EXPECTED_FAIL);
    assert_string_equal(held.results[2].why, "ref.safetensors has no tensor \"v\"");
    assert_string_equal(held.results[3].why, "is of another shape than the reference");
    assert_int_equal(held.results[4].verdict, TS_EXPECTED_PASS);
    let_go(&held);
    ts_bundle_free(bundle);
}

/* What was recorded holds for what it was recorded from, at any margin, and fails for what is broken. */
static void records_hold(void **state)
{
    static const double margins[] = {0, 0.01, 0.1, 1};
    static const float probabilities[] = {0.9f, 0.1f, 0.3f, 0.7f}, odd[] = {1e-42f, -3e38f, 3e38f, 0},
                       spoilt[] = {NAN, 1, 2, 3}, zeros[] = {0, 0, 0, 0};
    struct ts_bundle *bundle = ts_bundle_new("made");
    struct ts_pool *pool = ts_pool_new(1);
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        float *values = made_values(60);
        for (unsigned k = 0; k < 60; k++)
            values[k] *= powf(10, (float)i - 10);
        made_add(bundle, made_name("random \"%d\" \\ [x] # \t*", (int)i), values, SHAPE(3, 20));
        free(values);
    }
    made_add(bundle, "probs", probabilities, SHAPE(2, 2));
    made_add(bundle, "odd", odd, SHAPE(4));
    made_add(bundle, "spoilt", spoilt, SHAPE(4));
    made_add(bundle, "zeros", zeros, SHAPE(4));
    made_add(bundle, "empty", zeros, SHAPE(0));
    for (size_t i = 0; i < sizeof margins / sizeof *margins; i++) {
        struct ts_expect_result results[256];
        struct ts_expect expect;
        struct ts_buffer text;
        struct ts_arena arena;
        struct ts_error error;
        ts_buffer_init(&text, (size_t)1 << 20);
        ts_arena_init(&arena, (size_t)1 << 20);
        assert_int_equal(ts_expect_record(pool, bundle, margins[i], &text, NULL, &error), TS_OK);
        if (ts_expect_parse(text.data, text.size, &expect, &error) != TS_OK)
            fail_msg("%s", error.message);
        assert_non_null(strstr(text.data, "\"probs\"  shape [2,2]  finite  range [0,1]  rows-sum 1 ±0.01  entropy ["));
        assert_non_null(strstr(text.data, "\"spoilt\"  shape [4]  range ["));
        assert_true(expect.count > 80 && expect.count <= 256);
        assert_int_equal(ts_expect_run(pool, bundle, &expect, NULL, results, &arena, NULL, &error), TS_OK);
        for (size_t k = 0; k < expect.count; k++)
            if (results[k].verdict != TS_EXPECTED_PASS)
                fail_msg("margin %g: %s %s: %.17g", margins[i], expect.list[k].pattern, expect.list[k].text,
                         results[k].measured);
        ts_expect_release(&expect);
        ts_arena_release(&arena);
        ts_buffer_release(&text);
    }
    ts_pool_free(pool);
    ts_bundle_free(bundle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_fit_names),
        cmocka_unit_test(the_language_is_read),
        cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(values_are_measured),
        cmocka_unit_test(long_rows_are_measured),
        cmocka_unit_test(errors_against_a_reference),
        cmocka_unit_test(records_hold),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
