/* Unicode as tokenizers need it: characters in and out of UTF-8, the classes their rules are written in, the four
 * normal forms, lower case. Over utf8proc, which brings the tables.
 *
 * Texts are valid UTF-8 here: whoever takes bytes from outside has asked ts_utf8_valid_prefix. */
#ifndef TS_MODEL_UNICODE_H
#define TS_MODEL_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/text.h"

enum ts_normal_form { TS_NFC, TS_NFD, TS_NFKC, TS_NFKD };

/* Bytes of the character that starts with this one. */
static inline unsigned ts_utf8_length(char first)
{
    const unsigned char byte = (unsigned char)first;
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/* The character at text, its length in bytes. */
static inline unsigned ts_utf8_get(const char *text, uint32_t *code)
{
    const unsigned char *at = (const unsigned char *)text;
    const unsigned length = ts_utf8_length(*text);
    switch (length) {
    case 1:
        *code = at[0];
        break;
    case 2:
        *code = (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
        break;
    case 3:
        *code = (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
        break;
    default:
        *code = (at[0] & 0x07u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
    }
    return length;
}

/* White_Space: what char::is_whitespace is in Rust and \s in Oniguruma. */
bool ts_unicode_is_space(uint32_t code);
bool ts_unicode_is_number(uint32_t code);      /* Nd, Nl, No */
bool ts_unicode_is_punctuation(uint32_t code); /* P*, and all of ASCII's, symbols included */
bool ts_unicode_is_mark(uint32_t code);        /* M* */
bool ts_unicode_is_nonspacing(uint32_t code);  /* Mn */
bool ts_unicode_is_word(uint32_t code);        /* \w of UTS 18: alphabetic, marks, decimal digits, Pc, joiners */
bool ts_unicode_is_control(uint32_t code);     /* Cc, Cf, Co */

/* Each appends to out; false when the buffer failed or there is no memory. */
bool ts_unicode_normalize(enum ts_normal_form form, const char *text, size_t size, struct ts_buffer *out);
bool ts_unicode_lower(const char *text, size_t size, struct ts_buffer *out);

#endif
