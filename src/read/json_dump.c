/* The reader of JSON dumps: an object of name -> list of numbers, nested for a shape; of name -> {"shape", "dtype",
 * "data"}; objects in objects, whose names are joined with points; a list of such objects; or one list of numbers.
 *
 * Dumps are cut off by full disks and by killed processes, so whatever is complete before the end stays, and the list
 * that was being written when it happened stays as a sample. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "read/json_look.h"
#include "read/order.h"
#include "read/readers.h"
#include "read/type_name.h"
#include "read/values.h"

/* A brace and lists of numbers under keys: more than what text offers for the same bytes, less than any magic. */
#define BID_DUMP 24
/* Objects in objects; a layer's modules are seldom deeper. */
#define MAX_GROUPS 8
/* Longer names are refused. */
#define MAX_NAME ((size_t)4096)
/* Lists below a quarter of it share a source; see values.h. */
#define SHARED_ROOM ((uint64_t)256 * 1024)

struct reading {
    struct ts_json json;
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_values *values;
    struct ts_buffer name; /* of the value being read */
    size_t start;          /* tensors in the bundle before this file */
    bool cut;              /* the text has ended early; everything returns */
    bool cut_noted;        /* and a finding says inside which tensor */
};

/* {"shape": ..., "dtype": ..., "data": [...]} as found by looking ahead. */
struct description {
    bool has_data, has_shape, bad_shape;
    struct ts_json data; /* stands on the key of the list */
    uint64_t shape[TS_MAX_RANK];
    unsigned rank;
    enum ts_type type; /* TS_VALUES_INFER: not said, or not known */
    const char *dtype; /* as written, or NULL */
    const char *name;  /* or NULL */
};

static bool is_cut(const struct reading *reading, const struct ts_error *error)
{
    return error->status == TS_ERR_FORMAT && error->offset == reading->json.size;
}

/* Moves to the next token. At an early end, *cut is set instead of failing. */
static enum ts_status next(struct reading *reading, struct ts_error *error)
{
    if (ts_json_next(&reading->json, error) == TS_OK)
        return TS_OK;
    if (!is_cut(reading, error))
        return error->status;
    ts_error_clear(error);
    reading->cut = true;
    return TS_OK;
}

static enum ts_status leave(struct reading *reading, unsigned depth, struct ts_error *error)
{
    while (!reading->cut && reading->json.depth >= depth)
        TS_TRY(next(reading, error));
    return TS_OK;
}

/* Steps over the value of the key that is the current token. */
static enum ts_status skip_value(struct reading *reading, struct ts_error *error)
{
    TS_TRY(next(reading, error));
    if (!reading->cut && (reading->json.kind == TS_JSON_OBJECT || reading->json.kind == TS_JSON_ARRAY))
        return leave(reading, reading->json.depth, error);
    return TS_OK;
}

static const char *current_name(const struct reading *reading)
{
    return reading->name.size ? reading->name.data : "";
}

static enum ts_status skip_named(struct reading *reading, bool harmless, const char *reason, struct ts_error *error)
{
    char place[1024];
    const char *name = current_name(reading);
    snprintf(place, sizeof place, "%s%s%s", reading->input->member, name[0] ? ":" : "", name);
    return ts_bundle_skip(reading->bundle, place, harmless, reason, error);
}

struct list {
    struct ts_nest nest;
    const char *refused; /* why it is no tensor */
    bool text;           /* the reason is a string inside */
    uint64_t nulls;
};

static enum ts_status add_leaf(struct reading *reading, struct list *list, struct ts_error *error)
{
    struct ts_json *json = &reading->json;
    struct ts_number number;
    switch (json->kind) {
    case TS_JSON_NUMBER:
        if (json->at == json->size) { /* "1.2" may have been "1.25e-7" */
            reading->cut = true;
            return TS_OK;
        }
        ts_number_scan(json->raw, json->raw_size, reading->values->single, &number);
        ts_values_passed(reading->values, json->raw);
        break;
    case TS_JSON_TRUE:
    case TS_JSON_FALSE:
        ts_nest_value(&list->nest);
        if (!reading->values->declared && reading->values->type != TS_VALUES_INFER &&
            reading->values->type != TS_BOOL) {
            list->refused = "true and false stand among its numbers";
            return TS_OK;
        }
        return ts_values_add_bool(reading->values, json->kind == TS_JSON_TRUE, error);
    case TS_JSON_NULL:
        number = (struct ts_number){.value = (double)NAN};
        list->nulls++;
        break;
    default:
        if (json->kind == TS_JSON_STRING && ts_json_special_number(json, &number))
            break;
        list->refused = json->kind == TS_JSON_STRING ? "it is a list with text in it, not of numbers alone"
                                                     : "its lists hold objects beside numbers";
        list->text = json->kind == TS_JSON_STRING;
        return TS_OK;
    }
    ts_nest_value(&list->nest);
    if (reading->values->type == TS_BOOL && !reading->values->declared) {
        list->refused = "true and false stand among its numbers";
        return TS_OK;
    }
    return ts_values_add(reading->values, &number, error);
}

/* Reads from the '[' that is the current token to its end, or to the end of the text. */
static enum ts_status read_numbers(struct reading *reading, struct list *list, struct ts_error *error)
{
    struct ts_json *json = &reading->json;
    const unsigned depth = json->depth;
    *list = (struct list){0};
    ts_nest_open(&list->nest);
    while (!list->refused) {
        TS_TRY(next(reading, error));
        if (reading->cut)
            return TS_OK;
        if (json->kind == TS_JSON_ARRAY)
            ts_nest_open(&list->nest);
        else if (json->kind == TS_JSON_ARRAY_END)
            ts_nest_close(&list->nest);
        else
            TS_TRY(add_leaf(reading, list, error));
        if (list->nest.deep)
            list->refused = "its lists are nested deeper than this program goes";
        else if (list->nest.ragged)
            list->refused = "its lists differ in length, so they have no shape";
        if (reading->cut || list->nest.depth == 0)
            return TS_OK;
    }
    return leave(reading, depth, error);
}

static enum ts_status note_cut(struct reading *reading, const char *name, uint64_t count, struct ts_error *error)
{
    reading->cut_noted = true;
    return ts_bundle_find(reading->bundle, name, error,
                          "the JSON ends at byte %" PRIu64 ", after %" PRIu64 " of its values: the file was cut off",
                          reading->input->source->size, count);
}

static char *shape_text(struct ts_arena *arena, const uint64_t *shape, unsigned rank)
{
    struct ts_buffer text;
    char *copy;
    ts_buffer_init(&text, MAX_NAME);
    ts_buffer_byte(&text, '[');
    for (unsigned i = 0; i < rank; i++)
        ts_buffer_printf(&text, "%s%" PRIu64, i ? "," : "", shape[i]);
    ts_buffer_byte(&text, ']');
    copy = text.failed ? NULL : ts_arena_copy(arena, text.data, text.size);
    ts_buffer_release(&text);
    return copy;
}

/* Attributes and findings of a tensor whose values are not what its description says. */
static enum ts_status note_difference(struct reading *reading, const struct description *description,
                                      struct ts_tensor *tensor, struct ts_error *error)
{
    struct ts_bundle *bundle = reading->bundle;
    uint64_t total = 0;
    char sample[96];
    const bool known = description && description->has_shape && !description->bad_shape &&
                       ts_shape_product(description->shape, description->rank, &total);
    if (known && total != tensor->count) {
        const char *text = shape_text(&bundle->arena, description->shape, description->rank);
        if (!text)
            return ts_fail_memory(error);
        TS_TRY(ts_bundle_attribute(bundle, tensor, "declared shape", text, error));
        if (tensor->count > total)
            TS_TRY(ts_bundle_find(bundle, tensor->name, error,
                                  "has %" PRIu64 " values, but its shape has room for %" PRIu64 ": read as one row",
                                  tensor->count, total));
        else if (!reading->cut)
            TS_TRY(ts_bundle_find(bundle, tensor->name, error, "has %" PRIu64 " of the %" PRIu64 " values of its shape",
                                  tensor->count, total));
        tensor->sampled = tensor->count < total;
    }
    if (reading->cut)
        tensor->sampled = true;
    if (!tensor->sampled)
        return TS_OK;
    if (known)
        snprintf(sample, sizeof sample, "first %" PRIu64 " of %" PRIu64, tensor->count, total);
    else
        snprintf(sample, sizeof sample, "first %" PRIu64 " of an unknown number", tensor->count);
    return ts_bundle_attribute(bundle, tensor, "sample", sample, error);
}

/* The list that is the current token becomes a tensor, or a skip. description may be NULL. */
static enum ts_status read_list(struct reading *reading, const struct description *description, const char *name,
                                struct ts_error *error)
{
    struct ts_values *values = reading->values;
    struct ts_tensor *tensor;
    struct list list;
    const bool shaped = description && description->has_shape && !description->bad_shape;
    uint64_t product;
    ts_values_begin(values, description ? description->type : TS_VALUES_INFER);
    TS_TRY(read_numbers(reading, &list, error));
    if (list.refused) {
        ts_values_cancel(values);
        return skip_named(reading, list.text && !description, list.refused, error);
    }
    if (reading->cut && values->count == 0)
        return note_cut(reading, name, 0, error);
    if (shaped && ts_shape_product(description->shape, description->rank, &product) && product == values->count)
        TS_TRY(ts_values_tensor(values, reading->bundle, name, description->shape, description->rank, &tensor, error));
    else
        TS_TRY(ts_values_tensor(values, reading->bundle, name, shaped || reading->cut ? NULL : list.nest.shape,
                                list.nest.rank, &tensor, error));
    if (description && description->dtype)
        TS_TRY(ts_bundle_attribute(reading->bundle, tensor, "dtype", description->dtype, error));
    if (values->misfit)
        TS_TRY(ts_bundle_find(reading->bundle, name, error,
                              "dtype says %.80s, but not all of its values are such: read as f64",
                              description ? description->dtype : ""));
    if (list.nulls)
        TS_TRY(ts_bundle_find(reading->bundle, name, error, "%" PRIu64 " of its values are null: read as nan",
                              list.nulls));
    if (reading->cut)
        TS_TRY(note_cut(reading, name, tensor->count, error));
    return note_difference(reading, description, tensor, error);
}

/* Reads a list of whole numbers as a shape; the current token is its '['. */
static enum ts_status read_shape(struct ts_json *json, struct description *description, struct ts_error *error)
{
    const unsigned depth = json->depth;
    description->has_shape = true;
    for (;;) {
        struct ts_error ignored;
        TS_TRY(ts_json_next(json, error));
        if (json->depth < depth)
            return TS_OK;
        if (json->kind != TS_JSON_NUMBER || description->rank == TS_MAX_RANK ||
            ts_json_uint64(json, &description->shape[description->rank], &ignored) != TS_OK)
            description->bad_shape = true;
        else
            description->rank++;
    }
}

/* Looks at the object that is the current token of `json` without moving the reader: does it describe one tensor? A
 * group is recognized at its first list or object, so that groups in groups are not walked over and over. */
static bool looks_described(struct reading *reading, struct ts_json json, struct description *description)
{
    struct ts_arena *arena = &reading->bundle->arena;
    struct ts_error ignored;
    bool swapped;
    *description = (struct description){.type = TS_VALUES_INFER};
    while (ts_json_next(&json, &ignored) == TS_OK && json.kind == TS_JSON_KEY) {
        const struct ts_json key = json;
        if (ts_json_next(&json, &ignored) != TS_OK)
            break;
        if (ts_json_equals(&key, "shape") && json.kind == TS_JSON_ARRAY) {
            if (read_shape(&json, description, &ignored) != TS_OK)
                break;
        } else if ((ts_json_equals(&key, "data") || ts_json_equals(&key, "values")) && json.kind == TS_JSON_ARRAY &&
                   !description->has_data) {
            description->has_data = true;
            description->data = key;
            if (ts_json_skip_value(&json, &ignored) != TS_OK)
                break;
        } else if (json.kind == TS_JSON_STRING && ts_json_equals(&key, "dtype")) {
            if (ts_json_copy(&json, arena, &description->dtype, &ignored) != TS_OK)
                break;
            if (!ts_type_from_name(description->dtype, strlen(description->dtype), &description->type, &swapped))
                description->type = TS_VALUES_INFER;
        } else if (json.kind == TS_JSON_STRING && ts_json_equals(&key, "name")) {
            if (ts_json_copy(&json, arena, &description->name, &ignored) != TS_OK)
                break;
        } else if (json.kind == TS_JSON_OBJECT || json.kind == TS_JSON_ARRAY) {
            return false;
        }
    }
    return description->has_data && (description->has_shape || description->dtype);
}

static enum ts_status read_group(struct reading *reading, unsigned groups, struct ts_error *error);
static enum ts_status read_items(struct reading *reading, unsigned groups, struct ts_error *error);

/* The object that is the current token: one described tensor, or a group of more. */
static enum ts_status read_object(struct reading *reading, unsigned groups, struct ts_error *error)
{
    const unsigned depth = reading->json.depth;
    struct description description;
    if (looks_described(reading, reading->json, &description)) {
        const char *name = groups == 0 && description.name ? description.name : current_name(reading);
        reading->json = description.data;
        TS_TRY(next(reading, error));
        TS_TRY(read_list(reading, &description, name, error));
        return leave(reading, depth, error);
    }
    if (groups < MAX_GROUPS)
        return read_group(reading, groups + 1, error);
    TS_TRY(skip_named(reading, false, "objects are nested deeper than this program goes", error));
    return leave(reading, depth, error);
}

static enum ts_status read_scalar(struct reading *reading, struct ts_error *error)
{
    struct ts_json *json = &reading->json;
    struct ts_tensor *tensor;
    struct ts_number number;
    const char *text = json->kind == TS_JSON_TRUE ? "true" : "false";
    const uint64_t shape[1] = {0};
    if (json->kind == TS_JSON_NULL)
        return TS_OK;
    if (json->kind == TS_JSON_NUMBER) {
        if (json->at == json->size) {
            reading->cut = true;
            return note_cut(reading, current_name(reading), 0, error);
        }
        ts_values_begin(reading->values, TS_VALUES_INFER);
        ts_number_scan(json->raw, json->raw_size, false, &number);
        TS_TRY(ts_values_add(reading->values, &number, error));
        return ts_values_tensor(reading->values, reading->bundle, current_name(reading), shape, 0, &tensor, error);
    }
    if (json->kind == TS_JSON_STRING)
        TS_TRY(ts_json_copy(json, &reading->bundle->arena, &text, error));
    return ts_bundle_meta(reading->bundle, current_name(reading), text, error);
}

/* The value that is the current token, under the current name. */
static enum ts_status read_value(struct reading *reading, unsigned groups, struct ts_error *error)
{
    switch (reading->json.kind) {
    case TS_JSON_OBJECT:
        return read_object(reading, groups, error);
    case TS_JSON_ARRAY:
        if (ts_json_holds_objects(&reading->json))
            return read_items(reading, groups + 1, error);
        return read_list(reading, NULL, current_name(reading), error);
    default:
        return read_scalar(reading, error);
    }
}

/* Appends ".piece" to the name; the length to go back to is the caller's. */
static enum ts_status extend_name(struct reading *reading, const char *piece, size_t size, struct ts_error *error)
{
    if (reading->name.size)
        ts_buffer_byte(&reading->name, '.');
    ts_buffer_append(&reading->name, piece, size);
    if (reading->name.failed)
        return ts_fail(error, TS_ERR_LIMIT, reading->json.offset, "a name is longer than %zu bytes", MAX_NAME);
    return TS_OK;
}

static void shorten_name(struct reading *reading, size_t length)
{
    if (reading->name.data) {
        reading->name.size = length;
        reading->name.data[length] = '\0';
    }
}

static enum ts_status read_group(struct reading *reading, unsigned groups, struct ts_error *error)
{
    const size_t length = reading->name.size;
    for (;;) {
        struct ts_error why;
        const char *key;
        bool wrapper;
        ts_error_clear(&why);
        TS_TRY(next(reading, error));
        if (reading->cut || reading->json.kind == TS_JSON_OBJECT_END)
            return TS_OK;
        if (ts_json_copy(&reading->json, &reading->bundle->arena, &key, &why) != TS_OK ||
            reading->name.size + strlen(key) + 1 > MAX_NAME) {
            if (why.status == TS_OK)
                ts_fail(&why, TS_ERR_LIMIT, reading->json.offset, "its name is longer than %zu bytes", MAX_NAME);
            TS_TRY(ts_bundle_skip_error(reading->bundle, reading->input->member, current_name(reading), &why, error));
            TS_TRY(skip_value(reading, error));
            continue;
        }
        TS_TRY(next(reading, error));
        /* {"tensors": {...}}: the word says nothing about the tensors in it. */
        wrapper = !reading->cut && groups == 1 && strcmp(key, "tensors") == 0 &&
                  (reading->json.kind == TS_JSON_OBJECT || ts_json_holds_objects(&reading->json));
        if (!wrapper)
            TS_TRY(extend_name(reading, key, strlen(key), error));
        if (reading->cut)
            return note_cut(reading, current_name(reading), 0, error);
        TS_TRY(read_value(reading, groups, error));
        shorten_name(reading, length);
        if (reading->cut)
            return TS_OK;
    }
}

/* A list of objects: each is named by its "name", or by its position. */
static enum ts_status read_items(struct reading *reading, unsigned groups, struct ts_error *error)
{
    const size_t length = reading->name.size;
    if (groups > MAX_GROUPS) {
        TS_TRY(skip_named(reading, false, "objects are nested deeper than this program goes", error));
        return leave(reading, reading->json.depth, error);
    }
    for (uint64_t index = 0;; index++) {
        struct description description;
        char number[24];
        TS_TRY(next(reading, error));
        if (reading->cut || reading->json.kind == TS_JSON_ARRAY_END)
            return TS_OK;
        snprintf(number, sizeof number, "%" PRIu64, index);
        if (reading->json.kind == TS_JSON_OBJECT && looks_described(reading, reading->json, &description) &&
            description.name)
            TS_TRY(extend_name(reading, description.name, strlen(description.name), error));
        else
            TS_TRY(extend_name(reading, number, strlen(number), error));
        TS_TRY(read_value(reading, groups, error));
        shorten_name(reading, length);
        if (reading->cut)
            return TS_OK;
    }
}

static enum ts_status read_top(struct reading *reading, struct ts_error *error)
{
    TS_TRY(next(reading, error));
    if (!reading->cut)
        TS_TRY(read_value(reading, 0, error));
    if (!reading->cut)
        return ts_json_expect(&reading->json, TS_JSON_END, "nothing but white space after the value", error);
    if (reading->bundle->count == reading->start)
        return ts_fail(error, TS_ERR_FORMAT, reading->json.size,
                       "the JSON ends before the first number: it was cut off");
    if (!reading->cut_noted) /* between two tensors */
        return ts_bundle_find(reading->bundle, NULL, error,
                              "\"%.200s\" ends at byte %" PRIu64 ", behind \"%.200s\": the file was cut off",
                              reading->input->member, reading->input->source->size,
                              reading->bundle->tensors[reading->bundle->count - 1]->name);
    return TS_OK;
}

static enum ts_status json_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct reading reading = {.input = input, .bundle = bundle, .start = bundle->count};
    const struct ts_source *source = input->source;
    enum ts_status status;
    size_t size;
    const char *text = ts_source_text(source, &size);
    ts_json_init(&reading.json, text, size);
    reading.json.allow_nan = true;
    ts_buffer_init(&reading.name, MAX_NAME);
    reading.values = ts_values_new(input->spool, source->path);
    if (!reading.values)
        return ts_fail_memory(error);
    reading.values->text = source;
    /* Two characters make a number of eight bytes, so this is room for all of a small file. */
    reading.values->shared = source->size < SHARED_ROOM / 4 ? (source->size * 4 + 63) / 64 * 64 : SHARED_ROOM;
    status = read_top(&reading, error);
    ts_values_free(reading.values);
    ts_buffer_release(&reading.name);
    if (status != TS_OK) {
        if (error->offset != TS_NO_OFFSET)
            error->offset += (uint64_t)(source->size - size);
        return status;
    }
    if (bundle->count - reading.start > 1 && ts_order_is_sorted(bundle, reading.start)) {
        ts_order_natural(bundle, reading.start);
        bundle->order = "natural order of names";
    }
    return TS_OK;
}

static unsigned json_bid(const struct ts_input *input)
{
    size_t size;
    const char *text = ts_source_text(input->source, &size);
    return ts_json_is_dump(text, size, input->member) ? BID_DUMP : 0;
}

const struct ts_reader ts_reader_json_dump = {
    .name = "json",
    .summary = "JSON objects of names and lists of numbers, also cut off",
    .bid = json_bid,
    .read = json_read,
};
