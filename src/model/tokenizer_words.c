/* Words to ids without merging: Unigram (the most probable of all ways to cut a word), WordPiece (the longest piece
 * from the left), and whole words. */
#include <string.h>

#include "model/tokenizer_parts.h"
#include "model/unicode.h"

/* How much less probable than the least of the vocabulary an unknown character is: SentencePiece's constant. */
#define UNKNOWN_PENALTY 10.0

static enum ts_status push_unknown(struct ts_work *work)
{
    if (work->tokenizer->unknown == TS_NO_TOKEN)
        return ts_fail(work->error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "the text has words that the tokenizer does not know, and it has no unknown token");
    return ts_work_push(work, work->tokenizer->unknown);
}

static void relax(struct ts_best *best, double score, uint32_t start, uint32_t id)
{
    if (best->start == UINT32_MAX || score > best->score)
        *best = (struct ts_best){.score = score, .start = start, .id = id};
}

/* The best way to every end, from the left. */
static void find_best(struct ts_work *work, const char *word, size_t size)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    struct ts_best *best = work->best;
    for (size_t i = 0; i <= size; i++)
        best[i] = (struct ts_best){.start = UINT32_MAX, .id = TS_NO_TOKEN};
    for (size_t at = 0, length; at < size; at += length) {
        const double here = best[at].score;
        bool single = false;
        uint32_t node = 0;
        length = ts_utf8_length(word[at]);
        for (size_t end = at; end < size && (node = ts_trie_step(&tokenizer->trie, node, (unsigned char)word[end]));) {
            const uint32_t id = tokenizer->trie.nodes[node].value;
            end++;
            if (id == TS_NO_TOKEN)
                continue;
            relax(&best[end], here + tokenizer->scores[id], (uint32_t)at, id);
            single = single || end - at == length;
        }
        if (!single)
            relax(&best[at + length], here + tokenizer->lowest - UNKNOWN_PENALTY, (uint32_t)at, tokenizer->unknown);
    }
}

/* A run of unknown characters: as a token of its own, as bytes, or the unknown token once. */
static enum ts_status push_run(struct ts_work *work, const char *text, size_t size)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    const uint32_t id = ts_vocab_find(&tokenizer->vocab, text, size);
    bool bytes = tokenizer->byte_fallback;
    if (id != TS_NO_TOKEN)
        return ts_work_push(work, id);
    for (size_t i = 0; i < size && bytes; i++)
        bytes = tokenizer->bytes[(unsigned char)text[i]] != TS_NO_TOKEN;
    if (!bytes)
        return push_unknown(work);
    for (size_t i = 0; i < size; i++)
        TS_TRY(ts_work_push(work, tokenizer->bytes[(unsigned char)text[i]]));
    return TS_OK;
}

enum ts_status ts_unigram_word(struct ts_work *work, const char *word, size_t size)
{
    const uint32_t unknown = work->tokenizer->unknown;
    struct ts_best *best;
    size_t end, at = 0;
    if (!ts_work_reserve(&work->best, &work->best_capacity, size + 1, sizeof *work->best))
        return ts_fail_memory(work->error);
    find_best(work, word, size);
    best = work->best;
    /* The way is known from its end: turn it round by leaving at each start the end that belongs to it. */
    for (end = size; end > 0;) {
        const struct ts_best step = best[end];
        if (step.id == TS_NO_TOKEN) /* only the unknown token can be missing */
            return push_unknown(work);
        work->best[step.start].score = (double)end; /* exact: texts are far shorter than 2^53 */
        end = step.start;
    }
    while (at < size) {
        size_t next = (size_t)best[at].score, run = next;
        if (best[next].id != unknown) {
            TS_TRY(push_run(work, word + at, next - at));
            at = next;
            continue;
        }
        while (run < size && best[(size_t)best[run].score].id == unknown)
            run = (size_t)best[run].score;
        TS_TRY(push_run(work, word + at, run - at));
        at = run;
    }
    return TS_OK;
}

enum ts_status ts_wordpiece_word(struct ts_work *work, const char *word, size_t size)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    const size_t before = work->id_count;
    size_t characters = 0;
    for (size_t at = 0; at < size; at += ts_utf8_length(word[at]))
        characters++;
    if (characters > tokenizer->longest_word)
        return push_unknown(work);
    for (size_t at = 0; at < size;) {
        size_t end = size;
        uint32_t id = TS_NO_TOKEN;
        if (size - at > tokenizer->vocab.longest) { /* no longer piece can be there */
            end = at + tokenizer->vocab.longest;
            while (((unsigned char)word[end] & 0xc0) == 0x80)
                end--;
        }
        for (; end > at; end--) {
            if (end < size && ((unsigned char)word[end] & 0xc0) == 0x80)
                continue;
            ts_buffer_clear(&work->scratch);
            if (at)
                ts_buffer_append(&work->scratch, tokenizer->prefix.data, tokenizer->prefix.size);
            if (!ts_buffer_append(&work->scratch, word + at, end - at))
                return ts_fail_memory(work->error);
            id = ts_vocab_find(&tokenizer->vocab, work->scratch.data, work->scratch.size);
            if (id != TS_NO_TOKEN)
                break;
        }
        if (id == TS_NO_TOKEN) {
            work->id_count = before;
            return push_unknown(work);
        }
        TS_TRY(ts_work_push(work, id));
        at = end;
    }
    return TS_OK;
}

enum ts_status ts_wordlevel_word(struct ts_work *work, const char *word, size_t size)
{
    const uint32_t id = ts_vocab_find(&work->tokenizer->vocab, word, size);
    return id == TS_NO_TOKEN ? push_unknown(work) : ts_work_push(work, id);
}
