/* The judge in diffusion transformers: scales, shifts and gates that are chunks of a captured row, in streams of which
 * some channels are thousands of times as large as the others. Honest runs are silent, and what is wrong in the many
 * small channels is found. */
#include "judged_trace.h"

enum { TOKENS = 16, WIDTH = 64, TOTAL = TOKENS * WIDTH, CHUNKS = 4, SCALE = 0, GATE = 1 };

/* What is computed; the sides differ in nothing else but their roundings. */
struct block {
    float large;     /* what two channels of the stream have in every token */
    double coarse;   /* relative error of the candidate's products */
    bool bf16[2];    /* of either side */
    bool tanh_gate;  /* in both */
    bool other_gate; /* in the candidate: another chunk, or a gate as it is where the reference's goes through tanh */
    bool bare;       /* in the candidate: scale for 1 + scale */
};

static void store(const struct block *block, int side, float *values, size_t count)
{
    if (block->bf16[side])
        round_all(values, count);
}

/* stream, modulation, norm, modulated norm, branch, stream + gate * branch */
static void add_block(struct trace *trace, const struct block *block)
{
    float *stream = made_values(TOTAL), *chunks = made_values(CHUNKS * WIDTH), *branch = made_values(TOTAL),
          *weight = made_values(WIDTH);
    float x[2][TOTAL], m[2][CHUNKS * WIDTH], y[2][TOTAL], normed[2][TOTAL], modulated[2][TOTAL], sum[2][TOTAL];
    for (size_t row = 0; row < TOKENS && block->large > 0; row++) {
        stream[row * WIDTH + 7] += block->large;
        stream[row * WIDTH + 40] -= 2 * block->large;
    }
    for (int side = 0; side < 2; side++) {
        memcpy(x[side], stream, sizeof x[side]);
        store(block, side, x[side], TOTAL);
        err(chunks, m[side], CHUNKS * WIDTH, side ? block->coarse : 0);
        err(branch, y[side], TOTAL, side ? block->coarse : 0);
        store(block, side, m[side], CHUNKS * WIDTH);
        store(block, side, y[side], TOTAL);
        for (size_t row = 0; row < TOKENS; row++) {
            double square = 0;
            for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
                square += (double)x[side][i] * (double)x[side][i] / WIDTH;
            for (size_t i = 0; i < WIDTH; i++)
                normed[side][row * WIDTH + i] =
                    (float)((double)x[side][row * WIDTH + i] / sqrt(square + 1e-6) * (1 + 0.2 * (double)weight[i]));
        }
        store(block, side, normed[side], TOTAL);
        for (size_t i = 0; i < TOTAL; i++) {
            const size_t chunk = side && block->other_gate && !block->tanh_gate ? GATE + 2 : GATE;
            double gate = (double)m[side][chunk * WIDTH + i % WIDTH];
            if (block->tanh_gate && !(side && block->other_gate))
                gate = tanh(gate);
            modulated[side][i] = (float)((double)normed[side][i] *
                                         ((side && block->bare ? 0 : 1) + (double)m[side][SCALE * WIDTH + i % WIDTH]));
            sum[side][i] = (float)((double)x[side][i] + gate * (double)y[side][i]);
        }
        store(block, side, modulated[side], TOTAL);
        store(block, side, sum[side], TOTAL);
    }
    trace_add(trace, "img_in", x[0], x[1], SHAPE(TOKENS, WIDTH));
    trace_add(trace, "block_0_modulation", m[0], m[1], SHAPE(1, CHUNKS * WIDTH));
    trace_add(trace, "block_0_normed", normed[0], normed[1], SHAPE(TOKENS, WIDTH));
    trace_add(trace, "block_0_modulated", modulated[0], modulated[1], SHAPE(TOKENS, WIDTH));
    trace_add(trace, "block_0_attn", y[0], y[1], SHAPE(TOKENS, WIDTH));
    trace_add(trace, "block_0_residual", sum[0], sum[1], SHAPE(TOKENS, WIDTH));
    free(stream);
    free(chunks);
    free(branch);
    free(weight);
}

static void judge_block(const struct block *block, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    add_block(&judged.trace, block);
    expect_first(&judged, expected);
}

/* normed * (1 + scale) has no shift. It is a norm of the stream as well, with weights that come out of a product, and
 * a product errs more than the norm. */
static void test_a_scale_without_a_shift(void **state)
{
    (void)state;
    judge_block(&(struct block){.coarse = 2e-4}, SIZE_MAX);
    judge_block(&(struct block){.coarse = 2e-3, .bf16 = {false, true}}, SIZE_MAX);
    judge_block(&(struct block){.coarse = 2e-3, .bf16 = {true, true}, .large = 400}, SIZE_MAX);
    judge_block(&(struct block){.coarse = 2e-4, .bare = true}, 3);
}

/* To a rounding of its largest channels the sum is the stream itself, and any chunk is its gate. */
static void test_a_gated_sum_beside_large_channels(void **state)
{
    (void)state;
    judge_block(&(struct block){.coarse = 3e-3, .bf16 = {true, true}, .large = 2000}, SIZE_MAX);
    judge_block(&(struct block){.coarse = 3e-3, .bf16 = {true, false}, .large = 2000}, SIZE_MAX);
    judge_block(&(struct block){.coarse = 3e-7, .large = 2000}, SIZE_MAX);
    judge_block(&(struct block){.coarse = 3e-3, .bf16 = {true, true}, .large = 2000, .other_gate = true}, 5);
}

static void test_a_gate_through_tanh(void **state)
{
    (void)state;
    judge_block(&(struct block){.coarse = 1e-4, .tanh_gate = true}, SIZE_MAX);
    judge_block(&(struct block){.coarse = 1e-4, .tanh_gate = true, .large = 400}, SIZE_MAX);
    judge_block(&(struct block){.coarse = 1e-4, .tanh_gate = true, .large = 400, .other_gate = true}, 5);
}

/* A first projection of which some channels have a bias that is a thousand times as large as what is computed. Heads
 * with such a channel seem to err far less than the others, when all numbers count as they are. */
static void judge_heads(double times, size_t expected)
{
    enum { SIZE = 32, HEADS = WIDTH / SIZE };
    struct judged judged;
    float *a = made_values(TOTAL), b[TOTAL];
    trace_start(&judged.trace);
    for (size_t i = 0; i < TOTAL; i++) {
        a[i] += i % WIDTH == 45 ? 1500 : i % WIDTH == 62 ? -2900 : 0;
        b[i] = a[i] + (float)((i % WIDTH / SIZE == 0 ? times : 1) * 2e-4 * dice_number());
    }
    trace_add(&judged.trace, "img_in", a, b, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "img_heads", a, b, SHAPE(TOKENS, HEADS, SIZE));
    free(a);
    expect_first(&judged, expected);
}

static void test_heads_beside_large_channels(void **state)
{
    (void)state;
    judge_heads(1, SIZE_MAX);
    judge_heads(20, 0);
}

/* An adaptive norm has no weights, and beside large channels all tokens look alike behind it: a norm with weights would
 * fit anything there. The candidate does not remove the mean. */
static void test_a_norm_of_rows_that_are_alike(void **state)
{
    struct trace trace;
    float *x, normed[2][TOTAL];
    size_t index;
    (void)state;
    trace_start(&trace);
    x = made_values(TOTAL);
    for (size_t row = 0; row < TOKENS; row++) {
        double mean = 0, square = 0;
        x[row * WIDTH + 7] += 400;
        x[row * WIDTH + 40] += 900;
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            mean += (double)x[i] / WIDTH;
            square += (double)x[i] * (double)x[i] / WIDTH;
        }
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            normed[0][i] = (float)(((double)x[i] - mean) / sqrt(square - mean * mean + 1e-6));
            normed[1][i] = (float)((double)x[i] / sqrt(square + 1e-6));
        }
    }
    trace_add(&trace, "img_in", x, x, SHAPE(TOKENS, WIDTH));
    index = trace_add(&trace, "block_0_normed", normed[0], normed[1], SHAPE(TOKENS, WIDTH));
    trace_diagnose(&trace, index);
    if (!trace.diagnosis.count || strcmp(trace.diagnosis.causes[0].id, "centering") != 0) {
        trace_print(&trace);
        fail_msg("it is not said that the mean is not removed");
    }
    trace_end(&trace);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_scale_without_a_shift),       cmocka_unit_test(test_a_gated_sum_beside_large_channels),
        cmocka_unit_test(test_a_gate_through_tanh),           cmocka_unit_test(test_heads_beside_large_channels),
        cmocka_unit_test(test_a_norm_of_rows_that_are_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
