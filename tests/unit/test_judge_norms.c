/* Norms as the judge learns them: from rows that tell, and with weights that a checkpoint stored in sixteen bits. */
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 64, TOTAL = TOKENS * WIDTH };

/* `added` to the weights that the file has: some models store them without their 1. */
static void rms_norm(const float *x, const float *weights, double added, float *out)
{
    for (size_t row = 0; row < TOKENS; row++) {
        double square = 0;
        for (size_t i = 0; i < WIDTH; i++)
            square += (double)x[row * WIDTH + i] * (double)x[row * WIDTH + i];
        for (size_t i = 0; i < WIDTH; i++)
            out[row * WIDTH + i] =
                (float)((double)x[row * WIDTH + i] / sqrt(square / WIDTH + 1e-6) * (added + (double)weights[i]));
    }
}

static float to_eleven_bits(float value)
{
    int exponent;
    double mantissa = frexp((double)value, &exponent);
    return (float)ldexp(nearbyint(mantissa * 2048) / 2048, exponent);
}

enum stored { AS_THEY_ARE, IN_BF16, IN_F16, ROUNDED_TWICE, ONE_WRONG, ALL_WRONG };

static float stored_as(enum stored stored, size_t channel, float weight)
{
    switch (stored) {
    case IN_BF16:
        return to_bf16(weight);
    case IN_F16:
        return to_eleven_bits(weight);
    case ROUNDED_TWICE: /* numbers of bf16, but not those next to the weights */
        return to_bf16(weight * (channel % 2 ? 1.008f : 0.992f));
    case ONE_WRONG:
        return to_bf16(weight) * (channel == 5 ? 1.03125f : 1);
    case ALL_WRONG: /* off by as much as bf16 is, and no number of it */
        return weight * (float)(1 + 0.003 * dice_number());
    default:
        return weight;
    }
}

static void judge_weights(enum stored stored, double added, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *weights = made_values(WIDTH), others[WIDTH], one[TOTAL], other[TOTAL];
    for (size_t i = 0; i < WIDTH; i++) {
        weights[i] = (float)exp(0.4 * (double)weights[i]) - (float)added;
        others[i] = stored_as(stored, i, weights[i]);
    }
    weights[7] = 1.003f - (float)added; /* a step is smaller below 1 than above, where bf16 puts it */
    others[7] = stored == IN_BF16 && added == 0 ? 1 : stored_as(stored, 7, weights[7]);
    rms_norm(x, weights, added, one);
    rms_norm(x, others, added, other);
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "norm", one, other, SHAPE(TOKENS, WIDTH));
    expect_first(&judged, expected);
    free(x);
    free(weights);
}

static void test_weights_stored_in_sixteen_bits(void **state)
{
    (void)state;
    judge_weights(AS_THEY_ARE, 0, SIZE_MAX);
    judge_weights(IN_BF16, 0, SIZE_MAX);
    judge_weights(IN_BF16, 1, SIZE_MAX);
    judge_weights(IN_F16, 0, SIZE_MAX);
    judge_weights(ROUNDED_TWICE, 0, 1);
    judge_weights(ONE_WRONG, 0, 1);
    judge_weights(ALL_WRONG, 0, 1);
}

/* A prompt of a few tokens over and over: the rows of a product say no more than those few. */
static void judge_repeated(size_t different, double factor, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *weights = made_values(WIDTH * WIDTH);
    float one[TOTAL], other[TOTAL];
    for (size_t row = different; row < TOKENS; row++)
        memcpy(x + row * WIDTH, x + row % different * WIDTH, WIDTH * sizeof *x);
    matmul(x, weights, TOKENS, WIDTH, WIDTH, one);
    for (size_t i = 0; i < WIDTH * WIDTH; i++) /* the same product in another order, as f32 adds up */
        weights[i] *= (float)(1 + 1e-6 * dice_number());
    matmul(x, weights, TOKENS, WIDTH, WIDTH, other);
    for (size_t i = 0; i < TOTAL; i++)
        other[i] *= (float)factor;
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0.norm", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.v_proj", one, other, SHAPE(TOKENS, WIDTH));
    expect_first(&judged, expected);
    free(weights);
    free(x);
}

static void test_one_token_over_and_over(void **state)
{
    (void)state;
    judge_repeated(1, 1, SIZE_MAX);
    judge_repeated(3, 1, SIZE_MAX);
    judge_repeated(TOKENS, 1, SIZE_MAX);
    judge_repeated(1, 1.05, 1); /* and a factor is found without a norm */
    judge_repeated(3, 1.05, 1);
}

/* A layer norm with a bias: two unknowns for each channel, so that five tokens leave three equations to spare. */
static void judge_few_tokens(size_t tokens, bool biased, size_t expected)
{
    struct judged judged;
    float *x = made_values(tokens * WIDTH), *weights = made_values(WIDTH), *bias = made_values(WIDTH);
    float one[TOTAL], other[TOTAL];
    for (size_t row = 0; row < tokens; row++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < WIDTH; i++)
            mean += (double)x[row * WIDTH + i] / WIDTH;
        for (size_t i = 0; i < WIDTH; i++)
            square += pow((double)x[row * WIDTH + i] - mean, 2) / WIDTH;
        for (size_t i = 0; i < WIDTH; i++) {
            double value = ((double)x[row * WIDTH + i] - mean) / sqrt(square + 1e-5) * (1 + 0.2 * (double)weights[i]);
            one[row * WIDTH + i] = (float)(value + 0.1 * (double)bias[i]);
            other[row * WIDTH + i] = (float)(value + (biased ? 0.1 : 0) * (double)bias[i]);
        }
    }
    shake(other, other, tokens * WIDTH, 1e-7);
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0", x, x, SHAPE(tokens, WIDTH));
    trace_add(&judged.trace, "norm", one, other, SHAPE(tokens, WIDTH));
    judged_run(&judged);
    assert_non_null(judged.judgement.verdicts[1].operation);
    assert_string_equal(judged.judgement.verdicts[1].operation, "layer norm(layers.0)");
    ts_judgement_release(&judged.judgement);
    expect_first(&judged, expected);
    free(x);
    free(weights);
    free(bias);
}

static void test_a_bias_learnt_from_five_tokens(void **state)
{
    (void)state;
    judge_few_tokens(5, true, SIZE_MAX);
    judge_few_tokens(5, false, 1);
    judge_few_tokens(8, false, 1);
}

/* A norm whose sums were added up in another order has another factor, by less than the sum of so many numbers is
 * worth; what is more than that is no rounding. */
static void judge_norm_factor(double by, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *weights = made_values(WIDTH), one[TOTAL], other[TOTAL];
    rms_norm(x, weights, 0, one);
    for (size_t i = 0; i < TOTAL; i++)
        other[i] = (float)((double)one[i] * (1 + by));
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "norm", one, other, SHAPE(TOKENS, WIDTH));
    expect_first(&judged, expected);
    free(x);
    free(weights);
}

static void test_the_factor_of_a_norm(void **state)
{
    (void)state;
    judge_norm_factor(1.5e-7, SIZE_MAX);
    judge_norm_factor(1e-6, 1);
}

/* A product of one number that is far larger than all others: where bf16 rounds that, what comes out errs by the same
 * factor. One that is larger than a rounding is none. */
static void judge_large_number(double by, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *y = made_values(TOTAL), other[TOTAL];
    shake(y, other, TOTAL, 0.0014);
    for (size_t i = 0; i < TOTAL; i++)
        other[i] += (float)(by * (double)y[i]);
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0.norm", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.q_proj", y, other, SHAPE(TOKENS, WIDTH));
    expect_first(&judged, expected);
    free(x);
    free(y);
}

static void test_a_large_number_that_was_rounded(void **state)
{
    (void)state;
    judge_large_number(0.0007, SIZE_MAX);
    judge_large_number(0.004, 1);
}

/* Outputs of layers, and a last norm whose scale and shift come out of a product that was not captured. Both err as
 * coarse weights make them: `added` in what each layer adds, `made` in the scale and shift. */
static void judge_modulated(double added, double made, size_t expected)
{
    struct judged judged;
    float *x, *scale, *shift, x_b[TOTAL], out[2][TOTAL], scale_b[WIDTH], shift_b[WIDTH];
    trace_start(&judged.trace);
    x = made_values(TOTAL);
    scale = made_values(WIDTH);
    shift = made_values(WIDTH);
    memcpy(x_b, x, sizeof x_b);
    shake(scale, scale_b, WIDTH, made);
    shake(shift, shift_b, WIDTH, made);
    trace_add(&judged.trace, "embed", x, x_b, SHAPE(TOKENS, WIDTH));
    for (int layer = 0; layer < 4; layer++) {
        float *update = made_values(TOTAL), update_b[TOTAL];
        shake(update, update_b, TOTAL, added);
        for (size_t i = 0; i < TOTAL; i++) {
            x[i] += update[i];
            x_b[i] += update_b[i];
        }
        trace_add(&judged.trace, made_name("blocks.%d", layer), x, x_b, SHAPE(TOKENS, WIDTH));
        free(update);
    }
    for (int side = 0; side < 2; side++) {
        normalize(side ? x_b : x, TOKENS, WIDTH, out[side]);
        for (size_t i = 0; i < TOTAL; i++)
            out[side][i] = (float)((double)out[side][i] * (1 + 0.5 * (double)(side ? scale_b : scale)[i % WIDTH]) +
                                   (double)(side ? shift_b : shift)[i % WIDTH]);
    }
    trace_add(&judged.trace, "norm_out", out[0], out[1], SHAPE(TOKENS, WIDTH));
    free(x);
    free(scale);
    free(shift);
    expect_first(&judged, expected);
}

static void test_a_modulation_that_was_not_captured(void **state)
{
    (void)state;
    judge_modulated(0.1, 0.1, SIZE_MAX);
    judge_modulated(0.03, 0.03, SIZE_MAX);
    judge_modulated(0.03, 0.5, 5);
    judge_modulated(1e-6, 0.1, 5);
}

/* Two blocks that scale and shift what a norm leaves. The modulation comes out of coarse products (`coarse`), and was
 * captured in the second block alone. In the first, the candidate's scale is wrong by `wrong` besides. */
static void judge_blocks(double coarse, double wrong, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (int block = 0; block < 2; block++) {
        float *x = made_values(TOTAL), *modulation = made_values(2 * WIDTH), own[2 * WIDTH], normed[TOTAL];
        float made[2][TOTAL];
        err(modulation, own, 2 * WIDTH, coarse);
        normalize(x, TOKENS, WIDTH, normed);
        for (size_t i = 0; i < TOTAL; i++) {
            const size_t at = i % WIDTH;
            made[0][i] = normed[i] * (1 + modulation[at]) + modulation[WIDTH + at];
            made[1][i] = normed[i] * (1 + own[at] + (block ? 0 : (float)wrong)) + own[WIDTH + at];
        }
        if (block)
            trace_add(&judged.trace, "blocks.1.modulation", modulation, own, SHAPE(1, 2 * WIDTH));
        trace_add(&judged.trace, made_name("blocks.%d.normed", block), normed, normed, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("blocks.%d.modulated", block), made[0], made[1], SHAPE(TOKENS, WIDTH));
        free(x);
        free(modulation);
    }
    expect_first(&judged, expected);
}

static void test_a_modulation_that_another_block_shows(void **state)
{
    (void)state;
    judge_blocks(0.02, 0, SIZE_MAX);
    judge_blocks(0.02, 0.5, 1);
    judge_blocks(1e-7, 0.02, 1);
}

/* A projection that errs by `product`, and a norm that is scaled and shifted by what nobody captured and errs by
 * `made`. */
static void judge_unseen_modulation(const char *name, double product, double made, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *modulation = made_values(2 * WIDTH), own[2 * WIDTH], normed[TOTAL], out[2][TOTAL];
    trace_start(&judged.trace);
    err(modulation, own, 2 * WIDTH, made);
    normalize(x, TOKENS, WIDTH, normed);
    for (size_t i = 0; i < TOTAL; i++) {
        const size_t at = i % WIDTH;
        out[0][i] = normed[i] * (1 + modulation[at]) + modulation[WIDTH + at];
        out[1][i] = normed[i] * (1 + own[at]) + own[WIDTH + at];
    }
    for (int i = 0; i < 3; i++) {
        float *projected = made_values(TOTAL), found[TOTAL];
        err(projected, found, TOTAL, product);
        trace_add(&judged.trace, made_name("block_0_proj_%d", i), projected, found, SHAPE(TOKENS, WIDTH));
        free(projected);
    }
    trace_add(&judged.trace, "block_0_normed", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, name, out[0], out[1], SHAPE(TOKENS, WIDTH));
    expect_first(&judged, expected);
    free(x);
    free(modulation);
}

static void test_a_modulation_that_nobody_captured(void **state)
{
    (void)state;
    judge_unseen_modulation("block_0_modulated", 0.08, 0.07, SIZE_MAX);
    judge_unseen_modulation("block_0_modulated", 0.08, 0.5, 4);
    judge_unseen_modulation("block_0_modulated", 1e-3, 0.07, 4);
    judge_unseen_modulation("layer_0_attn_norm", 0.08, 0.07, 4);
}

/* Blocks with captured modulations, some of coarse products and some not, and a last norm whose scale and shift nobody
 * captured and that err by `made`. */
static void judge_last_norm(const double *coarse, double made, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *last = made_values(2 * WIDTH), last_b[2 * WIDTH], normed[TOTAL], out[2][TOTAL];
    trace_start(&judged.trace);
    err(last, last_b, 2 * WIDTH, made);
    normalize(x, TOKENS, WIDTH, normed);
    for (int block = 0; block < 3; block++) {
        float *modulation = made_values(2 * WIDTH), own[2 * WIDTH];
        err(modulation, own, 2 * WIDTH, coarse[block]);
        for (size_t i = 0; i < TOTAL; i++) {
            const size_t at = i % WIDTH;
            out[0][i] = normed[i] * (1 + modulation[at]) + modulation[WIDTH + at];
            out[1][i] = normed[i] * (1 + own[at]) + own[WIDTH + at];
        }
        trace_add(&judged.trace, made_name("block_%d_modulation", block), modulation, own, SHAPE(1, 2 * WIDTH));
        trace_add(&judged.trace, made_name("block_%d_normed", block), normed, normed, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("block_%d_modulated", block), out[0], out[1], SHAPE(TOKENS, WIDTH));
        free(modulation);
    }
    for (size_t i = 0; i < TOTAL; i++) {
        const size_t at = i % WIDTH;
        out[0][i] = normed[i] * (1 + last[at]) + last[WIDTH + at];
        out[1][i] = normed[i] * (1 + last_b[at]) + last_b[WIDTH + at];
    }
    trace_add(&judged.trace, "block_2_block_output", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "norm_out", out[0], out[1], SHAPE(TOKENS, WIDTH));
    expect_first(&judged, expected);
    free(x);
    free(last);
}

static void test_blocks_of_several_precisions(void **state)
{
    (void)state;
    judge_last_norm((const double[]){0.03, 0.03, 0.002}, 0.04, SIZE_MAX);
    judge_last_norm((const double[]){0.03, 0.03, 0.002}, 0.4, 10);
    judge_last_norm((const double[]){0.002, 0.002, 0.002}, 0.04, 10);
    judge_last_norm((const double[]){0.03, 0.03, 0.03}, 0.08, SIZE_MAX);
}

/* Three blocks: each adds what its attention gives to the stream, through a gate, and takes the norm of the sum. In the
 * last one neither the gate nor the sum was captured, what attention gives was or not, and what is added errs. */
static void judge_hidden_sum(bool captured, double error, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), sum[2][TOTAL], normed[2][TOTAL];
    trace_start(&judged.trace);
    trace_add(&judged.trace, "embed", x, x, SHAPE(TOKENS, WIDTH));
    memcpy(sum[0], x, sizeof sum[0]);
    memcpy(sum[1], x, sizeof sum[1]);
    for (int block = 0; block < 3; block++) {
        float *given = made_values(TOTAL), *modulation = made_values(2 * WIDTH), added[TOTAL];
        if (block < 2)
            trace_add(&judged.trace, made_name("block_%d_modulation", block), modulation, modulation,
                      SHAPE(1, 2 * WIDTH));
        err(given, added, TOTAL, block == 2 ? error : 1e-7);
        for (size_t i = 0; i < TOTAL; i++) {
            sum[0][i] += modulation[i % WIDTH] * given[i];
            sum[1][i] += modulation[i % WIDTH] * added[i];
        }
        for (int side = 0; side < 2; side++)
            normalize(sum[side], TOKENS, WIDTH, normed[side]);
        if (block < 2 || captured)
            trace_add(&judged.trace, made_name("block_%d_attn_out", block), given, block < 2 ? added : given,
                      SHAPE(TOKENS, WIDTH));
        if (block < 2)
            trace_add(&judged.trace, made_name("block_%d_attn_residual", block), sum[0], sum[1], SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("block_%d_normed", block), normed[0], normed[1], SHAPE(TOKENS, WIDTH));
        free(given);
        free(modulation);
    }
    free(x);
    expect_first(&judged, expected);
}

static void test_a_sum_that_was_not_captured(void **state)
{
    (void)state;
    judge_hidden_sum(true, 0.3, 10);
    judge_hidden_sum(true, 1e-7, SIZE_MAX);
    judge_hidden_sum(false, 0.3, SIZE_MAX); /* a projection of few bits, for all that is known */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_stored_in_sixteen_bits),
        cmocka_unit_test(test_a_bias_learnt_from_five_tokens),
        cmocka_unit_test(test_one_token_over_and_over),
        cmocka_unit_test(test_the_factor_of_a_norm),
        cmocka_unit_test(test_a_large_number_that_was_rounded),
        cmocka_unit_test(test_a_modulation_that_was_not_captured),
        cmocka_unit_test(test_a_modulation_that_another_block_shows),
        cmocka_unit_test(test_a_modulation_that_nobody_captured),
        cmocka_unit_test(test_blocks_of_several_precisions),
        cmocka_unit_test(test_a_sum_that_was_not_captured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
