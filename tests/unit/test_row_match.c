/* Rows found again by what they hold: under noise, among equal ones, and what is no match; and those that experts
 * gather. */
#include <math.h>

#include "compare/gathered.h"
#include "made_trace.h"

enum { SIGNS = TS_ROW_SIGNS };

static double *make_rows(size_t count)
{
    double *rows = malloc(count * SIGNS * sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < count * SIGNS; i++)
        rows[i] = dice_number();
    return rows;
}

static double apart(const double *one, const double *other)
{
    double sum = 0;
    for (size_t k = 0; k < SIGNS; k++)
        sum += (one[k] - other[k]) * (one[k] - other[k]);
    return sum;
}

static void test_nearest_is_the_true_one(void **state)
{
    enum { COUNT = 2000, WANTED = 200 };
    double *rows = make_rows(COUNT), wanted[SIGNS];
    struct ts_row_book book;
    (void)state;
    assert_true(ts_row_book_open(&book, rows, COUNT, SIGNS));
    for (size_t i = 0; i < WANTED; i++) { /* from next to a row to anywhere */
        const double noise = 1.5 * (double)i / WANTED;
        size_t best = 0;
        for (size_t k = 0; k < SIGNS; k++)
            wanted[k] = rows[i * 7 * SIGNS + k] + noise * dice_number();
        for (size_t row = 1; row < COUNT; row++)
            best = apart(rows + row * SIGNS, wanted) < apart(rows + best * SIGNS, wanted) ? row : best;
        assert_int_equal(ts_row_book_find(&book, wanted, (double)INFINITY, SIZE_MAX, SIZE_MAX, NULL).row, best);
        /* a limit is a limit, and no reason to miss what is within it */
        const double limit = apart(rows + best * SIGNS, wanted);
        assert_int_equal(ts_row_book_find(&book, wanted, limit, SIZE_MAX, SIZE_MAX, NULL).row, SIZE_MAX);
        assert_int_equal(ts_row_book_find(&book, wanted, limit + 1e-9, SIZE_MAX, SIZE_MAX, NULL).row, best);
    }
    ts_row_book_release(&book);
    free(rows);
}

static void test_many_rows(void **state)
{
    enum { COUNT = 50000 };
    double *rows = make_rows(COUNT), wanted[SIGNS];
    struct ts_row_book book;
    (void)state;
    assert_true(ts_row_book_open(&book, rows, COUNT, SIGNS));
    for (size_t row = 0; row < COUNT; row += 11) {
        struct ts_row_found found;
        for (size_t k = 0; k < SIGNS; k++)
            wanted[k] = rows[row * SIGNS + k] * (1 + 1e-3 * dice_number());
        found = ts_row_book_find(&book, wanted, 0.1, SIZE_MAX, SIZE_MAX, NULL);
        assert_int_equal(found.row, row);
        assert_false(found.ambiguous);
    }
    ts_row_book_release(&book);
    free(rows);
}

static struct ts_row_found find_shaken(const struct ts_row_book *book, size_t row, size_t own, size_t before,
                                       const bool *taken)
{
    double wanted[SIGNS];
    for (size_t k = 0; k < SIGNS; k++)
        wanted[k] = book->numbers[row * SIGNS + k] * (1 + 1e-3 * dice_number());
    return ts_row_book_find(book, wanted, 0.1, own, before, taken);
}

/* Row r and row r + 4 are equal. */
static void test_equal_rows(void **state)
{
    double *rows = make_rows(8);
    bool taken[8] = {false};
    struct ts_row_book book;
    struct ts_row_found found;
    (void)state;
    memcpy(rows + 4 * SIGNS, rows, 4 * SIGNS * sizeof *rows);
    assert_true(ts_row_book_open(&book, rows, 8, SIGNS));
    for (size_t row = 0; row < 4; row++) {
        found = find_shaken(&book, row, SIZE_MAX, SIZE_MAX, NULL);
        assert_true(found.ambiguous);
        assert_int_equal(found.row, row);
        assert_int_equal(find_shaken(&book, row, row + 4, SIZE_MAX, NULL).row, row + 4);      /* it stays */
        assert_int_equal(find_shaken(&book, row, (row + 1) % 4, row + 3, NULL).row, row + 4); /* with the run */
        assert_int_equal(find_shaken(&book, row, row + 4, row - 1, NULL).row, row + 4);       /* rather stays */
    }
    taken[6] = true;
    found = find_shaken(&book, 2, 6, 5, taken);
    assert_int_equal(found.row, 2);
    assert_false(found.ambiguous);
    taken[2] = true;
    assert_int_equal(find_shaken(&book, 2, 6, 5, taken).row, SIZE_MAX);
    ts_row_book_release(&book);
    free(rows);
}

enum { ROWS = 40, WIDTH = 96 };

static float a[ROWS * WIDTH], b[ROWS * WIDTH];

static size_t from_of(size_t row)
{
    return (row * 7 + 3) % ROWS;
}

static void make_moved(double noise)
{
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        a[i] = (float)dice_number();
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        b[i] = (float)((double)a[from_of(i / WIDTH) * WIDTH + i % WIDTH] * (1 + noise * dice_number()));
}

static bool open_match(struct trace *trace, struct ts_row_match *match, const struct ts_row_rule *rule, size_t rows,
                       size_t width)
{
    trace_start(trace);
    return ts_row_match_open(match, &trace->pairs[trace_add(trace, "x", a, b, SHAPE(rows, width))], rule);
}

static void drop_match(struct trace *trace, struct ts_row_match *match)
{
    ts_row_match_release(match);
    trace_end(trace);
}

static void test_rows_of_a_pair(void **state)
{
    const struct ts_row_rule rule = {.close = 0.01, .lost = 2};
    struct ts_row_match match;
    struct trace trace;
    (void)state;
    make_moved(1e-2);
    b[5 * WIDTH + 1] = NAN;                /* no sign of it */
    for (size_t i = 1; i < WIDTH - 1; i++) /* the signs of row 6, and nothing else of it */
        if (i * 23 % 95 >= 23)
            b[6 * WIDTH + i] = (float)dice_number();
    assert_true(open_match(&trace, &match, &rule, ROWS, WIDTH));
    assert_int_equal(match.found, ROWS - 2);
    for (size_t row = 0, moved = 0; row < ROWS; row++) {
        const struct ts_row_matched *matched = &match.rows[row];
        assert_int_equal(matched->from, row == 5 || row == 6 ? SIZE_MAX : from_of(row));
        assert_false(matched->ambiguous);
        if (matched->from == SIZE_MAX)
            assert_true(matched->left == 0 && matched->energy == 0);
        else
            assert_true(matched->left > 0 && matched->left < 1e-4 * matched->energy);
        moved += matched->from != SIZE_MAX && matched->from != row;
        assert_true(row + 1 < ROWS || moved == match.moved);
    }
    drop_match(&trace, &match);
}

static void test_rule(void **state)
{
    struct ts_row_match match;
    struct trace trace;
    (void)state;
    make_moved(0.5);
    assert_true(open_match(&trace, &match, &(struct ts_row_rule){.close = 0.01, .lost = ROWS}, ROWS, WIDTH));
    assert_int_equal(match.found, 0);
    drop_match(&trace, &match);
    assert_true(open_match(&trace, &match, &(struct ts_row_rule){.close = 0.2}, ROWS, WIDTH));
    assert_int_equal(match.found, ROWS);
    drop_match(&trace, &match);
    make_moved(0);
    for (size_t i = 0; i < WIDTH; i++) { /* one row is next to nothing, another is there twice */
        a[from_of(1) * WIDTH + i] *= 1e-3f;
        b[1 * WIDTH + i] = 1e-3f * (float)dice_number();
        b[2 * WIDTH + i] = b[3 * WIDTH + i];
    }
    assert_true(open_match(&trace, &match, &(struct ts_row_rule){.close = 0.01, .lost = ROWS}, ROWS, WIDTH));
    assert_int_equal(match.rows[1].from, SIZE_MAX);
    assert_int_equal(match.rows[2].from, from_of(3));
    assert_int_equal(match.rows[3].from, from_of(3));
    drop_match(&trace, &match);
    assert_true(open_match(&trace, &match, &(struct ts_row_rule){.close = 0.01, .floor = 1e-3, .lost = 1, .once = true},
                           ROWS, WIDTH));
    assert_int_equal(match.rows[1].from, from_of(1));
    assert_int_equal(match.rows[2].from, from_of(3));
    assert_int_equal(match.rows[3].from, SIZE_MAX);
    drop_match(&trace, &match);
    assert_false(
        open_match(&trace, &match, &(struct ts_row_rule){.close = 0.01, .floor = 1e-3, .once = true}, ROWS, WIDTH));
    drop_match(&trace, &match);
}

static void test_no_rows(void **state)
{
    static const size_t shapes[][2] = {{ROWS, 3}, {1, WIDTH}};
    struct ts_row_match match;
    struct trace trace;
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        assert_false(open_match(&trace, &match, &(struct ts_row_rule){.close = 0.1}, shapes[i][0], shapes[i][1]));
        drop_match(&trace, &match);
    }
    trace_start(&trace);
    trace_add(&trace, "x", a, b, SHAPE(ROWS, WIDTH));
    made_complex(trace.a, "x");
    made_complex(trace.b, "x");
    assert_true(ts_view_of(ts_bundle_tensor(trace.a, "x"), &trace.arena, &trace.pairs[0].a));
    assert_true(ts_view_of(ts_bundle_tensor(trace.b, "x"), &trace.arena, &trace.pairs[0].b));
    assert_int_equal(ts_row_match_count(&trace.pairs[0]), 0);
    assert_false(ts_row_match_open(&match, &trace.pairs[0], &(struct ts_row_rule){.close = 0.1}));
    drop_match(&trace, &match);
}

/* The order of what make_moved left, under a name, of a tensor that errs by rel_l2. */
static size_t *order_of(const char *name, double rel_l2)
{
    const struct ts_delta delta = {.rel_l2 = rel_l2};
    struct trace trace;
    size_t *order;
    trace_start(&trace);
    order = ts_gathered_order(&trace.pairs[trace_add(&trace, name, a, b, SHAPE(ROWS, WIDTH))], &delta);
    trace_end(&trace);
    return order;
}

static void test_gathered(void **state)
{
    static const char *const inside = "layers.0.mlp.experts.act_fn";
    size_t *order;
    (void)state;
    make_moved(1e-2);
    memcpy(b + 2 * WIDTH, b + 3 * WIDTH, WIDTH * sizeof *b); /* there once, so that one of them is wrong */
    order = order_of(inside, 1.4);
    assert_non_null(order);
    for (size_t row = 0; row < ROWS; row++)
        assert_int_equal(order[row], row == 2 ? from_of(3) : row == 3 ? SIZE_MAX : from_of(row));
    free(order);
    assert_null(order_of("layers.0.mlp.experts", 1.4));
    assert_null(order_of("layers.0.mlp.shared_experts.act_fn", 1.4));
    assert_null(order_of(inside, 1e-2)); /* it explains nothing */
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        b[i] = i / WIDTH < ROWS / 2 ? (float)dice_number() : a[i] * 1.01f;
    assert_null(order_of(inside, 1.0)); /* wrong rows in their places */
}

/* Rows of which it is known which belong together: what is left of them tells which is which, but of NaN nothing does,
 * and a row of the reference that such a one stands for is still free. */
static void test_rows_of_groups(void **state)
{
    enum { NONE = 5 };
    size_t groups[2][ROWS];
    struct ts_row_match match;
    struct trace trace;
    (void)state;
    make_moved(1e-2);
    for (size_t row = 0; row < ROWS; row++) {
        groups[0][row] = row % 8;
        groups[1][row] = from_of(row) % 8;
    }
    a[from_of(NONE) * WIDTH + 3] = b[NONE * WIDTH + 3] = NAN;
    trace_start(&trace);
    assert_true(ts_row_match_within(&match, &trace.pairs[trace_add(&trace, "x", a, b, SHAPE(ROWS, WIDTH))], groups[0],
                                    groups[1]));
    assert_int_equal(match.found, ROWS - 1);
    assert_int_equal(match.blank, 1);
    for (size_t row = 0; row < ROWS; row++) {
        const struct ts_row_matched *matched = &match.rows[row];
        assert_int_equal(matched->from, row == NONE ? SIZE_MAX : from_of(row));
        assert_true(isfinite(matched->left) && isfinite(matched->energy));
    }
    drop_match(&trace, &match);
    assert_null(match.rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_is_the_true_one),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_equal_rows),
        cmocka_unit_test(test_rows_of_a_pair),
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_gathered),
        cmocka_unit_test(test_rows_of_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
