/* GGUF metadata: the keys of one file as text, and the few that say how the rest of the file is laid out.
 *
 * Vocabularies have some hundred thousand entries, so arrays are walked and only their first entries are
 * written down; nothing is allocated per entry. */
#include "read/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/number.h"
#include "base/table.h"
#include "base/text.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, TYPE_COUNT };

static const struct {
    const char *name;
    uint8_t size; /* 0: depends on the value */
} types[TYPE_COUNT] = {
    [U8] = {"u8", 1},   [I8] = {"i8", 1},   [U16] = {"u16", 2},   [I16] = {"i16", 2},        [U32] = {"u32", 4},
    [I32] = {"i32", 4}, [F32] = {"f32", 4}, [BOOL] = {"bool", 1}, [STRING] = {"strings", 0}, [ARRAY] = {"arrays", 0},
    [U64] = {"u64", 8}, [I64] = {"i64", 8}, [F64] = {"f64", 8},
};

/* ggml has no arrays of arrays, the format does; nobody has been seen to nest them twice. */
#define MAX_DEPTH 4
/* Per-layer lists (head counts, rope factors) are whole up to here; longer arrays show their first entries. */
#define WHOLE_ARRAY   64
#define WHOLE_NUMBERS 256
#define FIRST_VALUES  8
#define FIRST_BYTES   64 /* of a string in an array */
/* Chat templates are whole; an embedded tokenizer.json is not. */
#define WHOLE_STRING ((size_t)64 << 10)
/* Nothing more of an array is written once its text has this length. */
#define ENOUGH_TEXT 4096

#define DEFAULT_ALIGNMENT 32

#define ELLIPSIS "…"

static uint64_t load(const uint8_t *bytes, unsigned size, bool swapped)
{
    switch (size) {
    case 1:
        return bytes[0];
    case 2:
        return swapped ? ts_load_be16(bytes) : ts_load_le16(bytes);
    case 4:
        return swapped ? ts_load_be32(bytes) : ts_load_le32(bytes);
    default:
        return swapped ? ts_load_be64(bytes) : ts_load_le64(bytes);
    }
}

/* The fewest digits that read back equal; whole numbers in full, since 1000000 is what people search for. */
static void put_float(struct ts_buffer *out, double value, bool single)
{
    char text[32];
    if (!isfinite(value)) {
        ts_buffer_string(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    if (value == trunc(value) && fabs(value) < 1e15) {
        ts_buffer_printf(out, "%.0f", value);
        return;
    }
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    ts_buffer_string(out, text);
}

static void put_scalar(struct ts_buffer *out, unsigned type, uint64_t bits)
{
    switch (type) {
    case I8:
        ts_buffer_printf(out, "%d", (int8_t)bits);
        break;
    case I16:
        ts_buffer_printf(out, "%d", (int16_t)bits);
        break;
    case I32:
        ts_buffer_printf(out, "%" PRId32, (int32_t)bits);
        break;
    case I64:
        ts_buffer_printf(out, "%" PRId64, (int64_t)bits);
        break;
    case F32:
        put_float(out, (double)ts_float_from_bits((uint32_t)bits), true);
        break;
    case F64:
        put_float(out, ts_double_from_bits(bits), false);
        break;
    case BOOL:
        ts_buffer_string(out, bits ? "true" : "false");
        break;
    default:
        ts_buffer_printf(out, "%" PRIu64, bits);
    }
}

/* The first `size` bytes without a character cut in half. Text that is no UTF-8 is cut where it is. */
static size_t cut_length(const char *text, size_t size)
{
    size_t valid = ts_utf8_valid_prefix(text, size);
    return size - valid < 4 ? valid : size;
}

/* As is, but for NULs, which would end the text; between quotes also quotes and backslashes are escaped. */
static void put_text(struct ts_buffer *out, const char *text, size_t size, bool quoted)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\0')
            ts_buffer_string(out, "\\x00");
        else if (quoted && (text[i] == '"' || text[i] == '\\'))
            ts_buffer_printf(out, "\\%c", text[i]);
        else
            ts_buffer_byte(out, text[i]);
    }
}

static void put_entry_string(struct ts_buffer *out, struct ts_gguf_string string)
{
    size_t size = string.size > FIRST_BYTES ? cut_length(string.text, FIRST_BYTES) : (size_t)string.size;
    ts_buffer_byte(out, '"');
    put_text(out, string.text, size, true);
    ts_buffer_string(out, size < string.size ? ELLIPSIS "\"" : "\"");
}

static void put_whole_string(struct ts_buffer *out, struct ts_gguf_string string)
{
    size_t size = string.size > WHOLE_STRING ? cut_length(string.text, WHOLE_STRING) : (size_t)string.size;
    if (!memchr(string.text, '\0', size))
        ts_buffer_append(out, string.text, size);
    else
        put_text(out, string.text, size, false);
    if (size < string.size)
        ts_buffer_printf(out, ELLIPSIS " (%" PRIu64 " bytes)", string.size);
}

static enum ts_status check_type(const struct ts_gguf *file, uint32_t type, struct ts_gguf_string key,
                                 struct ts_error *error)
{
    if (type < TYPE_COUNT)
        return TS_OK;
    return ts_fail(error, TS_ERR_FORMAT, file->at - 4,
                   "key \"%.*s\" has value type %" PRIu32 ", the format has 0 to %d",
                   key.size > 128 ? 128 : (int)key.size, key.text, type, TYPE_COUNT - 1);
}

/* Takes one array from its element type on. out NULL: walk only. */
static enum ts_status take_array(struct ts_gguf *file, struct ts_gguf_string key, unsigned depth, struct ts_buffer *out,
                                 struct ts_error *error)
{
    const char *what = "an array";
    uint64_t start = file->at, count, least, shown, left;
    uint32_t type;
    if (depth == MAX_DEPTH)
        return ts_fail(error, TS_ERR_LIMIT, start, "arrays are nested deeper than %d levels", MAX_DEPTH);
    TS_TRY(ts_gguf_u32(file, what, &type, error));
    TS_TRY(check_type(file, type, key, error));
    TS_TRY(ts_gguf_size(file, what, &count, error));
    /* The least an element takes: a string its length, an array its type and length. */
    least = types[type].size ? types[type].size : ts_gguf_size_width(file) + (type == ARRAY ? 4u : 0u);
    left = file->source->size - file->at;
    if (count > left / least)
        return ts_fail(error, TS_ERR_FORMAT, start,
                       "truncated: an array of %" PRIu64 " %s needs at least %" PRIu64 " bytes each, %" PRIu64
                       " bytes are left",
                       count, types[type].name, least, left);
    if (out)
        ts_buffer_printf(out, "[%" PRIu64 " %s]", count, types[type].name);
    shown = !out ? 0 : count <= (types[type].size ? WHOLE_NUMBERS : WHOLE_ARRAY) ? count : FIRST_VALUES;
    for (uint64_t i = 0; i < count; i++) {
        bool show = i < shown && out->size < ENOUGH_TEXT;
        if (show)
            ts_buffer_string(out, i ? ", " : " ");
        if (types[type].size) {
            if (!show) { /* the rest in one step: it was found to fit */
                file->at += (count - i) * types[type].size;
                break;
            }
            put_scalar(out, type, load(file->source->data + file->at, types[type].size, file->swapped));
            file->at += types[type].size;
        } else if (type == STRING) {
            struct ts_gguf_string string;
            TS_TRY(ts_gguf_string(file, "a string of an array", &string, error));
            if (show)
                put_entry_string(out, string);
        } else {
            if (show)
                ts_buffer_byte(out, '(');
            TS_TRY(take_array(file, key, depth + 1, show ? out : NULL, error));
            if (show)
                ts_buffer_byte(out, ')');
        }
        if (show && i + 1 < count && (i + 1 == shown || out->size >= ENOUGH_TEXT))
            ts_buffer_string(out, ", " ELLIPSIS);
    }
    return TS_OK;
}

/* Takes one value; *bits is that of a scalar. */
static enum ts_status take_value(struct ts_gguf *file, struct ts_gguf_string key, uint32_t type, uint64_t *bits,
                                 struct ts_buffer *out, struct ts_error *error)
{
    *bits = 0;
    TS_TRY(check_type(file, type, key, error));
    if (type == ARRAY)
        return take_array(file, key, 0, out, error);
    if (type == STRING) {
        struct ts_gguf_string string;
        TS_TRY(ts_gguf_string(file, "a string", &string, error));
        if (out)
            put_whole_string(out, string);
    } else {
        const uint8_t *bytes;
        TS_TRY(ts_gguf_bytes(file, types[type].size, "a value", &bytes, error));
        *bits = load(bytes, types[type].size, file->swapped);
        if (out)
            put_scalar(out, type, *bits);
    }
    return TS_OK;
}

static bool key_is(struct ts_gguf_string key, const char *text)
{
    return key.size == strlen(text) && memcmp(key.text, text, key.size) == 0;
}

/* A count in any integer type (writers disagree); false when it is none or negative. */
static bool as_count(uint32_t type, uint64_t bits, uint64_t *count)
{
    int64_t value;
    switch (type) {
    case U8:
    case U16:
    case U32:
    case U64:
        *count = bits;
        return bits <= INT64_MAX;
    case I8:
        value = (int8_t)bits;
        break;
    case I16:
        value = (int16_t)bits;
        break;
    case I32:
        value = (int32_t)bits;
        break;
    case I64:
        value = (int64_t)bits;
        break;
    default:
        return false;
    }
    *count = (uint64_t)value;
    return value >= 0;
}

/* What the file says about its own layout; what it says first counts. */
static enum ts_status take_layout(struct ts_gguf *file, struct ts_gguf_string key, uint32_t type, uint64_t bits,
                                  uint64_t start, struct ts_error *error)
{
    uint64_t *counts[] = {&file->split_no, &file->split_count, &file->split_tensors};
    static const char *const count_keys[] = {"split.no", "split.count", "split.tensors.count"};
    if (key_is(key, "general.alignment") && file->alignment == 0) {
        if (type != U32)
            return ts_fail(error, TS_ERR_FORMAT, start, "general.alignment is of value type %s, expected u32",
                           types[type].name);
        if (bits == 0 || (bits & (bits - 1)))
            return ts_fail(error, TS_ERR_FORMAT, start, "general.alignment is %" PRIu64 ", expected a power of two",
                           bits);
        file->alignment = (uint32_t)bits;
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (key_is(key, count_keys[i]) && *counts[i] == UINT64_MAX && !as_count(type, bits, counts[i]))
            *counts[i] = UINT64_MAX;
    return TS_OK;
}

/* Why a key cannot be listed, or NULL. */
static const char *key_problem(struct ts_gguf_string key)
{
    if (key.size == 0)
        return "a key is empty";
    if (key.size > TS_GGUF_MAX_NAME)
        return "a key is longer than 65535 bytes";
    if (memchr(key.text, '\0', (size_t)key.size))
        return "a key holds a NUL byte";
    return NULL;
}

static enum ts_status take_key(struct ts_gguf *file, struct ts_bundle *bundle, struct ts_buffer *text,
                               struct ts_error *error)
{
    struct ts_gguf_string key;
    struct ts_error why;
    const char *name, *problem;
    uint64_t start = file->at, bits;
    uint32_t type;
    TS_TRY(ts_gguf_string(file, "a key", &key, error));
    TS_TRY(ts_gguf_u32(file, "a value type", &type, error));
    ts_buffer_clear(text);
    TS_TRY(take_value(file, key, type, &bits, text, error));
    TS_TRY(take_layout(file, key, type, bits, start, error));
    ts_buffer_string(text, ""); /* an empty string is a value too */
    name = ts_gguf_copy(bundle, key);
    if (text->failed || !name)
        return ts_fail_memory(error);
    problem = key_problem(key);
    if (problem) {
        ts_fail(&why, TS_ERR_FORMAT, start, "%s", problem);
        return ts_bundle_skip_error(bundle, file->member, name, &why, error);
    }
    return ts_bundle_meta(bundle, name, text->data, error);
}

/* Of the entries from index start on that have one key, the first stays. */
static enum ts_status drop_repeated(struct ts_gguf *file, struct ts_bundle *bundle, size_t start,
                                    struct ts_error *error)
{
    enum ts_status status = TS_OK;
    struct ts_table table;
    size_t kept = start;
    if (!ts_table_init(&table, bundle->meta_count - start))
        return ts_fail_memory(error);
    for (size_t i = start; status == TS_OK && i < bundle->meta_count; i++) {
        if (ts_table_put(&table, bundle->metas[i].key, i, NULL)) {
            bundle->metas[kept++] = bundle->metas[i];
        } else {
            struct ts_error why;
            ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET,
                    "the key stands there twice; its first value is kept, and ggml refuses such a file");
            status = ts_bundle_skip_error(bundle, file->member, bundle->metas[i].key, &why, error);
        }
    }
    bundle->meta_count = kept;
    ts_table_release(&table);
    return status;
}

enum ts_status ts_gguf_metadata(struct ts_gguf *file, struct ts_bundle *bundle, struct ts_error *error)
{
    const size_t start = bundle->meta_count;
    enum ts_status status = TS_OK;
    struct ts_buffer text;
    file->alignment = 0;
    file->split_no = file->split_count = file->split_tensors = UINT64_MAX;
    /* A whole string in which every byte is a NUL takes four times its size. */
    ts_buffer_init(&text, 4 * WHOLE_STRING + ENOUGH_TEXT);
    for (uint64_t i = 0; status == TS_OK && i < file->key_count; i++)
        status = take_key(file, bundle, &text, error);
    ts_buffer_release(&text);
    if (file->alignment == 0)
        file->alignment = DEFAULT_ALIGNMENT;
    return status == TS_OK ? drop_repeated(file, bundle, start, error) : status;
}
