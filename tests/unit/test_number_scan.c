/* Expected values are C literals, which the compiler rounds, and Python's float(). */
#include "read/number_scan.h"

#include <locale.h>
#include <math.h>

#include "opened.h"

static double scan(const char *text, bool single)
{
    struct ts_number number;
    assert_int_equal(ts_number_scan(text, strlen(text), single, &number), strlen(text));
    return number.value;
}

static void test_doubles(void **state)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        {"0", 0.0},
        {"-0", -0.0},
        {"-0.0", -0.0},
        {"1", 1.0},
        {"+1", 1.0},
        {"1.", 1.0},
        {".5", 0.5},
        {"-.5e1", -5.0},
        {"0.1", 0.1},
        {"00012.50", 12.5},
        {"1e22", 1e22},
        {"1e23", 1e23}, /* not exact: above the fast path */
        {"9007199254740993", 9007199254740993.0},
        {"123456789012345678", 123456789012345678.0},
        {"12345678901234567890", 12345678901234567890.0},
        {"0.3333333333333333148296162562473909929394721984863281250", 1.0 / 3.0},
        {"1.7976931348623157e308", 1.7976931348623157e308},
        {"1.7976931348623159e308", (double)INFINITY},
        {"5e-324", 5e-324},
        {"2.2250738585072014e-308", 2.2250738585072014e-308},
        {"2e-324", 0.0},
        {"1e99999999999999999999", (double)INFINITY},
        {"0e99999999999999999999", 0.0},
        {"1e-99999999999999999999", 0.0},
        {"1.5D+02", 150.0},
        {"1.234568e-05", 1.234568e-05},
        /* Halfway between 2^53 and the next double, decided by the last of many digits. */
        {"9007199254740993.00000000000000000000000000000000000000000000000000000000000000000001", 9007199254740994.0},
        {"0x10", 16.0},
        {"-0x1.8p+3", -12.0},
        {"0x1.fffffffffffff8p0", 2.0}, /* a tie, to even */
        {"0x.8", 0.5},
        {"0x0p0", 0.0},
        {"0x1p-1074", 5e-324},
        {"0x1p99999999999", (double)INFINITY},
        {"inf", (double)INFINITY},
        {"-Infinity", -(double)INFINITY},
        {"INF", (double)INFINITY},
        {"nan", (double)NAN},
        {"-NaN", (double)NAN},
        {"-nan(ind)", (double)NAN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_same_number(scan(cases[i].text, false), cases[i].value);
}

static void test_refused(void **state)
{
    static const char *const cases[] = {"", "-", "+", ".", "-.", "e5", "x", "--1", "n", "na", "_", "#", " 1"};
    struct ts_number number;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(ts_number_scan(cases[i], strlen(cases[i]), false, &number), 0);
    /* What follows is not taken: the caller sees that the token goes on. */
    assert_int_equal(ts_number_scan("1e", 2, false, &number), 1);
    assert_int_equal(ts_number_scan("1.2.3", 5, false, &number), 3);
    assert_int_equal(ts_number_scan("0x", 2, false, &number), 1);
    assert_int_equal(ts_number_scan("0xg", 3, false, &number), 0);
    assert_int_equal(ts_number_scan("infinit", 7, false, &number), 3);
}

/* Rounding to double first and to float then would give the neighbour. */
static void test_float_rounds_once(void **state)
{
    (void)state;
    /* Just above the middle of 1 and the next float, by less than half a double. */
    assert_same_number(scan("1.00000005960464477540", true), (double)0x1.000002p0f);
    assert_same_number(scan("1.00000005960464477539062", true), 1.0);
    assert_same_number(scan("1.000000059604644775390625", true), 1.0); /* the tie, to even */
    /* The nearest doubles are exactly between two floats, the decimals are not (found with Python's fractions). */
    assert_same_number(scan("5.102093517780304e-01", true), (double)0x1.053a2ap-1f);
    assert_same_number(scan("5.543155097961426e+01", true), (double)0x1.bb73d2p+5f);
    assert_same_number(scan("7.010839646682143e-03", true), (double)0x1.cb765ep-8f);
    assert_same_number(scan("0.1", true), (double)0.1f);
    assert_same_number(scan("3.4028235e38", true), (double)3.4028235e38f);
    assert_same_number(scan("3.4028236e38", true), (double)INFINITY);
    assert_same_number(scan("1e-45", true), (double)0x1p-149f);
    assert_same_number(scan("7.0064923216240853546186479164495e-46", true), 0.0); /* half of the smallest, below */
    assert_same_number(scan("7.0064923216240853546186479164496e-46", true), (double)0x1p-149f);
}

/* Halfway between two doubles, but for a digit behind more zeros than are kept. */
static void test_many_digits(void **state)
{
    char text[2048];
    (void)state;
    snprintf(text, sizeof text, "9007199254740993.%0900d1", 0);
    assert_same_number(scan(text, false), 9007199254740994.0);
    snprintf(text, sizeof text, "9007199254740993.%0900d", 0);
    assert_same_number(scan(text, false), 9007199254740992.0);
    snprintf(text, sizeof text, "0x20000000000001.%0100d1", 0); /* 2^53 + 1 and a bit */
    assert_same_number(scan(text, false), 9007199254740994.0);
    snprintf(text, sizeof text, "1%01000de-1000", 0);
    assert_same_number(scan(text, false), 1.0);
    snprintf(text, sizeof text, "0.%01000d1e1001", 0);
    assert_same_number(scan(text, false), 1.0);
}

static void test_integers(void **state)
{
    struct ts_number number;
    (void)state;
    ts_number_scan("9223372036854775807", 19, false, &number);
    assert_true(number.is_integer);
    assert_int_equal(number.integer, INT64_MAX);
    ts_number_scan("-9223372036854775808", 20, false, &number);
    assert_true(number.is_integer);
    assert_true(number.integer == INT64_MIN);
    ts_number_scan("9223372036854775808", 19, false, &number);
    assert_false(number.is_integer);
    assert_same_number(number.value, 9223372036854775808.0);
    ts_number_scan("1.0", 3, false, &number);
    assert_false(number.is_integer);
    assert_int_equal(number.digits, 2);
    ts_number_scan("1e3", 3, false, &number);
    assert_false(number.is_integer);
    ts_number_scan("-0", 2, false, &number);
    assert_false(number.is_integer);
    ts_number_scan("0.001234567", 11, false, &number);
    assert_int_equal(number.digits, 7);
}

/* Random bits printed by the C library with 17 digits read back equal, also as %.6e against strtod. */
static void test_round_trip(void **state)
{
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        char text[64];
        double value;
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        value = ts_double_from_bits(i % 2 ? seed : (seed & 0x800fffffffffffffu) | (uint64_t)(960 + i % 128) << 52);
        if (!isfinite(value))
            continue;
        snprintf(text, sizeof text, "%.17g", value);
        assert_same_number(scan(text, false), value);
        snprintf(text, sizeof text, "%.*e", i % 19, value);
        assert_same_number(scan(text, false), strtod(text, NULL));
        assert_same_number(scan(text, true), (double)strtof(text, NULL));
    }
}

static void test_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    bool set = false;
    (void)state;
    for (size_t i = 0; i < 3 && !set; i++)
        set = setlocale(LC_ALL, names[i]) != NULL;
    if (!set)
        return; /* not skip(): cmocka reports it as a failure in TAP */
    assert_same_number(scan("1.25", false), 1.25);
    assert_same_number(scan("3.14159265358979323846264338327950288", false), 3.14159265358979323846264338327950288);
    assert_same_number(scan("0x1.8p0", false), 1.5);
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doubles),  cmocka_unit_test(test_refused),     cmocka_unit_test(test_float_rounds_once),
        cmocka_unit_test(test_integers), cmocka_unit_test(test_many_digits), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
