/* Owns model.safetensors.index.json and its kin (pytorch_model.bin.index.json): a JSON object whose "weight_map" says
 * which file beside it holds which tensor. Opens the shards, names the missing ones, and compares what was promised
 * with what is there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/system.h"
#include "base/table.h"
#include "base/text.h"
#include "read/order.h"
#include "read/readers.h"

/* More shards than any checkpoint has; each is a mapped file. */
#define MAX_SHARDS 10000

struct shard {
    const char *file;
    const char *first; /* a tensor it should hold, for the message when it is missing */
    uint64_t promised;
    bool missing;
};

struct promise {
    const char *tensor;
    size_t shard;
};

struct index {
    struct shard *shards;
    size_t shard_count, shard_capacity;
    struct promise *promises;
    size_t promise_count, promise_capacity;
};

static unsigned shard_index_bid(const struct ts_input *input)
{
    /* An object that has the key "weight_map" within its first levels. metadata comes first and is short. */
    struct ts_error error;
    struct ts_json json;
    if (input->source->size < 2 ||
        !memchr(input->source->data, '{', input->source->size < 64 ? input->source->size : 64))
        return 0;
    ts_json_init(&json, input->source->data, (size_t)input->source->size);
    if (ts_json_next(&json, &error) != TS_OK || json.kind != TS_JSON_OBJECT)
        return 0;
    for (int keys = 0; keys < 16; keys++) {
        if (ts_json_next(&json, &error) != TS_OK || json.kind != TS_JSON_KEY)
            return 0;
        if (ts_json_equals(&json, "weight_map"))
            return ts_json_next(&json, &error) == TS_OK && json.kind == TS_JSON_OBJECT ? 64 : 0;
        if (ts_json_skip_value(&json, &error) != TS_OK)
            return 0;
    }
    return 0;
}

static enum ts_status shard_of(struct index *index, struct ts_table *files, const char *file, const char *tensor,
                               size_t *found, struct ts_error *error)
{
    *found = ts_table_get(files, file);
    if (*found != SIZE_MAX)
        return TS_OK;
    if (index->shard_count == index->shard_capacity)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "the index names more than %d shards", MAX_SHARDS);
    *found = index->shard_count++;
    index->shards[*found] = (struct shard){.file = file, .first = tensor};
    ts_table_put(files, file, *found, NULL);
    return TS_OK;
}

static enum ts_status read_weight_map(struct ts_json *json, struct ts_bundle *bundle, struct index *index,
                                      struct ts_table *files, struct ts_error *error)
{
    TS_TRY(ts_json_expect(json, TS_JSON_OBJECT, "weight_map to be an object", error));
    for (;;) {
        const char *tensor, *file;
        size_t shard;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            return TS_OK;
        TS_TRY(ts_json_copy(json, &bundle->arena, &tensor, error));
        TS_TRY(ts_json_expect(json, TS_JSON_STRING, "a file name", error));
        TS_TRY(ts_json_copy(json, &bundle->arena, &file, error));
        TS_TRY(shard_of(index, files, file, tensor, &shard, error));
        index->shards[shard].promised++;
        if (index->promise_count == index->promise_capacity) {
            size_t more = index->promise_capacity ? index->promise_capacity * 2 : 1024;
            struct promise *moved = ts_reallocarray(index->promises, more, sizeof *moved);
            if (!moved)
                return ts_fail_memory(error);
            index->promises = moved;
            index->promise_capacity = more;
        }
        index->promises[index->promise_count++] = (struct promise){tensor, shard};
    }
}

static enum ts_status read_index(struct ts_input *input, struct ts_bundle *bundle, struct index *index,
                                 struct ts_error *error)
{
    struct ts_json json;
    struct ts_table files;
    enum ts_status status;
    if (!ts_table_init(&files, MAX_SHARDS))
        return ts_fail_memory(error);
    ts_json_init(&json, input->source->data, (size_t)input->source->size);
    status = ts_json_expect(&json, TS_JSON_OBJECT, "an object", error);
    while (status == TS_OK && (status = ts_json_next(&json, error)) == TS_OK && json.kind != TS_JSON_OBJECT_END)
        status = ts_json_equals(&json, "weight_map") ? read_weight_map(&json, bundle, index, &files, error)
                                                     : ts_json_skip_value(&json, error);
    ts_table_release(&files);
    return status;
}

static int by_file(const void *a, const void *b)
{
    const struct shard *const *left = a, *const *right = b;
    return ts_natural_compare((*left)->file, (*right)->file);
}

static enum ts_status read_shard(struct ts_input *input, struct ts_bundle *bundle, struct shard *shard,
                                 struct ts_error *error)
{
    struct ts_source *source;
    struct ts_error why;
    char reason[1024];
    size_t start = bundle->count;
    ts_error_clear(&why);
    if (ts_input_beside(input, shard->file, &source, &why) != TS_OK) {
        shard->missing = true;
        snprintf(reason, sizeof reason,
                 shard->promised == 1 ? "missing shard with %" PRIu64 " tensor, \"%s\": %s"
                                      : "missing shard with %" PRIu64 " tensors, among them \"%s\": %s",
                 shard->promised, shard->first, why.message);
        return ts_bundle_skip(bundle, shard->file, false, reason, error);
    }
    bundle->file_bytes += source->size;
    if (ts_read_source(input, NULL, source, shard->file, bundle, &why) != TS_OK) {
        shard->missing = true;
        bundle->count = start;
        ts_source_release(source);
        return ts_bundle_skip_error(bundle, shard->file, NULL, &why, error);
    }
    for (size_t i = start; i < bundle->count; i++)
        bundle->tensors[i]->file = shard->file;
    ts_source_release(source);
    return TS_OK;
}

/* What the index promises and the shards lack, and the reverse. Tensors of a missing shard are told once, with it. */
static enum ts_status check_promises(struct ts_bundle *bundle, size_t start, const struct index *index,
                                     struct ts_error *error)
{
    struct ts_table have, promised;
    enum ts_status status = TS_OK;
    size_t lacking = 0, extra = 0;
    if (!ts_table_init(&have, bundle->count - start))
        return ts_fail_memory(error);
    if (!ts_table_init(&promised, index->promise_count)) {
        ts_table_release(&have);
        return ts_fail_memory(error);
    }
    for (size_t i = start; i < bundle->count && status == TS_OK; i++)
        if (!ts_table_put(&have, bundle->tensors[i]->name, i, NULL))
            status = ts_bundle_find(bundle, bundle->tensors[i]->name, error, "is in more than one shard");
    for (size_t i = 0; i < index->promise_count && status == TS_OK; i++) {
        const struct promise *promise = &index->promises[i];
        const struct shard *shard = &index->shards[promise->shard];
        ts_table_put(&promised, promise->tensor, i, NULL);
        if (!shard->missing && ts_table_get(&have, promise->tensor) == SIZE_MAX && lacking++ < 100)
            status = ts_bundle_find(bundle, promise->tensor, error, "the index puts it in \"%s\", which lacks it",
                                    shard->file);
    }
    for (size_t i = start; i < bundle->count && status == TS_OK; i++)
        if (ts_table_get(&promised, bundle->tensors[i]->name) == SIZE_MAX && extra++ < 100)
            status = ts_bundle_find(bundle, bundle->tensors[i]->name, error,
                                    "is in \"%s\", and the index does not name it", bundle->tensors[i]->file);
    ts_table_release(&have);
    ts_table_release(&promised);
    return status;
}

static enum ts_status read_shards(struct ts_input *input, struct ts_bundle *bundle, struct index *index,
                                  struct ts_error *error)
{
    size_t start = bundle->count;
    struct shard **sorted = calloc(index->shard_count + 1, sizeof(struct shard *));
    enum ts_status status = TS_OK;
    const char *order;
    if (!sorted)
        return ts_fail_memory(error);
    for (size_t i = 0; i < index->shard_count; i++)
        sorted[i] = &index->shards[i];
    qsort(sorted, index->shard_count, sizeof *sorted, by_file);
    for (size_t i = 0; i < index->shard_count && status == TS_OK; i++)
        status = read_shard(input, bundle, sorted[i], error);
    free(sorted);
    TS_TRY(status);
    order = bundle->order; /* each shard was put into natural order by itself; now all of them together */
    if (strcmp(order, "natural order of names") == 0)
        ts_order_natural(bundle, start);
    return check_promises(bundle, start, index, error);
}

static enum ts_status shard_index_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct index index = {.shard_capacity = MAX_SHARDS};
    enum ts_status status;
    index.shards = calloc(MAX_SHARDS, sizeof *index.shards);
    if (!index.shards)
        return ts_fail_memory(error);
    status = read_index(input, bundle, &index, error);
    if (status == TS_OK)
        status = read_shards(input, bundle, &index, error);
    free(index.shards);
    free(index.promises);
    return status;
}

const struct ts_reader ts_reader_shard_index = {
    .name = "sharded checkpoint",
    .summary = "sets of shards joined by an index.json (safetensors and PyTorch)",
    .gathers = true,
    .bid = shard_index_bid,
    .read = shard_index_read,
};
