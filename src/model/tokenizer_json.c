/* tokenizer.json: the file as a whole, its model (vocabulary and merges) and its added tokens. */
#include "model/tokenizer_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/unicode.h"

#define LONGEST_TEXT ((size_t)16 << 20)
/* Every place of a text is looked at for every length of tokens, so that these have ends. SentencePiece's own are 16
 * characters by default; WordPiece gives up at 100. */
#define LONGEST_UNIGRAM   4096
#define LONGEST_WORDPIECE 1000

/* Walks the object at json to its end. */
static enum ts_status walk_fields(struct ts_json_loader *loader, struct ts_json *json, const char *what,
                                  struct ts_json_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fields[i].present = false;
    if (json->kind != TS_JSON_OBJECT)
        return ts_fail(loader->error, TS_ERR_FORMAT, json->offset, "%s is not an object", what);
    for (;;) {
        struct ts_json_field *field = NULL;
        TS_TRY(ts_json_next(json, loader->error));
        if (json->kind == TS_JSON_OBJECT_END)
            return TS_OK;
        for (size_t i = 0; i < count && !field; i++)
            if (ts_json_equals(json, fields[i].name))
                field = &fields[i];
        if (!field) {
            TS_TRY(ts_json_skip_value(json, loader->error));
            continue;
        }
        if (field->present)
            return ts_fail(loader->error, TS_ERR_FORMAT, json->offset, "%s has \"%s\" twice", what, field->name);
        TS_TRY(ts_json_next(json, loader->error));
        field->at = *json;
        field->present = json->kind != TS_JSON_NULL;
        if (field->inner && json->kind == TS_JSON_OBJECT)
            TS_TRY(walk_fields(loader, json, field->what, field->inner, field->inner_count));
        else
            TS_TRY(ts_json_skip_value(json, loader->error));
    }
}

enum ts_status ts_json_fields(struct ts_json_loader *loader, const struct ts_json *at, const char *what,
                              struct ts_json_field *fields, size_t count)
{
    struct ts_json json = *at;
    return walk_fields(loader, &json, what, fields, count);
}

enum ts_status ts_json_required(struct ts_json_loader *loader, const struct ts_json *object, const char *what,
                                const struct ts_json_field *field)
{
    if (field->present)
        return TS_OK;
    return ts_fail(loader->error, TS_ERR_FORMAT, object->offset, "%s has no \"%s\"", what, field->name);
}

enum ts_status ts_json_bool_field(struct ts_json_loader *loader, const struct ts_json_field *field, bool *value)
{
    if (!field->present)
        return TS_OK;
    if (field->at.kind != TS_JSON_TRUE && field->at.kind != TS_JSON_FALSE)
        return ts_fail(loader->error, TS_ERR_FORMAT, field->at.offset, "\"%s\" is neither true nor false", field->name);
    *value = field->at.kind == TS_JSON_TRUE;
    return TS_OK;
}

enum ts_status ts_json_size_field(struct ts_json_loader *loader, const struct ts_json_field *field, uint64_t *value)
{
    if (!field->present)
        return TS_OK;
    if (field->at.kind != TS_JSON_NUMBER)
        return ts_fail(loader->error, TS_ERR_FORMAT, field->at.offset, "\"%s\" is not a number", field->name);
    return ts_json_uint64(&field->at, value, loader->error);
}

/* The reader has checked the escapes, but not that surrogates come in pairs. */
static enum ts_status unescape(struct ts_json_loader *loader, const struct ts_json *at, struct ts_buffer *out)
{
    const char *raw = at->raw, *end = at->raw + at->raw_size;
    while (raw < end && !out->failed) {
        const char *backslash = memchr(raw, '\\', (size_t)(end - raw));
        char character[4];
        uint32_t code;
        if (!backslash)
            backslash = end;
        ts_buffer_append(out, raw, (size_t)(backslash - raw));
        raw = backslash;
        if (raw == end)
            break;
        raw += ts_json_escape(raw, end, &code);
        if (code >= 0xd800 && code < 0xe000)
            return ts_fail(loader->error, TS_ERR_FORMAT, at->offset, "a string holds half of a surrogate pair");
        ts_buffer_append(out, character, ts_utf8_put(code, character));
    }
    return out->failed
               ? ts_fail(loader->error, TS_ERR_LIMIT, at->offset, "a string is longer than %zu bytes", out->limit)
               : TS_OK;
}

enum ts_status ts_json_text_at(struct ts_json_loader *loader, const struct ts_json *at, unsigned which,
                               struct ts_text *text)
{
    struct ts_buffer *out = &loader->text[which];
    if (at->kind != TS_JSON_STRING && at->kind != TS_JSON_KEY)
        return ts_fail(loader->error, TS_ERR_FORMAT, at->offset, "expected a string");
    *text = (struct ts_text){.data = at->raw, .size = at->raw_size};
    if (!at->escaped)
        return TS_OK;
    ts_buffer_clear(out);
    TS_TRY(unescape(loader, at, out));
    *text = (struct ts_text){.data = out->data ? out->data : "", .size = out->size};
    return TS_OK;
}

enum ts_status ts_json_text_field(struct ts_json_loader *loader, const struct ts_json_field *field,
                                  struct ts_text *value)
{
    struct ts_text text;
    if (!field->present)
        return TS_OK;
    if (field->at.kind != TS_JSON_STRING)
        return ts_fail(loader->error, TS_ERR_FORMAT, field->at.offset, "\"%s\" is not a string", field->name);
    TS_TRY(ts_json_text_at(loader, &field->at, 0, &text));
    return ts_tokenizer_text(loader->tokenizer, text.data, text.size, value, loader->error);
}

enum ts_status ts_json_id(struct ts_json_loader *loader, const struct ts_json *at, uint32_t *id)
{
    uint64_t value;
    if (at->kind != TS_JSON_NUMBER)
        return ts_fail(loader->error, TS_ERR_FORMAT, at->offset, "an id is not a number");
    TS_TRY(ts_json_uint64(at, &value, loader->error));
    if (value >= TS_VOCAB_MAX_ID)
        return ts_fail(loader->error, TS_ERR_LIMIT, at->offset, "an id is %" PRIu64 ", ids end at %" PRIu32, value,
                       TS_VOCAB_MAX_ID - 1);
    *id = (uint32_t)value;
    return TS_OK;
}

enum {
    TYPE,
    VOCAB,
    MERGES,
    UNKNOWN,
    UNKNOWN_ID,
    PREFIX,
    SUFFIX,
    FUSE,
    FALLBACK,
    IGNORE,
    DROPOUT,
    LONGEST,
    MODEL_FIELDS
};

/* {"token": id, ...} */
static enum ts_status load_vocab(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_vocab *vocab = &loader->tokenizer->vocab;
    struct ts_json json = *at;
    if (json.kind != TS_JSON_OBJECT)
        return ts_fail(loader->error, TS_ERR_FORMAT, json.offset, "\"vocab\" is not an object");
    for (;;) {
        struct ts_text text;
        uint64_t offset;
        uint32_t id;
        TS_TRY(ts_json_next(&json, loader->error));
        if (json.kind == TS_JSON_OBJECT_END)
            return TS_OK;
        offset = json.offset;
        TS_TRY(ts_json_text_at(loader, &json, 0, &text));
        TS_TRY(ts_json_next(&json, loader->error));
        TS_TRY(ts_json_id(loader, &json, &id));
        TS_TRY(ts_vocab_add(vocab, text.data, text.size, id, 0, false, offset, loader->error));
    }
}

static enum ts_status count_elements(struct ts_json_loader *loader, const struct ts_json *at, const char *what,
                                     size_t *count)
{
    struct ts_json json = *at;
    if (json.kind != TS_JSON_ARRAY)
        return ts_fail(loader->error, TS_ERR_FORMAT, json.offset, "\"%s\" is not an array", what);
    for (*count = 0;; ++*count) {
        TS_TRY(ts_json_next(&json, loader->error));
        if (json.kind == TS_JSON_ARRAY_END)
            return TS_OK;
        TS_TRY(ts_json_skip_value(&json, loader->error));
    }
}

/* "a b", split at its one space. */
static enum ts_status split_merge(struct ts_json_loader *loader, const struct ts_json *at, struct ts_text sides[2])
{
    struct ts_text text;
    const char *space;
    TS_TRY(ts_json_text_at(loader, at, 0, &text));
    space = memchr(text.data, ' ', text.size);
    if (!space || memchr(space + 1, ' ', text.size - (size_t)(space + 1 - text.data)))
        return ts_fail(loader->error, TS_ERR_FORMAT, at->offset,
                       "the merge \"%.*s\" is not two tokens with a space between them",
                       text.size > 64 ? 64 : (int)text.size, text.data);
    sides[0] = (struct ts_text){.data = text.data, .size = (size_t)(space - text.data)};
    sides[1] = (struct ts_text){.data = space + 1, .size = text.size - sides[0].size - 1};
    return TS_OK;
}

/* ["a b", ...] or [["a", "b"], ...] */
static enum ts_status load_merges(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json json = *at;
    uint32_t rank = 0;
    if (json.kind != TS_JSON_ARRAY)
        return ts_fail(loader->error, TS_ERR_FORMAT, json.offset, "\"merges\" is not an array");
    for (;;) {
        struct ts_text sides[2];
        uint64_t offset;
        TS_TRY(ts_json_next(&json, loader->error));
        if (json.kind == TS_JSON_ARRAY_END)
            return TS_OK;
        offset = json.offset;
        if (json.kind == TS_JSON_ARRAY) {
            for (unsigned i = 0; i < 2; i++) {
                TS_TRY(ts_json_expect(&json, TS_JSON_STRING, "the two tokens of a merge", loader->error));
                TS_TRY(ts_json_text_at(loader, &json, i, &sides[i]));
            }
            TS_TRY(ts_json_expect(&json, TS_JSON_ARRAY_END, "a merge of two tokens", loader->error));
        } else if (json.kind != TS_JSON_STRING) {
            return ts_fail(loader->error, TS_ERR_FORMAT, offset, "a merge is neither a string nor two strings");
        } else if (json.raw_size >= 8 && memcmp(json.raw, "#version", 8) == 0) {
            continue; /* the first line of a merges.txt */
        } else {
            TS_TRY(split_merge(loader, &json, sides));
        }
        TS_TRY(ts_merges_add(loader->tokenizer, sides[0].data, sides[0].size, sides[1].data, sides[1].size, rank++,
                             offset, loader->error));
    }
}

static enum ts_status load_bpe(struct ts_json_loader *loader, const struct ts_json *at,
                               const struct ts_json_field *fields)
{
    struct ts_tokenizer *tokenizer = loader->tokenizer;
    const struct ts_json_field *dropout = &fields[DROPOUT];
    double probability = 0;
    tokenizer->kind = TS_MODEL_BPE;
    TS_TRY(ts_json_required(loader, at, "the model", &fields[VOCAB]));
    TS_TRY(ts_json_required(loader, at, "the model", &fields[MERGES]));
    TS_TRY(ts_json_text_field(loader, &fields[PREFIX], &tokenizer->prefix));
    TS_TRY(ts_json_text_field(loader, &fields[SUFFIX], &tokenizer->suffix));
    TS_TRY(ts_json_bool_field(loader, &fields[FUSE], &tokenizer->fuse_unknown));
    TS_TRY(ts_json_bool_field(loader, &fields[FALLBACK], &tokenizer->byte_fallback));
    TS_TRY(ts_json_bool_field(loader, &fields[IGNORE], &tokenizer->ignore_merges));
    if (dropout->present && dropout->at.kind == TS_JSON_NUMBER)
        TS_TRY(ts_json_double(&dropout->at, &probability, loader->error));
    if (probability != 0 || (dropout->present && dropout->at.kind != TS_JSON_NUMBER))
        return ts_fail(loader->error, TS_ERR_UNSUPPORTED, dropout->at.offset,
                       "tokenizer.json uses BPE with \"dropout\", which gives other tokens every time");
    if (tokenizer->byte_fallback && (tokenizer->prefix.size || tokenizer->suffix.size))
        return ts_fail(loader->error, TS_ERR_UNSUPPORTED, at->offset,
                       "tokenizer.json uses \"byte_fallback\" together with \"%s\", which is not supported",
                       tokenizer->prefix.size ? fields[PREFIX].name : fields[SUFFIX].name);
    TS_TRY(load_vocab(loader, &fields[VOCAB].at));
    return load_merges(loader, &fields[MERGES].at);
}

/* [["token", score], ...]; the id is the place. */
static enum ts_status load_unigram(struct ts_json_loader *loader, const struct ts_json *at,
                                   const struct ts_json_field *fields)
{
    struct ts_tokenizer *tokenizer = loader->tokenizer;
    struct ts_json json = fields[VOCAB].at;
    uint64_t unknown = UINT64_MAX;
    size_t count;
    tokenizer->kind = TS_MODEL_UNIGRAM;
    TS_TRY(ts_json_required(loader, at, "the model", &fields[VOCAB]));
    TS_TRY(ts_json_bool_field(loader, &fields[FALLBACK], &tokenizer->byte_fallback));
    TS_TRY(ts_json_size_field(loader, &fields[UNKNOWN_ID], &unknown));
    TS_TRY(count_elements(loader, &json, "vocab", &count));
    if (fields[UNKNOWN_ID].present && unknown >= count)
        return ts_fail(loader->error, TS_ERR_FORMAT, fields[UNKNOWN_ID].at.offset,
                       "\"unk_id\" is %" PRIu64 ", the vocabulary has %zu tokens", unknown, count);
    if (fields[UNKNOWN_ID].present)
        tokenizer->unknown = (uint32_t)unknown;
    tokenizer->scores = calloc(count + 1, sizeof *tokenizer->scores);
    if (!tokenizer->scores)
        return ts_fail_memory(loader->error);
    tokenizer->lowest = INFINITY;
    for (size_t i = 0; i < count; i++) {
        struct ts_text text;
        uint64_t offset;
        double score;
        TS_TRY(ts_json_expect(&json, TS_JSON_ARRAY, "a token and its score", loader->error));
        TS_TRY(ts_json_expect(&json, TS_JSON_STRING, "a token", loader->error));
        offset = json.offset;
        TS_TRY(ts_json_text_at(loader, &json, 0, &text));
        if (i >= TS_VOCAB_MAX_ID)
            return ts_fail(loader->error, TS_ERR_LIMIT, offset, "more than %" PRIu32 " tokens", TS_VOCAB_MAX_ID);
        if (text.size > LONGEST_UNIGRAM)
            return ts_fail(loader->error, TS_ERR_LIMIT, offset, "a token of %zu bytes, they end at %d", text.size,
                           LONGEST_UNIGRAM);
        TS_TRY(ts_vocab_add(&tokenizer->vocab, text.data, text.size, (uint32_t)i, 0, true, offset, loader->error));
        if (!ts_trie_add(&tokenizer->trie, text.data, text.size, (uint32_t)i))
            return ts_fail_memory(loader->error);
        TS_TRY(ts_json_expect(&json, TS_JSON_NUMBER, "the score of a token", loader->error));
        TS_TRY(ts_json_double(&json, &score, loader->error));
        tokenizer->scores[i] = score;
        if (score < tokenizer->lowest)
            tokenizer->lowest = score;
        TS_TRY(ts_json_expect(&json, TS_JSON_ARRAY_END, "a token and its score", loader->error));
    }
    return TS_OK;
}

static enum ts_status load_words(struct ts_json_loader *loader, const struct ts_json *at,
                                 const struct ts_json_field *fields, enum ts_model_kind kind)
{
    struct ts_tokenizer *tokenizer = loader->tokenizer;
    uint64_t longest = 100;
    tokenizer->kind = kind;
    if (kind == TS_MODEL_WORDPIECE)
        tokenizer->prefix = (struct ts_text){.data = "##", .size = 2};
    TS_TRY(ts_json_required(loader, at, "the model", &fields[VOCAB]));
    TS_TRY(ts_json_text_field(loader, &fields[PREFIX], &tokenizer->prefix));
    TS_TRY(ts_json_size_field(loader, &fields[LONGEST], &longest));
    if (longest > LONGEST_WORDPIECE)
        return ts_fail(loader->error, TS_ERR_LIMIT, fields[LONGEST].at.offset, "\"%s\" is %" PRIu64 ", it ends at %d",
                       fields[LONGEST].name, longest, LONGEST_WORDPIECE);
    tokenizer->longest_word = (size_t)longest;
    return load_vocab(loader, &fields[VOCAB].at);
}

static enum ts_status find_unknown(struct ts_json_loader *loader, const struct ts_json_field *field)
{
    struct ts_tokenizer *tokenizer = loader->tokenizer;
    struct ts_text text = {.data = "[UNK]", .size = 5};
    if (tokenizer->kind == TS_MODEL_UNIGRAM || (tokenizer->kind == TS_MODEL_BPE && !field->present))
        return TS_OK;
    TS_TRY(ts_json_text_field(loader, field, &text));
    tokenizer->has_unknown = true;
    tokenizer->unknown = ts_vocab_find(&tokenizer->vocab, text.data, text.size);
    return TS_OK;
}

static enum ts_status load_model(struct ts_json_loader *loader, const struct ts_json_field *model)
{
    const struct ts_json_field *fields = model->inner;
    const struct ts_json *at = &model->at;
    struct ts_text type = {.data = "", .size = 0};
    if (at->kind != TS_JSON_OBJECT)
        return ts_fail(loader->error, TS_ERR_FORMAT, at->offset, "\"model\" is not an object");
    TS_TRY(ts_json_text_field(loader, &fields[TYPE], &type));
    if (!fields[TYPE].present) /* older files do not say: by what is there */
        type.data = fields[MERGES].present                                            ? "BPE"
                    : fields[VOCAB].present && fields[VOCAB].at.kind == TS_JSON_ARRAY ? "Unigram"
                    : fields[LONGEST].present                                         ? "WordPiece"
                                                                                      : "WordLevel";
    if (strcmp(type.data, "BPE") == 0)
        TS_TRY(load_bpe(loader, at, fields));
    else if (strcmp(type.data, "Unigram") == 0)
        TS_TRY(load_unigram(loader, at, fields));
    else if (strcmp(type.data, "WordPiece") == 0)
        TS_TRY(load_words(loader, at, fields, TS_MODEL_WORDPIECE));
    else if (strcmp(type.data, "WordLevel") == 0)
        TS_TRY(load_words(loader, at, fields, TS_MODEL_WORDLEVEL));
    else
        return ts_fail(loader->error, TS_ERR_UNSUPPORTED, fields[TYPE].at.offset,
                       "tokenizer.json uses the model \"%.64s\", which is not supported", type.data);
    return find_unknown(loader, &fields[UNKNOWN]);
}

static enum ts_status load_added_token(struct ts_json_loader *loader, const struct ts_json *at, struct ts_added *added,
                                       bool *taken)
{
    struct ts_json_field fields[] = {{.name = "id"},     {.name = "content"}, {.name = "single_word"},
                                     {.name = "lstrip"}, {.name = "rstrip"},  {.name = "normalized"},
                                     {.name = "special"}};
    *added = (struct ts_added){.normalized = true};
    TS_TRY(ts_json_fields(loader, at, "an added token", fields, sizeof fields / sizeof *fields));
    TS_TRY(ts_json_required(loader, at, "an added token", &fields[0]));
    TS_TRY(ts_json_required(loader, at, "an added token", &fields[1]));
    TS_TRY(ts_json_id(loader, &fields[0].at, &added->id));
    TS_TRY(ts_json_text_field(loader, &fields[1], &added->text));
    TS_TRY(ts_json_bool_field(loader, &fields[2], &added->single_word));
    TS_TRY(ts_json_bool_field(loader, &fields[3], &added->left));
    TS_TRY(ts_json_bool_field(loader, &fields[4], &added->right));
    TS_TRY(ts_json_bool_field(loader, &fields[6], &added->special));
    added->normalized = !added->special;
    TS_TRY(ts_json_bool_field(loader, &fields[5], &added->normalized));
    if (added->text.size > TS_MAX_ADDED_SIZE)
        return ts_fail(loader->error, TS_ERR_LIMIT, fields[1].at.offset, "an added token of %zu bytes, they end at %d",
                       added->text.size, TS_MAX_ADDED_SIZE);
    *taken = added->text.size > 0;
    return TS_OK;
}

/* As the library numbers them, whatever the file says: a text of the vocabulary keeps its id, the others follow the
 * vocabulary in the order they stand in. Files that the library has written agree with it. */
static void number_added(struct ts_tokenizer *tokenizer)
{
    uint32_t next = (uint32_t)tokenizer->vocab.count;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        struct ts_added *added = &tokenizer->added[i];
        const uint32_t known = ts_vocab_find(&tokenizer->vocab, added->text.data, added->text.size);
        added->id = known != TS_NO_TOKEN ? known : next++;
    }
}

static int compare_added(const void *a, const void *b)
{
    const struct ts_added *left = *(const struct ts_added *const *)a, *right = *(const struct ts_added *const *)b;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* Two texts with one id would make it a matter of luck which of them is found. */
static enum ts_status check_added_ids(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_tokenizer *tokenizer = loader->tokenizer;
    const size_t count = tokenizer->added_count;
    struct ts_added **sorted = calloc(count + 1, sizeof *sorted);
    enum ts_status status = TS_OK;
    if (!sorted)
        return ts_fail_memory(loader->error);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &tokenizer->added[i];
    qsort(sorted, count, sizeof *sorted, compare_added);
    for (size_t i = 1; i < count && status == TS_OK; i++) {
        const struct ts_text one = sorted[i - 1]->text, other = sorted[i]->text;
        if (sorted[i - 1]->id == sorted[i]->id &&
            (one.size != other.size || memcmp(one.data, other.data, one.size) != 0))
            status = ts_fail(loader->error, TS_ERR_FORMAT, at->offset,
                             "the added tokens \"%.64s\" and \"%.64s\" have the same id %" PRIu32, one.data, other.data,
                             sorted[i]->id);
    }
    free(sorted);
    return status;
}

/* Of a text that stands there twice the last counts. */
static enum ts_status take_added(struct ts_json_loader *loader, struct ts_json *json, struct ts_trie *seen)
{
    struct ts_tokenizer *tokenizer = loader->tokenizer;
    struct ts_added added;
    bool taken = false;
    uint32_t before;
    TS_TRY(load_added_token(loader, json, &added, &taken));
    before = ts_trie_find(seen, added.text.data, added.text.size);
    if (before != TS_NO_TOKEN) {
        tokenizer->added[before] = added;
    } else if (taken) {
        if (!ts_trie_add(seen, added.text.data, added.text.size, (uint32_t)tokenizer->added_count))
            return ts_fail_memory(loader->error);
        tokenizer->added[tokenizer->added_count++] = added;
    }
    return ts_json_skip_value(json, loader->error);
}

static enum ts_status load_added(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_tokenizer *tokenizer = loader->tokenizer;
    struct ts_json json = *at;
    enum ts_status status = TS_OK;
    struct ts_trie seen;
    size_t count;
    TS_TRY(count_elements(loader, at, "added_tokens", &count));
    tokenizer->added = ts_arena_array(&tokenizer->arena, count, sizeof *tokenizer->added);
    if (!tokenizer->added)
        return ts_fail_memory(loader->error);
    ts_trie_init(&seen);
    for (size_t i = 0; i < count && status == TS_OK; i++) {
        status = ts_json_next(&json, loader->error);
        if (status == TS_OK)
            status = take_added(loader, &json, &seen);
    }
    ts_trie_release(&seen);
    if (status == TS_OK)
        status = check_added_ids(loader, at);
    if (status == TS_OK)
        number_added(tokenizer);
    return status;
}

static enum ts_status load(struct ts_json_loader *loader, const char *text, size_t size)
{
    struct ts_json_field model[MODEL_FIELDS] = {
        [TYPE] = {.name = "type"},
        [VOCAB] = {.name = "vocab"},
        [MERGES] = {.name = "merges"},
        [UNKNOWN] = {.name = "unk_token"},
        [UNKNOWN_ID] = {.name = "unk_id"},
        [PREFIX] = {.name = "continuing_subword_prefix"},
        [SUFFIX] = {.name = "end_of_word_suffix"},
        [FUSE] = {.name = "fuse_unk"},
        [FALLBACK] = {.name = "byte_fallback"},
        [IGNORE] = {.name = "ignore_merges"},
        [DROPOUT] = {.name = "dropout"},
        [LONGEST] = {.name = "max_input_chars_per_word"},
    };
    struct ts_json_field fields[] = {
        {.name = "model", .what = "\"model\"", .inner = model, .inner_count = MODEL_FIELDS},
        {.name = "added_tokens"},
        {.name = "normalizer"},
        {.name = "pre_tokenizer"},
        {.name = "post_processor"},
        {.name = "decoder"}};
    struct ts_json root;
    ts_json_init(&root, text, size);
    TS_TRY(ts_json_next(&root, loader->error));
    TS_TRY(walk_fields(loader, &root, "tokenizer.json", fields, sizeof fields / sizeof *fields));
    TS_TRY(ts_json_next(&root, loader->error)); /* nothing may stand behind it */
    TS_TRY(ts_json_required(loader, &root, "tokenizer.json", &fields[0]));
    TS_TRY(load_model(loader, &fields[0]));
    if (fields[1].present)
        TS_TRY(load_added(loader, &fields[1].at));
    if (fields[2].present)
        TS_TRY(ts_json_normalizer(loader, &fields[2].at));
    if (fields[3].present)
        TS_TRY(ts_json_pre_tokenizer(loader, &fields[3].at));
    if (fields[4].present)
        TS_TRY(ts_json_post_processor(loader, &fields[4].at));
    if (fields[5].present)
        TS_TRY(ts_json_decoder(loader, &fields[5].at));
    return ts_tokenizer_finish(loader->tokenizer, loader->error);
}

struct ts_tokenizer *ts_tokenizer_from_json(const char *text, size_t size, struct ts_error *error)
{
    struct ts_json_loader loader = {.tokenizer = ts_tokenizer_new(), .error = error};
    enum ts_status status;
    if (!loader.tokenizer) {
        ts_fail_memory(error);
        return NULL;
    }
    ts_buffer_init(&loader.text[0], LONGEST_TEXT);
    ts_buffer_init(&loader.text[1], LONGEST_TEXT);
    status = load(&loader, text, size);
    ts_buffer_release(&loader.text[0]);
    ts_buffer_release(&loader.text[1]);
    if (status == TS_OK)
        return loader.tokenizer;
    ts_tokenizer_free(loader.tokenizer);
    return NULL;
}
