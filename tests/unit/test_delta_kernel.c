/* The inner loops of measuring a difference: right by a plain loop in double, and the same bits from every instruction
 * set. */
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
#include "compare/delta_kernel.h"
#include "dice.h"

enum kind {
    F32 = TS_DELTA_F32,
    DOUBLED = TS_DELTA_DOUBLED,
    BF16 = TS_DELTA_BF16,
    F16 = TS_DELTA_F16,
    MIXED = TS_DELTA_KINDS, /* a is bf16, b f32 */
    KINDS
};

/* The kernels of a kind that this machine can run (and TSLEUTH_SIMD leaves), portable first. */
static size_t levels(int kind, const struct ts_delta_kernel *out[4])
{
    size_t count = 0;
#define LEVEL(name) kind == MIXED ? &ts_delta_mixed_kernel_##name : &ts_delta_kernels_##name.of[kind]
    out[count++] = LEVEL(portable);
#if defined(__x86_64__)
    if (ts_simd_level() >= TS_SIMD_AVX2)
        out[count++] = LEVEL(avx2);
    if (ts_simd_level() >= TS_SIMD_AVX512)
        out[count++] = LEVEL(avx512);
    if (ts_simd_level() >= TS_SIMD_AVX512BF16)
        out[count++] = LEVEL(avx512bf16);
#elif defined(__aarch64__)
    if (ts_simd_level() == TS_SIMD_NEON)
        out[count++] = LEVEL(neon);
#endif
    return count;
}

/* Of each side. */
static int kind_a(int kind)
{
    return kind == MIXED ? BF16 : kind;
}

static int kind_b(int kind)
{
    return kind == MIXED ? F32 : kind;
}

static size_t size_of(int kind)
{
    return kind == F32 || kind == DOUBLED ? 4 : 2;
}

static float value_at(int kind, const uint8_t *bytes, size_t i)
{
    return size_of(kind) == 4 ? ts_float_from_bits(ts_load_le32(bytes + i * 4))
           : kind == BF16     ? ts_bf16_to_float(ts_load_le16(bytes + i * 2))
                              : ts_f16_to_float(ts_load_le16(bytes + i * 2));
}

static uint16_t to_f16(float value)
{
    uint32_t bits = ts_float_bits(value), sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 255;
    if (exponent < 103)
        return (uint16_t)sign;
    if (exponent < 113) /* subnormal */
        return (uint16_t)(sign | ((bits & 0x7fffff) | 0x800000) >> (126 - exponent));
    return (uint16_t)(exponent > 142 ? sign | 0x7bff : sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

static void put(int kind, uint8_t *bytes, size_t i, float value)
{
    uint16_t half = kind == BF16 ? (uint16_t)(ts_float_bits(value) >> 16) : to_f16(value);
    if (size_of(kind) == 4)
        memcpy(bytes + i * 4, &value, 4);
    else
        memcpy(bytes + i * 2, &half, 2);
}

/* Sums of eight numbers in f32 lose at most 6e-7, and sums of those hardly more. */
static void near_to(int kind, const char *what, double found, double expected, double scale)
{
    if (!(fabs(found - expected) <= (kind == DOUBLED ? 1e-12 : 6.2e-7) * scale))
        fail_msg("%s: %.12g instead of %.12g", what, found, expected);
}

/* Everything the kernel says, by a plain loop; the run must be of finite numbers of ordinary size. */
static void check(int kind, const uint8_t *a, const uint8_t *b, size_t count, struct ts_delta_limits limits,
                  const struct ts_delta_sums *sums)
{
    double sum_a = 0, sum_b = 0, squares_a = 0, squares_b = 0, sum = 0, sum_abs = 0, squares = 0, size_a = 0;
    double min_a = INFINITY, max_a = -INFINITY, min_b = INFINITY, max_b = -INFINITY, deviation_a = 0, deviation_b = 0;
    float max_abs = 0, max_rel = 0;
    uint64_t unequal = 0, mismatched = 0;
    for (size_t i = 0; i < count; i++) {
        float x = value_at(kind_a(kind), a, i), y = value_at(kind_b(kind), b, i), distance = fabsf(y - x);
        sum_a += (double)x;
        size_a += fabs((double)x);
        sum_b += (double)y;
        squares_a += (double)x * (double)x;
        squares_b += (double)y * (double)y;
        sum += (double)y - (double)x;
        sum_abs += fabs((double)y - (double)x);
        squares += ((double)y - (double)x) * ((double)y - (double)x);
        min_a = fmin(min_a, (double)x);
        max_a = fmax(max_a, (double)x);
        min_b = fmin(min_b, (double)y);
        max_b = fmax(max_b, (double)y);
        max_abs = fmaxf(max_abs, distance);
        if (x != 0)
            max_rel = fmaxf(max_rel, distance / fabsf(x));
        unequal += x != y;
        mismatched += distance > fabsf(x) * limits.rtol + limits.atol;
    }
    for (size_t i = 0; i < count; i++) {
        double x = (double)value_at(kind_a(kind), a, i) - sum_a / (double)count;
        double y = (double)value_at(kind_b(kind), b, i) - sum_b / (double)count;
        deviation_a += x * x;
        deviation_b += y * y;
    }
    assert_int_equal(sums->a.count, count);
    assert_int_equal(sums->b.count, count);
    near_to(kind, "mean of a", sums->a.mean * (double)count, sum_a, size_a);
    near_to(kind, "mean of b", sums->b.mean * (double)count, sum_b, size_a + sum_abs);
    near_to(kind, "squares of a", sums->a.squares, squares_a, squares_a);
    near_to(kind, "squares of b", sums->b.squares, squares_b, squares_b);
    near_to(kind, "deviation of a", sqrt(sums->a.deviation), sqrt(deviation_a), sqrt(deviation_a + 1e-12 * squares_a));
    near_to(kind, "deviation of b", sqrt(sums->b.deviation), sqrt(deviation_b), sqrt(deviation_b + 1e-12 * squares_b));
    near_to(kind, "sum of d", sums->sum, sum, sum_abs);
    near_to(kind, "sum of |d|", sums->sum_abs, sum_abs, sum_abs);
    near_to(kind, "squares of d", sums->squares, squares, squares);
    assert_true(sums->min_a == min_a && sums->max_a == max_a && sums->min_b == min_b && sums->max_b == max_b);
    assert_true(sums->max_abs == (double)max_abs);
    assert_int_equal(sums->unequal, unequal);
    assert_int_equal(sums->mismatched, mismatched);
    assert_true(sums->max_rel == (max_rel > limits.ratio ? (double)max_rel : 0));
}

static void same_bits(const struct ts_delta_sums *one, const struct ts_delta_sums *other)
{
    assert_int_equal(one->clean, other->clean);
    if (!one->clean) /* nobody looks at the rest */
        return;
    assert_memory_equal(&one->a, &other->a, sizeof one->a);
    assert_memory_equal(&one->b, &other->b, sizeof one->b);
    assert_memory_equal(&one->sum, &other->sum, 3 * sizeof(double));
    assert_memory_equal(&one->max_abs, &other->max_abs, sizeof(double));
    assert_memory_equal(&one->max_rel, &other->max_rel, sizeof(double));
    assert_int_equal(one->unequal, other->unequal);
    assert_int_equal(one->mismatched, other->mismatched);
}

/* At every level, whatever was guessed: the same bits, and right where the numbers are clean. */
static void try(int kind, const uint8_t *a, const uint8_t *b, size_t count, float rtol, float atol, float ratio,
                bool must_be_clean)
{
    const struct ts_delta_kernel *kernels[4];
    struct ts_delta_sums first = {0}, sums;
    size_t found = levels(kind, kernels);
    for (size_t level = 0; level < found; level++)
        for (int hints = 0; hints < 8; hints++) {
            const bool known = hints & 4 && first.clean; /* all that both can be, and more */
            const double reach = 3 * first.max_abs + fmax(first.max_a, -first.min_a);
            const struct ts_delta_limits limits = {.rtol = rtol,
                                                   .atol = atol,
                                                   .ratio = ratio,
                                                   .min_a = known ? -reach : INFINITY,
                                                   .max_a = known ? reach : -INFINITY,
                                                   .min_b = known ? -reach : INFINITY,
                                                   .max_b = known ? reach : -INFINITY,
                                                   .eager = hints & 1,
                                                   .same = hints & 2};
            kernels[level]->measure(a, b, count, limits, &sums);
            if (level == 0 && hints == 0)
                first = sums;
            same_bits(&first, &sums);
            if (must_be_clean)
                assert_true(sums.clean);
            if (known) {
                assert_true(sums.min_a >= limits.min_a && sums.min_a <= first.min_a);
                assert_true(sums.max_a <= limits.max_a && sums.max_a >= first.max_a);
                assert_true(sums.min_b >= limits.min_b && sums.min_b <= first.min_b);
                assert_true(sums.max_b <= limits.max_b && sums.max_b >= first.max_b);
                sums.min_a = first.min_a;
                sums.max_a = first.max_a;
                sums.min_b = first.min_b;
                sums.max_b = first.max_b;
            }
            if (sums.clean) {
                check(kind, a, b, count, limits, &sums);
                assert_int_equal(kernels[level]->beyond(a, b, count, rtol, atol), sums.mismatched);
            }
        }
}

enum data {
    NOISE,
    LAST_BITS,
    EQUAL,
    HALF_EQUAL,
    UNRELATED,
    NEGATED,
    POSITIVE,
    NEGATIVE,
    FAR_FROM_ZERO,
    ZEROS,
    CONSTANT,
    DATA
};

static void fill(int kind, enum data data, uint8_t *a, uint8_t *b, size_t count)
{
    const float scale = (float)ldexp(1, (int)(dice() % 9) - 5);
    const float constant = (float)dice_number() * scale, far = (float)dice_number() * 300;
    for (size_t i = 0; i < count; i++) {
        float x = (float)dice_number() * scale, y = x + (float)dice_number() * scale * 0.01f;
        uint16_t bits;
        if (data == POSITIVE || data == NEGATIVE) {
            x = data == POSITIVE ? fabsf(x) : -fabsf(x);
            y = data == POSITIVE ? fabsf(y) : -fabsf(y);
        } else if (data == FAR_FROM_ZERO) {
            x = 3 + x / 64;
            y = -100 + y;
        } else if (data == CONSTANT && i > 1) { /* sums of equal numbers may be rounded to one side each time */
            x = constant;
            y = far;
        } else if (data == UNRELATED) {
            y = (float)dice_number() * scale;
        } else if (data == NEGATED) {
            y = dice() % 3 ? -x : x;
        } else if (data == ZEROS) {
            x = dice() % 2 ? 0.0f : dice() % 2 ? -0.0f : x;
            y = dice() % 2 ? 0.0f : dice() % 2 ? -0.0f : x;
        } else if (data == EQUAL || (data == HALF_EQUAL && dice() % 2)) {
            y = x;
        }
        put(kind_a(kind), a, i, x);
        put(kind_b(kind), b, i, y);
        if (data == LAST_BITS) {
            uint8_t *at = b + i * size_of(kind_b(kind));
            put(kind_b(kind), b, i, value_at(kind_a(kind), a, i));
            bits = (uint16_t)(ts_load_le16(at) + dice() % 3 - 1);
            if ((bits ^ ts_load_le16(at)) < 0x8000)
                memcpy(at, &bits, 2);
        }
    }
}

static void test_plain_loop(void **state)
{
    static uint8_t a[4 * TS_DELTA_RUN + 1], b[4 * TS_DELTA_RUN + 1];
    (void)state;
    dice_state = 3;
    for (int turn = 0; turn < 600; turn++) {
        size_t count = turn < 150 ? (size_t)turn + 1 : turn % 16 ? dice() % 900 + 1 : TS_DELTA_RUN - dice() % 40;
        uint8_t *x = a + dice() % 2, *y = b + dice() % 2; /* aligned or not */
        float rtol = turn % 3 ? 1.6e-2f : turn % 2 ? 0 : 1e-3f, atol = turn % 5 ? 1e-5f : turn % 2 ? 0 : 0.5f;
        float ratio = turn % 2 ? 0 : (float)ldexp(1, (int)(dice() % 12) - 8);
        for (int kind = 0; kind < KINDS; kind++) {
            fill(kind, (enum data)(turn % DATA), x, y, count);
            try(kind, x, y, count, rtol, atol, ratio, true);
        }
    }
}

/* One number that is none, or hardly one, in every lane of either side, among ordinary ones and among zeros. */
static void test_special_numbers(void **state)
{
    static const uint16_t specials[KINDS][10] = {
        {0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f7f, 0xff7f, 0x0001, 0x8001, 0x0000, 0x8000}, /* the upper half of f32 */
        {0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f7f, 0xff7f, 0x0001, 0x8001, 0x0000, 0x8000},
        {0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f7f, 0xff7f, 0x0001, 0x8001, 0x0000, 0x8000},
        {0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7bff, 0xfbff, 0x0001, 0x8001, 0x0000, 0x8000},
        {0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f7f, 0xff7f, 0x0001, 0x8001, 0x0000, 0x8000}};
    enum { COUNT = 64 + 7 };
    uint8_t a[4 * COUNT], b[4 * COUNT];
    (void)state;
    dice_state = 11;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t place = 0; place < COUNT; place++)
            for (int special = 0; special < 10; special++)
                for (int where = 0; where < 6; where++) { /* in a, in b, in both; among numbers, among zeros */
                    const struct ts_delta_kernel *kernels[4];
                    struct ts_delta_sums sums;
                    const struct ts_delta_limits limits = {
                        .rtol = 1e-2f, .atol = 1e-5f, .min_b = -INFINITY, .max_b = INFINITY};
                    const bool in_a = where % 3 != 1, in_b = where % 3 != 0, finite = special >= 4;
                    const bool moderate = special >= 6 || kind == F16;
                    size_t found = levels(kind, kernels);
                    fill(kind, NOISE, a, b, COUNT);
                    if (where >= 3) {
                        memset(a, 0, sizeof a);
                        memset(b, 0, sizeof b);
                    }
                    if (in_a)
                        memcpy(a + (place + 1) * size_of(kind_a(kind)) - 2, &specials[kind][special], 2);
                    if (in_b)
                        memcpy(b + (place + 1) * size_of(kind_b(kind)) - 2, &specials[kind][special], 2);
                    for (size_t level = 0; level < found && !finite; level++) {
                        kernels[level]->measure(a, b, COUNT, limits, &sums);
                        assert_false(sums.clean);
                    }
                    if (finite)
                        /* but squares that vanish in f32 are handed back */
                        try(kind, a, b, COUNT, 1e-2f, 1e-5f, 0, moderate && (kind == DOUBLED || where < 3));
                }
}

/* The steepest number of a long run, and a zero with another sign, wherever they are. */
static void test_rare_numbers(void **state)
{
    static uint8_t a[4 * TS_DELTA_RUN], b[4 * TS_DELTA_RUN];
    (void)state;
    dice_state = 7;
    for (int turn = 0; turn < 40; turn++) {
        const size_t count = TS_DELTA_RUN - dice() % 40;
        const int kind = turn % KINDS;
        const size_t small = dice() % count, zero = (small + 1 + dice() % (count - 1)) % count;
        for (size_t i = 0; i < count; i++) {
            const float x = (dice() % 2 ? 1.0f : -1.0f) * (1 + (float)(dice() % 100) / 100);
            put(kind_a(kind), a, i, x);
            put(kind_b(kind), b, i, x * (1 + (float)(dice() % 64) / 640));
        }
        put(kind_a(kind), a, small, 0.125f);
        put(kind_b(kind), b, small, turn % 2 ? 0.25f : -0.125f);
        put(kind_a(kind), a, zero, turn % 4 < 2 ? 0.0f : -0.0f);
        put(kind_b(kind), b, zero, turn % 4 < 2 ? -0.0f : 0.0f);
        try(kind, a, b, count, 1.6e-2f, 1e-5f, 0.5f, true);
    }
}

/* Sums that f32 bears least: two ones to a lane, and then small numbers whose squares are rounded away, or up, whenever
 * one is added to those of the ones; or eight of them together. */
static void test_adverse_sums(void **state)
{
    /* whose squares, or eight of them, are a little less and a little more than half of the last bit of two ones */
    static const float small[] = {0x1.68p-12f, 0x1.6cp-12f, 0x1.fcp-14f, 0x1.02p-13f};
    static uint8_t a[4 * TS_DELTA_RUN], b[4 * TS_DELTA_RUN];
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t period = 64; period <= 4096; period *= 8) /* of numbers, sixteen lanes */
            for (size_t which = 0; which < sizeof small / sizeof *small; which++) {
                for (size_t i = 0; i < TS_DELTA_RUN; i++) {
                    const float x = i % period < 32 ? 1 : small[which];
                    put(kind_a(kind), a, i, x);
                    put(kind_b(kind), b, i, i % 2 ? 0 : 2 * x);
                }
                try(kind, a, b, TS_DELTA_RUN, 0.5f, 0, 0, true);
            }
}

/* The tolerance is a product and a sum that are rounded once, together. (1 - 2^-46) / 2^24 more than an odd number of
 * f32 is a little less than half way to the next; rounded to a double it is half way, which would go up. */
static void test_rounded_once(void **state)
{
    const float x = 0x1.000002p-12f, rtol = 0x1.fffffcp-13f, atol = 0x1.000002p0f, y = 0x1.001004p0f;
    uint8_t a[4 * 33], b[4 * 33];
    (void)state;
    assert_true(y - x == 0x1.000004p0f);
    assert_true(fmaf(x, rtol, atol) == atol && (float)((double)x * (double)rtol + (double)atol) == 0x1.000004p0f);
    for (size_t i = 0; i < 33; i++) { /* vectors, and a tail */
        put(F32, a, i, x);
        put(F32, b, i, y);
    }
    for (int kind = F32; kind <= DOUBLED; kind++) {
        const struct ts_delta_kernel *kernels[4];
        const size_t found = levels(kind, kernels);
        for (size_t level = 0; level < found; level++) {
            const struct ts_delta_limits limits = {.rtol = rtol, .atol = atol, .eager = true};
            struct ts_delta_sums sums;
            kernels[level]->measure(a, b, 33, limits, &sums);
            assert_int_equal(sums.mismatched, 33);
            assert_int_equal(kernels[level]->beyond(a, b, 33, rtol, atol), 33);
        }
    }
}

static void test_bounds(void **state)
{
    enum { COUNT = 32 + 16 + 5 };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct ts_delta_kernel *kernels[4];
        const size_t found = levels(kind, kernels);
        for (size_t level = 0; level < found; level++) {
            const struct ts_delta_kernel *kernel = kernels[level];
            const struct ts_delta_limits limits = {0};
            struct ts_delta_sums sums;
            /* a sanitizer sees one byte more than asked for */
            uint8_t *a = calloc(COUNT, size_of(kind_a(kind))), *b = calloc(COUNT, size_of(kind_b(kind)));
            assert_non_null(a);
            assert_non_null(b);
            b[COUNT * size_of(kind_b(kind)) - 1] = 0x3f;
            kernel->measure(a, b, COUNT, limits, &sums);
            assert_true(sums.clean && sums.unequal == 1 && sums.mismatched == 1 && sums.max_rel == 0);
            assert_int_equal(kernel->beyond(a, b, COUNT - 1, 0, 0), 0);
            free(a);
            free(b);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_loop),   cmocka_unit_test(test_special_numbers),
        cmocka_unit_test(test_rare_numbers), cmocka_unit_test(test_adverse_sums),
        cmocka_unit_test(test_rounded_once), cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
