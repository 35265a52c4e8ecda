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

enum { HEADS = 4, SIZE = 16, ROWS = 20, FUSED = 3 * HEADS * SIZE };
enum fault { FLIPPED, HALVED, ONE_NAN, HEAD_OF_NAN, TURNED };

/* Queries, keys or values as a projection holds them: one behind the other, or those of each head together. */
static void take_role(const float *whole, size_t role, bool by_head, float *out)
{
    for (size_t i = 0; i < ROWS * HEADS * SIZE; i++) {
        const size_t head = i / SIZE % HEADS, place = by_head ? (head * 3 + role) * SIZE : (role * HEADS + head) * SIZE;
        out[i] = whole[i / SIZE / HEADS * FUSED + place + i % SIZE];
    }
}

static void turn(float *values)
{
    for (size_t i = 0; i < ROWS * HEADS * SIZE; i++)
        if (i % SIZE < SIZE / 2) {
            const double angle = (double)(i / SIZE / HEADS) * pow(1e4, -2.0 * (double)(i % SIZE) / SIZE);
            const double x = (double)values[i], y = (double)values[i + SIZE / 2];
            values[i] = (float)(x * cos(angle) - y * sin(angle));
            values[i + SIZE / 2] = (float)(x * sin(angle) + y * cos(angle));
        }
}

static void spoil(enum fault fault, float *values)
{
    for (size_t i = 0; i < ROWS * HEADS * SIZE && fault <= HALVED; i++)
        values[i] *= fault == FLIPPED ? -1 : 0.5F;
    if (fault == ONE_NAN)
        values[5 * HEADS * SIZE + SIZE + 3] = NAN;
    for (size_t i = 0; i < ROWS * HEADS * SIZE && fault == HEAD_OF_NAN; i++)
        values[i] = i / SIZE % HEADS == 1 ? NAN : values[i];
    if (fault == TURNED)
        turn(values);
}

static const char *const roles[] = {"layers.0.self_attn.q", "layers.0.self_attn.k", "layers.0.self_attn.v"};

/* turned: by the reference as well. Nothing else is said with any confidence. */
static void expect_of_role(size_t role, bool by_head, bool turned, enum fault fault, double noise, const char *id,
                           const char *words)
{
    struct trace trace;
    float out[2][ROWS * HEADS * SIZE], *whole, *shaken;
    trace_start(&trace);
    whole = made_values(ROWS * FUSED);
    shaken = made_values(ROWS * FUSED);
    shake(whole, shaken, ROWS * FUSED, noise);
    trace_add(&trace, "layers.0.self_attn.query_key_value", whole, shaken, SHAPE(ROWS, FUSED));
    take_role(whole, role, by_head, out[0]);
    take_role(shaken, role, by_head, out[1]);
    for (int side = 0; side < 2 && turned; side++)
        turn(out[side]);
    spoil(fault, out[1]);
    trace_diagnose(&trace, trace_add(&trace, roles[role], out[0], out[1], SHAPE(ROWS, HEADS, SIZE)));
    assert_first(&trace, id, words);
    for (size_t i = 1; i < trace.diagnosis.count; i++)
        if (trace.diagnosis.causes[i].confidence > 0.5) {
            trace_print(&trace);
            fail_msg("a part that is wrong is blamed for something else as well");
        }
    trace_end(&trace);
    free(whole);
    free(shaken);
}

/* Without a rotary embedding queries and keys are plain parts: nothing turns, and nothing was left out. */
static void test_parts_that_do_not_turn(void **state)
{
    static const double noises[] = {1e-7, 3e-3};
    (void)state;
    for (size_t role = 0; role < 3; role++)
        for (int by_head = 0; by_head < 2; by_head++)
            for (size_t n = 0; n < 2; n++) {
                expect_of_role(role, by_head, false, FLIPPED, noises[n], "sign-flipped", "the opposite sign");
                expect_of_role(role, by_head, false, HALVED, noises[n], "scaled", "0.5 times what it should be");
                expect_of_role(
                    role, by_head, false, ONE_NAN, noises[n], "nan",
                    "the reference copies layers.0.self_attn.query_key_value here, which holds numbers in the "
                    "candidate too");
                expect_of_role(role, by_head, false, HEAD_OF_NAN, noises[n], "nan",
                               "which holds numbers in the candidate too");
                expect_of_role(role, by_head, false, TURNED, noises[n], "rotation",
                               "the candidate rotates this tensor and the reference does not");
            }
}

/* The other sign is no turn either where the reference has one. */
static void test_other_sign_of_what_turns(void **state)
{
    (void)state;
    for (size_t role = 0; role < 2; role++)
        expect_of_role(role, false, true, FLIPPED, 1e-7, "sign-flipped", "the opposite sign");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_a_captured_one),
        cmocka_unit_test(test_two_of_one),
        cmocka_unit_test(test_parts_that_do_not_turn),
        cmocka_unit_test(test_other_sign_of_what_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
