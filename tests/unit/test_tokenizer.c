/* Tokenizers against what Hugging Face's tokenizers made of the same files and texts (tests/golden/tokenizers). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "opened.h"
#include "tokenizer_golden.h"

static void check_golden(const char *name)
{
    char path[256];
    struct ts_tokenizer *tokenizer = golden_tokenizer(name);
    size_t golden_size;
    char *golden;
    struct ts_error error;
    struct ts_json json;
    unsigned seen = 0;
    snprintf(path, sizeof path, GOLDEN "%s.golden.json", name);
    golden = load_file(path, &golden_size);
    ts_json_init(&json, golden, golden_size);
    assert_int_equal(ts_json_next(&json, &error), TS_OK);
    assert_int_equal(golden_cases(name, tokenizer, &json, &seen), 0);
    assert_int_equal(seen, 2 * 24);
    ts_tokenizer_free(tokenizer);
    free(golden);
}

static void gpt2(void **state)
{
    (void)state;
    check_golden("gpt2");
}

static void llama2(void **state)
{
    (void)state;
    check_golden("llama2");
}

static void llama3(void **state)
{
    (void)state;
    check_golden("llama3");
}

static void gemma(void **state)
{
    (void)state;
    check_golden("gemma");
}

static void qwen(void **state)
{
    (void)state;
    check_golden("qwen");
}

/* The prompt of the golden traces is known by its ids: every model has the ids of its tokenizer. */
static void trace_prompt(void **state)
{
    static const struct {
        const char *name;
        uint32_t ids[20];
        size_t count;
    } cases[] = {
        {"qwen", {54, 274, 580, 273, 472, 339, 807, 317, 281, 363, 14, 317, 80, 720, 557, 33}, 16},
        {"gpt2", {52, 274, 577, 273, 471, 337, 789, 315, 279, 367, 12, 315, 78, 706, 554, 31}, 16},
        {"llama3", {0, 55, 275, 581, 274, 473, 340, 810, 318, 282, 364, 15, 318, 81, 722, 558, 34}, 17},
        {"gemma", {2, 651, 696, 329, 961, 491, 1064, 496, 788, 333, 460, 547, 342, 838, 508, 295}, 16},
        {"llama2", {2, 432, 651, 696, 329, 961, 491, 1065, 496, 788, 333, 460, 547, 342, 838, 508, 295}, 17},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ts_tokenizer *tokenizer = golden_tokenizer(cases[i].name);
        const char *text = "The weather today is fine, isn't it?";
        assert_true(same_ids(cases[i].name, tokenizer, text, strlen(text), true, cases[i].ids, cases[i].count));
        ts_tokenizer_free(tokenizer);
    }
}

static void pieces(void **state)
{
    struct ts_tokenizer *tokenizer = golden_tokenizer("llama3");
    (void)state;
    assert_string_equal(ts_token_piece(tokenizer, 0), "<|begin_of_text|>");
    assert_string_equal(ts_token_piece(tokenizer, 313), " w");
    assert_string_equal(ts_token_piece(tokenizer, 202), "\n");
    assert_null(ts_token_piece(tokenizer, 900));
    assert_null(ts_token_piece(tokenizer, UINT32_MAX));
    assert_int_equal(ts_tokenizer_size(tokenizer), 900);
    ts_tokenizer_free(tokenizer);
    tokenizer = golden_tokenizer("gemma");
    assert_string_equal(ts_token_piece(tokenizer, 432), " ");
    assert_string_equal(ts_token_piece(tokenizer, 651), "The ");
    ts_tokenizer_free(tokenizer);
}

static void refuses_text(const char *text, size_t size, uint64_t offset, const char *words)
{
    struct ts_tokenizer *tokenizer = golden_tokenizer("gpt2");
    struct ts_error error;
    uint32_t *ids;
    size_t count;
    ts_error_clear(&error);
    assert_false(ts_tokenize(tokenizer, text, size, true, &ids, &count, &error));
    assert_null(ids);
    assert_int_equal(count, 0);
    assert_int_equal(error.offset, offset);
    if (!strstr(error.message, words))
        fail_msg("expected \"%s\", got \"%s\"", words, error.message);
    ts_tokenizer_free(tokenizer);
}

static void text_not_utf8(void **state)
{
    (void)state;
    refuses_text("ab\xff", 3, 2, "byte 0xff at offset 2");
    refuses_text("\xed\xa0\x80", 3, 0, "byte 0xed at offset 0");
    refuses_text("x\xe2\x82", 3, 1, "byte 0xe2 at offset 1");
}

/* A NUL is a character as any other. */
static void text_with_nul(void **state)
{
    struct ts_tokenizer *tokenizer = golden_tokenizer("gpt2");
    struct ts_error error;
    uint32_t *ids;
    size_t count;
    (void)state;
    assert_true(ts_tokenize(tokenizer, "a\0b", 3, true, &ids, &count, &error));
    assert_int_equal(count, 3);
    free(ids);
    assert_true(ts_tokenize(tokenizer, NULL, 0, true, &ids, &count, &error));
    assert_int_equal(count, 0);
    assert_non_null(ids);
    free(ids);
    ts_tokenizer_free(tokenizer);
}

#define MODEL     "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]}"
#define PRE(x)    "{\"pre_tokenizer\":" x "," MODEL "}"
#define NORM(x)   "{\"normalizer\":" x "," MODEL "}"
#define POST(x)   "{\"post_processor\":" x "," MODEL "}"
#define ADDED(x)  "{\"added_tokens\":" x "," MODEL "}"
#define BPE(x)    "{\"model\":{\"type\":\"BPE\"," x "}}"
#define NESTED(x) "{\"type\":\"Sequence\",\"pretokenizers\":[" x "]}"

static void wrong_files(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", ""},
        {"[]", "tokenizer.json is not an object"},
        {"{}", "tokenizer.json has no \"model\""},
        {"{\"model\":null}", "tokenizer.json has no \"model\""},
        {"{\"model\":1}", "\"model\" is not an object"},
        {"{" MODEL "," MODEL "}", "tokenizer.json has \"model\" twice"},
        {"{" MODEL "} x", ""},
        {"{\"model\":{\"type\":\"Magic\",\"vocab\":{}}}", "uses the model \"Magic\", which is not supported"},
        {BPE("\"merges\":[]"), "the model has no \"vocab\""},
        {BPE("\"vocab\":{}"), "the model has no \"merges\""},
        {BPE("\"vocab\":[],\"merges\":[]"), "\"vocab\" is not an object"},
        {BPE("\"vocab\":{\"a\":\"0\"},\"merges\":[]"), "an id is not a number"},
        {BPE("\"vocab\":{\"a\":-1},\"merges\":[]"), ""},
        {BPE("\"vocab\":{\"a\":1.5},\"merges\":[]"), ""},
        {BPE("\"vocab\":{\"a\":4294967296},\"merges\":[]"), "an id is 4294967296, ids end at 16777215"},
        {BPE("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), "the tokens \"a\" and \"b\" have the same id 0"},
        {BPE("\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]"), "the token \"a\" stands in the vocabulary twice"},
        {BPE("\"vocab\":{\"\\ud800\":0},\"merges\":[]"), "half of a surrogate pair"},
        {BPE("\"vocab\":{\"a\":0},\"merges\":{}"), "\"merges\" is not an array"},
        {BPE("\"vocab\":{\"a\":0},\"merges\":[1]"), "a merge is neither a string nor two strings"},
        {BPE("\"vocab\":{\"a\":0},\"merges\":[\"a\"]"), "\"a\" is not two tokens with a space between them"},
        {BPE("\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]"), "\"a a a\" is not two tokens"},
        {BPE("\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]"), ""},
        {BPE("\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]"), ""},
        {BPE("\"vocab\":{\"a\":0},\"merges\":[\"a b\"]"), "merge 0 names \"b\", which is not in the vocabulary"},
        {BPE("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]"),
         "merge 0 makes \"ab\", which is not in the vocabulary"},
        {BPE("\"vocab\":{},\"merges\":[],\"dropout\":0.1"), "\"dropout\""},
        {BPE("\"vocab\":{},\"merges\":[],\"fuse_unk\":1"), "\"fuse_unk\" is neither true nor false"},
        {BPE("\"vocab\":{},\"merges\":[],\"unk_token\":1"), "\"unk_token\" is not a string"},
        {BPE("\"vocab\":{},\"merges\":[],\"byte_fallback\":true,\"end_of_word_suffix\":\"_\""),
         "\"byte_fallback\" together with \"end_of_word_suffix\""},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}",
         "\"unk_id\" is 1, the vocabulary has 1"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", ""},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}", "\"vocab\" is not an array"},
        {ADDED("{}"), "\"added_tokens\" is not an array"},
        {ADDED("[1]"), "an added token is not an object"},
        {ADDED("[{\"id\":3}]"), "an added token has no \"content\""},
        {ADDED("[{\"content\":\"x\"}]"), "an added token has no \"id\""},
        {ADDED("[{\"id\":99999999,\"content\":\"x\"}]"), "an id is 99999999"},
        {ADDED("[{\"id\":3,\"content\":\"x\"},{\"id\":3,\"content\":\"y\"}]"), "have the same id 3"},
        {ADDED("[{\"id\":3,\"content\":\"x\",\"lstrip\":\"yes\"}]"), "\"lstrip\" is neither true nor false"},
        {NORM("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}"),
         "tokenizer.json uses the normalizer \"Precompiled\", which is not supported"},
        {NORM("{\"type\":\"Replace\",\"content\":\"\"}"), "has no \"pattern\""},
        {NORM("{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{}}"), "neither a \"String\" nor a \"Regex\""},
        {NORM("{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"(\"}}"),
         "the pattern \"(\" cannot be used"},
        {NORM("{}"), "normalizer has no \"type\""},
        {PRE("{\"type\":\"UnicodeScripts\"}"), "uses the pre-tokenizer \"UnicodeScripts\", which is not supported"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Sideways\",\"invert\":false}"),
         "uses the behavior \"Sideways\", which is not supported"},
        {PRE("{\"type\":\"Metaspace\",\"replacement\":\"__\"}"), "\"replacement\" is not one character"},
        {PRE("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"), "prepend_scheme \"last\""},
        {PRE("{\"type\":\"FixedLength\",\"length\":0}"), "\"length\" is 0"},
        {PRE(NESTED(NESTED(NESTED(NESTED(NESTED(NESTED(NESTED(NESTED(NESTED("{\"type\":\"Digits\"}")))))))))),
         "nested deeper than 8 levels"},
        {PRE("{\"type\":\"Sequence\"}"), "pre-tokenizer has no \"pretokenizers\""},
        {PRE("{\"type\":\"Sequence\",\"pretokenizers\":[1]}"), "pre-tokenizer is not an object"},
        {POST("{\"type\":\"Magic\"}"), "uses the post-processor \"Magic\", which is not supported"},
        {POST("{\"type\":\"BertProcessing\",\"cls\":[\"a\",0]}"), "has no \"sep\""},
        {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],\"special_tokens\":{}}"),
         "the template names \"x\", which is not in \"special_tokens\""},
        {POST("{\"type\":\"BertProcessing\",\"cls\":[\"x\",7],\"sep\":[\"b\",1]}"),
         "adds the token 7, which is not in"},
        {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}]}"),
         "a sequence \"B\", expected \"A\""},
        {POST(
             "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",0]},"
             "{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",0]}]}"),
         "several post-processors that add tokens"},
    };
    unsigned wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ts_error error;
        struct ts_tokenizer *tokenizer;
        ts_error_clear(&error);
        tokenizer = ts_tokenizer_from_json(cases[i].text, strlen(cases[i].text), &error);
        if (tokenizer || !error.message[0] || !strstr(error.message, cases[i].words)) {
            print_error("%s\n  expected: %s\n  told:     %s\n", cases[i].text, cases[i].words,
                        tokenizer ? "(it loads)" : error.message);
            wrong++;
        }
        ts_tokenizer_free(tokenizer);
    }
    assert_int_equal(wrong, 0);
}

/* A Sequence of post-processors of which one adds tokens is that one. */
static void processors_in_sequence(void **state)
{
    static const char text[] =
        POST("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\",\"trim_offsets\":false},"
             "{\"type\":\"RobertaProcessing\",\"cls\":[\"ab\",2],\"sep\":[\"b\",1]}]}");
    static const uint32_t expected[] = {2, 0, 1, 1};
    struct ts_tokenizer *tokenizer = tokenizer_of(text, strlen(text), "sequence");
    (void)state;
    assert_true(same_ids("sequence", tokenizer, "ab", 2, true, expected, 4));
    assert_true(same_ids("sequence", tokenizer, "ab", 2, false, expected + 1, 2));
    ts_tokenizer_free(tokenizer);
}

/* A pattern that would take years ends with an error. */
static void catastrophic_pattern(void **state)
{
    static const char text[] = PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:(?:a|aa)+)+[bc]\"},\"behavior\":"
                                   "\"Isolated\",\"invert\":false}");
    struct ts_tokenizer *tokenizer = tokenizer_of(text, strlen(text), "catastrophic");
    struct ts_error error;
    char letters[200];
    uint32_t *ids;
    size_t count;
    (void)state;
    memset(letters, 'a', sizeof letters);
    ts_error_clear(&error);
    assert_false(ts_tokenize(tokenizer, letters, sizeof letters, false, &ids, &count, &error));
    assert_int_equal(error.status, TS_ERR_LIMIT);
    assert_non_null(strstr(error.message, "too much work"));
    ts_tokenizer_free(tokenizer);
}

/* A normalizer that makes a megabyte of every character is stopped. */
static void growing_text(void **state)
{
    struct ts_tokenizer *tokenizer;
    struct ts_error error;
    struct ts_buffer text;
    uint32_t *ids;
    size_t count;
    (void)state;
    ts_buffer_init(&text, (size_t)4 << 20);
    ts_buffer_string(&text, "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
    for (size_t i = 0; i < (size_t)1 << 20; i++)
        ts_buffer_byte(&text, 'a');
    ts_buffer_string(&text, "\"}," MODEL "}");
    tokenizer = tokenizer_of(text.data, text.size, "growing");
    ts_error_clear(&error);
    assert_false(ts_tokenize(tokenizer, "aaaa", 4, false, &ids, &count, &error));
    assert_int_equal(error.status, TS_ERR_LIMIT);
    ts_tokenizer_free(tokenizer);
    ts_buffer_release(&text);
}

/* Half a million times two marks out of order: sorted as one run, and composed. */
static void long_run_of_marks(void **state)
{
    static const char text[] = "{\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"
                               "\"\u1ea1\":0,\"\u0301\":1,\"\u0323\":2},\"merges\":[]}}";
    struct ts_tokenizer *tokenizer = tokenizer_of(text, strlen(text), "marks");
    struct ts_error error;
    struct ts_buffer prompt;
    uint32_t *ids;
    size_t count;
    (void)state;
    ts_buffer_init(&prompt, (size_t)4 << 20);
    ts_buffer_byte(&prompt, 'a');
    for (size_t i = 0; i < 250000; i++)
        ts_buffer_string(&prompt, "\u0301\u0323");
    assert_true(ts_tokenize(tokenizer, prompt.data, prompt.size, false, &ids, &count, &error));
    /* a and the first dot below are one; the others come before all accents */
    assert_int_equal(count, 500000);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[249999], 2);
    assert_int_equal(ids[250000], 1);
    free(ids);
    ts_buffer_release(&prompt);
    ts_tokenizer_free(tokenizer);
}

/* Keys in any order, no type, merges before the vocabulary. */
static void keys_in_any_order(void **state)
{
    static const char text[] =
        "{\"model\":{\"merges\":[\"a b\"],\"vocab\":{\"ab\":2,\"b\":1,\"a\":0}},\"pre_tokenizer\":{\"use_regex\":false,"
        "\"add_prefix_space\":false,\"type\":\"ByteLevel\"}}";
    static const uint32_t expected[] = {1, 2};
    struct ts_tokenizer *tokenizer = tokenizer_of(text, strlen(text), "any order");
    (void)state;
    assert_true(same_ids("any order", tokenizer, "bab", 3, true, expected, 2));
    ts_tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),
        cmocka_unit_test(llama2),
        cmocka_unit_test(llama3),
        cmocka_unit_test(gemma),
        cmocka_unit_test(qwen),
        cmocka_unit_test(trace_prompt),
        cmocka_unit_test(pieces),
        cmocka_unit_test(text_not_utf8),
        cmocka_unit_test(text_with_nul),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(processors_in_sequence),
        cmocka_unit_test(catastrophic_pattern),
        cmocka_unit_test(growing_text),
        cmocka_unit_test(long_run_of_marks),
        cmocka_unit_test(keys_in_any_order),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
