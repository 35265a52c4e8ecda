/* Owns the list of quantization families, the search for their parts by name, and the exchange of parts for the logical
 * tensor. What the families know is in quantized_<family>.c, how values are computed in quantized_grouped.c. */
#include "read/quantized.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "read/quantized_family.h"

static const struct ts_quantized_family *const families[] = {
    &ts_quantized_awq_gptq, &ts_quantized_bnb,   &ts_quantized_compressed,
    &ts_quantized_mlx,      &ts_quantized_mxfp4, &ts_quantized_fp8,
};

/* Names are as long as a file's header allows; longer ones than this are found in no look-up. */
#define NAME_LIMIT ((size_t)1 << 20)

/* Table and settings are made when the first anchor is seen: a checkpoint without one costs a look at each name's end.
 */
static enum ts_status prepare(struct ts_quantized *q, struct ts_error *error)
{
    struct ts_bundle *bundle = q->bundle;
    if (!ts_table_init(&q->names, bundle->count))
        return ts_fail_memory(error);
    q->ready = true;
    for (size_t i = 0; i < bundle->count; i++)
        ts_table_put(&q->names, bundle->tensors[i]->name, i, NULL);
    return ts_quantized_settings_read(&q->settings, bundle, error);
}

static size_t place_of(struct ts_quantized *q, const char *name, size_t stem, const char *suffix)
{
    ts_buffer_clear(&q->wanted);
    if (!ts_buffer_append(&q->wanted, name, stem) || !ts_buffer_string(&q->wanted, suffix))
        return SIZE_MAX;
    return ts_table_get(&q->names, q->wanted.data);
}

struct ts_tensor *ts_quantized_part(struct ts_quantized *q, const char *name, size_t stem, const char *suffix)
{
    size_t place = place_of(q, name, stem, suffix);
    struct ts_tensor *tensor = place == SIZE_MAX ? NULL : q->bundle->tensors[place];
    return tensor && tensor->type != TS_CODED ? tensor : NULL;
}

char *ts_quantized_shape(const struct ts_tensor *tensor, char text[TS_SHAPE_TEXT])
{
    size_t used = 0;
    for (unsigned i = 0; i < tensor->rank; i++) {
        char number[24];
        int length = snprintf(number, sizeof number, "%s%" PRIu64, i ? "," : "[", tensor->shape[i]);
        if (used + (size_t)length + 6 > TS_SHAPE_TEXT) {
            memcpy(text + used, ",...", 4);
            used += 4;
            break;
        }
        memcpy(text + used, number, (size_t)length);
        used += (size_t)length;
    }
    memcpy(text + used, tensor->rank ? "]" : "[]", tensor->rank ? 2 : 3);
    return text;
}

void ts_quantized_say_groups(struct ts_quantized_weight *weight, uint64_t group, uint64_t columns)
{
    size_t used = strlen(weight->scheme), left = sizeof weight->scheme - used;
    if (group >= columns)
        snprintf(weight->scheme + used, left, ", one group");
    else
        snprintf(weight->scheme + used, left, ", groups of %" PRIu64, group);
}

static enum ts_status describe(struct ts_quantized *q, const struct ts_quantized_weight *weight,
                               struct ts_tensor *coded, struct ts_error *error)
{
    TS_TRY(ts_bundle_attribute(q->bundle, coded, "scheme", weight->scheme, error));
    ts_buffer_clear(&q->wanted);
    for (size_t i = 0; i < coded->part_count; i++) {
        if (i)
            ts_buffer_string(&q->wanted, ", ");
        ts_buffer_string(&q->wanted, coded->parts[i]->name);
    }
    return ts_bundle_attribute(q->bundle, coded, "parts", q->wanted.data ? q->wanted.data : "", error);
}

enum ts_status ts_quantized_replace(struct ts_quantized *q, const struct ts_quantized_weight *weight,
                                    struct ts_error *error)
{
    struct ts_bundle *bundle = q->bundle;
    const struct ts_tensor *main = weight->parts[0];
    struct ts_tensor *coded = ts_arena_alloc(&bundle->arena, sizeof *coded);
    size_t place;
    struct ts_error why;
    if (!coded ||
        !(coded->parts = ts_arena_array(&bundle->arena, TS_QUANTIZED_MAX_PARTS, sizeof(struct ts_tensor *))) ||
        !(coded->shape = ts_arena_array(&bundle->arena, weight->rank, sizeof *coded->shape)) ||
        !(coded->name = ts_arena_printf(&bundle->arena, "%.*s%s", (int)weight->stem, weight->name, weight->suffix)))
        return ts_fail_memory(error);
    place = ts_table_get(&q->names, coded->name);
    if (place != SIZE_MAX && bundle->tensors[place] != main)
        return ts_bundle_find(bundle, main->name, error, "stays as its parts: there is a tensor \"%s\" already",
                              coded->name);
    for (size_t i = 0; i < TS_QUANTIZED_MAX_PARTS; i++)
        if (weight->parts[i])
            coded->parts[coded->part_count++] = weight->parts[i];
    coded->file = main->file;
    coded->type = TS_CODED;
    coded->rank = weight->rank;
    memcpy(coded->shape, weight->shape, weight->rank * sizeof *coded->shape);
    coded->source = main->source;
    coded->offset = coded->span_offset = main->offset;
    coded->codec = weight->codec;
    coded->codec_data = weight->data;
    ts_error_clear(&why);
    if (ts_tensor_finish(coded, &why) != TS_OK)
        return ts_bundle_find(bundle, main->name, error, "stays as its parts: %s", why.message);
    TS_TRY(describe(q, weight, coded, error));
    place = ts_table_get(&q->names, main->name);
    for (size_t i = 0; i < coded->part_count; i++)
        bundle->tensors[ts_table_get(&q->names, coded->parts[i]->name)] = NULL;
    bundle->tensors[place] = coded;
    return TS_OK;
}

/* The suffix of the family's that ends the name and fits, or NULL. */
static const char *anchor_of(const struct ts_quantized_family *family, const struct ts_tensor *tensor, size_t length)
{
    const char *end = tensor->name + length;
    for (const struct ts_quantized_anchor *anchor = family->anchors; anchor->suffix; anchor++) {
        /* The last character alone tells most names apart, without a call. */
        if (anchor->size < length && end[-1] == anchor->suffix[anchor->size - 1] &&
            memcmp(end - anchor->size, anchor->suffix, anchor->size) == 0 && (!anchor->fits || anchor->fits(tensor)))
            return anchor->suffix;
    }
    return NULL;
}

static enum ts_status join_tensor(struct ts_quantized *q, size_t index, struct ts_error *error)
{
    struct ts_tensor *tensor = q->bundle->tensors[index];
    size_t length = strlen(tensor->name);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *suffix = length && tensor->type != TS_CODED ? anchor_of(families[i], tensor, length) : NULL;
        if (!suffix)
            continue;
        if (!q->ready)
            TS_TRY(prepare(q, error));
        /* Of two tensors with one name the table knows the first; the second stays as it is. */
        if (ts_table_get(&q->names, tensor->name) != index)
            return TS_OK;
        TS_TRY(families[i]->join(q, tensor, length - strlen(suffix), suffix, error));
        if (q->bundle->tensors[index] != tensor)
            return TS_OK;
    }
    return TS_OK;
}

static void close_gaps(struct ts_bundle *bundle)
{
    size_t kept = 0;
    for (size_t i = 0; i < bundle->count; i++)
        if (bundle->tensors[i])
            bundle->tensors[kept++] = bundle->tensors[i];
    bundle->count = kept;
}

enum ts_status ts_quantized_join(struct ts_bundle *bundle, struct ts_error *error)
{
    struct ts_quantized q = {.bundle = bundle};
    enum ts_status status = TS_OK;
    ts_buffer_init(&q.wanted, NAME_LIMIT * TS_QUANTIZED_MAX_PARTS);
    for (size_t i = 0; i < bundle->count && status == TS_OK; i++)
        if (bundle->tensors[i])
            status = join_tensor(&q, i, error);
    if (q.ready)
        close_gaps(bundle);
    ts_quantized_settings_release(&q.settings);
    ts_table_release(&q.names);
    ts_buffer_release(&q.wanted);
    return status;
}
