/* The judge where sparse attention chose the keys of each token: integers, of which only those count that the token may
 * see, in whatever order. */
#include "judged_trace.h"

enum { TOKENS = 24, WIDTH = 32, KEYS = 6 };

static void add_projection(struct trace *trace, const char *name, double error)
{
    float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, error);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

/* The key of rank k of a token, the largest first; those behind it, which are masked, from `masked` on. */
static int64_t key_of(size_t token, size_t k, size_t masked)
{
    const size_t visible = token + 1;
    return k < visible ? (int64_t)((k + token * 3) % visible)
                       : (int64_t)(visible + (k - visible + masked) % (TOKENS - visible));
}

enum wrong { NOTHING, ANOTHER_ORDER, NEAR_TIES, MANY_OTHERS, A_MASKED_KEY };

static void judge_keys(const char *name, enum wrong wrong, double error, size_t expected)
{
    struct judged judged;
    int64_t keys[2][TOKENS * KEYS];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_projection(&judged.trace, made_name("layers.0.self_attn.part_%d", i), error);
    for (size_t token = 0; token < TOKENS; token++)
        for (size_t k = 0; k < KEYS; k++) {
            const size_t at = token * KEYS + k;
            const bool last = k + 1 == KEYS && token + 1 > KEYS;
            keys[0][at] = key_of(token, k, 0);
            keys[1][token * KEYS + (wrong == ANOTHER_ORDER ? KEYS - 1 - k : k)] = key_of(token, k, 3);
            /* the first that was not chosen, in place of the last that was */
            if (last && ((wrong == NEAR_TIES && token % 8 == 7) || wrong == MANY_OTHERS))
                keys[1][at] = key_of(token, KEYS, 0);
            if (wrong == A_MASKED_KEY && token == 15 && last)
                keys[1][at] = 20;
        }
    trace_add_integers(&judged.trace, name, keys[0], keys[1], TOKENS, KEYS);
    add_projection(&judged.trace, "layers.0.self_attn.o_proj", error);
    expect_first(&judged, expected);
}

static int by_number(const void *a, const void *b)
{
    const int64_t *one = a, *other = b;
    return *one < *other ? -1 : *one > *other;
}

/* What the reference chose is no key twice. */
static void test_the_keys_of_a_token_are_different_ones(void **state)
{
    (void)state;
    for (size_t token = 0; token < TOKENS; token++) {
        int64_t keys[KEYS + 1];
        for (size_t k = 0; k <= KEYS; k++)
            keys[k] = key_of(token, k, 0);
        qsort(keys, KEYS, sizeof *keys, by_number);
        for (size_t k = 1; k < KEYS; k++)
            assert_true(keys[k] > keys[k - 1]);
    }
}

static void test_keys_of_sparse_attention(void **state)
{
    static const char *const name = "layers.0.self_attn.indexer";
    (void)state;
    judge_keys(name, NOTHING, 1e-3, SIZE_MAX);
    judge_keys(name, ANOTHER_ORDER, 1e-3, SIZE_MAX);
    judge_keys(name, NEAR_TIES, 1e-2, SIZE_MAX);
    judge_keys(name, MANY_OTHERS, 1e-3, 4);
    judge_keys(name, A_MASKED_KEY, 1e-2, 4);
    judge_keys("layers.0.1", ANOTHER_ORDER, 1e-3, SIZE_MAX);
}

/* Scores, masked but for the keys of each side; probabilities of one head, of each side's own scores or, if `wrong`, by
 * the reference's mask. */
static void judge_probabilities(bool wrong, size_t expected)
{
    struct judged judged;
    int64_t keys[2][TOKENS * KEYS];
    float *a = made_values(TOKENS * TOKENS), sides[2][TOKENS * TOKENS], probs[2][TOKENS * TOKENS];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_projection(&judged.trace, made_name("layers.0.self_attn.part_%d", i), 1e-3);
    for (size_t i = 0; i < TOKENS * KEYS; i++) {
        const size_t token = i / KEYS, k = i % KEYS;
        keys[0][i] = key_of(token, k, 0);
        keys[1][i] = k + 1 == KEYS && token == 18 ? key_of(token, KEYS, 0) : key_of(token, k, 0);
    }
    trace_add_integers(&judged.trace, "layers.0.self_attn.indexer", keys[0], keys[1], TOKENS, KEYS);
    for (int side = 0; side < 2; side++)
        for (size_t token = 0; token < TOKENS; token++) {
            double sum = 0, weights[TOKENS] = {0};
            for (size_t i = 0; i < TOKENS; i++)
                sides[side][token * TOKENS + i] = -1e9f;
            for (int mask = 0; mask < 2; mask++)
                for (size_t k = 0; k < KEYS; k++) {
                    const size_t key = (size_t)keys[mask][token * KEYS + k], at = token * TOKENS + key;
                    const double score = (double)a[at] * (side ? 1 + 1e-3 * sin((double)at) : 1);
                    if (key > token)
                        continue;
                    if (mask == side)
                        sides[side][at] = (float)score;
                    if (mask == (wrong ? 0 : side))
                        sum += weights[key] = exp((double)(float)score);
                }
            for (size_t i = 0; i < TOKENS; i++)
                probs[side][token * TOKENS + i] = (float)(weights[i] / sum);
        }
    trace_add(&judged.trace, "layers.0.self_attn.attn_scores_masked", sides[0], sides[1], SHAPE(1, TOKENS, TOKENS));
    trace_add(&judged.trace, "layers.0.self_attn.attn_probs", probs[0], probs[1], SHAPE(1, TOKENS, TOKENS));
    free(a);
    expect_first(&judged, expected);
}

static void test_probabilities_of_sparse_attention(void **state)
{
    (void)state;
    judge_probabilities(false, SIZE_MAX);
    judge_probabilities(true, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_keys_of_a_token_are_different_ones),
        cmocka_unit_test(test_keys_of_sparse_attention),
        cmocka_unit_test(test_probabilities_of_sparse_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
