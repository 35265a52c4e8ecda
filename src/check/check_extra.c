/* Owns the weights that a checkpoint has and its config.json does not promise. Those of one kind are told once, with
 * the number of layers that have them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "check/check_model.h"

/* Buffers that libraries recompute, parts of quantized weights, adapters and heads of other tasks. */
static bool may_be_extra(const struct ts_model *model, const char *name)
{
    static const char *const endings[] = {
        ".inv_freq",   ".attn.bias",   ".masked_bias", "_scale",        "_scale_inv", ".scales", ".qzeros",
        ".g_idx",      ".biases",      "_scale_2",     ".absmax",       ".quant_map", ".SCB",    ".weight_format",
        "_zero_point", "weight_shape", ".qweight",     "weight_packed", "_blocks",    "_scales", "position_ids",
    };
    static const char *const anywhere[] = {"lora_", ".quant_state.", "nested_", "v_head.", "score.", "classifier."};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ts_ends_with(name, endings[i]))
            return true;
    for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; i++)
        if (strstr(name, anywhere[i]))
            return true;
    if (ts_starts_with(name, "mtp."))
        return true;
    return model->skip_experts && (strstr(name, "expert") || strstr(name, "switch_"));
}

struct extra {
    const char *shown; /* the name as in the bundle */
    const char *leaf;
    uint64_t layer; /* UINT64_MAX without one */
    size_t start, end;
    size_t index;
    size_t others; /* of its kind */
};

/* By name with the layer's number left out, then by order. */
static int by_template(const void *a, const void *b)
{
    const struct extra *left = a, *right = b;
    int order;
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    order = strncmp(left->leaf, right->leaf, left->start);
    if (!order)
        order = strcmp(left->leaf + left->end, right->leaf + right->end);
    if (order)
        return order;
    return left->index < right->index ? -1 : left->index > right->index;
}

static bool same_template(const struct extra *a, const struct extra *b)
{
    return a->start == b->start && strncmp(a->leaf, b->leaf, a->start) == 0 &&
           strcmp(a->leaf + a->end, b->leaf + b->end) == 0;
}

static int by_index(const void *a, const void *b)
{
    const struct extra *left = a, *right = b;
    return left->index < right->index ? -1 : left->index > right->index;
}

static void tell_layers_beyond(struct ts_model *model, const uint64_t *beyond, size_t count_of, size_t weights)
{
    struct ts_buffer name;
    ts_buffer_init(&name, 4096);
    ts_model_put_layers(model, beyond, count_of, &name);
    ts_check_add(model->checking, "unexpected-weight", TS_WARNING, name.data,
                 "%zu weights are there, and config.json says num_hidden_layers is %" PRIu64, weights,
                 model->promise->layers);
    ts_buffer_release(&name);
}

/* Beside the layers of its text model a multimodal one has weights that are not described here. */
static bool is_of_text_model(const struct ts_model *model, const char *leaf)
{
    size_t length = strlen(model->prefix);
    return length && ts_starts_with(leaf, model->prefix) && ts_starts_with(leaf + length, "layers.");
}

static size_t gather_extras(struct ts_model *model, struct extra *extras, uint64_t *beyond, size_t *beyond_count)
{
    const struct ts_promise *promise = model->promise;
    size_t used = 0;
    for (size_t i = 0; i < model->checking->bundle->count; i++) {
        const char *shown = model->checking->bundle->tensors[i]->name, *leaf = ts_check_leaf(shown);
        struct extra extra = {.shown = shown, .leaf = leaf, .layer = UINT64_MAX, .index = i};
        if (model->checking->group_of[i] != model->number || model->expected[i] || may_be_extra(model, leaf))
            continue;
        if (promise->config->nested && !is_of_text_model(model, leaf))
            continue;
        if (!ts_check_layer_place(leaf, &extra.layer, &extra.start, &extra.end)) {
            extra.layer = UINT64_MAX;
            extra.start = extra.end = strlen(leaf);
        } else if (extra.layer >= promise->layers) {
            if (extra.layer - promise->layers >= promise->extra_layers)
                beyond[(*beyond_count)++] = extra.layer;
            continue;
        }
        extras[used++] = extra;
    }
    return used;
}

/* The first of each kind stays, in the order of the file. */
static size_t join_kinds(struct extra *extras, size_t count)
{
    size_t kinds = 0;
    qsort(extras, count, sizeof *extras, by_template);
    for (size_t i = 0; i < count; i++) {
        if (kinds && same_template(&extras[kinds - 1], &extras[i]))
            extras[kinds - 1].others++;
        else
            extras[kinds++] = extras[i];
    }
    qsort(extras, kinds, sizeof *extras, by_index);
    return kinds;
}

void ts_model_tell_extra(struct ts_model *model)
{
    const size_t total = model->group->count;
    struct extra *extras = calloc(total + 1, sizeof *extras);
    uint64_t *beyond = calloc(total + 1, sizeof *beyond);
    size_t used, beyond_count = 0;
    if (!extras || !beyond) {
        model->checking->failed = true;
        free(extras);
        free(beyond);
        return;
    }
    used = join_kinds(extras, gather_extras(model, extras, beyond, &beyond_count));
    for (size_t i = 0; i < used; i++)
        if (extras[i].others)
            ts_check_add(model->checking, "unexpected-weight", TS_WARNING, extras[i].shown,
                         "config.json (%s) promises no such weight; %zu other layers have it too",
                         model->promise->family, extras[i].others);
        else
            ts_check_add(model->checking, "unexpected-weight", TS_WARNING, extras[i].shown,
                         "config.json (%s) promises no such weight", model->promise->family);
    if (beyond_count)
        tell_layers_beyond(model, beyond, ts_check_sort_unique(beyond, beyond_count), beyond_count);
    free(extras);
    free(beyond);
}
