/* Owns the checks that make a tensor's span trustworthy, and the walk from flat indices to bytes. */
#include "tensor/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static enum ts_status finish_coded(struct ts_tensor *tensor, struct ts_error *error)
{
    if (!tensor->codec || !tensor->part_count)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a coded tensor has no parts");
    tensor->bytes = 0;
    for (size_t i = 0; i < tensor->part_count; i++)
        if (tensor->parts[i] && !ts_add(tensor->bytes, tensor->parts[i]->bytes, &tensor->bytes))
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its parts are larger than any file");
    return TS_OK;
}

/* The lowest and highest element index that the strides reach, relative to offset. */
static bool stride_reach(const struct ts_tensor *tensor, int64_t *lowest, int64_t *highest)
{
    *lowest = *highest = 0;
    for (unsigned i = 0; i < tensor->rank; i++) {
        int64_t step, last;
        if (tensor->shape[i] == 0 || tensor->shape[i] - 1 > INT64_MAX)
            return false;
        last = (int64_t)(tensor->shape[i] - 1);
        if (__builtin_mul_overflow(tensor->strides[i], last, &step) ||
            __builtin_add_overflow(step < 0 ? *lowest : *highest, step, step < 0 ? lowest : highest))
            return false;
    }
    return true;
}

/* Strides that say no more than row-major order does are dropped, so that the fast path is taken. */
static void drop_plain_strides(struct ts_tensor *tensor)
{
    uint64_t expected = 1;
    for (unsigned i = tensor->rank; i-- > 0;) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != (int64_t)expected)
            return;
        expected *= tensor->shape[i]; /* fits: the product was checked */
    }
    tensor->strides = NULL;
}

#define MOST_VISITS 4096

/* Elements without those along axes of stride 0. */
static uint64_t distinct_count(const struct ts_tensor *tensor)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < tensor->rank; i++)
        if (tensor->strides[i] != 0)
            count *= tensor->shape[i]; /* fits: the whole product was checked */
    return count;
}

static enum ts_status finish_strided(struct ts_tensor *tensor, struct ts_error *error)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    int64_t lowest, highest;
    uint64_t below, span;
    if (info->block_elements != 1)
        return ts_fail(error, TS_ERR_UNSUPPORTED, tensor->offset, "strides over the packed type %s", info->name);
    if (!stride_reach(tensor, &lowest, &highest) || lowest == INT64_MIN ||
        !ts_mul((uint64_t)-lowest, info->block_bytes, &below) ||
        !ts_mul((uint64_t)highest + (uint64_t)-lowest + 1, info->block_bytes, &span))
        return ts_fail(error, TS_ERR_FORMAT, tensor->offset, "strides reach further than any file");
    if (below > tensor->offset)
        return ts_fail(error, TS_ERR_FORMAT, tensor->offset,
                       "negative strides reach %" PRIu64 " bytes before the start of the data", below - tensor->offset);
    tensor->span_offset = tensor->offset - below;
    tensor->bytes = span;
    /* axes that repeat (stride 0) aside, a window over data visits each number a few thousand times at most; more is an
     * attempt to make every reader walk for ever */
    if (distinct_count(tensor) / MOST_VISITS > span / info->block_bytes)
        return ts_fail(error, TS_ERR_LIMIT, tensor->offset, "its strides visit the same bytes more than %d times",
                       MOST_VISITS);
    return TS_OK;
}

enum ts_status ts_tensor_finish(struct ts_tensor *tensor, struct ts_error *error)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    if (tensor->rank > TS_MAX_RANK)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "has %u axes; this program goes up to %d", tensor->rank,
                       TS_MAX_RANK);
    tensor->count = 1;
    /* Zeros first: a shape such as [2^40, 2^40, 0] is empty, not too large. */
    for (unsigned i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 0)
            tensor->count = 0;
    for (unsigned i = 0; tensor->count && i < tensor->rank; i++)
        if (!ts_mul(tensor->count, tensor->shape[i], &tensor->count) || tensor->count > INT64_MAX)
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its shape has more than 2^63 elements");
    if (tensor->type == TS_CODED)
        return finish_coded(tensor, error);
    if (!tensor->source)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a tensor has no source");
    if (ts_type_is_block(tensor->type) && tensor->count &&
        (tensor->rank == 0 || tensor->shape[tensor->rank - 1] % info->block_elements != 0))
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "rows of %" PRIu64 " elements are not whole blocks of %u, as %s needs",
                       tensor->rank ? tensor->shape[tensor->rank - 1] : 1, info->block_elements, info->name);
    if (tensor->count == 0)
        tensor->strides = NULL;
    if (tensor->strides)
        drop_plain_strides(tensor);
    if (tensor->strides) {
        TS_TRY(finish_strided(tensor, error));
    } else {
        tensor->span_offset = tensor->offset;
        if (!ts_type_bytes(tensor->type, tensor->count, &tensor->bytes))
            return ts_fail(error, TS_ERR_FORMAT, tensor->offset, "is larger than any file");
    }
    if (!ts_span_fits(tensor->span_offset, tensor->bytes, tensor->source->size))
        return ts_fail(error, TS_ERR_FORMAT, tensor->span_offset,
                       "truncated: needs %" PRIu64 " bytes from here, the file has %" PRIu64 " more", tensor->bytes,
                       tensor->span_offset < tensor->source->size ? tensor->source->size - tensor->span_offset : 0);
    return TS_OK;
}

bool ts_tensor_same_shape(const struct ts_tensor *a, const struct ts_tensor *b)
{
    return a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

bool ts_tensor_is_contiguous(const struct ts_tensor *tensor)
{
    return tensor->type != TS_CODED && !tensor->strides;
}

const uint8_t *ts_tensor_bytes(const struct ts_tensor *tensor)
{
    return ts_tensor_is_contiguous(tensor) ? tensor->source->data + tensor->offset : NULL;
}

void ts_tensor_look(const struct ts_tensor *tensor, uint64_t first, uint64_t count)
{
    if (count && tensor->source)
        ts_source_look(tensor->source,
                       tensor->offset + (uint64_t)((double)first / (double)count * (double)tensor->bytes));
}

static enum ts_status check_range(const struct ts_tensor *tensor, uint64_t first, size_t count, struct ts_error *error)
{
    if (!ts_span_fits(first, count, tensor->count)) {
        ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "elements %" PRIu64 " to %" PRIu64 " of %" PRIu64 " were asked for",
                first, first + count, tensor->count);
        return ts_error_tensor(error, tensor->name);
    }
    return TS_OK;
}

enum precision { AS_F32, AS_F64, AS_I64 };

static void decode(enum precision as, const struct ts_tensor *tensor, const uint8_t *src, size_t count, void *out)
{
    if (as == AS_F32)
        ts_type_decode_f32(tensor->type, tensor->swapped, src, count, out);
    else if (as == AS_F64)
        ts_type_decode_f64(tensor->type, tensor->swapped, src, count, out);
    else
        ts_type_decode_i64(tensor->type, tensor->swapped, src, count, out);
}

static size_t out_size(enum precision as, const struct ts_type_info *info)
{
    return (as == AS_F32 ? sizeof(float) : sizeof(double)) * info->components;
}

/* Contiguous: from the block that holds `first`. Only the first block may need a detour. */
static void read_contiguous(enum precision as, const struct ts_tensor *tensor, uint64_t first, size_t count, char *out)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    const uint8_t *src = tensor->source->data + tensor->offset + first / info->block_elements * info->block_bytes;
    size_t skip = (size_t)(first % info->block_elements);
    if (skip) {
        union {
            float f32[256];
            double f64[256];
            int64_t i64[256];
        } block; /* no type has larger blocks */
        size_t now = info->block_elements - skip < count ? info->block_elements - skip : count;
        decode(as, tensor, src, skip + now, &block);
        memcpy(out, (char *)&block + skip * out_size(as, info), now * out_size(as, info));
        out += now * out_size(as, info);
        count -= now;
        src += info->block_bytes;
    }
    if (count)
        decode(as, tensor, src, count, out);
}

/* Strided: split the flat index into coordinates once, then run along the last axis. The element index wraps on the way
 * when an axis of one element has a stride that no file could hold; where an element is read it is right again. */
static void read_strided(enum precision as, const struct ts_tensor *tensor, uint64_t first, size_t count, char *out)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    const uint8_t *base = tensor->source->data + tensor->offset;
    const unsigned last = tensor->rank - 1;
    const size_t size = out_size(as, info);
    uint64_t at[TS_MAX_RANK], index = 0;
    for (unsigned i = tensor->rank; i-- > 0;) {
        at[i] = first % tensor->shape[i];
        first /= tensor->shape[i];
        index += at[i] * (uint64_t)tensor->strides[i];
    }
    while (count) {
        uint64_t left = tensor->shape[last] - at[last];
        size_t now = left < count ? (size_t)left : count;
        if (tensor->strides[last] == 1) {
            decode(as, tensor, base + (int64_t)index * info->block_bytes, now, out);
            index += now;
        } else {
            for (size_t i = 0; i < now; i++, index += (uint64_t)tensor->strides[last])
                decode(as, tensor, base + (int64_t)index * info->block_bytes, 1, out + i * size);
        }
        out += now * size;
        count -= now;
        at[last] += now;
        for (unsigned i = last; at[i] == tensor->shape[i] && i > 0; i--) { /* carry into the next axis up */
            index += (uint64_t)tensor->strides[i - 1] - tensor->shape[i] * (uint64_t)tensor->strides[i];
            at[i] = 0;
            at[i - 1]++;
        }
    }
}

static enum ts_status read_plain(enum precision as, const struct ts_tensor *tensor, uint64_t first, size_t count,
                                 void *out, struct ts_error *error)
{
    TS_TRY(check_range(tensor, first, count, error));
    if (!count)
        return TS_OK;
    ts_tensor_look(tensor, first, tensor->count);
    if (tensor->strides)
        read_strided(as, tensor, first, count, out);
    else
        read_contiguous(as, tensor, first, count, out);
    return TS_OK;
}

enum ts_status ts_tensor_read_f32(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                                  struct ts_error *error)
{
    if (tensor->type != TS_CODED)
        return read_plain(AS_F32, tensor, first, count, out, error);
    TS_TRY(check_range(tensor, first, count, error));
    return count ? tensor->codec->read_f32(tensor, first, count, out, error) : TS_OK;
}

enum ts_status ts_tensor_read_f64(const struct ts_tensor *tensor, uint64_t first, size_t count, double *out,
                                  struct ts_error *error)
{
    if (tensor->type != TS_CODED)
        return read_plain(AS_F64, tensor, first, count, out, error);
    while (count) {
        float part[1024];
        size_t now = count < 1024 ? count : 1024;
        TS_TRY(ts_tensor_read_f32(tensor, first, now, part, error));
        for (size_t i = 0; i < now; i++)
            out[i] = (double)part[i];
        first += now;
        out += now;
        count -= now;
    }
    return TS_OK;
}

enum ts_status ts_tensor_read_i64(const struct ts_tensor *tensor, uint64_t first, size_t count, int64_t *out,
                                  struct ts_error *error)
{
    if (!ts_type_is_integer(tensor->type)) {
        ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "type %s holds no integers", ts_tensor_type_name(tensor));
        return ts_error_tensor(error, tensor->name);
    }
    return read_plain(AS_I64, tensor, first, count, out, error);
}

/* Significant decimal digits that a float of m stored mantissa bits needs to be told from its neighbours:
 * 2 + floor((m + 1) * log10 2). */
static int round_trip_digits(const struct ts_tensor *tensor)
{
    int bits = ts_type_info(tensor->type)->mantissa_bits;
    if (bits < 0)
        bits = 23;
    if (bits > 52)
        bits = 52;
    return 2 + (int)((bits + 1) * 0.30103);
}

static void append_number(struct ts_buffer *out, double value, int precision)
{
    if (isnan(value))
        ts_buffer_string(out, "nan");
    else if (isinf(value))
        ts_buffer_string(out, value < 0 ? "-inf" : "inf");
    else
        ts_buffer_printf(out, "%.*g", precision, value);
}

enum ts_status ts_tensor_element_text(const struct ts_tensor *tensor, uint64_t index, int precision,
                                      struct ts_buffer *out, struct ts_error *error)
{
    double value[2];
    if (ts_type_is_integer(tensor->type)) {
        int64_t whole;
        TS_TRY(ts_tensor_read_i64(tensor, index, 1, &whole, error));
        if (tensor->type == TS_BOOL)
            ts_buffer_string(out, whole ? "true" : "false");
        else if (tensor->type == TS_U64)
            ts_buffer_printf(out, "%" PRIu64, (uint64_t)whole);
        else
            ts_buffer_printf(out, "%" PRId64, whole);
        return TS_OK;
    }
    if (precision <= 0)
        precision = round_trip_digits(tensor);
    TS_TRY(ts_tensor_read_f64(tensor, index, 1, value, error));
    append_number(out, value[0], precision);
    if (ts_type_info(tensor->type)->components == 2) {
        if (!signbit(value[1]) || isnan(value[1]))
            ts_buffer_byte(out, '+');
        append_number(out, value[1], precision);
        ts_buffer_byte(out, 'i');
    }
    return TS_OK;
}

bool ts_same_sizes(const uint64_t *a, unsigned rank_a, const uint64_t *b, unsigned rank_b)
{
    unsigned i = 0, k = 0;
    for (;; i++, k++) {
        while (i < rank_a && a[i] == 1)
            i++;
        while (k < rank_b && b[k] == 1)
            k++;
        if (i == rank_a || k == rank_b)
            return i == rank_a && k == rank_b;
        if (a[i] != b[k])
            return false;
    }
}

void ts_tensor_shape_text(const struct ts_tensor *tensor, struct ts_buffer *out)
{
    ts_buffer_byte(out, '[');
    for (unsigned i = 0; i < tensor->rank; i++)
        ts_buffer_printf(out, "%s%" PRIu64, i ? "," : "", tensor->shape[i]);
    ts_buffer_byte(out, ']');
}

const char *ts_tensor_type_name(const struct ts_tensor *tensor)
{
    return tensor->type == TS_CODED && tensor->codec ? tensor->codec->name : ts_type_info(tensor->type)->name;
}

const char *ts_tensor_attribute(const struct ts_tensor *tensor, const char *key)
{
    for (const struct ts_attribute *a = tensor->attributes; a; a = a->next)
        if (strcmp(a->key, key) == 0)
            return a->value;
    return NULL;
}
