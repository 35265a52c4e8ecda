/* Rounding to the nearest bf16 or f16, ties to even, as torch stores them. Header only. */
#ifndef TS_MODEL_ROUND_H
#define TS_MODEL_ROUND_H

#include <stdint.h>

#include "base/number.h"

static inline uint16_t ts_bf16_bits(float value)
{
    uint32_t bits = ts_float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) /* a NaN stays one */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float ts_round_bf16(float value)
{
    return ts_float_from_bits((uint32_t)ts_bf16_bits(value) << 16);
}

static inline uint16_t ts_f16_bits(float value)
{
    uint32_t bits = ts_float_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) { /* below 2^-14: steps of 2^-24; adding 1/2 lets the processor round at that place */
        uint32_t steps = ts_float_bits(ts_float_from_bits(rest) + 0.5f) - 0x3f000000;
        return (uint16_t)(sign | steps);
    }
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

static inline float ts_round_f16(float value)
{
    return ts_f16_to_float(ts_f16_bits(value));
}

#endif
