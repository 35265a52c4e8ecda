/* The words of GGUF's byte-pair tokenizers: what tokenizer.ggml.pre names. Between tokenizer_gguf.c and
 * tokenizer_gguf_words.c. */
#ifndef TS_MODEL_TOKENIZER_GGUF_H
#define TS_MODEL_TOKENIZER_GGUF_H

#include <stdbool.h>
#include <stddef.h>

#define TS_GGUF_PATTERNS 6

/* One way of cutting a text into words: patterns, each applied to the pieces that the one before left. */
struct ts_gguf_words {
    const char *names; /* between spaces, one at each end too */
    const char *patterns[TS_GGUF_PATTERNS];
    bool composed;      /* the tokenizer it was converted from puts the text into NFC */
    bool ignore_merges; /* a word that is a token is that token */
    bool add_bos;       /* unless the file says otherwise */
};

/* NULL when the name is not known. */
const struct ts_gguf_words *ts_gguf_words(const char *name);

#endif
