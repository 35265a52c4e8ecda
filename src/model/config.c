/* Owns the flat view of config.json. */
#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define KEY_LENGTH   512
#define CONFIG_LIMIT ((size_t)64 << 20)

bool ts_model_config_init(struct ts_model_config *config, size_t room)
{
    *config = (struct ts_model_config){.prefix = ""};
    ts_arena_init(&config->arena, CONFIG_LIMIT);
    config->values = ts_arena_array(&config->arena, room ? room : 1, sizeof *config->values);
    config->keys = ts_arena_array(&config->arena, room ? room : 1, sizeof *config->keys);
    if (!config->values || !config->keys || !ts_table_init(&config->names, room ? room : 1)) {
        ts_arena_release(&config->arena);
        return false;
    }
    return true;
}

void ts_model_config_release(struct ts_model_config *config)
{
    if (!config->values)
        return;
    ts_table_release(&config->names);
    ts_arena_release(&config->arena);
    config->values = NULL;
}

bool ts_model_config_put(struct ts_model_config *config, const char *key, const char *value)
{
    const char *name = ts_arena_string(&config->arena, key),
               *text = value ? ts_arena_string(&config->arena, value) : NULL;
    if (!name || (value && !text))
        return false;
    if (ts_table_put(&config->names, name, config->count, NULL)) { /* the first of two equal keys stands */
        config->keys[config->count] = name;
        config->values[config->count++] = text;
    }
    return true;
}

/* Readers of JSON differ in which of two equal keys they take, so that a config with both has no meaning. */
static enum ts_status put_once(struct ts_model_config *config, const char *key, const char *value, uint64_t offset,
                               struct ts_error *error)
{
    size_t found = ts_table_get(&config->names, key);
    const char *old = found == SIZE_MAX ? NULL : config->values[found];
    if (found != SIZE_MAX && (!old || !value || strcmp(old, value) != 0))
        return ts_fail(error, TS_ERR_FORMAT, offset, "the config says twice what %.100s is: \"%.60s\", then \"%.60s\"",
                       key, old ? old : "...", value ? value : "...");
    return ts_model_config_put(config, key, value) ? TS_OK : ts_fail_memory(error);
}

/* Walks the values; with config NULL it only counts them. A stack of where we are: the length of the key, and the index
 * of the next entry in a list (SIZE_MAX in an object). */
static enum ts_status walk(const void *text, size_t size, struct ts_model_config *config, size_t *count,
                           struct ts_error *error)
{
    struct ts_json json;
    char key[KEY_LENGTH] = "";
    size_t lengths[TS_JSON_MAX_DEPTH], indices[TS_JSON_MAX_DEPTH], depth = 0, base = 0;
    ts_json_init(&json, text, size);
    json.allow_nan = true;
    *count = 0;
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object with the model's settings", error));
    lengths[0] = 0;
    indices[0] = SIZE_MAX;
    while (depth != SIZE_MAX) {
        char name[KEY_LENGTH];
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END || json.kind == TS_JSON_ARRAY_END) {
            depth--;
            continue;
        }
        base = lengths[depth];
        if (json.kind == TS_JSON_KEY) {
            if (base + json.raw_size + 2 > sizeof key)
                return ts_fail(error, TS_ERR_LIMIT, json.offset, "a key of more than %d bytes", KEY_LENGTH);
            if (base)
                key[base] = '.';
            memcpy(key + base + (base ? 1 : 0), json.raw, json.raw_size);
            base += json.raw_size + (base ? 1 : 0);
            key[base] = '\0';
            TS_TRY(ts_json_next(&json, error));
        } else {
            int added = snprintf(name, sizeof name, "%s%zu", base ? "." : "", indices[depth]++);
            if (base + (size_t)added + 1 > sizeof key)
                return ts_fail(error, TS_ERR_LIMIT, json.offset, "a key of more than %d bytes", KEY_LENGTH);
            memcpy(key + base, name, (size_t)added + 1);
            base += (size_t)added;
        }
        if (json.kind == TS_JSON_OBJECT || json.kind == TS_JSON_ARRAY) {
            ++*count;
            if (config)
                TS_TRY(put_once(config, key, NULL, json.offset, error));
            depth++;
            lengths[depth] = base;
            indices[depth] = json.kind == TS_JSON_ARRAY ? 0 : SIZE_MAX;
        } else if (json.kind != TS_JSON_NULL) {
            ++*count;
            if (config) {
                const char *value;
                if (json.kind == TS_JSON_STRING)
                    TS_TRY(ts_json_copy(&json, &config->arena, &value, error));
                else if (json.kind == TS_JSON_NUMBER)
                    value = ts_arena_copy(&config->arena, json.raw, json.raw_size);
                else
                    value = json.kind == TS_JSON_TRUE ? "true" : "false";
                if (!value)
                    return ts_fail_memory(error);
                TS_TRY(put_once(config, key, value, json.offset, error));
            }
        }
        key[lengths[depth]] = '\0';
    }
    return TS_OK;
}

enum ts_status ts_model_config_parse(const void *text, size_t size, struct ts_model_config *config,
                                     struct ts_error *error)
{
    size_t count;
    enum ts_status status;
    *config = (struct ts_model_config){.prefix = ""};
    TS_TRY(walk(text, size, NULL, &count, error));
    if (!ts_model_config_init(config, count))
        return ts_fail_memory(error);
    status = walk(text, size, config, &count, error);
    if (status != TS_OK) {
        ts_model_config_release(config);
        return status;
    }
    if (ts_table_get(&config->names, "text_config.num_hidden_layers") != SIZE_MAX ||
        ts_table_get(&config->names, "text_config.model_type") != SIZE_MAX)
        config->prefix = "text_config.";
    return TS_OK;
}

static size_t find(const struct ts_model_config *config, const char *key)
{
    size_t found = SIZE_MAX;
    if (config->prefix[0]) {
        char name[KEY_LENGTH];
        if (snprintf(name, sizeof name, "%s%s", config->prefix, key) < (int)sizeof name)
            found = ts_table_get(&config->names, name);
    }
    return found == SIZE_MAX ? ts_table_get(&config->names, key) : found;
}

const char *ts_model_config_text(const struct ts_model_config *config, const char *key)
{
    size_t found = find(config, key);
    return found == SIZE_MAX ? NULL : config->values[found];
}

bool ts_model_config_has_parts(const struct ts_model_config *config, const char *key)
{
    size_t found = find(config, key);
    return found != SIZE_MAX && !config->values[found];
}

double ts_model_config_number(const struct ts_model_config *config, const char *key, double otherwise)
{
    const char *text = ts_model_config_text(config, key);
    char *end;
    double value;
    if (!text || !text[0])
        return otherwise;
    value = strtod(text, &end);
    return *end ? otherwise : value;
}
