/* The golden samples and their values come from tests/golden/text/make.py, which prints as the writers of each dialect
 * do and rounds with Python. Values in the texts below are chosen by hand. */
#include <math.h>

#include "opened.h"

static void open_dump(struct opened *opened, const char *name, const char *tensor, const char *shape, enum ts_type type)
{
    open_golden(opened, &ts_reader_text, name);
    assert_int_equal(opened->bid, 40);
    assert_int_equal(opened->bundle->count, 1);
    assert_string_equal(opened->bundle->tensors[0]->name, tensor);
    assert_shape(opened->bundle->tensors[0], shape);
    assert_int_equal(opened->bundle->tensors[0]->type, type);
    assert_golden_values(opened, name);
    assert_int_equal(opened->bundle->finding_count, 0);
    assert_int_equal(opened->bundle->skip_count, 0);
}

static void expect_whole(const char *name, const char *tensor, const char *shape, enum ts_type type)
{
    struct opened opened;
    open_dump(&opened, name, tensor, shape, type);
    assert_false(opened.bundle->tensors[0]->sampled);
    assert_attribute(opened.bundle->tensors[0], "sample", NULL);
    assert_attribute(opened.bundle->tensors[0], "declared shape", NULL);
    close_opened(&opened);
}

static void expect_sample(const char *name, const char *tensor, const char *declared, const char *sample,
                          enum ts_type type)
{
    struct opened opened;
    open_dump(&opened, name, tensor, "[100]", type);
    assert_true(opened.bundle->tensors[0]->sampled);
    assert_attribute(opened.bundle->tensors[0], "sample", sample);
    assert_attribute(opened.bundle->tensors[0], "declared shape", declared);
    close_opened(&opened);
}

static void test_dialects(void **state)
{
    (void)state;
    expect_whole("a_1000.txt", "layer_3_attn_q_rope", "[1,10,100]", TS_F32);
    expect_sample("a_1001.txt", "layer_3_attn_q_rope", "(1, 7, 143)", "first 50 and last 50 of 1001", TS_F32);
    expect_whole("a_scalar.txt", "loss", "[]", TS_F32);
    expect_whole("a_five.txt", "position", "[5]", TS_F32);
    expect_whole("a_ids.txt", "input_ids", "[1,5]", TS_I64);
    expect_whole("b_1000.txt", "input_embeddings", "[10,100]", TS_F64);
    expect_sample("b_6144.txt", "input_embeddings", "3x2048", "first 50 and last 50 of 6144", TS_F64);
    expect_whole("c_special.txt", "attn_scores", "[6,10]", TS_F32);
    expect_sample("c_1001.txt", "mlp_gate_proj", "7x143", "first 50 and last 50 of 1001", TS_F32);
    expect_whole("d_36.txt", "attn_k_normed", "[4,9]", TS_F16);
    expect_sample("d_192.txt", "attn_k_normed", "3x64", "first 100 of 192", TS_F16);
    expect_whole("e_40.txt", "layer_output", "[5,8]", TS_F32);
    expect_sample("e_600.txt", "layer_output", "2x300", "first 100 of 600", TS_F32);
    expect_whole("f_copy.txt", "layer_0_copy_output", "[3,4]", TS_F64);
    expect_whole("f_windows.txt", "layer_0_copy_output", "[3,4]", TS_F64);
}

static void test_header_becomes_attributes(void **state)
{
    struct opened opened;
    const struct ts_tensor *tensor;
    (void)state;
    open_golden(&opened, &ts_reader_text, "c_special.txt");
    tensor = opened.bundle->tensors[0];
    assert_attribute(tensor, "total elements", "60");
    assert_attribute(tensor, "data type size", "4 bytes");
    assert_attribute(tensor, "min", "-2.014364e+00");
    assert_attribute(tensor, "special values", "NaN: 1, Inf: 2, Zero: 1");
    assert_attribute(tensor, "warning", "Found 1 NaN values!");
    assert_attribute(tensor, "digits", "7");
    close_opened(&opened);
    open_golden(&opened, &ts_reader_text, "a_five.txt");
    assert_attribute(opened.bundle->tensors[0], "dtype", "float32");
    close_opened(&opened);
}

static void test_header_statistics(void **state)
{
    struct opened opened;
    (void)state;
    open_text(&opened, &ts_reader_text,
              "# Tensor: x\n# Shape: 4\n# Mean: 2.5\n# Min: 1.0\n# Max: 5.0\n# Data:\n1\n2\n3\n4\n");
    assert_int_equal(opened.status, TS_OK);
    assert_true(has_finding(&opened, "the header says max 5, but that of its values is 4"));
    assert_int_equal(opened.bundle->finding_count, 1);
    assert_string_equal(opened.bundle->findings[0].tensor, "x");
    close_opened(&opened);
    open_text(&opened, &ts_reader_text,
              "# Tensor: x\n# Shape: 4\n# Mean: 2.4\n# Min: 1.0\n# Max: 4.0\n# Data:\n1\n2\n3\n4\n");
    assert_int_equal(opened.bundle->finding_count, 1);
    assert_true(has_finding(&opened, "the header says mean 2.4, but that of its values is 2.5"));
    close_opened(&opened);
    /* Of a sample, only a value outside the stated bounds is wrong. */
    open_text(&opened, &ts_reader_text,
              "# Tensor: x\n# Shape: 2000\n# Mean: 9\n# Min: -8.0\n# Max: 2.0\n# Data:\n# First 2 elements:\n1\n3\n"
              "# Last 2 elements:\n-1\n2\n");
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->finding_count, 1);
    assert_true(has_finding(&opened, "the header says max 2, but one of its values is 3"));
    assert_attribute(opened.bundle->tensors[0], "sample", "first 2 and last 2 of 2000");
    close_opened(&opened);
    /* NaN among the values: the dialects disagree on the statistics, so nothing is said. */
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: 2\n# Mean: nan\n# Min: nan\n# Max: nan\n1\nnan\n");
    assert_int_equal(opened.bundle->finding_count, 0);
    close_opened(&opened);
}

static void test_counts(void **state)
{
    struct opened opened;
    (void)state;
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: (2, 3)\n# Data:\n1.5\n2.5\n3.5\n4.5\n");
    assert_true(opened.bundle->tensors[0]->sampled);
    assert_shape(opened.bundle->tensors[0], "[4]");
    assert_attribute(opened.bundle->tensors[0], "sample", "first 4 of 6");
    assert_true(has_finding(&opened, "ends after 4 values: it was cut off"));
    close_opened(&opened);
    /* The last number touches the end: a part of it may be missing. */
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: (2, 3)\n# Data:\n1.5\n2.5\n3.5");
    assert_shape(opened.bundle->tensors[0], "[2]");
    assert_true(has_finding(&opened, "ends after 2 values, inside a number"));
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: (2, 3)\n# Data:\n1.5\n2.5e-");
    assert_shape(opened.bundle->tensors[0], "[1]");
    close_opened(&opened);
    /* The last number of a complete dump may do without a line break. */
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: (3,)\n# Data:\n1.5\n2.5\n3.5");
    assert_shape(opened.bundle->tensors[0], "[3]");
    assert_false(opened.bundle->tensors[0]->sampled);
    assert_int_equal(opened.bundle->finding_count, 0);
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: (1, 2)\n# Total elements: 3\n# Data:\n1.5\n2.5\n3.5\n");
    assert_shape(opened.bundle->tensors[0], "[3]");
    assert_false(opened.bundle->tensors[0]->sampled);
    assert_attribute(opened.bundle->tensors[0], "declared shape", "(1, 2)");
    assert_true(has_finding(&opened, "has 3 values, but its shape has room for 2"));
    assert_true(has_finding(&opened, "says 3 elements in total, but its shape has 2"));
    close_opened(&opened);
    open_text(&opened, &ts_reader_text,
              "# Tensor: x\n# Shape: 20x100\n# Data:\n# First 3 elements:\n1.5\n2.5\n3.5\n"
              "# Last 3 elements:\n4.5\n");
    assert_attribute(opened.bundle->tensors[0], "sample", "first 3 and 1 of the last 3 of 2000");
    assert_true(has_finding(&opened, "ends after 4 values: it was cut off"));
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: (0, 7)\n# Data:\n");
    assert_shape(opened.bundle->tensors[0], "[0,7]");
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: (2, 7)\n# Data:\n");
    assert_int_equal(opened.bundle->count, 0);
    assert_true(has_skip(&opened, "sample.txt:x", "a header and no values"));
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: two by two\n# Data:\n1\n");
    assert_true(has_finding(&opened, "shape \"two by two\" cannot be read"));
    close_opened(&opened);
}

static void test_dtypes(void **state)
{
    static const double small[] = {0.1f, 3.0};
    /* 0.1 in float16 is 0x2e66; 65520 is the middle of 65504 and infinity, and goes up. */
    static const double halves[] = {0x1.998p-4, (double)INFINITY, 0x1p-24, 0.0};
    static const double brains[] = {0x1.9ap-4, 0x1.02p0, 1.0};
    static const double mixed[] = {1.0, 2.5};
    struct opened opened;
    (void)state;
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: 2\n# Dtype: torch.float32\n0.1\n3\n");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_F32);
    assert_values(opened.bundle->tensors[0], small, 2);
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: 4\n# Dtype: float16\n0.1\n65520\n3e-8\n2.9e-8\n");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_F16);
    assert_values(opened.bundle->tensors[0], halves, 4);
    close_opened(&opened);
    /* 1.005859375 = 1 + 1.5 * 2^-8 and 1.00390625 = 1 + 2^-8: above and at the middle of two neighbours. */
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: 3\n# Dtype: bfloat16\n0.1\n1.005859375\n1.00390625\n");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_BF16);
    assert_values(opened.bundle->tensors[0], brains, 3);
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: 2\n# Dtype: bool\n1.000000e+00\n0.000000e+00\n");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_BOOL);
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: 2\n# Dtype: int32\n1.0\n2.5\n");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_F64);
    assert_values(opened.bundle->tensors[0], mixed, 2);
    assert_true(has_finding(&opened, "the header says int32, but not all of its values are such"));
    close_opened(&opened);
    open_text(&opened, &ts_reader_text, "# Tensor: x\n# Shape: 2\n# Dtype: uint8\n255\n-1\n");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_F64);
    close_opened(&opened);
}

static void test_hex_halves(void **state)
{
    static const char head[] =
        "# Tensor: x (FP16 format)\n# Shape: 3\n# Data (first 100 elements as hex and converted):\n";
    static const double expected[] = {1.0, (double)NAN, -2.0};
    struct opened opened;
    char text[512];
    (void)state;
    snprintf(text, sizeof text, "%s0x3c00 (1.000000e+00)\n0x7E01 (nan)\n0xC000 (-2.000000e+00)\n", head);
    open_text(&opened, &ts_reader_text, text);
    assert_int_equal(opened.status, TS_OK);
    assert_values(opened.bundle->tensors[0], expected, 3);
    assert_int_equal(ts_load_le16(ts_tensor_bytes(opened.bundle->tensors[0]) + 2), 0x7e01); /* with its payload */
    assert_int_equal(opened.bundle->finding_count, 0);
    close_opened(&opened);
    snprintf(text, sizeof text, "%s0x3c00 (1.000000e+00)\n0x3f80 (1.000000e+00)\n0x4000 (2.000000e+00)\n", head);
    open_text(&opened, &ts_reader_text, text);
    assert_true(has_finding(&opened, "1 numbers differ from the fp16 bits beside them, first at element 1"));
    close_opened(&opened);
    snprintf(text, sizeof text, "%s0x3c00 (1.000000e+00)\n0x3c001 (1.0)\n", head);
    open_text(&opened, &ts_reader_text, text);
    assert_int_equal(opened.status, TS_ERR_FORMAT);
    assert_non_null(strstr(opened.error.message, "line 5: expected the bits of an fp16 number"));
    close_opened(&opened);
    /* Cut inside the bits, and behind them. */
    snprintf(text, sizeof text, "%s0x3c00 (1.000000e+00)\n0x3c0", head);
    open_text(&opened, &ts_reader_text, text);
    assert_int_equal(opened.status, TS_OK);
    assert_shape(opened.bundle->tensors[0], "[1]");
    close_opened(&opened);
    snprintf(text, sizeof text, "%s0x3c00 (1.000000e+00)\n0x3c00 (1.00000", head);
    open_text(&opened, &ts_reader_text, text);
    assert_int_equal(opened.status, TS_OK);
    assert_shape(opened.bundle->tensors[0], "[2]");
    close_opened(&opened);
}

static void test_several_dumps(void **state)
{
    struct opened opened;
    (void)state;
    open_text(&opened, &ts_reader_text,
              "# Tensor: a\n# Shape: 2\n# Data:\n1\n2\n\n# Tensor: b\n# Shape: ()\n# Dtype: float32\n# Data:\n0.5\n");
    assert_int_equal(opened.bundle->count, 2);
    assert_string_equal(opened.bundle->tensors[1]->name, "b");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_I64);
    assert_int_equal(opened.bundle->tensors[1]->type, TS_F32);
    assert_int_equal(opened.bundle->tensors[1]->rank, 0);
    close_opened(&opened);
}

static void expect_plain(const char *name, const char *shape, enum ts_type type, bool sampled)
{
    struct opened opened;
    open_golden(&opened, &ts_reader_text, name);
    assert_int_equal(opened.bid, 10);
    assert_int_equal(opened.bundle->count, 1);
    assert_string_equal(opened.bundle->tensors[0]->name, "");
    assert_shape(opened.bundle->tensors[0], shape);
    assert_int_equal(opened.bundle->tensors[0]->type, type);
    assert_int_equal(opened.bundle->tensors[0]->sampled, sampled);
    assert_golden_values(&opened, name);
    close_opened(&opened);
}

static void test_plain_files(void **state)
{
    (void)state;
    expect_plain("column.txt", "[24]", TS_F64, false);
    expect_plain("savetxt.txt", "[4,6]", TS_F64, false);
    expect_plain("table.csv", "[4,6]", TS_F64, false);
    expect_plain("ids.txt", "[8]", TS_I64, false);
    expect_plain("numpy_print.txt", "[4,6]", TS_F64, false);
    expect_plain("torch_print.txt", "[2,2,6]", TS_F16, false);
    expect_plain("torch_short.txt", "[6]", TS_F64, true);
}

static void expect_text(const char *text, const char *shape, enum ts_type type, const double *values, size_t count)
{
    struct opened opened;
    open_text(&opened, &ts_reader_text, text);
    if (opened.status != TS_OK)
        print_error("%s: %s\n", text, opened.error.message);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bid, 10);
    assert_shape(opened.bundle->tensors[0], shape);
    assert_int_equal(opened.bundle->tensors[0]->type, type);
    assert_values(opened.bundle->tensors[0], values, count);
    close_opened(&opened);
}

static void test_plain_layouts(void **state)
{
    static const double values[] = {1, 2, 3, 4, 5, 6};
    static const double fractions[] = {1.5, -2, (double)INFINITY, (double)NAN};
    static const double hex[] = {1.5, 16};
    static const double bits[] = {1, 0};
    (void)state;
    expect_text("1 2 3\n4 5 6\n", "[2,3]", TS_I64, values, 6);
    expect_text("1;2;3\n4;5;6", "[2,3]", TS_I64, values, 6);
    expect_text("1, 2, 3,\r\n4, 5, 6,\r\n", "[2,3]", TS_I64, values, 6);
    expect_text("# x\n1\t2\n\n# y\n3\t4 # z\n5\t6\n", "[3,2]", TS_I64, values, 6);
    expect_text("1 2 3 4\n5 6\n", "[6]", TS_I64, values, 6);
    expect_text("1 2 3 4 5 6\n", "[6]", TS_I64, values, 6);
    expect_text("\n1\n2\n3\n4\n5\n6\n\n", "[6]", TS_I64, values, 6);
    expect_text("1.0 2 3\n4 5 6\n", "[2,3]", TS_F64, values, 6);
    expect_text("1 2 3\n4 5 6.\n", "[2,3]", TS_F64, values, 6);
    expect_text("\xef\xbb\xbf"
                "1.5 -2 inf NaN\n",
                "[4]", TS_F64, fractions, 4);
    expect_text("0x1.8p0\n0x10\n", "[2]", TS_F64, hex, 2);
    expect_text("a b c\n1 2 3\n4 5 6\n", "[2,3]", TS_I64, values, 6);
    expect_text("\"x, y\"\t\"z\"\n1\t2\n3\t4\n5\t6\n", "[3,2]", TS_I64, values, 6);
    expect_text("logits\n1\n2\n3\n4\n5\n6\n", "[6]", TS_I64, values, 6);
    expect_text("[[1, 2, 3], [4, 5, 6]]", "[2,3]", TS_I64, values, 6);
    expect_text("[[[1 2 3]\n  [4 5 6]]]\n", "[1,2,3]", TS_I64, values, 6);
    expect_text("array([[1., 2., 3.],\n       [4., 5., 6.]], dtype=float32)\n", "[2,3]", TS_F32, values, 6);
    expect_text("array([1, 2, 3, 4, 5, 6], dtype='<i2')", "[6]", TS_I16, values, 6);
    expect_text("Parameter containing:\ntensor([1., 2., 3., 4., 5., 6.], requires_grad=True)\n", "[6]", TS_F64, values,
                6);
    expect_text("tensor(1)\n", "[]", TS_I64, values, 1);
    expect_text("tensor([], size=(0, 3))\n", "[0,3]", TS_F64, values, 0);
    expect_text("tensor([ True, False])\n", "[2]", TS_BOOL, bits, 2);
}

static void test_csv_names(void **state)
{
    struct opened opened;
    (void)state;
    open_text(&opened, &ts_reader_text, "step,loss\r\n1,0.5\r\n2,0.25\r\n");
    assert_attribute(opened.bundle->tensors[0], "columns", "step,loss");
    assert_shape(opened.bundle->tensors[0], "[2,2]");
    close_opened(&opened);
}

static void test_shortened_prints(void **state)
{
    struct opened opened;
    (void)state;
    open_text(&opened, &ts_reader_text,
              "array([[0., 1., ..., 8., 9.],\n       ...,\n       [5., 6., ..., 7., 8.]],\n"
              "      shape=(1000, 1000), dtype=float32)");
    assert_int_equal(opened.status, TS_OK);
    assert_shape(opened.bundle->tensors[0], "[2,4]");
    assert_true(opened.bundle->tensors[0]->sampled);
    assert_attribute(opened.bundle->tensors[0], "declared shape", "(1000, 1000");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_F32);
    close_opened(&opened);
}

static void expect_failure(const char *text, uint64_t offset, const char *message)
{
    struct opened opened;
    open_text(&opened, &ts_reader_text, text);
    if (opened.status == TS_OK || !strstr(opened.error.message, message))
        print_error("%s: %s\n", text, opened.error.message);
    assert_int_not_equal(opened.status, TS_OK);
    assert_non_null(strstr(opened.error.message, message));
    assert_int_equal(opened.error.offset, offset);
    close_opened(&opened);
}

static void test_failures(void **state)
{
    (void)state;
    expect_failure("1\n2\n3\nfour\n5\n", 6, "line 4: \"four\" is not a number");
    expect_failure("1 2\n3 4x\n", 6, "line 2: \"4x\" is not a number");
    expect_failure("\xef\xbb\xbf"
                   "1 2\n3 x\n",
                   9, "line 2: \"x\" is not a number");
    expect_failure("# Tensor: a\n# Shape: 3\n1.0\nabc\n", 27, "line 4: \"abc\" is not a number");
    expect_failure("1,5;2,5\n", 4, "line 1: both , and ; stand between numbers");
    expect_failure("1,2,3\n4,,6\n", 8, "line 2: a number is missing between two separators");
    expect_failure("[[1, 2], [3]]\n", 12, "line 1: the bracketed lists differ in length");
    expect_failure("[[1, 2], [3", 11, "ends inside 2 open brackets: it was cut off");
    expect_failure("tensor([1, 2]", 13, "before the closing parenthesis");
    expect_failure("[1, 2]\n[3, 4]\n", 7, "line 2: more text follows");
    expect_failure("[1, True]\n", UINT64_MAX, "true and false stand among numbers");
    expect_failure("# nothing\n", UINT64_MAX, "the text holds no numbers");
}

static void test_utf16(void **state)
{
    static const char little[] = "\xff\xfe"
                                 "1\0\n\0"
                                 "2\0\n\0",
                      big[] = "\xfe\xff\0"
                              "1\0\n\0"
                              "2\0\n";
    struct opened opened;
    (void)state;
    open_bytes(&opened, &ts_reader_text, little, sizeof little - 1, "x.txt");
    assert_int_equal(opened.bid, 10);
    assert_int_equal(opened.status, TS_ERR_UNSUPPORTED);
    assert_non_null(strstr(opened.error.message, "UTF-16"));
    close_opened(&opened);
    open_bytes(&opened, &ts_reader_text, big, sizeof big - 1, "x.txt");
    assert_int_equal(opened.bid, 10);
    assert_non_null(strstr(opened.error.message, "UTF-16"));
    close_opened(&opened);
}

static void test_not_claimed(void **state)
{
    static const char *const texts[] = {
        "",
        "\n\n",
        "# only a comment\n",
        "torch==2.3.0\nnumpy>=1.26\n",
        "# Model card\n\nThis is a model with 7 billion parameters.\n",
        "[PAD]\n[unused0]\n[unused1]\n[CLS]\n",
        "#version: 0.2\n\xc4\xa0 t\n\xc4\xa0 a\nh e\n",
        "                                 Apache License\n                           Version 2.0, January 2004\n",
        "MIT License\n\nCopyright (c) 2024\n",
        "1. Install\n2. Run\n",
        "1.2.3\n",
        "---\nlicense: mit\n---\n",
        "0\n1\n2\n3\na\nb\n",
        "!\n\"\n#\n$\n0\n1\n",
        "the\n1\n2\nof\n",
        "import torch\n",
        "{\"a\": 1}",
        "[]\n",
        "[[], []]\n",
        "[\"a\", \"b\"]",
        "print(1)(2)\nx\n",
        "\x80\x02}q\x00.",
        "PK\x03\x04",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        unsigned bid = bid_on(&ts_reader_text, texts[i], "x.txt");
        if (bid)
            print_error("claimed: %s\n", texts[i]);
        assert_int_equal(bid, 0);
    }
    assert_int_equal(bid_on(&ts_reader_text, "1.2\n", "VERSION"), 0);
    assert_int_equal(bid_on(&ts_reader_text, "1.2\n", "loss.txt"), 10);
    assert_int_equal(bid_on(&ts_reader_text, "1.2\n3\n", "VERSION"), 10);
    assert_int_equal(bid_on(&ts_reader_text, "# Tensor: x\n", "x.txt"), 0);
}

/* Numbers far beyond the first look, and more of them than are held in memory; a fraction late in a column of
 * integers turns all of it into f64. */
static void test_long_columns(void **state)
{
    const size_t count = 100000;
    char *text = malloc(count * 8 + 16);
    double *expected = calloc(count + 1, sizeof *expected);
    struct opened opened;
    size_t size = 0;
    (void)state;
    assert_non_null(text);
    assert_non_null(expected);
    for (size_t i = 0; i < count; i++) {
        size += (size_t)snprintf(text + size, 9, "%zu\n", i * 7 % 1000003);
        expected[i] = (double)(i * 7 % 1000003);
    }
    open_bytes(&opened, &ts_reader_text, text, size, "x.txt");
    assert_int_equal(opened.bid, 10);
    assert_int_equal(opened.bundle->tensors[0]->type, TS_I64);
    assert_values(opened.bundle->tensors[0], expected, count);
    close_opened(&opened);
    size += (size_t)snprintf(text + size, 9, "0.5\n");
    expected[count] = 0.5;
    open_bytes(&opened, &ts_reader_text, text, size, "x.txt");
    assert_int_equal(opened.bundle->tensors[0]->type, TS_F64);
    assert_values(opened.bundle->tensors[0], expected, count + 1);
    close_opened(&opened);
    size += (size_t)snprintf(text + size, 9, "oops\n");
    open_bytes(&opened, &ts_reader_text, text, size, "x.txt");
    assert_int_equal(opened.bid, 10);
    assert_int_equal(opened.status, TS_ERR_FORMAT);
    assert_string_equal(opened.error.message, "line 100002: \"oops\" is not a number");
    assert_int_equal(opened.error.offset, size - 5);
    close_opened(&opened);
    free(expected);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dialects),
        cmocka_unit_test(test_header_becomes_attributes),
        cmocka_unit_test(test_header_statistics),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_hex_halves),
        cmocka_unit_test(test_several_dumps),
        cmocka_unit_test(test_plain_files),
        cmocka_unit_test(test_plain_layouts),
        cmocka_unit_test(test_csv_names),
        cmocka_unit_test(test_shortened_prints),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_utf16),
        cmocka_unit_test(test_not_claimed),
        cmocka_unit_test(test_long_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
