/* For tests of reports: a comparison made by hand, so that what a report says is known before it says it. */
#ifndef TS_TEST_REPORT_SAMPLE_H
#define TS_TEST_REPORT_SAMPLE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/report.h"

#define SAMPLE_MOST 600

struct sample {
    struct ts_comparison comparison;
    struct ts_report_options options;
};

static inline struct ts_tensor *sample_tensor(struct ts_bundle *bundle, const char *name, unsigned rank,
                                              const uint64_t *shape, const float *values, size_t count)
{
    struct ts_source *source;
    struct ts_tensor *tensor;
    struct ts_error error;
    assert_int_equal(ts_source_copy(values, count * sizeof *values, name, &source, &error), TS_OK);
    assert_int_equal(ts_bundle_keep(bundle, source, &error), TS_OK);
    assert_int_equal(ts_bundle_add(bundle, name, rank, &tensor, &error), TS_OK);
    tensor->type = TS_F32;
    tensor->source = source;
    for (unsigned i = 0; i < rank; i++)
        tensor->shape[i] = shape[i];
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    ts_source_release(source);
    return tensor;
}

static inline void sample_open(struct sample *sample, const char *path_a, const char *path_b)
{
    struct ts_comparison *comparison = &sample->comparison;
    *sample = (struct sample){0};
    comparison->a = ts_bundle_new(path_a);
    comparison->b = ts_bundle_new(path_b);
    assert_non_null(comparison->a);
    assert_non_null(comparison->b);
    ts_arena_init(&comparison->pairing.arena, (size_t)64 << 20);
    ts_arena_init(&comparison->judgement.arena, (size_t)64 << 20);
    ts_arena_init(&comparison->arena, (size_t)64 << 20);
    comparison->pairing.pairs = ts_arena_array(&comparison->pairing.arena, SAMPLE_MOST, sizeof(struct ts_pair));
    comparison->judgement.verdicts =
        ts_arena_array(&comparison->judgement.arena, SAMPLE_MOST, sizeof(struct ts_verdict));
    comparison->deltas = calloc(SAMPLE_MOST, sizeof *comparison->deltas);
    comparison->pairing.order = "capture order";
    comparison->judgement.first = SIZE_MAX;
    assert_non_null(comparison->pairing.pairs);
    assert_non_null(comparison->judgement.verdicts);
    assert_non_null(comparison->deltas);
}

static inline void sample_close(struct sample *sample)
{
    struct ts_comparison *comparison = &sample->comparison;
    ts_arena_release(&comparison->pairing.arena);
    ts_arena_release(&comparison->judgement.arena);
    ts_arena_release(&comparison->arena);
    free(comparison->deltas);
    ts_bundle_free(comparison->a);
    ts_bundle_free(comparison->b);
}

/* A pair of f32 tensors whose candidate is off by `wrong` at its last element; the verdict's `why` may be set later. */
static inline size_t sample_pair_of(struct sample *sample, const char *name, const char *name_b, unsigned rank,
                                    const uint64_t *shape, enum ts_judged judged, double rel_l2, double roundings,
                                    float wrong)
{
    struct ts_comparison *comparison = &sample->comparison;
    size_t i = comparison->pairing.count++, count = 1;
    struct ts_pair *pair = &comparison->pairing.pairs[i];
    struct ts_delta *delta = &comparison->deltas[i];
    float *values;
    for (unsigned k = 0; k < rank; k++)
        count *= shape[k];
    values = calloc(count + 1, sizeof *values);
    assert_non_null(values);
    assert_true(i < SAMPLE_MOST);
    for (size_t k = 0; k < count; k++)
        values[k] = 0.5f;
    *pair = (struct ts_pair){.name = name, .name_b = name_b, .how = "name", .recipe = ""};
    assert_true(ts_view_of(sample_tensor(comparison->a, name, rank, shape, values, count), &comparison->pairing.arena,
                           &pair->a));
    if (count)
        values[count - 1] += wrong;
    assert_true(ts_view_of(sample_tensor(comparison->b, name_b, rank, shape, values, count), &comparison->pairing.arena,
                           &pair->b));
    free(values);
    *delta = (struct ts_delta){.count = count,
                               .compared = count,
                               .identical = rel_l2 == 0,
                               .unequal = rel_l2 != 0,
                               .max_abs = fabs((double)wrong),
                               .worst = rel_l2 != 0 ? count - 1 : UINT64_MAX,
                               .worst_a = 0.5,
                               .worst_b = 0.5 + (double)wrong,
                               .first_non_finite_mismatch = UINT64_MAX,
                               .rel_l2 = rel_l2,
                               .cosine = 1,
                               .norm_ratio = 1,
                               .rank = rank,
                               .precision_a = 23,
                               .precision_b = 7};
    comparison->judgement.verdicts[i] =
        (struct ts_verdict){.judged = judged, .roundings = roundings, .noise_ratio = (double)NAN, .error = rel_l2};
    comparison->judgement.count = comparison->pairing.count;
    comparison->paired[0] = comparison->paired[1] = comparison->pairing.count;
    comparison->judgement.counts[judged]++;
    if (judged == TS_JUDGED_DIFFERS && comparison->judgement.first == SIZE_MAX) {
        comparison->judgement.first = i;
        comparison->judgement.verdicts[i].made_here = true;
    }
    return i;
}

static inline size_t sample_pair(struct sample *sample, const char *name, enum ts_judged judged, double rel_l2,
                                 double roundings, float wrong)
{
    return sample_pair_of(sample, name, name, 3, (uint64_t[]){9, 4, 16}, judged, rel_l2, roundings, wrong);
}

static inline void sample_outcome(struct sample *sample, enum ts_outcome outcome, const char *text)
{
    sample->comparison.outcome = outcome;
    sample->comparison.outcome_text = text;
}

static inline void make_json(const struct sample *sample, struct ts_buffer *out)
{
    struct ts_json_writer writer;
    ts_buffer_init(out, (size_t)64 << 20);
    ts_json_writer_init(&writer, out, 0);
    ts_report_json(&sample->comparison, &sample->options, &writer);
    ts_json_finish(&writer);
    assert_false(out->failed);
}

static inline void assert_json(const struct ts_buffer *out)
{
    struct ts_json json;
    struct ts_error error;
    ts_json_init(&json, out->data, out->size);
    do {
        if (ts_json_next(&json, &error) != TS_OK)
            fail_msg("%s", error.message);
    } while (json.kind != TS_JSON_END);
}

static inline size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

static inline void make_html(const struct sample *sample, struct ts_buffer *out)
{
    struct ts_error error;
    ts_buffer_init(out, (size_t)64 << 20);
    assert_int_equal(ts_report_html(&sample->comparison, &sample->options, out, &error), TS_OK);
    assert_false(out->failed);
}

#endif
