/* Owns what pairing takes from GGUF metadata and config.json. Nothing here is trusted: a number that does not fit the
 * shapes is not used, and what follows from one is proved by the values. */
#include "pair/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

bool ts_is_parameter(const char *name)
{
    static const char *const endings[] = {"/kernel", "/bias",  "/scale", "/embedding", ".weight", ".bias",   "_weight",
                                          "_bias",   ".gamma", ".beta",  ".kernel",    ".lora_a", ".lora_b", NULL};
    for (size_t i = 0; endings[i]; i++)
        if (ts_ends_with(name, endings[i]))
            return true;
    return false;
}

/* "32", or the first of "[32, 32, ...]". */
static uint64_t meta_number(const struct ts_bundle *bundle, const char *architecture, const char *key)
{
    char full[160];
    const char *value;
    snprintf(full, sizeof full, "%s.%s", architecture, key);
    value = ts_bundle_meta_value(bundle, full);
    if (value && *value == '[')
        value++;
    return value && *value >= '0' && *value <= '9' ? strtoull(value, NULL, 10) : 0;
}

struct wanted {
    const char *keys; /* separated by blanks, best first */
    uint64_t *number;
};

static bool is_one_of(const struct ts_json *json, const char *keys)
{
    char key[64];
    for (const char *at = keys; *at;) {
        size_t length = strcspn(at, " ");
        if (length < sizeof key) {
            memcpy(key, at, length);
            key[length] = '\0';
            if (ts_json_equals(json, key))
                return true;
        }
        at += length;
        at += *at == ' ';
    }
    return false;
}

/* Reads one object's numbers; "text_config" inside counts as well, and more. */
static enum ts_status read_object(struct ts_json *json, struct ts_facts *facts, unsigned depth, struct ts_error *error)
{
    uint64_t hidden = 0;
    const struct wanted wanted[] = {
        {"num_attention_heads n_head n_heads num_heads", &facts->heads},
        {"num_key_value_heads n_kv_heads num_kv_heads multi_query_group_num n_head_kv", &facts->kv_heads},
        {"head_dim", &facts->head_dim},
        {"qk_nope_head_dim", &facts->key_dim},
        {"v_head_dim", &facts->value_dim},
        {"linear_num_key_heads", &facts->key_heads},
        {"linear_num_value_heads", &facts->value_heads},
        {"hidden_size n_embd d_model dim", &hidden},
    };
    for (;;) {
        bool taken = false;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            break;
        if (depth == 0 && (ts_json_equals(json, "text_config") || ts_json_equals(json, "llm_config"))) {
            TS_TRY(ts_json_next(json, error));
            if (json->kind == TS_JSON_OBJECT)
                TS_TRY(read_object(json, facts, 1, error));
            else
                TS_TRY(ts_json_skip_value(json, error));
            continue;
        }
        if (ts_json_equals(json, "model_type")) {
            TS_TRY(ts_json_next(json, error));
            if (json->kind == TS_JSON_STRING && json->raw_size < sizeof facts->architecture) {
                memcpy(facts->architecture, json->raw, json->raw_size);
                facts->architecture[json->raw_size] = '\0';
            } else {
                TS_TRY(ts_json_skip_value(json, error));
            }
            continue;
        }
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !taken; i++)
            if (is_one_of(json, wanted[i].keys)) {
                uint64_t number;
                struct ts_error none;
                taken = true;
                TS_TRY(ts_json_next(json, error));
                if (json->kind == TS_JSON_NUMBER && ts_json_uint64(json, &number, &none) == TS_OK)
                    *wanted[i].number = number;
                else
                    TS_TRY(ts_json_skip_value(json, error));
            }
        if (!taken)
            TS_TRY(ts_json_skip_value(json, error));
    }
    if (!facts->head_dim && facts->heads && hidden && hidden % facts->heads == 0)
        facts->head_dim = hidden / facts->heads;
    return TS_OK;
}

static void read_config(const struct ts_source *config, struct ts_facts *facts)
{
    struct ts_error ignored;
    struct ts_json json;
    ts_json_init(&json, config->data, (size_t)config->size);
    json.allow_nan = true;
    if (ts_json_expect(&json, TS_JSON_OBJECT, "an object", &ignored) == TS_OK)
        (void)read_object(&json, facts, 0, &ignored);
}

void ts_facts_read(const struct ts_bundle *bundle, struct ts_facts *facts)
{
    const char *architecture = ts_bundle_meta_value(bundle, "general.architecture");
    size_t parameters = 0, bare = 0;
    memset(facts, 0, sizeof *facts);
    if (bundle->config)
        read_config(bundle->config, facts);
    for (size_t i = 0; i < bundle->count; i++) {
        const char *name = bundle->tensors[i]->name;
        parameters += ts_is_parameter(name);
        bare += ts_ends_with(name, ".ssm_a") || ts_ends_with(name, ".ssm_d");
    }
    /* nearly all names of a model's GGUF file end in .weight or .bias; a dump of a run may be such a file as well */
    if (architecture && (parameters + bare) * 4 >= bundle->count && strlen(architecture) < sizeof facts->architecture) {
        facts->gguf = true;
        snprintf(facts->architecture, sizeof facts->architecture, "%s", architecture);
        facts->heads = meta_number(bundle, architecture, "attention.head_count");
        facts->kv_heads = meta_number(bundle, architecture, "attention.head_count_kv");
        facts->head_dim = meta_number(bundle, architecture, "attention.key_length");
        facts->key_heads = meta_number(bundle, architecture, "ssm.group_count");
        facts->value_heads = meta_number(bundle, architecture, "ssm.time_step_rank");
        facts->inner = meta_number(bundle, architecture, "ssm.inner_size");
    }
    if (!facts->kv_heads)
        facts->kv_heads = facts->heads;
    facts->weights = facts->gguf || parameters * 2 > bundle->count;
}

static bool listed(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

bool ts_facts_turns_rows(const struct ts_facts *facts)
{
    static const char *const architectures[] = {
        "llama",   "llama-embed", "deci",      "deepseek", "granite",  "granitemoe", "granitehybrid", "granite_swa",
        "minicpm", "olmo",        "arctic",    "baichuan", "xverse",   "chameleon",  "llada",         "bailingmoe",
        "arcee",   "smollm3",     "internlm2", "mistral3", "nanbeige", NULL};
    return facts->gguf && listed(facts->architecture, architectures);
}

bool ts_facts_adds_one(const struct ts_facts *facts)
{
    static const char *const architectures[] = {"gemma",     "gemma2", "gemma3",    "gemma-embedding", "nemotron",
                                                "qwen3next", "qwen35", "qwen35moe", "minimax-m3",      NULL};
    return facts->gguf && listed(facts->architecture, architectures);
}

bool ts_facts_tiles(const struct ts_facts *facts)
{
    static const char *const architectures[] = {"qwen35", "qwen35moe", NULL};
    return facts->gguf && listed(facts->architecture, architectures);
}
