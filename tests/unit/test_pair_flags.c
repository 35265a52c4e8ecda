/* Masks that one side keeps as flags and the other as what is added to scores. */
#include <math.h>

#include "made_bundle.h"

enum { TOKENS = 12, COUNT = TOKENS * TOKENS };

static void add_flags(struct ts_bundle *bundle, const char *name, enum ts_type type, bool shown, unsigned rank,
                      const uint64_t *shape)
{
    struct ts_tensor *tensor;
    struct ts_source *source;
    struct ts_error error;
    uint8_t bytes[COUNT];
    for (int i = 0; i < COUNT; i++)
        bytes[i] = (i % TOKENS <= i / TOKENS) == shown;
    assert_int_equal(ts_bundle_add(bundle, name, rank, &tensor, &error), TS_OK);
    tensor->type = type;
    tensor->count = 1;
    for (unsigned i = 0; i < rank; i++)
        tensor->count *= tensor->shape[i] = shape[i];
    assert_int_equal(ts_source_copy(bytes, (size_t)tensor->count, name, &source, &error), TS_OK);
    assert_int_equal(ts_bundle_keep(bundle, source, &error), TS_OK);
    tensor->source = source;
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    ts_source_release(source);
}

/* A causal mask of zeros and `hidden`, or another tensor of 0 and that. */
static void add_sums(struct ts_bundle *bundle, const char *name, float hidden, bool causal)
{
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (causal ? i % TOKENS > i / TOKENS : i * i % 7 == 2) ? hidden : 0;
    made_add(bundle, name, values, SHAPE(1, 1, TOKENS, TOKENS));
}

/* True may show an entry or hide it; whichever it is, both sides hide the same. */
static void test_flags_of_a_mask(void **state)
{
    static const float hidden[] = {-INFINITY, -65504, -1e4f, -9984, -3.4028235e38f};
    (void)state;
    for (int shown = 0; shown < 2; shown++)
        for (int of_a = 0; of_a < 2; of_a++)
            for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++) {
                const enum ts_type type = h % 2 ? TS_I8 : TS_BOOL;
                struct paired paired;
                const struct ts_pair *pair;
                double a[COUNT], b[COUNT];
                struct ts_error error;
                char words[64];
                paired_start(&paired);
                add_sums(of_a ? paired.b : paired.a, "layers.0.self_attn.bias", hidden[h], true);
                add_flags(of_a ? paired.a : paired.b, "layers.0.self_attn.bias", type, shown, SHAPE(TOKENS, TOKENS));
                paired_run(&paired, NULL);
                pair = paired_find(&paired, "layers.0.self_attn.bias", NULL);
                assert_null(pair->problem);
                snprintf(words, sizeof words, "%c: %s", of_a ? 'A' : 'B',
                         type == TS_BOOL ? (shown ? "true is 0, false -inf" : "false is 0, true -inf")
                         : shown         ? "1 is 0, 0 is -inf"
                                         : "0 is 0, 1 is -inf");
                assert_non_null(strstr(pair->recipe, words));
                assert_int_equal(ts_view_read_f64(&pair->a, 0, COUNT, a, &error), TS_OK);
                assert_int_equal(ts_view_read_f64(&pair->b, 0, COUNT, b, &error), TS_OK);
                for (int i = 0; i < COUNT; i++) {
                    assert_true((a[i] == 0) == (b[i] == 0));
                    assert_true((a[i] == 0) == (i % TOKENS <= i / TOKENS));
                }
                paired_end(&paired);
            }
}

/* Flags that hide other entries are a finding where they are a mask by name; elsewhere they may mean anything. Numbers
 * are no masks. And flags of tokens are not what is added to scores. */
static void test_what_is_no_such_mask(void **state)
{
    struct paired paired;
    const struct ts_pair *pair;
    (void)state;
    paired_start(&paired);
    add_sums(paired.a, "causal_mask", -INFINITY, false);
    add_flags(paired.b, "causal_mask", TS_BOOL, true, SHAPE(1, 1, TOKENS, TOKENS));
    add_sums(paired.a, "something", -INFINITY, false);
    add_flags(paired.b, "something", TS_BOOL, true, SHAPE(1, 1, TOKENS, TOKENS));
    add_sums(paired.a, "numbers_mask", -3, true);
    add_flags(paired.b, "numbers_mask", TS_BOOL, true, SHAPE(1, 1, TOKENS, TOKENS));
    add_sums(paired.a, "attention_mask", -INFINITY, true);
    add_flags(paired.b, "attention_mask", TS_I8, true, SHAPE(1, TOKENS));
    made_add(paired.a, "none", &(float){-INFINITY}, SHAPE(1));
    add_flags(paired.b, "none", TS_BOOL, false, SHAPE(1));
    paired_run(&paired, NULL);
    assert_string_equal(paired_find(&paired, "none", NULL)->recipe, "");
    assert_string_equal(paired_find(&paired, "causal_mask", NULL)->recipe, "B: true is 0, false -inf");
    assert_string_equal(paired_find(&paired, "something", NULL)->recipe, "");
    assert_string_equal(paired_find(&paired, "numbers_mask", NULL)->recipe, "");
    pair = paired_find(&paired, "attention_mask", NULL);
    assert_non_null(pair->problem);
    assert_non_null(strstr(pair->problem, "flags of tokens"));
    paired_end(&paired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags_of_a_mask),
        cmocka_unit_test(test_what_is_no_such_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
