/* Captured attention scores: masks that stand inside them as minus infinity, and biases that grow with the distance. */
#include "made_trace.h"

enum { TOKENS = 10, HEADS = 4, SIZE = 8, HIDDEN = HEADS * SIZE, TABLE = TOKENS * HEADS * TOKENS };

struct sight {
    int ahead, window; /* keys up to row + ahead, and window of them in all; 0: no window */
    bool none;         /* no mask at all */
    bool chunks;       /* a token sees itself and the chunks of four before its own */
    double slope;      /* times the usual slopes of a position bias */
    bool flat_slopes;  /* every head has the same */
    uint32_t table;    /* a number for each head and distance, drawn from this; 0: none */
    double masked;     /* what stands where nothing is seen */
};

struct sides {
    struct trace trace;
    float q[2][TOKENS * HIDDEN], k[2][TOKENS * HIDDEN], bare[2][TABLE], scores[2][TABLE];
};

static double from_table(uint32_t table, size_t head, long distance)
{
    uint32_t drawn = (table + (uint32_t)head * 97 + (uint32_t)(distance + TOKENS)) * 2654435761u;
    return table ? (double)(drawn >> 8) / (double)(1 << 23) - 1 : 0;
}

static void score(struct sides *sides, int side, struct sight sight)
{
    for (size_t at = 0; at < TABLE; at++) {
        size_t key = at % TOKENS, head = at / TOKENS % HEADS, row = at / TOKENS / HEADS;
        long distance = (long)row - (long)key;
        double sum = 0, slope = sight.slope * exp2(sight.flat_slopes ? -3 : -8.0 * (double)(head + 1) / HEADS);
        bool seen = sight.none || (distance >= -sight.ahead && (!sight.window || distance < sight.window));
        seen = seen && (!sight.chunks || distance == 0 || key < row / 4 * 4);
        for (size_t i = 0; i < SIZE; i++)
            sum += (double)sides->q[side][row * HIDDEN + head * SIZE + i] *
                   (double)sides->k[side][key * HIDDEN + head * SIZE + i];
        sides->bare[side][at] = (float)(sum / sqrt(SIZE));
        sides->scores[side][at] =
            (float)(seen ? sum / sqrt(SIZE) - slope * (double)distance + from_table(sight.table, head, distance)
                         : sight.masked);
    }
}

static void diagnose(struct sides *sides, struct sight reference, struct sight candidate, bool bare)
{
    trace_start(&sides->trace);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++) {
        sides->q[0][i] = (float)(dice_number() * 3);
        sides->k[0][i] = (float)(dice_number() * 3);
    }
    shake(sides->q[0], sides->q[1], TOKENS * HIDDEN, 1e-6);
    shake(sides->k[0], sides->k[1], TOKENS * HIDDEN, 1e-6);
    score(sides, 0, reference);
    score(sides, 1, candidate);
    trace_add(&sides->trace, "layer_0_attn_q", sides->q[0], sides->q[1], SHAPE(TOKENS, HEADS, SIZE));
    trace_add(&sides->trace, "layer_0_attn_k", sides->k[0], sides->k[1], SHAPE(TOKENS, HEADS, SIZE));
    if (bare)
        trace_add(&sides->trace, "layer_0_attn_scores_raw", sides->bare[0], sides->bare[1],
                  SHAPE(TOKENS, HEADS, TOKENS));
    trace_diagnose(&sides->trace, trace_add(&sides->trace, "layer_0_attn_scores", sides->scores[0], sides->scores[1],
                                            SHAPE(TOKENS, HEADS, TOKENS)));
}

static void expect(struct sight reference, struct sight candidate, bool bare, const char *id, const char *words)
{
    static const double masks[] = {-INFINITY, -3.4e38};
    for (size_t a = 0; a < 2; a++)
        for (size_t b = 0; b < 2; b++) {
            struct sides *sides = calloc(1, sizeof *sides);
            reference.masked = masks[a];
            candidate.masked = masks[b];
            diagnose(sides, reference, candidate, bare);
            assert_first(&sides->trace, id, words);
            if (strcmp(id, "mask") == 0) {
                assert_null(trace_cause(&sides->trace, "inf"));
                assert_null(trace_cause(&sides->trace, "sparse"));
            }
            trace_end(&sides->trace);
            free(sides);
        }
}

/* A mask that is shifted, missing, or where none belongs is a mask, not an overflow; and a few elements of it are no
 * bit flips. */
static void test_masks(void **state)
{
    struct sight causal = {0}, ahead = {.ahead = 1}, behind = {.ahead = -1}, none = {.none = true};
    struct sight window = {.window = 4}, longer = {.window = 9}, chunks = {.chunks = true};
    (void)state;
    expect(causal, ahead, false, "mask", "in the candidate each token sees 1 token ahead");
    expect(causal, behind, false, "mask", "the tokens before it but not itself");
    expect(causal, none, false, "mask", "each token sees every token");
    expect(window, causal, false, "mask",
           "in the reference each token sees itself and the tokens before it, at most 3");
    expect(causal, window, false, "mask", "at most 3 tokens back (a window of 4); in the reference");
    expect(longer, causal, false, "mask",
           "in the reference each token sees itself and the tokens before it, at most 8");
    expect(causal, chunks, false, "mask", "from token 1 on, keys 0 to 0 are masked in the candidate");
}

/* The values where nothing is seen may differ, and the rest be rounded. */
static void test_masks_are_silent(void **state)
{
    struct sides *sides = calloc(1, sizeof *sides);
    (void)state;
    diagnose(sides, (struct sight){.masked = -INFINITY}, (struct sight){.masked = -1e9}, false);
    assert_silent(&sides->trace);
    trace_end(&sides->trace);
    free(sides);
}

static void test_position_bias(void **state)
{
    struct sight bias = {.slope = 1}, none = {0}, flat = {.slope = 1, .flat_slopes = true};
    (void)state;
    expect(bias, none, false, "term-missing", "does not add the position bias (ALiBi)");
    expect(bias, flat, false, "offset", "other slopes");
    expect(none, bias, false, "term-extra", "adds a position bias (ALiBi)");
    /* with the plain scores in the trace the step was left out, mask or not */
    expect(bias, none, true, "skipped-op", "layer_0_attn_scores_raw unchanged");
}

/* A table of relative positions; what is masked on both sides is nothing that bits of another type would give. */
static void test_relative_positions(void **state)
{
    struct sight bias = {.table = 5}, other = {.table = 900}, none = {0};
    struct sight all = {.table = 5, .none = true}, all_other = {.table = 900, .none = true};
    struct sides *sides = calloc(1, sizeof *sides);
    (void)state;
    expect(bias, none, false, "term-missing", "does not add the position bias (one number per head");
    expect(bias, other, false, "offset", "another position bias");
    expect(none, bias, false, "term-extra", "adds a position bias: ");
    expect(all, all_other, false, "offset", "another position bias");
    bias.masked = other.masked = -INFINITY;
    diagnose(sides, bias, other, false);
    assert_null(trace_cause(&sides->trace, "dtype-confusion"));
    trace_end(&sides->trace);
    free(sides);
}

static void test_position_bias_is_silent(void **state)
{
    struct sides *sides = calloc(1, sizeof *sides);
    struct sight bias = {.slope = 1, .masked = -INFINITY};
    (void)state;
    diagnose(sides, bias, bias, false);
    assert_silent(&sides->trace);
    trace_end(&sides->trace);
    free(sides);
}

/* One infinity that is no mask is an overflow. */
static void test_infinity_beside_a_mask(void **state)
{
    struct sides *sides = calloc(1, sizeof *sides);
    struct sight causal = {.masked = -INFINITY};
    struct trace *trace = &sides->trace;
    (void)state;
    diagnose(sides, causal, causal, false);
    trace_end(trace);
    trace_start(trace);
    sides->scores[1][TOKENS * HEADS * 5 + 2] = INFINITY;
    trace_diagnose(trace, trace_add(trace, "layer_0_attn_scores", sides->scores[0], sides->scores[1],
                                    SHAPE(TOKENS, HEADS, TOKENS)));
    assert_first(trace, "inf", "1 of 400 elements is infinite");
    trace_end(trace);
    free(sides);
}

/* Nothing but scores and probabilities, heads first: the sequence is what both last axes are. */
static void test_heads_without_hidden_states(void **state)
{
    enum { KEYS = 24 };
    float *scores, probabilities[2][HEADS * KEYS * KEYS];
    struct trace trace;
    (void)state;
    trace_start(&trace);
    scores = made_values(HEADS * KEYS * KEYS);
    for (size_t row = 0; row < HEADS * KEYS; row++)
        for (size_t side = 0; side < 2; side++) {
            double sum = 0;
            for (size_t key = 0; key < KEYS; key++)
                sum += key <= row % KEYS + side ? exp((double)scores[row * KEYS + key]) : 0;
            for (size_t key = 0; key < KEYS; key++)
                probabilities[side][row * KEYS + key] =
                    key <= row % KEYS + side ? (float)(exp((double)scores[row * KEYS + key]) / sum) : 0;
        }
    trace_add(&trace, "layers.0.attn_scores", scores, scores, SHAPE(HEADS, KEYS, KEYS));
    trace_diagnose(
        &trace, trace_add(&trace, "layers.0.attn_probs", probabilities[0], probabilities[1], SHAPE(HEADS, KEYS, KEYS)));
    assert_first(&trace, "mask", "1 token ahead");
    trace_end(&trace);
    free(scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_masks_are_silent),
        cmocka_unit_test(test_position_bias),
        cmocka_unit_test(test_relative_positions),
        cmocka_unit_test(test_position_bias_is_silent),
        cmocka_unit_test(test_infinity_beside_a_mask),
        cmocka_unit_test(test_heads_without_hidden_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
