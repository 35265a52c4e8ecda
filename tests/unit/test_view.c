/* Views against arrays that are rearranged element by element, for random chains of operations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "tensor/view.h"

static uint64_t random_state;

static uint64_t random_below(uint64_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % limit;
}

/* A tensor that owns everything it points to. */
struct made {
    struct ts_tensor tensor;
    uint64_t shape[8];
    int64_t strides[8];
};

static void finish(struct made *made, enum ts_type type, unsigned rank, const uint64_t *shape, const void *bytes,
                   size_t size)
{
    struct ts_error error;
    made->tensor = (struct ts_tensor){.name = "t", .type = type, .rank = rank, .shape = made->shape};
    if (rank)
        memcpy(made->shape, shape, rank * sizeof *shape);
    assert_int_equal(ts_source_copy(bytes, size, "memory", &made->tensor.source, &error), TS_OK);
    assert_int_equal(ts_tensor_finish(&made->tensor, &error), TS_OK);
}

static void make_f32(struct made *made, unsigned rank, const uint64_t *shape)
{
    float values[20000];
    size_t count = 1;
    for (unsigned i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    assert_true(count <= 20000);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)i + 0.25f;
    finish(made, TS_F32, rank, shape, values, count * sizeof *values);
}

static void drop(struct made *made)
{
    ts_source_release(made->tensor.source);
}

/* What a view should hold: the flat index of the tensor for each element. */
struct model {
    unsigned rank;
    uint64_t shape[10];
    size_t count;
    uint32_t *index;
};

static struct model model_new(unsigned rank, const uint64_t *shape)
{
    struct model model = {.rank = rank, .count = 1};
    for (unsigned i = 0; i < rank; i++) {
        model.shape[i] = shape[i];
        model.count *= (size_t)shape[i];
    }
    model.index = calloc(model.count + 1, sizeof *model.index);
    assert_non_null(model.index);
    return model;
}

/* out[i, j, ...] = in[start + step * (i, j, ...)] with the axes of out being axes order[] of in. */
static struct model model_pick(const struct model *in, const unsigned *order, const uint64_t *start,
                               const uint64_t *step, const uint64_t *shape)
{
    struct model out = model_new(in->rank, shape);
    for (size_t i = 0; i < out.count; i++) {
        uint64_t at[10] = {0}, flat = 0, rest = i;
        for (unsigned k = out.rank; k-- > 0; rest /= out.shape[k])
            at[order[k]] = start[k] + step[k] * (rest % out.shape[k]);
        for (unsigned k = 0; k < in->rank; k++)
            flat = flat * in->shape[k] + at[k];
        out.index[i] = in->index[flat];
    }
    return out;
}

static void assert_reads(const struct ts_view *view, const struct model *model, const double *source, size_t components)
{
    struct ts_error error;
    size_t numbers = model->count * components;
    double *f64 = calloc(numbers + 1, sizeof *f64);
    float *f32 = calloc(numbers + 1, sizeof *f32);
    assert_non_null(f64);
    assert_non_null(f32);
    assert_int_equal(view->rank, model->rank);
    for (unsigned i = 0; i < view->rank; i++)
        assert_int_equal(view->shape[i], model->shape[i]);
    assert_int_equal(view->count, model->count);
    /* all at once, and in pieces of odd sizes */
    assert_int_equal(ts_view_read_f64(view, 0, model->count, f64, &error), TS_OK);
    for (size_t first = 0; first < model->count;) {
        size_t now = 1 + (size_t)random_below(model->count / 3 + 1);
        if (now > model->count - first)
            now = model->count - first;
        assert_int_equal(ts_view_read_f32(view, first, now, f32 + first * components, &error), TS_OK);
        first += now;
    }
    for (size_t i = 0; i < model->count; i++)
        for (size_t k = 0; k < components; k++) {
            double expected = source[model->index[i] * components + k];
            if (f64[i * components + k] != expected)
                fail_msg("element %zu is %g, not %g", i, f64[i * components + k], expected);
            assert_true(f32[i * components + k] == (float)expected);
        }
    assert_int_equal(ts_view_read_f64(view, model->count, 1, f64, &error), TS_ERR_USAGE);
    free(f64);
    free(f32);
}

/* A random permutation, slice or reshape of both. False where strides do not allow a reshape. */
static bool random_step(struct ts_view *view, struct model *model, struct ts_arena *arena)
{
    unsigned order[10];
    uint64_t start[10] = {0}, step[10], shape[10];
    struct model next;
    for (unsigned i = 0; i < model->rank; i++) {
        order[i] = i;
        step[i] = 1;
        shape[i] = model->shape[i];
    }
    switch (random_below(3)) {
    case 0:
        for (unsigned i = model->rank; i > 1; i--) {
            unsigned other = (unsigned)random_below(i), swap = order[i - 1];
            order[i - 1] = order[other];
            order[other] = swap;
        }
        for (unsigned i = 0; i < model->rank; i++)
            shape[i] = model->shape[order[i]];
        assert_true(ts_view_permute(view, order, arena, view));
        break;
    case 1: {
        unsigned axis = (unsigned)random_below(model->rank);
        uint64_t size = model->shape[axis];
        start[axis] = random_below(size);
        step[axis] = 1 + random_below(3);
        shape[axis] = 1 + random_below((size - 1 - start[axis]) / step[axis] + 1);
        assert_true(ts_view_slice(view, axis, start[axis], shape[axis], step[axis], arena, view));
        assert_false(ts_view_slice(view, axis, 1, shape[axis], 1, arena, view));
        break;
    }
    default: {
        uint64_t other[10];
        unsigned rank = 0;
        if (random_below(2)) { /* merge two */
            unsigned axis = (unsigned)random_below(model->rank);
            for (unsigned i = 0; i < model->rank; i++) {
                other[rank++] = model->shape[i];
                if (i == axis && i + 1 < model->rank)
                    other[rank - 1] *= model->shape[++i];
            }
        } else { /* split one, or add a one */
            unsigned axis = (unsigned)random_below(model->rank);
            if (model->rank >= 8)
                return false;
            for (unsigned i = 0; i < model->rank; i++) {
                uint64_t inner = 1 + random_below(4);
                other[rank++] = model->shape[i];
                if (i == axis && model->shape[i] % inner == 0) {
                    other[rank - 1] /= inner;
                    other[rank++] = inner;
                }
            }
        }
        if (!ts_view_reshape(view, other, rank, arena, view))
            return false;
        memcpy(model->shape, other, rank * sizeof *other);
        model->rank = rank;
        return true;
    }
    }
    next = model_pick(model, order, start, step, shape);
    free(model->index);
    *model = next;
    return true;
}

static void check_random(const struct ts_tensor *tensor, uint64_t seed)
{
    const size_t components = ts_type_info(tensor->type)->components;
    double *source = calloc((size_t)tensor->count * components, sizeof *source);
    struct ts_error error;
    random_state = seed;
    assert_non_null(source);
    assert_int_equal(ts_tensor_read_f64(tensor, 0, (size_t)tensor->count, source, &error), TS_OK);
    for (int chain = 0; chain < 150; chain++) {
        struct model model = model_new(tensor->rank, tensor->shape);
        struct ts_arena arena;
        struct ts_view view;
        ts_arena_init(&arena, 1 << 20);
        assert_true(ts_view_of(tensor, &arena, &view));
        for (size_t i = 0; i < model.count; i++)
            model.index[i] = (uint32_t)i;
        for (int i = 0; i < 6; i++) {
            random_step(&view, &model, &arena);
            assert_reads(&view, &model, source, components);
        }
        free(model.index);
        ts_arena_release(&arena);
    }
    free(source);
}

static void test_plain_types(void **state)
{
    static const enum ts_type types[] = {TS_F64, TS_F32, TS_F16,  TS_BF16, TS_I64, TS_I32,
                                         TS_I16, TS_U8,  TS_BOOL, TS_C64,  TS_C128};
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int swapped = 0; swapped < 2; swapped++) {
            uint8_t bytes[6 * 35 * 12 * 16];
            struct made made;
            size_t size = 6 * 35 * 12 * ts_type_info(types[t])->block_bytes;
            for (size_t i = 0; i < size; i++) /* small exponents, so that no value is NaN */
                bytes[i] = (uint8_t)((i * 7 + i / 251) & 0x3f);
            finish(&made, types[t], 3, (uint64_t[]){6, 35, 12}, bytes, size);
            made.tensor.swapped = swapped;
            check_random(&made.tensor, t + 1);
            drop(&made);
        }
}

/* Blocks of 32: only runs can be read well, but everything must be read right. */
static void test_blocks(void **state)
{
    uint8_t bytes[4 * 9 * 2 * 34];
    struct made made;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((i * 13 + i / 77) & 0x3f);
    finish(&made, ts_type_of_block(TS_BLOCK_Q8_0), 3, (uint64_t[]){4, 9, 64}, bytes, sizeof bytes);
    check_random(&made.tensor, 5);
    drop(&made);
}

static void test_small_types(void **state)
{
    uint8_t bytes[4 * 9 * 20 / 2];
    struct made made;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    finish(&made, TS_I4, 3, (uint64_t[]){4, 9, 20}, bytes, sizeof bytes);
    check_random(&made.tensor, 6);
    drop(&made);
}

static enum ts_status coded_read(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                                 struct ts_error *error)
{
    (void)tensor, (void)error;
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(first + i) * 0.5f;
    return TS_OK;
}

static void test_coded(void **state)
{
    static const struct ts_codec codec = {.name = "halves", .read_f32 = coded_read};
    struct ts_error error;
    struct made part, made = {.shape = {6, 35, 12}};
    struct ts_tensor *parts[] = {&part.tensor};
    (void)state;
    make_f32(&part, 1, (uint64_t[]){4});
    made.tensor = (struct ts_tensor){.name = "coded",
                                     .type = TS_CODED,
                                     .rank = 3,
                                     .shape = made.shape,
                                     .codec = &codec,
                                     .parts = parts,
                                     .part_count = 1};
    assert_int_equal(ts_tensor_finish(&made.tensor, &error), TS_OK);
    check_random(&made.tensor, 7);
    drop(&part);
}

/* Column-major, reversed and broadcast storage. */
static void test_strided(void **state)
{
    static const int64_t strides[][3] = {{1, 6, 210},   {420, 12, 1}, {35, 1, 210},
                                         {-420, 12, 1}, {1, 0, 6},    {840, 24, 2}};
    float values[6 * 35 * 12 * 2];
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = (float)i;
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        struct made made;
        struct ts_error error;
        finish(&made, TS_F32, 3, (uint64_t[]){6, 35, 12}, values, sizeof values);
        memcpy(made.strides, strides[i], sizeof strides[i]);
        made.tensor.strides = made.strides;
        made.tensor.offset = strides[i][0] < 0 ? 5 * 420 * sizeof(float) : 0;
        assert_int_equal(ts_tensor_finish(&made.tensor, &error), TS_OK);
        check_random(&made.tensor, 20 + i);
        drop(&made);
    }
}

/* Shards of uneven and of equal sizes along each axis, then rearranged as one. */
static void test_concat(void **state)
{
    static const uint64_t all_sizes[2][4] = {{2, 5, 1, 4}, {3, 3, 3, 3}};
    struct made whole;
    double source[20000];
    struct ts_error error;
    (void)state;
    make_f32(&whole, 3, (uint64_t[]){12, 12, 12});
    assert_int_equal(ts_tensor_read_f64(&whole.tensor, 0, 12 * 12 * 12, source, &error), TS_OK);
    for (unsigned axis = 0; axis < 3; axis++)
        for (int chain = 0; chain < 200; chain++) {
            const uint64_t *sizes = all_sizes[chain % 2];
            struct ts_view all, parts[4], joined;
            struct model model = model_new(3, whole.shape);
            struct ts_arena arena;
            uint64_t begin = 0;
            random_state = (uint64_t)chain * 3 + axis;
            ts_arena_init(&arena, 1 << 20);
            assert_true(ts_view_of(&whole.tensor, &arena, &all));
            for (size_t i = 0; i < 4; begin += sizes[i++])
                assert_true(ts_view_slice(&all, axis, begin, sizes[i], 1, &arena, &parts[i]));
            assert_true(ts_view_join(TS_JOIN_CONCAT, axis, parts, 4, &arena, &joined));
            for (size_t i = 0; i < model.count; i++)
                model.index[i] = (uint32_t)i;
            for (int i = 0; i < 5; i++) {
                random_step(&joined, &model, &arena);
                assert_reads(&joined, &model, source, 1);
            }
            ts_view_forget(&joined, 0, joined.count);
            ts_view_forget(&joined, joined.count / 3, joined.count / 2);
            free(model.index);
            ts_arena_release(&arena);
        }
    drop(&whole);
}

static void test_concat_split(void **state)
{
    struct made left, right;
    struct ts_arena arena;
    struct ts_view parts[2], joined, split;
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    make_f32(&left, 2, (uint64_t[]){3, 8});
    make_f32(&right, 2, (uint64_t[]){3, 4});
    assert_true(ts_view_of(&left.tensor, &arena, &parts[0]));
    assert_true(ts_view_of(&right.tensor, &arena, &parts[1]));
    assert_true(ts_view_join(TS_JOIN_CONCAT, 1, parts, 2, &arena, &joined));
    /* heads of 4 end where the shards end, heads of 6 do not */
    assert_true(ts_view_reshape(&joined, (uint64_t[]){3, 3, 4}, 3, &arena, &split));
    assert_false(ts_view_reshape(&joined, (uint64_t[]){3, 2, 6}, 3, &arena, &split));
    assert_false(ts_view_reshape(&joined, (uint64_t[]){36}, 1, &arena, &split));
    assert_false(ts_view_join(TS_JOIN_CONCAT, 0, parts, 2, &arena, &joined));
    assert_false(ts_view_join(TS_JOIN_SUM, 0, parts, 2, &arena, &joined));
    ts_arena_release(&arena);
    drop(&left);
    drop(&right);
}

static void test_sum(void **state)
{
    struct made parts[3];
    struct ts_view views[3], sum, moved;
    struct ts_arena arena;
    struct ts_error error;
    float f32[12];
    double f64[12];
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    for (int i = 0; i < 3; i++) {
        /* 1e8 + 1 - 1e8 is 1 in double and 0 in float */
        static const float terms[3] = {1e8f, 1, -1e8f};
        float values[12];
        for (int k = 0; k < 12; k++)
            values[k] = terms[i] * (float)(k + 1);
        finish(&parts[i], TS_F32, 2, (uint64_t[]){3, 4}, values, sizeof values);
        assert_true(ts_view_of(&parts[i].tensor, &arena, &views[i]));
    }
    assert_true(ts_view_join(TS_JOIN_SUM, 0, views, 3, &arena, &sum));
    assert_true(ts_view_permute(&sum, (unsigned[]){1, 0}, &arena, &moved));
    moved.add = 0.5;
    assert_int_equal(ts_view_read_f32(&sum, 0, 12, f32, &error), TS_OK);
    assert_int_equal(ts_view_read_f64(&moved, 0, 12, f64, &error), TS_OK);
    for (int i = 0; i < 12; i++) {
        assert_true(f32[i] == (float)(i + 1));
        assert_true(f64[i] == i % 3 * 4 + i / 3 + 1 + 0.5);
    }
    for (int i = 0; i < 3; i++)
        drop(&parts[i]);
    ts_arena_release(&arena);
}

static void test_integers(void **state)
{
    static const int64_t values[6] = {INT64_MAX, 2, INT64_MIN, 4, -5, 6};
    struct made made;
    struct ts_view view, turned, sum, twice[2];
    struct ts_arena arena;
    struct ts_error error;
    int64_t out[6];
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    finish(&made, TS_I64, 2, (uint64_t[]){2, 3}, values, sizeof values);
    assert_true(ts_view_of(&made.tensor, &arena, &view));
    assert_true(ts_view_permute(&view, (unsigned[]){1, 0}, &arena, &turned));
    assert_int_equal(ts_view_read_i64(&turned, 0, 6, out, &error), TS_OK);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == values[i % 2 * 3 + i / 2]);
    twice[0] = twice[1] = turned;
    assert_true(ts_view_join(TS_JOIN_SUM, 0, twice, 2, &arena, &sum));
    sum.add = 1;
    assert_int_equal(ts_view_read_i64(&sum, 1, 3, out, &error), TS_OK);
    assert_true(out[0] == 9 && out[1] == 5 && out[2] == -9);
    drop(&made);
    make_f32(&made, 1, (uint64_t[]){4});
    assert_true(ts_view_of(&made.tensor, &arena, &view));
    assert_int_equal(ts_view_read_i64(&view, 0, 1, out, &error), TS_ERR_USAGE);
    drop(&made);
    ts_arena_release(&arena);
}

static void test_reshape_needs_strides(void **state)
{
    struct made made;
    struct ts_view view, turned, out;
    struct ts_arena arena;
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    make_f32(&made, 3, (uint64_t[]){4, 6, 10});
    assert_true(ts_view_of(&made.tensor, &arena, &view));
    assert_true(ts_view_reshape(&view, (uint64_t[]){3, 80}, 2, &arena, &out)); /* row-major: anything goes */
    assert_false(ts_view_reshape(&view, (uint64_t[]){3, 81}, 2, &arena, &out));
    assert_false(ts_view_reshape(&view, (uint64_t[]){UINT64_MAX, UINT64_MAX, 240}, 3, &arena, &out));
    assert_true(ts_view_permute(&view, (unsigned[]){1, 0, 2}, &arena, &turned));
    assert_true(ts_view_reshape(&turned, (uint64_t[]){2, 3, 1, 2, 2, 5, 2}, 7, &arena, &out));
    assert_false(ts_view_reshape(&turned, (uint64_t[]){24, 10}, 2, &arena, &out));
    assert_false(ts_view_reshape(&turned, (uint64_t[]){6, 40}, 2, &arena, &out));
    assert_true(ts_view_permute(&view, (unsigned[]){2, 0, 1}, &arena, &turned));
    assert_true(ts_view_reshape(&turned, (uint64_t[]){10, 24}, 2, &arena, &out));
    drop(&made);
    ts_arena_release(&arena);
}

static void test_bytes(void **state)
{
    struct made made;
    struct ts_view view, out;
    struct ts_arena arena;
    struct ts_error error;
    const uint8_t *data;
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    make_f32(&made, 3, (uint64_t[]){4, 6, 10});
    data = made.tensor.source->data;
    assert_true(ts_view_of(&made.tensor, &arena, &view));
    assert_ptr_equal(ts_view_bytes(&view), data);
    assert_true(ts_view_slice(&view, 0, 1, 2, 1, &arena, &out));
    assert_ptr_equal(ts_view_bytes(&out), data + 60 * 4);
    assert_true(ts_view_slice(&view, 1, 1, 2, 1, &arena, &out));
    assert_null(ts_view_bytes(&out));
    assert_true(ts_view_slice(&out, 0, 3, 1, 1, &arena, &out));
    assert_ptr_equal(ts_view_bytes(&out), data + (180 + 10) * 4);
    assert_true(ts_view_permute(&view, (unsigned[]){1, 0, 2}, &arena, &out));
    assert_null(ts_view_bytes(&out));
    view.add = 1;
    assert_null(ts_view_bytes(&view));
    view.add = 0;
    made.tensor.swapped = true;
    assert_null(ts_view_bytes(&view));
    made.tensor.swapped = false;
    memcpy(made.strides, (int64_t[]){1, 4, 24}, 3 * sizeof(int64_t)); /* column-major, seen from the other end */
    made.tensor.strides = made.strides;
    assert_int_equal(ts_tensor_finish(&made.tensor, &error), TS_OK);
    assert_null(ts_view_bytes(&view));
    assert_true(ts_view_permute(&view, (unsigned[]){2, 1, 0}, &arena, &out));
    assert_ptr_equal(ts_view_bytes(&out), data);
    drop(&made);
    ts_arena_release(&arena);
}

static void test_empty_and_scalar(void **state)
{
    struct made made;
    struct ts_view view, out;
    struct ts_arena arena;
    struct ts_error error;
    double value = 0;
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    make_f32(&made, 0, NULL);
    assert_true(ts_view_of(&made.tensor, &arena, &view));
    assert_int_equal(ts_view_read_f64(&view, 0, 1, &value, &error), TS_OK);
    assert_true(value == 0.25);
    assert_true(ts_view_reshape(&view, (uint64_t[]){1, 1, 1, 1}, 4, &arena, &out));
    assert_int_equal(ts_view_read_f64(&out, 0, 1, &value, &error), TS_OK);
    drop(&made);
    make_f32(&made, 3, (uint64_t[]){3, 0, UINT64_MAX});
    assert_true(ts_view_of(&made.tensor, &arena, &view));
    assert_int_equal(ts_view_read_f64(&view, 0, 0, &value, &error), TS_OK);
    assert_int_equal(ts_view_read_f64(&view, 0, 1, &value, &error), TS_ERR_USAGE);
    assert_true(ts_view_permute(&view, (unsigned[]){2, 1, 0}, &arena, &out));
    assert_true(ts_view_reshape(&view, (uint64_t[]){0}, 1, &arena, &out));
    assert_true(ts_view_slice(&view, 0, 3, 0, 1, &arena, &out));
    ts_view_forget(&view, 0, 0);
    drop(&made);
    ts_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_types),  cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_small_types),  cmocka_unit_test(test_coded),
        cmocka_unit_test(test_strided),      cmocka_unit_test(test_concat),
        cmocka_unit_test(test_concat_split), cmocka_unit_test(test_sum),
        cmocka_unit_test(test_integers),     cmocka_unit_test(test_reshape_needs_strides),
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_empty_and_scalar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
