/* The rows of what a name means only beside others of the same side, and of names that seem to stand in a layer. */
#include "pair/name_rows.h"

#include <stddef.h>

const struct ts_name_habit ts_name_habits[] = {
    /* Gemma 2: norms before and behind each part */
    {"post_feedforward_layernorm", "post_attention_layernorm", "post_attention_norm"},
    /* Arctic: a dense network beside the experts */
    {"residual_layernorm", "post_attention_layernorm", "ffn_norm_exps"},
    /* as LLaMA has them, not Qwen, which has two, or DINOv2, which has w12 and w3 */
    {"mlp.w1 mlp.w2 mlp.w3", "mlp_w1", "ffn_gate"},
    {"mlp.w1 mlp.w2 mlp.w3", "mlp_w2", "ffn_down"},
    {"mlp.w1 mlp.w2 mlp.w3", "mlp_w3", "ffn_up"},
    /* DBRX, whose experts are gated */
    {"experts.mlp.v1", "mlp_experts_mlp_w1", "ffn_gate_exps"},
    /* state space layers call it as attention is called elsewhere */
    {"mixer.in_proj", "mixer_out_proj", "ssm_out"},
    /* Kimi counts from 0 */
    {".norm0.", "norm1", "ffn_norm"},
    {".mlp.fc0.", "mlp_fc1", "ffn_down"},
    /* dots: gate, down, up */
    {".mlp.fc3.", "mlp_fc1", "ffn_gate"},
    {"mlp.router_bias", "mlp_router_bias", "exp_probs_b.bias"}, /* and not mlp.router.bias */
    /* conformers */
    {".conv.batch_norm.", "conv_norm", "norm_conv"},
    {"self_attn.bias_u", "attn_relative_k_proj", "linear_pos"},
    {"audio_tower", "multi_modal_projector_linear_#", "mm_a_mlp_#"},
    /* a convolution over frames, one file entry each */
    {"patch_embd.weight.1", "patch_embd", "patch_embd_0"},
    /* WavTokenizer: the norm in front */
    {"backbone.final_layer_norm", "norm", "token_embd_norm"},
    /* beside what comes out of the heads it is the stream behind attention */
    {"attn_context", "post_attn", "attn_resid"},
    {NULL, NULL, NULL},
};
_Static_assert(sizeof ts_name_habits / sizeof *ts_name_habits <= TS_NAME_HABITS, "room for every row");

const struct ts_scope_row ts_scope_rows[] = {
    {"", "sam", "vision_sam", false},
    {"qwen2_model.", "qwen2", "vision", false},
    {"", "vision_deepstack", "vision_deepstack", true},
    {"", "vision_deepstack_merger_list", "vision_deepstack", true},
    {"", "vision_merger_list", "vision_deepstack", true},
    {"", "layerwise_projectors", "vision_proj", false},
    {"", "spatial_projectors", "vision_proj", false},
    {"", "layerwise_projectors_qformer_encoder", "vision_proj", false},
    {"", "spatial_projectors_qformer_encoder", "vision_proj", false},
    {"", "projector_qformer_encoder", "audio_proj", false},
    {"", "audio_input_local", "audio_local", false},
    {".conv.depth_conv.", "encoder", "audio", false},         /* Granite's speech encoder */
    {"encoder.down_sample_layer", "encoder", "audio", false}, /* MiMo's audio tokenizer */
    {NULL, NULL, NULL, false},
};
_Static_assert(sizeof ts_scope_rows / sizeof *ts_scope_rows <= TS_NAME_HABITS, "room for every row");

const struct ts_name_row ts_whole_rows[] = {
    {"token_embd_norm", "blocks_0_pre_ln layers_0_pre_norm", TS_NAME_WEIGHT},
    {"conv1d_#", "subsample_conv_projection_layer#_conv subsampling_layers_# speaker_encoder_blocks_#_conv",
     TS_NAME_WEIGHT},
    {"conv1d_#_norm", "subsample_conv_projection_layer#_norm", TS_NAME_WEIGHT},
    {"downsample_conv", "encoder_down_sample_layer_0", TS_NAME_WEIGHT},
    {"mm_model_mlp_#", "aligner_fc1_hidden_layers_#", TS_NAME_WEIGHT},
    {NULL, NULL, TS_NAME_ANY},
};
