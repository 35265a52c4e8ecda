#include "diagnose/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* Objects inside the first one that are about the same model. */
#define DEEPEST 2

/* Keys of one meaning, separated by blanks, in config.json and in GGUF metadata (behind the architecture's name). */
static const struct {
    const char *json, *gguf;
} keys[TS_SETTING_COUNT] = {
    [TS_SETTING_HEADS] = {"num_attention_heads n_head n_heads num_heads", "attention.head_count"},
    [TS_SETTING_KV_HEADS] = {"num_key_value_heads n_kv_heads num_kv_heads n_head_kv multi_query_group_num",
                             "attention.head_count_kv"},
    [TS_SETTING_HEAD_DIM] = {"head_dim attention_head_dim kv_channels", "attention.key_length"},
    [TS_SETTING_HIDDEN] = {"hidden_size n_embd d_model dim", "embedding_length"},
    [TS_SETTING_THETA] = {"rope_theta rotary_emb_base rope_base", "rope.freq_base"},
    [TS_SETTING_LOCAL_THETA] = {"rope_local_base_freq local_rope_theta", "rope.freq_base_swa"},
    [TS_SETTING_PARTIAL_ROTARY] = {"partial_rotary_factor rotary_pct", ""},
    [TS_SETTING_EPSILON] = {"rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps norm_epsilon layernorm_epsilon",
                            "attention.layer_norm_rms_epsilon attention.layer_norm_epsilon"},
    [TS_SETTING_WINDOW] = {"sliding_window sliding_window_size attention_window window_size",
                           "attention.sliding_window"},
    [TS_SETTING_SCORE_CAP] = {"attn_logit_softcapping attn_logit_softcap", "attn_logit_softcapping"},
    [TS_SETTING_LOGIT_CAP] = {"final_logit_softcapping", "final_logit_softcapping"},
    [TS_SETTING_EXPERTS] = {"num_experts num_local_experts n_routed_experts", "expert_count"},
    [TS_SETTING_EXPERTS_USED] = {"num_experts_per_tok num_experts_per_token moe_topk top_k_experts",
                                 "expert_used_count"},
    [TS_SETTING_RENORMALIZED] = {"norm_topk_prob", "expert_weights_norm"},
    [TS_SETTING_ROUTED_SCALE] = {"routed_scaling_factor", "expert_weights_scale"},
    [TS_SETTING_QUERY_SCALAR] = {"query_pre_attn_scalar", ""},
    [TS_SETTING_EMBEDDING_SCALE] = {"embedding_multiplier scale_emb", "embedding_scale"},
    [TS_SETTING_RESIDUAL_SCALE] = {"residual_multiplier", "residual_scale"},
    [TS_SETTING_ATTENTION_SCALE] = {"attention_multiplier", "attention.scale"},
    [TS_SETTING_LOGITS_SCALE] = {"logits_scaling logit_scale", "logit_scale"},
    [TS_SETTING_INITIAL_STD] = {"initializer_range", ""},
};

/* Objects whose numbers count as the model's own. */
static const char *const inner[] = {"text_config",     "llm_config",   "language_config",
                                    "rope_parameters", "rope_scaling", "full_attention"};

void ts_settings_clear(struct ts_settings *config)
{
    memset(config, 0, sizeof *config);
    for (int key = 0; key < TS_SETTING_COUNT; key++)
        config->values[key] = (double)NAN;
}

/* Whether `word` is one of several separated by blanks. */
static bool is_among(const char *word, const char *list)
{
    size_t length = strlen(word);
    for (const char *at = list; *at;) {
        size_t size = strcspn(at, " ");
        if (size == length && memcmp(at, word, size) == 0)
            return true;
        at += size;
        at += *at == ' ';
    }
    return false;
}

static void set(struct ts_settings *config, int key, const char *name, double value)
{
    if (!isnan(config->values[key]) || !isfinite(value)) /* the outermost one counts */
        return;
    config->values[key] = value;
    snprintf(config->names[key], sizeof config->names[key], "%s", name);
}

static void set_text(const struct ts_json *json, char *out, size_t room)
{
    if (json->kind == TS_JSON_STRING && !json->escaped && json->raw_size < room && !out[0]) {
        memcpy(out, json->raw, json->raw_size);
        out[json->raw_size] = '\0';
    }
}

/* The value behind a key that the reader stands on. */
static enum ts_status read_value(struct ts_json *json, struct ts_settings *config, const char *name,
                                 struct ts_error *error)
{
    double number;
    TS_TRY(ts_json_next(json, error));
    if (strcmp(name, "hidden_act") == 0 || strcmp(name, "hidden_activation") == 0 ||
        strcmp(name, "activation_function") == 0) {
        /* where both stand, hidden_activation is the one that counts (Gemma) */
        if (strcmp(name, "hidden_activation") == 0 && json->kind == TS_JSON_STRING)
            config->activation[0] = '\0';
        if (!config->activation[0])
            snprintf(config->activation_name, sizeof config->activation_name, "%s", name);
        set_text(json, config->activation, sizeof config->activation);
    }
    if (strcmp(name, "scoring_func") == 0)
        set_text(json, config->scoring, sizeof config->scoring);
    for (int key = 0; key < TS_SETTING_COUNT; key++) {
        if (!is_among(name, keys[key].json))
            continue;
        if (json->kind == TS_JSON_NUMBER && ts_json_double(json, &number, error) == TS_OK)
            set(config, key, name, number);
        else if (json->kind == TS_JSON_TRUE || json->kind == TS_JSON_FALSE)
            set(config, key, name, json->kind == TS_JSON_TRUE);
    }
    return ts_json_skip_value(json, error);
}

static enum ts_status read_object(struct ts_json *json, struct ts_settings *config, unsigned depth,
                                  struct ts_error *error)
{
    for (;;) {
        char name[48];
        bool inside = false;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            return TS_OK;
        if (json->raw_size >= sizeof name || json->escaped) {
            TS_TRY(ts_json_skip_value(json, error));
            continue;
        }
        memcpy(name, json->raw, json->raw_size);
        name[json->raw_size] = '\0';
        for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
            inside = inside || (depth < DEEPEST && strcmp(name, inner[i]) == 0);
        if (!inside) {
            TS_TRY(read_value(json, config, name, error));
            continue;
        }
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT)
            TS_TRY(read_object(json, config, depth + 1, error));
        else
            TS_TRY(ts_json_skip_value(json, error));
    }
}

enum ts_status ts_settings_read(struct ts_settings *config, const struct ts_source *source, struct ts_error *error)
{
    struct ts_json json;
    ts_settings_clear(config);
    ts_json_init(&json, source->data, (size_t)source->size);
    json.allow_nan = true;
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object with the model's settings", error));
    TS_TRY(read_object(&json, config, 0, error));
    TS_TRY(ts_json_expect(&json, TS_JSON_END, "nothing behind the object", error));
    snprintf(config->source, sizeof config->source, "%s", ts_source_name(source));
    config->known = true;
    return TS_OK;
}

/* "32", "[32, 32, ...]", "true". */
static bool meta_number(const char *text, double *value)
{
    char *end;
    if (*text == '[')
        text++;
    if (strncmp(text, "true", 4) == 0 || strncmp(text, "false", 5) == 0) {
        *value = *text == 't';
        return true;
    }
    *value = strtod(text, &end);
    return end != text;
}

static void read_metadata(struct ts_settings *config, const struct ts_bundle *bundle, const char *architecture)
{
    for (int key = 0; key < TS_SETTING_COUNT; key++)
        for (const char *at = keys[key].gguf; *at;) {
            int size = (int)strcspn(at, " ");
            char full[160];
            const char *text;
            double value;
            snprintf(full, sizeof full, "%s.%.*s", architecture, size, at);
            text = ts_bundle_meta_value(bundle, full);
            if (text && meta_number(text, &value))
                set(config, key, full, value);
            at += size;
            at += *at == ' ';
        }
}

void ts_settings_of_bundle(struct ts_settings *config, const struct ts_bundle *bundle)
{
    const char *architecture = ts_bundle_meta_value(bundle, "general.architecture");
    struct ts_error ignored;
    if (bundle->config) {
        struct ts_settings found;
        if (ts_settings_read(&found, bundle->config, &ignored) == TS_OK)
            *config = found;
    } else if (architecture && strlen(architecture) < 64) {
        ts_settings_clear(config);
        read_metadata(config, bundle, architecture);
        snprintf(config->source, sizeof config->source, "the GGUF file's metadata");
        config->known = true;
    }
}

size_t ts_settings_size(const struct ts_settings *config, enum ts_settings_key key)
{
    double value = config->values[key];
    return value >= 1 && value < 1e9 && value == floor(value) ? (size_t)value : 0;
}
