/* Deciding whether JSON is a dump takes a walk over its beginning: configurations and tokenizers hold numbers too. */
#include "read/json_look.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

#define LOOK_SIZE ((size_t)64 * 1024)

bool ts_json_special_number(const struct ts_json *json, struct ts_number *number)
{
    size_t used = ts_number_scan(json->raw, json->raw_size, false, number);
    return used == json->raw_size && used > 0 && !isfinite(number->value);
}

bool ts_json_holds_objects(const struct ts_json *json)
{
    struct ts_json ahead = *json;
    struct ts_error ignored;
    return ts_json_next(&ahead, &ignored) == TS_OK && ahead.kind == TS_JSON_OBJECT;
}

/* What the bid counts. */
struct look {
    size_t number_bytes; /* inside lists of numbers */
    size_t lists;        /* of numbers */
    size_t scalars;      /* numbers by themselves */
    size_t others;
    bool vetoed;
};

/* Keys of files that hold numbers and are no dumps. */
static bool is_foreign_key(const struct ts_json *json)
{
    static const char *const keys[] = {"architectures", "model_type",   "_class_name",     "_diffusers_version",
                                       "weight_map",    "added_tokens", "tokenizer_class", "transformers_version",
                                       "log_history",   "nbformat"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (ts_json_equals(json, keys[i]))
            return true;
    return false;
}

/* Lists that describe data which lies elsewhere. */
static bool is_geometry_key(const struct ts_json *json)
{
    return ts_json_equals(json, "shape") || ts_json_equals(json, "strides") || ts_json_equals(json, "dims") ||
           ts_json_equals(json, "data_offsets");
}

static bool is_data_key(const struct ts_json *json)
{
    return ts_json_equals(json, "data") || ts_json_equals(json, "values");
}

/* Strings that go with data. */
static bool is_label_key(const struct ts_json *json)
{
    return ts_json_equals(json, "dtype") || ts_json_equals(json, "name");
}

/* Walks a list, the current token, to its end or that of the window. */
static void look_at_list(struct ts_json *json, struct look *look, bool geometry, bool record)
{
    struct ts_error ignored;
    const size_t from = json->offset;
    const unsigned depth = json->depth;
    size_t numbers = 0;
    bool foreign = geometry || record;
    while (json->depth >= depth && ts_json_next(json, &ignored) == TS_OK) {
        struct ts_number number;
        if (json->kind == TS_JSON_NUMBER || json->kind == TS_JSON_TRUE || json->kind == TS_JSON_FALSE)
            numbers++;
        else if (json->kind == TS_JSON_STRING)
            foreign |= !ts_json_special_number(json, &number);
        else if (json->kind == TS_JSON_OBJECT || json->kind == TS_JSON_KEY)
            foreign = true;
    }
    if (!foreign && numbers > 0) {
        look->number_bytes += json->at - from;
        look->lists++;
    } else if (!geometry) {
        look->others++;
    }
}

/* The window ends where the bytes end or LOOK_SIZE does; any other error is no JSON. */
static bool look_at(const char *text, size_t size, struct look *look)
{
    struct ts_json json, key = {0};
    struct ts_error error;
    unsigned items = 0; /* depth of the outermost list of objects around, or 0 */
    ts_error_clear(&error);
    ts_json_init(&json, text, size);
    json.allow_nan = true;
    while (!look->vetoed && ts_json_next(&json, &error) == TS_OK && json.kind != TS_JSON_END) {
        if (json.depth < items)
            items = 0;
        if (json.kind == TS_JSON_KEY) {
            key = json;
            look->vetoed = is_foreign_key(&json);
        } else if (json.kind == TS_JSON_ARRAY && ts_json_holds_objects(&json)) {
            items = items ? items : json.depth;
        } else if (json.kind == TS_JSON_ARRAY) {
            const bool labelled = key.kind == TS_JSON_KEY;
            const bool record = items && !(labelled && is_data_key(&key)); /* a list of anything, not of tensors */
            look_at_list(&json, look, labelled && is_geometry_key(&key), record);
        } else if (json.kind == TS_JSON_NUMBER) {
            look->scalars++;
        } else if (json.kind >= TS_JSON_STRING) {
            look->others += key.kind != TS_JSON_KEY || !is_label_key(&key);
        }
    }
    return error.status == TS_OK || error.offset == size;
}

bool ts_json_is_dump(const char *text, size_t size, const char *name)
{
    struct look look = {0};
    if (size > LOOK_SIZE)
        size = LOOK_SIZE;
    if (ts_ends_with(name, "config.json") || ts_ends_with(name, ".index.json"))
        return false;
    for (size_t i = 0; i < size; i++) { /* cheaper than asking the JSON reader about every binary file */
        if (text[i] == '{' || text[i] == '[')
            break;
        if (!strchr(" \t\r\n", text[i]) || !text[i])
            return false;
    }
    if (size == 0 || !look_at(text, size, &look) || look.vetoed || look.lists == 0)
        return false;
    /* Short lists under long names are few bytes, but then there is nothing else. */
    return look.number_bytes > size / 2 || (look.others == 0 && look.lists > look.scalars);
}
