/* The PyTorch reader against files that torch itself wrote.
 *
 * expected.json of each golden folder comes from torch: file -> tensor name -> shape, dtype, first values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/number.h"
#include "read/open.h"
#include "read/readers.h"

#define SHARED "tests/golden/torchfiles"
#define MADE   "tests/golden/torch_1_13"

static struct ts_bundle *open_file(const char *folder, const char *name)
{
    char path[512];
    struct ts_bundle *bundle;
    struct ts_error error;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    return bundle;
}

static const char *type_named(const char *dtype)
{
    static const char *const names[][2] = {{"float64", "f64"},
                                           {"float32", "f32"},
                                           {"float16", "f16"},
                                           {"bfloat16", "bf16"},
                                           {"longdouble", "f80"},
                                           {"float128", "f80"},
                                           {"int8", "i8"},
                                           {"int16", "i16"},
                                           {"int32", "i32"},
                                           {"int64", "i64"},
                                           {"uint8", "u8"},
                                           {"uint16", "u16"},
                                           {"uint32", "u32"},
                                           {"uint64", "u64"},
                                           {"bool", "bool"},
                                           {"complex32", "c32"},
                                           {"complex64", "c64"},
                                           {"complex128", "c128"},
                                           {"float8_e4m3fn", "f8_e4m3"},
                                           {"float8_e5m2", "f8_e5m2"},
                                           {"float8_e4m3fnuz", "f8_e4m3fnuz"},
                                           {"float8_e5m2fnuz", "f8_e5m2fnuz"},
                                           {"float8_e8m0fnu", "f8_e8m0"},
                                           {"float4_e2m1fn_x2", "f4_e2m1"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], dtype) == 0)
            return names[i][1];
    return "?";
}

static struct ts_json json;

static enum ts_json_kind next(void)
{
    struct ts_error error;
    if (ts_json_next(&json, &error) != TS_OK)
        fail_msg("expected.json: %s", error.message);
    return json.kind;
}

static void text_of(char *text, size_t size)
{
    assert_true(json.raw_size < size);
    memcpy(text, json.raw, json.raw_size);
    text[json.raw_size] = '\0';
}

/* The values of one tensor, the first up to 64 of them. */
static void check_values(const struct ts_tensor *tensor, const char *place)
{
    double *found = NULL;
    char text[64];
    size_t components = ts_type_info(tensor->type)->components, count = 0, most = 64;
    struct ts_error error;
    if (tensor->count * components < most)
        most = (size_t)tensor->count * components;
    found = calloc(most + 2, sizeof *found);
    assert_non_null(found);
    assert_int_equal(ts_tensor_read_f64(tensor, 0, most / components, found, &error), TS_OK);
    assert_int_equal(next(), TS_JSON_ARRAY);
    while (next() == TS_JSON_STRING) {
        double expected;
        text_of(text, sizeof text);
        expected = strtod(text, NULL);
        assert_true(count < most);
        if (ts_double_bits(expected) != ts_double_bits(found[count]) &&
            !(expected != expected && found[count] != found[count]))
            fail_msg("%s: value %zu is %.17g, expected %s", place, count, found[count], text);
        count++;
    }
    assert_int_equal(count, most);
    free(found);
}

static void check_tensor(const struct ts_tensor *tensor, const char *place)
{
    char text[64];
    assert_int_equal(next(), TS_JSON_OBJECT);
    while (next() == TS_JSON_KEY) {
        if (ts_json_equals(&json, "shape")) {
            unsigned rank = 0;
            assert_int_equal(next(), TS_JSON_ARRAY);
            while (next() == TS_JSON_NUMBER) {
                uint64_t size;
                struct ts_error error;
                assert_int_equal(ts_json_uint64(&json, &size, &error), TS_OK);
                assert_true(rank < tensor->rank);
                assert_int_equal(tensor->shape[rank], size);
                rank++;
            }
            assert_int_equal(tensor->rank, rank);
        } else if (ts_json_equals(&json, "dtype")) {
            assert_int_equal(next(), TS_JSON_STRING);
            text_of(text, sizeof text);
            if (strcmp(text, "quantized") == 0)
                assert_int_equal(tensor->type, TS_CODED);
            else if (strcmp(type_named(text), ts_tensor_type_name(tensor)) != 0)
                fail_msg("%s: type %s, expected %s", place, ts_tensor_type_name(tensor), text);
        } else {
            assert_true(ts_json_equals(&json, "values"));
            check_values(tensor, place);
        }
    }
}

/* Every tensor of the file, in this order and no other. */
static void check_file(const char *folder, const char *name)
{
    struct ts_bundle *bundle = open_file(folder, name);
    size_t index = 0;
    assert_int_equal(next(), TS_JSON_OBJECT);
    while (next() == TS_JSON_KEY) {
        char tensor[256], place[600];
        text_of(tensor, sizeof tensor);
        snprintf(place, sizeof place, "%s: %s", name, tensor);
        if (index >= bundle->count)
            fail_msg("%s is missing", place);
        if (strcmp(bundle->tensors[index]->name, tensor) != 0)
            fail_msg("%s: tensor %zu is %s", place, index, bundle->tensors[index]->name);
        check_tensor(bundle->tensors[index], place);
        index++;
    }
    if (index != bundle->count)
        fail_msg("%s: %zu tensors, expected %zu; the next is %s", name, bundle->count, index,
                 bundle->tensors[index]->name);
    ts_bundle_free(bundle);
}

static void check_folder(const char *folder, unsigned files)
{
    char path[512], name[256];
    struct ts_source *source;
    struct ts_error error;
    unsigned count = 0;
    snprintf(path, sizeof path, "%s/expected.json", folder);
    assert_int_equal(ts_source_open(path, &source, &error), TS_OK);
    ts_json_init(&json, source->data, (size_t)source->size);
    assert_int_equal(next(), TS_JSON_OBJECT);
    while (next() == TS_JSON_KEY) {
        text_of(name, sizeof name);
        check_file(folder, name);
        count++;
    }
    ts_source_release(source);
    assert_int_equal(count, files);
}

static void golden_of_torch_2(void **state)
{
    (void)state;
    check_folder(SHARED, 3);
}

static void golden_of_torch_1(void **state)
{
    (void)state;
    check_folder(MADE, 38);
}

static const struct ts_tensor *tensor_of(const struct ts_bundle *bundle, const char *name, const char *type,
                                         const char *shape)
{
    const struct ts_tensor *tensor = ts_bundle_tensor(bundle, name);
    struct ts_buffer text;
    if (!tensor)
        fail_msg("%s is missing", name);
    assert_string_equal(ts_tensor_type_name(tensor), type);
    ts_buffer_init(&text, 1024);
    ts_tensor_shape_text(tensor, &text);
    assert_string_equal(text.data, shape);
    ts_buffer_release(&text);
    return tensor;
}

static void has_values(const struct ts_tensor *tensor, size_t count, const double *expected)
{
    double found[64];
    struct ts_error error;
    assert_true(count <= 64);
    assert_int_equal(ts_tensor_read_f64(tensor, 0, count, found, &error), TS_OK);
    for (size_t i = 0; i < count; i++)
        if (found[i] != expected[i])
            fail_msg("%s: value %zu is %.17g, expected %.17g", tensor->name, i, found[i], expected[i]);
}

static void has_attribute(const struct ts_bundle *bundle, const char *name, const char *key, const char *value)
{
    const struct ts_tensor *tensor = ts_bundle_tensor(bundle, name);
    const char *found = tensor ? ts_tensor_attribute(tensor, key) : NULL;
    if (!value) {
        assert_null(found);
        return;
    }
    assert_non_null(found);
    assert_string_equal(found, value);
}

static void has_meta(const struct ts_bundle *bundle, const char *key, const char *value)
{
    const char *found = ts_bundle_meta_value(bundle, key);
    if (!found)
        fail_msg("no metadata %s", key);
    assert_string_equal(found, value);
}

static bool was_skipped(const struct ts_bundle *bundle, const char *path, const char *reason)
{
    for (size_t i = 0; i < bundle->skip_count; i++)
        if (strcmp(bundle->skips[i].path, path) == 0 && strstr(bundle->skips[i].reason, reason))
            return true;
    return false;
}

/* The golden files that expected.json says nothing about: names, types and shapes as their pickles have them (looked
 * at with pickletools), values where the bytes are easy to read. */
static void golden_without_expectations(void **state)
{
    struct ts_bundle *bundle;
    (void)state;
    bundle = open_file(SHARED, "bare_tensor.pt");
    assert_int_equal(bundle->count, 1);
    assert_int_equal(bundle->tensors[0]->rank, 2);
    assert_int_equal(bundle->tensors[0]->count, 16);
    assert_int_equal(bundle->tensors[0]->type, TS_F32);
    ts_bundle_free(bundle);

    bundle = open_file(SHARED, "custom_class.pt");
    assert_int_equal(bundle->count, 3);
    tensor_of(bundle, "a", "f32", "[2,2]");
    has_values(tensor_of(bundle, "obj.a", "i64", "[]"), 1, (double[]){1});
    has_values(tensor_of(bundle, "obj.t", "f32", "[4]"), 4, (double[]){0, 1, 2, 3});
    has_meta(bundle, "obj", "<__main__.Custom>");
    ts_bundle_free(bundle);

    bundle = open_file(SHARED, "full_module.pt");
    assert_int_equal(bundle->count, 12);
    tensor_of(bundle, "0.weight", "f32", "[3,4]");
    tensor_of(bundle, "0.bias", "f32", "[3]");
    has_values(tensor_of(bundle, "1.weight", "f32", "[3]"), 3, (double[]){1, 1, 1});
    has_values(tensor_of(bundle, "1.bias", "f32", "[3]"), 3, (double[]){0, 0, 0});
    has_values(tensor_of(bundle, "1.eps", "f64", "[]"), 1, (double[]){1e-5});
    has_values(tensor_of(bundle, "1.normalized_shape", "i64", "[1]"), 1, (double[]){3});
    has_meta(bundle, "1", "<torch.nn.modules.normalization.LayerNorm>");
    ts_bundle_free(bundle);

    bundle = open_file(SHARED, "nested.pt");
    assert_int_equal(bundle->count, 12);
    tensor_of(bundle, "model.layer.0.weight", "f32", "[3,3]");
    tensor_of(bundle, "model.layer.0.bias", "f32", "[3]");
    tensor_of(bundle, "optimizer.state.0.exp_avg", "f32", "[3,3]");
    has_values(tensor_of(bundle, "optimizer.state.0.step", "f32", "[]"), 1, (double[]){7});
    has_values(tensor_of(bundle, "optimizer.param_groups.0.params", "i64", "[2]"), 2, (double[]){0, 1});
    has_values(tensor_of(bundle, "loss", "f64", "[]"), 1, (double[]){0.25});
    tensor_of(bundle, "list.0", "f32", "[2]");
    tensor_of(bundle, "list.1.0", "f32", "[2]");
    has_values(tensor_of(bundle, "list.1.2", "bool", "[]"), 1, (double[]){1});
    has_values(tensor_of(bundle, "set", "i64", "[2]"), 2, (double[]){1, 2});
    has_meta(bundle, "big", "1208925819614629174706176");
    has_meta(bundle, "name", "x");
    has_meta(bundle, "size", "torch.Size([2, 3])");
    has_meta(bundle, "dtype", "torch.float16");
    has_meta(bundle, "device", "cpu");
    has_meta(bundle, "list.1.1", "None");
    ts_bundle_free(bundle);

    bundle = open_file(SHARED, "numpy_inside.pt");
    assert_int_equal(bundle->count, 2);
    has_values(tensor_of(bundle, "np", "f32", "[2,3]"), 6, (double[]){0, 1, 2, 3, 4, 5});
    has_values(tensor_of(bundle, "npscalar", "f64", "[]"), 1, (double[]){1.5});
    ts_bundle_free(bundle);

    for (unsigned protocol = 2; protocol <= 5; protocol++) {
        char name[32];
        snprintf(name, sizeof name, "protocol%u.pt", protocol);
        bundle = open_file(SHARED, name);
        assert_int_equal(bundle->count, 1);
        tensor_of(bundle, "w", "f32", "[3,2]");
        ts_bundle_free(bundle);
    }

    bundle = open_file(SHARED, "quant_sparse.pt");
    assert_int_equal(bundle->count, 3);
    tensor_of(bundle, "q", "torch affine", "[4,4]");
    has_values(tensor_of(bundle, "sparse.indices", "i64", "[2,4]"), 8, (double[]){0, 1, 2, 3, 0, 1, 2, 3});
    has_values(tensor_of(bundle, "sparse.values", "f32", "[4]"), 4, (double[]){1, 1, 1, 1});
    has_attribute(bundle, "sparse.values", "sparse", "sparse_coo [4,4]");
    has_attribute(bundle, "q", "scheme", "qint8 per_tensor_affine, scale 0.1, zero point 3");
    ts_bundle_free(bundle);

    bundle = open_file(SHARED, "state_dict.pth");
    assert_int_equal(bundle->count, 2);
    tensor_of(bundle, "weight", "f32", "[3,4]");
    tensor_of(bundle, "bias", "f32", "[3]");
    assert_int_equal(bundle->meta_count, 0); /* nothing of the OrderedDict's _metadata */
    ts_bundle_free(bundle);
}

static void codes_are_explained(void **state)
{
    struct ts_bundle *bundle = open_file(MADE, "quantized.pt");
    const struct ts_tensor *tensor = ts_bundle_tensor(bundle, "quint8");
    struct ts_buffer text;
    (void)state;
    ts_buffer_init(&text, 1024);
    tensor->codec->explain(tensor, 0, &text); /* -0.44 / 0.05 + 100 */
    assert_string_equal(text.data, "code 91, zero point 100, scale 0.05");
    ts_buffer_clear(&text);
    tensor = ts_bundle_tensor(bundle, "channel1");
    tensor->codec->explain(tensor, 5, &text);
    assert_string_equal(text.data, "code 0, zero point 5, scale 0.2 (channel 1)");
    ts_buffer_release(&text);
    has_attribute(bundle, "channel1", "scheme", "quint8 per_channel_affine, axis 1");
    has_attribute(bundle, "float_qparams", "scheme", "quint8 per_channel_affine_float_qparams, axis 0");
    has_attribute(bundle, "qint8", "storage", "0"); /* shared with its transpose */
    has_attribute(bundle, "quint8", "storage", NULL);
    ts_bundle_free(bundle);
}

/* Reading from the middle must give what reading from the start gives. */
static void quantized_in_pieces(void **state)
{
    struct ts_bundle *bundle = open_file(MADE, "quantized.pt");
    (void)state;
    for (size_t i = 0; i < bundle->count; i++) {
        const struct ts_tensor *tensor = bundle->tensors[i];
        float whole[12], part[12];
        struct ts_error error;
        assert_int_equal(tensor->count, 12);
        assert_int_equal(ts_tensor_read_f32(tensor, 0, 12, whole, &error), TS_OK);
        for (size_t first = 0; first < 12; first++) {
            assert_int_equal(ts_tensor_read_f32(tensor, first, 12 - first, part, &error), TS_OK);
            assert_memory_equal(part, whole + first, (12 - first) * sizeof *part);
        }
    }
    ts_bundle_free(bundle);
}

static void shared_storages_are_marked(void **state)
{
    struct ts_bundle *bundle = open_file(SHARED, "views.pt");
    (void)state;
    has_attribute(bundle, "base", "storage", "0");
    has_attribute(bundle, "transposed", "storage", "0");
    has_attribute(bundle, "row", "storage", "0");
    has_attribute(bundle, "expanded", "storage", NULL);
    /* views of one mapped storage, not copies */
    assert_ptr_equal(ts_bundle_tensor(bundle, "base")->source, ts_bundle_tensor(bundle, "slice")->source);
    assert_int_equal(ts_bundle_tensor(bundle, "slice")->offset, 40);
    ts_bundle_free(bundle);
}

static void what_is_no_tensor(void **state)
{
    struct ts_bundle *bundle = open_file(MADE, "numbers_protocol4.pkl");
    (void)state;
    has_meta(bundle, "huge", "1000000000000000000000000000000");
    has_meta(bundle, "text", "abc");
    has_meta(bundle, "none", "None");
    has_meta(bundle, "words", "[x, y]");
    has_meta(bundle, "range", "<builtins.range>(0, 3, 1)");
    has_meta(bundle, "bytes", "3 bytes");
    has_meta(bundle, "mixed.1", "a");
    has_attribute(bundle, "huges", "note", "Python integers beyond 64 bits, rounded");
    assert_int_equal(bundle->skip_count, 0);
    ts_bundle_free(bundle);
    bundle = open_file(MADE, "many_keys.pkl");
    has_attribute(bundle, "vocabulary", "keys",
                  "1000 keys: word0, word1, word2, word3, word4, word5, word6, word7, ...");
    has_meta(bundle, "pair", "(x, y)");
    has_meta(bundle, "mixed.0", "zero");
    ts_bundle_free(bundle);
    bundle = open_file(MADE, "numpy_strange.pkl");
    assert_true(was_skipped(bundle, "numpy_strange.pkl:objects", "numpy array of Python objects"));
    assert_true(was_skipped(bundle, "numpy_strange.pkl:strings", "numpy array of strings"));
    assert_true(was_skipped(bundle, "numpy_strange.pkl:records", "numpy array of records"));
    ts_bundle_free(bundle);
    bundle = open_file(MADE, "meta.pt");
    assert_true(was_skipped(bundle, "meta.pt:a", "is a meta tensor"));
    ts_bundle_free(bundle);
}

static void classes_are_named(void **state)
{
    struct ts_bundle *bundle = open_file(MADE, "objects.pt");
    (void)state;
    has_meta(bundle, "plain", "<__main__.Plain>");
    has_meta(bundle, "point", "<__main__.Point>");
    has_meta(bundle, "color", "<builtins.getattr>(<__main__.Color>, GREEN)"); /* how Python 3.11 writes enums */
    has_meta(bundle, "path", "<pathlib.PurePosixPath>(a, b)");
    assert_true(was_skipped(bundle, "objects.pt:plain.parent", "refers to itself"));
    assert_true(bundle->skips[0].harmless);
    ts_bundle_free(bundle);
}

static void scripts_have_their_classes(void **state)
{
    struct ts_bundle *bundle = open_file(MADE, "script.pt");
    (void)state;
    has_meta(bundle, "inner", "<__torch__.torch.nn.modules.linear.Linear>");
    ts_bundle_free(bundle);
}

/* One of the dumps in the archives is a Python number. */
static void numbers_in_archives(void **state)
{
    struct ts_bundle *bundle = open_file("tests/golden/archives", "model1_tp8.zip");
    bool found = false;
    (void)state;
    for (size_t i = 0; i < bundle->count; i++) {
        const struct ts_tensor *tensor = bundle->tensors[i];
        if (strstr(tensor->name, "3_sliding")) {
            double value;
            struct ts_error error;
            assert_int_equal(tensor->type, TS_I64);
            assert_int_equal(tensor->rank, 0);
            assert_int_equal(ts_tensor_read_f64(tensor, 0, 1, &value, &error), TS_OK);
            found = true;
        }
    }
    assert_true(found);
    assert_int_equal(bundle->count, 26);
    ts_bundle_free(bundle);
}

/* Runs the reader over bytes in memory. */
static struct ts_bundle *read_bytes(const void *data, size_t size)
{
    struct ts_input input = {.member = "x"};
    struct ts_bundle *bundle = ts_bundle_new("x");
    struct ts_error error;
    assert_non_null(bundle);
    assert_int_equal(ts_source_copy(data, size, "x", &input.source, &error), TS_OK);
    input.spool = ts_spool_new((uint64_t)1 << 30);
    assert_non_null(input.spool);
    if (ts_reader_torch.read(&input, bundle, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_spool_free(input.spool);
    ts_source_release(input.source);
    return bundle;
}

/* numpy arrays of types that other packages add. */
static void types_of_ml_dtypes(void **state)
{
    static const char pickle[] = "\x80\x03"
                                 "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
                                 "C\1b\x87R(K\1K\2\x85"
                                 "cnumpy\ndtype\ncml_dtypes\nbfloat16\n\x89\x88\x87R"
                                 "(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"
                                 "C\4\x80\x3f\0\x40tb.";
    struct ts_bundle *bundle = read_bytes(pickle, sizeof pickle - 1);
    (void)state;
    has_values(tensor_of(bundle, "", "bf16", "[2]"), 2, (double[]){1, 2});
    ts_bundle_free(bundle);
}

/* Before torch 0.4 a tensor was an object of its type's class, with its storage in its state. */
static void tensors_as_objects(void **state)
{
    static const char file[] = "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
                               "\x80\2M\xe9\3.\x80\2}."
                               "\x80\2ctorch\nFloatTensor\n)\x81("
                               "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                               "0X\3\0\0\0cpuK\2NtQK\0K\2\x85K\1\x85tb."
                               "\x80\2](X\1\0\0\0"
                               "0e."
                               "\2\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x40";
    struct ts_bundle *bundle = read_bytes(file, sizeof file - 1);
    (void)state;
    has_values(tensor_of(bundle, "", "f32", "[2]"), 2, (double[]){1, 2});
    ts_bundle_free(bundle);
}

/* A hundred thousand numbers are listed one by one, and no more; tensors behind them still are. */
static void very_many_numbers(void **state)
{
    const size_t many = 140010;
    char *pickle = malloc(2 * many + 64), *at = pickle;
    struct ts_bundle *bundle;
    static const char head[] = "\x80\2](X\1\0\0\0a", tail[] = "(K\7K\x08te.";
    (void)state;
    assert_non_null(pickle);
    memcpy(at, head, sizeof head - 1);
    at += sizeof head - 1;
    for (size_t i = 0; i < many; i++) {
        *at++ = 'K';
        *at++ = (char)(i % 100);
    }
    memcpy(at, tail, sizeof tail - 1);
    at += sizeof tail - 1;
    bundle = read_bytes(pickle, (size_t)(at - pickle));
    free(pickle);
    assert_int_equal(bundle->count, 100001);
    has_values(bundle->tensors[23456], 1, (double[]){56});
    has_values(tensor_of(bundle, "140011", "i64", "[2]"), 2, (double[]){7, 8});
    assert_true(was_skipped(bundle, "x:100001", "has more than 100000 Python numbers"));
    ts_bundle_free(bundle);
}

static unsigned bid_on(const void *data, size_t size)
{
    struct ts_input input = {.member = "x"};
    struct ts_error error;
    unsigned bid;
    assert_int_equal(ts_source_copy(data, size, "x", &input.source, &error), TS_OK);
    bid = ts_reader_torch.bid(&input);
    ts_source_release(input.source);
    return bid;
}

static void bids(void **state)
{
    static const uint8_t legacy[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    static const uint8_t framed[] = "\x80\x04\x95\x0d\0\0\0\0\0\0\0\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    static char tar[1024] = "sys_info";
    (void)state;
    memcpy(tar + 257, "ustar", 5);
    assert_int_equal(bid_on(legacy, 15), 120);
    assert_int_equal(bid_on(legacy, 14), 0); /* cut */
    assert_int_equal(bid_on(framed, 24), 120);
    assert_int_equal(bid_on("L119547037146038801333356L\n.", 28), 120);
    assert_true(bid_on(tar, sizeof tar) > 50);
    tar[0] = 'x';
    assert_int_equal(bid_on(tar, sizeof tar), 0);
    assert_int_equal(bid_on("\x80\x04N.", 4), 12);
    assert_int_equal(bid_on("\x80\x06N.", 4), 0);
    assert_int_equal(bid_on("\x80\x04N", 3), 0);
    assert_int_equal(bid_on("hello", 5), 0);
    assert_int_equal(bid_on("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_of_torch_2),           cmocka_unit_test(golden_of_torch_1),
        cmocka_unit_test(golden_without_expectations), cmocka_unit_test(codes_are_explained),
        cmocka_unit_test(quantized_in_pieces),         cmocka_unit_test(shared_storages_are_marked),
        cmocka_unit_test(what_is_no_tensor),           cmocka_unit_test(classes_are_named),
        cmocka_unit_test(scripts_have_their_classes),  cmocka_unit_test(numbers_in_archives),
        cmocka_unit_test(types_of_ml_dtypes),          cmocka_unit_test(tensors_as_objects),
        cmocka_unit_test(very_many_numbers),           cmocka_unit_test(bids),
    };
    return cmocka_run_group_tests_name("torch", tests, NULL, NULL);
}
