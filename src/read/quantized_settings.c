/* Owns what config.json says about quantization.
 *
 * transformers writes a "quantization_config" with a "quant_method"; models of several modalities have it inside
 * "text_config". MLX writes a "quantization" with group_size, bits and mode, whose other keys are module paths with
 * settings of their own (or false); mlx-lm repeats it as "quantization_config", without a quant_method. Old
 * compressed-tensors models call theirs "compression_config". */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "read/quantized_family.h"

/* More modules than any model has; stops a config that is made of them. */
#define MAX_MODULES 1000000

/* The value of the current key as an integer within limits; anything else leaves *value as it is. */
static enum ts_status take_integer(struct ts_json *json, int64_t lowest, int64_t highest, int64_t *value,
                                   struct ts_error *error)
{
    struct ts_error ignored;
    int64_t number;
    TS_TRY(ts_json_next(json, error));
    ts_error_clear(&ignored);
    if (json->kind == TS_JSON_NUMBER && ts_json_int64(json, &number, &ignored) == TS_OK && number >= lowest &&
        number <= highest)
        *value = number;
    return ts_json_skip_value(json, error);
}

/* A string that fits; words here are ASCII, so an escaped one is none of ours. */
static enum ts_status take_word(struct ts_json *json, char *word, size_t room, struct ts_error *error)
{
    TS_TRY(ts_json_next(json, error));
    if (json->kind == TS_JSON_STRING && !json->escaped && json->raw_size < room) {
        memcpy(word, json->raw, json->raw_size);
        word[json->raw_size] = '\0';
    }
    return ts_json_skip_value(json, error);
}

static enum ts_status take_answer(struct ts_json *json, bool inverted, enum ts_answer *answer, struct ts_error *error)
{
    TS_TRY(ts_json_next(json, error));
    if (json->kind == TS_JSON_TRUE || json->kind == TS_JSON_FALSE)
        *answer = (json->kind == TS_JSON_TRUE) != inverted ? TS_YES : TS_NO;
    return ts_json_skip_value(json, error);
}

static enum ts_status take_block(struct ts_json *json, uint64_t block[2], struct ts_error *error)
{
    uint64_t sizes[2] = {0, 0};
    unsigned count = 0;
    TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_ARRAY)
        return ts_json_skip_value(json, error);
    for (;;) {
        struct ts_error ignored;
        uint64_t number;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_ARRAY_END)
            break;
        ts_error_clear(&ignored);
        if (json->kind == TS_JSON_NUMBER && ts_json_uint64(json, &number, &ignored) == TS_OK && count < 2)
            sizes[count] = number;
        count++;
        TS_TRY(ts_json_skip_value(json, error));
    }
    if (count == 2 && sizes[0] && sizes[1] && sizes[0] <= INT64_MAX && sizes[1] <= INT64_MAX)
        memcpy(block, sizes, sizeof sizes);
    return TS_OK;
}

/* True when the value of the current key is an object with anything in it: patterns of modules with settings of their
 * own. */
static enum ts_status take_presence(struct ts_json *json, bool *present, struct ts_error *error)
{
    struct ts_json ahead;
    TS_TRY(ts_json_next(json, error));
    ahead = *json;
    if (json->kind == TS_JSON_OBJECT) {
        TS_TRY(ts_json_next(&ahead, error));
        *present |= ahead.kind != TS_JSON_OBJECT_END;
    }
    return ts_json_skip_value(json, error);
}

/* {"num_bits", "group_size", "symmetric", "block_structure"} of one scheme of compressed-tensors. */
static enum ts_status take_weights(struct ts_json *json, struct ts_quantized_settings *settings, struct ts_error *error)
{
    int64_t bits = 0, group = 0;
    enum ts_answer symmetric = TS_YES; /* what the library takes when it is unsaid */
    TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_OBJECT)
        return ts_json_skip_value(json, error);
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            break;
        if (ts_json_equals(json, "num_bits"))
            TS_TRY(take_integer(json, 1, 8, &bits, error));
        else if (ts_json_equals(json, "group_size"))
            TS_TRY(take_integer(json, 1, INT64_MAX, &group, error));
        else if (ts_json_equals(json, "symmetric"))
            TS_TRY(take_answer(json, false, &symmetric, error));
        else if (ts_json_equals(json, "block_structure"))
            TS_TRY(take_block(json, settings->block, error));
        else
            TS_TRY(ts_json_skip_value(json, error));
    }
    if (bits)
        settings->widths |= 1u << bits;
    if (group && settings->group_count < sizeof settings->groups / sizeof *settings->groups)
        settings->groups[settings->group_count++] = (uint64_t)group;
    if (settings->symmetric != TS_YES) /* one symmetric scheme makes missing zero points plausible */
        settings->symmetric = symmetric;
    return TS_OK;
}

static enum ts_status take_schemes(struct ts_json *json, struct ts_quantized_settings *settings, struct ts_error *error)
{
    TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_OBJECT)
        return ts_json_skip_value(json, error);
    for (;;) { /* each scheme by its name */
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            return TS_OK;
        TS_TRY(ts_json_next(json, error));
        if (json->kind != TS_JSON_OBJECT) {
            TS_TRY(ts_json_skip_value(json, error));
            continue;
        }
        for (;;) {
            TS_TRY(ts_json_next(json, error));
            if (json->kind == TS_JSON_OBJECT_END)
                break;
            if (ts_json_equals(json, "weights"))
                TS_TRY(take_weights(json, settings, error));
            else
                TS_TRY(ts_json_skip_value(json, error));
        }
    }
}

static enum ts_status add_module(struct ts_quantized_settings *settings, const struct ts_mlx_settings *module,
                                 struct ts_error *error)
{
    if (settings->module_count == settings->module_capacity) {
        size_t more = settings->module_capacity ? settings->module_capacity * 2 : 64;
        void *moved;
        if (settings->module_count >= MAX_MODULES)
            return TS_OK;
        moved = realloc(settings->modules, more * sizeof *settings->modules);
        if (!moved)
            return ts_fail_memory(error);
        settings->modules = moved;
        settings->module_capacity = more;
    }
    settings->modules[settings->module_count++] = *module;
    return TS_OK;
}

/* The value of a key that is no setting: in MLX's section the path of a module. */
static enum ts_status take_module(struct ts_json *json, struct ts_quantized_settings *settings, struct ts_arena *arena,
                                  struct ts_error *error)
{
    struct ts_json key = *json;
    struct ts_mlx_settings module = {0};
    struct ts_error ignored;
    int64_t bits = 0, group = 0;
    TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_OBJECT)
        return ts_json_skip_value(json, error);
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            break;
        if (ts_json_equals(json, "bits"))
            TS_TRY(take_integer(json, 1, 8, &bits, error));
        else if (ts_json_equals(json, "group_size"))
            TS_TRY(take_integer(json, 1, INT64_MAX, &group, error));
        else if (ts_json_equals(json, "mode"))
            TS_TRY(take_word(json, module.mode, sizeof module.mode, error));
        else
            TS_TRY(ts_json_skip_value(json, error));
    }
    if (!bits && !group && !module.mode[0])
        return TS_OK;
    module.bits = (unsigned)bits;
    module.group = (uint64_t)group;
    ts_error_clear(&ignored);
    if (ts_json_copy(&key, arena, &module.module, &ignored) != TS_OK)
        return TS_OK; /* a name with a NUL is no module's */
    return add_module(settings, &module, error);
}

/* One section, whichever program wrote it. */
static enum ts_status take_section(struct ts_json *json, struct ts_quantized_settings *settings, struct ts_arena *arena,
                                   struct ts_error *error)
{
    char mode[sizeof settings->mlx.mode] = "", checkpoint[sizeof settings->format] = "";
    char packing[sizeof settings->format] = "", version[sizeof settings->format] = "";
    int64_t bits = 0;
    TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_OBJECT)
        return ts_json_skip_value(json, error);
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            break;
        if (ts_json_equals(json, "quant_method"))
            TS_TRY(take_word(json, settings->method, sizeof settings->method, error));
        else if (ts_json_equals(json, "format"))
            TS_TRY(take_word(json, settings->format, sizeof settings->format, error));
        else if (ts_json_equals(json, "checkpoint_format"))
            TS_TRY(take_word(json, checkpoint, sizeof checkpoint, error));
        else if (ts_json_equals(json, "packing_format"))
            TS_TRY(take_word(json, packing, sizeof packing, error));
        else if (ts_json_equals(json, "version"))
            TS_TRY(take_word(json, version, sizeof version, error));
        else if (ts_json_equals(json, "mode"))
            TS_TRY(take_word(json, mode, sizeof mode, error));
        else if (ts_json_equals(json, "bits") || ts_json_equals(json, "w_bit"))
            TS_TRY(take_integer(json, 1, 8, &bits, error));
        else if (ts_json_equals(json, "group_size") || ts_json_equals(json, "q_group_size"))
            TS_TRY(take_integer(json, -1, INT64_MAX, &settings->group, error));
        else if (ts_json_equals(json, "sym"))
            TS_TRY(take_answer(json, false, &settings->symmetric, error));
        else if (ts_json_equals(json, "zero_point"))
            TS_TRY(take_answer(json, true, &settings->symmetric, error));
        else if (ts_json_equals(json, "weight_block_size"))
            TS_TRY(take_block(json, settings->block, error));
        else if (ts_json_equals(json, "dynamic") || ts_json_equals(json, "extra_config"))
            TS_TRY(take_presence(json, &settings->per_module, error));
        else if (ts_json_equals(json, "config_groups"))
            TS_TRY(take_schemes(json, settings, error));
        else
            TS_TRY(take_module(json, settings, arena, error));
    }
    settings->bits = (unsigned)bits;
    if (checkpoint[0])
        memcpy(settings->format, checkpoint, sizeof checkpoint);
    else if (!settings->format[0])
        memcpy(settings->format, packing[0] ? packing : version, sizeof packing);
    if (!settings->method[0]) {
        settings->has_mlx = true;
        memcpy(settings->mlx.mode, mode, sizeof mode);
        settings->mlx.bits = settings->bits;
        settings->mlx.group = settings->group > 0 ? (uint64_t)settings->group : 0;
    }
    return TS_OK;
}

/* What one section said goes where nothing was said before: one section of transformers' kind, one of MLX's. */
static void merge(struct ts_quantized_settings *into, struct ts_quantized_settings *from)
{
    if (from->has_mlx && !into->has_mlx) {
        into->has_mlx = true;
        into->mlx = from->mlx;
        into->modules = from->modules;
        into->module_count = from->module_count;
        into->module_capacity = from->module_capacity;
        return;
    }
    free(from->modules);
    if (from->method[0] && !into->method[0]) {
        from->has_mlx = into->has_mlx;
        from->mlx = into->mlx;
        from->modules = into->modules;
        from->module_count = into->module_count;
        from->module_capacity = into->module_capacity;
        *into = *from;
    }
}

struct part_of_text {
    const char *text;
    size_t size;
};

/* The sections of one object, and where its text model's settings stand. */
static enum ts_status take_object(const char *text, size_t size, struct ts_quantized_settings *settings,
                                  struct ts_arena *arena, struct part_of_text *inner, struct ts_error *error)
{
    struct ts_json json;
    ts_json_init(&json, text, size);
    json.allow_nan = true;
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            return TS_OK;
        if (ts_json_equals(&json, "quantization_config") || ts_json_equals(&json, "quantization") ||
            ts_json_equals(&json, "compression_config")) {
            struct ts_quantized_settings section = {0};
            enum ts_status status = take_section(&json, &section, arena, error);
            if (status == TS_OK)
                merge(settings, &section);
            else
                free(section.modules);
            TS_TRY(status);
        } else if (inner && (ts_json_equals(&json, "text_config") || ts_json_equals(&json, "llm_config"))) {
            TS_TRY(ts_json_next(&json, error));
            inner->text = text + json.offset;
            TS_TRY(ts_json_skip_value(&json, error));
            inner->size = (size_t)(text + json.at - inner->text);
        } else {
            TS_TRY(ts_json_skip_value(&json, error));
        }
    }
}

enum ts_status ts_quantized_settings_read(struct ts_quantized_settings *settings, struct ts_bundle *bundle,
                                          struct ts_error *error)
{
    struct part_of_text inner = {NULL, 0};
    struct ts_error why;
    enum ts_status status;
    if (!bundle->config || bundle->config->size > SIZE_MAX)
        return TS_OK;
    ts_error_clear(&why);
    status = take_object((const char *)bundle->config->data, (size_t)bundle->config->size, settings, &bundle->arena,
                         &inner, &why);
    if (status == TS_OK && inner.text && inner.text[0] == '{')
        status = take_object(inner.text, inner.size, settings, &bundle->arena, NULL, &why);
    if (status == TS_ERR_MEMORY) {
        *error = why;
        return status;
    }
    if (status != TS_OK) {
        ts_quantized_settings_release(settings);
        return ts_bundle_find(bundle, NULL, error, "the quantization settings of \"%s\" are ignored: at byte %llu: %s",
                              bundle->config->path, (unsigned long long)why.offset, why.message);
    }
    if (!ts_table_init(&settings->module_names, settings->module_count))
        return ts_fail_memory(error);
    for (size_t i = 0; i < settings->module_count; i++)
        ts_table_put(&settings->module_names, settings->modules[i].module, i, NULL);
    return TS_OK;
}

void ts_quantized_settings_release(struct ts_quantized_settings *settings)
{
    free(settings->modules);
    ts_table_release(&settings->module_names);
    *settings = (struct ts_quantized_settings){0};
}
