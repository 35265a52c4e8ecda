/* The reader of raw numbers that a JSON file describes: {"dtype": "float32", "shape": [3, 5]} beside x.bin, or a
 * manifest {"tensors": [{"name", "dtype", "shape", "file", "offset"}, ...]} or {name: {"dtype", "shape", "file"}}.
 *
 * Raw bytes say nothing about themselves, so what the sidecar says is taken as is, and checked against the size of the
 * file only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/number.h"
#include "base/system.h"
#include "base/text.h"
#include "read/readers.h"
#include "read/type_name.h"
#include "read/values.h"

/* Two keys of which one has a list and one a known type. */
#define BID_SIDECAR 32
#define LOOK_SIZE   ((size_t)64 * 1024)
/* Descriptions of millions of tensors. */
#define SCRATCH_LIMIT ((size_t)1 << 30)

/* Everything a description may say; NULL or 0 where it does not. Strings live in the scratch arena. */
struct entry {
    const char *name, *dtype, *file, *byte_order;
    uint64_t *shape;
    int64_t *strides;
    unsigned rank, stride_count;
    uint64_t offset;
    bool has_offset, fortran, byte_strides, inline_data;
    const char *problem; /* why it cannot be read */
    uint64_t at;         /* of the description, for errors */
    struct ts_source *source;
    const struct ts_tensor *tensor; /* what became of it */
};

struct sidecar {
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_arena scratch;
    struct ts_json json;
    struct entry top; /* what the outermost object says: the only tensor, or defaults for all */
    struct entry *entries;
    size_t count, capacity;
    bool manifest;
};

static bool is_one_of(const struct ts_json *json, const char *const *names)
{
    for (; *names; names++)
        if (ts_json_equals(json, *names))
            return true;
    return false;
}

static const char *const dtype_keys[] = {"dtype", "data_type", NULL};
static const char *const shape_keys[] = {"shape", "dims", NULL};
static const char *const file_keys[] = {"file", "path", "filename", "data_file", "data", NULL};
static const char *const offset_keys[] = {"offset", "byte_offset", "data_offset", NULL};
static const char *const byte_order_keys[] = {"byteorder", "byte_order", "endian", "endianness", NULL};
static const char *const stride_keys[] = {"strides", "stride", "byte_strides", "strides_bytes", NULL};

static enum ts_status read_string(struct sidecar *sidecar, const char **text, struct ts_error *error)
{
    return ts_json_copy(&sidecar->json, &sidecar->scratch, text, error);
}

/* The list of whole numbers that is the current token. A bad one is the entry's problem, not the file's. */
static enum ts_status read_integers(struct sidecar *sidecar, struct entry *entry, bool strides, struct ts_error *error)
{
    int64_t numbers[TS_MAX_RANK];
    const unsigned depth = sidecar->json.depth;
    unsigned count = 0;
    for (;;) {
        struct ts_error ignored;
        TS_TRY(ts_json_next(&sidecar->json, error));
        if (sidecar->json.depth < depth)
            break;
        if (count == TS_MAX_RANK)
            entry->problem = "it has more axes than this program goes up to";
        else if (sidecar->json.kind != TS_JSON_NUMBER ||
                 ts_json_int64(&sidecar->json, &numbers[count], &ignored) != TS_OK || (!strides && numbers[count] < 0))
            entry->problem = strides ? "its strides are not whole numbers" : "its shape is not of whole numbers";
        else
            count++;
    }
    if (strides) {
        entry->stride_count = count;
        entry->strides = ts_arena_array(&sidecar->scratch, count, sizeof *entry->strides);
        if (!entry->strides)
            return ts_fail_memory(error);
        if (count)
            memcpy(entry->strides, numbers, count * sizeof numbers[0]);
        return TS_OK;
    }
    entry->rank = count;
    entry->shape = ts_arena_array(&sidecar->scratch, count, sizeof *entry->shape);
    if (!entry->shape)
        return ts_fail_memory(error);
    for (unsigned i = 0; i < count; i++)
        entry->shape[i] = (uint64_t)numbers[i];
    return TS_OK;
}

/* One field of a description. The current token is the value of `key`; it is read to its end. */
static enum ts_status read_field(struct sidecar *sidecar, const struct ts_json *key, struct entry *entry,
                                 struct ts_error *error)
{
    struct ts_json *json = &sidecar->json;
    if (json->kind == TS_JSON_STRING && is_one_of(key, dtype_keys))
        return read_string(sidecar, &entry->dtype, error);
    if (json->kind == TS_JSON_ARRAY && is_one_of(key, shape_keys))
        return read_integers(sidecar, entry, false, error);
    if (json->kind == TS_JSON_STRING && is_one_of(key, file_keys))
        return read_string(sidecar, &entry->file, error);
    if (json->kind == TS_JSON_STRING && ts_json_equals(key, "name"))
        return read_string(sidecar, &entry->name, error);
    if (json->kind == TS_JSON_NUMBER && is_one_of(key, offset_keys)) {
        struct ts_error ignored;
        if (ts_json_uint64(json, &entry->offset, &ignored) != TS_OK)
            entry->problem = "its offset is not a whole number";
        entry->has_offset = true;
        return TS_OK;
    }
    if (json->kind == TS_JSON_STRING && is_one_of(key, byte_order_keys))
        return read_string(sidecar, &entry->byte_order, error);
    if (json->kind == TS_JSON_ARRAY && is_one_of(key, stride_keys)) {
        entry->byte_strides = ts_json_equals(key, "byte_strides") || ts_json_equals(key, "strides_bytes");
        return read_integers(sidecar, entry, true, error);
    }
    if (json->kind == TS_JSON_STRING && ts_json_equals(key, "order"))
        entry->fortran = ts_json_equals(json, "F") || ts_json_equals(json, "f");
    else if (ts_json_equals(key, "fortran_order"))
        entry->fortran = json->kind == TS_JSON_TRUE;
    else if (json->kind == TS_JSON_ARRAY && (ts_json_equals(key, "data") || ts_json_equals(key, "values")))
        entry->inline_data = true;
    return ts_json_skip_value(json, error);
}

static enum ts_status add_entry(struct sidecar *sidecar, const struct entry *entry, struct ts_error *error)
{
    if (sidecar->count == sidecar->capacity) {
        size_t more = sidecar->capacity ? 2 * sidecar->capacity : 16;
        struct entry *moved = ts_reallocarray(sidecar->entries, more, sizeof *moved);
        if (!moved)
            return ts_fail_memory(error);
        sidecar->entries = moved;
        sidecar->capacity = more;
    }
    sidecar->entries[sidecar->count++] = *entry;
    return TS_OK;
}

/* The object that is the current token, called name unless it says otherwise. Objects that describe nothing are
 * passed over. */
static enum ts_status read_entry(struct sidecar *sidecar, const char *name, struct ts_error *error)
{
    struct entry entry = {.name = name, .at = sidecar->json.offset};
    for (;;) {
        struct ts_json key;
        TS_TRY(ts_json_next(&sidecar->json, error));
        if (sidecar->json.kind == TS_JSON_OBJECT_END)
            break;
        key = sidecar->json;
        TS_TRY(ts_json_next(&sidecar->json, error));
        TS_TRY(read_field(sidecar, &key, &entry, error));
    }
    if (name)
        entry.name = name;
    return entry.shape ? add_entry(sidecar, &entry, error) : TS_OK;
}

/* The values of the object or the list that is the current token: those that are objects are descriptions. */
static enum ts_status read_entries(struct sidecar *sidecar, struct ts_error *error)
{
    const unsigned depth = sidecar->json.depth;
    for (;;) {
        const char *name = NULL;
        TS_TRY(ts_json_next(&sidecar->json, error));
        if (sidecar->json.depth < depth)
            return TS_OK;
        if (sidecar->json.kind == TS_JSON_KEY) {
            TS_TRY(read_string(sidecar, &name, error));
            TS_TRY(ts_json_next(&sidecar->json, error));
        }
        if (sidecar->json.kind == TS_JSON_OBJECT)
            TS_TRY(read_entry(sidecar, name, error));
        else
            TS_TRY(ts_json_skip_value(&sidecar->json, error));
    }
}

static enum ts_status read_top(struct sidecar *sidecar, struct ts_error *error)
{
    struct ts_json *json = &sidecar->json;
    TS_TRY(ts_json_expect(json, TS_JSON_OBJECT, "an object that describes raw data", error));
    for (;;) {
        struct ts_json key;
        const char *name;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            break;
        key = *json;
        TS_TRY(read_string(sidecar, &name, error));
        TS_TRY(ts_json_next(json, error));
        if (ts_json_equals(&key, "tensors") && (json->kind == TS_JSON_ARRAY || json->kind == TS_JSON_OBJECT))
            TS_TRY(read_entries(sidecar, error));
        else if (json->kind == TS_JSON_OBJECT)
            TS_TRY(read_entry(sidecar, name, error));
        else
            TS_TRY(read_field(sidecar, &key, &sidecar->top, error));
    }
    TS_TRY(ts_json_expect(json, TS_JSON_END, "nothing but white space after the description", error));
    sidecar->manifest = sidecar->count > 0;
    if (!sidecar->manifest && sidecar->top.shape)
        return add_entry(sidecar, &sidecar->top, error);
    if (!sidecar->manifest)
        return ts_fail(error, TS_ERR_FORMAT, 0, "the JSON describes no raw data: it has no shape");
    for (size_t i = 0; i < sidecar->count; i++) {
        struct entry *entry = &sidecar->entries[i];
        if (!entry->dtype)
            entry->dtype = sidecar->top.dtype;
        if (!entry->file)
            entry->file = sidecar->top.file;
        if (!entry->byte_order)
            entry->byte_order = sidecar->top.byte_order;
        entry->fortran |= sidecar->top.fortran;
    }
    return TS_OK;
}

/* Tries `stem` and what it is with the endings of raw files, beside the sidecar. */
static bool find_raw(struct sidecar *sidecar, const char *stem, struct entry *entry)
{
    static const char *const endings[] = {"", ".bin", ".raw", ".f32", ".f16", ".bf16", ".dat", ".f64", ".i32", ".i64"};
    struct ts_error ignored;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const char *path = ts_arena_printf(&sidecar->scratch, "%s%s", stem, endings[i]);
        if (path && ts_input_beside(sidecar->input, path, &entry->source, &ignored) == TS_OK) {
            entry->file = path;
            return true;
        }
        entry->source = NULL;
    }
    return false;
}

/* "dir/x.bin.json" -> "x.bin", "x.meta.json" -> "x". */
static const char *own_stem(struct sidecar *sidecar)
{
    const char *slash = strrchr(sidecar->input->member, '/');
    char *stem = ts_arena_string(&sidecar->scratch, slash ? slash + 1 : sidecar->input->member);
    if (!stem)
        return NULL;
    if (ts_ends_with(stem, ".json"))
        stem[strlen(stem) - 5] = '\0';
    if (ts_ends_with(stem, ".meta"))
        stem[strlen(stem) - 5] = '\0';
    return stem[0] ? stem : NULL;
}

/* Entries that name no file: the one called like the tensor, else the one called like the sidecar. */
static enum ts_status find_unnamed(struct sidecar *sidecar, struct ts_error *error)
{
    const char *stem = own_stem(sidecar);
    struct entry own = {0};
    bool looked = false;
    for (size_t i = 0; i < sidecar->count; i++) {
        struct entry *entry = &sidecar->entries[i];
        if (entry->file || entry->problem || entry->inline_data)
            continue;
        if (sidecar->manifest && entry->name && entry->name[0] && find_raw(sidecar, entry->name, entry))
            continue;
        if (!looked && stem)
            find_raw(sidecar, stem, &own);
        looked = true;
        entry->file = own.file;
        entry->source = own.source ? ts_source_retain(own.source) : NULL;
        if (!own.source) {
            const char *problem =
                ts_arena_printf(&sidecar->scratch,
                                "no raw file stands beside it; looked for \"%.200s\" with .bin, .raw, .f32, .f16, "
                                ".bf16, .dat; name it with \"file\"",
                                stem ? stem : "");
            if (!problem)
                return ts_fail_memory(error);
            entry->problem = problem;
        }
    }
    ts_source_release(own.source);
    return TS_OK;
}

static bool same_file(const struct entry *a, const struct entry *b)
{
    return a->file && b->file && strcmp(a->file, b->file) == 0;
}

static int by_file(const void *a, const void *b)
{
    const struct entry *const *left = a, *const *right = b;
    int order = strcmp((*left)->file ? (*left)->file : "", (*right)->file ? (*right)->file : "");
    return order ? order : (*left)->at < (*right)->at ? -1 : (*left)->at > (*right)->at;
}

/* The entries of one file: opens it once for all. */
static enum ts_status open_group(struct sidecar *sidecar, struct entry **entries, size_t count, struct ts_error *error)
{
    struct ts_source *source = entries[0]->source;
    struct ts_error why;
    const char *problem = NULL;
    if (!entries[0]->file)
        return TS_OK;
    if (!source && ts_input_beside(sidecar->input, entries[0]->file, &source, &why) != TS_OK) {
        problem = ts_arena_printf(&sidecar->scratch, "its raw file \"%.200s\" cannot be opened: %.200s",
                                  entries[0]->file, why.message);
        if (!problem)
            return ts_fail_memory(error);
        source = NULL;
    }
    entries[0]->source = source;
    if (source)
        sidecar->bundle->file_bytes += source->size;
    for (size_t i = 0; i < count; i++) {
        if (problem && !entries[i]->problem)
            entries[i]->problem = problem;
        if (source && !entries[i]->source)
            entries[i]->source = ts_source_retain(source);
        if (count > 1 && !entries[i]->has_offset && !entries[i]->problem)
            entries[i]->problem = "it shares its raw file with other tensors and has no offset";
    }
    return TS_OK;
}

static enum ts_status open_files(struct sidecar *sidecar, struct entry **sorted, struct ts_error *error)
{
    for (size_t i = 0; i < sidecar->count; i++)
        sorted[i] = &sidecar->entries[i];
    qsort(sorted, sidecar->count, sizeof *sorted, by_file);
    for (size_t i = 0; i < sidecar->count;) {
        size_t end = i + 1;
        while (end < sidecar->count && same_file(sorted[i], sorted[end]))
            end++;
        TS_TRY(open_group(sidecar, sorted + i, end - i, error));
        i = end;
    }
    return TS_OK;
}

/* numpy counts strides in bytes, torch in elements. Where the sidecar does not say: elements if the file is large
 * enough for that, else bytes. */
static enum ts_status set_strides(struct sidecar *sidecar, const struct entry *entry, struct ts_tensor *tensor,
                                  struct ts_error *error)
{
    const int64_t size = ts_type_info(tensor->type)->block_bytes;
    bool in_bytes = entry->byte_strides;
    if (entry->stride_count != tensor->rank)
        return ts_fail(error, TS_ERR_FORMAT, entry->at, "it has %u axes and %u strides", tensor->rank,
                       entry->stride_count);
    tensor->strides = ts_arena_array(&sidecar->bundle->arena, tensor->rank, sizeof *tensor->strides);
    if (!tensor->strides)
        return ts_fail_memory(error);
    if (tensor->rank)
        memcpy(tensor->strides, entry->strides, tensor->rank * sizeof *tensor->strides);
    if (!in_bytes) {
        struct ts_tensor trial = *tensor;
        struct ts_error ignored;
        in_bytes = size > 1 && ts_tensor_finish(&trial, &ignored) != TS_OK;
    }
    for (unsigned i = 0; in_bytes && i < tensor->rank; i++) {
        if (tensor->strides[i] % size != 0)
            return ts_fail(error, TS_ERR_FORMAT, entry->at,
                           "stride %" PRId64
                           " reaches outside the file in elements, and in bytes is no multiple of %" PRId64,
                           tensor->strides[i], size);
        tensor->strides[i] /= size;
    }
    return TS_OK;
}

/* Column-major: the first axis runs fastest. */
static enum ts_status set_fortran(struct sidecar *sidecar, struct ts_tensor *tensor, struct ts_error *error)
{
    int64_t step = 1;
    tensor->strides = ts_arena_array(&sidecar->bundle->arena, tensor->rank, sizeof *tensor->strides);
    if (!tensor->strides)
        return ts_fail_memory(error);
    for (unsigned i = 0; i < tensor->rank; i++) {
        tensor->strides[i] = step;
        if (tensor->shape[i] > INT64_MAX || __builtin_mul_overflow(step, (int64_t)tensor->shape[i], &step))
            step = INT64_MAX; /* then the product is too large as well, which ts_tensor_finish says */
    }
    return TS_OK;
}

static bool is_big_endian(const char *text)
{
    return strcasecmp(text, "big") == 0 || strcmp(text, ">") == 0 || strcasecmp(text, "be") == 0 ||
           strcasecmp(text, "big-endian") == 0 || strcasecmp(text, "bigendian") == 0;
}

static enum ts_status fill_tensor(struct sidecar *sidecar, const struct entry *entry, struct ts_tensor *tensor,
                                  struct ts_error *error)
{
    if (entry->problem)
        return ts_fail(error, TS_ERR_FORMAT, entry->at, "%s", entry->problem);
    if (entry->inline_data)
        return ts_fail(error, TS_ERR_UNSUPPORTED, entry->at,
                       "it has its values in the JSON, among others that have them in files");
    if (!entry->dtype)
        return ts_fail(error, TS_ERR_FORMAT, entry->at, "the description has no dtype");
    if (!ts_type_from_name(entry->dtype, strlen(entry->dtype), &tensor->type, &tensor->swapped))
        return ts_fail(error, TS_ERR_UNSUPPORTED, entry->at, "dtype \"%.80s\" is not one this program knows",
                       entry->dtype);
    if (entry->byte_order)
        tensor->swapped = is_big_endian(entry->byte_order);
    tensor->source = entry->source;
    tensor->offset = entry->offset;
    if (tensor->rank)
        memcpy(tensor->shape, entry->shape, tensor->rank * sizeof *tensor->shape);
    if (entry->strides)
        TS_TRY(set_strides(sidecar, entry, tensor, error));
    else if (entry->fortran && tensor->rank > 1)
        TS_TRY(set_fortran(sidecar, tensor, error));
    if (ts_tensor_finish(tensor, error) == TS_OK)
        return TS_OK;
    if (tensor->bytes > 0 && !ts_span_fits(tensor->span_offset, tensor->bytes, entry->source->size))
        return ts_fail(error, TS_ERR_FORMAT, entry->at,
                       "\"%.200s\" has %" PRIu64 " bytes, dtype and shape need %" PRIu64 " from byte %" PRIu64 " on",
                       entry->file, entry->source->size, tensor->bytes, tensor->span_offset);
    return error->status;
}

static enum ts_status add_tensors(struct sidecar *sidecar, struct ts_error *error)
{
    for (size_t i = 0; i < sidecar->count; i++) {
        struct entry *entry = &sidecar->entries[i];
        struct ts_tensor *tensor;
        struct ts_error why;
        const char *name = entry->name ? entry->name : sidecar->manifest && entry->file ? entry->file : "";
        TS_TRY(ts_bundle_add(sidecar->bundle, name, entry->rank, &tensor, error));
        ts_error_clear(&why);
        if (fill_tensor(sidecar, entry, tensor, &why) != TS_OK) {
            ts_bundle_drop_last(sidecar->bundle);
            if (!sidecar->manifest) { /* the file is that one tensor */
                *error = why;
                return why.status;
            }
            TS_TRY(ts_bundle_skip_error(sidecar->bundle, sidecar->input->member, name, &why, error));
            continue;
        }
        TS_TRY(ts_bundle_keep(sidecar->bundle, entry->source, error));
        entry->tensor = tensor;
    }
    return TS_OK;
}

/* A file that one tensor does not fill has probably another dtype or shape than its sidecar says. */
static enum ts_status check_sizes(struct sidecar *sidecar, struct entry **sorted, struct ts_error *error)
{
    for (size_t i = 0; i < sidecar->count; i++) {
        const struct ts_tensor *tensor = sorted[i]->tensor;
        if (!tensor || (i > 0 && same_file(sorted[i], sorted[i - 1])) ||
            (i + 1 < sidecar->count && same_file(sorted[i], sorted[i + 1])))
            continue;
        if (tensor->span_offset + tensor->bytes < tensor->source->size)
            TS_TRY(ts_bundle_find(sidecar->bundle, tensor->name, error,
                                  "\"%.200s\" has %" PRIu64 " bytes more than dtype and shape need", sorted[i]->file,
                                  tensor->source->size - tensor->span_offset - tensor->bytes));
    }
    return TS_OK;
}

static enum ts_status read_all(struct sidecar *sidecar, struct ts_error *error)
{
    struct entry **sorted;
    enum ts_status status;
    TS_TRY(read_top(sidecar, error));
    TS_TRY(find_unnamed(sidecar, error));
    sorted = calloc(sidecar->count, sizeof *sorted);
    if (!sorted)
        return ts_fail_memory(error);
    status = open_files(sidecar, sorted, error);
    if (status == TS_OK)
        status = add_tensors(sidecar, error);
    if (status == TS_OK)
        status = check_sizes(sidecar, sorted, error);
    free(sorted);
    return status;
}

static enum ts_status sidecar_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct sidecar sidecar = {.input = input, .bundle = bundle};
    enum ts_status status;
    size_t size;
    const char *text = ts_source_text(input->source, &size);
    ts_json_init(&sidecar.json, text, size);
    ts_arena_init(&sidecar.scratch, SCRATCH_LIMIT);
    status = read_all(&sidecar, error);
    for (size_t i = 0; i < sidecar.count; i++)
        ts_source_release(sidecar.entries[i].source);
    free(sidecar.entries);
    ts_arena_release(&sidecar.scratch);
    if (status != TS_OK && error->offset != TS_NO_OFFSET)
        error->offset += input->source->size - size;
    return status;
}

/* An object that says dtype and shape, and has no values with them, is what this reader is for. It is looked for in
 * the first bytes: at the top, below a name, or in a list. */
static unsigned sidecar_bid(const struct ts_input *input)
{
    struct ts_json json, value;
    struct ts_error ignored;
    size_t size;
    const char *text = ts_source_text(input->source, &size);
    bool dtype[4] = {false}, shape[4] = {false}, values[4] = {false};
    enum ts_type type;
    bool swapped, found = false;
    ts_json_init(&json, text, size < LOOK_SIZE ? size : LOOK_SIZE);
    if (ts_json_next(&json, &ignored) != TS_OK || json.kind != TS_JSON_OBJECT)
        return 0;
    while (!found && ts_json_next(&json, &ignored) == TS_OK && json.kind != TS_JSON_END) {
        const unsigned depth = json.depth;
        if (json.kind == TS_JSON_OBJECT && depth < 4)
            dtype[depth] = shape[depth] = values[depth] = false;
        if (json.kind == TS_JSON_OBJECT_END && depth + 1 < 4)
            found = dtype[depth + 1] && shape[depth + 1] && !values[depth + 1];
        value = json;
        if (json.kind != TS_JSON_KEY || depth >= 4 || ts_json_next(&value, &ignored) != TS_OK)
            continue;
        if (value.kind == TS_JSON_STRING && is_one_of(&json, dtype_keys))
            dtype[depth] = ts_type_from_name(value.raw, value.raw_size, &type, &swapped);
        else if (value.kind == TS_JSON_ARRAY && is_one_of(&json, shape_keys))
            shape[depth] = true;
        else if (value.kind == TS_JSON_ARRAY && (ts_json_equals(&json, "data") || ts_json_equals(&json, "values")))
            values[depth] = true;
    }
    return found ? BID_SIDECAR : 0;
}

const struct ts_reader ts_reader_raw_sidecar = {
    .name = "raw",
    .summary = "raw numbers described by a JSON file",
    .gathers = true,
    .bid = sidecar_bid,
    .read = sidecar_read,
};
