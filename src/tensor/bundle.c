#include "tensor/bundle.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"

/* Room for the descriptions of some millions of tensors; a hostile file stops here. */
#define ARENA_LIMIT ((size_t)4 << 30)

struct ts_bundle *ts_bundle_new(const char *path)
{
    struct ts_bundle *bundle = calloc(1, sizeof *bundle);
    if (!bundle)
        return NULL;
    ts_arena_init(&bundle->arena, ARENA_LIMIT);
    bundle->path = ts_arena_string(&bundle->arena, path);
    bundle->order = "order of the file";
    if (!bundle->path) {
        ts_bundle_free(bundle);
        return NULL;
    }
    return bundle;
}

void ts_bundle_free(struct ts_bundle *bundle)
{
    if (!bundle)
        return;
    for (size_t i = 0; i < bundle->source_count; i++)
        ts_source_release(bundle->sources[i]);
    ts_source_release(bundle->config);
    free(bundle->sources);
    free(bundle->tensors);
    free(bundle->metas);
    free(bundle->skips);
    free(bundle->findings);
    ts_arena_release(&bundle->arena);
    free(bundle);
}

/* Makes room for one more entry in a vector of entries of `size` bytes. */
static enum ts_status grow(void **data, size_t count, size_t *capacity, size_t size, struct ts_error *error)
{
    size_t more = *capacity ? *capacity * 2 : 16;
    void *moved;
    if (count < *capacity)
        return TS_OK;
    moved = ts_reallocarray(*data, more, size);
    if (!moved)
        return ts_fail_memory(error);
    *data = moved;
    *capacity = more;
    return TS_OK;
}

enum ts_status ts_bundle_add(struct ts_bundle *bundle, const char *name, unsigned rank, struct ts_tensor **tensor,
                             struct ts_error *error)
{
    struct ts_tensor *added;
    TS_TRY(grow((void **)&bundle->tensors, bundle->count, &bundle->capacity, sizeof *bundle->tensors, error));
    added = ts_arena_alloc(&bundle->arena, sizeof *added);
    if (!added || !(added->name = ts_arena_string(&bundle->arena, name)) ||
        !(added->shape = ts_arena_array(&bundle->arena, rank, sizeof *added->shape)))
        return ts_fail_memory(error);
    added->rank = rank;
    bundle->tensors[bundle->count++] = added;
    *tensor = added;
    return TS_OK;
}

void ts_bundle_drop_last(struct ts_bundle *bundle)
{
    bundle->count--;
}

enum ts_status ts_bundle_keep(struct ts_bundle *bundle, struct ts_source *source, struct ts_error *error)
{
    /* Readers keep the same source for each tensor in a row: look at the last one, not at all of them. */
    if (bundle->source_count && bundle->sources[bundle->source_count - 1] == source)
        return TS_OK;
    TS_TRY(grow((void **)&bundle->sources, bundle->source_count, &bundle->source_capacity, sizeof *bundle->sources,
                error));
    bundle->sources[bundle->source_count++] = ts_source_retain(source);
    return TS_OK;
}

enum ts_status ts_bundle_meta(struct ts_bundle *bundle, const char *key, const char *value, struct ts_error *error)
{
    struct ts_meta meta = {.key = ts_arena_string(&bundle->arena, key),
                           .value = ts_arena_string(&bundle->arena, value)};
    if (!meta.key || !meta.value)
        return ts_fail_memory(error);
    TS_TRY(grow((void **)&bundle->metas, bundle->meta_count, &bundle->meta_capacity, sizeof *bundle->metas, error));
    bundle->metas[bundle->meta_count++] = meta;
    return TS_OK;
}

const char *ts_bundle_meta_value(const struct ts_bundle *bundle, const char *key)
{
    for (size_t i = 0; i < bundle->meta_count; i++)
        if (strcmp(bundle->metas[i].key, key) == 0)
            return bundle->metas[i].value;
    return NULL;
}

enum ts_status ts_bundle_skip(struct ts_bundle *bundle, const char *path, bool harmless, const char *reason,
                              struct ts_error *error)
{
    struct ts_skip skip = {.path = ts_arena_string(&bundle->arena, path),
                           .reason = ts_arena_string(&bundle->arena, reason),
                           .harmless = harmless};
    if (!skip.path || !skip.reason)
        return ts_fail_memory(error);
    TS_TRY(grow((void **)&bundle->skips, bundle->skip_count, &bundle->skip_capacity, sizeof *bundle->skips, error));
    bundle->skips[bundle->skip_count++] = skip;
    return TS_OK;
}

enum ts_status ts_bundle_skip_error(struct ts_bundle *bundle, const char *path, const char *name,
                                    const struct ts_error *why, struct ts_error *error)
{
    char place[1024], reason[640];
    if (why->status == TS_ERR_CANCELLED) { /* nothing is wrong with it */
        *error = *why;
        return why->status;
    }
    if (name && name[0])
        snprintf(place, sizeof place, "%s:%s", path, name);
    else
        snprintf(place, sizeof place, "%s", path);
    if (why->offset != TS_NO_OFFSET)
        snprintf(reason, sizeof reason, "at byte %" PRIu64 ": %s", why->offset, why->message);
    else
        snprintf(reason, sizeof reason, "%s", why->message);
    TS_TRY(ts_bundle_skip(bundle, place, false, reason, error));
    bundle->skips[bundle->skip_count - 1].inside = name && name[0];
    return TS_OK;
}

enum ts_status ts_bundle_find(struct ts_bundle *bundle, const char *tensor, struct ts_error *error, const char *format,
                              ...)
{
    struct ts_finding finding = {NULL, NULL};
    va_list args;
    va_start(args, format);
    finding.text = ts_arena_vprintf(&bundle->arena, format, args);
    va_end(args);
    if (tensor)
        finding.tensor = ts_arena_string(&bundle->arena, tensor);
    if (!finding.text || (tensor && !finding.tensor))
        return ts_fail_memory(error);
    TS_TRY(grow((void **)&bundle->findings, bundle->finding_count, &bundle->finding_capacity, sizeof *bundle->findings,
                error));
    bundle->findings[bundle->finding_count++] = finding;
    return TS_OK;
}

enum ts_status ts_bundle_attribute(struct ts_bundle *bundle, struct ts_tensor *tensor, const char *key,
                                   const char *value, struct ts_error *error)
{
    struct ts_attribute *attribute = ts_arena_alloc(&bundle->arena, sizeof *attribute), **end = &tensor->attributes;
    if (!attribute || !(attribute->key = ts_arena_string(&bundle->arena, key)) ||
        !(attribute->value = ts_arena_string(&bundle->arena, value)))
        return ts_fail_memory(error);
    while (*end)
        end = &(*end)->next;
    *end = attribute;
    return TS_OK;
}

struct ts_tensor *ts_bundle_tensor(const struct ts_bundle *bundle, const char *name)
{
    for (size_t i = 0; i < bundle->count; i++)
        if (strcmp(bundle->tensors[i]->name, name) == 0)
            return bundle->tensors[i];
    return NULL;
}
