/* What names say: layers, kinds, experts, ranks, sequence numbers, in the conventions of several programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pair/names.h"

static struct ts_arena arena;

static int start(void **state)
{
    (void)state;
    ts_arena_init(&arena, (size_t)64 << 20);
    return 0;
}

static int end(void **state)
{
    (void)state;
    ts_arena_release(&arena);
    return 0;
}

static struct ts_name name_of(const char *name)
{
    struct ts_names names;
    assert_true(ts_names_make(&name, 1, 0, &arena, &names));
    return names.list[0];
}

static void check(const char *text, int64_t layer, const char *kind)
{
    struct ts_name name = name_of(text);
    if (name.layer != layer || strcmp(name.kind, kind) != 0)
        fail_msg("%s: layer %ld, %s instead of layer %ld, %s", text, (long)name.layer, name.kind, (long)layer, kind);
}

/* Every way a layer is written. */
static void test_layer_forms(void **state)
{
    static const char *const forms[] = {"3_query",
                                        "layer_3_query",
                                        "layer_3.query",
                                        "model.layers.3.query",
                                        "layers.3.query",
                                        "blk.3.query",
                                        "h.3.query",
                                        "block_3_query",
                                        "block_3.query",
                                        "L3.query",
                                        "layer3.query",
                                        "py_layer_3_query",
                                        "cpp_layer_3_query",
                                        "module.layers.3.query",
                                        "_orig_mod.model.layers.3.query",
                                        "model._orig_mod.layers.3._fsdp_wrapped_module.query",
                                        "3_query.pth",
                                        "layer_3/query.pt",
                                        "layer_3:query",
                                        "Qcur-3",
                                        "transformer.layers.3.attn.query",
                                        "model.layers.layers.3.query",
                                        "DecoderLayer_3.query",
                                        "TransformerBlock3.query",
                                        "decoderLayers.3.query",
                                        "layer_idx_3_query"};
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        check(forms[i], 3, "attn_q");
}

/* The rows of the table of debug_seeds: one kind, as several tools call it. */
static void test_traces(void **state)
{
    static const struct {
        const char *kind, *names[6];
    } rows[] = {
        {"token_embd", {"input_embeddings", "initial_embedding", "model.embed_tokens", "inp_embd", "transformer.wte"}},
        {"layer_in", {"layer_0_input_hidden_states", "layer_0.active_stream_initial"}},
        {"attn_norm",
         {"0_post_ln_pre_attn", "layer_0_attn_norm_output", "layer_0.pre_attention_norm", "attn_norm-0",
          "model.layers.0.input_layernorm", "transformer.h.0.ln_1"}},
        {"attn_q", {"0_query", "layer_0_attn_q_proj_raw", "layer_0.attn.q_proj", "model.layers.0.self_attn.q_proj"}},
        {"attn_k", {"0_key", "layer_0_attn_k_proj_raw", "layer_0.attn.k_proj", "model.layers.0.self_attn.k_proj"}},
        {"attn_v", {"0_value", "layer_0_attn_v_proj_raw", "layer_0.attn.v_proj", "model.layers.0.self_attn.v_proj"}},
        {"attn_q_norm", {"layer_0_attn_q_normed", "layer_0.attn.q_norm", "model.layers.0.self_attn.q_norm"}},
        {"attn_k_rope",
         {"0_key_final", "layer_0_attn_k_rope", "layer_0.attn.k_after_rope", "rope_call_0.k",
          "model.layers.0.self_attn.k_rope"}},
        {"attn_scores",
         {"layer_0_attn_scores", "layer_0.attn.raw_attn_weights", "model.layers.0.self_attn.attn_scores"}},
        {"attn_probs",
         {"layer_0_attn_weights", "layer_0.attn.attn_weights_post_softmax", "layer_0_attn_probs", "kq_soft_max-0",
          "model.layers.0.self_attn.1", "model.layers.0.self_attn.attn_probs"}},
        {"attn_context",
         {"0_post_attn", "layer_0_attn_values_output", "layer_0.attn.o_proj_input", "kqv_out-0",
          "model.layers.0.self_attn.attn_context"}},
        {"attn_output", {"0_post_attn_pre_resid", "layer_0_attn_o_proj", "model.layers.0.self_attn.o_proj"}},
        {"attn_out", {"layer_0.attn.attn_output", "model.layers.0.self_attn.0", "attn_out-0"}},
        {"attn_resid", {"layer_0_attn_residual_output", "model.layers.0.attn_residual", "ffn_inp-0"}},
        {"ffn_norm",
         {"0_pre_mlp", "layer_0_mlp_norm_output", "layer_0.pre_ffw_norm", "ffn_norm-0",
          "model.layers.0.post_attention_layernorm"}},
        {"ffn_gate", {"layer_0_mlp_gate_proj", "layer_0.mlp.gate_proj", "ffn_gate-0", "model.layers.0.mlp.gate_proj"}},
        {"ffn_up", {"layer_0_mlp_up_proj", "layer_0.mlp.up_proj", "ffn_up-0", "transformer.h.0.mlp.c_fc"}},
        {"ffn_mid", {"layer_0_mlp_intermediate", "layer_0.mlp.activations", "ffn_gate_par-0"}},
        {"ffn_out", {"0_post_mlp", "layer_0_mlp_output", "layer_0.mlp_output", "ffn_out-0", "model.layers.0.mlp"}},
        {"layer_out",
         {"layer_0_layer_output", "layer_0.final_output", "l_out-0", "model.layers.0", "block_0_block_output"}},
        {"output_norm", {"final_norm_output", "result_norm", "model.norm", "transformer.ln_f"}},
        {"input_ids", {"py_layer_input_input_ids", "cpp_input_ids", "inp_tokens"}},
        {"output_norm", {"py_layer_output_final_norm_output"}},
        {"router_logits", {"layer_0_router_logits", "model.layers.0.mlp.gate.0", "ffn_moe_logits-0"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < 6 && rows[i].names[k]; k++)
            check(rows[i].names[k], name_of(rows[i].names[k]).layer >= 0 ? 0 : -1, rows[i].kind);
}

/* llama.cpp's converter writes the first for the second. */
static void test_weights(void **state)
{
    static const char *const pairs[][2] = {
        {"token_embd.weight", "model.embed_tokens.weight"},
        {"token_embd.weight", "transformer.wte.weight"},
        {"token_embd.weight", "gpt_neox.embed_in.weight"},
        {"token_embd.weight", "tok_embeddings.weight"},
        {"token_embd.weight", "model.language_model.embed_tokens.weight"},
        {"token_embd.weight", "backbone.embeddings.weight"},
        {"position_embd.weight", "transformer.wpe.weight"},
        {"token_types.weight", "embeddings.token_type_embeddings.weight"},
        {"token_embd_norm.weight", "word_embeddings_layernorm.weight"},
        {"output.weight", "lm_head.weight"},
        {"output.weight", "embed_out.weight"},
        {"output_norm.weight", "model.norm.weight"},
        {"output_norm.bias", "transformer.ln_f.bias"},
        {"output_norm.weight", "gpt_neox.final_layer_norm.weight"},
        {"blk.7.attn_norm.weight", "model.layers.7.input_layernorm.weight"},
        {"blk.7.attn_norm.weight", "transformer.blocks.7.norm_attn_norm.norm_1.weight"},
        {"blk.7.attn_qkv.weight", "transformer.h.7.attn.c_attn.weight"},
        {"blk.7.attn_qkv.weight", "gpt_neox.layers.7.attention.query_key_value.weight"},
        {"blk.7.attn_qkv.weight", "model.layers.7.self_attn.qkv_proj.weight"},
        {"blk.7.attn_q.weight", "model.layers.7.self_attn.q_proj.weight"},
        {"blk.7.attn_q.bias", "model.layers.7.self_attn.q_proj.bias"},
        {"blk.7.attn_q.weight", "layers.7.attention.wq.weight"},
        {"blk.7.attn_k.weight", "encoder.layer.7.attention.self.key.weight"},
        {"blk.7.attn_v.weight", "transformer.h.7.attn.attention.v_proj.weight"},
        {"blk.7.attn_output.weight", "model.layers.7.self_attn.o_proj.weight"},
        {"blk.7.attn_output.weight", "gpt_neox.layers.7.attention.dense.weight"},
        {"blk.7.attn_output.weight", "encoder.layer.7.attention.output.dense.weight"},
        {"blk.7.attn_output_norm.weight", "encoder.layer.7.attention.output.LayerNorm.weight"},
        {"blk.7.layer_output_norm.weight", "encoder.layer.7.output.LayerNorm.weight"},
        {"blk.7.attn_q_norm.weight", "model.layers.7.self_attn.q_norm.weight"},
        {"blk.7.attn_k_norm.weight", "transformer.layers.7.attn.k_norm.weight"},
        {"blk.7.attn_sinks.weight", "model.layers.7.self_attn.sinks"},
        {"blk.7.ffn_norm.weight", "model.layers.7.post_attention_layernorm.weight"},
        {"blk.7.ffn_norm.weight", "model.layers.7.pre_feedforward_layernorm.weight"},
        {"blk.7.post_ffw_norm.weight", "model.layers.7.post_feedforward_layernorm.weight"},
        {"blk.7.ffn_gate.weight", "model.layers.7.mlp.gate_proj.weight"},
        {"blk.7.ffn_gate.weight", "layers.7.feed_forward.w1.weight"},
        {"blk.7.ffn_up.weight", "layers.7.feed_forward.w3.weight"},
        {"blk.7.ffn_down.weight", "layers.7.feed_forward.w2.weight"},
        {"blk.7.ffn_up.weight", "transformer.h.7.mlp.c_fc.weight"},
        {"blk.7.ffn_down.bias", "gpt_neox.layers.7.mlp.dense_4h_to_h.bias"},
        {"blk.7.ffn_gate_inp.weight", "model.layers.7.mlp.gate.weight"},
        {"blk.7.ffn_gate_inp.weight", "model.layers.7.block_sparse_moe.gate.weight"},
        {"blk.7.ffn_gate_inp.weight", "model.layers.7.mlp.router.weight"},
        {"blk.7.ffn_gate_inp_shexp.weight", "model.layers.7.mlp.shared_expert_gate.weight"},
        {"blk.7.ffn_up_shexp.weight", "model.layers.7.mlp.shared_experts.up_proj.weight"},
        {"blk.7.exp_probs_b.bias", "model.layers.7.mlp.gate.e_score_correction_bias"},
        {"blk.7.ffn_down_exps.weight", "model.layers.7.mlp.experts.down_proj"},
        {"blk.7.ffn_gate_up_exps.bias", "model.layers.7.mlp.experts.gate_up_proj_bias"},
        {"blk.7.ffn_gate_up_exps.weight", "model.layers.7.mlp.experts.w13_weight"},
        {"blk.7.ffn_gate_up_exps.bias", "model.layers.7.mlp.experts.w13_bias"},
        {"blk.7.ffn_gate_up_exps.weight", "model.layers.7.block_sparse_moe.experts.w13_weight"},
        {"blk.7.ffn_down_exps.weight", "model.layers.7.mlp.experts.w2_weight"},
        {"blk.7.ffn_up_exps.weight", "model.layers.7.mlp.switch_mlp.up_proj.weight"},
        {"blk.7.attn_q_a.weight", "model.layers.7.self_attn.q_a_proj.weight"},
        {"blk.7.attn_q_a_norm.weight", "model.layers.7.self_attn.q_a_layernorm.weight"},
        {"blk.7.attn_kv_a_mqa.weight", "model.layers.7.self_attn.kv_a_proj_with_mqa.weight"},
        {"blk.7.attn_kv_b.weight", "model.layers.7.self_attn.kv_b_proj.weight"},
        {"blk.7.ssm_in.weight", "backbone.layers.7.mixer.in_proj.weight"},
        {"blk.7.ssm_a", "backbone.layers.7.mixer.A_log"},
        {"blk.7.ssm_d", "model.layers.7.mamba.D"},
        {"blk.7.ssm_dt.bias", "backbone.layers.7.mixer.dt_bias"},
        {"blk.7.ssm_conv1d.weight", "model.layers.7.linear_attn.conv1d.weight"},
        {"blk.7.time_mix_lerp_k.weight", "rwkv.blocks.7.attention.time_maa_k"},
        {"blk.7.channel_mix_key.weight", "rwkv.blocks.7.feed_forward.key.weight"},
        {"blk.7.altup_correct_scale.weight", "model.layers.7.altup.correct_output_scale"},
        {"blk.7.laurel_l.weight", "model.language_model.layers.7.laurel.linear_left.weight"},
        {"blk.7.inp_gate.weight", "model.layers.7.per_layer_input_gate.weight"},
        {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
        {"enc.blk.7.ffn_norm.weight", "encoder.block.7.layer.1.layer_norm.weight"},
        {"dec.blk.7.cross_attn_q.weight", "decoder.block.7.layer.1.EncDecAttention.q.weight"},
        {"dec.blk.7.ffn_up.weight", "decoder.block.7.layer.2.DenseReluDense.wi_1.weight"},
        {"v.blk.7.ln1.weight", "model.vision_tower.vision_model.encoder.layers.7.layer_norm1.weight"},
        {"v.blk.7.ffn_down.weight", "visual.blocks.7.mlp.fc2.weight"},
        {"v.patch_embd.weight", "vision_tower.vision_model.embeddings.patch_embedding.weight"},
        {"v.post_ln.weight", "vision_tower.vision_model.post_layernorm.weight"},
        {"a.blk.7.conv_dw.weight", "conformer.layers.7.conv.depthwise_conv.weight"},
        {"mm.2.bias", "multi_modal_projector.linear_2.bias"},
        {"blk.7.nextn.eh_proj.weight", "model.layers.7.eh_proj.weight"},
        /* BERT's first files, Keras and Flax */
        {"bert.encoder.layer.7.output.LayerNorm.gamma", "bert.encoder.layer.7.output.LayerNorm.weight"},
        {"bert.embeddings.LayerNorm.beta", "bert.embeddings.LayerNorm.bias"},
        {"encoder/layer/7/attention/self/query/kernel", "encoder.layer.7.attention.self.query.weight"},
        /* Megatron */
        {"decoder.final_layernorm.weight", "model.norm.weight"},
        /* Whisper of OpenAI and of transformers */
        {"encoder.blocks.7.attn_ln.weight", "model.encoder.layers.7.self_attn_layer_norm.weight"},
        {"decoder.blocks.7.cross_attn.query.bias", "model.decoder.layers.7.encoder_attn.q_proj.bias"},
        {"decoder.blocks.7.cross_attn_ln.bias", "model.decoder.layers.7.encoder_attn_layer_norm.bias"},
        {"decoder.blocks.7.mlp.0.weight", "model.decoder.layers.7.fc1.weight"},
        {"decoder.blocks.7.mlp.2.bias", "model.decoder.layers.7.fc2.bias"},
        {"decoder.blocks.7.mlp_ln.weight", "model.decoder.layers.7.final_layer_norm.weight"},
        {"encoder.positional_embedding", "model.encoder.embed_positions.weight"},
        {"decoder.positional_embedding", "model.decoder.embed_positions.weight"},
        {"decoder.token_embedding.weight", "model.decoder.embed_tokens.weight"},
        {"encoder.ln_post.weight", "model.encoder.layer_norm.weight"},
        {"decoder.ln.bias", "model.decoder.layer_norm.bias"},
        /* ViT of timm and of transformers, CLIP of OpenAI and of transformers */
        {"cls_token", "vit.embeddings.cls_token"},
        {"pos_embed", "vit.embeddings.position_embeddings"},
        {"patch_embed.proj.weight", "vit.embeddings.patch_embeddings.projection.weight"},
        {"norm.weight", "vit.layernorm.weight"},
        {"positional_embedding", "text_model.embeddings.position_embedding.weight"},
        {"ln_final.weight", "text_model.final_layer_norm.weight"},
        /* Flux and Stable Diffusion 3 of their makers and of diffusers */
        {"double_blocks.7.img_attn.qkv.weight", "joint_blocks.7.x_block.attn.qkv.weight"},
        {"double_blocks.7.img_attn.norm.query_norm.scale", "transformer_blocks.7.attn.norm_q.weight"},
        {"double_blocks.7.txt_attn.norm.key_norm.scale", "transformer_blocks.7.attn.norm_added_k.weight"},
        {"double_blocks.7.txt_mlp.2.bias", "transformer_blocks.7.ff_context.net.2.bias"},
        {"double_blocks.7.img_mlp.0.weight", "transformer_blocks.7.ff.net.0.proj.weight"},
        {"double_blocks.7.img_mod.lin.weight", "transformer_blocks.7.norm1.linear.weight"},
        {"single_blocks.7.modulation.lin.weight", "single_transformer_blocks.7.norm.linear.weight"},
        {"single_blocks.7.linear2.weight", "single_transformer_blocks.7.proj_out.weight"},
        {"final_layer.linear.weight", "proj_out.weight"},
        {"model/layers/7/input_layernorm/scale", "model.layers.7.input_layernorm.weight"},
        {"model/embed_tokens/embedding", "model.embed_tokens.weight"},
        /* torchtune and LitGPT */
        {"layers.7.sa_norm.scale", "model.layers.7.input_layernorm.weight"},
        {"layers.7.attn.output_proj.weight", "model.layers.7.self_attn.o_proj.weight"},
        {"transformer.h.7.mlp.fc_1.weight", "model.layers.7.mlp.gate_proj.weight"},
        {"transformer.h.7.mlp.fc_2.weight", "model.layers.7.mlp.up_proj.weight"},
        {"transformer.h.7.mlp.proj.weight", "model.layers.7.mlp.down_proj.weight"},
        /* torch.nn.TransformerEncoderLayer */
        {"layers.7.linear1.weight", "encoder.layer.7.intermediate.dense.weight"},
        {"layers.7.linear2.bias", "encoder.layer.7.output.dense.bias"},
        {"layers.7.self_attn.in_proj_weight", "blk.7.attn_qkv.weight"},
        /* adapters, and modules that have one */
        {"blk.7.attn_q.weight.lora_a", "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"},
        {"model.layers.7.mlp.down_proj.lora_b", "base_model.model.model.layers.7.mlp.down_proj.lora_B.default.weight"},
        {"blk.7.attn_v.weight", "base_model.model.model.layers.7.self_attn.v_proj.base_layer.weight"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct ts_name one = name_of(pairs[i][0]), other = name_of(pairs[i][1]);
        if (strcmp(one.kind, other.kind) != 0 || one.layer != other.layer || !one.weight || !other.weight)
            fail_msg("%s is %s, %s is %s", pairs[i][0], one.kind, pairs[i][1], other.kind);
    }
}

/* A weight is not what a module computes, and the towers of a model are not its decoder. */
static void test_kept_apart(void **state)
{
    static const char *const different[][2] = {
        {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj"},
        {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.bias"},
        {"model.layers.0.mlp.gate.weight", "model.layers.0.mlp.gate_proj.weight"},
        {"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.shared_experts.up_proj.weight"},
        {"model.layers.0.self_attn.q_norm", "model.layers.0.self_attn.q_rope"},
        {"3_query", "3_query_final"},
        {"3_post_attn", "3_post_attn_pre_resid"},
        {"model.layers.0.altup.router_norm", "model.layers.0.altup.router_norm#2"},
        {"copy_x", "x"},
        {"model.layers.0.self_attn.q_proj.lora_A.weight", "model.layers.0.self_attn.q_proj.lora_B.weight"},
        {"model.layers.0.self_attn.q_proj.lora_A.weight", "model.layers.0.self_attn.q_proj.weight"},
        {"double_blocks.0.img_attn.proj.weight", "double_blocks.0.txt_attn.proj.weight"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof different / sizeof *different; i++)
        if (strcmp(name_of(different[i][0]).kind, name_of(different[i][1]).kind) == 0)
            fail_msg("%s and %s are both %s", different[i][0], different[i][1], name_of(different[i][0]).kind);
    assert_string_equal(name_of("v.blk.3.attn_q.weight").scope, "vision");
    assert_string_equal(name_of("model.visual.blocks.3.attn.q.weight").scope, "vision");
    assert_string_equal(name_of("blk.3.attn_q.weight").scope, "");
    assert_string_equal(name_of("decoder.block.0.layer.0.SelfAttention.q.weight").scope, "decoder");
    assert_string_equal(name_of("model.layers.0.x").scope, "");
    assert_string_equal(name_of("state_dict.model.layers.0.x").scope, "");
    assert_string_equal(name_of("model_state_dict.layers.0.x").scope, "");
    assert_string_equal(name_of("ema.model.layers.0.x").scope, "ema");
    assert_string_equal(name_of("double_blocks.0.x").scope, name_of("transformer_blocks.0.x").scope);
    assert_string_equal(name_of("single_blocks.0.x").scope, name_of("single_transformer_blocks.0.x").scope);
    assert_string_not_equal(name_of("single_blocks.0.x").scope, "");
    assert_string_equal(name_of("model.layers.layers.0.x").scope, "");
}

static void test_unknown_words_meet(void **state)
{
    (void)state;
    check("layer_3.foo_bar", 3, "foo_bar");
    check("model.layers.3.foo.bar", 3, "foo_bar");
    check("py_layer_3_copy_state", 3, "copy_state");
    check("cpp_layer_3_copy_state", 3, "copy_state"); /* "py_" inside a name is no prefix */
    check("Foo.Bar-Baz", -1, "foo_bar_baz");
    check("", -1, "");
    check("::", -1, "::");
}

static void test_experts_and_ranks(void **state)
{
    (void)state;
    assert_int_equal(name_of("model.layers.3.mlp.experts.7.gate_proj.weight").expert, 7);
    check("model.layers.3.mlp.experts.7.gate_proj.weight", 3, "ffn_gate_exps.weight");
    assert_int_equal(name_of("model.layers.3.block_sparse_moe.experts.2.w3.weight").expert, 2);
    check("model.layers.3.block_sparse_moe.experts.2.w3.weight", 3, "ffn_up_exps.weight");
    assert_int_equal(name_of("blk.3.ffn_down.5.weight").expert, 5);
    check("blk.3.ffn_down.5.weight", 3, "ffn_down_exps.weight");
    assert_int_equal(name_of("blk.3.ffn_down_exps.weight").expert, -1);
    assert_int_equal(name_of("model.altup_projections.1.weight").expert, 1);
    assert_int_equal(name_of("rank0/layer_3_q").rank, 0);
    assert_int_equal(name_of("layer_3_q_rank12").rank, 12);
    assert_int_equal(name_of("tp_rank_2:layer_3_q").rank, 2);
    assert_int_equal(name_of("mp_rank_03/layer_3_q").rank, 3);
    assert_int_equal(name_of("tp1.layer_3_q").rank, 1);
    assert_int_equal(name_of("dump-00002-of-00008:layer_3_q").rank, 2);
    check("mp_rank_03/layer_3_q", 3, "attn_q");
    check("layer_3_q_rank12", 3, "attn_q");
    check("dump-00002-of-00008:layer_3_q", 3, "attn_q");
}

/* Numbers in front are layers, unless they count the dumps. */
static void test_sequences(void **state)
{
    static const char *const counted[] = {"0000_input_ids", "0001_layer_0_q", "0002_layer_0_k", "0003_layer_1_q"};
    static const char *const layers[] = {"0_query", "0_key", "1_query", "1_key"};
    static const char *const one_kind[] = {"0_hidden", "1_hidden", "2_hidden", "3_hidden"};
    static const char *const all_kinds[] = {"1_embed", "2_norm", "3_q", "4_k"};
    struct ts_names names;
    (void)state;
    assert_true(ts_names_make(counted, 4, 0, &arena, &names));
    assert_true(names.sequences);
    assert_int_equal(names.list[2].sequence, 2);
    assert_int_equal(names.list[2].layer, 0);
    assert_string_equal(names.list[2].kind, "attn_k");
    assert_int_equal(names.list[0].layer, -1);
    assert_true(ts_names_make(layers, 4, 0, &arena, &names));
    assert_false(names.sequences);
    assert_int_equal(names.list[3].layer, 1);
    assert_true(ts_names_make(one_kind, 4, 0, &arena, &names));
    assert_false(names.sequences);
    assert_int_equal(names.list[3].layer, 3);
    assert_true(ts_names_make(all_kinds, 4, 0, &arena, &names));
    assert_true(names.sequences);
    assert_int_equal(names.list[3].sequence, 4);
    assert_int_equal(names.list[3].layer, -1);
}

/* What all names of a side end in says nothing: the first call, the first output, that it is one. A number that tells
 * layers, ranks or keys from values does. */
static void test_same_endings(void **state)
{
    static const struct {
        const char *ending;
        bool cut;
    } endings[] = {{"_0", true}, {":0", true}, {".output", true}, {"/out", true}, {".rank_0", false}, {"", true}};
    static const char *const names[] = {"model.embed_tokens", "model.layers.0.mlp.up_proj",
                                        "model.layers.1.mlp.up_proj", "model.layers.1.self_attn.q_proj", "model.norm"};
    static const char *const kinds[] = {"token_embd", "ffn_up", "ffn_up", "attn_q", "output_norm"};
    static const char *const one_layer[] = {"Qcur-3", "Kcur-3", "Vcur-3", "ffn_out-3"};
    static const char *const keys[] = {"layers.0.past_key_values.0", "layers.1.past_key_values.0",
                                       "layers.2.past_key_values.0", "layers.3.past_key_values.0"};
    struct ts_names read;
    (void)state;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char text[5][64];
        const char *list[5];
        for (size_t k = 0; k < 5; k++) {
            snprintf(text[k], sizeof text[k], "%s%s", names[k], endings[i].ending);
            list[k] = text[k];
        }
        assert_true(ts_names_make(list, 5, 0, &arena, &read));
        for (size_t k = 0; k < 5; k++) {
            assert_string_equal(read.list[k].kind, kinds[k]);
            assert_int_equal(read.list[k].layer, k == 0 || k == 4 ? -1 : k > 1);
            assert_int_equal(read.list[k].rank, endings[i].cut ? -1 : 0);
        }
    }
    assert_true(ts_names_make(one_layer, 4, 0, &arena, &read));
    for (size_t k = 0; k < 4; k++)
        assert_int_equal(read.list[k].layer, 3);
    assert_true(ts_names_make(keys, 4, 0, &arena, &read));
    for (size_t k = 0; k < 4; k++)
        assert_string_equal(read.list[k].kind, "attn_k_cache");
}

/* Words that only one engine uses for its layers: the parts behind them tell. */
static void test_own_layers(void **state)
{
    static const char *const own[] = {"trunk.%d.%s", "myTower%d/%s", "engine.stack_%d_%s", "transformer.%d.%s",
                                      "decoder.%d.%s"};
    static const char *const parts[] = {"self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.down_proj"};
    static const char *const behind[] = {"%s_%d", "%s.%d", "%s%d", "%s-%d", "%s_layer_%d", "%s_l%d", "%s[%d]"};
    static const char *const others[] = {"features.%d.weight", "features.%d.bias", "features.%d.running_mean"};
    const char *names[14];
    char room[14][64];
    struct ts_names read;
    (void)state;
    for (size_t form = 0; form < sizeof own / sizeof *own; form++) {
        snprintf(room[12], sizeof room[12], "wpe2");
        snprintf(room[13], sizeof room[13], "lm_head");
        names[0] = room[12];
        names[13] = room[13];
        for (int i = 0; i < 12; i++) {
            snprintf(room[i], sizeof room[i], own[form], i / 4, parts[i % 4]);
            names[i + 1] = room[i];
        }
        assert_true(ts_names_make(names, 14, 0, &arena, &read));
        for (int i = 0; i < 12; i++) {
            char usual[128];
            struct ts_name known;
            snprintf(usual, sizeof usual, "model.layers.%d.%s", i / 4, parts[i % 4]);
            known = name_of(usual);
            assert_int_equal(read.list[i + 1].layer, i / 4);
            assert_string_equal(read.list[i + 1].kind, known.kind);
        }
        assert_int_equal(read.list[0].layer, -1);
    }
    /* at the end */
    for (size_t form = 0; form < sizeof behind / sizeof *behind; form++) {
        for (int i = 0; i < 12; i++) {
            snprintf(room[i], sizeof room[i], behind[form], parts[i % 4], i / 4);
            names[i] = room[i];
        }
        snprintf(room[12], sizeof room[12], behind[form], "layer_output", 2);
        names[12] = room[12];
        assert_true(ts_names_make(names, 13, 0, &arena, &read));
        for (int i = 0; i < 12; i++) {
            char usual[128];
            struct ts_name known;
            snprintf(usual, sizeof usual, "model.layers.%d.%s", i / 4, parts[i % 4]);
            known = name_of(usual);
            assert_int_equal(read.list[i].layer, i / 4);
            assert_string_equal(read.list[i].kind, known.kind);
        }
        assert_int_equal(read.list[12].layer, 2);
        assert_string_equal(read.list[12].kind, "layer_out");
    }
    for (int i = 0; i < 4; i++) {
        snprintf(room[i], sizeof room[i], i < 2 ? "norm%d" : "fc%d", i % 2 + 1);
        names[i] = room[i];
    }
    names[4] = "embed_tokens";
    names[5] = "classifier";
    assert_true(ts_names_make(names, 6, 0, &arena, &read));
    for (int i = 0; i < 6; i++)
        assert_int_equal(read.list[i].layer, -1);
    /* numbers of something else */
    for (int i = 0; i < 12; i++) {
        snprintf(room[i], sizeof room[i], others[i % 3], i / 3);
        names[i] = room[i];
    }
    assert_true(ts_names_make(names, 12, 0, &arena, &read));
    for (int i = 0; i < 12; i++)
        assert_int_equal(read.list[i].layer, -1);
}

static void test_common_words(void **state)
{
    static const char *const names[] = {"my.run.layer_0_q", "my.run.layer_10_q", "my.run.embedding"};
    static const char *const apart[] = {"a.x", "b.x"};
    struct ts_names read;
    (void)state;
    assert_true(ts_names_make(names, 3, 0, &arena, &read));
    assert_int_equal(read.common, 2);
    assert_string_equal(read.list[2].kind, "my_run_embedding");
    assert_true(ts_names_make(names, 3, 2, &arena, &read));
    assert_string_equal(read.list[2].kind, "token_embd");
    assert_int_equal(read.list[1].layer, 10);
    assert_true(ts_names_make(apart, 2, 0, &arena, &read));
    assert_int_equal(read.common, 0);
}

/* Gemma 2 has a norm before and behind each part; there this name is another norm than in Llama. */
static void test_sandwich_norms(void **state)
{
    static const char *const gemma[] = {"model.layers.0.post_attention_layernorm.weight",
                                        "model.layers.0.pre_feedforward_layernorm.weight",
                                        "model.layers.0.post_feedforward_layernorm.weight"};
    struct ts_names names;
    (void)state;
    assert_true(ts_names_make(gemma, 3, 0, &arena, &names));
    assert_string_equal(names.list[0].kind, "post_attention_norm.weight");
    assert_string_equal(names.list[1].kind, "ffn_norm.weight");
    assert_string_equal(names.list[2].kind, "post_ffw_norm.weight");
    check("model.layers.0.post_attention_layernorm.weight", 0, "ffn_norm.weight");
}

/* What state space layers call out_proj is attention's elsewhere. */
static void test_mixers(void **state)
{
    static const char *const names[] = {"backbone.layers.0.mixer.out_proj.weight",
                                        "backbone.layers.0.mixer.in_proj.weight"};
    struct ts_names read;
    (void)state;
    assert_true(ts_names_make(names, 2, 0, &arena, &read));
    assert_string_equal(read.list[0].kind, "ssm_out.weight");
    check(names[0], 0, "attn_output.weight");
}

/* w1, w2 and w3 are gate, down and up where there are three of them; Qwen's w1 and w2 are up and gate. */
static void test_three_of_a_network(void **state)
{
    static const char *const names[] = {"layers.0.mlp.w1.weight", "layers.0.mlp.w2.weight", "layers.0.mlp.w3.weight"};
    static const char *const kinds[] = {"ffn_gate.weight", "ffn_down.weight", "ffn_up.weight"};
    struct ts_names read;
    (void)state;
    assert_true(ts_names_make(names, 3, 0, &arena, &read));
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(read.list[i].kind, kinds[i]);
    assert_true(ts_names_make(names, 2, 0, &arena, &read));
    assert_string_equal(read.list[0].kind, "ffn_up.weight");
    assert_string_equal(read.list[1].kind, "ffn_gate.weight");
}

/* Places follow a forward pass. */
static void test_places(void **state)
{
    static const char *const order[] = {"0_post_ln_pre_attn",
                                        "0_query",
                                        "0_key",
                                        "0_value",
                                        "layer_0_attn_q_rope",
                                        "layer_0_attn_scores",
                                        "layer_0_attn_probs",
                                        "layer_0_attn_context",
                                        "layer_0_attn_o_proj",
                                        "layer_0_attn_residual_output",
                                        "layer_0_mlp_norm_output",
                                        "layer_0_mlp_gate_proj",
                                        "layer_0_mlp_up_proj",
                                        "layer_0_mlp_intermediate",
                                        "layer_0_mlp_down_proj",
                                        "layer_0_layer_output"};
    (void)state;
    for (size_t i = 1; i < sizeof order / sizeof *order; i++)
        if (name_of(order[i - 1]).place >= name_of(order[i]).place)
            fail_msg("%s does not come before %s", order[i - 1], order[i]);
    assert_int_equal(name_of("model.embed_tokens").stage, TS_STAGE_HEAD);
    assert_int_equal(name_of("model.norm").stage, TS_STAGE_TAIL);
    assert_int_equal(name_of("model.layers.0.mlp").stage, TS_STAGE_LAYERS);
}

static void test_hostile_names(void **state)
{
    static char longest[200000], many[4000];
    (void)state;
    memset(longest, 'a', sizeof longest - 1);
    for (size_t i = 0; i + 2 < sizeof many; i += 2)
        memcpy(many + i, "b.", 2);
    assert_string_equal(name_of(longest).kind, longest);
    assert_string_equal(name_of(many).kind, many);
    memset(longest, 0, sizeof longest);
    memset(longest, 'a', 999);
    assert_string_equal(name_of(longest).kind, longest);
    check("layers.99999999999999999999.x", -1, "layers_99999999999999999999_x");
    check("\xff\xfe.weight", -1, "\xff\xfe.weight");
    check("weight", -1, "weight");
    check("layer_3", 3, "layer_out");
    check("experts.5", -1, "experts");
}

/* Words that people write behind a layer's number; what "post_attn" is depends on what else there is. */
static void test_short_words(void **state)
{
    const char *const apart[] = {"3_attn_context", "3_post_attn"};
    struct ts_names names;
    (void)state;
    check("3_up", 3, "ffn_up");
    check("layer_3_down", 3, "ffn_down");
    check("3_ctx", 3, "attn_context");
    check("3_post_attn", 3, "attn_context");
    check("layers.3.up.weight", 3, "up.weight");
    assert_true(ts_names_make(apart, 2, 0, &arena, &names));
    assert_string_equal(names.list[0].kind, "attn_context");
    assert_string_equal(names.list[1].kind, "attn_resid");
}

/* A word for layers without a number, and a part of a layer behind it: all layers in one. */
static void test_stacks(void **state)
{
    static const struct {
        const char *name, *kind;
        int64_t layer;
        bool stacked;
    } rows[] = {
        {"params/params/decoder/layers/mlp/wi_0/kernel", "ffn_gate.weight", -1, true},
        {"params/decoder/layers/self_attention/out/kernel", "attn_output.weight", -1, true},
        {"transformer.layers.self_attn.q_proj.weight", "attn_q.weight", -1, true},
        {"params/decoder/layers_3/mlp/wi_0/kernel", "ffn_gate.weight", 3, false},
        {"params-decoder-layers-MoeBlock_0-wi_0", "ffn_gate_exps.weight", -1, true},
        {"params-decoder-layers-moe_block-wi_1", "ffn_up_exps.weight", -1, true},
        {"params-decoder-layers-moe_block-gate-kernel", "ffn_gate_inp.weight", -1, true},
        {"params-decoder-layers_3-mlp-MoeBlock_0-wo", "ffn_down_exps.weight", 3, false},
        {"params-decoder-moe_layers-DeepSeekMoeBlock_0-MoeBlock_0-gate-kernel", "ffn_gate_inp.weight", -1, true},
        {"params-decoder-moe_layers-DeepSeekMoeBlock_0-shared_experts-wi_1-kernel", "ffn_up_shexp.weight", -1, true},
        {"params/params/token_embedder/embedding", "token_embd.weight", -1, false},
        {"params/params/decoder/decoder_norm/scale", "output_norm.weight", -1, false},
        {"model.layers.3.self_attn.q_proj.weight", "attn_q.weight", 3, false},
        {"layer_norm.weight", "enc_output_norm.weight", -1, false},
        {"key_cache", "attn_k_cache", -1, true},
        {"past_key_values", "attn_kv_cache", -1, true},
        {"present_3", "attn_kv_cache", 3, false},
        {"past_key_values.3.1", "attn_v_cache", 3, false},
        {"past_key_values.3.2", "past_key_values_3_2", -1, false}, /* of what, is not known */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check(rows[i].name, rows[i].layer, rows[i].kind);
        assert_int_equal(name_of(rows[i].name).stacked, rows[i].stacked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_forms),
        cmocka_unit_test(test_traces),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_kept_apart),
        cmocka_unit_test(test_unknown_words_meet),
        cmocka_unit_test(test_experts_and_ranks),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_same_endings),
        cmocka_unit_test(test_own_layers),
        cmocka_unit_test(test_common_words),
        cmocka_unit_test(test_sandwich_norms),
        cmocka_unit_test(test_three_of_a_network),
        cmocka_unit_test(test_mixers),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_short_words),
        cmocka_unit_test(test_stacks),
    };
    return cmocka_run_group_tests(tests, start, end);
}
