/* Tests the comparison of checkpoints with their config.json on models that transformers saved: as they are nothing is
 * wrong, and every weight that is renamed is missed. */
#include "check_run.h"

#include <dirent.h>
#include <sys/stat.h>

static const char *const families[] = {"deepseek_v3", "gemma2", "gemma3",    "gemma3n", "gpt2",
                                       "gpt_oss",     "llama",  "mistral",   "mixtral", "olmoe",
                                       "phi3",        "qwen2",  "qwen2_moe", "qwen3",   "qwen3_moe"};
#define FAMILIES (sizeof families / sizeof *families)

/* Where a family's model lies, or NULL. */
static const char *golden(const char *family)
{
    static char path[256];
    struct stat info;
    snprintf(path, sizeof path, "../shared/golden/models/%s", family);
    if (stat(path, &info) == 0)
        return path;
    snprintf(path, sizeof path, "tests/golden/models/%s", family);
    return stat(path, &info) == 0 ? path : NULL;
}

static char *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *data;
    long length;
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    length = ftell(file);
    rewind(file);
    data = malloc((size_t)length + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)length, file), (size_t)length);
    data[length] = '\0';
    fclose(file);
    *size = (size_t)length;
    return data;
}

/* Copies config, index and weights of a golden model to scratch/name; `leave` is a file to leave out. */
static void copy_model(const char *from, const char *name, const char *leave)
{
    DIR *folder = opendir(from);
    struct dirent *entry;
    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[1024], to[1024], *data;
        size_t size;
        if ((strncmp(entry->d_name, "model", 5) != 0 && strcmp(entry->d_name, "config.json") != 0) ||
            (leave && strcmp(entry->d_name, leave) == 0))
            continue;
        snprintf(path, sizeof path, "%s/%s", from, entry->d_name);
        snprintf(to, sizeof to, "%s/%s", name, entry->d_name);
        data = read_all(path, &size);
        scratch_write(to, data, size);
        free(data);
    }
    closedir(folder);
}

/* Replaces the first occurrence of a text in a file by one of the same length. */
static void patch(const char *name, const char *old, const char *new)
{
    size_t size;
    char *data = read_all(scratch_path(name), &size);
    char *at = memmem(data, size, old, strlen(old));
    assert_non_null(at);
    assert_int_equal(strlen(old), strlen(new));
    memcpy(at, new, strlen(new));
    scratch_write(name, data, size);
    free(data);
}

/* The same where the lengths differ: JSON files. */
static void edit(const char *name, const char *old, const char *new)
{
    size_t size, before;
    char *data = read_all(scratch_path(name), &size), *at = strstr(data, old);
    struct ts_buffer edited;
    assert_non_null(at);
    before = (size_t)(at - data);
    ts_buffer_init(&edited, 1 << 24);
    ts_buffer_append(&edited, data, before);
    ts_buffer_string(&edited, new);
    ts_buffer_string(&edited, at + strlen(old));
    scratch_write(name, edited.data, edited.size);
    ts_buffer_release(&edited);
    free(data);
}

static void test_golden_models_keep_their_promises(void **state)
{
    size_t seen = 0;
    (void)state;
    for (size_t i = 0; i < FAMILIES; i++) {
        const char *path = golden(families[i]);
        struct checked checked;
        if (!path)
            continue;
        seen++;
        checked = check_path(path, false);
        expect_count(&checked, 0, 0);
        checked_release(&checked);
    }
    assert_in_range(seen, 2, FAMILIES);
}

/* Weights of gemma3n's that may be absent: the scales that a setting turns off. */
static bool may_be_absent(const char *name)
{
    return strstr(name, "correct_output_scale") != NULL;
}

/* One by one, every weight gets another name in the header; the check must miss exactly that one. Done on descriptions
 * only: renaming in the open bundle saves hundreds of files. */
static void test_every_weight_is_missed(void **state)
{
    (void)state;
    for (size_t i = 0; i < FAMILIES; i++) {
        const char *path = golden(families[i]);
        struct ts_pool *pool = ts_pool_new(1);
        struct ts_bundle *bundle;
        struct ts_stats *stats;
        struct ts_error error;
        char folder[128];
        if (!path) {
            ts_pool_free(pool);
            continue;
        }
        snprintf(folder, sizeof folder, "missed_%s", families[i]);
        copy_model(path, folder, NULL);
        assert_int_equal(ts_open(scratch_path(folder), NULL, &bundle, &error), TS_OK);
        stats = calloc(bundle->count, sizeof *stats);
        assert_int_equal(ts_stats_run(pool, bundle->tensors, bundle->count, stats, NULL, &error), TS_OK);
        for (size_t t = 0; t < bundle->count; t++) {
            const char *name = bundle->tensors[t]->name;
            struct checked checked = {.bundle = bundle};
            bundle->tensors[t]->name = "model.something.else";
            assert_int_equal(ts_check_run(pool, bundle, stats, NULL, &checked.check, &error), TS_OK);
            if (!may_be_absent(name))
                expect_issue(&checked, "missing-weight", TS_FAULT, name, "config.json");
            expect_issue(&checked, "unexpected-weight", TS_WARNING, "model.something.else", "promises no such weight");
            assert_int_equal(checked.check.faults, !may_be_absent(name));
            ts_check_release(&checked.check);
            bundle->tensors[t]->name = name;
        }
        free(stats);
        ts_bundle_free(bundle);
        ts_pool_free(pool);
    }
}

static void test_renamed_in_the_file(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("qwen3"), "renamed", NULL);
    patch("renamed/model.safetensors", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.uq_proj.weight");
    checked = check_scratch("renamed");
    expect_issue(&checked, "missing-weight", TS_FAULT, "model.layers.1.mlp.up_proj.weight", "config.json (qwen3)");
    expect_issue(&checked, "unexpected-weight", TS_WARNING, "model.layers.1.mlp.uq_proj.weight", "no such weight");
    expect_count(&checked, 1, 1);
    checked_release(&checked);
    /* a file by itself takes the config beside it */
    checked = check_scratch("renamed/model.safetensors");
    expect_count(&checked, 1, 1);
    checked_release(&checked);
}

static void test_whole_layers(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("qwen3"), "layers", NULL);
    edit("layers/config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 5");
    checked = check_scratch("layers");
    expect_issue(&checked, "missing-weight", TS_FAULT, "model.layers.{3..4}", "num_hidden_layers is 5");
    expect_count(&checked, 1, 0);
    checked_release(&checked);
    edit("layers/config.json", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 2");
    checked = check_scratch("layers");
    expect_issue(&checked, "unexpected-weight", TS_WARNING, "model.layers.{2}", "num_hidden_layers is 2");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
}

static void test_shapes(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("qwen3"), "shapes", NULL);
    edit("shapes/config.json", "\"intermediate_size\": 112", "\"intermediate_size\": 128");
    checked = check_scratch("shapes");
    expect_issue(&checked, "shape", TS_FAULT, "model.layers.0.mlp.up_proj.weight",
                 "has shape [112,64], and config.json makes it [128,64]; so have 2 others");
    expect_issue(&checked, "shape", TS_FAULT, "model.layers.0.mlp.down_proj.weight", "[64,128]");
    expect_count(&checked, 3, 0);
    checked_release(&checked);
    edit("shapes/config.json", "\"intermediate_size\": 128", "\"intermediate_size\": 112");
    edit("shapes/config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4");
    checked = check_scratch("shapes");
    expect_issue(&checked, "shape", TS_FAULT, "model.layers.0.self_attn.k_proj.weight", "[64,64]");
    expect_count(&checked, 2, 0);
    checked_release(&checked);
}

static void test_head_that_is_not_tied(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("qwen3"), "head", NULL);
    edit("head/config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    checked = check_scratch("head");
    expect_issue(&checked, "missing-weight", TS_FAULT, "lm_head.weight", "does not tie it");
    expect_count(&checked, 1, 0);
    checked_release(&checked);
}

static void test_head_that_is_tied_and_differs(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("mixtral"), "tied", NULL);
    edit("tied/config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    checked = check_scratch("tied");
    expect_issue(&checked, "tied-weights", TS_WARNING, "lm_head.weight", "\"model.embed_tokens.weight\"");
    expect_count(&checked, 0, 1);
    checked_release(&checked);
}

static void test_biases(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("qwen3"), "biases", NULL);
    edit("biases/config.json", "\"attention_bias\": false", "\"attention_bias\": true");
    checked = check_scratch("biases");
    expect_issue(&checked, "missing-weight", TS_FAULT, "model.layers.{0..2}.self_attn.q_proj.bias", "qwen3");
    expect_count(&checked, 4, 0);
    checked_release(&checked);
}

static void test_experts(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("mixtral"), "experts", NULL);
    edit("experts/config.json", "\"num_local_experts\": 4", "\"num_local_experts\": 5");
    checked = check_scratch("experts");
    expect_issue(&checked, "missing-weight", TS_FAULT, "model.layers.{0..2}.block_sparse_moe.experts.4.w1.weight",
                 "mixtral");
    expect_issue(&checked, "shape", TS_FAULT, "model.layers.0.block_sparse_moe.gate.weight", "[5,64]");
    expect_count(&checked, 4, 0);
    checked_release(&checked);
    edit("experts/config.json", "\"num_local_experts\": 5", "\"num_local_experts\": 3");
    checked = check_scratch("experts");
    expect_issue(&checked, "unexpected-weight", TS_WARNING, "model.layers.0.block_sparse_moe.experts.3.w1.weight",
                 "2 other layers have it too");
    expect_count(&checked, 1, 3);
    checked_release(&checked);
}

static void test_shards_without_an_index(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("mixtral"), "shards", "model.safetensors.index.json");
    checked = check_scratch("shards");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    patch("shards/model-00003-of-00011.safetensors", "model.layers.", "nodel.layers.");
    checked = check_scratch("shards");
    assert_non_null(issue_of(&checked, "missing-weight", NULL));
    checked_release(&checked);
    assert_int_equal(remove(scratch_path("shards/model-00003-of-00011.safetensors")), 0);
    checked = check_scratch("shards");
    expect_issue(&checked, "unreadable", TS_FAULT, "model-00003-of-00011.safetensors", "there are 11 such files");
    assert_null(issue_of(&checked, "missing-weight", NULL));
    checked_release(&checked);
}

static void test_one_shard_alone(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("mixtral"), "one", "model.safetensors.index.json");
    checked = check_scratch("one/model-00003-of-00011.safetensors");
    expect_issue(&checked, "missing-shard", TS_NOTE, NULL, "one of 11 shards");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

static void test_shard_that_the_index_names(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("mixtral"), "index", "model-00004-of-00011.safetensors");
    checked = check_scratch("index");
    expect_issue(&checked, "unreadable", TS_FAULT, "model-00004-of-00011.safetensors", "missing shard");
    assert_null(issue_of(&checked, "missing-weight", NULL));
    checked_release(&checked);
}

/* A text model inside a multimodal one: other prefixes, settings in text_config, and a vision tower. */
static void test_nested_config(void **state)
{
    struct checked checked;
    struct ts_buffer config;
    size_t size;
    char *inner;
    (void)state;
    copy_model(golden("qwen3"), "nested", NULL);
    inner = read_all(scratch_path("nested/config.json"), &size);
    ts_buffer_init(&config, 1 << 20);
    ts_buffer_printf(&config,
                     "{\"model_type\": \"some_vl\", \"hidden_size\": 7, \"text_config\": %s, \"vision_config\": "
                     "{\"num_hidden_layers\": 99}}",
                     inner);
    scratch_write("nested/config.json", config.data, config.size);
    ts_buffer_release(&config);
    free(inner);
    checked = check_scratch("nested");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    patch("nested/model.safetensors", "model.layers.2.self_attn.q_norm.weight",
          "model.layers.2.self_attn.q_norn.weight");
    checked = check_scratch("nested");
    expect_issue(&checked, "missing-weight", TS_FAULT, "model.layers.2.self_attn.q_norm.weight", "qwen3");
    checked_release(&checked);
}

/* Checks a golden model whose names have been changed in the open bundle: each `old` becomes `new`. */
static struct checked check_renamed(const char *family, const char *old, const char *new)
{
    struct checked checked = {0};
    struct ts_pool *pool = ts_pool_new(1);
    struct ts_stats *stats;
    struct ts_error error;
    size_t renamed = 0;
    copy_model(golden(family), "other_names", NULL);
    assert_int_equal(ts_open(scratch_path("other_names"), NULL, &checked.bundle, &error), TS_OK);
    for (size_t i = 0; i < checked.bundle->count; i++) {
        struct ts_tensor *tensor = checked.bundle->tensors[i];
        const char *at = strstr(tensor->name, old);
        if (!at)
            continue;
        tensor->name = ts_arena_printf(&checked.bundle->arena, "%.*s%s%s", (int)(at - tensor->name), tensor->name, new,
                                       at + strlen(old));
        renamed++;
    }
    assert_in_range(renamed, 1, checked.bundle->count);
    stats = calloc(checked.bundle->count, sizeof *stats);
    assert_int_equal(ts_stats_run(pool, checked.bundle->tensors, checked.bundle->count, stats, NULL, &error), TS_OK);
    assert_int_equal(ts_check_run(pool, checked.bundle, stats, NULL, &checked.check, &error), TS_OK);
    free(stats);
    ts_pool_free(pool);
    assert_int_equal(nftw(scratch_path("other_names"), scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    return checked;
}

static void test_other_ways_to_store_it(void **state)
{
    struct checked checked;
    (void)state;
    /* experts of one layer in one tensor, as MLX and others do: not described, so not missed */
    checked = check_renamed("mixtral", ".experts.", ".switch_mlp.");
    expect_issue(&checked, "experts", TS_NOTE, NULL, "not compared");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* a quantized weight left in its parts */
    checked = check_renamed("qwen3", "q_proj.weight", "q_proj.qweight");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* the backbone by itself: no prefix, no head */
    checked = check_renamed("qwen3", "model.", "");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* inside a multimodal model */
    checked = check_renamed("qwen3", "model.", "language_model.model.");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* another model altogether: nothing is said */
    checked = check_renamed("qwen3", "model.", "unet.down_blocks.");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
}

/* So many experts that they cannot be there one by one: the rest is checked all the same. */
static void test_many_experts_in_one_tensor(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("mixtral"), "many", NULL);
    edit("many/config.json", "\"num_local_experts\": 4", "\"num_local_experts\": 4000000000");
    edit("many/config.json", "\"intermediate_size\": 112", "\"attention_is_odd\": 112");
    edit("many/config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1");
    checked = check_scratch("many");
    expect_issue(&checked, "experts", TS_NOTE, NULL, "not compared");
    expect_issue(&checked, "shape", TS_FAULT, "model.layers.0.self_attn.k_proj.weight", "[16,64]");
    expect_issue(&checked, "shape", TS_FAULT, "model.layers.0.block_sparse_moe.gate.weight", "[4000000000,64]");
    expect_count(&checked, 3, 0);
    checked_release(&checked);
}

static void test_other_models_are_left_alone(void **state)
{
    struct checked checked;
    (void)state;
    copy_model(golden("qwen3"), "other", NULL);
    edit("other/config.json", "\"model_type\": \"qwen3\"", "\"model_type\": \"qwen9\"");
    checked = check_scratch("other");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    /* numbers that would take longer than a life */
    edit("other/config.json", "\"model_type\": \"qwen9\"",
         "\"model_type\": \"qwen3_moe\", \"num_experts\": 9000000000000000000");
    edit("other/config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 9000000000000000000");
    checked = check_scratch("other");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    scratch_text("other/config.json", "{\"model_type\": ");
    checked = check_scratch("other");
    expect_issue(&checked, "config", TS_WARNING, NULL, "config.json cannot be read");
    checked_release(&checked);
}

/* The number behind a GGUF key of type u32 (4). */
static void patch_gguf(const char *name, const char *key, char value)
{
    size_t size;
    char *data = read_all(scratch_path(name), &size), *at = memmem(data, size, key, strlen(key));
    assert_non_null(at);
    at += strlen(key);
    assert_memory_equal(at, "\4\0\0\0\3\0\0\0", 8);
    at[4] = value;
    scratch_write(name, data, size);
    free(data);
}

static void test_block_count(void **state)
{
    static const char *const paths[] = {"tests/golden/gguf/qwen3-f32.gguf", "../shared/golden/gguf/qwen3-f32.gguf",
                                        "tests/golden/gguf/qwen3-bf16.gguf"};
    struct checked checked;
    struct stat info;
    const char *path = NULL;
    char *data;
    size_t size;
    (void)state;
    for (size_t i = 0; i < 3 && !path; i++)
        path = stat(paths[i], &info) == 0 ? paths[i] : NULL;
    if (!path)
        return; /* not skip(): cmocka reports it as a failure in TAP */
    data = read_all(path, &size);
    scratch_write("blocks.gguf", data, size);
    free(data);
    checked = check_scratch("blocks.gguf");
    expect_count(&checked, 0, 0);
    checked_release(&checked);
    patch_gguf("blocks.gguf", "qwen3.block_count", 5);
    checked = check_scratch("blocks.gguf");
    expect_issue(&checked, "missing-weight", TS_FAULT, "blk.{3..4}",
                 "qwen3.block_count is 5, and 2 of the blocks are not there");
    expect_count(&checked, 1, 0);
    checked_release(&checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_models_keep_their_promises),
        cmocka_unit_test(test_every_weight_is_missed),
        cmocka_unit_test(test_renamed_in_the_file),
        cmocka_unit_test(test_whole_layers),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_head_that_is_not_tied),
        cmocka_unit_test(test_head_that_is_tied_and_differs),
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_shards_without_an_index),
        cmocka_unit_test(test_one_shard_alone),
        cmocka_unit_test(test_shard_that_the_index_names),
        cmocka_unit_test(test_nested_config),
        cmocka_unit_test(test_other_ways_to_store_it),
        cmocka_unit_test(test_many_experts_in_one_tensor),
        cmocka_unit_test(test_other_models_are_left_alone),
        cmocka_unit_test(test_block_count),
    };
    return cmocka_run_group_tests_name("check_model", tests, scratch_make, scratch_remove);
}
