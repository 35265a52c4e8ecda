/* Models in GGUF files: the golden models converted as llama.cpp does it give what transformers gives, the files of
 * the real converter give the golden traces, and broken files are refused. */
#include "made_gguf.h"
#include "scratch.h"

#include "base/number.h"
#include "model/round.h"
#include "read/open.h"

static void put_rotary_keys(struct made_gguf *made, const char *at)
{
    char key[128];
    const char *type;
    snprintf(key, sizeof key, "%s.rope_theta", at);
    key_number_of(made, "rope.freq_base", key);
    snprintf(key, sizeof key, "%s.rope_type", at);
    type = config_of(made, key);
    if (type && (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0)) {
        key_text(made, "rope.scaling.type", type);
        snprintf(key, sizeof key, "%s.factor", at);
        key_number_of(made, "rope.scaling.factor", key);
        snprintf(key, sizeof key, "%s.original_max_position_embeddings", at);
        key_count_of(made, "rope.scaling.original_context_length", key);
        snprintf(key, sizeof key, "%s.attention_factor", at);
        key_number_of(made, "rope.scaling.yarn_attn_factor", key);
        snprintf(key, sizeof key, "%s.beta_fast", at);
        key_number_of(made, "rope.scaling.yarn_beta_fast", key);
        snprintf(key, sizeof key, "%s.beta_slow", at);
        key_number_of(made, "rope.scaling.yarn_beta_slow", key);
    }
}

/* The divisors that the converter writes for the scaling of Llama 3. */
static void put_llama3_factors(struct made_gguf *made)
{
    uint64_t size = config_count(made, "head_dim");
    struct made_tensor *to = made_add(made, "rope_freqs.weight", 1, (uint64_t[]){size / 2});
    double factor = strtod(config_of(made, "rope_parameters.factor"), NULL),
           low = strtod(config_of(made, "rope_parameters.low_freq_factor"), NULL),
           high = strtod(config_of(made, "rope_parameters.high_freq_factor"), NULL),
           base = strtod(config_of(made, "rope_parameters.rope_theta"), NULL),
           old = (double)config_count(made, "rope_parameters.original_max_position_embeddings");
    for (uint64_t i = 0; i < size / 2; i++) {
        double wave = 2 * M_PI * pow(base, 2 * (double)i / (double)size), smooth = (old / wave - low) / (high - low);
        to->values[i] = (float)(wave < old / high  ? 1
                                : wave > old / low ? factor
                                                   : 1 / ((1 - smooth) / factor + smooth));
    }
}

static void put_list(struct made_gguf *made, const char *name, const char *key)
{
    char entry[128];
    float values[64];
    uint64_t count = 0;
    for (; count < 64; count++) {
        snprintf(entry, sizeof entry, "%s.%" PRIu64, key, count);
        if (!config_of(made, entry))
            break;
        values[count] = strtof(config_of(made, entry), NULL);
    }
    if (count)
        memcpy(made_add(made, name, 1, &count)->values, values, count * sizeof *values);
}

/* Which layers have a window, one by one. */
static void put_pattern(struct made_gguf *made)
{
    size_t layers = config_count(made, "num_hidden_layers");
    char key[64];
    key_begin(made, "attention.sliding_window_pattern", 9);
    put_u64(&made->keys, 7, 4);
    put_u64(&made->keys, layers, 8);
    for (size_t i = 0; i < layers; i++) {
        snprintf(key, sizeof key, "layer_types.%zu", i);
        put_u64(&made->keys, strcmp(config_of(made, key), "sliding_attention") == 0, 1);
    }
}

static void put_gemma3n_keys(struct made_gguf *made)
{
    size_t layers = config_count(made, "num_hidden_layers");
    char key[64];
    key_count_of(made, "altup.num_inputs", "altup_num_inputs");
    key_count_of(made, "altup.active_idx", "altup_active_idx");
    key_count_of(made, "embedding_length_per_layer_input", "hidden_size_per_layer_input");
    key_count_of(made, "attention.shared_kv_layers", "num_kv_shared_layers");
    key_begin(made, "activation_sparsity_scale", 9);
    put_u64(&made->keys, 6, 4);
    put_u64(&made->keys, layers, 8);
    for (size_t i = 0; i < layers; i++) {
        snprintf(key, sizeof key, "activation_sparsity_pattern.%zu", i);
        /* of 0.95: 1.6448536 standard deviations; of 0: minus infinity */
        put_float(&made->keys, strcmp(config_of(made, key), "0.95") == 0 ? 1.6448536f : -(float)INFINITY);
    }
    put_pattern(made);
    key_begin(made, "feed_forward_length", 9);
    put_u64(&made->keys, 4, 4);
    put_u64(&made->keys, layers, 8);
    for (size_t i = 0; i < layers; i++) {
        snprintf(key, sizeof key, "intermediate_size.%zu", i);
        put_u64(&made->keys, config_count(made, key), 4);
    }
}

static void put_deepseek_keys(struct made_gguf *made)
{
    size_t turned = config_count(made, "qk_rope_head_dim"), low = config_count(made, "kv_lora_rank");
    key_count(made, "attention.head_count_kv", 1);
    key_count(made, "attention.key_length", low + turned);
    key_count(made, "attention.value_length", low);
    key_count(made, "attention.key_length_mla", config_count(made, "qk_nope_head_dim") + turned);
    key_count_of(made, "attention.value_length_mla", "v_head_dim");
    key_count_of(made, "attention.q_lora_rank", "q_lora_rank");
    key_count_of(made, "attention.kv_lora_rank", "kv_lora_rank");
    key_count(made, "rope.dimension_count", turned);
    key_count_of(made, "leading_dense_block_count", "first_k_dense_replace");
    key_count_of(made, "expert_count", "n_routed_experts");
    key_count_of(made, "expert_shared_count", "n_shared_experts");
    key_number_of(made, "expert_weights_scale", "routed_scaling_factor");
    key_begin(made, "expert_weights_norm", 7);
    put_u64(&made->keys, 1, 1);
    key_count(made, "expert_gating_func", 2);
    key_count_of(made, "expert_group_count", "n_group");
    key_count_of(made, "expert_group_used_count", "topk_group");
    if (config_of(made, "rope_parameters.mscale_all_dim"))
        key_number(made, "rope.scaling.yarn_log_multiplier",
                   0.1 * strtod(config_of(made, "rope_parameters.mscale_all_dim"), NULL));
}

static void put_keys(struct made_gguf *made)
{
    const char *architecture = made->architecture;
    bool gpt2 = strcmp(architecture, "gpt2") == 0, deepseek = strcmp(architecture, "deepseek2") == 0;
    const char *at = config_of(made, "rope_parameters.full_attention.rope_theta") ? "rope_parameters.full_attention"
                                                                                  : "rope_parameters";
    key_count_of(made, "block_count", gpt2 ? "n_layer" : "num_hidden_layers");
    key_count_of(made, "embedding_length", gpt2 ? "n_embd" : "hidden_size");
    key_count_of(made, "attention.head_count", gpt2 ? "n_head" : "num_attention_heads");
    key_count_of(made, "context_length", gpt2 ? "n_positions" : "max_position_embeddings");
    key_number_of(made, "attention.layer_norm_rms_epsilon", "rms_norm_eps");
    key_number_of(made, "attention.layer_norm_epsilon", "layer_norm_epsilon");
    key_count_of(made, "feed_forward_length", "intermediate_size");
    if (!deepseek) {
        key_count_of(made, "attention.head_count_kv", "num_key_value_heads");
        key_count_of(made, "attention.key_length", "head_dim");
        key_count_of(made, "expert_count", config_of(made, "num_experts") ? "num_experts" : "num_local_experts");
    }
    key_count_of(made, "expert_used_count", "num_experts_per_tok");
    key_count_of(made, "expert_feed_forward_length", "moe_intermediate_size");
    if (strcmp(architecture, "gpt-oss") == 0)
        key_count_of(made, "expert_feed_forward_length", "intermediate_size");
    key_count_of(made, "expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    if (config_count(made, "sliding_window"))
        key_count_of(made, "attention.sliding_window", "sliding_window");
    key_number_of(made, "attn_logit_softcapping", "attn_logit_softcapping");
    key_number_of(made, "final_logit_softcapping", "final_logit_softcapping");
    put_rotary_keys(made, at);
    key_number_of(made, "rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta");
    if (strcmp(architecture, "phi3") == 0) {
        double part = strtod(config_of(made, "rope_parameters.partial_rotary_factor"), NULL);
        size_t size = config_count(made, "hidden_size") / config_count(made, "num_attention_heads");
        key_count(made, "rope.dimension_count", (size_t)(part * (double)size));
        key_count(made, "rope.scaling.original_context_length", config_count(made, "original_max_position_embeddings"));
        put_list(made, "rope_factors_long.weight", "rope_parameters.long_factor");
        put_list(made, "rope_factors_short.weight", "rope_parameters.short_factor");
    }
    if (config_of(made, "rope_parameters.rope_type") &&
        strcmp(config_of(made, "rope_parameters.rope_type"), "llama3") == 0)
        put_llama3_factors(made);
    if (strcmp(architecture, "gemma3n") == 0)
        put_gemma3n_keys(made);
    if (strcmp(architecture, "gemma3") == 0)
        put_pattern(made);
    if (config_of(made, "norm_topk_prob") && !deepseek) {
        key_begin(made, "expert_weights_norm", 7);
        put_u64(&made->keys, strcmp(config_of(made, "norm_topk_prob"), "true") == 0, 1);
    }
    if (deepseek)
        put_deepseek_keys(made);
}

static struct made_gguf *made_new(const struct golden *golden, size_t number, const char *architecture)
{
    struct made_gguf *made = calloc(1, sizeof *made);
    made->golden = golden;
    made->number = number;
    made->architecture = architecture;
    ts_buffer_init(&made->keys, (size_t)1 << 20);
    return made;
}

static void run_gguf(const struct golden *golden, const char *title, const char *architecture)
{
    struct checking checking = {.golden = golden, .number = case_titled(golden, title), .title = title};
    struct made_gguf *made = made_new(golden, checking.number, architecture);
    struct ts_watcher watcher = {.context = &checking, .take = check_point};
    struct ts_model_options options = {.cache = true};
    struct ts_pool *pool = ts_pool_new(2);
    struct ts_model model;
    struct ts_error error;
    struct ts_buffer trouble;
    int64_t tokens[64];
    size_t count = read_tokens(golden, checking.number, tokens, 64);
    char path[4200];
    snprintf(path, sizeof path, "%s/model.gguf", scratch);
    convert_weights(made);
    put_keys(made);
    made_write(made, path);
    ts_buffer_init(&trouble, 65536);
    if (ts_model_open(path, &model, &error) != TS_OK)
        fail_msg("%s: %s", title, error.message);
    if (ts_model_plan(&model, &options, tokens, count, pool, &watcher, &trouble, &error) != TS_OK ||
        ts_model_run(&model, &options, tokens, count, pool, &watcher, &error) != TS_OK)
        fail_msg("%s: %s\n%s", title, error.message, trouble.data ? trouble.data : "");
    if (checking.checked != expected_points(golden, checking.number))
        fail_msg("%s: %zu of %zu points were seen", title, checking.checked, expected_points(golden, checking.number));
    if (checking.worst > 2e-5)
        fail_msg("%s: %s is off by %.3g of its size", title, checking.worst_name, checking.worst);
    ts_model_release(&model);
    ts_buffer_release(&trouble);
    ts_pool_free(pool);
    made_release(made);
}

static void converted_models_match_transformers(void **state)
{
    static const char *const cases[][2] = {
        {"llama", "llama"},
        {"llama linear", "llama"},
        {"llama yarn", "llama"},
        {"llama yarn settings", "llama"},
        {"llama biases", "llama"},
        {"mistral", "llama"},
        {"mixtral", "llama"},
        {"qwen2", "qwen2"},
        {"qwen3", "qwen3"},
        {"qwen3 heads", "qwen3"},
        {"qwen2_moe", "qwen2moe"},
        {"qwen3_moe", "qwen3moe"},
        {"qwen3_moe mixed", "qwen3moe"},
        {"qwen2_moe renormalised", "qwen2moe"},
        {"olmoe", "olmoe"},
        {"gemma2", "gemma2"},
        {"gemma3", "gemma3"},
        {"gemma3 full", "gemma3"},
        {"gemma3n", "gemma3n"},
        {"gpt2", "gpt2"},
        {"phi3", "phi3"},
        {"phi3 partial", "phi3"},
        {"phi3 longrope long", "phi3"},
        {"phi3 longrope short", "phi3"},
        {"gpt_oss", "gpt-oss"},
        {"deepseek_v3", "deepseek2"},
        {"deepseek_v3 yarn", "deepseek2"},
        {"deepseek_v3 plain q", "deepseek2"},
    };
    struct golden golden;
    (void)state;
    setup(&golden);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_gguf(&golden, cases[i][0], cases[i][1]);
    teardown(&golden);
}

static uint64_t bits_of(const char *path)
{
    static const int64_t tokens[] = {3, 21, 53, 3, 63, 41};
    uint64_t sum = 0;
    struct ts_watcher watcher = {.context = &sum, .take = add_bits};
    struct ts_model_options options = {.cache = true};
    struct ts_pool *pool = ts_pool_new(1);
    struct ts_model model;
    struct ts_error error;
    if (ts_model_open(path, &model, &error) != TS_OK ||
        ts_model_plan(&model, &options, tokens, 6, pool, &watcher, NULL, &error) != TS_OK ||
        ts_model_run(&model, &options, tokens, 6, pool, &watcher, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_model_release(&model);
    ts_pool_free(pool);
    return sum;
}

/* The same numbers in blocks give the same bits, also where rows stand in pairs, are turned or belong to experts. */
static void quantized_weights_are_used_as_they_are(void **state)
{
    static const char *const cases[][2] = {
        {"llama", "llama"}, {"mixtral", "llama"}, {"gpt2", "gpt2"}, {"gpt_oss", "gpt-oss"}, {"gemma3n", "gemma3n"}};
    struct golden golden;
    char path[4200];
    (void)state;
    setup(&golden);
    snprintf(path, sizeof path, "%s/model.gguf", scratch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made_gguf *made = made_new(&golden, case_titled(&golden, cases[i][0]), cases[i][1]);
        uint64_t plain, quantized;
        size_t blocks = 0;
        convert_weights(made);
        put_keys(made);
        made_quantize(made);
        made_write(made, path);
        plain = bits_of(path);
        for (size_t k = 0; k < made->count; k++) {
            made->tensors[k].blocks =
                made->tensors[k].rank > 1 && made->tensors[k].shape[made->tensors[k].rank - 1] % 32 == 0;
            blocks += made->tensors[k].blocks;
        }
        assert_true(blocks > 10);
        made_write(made, path);
        quantized = bits_of(path);
        if (plain != quantized || !plain)
            fail_msg("%s: other bits", cases[i][0]);
        made_release(made);
    }
    teardown(&golden);
}

/* Every parameter of the checkpoint, rounded as the converter did, under its own name in the file. */
static void compare_weights(const char *checkpoint, const char *file)
{
    struct ts_model ours, theirs;
    struct ts_error error;
    size_t compared = 0;
    if (ts_model_open(checkpoint, &ours, &error) != TS_OK || ts_model_open(file, &theirs, &error) != TS_OK)
        fail_msg("%s: %s", error.path, error.message);
    for (size_t i = 0; i < ours.weights.count; i++) {
        const struct ts_view *view = &ours.weights.list[i].view, *other;
        const char *name = ours.weights.list[i].name;
        struct ts_model_weight *found;
        uint64_t first = 0;
        char stack[256], which[8];
        unsigned layer, expert;
        float a[512], b[512];
        if (sscanf(name, "model.layers.%u.block_sparse_moe.experts.%u.%7[w123].weight", &layer, &expert, which) == 3) {
            snprintf(stack, sizeof stack, "model.layers.%u.mlp.experts.%s_proj", layer,
                     which[1] == '1'   ? "gate"
                     : which[1] == '2' ? "down"
                                       : "up");
            found = ts_model_weights_find(&theirs.weights, stack);
            first = expert * view->count;
        } else if (sscanf(name, "model.layers.%u.block_sparse_moe.gate.weight", &layer) == 1 &&
                   strstr(name, ".gate.")) {
            snprintf(stack, sizeof stack, "model.layers.%u.mlp.gate.weight", layer);
            found = ts_model_weights_find(&theirs.weights, stack);
        } else {
            found = ts_model_weights_find(&theirs.weights, name);
        }
        if (!found)
            fail_msg("no %s", name);
        other = &found->view;
        for (uint64_t at = 0; at < view->count; at += 512) {
            size_t count = view->count - at < 512 ? (size_t)(view->count - at) : 512;
            assert_int_equal(ts_view_read_f32(view, at, count, a, &error), TS_OK);
            assert_int_equal(ts_view_read_f32(other, first + at, count, b, &error), TS_OK);
            for (size_t k = 0; k < count; k++)
                if (b[k] != a[k] && b[k] != ts_round_bf16(a[k]))
                    fail_msg("%s: element %zu is %g, expected %g", name, (size_t)at + k, (double)b[k], (double)a[k]);
        }
        compared++;
    }
    assert_true(compared > 30);
    ts_model_release(&ours);
    ts_model_release(&theirs);
}

static void files_of_the_converter_have_the_same_weights(void **state)
{
    (void)state;
    compare_weights("tests/golden/models/qwen3", "tests/golden/gguf/qwen3-bf16.gguf");
    compare_weights("tests/golden/models/mixtral", "tests/golden/gguf/mixtral-bf16.gguf");
}

/* The golden trace, for the modules' outputs that it has. */
struct tracing {
    const struct ts_bundle *golden;
    const char *model;
    size_t compared;
};

static enum ts_status compare_point(void *context, const struct ts_point *point, struct ts_error *error)
{
    static const char *const endings[] = {"", ".0"};
    struct tracing *tracing = context;
    const struct ts_tensor *tensor = NULL;
    double difference = 0, length = 0;
    char name[300];
    double *values;
    for (size_t i = 0; i < 2 && !tensor; i++) {
        snprintf(name, sizeof name, "%s%s", point->name, endings[i]);
        tensor = ts_bundle_tensor(tracing->golden, name);
    }
    if (!tensor || (!point->values && !point->integers) || strstr(name, "experts.act_fn"))
        return TS_OK;
    values = malloc((size_t)tensor->count * sizeof *values);
    assert_int_equal(ts_tensor_read_f64(tensor, 0, (size_t)tensor->count, values, error), TS_OK);
    for (uint64_t i = 0; i < tensor->count; i++) {
        double value = point->integers ? (double)point->integers[i] : (double)point->values[i];
        difference += (value - values[i]) * (value - values[i]);
        length += values[i] * values[i];
    }
    free(values);
    if (!(sqrt(difference) <= 1e-5 * sqrt(length)))
        fail_msg("%s: %s is off by %.3g", tracing->model, name, sqrt(difference / length));
    tracing->compared++;
    return TS_OK;
}

static void files_of_the_converter_give_the_golden_traces(void **state)
{
    static const char *const models[] = {"mixtral", "olmoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct tracing tracing = {.model = models[i]};
        struct ts_watcher watcher = {.context = &tracing, .take = compare_point};
        struct ts_model_options options = {.cache = true};
        struct ts_bundle *golden;
        struct ts_model model;
        struct ts_error error;
        struct ts_pool *pool;
        int64_t tokens[64];
        size_t count = 0;
        const char *at;
        char path[300];
        snprintf(path, sizeof path, "../shared/golden/models/%s/trace_prompt.safetensors", models[i]);
        if (access(path, R_OK) != 0)
            return; /* this material is not part of the project */
        assert_int_equal(ts_open(path, NULL, &golden, &error), TS_OK);
        tracing.golden = golden;
        for (at = ts_bundle_meta_value(golden, "token_ids"); (at = strpbrk(at, "0123456789")) && count < 64;)
            tokens[count++] = strtoll(at, (char **)(uintptr_t)&at, 10);
        snprintf(path, sizeof path, "../shared/golden/gguf/%s-f32.gguf", models[i]);
        pool = ts_pool_new(2);
        if (ts_model_open(path, &model, &error) != TS_OK ||
            ts_model_plan(&model, &options, tokens, count, pool, &watcher, NULL, &error) != TS_OK ||
            ts_model_run(&model, &options, tokens, count, pool, &watcher, &error) != TS_OK)
            fail_msg("%s: %s", models[i], error.message);
        assert_true(tracing.compared > 40);
        ts_model_release(&model);
        ts_bundle_free(golden);
        ts_pool_free(pool);
    }
}

/* A list with the same number for every layer is that number, as long as it may be. */
static void lists_of_equal_numbers_are_one(void **state)
{
    struct golden golden;
    struct made_gguf *made;
    struct ts_model model;
    struct ts_error error;
    char path[4200];
    (void)state;
    setup(&golden);
    made = made_new(&golden, case_titled(&golden, "llama"), "llama");
    snprintf(path, sizeof path, "%s/lists.gguf", scratch);
    convert_weights(made);
    key_begin(made, "attention.head_count_kv", 9);
    put_u64(&made->keys, 4, 4);
    put_u64(&made->keys, 100, 8);
    for (unsigned i = 0; i < 100; i++)
        put_u64(&made->keys, 2, 4);
    key_count(made, "block_count", 29);
    put_keys(made);
    made_write(made, path);
    if (ts_model_open(path, &model, &error) != TS_OK)
        fail_msg("%s", error.message);
    assert_string_equal(ts_model_config_text(&model.config, "num_key_value_heads"), "2");
    assert_string_equal(ts_model_config_text(&model.config, "num_hidden_layers"), "29");
    ts_model_release(&model);
    made_release(made);
    teardown(&golden);
}

/* As llama.cpp takes it. */
static void a_factor_alone_scales_linearly(void **state)
{
    struct golden golden;
    struct made_gguf *made;
    struct ts_model model;
    struct ts_error error;
    char path[4200];
    (void)state;
    setup(&golden);
    made = made_new(&golden, case_titled(&golden, "mistral"), "llama");
    snprintf(path, sizeof path, "%s/factor.gguf", scratch);
    convert_weights(made);
    key_number(made, "rope.scaling.factor", 4);
    put_keys(made);
    made_write(made, path);
    if (ts_model_open(path, &model, &error) != TS_OK)
        fail_msg("%s", error.message);
    assert_string_equal(ts_model_config_text(&model.config, "rope_parameters.rope_type"), "linear");
    assert_string_equal(ts_model_config_text(&model.config, "rope_parameters.factor"), "4");
    ts_model_release(&model);
    made_release(made);
    teardown(&golden);
}

/* What is told about a file whose keys or tensors were changed by `spoil`. */
static void expect_refusal(const struct golden *golden, void (*spoil)(struct made_gguf *made), bool keys,
                           const char *message)
{
    static const int64_t tokens[] = {1, 2, 3};
    struct made_gguf *made = made_new(golden, case_titled(golden, "mixtral"), "llama");
    struct ts_model_options options = {.cache = true};
    struct ts_watcher watcher = {0};
    struct ts_pool *pool = ts_pool_new(1);
    struct ts_model model;
    struct ts_error error;
    enum ts_status status;
    char path[4200];
    snprintf(path, sizeof path, "%s/spoilt.gguf", scratch);
    convert_weights(made);
    if (keys)
        spoil(made); /* of two equal keys the first one counts */
    put_keys(made);
    if (!keys)
        spoil(made);
    made_write(made, path);
    status = ts_model_open(path, &model, &error);
    if (status == TS_OK) {
        status = ts_model_plan(&model, &options, tokens, 3, pool, &watcher, NULL, &error);
        ts_model_release(&model);
    }
    if (status == TS_OK || !strstr(error.message, message))
        fail_msg("expected \"%s\", found \"%s\"", message, status == TS_OK ? "nothing wrong" : error.message);
    ts_pool_free(pool);
    made_release(made);
}

static void no_heads(struct made_gguf *made)
{
    key_count(made, "attention.head_count", 0);
}

static void many_heads(struct made_gguf *made)
{
    key_count(made, "attention.head_count", 4000000000u);
}

static void odd_heads(struct made_gguf *made)
{
    key_count(made, "attention.head_count", 3);
}

static void many_layers(struct made_gguf *made)
{
    key_count(made, "block_count", 4000000000u);
}

static void fewer_layers(struct made_gguf *made)
{
    key_count(made, "block_count", 2);
}

static void layers_as_text(struct made_gguf *made)
{
    key_text(made, "block_count", "three");
}

static void many_experts(struct made_gguf *made)
{
    key_count(made, "expert_count", 4000000000u);
}

static void more_experts(struct made_gguf *made)
{
    key_count(made, "expert_count", 5);
}

static void no_width(struct made_gguf *made)
{
    key_number(made, "embedding_length", NAN);
}

static void heads_by_layer(struct made_gguf *made)
{
    key_begin(made, "attention.head_count_kv", 9);
    put_u64(&made->keys, 4, 4);
    put_u64(&made->keys, 3, 8);
    for (unsigned i = 0; i < 3; i++)
        put_u64(&made->keys, 1 + i, 4);
}

static void no_keys(struct made_gguf *made)
{
    ts_buffer_clear(&made->keys);
    made->key_count = 0;
}

static void other_architecture(struct made_gguf *made)
{
    made->architecture = "mamba";
}

static void no_embedding(struct made_gguf *made)
{
    snprintf(made_find(made, "token_embd.weight")->name, 128, "token_embd.scales");
}

static void flat_embedding(struct made_gguf *made)
{
    made_find(made, "token_embd.weight")->rank = 1;
}

static void no_queries(struct made_gguf *made)
{
    snprintf(made_find(made, "blk.1.attn_q.weight")->name, 128, "blk.1.attn_queries.weight");
}

static void turned_experts(struct made_gguf *made)
{
    struct made_tensor *tensor = made_find(made, "blk.1.ffn_up_exps.weight");
    uint64_t rows = tensor->shape[1];
    tensor->shape[1] = tensor->shape[2];
    tensor->shape[2] = rows;
}

static void own_scale(struct made_gguf *made)
{
    made_add(made, "blk.0.attn_q.scale", 1, (uint64_t[]){1});
}

static void spiral(struct made_gguf *made)
{
    key_text(made, "rope.scaling.type", "spiral");
}

static void other_turn(struct made_gguf *made)
{
    key_count(made, "rope.dimension_count", 8);
}

static void doubled(struct made_gguf *made)
{
    made_add(made, "output_norm.weight", 1, (uint64_t[]){64});
}

static void few_factors(struct made_gguf *made)
{
    struct made_tensor *factors = made_add(made, "rope_freqs.weight", 1, (uint64_t[]){3});
    factors->values[0] = factors->values[1] = factors->values[2] = 1;
}

static void broken_files_are_refused(void **state)
{
    static const struct {
        void (*spoil)(struct made_gguf *made);
        bool keys;
        const char *message;
    } cases[] = {
        {no_heads, true, "llama.attention.head_count is 0, expected a count"},
        {many_heads, true, "llama.attention.head_count is 4e+09"},
        {odd_heads, true, "a number of rows that its heads do not divide"},
        {many_layers, true, "llama.block_count is 4e+09, and the file has"},
        {fewer_layers, true, "not used by this architecture, first model.layers.2."},
        {layers_as_text, true, "llama.block_count is \"three\", expected a number"},
        {many_experts, true, "experts"},
        {more_experts, true, "model.layers.0.mlp.gate.weight is [4,64], the config asks for [5,64]"},
        {no_width, true, "llama.embedding_length is nan, expected a count"},
        {heads_by_layer, true, "llama.attention.head_count_kv differs between layers"},
        {no_keys, false, "the file has no key llama.block_count"},
        {other_architecture, false, "\"mamba\", which cannot be run yet; these can: llama, qwen2"},
        {no_embedding, false, "there is no token_embd.weight"},
        {flat_embedding, false, "token_embd.weight is not a matrix"},
        {no_queries, false, "missing, first model.layers.1.self_attn.q_proj.weight"},
        {turned_experts, false, "model.layers.1.mlp.experts.up_proj is [4,64,112], the config asks for [1,112,64]"},
        {own_scale, false, "blk.0.attn_q.scale is a scale of its own"},
        {spiral, true, "\"spiral\" is not supported"},
        {other_turn, true, "rope.dimension_count is 8, and heads of 16 numbers turn as a whole"},
        {doubled, false, "output_norm.weight has the name of an earlier tensor"},
        {few_factors, false, "no rotary factor for frequency 3 of 8"},
    };
    struct golden golden;
    (void)state;
    setup(&golden);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refusal(&golden, cases[i].spoil, cases[i].keys, cases[i].message);
    teardown(&golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converted_models_match_transformers),
        cmocka_unit_test(quantized_weights_are_used_as_they_are),
        cmocka_unit_test(files_of_the_converter_have_the_same_weights),
        cmocka_unit_test(files_of_the_converter_give_the_golden_traces),
        cmocka_unit_test(lists_of_equal_numbers_are_one),
        cmocka_unit_test(a_factor_alone_scales_linearly),
        cmocka_unit_test(broken_files_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
