/* Every part of a tokenizer by itself, on odd texts: tests/golden/tokenizers/extra.json, made by the real library with
 * make_extra.py beside it, which says what is in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/tokenizer_gguf.h"
#include "model/tokenizer_parts.h"
#include "model/unicode.h"
#include "opened.h"
#include "tokenizer_golden.h"

#define EXTRA "tests/golden/tokenizers/extra.json"

static char *extra;
static size_t extra_size;

static int load_extra(void **state)
{
    (void)state;
    extra = load_file(EXTRA, &extra_size);
    return 0;
}

static int free_extra(void **state)
{
    (void)state;
    free(extra);
    return 0;
}

/* The value of a key of the object at json, as a place. */
static struct ts_json member(const struct ts_json *object, const char *key)
{
    struct ts_json json = *object;
    struct ts_error error;
    assert_int_equal(json.kind, TS_JSON_OBJECT);
    for (;;) {
        assert_int_equal(ts_json_next(&json, &error), TS_OK);
        if (json.kind == TS_JSON_OBJECT_END)
            fail_msg("no \"%s\" in %s", key, EXTRA);
        if (ts_json_equals(&json, key)) {
            assert_int_equal(ts_json_next(&json, &error), TS_OK);
            return json;
        }
        assert_int_equal(ts_json_skip_value(&json, &error), TS_OK);
    }
}

static struct ts_json part(const char *name)
{
    struct ts_json root;
    struct ts_error error;
    ts_json_init(&root, extra, extra_size);
    assert_int_equal(ts_json_next(&root, &error), TS_OK);
    return member(&root, name);
}

/* The next element of an array, or false. */
static bool element(struct ts_json *array)
{
    struct ts_error error;
    assert_int_equal(ts_json_next(array, &error), TS_OK);
    return array->kind != TS_JSON_ARRAY_END;
}

static void walk_over(struct ts_json *json)
{
    struct ts_error error;
    assert_int_equal(ts_json_skip_value(json, &error), TS_OK);
}

static const char *text_at(const struct ts_json *json, struct ts_arena *arena)
{
    const char *text;
    struct ts_error error;
    assert_int_equal(ts_json_copy(json, arena, &text, &error), TS_OK);
    return text;
}

/* The bytes of a value. */
static void append_raw(struct ts_buffer *out, struct ts_json value)
{
    const size_t start = value.offset;
    walk_over(&value);
    assert_true(ts_buffer_append(out, extra + start, value.at - start));
}

/* The model that spells its words: a token per byte, and another per byte that ends a word. */
static void append_marking_model(struct ts_buffer *out)
{
    ts_buffer_string(out, ",\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"merges\":[],\"vocab\":{");
    for (unsigned i = 0; i < 512; i++)
        ts_buffer_printf(out, "%s\"\\u%04x%s\":%u", i ? "," : "", ts_byte_character((unsigned char)(i & 255)),
                         i < 256 ? "" : "</w>", i);
    for (unsigned i = 512; i < 600; i++) /* added tokens begin at 600 */
        ts_buffer_printf(out, ",\"filler %u\":%u", i, i);
    ts_buffer_string(out, "}}}");
}

static struct ts_tokenizer *marking_tokenizer(const struct ts_json *entry, const char *name, bool rewrites)
{
    struct ts_tokenizer *tokenizer;
    struct ts_buffer text;
    ts_buffer_init(&text, (size_t)1 << 20);
    ts_buffer_string(&text, "{\"pre_tokenizer\":");
    append_raw(&text, member(entry, "pre_tokenizer"));
    if (rewrites) {
        ts_buffer_string(&text, ",\"normalizer\":");
        append_raw(&text, member(entry, "normalizer"));
        ts_buffer_string(&text, ",\"added_tokens\":");
        append_raw(&text, member(entry, "added_tokens"));
    }
    append_marking_model(&text);
    tokenizer = tokenizer_of(text.data, text.size, name);
    ts_buffer_release(&text);
    return tokenizer;
}

static size_t spell(uint32_t *ids, size_t count, const char *word, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ids[count++] = (unsigned char)word[i] + (i + 1 == size ? 256u : 0u);
    return count;
}

/* Every text of an entry of "splits" is cut where it says. */
static void check_lengths(const struct ts_json *entry, const char *name, const struct ts_tokenizer *tokenizer,
                          struct ts_arena *arena, unsigned *wrong, unsigned *seen)
{
    struct ts_json texts = part("texts"), lengths = member(entry, "lengths");
    static uint32_t ids[65536];
    struct ts_error error;
    while (element(&texts)) {
        const char *text = text_at(&texts, arena);
        size_t at = 0, count = 0;
        assert_true(element(&lengths));
        while (element(&lengths)) {
            uint64_t length;
            assert_int_equal(ts_json_uint64(&lengths, &length, &error), TS_OK);
            assert_true(length <= strlen(text) - at);
            count = spell(ids, count, text + at, (size_t)length);
            at += (size_t)length;
        }
        *wrong += !same_ids(name, tokenizer, text, strlen(text), false, ids, count);
        ++*seen;
    }
}

static void splits(void **state)
{
    struct ts_json list = part("splits");
    struct ts_arena arena;
    unsigned wrong = 0, seen = 0;
    (void)state;
    ts_arena_init(&arena, (size_t)64 << 20);
    while (element(&list)) {
        struct ts_json name_at = member(&list, "name");
        const char *name = text_at(&name_at, &arena);
        struct ts_tokenizer *tokenizer = marking_tokenizer(&list, name, false);
        check_lengths(&list, name, tokenizer, &arena, &wrong, &seen);
        ts_tokenizer_free(tokenizer);
        walk_over(&list);
    }
    ts_arena_release(&arena);
    assert_int_equal(wrong, 0);
    assert_true(seen > 5000);
}

/* The patterns that tokenizer.ggml.pre names, with the marking model behind them. */
static struct ts_tokenizer *gguf_words(const char *pre)
{
    const struct ts_gguf_words *words = ts_gguf_words(pre);
    struct ts_tokenizer *tokenizer;
    struct ts_json_writer writer;
    struct ts_buffer text;
    assert_non_null(words);
    ts_buffer_init(&text, (size_t)1 << 20);
    ts_buffer_string(&text, "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (size_t i = 0; i < TS_GGUF_PATTERNS && words->patterns[i]; i++) {
        ts_buffer_string(&text,
                         "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":");
        ts_json_writer_init(&writer, &text, 0);
        ts_json_string(&writer, words->patterns[i]);
        ts_buffer_string(&text, "}},");
    }
    ts_buffer_string(&text, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}");
    append_marking_model(&text);
    tokenizer = tokenizer_of(text.data, text.size, pre);
    ts_buffer_release(&text);
    return tokenizer;
}

static void gguf_splits(void **state)
{
    /* llama.cpp's name, and that of the same pattern in extra.json */
    static const char *const pairs[][2] = {
        {"gpt-2", "gpt2"},          {"qwen2", "qwen2"},        {"llama-bpe", "llama3"},
        {"gpt-4o", "o200k"},        {"tekken", "tekken"},      {"bloom", "bloom"},
        {"starcoder", "starcoder"}, {"bailingmoe", "bailing"}, {"deepseek-v3", "deepseek"},
    };
    struct ts_json list = part("splits");
    struct ts_arena arena;
    unsigned wrong = 0, seen = 0, matched = 0;
    (void)state;
    ts_arena_init(&arena, (size_t)64 << 20);
    while (element(&list)) {
        struct ts_json name_at = member(&list, "name");
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            if (ts_json_equals(&name_at, pairs[i][1])) {
                struct ts_tokenizer *tokenizer = gguf_words(pairs[i][0]);
                check_lengths(&list, pairs[i][0], tokenizer, &arena, &wrong, &seen);
                ts_tokenizer_free(tokenizer);
                matched++;
            }
        walk_over(&list);
    }
    ts_arena_release(&arena);
    assert_int_equal(wrong, 0);
    assert_int_equal(matched, sizeof pairs / sizeof *pairs);
}

static void rewrites(void **state)
{
    struct ts_json list = part("rewrites");
    static uint32_t ids[65536];
    struct ts_arena arena;
    struct ts_error error;
    unsigned wrong = 0, seen = 0;
    (void)state;
    ts_arena_init(&arena, (size_t)64 << 20);
    while (element(&list)) {
        struct ts_json cases = member(&list, "cases"), name_at = member(&list, "name");
        const char *name = text_at(&name_at, &arena);
        struct ts_tokenizer *tokenizer = marking_tokenizer(&list, name, true);
        while (element(&cases)) {
            const char *text;
            size_t count = 0;
            assert_true(element(&cases));
            text = text_at(&cases, &arena);
            assert_true(element(&cases));
            while (element(&cases)) {
                uint64_t id;
                if (cases.kind == TS_JSON_NUMBER) {
                    assert_int_equal(ts_json_uint64(&cases, &id, &error), TS_OK);
                    ids[count++] = (uint32_t)id;
                } else {
                    const char *word = text_at(&cases, &arena);
                    count = spell(ids, count, word, strlen(word));
                }
            }
            assert_false(element(&cases));
            wrong += !same_ids(name, tokenizer, text, strlen(text), false, ids, count);
            seen++;
        }
        ts_tokenizer_free(tokenizer);
        walk_over(&list);
    }
    ts_arena_release(&arena);
    assert_int_equal(wrong, 0);
    assert_true(seen > 1000);
}

static void models(void **state)
{
    struct ts_json list = part("models");
    struct ts_arena arena;
    unsigned wrong = 0, seen = 0;
    (void)state;
    ts_arena_init(&arena, (size_t)1 << 20);
    while (element(&list)) {
        struct ts_json description = member(&list, "tokenizer"), cases = member(&list, "cases"),
                       name_at = member(&list, "name");
        const char *name = text_at(&name_at, &arena);
        struct ts_tokenizer *tokenizer;
        struct ts_buffer text;
        ts_buffer_init(&text, (size_t)1 << 20);
        append_raw(&text, description);
        tokenizer = tokenizer_of(text.data, text.size, name);
        wrong += golden_cases(name, tokenizer, &cases, &seen);
        ts_tokenizer_free(tokenizer);
        ts_buffer_release(&text);
        walk_over(&list);
    }
    ts_arena_release(&arena);
    assert_int_equal(wrong, 0);
    assert_true(seen > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits),
        cmocka_unit_test(gguf_splits),
        cmocka_unit_test(rewrites),
        cmocka_unit_test(models),
    };
    return cmocka_run_group_tests_name("tokenizer_parts", tests, load_extra, free_extra);
}
