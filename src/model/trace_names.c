/* Owns the names that other debugging systems give to the points of a forward pass.
 *
 * qwen3: "layer_3_attn_q_proj_raw", as the layer-by-layer comparison of Qwen 3 ports has it. gemma3n:
 * "layer_3.attn.q_proj", as the Gemma 3n scripts have it. Points that a naming has no word for are left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/trace.h"

struct word {
    const char *ours, *theirs;
};

static const struct word qwen3_model[] = {
    {"model.embed_tokens", "input_embeddings"},
    {"model.rotary_emb.0", "position_cos"},
    {"model.rotary_emb.1", "position_sin"},
    {"model.norm", "final_norm_output"},
    {"logits", "logits"},
    {NULL, NULL},
};
static const struct word qwen3_layer[] = {
    {"input_layernorm", "attn_norm_output"},
    {"self_attn.q_proj", "attn_q_proj_raw"},
    {"self_attn.k_proj", "attn_k_proj_raw"},
    {"self_attn.v_proj", "attn_v_proj_raw"},
    {"self_attn.q_norm", "attn_q_normed"},
    {"self_attn.k_norm", "attn_k_normed"},
    {"self_attn.q_rope", "attn_q_rope"},
    {"self_attn.k_rope", "attn_k_rope"},
    {"self_attn.attn_scores", "attn_scores"},
    {"self_attn.attn_probs", "attn_weights"},
    {"self_attn.attn_context", "attn_values_output"},
    {"self_attn.o_proj", "attn_o_proj"},
    {"attn_residual", "attn_residual_output"},
    {"post_attention_layernorm", "mlp_norm_output"},
    {"mlp.gate_proj", "mlp_gate_proj"},
    {"mlp.act_fn", "mlp_activated_up"},
    {"mlp.up_proj", "mlp_up_proj"},
    {"mlp.intermediate", "mlp_intermediate"},
    {"mlp", "mlp_output"},
    {"", "layer_output"},
    {NULL, NULL},
};
static const struct word gemma3n_model[] = {
    {"model.embed_tokens", "initial_embedding"},
    {"model.altup_streams", "initial_stream_stack"},
    {"model.altup_mean", "averaged_before_norm"},
    {"model.norm", "final_norm_output"},
    {"logits", "logits"},
    {NULL, NULL},
};
static const struct word gemma3n_layer[] = {
    {"altup.modality_router", "altup.routed"},
    {"altup.modalities", "altup.modalities_predict"},
    {"altup.predictions", "predictions"},
    {"input_layernorm", "active_prediction_normed"},
    {"laurel", "laurel_out"},
    {"self_attn.q_proj", "attn.q_proj"},
    {"self_attn.k_proj", "attn.k_proj"},
    {"self_attn.v_proj", "attn.v_proj"},
    {"self_attn.q_norm", "attn.q_norm"},
    {"self_attn.k_norm", "attn.k_norm"},
    {"self_attn.q_rope", "attn.q_after_rope"},
    {"self_attn.k_rope", "attn.k_after_rope"},
    {"self_attn.attn_scores", "attn.raw_attn_weights"},
    {"self_attn.attn_scores_masked", "attn.attn_weights_pre_softmax"},
    {"self_attn.attn_probs", "attn.attn_weights_post_softmax"},
    {"self_attn.attn_context", "attn.attn_output_pre_reshape"},
    {"self_attn", "attn.attn_output"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "pre_ffw_norm"},
    {"mlp.gate_proj", "mlp.gate_proj"},
    {"mlp.gate_sparse", "mlp.gate_proj_after_sparsity"},
    {"mlp.act_fn", "mlp.gate_proj_activated"},
    {"mlp.up_proj", "mlp.up_proj"},
    {"mlp.intermediate", "mlp.activations"},
    {"mlp", "mlp_output"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp_residual", "processed_active_stream"},
    {"altup.modalities#2", "altup.modalities_correct"},
    {"altup.correction_coefs", "altup.correction_coefs_output"},
    {"altup.corrected", "altup_corrected"},
    {"", "final_output"},
    {NULL, NULL},
};

static const struct naming {
    const char *name;
    const struct word *model, *layer;
    char after_layer;  /* between "layer_3" and the rest */
    const char *input; /* a layer's input, or NULL */
} namings[] = {
    {"qwen3", qwen3_model, qwen3_layer, '_', "input_hidden_states"},
    {"gemma3n", gemma3n_model, gemma3n_layer, '.', NULL},
};

static const struct naming *find(const char *name)
{
    for (size_t i = 0; i < sizeof namings / sizeof *namings; i++)
        if (strcmp(namings[i].name, name) == 0)
            return &namings[i];
    return NULL;
}

bool ts_trace_naming_known(const char *naming)
{
    return find(naming) != NULL;
}

static const char *look_up(const struct word *words, const char *ours)
{
    for (; words->ours; words++)
        if (strcmp(words->ours, ours) == 0)
            return words->theirs;
    return NULL;
}

/* "model.layers.3.rest" is layer 3 and "rest"; false for other names. */
static bool split(const char *name, unsigned long *layer, const char **rest)
{
    char *end;
    if (!ts_starts_with(name, "model.layers."))
        return false;
    *layer = strtoul(name + 13, &end, 10);
    *rest = *end == '.' ? end + 1 : end;
    return *end == '.' || !*end;
}

const char *ts_trace_rename(const char *naming, const char *name, char text[800])
{
    const struct naming *words = find(naming);
    unsigned long layer;
    const char *rest, *theirs;
    if (!words)
        return NULL;
    if (!split(name, &layer, &rest))
        return look_up(words->model, name);
    theirs = look_up(words->layer, rest);
    if (!theirs)
        return NULL;
    snprintf(text, 800, "layer_%lu%c%s", layer, words->after_layer, theirs);
    return text;
}

const char *ts_trace_input_name(const char *naming, const char *name, size_t layers, char text[800])
{
    const struct naming *words = find(naming);
    unsigned long layer = 0;
    const char *rest;
    if (!words || !words->input)
        return NULL;
    if (strcmp(name, "model.embed_tokens") != 0) {
        if (!split(name, &layer, &rest) || *rest || layer + 1 >= layers)
            return NULL;
        layer++;
    }
    snprintf(text, 800, "layer_%lu%c%s", layer, words->after_layer, words->input);
    return text;
}
