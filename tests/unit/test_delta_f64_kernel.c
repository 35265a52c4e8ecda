/* The inner loop of measuring a difference in double: right by a plain loop in long double, and the same bits from
 * every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "compare/delta_f64_kernel.h"
#include "dice.h"

enum { MOST = 700 };

static size_t levels(const struct ts_delta_f64_kernels *out[4])
{
    size_t count = 0;
    out[count++] = &ts_delta_f64_kernels_portable;
#if defined(__x86_64__)
    if (ts_simd_level() >= TS_SIMD_AVX2)
        out[count++] = &ts_delta_f64_kernels_avx2;
    if (ts_simd_level() >= TS_SIMD_AVX512)
        out[count++] = &ts_delta_f64_kernels_avx512;
    if (ts_simd_level() >= TS_SIMD_AVX512BF16)
        out[count++] = &ts_delta_f64_kernels_avx512bf16;
#elif defined(__aarch64__)
    if (ts_simd_level() == TS_SIMD_NEON)
        out[count++] = &ts_delta_f64_kernels_neon;
#endif
    return count;
}

static void near_to(const char *what, double found, long double expected, long double scale)
{
    if (!(fabsl((long double)found - expected) <= 1e-13L * scale))
        fail_msg("%s: %.17g instead of %.17Lg", what, found, expected);
}

static void check_side(const double *values, size_t count, const struct ts_moments *moments, double min, double max)
{
    long double sum = 0, squares = 0, sizes = 0, deviation = 0;
    double least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        sum += (long double)values[i];
        sizes += fabsl((long double)values[i]);
        squares += (long double)values[i] * (long double)values[i];
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
    }
    for (size_t i = 0; i < count; i++) {
        long double rest = (long double)values[i] - sum / (long double)count;
        deviation += rest * rest;
    }
    assert_int_equal(moments->count, count);
    near_to("mean", moments->mean * (double)count, sum, sizes);
    near_to("squares", moments->squares, squares, squares);
    near_to("deviation", moments->deviation, deviation, 10 * deviation + 1e-20L * squares);
    assert_true(min == least && max == most);
}

static void check(const double *a, const double *b, size_t count, struct ts_delta_f64_limits limits,
                  const struct ts_delta_sums *sums)
{
    long double sum = 0, sum_abs = 0, squares = 0;
    double max_abs = 0, max_rel = 0;
    uint64_t unequal = 0, mismatched = 0;
    for (size_t i = 0; i < count; i++) {
        const double d = b[i] - a[i], distance = fabs(d);
        sum += (long double)d;
        sum_abs += (long double)distance;
        squares += (long double)d * (long double)d;
        max_abs = fmax(max_abs, distance);
        if (a[i] != 0)
            max_rel = fmax(max_rel, distance / fabs(a[i]));
        unequal += a[i] != b[i];
        mismatched += distance > fabs(a[i]) * limits.rtol + limits.atol;
    }
    check_side(a, count, &sums->a, sums->min_a, sums->max_a);
    check_side(b, count, &sums->b, sums->min_b, sums->max_b);
    near_to("sum of d", sums->sum, sum, sum_abs);
    near_to("sum of |d|", sums->sum_abs, sum_abs, sum_abs);
    near_to("squares of d", sums->squares, squares, squares);
    assert_true(sums->max_abs == max_abs);
    assert_int_equal(sums->unequal, unequal);
    assert_int_equal(sums->mismatched, mismatched);
    if (max_rel > limits.ratio * (1 + 1e-15))
        assert_true(fabs(sums->max_rel - max_rel) <= 1e-15 * max_rel);
    else if (max_rel < limits.ratio * (1 - 1e-15))
        assert_true(sums->max_rel == 0);
}

static void test_plain_loop(void **state)
{
    static double a[MOST], b[MOST];
    const struct ts_delta_f64_kernels *tables[4];
    size_t found = levels(tables);
    (void)state;
    dice_state = 5;
    for (int turn = 0; turn < 800; turn++) {
        const size_t count = turn < 100 ? (size_t)turn + 1 : dice() % MOST + 1;
        const double scale = ldexp(1, (int)(dice() % 200) - 100), middle = turn % 4 ? 0 : 1e6 * scale;
        const struct ts_delta_f64_limits limits = {turn % 3 ? 1e-3 : 0, turn % 2 ? 1e-3 * scale : 0,
                                                   turn % 5 ? ldexp(1, (int)(dice() % 12) - 10) : 0};
        struct ts_delta_sums first = {0}, sums;
        for (size_t i = 0; i < count; i++) {
            a[i] = dice() % 9 ? middle + dice_number() * scale : 0;
            b[i] = turn % 7 == 0 || dice() % 3 == 0 ? a[i] : a[i] + dice_number() * scale * (turn % 2 ? 1e-2 : 3);
        }
        for (size_t level = 0; level < found; level++) {
            tables[level]->measure(a, b, count, limits, &sums);
            assert_true(sums.clean);
            check(a, b, count, limits, &sums);
            if (level == 0)
                first = sums;
            assert_memory_equal(&sums.a, &first.a, sizeof sums.a);
            assert_memory_equal(&sums.b, &first.b, sizeof sums.b);
            assert_true(sums.sum == first.sum && sums.sum_abs == first.sum_abs && sums.squares == first.squares);
            assert_true(sums.max_rel == first.max_rel);
        }
    }
}

/* In every lane and in what is left over, on either side. */
static void test_what_is_no_number_is_handed_back(void **state)
{
    static const double specials[] = {NAN, -NAN, INFINITY, -INFINITY, 1e200, -1e200};
    const struct ts_delta_f64_kernels *tables[4];
    size_t found = levels(tables);
    double values[2][21];
    (void)state;
    for (size_t level = 0; level < found; level++)
        for (size_t place = 0; place < 21; place++)
            for (size_t special = 0; special < sizeof specials / sizeof *specials; special++)
                for (int where = 1; where < 4; where++) { /* in a, in b, in both */
                    const struct ts_delta_f64_limits limits = {1e-3, 1e-3, 0};
                    struct ts_delta_sums sums;
                    for (size_t i = 0; i < 21; i++)
                        values[0][i] = values[1][i] = (double)i - 7;
                    for (int side = 0; side < 2; side++)
                        if (where >> side & 1)
                            values[side][place] = specials[special];
                    tables[level]->measure(values[0], values[1], 21, limits, &sums);
                    assert_false(sums.clean);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_loop),
        cmocka_unit_test(test_what_is_no_number_is_handed_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
