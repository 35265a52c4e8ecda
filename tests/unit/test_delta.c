/* Measured differences against what torch computed in float64 (tests/golden/compare/expected.json). */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

#include "base/cpu.h"
#include "base/json.h"
#include "compare/delta.h"
#include "compare/delta_kernel.h"
#include "opened.h"
#include "read/open.h"

struct expected {
    double n, nan_a, nan_b, inf_a, inf_b, finite_pairs, max_abs, argmax_flat, mean_abs, mse, cosine;
    double mean_a, std_a, min_a, max_a, max_rel_vs_a;
    bool close_3, close_4;
};

static double number(const struct ts_json *json)
{
    struct ts_error error;
    double value = (double)NAN;
    if (json->kind == TS_JSON_STRING)
        return ts_json_equals(json, "inf")    ? (double)INFINITY
               : ts_json_equals(json, "-inf") ? -(double)INFINITY
                                              : value;
    if (json->kind == TS_JSON_NUMBER)
        assert_int_equal(ts_json_double(json, &value, &error), TS_OK);
    return value;
}

static void read_expected(struct ts_json *json, struct expected *out)
{
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {{"n", offsetof(struct expected, n)},
                  {"nan_a", offsetof(struct expected, nan_a)},
                  {"nan_b", offsetof(struct expected, nan_b)},
                  {"inf_a", offsetof(struct expected, inf_a)},
                  {"inf_b", offsetof(struct expected, inf_b)},
                  {"finite_pairs", offsetof(struct expected, finite_pairs)},
                  {"max_abs", offsetof(struct expected, max_abs)},
                  {"argmax_flat", offsetof(struct expected, argmax_flat)},
                  {"mean_abs", offsetof(struct expected, mean_abs)},
                  {"mse", offsetof(struct expected, mse)},
                  {"cosine", offsetof(struct expected, cosine)},
                  {"mean_a", offsetof(struct expected, mean_a)},
                  {"std_a", offsetof(struct expected, std_a)},
                  {"min_a", offsetof(struct expected, min_a)},
                  {"max_a", offsetof(struct expected, max_a)},
                  {"max_rel_vs_a", offsetof(struct expected, max_rel_vs_a)}};
    struct ts_error error;
    *out = (struct expected){0};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *(double *)((char *)out + fields[i].offset) = (double)NAN;
    assert_int_equal(ts_json_expect(json, TS_JSON_OBJECT, "an object", &error), TS_OK);
    for (;;) {
        bool known = false;
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_OBJECT_END)
            return;
        for (size_t i = 0; i < sizeof fields / sizeof *fields && !known; i++)
            if (ts_json_equals(json, fields[i].name)) {
                known = true;
                assert_int_equal(ts_json_next(json, &error), TS_OK);
                *(double *)((char *)out + fields[i].offset) = number(json);
            }
        if (!known &&
            (ts_json_equals(json, "allclose_r0.001_a0.001") || ts_json_equals(json, "allclose_r0.0001_a0.0001"))) {
            bool *to = ts_json_equals(json, "allclose_r0.001_a0.001") ? &out->close_3 : &out->close_4;
            assert_int_equal(ts_json_next(json, &error), TS_OK);
            *to = json->kind == TS_JSON_TRUE;
            known = true;
        }
        if (!known)
            assert_int_equal(ts_json_skip_value(json, &error), TS_OK);
    }
}

static void same(const char *name, const char *what, double found, double expected)
{
    if (isnan(expected))
        return; /* the file says nothing */
    if (!(fabs(found - expected) <= 1e-6 * fabs(expected) + 1e-300) && found != expected)
        fail_msg("%s: %s is %.12g, torch says %.12g", name, what, found, expected);
}

static void check_pair(const char *name, const struct ts_delta *delta, const struct expected *expected)
{
    same(name, "count", (double)delta->count, expected->n);
    same(name, "nan_a", (double)delta->a.nan, expected->nan_a);
    same(name, "nan_b", (double)delta->b.nan, expected->nan_b);
    same(name, "inf_a", (double)(delta->a.positive_inf + delta->a.negative_inf), expected->inf_a);
    same(name, "inf_b", (double)(delta->b.positive_inf + delta->b.negative_inf), expected->inf_b);
    same(name, "compared", (double)delta->compared, expected->finite_pairs);
    same(name, "max_abs", delta->max_abs, expected->max_abs);
    same(name, "mean_abs", delta->mean_abs, expected->mean_abs);
    same(name, "mse", delta->mse, expected->mse);
    same(name, "mean_a", delta->a.mean, expected->mean_a);
    same(name, "std_a", delta->a.std, expected->std_a);
    same(name, "min_a", delta->a.min, expected->min_a);
    same(name, "max_a", delta->a.max, expected->max_a);
    if (delta->max_abs > 0) {
        same(name, "worst", (double)delta->worst, expected->argmax_flat);
        same(name, "cosine", delta->cosine, expected->cosine);
        same(name, "max_rel", delta->max_rel, expected->max_rel_vs_a);
    }
    if (!delta->a.nan && !delta->b.nan && !isnan(expected->n)) {
        assert_int_equal(delta->allclose[0], expected->close_3);
        assert_int_equal(delta->allclose[1], expected->close_4);
    }
}

static void compare_files(const char *path_a, const char *path_b, unsigned threads)
{
    struct ts_bundle *a, *b;
    struct ts_error error;
    struct ts_arena arena;
    struct ts_json json;
    struct ts_pool *pool = ts_pool_new(threads);
    struct ts_delta_options options = {0};
    size_t size, checked = 0;
    char *text = load_file("tests/golden/compare/expected.json", &size);
    assert_int_equal(ts_open(path_a, NULL, &a, &error), TS_OK);
    assert_int_equal(ts_open(path_b, NULL, &b, &error), TS_OK);
    ts_arena_init(&arena, 1 << 24);
    ts_json_init(&json, text, size);
    json.allow_nan = true;
    assert_int_equal(ts_json_expect(&json, TS_JSON_OBJECT, "an object", &error), TS_OK);
    while (ts_json_next(&json, &error) == TS_OK && json.kind == TS_JSON_KEY) {
        struct expected expected;
        struct ts_pair pair = {0};
        struct ts_delta delta;
        assert_int_equal(ts_json_copy(&json, &arena, &pair.name, &error), TS_OK);
        read_expected(&json, &expected);
        assert_true(ts_view_of(ts_bundle_tensor(a, pair.name), &arena, &pair.a));
        assert_true(ts_view_of(ts_bundle_tensor(b, pair.name), &arena, &pair.b));
        if (pair.a.count != pair.b.count)
            continue;
        assert_int_equal(ts_delta_run(pool, &pair, 1, &options, &delta, NULL, &error), TS_OK);
        check_pair(pair.name, &delta, &expected);
        checked++;
    }
    assert_true(checked >= 24);
    free(text);
    ts_arena_release(&arena);
    ts_bundle_free(a);
    ts_bundle_free(b);
    ts_pool_free(pool);
}

static void safetensors_equal_torch(void **state)
{
    (void)state;
    compare_files("tests/golden/compare/a.safetensors", "tests/golden/compare/b.safetensors", 1);
    compare_files("tests/golden/compare/a.safetensors", "tests/golden/compare/b.safetensors", 4);
}

static void torch_files_equal_torch(void **state)
{
    (void)state;
    compare_files("tests/golden/compare/a.pt", "tests/golden/compare/b.pt", 2);
    compare_files("tests/golden/compare/a.safetensors", "tests/golden/compare/b.pt", 2);
}

/* A pair over bytes in memory. */
struct made {
    struct ts_source *source[2];
    struct ts_tensor tensor[2];
    uint64_t shape[2][2];
    struct ts_pair pair;
    struct ts_arena arena;
};

static void make_mixed_pair(struct made *made, enum ts_type type_a, const void *a, enum ts_type type_b, const void *b,
                            uint64_t rows, uint64_t columns)
{
    const enum ts_type types[2] = {type_a, type_b};
    struct ts_error error;
    const void *data[2] = {a, b};
    *made = (struct made){0};
    ts_arena_init(&made->arena, 1 << 20);
    for (int i = 0; i < 2; i++) {
        uint64_t bytes;
        assert_true(ts_type_bytes(types[i], rows * columns, &bytes));
        assert_int_equal(ts_source_copy(data[i], (size_t)bytes, "memory", &made->source[i], &error), TS_OK);
        made->shape[i][0] = rows;
        made->shape[i][1] = columns;
        made->tensor[i] = (struct ts_tensor){
            .name = "x", .type = types[i], .rank = 2, .shape = made->shape[i], .source = made->source[i]};
        assert_int_equal(ts_tensor_finish(&made->tensor[i], &error), TS_OK);
    }
    made->pair.name = "x";
    assert_true(ts_view_of(&made->tensor[0], &made->arena, &made->pair.a));
    assert_true(ts_view_of(&made->tensor[1], &made->arena, &made->pair.b));
}

static void make_pair(struct made *made, enum ts_type type, const void *a, const void *b, size_t bytes, uint64_t rows,
                      uint64_t columns)
{
    uint64_t expected;
    assert_true(ts_type_bytes(type, rows * columns, &expected) && expected == bytes);
    make_mixed_pair(made, type, a, type, b, rows, columns);
}

static void drop_pair(struct made *made)
{
    ts_source_release(made->source[0]);
    ts_source_release(made->source[1]);
    ts_arena_release(&made->arena);
}

static enum ts_status look_closer(struct made *made, struct ts_delta *delta)
{
    struct ts_pool *pool = ts_pool_new(1);
    const size_t first = 0;
    struct ts_error error;
    enum ts_status status = ts_delta_detail(pool, &made->pair, &first, 1, &made->arena, delta, NULL, &error);
    ts_pool_free(pool);
    return status;
}

static struct ts_delta measure(struct made *made, unsigned threads)
{
    struct ts_pool *pool = ts_pool_new(threads);
    struct ts_delta_options options = {.given = true, .tolerance = {1e-2, 1e-2}};
    struct ts_delta delta;
    struct ts_error error;
    assert_int_equal(ts_delta_run(pool, &made->pair, 1, &options, &delta, NULL, &error), TS_OK);
    ts_pool_free(pool);
    return delta;
}

static uint64_t dice(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Several runs, added up in double, and several pieces; counted by a plain loop in long double. */
static void pairs_equal_a_plain_loop(void **state)
{
    static const enum ts_type types[] = {TS_F32, TS_BF16, TS_F16, TS_BF16};
    enum { SMALL = 3 * 16384 + 77, LARGE = 3 * 524288 + 77 };
    float *x = malloc(LARGE * 4), *y = malloc(LARGE * 4);
    uint8_t *bytes_x = malloc(LARGE * 4), *bytes_y = malloc(LARGE * 4);
    (void)state;
    for (int t = 0; t < 8; t++) {
        const enum ts_type type = types[t % 4], type_b = t % 4 == 3 ? TS_F32 : type;
        const size_t count = t < 4 ? SMALL : LARGE;
        const double digits = t < 4 ? 1e-12 : 1e-6;
        struct made made;
        struct ts_delta one, four;
        long double squares = 0, absolute = 0, size = 0;
        uint64_t random = 7, unequal = 0, mismatched = 0;
        double largest = -1;
        size_t worst = 0;
        for (size_t i = 0; i < count; i++) {
            if (type == TS_F32) {
                float value = (float)dice(&random) / 1e9f - 1.0f,
                      other = value + ((float)dice(&random) / 1e9f - 1.0f) * 1e-2f;
                memcpy(bytes_x + i * 4, &value, 4);
                memcpy(bytes_y + i * 4, &other, 4);
            } else {
                uint16_t value = (uint16_t)((type == TS_BF16 ? 0x3e00 : 0x2c00) + dice(&random) % 0x200);
                uint16_t other = (uint16_t)(value ^ (dice(&random) & 3));
                memcpy(bytes_x + i * 2, &value, 2);
                memcpy(bytes_y + i * 2, &other, 2);
            }
        }
        ts_type_decode_f32(type, false, bytes_x, count, x);
        ts_type_decode_f32(type, false, bytes_y, count, y);
        for (size_t i = 0; i < count && type_b != type; i++) { /* numbers that b's type alone has */
            y[i] *= 1 + (float)(dice(&random) % 512) * 0x1p-16f;
            memcpy(bytes_y + i * 4, &y[i], 4);
        }
        for (size_t i = 0; i < count; i++) {
            double d = (double)y[i] - (double)x[i];
            squares += (long double)d * d;
            absolute += fabs(d);
            size += (long double)x[i] * x[i];
            unequal += d != 0;
            mismatched += fabsf(y[i] - x[i]) > 1e-2f * fabsf(x[i]) + 1e-2f;
            if (fabs(d) > largest) {
                largest = fabs(d);
                worst = i;
            }
        }
        make_mixed_pair(&made, type, bytes_x, type_b, bytes_y, 1, count);
        one = measure(&made, 1);
        four = measure(&made, 4);
        assert_int_equal(one.unequal, unequal);
        assert_int_equal(one.mismatched, mismatched);
        assert_int_equal(one.worst, worst);
        assert_true(fabs(one.max_abs - largest) <= 1e-6 * largest);
        assert_true(fabs(one.mse - (double)(squares / (long double)count)) <= digits * one.mse);
        assert_true(fabs(one.mean_abs - (double)(absolute / (long double)count)) <= digits * one.mean_abs);
        assert_true(fabs(one.rel_l2 - sqrt((double)(squares / size))) <= digits * one.rel_l2);
        assert_memory_equal(&one.mse, &four.mse, sizeof one.mse);
        assert_memory_equal(&one.a, &four.a, sizeof one.a);
        assert_memory_equal(&one.b, &four.b, sizeof one.b);
        drop_pair(&made);
    }
    free(x);
    free(y);
    free(bytes_x);
    free(bytes_y);
}

static void masks_are_masked_whatever_they_are_written_with(void **state)
{
    const float a[] = {1, -INFINITY, 2, -INFINITY, -3.4028234663852886e38f, 3};
    const float b[] = {1, -3.4028234663852886e38f, 2, -1e9f, -65504, 3};
    struct made made;
    struct ts_delta delta;
    (void)state;
    make_pair(&made, TS_F32, a, b, sizeof a, 1, 6);
    delta = measure(&made, 1);
    assert_int_equal(delta.masked, 3);
    assert_int_equal(delta.non_finite_mismatch, 0);
    assert_int_equal(delta.unequal, 0);
    assert_true(delta.max_abs == 0 && delta.rel_l2 == 0);
    drop_pair(&made);
}

/* Minus infinity in f32 against the lowest number of types that have little range, and against constants in bf16, which
 * rounds -1e9 to -999292928, -1e4 to -9984 and -65504 to -65536. The same numbers in a type with range are numbers. */
static void masks_are_those_of_the_type(void **state)
{
    const float a[] = {1, -INFINITY, 2, -INFINITY};
    const uint8_t e4m3[] = {0x38, 0xfe, 0x40, 0xfe}, e5m2[] = {0x3c, 0xfb, 0x40, 0xfb},
                  fnuz[] = {0x40, 0xff, 0x48, 0xff};
    const uint16_t bf16[] = {0x3f80, 0xce6e, 0x4000, 0xc61c}, half_range[] = {0x3f80, 0xc780, 0x4000, 0xff33};
    const float numbers[] = {1, -448, 2, -57344};
    const struct {
        enum ts_type type;
        const void *data;
        uint64_t masked;
    } cases[] = {{TS_F8_E4M3, e4m3, 2}, {TS_F8_E5M2, e5m2, 2},    {TS_F8_E4M3FNUZ, fnuz, 2},
                 {TS_BF16, bf16, 2},    {TS_BF16, half_range, 2}, {TS_F32, numbers, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made made;
        struct ts_delta delta;
        make_mixed_pair(&made, TS_F32, a, cases[i].type, cases[i].data, 1, 4);
        delta = measure(&made, 1);
        assert_int_equal(delta.masked, cases[i].masked);
        assert_int_equal(delta.non_finite_mismatch, 2 - cases[i].masked);
        assert_true(delta.max_abs == 0);
        drop_pair(&made);
    }
}

static void masks_are_those_of_a_coarser_type(void **state)
{
    float a[100];
    uint16_t b[100];
    struct made made;
    struct ts_delta delta;
    (void)state;
    for (int i = 0; i < 100; i++) {
        a[i] = i % 2 ? -1e4f : 1;
        b[i] = i % 2 ? 0xc61c : 0x3f81; /* -9984, as bf16 rounds it, and the neighbour of 1 */
    }
    make_mixed_pair(&made, TS_F32, a, TS_BF16, b, 1, 100);
    delta = measure(&made, 1);
    assert_int_equal(delta.masked, 50);
    assert_true(fabs(delta.rel_l2 - 0x1p-7) < 1e-9);
    drop_pair(&made);
}

/* Scores plus the type's most negative number or a large one, on both sides: the sums are those of the scores that are
 * seen. */
static void masks_do_not_drown_the_rest(void **state)
{
    const float lows[] = {-3.4028234663852886e38f, -1e9f, -1e4f};
    (void)state;
    for (size_t i = 0; i < sizeof lows / sizeof *lows; i++) {
        const float low = lows[i], a[] = {3, low, low, 4, 0, low}, b[] = {3, low, low, 4, 5, low};
        struct made made;
        struct ts_delta delta;
        make_pair(&made, TS_F32, a, b, sizeof a, 1, 6);
        delta = measure(&made, 1);
        assert_int_equal(delta.masked, 0);
        assert_int_equal(delta.unequal, 1);
        assert_int_equal(delta.compared, 3);
        assert_true(delta.max_abs == 5 && fabs(delta.rel_l2 - 1) < 1e-12 && !delta.identical && delta.a.min == 0);
        drop_pair(&made);
    }
}

/* The same of pairs in several pieces, of which some hold no mask, and in some nothing differs. */
static void masks_of_some_pieces(void **state)
{
    enum { COUNT = 5 << 20, THIRD = COUNT / 3 };
    float *a = malloc(COUNT * sizeof *a), *b = malloc(COUNT * sizeof *b);
    struct made made;
    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = i < (size_t)2 * THIRD && i % 4 == 0 ? -1e9f : 2;
        b[i] = i < (size_t)2 * THIRD && i % 4 == 0 ? -1e9f : i >= THIRD ? 3 : 2;
    }
    make_pair(&made, TS_F32, a, b, COUNT * sizeof *a, 1, COUNT);
    for (unsigned threads = 1; threads < 4; threads += 2) {
        struct ts_delta delta = measure(&made, threads);
        const uint64_t masked = (2 * THIRD + 3) / 4, wrong = delta.unequal;
        assert_int_equal(delta.compared, COUNT - masked);
        assert_true(delta.a.min == 2 && delta.b.min == 2 && delta.a.mean == 2 && delta.max_abs == 1);
        assert_true(fabs(delta.rel_l2 - sqrt((double)wrong / (double)(COUNT - masked)) / 2) < 1e-12);
    }
    drop_pair(&made);
    free(a);
    free(b);
}

/* Numbers next to which the squares of all others vanish are summed up again at another scale, without the mask. */
static void masks_do_not_come_back(void **state)
{
    const double tiny = 1e-160, a[] = {3 * tiny, -1e9, -1e9, 4 * tiny, 0, -1e9};
    const double b[] = {3 * tiny, -1e9, -1e9, 4 * tiny, 5 * tiny, -1e9};
    struct made made;
    struct ts_delta delta;
    (void)state;
    make_pair(&made, TS_F64, a, b, sizeof a, 1, 6);
    delta = measure(&made, 1);
    assert_int_equal(delta.compared, 3);
    assert_true(fabs(delta.rel_l2 - 1) < 1e-12 && fabs(delta.a.norm / tiny - 5) < 1e-12);
    drop_pair(&made);
}

/* A single one, one that is not the least number, and one that masks nothing in the candidate are numbers. */
static void large_numbers_are_no_masks(void **state)
{
    const float rows[][2][4] = {{{3, -1e9f, 4, 0}, {3, -1e9f, 4, 5}},
                                {{3, -1e9f, -1e9f, -2e9f}, {4, -1e9f, -1e9f, -2e9f}},
                                {{3, -1e9f, -1e9f, 0}, {3, -1e9f, 1, 5}}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct made made;
        struct ts_delta delta;
        make_pair(&made, TS_F32, rows[i][0], rows[i][1], sizeof rows[i][0], 1, 4);
        delta = measure(&made, 1);
        assert_int_equal(delta.compared, 4);
        assert_true(delta.a.norm > 9e8);
        drop_pair(&made);
    }
}

static void non_finite_numbers_are_counted_apart(void **state)
{
    const float a[] = {1, NAN, INFINITY, INFINITY, NAN, 0};
    const float b[] = {1, NAN, INFINITY, -INFINITY, 4, INFINITY};
    struct made made;
    struct ts_delta delta;
    (void)state;
    make_pair(&made, TS_F32, a, b, sizeof a, 2, 3);
    delta = measure(&made, 1);
    assert_int_equal(delta.nan_both, 1);
    assert_int_equal(delta.inf_both, 1);
    assert_int_equal(delta.non_finite_mismatch, 3);
    assert_int_equal(delta.first_non_finite_mismatch, 3);
    assert_int_equal(delta.compared, 1);
    assert_false(delta.allclose[0]);
    drop_pair(&made);
}

static void integers_are_exact(void **state)
{
    const int64_t a[] = {INT64_MAX, INT64_MIN, 5, (INT64_C(1) << 60) + 1};
    const int64_t b[] = {INT64_MAX, INT64_MIN, 5, INT64_C(1) << 60};
    struct made made;
    struct ts_delta delta;
    (void)state;
    make_pair(&made, TS_I64, a, b, sizeof a, 2, 2);
    delta = measure(&made, 1);
    assert_true(delta.exact);
    assert_int_equal(delta.unequal, 1); /* a double could not tell */
    assert_int_equal(delta.worst, 3);
    assert_true(delta.max_abs == 1 && delta.max_ulp == 1 && delta.max_rel == 0x1p-60);
    drop_pair(&made);
}

/* The same bits are other numbers with a sign, and no integer is a mask. */
static void integers_are_what_their_types_say(void **state)
{
    const uint64_t a[] = {UINT64_MAX, 1}, large[] = {(UINT64_C(1) << 63) + 1, 1};
    const int64_t b[] = {-1, 1};
    const uint64_t near[] = {UINT64_C(1) << 63, 1};
    const int32_t masks[] = {-10000, -65504}, other_masks[] = {-100000, -65504};
    struct made made;
    struct ts_delta delta;
    (void)state;
    make_mixed_pair(&made, TS_U64, a, TS_I64, b, 1, 2);
    delta = measure(&made, 1);
    assert_true(delta.unequal == 1 && !delta.identical && delta.max_abs == 0x1p64);
    drop_pair(&made);
    make_pair(&made, TS_U64, large, near, sizeof large, 1, 2);
    delta = measure(&made, 1);
    assert_true(delta.unequal == 1 && delta.max_abs == 1);
    drop_pair(&made);
    make_pair(&made, TS_I32, masks, other_masks, sizeof masks, 1, 2);
    delta = measure(&made, 1);
    assert_true(delta.masked == 0 && delta.unequal == 1 && delta.max_abs == 90000);
    drop_pair(&made);
}

/* Types that are measured as f32 and as double: some runs of each, by a plain loop. Numbers of 64 bits stay where a
 * double is exact, on both sides of where they are taken one by one. */
static void other_types_equal_a_plain_loop(void **state)
{
    static const enum ts_type types[] = {TS_F64, TS_I64, TS_U64, TS_I32, TS_U32, TS_I16, TS_U16, TS_I8, TS_U8, TS_BOOL};
    enum { COUNT = 5000 };
    static uint8_t bytes[2][COUNT * 8];
    static double values[2][COUNT];
    uint64_t random = 11;
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const unsigned size = ts_type_info(types[t])->block_bytes;
        const double largest = types[t] == TS_BOOL  ? 1
                               : types[t] == TS_F64 ? 3
                                                    : ldexp(1, size == 8 ? 52 : 8 * (int)size);
        const bool negative =
            types[t] == TS_F64 || types[t] == TS_I64 || types[t] == TS_I32 || types[t] == TS_I16 || types[t] == TS_I8;
        long double squares = 0, absolute = 0, sum_a = 0, squares_a = 0;
        double furthest = 0, steepest = 0, least = INFINITY, most = -INFINITY;
        uint64_t unequal = 0, worst = 0;
        struct made made;
        struct ts_delta delta;
        for (size_t i = 0; i < COUNT; i++) {
            const double share = (double)dice(&random) / 0x1p31;
            double x = share * largest - (negative ? largest / 2 : 0), y = x;
            if (i < 1200 && size == 8 && types[t] != TS_F64) /* a run or two of small ones */
                x = floor(ldexp(x, -20));
            if (types[t] == TS_BOOL)
                x = share > 0.5, y = dice(&random) % 7 ? x : 1 - x;
            else if (types[t] == TS_F64)
                y = x + (dice(&random) % 2 ? 0 : share * 1e-3);
            else
                x = floor(x), y = dice(&random) % 5 ? x : x > 0 ? floor(x * share) : x + floor(1 + share * 9);
            for (int side = 0; side < 2; side++) {
                const double value = side ? y : x;
                const int64_t whole = types[t] == TS_F64 ? 0 : (int64_t)value;
                memcpy(bytes[side] + i * size, types[t] == TS_F64 ? (const void *)&value : (const void *)&whole, size);
                values[side][i] = value;
            }
        }
        for (size_t i = 0; i < COUNT; i++) {
            const double x = values[0][i], d = values[1][i] - x;
            squares += (long double)d * (long double)d;
            absolute += fabsl((long double)d);
            sum_a += (long double)x;
            squares_a += (long double)x * (long double)x;
            unequal += d != 0;
            least = fmin(least, x);
            most = fmax(most, x);
            if (fabs(d) > furthest) {
                furthest = fabs(d);
                worst = i;
            }
            if (x != 0)
                steepest = fmax(steepest, fabs(d) / fabs(x));
        }
        make_pair(&made, types[t], bytes[0], bytes[1], COUNT * size, 1, COUNT);
        delta = measure(&made, 1);
        assert_int_equal(delta.unequal, unequal);
        assert_int_equal(delta.worst, worst);
        assert_true(delta.max_abs == furthest && delta.worst_a == values[0][worst] &&
                    delta.worst_b == values[1][worst]);
        assert_true(delta.a.min == least && delta.a.max == most);
        assert_true(fabs(delta.max_rel - steepest) <= 1e-15 * steepest);
        assert_true(fabsl((long double)delta.mse - squares / COUNT) <= 1e-13L * squares / COUNT);
        assert_true(fabsl((long double)delta.mean_abs - absolute / COUNT) <= 1e-13L * absolute / COUNT);
        assert_true(fabsl((long double)delta.a.mean - sum_a / COUNT) <= 1e-13L * sqrtl(squares_a));
        assert_true(fabsl((long double)delta.rel_l2 - sqrtl(squares / squares_a)) <= 1e-13L);
        drop_pair(&made);
    }
}

/* Squares of such doubles are no doubles. */
static void doubles_of_any_size_have_a_relative_error(void **state)
{
    static const double sizes[] = {1e200, 1e-200, 1};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const double a[] = {3 * sizes[i], 4 * sizes[i]}, b[] = {3 * sizes[i], 6 * sizes[i]};
        struct made made;
        struct ts_delta delta;
        make_pair(&made, TS_F64, a, b, sizeof a, 1, 2);
        delta = measure(&made, 1);
        assert_true(fabs(delta.rel_l2 - 0.4) < 1e-12 && fabs(delta.norm_ratio - sqrt(45.0) / 5) < 1e-12);
        assert_true(fabs(delta.cosine - 33 / (5 * sqrt(45.0))) < 1e-12);
        assert_true(fabs(delta.a.norm / sizes[i] - 5) < 1e-12 && fabs(delta.a.std / sizes[i] - 0.5) < 1e-12);
        assert_true(fabs(delta.mean_abs / sizes[i] - 1) < 1e-12);
        assert_true(fabs(delta.rmse / sizes[i] - sqrt(2)) < 1e-12);
        drop_pair(&made);
    }
}

/* Each side for itself: neither leaves the other without a norm, nor their difference either of them. */
static void sides_of_very_different_size(void **state)
{
    const double a[] = {3e200, 4e200}, b[] = {4e-200, 3e-200}, ones[] = {1, 1e-200}, near[] = {1, 3e-200};
    const double largest[] = {DBL_MAX, 1}, opposite[] = {-DBL_MAX, 1};
    struct made made;
    struct ts_delta delta;
    (void)state;
    make_pair(&made, TS_F64, a, b, sizeof a, 1, 2);
    delta = measure(&made, 1);
    assert_true(fabs(delta.a.norm / 5e200 - 1) < 1e-12 && fabs(delta.b.norm / 5e-200 - 1) < 1e-12);
    assert_true(fabs(delta.rel_l2 - 1) < 1e-12 && fabs(delta.cosine - 0.96) < 1e-12);
    drop_pair(&made);
    make_pair(&made, TS_F64, ones, near, sizeof ones, 1, 2);
    delta = measure(&made, 1);
    assert_true(fabs(delta.rel_l2 / 2e-200 - 1) < 1e-12 && fabs(delta.rmse / (2e-200 / sqrt(2)) - 1) < 1e-12);
    assert_true(delta.cosine == 1);
    drop_pair(&made);
    make_pair(&made, TS_F64, largest, opposite, sizeof largest, 1, 2);
    delta = measure(&made, 1);
    assert_true(isinf(delta.max_abs) && fabs(delta.rel_l2 - 2) < 1e-12 && delta.cosine == -1);
    drop_pair(&made);
    make_pair(&made, TS_F64, a, b, sizeof a, 2, 1);
    delta = measure(&made, 1);
    assert_int_equal(look_closer(&made, &delta), TS_OK);
    assert_true(fabs(delta.profiles[0].error[0] / delta.profiles[0].error[1] - 9.0 / 16) < 1e-12);
    drop_pair(&made);
}

/* Two integers that are one double, and the parts of complex numbers. */
static void the_second_look_knows_every_type(void **state)
{
    const int64_t a[] = {(int64_t)1 << 62, 5}, b[] = {((int64_t)1 << 62) + 3, 5};
    const float complex_a[] = {1, 2, 3, 4}, complex_b[] = {1, 2, 3, 6};
    struct made made;
    struct ts_delta delta;
    (void)state;
    make_pair(&made, TS_I64, a, b, sizeof a, 1, 2);
    delta = measure(&made, 1);
    assert_int_equal(look_closer(&made, &delta), TS_OK);
    assert_true(delta.quantiles[0] == 1.5 && delta.profiles[1].error[0] == 9);
    drop_pair(&made);
    make_pair(&made, TS_C64, complex_a, complex_b, sizeof complex_a, 2, 1);
    delta = measure(&made, 1);
    assert_int_equal(look_closer(&made, &delta), TS_OK);
    assert_int_equal(delta.looked_at, 4);
    assert_true(delta.quantiles[0] == 0 && delta.quantiles[4] == 2);
    assert_true(delta.profiles[0].error[0] == 0 && delta.profiles[0].error[1] == 4);
    assert_true(delta.profiles[0].reference[0] == 5 && delta.profiles[0].reference[1] == 25);
    drop_pair(&made);
}

static void a_small_spread_far_from_zero_keeps_its_digits(void **state)
{
    double a[1000];
    struct made made;
    struct ts_delta delta;
    (void)state;
    for (int i = 0; i < 1000; i++)
        a[i] = 1e7 + (i % 2 ? 0x1p-10 : -0x1p-10);
    make_pair(&made, TS_F64, a, a, sizeof a, 1, 1000);
    delta = measure(&made, 1);
    assert_true(fabs(delta.a.std / 0x1p-10 - 1) < 1e-6 && delta.a.mean == 1e7);
    drop_pair(&made);
}

/* Neighbours are one unit apart, subnormal numbers too, and a number that should be 0 is many. */
static void units_in_the_last_place(void **state)
{
    static float a[20000], b[20000];
    const uint16_t half_a[] = {1, 0x3c00}, half_b[] = {3, 0x3c01}; /* 2^-24 and 3 * 2^-24; 1 and its neighbour */
    struct made made;
    struct ts_delta delta;
    struct ts_error error;
    (void)state;
    make_pair(&made, TS_F16, half_a, half_b, sizeof half_a, 1, 2);
    delta = measure(&made, 1);
    assert_true(delta.max_ulp == 2);
    drop_pair(&made);
    for (int i = 0; i < 20000; i++)
        a[i] = b[i] = 1;
    b[10] = 1.5f;      /* the largest difference, and the largest ratio: 2^22 units */
    a[15000] = 0;      /* far from it */
    b[15000] = 0x1p-9; /* 2^23 units */
    make_pair(&made, TS_F32, a, b, sizeof a, 1, 20000);
    delta = measure(&made, 1);
    assert_int_equal(ts_delta_ulps(&made.pair, &delta, &error), TS_OK);
    assert_true(delta.max_ulp == 0x1p23);
    delta = measure(&made, 1);
    assert_int_equal(look_closer(&made, &delta), TS_OK);
    assert_true(delta.max_ulp == 0x1p23);
    drop_pair(&made);
}

/* The step of the sample is a divisor of the columns: taken as it is, it would meet the first of each 16 only. */
static void quantiles_do_not_follow_the_columns(void **state)
{
    enum { ROWS = 8191, COLUMNS = 128 };
    float *a = calloc((size_t)ROWS * COLUMNS, sizeof *a), *b = calloc((size_t)ROWS * COLUMNS, sizeof *b);
    struct made made;
    struct ts_delta delta;
    (void)state;
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        a[i] = 1;
        b[i] = i % 16 == 0 ? 1 : 2; /* all but one column in sixteen */
    }
    make_pair(&made, TS_F32, a, b, (size_t)ROWS * COLUMNS * sizeof *a, ROWS, COLUMNS);
    delta = measure(&made, 1);
    assert_int_equal(look_closer(&made, &delta), TS_OK);
    assert_true(delta.quantiles[0] == 1 && delta.quantiles[1] == 1);
    assert_true(delta.looked_at > 25000 && delta.looked_at <= 32768);
    drop_pair(&made);
    free(a);
    free(b);
}

static void zero_tensors_are_defined(void **state)
{
    const float zero[4] = {0}, tiny[4] = {1e-30f, 0, 0, 0};
    struct made made;
    struct ts_delta delta;
    (void)state;
    make_pair(&made, TS_F32, zero, zero, sizeof zero, 2, 2);
    delta = measure(&made, 1);
    assert_true(delta.identical && delta.cosine == 1 && delta.rel_l2 == 0 && delta.norm_ratio == 1);
    drop_pair(&made);
    make_pair(&made, TS_F32, zero, tiny, sizeof zero, 2, 2);
    delta = measure(&made, 1);
    assert_true(!delta.identical && isnan(delta.cosine) && isinf(delta.rel_l2) && isinf(delta.max_rel));
    drop_pair(&made);
}

/* Squares of such numbers vanish in f32. */
static void small_numbers_are_measured_like_others(void **state)
{
    static const enum ts_type types[] = {TS_F32, TS_BF16};
    enum { COUNT = 80000 };
    static uint8_t a[4 * COUNT], b[4 * COUNT];
    (void)state;
    for (int t = 0; t < 2; t++) {
        const size_t size = types[t] == TS_F32 ? 4 : 2;
        struct made made;
        struct ts_delta delta;
        uint64_t random = 3, unequal = 0;
        double squares = 0, reference = 0, absolute = 0, largest = 0, steepest = 0;
        for (size_t i = 0; i < COUNT; i++) {
            float pair[2] = {((float)dice(&random) / 1e9f - 1.0f) * 1e-17f, 0};
            uint32_t bits[2];
            double x, y;
            pair[1] = pair[0] + ((float)dice(&random) / 1e9f - 1.0f) * 1e-20f;
            memcpy(bits, pair, sizeof bits);
            for (int side = 0; side < 2; side++) {
                bits[side] &= types[t] == TS_F32 ? 0xffffffff : 0xffff0000;
                memcpy((side ? b : a) + i * size, (uint8_t *)&bits[side] + 4 - size, size);
            }
            memcpy(pair, bits, sizeof bits);
            x = (double)pair[0];
            y = (double)pair[1];
            squares += (y - x) * (y - x);
            reference += x * x;
            absolute += fabs(y - x);
            largest = fmax(largest, fabs(y - x));
            steepest = x != 0 ? fmax(steepest, fabs(y - x) / fabs(x)) : steepest;
            unequal += x != y;
        }
        make_pair(&made, types[t], a, b, COUNT * size, 1, COUNT);
        delta = measure(&made, 1);
        assert_int_equal(delta.compared, COUNT);
        assert_int_equal(delta.unequal, unequal);
        assert_true(delta.max_abs == largest);
        assert_true(fabs(delta.max_rel - steepest) <= 1e-6 * steepest);
        assert_true(fabs(delta.mean_abs * COUNT - absolute) <= 1e-6 * absolute);
        assert_true(fabs(delta.rel_l2 - sqrt(squares / reference)) <= 1e-6 * delta.rel_l2);
        assert_true(delta.allclose[2] && delta.mismatched == 0);
        drop_pair(&made);
    }
}

static void the_second_look_is_interrupted(void **state)
{
    const float a[] = {1, 2}, b[] = {1, 3};
    struct made made;
    struct ts_delta delta;
    struct ts_error error;
    (void)state;
    make_pair(&made, TS_F32, a, b, sizeof a, 1, 2);
    delta = measure(&made, 1);
    atomic_store(&ts_cancelled, true);
    assert_int_equal(look_closer(&made, &delta), TS_ERR_CANCELLED);
    assert_int_equal(ts_delta_ulps(&made.pair, &delta, &error), TS_ERR_CANCELLED);
    atomic_store(&ts_cancelled, false);
    drop_pair(&made);
}

static void profiles_say_where(void **state)
{
    float a[64], b[64];
    struct made made;
    struct ts_delta delta;
    (void)state;
    for (int i = 0; i < 64; i++) {
        a[i] = 1;
        b[i] = i == 3 * 16 + 5 ? 3 : 1; /* row 3, column 5 */
    }
    make_pair(&made, TS_F32, a, b, sizeof a, 4, 16);
    delta = measure(&made, 1);
    assert_int_equal(delta.worst, 3 * 16 + 5);
    assert_true(delta.worst_a == 1 && delta.worst_b == 3);
    assert_int_equal(look_closer(&made, &delta), TS_OK);
    for (int i = 0; i < 4; i++)
        assert_true(delta.profiles[0].error[i] == (i == 3 ? 4 : 0) && delta.profiles[0].reference[i] == 16);
    for (int i = 0; i < 16; i++)
        assert_true(delta.profiles[1].error[i] == (i == 5 ? 4 : 0) && delta.profiles[1].reference[i] == 4);
    assert_true(delta.quantiles[0] == 0 && delta.quantiles[4] == 2);
    drop_pair(&made);
}

/* Whole vectors of ordinary numbers, what is left of a row, and rows in which something is to be left out. */
static void the_second_look_adds_up(void **state)
{
    enum { ROWS = 5, COLUMNS = 101 };
    float a[ROWS * COLUMNS], b[ROWS * COLUMNS];
    double rows[2][ROWS] = {{0}}, columns[2][COLUMNS] = {{0}}, distances[ROWS * COLUMNS];
    struct made made;
    struct ts_delta delta, ulps;
    struct ts_error error;
    size_t count = 0, below = 0;
    (void)state;
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        a[i] = sinf(12.9898f * (float)i) * (i % 7 == 0 ? 100 : 1);
        b[i] = a[i] + 0.01f * sinf(78.233f * (float)i);
    }
    b[COLUMNS + 17] = NAN;
    a[3 * COLUMNS + 100] = -INFINITY; /* a mask */
    b[3 * COLUMNS + 100] = -FLT_MAX;
    b[4 * COLUMNS + 100] = a[4 * COLUMNS + 100] * 1.5f; /* beyond the last whole vector */
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        const double d = (double)b[i] - (double)a[i];
        if (!isfinite(d))
            continue;
        distances[count++] = fabs(d);
        rows[0][i / COLUMNS] += d * d;
        rows[1][i / COLUMNS] += (double)a[i] * (double)a[i];
        columns[0][i % COLUMNS] += d * d;
        columns[1][i % COLUMNS] += (double)a[i] * (double)a[i];
    }
    make_pair(&made, TS_F32, a, b, sizeof a, ROWS, COLUMNS);
    delta = ulps = measure(&made, 1);
    assert_int_equal(look_closer(&made, &delta), TS_OK);
    assert_int_equal(ts_delta_ulps(&made.pair, &ulps, &error), TS_OK);
    assert_true(delta.max_ulp == ulps.max_ulp && delta.looked_at == count);
    for (size_t i = 0; i < ROWS; i++)
        assert_true(fabs(delta.profiles[0].error[i] / rows[0][i] - 1) < 1e-12 &&
                    fabs(delta.profiles[0].reference[i] / rows[1][i] - 1) < 1e-12);
    for (size_t i = 0; i < COLUMNS; i++)
        assert_true(fabs(delta.profiles[1].error[i] / columns[0][i] - 1) < 1e-12 &&
                    fabs(delta.profiles[1].reference[i] / columns[1][i] - 1) < 1e-12);
    for (size_t i = 0; i < count; i++)
        below += distances[i] < delta.quantiles[0];
    assert_int_equal(below, count / 2); /* the median */
    drop_pair(&made);
}

/* Of so many elements every third row is looked at: not this one, and one that is looked at is not taken for three. */
static void profiles_of_large_pairs_miss_no_row(void **state)
{
    enum { ROWS = 2053, COLUMNS = 1024 };
    const size_t count = (size_t)ROWS * COLUMNS;
    (void)state;
    for (size_t bad = 1233; bad <= 1234; bad++) {
        float *a = calloc(count, sizeof *a), *b = calloc(count, sizeof *b);
        struct made made;
        struct ts_delta delta;
        for (size_t i = 0; i < count; i++) {
            a[i] = 1;
            b[i] = i / COLUMNS == bad ? 3 : 1;
        }
        make_pair(&made, TS_F32, a, b, count * sizeof *a, ROWS, COLUMNS);
        delta = measure(&made, 1);
        assert_int_equal(look_closer(&made, &delta), TS_OK);
        for (size_t i = 0; i < ROWS; i++)
            assert_true(delta.profiles[0].error[i] == (i == bad ? 4 * COLUMNS : 0) &&
                        delta.profiles[0].reference[i] == COLUMNS);
        for (size_t i = 0; i < COLUMNS; i++)
            assert_true(delta.profiles[1].error[i] == 4 && delta.profiles[1].reference[i] == ROWS);
        drop_pair(&made);
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors_equal_torch),
        cmocka_unit_test(torch_files_equal_torch),
        cmocka_unit_test(pairs_equal_a_plain_loop),
        cmocka_unit_test(masks_are_masked_whatever_they_are_written_with),
        cmocka_unit_test(masks_are_those_of_the_type),
        cmocka_unit_test(masks_are_those_of_a_coarser_type),
        cmocka_unit_test(masks_do_not_drown_the_rest),
        cmocka_unit_test(masks_of_some_pieces),
        cmocka_unit_test(masks_do_not_come_back),
        cmocka_unit_test(large_numbers_are_no_masks),
        cmocka_unit_test(non_finite_numbers_are_counted_apart),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(integers_are_what_their_types_say),
        cmocka_unit_test(other_types_equal_a_plain_loop),
        cmocka_unit_test(doubles_of_any_size_have_a_relative_error),
        cmocka_unit_test(sides_of_very_different_size),
        cmocka_unit_test(the_second_look_knows_every_type),
        cmocka_unit_test(a_small_spread_far_from_zero_keeps_its_digits),
        cmocka_unit_test(units_in_the_last_place),
        cmocka_unit_test(quantiles_do_not_follow_the_columns),
        cmocka_unit_test(zero_tensors_are_defined),
        cmocka_unit_test(small_numbers_are_measured_like_others),
        cmocka_unit_test(the_second_look_is_interrupted),
        cmocka_unit_test(profiles_say_where),
        cmocka_unit_test(the_second_look_adds_up),
        cmocka_unit_test(profiles_of_large_pairs_miss_no_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
