/* For the kernels of statistics and differences (see base/level.h): f32, bf16 and f16 in groups of 64 bytes, which are
 * sixteen lanes of f32 at every width, and what is done with lanes. Number i of a group always goes to the same lane,
 * and lanes are added up in one order, so that results are the same to the last bit at every SIMD level. */
#ifndef TS_COMPARE_LANES_H
#define TS_COMPARE_LANES_H

#include <math.h>
#include <stdint.h>

#include "base/number.h"
#include "base/vector.h"

enum kind { F32, DOUBLED, BF16, F16 }; /* doubled: f32 numbers whose sums are in double throughout */

/* A group is sixteen lanes of one or two numbers: 64 bytes. */
#define PARTS(kind)  ((kind) <= DOUBLED ? 1 : 2)
#define SIZE(kind)   ((kind) <= DOUBLED ? (size_t)4 : (size_t)2)
#define GROUP(kind)  ((size_t)16 * PARTS(kind))
#define STRIDE(kind) (GROUP(kind) * SIZE(kind))

/* Asks for what is needed so many bytes later, which may lie beyond the end: hardware by itself fetches no further than
 * the page, and too late for numbers that are worked on for a while. */
#define FETCH_AHEAD(group, bytes) __builtin_prefetch((const void *)((uintptr_t)(group) + (bytes)), 0, 3)
#define AHEAD                     4096
#define AHEAD_OF_BOTH             6144 /* where two streams are read and more is done for each number */

/* Vector k of a group as f32: of bf16 the even and the odd numbers, of f16 those of the first and the second half. */
TS_KERNEL_INLINE void load(enum kind kind, const uint8_t *group, int k, ts_vf32 out[2])
{
    if (PARTS(kind) == 1) {
        out[0] = ts_vf32_load(group + k * TS_VECTOR_BYTES);
    } else if (kind == BF16) {
        ts_vu32 two;
        memcpy(&two, group + k * TS_VECTOR_BYTES, sizeof two);
        out[0] = (ts_vf32)(two << 16);
        out[1] = (ts_vf32)(two & 0xffff0000u);
    } else {
        out[0] = ts_vf32_from_f16(group + k * (TS_VECTOR_BYTES / 2));
        out[1] = ts_vf32_from_f16(group + 32 + k * (TS_VECTOR_BYTES / 2));
    }
}

/* Products of bf16, two to a lane and added to a third number: the odd numbers', then the even ones', as one sum in f32
 * would take them. Products of bf16 are exact in f32, so that fusing does not change a bit. Subnormal numbers count as
 * zero; see SMALLEST_FUSED. */
#if defined(__AVX512BF16__)
#define HAS_DOT 1
TS_KERNEL_INLINE ts_vf32 dot(ts_vf32 sum, ts_vu16 a, ts_vu16 b)
{
    return (ts_vf32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#else
#define HAS_DOT 0
TS_KERNEL_INLINE ts_vf32 dot(ts_vf32 sum, ts_vu16 a, ts_vu16 b)
{
    (void)a;
    (void)b;
    return sum; /* never called */
}
#endif

/* The bits of vector k of a group: of one number a lane, or of two. */
TS_KERNEL_INLINE ts_vu32 load_bits(enum kind kind, const uint8_t *group, int k)
{
    ts_vf32 x[2];
    if (PARTS(kind) == 2)
        return (ts_vu32)ts_vu16_load(group + k * TS_VECTOR_BYTES);
    load(kind, group, k, x);
    return (ts_vu32)x[0];
}

/* Two bf16 numbers a lane out of f32 numbers that need no more: the first are the even ones. */
TS_KERNEL_INLINE ts_vu16 pack(ts_vf32 even, ts_vf32 odd)
{
    return (ts_vu16)((ts_vu32)even >> 16 | (ts_vu32)odd);
}

TS_KERNEL_INLINE float scalar(enum kind kind, const uint8_t *from)
{
    return PARTS(kind) == 1 ? ts_float_from_bits(ts_load_le32(from))
           : kind == BF16   ? ts_bf16_to_float(ts_load_le16(from))
                            : ts_f16_to_float(ts_load_le16(from));
}

TS_KERNEL_INLINE double from_bits(enum kind kind, uint16_t bits)
{
    return (double)(kind == BF16 ? ts_bf16_to_float(bits) : ts_f16_to_float(bits)) + 0.0; /* no negative zero */
}

/* Sixteen doubles that the f32 accumulators are flushed into, number i into number i. */
struct wide {
    ts_vf64 low[TS_VECTORS], high[TS_VECTORS];
};

TS_KERNEL_INLINE void flush(struct wide *wide, int k, ts_vf32 part)
{
    wide->low[k] += ts_vf64_low(part);
    wide->high[k] += ts_vf64_high(part);
}

/* Their sum, in one order at every width. */
TS_KERNEL_INLINE double total_of(const struct wide *wide)
{
    double lane[16];
    for (int k = 0; k < TS_VECTORS; k++) {
        memcpy((char *)lane + k * 2 * TS_VECTOR_BYTES, &wide->low[k], TS_VECTOR_BYTES);
        memcpy((char *)lane + (k * 2 + 1) * TS_VECTOR_BYTES, &wide->high[k], TS_VECTOR_BYTES);
    }
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

TS_KERNEL_INLINE float highest(const ts_vf32 v[TS_VECTORS])
{
    float lane[16], high;
    memcpy(lane, v, sizeof lane);
    high = lane[0];
    for (int i = 1; i < 16; i++)
        high = lane[i] > high ? lane[i] : high;
    return high;
}

TS_KERNEL_INLINE uint16_t highest_u16(const ts_vu16 v[TS_VECTORS])
{
    uint16_t lane[32], high = 0;
    memcpy(lane, v, sizeof lane);
    for (int i = 0; i < 32; i++)
        high = lane[i] > high ? lane[i] : high;
    return high;
}

TS_KERNEL_INLINE uint16_t lowest_u16(const ts_vu16 v[TS_VECTORS])
{
    uint16_t lane[32], low = UINT16_MAX;
    memcpy(lane, v, sizeof lane);
    for (int i = 0; i < 32; i++)
        low = lane[i] < low ? lane[i] : low;
    return low;
}

TS_KERNEL_INLINE int16_t highest_i16(const ts_vi16 v[TS_VECTORS])
{
    int16_t lane[32], high = INT16_MIN;
    memcpy(lane, v, sizeof lane);
    for (int i = 0; i < 32; i++)
        high = lane[i] > high ? lane[i] : high;
    return high;
}

TS_KERNEL_INLINE uint32_t highest_u32(const ts_vu32 v[TS_VECTORS])
{
    uint32_t lane[16], high = 0;
    memcpy(lane, v, sizeof lane);
    for (int i = 0; i < 16; i++)
        high = lane[i] > high ? lane[i] : high;
    return high;
}

TS_KERNEL_INLINE int32_t highest_i32(const ts_vi32 v[TS_VECTORS])
{
    int32_t lane[16], high = INT32_MIN;
    memcpy(lane, v, sizeof lane);
    for (int i = 0; i < 16; i++)
        high = lane[i] > high ? lane[i] : high;
    return high;
}

/* Extremes of one side, on the bits: as signed integers the largest is the largest number unless all are negative; as
 * unsigned integers it is the least number unless none is. A NaN is beyond any number in both. Processors have more
 * units for these than for the extremes of floating-point numbers, and none to spare of those that add. */
struct extremes {
    ts_vi32 as_signed[TS_VECTORS]; /* of sixteen-bit numbers two to a lane */
    ts_vu32 as_unsigned[TS_VECTORS];
};

TS_KERNEL_INLINE ts_vi32 extend_signed(enum kind kind, ts_vi32 most, ts_vu32 bits)
{
    return PARTS(kind) == 1 ? ts_vi32_max(most, (ts_vi32)bits) : (ts_vi32)ts_vi16_max((ts_vi16)most, (ts_vi16)bits);
}

TS_KERNEL_INLINE ts_vu32 extend_unsigned(enum kind kind, ts_vu32 most, ts_vu32 bits)
{
    return PARTS(kind) == 1 ? ts_vu32_max(most, bits) : (ts_vu32)ts_vu16_max((ts_vu16)most, (ts_vu16)bits);
}

TS_KERNEL_INLINE void extremes_init(enum kind kind, struct extremes *extremes)
{
    memset(extremes, 0, sizeof *extremes);
    for (int k = 0; k < TS_VECTORS; k++)
        extremes->as_signed[k] = PARTS(kind) == 1 ? (ts_vi32){0} + INT32_MIN : (ts_vi32)((ts_vi16){0} + INT16_MIN);
}

TS_KERNEL_INLINE double number_of(enum kind kind, uint32_t bits)
{
    return PARTS(kind) == 1 ? (double)ts_float_from_bits(bits) + 0.0 : from_bits(kind, (uint16_t)bits);
}

TS_KERNEL_INLINE uint32_t most_unsigned(enum kind kind, const ts_vu32 v[TS_VECTORS])
{
    return PARTS(kind) == 1 ? highest_u32(v) : highest_u16((const ts_vu16 *)v);
}

TS_KERNEL_INLINE uint32_t least_bits(enum kind kind, const uint8_t *from, size_t groups)
{
    ts_vu32 most[TS_VECTORS] = {{0}};
    for (size_t i = 0; i < groups * STRIDE(kind); i += STRIDE(kind))
        for (int k = 0; k < TS_VECTORS; k++)
            most[k] = extend_unsigned(kind, most[k], ~load_bits(kind, from + i, k));
    return PARTS(kind) == 1 ? ~most_unsigned(kind, most) : ~most_unsigned(kind, most) & 0xffff;
}

TS_KERNEL_INLINE void find_extremes(enum kind kind, const struct extremes *extremes, const uint8_t *from, size_t groups,
                                    double *min, double *max)
{
    const uint32_t sign = PARTS(kind) == 1 ? 0x80000000u : 0x8000u;
    uint32_t top, bottom;
    if (!groups) {
        *min = INFINITY;
        *max = -INFINITY;
        return;
    }
    top = PARTS(kind) == 1 ? (uint32_t)highest_i32(extremes->as_signed)
                           : (uint16_t)highest_i16((const ts_vi16 *)extremes->as_signed);
    bottom = most_unsigned(kind, extremes->as_unsigned);
    if (top >= sign) /* all are negative */
        top = least_bits(kind, from, groups);
    else if (bottom < sign) /* none is */
        bottom = least_bits(kind, from, groups);
    *max = number_of(kind, top);
    *min = number_of(kind, bottom);
}

#endif
