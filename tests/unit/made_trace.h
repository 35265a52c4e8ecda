/* Pairs of traces and checkpoints made in memory, for tests of diagnosis. */
#ifndef TS_TEST_MADE_TRACE_H
#define TS_TEST_MADE_TRACE_H

#include <math.h>

#include "base/number.h"
#include "compare/delta.h"
#include "diagnose/diagnose.h"
#include "made_bundle.h"

#define TRACE_MOST 64

struct trace {
    struct ts_bundle *a, *b;
    struct ts_arena arena;
    struct ts_pair pairs[TRACE_MOST];
    struct ts_delta deltas[TRACE_MOST];
    size_t count;
    struct ts_diagnosis diagnosis;
    bool diagnosed;
    struct ts_evidence *evidence; /* NULL unless a test sets it; freed at the end */
};

__attribute__((unused)) static void trace_start(struct trace *trace)
{
    memset(trace, 0, sizeof *trace);
    dice_state = 7;
    trace->a = ts_bundle_new("reference");
    trace->b = ts_bundle_new("candidate");
    ts_arena_init(&trace->arena, 1 << 24);
}

__attribute__((unused)) static void trace_end(struct trace *trace)
{
    if (trace->diagnosed)
        ts_diagnosis_release(&trace->diagnosis);
    ts_evidence_free(trace->evidence);
    ts_arena_release(&trace->arena);
    ts_bundle_free(trace->a);
    ts_bundle_free(trace->b);
}

/* Returns the index of the pair. */
__attribute__((unused)) static size_t trace_add(struct trace *trace, const char *name, const float *a, const float *b,
                                                unsigned rank, const uint64_t *shape)
{
    struct ts_pair *pair = &trace->pairs[trace->count];
    struct ts_tensor *tensor;
    made_add(trace->a, name, a, rank, shape);
    made_add(trace->b, name, b, rank, shape);
    tensor = ts_bundle_tensor(trace->a, name);
    *pair = (struct ts_pair){.name = tensor->name, .name_b = tensor->name, .how = "name", .recipe = ""};
    assert_true(ts_view_of(tensor, &trace->arena, &pair->a));
    assert_true(ts_view_of(ts_bundle_tensor(trace->b, name), &trace->arena, &pair->b));
    pair->masked = ts_pair_is_masked(pair);
    return trace->count++;
}

__attribute__((unused)) static bool is_of_the_vocabulary(const char *id)
{
    for (size_t i = 0; ts_cause_id(i); i++)
        if (strcmp(ts_cause_id(i), id) == 0)
            return true;
    return false;
}

__attribute__((unused)) static void trace_diagnose(struct trace *trace, size_t index)
{
    struct ts_delta_options options = {0};
    struct ts_pool *pool = ts_pool_new(1);
    struct ts_error error;
    ts_error_clear(&error);
    assert_non_null(pool);
    if (trace->diagnosed)
        ts_diagnosis_release(&trace->diagnosis);
    trace->diagnosed = false;
    if (ts_delta_run(pool, trace->pairs, trace->count, &options, trace->deltas, NULL, &error) != TS_OK ||
        ts_diagnose_with(trace->pairs, trace->deltas, trace->count, index, trace->evidence, &trace->diagnosis,
                         &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_pool_free(pool);
    trace->diagnosed = true;
    for (size_t i = 0; i < trace->diagnosis.count; i++)
        if (!is_of_the_vocabulary(trace->diagnosis.causes[i].id))
            fail_msg("%s is not of the vocabulary", trace->diagnosis.causes[i].id);
}

__attribute__((unused)) static void trace_print(const struct trace *trace)
{
    for (size_t i = 0; i < trace->diagnosis.count; i++)
        print_message("# %s %.3f: %s\n", trace->diagnosis.causes[i].id, trace->diagnosis.causes[i].confidence,
                      trace->diagnosis.causes[i].summary);
    if (!trace->diagnosis.count)
        print_message("# %s\n", trace->diagnosis.strongest ? trace->diagnosis.strongest : "nothing");
}

__attribute__((unused)) static const struct ts_cause *trace_cause(const struct trace *trace, const char *id)
{
    for (size_t i = 0; i < trace->diagnosis.count; i++)
        if (strcmp(trace->diagnosis.causes[i].id, id) == 0)
            return &trace->diagnosis.causes[i];
    return NULL;
}

/* The first cause, and words that its summary must hold (NULL: any). */
__attribute__((unused)) static void assert_first(const struct trace *trace, const char *id, const char *words)
{
    const struct ts_cause *cause = &trace->diagnosis.causes[0];
    if (!trace->diagnosis.count || strcmp(cause->id, id) != 0 || (words && !strstr(cause->summary, words))) {
        trace_print(trace);
        fail_msg("the first cause is %s, not %s%s%s", trace->diagnosis.count ? cause->id : "none", id,
                 words ? " with " : "", words ? words : "");
    }
    assert_true(cause->confidence > 0.3 && cause->confidence <= 1);
    assert_true(cause->check && cause->check[0]);
}

__attribute__((unused)) static void assert_silent(const struct trace *trace)
{
    if (trace->diagnosis.count) {
        trace_print(trace);
        fail_msg("there is a cause where there is none");
    }
    assert_true(trace->diagnosis.strongest && trace->diagnosis.strongest[0]);
}

/* The same numbers with a relative error of about `size`. */
__attribute__((unused)) static void shake(const float *from, float *to, size_t count, double size)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (float)((double)from[i] * (1 + size * dice_number()));
}

__attribute__((unused)) static float to_bf16(float value)
{
    uint32_t bits = ts_float_bits(value);
    return ts_float_from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/* Integers [rows, width] of both sides. */
__attribute__((unused)) static void trace_add_integers(struct trace *trace, const char *name, const int64_t *a,
                                                       const int64_t *b, size_t rows, size_t width)
{
    struct ts_pair *pair = &trace->pairs[trace->count];
    struct ts_bundle *bundles[2] = {trace->a, trace->b};
    const int64_t *values[2] = {a, b};
    struct ts_tensor *tensors[2];
    struct ts_error error;
    for (int side = 0; side < 2; side++) {
        struct ts_source *source;
        assert_int_equal(ts_source_copy(values[side], rows * width * sizeof **values, name, &source, &error), TS_OK);
        assert_int_equal(ts_bundle_add(bundles[side], name, 2, &tensors[side], &error), TS_OK);
        assert_int_equal(ts_bundle_keep(bundles[side], source, &error), TS_OK);
        tensors[side]->shape[0] = rows;
        tensors[side]->shape[1] = width;
        tensors[side]->type = TS_I64;
        tensors[side]->source = source;
        assert_int_equal(ts_tensor_finish(tensors[side], &error), TS_OK);
        ts_source_release(source);
    }
    *pair = (struct ts_pair){.name = tensors[0]->name, .name_b = tensors[0]->name, .how = "name", .recipe = ""};
    assert_true(ts_view_of(tensors[0], &trace->arena, &pair->a));
    assert_true(ts_view_of(tensors[1], &trace->arena, &pair->b));
    trace->count++;
}

#endif
