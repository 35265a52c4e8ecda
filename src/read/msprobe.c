/* Dumps of msprobe (MindStudio, for PyTorch and MindSpore): in each step0/rank0 folder a dump.json, debug.json for what
 * was saved by hand, and the tensors in dump_tensor_data beside it.
 *
 *     {"task": "tensor", "level": "L0", "dump_data_dir": "...", "data": {
 *        "Module.layers.0.q_proj.Linear.forward.0": {
 *           "input_args": [TENSOR], "input_kwargs": {"x": TENSOR}, "output": [TENSOR], "parameters": {"weight":
 * TENSOR}}, "Functional.relu.0.forward": {...}, "Module.conv.Conv2d.parameters_grad.0": {"weight": [TENSOR]}, ...}}
 *
 * A tensor is {"type": "torch.Tensor", "dtype": ..., "shape": [...], "Max": ..., "data_name": "NAME.pt"}; without
 * data_name only its statistics were kept, which is said. Records stand in the order in which their calls ended. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/table.h"
#include "base/text.h"
#include "read/call_name.h"
#include "read/readers.h"
#include "read/values.h"

#define MAX_NAME  ((size_t)4096)
#define LOOK_SIZE ((size_t)64 * 1024)
/* Named and missing or unreadable: some examples are enough. */
#define MAX_SKIPS 1000

static const char data_folder[] = "dump_tensor_data";

/* Depths in the JSON. */
enum { TOP = 1, DATA = 2, RECORD = 3, SECTION = 4 };

struct level {
    bool list;
    uint64_t next;
    size_t index_size;
};

struct probe {
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_json json;
    struct level *levels;
    struct ts_buffer index;
    struct ts_table seen;
    const char *task, *level;
    bool in_data;
    const char *record, *section;
    /* the innermost open object */
    unsigned object_depth;
    bool object_open, has_type, has_shape;
    const char *data_name;
    uint64_t statistics, skips, files;
};

/* Where the last of `word` begins in key, as words between dots, or NULL. */
static const char *find_word(const char *key, const char *word)
{
    const char *found = NULL;
    size_t length = strlen(word);
    for (const char *at = key; (at = strstr(at, word)) != NULL; at++)
        if (at > key && at[-1] == '.' && (at[length] == '.' || at[length] == '\0'))
            found = at;
    return found;
}

/* "Module.layers.0.q_proj.Linear.forward.0" -> "layers.0.q_proj"; *word: forward, backward or parameters_grad.
 * "Functional.relu.0.forward" -> "Functional.relu.0"; "logits.0.debug" -> "logits". Others stay as they are, with ""
 * for the word. */
static char *path_of(struct ts_arena *arena, const char *key, const char **word)
{
    static const char *const words[] = {"forward", "backward", "parameters_grad"};
    const char *end = NULL, *from = key;
    *word = "";
    for (size_t i = 0; i < sizeof words / sizeof *words && !end; i++) {
        end = find_word(key, words[i]);
        *word = end ? words[i] : "";
    }
    if (!end && ts_ends_with(key, ".debug")) { /* "name.0.debug": saved by hand; calls are numbered anew */
        end = key + strlen(key) - strlen(".debug");
        while (end > key && ts_is_digit(end[-1]))
            end--;
        if (end > key + 1 && end[-1] == '.')
            return ts_arena_copy(arena, key, (size_t)(end - key - 1));
        end = NULL;
    }
    if (!end)
        return ts_arena_string(arena, key);
    end--; /* the dot */
    if (ts_starts_with(key, "Module.") || ts_starts_with(key, "Cell.")) {
        const char *dot = end;
        from = strchr(key, '.') + 1;
        while (dot > from && dot[-1] != '.')
            dot--;
        if (dot > from) /* without the class; a model by itself has nothing else */
            end = dot - 1;
    }
    return ts_arena_copy(arena, from, end > from ? (size_t)(end - from) : 0);
}

static char *name_of(struct probe *probe)
{
    struct ts_arena *arena = &probe->bundle->arena;
    const char *word, *section = probe->section ? probe->section : "";
    const char *index = probe->index.size ? probe->index.data : "";
    char *path = path_of(arena, probe->record ? probe->record : "", &word);
    if (!path)
        return NULL;
    if (strcmp(word, "parameters_grad") == 0)
        return ts_arena_printf(arena, "%s.%s.grad", path, section);
    if (strcmp(word, "backward") == 0)
        return ts_arena_printf(arena, "%s.backward.%s%s%s", path, section, index[0] ? "." : "", index);
    if (strcmp(section, "parameters") == 0)
        return ts_arena_printf(arena, "%s%s%s", path, path[0] ? "." : "", index);
    if (ts_starts_with(section, "input"))
        return ts_call_name(arena, path, TS_CALL_INPUT, index);
    if (strcmp(section, "output") == 0)
        return ts_call_name(arena, path, TS_CALL_OUTPUT, index);
    return ts_arena_printf(arena, "%s%s%s%s%s", path, section[0] ? "." : "", section, index[0] ? "." : "", index);
}

static enum ts_status skip_file(struct probe *probe, const char *file, const struct ts_error *why,
                                struct ts_error *error)
{
    if (probe->skips++ >= MAX_SKIPS)
        return TS_OK;
    return ts_bundle_skip_error(probe->bundle, file, NULL, why, error);
}

static enum ts_status read_file(struct probe *probe, const char *name, struct ts_error *error)
{
    struct ts_bundle *bundle = probe->bundle;
    const char *member = probe->input->member, *slash = strrchr(member, '/');
    const size_t start = bundle->count, findings = bundle->finding_count, skips = bundle->skip_count,
                 metas = bundle->meta_count;
    struct ts_source *source;
    struct ts_error why;
    enum ts_status status;
    bool is_numpy;
    char *beside = ts_arena_printf(&bundle->arena, "%s/%s", data_folder, probe->data_name);
    char *file = ts_arena_printf(&bundle->arena, "%.*s%s/%s", slash ? (int)(slash - member + 1) : 0, member,
                                 data_folder, probe->data_name);
    if (!beside || !file)
        return ts_fail_memory(error);
    ts_error_clear(&why);
    if (!ts_table_put(&probe->seen, file, 0, NULL)) {
        ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET, "is named twice in dump.json, and read once");
        return skip_file(probe, file, &why, error);
    }
    if (ts_input_beside(probe->input, beside, &source, &why) != TS_OK)
        return skip_file(probe, file, &why, error);
    probe->files++;
    bundle->file_bytes += source->size;
    /* what msprobe writes and nothing else: another dump in its place would lead on and on */
    is_numpy = source->size >= 6 && memcmp(source->data, "\x93NUMPY", 6) == 0;
    status = ts_read_source(probe->input, is_numpy ? &ts_reader_npy : &ts_reader_torch, source, file, bundle, &why);
    ts_source_release(source);
    if (status != TS_OK) {
        bundle->count = start;
        bundle->finding_count = findings;
        bundle->skip_count = skips;
        bundle->meta_count = metas;
        return skip_file(probe, file, &why, error);
    }
    return ts_call_rename(bundle, start, name, file, error);
}

/* The object that ends here, if it says so, is a tensor. */
static enum ts_status finish_object(struct probe *probe, struct ts_error *error)
{
    const char *name;
    probe->object_open = false;
    if (!probe->data_name) {
        probe->statistics += probe->has_type && probe->has_shape;
        return TS_OK;
    }
    name = name_of(probe);
    if (!name)
        return ts_fail_memory(error);
    return read_file(probe, name, error);
}

static enum ts_status open_level(struct probe *probe, const char *key, struct ts_error *error)
{
    struct ts_json *json = &probe->json;
    const unsigned depth = json->depth;
    struct level *level = &probe->levels[depth], *parent = &probe->levels[depth - 1];
    char number[24];
    *level = (struct level){.list = json->kind == TS_JSON_ARRAY, .index_size = probe->index.size};
    if (depth == DATA)
        probe->in_data = key && strcmp(key, "data") == 0 && !level->list;
    if (!probe->in_data)
        return TS_OK;
    if (depth == RECORD) {
        probe->record = key;
        probe->section = NULL;
    } else if (depth == SECTION && !parent->list) {
        probe->section = key;
    } else if (depth >= SECTION) {
        if (parent->list)
            snprintf(number, sizeof number, "%" PRIu64, parent->next++);
        if (probe->index.size)
            ts_buffer_byte(&probe->index, '.');
        ts_buffer_string(&probe->index, parent->list ? number : key ? key : "");
        if (probe->index.failed)
            return ts_fail(error, TS_ERR_LIMIT, json->offset, "a name is longer than %zu bytes", MAX_NAME);
    }
    if (!level->list && depth >= RECORD) {
        probe->object_open = true;
        probe->object_depth = depth;
        probe->has_type = probe->has_shape = false;
        probe->data_name = NULL;
    }
    return TS_OK;
}

static enum ts_status close_level(struct probe *probe, struct ts_error *error)
{
    const struct level *level = &probe->levels[probe->json.depth + 1];
    if (probe->in_data && probe->object_open && !level->list && probe->object_depth == probe->json.depth + 1)
        TS_TRY(finish_object(probe, error));
    if (probe->json.depth + 1 == DATA)
        probe->in_data = false;
    if (probe->index.data) {
        probe->index.size = level->index_size;
        probe->index.data[level->index_size] = '\0';
    }
    return TS_OK;
}

static enum ts_status read_key(struct probe *probe, struct ts_error *error)
{
    struct ts_json *json = &probe->json;
    const bool of_object = probe->object_open && probe->object_depth == json->depth;
    struct ts_arena *arena = &probe->bundle->arena;
    struct ts_json key = *json;
    const char *text;
    TS_TRY(ts_json_next(json, error));
    if (of_object && ts_json_equals(&key, "shape") && json->kind == TS_JSON_ARRAY) {
        probe->has_shape = true;
        return ts_json_skip_value(json, error);
    }
    if (json->kind == TS_JSON_OBJECT || json->kind == TS_JSON_ARRAY) {
        TS_TRY(ts_json_copy(&key, arena, &text, error));
        return open_level(probe, text, error);
    }
    if (json->kind != TS_JSON_STRING)
        return TS_OK;
    if (json->depth == TOP && (ts_json_equals(&key, "task") || ts_json_equals(&key, "level")))
        return ts_json_copy(json, arena, ts_json_equals(&key, "task") ? &probe->task : &probe->level, error);
    if (of_object && ts_json_equals(&key, "data_name"))
        return ts_json_copy(json, arena, &probe->data_name, error);
    if (of_object && ts_json_equals(&key, "type"))
        probe->has_type = true;
    return TS_OK;
}

static enum ts_status walk(struct probe *probe, struct ts_error *error)
{
    struct ts_json *json = &probe->json;
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        switch (json->kind) {
        case TS_JSON_END:
            return TS_OK;
        case TS_JSON_KEY:
            TS_TRY(read_key(probe, error));
            break;
        case TS_JSON_OBJECT:
        case TS_JSON_ARRAY:
            TS_TRY(open_level(probe, NULL, error));
            break;
        case TS_JSON_OBJECT_END:
        case TS_JSON_ARRAY_END:
            TS_TRY(close_level(probe, error));
            break;
        default:
            probe->levels[json->depth].next++;
            break;
        }
    }
}

static enum ts_status tell(struct probe *probe, struct ts_error *error)
{
    struct ts_bundle *bundle = probe->bundle;
    const char *task = probe->task ? probe->task : "unknown", *level = probe->level ? probe->level : "unknown";
    struct ts_error why;
    ts_error_clear(&why);
    if (probe->skips > MAX_SKIPS) {
        ts_fail(&why, TS_ERR_LIMIT, TS_NO_OFFSET, "%" PRIu64 " further tensors could not be read",
                probe->skips - MAX_SKIPS);
        TS_TRY(ts_bundle_skip_error(bundle, probe->input->member, NULL, &why, error));
    }
    if (probe->statistics && !probe->files && !probe->skips)
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                       "is a dump of statistics only (task %.40s, level %.40s): %" PRIu64
                       " tensors with maximum, minimum, mean and norm, and no values; dump with \"task\": \"tensor\"",
                       task, level, probe->statistics);
    if (probe->statistics)
        TS_TRY(ts_bundle_find(bundle, NULL, error,
                              "%" PRIu64 " tensor%s of \"%.200s\" %s statistics only, and no values", probe->statistics,
                              probe->statistics == 1 ? "" : "s", probe->input->member,
                              probe->statistics == 1 ? "has" : "have"));
    return TS_OK;
}

/* How often "data_name" stands in the text: room for the table. */
static size_t count_names(const char *text, size_t size)
{
    static const char word[] = "\"data_name\"";
    size_t count = 0;
    for (const char *at = text, *end = text + size;
         (at = memmem(at, (size_t)(end - at), word, sizeof word - 1)) != NULL; at += sizeof word - 1)
        count++;
    return count;
}

static enum ts_status probe_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct probe probe = {.input = input, .bundle = bundle};
    const size_t start = bundle->count;
    enum ts_status status = TS_OK;
    size_t size;
    const char *text = ts_source_text(input->source, &size);
    ts_json_init(&probe.json, text, size);
    probe.json.allow_nan = true;
    ts_buffer_init(&probe.index, MAX_NAME);
    probe.levels = calloc(TS_JSON_MAX_DEPTH + 2, sizeof *probe.levels);
    if (!probe.levels || !ts_table_init(&probe.seen, count_names(text, size)))
        status = ts_fail_memory(error);
    if (status == TS_OK)
        status = walk(&probe, error);
    if (status == TS_OK)
        status = tell(&probe, error);
    if (status == TS_OK)
        status = ts_call_number(bundle, start, error);
    ts_table_release(&probe.seen);
    ts_buffer_release(&probe.index);
    free(probe.levels);
    if (status != TS_OK && error->offset != TS_NO_OFFSET)
        error->offset += input->source->size - size;
    if (status == TS_OK && bundle->count > start)
        bundle->order = "order of dump.json";
    return status;
}

/* An object that begins with task, level and dump_data_dir. */
static unsigned probe_bid(const struct ts_input *input)
{
    struct ts_json json;
    struct ts_error ignored;
    size_t size;
    const char *text = ts_source_text(input->source, &size);
    bool task = false, folder = false;
    if (size == 0 || (text[0] != '{' && (!text[0] || !strchr(" \t\r\n", text[0]))))
        return 0;
    ts_json_init(&json, text, size < LOOK_SIZE ? size : LOOK_SIZE);
    if (ts_json_next(&json, &ignored) != TS_OK || json.kind != TS_JSON_OBJECT)
        return 0;
    for (int keys = 0; keys < 8 && !(task && folder); keys++) {
        if (ts_json_next(&json, &ignored) != TS_OK || json.kind != TS_JSON_KEY)
            return 0;
        task = task || ts_json_equals(&json, "task");
        folder = folder || ts_json_equals(&json, "dump_data_dir");
        if (!(task && folder) && ts_json_skip_value(&json, &ignored) != TS_OK)
            return 0;
    }
    return task && folder ? 8 * (sizeof "dump_data_dir" - 1) : 0;
}

const struct ts_reader ts_reader_msprobe = {
    .name = "msprobe",
    .summary = "msprobe dumps: dump.json with its tensors beside it, by step and rank",
    .gathers = true,
    .for_folder = true,
    .bid = probe_bid,
    .read = probe_read,
};
