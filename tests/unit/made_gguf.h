/* Makes GGUF files of the golden models, converted as llama.cpp's converter does it. */
#ifndef MADE_GGUF_H
#define MADE_GGUF_H

#include "model_golden.h"

#include <inttypes.h>

struct made_tensor {
    bool blocks; /* written as Q8_0 */
    char name[128];
    unsigned rank;
    uint64_t shape[3], count;
    float *values;
};

struct made_gguf {
    const struct golden *golden;
    size_t number;
    const char *architecture;
    struct made_tensor tensors[400];
    size_t count;
    struct ts_buffer keys;
    uint64_t key_count;
};

static struct made_tensor *made_add(struct made_gguf *made, const char *name, unsigned rank, const uint64_t *shape)
{
    struct made_tensor *tensor = &made->tensors[made->count++];
    assert_true(made->count <= 400 && rank <= 3);
    *tensor = (struct made_tensor){.rank = rank, .count = 1};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    for (unsigned i = 0; i < rank; i++)
        tensor->count *= tensor->shape[i] = shape[i];
    tensor->values = calloc(tensor->count + 1, sizeof *tensor->values);
    return tensor;
}

static struct made_tensor *made_find(struct made_gguf *made, const char *name)
{
    for (size_t i = 0; i < made->count; i++)
        if (strcmp(made->tensors[i].name, name) == 0)
            return &made->tensors[i];
    return NULL;
}

static const char *config_of(const struct made_gguf *made, const char *key)
{
    char name[256];
    snprintf(name, sizeof name, "config.%s", key);
    return of_case(made->golden, made->number, name);
}

static size_t config_count(const struct made_gguf *made, const char *key)
{
    const char *text = config_of(made, key);
    return text ? strtoull(text, NULL, 10) : 0;
}

static void put_u64(struct ts_buffer *out, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        ts_buffer_byte(out, (char)(value >> 8 * i));
}

static void put_text(struct ts_buffer *out, const char *text)
{
    put_u64(out, strlen(text), 8);
    ts_buffer_append(out, text, strlen(text));
}

static void put_float(struct ts_buffer *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    put_u64(out, bits, 4);
}

/* A key of the architecture; types by the format's numbers: 4 u32, 6 f32, 7 bool, 8 string, 9 array. */
static void key_begin(struct made_gguf *made, const char *suffix, uint32_t type)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", made->architecture, suffix);
    put_text(&made->keys, key);
    put_u64(&made->keys, type, 4);
    made->key_count++;
}

static void key_count(struct made_gguf *made, const char *suffix, size_t value)
{
    key_begin(made, suffix, 4);
    put_u64(&made->keys, value, 4);
}

static void key_number(struct made_gguf *made, const char *suffix, double value)
{
    key_begin(made, suffix, 6);
    put_float(&made->keys, (float)value);
}

static void key_text(struct made_gguf *made, const char *suffix, const char *value)
{
    key_begin(made, suffix, 8);
    put_text(&made->keys, value);
}

/* Keys from the config, where it has them. */
static void key_count_of(struct made_gguf *made, const char *suffix, const char *key)
{
    if (config_of(made, key))
        key_count(made, suffix, config_count(made, key));
}

static void key_number_of(struct made_gguf *made, const char *suffix, const char *key)
{
    if (config_of(made, key))
        key_number(made, suffix, strtod(config_of(made, key), NULL));
}

static const char *const made_names[][2] = {
    {"input_layernorm", "attn_norm"},
    {"ln_1", "attn_norm"},
    {"ln_2", "ffn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"altup.correction_coefs", "altup_correct_coef"},
    {"altup.prediction_coefs", "altup_predict_coef"},
    {"altup.modality_router", "altup_router"},
    {"altup.router_norm", "altup_router_norm"},
    {"laurel.linear_left", "laurel_l"},
    {"laurel.linear_right", "laurel_r"},
    {"laurel.post_laurel_norm", "laurel_post_norm"},
    {"model.embed_tokens", "token_embd"},
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.ln_f", "output_norm"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"model.embed_tokens_per_layer", "per_layer_token_embd"},
    {"model.per_layer_model_projection", "per_layer_model_proj"},
    {"model.per_layer_projection_norm", "per_layer_proj_norm"},
};

/* One parameter, or a part of the tensor it becomes a part of. rest: the name below its layer. */
static void convert(struct made_gguf *made, const char *name, unsigned rank, const uint64_t *shape, const float *from)
{
    bool gemma = strcmp(made->architecture, "gemma2") == 0 || strcmp(made->architecture, "gemma3") == 0,
         post = gemma || strcmp(made->architecture, "gemma3n") == 0 || strcmp(made->architecture, "gpt-oss") == 0;
    const char *rest = name, *ending, *words = NULL;
    char prefix[32] = "", full[128], stem[128], projection[16];
    struct made_tensor *to;
    unsigned layer = 0, expert;
    int length = 0;
    uint64_t count = 1;
    for (unsigned i = 0; i < rank; i++)
        count *= shape[i];
    if (sscanf(name, "model.layers.%u.%n", &layer, &length) == 1 && length)
        rest = name + length;
    else if (sscanf(name, "transformer.h.%u.%n", &layer, &length) == 1 && length)
        rest = name + length;
    if (rest != name)
        snprintf(prefix, sizeof prefix, "blk.%u.", layer);

    /* parameters that become parts of a stack */
    if (sscanf(rest, "mlp.experts.%u.%15[a-z]_proj.weight", &expert, projection) == 2 ||
        sscanf(rest, "block_sparse_moe.experts.%u.%15[w123].weight", &expert, projection) == 2) {
        const char *kind = strcmp(projection, "w1") == 0   ? "gate"
                           : strcmp(projection, "w2") == 0 ? "down"
                           : strcmp(projection, "w3") == 0 ? "up"
                                                           : projection;
        snprintf(full, sizeof full, "%sffn_%s_exps.weight", prefix, kind);
        to = made_find(made, full);
        if (!to)
            to = made_add(made, full, 3, (uint64_t[]){0, shape[0], shape[1]});
        assert_true(to->shape[0] == expert); /* they come in order */
        to->shape[0]++;
        to->count += count;
        to->values = realloc(to->values, to->count * sizeof *to->values);
        memcpy(to->values + expert * count, from, count * sizeof *from);
        return;
    }
    if (sscanf(rest, "model.altup_projections.%u", &expert) == 1 ||
        sscanf(rest, "model.altup_unembed_projections.%u", &expert) == 1) {
        snprintf(full, sizeof full, "altup_%sproj.weight", strstr(rest, "unembed") ? "unembd_" : "");
        to = made_find(made, full);
        if (!to)
            to = made_add(made, full, 3, (uint64_t[]){3, shape[0], shape[1]});
        memcpy(to->values + expert * count, from, count * sizeof *from);
        return;
    }
    if (strcmp(rest, "mlp.experts.gate_up_proj") == 0) { /* [experts, width, 2 inner], gate and up in turn */
        for (unsigned k = 0; k < 2; k++) {
            uint64_t inner = shape[2] / 2;
            snprintf(full, sizeof full, "%sffn_%s_exps.weight", prefix, k ? "up" : "gate");
            to = made_add(made, full, 3, (uint64_t[]){shape[0], inner, shape[1]});
            for (uint64_t e = 0; e < shape[0]; e++)
                for (uint64_t i = 0; i < inner; i++)
                    for (uint64_t h = 0; h < shape[1]; h++)
                        to->values[(e * inner + i) * shape[1] + h] = from[(e * shape[1] + h) * shape[2] + 2 * i + k];
        }
        return;
    }
    if (strcmp(rest, "mlp.experts.gate_up_proj_bias") == 0) {
        for (unsigned k = 0; k < 2; k++) {
            snprintf(full, sizeof full, "%sffn_%s_exps.bias", prefix, k ? "up" : "gate");
            to = made_add(made, full, 2, (uint64_t[]){shape[0], shape[1] / 2});
            for (uint64_t i = 0; i < to->count; i++)
                to->values[i] = from[2 * i + k];
        }
        return;
    }
    if (strcmp(rest, "mlp.experts.down_proj") == 0) {
        snprintf(full, sizeof full, "%sffn_down_exps.weight", prefix);
        to = made_add(made, full, 3, (uint64_t[]){shape[0], shape[2], shape[1]});
        for (uint64_t e = 0; e < shape[0]; e++)
            for (uint64_t i = 0; i < shape[1]; i++)
                for (uint64_t h = 0; h < shape[2]; h++)
                    to->values[(e * shape[2] + h) * shape[1] + i] = from[(e * shape[1] + i) * shape[2] + h];
        return;
    }
    if (strcmp(rest, "self_attn.kv_b_proj.weight") == 0) {
        uint64_t heads = config_count(made, "num_attention_heads"), plain = config_count(made, "qk_nope_head_dim"),
                 value = config_count(made, "v_head_dim"), low = shape[1];
        struct made_tensor *keys, *values;
        snprintf(full, sizeof full, "%sattn_k_b.weight", prefix);
        keys = made_add(made, full, 3, (uint64_t[]){heads, low, plain});
        snprintf(full, sizeof full, "%sattn_v_b.weight", prefix);
        values = made_add(made, full, 3, (uint64_t[]){heads, value, low});
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t i = 0; i < plain + value; i++)
                for (uint64_t r = 0; r < low; r++) {
                    float x = from[(h * (plain + value) + i) * low + r];
                    if (i < plain)
                        keys->values[(h * low + r) * plain + i] = x;
                    else
                        values->values[(h * value + i - plain) * low + r] = x;
                }
        return;
    }

    /* those that are renamed */
    ending = strrchr(rest, '.');
    snprintf(stem, sizeof stem, "%.*s", (int)(ending - rest), rest);
    for (size_t i = 0; i < sizeof made_names / sizeof *made_names && !words; i++)
        if (strcmp(made_names[i][0], stem) == 0)
            words = made_names[i][1];
    if (strcmp(stem, "post_attention_layernorm") == 0)
        words = post ? "post_attention_norm" : "ffn_norm";
    if (strcmp(rest, "self_attn.sinks") == 0)
        snprintf(full, sizeof full, "%sattn_sinks.weight", prefix);
    else if (strcmp(rest, "altup.correct_output_scale") == 0)
        snprintf(full, sizeof full, "%saltup_correct_scale.weight", prefix);
    else if (strcmp(rest, "mlp.gate.e_score_correction_bias") == 0)
        snprintf(full, sizeof full, "%sexp_probs_b.bias", prefix);
    else if (strcmp(rest, "mlp.experts.down_proj_bias") == 0)
        snprintf(full, sizeof full, "%sffn_down_exps.bias", prefix);
    else if (words)
        snprintf(full, sizeof full, "%s%s%s", prefix, words, ending);
    else
        fail_msg("no name for %s", name);
    to = made_add(made, full, rank, shape);
    memcpy(to->values, from, count * sizeof *from);
    if (gemma && ts_ends_with(name, "norm.weight"))
        for (uint64_t i = 0; i < count; i++)
            to->values[i] += 1;
    if (strcmp(made->architecture, "gpt2") == 0 && rank == 2 && strstr(name, ".c_")) {
        to->shape[0] = shape[1];
        to->shape[1] = shape[0];
        for (uint64_t i = 0; i < shape[0]; i++)
            for (uint64_t j = 0; j < shape[1]; j++)
                to->values[j * shape[0] + i] = from[i * shape[1] + j];
    }
    if (strcmp(made->architecture, "llama") == 0 && (strstr(name, "q_proj") || strstr(name, "k_proj"))) {
        uint64_t heads = config_count(made, strstr(name, "q_proj") ? "num_attention_heads" : "num_key_value_heads"),
                 size = shape[0] / heads, width = rank == 2 ? shape[1] : 1;
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t half = 0; half < 2; half++)
                for (uint64_t i = 0; i < size / 2; i++)
                    memcpy(to->values + (h * size + 2 * i + half) * width,
                           from + (h * size + half * size / 2 + i) * width, width * sizeof *from);
    }
}

static void convert_weights(struct made_gguf *made)
{
    const struct ts_model_config *all = &made->golden->all;
    float center = strtof(of_case(made->golden, made->number, "center"), NULL);
    char prefix[64];
    size_t length = (size_t)snprintf(prefix, sizeof prefix, "cases.%zu.weights.", made->number);
    for (size_t i = 0; i < all->count; i++) {
        const char *key = all->keys[i];
        uint64_t shape[3], count = 1;
        unsigned rank = 0;
        char name[256], size[400];
        float *values;
        if (strncmp(key, prefix, length) != 0 || !ts_ends_with(key, ".0"))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(key + length) - 2), key + length);
        for (; rank < 3; rank++) {
            snprintf(size, sizeof size, "%s%s.%u", prefix, name, rank);
            if (!ts_model_config_text(all, size))
                break;
            count *= shape[rank] = strtoull(ts_model_config_text(all, size), NULL, 10);
        }
        values = malloc(count * sizeof *values);
        for (uint64_t k = 0; k < count; k++)
            values[k] = weight_of(name, k, shape, rank, center);
        convert(made, name, rank, shape, values);
        free(values);
    }
}

/* Makes every weight with whole blocks of 32 one that Q8_0 has exactly: codes times a scale that f16 has. */
static void made_quantize(struct made_gguf *made)
{
    for (size_t i = 0; i < made->count; i++) {
        struct made_tensor *tensor = &made->tensors[i];
        if (tensor->rank < 2 || tensor->shape[tensor->rank - 1] % 32)
            continue;
        for (uint64_t k = 0; k < tensor->count; k++) {
            float code = roundf(tensor->values[k] * 64);
            /* there is no negative zero */
            tensor->values[k] = (code > 127 ? 127 : code < -127 ? -127 : code + 0.0f) / 64;
        }
    }
}

/* Q8_0: 32 elements are a scale in f16 and a signed byte each; 0x2400 is 1/64. */
static void put_blocks(struct ts_buffer *out, const struct made_tensor *tensor)
{
    for (uint64_t k = 0; k < tensor->count; k++) {
        if (k % 32 == 0)
            put_u64(out, 0x2400, 2);
        ts_buffer_byte(out, (char)(int)(tensor->values[k] * 64));
    }
}

/* Header, keys, directory, data at multiples of 32. */
static void made_write(const struct made_gguf *made, const char *path)
{
    struct ts_buffer out;
    uint64_t offset = 0;
    FILE *file = fopen(path, "w");
    ts_buffer_init(&out, (size_t)64 << 20);
    ts_buffer_string(&out, "GGUF");
    put_u64(&out, 3, 4);
    put_u64(&out, made->count, 8);
    put_u64(&out, made->key_count + 1, 8);
    put_text(&out, "general.architecture");
    put_u64(&out, 8, 4);
    put_text(&out, made->architecture);
    ts_buffer_append(&out, made->keys.data, made->keys.size);
    for (size_t i = 0; i < made->count; i++) {
        const struct made_tensor *tensor = &made->tensors[i];
        put_text(&out, tensor->name);
        put_u64(&out, tensor->rank, 4);
        for (unsigned k = tensor->rank; k-- > 0;)
            put_u64(&out, tensor->shape[k], 8);
        put_u64(&out, tensor->blocks ? 8 : 0, 4);
        put_u64(&out, offset, 8);
        offset += ((tensor->blocks ? tensor->count / 32 * 34 : tensor->count * 4) + 31) / 32 * 32;
    }
    while (out.size % 32)
        ts_buffer_byte(&out, 0);
    for (size_t i = 0; i < made->count; i++) {
        if (made->tensors[i].blocks)
            put_blocks(&out, &made->tensors[i]);
        for (uint64_t k = 0; k < made->tensors[i].count && !made->tensors[i].blocks; k++)
            put_float(&out, made->tensors[i].values[k]);
        while (out.size % 32)
            ts_buffer_byte(&out, 0);
    }
    assert_false(out.failed);
    assert_non_null(file);
    assert_int_equal(fwrite(out.data, 1, out.size, file), out.size);
    assert_int_equal(fclose(file), 0);
    ts_buffer_release(&out);
}

static void made_release(struct made_gguf *made)
{
    for (size_t i = 0; i < made->count; i++)
        free(made->tensors[i].values);
    ts_buffer_release(&made->keys);
    free(made);
}

#endif
