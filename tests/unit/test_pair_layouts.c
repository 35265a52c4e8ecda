/* Tensors that conventions store differently: permuted rows, norms with 1 added, stacks, fused and split, tied, shards.
 * What is expected is written out as loops over indices. */
#include <math.h>

#include "made_bundle.h"
#include "scratch.h"

static void config(struct ts_bundle *bundle, const char *text)
{
    struct ts_error error;
    assert_int_equal(ts_source_copy(text, strlen(text), "config.json", &bundle->config, &error), TS_OK);
}

static void architecture(struct ts_bundle *bundle, const char *name, const char *heads, const char *kv_heads)
{
    struct ts_error error;
    char key[64];
    assert_int_equal(ts_bundle_meta(bundle, "general.architecture", name, &error), TS_OK);
    snprintf(key, sizeof key, "%s.attention.head_count", name);
    assert_int_equal(ts_bundle_meta(bundle, key, heads, &error), TS_OK);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", name);
    assert_int_equal(ts_bundle_meta(bundle, key, kv_heads, &error), TS_OK);
}

/* Row (head, half, pair) of the result is row (head, pair, half) of the values. */
static float *permuted(const float *values, int rows, int columns, int heads)
{
    float *out = made_values((size_t)(rows * columns));
    int half = rows / heads / 2;
    for (int head = 0; head < heads; head++)
        for (int i = 0; i < half; i++)
            for (int pair = 0; pair < 2; pair++)
                memcpy(out + (head * 2 * half + i * 2 + pair) * columns,
                       values + (head * 2 * half + pair * half + i) * columns, (size_t)columns * sizeof *out);
    return out;
}

/* q, k and their biases of a model with 4 and 2 heads of 8: once as Hugging Face has them, once permuted. */
static void add_permuted(struct ts_bundle *plain, struct ts_bundle *turned, const char *q, const char *k)
{
    static const char *const names[] = {"model.layers.%d.self_attn.q_proj", "model.layers.%d.self_attn.k_proj"};
    const char *const others[] = {q, k};
    for (int layer = 0; layer < 2; layer++)
        for (int i = 0; i < 2; i++) {
            int rows = i ? 16 : 32, heads = i ? 2 : 4;
            for (int bias = 0; bias < 2; bias++) {
                float *values = made_values((size_t)(rows * 24)), *other;
                char name[128];
                other = permuted(values, rows, bias ? 1 : 24, heads);
                snprintf(name, sizeof name, "%s.%s", made_name(names[i], layer), bias ? "bias" : "weight");
                made_add(plain, name, values, bias ? 1 : 2, (uint64_t[]){(uint64_t)rows, 24});
                snprintf(name, sizeof name, "%s.%s", made_name(others[i], layer), bias ? "bias" : "weight");
                made_add(turned, name, other, bias ? 1 : 2, (uint64_t[]){(uint64_t)rows, 24});
                free(values);
                free(other);
            }
        }
}

static void check_recipes(const struct paired *paired, const char *recipe)
{
    for (size_t i = 0; i < paired->pairing.count; i++)
        if (!strstr(paired->pairing.pairs[i].recipe, recipe))
            fail_msg("%s: \"%s\" instead of \"%s\"", paired->pairing.pairs[i].name, paired->pairing.pairs[i].recipe,
                     recipe);
}

static void test_permuted_rows(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_permuted(paired.b, paired.a, "blk.%d.attn_q", "blk.%d.attn_k");
    architecture(paired.a, "llama", "4", "2");
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 8, 0);
    check_recipes(&paired, "A: rows un-permuted");
    assert_non_null(strstr(paired_find(&paired, "blk.0.attn_k.weight", NULL)->recipe, "(2 heads)"));
    assert_int_equal(paired_find(&paired, "blk.0.attn_q.weight", NULL)->a.rank, 2); /* the shape is the tensor's own */
    paired_end(&paired);

    /* Meta's own files have the same rows as GGUF; here nothing says how many heads there are */
    paired_start(&paired);
    add_permuted(paired.a, paired.b, "layers.%d.attention.wq", "layers.%d.attention.wk");
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 8);
    paired_end(&paired);
    paired_start(&paired);
    add_permuted(paired.a, paired.b, "layers.%d.attention.wq", "layers.%d.attention.wk");
    config(paired.a, "{\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"hidden_size\": 32}");
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 8, 0);
    check_recipes(&paired, "B: rows un-permuted");
    paired_end(&paired);
}

/* The same in two ranks on the side that is permuted, as Meta's own files are, or on the other. */
static void test_permuted_in_ranks(void **state)
{
    (void)state;
    for (int split = 0; split < 2; split++) {
        struct paired paired;
        float *values = made_values(32 * 24), *turned = permuted(values, 32, 24, 4), *shards = split ? turned : values;
        paired_start(&paired);
        if (split)
            made_add(paired.a, "model.layers.0.self_attn.q_proj.weight", values, SHAPE(32, 24));
        else
            made_add(paired.a, "blk.0.attn_q.weight", turned, SHAPE(32, 24));
        for (int rank = 0; rank < 2; rank++)
            made_add(paired.b,
                     made_name(split ? "consolidated.0%d:layers.0.attention.wq.weight"
                                     : "rank%d:model.layers.0.self_attn.q_proj.weight",
                               rank),
                     shards + rank * 16 * 24, SHAPE(16, 24));
        if (split)
            config(paired.a, "{\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"hidden_size\": 32}");
        else
            architecture(paired.a, "llama", "4", "4");
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 1, 0);
        assert_string_equal(paired.pairing.pairs[0].recipe,
                            split ? "B: rows un-permuted (4 heads); B: join 2 shards on axis 0"
                                  : "A: rows un-permuted (4 heads); B: join 2 shards on axis 0");
        free(values);
        free(turned);
        paired_end(&paired);
    }
}

/* A converter that forgot the permutation: the values show it, and a note says so. */
static void test_permutation_missing(void **state)
{
    struct paired paired;
    float *values = made_values(32 * 24);
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "model.layers.0.self_attn.q_proj.weight", values, SHAPE(32, 24));
    made_add(paired.b, "blk.0.attn_q.weight", values, SHAPE(32, 24));
    architecture(paired.b, "llama", "4", "4");
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 1, 0);
    assert_string_equal(paired.pairing.pairs[0].recipe, "");
    assert_true(has_note(&paired, "the permutation of rows is missing"));
    paired_end(&paired);

    paired_start(&paired);
    made_add(paired.a, "model.layers.0.self_attn.q_proj.weight", values, SHAPE(32, 24));
    for (int i = 0; i < 32 * 24; i++)
        values[i] *= 1.1f; /* not so equal that nothing else is tried */
    made_add(paired.b, "blk.0.attn_q.weight", values, SHAPE(32, 24));
    architecture(paired.b, "llama", "4", "4");
    paired_run(&paired, NULL);
    assert_string_equal(paired.pairing.pairs[0].recipe, "");
    assert_true(has_note(&paired, "the permutation of rows is missing"));
    paired_end(&paired);
    free(values);
}

/* One of four layers that is stored otherwise than the rest: whatever the others need, and be it nothing, is what it is
 * compared under. Kinds of fault: none, a 1 too many or too few, rows permuted or not, a square weight turned. */
static void test_one_converted_otherwise(void **state)
{
    enum { NONE, NORM, ROWS, SQUARE };
    static const char *const architectures[] = {"llama", "qwen2", "gemma3"};
    (void)state;
    for (int c = 0; c < 3 * 4; c++) {
        const int fault = c % 4;
        const bool adds = c / 4 == 2, turns = c / 4 == 0;
        struct paired paired;
        size_t apart = 0;
        paired_start(&paired);
        for (int layer = 0; layer < 4; layer++) {
            float *norm = made_values(24), *q = made_values(32 * 24), *square = made_values(24 * 24);
            float *turned = permuted(q, 32, 24, 4), one[24], flipped[24 * 24];
            const bool odd = layer == 2;
            for (int i = 0; i < 24; i++)
                one[i] = norm[i] + (adds != (odd && fault == NORM) ? 1 : 0);
            for (int i = 0; i < 24 * 24; i++)
                flipped[i] = square[i % 24 * 24 + i / 24];
            made_add(paired.a, made_name("model.layers.%d.input_layernorm.weight", layer), norm, SHAPE(24));
            made_add(paired.b, made_name("blk.%d.attn_norm.weight", layer), one, SHAPE(24));
            made_add(paired.a, made_name("model.layers.%d.self_attn.q_proj.weight", layer), q, SHAPE(32, 24));
            made_add(paired.b, made_name("blk.%d.attn_q.weight", layer), turns != (odd && fault == ROWS) ? turned : q,
                     SHAPE(32, 24));
            made_add(paired.a, made_name("model.layers.%d.self_attn.o_proj.weight", layer), square, SHAPE(24, 24));
            made_add(paired.b, made_name("blk.%d.attn_output.weight", layer), odd && fault == SQUARE ? flipped : square,
                     SHAPE(24, 24));
            free(norm);
            free(q);
            free(square);
            free(turned);
        }
        architecture(paired.b, architectures[c / 4], "4", "4");
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 12);
        for (size_t i = 0; i < 12; i++)
            apart += pair_error(&paired.pairing.pairs[i]) > 0.1;
        assert_int_equal(apart, fault != NONE);
        paired_end(&paired);
    }
}

/* What a converter added to large weights is small beside them, and is found all the same. */
static void test_one_added_to_large_weights(void **state)
{
    (void)state;
    for (int size = 10; size < 2000; size *= 5) {
        struct paired paired;
        float *values = made_values(24), one[24];
        for (int i = 0; i < 24; i++) {
            values[i] = (float)((int)(values[i] * 64) / 64.0 + size);
            one[i] = values[i] + 1;
        }
        paired_start(&paired);
        made_add(paired.a, "model.layers.0.input_layernorm.weight", values, SHAPE(24));
        made_add(paired.b, "blk.0.attn_norm.weight", one, SHAPE(24));
        architecture(paired.b, "gemma3", "4", "4");
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 1, 0);
        assert_string_equal(paired.pairing.pairs[0].recipe, "A: 1 + w");
        free(values);
        paired_end(&paired);
    }
}

/* The decay of a state, which GGUF keeps as -exp of what others keep; with a further axis in Mamba 2. */
static void test_decay(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct paired paired;
        float *logarithm = made_values(8 * 16), decay[8 * 16];
        struct ts_bundle *gguf, *plain;
        const bool as_it_is = way == 3; /* a converter that forgot it */
        for (int i = 0; i < 8 * 16; i++)
            decay[i] = as_it_is ? logarithm[i] : -expf(logarithm[i]);
        paired_start(&paired);
        gguf = way == 1 ? paired.a : paired.b;
        plain = way == 1 ? paired.b : paired.a;
        if (way == 2) {
            made_add(plain, "backbone.layers.0.mixer.A_log", logarithm, SHAPE(128));
            made_add(gguf, "blk.0.ssm_a", decay, SHAPE(128, 1));
        } else {
            made_add(plain, "model.layers.0.linear_attn.A_log", logarithm, SHAPE(8, 16));
            made_add(gguf, "blk.0.ssm_a", decay, SHAPE(8, 16));
        }
        architecture(gguf, "mamba", "0", "0");
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 1, 1e-6);
        if (as_it_is)
            assert_string_equal(paired.pairing.pairs[0].recipe, "");
        else
            assert_non_null(strstr(paired.pairing.pairs[0].recipe, way == 1 ? "B: -exp(w)" : "A: -exp(w)"));
        free(logarithm);
        paired_end(&paired);
    }
}

/* Shift and scale of the last norm, which diffusers keeps in the other order. */
static void test_swapped_halves(void **state)
{
    struct paired paired;
    float *values = made_values(32 * 8), swapped[32 * 8];
    (void)state;
    memcpy(swapped, values + 16 * 8, 16 * 8 * sizeof *swapped);
    memcpy(swapped + 16 * 8, values, 16 * 8 * sizeof *swapped);
    paired_start(&paired);
    made_add(paired.a, "norm_out.linear.weight", values, SHAPE(32, 8));
    made_add(paired.b, "final_layer.adaLN_modulation.1.weight", swapped, SHAPE(32, 8));
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 1, 0);
    assert_string_equal(paired.pairing.pairs[0].recipe, "B: halves swapped");
    free(values);
    paired_end(&paired);
}

/* A square weight under other names, transposed: no permutation of rows is taken for it. */
static void test_square_transposed(void **state)
{
    struct paired paired;
    float *values = made_values(32 * 32), *turned = made_values(32 * 32);
    (void)state;
    for (int i = 0; i < 32 * 32; i++)
        turned[i % 32 * 32 + i / 32] = values[i];
    paired_start(&paired);
    made_add(paired.a, "model.layers.0.self_attn.q_proj.weight", values, SHAPE(32, 32));
    made_add(paired.b, "blk.0.attn_q.weight", turned, SHAPE(32, 32));
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 1, 0);
    assert_string_equal(paired.pairing.pairs[0].recipe, "B: transpose");
    paired_end(&paired);
    free(values);
    free(turned);
}

static void test_norms_with_one(void **state)
{
    static const char *const names[][2] = {
        {"model.layers.%d.input_layernorm.weight", "blk.%d.attn_norm.weight"},
        {"model.layers.%d.post_attention_layernorm.weight", "blk.%d.post_attention_norm.weight"},
        {"model.layers.%d.pre_feedforward_layernorm.weight", "blk.%d.ffn_norm.weight"},
        {"model.layers.%d.post_feedforward_layernorm.weight", "blk.%d.post_ffw_norm.weight"},
        {"model.layers.%d.self_attn.q_norm.weight", "blk.%d.attn_q_norm.weight"},
    };
    (void)state;
    for (int gemma = 0; gemma < 2; gemma++) {
        struct paired paired;
        paired_start(&paired);
        for (int layer = 0; layer < 2; layer++)
            for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                float *values = made_values(64);
                for (int k = 0; k < 64; k++)
                    values[k] = gemma ? values[k] * 0.1f : 1 + values[k] * 0.1f;
                made_add(paired.a, made_name(names[i][0], layer), values, SHAPE(64));
                for (int k = 0; k < 64; k++)
                    values[k] += gemma ? 1 : 0;
                made_add(paired.b, made_name(names[i][1], layer), values, SHAPE(64));
                free(values);
            }
        architecture(paired.b, gemma ? "gemma3" : "qwen3", "4", "4");
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 10, 1e-6);
        check_recipes(&paired, gemma ? "A: 1 + w" : "");
        if (!gemma)
            assert_string_equal(paired.pairing.pairs[0].recipe, "");
        paired_end(&paired);
    }
}

/* Linear layers of GPT-2 are stored [in, out]: transposed, the square ones too. */
static void test_transposed(void **state)
{
    static const struct {
        const char *a, *b;
        int rows, columns;
    } layers[] = {{"blk.0.attn_qkv.weight", "transformer.h.0.attn.c_attn.weight", 96, 32},
                  {"blk.0.attn_output.weight", "transformer.h.0.attn.c_proj.weight", 32, 32},
                  {"blk.0.ffn_up.weight", "transformer.h.0.mlp.c_fc.weight", 128, 32}};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (size_t i = 0; i < 3; i++) {
        int rows = layers[i].rows, columns = layers[i].columns;
        float *values = made_values((size_t)(rows * columns)), *turned = made_values((size_t)(rows * columns));
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++)
                turned[c * rows + r] = values[r * columns + c];
        made_add(paired.a, layers[i].a, values, SHAPE((uint64_t)rows, (uint64_t)columns));
        made_add(paired.b, layers[i].b, turned, SHAPE((uint64_t)columns, (uint64_t)rows));
        free(values);
        free(turned);
    }
    architecture(paired.a, "gpt2", "4", "4");
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 3, 0);
    check_recipes(&paired, "B: transpose");
    paired_end(&paired);
}

/* Sequences one behind the other, behind a fault: the embeddings prove it of all that have the same axes in front. */
static void test_joined_axes_of_others(void **state)
{
    static const uint64_t lengths[][2] = {{7, 7}, {7, 14}};
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct paired paired;
        float *first = made_values(3 * 14 * 8), *a = made_values(3 * 14 * 12), *b = made_values(3 * 14 * 12);
        const uint64_t *length = lengths[way == 1];
        paired_start(&paired);
        made_add(paired.a, "model.embed_tokens", first, SHAPE(3 * length[0], 8));
        made_add(paired.b, "model.embed_tokens", way == 2 ? a : first, SHAPE(3, length[0], 8));
        made_add(paired.a, "model.layers.0.mlp.up_proj", a, SHAPE(3 * length[1], 12));
        made_add(paired.b, "model.layers.0.mlp.up_proj", b, SHAPE(3, length[1], 12));
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 2);
        assert_string_equal(paired.pairing.pairs[1].recipe, "B: merge 0 1");
        assert_true(paired.pairing.pairs[0].guess == (way == 2));
        assert_true(paired.pairing.pairs[1].guess == (way > 0)); /* other lengths prove nothing, nor do guesses */
        paired_end(&paired);
        free(first);
        free(a);
        free(b);
    }
}

/* The same where the side that has an axis for sequences is the reference, or has one of 1 in front besides. */
static void test_cut_axes_of_others(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        const uint64_t wide[2][4] = {{3, 7, 8}, {1, 3, 7, 8}}, wider[2][4] = {{3, 7, 12}, {1, 3, 7, 12}};
        const unsigned rank = way ? 4 : 3;
        struct paired paired;
        float *first = made_values(21 * 8), *a = made_values(21 * 12), *b = made_values(21 * 12);
        paired_start(&paired);
        made_add(paired.a, "model.embed_tokens", first, rank, wide[way]);
        made_add(paired.b, "model.embed_tokens", first, SHAPE(21, 8));
        made_add(paired.a, "model.layers.0.mlp.up_proj", a, rank, wider[way]);
        made_add(paired.b, "model.layers.0.mlp.up_proj", b, SHAPE(21, 12));
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 2);
        assert_false(paired.pairing.pairs[0].guess);
        assert_false(paired.pairing.pairs[1].guess);
        paired_end(&paired);
        free(first);
        free(a);
        free(b);
    }
}

/* Unrelated values, as behind a wrong rotation: sizes still tell which axis is which, unless two are equal. */
static void test_axes_by_size(void **state)
{
    struct paired paired;
    (void)state;
    for (uint64_t tokens = 13; tokens <= 16; tokens += 3) {
        float *a = made_values((size_t)(tokens * 64)), *b = made_values((size_t)(tokens * 64));
        for (size_t i = 0; i < tokens * 64; i++)
            b[i] = a[(i * 37 + 11) % (tokens * 64)];
        paired_start(&paired);
        made_add(paired.a, "model.layers.0.self_attn.q_rope", a, SHAPE(1, 4, tokens, 16));
        made_add(paired.b, "model.layers.0.self_attn.q_rope", b, SHAPE(tokens, 4, 16));
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 1);
        assert_true(paired.pairing.pairs[0].guess == (tokens == 16));
        assert_true(paired.pairing.pairs[0].by_size == (tokens != 16)); /* and that is said */
        if (tokens != 16)
            assert_string_equal(paired.pairing.pairs[0].recipe, "A: squeeze 0; B: swap 0 1");
        paired_end(&paired);

        /* another layer proves it by its values */
        paired_start(&paired);
        made_add(paired.a, "model.layers.0.self_attn.q_rope", a, SHAPE(1, 4, tokens, 16));
        made_add(paired.a, "model.layers.1.self_attn.q_rope", a, SHAPE(1, 4, tokens, 16));
        made_add(paired.b, "model.layers.1.self_attn.q_rope", b, SHAPE(tokens, 4, 16));
        for (size_t i = 0; i < tokens * 64; i++)
            b[i] = a[(i / 16 % 4 * tokens + i / 64) * 16 + i % 16];
        made_add(paired.b, "model.layers.0.self_attn.q_rope", b, SHAPE(tokens, 4, 16));
        paired_run(&paired, NULL);
        for (size_t i = 0; i < 2; i++) {
            assert_string_equal(paired.pairing.pairs[i].recipe, "A: squeeze 0; B: swap 0 1");
            assert_false(paired.pairing.pairs[i].guess || paired.pairing.pairs[i].by_size);
        }
        paired_end(&paired);
        free(a);
        free(b);
    }
}

/* Values [experts, rows, columns] as one tensor and as one tensor per expert. */
static void add_experts(struct ts_bundle *stacked, const char *stack, struct ts_bundle *apart, const char *one,
                        const float *values, int experts, int rows, int columns)
{
    if (stack)
        made_add(stacked, stack, values, SHAPE((uint64_t)experts, (uint64_t)rows, (uint64_t)columns));
    for (int i = 0; i < experts; i++)
        made_add(apart, made_name(one, i), values + i * rows * columns, SHAPE((uint64_t)rows, (uint64_t)columns));
}

static void test_stacked_experts(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        struct paired paired;
        const struct ts_pair *pair;
        float *values = made_values(11 * 6 * 10);
        paired_start(&paired);
        add_experts(turned ? paired.b : paired.a, "blk.0.ffn_gate_exps.weight", turned ? paired.a : paired.b,
                    "model.layers.0.mlp.experts.%d.gate_proj.weight", values, 11, 6, 10);
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 1, 0);
        pair = &paired.pairing.pairs[0];
        assert_string_equal(turned ? pair->name : pair->name_b, "model.layers.0.mlp.experts.*.gate_proj.weight");
        assert_string_equal(pair->recipe, turned ? "A: 11 experts stacked" : "B: 11 experts stacked");
        assert_int_equal(pair->a.rank, 3);
        free(values);
        paired_end(&paired);
    }
}

/* Of a stack what the other side has experts for is compared, and those that it lacks are named; few that do not agree
 * are no stack. */
static void test_incomplete_experts(void **state)
{
    static const struct {
        unsigned present;
        const char *recipes[2], *note; /* the stack is A's, B's */
    } cases[] = {{0xb,
                  {"B: 3 experts stacked; A: without expert 2 of 4", "A: 3 experts stacked; B: without expert 2 of 4"},
                  "lacks expert 2 of 4 in model.layers.0"},
                 {0x7,
                  {"B: 3 experts stacked; A: without expert 3 of 4", "A: 3 experts stacked; B: without expert 3 of 4"},
                  "lacks expert 3 of 4 in model.layers.0"},
                 {0x8, {"A: expert 3 of 4", "B: expert 3 of 4"}, "lacks experts 0 1 2 of 4 in"}};
    (void)state;
    for (size_t c = 0; c < 2 * sizeof cases / sizeof *cases; c++) {
        const bool turned = c % 2;
        struct paired paired;
        struct ts_bundle *stack, *apart;
        float *values = made_values(4 * 6 * 10);
        paired_start(&paired);
        stack = turned ? paired.b : paired.a;
        apart = turned ? paired.a : paired.b;
        made_add(stack, "blk.0.ffn_up_exps.weight", values, SHAPE(4, 6, 10));
        for (int i = 0; i < 4; i++)
            if (cases[c / 2].present >> i & 1)
                made_add(apart, made_name("model.layers.0.mlp.experts.%d.up_proj.weight", i), values + i * 60,
                         SHAPE(6, 10));
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 1, 0);
        assert_int_equal(paired.pairing.lacking_experts, 1);
        assert_string_equal(paired.pairing.pairs[0].recipe, cases[c / 2].recipes[turned]);
        assert_true(has_note(&paired, cases[c / 2].note));
        free(values);
        paired_end(&paired);
    }
    for (int experts = 1; experts < 4; experts += 2) { /* of other values: as many as these are still a stack's */
        struct paired paired;
        float *values = made_values(8 * 6 * 10);
        paired_start(&paired);
        made_add(paired.a, "blk.0.ffn_up_exps.weight", values, SHAPE(4, 6, 10));
        for (int i = 0; i < experts; i++)
            made_add(paired.b, made_name("model.layers.0.mlp.experts.%d.up_proj.weight", i), values + (i + 4) * 60,
                     SHAPE(6, 10));
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, experts == 3);
        free(values);
        paired_end(&paired);
    }
}

/* The sequences of a run have one length each: where the values of a tensor do not show them, others do. */
static void test_lengths_of_a_batch(void **state)
{
    struct paired paired;
    float *first = made_values(2 * 7 * 8), *second = made_values(2 * 7 * 8), *other = made_values(11 * 8), rows[11 * 8];
    (void)state;
    memcpy(rows, first, 4 * 8 * sizeof *rows);
    memcpy(rows + 4 * 8, first + 7 * 8, 7 * 8 * sizeof *rows);
    paired_start(&paired);
    made_add(paired.a, "model.layers.0.input_layernorm", first, SHAPE(2, 7, 8));
    made_add(paired.b, "model.layers.0.input_layernorm", rows, SHAPE(11, 8));
    made_add(paired.a, "model.layers.0.self_attn.o_proj", second, SHAPE(2, 7, 8));
    made_add(paired.b, "model.layers.0.self_attn.o_proj", other, SHAPE(11, 8));
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_null(paired.pairing.pairs[i].problem);
        assert_true(paired.pairing.pairs[i].guess == (i == 1));
        assert_string_equal(paired.pairing.pairs[i].recipe, "A: pack the first 4+7 of 2x7 rows");
    }
    free(first);
    free(second);
    free(other);
    paired_end(&paired);
}

/* llama.cpp calls gate and up ffn_up where a model fuses them: against separate ones, and against what says that it is
 * fused, whatever the values are. */
static void test_fused_called_up(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        const bool turned = kind % 2, apart = kind < 2;
        struct paired paired;
        struct ts_bundle *gguf, *other;
        float *values = made_values(2 * 2 * 14 * 10);
        struct ts_error error;
        paired_start(&paired);
        gguf = turned ? paired.a : paired.b;
        other = turned ? paired.b : paired.a;
        assert_int_equal(ts_bundle_meta(gguf, "general.architecture", "phi3", &error), TS_OK);
        for (int layer = 0; layer < 2; layer++) {
            const float *here = values + layer * 2 * 14 * 10;
            made_add(gguf, made_name("blk.%d.ffn_up.weight", layer), here, SHAPE(28, 10));
            if (apart) {
                made_add(other, made_name("model.layers.%d.mlp.gate_proj.weight", layer), here, SHAPE(14, 10));
                made_add(other, made_name("model.layers.%d.mlp.up_proj.weight", layer), here + 140, SHAPE(14, 10));
            } else { /* those of the other layer */
                made_add(other, made_name("model.layers.%d.mlp.gate_up_proj.weight", layer),
                         values + (1 - layer) * 2 * 14 * 10, SHAPE(28, 10));
            }
        }
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
        if (apart)
            assert_all_equal(&paired, 4, 0);
        else
            assert_int_equal(paired.pairing.count, 2);
        for (size_t i = 0; i < paired.pairing.count && !apart; i++)
            assert_string_equal(paired.pairing.pairs[i].how, "canonical name");
        free(values);
        paired_end(&paired);
    }
}

/* gate and up of several experts fused as GPT-OSS does: [experts, in, 2 out], gate and up in turn; and as others do. */
static void test_fused_experts(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        enum { EXPERTS = 3, OUT = 6, IN = 10 };
        struct paired paired;
        float *gate = made_values(EXPERTS * OUT * IN), *up = made_values(EXPERTS * OUT * IN);
        float *fused = made_values(2 * EXPERTS * OUT * IN), *bias = made_values(2 * EXPERTS * OUT);
        float *gate_bias = made_values(EXPERTS * OUT), *up_bias = made_values(EXPERTS * OUT);
        struct ts_bundle *whole, *parts;
        paired_start(&paired);
        whole = form % 2 ? paired.a : paired.b;
        parts = form % 2 ? paired.b : paired.a;
        for (int e = 0; e < EXPERTS; e++)
            for (int o = 0; o < OUT; o++) {
                int at_gate = form < 2 ? 2 * o : o, at_up = form < 2 ? 2 * o + 1 : OUT + o;
                for (int i = 0; i < IN; i++) {
                    if (form < 2) {
                        fused[(e * IN + i) * 2 * OUT + at_gate] = gate[(e * OUT + o) * IN + i];
                        fused[(e * IN + i) * 2 * OUT + at_up] = up[(e * OUT + o) * IN + i];
                    } else {
                        fused[(e * 2 * OUT + at_gate) * IN + i] = gate[(e * OUT + o) * IN + i];
                        fused[(e * 2 * OUT + at_up) * IN + i] = up[(e * OUT + o) * IN + i];
                    }
                }
                bias[e * 2 * OUT + at_gate] = gate_bias[e * OUT + o];
                bias[e * 2 * OUT + at_up] = up_bias[e * OUT + o];
            }
        made_add(whole, "model.layers.0.mlp.experts.gate_up_proj", fused, 3,
                 form < 2 ? (uint64_t[]){EXPERTS, IN, 2 * OUT} : (uint64_t[]){EXPERTS, 2 * OUT, IN});
        made_add(whole, "model.layers.0.mlp.experts.gate_up_proj_bias", bias, SHAPE(EXPERTS, 2 * OUT));
        if (form == 3) { /* split on the other side as well */
            add_experts(NULL, NULL, parts, "model.layers.0.mlp.experts.%d.gate_proj.weight", gate, EXPERTS, OUT, IN);
            add_experts(NULL, NULL, parts, "model.layers.0.mlp.experts.%d.up_proj.weight", up, EXPERTS, OUT, IN);
        } else {
            made_add(parts, "blk.0.ffn_gate_exps.weight", gate, SHAPE(EXPERTS, OUT, IN));
            made_add(parts, "blk.0.ffn_up_exps.weight", up, SHAPE(EXPERTS, OUT, IN));
        }
        made_add(parts, "blk.0.ffn_gate_exps.bias", gate_bias, SHAPE(EXPERTS, OUT));
        made_add(parts, "blk.0.ffn_up_exps.bias", up_bias, SHAPE(EXPERTS, OUT));
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 4, 0);
        free(gate), free(up), free(fused), free(bias), free(gate_bias), free(up_bias);
        paired_end(&paired);
    }
}

enum fusion { ROWS, BY_HEAD, BY_GROUP, COLUMNS };

/* 4 query heads and, where groups are, 2 heads of k and v; heads of 8; 24 inputs. */
static void check_qkv(enum fusion fusion, bool fused_is_b)
{
    struct paired paired;
    int heads = 4, kv = fusion == BY_GROUP || fusion == ROWS ? 2 : 4, dim = 8, in = 24, total = (heads + 2 * kv) * dim;
    float *parts[3] = {made_values((size_t)(heads * dim * in)), made_values((size_t)(kv * dim * in)),
                       made_values((size_t)(kv * dim * in))};
    float *fused = made_values((size_t)(total * in));
    struct ts_bundle *whole, *split;
    paired_start(&paired);
    whole = fused_is_b ? paired.b : paired.a;
    split = fused_is_b ? paired.a : paired.b;
    for (int part = 0; part < 3; part++)
        for (int head = 0; head < (part ? kv : heads); head++)
            for (int d = 0; d < dim; d++)
                for (int i = 0; i < in; i++) {
                    int group = part ? head : head / (heads / kv),
                        inside = part ? heads / kv + part - 1 : head % (heads / kv);
                    int row = fusion == BY_HEAD || fusion == BY_GROUP
                                  ? (group * (heads / kv + 2) + inside) * dim + d
                                  : (part > 0 ? heads * dim : 0) + (part > 1 ? kv * dim : 0) + head * dim + d;
                    float value = parts[part][(head * dim + d) * in + i];
                    fused[fusion == COLUMNS ? i * total + row : row * in + i] = value;
                }
    made_add(whole,
             fusion == COLUMNS ? "transformer.h.0.attn.c_attn.weight"
                               : "gpt_neox.layers.0.attention.query_key_value.weight",
             fused, 2, fusion == COLUMNS ? (uint64_t[]){24, (uint64_t)total} : (uint64_t[]){(uint64_t)total, 24});
    made_add(split, "model.layers.0.self_attn.q_proj.weight", parts[0], SHAPE((uint64_t)(heads * dim), 24));
    made_add(split, "model.layers.0.self_attn.k_proj.weight", parts[1], SHAPE((uint64_t)(kv * dim), 24));
    made_add(split, "model.layers.0.self_attn.v_proj.weight", parts[2], SHAPE((uint64_t)(kv * dim), 24));
    config(whole, kv == 2 ? "{\"num_attention_heads\": 4, \"num_key_value_heads\": 2}" : "{\"n_head\": 4}");
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 3, 0);
    assert_non_null(strstr(paired.pairing.pairs[0].recipe, fused_is_b ? "B: " : "A: "));
    /* a saved map does not stand in the way of cutting them again */
    assert_int_equal(ts_pairing_save(&paired.pairing, scratch_path("map"), &paired.error), TS_OK);
    ts_pairing_release(&paired.pairing);
    paired_run(&paired, &(struct ts_pair_options){.map_file = scratch_path("map")});
    assert_all_equal(&paired, 3, 0);
    for (int i = 0; i < 3; i++)
        free(parts[i]);
    free(fused);
    paired_end(&paired);
}

static void test_fused_qkv(void **state)
{
    (void)state;
    for (int fusion = ROWS; fusion <= COLUMNS; fusion++)
        for (int fused_is_b = 0; fused_is_b < 2; fused_is_b++)
            check_qkv((enum fusion)fusion, fused_is_b);
}

/* Fused on both sides, in two orders, as llama.cpp does with GPT-NeoX and BLOOM. */
static void test_fused_on_both_sides(void **state)
{
    struct paired paired;
    float *plain = made_values(96 * 24), *mixed = made_values(96 * 24);
    (void)state;
    for (int part = 0; part < 3; part++)
        for (int head = 0; head < 4; head++)
            memcpy(mixed + (head * 3 + part) * 8 * 24, plain + (part * 4 + head) * 8 * 24, 8 * 24 * sizeof *plain);
    paired_start(&paired);
    made_add(paired.a, "blk.0.attn_qkv.weight", plain, SHAPE(96, 24));
    made_add(paired.b, "gpt_neox.layers.0.attention.query_key_value.weight", mixed, SHAPE(96, 24));
    architecture(paired.a, "gptneox", "4", "4");
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 1, 0);
    assert_string_equal(paired.pairing.pairs[0].recipe, "B: q, k and v of 4 heads taken apart");
    free(plain);
    free(mixed);
    paired_end(&paired);
}

/* Two groups of four query heads with a key and a value head each, as Falcon has them: four of the twelve heads stand
 * where they stand otherwise, which is no reason to take the rest as it is. */
static void test_fused_groups_on_both_sides(void **state)
{
    static const int order[12] = {0, 1, 2, 3, 6, 7, 8, 9, 4, 10, 5, 11};
    struct paired paired;
    float *plain = made_values(96 * 64), *mixed = made_values(96 * 64);
    (void)state;
    for (int head = 0; head < 12; head++)
        memcpy(plain + head * 8 * 64, mixed + order[head] * 8 * 64, 8 * 64 * sizeof *plain);
    for (int shift = 0; shift < 3; shift++) {
        paired_start(&paired);
        made_add(paired.a, "transformer.h.0.self_attention.query_key_value.weight", mixed, SHAPE(96, 64));
        made_add(paired.b, "blk.0.attn_qkv.weight", plain, SHAPE(96, 64));
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 1, 0);
        assert_string_equal(paired.pairing.pairs[0].recipe, "A: ungroup axis 0, 2 groups of 4+1+1 heads of 8");
        paired_end(&paired);
        /* what the first look sees depends on the values */
        for (int i = 0; i < 96 * 64; i++)
            mixed[i] *= 1 + (float)(i % (5 + shift)) / 4;
        for (int head = 0; head < 12; head++)
            memcpy(plain + head * 8 * 64, mixed + order[head] * 8 * 64, 8 * 64 * sizeof *plain);
    }
    free(plain);
    free(mixed);
}

/* q, k, v and the network's first product in one, as Flux has them in its blocks with one stream. */
static void test_fused_in_four(void **state)
{
    static const char *const names[] = {"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"};
    static const int rows[] = {24, 24, 24, 96};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < 2; layer++) {
        float *fused = made_values(168 * 24);
        for (int part = 0, from = 0; part < 4; from += rows[part++]) {
            char name[128];
            snprintf(name, sizeof name, "single_transformer_blocks.%d.%s.weight", layer, names[part]);
            made_add(paired.a, name, fused + from * 24, SHAPE((uint64_t)rows[part], 24));
        }
        made_add(paired.b, made_name("single_blocks.%d.linear1.weight", layer), fused, SHAPE(168, 24));
        free(fused);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 8, 0);
    assert_string_equal(paired_find(&paired, "single_transformer_blocks.1.proj_mlp.weight", NULL)->recipe,
                        "B: ffn_up cut out");
    paired_end(&paired);
}

/* What was computed is fused along its last axis. */
static void test_fused_traces(void **state)
{
    struct paired paired;
    float *gate = made_values(5 * 12), *up = made_values(5 * 12), *fused = made_values(5 * 24);
    (void)state;
    for (int i = 0; i < 5; i++) {
        memcpy(fused + i * 24, gate + i * 12, 12 * sizeof *gate);
        memcpy(fused + i * 24 + 12, up + i * 12, 12 * sizeof *gate);
    }
    paired_start(&paired);
    made_add(paired.a, "layer_0_mlp_gate_proj", gate, SHAPE(5, 12));
    made_add(paired.a, "layer_0_mlp_up_proj", up, SHAPE(5, 12));
    made_add(paired.b, "model.layers.0.mlp.gate_up_proj", fused, SHAPE(5, 24));
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 2, 0);
    free(gate), free(up), free(fused);
    paired_end(&paired);
}

/* kv_b [heads (k + v), rank] against k_b [heads, rank, k] and v_b [heads, v, rank]. */
static void test_latent_attention(void **state)
{
    enum { HEADS = 3, KEY = 4, VALUE = 6, RANK = 10 };
    struct paired paired;
    float *fused = made_values(HEADS * (KEY + VALUE) * RANK), k[HEADS * RANK * KEY], v[HEADS * VALUE * RANK];
    (void)state;
    for (int head = 0; head < HEADS; head++)
        for (int r = 0; r < RANK; r++) {
            for (int i = 0; i < KEY; i++)
                k[(head * RANK + r) * KEY + i] = fused[(head * (KEY + VALUE) + i) * RANK + r];
            for (int i = 0; i < VALUE; i++)
                v[(head * VALUE + i) * RANK + r] = fused[(head * (KEY + VALUE) + KEY + i) * RANK + r];
        }
    paired_start(&paired);
    made_add(paired.a, "model.layers.0.self_attn.kv_b_proj.weight", fused, SHAPE(HEADS * (KEY + VALUE), RANK));
    made_add(paired.b, "blk.0.attn_k_b.weight", k, SHAPE(HEADS, RANK, KEY));
    made_add(paired.b, "blk.0.attn_v_b.weight", v, SHAPE(HEADS, VALUE, RANK));
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 2, 0);
    free(fused);
    paired_end(&paired);
}

/* Fused parts that hold something else: names and sizes say what belongs together, no values do. */
static void test_fused_but_unrelated(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
                                            "model.layers.0.mlp.gate_up_proj.weight"};
        float *values = made_values(24 * 10);
        made_add(i < 2 ? paired.a : paired.b, names[i], values, SHAPE(i < 2 ? 12 : 24, 10));
        free(values);
    }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 2);
    assert_int_equal(paired.pairing.only_a_count, 0);
    assert_int_equal(paired.pairing.only_b_count, 0);
    for (size_t i = 0; i < 2; i++)
        assert_true(paired.pairing.pairs[i].guess);
    paired_end(&paired);
}

static void test_tied(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) { /* head only in A, only in B, and a head that is not the embedding */
        struct paired paired;
        float *embedding = made_values(50 * 12), *head = made_values(50 * 12);
        paired_start(&paired);
        made_add(paired.a, "model.embed_tokens.weight", embedding, SHAPE(50, 12));
        made_add(paired.b, "token_embd.weight", embedding, SHAPE(50, 12));
        if (form == 1)
            made_add(paired.b, "output.weight", embedding, SHAPE(50, 12));
        else
            made_add(paired.a, "lm_head.weight", form == 2 ? head : embedding, SHAPE(50, 12));
        paired_run(&paired, NULL);
        if (form == 2) {
            assert_int_equal(paired.pairing.count, 1);
            assert_int_equal(paired.pairing.only_a_count, 1);
        } else {
            assert_all_equal(&paired, 2, 0);
            assert_string_equal(paired.pairing.pairs[1].how, "tied");
            assert_true(has_note(&paired, form ? "A has no head of its own" : "B has no head of its own"));
        }
        free(embedding);
        free(head);
        paired_end(&paired);
    }
}

/* Four ranks, in folders or in names: columns are joined, what every rank has is taken once. */
static void check_ranks(const char *format, bool shards_are_b)
{
    struct paired paired;
    struct ts_bundle *whole, *shards;
    char name[128];
    paired_start(&paired);
    whole = shards_are_b ? paired.a : paired.b;
    shards = shards_are_b ? paired.b : paired.a;
    for (int layer = 0; layer < 2; layer++) {
        float *gate = made_values(6 * 32), *norm = made_values(6 * 16), part[6 * 8];
        made_add(whole, made_name("layer_%d_mlp_gate_proj", layer), gate, SHAPE(6, 32));
        made_add(whole, made_name("layer_%d_attn_norm_output", layer), norm, SHAPE(6, 16));
        for (int rank = 0; rank < 4; rank++) {
            for (int i = 0; i < 6; i++)
                memcpy(part + i * 8, gate + i * 32 + rank * 8, 8 * sizeof *part);
            snprintf(name, sizeof name, format, rank, made_name("layer_%d_mlp_gate_proj", layer));
            made_add(shards, name, part, SHAPE(6, 8));
            snprintf(name, sizeof name, format, rank, made_name("layer_%d_attn_norm_output", layer));
            made_add(shards, name, norm, SHAPE(6, 16));
        }
        free(gate);
        free(norm);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 4, 0);
    paired_end(&paired);
}

static void test_ranks(void **state)
{
    (void)state;
    check_ranks("rank%d/%s", true);
    check_ranks("rank%d/%s", false);
    check_ranks("rank_%d/dump:%s", true);
    check_ranks("mp_rank_%02d:%s", true);
    check_ranks("tp%d.%s", false);
    check_ranks("dump-0000%d-of-00004:%s", true);
    check_ranks("shard%d/%s", true);
    check_ranks("gpu%d/%s", false);
    check_ranks("device_%d/dump:%s", true);
    check_ranks("worker%d/%s", true);
    check_ranks("consolidated.%02d:%s", true);
    check_ranks("part.%d_of_4:%s", true);
}

/* Kernels of another format are transposed in every layer. One that agrees as it stands was forgotten, whether its
 * shape is that of the other side or has an axis more; so was one that agrees in no layout. */
static void test_what_most_layers_need(void **state)
{
    enum { SIDE = 12, HEADS = 3, ALL = 4 };
    static const uint64_t plain[2] = {SIDE, SIDE}, split[3] = {HEADS, SIDE / HEADS, SIDE};
    (void)state;
    for (int heads = 0; heads < 2; heads++)
        for (int unrelated = 0; unrelated < 2; unrelated++) {
            struct paired paired;
            paired_start(&paired);
            for (int layer = 0; layer < ALL; layer++) {
                float *values = made_values(SIDE * SIDE), *others = made_values(SIDE * SIDE), turned[SIDE * SIDE];
                for (size_t i = 0; i < SIDE * SIDE; i++)
                    turned[i] = layer != 2 ? values[i % SIDE * SIDE + i / SIDE] : unrelated ? others[i] : values[i];
                made_add(paired.a, made_name("model.layers.%d.self_attn.o_proj.weight", layer), values, 2, plain);
                made_add(paired.b, made_name("params/decoder/layers_%d/self_attention/out/kernel", layer), turned,
                         heads ? 3 : 2, heads ? split : plain);
                free(values);
                free(others);
            }
            paired_run(&paired, NULL);
            assert_int_equal(paired.pairing.count, ALL);
            for (int layer = 0; layer < ALL; layer++) {
                const struct ts_pair *pair =
                    paired_find(&paired, made_name("model.layers.%d.self_attn.o_proj.weight", layer), NULL);
                assert_string_equal(pair->recipe, paired.pairing.pairs[0].recipe);
                assert_int_equal(pair_error(pair) > 0.5, layer == 2);
                assert_false(pair->guess);
            }
            paired_end(&paired);
        }
}

/* [1, heads, tokens, size] as [1, tokens, heads, size]. */
static void put_turned(const float *from, size_t heads, size_t tokens, size_t size, float *to)
{
    for (size_t h = 0; h < heads; h++)
        for (size_t t = 0; t < tokens; t++)
            memcpy(to + (t * heads + h) * size, from + (h * tokens + t) * size, size * sizeof *to);
}

/* Captured queries and keys of llama.cpp, which turns pairs where others turn halves: [tokens, heads, size] against [1,
 * heads, tokens, size], for any number of tokens. */
static void check_turned_heads(size_t tokens, bool pairs)
{
    enum { HEADS = 4, SIZE = 16, MOST = 9 };
    static const char *const names[2][2] = {{"model.layers.%d.self_attn.q_rope", "Qcur_rope-%d"},
                                            {"model.layers.%d.self_attn.k_rope", "Kcur_rope-%d"}};
    struct paired paired;
    paired_start(&paired);
    for (int i = 0; i < 4; i++) {
        float *values = made_values(HEADS * tokens * SIZE), turned[MOST * HEADS * SIZE], out[MOST * HEADS * SIZE];
        put_turned(values, HEADS, tokens, SIZE, turned);
        for (size_t k = 0; k < tokens * HEADS * SIZE; k++) {
            const size_t place = k % SIZE, from = place % 2 * (SIZE / 2) + place / 2;
            out[k] = turned[pairs ? k - place + from : k];
        }
        made_add(paired.a, made_name(names[i % 2][0], i / 2), values, SHAPE(1, HEADS, tokens, SIZE));
        made_add(paired.b, made_name(names[i % 2][1], i / 2), out, SHAPE(tokens, HEADS, SIZE));
        free(values);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 4, 0);
    paired_end(&paired);
}

static void test_turned_heads(void **state)
{
    (void)state;
    check_turned_heads(9, true);
    check_turned_heads(4, true);
    check_turned_heads(9, false);
    check_turned_heads(1, true);
}

/* As many tokens as heads, and heads before tokens on one side: queries and keys of `layers` layers, and what is made
 * of them, which `agrees` or not. One layer's queries may be `plain` on both sides. */
static void add_square(struct paired *paired, int layers, size_t key_heads, bool agrees, int plain)
{
    enum { HEADS = 8, SIZE = 4 };
    for (int layer = 0; layer < layers; layer++) {
        float *q = made_values(HEADS * HEADS * SIZE), *k = made_values(key_heads * HEADS * SIZE);
        float *context = made_values(HEADS * HEADS * SIZE), *out = made_values(HEADS * HEADS * SIZE);
        float turned[HEADS * HEADS * SIZE];
        put_turned(q, HEADS, HEADS, SIZE, turned);
        made_add(paired->a, made_name("model.layers.%d.self_attn.q_rope", layer), q, SHAPE(1, HEADS, HEADS, SIZE));
        made_add(paired->b, made_name("model.layers.%d.self_attn.q_rope", layer), layer == plain ? q : turned,
                 SHAPE(1, HEADS, HEADS, SIZE));
        put_turned(k, key_heads, HEADS, SIZE, turned);
        made_add(paired->a, made_name("model.layers.%d.self_attn.k_rope", layer), k, SHAPE(1, key_heads, HEADS, SIZE));
        made_add(paired->b, made_name("model.layers.%d.self_attn.k_rope", layer), turned,
                 SHAPE(1, HEADS, key_heads, SIZE));
        for (int i = 0; i < 2; i++) {
            const char *name = i ? "model.layers.%d.self_attn.o_proj" : "model.layers.%d.self_attn.attn_context";
            made_add(paired->a, made_name(name, layer), context, SHAPE(HEADS, HEADS * SIZE));
            made_add(paired->b, made_name(name, layer), agrees ? context : out, SHAPE(HEADS, HEADS * SIZE));
        }
        free(q);
        free(k);
        free(context);
        free(out);
    }
}

static void check_square(int layers, size_t key_heads, bool agrees, int plain, const char *recipe)
{
    struct paired paired;
    paired_start(&paired);
    add_square(&paired, layers, key_heads, agrees, plain);
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 4 * layers);
    for (int layer = 0; layer < layers; layer++)
        assert_string_equal(paired_find(&paired, made_name("model.layers.%d.self_attn.q_rope", layer), NULL)->recipe,
                            recipe);
    paired_end(&paired);
}

/* Another order of equal axes is a fault, unless the run shows that it is how that side was captured. */
static void test_as_many_tokens_as_heads(void **state)
{
    (void)state;
    check_square(2, 8, true, -1, "B: swap 1 2");  /* what is computed of them agrees */
    check_square(1, 8, true, -1, "");             /* of one layer that says too little */
    check_square(3, 8, false, -1, "");            /* it does not */
    check_square(1, 4, false, -1, "B: swap 1 2"); /* keys stand so, by their sizes */
    check_square(3, 8, true, 1, "B: swap 1 2");   /* one that does not need it is the fault */
    check_square(2, 8, true, 1, "");              /* of two nobody knows which */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permuted_rows),
        cmocka_unit_test(test_permuted_in_ranks),
        cmocka_unit_test(test_permutation_missing),
        cmocka_unit_test(test_one_converted_otherwise),
        cmocka_unit_test(test_one_added_to_large_weights),
        cmocka_unit_test(test_norms_with_one),
        cmocka_unit_test(test_decay),
        cmocka_unit_test(test_swapped_halves),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_square_transposed),
        cmocka_unit_test(test_axes_by_size),
        cmocka_unit_test(test_stacked_experts),
        cmocka_unit_test(test_incomplete_experts),
        cmocka_unit_test(test_fused_experts),
        cmocka_unit_test(test_fused_called_up),
        cmocka_unit_test(test_lengths_of_a_batch),
        cmocka_unit_test(test_joined_axes_of_others),
        cmocka_unit_test(test_cut_axes_of_others),
        cmocka_unit_test(test_fused_qkv),
        cmocka_unit_test(test_fused_on_both_sides),
        cmocka_unit_test(test_fused_groups_on_both_sides),
        cmocka_unit_test(test_fused_in_four),
        cmocka_unit_test(test_fused_traces),
        cmocka_unit_test(test_latent_attention),
        cmocka_unit_test(test_fused_but_unrelated),
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_what_most_layers_need),
        cmocka_unit_test(test_as_many_tokens_as_heads),
        cmocka_unit_test(test_turned_heads),
        cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
