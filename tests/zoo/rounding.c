/* Owns number formats: rounding of values, quantizers of weights and rows, and the list of honest numerics. */
#include <math.h>
#include <string.h>

#include "zoo.h"

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest even, keeping `kept` of the 23 mantissa bits; the exponent range stays fp32's. */
static float round_mantissa(float value, unsigned kept)
{
    uint32_t bits = float_bits(value), drop = 23 - kept;
    if ((bits & 0x7f800000) == 0x7f800000)
        return value;
    bits += (1u << (drop - 1)) - 1 + (bits >> drop & 1);
    return bits_float(bits & ~((1u << drop) - 1));
}

/* A small format: mantissa bits, least normal exponent, and the largest value, at which it saturates. */
static float round_small(float value, int mantissa, int least, float largest)
{
    double step, rounded;
    int exponent;
    if (value == 0 || !isfinite(value))
        return value;
    exponent = ilogb((double)value);
    step = ldexp(1, (exponent < least ? least : exponent) - mantissa);
    rounded = nearbyint((double)value / step) * step;
    if (fabs(rounded) > (double)largest)
        rounded = copysign((double)largest, rounded);
    return (float)rounded;
}

/* Half precision: ten bits, multiples of 2^-24 below its normal numbers, infinity past 65504. */
static float round_half(float value)
{
    float rounded = fabsf(value) < 0x1p-14f ? nearbyintf(value * 0x1p24f) * 0x1p-24f : round_mantissa(value, 10);
    return fabsf(rounded) > 65504.0f ? copysignf(INFINITY, rounded) : rounded;
}

float zoo_round_other(enum zoo_format format, float value)
{
    switch (format) {
    case ZOO_TF32:
        return round_mantissa(value, 10);
    case ZOO_F16:
        return round_half(value);
    case ZOO_E4M3:
        return round_small(value, 3, -6, 448.0f);
    default:
        return value;
    }
}

int zoo_mantissa_bits(enum zoo_format format)
{
    static const int bits[] = {23, 10, 7, 10, 3};
    return bits[format];
}

uint16_t zoo_bf16_bits(float value)
{
    return (uint16_t)(float_bits(zoo_round(ZOO_BF16, value)) >> 16);
}

uint16_t zoo_f16_bits(float value)
{
    float rounded = zoo_round(ZOO_F16, value), size = fabsf(rounded);
    uint16_t sign = (uint16_t)(float_bits(rounded) >> 16 & 0x8000);
    if (isnan(rounded))
        return 0x7e00;
    if (isinf(rounded))
        return sign | 0x7c00;
    if (size < 0x1p-14f) /* multiples of 2^-24 */
        return (uint16_t)(sign | (uint16_t)(size * 0x1p24f));
    return (uint16_t)(sign | ((float_bits(size) >> 13) - ((127 - 15) << 10)));
}

float zoo_f16_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent == 31  ? (mantissa ? (double)NAN : (double)INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return (float)(bits & 0x8000 ? -size : size);
}

static float largest_of(const float *values, int count)
{
    float largest = 0;
    for (int i = 0; i < count; i++)
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    return largest;
}

static void symmetric(float *values, int count, float steps)
{
    float scale = largest_of(values, count) / steps;
    for (int i = 0; i < count && scale > 0; i++)
        values[i] = nearbyintf(values[i] / scale) * scale;
}

static void asymmetric(float *values, int count, float steps)
{
    float low = 0, high = 0, scale, zero;
    for (int i = 0; i < count; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    scale = zoo_round(ZOO_F16, (high - low) / steps);
    if (!(scale > 0))
        return;
    zero = nearbyintf(-low / scale);
    for (int i = 0; i < count; i++) {
        float level = nearbyintf(values[i] / scale) + zero;
        level = level < 0 ? 0 : level > steps ? steps : level;
        values[i] = (level - zero) * scale;
    }
}

static void eight_bit_float(float *values, int count)
{
    float scale = largest_of(values, count) / 448.0f;
    for (int i = 0; i < count && scale > 0; i++)
        values[i] = zoo_round(ZOO_E4M3, values[i] / scale) * scale;
}

/* e2m1 reaches 6 = 1.5 * 2^2; the shared exponent puts the largest value's power of two there. */
static void microscaled(float *values, int count)
{
    float largest = largest_of(values, count), scale;
    if (!(largest > 0))
        return;
    scale = ldexpf(1, ilogbf(largest) - 2);
    for (int i = 0; i < count; i++)
        values[i] = round_small(values[i] / scale, 1, 0, 6.0f) * scale;
}

static void block_of_four_bits(float *values, int count)
{
    float largest = 0, scale;
    for (int i = 0; i < count; i++)
        largest = fabsf(values[i]) > fabsf(largest) ? values[i] : largest;
    scale = zoo_round(ZOO_F16, largest / -8);
    for (int i = 0; i < count && scale != 0; i++) {
        float level = nearbyintf(values[i] / scale);
        values[i] = (level < -8 ? -8 : level > 7 ? 7 : level) * scale;
    }
}

void zoo_quantize(enum zoo_weights weights, float *values, int rows, int columns)
{
    if (weights == ZOO_WEIGHTS_FP8) {
        eight_bit_float(values, rows * columns);
        return;
    }
    for (int row = 0; row < rows; row++) {
        float *line = values + row * columns;
        if (weights == ZOO_WEIGHTS_INT8)
            symmetric(line, columns, 127);
        for (int start = 0; start < columns; start += 32) {
            int count = columns - start < 32 ? columns - start : 32;
            if (weights == ZOO_WEIGHTS_INT4)
                asymmetric(line + start, count, 15);
            else if (weights == ZOO_WEIGHTS_INT3)
                asymmetric(line + start, count, 7);
            else if (weights == ZOO_WEIGHTS_MXFP4)
                microscaled(line + start, count);
            else if (weights == ZOO_WEIGHTS_Q4)
                block_of_four_bits(line + start, count);
        }
    }
}

void zoo_quantize_row(enum zoo_weights weights, float *values, int count)
{
    if (weights == ZOO_WEIGHTS_INT8)
        symmetric(values, count, 127);
    else if (weights == ZOO_WEIGHTS_FP8)
        eight_bit_float(values, count);
}

#define BF16 .format = ZOO_BF16, .products = ZOO_BF16
#define F16  .format = ZOO_F16, .products = ZOO_F16

const struct zoo_numerics zoo_numerics_list[] = {
    {.name = "float32", .dtype = "float32", .sum = ZOO_SUM_LANES, .fused = true},
    {.name = "float32_forward", .dtype = "float32", .sum = ZOO_SUM_FORWARD, .one_pass = true},
    {.name = "float32_backward", .dtype = "float32", .sum = ZOO_SUM_BACKWARD, .fused = true},
    {.name = "float32_flash", .dtype = "float32", .sum = ZOO_SUM_PAIRS, .fused = true, .online = true},
    {.name = "tf32", .dtype = "float32/tf32", .products = ZOO_TF32, .sum = ZOO_SUM_PAIRS},
    /* fp32 between the products, sixteen bits inside them */
    {.name = "autocast", .dtype = "float32/bfloat16", .products = ZOO_BF16, .sum = ZOO_SUM_PAIRS, .fused = true},
    {.name = "half_products", .dtype = "float32/float16", .products = ZOO_F16, .sum = ZOO_SUM_PAIRS},
    {.name = "bfloat16", .dtype = "bfloat16", BF16, .sum = ZOO_SUM_PAIRS},
    {.name = "bfloat16_fused", .dtype = "bfloat16", BF16, .sum = ZOO_SUM_FORWARD, .fused = true, .router_exact = true},
    {.name = "bfloat16_wide_sums", .dtype = "bfloat16", BF16, .sum = ZOO_SUM_PAIRS, .wide_sums = true},
    {.name = "bfloat16_wide_norms", .dtype = "bfloat16", BF16, .sum = ZOO_SUM_PAIRS, .wide_norms = true},
    {.name = "bfloat16_flash", .dtype = "bfloat16", BF16, .sum = ZOO_SUM_PAIRS, .fused = true, .online = true},
    {.name = "float16", .dtype = "float16", F16, .sum = ZOO_SUM_PAIRS},
    {.name = "float16_fused", .dtype = "float16", F16, .sum = ZOO_SUM_PAIRS, .fused = true, .router_exact = true},
    {.name = "int8", .dtype = "bfloat16/int8", BF16, .weights = ZOO_WEIGHTS_INT8, .sum = ZOO_SUM_PAIRS},
    {.name = "int8_dynamic",
     .dtype = "bfloat16/int8",
     BF16,
     .weights = ZOO_WEIGHTS_INT8,
     .activation = ZOO_WEIGHTS_INT8,
     .sum = ZOO_SUM_PAIRS,
     .head_kept = true},
    {.name = "int4", .dtype = "bfloat16/int4", BF16, .weights = ZOO_WEIGHTS_INT4, .sum = ZOO_SUM_PAIRS},
    {.name = "int4_from_half",
     .dtype = "bfloat16/int4",
     BF16,
     .weights = ZOO_WEIGHTS_INT4,
     .sum = ZOO_SUM_PAIRS,
     .from_half = true,
     .head_kept = true},
    {.name = "int4_mlp",
     .dtype = "bfloat16/int4",
     BF16,
     .weights = ZOO_WEIGHTS_INT4,
     .sum = ZOO_SUM_PAIRS,
     .mlp_only = true,
     .head_kept = true},
    {.name = "int4_half", .dtype = "float16/int4", F16, .weights = ZOO_WEIGHTS_INT4, .fused = true, .head_kept = true},
    {.name = "int3", .dtype = "bfloat16/int3", BF16, .weights = ZOO_WEIGHTS_INT3, .fused = true, .head_kept = true},
    {.name = "fp8", .dtype = "bfloat16/fp8", BF16, .weights = ZOO_WEIGHTS_FP8, .sum = ZOO_SUM_PAIRS, .head_kept = true},
    {.name = "fp8_dynamic",
     .dtype = "bfloat16/fp8",
     BF16,
     .weights = ZOO_WEIGHTS_FP8,
     .activation = ZOO_WEIGHTS_FP8,
     .head_kept = true},
    {.name = "mxfp4", .dtype = "bfloat16/mxfp4", BF16, .weights = ZOO_WEIGHTS_MXFP4, .fused = true, .head_kept = true},
    /* as ggml does it: fp32 between the products, a half-precision cache, gelu from a table */
    {.name = "half_table",
     .dtype = "float32/float16",
     .products = ZOO_F16,
     .sum = ZOO_SUM_PAIRS,
     .fused = true,
     .table = true},
    /* and with its quantized weights: the products' inputs go to eight bits */
    {.name = "q4",
     .dtype = "float32/q4",
     .weights = ZOO_WEIGHTS_Q4,
     .activation = ZOO_WEIGHTS_INT8,
     .sum = ZOO_SUM_PAIRS,
     .fused = true,
     .table = true},
    {.name = "cache_int8",
     .dtype = "bfloat16/cache-int8",
     BF16,
     .cache = ZOO_WEIGHTS_INT8,
     .sum = ZOO_SUM_PAIRS,
     .cache_shown = true},
    {.name = "cache_int8_hidden", .dtype = "bfloat16/cache-int8", BF16, .cache = ZOO_WEIGHTS_INT8, .fused = true},
    {.name = "cache_fp8", .dtype = "bfloat16/cache-fp8", BF16, .cache = ZOO_WEIGHTS_FP8, .cache_shown = true},
    {.name = "cache_fp8_hidden", .dtype = "bfloat16/cache-fp8", BF16, .cache = ZOO_WEIGHTS_FP8, .sum = ZOO_SUM_PAIRS},
};
const int zoo_numerics_count = sizeof zoo_numerics_list / sizeof *zoo_numerics_list;

const struct zoo_numerics *zoo_numerics_named(const char *name)
{
    for (int i = 0; i < zoo_numerics_count; i++)
        if (strcmp(zoo_numerics_list[i].name, name) == 0)
            return &zoo_numerics_list[i];
    return NULL;
}
