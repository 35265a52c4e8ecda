/* Text: what is needed to show strings from hostile files and to order names as people count. */
#ifndef TS_BASE_TEXT_H
#define TS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* Number of valid UTF-8 bytes at the start; equals size when all of it is valid (no surrogates, no overlongs). */
size_t ts_utf8_valid_prefix(const char *text, size_t size);

/* Writes a character (at most 0x10ffff) as UTF-8; returns its length. */
unsigned ts_utf8_put(uint32_t code, char text[4]);

/* Appends text so that a terminal cannot be fooled: control characters (C0, DEL, C1), bidirectional overrides, what has
 * no width, and bytes that are not UTF-8 become \xNN or \u{NNNN}; backslash stays. Newlines are escaped too. */
void ts_text_escape(struct ts_buffer *out, const char *text, size_t size);

/* Columns the text takes on a terminal: combining marks 0, wide East Asian and emoji 2, everything else 1. Expects
 * escaped text. */
size_t ts_text_columns(const char *text, size_t size);

/* Compares with runs of digits as numbers: layer 9 before layer 10. Ties break by bytes, so it is a total order. */
int ts_natural_compare(const char *a, const char *b);

/* "1.5 GB", "12 B": powers of 1000, at most three significant digits. Returns text. */
char *ts_human_bytes(uint64_t bytes, char text[16]);
/* 1234567 -> "1,234,567". */
char *ts_human_count(uint64_t count, char text[32]);
/* 7241732096 -> "7.24 B": for parameter counts; up to 999 as is, then K, M, B, T. */
char *ts_human_params(uint64_t count, char text[16]);

/* Whatever the locale says. */
static inline bool ts_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The value of a hexadecimal digit, -1 for anything else. */
static inline int ts_hex_value(char c)
{
    if (ts_is_digit(c))
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool ts_starts_with(const char *text, const char *prefix);
bool ts_ends_with(const char *text, const char *suffix);

#endif
