/* Tests what a check finds in bytes, spans, copies and quantized parts. Every file is made here with one thing wrong.
 */
#include "check_run.h"

#include <math.h>

#define ROWS    64
#define COLUMNS 64
#define COUNT   (ROWS * COLUMNS)

static float values[COUNT];

/* One f32 matrix of 64 by 64 in a file of its own. */
static struct checked check_matrix(const char *name)
{
    struct maker maker;
    maker_start(&maker);
    maker_add(&maker, name, "F32", "[64,64]", values, sizeof values);
    maker_finish(&maker, "matrix.safetensors");
    return check_scratch("matrix.safetensors");
}

static void test_clean(void **state)
{
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 1);
    checked = check_matrix("w.weight");
    expect_count(&checked, 0, 0);
    assert_int_equal(checked.check.count, 0);
    checked_release(&checked);
}

static void test_nan_and_inf(void **state)
{
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 1);
    values[3 * COLUMNS + 5] = NAN;
    values[4 * COLUMNS + 6] = NAN;
    values[7] = INFINITY;
    checked = check_matrix("w.weight");
    expect_issue(&checked, "nan", TS_FAULT, "w.weight", "2 of 4,096 numbers are NaN, the first at [3,5]");
    expect_issue(&checked, "inf", TS_FAULT, "w.weight", "1 of 4,096 numbers are +inf, the first at [0,7]");
    expect_count(&checked, 2, 0);
    checked_release(&checked);
}

static void test_mask_of_minus_inf(void **state)
{
    struct checked checked;
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        values[i] = i % COLUMNS > i / COLUMNS ? -INFINITY : 0;
    checked = check_matrix("causal_mask");
    expect_issue(&checked, "inf", TS_NOTE, "causal_mask", "2,016 of 4,096 numbers are -inf");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* the same numbers are no mask under another name */
    checked = check_matrix("w.weight");
    expect_issue(&checked, "inf", TS_FAULT, "w.weight", "2,016 of 4,096 numbers are -inf, the first at [0,1]");
    checked_release(&checked);
}

static void test_constant(void **state)
{
    struct checked checked;
    uint32_t pattern = 0x0fc00000;
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        memcpy(&values[i], &pattern, sizeof pattern);
    checked = check_matrix("w.weight");
    expect_issue(&checked, "constant", TS_WARNING, "w.weight", "all 4,096 elements are 1.893");
    expect_issue(&checked, "constant", TS_WARNING, "w.weight", "(bits 0x0fc00000)");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
    memset(values, 0, sizeof values);
    checked = check_matrix("w.weight");
    expect_issue(&checked, "zeros", TS_WARNING, "w.weight", "all 4,096 elements are zero");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
    memset(values, 0xcd, sizeof values);
    checked = check_matrix("w.weight");
    expect_issue(&checked, "constant", TS_WARNING, "w.weight", "(bits 0xcdcdcdcd)");
    checked_release(&checked);
}

static void test_initial_values_are_ordinary(void **state)
{
    struct maker maker;
    struct checked checked;
    float ones[64], zeros[64] = {0};
    int64_t ids[16] = {0};
    (void)state;
    for (size_t i = 0; i < 64; i++)
        ones[i] = 1;
    maker_start(&maker);
    maker_add(&maker, "input_layernorm.weight", "F32", "[64]", ones, sizeof ones);
    maker_add(&maker, "ln_f.bias", "F32", "[64]", zeros, sizeof zeros);
    maker_add(&maker, "token_type_ids", "I64", "[16]", ids, sizeof ids);
    maker_add(&maker, "tiny", "F32", "[4]", ones, 16);
    maker_finish(&maker, "initial.safetensors");
    checked = check_scratch("initial.safetensors");
    expect_issue(&checked, "constant", TS_NOTE, "input_layernorm.weight", "this and 2 other tensors");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* the same ones in a matrix are suspicious */
    maker_start(&maker);
    maker_add(&maker, "mlp.up_proj.weight", "F32", "[8,8]", ones, sizeof ones);
    maker_finish(&maker, "ones.safetensors");
    checked = check_scratch("ones.safetensors");
    expect_issue(&checked, "constant", TS_WARNING, "mlp.up_proj.weight", "all 64 elements are 1 (bits 0x3f800000)");
    checked_release(&checked);
}

/* 0xdeadbeef over memory that is read as bf16: two values by turns. */
static void test_pattern_wider_than_an_element(void **state)
{
    struct maker maker;
    struct checked checked;
    uint32_t words[64];
    (void)state;
    for (size_t i = 0; i < 64; i++)
        words[i] = 0xdeadbeef;
    maker_start(&maker);
    maker_add(&maker, "w.weight", "BF16", "[8,16]", words, sizeof words);
    maker_finish(&maker, "pattern.safetensors");
    checked = check_scratch("pattern.safetensors");
    expect_issue(&checked, "constant", TS_WARNING, "w.weight", "its 256 bytes repeat one pattern of 4: 0xdeadbeef");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
}

static void test_half_filled(void **state)
{
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 2);
    memset(values + 40 * COLUMNS + 8, 0, (COUNT - 40 * COLUMNS - 8) * sizeof *values);
    checked = check_matrix("w.weight");
    expect_issue(&checked, "half-filled", TS_WARNING, "w.weight",
                 "from [40,8] to the end all 1,528 elements (37.3 %) are 0");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
    fill_random(values, COUNT, 2);
    for (size_t i = 0; i < COUNT / 2; i++)
        values[i] = 7.5f;
    checked = check_matrix("w.weight");
    expect_issue(&checked, "half-filled", TS_WARNING, "w.weight",
                 "the first 2,048 elements (50 %), up to [32,0], are all 7.5");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
    /* fifteen elements are no part */
    fill_random(values, COUNT, 2);
    memset(values + COUNT - 15, 0, 15 * sizeof *values);
    checked = check_matrix("w.weight");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

static void test_zeros_in_stripes(void **state)
{
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 3);
    for (size_t i = 0; i < COUNT; i++)
        if (i % 48 >= 32)
            values[i] = 0;
    checked = check_matrix("w.weight");
    expect_issue(&checked, "half-filled", TS_WARNING, "w.weight", "zeros in 85 runs of 16 elements");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
    /* sparse without order: nothing */
    fill_random(values, COUNT, 4);
    for (size_t i = 0; i < COUNT; i++)
        if (values[i] < 0)
            values[i] = 0;
    checked = check_matrix("relu_values");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* a diagonal: equal runs, and nothing between them */
    memset(values, 0, sizeof values);
    for (size_t i = 0; i < ROWS; i++)
        values[i * (COLUMNS + 1)] = 1 + (float)i;
    checked = check_matrix("diagonal");
    assert_null(issue_of(&checked, "half-filled", NULL));
    checked_release(&checked);
}

static void test_dead_rows(void **state)
{
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 5);
    memset(values + 9 * COLUMNS, 0, COLUMNS * sizeof *values);
    memset(values + 17 * COLUMNS, 0, COLUMNS * sizeof *values);
    memset(values, 0, COLUMNS * sizeof *values);
    memset(values + 63 * COLUMNS, 0, COLUMNS * sizeof *values);
    checked = check_matrix("w.weight");
    expect_issue(&checked, "dead-rows", TS_WARNING, "w.weight", "4 of 64 rows are all zeros: 0, 9, 17, 63");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
    fill_random(values, COUNT, 5);
    memset(values + 9 * COLUMNS, 0, COLUMNS * sizeof *values);
    values[9 * COLUMNS + 63] = 1e-30f;
    checked = check_matrix("w.weight");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

static void test_dead_rows_of_three_axes(void **state)
{
    struct maker maker;
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 6);
    memset(values + (1 * 16 + 3) * 64, 0, 64 * sizeof *values);
    maker_start(&maker);
    maker_add(&maker, "experts.up", "F32", "[4,16,64]", values, sizeof values);
    maker_finish(&maker, "axes.safetensors");
    checked = check_scratch("axes.safetensors");
    expect_issue(&checked, "dead-rows", TS_WARNING, "experts.up", "1 of 64 rows are all zeros: [1,3]");
    checked_release(&checked);
}

static void test_padding_of_a_vocabulary(void **state)
{
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 7);
    memset(values + 48 * COLUMNS, 0, 16 * COLUMNS * sizeof *values);
    checked = check_matrix("model.embed_tokens.weight");
    expect_issue(&checked, "padding-rows", TS_NOTE, "model.embed_tokens.weight", "the last 16 of 64 rows are zeros");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

static void test_overlap(void **state)
{
    struct maker maker;
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 8);
    maker_start(&maker);
    assert_true(ts_buffer_append(&maker.data, values, 4096));
    maker_entry(&maker, "first", "F32", "[512]", 0, 2048);
    maker_entry(&maker, "second", "F32", "[544]", 1920, 4096);
    maker_finish(&maker, "overlap.safetensors");
    checked = check_scratch("overlap.safetensors");
    expect_issue(&checked, "overlap", TS_FAULT, "second", "128 of its 2176 bytes are also those of \"first\"");
    expect_count(&checked, 1, 0); /* told once, not by the reader again */
    checked_release(&checked);
    maker_start(&maker);
    assert_true(ts_buffer_append(&maker.data, values, 4096));
    maker_entry(&maker, "first", "F32", "[1024]", 0, 4096);
    maker_entry(&maker, "second", "F32", "[1024]", 0, 4096);
    maker_finish(&maker, "overlap.safetensors");
    checked = check_scratch("overlap.safetensors");
    expect_issue(&checked, "overlap", TS_FAULT, "second", "which the format forbids");
    expect_count(&checked, 1, 0);
    checked_release(&checked);
}

static void test_torch_views_share_storage(void **state)
{
    struct checked checked;
    (void)state;
    checked = check_path("tests/golden/torchfiles/views.pt", false);
    expect_issue(&checked, "shared-storage", TS_NOTE, NULL, "shares storage");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

static void test_truncated(void **state)
{
    struct maker maker;
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 9);
    maker_start(&maker);
    maker_add(&maker, "whole", "F32", "[64]", values, 256);
    maker_entry(&maker, "cut", "F32", "[64]", 256, 512);
    assert_true(ts_buffer_append(&maker.data, values + 64, 100));
    maker_finish(&maker, "cut.safetensors");
    checked = check_scratch("cut.safetensors");
    expect_issue(&checked, "unreadable", TS_FAULT, "cut.safetensors:cut", "truncated");
    assert_int_equal(checked.bundle->count, 1);
    checked_release(&checked);
}

static void test_same_bytes(void **state)
{
    struct maker maker;
    struct checked checked;
    float other[256];
    (void)state;
    fill_random(values, COUNT, 10);
    fill_random(other, 256, 11);
    maker_start(&maker);
    maker_add(&maker, "layers.0.mlp.up_proj.weight", "F32", "[16,16]", values, 1024);
    maker_add(&maker, "layers.1.mlp.up_proj.weight", "F32", "[16,16]", other, 1024);
    maker_add(&maker, "layers.2.mlp.up_proj.weight", "F32", "[16,16]", values, 1024);
    maker_add(&maker, "layers.3.mlp.up_proj.weight", "F32", "[16,16]", values, 1024);
    maker_finish(&maker, "same.safetensors");
    checked = check_scratch("same.safetensors");
    expect_issue(&checked, "same-bytes", TS_WARNING, "layers.0.mlp.up_proj.weight",
                 "has the same bytes as \"layers.2.mlp.up_proj.weight\" and 1 more");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
}

/* They agree in every byte that is sampled. */
static void test_nearly_the_same_bytes(void **state)
{
    struct maker maker;
    struct checked checked;
    float other[256];
    (void)state;
    fill_random(values, COUNT, 10);
    memcpy(other, values, sizeof other);
    other[20] += 1;
    maker_start(&maker);
    maker_add(&maker, "a.weight", "F32", "[16,16]", values, 1024);
    maker_add(&maker, "b.weight", "F32", "[16,16]", other, 1024);
    maker_finish(&maker, "nearly.safetensors");
    checked = check_scratch("nearly.safetensors");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

static void test_same_bytes_in_a_dump(void **state)
{
    struct maker maker;
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 12);
    maker_start(&maker);
    /* a value that passes on */
    maker_add(&maker, "layer_0_output", "F32", "[256]", values, 1024);
    maker_add(&maker, "layer_1_input", "F32", "[256]", values, 1024);
    /* one buffer captured for two layers */
    maker_add(&maker, "layer_0_query", "F32", "[256]", values + 256, 1024);
    maker_add(&maker, "layer_1_query", "F32", "[256]", values + 256, 1024);
    /* one buffer captured for two projections */
    maker_add(&maker, "layer_0_up", "F32", "[256]", values + 512, 1024);
    maker_add(&maker, "layer_0_gate", "F32", "[256]", values + 512, 1024);
    maker_finish(&maker, "dump.safetensors");
    checked = check_scratch("dump.safetensors");
    expect_issue(&checked, "same-bytes", TS_WARNING, "layer_0_query", "\"layer_1_query\"");
    expect_issue(&checked, "same-bytes", TS_WARNING, "layer_0_up", "\"layer_0_gate\"");
    expect_issue(&checked, "same-bytes", TS_NOTE, "layer_0_output", "\"layer_1_input\"");
    expect_count(&checked, 0, 2);
    checked_release(&checked);
}

static void test_tied_weights(void **state)
{
    struct maker maker;
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 13);
    maker_start(&maker);
    maker_add(&maker, "lm_head.weight", "F32", "[64,64]", values, sizeof values);
    maker_add(&maker, "model.embed_tokens.weight", "F32", "[64,64]", values, sizeof values);
    maker_finish(&maker, "tied/model.safetensors");
    scratch_text("tied/config.json", "{\"tie_word_embeddings\": true}");
    checked = check_scratch("tied");
    expect_issue(&checked, "tied-weights", TS_NOTE, NULL, "as tie_word_embeddings in config.json says");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

static void add_mlx(struct maker *maker, const char *module, bool scales, bool biases, const char *shape, size_t groups)
{
    static const uint32_t words[64] = {0x76543210, 0xfedcba98, 0x13579bdf};
    char name[128];
    snprintf(name, sizeof name, "%s.weight", module);
    maker_add(maker, name, "U32", "[8,8]", words, sizeof words);
    snprintf(name, sizeof name, "%s.scales", module);
    if (scales)
        maker_add(maker, name, "F32", shape, values, groups * sizeof *values);
    snprintf(name, sizeof name, "%s.biases", module);
    if (biases)
        maker_add(maker, name, "F32", shape, values + 100, groups * sizeof *values);
}

/* MLX: 8 rows of 64 codes of 4 bits, groups of 64: one scale and one bias per row. */
static void test_quantized_parts(void **state)
{
    static const char config[] = "{\"quantization\": {\"group_size\": 64, \"bits\": 4}}";
    struct maker maker;
    struct checked checked;
    (void)state;
    fill_random(values, COUNT, 14);
    maker_start(&maker);
    add_mlx(&maker, "good", true, true, "[8,1]", 8);
    add_mlx(&maker, "unscaled", false, true, "[8,1]", 8);
    add_mlx(&maker, "unbiased", true, false, "[8,1]", 8);
    add_mlx(&maker, "misfit", true, true, "[8,3]", 24);
    maker_add(&maker, "orphan.scales", "F32", "[8,1]", values + 200, 32);
    maker_finish(&maker, "mlx/model.safetensors");
    scratch_text("mlx/config.json", config);
    checked = check_scratch("mlx");
    expect_issue(&checked, "quantization", TS_FAULT, "unscaled.weight", "missing");
    expect_issue(&checked, "quantization", TS_FAULT, "unbiased.weight", "missing");
    expect_issue(&checked, "quantization", TS_FAULT, "orphan.scales", "\"orphan\" that is not there");
    assert_non_null(issue_of(&checked, "quantization", "misfit.weight"));
    assert_null(issue_of(&checked, "quantization", "good.weight"));
    checked_release(&checked);
}

/* A gap is a layer, or a tensor of a layer, that all its neighbours have. */
static void add_layer(struct maker *maker, unsigned layer, const char *const *leaves)
{
    static uint32_t seed = 100;
    for (; *leaves; leaves++) {
        char name[128];
        fill_random(values, 64, seed++);
        snprintf(name, sizeof name, "encoder.layer.%u.%s", layer, *leaves);
        maker_add(maker, name, "F32", "[64]", values, 256);
    }
}

static void test_gaps(void **state)
{
    static const char *const all[] = {"query", "key", "value", NULL}, *const some[] = {"query", NULL},
                             *const other[] = {"query", "mamba.mixer", NULL};
    struct maker maker;
    struct checked checked;
    (void)state;
    maker_start(&maker);
    for (unsigned layer = 0; layer < 8; layer++)
        if (layer != 3)
            add_layer(&maker, layer, layer == 5 ? some : all);
    maker_finish(&maker, "gaps.safetensors");
    checked = check_scratch("gaps.safetensors");
    expect_issue(&checked, "gap", TS_WARNING, "encoder.layer.{3}", "1 layer is missing between 0 and 7");
    expect_issue(&checked, "gap", TS_WARNING, "encoder.layer.5.key", "nor are 1 more of this layer");
    expect_count(&checked, 0, 2);
    checked_release(&checked);
    /* a layer of another kind, and first and last layers, may differ */
    maker_start(&maker);
    for (unsigned layer = 0; layer < 8; layer++)
        add_layer(&maker, layer, layer == 0 || layer == 7 ? some : layer == 5 ? other : all);
    maker_finish(&maker, "kinds.safetensors");
    checked = check_scratch("kinds.safetensors");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* every third layer was captured */
    maker_start(&maker);
    for (unsigned layer = 0; layer < 12; layer += 3)
        add_layer(&maker, layer, all);
    maker_finish(&maker, "thirds.safetensors");
    checked = check_scratch("thirds.safetensors");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

static void test_long_lists_are_cut(void **state)
{
    struct maker maker;
    struct checked checked;
    size_t listed = 0;
    (void)state;
    maker_start(&maker);
    for (int i = 0; i < 130; i++) {
        char name[32];
        fill_random(values, 64, (uint32_t)(1000 + i));
        values[1] = NAN;
        snprintf(name, sizeof name, "t%d", i);
        maker_add(&maker, name, "F32", "[64]", values, 256);
    }
    maker_finish(&maker, "many.safetensors");
    checked = check_scratch("many.safetensors");
    for (size_t i = 0; i < checked.check.count; i++)
        listed += strcmp(checked.check.issues[i].id, "nan") == 0;
    assert_int_equal(listed, 101);
    assert_non_null(strstr(checked.check.issues[checked.check.count - 1].text, "and 30 more"));
    checked_release(&checked);
}

static void test_nothing_is_there(void **state)
{
    struct maker maker;
    struct checked checked;
    (void)state;
    maker_start(&maker);
    maker_add(&maker, "empty", "F32", "[0,64]", "", 0);
    maker_add(&maker, "scalar", "F32", "[]", values, 4);
    maker_finish(&maker, "empty.safetensors");
    checked = check_scratch("empty.safetensors");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    maker_start(&maker);
    maker_finish(&maker, "nothing.safetensors");
    checked = check_scratch("nothing.safetensors");
    assert_int_equal(checked.check.count, 0);
    checked_release(&checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_nan_and_inf),
        cmocka_unit_test(test_mask_of_minus_inf),
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_initial_values_are_ordinary),
        cmocka_unit_test(test_pattern_wider_than_an_element),
        cmocka_unit_test(test_half_filled),
        cmocka_unit_test(test_zeros_in_stripes),
        cmocka_unit_test(test_dead_rows),
        cmocka_unit_test(test_dead_rows_of_three_axes),
        cmocka_unit_test(test_padding_of_a_vocabulary),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_torch_views_share_storage),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_nearly_the_same_bytes),
        cmocka_unit_test(test_same_bytes_in_a_dump),
        cmocka_unit_test(test_tied_weights),
        cmocka_unit_test(test_quantized_parts),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_long_lists_are_cut),
        cmocka_unit_test(test_nothing_is_there),
    };
    return cmocka_run_group_tests_name("check", tests, scratch_make, scratch_remove);
}
