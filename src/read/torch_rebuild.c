/* Torch rebuild: from the call a pickle wants made (torch._utils._rebuild_tensor_v2 and its kin) to a view of bytes,
 * without making it; and the tensors that consist of several: sparse and nested ones. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "read/torch.h"

/* A parameter of a subclass of a tensor that came from a device: wrappers in wrappers end here. */
#define MAX_WRAPPERS 4

struct ts_pickle_value ts_torch_argument(const struct ts_pickle_object *object, uint64_t i)
{
    const struct ts_pickle_tuple *tuple = object->arguments.tuple;
    return i < tuple->count ? tuple->items[i] : (struct ts_pickle_value){.kind = TS_PICKLE_NONE};
}

bool ts_torch_is_tensor(enum ts_torch_known known)
{
    return (known >= TS_TORCH_REBUILD_TENSOR && known <= TS_TORCH_OLD_TENSOR) || ts_torch_is_numpy(known);
}

enum ts_status ts_torch_sizes(struct ts_pickle_value value, const char *what, unsigned *rank,
                              uint64_t sizes[TS_MAX_RANK], struct ts_error *error)
{
    struct ts_pickle_cursor cursor = {0};
    struct ts_pickle_value item;
    uint64_t count;
    if (value.kind == TS_PICKLE_OBJECT && ts_torch_known(value.object->callable) == TS_TORCH_SIZE)
        value = ts_torch_argument(value.object, 0);
    if (value.kind != TS_PICKLE_TUPLE && value.kind != TS_PICKLE_LIST)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its %s is not a tuple", what);
    count = value.kind == TS_PICKLE_TUPLE ? value.tuple->count : value.list->count;
    if (count > TS_MAX_RANK)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "has %" PRIu64 " axes; this program goes up to %d", count,
                       TS_MAX_RANK);
    if (value.kind == TS_PICKLE_LIST)
        cursor = ts_pickle_begin(value.list);
    for (uint64_t i = 0; i < count; i++) {
        if (value.kind == TS_PICKLE_TUPLE)
            item = value.tuple->items[i];
        else if (!ts_pickle_next(&cursor, &item))
            break;
        if (item.kind != TS_PICKLE_INT || item.integer < 0)
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its %s has an entry that is no size", what);
        sizes[i] = (uint64_t)item.integer;
    }
    *rank = (unsigned)count;
    return TS_OK;
}

static bool is_set(struct ts_pickle_value flags, const char *name)
{
    struct ts_pickle_cursor cursor;
    struct ts_pickle_value key, value;
    if (flags.kind != TS_PICKLE_DICT || flags.list->count > 64)
        return false;
    cursor = ts_pickle_begin(flags.list);
    while (ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &value))
        if (ts_pickle_equals(key, name) && value.kind == TS_PICKLE_BOOL)
            return value.truth;
    return false;
}

/* storage, offset, size, stride are the first four arguments of every kind. */
static enum ts_status strided_view(struct ts_torch *torch, const struct ts_pickle_value *arguments,
                                   const struct ts_torch_dtype *dtype, struct ts_torch_view *view,
                                   struct ts_error *error)
{
    const struct ts_torch_dtype *storage_dtype = NULL;
    uint64_t shift = 0, elements = 0, start, strides[TS_MAX_RANK];
    unsigned stride_rank = 0;
    TS_TRY(ts_torch_storage_of(torch, arguments[0], &view->storage, &storage_dtype, &shift, &elements, error));
    view->dtype = dtype ? dtype : storage_dtype;
    view->source = view->storage->source;
    view->swapped = view->storage->swapped;
    view->type = view->dtype->type;
    if (arguments[1].kind != TS_PICKLE_INT || arguments[1].integer < 0 ||
        !ts_mul((uint64_t)arguments[1].integer, view->dtype->bytes, &start) || !ts_add(start, shift, &view->offset))
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its offset in the storage is out of range");
    if (view->dtype->code_pack > 1 && arguments[1].integer)
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "a %s tensor that does not begin with its storage",
                       view->dtype->name);
    TS_TRY(ts_torch_sizes(arguments[2], "size", &view->rank, view->shape, error));
    TS_TRY(ts_torch_sizes(arguments[3], "stride", &stride_rank, strides, error));
    if (stride_rank != view->rank)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "has %u sizes and %u strides", view->rank, stride_rank);
    for (unsigned i = 0; i < stride_rank; i++)
        view->strides[i] = (int64_t)strides[i];
    view->strided = true;
    return TS_OK;
}

static enum ts_status need_arguments(const struct ts_pickle_object *call, uint64_t count, struct ts_error *error)
{
    if (call->arguments.tuple->count < count)
        return ts_fail(error, TS_ERR_FORMAT, call->offset,
                       "is rebuilt from %" PRIu64 " arguments, at least %" PRIu64 " are needed",
                       call->arguments.tuple->count, count);
    return TS_OK;
}

/* _rebuild_from_type_v2(function, class, arguments, state): the call inside. */
static enum ts_status inner_call(const struct ts_pickle_object *call, struct ts_pickle_object *inner,
                                 struct ts_error *error)
{
    TS_TRY(need_arguments(call, 3, error));
    *inner = (struct ts_pickle_object){
        .callable = ts_torch_argument(call, 0), .arguments = ts_torch_argument(call, 2), .offset = call->offset};
    if (inner->arguments.kind != TS_PICKLE_TUPLE)
        return ts_fail(error, TS_ERR_FORMAT, call->offset, "is rebuilt from arguments that are not a tuple");
    return TS_OK;
}

static enum ts_status view_of_call(struct ts_torch *torch, const struct ts_pickle_object *call, unsigned wrappers,
                                   struct ts_torch_view *view, struct ts_error *error)
{
    const struct ts_pickle_value *arguments = call->arguments.tuple->items;
    const struct ts_torch_dtype *dtype;
    enum ts_torch_known known = ts_torch_known(call->callable);
    struct ts_pickle_object inner;
    if (wrappers > MAX_WRAPPERS)
        return ts_fail(error, TS_ERR_FORMAT, call->offset, "is wrapped more than %d times", MAX_WRAPPERS);
    switch (known) {
    case TS_TORCH_REBUILD_TENSOR:
    case TS_TORCH_REBUILD_TENSOR_V2:
        TS_TRY(need_arguments(call, 4, error));
        TS_TRY(strided_view(torch, arguments, NULL, view, error));
        view->conjugated = is_set(ts_torch_argument(call, 6), "conj");
        view->negated = is_set(ts_torch_argument(call, 6), "neg");
        return ts_torch_flip(torch, view, error);
    case TS_TORCH_REBUILD_TENSOR_V3:
        TS_TRY(need_arguments(call, 7, error));
        if (!(dtype = ts_torch_dtype_of(arguments[6]))) {
            char name[160] = "something else";
            if (arguments[6].kind == TS_PICKLE_GLOBAL)
                ts_torch_global_text(arguments[6].global, name, sizeof name);
            return ts_fail(error, TS_ERR_UNSUPPORTED, call->offset, "has type %s, which this program does not know",
                           name);
        }
        TS_TRY(strided_view(torch, arguments, dtype, view, error));
        view->conjugated = is_set(ts_torch_argument(call, 7), "conj");
        view->negated = is_set(ts_torch_argument(call, 7), "neg");
        return ts_torch_flip(torch, view, error);
    case TS_TORCH_REBUILD_QUANTIZED:
        TS_TRY(need_arguments(call, 5, error));
        return strided_view(torch, arguments, NULL, view, error);
    case TS_TORCH_REBUILD_PARAMETER:
    case TS_TORCH_REBUILD_DEVICE:
        TS_TRY(need_arguments(call, 1, error));
        if (arguments[0].kind != TS_PICKLE_OBJECT)
            return ts_fail(error, TS_ERR_FORMAT, call->offset, "is a parameter without a tensor");
        return view_of_call(torch, arguments[0].object, wrappers + 1, view, error);
    case TS_TORCH_REBUILD_FROM_TYPE:
        TS_TRY(inner_call(call, &inner, error));
        return view_of_call(torch, &inner, wrappers + 1, view, error);
    case TS_TORCH_OLD_TENSOR:
        if (call->state.kind != TS_PICKLE_TUPLE || call->state.tuple->count != 4)
            return ts_fail(error, TS_ERR_UNSUPPORTED, call->offset, "is a tensor object without a storage");
        return strided_view(torch, call->state.tuple->items, NULL, view, error);
    default:
        if (ts_torch_is_numpy(known))
            return ts_torch_numpy_view(torch, call, view, error);
        return ts_fail(error, TS_ERR_UNSUPPORTED, call->offset, "a plain tensor is expected here");
    }
}

enum ts_status ts_torch_view_of(struct ts_torch *torch, struct ts_pickle_value value, struct ts_torch_view *view,
                                struct ts_error *error)
{
    memset(view, 0, sizeof *view);
    if (value.kind == TS_PICKLE_LIST || value.kind == TS_PICKLE_TUPLE)
        return ts_torch_number_list(torch, value, view, error);
    if (value.kind != TS_PICKLE_OBJECT)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "a tensor is expected and something else is there");
    return view_of_call(torch, value.object, 0, view, error);
}

/* Numbers that share an element (float4_e2m1fn_x2) get the last axis to themselves. */
static enum ts_status unpack_shape(const struct ts_torch_view *view, struct ts_tensor *tensor, struct ts_error *error)
{
    uint64_t expected = 1;
    for (unsigned i = view->rank; i-- > 0;) {
        if (view->strided && view->shape[i] > 1 && view->strides[i] != (int64_t)expected)
            return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "strides over the packed type %s",
                           view->dtype->name);
        if (!ts_mul(expected, view->shape[i], &expected) || expected > INT64_MAX)
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its shape has more than 2^63 elements");
    }
    tensor->strides = NULL;
    if (!view->rank)
        tensor->shape[0] = view->dtype->packed;
    else if (!ts_mul(tensor->shape[view->rank - 1], view->dtype->packed, &tensor->shape[view->rank - 1]))
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its shape has more than 2^63 elements");
    return TS_OK;
}

static unsigned rank_of(const struct ts_torch_view *view)
{
    return view->rank == 0 && view->dtype && view->dtype->packed > 1 ? 1 : view->rank;
}

/* Copies the view into a tensor whose rank and shape have room for it. */
static enum ts_status fill(struct ts_torch *torch, const struct ts_torch_view *view, struct ts_tensor *tensor,
                           struct ts_error *error)
{
    tensor->type = view->type;
    tensor->swapped = view->swapped;
    tensor->source = view->source;
    tensor->offset = view->offset;
    if (view->rank)
        memcpy(tensor->shape, view->shape, view->rank * sizeof *view->shape);
    if (view->strided && view->rank) {
        tensor->strides = ts_arena_array(&torch->bundle->arena, view->rank, sizeof *tensor->strides);
        if (!tensor->strides)
            return ts_fail_memory(error);
        memcpy(tensor->strides, view->strides, view->rank * sizeof *tensor->strides);
    }
    if (view->dtype && view->dtype->packed > 1)
        TS_TRY(unpack_shape(view, tensor, error));
    TS_TRY(ts_tensor_finish(tensor, error));
    return ts_bundle_keep(torch->bundle, view->source, error);
}

enum ts_status ts_torch_part(struct ts_torch *torch, const struct ts_torch_view *view, struct ts_tensor **tensor,
                             struct ts_error *error)
{
    struct ts_tensor *part = ts_arena_alloc(&torch->bundle->arena, sizeof *part);
    if (!part || !(part->shape = ts_arena_array(&torch->bundle->arena, rank_of(view), sizeof *part->shape)))
        return ts_fail_memory(error);
    part->name = "";
    part->rank = rank_of(view);
    *tensor = part;
    return fill(torch, view, part, error);
}

enum ts_status ts_torch_note_sharing(struct ts_torch *torch, struct ts_torch_storage *storage, struct ts_tensor *tensor,
                                     struct ts_error *error)
{
    if (!storage)
        return TS_OK;
    storage->users++;
    if (storage->users == 1) {
        storage->first_user = tensor;
        return TS_OK;
    }
    if (storage->users == 2)
        TS_TRY(ts_bundle_attribute(torch->bundle, storage->first_user, "storage", (const char *)storage->key, error));
    return ts_bundle_attribute(torch->bundle, tensor, "storage", (const char *)storage->key, error);
}

enum ts_status ts_torch_emit_view(struct ts_torch *torch, const struct ts_torch_view *view, struct ts_tensor **tensor,
                                  struct ts_error *error)
{
    enum ts_status status;
    TS_TRY(ts_torch_add(torch, rank_of(view), tensor, error));
    status = fill(torch, view, *tensor, error);
    if (status != TS_OK) {
        ts_bundle_drop_last(torch->bundle);
        return status;
    }
    /* What the element type alone does not tell. */
    if (view->dtype && (view->dtype->packed > 1 || view->dtype->quantized || !view->dtype->storage))
        TS_TRY(ts_bundle_attribute(torch->bundle, *tensor, "dtype", view->dtype->name, error));
    return ts_torch_note_sharing(torch, view->storage, *tensor, error);
}

static bool ends_file(const struct ts_torch *torch, enum ts_status status)
{
    return status == TS_ERR_MEMORY || torch->over;
}

/* One part of a sparse tensor, under its own name. */
static enum ts_status emit_part(struct ts_torch *torch, const char *key, struct ts_pickle_value value,
                                const char *attribute, const char *text, struct ts_error *error)
{
    size_t before = ts_torch_enter(torch, key, strlen(key));
    struct ts_torch_view view;
    struct ts_tensor *tensor = NULL;
    struct ts_error why;
    enum ts_status status = ts_torch_view_of(torch, value, &view, &why);
    if (status == TS_OK)
        status = ts_torch_emit_view(torch, &view, &tensor, &why);
    if (status == TS_OK)
        status = ts_bundle_attribute(torch->bundle, tensor, attribute, text, &why);
    if (status != TS_OK && ends_file(torch, status))
        *error = why;
    else if (status != TS_OK)
        status = ts_torch_skip(torch, &why, false, error);
    ts_torch_leave(torch, before);
    return status;
}

static void layout_text(struct ts_pickle_value value, char *text, size_t size)
{
    struct ts_pickle_value name = value;
    text[0] = '\0';
    if (value.kind == TS_PICKLE_OBJECT && ts_torch_known(value.object->callable) == TS_TORCH_LAYOUT)
        name = ts_torch_argument(value.object, 0);
    if (name.kind == TS_PICKLE_GLOBAL)
        ts_torch_global_text(name.global, text, size);
    else if (name.kind == TS_PICKLE_TEXT || name.kind == TS_PICKLE_STRING)
        snprintf(text, size, "%.*s", name.bytes->size < size ? (int)name.bytes->size : (int)size - 1,
                 (const char *)name.bytes->data);
}

__attribute__((noinline)) static enum ts_status emit_sparse(struct ts_torch *torch, const struct ts_pickle_object *call,
                                                            struct ts_error *error)
{
    struct ts_pickle_value data = ts_torch_argument(call, 1);
    const struct ts_pickle_value *parts;
    char layout[64], text[64 + 22 * TS_MAX_RANK];
    uint64_t shape[TS_MAX_RANK];
    unsigned rank = 0;
    size_t used;
    bool coordinates, by_row;
    layout_text(ts_torch_argument(call, 0), layout, sizeof layout);
    coordinates = strcmp(layout, "torch.sparse_coo") == 0;
    by_row = strcmp(layout, "torch.sparse_csr") == 0 || strcmp(layout, "torch.sparse_bsr") == 0;
    if (!coordinates && !by_row && strcmp(layout, "torch.sparse_csc") != 0 && strcmp(layout, "torch.sparse_bsc") != 0)
        return ts_fail(error, TS_ERR_UNSUPPORTED, call->offset,
                       "a sparse tensor of layout \"%s\", which this program does not know", layout);
    if (data.kind != TS_PICKLE_TUPLE || data.tuple->count < (coordinates ? 3u : 4u))
        return ts_fail(error, TS_ERR_FORMAT, call->offset, "a sparse tensor lacks some of its parts");
    parts = data.tuple->items;
    TS_TRY(ts_torch_sizes(parts[coordinates ? 2 : 3], "size", &rank, shape, error));
    used = (size_t)snprintf(text, sizeof text, "%s [", layout + strlen("torch."));
    for (unsigned i = 0; i < rank; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64, i ? "," : "", shape[i]);
    snprintf(text + used, sizeof text - used, "]");
    if (coordinates) {
        TS_TRY(emit_part(torch, "indices", parts[0], "sparse", text, error));
        return emit_part(torch, "values", parts[1], "sparse", text, error);
    }
    TS_TRY(emit_part(torch, by_row ? "crow_indices" : "ccol_indices", parts[0], "sparse", text, error));
    TS_TRY(emit_part(torch, by_row ? "col_indices" : "row_indices", parts[1], "sparse", text, error));
    return emit_part(torch, "values", parts[2], "sparse", text, error);
}

static enum ts_status integers_of(struct ts_torch *torch, struct ts_pickle_value value, struct ts_tensor **tensor,
                                  struct ts_error *error)
{
    struct ts_torch_view view;
    TS_TRY(ts_torch_view_of(torch, value, &view, error));
    return ts_torch_part(torch, &view, tensor, error);
}

/* A nested tensor is a buffer and, for each of its tensors, a row of sizes, a row of strides and an offset. */
__attribute__((noinline)) static enum ts_status emit_nested(struct ts_torch *torch, const struct ts_pickle_object *call,
                                                            struct ts_error *error)
{
    struct ts_torch_view buffer, view;
    struct ts_tensor *sizes = NULL, *strides = NULL, *offsets = NULL, *tensor = NULL;
    TS_TRY(need_arguments(call, 4, error));
    TS_TRY(ts_torch_view_of(torch, ts_torch_argument(call, 0), &buffer, error));
    TS_TRY(integers_of(torch, ts_torch_argument(call, 1), &sizes, error));
    TS_TRY(integers_of(torch, ts_torch_argument(call, 2), &strides, error));
    TS_TRY(integers_of(torch, ts_torch_argument(call, 3), &offsets, error));
    if (sizes->rank != 2 || strides->rank != 2 || offsets->rank != 1 || sizes->shape[0] != strides->shape[0] ||
        sizes->shape[0] != offsets->shape[0] || sizes->shape[1] != strides->shape[1] || sizes->shape[1] > TS_MAX_RANK)
        return ts_fail(error, TS_ERR_FORMAT, call->offset, "a nested tensor's sizes, strides and offsets do not match");
    for (uint64_t i = 0; i < sizes->shape[0]; i++) {
        char key[24];
        int64_t row[TS_MAX_RANK], start;
        uint64_t first = i * sizes->shape[1], bytes;
        enum ts_status status = TS_OK;
        size_t before, columns = (size_t)sizes->shape[1];
        struct ts_error why;
        view = buffer;
        view.strided = true;
        view.rank = (unsigned)columns;
        TS_TRY(ts_tensor_read_i64(sizes, first, columns, row, error));
        TS_TRY(ts_tensor_read_i64(strides, first, columns, view.strides, error));
        TS_TRY(ts_tensor_read_i64(offsets, i, 1, &start, error));
        snprintf(key, sizeof key, "%" PRIu64, i);
        before = ts_torch_enter(torch, key, strlen(key));
        for (size_t k = 0; k < columns; k++) {
            view.shape[k] = (uint64_t)row[k];
            if (row[k] < 0 || view.strides[k] < 0)
                status = ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET, "has a negative size or stride");
        }
        if (status == TS_OK && (start < 0 || !ts_mul((uint64_t)start, ts_type_info(view.type)->block_bytes, &bytes) ||
                                !ts_add(view.offset, bytes, &view.offset)))
            status = ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET, "its offset in the storage is out of range");
        if (status == TS_OK)
            status = ts_torch_emit_view(torch, &view, &tensor, &why);
        if (status != TS_OK && ends_file(torch, status))
            *error = why;
        else if (status != TS_OK)
            status = ts_torch_skip(torch, &why, false, error);
        ts_torch_leave(torch, before);
        TS_TRY(status);
    }
    return TS_OK;
}

/* A subclass that keeps its data in attributes; the data of a distributed tensor's shard goes by the tensor's name. */
static enum ts_status emit_wrapper(struct ts_torch *torch, const struct ts_pickle_object *call, struct ts_error *error)
{
    struct ts_pickle_value class = ts_torch_argument(call, 0);
    char name[TS_TORCH_META_CUT], text[TS_TORCH_META_CUT + 2];
    if (class.kind != TS_PICKLE_GLOBAL)
        return TS_OK;
    ts_torch_global_text(class.global, name, sizeof name);
    snprintf(text, sizeof text, "<%s>", name);
    return ts_torch_meta(torch, text, strlen(text), error);
}

/* Kept out of emit_call, through which the walk recurses: a view takes a kilobyte of stack. */
__attribute__((noinline)) static enum ts_status emit_plain(struct ts_torch *torch, const struct ts_pickle_object *call,
                                                           struct ts_error *error)
{
    struct ts_torch_view view = {0};
    struct ts_tensor *tensor = NULL;
    TS_TRY(view_of_call(torch, call, 0, &view, error));
    if (ts_torch_known(call->callable) == TS_TORCH_REBUILD_QUANTIZED)
        return ts_torch_emit_quantized(torch, &view, ts_torch_argument(call, 4), error);
    return ts_torch_emit_view(torch, &view, &tensor, error);
}

static enum ts_status emit_call(struct ts_torch *torch, const struct ts_pickle_object *call, unsigned wrappers,
                                struct ts_error *error)
{
    struct ts_pickle_value inner_value;
    struct ts_pickle_object inner;
    if (wrappers > MAX_WRAPPERS)
        return ts_fail(error, TS_ERR_FORMAT, call->offset, "is wrapped more than %d times", MAX_WRAPPERS);
    switch (ts_torch_known(call->callable)) {
    case TS_TORCH_REBUILD_PARAMETER:
        inner_value = ts_torch_argument(call, 0);
        if (inner_value.kind != TS_PICKLE_OBJECT)
            return ts_fail(error, TS_ERR_FORMAT, call->offset, "is a parameter without a tensor");
        TS_TRY(emit_call(torch, inner_value.object, wrappers + 1, error));
        return ts_torch_walk_state(torch, ts_torch_argument(call, 3), error);
    case TS_TORCH_REBUILD_FROM_TYPE:
        TS_TRY(inner_call(call, &inner, error));
        TS_TRY(emit_call(torch, &inner, wrappers + 1, error));
        return ts_torch_walk_state(torch, ts_torch_argument(call, 3), error);
    case TS_TORCH_REBUILD_SPARSE:
    case TS_TORCH_REBUILD_SPARSE_CSR:
        return emit_sparse(torch, call, error);
    case TS_TORCH_REBUILD_NESTED:
        return emit_nested(torch, call, error);
    case TS_TORCH_REBUILD_WRAPPER:
        return emit_wrapper(torch, call, error);
    case TS_TORCH_REBUILD_META:
        return ts_fail(error, TS_ERR_UNSUPPORTED, call->offset,
                       "is a meta tensor: the file has its shape and no values");
    default:
        return emit_plain(torch, call, error);
    }
}

__attribute__((noinline)) static enum ts_status emit_storage(struct ts_torch *torch, struct ts_pickle_value value,
                                                             struct ts_error *error)
{
    struct ts_torch_view view = {.rank = 1};
    struct ts_tensor *tensor = NULL;
    TS_TRY(ts_torch_storage_of(torch, value, &view.storage, &view.dtype, &view.offset, &view.shape[0], error));
    view.source = view.storage->source;
    view.swapped = view.storage->swapped;
    view.type = view.dtype->code_pack > 1 ? TS_U8 : view.dtype->type; /* its size counts bytes */
    return ts_torch_emit_view(torch, &view, &tensor, error);
}

enum ts_status ts_torch_emit(struct ts_torch *torch, struct ts_pickle_value value, struct ts_error *error)
{
    struct ts_error why;
    enum ts_status status =
        value.kind == TS_PICKLE_PERSISTENT ? emit_storage(torch, value, &why) : emit_call(torch, value.object, 0, &why);
    if (status == TS_OK)
        return TS_OK;
    if (ends_file(torch, status)) {
        *error = why;
        return status;
    }
    return ts_torch_skip(torch, &why, false, error);
}
