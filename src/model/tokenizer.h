/* Tokenizer: from a text to the token ids a model was trained on, from a tokenizer.json or from the metadata of a
 * GGUF file.
 *
 * The ids are those of Hugging Face's tokenizers library for the same file. A GGUF file carries the vocabulary and the
 * name of a pre-tokenizer only; its ids are those of the tokenizer.json it was converted from. Added tokens
 * ("<|im_end|>") are found in the text, special or not. The settings for truncation and padding are not applied: a text
 * is tokenized whole. A part that is not supported is refused by name, never guessed.
 *
 * A tokenizer is never changed after it was made: any number of threads may use it. */
#ifndef TS_MODEL_TOKENIZER_H
#define TS_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/bundle.h"

struct ts_tokenizer;

/* From the bytes of a tokenizer.json, which may go afterwards. NULL with the error set. */
struct ts_tokenizer *ts_tokenizer_from_json(const char *text, size_t size, struct ts_error *error);
/* From the tokenizer.ggml.* keys of an opened GGUF file, which may be closed afterwards. NULL with the error set. */
struct ts_tokenizer *ts_tokenizer_from_gguf(const struct ts_bundle *bundle, struct ts_error *error);
void ts_tokenizer_free(struct ts_tokenizer *tokenizer); /* NULL is fine */

/* The ids of a UTF-8 text, with the special tokens of the post-processor (a leading <bos>) if asked. *ids is from
 * malloc, never NULL on success. A text that is not UTF-8 is refused with the offset of the byte, one of more than 64
 * MiB for its length. */
bool ts_tokenize(const struct ts_tokenizer *tokenizer, const char *text, size_t size, bool special, uint32_t **ids,
                 size_t *count, struct ts_error *error);

/* What a token stands for, for showing: " world" for "Ġworld" and "▁world". Tokens that are a part of a character give
 * bytes that are no UTF-8; escape them (ts_text_escape). NULL when no token has that id. */
const char *ts_token_piece(const struct ts_tokenizer *tokenizer, uint32_t id);
/* One above the largest id. */
size_t ts_tokenizer_size(const struct ts_tokenizer *tokenizer);

#endif
