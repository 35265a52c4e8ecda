/* Block types: what they are, and the choice of decoders by SIMD level. */
#include <stddef.h>

#include "base/cpu.h"
#include "tensor/decode_blocks.h"

const struct ts_block_info ts_block_infos[TS_BLOCK_COUNT] = {
    [TS_BLOCK_Q4_0] = {"Q4_0", 2, 32, 18, false},         [TS_BLOCK_Q4_1] = {"Q4_1", 3, 32, 20, true},
    [TS_BLOCK_Q5_0] = {"Q5_0", 6, 32, 22, false},         [TS_BLOCK_Q5_1] = {"Q5_1", 7, 32, 24, true},
    [TS_BLOCK_Q8_0] = {"Q8_0", 8, 32, 34, false},         [TS_BLOCK_Q8_1] = {"Q8_1", 9, 32, 36, false},
    [TS_BLOCK_Q2_K] = {"Q2_K", 10, 256, 84, true},        [TS_BLOCK_Q3_K] = {"Q3_K", 11, 256, 110, false},
    [TS_BLOCK_Q4_K] = {"Q4_K", 12, 256, 144, true},       [TS_BLOCK_Q5_K] = {"Q5_K", 13, 256, 176, true},
    [TS_BLOCK_Q6_K] = {"Q6_K", 14, 256, 210, false},      [TS_BLOCK_Q8_K] = {"Q8_K", 15, 256, 292, false},
    [TS_BLOCK_IQ2_XXS] = {"IQ2_XXS", 16, 256, 66, false}, [TS_BLOCK_IQ2_XS] = {"IQ2_XS", 17, 256, 74, false},
    [TS_BLOCK_IQ3_XXS] = {"IQ3_XXS", 18, 256, 98, false}, [TS_BLOCK_IQ1_S] = {"IQ1_S", 19, 256, 50, true},
    [TS_BLOCK_IQ4_NL] = {"IQ4_NL", 20, 32, 18, false},    [TS_BLOCK_IQ3_S] = {"IQ3_S", 21, 256, 110, false},
    [TS_BLOCK_IQ2_S] = {"IQ2_S", 22, 256, 82, false},     [TS_BLOCK_IQ4_XS] = {"IQ4_XS", 23, 256, 136, false},
    [TS_BLOCK_IQ1_M] = {"IQ1_M", 29, 256, 56, true},      [TS_BLOCK_TQ1_0] = {"TQ1_0", 34, 256, 54, false},
    [TS_BLOCK_TQ2_0] = {"TQ2_0", 35, 256, 66, false},     [TS_BLOCK_MXFP4] = {"MXFP4", 39, 32, 17, false},
    [TS_BLOCK_NVFP4] = {"NVFP4", 40, 64, 36, false},      [TS_BLOCK_Q1_0] = {"Q1_0", 41, 128, 18, false},
    [TS_BLOCK_Q2_0] = {"Q2_0", 42, 64, 18, false},
};

bool ts_block_from_ggml(uint32_t ggml_type, enum ts_block_type *type)
{
    for (int i = 0; i < TS_BLOCK_COUNT; i++) {
        if (ts_block_infos[i].ggml_type == ggml_type) {
            *type = (enum ts_block_type)i;
            return true;
        }
    }
    return false;
}

/* From decode_blocks.c. */
typedef ts_decode_blocks_at_level *const decode_table[TS_BLOCK_COUNT];
TS_DECLARE_TABLES(decode_table, ts_decode_kernels);

void ts_decode_blocks(enum ts_block_type type, const uint8_t *src, size_t blocks, float *dst)
{
    (*TS_TABLE(ts_decode_kernels))[type](src, blocks, dst);
}

/* Runs of 16 and 32-bit fields, as ggml's code on a big-endian machine leaves them in memory. Where it declares bytes
 * but accesses them as words, it is the access that counts: the fifth bits of Q5_0 and Q5_1, the second half of
 * IQ3_XXS, the scales of IQ1_M; and the 16-bit fields of IQ2_XXS are written as 32-bit words. */
struct field_run {
    uint16_t offset;
    uint8_t bytes, count;
};

static const struct field_run field_runs[TS_BLOCK_COUNT][3] = {
    [TS_BLOCK_Q4_0] = {{0, 2, 1}},
    [TS_BLOCK_Q4_1] = {{0, 2, 2}},
    [TS_BLOCK_Q5_0] = {{0, 2, 1}, {2, 4, 1}},
    [TS_BLOCK_Q5_1] = {{0, 2, 2}, {4, 4, 1}},
    [TS_BLOCK_Q8_0] = {{0, 2, 1}},
    [TS_BLOCK_Q8_1] = {{0, 2, 2}},
    [TS_BLOCK_Q2_K] = {{80, 2, 2}},
    [TS_BLOCK_Q3_K] = {{108, 2, 1}},
    [TS_BLOCK_Q4_K] = {{0, 2, 2}},
    [TS_BLOCK_Q5_K] = {{0, 2, 2}},
    [TS_BLOCK_Q6_K] = {{208, 2, 1}},
    [TS_BLOCK_Q8_K] = {{0, 4, 1}, {260, 2, 16}},
    [TS_BLOCK_IQ2_XXS] = {{0, 2, 1}, {2, 4, 16}},
    [TS_BLOCK_IQ2_XS] = {{0, 2, 33}},
    [TS_BLOCK_IQ3_XXS] = {{0, 2, 1}, {66, 4, 8}},
    [TS_BLOCK_IQ1_S] = {{0, 2, 1}, {34, 2, 8}},
    [TS_BLOCK_IQ4_NL] = {{0, 2, 1}},
    [TS_BLOCK_IQ3_S] = {{0, 2, 1}},
    [TS_BLOCK_IQ2_S] = {{0, 2, 1}},
    [TS_BLOCK_IQ4_XS] = {{0, 2, 2}},
    [TS_BLOCK_IQ1_M] = {{48, 2, 4}},
    [TS_BLOCK_TQ1_0] = {{52, 2, 1}},
    [TS_BLOCK_TQ2_0] = {{64, 2, 1}},
    [TS_BLOCK_MXFP4] = {{0, 0, 0}},
    [TS_BLOCK_NVFP4] = {{0, 0, 0}},
    [TS_BLOCK_Q1_0] = {{0, 2, 1}},
    [TS_BLOCK_Q2_0] = {{0, 2, 1}},
};

void ts_block_swap(enum ts_block_type type, uint8_t *block)
{
    for (const struct field_run *run = field_runs[type]; run->bytes > 0; run++) {
        for (unsigned field = 0; field < run->count; field++) {
            uint8_t *first = block + run->offset + field * run->bytes, *last = first + run->bytes - 1;
            for (; first < last; first++, last--) {
                uint8_t byte = *first;
                *first = *last;
                *last = byte;
            }
        }
    }
}
