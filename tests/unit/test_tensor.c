/* What ts_tensor_finish lets through, and what is read from there: strides of every kind, starts inside blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "dice.h"
#include "tensor/bundle.h"
#include "tensor/tensor.h"

struct sample {
    struct ts_source *source;
    struct ts_tensor tensor;
    uint64_t shape[TS_MAX_RANK + 1];
    int64_t strides[TS_MAX_RANK + 1];
    struct ts_error error;
};

/* The source is a copy without room behind it, so that a sanitizer sees every byte too many. */
static enum ts_status make(struct sample *sample, enum ts_type type, const void *bytes, size_t size, uint64_t offset,
                           unsigned rank, const uint64_t *shape, const int64_t *strides)
{
    memset(sample, 0, sizeof *sample);
    sample->tensor = (struct ts_tensor){.name = "sample", .type = type, .rank = rank, .offset = offset};
    assert_int_equal(ts_source_copy(bytes, size, "sample", &sample->source, &sample->error), TS_OK);
    if (rank)
        memcpy(sample->shape, shape, rank * sizeof *shape);
    sample->tensor.shape = sample->shape;
    sample->tensor.source = sample->source;
    if (strides) {
        memcpy(sample->strides, strides, rank * sizeof *strides);
        sample->tensor.strides = sample->strides;
    }
    return ts_tensor_finish(&sample->tensor, &sample->error);
}

static void refused(enum ts_type type, size_t size, uint64_t offset, unsigned rank, const uint64_t *shape,
                    const int64_t *strides, enum ts_status status, const char *part)
{
    static const uint8_t zeros[4096];
    struct sample sample;
    assert_true(size <= sizeof zeros);
    assert_int_equal(make(&sample, type, zeros, size, offset, rank, shape, strides), status);
    if (!strstr(sample.error.message, part))
        fail_msg("\"%s\" does not say \"%s\"", sample.error.message, part);
    ts_source_release(sample.source);
}

static void accepted(enum ts_type type, size_t size, uint64_t offset, unsigned rank, const uint64_t *shape,
                     const int64_t *strides, uint64_t count, uint64_t bytes, uint64_t span_offset)
{
    static const uint8_t zeros[4096];
    struct sample sample;
    assert_true(size <= sizeof zeros);
    if (make(&sample, type, zeros, size, offset, rank, shape, strides) != TS_OK)
        fail_msg("%s", sample.error.message);
    assert_int_equal(sample.tensor.count, count);
    assert_int_equal(sample.tensor.bytes, bytes);
    assert_int_equal(sample.tensor.span_offset, span_offset);
    ts_source_release(sample.source);
}

#define SHAPE(...)   ((const uint64_t[]){__VA_ARGS__})
#define STRIDES(...) ((const int64_t[]){__VA_ARGS__})
#define MANY         (UINT64_C(1) << 40)

static void test_spans(void **state)
{
    (void)state;
    /* a window over data is fine; one that visits the same bytes for ever is not */
    accepted(TS_F32, 4096, 0, 2, SHAPE(500, 500), STRIDES(1, 1), 250000, 999 * 4, 0);
    refused(TS_F32, 4096, 0, 3, SHAPE(300, 300, 300), STRIDES(1, 1, 1), TS_ERR_LIMIT, "visit the same bytes");
    accepted(TS_F32, 24, 0, 2, SHAPE(2, 3), NULL, 6, 24, 0);
    accepted(TS_F32, 30, 5, 2, SHAPE(2, 3), NULL, 6, 24, 5);
    accepted(TS_F64, 8, 0, 0, NULL, NULL, 1, 8, 0); /* a scalar */
    accepted(TS_F32, 0, 0, 2, SHAPE(0, 4), NULL, 0, 0, 0);
    accepted(TS_F32, 10, 10, 1, SHAPE(0), NULL, 0, 0, 10); /* nothing, at the very end */
    accepted(TS_I4, 3, 0, 1, SHAPE(5), NULL, 5, 3, 0);
    refused(TS_F32, 23, 0, 2, SHAPE(2, 3), NULL, TS_ERR_FORMAT,
            "truncated: needs 24 bytes from here, the file has 23 more");
    refused(TS_F32, 28, 5, 2, SHAPE(2, 3), NULL, TS_ERR_FORMAT, "the file has 23 more");
    refused(TS_F32, 28, 29, 2, SHAPE(2, 3), NULL, TS_ERR_FORMAT, "the file has 0 more");
    refused(TS_F32, 28, UINT64_MAX, 2, SHAPE(2, 3), NULL, TS_ERR_FORMAT, "truncated");
    refused(TS_F32, 28, UINT64_MAX - 23, 2, SHAPE(2, 3), NULL, TS_ERR_FORMAT, "truncated"); /* the sum would be 0 */
    refused(TS_F32, 10, 11, 1, SHAPE(0), NULL, TS_ERR_FORMAT, "truncated");
    refused(TS_I4, 2, 0, 1, SHAPE(5), NULL, TS_ERR_FORMAT, "needs 3 bytes");
}

static void test_overflowing_shapes(void **state)
{
    uint64_t many[TS_MAX_RANK + 1];
    (void)state;
    refused(TS_U8, 8, 0, 2, SHAPE(MANY, MANY), NULL, TS_ERR_FORMAT, "more than 2^63 elements");
    refused(TS_U8, 8, 0, 2, SHAPE(UINT64_C(1) << 32, UINT64_C(1) << 32), NULL, TS_ERR_FORMAT, "2^63"); /* wraps to 0 */
    refused(TS_U8, 8, 0, 1, SHAPE(UINT64_MAX), NULL, TS_ERR_FORMAT, "2^63");
    refused(TS_U8, 8, 0, 3, SHAPE(3, UINT64_MAX / 3 + 2, 1), NULL, TS_ERR_FORMAT, "2^63"); /* wraps to 3 */
    refused(TS_F64, 8, 0, 1, SHAPE(UINT64_C(1) << 61), NULL, TS_ERR_FORMAT, "larger than any file");
    refused(TS_C128, 8, 0, 1, SHAPE(UINT64_C(1) << 62), NULL, TS_ERR_FORMAT, "larger than any file");
    refused(TS_U8, 8, 0, 1, SHAPE(INT64_MAX), NULL, TS_ERR_FORMAT, "truncated");
    accepted(TS_U8, 0, 0, 3, SHAPE(MANY, MANY, 0), NULL, 0, 0, 0); /* empty, not too large */
    accepted(TS_U8, 0, 0, 3, SHAPE(0, MANY, MANY), NULL, 0, 0, 0);
    for (unsigned i = 0; i <= TS_MAX_RANK; i++)
        many[i] = 1;
    accepted(TS_U8, 1, 0, TS_MAX_RANK, many, NULL, 1, 1, 0);
    refused(TS_U8, 1, 0, TS_MAX_RANK + 1, many, NULL, TS_ERR_LIMIT, "has 65 axes");
}

static void test_whole_blocks(void **state)
{
    const enum ts_type q8 = ts_type_of_block(TS_BLOCK_Q8_0), q4k = ts_type_of_block(TS_BLOCK_Q4_K);
    (void)state;
    accepted(q8, 34 * 6, 0, 2, SHAPE(3, 64), NULL, 192, 204, 0);
    accepted(q4k, 144, 0, 1, SHAPE(256), NULL, 256, 144, 0);
    accepted(q4k, 0, 0, 2, SHAPE(0, 100), NULL, 0, 0, 0);
    refused(q8, 340, 0, 2, SHAPE(64, 3), NULL, TS_ERR_FORMAT,
            "rows of 3 elements are not whole blocks of 32, as Q8_0 needs");
    refused(q8, 340, 0, 1, SHAPE(33), NULL, TS_ERR_FORMAT, "rows of 33 elements");
    refused(q4k, 340, 0, 2, SHAPE(8, 32), NULL, TS_ERR_FORMAT, "rows of 32 elements are not whole blocks of 256");
    refused(q8, 340, 0, 0, NULL, NULL, TS_ERR_FORMAT, "rows of 1 elements");
    refused(q8, 34 * 6 - 1, 0, 2, SHAPE(3, 64), NULL, TS_ERR_FORMAT, "needs 204 bytes");
    refused(q8, 340, 0, 2, SHAPE(3, 64), STRIDES(128, 1), TS_ERR_UNSUPPORTED, "strides over the packed type Q8_0");
    refused(TS_I4, 340, 0, 2, SHAPE(3, 64), STRIDES(1, 3), TS_ERR_UNSUPPORTED, "strides over the packed type i4");
    accepted(q8, 340, 0, 2, SHAPE(3, 64), STRIDES(64, 1), 192, 204, 0); /* strides that say nothing new */
}

static void test_stride_spans(void **state)
{
    (void)state;
    accepted(TS_F32, 24, 0, 2, SHAPE(3, 2), STRIDES(1, 3), 6, 24, 0); /* transposed */
    accepted(TS_F32, 24, 0, 2, SHAPE(2, 2), STRIDES(3, 1), 4, 20, 0); /* with a gap; the last row's gap is not needed */
    accepted(TS_F32, 20, 0, 2, SHAPE(2, 2), STRIDES(3, 1), 4, 20, 0);
    accepted(TS_F32, 24, 20, 1, SHAPE(6), STRIDES(-1), 6, 24, 0);                   /* backwards from the last */
    accepted(TS_F32, 4, 0, 2, SHAPE(MANY, 1), STRIDES(0, 0), MANY, 4, 0);           /* one number, many times */
    accepted(TS_F32, 4, 0, 2, SHAPE(1, 1), STRIDES(INT64_MAX, INT64_MIN), 1, 4, 0); /* never stepped along */
    accepted(TS_F32, 24, 8, 2, SHAPE(2, 2), STRIDES(-2, 1), 4, 16, 0);
    accepted(TS_U8, 0, 0, 2, SHAPE(0, 5), STRIDES(INT64_MAX, INT64_MIN), 0, 0, 0);
    refused(TS_F32, 19, 0, 2, SHAPE(2, 2), STRIDES(3, 1), TS_ERR_FORMAT, "needs 20 bytes");
    refused(TS_F32, 24, 16, 1, SHAPE(6), STRIDES(-1), TS_ERR_FORMAT, "reach 4 bytes before the start");
    refused(TS_F32, 24, 20, 1, SHAPE(7), STRIDES(-1), TS_ERR_FORMAT, "before the start");
    refused(TS_F32, 24, 0, 2, SHAPE(2, 3), STRIDES(INT64_MAX, 1), TS_ERR_FORMAT, "strides reach further than any file");
    refused(TS_F32, 24, 0, 2, SHAPE(2, 3), STRIDES(INT64_MIN, 1), TS_ERR_FORMAT, "strides reach further than any file");
    refused(TS_F32, 24, 0, 2, SHAPE(3, 3), STRIDES(INT64_MAX / 2, INT64_MAX / 2), TS_ERR_FORMAT,
            "further than any file");
    refused(TS_F32, 24, 0, 2, SHAPE(3, 3), STRIDES(INT64_MIN / 2, INT64_MIN / 2), TS_ERR_FORMAT,
            "further than any file");
    refused(TS_U8, 24, 0, 2, SHAPE(2, 2), STRIDES(INT64_MAX, INT64_MIN + 1), TS_ERR_FORMAT, "");
    refused(TS_C128, 24, 0, 1, SHAPE(3), STRIDES(INT64_MAX / 4), TS_ERR_FORMAT, "further than any file");
    refused(TS_F32, 24, 0, 1, SHAPE(3), STRIDES(INT64_MAX / 8), TS_ERR_FORMAT, "truncated");
}

static void test_plain_strides_are_dropped(void **state)
{
    static const float numbers[6];
    struct sample sample;
    (void)state;
    assert_int_equal(make(&sample, TS_F32, numbers, 24, 0, 3, SHAPE(2, 1, 3), STRIDES(3, 99, 1)), TS_OK);
    assert_null(sample.tensor.strides);
    assert_true(ts_tensor_is_contiguous(&sample.tensor));
    assert_ptr_equal(ts_tensor_bytes(&sample.tensor), sample.source->data);
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_F32, numbers, 24, 0, 2, SHAPE(3, 2), STRIDES(1, 3)), TS_OK);
    assert_non_null(sample.tensor.strides);
    assert_false(ts_tensor_is_contiguous(&sample.tensor));
    assert_null(ts_tensor_bytes(&sample.tensor));
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_F32, numbers, 24, 4, 0, NULL, STRIDES(0)), TS_OK); /* of a scalar */
    assert_null(sample.tensor.strides);
    ts_source_release(sample.source);
}

/* Every element by itself, from its coordinates and the header's formula, against reads from every start. */
static void check_view(enum ts_type type, size_t element, uint64_t offset, unsigned rank, const uint64_t *shape,
                       const int64_t *strides, bool swapped)
{
    uint8_t bytes[4096];
    struct sample sample;
    const unsigned per = ts_type_info(type)->components;
    double *expected, *found;
    float *floats;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)dice();
    if (make(&sample, type, bytes, sizeof bytes, offset, rank, shape, strides) != TS_OK)
        fail_msg("%s", sample.error.message);
    sample.tensor.swapped = swapped;
    expected = malloc(sample.tensor.count * per * sizeof *expected);
    found = malloc(sample.tensor.count * per * sizeof *found);
    floats = malloc(sample.tensor.count * per * sizeof *floats);
    assert_true(expected && found && floats);
    for (uint64_t i = 0; i < sample.tensor.count; i++) {
        uint64_t rest = i;
        int64_t at = (int64_t)offset;
        for (unsigned axis = rank; axis-- > 0; rest /= shape[axis])
            if (shape[axis] > 1)
                at += (int64_t)(rest % shape[axis]) * strides[axis] * (int64_t)element;
        ts_type_decode_f64(type, swapped, bytes + at, 1, expected + i * per);
    }
    for (uint64_t first = 0; first < sample.tensor.count; first++)
        for (uint64_t count = 1; count <= sample.tensor.count - first; count += 1 + count / 3) {
            assert_int_equal(ts_tensor_read_f64(&sample.tensor, first, count, found, &sample.error), TS_OK);
            assert_memory_equal(found, expected + first * per, count * per * sizeof *found);
            assert_int_equal(ts_tensor_read_f32(&sample.tensor, first, count, floats, &sample.error), TS_OK);
            for (uint64_t i = 0; i < count * per; i++)
                if (!isnan(found[i]))
                    assert_true(floats[i] == (float)found[i]);
        }
    free(expected), free(found), free(floats);
    ts_source_release(sample.source);
}

static void test_strided_reads(void **state)
{
    (void)state;
    for (int swapped = 0; swapped < 2; swapped++) {
        check_view(TS_F32, 4, 12, 2, SHAPE(5, 7), STRIDES(1, 5), swapped);           /* transposed */
        check_view(TS_F32, 4, 0, 3, SHAPE(3, 4, 5), STRIDES(100, 10, 2), swapped);   /* gaps everywhere */
        check_view(TS_F16, 2, 0, 3, SHAPE(3, 4, 5), STRIDES(40, 7, 1), swapped);     /* runs of five */
        check_view(TS_F64, 8, 800, 1, SHAPE(50), STRIDES(-2), swapped);              /* backwards */
        check_view(TS_F32, 4, 400, 3, SHAPE(2, 3, 4), STRIDES(-12, 4, -1), swapped); /* some axes backwards */
        check_view(TS_I16, 2, 6, 3, SHAPE(3, 4, 2), STRIDES(0, 1, 0), swapped);      /* repeated */
        check_view(TS_I16, 2, 6, 2, SHAPE(9, 4), STRIDES(0, 1), swapped);
        check_view(TS_I16, 2, 6, 2, SHAPE(9, 4), STRIDES(1, 1), swapped); /* windows that overlap */
        check_view(TS_C64, 8, 16, 2, SHAPE(4, 6), STRIDES(1, 4), swapped);
        check_view(TS_C128, 16, 640, 2, SHAPE(4, 6), STRIDES(6, -1), swapped);
        check_view(TS_U8, 1, 100, 4, SHAPE(2, 3, 2, 5), STRIDES(1, 2, 50, 7), swapped);
        check_view(TS_F8_E4M3, 1, 3, 2, SHAPE(6, 7), STRIDES(1, 6), swapped);
        check_view(TS_BF16, 2, 1, 2, SHAPE(6, 7), STRIDES(1, 6), swapped); /* at an odd byte */
    }
}

/* The stride of an axis of one element is never used, and may be anything. */
static void test_wild_strides_of_unit_axes(void **state)
{
    (void)state;
    check_view(TS_F32, 4, 100, 2, SHAPE(1, 3), STRIDES(INT64_MAX, -2), false);
    check_view(TS_F32, 4, 100, 2, SHAPE(3, 1), STRIDES(2, INT64_MAX), false);
    check_view(TS_F32, 4, 100, 2, SHAPE(3, 1), STRIDES(-2, INT64_MIN), false);
    check_view(TS_F32, 4, 100, 3, SHAPE(3, 1, 2), STRIDES(2, INT64_MIN, 3), false);
    check_view(TS_F32, 4, 100, 4, SHAPE(1, 3, 1, 2), STRIDES(INT64_MIN, 2, INT64_MAX, -3), false);
}

/* From the middle of one block to the middle of another, for every type that has blocks, and for all others too. */
static void test_starts_inside_blocks(void **state)
{
    (void)state;
    for (int t = 0; t < TS_TYPE_COUNT; t++) {
        const enum ts_type type = (enum ts_type)t;
        const struct ts_type_info *info = ts_type_info(type);
        const size_t per = info->components, count = (size_t)3 * info->block_elements,
                     size = (size_t)3 * info->block_bytes;
        uint8_t bytes[3 + 3 * 512];
        float whole[3 * 256 * 2], part[3 * 256 * 2];
        double wide[3 * 256 * 2];
        struct sample sample;
        if (type == TS_CODED)
            continue;
        for (size_t i = 0; i < 3 + size; i++)
            bytes[i] = (uint8_t)dice();
        ts_type_decode_f32(type, false, bytes + 3, count, whole);
        assert_int_equal(make(&sample, type, bytes, 3 + size, 3, 1, SHAPE(count), NULL), TS_OK);
        for (size_t first = 0; first < count; first += 1 + first / 9)
            for (size_t many = 1; many <= count - first; many += 1 + many / 5) {
                assert_int_equal(ts_tensor_read_f32(&sample.tensor, first, many, part, &sample.error), TS_OK);
                assert_memory_equal(part, whole + first * per, many * per * sizeof *part);
                assert_int_equal(ts_tensor_read_f64(&sample.tensor, first, many, wide, &sample.error), TS_OK);
                for (size_t i = 0; i < many * per; i++)
                    if (!isnan(wide[i]))
                        assert_true((float)wide[i] == part[i] || type == TS_F80);
            }
        ts_source_release(sample.source);
    }
}

/* By hand: two blocks of 32 with factors 1 and 2 and codes 0, 1, 2 ... 63; elements 5 to 36. */
static void test_start_by_hand(void **state)
{
    uint8_t bytes[68];
    float values[32];
    struct sample sample;
    (void)state;
    memcpy(bytes, "\x00\x3c", 2);
    memcpy(bytes + 34, "\x00\x40", 2);
    for (uint8_t i = 0; i < 32; i++) {
        bytes[2 + i] = i;
        bytes[36 + i] = (uint8_t)(32 + i);
    }
    assert_int_equal(make(&sample, ts_type_of_block(TS_BLOCK_Q8_0), bytes, 68, 0, 1, SHAPE(64), NULL), TS_OK);
    assert_int_equal(ts_tensor_read_f32(&sample.tensor, 5, 32, values, &sample.error), TS_OK);
    for (int i = 0; i < 32; i++)
        assert_true(values[i] == (float)(i + 5 < 32 ? i + 5 : 2 * (i + 5)));
    ts_source_release(sample.source);
}

static void test_integer_reads(void **state)
{
    const uint8_t packed[] = {0x21, 0x43, 0x65, 0x87, 0xa9};
    const uint64_t wide[] = {UINT64_MAX, 0, UINT64_C(1) << 63};
    int64_t whole[10];
    struct sample sample;
    (void)state;
    assert_int_equal(make(&sample, TS_U4, packed, 5, 0, 1, SHAPE(9), NULL), TS_OK);
    assert_int_equal(ts_tensor_read_i64(&sample.tensor, 1, 8, whole, &sample.error), TS_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(whole[i], i + 2);
    assert_int_equal(ts_tensor_read_i64(&sample.tensor, 8, 1, whole, &sample.error), TS_OK);
    assert_int_equal(whole[0], 9);
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_U64, wide, 24, 0, 1, SHAPE(3), NULL), TS_OK);
    assert_int_equal(ts_tensor_read_i64(&sample.tensor, 0, 3, whole, &sample.error), TS_OK);
    assert_true((uint64_t)whole[0] == UINT64_MAX && (uint64_t)whole[2] == UINT64_C(1) << 63);
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_U64, wide, 24, 16, 1, SHAPE(3), STRIDES(-1)), TS_OK);
    assert_int_equal(ts_tensor_read_i64(&sample.tensor, 0, 2, whole, &sample.error), TS_OK);
    assert_true((uint64_t)whole[0] == UINT64_C(1) << 63 && whole[1] == 0);
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_F64, wide, 24, 0, 1, SHAPE(3), NULL), TS_OK);
    assert_int_equal(ts_tensor_read_i64(&sample.tensor, 0, 1, whole, &sample.error), TS_ERR_USAGE);
    assert_string_equal(sample.error.message, "type f64 holds no integers");
    ts_source_release(sample.source);
}

static void test_range(void **state)
{
    const float numbers[] = {1, 2, 3};
    float out[4];
    double wide[4];
    struct sample sample;
    (void)state;
    assert_int_equal(make(&sample, TS_F32, numbers, 12, 0, 1, SHAPE(3), NULL), TS_OK);
    assert_int_equal(ts_tensor_read_f32(&sample.tensor, 3, 0, out, &sample.error), TS_OK);
    assert_int_equal(ts_tensor_read_f32(&sample.tensor, 0, 4, out, &sample.error), TS_ERR_USAGE);
    assert_string_equal(sample.error.tensor, "sample");
    assert_int_equal(ts_tensor_read_f32(&sample.tensor, 3, 1, out, &sample.error), TS_ERR_USAGE);
    assert_int_equal(ts_tensor_read_f64(&sample.tensor, 4, 0, wide, &sample.error), TS_ERR_USAGE);
    assert_int_equal(ts_tensor_read_f64(&sample.tensor, UINT64_MAX, 1, wide, &sample.error), TS_ERR_USAGE);
    assert_int_equal(ts_tensor_read_f64(&sample.tensor, 1, SIZE_MAX, wide, &sample.error), TS_ERR_USAGE);
    ts_source_release(sample.source);
}

static enum ts_status read_squares(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                                   struct ts_error *error)
{
    (void)tensor, (void)error;
    for (size_t i = 0; i < count; i++)
        out[i] = (float)((first + i) * (first + i));
    return TS_OK;
}

static void test_coded(void **state)
{
    static const struct ts_codec codec = {.name = "squares", .read_f32 = read_squares};
    struct ts_tensor part = {.bytes = 100}, other = {.bytes = 20}, *parts[] = {&part, NULL, &other};
    uint64_t shape[] = {50, 50};
    struct ts_tensor tensor = {.name = "w", .type = TS_CODED, .rank = 2, .shape = shape};
    struct ts_error error;
    double values[2500];
    (void)state;
    assert_int_equal(ts_tensor_finish(&tensor, &error), TS_ERR_USAGE);
    tensor.codec = &codec;
    assert_int_equal(ts_tensor_finish(&tensor, &error), TS_ERR_USAGE);
    tensor.parts = parts;
    tensor.part_count = 3;
    assert_int_equal(ts_tensor_finish(&tensor, &error), TS_OK);
    assert_int_equal(tensor.bytes, 120);
    assert_int_equal(tensor.count, 2500);
    assert_string_equal(ts_tensor_type_name(&tensor), "squares");
    assert_false(ts_tensor_is_contiguous(&tensor));
    assert_null(ts_tensor_bytes(&tensor));
    assert_int_equal(ts_tensor_read_f64(&tensor, 3, 2497, values, &error), TS_OK);
    assert_true(values[0] == 9 && values[2496] == 2499.0 * 2499);
    assert_int_equal(ts_tensor_read_f64(&tensor, 3, 2498, values, &error), TS_ERR_USAGE);
    part.bytes = UINT64_MAX;
    assert_int_equal(ts_tensor_finish(&tensor, &error), TS_ERR_FORMAT);
}

static void text_is(struct sample *sample, uint64_t index, int precision, const char *expected)
{
    struct ts_buffer text;
    ts_buffer_init(&text, 100);
    assert_int_equal(ts_tensor_element_text(&sample->tensor, index, precision, &text, &sample->error), TS_OK);
    assert_string_equal(text.data, expected);
    ts_buffer_release(&text);
}

static void test_element_text(void **state)
{
    const float numbers[] = {0.1f, -2, NAN, INFINITY, -INFINITY, 16777216};
    const double wide[] = {0.1, 1e300};
    const uint64_t whole[] = {UINT64_MAX, INT64_MAX};
    const uint8_t flags[] = {0, 7};
    struct sample sample;
    struct ts_buffer text;
    (void)state;
    assert_int_equal(make(&sample, TS_F32, numbers, sizeof numbers, 0, 1, SHAPE(6), NULL), TS_OK);
    text_is(&sample, 0, 0, "0.100000001"); /* nine digits tell all floats apart */
    text_is(&sample, 0, 3, "0.1");
    text_is(&sample, 1, 0, "-2");
    text_is(&sample, 2, 0, "nan");
    text_is(&sample, 3, 0, "inf");
    text_is(&sample, 4, 0, "-inf");
    text_is(&sample, 5, 0, "16777216");
    ts_buffer_init(&text, 100);
    assert_int_equal(ts_tensor_element_text(&sample.tensor, 6, 0, &text, &sample.error), TS_ERR_USAGE);
    ts_buffer_release(&text);
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_C64, numbers, sizeof numbers, 0, 1, SHAPE(3), NULL), TS_OK);
    text_is(&sample, 0, 4, "0.1-2i");
    text_is(&sample, 1, 4, "nan+infi");
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_F64, wide, sizeof wide, 0, 1, SHAPE(2), NULL), TS_OK);
    text_is(&sample, 0, 0, "0.10000000000000001");
    text_is(&sample, 1, 6, "1e+300");
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_U64, whole, sizeof whole, 0, 1, SHAPE(2), NULL), TS_OK);
    text_is(&sample, 0, 2, "18446744073709551615");
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_I64, whole, sizeof whole, 0, 1, SHAPE(2), NULL), TS_OK);
    text_is(&sample, 0, 2, "-1");
    text_is(&sample, 1, 2, "9223372036854775807");
    ts_source_release(sample.source);
    assert_int_equal(make(&sample, TS_BOOL, flags, sizeof flags, 0, 1, SHAPE(2), NULL), TS_OK);
    text_is(&sample, 0, 0, "false");
    text_is(&sample, 1, 0, "true");
    ts_source_release(sample.source);
}

/* As many digits as it takes to read every value back, for each kind of float. */
static void test_element_text_reads_back(void **state)
{
    uint8_t all[65536 * 2];
    struct sample sample;
    struct ts_buffer text;
    const enum ts_type types[] = {TS_F16, TS_BF16};
    (void)state;
    for (size_t i = 0; i < 65536; i++)
        all[2 * i] = (uint8_t)i, all[2 * i + 1] = (uint8_t)(i >> 8);
    ts_buffer_init(&text, 100);
    for (int t = 0; t < 2; t++) {
        assert_int_equal(make(&sample, types[t], all, sizeof all, 0, 1, SHAPE(65536), NULL), TS_OK);
        for (uint64_t i = 0; i < 65535; i += 1) {
            double values[2], back;
            assert_int_equal(ts_tensor_read_f64(&sample.tensor, i, 2, values, &sample.error), TS_OK);
            if (!isfinite(values[0]) || !isfinite(values[1]))
                continue;
            ts_buffer_clear(&text);
            assert_int_equal(ts_tensor_element_text(&sample.tensor, i, 0, &text, &sample.error), TS_OK);
            back = strtod(text.data, NULL);
            assert_true(fabs(back - values[0]) < fabs(back - values[1])); /* nearer to it than to its neighbour */
        }
        ts_source_release(sample.source);
    }
    ts_buffer_release(&text);
}

static void test_shape_text(void **state)
{
    uint64_t shape[] = {3, 0, UINT64_MAX};
    const struct ts_tensor tensor = {.rank = 3, .shape = shape}, scalar = {.rank = 0};
    struct ts_buffer text;
    (void)state;
    ts_buffer_init(&text, 100);
    ts_tensor_shape_text(&tensor, &text);
    assert_string_equal(text.data, "[3,0,18446744073709551615]");
    ts_buffer_clear(&text);
    ts_tensor_shape_text(&scalar, &text);
    assert_string_equal(text.data, "[]");
    ts_buffer_release(&text);
}

static void test_attributes(void **state)
{
    struct ts_attribute second = {"scheme", "awq", NULL}, first = {"axes", "tokens,heads", &second};
    const struct ts_tensor tensor = {.attributes = &first}, none = {0};
    (void)state;
    assert_string_equal(ts_tensor_attribute(&tensor, "axes"), "tokens,heads");
    assert_string_equal(ts_tensor_attribute(&tensor, "scheme"), "awq");
    assert_null(ts_tensor_attribute(&tensor, "axe"));
    assert_null(ts_tensor_attribute(&none, "axes"));
}

static void test_without_source(void **state)
{
    struct ts_tensor tensor = {.name = "x", .type = TS_F32};
    struct ts_error error;
    (void)state;
    assert_int_equal(ts_tensor_finish(&tensor, &error), TS_ERR_USAGE);
}

/* Who interrupts does not want to be told that files are broken. */
static void test_an_interruption_is_no_skip(void **state)
{
    struct ts_bundle *bundle = ts_bundle_new("x.npz");
    struct ts_error why, error;
    (void)state;
    assert_non_null(bundle);
    ts_fail(&why, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    assert_int_equal(ts_bundle_skip_error(bundle, "x.npz/a.npy", NULL, &why, &error), TS_ERR_CANCELLED);
    assert_int_equal(error.status, TS_ERR_CANCELLED);
    assert_int_equal(bundle->skip_count, 0);
    ts_fail(&why, TS_ERR_FORMAT, 12, "broken");
    assert_int_equal(ts_bundle_skip_error(bundle, "x.npz/a.npy", NULL, &why, &error), TS_OK);
    assert_int_equal(bundle->skip_count, 1);
    ts_bundle_free(bundle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_overflowing_shapes),
        cmocka_unit_test(test_whole_blocks),
        cmocka_unit_test(test_stride_spans),
        cmocka_unit_test(test_plain_strides_are_dropped),
        cmocka_unit_test(test_strided_reads),
        cmocka_unit_test(test_wild_strides_of_unit_axes),
        cmocka_unit_test(test_starts_inside_blocks),
        cmocka_unit_test(test_start_by_hand),
        cmocka_unit_test(test_integer_reads),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_coded),
        cmocka_unit_test(test_element_text),
        cmocka_unit_test(test_element_text_reads_back),
        cmocka_unit_test(test_shape_text),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_an_interruption_is_no_skip),
        cmocka_unit_test(test_without_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
