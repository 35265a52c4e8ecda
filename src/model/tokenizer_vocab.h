/* The vocabulary of a tokenizer: token texts to ids and back; and a trie for finding the longest of many texts.
 *
 * Texts are bytes with a length: a token may hold any byte, a NUL too. */
#ifndef TS_MODEL_TOKENIZER_VOCAB_H
#define TS_MODEL_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

/* No vocabulary comes near: the largest known has a million entries. */
#define TS_VOCAB_MAX_ID ((uint32_t)1 << 24)
#define TS_NO_TOKEN     UINT32_MAX

struct ts_vocab_entry {
    uint32_t at, size; /* in the pool */
    uint32_t id;
    float score; /* SentencePiece's; 0 where there is none */
};

struct ts_vocab {
    struct ts_buffer pool; /* every text, a NUL behind each */
    struct ts_vocab_entry *entries;
    size_t count, capacity;
    uint64_t *slots; /* open addressing: half of the hash, then entry number + 1; 0 for none */
    size_t mask;
    uint32_t *by_id; /* entry number, or TS_NO_TOKEN */
    size_t ids;      /* one above the largest id */
    size_t by_id_capacity;
    size_t longest; /* text, in bytes */
};

void ts_vocab_init(struct ts_vocab *vocab);
void ts_vocab_release(struct ts_vocab *vocab);

/* Takes a token. A text that is there already is an error unless `again`: then the new id is what the text stands for,
 * and the old one keeps its text. An id that is taken is an error that names both texts. offset is where the file says
 * so. */
enum ts_status ts_vocab_add(struct ts_vocab *vocab, const char *text, size_t size, uint32_t id, float score, bool again,
                            uint64_t offset, struct ts_error *error);
/* The id of a text, or TS_NO_TOKEN. */
uint32_t ts_vocab_find(const struct ts_vocab *vocab, const char *text, size_t size);
/* The same entry whole, or NULL. */
const struct ts_vocab_entry *ts_vocab_entry(const struct ts_vocab *vocab, const char *text, size_t size);
/* The text of an id, or NULL. NUL-terminated. */
const char *ts_vocab_text(const struct ts_vocab *vocab, uint32_t id, size_t *size);

/* Trie: children of a node are a list; the root's are found at once. */
struct ts_trie_node {
    uint32_t child, sibling; /* 0: none; node 0 is no child of any */
    uint32_t value;          /* TS_NO_TOKEN: no text ends here */
    unsigned char byte;
};

struct ts_trie {
    struct ts_trie_node *nodes;
    size_t count, capacity;
    uint32_t roots[256];
};

void ts_trie_init(struct ts_trie *trie);
void ts_trie_release(struct ts_trie *trie);
/* A text that is there already gets the new value. Empty texts are not taken. False without memory. */
bool ts_trie_add(struct ts_trie *trie, const char *text, size_t size, uint32_t value);
/* The child of a node for a byte, 0 for none; node 0 is the root. */
uint32_t ts_trie_step(const struct ts_trie *trie, uint32_t node, unsigned char byte);

/* The value of a whole text, or TS_NO_TOKEN. */
uint32_t ts_trie_find(const struct ts_trie *trie, const char *text, size_t size);

#endif
