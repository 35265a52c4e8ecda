/* What llama.cpp's and MLX's converters do to weights of linear attention, RWKV, towers and experts. What is expected
 * is written out as loops over indices, one layer by one. */
#include "made_bundle.h"

static void meta(struct ts_bundle *bundle, const char *key, const char *value)
{
    struct ts_error error;
    assert_int_equal(ts_bundle_meta(bundle, key, value, &error), TS_OK);
}

/* Runs it both ways round: all have their partners with equal values, and every recipe but of those without one says
 * this. */
static void check(struct paired *paired, size_t pairs, size_t plain, const char *recipe)
{
    for (int turned = 0; turned < 2; turned++) {
        struct ts_bundle *a = paired->a;
        size_t said = 0;
        if (turned) {
            paired->a = paired->b;
            paired->b = a;
        }
        paired_run(paired, NULL);
        assert_all_equal(paired, pairs, 1e-6);
        for (size_t i = 0; i < paired->pairing.count; i++) {
            assert_string_equal(paired->pairing.pairs[i].how, "canonical name");
            said += strstr(paired->pairing.pairs[i].recipe, recipe) != NULL;
        }
        assert_int_equal(said, pairs - plain);
        ts_pairing_release(&paired->pairing);
    }
    ts_bundle_free(paired->a);
    ts_bundle_free(paired->b);
}

/* Three heads of keys, two of values for each: head (group, i) of Hugging Face's file is head (i, group) of the other.
 */
enum { GROUPS = 3, IN_GROUP = 2, HEADS = GROUPS * IN_GROUP, KEY = 4, VALUE = 5, WIDTH = 7 };

/* `before` rows stay, then heads of `size` rows each are dealt out anew. */
static float *tiled(const float *values, int before, int size, int columns)
{
    float *out = made_values((size_t)((before + HEADS * size) * columns));
    memcpy(out, values, (size_t)(before * columns) * sizeof *out);
    for (int group = 0; group < GROUPS; group++)
        for (int i = 0; i < IN_GROUP; i++)
            memcpy(out + (before + (i * GROUPS + group) * size) * columns,
                   values + (before + (group * IN_GROUP + i) * size) * columns, (size_t)(size * columns) * sizeof *out);
    return out;
}

static void add_tiled(struct paired *paired, const char *name, const char *name_b, int before, int size, int columns,
                      unsigned rank)
{
    const int rows = before + HEADS * size;
    float *values = made_values((size_t)(rows * columns)), *other = tiled(values, before, size, columns);
    uint64_t shape[3] = {(uint64_t)rows, rank == 3 ? 1 : (uint64_t)columns, (uint64_t)columns};
    made_add(paired->a, name, values, rank, shape);
    shape[1] = (uint64_t)columns;
    made_add(paired->b, name_b, other, rank == 3 ? 2 : rank, shape);
    free(values);
    free(other);
}

static void linear_attention(struct paired *paired, const char *architecture)
{
    static const char *const keys[][2] = {
        {"ssm.group_count", "3"}, {"ssm.time_step_rank", "6"}, {"ssm.inner_size", "30"}};
    paired_start(paired);
    meta(paired->b, "general.architecture", architecture);
    for (size_t i = 0; i < 3; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s", architecture, keys[i][0]);
        meta(paired->b, key, keys[i][1]);
    }
}

/* Qwen 3.5 */
static void test_heads_in_turns(void **state)
{
    struct paired paired;
    const int before = 2 * GROUPS * KEY;
    float *values = made_values(WIDTH * HEADS * VALUE), *other = made_values(WIDTH * HEADS * VALUE);
    (void)state;
    linear_attention(&paired, "qwen35");
    add_tiled(&paired, "model.layers.0.linear_attn.in_proj_qkv.weight", "blk.0.attn_qkv.weight", before, VALUE, WIDTH,
              2);
    add_tiled(&paired, "model.layers.0.linear_attn.in_proj_z.weight", "blk.0.attn_gate.weight", 0, VALUE, WIDTH, 2);
    add_tiled(&paired, "model.layers.0.linear_attn.in_proj_a.weight", "blk.0.ssm_alpha.weight", 0, 1, WIDTH, 2);
    add_tiled(&paired, "model.layers.0.linear_attn.in_proj_b.weight", "blk.0.ssm_beta.weight", 0, 1, WIDTH, 2);
    add_tiled(&paired, "model.layers.0.linear_attn.conv1d.weight", "blk.0.ssm_conv1d.weight", before, VALUE, 4, 3);
    add_tiled(&paired, "model.layers.0.linear_attn.dt_bias", "blk.0.ssm_dt.bias", 0, 1, 1, 1);
    /* the columns of the output */
    for (int row = 0; row < WIDTH; row++)
        for (int group = 0; group < GROUPS; group++)
            for (int i = 0; i < IN_GROUP; i++)
                memcpy(other + row * HEADS * VALUE + (i * GROUPS + group) * VALUE,
                       values + row * HEADS * VALUE + (group * IN_GROUP + i) * VALUE, VALUE * sizeof *other);
    made_add(paired.a, "model.layers.0.linear_attn.out_proj.weight", values, SHAPE(WIDTH, HEADS * VALUE));
    made_add(paired.b, "blk.0.ssm_out.weight", other, SHAPE(WIDTH, HEADS * VALUE));
    free(values);
    free(other);
    check(&paired, 7, 0, "heads of v in turns (3 groups)");
}

/* The logarithm of a decay is dealt out as well. */
static void test_decay_in_turns(void **state)
{
    struct paired paired;
    static const float logarithm[HEADS] = {0.5F, -1, 0.25F, 2, -0.75F, 1.5F};
    float decay[HEADS];
    (void)state;
    linear_attention(&paired, "qwen35");
    for (int group = 0; group < GROUPS; group++)
        for (int i = 0; i < IN_GROUP; i++)
            decay[i * GROUPS + group] = (float)-__builtin_exp(logarithm[group * IN_GROUP + i]);
    add_tiled(&paired, "model.layers.0.linear_attn.in_proj_z.weight", "blk.0.attn_gate.weight", 0, VALUE, WIDTH, 2);
    add_tiled(&paired, "model.layers.0.linear_attn.in_proj_a.weight", "blk.0.ssm_alpha.weight", 0, 1, WIDTH, 2);
    made_add(paired.a, "model.layers.0.linear_attn.A_log", logarithm, SHAPE(HEADS));
    made_add(paired.b, "blk.0.ssm_a", decay, SHAPE(HEADS));
    check(&paired, 3, 0, "heads of v in turns (3 groups)");
}

/* Qwen3-Next: rows of q, k, v and z for each head of keys, against all q, all k, all v and, by itself, all z. */
static void test_fused_by_head_of_keys(void **state)
{
    struct paired paired;
    const int group_rows = 2 * KEY + 2 * IN_GROUP * VALUE, values_of = IN_GROUP * VALUE;
    (void)state;
    linear_attention(&paired, "qwen3next");
    for (int layer = 0; layer < 2; layer++) {
        float *fused = made_values((size_t)(GROUPS * group_rows * WIDTH));
        float *qkv = made_values((size_t)(GROUPS * (2 * KEY + values_of) * WIDTH));
        float *z = made_values((size_t)(GROUPS * values_of * WIDTH));
        for (int group = 0; group < GROUPS; group++)
            for (int row = 0; row < group_rows; row++) {
                float *to = row < KEY       ? qkv + (group * KEY + row) * WIDTH
                            : row < 2 * KEY ? qkv + (GROUPS * KEY + group * KEY + row - KEY) * WIDTH
                            : row < 2 * KEY + values_of
                                ? qkv + (2 * GROUPS * KEY + group * values_of + row - 2 * KEY) * WIDTH
                                : z + (group * values_of + row - 2 * KEY - values_of) * WIDTH;
                memcpy(to, fused + (group * group_rows + row) * WIDTH, WIDTH * sizeof *to);
            }
        made_add(paired.a, made_name("model.layers.%d.linear_attn.in_proj_qkvz.weight", layer), fused,
                 SHAPE((uint64_t)(GROUPS * group_rows), WIDTH));
        made_add(paired.b, made_name("blk.%d.attn_qkv.weight", layer), qkv,
                 SHAPE((uint64_t)(GROUPS * (2 * KEY + values_of)), WIDTH));
        made_add(paired.b, made_name("blk.%d.attn_gate.weight", layer), z,
                 SHAPE((uint64_t)(GROUPS * values_of), WIDTH));
        free(fused);
        free(qkv);
        free(z);
    }
    check(&paired, 4, 0, "cut out head by head");
}

/* RWKV: vectors of Hugging Face's file are one stack in the other. */
static void check_vectors(const char *architecture, const char *format, const char *order)
{
    struct paired paired;
    const size_t count = strlen(order);
    float *stack = made_values(count * 16);
    paired_start(&paired);
    meta(paired.b, "general.architecture", architecture);
    for (size_t i = count; i-- > 0;) { /* in the file they stand in another order */
        char name[64];
        snprintf(name, sizeof name, "%s%c", format, order[i]);
        made_add(paired.a, name, stack + i * 16, SHAPE(1, 1, 16));
    }
    made_add(paired.b, "blk.0.time_mix_lerp_fused.weight", stack, SHAPE((uint64_t)count, 1, 1, 16));
    free(stack);
    check(&paired, count, 0, "cut out");
}

/* q, k and v in one in Hugging Face's order of rows, against Meta's, where rows of a pair stand beside each other; and
 * no file that says how many heads there are. */
static void test_turned_rows_of_fused(void **state)
{
    enum { SIZE = 16, QUERIES = 4, KEYS = 2, HIDDEN = 64, Q = QUERIES * SIZE, K = KEYS * SIZE };
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < 2; layer++) {
        float *fused = made_values((Q + 2 * K) * HIDDEN), *turned = made_values(Q * HIDDEN);
        static const char *const names[] = {"layers.%d.attention.wq.weight", "layers.%d.attention.wk.weight",
                                            "layers.%d.attention.wv.weight"};
        static const int rows[] = {Q, K, K};
        const float *part = fused;
        made_add(paired.a, made_name("model.layers.%d.self_attn.qkv_proj.weight", layer), fused,
                 SHAPE(Q + 2 * K, HIDDEN));
        for (int which = 0; which < 3; part += rows[which++] * HIDDEN) {
            for (int row = 0; row < rows[which]; row++) { /* (half, pair) of a head to (pair, half) */
                const int head = row / SIZE, half = row % SIZE / (SIZE / 2), pair = row % (SIZE / 2);
                const int to = which == 2 ? row : head * SIZE + 2 * pair + half;
                memcpy(turned + to * HIDDEN, part + row * HIDDEN, HIDDEN * sizeof *turned);
            }
            made_add(paired.b, made_name(names[which], layer), turned, SHAPE((uint64_t)rows[which], HIDDEN));
        }
        free(fused);
        free(turned);
    }
    check(&paired, 6, 2, "rows un-permuted");
}

static void test_vectors_in_a_stack(void **state)
{
    (void)state;
    check_vectors("rwkv6", "rwkv.blocks.0.attention.time_maa_", "wkvrg");
    check_vectors("rwkv7", "model.layers.0.attn.x_", "rwkvag");
    check_vectors("arwkv7", "model.layers.0.self_attn.x_", "rwkva");
}

/* Refact, and Granite's speech encoder */
static void test_fused_keys_and_values(void **state)
{
    struct paired paired;
    float *values = made_values(2 * 8 * 24);
    (void)state;
    paired_start(&paired);
    meta(paired.b, "general.architecture", "refact");
    made_add(paired.a, "transformer.h.0.attn.kv.weight", values, SHAPE(16, 24));
    made_add(paired.b, "blk.0.attn_k.weight", values, SHAPE(8, 24));
    made_add(paired.b, "blk.0.attn_v.weight", values + 8 * 24, SHAPE(8, 24));
    free(values);
    check(&paired, 2, 0, "cut out");
}

/* What vLLM, SGLang and diffusers fuse at load, weights and what they give, in one piece and in every one of two ranks.
 */
static void test_fused_by_engines(void **state)
{
    static const struct {
        const char *fused, *parts[3];
        int rows[3];
    } fusions[] = {
        {"model.layers.0.mlp.shared_experts.gate_up_proj",
         {"model.layers.0.mlp.shared_experts.gate_proj", "model.layers.0.mlp.shared_experts.up_proj"},
         {8, 8}},
        {"model.layers.0.mlp.shared_expert.gate_up_proj",
         {"model.layers.0.mlp.shared_expert.gate_proj", "model.layers.0.mlp.shared_expert.up_proj"},
         {8, 8}},
        {"model.layers.0.self_attn.fused_qkv_a_proj",
         {"model.layers.0.self_attn.q_a_proj", "model.layers.0.self_attn.kv_a_proj_with_mqa"},
         {12, 10}},
        {"model.layers.0.self_attn.fused_qkv_a_proj_with_mqa",
         {"model.layers.0.self_attn.q_a_proj", "model.layers.0.self_attn.kv_a_proj_with_mqa"},
         {12, 10}},
        {"model.decoder.layers.0.encoder_attn.kv_proj",
         {"model.decoder.layers.0.encoder_attn.k_proj", "model.decoder.layers.0.encoder_attn.v_proj"},
         {8, 8}},
        {"encoder.layer.0.attention.self.qkv_proj",
         {"encoder.layer.0.attention.self.query", "encoder.layer.0.attention.self.key",
          "encoder.layer.0.attention.self.value"},
         {8, 8, 8}},
        {"transformer_blocks.0.attn.to_qkv",
         {"transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_k", "transformer_blocks.0.attn.to_v"},
         {8, 8, 8}},
        {"transformer_blocks.0.attn.to_added_qkv",
         {"transformer_blocks.0.attn.add_q_proj", "transformer_blocks.0.attn.add_k_proj",
          "transformer_blocks.0.attn.add_v_proj"},
         {8, 8, 8}},
    };
    enum { IN = 16, MOST = 24 };
    (void)state;
    for (size_t way = 0; way < 2 * sizeof fusions / sizeof *fusions; way++) {
        const int ranks = way % 2 ? 2 : 1;
        struct paired paired;
        float *values = made_values(MOST * IN);
        char name[160];
        int first = 0, count = 0;
        paired_start(&paired);
        for (int i = 0; i < 3 && fusions[way / 2].parts[i]; i++) {
            const int rows = fusions[way / 2].rows[i];
            snprintf(name, sizeof name, "%s.weight", fusions[way / 2].parts[i]);
            made_add(paired.a, name, values + (size_t)first * IN, SHAPE((uint64_t)rows, IN));
            first += rows;
            count++;
        }
        for (int rank = 0; rank < ranks; rank++) {
            snprintf(name, sizeof name, "rank%d/%s.weight", rank, fusions[way / 2].fused);
            made_add(paired.b, ranks > 1 ? name : name + strlen("rank0/"), values, SHAPE((uint64_t)first, IN));
        }
        free(values);
        check(&paired, (size_t)count, 0, ranks > 1 ? "rank 0 of 2 equal shards; " : "cut out");
    }
}

/* Qwen2-VL: a convolution over two frames is two entries of the other file. */
static void test_frames(void **state)
{
    struct paired paired;
    float *values = made_values(6 * 3 * 2 * 4 * 5), *frames[2] = {made_values(6 * 3 * 20), made_values(6 * 3 * 20)};
    (void)state;
    paired_start(&paired);
    meta(paired.b, "general.architecture", "clip");
    for (int i = 0; i < 6 * 3; i++)
        for (int frame = 0; frame < 2; frame++)
            memcpy(frames[frame] + i * 20, values + (i * 2 + frame) * 20, 20 * sizeof *values);
    made_add(paired.a, "visual.patch_embed.proj.weight", values, SHAPE(6, 3, 2, 4, 5));
    made_add(paired.a, "visual.patch_embed.proj.bias", values, SHAPE(6));
    made_add(paired.b, "v.patch_embd.weight", frames[0], SHAPE(6, 3, 4, 5));
    made_add(paired.b, "v.patch_embd.weight.1", frames[1], SHAPE(6, 3, 4, 5));
    made_add(paired.b, "v.patch_embd.bias", values, SHAPE(6));
    free(values);
    free(frames[0]);
    free(frames[1]);
    check(&paired, 3, 1, "cut out");
}

/* DBRX: experts one below the other, against one tensor each as MLX has them. */
static void test_experts_below_each_other(void **state)
{
    struct paired paired;
    float *values = made_values(4 * 6 * 9);
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "transformer.blocks.0.ffn.experts.mlp.v1", values, SHAPE(24, 9));
    for (int expert = 0; expert < 4; expert++)
        made_add(paired.b, made_name("transformer.blocks.0.ffn.experts.%d.v1.weight", expert), values + expert * 54,
                 SHAPE(6, 9));
    free(values);
    check(&paired, 1, 0, "4 experts stacked");
}

/* StableLM: a norm for each head. */
static void test_norms_of_heads(void **state)
{
    struct paired paired;
    float *values = made_values(4 * 16);
    (void)state;
    paired_start(&paired);
    meta(paired.b, "general.architecture", "stablelm");
    for (int head = 0; head < 4; head++)
        made_add(paired.a, made_name("model.layers.0.self_attn.q_layernorm.norms.%d.weight", head), values + head * 16,
                 SHAPE(16));
    made_add(paired.b, "blk.0.attn_q_norm.weight", values, SHAPE(4, 16));
    free(values);
    check(&paired, 1, 0, "4 experts stacked");
}

/* PLaMo 3: what is added to a norm depends on where it stands. */
static void test_added_to_norms(void **state)
{
    static const struct {
        const char *name, *other, *recipe;
        double add;
    } norms[] = {
        {"model.layers.layers.0.pre_mixer_norm.weight", "blk.0.attn_norm.weight", "A: 1 + w", 1},
        {"model.layers.layers.0.post_mixer_norm.weight", "blk.0.post_attention_norm", "A: 0.2 + w", 0.2},
        {"model.layers.layers.0.post_mlp_norm.weight", "blk.0.post_ffw_norm", "A: 0.0894427 + w", 0.08944271909999159}};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    meta(paired.b, "general.architecture", "plamo3");
    for (size_t i = 0; i < 3; i++) {
        float values[16], other[16];
        for (int k = 0; k < 16; k++) {
            values[k] = (float)(k % 5 - 2) / 64;
            other[k] = (float)(values[k] + norms[i].add);
        }
        made_add(paired.a, norms[i].name, values, SHAPE(16));
        made_add(paired.b, norms[i].other, other, SHAPE(16));
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 3, 1e-6);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(paired_find(&paired, norms[i].name, norms[i].other)->recipe, norms[i].recipe);
    paired_end(&paired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_in_turns),           cmocka_unit_test(test_decay_in_turns),
        cmocka_unit_test(test_fused_by_head_of_keys),    cmocka_unit_test(test_turned_rows_of_fused),
        cmocka_unit_test(test_vectors_in_a_stack),       cmocka_unit_test(test_fused_keys_and_values),
        cmocka_unit_test(test_fused_by_engines),         cmocka_unit_test(test_frames),
        cmocka_unit_test(test_experts_below_each_other), cmocka_unit_test(test_norms_of_heads),
        cmocka_unit_test(test_added_to_norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
