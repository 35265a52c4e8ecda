/* The reference forward pass against transformers: every architecture, every rotary scaling, three precisions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "io/source.h"
#include "model/blas.h"
#include "model/config.h"
#include "model/linear.h"
#include "model/model.h"
#include "model/round.h"
#include "model_files.h"
#include "model_golden.h"
#include "read/open.h"

static void run_case(const struct golden *golden, size_t number)
{
    const char *type = of_case(golden, number, "dtype");
    struct checking checking = {.golden = golden, .number = number, .title = of_case(golden, number, "title")};
    struct ts_watcher watcher = {.context = &checking, .take = check_point};
    struct ts_model_options options = {.cache = !of_case(golden, number, "options.use_cache")};
    struct folder folder;
    struct ts_model model;
    struct ts_error error;
    struct ts_pool *pool = ts_pool_new(2);
    int64_t tokens[64];
    size_t count = read_tokens(golden, number, tokens, 64), expected = expected_points(golden, number);
    bool low = strcmp(type, "float32") != 0;
    options.compute = strcmp(type, "bfloat16") == 0 ? TS_COMPUTE_BF16 : low ? TS_COMPUTE_F16 : TS_COMPUTE_F32;
    make_model(golden, number, &folder, NULL);
    if (ts_model_open(folder.path, &model, &error) != TS_OK ||
        ts_model_plan(&model, &options, tokens, count, pool, &watcher, NULL, &error) != TS_OK ||
        ts_model_run(&model, &options, tokens, count, pool, &watcher, &error) != TS_OK)
        fail_msg("%s: %s", checking.title, error.message);
    if (checking.checked != expected)
        fail_msg("%s: %zu of %zu points were seen", checking.title, checking.checked, expected);
    /* In fp32 only the order of sums differs. In low precision one value that rounds the other way is a whole rounding,
     * and spreads: the bulk must be the same bits, and nothing far away. */
    if (low ? checking.worst > 0.05 || checking.close * 100 < checking.values * 70 : checking.worst > 2e-5)
        fail_msg("%s: %s is off by %.3g of its size, %zu of %zu values agree", checking.title, checking.worst_name,
                 checking.worst, checking.close, checking.values);
    ts_model_release(&model);
    ts_pool_free(pool);
    remove_model(&folder);
}

static void matches_transformers(void **state)
{
    struct golden golden;
    size_t number = 0;
    (void)state;
    setup(&golden);
    for (; of_case(&golden, number, "title"); number++)
        run_case(&golden, number);
    assert_true(number >= 40);
    teardown(&golden);
}

static void same_bits_at_every_thread_count(void **state)
{
    struct golden golden;
    struct folder folder;
    struct ts_model model;
    struct ts_error error;
    struct ts_model_options options = {.cache = true};
    int64_t tokens[64];
    uint64_t sums[3] = {0};
    size_t count;
    (void)state;
    setup(&golden);
    make_model(&golden, 3, &folder, NULL);
    count = read_tokens(&golden, 3, tokens, 64);
    for (unsigned i = 0; i < 3; i++) {
        struct ts_pool *pool = ts_pool_new(1 + 2 * i);
        struct ts_watcher watcher = {.context = &sums[i], .take = add_bits};
        assert_int_equal(ts_model_open(folder.path, &model, &error), TS_OK);
        assert_int_equal(ts_model_plan(&model, &options, tokens, count, pool, &watcher, NULL, &error), TS_OK);
        assert_int_equal(ts_model_run(&model, &options, tokens, count, pool, &watcher, &error), TS_OK);
        ts_model_release(&model);
        ts_pool_free(pool);
    }
    assert_true(sums[0] != 0);
    assert_true(sums[0] == sums[1] && sums[1] == sums[2]);
    remove_model(&folder);
    teardown(&golden);
}

static void loading_is_strict(void **state)
{
    static const char *const out = "model.layers.1.self_attn.k_proj.weight";
    struct golden golden;
    struct folder folder;
    struct ts_error error;
    struct ts_buffer trouble;
    const int64_t tokens[] = {1, 2, 3}, beyond[] = {1, 96}, negative[] = {-1};
    size_t number;
    (void)state;
    setup(&golden);
    number = case_titled(&golden, "llama");
    ts_buffer_init(&trouble, 65536);

    make_model(&golden, number, &folder, out);
    assert_int_equal(plan_only(folder.path, tokens, 3, &trouble, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "1 weight is missing"));
    assert_non_null(strstr(trouble.data, out));
    remove_model(&folder);

    make_model(&golden, number, &folder, NULL);
    assert_int_equal(plan_only(folder.path, tokens, 3, NULL, &error), TS_OK);
    assert_int_equal(plan_only(folder.path, beyond, 2, NULL, &error), TS_ERR_USAGE);
    assert_non_null(strstr(error.message, "token 1 is 96"));
    assert_int_equal(plan_only(folder.path, negative, 1, NULL, &error), TS_ERR_USAGE);
    assert_int_equal(plan_only(folder.path, tokens, 0, NULL, &error), TS_ERR_USAGE);

    replace_in_file(folder.config, "\"num_hidden_layers\":3", "\"num_hidden_layers\":2");
    ts_buffer_clear(&trouble);
    assert_int_equal(plan_only(folder.path, tokens, 3, &trouble, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "not used"));
    assert_non_null(strstr(trouble.data, "model.layers.2.mlp.up_proj.weight"));
    replace_in_file(folder.config, "\"num_hidden_layers\":2", "\"num_hidden_layers\":3");

    replace_in_file(folder.config, "\"intermediate_size\":112", "\"intermediate_size\":113");
    assert_int_equal(plan_only(folder.path, tokens, 3, NULL, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "[112,64], the config asks for [113,64]"));
    replace_in_file(folder.config, "\"intermediate_size\":113", "\"intermediate_size\":112");

    replace_in_file(folder.config, "\"num_attention_heads\":4", "\"num_attention_heads\":3");
    assert_int_equal(plan_only(folder.path, tokens, 3, NULL, &error), TS_ERR_FORMAT);
    replace_in_file(folder.config, "\"num_attention_heads\":3", "\"num_attention_heads\":1e30");
    assert_int_equal(plan_only(folder.path, tokens, 3, NULL, &error), TS_ERR_FORMAT);
    replace_in_file(folder.config, "\"num_attention_heads\":1e30", "\"num_attention_heads\":4");

    replace_in_file(folder.config, "\"rope_type\":\"llama3\"", "\"rope_type\":\"spiral\"");
    assert_int_equal(plan_only(folder.path, tokens, 3, NULL, &error), TS_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "spiral"));
    replace_in_file(folder.config, "\"rope_type\":\"spiral\"", "\"rope_type\":\"llama3\"");

    replace_in_file(folder.config, "\"model_type\":\"llama\"", "\"model_type\":\"lama\"");
    assert_int_equal(plan_only(folder.path, tokens, 3, NULL, &error), TS_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "\"lama\""));
    assert_non_null(strstr(error.message, "qwen3_moe"));
    unlink(folder.config);
    assert_int_equal(plan_only(folder.path, tokens, 3, NULL, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(error.message, "config.json"));
    remove_model(&folder);
    ts_buffer_release(&trouble);
    teardown(&golden);
}

/* Products in every shape around the tiles, against sums in double. */
static void products_are_right(void **state)
{
    static const size_t sizes[][3] = {{1, 1, 1},   {1, 5, 16},   {3, 4, 17}, {4, 4, 15}, {5, 9, 64},
                                      {8, 33, 33}, {17, 3, 100}, {2, 64, 1}, {4, 8, 0}};
    const struct ts_linear_kernels *kernels = ts_linear_kernels();
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t rows = sizes[s][0], columns = sizes[s][1], depth = sizes[s][2];
        float *x = malloc((rows * depth + 1) * sizeof *x), *w = malloc((columns * depth + 1) * sizeof *w),
              *y = malloc(rows * columns * sizeof *y);
        for (size_t i = 0; i < rows * depth; i++)
            x[i] = (float)((double)(mix(i) >> 40) * 0x1p-23 - 1);
        for (size_t i = 0; i < columns * depth; i++)
            w[i] = (float)((double)(mix(i + 999) >> 40) * 0x1p-23 - 1);
        kernels->product(x, depth, rows, w, depth, columns, depth, y, columns);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < columns; c++) {
                double sum = 0, size = 0;
                for (size_t k = 0; k < depth; k++) {
                    sum += (double)x[r * depth + k] * (double)w[c * depth + k];
                    size += fabs((double)x[r * depth + k] * (double)w[c * depth + k]);
                }
                assert_true(fabs((double)y[r * columns + c] - sum) <= 1e-6 * size + 1e-30);
            }
        free(x);
        free(w);
        free(y);
    }
}

/* The same products by OpenBLAS, where it is installed: one row and several. */
static void fast_products_are_right(void **state)
{
    const struct ts_blas *blas = ts_blas_load();
    float x[3 * 8], w[5 * 8], y[3 * 6];
    (void)state;
    if (!blas)
        return;
    for (size_t i = 0; i < 3 * 8; i++)
        x[i] = (float)((double)(mix(i) >> 40) * 0x1p-23 - 1);
    for (size_t i = 0; i < 5 * 8; i++)
        w[i] = (float)((double)(mix(i + 999) >> 40) * 0x1p-23 - 1);
    for (size_t rows = 1; rows <= 3; rows += 2) {
        for (size_t i = 0; i < 3 * 6; i++)
            y[i] = 7;
        blas->product(blas, x, rows, w, 5, 8, y, 6);
        for (size_t i = 0; i < 3 * 6; i++) {
            double sum = 0;
            for (size_t k = 0; k < 8; k++)
                sum += (double)x[i / 6 * 8 + k] * (double)w[i % 6 % 5 * 8 + k];
            assert_true(i / 6 >= rows || i % 6 == 5 ? y[i] == 7 : fabs((double)y[i] - sum) < 1e-5);
        }
    }
}

static void rounds_as_ieee_does(void **state)
{
    (void)state;
    assert_true(ts_bf16_bits(1.0f) == 0x3f80);
    assert_true(ts_bf16_bits(ts_float_from_bits(0x3f808000)) == 0x3f80); /* ties to even */
    assert_true(ts_bf16_bits(ts_float_from_bits(0x3f818000)) == 0x3f82);
    assert_true(ts_bf16_bits(ts_float_from_bits(0x7f7fffff)) == 0x7f80); /* past the largest */
    assert_true(isnan(ts_round_bf16(ts_float_from_bits(0x7f800001))));
    assert_true(ts_f16_bits(65519.0f) == 0x7bff && ts_f16_bits(65520.0f) == 0x7c00);
    assert_true(ts_f16_bits(0x1p-24f) == 1 && ts_f16_bits(0x1p-25f) == 0 && ts_f16_bits(0x1.8p-25f) == 1);
    assert_true(ts_f16_bits(-0.0f) == 0x8000 && ts_f16_bits((float)INFINITY) == 0x7c00);
    /* every f16 is its own rounding, and the middle of two goes to the even one */
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        float low = ts_f16_to_float((uint16_t)bits),
              high = bits == 0x7bff ? 65536 : ts_f16_to_float((uint16_t)(bits + 1));
        assert_true(ts_f16_bits(low) == bits);
        assert_true(ts_f16_bits((low + high) / 2) == bits + (bits & 1));
        assert_true(ts_f16_bits(-low) == (0x8000 | bits));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_transformers),    cmocka_unit_test(same_bits_at_every_thread_count),
        cmocka_unit_test(loading_is_strict),       cmocka_unit_test(products_are_right),
        cmocka_unit_test(fast_products_are_right), cmocka_unit_test(rounds_as_ieee_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
