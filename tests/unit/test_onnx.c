/* ONNX files. The golden ones were written by onnx; their values were decoded by hand from the bytes. The others are
 * built here field by field, after onnx.proto. */
#include "onnx_message.h"

#include <stdio.h>

static struct opened open_golden(const char *name)
{
    struct opened opened = {.input = {.member = name}};
    char path[256];
    snprintf(path, sizeof path, "tests/golden/onnx/%s", name);
    ts_error_clear(&opened.error);
    assert_int_equal(ts_source_open(path, &opened.input.source, &opened.error), TS_OK);
    assert_int_equal(ts_folder_open_disk("tests/golden/onnx", false, false, &opened.input.folder, &opened.error),
                     TS_OK);
    assert_int_equal(ts_reader_onnx.bid(&opened.input), 40);
    read_now(&opened);
    return opened;
}

static struct opened open_tensor(const struct message *tensor)
{
    struct message graph = {.size = 0};
    inside(&graph, 5, tensor);
    return open_graph(&graph);
}

/* The four initializers of both golden models. 0.1, 0.2 and 0.3 are the nearest floats. */
static void check_golden(const struct opened *opened)
{
    assert_int_equal(opened->bundle->count, 4);
    assert_int_equal(opened->bundle->skip_count, 0);
    check(opened, 0, "w", TS_F32,
          VALUES(0.1257302165031433, -0.13210485875606537, 0.6404226422309875, 0.10490011423826218, -0.5356693863868713,
                 0.3615950644016266, 1.3040000200271606, 0.9470809698104858, -0.7037352323532104, -1.2654215097427368,
                 -0.6232744455337524, 0.04132597893476486));
    assert_int_equal(opened->bundle->tensors[0]->rank, 2);
    assert_int_equal(opened->bundle->tensors[0]->shape[0], 4);
    assert_int_equal(opened->bundle->tensors[0]->shape[1], 3);
    check(opened, 1, "b", TS_F32, VALUES((double)0.1f, (double)0.2f, (double)0.3f));
    check(opened, 2, "half", TS_F16, VALUES(0, 1, 2, 3));
    check(opened, 3, "bf", TS_BF16, VALUES(1, 2.5, -3));
    /* packed floats stand in the file as they are */
    assert_ptr_equal(opened->bundle->tensors[1]->source, opened->input.source);
    assert_string_equal(ts_bundle_meta_value(opened->bundle, "ir_version"), "14");
    assert_string_equal(ts_bundle_meta_value(opened->bundle, "opset.ai.onnx"), "28");
    assert_string_equal(ts_bundle_meta_value(opened->bundle, "graph"), "g");
    assert_string_equal(ts_bundle_meta_value(opened->bundle, "input.x"), "float [1,4]");
    assert_string_equal(ts_bundle_meta_value(opened->bundle, "output.y"), "float [1,3]");
    assert_string_equal(ts_bundle_meta_value(opened->bundle, "nodes"), "1");
    assert_string_equal(ts_bundle_meta_value(opened->bundle, "operators"), "Gemm 1");
}

static void test_golden_inline(void **state)
{
    (void)state;
    struct opened opened = open_golden("inline.onnx");
    check_golden(&opened);
    assert_ptr_equal(opened.bundle->tensors[0]->source, opened.input.source);
    assert_int_equal(opened.bundle->tensors[0]->offset, 0x29);
    finish(&opened);
}

static void test_golden_external(void **state)
{
    (void)state;
    struct opened opened = open_golden("external.onnx");
    check_golden(&opened);
    assert_int_equal(opened.bundle->tensors[0]->offset, 56);
    assert_int_equal(opened.bundle->tensors[2]->offset, 104);
    assert_ptr_equal(opened.bundle->tensors[0]->source, opened.bundle->tensors[2]->source); /* opened once */
    finish(&opened);
}

static void test_external_without_its_file(void **state)
{
    (void)state;
    struct opened opened = open_golden("external.onnx");
    struct opened alone = open_bytes(opened.input.source->data, opened.input.source->size);
    assert_int_equal(alone.status, TS_OK);
    assert_int_equal(alone.bundle->count, 2);
    assert_int_equal(alone.bundle->skip_count, 2);
    assert_string_equal(alone.bundle->skips[0].path, "m.onnx:w");
    assert_non_null(strstr(alone.bundle->skips[0].reason, "external data \"external.data\": no such file"));
    finish(&alone);
    finish(&opened);
}

static void external_entry(struct message *tensor, const char *key, const char *value)
{
    struct message entry = {.size = 0};
    text(&entry, 1, key);
    text(&entry, 2, value);
    inside(tensor, 13, &entry);
}

static void check_external(const char *location, const char *offset, const char *length, const char *reason)
{
    struct opened opened = {.input = {.member = "m.onnx"}};
    struct message tensor = tensor_of("t", 1, 2), graph = {.size = 0}, model;
    external_entry(&tensor, "location", location);
    if (offset)
        external_entry(&tensor, "offset", offset);
    if (length)
        external_entry(&tensor, "length", length);
    varint(&tensor, 14, 1);
    inside(&graph, 5, &tensor);
    model = model_of(&graph);
    ts_error_clear(&opened.error);
    assert_int_equal(ts_source_copy(model.data, model.size, "m.onnx", &opened.input.source, &opened.error), TS_OK);
    assert_int_equal(ts_folder_open_disk("tests/golden/onnx", false, false, &opened.input.folder, &opened.error),
                     TS_OK);
    read_now(&opened);
    if (!reason) {
        check(&opened, 0, "t", TS_F32, VALUES((double)0x1.017ed8p-3f, (double)-0x1.0e8cfep-3f));
    } else {
        assert_int_equal(opened.bundle->count, 0);
        assert_int_equal(opened.bundle->skip_count, 1);
        if (!strstr(opened.bundle->skips[0].reason, reason))
            fail_msg("%s %s %s: %s", location, offset, length, opened.bundle->skips[0].reason);
    }
    finish(&opened);
}

static void test_external_spans(void **state)
{
    (void)state;
    check_external("external.data", NULL, NULL, NULL);
    check_external("./external.data", "0", "8", NULL);
    check_external("external.data", "56", "8", NULL);
    check_external("external.data", "108", "8", "has 112 bytes, needed are 8 from byte 108");
    check_external("external.data", "18446744073709551615", "8", "needed are 8 from byte 18446744073709551615");
    check_external("external.data", "99999999999999999999", "8", "not a number of bytes");
    check_external("external.data", "-1", "8", "\"-1\" is not a number of bytes");
    check_external("external.data", "0", "4", "of 4 bytes, shape and type need 8");
    check_external("../onnx/external.data", "0", "8", "external data \"../onnx/external.data\"");
    check_external("/etc/passwd", "0", "8", "external data \"/etc/passwd\"");
    check_external("", "0", "8", "without a location");
}

/* Every data type through raw_data. */
static void test_raw_types(void **state)
{
    static const struct {
        unsigned type;
        enum ts_type expected;
        uint8_t data[16];
        size_t size;
        unsigned count;
        double values[4];
    } cases[] = {
        {1, TS_F32, {0, 0, 0xc0, 0x3f}, 4, 1, {1.5}},
        {2, TS_U8, {255, 1}, 2, 2, {255, 1}},
        {3, TS_I8, {255, 1}, 2, 2, {-1, 1}},
        {4, TS_U16, {0xff, 0xff}, 2, 1, {65535}},
        {5, TS_I16, {0xfe, 0xff}, 2, 1, {-2}},
        {6, TS_I32, {0xfe, 0xff, 0xff, 0xff}, 4, 1, {-2}},
        {7, TS_I64, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 8, 1, {-2}},
        {9, TS_BOOL, {1, 0, 1}, 3, 3, {1, 0, 1}},
        {10, TS_F16, {0, 0x3e}, 2, 1, {1.5}},
        {11, TS_F64, {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 8, 1, {1.5}},
        {12, TS_U32, {0xff, 0xff, 0xff, 0xff}, 4, 1, {4294967295.0}},
        {13, TS_U64, {0, 0, 0, 0, 1, 0, 0, 0}, 8, 1, {4294967296.0}},
        {14, TS_C64, {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}, 8, 1, {1, -2}},
        {15, TS_C128, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0}, 16, 1, {1, -2}},
        {16, TS_BF16, {0xc0, 0x3f}, 2, 1, {1.5}},
        {17, TS_F8_E4M3, {0x38, 0xc4}, 2, 2, {1, -3}},
        {18, TS_F8_E4M3FNUZ, {0x40, 0xcc}, 2, 2, {1, -3}},
        {19, TS_F8_E5M2, {0x3c, 0xc2}, 2, 2, {1, -3}},
        {20, TS_F8_E5M2FNUZ, {0x40, 0xc6}, 2, 2, {1, -3}},
        {21, TS_U4, {0x2f, 0x03}, 2, 3, {15, 2, 3}},
        {22, TS_I4, {0x2f, 0x08}, 2, 3, {-1, 2, -8}},
        {23, TS_F4_E2M1, {0xf2, 0x05}, 2, 3, {1, -6, 3}},
        {24, TS_F8_E8M0, {127, 130}, 2, 2, {1, 8}},
        {25, TS_U2, {0xe4}, 1, 4, {0, 1, 2, 3}},
        {26, TS_I2, {0xe4}, 1, 4, {0, 1, -2, -1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message tensor = tensor_of("t", cases[i].type, cases[i].count);
        bytes(&tensor, 9, cases[i].data, cases[i].size);
        struct opened opened = open_tensor(&tensor);
        check(&opened, 0, "t", cases[i].expected, cases[i].values, cases[i].count);
        assert_ptr_equal(opened.bundle->tensors[0]->source, opened.input.source);
        finish(&opened);
    }
}

/* The typed fields, packed and one number at a time. For types below eight bits a number holds a byte. */
static void test_typed_fields(void **state)
{
    static const struct {
        unsigned type, field;
        enum ts_type expected;
        size_t numbers;
        int64_t stored[4];
        unsigned count;
        double values[4];
    } cases[] = {
        {2, 5, TS_U8, 2, {255, 0}, 2, {255, 0}},
        {3, 5, TS_I8, 3, {-1, 127, 255}, 3, {-1, 127, -1}},
        {4, 5, TS_U16, 1, {65535}, 1, {65535}},
        {5, 5, TS_I16, 2, {-32768, 5}, 2, {-32768, 5}},
        {6, 5, TS_I32, 2, {INT32_MIN, 7}, 2, {INT32_MIN, 7}},
        {7, 7, TS_I64, 2, {-5, (int64_t)1 << 40}, 2, {-5, 1099511627776.0}},
        {9, 5, TS_BOOL, 2, {1, 0}, 2, {1, 0}},
        {10, 5, TS_F16, 2, {0x3e00, 0xc000}, 2, {1.5, -2}},
        {12, 11, TS_U32, 1, {4294967295}, 1, {4294967295.0}},
        {13, 11, TS_U64, 1, {(int64_t)1 << 62}, 1, {4611686018427387904.0}},
        {16, 5, TS_BF16, 2, {0x3fc0, 0xc000}, 2, {1.5, -2}},
        {17, 5, TS_F8_E4M3, 2, {0x38, 0xc4}, 2, {1, -3}},
        {18, 5, TS_F8_E4M3FNUZ, 2, {0x40, 0xcc}, 2, {1, -3}},
        {19, 5, TS_F8_E5M2, 2, {0x3c, 0xc2}, 2, {1, -3}},
        {20, 5, TS_F8_E5M2FNUZ, 2, {0x40, 0xc6}, 2, {1, -3}},
        {21, 5, TS_U4, 2, {0x2f, 0x03}, 3, {15, 2, 3}},
        {22, 5, TS_I4, 2, {0x2f, 0x08}, 3, {-1, 2, -8}},
        {23, 5, TS_F4_E2M1, 2, {0xf2, 0x05}, 3, {1, -6, 3}},
        {24, 5, TS_F8_E8M0, 2, {127, 130}, 2, {1, 8}},
        {25, 5, TS_U2, 1, {0xe4}, 4, {0, 1, 2, 3}},
        {26, 5, TS_I2, 1, {0xe4}, 4, {0, 1, -2, -1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int packed = 0; packed < 3; packed++) { /* unpacked, packed, half and half */
            struct message tensor = tensor_of("t", cases[i].type, cases[i].count);
            size_t first = packed == 0 ? cases[i].numbers : packed == 1 ? 0 : cases[i].numbers / 2;
            for (size_t k = 0; k < first; k++)
                varint(&tensor, cases[i].field, (uint64_t)cases[i].stored[k]);
            if (packed)
                pack_varints(&tensor, cases[i].field, cases[i].stored + first, cases[i].numbers - first);
            struct opened opened = open_tensor(&tensor);
            check(&opened, 0, "t", cases[i].expected, cases[i].values, cases[i].count);
            finish(&opened);
        }
}

static void test_float_fields(void **state)
{
    static const float floats[] = {1, -2, 3.5f, 4};
    static const double doubles[] = {1, -2, 3.5, 4};
    (void)state;
    struct message tensor = tensor_of("t", 1, 4);
    bytes(&tensor, 4, floats, sizeof floats);
    struct opened opened = open_tensor(&tensor);
    check(&opened, 0, "t", TS_F32, doubles, 4);
    assert_ptr_equal(opened.bundle->tensors[0]->source, opened.input.source);
    finish(&opened);

    tensor = tensor_of("t", 1, 4); /* one at a time, then a row */
    fixed32(&tensor, 4, 1);
    fixed32(&tensor, 4, -2);
    bytes(&tensor, 4, floats + 2, 8);
    opened = open_tensor(&tensor);
    check(&opened, 0, "t", TS_F32, doubles, 4);
    finish(&opened);

    tensor = tensor_of("t", 11, 4);
    bytes(&tensor, 10, doubles, sizeof doubles);
    opened = open_tensor(&tensor);
    check(&opened, 0, "t", TS_F64, doubles, 4);
    assert_ptr_equal(opened.bundle->tensors[0]->source, opened.input.source);
    finish(&opened);

    tensor = tensor_of("t", 14, 2);
    bytes(&tensor, 4, floats, sizeof floats);
    opened = open_tensor(&tensor);
    check(&opened, 0, "t", TS_C64, doubles, 2);
    finish(&opened);

    tensor = tensor_of("t", 15, 2);
    bytes(&tensor, 10, doubles, sizeof doubles);
    opened = open_tensor(&tensor);
    check(&opened, 0, "t", TS_C128, doubles, 2);
    finish(&opened);
}

static void refuse(const struct message *tensor, const char *reason)
{
    struct opened opened = open_tensor(tensor);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 0);
    assert_int_equal(opened.bundle->skip_count, 1);
    assert_string_equal(opened.bundle->skips[0].path, "m.onnx:t");
    if (!strstr(opened.bundle->skips[0].reason, reason))
        fail_msg("\"%s\" lacks \"%s\"", opened.bundle->skips[0].reason, reason);
    finish(&opened);
}

static void test_refused_tensors(void **state)
{
    (void)state;
    struct message tensor = tensor_of("t", 99, 1);
    refuse(&tensor, "has type 99, which this program does not know");
    tensor = tensor_of("t", 8, 1);
    text(&tensor, 6, "hello");
    refuse(&tensor, "holds strings");
    tensor = tensor_of("t", 1, 3);
    refuse(&tensor, "has no data: neither raw_data, nor float_data");
    bytes(&tensor, 9, "12345678", 8);
    refuse(&tensor, "raw_data has 8 bytes, shape and type need 12");
    tensor = tensor_of("t", 1, 3);
    bytes(&tensor, 4, "12345678", 8);
    refuse(&tensor, "float_data holds 2 numbers, shape and type need 3");
    tensor = tensor_of("t", 1, 2);
    bytes(&tensor, 4, "1234567", 7);
    refuse(&tensor, "7 bytes of packed numbers");
    tensor = tensor_of("t", 7, 1);
    varint(&tensor, 5, 1);
    refuse(&tensor, "numbers are in int32_data, those of type int64 belong in int64_data");
    tensor = tensor_of("t", 3, 1);
    varint(&tensor, 5, 256);
    refuse(&tensor, "number 0 is 256, which does not fit 8 bits");
    tensor = tensor_of("t", 3, 1);
    varint(&tensor, 5, (uint64_t)-129);
    refuse(&tensor, "number 0 is -129, which does not fit 8 bits");
    tensor = tensor_of("t", 6, 2); /* the last number has no end */
    bytes(&tensor, 5, "\1\2\x80", 3);
    refuse(&tensor, "ends inside a number");
    tensor = tensor_of("t", 1, 1);
    text(&tensor, 3, "");
    bytes(&tensor, 9, "1234", 4);
    refuse(&tensor, "one segment");
    tensor = tensor_of("t", 1, 4);
    for (int i = 0; i < 6; i++)
        varint(&tensor, 1, (uint64_t)1 << 40);
    bytes(&tensor, 9, "1234", 4);
    refuse(&tensor, "more than 2^63 elements");
}

static void test_empty_and_scalar(void **state)
{
    (void)state;
    struct message graph = {.size = 0}, tensor = tensor_of("empty", 1, 0);
    varint(&tensor, 1, (uint64_t)1 << 62);
    inside(&graph, 5, &tensor);
    tensor = (struct message){.size = 0}; /* no dims: a scalar */
    varint(&tensor, 2, 7);
    varint(&tensor, 7, 42);
    text(&tensor, 8, "scalar");
    inside(&graph, 5, &tensor);
    struct opened opened = open_graph(&graph);
    check(&opened, 1, "scalar", TS_I64, VALUES(42));
    assert_int_equal(opened.bundle->tensors[1]->rank, 0);
    assert_int_equal(opened.bundle->tensors[0]->count, 0);
    assert_int_equal(opened.bundle->tensors[0]->rank, 2);
    finish(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_inline),
        cmocka_unit_test(test_golden_external),
        cmocka_unit_test(test_external_without_its_file),
        cmocka_unit_test(test_external_spans),
        cmocka_unit_test(test_raw_types),
        cmocka_unit_test(test_typed_fields),
        cmocka_unit_test(test_float_fields),
        cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_empty_and_scalar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
