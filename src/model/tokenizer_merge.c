/* Words to ids by merging: byte-pair encoding by ranked pairs, and SentencePiece's by the scores of what comes out.
 *
 * Both start from single characters and merge the best pair until none is left; a heap of candidates makes that
 * n log n. A candidate is not taken out when one of its sides is merged away: it is found to be stale when it comes
 * up. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "model/tokenizer_parts.h"
#include "model/unicode.h"

#define NONE UINT32_MAX

/* Merges are looked up a dozen times per word; the multiplier is 2^64 over the golden ratio. */
static size_t merge_slot(const struct ts_tokenizer *tokenizer, uint64_t pair)
{
    const uint64_t mixed = (pair ^ pair >> 29) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed ^ mixed >> 32) & tokenizer->merge_mask;
}

static const struct ts_merge *find_merge(const struct ts_tokenizer *tokenizer, uint32_t left, uint32_t right)
{
    const uint64_t pair = (uint64_t)left << 32 | right;
    if (tokenizer->merge_mask == 0)
        return NULL;
    for (size_t at = merge_slot(tokenizer, pair);; at = (at + 1) & tokenizer->merge_mask) {
        if (tokenizer->merges[at].pair == pair)
            return &tokenizer->merges[at];
        if (tokenizer->merges[at].pair == UINT64_MAX)
            return NULL;
    }
}

/* Twice the room, or the first. */
static bool grow_merges(struct ts_tokenizer *tokenizer)
{
    const size_t before = tokenizer->merges ? tokenizer->merge_mask + 1 : 0, slots = before ? 2 * before : 4096;
    struct ts_merge *old = tokenizer->merges;
    tokenizer->merges = malloc(slots * sizeof *old);
    if (!tokenizer->merges) {
        tokenizer->merges = old;
        return false;
    }
    memset(tokenizer->merges, 0xff, slots * sizeof *old);
    tokenizer->merge_mask = slots - 1;
    for (size_t i = 0; i < before; i++) {
        size_t at = merge_slot(tokenizer, old[i].pair);
        if (old[i].pair == UINT64_MAX)
            continue;
        while (tokenizer->merges[at].pair != UINT64_MAX)
            at = (at + 1) & tokenizer->merge_mask;
        tokenizer->merges[at] = old[i];
    }
    free(old);
    return true;
}

enum ts_status ts_merges_add(struct ts_tokenizer *tokenizer, const char *left, size_t left_size, const char *right,
                             size_t right_size, uint32_t rank, uint64_t offset, struct ts_error *error)
{
    const uint32_t ids[2] = {ts_vocab_find(&tokenizer->vocab, left, left_size),
                             ts_vocab_find(&tokenizer->vocab, right, right_size)};
    const char *texts[2] = {left, right};
    const size_t sizes[2] = {left_size, right_size}, skipped = tokenizer->prefix.size;
    char few[256], *whole = few;
    uint64_t pair;
    uint32_t id;
    size_t size, at;
    for (int i = 0; i < 2; i++)
        if (ids[i] == TS_NO_TOKEN)
            return ts_fail(error, TS_ERR_FORMAT, offset,
                           "merge %" PRIu32 " names \"%.*s\", which is not in the vocabulary", rank,
                           sizes[i] > 64 ? 64 : (int)sizes[i], texts[i]);
    if (right_size < skipped)
        return ts_fail(error, TS_ERR_FORMAT, offset, "merge %" PRIu32 " does not begin with continuing_subword_prefix",
                       rank);
    size = left_size + right_size - skipped; /* both are in the vocabulary, whose texts are far from overflowing */
    if (size > sizeof few && !(whole = malloc(size)))
        return ts_fail_memory(error);
    memcpy(whole, left, left_size);
    memcpy(whole + left_size, right + skipped, right_size - skipped);
    id = ts_vocab_find(&tokenizer->vocab, whole, size);
    if (id == TS_NO_TOKEN)
        ts_fail(error, TS_ERR_FORMAT, offset, "merge %" PRIu32 " makes \"%.*s\", which is not in the vocabulary", rank,
                size > 64 ? 64 : (int)size, whole);
    if (whole != few)
        free(whole);
    if (id == TS_NO_TOKEN)
        return error->status;
    if (2 * tokenizer->merge_count >= tokenizer->merge_mask && !grow_merges(tokenizer))
        return ts_fail_memory(error);
    pair = (uint64_t)ids[0] << 32 | ids[1];
    for (at = merge_slot(tokenizer, pair); tokenizer->merges[at].pair != UINT64_MAX;
         at = (at + 1) & tokenizer->merge_mask)
        if (tokenizer->merges[at].pair == pair)
            break; /* of a pair that stands there twice the last counts */
    tokenizer->merge_count += tokenizer->merges[at].pair == UINT64_MAX;
    tokenizer->merges[at] = (struct ts_merge){.pair = pair, .rank = rank, .id = id};
    return TS_OK;
}

/* Scores as numbers that sort the other way round: the best is the smallest. */
static uint32_t score_rank(float score)
{
    uint32_t bits = ts_float_bits(score + 0.0f); /* -0 is 0 */
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~bits;
}

/* What two neighbours become; false when they do not merge. */
static bool look_up(const struct ts_work *work, const char *word, const struct ts_symbol *left,
                    const struct ts_symbol *right, uint32_t *rank, uint32_t *id)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    const struct ts_vocab_entry *entry;
    const struct ts_merge *merge;
    if (tokenizer->kind == TS_MODEL_SCORES) {
        entry = ts_vocab_entry(&tokenizer->vocab, word + left->start, (size_t)left->size + right->size);
        if (!entry)
            return false;
        *rank = score_rank(entry->score);
        *id = entry->id;
        return true;
    }
    merge = find_merge(tokenizer, left->id, right->id);
    if (!merge)
        return false;
    *rank = merge->rank;
    *id = merge->id;
    return true;
}

static enum ts_status push_candidate(struct ts_work *work, const char *word, uint32_t left, uint32_t right)
{
    struct ts_candidate *heap, candidate;
    uint32_t rank;
    size_t at;
    if (left == NONE || right == NONE ||
        !look_up(work, word, &work->symbols[left], &work->symbols[right], &rank, &candidate.id))
        return TS_OK;
    if (!ts_work_reserve(&work->heap, &work->heap_capacity, work->heap_count + 1, sizeof *work->heap))
        return ts_fail_memory(work->error);
    heap = work->heap;
    candidate.key = (uint64_t)rank << 32 | left;
    for (at = work->heap_count++; at > 0 && heap[(at - 1) / 2].key > candidate.key; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = candidate;
    return TS_OK;
}

static struct ts_candidate pop_candidate(struct ts_work *work)
{
    struct ts_candidate *heap = work->heap, top = heap[0], last = heap[--work->heap_count];
    const size_t count = work->heap_count;
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1].key < heap[child].key)
            child++;
        if (heap[child].key >= last.key)
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

static enum ts_status merge_symbols(struct ts_work *work, const char *word)
{
    struct ts_symbol *symbols = work->symbols;
    work->heap_count = 0;
    for (size_t i = 0; i + 1 < work->symbol_count; i++)
        TS_TRY(push_candidate(work, word, (uint32_t)i, (uint32_t)i + 1));
    while (work->heap_count) {
        const struct ts_candidate candidate = pop_candidate(work);
        const uint32_t at = (uint32_t)candidate.key;
        uint32_t rank, id;
        struct ts_symbol *left = &symbols[at], *right;
        if (left->size == 0 || left->next == NONE)
            continue;
        right = &symbols[left->next];
        /* Stale unless the two still become the same. */
        if (!look_up(work, word, left, right, &rank, &id) || id != candidate.id)
            continue;
        left->id = id;
        left->size += right->size;
        right->size = 0;
        left->next = right->next;
        if (left->next != NONE)
            symbols[left->next].previous = at;
        TS_TRY(push_candidate(work, word, left->previous, at));
        TS_TRY(push_candidate(work, word, at, left->next));
    }
    return TS_OK;
}

static void add_symbol(struct ts_work *work, uint32_t id, size_t start, size_t size)
{
    const uint32_t at = (uint32_t)work->symbol_count++;
    work->symbols[at] = (struct ts_symbol){
        .id = id, .size = (uint32_t)size, .start = (uint32_t)start, .previous = at ? at - 1 : NONE, .next = NONE};
    if (at)
        work->symbols[at - 1].next = at;
}

/* The id of one character of a word, with what the model wants before and behind it. */
static uint32_t character_id(struct ts_work *work, const char *text, size_t size, bool first, bool last)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    if ((first || !tokenizer->prefix.size) && (!last || !tokenizer->suffix.size)) {
        uint32_t code;
        ts_utf8_get(text, &code);
        if (code < sizeof tokenizer->single / sizeof *tokenizer->single)
            return tokenizer->single[code];
        return ts_vocab_find(&tokenizer->vocab, text, size);
    }
    ts_buffer_clear(&work->scratch);
    if (!first)
        ts_buffer_append(&work->scratch, tokenizer->prefix.data, tokenizer->prefix.size);
    ts_buffer_append(&work->scratch, text, size);
    if (last)
        ts_buffer_append(&work->scratch, tokenizer->suffix.data, tokenizer->suffix.size);
    return ts_vocab_find(&tokenizer->vocab, work->scratch.data, work->scratch.size);
}

static bool all_bytes(const struct ts_tokenizer *tokenizer, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (tokenizer->bytes[(unsigned char)text[i]] == TS_NO_TOKEN)
            return false;
    return true;
}

static enum ts_status no_unknown(struct ts_work *work)
{
    return ts_fail(work->error, TS_ERR_FORMAT, TS_NO_OFFSET,
                   "the text has characters that the tokenizer does not know, and its unknown token is not in its "
                   "vocabulary");
}

/* The characters of a word as symbols. A character that is not known is its bytes, or the unknown token: one for a
 * run of them if so set. */
static enum ts_status start_symbols(struct ts_work *work, const char *word, size_t size)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    size_t unknown_start = 0, unknown_size = 0;
    work->symbol_count = 0;
    if (!ts_work_reserve(&work->symbols, &work->symbol_capacity, size, sizeof *work->symbols))
        return ts_fail_memory(work->error);
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t id;
        length = ts_utf8_length(word[at]);
        id = character_id(work, word + at, length, at == 0, at + length == size);
        if (id != TS_NO_TOKEN) {
            if (unknown_size)
                add_symbol(work, tokenizer->unknown, unknown_start, unknown_size);
            unknown_size = 0;
            add_symbol(work, id, at, length);
            continue;
        }
        if (tokenizer->byte_fallback && all_bytes(tokenizer, word + at, length)) {
            for (size_t i = 0; i < length; i++)
                add_symbol(work, tokenizer->bytes[(unsigned char)word[at + i]], at + i, 1);
            continue;
        }
        if (!tokenizer->has_unknown)
            continue; /* it is left out, as the library does */
        if (tokenizer->unknown == TS_NO_TOKEN)
            return no_unknown(work);
        if (unknown_size && !tokenizer->fuse_unknown) {
            add_symbol(work, tokenizer->unknown, unknown_start, unknown_size);
            unknown_size = 0;
        }
        if (!unknown_size)
            unknown_start = at;
        unknown_size += length;
    }
    if (unknown_size)
        add_symbol(work, tokenizer->unknown, unknown_start, unknown_size);
    return TS_OK;
}

/* SentencePiece's merging looks at texts, so that characters that are not known stay as they are until the end. */
static enum ts_status merge_by_scores(struct ts_work *work, const char *word, size_t size)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    work->symbol_count = 0;
    if (!ts_work_reserve(&work->symbols, &work->symbol_capacity, size, sizeof *work->symbols))
        return ts_fail_memory(work->error);
    for (size_t at = 0, length; at < size; at += length) {
        length = ts_utf8_length(word[at]);
        add_symbol(work, ts_vocab_find(&tokenizer->vocab, word + at, length), at, length);
    }
    TS_TRY(merge_symbols(work, word));
    for (size_t i = 0; i < work->symbol_count; i++) {
        const struct ts_symbol *symbol = &work->symbols[i];
        if (symbol->size == 0)
            continue;
        if (symbol->id != TS_NO_TOKEN) {
            TS_TRY(ts_work_push(work, symbol->id));
        } else if (all_bytes(tokenizer, word + symbol->start, symbol->size)) {
            for (size_t j = 0; j < symbol->size; j++)
                TS_TRY(ts_work_push(work, tokenizer->bytes[(unsigned char)word[symbol->start + j]]));
        } else if (tokenizer->unknown == TS_NO_TOKEN) {
            return no_unknown(work);
        } else {
            TS_TRY(ts_work_push(work, tokenizer->unknown));
        }
    }
    return TS_OK;
}

enum ts_status ts_merge_word(struct ts_work *work, const char *word, size_t size)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    if (tokenizer->kind == TS_MODEL_SCORES)
        return merge_by_scores(work, word, size);
    if (tokenizer->ignore_merges) {
        const uint32_t id = ts_vocab_find(&tokenizer->vocab, word, size);
        if (id != TS_NO_TOKEN)
            return ts_work_push(work, id);
    }
    TS_TRY(start_symbols(work, word, size));
    if (work->symbol_count > 1)
        TS_TRY(merge_symbols(work, word));
    for (size_t i = 0; i < work->symbol_count; i++)
        if (work->symbols[i].size)
            TS_TRY(ts_work_push(work, work->symbols[i].id));
    return TS_OK;
}
