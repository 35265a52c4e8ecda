/* Decode blocks: the element types of ggml that pack several elements into one block.
 *
 * Decoded values equal those of ggml's reference dequantization bit for bit, at every SIMD level (sign
 * and payload of NaN aside). Everything here works on whole blocks in memory and knows nothing of files; all functions
 * are thread-safe.
 *
 * The numbering of ggml (`enum ggml_type`, which GGUF files store), scalar types included:
 *
 *     0 F32       1 F16       2 Q4_0      3 Q4_1      6 Q5_0      7 Q5_1      8 Q8_0      9 Q8_1
 *    10 Q2_K     11 Q3_K     12 Q4_K     13 Q5_K     14 Q6_K     15 Q8_K     16 IQ2_XXS  17 IQ2_XS
 *    18 IQ3_XXS  19 IQ1_S    20 IQ4_NL   21 IQ3_S    22 IQ2_S    23 IQ4_XS   24 I8       25 I16
 *    26 I32      27 I64      28 F64      29 IQ1_M    30 BF16     34 TQ1_0    35 TQ2_0    39 MXFP4
 *    40 NVFP4    41 Q1_0     42 Q2_0
 *
 * Retired and never reused: 4 Q4_2, 5 Q4_3, 31 to 33 Q4_0_4_4, Q4_0_4_8, Q4_0_8_8 and 36 to 38 IQ4_NL_4_4,
 * IQ4_NL_4_8, IQ4_NL_8_8. Q8_1 and Q8_K are what ggml makes of activations; no converter writes them, but
 * they have numbers. */
#ifndef TS_TENSOR_DECODE_BLOCKS_H
#define TS_TENSOR_DECODE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ts_block_type {
    TS_BLOCK_Q4_0,
    TS_BLOCK_Q4_1,
    TS_BLOCK_Q5_0,
    TS_BLOCK_Q5_1,
    TS_BLOCK_Q8_0,
    TS_BLOCK_Q8_1,
    TS_BLOCK_Q2_K,
    TS_BLOCK_Q3_K,
    TS_BLOCK_Q4_K,
    TS_BLOCK_Q5_K,
    TS_BLOCK_Q6_K,
    TS_BLOCK_Q8_K,
    TS_BLOCK_IQ2_XXS,
    TS_BLOCK_IQ2_XS,
    TS_BLOCK_IQ3_XXS,
    TS_BLOCK_IQ1_S,
    TS_BLOCK_IQ4_NL,
    TS_BLOCK_IQ3_S,
    TS_BLOCK_IQ2_S,
    TS_BLOCK_IQ4_XS,
    TS_BLOCK_IQ1_M,
    TS_BLOCK_TQ1_0,
    TS_BLOCK_TQ2_0,
    TS_BLOCK_MXFP4,
    TS_BLOCK_NVFP4,
    TS_BLOCK_Q1_0,
    TS_BLOCK_Q2_0,
    TS_BLOCK_COUNT
};

struct ts_block_info {
    const char *name;   /* "Q4_K" */
    uint32_t ggml_type; /* its number in GGUF files */
    uint32_t elements;  /* per block */
    uint32_t bytes;     /* per block */
    bool has_min;       /* values are scale * code + minimum, not scale * code alone */
};

extern const struct ts_block_info ts_block_infos[TS_BLOCK_COUNT];

/* False for scalar types, retired numbers and numbers not known yet; *type is then untouched. */
bool ts_block_from_ggml(uint32_t ggml_type, enum ts_block_type *type);

/* Decodes `blocks` whole little-endian blocks into blocks * elements floats. Neither pointer needs alignment
 * beyond that of its type; the two must not overlap. */
void ts_decode_blocks(enum ts_block_type type, const uint8_t *src, size_t blocks, float *dst);

/* One decoder of one SIMD level, as the tables of decode_blocks.c hold them. */
typedef void ts_decode_blocks_at_level(const uint8_t *restrict src, size_t blocks, float *restrict dst);

/* What one element is made of: its value is scale * code + minimum, up to rounding. For printing only. */
struct ts_block_part {
    float scale;        /* the factor of this element's sub-block, the block's own factor included */
    float minimum;      /* the value of code 0; 0 when the type has none */
    int32_t code;       /* the integer that is scaled: offset removed, codebook looked up, sign applied */
    uint32_t stored;    /* the bits the code came from; an index into the codebook where there is one */
    uint32_t sub_block; /* how many elements share the scale */
};

/* False when index is not below the type's elements. The block is little-endian. */
bool ts_block_explain(enum ts_block_type type, const uint8_t *block, uint32_t index, struct ts_block_part *part);

/* Big-endian GGUF files store the 16 and 32-bit fields inside blocks swapped: rewrites one block to
 * little-endian in place. Its own inverse. */
void ts_block_swap(enum ts_block_type type, uint8_t *block);

#endif
