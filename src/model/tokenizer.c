/* The tokenizer itself: its life, the way of a text through its parts, and how its tokens are shown. */
#include "model/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/tokenizer_parts.h"
#include "model/unicode.h"

/* A prompt of ten million tokens is none. Merging takes up to fifty bytes for each of the text's, places in which fit
 * 32 bits. */
#define MAX_TEXT ((size_t)64 << 20)
/* What normalizers and pre-tokenizers may make of a text: the longest decomposition makes 11 bytes of one. */
#define GROWTH      64
#define GROWTH_BASE ((size_t)64 << 10)
/* Texts of steps, added tokens, templates. */
#define ARENA_LIMIT ((size_t)256 << 20)

struct ts_tokenizer *ts_tokenizer_new(void)
{
    struct ts_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return NULL;
    ts_arena_init(&tokenizer->arena, ARENA_LIMIT);
    ts_vocab_init(&tokenizer->vocab);
    ts_trie_init(&tokenizer->trie);
    ts_trie_init(&tokenizer->added_plain);
    ts_trie_init(&tokenizer->added_normalized);
    ts_buffer_init(&tokenizer->shown, (size_t)1 << 30);
    tokenizer->unknown = TS_NO_TOKEN;
    return tokenizer;
}

void ts_tokenizer_free(struct ts_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (size_t i = 0; i < tokenizer->normalizer_count; i++)
        ts_regex_free(tokenizer->normalizers[i].regex);
    for (size_t i = 0; i < tokenizer->splitter_count; i++)
        ts_regex_free(tokenizer->splitters[i].regex);
    ts_vocab_release(&tokenizer->vocab);
    ts_trie_release(&tokenizer->trie);
    ts_trie_release(&tokenizer->added_plain);
    ts_trie_release(&tokenizer->added_normalized);
    ts_buffer_release(&tokenizer->shown);
    ts_arena_release(&tokenizer->arena);
    free(tokenizer->merges);
    free(tokenizer->scores);
    free(tokenizer->shown_at);
    free(tokenizer);
}

static struct ts_step *next_step(struct ts_step *steps, size_t *count, const char *what, struct ts_error *error)
{
    if (*count == TS_MAX_STEPS) {
        ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "more than %d %s", TS_MAX_STEPS, what);
        return NULL;
    }
    return &steps[(*count)++];
}

struct ts_step *ts_tokenizer_normalizer(struct ts_tokenizer *tokenizer, struct ts_error *error)
{
    return next_step(tokenizer->normalizers, &tokenizer->normalizer_count, "normalizers", error);
}

struct ts_step *ts_tokenizer_splitter(struct ts_tokenizer *tokenizer, struct ts_error *error)
{
    return next_step(tokenizer->splitters, &tokenizer->splitter_count, "pre-tokenizers", error);
}

enum ts_status ts_tokenizer_text(struct ts_tokenizer *tokenizer, const char *data, size_t size, struct ts_text *text,
                                 struct ts_error *error)
{
    *text = (struct ts_text){.data = ts_arena_copy(&tokenizer->arena, size ? data : "", size), .size = size};
    return text->data ? TS_OK : ts_fail_memory(error);
}

bool ts_work_reserve(void *list, size_t *capacity, size_t count, size_t size)
{
    void *pointer; /* of any type, and so copied as bytes */
    size_t room;
    if (count <= *capacity)
        return true;
    room = *capacity > count / 2 ? 2 * *capacity : count;
    if (room < 64)
        room = 64;
    memcpy(&pointer, list, sizeof pointer);
    if (room > SIZE_MAX / size || !(pointer = realloc(pointer, room * size)))
        return false;
    memcpy(list, &pointer, sizeof pointer);
    *capacity = room;
    return true;
}

enum ts_status ts_work_push(struct ts_work *work, uint32_t id)
{
    if (work->id_count == work->id_capacity &&
        !ts_work_reserve(&work->ids, &work->id_capacity, work->id_count + 1, sizeof *work->ids))
        return ts_fail_memory(work->error);
    work->ids[work->id_count++] = id;
    return TS_OK;
}

static enum ts_status tokenize_words(struct ts_work *work, const char *text, size_t size, bool first)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    struct ts_spans *spans = &work->spans[0];
    enum ts_status (*model)(struct ts_work *, const char *, size_t);
    static enum ts_status (*const models[])(struct ts_work *, const char *, size_t) = {
        [TS_MODEL_BPE] = ts_merge_word,           [TS_MODEL_SCORES] = ts_merge_word,
        [TS_MODEL_UNIGRAM] = ts_unigram_word,     [TS_MODEL_WORDPIECE] = ts_wordpiece_word,
        [TS_MODEL_WORDLEVEL] = ts_wordlevel_word,
    };
    if (size == 0)
        return TS_OK;
    ts_buffer_clear(&work->text[0]);
    if (!ts_buffer_append(&work->text[0], text, size) ||
        !ts_work_reserve(&spans->list, &spans->capacity, 1, sizeof *spans->list))
        return ts_fail_memory(work->error);
    spans->list[0] = (struct ts_span){.size = size, .first = first};
    spans->count = 1;
    TS_TRY(ts_split_words(work));
    model = models[tokenizer->kind];
    for (size_t i = 0; i < spans->count; i++)
        TS_TRY(model(work, work->text[0].data + spans->list[i].at, spans->list[i].size));
    return TS_OK;
}

/* The character that ends at text[at], at > 0. */
static size_t character_before(const char *text, size_t at, uint32_t *code)
{
    do
        at--;
    while (((unsigned char)text[at] & 0xc0) == 0x80);
    ts_utf8_get(text + at, code);
    return at;
}

static bool stands_alone(const char *text, size_t size, size_t start, size_t end)
{
    uint32_t code;
    if (start > 0) {
        character_before(text, start, &code);
        if (ts_unicode_is_word(code))
            return false;
    }
    if (end == size)
        return true;
    ts_utf8_get(text + end, &code);
    return !ts_unicode_is_word(code);
}

static size_t skip_spaces_before(const char *text, size_t at)
{
    uint32_t code;
    while (at > 0) {
        const size_t before = character_before(text, at, &code);
        if (!ts_unicode_is_space(code))
            break;
        at = before;
    }
    return at;
}

static size_t skip_spaces(const char *text, size_t size, size_t at)
{
    uint32_t code;
    while (at < size) {
        const unsigned length = ts_utf8_get(text + at, &code);
        if (!ts_unicode_is_space(code))
            break;
        at += length;
    }
    return at;
}

static enum ts_status tokenize_normal(struct ts_work *work, const char *text, size_t size, bool first);

/* Cuts a text at added tokens of one trie; what is between them goes on: to the normalizers from the text as it is,
 * to the words from the normalized one. */
static enum ts_status cut_added(struct ts_work *work, const struct ts_trie *trie, const char *text, size_t size,
                                bool first, bool normalized)
{
    enum ts_status (*const go_on)(struct ts_work *, const char *, size_t, bool) =
        normalized ? tokenize_words : tokenize_normal;
    size_t done = 0, from = 0;
    while (from < size) {
        const struct ts_added *added;
        size_t start, end;
        uint32_t number;
        ts_added_find(trie, text, size, from, &start, &end, &number);
        if (number == UINT32_MAX)
            break;
        added = &work->tokenizer->added[number];
        from = end;
        if (added->single_word && !stands_alone(text, size, start, end))
            continue;
        if (added->left) {
            start = skip_spaces_before(text, start);
            if (start < done)
                start = done;
        }
        if (added->right)
            end = skip_spaces(text, size, end);
        if (done < start)
            TS_TRY(go_on(work, text + done, start - done, first && done == 0));
        TS_TRY(ts_work_push(work, added->id));
        done = end;
    }
    return done < size ? go_on(work, text + done, size - done, first && done == 0) : TS_OK;
}

static enum ts_status tokenize_normal(struct ts_work *work, const char *text, size_t size, bool first)
{
    struct ts_text normal;
    TS_TRY(ts_normalize(work, text, size, &normal, &first));
    return cut_added(work, &work->tokenizer->added_normalized, normal.data, normal.size, first, true);
}

/* The tokens of the text with those of the post-processor around them. A template may repeat the text, which it does
 * without special tokens too. */
static enum ts_status apply_template(struct ts_work *work, bool special)
{
    const struct ts_template *template = &work->tokenizer->template;
    const size_t count = work->id_count;
    size_t copies = 0, total, at = 0;
    uint32_t *ids;
    if (!template->ids)
        return TS_OK;
    for (size_t i = 0; i < template->count; i++)
        copies += template->ids[i] == TS_NO_TOKEN;
    if (count && copies > MAX_TEXT / count)
        return ts_fail(work->error, TS_ERR_LIMIT, TS_NO_OFFSET,
                       "the post-processor repeats the text %zu times, which makes too many tokens", copies);
    total = copies * count + (special ? template->count - copies : 0);
    ids = malloc((total + 1) * sizeof *ids);
    if (!ids)
        return ts_fail_memory(work->error);
    for (size_t i = 0; i < template->count; i++) {
        if (template->ids[i] == TS_NO_TOKEN && count) {
            memcpy(ids + at, work->ids, count * sizeof *ids);
            at += count;
        } else if (template->ids[i] != TS_NO_TOKEN && special) {
            ids[at++] = template->ids[i];
        }
    }
    free(work->ids);
    work->ids = ids;
    work->id_count = total;
    return TS_OK;
}

static enum ts_status tokenize(struct ts_work *work, const char *text, size_t size, bool special)
{
    const size_t valid = ts_utf8_valid_prefix(text, size);
    if (valid != size)
        return ts_fail(work->error, TS_ERR_FORMAT, valid,
                       "the text is not UTF-8: byte 0x%02x at offset %zu begins no character",
                       (unsigned char)text[valid], valid);
    if (size > MAX_TEXT)
        return ts_fail(work->error, TS_ERR_LIMIT, TS_NO_OFFSET, "a text of %zu bytes, texts end at %zu", size,
                       MAX_TEXT);
    work->search = ts_regex_search_new();
    /* Never NULL on success. */
    if (!work->search || !ts_work_reserve(&work->ids, &work->id_capacity, 1, sizeof *work->ids))
        return ts_fail_memory(work->error);
    for (int i = 0; i < 2; i++) {
        ts_buffer_init(&work->normal[i], GROWTH * size + GROWTH_BASE);
        ts_buffer_init(&work->text[i], GROWTH * size + GROWTH_BASE);
    }
    ts_buffer_init(&work->scratch, size + GROWTH_BASE);
    TS_TRY(cut_added(work, &work->tokenizer->added_plain, text, size, true, false));
    return apply_template(work, special);
}

bool ts_tokenize(const struct ts_tokenizer *tokenizer, const char *text, size_t size, bool special, uint32_t **ids,
                 size_t *count, struct ts_error *error)
{
    struct ts_work work = {.tokenizer = tokenizer, .error = error};
    const enum ts_status status = tokenize(&work, size ? text : "", size, special);
    ts_regex_search_free(work.search);
    for (int i = 0; i < 2; i++) {
        ts_buffer_release(&work.normal[i]);
        ts_buffer_release(&work.text[i]);
        free(work.spans[i].list);
    }
    ts_buffer_release(&work.scratch);
    free(work.matches);
    free(work.symbols);
    free(work.heap);
    free(work.best);
    *ids = status == TS_OK ? work.ids : NULL;
    *count = status == TS_OK ? work.id_count : 0;
    if (status != TS_OK)
        free(work.ids);
    return status == TS_OK;
}

/* <0x41> as its byte, or -1. */
static int fallback_byte(const char *text, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || !text[3] || !text[4])
        return -1;
    high = strchr(digits, text[3]);
    low = strchr(digits, text[4]);
    return high && low ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

/* Byte characters back to bytes; false when one of the characters is none. */
static bool append_bytes(struct ts_buffer *out, const char *text, size_t size, const uint16_t table[512])
{
    for (size_t at = 0; at < size;) {
        uint32_t code;
        at += ts_utf8_get(text + at, &code);
        if (code >= 512 || table[code] > 255)
            return false;
        ts_buffer_byte(out, (char)table[code]);
    }
    return true;
}

static void append_spaced(struct ts_buffer *out, const char *text, size_t size, struct ts_text mark)
{
    for (size_t at = 0; at < size;) {
        if (mark.size && size - at >= mark.size && memcmp(text + at, mark.data, mark.size) == 0) {
            ts_buffer_byte(out, ' ');
            at += mark.size;
        } else {
            ts_buffer_byte(out, text[at++]);
        }
    }
}

/* One above the largest id. */
static size_t id_count(const struct ts_tokenizer *tokenizer)
{
    size_t size = tokenizer->vocab.ids;
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id >= size)
            size = (size_t)tokenizer->added[i].id + 1;
    return size;
}

/* Added tokens are shown as they are. */
static enum ts_status show_added(struct ts_tokenizer *tokenizer, struct ts_error *error)
{
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const struct ts_added *added = &tokenizer->added[i];
        tokenizer->shown_at[added->id] = (uint32_t)tokenizer->shown.size;
        if (!ts_buffer_append(&tokenizer->shown, added->text.data, added->text.size + 1)) /* with its NUL */
            return ts_fail_memory(error);
    }
    return TS_OK;
}

/* Texts of the tokens as people read them; a NUL inside would end it. */
static enum ts_status make_shown(struct ts_tokenizer *tokenizer, struct ts_error *error)
{
    const size_t count = id_count(tokenizer);
    struct ts_buffer *out = &tokenizer->shown;
    uint16_t table[512];
    memset(table, 0xff, sizeof table);
    for (unsigned byte = 0; byte < 256; byte++)
        table[ts_byte_character((unsigned char)byte)] = (uint16_t)byte;
    tokenizer->shown_at = malloc((count + 1) * sizeof *tokenizer->shown_at);
    if (!tokenizer->shown_at)
        return ts_fail_memory(error);
    tokenizer->shown_count = count;
    for (size_t id = 0; id < count; id++) {
        const size_t start = out->size;
        size_t size;
        const char *text = ts_vocab_text(&tokenizer->vocab, (uint32_t)id, &size);
        int byte;
        tokenizer->shown_at[id] = TS_NO_TOKEN;
        if (!text || ts_utf8_valid_prefix(text, size) != size)
            continue;
        byte = tokenizer->show_fallback ? fallback_byte(text, size) : -1;
        if (byte >= 0)
            ts_buffer_byte(out, (char)byte);
        else if (tokenizer->show_bytes && !append_bytes(out, text, size, table))
            out->size = start;
        else if (!tokenizer->show_bytes)
            append_spaced(out, text, size, tokenizer->show_space);
        if (out->failed)
            return ts_fail_memory(error);
        if (out->size == start || memchr(out->data + start, '\0', out->size - start)) {
            out->size = start;
            continue;
        }
        if (!ts_buffer_byte(out, '\0'))
            return ts_fail_memory(error);
        tokenizer->shown_at[id] = (uint32_t)start;
    }
    return show_added(tokenizer, error);
}

enum ts_status ts_tokenizer_finish(struct ts_tokenizer *tokenizer, struct ts_error *error)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        tokenizer->bytes[byte] = ts_vocab_find(&tokenizer->vocab, text, 6);
    }
    for (unsigned code = 0; code < sizeof tokenizer->single / sizeof *tokenizer->single; code++) {
        char text[4];
        tokenizer->single[code] = ts_vocab_find(&tokenizer->vocab, text, ts_utf8_put(code, text));
    }
    TS_TRY(ts_added_finish(tokenizer, error));
    TS_TRY(make_shown(tokenizer, error));
    for (size_t i = 0; i < tokenizer->template.count; i++) {
        const uint32_t id = tokenizer->template.ids[i];
        if (id != TS_NO_TOKEN && !ts_token_piece(tokenizer, id))
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                           "the post-processor adds the token %" PRIu32 ", which is not in the vocabulary", id);
    }
    return TS_OK;
}

const char *ts_token_piece(const struct ts_tokenizer *tokenizer, uint32_t id)
{
    if (id < tokenizer->shown_count && tokenizer->shown_at[id] != TS_NO_TOKEN)
        return tokenizer->shown.data + tokenizer->shown_at[id];
    return ts_vocab_text(&tokenizer->vocab, id, NULL);
}

size_t ts_tokenizer_size(const struct ts_tokenizer *tokenizer)
{
    return tokenizer->shown_count;
}
