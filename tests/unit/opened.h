/* For tests of readers that take text: runs one reader over bytes or over a golden file and keeps what came out. */
#ifndef TS_TEST_OPENED_H
#define TS_TEST_OPENED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "read/readers.h"

struct opened {
    struct ts_input input;
    struct ts_bundle *bundle;
    struct ts_error error;
    enum ts_status status;
    unsigned bid;
};

static inline void opened_start(struct opened *opened, const struct ts_reader *reader, struct ts_source *source,
                                const char *member, struct ts_folder *folder)
{
    opened->input = (struct ts_input){.source = source, .member = member, .folder = folder};
    opened->input.spool = ts_spool_new((uint64_t)1 << 30);
    opened->bundle = ts_bundle_new(member);
    assert_non_null(opened->input.spool);
    assert_non_null(opened->bundle);
    ts_error_clear(&opened->error);
    opened->bid = reader->bid(&opened->input);
    opened->status = reader->read(&opened->input, opened->bundle, &opened->error);
}

static inline void open_bytes(struct opened *opened, const struct ts_reader *reader, const void *data, size_t size,
                              const char *member)
{
    struct ts_source *source;
    assert_int_equal(ts_source_copy(data, size, member, &source, &opened->error), TS_OK);
    opened_start(opened, reader, source, member, NULL);
}

static inline void open_text(struct opened *opened, const struct ts_reader *reader, const char *text)
{
    open_bytes(opened, reader, text, strlen(text), "sample.txt");
}

static inline void close_opened(struct opened *opened)
{
    ts_bundle_free(opened->bundle);
    ts_spool_free(opened->input.spool);
    ts_source_release(opened->input.source);
}

static inline unsigned bid_on(const struct ts_reader *reader, const char *text, const char *member)
{
    struct ts_input input = {.member = member};
    struct ts_error error;
    unsigned bid;
    assert_int_equal(ts_source_copy(text, strlen(text), member, &input.source, &error), TS_OK);
    bid = reader->bid(&input);
    ts_source_release(input.source);
    return bid;
}

/* The whole of a file, with a NUL behind it that size does not count. */
static inline char *load_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *data;
    long length;
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    length = ftell(file);
    assert_true(length >= 0);
    rewind(file);
    data = malloc((size_t)length + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)length, file), (size_t)length);
    data[length] = '\0';
    fclose(file);
    *size = (size_t)length;
    return data;
}

static inline void open_golden(struct opened *opened, const struct ts_reader *reader, const char *name)
{
    char path[256];
    size_t size;
    char *data;
    snprintf(path, sizeof path, "tests/golden/text/%s", name);
    data = load_file(path, &size);
    open_bytes(opened, reader, data, size, name);
    free(data);
    if (opened->status != TS_OK)
        print_error("%s: %s\n", name, opened->error.message);
    assert_int_equal(opened->status, TS_OK);
}

/* Bit by bit, but any NaN equals any NaN. */
static inline void assert_same_number(double found, double expected)
{
    if (expected != expected)
        assert_true(found != found);
    else
        assert_int_equal(ts_double_bits(found), ts_double_bits(expected));
}

static inline void assert_values(const struct ts_tensor *tensor, const double *expected, size_t count)
{
    double *found = calloc(count + 1, sizeof *found);
    struct ts_error error;
    assert_non_null(found);
    assert_int_equal(tensor->count, count);
    assert_int_equal(ts_tensor_read_f64(tensor, 0, count, found, &error), TS_OK);
    for (size_t i = 0; i < count; i++)
        assert_same_number(found[i], expected[i]);
    free(found);
}

static inline void assert_shape(const struct ts_tensor *tensor, const char *expected)
{
    struct ts_buffer text;
    ts_buffer_init(&text, 4096);
    ts_tensor_shape_text(tensor, &text);
    assert_string_equal(text.data, expected);
    ts_buffer_release(&text);
}

static inline void assert_attribute(const struct ts_tensor *tensor, const char *key, const char *expected)
{
    const char *value = ts_tensor_attribute(tensor, key);
    if (!expected) {
        assert_null(value);
        return;
    }
    assert_non_null(value);
    assert_string_equal(value, expected);
}

static inline bool has_finding(const struct opened *opened, const char *part)
{
    for (size_t i = 0; i < opened->bundle->finding_count; i++)
        if (strstr(opened->bundle->findings[i].text, part))
            return true;
    return false;
}

static inline bool has_skip(const struct opened *opened, const char *path, const char *part)
{
    for (size_t i = 0; i < opened->bundle->skip_count; i++)
        if (strcmp(opened->bundle->skips[i].path, path) == 0 && strstr(opened->bundle->skips[i].reason, part))
            return true;
    return false;
}

/* All tensors of the bundle one after the other against the doubles in <name>.expected. */
static inline void assert_golden_values(const struct opened *opened, const char *name)
{
    char path[256];
    size_t size, done = 0;
    char *data;
    double *expected;
    snprintf(path, sizeof path, "tests/golden/text/%s.expected", name);
    data = load_file(path, &size);
    expected = calloc(size / 8 + 1, sizeof *expected);
    assert_non_null(expected);
    for (size_t i = 0; i < size / 8; i++)
        expected[i] = ts_double_from_bits(ts_load_le64(data + 8 * i));
    for (size_t i = 0; i < opened->bundle->count; i++) {
        const struct ts_tensor *tensor = opened->bundle->tensors[i];
        assert_true(done + tensor->count <= size / 8);
        assert_values(tensor, expected + done, (size_t)tensor->count);
        done += (size_t)tensor->count;
    }
    assert_int_equal(done, size / 8);
    free(expected);
    free(data);
}

#endif
