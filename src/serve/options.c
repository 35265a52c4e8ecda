/* Owns the reading of {"map", "layer_offset", "rtol", "atol", "order", "dims"}. */
#include "serve/options.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

#define MOST_ORDERED 1000000

static enum ts_status take_map(struct ts_json *json, const char *text, struct ts_run_options *options,
                               struct ts_error *error)
{
    size_t start;
    TS_TRY(ts_json_expect(json, TS_JSON_OBJECT, "an object from names of A to names of B", error));
    start = json->offset;
    TS_TRY(ts_json_skip_value(json, error));
    options->map = text + start;
    options->map_size = json->offset + 1 - start;
    return TS_OK;
}

static enum ts_status take_order(struct ts_json *json, struct ts_arena *arena, struct ts_run_options *options,
                                 struct ts_error *error)
{
    size_t room = 0;
    TS_TRY(ts_json_expect(json, TS_JSON_ARRAY, "a list of names in execution order", error));
    options->order_count = 0;
    for (;;) {
        const char *name;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_ARRAY_END)
            return TS_OK;
        if (json->kind != TS_JSON_STRING)
            return ts_fail(error, TS_ERR_USAGE, json->offset, "order must be a list of names");
        TS_TRY(ts_json_copy(json, arena, &name, error));
        if (strchr(name, '\n') || strchr(name, '\r'))
            return ts_fail(error, TS_ERR_USAGE, json->offset, "a name in order holds a line break");
        if (options->order_count == room) {
            const char **more;
            room = room ? 2 * room : 64;
            if (room > MOST_ORDERED || !(more = ts_arena_array(arena, room, sizeof *more)))
                return ts_fail(error, TS_ERR_LIMIT, json->offset, "order has too many names");
            if (options->order_count)
                memcpy(more, options->order, options->order_count * sizeof *more);
            options->order = more;
        }
        options->order[options->order_count++] = name;
    }
}

static enum ts_status take_tolerance(struct ts_json *json, double *value, struct ts_error *error)
{
    TS_TRY(ts_json_expect(json, TS_JSON_NUMBER, "a tolerance", error));
    TS_TRY(ts_json_double(json, value, error));
    if (!(*value >= 0) || isinf(*value))
        return ts_fail(error, TS_ERR_USAGE, json->offset, "rtol and atol are finite and not negative");
    return TS_OK;
}

static enum ts_status take(struct ts_json *json, const char *text, struct ts_arena *arena,
                           struct ts_run_options *options, struct ts_error *error)
{
    struct ts_comparison_options *compare = &options->compare;
    if (ts_json_equals(json, "map"))
        return take_map(json, text, options, error);
    if (ts_json_equals(json, "order"))
        return take_order(json, arena, options, error);
    if (ts_json_equals(json, "layer_offset")) {
        TS_TRY(ts_json_expect(json, TS_JSON_NUMBER, "a whole number", error));
        TS_TRY(ts_json_int64(json, &compare->pair.layer_offset, error));
        if (compare->pair.layer_offset > 1000000 || compare->pair.layer_offset < -1000000)
            return ts_fail(error, TS_ERR_USAGE, json->offset, "layer_offset is out of range");
        compare->pair.layer_offset_given = true;
        return TS_OK;
    }
    if (ts_json_equals(json, "rtol") || ts_json_equals(json, "atol")) {
        bool relative = ts_json_equals(json, "rtol");
        compare->delta.given = compare->fixed_tolerance = true;
        return take_tolerance(json, relative ? &compare->delta.tolerance.rtol : &compare->delta.tolerance.atol, error);
    }
    if (ts_json_equals(json, "dims")) {
        TS_TRY(ts_json_expect(json, TS_JSON_STRING, "a text", error));
        return ts_json_copy(json, arena, &compare->pair.dims, error);
    }
    return ts_fail(error, TS_ERR_USAGE, json->offset,
                   "\"%.*s\" is not an option; there are map, layer_offset, rtol, atol, order and dims",
                   (int)(json->raw_size < 60 ? json->raw_size : 60), json->raw);
}

enum ts_status ts_run_options_parse(const char *text, size_t size, struct ts_arena *arena,
                                    struct ts_run_options *options, struct ts_error *error)
{
    struct ts_json json;
    *options = (struct ts_run_options){.compare.pair.by_content = true};
    if (!size)
        return TS_OK;
    ts_json_init(&json, text, size);
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            return ts_json_expect(&json, TS_JSON_END, "the end of the body", error);
        TS_TRY(take(&json, text, arena, options, error));
    }
}
