/* The golden samples come from tests/golden/text/make.py, whose values Python printed and kept. */
#include <math.h>

#include "opened.h"

static const struct ts_reader *const reader = &ts_reader_json_dump;

static const struct ts_tensor *tensor_of(const struct opened *opened, const char *name)
{
    const struct ts_tensor *tensor = ts_bundle_tensor(opened->bundle, name);
    if (!tensor)
        print_error("no tensor \"%s\"\n", name);
    assert_non_null(tensor);
    return tensor;
}

/* Keys in lexicographic order, 0 1 10 11 2: the layers come out as they are computed. */
static void test_golden_order(void **state)
{
    struct opened opened;
    (void)state;
    open_golden(&opened, reader, "g.json");
    assert_int_equal(opened.bid, 24);
    assert_int_equal(opened.bundle->count, 13);
    assert_string_equal(opened.bundle->tensors[0]->name, "input_logits");
    assert_string_equal(opened.bundle->tensors[3]->name, "layer_2_rmsnorm_output");
    assert_string_equal(opened.bundle->tensors[12]->name, "layer_11_rmsnorm_output");
    assert_string_equal(opened.bundle->order, "natural order of names");
    for (size_t i = 0; i < 13; i++) {
        assert_shape(opened.bundle->tensors[i], "[64]");
        assert_int_equal(opened.bundle->tensors[i]->type, TS_F64);
        assert_false(opened.bundle->tensors[i]->sampled);
    }
    assert_golden_values(&opened, "g.json");
    assert_int_equal(opened.bundle->finding_count, 0);
    close_opened(&opened);
}

static void test_golden_cut(void **state)
{
    struct opened opened;
    const struct ts_tensor *cut;
    (void)state;
    open_golden(&opened, reader, "g_cut.json");
    assert_int_equal(opened.bid, 24);
    assert_int_equal(opened.bundle->count, 9);
    cut = tensor_of(&opened, "layer_5_rmsnorm_output");
    assert_true(cut->sampled);
    assert_shape(cut, "[20]");
    assert_attribute(cut, "sample", "first 20 of an unknown number");
    assert_golden_values(&opened, "g_cut.json");
    assert_int_equal(opened.bundle->finding_count, 1);
    assert_true(has_finding(&opened, "the JSON ends at byte 11207, after 20 of its values"));
    assert_string_equal(opened.bundle->findings[0].tensor, "layer_5_rmsnorm_output");
    close_opened(&opened);
}

static void test_file_order(void **state)
{
    struct opened opened;
    (void)state;
    open_text(&opened, reader, "{\"embed\": [1, 2], \"b10\": [3], \"b9\": [4], \"a\": 5}");
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 4);
    assert_string_equal(opened.bundle->tensors[0]->name, "embed");
    assert_string_equal(opened.bundle->tensors[1]->name, "b10");
    assert_string_equal(opened.bundle->tensors[3]->name, "a");
    assert_int_equal(opened.bundle->tensors[3]->rank, 0);
    assert_int_equal(opened.bundle->tensors[3]->type, TS_I64);
    close_opened(&opened);
}

static void test_shapes_and_types(void **state)
{
    static const double counts[] = {1, 2, 3, 4, 5, 6};
    static const double special[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, (double)NAN, (double)NAN, 0.5};
    struct opened opened;
    (void)state;
    open_text(
        &opened, reader,
        "\xef\xbb\xbf{\"nested\": [[1, 2, 3], [4, 5, 6]], \"special\": [NaN, Infinity, -Infinity, \"nan\", null, 0.5],"
        " \"mask\": [[true], [false]], \"empty\": [[], []], \"prompt\": \"hello\", \"words\": [\"a\", \"b\"],"
        " \"described\": {\"data\": [1, 2, 3, 4, 5, 6], \"shape\": [3, 2], \"dtype\": \"float32\"},"
        " \"ragged\": [[1, 2], [3]], \"mixed\": [1, true], \"group\": {\"q\": [1.5], \"k\": {\"v\": [2]}},"
        " \"loss\": 0.25}");
    assert_int_equal(opened.status, TS_OK);
    assert_shape(tensor_of(&opened, "nested"), "[2,3]");
    assert_int_equal(tensor_of(&opened, "nested")->type, TS_I64);
    assert_values(tensor_of(&opened, "nested"), counts, 6);
    assert_values(tensor_of(&opened, "special"), special, 6);
    assert_true(has_finding(&opened, "1 of its values are null: read as nan"));
    assert_int_equal(tensor_of(&opened, "mask")->type, TS_BOOL);
    assert_shape(tensor_of(&opened, "mask"), "[2,1]");
    assert_shape(tensor_of(&opened, "empty"), "[2,0]");
    assert_shape(tensor_of(&opened, "described"), "[3,2]");
    assert_int_equal(tensor_of(&opened, "described")->type, TS_F32);
    assert_values(tensor_of(&opened, "described"), counts, 6);
    assert_attribute(tensor_of(&opened, "described"), "dtype", "float32");
    assert_shape(tensor_of(&opened, "group.q"), "[1]");
    assert_shape(tensor_of(&opened, "group.k.v"), "[1]");
    assert_shape(tensor_of(&opened, "loss"), "[]");
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "prompt"), "hello");
    assert_true(has_skip(&opened, "sample.txt:ragged", "its lists differ in length"));
    assert_true(has_skip(&opened, "sample.txt:mixed", "true and false stand among its numbers"));
    assert_true(has_skip(&opened, "sample.txt:words", "a list with text in it"));
    assert_int_equal(opened.bundle->skip_count, 3);
    assert_int_equal(opened.bundle->count, 8);
    close_opened(&opened);
}

static void test_described(void **state)
{
    static const double counts[] = {1, 2, 3, 4};
    struct opened opened;
    (void)state;
    open_text(&opened, reader,
              "{\"name\": \"q\", \"dtype\": \"int32\", \"shape\": [2, 2], \"data\": [[1, 2], [3, 4]]}");
    assert_shape(tensor_of(&opened, "q"), "[2,2]");
    assert_int_equal(tensor_of(&opened, "q")->type, TS_I32);
    assert_values(tensor_of(&opened, "q"), counts, 4);
    close_opened(&opened);
    open_text(&opened, reader,
              "[{\"name\": \"q\", \"shape\": [4], \"values\": [1, 2, 3, 4]},"
              " {\"shape\": [2, 3], \"data\": [1, 2, 3, 4]}, {\"shape\": [3], \"data\": [1, 2, 3, 4]}]");
    assert_int_equal(opened.bid, 24);
    assert_shape(tensor_of(&opened, "q"), "[4]");
    assert_shape(tensor_of(&opened, "1"), "[4]");
    assert_true(tensor_of(&opened, "1")->sampled);
    assert_attribute(tensor_of(&opened, "1"), "declared shape", "[2,3]");
    assert_attribute(tensor_of(&opened, "1"), "sample", "first 4 of 6");
    assert_false(tensor_of(&opened, "2")->sampled);
    assert_true(has_finding(&opened, "has 4 values, but its shape has room for 3"));
    close_opened(&opened);
    open_text(&opened, reader, "{\"tensors\": {\"a\": {\"shape\": [2], \"data\": [1, 2]}, \"b\": [3]}}");
    assert_shape(tensor_of(&opened, "a"), "[2]");
    assert_shape(tensor_of(&opened, "b"), "[1]");
    close_opened(&opened);
    open_text(&opened, reader, "{\"a\": {\"shape\": [3], \"dtype\": \"f32\", \"data\": [1.5, 2.5");
    assert_shape(tensor_of(&opened, "a"), "[1]");
    assert_true(tensor_of(&opened, "a")->sampled);
    assert_attribute(tensor_of(&opened, "a"), "sample", "first 1 of 3");
    assert_int_equal(tensor_of(&opened, "a")->type, TS_F32);
    close_opened(&opened);
}

static void test_top_level_list(void **state)
{
    static const double counts[] = {1, 2, 3, 4};
    struct opened opened;
    (void)state;
    open_text(&opened, reader, " [[1, 2],\n [3, 4]]\n");
    assert_int_equal(opened.bid, 24);
    assert_shape(tensor_of(&opened, ""), "[2,2]");
    assert_values(tensor_of(&opened, ""), counts, 4);
    close_opened(&opened);
}

/* Cut after every byte: what is complete is there with its values, and nothing else is. */
static void test_cut_anywhere(void **state)
{
    static const char text[] =
        "{\"one\": [10, 20], \"two\": [[1.25, -2e1], [true, 4]], \"t\\u0077o\": {\"dtype\": \"f32\", "
        "\"shape\": [2], \"data\": [5, 6]}, \"s\": \"x\", \"last\": [7]}";
    static const char good[] =
        "{\"one\": [10, 20], \"two\": [[1.25, -2e1], [3, 4]], \"t\\u0077o\": {\"dtype\": \"f32\", "
        "\"shape\": [2], \"data\": [5, 6]}, \"s\": \"x\", \"last\": [7]}";
    const size_t one_ends = strlen("{\"one\": [10, 20]"),
                 two_ends = strlen("{\"one\": [10, 20], \"two\": [[1.25, -2e1], [3, 4]]");
    static const double one[] = {10, 20}, two[] = {1.25, -20, 3, 4};
    struct opened opened;
    (void)state;
    for (size_t size = 0; size < sizeof good - 1; size++) {
        open_bytes(&opened, reader, good, size, "cut.json");
        if (opened.status != TS_OK) {
            assert_int_equal(opened.status, TS_ERR_FORMAT);
            assert_non_null(strstr(opened.error.message, "cut off"));
            assert_true(size <= strlen("{\"one\": [10"));
        } else {
            const struct ts_tensor *tensor = tensor_of(&opened, "one");
            assert_true(opened.bundle->finding_count > 0);
            assert_int_equal(tensor->sampled, size < one_ends);
            assert_values(tensor, one, (size_t)tensor->count);
            tensor = ts_bundle_tensor(opened.bundle, "two");
            if (size >= two_ends) {
                assert_shape(tensor, "[2,2]");
                assert_false(tensor->sampled);
            }
            if (tensor)
                assert_values(tensor, two, (size_t)tensor->count);
        }
        close_opened(&opened);
        open_bytes(&opened, reader, text, size, "cut.json"); /* with a list that is refused */
        close_opened(&opened);
    }
    open_bytes(&opened, reader, good, sizeof good - 1, "cut.json");
    assert_int_equal(opened.bundle->count, 4);
    assert_int_equal(opened.bundle->finding_count, 0);
    close_opened(&opened);
}

static void test_failures(void **state)
{
    struct opened opened;
    (void)state;
    open_text(&opened, reader, "{\"a\": [1, 2], \"b\": [3, x]}");
    assert_int_equal(opened.status, TS_ERR_FORMAT);
    assert_int_equal(opened.error.offset, 23);
    close_opened(&opened);
    open_text(&opened, reader, "{\"a\": [1, 2]} {");
    assert_int_equal(opened.status, TS_ERR_FORMAT);
    assert_int_equal(opened.error.offset, 14);
    close_opened(&opened);
    open_text(&opened, reader,
              "{\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": [1]}}}}}}}}, \"b\": [1]}");
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 1);
    assert_true(has_skip(&opened, "sample.txt:a.a.a.a.a.a.a.a", "nested deeper"));
    close_opened(&opened);
}

static void test_not_claimed(void **state)
{
    static const struct {
        const char *name, *text;
    } files[] = {
        {"config.json", "{\"hidden_size\": 64, \"betas\": [0.1, 0.2, 0.3, 0.4]}"},
        {"x.json",
         "{\"architectures\": [\"X\"], \"sizes\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]}"},
        {"x.json", "{\"a\": 1, \"b\": 2.5}"},
        {"x.json", "{\"pad_token_id\": 151643, \"temperature\": 0.75, \"eos\": [1]}"},
        {"vocab.json", "{\"<unk>\": 0, \"the\": 1, \"of\": 2}"},
        {"generation.json", "{\"eos_token_id\": [1, 2], \"temperature\": 0.7, \"top_p\": 0.8, \"do_sample\": true}"},
        {"tokenizer.json", "{\"version\": \"1.0\", \"model\": {\"vocab\": [[\"<unk>\", 0.0], [\"a\", -1.5]]}}"},
        {"x.index.json", "{\"metadata\": {\"total_size\": 5}, \"weight_map\": {\"a\": \"b\"}}"},
        {"package.json", "{\"name\": \"x\", \"version\": \"1.0.0\", \"files\": [\"a\"]}"},
        {"side.json", "{\"dtype\": \"float32\", \"shape\": [3, 4]}"},
        {"text.json", "[\"a\", \"b\"]"},
        {"cases.json", "[{\"text\": \"hello\", \"ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}]"},
        {"empty.json", "{}"},
        {"empty.json", "[]"},
        {"lines.json", "{\"a\": [1, 2]}\n{\"a\": [1, 2]}\n"},
        {"numpy.txt", "[[1. 2.]\n [3. 4.]]"},
        {"x.txt", "1 2 3"},
        {"x.txt", ""},
        {"trainer_state.json",
         "{\"log_history\": [{\"loss\": 1.0}], \"x\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        unsigned bid = bid_on(reader, files[i].text, files[i].name);
        if (bid)
            print_error("claimed: %s\n", files[i].text);
        assert_int_equal(bid, 0);
    }
    assert_int_equal(bid_on(reader, "{\"layer_0_rmsnorm_output\": [0.5]}", "x.json"), 24);
    assert_int_equal(bid_on(reader, "{\"prompt\": \"x\", \"logits\": [0.5, 0.25, 1.5, 2.5, 3.5, 4.5, 5.5]}", "x.json"),
                     24);
    assert_int_equal(bid_on(reader, "{\"a\": {\"shape\": [1], \"dtype\": \"f32\", \"data\": [1]}}", "x.json"), 24);
}

/* More small tensors than one shared piece of room holds, and one that is too large for it. */
static void test_many(void **state)
{
    enum { COUNT = 30000, LARGE = 50000 };
    struct ts_buffer text;
    struct opened opened;
    double expected[2];
    (void)state;
    ts_buffer_init(&text, (size_t)16 << 20);
    ts_buffer_string(&text, "{");
    for (int i = 0; i < COUNT; i++)
        ts_buffer_printf(&text, "\"t%05d\": [%d.5, %d], ", i, i, -i);
    ts_buffer_string(&text, "\"u\": [0");
    for (int i = 1; i < LARGE; i++)
        ts_buffer_printf(&text, ",%d", i);
    ts_buffer_string(&text, "]}");
    assert_false(text.failed);
    open_bytes(&opened, reader, text.data, text.size, "many.json");
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, COUNT + 1);
    assert_true(opened.bundle->source_count < 20);
    for (int i = 0; i < COUNT; i++) {
        expected[0] = i + 0.5;
        expected[1] = -i;
        assert_values(opened.bundle->tensors[i], expected, 2);
    }
    assert_int_equal(opened.bundle->tensors[COUNT]->count, LARGE);
    assert_int_equal(ts_tensor_read_f64(opened.bundle->tensors[COUNT], LARGE - 1, 1, expected, &opened.error), TS_OK);
    assert_same_number(expected[0], LARGE - 1);
    close_opened(&opened);
    ts_buffer_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_order), cmocka_unit_test(test_golden_cut),
        cmocka_unit_test(test_file_order),   cmocka_unit_test(test_shapes_and_types),
        cmocka_unit_test(test_described),    cmocka_unit_test(test_top_level_list),
        cmocka_unit_test(test_cut_anywhere), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_not_claimed),  cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
