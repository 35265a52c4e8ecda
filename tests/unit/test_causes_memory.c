/* Memory: NaN and infinities, zeros, what was there before, elements that were hit. */
#include "base/number.h"
#include "test_causes.h"

#define EACH for (size_t i = 0; i < count; i++)
#define WIDE hidden(side->size)

static void one_nan(struct side *side, double *values, size_t count)
{
    (void)count;
    values[3 * WIDE + side->size->head + 5] = NAN;
}

static void nan_from_before(struct side *side, double *values, size_t count)
{
    side->points[0].values[3 * WIDE + 7] = (double)INFINITY;
    one_nan(side, values, count);
}

/* A norm without an epsilon. */
static void nan_of_zeros(struct side *side, double *values, size_t count)
{
    (void)count;
    for (size_t i = 2 * WIDE; i < 3 * WIDE; i++)
        values[i] = NAN;
}

static void nan_rows(struct side *side, double *values, size_t count)
{
    size_t lane = side->size->tokens;
    EACH if (i / lane == 2 * side->size->heads) values[i] = NAN;
}

static void one_inf(struct side *side, double *values, size_t count)
{
    (void)count;
    values[4 * WIDE + side->size->head] = -(double)INFINITY;
}

static void nan_beside_inf(struct side *side, double *values, size_t count)
{
    one_inf(side, values, count);
    one_nan(side, values, count);
}

static void overflow(struct side *side, double *values, size_t count)
{
    size_t beyond = 0;
    EACH
    {
        values[i] = round_to(values[i], F16);
        beyond += isinf(values[i]) != 0;
    }
    side->told[0] = (double)beyond;
    side->told[1] = (double)count;
}

static void zero_head(struct side *side, double *values, size_t count)
{
    side->told[0] = (double)side->size->heads - 1;
    EACH values[i] = i % WIDE / side->size->head + 1 == side->size->heads ? 0 : values[i];
}

static void zero_tail(struct side *side, double *values, size_t count)
{
    side->told[0] = (double)(side->size->tokens - 2);
    side->told[1] = (double)((WIDE - 18) / side->size->head);
    side->told[2] = (double)((WIDE - 18) % side->size->head);
    side->told[3] = (double)(WIDE + 18);
    for (size_t i = count - WIDE - 18; i < count; i++)
        values[i] = 0;
}

static void zero_all(struct side *side, double *values, size_t count)
{
    (void)side;
    memset(values, 0, count * sizeof *values);
}

/* A head's rows of the weight are zero, its bias is there. */
static void only_a_bias(struct side *side, double *values, size_t count)
{
    size_t from = WIDE - side->size->head;
    side->told[0] = (double)side->size->heads - 1;
    EACH values[i] = i % WIDE >= from ? 0.25 + 0.01 * (double)(i % WIDE - from) : values[i];
}

static void filled_half(struct side *side, double *values, size_t count)
{
    (void)side;
    for (size_t i = count / 2; i < count; i++)
        values[i] = (double)ts_float_from_bits(0xc15a0000u);
}

/* What some allocators fill with, from within a row on. */
static void filled_tail(struct side *side, double *values, size_t count)
{
    side->told[0] = (double)(side->size->tokens - 7);
    side->told[1] = (double)((WIDE - 5) / side->size->head);
    side->told[2] = (double)((WIDE - 5) % side->size->head);
    side->told[3] = (double)(6 * WIDE + 5);
    for (size_t i = count - 6 * WIDE - 5; i < count; i++)
        values[i] = (double)ts_float_from_bits(0xcdcdcdcdu);
}

/* Whatever the memory held. */
static void any_bits(struct side *side, double *values, size_t count)
{
    uint32_t bits = 12345;
    (void)side;
    for (size_t i = count / 2; i < count; i++) {
        bits = bits * 1664525u + 1013904223u;
        values[i] = (double)ts_float_from_bits(bits ^ bits >> 15);
    }
    values[count - 1] = NAN;
}

static void one_value(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = 3;
}

static void zero_rows(struct side *side, double *values, size_t count)
{
    EACH values[i] = i / WIDE >= 8 ? 0 : values[i];
}

static void old_channels(struct side *side, double *values, size_t count)
{
    const double *before = value_of(side, "x");
    size_t from = WIDE - side->size->head;
    side->told[0] = (double)side->size->heads - 1;
    side->told[1] = (double)(side->size->head * side->size->tokens);
    EACH values[i] = i % WIDE >= from ? before[i] : values[i];
}

static void old_tokens(struct side *side, double *values, size_t count)
{
    const double *before = value_of(side, "x");
    EACH values[i] = i / WIDE >= 8 ? before[i] : values[i];
}

static void repeated_token(struct side *side, double *values, size_t count)
{
    (void)count;
    memcpy(values + 6 * WIDE, values + 5 * WIDE, WIDE * sizeof *values);
}

static void first_token_again(struct side *side, double *values, size_t count)
{
    (void)count;
    memcpy(values + 4 * WIDE, values, WIDE * sizeof *values);
    memcpy(values + 7 * WIDE, values, WIDE * sizeof *values);
}

/* One bit of the number as it is stored. */
static void flipped_bit(struct side *side, double *values, size_t count)
{
    size_t at = 6 * WIDE + 3, bit = (size_t)side->row->number;
    uint32_t bits = ts_float_bits((float)values[at]) ^ (uint32_t)1 << (bit + (side->precision == BF16 ? 16 : 0));
    (void)count;
    side->told[0] = values[at];
    values[at] = side->precision == F16 ? (double)ts_f16_to_float((uint16_t)(f16_code(values[at]) ^ 1u << bit))
                                        : (double)ts_float_from_bits(bits);
}

/* Two bits of one number. */
static void flipped_bits(struct side *side, double *values, size_t count)
{
    size_t at = 6 * WIDE + 3;
    (void)count;
    values[at] = (double)ts_float_from_bits(ts_float_bits((float)values[at]) ^ 0x00500000u);
}

static void three_wrong(struct side *side, double *values, size_t count)
{
    (void)count;
    values[2 * WIDE + 7] = 9;
    values[5 * WIDE + 1] = -11;
    values[9 * WIDE + 13] = 7.5;
}

#define Q .at = "q_proj", .made = make_two
#define W .at = "model.layers.0.self_attn.q_proj.weight", .made = make_checkpoint

static const struct row rows[] = {
    {"nan", "one", Q, .plant = one_nan, .words = {"1 of ", "token 3, head 1, channel 5", "it starts here"},
     .near = "inf sparse", .beside = "rounding"},
    {"nan", "in a weight", W, .plant = one_nan, .words = {"1 of ", "row 3, column "}, .check = "how the file was made",
     .near = "inf sparse", .beside = "rounding"},
    {"nan", "from an infinity before", Q, .plant = nan_from_before,
     .words = {"token 3, head 1, channel 5", "x before it already holds an infinity"}, .near = "inf sparse",
     .beside = "rounding"},
    {"nan", "zero by zero", .at = "layer_0_attn_norm_output", .made = make_layer, .plant = nan_of_zeros,
     .reference = {.zero_token = true}, .candidate = {.zero_token = true},
     .words = {"the first at token 2, channel 0", "all zero there", "0 by 0"}, .near = "rows zeros"},
    {"nan", "whole rows", .at = "layer_0_attn_probs", .made = make_layer, .plant = nan_rows,
     .words = {"{tokens} of ", "token 2, head 0", "whole rows"}, .near = "rows softmax mask"},
    {"inf", "NaN beside it", Q, .plant = nan_beside_inf, .words = {"token 4, head 1, channel 0"}, .near = "nan sparse",
     .beside = "nan channels rows heads rounding"},
    {"inf", "one", Q, .plant = one_inf, .words = {"1 of ", "token 4, head 1, channel 0"},
     .near = "nan sparse mask clamped", .beside = "channels rows heads rounding"},
    {"inf", "overflow of f16", .at = "y", .made = make_large, .plant = overflow, .clean = true, .wide = true,
     .words = {"{0} of {1} elements", "65504, the largest f16"}, .near = "clamped nan", .beside = "rounding channels"},
    {"zeros", "a head", Q, .plant = zero_head, .words = {"zero in head {0}"},
     .near = "heads channels unwritten scaled"},
    {"zeros", "the end of a weight", W, .plant = zero_rows, .words = {"zero in rows 8 to "},
     .check = "whether this part was loaded", .near = "rows unwritten stale"},
    {"zeros", "the end", Q, .plant = zero_tail,
     .words = {"zero in everything from token {0}, head {1}, channel {2} on ({3} of"}, .near = "rows unwritten stale"},
    {"zeros", "all", Q, .plant = zero_all, .words = {"every element of the candidate is zero"},
     .near = "scaled unrelated unwritten"},
    {"zeros", "but for a bias", Q, .plant = only_a_bias,
     .words = {"head {0}: one value per channel, the same in every token"}, .check = "only the bias is left",
     .near = "affine offset heads term-missing unwritten"},
    {"unwritten", "the second half", Q, .plant = filled_half, .words = {"-13.625 (bits 0xc15a0000)"},
     .near = "rows zeros stale inf"},
    {"unwritten", "a tail", Q, .plant = filled_tail, .clean = true, .wide = true,
     .words = {"everything from token {0}, head {1}, channel {2} on: {3} elements", "(bits 0xcdcdcdcd)"},
     .near = "centering offset rows"},
    {"unwritten", "any bits", Q, .plant = any_bits, .clean = true, .wide = true,
     .words = {"hold bits that nothing computed: NaN or infinities, and numbers from"}, .near = "nan inf",
     .beside = "rows channels sparse heads"},
    {"unwritten", "all", Q, .plant = one_value, .words = {"every element of the candidate is 3 "},
     .near = "offset zeros affine"},
    {"stale", "channels", Q, .plant = old_channels, .words = {"head {0}: {1} elements still hold x"},
     .near = "heads channels swapped-with"},
    {"stale", "tokens", Q, .plant = old_tokens, .words = {"still hold x"}, .near = "rows swapped-with skipped-op"},
    {"stale", "a token again", Q, .plant = repeated_token, .words = {"token 6 repeats the token before it"},
     .near = "rows shifted permuted"},
    {"stale", "the first token again", Q, .plant = first_token_again,
     .words = {"tokens 4, 7 repeat token 0, the first one"}, .near = "rows", .beside = "rows"},
    {"sparse", "a bit of the exponent", Q, .plant = flipped_bit, .number = 27,
     .words = {"1 of ", "token 6, head 0, channel 3", "bit 27"}, .check = "one bit", .clean = true,
     .near = "rows nan inf rounding", .beside = "channels rows heads"},
    {"sparse", "two bits", Q, .plant = flipped_bits, .words = {"1 of ", "token 6, head 0, channel 3"}, .clean = true,
     .near = "rows rounding", .beside = "channels rows heads"},
    {"sparse", "a weight's", W, .plant = flipped_bits, .words = {"1 of ", "row 6, column 3"},
     .check = "how the file was written", .clean = true, .near = "rounding", .beside = "channels rows heads"},
    {"sparse", "the sign", Q, .plant = flipped_bit, .number = 31, .words = {"xor 0x80000000: bit 31"}, .clean = true,
     .near = "sign-flipped", .beside = "channels rows heads"},
    {"sparse", "a bit, stored in 16", Q, .plant = flipped_bit, .number = 13,
     .words = {"token 6, head 0, channel 3", "xor 0x2000: bit 13"}, .near = "rows", .beside = "channels rows heads"},
    {"sparse", "three", Q, .plant = three_wrong,
     .words = {"3 of ", "token 2, head 0, channel 7: 9 instead of", "-11 instead of"}, .check = "a race",
     .near = "rows channels unrelated", .beside = "channels heads rows"},
};

const struct table causes_memory = TABLE("memory", rows);
