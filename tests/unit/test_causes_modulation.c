/* Adaptive norms. */
#include "test_causes.h"

#define MODULATED .at = "block_0_modulated", .made = make_block
#define RESIDUAL  .at = "block_0_residual", .made = make_block, .hidden = "gated"
#define GATED     .at = "block_0_gated", .made = make_block

static const struct row rows[] = {
    {"modulation", "scale and shift swapped", MODULATED, .candidate = {.chunks_exchanged = true},
     .words = {"the candidate swaps scale and shift of block_0_modulation"}, .near = "affine permuted channel-scaled"},
    {"term-missing", "1 +", MODULATED, .candidate = {.one_missing = true}, .words = {"\"1 +\" is missing"},
     .near = "modulation channel-scaled"},
    {"modulation", "no shift", MODULATED, .candidate = {.shift_missing = true},
     .words = {"does not apply the shift of block_0_modulation"}, .near = "offset"},
    {"modulation", "shift before scale", MODULATED, .candidate = {.shift_early = true},
     .words = {"adds the shift of block_0_modulation before it scales"}, .near = "offset"},
    {"modulation", "swapped, neither of them captured", MODULATED, .candidate = {.chunks_exchanged = true},
     .hidden = "modulation normed", .words = {"scale and shift of this norm are exchanged"},
     .near = "channel-scaled affine", .beside = "channel-scaled affine"},
    {"modulation", "shift before scale, neither of them captured", MODULATED, .candidate = {.shift_early = true},
     .hidden = "modulation normed", .words = {"adds the bias (or shift) before it multiplies"}, .near = "offset",
     .beside = "offset affine"},
    {"modulation", "gate's sign", RESIDUAL, .candidate = {.gate_negative = true},
     .words = {"subtracts gate * block_0_attn_out"}, .near = "sign-flipped"},
    {"modulation", "no gate", RESIDUAL, .candidate = {.gate_missing = true},
     .words = {"does not apply the gate of block_0_modulation"}, .near = "term-extra channel-scaled"},
    {"modulation", "another gate", RESIDUAL, .candidate = {.gate_other = true}, .words = {"with chunk 5"},
     .near = "channel-scaled wrong-input"},
    {"modulation", "another gate, before the sum", GATED, .candidate = {.gate_other = true},
     .words = {"gates block_0_attn_out with chunk 5 of block_0_modulation", "the reference with chunk 2"},
     .near = "channel-scaled wrong-input"},
    {"modulation", "gate's sign, before the sum", GATED, .candidate = {.gate_negative = true},
     .words = {"with the opposite sign"}, .near = "channel-scaled"},
    {"skipped-op", "no gate, before the sum", GATED, .candidate = {.gate_missing = true},
     .words = {"block_0_attn_out unchanged"}, .near = "channel-scaled"},
    {"wrong-input", "norm missing", MODULATED, .candidate = {.modulated_unnormed = true},
     .words = {"block_0_input instead of block_0_normed"}, .near = "modulation row-scaled"},
    {"modulation", "swapped, large values", MODULATED, .reference = {.large = true},
     .candidate = {.large = true, .chunks_exchanged = true}, .words = {"swaps scale and shift"}, .near = "inf clamped"},
    {"modulation", "gate's sign, large values", RESIDUAL, .reference = {.large = true},
     .candidate = {.large = true, .gate_negative = true}, .words = {"subtracts gate * block_0_attn_out"},
     .near = "inf"},
};

const struct table causes_modulation = TABLE("modulation", rows);
