/* tokenizer.json: normalizers, pre-tokenizers, post-processors, and of decoders what is needed to show a token.
 *
 * Sequences inside sequences come out as one list: they do the same. */
#include "model/tokenizer_json.h"

#include <inttypes.h>
#include <string.h>

#include "model/unicode.h"

/* Sequences in sequences; one is what is seen. */
#define MAX_NESTING 8
/* Parts of a template; three is what is seen. */
#define MAX_TEMPLATE 256

/* GPT-2's words, which ByteLevel has built in. */
#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* Words and what is between them, by Rust's \w, which is not Oniguruma's. */
#define RUST_WORD    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
#define WORD_PATTERN "[" RUST_WORD "]+|[^\\s" RUST_WORD "]+"

typedef enum ts_status (*step_loader)(struct ts_json_loader *loader, const struct ts_json *at);

struct step_type {
    const char *name;
    step_loader load;
};

/* One part of a file: what its types are called and where a sequence keeps its list. */
struct family {
    const char *what, *list;
    const struct step_type *types;
    size_t count;
    bool ignore_unknown;
};

static enum ts_status load_step(struct ts_json_loader *loader, const struct ts_json *at, const struct family *family,
                                unsigned depth)
{
    struct ts_json_field fields[] = {{.name = "type"}, {.name = family->list}};
    struct ts_text type;
    struct ts_json json;
    TS_TRY(ts_json_fields(loader, at, family->what, fields, 2));
    TS_TRY(ts_json_required(loader, at, family->what, &fields[0]));
    TS_TRY(ts_json_text_field(loader, &fields[0], &type));
    if (strcmp(type.data, "Sequence") != 0) {
        for (size_t i = 0; i < family->count; i++)
            if (strcmp(type.data, family->types[i].name) == 0)
                return family->types[i].load(loader, at);
        if (family->ignore_unknown)
            return TS_OK;
        return ts_fail(loader->error, TS_ERR_UNSUPPORTED, fields[0].at.offset,
                       "tokenizer.json uses the %s \"%.64s\", which is not supported", family->what, type.data);
    }
    if (depth == MAX_NESTING)
        return ts_fail(loader->error, TS_ERR_LIMIT, at->offset, "sequences are nested deeper than %d levels",
                       MAX_NESTING);
    TS_TRY(ts_json_required(loader, at, family->what, &fields[1]));
    json = fields[1].at;
    if (json.kind != TS_JSON_ARRAY)
        return ts_fail(loader->error, TS_ERR_FORMAT, json.offset, "\"%s\" is not an array", family->list);
    for (;;) {
        TS_TRY(ts_json_next(&json, loader->error));
        if (json.kind == TS_JSON_ARRAY_END)
            return TS_OK;
        TS_TRY(load_step(loader, &json, family, depth + 1));
        TS_TRY(ts_json_skip_value(&json, loader->error));
    }
}

/* {"String": "..."} or {"Regex": "..."} */
static enum ts_status load_pattern(struct ts_json_loader *loader, const struct ts_json *object,
                                   const struct ts_json_field *field, struct ts_step *step)
{
    struct ts_json_field fields[] = {{.name = "String"}, {.name = "Regex"}};
    struct ts_text text = {.data = "", .size = 0};
    TS_TRY(ts_json_required(loader, object, "a step with a pattern", field));
    TS_TRY(ts_json_fields(loader, &field->at, "\"pattern\"", fields, 2));
    if (fields[0].present == fields[1].present)
        return ts_fail(loader->error, TS_ERR_FORMAT, field->at.offset,
                       "a pattern is neither a \"String\" nor a \"Regex\"");
    if (fields[0].present) {
        TS_TRY(ts_json_text_field(loader, &fields[0], &step->literal));
        if (step->literal.size)
            return TS_OK;
        step->regex = ts_regex_new("", 0, loader->error); /* nothing is found everywhere */
    } else {
        TS_TRY(ts_json_text_field(loader, &fields[1], &text));
        step->regex = ts_regex_new(text.data, text.size, loader->error);
    }
    if (!step->regex && loader->error->offset == TS_NO_OFFSET)
        loader->error->offset = field->at.offset;
    return step->regex ? TS_OK : loader->error->status;
}

static enum ts_status add_normalizer(struct ts_json_loader *loader, enum ts_step_kind kind, struct ts_step **step)
{
    *step = ts_tokenizer_normalizer(loader->tokenizer, loader->error);
    if (!*step)
        return loader->error->status;
    (*step)->kind = kind;
    return TS_OK;
}

static enum ts_status add_splitter(struct ts_json_loader *loader, enum ts_step_kind kind, struct ts_step **step)
{
    *step = ts_tokenizer_splitter(loader->tokenizer, loader->error);
    if (!*step)
        return loader->error->status;
    (*step)->kind = kind;
    return TS_OK;
}

static enum ts_status add_form(struct ts_json_loader *loader, enum ts_normal_form form)
{
    struct ts_step *step;
    TS_TRY(add_normalizer(loader, TS_STEP_NORMAL_FORM, &step));
    step->form = (int)form;
    return TS_OK;
}

static enum ts_status normalizer_nfc(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    return add_form(loader, TS_NFC);
}

static enum ts_status normalizer_nfd(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    return add_form(loader, TS_NFD);
}

static enum ts_status normalizer_nfkc(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    return add_form(loader, TS_NFKC);
}

static enum ts_status normalizer_nfkd(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    return add_form(loader, TS_NFKD);
}

static enum ts_status normalizer_lowercase(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_step *step;
    (void)at;
    return add_normalizer(loader, TS_STEP_LOWERCASE, &step);
}

static enum ts_status normalizer_strip_accents(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_step *step;
    (void)at;
    return add_normalizer(loader, TS_STEP_STRIP_ACCENTS, &step);
}

static enum ts_status normalizer_byte_level(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_step *step;
    (void)at;
    loader->tokenizer->show_bytes = true;
    return add_normalizer(loader, TS_STEP_BYTES, &step);
}

static enum ts_status normalizer_prepend(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field field = {.name = "prepend"};
    struct ts_step *step;
    TS_TRY(add_normalizer(loader, TS_STEP_PREPEND, &step));
    TS_TRY(ts_json_fields(loader, at, "the normalizer Prepend", &field, 1));
    TS_TRY(ts_json_required(loader, at, "the normalizer Prepend", &field));
    return ts_json_text_field(loader, &field, &step->content);
}

static enum ts_status normalizer_replace(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {{.name = "pattern"}, {.name = "content"}};
    struct ts_step *step;
    TS_TRY(add_normalizer(loader, TS_STEP_REPLACE, &step));
    TS_TRY(ts_json_fields(loader, at, "the normalizer Replace", fields, 2));
    TS_TRY(ts_json_required(loader, at, "the normalizer Replace", &fields[1]));
    TS_TRY(ts_json_text_field(loader, &fields[1], &step->content));
    return load_pattern(loader, at, &fields[0], step);
}

static enum ts_status normalizer_strip(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {{.name = "strip_left"}, {.name = "strip_right"}};
    struct ts_step *step;
    TS_TRY(add_normalizer(loader, TS_STEP_STRIP, &step));
    step->left = step->right = true;
    TS_TRY(ts_json_fields(loader, at, "the normalizer Strip", fields, 2));
    TS_TRY(ts_json_bool_field(loader, &fields[0], &step->left));
    return ts_json_bool_field(loader, &fields[1], &step->right);
}

static enum ts_status normalizer_bert(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {
        {.name = "clean_text"}, {.name = "handle_chinese_chars"}, {.name = "lowercase"}, {.name = "strip_accents"}};
    bool clean = true, chinese = true, lower = true, accents;
    struct ts_step *step;
    TS_TRY(ts_json_fields(loader, at, "the normalizer BertNormalizer", fields, 4));
    TS_TRY(ts_json_bool_field(loader, &fields[0], &clean));
    TS_TRY(ts_json_bool_field(loader, &fields[1], &chinese));
    TS_TRY(ts_json_bool_field(loader, &fields[2], &lower));
    accents = lower;
    TS_TRY(ts_json_bool_field(loader, &fields[3], &accents));
    if (clean)
        TS_TRY(add_normalizer(loader, TS_STEP_CLEAN, &step));
    if (chinese)
        TS_TRY(add_normalizer(loader, TS_STEP_SPACE_CHINESE, &step));
    if (accents) {
        TS_TRY(add_form(loader, TS_NFD));
        TS_TRY(add_normalizer(loader, TS_STEP_STRIP_MARKS, &step));
    }
    return lower ? add_normalizer(loader, TS_STEP_LOWERCASE, &step) : TS_OK;
}

enum ts_status ts_json_normalizer(struct ts_json_loader *loader, const struct ts_json *at)
{
    static const struct step_type types[] = {
        {"NFC", normalizer_nfc},
        {"NFD", normalizer_nfd},
        {"NFKC", normalizer_nfkc},
        {"NFKD", normalizer_nfkd},
        {"Lowercase", normalizer_lowercase},
        {"StripAccents", normalizer_strip_accents},
        {"ByteLevel", normalizer_byte_level},
        {"Prepend", normalizer_prepend},
        {"Replace", normalizer_replace},
        {"Strip", normalizer_strip},
        {"BertNormalizer", normalizer_bert},
    };
    static const struct family family = {"normalizer", "normalizers", types, sizeof types / sizeof *types, false};
    return load_step(loader, at, &family, 0);
}

/* A pattern of our own. */
static enum ts_status add_known_pattern(struct ts_json_loader *loader, const char *pattern, enum ts_behavior behavior,
                                        bool invert)
{
    struct ts_step *step;
    TS_TRY(add_splitter(loader, TS_STEP_SPLIT, &step));
    step->behavior = behavior;
    step->invert = invert;
    step->regex = ts_regex_new(pattern, strlen(pattern), loader->error);
    return step->regex ? TS_OK : loader->error->status;
}

static enum ts_status add_class(struct ts_json_loader *loader, bool (*member)(uint32_t), enum ts_behavior behavior)
{
    struct ts_step *step;
    TS_TRY(add_splitter(loader, TS_STEP_CLASS, &step));
    step->member = member;
    step->behavior = behavior;
    return TS_OK;
}

static enum ts_status load_behavior(struct ts_json_loader *loader, const struct ts_json_field *field,
                                    enum ts_behavior *behavior)
{
    static const char *const names[] = {
        [TS_SPLIT_REMOVED] = "Removed",
        [TS_SPLIT_ISOLATED] = "Isolated",
        [TS_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [TS_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [TS_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    struct ts_text text;
    if (!field->present)
        return TS_OK;
    TS_TRY(ts_json_text_field(loader, field, &text));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text.data, names[i]) == 0) {
            *behavior = (enum ts_behavior)i;
            return TS_OK;
        }
    return ts_fail(loader->error, TS_ERR_UNSUPPORTED, field->at.offset,
                   "tokenizer.json uses the behavior \"%.64s\", which is not supported", text.data);
}

static enum ts_status pre_byte_level(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {{.name = "add_prefix_space"}, {.name = "use_regex"}};
    bool prefix = true, regex = true;
    struct ts_step *step;
    TS_TRY(ts_json_fields(loader, at, "the pre-tokenizer ByteLevel", fields, 2));
    TS_TRY(ts_json_bool_field(loader, &fields[0], &prefix));
    TS_TRY(ts_json_bool_field(loader, &fields[1], &regex));
    if (prefix)
        TS_TRY(add_splitter(loader, TS_STEP_PREFIX, &step));
    if (regex)
        TS_TRY(add_known_pattern(loader, GPT2_PATTERN, TS_SPLIT_ISOLATED, false));
    loader->tokenizer->show_bytes = true;
    return add_splitter(loader, TS_STEP_WORD_BYTES, &step);
}

static enum ts_status pre_split(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {{.name = "pattern"}, {.name = "behavior"}, {.name = "invert"}};
    struct ts_step *step;
    TS_TRY(add_splitter(loader, TS_STEP_SPLIT, &step));
    TS_TRY(ts_json_fields(loader, at, "the pre-tokenizer Split", fields, 3));
    TS_TRY(ts_json_required(loader, at, "the pre-tokenizer Split", &fields[1]));
    TS_TRY(load_behavior(loader, &fields[1], &step->behavior));
    TS_TRY(ts_json_bool_field(loader, &fields[2], &step->invert));
    return load_pattern(loader, at, &fields[0], step);
}

static enum ts_status pre_metaspace(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {
        {.name = "replacement"}, {.name = "prepend_scheme"}, {.name = "add_prefix_space"}, {.name = "split"}};
    static const char *const schemes[] = {
        [TS_PREPEND_ALWAYS] = "always", [TS_PREPEND_FIRST] = "first", [TS_PREPEND_NEVER] = "never"};
    struct ts_text scheme = {.data = "always", .size = 6};
    bool prefix = true;
    struct ts_step *step;
    size_t i = 0;
    TS_TRY(add_splitter(loader, TS_STEP_METASPACE, &step));
    step->split = true;
    TS_TRY(ts_json_fields(loader, at, "the pre-tokenizer Metaspace", fields, 4));
    TS_TRY(ts_json_required(loader, at, "the pre-tokenizer Metaspace", &fields[0]));
    TS_TRY(ts_json_text_field(loader, &fields[0], &step->content));
    TS_TRY(ts_json_text_field(loader, &fields[1], &scheme));
    TS_TRY(ts_json_bool_field(loader, &fields[2], &prefix));
    TS_TRY(ts_json_bool_field(loader, &fields[3], &step->split));
    if (step->content.size == 0 || ts_utf8_length(step->content.data[0]) != step->content.size)
        return ts_fail(loader->error, TS_ERR_FORMAT, fields[0].at.offset, "\"replacement\" is not one character");
    while (i < 3 && strcmp(scheme.data, schemes[i]) != 0)
        i++;
    if (i == 3)
        return ts_fail(loader->error, TS_ERR_UNSUPPORTED, fields[1].at.offset,
                       "tokenizer.json uses the prepend_scheme \"%.64s\", which is not supported", scheme.data);
    step->scheme = prefix ? (enum ts_prepend)i : TS_PREPEND_NEVER;
    loader->tokenizer->show_space = step->content;
    return TS_OK;
}

static enum ts_status pre_digits(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field field = {.name = "individual_digits"};
    bool individual = false;
    TS_TRY(ts_json_fields(loader, at, "the pre-tokenizer Digits", &field, 1));
    TS_TRY(ts_json_bool_field(loader, &field, &individual));
    return add_class(loader, ts_unicode_is_number, individual ? TS_SPLIT_ISOLATED : TS_SPLIT_CONTIGUOUS);
}

static enum ts_status pre_whitespace(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    return add_known_pattern(loader, WORD_PATTERN, TS_SPLIT_REMOVED, true);
}

static enum ts_status pre_whitespace_split(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    return add_class(loader, ts_unicode_is_space, TS_SPLIT_REMOVED);
}

static enum ts_status pre_punctuation(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field field = {.name = "behavior"};
    enum ts_behavior behavior = TS_SPLIT_ISOLATED;
    TS_TRY(ts_json_fields(loader, at, "the pre-tokenizer Punctuation", &field, 1));
    TS_TRY(load_behavior(loader, &field, &behavior));
    return add_class(loader, ts_unicode_is_punctuation, behavior);
}

static enum ts_status pre_bert(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    TS_TRY(add_class(loader, ts_unicode_is_space, TS_SPLIT_REMOVED));
    return add_class(loader, ts_unicode_is_punctuation, TS_SPLIT_ISOLATED);
}

static enum ts_status pre_delimiter(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field field = {.name = "delimiter"};
    struct ts_step *step;
    TS_TRY(add_splitter(loader, TS_STEP_SPLIT, &step));
    TS_TRY(ts_json_fields(loader, at, "the pre-tokenizer CharDelimiterSplit", &field, 1));
    TS_TRY(ts_json_required(loader, at, "the pre-tokenizer CharDelimiterSplit", &field));
    TS_TRY(ts_json_text_field(loader, &field, &step->literal));
    step->behavior = TS_SPLIT_REMOVED;
    if (step->literal.size == 0)
        return ts_fail(loader->error, TS_ERR_FORMAT, field.at.offset, "\"delimiter\" is not one character");
    return TS_OK;
}

static enum ts_status pre_fixed_length(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field field = {.name = "length"};
    struct ts_step *step;
    uint64_t length = 5;
    TS_TRY(add_splitter(loader, TS_STEP_FIXED_LENGTH, &step));
    TS_TRY(ts_json_fields(loader, at, "the pre-tokenizer FixedLength", &field, 1));
    TS_TRY(ts_json_size_field(loader, &field, &length));
    if (length == 0)
        return ts_fail(loader->error, TS_ERR_FORMAT, field.at.offset, "\"length\" is 0");
    step->length = length > SIZE_MAX ? SIZE_MAX : (size_t)length;
    return TS_OK;
}

enum ts_status ts_json_pre_tokenizer(struct ts_json_loader *loader, const struct ts_json *at)
{
    static const struct step_type types[] = {
        {"ByteLevel", pre_byte_level},         {"Split", pre_split},
        {"Metaspace", pre_metaspace},          {"Digits", pre_digits},
        {"Whitespace", pre_whitespace},        {"WhitespaceSplit", pre_whitespace_split},
        {"Punctuation", pre_punctuation},      {"BertPreTokenizer", pre_bert},
        {"CharDelimiterSplit", pre_delimiter}, {"Delimiter", pre_delimiter},
        {"FixedLength", pre_fixed_length},
    };
    static const struct family family = {"pre-tokenizer", "pretokenizers", types, sizeof types / sizeof *types, false};
    return load_step(loader, at, &family, 0);
}

static enum ts_status add_template(struct ts_json_loader *loader, const struct ts_json *at, const uint32_t *ids,
                                   size_t count)
{
    struct ts_tokenizer *tokenizer = loader->tokenizer;
    struct ts_template *template = &tokenizer->template;
    if (template->ids)
        return ts_fail(loader->error, TS_ERR_UNSUPPORTED, at->offset,
                       "tokenizer.json uses several post-processors that add tokens, which is not supported");
    template->ids = ts_arena_array(&tokenizer->arena, count, sizeof *ids);
    if (!template->ids)
        return ts_fail_memory(loader->error);
    if (count)
        memcpy(template->ids, ids, count * sizeof *ids);
    template->count = count;
    return TS_OK;
}

/* ["</s>", 2] */
static enum ts_status load_pair_id(struct ts_json_loader *loader, const struct ts_json *object,
                                   const struct ts_json_field *field, uint32_t *id)
{
    struct ts_json json = field->at;
    TS_TRY(ts_json_required(loader, object, "the post-processor", field));
    if (json.kind != TS_JSON_ARRAY)
        return ts_fail(loader->error, TS_ERR_FORMAT, json.offset, "\"%s\" is not a token and its id", field->name);
    TS_TRY(ts_json_expect(&json, TS_JSON_STRING, "a token", loader->error));
    TS_TRY(ts_json_expect(&json, TS_JSON_NUMBER, "the id of a token", loader->error));
    return ts_json_id(loader, &json, id);
}

/* BERT's and RoBERTa's differ only for pairs of texts. */
static enum ts_status post_around(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {{.name = "cls"}, {.name = "sep"}};
    uint32_t ids[3] = {0, TS_NO_TOKEN, 0};
    TS_TRY(ts_json_fields(loader, at, "the post-processor", fields, 2));
    TS_TRY(load_pair_id(loader, at, &fields[0], &ids[0]));
    TS_TRY(load_pair_id(loader, at, &fields[1], &ids[2]));
    return add_template(loader, at, ids, 3);
}

static enum ts_status post_nothing(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)loader;
    (void)at;
    return TS_OK;
}

/* {"ids": [1, 2], ...} of a special token, appended to ids. */
static enum ts_status append_special(struct ts_json_loader *loader, const struct ts_json *map, const char *name,
                                     uint64_t offset, uint32_t *ids, size_t *count)
{
    struct ts_json_field token = {.name = name}, list = {.name = "ids"};
    struct ts_json json;
    TS_TRY(ts_json_fields(loader, map, "\"special_tokens\"", &token, 1));
    if (!token.present)
        return ts_fail(loader->error, TS_ERR_FORMAT, offset,
                       "the template names \"%.64s\", which is not in \"special_tokens\"", name);
    TS_TRY(ts_json_fields(loader, &token.at, "a special token", &list, 1));
    TS_TRY(ts_json_required(loader, &token.at, "a special token", &list));
    json = list.at;
    if (json.kind != TS_JSON_ARRAY)
        return ts_fail(loader->error, TS_ERR_FORMAT, json.offset, "\"ids\" is not an array");
    for (;;) {
        TS_TRY(ts_json_next(&json, loader->error));
        if (json.kind == TS_JSON_ARRAY_END)
            return TS_OK;
        if (*count == MAX_TEMPLATE)
            return ts_fail(loader->error, TS_ERR_LIMIT, json.offset, "a template has more than %d parts", MAX_TEMPLATE);
        TS_TRY(ts_json_id(loader, &json, &ids[(*count)++]));
    }
}

/* One part of a template: {"Sequence": {"id": "A"}} or {"SpecialToken": {"id": "<s>"}}. */
static enum ts_status append_piece(struct ts_json_loader *loader, const struct ts_json *at,
                                   const struct ts_json_field *map, uint32_t *ids, size_t *count)
{
    struct ts_json_field kinds[] = {{.name = "Sequence"}, {.name = "SpecialToken"}}, id = {.name = "id"};
    struct ts_text text;
    const struct ts_json *piece;
    TS_TRY(ts_json_fields(loader, at, "a part of a template", kinds, 2));
    if (kinds[0].present == kinds[1].present)
        return ts_fail(loader->error, TS_ERR_FORMAT, at->offset,
                       "a part of a template is neither a \"Sequence\" nor a \"SpecialToken\"");
    piece = kinds[0].present ? &kinds[0].at : &kinds[1].at;
    TS_TRY(ts_json_fields(loader, piece, "a part of a template", &id, 1));
    TS_TRY(ts_json_required(loader, piece, "a part of a template", &id));
    TS_TRY(ts_json_text_field(loader, &id, &text));
    if (kinds[1].present) {
        TS_TRY(ts_json_required(loader, at, "a template with special tokens", map));
        return append_special(loader, &map->at, text.data, id.at.offset, ids, count);
    }
    if (strcmp(text.data, "A") != 0)
        return ts_fail(loader->error, TS_ERR_FORMAT, id.at.offset,
                       "the template for one text has a sequence \"%.16s\", expected \"A\"", text.data);
    if (*count == MAX_TEMPLATE)
        return ts_fail(loader->error, TS_ERR_LIMIT, at->offset, "a template has more than %d parts", MAX_TEMPLATE);
    ids[(*count)++] = TS_NO_TOKEN;
    return TS_OK;
}

static enum ts_status post_template(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {{.name = "single"}, {.name = "special_tokens"}};
    uint32_t ids[MAX_TEMPLATE];
    size_t count = 0;
    struct ts_json json;
    TS_TRY(ts_json_fields(loader, at, "the post-processor TemplateProcessing", fields, 2));
    TS_TRY(ts_json_required(loader, at, "the post-processor TemplateProcessing", &fields[0]));
    json = fields[0].at;
    if (json.kind != TS_JSON_ARRAY)
        return ts_fail(loader->error, TS_ERR_FORMAT, json.offset, "\"single\" is not an array");
    for (size_t pieces = 0;; pieces++) {
        TS_TRY(ts_json_next(&json, loader->error));
        if (json.kind == TS_JSON_ARRAY_END)
            return add_template(loader, at, ids, count);
        if (pieces == MAX_TEMPLATE) /* even if their tokens have no ids */
            return ts_fail(loader->error, TS_ERR_LIMIT, json.offset, "a template has more than %d parts", MAX_TEMPLATE);
        TS_TRY(append_piece(loader, &json, &fields[1], ids, &count));
        TS_TRY(ts_json_skip_value(&json, loader->error));
    }
}

enum ts_status ts_json_post_processor(struct ts_json_loader *loader, const struct ts_json *at)
{
    static const struct step_type types[] = {
        {"TemplateProcessing", post_template},
        {"ByteLevel", post_nothing}, /* it trims offsets */
        {"RobertaProcessing", post_around},
        {"BertProcessing", post_around},
    };
    static const struct family family = {"post-processor", "processors", types, sizeof types / sizeof *types, false};
    return load_step(loader, at, &family, 0);
}

static enum ts_status decoder_byte_level(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    loader->tokenizer->show_bytes = true;
    return TS_OK;
}

static enum ts_status decoder_byte_fallback(struct ts_json_loader *loader, const struct ts_json *at)
{
    (void)at;
    loader->tokenizer->show_fallback = true;
    return TS_OK;
}

static enum ts_status decoder_metaspace(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field field = {.name = "replacement"};
    TS_TRY(ts_json_fields(loader, at, "the decoder Metaspace", &field, 1));
    return ts_json_text_field(loader, &field, &loader->tokenizer->show_space);
}

/* What is replaced by a space stands for one. */
static enum ts_status decoder_replace(struct ts_json_loader *loader, const struct ts_json *at)
{
    struct ts_json_field fields[] = {{.name = "pattern"}, {.name = "content"}}, string = {.name = "String"};
    struct ts_text content = {.data = "", .size = 0};
    TS_TRY(ts_json_fields(loader, at, "the decoder Replace", fields, 2));
    TS_TRY(ts_json_text_field(loader, &fields[1], &content));
    if (strcmp(content.data, " ") != 0 || !fields[0].present)
        return TS_OK;
    TS_TRY(ts_json_fields(loader, &fields[0].at, "\"pattern\"", &string, 1));
    return ts_json_text_field(loader, &string, &loader->tokenizer->show_space);
}

enum ts_status ts_json_decoder(struct ts_json_loader *loader, const struct ts_json *at)
{
    static const struct step_type types[] = {
        {"ByteLevel", decoder_byte_level},
        {"ByteFallback", decoder_byte_fallback},
        {"Metaspace", decoder_metaspace},
        {"Replace", decoder_replace},
    };
    static const struct family family = {"decoder", "decoders", types, sizeof types / sizeof *types, true};
    return load_step(loader, at, &family, 0);
}
