/* For the tests of layouts: makes tensors in memory, rearranges their numbers element by element, and proves a recipe
 * by reading all elements of both views. */
#ifndef TS_TEST_ALIGNED_H
#define TS_TEST_ALIGNED_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "pair/align.h"

/* Everything one test makes. */
struct table {
    struct ts_arena arena;
    struct ts_source *sources[256];
    size_t count;
    uint64_t random;
};

static inline int set_up(void **state)
{
    struct table *table = calloc(1, sizeof *table);
    if (!table)
        return -1;
    ts_arena_init(&table->arena, (size_t)1 << 30);
    table->random = 1;
    *state = table;
    return 0;
}

static inline int tear_down(void **state)
{
    struct table *table = *state;
    for (size_t i = 0; i < table->count; i++)
        ts_source_release(table->sources[i]);
    ts_arena_release(&table->arena);
    free(table);
    return 0;
}

static inline double uniform(struct table *table)
{
    table->random = table->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(table->random >> 11) * 0x1p-53;
}

/* About normal: the sum of twelve uniform numbers. */
static inline double normal(struct table *table)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform(table);
    return sum;
}

#define SHAPE(...) (sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), ((uint64_t[]){__VA_ARGS__})

static inline size_t product(size_t rank, const uint64_t *shape)
{
    size_t count = 1;
    for (size_t i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    return count;
}

static inline double *random_values(struct table *table, size_t count)
{
    double *values = ts_arena_array(&table->arena, count, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (double)(float)normal(table);
    return values;
}

static inline uint16_t to_bf16(float value)
{
    uint32_t bits = ts_float_bits(value);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline struct ts_view make(struct table *table, enum ts_type type, const double *values, size_t rank,
                                  const uint64_t *shape)
{
    const size_t count = product(rank, shape), size = ts_type_info(type)->block_bytes;
    struct ts_tensor *tensor = ts_arena_alloc(&table->arena, sizeof *tensor);
    uint8_t *bytes = ts_arena_alloc(&table->arena, count * size);
    struct ts_error error;
    struct ts_view view;
    assert_non_null(tensor);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++) {
        float f32 = (float)values[i];
        int64_t i64 = ts_type_is_integer(type) ? (int64_t)values[i] : 0;
        uint16_t bf16 = to_bf16(f32);
        if (type == TS_F64)
            memcpy(bytes + i * size, &values[i], size);
        else if (type == TS_F32)
            memcpy(bytes + i * size, &f32, size);
        else if (type == TS_BF16)
            memcpy(bytes + i * size, &bf16, size);
        else
            memcpy(bytes + i * size, &i64, size); /* little-endian integers */
    }
    *tensor = (struct ts_tensor){.name = "t", .type = type, .rank = (unsigned)rank};
    tensor->shape = ts_arena_array(&table->arena, rank, sizeof *shape);
    assert_non_null(tensor->shape);
    if (rank)
        memcpy(tensor->shape, shape, rank * sizeof *shape);
    assert_int_equal(ts_source_copy(bytes, count * size, "memory", &tensor->source, &error), TS_OK);
    assert_true(table->count < 256);
    table->sources[table->count++] = tensor->source;
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    assert_true(ts_view_of(tensor, &table->arena, &view));
    return view;
}

/* The axes in another order, element by element: out axis i is axis order[i]. */
static inline double *permuted(struct table *table, const double *values, size_t rank, const uint64_t *shape,
                               const unsigned *order)
{
    const size_t count = product(rank, shape);
    double *out = ts_arena_array(&table->arena, count, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < count; i++) {
        uint64_t at[8] = {0}, flat = 0;
        size_t rest = i;
        for (size_t k = rank; k-- > 0; rest /= (size_t)shape[order[k]])
            at[order[k]] = rest % shape[order[k]];
        for (size_t k = 0; k < rank; k++)
            flat = flat * shape[k] + at[k];
        out[i] = values[flat];
    }
    return out;
}

/* Entries [start, start + count) of an axis. */
static inline double *sliced(struct table *table, const double *values, size_t rank, const uint64_t *shape, size_t axis,
                             uint64_t start, uint64_t count)
{
    const size_t inner = product(rank - axis - 1, shape + axis + 1), outer = product(axis, shape);
    double *out = ts_arena_array(&table->arena, outer * (size_t)count * inner, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < outer; i++)
        memcpy(out + i * (size_t)count * inner, values + (i * (size_t)shape[axis] + (size_t)start) * inner,
               (size_t)count * inner * sizeof *out);
    return out;
}

static inline double *noisy(struct table *table, const double *values, size_t count, double amount)
{
    double *out = ts_arena_array(&table->arena, count, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < count; i++)
        out[i] = values[i] + amount * normal(table);
    return out;
}

static inline struct ts_alignment aligned(struct table *table, const struct ts_view *a, const struct ts_view *b,
                                          const struct ts_align_hints *hints)
{
    struct ts_alignment found;
    struct ts_error error;
    enum ts_status status = ts_align(a, b, hints, &table->arena, &found, &error);
    if (status != TS_OK)
        fail_msg("%s", error.message);
    return found;
}

static inline struct ts_alignment joined(struct table *table, const struct ts_view *whole, struct ts_view *shards,
                                         size_t count, const struct ts_align_hints *hints)
{
    struct ts_alignment found;
    struct ts_error error;
    enum ts_status status = ts_align_shards(whole, shards, count, true, hints, &table->arena, &found, &error);
    if (status != TS_OK)
        fail_msg("%s", error.message);
    return found;
}

/* Relative L2 distance over all elements. */
static inline double distance(struct table *table, const struct ts_alignment *found)
{
    size_t count = (size_t)found->a.count;
    double *a = ts_arena_array(&table->arena, 2 * count, sizeof *a), *b, difference = 0, norm = 0;
    struct ts_error error;
    assert_non_null(a);
    b = a + count;
    assert_null(found->problem);
    assert_int_equal(found->a.rank, found->b.rank);
    for (unsigned i = 0; i < found->a.rank; i++)
        assert_int_equal(found->a.shape[i], found->b.shape[i]);
    assert_int_equal(ts_view_read_f64(&found->a, 0, count, a, &error), TS_OK);
    assert_int_equal(ts_view_read_f64(&found->b, 0, count, b, &error), TS_OK);
    for (size_t i = 0; i < count; i++) {
        difference += (b[i] - a[i]) * (b[i] - a[i]);
        norm += a[i] * a[i];
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}

static inline void assert_found(struct table *table, const struct ts_alignment *found, const char *recipe,
                                uint64_t count, double at_most)
{
    double error;
    assert_null(found->problem);
    assert_string_equal(found->recipe, recipe);
    assert_int_equal(found->a.count, count);
    assert_false(found->guess);
    assert_false(found->ambiguous);
    error = distance(table, found);
    if (error > at_most)
        fail_msg("%s: error %g", recipe, error);
    if (at_most == 0)
        assert_true(found->error == 0);
    else /* of the same order, since it may come from a sample */
        assert_true(found->error <= 2 * at_most);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
