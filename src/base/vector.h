/* Vectors of the width the target has, for kernel files (see base/level.h). GCC vector types; intrinsics only where the
 * language has no word: minimum, maximum, f16.
 *
 * Kernels that must give the same bits at every level think in groups of 64 bytes, TS_VECTORS of these vectors each, so
 * that number i of a group always goes to accumulator i. */
#ifndef TS_BASE_VECTOR_H
#define TS_BASE_VECTOR_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define TS_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define TS_VECTOR_BYTES 32
#else
#define TS_VECTOR_BYTES 16
#endif
#define TS_VECTORS (64 / TS_VECTOR_BYTES) /* in a group of 64 bytes */

typedef float ts_vf32 __attribute__((vector_size(TS_VECTOR_BYTES)));
typedef double ts_vf64 __attribute__((vector_size(TS_VECTOR_BYTES)));
typedef int64_t ts_vi64 __attribute__((vector_size(TS_VECTOR_BYTES)));
typedef int32_t ts_vi32 __attribute__((vector_size(TS_VECTOR_BYTES)));
typedef uint32_t ts_vu32 __attribute__((vector_size(TS_VECTOR_BYTES)));
typedef int16_t ts_vi16 __attribute__((vector_size(TS_VECTOR_BYTES)));
typedef uint16_t ts_vu16 __attribute__((vector_size(TS_VECTOR_BYTES)));
typedef float ts_vf32_half __attribute__((vector_size(TS_VECTOR_BYTES / 2)));
typedef uint16_t ts_vu16_half __attribute__((vector_size(TS_VECTOR_BYTES / 2)));

#ifdef __SANITIZE_ADDRESS__ /* one copy of each is looked at: a compiler takes ten times as long over all of them */
#define TS_KERNEL_INLINE static __attribute__((unused))
#else
#define TS_KERNEL_INLINE static inline __attribute__((always_inline))
#endif

TS_KERNEL_INLINE ts_vf32 ts_vf32_load(const void *from)
{
    ts_vf32 v;
    memcpy(&v, from, sizeof v);
    return v;
}

TS_KERNEL_INLINE ts_vu16 ts_vu16_load(const void *from)
{
    ts_vu16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* The same number in every lane. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_all(float value)
{
#if defined(__AVX512F__)
    return (ts_vf32)_mm512_set1_ps(value);
#elif defined(__AVX2__)
    return (ts_vf32)_mm256_set1_ps(value);
#else
    return (ts_vf32){value, value, value, value};
#endif
}

/* a < b ? a : b in each lane: b when either is NaN. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_min(ts_vf32 a, ts_vf32 b)
{
#if defined(__AVX512F__)
    return (ts_vf32)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (ts_vf32)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (ts_vf32)_mm_min_ps((__m128)a, (__m128)b);
#else
    ts_vi32 less = a < b;
    return (ts_vf32)((less & (ts_vi32)a) | (~less & (ts_vi32)b));
#endif
}

TS_KERNEL_INLINE ts_vf32 ts_vf32_max(ts_vf32 a, ts_vf32 b)
{
#if defined(__AVX512F__)
    return (ts_vf32)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (ts_vf32)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (ts_vf32)_mm_max_ps((__m128)a, (__m128)b);
#else
    ts_vi32 more = a > b;
    return (ts_vf32)((more & (ts_vi32)a) | (~more & (ts_vi32)b));
#endif
}

TS_KERNEL_INLINE ts_vf64 ts_vf64_min(ts_vf64 a, ts_vf64 b)
{
#if defined(__AVX512F__)
    return (ts_vf64)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    return (ts_vf64)_mm256_min_pd((__m256d)a, (__m256d)b);
#elif defined(__x86_64__)
    return (ts_vf64)_mm_min_pd((__m128d)a, (__m128d)b);
#else
    ts_vi64 less = a < b;
    return (ts_vf64)((less & (ts_vi64)a) | (~less & (ts_vi64)b));
#endif
}

TS_KERNEL_INLINE ts_vf64 ts_vf64_max(ts_vf64 a, ts_vf64 b)
{
#if defined(__AVX512F__)
    return (ts_vf64)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    return (ts_vf64)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(__x86_64__)
    return (ts_vf64)_mm_max_pd((__m128d)a, (__m128d)b);
#else
    ts_vi64 more = a > b;
    return (ts_vf64)((more & (ts_vi64)a) | (~more & (ts_vi64)b));
#endif
}

TS_KERNEL_INLINE ts_vi16 ts_vi16_min(ts_vi16 a, ts_vi16 b)
{
#if defined(__AVX512BW__)
    return (ts_vi16)_mm512_min_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (ts_vi16)_mm256_min_epi16((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
    return (ts_vi16)_mm_min_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
    return (ts_vi16)vminq_s16((int16x8_t)a, (int16x8_t)b);
#else
    ts_vi16 less = a < b;
    return (less & a) | (~less & b);
#endif
}

TS_KERNEL_INLINE ts_vi16 ts_vi16_max(ts_vi16 a, ts_vi16 b)
{
#if defined(__AVX512BW__)
    return (ts_vi16)_mm512_max_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (ts_vi16)_mm256_max_epi16((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
    return (ts_vi16)_mm_max_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
    return (ts_vi16)vmaxq_s16((int16x8_t)a, (int16x8_t)b);
#else
    ts_vi16 more = a > b;
    return (more & a) | (~more & b);
#endif
}

TS_KERNEL_INLINE ts_vu16 ts_vu16_max(ts_vu16 a, ts_vu16 b)
{
#if defined(__AVX512BW__)
    return (ts_vu16)_mm512_max_epu16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (ts_vu16)_mm256_max_epu16((__m256i)a, (__m256i)b);
#elif defined(__aarch64__)
    return (ts_vu16)vmaxq_u16((uint16x8_t)a, (uint16x8_t)b);
#else
    return (ts_vu16)ts_vi16_max((ts_vi16)(a ^ 0x8000), (ts_vi16)(b ^ 0x8000)) ^ 0x8000;
#endif
}

TS_KERNEL_INLINE ts_vu16 ts_vu16_min(ts_vu16 a, ts_vu16 b)
{
#if defined(__AVX512BW__)
    return (ts_vu16)_mm512_min_epu16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (ts_vu16)_mm256_min_epu16((__m256i)a, (__m256i)b);
#elif defined(__aarch64__)
    return (ts_vu16)vminq_u16((uint16x8_t)a, (uint16x8_t)b);
#else
    return (ts_vu16)ts_vi16_min((ts_vi16)(a ^ 0x8000), (ts_vi16)(b ^ 0x8000)) ^ 0x8000;
#endif
}

TS_KERNEL_INLINE ts_vi32 ts_vi32_max(ts_vi32 a, ts_vi32 b)
{
#if defined(__AVX512F__)
    return (ts_vi32)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (ts_vi32)_mm256_max_epi32((__m256i)a, (__m256i)b);
#elif defined(__aarch64__)
    return (ts_vi32)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
#else
    ts_vi32 more = a > b;
    return (more & a) | (~more & b);
#endif
}

TS_KERNEL_INLINE ts_vu32 ts_vu32_max(ts_vu32 a, ts_vu32 b)
{
#if defined(__AVX512F__)
    return (ts_vu32)_mm512_max_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (ts_vu32)_mm256_max_epu32((__m256i)a, (__m256i)b);
#elif defined(__aarch64__)
    return (ts_vu32)vmaxq_u32((uint32x4_t)a, (uint32x4_t)b);
#else
    return (ts_vu32)ts_vi32_max((ts_vi32)(a ^ 0x80000000u), (ts_vi32)(b ^ 0x80000000u)) ^ 0x80000000u;
#endif
}

/* The distance from zero; 0x8000 for the one number that has no opposite. */
TS_KERNEL_INLINE ts_vu16 ts_vi16_abs(ts_vi16 v)
{
#if defined(__AVX512BW__)
    return (ts_vu16)_mm512_abs_epi16((__m512i)v);
#elif defined(__AVX2__)
    return (ts_vu16)_mm256_abs_epi16((__m256i)v);
#else
    return (ts_vu16)ts_vi16_max(v, (ts_vi16) - (ts_vu16)v);
#endif
}

TS_KERNEL_INLINE int ts_any_bit(ts_vi32 v)
{
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)v, (__m512i)v) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)v, (__m256i)v);
#elif defined(__x86_64__)
    return _mm_movemask_epi8(_mm_cmpeq_epi8((__m128i)v, _mm_setzero_si128())) != 0xffff;
#elif defined(__aarch64__)
    return vmaxvq_u32((uint32x4_t)v) != 0;
#else
    return (v[0] | v[1] | v[2] | v[3]) != 0;
#endif
}

/* Whether any lane of a is below b. */
TS_KERNEL_INLINE int ts_vu16_any_below(ts_vu16 a, ts_vu16 b)
{
#if defined(__AVX512BW__)
    return _mm512_cmplt_epu16_mask((__m512i)a, (__m512i)b) != 0;
#else
    return ts_any_bit((ts_vi32)(ts_vu16_max(a, b) ^ a)); /* not the larger */
#endif
}

/* The lower and the upper half of a vector, widened. */
TS_KERNEL_INLINE ts_vf64 ts_vf64_low(ts_vf32 v)
{
#if TS_VECTOR_BYTES == 64
    return (ts_vf64)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
#elif TS_VECTOR_BYTES == 32
    return (ts_vf64)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v));
#elif defined(__x86_64__)
    return (ts_vf64)_mm_cvtps_pd((__m128)v);
#elif defined(__aarch64__)
    return (ts_vf64)vcvt_f64_f32(vget_low_f32((float32x4_t)v));
#else
    return (ts_vf64){(double)v[0], (double)v[1]};
#endif
}

TS_KERNEL_INLINE ts_vf64 ts_vf64_high(ts_vf32 v)
{
#if TS_VECTOR_BYTES == 64
    return (ts_vf64)_mm512_cvtps_pd((__m256)_mm512_extractf64x4_pd((__m512d)v, 1));
#elif TS_VECTOR_BYTES == 32
    return (ts_vf64)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
#elif defined(__x86_64__)
    return (ts_vf64)_mm_cvtps_pd(_mm_movehl_ps((__m128)v, (__m128)v));
#elif defined(__aarch64__)
    return (ts_vf64)vcvt_high_f64_f32((float32x4_t)v);
#else
    return (ts_vf64){(double)v[2], (double)v[3]};
#endif
}

/* As many f32 numbers as there are lanes of double. */
TS_KERNEL_INLINE ts_vf64 ts_vf64_widened(const void *from)
{
#if defined(__AVX512F__)
    return (ts_vf64)_mm512_cvtps_pd(_mm256_loadu_ps((const float *)from));
#elif defined(__AVX2__)
    return (ts_vf64)_mm256_cvtps_pd(_mm_loadu_ps((const float *)from));
#else
    ts_vf32_half v;
    memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, ts_vf64);
#endif
}

/* sum + a * b for products that double has: fused where the machine has it, with the same result. */
TS_KERNEL_INLINE ts_vf64 ts_vf64_add_product(ts_vf64 sum, ts_vf64 a, ts_vf64 b)
{
#if defined(__AVX512F__)
    return (ts_vf64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)sum);
#elif defined(__AVX2__) && defined(__FMA__)
    return (ts_vf64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)sum);
#elif defined(__aarch64__)
    return (ts_vf64)vfmaq_f64((float64x2_t)sum, (float64x2_t)a, (float64x2_t)b);
#else
    return sum + a * b;
#endif
}

#if !defined(__FMA__) && !defined(__aarch64__)
/* a + b for a sum that is rounded to f32 next: where a double does not have it, the neighbour with an odd last bit, on
 * whose side of half way between two f32 numbers the sum is. */
TS_KERNEL_INLINE ts_vf64 ts_vf64_odd_sum(ts_vf64 a, ts_vf64 b)
{
    const ts_vf64 sum = a + b, of_b = sum - a, lost = (a - (sum - of_b)) + (b - of_b);
    const ts_vi64 bits = (ts_vi64)sum, outwards = 1 | ((bits ^ (ts_vi64)lost) >> 63); /* or inwards, -1 */
    return (ts_vf64)(bits + (outwards & ((lost < 0.0) | (lost > 0.0)) & ((bits & 1) - 1)));
}

TS_KERNEL_INLINE ts_vf32 ts_vf32_narrowed(ts_vf64 low, ts_vf64 high)
{
    return __builtin_shufflevector(__builtin_convertvector(low, ts_vf32_half),
                                   __builtin_convertvector(high, ts_vf32_half), 0, 1, 2, 3);
}

/* Through double, where the product is exact. Sums that a double does not have matter only half way between two f32
 * numbers, where 29 bits are a one and zeros; among the smallest numbers that is elsewhere. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_fused_by_double(ts_vf32 a, ts_vf32 b, ts_vf32 c)
{
    const ts_vf64 low = ts_vf64_low(a) * ts_vf64_low(b), high = ts_vf64_high(a) * ts_vf64_high(b);
    const ts_vf64 low_sum = low + ts_vf64_low(c), high_sum = high + ts_vf64_high(c);
    const ts_vi32 ends = __builtin_shufflevector((ts_vi32)low_sum, (ts_vi32)high_sum, 0, 2, 4, 6);
    const ts_vf32 rounded = ts_vf32_narrowed(low_sum, high_sum);
    const ts_vi32 halfway = (ends & 0x1fffffff) == 0x10000000;
    const ts_vi32 tiny = (((ts_vi32)rounded & 0x7fffffff) < 0x01000000) & (a != 0) & (b != 0);
    if (!ts_any_bit(halfway | tiny))
        return rounded;
    return ts_vf32_narrowed(ts_vf64_odd_sum(low, ts_vf64_low(c)), ts_vf64_odd_sum(high, ts_vf64_high(c)));
}
#endif

/* a * b + c, rounded once. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_fused(ts_vf32 a, ts_vf32 b, ts_vf32 c)
{
#if defined(__AVX512F__)
    return (ts_vf32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (ts_vf32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (ts_vf32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return ts_vf32_fused_by_double(a, b, c);
#endif
}

/* sum + a * b for many products: fused where the machine has it, else rounded once more. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_accumulate(ts_vf32 sum, ts_vf32 a, ts_vf32 b)
{
#if defined(__FMA__) || defined(__aarch64__)
    return ts_vf32_fused(a, b, sum);
#else
    return sum + a * b;
#endif
}

/* c - a * b, where another last bit does not matter. A NaN in a keeps its sign. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_subtract_product(ts_vf32 c, ts_vf32 a, ts_vf32 b)
{
#if defined(__AVX512F__)
    return (ts_vf32)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (ts_vf32)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (ts_vf32)vfmsq_f32((float32x4_t)c, (float32x4_t)b, (float32x4_t)a); /* the first of the two is negated */
#else
    return c - a * b;
#endif
}

/* As many bf16 numbers as there are lanes. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_from_bf16(const void *from)
{
#if defined(__AVX512F__)
    return (ts_vf32)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16);
#else
    ts_vu16_half half;
    memcpy(&half, from, sizeof half);
    return (ts_vf32)(__builtin_convertvector(half, ts_vu32) << 16);
#endif
}

/* a * a + sum, for squares that are exact in f32, where fusing does not change a bit. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_add_exact_square(ts_vf32 sum, ts_vf32 a)
{
#if defined(__FMA__) || defined(__aarch64__)
    return ts_vf32_fused(a, a, sum);
#else
    return a * a + sum;
#endif
}

/* f32 numbers from as many f16 that stand side by side. */
TS_KERNEL_INLINE ts_vf32 ts_vf32_from_f16(const void *from)
{
#if defined(__AVX512F__)
    __m256i half;
    memcpy(&half, from, sizeof half);
    return (ts_vf32)_mm512_cvtph_ps(half);
#elif defined(__F16C__)
    __m128i half;
    memcpy(&half, from, sizeof half);
    return (ts_vf32)_mm256_cvtph_ps(half);
#else
    /* as ts_f16_to_float, four at a time */
    ts_vu16_half half;
    ts_vu32 bits, rest;
    ts_vi32 special;
    ts_vf32 plain;
    memcpy(&half, from, sizeof half);
    bits = __builtin_convertvector(half, ts_vu32);
    rest = (bits & 0x7fff) << 13;
    plain = (ts_vf32)rest * 0x1p112f;
    special = (ts_vi32)(rest >= (0x7c00u << 13));
    return (ts_vf32)((special & (ts_vi32)(rest | 0x7f800000u)) | (~special & (ts_vi32)plain) |
                     (ts_vi32)((bits & 0x8000) << 16));
#endif
}

#endif
