/* Owns the settings of GGUF models: the file's keys as the config that the families read. */
#include "model/gguf_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/table.h"
#include "base/text.h"

/* Rotary factors: half a head. */
#define MOST_FACTORS 65536

struct reader {
    const struct ts_bundle *bundle;
    const struct ts_gguf_architecture *architecture;
    struct ts_model_config *config;
    struct ts_error *error;
    struct ts_table tensors; /* by name */
    size_t layers, room;
};

bool ts_gguf_is_model(const struct ts_bundle *bundle)
{
    return bundle->format && ts_starts_with(bundle->format, "gguf");
}

enum ts_status ts_gguf_architecture(const struct ts_bundle *bundle, const struct ts_gguf_architecture **architecture,
                                    struct ts_error *error)
{
    const char *name = ts_bundle_meta_value(bundle, "general.architecture");
    char known[512] = "";
    size_t length = 0;
    if (!name)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "the file has no key general.architecture");
    for (size_t i = 0; ts_gguf_architectures[i].name; i++) {
        if (strcmp(ts_gguf_architectures[i].name, name) == 0) {
            *architecture = &ts_gguf_architectures[i];
            return TS_OK;
        }
        if (length < sizeof known)
            length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
                                       ts_gguf_architectures[i].name);
    }
    return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                   "the file is of the architecture \"%.60s\", which cannot be run yet; these can: %s", name, known);
}

static const struct ts_tensor *tensor_of(const struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const struct ts_tensor *tensor_of(const struct reader *reader, const char *format, ...)
{
    char name[128];
    size_t found;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    found = ts_table_get(&reader->tensors, name);
    return found == SIZE_MAX ? NULL : reader->bundle->tensors[found];
}

/* The key's value as text, or NULL: "ARCHITECTURE.suffix". */
static const char *text_of(const struct reader *reader, const char *suffix)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", reader->architecture->name, suffix);
    return ts_bundle_meta_value(reader->bundle, key);
}

static enum ts_status put(const struct reader *reader, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum ts_status put(const struct reader *reader, const char *key, const char *format, ...)
{
    char value[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (reader->config->count >= reader->room || !ts_model_config_put(reader->config, key, value))
        return ts_fail_memory(reader->error);
    return TS_OK;
}

/* Entry i of a list "[3 u32] 1, 2, 3", or of a single value, which is the same for all; its length, and 0 behind the
 * end. */
static size_t entry_of(const char *text, size_t i, const char **entry)
{
    *entry = text;
    if (text[0] != '[')
        return strlen(text);
    *entry = strchr(text, ']');
    if (!*entry)
        return 0;
    ++*entry;
    for (;; i--) {
        size_t length;
        *entry += strspn(*entry, " ,");
        length = strcspn(*entry, " ,");
        if (!i || !length)
            return length;
        *entry += length;
    }
}

static enum ts_status number_at(const struct reader *reader, const char *suffix, size_t i, double *number)
{
    const char *text = text_of(reader, suffix), *entry;
    size_t length = entry_of(text, i, &entry);
    char word[64], *end = word;
    snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : 0), entry);
    *number = strtod(word, &end);
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
        *number = word[0] == 't';
    else if (!word[0] || *end)
        return ts_fail(reader->error, TS_ERR_FORMAT, TS_NO_OFFSET, "the key %s.%s is \"%.40s\", expected a number%s",
                       reader->architecture->name, suffix, text,
                       text[0] == '[' ? " for each layer, of which up to 256 are read" : "");
    return TS_OK;
}

/* A number that must be the same in all layers. *number stays where the key is absent. */
static enum ts_status number_of(const struct reader *reader, const char *suffix, double *number)
{
    const char *text = text_of(reader, suffix);
    double other;
    if (!text)
        return TS_OK;
    TS_TRY(number_at(reader, suffix, 0, number));
    for (size_t i = 1; text[0] == '[' && i < reader->layers; i++) {
        TS_TRY(number_at(reader, suffix, i, &other));
        if (other != *number)
            return ts_fail(reader->error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                           "the key %s.%s differs between layers, which cannot be run yet", reader->architecture->name,
                           suffix);
    }
    return TS_OK;
}

static enum ts_status put_number(const struct reader *reader, const char *key, double number)
{
    return put(reader, key, "%.17g", number);
}

/* The key under another name, where it is there. */
static enum ts_status copy(const struct reader *reader, const char *suffix, const char *key)
{
    double number = 0;
    if (!text_of(reader, suffix))
        return TS_OK;
    TS_TRY(number_of(reader, suffix, &number));
    return put_number(reader, key, number);
}

static enum ts_status need(const struct reader *reader, const char *suffix, const char *key)
{
    double number = 0;
    if (!text_of(reader, suffix))
        return ts_fail(reader->error, TS_ERR_FORMAT, TS_NO_OFFSET, "the file has no key %s.%s",
                       reader->architecture->name, suffix);
    TS_TRY(number_of(reader, suffix, &number));
    if (!(number >= 1 && number <= 1e9))
        return ts_fail(reader->error, TS_ERR_FORMAT, TS_NO_OFFSET, "the key %s.%s is %g, expected a count",
                       reader->architecture->name, suffix, number);
    return put_number(reader, key, number);
}

/* A list of factors, one per frequency, that the file keeps as a tensor. */
static enum ts_status put_factors(const struct reader *reader, const char *tensor_name, const char *key)
{
    const struct ts_tensor *tensor = tensor_of(reader, "%s", tensor_name);
    float *values =
        tensor && tensor->count <= MOST_FACTORS ? malloc((size_t)(tensor->count + 1) * sizeof *values) : NULL;
    enum ts_status status;
    char name[128];
    if (!tensor)
        return TS_OK;
    if (tensor->count > MOST_FACTORS)
        return ts_fail(reader->error, TS_ERR_FORMAT, TS_NO_OFFSET, "%s has %" PRIu64 " rotary factors", tensor_name,
                       tensor->count);
    if (!values)
        return ts_fail_memory(reader->error);
    status = ts_tensor_read_f32(tensor, 0, (size_t)tensor->count, values, reader->error);
    for (size_t i = 0; i < tensor->count && status == TS_OK; i++) {
        snprintf(name, sizeof name, "%s.%zu", key, i);
        status = put(reader, name, "%.9g", (double)values[i]);
    }
    free(values);
    return status;
}

/* The scaling of rotary positions below `at`: "rope_parameters", or its full_attention. */
static enum ts_status put_rotary(const struct reader *reader, const char *at)
{
    static const char *const numbers[][2] = {
        {"rope.freq_base", "rope_theta"},
        {"rope.scaling.factor", "factor"},
        {"rope.scaling.original_context_length", "original_max_position_embeddings"},
        {"rope.scaling.yarn_attn_factor", "attention_factor"},
        {"rope.scaling.attn_factor", "attention_factor"},
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    const char *type = text_of(reader, "rope.scaling.type");
    double factor = 1, newer = 0;
    char key[128];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", at, numbers[i][1]);
        TS_TRY(copy(reader, numbers[i][0], key));
    }
    TS_TRY(number_of(reader, "rope.scale_linear", &factor)); /* as old files have it */
    TS_TRY(number_of(reader, "rope.scaling.factor", &newer));
    factor = newer > 0 ? newer : factor;
    if (!type && factor != 1) { /* which is what a factor alone means to llama.cpp */
        type = "linear";
        snprintf(key, sizeof key, "%s.factor", at);
        TS_TRY(put_number(reader, key, factor));
    }
    if (tensor_of(reader, "rope_factors_long.weight"))
        type = "longrope";
    else if (tensor_of(reader, "rope_freqs.weight"))
        type = "factors";
    else if (!type || strcmp(type, "none") == 0)
        type = "default";
    snprintf(key, sizeof key, "%s.rope_type", at);
    TS_TRY(put(reader, key, "%.40s", type));
    snprintf(key, sizeof key, "%s.factors", at);
    TS_TRY(put_factors(reader, "rope_freqs.weight", key));
    snprintf(key, sizeof key, "%s.long_factor", at);
    TS_TRY(put_factors(reader, "rope_factors_long.weight", key));
    snprintf(key, sizeof key, "%s.short_factor", at);
    return put_factors(reader, "rope_factors_short.weight", key);
}

/* Which layers look back only so far: a list in the file, a period in it, or that of the architecture. */
static enum ts_status put_windows(const struct reader *reader)
{
    static const char suffix[] = "attention.sliding_window_pattern";
    const char *text = text_of(reader, suffix);
    double period = (double)reader->architecture->period, window = 0, here;
    window = ts_model_config_number(reader->config, "sliding_window", 0);
    if (text && text[0] != '[')
        TS_TRY(number_of(reader, suffix, &period));
    for (size_t i = 0; i < reader->layers; i++) {
        char key[64];
        here = period >= 1 ? fmod((double)i, period) < period - 1 : 0;
        if (text && text[0] == '[')
            TS_TRY(number_at(reader, suffix, i, &here));
        snprintf(key, sizeof key, "layer_types.%zu", i);
        TS_TRY(put(reader, key, "%s", here != 0 && window > 0 ? "sliding_attention" : "full_attention"));
    }
    return TS_OK;
}

/* The file does not say by what scores are divided; the largest models have another measure than the head's size. */
static enum ts_status put_query_scale(const struct reader *reader, size_t large)
{
    double hidden = 0, heads = 1, size = 0, scale = 0;
    TS_TRY(number_of(reader, "attention.scale", &scale));
    if (scale > 0)
        return put_number(reader, "query_pre_attn_scalar", 1 / (scale * scale));
    TS_TRY(number_of(reader, "embedding_length", &hidden));
    TS_TRY(number_of(reader, "attention.head_count", &heads));
    TS_TRY(number_of(reader, "attention.key_length", &size));
    if (reader->layers == large || !(size > 0))
        size = floor(hidden / heads);
    return put_number(reader, "query_pre_attn_scalar", size);
}

static enum ts_status gemma2(const struct reader *reader)
{
    if (!text_of(reader, "attention.sliding_window"))
        TS_TRY(put(reader, "sliding_window", "4096"));
    return put_query_scale(reader, 46);
}

/* Two rotary bases: one for layers with a window. */
static enum ts_status two_rotaries(const struct reader *reader)
{
    double local = 10000;
    TS_TRY(number_of(reader, "rope.freq_base_swa", &local));
    TS_TRY(put_number(reader, "rope_parameters.sliding_attention.rope_theta", local));
    TS_TRY(put(reader, "rope_parameters.sliding_attention.rope_type", "default"));
    if (!text_of(reader, "rope.freq_base"))
        TS_TRY(put(reader, "rope_parameters.full_attention.rope_theta", "1000000"));
    return put_rotary(reader, "rope_parameters.full_attention");
}

static enum ts_status gemma3(const struct reader *reader)
{
    TS_TRY(two_rotaries(reader));
    return put_query_scale(reader, 62);
}

static enum ts_status gemma3n(const struct reader *reader)
{
    const struct ts_tensor *table = tensor_of(reader, "per_layer_token_embd.weight"),
                           *left = tensor_of(reader, "blk.0.laurel_l.weight");
    char key[64];
    double number;
    TS_TRY(two_rotaries(reader));
    TS_TRY(copy(reader, "altup.num_inputs", "altup_num_inputs"));
    TS_TRY(copy(reader, "altup.active_idx", "altup_active_idx"));
    TS_TRY(need(reader, "embedding_length_per_layer_input", "hidden_size_per_layer_input"));
    TS_TRY(copy(reader, "attention.shared_kv_layers", "num_kv_shared_layers"));
    if (table && table->rank == 2)
        TS_TRY(put(reader, "vocab_size_per_layer_input", "%" PRIu64, table->shape[0]));
    if (left && left->rank == 2)
        TS_TRY(put(reader, "laurel_rank", "%" PRIu64, left->shape[0]));
    for (size_t i = 0; text_of(reader, "feed_forward_length") && i < reader->layers; i++) {
        TS_TRY(number_at(reader, "feed_forward_length", i, &number));
        snprintf(key, sizeof key, "intermediate_size.%zu", i);
        TS_TRY(put_number(reader, key, number));
    }
    /* How many standard deviations above the mean a gate opens; transformers keeps the share that stays shut. */
    for (size_t i = 0; text_of(reader, "activation_sparsity_scale") && i < reader->layers; i++) {
        TS_TRY(number_at(reader, "activation_sparsity_scale", i, &number));
        snprintf(key, sizeof key, "activation_sparsity_pattern.%zu", i);
        TS_TRY(put_number(reader, key, erfc(-number / sqrt(2)) / 2));
    }
    return TS_OK;
}

static enum ts_status phi3(const struct reader *reader)
{
    double turned = 0, size = 0, hidden = 0, heads = 1;
    TS_TRY(number_of(reader, "rope.dimension_count", &turned));
    TS_TRY(number_of(reader, "embedding_length", &hidden));
    TS_TRY(number_of(reader, "attention.head_count", &heads));
    size = floor(hidden / heads);
    TS_TRY(number_of(reader, "attention.key_length", &size));
    /* half a number more, so that the product with the size is cut to the count again */
    if (turned > 0 && turned < size)
        TS_TRY(put_number(reader, "rope_parameters.partial_rotary_factor", (turned + 0.5) / size));
    return TS_OK;
}

static enum ts_status gpt2(const struct reader *reader)
{
    const struct ts_tensor *table = tensor_of(reader, "position_embd.weight");
    TS_TRY(need(reader, "embedding_length", "n_embd"));
    TS_TRY(need(reader, "attention.head_count", "n_head"));
    TS_TRY(need(reader, "block_count", "n_layer"));
    TS_TRY(copy(reader, "feed_forward_length", "n_inner"));
    if (table && table->rank == 2)
        TS_TRY(put(reader, "n_positions", "%" PRIu64, table->shape[0]));
    return TS_OK;
}

static enum ts_status gpt_oss(const struct reader *reader)
{
    TS_TRY(need(reader, "expert_feed_forward_length", "intermediate_size"));
    return put(reader, "rope_parameters.truncate", "false");
}

static enum ts_status deepseek(const struct reader *reader)
{
    double turned = 0, key = 0, value = 0, gate = 0, logarithm = 0, further = 0, groups = 0;
    TS_TRY(number_of(reader, "expert_gating_func", &gate));
    if (gate != 2)
        return ts_fail(reader->error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                       "the experts are not chosen by sigmoids (the key %s.expert_gating_func is not 2): only models "
                       "like DeepSeek 3 can be run yet",
                       reader->architecture->name);
    TS_TRY(number_of(reader, "rope.dimension_count", &turned));
    TS_TRY(number_of(reader, "attention.key_length", &key));
    TS_TRY(number_of(reader, "attention.key_length_mla", &key));
    TS_TRY(number_of(reader, "attention.value_length", &value));
    TS_TRY(number_of(reader, "attention.value_length_mla", &value));
    if (!(key > turned) || !(turned > 0))
        return ts_fail(reader->error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "heads of %g numbers of which %g turn: the keys attention.key_length and rope.dimension_count "
                       "do not fit",
                       key, turned);
    TS_TRY(put_number(reader, "qk_rope_head_dim", turned));
    TS_TRY(put_number(reader, "qk_nope_head_dim", key - turned));
    TS_TRY(put_number(reader, "v_head_dim", value));
    TS_TRY(need(reader, "attention.kv_lora_rank", "kv_lora_rank"));
    TS_TRY(copy(reader, "attention.q_lora_rank", "q_lora_rank"));
    TS_TRY(copy(reader, "expert_count", "n_routed_experts"));
    TS_TRY(copy(reader, "expert_shared_count", "n_shared_experts"));
    TS_TRY(copy(reader, "expert_weights_scale", "routed_scaling_factor"));
    TS_TRY(number_of(reader, "expert_group_count", &groups));
    if (groups > 0) { /* none may be written as 0 */
        TS_TRY(put_number(reader, "n_group", groups));
        TS_TRY(copy(reader, "expert_group_used_count", "topk_group"));
    }
    TS_TRY(copy(reader, "leading_dense_block_count", "first_k_dense_replace"));
    TS_TRY(number_of(reader, "nextn_predict_layers", &further));
    if (further >= 1 && further < (double)reader->layers) {
        TS_TRY(put_number(reader, "num_nextn_predict_layers", further));
        TS_TRY(put_number(reader, "num_hidden_layers", (double)reader->layers - further));
    }
    TS_TRY(number_of(reader, "rope.scaling.yarn_log_multiplier", &logarithm));
    if (logarithm > 0) { /* written a tenth of what it is */
        TS_TRY(put_number(reader, "rope_parameters.mscale", logarithm * 10));
        TS_TRY(put_number(reader, "rope_parameters.mscale_all_dim", logarithm * 10));
    }
    return TS_OK;
}

/* The llama architecture is Mixtral when it has experts, and Mistral when it has a window. */
static const char *type_of(const struct reader *reader, double experts, double window)
{
    if (strcmp(reader->architecture->name, "llama") != 0)
        return reader->architecture->type;
    return experts > 0 ? "mixtral" : window > 0 ? "mistral" : "llama";
}

static enum ts_status put_experts(const struct reader *reader)
{
    const struct ts_tensor *stack = NULL, *shared = NULL;
    bool renormalise = reader->architecture->renormalise;
    double norm = renormalise;
    size_t plain = 0;
    TS_TRY(copy(reader, "expert_count", "num_experts"));
    TS_TRY(copy(reader, "expert_count", "num_local_experts"));
    TS_TRY(copy(reader, "expert_used_count", "num_experts_per_tok"));
    TS_TRY(number_of(reader, "expert_weights_norm", &norm));
    TS_TRY(put(reader, "norm_topk_prob", "%s", norm != 0 ? "true" : "false"));
    for (size_t i = 0; i < reader->layers; i++) {
        char key[64];
        stack = stack ? stack : tensor_of(reader, "blk.%zu.ffn_up_exps.weight", i);
        shared = shared ? shared : tensor_of(reader, "blk.%zu.ffn_up_shexp.weight", i);
        if (tensor_of(reader, "blk.%zu.ffn_gate_inp.weight", i) || !tensor_of(reader, "blk.%zu.ffn_up.weight", i))
            continue;
        snprintf(key, sizeof key, "mlp_only_layers.%zu", plain++);
        TS_TRY(put(reader, key, "%zu", i));
    }
    TS_TRY(copy(reader, "expert_feed_forward_length", "moe_intermediate_size"));
    if (!text_of(reader, "expert_feed_forward_length") && stack && stack->rank == 3)
        TS_TRY(put(reader, "moe_intermediate_size", "%" PRIu64, stack->shape[1]));
    if (shared && shared->rank == 2)
        TS_TRY(put(reader, "shared_expert_intermediate_size", "%" PRIu64, shared->shape[0]));
    return TS_OK;
}

static enum ts_status put_common(const struct reader *reader)
{
    const struct ts_tensor *embedding = tensor_of(reader, "token_embd.weight");
    const char *function = reader->architecture->function;
    double experts = 0, window = 0;
    if (!embedding || embedding->rank != 2)
        return ts_fail(reader->error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       embedding ? "token_embd.weight is not a matrix" : "there is no token_embd.weight");
    TS_TRY(number_of(reader, "expert_count", &experts));
    TS_TRY(number_of(reader, "attention.sliding_window", &window));
    TS_TRY(put(reader, "model_type", "%s", type_of(reader, experts, window)));
    TS_TRY(put(reader, "vocab_size", "%" PRIu64, embedding->shape[0]));
    TS_TRY(need(reader, "block_count", "num_hidden_layers"));
    TS_TRY(need(reader, "embedding_length", "hidden_size"));
    TS_TRY(need(reader, "attention.head_count", "num_attention_heads"));
    if (strcmp(reader->architecture->name, "deepseek2") != 0) { /* which writes those of its latent */
        TS_TRY(copy(reader, "attention.head_count_kv", "num_key_value_heads"));
        TS_TRY(copy(reader, "attention.key_length", "head_dim"));
    }
    if (strcmp(reader->architecture->name, "gemma3n") != 0)
        TS_TRY(copy(reader, "feed_forward_length", "intermediate_size"));
    TS_TRY(copy(reader, "attention.layer_norm_rms_epsilon", "rms_norm_eps"));
    TS_TRY(copy(reader, "attention.layer_norm_epsilon", "layer_norm_epsilon"));
    TS_TRY(copy(reader, "context_length", "max_position_embeddings"));
    TS_TRY(copy(reader, "attention.clamp_kqv", "clip_qkv"));
    TS_TRY(copy(reader, "attn_logit_softcapping", "attn_logit_softcapping"));
    TS_TRY(copy(reader, "final_logit_softcapping", "final_logit_softcapping"));
    if (window > 0)
        TS_TRY(put_number(reader, "sliding_window", window));
    TS_TRY(put(reader, "hidden_act", "%s", function));
    TS_TRY(put(reader, "hidden_activation", "%s", function));
    TS_TRY(put(reader, "activation_function", "%s", function));
    TS_TRY(put(reader, "tie_word_embeddings", "%s", tensor_of(reader, "output.weight") ? "false" : "true"));
    TS_TRY(put(reader, "attention_bias", "%s", tensor_of(reader, "blk.0.attn_output.bias") ? "true" : "false"));
    return put(reader, "mlp_bias", "%s", tensor_of(reader, "blk.0.ffn_up.bias") ? "true" : "false");
}

/* Most families turn whole heads, and have nothing to do with a number that says otherwise. */
static enum ts_status check_turned(const struct reader *reader)
{
    double hidden = 0, heads = 1, size = 0, turned = 0;
    TS_TRY(number_of(reader, "embedding_length", &hidden));
    TS_TRY(number_of(reader, "attention.head_count", &heads));
    TS_TRY(number_of(reader, "attention.key_length", &size));
    TS_TRY(number_of(reader, "rope.dimension_count", &turned));
    size = size > 0 ? size : floor(hidden / heads);
    if (turned > 0 && turned != size)
        return ts_fail(reader->error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "the key %s.rope.dimension_count is %g, and heads of %g numbers turn as a whole in this family",
                       reader->architecture->name, turned, size);
    return TS_OK;
}

static enum ts_status read_all(const struct reader *reader)
{
    static const struct {
        const char *name;
        enum ts_status (*settings)(const struct reader *reader);
    } special[] = {{"gemma2", gemma2}, {"gemma3", gemma3},   {"gemma3n", gemma3n},   {"phi3", phi3},
                   {"gpt2", gpt2},     {"gpt-oss", gpt_oss}, {"deepseek2", deepseek}};
    /* what stands there first counts: what is special goes before */
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (strcmp(special[i].name, reader->architecture->name) == 0)
            TS_TRY(special[i].settings(reader));
    TS_TRY(put_common(reader));
    if (strcmp(reader->architecture->name, "phi3") != 0 && strcmp(reader->architecture->name, "deepseek2") != 0)
        TS_TRY(check_turned(reader));
    TS_TRY(put_rotary(reader, "rope_parameters"));
    if (reader->architecture->period)
        TS_TRY(put_windows(reader));
    return text_of(reader, "expert_count") ? put_experts(reader) : TS_OK;
}

/* How many keys the config may get. */
static bool count_room(struct reader *reader)
{
    static const char *const lists[] = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
    double layers = 0;
    if (number_of(reader, "block_count", &layers) != TS_OK)
        return false;
    if (!(layers >= 0 && layers <= (double)reader->bundle->count)) {
        ts_fail(reader->error, TS_ERR_FORMAT, TS_NO_OFFSET,
                "the key %s.block_count is %g, and the file has %zu tensors", reader->architecture->name, layers,
                reader->bundle->count);
        return false;
    }
    reader->layers = (size_t)layers;
    reader->room = 128 + 4 * reader->layers;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const struct ts_tensor *tensor = tensor_of(reader, "%s", lists[i]);
        reader->room += 2 * (tensor && tensor->count <= MOST_FACTORS ? (size_t)tensor->count : 0);
    }
    return true;
}

enum ts_status ts_gguf_settings(const struct ts_bundle *bundle, const struct ts_gguf_architecture *architecture,
                                struct ts_model_config *config, struct ts_error *error)
{
    struct reader reader = {.bundle = bundle, .architecture = architecture, .config = config, .error = error};
    enum ts_status status;
    if (!ts_table_init(&reader.tensors, bundle->count + 1))
        return ts_fail_memory(error);
    for (size_t i = 0; i < bundle->count; i++)
        ts_table_put(&reader.tensors, bundle->tensors[i]->name, i, NULL);
    if (!count_room(&reader))
        status = error->status;
    else if (!ts_model_config_init(config, reader.room))
        status = ts_fail_memory(error);
    else
        status = read_all(&reader);
    ts_table_release(&reader.tensors);
    if (status != TS_OK)
        ts_model_config_release(config);
    return status;
}
