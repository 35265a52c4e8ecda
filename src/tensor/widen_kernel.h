/* The inner loops of reading sixteen-bit numbers as f32. */
#ifndef TS_TENSOR_WIDEN_KERNEL_H
#define TS_TENSOR_WIDEN_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

struct ts_widen_kernels {
    void (*bf16)(const uint8_t *src, size_t count, float *dst);
    void (*f16)(const uint8_t *src, size_t count, float *dst);
};

TS_DECLARE_TABLES(const struct ts_widen_kernels, ts_widen_kernels);

#endif
