/* Slices as a person types them; ranges as Python cuts them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/slice.h"

static uint64_t shape[] = {10, 3, 5};
static const struct ts_tensor cube = {.rank = 3, .shape = shape};
static const struct ts_tensor row = {.rank = 1, .shape = shape};
static const struct ts_tensor scalar = {.rank = 0};

/* Parses from memory with nothing behind it, so that a sanitizer sees a step too far. */
static enum ts_status parse(const struct ts_tensor *tensor, const char *text, struct ts_slice *slice,
                            struct ts_error *error)
{
    size_t size = strlen(text);
    char *copy = malloc(size + 1); /* one byte for the step behind the last comma */
    enum ts_status status;
    assert_non_null(copy);
    memcpy(copy, text, size);
    copy[size] = '7'; /* not to be seen */
    status = ts_slice_parse(tensor, copy, size, slice, error);
    free(copy);
    return status;
}

static void axis_is(const struct ts_slice *slice, unsigned axis, uint64_t start, uint64_t count, uint64_t step,
                    bool single)
{
    const struct ts_slice_axis *found = &slice->axes[axis];
    if (found->start != start || found->count != count || found->step != step || found->single != single)
        fail_msg("axis %u is %lu, %lu by %lu%s", axis, (unsigned long)found->start, (unsigned long)found->count,
                 (unsigned long)found->step, found->single ? ", single" : "");
}

static void refused(const struct ts_tensor *tensor, const char *text, const char *part)
{
    struct ts_slice slice;
    struct ts_error error;
    if (parse(tensor, text, &slice, &error) != TS_ERR_USAGE)
        fail_msg("[%s] was taken", text);
    if (!strstr(error.message, part))
        fail_msg("[%s]: \"%s\" does not say \"%s\"", text, error.message, part);
}

static void test_all(void **state)
{
    static const char *const texts[] = {"",       "  ",     ":",           ":,:,:", "...",
                                        ":, ...", "..., :", " : , : , : ", "::",    "::1,..."};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ts_slice slice;
        struct ts_error error;
        assert_int_equal(parse(&cube, texts[i], &slice, &error), TS_OK);
        assert_int_equal(slice.rank, 3);
        axis_is(&slice, 0, 0, 10, 1, false);
        axis_is(&slice, 1, 0, 3, 1, false);
        axis_is(&slice, 2, 0, 5, 1, false);
        assert_int_equal(ts_slice_count(&slice), 150);
    }
}

static void test_indices(void **state)
{
    struct ts_slice slice;
    struct ts_error error;
    (void)state;
    assert_int_equal(parse(&cube, "0, -1, +2", &slice, &error), TS_OK);
    axis_is(&slice, 0, 0, 1, 1, true);
    axis_is(&slice, 1, 2, 1, 1, true);
    axis_is(&slice, 2, 2, 1, 1, true);
    assert_int_equal(ts_slice_count(&slice), 1);
    assert_int_equal(parse(&cube, "-10", &slice, &error), TS_OK); /* the rest whole */
    axis_is(&slice, 0, 0, 1, 1, true);
    axis_is(&slice, 2, 0, 5, 1, false);
    assert_int_equal(ts_slice_count(&slice), 15);
    assert_int_equal(parse(&cube, "..., 4", &slice, &error), TS_OK);
    axis_is(&slice, 0, 0, 10, 1, false);
    axis_is(&slice, 2, 4, 1, 1, true);
    assert_int_equal(parse(&cube, "9, ..., 4", &slice, &error), TS_OK);
    axis_is(&slice, 0, 9, 1, 1, true);
    axis_is(&slice, 1, 0, 3, 1, false);
    axis_is(&slice, 2, 4, 1, 1, true);
    assert_int_equal(parse(&cube, "1, 2, ..., 3", &slice, &error), TS_OK); /* "..." for no axis at all */
    axis_is(&slice, 1, 2, 1, 1, true);
    axis_is(&slice, 2, 3, 1, 1, true);
    assert_int_equal(parse(&scalar, "", &slice, &error), TS_OK);
    assert_int_equal(slice.rank, 0);
    assert_int_equal(ts_slice_count(&slice), 1);
    assert_int_equal(parse(&scalar, "...", &slice, &error), TS_OK);
}

/* What Python's slice.indices says: every start, stop and step around an axis of ten. */
static void test_ranges(void **state)
{
    (void)state;
    for (int start = -13; start <= 13; start++)
        for (int stop = -13; stop <= 13; stop++)
            for (int step = 0; step <= 12; step++) {
                char text[64], from[8] = "", to[8] = "", by[8] = "";
                struct ts_slice slice;
                struct ts_error error;
                uint64_t first = 0, count = 0;
                const int real_step = step ? step : 1;
                int low = start == 13 ? 0 : start < 0 ? start + 10 : start; /* 13 stands for left out */
                int high = stop == 13 ? 10 : stop < 0 ? stop + 10 : stop;
                low = low < 0 ? 0 : low > 10 ? 10 : low;
                high = high < 0 ? 0 : high > 10 ? 10 : high;
                for (int i = low; i < high; i += real_step)
                    count++;
                first = (uint64_t)low;
                if (start != 13)
                    snprintf(from, sizeof from, "%d", start);
                if (stop != 13)
                    snprintf(to, sizeof to, "%d", stop);
                if (step)
                    snprintf(by, sizeof by, ":%d", step);
                snprintf(text, sizeof text, "%s:%s%s", from, to, by);
                assert_int_equal(parse(&row, text, &slice, &error), TS_OK);
                axis_is(&slice, 0, first, count, (uint64_t)real_step, false);
                assert_int_equal(ts_slice_count(&slice), count);
            }
}

static void test_refusals(void **state)
{
    (void)state;
    refused(&cube, "10", "index 10 is outside axis 0, which has 10");
    refused(&cube, "0, 3", "index 3 is outside axis 1, which has 3");
    refused(&cube, "-11", "index -11 is outside axis 0, which has 10");
    refused(&cube, "0,0,0,0", "too many indices: the tensor has 3 axes");
    refused(&cube, "0,0,0,...,0", "too many indices");
    refused(&cube, "...,0,0,0,0", "too many indices");
    refused(&cube, "...,...", "only one \"...\"");
    refused(&scalar, "0", "too many indices: the tensor has 0 axes");
    refused(&cube, "a", "\"a\" is not an index for axis 0");
    refused(&cube, "0, 1x", "\" 1x\" is not an index for axis 1");
    refused(&cube, "0,,1", "\"\" is not an index for axis 1");
    refused(&cube, ",", "is not an index for axis 0");
    refused(&cube, "-", "\"-\" is not an index");
    refused(&cube, "+", "\"+\" is not an index");
    refused(&cube, "-:3", "is not an index");
    refused(&cube, "+:3", "is not an index");
    refused(&cube, "1:2:3:4", "is not an index");
    refused(&cube, "1 2", "is not an index");
    refused(&cube, "1.5", "is not an index");
    refused(&cube, "....", "is not an index");
    refused(&cube, "::0", "the step of axis 0 must be at least 1");
    refused(&cube, "0,::-1", "the step of axis 1 must be at least 1");
    refused(&cube, "99999999999999999999999", "is not an index"); /* more than 64 bits do not wrap into the axis */
    refused(&cube, "18446744073709551616", "is not an index");
}

static void test_empty_axes(void **state)
{
    uint64_t empty_shape[] = {0, 4};
    const struct ts_tensor empty = {.rank = 2, .shape = empty_shape};
    struct ts_slice slice;
    struct ts_error error;
    (void)state;
    assert_int_equal(parse(&empty, ":, 2:", &slice, &error), TS_OK);
    axis_is(&slice, 0, 0, 0, 1, false);
    assert_int_equal(ts_slice_count(&slice), 0);
    refused(&empty, "0", "index 0 is outside axis 0, which has 0");
    refused(&empty, "-1", "index -1 is outside axis 0, which has 0");
}

static void test_huge_axes(void **state)
{
    uint64_t huge_shape[] = {INT64_MAX};
    const struct ts_tensor huge = {.rank = 1, .shape = huge_shape};
    struct ts_slice slice;
    struct ts_error error;
    (void)state;
    assert_int_equal(parse(&huge, "-1", &slice, &error), TS_OK);
    axis_is(&slice, 0, INT64_MAX - 1, 1, 1, true);
    assert_int_equal(parse(&huge, "1::500000000000000000", &slice, &error), TS_OK);
    axis_is(&slice, 0, 1, 19, 500000000000000000, false); /* (2^63 - 2) / 5e17 = 18.4 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),      cmocka_unit_test(test_indices),    cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_empty_axes), cmocka_unit_test(test_huge_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
