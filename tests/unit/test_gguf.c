/* GGUF against values known by hand (tests/malformed/make_gguf.py), against ggml's own decoding of every type, and
 * against the checkpoints that llama.cpp's converter made the files from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/number.h"
#include "read/open.h"
#include "tensor/tensor.h"

#define GOLDEN    "tests/golden/gguf/"
#define MALFORMED "tests/malformed/gguf/"

static struct ts_bundle *open_bundle(const char *path)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    return bundle;
}

static struct ts_tensor *tensor_of(struct ts_bundle *bundle, const char *name)
{
    struct ts_tensor *tensor = ts_bundle_tensor(bundle, name);
    if (!tensor)
        fail_msg("%s has no tensor \"%s\"", bundle->path, name);
    return tensor;
}

static float *values_of(struct ts_bundle *bundle, const char *name)
{
    struct ts_tensor *tensor = tensor_of(bundle, name);
    float *values = malloc((size_t)tensor->count * sizeof *values + 1);
    struct ts_error error;
    assert_non_null(values);
    assert_int_equal(ts_tensor_read_f32(tensor, 0, (size_t)tensor->count, values, &error), TS_OK);
    return values;
}

static void check_shape(struct ts_bundle *bundle, const char *name, enum ts_type type, const char *shape)
{
    struct ts_tensor *tensor = tensor_of(bundle, name);
    struct ts_buffer text;
    ts_buffer_init(&text, 256);
    ts_tensor_shape_text(tensor, &text);
    assert_string_equal(text.data, shape);
    assert_int_equal(tensor->type, type);
    ts_buffer_release(&text);
}

static void check_values(struct ts_bundle *bundle, const char *name, const double *expected, size_t count)
{
    struct ts_tensor *tensor = tensor_of(bundle, name);
    struct ts_error error;
    double values[16];
    assert_int_equal(tensor->count, count);
    assert_int_equal(ts_tensor_read_f64(tensor, 0, count, values, &error), TS_OK);
    for (size_t i = 0; i < count; i++)
        if (values[i] != expected[i])
            fail_msg("%s: %s[%zu] is %.17g, expected %.17g", bundle->path, name, i, values[i], expected[i]);
}

#define CHECK_VALUES(bundle, name, ...)                                                                                \
    check_values(bundle, name, (const double[]){__VA_ARGS__}, sizeof(double[]){__VA_ARGS__} / sizeof(double))

static void check_integers(struct ts_bundle *bundle, const char *name, int64_t first, int64_t second)
{
    struct ts_error error;
    int64_t values[2];
    assert_int_equal(ts_tensor_read_i64(tensor_of(bundle, name), 0, 2, values, &error), TS_OK);
    assert_true(values[0] == first && values[1] == second);
}

static void check_meta(struct ts_bundle *bundle, const char *key, const char *expected)
{
    const char *value = ts_bundle_meta_value(bundle, key);
    if (!value || strcmp(value, expected) != 0)
        fail_msg("%s: %s is %s, expected %s", bundle->path, key, value ? value : "absent", expected);
}

static bool has_skip(const struct ts_bundle *bundle, const char *path, const char *reason)
{
    for (size_t i = 0; i < bundle->skip_count; i++)
        if (strcmp(bundle->skips[i].path, path) == 0 && strstr(bundle->skips[i].reason, reason))
            return true;
    return false;
}

static bool has_finding(const struct ts_bundle *bundle, const char *text)
{
    for (size_t i = 0; i < bundle->finding_count; i++)
        if (strstr(bundle->findings[i].text, text))
            return true;
    return false;
}

static void check_handmade_tensors(struct ts_bundle *bundle)
{
    static const char *const order[] = {"f32", "f16",    "bf16",  "f64",  "i8",   "i16",  "i32",
                                        "i64", "scalar", "empty", "q8_0", "q4_k", "stack"};
    float *values;
    assert_int_equal(bundle->count, sizeof order / sizeof *order);
    for (size_t i = 0; i < bundle->count; i++)
        assert_string_equal(bundle->tensors[i]->name, order[i]);
    assert_int_equal(bundle->skip_count, 0);
    assert_int_equal(bundle->finding_count, 0);
    check_shape(bundle, "f32", TS_F32, "[2,3]");
    CHECK_VALUES(bundle, "f32", 1, 2, 3, 4, 5, 6);
    check_shape(bundle, "f16", TS_F16, "[4]");
    CHECK_VALUES(bundle, "f16", 0.5, -1, 65504, 0x1p-24);
    check_shape(bundle, "bf16", TS_BF16, "[2,1,2]");
    CHECK_VALUES(bundle, "bf16", 1, -2, 3, (double)INFINITY);
    check_shape(bundle, "f64", TS_F64, "[2]");
    CHECK_VALUES(bundle, "f64", 0.1, -1e300);
    CHECK_VALUES(bundle, "i8", -128, 0, 127);
    check_integers(bundle, "i16", -32768, 258);
    check_integers(bundle, "i32", INT32_MIN, 16909060);
    check_integers(bundle, "i64", INT64_MIN, ((int64_t)1 << 53) + 1);
    check_shape(bundle, "scalar", TS_F32, "[]");
    CHECK_VALUES(bundle, "scalar", 42);
    check_shape(bundle, "empty", TS_F32, "[5,0]");
    assert_int_equal(tensor_of(bundle, "empty")->count, 0);
    check_shape(bundle, "stack", TS_I8, "[2,1,3,2]");
    CHECK_VALUES(bundle, "stack", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);

    check_shape(bundle, "q8_0", ts_type_of_block(TS_BLOCK_Q8_0), "[2,32]");
    values = values_of(bundle, "q8_0");
    for (int i = 0; i < 32; i++) {
        assert_true(values[i] == 0.5f * (float)(i - 16));
        assert_true(values[32 + i] == -2.0f * (float)i);
    }
    free(values);
    /* Each half of 64 has 32 elements of code 3 and 32 of code 5; see good_tensors in make_gguf.py. */
    values = values_of(bundle, "q4_k");
    for (int i = 0; i < 256; i++) {
        float code = i % 64 < 32 ? 3.0f : 5.0f;
        assert_true(values[i] == (i < 128 ? code - 1.0f : 2.0f * code));
    }
    free(values);
}

static void check_handmade_keys(struct ts_bundle *bundle, bool wide)
{
    const char *many = ts_bundle_meta_value(bundle, "t.many");
    check_meta(bundle, "general.architecture", "handmade");
    check_meta(bundle, "t.u8", "255");
    check_meta(bundle, "t.i8", "-128");
    check_meta(bundle, "t.u16", "65535");
    check_meta(bundle, "t.i16", "-32768");
    check_meta(bundle, "t.u32", "4294967295");
    check_meta(bundle, "t.i32", "-2147483648");
    check_meta(bundle, "t.f32", "1e-06");
    check_meta(bundle, "t.base", "1000000");
    check_meta(bundle, "t.true", "true");
    check_meta(bundle, "t.false", "false");
    check_meta(bundle, "t.string", "grüße\n\"x\"");
    check_meta(bundle, "t.empty", "");
    check_meta(bundle, "t.numbers", "[3 i32] 1, -2, 3");
    check_meta(bundle, "t.tokens",
               "[100 strings] \"!\", \"\\\"\", \"#\", \"a\\\\b\", \"t0\", \"t1\", \"t2\", \"t3\", …");
    check_meta(bundle, "t.none", "[0 f32]");
    check_meta(bundle, "t.flags", "[2 bool] true, false");
    check_meta(bundle, "t.nested", "[3 arrays] ([2 i8] 1, 2), ([1 strings] \"x\"), ([0 u8])");
    assert_string_equal(many, "[1000 u16] 0, 1, 2, 3, 4, 5, 6, 7, …");
    if (wide) {
        check_meta(bundle, "t.u64", "18446744073709551615");
        check_meta(bundle, "t.i64", "-9223372036854775808");
        check_meta(bundle, "t.f64", "0.1");
        check_meta(bundle, "t.inf", "inf");
        check_meta(bundle, "t.nan", "nan");
    }
}

static void test_versions_and_byte_orders(void **state)
{
    static const struct {
        const char *path, *format;
        bool wide;
    } cases[] = {{GOLDEN "handmade_v1.gguf", "gguf v1", false},
                 {GOLDEN "handmade_v2.gguf", "gguf v2", true},
                 {GOLDEN "handmade_v3.gguf", "gguf v3", true},
                 {GOLDEN "handmade_v2_big.gguf", "gguf v2 big-endian", true},
                 {GOLDEN "handmade_v3_big.gguf", "gguf v3 big-endian", true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ts_bundle *bundle = open_bundle(cases[i].path);
        assert_string_equal(bundle->format, cases[i].format);
        check_handmade_tensors(bundle);
        check_handmade_keys(bundle, cases[i].wide);
        ts_bundle_free(bundle);
    }
}

static void test_alignment(void **state)
{
    struct ts_bundle *bundle = open_bundle(GOLDEN "handmade_align.gguf");
    (void)state;
    check_handmade_tensors(bundle);
    for (size_t i = 0; i < bundle->count; i++)
        assert_int_equal(bundle->tensors[i]->offset % 256, 0);
    ts_bundle_free(bundle);
}

static void check_parts(struct ts_bundle *bundle)
{
    float *values;
    assert_int_equal(bundle->count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(bundle->tensors[i]->name[0], 'a' + (int)i);
        assert_int_equal(bundle->tensors[i]->name[1], '\0');
    }
    CHECK_VALUES(bundle, "a", 1, 2);
    CHECK_VALUES(bundle, "b", 3);
    CHECK_VALUES(bundle, "c", 4, 5, 6, 7);
    values = values_of(bundle, "d");
    for (int i = 0; i < 32; i++)
        assert_true(values[i] == (float)i);
    free(values);
    assert_int_equal(bundle->skip_count, 0);
    assert_int_equal(bundle->finding_count, 0);
    assert_int_equal(bundle->file_bytes, 288 + 192 + 224);
    check_meta(bundle, "general.name", "in parts");
    assert_true(strstr(tensor_of(bundle, "c")->file, "handmade_split-00002-of-00003.gguf"));
}

static void test_split_from_any_part(void **state)
{
    (void)state;
    for (int i = 1; i <= 3; i++) {
        char path[64];
        struct ts_bundle *bundle;
        snprintf(path, sizeof path, GOLDEN "handmade_split-%05d-of-00003.gguf", i);
        bundle = open_bundle(path);
        check_parts(bundle);
        ts_bundle_free(bundle);
    }
}

static void copy_file(const char *from, const char *folder, const char *name, long size)
{
    char path[512], data[4096];
    FILE *in = fopen(from, "rb"), *out;
    size_t read;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    out = fopen(path, "wb");
    assert_true(in && out);
    read = fread(data, 1, sizeof data, in);
    assert_int_equal(fwrite(data, 1, size < 0 ? read : (size_t)size, out), size < 0 ? read : (size_t)size);
    fclose(in);
    fclose(out);
}

static void remove_folder(const char *folder)
{
    char path[512];
    for (int i = 1; i <= 3; i++) {
        snprintf(path, sizeof path, "%s/m-%05d-of-00003.gguf", folder, i);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
}

#define PART(n) GOLDEN "handmade_split-0000" #n "-of-00003.gguf"
#define NAME(n) "m-0000" #n "-of-00003.gguf"

static void test_split_with_a_part_missing(void **state)
{
    char folder[] = "/tmp/tsleuth-gguf-XXXXXX", path[512];
    struct ts_bundle *bundle;
    (void)state;
    assert_non_null(mkdtemp(folder));
    copy_file(PART(1), folder, NAME(1), -1);
    copy_file(PART(3), folder, NAME(3), -1);
    snprintf(path, sizeof path, "%s/" NAME(3), folder);
    bundle = open_bundle(path);
    assert_int_equal(bundle->count, 3);
    assert_string_equal(bundle->tensors[0]->name, "a");
    assert_string_equal(bundle->tensors[2]->name, "d");
    assert_int_equal(bundle->skip_count, 1);
    assert_true(has_skip(bundle, NAME(2), "part 2 of 3: no such file"));
    ts_bundle_free(bundle);
    remove_folder(folder);
}

static void test_split_with_a_broken_part(void **state)
{
    char folder[] = "/tmp/tsleuth-gguf-XXXXXX";
    struct ts_bundle *bundle;
    (void)state;
    assert_non_null(mkdtemp(folder));
    copy_file(PART(1), folder, NAME(1), -1);
    copy_file(PART(2), folder, NAME(2), 140); /* inside its tensor directory */
    copy_file(PART(3), folder, NAME(3), -1);
    bundle = open_bundle(folder);
    assert_int_equal(bundle->count, 3);
    assert_int_equal(bundle->skip_count, 1);
    assert_true(has_skip(bundle, NAME(2), "part 2 of 3: truncated: the tensor directory"));
    ts_bundle_free(bundle);
    remove_folder(folder);
}

/* Part 2 stands in for part 3: its tensors are there already, and the totals do not fit. */
static void test_split_with_the_wrong_part(void **state)
{
    char folder[] = "/tmp/tsleuth-gguf-XXXXXX";
    struct ts_bundle *bundle;
    (void)state;
    assert_non_null(mkdtemp(folder));
    copy_file(PART(1), folder, NAME(1), -1);
    copy_file(PART(2), folder, NAME(2), -1);
    copy_file(PART(1), folder, NAME(3), -1);
    bundle = open_bundle(folder);
    assert_int_equal(bundle->count, 3);
    assert_true(has_finding(bundle, "does not say in split.no and split.count that it is part 3 of 3"));
    assert_true(has_finding(bundle, "split.tensors.count is 4 and the parts hold 5 tensors"));
    assert_true(has_skip(bundle, NAME(3) ":a", "has the name of an earlier tensor"));
    assert_true(has_skip(bundle, NAME(3) ":b", "has the name of an earlier tensor"));
    ts_bundle_free(bundle);
    remove_folder(folder);
}

static void test_good_tensors_stay_beside_bad_ones(void **state)
{
    static const char *const files[] = {
        "overlap_and_beyond", "name_nul",         "rank_5",        "elements_wrap",
        "bytes_wrap",         "type_43",          "type_31",       "rows_of_33",
        "block_scalar",       "offset_unaligned", "offset_beyond", "offset_wraps",
        "overlap_same",       "name_twice",       "rank_64",       "dimension_negative"};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        struct ts_bundle *bundle;
        snprintf(path, sizeof path, MALFORMED "%s.gguf", files[i]);
        bundle = open_bundle(path);
        assert_int_equal(bundle->count, 1);
        assert_int_equal(bundle->skip_count, 1);
        assert_string_equal(bundle->tensors[0]->name, "good");
        assert_int_equal(ts_tensor_bytes(bundle->tensors[0])[31], 31);
        ts_bundle_free(bundle);
    }
}

static void test_truncated_data_keeps_the_rest(void **state)
{
    static const char *const files[] = {"cut_second_tensor", "cut_v1_second_tensor", "cut_big_second_tensor"};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        struct ts_bundle *bundle;
        snprintf(path, sizeof path, MALFORMED "%s.gguf", files[i]);
        bundle = open_bundle(path);
        assert_int_equal(bundle->count, 1);
        CHECK_VALUES(bundle, "first", 0, 1, 2, 3, 4, 5, 6, 7);
        assert_int_equal(bundle->skip_count, 1);
        assert_true(strstr(bundle->skips[0].path, ":second"));
        assert_true(strstr(bundle->skips[0].reason, "truncated: needs 64 bytes, 63 are there"));
        ts_bundle_free(bundle);
    }
}

static void test_what_ggml_would_refuse_is_found(void **state)
{
    struct ts_bundle *bundle = open_bundle(MALFORMED "gap.gguf");
    (void)state;
    assert_int_equal(bundle->count, 1);
    assert_true(has_finding(bundle, "has offset 32 where ggml expects 0"));
    ts_bundle_free(bundle);
    bundle = open_bundle(MALFORMED "backwards.gguf");
    assert_int_equal(bundle->count, 2);
    assert_string_equal(bundle->tensors[0]->name, "high");
    assert_true(has_finding(bundle, "has offset 32 where ggml expects 0"));
    ts_bundle_free(bundle);
    bundle = open_bundle(MALFORMED "key_twice.gguf");
    check_meta(bundle, "k", "1");
    ts_bundle_free(bundle);
    bundle = open_bundle(MALFORMED "overlap_backwards.gguf");
    assert_int_equal(bundle->count, 1);
    assert_string_equal(bundle->tensors[0]->name, "high");
    ts_bundle_free(bundle);
}

static void test_hostile_text_stays_text(void **state)
{
    struct ts_bundle *bundle = open_bundle(MALFORMED "value_nul.gguf");
    (void)state;
    check_meta(bundle, "k", "a\\x00b");
    check_meta(bundle, "l", "[2 strings] \"\\x00\", \"\xff\"");
    ts_bundle_free(bundle);
    bundle = open_bundle(MALFORMED "name_bad_utf8.gguf");
    assert_string_equal(bundle->tensors[0]->name, "\xed\xa0\x80\xff");
    ts_bundle_free(bundle);
}

static void test_every_type_equals_ggml_bit_for_bit(void **state)
{
    struct ts_bundle *bundle = open_bundle(GOLDEN "all_types.gguf");
    struct ts_bundle *expected = open_bundle(GOLDEN "all_types.expected.safetensors");
    (void)state;
    assert_int_equal(bundle->count, 29);
    assert_int_equal(expected->count, 29);
    assert_int_equal(bundle->skip_count, 0);
    assert_int_equal(bundle->finding_count, 0);
    for (size_t i = 0; i < bundle->count; i++) {
        const char *name = bundle->tensors[i]->name;
        struct ts_tensor *reference = tensor_of(expected, name);
        float *ours = values_of(bundle, name), *theirs = values_of(expected, name);
        assert_int_equal(reference->type, TS_F32);
        assert_int_equal(bundle->tensors[i]->count, reference->count);
        check_shape(bundle, name, bundle->tensors[i]->type, "[4,1024]");
        for (size_t at = 0; at < reference->count; at++)
            if (ts_float_bits(ours[at]) != ts_float_bits(theirs[at]))
                fail_msg("%s[%zu]: %a is not %a", name, at, (double)ours[at], (double)theirs[at]);
        free(ours);
        free(theirs);
    }
    check_meta(bundle, "test.i64", "-5000000000");
    check_meta(bundle, "test.f", "1.5");
    check_meta(bundle, "test.strs", "[3 strings] \"a\", \"bé\", \"c\"");
    check_meta(bundle, "test.ints", "[4 i32] 1, -2, 3, -4");
    ts_bundle_free(bundle);
    ts_bundle_free(expected);
}

/* To the nearest, ties to even, as the converter rounds; weights hold no NaN. */
static float round_to_bf16(float value)
{
    uint32_t bits = ts_float_bits(value);
    bits += 0x7fff + ((bits >> 16) & 1);
    return ts_float_from_bits(bits & 0xffff0000u);
}

/* `ours` holds, from `start` on, the rows of the original `name`; with heads set, the two halves of each head's rows
 * are interleaved there, as the llama architecture wants them. */
static void check_original(struct ts_bundle *bundle, const char *ours, size_t start, struct ts_bundle *original,
                           const char *name, size_t heads)
{
    const struct ts_tensor *tensor = tensor_of(bundle, ours), *reference = tensor_of(original, name);
    float *values = values_of(bundle, ours), *expected = values_of(original, name);
    size_t rows = (size_t)reference->shape[0], columns = (size_t)(reference->count / rows);
    assert_true(start + reference->count <= tensor->count);
    for (size_t row = 0; row < rows; row++) {
        size_t from = row;
        if (heads) {
            size_t size = rows / heads, inside = row % size;
            from = row - inside + inside % 2 * (size / 2) + inside / 2;
        }
        for (size_t i = 0; i < columns; i++) {
            float want = expected[from * columns + i];
            if (tensor->type == TS_BF16)
                want = round_to_bf16(want);
            if (values[start + row * columns + i] != want)
                fail_msg("%s: row %zu of %s is not that of %s", bundle->path, row, ours, name);
        }
    }
    free(values);
    free(expected);
}

/* What the converter calls the tensors of a layer. */
static const struct {
    const char *ours, *original;
} layer_names[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
};

static const struct {
    const char *ours, *original;
} expert_names[] = {
    {"ffn_gate_exps.weight", "mlp.experts.%zu.gate_proj.weight"},
    {"ffn_up_exps.weight", "mlp.experts.%zu.up_proj.weight"},
    {"ffn_down_exps.weight", "mlp.experts.%zu.down_proj.weight"},
    {"ffn_gate_exps.weight", "block_sparse_moe.experts.%zu.w1.weight"},
    {"ffn_up_exps.weight", "block_sparse_moe.experts.%zu.w3.weight"},
    {"ffn_down_exps.weight", "block_sparse_moe.experts.%zu.w2.weight"},
};

/* Returns how many tensors of the original were found again. */
static size_t check_experts(struct ts_bundle *bundle, struct ts_bundle *original, size_t layer)
{
    char ours[128], name[128], pattern[128];
    size_t checked = 0;
    for (size_t i = 0; i < sizeof expert_names / sizeof *expert_names; i++)
        for (size_t expert = 0;; expert++) {
            struct ts_tensor *one;
            snprintf(ours, sizeof ours, "blk.%zu.%s", layer, expert_names[i].ours);
            snprintf(pattern, sizeof pattern, "model.layers.%zu.%s", layer, expert_names[i].original);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(name, sizeof name, pattern, expert);
#pragma GCC diagnostic pop
            one = ts_bundle_tensor(original, name);
            if (!one)
                break;
            check_original(bundle, ours, expert * (size_t)one->count, original, name, 0);
            checked++;
        }
    return checked;
}

static void check_model(const char *path, const char *original_path, bool permuted)
{
    struct ts_bundle *bundle = open_bundle(path), *original = open_bundle(original_path);
    size_t checked = 0;
    check_original(bundle, "token_embd.weight", 0, original, "model.embed_tokens.weight", 0);
    check_original(bundle, "output_norm.weight", 0, original, "model.norm.weight", 0);
    checked += 2;
    if (ts_bundle_tensor(original, "lm_head.weight")) {
        check_original(bundle, "output.weight", 0, original, "lm_head.weight", 0);
        checked++;
    }
    for (size_t layer = 0; layer < 3; layer++) {
        for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++) {
            bool query = strncmp(layer_names[i].ours, "attn_q.", 7) == 0;
            bool key = strncmp(layer_names[i].ours, "attn_k.", 7) == 0;
            char ours[128], name[128];
            snprintf(ours, sizeof ours, "blk.%zu.%s", layer, layer_names[i].ours);
            snprintf(name, sizeof name, "model.layers.%zu.%s", layer, layer_names[i].original);
            if (!ts_bundle_tensor(original, name))
                continue;
            check_original(bundle, ours, 0, original, name, permuted && query ? 4 : permuted && key ? 2 : 0);
            checked++;
        }
        checked += check_experts(bundle, original, layer);
    }
    assert_int_equal(checked, original->count);
    assert_int_equal(bundle->skip_count, 0);
    assert_int_equal(bundle->finding_count, 0);
    ts_bundle_free(bundle);
    ts_bundle_free(original);
}

static void test_converted_qwen3(void **state)
{
    (void)state;
    check_model(GOLDEN "qwen3-bf16.gguf", "tests/golden/models/qwen3", false);
}

static void test_converted_mixtral(void **state)
{
    (void)state;
    check_model(GOLDEN "mixtral-bf16.gguf", "tests/golden/models/mixtral", true);
}

static void test_every_converted_model(void **state)
{
    static const char *const models[] = {"mixtral", "olmoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"};
    static const char *const types[] = {"bf16", "f32"};
    struct stat info;
    (void)state;
    if (stat("../shared/golden/gguf", &info) != 0)
        return; /* not skip(): cmocka reports it as a failure in TAP */
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 2; j++) {
            char path[256], original[256];
            snprintf(path, sizeof path, "../shared/golden/gguf/%s-%s.gguf", models[i], types[j]);
            snprintf(original, sizeof original, "../shared/golden/models/%s", models[i]);
            /* The folder holds traces too; only the checkpoint is wanted. */
            snprintf(original + strlen(original), sizeof original - strlen(original), "/model.safetensors%s",
                     strcmp(models[i], "mixtral") == 0 ? ".index.json" : "");
            check_model(path, original, i == 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_and_byte_orders),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_split_from_any_part),
        cmocka_unit_test(test_split_with_a_part_missing),
        cmocka_unit_test(test_split_with_a_broken_part),
        cmocka_unit_test(test_split_with_the_wrong_part),
        cmocka_unit_test(test_good_tensors_stay_beside_bad_ones),
        cmocka_unit_test(test_truncated_data_keeps_the_rest),
        cmocka_unit_test(test_what_ggml_would_refuse_is_found),
        cmocka_unit_test(test_hostile_text_stays_text),
        cmocka_unit_test(test_every_type_equals_ggml_bit_for_bit),
        cmocka_unit_test(test_converted_qwen3),
        cmocka_unit_test(test_converted_mixtral),
        cmocka_unit_test(test_every_converted_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
