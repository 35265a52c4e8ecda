#include "cli/summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/command.h"
#include "tensor/layer.h"

static void add_to(struct total *total, const struct ts_tensor *tensor)
{
    total->tensors++;
    total->elements += tensor->count;
    total->bytes += tensor->bytes;
}

static int by_bytes(const void *a, const void *b)
{
    const struct total *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

static int by_layer(const void *a, const void *b)
{
    const struct total *left = a, *right = b;
    return left->layer < right->layer ? -1 : left->layer > right->layer;
}

static struct total *total_of_type(struct totals *totals, const char *name)
{
    for (size_t i = 0; i < totals->type_count; i++)
        if (strcmp(totals->types[i].name, name) == 0)
            return &totals->types[i];
    totals->types[totals->type_count] = (struct total){.name = name};
    return &totals->types[totals->type_count++];
}

/* Names come layer by layer, so the last one used is nearly always the one wanted. */
static struct total *total_of_layer(struct totals *totals, uint64_t layer)
{
    for (size_t i = totals->layer_count; i-- > 0;)
        if (totals->layers[i].layer == layer)
            return &totals->layers[i];
    totals->layers[totals->layer_count] = (struct total){.layer = layer};
    return &totals->layers[totals->layer_count++];
}

/* More distinct layers than this are no layers; they all count as outside. */
#define MAX_LAYERS 4096

enum ts_status totals_of(struct ts_tensor *const *tensors, size_t count, struct totals *totals, struct ts_error *error)
{
    *totals = (struct totals){0};
    totals->types = calloc(TS_TYPE_COUNT + 256, sizeof *totals->types);
    totals->layers = calloc(MAX_LAYERS + 1, sizeof *totals->layers);
    if (!totals->types || !totals->layers) {
        totals_release(totals);
        return ts_fail_memory(error);
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t layer;
        if (!ts_layer_of(tensors[i]->name, &layer) || totals->layer_count >= MAX_LAYERS)
            layer = UINT64_MAX;
        add_to(&totals->all, tensors[i]);
        if (totals->type_count < TS_TYPE_COUNT + 255)
            add_to(total_of_type(totals, ts_tensor_type_name(tensors[i])), tensors[i]);
        add_to(total_of_layer(totals, layer), tensors[i]);
    }
    qsort(totals->types, totals->type_count, sizeof *totals->types, by_bytes);
    qsort(totals->layers, totals->layer_count, sizeof *totals->layers, by_layer);
    return TS_OK;
}

void totals_release(struct totals *totals)
{
    free(totals->types);
    free(totals->layers);
    *totals = (struct totals){0};
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void put_total(struct ts_buffer *out, const struct total *total)
{
    char bytes[16], params[16], tensors[32];
    ts_buffer_printf(out, "%s tensor%s, %s element%s, %s", ts_human_count(total->tensors, tensors),
                     plural(total->tensors), ts_human_params(total->elements, params), plural(total->elements),
                     ts_human_bytes(total->bytes, bytes));
}

static bool same_size(const struct total *a, const struct total *b)
{
    return a->tensors == b->tensors && a->elements == b->elements && a->bytes == b->bytes && a->layer != UINT64_MAX &&
           b->layer != UINT64_MAX;
}

void put_totals(struct ts_buffer *out, const struct totals *totals)
{
    if (totals->type_count > 1 || totals->layer_count > 1)
        ts_buffer_byte(out, '\n');
    if (totals->type_count > 1)
        for (size_t i = 0; i < totals->type_count; i++) {
            ts_buffer_printf(out, "  %-12s ", totals->types[i].name);
            put_total(out, &totals->types[i]);
            ts_buffer_byte(out, '\n');
        }
    if (totals->layer_count < 2)
        return;
    /* runs of layers of one size take one line */
    for (size_t i = 0, last; i < totals->layer_count; i = last + 1) {
        char label[48];
        last = i;
        while (last + 1 < totals->layer_count && same_size(&totals->layers[i], &totals->layers[last + 1]) &&
               totals->layers[last + 1].layer == totals->layers[last].layer + 1)
            last++;
        if (totals->layers[i].layer == UINT64_MAX)
            snprintf(label, sizeof label, "no layer");
        else if (last > i)
            snprintf(label, sizeof label, "layers %" PRIu64 "-%" PRIu64, totals->layers[i].layer,
                     totals->layers[last].layer);
        else
            snprintf(label, sizeof label, "layer %" PRIu64, totals->layers[i].layer);
        ts_buffer_printf(out, "  %-12s ", label);
        put_total(out, &totals->layers[i]);
        ts_buffer_string(out, last > i ? " each\n" : "\n");
    }
}

static void total_json(struct ts_json_writer *json, const struct total *total)
{
    ts_json_key(json, "tensors");
    ts_json_uint(json, total->tensors);
    ts_json_key(json, "elements");
    ts_json_uint(json, total->elements);
    ts_json_key(json, "bytes");
    ts_json_uint(json, total->bytes);
}

void totals_json(struct ts_json_writer *json, const struct totals *totals)
{
    ts_json_key(json, "totals");
    ts_json_begin_object(json);
    total_json(json, &totals->all);
    ts_json_key(json, "by_type");
    ts_json_begin_array(json);
    for (size_t i = 0; i < totals->type_count; i++) {
        ts_json_begin_object(json);
        ts_json_key(json, "dtype");
        ts_json_string(json, totals->types[i].name);
        total_json(json, &totals->types[i]);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "by_layer");
    ts_json_begin_array(json);
    for (size_t i = 0; i < totals->layer_count; i++) {
        ts_json_begin_object(json);
        ts_json_key(json, "layer");
        if (totals->layers[i].layer == UINT64_MAX)
            ts_json_null(json);
        else
            ts_json_uint(json, totals->layers[i].layer);
        total_json(json, &totals->layers[i]);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_end_object(json);
}

static const char *const config_keys[] = {"model_type",
                                          "architectures",
                                          "num_hidden_layers",
                                          "n_layer",
                                          "hidden_size",
                                          "n_embd",
                                          "intermediate_size",
                                          "num_attention_heads",
                                          "n_head",
                                          "num_key_value_heads",
                                          "head_dim",
                                          "vocab_size",
                                          "num_experts",
                                          "num_local_experts",
                                          "n_routed_experts",
                                          "num_experts_per_tok",
                                          "sliding_window",
                                          "rope_theta",
                                          "tie_word_embeddings",
                                          "dtype",
                                          "torch_dtype"};

/* Calls put for each known key of the top level and of text_config, with the raw JSON of its value. */
static void walk_config(const struct ts_bundle *bundle,
                        void (*put)(void *to, const char *key, const char *raw, size_t size), void *to)
{
    struct ts_json json;
    struct ts_error ignored;
    if (!bundle->config)
        return;
    ts_json_init(&json, bundle->config->data, (size_t)bundle->config->size);
    if (ts_json_next(&json, &ignored) != TS_OK || json.kind != TS_JSON_OBJECT)
        return;
    while (ts_json_next(&json, &ignored) == TS_OK && json.kind != TS_JSON_END) {
        bool known = false;
        if (json.kind != TS_JSON_KEY)
            continue;
        if (ts_json_equals(&json, "text_config")) { /* walk into it: its keys are the model's */
            if (ts_json_next(&json, &ignored) != TS_OK)
                return;
            continue;
        }
        for (size_t i = 0; i < sizeof config_keys / sizeof *config_keys && !known; i++)
            if (ts_json_equals(&json, config_keys[i])) {
                const char *start;
                known = true;
                if (ts_json_next(&json, &ignored) != TS_OK)
                    return;
                start = json.text + json.offset;
                if (ts_json_skip_value(&json, &ignored) != TS_OK)
                    return;
                put(to, config_keys[i], start, (size_t)(json.text + json.at - start));
            }
        if (!known && ts_json_skip_value(&json, &ignored) != TS_OK)
            return;
    }
}

static void put_config_line(void *to, const char *key, const char *raw, size_t size)
{
    struct ts_buffer *line = to;
    ts_buffer_printf(line, "%s%s ", line->size ? ", " : "", key);
    for (size_t i = 0; i < size && i < 200; i++) /* arrays come pretty-printed over lines */
        if ((unsigned char)raw[i] > 32)
            ts_buffer_byte(line, raw[i]);
}

void put_config(struct ts_buffer *out, const struct ts_bundle *bundle)
{
    struct ts_buffer line;
    ts_buffer_init(&line, 65536);
    walk_config(bundle, put_config_line, &line);
    if (line.size) {
        ts_buffer_string(out, "config.json: ");
        put_wrapped(out, line.data, 13, 2);
        ts_buffer_byte(out, '\n');
    }
    ts_buffer_release(&line);
}

static void config_json_entry(void *to, const char *key, const char *raw, size_t size)
{
    struct ts_json_writer *json = to;
    char number[64];
    ts_json_key(json, key);
    if (size >= 2 && raw[0] == '"') {
        ts_json_string_sized(json, raw + 1, size - 2);
    } else if (size < sizeof number && (raw[0] == '-' || (raw[0] >= '0' && raw[0] <= '9'))) {
        memcpy(number, raw, size);
        number[size] = '\0';
        ts_json_number(json, strtod(number, NULL));
    } else if (raw[0] == 't' || raw[0] == 'f') {
        ts_json_bool(json, raw[0] == 't');
    } else if (raw[0] == 'n') {
        ts_json_null(json);
    } else { /* lists, as their text */
        ts_json_string_sized(json, raw, size);
    }
}

void config_json(struct ts_json_writer *json, const struct ts_bundle *bundle)
{
    ts_json_key(json, "config");
    ts_json_begin_object(json);
    walk_config(bundle, config_json_entry, json);
    ts_json_end_object(json);
}
