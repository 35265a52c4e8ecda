/* Polygraphy's JSON: what `polygraphy run --save-outputs` and --save-inputs write.
 *
 *     {"lst": [["onnxrt-runner-N0", [{"outputs": {"logits": {"values": {"array": BASE64, ...}}}, "runtime": ...}]]]}
 *     [{"input_ids": {"array": BASE64, "polygraphy_class": "ndarray"}}]
 *
 * BASE64 is an .npy file, in older versions an .npz file with one array, for torch tensors what torch.save wrote.
 * Tensors are named by their key; those of further iterations and runners get #2, #3 ... */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "read/call_name.h"
#include "read/readers.h"
#include "read/values.h"

#define LOOK_SIZE ((size_t)256 * 1024)
/* An .npy file begins with \x93NUMPY, which is this in base 64. */
static const char numpy_start[] = "k05VTVBZ";

struct graphy {
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_json json;
    const char *
        *names; /* the key that each open object or list stands under; its parent's for words that say nothing */
};

static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* The string that is the current token, decoded into the spool. */
static enum ts_status decode(struct graphy *graphy, struct ts_source **source, struct ts_error *error)
{
    const struct ts_json *json = &graphy->json;
    uint64_t room = json->raw_size / 4 * 3 + 3, size = 0;
    uint32_t held = 0;
    unsigned bits = 0;
    uint8_t *data;
    bool padded = false;
    TS_TRY(ts_spool_reserve(graphy->input->spool, room, &data, error));
    for (size_t i = 0; i < json->raw_size; i++) {
        const char c = json->raw[i];
        const int digit = digit_of(c);
        if (c == '\\' && i + 1 < json->raw_size && json->raw[i + 1] == '/')
            continue;
        padded |= c == '=';
        if (digit < 0 || padded) {
            if (c == '=')
                continue;
            ts_spool_unreserve(graphy->input->spool, data, room);
            return ts_fail(error, TS_ERR_FORMAT, json->offset + 1 + i,
                           "expected base 64, found a byte that is none of its digits");
        }
        held = held << 6 | (uint32_t)digit;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            data[size++] = (uint8_t)(held >> bits);
        }
    }
    return ts_spool_source(graphy->input->spool, data, size, graphy->input->source->path, source, error);
}

/* Only these kinds are stored so: whatever else the bytes look like is not asked. */
static enum ts_status read_array(struct graphy *graphy, struct ts_source *source, struct ts_error *error)
{
    struct ts_bundle *bundle = graphy->bundle;
    const char *member = graphy->input->member;
    const size_t start = bundle->count;
    struct ts_error ignored;
    if (source->size >= 6 && memcmp(source->data, "\x93NUMPY", 6) == 0)
        return ts_read_source(graphy->input, &ts_reader_npy, source, member, bundle, error);
    if (!ts_zip_is(source))
        return ts_fail(error, TS_ERR_FORMAT, graphy->json.offset,
                       "the array is neither an .npy, an .npz nor a torch file");
    ts_error_clear(&ignored);
    if (ts_read_source(graphy->input, &ts_reader_npz, source, member, bundle, &ignored) == TS_OK &&
        bundle->count > start)
        return TS_OK;
    bundle->count = start;
    return ts_read_source(graphy->input, &ts_reader_torch, source, member, bundle, error);
}

/* "array": the current token is its string. */
static enum ts_status add_array(struct graphy *graphy, struct ts_error *error)
{
    struct ts_bundle *bundle = graphy->bundle;
    const size_t start = bundle->count, findings = bundle->finding_count, skips = bundle->skip_count,
                 metas = bundle->meta_count;
    const char *name = graphy->names[graphy->json.depth] ? graphy->names[graphy->json.depth] : "";
    const char *order = bundle->order;
    struct ts_source *source = NULL;
    struct ts_error why;
    enum ts_status status;
    ts_error_clear(&why);
    status = decode(graphy, &source, &why);
    if (status == TS_OK)
        status = read_array(graphy, source, &why);
    ts_source_release(source);
    bundle->order = order;
    if (status == TS_OK)
        return ts_call_rename(bundle, start, name, NULL, error);
    if (status == TS_ERR_MEMORY || status == TS_ERR_CANCELLED || status == TS_ERR_LIMIT) {
        *error = why;
        return status;
    }
    bundle->count = start;
    bundle->finding_count = findings;
    bundle->skip_count = skips;
    bundle->meta_count = metas;
    return ts_bundle_skip_error(bundle, graphy->input->member, name, &why, error);
}

static bool says_nothing(const struct ts_json *key)
{
    return ts_json_equals(key, "lst") || ts_json_equals(key, "outputs") || ts_json_equals(key, "values") ||
           ts_json_equals(key, "dct");
}

static enum ts_status walk(struct graphy *graphy, struct ts_error *error)
{
    struct ts_json *json = &graphy->json, key = {0};
    bool keyed = false;
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        switch (json->kind) {
        case TS_JSON_END:
            return TS_OK;
        case TS_JSON_KEY:
            key = *json;
            keyed = true;
            continue;
        case TS_JSON_OBJECT:
        case TS_JSON_ARRAY:
            graphy->names[json->depth] = graphy->names[json->depth - 1];
            if (keyed && !says_nothing(&key))
                TS_TRY(ts_json_copy(&key, &graphy->bundle->arena, &graphy->names[json->depth], error));
            break;
        case TS_JSON_STRING:
            if (keyed && ts_json_equals(&key, "array"))
                TS_TRY(add_array(graphy, error));
            break;
        default:
            break;
        }
        keyed = false;
    }
}

static enum ts_status graphy_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct graphy graphy = {.input = input, .bundle = bundle};
    const size_t start = bundle->count;
    enum ts_status status;
    size_t size;
    const char *text = ts_source_text(input->source, &size);
    ts_json_init(&graphy.json, text, size);
    graphy.json.allow_nan = true;
    graphy.names = calloc(TS_JSON_MAX_DEPTH + 2, sizeof *graphy.names);
    status = graphy.names ? walk(&graphy, error) : ts_fail_memory(error);
    free(graphy.names);
    if (status != TS_OK) {
        if (error->offset != TS_NO_OFFSET)
            error->offset += input->source->size - size;
        return status;
    }
    bundle->order = "order of the file";
    return ts_call_number(bundle, start, error);
}

/* JSON with "array": and the base 64 of an .npy file in its first bytes. */
static unsigned graphy_bid(const struct ts_input *input)
{
    size_t size;
    const char *text = ts_source_text(input->source, &size), *found;
    if (size > LOOK_SIZE)
        size = LOOK_SIZE;
    if (size == 0 || (text[0] != '{' && text[0] != '['))
        return 0;
    found = memmem(text, size, numpy_start, sizeof numpy_start - 1);
    if (!found || found - text < 10)
        return 0;
    return memmem(found - 11 < text ? text : found - 11, (size_t)11, "\"array\":", 8) ? 8 * 16 : 0;
}

const struct ts_reader ts_reader_polygraphy = {
    .name = "polygraphy",
    .summary = "inputs and outputs saved by Polygraphy as JSON",
    .bid = graphy_bid,
    .read = graphy_read,
};
