/* Owns what captures say about their tensors in a safetensors file's metadata, and the way from one part of a long
 * trace to the next. */
#include "read/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/system.h"
#include "base/table.h"
#include "base/text.h"
#include "read/readers.h"

#define MAGIC       "{\"__metadata__\":{\"tsleuth.order\":\"offset\""
#define FIRST_PART  MAGIC ",\"tsleuth.part\":\"1\""
#define NOTE_PREFIX "tsleuth.note."
#define LOST_PREFIX "tsleuth.lost."
#define MAX_PARTS   10000

static bool begins_with(const struct ts_source *source, const char *text)
{
    const uint8_t *head = ts_source_at(source, 8, strlen(text));
    return head && memcmp(head, text, strlen(text)) == 0;
}

bool ts_trace_is(const struct ts_source *source)
{
    return begins_with(source, MAGIC);
}

bool ts_trace_is_spare(const char *name)
{
    return strcmp(name, "__tsleuth_spare__") == 0;
}

static enum ts_status keep(struct ts_trace_note **notes, size_t *count, size_t *capacity, const char *name,
                           const char *text, struct ts_error *error)
{
    if (*count == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 64;
        struct ts_trace_note *moved = ts_reallocarray(*notes, more, sizeof *moved);
        if (!moved)
            return ts_fail_memory(error);
        *notes = moved;
        *capacity = more;
    }
    (*notes)[(*count)++] = (struct ts_trace_note){name, text};
    return TS_OK;
}

enum ts_status ts_trace_take(struct ts_trace *trace, const char *key, const char *value, bool *taken,
                             struct ts_error *error)
{
    bool note = ts_starts_with(key, NOTE_PREFIX), lost = ts_starts_with(key, LOST_PREFIX);
    *taken = note || lost;
    if (note)
        return keep(&trace->notes, &trace->note_count, &trace->note_capacity, key + strlen(NOTE_PREFIX), value, error);
    if (lost)
        return keep(&trace->lost, &trace->lost_count, &trace->lost_capacity, key + strlen(LOST_PREFIX), value, error);
    return TS_OK;
}

void ts_trace_release(struct ts_trace *trace)
{
    free(trace->notes);
    free(trace->lost);
    *trace = (struct ts_trace){0};
}

/* {"axes":"tokens,heads","layer":3,"sampled":true}: each becomes an attribute, as text. */
static enum ts_status apply_note(struct ts_bundle *bundle, struct ts_tensor *tensor, const char *text,
                                 struct ts_error *error)
{
    struct ts_json json;
    ts_json_init(&json, text, strlen(text));
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        const char *key, *value, *from;
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            return TS_OK;
        TS_TRY(ts_json_copy(&json, &bundle->arena, &key, error));
        TS_TRY(ts_json_next(&json, error));
        if (strcmp(key, "sampled") == 0) {
            tensor->sampled = json.kind == TS_JSON_TRUE;
            TS_TRY(ts_json_skip_value(&json, error));
            continue;
        }
        if (json.kind == TS_JSON_STRING) {
            TS_TRY(ts_json_copy(&json, &bundle->arena, &value, error));
        } else {
            from = json.text + json.offset;
            TS_TRY(ts_json_skip_value(&json, error));
            value = ts_arena_copy(&bundle->arena, from, (size_t)(json.text + json.at - from));
            if (!value)
                return ts_fail_memory(error);
        }
        TS_TRY(ts_bundle_attribute(bundle, tensor, key, value, error));
    }
}

enum ts_status ts_trace_apply(const struct ts_trace *trace, const struct ts_input *input, struct ts_bundle *bundle,
                              size_t start, struct ts_error *error)
{
    struct ts_table table;
    enum ts_status status = TS_OK;
    struct ts_error why;
    if (!trace->note_count && !trace->lost_count)
        return TS_OK;
    if (!ts_table_init(&table, bundle->count - start))
        return ts_fail_memory(error);
    for (size_t i = start; i < bundle->count; i++)
        ts_table_put(&table, bundle->tensors[i]->name, i, NULL);
    for (size_t i = 0; i < trace->note_count && status == TS_OK; i++) {
        size_t index = ts_table_get(&table, trace->notes[i].name);
        ts_error_clear(&why);
        if (index != SIZE_MAX && apply_note(bundle, bundle->tensors[index], trace->notes[i].text, &why) != TS_OK)
            status = why.status == TS_ERR_MEMORY ? ts_fail_memory(error)
                                                 : ts_bundle_find(bundle, trace->notes[i].name, error,
                                                                  "its note in the metadata: %s", why.message);
    }
    for (size_t i = 0; i < trace->lost_count && status == TS_OK; i++) {
        if (ts_table_get(&table, trace->lost[i].name) != SIZE_MAX)
            continue;
        ts_error_clear(&why);
        ts_fail(&why, TS_ERR_IO, TS_NO_OFFSET, "the captured program could not write it: %s", trace->lost[i].text);
        status = ts_bundle_skip_error(bundle, input->member, trace->lost[i].name, &why, error);
    }
    ts_table_release(&table);
    return status;
}

/* Only a trace that may go on in other files needs more than the safetensors reader. */
static unsigned trace_bid(const struct ts_input *input)
{
    unsigned bid = ts_reader_safetensors.bid(input);
    return bid && begins_with(input->source, FIRST_PART) ? bid + 16 : 0;
}

static const char *meta_since(const struct ts_bundle *bundle, size_t start, const char *key)
{
    for (size_t i = start; i < bundle->meta_count; i++)
        if (strcmp(bundle->metas[i].key, key) == 0)
            return bundle->metas[i].value;
    return NULL;
}

/* One further part. *name is its file, then that of the next, or NULL. */
static enum ts_status read_part(struct ts_input *input, struct ts_bundle *bundle, unsigned part, const char **name,
                                struct ts_error *error)
{
    struct ts_source *source;
    struct ts_error why;
    const char *file = *name, *number;
    char expected[16];
    size_t tensors = bundle->count, metas = bundle->meta_count;
    enum ts_status status;
    *name = NULL;
    ts_error_clear(&why);
    if (strchr(file, '/') || ts_input_beside(input, file, &source, &why) != TS_OK)
        return ts_bundle_skip(bundle, file, false, "the trace goes on in this file, and it cannot be opened", error);
    status = ts_read_source(input, &ts_reader_safetensors, source, file, bundle, &why);
    if (status == TS_OK)
        bundle->file_bytes += source->size;
    ts_source_release(source);
    snprintf(expected, sizeof expected, "%u", part);
    number = status == TS_OK ? meta_since(bundle, metas, "tsleuth.part") : NULL;
    if (status == TS_OK && (!number || strcmp(number, expected) != 0))
        status = ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET, "is named as part %u of a trace, and says it is part %s",
                         part, number ? number : "of none");
    if (status != TS_OK) {
        bundle->count = tensors;
        bundle->meta_count = metas;
        return ts_bundle_skip_error(bundle, file, NULL, &why, error);
    }
    for (size_t i = tensors; i < bundle->count; i++)
        bundle->tensors[i]->file = file;
    *name = meta_since(bundle, metas, "tsleuth.next");
    return TS_OK;
}

static enum ts_status trace_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    size_t metas = bundle->meta_count;
    const char *name;
    TS_TRY(ts_reader_safetensors.read(input, bundle, error));
    name = meta_since(bundle, metas, "tsleuth.next");
    /* the numbers of the parts rise, so files that point at each other end it */
    for (unsigned part = 2; name && part <= MAX_PARTS; part++)
        TS_TRY(read_part(input, bundle, part, &name, error));
    return TS_OK;
}

const struct ts_reader ts_reader_trace = {
    .name = "safetensors trace",
    .summary = "traces captured from a running program (safetensors that can be appended to)",
    .gathers = true,
    .bid = trace_bid,
    .read = trace_read,
};
