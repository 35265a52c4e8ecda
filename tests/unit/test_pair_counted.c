/* Names that only count: equal ones mean one thing unless values say otherwise. And what content says of names that
 * say nothing. */
#include "made_bundle.h"

enum { COUNT = 12, TOKENS = 6, WIDTH = 16, SIZE = TOKENS * WIDTH };

static const struct ts_pair_options options = {.by_content = true};

static void make_all(float **values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = made_values(SIZE);
}

static void free_all(float **values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(values[i]);
}

static void check_pair(const struct paired *paired, const char *format, int a, int b)
{
    const char *one = made_name(format, a), *other = made_name(format, b);
    assert_true(pair_error(paired_find(paired, one, other)) == 0);
}

/* One operation more on one side: all that come behind it are counted otherwise, be they many or few. */
static void test_an_operation_more(void **state)
{
    static const char *const formats[] = {"onnx::MatMul_%d", "var_%d", "t%d", "output_%d", "%d"};
    (void)state;
    for (size_t round = 0; round < 2 * sizeof formats / sizeof *formats; round++) {
        const char *format = formats[round / 2];
        const int more = round % 2 ? 8 : 3;
        float *values[COUNT + 1];
        struct paired paired;
        paired_start(&paired);
        make_all(values, COUNT + 1);
        for (int i = 0; i < COUNT; i++)
            made_add(paired.a, made_name(format, i), values[i], SHAPE(TOKENS, WIDTH));
        for (int i = 0; i < COUNT + 1; i++)
            made_add(paired.b, made_name(format, i),
                     values[i < more    ? i
                            : i == more ? COUNT
                                        : i - 1],
                     SHAPE(TOKENS, WIDTH));
        paired_run(&paired, &options);
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, COUNT);
        for (int i = 0; i < COUNT; i++)
            check_pair(&paired, format, i, i < more ? i : i + 1);
        assert_int_equal(paired.pairing.only_a_count, 0);
        assert_int_equal(paired.pairing.only_b_count, 1);
        assert_string_equal(paired.pairing.only_b[0]->name, made_name(format, more));
        assert_true(has_note(&paired, "only count"));
        free_all(values, COUNT + 1);
        paired_end(&paired);
    }
}

/* Other sizes under one name say the same of two tensors alone. */
static void test_other_sizes(void **state)
{
    float *values = made_values(SIZE), *others = made_values(SIZE / 2);
    struct paired paired;
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "output_0", values, SHAPE(TOKENS, WIDTH));
    made_add(paired.a, "output_1", others, SHAPE(TOKENS, WIDTH / 2));
    made_add(paired.b, "output_0", others, SHAPE(TOKENS, WIDTH / 2));
    made_add(paired.b, "output_1", values, SHAPE(TOKENS, WIDTH));
    paired_run(&paired, &options);
    assert_all_equal(&paired, 2, 0);
    check_pair(&paired, "output_%d", 0, 1);
    check_pair(&paired, "output_%d", 1, 0);
    free(values);
    free(others);
    paired_end(&paired);
}

/* The same numbers in another shape are the same tensor where some layout of them agrees: turned, they are found under
 * the other number. Shuffled they are not, and names stand, as nothing says that they count other things. */
static void test_other_shapes(void **state)
{
    enum { TURNED, SHUFFLED, WAYS };
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        float *values[COUNT], *others[COUNT];
        struct paired paired;
        paired_start(&paired);
        make_all(values, COUNT);
        for (int i = 0; i < COUNT; i++) {
            const float *from = values[(i + 5) % COUNT];
            others[i] = malloc(SIZE * sizeof *others[i]);
            for (int k = 0; k < SIZE; k++) /* 41 has no factor in common with the size */
                others[i][k] = from[way == TURNED ? k % TOKENS * WIDTH + k / TOKENS : (k * 41 + 7) % SIZE];
            made_add(paired.a, made_name("t%d", i), values[i], SHAPE(TOKENS, WIDTH));
        }
        for (int i = 0; i < COUNT; i++)
            made_add(paired.b, made_name("t%d", i), others[i], SHAPE(WIDTH, TOKENS));
        paired_run(&paired, &options);
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, COUNT);
        for (int i = 0; i < COUNT; i++)
            if (way == TURNED)
                check_pair(&paired, "t%d", (i + 5) % COUNT, i);
            else
                assert_string_equal(paired.pairing.pairs[i].name, paired.pairing.pairs[i].name_b);
        assert_int_equal(has_note(&paired, "only count"), way == TURNED);
        free_all(values, COUNT);
        free_all(others, COUNT);
        paired_end(&paired);
    }
}

/* Two that changed places are a finding while all others are where they were, and behind a fault nothing is found
 * again: names stand. So do names that say something, whatever the values are. */
static void test_names_that_stand(void **state)
{
    enum { SWAPPED, BROKEN, NAMED, WAYS };
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        const char *format = way == NAMED ? "router_%d" : "t%d";
        float *values[COUNT], *other[COUNT];
        struct paired paired;
        paired_start(&paired);
        make_all(values, COUNT);
        make_all(other, COUNT);
        for (int i = 0; i < COUNT; i++) {
            const int from = way == NAMED               ? (i + 1) % COUNT
                             : i == 4 && way == SWAPPED ? 5
                             : i == 5 && way == SWAPPED ? 4
                                                        : i;
            made_add(paired.a, made_name(format, i), values[i], SHAPE(TOKENS, WIDTH));
            made_add(paired.b, made_name(format, i), way == BROKEN && i >= 5 ? other[i] : values[from],
                     SHAPE(TOKENS, WIDTH));
        }
        paired_run(&paired, &options);
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, COUNT);
        for (int i = 0; i < COUNT; i++)
            paired_find(&paired, made_name(format, i), made_name(format, i));
        free_all(values, COUNT);
        free_all(other, COUNT);
        paired_end(&paired);
    }
}

/* A stream that a layer hardly changes: what is equal belongs together, however near another one is. */
static void test_equal_beside_nearly_equal(void **state)
{
    float *one = made_values(SIZE), *other = made_values(SIZE), *third = made_values(SIZE);
    struct paired paired;
    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        other[i] = one[i] * 1.001F;
    paired_start(&paired);
    made_add(paired.a, "foo", one, SHAPE(TOKENS, WIDTH));
    made_add(paired.a, "bar", other, SHAPE(TOKENS, WIDTH));
    made_add(paired.a, "tail", third, SHAPE(TOKENS, WIDTH));
    made_add(paired.b, "qux", other, SHAPE(TOKENS, WIDTH));
    made_add(paired.b, "baz", one, SHAPE(TOKENS, WIDTH));
    made_add(paired.b, "end", third, SHAPE(TOKENS, WIDTH));
    paired_run(&paired, &options);
    assert_all_equal(&paired, 3, 0);
    paired_find(&paired, "foo", "baz");
    paired_find(&paired, "bar", "qux");
    free(one);
    free(other);
    free(third);
    paired_end(&paired);
}

/* Errors as bf16 runs have behind some layers: of many tensors some have another that is about as near. When that one
 * has found its own, nothing stands in the way any more. */
static void test_what_others_leave(void **state)
{
    enum { MANY = 48, ELEMENTS = 704 };
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < MANY; i++) {
        float *values = made_values(ELEMENTS);
        made_add(paired.a, made_name("x%da", (i * 7) % MANY), values, SHAPE(11, 64));
        for (int k = 0; k < ELEMENTS; k++)
            values[k] += 0.02f * (float)(dice_number() + dice_number());
        made_add(paired.b, made_name("thing%dy", i), values, SHAPE(11, 64));
        free(values);
    }
    paired_run(&paired, &options);
    assert_int_equal(paired.pairing.count, MANY);
    for (int i = 0; i < MANY; i++)
        paired_find(&paired, made_name("x%da", (i * 7) % MANY), made_name("thing%dy", i));
    paired_end(&paired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_operation_more),
        cmocka_unit_test(test_other_sizes),
        cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_names_that_stand),
        cmocka_unit_test(test_equal_beside_nearly_equal),
        cmocka_unit_test(test_what_others_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
