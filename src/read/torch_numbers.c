/* Torch numbers: Python numbers as tensors. A number alone is a scalar; a list of numbers is one tensor, and lists of
 * lists are a matrix where they are rectangular, so that a training history is one tensor and not a million. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/system.h"
#include "read/torch.h"

#define MAX_LIST_RANK 16

/* Larger than this, the numbers go to the spool instead of the heap. */
#define HEAP_NUMBERS ((size_t)1 << 20)

enum number_class { IS_BOOL, IS_INT, IS_UINT, IS_BIG, IS_FLOAT, IS_COMPLEX };

struct number {
    enum number_class class;
    int64_t integer; /* IS_UINT: the bits of a uint64 */
    double real, imaginary;
};

/* What a list holds, gathered by one walk over it. */
struct survey {
    unsigned rank;
    bool rank_known;
    bool over; /* the step limit was reached */
    uint64_t shape[MAX_LIST_RANK];
    bool shape_known[MAX_LIST_RANK];
    bool any[IS_COMPLEX + 1];
    bool negative;
};

static void big_number(const struct ts_pickle_bytes *big, struct number *number)
{
    uint64_t sum = 0;
    number->class = IS_BIG;
    number->real = ts_pickle_big_to_double(big);
    if (big->decimal) {
        if (big->size > 20) /* the digits of 2^64 */
            return;
        for (uint64_t i = 0; i < big->size; i++)
            if (big->data[i] < '0' || big->data[i] > '9' || __builtin_mul_overflow(sum, 10u, &sum) ||
                __builtin_add_overflow(sum, (uint64_t)(big->data[i] - '0'), &sum))
                return;
    } else if (big->size == 9 && big->data[8] == 0) {
        sum = ts_load_le64(big->data);
    } else {
        return;
    }
    number->class = IS_UINT;
    number->integer = (int64_t)sum;
}

static bool numpy_number(struct ts_torch *torch, const struct ts_pickle_object *object, struct number *number)
{
    struct ts_torch_view view = {0};
    struct ts_error why;
    const uint8_t *data;
    double parts[2] = {0, 0};
    if (ts_torch_numpy_view(torch, object, &view, &why) != TS_OK)
        return false;
    data = view.source->data + view.offset;
    if (ts_type_is_integer(view.type)) {
        ts_type_decode_i64(view.type, view.swapped, data, 1, &number->integer);
        number->class = view.type == TS_BOOL ? IS_BOOL : IS_INT;
        if (view.type == TS_U64 && number->integer < 0)
            number->class = IS_UINT;
        number->real = number->class == IS_UINT ? (double)(uint64_t)number->integer : (double)number->integer;
        return true;
    }
    ts_type_decode_f64(view.type, view.swapped, data, 1, parts);
    number->class = ts_type_info(view.type)->components == 2 ? IS_COMPLEX : IS_FLOAT;
    number->real = parts[0];
    number->imaginary = parts[1];
    return true;
}

static bool plain_number(struct ts_pickle_value value, struct number *number)
{
    *number = (struct number){.class = IS_INT};
    switch (value.kind) {
    case TS_PICKLE_BOOL:
        number->class = IS_BOOL;
        number->integer = value.truth;
        number->real = value.truth;
        return true;
    case TS_PICKLE_INT:
        number->integer = value.integer;
        number->real = (double)value.integer;
        return true;
    case TS_PICKLE_FLOAT:
        number->class = IS_FLOAT;
        number->real = value.number;
        return true;
    case TS_PICKLE_BIG:
        big_number(value.bytes, number);
        return true;
    default:
        return false;
    }
}

static bool number_of(struct ts_torch *torch, struct ts_pickle_value value, struct number *number)
{
    struct number imaginary;
    if (value.kind != TS_PICKLE_OBJECT)
        return plain_number(value, number);
    switch (ts_torch_known(value.object->callable)) {
    case TS_TORCH_NUMPY_SCALAR:
        *number = (struct number){0};
        return numpy_number(torch, value.object, number);
    case TS_TORCH_COMPLEX:
        if (!plain_number(ts_torch_argument(value.object, 0), number) ||
            !plain_number(ts_torch_argument(value.object, 1), &imaginary))
            return false;
        number->class = IS_COMPLEX;
        number->imaginary = imaginary.real;
        return true;
    case TS_TORCH_CONVERSION:
        return plain_number(ts_torch_argument(value.object, 0), number);
    default:
        return false;
    }
}

static bool is_sequence(struct ts_pickle_value value)
{
    return value.kind == TS_PICKLE_LIST || value.kind == TS_PICKLE_TUPLE;
}

static uint64_t length_of(struct ts_pickle_value value)
{
    return value.kind == TS_PICKLE_TUPLE ? value.tuple->count : value.list->count;
}

/* One way to go through tuples, lists and sets. */
struct items {
    const struct ts_pickle_tuple *tuple;
    uint64_t at;
    struct ts_pickle_cursor cursor;
};

static struct items items_of(struct ts_pickle_value value)
{
    struct items items = {0};
    if (value.kind == TS_PICKLE_TUPLE)
        items.tuple = value.tuple;
    else
        items.cursor = ts_pickle_begin(value.list);
    return items;
}

static bool next_item(struct items *items, struct ts_pickle_value *value)
{
    if (!items->tuple)
        return ts_pickle_next(&items->cursor, value);
    if (items->at == items->tuple->count)
        return false;
    *value = items->tuple->items[items->at++];
    return true;
}

/* True when everything below is numbers in a rectangle. */
static bool survey_value(struct ts_torch *torch, struct ts_pickle_value value, unsigned level, struct survey *survey)
{
    struct number number;
    if (++torch->steps > torch->step_limit) {
        survey->over = true;
        return false;
    }
    if (is_sequence(value) || (level == 0 && value.kind == TS_PICKLE_SET)) {
        uint64_t length = length_of(value);
        struct items items = items_of(value);
        struct ts_pickle_value item;
        if (length == 0 || level == MAX_LIST_RANK || (survey->rank_known && level >= survey->rank) ||
            (survey->shape_known[level] && survey->shape[level] != length))
            return false;
        survey->shape[level] = length;
        survey->shape_known[level] = true;
        while (next_item(&items, &item))
            if (!survey_value(torch, item, level + 1, survey))
                return false;
        return true;
    }
    if (level == 0 || !number_of(torch, value, &number) || (survey->rank_known && survey->rank != level))
        return false;
    survey->rank = level;
    survey->rank_known = true;
    survey->any[number.class] = true;
    survey->negative |= number.class == IS_INT && number.integer < 0;
    return true;
}

static enum ts_type type_of(const struct survey *survey)
{
    if (survey->any[IS_COMPLEX])
        return TS_C128;
    if (survey->any[IS_FLOAT] || survey->any[IS_BIG] || (survey->any[IS_UINT] && survey->negative))
        return TS_F64;
    if (survey->any[IS_UINT])
        return TS_U64;
    return survey->any[IS_INT] ? TS_I64 : TS_BOOL;
}

static bool append_number(struct ts_buffer *out, enum ts_type type, const struct number *number)
{
    float single = (float)number->real;
    uint8_t truth = number->integer != 0;
    switch (type) {
    case TS_C128:
        return ts_buffer_append(out, &number->real, 8) && ts_buffer_append(out, &number->imaginary, 8);
    case TS_F64:
        return ts_buffer_append(out, &number->real, 8);
    case TS_F32:
        return ts_buffer_append(out, &single, 4);
    case TS_BOOL:
        return ts_buffer_append(out, &truth, 1);
    default:
        return ts_buffer_append(out, &number->integer, 8);
    }
}

/* The survey has seen it all, so depth and kinds hold. */
static bool append_values(struct ts_torch *torch, struct ts_buffer *out, enum ts_type type,
                          struct ts_pickle_value value)
{
    struct items items;
    struct ts_pickle_value item;
    struct number number;
    if (value.kind != TS_PICKLE_TUPLE && value.kind != TS_PICKLE_LIST && value.kind != TS_PICKLE_SET)
        return number_of(torch, value, &number) && append_number(out, type, &number);
    items = items_of(value);
    while (next_item(&items, &item))
        if (!append_values(torch, out, type, item))
            return false;
    return true;
}

static enum ts_status too_many(struct ts_torch *torch, struct ts_error *error)
{
    torch->over = true;
    return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "expands to more than %" PRIu64 " values", torch->step_limit);
}

/* A tensor under the current name whose values are about to be appended to the numbers. */
static enum ts_status add_pending(struct ts_torch *torch, enum ts_type type, unsigned rank, const uint64_t *shape,
                                  struct ts_tensor **tensor, struct ts_error *error)
{
    if (torch->pending_count == torch->pending_capacity) {
        size_t more = torch->pending_capacity ? torch->pending_capacity * 2 : 64;
        void *moved = ts_reallocarray(torch->pending, more, sizeof *torch->pending);
        if (!moved)
            return ts_fail_memory(error);
        torch->pending = moved;
        torch->pending_capacity = more;
    }
    TS_TRY(ts_torch_add(torch, rank, tensor, error));
    (*tensor)->type = type;
    if (rank)
        memcpy((*tensor)->shape, shape, rank * sizeof *shape);
    torch->pending[torch->pending_count++] =
        (struct ts_torch_pending){.tensor = *tensor, .offset = torch->numbers.size};
    return TS_OK;
}

static enum ts_status add_scalar(struct ts_torch *torch, const struct number *number, struct ts_error *error)
{
    static const enum ts_type types[] = {TS_BOOL, TS_I64, TS_U64, TS_F64, TS_F64, TS_C128};
    struct ts_tensor *tensor;
    struct ts_error why;
    if (++torch->scalars > TS_TORCH_MAX_SCALARS) {
        if (torch->scalars > TS_TORCH_MAX_SCALARS + 1)
            return TS_OK;
        ts_fail(&why, TS_ERR_LIMIT, TS_NO_OFFSET, "has more than %d Python numbers; those from here on are not listed",
                TS_TORCH_MAX_SCALARS);
        return ts_torch_skip(torch, &why, false, error);
    }
    TS_TRY(add_pending(torch, types[number->class], 0, NULL, &tensor, error));
    torch->emitted--; /* numbers have that bound of their own */
    return append_number(&torch->numbers, types[number->class], number) ? TS_OK : too_many(torch, error);
}

enum ts_status ts_torch_numbers(struct ts_torch *torch, struct ts_pickle_value value, bool *done,
                                struct ts_error *error)
{
    struct survey survey = {0};
    struct number number;
    struct ts_tensor *tensor;
    enum ts_type type;
    *done = false;
    if (!is_sequence(value) && value.kind != TS_PICKLE_SET) {
        if (!number_of(torch, value, &number) || number.class == IS_BIG)
            return TS_OK;
        *done = true;
        return add_scalar(torch, &number, error);
    }
    if (!survey_value(torch, value, 0, &survey))
        return survey.over ? too_many(torch, error) : TS_OK;
    *done = true;
    type = type_of(&survey);
    TS_TRY(add_pending(torch, type, survey.rank, survey.shape, &tensor, error));
    if (type == TS_F64 && (survey.any[IS_BIG] || survey.any[IS_UINT]))
        TS_TRY(ts_bundle_attribute(torch->bundle, tensor, "note", "Python integers beyond 64 bits, rounded", error));
    return append_values(torch, &torch->numbers, type, value) ? TS_OK : too_many(torch, error);
}

/* {"data": [...], "shape": [...]}, as programs without numpy write tensors. */
static enum ts_status mock_tensor(struct ts_torch *torch, const struct ts_pickle_list *list, bool *done,
                                  struct ts_error *error)
{
    struct ts_pickle_cursor cursor = ts_pickle_begin(list);
    struct ts_pickle_value key, item, data = {0}, shape = {0};
    struct survey survey = {0};
    struct ts_tensor *tensor;
    struct ts_error why;
    uint64_t sizes[TS_MAX_RANK], count = 1, written = 1;
    unsigned rank = 0;
    while (ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &item)) {
        if (ts_pickle_equals(key, "data"))
            data = item;
        else if (ts_pickle_equals(key, "shape"))
            shape = item;
    }
    if (!is_sequence(data) || !is_sequence(shape) || ts_torch_sizes(shape, "shape", &rank, sizes, &why) != TS_OK)
        return TS_OK;
    if (!survey_value(torch, data, 0, &survey))
        return survey.over ? too_many(torch, error) : TS_OK;
    for (unsigned i = 0; i < rank; i++)
        if (!ts_mul(count, sizes[i], &count))
            return TS_OK;
    for (unsigned i = 0; i < survey.rank; i++)
        if (!ts_mul(written, survey.shape[i], &written))
            return TS_OK;
    if (count != written || survey.any[IS_COMPLEX])
        return TS_OK;
    *done = true;
    TS_TRY(add_pending(torch, TS_F32, rank, sizes, &tensor, error));
    return append_values(torch, &torch->numbers, TS_F32, data) ? TS_OK : too_many(torch, error);
}

/* Many keys with a number each. */
static enum ts_status keyed_numbers(struct ts_torch *torch, const struct ts_pickle_list *list, bool *done,
                                    struct ts_error *error)
{
    struct ts_pickle_cursor cursor = ts_pickle_begin(list);
    struct ts_pickle_value key, value;
    struct survey survey = {0};
    struct ts_tensor *tensor;
    struct ts_buffer keys;
    uint64_t count = list->count / 2;
    enum ts_status status;
    while (ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &value))
        if (!survey_value(torch, value, 1, &survey) || survey.rank != 1)
            return survey.over ? too_many(torch, error) : TS_OK;
    *done = true;
    TS_TRY(add_pending(torch, type_of(&survey), 1, &count, &tensor, error));
    ts_buffer_init(&keys, (size_t)64 << 10);
    ts_buffer_printf(&keys, "%" PRIu64 " keys: ", count);
    cursor = ts_pickle_begin(list);
    for (uint64_t i = 0; ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &value); i++) {
        if (i < 8 && keys.size < TS_TORCH_META_CUT) {
            ts_torch_describe(&keys, key, 1);
            ts_buffer_string(&keys, ", ");
        }
        if (!append_values(torch, &torch->numbers, tensor->type, value)) {
            ts_buffer_release(&keys);
            return too_many(torch, error);
        }
    }
    ts_buffer_string(&keys, "...");
    status = keys.failed || memchr(keys.data, '\0', keys.size)
                 ? TS_OK
                 : ts_bundle_attribute(torch->bundle, tensor, "keys", keys.data, error);
    ts_buffer_release(&keys);
    return status;
}

enum ts_status ts_torch_number_dict(struct ts_torch *torch, const struct ts_pickle_list *list, bool *done,
                                    struct ts_error *error)
{
    *done = false;
    if (list && list->count == 4)
        return mock_tensor(torch, list, done, error);
    if (list && list->count / 2 >= TS_TORCH_MANY_KEYS)
        return keyed_numbers(torch, list, done, error);
    return TS_OK;
}

enum ts_status ts_torch_number_list(struct ts_torch *torch, struct ts_pickle_value value, struct ts_torch_view *view,
                                    struct ts_error *error)
{
    struct survey survey = {0};
    struct ts_buffer numbers;
    enum ts_status status;
    if (!survey_value(torch, value, 0, &survey))
        return survey.over ? too_many(torch, error)
                           : ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "a list of numbers is expected here");
    view->type = type_of(&survey);
    view->swapped = false;
    view->rank = survey.rank;
    memcpy(view->shape, survey.shape, survey.rank * sizeof *view->shape);
    ts_buffer_init(&numbers, TS_PICKLE_MEMORY);
    if (append_values(torch, &numbers, view->type, value)) {
        status = ts_source_copy(numbers.data, numbers.size, torch->input->source->path, &view->source, error);
        if (status == TS_OK) {
            status = ts_bundle_keep(torch->bundle, view->source, error);
            ts_source_release(view->source);
        }
    } else {
        status = too_many(torch, error);
    }
    ts_buffer_release(&numbers);
    return status;
}

enum ts_status ts_torch_finish_numbers(struct ts_torch *torch, struct ts_error *error)
{
    struct ts_source *source = NULL;
    const char *path = torch->input->source->path;
    enum ts_status status;
    if (!torch->pending_count)
        return TS_OK;
    if (torch->numbers.size <= HEAP_NUMBERS) {
        TS_TRY(ts_source_copy(torch->numbers.data, torch->numbers.size, path, &source, error));
    } else {
        uint8_t *room = NULL;
        TS_TRY(ts_spool_reserve(torch->input->spool, torch->numbers.size, &room, error));
        memcpy(room, torch->numbers.data, torch->numbers.size);
        TS_TRY(ts_spool_source(torch->input->spool, room, torch->numbers.size, path, &source, error));
    }
    status = ts_bundle_keep(torch->bundle, source, error);
    ts_source_release(source);
    for (size_t i = 0; status == TS_OK && i < torch->pending_count; i++) {
        struct ts_tensor *tensor = torch->pending[i].tensor;
        tensor->source = source;
        tensor->offset = torch->pending[i].offset;
        status = ts_tensor_finish(tensor, error);
    }
    return status;
}
