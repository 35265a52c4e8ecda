/* Owns the file of the mappings that people made, and the pairing that they make. */
#include "serve/mappings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "io/source.h"
#include "report/json_fields.h"
#include "serve/files.h"
#include "serve/server.h"
#include "serve/workspace.h"

struct entry {
    const char *name, *name_b, *how;
};

static void path_of(const struct ts_workspace *workspace, char *out, size_t size)
{
    snprintf(out, size, "%s/%s/mappings.json", workspace->server->store.folder, workspace->id);
}

static enum ts_status take_entry(struct ts_json *json, struct ts_arena *arena, struct entry *entry,
                                 struct ts_error *error)
{
    *entry = (struct entry){0};
    for (;;) {
        const char **target;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            return TS_OK;
        target = ts_json_equals(json, "name")     ? &entry->name
                 : ts_json_equals(json, "name_b") ? &entry->name_b
                 : ts_json_equals(json, "how")    ? &entry->how
                                                  : NULL;
        if (target) {
            TS_TRY(ts_json_expect(json, TS_JSON_STRING, "a text", error));
            TS_TRY(ts_json_copy(json, arena, target, error));
        } else {
            TS_TRY(ts_json_skip_value(json, error));
        }
    }
}

/* Entries of the list; what is behind the most that are kept is left out. */
static enum ts_status take_entries(struct ts_json *json, struct ts_arena *arena, struct entry *entries, size_t *count,
                                   struct ts_error *error)
{
    TS_TRY(ts_json_expect(json, TS_JSON_ARRAY, "a list", error));
    for (*count = 0;;) {
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_ARRAY_END || *count == TS_MOST_MAPPINGS)
            return TS_OK;
        if (json->kind != TS_JSON_OBJECT)
            return ts_fail(error, TS_ERR_FORMAT, json->offset, "a mapping is an object");
        TS_TRY(take_entry(json, arena, &entries[*count], error));
        *count += entries[*count].name && entries[*count].name_b && entries[*count].how;
    }
}

static enum ts_status parse(const struct ts_source *source, struct ts_arena *arena, struct entry *entries,
                            size_t *count, struct ts_error *error)
{
    struct ts_json json;
    ts_json_init(&json, source->data, (size_t)source->size);
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            return TS_OK;
        if (ts_json_equals(&json, "mappings"))
            return take_entries(&json, arena, entries, count, error);
        TS_TRY(ts_json_skip_value(&json, error));
    }
}

static size_t find_pair(const struct ts_opened *opened, const struct entry *entry)
{
    const struct ts_pairing *pairing = &opened->comparison.pairing;
    for (size_t i = 0; i < pairing->count; i++)
        if (!opened->remaps[i] && strcmp(pairing->pairs[i].name, entry->name) == 0 &&
            strcmp(pairing->pairs[i].name_b, entry->name_b) == 0)
            return i;
    return SIZE_MAX;
}

static enum ts_status map_again(struct ts_opened *opened, const struct entry *entries, size_t count,
                                struct ts_error *error)
{
    for (size_t i = 0; i < count; i++) {
        size_t index = find_pair(opened, &entries[i]);
        struct ts_remap *remap = NULL;
        enum ts_status status =
            index == SIZE_MAX ? TS_OK
                              : ts_remap_make(opened, index, entries[i].how, strlen(entries[i].how), &remap, error);
        if (status == TS_ERR_CANCELLED || status == TS_ERR_MEMORY)
            return status;
        if (status == TS_OK && remap)
            opened->remaps[index] = remap;
    }
    return TS_OK;
}

enum ts_status ts_mappings_load(struct ts_workspace *workspace, struct ts_opened *opened, struct ts_error *error)
{
    struct entry *entries = calloc(TS_MOST_MAPPINGS + 1, sizeof *entries);
    enum ts_status status = entries ? TS_OK : ts_fail_memory(error);
    struct ts_source *source = NULL;
    struct ts_error ignored;
    struct ts_arena arena;
    size_t count = 0;
    char path[4200];
    path_of(workspace, path, sizeof path);
    ts_arena_init(&arena, 2 * TS_MAPPINGS_MOST_SIZE);
    if (status == TS_OK && opened->compared && access(path, F_OK) == 0 &&
        ts_source_open(path, &source, &ignored) == TS_OK) {
        if (source->size <= TS_MAPPINGS_MOST_SIZE && parse(source, &arena, entries, &count, &ignored) == TS_OK)
            status = map_again(opened, entries, count, error);
        ts_source_release(source);
    }
    ts_arena_release(&arena);
    free(entries);
    return status;
}

/* As a text: it goes back through the parser of the API. */
static void put_how(struct ts_json_writer *json, const struct ts_remap *remap)
{
    struct ts_json_writer inner;
    struct ts_buffer text;
    ts_buffer_init(&text, (size_t)1 << 20);
    ts_json_writer_init(&inner, &text, 0);
    ts_remap_json(&inner, remap);
    ts_json_finish(&inner);
    ts_field_text(json, "how", text.data ? text.data : "{}");
    ts_buffer_release(&text);
}

static size_t put_all(const struct ts_opened *opened, struct ts_buffer *text)
{
    const struct ts_pairing *pairing = &opened->comparison.pairing;
    struct ts_json_writer json;
    size_t count = 0;
    ts_json_writer_init(&json, text, 1);
    ts_json_begin_object(&json);
    ts_field_text(&json, "schema", "tsleuth.mappings/1");
    ts_json_key(&json, "mappings");
    ts_json_begin_array(&json);
    for (size_t i = 0; i < pairing->count; i++) {
        if (!opened->remaps[i])
            continue;
        count++;
        ts_json_begin_object(&json);
        ts_field_text(&json, "name", pairing->pairs[i].name);
        ts_field_text(&json, "name_b", pairing->pairs[i].name_b);
        put_how(&json, opened->remaps[i]);
        ts_json_end_object(&json);
    }
    ts_json_end_array(&json);
    ts_json_end_object(&json);
    ts_json_finish(&json);
    return count;
}

enum ts_status ts_mappings_set(struct ts_workspace *workspace, struct ts_opened *opened, size_t index,
                               struct ts_remap *remap, struct ts_error *error)
{
    struct ts_remap *before;
    struct ts_buffer text;
    enum ts_status status = TS_OK;
    char path[4200];
    ts_buffer_init(&text, TS_MAPPINGS_MOST_SIZE);
    pthread_mutex_lock(&workspace->lock);
    pthread_mutex_lock(&opened->lock);
    before = opened->remaps[index];
    opened->remaps[index] = remap;
    /* a comparison that was replaced meanwhile has nothing to say about the file */
    if (workspace->opened == opened && !workspace->deleted) {
        size_t count = put_all(opened, &text);
        path_of(workspace, path, sizeof path);
        if (count > TS_MOST_MAPPINGS || text.failed)
            status = ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "at most %d mappings by hand are kept; take one back",
                             TS_MOST_MAPPINGS);
        else if (count)
            status = ts_write_whole(path, text.data, text.size, error);
        else
            unlink(path);
    }
    if (status != TS_OK)
        opened->remaps[index] = before;
    pthread_mutex_unlock(&opened->lock);
    pthread_mutex_unlock(&workspace->lock);
    ts_buffer_release(&text);
    if (status == TS_OK)
        ts_remap_drop(before);
    return status;
}

void ts_mappings_forget(const struct ts_workspace *workspace)
{
    char path[4200];
    path_of(workspace, path, sizeof path);
    unlink(path);
}

/* Whose candidate tensor a person gave to a pair. */
static bool is_claimed(const struct ts_opened *opened, const struct ts_tensor *tensor)
{
    for (size_t i = 0; i < opened->comparison.pairing.count; i++) {
        const struct ts_remap *remap = opened->remaps[i];
        if (remap && (remap->swapped ? remap->pair.a.tensor : remap->pair.b.tensor) == tensor)
            return true;
    }
    return false;
}

static struct ts_pair as_mapped(const struct ts_remap *remap)
{
    struct ts_pair pair = remap->pair;
    if (remap->swapped) { /* a map file names the sides as they are */
        pair.a = remap->pair.b;
        pair.b = remap->pair.a;
        pair.name = remap->pair.name_b;
        pair.name_b = remap->pair.name;
    }
    return pair;
}

enum ts_status ts_mappings_pairing(struct ts_opened *opened, struct ts_pairing *pairing, struct ts_error *error)
{
    const struct ts_pairing *found = &opened->comparison.pairing;
    size_t most = found->count + found->only_a_count + found->only_b_count + 1;
    *pairing = *found;
    pairing->count = pairing->only_b_count = 0;
    pairing->pairs = calloc(most, sizeof *pairing->pairs);
    pairing->only_a = calloc(most, sizeof *pairing->only_a);
    pairing->only_b = calloc(most, sizeof *pairing->only_b);
    if (!pairing->pairs || !pairing->only_a || !pairing->only_b) {
        ts_mappings_pairing_release(pairing);
        return ts_fail_memory(error);
    }
    memcpy(pairing->only_a, found->only_a, found->only_a_count * sizeof *found->only_a);
    pthread_mutex_lock(&opened->lock);
    for (size_t i = 0; i < found->count; i++) {
        const struct ts_pair *pair = &found->pairs[i];
        const struct ts_remap *remap = opened->remaps[i];
        bool joined = pair->a.join != TS_JOIN_NONE || pair->b.join != TS_JOIN_NONE;
        if (remap)
            pairing->pairs[pairing->count++] = as_mapped(remap);
        else if (joined || !is_claimed(opened, pair->b.tensor))
            pairing->pairs[pairing->count++] = *pair;
        else
            pairing->only_a[pairing->only_a_count++] = pair->a.tensor;
        if (remap && !joined && !is_claimed(opened, pair->b.tensor))
            pairing->only_b[pairing->only_b_count++] = pair->b.tensor;
    }
    for (size_t i = 0; i < found->only_b_count; i++)
        if (!is_claimed(opened, found->only_b[i]))
            pairing->only_b[pairing->only_b_count++] = found->only_b[i];
    pthread_mutex_unlock(&opened->lock);
    return TS_OK;
}

void ts_mappings_pairing_release(struct ts_pairing *pairing)
{
    free(pairing->pairs);
    free((void *)pairing->only_a);
    free((void *)pairing->only_b);
}
