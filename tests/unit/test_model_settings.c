/* Settings of a model: what a config leaves out, what is wrong in it, and how the error says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "model/operations.h"
#include "model/trace.h"
#include "model_files.h"

static const int64_t some_tokens[] = {1, 2, 3};

struct change {
    const char *title, *from, *to, *message;
};

/* Each stands alone: the config is as it was before and after it. */
static void refuse(const struct golden *golden, const struct change *change)
{
    struct folder folder;
    struct ts_error error;
    ts_error_clear(&error);
    make_model(golden, case_titled(golden, change->title), &folder, NULL);
    replace_in_file(folder.config, change->from, change->to);
    if (plan_only(folder.path, some_tokens, 3, NULL, &error) == TS_OK)
        fail_msg("%s: %s was taken", change->title, change->to);
    if (!strstr(error.message, change->message))
        fail_msg("%s: %s gives: %s", change->title, change->to, error.message);
    remove_model(&folder);
}

static void wrong_settings_are_named(void **state)
{
    static const struct change changes[] = {
        {"llama", "\"num_hidden_layers\":3", "\"num_hidden_layers\":\"three\"", "num_hidden_layers is \"three\""},
        {"llama", "\"num_hidden_layers\":3", "\"num_hidden_layers\":true", "num_hidden_layers is \"true\""},
        {"llama", "\"num_hidden_layers\":3", "\"num_hidden_layers\":[3]", "a list or an object as num_hidden_layers"},
        {"llama", "\"num_hidden_layers\":3", "\"num_hidden_layers\":99999",
         "weights are missing, first model.layers.3"},
        {"llama", "\"num_hidden_layers\":3", "\"num_hidden_layers\":0", "num_hidden_layers is 0"},
        {"llama", "\"num_hidden_layers\":3,", "\"num_hidden_layers\":3,\"num_hidden_layers\":2,", "twice"},
        {"llama", "\"head_dim\":16", "\"head_dim\":\"x\"", "head_dim is \"x\", and a number is expected"},
        {"llama", "\"head_dim\":16", "\"head_dim\":0", "heads of 0 numbers"},
        {"llama", "\"rms_norm_eps\":1e-06", "\"rms_norm_eps\":-1", "rms_norm_eps is -1, and a number above zero"},
        {"llama", "\"rms_norm_eps\":1e-06", "\"rms_norm_eps\":NaN", "rms_norm_eps is NaN"},
        {"llama", "\"attention_bias\":false", "\"attention_bias\":\"maybe\"", "attention_bias is \"maybe\""},
        {"llama", "\"attention_bias\":false", "\"attention_bias\":[true]", "a list or an object as attention_bias"},
        {"llama", "\"rope_theta\":500000.0", "\"rope_theta\":NaN", "rope_theta is NaN"},
        {"llama", "\"factor\":8.0", "\"factor\":0", "rope_parameters.factor is 0, and a number above zero"},
        {"llama", "\"low_freq_factor\":1.0", "\"low_freq_factor\":\"low\"", "low_freq_factor is \"low\""},
        {"llama", "\"rope_parameters\":{", "\"rope_parameters\":7,\"unused\":{", "rope_parameters is 7, and an object"},
        {"llama", "\"rope_parameters\":{", "\"rope_parameters\":[1],\"unused\":{", "rope_parameters is a list"},
        {"mistral", "\"sliding_window\":4", "\"sliding_window\":0", "sliding_window is 0"},
        {"gemma3", "\"layer_types\":[\"sliding_attention\",", "\"layer_types\":[", "no entry for layer 2"},
        {"gemma3", "\"layer_types\":[\"sliding_attention\"", "\"layer_types\":[\"chunked\"", "of type \"chunked\""},
        {"gemma3", "\"query_pre_attn_scalar\":16", "\"query_pre_attn_scalar\":0", "query_pre_attn_scalar is 0"},
        {"gemma3n", "\"altup_num_inputs\":4", "\"altup_num_inputs\":0", "0 streams"},
        {"gemma3n", "\"altup_coef_clip\":120.0", "\"altup_coef_clip\":0.5", "beyond the altup_coef_clip of 0.5"},
        {"gemma3n", "[0.95,", "[1.5,", "activation_sparsity_pattern.0 is 1.5"},
        {"gemma3n", "\"intermediate_size\":[112", "\"intermediate_size\":[-2", "intermediate_size.0 is -2"},
        {"mixtral", "\"num_experts_per_tok\":2", "\"num_experts_per_tok\":5", "to 5 experts, and there are 4"},
        {"mixtral", "\"num_local_experts\":4", "\"num_local_experts\":8000000", "has 8000000 experts"},
        {"deepseek_v3", "\"num_nextn_predict_layers\":1", "\"num_nextn_predict_layers\":16000000", "at most 64"},
    };
    struct golden golden;
    (void)state;
    setup(&golden);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        refuse(&golden, &changes[i]);
    teardown(&golden);
}

static uint64_t bits_of_run(const char *path, const struct ts_watcher *watcher, const int64_t *tokens, size_t count)
{
    struct ts_model_options options = {.cache = true};
    struct ts_pool *pool = ts_pool_new(1);
    struct ts_model model;
    struct ts_error error;
    uint64_t sum = 1;
    struct ts_watcher own = {.context = &sum, .take = add_bits};
    watcher = watcher ? watcher : &own;
    if (ts_model_open(path, &model, &error) != TS_OK ||
        ts_model_plan(&model, &options, tokens, count, pool, watcher, NULL, &error) != TS_OK ||
        ts_model_run(&model, &options, tokens, count, pool, watcher, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_model_release(&model);
    ts_pool_free(pool);
    return sum;
}

/* The config of Gemma 3's 4B model says little more than its sizes; the rest is in the library's class: activation,
 * both rotary bases, one layer in six without a window, a scale of 256, tied embeddings. */
static void a_sparse_config_means_the_defaults_of_its_class(void **state)
{
    struct golden golden;
    struct folder folder;
    struct ts_error error;
    struct ts_buffer trouble;
    uint64_t full, sparse;
    (void)state;
    setup(&golden);
    make_model(&golden, case_titled(&golden, "gemma3"), &folder, NULL);
    replace_in_file(folder.config, "\"query_pre_attn_scalar\":16", "\"query_pre_attn_scalar\":256");
    full = bits_of_run(folder.path, NULL, some_tokens, 3);
    replace_in_file(folder.config, "\"query_pre_attn_scalar\":256", "\"query_pre_attn_scalar\":null");
    replace_in_file(folder.config, "\"hidden_activation\":\"gelu_pytorch_tanh\"", "\"hidden_activation\":null");
    replace_in_file(folder.config, "\"_sliding_window_pattern\":6", "\"_sliding_window_pattern\":null");
    replace_in_file(folder.config, "\"layer_types\":[", "\"unused_types\":[");
    replace_in_file(folder.config, "\"sliding_attention\":{\"rope_theta\":10000.0,", "\"sliding_attention\":{");
    replace_in_file(folder.config, "\"rms_norm_eps\":1e-06", "\"rms_norm_eps\":null");
    replace_in_file(folder.config, "\"tie_word_embeddings\":true", "\"tie_word_embeddings\":null");
    sparse = bits_of_run(folder.path, NULL, some_tokens, 3);
    assert_true(full == sparse);

    ts_buffer_init(&trouble, 65536);
    replace_in_file(folder.config, "\"num_attention_heads\":4", "\"num_attention_heads\":null");
    replace_in_file(folder.config, "\"num_key_value_heads\":2", "\"num_key_value_heads\":null");
    replace_in_file(folder.config, "\"head_dim\":16", "\"head_dim\":null");
    replace_in_file(folder.config, "\"vocab_size\":96", "\"vocab_size\":null");
    assert_int_equal(plan_only(folder.path, some_tokens, 3, &trouble, &error), TS_ERR_FORMAT);
    assert_non_null(strstr(trouble.data, "embed_tokens.weight is [96,64], the config asks for [262208,64]"));
    assert_non_null(strstr(trouble.data, "q_proj.weight is [64,64], the config asks for [2048,64]"));
    assert_non_null(strstr(trouble.data, "k_proj.weight is [32,64], the config asks for [1024,64]"));
    ts_buffer_release(&trouble);
    remove_model(&folder);
    teardown(&golden);
}

/* Published configs of Qwen 2.5 name a window and do not use it. */
static void only_windows_that_are_used_are_blind_spots(void **state)
{
    static const char *const configs[][2] = {{"\"use_sliding_window\":false", "\"use_sliding_window\":true"},
                                             {"\"max_window_layers\":28", "\"max_window_layers\":1"}};
    struct ts_model_options options = {.cache = true};
    struct ts_watcher watcher = {0};
    struct ts_pool *pool = ts_pool_new(1);
    struct golden golden;
    struct folder folder;
    struct ts_model model;
    struct ts_error error;
    char text[256];
    (void)state;
    setup(&golden);
    make_model(&golden, case_titled(&golden, "qwen2"), &folder, NULL);
    replace_in_file(folder.config, "\"sliding_window\":null", "\"sliding_window\":4096");
    replace_in_file(folder.config, "\"layer_types\":[", "\"unused_types\":[");
    for (size_t i = 0; i < 3; i++) {
        const char *blind;
        assert_int_equal(ts_model_open(folder.path, &model, &error), TS_OK);
        assert_int_equal(ts_model_plan(&model, &options, some_tokens, 3, pool, &watcher, NULL, &error), TS_OK);
        blind = ts_trace_blind_spot(&model, 3, 0, text);
        assert_true(i == 2 ? blind && strstr(blind, "window of 4096") : !blind);
        assert_null(ts_trace_blind_spot(&model, 4097, 0, text));
        ts_model_release(&model);
        if (i < 2)
            replace_in_file(folder.config, configs[i][0], configs[i][1]);
    }
    ts_pool_free(pool);
    remove_model(&folder);
    teardown(&golden);
}

struct angles {
    const float *expected; /* cosines of one position */
    size_t position, size, seen;
};

static enum ts_status check_angles(void *context, const struct ts_point *point, struct ts_error *error)
{
    struct angles *angles = context;
    (void)error;
    if (!point->values || strcmp(point->name, "model.rotary_emb.0") != 0)
        return TS_OK;
    assert_int_equal(point->shape[2], angles->size);
    for (size_t i = 0; i < angles->size; i++) {
        float value = point->values[angles->position * angles->size + i];
        assert_true(fabsf(value - angles->expected[i % (angles->size / 2)]) < 2e-6f);
    }
    angles->seen++;
    return TS_OK;
}

/* Where the factor goes matters: at token 1500 a frequency that is rounded once more is off by 5e-5. The numbers are
 * PyTorch's for 1 / (factor * 10000^(2i/16)), factors 1, 1.1, ..., 1.7, and a context grown from 2048 to 8192. */
static void rotary_factors_round_as_in_the_library(void **state)
{
    static const float cosines[] = {-0.1198733f,   -0.740506113f, 0.856335878f, 0.382457912f,
                                    -0.301776141f, -1.086882f,    0.643359959f, 1.04506993f};
    struct angles angles = {.expected = cosines, .position = 1500, .size = 16};
    struct ts_watcher watcher = {.context = &angles, .take = check_angles};
    struct golden golden;
    struct folder folder;
    int64_t *tokens = calloc(1501, sizeof *tokens);
    (void)state;
    assert_non_null(tokens);
    setup(&golden);
    make_model(&golden, case_titled(&golden, "phi3 longrope short"), &folder, NULL);
    replace_in_file(folder.config, "\"max_position_embeddings\":128", "\"max_position_embeddings\":8192");
    replace_in_file(folder.config, "\"original_max_position_embeddings\":32",
                    "\"original_max_position_embeddings\":2048");
    replace_in_file(folder.config, "],\"original_max_position_embeddings\":32",
                    "],\"original_max_position_embeddings\":2048");
    bits_of_run(folder.path, &watcher, tokens, 1501);
    assert_int_equal(angles.seen, 1);
    free(tokens);
    remove_model(&folder);
    teardown(&golden);
}

/* In bf16, as PyTorch has it for 30 * tanh(x / 30): half of these are others when x is multiplied by a rounded 1/30. */
static void a_softcap_divides(void **state)
{
    static const float given[] = {-90, -31, -3.296875f, 0.69921875f, 5.09375f, 11, 29, 47, 1.3671875f, -7.6875f},
                       expected[] = {-29.875f, -23.25f, -3.28125f, 0.69921875f, 5.03125f,
                                     10.5625f, 22.375f, 27.5f,     1.3671875f,  -7.5f};
    struct ts_watcher watcher = {0};
    struct ts_run run = {.watcher = &watcher, .compute = TS_COMPUTE_BF16};
    struct ts_act x = ts_new(&run, 1, 10);
    (void)state;
    memcpy(x.data, given, sizeof given);
    x = ts_softcap(&run, "", x, 30);
    assert_memory_equal(x.data, expected, sizeof expected);
    ts_run_release(&run);
}

/* PyTorch's bf16 for 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): all of these are others when the cube is
 * rounded once instead of twice. */
static void the_gelu_of_gpt2_cubes_in_steps(void **state)
{
    static const float given[] = {-2.125f, -0.90625f, -0.828125f, 0.90625f},
                       expected[] = {-0.037353515625f, -0.166015625f, -0.16796875f, 0.73828125f};
    struct ts_watcher watcher = {0};
    struct ts_run run = {.watcher = &watcher, .compute = TS_COMPUTE_BF16};
    struct ts_act x = ts_new(&run, 1, 4);
    (void)state;
    memcpy(x.data, given, sizeof given);
    x = ts_activate(&run, "", x, TS_GELU_NEW);
    assert_memory_equal(x.data, expected, sizeof expected);
    ts_run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_settings_are_named),
        cmocka_unit_test(a_sparse_config_means_the_defaults_of_its_class),
        cmocka_unit_test(only_windows_that_are_used_are_blind_spots),
        cmocka_unit_test(rotary_factors_round_as_in_the_library),
        cmocka_unit_test(a_softcap_divides),
        cmocka_unit_test(the_gelu_of_gpt2_cubes_in_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
