/* Tokenizers in the metadata of GGUF files: "gpt2", byte-pair encoding of bytes, and "llama", SentencePiece's merging
 * by scores.
 *
 * A bundle keeps of long arrays only their beginnings, so that the keys are walked again here, in the file. */
#include "model/tokenizer_gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "model/tokenizer_parts.h"
#include "model/unicode.h"
#include "read/gguf.h"

/* Value types of the format, by number. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, TYPES };
static const uint8_t type_sizes[TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* tokenizer.ggml.token_type */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED };

#define PREFIX "tokenizer.ggml."
#define MARK   "▁"

enum { MODEL, PRE, TOKENS, SCORES, KINDS, MERGES, BOS, EOS, UNK, ADD_BOS, ADD_EOS, ADD_SPACE, KEYS };
static const char *const key_names[KEYS] = {
    [MODEL] = "model",           [PRE] = "pre",
    [TOKENS] = "tokens",         [SCORES] = "scores",
    [KINDS] = "token_type",      [MERGES] = "merges",
    [BOS] = "bos_token_id",      [EOS] = "eos_token_id",
    [UNK] = "unknown_token_id",  [ADD_BOS] = "add_bos_token",
    [ADD_EOS] = "add_eos_token", [ADD_SPACE] = "add_space_prefix",
};

/* Where the value of a key is. */
struct value {
    bool present;
    uint32_t type, element; /* element: of an array */
    uint64_t at, count;
};

struct keys {
    struct ts_gguf file;
    struct value values[KEYS];
    struct ts_tokenizer *tokenizer;
    struct ts_error *error;
};

static enum ts_status skip_strings(struct ts_gguf *file, uint64_t count, struct ts_error *error)
{
    struct ts_gguf_string string;
    for (uint64_t i = 0; i < count; i++)
        TS_TRY(ts_gguf_string(file, "a string", &string, error));
    return TS_OK;
}

/* Walks over one value; its place is in *value. */
static enum ts_status skip_value(struct ts_gguf *file, struct value *value, struct ts_error *error)
{
    const uint8_t *bytes;
    uint64_t size;
    value->at = file->at;
    value->count = 1;
    value->element = value->type;
    if (value->type == ARRAY) {
        TS_TRY(ts_gguf_u32(file, "an array", &value->element, error));
        TS_TRY(ts_gguf_size(file, "an array", &value->count, error));
        value->at = file->at;
    }
    if (value->element >= TYPES || value->element == ARRAY)
        return ts_fail(error, TS_ERR_UNSUPPORTED, file->at, "a key before the tokenizer's has values of type %" PRIu32,
                       value->element);
    if (value->element == STRING)
        return skip_strings(file, value->count, error);
    if (!ts_mul(value->count, type_sizes[value->element], &size))
        return ts_fail(error, TS_ERR_FORMAT, file->at, "truncated: an array of %" PRIu64 " values", value->count);
    return ts_gguf_bytes(file, size, "a value", &bytes, error);
}

/* Header and keys of one file. */
static enum ts_status walk(struct keys *keys)
{
    struct ts_gguf *file = &keys->file;
    const uint8_t *magic;
    TS_TRY(ts_gguf_bytes(file, 4, "the magic", &magic, keys->error));
    TS_TRY(ts_gguf_u32(file, "the header", &file->version, keys->error));
    if ((file->version & 0xffff) == 0) {
        file->swapped = true;
        file->version = __builtin_bswap32(file->version);
    }
    TS_TRY(ts_gguf_size(file, "the header", &file->tensor_count, keys->error));
    TS_TRY(ts_gguf_size(file, "the header", &file->key_count, keys->error));
    for (uint64_t i = 0; i < file->key_count; i++) {
        const size_t prefix = strlen(PREFIX);
        struct value value = {.present = true};
        struct ts_gguf_string key;
        TS_TRY(ts_gguf_string(file, "a key", &key, keys->error));
        TS_TRY(ts_gguf_u32(file, "a value type", &value.type, keys->error));
        TS_TRY(skip_value(file, &value, keys->error));
        if (key.size <= prefix || memcmp(key.text, PREFIX, prefix) != 0)
            continue;
        for (size_t j = 0; j < KEYS; j++)
            if (key.size - prefix == strlen(key_names[j]) &&
                memcmp(key.text + prefix, key_names[j], strlen(key_names[j])) == 0 && !keys->values[j].present)
                keys->values[j] = value;
    }
    return TS_OK;
}

static enum ts_status wrong_type(const struct keys *keys, unsigned which, const char *expected)
{
    return ts_fail(keys->error, TS_ERR_FORMAT, keys->values[which].at,
                   "the key " PREFIX "%s is of another type, expected %s", key_names[which], expected);
}

static uint64_t load_number(const struct keys *keys, unsigned type, uint64_t at)
{
    const uint8_t *bytes = keys->file.source->data + at;
    switch (type_sizes[type]) {
    case 1:
        return bytes[0];
    case 2:
        return keys->file.swapped ? ts_load_be16(bytes) : ts_load_le16(bytes);
    case 4:
        return keys->file.swapped ? ts_load_be32(bytes) : ts_load_le32(bytes);
    default:
        return keys->file.swapped ? ts_load_be64(bytes) : ts_load_le64(bytes);
    }
}

/* *name stays when the key is not there. */
static enum ts_status take_name(struct keys *keys, unsigned which, struct ts_text *name)
{
    struct ts_gguf file = keys->file;
    struct ts_gguf_string string;
    if (!keys->values[which].present)
        return TS_OK;
    if (keys->values[which].type != STRING)
        return wrong_type(keys, which, "a string");
    file.at = keys->values[which].at;
    TS_TRY(ts_gguf_string(&file, "a string", &string, keys->error));
    if (string.size > 256)
        return ts_fail(keys->error, TS_ERR_FORMAT, keys->values[which].at, "the key " PREFIX "%s has %" PRIu64 " bytes",
                       key_names[which], string.size);
    return ts_tokenizer_text(keys->tokenizer, string.text, (size_t)string.size, name, keys->error);
}

static enum ts_status take_flag(struct keys *keys, unsigned which, bool *flag)
{
    if (!keys->values[which].present)
        return TS_OK;
    if (keys->values[which].type != BOOL)
        return wrong_type(keys, which, "bool");
    *flag = load_number(keys, BOOL, keys->values[which].at) != 0;
    return TS_OK;
}

static enum ts_status take_id(struct keys *keys, unsigned which, uint32_t *id)
{
    const struct value *value = &keys->values[which];
    uint64_t number;
    if (!value->present)
        return TS_OK;
    if (value->type > I64 || value->type == F32 || value->type == BOOL || value->type == STRING || value->type == ARRAY)
        return wrong_type(keys, which, "an integer");
    number = load_number(keys, value->type, value->at);
    if (number >= keys->tokenizer->vocab.ids)
        return ts_fail(keys->error, TS_ERR_FORMAT, value->at,
                       "the key " PREFIX "%s is %" PRIu64 ", the vocabulary has %zu tokens", key_names[which], number,
                       keys->tokenizer->vocab.ids);
    *id = (uint32_t)number;
    return TS_OK;
}

/* An array beside the tokens, one number for each. */
static enum ts_status check_beside(struct keys *keys, unsigned which)
{
    const struct value *value = &keys->values[which];
    if (value->type != ARRAY || (value->element != I32 && value->element != U32 && value->element != F32))
        return wrong_type(keys, which, "an array of numbers");
    if (value->count < keys->values[TOKENS].count)
        return ts_fail(keys->error, TS_ERR_FORMAT, value->at,
                       "the key " PREFIX "%s has %" PRIu64 " values, the vocabulary has %" PRIu64 " tokens",
                       key_names[which], value->count, keys->values[TOKENS].count);
    return TS_OK;
}

static float score_of(const struct keys *keys, uint64_t number)
{
    const struct value *value = &keys->values[SCORES];
    uint32_t bits;
    if (!value->present)
        return 0;
    bits = (uint32_t)load_number(keys, value->element, value->at + 4 * number);
    return value->element == F32 ? ts_float_from_bits(bits) : (float)(int32_t)bits;
}

static int kind_of(const struct keys *keys, uint64_t number)
{
    const struct value *value = &keys->values[KINDS];
    return value->present ? (int)(int32_t)load_number(keys, value->element, value->at + 4 * number) : NORMAL;
}

static bool is_added(int kind)
{
    return kind == UNKNOWN || kind == CONTROL || kind == USER_DEFINED;
}

/* Tokens of these kinds are found in a text before it is cut into words. */
static enum ts_status take_added(struct keys *keys)
{
    struct ts_tokenizer *tokenizer = keys->tokenizer;
    size_t count = 0;
    for (size_t id = 0; id < tokenizer->vocab.ids; id++)
        count += is_added(kind_of(keys, id));
    tokenizer->added = ts_arena_array(&tokenizer->arena, count, sizeof *tokenizer->added);
    if (!tokenizer->added)
        return ts_fail_memory(keys->error);
    for (size_t id = 0; id < tokenizer->vocab.ids; id++) {
        struct ts_added *added = &tokenizer->added[tokenizer->added_count];
        const char *text;
        size_t size;
        if (!is_added(kind_of(keys, id)))
            continue;
        text = ts_vocab_text(&tokenizer->vocab, (uint32_t)id, &size);
        if (!text || size == 0 || size > TS_MAX_ADDED_SIZE || ts_utf8_valid_prefix(text, size) != size)
            continue; /* found in no text */
        *added = (struct ts_added){.id = (uint32_t)id, .special = kind_of(keys, id) == CONTROL};
        TS_TRY(ts_tokenizer_text(tokenizer, text, size, &added->text, keys->error));
        tokenizer->added_count++;
    }
    return TS_OK;
}

static enum ts_status take_tokens(struct keys *keys)
{
    const struct value *value = &keys->values[TOKENS];
    struct ts_gguf file = keys->file;
    if (!value->present)
        return ts_fail(keys->error, TS_ERR_FORMAT, TS_NO_OFFSET, "there is no key " PREFIX "tokens");
    if (value->type != ARRAY || value->element != STRING)
        return wrong_type(keys, TOKENS, "an array of strings");
    if (keys->values[SCORES].present)
        TS_TRY(check_beside(keys, SCORES));
    if (keys->values[KINDS].present)
        TS_TRY(check_beside(keys, KINDS));
    if (value->count > TS_VOCAB_MAX_ID)
        return ts_fail(keys->error, TS_ERR_LIMIT, value->at, "%" PRIu64 " tokens, ids end at %" PRIu32, value->count,
                       TS_VOCAB_MAX_ID - 1);
    file.at = value->at;
    for (uint64_t i = 0; i < value->count; i++) {
        const uint64_t offset = file.at;
        struct ts_gguf_string string;
        TS_TRY(ts_gguf_string(&file, "a token", &string, keys->error));
        /* Padding tokens may share a text: what the text stands for is the last, as in llama.cpp. */
        TS_TRY(ts_vocab_add(&keys->tokenizer->vocab, string.text, (size_t)string.size, (uint32_t)i, score_of(keys, i),
                            true, offset, keys->error));
    }
    return take_added(keys);
}

/* "a b": the first space that has something in front of it is between the two. */
static enum ts_status take_merges(struct keys *keys)
{
    const struct value *value = &keys->values[MERGES];
    struct ts_gguf file = keys->file;
    if (!value->present)
        return ts_fail(keys->error, TS_ERR_FORMAT, TS_NO_OFFSET, "there is no key " PREFIX "merges");
    if (value->type != ARRAY || value->element != STRING)
        return wrong_type(keys, MERGES, "an array of strings");
    if (value->count >= UINT32_MAX) /* 34 GB of merges at the least */
        return ts_fail(keys->error, TS_ERR_LIMIT, value->at, "%" PRIu64 " merges", value->count);
    file.at = value->at;
    for (uint64_t i = 0; i < value->count; i++) {
        const uint64_t offset = file.at;
        struct ts_gguf_string string;
        const char *space;
        TS_TRY(ts_gguf_string(&file, "a merge", &string, keys->error));
        space = string.size > 1 ? memchr(string.text + 1, ' ', (size_t)string.size - 1) : NULL;
        if (!space)
            return ts_fail(keys->error, TS_ERR_FORMAT, offset,
                           "merge %" PRIu64 " is not two tokens with a space between them", i);
        TS_TRY(ts_merges_add(keys->tokenizer, string.text, (size_t)(space - string.text), space + 1,
                             (size_t)(string.text + string.size - space - 1), (uint32_t)i, offset, keys->error));
    }
    return TS_OK;
}

static enum ts_status take_words(struct keys *keys, const struct ts_gguf_words *words)
{
    struct ts_tokenizer *tokenizer = keys->tokenizer;
    struct ts_step *step;
    if (words->composed) {
        if (!(step = ts_tokenizer_normalizer(tokenizer, keys->error)))
            return keys->error->status;
        *step = (struct ts_step){.kind = TS_STEP_NORMAL_FORM, .form = TS_NFC};
    }
    for (size_t i = 0; i < TS_GGUF_PATTERNS && words->patterns[i]; i++) {
        if (!(step = ts_tokenizer_splitter(tokenizer, keys->error)))
            return keys->error->status;
        *step = (struct ts_step){.kind = TS_STEP_SPLIT, .behavior = TS_SPLIT_ISOLATED};
        step->regex = ts_regex_new(words->patterns[i], strlen(words->patterns[i]), keys->error);
        if (!step->regex)
            return keys->error->status;
    }
    if (!(step = ts_tokenizer_splitter(tokenizer, keys->error)))
        return keys->error->status;
    step->kind = TS_STEP_WORD_BYTES;
    tokenizer->ignore_merges = words->ignore_merges;
    tokenizer->show_bytes = true;
    return TS_OK;
}

/* <bos> in front and <eos> behind, where the file or its kind wants them. */
static enum ts_status take_ends(struct keys *keys, bool add_bos, uint32_t bos, uint32_t eos)
{
    struct ts_template *template = &keys->tokenizer->template;
    bool add_eos = false;
    TS_TRY(take_flag(keys, ADD_BOS, &add_bos));
    TS_TRY(take_flag(keys, ADD_EOS, &add_eos));
    TS_TRY(take_id(keys, BOS, &bos));
    TS_TRY(take_id(keys, EOS, &eos));
    if (!add_bos && !add_eos)
        return TS_OK;
    if ((add_bos && bos >= keys->tokenizer->vocab.ids) || (add_eos && eos >= keys->tokenizer->vocab.ids))
        return ts_fail(keys->error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "%s is to be added to every text, and there is no key " PREFIX "%s",
                       add_bos && bos >= keys->tokenizer->vocab.ids ? "a first token" : "a last token",
                       add_bos && bos >= keys->tokenizer->vocab.ids ? key_names[BOS] : key_names[EOS]);
    template->ids = ts_arena_array(&keys->tokenizer->arena, 3, sizeof *template->ids);
    if (!template->ids)
        return ts_fail_memory(keys->error);
    if (add_bos)
        template->ids[template->count++] = bos;
    template->ids[template->count++] = TS_NO_TOKEN;
    if (add_eos)
        template->ids[template->count++] = eos;
    return TS_OK;
}

static enum ts_status make_gpt2(struct keys *keys)
{
    struct ts_text name = {.data = "default", .size = 7};
    const struct ts_gguf_words *words;
    keys->tokenizer->kind = TS_MODEL_BPE;
    TS_TRY(take_name(keys, PRE, &name));
    words = ts_gguf_words(name.data);
    if (!words)
        return ts_fail(keys->error, TS_ERR_UNSUPPORTED, keys->values[PRE].at,
                       "the file uses the pre-tokenizer \"%.64s\" (" PREFIX "pre), which is not supported", name.data);
    TS_TRY(take_words(keys, words));
    TS_TRY(take_tokens(keys));
    TS_TRY(take_merges(keys));
    return take_ends(keys, words->add_bos, TS_NO_TOKEN, TS_NO_TOKEN);
}

static enum ts_status make_llama(struct keys *keys)
{
    struct ts_tokenizer *tokenizer = keys->tokenizer;
    const struct ts_text mark = {.data = MARK, .size = strlen(MARK)};
    bool add_space = true;
    struct ts_step *step;
    tokenizer->kind = TS_MODEL_SCORES;
    if (!keys->values[SCORES].present)
        return ts_fail(keys->error, TS_ERR_FORMAT, TS_NO_OFFSET, "there is no key " PREFIX "scores");
    TS_TRY(take_flag(keys, ADD_SPACE, &add_space));
    if (add_space) {
        if (!(step = ts_tokenizer_normalizer(tokenizer, keys->error)))
            return keys->error->status;
        *step = (struct ts_step){.kind = TS_STEP_PREPEND, .content = mark};
    }
    if (!(step = ts_tokenizer_normalizer(tokenizer, keys->error)))
        return keys->error->status;
    *step = (struct ts_step){.kind = TS_STEP_REPLACE, .literal = {.data = " ", .size = 1}, .content = mark};
    tokenizer->show_space = mark;
    tokenizer->show_fallback = true;
    TS_TRY(take_tokens(keys));
    tokenizer->unknown = tokenizer->vocab.ids ? 0 : TS_NO_TOKEN;
    TS_TRY(take_id(keys, UNK, &tokenizer->unknown));
    /* The numbers SentencePiece gives them where the file does not say. */
    return take_ends(keys, true, 1, 2);
}

static enum ts_status make(struct keys *keys)
{
    struct ts_text model = {.data = "", .size = 0};
    TS_TRY(take_name(keys, MODEL, &model));
    if (strcmp(model.data, "gpt2") == 0)
        TS_TRY(make_gpt2(keys));
    else if (strcmp(model.data, "llama") == 0)
        TS_TRY(make_llama(keys));
    else
        return ts_fail(keys->error, TS_ERR_UNSUPPORTED, keys->values[MODEL].at,
                       "the file uses the tokenizer \"%.64s\" (" PREFIX "model), which is not supported", model.data);
    return ts_tokenizer_finish(keys->tokenizer, keys->error);
}

struct ts_tokenizer *ts_tokenizer_from_gguf(const struct ts_bundle *bundle, struct ts_error *error)
{
    struct keys keys = {.error = error};
    enum ts_status status;
    /* The first part of a split model has them. */
    for (size_t i = 0; i < bundle->source_count && !keys.values[MODEL].present; i++) {
        struct ts_source *source = bundle->sources[i];
        if (source->size < 4 || memcmp(source->data, "GGUF", 4) != 0)
            continue;
        keys = (struct keys){.error = error, .file = {.source = source, .member = source->path}};
        if (walk(&keys) != TS_OK) {
            ts_error_path(error, source->path);
            return NULL;
        }
    }
    if (!keys.values[MODEL].present) {
        ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                "there is no tokenizer in it: no GGUF file with the key " PREFIX "model");
        return NULL;
    }
    keys.tokenizer = ts_tokenizer_new();
    if (!keys.tokenizer) {
        ts_fail_memory(error);
        return NULL;
    }
    status = make(&keys);
    if (status == TS_OK)
        return keys.tokenizer;
    ts_error_path(error, keys.file.source->path);
    ts_tokenizer_free(keys.tokenizer);
    return NULL;
}
