/* The precision that values really use, where they were printed with few digits. */
#include <math.h>

#include "compare/delta_close.h"
#include "compare/scene.h"
#include "made_bundle.h"

enum { COUNT = 512, BF16 = 7, F16 = 10, F32 = 23 };

/* Mantissa bits that such a print is worth: see read/values.c. */
static int worth(double loss)
{
    return (int)floor(log2(0.2123 / loss));
}

static float rounded(float value, int bits)
{
    int exponent;
    const double mantissa = frexp(value, &exponent);
    return (float)ldexp(nearbyint(ldexp(mantissa, bits + 1)), exponent - bits - 1);
}

static void print(float *values, const char *format)
{
    for (size_t i = 0; i < COUNT; i++) {
        char text[64];
        snprintf(text, sizeof text, format, (double)values[i]);
        values[i] = (float)strtod(text, NULL);
    }
}

static double typical_of(const float *values)
{
    double squares = 0;
    for (size_t i = 0; i < COUNT; i++)
        squares += (double)values[i] * (double)values[i];
    return sqrt(squares / COUNT);
}

/* bf16 and f16 are known by what a print leaves of them, and numbers of f32 are not taken for either, whatever is their
 * size. Decimals tell nothing of f16 where they are no finer than it. */
static void test_printed_values(void **state)
{
    static const struct {
        const char *format;
        int digits, decimals;
    } prints[] = {{"%.6e", 7, 0}, {"%.5e", 6, 0}, {"%.8e", 9, 0}, {"%.6f", 0, 6}, {"%.5f", 0, 5}};
    static const int precisions[] = {BF16, F16, F32};
    static const double sizes[] = {1, 0.05, 40};
    (void)state;
    for (size_t p = 0; p < sizeof prints / sizeof *prints; p++)
        for (size_t k = 0; k < 3; k++)
            for (size_t s = 0; s < 3; s++) {
                float *values = made_values(COUNT);
                int printed, found;
                for (size_t i = 0; i < COUNT; i++)
                    values[i] = rounded((float)(values[i] * sizes[s]), precisions[k]);
                printed = worth(prints[p].digits ? 0.1338 * pow(10, 1 - prints[p].digits)
                                                 : pow(10, -prints[p].decimals) / sqrt(12) / typical_of(values));
                print(values, prints[p].format);
                found = ts_printed_mantissa_bits(values, COUNT, printed);
                if (precisions[k] == F32)
                    assert_int_equal(found, printed);
                else if (printed >= precisions[k] + 6)
                    assert_int_equal(found, precisions[k]);
                free(values);
            }
}

/* The same of a tensor; one number everywhere says nothing, and nor do a few. */
static void test_printed_tensors(void **state)
{
    float *values = made_values(COUNT);
    struct paired paired;
    struct ts_arena arena;
    struct ts_view view;
    (void)state;
    paired_start(&paired);
    ts_arena_init(&arena, (size_t)1 << 20);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = rounded(values[i], BF16);
    print(values, "%.6e");
    made_add(paired.a, "bf16", values, SHAPE(COUNT));
    made_add(paired.a, "few", values, SHAPE(8));
    for (size_t i = 0; i < COUNT; i++)
        values[i] = 1.2031250e-3f;
    made_add(paired.a, "constant", values, SHAPE(COUNT));
    for (size_t i = 0; i < paired.a->count; i++) {
        struct ts_tensor *tensor = paired.a->tensors[i];
        tensor->printed_bits = 20;
        assert_true(ts_view_of(tensor, &arena, &view));
        assert_int_equal(ts_bits_in_use(&view), strcmp(tensor->name, "bf16") == 0 ? BF16 : 20);
    }
    ts_arena_release(&arena);
    free(values);
    paired_end(&paired);
}

/* Half a float's bits for a number that is no subnormal. */
static uint16_t half_of(float value)
{
    int exponent;
    const double mantissa = frexp(fabs((double)value), &exponent);
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | ((int)ldexp(mantissa, 11) & 0x3ff));
}

/* numpy has no bf16, so people write f16. */
static void test_bf16_in_f16(void **state)
{
    static const int precisions[] = {BF16, F16};
    (void)state;
    for (int k = 0; k < 2; k++) {
        float *values = made_values(COUNT);
        uint16_t halves[COUNT];
        struct paired paired;
        struct ts_arena arena;
        struct ts_view view;
        struct ts_tensor *tensor;
        struct ts_error error;
        paired_start(&paired);
        ts_arena_init(&arena, (size_t)1 << 20);
        for (size_t i = 0; i < COUNT; i++)
            halves[i] = half_of(rounded(values[i] + (values[i] < 0 ? -0.01f : 0.01f), precisions[k]));
        made_add(paired.a, "halves", (const float *)(const void *)halves, SHAPE(COUNT / 2));
        tensor = ts_bundle_tensor(paired.a, "halves");
        tensor->type = TS_F16;
        tensor->shape[0] = COUNT;
        assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
        assert_true(ts_view_of(tensor, &arena, &view));
        assert_int_equal(ts_bits_in_use(&view), precisions[k]);
        ts_arena_release(&arena);
        free(values);
        paired_end(&paired);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_printed_values),
        cmocka_unit_test(test_printed_tensors),
        cmocka_unit_test(test_bf16_in_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
