#include "tensor/mask.h"

#include <float.h>
#include <math.h>

#include "base/number.h"

static const float constants[] = {1e4f, 65504, 1e5f, 1e9f, 1e10f, 1e30f, 0.7f * FLT_MAX, 0.5f * FLT_MAX, FLT_MAX};

#define CONSTANTS (sizeof constants / sizeof *constants)
/* Of a constant: the rounding of its sum with a score, in bf16. The sum with one that is far larger than any score is
 * the constant itself, or the next numbers of f32. */
#define ROUNDED   0x1p-8
#define NO_LARGER 0x1p17

/* To bf16 and back, to nearest, ties to even; of numbers that do not overflow. */
static double through_bf16(float value)
{
    uint32_t bits = ts_float_bits(value);
    return (double)ts_bf16_to_float((uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
}

bool ts_is_mask_number(double value)
{
    if (!ts_is_masked_score(value))
        return false;
    if (value == -(double)INFINITY || value == -DBL_MAX || value == -(double)ts_bf16_to_float(0x7f7f))
        return true;
    for (size_t i = 0; i < CONSTANTS; i++)
        if (-value == (double)constants[i] || (constants[i] < FLT_MAX && -value == through_bf16(constants[i])))
            return true;
    return value == -1e30; /* f64: the f32 constant is another number */
}

bool ts_is_near_mask_number(double value, double score)
{
    if (ts_is_mask_number(value))
        return true;
    for (size_t i = 0; i < CONSTANTS && ts_is_masked_score(value); i++)
        for (int times = 1; times <= 2; times++) {
            const double mask = (double)constants[i], room = score + times * fmin(mask, NO_LARGER) * ROUNDED;
            if (fabs(value + times * mask) <= room ||
                (constants[i] < FLT_MAX && fabs(value + times * through_bf16(constants[i])) <= room))
                return true;
        }
    return false;
}

void ts_hide_masked_scores(float *scores, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ts_is_masked_score((double)scores[i]))
            scores[i] = -INFINITY;
}
