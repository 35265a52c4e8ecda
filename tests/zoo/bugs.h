/* Bugs: one function each, which changes a model and says whether the model has a place for it. */
#ifndef ZOO_BUGS_H
#define ZOO_BUGS_H

#include "zoo.h"

#define BUG(name) bool zoo_bug_##name(struct zoo_model *m, int l, struct zoo_random *r)
#define UNUSED(x) ((void)(x))

BUG(rope_theta);
BUG(rope_factor_missing);
BUG(rope_off_by_one);
BUG(rope_keys_from_one);
BUG(rope_last_position);
BUG(rope_twice);
BUG(rope_missing);
BUG(rope_sign);
BUG(rope_half);
BUG(rope_pairing);
BUG(position_missing);
BUG(swapped_q_k);
BUG(previous_v);
BUG(stale_cache);
BUG(kv_tiled);
BUG(kv_duplicated);
BUG(mask_missing);
BUG(mask_off_by_one);
BUG(window_missing);
BUG(window_off_by_one);
BUG(score_cap_missing);
BUG(slopes_missing);
BUG(slopes_wrong);
BUG(sinks_missing);
BUG(attention_unscaled);
BUG(attention_scaled_twice);
BUG(attention_scale_of_hidden);
BUG(softmax_temperature);
BUG(softmax_axis);
BUG(head_layout);
BUG(epsilon);
BUG(epsilon_large);
BUG(norm_of_another_layer);
BUG(norm_plus_one);
BUG(norm_weight_missing);
BUG(norm_bias_missing);
BUG(mean_not_removed);
BUG(layer_norm_for_rms);
BUG(norm_skipped);
BUG(qk_norm_missing);
BUG(mlp_norm_wrong_input);
BUG(attn_residual);
BUG(mlp_residual);
BUG(residual_normed);
BUG(residual_factor_missing);
BUG(activation_missing);
BUG(activation_relu);
BUG(activation_gelu);
BUG(activation_quick_gelu);
BUG(activation_silu);
BUG(gate_up_swapped);
BUG(experts_swapped);
BUG(gates_reversed);
BUG(gates_ignored);
BUG(gates_renormalized);
BUG(router_sigmoid);
BUG(router_factor_missing);
BUG(shared_expert_missing);
BUG(shift_scale_swapped);
BUG(chunk_of_the_other_half);
BUG(one_plus_missing);
BUG(gate_missing);
BUG(gate_sign);
BUG(embed_scale_missing);
BUG(logit_cap_missing);
BUG(token_off_by_one);
BUG(bias_missing);
BUG(bias_doubled);
BUG(input_channel_zeroed);
BUG(output_channel_zeroed);
BUG(bit_flipped);
BUG(weight_transposed);
BUG(weight_of_another_layer);
BUG(q_heads_permuted);
BUG(partial_sum_missing);
BUG(reduced_twice);
BUG(output_channel_negated);
BUG(few_nan);
BUG(few_infinite);
BUG(few_wrong);
BUG(zero_tail);
BUG(stale_chunk);
BUG(token_rolled);
BUG(sign_flipped);
BUG(head_zero);
BUG(head_offset);
BUG(type_confused);
BUG(channel_scaled);
BUG(clamped);
BUG(unwritten);
BUG(scaled);
BUG(row_copied);

#endif
