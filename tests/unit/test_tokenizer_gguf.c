/* Tokenizers in GGUF files against the tokenizer.json they come from: a file that llama.cpp's converter made, and files
 * put together here from the golden vocabularies, with the scores that a SentencePiece model would have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "model/tokenizer_parts.h"
#include "opened.h"
#include "read/open.h"
#include "tokenizer_golden.h"

enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };

/* A GGUF file without tensors, being written. */
struct maker {
    struct ts_buffer out;
    uint64_t keys;
};

static void put(struct maker *maker, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        ts_buffer_byte(&maker->out, (char)(value >> 8 * i));
}

static void put_text(struct maker *maker, const char *text, size_t size)
{
    put(maker, size, 8);
    ts_buffer_append(&maker->out, text, size);
}

static void start(struct maker *maker)
{
    ts_buffer_init(&maker->out, (size_t)64 << 20);
    maker->keys = 0;
    ts_buffer_string(&maker->out, "GGUF");
    put(maker, 3, 4);
    put(maker, 0, 8);
    put(maker, 0, 8); /* keys, when they are known */
}

static void key(struct maker *maker, const char *name, unsigned type)
{
    put_text(maker, name, strlen(name));
    put(maker, type, 4);
    maker->keys++;
}

static void text_key(struct maker *maker, const char *name, const char *value)
{
    key(maker, name, GGUF_STRING);
    put_text(maker, value, strlen(value));
}

static void array_key(struct maker *maker, const char *name, unsigned type, size_t count)
{
    key(maker, name, GGUF_ARRAY);
    put(maker, type, 4);
    put(maker, count, 8);
}

static void flag_key(struct maker *maker, const char *name, bool value)
{
    key(maker, name, GGUF_BOOL);
    put(maker, value, 1);
}

static void id_key(struct maker *maker, const char *name, uint32_t id)
{
    key(maker, name, GGUF_U32);
    put(maker, id, 4);
}

static struct ts_tokenizer *finish(struct maker *maker, struct ts_error *error)
{
    struct ts_tokenizer *tokenizer;
    struct opened opened;
    memcpy(maker->out.data + 16, &maker->keys, 8);
    open_bytes(&opened, &ts_reader_gguf, maker->out.data, maker->out.size, "made.gguf");
    ts_error_clear(error);
    tokenizer = ts_tokenizer_from_gguf(opened.bundle, error);
    close_opened(&opened);
    ts_buffer_release(&maker->out);
    return tokenizer;
}

static void check_golden(const char *label, const char *name, struct ts_tokenizer *tokenizer)
{
    char path[256];
    struct ts_error error;
    struct ts_json json;
    unsigned seen = 0;
    size_t size;
    char *golden;
    snprintf(path, sizeof path, GOLDEN "%s.golden.json", name);
    golden = load_file(path, &size);
    ts_json_init(&json, golden, size);
    assert_int_equal(ts_json_next(&json, &error), TS_OK);
    assert_int_equal(golden_cases(label, tokenizer, &json, &seen), 0);
    assert_int_equal(seen, 2 * 24);
    free(golden);
}

/* The tokens in order of their ids, and what kind each is. */
static void put_tokens(struct maker *maker, const struct ts_tokenizer *from)
{
    const size_t count = from->vocab.ids;
    array_key(maker, "tokenizer.ggml.tokens", GGUF_STRING, count);
    for (size_t id = 0; id < count; id++) {
        size_t size;
        const char *text = ts_vocab_text(&from->vocab, (uint32_t)id, &size);
        assert_non_null(text);
        put_text(maker, text, size);
    }
    array_key(maker, "tokenizer.ggml.token_type", GGUF_I32, count);
    for (size_t id = 0; id < count; id++) {
        unsigned kind = 1;
        for (size_t i = 0; i < from->added_count; i++)
            if (from->added[i].id == id)
                kind = 3;
        put(maker, kind, 4);
    }
}

static const struct ts_merge *merge_of_rank(const struct ts_tokenizer *from, uint32_t rank)
{
    for (size_t i = 0; i <= from->merge_mask; i++)
        if (from->merges[i].pair != UINT64_MAX && from->merges[i].rank == rank)
            return &from->merges[i];
    fail_msg("no merge %u", rank);
    return NULL;
}

static void put_merges(struct maker *maker, const struct ts_tokenizer *from)
{
    array_key(maker, "tokenizer.ggml.merges", GGUF_STRING, from->merge_count);
    for (uint32_t rank = 0; rank < from->merge_count; rank++) {
        const struct ts_merge *merge = merge_of_rank(from, rank);
        char text[256];
        snprintf(text, sizeof text, "%s %s", ts_vocab_text(&from->vocab, (uint32_t)(merge->pair >> 32), NULL),
                 ts_vocab_text(&from->vocab, (uint32_t)merge->pair, NULL));
        put_text(maker, text, strlen(text));
    }
}

/* What is merged first has the best score. */
static void put_scores(struct maker *maker, const struct ts_tokenizer *from)
{
    array_key(maker, "tokenizer.ggml.scores", GGUF_F32, from->vocab.ids);
    for (size_t id = 0; id < from->vocab.ids; id++) {
        float score = -1e6f;
        for (size_t i = 0; i <= from->merge_mask; i++)
            if (from->merges[i].pair != UINT64_MAX && from->merges[i].id == id && -(float)from->merges[i].rank > score)
                score = -(float)from->merges[i].rank;
        put(maker, ts_float_bits(score), 4);
    }
}

static struct ts_tokenizer *make_llama(const char *name, bool add_space)
{
    struct ts_tokenizer *from = golden_tokenizer(name), *made;
    struct maker maker;
    struct ts_error error;
    start(&maker);
    text_key(&maker, "general.architecture", "llama");
    text_key(&maker, "tokenizer.ggml.model", "llama");
    put_tokens(&maker, from);
    put_scores(&maker, from);
    id_key(&maker, "tokenizer.ggml.bos_token_id", 2);
    id_key(&maker, "tokenizer.ggml.unknown_token_id", 3);
    if (!add_space)
        flag_key(&maker, "tokenizer.ggml.add_space_prefix", false);
    made = finish(&maker, &error);
    if (!made)
        fail_msg("%s", error.message);
    ts_tokenizer_free(from);
    return made;
}

static struct ts_tokenizer *make_gpt2(const char *name, const char *pre)
{
    struct ts_tokenizer *from = golden_tokenizer(name), *made;
    struct maker maker;
    struct ts_error error;
    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "gpt2");
    text_key(&maker, "tokenizer.ggml.pre", pre);
    put_tokens(&maker, from);
    put_merges(&maker, from);
    id_key(&maker, "tokenizer.ggml.bos_token_id", 0);
    made = finish(&maker, &error);
    if (!made)
        fail_msg("%s", error.message);
    ts_tokenizer_free(from);
    return made;
}

static void check_file(const char *path, const char *name)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    struct ts_tokenizer *tokenizer;
    if (access(path, R_OK) != 0)
        return;
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    tokenizer = ts_tokenizer_from_gguf(bundle, &error);
    ts_bundle_free(bundle);
    if (!tokenizer)
        fail_msg("%s: %s", path, error.message);
    check_golden(path, name, tokenizer);
    ts_tokenizer_free(tokenizer);
}

static void converted(void **state)
{
    (void)state;
    assert_int_equal(access("tests/golden/gguf/qwen3-bf16.gguf", R_OK), 0);
    check_file("tests/golden/gguf/qwen3-bf16.gguf", "qwen");
    check_file("../shared/golden/gguf/qwen2-f32.gguf", "qwen");
    check_file("../shared/golden/gguf/qwen2_moe-f32.gguf", "qwen");
    check_file("../shared/golden/gguf/qwen3_moe-f32.gguf", "qwen");
}

static void llama2(void **state)
{
    struct ts_tokenizer *tokenizer = make_llama("llama2", true);
    (void)state;
    check_golden("llama2 as gguf", "llama2", tokenizer);
    assert_string_equal(ts_token_piece(tokenizer, 432), " ");
    ts_tokenizer_free(tokenizer);
}

static void gemma(void **state)
{
    struct ts_tokenizer *tokenizer = make_llama("gemma", false);
    (void)state;
    check_golden("gemma as gguf", "gemma", tokenizer);
    ts_tokenizer_free(tokenizer);
}

static void llama3(void **state)
{
    struct ts_tokenizer *tokenizer = make_gpt2("llama3", "llama-bpe");
    (void)state;
    check_golden("llama3 as gguf", "llama3", tokenizer);
    ts_tokenizer_free(tokenizer);
}

static void gpt2(void **state)
{
    struct ts_tokenizer *tokenizer = make_gpt2("gpt2", "gpt-2");
    (void)state;
    check_golden("gpt2 as gguf", "gpt2", tokenizer);
    ts_tokenizer_free(tokenizer);
}

/* Every name that is known makes patterns that PCRE2 takes. */
static void all_words(void **state)
{
    static const char *const names[] = {
        "default",        "llama-bpe", "glm4",      "qwen2",    "hunyuan",    "qwen35",     "gpt-2",
        "olmo",           "starcoder", "command-r", "falcon",   "gpt-4o",     "tekken",     "deepseek-v3",
        "deepseek-coder", "bloom",     "viking",    "tiny_aya", "bailingmoe", "seed-coder", "minicpm5",
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ts_tokenizer *tokenizer = make_gpt2("gpt2", names[i]);
        static const char text[] = "Hello WORLDs don't 12345 世界!\r\n  x";
        struct ts_error error;
        size_t count, size = 0;
        uint32_t *ids;
        assert_true(ts_tokenize(tokenizer, text, strlen(text), false, &ids, &count, &error));
        for (size_t j = 0; j < count; j++) {
            const char *piece = ts_token_piece(tokenizer, ids[j]);
            assert_non_null(piece);
            assert_memory_equal(piece, text + size, strlen(piece));
            size += strlen(piece);
        }
        assert_int_equal(size, strlen(text));
        free(ids);
        ts_tokenizer_free(tokenizer);
    }
}

static void refused(struct maker *maker, const char *words)
{
    struct ts_error error;
    struct ts_tokenizer *tokenizer = finish(maker, &error);
    assert_null(tokenizer);
    if (!strstr(error.message, words))
        fail_msg("expected \"%s\", got \"%s\"", words, error.message);
}

static void some_tokens(struct maker *maker)
{
    array_key(maker, "tokenizer.ggml.tokens", GGUF_STRING, 3);
    put_text(maker, "a", 1);
    put_text(maker, "b", 1);
    put_text(maker, "ab", 2);
}

static void wrong_files(void **state)
{
    struct maker maker;
    (void)state;
    start(&maker);
    text_key(&maker, "general.architecture", "llama");
    refused(&maker, "there is no tokenizer in it");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "rwkv");
    refused(&maker, "uses the tokenizer \"rwkv\" (tokenizer.ggml.model), which is not supported");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "gpt2");
    text_key(&maker, "tokenizer.ggml.pre", "kimi-k2");
    refused(&maker, "uses the pre-tokenizer \"kimi-k2\" (tokenizer.ggml.pre), which is not supported");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "gpt2");
    refused(&maker, "there is no key tokenizer.ggml.tokens");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "gpt2");
    some_tokens(&maker);
    refused(&maker, "there is no key tokenizer.ggml.merges");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "gpt2");
    some_tokens(&maker);
    array_key(&maker, "tokenizer.ggml.merges", GGUF_STRING, 1);
    put_text(&maker, "a c", 3);
    refused(&maker, "merge 0 names \"c\", which is not in the vocabulary");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "gpt2");
    some_tokens(&maker);
    array_key(&maker, "tokenizer.ggml.merges", GGUF_STRING, 1);
    put_text(&maker, "ab", 2);
    refused(&maker, "merge 0 is not two tokens with a space between them");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "llama");
    some_tokens(&maker);
    refused(&maker, "there is no key tokenizer.ggml.scores");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "llama");
    some_tokens(&maker);
    array_key(&maker, "tokenizer.ggml.scores", GGUF_F32, 2);
    put(&maker, 0, 8);
    refused(&maker, "the key tokenizer.ggml.scores has 2 values, the vocabulary has 3 tokens");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "llama");
    some_tokens(&maker);
    array_key(&maker, "tokenizer.ggml.scores", GGUF_F32, 3);
    put(&maker, 0, 8);
    put(&maker, 0, 4);
    id_key(&maker, "tokenizer.ggml.bos_token_id", 3);
    refused(&maker, "the key tokenizer.ggml.bos_token_id is 3, the vocabulary has 3 tokens");

    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "gpt2");
    text_key(&maker, "tokenizer.ggml.pre", "llama-bpe");
    some_tokens(&maker);
    array_key(&maker, "tokenizer.ggml.merges", GGUF_STRING, 0);
    refused(&maker, "a first token is to be added to every text, and there is no key tokenizer.ggml.bos_token_id");

    start(&maker);
    id_key(&maker, "tokenizer.ggml.model", 1);
    refused(&maker, "the key tokenizer.ggml.model is of another type, expected a string");
}

/* Characters that are not in the vocabulary are their bytes, or the unknown token where those are not all there. */
static void unknown_characters(void **state)
{
    static const char *const tokens[] = {"<unk>", "x", "<0xC3>", "<0xA9>", "<0xE2>", "<0x96>"};
    static const uint32_t expected[] = {1, 2, 3, 0};
    struct ts_tokenizer *tokenizer;
    struct maker maker;
    struct ts_error error;
    (void)state;
    start(&maker);
    text_key(&maker, "tokenizer.ggml.model", "llama");
    array_key(&maker, "tokenizer.ggml.tokens", GGUF_STRING, 6);
    for (size_t i = 0; i < 6; i++)
        put_text(&maker, tokens[i], strlen(tokens[i]));
    array_key(&maker, "tokenizer.ggml.scores", GGUF_F32, 6);
    for (size_t i = 0; i < 6; i++)
        put(&maker, 0, 4);
    flag_key(&maker, "tokenizer.ggml.add_bos_token", false);
    flag_key(&maker, "tokenizer.ggml.add_space_prefix", false);
    tokenizer = finish(&maker, &error);
    assert_non_null(tokenizer);
    assert_true(same_ids("bytes", tokenizer, "xé ", 4, true, expected, 4));
    assert_string_equal(ts_token_piece(tokenizer, 2), "\xc3");
    ts_tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converted),   cmocka_unit_test(llama2),
        cmocka_unit_test(gemma),       cmocka_unit_test(llama3),
        cmocka_unit_test(gpt2),        cmocka_unit_test(all_words),
        cmocka_unit_test(wrong_files), cmocka_unit_test(unknown_characters),
    };
    return cmocka_run_group_tests_name("tokenizer_gguf", tests, NULL, NULL);
}
