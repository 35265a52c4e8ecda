#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* The text is copied into a block of its exact size, so that a sanitizer sees any read past its end. */
static void check_prefix(const char *text, size_t size, size_t want)
{
    char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    assert_int_equal(ts_utf8_valid_prefix(copy, size), want);
    free(copy);
}

static void test_utf8_valid(void **state)
{
    (void)state;
    check_prefix("", 0, 0);
    check_prefix("abc", 3, 3);
    check_prefix("a\0b", 3, 3);
    check_prefix("abcdefghijklmnop", 16, 16);
    check_prefix("\xc2\x80\xdf\xbf", 4, 4);
    check_prefix("\xe0\xa0\x80\xef\xbf\xbf", 6, 6);
    check_prefix("\xed\x9f\xbf\xee\x80\x80", 6, 6);
    check_prefix("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8, 8);
    check_prefix("12345678\xc3\xa9", 10, 10);
    check_prefix("1234567\xc3\xa9", 9, 9); /* across the eight-byte step */
}

static void test_utf8_invalid(void **state)
{
    (void)state;
    check_prefix("\x80", 1, 0);
    check_prefix("a\xbf", 2, 1);
    check_prefix("\xc0\x80", 2, 0); /* overlong */
    check_prefix("\xc1\xbf", 2, 0);
    check_prefix("\xe0\x9f\xbf", 3, 0);
    check_prefix("\xf0\x8f\xbf\xbf", 4, 0);
    check_prefix("\xed\xa0\x80", 3, 0); /* surrogates */
    check_prefix("\xed\xbf\xbf", 3, 0);
    check_prefix("\xf4\x90\x80\x80", 4, 0); /* past the end */
    check_prefix("\xf5\x80\x80\x80", 4, 0);
    check_prefix("\xf8\x88\x80\x80\x80", 5, 0);
    check_prefix("\xfe", 1, 0);
    check_prefix("\xff", 1, 0);
    check_prefix("ab\xc3", 3, 2); /* cut off */
    check_prefix("ab\xe2\x82", 4, 2);
    check_prefix("ab\xf0\x9f\x98", 5, 2);
    check_prefix("\xc3(", 2, 0); /* not continued */
    check_prefix("\xe2\x82(", 3, 0);
    check_prefix("\xe2(\xac", 3, 0);
    check_prefix("\xf0\x9f\x98(", 4, 0);
    check_prefix("abcdefgh\xff", 9, 8);
    for (size_t at = 0; at < 24; at++) {
        char text[24];
        memset(text, 'a', sizeof text);
        text[at] = (char)0xff;
        check_prefix(text, sizeof text, at);
    }
}

static void check_escape_sized(const char *text, size_t size, const char *want)
{
    struct ts_buffer out;
    ts_buffer_init(&out, 4096);
    ts_text_escape(&out, text, size);
    assert_false(out.failed);
    assert_string_equal(out.data, want);
    assert_int_equal(out.size, strlen(want));
    ts_buffer_release(&out);
}

static void check_escape(const char *text, const char *want)
{
    check_escape_sized(text, strlen(text), want);
}

static void test_escape(void **state)
{
    (void)state;
    check_escape("", "");
    check_escape("plain text/with.dots", "plain text/with.dots");
    check_escape("back\\slash \"quote\"", "back\\slash \"quote\"");
    check_escape("\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80");
    check_escape("a\nb\tc\r", "a\\x0ab\\x09c\\x0d");
    check_escape_sized("a\0b", 3, "a\\x00b");
    check_escape("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07");
    check_escape("\x7f", "\\x7f");
    check_escape("\xc2\x9b"
                 "31m",
                 "\\u{009b}31m"); /* CSI in one character */
    check_escape("\xc2\x80\xc2\x9f\xc2\xa0", "\\u{0080}\\u{009f}\xc2\xa0");
    check_escape("a\x9b"
                 "b",
                 "a\\x9bb"); /* CSI as a raw byte */
    check_escape("\xff\xfe", "\\xff\\xfe");
    check_escape("\xed\xa0\x80", "\\xed\\xa0\\x80");
    check_escape("\xe2\x82", "\\xe2\\x82");
    check_escape("\xc0\xaf", "\\xc0\\xaf");
}

static void test_escape_bidirectional(void **state)
{
    (void)state;
    check_escape("a\xe2\x80\xae"
                 "b",
                 "a\\u{202e}b");
    check_escape("\xe2\x80\xaa\xe2\x80\xab\xe2\x80\xac\xe2\x80\xad", "\\u{202a}\\u{202b}\\u{202c}\\u{202d}");
    check_escape("\xe2\x81\xa6\xe2\x81\xa7\xe2\x81\xa8\xe2\x81\xa9", "\\u{2066}\\u{2067}\\u{2068}\\u{2069}");
    check_escape("\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c", "\\u{200e}\\u{200f}\\u{061c}");
    check_escape("\xe2\x80\xa8\xe2\x80\xa9", "\\u{2028}\\u{2029}");
    /* two names that look the same are not */
    check_escape("a\xe2\x80\x8b\xe2\x81\xa0\xef\xbb\xbf", "a\\u{200b}\\u{2060}\\u{feff}");
    /* The neighbours stay, and so do letters that are written from right to left. */
    check_escape("\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\x9f\xe2\x80\x90",
                 "\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\x9f\xe2\x80\x90");
    check_escape("\xd7\xa9\xd7\x9c", "\xd7\xa9\xd7\x9c");
}

static void test_escape_limit(void **state)
{
    struct ts_buffer out;
    (void)state;
    ts_buffer_init(&out, 6);
    ts_text_escape(&out, "abc\n\n", 5);
    assert_true(out.failed);
    assert_string_equal(out.data, "abc");
    ts_buffer_release(&out);
}

static void check_columns(const char *text, size_t want)
{
    assert_int_equal(ts_text_columns(text, strlen(text)), want);
}

static void test_columns(void **state)
{
    (void)state;
    check_columns("", 0);
    check_columns("abc", 3);
    check_columns("\xc3\xa9", 1);
    check_columns("e\xcc\x81", 1);                            /* a combining accent */
    check_columns("\xe4\xb8\xad\xe6\x96\x87", 4);             /* Chinese */
    check_columns("\xe3\x81\x82\xe3\x82\xab", 4);             /* kana */
    check_columns("\xea\xb0\x80\xed\x9e\xa3", 4);             /* first and last Hangul syllable */
    check_columns("\xed\x9e\xa4", 1);                         /* behind the last */
    check_columns("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", 2); /* a syllable spelled out */
    check_columns("\xef\xbc\xa1\xef\xbd\xb1", 3);             /* full width A, half width katakana */
    check_columns("\xf0\x9f\x98\x80", 2);                     /* emoji */
    check_columns("\xf0\x9f\xa6\x99", 2);
    check_columns("\xe2\x98\x83", 1);             /* a snowman, text by default */
    check_columns("\xf0\xa0\x80\x80", 2);         /* plane 2 */
    check_columns("\xf0\xaf\xbf\xbd", 2);         /* and its end */
    check_columns("\xe2\x80\x8b\xe2\x80\x8d", 0); /* zero-width space and joiner */
    check_columns("\xef\xb8\x8f", 0);             /* variation selector */
    check_columns("\xcc\x80", 0);                 /* the first of the table */
    check_columns("\xcb\xbf", 1);                 /* and what stands before it */
    check_columns("\xc2\xad", 1);                 /* a soft hyphen shows */
    check_columns("\xc4\xa0the", 4);              /* as tokenizers write a space */
    check_columns("\xf3\xa0\x87\xaf", 0);         /* the last of the table */
    check_columns("\xf4\x8f\xbf\xbf", 1);
    check_columns("a\xff", 2);
    assert_int_equal(ts_text_columns("abc", 2), 2);
}

/* Both ways round, so that the order is a mirror of itself. */
static void check_less(const char *a, const char *b)
{
    if (ts_natural_compare(a, b) >= 0)
        fail_msg("'%s' should come before '%s'", a, b);
    if (ts_natural_compare(b, a) <= 0)
        fail_msg("'%s' should come after '%s'", b, a);
}

static void test_natural_order(void **state)
{
    (void)state;
    assert_int_equal(ts_natural_compare("", ""), 0);
    assert_int_equal(ts_natural_compare("layers.10.w", "layers.10.w"), 0);
    check_less("", "a");
    check_less("a", "b");
    check_less("a", "ab");
    check_less("9", "10");
    check_less("layers.9.w", "layers.10.w");
    check_less("layers.2.z", "layers.10.a");
    check_less("a2b10", "a2b11");
    check_less("a2b9", "a2b10");
    check_less("a1", "a1b");
    check_less("a1", "a1.0");
    check_less("99999999999999999999999999", "100000000000000000000000000");
    check_less("18446744073709551615", "18446744073709551616");
    check_less("a09", "a10");
    check_less("a007", "a8");
    check_less("a0", "a1");
    check_less("a00", "a1");
    check_less("01", "1"); /* equal numbers: the bytes decide */
    check_less("001", "01");
    check_less("00", "000");
    check_less("01b", "1c"); /* but only after everything else */
    check_less("1a", "01b");
    check_less("1", "a");
    check_less("a.1", "a1"); /* '.' is below the digits */
    check_less("a1", "ab");
    check_less("a", "\xc3\xa9"); /* bytes are unsigned */
    check_less("z9", "\xff");
}

static void test_natural_order_is_total(void **state)
{
    static const char *const names[] = {"",    "0", "00", "000", "1",   "01",   "1a",   "01a",  "1b",  "01b",  "10",
                                        "010", "a", "a0", "a00", "a1",  "a01",  "a1a",  "a-1",  "a.",  "a.1",  "2",
                                        "9",   "b", "A",  ".",   "1.1", "1.01", "01.1", "1.10", "1.9", "\xc3", "a\xc3"};
    const size_t count = sizeof names / sizeof names[0];
    (void)state;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            int ij = ts_natural_compare(names[i], names[j]);
            int ji = ts_natural_compare(names[j], names[i]);
            assert_true((ij < 0) == (ji > 0) && (ij == 0) == (i == j));
            for (size_t k = 0; k < count; k++)
                if (ij < 0 && ts_natural_compare(names[j], names[k]) < 0)
                    assert_true(ts_natural_compare(names[i], names[k]) < 0);
        }
}

static void check_bytes(uint64_t bytes, const char *want)
{
    char text[16];
    assert_ptr_equal(ts_human_bytes(bytes, text), text);
    assert_string_equal(text, want);
}

static void test_human_bytes(void **state)
{
    (void)state;
    check_bytes(0, "0 B");
    check_bytes(1, "1 B");
    check_bytes(12, "12 B");
    check_bytes(999, "999 B");
    check_bytes(1000, "1 kB");
    check_bytes(1004, "1 kB");
    check_bytes(1005, "1.01 kB");
    check_bytes(1024, "1.02 kB");
    check_bytes(1500, "1.5 kB");
    check_bytes(9994, "9.99 kB");
    check_bytes(9995, "10 kB");
    check_bytes(12340, "12.3 kB");
    check_bytes(12350, "12.4 kB");
    check_bytes(99949, "99.9 kB");
    check_bytes(99950, "100 kB");
    check_bytes(100000, "100 kB");
    check_bytes(999499, "999 kB");
    check_bytes(999500, "1 MB");
    check_bytes(1234567, "1.23 MB");
    check_bytes(1500000000, "1.5 GB");
    check_bytes(28000000000, "28 GB");
    check_bytes(1000000000000, "1 TB");
    check_bytes(999500000000000, "1 PB");
    check_bytes(1000000000000000000, "1 EB");
    check_bytes(UINT64_MAX, "18.4 EB");
}

static void check_params(uint64_t count, const char *want)
{
    char text[16];
    assert_ptr_equal(ts_human_params(count, text), text);
    assert_string_equal(text, want);
}

static void test_human_params(void **state)
{
    (void)state;
    check_params(0, "0");
    check_params(999, "999");
    check_params(1000, "1 K");
    check_params(7241732096, "7.24 B");
    check_params(124439808, "124 M");
    check_params(70553706496, "70.6 B");
    check_params(1500000000000, "1.5 T");
    check_params(UINT64_MAX, "18446744 T");
}

static void check_count(uint64_t count, const char *want)
{
    char text[32];
    assert_ptr_equal(ts_human_count(count, text), text);
    assert_string_equal(text, want);
}

static void test_human_count(void **state)
{
    (void)state;
    check_count(0, "0");
    check_count(12, "12");
    check_count(999, "999");
    check_count(1000, "1,000");
    check_count(99999, "99,999");
    check_count(123456, "123,456");
    check_count(1234567, "1,234,567");
    check_count(UINT64_MAX, "18,446,744,073,709,551,615");
}

static void test_affixes(void **state)
{
    (void)state;
    assert_true(ts_starts_with("model.safetensors", "model"));
    assert_true(ts_starts_with("model", "model"));
    assert_true(ts_starts_with("model", ""));
    assert_true(ts_starts_with("", ""));
    assert_false(ts_starts_with("mode", "model"));
    assert_false(ts_starts_with("a model", "model"));
    assert_true(ts_ends_with("model.safetensors", ".safetensors"));
    assert_true(ts_ends_with("x", "x"));
    assert_true(ts_ends_with("x", ""));
    assert_true(ts_ends_with("", ""));
    assert_false(ts_ends_with("rs", ".rs"));
    assert_false(ts_ends_with("model.json2", ".json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_valid),    cmocka_unit_test(test_utf8_invalid),
        cmocka_unit_test(test_escape),        cmocka_unit_test(test_escape_bidirectional),
        cmocka_unit_test(test_escape_limit),  cmocka_unit_test(test_columns),
        cmocka_unit_test(test_natural_order), cmocka_unit_test(test_natural_order_is_total),
        cmocka_unit_test(test_human_bytes),   cmocka_unit_test(test_human_params),
        cmocka_unit_test(test_human_count),   cmocka_unit_test(test_affixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
