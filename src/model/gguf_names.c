/* The architectures of GGUF files that can be run, and what their tensors are called in transformers. */
#include <stddef.h>

#include "model/gguf_model.h"

const struct ts_gguf_row ts_gguf_layer_rows[] = {
    {"attn_norm", "input_layernorm", TS_GGUF_PLAIN},
    {"attn_q", "self_attn.q_proj", TS_GGUF_PLAIN},
    {"attn_k", "self_attn.k_proj", TS_GGUF_PLAIN},
    {"attn_v", "self_attn.v_proj", TS_GGUF_PLAIN},
    {"attn_qkv", "self_attn.qkv_proj", TS_GGUF_PLAIN},
    {"attn_q_norm", "self_attn.q_norm", TS_GGUF_PLAIN},
    {"attn_k_norm", "self_attn.k_norm", TS_GGUF_PLAIN},
    {"attn_output", "self_attn.o_proj", TS_GGUF_PLAIN},
    {"post_attention_norm", "post_attention_layernorm", TS_GGUF_PLAIN},
    {"ffn_norm", "post_attention_layernorm", TS_GGUF_PLAIN},
    {"ffn_gate", "mlp.gate_proj", TS_GGUF_PLAIN},
    {"ffn_up", "mlp.up_proj", TS_GGUF_PLAIN},
    {"ffn_down", "mlp.down_proj", TS_GGUF_PLAIN},
    {"ffn_gate_inp", "mlp.gate", TS_GGUF_PLAIN},
    {"ffn_gate_exps", "mlp.experts.gate_proj", TS_GGUF_BARE},
    {"ffn_up_exps", "mlp.experts.up_proj", TS_GGUF_BARE},
    {"ffn_gate_up_exps", "mlp.experts.gate_up_proj", TS_GGUF_BARE},
    {"ffn_down_exps", "mlp.experts.down_proj", TS_GGUF_BARE},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", TS_GGUF_PLAIN},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj", TS_GGUF_PLAIN},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj", TS_GGUF_PLAIN},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", TS_GGUF_PLAIN},
    {NULL, NULL, TS_GGUF_PLAIN},
};

const struct ts_gguf_row ts_gguf_model_rows[] = {
    {"token_embd", "model.embed_tokens", TS_GGUF_PLAIN},
    {"output_norm", "model.norm", TS_GGUF_PLAIN},
    {"output", "lm_head", TS_GGUF_PLAIN},
    {NULL, NULL, TS_GGUF_PLAIN},
};

static const struct ts_gguf_row gemma_rows[] = {
    {"ffn_norm", "pre_feedforward_layernorm", TS_GGUF_PLAIN},
    {"post_ffw_norm", "post_feedforward_layernorm", TS_GGUF_PLAIN},
    {NULL, NULL, TS_GGUF_PLAIN},
};

static const struct ts_gguf_row gemma3n_rows[] = {
    {"ffn_norm", "pre_feedforward_layernorm", TS_GGUF_PLAIN},
    {"post_ffw_norm", "post_feedforward_layernorm", TS_GGUF_PLAIN},
    {"inp_gate", "per_layer_input_gate", TS_GGUF_PLAIN},
    {"proj", "per_layer_projection", TS_GGUF_PLAIN},
    {"post_norm", "post_per_layer_input_norm", TS_GGUF_PLAIN},
    {"altup_correct_coef", "altup.correction_coefs", TS_GGUF_PLAIN},
    {"altup_correct_scale", "altup.correct_output_scale", TS_GGUF_BARE},
    {"altup_predict_coef", "altup.prediction_coefs", TS_GGUF_PLAIN},
    {"altup_router", "altup.modality_router", TS_GGUF_PLAIN},
    {"altup_router_norm", "altup.router_norm", TS_GGUF_PLAIN},
    {"laurel_l", "laurel.linear_left", TS_GGUF_PLAIN},
    {"laurel_r", "laurel.linear_right", TS_GGUF_PLAIN},
    {"laurel_post_norm", "laurel.post_laurel_norm", TS_GGUF_PLAIN},
    {NULL, NULL, TS_GGUF_PLAIN},
};

static const struct ts_gguf_row gemma3n_model_rows[] = {
    {"per_layer_token_embd", "model.embed_tokens_per_layer", TS_GGUF_PLAIN},
    {"per_layer_model_proj", "model.per_layer_model_projection", TS_GGUF_PLAIN},
    {"per_layer_proj_norm", "model.per_layer_projection_norm", TS_GGUF_PLAIN},
    {"altup_proj", "model.altup_projections", TS_GGUF_SPREAD},
    {"altup_unembd_proj", "model.altup_unembed_projections", TS_GGUF_SPREAD},
    {NULL, NULL, TS_GGUF_PLAIN},
};

static const struct ts_gguf_row phi3_rows[] = {
    {"ffn_up", "mlp.gate_up_proj", TS_GGUF_PLAIN},
    {NULL, NULL, TS_GGUF_PLAIN},
};

static const struct ts_gguf_row gpt2_rows[] = {
    {"attn_norm", "ln_1", TS_GGUF_PLAIN},
    {"attn_qkv", "attn.c_attn", TS_GGUF_TURNED},
    {"attn_output", "attn.c_proj", TS_GGUF_TURNED},
    {"ffn_norm", "ln_2", TS_GGUF_PLAIN},
    {"ffn_up", "mlp.c_fc", TS_GGUF_TURNED},
    {"ffn_down", "mlp.c_proj", TS_GGUF_TURNED},
    {NULL, NULL, TS_GGUF_PLAIN},
};

static const struct ts_gguf_row gpt2_model_rows[] = {
    {"token_embd", "transformer.wte", TS_GGUF_PLAIN},
    {"position_embd", "transformer.wpe", TS_GGUF_PLAIN},
    {"output_norm", "transformer.ln_f", TS_GGUF_PLAIN},
    {NULL, NULL, TS_GGUF_PLAIN},
};

static const struct ts_gguf_row gpt_oss_rows[] = {
    {"attn_sinks", "self_attn.sinks", TS_GGUF_BARE},
    {"ffn_gate_inp", "mlp.router", TS_GGUF_PLAIN},
    {"ffn_down_exps", "mlp.experts.down_proj", TS_GGUF_BARE | TS_GGUF_TURNED},
    {NULL, NULL, TS_GGUF_PLAIN},
};

static const struct ts_gguf_row deepseek_rows[] = {
    {"attn_q_a", "self_attn.q_a_proj", TS_GGUF_PLAIN},
    {"attn_q_a_norm", "self_attn.q_a_layernorm", TS_GGUF_PLAIN},
    {"attn_q_b", "self_attn.q_b_proj", TS_GGUF_PLAIN},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", TS_GGUF_PLAIN},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm", TS_GGUF_PLAIN},
    {"attn_kv_b", "self_attn.kv_b_proj", TS_GGUF_PLAIN},
    {"exp_probs_b", "mlp.gate.e_score_correction", TS_GGUF_BARE},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", TS_GGUF_PLAIN},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", TS_GGUF_PLAIN},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", TS_GGUF_PLAIN},
    {NULL, NULL, TS_GGUF_PLAIN},
};

#define LAYERS "model.layers."

const struct ts_gguf_architecture ts_gguf_architectures[] = {
    {.name = "llama", .type = "llama", .function = "silu", .pairs = true, .renormalise = true, .layers = LAYERS},
    {.name = "qwen2", .type = "qwen2", .function = "silu", .layers = LAYERS},
    {.name = "qwen3", .type = "qwen3", .function = "silu", .layers = LAYERS},
    {.name = "qwen2moe", .type = "qwen2_moe", .function = "silu", .layers = LAYERS},
    {.name = "qwen3moe", .type = "qwen3_moe", .function = "silu", .renormalise = true, .layers = LAYERS},
    {.name = "olmoe", .type = "olmoe", .function = "silu", .layers = LAYERS},
    {.name = "gemma2",
     .type = "gemma2",
     .function = "gelu_pytorch_tanh",
     .period = 2,
     .shifted = true,
     .layers = LAYERS,
     .rows = gemma_rows},
    {.name = "gemma3",
     .type = "gemma3_text",
     .function = "gelu_pytorch_tanh",
     .period = 6,
     .shifted = true,
     .layers = LAYERS,
     .rows = gemma_rows},
    {.name = "gemma3n",
     .type = "gemma3n_text",
     .function = "gelu_pytorch_tanh",
     .period = 5,
     .layers = LAYERS,
     .rows = gemma3n_rows,
     .model_rows = gemma3n_model_rows},
    {.name = "phi3", .type = "phi3", .function = "silu", .layers = LAYERS, .rows = phi3_rows},
    {.name = "gpt2",
     .type = "gpt2",
     .function = "gelu_new",
     .layers = "transformer.h.",
     .rows = gpt2_rows,
     .model_rows = gpt2_model_rows},
    {.name = "gpt-oss", .type = "gpt_oss", .function = "silu", .period = 2, .layers = LAYERS, .rows = gpt_oss_rows},
    {.name = "deepseek2", .type = "deepseek_v3", .function = "silu", .layers = LAYERS, .rows = deepseek_rows},
    {0},
};
