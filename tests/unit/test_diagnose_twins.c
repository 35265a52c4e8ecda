/* Twins of faults that were reported in public: layouts that pass every check of shapes and ruin the model silently.
 * Each is made again in small, and must be named. The projects are named with the class of fault, in our own words. */
#include "made_trace.h"

enum { TOKENS = 12, HEADS = 4, SIZE = 8, HIDDEN = HEADS * SIZE };

/* A checkpoint's weight: the candidate holds row order[i] of the reference as its row i. */
static void expect_rows(const char *name, size_t rows, size_t columns, const size_t *order, const char *id,
                        const char *words)
{
    struct trace trace;
    float *a, *b;
    trace_start(&trace);
    a = made_values(rows * columns);
    b = malloc(rows * columns * sizeof *b);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < columns; i++)
            b[row * columns + i] = order[row] == SIZE_MAX ? 0 : a[order[row] * columns + i];
    trace_diagnose(&trace, trace_add(&trace, name, a, b, SHAPE(rows, columns)));
    assert_first(&trace, id, words);
    free(a);
    free(b);
    trace_end(&trace);
}

/* The same for the channels of a captured tensor, under a little noise. */
static void expect_channels(const char *name, size_t channels, const size_t *order, const char *id, const char *words)
{
    struct trace trace;
    float *a, *b;
    trace_start(&trace);
    a = made_values(TOKENS * channels);
    b = malloc(TOKENS * channels * sizeof *b);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < channels; i++)
            b[t * channels + i] = a[t * channels + order[i]];
    shake(b, b, TOKENS * channels, 1e-3);
    trace_diagnose(&trace, trace_add(&trace, name, a, b, SHAPE(TOKENS, channels)));
    assert_first(&trace, id, words);
    free(a);
    free(b);
    trace_end(&trace);
}

/* Flux and its kin: the last adaptive norm gives (shift, scale) in one project's files and (scale, shift) in the
 * other's, and a converter forgets to swap them (diffusers 10198, 13998 and 14001, stable-diffusion.cpp 1707). */
static void test_shift_and_scale_swapped_in_the_file(void **state)
{
    size_t order[2 * HIDDEN];
    (void)state;
    for (size_t i = 0; i < 2 * HIDDEN; i++)
        order[i] = (i + HIDDEN) % (2 * HIDDEN);
    expect_rows("norm_out.linear.weight", 2 * HIDDEN, HIDDEN, order, "permuted", "halves");
    expect_rows("final_layer.adaLN_modulation.1.bias", 2 * HIDDEN, 1, order, "permuted", "halves");
}

/* The same fault seen in a trace: the right modulation, taken apart in the other order. */
static void test_shift_and_scale_swapped_in_the_run(void **state)
{
    struct trace trace;
    float *x, *modulation, out[2][TOKENS * HIDDEN];
    (void)state;
    trace_start(&trace);
    x = made_values(TOKENS * HIDDEN);
    modulation = made_values(2 * HIDDEN);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++) {
        float first = modulation[i % HIDDEN], second = modulation[HIDDEN + i % HIDDEN];
        out[0][i] = x[i] * (1 + second) + first;
        out[1][i] = x[i] * (1 + first) + second;
    }
    trace_add(&trace, "final_layer.norm_final", x, x, SHAPE(TOKENS, HIDDEN));
    trace_add(&trace, "final_layer.adaLN_modulation", modulation, modulation, SHAPE(1, 2 * HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "final_layer.modulated", out[0], out[1], SHAPE(TOKENS, HIDDEN)));
    assert_first(&trace, "modulation", NULL);
    free(x);
    free(modulation);
    trace_end(&trace);
}

/* Stacked experts whose matrices are square: shapes cannot tell a transpose, and each one is stored transposed
 * (transformers 47031). The stack is a parameter of its own there, without a word that says so. */
static void test_square_experts_transposed(void **state)
{
    enum { EXPERTS = 4, SIDE = 24 };
    static const char *const names[] = {"model.layers.0.mlp.experts.down_proj.weight",
                                        "model.layers.0.mlp.experts.down_proj", "model.layers.0.mlp.experts.w2"};
    float b[EXPERTS * SIDE * SIDE];
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        struct trace trace;
        float *a;
        trace_start(&trace);
        a = made_values(EXPERTS * SIDE * SIDE);
        for (size_t e = 0; e < EXPERTS; e++)
            for (size_t i = 0; i < SIDE; i++)
                for (size_t k = 0; k < SIDE; k++)
                    b[(e * SIDE + i) * SIDE + k] = a[(e * SIDE + k) * SIDE + i];
        trace_diagnose(&trace, trace_add(&trace, names[n], a, b, SHAPE(EXPERTS, SIDE, SIDE)));
        assert_first(&trace, "permuted", "each of 4 matrices is transposed");
        free(a);
        trace_end(&trace);
    }
}

/* Where row r of a fused weight (or channel of its output) stands: part 0 to 2 is q, k, v; head, number. */
static size_t concatenated(size_t part, size_t head, size_t i)
{
    return (part * HEADS + head) * SIZE + i;
}

static size_t per_head(size_t part, size_t head, size_t i)
{
    return (head * 3 + part) * SIZE + i;
}

static size_t per_number(size_t part, size_t head, size_t i)
{
    return (head * SIZE + i) * 3 + part;
}

/* Two ranks, each with its own q, k and v. */
static size_t per_rank(size_t part, size_t head, size_t i)
{
    return ((head / (HEADS / 2) * 3 + part) * (HEADS / 2) + head % (HEADS / 2)) * SIZE + i;
}

/* Four blocks, each with its own q, v, k: the values before the keys. */
static size_t blocks_with_values_first(size_t part, size_t head, size_t i)
{
    static const size_t place[] = {0, 2, 1};
    return (head * 3 + place[part]) * SIZE + i;
}

/* The orders in which people fuse queries, keys and values, one taken for another: by tensor, by head, by number of a
 * head, by rank (slapo 46, DeepSpeed 3844; a reorder that one loader skips: sglang 40127). */
static void test_orders_of_fused_weights(void **state)
{
    static size_t (*const ways[])(size_t, size_t, size_t) = {concatenated, per_head, per_number, per_rank,
                                                             blocks_with_values_first};
    (void)state;
    for (size_t right = 0; right < 5; right++)
        for (size_t wrong = 0; wrong < 5; wrong++) {
            const char *words = right == 0 && wrong == 1   ? "q, k and v of each of 4 heads are together"
                                : right == 1 && wrong == 0 ? "q, k and v of each of 4 heads are apart"
                                                           : NULL;
            size_t order[3 * HIDDEN];
            if (right == wrong)
                continue;
            for (size_t part = 0; part < 3; part++)
                for (size_t head = 0; head < HEADS; head++)
                    for (size_t i = 0; i < SIZE; i++)
                        order[ways[wrong](part, head, i)] = ways[right](part, head, i);
            expect_rows("transformer.h.0.attn.c_attn.weight", 3 * HIDDEN, 20, order, "permuted", words);
            expect_channels("layer_0_attn_qkv", 3 * HIDDEN, order, "permuted", words);
        }
}

/* Grouped heads: [all q, all k, all v] against [q of a group, its k, its v] for each group. */
static void test_orders_of_grouped_heads(void **state)
{
    enum { GROUPS = 2, PER_GROUP = 4, BLOCKS = GROUPS * (PER_GROUP + 2) };
    size_t order[BLOCKS * SIZE];
    (void)state;
    for (size_t group = 0; group < GROUPS; group++)
        for (size_t block = 0; block < PER_GROUP + 2; block++)
            for (size_t i = 0; i < SIZE; i++) {
                size_t from = block < PER_GROUP    ? group * PER_GROUP + block
                              : block == PER_GROUP ? GROUPS * PER_GROUP + group
                                                   : GROUPS * PER_GROUP + GROUPS + group;
                order[(group * (PER_GROUP + 2) + block) * SIZE + i] = from * SIZE + i;
            }
    expect_rows("model.layers.3.self_attn.qkv_proj.weight", BLOCKS * SIZE, 20, order, "permuted", NULL);
    expect_channels("layer_3_attn_qkv", BLOCKS * SIZE, order, "permuted", NULL);
}

/* A fused projection is right, and is taken apart as if queries, keys and values stood head by head (tt-metal 41718 and
 * 41731): the queries hold heads of all three. */
static void test_fused_heads_cut_out_wrongly(void **state)
{
    struct trace trace;
    float *fused, *noisy, q[2][TOKENS * HIDDEN];
    (void)state;
    trace_start(&trace);
    fused = made_values(TOKENS * 3 * HIDDEN);
    noisy = malloc(TOKENS * 3 * HIDDEN * sizeof *noisy);
    shake(fused, noisy, TOKENS * 3 * HIDDEN, 1e-4);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t head = 0; head < HEADS; head++)
            for (size_t i = 0; i < SIZE; i++) {
                q[0][(t * HEADS + head) * SIZE + i] = fused[t * 3 * HIDDEN + concatenated(0, head, i)];
                q[1][(t * HEADS + head) * SIZE + i] = noisy[t * 3 * HIDDEN + per_head(0, head, i)];
            }
    trace_add(&trace, "layer_0_attn_qkv", fused, noisy, SHAPE(TOKENS, 3 * HIDDEN));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_q", q[0], q[1], SHAPE(TOKENS, HEADS, SIZE)));
    assert_first(&trace, "permuted", "layer_0_attn_qkv");
    free(fused);
    free(noisy);
    trace_end(&trace);
}

/* Rotary rows in the order of interleaved pairs where halves are meant, in the file and in what it makes (transformers
 * 25199 and 47403, nanotron 214, candle 3948, AiDotNet 2074). */
static void test_rotary_rows(void **state)
{
    size_t order[HIDDEN], back[HIDDEN];
    (void)state;
    for (size_t head = 0; head < HEADS; head++)
        for (size_t i = 0; i < SIZE; i++) {
            order[head * SIZE + i] = head * SIZE + i % 2 * (SIZE / 2) + i / 2;
            back[head * SIZE + i % 2 * (SIZE / 2) + i / 2] = head * SIZE + i;
        }
    expect_rows("model.layers.0.self_attn.q_proj.weight", HIDDEN, HIDDEN, order, "permuted",
                "rows in each group of 8 are interleaved (0,4,1,...) instead of in halves");
    expect_rows("model.layers.0.self_attn.k_proj.weight", HIDDEN, HIDDEN, back, "permuted",
                "rows in each group of 8 are in halves (0,2,4,... 1,3,5,...) instead of interleaved");
    expect_channels("layer_0_attn_q", HIDDEN, order, "permuted", "channels in each group of 8 are interleaved");
}

/* The same with the right weights: the kernel turns the wrong pairs. */
static void test_rotary_pairs(void **state)
{
    (void)state;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        struct trace trace;
        float *x, turned[2][TOKENS * HIDDEN];
        trace_start(&trace);
        x = made_values(TOKENS * HIDDEN);
        for (int side = 0; side < 2; side++)
            for (size_t t = 0; t < TOKENS; t++)
                for (size_t head = 0; head < HEADS; head++)
                    for (size_t i = 0; i < SIZE / 2; i++) {
                        bool pairs = (interleaved != 0) == (side == 0);
                        size_t first = (t * HEADS + head) * SIZE + (pairs ? 2 * i : i),
                               second = first + (pairs ? 1 : SIZE / 2);
                        double angle = (double)t * pow(10000, -2.0 * (double)i / SIZE);
                        turned[side][first] = (float)((double)x[first] * cos(angle) - (double)x[second] * sin(angle));
                        turned[side][second] = (float)((double)x[first] * sin(angle) + (double)x[second] * cos(angle));
                    }
        trace_add(&trace, "layer_0_attn_q", x, x, SHAPE(TOKENS, HEADS, SIZE));
        trace_diagnose(&trace,
                       trace_add(&trace, "layer_0_attn_q_rope", turned[0], turned[1], SHAPE(TOKENS, HEADS, SIZE)));
        assert_first(&trace, "rotation", interleaved ? "reference interleaved" : "reference half-split");
        free(x);
        trace_end(&trace);
    }
}

/* Rank 0 loads the experts of rank 1 (a fork of Megatron-LM, 61): half of a stack is there twice; or each expert is a
 * tensor of its own and holds another one's values. */
static void test_shard_of_another_rank(void **state)
{
    enum { EXPERTS = 8, ROWS = 6 };
    size_t order[EXPERTS * ROWS];
    struct trace trace;
    float *values;
    (void)state;
    for (size_t i = 0; i < EXPERTS * ROWS; i++)
        order[i] = EXPERTS * ROWS / 2 + i % (EXPERTS * ROWS / 2);
    expect_rows("model.layers.0.mlp.experts.gate_up_proj.weight", EXPERTS * ROWS, 24, order, "rows", "rows 0 to 23");
    expect_rows("model.layers.0.mlp.experts.gate_up_proj", EXPERTS * ROWS, 24, order, "rows", "rows 0 to 23");
    trace_start(&trace);
    values = made_values(EXPERTS * 512);
    for (size_t e = 0; e < EXPERTS; e++)
        trace_add(&trace, made_name("model.layers.0.mlp.experts.%d.up_proj.weight", (int)e), values + e * 512,
                  values + (EXPERTS / 2 + e % (EXPERTS / 2)) * 512, SHAPE(16, 32));
    trace_diagnose(&trace, 1);
    assert_first(&trace, "swapped-with", "experts.5.up_proj");
    free(values);
    trace_end(&trace);
}

/* Shards of unequal length, saved as if all had the last one's (Megatron-LM 6024): they are written over each other's
 * ends, and the end of the tensor is never written. */
static void test_uneven_shards(void **state)
{
    enum { ROWS = 30, RANKS = 4 };
    static const size_t lengths[RANKS] = {9, 9, 6, 6};
    size_t order[ROWS], start = 0;
    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        order[i] = SIZE_MAX;
    for (size_t rank = 0; rank < RANKS; rank++) {
        for (size_t i = 0; i < lengths[rank]; i++)
            order[rank * lengths[rank] + i] = start + i;
        start += lengths[rank];
    }
    expect_rows("model.embed_tokens.weight", ROWS, 40, order, "permuted", "rows");
}

/* None of it is said about a weight that was only rounded. */
static void test_rounded_weights_are_silent(void **state)
{
    struct trace trace;
    float *a, b[3 * HIDDEN * 20];
    (void)state;
    trace_start(&trace);
    a = made_values(3 * HIDDEN * 20);
    for (size_t i = 0; i < 3 * HIDDEN * 20; i++)
        b[i] = to_bf16(a[i]);
    trace_diagnose(&trace, trace_add(&trace, "transformer.h.0.attn.c_attn.weight", a, b, SHAPE(3 * HIDDEN, 20)));
    assert_first(&trace, "rounding", "bf16");
    assert_int_equal(trace.diagnosis.count, 1);
    free(a);
    trace_end(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift_and_scale_swapped_in_the_file),
        cmocka_unit_test(test_shift_and_scale_swapped_in_the_run),
        cmocka_unit_test(test_square_experts_transposed),
        cmocka_unit_test(test_orders_of_fused_weights),
        cmocka_unit_test(test_orders_of_grouped_heads),
        cmocka_unit_test(test_fused_heads_cut_out_wrongly),
        cmocka_unit_test(test_rotary_rows),
        cmocka_unit_test(test_rotary_pairs),
        cmocka_unit_test(test_shard_of_another_rank),
        cmocka_unit_test(test_uneven_shards),
        cmocka_unit_test(test_rounded_weights_are_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
