/* The regular expressions of tokenizers: written for Oniguruma (Ruby's dialect), run by PCRE2.
 *
 * tokenizer_pattern.c rewrites a pattern where the two dialects mean different things by the same words; what PCRE2
 * cannot do is refused when the pattern is made, never matched differently. Work is bounded: a pattern that needs
 * more than the limits of a search gives an error. */
#ifndef TS_MODEL_TOKENIZER_REGEX_H
#define TS_MODEL_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

struct ts_regex;

/* NULL with the error set: the message quotes the pattern. */
struct ts_regex *ts_regex_new(const char *pattern, size_t size, struct ts_error *error);
void ts_regex_free(struct ts_regex *regex); /* NULL is fine */

/* What one thread needs for searching, with any number of regexes. */
struct ts_regex_search;
struct ts_regex_search *ts_regex_search_new(void); /* NULL without memory */
void ts_regex_search_free(struct ts_regex_search *search);

/* The first match in text at or behind `from`; *found false when there is none. The text is valid UTF-8, and a whole:
 * nothing before or behind it is looked at. */
enum ts_status ts_regex_find(const struct ts_regex *regex, struct ts_regex_search *search, const char *text,
                             size_t size, size_t from, bool *found, size_t *start, size_t *end, struct ts_error *error);

/* The pattern as PCRE2 is to read it. */
enum ts_status ts_pattern_translate(const char *pattern, size_t size, struct ts_buffer *out, struct ts_error *error);

#endif
