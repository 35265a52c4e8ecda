/* Rotary embeddings of a part of each head, first or last, of prompts that are padded in front, and of pairs that leave
 * in another order than they came in. */
#include "diagnose/turning.h"
#include "made_trace.h"

enum { TOKENS = 11, HEADS = 4, SIZE = 32, WIDTH = HEADS * SIZE, MOST = 2 * TOKENS };

enum order { HALVES, NEIGHBOURS, GATHERED };

struct turns {
    size_t start, count;
    enum order order;
    double theta;
    int offset;
    size_t slow; /* pairs from this one on turn eight times slower; 0: none */
    size_t over; /* exponents are divided by this; 0: by count */
    double more; /* what turns is larger by this share */
};

/* Padding in front of a sequence has the position of its first token, as cumulative masks make it, or position 1. */
enum padding { NONE, AT_ZERO, AT_ONE };

static int position_of(size_t token, size_t padded, enum padding padding)
{
    if (token < padded)
        return padding == AT_ONE;
    return (int)(token - padded);
}

static void turn_row(const struct turns *turns, int position, const float *x, float *y)
{
    size_t half = turns->count / 2;
    memcpy(y, x, WIDTH * sizeof *y);
    for (size_t head = 0; head < HEADS; head++)
        for (size_t i = 0; i < half; i++) {
            const float *in = x + head * SIZE + turns->start;
            float *out = y + head * SIZE + turns->start;
            double step = pow(turns->theta, -2.0 * (double)i / (double)(turns->over ? turns->over : turns->count));
            double height = 1 + turns->more,
                   angle = (position + turns->offset) * (turns->slow && i >= turns->slow ? step / 8 : step);
            bool apart = turns->order != HALVES; /* of neighbours that come in */
            double first = (double)in[apart ? 2 * i : i], second = (double)in[apart ? 2 * i + 1 : i + half];
            bool together = turns->order == NEIGHBOURS;
            out[together ? 2 * i : i] = (float)(height * (first * cos(angle) - second * sin(angle)));
            out[together ? 2 * i + 1 : i + half] = (float)(height * (first * sin(angle) + second * cos(angle)));
        }
}

struct run {
    size_t sequences, padded; /* of the last sequence */
    enum padding padding;
    bool bf16;
};

static void expect(const struct turns *reference, const struct turns *candidate, const struct run *run, const char *id,
                   const char *words, const char *never)
{
    struct trace trace;
    float *x, out[2][MOST * WIDTH];
    size_t sequences = run->sequences ? run->sequences : 1;
    trace_start(&trace);
    x = made_values(sequences * TOKENS * WIDTH);
    for (size_t i = 0; i < sequences * TOKENS * WIDTH && run->bf16; i++)
        x[i] = to_bf16(x[i]);
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < sequences * TOKENS; row++) {
            size_t padded = row / TOKENS + 1 == sequences ? run->padded : 0;
            turn_row(side ? candidate : reference, position_of(row % TOKENS, padded, run->padding), x + row * WIDTH,
                     out[side] + row * WIDTH);
        }
    for (size_t i = 0; i < sequences * TOKENS * WIDTH && run->bf16; i++) {
        out[0][i] = to_bf16(out[0][i]);
        out[1][i] = to_bf16(out[1][i]);
    }
    trace_add(&trace, "layer_0_input", x, x, SHAPE(sequences, TOKENS, WIDTH)); /* which tells tokens and sequences */
    trace_add(&trace, "layer_0_attn_q", x, x, SHAPE(sequences, TOKENS, HEADS, SIZE));
    trace_diagnose(&trace,
                   trace_add(&trace, "layer_0_attn_q_rope", out[0], out[1], SHAPE(sequences, TOKENS, HEADS, SIZE)));
    assert_first(&trace, id, words);
    if (never && strstr(trace.diagnosis.causes[0].summary, never)) {
        trace_print(&trace);
        fail_msg("%s is said", never);
    }
    trace_end(&trace);
    free(x);
}

/* The last numbers of each head carry the position, as with latent attention. */
static void test_last_numbers(void **state)
{
    static const struct turns right = {16, 16, NEIGHBOURS, 1e4, 0, 0, 0, 0}, halves = {16, 16, HALVES, 1e4, 0, 0, 0, 0};
    const struct run run = {0}, sixteen = {.bf16 = true};
    struct turns wrong;
    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct run *of = k ? &sixteen : &run;
        expect(&right, &halves, of, "rotation", "the right angles on the wrong pairs: the candidate rotates half-split",
               NULL);
        expect(&halves, &right, of, "rotation",
               "the right angles on the wrong pairs: the candidate rotates interleaved", NULL);
        wrong = right;
        wrong.theta = 5e5;
        expect(&right, &wrong, of, "rotation",
               "fit theta = 500000, the reference's theta = 10000 (16 rotated channels per head)", NULL);
        wrong.order = HALVES;
        expect(&halves, &wrong, of, "rotation", "fit theta = 500000, the reference's theta = 10000", NULL);
        wrong = right;
        wrong.start = 0;
        expect(&right, &wrong, of, "rotation",
               "the candidate rotates the first 16 of 32 channels of each head, the reference those from 16 on", NULL);
        wrong = halves;
        wrong.start = 0;
        expect(&wrong, &halves, of, "rotation",
               "the candidate rotates the last 16 of 32 channels of each head, the reference those from 0 on", NULL);
    }
}

/* Exponents over another size of heads may be a base near 1. */
static void test_small_bases(void **state)
{
    static const struct turns right = {0, 32, HALVES, 1e4, 0, 0, 0, 0}, wrong = {0, 32, HALVES, 1e4, 0, 0, 256, 0};
    const struct run run = {0};
    (void)state;
    expect(&right, &wrong, &run, "rotation", "with exponents divided by 256 instead of 32", NULL);
}

/* Neighbours that come out as halves: the right numbers in another order. */
static void test_gathered_pairs(void **state)
{
    static const struct turns kept = {16, 16, NEIGHBOURS, 1e4, 0, 0, 0, 0},
                              gathered = {16, 16, GATHERED, 1e4, 0, 0, 0, 0};
    const struct run run = {0};
    struct turns wrong = gathered;
    (void)state;
    expect(&kept, &gathered, &run, "permuted",
           "leaves them as halves (i, i + half), where the reference leaves them side", NULL);
    expect(&gathered, &kept, &run, "permuted", "leaves them side by side, where the reference leaves them as halves",
           NULL);
    wrong.theta = 1e6;
    expect(&gathered, &wrong, &run, "rotation", "fit theta = 1000000, the reference's theta = 10000", NULL);
    wrong = gathered;
    wrong.offset = 2;
    expect(&gathered, &wrong, &run, "rotation", "the candidate's positions are off by +2", NULL);
}

/* Some scalings of positions make cosines and sines larger. */
static void test_heights(void **state)
{
    static const struct turns first = {0, 16, HALVES, 1e4, 0, 0, 0, 0}, last = {16, 16, NEIGHBOURS, 1e4, 0, 0, 0, 0};
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const struct run run = {.bf16 = bf16};
        struct turns wrong = first;
        wrong.more = 0.25;
        expect(&first, &wrong, &run, "rotation", "what turns, 16 of 32 channels of each head, is 1.25 times", NULL);
        wrong.more = -0.2;
        expect(&first, &wrong, &run, "rotation", "is 0.8 times what it should be, by the right angles", NULL);
        wrong = last;
        wrong.more = 0.25;
        expect(&last, &wrong, &run, "rotation", "what turns, 16 of 32 channels of each head, is 1.25 times", NULL);
    }
}

/* A base that is nearly the reference's says nothing about how the reference is scaled. */
static void test_nearly_the_same_base(void **state)
{
    static const struct turns right = {0, 32, HALVES, 1e4, 0, 0, 0, 0}, wrong = {0, 32, HALVES, 1.015e4, 0, 0, 0, 0};
    const struct run run = {0};
    (void)state;
    expect(&right, &wrong, &run, "rotation", NULL, "scaled or come from a table");
}

/* In a padded sequence a token's position is not its place: told by the reference, where nothing turns at position 0.
 */
static void test_padded_in_front(void **state)
{
    static const struct turns right = {0, 32, HALVES, 1e4, 0, 0, 0, 0}, scaled = {0, 32, HALVES, 5e5, 0, 4, 0, 0},
                              plain = {0, 32, HALVES, 5e5, 0, 0, 0, 0};
    (void)state;
    for (int sequences = 1; sequences <= 2; sequences++)
        for (int padding = AT_ZERO; padding <= AT_ONE; padding++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                const struct run run = {(size_t)sequences, 5, (enum padding)padding, bf16};
                struct turns wrong = right;
                wrong.theta = 1e6;
                expect(&right, &wrong, &run, "rotation", "fit theta = 1000000, the reference's theta = 10000",
                       "rotated as if");
                expect(&scaled, &plain, &run, "rotation", "unscaled with theta = 500000", "tokens are rotated as if");
                wrong = scaled;
                wrong.slow = 8; /* so slow that they fit the base as well */
                if (!bf16)
                    expect(&wrong, &plain, &run, "rotation", "unscaled with theta = 500000", "fit theta");
            }
}

/* Of long prompts that are padded far in front, more than those at hand, other tokens turn as these do. */
static void test_padded_far_in_front(void **state)
{
    enum { SEQUENCES = 2, LONG = 900, ALL = SEQUENCES * LONG };
    static const struct turns right = {0, 32, HALVES, 1e4, 0, 0, 0, 0}, wrong = {0, 32, HALVES, 1e6, 0, 0, 0, 0};
    (void)state;
    for (int padding = AT_ZERO; padding <= AT_ONE; padding++) {
        struct trace trace;
        float *x, *out[2];
        trace_start(&trace);
        x = made_values(ALL * WIDTH);
        for (int side = 0; side < 2; side++) {
            out[side] = made_values(ALL * WIDTH);
            for (size_t row = 0; row < ALL; row++)
                turn_row(side ? &wrong : &right, position_of(row % LONG, row / LONG ? 400 : 0, (enum padding)padding),
                         x + row * WIDTH, out[side] + row * WIDTH);
        }
        trace_add(&trace, "layer_0_input", x, x, SHAPE(SEQUENCES, LONG, WIDTH));
        trace_add(&trace, "layer_0_attn_q", x, x, SHAPE(SEQUENCES, LONG, HEADS, SIZE));
        trace_diagnose(&trace,
                       trace_add(&trace, "layer_0_attn_q_rope", out[0], out[1], SHAPE(SEQUENCES, LONG, HEADS, SIZE)));
        assert_first(&trace, "rotation", "fit theta = 1000000, the reference's theta = 10000");
        if (!strstr(trace.diagnosis.causes[0].summary, "; checked on all 1800 tokens"))
            fail_msg("%s", trace.diagnosis.causes[0].summary);
        trace_end(&trace);
        free(x);
        free(out[0]);
        free(out[1]);
    }
}

/* Some tokens of a long sequence, and a short one behind it in one row: from the one to the other positions fall. */
static void test_steps_where_positions_begin_anew(void **state)
{
    enum { BEGUN = 8, FAR = 28, ALL = FAR + BEGUN };
    double complex turns[ALL];
    double places[ALL], step = 0;
    (void)state;
    dice_state = 7;
    for (size_t row = 0; row < ALL; row++) {
        places[row] = (double)(row < BEGUN ? row : row < FAR ? (row - BEGUN) * 31 + BEGUN : row - FAR);
        turns[row] = cexp(I * (0.37 * places[row] + 0.3 * dice_number()));
    }
    ts_find_steps(turns, places, ALL, 1, &step);
    if (!(fabs(step - 0.37) < 2e-3))
        fail_msg("%.6f", step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_numbers),        cmocka_unit_test(test_small_bases),
        cmocka_unit_test(test_gathered_pairs),      cmocka_unit_test(test_heights),
        cmocka_unit_test(test_padded_far_in_front), cmocka_unit_test(test_steps_where_positions_begin_anew),
        cmocka_unit_test(test_padded_in_front),     cmocka_unit_test(test_nearly_the_same_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
