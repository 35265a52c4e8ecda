/* Replaced values in a run: what is injected goes on from its point, and in local mode nothing but the operation that
 * was wrong differs from the candidate. And what is observed on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "model/trace.h"
#include "model_files.h"

#define MOST_POINTS 400

/* All points of a run, numbers of experts as floats. */
struct captured {
    size_t count;
    struct {
        char name[160];
        size_t size;
        bool integer;
        float *values;
    } points[MOST_POINTS];
};

static enum ts_status keep(void *context, const struct ts_point *point, struct ts_error *error)
{
    struct captured *run = context;
    size_t size = 1;
    (void)error;
    if (!point->values && !point->integers)
        return TS_OK;
    for (unsigned i = 0; i < point->rank; i++)
        size *= (size_t)point->shape[i];
    assert_true(run->count < MOST_POINTS);
    snprintf(run->points[run->count].name, sizeof run->points[0].name, "%s", point->name);
    run->points[run->count].size = size;
    run->points[run->count].integer = point->integer;
    run->points[run->count].values = malloc((size + 1) * sizeof(float));
    assert_non_null(run->points[run->count].values);
    for (size_t i = 0; i < size; i++)
        run->points[run->count].values[i] = point->integer ? (float)point->integers[i] : point->values[i];
    run->count++;
    return TS_OK;
}

static void forget(struct captured *run)
{
    for (size_t i = 0; i < run->count; i++)
        free(run->points[i].values);
    run->count = 0;
}

static size_t index_of(const struct captured *run, const char *name)
{
    for (size_t i = 0; i < run->count; i++)
        if (strcmp(run->points[i].name, name) == 0)
            return i;
    fail_msg("no point %s", name);
    return 0;
}

static bool same(const struct captured *a, const struct captured *b, size_t i)
{
    return memcmp(a->points[i].values, b->points[i].values, a->points[i].size * sizeof(float)) == 0;
}

/* Other values for one point, or for all that the candidate has. */
struct feeding {
    struct captured *keep;
    const struct captured *candidate;
    const char *only;
    const float *values;
};

static enum ts_status feed(void *context, const struct ts_point *point, float *values, bool *found,
                           struct ts_error *error)
{
    const struct feeding *feeding = context;
    (void)error;
    *found = !feeding->only || strcmp(feeding->only, point->name) == 0;
    if (*found) {
        size_t i = index_of(feeding->candidate, point->name);
        memcpy(values, feeding->only ? feeding->values : feeding->candidate->points[i].values,
               feeding->candidate->points[i].size * sizeof(float));
    }
    return TS_OK;
}

static enum ts_status keep_fed(void *context, const struct ts_point *point, struct ts_error *error)
{
    return keep(((struct feeding *)context)->keep, point, error);
}

struct subject {
    struct ts_model model;
    struct ts_pool *pool;
    int64_t tokens[6];
};

static enum ts_status run(struct subject *subject, const struct ts_watcher *watcher, struct ts_error *error)
{
    struct ts_model_options options = {.cache = true};
    enum ts_status status = ts_model_plan(&subject->model, &options, subject->tokens, 6, subject->pool,
                                          &(struct ts_watcher){0}, NULL, error);
    return status == TS_OK ? ts_model_run(&subject->model, &options, subject->tokens, 6, subject->pool, watcher, error)
                           : status;
}

/* Something else of the same size: another expert for each, or every finite number a third larger and moved. */
static float *spoil(const struct captured *reference, size_t at, size_t experts)
{
    size_t size = reference->points[at].size;
    float *values = malloc((size + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < size; i++) {
        float old = reference->points[at].values[i];
        values[i] = reference->points[at].integer ? (float)(((size_t)old + 1) % experts)
                    : isfinite(old)               ? old * 1.3f + 0.01f * (float)(i % 7)
                                                  : old;
    }
    return values;
}

static void check_point_of(struct subject *subject, const struct captured *reference, size_t at, size_t experts)
{
    struct captured candidate = {0}, local = {0};
    const char *name = reference->points[at].name;
    float *values = spoil(reference, at, experts);
    struct feeding injecting = {&candidate, reference, name, values}, following = {&local, &candidate, NULL, NULL};
    struct ts_watcher inject = {.context = &injecting, .take = keep_fed, .replace = feed},
                      follow = {.context = &following, .take = keep_fed, .replace = feed, .local = true};
    struct ts_error error;
    size_t downstream = 0;
    assert_int_equal(run(subject, &inject, &error), TS_OK);
    assert_int_equal(run(subject, &follow, &error), TS_OK);
    assert_int_equal(candidate.count, reference->count);
    assert_int_equal(local.count, reference->count);
    for (size_t i = 0; i < reference->count; i++) {
        downstream += i > at && !same(&candidate, reference, i);
        if (i < at && !same(&candidate, reference, i))
            fail_msg("%s: %s changed before it", name, reference->points[i].name);
        if (i != at && !same(&local, &candidate, i))
            fail_msg("%s: %s differs from the candidate, too", name, reference->points[i].name);
    }
    if (!same(&local, reference, at) || same(&candidate, reference, at))
        fail_msg("%s is not what its own operation gives", name);
    if (!downstream && strcmp(name, "logits") != 0)
        fail_msg("%s: nothing behind it has changed", name);
    free(values);
    forget(&candidate);
    forget(&local);
}

static void every_point_can_be_replaced(void **state)
{
    static const char *const titles[] = {"deepseek_v3", "gemma2",  "gemma3", "gemma3n", "gpt2",
                                         "gpt_oss",     "llama",   "olmoe",  "phi3",    "qwen2_moe",
                                         "qwen3_moe",   "mixtral", "qwen3"};
    struct captured *reference = calloc(1, sizeof *reference);
    struct ts_watcher watcher = {.context = reference, .take = keep};
    struct subject subject = {.pool = ts_pool_new(1), .tokens = {5, 17, 80, 3, 44, 61}};
    struct golden golden;
    struct folder folder;
    struct ts_error error;
    size_t checked = 0;
    (void)state;
    assert_non_null(reference);
    setup(&golden);
    for (size_t t = 0; t < sizeof titles / sizeof *titles; t++) {
        size_t experts;
        make_model(&golden, case_titled(&golden, titles[t]), &folder, NULL);
        assert_int_equal(ts_model_open(folder.path, &subject.model, &error), TS_OK);
        experts = (size_t)ts_model_config_number(
            &subject.model.config,
            ts_model_config_text(&subject.model.config, "n_routed_experts") ? "n_routed_experts"
            : ts_model_config_text(&subject.model.config, "num_experts")    ? "num_experts"
                                                                            : "num_local_experts",
            1);
        assert_int_equal(run(&subject, &watcher, &error), TS_OK);
        for (size_t i = 0; i < reference->count; i++) {
            const char *name = reference->points[i].name;
            /* one layer, and what stands outside of layers */
            if (strstr(name, "layers.1") || strstr(name, "h.1") || !(strstr(name, "layers.") || strstr(name, ".h."))) {
                check_point_of(&subject, reference, i, experts);
                checked++;
            }
        }
        forget(reference);
        ts_model_release(&subject.model);
        remove_model(&folder);
    }
    assert_true(checked > 350);
    free(reference);
    ts_pool_free(subject.pool);
    teardown(&golden);
}

/* An expert that is not there cannot be visited: an error when it is injected; in local mode ours stand. */
static void experts_that_are_not_there_are_refused(void **state)
{
    static const char name[] = "model.layers.1.mlp.gate.2";
    struct captured reference = {0}, candidate = {0};
    struct ts_watcher watcher = {.context = &reference, .take = keep};
    struct subject subject = {.pool = ts_pool_new(1), .tokens = {5, 17, 80, 3, 44, 61}};
    struct golden golden;
    struct folder folder;
    struct ts_error error;
    float *values;
    (void)state;
    setup(&golden);
    make_model(&golden, case_titled(&golden, "mixtral"), &folder, NULL);
    assert_int_equal(ts_model_open(folder.path, &subject.model, &error), TS_OK);
    assert_int_equal(run(&subject, &watcher, &error), TS_OK);
    values = spoil(&reference, index_of(&reference, name), 4);
    for (unsigned i = 0; i < 3; i++) {
        struct feeding feeding = {&candidate, &reference, name, values};
        watcher = (struct ts_watcher){.context = &feeding, .take = keep_fed, .replace = feed, .local = i == 2};
        values[3] = i == 0 ? 4 : i == 1 ? (float)NAN : -1;
        assert_int_equal(run(&subject, &watcher, &error), i < 2 ? TS_ERR_USAGE : TS_OK);
        if (i < 2)
            assert_non_null(strstr(error.message, "a whole number below 4"));
        else
            for (size_t k = 0; k < reference.count; k++)
                assert_true(same(&candidate, &reference, k));
        forget(&candidate);
    }
    free(values);
    forget(&reference);
    ts_model_release(&subject.model);
    ts_pool_free(subject.pool);
    remove_model(&folder);
    teardown(&golden);
}

static void observe(struct ts_trace_summary *summary, const char *name, const float *values, uint64_t heads,
                    uint64_t tokens, uint64_t keys)
{
    struct ts_point point = {.name = name, .rank = 4, .shape = {1, heads, tokens, keys}, .values = values};
    assert_true(ts_trace_observe(summary, &point, 0));
}

/* Keys count when they are visible, not when their probability is above zero; what a sink takes does not. */
static void entropy_is_measured_by_the_visible_keys(void **state)
{
    const float none = -(float)INFINITY;
    const float scores[] = {0, none, none, 0, 0, none, 0, 0, 0, /* the second head's mask is the same */
                            0, none, none, 0, 0, none, 0, 0, 0};
    const float probabilities[] = {1, 0, 0, 1, 0, 0, 0.5f, 0.5f, 0, 1, 0, 0, 0.25, 0.25, 0, 0.125f, 0.125f, 0.125f};
    struct ts_trace_summary summary = {0};
    (void)state;
    ts_arena_init(&summary.arena, 65536);
    observe(&summary, "model.layers.0.self_attn.attn_scores_masked", scores, 2, 3, 3);
    observe(&summary, "model.layers.0.self_attn.attn_probs", probabilities, 2, 3, 3);
    assert_int_equal(summary.observation_count, 1);
    assert_int_equal(summary.observations[0].count, 2);
    /* no choice at the first token; none made at the second; one of two of three at the third */
    assert_true(fabsf(summary.observations[0].values[0] - (0 + logf(2) / logf(3)) / 2) < 1e-6f);
    assert_true(fabsf(summary.observations[0].values[1] - 1) < 1e-6f);
    ts_trace_summary_release(&summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point_can_be_replaced),
        cmocka_unit_test(experts_that_are_not_there_are_refused),
        cmocka_unit_test(entropy_is_measured_by_the_visible_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
