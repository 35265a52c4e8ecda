/* Quantized: weights that a checkpoint stores in parts (packed codes, scales, zero points), seen as one tensor.
 *
 * Recognizes the families that are in use (AWQ, GPTQ, bitsandbytes, MLX affine, FP8 with scales, compressed-tensors,
 * MXFP4 as GPT-OSS stores it) by names, types and shapes, and by the quantization settings of config.json where those
 * decide. Each group becomes one TS_CODED tensor in the place of its main part, named as the full-precision weight
 * would be; the parts stay reachable through it. A group that does not fit together (missing scales, wrong group size)
 * stays as its parts, and a finding says why. */
#ifndef TS_READ_QUANTIZED_H
#define TS_READ_QUANTIZED_H

#include "base/error.h"
#include "tensor/bundle.h"

enum ts_status ts_quantized_join(struct ts_bundle *bundle, struct ts_error *error);

#endif
