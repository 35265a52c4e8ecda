/* Vocabulary and trie. */
#include "model/tokenizer_vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

/* 1 GiB of token texts: some hundred times the largest known. */
#define POOL_LIMIT ((size_t)1 << 30)

void ts_vocab_init(struct ts_vocab *vocab)
{
    memset(vocab, 0, sizeof *vocab);
    ts_buffer_init(&vocab->pool, POOL_LIMIT);
}

void ts_vocab_release(struct ts_vocab *vocab)
{
    ts_buffer_release(&vocab->pool);
    free(vocab->entries);
    free(vocab->slots);
    free(vocab->by_id);
}

static uint64_t slot_value(uint64_t hash, size_t entry)
{
    return (hash & ~(uint64_t)UINT32_MAX) | (entry + 1);
}

/* The slot that holds the text, or the free one where it belongs. There is always a free one. */
static uint64_t *slot_of(const struct ts_vocab *vocab, const char *text, size_t size, uint64_t hash)
{
    for (size_t at = (size_t)hash & vocab->mask;; at = (at + 1) & vocab->mask) {
        const uint64_t slot = vocab->slots[at];
        const struct ts_vocab_entry *entry;
        if (slot == 0)
            return &vocab->slots[at];
        if ((slot ^ hash) >> 32)
            continue;
        entry = &vocab->entries[(uint32_t)slot - 1];
        if (entry->size == size && memcmp(vocab->pool.data + entry->at, text, size) == 0)
            return &vocab->slots[at];
    }
}

const struct ts_vocab_entry *ts_vocab_entry(const struct ts_vocab *vocab, const char *text, size_t size)
{
    uint64_t slot;
    if (!vocab->slots || size > vocab->longest)
        return NULL;
    slot = *slot_of(vocab, text, size, XXH3_64bits(text, size));
    return slot ? &vocab->entries[(uint32_t)slot - 1] : NULL;
}

uint32_t ts_vocab_find(const struct ts_vocab *vocab, const char *text, size_t size)
{
    const struct ts_vocab_entry *entry = ts_vocab_entry(vocab, text, size);
    return entry ? entry->id : TS_NO_TOKEN;
}

const char *ts_vocab_text(const struct ts_vocab *vocab, uint32_t id, size_t *size)
{
    const struct ts_vocab_entry *entry;
    if (id >= vocab->ids || vocab->by_id[id] == TS_NO_TOKEN)
        return NULL;
    entry = &vocab->entries[vocab->by_id[id]];
    if (size)
        *size = entry->size;
    return vocab->pool.data + entry->at;
}

/* Room for one entry more, with at least half of the slots free. */
static bool grow_entries(struct ts_vocab *vocab)
{
    struct ts_vocab_entry *entries;
    uint64_t *slots;
    size_t capacity;
    if (vocab->count < vocab->capacity)
        return true;
    capacity = vocab->capacity ? vocab->capacity * 2 : 1024;
    entries = realloc(vocab->entries, capacity * sizeof *entries);
    if (!entries)
        return false;
    vocab->entries = entries;
    slots = calloc(capacity * 2, sizeof *slots);
    if (!slots)
        return false;
    free(vocab->slots);
    vocab->slots = slots;
    vocab->mask = capacity * 2 - 1;
    vocab->capacity = capacity;
    /* A text that stands there twice is found by its last entry. */
    for (size_t i = 0; i < vocab->count; i++) {
        const char *text = vocab->pool.data + entries[i].at;
        const uint64_t hash = XXH3_64bits(text, entries[i].size);
        *slot_of(vocab, text, entries[i].size, hash) = slot_value(hash, i);
    }
    return true;
}

static bool grow_ids(struct ts_vocab *vocab, uint32_t id)
{
    if (id >= vocab->by_id_capacity) {
        size_t capacity = vocab->by_id_capacity ? vocab->by_id_capacity : 1024;
        uint32_t *by_id;
        while (capacity <= id)
            capacity *= 2;
        by_id = realloc(vocab->by_id, capacity * sizeof *by_id);
        if (!by_id)
            return false;
        memset(by_id + vocab->by_id_capacity, 0xff, (capacity - vocab->by_id_capacity) * sizeof *by_id);
        vocab->by_id = by_id;
        vocab->by_id_capacity = capacity;
    }
    if (id >= vocab->ids)
        vocab->ids = (size_t)id + 1;
    return true;
}

enum ts_status ts_vocab_add(struct ts_vocab *vocab, const char *text, size_t size, uint32_t id, float score, bool again,
                            uint64_t offset, struct ts_error *error)
{
    const int shown = size > 64 ? 64 : (int)size;
    const uint64_t hash = XXH3_64bits(text, size);
    struct ts_vocab_entry *entry;
    uint64_t *slot;
    if (id >= TS_VOCAB_MAX_ID)
        return ts_fail(error, TS_ERR_LIMIT, offset, "token \"%.*s\" has the id %" PRIu32 ", ids end at %" PRIu32, shown,
                       text, id, TS_VOCAB_MAX_ID - 1);
    if (!grow_entries(vocab) || !grow_ids(vocab, id))
        return ts_fail_memory(error);
    if (vocab->by_id[id] != TS_NO_TOKEN)
        return ts_fail(error, TS_ERR_FORMAT, offset, "the tokens \"%.64s\" and \"%.*s\" have the same id %" PRIu32,
                       ts_vocab_text(vocab, id, NULL), shown, text, id);
    slot = slot_of(vocab, text, size, hash);
    if (*slot && !again)
        return ts_fail(error, TS_ERR_FORMAT, offset, "the token \"%.*s\" stands in the vocabulary twice", shown, text);
    entry = &vocab->entries[vocab->count];
    *entry =
        (struct ts_vocab_entry){.at = (uint32_t)vocab->pool.size, .size = (uint32_t)size, .id = id, .score = score};
    if (!ts_buffer_append(&vocab->pool, text, size) || !ts_buffer_byte(&vocab->pool, '\0'))
        return ts_fail_memory(error);
    vocab->by_id[id] = (uint32_t)vocab->count;
    *slot = slot_value(hash, vocab->count++);
    if (size > vocab->longest)
        vocab->longest = size;
    return TS_OK;
}

void ts_trie_init(struct ts_trie *trie)
{
    memset(trie, 0, sizeof *trie);
}

void ts_trie_release(struct ts_trie *trie)
{
    free(trie->nodes);
}

uint32_t ts_trie_step(const struct ts_trie *trie, uint32_t node, unsigned char byte)
{
    uint32_t child;
    if (node == 0)
        return trie->roots[byte];
    for (child = trie->nodes[node].child; child; child = trie->nodes[child].sibling)
        if (trie->nodes[child].byte == byte)
            return child;
    return 0;
}

static uint32_t new_node(struct ts_trie *trie, unsigned char byte)
{
    if (trie->count == trie->capacity) {
        size_t capacity = trie->capacity ? trie->capacity * 2 : 256;
        struct ts_trie_node *nodes;
        if (capacity > UINT32_MAX)
            return 0;
        nodes = realloc(trie->nodes, capacity * sizeof *nodes);
        if (!nodes)
            return 0;
        trie->nodes = nodes;
        trie->capacity = capacity;
    }
    if (trie->count == 0) /* the place of the root is never looked at */
        trie->nodes[trie->count++] = (struct ts_trie_node){.value = TS_NO_TOKEN};
    trie->nodes[trie->count] = (struct ts_trie_node){.value = TS_NO_TOKEN, .byte = byte};
    return (uint32_t)trie->count++;
}

bool ts_trie_add(struct ts_trie *trie, const char *text, size_t size, uint32_t value)
{
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)text[i];
        uint32_t next = ts_trie_step(trie, node, byte);
        if (next == 0) {
            next = new_node(trie, byte);
            if (next == 0)
                return false;
            if (node == 0) {
                trie->roots[byte] = next;
            } else {
                trie->nodes[next].sibling = trie->nodes[node].child;
                trie->nodes[node].child = next;
            }
        }
        node = next;
    }
    if (node)
        trie->nodes[node].value = value;
    return true;
}

uint32_t ts_trie_find(const struct ts_trie *trie, const char *text, size_t size)
{
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        node = ts_trie_step(trie, node, (unsigned char)text[i]);
        if (node == 0)
            return TS_NO_TOKEN;
    }
    return node ? trie->nodes[node].value : TS_NO_TOKEN;
}
