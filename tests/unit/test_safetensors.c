/* safetensors against values that the real library wrote: every dtype of the format, sharded sets, order. */
#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#include "base/json.h"
#include "opened.h"
#include "read/open.h"

static struct ts_bundle *open_input(const char *path)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    return bundle;
}

static const struct ts_tensor *tensor_of(const struct ts_bundle *bundle, const char *name)
{
    const struct ts_tensor *tensor = ts_bundle_tensor(bundle, name);
    if (!tensor)
        fail_msg("no tensor \"%s\"", name);
    return tensor;
}

/* The next array of numbers (or the strings nan, inf, -inf) into values; returns how many. */
static size_t read_numbers(struct ts_json *json, double *values, size_t most)
{
    struct ts_error error;
    size_t count = 0;
    assert_int_equal(ts_json_expect(json, TS_JSON_ARRAY, "an array", &error), TS_OK);
    for (;;) {
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_ARRAY_END)
            return count;
        assert_true(count < most);
        if (json->kind == TS_JSON_STRING)
            values[count++] = ts_json_equals(json, "nan")   ? (double)NAN
                              : ts_json_equals(json, "inf") ? (double)INFINITY
                                                            : -(double)INFINITY;
        else
            assert_int_equal(ts_json_double(json, &values[count++], &error), TS_OK);
    }
}

static void every_dtype_has_the_library_s_values(void **state)
{
    struct ts_bundle *bundle = open_input("tests/golden/safetensors/every_dtype.safetensors");
    struct ts_arena arena;
    struct ts_error error;
    struct ts_json json;
    size_t size, checked = 0;
    char *text = load_file("tests/golden/safetensors/every_dtype.json", &size);
    double expected[600], found[600];
    (void)state;
    assert_int_equal(bundle->count, 24);
    assert_int_equal(bundle->skip_count, 0);
    ts_arena_init(&arena, 1 << 20);
    ts_json_init(&json, text, size);
    assert_int_equal(ts_json_expect(&json, TS_JSON_OBJECT, "an object", &error), TS_OK);
    while (ts_json_next(&json, &error) == TS_OK && json.kind == TS_JSON_KEY) {
        const struct ts_tensor *tensor;
        const char *name;
        size_t count;
        assert_int_equal(ts_json_copy(&json, &arena, &name, &error), TS_OK);
        count = read_numbers(&json, expected, 600);
        tensor = tensor_of(bundle, name);
        assert_int_equal(tensor->count * ts_type_info(tensor->type)->components, count);
        assert_int_equal(ts_tensor_read_f64(tensor, 0, tensor->count, found, &error), TS_OK);
        for (size_t i = 0; i < count; i++)
            if (!(found[i] == expected[i] || (isnan(found[i]) && isnan(expected[i]))))
                fail_msg("%s[%zu] is %.17g, the library says %.17g", name, i, found[i], expected[i]);
        checked++;
    }
    assert_int_equal(checked, 23); /* all but the four-bit floats, which torch cannot widen */
    free(text);
    ts_arena_release(&arena);
    ts_bundle_free(bundle);
}

/* ml_dtypes decodes each code of the small floats; two of four bits in a byte, low ones first. */
static void four_bit_floats_are_packed_low_first(void **state)
{
    struct ts_bundle *bundle = open_input("tests/golden/safetensors/every_dtype.safetensors");
    const struct ts_tensor *tensor = tensor_of(bundle, "codes_float4");
    struct ts_error error;
    struct ts_json json;
    size_t size;
    char *text = load_file("tests/golden/safetensors/small_floats.json", &size);
    double codes[256], found[512];
    (void)state;
    ts_json_init(&json, text, size);
    assert_int_equal(ts_json_expect(&json, TS_JSON_OBJECT, "an object", &error), TS_OK);
    while (ts_json_next(&json, &error) == TS_OK && json.kind == TS_JSON_KEY) {
        if (!ts_json_equals(&json, "float4_e2m1fn")) {
            assert_int_equal(ts_json_skip_value(&json, &error), TS_OK);
            continue;
        }
        assert_int_equal(read_numbers(&json, codes, 16), 16);
    }
    assert_int_equal(tensor->count, 512);
    assert_int_equal(ts_tensor_read_f64(tensor, 0, 512, found, &error), TS_OK);
    for (size_t i = 0; i < 512; i++)
        assert_true(found[i] == codes[i % 2 ? i / 2 >> 4 : i / 2 & 15]);
    /* from the middle of a byte */
    assert_int_equal(ts_tensor_read_f64(tensor, 33, 3, found, &error), TS_OK);
    assert_true(found[0] == codes[1] && found[1] == codes[1] && found[2] == codes[1]);
    free(text);
    ts_bundle_free(bundle);
}

static const struct {
    const char *json_name;
    enum ts_type type;
} small_floats[] = {
    {"float8_e4m3fn", TS_F8_E4M3},
    {"float8_e5m2", TS_F8_E5M2},
    {"float8_e4m3fnuz", TS_F8_E4M3FNUZ},
    {"float8_e5m2fnuz", TS_F8_E5M2FNUZ},
    {"float8_e8m0fnu", TS_F8_E8M0},
    {"float8_e3m4", TS_F8_E3M4},
    {"float8_e4m3b11fnuz", TS_F8_E4M3B11FNUZ},
};

static void every_code_of_small_floats(void **state)
{
    struct ts_error error;
    struct ts_json json;
    size_t size, checked = 0;
    char *text = load_file("tests/golden/safetensors/small_floats.json", &size);
    double codes[256], found[256];
    (void)state;
    ts_json_init(&json, text, size);
    assert_int_equal(ts_json_expect(&json, TS_JSON_OBJECT, "an object", &error), TS_OK);
    while (ts_json_next(&json, &error) == TS_OK && json.kind == TS_JSON_KEY) {
        const char *name = NULL;
        enum ts_type type = TS_F32;
        uint8_t bytes[256];
        size_t count;
        for (size_t i = 0; i < sizeof small_floats / sizeof *small_floats; i++)
            if (ts_json_equals(&json, small_floats[i].json_name)) {
                name = small_floats[i].json_name;
                type = small_floats[i].type;
            }
        if (ts_json_equals(&json, "float6_e2m3fn") || ts_json_equals(&json, "float6_e3m2fn")) {
            name = "float6";
            type = ts_json_equals(&json, "float6_e2m3fn") ? TS_F6_E2M3 : TS_F6_E3M2;
        }
        if (!name) {
            assert_int_equal(ts_json_skip_value(&json, &error), TS_OK);
            continue;
        }
        count = read_numbers(&json, codes, 256);
        if (count == 64) { /* packed: four codes in three bytes, low bits first */
            memset(bytes, 0, sizeof bytes);
            for (unsigned i = 0; i < 64 * 6; i++)
                bytes[i / 8] |= (uint8_t)((i / 6 >> i % 6 & 1) << i % 8);
        } else {
            for (unsigned i = 0; i < 256; i++)
                bytes[i] = (uint8_t)i;
        }
        ts_type_decode_f64(type, false, bytes, count, found);
        for (size_t i = 0; i < count; i++)
            if (!(found[i] == codes[i] || (isnan(found[i]) && isnan(codes[i]))))
                fail_msg("%s code %zu is %.9g, should be %.9g", name, i, found[i], codes[i]);
        checked++;
    }
    assert_int_equal(checked, 9);
    free(text);
}

/* GPT-OSS stores [experts, rows, groups, 16] bytes; transformers hands out the transpose of the last two axes. */
static void mxfp4_blocks_equal_transformers(void **state)
{
    struct ts_bundle *bundle = open_input("tests/golden/safetensors/mxfp4.safetensors");
    const struct ts_tensor *joined = tensor_of(bundle, "experts.gate_up_proj");
    const struct ts_tensor *expected = tensor_of(bundle, "expected.transformers");
    struct ts_error error;
    float found[768], wanted[768];
    (void)state;
    assert_int_equal(joined->count, 768);
    assert_int_equal(joined->type, TS_CODED);
    assert_int_equal(ts_tensor_read_f32(joined, 0, 768, found, &error), TS_OK);
    assert_int_equal(ts_tensor_read_f32(expected, 0, 768, wanted, &error), TS_OK);
    assert_int_equal(joined->rank, 3);
    assert_int_equal(joined->shape[1], 6);
    assert_int_equal(joined->shape[2], 64);
    for (size_t e = 0; e < 2; e++)
        for (size_t row = 0; row < 6; row++)
            for (size_t i = 0; i < 64; i++)
                assert_true(found[(e * 6 + row) * 64 + i] == wanted[(e * 64 + i) * 6 + row]);
    ts_bundle_free(bundle);
}

static void torch_and_safetensors_hold_the_same(void **state)
{
    static const char *const pairs[][2] = {{"tests/golden/compare/a.safetensors", "tests/golden/compare/a.pt"},
                                           {"tests/golden/compare/b.safetensors", "tests/golden/compare/b.pt"}};
    struct ts_error error;
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        struct ts_bundle *a = open_input(pairs[p][0]), *b = open_input(pairs[p][1]);
        assert_int_equal(a->count, 25);
        assert_int_equal(b->count, 25);
        for (size_t i = 0; i < a->count; i++) {
            const struct ts_tensor *left = a->tensors[i], *right = tensor_of(b, left->name);
            assert_int_equal(left->count, right->count);
            assert_int_equal(left->type, right->type);
            for (uint64_t at = 0; at < left->count; at += 512) {
                double x[512], y[512];
                size_t now = left->count - at < 512 ? (size_t)(left->count - at) : 512;
                assert_int_equal(ts_tensor_read_f64(left, at, now, x, &error), TS_OK);
                assert_int_equal(ts_tensor_read_f64(right, at, now, y, &error), TS_OK);
                assert_memory_equal(x, y, now * sizeof *x);
            }
        }
        ts_bundle_free(a);
        ts_bundle_free(b);
    }
}

/* The same members whether zipped or tarred, named by their files and in the order they were put in. */
static void archives_open_alike(void **state)
{
    static const char *const pairs[][2] = {
        {"tests/golden/archives/model1_tp8.zip", "tests/golden/archives/model1_tp8.tar.gz"},
        {"tests/golden/archives/model2_tp1.zip", "tests/golden/archives/model2_tp1.tar.gz"}};
    static const char *const stages[] = {"post_ln_pre_attn", "query",   "query_final",         "key",
                                         "key_final",        "value",   "value_final",         "post_attn",
                                         "scaling",          "sliding", "post_attn_pre_resid", "pre_mlp",
                                         "post_mlp"};
    struct ts_error error;
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        struct ts_bundle *zip = open_input(pairs[p][0]), *tar = open_input(pairs[p][1]);
        assert_int_equal(zip->skip_count, 0);
        assert_int_equal(tar->skip_count, 0);
        assert_int_equal(zip->count, 26);
        assert_int_equal(tar->count, 26);
        for (size_t i = 0; i < 26; i++) {
            char name[64];
            double x[1024], y[1024];
            const struct ts_tensor *left = zip->tensors[i], *right = tar->tensors[i];
            snprintf(name, sizeof name, "%zu_%s", (p ? 0 : 3) + i / 13, stages[i % 13]);
            assert_string_equal(left->name, name);
            assert_string_equal(right->name, name);
            assert_int_equal(left->count, right->count);
            assert_true(left->count <= 1024);
            assert_int_equal(ts_tensor_read_f64(left, 0, (size_t)left->count, x, &error), TS_OK);
            assert_int_equal(ts_tensor_read_f64(right, 0, (size_t)left->count, y, &error), TS_OK);
            assert_memory_equal(x, y, left->count * sizeof *x);
        }
        ts_bundle_free(zip);
        ts_bundle_free(tar);
    }
}

static void the_planted_difference_is_where_it_should_be(void **state)
{
    /* the archives' makers planted one: layer 1's post_mlp at [3, 17] */
    struct ts_bundle *a = open_input("tests/golden/archives/model1_tp8.zip");
    struct ts_bundle *b = open_input("tests/golden/archives/model2_tp1.zip");
    const struct ts_tensor *left = tensor_of(a, "4_post_mlp"), *right = tensor_of(b, "1_post_mlp");
    struct ts_error error;
    double x[1024], y[1024];
    size_t worst = 0;
    (void)state;
    assert_int_equal(left->count, right->count);
    assert_int_equal(ts_tensor_read_f64(left, 0, (size_t)left->count, x, &error), TS_OK);
    assert_int_equal(ts_tensor_read_f64(right, 0, (size_t)left->count, y, &error), TS_OK);
    for (size_t i = 0; i < left->count; i++)
        if (fabs(x[i] - y[i]) > fabs(x[worst] - y[worst]))
            worst = i;
    assert_int_equal(worst, 3 * left->shape[left->rank - 1] + 17);
    ts_bundle_free(a);
    ts_bundle_free(b);
}

static void a_sharded_set_is_one_checkpoint(void **state)
{
    struct ts_bundle *folder = open_input("tests/golden/models/mixtral");
    struct ts_bundle *index = open_input("tests/golden/models/mixtral/model.safetensors.index.json");
    (void)state;
    assert_int_equal(folder->skip_count, 0);
    assert_int_equal(folder->finding_count, 0);
    assert_int_equal(folder->count, index->count);
    assert_true(folder->count > 20);
    assert_non_null(folder->config);
    assert_non_null(index->config);
    for (size_t i = 0; i < folder->count; i++)
        assert_string_equal(folder->tensors[i]->name, index->tensors[i]->name);
    /* natural order over all shards */
    assert_non_null(tensor_of(folder, "model.embed_tokens.weight"));
    ts_bundle_free(folder);
    ts_bundle_free(index);
}

static void traces_keep_their_capture_order(void **state)
{
    const char *path = "../shared/golden/models/qwen3/trace_prompt.safetensors";
    struct ts_bundle *bundle;
    (void)state;
    if (access(path, R_OK) != 0)
        return;
    bundle = open_input(path);
    assert_string_equal(bundle->order, "order given in the metadata");
    assert_string_equal(bundle->tensors[0]->name, "model.embed_tokens");
    assert_string_equal(bundle->tensors[3]->name, "model.layers.0.input_layernorm");
    assert_string_equal(bundle->tensors[bundle->count - 1]->name, "logits");
    ts_bundle_free(bundle);
}

static void every_golden_model_opens_whole(void **state)
{
    static const char *const families[] = {"deepseek_v3", "gemma2", "gemma3",    "gemma3n", "gpt2",
                                           "gpt_oss",     "llama",  "mistral",   "mixtral", "olmoe",
                                           "phi3",        "qwen2",  "qwen2_moe", "qwen3",   "qwen3_moe"};
    char path[256];
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct ts_bundle *bundle;
        snprintf(path, sizeof path, "../shared/golden/models/%s", families[i]);
        if (access(path, R_OK) != 0)
            return;
        bundle = open_input(path);
        for (size_t k = 0; k < bundle->skip_count; k++)
            if (!bundle->skips[k].harmless)
                fail_msg("%s: %s: %s", path, bundle->skips[k].path, bundle->skips[k].reason);
        assert_int_equal(bundle->finding_count, 0);
        assert_true(bundle->count > 50);
        ts_bundle_free(bundle);
    }
}

static void paths_that_are_not_there_are_named(void **state)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    (void)state;
    assert_int_equal(ts_open("tests/golden/nothing.safetensors", NULL, &bundle, &error), TS_ERR_IO);
    assert_string_equal(error.path, "tests/golden/nothing.safetensors");
    assert_null(bundle);
    assert_int_not_equal(ts_open("/dev/null", NULL, &bundle, &error), TS_OK);
    assert_non_null(strstr(error.message, "device"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_has_the_library_s_values),
        cmocka_unit_test(four_bit_floats_are_packed_low_first),
        cmocka_unit_test(every_code_of_small_floats),
        cmocka_unit_test(mxfp4_blocks_equal_transformers),
        cmocka_unit_test(torch_and_safetensors_hold_the_same),
        cmocka_unit_test(archives_open_alike),
        cmocka_unit_test(the_planted_difference_is_where_it_should_be),
        cmocka_unit_test(a_sharded_set_is_one_checkpoint),
        cmocka_unit_test(traces_keep_their_capture_order),
        cmocka_unit_test(every_golden_model_opens_whole),
        cmocka_unit_test(paths_that_are_not_there_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
