/* The inner loops of statistics: the same bits from every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/number.h"
#include "compare/stats_kernel.h"
#include "dice.h"

typedef void kernel_function(const uint8_t *src, size_t count, struct ts_stats_sums *sums);

static void same_sums(kernel_function *portable, kernel_function *other, const uint8_t *bytes, size_t count)
{
    struct ts_stats_sums a, b;
    portable(bytes, count, &a);
    other(bytes, count, &b);
    assert_int_equal(a.clean, b.clean);
    if (!a.clean) /* nobody looks at the rest */
        return;
    assert_int_equal(ts_double_bits(a.sum), ts_double_bits(b.sum));
    assert_int_equal(ts_double_bits(a.sum_squares), ts_double_bits(b.sum_squares));
    assert_int_equal(ts_double_bits(a.min), ts_double_bits(b.min));
    assert_int_equal(ts_double_bits(a.max), ts_double_bits(b.max));
    assert_int_equal(a.zeros, b.zeros);
}

static void compare_kernels(const struct ts_stats_kernels *other)
{
    const struct ts_stats_kernels *portable = &ts_stats_kernels_portable;
    static uint8_t bytes[4 * TS_STATS_RUN + 1];
    for (int turn = 0; turn < 3000; turn++) {
        size_t count = turn < 200 ? (size_t)turn + 1 : turn % 16 ? dice() % 700 + 1 : TS_STATS_RUN - dice() % 3;
        int span = (int)(dice() % 60) + 1, middle = (int)(dice() % 180) - 90;
        uint8_t *at = bytes + dice() % 2; /* aligned or not */
        for (size_t i = 0; i < count; i++) {
            float number = (float)ldexp(dice_number(), middle + (int)(dice() % (unsigned)span));
            number = dice() % 50 ? number : dice() % 2 ? 0.0f : -0.0f;
            memcpy(at + 4 * i, &number, 4);
        }
        same_sums(portable->f32, other->f32, at, count);
        for (size_t i = 0; i < count; i++) { /* a lane of small numbers beside larger ones */
            int exponent = i % 32 == (size_t)turn % 32 ? -75 : middle;
            uint16_t half = (uint16_t)(ts_float_bits((float)ldexp(dice_number(), exponent + (int)(dice() % 9))) >> 16);
            memcpy(at + 2 * i, &half, 2);
        }
        same_sums(portable->bf16, other->bf16, at, count);
        for (size_t i = 0; i < count; i++) { /* all bits but infinities and NaN, then those too */
            uint16_t half = (uint16_t)dice();
            half = turn % 8 == 0 || (half & 0x7c00) != 0x7c00 ? half : (uint16_t)(half & 0x83ff);
            memcpy(at + 2 * i, &half, 2);
        }
        same_sums(portable->f16, other->f16, at, count);
    }
}

/* The same bits from every instruction set that this machine has (and TSLEUTH_SIMD leaves). */
static void test_levels(void **state)
{
    (void)state;
    dice_state = 5;
#if defined(__x86_64__)
    if (ts_simd_level() >= TS_SIMD_AVX2)
        compare_kernels(&ts_stats_kernels_avx2);
    if (ts_simd_level() >= TS_SIMD_AVX512)
        compare_kernels(&ts_stats_kernels_avx512);
    if (ts_simd_level() >= TS_SIMD_AVX512BF16)
        compare_kernels(&ts_stats_kernels_avx512bf16);
#elif defined(__aarch64__)
    if (ts_simd_level() == TS_SIMD_NEON)
        compare_kernels(&ts_stats_kernels_neon);
#endif
}

static void test_kernel_bounds(void **state)
{
    struct ts_stats_sums sums;
    uint8_t *bytes = malloc(3 * 4); /* a sanitizer sees one byte more than asked for */
    (void)state;
    assert_non_null(bytes);
    memset(bytes, 0, 12);
    ts_stats_kernels_portable.f32(bytes, 3, &sums);
    assert_true(sums.clean && sums.zeros == 3 && sums.min == 0 && sums.max == 0 && sums.sum == 0);
    ts_stats_kernels_portable.bf16(bytes, 6, &sums);
    assert_true(sums.clean && sums.zeros == 6);
    ts_stats_kernels_portable.f16(bytes, 6, &sums);
    assert_true(sums.clean && sums.zeros == 6);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_kernel_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
