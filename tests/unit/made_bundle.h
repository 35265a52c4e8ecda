/* Bundles made in memory, for tests of pairing. */
#ifndef TS_TEST_MADE_BUNDLE_H
#define TS_TEST_MADE_BUNDLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"
#include "pair/pair.h"

/* A tensor of floats; values are copied. */
__attribute__((unused)) static void made_add(struct ts_bundle *bundle, const char *name, const float *values,
                                             unsigned rank, const uint64_t *shape)
{
    struct ts_tensor *tensor;
    struct ts_source *source;
    struct ts_error error;
    uint64_t count = 1;
    for (unsigned i = 0; i < rank; i++)
        count *= shape[i];
    assert_int_equal(ts_source_copy(values, (size_t)count * sizeof *values, name, &source, &error), TS_OK);
    assert_int_equal(ts_bundle_add(bundle, name, rank, &tensor, &error), TS_OK);
    assert_int_equal(ts_bundle_keep(bundle, source, &error), TS_OK);
    for (unsigned i = 0; i < rank; i++)
        tensor->shape[i] = shape[i];
    tensor->type = TS_F32;
    tensor->source = source;
    if (ts_tensor_finish(tensor, &error) != TS_OK)
        fail_msg("%s: %s", name, error.message);
    ts_source_release(source);
}

/* The same bytes as complex numbers, half as many in the last axis. */
__attribute__((unused)) static void made_complex(struct ts_bundle *bundle, const char *name)
{
    struct ts_tensor *tensor = ts_bundle_tensor(bundle, name);
    struct ts_error error;
    tensor->type = TS_C64;
    tensor->shape[tensor->rank - 1] /= 2;
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
}

#define SHAPE(...)                                                                                                     \
    sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[])                                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* Random numbers around 0 with a spread of about 1; free() them. */
__attribute__((unused)) static float *made_values(size_t count)
{
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(dice_number() + dice_number() + dice_number());
    return values;
}

/* The name with every "%d" replaced by the number; good until the eighth call after it. */
__attribute__((unused)) static const char *made_name(const char *format, int number)
{
    static char names[8][256];
    static unsigned next;
    char *name = names[next++ % 8], *out = name;
    for (const char *at = format; *at; at++) {
        if (at[0] == '%' && at[1] == 'd') {
            out += snprintf(out, 16, "%d", number);
            at++;
        } else {
            *out++ = *at;
        }
    }
    *out = '\0';
    return name;
}

struct paired {
    struct ts_bundle *a, *b;
    struct ts_pairing pairing;
    struct ts_error error;
    enum ts_status status;
};

__attribute__((unused)) static void paired_start(struct paired *paired)
{
    memset(paired, 0, sizeof *paired);
    paired->a = ts_bundle_new("a");
    paired->b = ts_bundle_new("b");
    assert_non_null(paired->a);
    assert_non_null(paired->b);
}

__attribute__((unused)) static void paired_run(struct paired *paired, const struct ts_pair_options *options)
{
    struct ts_pool *pool = ts_pool_new(2);
    assert_non_null(pool);
    ts_error_clear(&paired->error);
    paired->status = ts_pair_run(paired->a, paired->b, options, pool, NULL, &paired->pairing, &paired->error);
    ts_pool_free(pool);
}

__attribute__((unused)) static void paired_end(struct paired *paired)
{
    ts_pairing_release(&paired->pairing);
    ts_bundle_free(paired->a);
    ts_bundle_free(paired->b);
}

/* The pair with these names, which must be there. */
__attribute__((unused)) static const struct ts_pair *paired_find(const struct paired *paired, const char *a,
                                                                 const char *b)
{
    for (size_t i = 0; i < paired->pairing.count; i++) {
        const struct ts_pair *pair = &paired->pairing.pairs[i];
        if (strcmp(pair->name, a) == 0 && (!b || strcmp(pair->name_b, b) == 0))
            return pair;
    }
    for (size_t i = 0; i < paired->pairing.count; i++)
        print_message("# %s = %s\n", paired->pairing.pairs[i].name, paired->pairing.pairs[i].name_b);
    fail_msg("no pair %s = %s", a, b ? b : "...");
    return NULL;
}

/* The largest difference between the two sides, in units of the largest value of A. */
__attribute__((unused)) static double pair_error(const struct ts_pair *pair)
{
    double a[512], b[512], worst = 0, largest = 0;
    struct ts_error error;
    if (pair->problem)
        fail_msg("%s: %s", pair->name, pair->problem);
    assert_int_equal(pair->a.rank, pair->b.rank);
    for (unsigned i = 0; i < pair->a.rank; i++)
        assert_int_equal(pair->a.shape[i], pair->b.shape[i]);
    for (uint64_t at = 0; at < pair->a.count; at += 512) {
        size_t count = pair->a.count - at < 512 ? (size_t)(pair->a.count - at) : 512;
        assert_int_equal(ts_view_read_f64(&pair->a, at, count, a, &error), TS_OK);
        assert_int_equal(ts_view_read_f64(&pair->b, at, count, b, &error), TS_OK);
        for (size_t i = 0; i < count; i++) {
            double difference = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i], size = a[i] < 0 ? -a[i] : a[i];
            worst = difference > worst ? difference : worst;
            largest = size > largest ? size : largest;
        }
    }
    return largest > 0 ? worst / largest : worst;
}

/* Everything has its partner, and the values are the same to within the tolerance. */
__attribute__((unused)) static void assert_all_equal(const struct paired *paired, size_t pairs, double tolerance)
{
    if (paired->status != TS_OK)
        fail_msg("%s", paired->error.message);
    for (size_t i = 0; i < paired->pairing.only_a_count; i++)
        print_message("# only A: %s\n", paired->pairing.only_a[i]->name);
    for (size_t i = 0; i < paired->pairing.only_b_count; i++)
        print_message("# only B: %s\n", paired->pairing.only_b[i]->name);
    assert_int_equal(paired->pairing.only_a_count, 0);
    assert_int_equal(paired->pairing.only_b_count, 0);
    assert_int_equal(paired->pairing.count, pairs);
    for (size_t i = 0; i < paired->pairing.count; i++) {
        const struct ts_pair *pair = &paired->pairing.pairs[i];
        double error = pair_error(pair);
        if (!(error <= tolerance) || pair->guess)
            fail_msg("%s = %s (%s): off by %g%s", pair->name, pair->name_b, pair->recipe, error,
                     pair->guess ? ", a guess" : "");
    }
}

__attribute__((unused)) static bool has_note(const struct paired *paired, const char *text)
{
    for (size_t i = 0; i < paired->pairing.note_count; i++)
        if (strstr(paired->pairing.notes[i], text))
            return true;
    return false;
}

#endif
