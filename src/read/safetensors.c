/* Owns the safetensors format: an 8-byte little-endian length, a JSON header of that length, then the data. A header
 * entry is {"dtype", "shape", "data_offsets": [begin, end]}, offsets relative to the data. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "base/table.h"
#include "read/order.h"
#include "read/readers.h"
#include "read/trace.h"

static const struct {
    const char *name;
    enum ts_type type;
} dtypes[] = {
    {"F32", TS_F32},
    {"BF16", TS_BF16},
    {"F16", TS_F16},
    {"F64", TS_F64},
    {"I64", TS_I64},
    {"I32", TS_I32},
    {"I16", TS_I16},
    {"I8", TS_I8},
    {"U64", TS_U64},
    {"U32", TS_U32},
    {"U16", TS_U16},
    {"U8", TS_U8},
    {"BOOL", TS_BOOL},
    {"F8_E4M3", TS_F8_E4M3},
    {"F8_E5M2", TS_F8_E5M2},
    {"F8_E4M3FN", TS_F8_E4M3}, /* an old spelling */
    {"F8_E4M3FNUZ", TS_F8_E4M3FNUZ},
    {"F8_E5M2FNUZ", TS_F8_E5M2FNUZ},
    {"F8_E8M0", TS_F8_E8M0},
    {"F6_E2M3", TS_F6_E2M3},
    {"F6_E3M2", TS_F6_E3M2},
    {"F4", TS_F4_E2M1},
    {"C64", TS_C64},
    {"C128", TS_C128},
};

/* A trace's writer keeps its header below the 100,000,000 bytes that the format's library takes. */
#define LIVE_HEADER_MOST 100000000
#define LIVE_PAGE        4096 /* bytes of the file that it fills before it goes on to the next ones */

struct state {
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_json json;
    uint64_t data_start; /* byte of the file where the data begins */
    uint64_t data_size;
    const char *order; /* raw JSON text of an explicit order, "offset", or NULL */
    struct ts_trace trace;
    bool has_spare;
    uint64_t spare; /* bytes kept free for more tensors */
};

/* Two checked facts: the length leaves room for a header, and the header opens an object whose first byte is a key or
 * an end. A length beyond the file still bids, lower: a truncated download should be told so by this reader. */
static unsigned safetensors_bid(const struct ts_input *input)
{
    const uint8_t *head = ts_source_at(input->source, 0, 10);
    uint64_t length;
    size_t at = 9;
    if (!head || head[8] != '{')
        return 0;
    length = ts_load_le64(head);
    if (length < 2 || length > (uint64_t)1 << 40)
        return 0;
    while (at < 64 && at + 1 < input->source->size && strchr(" \t\r\n", input->source->data[at]))
        at++;
    if (input->source->data[at] != '"' && input->source->data[at] != '}')
        return 0;
    return length <= input->source->size - 8 ? 48 : 24;
}

static enum ts_status read_dtype(struct state *state, enum ts_type *type, struct ts_error *error)
{
    TS_TRY(ts_json_expect(&state->json, TS_JSON_STRING, "the dtype as a string", error));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (ts_json_equals(&state->json, dtypes[i].name)) {
            *type = dtypes[i].type;
            return TS_OK;
        }
    return ts_fail(error, TS_ERR_UNSUPPORTED, state->json.offset, "dtype \"%.*s\" is not known",
                   (int)(state->json.raw_size < 40 ? state->json.raw_size : 40), state->json.raw);
}

static enum ts_status read_shape(struct state *state, uint64_t *shape, unsigned *rank, struct ts_error *error)
{
    TS_TRY(ts_json_expect(&state->json, TS_JSON_ARRAY, "the shape as an array", error));
    *rank = 0;
    for (;;) {
        TS_TRY(ts_json_next(&state->json, error));
        if (state->json.kind == TS_JSON_ARRAY_END)
            return TS_OK;
        if (*rank == TS_MAX_RANK)
            return ts_fail(error, TS_ERR_LIMIT, state->json.offset, "more than %d axes", TS_MAX_RANK);
        if (state->json.kind != TS_JSON_NUMBER)
            return ts_fail(error, TS_ERR_FORMAT, state->json.offset, "expected a number in the shape");
        TS_TRY(ts_json_uint64(&state->json, &shape[(*rank)++], error));
    }
}

static enum ts_status read_offsets(struct state *state, uint64_t offsets[2], struct ts_error *error)
{
    TS_TRY(ts_json_expect(&state->json, TS_JSON_ARRAY, "data_offsets as an array", error));
    for (int i = 0; i < 2; i++) {
        TS_TRY(ts_json_expect(&state->json, TS_JSON_NUMBER, "two numbers in data_offsets", error));
        TS_TRY(ts_json_uint64(&state->json, &offsets[i], error));
    }
    return ts_json_expect(&state->json, TS_JSON_ARRAY_END, "two numbers in data_offsets", error);
}

enum field { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };

struct entry {
    enum ts_type type;
    unsigned rank, fields;
    uint64_t shape[TS_MAX_RANK], offsets[2];
};

/* The object of one tensor. On error the reader is somewhere inside it; the caller gets out. */
static enum ts_status read_entry(struct state *state, struct entry *entry, struct ts_error *error)
{
    entry->fields = 0;
    TS_TRY(ts_json_expect(&state->json, TS_JSON_OBJECT, "an object for the tensor", error));
    for (;;) {
        TS_TRY(ts_json_next(&state->json, error));
        if (state->json.kind == TS_JSON_OBJECT_END)
            break;
        if (ts_json_equals(&state->json, "dtype")) {
            TS_TRY(read_dtype(state, &entry->type, error));
            entry->fields |= HAS_DTYPE;
        } else if (ts_json_equals(&state->json, "shape")) {
            TS_TRY(read_shape(state, entry->shape, &entry->rank, error));
            entry->fields |= HAS_SHAPE;
        } else if (ts_json_equals(&state->json, "data_offsets")) {
            TS_TRY(read_offsets(state, entry->offsets, error));
            entry->fields |= HAS_OFFSETS;
        } else {
            TS_TRY(ts_json_skip_value(&state->json, error));
        }
    }
    if (entry->fields != (HAS_DTYPE | HAS_SHAPE | HAS_OFFSETS))
        return ts_fail(error, TS_ERR_FORMAT, state->json.offset, "the tensor has no %s",
                       !(entry->fields & HAS_DTYPE)   ? "dtype"
                       : !(entry->fields & HAS_SHAPE) ? "shape"
                                                      : "data_offsets");
    return TS_OK;
}

static enum ts_status add_entry(struct state *state, const char *name, const struct entry *entry,
                                struct ts_error *error)
{
    struct ts_tensor *tensor;
    uint64_t begin = entry->offsets[0], end = entry->offsets[1];
    if (begin > end)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "data_offsets end at %" PRIu64 " before they begin at %" PRIu64, end, begin);
    TS_TRY(ts_bundle_add(state->bundle, name, entry->rank, &tensor, error));
    tensor->type = entry->type;
    if (entry->rank)
        memcpy(tensor->shape, entry->shape, entry->rank * sizeof *entry->shape);
    tensor->source = state->input->source;
    if (!ts_add(state->data_start, begin, &tensor->offset))
        ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "data_offsets begin at %" PRIu64 ", outside the file", begin);
    else if (ts_tensor_finish(tensor, error) == TS_OK && tensor->bytes != end - begin)
        ts_fail(error, TS_ERR_FORMAT, tensor->offset,
                "data_offsets span %" PRIu64 " bytes, its shape and dtype need %" PRIu64, end - begin, tensor->bytes);
    if (error->status != TS_OK)
        ts_bundle_drop_last(state->bundle);
    return error->status;
}

static enum ts_status read_metadata(struct state *state, struct ts_error *error)
{
    const char *key, *value;
    bool taken;
    TS_TRY(ts_json_expect(&state->json, TS_JSON_OBJECT, "an object for __metadata__", error));
    for (;;) {
        TS_TRY(ts_json_next(&state->json, error));
        if (state->json.kind == TS_JSON_OBJECT_END)
            return TS_OK;
        TS_TRY(ts_json_copy(&state->json, &state->bundle->arena, &key, error));
        TS_TRY(ts_json_next(&state->json, error));
        if (state->json.kind != TS_JSON_STRING) { /* the format wants strings; be kind to writers that did not */
            const char *from = state->json.text + state->json.offset;
            TS_TRY(ts_json_skip_value(&state->json, error));
            value = ts_arena_copy(&state->bundle->arena, from, (size_t)(state->json.text + state->json.at - from));
            if (!value)
                return ts_fail_memory(error);
        } else {
            TS_TRY(ts_json_copy(&state->json, &state->bundle->arena, &value, error));
        }
        if (strcmp(key, "tsleuth.order") == 0 || strcmp(key, "order") == 0)
            state->order = value;
        TS_TRY(ts_trace_take(&state->trace, key, value, &taken, error));
        if (!taken)
            TS_TRY(ts_bundle_meta(state->bundle, key, value, error));
    }
}

/* After a tensor's description turned out bad: go on behind its object, or fail when the JSON itself is broken. */
static enum ts_status leave_entry(struct state *state, unsigned depth, struct ts_error *error)
{
    while (state->json.depth > depth)
        TS_TRY(ts_json_next(&state->json, error));
    return TS_OK;
}

static enum ts_status read_header(struct state *state, struct ts_error *error)
{
    TS_TRY(ts_json_expect(&state->json, TS_JSON_OBJECT, "the header to be an object", error));
    for (;;) {
        struct entry entry;
        struct ts_error why;
        const char *name;
        unsigned depth;
        TS_TRY(ts_json_next(&state->json, error));
        if (state->json.kind == TS_JSON_OBJECT_END)
            break;
        if (ts_json_equals(&state->json, "__metadata__")) {
            TS_TRY(read_metadata(state, error));
            continue;
        }
        TS_TRY(ts_json_copy(&state->json, &state->bundle->arena, &name, error));
        depth = state->json.depth;
        ts_error_clear(&why);
        if (ts_trace_is_spare(name)) {
            /* the last one counts, and the file may just be growing under it: no span to check */
            if (read_entry(state, &entry, &why) != TS_OK)
                TS_TRY(leave_entry(state, depth, error));
            else if (entry.offsets[0] <= entry.offsets[1])
                state->spare = entry.offsets[1] - entry.offsets[0];
            state->has_spare = true;
        } else if (read_entry(state, &entry, &why) != TS_OK) {
            if (why.offset != TS_NO_OFFSET)
                why.offset += 8;
            TS_TRY(leave_entry(state, depth, error));
            TS_TRY(ts_bundle_skip_error(state->bundle, state->input->member, name, &why, error));
        } else if (add_entry(state, name, &entry, &why) != TS_OK) {
            TS_TRY(ts_bundle_skip_error(state->bundle, state->input->member, name, &why, error));
        }
    }
    return ts_json_expect(&state->json, TS_JSON_END, "nothing but white space after the header's object", error);
}

static int by_offset(const void *a, const void *b)
{
    const struct ts_tensor *const *left = a, *const *right = b;
    if ((*left)->offset != (*right)->offset)
        return (*left)->offset < (*right)->offset ? -1 : 1;
    return (*left)->bytes < (*right)->bytes ? -1 : (*left)->bytes > (*right)->bytes;
}

static bool is_appended(const struct state *state)
{
    return state->order && strcmp(state->order, "offset") == 0;
}

/* The format allows neither holes nor shared bytes. Both leave the tensors readable, so both are findings. */
static enum ts_status check_spans(struct state *state, size_t start, struct ts_error *error)
{
    size_t count = state->bundle->count - start, holes = 0, overlaps = 0, in_order = 1;
    struct ts_tensor **sorted;
    uint64_t end = state->data_start;
    enum ts_status status = TS_OK;
    if (!count)
        return TS_OK;
    sorted = malloc(count * sizeof(struct ts_tensor *));
    if (!sorted)
        return ts_fail_memory(error);
    memcpy(sorted, state->bundle->tensors + start, count * sizeof(struct ts_tensor *));
    while (in_order < count && by_offset(&sorted[in_order - 1], &sorted[in_order]) <= 0)
        in_order++;
    if (in_order < count) /* most writers list them as they lie */
        qsort(sorted, count, sizeof *sorted, by_offset);
    for (size_t i = 0; i < count && status == TS_OK; i++) {
        if (sorted[i]->bytes && sorted[i]->offset < end && overlaps++ < 10)
            status = ts_bundle_find(
                state->bundle, sorted[i]->name, error, "shares %" PRIu64 " bytes with \"%s\", which the format forbids",
                end - sorted[i]->offset < sorted[i]->bytes ? end - sorted[i]->offset : sorted[i]->bytes,
                i ? sorted[i - 1]->name : "the header");
        else if (sorted[i]->offset > end && holes++ < 10)
            status = ts_bundle_find(state->bundle, sorted[i]->name, error,
                                    "%" PRIu64 " bytes before it belong to no tensor, which the format forbids",
                                    sorted[i]->offset - end);
        if (sorted[i]->offset + sorted[i]->bytes > end)
            end = sorted[i]->offset + sorted[i]->bytes;
    }
    free(sorted);
    /* behind a trace's tensors there is room for more, or there was until a moment ago */
    if (status == TS_OK && !state->has_spare && !is_appended(state) && end < state->data_start + state->data_size)
        status =
            ts_bundle_find(state->bundle, NULL, error, "%" PRIu64 " bytes at the end of \"%s\" belong to no tensor",
                           state->data_start + state->data_size - end, state->input->member);
    return status;
}

static enum ts_status check_duplicates(struct state *state, size_t start, struct ts_error *error)
{
    struct ts_table table;
    enum ts_status status = TS_OK;
    if (!ts_table_init(&table, state->bundle->count - start))
        return ts_fail_memory(error);
    for (size_t i = start; i < state->bundle->count && status == TS_OK; i++)
        if (!ts_table_put(&table, state->bundle->tensors[i]->name, i, NULL)) {
            status = ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "two tensors have this name");
            ts_error_tensor(error, state->bundle->tensors[i]->name);
        }
    ts_table_release(&table);
    return status;
}

/* The writer goes from page to page, so they are copied from the last one to the first: of the earlier ones, which are
 * looked at later, nothing is missing that stands before what was copied already. */
static void copy_backwards(char *copy, const uint8_t *file, size_t length)
{
    for (size_t end = 8 + length; end > 8;) {
        const size_t page = (end - 1) / LIVE_PAGE * LIVE_PAGE, from = page < 8 ? 8 : page;
        memcpy(copy + from - 8, file + from, end - from);
        atomic_thread_fence(memory_order_acquire);
        end = from;
    }
}

/* Tensors that were appended follow each other, without a hole where one would be. */
static bool follow_each_other(const struct state *state, size_t start)
{
    uint64_t end = state->data_start;
    for (size_t i = start; i < state->bundle->count; i++) {
        const struct ts_tensor *tensor = state->bundle->tensors[i];
        if (tensor->offset != end)
            return false;
        end += tensor->bytes;
    }
    return true;
}

/* The header of a trace may be written to at this very moment: it is read from a copy, and once more when what was
 * copied makes no sense. */
static enum ts_status read_live_header(struct state *state, size_t length, struct ts_error *error)
{
    struct ts_bundle *bundle = state->bundle;
    size_t tensors = bundle->count, metas = bundle->meta_count, skips = bundle->skip_count;
    enum ts_status status = TS_OK;
    char *copy = malloc(length);
    if (!copy)
        return ts_fail_memory(error);
    for (int tries = 0; tries < 8; tries++) {
        bundle->count = tensors;
        bundle->meta_count = metas;
        bundle->skip_count = skips;
        ts_trace_release(&state->trace);
        state->order = NULL;
        state->has_spare = false;
        ts_error_clear(error);
        copy_backwards(copy, state->input->source->data, length);
        ts_json_init(&state->json, copy, length);
        status = read_header(state, error);
        if ((status == TS_OK && bundle->skip_count == skips && follow_each_other(state, tensors)) ||
            status == TS_ERR_MEMORY)
            break;
    }
    free(copy);
    return status;
}

static enum ts_status finish(struct state *state, size_t start, struct ts_error *error)
{
    struct ts_bundle *bundle = state->bundle;
    TS_TRY(check_duplicates(state, start, error));
    TS_TRY(check_spans(state, start, error));
    TS_TRY(ts_trace_apply(&state->trace, state->input, bundle, start, error));
    if (state->has_spare) {
        char text[128];
        snprintf(text, sizeof text,
                 "%" PRIu64 " bytes kept for more tensors: being written, or its program was ended from outside",
                 state->spare);
        TS_TRY(ts_bundle_meta(bundle, "tsleuth.spare", text, error));
    }
    if (is_appended(state) && ts_order_by_offset(bundle, start)) {
        bundle->order = "order given in the metadata"; /* the words src/pair knows it by */
    } else if (state->order && ts_order_by_list(bundle, start, state->order, strlen(state->order))) {
        bundle->order = "order given in the metadata";
    } else if (ts_order_is_sorted(bundle, start)) {
        ts_order_natural(bundle, start);
        bundle->order = "natural order of names";
    }
    return TS_OK;
}

static enum ts_status safetensors_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct state state = {.input = input, .bundle = bundle};
    const uint8_t *head = ts_source_at(input->source, 0, 8);
    uint64_t length;
    size_t start = bundle->count;
    enum ts_status status;
    if (!head)
        return ts_fail(error, TS_ERR_FORMAT, 0, "truncated: the file has %" PRIu64 " bytes, a header needs 8",
                       input->source->size);
    length = ts_load_le64(head);
    if (length > input->source->size - 8)
        return ts_fail(error, TS_ERR_FORMAT, 0, "truncated: the header has %" PRIu64 " bytes, the file %" PRIu64,
                       length, input->source->size);
    state.data_start = 8 + length;
    state.data_size = input->source->size - state.data_start;
    TS_TRY(ts_bundle_keep(bundle, input->source, error));
    if (ts_trace_is(input->source) && length <= LIVE_HEADER_MOST) {
        status = read_live_header(&state, (size_t)length, error);
    } else {
        ts_json_init(&state.json, input->source->data + 8, (size_t)length);
        status = read_header(&state, error);
    }
    if (status != TS_OK && error->offset != TS_NO_OFFSET)
        error->offset += 8;
    if (status == TS_OK)
        status = finish(&state, start, error);
    ts_trace_release(&state.trace);
    return status;
}

const struct ts_reader ts_reader_safetensors = {
    .name = "safetensors",
    .summary = "Hugging Face safetensors",
    .bid = safetensors_bid,
    .read = safetensors_read,
};
