/* Walks golden encodings and compares: lists of {"text", "ids", "ids_no_special"}. */
#ifndef TS_TESTS_TOKENIZER_GOLDEN_H
#define TS_TESTS_TOKENIZER_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "model/tokenizer.h"
#include "opened.h"

#define GOLDEN "tests/golden/tokenizers/"

static inline struct ts_tokenizer *tokenizer_of(const char *text, size_t size, const char *name)
{
    struct ts_error error;
    struct ts_tokenizer *tokenizer;
    ts_error_clear(&error);
    tokenizer = ts_tokenizer_from_json(text, size, &error);
    if (!tokenizer)
        fail_msg("%s: at byte %llu: %s", name, (unsigned long long)error.offset, error.message);
    return tokenizer;
}

static inline struct ts_tokenizer *golden_tokenizer(const char *name)
{
    struct ts_tokenizer *tokenizer;
    char path[256];
    size_t size;
    char *text;
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    text = load_file(path, &size);
    tokenizer = tokenizer_of(text, size, name);
    free(text);
    return tokenizer;
}

/* The ids in the array at json, and behind it; their number. */
static inline size_t golden_ids(struct ts_json *json, uint32_t *ids, size_t room)
{
    struct ts_error error;
    size_t count = 0;
    assert_int_equal(json->kind, TS_JSON_ARRAY);
    for (;;) {
        uint64_t id;
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_ARRAY_END)
            return count;
        assert_int_equal(ts_json_uint64(json, &id, &error), TS_OK);
        assert_true(count < room);
        ids[count++] = (uint32_t)id;
    }
}

static inline bool same_ids(const char *name, const struct ts_tokenizer *tokenizer, const char *text, size_t size,
                            bool special, const uint32_t *expected, size_t expected_count)
{
    struct ts_error error;
    uint32_t *ids;
    size_t count;
    bool same;
    ts_error_clear(&error);
    if (!ts_tokenize(tokenizer, text, size, special, &ids, &count, &error)) {
        print_error("%s: \"%s\": %s\n", name, text, error.message);
        return false;
    }
    same = count == expected_count && memcmp(ids, expected, count * sizeof *ids) == 0;
    if (!same) {
        print_error("%s%s: \"%s\"\n  expected", name, special ? " (special)" : "", text);
        for (size_t i = 0; i < expected_count && i < 40; i++)
            print_error(" %u", expected[i]);
        print_error("\n  got     ");
        for (size_t i = 0; i < count && i < 40; i++)
            print_error(" %u", ids[i]);
        print_error("\n");
    }
    free(ids);
    return same;
}

/* One {"text", "ids", "ids_no_special"} at json; how many encodings were wrong. */
static inline unsigned golden_case(const char *name, const struct ts_tokenizer *tokenizer, struct ts_json *json,
                                   unsigned *seen)
{
    static uint32_t ids[2][65536];
    size_t counts[2] = {0, 0};
    const char *text = NULL;
    struct ts_arena arena;
    struct ts_error error;
    unsigned wrong = 0;
    ts_arena_init(&arena, (size_t)16 << 20);
    assert_int_equal(json->kind, TS_JSON_OBJECT);
    for (;;) {
        unsigned which;
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_OBJECT_END)
            break;
        if (ts_json_equals(json, "text")) {
            assert_int_equal(ts_json_next(json, &error), TS_OK);
            assert_int_equal(ts_json_copy(json, &arena, &text, &error), TS_OK);
            continue;
        }
        which = ts_json_equals(json, "ids") ? 1 : 0;
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        counts[which] = golden_ids(json, ids[which], 65536);
    }
    assert_non_null(text);
    for (unsigned special = 0; special < 2; special++)
        wrong += !same_ids(name, tokenizer, text, strlen(text), special, ids[special], counts[special]);
    *seen += 2;
    ts_arena_release(&arena);
    return wrong;
}

/* All cases of the array at json. */
static inline unsigned golden_cases(const char *name, const struct ts_tokenizer *tokenizer, struct ts_json *json,
                                    unsigned *seen)
{
    struct ts_error error;
    unsigned wrong = 0;
    assert_int_equal(json->kind, TS_JSON_ARRAY);
    for (;;) {
        assert_int_equal(ts_json_next(json, &error), TS_OK);
        if (json->kind == TS_JSON_ARRAY_END)
            return wrong;
        wrong += golden_case(name, tokenizer, json, seen);
    }
}

#endif
