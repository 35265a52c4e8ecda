/* Owns the names of a checkpoint's parameters and strict loading. */
#include "model/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define LIST_LIMIT ((size_t)4 << 20)

/* Where a file keeps the language model when it is not under "model.": multimodal checkpoints, bare backbones. */
static const char *const prefixes[] = {"language_model.model.", "model.language_model.", "model.text_model.",
                                       "text_model.", ""};

static void find_prefix(struct ts_model_weights *weights)
{
    static const char *const heads[] = {"embed_tokens.weight", "layers.0.input_layernorm.weight", "norm.weight"};
    char name[256];
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        snprintf(name, sizeof name, "model.%s", heads[i]);
        if (ts_table_get(&weights->names, name) != SIZE_MAX)
            return;
    }
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++)
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
            snprintf(name, sizeof name, "%s%s", prefixes[p], heads[i]);
            if (ts_table_get(&weights->names, name) != SIZE_MAX) {
                weights->prefix = prefixes[p];
                return;
            }
        }
}

enum ts_status ts_model_weights_begin(struct ts_model_weights *weights, size_t room, struct ts_error *error)
{
    *weights = (struct ts_model_weights){.capacity = room ? room : 1};
    ts_arena_init(&weights->arena, (size_t)1 << 30);
    ts_buffer_init(&weights->missing, LIST_LIMIT);
    ts_buffer_init(&weights->wrong, LIST_LIMIT);
    weights->list = ts_arena_array(&weights->arena, weights->capacity, sizeof *weights->list);
    if (weights->list && ts_table_init(&weights->names, weights->capacity))
        return TS_OK;
    ts_arena_release(&weights->arena);
    weights->list = NULL;
    return ts_fail_memory(error);
}

void ts_model_weights_add(struct ts_model_weights *weights, const char *name, const struct ts_view *view)
{
    if (weights->count == weights->capacity || !ts_table_put(&weights->names, name, weights->count, NULL))
        return;
    weights->list[weights->count++] = (struct ts_model_weight){.name = name, .view = *view};
}

/* Shards may repeat a tensor, but not with other values. */
static bool contradicts(const struct ts_model_weights *weights, const struct ts_tensor *tensor)
{
    size_t found = ts_table_get(&weights->names, tensor->name);
    const struct ts_tensor *other = found == SIZE_MAX ? NULL : weights->list[found].view.tensor;
    const void *ours = ts_tensor_bytes(tensor), *theirs = other ? ts_tensor_bytes(other) : NULL;
    if (!other)
        return false;
    return !ours || !theirs || other->type != tensor->type || other->bytes != tensor->bytes ||
           memcmp(ours, theirs, (size_t)tensor->bytes) != 0;
}

enum ts_status ts_model_weights_init(struct ts_model_weights *weights, const struct ts_bundle *bundle,
                                     struct ts_error *error)
{
    TS_TRY(ts_model_weights_begin(weights, bundle->count, error));
    for (size_t i = 0; i < bundle->count; i++) {
        struct ts_view view;
        if (!ts_view_of(bundle->tensors[i], &weights->arena, &view)) {
            ts_model_weights_release(weights);
            return ts_fail_memory(error);
        }
        if (contradicts(weights, bundle->tensors[i])) {
            ts_model_weights_release(weights);
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                           "two tensors with different values are called %.200s; which of them is meant cannot be told",
                           bundle->tensors[i]->name);
        }
        ts_model_weights_add(weights, bundle->tensors[i]->name, &view);
    }
    find_prefix(weights);
    return TS_OK;
}

void ts_model_weights_release(struct ts_model_weights *weights)
{
    if (!weights->list)
        return;
    ts_table_release(&weights->names);
    ts_arena_release(&weights->arena);
    ts_buffer_release(&weights->missing);
    ts_buffer_release(&weights->wrong);
    weights->list = NULL;
}

void ts_model_weights_restart(struct ts_model_weights *weights)
{
    ts_buffer_clear(&weights->missing);
    ts_buffer_clear(&weights->wrong);
    weights->missing_count = weights->wrong_count = 0;
}

struct ts_model_weight *ts_model_weights_find(struct ts_model_weights *weights, const char *name)
{
    size_t found = ts_table_get(&weights->names, name);
    if (found == SIZE_MAX && weights->prefix && ts_starts_with(name, "model.")) {
        char other[1024];
        snprintf(other, sizeof other, "%s%s", weights->prefix, name + 6);
        found = ts_table_get(&weights->names, other);
    }
    if (found == SIZE_MAX && ts_starts_with(name, "transformer.")) /* as the first GPT-2 files have it */
        found = ts_table_get(&weights->names, name + 12);
    if (found == SIZE_MAX)
        return NULL;
    weights->list[found].used = true;
    return &weights->list[found];
}

static void append_shape(struct ts_buffer *out, const uint64_t *shape, unsigned rank)
{
    for (unsigned i = 0; i < rank; i++)
        ts_buffer_printf(out, "%c%" PRIu64, i ? ',' : '[', shape[i]);
    ts_buffer_string(out, rank ? "]" : "[]");
}

static void note(struct ts_buffer *list, size_t *count, const char *name)
{
    ++*count;
    ts_text_escape(list, name, strlen(name));
}

const struct ts_view *ts_model_weights_need(struct ts_model_weights *weights, const char *name, unsigned rank,
                                            const uint64_t *shape)
{
    struct ts_model_weight *weight = ts_model_weights_find(weights, name);
    bool same;
    if (!weight) {
        note(&weights->missing, &weights->missing_count, name);
        ts_buffer_byte(&weights->missing, ' ');
        append_shape(&weights->missing, shape, rank);
        ts_buffer_byte(&weights->missing, '\n');
        return NULL;
    }
    same = weight->view.rank == rank;
    for (unsigned i = 0; same && i < rank; i++)
        same = weight->view.shape[i] == shape[i];
    if (same)
        return &weight->view;
    note(&weights->wrong, &weights->wrong_count, name);
    ts_buffer_string(&weights->wrong, " is ");
    append_shape(&weights->wrong, weight->view.shape, weight->view.rank);
    ts_buffer_string(&weights->wrong, ", the config asks for ");
    append_shape(&weights->wrong, shape, rank);
    ts_buffer_byte(&weights->wrong, '\n');
    return NULL;
}

void ts_model_weights_ignore(struct ts_model_weights *weights, const char *text)
{
    for (size_t i = 0; i < weights->count; i++)
        if (strstr(weights->list[i].name, text))
            weights->list[i].ignored = true;
}

static bool is_left_over(const struct ts_model_weight *weight)
{
    return !weight->used && !weight->ignored;
}

void ts_model_weights_list(const struct ts_model_weights *weights, bool allow_unused, struct ts_buffer *out)
{
    if (weights->missing_count)
        ts_buffer_printf(out, "missing:\n%s", weights->missing.data);
    if (weights->wrong_count)
        ts_buffer_printf(out, "of another shape:\n%s", weights->wrong.data);
    for (size_t i = 0, told = 0; i < weights->count && !allow_unused; i++)
        if (is_left_over(&weights->list[i])) {
            ts_buffer_string(out, told++ ? "" : "not used by this architecture:\n");
            ts_text_escape(out, weights->list[i].name, strlen(weights->list[i].name));
            ts_buffer_byte(out, '\n');
        }
}

static const char *first_line(const struct ts_buffer *list, char *line, size_t room)
{
    size_t length = list->data ? strcspn(list->data, "\n") : 0;
    snprintf(line, room, "%.*s", (int)(length < room ? length : room - 1), list->data ? list->data : "");
    return line;
}

enum ts_status ts_model_weights_check(const struct ts_model_weights *weights, bool allow_unused, struct ts_error *error)
{
    size_t unused = 0;
    const char *first = NULL;
    char line[200];
    for (size_t i = 0; i < weights->count; i++)
        if (is_left_over(&weights->list[i])) {
            first = unused++ ? first : weights->list[i].name;
        }
    if (weights->missing_count)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "%zu weight%s missing, first %s", weights->missing_count,
                       weights->missing_count == 1 ? " is" : "s are", first_line(&weights->missing, line, sizeof line));
    if (weights->wrong_count)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "%zu weight%s another shape: %s", weights->wrong_count,
                       weights->wrong_count == 1 ? " has" : "s have", first_line(&weights->wrong, line, sizeof line));
    if (unused && !allow_unused)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "%zu weight%s not used by this architecture, first %s; --allow-unused runs without them", unused,
                       unused == 1 ? " is" : "s are", first);
    return TS_OK;
}
