/* Element types: bits read as another type, roundings, grids, ranges that end. */
#include "base/number.h"
#include "test_causes.h"

#define EACH for (size_t i = 0; i < count; i++)
#define WIDE hidden(side->size)

static uint16_t bf16_bits(double value)
{
    return (uint16_t)(ts_float_bits((float)round_to(value, BF16)) >> 16);
}

static uint16_t f16_bits(double value)
{
    return f16_code(round_to(value, F16));
}

static void bf16_as_f16(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = (double)ts_f16_to_float(bf16_bits(values[i]));
}

static void f16_as_bf16(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = (double)ts_bf16_to_float(f16_bits(values[i]));
}

static void pairs_as_f32(struct side *side, double *values, size_t count)
{
    bool half = side->row->number > 0;
    double *old = weights(count, 0, 1);
    memcpy(old, values, count * sizeof *old);
    EACH
    {
        size_t from = 2 * i % count;
        uint32_t low = half ? f16_bits(old[from]) : bf16_bits(old[from]);
        uint32_t high = half ? f16_bits(old[from + 1]) : bf16_bits(old[from + 1]);
        values[i] = (double)ts_float_from_bits(high << 16 | low);
    }
}

static void f32_as_pairs(struct side *side, double *values, size_t count)
{
    double *old = weights(count, 0, 1);
    (void)side;
    memcpy(old, values, count * sizeof *old);
    EACH values[i] = (double)ts_bf16_to_float((uint16_t)(ts_float_bits((float)old[i / 2]) >> (i % 2 ? 16 : 0)));
}

static void bytes_reversed(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = (double)ts_bf16_to_float(__builtin_bswap16(bf16_bits(values[i])));
}

static void reversed_beyond_bounds(struct side *side, double *values, size_t count)
{
    (void)side;
    double most = 0;
    EACH most = fmax(most, fabs(values[i]));
    /* bf16 errs by so much, and half of the numbers are small beside that */
    EACH values[i] = (double)ts_bf16_to_float(
        __builtin_bswap16(bf16_bits(values[i] + 0.002 * most * sin(1.7 * (double)i * (double)i))));
}

static void signed_as_unsigned(struct side *side, double *values, size_t count)
{
    double most = 0;
    EACH most = fmax(most, fabs(values[i]));
    side->told[0] = 256 * most / 127;
    EACH
    {
        const double code = nearbyint(values[i] / most * 127);
        values[i] = (code < 0 ? code + 256 : code) * most / 127;
    }
}

static void kept_bits(struct side *side, double *values, size_t count)
{
    EACH
    {
        int exponent;
        double fraction = frexp(values[i], &exponent);
        values[i] =
            ldexp(nearbyint(ldexp(fraction, (int)side->row->number + 1)), exponent - (int)side->row->number - 1);
    }
}

static void cut_bits(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = (double)ts_float_from_bits(ts_float_bits((float)values[i]) & 0xffff0000u);
}

static void to_f16(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = round_to(values[i], F16);
}

/* Blocks with a scale each; levels on each side of zero. */
static void on_a_grid(double *values, size_t count, size_t block, double levels, double *step)
{
    *step = 0;
    for (size_t start = 0; start < count; start += block) {
        double largest = 0;
        for (size_t i = start; i < start + block; i++)
            largest = fmax(largest, fabs(values[i]));
        for (size_t i = start; i < start + block; i++)
            values[i] = nearbyint(values[i] / largest * levels) * (largest / levels);
        *step += largest / levels / ((double)count / (double)block);
    }
}

static void int8_by_token(struct side *side, double *values, size_t count)
{
    on_a_grid(values, count, WIDE, 127, &side->told[0]);
}

static void int4_by_block(struct side *side, double *values, size_t count)
{
    on_a_grid(values, count, 32, 7, &side->told[0]);
}

/* From the least to the largest, with a zero point: sixteen levels. */
static void int4_with_zero_point(struct side *side, double *values, size_t count)
{
    side->told[0] = 0;
    for (size_t start = 0; start < count; start += 32) {
        double low = values[start], high = low, step;
        for (size_t i = start; i < start + 32; i++) {
            low = fmin(low, values[i]);
            high = fmax(high, values[i]);
        }
        step = (high - low) / 15;
        for (size_t i = start; i < start + 32; i++)
            values[i] = fmin(nearbyint(values[i] / step), nearbyint(low / step) + 15) * step;
        side->told[0] += step * 32 / (double)count;
    }
}

static void f32_reversed(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = (double)ts_float_from_bits(__builtin_bswap32(ts_float_bits((float)values[i])));
}

static void int8_by_block(struct side *side, double *values, size_t count)
{
    on_a_grid(values, count, 32, 127, &side->told[0]);
}

/* The nearest number with so many bits behind the first, none finer than `least`; written down without the library. */
static double small_float(double value, int bits, double least)
{
    double size = fabs(value), step;
    int exponent;
    (void)frexp(size, &exponent);
    step = fmax(ldexp(1, exponent - 1 - bits), least);
    return copysign(nearbyint(size / step) * step, value);
}

/* Small floats under a scale for each block, which makes the largest of a block the largest of the type. */
static void on_levels(double *values, size_t count, size_t block, int bits, double largest, double least)
{
    for (size_t start = 0; start < count; start += block) {
        double scale = 0;
        for (size_t i = start; i < start + block; i++)
            scale = fmax(scale, fabs(values[i]) / largest);
        for (size_t i = start; i < start + block; i++)
            values[i] = small_float(values[i] / scale, bits, least) * scale;
    }
}

static void e4m3_for_all(struct side *side, double *values, size_t count)
{
    double largest = 0;
    EACH largest = fmax(largest, fabs(values[i]));
    side->told[0] = largest / 448;
    on_levels(values, count, count, 3, 448, 0x1p-9);
}

static void e5m2_for_all(struct side *side, double *values, size_t count)
{
    (void)side;
    on_levels(values, count, count, 2, 57344, 0x1p-16);
}

static void e4m3_by_row(struct side *side, double *values, size_t count)
{
    on_levels(values, count, WIDE, 3, 448, 0x1p-9);
}

/* Sixteen levels and powers of two as scales. */
static void mxfp4(struct side *side, double *values, size_t count)
{
    (void)side;
    for (size_t start = 0; start < count; start += 32) {
        double largest = 0, scale;
        int exponent;
        for (size_t i = start; i < start + 32; i++)
            largest = fmax(largest, fabs(values[i]));
        (void)frexp(largest, &exponent);
        scale = ldexp(1, exponent - 3);
        for (size_t i = start; i < start + 32; i++)
            values[i] = fmax(-6, fmin(6, small_float(values[i] / scale, 1, 0.5))) * scale;
    }
}

static void int8_by_channel(struct side *side, double *values, size_t count)
{
    for (size_t channel = 0; channel < WIDE; channel++) {
        double largest = 0;
        for (size_t i = channel; i < count; i += WIDE)
            largest = fmax(largest, fabs(values[i]));
        for (size_t i = channel; i < count; i += WIDE)
            values[i] = nearbyint(values[i] / largest * 127) * (largest / 127);
    }
}

static void within_one(struct side *side, double *values, size_t count)
{
    size_t beyond = 0;
    EACH
    {
        beyond += fabs(side->reference->points[1].values[i]) > 1;
        values[i] = fmax(-1, fmin(1, values[i]));
    }
    side->told[0] = (double)beyond;
}

static void at_most_one(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = fmin(1, values[i]);
}

static void at_least_minus_one(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = fmax(-1, values[i]);
}

static void softly(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] = 1.5 * tanh(values[i] / 1.5);
}

#define Q .at = "q_proj", .made = make_two
#define W .at = "model.layers.0.mlp.gate_proj.weight", .made = make_checkpoint

static const struct row rows[] = {
    {"dtype-confusion", "bf16 as f16", Q, .plant = bf16_as_f16, .words = {"bf16 bits are read as f16"}, .clean = true,
     .near = "scaled clamped affine unrelated"},
    {"dtype-confusion", "f16 as bf16", Q, .plant = f16_as_bf16, .words = {"f16 bits are read as bf16"}, .clean = true,
     .near = "zeros scaled unrelated"},
    {"dtype-confusion", "pairs of bf16", Q, .plant = pairs_as_f32, .words = {"pairs of bf16 are read as f32"},
     .clean = true, .near = "permuted unrelated"},
    {"dtype-confusion", "pairs of f16", Q, .plant = pairs_as_f32, .number = 1,
     .words = {"pairs of f16 are read as f32"}, .clean = true, .near = "permuted"},
    {"dtype-confusion", "f32 as pairs", Q, .plant = f32_as_pairs, .words = {"f32 is read as pairs of bf16"},
     .clean = true, .near = "permuted stale inf"},
    {"dtype-confusion", "bytes reversed", Q, .plant = bytes_reversed, .words = {"bytes of bf16 are in reverse order"},
     .clean = true, .near = "inf sparse"},
    {"dtype-confusion", "bytes of f32 reversed", W, .plant = f32_reversed,
     .words = {"the bytes of f32 are in reverse order"}, .clean = true, .near = "nan inf sparse unrelated"},
    {"dtype-confusion", "bytes of f32 reversed, and noise", Q, .plant = f32_reversed,
     .words = {"the bytes of f32 are in reverse order"}, .check = "byte order", .clean = true, .near = "nan inf"},
    {"dtype-confusion", "bytes of bf16 reversed, and noise", .at = "layer_0_mlp_down_proj", .made = make_layer,
     .plant = reversed_beyond_bounds, .words = {"the bytes of bf16 are in reverse order"}, .check = "byte order",
     .clean = true, .near = "unwritten inf"},
    {"dtype-confusion", "signed bytes under a scale as unsigned", Q, .plant = signed_as_unsigned,
     .words = {"numbers below 0 are off by {~0}", "signed bytes are read as unsigned"}, .clean = true,
     .near = "offset affine"},
    {"rounding", "bf16", W, .plant = kept_bits, .number = 7, .words = {"rounded to bf16"}, .check = "not a fault",
     .clean = true, .near = "quantization dtype-confusion"},
    {"rounding", "f16", W, .plant = to_f16, .words = {"f16"}, .clean = true},
    {"rounding", "tf32", W, .plant = kept_bits, .number = 10, .words = {"TF32"}, .clean = true, .near = "quantization"},
    {"rounding", "e4m3", W, .plant = kept_bits, .number = 3, .words = {"rounded to e4m3"}, .clean = true,
     .beside = "quantization"},
    {"rounding", "e5m2", W, .plant = kept_bits, .number = 2, .words = {"rounded to e5m2"}, .clean = true,
     .beside = "quantization"},
    {"rounding", "cut off", W, .plant = cut_bits, .words = {"truncated to bf16"}, .check = "to nearest", .clean = true,
     .near = "scaled"},
    {"quantization", "int8 by token", Q, .plant = int8_by_token, .clean = true,
     .words = {"block of {hidden}", "(8 bits)", "a step of {~0}", "times what such steps must cause"},
     .near = "rounding clamped"},
    {"quantization", "int8 by block", W, .rough = true, .plant = int8_by_block, .clean = true,
     .words = {"block of 32", "(8 bits)", "a step of {~0}"}, .near = "rounding"},
    {"quantization", "int4 by block", W, .rough = true, .plant = int4_by_block, .clean = true,
     .words = {"block of 32", "(4 bits)", "a step of {~0}"}, .near = "rounding clamped unrelated"},
    {"quantization", "int4 with a zero point", W, .rough = true, .plant = int4_with_zero_point, .clean = true,
     .words = {"block of 32", "16 levels (4 bits)", "a step of {~0}"}},
    {"quantization", "e4m3 under a scale", W, .rough = true, .plant = e4m3_for_all, .clean = true,
     .words = {"the levels of e4m3 with a scale for all, {~0}", "times what such levels must cause"},
     .near = "rounding clamped"},
    {"quantization", "e5m2 under a scale", W, .plant = e5m2_for_all, .clean = true,
     .words = {"the levels of e5m2 with a scale for all"}, .near = "rounding"},
    {"quantization", "e4m3 by row", W, .plant = e4m3_by_row, .clean = true,
     .words = {"the levels of e4m3 with a scale for each row"}, .near = "rounding"},
    {"quantization", "mxfp4", W, .plant = mxfp4, .clean = true, .words = {"the levels of e2m1 (fp4) ", "power"},
     .near = "rounding unrelated"},
    {"quantization", "int8 by channel", .at = "model.layers.0.self_attn.qkv_proj.weight", .made = make_checkpoint,
     .plant = int8_by_channel, .clean = true, .words = {"of each channel lie on a grid", "(8 bits)"},
     .near = "rounding"},
    {"clamped", "both ends", Q, .plant = within_one, .words = {"{0} elements", "-1 to 1"},
     .near = "scaled sparse quantization"},
    {"clamped", "the other end", Q, .plant = at_least_minus_one, .words = {"nothing lies below -1"},
     .near = "activation"},
    {"clamped", "one end", Q, .plant = at_most_one, .words = {"nothing lies above 1"}, .near = "activation offset"},
    {"clamped", "softly", Q, .plant = softly, .number = 1.5, .words = {"applies a softcap: {~0}"},
     .near = "scaled activation"},
};

const struct table causes_types = TABLE("types", rows);
