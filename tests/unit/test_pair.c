/* Which tensor stands beside which: by name, by canonical name, with a layer offset, by content, by a map; in which
 * order; and what is left over. Real files where there are some. */
#include "made_bundle.h"
#include "read/open.h"
#include "scratch.h"

static bool there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static void open_both(struct paired *paired, const char *a, const char *b)
{
    memset(paired, 0, sizeof *paired);
    if (ts_open(a, NULL, &paired->a, &paired->error) != TS_OK || ts_open(b, NULL, &paired->b, &paired->error) != TS_OK)
        fail_msg("%s: %s", paired->error.path, paired->error.message);
}

/* The archives start at layer 3 and at layer 0, store heads, batches and rows differently, and differ in one element.
 */
static void check_archives(const char *a, const char *b)
{
    static const char *const stages[] = {"post_ln_pre_attn", "query",   "query_final",         "key",
                                         "key_final",        "value",   "value_final",         "post_attn",
                                         "scaling",          "sliding", "post_attn_pre_resid", "pre_mlp",
                                         "post_mlp"};
    struct paired paired;
    open_both(&paired, a, b);
    paired_run(&paired, NULL);
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, 26);
    assert_int_equal(paired.pairing.only_a_count, 0);
    assert_int_equal(paired.pairing.only_b_count, 0);
    assert_int_equal(paired.pairing.layer_offset, 3);
    assert_true(has_note(&paired, "layers 3.. of A are compared with layers 0.. of B"));
    for (size_t i = 0; i < 26; i++) {
        const struct ts_pair *pair = &paired.pairing.pairs[i];
        char name[64], name_b[64];
        snprintf(name, sizeof name, "%zu_%s", 3 + i / 13, stages[i % 13]);
        snprintf(name_b, sizeof name_b, "%zu_%s", i / 13, stages[i % 13]);
        assert_string_equal(pair->name, name); /* in the order in which they were written, which is no alphabet */
        assert_string_equal(pair->name_b, name_b);
        assert_string_equal(pair->how, "layer offset +3");
        assert_false(pair->guess);
        if (strcmp(name, "4_post_mlp") == 0)
            assert_true(pair_error(pair) > 0.01); /* the planted bug */
        else
            assert_true(pair_error(pair) < 1e-3);
        if (strstr(name, "_final"))
            assert_non_null(strstr(pair->recipe, "swap 0 1"));
        if (strstr(name, "post_attn") && !strstr(name, "resid"))
            assert_non_null(strstr(pair->recipe, "A: take 0..6 of 8"));
    }
    paired_end(&paired);
}

static void test_archives(void **state)
{
    (void)state;
    check_archives("tests/golden/archives/model1_tp8.zip", "tests/golden/archives/model2_tp1.zip");
    check_archives("tests/golden/archives/model1_tp8.tar.gz", "tests/golden/archives/model2_tp1.zip");
}

/* A GGUF file against the safetensors it was made of: every weight has its partner and the same values. */
static void check_gguf(const char *gguf, const char *model, size_t tensors, bool permuted, double tolerance)
{
    struct paired paired;
    for (int turned = 0; turned < 2; turned++) {
        open_both(&paired, turned ? model : gguf, turned ? gguf : model);
        paired_run(&paired, NULL);
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, tensors);
        assert_int_equal(turned ? paired.pairing.only_b_count : paired.pairing.only_a_count, 0);
        for (size_t i = 0; i < (turned ? paired.pairing.only_a_count : paired.pairing.only_b_count); i++) {
            const char *name = (turned ? paired.pairing.only_a[i] : paired.pairing.only_b[i])->name;
            if (strncmp(name, "trace_", 6) != 0) /* which lie beside the weights in the larger set */
                fail_msg("%s has no partner", name);
        }
        for (size_t i = 0; i < tensors; i++) {
            const struct ts_pair *pair = &paired.pairing.pairs[i];
            const char *recipe = turned ? "B: rows un-permuted" : "A: rows un-permuted";
            bool is_query = strstr(pair->name, "attn_q.") || strstr(pair->name, "attn_k.") ||
                            strstr(pair->name_b, "attn_q.") || strstr(pair->name_b, "attn_k.");
            if (!(pair_error(pair) <= tolerance) || pair->guess || pair->ambiguous)
                fail_msg("%s = %s (%s): off by %g", pair->name, pair->name_b, pair->recipe, pair_error(pair));
            assert_true((strstr(pair->recipe, recipe) != NULL) == (permuted && is_query));
        }
        assert_string_equal(paired.pairing.order, "order of a forward pass");
        assert_non_null(strstr(paired.pairing.pairs[0].name, "emb"));
        paired_end(&paired);
    }
}

static void test_gguf(void **state)
{
    /* 2^-8 is half a step of bf16 */
    (void)state;
    check_gguf("tests/golden/gguf/mixtral-bf16.gguf", "tests/golden/models/mixtral", 33, true, 0.0040);
    check_gguf("tests/golden/gguf/qwen3-bf16.gguf", "tests/golden/models/qwen3", 35, false, 0.0040);
}

static void test_all_gguf(void **state)
{
    static const struct {
        const char *family;
        size_t tensors;
    } models[] = {{"mixtral", 33}, {"olmoe", 39}, {"qwen2", 39}, {"qwen2_moe", 54}, {"qwen3", 35}, {"qwen3_moe", 39}};
    char gguf[256], model[256];
    (void)state;
    if (!there("../shared/golden/gguf/olmoe-f32.gguf"))
        skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int half = 0; half < 2; half++) {
            snprintf(gguf, sizeof gguf, "../shared/golden/gguf/%s-%s.gguf", models[i].family, half ? "bf16" : "f32");
            snprintf(model, sizeof model, "../shared/golden/models/%s", models[i].family);
            check_gguf(gguf, model, models[i].tensors, strcmp(models[i].family, "mixtral") == 0, half ? 0.0040 : 0);
        }
}

/* One trace against a folder with two of the same names: the shapes say which. */
static void test_right_file(void **state)
{
    struct paired paired;
    (void)state;
    if (!there("../shared/golden/models/llama/trace_prompt.safetensors"))
        skip();
    open_both(&paired, "../shared/golden/models/llama/trace_prompt.safetensors", "../shared/golden/models/llama");
    paired_run(&paired, NULL);
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, 54);
    assert_string_equal(paired.pairing.order, "order given in the metadata of A");
    for (size_t i = 0; i < paired.pairing.count; i++) {
        assert_non_null(strstr(paired.pairing.pairs[i].name_b, "trace_prompt:"));
        assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
    }
    paired_end(&paired);
}

/* Names with "%d" on both sides, for layers [from, to), the same random values. */
static void add_layers(struct paired *paired, const char *a, const char *b, int from, int to)
{
    for (int layer = from; layer < to; layer++) {
        float *values = made_values(96);
        if (a)
            made_add(paired->a, made_name(a, layer), values, SHAPE(6, 16));
        if (b)
            made_add(paired->b, made_name(b, layer), values, SHAPE(6, 16));
        free(values);
    }
}

static void test_conventions_meet(void **state)
{
    static const char *const names[][2] = {
        {"%d_query", "model.layers.%d.self_attn.q_proj"}, {"%d_key", "blk.%d.attn_k"},
        {"%d_post_mlp", "layer_%d.mlp_output"},           {"%d_pre_mlp", "py_layer_%d_mlp_norm_output"},
        {"%d_my_own", "module.model.layers.%d.my.own"},   {"%d_post_attn", "transformer.h.%d.attn.o_proj_input"},
    };
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_layers(&paired, names[i][0], names[i][1], 0, 12);
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 72, 0);
    for (size_t i = 0; i < paired.pairing.count; i++)
        assert_string_equal(paired.pairing.pairs[i].how, "canonical name");
    paired_end(&paired);
}

/* 10 comes behind 9, and k behind the norm that it is made from. */
static void test_order_of_layers(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_layers(&paired, "layer_%d_attn_k", "layer_%d_attn_k", 0, 12);
    add_layers(&paired, "layer_%d_attn_norm_output", "layer_%d_attn_norm_output", 0, 12);
    add_layers(&paired, "layer_%d_layer_output", "layer_%d_layer_output", 0, 12);
    paired.a->order = paired.b->order = "natural order of names";
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 36, 0);
    assert_string_equal(paired.pairing.order, "order of a forward pass");
    for (int i = 0; i < 36; i++) {
        static const char *const kinds[] = {"layer_%d_attn_norm_output", "layer_%d_attn_k", "layer_%d_layer_output"};
        assert_string_equal(paired.pairing.pairs[i].name, made_name(kinds[i % 3], i / 3));
    }
    paired_end(&paired);
}

/* A folder is listed by its files, and there layers.0.npy stands behind what is inside of it: by name it would not. */
static void test_order_of_listed_files(void **state)
{
    static const char *const names[] = {
        "lm_head",        "model.embed_tokens", "model.layers.0.input_layernorm", "model.layers.0.mlp.down_proj",
        "model.layers.0", "model.norm"};
    static const size_t order[] = {1, 2, 3, 4, 5, 0};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 6; i++) {
        add_layers(&paired, names[i], names[i], i, i + 1);
        paired.a->tensors[i]->file = paired.b->tensors[i]->file = ts_arena_printf(&paired.a->arena, "%s.npy", names[i]);
    }
    paired.a->order = paired.b->order = "order of the files";
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 6, 0);
    assert_string_equal(paired.pairing.order, "order of a forward pass");
    for (int i = 0; i < 6; i++)
        assert_string_equal(paired.pairing.pairs[i].name, names[order[i]]);
    paired_end(&paired);
}

static void test_order_of_sequence_numbers(void **state)
{
    static const char *const names[] = {"0002_layer_0_attn_norm_output", "0010_layer_0_q", "0001_input_embeddings",
                                        "0011_layer_0_layer_output"};
    static const size_t order[] = {2, 0, 1, 3};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 4; i++)
        add_layers(&paired, names[i], names[i] + 5, i, i + 1);
    paired.a->order = paired.b->order = "natural order of names";
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 4, 0);
    assert_string_equal(paired.pairing.order, "order of the numbers in front of the names of A");
    for (int i = 0; i < 4; i++)
        assert_string_equal(paired.pairing.pairs[i].name, names[order[i]]);
    paired_end(&paired);
}

/* A folder with a checkpoint, which its library sorted by name, and a trace, which is as it ran. */
static void test_order_of_files(void **state)
{
    static const char *const names[] = {"model:layers.0.input_layernorm.weight",
                                        "model:layers.0.mlp.up_proj.weight",
                                        "model:layers.0.self_attn.q_proj.weight",
                                        "model:lm_head.weight",
                                        "model:norm.weight",
                                        "trace:zebra",
                                        "trace:layers.0.mlp.up_proj",
                                        "trace:layers.0.self_attn.q_proj",
                                        "trace:embed_tokens"};
    static const size_t order[] = {0, 2, 1, 4, 3, 5, 6, 7, 8};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 9; i++)
        add_layers(&paired, names[i], names[i], i, i + 1);
    paired.a->order = paired.b->order = "order of the files";
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 9, 0);
    assert_string_equal(paired.pairing.order, "order of the files of A");
    for (int i = 0; i < 9; i++)
        assert_string_equal(paired.pairing.pairs[i].name, names[order[i]]);
    paired_end(&paired);
}

/* Two tensors that do not stand as a library sorts them stand as they ran. */
static void test_order_of_two(void **state)
{
    static const char *const names[2][2] = {{"norm", "attn"}, {"attn", "norm"}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct paired paired;
        paired_start(&paired);
        for (int k = 0; k < 2; k++)
            add_layers(&paired, names[i][k], names[i][k], k, k + 1);
        paired.a->order = paired.b->order = "order of the file";
        paired_run(&paired, NULL);
        assert_string_equal(paired.pairing.pairs[0].name, names[i][0]);
        assert_string_equal(paired.pairing.order, i ? "natural order of names" : "order of the file of A");
        paired_end(&paired);
    }
}

static void test_order_file(void **state)
{
    struct paired paired;
    struct ts_pair_options options = {0};
    (void)state;
    paired_start(&paired);
    add_layers(&paired, "x%d", "x%d", 0, 4);
    scratch_text("order.txt", "# as it ran\nx3\n  x1  \n\nnot_here\nnor_here\nnot_here\n");
    options.order_file = scratch_path("order.txt");
    paired_run(&paired, &options);
    assert_all_equal(&paired, 4, 0);
    assert_string_equal(paired.pairing.order, "order of the --order file");
    assert_string_equal(paired.pairing.pairs[0].name, "x3");
    assert_string_equal(paired.pairing.pairs[1].name, "x1");
    assert_string_equal(paired.pairing.pairs[2].name, "x0");
    assert_true(has_note(&paired, "2 pairs are not in the order file"));
    assert_true(has_note(&paired, "2 names of "));
    assert_true(has_note(&paired, " are in neither input, the first \"not_here\""));
    ts_pairing_release(&paired.pairing);
    scratch_text("order.json", "\n[\"x2\", \"x0\", \"x3\", \"x1\"]\n");
    options.order_file = scratch_path("order.json");
    paired_run(&paired, &options);
    assert_all_equal(&paired, 4, 0);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(paired.pairing.pairs[i].name, made_name("x%d", (int[]){2, 0, 3, 1}[i]));
    assert_false(has_note(&paired, "in neither input"));
    ts_pairing_release(&paired.pairing);
    scratch_text("order.json", "[\"x2\", 3]");
    paired_run(&paired, &options);
    assert_int_equal(paired.status, TS_ERR_USAGE);
    options.order_file = scratch_path("none.txt");
    paired_run(&paired, &options);
    assert_int_equal(paired.status, TS_ERR_IO);
    paired_end(&paired);
}

/* A prefix on one side only, whatever it is. */
static void test_prefixes(void **state)
{
    static const char *const prefixes[] = {"py_", "cpp_", "model.", "module.", "_orig_mod.", "my.run.", "some/folder/"};
    (void)state;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct paired paired;
        char name[64];
        paired_start(&paired);
        snprintf(name, sizeof name, "%slayer_%%d_copy_x", prefixes[i]);
        add_layers(&paired, name, "layer_%d_copy_x", 0, 3);
        snprintf(name, sizeof name, "%sx_of_y%%d", prefixes[i]);
        add_layers(&paired, name, "x_of_y%d", 0, 2);
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_all_equal(&paired, 5, 0);
        paired_end(&paired);
    }
}

/* Two tensors that say the same are not paired with one that might be either. */
static void test_never_two(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_layers(&paired, "layer_%d_query", NULL, 0, 1);
    add_layers(&paired, "layer_%d_attn_q", NULL, 0, 1);
    add_layers(&paired, NULL, "model.layers.%d.self_attn.q_proj", 0, 1);
    paired_run(&paired, NULL);
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, 0);
    assert_int_equal(paired.pairing.only_a_count, 2);
    assert_int_equal(paired.pairing.only_b_count, 1);
    ts_pairing_release(&paired.pairing);
    add_layers(&paired, NULL, "transformer.h.%d.attn.wq", 0, 1); /* nor two with two */
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 0);
    paired_end(&paired);
    /* unless an exact name tells which one it is */
    paired_start(&paired);
    add_layers(&paired, "layer_%d_query", NULL, 0, 1);
    add_layers(&paired, "layer_%d_attn_q", NULL, 0, 1);
    add_layers(&paired, NULL, "model.layers.%d.self_attn.q_proj", 0, 1);
    add_layers(&paired, NULL, "layer_%d_query", 0, 1);
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 2);
    assert_string_equal(paired_find(&paired, "layer_0_query", NULL)->name_b, "layer_0_query");
    assert_string_equal(paired_find(&paired, "layer_0_attn_q", NULL)->name_b, "model.layers.0.self_attn.q_proj");
    paired_end(&paired);
}

static void test_nothing_in_common(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_layers(&paired, "apples_%d", NULL, 0, 5);
    add_layers(&paired, NULL, "layer_%d_pears", 0, 7);
    paired_run(&paired, NULL);
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, 0);
    assert_int_equal(paired.pairing.only_a_count, 5);
    assert_int_equal(paired.pairing.only_b_count, 7);
    for (int i = 0; i < 5; i++)
        assert_string_equal(paired.pairing.only_a[i]->name, made_name("apples_%d", i));
    paired_end(&paired);
}

static void test_empty_side(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 0, 0);
    ts_pairing_release(&paired.pairing);
    add_layers(&paired, "x%d", NULL, 0, 2);
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 0);
    assert_int_equal(paired.pairing.only_a_count, 2);
    paired_end(&paired);
}

/* Layers of B that hold what layers `shift` further on hold in A. */
static void add_shifted(struct paired *paired, int layers_a, int first_b, int layers_b, int shift)
{
    static const char *const kinds[] = {"layer_%d_q", "layer_%d_mlp_output", "layer_%d_layer_output"};
    for (int layer = 0; layer < layers_a; layer++)
        for (int k = 0; k < 3; k++) {
            float *values = made_values(96);
            made_add(paired->a, made_name(kinds[k], layer), values, SHAPE(6, 16));
            if (layer - shift >= first_b && layer - shift < first_b + layers_b)
                made_add(paired->b, made_name(kinds[k], layer - shift), values, SHAPE(6, 16));
            free(values);
        }
}

static void check_shift(int layers_a, int first_b, int layers_b, int shift)
{
    struct paired paired;
    paired_start(&paired);
    add_shifted(&paired, layers_a, first_b, layers_b, shift);
    paired_run(&paired, NULL);
    assert_int_equal(paired.status, TS_OK);
    if (paired.pairing.layer_offset != shift)
        fail_msg("offset %ld instead of %d", (long)paired.pairing.layer_offset, shift);
    assert_int_equal(paired.pairing.count, 3 * layers_b);
    assert_int_equal(paired.pairing.only_a_count, 3 * (layers_a - layers_b));
    assert_int_equal(paired.pairing.only_b_count, 0);
    for (size_t i = 0; i < paired.pairing.count; i++)
        assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
    paired_end(&paired);
}

/* Names allow several offsets; the values say which. */
static void test_offsets(void **state)
{
    (void)state;
    check_shift(8, 0, 2, 3); /* 0 and 1 are in A as well, and hold something else */
    check_shift(8, 0, 2, 0);
    check_shift(8, 2, 3, 0);
    check_shift(12, 0, 4, 8);
    check_shift(6, 10, 6, -10); /* nothing overlaps */
    check_shift(6, 1, 4, 1);
}

static void test_offset_given(void **state)
{
    struct paired paired;
    struct ts_pair_options options = {.layer_offset_given = true, .layer_offset = 2};
    (void)state;
    paired_start(&paired);
    add_shifted(&paired, 8, 0, 2, 3);
    paired_run(&paired, &options);
    assert_int_equal(paired.pairing.layer_offset, 2);
    assert_string_equal(paired_find(&paired, "layer_2_q", "layer_0_q")->how, "layer offset +2");
    assert_int_equal(paired.pairing.count, 6);
    assert_true(has_note(&paired, "layer n of A is compared with layer n - 2 of B, as given"));
    paired_end(&paired);
    options.layer_offset = -9;
    paired_start(&paired);
    add_shifted(&paired, 8, 0, 2, 3);
    paired_run(&paired, &options);
    assert_true(has_note(&paired, "pairs nothing: no layer n of A has a layer n + 9 in B"));
    paired_end(&paired);
}

/* Nothing but values: another order, bf16, transposed. */
static void test_content(void **state)
{
    static const uint64_t sizes[][2] = {{24, 16}, {24, 16}, {16, 24}, {20, 20}, {20, 20}, {1, 64}, {1, 64}};
    struct paired paired;
    char name[32];
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 7; i++) {
        uint64_t rows = sizes[i][0], columns = sizes[i][1];
        float *values = made_values((size_t)(rows * columns)), *other = made_values((size_t)(rows * columns));
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < columns; c++) {
                float value = values[r * columns + c] *= 0.02f;
                other[i == 3 ? c * rows + r : r * columns + c] =
                    i == 4 ? value * (1 + 0.001f * (float)dice_number()) : value;
            }
        snprintf(name, sizeof name, "a_%c", 'g' - i);
        made_add(paired.a, name, values, SHAPE(rows, columns));
        snprintf(name, sizeof name, "thing%c", 'a' + i);
        made_add(paired.b, name, other, SHAPE(i == 3 ? columns : rows, i == 3 ? rows : columns));
        free(values);
        free(other);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 7, 0.001);
    for (int i = 0; i < 7; i++) {
        char name_b[32];
        snprintf(name, sizeof name, "a_%c", 'g' - i);
        snprintf(name_b, sizeof name_b, "thing%c", 'a' + i);
        assert_string_equal(paired_find(&paired, name, name_b)->how, "content");
    }
    ts_pairing_release(&paired.pairing);
    paired_run(&paired, &(struct ts_pair_options){0}); /* unless it is switched off */
    assert_int_equal(paired.pairing.count, 0);
    assert_int_equal(paired.pairing.only_a_count, 7);
    paired_end(&paired);
}

/* Forty tensors of one size, all with the same norm and a sum of zero, as initialization makes them. */
static void test_content_of_one_distribution(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 40; i++) {
        float *values = made_values(512);
        double squares = 0;
        for (int k = 0; k < 256; k++)
            squares += 2 * (double)values[k] * (double)values[k];
        for (int k = 0; k < 256; k++) {
            values[k] *= (float)(1 / __builtin_sqrt(squares));
            values[511 - k] = -values[k];
        }
        made_add(paired.a, made_name("x%da", (i * 7) % 40), values, SHAPE(16, 32));
        for (int k = 0; k < 512; k++) /* as much as a rounding to bf16 */
            values[k] *= 1 + 0.002f * (float)dice_number();
        made_add(paired.b, made_name("thing%dy", i), values, SHAPE(16, 32));
        free(values);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 40, 0.003);
    for (int i = 0; i < 40; i++)
        paired_find(&paired, made_name("x%da", (i * 7) % 40), made_name("thing%dy", i));
    paired_end(&paired);
}

/* Copies and constants are alike without being the same. */
static void test_content_not_unique(void **state)
{
    struct paired paired;
    float *values = made_values(64), ones[64];
    (void)state;
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    paired_start(&paired);
    made_add(paired.a, "one", values, SHAPE(64));
    made_add(paired.b, "two", values, SHAPE(64));
    made_add(paired.b, "three", values, SHAPE(64));
    made_add(paired.a, "norm", ones, SHAPE(64));
    made_add(paired.b, "scale", ones, SHAPE(64));
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 0);
    assert_int_equal(paired.pairing.only_a_count, 2);
    assert_int_equal(paired.pairing.only_b_count, 3);
    paired_end(&paired);
    /* the same values in another order are another tensor, when the right one is there */
    paired_start(&paired);
    made_add(paired.a, "one", values, SHAPE(64));
    made_add(paired.b, "two", values, SHAPE(64));
    for (int i = 0; i < 32; i++) {
        float swapped = values[i];
        values[i] = values[63 - i];
        values[63 - i] = swapped;
    }
    made_add(paired.b, "three", values, SHAPE(64));
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 1);
    assert_string_equal(paired.pairing.pairs[0].name_b, "two");
    free(values);
    paired_end(&paired);
}

static void test_map(void **state)
{
    struct paired paired;
    struct ts_pair_options options = {.by_content = true};
    (void)state;
    paired_start(&paired);
    add_layers(&paired, "a = b", "\"odd\" name", 0, 1);
    add_layers(&paired, "x%d", "y%d", 0, 3);
    add_layers(&paired, "same", "same", 0, 1);
    scratch_text("map.txt", "# by hand\n\"a = b\" = \"\\\"odd\\\" name\"\n x0 = y1 \nx1 = y0\nx2 =\n= y2\nnone = y2\n");
    options.map_file = scratch_path("map.txt");
    paired_run(&paired, &options);
    if (paired.status != TS_OK)
        fail_msg("%s", paired.error.message);
    assert_int_equal(paired.pairing.count, 4);
    assert_string_equal(paired_find(&paired, "a = b", "\"odd\" name")->how, "map");
    assert_string_equal(paired_find(&paired, "x0", "y1")->how, "map");
    assert_string_equal(paired_find(&paired, "same", "same")->how, "name");
    assert_int_equal(paired.pairing.only_a_count, 1); /* told to stay alone, though the values are the same */
    assert_string_equal(paired.pairing.only_a[0]->name, "x2");
    assert_string_equal(paired.pairing.only_b[0]->name, "y2");
    assert_true(has_note(&paired, "\"none\" of A"));
    ts_pairing_release(&paired.pairing);

    scratch_text("map.json", "{\"x0\": \"y2\", \"x1\": null, \"same\": [\"same\"]}");
    options.map_file = scratch_path("map.json");
    paired_run(&paired, &options);
    assert_string_equal(paired_find(&paired, "x0", "y2")->how, "map");
    assert_string_equal(paired_find(&paired, "same", "same")->how, "map");
    assert_int_equal(paired.pairing.only_a_count, 2); /* x1 was told to, and x2's partner is taken */
    assert_int_equal(paired.pairing.only_b_count, 2);
    paired_end(&paired);
}

static void test_map_errors(void **state)
{
    static const struct {
        const char *text, *message;
    } maps[] = {
        {"x0\n", "line 1: no '='"},
        {"\nx0 = y0 = z\n", "line 2: a second '='"},
        {"\"x0 = y0\n", "line 1: a name in quotes has no closing quote"},
        {"\"x0\" y = y0\n", "line 1: expected '=' or '+' behind \"x0\""},
        {"{\"x0\": 1}", "expected a name"},
        {"{\"x0\": \"y0\"", "truncated"},
    };
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_layers(&paired, "x%d", "y%d", 0, 2);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        struct ts_pair_options options = {.map_file = scratch_path("bad.txt")};
        scratch_text("bad.txt", maps[i].text);
        paired_run(&paired, &options);
        if (paired.status == TS_OK ||
            (strcmp(maps[i].message, "truncated") != 0 && !strstr(paired.error.message, maps[i].message)))
            fail_msg("%s: %s", maps[i].text, paired.error.message);
    }
    paired_end(&paired);
}

/* Tells whether two runs gave the same pairs. */
static void assert_same_pairs(const struct ts_pairing *one, const struct ts_pairing *other)
{
    assert_int_equal(one->count, other->count);
    for (size_t i = 0; i < one->count; i++) {
        size_t k = 0;
        while (k < other->count && (strcmp(other->pairs[k].name, one->pairs[i].name) != 0 ||
                                    strcmp(other->pairs[k].name_b, one->pairs[i].name_b) != 0))
            k++;
        if (k == other->count)
            fail_msg("%s = %s is lost", one->pairs[i].name, one->pairs[i].name_b);
        assert_string_equal(one->pairs[i].recipe, other->pairs[k].recipe);
    }
    assert_int_equal(one->only_a_count, other->only_a_count);
    assert_int_equal(one->only_b_count, other->only_b_count);
}

static void test_map_round_trip(void **state)
{
    static const char *const inputs[][2] = {
        {"tests/golden/archives/model1_tp8.zip", "tests/golden/archives/model2_tp1.zip"},
        {"tests/golden/gguf/mixtral-bf16.gguf", "tests/golden/models/mixtral"},
        {"tests/golden/compare/a.pt", "tests/golden/archives/model2_tp1.zip"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        struct ts_pair_options options = {.by_content = true};
        struct paired first, second;
        open_both(&first, inputs[i][0], inputs[i][1]);
        open_both(&second, inputs[i][0], inputs[i][1]);
        paired_run(&first, &options);
        assert_int_equal(ts_pairing_save(&first.pairing, scratch_path("saved.map"), &first.error), TS_OK);
        options.map_file = scratch_path("saved.map");
        paired_run(&second, &options);
        if (second.status != TS_OK)
            fail_msg("%s", second.error.message);
        assert_same_pairs(&first.pairing, &second.pairing);
        assert_false(has_note(&second, "do not exist"));
        paired_end(&first);
        paired_end(&second);
    }
}

static void test_renames(void **state)
{
    static const char *const renames[] = {"s/^step([0-9]+)-(.*)$/layer_\\1_\\2/", "s|foo|query|g", NULL};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_layers(&paired, "layer_%d_query", "step%d-foo", 0, 3);
    add_layers(&paired, "a%dquery_query", "a%dfoo_FOO", 0, 1);
    paired_run(&paired, &(struct ts_pair_options){.renames = renames});
    assert_int_equal(paired.pairing.count, 3);
    assert_string_equal(paired_find(&paired, "layer_2_query", NULL)->name_b, "step2-foo");
    assert_string_equal(paired_find(&paired, "layer_2_query", NULL)->how, "name");
    ts_pairing_release(&paired.pairing);
    paired_run(&paired, &(struct ts_pair_options){.renames = (const char *const[]){"s/foo/query/gi", NULL}});
    assert_string_equal(paired_find(&paired, "a0query_query", NULL)->name_b, "a0foo_FOO");
    paired_end(&paired);
}

static void test_rename_errors(void **state)
{
    static const char *const bad[] = {"", "s", "s/a/b", "s/a", "x/a/b/", "s/(/b/", "s/a/b/q", "saxbx"};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_layers(&paired, "x%d", "x%d", 0, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        paired_run(&paired, &(struct ts_pair_options){.renames = (const char *const[]){bad[i], NULL}});
        if (paired.status != TS_ERR_USAGE)
            fail_msg("%s was taken", bad[i]);
    }
    paired_run(&paired, &(struct ts_pair_options){.dims = "x: a b; (: c"});
    assert_int_equal(paired.status, TS_ERR_USAGE);
    paired_run(&paired, &(struct ts_pair_options){.dims = "no axes"});
    assert_int_equal(paired.status, TS_ERR_USAGE);
    paired_end(&paired);
}

/* The same name in the same convention: another layout of the same shape is a finding, not a recipe. */
static void test_equal_shapes_stay(void **state)
{
    struct paired paired;
    float *values = made_values(512), *turned = made_values(512);
    (void)state;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++)
            memcpy(turned + (i * 8 + k) * 8, values + (k * 8 + i) * 8, 8 * sizeof *values);
    paired_start(&paired);
    made_add(paired.a, "layer_0_attn_q_rope", values, SHAPE(8, 8, 8));
    made_add(paired.b, "layer_0_attn_q_rope", turned, SHAPE(8, 8, 8));
    made_add(paired.a, "py_layer_1_attn_q_rope", values, SHAPE(8, 8, 8));
    made_add(paired.b, "cpp_layer_1_attn_q_rope", turned, SHAPE(8, 8, 8));
    made_add(paired.a, "layer_2_attn_q_rope", values, SHAPE(8, 8, 8));
    made_add(paired.b, "2_query_final", turned, SHAPE(8, 8, 8)); /* another tool: its layout is looked for */
    paired_run(&paired, NULL);
    assert_string_equal(paired_find(&paired, "layer_0_attn_q_rope", NULL)->recipe, "");
    assert_string_equal(paired_find(&paired, "py_layer_1_attn_q_rope", NULL)->recipe, "");
    assert_string_equal(paired_find(&paired, "layer_2_attn_q_rope", NULL)->recipe, "B: swap 0 1");
    assert_true(pair_error(paired_find(&paired, "layer_2_attn_q_rope", NULL)) == 0);
    free(values);
    free(turned);
    paired_end(&paired);
}

/* What the user or the file says about axes stands above what shapes say. */
static void test_declared_axes(void **state)
{
    struct paired paired;
    float *values = made_values(512), *turned = made_values(512);
    struct ts_error error;
    (void)state;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++)
            memcpy(turned + (i * 8 + k) * 8, values + (k * 8 + i) * 8, 8 * sizeof *values);
    paired_start(&paired);
    made_add(paired.a, "q", values, SHAPE(8, 8, 8));
    made_add(paired.b, "q", turned, SHAPE(8, 8, 8));
    paired_run(&paired, &(struct ts_pair_options){.dims = "^q$: tokens heads dim"});
    assert_string_equal(paired.pairing.pairs[0].recipe, "");
    ts_pairing_release(&paired.pairing);
    paired_run(&paired, &(struct ts_pair_options){.dims = "A:^q$: tokens heads dim; B:^q$: heads tokens dim"});
    assert_string_equal(paired.pairing.pairs[0].recipe, "B: swap 0 1");
    assert_true(pair_error(&paired.pairing.pairs[0]) == 0);
    ts_pairing_release(&paired.pairing);
    assert_int_equal(ts_bundle_attribute(paired.a, paired.a->tensors[0], "axes", "tokens,heads,dim", &error), TS_OK);
    assert_int_equal(ts_bundle_attribute(paired.b, paired.b->tensors[0], "axes", "heads,tokens,dim", &error), TS_OK);
    paired_run(&paired, NULL);
    assert_string_equal(paired.pairing.pairs[0].recipe, "B: swap 0 1");
    free(values);
    free(turned);
    paired_end(&paired);
}

static void test_shapes_that_do_not_fit(void **state)
{
    struct paired paired;
    float *values = made_values(64);
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "x", values, SHAPE(3, 4));
    made_add(paired.b, "x", values + 32, SHAPE(5));
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 1);
    assert_non_null(paired.pairing.pairs[0].problem);
    assert_non_null(strstr(paired.pairing.pairs[0].problem, "[3,4] against [5]"));
    free(values);
    paired_end(&paired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_archives),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_all_gguf),
        cmocka_unit_test(test_right_file),
        cmocka_unit_test(test_conventions_meet),
        cmocka_unit_test(test_order_of_layers),
        cmocka_unit_test(test_order_of_sequence_numbers),
        cmocka_unit_test(test_order_of_listed_files),
        cmocka_unit_test(test_order_of_files),
        cmocka_unit_test(test_order_of_two),
        cmocka_unit_test(test_order_file),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_never_two),
        cmocka_unit_test(test_nothing_in_common),
        cmocka_unit_test(test_empty_side),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_offset_given),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_content_of_one_distribution),
        cmocka_unit_test(test_content_not_unique),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_map_errors),
        cmocka_unit_test(test_map_round_trip),
        cmocka_unit_test(test_renames),
        cmocka_unit_test(test_rename_errors),
        cmocka_unit_test(test_equal_shapes_stay),
        cmocka_unit_test(test_declared_axes),
        cmocka_unit_test(test_shapes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
