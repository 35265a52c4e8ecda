/* Boxes, slabs and rows of views, against the indices that the views are made of: the elements of every tensor here are
 * their own flat indices. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare/delta.h"
#include "scratch.h"
#include "tensor/view.h"
#include "tensor/view_box.h"
#include "tensor/view_far.h"

static uint64_t random_state = 5;

static uint64_t random_below(uint64_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % limit;
}

static struct ts_arena arena;

/* A tensor of indices in memory, of whole numbers or floats of such a size. */
static void make(struct ts_tensor *tensor, enum ts_type type, unsigned rank, uint64_t *shape)
{
    const size_t size = ts_type_info(type)->block_bytes;
    size_t count = 1;
    uint8_t *bytes;
    struct ts_error error;
    for (unsigned i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    bytes = malloc(count * size);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++) {
        const float real = (float)i;
        const uint64_t whole[2] = {i, ~(uint64_t)i};
        memcpy(bytes + i * size, type == TS_F32 ? (const void *)&real : (const void *)whole, size);
    }
    *tensor = (struct ts_tensor){.name = "t", .type = type, .rank = rank, .shape = shape};
    assert_int_equal(ts_source_copy(bytes, count * size, "memory", &tensor->source, &error), TS_OK);
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    free(bytes);
}

/* The flat index that an element of a plain view has in its tensor. */
static uint64_t index_at(const struct ts_view *view, const uint64_t *at)
{
    uint64_t index = view->offset;
    for (unsigned i = 0; i < view->rank; i++)
        index += at[i] * (uint64_t)view->strides[i];
    return index;
}

static bool next(const uint64_t *first, const uint64_t *count, unsigned rank, uint64_t *at)
{
    for (unsigned i = rank; i-- > 0;) {
        if (++at[i] < first[i] + count[i])
            return true;
        at[i] = first[i];
    }
    return false;
}

static void check_box(const struct ts_view *view, const uint64_t *first, const uint64_t *count)
{
    const enum ts_type type = view->tensor->type;
    const size_t size = ts_type_info(type)->block_bytes;
    uint64_t at[8] = {0};
    size_t elements = 1, i = 0;
    uint8_t *out, *scratch_room = malloc(TS_VIEW_BOX_SCRATCH);
    struct ts_error error;
    for (unsigned k = 0; k < view->rank; k++) {
        elements *= (size_t)count[k];
        at[k] = first[k];
    }
    out = malloc(elements * size + 1);
    assert_true(out && scratch_room);
    out[elements * size] = 0xa5;
    assert_int_equal(ts_view_read_box(view, first, count, out, scratch_room, &error), TS_OK);
    do {
        const uint64_t index = index_at(view, at), whole[2] = {index, ~index};
        const float real = (float)index;
        assert_memory_equal(out + i++ * size, type == TS_F32 ? (const void *)&real : (const void *)whole, size);
    } while (next(first, count, view->rank, at));
    assert_int_equal(i, elements);
    assert_int_equal(out[elements * size], 0xa5);
    free(out);
    free(scratch_room);
}

static void any_box(const struct ts_view *view)
{
    uint64_t first[8], count[8];
    for (unsigned i = 0; i < view->rank; i++) {
        first[i] = random_below(view->shape[i]);
        count[i] = 1 + random_below(view->shape[i] - first[i]);
        if (random_below(2)) {
            first[i] = 0;
            count[i] = view->shape[i];
        }
    }
    check_box(view, first, count);
}

static void boxes_of_permuted_slices(void **state)
{
    static const enum ts_type types[] = {TS_F32, TS_U8, TS_I16, TS_I32, TS_I64, TS_C128};
    (void)state;
    for (int round = 0; round < 400; round++) {
        const unsigned rank = 1 + (unsigned)random_below(4);
        /* long axes now and then, so that runs are cut into bands */
        uint64_t shape[4], longest = round % 20 == 0 ? 60000 : 12;
        unsigned order[4];
        struct ts_tensor tensor;
        struct ts_view view;
        for (unsigned i = 0; i < rank; i++) {
            shape[i] = 1 + random_below(i == 0 ? longest : 12);
            order[i] = i;
        }
        for (unsigned i = rank; i-- > 1;) {
            unsigned other = (unsigned)random_below(i + 1), kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
        make(&tensor, types[random_below(sizeof types / sizeof *types)], rank, shape);
        assert_true(ts_view_of(&tensor, &arena, &view));
        assert_true(ts_view_permute(&view, order, &arena, &view));
        for (unsigned i = 0; i < rank; i++) {
            uint64_t start = random_below(view.shape[i]), step = 1 + random_below(3);
            uint64_t count = (view.shape[i] - 1 - start) / step + 1;
            if (random_below(3) == 0)
                assert_true(ts_view_slice(&view, i, start, count, step, &arena, &view));
        }
        any_box(&view);
        ts_source_release(tensor.source);
    }
}

/* Tensors with strides of their own, backwards and repeating: against reads of one element. */
static void boxes_of_strided_tensors(void **state)
{
    static float numbers[6000];
    struct ts_error error;
    uint8_t *room = malloc(TS_VIEW_BOX_SCRATCH);
    (void)state;
    assert_non_null(room);
    for (size_t i = 0; i < 6000; i++)
        numbers[i] = (float)i;
    for (int round = 0; round < 100; round++) {
        uint64_t shape[3] = {1 + random_below(9), 1 + random_below(9), 1 + random_below(9)};
        int64_t strides[3] = {(int64_t)random_below(400) - 200, (int64_t)random_below(60) - 30,
                              (int64_t)random_below(5) - 2};
        uint64_t first[3] = {0}, all = shape[0] * shape[1] * shape[2];
        const unsigned order[3] = {2, 0, 1};
        struct ts_tensor tensor = {
            .name = "t", .type = TS_F32, .rank = 3, .shape = shape, .strides = strides, .offset = 4 * 2500};
        struct ts_view view;
        float out[729];
        assert_int_equal(ts_source_copy(numbers, sizeof numbers, "memory", &tensor.source, &error), TS_OK);
        assert_int_equal(ts_tensor_finish(&tensor, &error), TS_OK);
        assert_true(ts_view_of(&tensor, &arena, &view));
        assert_true(ts_view_permute(&view, order, &arena, &view));
        assert_int_equal(ts_view_read_box(&view, first, view.shape, (uint8_t *)out, room, &error), TS_OK);
        for (uint64_t i = 0; i < all; i++) {
            float one;
            assert_int_equal(ts_view_read_f32(&view, i, 1, &one, &error), TS_OK);
            assert_true(out[i] == one);
        }
        ts_source_release(tensor.source);
    }
    free(room);
}

static void boxes_of_parts(void **state)
{
    uint64_t shape_left[2] = {30, 7}, shape_right[2] = {30, 11}, first[2] = {3, 5}, count[2] = {9, 20};
    const unsigned turned[2] = {1, 0};
    struct ts_tensor left, right;
    struct ts_view *parts = ts_arena_array(&arena, 2, sizeof *parts), view;
    uint8_t *room = malloc(TS_VIEW_BOX_SCRATCH);
    float out[9 * 20];
    struct ts_error error;
    (void)state;
    assert_true(parts && room);
    make(&left, TS_F32, 2, shape_left);
    make(&right, TS_F32, 2, shape_right);
    assert_true(ts_view_of(&left, &arena, &parts[0]) && ts_view_of(&right, &arena, &parts[1]));
    assert_true(ts_view_join(TS_JOIN_CONCAT, 1, parts, 2, &arena, &view));
    assert_true(ts_view_permute(&view, turned, &arena, &view)); /* [18,30] */
    assert_int_equal(ts_view_read_box(&view, first, count, (uint8_t *)out, room, &error), TS_OK);
    for (uint64_t i = 0; i < 9; i++)
        for (uint64_t k = 0; k < 20; k++) {
            const uint64_t column = 3 + i, row = 5 + k;
            const uint64_t expected = column < 7 ? row * 7 + column : row * 11 + column - 7;
            assert_true(out[i * 20 + k] == (float)expected);
        }
    count[0] = 16; /* 3 + 16 > 18 */
    assert_int_equal(ts_view_read_box(&view, first, count, (uint8_t *)out, room, &error), TS_ERR_USAGE);
    ts_source_release(left.source);
    ts_source_release(right.source);
    free(room);
}

/* Packs come out as f32, from the middle of a block as well. */
static void boxes_of_packs(void **state)
{
    enum { ROWS = 24, COLUMNS = 320, BLOCKS = ROWS * COLUMNS / 32 };
    static uint8_t bytes[BLOCKS][34];
    uint64_t shape[2] = {ROWS, COLUMNS}, first[2] = {45, 3}, count[2] = {200, 19};
    const unsigned turned[2] = {1, 0};
    struct ts_tensor tensor = {.name = "t", .type = ts_type_of_block(TS_BLOCK_Q8_0), .rank = 2, .shape = shape};
    struct ts_view view;
    uint8_t *room = malloc(TS_VIEW_BOX_SCRATCH);
    static float out[200 * 19];
    enum ts_type type;
    struct ts_error error;
    (void)state;
    for (int i = 0; i < BLOCKS; i++) {
        bytes[i][1] = 0x3c; /* a scale of one: 0x3c00 as f16 */
        for (int k = 0; k < 32; k++)
            bytes[i][2 + k] = (uint8_t)((i * 7 + k) % 100);
    }
    assert_int_equal(ts_source_copy(bytes, sizeof bytes, "memory", &tensor.source, &error), TS_OK);
    assert_int_equal(ts_tensor_finish(&tensor, &error), TS_OK);
    assert_true(ts_view_of(&tensor, &arena, &view) && ts_view_permute(&view, turned, &arena, &view));
    assert_true(ts_view_box_type(&view, &type));
    assert_int_equal(type, TS_F32);
    assert_int_equal(ts_view_read_box(&view, first, count, (uint8_t *)out, room, &error), TS_OK);
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < 19; k++) {
            const int column = 45 + i, row = 3 + k, block = row * 10 + column / 32;
            assert_true(out[i * 19 + k] == (float)((block * 7 + column % 32) % 100));
        }
    ts_source_release(tensor.source);
    free(room);
}

/* Some 50 MB: the least that is far. */
#define ROWS    3520
#define COLUMNS 3600

/* Two places that differ by the same. */
static bool is_worst(uint64_t row, uint64_t column)
{
    return (row == 2001 && column == 17) || (row == 90 && column == 3599);
}

static float number_at(uint64_t row, uint64_t column)
{
    return is_worst(row, column) ? 1 : (float)((row * 31 + column * 7) % 10007) / 1000 - 5;
}

/* A matrix in a file, rows or columns first; `change` alters some elements. */
static void write_matrix(const char *name, bool turned, bool change)
{
    const uint64_t outer = turned ? COLUMNS : ROWS, inner = turned ? ROWS : COLUMNS;
    float *line = malloc((size_t)inner * sizeof *line);
    FILE *file = fopen(scratch_path(name), "wb");
    assert_true(line && file);
    assert_int_equal(fwrite("unaligned!!", 1, 12, file), 12);
    for (uint64_t i = 0; i < outer; i++) {
        for (uint64_t k = 0; k < inner; k++) {
            const uint64_t row = turned ? k : i, column = turned ? i : k;
            line[k] = number_at(row, column);
            if (change && (row * COLUMNS + column) % 1013 == 0)
                line[k] *= 1 + 0x1p-12f;
            if (change && is_worst(row, column))
                line[k] = 65;
            if (change && ((row == 3000 && column == 0) || (row == 200 && column == 1234)))
                line[k] = NAN;
        }
        assert_int_equal(fwrite(line, sizeof *line, (size_t)inner, file), inner);
    }
    assert_int_equal(fclose(file), 0);
    free(line);
}

static void open_matrix(struct ts_tensor *tensor, const char *name, uint64_t *shape)
{
    struct ts_error error;
    *tensor = (struct ts_tensor){.name = "t", .type = TS_F32, .rank = 2, .shape = shape, .offset = 12};
    assert_int_equal(ts_source_open(scratch_path(name), &tensor->source, &error), TS_OK);
    assert_true(ts_source_is_open(tensor->source));
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
}

static void far_reads(void **state)
{
    uint64_t shape[2] = {COLUMNS, ROWS}, rows[40];
    const unsigned turned[2] = {1, 0};
    struct ts_tensor tensor;
    struct ts_view view, plain;
    struct ts_error error;
    static float out[40 * COLUMNS];
    static double wide[40 * COLUMNS];
    (void)state;
    write_matrix("turned", true, false);
    open_matrix(&tensor, "turned", shape);
    assert_true(ts_view_of(&tensor, &arena, &plain) && ts_view_permute(&plain, turned, &arena, &view));
    assert_false(ts_view_is_far(&plain));
    assert_true(ts_view_is_far(&view));
    for (int i = 0; i < 300; i++) { /* here and there */
        const uint64_t first = random_below(view.count - 5000);
        const size_t count = 1 + (size_t)random_below(i % 50 ? 60 : 5000);
        assert_int_equal(ts_view_read_f32(&view, first, count, out, &error), TS_OK);
        for (size_t k = 0; k < count; k++)
            assert_true(out[k] == number_at((first + k) / COLUMNS, (first + k) % COLUMNS));
    }
    for (uint64_t first = 777; first < view.count; first += 40 * COLUMNS) { /* one after the other */
        const size_t left = (size_t)(view.count - first), count = left < 40 * COLUMNS ? left : 40 * COLUMNS;
        assert_int_equal(ts_view_read_f32(&view, first, count, out, &error), TS_OK);
        for (size_t k = 0; k < count; k++)
            assert_true(out[k] == number_at((first + k) / COLUMNS, (first + k) % COLUMNS));
    }
    for (int i = 0; i < 40; i++)
        rows[i] = i < 20 ? random_below(ROWS) : ROWS - 1 - (uint64_t)i * (uint64_t)i;
    assert_int_equal(ts_view_read_rows_f64(&view, rows, 40, wide, &error), TS_OK);
    assert_int_equal(ts_view_read_rows_f32(&view, rows, 40, out, &error), TS_OK);
    for (size_t i = 0; i < 40 * COLUMNS; i++) {
        assert_true(out[i] == number_at(rows[i / COLUMNS], i % COLUMNS));
        assert_true(wide[i] == (double)out[i]);
    }
    rows[3] = ROWS;
    assert_int_equal(ts_view_read_rows_f64(&view, rows, 40, wide, &error), TS_ERR_USAGE);
    ts_source_release(tensor.source);
}

/* Sums of f32 in another order. */
static void assert_close(double a, double b)
{
    assert_true(a == b || fabs(a - b) <= 1e-6 * fabs(a));
}

/* The same pair with its candidate stored as it is and turned: the same delta. */
static void turned_pairs_measure_alike(void **state)
{
    uint64_t shape[2] = {ROWS, COLUMNS}, shape_turned[2] = {COLUMNS, ROWS};
    const unsigned turned[2] = {1, 0};
    struct ts_tensor a, b, c;
    struct ts_pair pairs[2] = {{.name = "straight", .name_b = "", .recipe = ""},
                               {.name = "turned", .name_b = "", .recipe = ""}};
    struct ts_delta deltas[2], again[2];
    struct ts_delta_options options = {0};
    struct ts_pool *one = ts_pool_new(1), *three = ts_pool_new(3);
    const size_t both[2] = {0, 1};
    struct ts_error error;
    (void)state;
    write_matrix("a", false, false);
    write_matrix("b", false, true);
    write_matrix("c", true, true);
    open_matrix(&a, "a", shape);
    open_matrix(&b, "b", shape);
    open_matrix(&c, "c", shape_turned);
    for (int i = 0; i < 2; i++)
        assert_true(ts_view_of(&a, &arena, &pairs[i].a) && ts_view_of(i ? &c : &b, &arena, &pairs[i].b));
    assert_true(ts_view_permute(&pairs[1].b, turned, &arena, &pairs[1].b));
    assert_int_equal(ts_delta_run(one, pairs, 2, &options, deltas, NULL, &error), TS_OK);
    assert_int_equal(ts_delta_run(three, pairs, 2, &options, again, NULL, &error), TS_OK);
    assert_int_equal(deltas[1].count, (uint64_t)ROWS * COLUMNS);
    assert_int_equal(deltas[1].compared, (uint64_t)ROWS * COLUMNS - 2);
    assert_int_equal(deltas[1].non_finite_mismatch, 2);
    assert_int_equal(deltas[1].first_non_finite_mismatch, 200 * COLUMNS + 1234);
    assert_int_equal(deltas[1].b.nan, 2);
    assert_int_equal(deltas[1].worst, 90 * COLUMNS + 3599); /* of the two the first */
    assert_true(deltas[1].max_abs == 64 && deltas[1].worst_b - deltas[1].worst_a == 64);
    assert_true(deltas[1].worst_a == (double)number_at(90, 3599));
    assert_int_equal(deltas[1].unequal, deltas[0].unequal);
    assert_int_equal(deltas[1].mismatched, deltas[0].mismatched);
    assert_int_equal(deltas[1].worst, deltas[0].worst);
    assert_true(deltas[1].max_rel == deltas[0].max_rel);
    assert_close(deltas[0].mse, deltas[1].mse);
    assert_close(deltas[0].mean_abs, deltas[1].mean_abs);
    assert_close(deltas[0].rel_l2, deltas[1].rel_l2);
    assert_close(deltas[0].cosine, deltas[1].cosine);
    assert_close(deltas[0].a.norm, deltas[1].a.norm);
    assert_close(deltas[0].b.std, deltas[1].b.std);
    assert_true(deltas[1].mse == again[1].mse && deltas[1].max_ulp == again[1].max_ulp &&
                deltas[1].worst == again[1].worst && deltas[1].a.mean == again[1].a.mean &&
                deltas[1].max_rel == again[1].max_rel && deltas[1].norm_ratio == again[1].norm_ratio);
    assert_int_equal(ts_delta_detail(three, pairs, both, 2, &arena, deltas, NULL, &error), TS_OK);
    assert_memory_equal(deltas[0].quantiles, deltas[1].quantiles, sizeof deltas[0].quantiles);
    for (unsigned axis = 0; axis < 2; axis++)
        assert_memory_equal(deltas[0].profiles[axis].error, deltas[1].profiles[axis].error,
                            (size_t)deltas[0].profiles[axis].size * sizeof(double));
    ts_source_release(a.source);
    ts_source_release(b.source);
    ts_source_release(c.source);
    ts_pool_free(one);
    ts_pool_free(three);
}

/* A file that loses its end while it is open: an error where a mapping would end the program. */
static void shortened_files_are_told(void **state)
{
    uint64_t shape[2] = {COLUMNS, ROWS};
    const unsigned turned[2] = {1, 0};
    struct ts_tensor tensor;
    struct ts_view view;
    struct ts_error error;
    static float out[COLUMNS];
    (void)state;
    write_matrix("short", true, false);
    open_matrix(&tensor, "short", shape);
    assert_true(ts_view_of(&tensor, &arena, &view) && ts_view_permute(&view, turned, &arena, &view));
    assert_int_equal(truncate(scratch_path("short"), 20 << 20), 0);
    assert_int_equal(ts_view_read_f32(&view, 0, COLUMNS, out, &error), TS_ERR_IO);
    assert_non_null(strstr(error.message, "shorter"));
    ts_source_release(tensor.source);
}

static int begin(void **state)
{
    ts_arena_init(&arena, (size_t)1 << 30);
    return scratch_make(state);
}

static int end(void **state)
{
    ts_arena_release(&arena);
    return scratch_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_of_permuted_slices),
        cmocka_unit_test(boxes_of_strided_tensors),
        cmocka_unit_test(boxes_of_parts),
        cmocka_unit_test(boxes_of_packs),
        cmocka_unit_test(far_reads),
        cmocka_unit_test(turned_pairs_measure_alike),
        cmocka_unit_test(shortened_files_are_told),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
