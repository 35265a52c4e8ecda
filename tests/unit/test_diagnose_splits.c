/* Attention of which queries, keys, values and the steps between were captured: heads that are split off in another
 * way are named at the scores and at the context. And sums of three terms of which two have another factor. */
#include "made_trace.h"

enum { HEADS = 6, SERVED = 3, SIZE = 16, WIDTH = HEADS * SIZE, NARROW = SERVED * SIZE, MOST = 400 };
enum split { RIGHT, BY_NUMBER, VIEWED };

static size_t place(enum split split, size_t tokens, size_t heads, size_t token, size_t head, size_t i)
{
    return split == BY_NUMBER ? (token * SIZE + i) * heads + head
           : split == VIEWED  ? (head * tokens + token) * SIZE + i
                              : (token * heads + head) * SIZE + i;
}

static void score(const float *q, const float *k, size_t tokens, enum split of_q, enum split of_k, float *out)
{
    for (size_t at = 0; at < tokens * HEADS * tokens; at++) {
        size_t key = at % tokens, head = at / tokens % HEADS, row = at / tokens / HEADS;
        double sum = 0;
        for (size_t i = 0; i < SIZE; i++)
            sum += (double)q[place(of_q, tokens, HEADS, row, head, i)] *
                   (double)k[place(of_k, tokens, SERVED, key, head / (HEADS / SERVED), i)];
        out[at] = (float)(sum / 4);
    }
}

static void weigh(const float *probs, const float *v, size_t tokens, enum split of_v, float *out)
{
    for (size_t at = 0; at < tokens * WIDTH; at++) {
        size_t i = at % SIZE, head = at / SIZE % HEADS, row = at / WIDTH;
        double sum = 0;
        for (size_t key = 0; key < tokens; key++)
            sum += (double)probs[(row * HEADS + head) * tokens + key] *
                   (double)v[place(of_v, tokens, SERVED, key, head / (HEADS / SERVED), i)];
        out[at] = (float)sum;
    }
}

static void diagnose_scores(struct trace *trace, size_t tokens, enum split of_q, enum split of_k)
{
    static float a[MOST * HEADS * MOST], b[MOST * HEADS * MOST];
    float *q, *k;
    trace_start(trace);
    q = made_values(tokens * WIDTH);
    k = made_values(tokens * NARROW);
    score(q, k, tokens, RIGHT, RIGHT, a);
    score(q, k, tokens, of_q, of_k, b);
    for (size_t i = 0; i < tokens * HEADS * tokens; i++)
        b[i] = to_bf16(b[i]);
    trace_add(trace, "layer_1_attn_q_proj", q, q, SHAPE(tokens, WIDTH));
    trace_add(trace, "layer_1_attn_k_proj", k, k, SHAPE(tokens, NARROW));
    trace_diagnose(trace, trace_add(trace, "layer_1_attn_scores", a, b, SHAPE(tokens, HEADS, tokens)));
    free(q);
    free(k);
}

static void test_scores(void **state)
{
    static const struct {
        enum split q, k;
        const char *words;
    } ways[] = {
        {BY_NUMBER, RIGHT, "splits layer_1_attn_q_proj into [head_dim, heads] instead of [heads, head_dim]"},
        {RIGHT, BY_NUMBER, "splits layer_1_attn_k_proj into [head_dim, heads]"},
        {BY_NUMBER, BY_NUMBER, "splits layer_1_attn_q_proj and layer_1_attn_k_proj into [head_dim, heads]"},
        {VIEWED, RIGHT, "takes layer_1_attn_q_proj for [heads, tokens, head_dim]"},
        {RIGHT, VIEWED, "takes layer_1_attn_k_proj for [heads, tokens, head_dim]"},
        {VIEWED, VIEWED, "takes layer_1_attn_q_proj and layer_1_attn_k_proj for [heads, tokens, head_dim]"},
    };
    struct trace trace;
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        diagnose_scores(&trace, 11, ways[i].q, ways[i].k);
        assert_first(&trace, "permuted", ways[i].words);
        assert_true(trace.diagnosis.causes[0].confidence > 0.9);
        trace_end(&trace);
    }
    /* more than a case holds: put to every row */
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        diagnose_scores(&trace, MOST, ways[i].q, ways[i].k);
        assert_first(&trace, "permuted", ways[i].words);
        assert_true(trace.diagnosis.causes[0].proof.rows == MOST);
        trace_end(&trace);
    }
}

static void test_context(void **state)
{
    static const char *const words[] = {"splits layer_1_attn_v_proj into [head_dim, heads]",
                                        "takes layer_1_attn_v_proj for [heads, tokens, head_dim]"};
    enum { TOKENS = 13 };
    static float probs[TOKENS * HEADS * TOKENS], a[TOKENS * WIDTH], b[TOKENS * WIDTH];
    struct trace trace;
    (void)state;
    for (enum split split = BY_NUMBER; split <= VIEWED; split++) {
        float *v;
        trace_start(&trace);
        v = made_values(TOKENS * NARROW);
        for (size_t i = 0; i < TOKENS * HEADS; i++) {
            double sum = 0;
            for (size_t key = 0; key < TOKENS; key++)
                sum += (double)(probs[i * TOKENS + key] = (float)(dice() % 1000 + 1));
            for (size_t key = 0; key < TOKENS; key++)
                probs[i * TOKENS + key] = (float)((double)probs[i * TOKENS + key] / sum);
        }
        weigh(probs, v, TOKENS, RIGHT, a);
        weigh(probs, v, TOKENS, split, b);
        trace_add(&trace, "layer_1_attn_v_proj", v, v, SHAPE(TOKENS, NARROW));
        trace_add(&trace, "layer_1_attn_probs", probs, probs, SHAPE(TOKENS, HEADS, TOKENS));
        trace_diagnose(&trace, trace_add(&trace, "layer_1_attn_context", a, b, SHAPE(TOKENS, WIDTH)));
        assert_first(&trace, "permuted", words[split - BY_NUMBER]);
        trace_end(&trace);
        free(v);
    }
}

/* A residual stream with two additions at once: what a branch made of both is subtracted, or has a factor. */
static void test_branch_of_two(void **state)
{
    static const struct {
        double factor;
        const char *id, *words;
    } ways[] = {
        {0, "term-missing", "only layer_0_residual is left of the sum"},
        {2, "term-extra", "adds the sum of"},
        {-1, "sign-flipped", "subtracts"},
        {0.5, "scaled", "with a factor of 0.5 instead of 1"},
        {0.3, "scaled", "with a factor of 0.3 instead of 1"},
        {-0.7, "scaled", "with a factor of -0.7 instead of 1"},
    };
    enum { TOKENS = 9, TOTAL = TOKENS * WIDTH };
    static float a[TOTAL], b[TOTAL];
    struct trace trace;
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        float *x, *y, *z;
        trace_start(&trace);
        x = made_values(TOTAL);
        y = made_values(TOTAL);
        z = made_values(TOTAL);
        for (size_t i = 0; i < TOTAL; i++) {
            double branch = (double)y[i] + (double)z[i];
            a[i] = (float)((double)x[i] + branch);
            b[i] = to_bf16((float)((double)x[i] + ways[w].factor * branch));
        }
        trace_add(&trace, "layer_0_residual", x, x, SHAPE(TOKENS, WIDTH));
        trace_add(&trace, "layer_0_experts_output", y, y, SHAPE(TOKENS, WIDTH));
        trace_add(&trace, "layer_0_shared_expert_output", z, z, SHAPE(TOKENS, WIDTH));
        trace_diagnose(&trace, trace_add(&trace, "layer_0_output", a, b, SHAPE(TOKENS, WIDTH)));
        assert_first(&trace, ways[w].id, ways[w].words);
        if (w)
            assert_non_null(strstr(trace.diagnosis.causes[0].summary, "experts_output"));
        trace_end(&trace);
        free(x);
        free(y);
        free(z);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_branch_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
