/* Layouts of equal counts, found by content. Where B was made from the numbers of A by rearranging them here, element
 * by element, both views must hold the same. */
#include "aligned.h"
#include "base/progress.h"
#include "pair/pairing.h"
#include "read/open.h"

/* A of the shape given; B is A permuted, with ones where `shape_b` has them: exact, rounded to bf16, with 30 % noise.
 */
static void check_permuted(struct table *table, size_t rank, const uint64_t *shape, const unsigned *order,
                           size_t rank_b, const uint64_t *shape_b, const char *recipe)
{
    const size_t count = product(rank, shape);
    double *values = random_values(table, count), *other = permuted(table, values, rank, shape, order);
    struct ts_view a = make(table, TS_F32, values, rank, shape), b = make(table, TS_F32, other, rank_b, shape_b);
    struct ts_view rounded = make(table, TS_BF16, other, rank_b, shape_b);
    struct ts_view rough = make(table, TS_F32, noisy(table, other, count, 0.3), rank_b, shape_b);
    struct ts_alignment found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, recipe, count, 0);
    found = aligned(table, &a, &rounded, NULL);
    assert_found(table, &found, recipe, count, 0.004);
    found = aligned(table, &a, &rough, NULL);
    assert_found(table, &found, recipe, count, 0.4);
}

static void test_heads_first(void **state)
{
    check_permuted(*state, SHAPE(76, 64, 64), (unsigned[]){1, 0, 2}, SHAPE(1, 64, 76, 64), "B: squeeze 0, swap 0 1");
    check_permuted(*state, SHAPE(76, 8, 64), (unsigned[]){1, 0, 2}, SHAPE(1, 8, 76, 64), "B: squeeze 0, swap 0 1");
    check_permuted(*state, SHAPE(8, 76, 64), (unsigned[]){1, 0, 2}, SHAPE(76, 8, 64), "B: swap 0 1");
}

static void test_ones(void **state)
{
    check_permuted(*state, SHAPE(76, 288), (unsigned[]){0, 1}, SHAPE(1, 76, 288), "B: squeeze 0");
    check_permuted(*state, SHAPE(1, 1, 76, 288), (unsigned[]){0, 1, 2, 3}, SHAPE(76, 288), "A: squeeze 0 1");
    check_permuted(*state, SHAPE(1, 76, 8, 16), (unsigned[]){0, 2, 1, 3}, SHAPE(1, 8, 76, 16), "B: swap 1 2");
    check_permuted(*state, SHAPE(76, 1, 288), (unsigned[]){0, 1, 2}, SHAPE(1, 76, 288), "A: squeeze 1; B: squeeze 0");
    check_permuted(*state, SHAPE(1, 9, 1, 30), (unsigned[]){0, 1, 2, 3}, SHAPE(1, 9, 30), "A: squeeze 2");
}

static void test_any_order(void **state)
{
    check_permuted(*state, SHAPE(5, 6, 7), (unsigned[]){2, 0, 1}, SHAPE(7, 5, 6), "B: permute 1 2 0");
    check_permuted(*state, SHAPE(5, 6, 7), (unsigned[]){2, 1, 0}, SHAPE(7, 6, 5), "B: swap 0 2");
    check_permuted(*state, SHAPE(40, 24), (unsigned[]){1, 0}, SHAPE(24, 40), "B: transpose");
    check_permuted(*state, SHAPE(2, 3, 4, 5, 6, 7), (unsigned[]){5, 3, 0, 2, 4, 1}, SHAPE(7, 5, 2, 4, 6, 3),
                   "B: permute 2 5 3 1 4 0");
    check_permuted(*state, SHAPE(6, 6, 6, 5), (unsigned[]){3, 2, 0, 1}, SHAPE(5, 6, 6, 6), "B: permute 2 3 1 0");
}

static void test_split_and_merge(void **state)
{
    struct table *table = *state;
    check_permuted(table, SHAPE(6, 64), (unsigned[]){0, 1}, SHAPE(6, 8, 8), "B: merge 1 2");
    check_permuted(table, SHAPE(6, 8, 8), (unsigned[]){0, 1, 2}, SHAPE(6, 64), "B: split 1 as 8x8");
    check_permuted(table, SHAPE(2, 9, 12), (unsigned[]){0, 1, 2}, SHAPE(18, 3, 4), "B: split 0 as 2x9, merge 2 3");
    /* tokens by heads * width against heads, tokens, width: cannot be merged again, so the other side is split */
    check_permuted(table, SHAPE(9, 4, 32), (unsigned[]){1, 0, 2}, SHAPE(1, 4, 9, 32), "B: squeeze 0, swap 0 1");
    {
        double *values = random_values(table, 9 * 128);
        double *other = permuted(table, values, SHAPE(9, 4, 32), (unsigned[]){1, 0, 2});
        struct ts_view a = make(table, TS_F32, values, SHAPE(9, 128)),
                       b = make(table, TS_F32, other, SHAPE(1, 4, 9, 32));
        struct ts_alignment found = aligned(table, &a, &b, NULL);
        assert_found(table, &found, "A: split 1 as 4x32; B: squeeze 0, swap 0 1", 9 * 128, 0);
        found = aligned(table, &b, &a, NULL);
        assert_found(table, &found, "A: squeeze 0; B: split 1 as 4x32, swap 0 1", 9 * 128, 0);
        /* keys transposed: [heads, width, tokens] */
        other = permuted(table, values, SHAPE(9, 4, 32), (unsigned[]){1, 2, 0});
        b = make(table, TS_F32, other, SHAPE(4, 32, 9));
        found = aligned(table, &a, &b, NULL);
        assert_found(table, &found, "B: permute 2 0 1, merge 1 2", 9 * 128, 0);
        /* two sequences, heads folded into the batch: [2, 9, 4 * 8] against [2 * 4, 9, 8] */
        values = random_values(table, 2 * 9 * 32);
        other = permuted(table, values, SHAPE(2, 9, 4, 8), (unsigned[]){0, 2, 1, 3});
        a = make(table, TS_F32, values, SHAPE(2, 9, 32));
        b = make(table, TS_F32, other, SHAPE(8, 9, 8));
        found = aligned(table, &a, &b, NULL);
        assert_found(table, &found, "A: split 2 as 4x8; B: split 0 as 2x4, swap 1 2", 2 * 9 * 32, 0);
        /* ranks stacked in one tensor: [4, 9, 32 / 4] against [9, 32] */
        other = permuted(table, values, SHAPE(18, 4, 8), (unsigned[]){1, 0, 2});
        a = make(table, TS_F32, values, SHAPE(18, 32));
        b = make(table, TS_F32, other, SHAPE(4, 18, 8));
        found = aligned(table, &a, &b, NULL);
        assert_found(table, &found, "A: split 1 as 4x8; B: swap 0 1", 2 * 9 * 32, 0);
    }
}

/* Axes in a random order, neighbours merged, ones put in: whatever the way back is called, it must lead back. */
static void test_random_layouts(void **state)
{
    struct table *table = *state;
    for (int round = 0; round < 60; round++) {
        const size_t rank = 2 + (size_t)(uniform(table) * 3);
        uint64_t shape[5], shape_b[10];
        unsigned order[5];
        size_t rank_b = 0;
        bool merged = false;
        double *values, *other;
        struct ts_view a, b;
        struct ts_alignment found;
        for (unsigned i = 0; i < rank; i++) {
            shape[i] = 3 + (uint64_t)(uniform(table) * 9);
            order[i] = i;
        }
        for (size_t i = rank; i > 1; i--) {
            size_t k = (size_t)(uniform(table) * (double)i);
            unsigned swap = order[i - 1];
            order[i - 1] = order[k];
            order[k] = swap;
        }
        for (size_t i = 0; i < rank; i++) {
            if (uniform(table) < 0.2)
                shape_b[rank_b++] = 1;
            shape_b[rank_b++] = shape[order[i]];
            if (!merged && i + 1 < rank && uniform(table) < 0.4) {
                shape_b[rank_b - 1] *= shape[order[++i]];
                merged = true;
            }
        }
        values = random_values(table, product(rank, shape));
        other = permuted(table, values, rank, shape, order);
        a = make(table, TS_F32, values, rank, shape);
        b = make(table, TS_F32, other, rank_b, shape_b);
        if (rank == rank_b && memcmp(shape, shape_b, rank * sizeof *shape) == 0)
            continue; /* equal shapes are taken as they are */
        found = aligned(table, &a, &b, NULL);
        assert_false(found.guess);
        assert_false(found.ambiguous);
        if (distance(table, &found) != 0)
            fail_msg("round %d: %s", round, found.recipe);
        found = aligned(table, &b, &a, NULL);
        if (distance(table, &found) != 0)
            fail_msg("round %d, from the other side: %s", round, found.recipe);
    }
}

/* The numbers in the same order under a shape whose axes do not nest. */
static void test_same_numbers_other_shape(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 24);
    struct ts_view a = make(table, TS_F32, values, SHAPE(8, 3)), b = make(table, TS_F32, values, SHAPE(12, 2));
    struct ts_alignment found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "B: read as [8,3]", 24, 0);
}

static void test_scalars(void **state)
{
    struct table *table = *state;
    double value = 128;
    struct ts_view scalar = make(table, TS_I64, &value, 0, NULL), deep = make(table, TS_I32, &value, SHAPE(1, 1, 1, 1));
    struct ts_view one = make(table, TS_F32, &value, SHAPE(1));
    struct ts_alignment found = aligned(table, &scalar, &deep, NULL);
    assert_found(table, &found, "B: squeeze", 1, 0);
    found = aligned(table, &deep, &scalar, NULL);
    assert_found(table, &found, "A: squeeze", 1, 0);
    found = aligned(table, &deep, &one, NULL);
    assert_found(table, &found, "A: squeeze 1 2 3", 1, 0);
    found = aligned(table, &scalar, &scalar, NULL);
    assert_found(table, &found, "", 1, 0);
    value = 0.125; /* another value is no question of layout */
    one = make(table, TS_F32, &value, SHAPE(1));
    found = aligned(table, &scalar, &one, NULL);
    assert_string_equal(found.recipe, "B: squeeze");
    assert_false(found.guess);
}

static void test_empty(void **state)
{
    struct table *table = *state;
    double none = 0;
    struct ts_view a = make(table, TS_F32, &none, SHAPE(0, 4)), b = make(table, TS_F32, &none, SHAPE(4, 0));
    struct ts_view full = make(table, TS_F32, &none, SHAPE(1));
    struct ts_alignment found = aligned(table, &a, &a, NULL);
    assert_found(table, &found, "", 0, 0);
    found = aligned(table, &a, &b, NULL);
    assert_null(found.problem);
    assert_int_equal(found.b.rank, 2);
    assert_int_equal(found.b.shape[1], 4);
    found = aligned(table, &a, &full, NULL);
    assert_string_equal(found.problem, "[0,4] against [1]: no layout fits");
}

/* Values that most tools stumble over: outliers that hold nearly all of the norm, positive values, NaN, infinities. */
static void test_difficult_values(void **state)
{
    struct table *table = *state;
    const size_t count = 40 * 8 * 16;
    struct ts_alignment found;
    struct ts_view a, b;
    for (int kind = 0; kind < 4; kind++) {
        double *values = random_values(table, count), *other;
        for (size_t i = 0; i < count; i++) {
            if (kind == 0 && i % 16 == 5) /* one channel, where every wrong order of the others leaves it */
                values[i] = 3000 + values[i];
            if (kind == 1)
                values[i] = 1 + 0.02 * fabs(values[i]);
            if (kind == 2 && i % 16 == 3)
                values[i] = i % 3 ? NAN : -INFINITY;
            if (kind == 3)
                values[i] = values[i] > 1.6 ? values[i] : 0; /* mostly zeros */
        }
        other = permuted(table, values, SHAPE(40, 8, 16), (unsigned[]){1, 0, 2});
        a = make(table, TS_F32, values, SHAPE(40, 8, 16));
        b = make(table, TS_BF16, other, SHAPE(1, 8, 40, 16));
        found = aligned(table, &a, &b, NULL);
        assert_string_equal(found.recipe, "B: squeeze 0, swap 0 1");
        assert_false(found.ambiguous);
        assert_false(found.guess);
        if (kind != 2)
            assert_true(distance(table, &found) < 0.004);
    }
}

/* The layout is found though the values are wrong by a factor, a sign or an offset: that is for others to report. */
static void test_layout_in_spite_of_bugs(void **state)
{
    struct table *table = *state;
    const size_t count = 40 * 8 * 16;
    for (int kind = 0; kind < 4; kind++) {
        double *values = random_values(table, count);
        double *other = permuted(table, values, SHAPE(40, 8, 16), (unsigned[]){1, 0, 2});
        struct ts_view a = make(table, TS_F32, values, SHAPE(40, 8, 16)), b;
        struct ts_alignment found;
        for (size_t i = 0; i < count; i++)
            other[i] = kind == 0   ? 11 * other[i]
                       : kind == 1 ? -other[i]
                       : kind == 2 ? other[i] + 4
                       : i % 3     ? other[i]
                                   : 0;
        b = make(table, TS_F32, other, SHAPE(1, 8, 40, 16));
        found = aligned(table, &a, &b, NULL);
        assert_string_equal(found.recipe, "B: squeeze 0, swap 0 1");
        assert_false(found.ambiguous);
        assert_false(found.guess);
    }
}

static void test_integers(void **state)
{
    struct table *table = *state;
    double values[12 * 10], *other;
    struct ts_view a, b;
    struct ts_alignment found;
    for (int i = 0; i < 120; i++)
        values[i] = floor(uniform(table) * 150000);
    other = permuted(table, values, SHAPE(12, 10), (unsigned[]){1, 0});
    a = make(table, TS_I64, values, SHAPE(12, 10));
    b = make(table, TS_I32, other, SHAPE(10, 12));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "B: transpose", 120, 0);
    /* truth values: a causal mask and its transpose agree on many elements */
    for (int i = 0; i < 120; i++)
        values[i] = i / 10 >= i % 10;
    other = permuted(table, values, SHAPE(12, 10), (unsigned[]){1, 0});
    a = make(table, TS_BOOL, values, SHAPE(12, 10));
    b = make(table, TS_BOOL, other, SHAPE(1, 10, 12));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "B: squeeze 0, transpose", 120, 0);
}

static void test_square_weights(void **state)
{
    static const struct ts_align_hints weights = {.weights = true};
    struct table *table = *state;
    double *values = random_values(table, 48 * 48), *other;
    struct ts_view a = make(table, TS_F32, values, SHAPE(48, 48)), b;
    struct ts_alignment found;
    other = permuted(table, values, SHAPE(48, 48), (unsigned[]){1, 0});
    b = make(table, TS_BF16, other, SHAPE(48, 48));
    found = aligned(table, &a, &b, &weights);
    assert_found(table, &found, "B: transpose", 48 * 48, 0.004);
    /* an activation of equal shape is never turned around: that would hide the bug */
    found = aligned(table, &a, &b, NULL);
    assert_string_equal(found.recipe, "");
    assert_false(found.guess);
    assert_true(found.error > 1);
    /* noise, even much of it, turns nothing around */
    b = make(table, TS_F32, noisy(table, values, 48 * 48, 0.7), SHAPE(48, 48));
    found = aligned(table, &a, &b, &weights);
    assert_string_equal(found.recipe, "");
    b = make(table, TS_F32, random_values(table, 48 * 48), SHAPE(48, 48));
    found = aligned(table, &a, &b, &weights);
    assert_string_equal(found.recipe, "");
    /* experts of square weights */
    values = random_values(table, 4 * 32 * 32);
    other = permuted(table, values, SHAPE(4, 32, 32), (unsigned[]){0, 2, 1});
    a = make(table, TS_F32, values, SHAPE(4, 32, 32));
    b = make(table, TS_F32, other, SHAPE(4, 32, 32));
    found = aligned(table, &a, &b, &weights);
    assert_found(table, &found, "B: swap 1 2", 4 * 32 * 32, 0);
}

/* Ranks differ, so that layouts do: there the values may ask for another order of equal axes. */
static void test_equal_sizes_with_an_extra_axis(void **state)
{
    check_permuted(*state, SHAPE(16, 16, 16), (unsigned[]){1, 0, 2}, SHAPE(1, 16, 16, 16), "B: squeeze 0, swap 0 1");
    check_permuted(*state, SHAPE(16, 16, 16), (unsigned[]){0, 1, 2}, SHAPE(1, 16, 16, 16), "B: squeeze 0");
}

static void test_row_orders(void **state)
{
    static const struct ts_align_hints weights = {.weights = true};
    struct table *table = *state;
    const size_t count = 64 * 24;
    double *values = random_values(table, count), *other;
    struct ts_view a = make(table, TS_F32, values, SHAPE(64, 24)), b;
    struct ts_alignment found;
    /* 4 heads of 16 rows: halves in A, pairs in B */
    other = permuted(table, values, SHAPE(4, 2, 8, 24), (unsigned[]){0, 2, 1, 3});
    b = make(table, TS_BF16, other, SHAPE(64, 24));
    found = aligned(table, &a, &b, &weights);
    assert_found(table, &found, "A: split 0 as 4x2x8; B: split 0 as 4x8x2, swap 1 2", count, 0.004);
    found = aligned(table, &b, &a, &weights);
    assert_found(table, &found, "A: split 0 as 4x8x2; B: split 0 as 4x2x8, swap 1 2", count, 0.004);
    /* q, k, v one after the other, and head by head */
    values = random_values(table, 96 * 10);
    other = permuted(table, values, SHAPE(3, 4, 8, 10), (unsigned[]){1, 0, 2, 3});
    a = make(table, TS_F32, values, SHAPE(96, 10));
    b = make(table, TS_F32, other, SHAPE(96, 10));
    found = aligned(table, &a, &b, &weights);
    assert_found(table, &found, "A: split 0 as 3x4x8; B: split 0 as 4x3x8, swap 0 1", 960, 0);
    /* 2 groups of 4 query heads, a key and a value head, 8 rows each */
    values = random_values(table, 96 * 10);
    other = random_values(table, 96 * 10);
    for (int i = 0; i < 96; i++) {
        int group = i / 48, head = i / 8 % 6, row = i % 8;
        int from = head < 4 ? (group * 4 + head) * 8 + row : 64 + (head - 4) * 16 + group * 8 + row;
        memcpy(other + i * 10, values + from * 10, 10 * sizeof *other);
    }
    a = make(table, TS_F32, values, SHAPE(96, 10));
    b = make(table, TS_BF16, other, SHAPE(96, 10));
    found = aligned(table, &a, &b, &weights);
    assert_found(table, &found, "B: ungroup axis 0, 2 groups of 4+1+1 heads of 8", 960, 0.004);
    found = aligned(table, &b, &a, &weights);
    assert_found(table, &found, "A: ungroup axis 0, 2 groups of 4+1+1 heads of 8", 960, 0.004);
    /* gate and up, in pairs: a bias */
    values = random_values(table, 128);
    other = permuted(table, values, SHAPE(2, 64), (unsigned[]){1, 0});
    a = make(table, TS_F32, values, SHAPE(128));
    b = make(table, TS_F32, other, SHAPE(128));
    found = aligned(table, &a, &b, &weights);
    assert_found(table, &found, "A: split 0 as 2x64; B: split 0 as 64x2, transpose", 128, 0);
}

static void test_axis_names(void **state)
{
    struct table *table = *state;
    struct ts_align_hints names = {.axes_a = "tokens heads dim", .axes_b = "heads,tokens,dim"};
    double constant[12 * 12 * 4], *values, *other;
    struct ts_view a, b;
    struct ts_alignment found;
    for (int i = 0; i < 12 * 12 * 4; i++)
        constant[i] = 7;
    /* names settle what values cannot */
    a = make(table, TS_F32, constant, SHAPE(12, 6, 8));
    b = make(table, TS_F32, constant, SHAPE(6, 12, 8));
    found = aligned(table, &a, &b, &names);
    assert_found(table, &found, "B: swap 0 1", 12 * 6 * 8, 0);
    /* equal sizes: the names say that the axes are exchanged, and the values agree */
    values = random_values(table, 12 * 12 * 4);
    other = permuted(table, values, SHAPE(12, 12, 4), (unsigned[]){1, 0, 2});
    a = make(table, TS_F32, values, SHAPE(12, 12, 4));
    b = make(table, TS_F32, other, SHAPE(12, 12, 4));
    found = aligned(table, &a, &b, &names);
    assert_found(table, &found, "B: swap 0 1", 12 * 12 * 4, 0);
    /* nothing agrees: what was declared is no guess */
    b = make(table, TS_F32, random_values(table, 12 * 6 * 8), SHAPE(6, 12, 8));
    a = make(table, TS_F32, values, SHAPE(12, 6, 8));
    found = aligned(table, &a, &b, &names);
    assert_string_equal(found.recipe, "B: swap 0 1");
    assert_false(found.guess);
}

static void test_ambiguous(void **state)
{
    struct table *table = *state;
    double values[6 * 6 * 5], *other;
    struct ts_view a, b;
    struct ts_alignment found;
    for (int i = 0; i < 6 * 6 * 5; i++)
        values[i] = 3;
    a = make(table, TS_F32, values, SHAPE(6, 5));
    b = make(table, TS_F32, values, SHAPE(5, 6));
    found = aligned(table, &a, &b, NULL);
    assert_true(found.ambiguous);
    assert_false(found.guess);
    assert_string_equal(found.recipe, "B: transpose"); /* the plainest */
    assert_true(found.error == 0 && found.runner_up == 0);
    /* symmetric in its first two axes */
    for (int i = 0; i < 180; i++)
        values[i] = (i / 30 + 1) * (i / 5 % 6 + 1) + i % 5 * 1000;
    other = permuted(table, values, SHAPE(6, 6, 5), (unsigned[]){2, 0, 1});
    a = make(table, TS_F32, values, SHAPE(6, 6, 5));
    b = make(table, TS_F32, other, SHAPE(5, 6, 6));
    found = aligned(table, &a, &b, NULL);
    assert_true(found.ambiguous);
    assert_true(distance(table, &found) == 0);
    assert_string_equal(found.recipe, "B: permute 1 2 0");
    /* the same with noise, where neither is exact and the plainer one may be the worse by a little */
    for (int seed = 0; seed < 8; seed++) {
        b = make(table, TS_F32, noisy(table, other, 180, 30), SHAPE(5, 6, 6));
        found = aligned(table, &a, &b, NULL);
        assert_true(found.ambiguous);
        assert_false(found.guess);
        assert_true(found.error > 0 && found.runner_up < 1.5 * found.error);
        assert_string_equal(found.recipe, "B: permute 1 2 0");
    }
}

static void test_guess(void **state)
{
    struct table *table = *state;
    struct ts_view a = make(table, TS_F32, random_values(table, 40 * 8 * 16), SHAPE(40, 8, 16));
    struct ts_view b = make(table, TS_F32, random_values(table, 40 * 8 * 16), SHAPE(1, 8, 40, 16)), c;
    struct ts_alignment found = aligned(table, &a, &b, NULL);
    assert_true(found.guess);
    assert_string_equal(found.recipe, "B: squeeze 0, swap 0 1");
    assert_true(found.error > 1.2);
    assert_true(found.runner_up > 1.2);
    /* an extra row, and nothing in common */
    c = make(table, TS_F32, random_values(table, 41 * 8 * 16), SHAPE(41, 8, 16));
    found = aligned(table, &a, &c, NULL);
    assert_true(found.guess);
    assert_string_equal(found.recipe, "B: take 0..40 of 41 on axis 0");
    /* nobody has so many ranks, and two numbers are near some of so many by chance */
    a = make(table, TS_F32, random_values(table, 40000), SHAPE(40000));
    b = make(table, TS_F32, random_values(table, 2), SHAPE(2));
    assert_string_equal(aligned(table, &a, &b, NULL).problem, "[40000] against [2]: no layout fits");
    b = make(table, TS_F32, random_values(table, 20), SHAPE(20));
    assert_string_equal(aligned(table, &a, &b, NULL).problem, "[40000] against [20]: no layout fits");
}

static void test_no_layout(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 64);
    struct ts_view a = make(table, TS_F32, values, SHAPE(3, 4)), b = make(table, TS_F32, values + 32, SHAPE(5));
    struct ts_view shards[2] = {b, b};
    struct ts_alignment found = aligned(table, &a, &b, NULL);
    assert_string_equal(found.problem, "[3,4] against [5]: no layout fits");
    assert_ptr_equal(found.a.tensor, a.tensor);
    found = joined(table, &a, shards, 2, NULL);
    assert_string_equal(found.problem, "[3,4] against 2 shards like [5]: no layout fits");
    b = make(table, TS_C64, values, SHAPE(3, 4));
    found = aligned(table, &a, &b, NULL);
    assert_string_equal(found.problem, "[3,4] real against [3,4] complex: no layout fits");
}

/* The same bytes as complex numbers, two of the last axis each. */
static struct ts_view as_complex(struct table *table, const struct ts_view *real)
{
    struct ts_tensor *tensor = ts_arena_alloc(&table->arena, sizeof *tensor);
    struct ts_error error;
    struct ts_view view;
    assert_non_null(tensor);
    *tensor = *real->tensor;
    tensor->type = TS_C64;
    tensor->rank--;
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    assert_true(ts_view_of(tensor, &table->arena, &view));
    return view;
}

/* Turns of a rotary embedding are kept as complex numbers by some, as pairs or halves by others. */
static void test_complex(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 9 * 16 * 2);
    struct ts_view pairs = make(table, TS_F32, values, SHAPE(9, 16, 2)), a = as_complex(table, &pairs);
    struct ts_view interleaved = make(table, TS_F32, values, SHAPE(9, 32));
    struct ts_view halves =
        make(table, TS_F32, permuted(table, values, SHAPE(9, 16, 2), (unsigned[]){0, 2, 1}), SHAPE(9, 32));
    struct ts_view imaginary = make(table, TS_F32, sliced(table, values, SHAPE(9, 16, 2), 2, 1, 1), SHAPE(9, 16));
    struct ts_view other = make(table, TS_F32, random_values(table, 9 * 16 * 2), SHAPE(9, 16, 2));
    struct ts_alignment found = aligned(table, &a, &pairs, NULL);
    assert_found(table, &found, "A: complex read as [9,16,2]", 288, 0);
    found = aligned(table, &interleaved, &a, NULL);
    assert_found(table, &found, "B: complex read as [9,16,2], merge 1 2", 288, 0);
    found = aligned(table, &a, &halves, NULL);
    assert_found(table, &found, "A: complex read as [9,16,2]; B: split 1 as 2x16, swap 1 2", 288, 0);
    found = aligned(table, &a, &imaginary, NULL);
    assert_found(table, &found, "A: complex read as [9,16,2], index 1 of 2 on axis 2", 144, 0);
    found = aligned(table, &a, &other, NULL); /* the shapes say it, whatever the values */
    assert_string_equal(found.recipe, "A: complex read as [9,16,2]");
    assert_null(found.problem);
}

/* Axes of one element may have any stride, and empty tensors any other axes. */
static void test_complex_odd(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 24);
    struct ts_view real = make(table, TS_F32, values, SHAPE(3, 1, 4, 2)), a = as_complex(table, &real), empty;
    struct ts_tensor odd, none = *a.tensor;
    uint64_t vast[] = {0, (uint64_t)1 << 40, (uint64_t)1 << 23};
    int64_t strides[] = {1, INT64_MAX, 3};
    struct ts_view turned =
        make(table, TS_F32, permuted(table, values, SHAPE(3, 4, 2), (unsigned[]){1, 0, 2}), SHAPE(4, 3, 2));
    struct ts_view stored = as_complex(table, &turned), view;
    struct ts_alignment found;
    struct ts_error error;
    odd = *stored.tensor; /* [4, 3], read as [3, 1, 4] */
    odd.rank = 3;
    odd.shape = (uint64_t[]){3, 1, 4};
    odd.strides = strides;
    assert_int_equal(ts_tensor_finish(&odd, &error), TS_OK);
    assert_true(ts_view_of(&odd, &table->arena, &view));
    found = aligned(table, &view, &real, NULL);
    assert_found(table, &found, "A: complex read as [3,1,4,2], squeeze 1; B: squeeze 1", 24, 0);
    none.shape = vast;
    assert_int_equal(ts_tensor_finish(&none, &error), TS_OK);
    assert_true(ts_view_of(&none, &table->arena, &empty));
    found = aligned(table, &empty, &real, NULL);
    assert_non_null(found.problem);
}

/* Quantized weights are read in order; the other side is the one that is turned around. */
static void test_quantized(void **state)
{
    struct table *table = *state;
    const size_t rows = 24, columns = 64, blocks = rows * columns / 32;
    uint8_t *bytes = ts_arena_alloc(&table->arena, blocks * 34);
    double *values = random_values(table, rows * columns);
    struct ts_tensor quantized = {.name = "q", .type = ts_type_of_block(TS_BLOCK_Q8_0), .rank = 2};
    struct ts_view a, b;
    struct ts_alignment found;
    struct ts_error error;
    assert_non_null(bytes);
    for (size_t i = 0; i < blocks; i++) {
        bytes[i * 34] = 0; /* a scale of 2^-5 as a half */
        bytes[i * 34 + 1] = 0x28;
        for (size_t k = 0; k < 32; k++)
            bytes[i * 34 + 2 + k] = (uint8_t)(int8_t)lrint(fmax(-127, fmin(127, values[i * 32 + k] * 32)));
    }
    quantized.shape = (uint64_t[]){rows, columns};
    assert_int_equal(ts_source_copy(bytes, blocks * 34, "memory", &quantized.source, &error), TS_OK);
    table->sources[table->count++] = quantized.source;
    assert_int_equal(ts_tensor_finish(&quantized, &error), TS_OK);
    assert_true(ts_view_of(&quantized, &table->arena, &b));
    a = make(table, TS_F32, permuted(table, values, SHAPE(rows, columns), (unsigned[]){1, 0}), SHAPE(columns, rows));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: transpose", rows * columns, 0.02);
    found = aligned(table, &b, &a, NULL);
    assert_found(table, &found, "B: transpose", rows * columns, 0.02);
}

/* Two archives of a real layout study: every pair aligns, and the differences stay where they were planted. */
static void test_archives(void **state)
{
    static const struct {
        const char *stage, *recipe;
    } expected[] = {
        {"post_ln_pre_attn", ""},
        {"query", "B: split 1 as 8x8"},
        {"query_final", "B: swap 0 1"},
        {"key", ""},
        {"key_final", "B: swap 0 1"},
        {"value", ""},
        {"value_final", "B: swap 0 1"},
        {"post_attn", "A: take 0..6 of 8 on axis 0 (the rest is zero)"},
        {"scaling", ""},
        {"sliding", ""},
        {"post_attn_pre_resid", ""},
        {"pre_mlp", ""},
        {"post_mlp", ""},
    };
    struct table *table = *state;
    struct ts_bundle *bundle[2];
    struct ts_error error;
    assert_int_equal(ts_open("tests/golden/archives/model1_tp8.zip", NULL, &bundle[0], &error), TS_OK);
    assert_int_equal(ts_open("tests/golden/archives/model2_tp1.zip", NULL, &bundle[1], &error), TS_OK);
    for (unsigned layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
            struct ts_view view[2];
            struct ts_alignment found;
            for (unsigned side = 0; side < 2; side++) {
                char name[64];
                size_t k = 0;
                snprintf(name, sizeof name, "/%u_%s.pth", side ? layer : layer + 3, expected[i].stage);
                while (k < bundle[side]->count && !strstr(bundle[side]->tensors[k]->file, name))
                    k++;
                assert_true(k < bundle[side]->count);
                assert_true(ts_view_of(bundle[side]->tensors[k], &table->arena, &view[side]));
            }
            found = aligned(table, &view[0], &view[1], NULL);
            assert_string_equal(found.recipe, expected[i].recipe);
            assert_null(found.problem);
            assert_false(found.guess);
            assert_false(found.ambiguous);
            if (layer == 0 || strcmp(expected[i].stage, "post_mlp") != 0)
                assert_true(distance(table, &found) < 1e-4);
            else
                assert_true(distance(table, &found) > 1e-2);
        }
    ts_bundle_free(bundle[0]);
    ts_bundle_free(bundle[1]);
}

/* Unrelated weights of more axes than are turned, the last one as wide as a head: as many as a layout has pieces. */
static void test_many_axes(void **state)
{
    static const uint64_t shape[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4};
    const struct ts_align_hints weights = {.weights = true};
    struct table *table = *state;
    for (size_t rank = 6; rank <= 12; rank++) {
        const uint64_t *own = shape + 12 - rank;
        const size_t count = product(rank, own);
        struct ts_view a = make(table, TS_F32, random_values(table, count), rank, own);
        struct ts_view b = make(table, TS_F32, random_values(table, count), rank, own);
        struct ts_alignment found = aligned(table, &a, &b, &weights);
        assert_null(found.problem);
        assert_string_equal(found.recipe, "");
    }
}

/* Whoever interrupts need not wait until all values were looked at. */
static void test_interrupted(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 40 * 24);
    struct ts_view a = make(table, TS_F32, values, SHAPE(40, 24)), b = make(table, TS_F32, values, SHAPE(24, 40));
    struct ts_align_hints hints = {0};
    struct ts_alignment found;
    struct ts_agreement agreement;
    struct ts_error error;
    enum ts_status aligning, agreeing;
    atomic_store(&ts_cancelled, true);
    aligning = ts_align(&a, &b, &hints, &table->arena, &found, &error);
    agreeing = ts_agree(&a, &a, 4, &agreement, &error);
    atomic_store(&ts_cancelled, false);
    assert_int_equal(aligning, TS_ERR_CANCELLED);
    assert_int_equal(agreeing, TS_ERR_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_heads_first),
        TEST(test_ones),
        TEST(test_any_order),
        TEST(test_split_and_merge),
        TEST(test_random_layouts),
        TEST(test_same_numbers_other_shape),
        TEST(test_scalars),
        TEST(test_empty),
        TEST(test_difficult_values),
        TEST(test_layout_in_spite_of_bugs),
        TEST(test_integers),
        TEST(test_square_weights),
        TEST(test_equal_sizes_with_an_extra_axis),
        TEST(test_row_orders),
        TEST(test_axis_names),
        TEST(test_ambiguous),
        TEST(test_guess),
        TEST(test_no_layout),
        TEST(test_complex),
        TEST(test_complex_odd),
        TEST(test_quantized),
        TEST(test_archives),
        TEST(test_many_axes),
        TEST(test_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
