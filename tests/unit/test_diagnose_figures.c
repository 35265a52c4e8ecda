/* Figures that a sentence must get right: another softcap, exponents over another head size, blocks of any size, heads
 * that are folded into one axis, heads written with other strides, norms that do nothing, pieces as large as they are.
 */
#include "made_trace.h"

enum { TOKENS = 22, HEADS = 5, SIZE = 12, WIDTH = HEADS * SIZE, LONG = 3000, WIDE = 2000 };

struct made {
    struct trace trace;
    float *x, *right, *wrong;
};

static void start(struct made *made, size_t count)
{
    trace_start(&made->trace);
    made->x = made_values(count);
    made->right = made_values(count);
    made->wrong = made_values(count);
}

static void finish(struct made *made)
{
    trace_end(&made->trace);
    free(made->x);
    free(made->right);
    free(made->wrong);
}

static void diagnose(struct made *made, const char *name, size_t tokens, size_t width)
{
    trace_diagnose(&made->trace, trace_add(&made->trace, name, made->right, made->wrong, SHAPE(tokens, width)));
}

static void test_another_softcap(void **state)
{
    static const double caps[][2] = {{3, 6}, {6, 3}, {30, 50}, {50, 15}};
    (void)state;
    for (size_t c = 0; c < 4; c++) {
        struct made made;
        char words[80];
        start(&made, TOKENS * WIDTH);
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            double x = (double)made.x[i] * caps[c][0];
            made.right[i] = (float)(caps[c][0] * tanh(x / caps[c][0]));
            made.wrong[i] = (float)(caps[c][1] * tanh(x / caps[c][1]));
        }
        diagnose(&made, "lm_head", TOKENS, WIDTH);
        snprintf(words, sizeof words, "caps at %.4g, the reference at %.4g", caps[c][1], caps[c][0]);
        assert_first(&made.trace, "clamped", words);
        finish(&made);
    }
}

/* A cap on one side alone is told as before. */
static void test_one_softcap(void **state)
{
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        struct made made;
        start(&made, TOKENS * WIDTH);
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            double x = (double)made.x[i] * 8, y = 8 * tanh(x / 8);
            made.right[i] = (float)(missing ? y : x);
            made.wrong[i] = (float)(missing ? x : y);
        }
        diagnose(&made, "lm_head", TOKENS, WIDTH);
        assert_first(&made.trace, "clamped",
                     missing ? "the softcap is missing: the reference is 8 *" : "8 * tanh(x / 8)");
        finish(&made);
    }
}

static void turn(const float *x, double theta, double over, float *out)
{
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t head = 0; head < HEADS; head++)
            for (size_t i = 0; i < SIZE / 2; i++) {
                size_t at = t * WIDTH + head * SIZE + i;
                double angle = (double)t * pow(theta, -2 * (double)i / over);
                double a = (double)x[at], b = (double)x[at + SIZE / 2];
                out[at] = (float)(a * cos(angle) - b * sin(angle));
                out[at + SIZE / 2] = (float)(b * cos(angle) + a * sin(angle));
            }
}

static void test_exponents(void **state)
{
    static const struct {
        double theta, over;
        const char *words;
    } cases[] = {
        {10000, 32, "theta = 10000 with exponents divided by 32 instead of 12: head_dim is wrong"},
        {10000, 20, "theta = 10000 with exponents divided by 20 instead of 12: head_dim is wrong"},
        {10000, 24, "theta = 100, which is the reference's theta = 10000 with exponents divided by 24 instead of 12"},
        {500000, SIZE, "theta = 500000, the reference's theta = 10000 (12"}, /* a base of its own is one */
        {1000000, SIZE, "theta = 1000000, the reference's theta = 10000 (12"},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct made made;
        start(&made, TOKENS * WIDTH);
        turn(made.x, 10000, SIZE, made.right);
        turn(made.x, cases[c].theta, cases[c].over, made.wrong);
        trace_add(&made.trace, "layer_0_attn_q_proj", made.x, made.x, SHAPE(TOKENS, HEADS, SIZE));
        trace_diagnose(&made.trace, trace_add(&made.trace, "layer_0_attn_q_rope", made.right, made.wrong,
                                              SHAPE(TOKENS, HEADS, SIZE)));
        assert_first(&made.trace, "rotation", cases[c].words);
        finish(&made);
    }
}

/* Blocks that are no power of two, and small ones of many levels. */
static void test_blocks(void **state)
{
    static const struct {
        size_t width, block;
        double levels;
        const char *words;
    } cases[] = {{60, 20, 7, "each block of 20 lie on a grid of their own: up to 15 levels"},
                 {120, 40, 7, "each block of 40 lie on a grid of their own: up to 15 levels"},
                 {96, 24, 7, "each block of 24 lie on a grid of their own: up to 15 levels"},
                 {160, 32, 7, "each block of 32 lie on a grid of their own: up to 15 levels"},
                 {64, 16, 127, "each block of 16 lie on a grid of their own: up to 255 levels (8 bits)"}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t count = TOKENS * cases[c].width;
        struct made made;
        start(&made, count);
        for (size_t first = 0; first < count; first += cases[c].block) {
            double largest = 0;
            for (size_t i = first; i < first + cases[c].block; i++)
                largest = fmax(largest, fabs((double)made.right[i]));
            for (size_t i = first; i < first + cases[c].block; i++)
                made.wrong[i] =
                    (float)(nearbyint((double)made.right[i] / largest * cases[c].levels) * largest / cases[c].levels);
        }
        diagnose(&made, "model.layers.1.mlp.up_proj.weight", TOKENS, cases[c].width);
        assert_first(&made.trace, "quantization", cases[c].words);
        finish(&made);
    }
}

/* Noise lies on no grid, whatever the sizes that its rows can be cut into. */
static void test_no_blocks(void **state)
{
    (void)state;
    for (size_t width = 60; width <= 240; width += 60) {
        struct made made;
        start(&made, TOKENS * width);
        shake(made.right, made.wrong, TOKENS * width, 1e-2);
        diagnose(&made, "model.layers.1.mlp.up_proj.weight", TOKENS, width);
        assert_null(trace_cause(&made.trace, "quantization"));
        finish(&made);
    }
}

/* Heads that are folded into one axis: the size of one follows from the factor where it divides the axis. */
static void test_folded_heads(void **state)
{
    (void)state;
    for (int inverse = 0; inverse < 2; inverse++) {
        struct made made;
        start(&made, TOKENS * 120);
        for (size_t i = 0; i < TOKENS * 120; i++)
            made.wrong[i] = (float)((double)made.right[i] * (inverse ? 1 / sqrt(20) : sqrt(20)));
        diagnose(&made, "model.layers.1.self_attn.q_proj", TOKENS, 120);
        assert_first(&made.trace, "scaled",
                     inverse ? "which is 1/sqrt(20), from a head_dim of 20"
                             : "which is sqrt(20), from a head_dim of 20");
        finish(&made);
        start(&made, TOKENS * 120);
        for (size_t i = 0; i < TOKENS * 120; i++) /* no size of a head has such a root */
            made.wrong[i] = made.right[i] * 4.3f;
        diagnose(&made, "model.layers.1.self_attn.q_proj", TOKENS, 120);
        assert_first(&made.trace, "scaled", "every element is 4.3 times what it should be");
        assert_null(strstr(made.trace.diagnosis.causes[0].summary, "which is"));
        finish(&made);
    }
}

/* A kernel that takes the rows of one head for contiguous: head h of token t is written behind head h - 1 of token t
 * + 1.
 */
static void test_strided_heads(void **state)
{
    static const struct {
        size_t token_step, head_step;
        const char *words;
    } cases[] = {{1, 1, "tokens 1 and heads 1 apart instead of tokens 5 and heads 1 apart; 84 of 110 heads"},
                 {10, 2, "tokens 10 and heads 2 apart instead of tokens 5 and heads 1 apart; 55 of 110 heads"}};
    (void)state;
    for (size_t c = 0; c < 2; c++) {
        struct made made;
        start(&made, TOKENS * WIDTH);
        memset(made.wrong, 0, TOKENS * WIDTH * sizeof *made.wrong);
        for (size_t head = 0; head < HEADS; head++)
            for (size_t t = 0; t < TOKENS; t++) {
                size_t place = t * cases[c].token_step + head * cases[c].head_step;
                if (place < TOKENS * HEADS)
                    memcpy(made.wrong + place * SIZE, made.right + (t * HEADS + head) * SIZE,
                           SIZE * sizeof *made.wrong);
            }
        trace_diagnose(&made.trace, trace_add(&made.trace, "layer_0_attn_q_normed", made.right, made.wrong,
                                              SHAPE(TOKENS, HEADS, SIZE)));
        assert_first(&made.trace, "permuted", cases[c].words);
        finish(&made);
    }
}

/* Heads of zeros alone are no strides. */
static void test_empty_heads(void **state)
{
    struct made made;
    (void)state;
    start(&made, TOKENS * WIDTH);
    memcpy(made.wrong, made.right, TOKENS * WIDTH * sizeof *made.wrong);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        made.wrong[i] = i % WIDTH / SIZE == 3 ? 0 : made.wrong[i];
    trace_diagnose(&made.trace,
                   trace_add(&made.trace, "layer_0_attn_q_normed", made.right, made.wrong, SHAPE(TOKENS, HEADS, SIZE)));
    assert_first(&made.trace, "zeros", "zero in head 3");
    assert_null(trace_cause(&made.trace, "permuted"));
    finish(&made);
}

/* A LayerNorm of which nothing but weight and bias is left; and with those of another layer of the file. */
static void norm(const float *x, const float *weight, const float *bias, bool normalized, float *out)
{
    for (size_t t = 0; t < TOKENS; t++) {
        double mean = 0, square = 1e-5;
        for (size_t i = 0; i < WIDTH; i++)
            mean += (double)x[t * WIDTH + i] / WIDTH;
        for (size_t i = 0; i < WIDTH; i++)
            square += ((double)x[t * WIDTH + i] - mean) * ((double)x[t * WIDTH + i] - mean) / WIDTH;
        for (size_t i = 0; i < WIDTH; i++) {
            double y = (double)x[t * WIDTH + i];
            y = normalized ? (y - mean) / sqrt(square) : y;
            out[t * WIDTH + i] = (float)(y * (double)weight[i] + (double)bias[i]);
        }
    }
}

static void test_norms(void **state)
{
    static const double noises[] = {0, 2e-3};
    (void)state;
    for (int other = 0; other < 2; other++)
        for (size_t n = 0; n < 2; n++) {
            struct made made;
            struct ts_error error;
            struct ts_bundle *file = ts_bundle_new("weights");
            float *vectors[2][2];
            start(&made, TOKENS * WIDTH);
            for (int layer = 0; layer < 2; layer++) {
                vectors[layer][0] = made_values(WIDTH);
                vectors[layer][1] = made_values(WIDTH);
                for (size_t i = 0; i < WIDTH; i++)
                    vectors[layer][0][i] = 1 + 0.3f * vectors[layer][0][i];
                made_add(file, made_name("h.%d.ln_1.weight", layer), vectors[layer][0], SHAPE(WIDTH));
                made_add(file, made_name("h.%d.ln_1.bias", layer), vectors[layer][1], SHAPE(WIDTH));
            }
            for (size_t i = 0; i < TOKENS * WIDTH; i++)
                made.x[i] = made.x[i] * (1 + 0.1f * (float)(i / WIDTH)) + 0.7f;
            if (ts_evidence_make(file, NULL, NULL, &made.trace.evidence, &error) != TS_OK)
                fail_msg("%s", error.message);
            norm(made.x, vectors[0][0], vectors[0][1], true, made.right);
            norm(made.x, vectors[other][0], vectors[other][1], other, made.wrong);
            shake(made.wrong, made.wrong, TOKENS * WIDTH, noises[n]);
            trace_add(&made.trace, "transformer.drop", made.x, made.x, SHAPE(TOKENS, WIDTH));
            diagnose(&made, "transformer.h.0.ln_1", TOKENS, WIDTH);
            if (other)
                assert_first(&made.trace, "channel-scaled",
                             "the candidate uses h.1.ln_1.weight and h.1.ln_1.bias, not h.0.ln_1");
            else
                assert_first(&made.trace, "row-scaled", "does not normalize");
            finish(&made);
            for (int layer = 0; layer < 2; layer++) {
                free(vectors[layer][0]);
                free(vectors[layer][1]);
            }
        }
}

/* An adaptive norm follows its own modulation: what came in with that is no cause. */
static void test_adaptive_norm_is_silent(void **state)
{
    static const double noises[] = {2e-3, 2e-2};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        struct made made;
        float *modulation[2], weights[WIDTH];
        start(&made, TOKENS * WIDTH);
        modulation[0] = made_values(2 * WIDTH);
        modulation[1] = made_values(2 * WIDTH);
        shake(modulation[0], modulation[1], 2 * WIDTH, noises[n]);
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < WIDTH; i++)
                weights[i] = 1 + modulation[side][WIDTH + i];
            norm(made.x, weights, modulation[side], true, side ? made.wrong : made.right);
        }
        trace_add(&made.trace, "x_embedder", made.x, made.x, SHAPE(TOKENS, WIDTH));
        trace_add(&made.trace, "final_layer.adaLN_modulation", modulation[0], modulation[1], SHAPE(1, 2 * WIDTH));
        diagnose(&made, "final_layer.norm", TOKENS, WIDTH);
        assert_silent(&made.trace);
        finish(&made);
        free(modulation[0]);
        free(modulation[1]);
    }
}

/* The right chunks of its modulation, applied in another way. */
static void test_adaptive_norm_applied_otherwise(void **state)
{
    static const struct {
        float one, scale, shift;
        const char *words;
    } ways[] = {
        {1, 1, -1, "subtracts the shift of an adaptive norm: chunk 0 of final_layer.adaLN_modulation"},
        {1, -1, 1, "subtracts the scale of an adaptive norm: chunk 1"},
        {2, 1, 1, "adds the \"1 +\" of an adaptive norm twice"},
        {1, 1, 0, "does not apply the shift of an adaptive norm"},
        {1, 0, 1, "does not apply the scale of an adaptive norm"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof ways / sizeof *ways; n++) {
        struct made made;
        float *modulation, weights[2][WIDTH], shifts[WIDTH];
        start(&made, (size_t)TOKENS * WIDTH);
        modulation = made_values(2 * WIDTH);
        for (size_t i = 0; i < WIDTH; i++) {
            weights[0][i] = 1 + modulation[WIDTH + i];
            weights[1][i] = ways[n].one + ways[n].scale * modulation[WIDTH + i];
            shifts[i] = ways[n].shift * modulation[i];
        }
        norm(made.x, weights[0], modulation, true, made.right);
        norm(made.x, weights[1], shifts, true, made.wrong);
        trace_add(&made.trace, "x_embedder", made.x, made.x, SHAPE(TOKENS, WIDTH));
        trace_add(&made.trace, "final_layer.adaLN_modulation", modulation, modulation, SHAPE(1, 2 * WIDTH));
        diagnose(&made, "final_layer.norm", TOKENS, WIDTH);
        assert_first(&made.trace, "modulation", ways[n].words);
        finish(&made);
        free(modulation);
    }
}

/* Queries cut out of a fused projection by head: the pieces are heads, not parts of them. */
static void test_pieces(void **state)
{
    struct made made;
    (void)state;
    start(&made, 3 * TOKENS * WIDTH);
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        size_t head = i % WIDTH / SIZE;
        const float *row = made.x + i / WIDTH * 3 * WIDTH;
        made.right[i] = row[i % WIDTH];
        made.wrong[i] = row[3 * head * SIZE + i % SIZE];
    }
    trace_add(&made.trace, "transformer.h.1.attn.c_attn", made.x, made.x, SHAPE(TOKENS, 3 * WIDTH));
    trace_diagnose(&made.trace, trace_add(&made.trace, "transformer.h.1.attn.q", made.right, made.wrong,
                                          SHAPE(TOKENS, HEADS, SIZE)));
    assert_first(&made.trace, "permuted", "pieces of 12 channels 0, 3, 6, 9, 12 instead of 0, 1, 2, 3, 4");
    finish(&made);
}

/* Of a large weight some rows are looked at: where the zeros begin between two of them is not claimed. */
static void test_rows_between(void **state)
{
    struct made made;
    const struct ts_cause *cause;
    (void)state;
    start(&made, (size_t)LONG * WIDE);
    memcpy(made.wrong, made.right, (size_t)LONG * WIDE * sizeof *made.wrong);
    memset(made.wrong + (size_t)1777 * WIDE, 0, (size_t)(LONG - 1777) * WIDE * sizeof *made.wrong);
    diagnose(&made, "model.layers.1.mlp.up_proj.weight", LONG, WIDE);
    assert_first(&made.trace, "zeros", "to 2999 (");
    cause = &made.trace.diagnosis.causes[0];
    if (!strstr(cause->summary, "rows 1777 to") && !strstr(cause->summary, "rows about "))
        fail_msg("%s", cause->summary);
    finish(&made);
}

/* Factors that are one to four digits are not one: "from 0.99996 to 0.99999", not "from 1 to 1". */
static void test_factors_near_one(void **state)
{
    struct made made;
    const char *words;
    (void)state;
    start(&made, (size_t)TOKENS * WIDTH);
    for (size_t i = 0; i < (size_t)TOKENS * WIDTH; i++)
        made.wrong[i] = (float)((double)made.right[i] * (1 - 1e-5 * (double)(2 + i / WIDTH % 5)));
    diagnose(&made, "model.layers.0.mlp.down_proj", TOKENS, WIDTH);
    assert_first(&made.trace, "row-scaled", "each token has its own factor");
    words = made.trace.diagnosis.causes[0].summary;
    if (!strstr(words, "from 0.9999") || strstr(words, "to 1"))
        fail_msg("%s", words);
    finish(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_softcap),
        cmocka_unit_test(test_one_softcap),
        cmocka_unit_test(test_exponents),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_no_blocks),
        cmocka_unit_test(test_folded_heads),
        cmocka_unit_test(test_strided_heads),
        cmocka_unit_test(test_empty_heads),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_adaptive_norm_is_silent),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_rows_between),
        cmocka_unit_test(test_factors_near_one),
        cmocka_unit_test(test_adaptive_norm_applied_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
