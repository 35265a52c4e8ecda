/* Compiled once per instruction set; see base/level.h. */
#include "tensor/widen_kernel.h"

#include <stdbool.h>

#include "base/level.h"
#include "base/number.h"
#include "base/vector.h"

#define LANES (TS_VECTOR_BYTES / sizeof(float))

TS_KERNEL_INLINE void widen(bool brain, const uint8_t *src, size_t count, float *dst)
{
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const ts_vf32 v = brain ? ts_vf32_from_bf16(src + i * 2) : ts_vf32_from_f16(src + i * 2);
        memcpy(dst + i, &v, sizeof v);
    }
    for (; i < count; i++) {
        const uint16_t bits = ts_load_le16(src + i * 2);
        dst[i] = brain ? ts_bf16_to_float(bits) : ts_f16_to_float(bits);
    }
}

static void widen_bf16(const uint8_t *src, size_t count, float *dst)
{
    widen(true, src, count, dst);
}

static void widen_f16(const uint8_t *src, size_t count, float *dst)
{
    widen(false, src, count, dst);
}

const struct ts_widen_kernels TS_AT_LEVEL(ts_widen_kernels) = {.bf16 = widen_bf16, .f16 = widen_f16};
