/* Element types: every way a number is stored in the files we open.
 *
 * A type is a block of `block_elements` numbers in `block_bytes` bytes; for ordinary types a block is one number. Types
 * smaller than a byte are packed low bits first. The quantized blocks of ggml follow the ordinary types, in the order
 * of enum ts_block_type. */
#ifndef TS_TENSOR_TYPE_H
#define TS_TENSOR_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/decode_blocks.h"

enum ts_type {
    TS_F64,
    TS_F32,
    TS_F16,
    TS_BF16,
    TS_F8_E4M3, /* the "fn" kind: no infinity, NaN is 0x7f and 0xff */
    TS_F8_E5M2,
    TS_F8_E4M3FNUZ,
    TS_F8_E5M2FNUZ,
    TS_F8_E8M0, /* a power of two, 0xff is NaN */
    TS_F8_E4M3B11FNUZ,
    TS_F8_E3M4,
    TS_F6_E2M3, /* four in three bytes */
    TS_F6_E3M2,
    TS_F4_E2M1, /* two in a byte */
    TS_F80,     /* x87 extended in 16 bytes, as numpy's longdouble on x86 */
    TS_I64,
    TS_I32,
    TS_I16,
    TS_I8,
    TS_I4,
    TS_I2,
    TS_U64,
    TS_U32,
    TS_U16,
    TS_U8,
    TS_U4,
    TS_U2,
    TS_U1,
    TS_BOOL, /* one byte, anything but 0 is true */
    TS_C32,  /* complex of f16 */
    TS_C64,
    TS_C128,
    TS_CODED,       /* the values come from other tensors through a codec: AWQ, GPTQ, torch quantized ... */
    TS_BLOCK_TYPES, /* first ggml block type */
    TS_TYPE_COUNT = TS_BLOCK_TYPES + TS_BLOCK_COUNT
};

enum ts_class { TS_CLASS_FLOAT, TS_CLASS_INT, TS_CLASS_UINT, TS_CLASS_BOOL, TS_CLASS_COMPLEX, TS_CLASS_QUANT };

struct ts_type_info {
    const char *name; /* "bf16", "Q4_K": as printed */
    uint16_t block_elements, block_bytes;
    uint8_t components;   /* numbers per element: 2 for complex, else 1 */
    int8_t mantissa_bits; /* stored, for float types; -1 otherwise */
    enum ts_class kind;
};

const struct ts_type_info *ts_type_info(enum ts_type type);
static inline enum ts_type ts_type_of_block(enum ts_block_type block)
{
    return (enum ts_type)(TS_BLOCK_TYPES + (int)block);
}
static inline bool ts_type_is_block(enum ts_type type)
{
    return type >= TS_BLOCK_TYPES;
}
static inline bool ts_type_is_integer(enum ts_type type)
{
    return type >= TS_I64 && type <= TS_BOOL;
}

/* Bytes that count elements take, blocks rounded up; false on overflow. TS_CODED takes none. */
bool ts_type_bytes(enum ts_type type, uint64_t count, uint64_t *bytes);

/* Decode count elements (a multiple of block_elements, or ending in the last block) that stand side by side at src,
 * which begins a block. swapped: the bytes of each number are in reverse order. f32 is exact for every type of up to
 * 24 significant bits and correctly rounded for the others; f64 is exact for all but TS_F80 and 64-bit integers above
 * 2^53; i64 serves integer types and bool (u64 keeps its bits). Complex elements give two numbers. src may be
 * unaligned. Not for TS_CODED. */
void ts_type_decode_f32(enum ts_type type, bool swapped, const uint8_t *src, size_t count, float *dst);
void ts_type_decode_f64(enum ts_type type, bool swapped, const uint8_t *src, size_t count, double *dst);
void ts_type_decode_i64(enum ts_type type, bool swapped, const uint8_t *src, size_t count, int64_t *dst);

#endif
