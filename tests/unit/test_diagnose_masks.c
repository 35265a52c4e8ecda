/* Masks of captured probabilities: bands, and tokens that are hidden as padding is, in batches of which each sequence
 * has another padding. */
#include "made_trace.h"

enum { TOKENS = 12, HEADS = 2, SIZE = 8 };

static size_t tokens = TOKENS; /* of a sequence */

struct mask {
    int window, shift;     /* as many keys back, itself counted, 0: all; so many ahead */
    size_t front, back;    /* padding of the last sequence */
    size_t prefix, blocks; /* these see each other; nobody sees beyond his block of so many */
    bool strict;           /* padding itself sees nothing but itself */
};

static bool sees(const struct mask *mask, bool padded, size_t token, size_t key)
{
    size_t front = padded ? mask->front : 0, back = padded ? mask->back : 0;
    if (token < front || token + back >= tokens)
        return mask->strict ? token == key : true;
    if (key < front || key + back >= tokens || (mask->blocks && token / mask->blocks != key / mask->blocks))
        return false;
    if (token < mask->prefix && key < mask->prefix)
        return true;
    return (long)key <= (long)token + mask->shift && (!mask->window || (long)token - (long)key < mask->window);
}

static void soft(const struct mask *mask, bool padded, size_t token, const float *scores, float *out)
{
    double sum = 0;
    for (size_t key = 0; key < tokens; key++)
        sum += sees(mask, padded, token, key) ? exp((double)scores[key]) : 0;
    for (size_t key = 0; key < tokens; key++)
        out[key] = sees(mask, padded, token, key) ? (float)(exp((double)scores[key]) / sum) : 0;
}

static void diagnose(struct trace *trace, size_t sequences, const struct mask *reference, const struct mask *candidate)
{
    size_t rows = sequences * tokens;
    float *x, *scores, *out[2];
    trace_start(trace);
    x = made_values(rows * HEADS * SIZE);
    scores = made_values(rows * HEADS * tokens);
    out[0] = made_values(rows * HEADS * tokens);
    out[1] = made_values(rows * HEADS * tokens);
    for (int side = 0; side < 2; side++)
        for (size_t lane = 0; lane < rows * HEADS; lane++)
            soft(side ? candidate : reference, lane / HEADS / tokens + 1 == sequences, lane / HEADS % tokens,
                 scores + lane * tokens, out[side] + lane * tokens);
    trace_add(trace, "layer_0_input", x, x, SHAPE(sequences, tokens, HEADS * SIZE));
    trace_add(trace, "layer_0_attn_scores", scores, scores, SHAPE(sequences, tokens, HEADS, tokens));
    trace_diagnose(trace,
                   trace_add(trace, "layer_0_attn_probs", out[0], out[1], SHAPE(sequences, tokens, HEADS, tokens)));
    free(x);
    free(scores);
    free(out[0]);
    free(out[1]);
}

static void expect(size_t sequences, const struct mask *reference, const struct mask *candidate, const char *words,
                   const char *never)
{
    struct trace trace;
    diagnose(&trace, sequences, reference, candidate);
    assert_first(&trace, "mask", words);
    if (never && strstr(trace.diagnosis.causes[0].summary, never)) {
        trace_print(&trace);
        fail_msg("%s is said", never);
    }
    trace_end(&trace);
}

#define CAUSAL "each token sees itself and the tokens before it"

static void test_padding_is_no_window(void **state)
{
    (void)state;
    for (size_t sequences = 1; sequences <= 2; sequences++)
        for (int strict = 0; strict < 2; strict++) {
            const struct mask right = {.front = 4, .strict = strict}, none = {.strict = strict};
            struct mask more = right;
            /* padding itself is not to blame */
            struct mask seen = right;
            seen.front = 0;
            expect(sequences, &right, &seen,
                   "in the candidate " CAUSAL "; in the reference " CAUSAL
                   ", and the first 4 tokens are hidden from those behind, as padding is",
                   "window");
            expect(sequences, &none, &right,
                   "in the candidate " CAUSAL
                   ", and the first 4 tokens are hidden from those behind, as padding is; in the reference " CAUSAL,
                   "window");
            more.shift = 1; /* beside the padding */
            expect(sequences, &right, &more, "in the candidate each token sees 1 token ahead", "window");
            more = right;
            more.window = 3;
            expect(sequences, &right, &more, "in the candidate " CAUSAL ", at most 2 tokens back (a window of 3)",
                   NULL);
            expect(sequences, &more, &right, "in the reference " CAUSAL ", at most 2 tokens back (a window of 3)",
                   NULL);
        }
}

static void test_padding_behind(void **state)
{
    (void)state;
    for (size_t sequences = 1; sequences <= 2; sequences++) {
        const struct mask right = {.shift = TOKENS, .back = 3}, wrong = {.shift = TOKENS};
        expect(sequences, &right, &wrong,
               "in the candidate each token sees every token; in the reference each token sees every token, and the "
               "last 3 tokens are hidden, as padding is",
               "window");
    }
}

/* What looks a little like padding. */
static void test_no_padding(void **state)
{
    const struct mask causal = {0}, window = {.window = 4}, prefix = {.prefix = 3}, blocks = {.blocks = 5},
                      ahead = {.shift = 2}, strict = {.shift = -1}, reversed = {.window = 1, .shift = TOKENS};
    (void)state;
    expect(1, &causal, &window, "at most 3 tokens back (a window of 4)", "padding");
    expect(1, &window, &causal, "at most 3 tokens back (a window of 4)", "padding");
    expect(1, &causal, &prefix, "3 of 144 entries are visible on one side only", "padding");
    expect(1, &causal, &blocks, "entries are visible on one side only", "padding");
    expect(1, &causal, &ahead, "each token sees 2 tokens ahead", "padding");
    expect(1, &causal, &reversed,
           "in the candidate each token sees itself and the tokens behind it, and none before it; in the "
           "reference " CAUSAL,
           "padding");
    expect(2, &causal, &strict, "each token sees the tokens before it but not itself", "padding");
}

/* Of a long sequence some rows are looked at, which need not be those where the padding ends; and what is claimed holds
 * in all others, few of which are put to it at a time. */
static void test_padding_of_long_sequences(void **state)
{
    (void)state;
    tokens = 600;
    for (size_t sequences = 1; sequences <= 2; sequences++)
        for (int strict = 0; strict < 2; strict++)
            for (int shift = 0; shift < 2; shift++) {
                const struct mask right = {.front = 200, .strict = strict};
                const struct mask wrong = {.front = shift ? 200 : 0, .strict = strict, .shift = shift};
                struct trace trace;
                diagnose(&trace, sequences, &right, &wrong);
                assert_first(&trace, "mask",
                             shift && sequences > 1 ? "in the candidate each token sees 1 token ahead"
                             : shift ? "in the candidate each token sees 1 token ahead, and the first 200 tokens are "
                                       "hidden from those behind, as padding is; in the reference " CAUSAL
                                       ", and the first 200 tokens are hidden from those behind, as padding is"
                                     : "in the candidate " CAUSAL "; in the reference " CAUSAL
                                       ", and the first 200 tokens are hidden from those behind, as padding is");
                if (strstr(trace.diagnosis.causes[0].summary, "does not hold") ||
                    trace.diagnosis.causes[0].confidence < 0.95)
                    fail_msg("%s", trace.diagnosis.causes[0].summary);
                trace_end(&trace);
            }
    tokens = TOKENS;
}

/* Sequences that stand one after the other in one row, or chunks of one: none is the padding of the last. */
static void test_chunks_are_no_padding(void **state)
{
    const struct mask causal = {0}, chunks = {.blocks = 32};
    (void)state;
    tokens = 96;
    expect(1, &causal, &chunks, "entries are visible on one side only", "padding");
    expect(1, &chunks, &causal, "entries are visible on one side only", "padding");
    tokens = TOKENS;
}

/* Probabilities over fewer keys than there are tokens, as routers and attention to another sequence have them: a token
 * that comes after all keys is no key. */
static void test_fewer_keys_than_tokens(void **state)
{
    enum { TOKENS_MORE = 40, KEYS = 6, SEEN = 3 };
    const size_t count = (size_t)TOKENS_MORE * HEADS * KEYS;
    struct trace trace;
    float *scores, *right, *wrong;
    (void)state;
    trace_start(&trace);
    scores = made_values(count);
    right = malloc(count * sizeof *right);
    wrong = calloc(count, sizeof *wrong);
    assert_true(right && wrong);
    for (size_t start = 0; start < count; start += KEYS) {
        double sum = 0;
        for (size_t key = 0; key < KEYS; key++)
            sum += exp((double)scores[start + key]);
        for (size_t key = 0; key < KEYS; key++)
            right[start + key] = (float)(exp((double)scores[start + key]) / sum);
        if (start / KEYS / HEADS < SEEN)
            memcpy(wrong + start, right + start, KEYS * sizeof *wrong);
    }
    trace_add(&trace, "layer_0_attn_scores", scores, scores, SHAPE(1, TOKENS_MORE, HEADS, KEYS));
    trace_diagnose(&trace, trace_add(&trace, "layer_0_attn_probs", right, wrong, SHAPE(1, TOKENS_MORE, HEADS, KEYS)));
    assert_true(trace.diagnosis.count > 0);
    free(scores);
    free(right);
    free(wrong);
    trace_end(&trace);
}

/* Scores with a large number where they are masked: of a window that only the candidate has no memory is to blame. */
static void test_number_of_a_mask(void **state)
{
    static const float numbers[] = {-1e9F, -3.4028235e38F};
    enum { KEYS = 24 };
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        struct trace trace;
        float *q, *k, *scores[2];
        trace_start(&trace);
        q = made_values(KEYS * HEADS * SIZE);
        k = made_values(KEYS * HEADS * SIZE);
        scores[0] = made_values(KEYS * HEADS * KEYS);
        scores[1] = made_values(KEYS * HEADS * KEYS);
        for (size_t at = 0; at < KEYS * HEADS * KEYS; at++) {
            const size_t token = at / KEYS / HEADS, head = at / KEYS % HEADS, key = at % KEYS;
            double sum = 0;
            for (size_t i = 0; i < SIZE; i++)
                sum += (double)q[(token * HEADS + head) * SIZE + i] * (double)k[(key * HEADS + head) * SIZE + i];
            scores[0][at] = key > token ? numbers[n] : (float)(sum / sqrt(SIZE));
            scores[1][at] = key + 8 <= token ? numbers[n] : scores[0][at];
        }
        trace_add(&trace, "layer_0_attn_q", q, q, SHAPE(KEYS, HEADS, SIZE));
        trace_add(&trace, "layer_0_attn_k", k, k, SHAPE(KEYS, HEADS, SIZE));
        trace_diagnose(&trace,
                       trace_add(&trace, "layer_0_attn_scores", scores[0], scores[1], SHAPE(KEYS, HEADS, KEYS)));
        assert_first(&trace, "mask", "at most 7 tokens back (a window of 8)");
        for (size_t i = 0; i < trace.diagnosis.count; i++)
            assert_string_not_equal(trace.diagnosis.causes[i].id, "unwritten");
        trace_end(&trace);
        free(q);
        free(k);
        free(scores[0]);
        free(scores[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_padding_is_no_window),
        cmocka_unit_test(test_padding_behind),
        cmocka_unit_test(test_no_padding),
        cmocka_unit_test(test_padding_of_long_sequences),
        cmocka_unit_test(test_chunks_are_no_padding),
        cmocka_unit_test(test_fewer_keys_than_tokens),
        cmocka_unit_test(test_number_of_a_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
