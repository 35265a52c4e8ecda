/* Torch numpy: arrays and scalars of numpy inside of pickles, from the calls that would rebuild them. */
#include <inttypes.h>
#include <string.h>

#include "base/number.h"
#include "read/torch.h"

struct element {
    enum ts_type type;
    bool swapped;
};

bool ts_torch_is_numpy(enum ts_torch_known known)
{
    return known == TS_TORCH_NUMPY_ARRAY || known == TS_TORCH_NUMPY_BUFFER || known == TS_TORCH_NUMPY_SCALAR;
}

/* "f4", "<i8", "|b1". */
static enum ts_status type_of_code(struct ts_pickle_bytes *code, struct element *element, struct ts_error *error)
{
    static const struct {
        const char *code;
        enum ts_type type;
    } codes[] = {
        {"f4", TS_F32},  {"f8", TS_F64}, {"f2", TS_F16},   {"f16", TS_F80}, {"i8", TS_I64}, {"i4", TS_I32},
        {"i2", TS_I16},  {"i1", TS_I8},  {"u8", TS_U64},   {"u4", TS_U32},  {"u2", TS_U16}, {"u1", TS_U8},
        {"b1", TS_BOOL}, {"c8", TS_C64}, {"c16", TS_C128}, {"M8", TS_I64},  {"m8", TS_I64}, {"?", TS_BOOL},
    };
    const char *text = (const char *)code->data;
    size_t size = (size_t)code->size;
    if (size && memchr("<>|=", text[0], 4)) {
        element->swapped = text[0] == '>';
        text++;
        size--;
    }
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strlen(codes[i].code) == size && memcmp(codes[i].code, text, size) == 0) {
            element->type = codes[i].type;
            return TS_OK;
        }
    if (size && text[0] == 'O')
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "is a numpy array of Python objects");
    if (size && (text[0] == 'S' || text[0] == 'U' || text[0] == 'a'))
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "is a numpy array of strings");
    if (size && text[0] == 'V')
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "is a numpy array of records");
    return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "has numpy type \"%.*s\", which this program does not know",
                   size > 32 ? 32 : (int)size, text);
}

/* Types that other packages add to numpy: ml_dtypes, one element per byte or two. */
static enum ts_status type_of_class(const struct ts_pickle_global *class, struct element *element,
                                    struct ts_error *error)
{
    static const struct {
        const char *name;
        enum ts_type type;
    } names[] = {
        {"bfloat16", TS_BF16},
        {"float8_e4m3fn", TS_F8_E4M3},
        {"float8_e5m2", TS_F8_E5M2},
        {"float8_e4m3fnuz", TS_F8_E4M3FNUZ},
        {"float8_e5m2fnuz", TS_F8_E5M2FNUZ},
        {"float8_e4m3b11fnuz", TS_F8_E4M3B11FNUZ},
        {"float8_e8m0fnu", TS_F8_E8M0},
        {"float8_e3m4", TS_F8_E3M4},
        {"int4", TS_I8},
        {"uint4", TS_U8},
        {"int2", TS_I8},
        {"uint2", TS_U8},
        {"float16", TS_F16},
        {"float32", TS_F32},
        {"float64", TS_F64},
        {"int8", TS_I8},
        {"int16", TS_I16},
        {"int32", TS_I32},
        {"int64", TS_I64},
        {"uint8", TS_U8},
        {"uint16", TS_U16},
        {"uint32", TS_U32},
        {"uint64", TS_U64},
        {"bool_", TS_BOOL},
        {"complex64", TS_C64},
        {"complex128", TS_C128},
    };
    char text[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ts_pickle_is_global(class, "ml_dtypes", names[i].name) ||
            ts_pickle_is_global(class, "numpy", names[i].name) ||
            ts_pickle_is_global(class, "jaxlib.xla_extension", names[i].name)) {
            element->type = names[i].type;
            return TS_OK;
        }
    ts_torch_global_text(class, text, sizeof text);
    return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "has numpy type %s, which this program does not know",
                   text);
}

/* numpy.dtype('f4', False, True) with the state (3, '<', None, None, None, -1, -1, 0). */
static enum ts_status element_of(struct ts_pickle_value value, struct element *element, struct ts_error *error)
{
    struct ts_pickle_value code;
    element->swapped = false;
    if (value.kind != TS_PICKLE_OBJECT || ts_torch_known(value.object->callable) != TS_TORCH_NUMPY_DTYPE)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its numpy type is not a numpy.dtype");
    code = ts_torch_argument(value.object, 0);
    if (code.kind == TS_PICKLE_TEXT || code.kind == TS_PICKLE_STRING)
        TS_TRY(type_of_code(code.bytes, element, error));
    else if (code.kind == TS_PICKLE_GLOBAL)
        TS_TRY(type_of_class(code.global, element, error));
    else
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its numpy type has no name");
    if (value.object->state.kind == TS_PICKLE_TUPLE && value.object->state.tuple->count >= 4) {
        const struct ts_pickle_value *state = value.object->state.tuple->items;
        element->swapped = ts_pickle_equals(state[1], ">");
        if (state[2].kind != TS_PICKLE_NONE || state[3].kind != TS_PICKLE_NONE)
            return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "is a numpy array of records");
    }
    if (ts_type_info(element->type)->block_bytes / ts_type_info(element->type)->components == 1)
        element->swapped = false;
    return TS_OK;
}

/* Fills in type and bytes, and checks that they are all there. */
static enum ts_status attach(struct ts_torch *torch, struct ts_pickle_value dtype, struct ts_pickle_value data,
                             struct ts_torch_view *view, struct ts_error *error)
{
    struct element element = {TS_U8, false};
    uint64_t size = 0, count = 1, need;
    TS_TRY(element_of(dtype, &element, error));
    if (data.kind == TS_PICKLE_LIST)
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "is a numpy array of Python objects");
    TS_TRY(ts_torch_bytes_of(torch, data, &view->source, &view->offset, &size, error));
    view->type = element.type;
    view->swapped = element.swapped;
    for (unsigned i = 0; i < view->rank; i++)
        if (view->shape[i] == 0)
            count = 0;
    for (unsigned i = 0; count && i < view->rank; i++)
        if (!ts_mul(count, view->shape[i], &count))
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its shape has more than 2^63 elements");
    if (!ts_mul(count, ts_type_info(view->type)->block_bytes, &need) || need > size)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "its shape has %" PRIu64 " elements of type %s, the pickle holds %" PRIu64 " bytes", count,
                       ts_type_info(view->type)->name, size);
    return TS_OK;
}

/* Strides of an array whose axes vary in the order given: order[rank - 1] fastest. The product fits: attach has seen
 * it, and where the array is empty strides do not matter. */
static void set_strides(struct ts_torch_view *view, const unsigned *order)
{
    uint64_t step = 1;
    for (unsigned i = view->rank; i-- > 0;) {
        view->strides[order[i]] = (int64_t)step;
        step *= view->shape[order[i]];
    }
    view->strided = true;
}

static void set_fortran(struct ts_torch_view *view)
{
    unsigned order[TS_MAX_RANK];
    for (unsigned i = 0; i < view->rank; i++)
        order[i] = view->rank - 1 - i;
    set_strides(view, order);
}

/* order 'K': the bytes are a C array of the shape given, and its axes were then transposed. */
static enum ts_status set_transposed(struct ts_torch_view *view, struct ts_pickle_value axes, struct ts_error *error)
{
    uint64_t axis[TS_MAX_RANK], shape[TS_MAX_RANK], seen = 0; /* a bit for each axis */
    unsigned order[TS_MAX_RANK], rank = 0;
    TS_TRY(ts_torch_sizes(axes, "axis order", &rank, axis, error));
    if (rank != view->rank)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "has %u axes and an order for %u", view->rank, rank);
    for (unsigned i = 0; i < rank; i++) {
        if (axis[i] >= rank || seen >> axis[i] & 1)
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its axis order is no permutation");
        seen |= (uint64_t)1 << axis[i];
        shape[i] = view->shape[axis[i]];
        order[axis[i]] = i; /* the axis that was axis[i] in the bytes is now axis i */
    }
    memcpy(view->shape, shape, rank * sizeof *shape);
    set_strides(view, order);
    return TS_OK;
}

static enum ts_status buffer_view(struct ts_torch *torch, const struct ts_pickle_object *call,
                                  struct ts_torch_view *view, struct ts_error *error)
{
    struct ts_pickle_value order = ts_torch_argument(call, 3);
    TS_TRY(ts_torch_sizes(ts_torch_argument(call, 2), "shape", &view->rank, view->shape, error));
    TS_TRY(attach(torch, ts_torch_argument(call, 1), ts_torch_argument(call, 0), view, error));
    if (ts_pickle_equals(order, "F"))
        set_fortran(view);
    else if (ts_pickle_equals(order, "K") && ts_torch_argument(call, 4).kind != TS_PICKLE_NONE)
        TS_TRY(set_transposed(view, ts_torch_argument(call, 4), error));
    return TS_OK;
}

/* The state of an array: (version, shape, dtype, is Fortran, bytes), without the version before numpy 0.9. */
static enum ts_status array_view(struct ts_torch *torch, const struct ts_pickle_object *call,
                                 struct ts_torch_view *view, struct ts_error *error)
{
    const struct ts_pickle_value *state;
    if (call->state.kind != TS_PICKLE_TUPLE || (call->state.tuple->count != 5 && call->state.tuple->count != 4))
        return ts_fail(error, TS_ERR_FORMAT, call->offset, "is a numpy array without its contents");
    state = call->state.tuple->items + (call->state.tuple->count - 4);
    TS_TRY(ts_torch_sizes(state[0], "shape", &view->rank, view->shape, error));
    TS_TRY(attach(torch, state[1], state[3], view, error));
    if ((state[2].kind == TS_PICKLE_BOOL && state[2].truth) || (state[2].kind == TS_PICKLE_INT && state[2].integer))
        set_fortran(view);
    return TS_OK;
}

enum ts_status ts_torch_numpy_view(struct ts_torch *torch, const struct ts_pickle_object *object,
                                   struct ts_torch_view *view, struct ts_error *error)
{
    enum ts_torch_known known = ts_torch_known(object->callable);
    if (known == TS_TORCH_NUMPY_ARRAY)
        return array_view(torch, object, view, error);
    if (known == TS_TORCH_NUMPY_BUFFER)
        return buffer_view(torch, object, view, error);
    return attach(torch, ts_torch_argument(object, 0), ts_torch_argument(object, 1), view, error);
}
