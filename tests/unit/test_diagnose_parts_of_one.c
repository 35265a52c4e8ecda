/* Tensors that are made by one weight: its outputs stand one behind the other or take turns, and are taken apart in the
 * other way, whether the whole was captured or not. */
#include "made_trace.h"

enum { TOKENS = 11, WIDTH = 24, MOST = 3 };

/* Part `part` of so many: a block of the whole, or every so-manieth number of it. */
static void take(const float *whole, size_t parts, size_t part, bool in_turns, float *out)
{
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        size_t column = i % WIDTH;
        out[i] = whole[i / WIDTH * parts * WIDTH + (in_turns ? column * parts + part : part * WIDTH + column)];
    }
}

/* The case is the part; the whole is captured before it, or the other parts behind it and before it. */
static void expect(size_t parts, size_t part, bool in_turns, bool captured, double noise, const char *words)
{
    static const char *const names[] = {"layer_0_mlp_gate_proj", "layer_0_mlp_up_proj", "layer_0_mlp_third_proj"};
    struct trace trace;
    float *x, *whole, *shaken, out[2][MOST][TOKENS * WIDTH];
    size_t index = 0;
    trace_start(&trace);
    x = made_values(TOKENS * WIDTH);
    whole = made_values(TOKENS * parts * WIDTH);
    shaken = made_values(TOKENS * parts * WIDTH);
    shake(whole, shaken, TOKENS * parts * WIDTH, noise);
    trace_add(&trace, "layer_0_mlp_norm_output", x, x, SHAPE(TOKENS, WIDTH));
    if (captured)
        trace_add(&trace, "layer_0_mlp_gate_up_proj", whole, shaken, SHAPE(TOKENS, parts * WIDTH));
    for (size_t k = 0; k < parts; k++) {
        take(whole, parts, k, in_turns, out[0][k]);
        take(shaken, parts, k, !in_turns, out[1][k]);
        if (k == part || !captured) {
            size_t added = trace_add(&trace, names[k], out[0][k], out[1][k], SHAPE(TOKENS, WIDTH));
            index = k == part ? added : index;
        }
    }
    trace_diagnose(&trace, index);
    assert_first(&trace, "permuted", words);
    trace_end(&trace);
    free(x);
    free(whole);
    free(shaken);
}

static void test_parts_of_a_captured_one(void **state)
{
    static const double noises[] = {1e-7, 3e-3};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        expect(
            3, 0, false, true, noises[n],
            "the candidate takes every 3rd channel from 0 on of layer_0_mlp_gate_up_proj, the reference channels 0 to "
            "23");
        expect(3, 2, false, true, noises[n],
               "every 3rd channel from 2 on of layer_0_mlp_gate_up_proj, the reference channels 48 to 71");
        expect(2, 1, true, true, noises[n],
               "the candidate takes channels 24 to 47 of layer_0_mlp_gate_up_proj, the reference every 2nd channel "
               "from 1");
    }
}

static void test_two_of_one(void **state)
{
    static const double noises[] = {1e-7, 3e-3};
    (void)state;
    for (size_t n = 0; n < 2; n++)
        for (size_t part = 0; part < 2; part++) {
            expect(2, part, false, false, noises[n],
                   part
                       ? "half of the channels are those of layer_0_mlp_gate_proj: the candidate takes every second row"
                       : "half of the channels are those of layer_0_mlp_up_proj: the candidate takes every second row");
            expect(
                2, part, true, false, noises[n],
                part ? "half of the channels are those of layer_0_mlp_gate_proj: the candidate takes a half of a weight"
                     : "half of the channels are those of layer_0_mlp_up_proj: the candidate takes a half of a weight");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_a_captured_one),
        cmocka_unit_test(test_two_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
