/* Long sequences and wide tensors, of which judging and diagnosing hold some rows: attention over every key, errors in
 * rows that no spread would meet, and how much of it all a claim was tried on. */
#include "judged_trace.h"
#include "unwritten.h"

enum { TOKENS = 600, HEADS = 4, SERVED = 2, SIZE = 16, WIDTH = HEADS * SIZE, KEYS = SERVED * SIZE };

struct way {
    long ahead, window; /* keys up to row + ahead, and window of them in all; 0: no window */
    bool none, tiled;
    double scale;        /* times the usual one */
    size_t stale;        /* this token's key and value are those of the one before; 0: none */
    size_t hidden, from; /* this key is hidden from so many tokens on; 0: none */
};

struct sides {
    struct judged judged;
    float q[2][TOKENS * WIDTH], k[2][TOKENS * KEYS], v[2][TOKENS * KEYS], context[2][TOKENS * WIDTH];
    float scores[2][HEADS * TOKENS * TOKENS], probabilities[2][HEADS * TOKENS * TOKENS];
};

static bool sees(const struct way *way, long row, long key)
{
    if (way->from && row >= (long)way->from && key == (long)way->hidden)
        return false;
    return way->none || (row - key >= -way->ahead && (!way->window || row - key < way->window));
}

static void attend(struct sides *sides, int side, struct way way)
{
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < TOKENS; row++) {
            size_t served = way.tiled ? head % SERVED : head / (HEADS / SERVED), start = (head * TOKENS + row) * TOKENS;
            double sum = 0, *out = calloc(SIZE, sizeof *out);
            for (size_t key = 0; key < TOKENS; key++) {
                size_t at = way.stale && key == way.stale ? key - 1 : key;
                double product = 0, weight;
                for (size_t i = 0; i < SIZE; i++)
                    product += (double)sides->q[side][row * WIDTH + head * SIZE + i] *
                               (double)sides->k[side][at * KEYS + served * SIZE + i];
                product *= (way.scale > 0 ? way.scale : 1) / sqrt(SIZE);
                weight = sees(&way, (long)row, (long)key) ? exp(product) : 0;
                sides->scores[side][start + key] = weight > 0 ? (float)product : -INFINITY;
                sides->probabilities[side][start + key] = (float)weight;
                sum += weight;
                for (size_t i = 0; i < SIZE; i++)
                    out[i] += weight * (double)sides->v[side][at * KEYS + served * SIZE + i];
            }
            for (size_t key = 0; key < TOKENS; key++)
                sides->probabilities[side][start + key] =
                    (float)((double)sides->probabilities[side][start + key] / sum);
            for (size_t i = 0; i < SIZE; i++)
                sides->context[side][row * WIDTH + head * SIZE + i] = (float)(out[i] / sum);
            free(out);
        }
}

static struct sides *start(struct way reference, struct way candidate)
{
    struct sides *sides = calloc(1, sizeof *sides);
    assert_non_null(sides);
    trace_start(&sides->judged.trace);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        sides->q[0][i] = (float)(dice_number() * 3);
    for (size_t i = 0; i < TOKENS * KEYS; i++) {
        sides->k[0][i] = (float)(dice_number() * 3);
        sides->v[0][i] = (float)(dice_number() * 3);
    }
    shake(sides->q[0], sides->q[1], TOKENS * WIDTH, 1e-6);
    shake(sides->k[0], sides->k[1], TOKENS * KEYS, 1e-6);
    shake(sides->v[0], sides->v[1], TOKENS * KEYS, 1e-6);
    attend(sides, 0, reference);
    attend(sides, 1, candidate);
    trace_add(&sides->judged.trace, "layer_0_attn_q", sides->q[0], sides->q[1], SHAPE(TOKENS, HEADS, SIZE));
    trace_add(&sides->judged.trace, "layer_0_attn_k", sides->k[0], sides->k[1], SHAPE(TOKENS, SERVED, SIZE));
    trace_add(&sides->judged.trace, "layer_0_attn_v", sides->v[0], sides->v[1], SHAPE(TOKENS, SERVED, SIZE));
    return sides;
}

static size_t add_scores(struct sides *sides)
{
    return trace_add(&sides->judged.trace, "layer_0_attn_scores", sides->scores[0], sides->scores[1],
                     SHAPE(HEADS, TOKENS, TOKENS));
}

static size_t add_context(struct sides *sides)
{
    return trace_add(&sides->judged.trace, "layer_0_attn_context", sides->context[0], sides->context[1],
                     SHAPE(TOKENS, HEADS, SIZE));
}

static void expect_fused(struct way reference, struct way candidate, const char *id, const char *words)
{
    struct sides *sides = start(reference, candidate);
    trace_diagnose(&sides->judged.trace, add_context(sides));
    assert_first(&sides->judged.trace, id, words);
    assert_true(sides->judged.trace.diagnosis.causes[0].confidence > 0.9);
    assert_true(sides->judged.trace.diagnosis.causes[0].proof.of_rows == TOKENS);
    assert_true(sides->judged.trace.diagnosis.causes[0].proof.rows == TOKENS);
    trace_end(&sides->judged.trace);
    free(sides);
}

/* Between queries, keys and values and the context nothing was captured. */
static void test_fused(void **state)
{
    struct way plain = {0}, window = {.window = 300};
    (void)state;
    expect_fused(plain, (struct way){.none = true}, "mask", "no causal mask");
    expect_fused(plain, (struct way){.ahead = 1}, "mask", "each token sees one token ahead");
    expect_fused(plain, (struct way){.window = 333}, "mask",
                 "the candidate has a sliding window of 333 tokens, the reference has none");
    expect_fused(window, (struct way){.window = 301}, "mask", "sliding window is 301 tokens, the reference's 300");
    expect_fused(window, plain, "mask", "lacks the sliding window of 300 tokens");
    expect_fused(plain, (struct way){.tiled = true}, "heads", "tiles key and value heads instead of repeating each");
    expect_fused(plain, (struct way){.scale = 2}, "softmax", "2 times the reference's");
    expect_fused(plain, (struct way){.stale = 417}, "stale", "of token 417 are those of token 416");
}

static void expect_scores(struct way candidate, const char *id, const char *words)
{
    struct sides *sides = start((struct way){0}, candidate);
    trace_diagnose(&sides->judged.trace, add_scores(sides));
    assert_first(&sides->judged.trace, id, words);
    trace_end(&sides->judged.trace);
    free(sides);
}

static void test_scores(void **state)
{
    (void)state;
    expect_scores((struct way){.ahead = 1}, "mask", "in the candidate each token sees 1 token ahead");
    expect_scores((struct way){.window = 333}, "mask", "at most 332 tokens back");
    expect_scores((struct way){.hidden = 123, .from = 411}, "mask", "from token 411 on, keys 123 to 123 are masked");
    expect_scores((struct way){.tiled = true}, "heads", "tiles the key heads instead of repeating each");
    expect_scores((struct way){.stale = 417}, "stale", "key of token 417 is that of token 416");
}

/* Scores, probabilities and context are learnt, so that what the candidate makes of its own inputs is replayed. */
static void test_replayed(void **state)
{
    struct sides *sides = start((struct way){0}, (struct way){0});
    struct judged *judged = &sides->judged;
    size_t scores = add_scores(sides), probabilities, context;
    (void)state;
    probabilities = trace_add(&judged->trace, "layer_0_attn_probs", sides->probabilities[0], sides->probabilities[1],
                              SHAPE(HEADS, TOKENS, TOKENS));
    context = add_context(sides);
    judged_run(judged);
    assert_int_equal(judged->judgement.first, SIZE_MAX);
    assert_non_null(judged->judgement.verdicts[scores].operation);
    assert_non_null(strstr(judged->judgement.verdicts[scores].operation, "layer_0_attn_q . layer_0_attn_k"));
    assert_string_equal(judged->judgement.verdicts[probabilities].operation, "softmax(layer_0_attn_scores)");
    assert_string_equal(judged->judgement.verdicts[context].operation, "layer_0_attn_probs x layer_0_attn_v");
    judged_end(judged);
    free(sides);
}

static void expect_probabilities(struct sides *sides, const char *id, const char *words)
{
    struct trace *trace = &sides->judged.trace;
    add_scores(sides);
    trace_diagnose(trace, trace_add(trace, "layer_0_attn_probs", sides->probabilities[0], sides->probabilities[1],
                                    SHAPE(HEADS, TOKENS, TOKENS)));
    assert_first(trace, id, words);
    assert_null(trace_cause(trace, "zeros"));
    trace_end(trace);
    free(sides);
}

/* Each key's probabilities sum to one over its queries, one of which holds half of them. */
static void expect_over_queries(size_t spoilt, const char *words)
{
    struct sides *sides = start((struct way){0}, (struct way){0});
    for (size_t head = 0; head < HEADS; head++)
        for (size_t key = 0; key < TOKENS; key++) {
            float *found = sides->probabilities[1] + head * TOKENS * TOKENS + key;
            const float *scores = sides->scores[1] + head * TOKENS * TOKENS + key;
            double sum = 0;
            for (size_t row = key; row < TOKENS; row++)
                sum += exp((double)scores[row * TOKENS]);
            for (size_t row = key; row < TOKENS; row++)
                found[row * TOKENS] = (float)(exp((double)scores[row * TOKENS]) / sum * (row == spoilt ? 0.5 : 1));
        }
    expect_probabilities(sides, "softmax", words);
}

/* Sums over queries that the diagnosis does not hold; and a window so short that next to everything is zero. */
static void test_probabilities(void **state)
{
    struct sides *sides;
    (void)state;
    expect_over_queries(TOKENS, "over the queries instead of the keys; checked on all");
    expect_over_queries(TOKENS - 37, "it does not hold in 1 of them, first in token");
    assert_int_equal(setenv("TSLEUTH_THREADS", "3", 1), 0);
    expect_over_queries(TOKENS - 37, "it does not hold in 1 of them, first in token");
    unsetenv("TSLEUTH_THREADS");
    sides = start((struct way){0}, (struct way){.window = 5});
    memcpy(sides->scores[1], sides->scores[0], sizeof sides->scores[0]);
    expect_probabilities(sides, "mask", "at most 4 tokens back (a window of 5)");
}

/* Scores that were captured before the mask: what each token sees, the reference's probabilities tell in every row. */
static void test_probabilities_of_bare_scores(void **state)
{
    struct sides *sides = start((struct way){0}, (struct way){0});
    struct trace *trace = &sides->judged.trace;
    (void)state;
    for (size_t i = 0; i < (size_t)HEADS * TOKENS * TOKENS; i++) {
        if (!(sides->probabilities[0][i] > 0))
            sides->scores[0][i] = sides->scores[1][i] = (float)dice_number();
        sides->probabilities[1][i] *= 1.25f;
    }
    fill_unwritten(true);
    add_scores(sides);
    trace_diagnose(trace, trace_add(trace, "layer_0_attn_probs", sides->probabilities[0], sides->probabilities[1],
                                    SHAPE(HEADS, TOKENS, TOKENS)));
    fill_unwritten(false);
    assert_first(trace, "scaled", "1.25 times");
    assert_non_null(strstr(trace->diagnosis.causes[0].summary, "all 600 tokens"));
    assert_true(trace->diagnosis.causes[0].confidence > 0.9);
    trace_end(trace);
    free(sides);
}

/* x, and x after something that goes wrong in some tokens. */
enum { ROWS = 1500, CHANNELS = 48 };

static void make_rows(float *a, float *b)
{
    for (size_t i = 0; i < ROWS * CHANNELS; i++)
        a[i] = (float)(dice_number() * 2);
    shake(a, b, ROWS * CHANNELS, 1e-6);
}

static void expect_rows(void (*spoil)(float *b), const char *id, const char *words)
{
    float *a = malloc(ROWS * CHANNELS * sizeof *a), *b = malloc(ROWS * CHANNELS * sizeof *b);
    struct trace trace;
    size_t index = 0;
    trace_start(&trace);
    for (int k = 0; k < 4; k++) {
        char name[32];
        make_rows(a, b);
        if (k == 3)
            spoil(b);
        snprintf(name, sizeof name, "block.%d.output", k);
        index = trace_add(&trace, name, a, b, SHAPE(ROWS, CHANNELS));
    }
    trace_diagnose(&trace, index);
    assert_first(&trace, id, words);
    if (!strstr(trace.diagnosis.causes[0].summary, "all 1500 tokens"))
        fail_msg("%s", trace.diagnosis.causes[0].summary);
    trace_end(&trace);
    free(a);
    free(b);
}

static void clear_some(float *b)
{
    memset(b + 1013 * CHANNELS, 0, (size_t)7 * CHANNELS * sizeof *b);
}

static void copy_some(float *b)
{
    memcpy(b + 1013 * CHANNELS, b + 333 * CHANNELS, (size_t)7 * CHANNELS * sizeof *b);
}

static void copy_one(float *b)
{
    memcpy(b + 1013 * CHANNELS, b + 333 * CHANNELS, CHANNELS * sizeof *b);
}

static void scale_late(float *b)
{
    for (size_t i = 1131 * CHANNELS; i < ROWS * CHANNELS; i++)
        b[i] *= 1.25f;
}

/* Where it errs is measured on every token, so that it does not matter which ones a spread would have met. */
static void test_rows(void **state)
{
    (void)state;
    expect_rows(clear_some, "zeros", "zero in tokens 1013 to 1019");
    expect_rows(copy_some, "rows",
                "tokens 1013 to 1019 are copies of others: 1013 is a "
                "copy of 333");
    expect_rows(copy_one, "rows", "token 1013 is a copy of another: 1013 is a copy of 333");
    expect_rows(scale_late, "row-scaled", "tokens 1131 to 1499 are 1.25 times what they should be");
}

/* Each token keeps a few numbers around its own place: of those that are not looked at nobody else has any. What rows
 * of a sample have in common is not said of all. */
static void test_a_band(void **state)
{
    const size_t count = (size_t)TOKENS * TOKENS;
    float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
    struct trace trace;
    (void)state;
    assert_true(a && b);
    trace_start(&trace);
    for (int k = 0; k < 3; k++) {
        char name[32];
        for (size_t i = 0; i < count; i++)
            a[i] = i % TOKENS <= i / TOKENS ? (float)fabs(dice_number() * 2) : 0;
        shake(a, b, count, 1e-6);
        for (size_t i = 0; i < count && k == 2; i++)
            b[i] = i % TOKENS + 4 > i / TOKENS ? b[i] * 2 : 0;
        snprintf(name, sizeof name, "block.%d.weights", k);
        trace_add(&trace, name, a, b, SHAPE(TOKENS, TOKENS));
    }
    trace_diagnose(&trace, 2);
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        if (strstr(trace.diagnosis.causes[i].summary, "in every token"))
            fail_msg("%s", trace.diagnosis.causes[i].summary);
    trace_end(&trace);
    free(a);
    free(b);
}

enum { PROMPT = 50, HIDDEN = 32, VOCABULARY = 100000 };

/* One logit of five million: more than a scene holds of other tensors. */
static void test_logits(void **state)
{
    float *a = malloc((size_t)PROMPT * VOCABULARY * sizeof *a), *b = malloc((size_t)PROMPT * VOCABULARY * sizeof *b);
    float hidden[2][PROMPT * HIDDEN];
    struct judged judged = {0};
    size_t logits;
    (void)state;
    assert_true(a && b);
    trace_start(&judged.trace);
    for (int k = 0; k < 6; k++) {
        char name[32];
        for (size_t i = 0; i < PROMPT * HIDDEN; i++)
            hidden[0][i] = (float)(dice_number() * 2);
        shake(hidden[0], hidden[1], PROMPT * HIDDEN, 1e-3);
        snprintf(name, sizeof name, "block.%d.output", k);
        trace_add(&judged.trace, name, hidden[0], hidden[1], SHAPE(PROMPT, HIDDEN));
    }
    for (size_t i = 0; i < (size_t)PROMPT * VOCABULARY; i++)
        a[i] = (float)(dice_number() * 2);
    shake(a, b, (size_t)PROMPT * VOCABULARY, 1e-3);
    b[(size_t)29 * VOCABULARY + 71234] += 3;
    logits = trace_add(&judged.trace, "lm_head", a, b, SHAPE(PROMPT, VOCABULARY));
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, logits);
    trace_diagnose(&judged.trace, logits);
    assert_first(&judged.trace, "sparse", "token 29, channel 71234");
    judged_end(&judged);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_probabilities_of_bare_scores),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_a_band),
        cmocka_unit_test(test_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
