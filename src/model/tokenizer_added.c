/* Added tokens: texts that are found whole before anything else is done, the longest of those that start first. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

void ts_added_find(const struct ts_trie *trie, const char *text, size_t size, size_t from, size_t *start, size_t *end,
                   uint32_t *number)
{
    *number = UINT32_MAX;
    for (size_t at = from; at < size; at++) {
        uint32_t node = trie->roots[(unsigned char)text[at]];
        for (size_t behind = at + 1; node; node = ts_trie_step(trie, node, (unsigned char)text[behind++])) {
            if (trie->nodes[node].value != TS_NO_TOKEN) {
                *number = trie->nodes[node].value;
                *start = at;
                *end = behind;
            }
            if (behind == size)
                break;
        }
        if (*number != UINT32_MAX)
            return;
    }
}

static enum ts_status add_all(struct ts_tokenizer *tokenizer, struct ts_work *work)
{
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const struct ts_added *added = &tokenizer->added[i];
        struct ts_text text = added->text;
        bool first;
        if (added->normalized)
            TS_TRY(ts_normalize(work, text.data, text.size, &text, &first));
        if (!ts_trie_add(added->normalized ? &tokenizer->added_normalized : &tokenizer->added_plain, text.data,
                         text.size, (uint32_t)i))
            return ts_fail_memory(work->error);
    }
    return TS_OK;
}

enum ts_status ts_added_finish(struct ts_tokenizer *tokenizer, struct ts_error *error)
{
    struct ts_work work = {.tokenizer = tokenizer, .error = error};
    enum ts_status status;
    /* What a normalizer may make of the longest added token. */
    ts_buffer_init(&work.normal[0], 64 * TS_MAX_ADDED_SIZE);
    ts_buffer_init(&work.normal[1], 64 * TS_MAX_ADDED_SIZE);
    work.search = ts_regex_search_new();
    status = work.search ? add_all(tokenizer, &work) : ts_fail_memory(error);
    ts_regex_search_free(work.search);
    ts_buffer_release(&work.normal[0]);
    ts_buffer_release(&work.normal[1]);
    free(work.matches);
    return status;
}
