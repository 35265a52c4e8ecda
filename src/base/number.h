/* Numbers: checked arithmetic on sizes and unaligned loads in either byte order. Header only. */
#ifndef TS_BASE_NUMBER_H
#define TS_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Tensors in files are little-endian, and kernels read them where they lie. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tsleuth needs a little-endian processor");

/* True when the result fits; on false *result is unspecified. */
static inline bool ts_mul(uint64_t a, uint64_t b, uint64_t *result)
{
    return !__builtin_mul_overflow(a, b, result);
}

static inline bool ts_add(uint64_t a, uint64_t b, uint64_t *result)
{
    return !__builtin_add_overflow(a, b, result);
}

/* True when [offset, offset + length) lies inside a thing of `size` bytes. Never wraps. */
static inline bool ts_span_fits(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

static inline uint16_t ts_load_le16(const void *from)
{
    uint16_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline uint32_t ts_load_le32(const void *from)
{
    uint32_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline uint64_t ts_load_le64(const void *from)
{
    uint64_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline uint16_t ts_load_be16(const void *from)
{
    return __builtin_bswap16(ts_load_le16(from));
}

static inline uint32_t ts_load_be32(const void *from)
{
    return __builtin_bswap32(ts_load_le32(from));
}

static inline uint64_t ts_load_be64(const void *from)
{
    return __builtin_bswap64(ts_load_le64(from));
}

static inline float ts_float_from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint32_t ts_float_bits(float value)
{
    uint32_t v;
    memcpy(&v, &value, sizeof v);
    return v;
}

static inline double ts_double_from_bits(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint64_t ts_double_bits(double value)
{
    uint64_t v;
    memcpy(&v, &value, sizeof v);
    return v;
}

static inline float ts_bf16_to_float(uint16_t bits)
{
    return ts_float_from_bits((uint32_t)bits << 16);
}

/* Exact, NaN payloads kept. Branch-free enough for the compiler to vectorize: shift the exponent and mantissa into
 * place, then let a multiplication by 2^112 do the re-biasing, which also normalizes subnormals. */
static inline float ts_f16_to_float(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(bits & 0x7fffu) << 13;
    if (rest >= (uint32_t)0x7c00 << 13) /* Inf and NaN keep their mantissa under the widest exponent */
        return ts_float_from_bits(sign | 0x7f800000u | rest);
    return ts_float_from_bits(sign | ts_float_bits(ts_float_from_bits(rest) * 0x1p112f));
}

#endif
