/* Owns the tables of weights that the common architectures have, as Hugging Face names and shapes them, and how a
 * config.json turns them on and off.
 *
 * Letters of shapes:
 *     H hidden size        V vocabulary           I intermediate size     P positions
 *     N heads              D head size            Q heads * head size     K kv heads * head size    G Q + 2 K
 *     E experts            M an expert's width    S shared experts' width 1 one
 *     J 2 I                T 3 H                  F gpt2's inner width
 *     R rank of q          L rank of kv           C L + rope part         A heads * (nope + rope)
 *     B heads * (nope + v) O heads * v
 *     a AltUp inputs       b a * a                l rank of Laurel        p per-layer input         q layers * p
 *     v its vocabulary
 * A size that the config leaves to a default of the library is unknown (0) and not compared. */
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "check/check_internal.h"

#define END                                                                                                            \
    {                                                                                                                  \
        NULL, NULL, 0                                                                                                  \
    }

static const struct ts_rule outer[] = {
    {"embed_tokens.weight", "VH", 0},
    {"norm.weight", "H", 0},
    {"lm_head.weight", "VH", TS_WEIGHT_OUTSIDE},
    END,
};

static const struct ts_rule attention[] = {
    {"layers.#.input_layernorm.weight", "H", 0},
    {"layers.#.self_attn.q_proj.weight", "QH", 0},
    {"layers.#.self_attn.q_proj.bias", "Q", TS_WEIGHT_QKV_BIAS},
    {"layers.#.self_attn.k_proj.weight", "KH", TS_WEIGHT_OWN_KV},
    {"layers.#.self_attn.k_proj.bias", "K", TS_WEIGHT_QKV_BIAS | TS_WEIGHT_OWN_KV},
    {"layers.#.self_attn.v_proj.weight", "KH", TS_WEIGHT_OWN_KV},
    {"layers.#.self_attn.v_proj.bias", "K", TS_WEIGHT_QKV_BIAS | TS_WEIGHT_OWN_KV},
    {"layers.#.self_attn.o_proj.weight", "HQ", 0},
    {"layers.#.self_attn.o_proj.bias", "H", TS_WEIGHT_OUT_BIAS},
    {"layers.#.post_attention_layernorm.weight", "H", 0},
    END,
};

static const struct ts_rule head_norms[] = {
    {"layers.#.self_attn.q_norm.weight", "D", 0},
    {"layers.#.self_attn.k_norm.weight", "D", TS_WEIGHT_OWN_KV},
    END,
};

static const struct ts_rule wide_norms[] = {
    {"layers.#.self_attn.q_norm.weight", "Q", 0},
    {"layers.#.self_attn.k_norm.weight", "K", 0},
    END,
};

static const struct ts_rule feed_forward[] = {
    {"layers.#.mlp.gate_proj.weight", "IH", TS_WEIGHT_IN_DENSE},
    {"layers.#.mlp.gate_proj.bias", "I", TS_WEIGHT_IN_DENSE | TS_WEIGHT_MLP_BIAS},
    {"layers.#.mlp.up_proj.weight", "IH", TS_WEIGHT_IN_DENSE},
    {"layers.#.mlp.up_proj.bias", "I", TS_WEIGHT_IN_DENSE | TS_WEIGHT_MLP_BIAS},
    {"layers.#.mlp.down_proj.weight", "HI", TS_WEIGHT_IN_DENSE},
    {"layers.#.mlp.down_proj.bias", "H", TS_WEIGHT_IN_DENSE | TS_WEIGHT_MLP_BIAS},
    END,
};

static const struct ts_rule around_feed_forward[] = {
    {"layers.#.pre_feedforward_layernorm.weight", "H", 0},
    {"layers.#.post_feedforward_layernorm.weight", "H", 0},
    END,
};

static const struct ts_rule block_sparse[] = {
    {"layers.#.block_sparse_moe.gate.weight", "EH", 0},
    {"layers.#.block_sparse_moe.experts.@.w1.weight", "IH", TS_WEIGHT_OF_EXPERTS},
    {"layers.#.block_sparse_moe.experts.@.w2.weight", "HI", TS_WEIGHT_OF_EXPERTS},
    {"layers.#.block_sparse_moe.experts.@.w3.weight", "IH", TS_WEIGHT_OF_EXPERTS},
    END,
};

static const struct ts_rule experts[] = {
    {"layers.#.mlp.gate.weight", "EH", TS_WEIGHT_IN_MOE},
    {"layers.#.mlp.experts.@.gate_proj.weight", "MH", TS_WEIGHT_IN_MOE | TS_WEIGHT_OF_EXPERTS},
    {"layers.#.mlp.experts.@.up_proj.weight", "MH", TS_WEIGHT_IN_MOE | TS_WEIGHT_OF_EXPERTS},
    {"layers.#.mlp.experts.@.down_proj.weight", "HM", TS_WEIGHT_IN_MOE | TS_WEIGHT_OF_EXPERTS},
    END,
};

static const struct ts_rule shared_expert[] = {
    {"layers.#.mlp.shared_expert.gate_proj.weight", "SH", TS_WEIGHT_IN_MOE},
    {"layers.#.mlp.shared_expert.up_proj.weight", "SH", TS_WEIGHT_IN_MOE},
    {"layers.#.mlp.shared_expert.down_proj.weight", "HS", TS_WEIGHT_IN_MOE},
    {"layers.#.mlp.shared_expert_gate.weight", "1H", TS_WEIGHT_IN_MOE},
    END,
};

static const struct ts_rule shared_experts[] = {
    {"layers.#.mlp.shared_experts.gate_proj.weight", "SH", TS_WEIGHT_IN_MOE},
    {"layers.#.mlp.shared_experts.up_proj.weight", "SH", TS_WEIGHT_IN_MOE},
    {"layers.#.mlp.shared_experts.down_proj.weight", "HS", TS_WEIGHT_IN_MOE},
    END,
};

static const struct ts_rule correction[] = {
    {"layers.#.mlp.gate.e_score_correction_bias", "E", TS_WEIGHT_IN_MOE},
    END,
};

static const struct ts_rule latent_attention[] = {
    {"layers.#.input_layernorm.weight", "H", 0},
    {"layers.#.self_attn.q_proj.weight", "AH", TS_WEIGHT_FULL_Q},
    {"layers.#.self_attn.q_a_proj.weight", "RH", TS_WEIGHT_LOW_RANK_Q},
    {"layers.#.self_attn.q_a_proj.bias", "R", TS_WEIGHT_LOW_RANK_Q | TS_WEIGHT_QKV_BIAS},
    {"layers.#.self_attn.q_a_layernorm.weight", "R", TS_WEIGHT_LOW_RANK_Q},
    {"layers.#.self_attn.q_b_proj.weight", "AR", TS_WEIGHT_LOW_RANK_Q},
    {"layers.#.self_attn.kv_a_proj_with_mqa.weight", "CH", 0},
    {"layers.#.self_attn.kv_a_proj_with_mqa.bias", "C", TS_WEIGHT_QKV_BIAS},
    {"layers.#.self_attn.kv_a_layernorm.weight", "L", 0},
    {"layers.#.self_attn.kv_b_proj.weight", "BL", 0},
    {"layers.#.self_attn.o_proj.weight", "HO", 0},
    {"layers.#.self_attn.o_proj.bias", "H", TS_WEIGHT_OUT_BIAS},
    {"layers.#.post_attention_layernorm.weight", "H", 0},
    END,
};

static const struct ts_rule phi[] = {
    {"layers.#.input_layernorm.weight", "H", 0},
    {"layers.#.self_attn.qkv_proj.weight", "GH", 0},
    {"layers.#.self_attn.o_proj.weight", "HQ", 0},
    {"layers.#.post_attention_layernorm.weight", "H", 0},
    {"layers.#.mlp.gate_up_proj.weight", "JH", 0},
    {"layers.#.mlp.down_proj.weight", "HI", 0},
    END,
};

static const struct ts_rule gpt[] = {
    {"wte.weight", "VH", 0},
    {"wpe.weight", "PH", 0},
    {"h.#.ln_1.weight", "H", 0},
    {"h.#.ln_1.bias", "H", 0},
    {"h.#.attn.c_attn.weight", "HT", 0},
    {"h.#.attn.c_attn.bias", "T", 0},
    {"h.#.attn.c_proj.weight", "HH", 0},
    {"h.#.attn.c_proj.bias", "H", 0},
    {"h.#.ln_2.weight", "H", 0},
    {"h.#.ln_2.bias", "H", 0},
    {"h.#.mlp.c_fc.weight", "HF", 0},
    {"h.#.mlp.c_fc.bias", "F", 0},
    {"h.#.mlp.c_proj.weight", "FH", 0},
    {"h.#.mlp.c_proj.bias", "H", 0},
    {"ln_f.weight", "H", 0},
    {"ln_f.bias", "H", 0},
    {"lm_head.weight", "VH", TS_WEIGHT_OUTSIDE},
    END,
};

static const struct ts_rule oss[] = {
    {"layers.#.self_attn.sinks", "N", 0},
    {"layers.#.mlp.router.weight", "EH", 0},
    {"layers.#.mlp.router.bias", "E", 0},
    {"layers.#.mlp.experts.gate_up_proj", "EHJ", TS_WEIGHT_OF_EXPERTS},
    {"layers.#.mlp.experts.gate_up_proj_bias", "EJ", TS_WEIGHT_OF_EXPERTS},
    {"layers.#.mlp.experts.down_proj", "EIH", TS_WEIGHT_OF_EXPERTS},
    {"layers.#.mlp.experts.down_proj_bias", "EH", TS_WEIGHT_OF_EXPERTS},
    END,
};

static const struct ts_rule matryoshka[] = {
    {"altup_projections.@.weight", "HH", TS_WEIGHT_PER_INPUT},
    {"altup_unembed_projections.@.weight", "HH", TS_WEIGHT_PER_INPUT},
    {"embed_tokens_per_layer.weight", "vq", 0},
    {"per_layer_model_projection.weight", "qH", 0},
    {"per_layer_projection_norm.weight", "p", 0},
    {"layers.#.altup.correct_output_scale", "H", TS_WEIGHT_OPTIONAL},
    {"layers.#.altup.correction_coefs.weight", "aa", 0},
    {"layers.#.altup.modality_router.weight", "aH", 0},
    {"layers.#.altup.prediction_coefs.weight", "ba", 0},
    {"layers.#.altup.router_norm.weight", "H", 0},
    {"layers.#.laurel.linear_left.weight", "lH", 0},
    {"layers.#.laurel.linear_right.weight", "Hl", 0},
    {"layers.#.laurel.post_laurel_norm.weight", "H", 0},
    {"layers.#.per_layer_input_gate.weight", "pH", 0},
    {"layers.#.per_layer_projection.weight", "Hp", 0},
    {"layers.#.post_per_layer_input_norm.weight", "H", 0},
    END,
};

#define LISTS(...)                                                                                                     \
    (const struct ts_rule *const[])                                                                                    \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

enum trait {
    TIES = 1,           /* tie_word_embeddings unless the config says no */
    QKV_BIAS = 2,       /* biases on q, k, v without being asked */
    ATTENTION_BIAS = 4, /* attention_bias turns on all four */
    SPLITS_HIDDEN = 8,  /* head_dim defaults to hidden_size / heads */
    ALL_EXPERTS = 16    /* every layer has experts */
};

static const struct architecture {
    const char *types; /* model_type */
    const struct ts_rule *const *rules;
    unsigned traits;
} architectures[] = {
    {"llama", LISTS(outer, attention, feed_forward), ATTENTION_BIAS | SPLITS_HIDDEN},
    {"mistral ministral", LISTS(outer, attention, feed_forward), SPLITS_HIDDEN},
    {"mixtral", LISTS(outer, attention, block_sparse), SPLITS_HIDDEN},
    {"qwen2", LISTS(outer, attention, feed_forward), QKV_BIAS | SPLITS_HIDDEN},
    {"qwen3", LISTS(outer, attention, head_norms, feed_forward), ATTENTION_BIAS},
    {"qwen2_moe", LISTS(outer, attention, feed_forward, experts, shared_expert), QKV_BIAS | SPLITS_HIDDEN},
    {"qwen3_moe", LISTS(outer, attention, head_norms, feed_forward, experts), ATTENTION_BIAS},
    {"olmoe", LISTS(outer, attention, wide_norms, experts), ATTENTION_BIAS | SPLITS_HIDDEN | ALL_EXPERTS},
    {"gemma", LISTS(outer, attention, feed_forward), TIES | ATTENTION_BIAS},
    {"gemma2", LISTS(outer, attention, feed_forward, around_feed_forward), TIES | ATTENTION_BIAS},
    {"gemma3 gemma3_text", LISTS(outer, attention, head_norms, feed_forward, around_feed_forward),
     TIES | ATTENTION_BIAS},
    {"gemma3n gemma3n_text", LISTS(outer, attention, head_norms, feed_forward, around_feed_forward, matryoshka),
     TIES | ATTENTION_BIAS},
    {"phi3", LISTS(outer, phi), SPLITS_HIDDEN},
    {"gpt2", LISTS(gpt), TIES},
    {"gpt_oss", LISTS(outer, attention, oss), ATTENTION_BIAS | ALL_EXPERTS},
    {"deepseek_v2", LISTS(outer, latent_attention, feed_forward, experts, shared_experts), ATTENTION_BIAS},
    {"deepseek_v3 kimi_k2", LISTS(outer, latent_attention, feed_forward, experts, shared_experts, correction),
     ATTENTION_BIAS},
};

static bool lists_type(const char *types, const char *type)
{
    size_t length = strlen(type);
    while (*types) {
        size_t size = strcspn(types, " ");
        if (size == length && memcmp(types, type, length) == 0)
            return true;
        types += size + (types[size] == ' ');
    }
    return false;
}

/* 0 stands for unknown and stays so. */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return ts_mul(a, b, &product) ? product : 0;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return a && b && ts_add(a, b, &sum) ? sum : 0;
}

static void fill_common(struct ts_promise *promise, unsigned traits)
{
    const struct ts_config *config = promise->config;
    uint64_t *size = promise->dimensions;
    uint64_t kv = ts_config_number(config, "num_key_value_heads", 0, 0);
    size['1'] = 1;
    size['H'] = ts_config_number(config, "hidden_size", 0, ts_config_number(config, "n_embd", 0, 0));
    size['V'] = ts_config_number(config, "vocab_size", 0, 0);
    size['N'] = ts_config_number(config, "num_attention_heads", 0, ts_config_number(config, "n_head", 0, 0));
    size['D'] = ts_config_number(config, "head_dim", 0, 0);
    if (!size['D'] && (traits & SPLITS_HIDDEN) && size['N'])
        size['D'] = size['H'] / size['N'];
    size['Q'] = times(size['N'], size['D']);
    size['K'] = times(kv, size['D']);
    size['G'] = plus(size['Q'], times(2, size['K']));
    size['I'] = ts_config_number(config, "intermediate_size", 0, 0);
    size['J'] = times(2, size['I']);
    size['P'] = ts_config_number(config, "n_positions", 0, 0);
    size['T'] = times(3, size['H']);
    size['F'] = ts_config_number(config, "n_inner", 0, times(4, size['H']));
}

static void fill_experts(struct ts_promise *promise)
{
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts"};
    const struct ts_config *config = promise->config;
    uint64_t *size = promise->dimensions;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !promise->experts; i++)
        promise->experts = ts_config_number(config, keys[i], 0, 0);
    size['E'] = promise->experts;
    size['M'] = ts_config_number(config, "moe_intermediate_size", 0, size['I']);
    size['S'] = ts_config_number(config, "shared_expert_intermediate_size", 0,
                                 times(ts_config_number(config, "n_shared_experts", 0, 0), size['M']));
}

/* A number that divides: 1 where there is none. */
static uint64_t step_of(const struct ts_config *config, const char *key)
{
    uint64_t step = ts_config_number(config, key, 0, 1);
    return step ? step : 1;
}

static void fill_layers(struct ts_promise *promise)
{
    const struct ts_config *config = promise->config;
    promise->layers = ts_config_number(config, "num_hidden_layers", 0, ts_config_number(config, "n_layer", 0, 0));
    promise->own_kv = promise->layers - ts_config_number(config, "num_kv_shared_layers", 0, 0);
    promise->extra_layers = ts_config_number(config, "num_nextn_predict_layers", 0, 0);
    promise->first_sparse = ts_config_number(config, "first_k_dense_replace", 0, 0);
    promise->sparse_step = step_of(config, "decoder_sparse_step");
    promise->sparse_frequency = step_of(config, "moe_layer_freq");
}

static void fill_latent(struct ts_promise *promise)
{
    const struct ts_config *config = promise->config;
    uint64_t *size = promise->dimensions;
    uint64_t nope = ts_config_number(config, "qk_nope_head_dim", 0, 0);
    uint64_t rope = ts_config_number(config, "qk_rope_head_dim", 0, 0);
    uint64_t value = ts_config_number(config, "v_head_dim", 0, 0);
    size['R'] = ts_config_number(config, "q_lora_rank", 0, 0);
    size['L'] = ts_config_number(config, "kv_lora_rank", 0, 0);
    size['C'] = plus(size['L'], rope);
    size['A'] = times(size['N'], plus(nope, rope));
    size['B'] = times(size['N'], plus(nope, value));
    size['O'] = times(size['N'], value);
    promise->absent |= size['R'] ? TS_WEIGHT_FULL_Q : TS_WEIGHT_LOW_RANK_Q;
}

static void fill_matryoshka(struct ts_promise *promise)
{
    const struct ts_config *config = promise->config;
    uint64_t *size = promise->dimensions;
    size['a'] = ts_config_number(config, "altup_num_inputs", 0, 0);
    size['b'] = times(size['a'], size['a']);
    size['l'] = ts_config_number(config, "laurel_rank", 0, 0);
    size['p'] = ts_config_number(config, "hidden_size_per_layer_input", 0, 0);
    size['q'] = times(promise->layers, size['p']);
    size['v'] = ts_config_number(config, "vocab_size_per_layer_input", 0, 0);
}

static void fill_biases(struct ts_promise *promise, unsigned traits)
{
    const struct ts_config *config = promise->config;
    bool all = (traits & ATTENTION_BIAS) && ts_config_truth(config, "attention_bias", false);
    bool qkv = all || ((traits & QKV_BIAS) && ts_config_truth(config, "qkv_bias", true));
    if (!qkv)
        promise->absent |= TS_WEIGHT_QKV_BIAS;
    if (!all)
        promise->absent |= TS_WEIGHT_OUT_BIAS;
    if (!ts_config_truth(config, "mlp_bias", false))
        promise->absent |= TS_WEIGHT_MLP_BIAS;
}

/* Whether the head has a matrix of its own. The wrapper of a multimodal model may say it elsewhere; models without a
 * language head need none. */
static void fill_head(struct ts_promise *promise, unsigned traits)
{
    const struct ts_config *config = promise->config;
    const char *class = ts_config_text(config, "architectures");
    if (ts_config_has(config, "tie_word_embeddings"))
        promise->head = ts_config_truth(config, "tie_word_embeddings", false) ? TS_TIED : TS_UNTIED;
    else
        promise->head = traits & TIES ? TS_TIED : config->nested ? TS_EITHER : TS_UNTIED;
    if (promise->head == TS_UNTIED && class && !strstr(class, "ForCausalLM") && !strstr(class, "LMHead") &&
        !strstr(class, "ForConditionalGeneration"))
        promise->head = TS_EITHER;
}

bool ts_promise_make(const struct ts_config *config, struct ts_promise *promise)
{
    const char *type = ts_config_text(config, "model_type");
    const struct architecture *architecture = NULL;
    for (size_t i = 0; type && i < sizeof architectures / sizeof *architectures; i++)
        if (lists_type(architectures[i].types, type))
            architecture = &architectures[i];
    if (!architecture)
        return false;
    *promise = (struct ts_promise){.family = type,
                                   .rules = architecture->rules,
                                   .prefix = strcmp(type, "gpt2") == 0 ? "transformer." : "model.",
                                   .config = config};
    fill_layers(promise);
    fill_common(promise, architecture->traits);
    fill_experts(promise);
    fill_latent(promise);
    fill_matryoshka(promise);
    fill_biases(promise, architecture->traits);
    fill_head(promise, architecture->traits);
    if (architecture->traits & ALL_EXPERTS)
        promise->absent |= TS_WEIGHT_IN_DENSE;
    return promise->layers > 0;
}

/* Experts from layer first_k_dense_replace on (DeepSeek), in every decoder_sparse_step-th layer that mlp_only_layers
 * does not name (Qwen). */
static bool has_experts(const struct ts_promise *promise, uint64_t layer)
{
    if (!promise->experts)
        return false;
    if (promise->absent & TS_WEIGHT_IN_DENSE)
        return true;
    return layer >= promise->first_sparse && (layer + 1) % promise->sparse_step == 0 &&
           layer % promise->sparse_frequency == 0 && !ts_config_lists(promise->config, "mlp_only_layers", layer);
}

bool ts_promise_applies(const struct ts_promise *promise, const struct ts_rule *rule, uint64_t layer, bool *optional)
{
    *optional = rule->needs & TS_WEIGHT_OPTIONAL;
    if (rule->needs & promise->absent)
        return false;
    if (rule->needs & TS_WEIGHT_OUTSIDE)
        *optional = promise->head != TS_UNTIED;
    if ((rule->needs & TS_WEIGHT_OWN_KV) && layer >= promise->own_kv)
        *optional = true;
    if (rule->needs & TS_WEIGHT_IN_DENSE)
        return !has_experts(promise, layer);
    if (rule->needs & TS_WEIGHT_IN_MOE)
        return has_experts(promise, layer);
    return true;
}

uint64_t ts_promise_size(const struct ts_promise *promise, const struct ts_rule *rule, uint64_t layer, unsigned axis)
{
    unsigned char letter = (unsigned char)rule->shape[axis];
    if (letter == 'I') /* may be a list, one per layer */
        return ts_config_number(promise->config, "intermediate_size", layer, 0);
    return promise->dimensions[letter & 127];
}
