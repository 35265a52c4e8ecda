/* Quantized weights, family by family: tests/golden/quantized holds small checkpoints whose codes were packed one by
 * one by make.py, with the values that must come out of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/number.h"
#include "read/quantized.h"
#include "read/reader.h"

extern const struct ts_reader ts_reader_safetensors;

static struct ts_error error;

static const char *path_of(const char *folder, const char *file)
{
    static char path[256];
    snprintf(path, sizeof path, "tests/golden/quantized/%s%s", folder, file);
    return path;
}

/* The checkpoint as stored, its config attached. */
static struct ts_bundle *open_raw(const char *folder)
{
    struct ts_bundle *bundle = ts_bundle_new(folder);
    struct ts_input input = {.member = "model.safetensors"};
    struct ts_error ignored;
    assert_non_null(bundle);
    ts_error_clear(&error);
    if (ts_source_open(path_of(folder, "/model.safetensors"), &input.source, &error) != TS_OK)
        fail_msg("%s: %s", folder, error.message);
    assert_true(ts_reader_safetensors.bid(&input) > 0);
    assert_int_equal(ts_reader_safetensors.read(&input, bundle, &error), TS_OK);
    ts_source_release(input.source);
    if (ts_source_open(path_of(folder, "/config.json"), &bundle->config, &ignored) != TS_OK)
        bundle->config = NULL;
    return bundle;
}

static struct ts_bundle *open_joined(const char *folder)
{
    struct ts_bundle *bundle = open_raw(folder);
    if (ts_quantized_join(bundle, &error) != TS_OK)
        fail_msg("%s: %s", folder, error.message);
    return bundle;
}

/* Equal bits, but any NaN for a NaN. */
static void check_value(const struct ts_tensor *tensor, uint64_t index, float found, float expected)
{
    if (isnan(expected) ? !isnan(found) : ts_float_bits(found) != ts_float_bits(expected))
        fail_msg("%s[%llu] is %.9g, expected %.9g", tensor->name, (unsigned long long)index, (double)found,
                 (double)expected);
}

static void check_piece(const struct ts_tensor *tensor, uint64_t first, uint64_t count, float *values,
                        const float *expected)
{
    if (ts_tensor_read_f32(tensor, first, (size_t)count, values, &error) != TS_OK)
        fail_msg("%s: %s", tensor->name, error.message);
    for (uint64_t i = 0; i < count; i++)
        check_value(tensor, first + i, values[i], expected[first + i]);
}

/* All at once, whole rows from any row on, then pieces that begin and end anywhere. */
static void check_values(const struct ts_tensor *tensor, const float *expected)
{
    float *values = calloc((size_t)tensor->count, sizeof *values);
    uint64_t state = 12345;
    assert_non_null(values);
    check_piece(tensor, 0, tensor->count, values, expected);
    for (uint64_t first = 0; tensor->rank && first < tensor->count; first += tensor->shape[tensor->rank - 1])
        check_piece(tensor, first, tensor->count - first, values, expected);
    for (int round = 0; round < 50; round++) {
        uint64_t first, count;
        state = state * 6364136223846793005u + 1442695040888963407u;
        first = (state >> 33) % tensor->count;
        count = 1 + (state >> 20) % 100;
        if (count > tensor->count - first)
            count = tensor->count - first;
        check_piece(tensor, first, count, values, expected);
    }
    free(values);
}

struct expected {
    char *name, *type, *scheme, *parts, *explained;
    uint64_t explain_index, shape[8], rank;
    float *values;
    size_t count, room;
};

static char *copy_string(struct ts_json *json, struct ts_arena *arena)
{
    const char *text;
    assert_int_equal(ts_json_expect(json, TS_JSON_STRING, "a string", &error), TS_OK);
    assert_int_equal(ts_json_copy(json, arena, &text, &error), TS_OK);
    return (char *)(uintptr_t)text;
}

static void take_values(struct ts_json *json, struct expected *expected)
{
    assert_int_equal(ts_json_expect(json, TS_JSON_ARRAY, "values", &error), TS_OK);
    for (;;) {
        double value;
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_ARRAY_END)
            return;
        if (json->kind == TS_JSON_STRING)
            value = ts_json_equals(json, "nan") ? NAN : ts_json_equals(json, "inf") ? INFINITY : -INFINITY;
        else
            assert_int_equal(ts_json_double(json, &value, &error), TS_OK);
        if (expected->count == expected->room) {
            expected->room = expected->room ? expected->room * 2 : 256;
            expected->values = realloc(expected->values, expected->room * sizeof(float));
            assert_non_null(expected->values);
        }
        expected->values[expected->count++] = (float)value;
    }
}

static void take_expected(struct ts_json *json, struct expected *expected, struct ts_arena *arena)
{
    *expected = (struct expected){0};
    for (;;) {
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_OBJECT_END)
            return;
        if (ts_json_equals(json, "name")) {
            expected->name = copy_string(json, arena);
        } else if (ts_json_equals(json, "type")) {
            expected->type = copy_string(json, arena);
        } else if (ts_json_equals(json, "scheme")) {
            expected->scheme = copy_string(json, arena);
        } else if (ts_json_equals(json, "parts")) {
            expected->parts = copy_string(json, arena);
        } else if (ts_json_equals(json, "values")) {
            take_values(json, expected);
        } else if (ts_json_equals(json, "shape")) {
            assert_int_equal(ts_json_expect(json, TS_JSON_ARRAY, "a shape", &error), TS_OK);
            for (ts_json_next(json, &error); json->kind == TS_JSON_NUMBER; ts_json_next(json, &error)) {
                assert_true(expected->rank < 8);
                assert_int_equal(ts_json_uint64(json, &expected->shape[expected->rank++], &error), TS_OK);
            }
        } else {
            assert_true(ts_json_equals(json, "explain"));
            assert_int_equal(ts_json_expect(json, TS_JSON_OBJECT, "an object", &error), TS_OK);
            for (ts_json_next(json, &error); json->kind == TS_JSON_KEY; ts_json_next(json, &error)) {
                if (ts_json_equals(json, "text")) {
                    expected->explained = copy_string(json, arena);
                } else {
                    assert_int_equal(ts_json_expect(json, TS_JSON_NUMBER, "an index", &error), TS_OK);
                    assert_int_equal(ts_json_uint64(json, &expected->explain_index, &error), TS_OK);
                }
            }
        }
    }
}

static void check_explanation(const struct ts_tensor *tensor, const struct expected *expected)
{
    struct ts_buffer text;
    ts_buffer_init(&text, 1 << 16);
    tensor->codec->explain(tensor, expected->explain_index, &text);
    assert_true(text.size > 0);
    assert_null(strchr(text.data, '\n'));
    if (expected->explained)
        assert_string_equal(text.data, expected->explained);
    ts_buffer_clear(&text);
    tensor->codec->explain(tensor, tensor->count, &text); /* out of range: nothing */
    assert_int_equal(text.size, 0);
    ts_buffer_release(&text);
}

static void check_tensor(const struct ts_bundle *bundle, const struct expected *expected)
{
    const struct ts_tensor *tensor = ts_bundle_tensor(bundle, expected->name);
    if (!tensor)
        fail_msg("there is no %s", expected->name);
    if (strcmp(ts_tensor_type_name(tensor), expected->type) != 0)
        fail_msg("%s has type %s, expected %s", tensor->name, ts_tensor_type_name(tensor), expected->type);
    assert_int_equal(tensor->rank, expected->rank);
    for (unsigned i = 0; i < tensor->rank; i++)
        assert_int_equal(tensor->shape[i], expected->shape[i]);
    if (!expected->values) {
        assert_int_not_equal(tensor->type, TS_CODED);
        return;
    }
    assert_int_equal(tensor->type, TS_CODED);
    assert_int_equal(tensor->count, expected->count);
    check_values(tensor, expected->values);
    check_explanation(tensor, expected);
    assert_non_null(ts_tensor_attribute(tensor, "scheme"));
    if (expected->scheme)
        assert_string_equal(ts_tensor_attribute(tensor, "scheme"), expected->scheme);
    if (expected->parts)
        assert_string_equal(ts_tensor_attribute(tensor, "parts"), expected->parts);
    for (size_t i = 0; i < tensor->part_count; i++) /* parts are out of the list, and in the tensor */
        if (strcmp(tensor->parts[i]->name, tensor->name) != 0)
            assert_null(ts_bundle_tensor(bundle, tensor->parts[i]->name));
}

static size_t check_tensors(struct ts_json *json, const struct ts_bundle *bundle, struct ts_arena *arena)
{
    size_t count = 0;
    assert_int_equal(ts_json_expect(json, TS_JSON_ARRAY, "tensors", &error), TS_OK);
    for (;;) {
        struct expected expected;
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_ARRAY_END)
            return count;
        take_expected(json, &expected, arena);
        check_tensor(bundle, &expected);
        free(expected.values);
        count++;
    }
}

static size_t check_findings(struct ts_json *json, const struct ts_bundle *bundle, struct ts_arena *arena)
{
    size_t count = 0;
    assert_int_equal(ts_json_expect(json, TS_JSON_ARRAY, "findings", &error), TS_OK);
    for (;;) {
        const char *tensor = NULL, *text = "";
        bool found = false;
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_ARRAY_END)
            return count;
        for (ts_json_next(json, &error); json->kind == TS_JSON_KEY; ts_json_next(json, &error)) {
            bool is_text = ts_json_equals(json, "text");
            assert_int_equal(ts_json_next(json, &error), TS_OK);
            if (json->kind == TS_JSON_STRING)
                assert_int_equal(ts_json_copy(json, arena, is_text ? &text : &tensor, &error), TS_OK);
        }
        for (size_t i = 0; i < bundle->finding_count && !found; i++) {
            const struct ts_finding *finding = &bundle->findings[i];
            found = (tensor ? finding->tensor && strcmp(finding->tensor, tensor) == 0 : !finding->tensor) &&
                    strstr(finding->text, text);
        }
        if (!found) {
            for (size_t i = 0; i < bundle->finding_count; i++)
                print_message("# %s: %s\n", bundle->findings[i].tensor ? bundle->findings[i].tensor : "-",
                              bundle->findings[i].text);
            fail_msg("no finding on %s says: %s", tensor ? tensor : "the whole", text);
        }
        count++;
    }
}

static void check_folder(const char *folder)
{
    struct ts_bundle *bundle = open_joined(folder);
    struct ts_source *source;
    struct ts_json json;
    struct ts_arena arena;
    ts_arena_init(&arena, 1 << 24);
    assert_int_equal(ts_source_open(path_of(folder, ".expected.json"), &source, &error), TS_OK);
    ts_json_init(&json, source->data, (size_t)source->size);
    assert_int_equal(ts_json_expect(&json, TS_JSON_OBJECT, "an object", &error), TS_OK);
    for (ts_json_next(&json, &error); json.kind == TS_JSON_KEY; ts_json_next(&json, &error)) {
        if (ts_json_equals(&json, "tensors"))
            assert_int_equal(check_tensors(&json, bundle, &arena), bundle->count);
        else
            assert_int_equal(check_findings(&json, bundle, &arena), bundle->finding_count);
    }
    ts_arena_release(&arena);
    ts_source_release(source);
    ts_bundle_free(bundle);
}

static void test_folder(void **state)
{
    check_folder(*state);
}

/* The logical tensor stands where its main part stood; the others close up. */
static void test_order_is_kept(void **state)
{
    static const char *const names[] = {"model.embed_tokens.weight", "model.layers.0.q_proj.weight",
                                        "model.layers.0.q_proj.bias", "model.layers.0.down_proj.weight"};
    struct ts_bundle *bundle = open_joined("awq");
    (void)state;
    assert_int_equal(bundle->count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(bundle->tensors[i]->name, names[i]);
    ts_bundle_free(bundle);
}

/* Names of several files carry the file's name; module settings are found all the same. */
static void test_names_with_a_file_in_front(void **state)
{
    struct ts_bundle *bundle = open_raw("mlx"), *plain = open_joined("mlx");
    (void)state;
    for (size_t i = 0; i < bundle->count; i++)
        bundle->tensors[i]->name = ts_arena_printf(&bundle->arena, "runs/a:%s", bundle->tensors[i]->name);
    assert_int_equal(ts_quantized_join(bundle, &error), TS_OK);
    assert_int_equal(bundle->count, plain->count);
    assert_int_equal(bundle->finding_count, 0);
    for (size_t i = 0; i < bundle->count; i++) {
        assert_string_equal(bundle->tensors[i]->name + 7, plain->tensors[i]->name);
        assert_string_equal(ts_tensor_type_name(bundle->tensors[i]), ts_tensor_type_name(plain->tensors[i]));
    }
    ts_bundle_free(plain);
    ts_bundle_free(bundle);
}

/* A group that does not exist is an error of the read, not a read outside. */
static void test_bad_group_index(void **state)
{
    struct ts_bundle *bundle = open_joined("gptq4_act_order");
    struct ts_tensor *weight = bundle->tensors[0];
    struct ts_source *bad;
    int32_t groups[128] = {0};
    float values[256];
    struct ts_buffer text;
    (void)state;
    groups[77] = 4; /* of 4 */
    groups[78] = -1;
    assert_int_equal(ts_source_copy(groups, sizeof groups, "bad", &bad, &error), TS_OK);
    assert_int_equal(ts_bundle_keep(bundle, bad, &error), TS_OK);
    ts_source_release(bad);
    weight->parts[3]->source = bad;
    weight->parts[3]->offset = 0;
    assert_int_equal(ts_tensor_read_f32(weight, 0, 77, values, &error), TS_OK);
    assert_int_equal(ts_tensor_read_f32(weight, 0, 78, values, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "column 77 is in group 4, of 4 groups"));
    ts_error_clear(&error);
    assert_int_equal(ts_tensor_read_f32(weight, 78, 1, values, &error), TS_ERR_FORMAT);
    ts_buffer_init(&text, 4096);
    weight->codec->explain(weight, 77, &text);
    assert_non_null(strstr(text.data, "does not exist"));
    ts_buffer_release(&text);
    ts_bundle_free(bundle);
}

/* 100,000 tensors of a model without quantization: a look at each name, nothing else. */
static void test_many_plain_tensors(void **state)
{
    struct ts_bundle *bundle = ts_bundle_new("many");
    struct ts_source *source;
    struct timespec before, after;
    uint8_t zeros[4] = {0};
    double seconds;
    (void)state;
    assert_int_equal(ts_source_copy(zeros, 4, "zeros", &source, &error), TS_OK);
    assert_int_equal(ts_bundle_keep(bundle, source, &error), TS_OK);
    ts_source_release(source);
    for (int i = 0; i < 100000; i++) {
        struct ts_tensor *tensor;
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.gate_proj.weight", i / 1000, i % 1000);
        assert_int_equal(ts_bundle_add(bundle, name, 0, &tensor, &error), TS_OK);
        tensor->type = TS_F32;
        tensor->source = source;
        assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    assert_int_equal(ts_quantized_join(bundle, &error), TS_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    seconds = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    print_message("# 100,000 names: %.2f ms\n", seconds * 1e3);
    assert_true(seconds < 0.5); /* some milliseconds; room for sanitizers */
    assert_int_equal(bundle->count, 100000);
    ts_bundle_free(bundle);
}

#define FOLDER(name)                                                                                                   \
    {                                                                                                                  \
        "golden " name, test_folder, NULL, NULL, (void *)(uintptr_t)name                                               \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER("awq"),
        FOLDER("awq_gemv"),
        FOLDER("awq_no_config"),
        FOLDER("gptq4"),
        FOLDER("gptq4_act_order"),
        FOLDER("gptq3"),
        FOLDER("gptq3_planar"),
        FOLDER("gptq_mixed"),
        FOLDER("gptq_no_config"),
        FOLDER("bnb_4bit"),
        FOLDER("bnb_int8"),
        FOLDER("mlx"),
        FOLDER("mlx_no_config"),
        FOLDER("mlx_modes"),
        FOLDER("fp8_blocks"),
        FOLDER("fp8_scales"),
        FOLDER("fp4_scales"),
        FOLDER("compressed_pack"),
        FOLDER("compressed_pack_no_shape"),
        FOLDER("compressed_int8"),
        FOLDER("compressed_fp4"),
        FOLDER("mxfp4"),
        FOLDER("broken_awq_gptq"),
        FOLDER("broken_gptq_no_config"),
        FOLDER("broken_bnb"),
        FOLDER("broken_mlx"),
        FOLDER("broken_mlx_no_config"),
        FOLDER("broken_fp8"),
        FOLDER("broken_compressed"),
        FOLDER("broken_mxfp4"),
        FOLDER("broken_config"),
        cmocka_unit_test(test_order_is_kept),
        cmocka_unit_test(test_names_with_a_file_in_front),
        cmocka_unit_test(test_bad_group_index),
        cmocka_unit_test(test_many_plain_tensors),
    };
    return cmocka_run_group_tests_name("quantized", tests, NULL, NULL);
}
