/* Codebooks: the constants of ggml's IQ and FP4 block types.
 *
 * A grid entry gives several neighbouring elements at once, a byte each, the first in the lowest byte. */
#ifndef TS_TENSOR_CODEBOOKS_H
#define TS_TENSOR_CODEBOOKS_H

#include <stdint.h>

extern const uint64_t ts_grid_iq1[2048]; /* IQ1_S, IQ1_M: -8, 0 or 8, which is eight times what ggml has */

extern const uint64_t ts_grid_iq2_xxs[256]; /* IQ2_*: 8, 25 or 43 */
extern const uint64_t ts_grid_iq2_xs[512];
extern const uint64_t ts_grid_iq2_s[1024];

extern const uint32_t ts_grid_iq3_xxs[256]; /* 4, 12 ... 52, 62 */
extern const uint32_t ts_grid_iq3_s[512];   /* 1, 3 ... 15 */

/* What the 4-bit codes of IQ4_NL and IQ4_XS stand for. */
extern const int8_t ts_values_iq4[16];

/* Floats of sign, two bits of exponent and one of mantissa, times two, which makes them integers. Minus zero is plain
 * zero here, as in ggml. */
extern const int8_t ts_values_fp4[16];

#endif
