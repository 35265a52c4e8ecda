/* The parts of a tokenizer, between the files that make them (tokenizer_json*.c, tokenizer_gguf*.c) and those that run
 * them. Not for others.
 *
 * A text goes through them in this order, as in Hugging Face's tokenizers:
 *
 *     added tokens, those of the text as it is     tokenizer_added.c
 *     normalizers                                  tokenizer_normalize.c
 *     added tokens, those of the normalized text   tokenizer_added.c
 *     pre-tokenizers: text to words                tokenizer_split.c
 *     model: words to ids                          tokenizer_merge.c, tokenizer_words.c
 *     post-processors: special tokens around       tokenizer.c */
#ifndef TS_MODEL_TOKENIZER_PARTS_H
#define TS_MODEL_TOKENIZER_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "model/tokenizer.h"
#include "model/tokenizer_regex.h"
#include "model/tokenizer_vocab.h"

/* Of each kind; real ones have up to five. */
#define TS_MAX_STEPS 64
/* Longer added tokens are not to be found in any text. */
#define TS_MAX_ADDED_SIZE 4096

struct ts_text {
    const char *data; /* in the tokenizer's arena */
    size_t size;
};

enum ts_step_kind {
    /* normalizers */
    TS_STEP_NORMAL_FORM, /* form */
    TS_STEP_LOWERCASE,
    TS_STEP_PREPEND,       /* content */
    TS_STEP_REPLACE,       /* pattern by content */
    TS_STEP_STRIP,         /* left, right */
    TS_STEP_STRIP_ACCENTS, /* all marks */
    TS_STEP_STRIP_MARKS,   /* the nonspacing ones */
    TS_STEP_CLEAN,         /* BERT's: no control characters, one kind of space */
    TS_STEP_SPACE_CHINESE, /* BERT's: spaces around ideographs */
    TS_STEP_BYTES,         /* bytes as the characters GPT-2 shows them as */
    /* pre-tokenizers */
    TS_STEP_SPLIT,       /* pattern, behavior, invert */
    TS_STEP_CLASS,       /* characters of a class, behavior */
    TS_STEP_PREFIX,      /* a space in front of each word that has none */
    TS_STEP_WORD_BYTES,  /* as TS_STEP_BYTES, word by word */
    TS_STEP_METASPACE,   /* content, scheme, split */
    TS_STEP_FIXED_LENGTH /* length, in characters */
};

enum ts_behavior {
    TS_SPLIT_REMOVED,
    TS_SPLIT_ISOLATED,
    TS_SPLIT_MERGED_WITH_PREVIOUS,
    TS_SPLIT_MERGED_WITH_NEXT,
    TS_SPLIT_CONTIGUOUS
};

enum ts_prepend { TS_PREPEND_ALWAYS, TS_PREPEND_FIRST, TS_PREPEND_NEVER };

struct ts_step {
    enum ts_step_kind kind;
    int form;                      /* enum ts_normal_form */
    struct ts_regex *regex;        /* the pattern, or */
    struct ts_text literal;        /* a text to be found, not empty, or */
    bool (*member)(uint32_t code); /* a class of characters */
    struct ts_text content;
    enum ts_behavior behavior;
    enum ts_prepend scheme;
    bool invert, left, right, split;
    size_t length;
};

/* What a post-processor puts together: ids, and TS_NO_TOKEN where the text goes. */
struct ts_template {
    uint32_t *ids;
    size_t count;
};

struct ts_added {
    struct ts_text text;
    uint32_t id;
    bool single_word, left, right, normalized, special;
};

/* Pairs of ids to what they become: open addressing, `pair` UINT64_MAX where free. */
struct ts_merge {
    uint64_t pair;
    uint32_t rank, id;
};

enum ts_model_kind { TS_MODEL_BPE, TS_MODEL_SCORES, TS_MODEL_UNIGRAM, TS_MODEL_WORDPIECE, TS_MODEL_WORDLEVEL };

struct ts_tokenizer {
    struct ts_arena arena;
    struct ts_vocab vocab;
    enum ts_model_kind kind;
    /* BPE, and SentencePiece's merging by scores */
    struct ts_merge *merges;
    size_t merge_count;
    size_t merge_mask;             /* slots - 1; 0 without merges */
    struct ts_text prefix, suffix; /* continuing_subword_prefix, end_of_word_suffix */
    bool fuse_unknown, byte_fallback, ignore_merges, has_unknown;
    uint32_t unknown;     /* TS_NO_TOKEN when has_unknown and it is not in the vocabulary: an error when it is needed */
    uint32_t bytes[256];  /* <0x00> to <0xFF>, or TS_NO_TOKEN */
    uint32_t single[512]; /* ids of the first characters, or TS_NO_TOKEN */
    /* Unigram */
    struct ts_trie trie; /* id of each token */
    double *scores;      /* by id */
    double lowest;
    /* WordPiece */
    size_t longest_word;
    struct ts_step normalizers[TS_MAX_STEPS], splitters[TS_MAX_STEPS];
    size_t normalizer_count, splitter_count;
    struct ts_template template; /* ids NULL: the text alone */
    struct ts_added *added;
    size_t added_count;
    struct ts_trie added_plain, added_normalized; /* number in added */
    /* how pieces are shown */
    bool show_bytes, show_fallback;
    struct ts_text show_space; /* what stands for a space, or empty */
    struct ts_buffer shown;
    uint32_t *shown_at; /* by id, in shown; TS_NO_TOKEN: as in the vocabulary */
    size_t shown_count;
};

struct ts_span {
    size_t at, size;
    bool first; /* starts where the whole text starts */
};

struct ts_spans {
    struct ts_span *list;
    size_t count, capacity;
};

struct ts_match {
    size_t start, end;
    bool matched;
};

struct ts_symbol {
    uint32_t id, size;       /* size 0: merged into another */
    uint32_t start;          /* in the word */
    uint32_t previous, next; /* UINT32_MAX: none */
};

struct ts_candidate {
    uint64_t key; /* rank, then place: the smallest is next */
    uint32_t id;  /* what it becomes */
};

struct ts_best {
    double score;
    uint32_t start, id; /* start UINT32_MAX: not reached */
};

/* What one call of ts_tokenize works with. */
struct ts_work {
    const struct ts_tokenizer *tokenizer;
    struct ts_regex_search *search;
    uint32_t *ids;
    size_t id_count, id_capacity;
    struct ts_buffer normal[2]; /* texts between normalizers */
    struct ts_buffer text[2];   /* texts between pre-tokenizers */
    struct ts_spans spans[2];
    struct ts_match *matches;
    size_t match_count, match_capacity;
    struct ts_symbol *symbols;
    size_t symbol_count, symbol_capacity;
    struct ts_candidate *heap;
    size_t heap_count, heap_capacity;
    struct ts_best *best;
    size_t best_capacity;
    struct ts_buffer scratch;
    struct ts_error *error;
};

/* Makes room for `count` elements of that size, at least doubling; false without memory. `list` is the address of the
 * pointer to them. */
bool ts_work_reserve(void *list, size_t *capacity, size_t count, size_t size);
enum ts_status ts_work_push(struct ts_work *work, uint32_t id);

/* Characters that stand for bytes in GPT-2's vocabularies: 0x20 is U+0120. */
uint32_t ts_byte_character(unsigned char byte);
bool ts_append_byte_characters(struct ts_buffer *out, const char *text, size_t size);

/* All matches of a step's pattern and what is between them, into work->matches. */
enum ts_status ts_find_matches(struct ts_work *work, const struct ts_step *step, const char *text, size_t size);

/* The text after all normalizers: in one of work->normal, or the text itself. Tokens are normalized by it too. *first
 * becomes false when what the text starts with was taken away. */
enum ts_status ts_normalize(struct ts_work *work, const char *text, size_t size, struct ts_text *normal, bool *first);

/* Splits work->text[0], one span of it or more, into words. */
enum ts_status ts_split_words(struct ts_work *work);

/* The next added token of a trie in text[from ..); *number UINT32_MAX when there is none. */
void ts_added_find(const struct ts_trie *trie, const char *text, size_t size, size_t from, size_t *start, size_t *end,
                   uint32_t *number);
/* Makes the tries, once the normalizers and the vocabulary are there. */
enum ts_status ts_added_finish(struct ts_tokenizer *tokenizer, struct ts_error *error);

/* The ids of one word, which is not empty. */
enum ts_status ts_merge_word(struct ts_work *work, const char *word, size_t size);
enum ts_status ts_unigram_word(struct ts_work *work, const char *word, size_t size);
enum ts_status ts_wordpiece_word(struct ts_work *work, const char *word, size_t size);
enum ts_status ts_wordlevel_word(struct ts_work *work, const char *word, size_t size);

/* Takes a merge. offset is where the file says so. */
enum ts_status ts_merges_add(struct ts_tokenizer *tokenizer, const char *left, size_t left_size, const char *right,
                             size_t right_size, uint32_t rank, uint64_t offset, struct ts_error *error);

/* A tokenizer with nothing in it. */
struct ts_tokenizer *ts_tokenizer_new(void);
/* The next place for a step; NULL with the error set past the limit. Zeroed. */
struct ts_step *ts_tokenizer_normalizer(struct ts_tokenizer *tokenizer, struct ts_error *error);
struct ts_step *ts_tokenizer_splitter(struct ts_tokenizer *tokenizer, struct ts_error *error);
/* Copies a text into the arena. */
enum ts_status ts_tokenizer_text(struct ts_tokenizer *tokenizer, const char *data, size_t size, struct ts_text *text,
                                 struct ts_error *error);
/* Once all parts are there: tables that are derived from them. */
enum ts_status ts_tokenizer_finish(struct ts_tokenizer *tokenizer, struct ts_error *error);

#endif
