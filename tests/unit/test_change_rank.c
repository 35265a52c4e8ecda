/* Changes whose rank is known by how they are made: u v^T with as many columns as wanted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "compare/change_rank.h"
#include "compare/symmetric.h"
#include "dice.h"
#include "tensor/bundle.h"

struct bench {
    struct ts_bundle *bundle;
    struct ts_arena arena;
    struct ts_pool *pool;
};

static void bench_open(struct bench *bench)
{
    bench->bundle = ts_bundle_new("made");
    bench->pool = ts_pool_new(2);
    ts_arena_init(&bench->arena, (size_t)1 << 20);
    assert_non_null(bench->bundle);
    assert_non_null(bench->pool);
    dice_state = 7;
}

static void bench_close(struct bench *bench)
{
    ts_pool_free(bench->pool);
    ts_arena_release(&bench->arena);
    ts_bundle_free(bench->bundle);
}

/* To nearest, ties to even. */
static uint16_t to_bf16(float value)
{
    uint32_t bits = ts_float_bits(value);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float as_stored(float value, enum ts_type type)
{
    return type == TS_BF16 ? ts_bf16_to_float(to_bf16(value)) : value;
}

static struct ts_view view_of(struct bench *bench, const float *values, enum ts_type type, unsigned rank,
                              const uint64_t *shape)
{
    size_t count = 1, size = type == TS_BF16 ? 2 : 4;
    struct ts_source *source;
    struct ts_tensor *tensor;
    struct ts_error error;
    struct ts_view view;
    uint8_t *bytes;
    for (unsigned i = 0; i < rank; i++)
        count *= shape[i];
    bytes = malloc(count * size);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++) {
        uint16_t half = to_bf16(values[i]);
        memcpy(bytes + i * size, type == TS_BF16 ? (const void *)&half : (const void *)&values[i], size);
    }
    assert_int_equal(ts_source_copy(bytes, count * size, "made", &source, &error), TS_OK);
    assert_int_equal(ts_bundle_keep(bench->bundle, source, &error), TS_OK);
    assert_int_equal(ts_bundle_add(bench->bundle, "w", rank, &tensor, &error), TS_OK);
    tensor->type = type;
    tensor->source = source;
    for (unsigned i = 0; i < rank; i++)
        tensor->shape[i] = shape[i];
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    ts_source_release(source);
    free(bytes);
    assert_true(ts_view_of(tensor, &bench->arena, &view));
    return view;
}

static struct ts_change_rank rank_of_views(struct bench *bench, const struct ts_view *a, const struct ts_view *b)
{
    struct ts_pair pair = {.name = "w", .name_b = "w", .a = *a, .b = *b, .how = "name", .recipe = ""};
    struct ts_delta delta;
    struct ts_change_rank rank;
    struct ts_error error;
    assert_int_equal(ts_delta_run(bench->pool, &pair, 1, &(struct ts_delta_options){0}, &delta, NULL, &error), TS_OK);
    assert_int_equal(ts_change_rank_run(bench->pool, &pair, &delta, 1, &rank, NULL, &error), TS_OK);
    return rank;
}

/* Something like normal numbers: the sum of four even ones, with deviation 1. */
static double bell(void)
{
    return (dice_number() + dice_number() + dice_number() + dice_number()) * 0.8660254;
}

/* a has deviation 0.02; the change is u v^T of that many columns, with `size` times its norm, or independent everywhere
 * when there are none. */
static struct ts_change_rank rank_of(size_t m, size_t n, size_t columns, double size, enum ts_type type)
{
    const uint64_t shape[2] = {m, n};
    float *a = malloc(m * n * sizeof *a), *b = malloc(m * n * sizeof *b);
    double *u = malloc((columns + 1) * (m + n) * sizeof *u);
    struct bench bench;
    struct ts_view left, right;
    struct ts_change_rank rank;
    assert_true(a && b && u);
    bench_open(&bench);
    for (size_t i = 0; i < columns * (m + n); i++)
        u[i] = bell();
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double change = columns ? 0 : bell();
            for (size_t k = 0; k < columns; k++)
                change += u[k * (m + n) + i] * u[k * (m + n) + m + j] / sqrt((double)columns);
            a[i * n + j] = as_stored((float)(0.02 * bell()), type);
            b[i * n + j] = (float)((double)a[i * n + j] + 0.02 * size * change);
        }
    left = view_of(&bench, a, type, 2, shape);
    right = view_of(&bench, b, type, 2, shape);
    rank = rank_of_views(&bench, &left, &right);
    free(a);
    free(b);
    free(u);
    bench_close(&bench);
    return rank;
}

static void assert_rank(const struct ts_change_rank *rank, unsigned expected)
{
    assert_true(rank->known);
    assert_null(rank->reason);
    assert_int_equal(rank->rank, expected);
    assert_false(rank->at_least);
}

static void test_low_ranks_in_f32(void **state)
{
    static const size_t ranks[] = {1, 2, 8, 16, 23, 24, 32, 64, 100};
    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        struct ts_change_rank rank = rank_of(200, 300, ranks[i], 0.05, TS_F32);
        assert_rank(&rank, (unsigned)ranks[i]);
        assert_true(rank.effective <= (double)ranks[i] + 1e-9);
        assert_true(rank.effective > 0.8 * (double)ranks[i]);
        assert_true(rank.stable <= (double)ranks[i] * 1.001);
        assert_true(rank.stable > 0.15 * (double)ranks[i]);
    }
}

static void test_low_ranks_rounded_to_bf16(void **state)
{
    static const size_t ranks[] = {1, 4, 8, 16};
    static const double sizes[] = {1, 0.1, 0.03, 0.01, 0.004};
    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct ts_change_rank rank = rank_of(384, 512, ranks[i], sizes[k], TS_BF16);
            assert_rank(&rank, (unsigned)ranks[i]);
        }
}

/* The same update once more, in the size of a real layer's head: the values that rounding leaves must not count. */
static void test_sub_step_updates_of_one_direction(void **state)
{
    struct ts_change_rank rank = rank_of(640, 2048, 1, 0.01, TS_BF16);
    (void)state;
    assert_rank(&rank, 1);
}

static void test_a_full_change_is_counted_to_the_end_where_it_is_small(void **state)
{
    struct ts_change_rank rank = rank_of(20, 64, 0, 0.05, TS_F32);
    (void)state;
    assert_rank(&rank, 20);
    rank = rank_of(120, 70, 0, 0.5, TS_F32);
    assert_rank(&rank, 70);
    rank = rank_of(40, 120, 0, 0.5, TS_BF16);
    assert_rank(&rank, 40);
}

static void test_a_full_change_of_a_large_matrix_is_a_lower_bound(void **state)
{
    struct ts_change_rank rank = rank_of(300, 400, 0, 0.05, TS_F32);
    (void)state;
    assert_true(rank.known);
    assert_int_equal(rank.rank, 128);
    assert_int_equal(rank.probed, 128);
    assert_true(rank.at_least);
    assert_true(isnan(rank.effective));
    /* of independent numbers the largest singular value is near deviation * (sqrt(m) + sqrt(n)) */
    assert_true(fabs(rank.stable - 300 * 400 / pow(sqrt(300) + sqrt(400), 2)) < 8);
    rank = rank_of(300, 400, 160, 0.05, TS_F32);
    assert_int_equal(rank.rank, 128);
    assert_true(rank.at_least);
}

/* Independent changes of less than the grid's steps stay below the floor, yet are more than rounding would leave. */
static void test_what_hides_below_the_floor_is_not_called_low_rank(void **state)
{
    struct ts_change_rank rank = rank_of(300, 400, 0, 0.006, TS_BF16);
    (void)state;
    assert_true(rank.known);
    assert_true(rank.at_least || rank.rank == 0);
}

static void test_rounding_alone_has_no_rank(void **state)
{
    const uint64_t shape[2] = {256, 320};
    float *a = malloc(256 * 320 * sizeof *a);
    struct bench bench;
    struct ts_view left, right;
    struct ts_change_rank rank;
    (void)state;
    assert_non_null(a);
    bench_open(&bench);
    for (size_t i = 0; i < 256 * 320; i++)
        a[i] = (float)bell();
    left = view_of(&bench, a, TS_F32, 2, shape);
    right = view_of(&bench, a, TS_BF16, 2, shape);
    rank = rank_of_views(&bench, &left, &right);
    assert_rank(&rank, 0);
    assert_true(rank.values[0] > 0);
    free(a);
    bench_close(&bench);
}

static void test_no_change_has_rank_zero(void **state)
{
    struct ts_change_rank rank = rank_of(64, 48, 1, 0, TS_F32);
    (void)state;
    assert_rank(&rank, 0);
    assert_int_equal(rank.value_count, 0);
}

/* One row of an embedding: rows that did not change are granted no rounding. */
static void test_one_row(void **state)
{
    const uint64_t shape[2] = {500, 96};
    float *a = malloc(500 * 96 * sizeof *a), *b = malloc(500 * 96 * sizeof *b);
    struct bench bench;
    struct ts_view left, right;
    struct ts_change_rank rank;
    (void)state;
    assert_true(a && b);
    bench_open(&bench);
    for (size_t i = 0; i < 500 * 96; i++) {
        a[i] = b[i] = as_stored((float)bell(), TS_BF16);
        if (i / 96 == 77)
            b[i] += 0.5f;
    }
    left = view_of(&bench, a, TS_BF16, 2, shape);
    right = view_of(&bench, b, TS_BF16, 2, shape);
    rank = rank_of_views(&bench, &left, &right);
    assert_rank(&rank, 1);
    free(a);
    free(b);
    bench_close(&bench);
}

/* Weights of -1, 0 and 1 have few bits by nature; that must not be taken for coarse rounding. */
static void test_ternary_weights(void **state)
{
    const uint64_t shape[2] = {120, 200};
    float *a = malloc(120 * 200 * sizeof *a), *b = malloc(120 * 200 * sizeof *b);
    double u[3][320];
    struct bench bench;
    struct ts_view left, right;
    struct ts_change_rank rank;
    (void)state;
    assert_true(a && b);
    bench_open(&bench);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < 320; i++)
            u[k][i] = bell();
    for (size_t i = 0; i < 120 * 200; i++) {
        double change = 0;
        for (size_t k = 0; k < 3; k++)
            change += u[k][i / 200] * u[k][120 + i % 200];
        a[i] = (float)((int)(dice() % 3) - 1);
        b[i] = a[i] + (float)(0.02 * change);
    }
    left = view_of(&bench, a, TS_F32, 2, shape);
    right = view_of(&bench, b, TS_F32, 2, shape);
    rank = rank_of_views(&bench, &left, &right);
    assert_rank(&rank, 3);
    free(a);
    free(b);
    bench_close(&bench);
}

static void test_shapes(void **state)
{
    static const struct {
        unsigned rank;
        uint64_t shape[4];
        bool known;
        uint64_t rows, columns;
    } cases[] = {
        {1, {48}, false, 0, 0},       {2, {1, 48}, false, 0, 0},
        {3, {1, 6, 8}, true, 6, 8},   {4, {4, 3, 2, 2}, true, 4, 12}, /* a convolution */
        {3, {2, 1, 24}, true, 2, 24}, {3, {2, 3, 20}, false, 0, 0},   /* experts */
    };
    float a[128], b[128];
    (void)state;
    for (size_t i = 0; i < 128; i++) {
        a[i] = (float)i;
        b[i] = (float)i + 1;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench bench;
        struct ts_view left, right;
        struct ts_change_rank rank;
        bench_open(&bench);
        left = view_of(&bench, a, TS_F32, cases[i].rank, cases[i].shape);
        right = view_of(&bench, b, TS_F32, cases[i].rank, cases[i].shape);
        rank = rank_of_views(&bench, &left, &right);
        assert_int_equal(rank.known, cases[i].known);
        assert_int_equal(rank.reason == NULL, cases[i].known);
        if (rank.known) {
            assert_int_equal(rank.rows, cases[i].rows);
            assert_int_equal(rank.columns, cases[i].columns);
            assert_rank(&rank, 1); /* one is added everywhere */
        }
        bench_close(&bench);
    }
}

static void test_nan_has_no_rank(void **state)
{
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 2, NAN, 4, 5, 7};
    struct bench bench;
    struct ts_view left, right;
    struct ts_change_rank rank;
    (void)state;
    bench_open(&bench);
    left = view_of(&bench, a, TS_F32, 2, (uint64_t[]){2, 3});
    right = view_of(&bench, b, TS_F32, 2, (uint64_t[]){2, 3});
    rank = rank_of_views(&bench, &left, &right);
    assert_false(rank.known);
    assert_non_null(strstr(rank.reason, "NaN"));
    bench_close(&bench);
}

/* Twos with minus ones beside them: the k-th eigenvalue is 2 - 2 cos(k pi / (n + 1)). */
static void test_eigenvalues(void **state)
{
    double matrix[30 * 30] = {0}, values[30];
    (void)state;
    for (size_t i = 0; i < 30; i++) {
        matrix[i * 30 + i] = 2;
        if (i)
            matrix[i * 30 + i - 1] = matrix[(i - 1) * 30 + i] = -1;
    }
    ts_symmetric_eigenvalues(matrix, 30, values);
    for (size_t k = 0; k < 30; k++)
        assert_true(fabs(values[k] - (2 - 2 * cos((double)(30 - k) * 3.141592653589793 / 31))) < 1e-13);
}

static void test_orthonormal_columns(void **state)
{
    double columns[5 * 12];
    (void)state;
    for (size_t i = 0; i < 5 * 12; i++)
        columns[i] = bell();
    for (size_t i = 0; i < 12; i++) {
        columns[2 * 12 + i] = columns[i] * 3 - columns[12 + i]; /* in the space of the two before */
        columns[4 * 12 + i] = columns[3 * 12 + i] + 1e-9 * columns[4 * 12 + i];
    }
    ts_orthonormalize(columns, 12, 5);
    for (size_t p = 0; p < 5; p++)
        for (size_t q = 0; q <= p; q++) {
            double sum = 0;
            for (size_t i = 0; i < 12; i++)
                sum += columns[p * 12 + i] * columns[q * 12 + i];
            if (p == q && p == 2)
                assert_true(sum == 0 || fabs(sum - 1) < 1e-12);
            else
                assert_true(fabs(sum - (p == q)) < 1e-12);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_low_ranks_in_f32),
        cmocka_unit_test(test_low_ranks_rounded_to_bf16),
        cmocka_unit_test(test_sub_step_updates_of_one_direction),
        cmocka_unit_test(test_a_full_change_is_counted_to_the_end_where_it_is_small),
        cmocka_unit_test(test_a_full_change_of_a_large_matrix_is_a_lower_bound),
        cmocka_unit_test(test_what_hides_below_the_floor_is_not_called_low_rank),
        cmocka_unit_test(test_rounding_alone_has_no_rank),
        cmocka_unit_test(test_no_change_has_rank_zero),
        cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_ternary_weights),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_nan_has_no_rank),
        cmocka_unit_test(test_eigenvalues),
        cmocka_unit_test(test_orthonormal_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
