/* Characters, their classes and normal forms, over utf8proc's tables. */
#include "model/unicode.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool ts_unicode_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r');
    switch (code) {
    case 0x85:
    case 0xa0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202f:
    case 0x205f:
    case 0x3000:
        return true;
    default:
        return code >= 0x2000 && code <= 0x200a;
    }
}

bool ts_unicode_is_number(uint32_t code)
{
    utf8proc_category_t kind;
    if (code < 0x80)
        return code >= '0' && code <= '9';
    kind = category(code);
    return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool ts_unicode_is_punctuation(uint32_t code)
{
    utf8proc_category_t kind;
    if (code < 0x80)
        return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
               (code >= '{' && code <= '~');
    kind = category(code);
    return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool ts_unicode_is_mark(uint32_t code)
{
    utf8proc_category_t kind = category(code);
    return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool ts_unicode_is_nonspacing(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_MN;
}

bool ts_unicode_is_word(uint32_t code)
{
    utf8proc_category_t kind;
    if (code < 0x80)
        return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z') ||
               code == '_';
    /* The joiners, and the symbols that count as alphabetic: circled, squared and parenthesized letters. */
    if (code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
        (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
        (code >= 0x1f170 && code <= 0x1f189))
        return true;
    kind = category(code);
    return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_ME) || kind == UTF8PROC_CATEGORY_ND ||
           kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC;
}

bool ts_unicode_is_control(uint32_t code)
{
    utf8proc_category_t kind = category(code);
    return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
}

static bool append_code(struct ts_buffer *out, uint32_t code)
{
    char text[4];
    const unsigned length = ts_utf8_put(code, text);
    return ts_buffer_append(out, text, length);
}

bool ts_unicode_lower(const char *text, size_t size, struct ts_buffer *out)
{
    for (size_t at = 0; at < size && !out->failed;) {
        uint32_t code;
        at += ts_utf8_get(text + at, &code);
        if (code < 0x80)
            ts_buffer_byte(out, (char)(code >= 'A' && code <= 'Z' ? code | 0x20 : code));
        else if (code == 0x130) /* the one character whose lower case is two: i and a dot above */
            ts_buffer_string(out, "i\xcc\x87");
        else
            append_code(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
    }
    return !out->failed;
}

/* Below U+0300 every character is its own NFC form and combines with none before it. */

static bool is_composed(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] >= 0xcc) /* the first byte of U+0300 */
            return false;
    return true;
}

struct mark {
    utf8proc_int32_t code;
    int combining;
    size_t at;
};

static int compare_marks(const void *a, const void *b)
{
    const struct mark *left = a, *right = b;
    if (left->combining != right->combining)
        return left->combining < right->combining ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

/* Sorts one run of marks by combining class, equal ones as they stood. Texts of nothing but marks exist, so that
 * long runs are not left to insertion. */
static bool sort_marks(utf8proc_int32_t *codes, size_t count)
{
    struct mark few[32], *marks = few;
    bool sorted = true;
    for (size_t i = 1; i < count && sorted; i++)
        sorted =
            utf8proc_get_property(codes[i - 1])->combining_class <= utf8proc_get_property(codes[i])->combining_class;
    if (sorted)
        return true;
    if (count > sizeof few / sizeof *few) {
        marks = calloc(count, sizeof *marks);
        if (!marks)
            return false;
    }
    for (size_t i = 0; i < count; i++) {
        marks[i].code = codes[i];
        marks[i].combining = utf8proc_get_property(codes[i])->combining_class;
        marks[i].at = i;
    }
    qsort(marks, count, sizeof *marks, compare_marks);
    for (size_t i = 0; i < count; i++)
        codes[i] = marks[i].code;
    if (marks != few)
        free(marks);
    return true;
}

static bool order_marks(utf8proc_int32_t *codes, size_t count)
{
    for (size_t at = 0; at < count;) {
        size_t end = at;
        while (end < count && utf8proc_get_property(codes[end])->combining_class != 0)
            end++;
        if (end - at > 1 && !sort_marks(codes + at, end - at))
            return false;
        at = end + 1;
    }
    return true;
}

/* No character decomposes into more than 18 (U+FDFA in the compatibility forms). */
#define LONGEST_DECOMPOSITION 32

/* The decomposition of a whole text: *codes from malloc. */
static bool decompose(const char *text, size_t size, utf8proc_option_t options, utf8proc_int32_t **codes, size_t *count)
{
    size_t room = size + LONGEST_DECOMPOSITION, used = 0;
    utf8proc_int32_t *list = malloc(room * sizeof *list);
    for (size_t at = 0; list && at < size;) {
        utf8proc_ssize_t added;
        uint32_t code;
        int boundary = 0;
        if (room - used < LONGEST_DECOMPOSITION) {
            utf8proc_int32_t *more;
            if (room > SIZE_MAX / sizeof *list / 2)
                break;
            more = realloc(list, 2 * room * sizeof *list);
            if (!more)
                break;
            list = more;
            room *= 2;
        }
        at += ts_utf8_get(text + at, &code);
        added = utf8proc_decompose_char((utf8proc_int32_t)code, list + used, (utf8proc_ssize_t)(room - used), options,
                                        &boundary);
        if (added < 0 || (size_t)added > room - used)
            break;
        used += (size_t)added;
        if (at == size) {
            *codes = list;
            *count = used;
            return true;
        }
    }
    free(list);
    return false;
}

bool ts_unicode_normalize(enum ts_normal_form form, const char *text, size_t size, struct ts_buffer *out)
{
    const bool compose = form == TS_NFC || form == TS_NFKC, compatible = form == TS_NFKC || form == TS_NFKD;
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    utf8proc_int32_t *codes;
    size_t count, ascii = 0;
    while (ascii < size && (unsigned char)text[ascii] < 0x80)
        ascii++;
    if (ascii == size || (form == TS_NFC && is_composed(text, size)))
        return ts_buffer_append(out, text, size);
    if (compatible)
        options |= UTF8PROC_COMPAT;
    if (!decompose(text, size, options, &codes, &count))
        return false;
    if (!order_marks(codes, count)) {
        free(codes);
        return false;
    }
    if (compose) {
        utf8proc_ssize_t left =
            utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        count = left < 0 ? 0 : (size_t)left;
    }
    for (size_t i = 0; i < count && !out->failed; i++)
        append_code(out, (uint32_t)codes[i]);
    free(codes);
    return !out->failed;
}
