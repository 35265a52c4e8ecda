/* Probabilities that a model hands out itself, with neither scores nor queries and keys: masks, temperatures and a
 * missing softmax are told from the two sides alone, and what they do not tell is not said. */
#include "made_trace.h"

enum { HEADS = 3, MOST = 320 };

/* Which keys a token sees. */
struct band {
    long ahead, window; /* window 0: all before */
};

struct attention {
    double factor; /* on the scores */
    struct band band;
    bool late; /* the mask comes behind the softmax */
    bool none; /* there is no softmax */
};

static void attend(const float *scores, size_t tokens, const struct attention *how, float *out)
{
    for (size_t lane = 0; lane < HEADS * tokens; lane++) {
        const float *own = scores + lane * tokens;
        const long token = (long)(lane % tokens);
        double sum = 0;
        for (size_t key = 0; key < tokens; key++) {
            const long distance = token - (long)key;
            bool seen = distance >= -how->band.ahead && (!how->band.window || distance < how->band.window);
            sum += seen || how->late ? exp(how->factor * (double)own[key]) : 0;
        }
        for (size_t key = 0; key < tokens; key++) {
            const long distance = token - (long)key;
            bool seen = distance >= -how->band.ahead && (!how->band.window || distance < how->band.window);
            double score = how->factor * (double)own[key];
            out[lane * tokens + key] = (float)(!seen ? 0 : how->none ? score : exp(score) / sum);
        }
    }
}

static void diagnose(struct trace *trace, size_t tokens, bool coarse, const struct attention *candidate)
{
    static const struct attention usual = {.factor = 1};
    const size_t count = HEADS * tokens * tokens;
    float *scores = made_values(count), *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
    float *x = made_values(tokens * 16);
    assert_true(a && b);
    for (size_t i = 0; i < count; i++)
        scores[i] *= 2;
    attend(scores, tokens, &usual, a);
    attend(scores, tokens, candidate, b);
    for (size_t i = 0; i < count && coarse; i++)
        b[i] = to_bf16(b[i]);
    trace_add(trace, "model.embed_tokens", x, x, SHAPE(tokens, 16));
    trace_diagnose(trace, trace_add(trace, "model.layers.0.attn_probs", a, b, SHAPE(1, HEADS, tokens, tokens)));
    free(scores);
    free(a);
    free(b);
    free(x);
}

static void expect(const struct attention *candidate, const char *id, const char *words)
{
    static const size_t sizes[] = {9, 40, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int coarse = 0; coarse < 2; coarse++) {
            struct trace trace;
            trace_start(&trace);
            diagnose(&trace, sizes[i], coarse, candidate);
            assert_first(&trace, id, words);
            assert_true(trace.diagnosis.causes[0].confidence > 0.7);
            assert_null(trace_cause(&trace, "zeros")); /* of keys that some tokens alone see */
            trace_end(&trace);
        }
}

static void test_masks(void **state)
{
    (void)state;
    expect(&(struct attention){.factor = 1, .band = {MOST, 0}}, "mask", "in the candidate each token sees every token");
    expect(&(struct attention){.factor = 1, .band = {1, 0}}, "mask", "in the candidate each token sees 1 token ahead");
    expect(&(struct attention){.factor = 1, .band = {0, 4}}, "mask", "(a window of 4); in the reference");
    expect(&(struct attention){.factor = 1, .late = true}, "mask", "applies the mask after the softmax");
}

static void test_softmax(void **state)
{
    (void)state;
    expect(&(struct attention){.factor = 0.5}, "softmax", "it scales the scores by 0.5");
    expect(&(struct attention){.factor = 2}, "softmax", "it scales the scores by ");
    expect(&(struct attention){.factor = 1, .none = true}, "softmax", "applies no softmax");
}

/* Other scores under the same mask: nothing is said of a mask or a temperature. */
static void test_other_scores(void **state)
{
    static const struct attention usual = {.factor = 1};
    enum { TOKENS = 24, COUNT = HEADS * TOKENS * TOKENS };
    float a[COUNT], b[COUNT], *one, *other;
    struct trace trace;
    (void)state;
    trace_start(&trace);
    one = made_values(COUNT);
    other = made_values(COUNT);
    attend(one, TOKENS, &usual, a);
    attend(other, TOKENS, &usual, b);
    trace_diagnose(&trace, trace_add(&trace, "model.layers.0.attn_probs", a, b, SHAPE(1, HEADS, TOKENS, TOKENS)));
    assert_null(trace_cause(&trace, "mask"));
    if (trace_cause(&trace, "softmax"))
        assert_null(strstr(trace_cause(&trace, "softmax")->summary, "temperature"));
    free(one);
    free(other);
    trace_end(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_other_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
