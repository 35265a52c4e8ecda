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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_keys_of_a_token_are_different_ones),
        cmocka_unit_test(test_keys_of_sparse_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
