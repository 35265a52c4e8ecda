/* For the tests of src/check: safetensors files made on the spot, and the issues that a check finds in them. */
#ifndef TS_TEST_CHECK_RUN_H
#define TS_TEST_CHECK_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "check/check.h"
#include "compare/stats.h"
#include "read/open.h"
#include "scratch.h"

struct checked {
    struct ts_bundle *bundle;
    struct ts_check check;
};

/* Opens, measures and checks; the path is as given to a user's command. */
__attribute__((unused)) static struct checked check_path(const char *path, bool raw)
{
    struct checked checked = {0};
    struct ts_open_options options = {.raw = raw};
    struct ts_pool *pool = ts_pool_new(2);
    struct ts_stats *stats;
    struct ts_error error;
    ts_error_clear(&error);
    if (ts_open(path, &options, &checked.bundle, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    stats = calloc(checked.bundle->count + 1, sizeof *stats);
    assert_non_null(pool);
    assert_non_null(stats);
    assert_int_equal(ts_stats_run(pool, checked.bundle->tensors, checked.bundle->count, stats, NULL, &error), TS_OK);
    assert_int_equal(ts_check_run(pool, checked.bundle, stats, NULL, &checked.check, &error), TS_OK);
    free(stats);
    ts_pool_free(pool);
    return checked;
}

__attribute__((unused)) static struct checked check_scratch(const char *name)
{
    return check_path(scratch_path(name), false);
}

__attribute__((unused)) static void checked_release(struct checked *checked)
{
    ts_check_release(&checked->check);
    ts_bundle_free(checked->bundle);
}

/* The issue of that id and tensor (NULL: any), or NULL. */
__attribute__((unused)) static const struct ts_issue *issue_of(const struct checked *checked, const char *id,
                                                               const char *tensor)
{
    for (size_t i = 0; i < checked->check.count; i++) {
        const struct ts_issue *issue = &checked->check.issues[i];
        if (strcmp(issue->id, id) == 0 && (!tensor || (issue->tensor && strcmp(issue->tensor, tensor) == 0)))
            return issue;
    }
    return NULL;
}

__attribute__((unused)) static void print_issues(const struct checked *checked)
{
    for (size_t i = 0; i < checked->check.count; i++) {
        const struct ts_issue *issue = &checked->check.issues[i];
        print_message("# %d %s %s: %s\n", (int)issue->severity, issue->id, issue->tensor ? issue->tensor : "-",
                      issue->text);
    }
}

__attribute__((unused)) static void expect_issue_at(const struct checked *checked, const char *id,
                                                    enum ts_severity severity, const char *tensor, const char *part,
                                                    int line)
{
    const struct ts_issue *issue = issue_of(checked, id, tensor);
    if (!issue || issue->severity != severity || !strstr(issue->text, part)) {
        print_issues(checked);
        fail_msg("line %d: no %s of %s with \"%s\"", line, id, tensor ? tensor : "anything", part);
    }
}

#define expect_issue(checked, id, severity, tensor, part)                                                              \
    expect_issue_at((checked), (id), (severity), (tensor), (part), __LINE__)

/* So many faults and warnings, and no more. */
#define expect_count(checked, fault_count, warning_count)                                                              \
    do {                                                                                                               \
        if ((checked)->check.faults != (fault_count) || (checked)->check.warnings != (warning_count))                  \
            print_issues(checked);                                                                                     \
        assert_int_equal((checked)->check.faults, (fault_count));                                                      \
        assert_int_equal((checked)->check.warnings, (warning_count));                                                  \
    } while (0)

/* A safetensors file in the making. */
struct maker {
    struct ts_buffer header, data;
};

__attribute__((unused)) static void maker_start(struct maker *maker)
{
    ts_buffer_init(&maker->header, 1 << 26);
    ts_buffer_init(&maker->data, 1 << 26);
    ts_buffer_byte(&maker->header, '{');
}

/* A tensor over [begin, end) of the data, which may be there already. */
__attribute__((unused)) static void maker_entry(struct maker *maker, const char *name, const char *dtype,
                                                const char *shape, size_t begin, size_t end)
{
    ts_buffer_printf(&maker->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                     maker->header.size > 1 ? "," : "", name, dtype, shape, begin, end);
}

__attribute__((unused)) static void maker_add(struct maker *maker, const char *name, const char *dtype,
                                              const char *shape, const void *bytes, size_t size)
{
    size_t begin = maker->data.size;
    assert_true(ts_buffer_append(&maker->data, bytes, size));
    maker_entry(maker, name, dtype, shape, begin, begin + size);
}

__attribute__((unused)) static void maker_finish(struct maker *maker, const char *path)
{
    struct ts_buffer file;
    uint64_t length;
    ts_buffer_init(&file, (size_t)1 << 27);
    ts_buffer_byte(&maker->header, '}');
    length = maker->header.size;
    for (unsigned i = 0; i < 8; i++)
        ts_buffer_byte(&file, (char)(length >> 8 * i & 255));
    ts_buffer_append(&file, maker->header.data, maker->header.size);
    if (maker->data.size)
        ts_buffer_append(&file, maker->data.data, maker->data.size);
    assert_false(file.failed);
    scratch_write(path, file.data, file.size);
    ts_buffer_release(&file);
    ts_buffer_release(&maker->header);
    ts_buffer_release(&maker->data);
}

/* Numbers without zeros and without two equal neighbours; another seed gives others. */
__attribute__((unused)) static void fill_random(float *values, size_t count, uint32_t seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = (float)((double)(state >> 40) / (1 << 24) - 0.5) + 1e-9f;
    }
}

#endif
