/* Owns the files: names of points in several manners, shapes in several layouts, safetensors and cases.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zoo.h"

/* plain, Hugging Face, GPT, ggml, diffusion transformer; NULL: as the plain one */
static const char *const point_names[ZOO_POINTS][ZOO_NAMINGS] = {
    [ZOO_EMBED] = {"input_embeddings", "model.embed_tokens", "transformer.wte", "inp_embd", "x_embedder"},
    [ZOO_EMBED_SCALED] = {"scaled_embeddings", "model.embed_scaled", NULL, "inp_scaled", NULL},
    [ZOO_POSITION] = {"position_embeddings", "model.embed_positions", "transformer.wpe", NULL, NULL},
    [ZOO_EMBED_SUM] = {"embeddings_sum", "model.embed_sum", "transformer.drop", NULL, NULL},
    [ZOO_INPUT] = {"layer_%d_input_hidden_states", NULL, NULL, NULL, NULL},
    [ZOO_MODULATION] = {"layer_%d_modulation", NULL, NULL, NULL, "transformer_blocks.%d.adaLN_modulation"},
    [ZOO_ATTN_NORM] = {"layer_%d_attn_norm_output", "model.layers.%d.input_layernorm", "transformer.h.%d.ln_1",
                       "attn_norm-%d", "transformer_blocks.%d.norm1"},
    [ZOO_ATTN_MODULATED] = {"layer_%d_attn_modulated", NULL, NULL, NULL, "transformer_blocks.%d.norm1_modulated"},
    [ZOO_QKV] = {"layer_%d_attn_qkv_proj", "model.layers.%d.self_attn.qkv_proj", "transformer.h.%d.attn.c_attn",
                 "wqkv-%d", "transformer_blocks.%d.attn.qkv"},
    [ZOO_Q] = {"layer_%d_attn_q_proj_raw", "model.layers.%d.self_attn.q_proj", "transformer.h.%d.attn.q_proj",
               "Qcur-%d", "transformer_blocks.%d.attn.to_q"},
    [ZOO_K] = {"layer_%d_attn_k_proj_raw", "model.layers.%d.self_attn.k_proj", "transformer.h.%d.attn.k_proj",
               "Kcur-%d", "transformer_blocks.%d.attn.to_k"},
    [ZOO_V] = {"layer_%d_attn_v_proj_raw", "model.layers.%d.self_attn.v_proj", "transformer.h.%d.attn.v_proj",
               "Vcur-%d", "transformer_blocks.%d.attn.to_v"},
    [ZOO_Q_NORM] = {"layer_%d_attn_q_normed", "model.layers.%d.self_attn.q_norm", NULL, "Qcur_normed-%d",
                    "transformer_blocks.%d.attn.norm_q"},
    [ZOO_K_NORM] = {"layer_%d_attn_k_normed", "model.layers.%d.self_attn.k_norm", NULL, "Kcur_normed-%d",
                    "transformer_blocks.%d.attn.norm_k"},
    [ZOO_Q_ROPE] = {"layer_%d_attn_q_rope", "model.layers.%d.self_attn.q_rope", "transformer.h.%d.attn.q_rot",
                    "Qcur_rope-%d", NULL},
    [ZOO_K_ROPE] = {"layer_%d_attn_k_rope", "model.layers.%d.self_attn.k_rope", "transformer.h.%d.attn.k_rot",
                    "Kcur_rope-%d", NULL},
    [ZOO_SCORES_RAW] = {"layer_%d_attn_scores_uncapped", "model.layers.%d.self_attn.attn_scores_uncapped", NULL,
                        "kq_uncapped-%d", NULL},
    [ZOO_SCORES] = {"layer_%d_attn_scores", "model.layers.%d.self_attn.attn_scores", "transformer.h.%d.attn.scores",
                    "kq-%d", "transformer_blocks.%d.attn.scores"},
    [ZOO_PROBS] = {"layer_%d_attn_probs", "model.layers.%d.self_attn.attn_probs", "transformer.h.%d.attn.probs",
                   "kq_soft_max-%d", "transformer_blocks.%d.attn.probs"},
    [ZOO_CONTEXT] = {"layer_%d_attn_context", "model.layers.%d.self_attn.attn_context", "transformer.h.%d.attn.context",
                     "kqv_out-%d", "transformer_blocks.%d.attn.context"},
    [ZOO_O] = {"layer_%d_attn_o_proj", "model.layers.%d.self_attn.o_proj", "transformer.h.%d.attn.c_proj",
               "attn_out-%d", "transformer_blocks.%d.attn.to_out"},
    [ZOO_ATTENTION] = {"layer_%d_attention", "model.layers.%d.self_attn", "transformer.h.%d.attn", NULL,
                       "transformer_blocks.%d.attn"},
    [ZOO_POST_ATTN_NORM] = {"layer_%d_post_attn_norm", "model.layers.%d.post_attention_layernorm", NULL,
                            "attn_post_norm-%d", NULL},
    [ZOO_ATTN_RESIDUAL] = {"layer_%d_attn_residual_output", "model.layers.%d.attn_residual",
                           "transformer.h.%d.attn_residual", "ffn_inp-%d", "transformer_blocks.%d.attn_residual"},
    [ZOO_MLP_NORM] = {"layer_%d_mlp_norm_output", "model.layers.%d.pre_feedforward_layernorm", "transformer.h.%d.ln_2",
                      "ffn_norm-%d", "transformer_blocks.%d.norm2"},
    [ZOO_MLP_MODULATED] = {"layer_%d_mlp_modulated", NULL, NULL, NULL, "transformer_blocks.%d.norm2_modulated"},
    [ZOO_ROUTER_LOGITS] = {"layer_%d_router_logits", "model.layers.%d.mlp.gate", NULL, NULL, NULL},
    [ZOO_ROUTER_WEIGHTS] = {"layer_%d_router_weights", "model.layers.%d.mlp.gate.weights", NULL, NULL, NULL},
    [ZOO_ROUTER_INDICES] = {"layer_%d_router_indices", "model.layers.%d.mlp.gate.indices", NULL, NULL, NULL},
    [ZOO_EXPERTS] = {"layer_%d_experts_output", "model.layers.%d.mlp.experts", NULL, NULL, NULL},
    [ZOO_SHARED] = {"layer_%d_shared_expert_output", "model.layers.%d.mlp.shared_expert", NULL, NULL, NULL},
    [ZOO_GATE_UP] = {"layer_%d_mlp_gate_up_proj", "model.layers.%d.mlp.gate_up_proj", NULL, "ffn_gate_up-%d", NULL},
    [ZOO_GATE] = {"layer_%d_mlp_gate_proj", "model.layers.%d.mlp.gate_proj", NULL, "ffn_gate-%d", NULL},
    [ZOO_UP] = {"layer_%d_mlp_up_proj", "model.layers.%d.mlp.up_proj", "transformer.h.%d.mlp.c_fc", "ffn_up-%d",
                "transformer_blocks.%d.ff.fc1"},
    [ZOO_ACT] = {"layer_%d_mlp_act", "model.layers.%d.mlp.act_fn", "transformer.h.%d.mlp.act", "ffn_act-%d",
                 "transformer_blocks.%d.ff.act"},
    [ZOO_INTERMEDIATE] = {"layer_%d_mlp_intermediate", "model.layers.%d.mlp.intermediate", NULL, "ffn_gate_par-%d",
                          NULL},
    [ZOO_DOWN] = {"layer_%d_mlp_down_proj", "model.layers.%d.mlp.down_proj", "transformer.h.%d.mlp.c_proj",
                  "ffn_out-%d", "transformer_blocks.%d.ff.fc2"},
    [ZOO_MLP] = {"layer_%d_mlp_output", "model.layers.%d.mlp", "transformer.h.%d.mlp", "ffn-%d",
                 "transformer_blocks.%d.ff"},
    [ZOO_POST_MLP_NORM] = {"layer_%d_post_mlp_norm", "model.layers.%d.post_feedforward_layernorm", NULL,
                           "ffn_post_norm-%d", NULL},
    [ZOO_MLP_RESIDUAL] = {"layer_%d_mlp_residual", "model.layers.%d.mlp_residual", NULL, NULL, NULL},
    [ZOO_LAYER] = {"layer_%d_layer_output", "model.layers.%d", "transformer.h.%d", "l_out-%d", "transformer_blocks.%d"},
    [ZOO_FINAL_MODULATION] = {"final_modulation", NULL, NULL, NULL, "norm_out.linear"},
    [ZOO_FINAL_NORM] = {"final_norm_output", "model.norm", "transformer.ln_f", "result_norm", "norm_out.norm"},
    [ZOO_FINAL_MODULATED] = {"final_modulated", NULL, NULL, NULL, "norm_out"},
    [ZOO_LOGITS_RAW] = {"logits_uncapped", "lm_head.uncapped", NULL, "result_uncapped", NULL},
    [ZOO_LOGITS] = {"logits", "lm_head", "lm_head", "result_output", "proj_out"},
};

void zoo_point_name(const struct zoo_config *config, enum zoo_point point, int layer, char *out, size_t size)
{
    const char *pattern = point_names[point][config->naming], *number;
    if (!pattern)
        pattern = point_names[point][ZOO_NAMES_PLAIN];
    if (point == ZOO_MLP_NORM && config->naming == ZOO_NAMES_HF && !config->post_norms)
        pattern = "model.layers.%d.post_attention_layernorm";
    number = strstr(pattern, "%d");
    if (number)
        snprintf(out, size, "%.*s%d%s", (int)(number - pattern), pattern, layer, number + 2);
    else
        snprintf(out, size, "%s", pattern);
}

static bool heads_first(const struct zoo_config *config, const struct zoo_tensor *tensor)
{
    bool products = tensor->point == ZOO_SCORES || tensor->point == ZOO_SCORES_RAW || tensor->point == ZOO_PROBS;
    bool turned = tensor->point == ZOO_Q_ROPE || tensor->point == ZOO_K_ROPE;
    return config->layout == ZOO_LAYOUT_FLAT ? products : config->layout != ZOO_LAYOUT_TOKENS && (products || turned);
}

/* "[1, 12, 64]" as the layout has it. */
static void shape_text(const struct zoo_config *config, const struct zoo_tensor *t, char *out, size_t size)
{
    const char *batch = config->layout == ZOO_LAYOUT_BATCH ? "1," : "";
    bool raw = t->point == ZOO_Q || t->point == ZOO_K || t->point == ZOO_V || t->point == ZOO_CONTEXT;
    bool scores = t->point == ZOO_SCORES || t->point == ZOO_SCORES_RAW || t->point == ZOO_PROBS;
    bool headed = scores || t->point == ZOO_Q_NORM || t->point == ZOO_K_NORM || t->point == ZOO_Q_ROPE ||
                  t->point == ZOO_K_ROPE || (t->point == ZOO_CONTEXT && config->layout == ZOO_LAYOUT_TOKENS);
    if (heads_first(config, t))
        snprintf(out, size, "[%s%d,%d,%d]", batch, t->heads, t->rows, t->inner);
    else if (headed && (scores || config->layout != ZOO_LAYOUT_FLAT) && !(raw && config->layout != ZOO_LAYOUT_TOKENS))
        snprintf(out, size, "[%s%d,%d,%d]", batch, t->rows, t->heads, t->inner);
    else
        snprintf(out, size, "[%s%d,%d]", batch, t->rows, t->heads * t->inner);
}

/* Element i in file order. */
static float element(const struct zoo_config *config, const struct zoo_tensor *t, int i)
{
    int head, row;
    if (!heads_first(config, t))
        return t->values[i];
    head = i / (t->rows * t->inner);
    row = i / t->inner % t->rows;
    return t->values[(row * t->heads + head) * t->inner + i % t->inner];
}

/* The type a tensor is stored in: fp32, or the run's own where that loses nothing. */
static enum zoo_format storage(const struct zoo_config *config, const struct zoo_tensor *tensor,
                               const struct zoo_numerics *numerics)
{
    if (!config->native_storage || numerics->format == ZOO_F32)
        return ZOO_F32;
    for (int i = 0; i < tensor->rows * tensor->heads * tensor->inner; i++)
        if (zoo_round(numerics->format, tensor->values[i]) != tensor->values[i] && !isnan(tensor->values[i]))
            return ZOO_F32;
    return numerics->format;
}

static void write_header(FILE *file, const struct zoo_config *config, const struct zoo_trace *trace,
                         const struct zoo_numerics *numerics)
{
    char name[128], shape[64];
    long long at = 0;
    fputs("{\"__metadata__\":{\"order\":\"[", file);
    for (int i = 0; i < trace->count; i++) {
        zoo_point_name(config, trace->tensors[i].point, trace->tensors[i].layer, name, sizeof name);
        fprintf(file, "%s\\\"%s\\\"", i ? ", " : "", name);
    }
    fputs("]\"}", file);
    for (int i = 0; i < trace->count; i++) {
        const struct zoo_tensor *t = &trace->tensors[i];
        enum zoo_format format = storage(config, t, numerics);
        bool integers = t->point == ZOO_ROUTER_INDICES;
        long long size = (long long)t->rows * t->heads * t->inner * (integers ? 8 : format == ZOO_F32 ? 4 : 2);
        zoo_point_name(config, t->point, t->layer, name, sizeof name);
        shape_text(config, t, shape, sizeof shape);
        fprintf(file, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%lld,%lld]}", name,
                integers            ? "I64"
                : format == ZOO_F32 ? "F32"
                : format == ZOO_F16 ? "F16"
                                    : "BF16",
                shape, at, at + size);
        at += size;
    }
    putc('}', file);
}

static void write_tensor(FILE *file, const struct zoo_config *config, const struct zoo_tensor *t,
                         const struct zoo_numerics *numerics)
{
    enum zoo_format format = storage(config, t, numerics);
    for (int i = 0; i < t->rows * t->heads * t->inner; i++) {
        float value = element(config, t, i);
        uint64_t bits = 0;
        size_t size = 4;
        if (t->point == ZOO_ROUTER_INDICES) {
            bits = (uint64_t)value;
            size = 8;
        } else if (format == ZOO_F32) {
            memcpy(&bits, &value, sizeof value); /* little endian, as everything this runs on */
        } else {
            bits = format == ZOO_F16 ? zoo_f16_bits(value) : zoo_bf16_bits(value);
            size = 2;
        }
        fwrite(&bits, size, 1, file);
    }
}

bool zoo_write_trace(const char *path, const struct zoo_config *config, const struct zoo_trace *trace,
                     const struct zoo_numerics *numerics)
{
    FILE *file = fopen(path, "wb");
    uint64_t size = 0;
    long end;
    bool good;
    if (!file)
        return false;
    fwrite(&size, sizeof size, 1, file);
    write_header(file, config, trace, numerics);
    while (ftell(file) % 8)
        putc(' ', file);
    end = ftell(file);
    for (int i = 0; i < trace->count; i++)
        write_tensor(file, config, &trace->tensors[i], numerics);
    size = (uint64_t)end - sizeof size;
    fseek(file, 0, SEEK_SET);
    fwrite(&size, sizeof size, 1, file);
    good = !ferror(file);
    return fclose(file) == 0 && good;
}

static void write_list(FILE *file, const char *commas)
{
    const char *start = commas;
    putc('[', file);
    while (start && *start) {
        size_t length = strcspn(start, ",");
        fprintf(file, "%s\"%.*s\"", start == commas ? "" : ", ", (int)length, start);
        start += length + (start[length] == ',');
    }
    putc(']', file);
}

/* JSON has no infinities. */
static double bounded(double value)
{
    return isfinite(value) ? value : 1e300;
}

bool zoo_write_cases(const char *path, const struct zoo_config *c, const struct zoo_case *cases, int count)
{
    FILE *file = fopen(path, "w");
    bool good;
    if (!file)
        return false;
    fprintf(file,
            "{\"config\": {\"hidden\": %d, \"inter\": %d, \"vocab\": %d, \"layers\": %d, \"heads\": %d, \"kv\": %d, "
            "\"hd\": %d, \"eps\": %g, \"theta\": %g, \"tokens\": %d, \"reference\": \"%s\"},\n \"cases\": [",
            c->hidden, c->intermediate, c->vocabulary, c->layers, c->heads, c->kv_heads, c->head_size, c->epsilon,
            c->theta, c->tokens, c->reference->dtype);
    for (int i = 0; i < count; i++) {
        const struct zoo_case *one = &cases[i];
        fprintf(file, "%s\n  {\"file\": \"%s\", \"kind\": \"%s\", \"first\": ", i ? "," : "", one->file,
                one->bug ? "bug" : "noise");
        fprintf(file, one->bug ? "\"%s\"" : "null", one->first);
        fputs(", \"causes\": ", file);
        write_list(file, one->causes);
        fprintf(file, ", \"candidate_dtype\": \"%s\"", one->dtype);
        if (one->bug)
            fprintf(file, ", \"bug\": \"%s\", \"planted\": %.3g, \"contrast\": %.3g, \"learnable\": %s", one->bug,
                    bounded(one->planted), bounded(one->contrast), one->learnable ? "true" : "false");
        fprintf(file, ", \"honest\": %.3g}", bounded(one->honest));
    }
    fputs("\n ]}\n", file);
    good = !ferror(file);
    return fclose(file) == 0 && good;
}
