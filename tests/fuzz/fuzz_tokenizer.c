/* Tokenizers from hostile files. The input is a GGUF file, or a tokenizer.json; behind a NUL byte a text may follow
 * that is tokenized with it. Whatever loads must tokenize or say why not, with ids that have pieces. */
#include "common.h"

#include "model/tokenizer.h"

static void check_text(const struct ts_tokenizer *tokenizer, const char *text, size_t size)
{
    for (int special = 0; special < 2; special++) {
        struct ts_error error;
        uint32_t *ids;
        size_t count;
        ts_error_clear(&error);
        if (!ts_tokenize(tokenizer, text, size, special, &ids, &count, &error)) {
            if (!error.message[0] || error.status == TS_OK || ids)
                abort();
            continue;
        }
        for (size_t i = 0; i < count; i++)
            if (ids[i] >= ts_tokenizer_size(tokenizer) || !ts_token_piece(tokenizer, ids[i]))
                abort();
        free(ids);
    }
}

static void check_tokenizer(struct ts_tokenizer *tokenizer, const struct ts_error *error, const char *text, size_t size)
{
    static const char known[] =
        "Hello  WORLD's caf\xc3\xa9 e\xcc\x81 12345\r\n\t\xe4\xbd\xa0\xe5\xa5\xbd!? <x> aab</s>";
    if (!tokenizer) {
        if (!error->message[0] || error->status == TS_OK)
            abort();
        return;
    }
    check_text(tokenizer, text, size);
    check_text(tokenizer, known, sizeof known - 1);
    ts_tokenizer_free(tokenizer);
}

static void from_gguf(const uint8_t *data, size_t size)
{
    struct ts_error error;
    struct ts_input input = {.member = "fuzz"};
    struct ts_bundle *bundle;
    ts_error_clear(&error);
    if (ts_source_copy(data, size, "fuzz", &input.source, &error) != TS_OK)
        return;
    bundle = ts_bundle_new("fuzz");
    if (bundle && ts_bundle_keep(bundle, input.source, &error) == TS_OK) {
        struct ts_tokenizer *tokenizer = ts_tokenizer_from_gguf(bundle, &error);
        check_tokenizer(tokenizer, &error, "", 0);
    }
    ts_bundle_free(bundle);
    ts_source_release(input.source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    const size_t json = end ? (size_t)(end - data) : size;
    struct ts_error error;
    char *copy, *text;
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        from_gguf(data, size);
        return 0;
    }
    /* Copies that end where their allocations end. */
    copy = malloc(json + !json);
    text = malloc(size - json + 1);
    if (copy && text) {
        const size_t text_size = end ? size - json - 1 : 0;
        memcpy(copy, data, json);
        if (text_size)
            memcpy(text, end + 1, text_size);
        ts_error_clear(&error);
        check_tokenizer(ts_tokenizer_from_json(copy, json, &error), &error, text, text_size);
    }
    free(copy);
    free(text);
    return 0;
}
