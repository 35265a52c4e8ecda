/* Owns the reading of config.json into a flat list of settings. Nested objects are skipped, but for the text model
 * inside a multimodal one. */
#include <string.h>

#include "base/json.h"
#include "check/check_internal.h"

/* A config.json has some kilobytes; label lists make it some megabytes at most. */
#define SIZE_LIMIT   ((uint64_t)16 << 20)
#define MEMORY_LIMIT ((size_t)64 << 20)
/* Ten times what the longest has. They are searched one by one. */
#define MAX_SETTINGS 2000

enum kind { NOTHING, NUMBER, TRUTH, TEXT, LIST };

struct ts_setting {
    struct ts_setting *next;
    const char *key;
    const char *text; /* of a list: its first string */
    const uint64_t *numbers;
    size_t count; /* of numbers */
    enum kind kind;
    bool truth;
};

static bool is_text_model(const struct ts_json *json)
{
    return ts_json_equals(json, "text_config") || ts_json_equals(json, "llm_config") ||
           ts_json_equals(json, "language_config");
}

/* Whole numbers only: sizes and counts. Others count as absent. */
static bool whole_number(const struct ts_json *json, uint64_t *number)
{
    struct ts_error ignored;
    return json->kind == TS_JSON_NUMBER && ts_json_uint64(json, number, &ignored) == TS_OK;
}

static enum ts_status read_list(struct ts_json *json, struct ts_arena *arena, struct ts_setting *setting,
                                struct ts_error *error)
{
    uint64_t *numbers = NULL;
    size_t capacity = 0;
    setting->kind = LIST;
    for (;;) {
        uint64_t number;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_ARRAY_END)
            break;
        if (json->kind == TS_JSON_STRING && !setting->text)
            TS_TRY(ts_json_copy(json, arena, &setting->text, error));
        if (whole_number(json, &number)) {
            if (setting->count == capacity) {
                uint64_t *more = ts_arena_array(arena, capacity ? capacity * 2 : 16, sizeof *more);
                if (!more)
                    return ts_fail_memory(error);
                if (numbers)
                    memcpy(more, numbers, capacity * sizeof *more);
                capacity = capacity ? capacity * 2 : 16;
                numbers = more;
            }
            numbers[setting->count++] = number;
        }
        TS_TRY(ts_json_skip_value(json, error));
    }
    setting->numbers = numbers;
    return TS_OK;
}

static enum ts_status read_value(struct ts_json *json, struct ts_arena *arena, struct ts_setting *setting,
                                 struct ts_error *error)
{
    uint64_t number;
    switch (json->kind) {
    case TS_JSON_TRUE:
    case TS_JSON_FALSE:
        setting->kind = TRUTH;
        setting->truth = json->kind == TS_JSON_TRUE;
        return TS_OK;
    case TS_JSON_STRING:
        setting->kind = TEXT;
        return ts_json_copy(json, arena, &setting->text, error);
    case TS_JSON_NUMBER:
        if (whole_number(json, &number)) {
            uint64_t *room = ts_arena_alloc(arena, sizeof *room);
            if (!room)
                return ts_fail_memory(error);
            *room = number;
            setting->numbers = room;
            setting->count = 1;
            setting->kind = NUMBER;
        }
        return TS_OK;
    case TS_JSON_ARRAY:
        return read_list(json, arena, setting, error);
    default:
        return ts_json_skip_value(json, error);
    }
}

static enum ts_status read_object(struct ts_config *config, struct ts_json *json, struct ts_setting **list,
                                  struct ts_setting **inner, struct ts_error *error)
{
    for (;;) {
        struct ts_setting *setting;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            return TS_OK;
        if (inner && is_text_model(json)) {
            TS_TRY(ts_json_next(json, error));
            if (json->kind == TS_JSON_OBJECT) {
                config->nested = true;
                TS_TRY(read_object(config, json, inner, NULL, error));
            } else {
                TS_TRY(ts_json_skip_value(json, error));
            }
            continue;
        }
        if (++config->count > MAX_SETTINGS)
            return ts_fail(error, TS_ERR_LIMIT, json->offset, "more than %d settings", MAX_SETTINGS);
        setting = ts_arena_alloc(&config->arena, sizeof *setting);
        if (!setting)
            return ts_fail_memory(error);
        TS_TRY(ts_json_copy(json, &config->arena, &setting->key, error));
        TS_TRY(ts_json_next(json, error));
        TS_TRY(read_value(json, &config->arena, setting, error));
        setting->next = *list;
        *list = setting;
    }
}

bool ts_config_read(struct ts_config *config, const struct ts_source *source, struct ts_error *error)
{
    struct ts_setting *outer = NULL, *inner = NULL, *last;
    struct ts_json json;
    memset(config, 0, sizeof *config);
    ts_arena_init(&config->arena, MEMORY_LIMIT);
    if (source->size > SIZE_LIMIT) {
        ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "is too large");
        return false;
    }
    ts_json_init(&json, source->data, (size_t)source->size);
    json.allow_nan = true; /* as Python writes it */
    if (ts_json_expect(&json, TS_JSON_OBJECT, "an object", error) != TS_OK ||
        read_object(config, &json, &outer, &inner, error) != TS_OK)
        return false;
    config->settings = outer;
    if (inner) {
        for (last = inner; last->next;)
            last = last->next;
        last->next = outer;
        config->settings = inner;
    }
    return true;
}

void ts_config_release(struct ts_config *config)
{
    ts_arena_release(&config->arena);
    config->settings = NULL;
}

static const struct ts_setting *find(const struct ts_config *config, const char *key)
{
    for (const struct ts_setting *setting = config->settings; setting; setting = setting->next)
        if (strcmp(setting->key, key) == 0)
            return setting;
    return NULL;
}

bool ts_config_has(const struct ts_config *config, const char *key)
{
    const struct ts_setting *setting = find(config, key);
    return setting && setting->kind != NOTHING;
}

uint64_t ts_config_number(const struct ts_config *config, const char *key, uint64_t index, uint64_t otherwise)
{
    const struct ts_setting *setting = find(config, key);
    if (!setting || !setting->count)
        return otherwise;
    if (setting->kind == NUMBER)
        return setting->numbers[0];
    return index < setting->count ? setting->numbers[index] : otherwise;
}

bool ts_config_truth(const struct ts_config *config, const char *key, bool otherwise)
{
    const struct ts_setting *setting = find(config, key);
    return setting && setting->kind == TRUTH ? setting->truth : otherwise;
}

const char *ts_config_text(const struct ts_config *config, const char *key)
{
    const struct ts_setting *setting = find(config, key);
    return setting ? setting->text : NULL;
}

bool ts_config_lists(const struct ts_config *config, const char *key, uint64_t number)
{
    const struct ts_setting *setting = find(config, key);
    for (size_t i = 0; setting && i < setting->count; i++)
        if (setting->numbers[i] == number)
            return true;
    return false;
}
