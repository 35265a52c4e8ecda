/* Text for terminals: UTF-8, escaping, widths, natural order and short forms of numbers. Nothing here looks
 * at the locale, so the output is the same everywhere. */
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

/* Length of the character at the start of text (size > 0) and its code, or 0 when it is not valid UTF-8: a
 * stray continuation byte, an overlong form, a surrogate, past U+10FFFF, or cut off. */
static size_t decode(const char *text, size_t size, uint32_t *code)
{
    const unsigned char *in = (const unsigned char *)text;
    size_t length;
    uint32_t value, least;
    if (in[0] < 0x80) {
        *code = in[0];
        return 1;
    }
    if (in[0] < 0xc2) /* a continuation byte, or C0 and C1, which begin only overlong forms */
        return 0;
    if (in[0] < 0xe0) {
        length = 2;
        value = in[0] & 0x1f;
        least = 0x80;
    } else if (in[0] < 0xf0) {
        length = 3;
        value = in[0] & 0x0f;
        least = 0x800;
    } else if (in[0] < 0xf5) {
        length = 4;
        value = in[0] & 0x07;
        least = 0x10000;
    } else {
        return 0;
    }
    if (length > size)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((in[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (in[i] & 0x3f);
    }
    if (value < least || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *code = value;
    return length;
}

size_t ts_utf8_valid_prefix(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint32_t code;
        size_t length;
        if (size - at >= 8 && !(ts_load_le64(text + at) & 0x8080808080808080u)) {
            at += 8;
            continue;
        }
        length = decode(text + at, size - at, &code);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

unsigned ts_utf8_put(uint32_t code, char text[4])
{
    if (code < 0x80) {
        text[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        text[0] = (char)(0xe0 | code >> 12);
        text[1] = (char)(0x80 | (code >> 6 & 0x3f));
        text[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    text[0] = (char)(0xf0 | code >> 18);
    text[1] = (char)(0x80 | (code >> 12 & 0x3f));
    text[2] = (char)(0x80 | (code >> 6 & 0x3f));
    text[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* What reorders or breaks the line it stands in: the marks, embeddings, overrides and isolates of bidirectional text,
 * and the two separators that some terminals take for line breaks. And what shows as nothing, so that two names look
 * the same. The page has the same list (web/src/format.ts). */
static bool is_misleading(uint32_t code)
{
    return code == 0x061c || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x2069) || code == 0xfeff;
}

void ts_text_escape(struct ts_buffer *out, const char *text, size_t size)
{
    size_t at = 0, done = 0;
    while (at < size) {
        uint32_t code = 0;
        size_t length = decode(text + at, size - at, &code);
        bool one_byte = length == 0 || code < 0x20 || code == 0x7f;
        if (!one_byte && !(code >= 0x80 && code < 0xa0) && !is_misleading(code)) {
            at += length;
            continue;
        }
        ts_buffer_append(out, text + done, at - done);
        if (one_byte) {
            ts_buffer_printf(out, "\\x%02x", (unsigned char)text[at]);
            at++;
        } else {
            ts_buffer_printf(out, "\\u{%04" PRIx32 "}", code);
            at += length;
        }
        done = at;
    }
    ts_buffer_append(out, text + done, size - done);
}

struct range {
    uint32_t first, last;
};

/* From the Unicode 14 database, with unassigned characters bridged. Zero: general categories Mn and Me, those
 * of Cf that do not print, and the vowels and finals of Hangul, which join the syllable before them. Double:
 * East Asian width W and F, which takes in the emoji that are drawn as pictures by default, and the whole of
 * planes 2 and 3. */
static const struct range zero_width[] = {
    {0x300, 0x36f},     {0x483, 0x489},     {0x591, 0x5bd},     {0x5bf, 0x5bf},     {0x5c1, 0x5c2},
    {0x5c4, 0x5c5},     {0x5c7, 0x5c7},     {0x610, 0x61a},     {0x61c, 0x61c},     {0x64b, 0x65f},
    {0x670, 0x670},     {0x6d6, 0x6dc},     {0x6df, 0x6e4},     {0x6e7, 0x6e8},     {0x6ea, 0x6ed},
    {0x711, 0x711},     {0x730, 0x74a},     {0x7a6, 0x7b0},     {0x7eb, 0x7f3},     {0x7fd, 0x7fd},
    {0x816, 0x819},     {0x81b, 0x823},     {0x825, 0x827},     {0x829, 0x82d},     {0x859, 0x85b},
    {0x898, 0x89f},     {0x8ca, 0x8e1},     {0x8e3, 0x902},     {0x93a, 0x93a},     {0x93c, 0x93c},
    {0x941, 0x948},     {0x94d, 0x94d},     {0x951, 0x957},     {0x962, 0x963},     {0x981, 0x981},
    {0x9bc, 0x9bc},     {0x9c1, 0x9c4},     {0x9cd, 0x9cd},     {0x9e2, 0x9e3},     {0x9fe, 0xa02},
    {0xa3c, 0xa3c},     {0xa41, 0xa51},     {0xa70, 0xa71},     {0xa75, 0xa75},     {0xa81, 0xa82},
    {0xabc, 0xabc},     {0xac1, 0xac8},     {0xacd, 0xacd},     {0xae2, 0xae3},     {0xafa, 0xb01},
    {0xb3c, 0xb3c},     {0xb3f, 0xb3f},     {0xb41, 0xb44},     {0xb4d, 0xb56},     {0xb62, 0xb63},
    {0xb82, 0xb82},     {0xbc0, 0xbc0},     {0xbcd, 0xbcd},     {0xc00, 0xc00},     {0xc04, 0xc04},
    {0xc3c, 0xc3c},     {0xc3e, 0xc40},     {0xc46, 0xc56},     {0xc62, 0xc63},     {0xc81, 0xc81},
    {0xcbc, 0xcbc},     {0xcbf, 0xcbf},     {0xcc6, 0xcc6},     {0xccc, 0xccd},     {0xce2, 0xce3},
    {0xd00, 0xd01},     {0xd3b, 0xd3c},     {0xd41, 0xd44},     {0xd4d, 0xd4d},     {0xd62, 0xd63},
    {0xd81, 0xd81},     {0xdca, 0xdca},     {0xdd2, 0xdd6},     {0xe31, 0xe31},     {0xe34, 0xe3a},
    {0xe47, 0xe4e},     {0xeb1, 0xeb1},     {0xeb4, 0xebc},     {0xec8, 0xecd},     {0xf18, 0xf19},
    {0xf35, 0xf35},     {0xf37, 0xf37},     {0xf39, 0xf39},     {0xf71, 0xf7e},     {0xf80, 0xf84},
    {0xf86, 0xf87},     {0xf8d, 0xfbc},     {0xfc6, 0xfc6},     {0x102d, 0x1030},   {0x1032, 0x1037},
    {0x1039, 0x103a},   {0x103d, 0x103e},   {0x1058, 0x1059},   {0x105e, 0x1060},   {0x1071, 0x1074},
    {0x1082, 0x1082},   {0x1085, 0x1086},   {0x108d, 0x108d},   {0x109d, 0x109d},   {0x1160, 0x11ff},
    {0x135d, 0x135f},   {0x1712, 0x1714},   {0x1732, 0x1733},   {0x1752, 0x1753},   {0x1772, 0x1773},
    {0x17b4, 0x17b5},   {0x17b7, 0x17bd},   {0x17c6, 0x17c6},   {0x17c9, 0x17d3},   {0x17dd, 0x17dd},
    {0x180b, 0x180f},   {0x1885, 0x1886},   {0x18a9, 0x18a9},   {0x1920, 0x1922},   {0x1927, 0x1928},
    {0x1932, 0x1932},   {0x1939, 0x193b},   {0x1a17, 0x1a18},   {0x1a1b, 0x1a1b},   {0x1a56, 0x1a56},
    {0x1a58, 0x1a60},   {0x1a62, 0x1a62},   {0x1a65, 0x1a6c},   {0x1a73, 0x1a7f},   {0x1ab0, 0x1b03},
    {0x1b34, 0x1b34},   {0x1b36, 0x1b3a},   {0x1b3c, 0x1b3c},   {0x1b42, 0x1b42},   {0x1b6b, 0x1b73},
    {0x1b80, 0x1b81},   {0x1ba2, 0x1ba5},   {0x1ba8, 0x1ba9},   {0x1bab, 0x1bad},   {0x1be6, 0x1be6},
    {0x1be8, 0x1be9},   {0x1bed, 0x1bed},   {0x1bef, 0x1bf1},   {0x1c2c, 0x1c33},   {0x1c36, 0x1c37},
    {0x1cd0, 0x1cd2},   {0x1cd4, 0x1ce0},   {0x1ce2, 0x1ce8},   {0x1ced, 0x1ced},   {0x1cf4, 0x1cf4},
    {0x1cf8, 0x1cf9},   {0x1dc0, 0x1dff},   {0x200b, 0x200f},   {0x202a, 0x202e},   {0x2060, 0x206f},
    {0x20d0, 0x20f0},   {0x2cef, 0x2cf1},   {0x2d7f, 0x2d7f},   {0x2de0, 0x2dff},   {0x302a, 0x302d},
    {0x3099, 0x309a},   {0xa66f, 0xa672},   {0xa674, 0xa67d},   {0xa69e, 0xa69f},   {0xa6f0, 0xa6f1},
    {0xa802, 0xa802},   {0xa806, 0xa806},   {0xa80b, 0xa80b},   {0xa825, 0xa826},   {0xa82c, 0xa82c},
    {0xa8c4, 0xa8c5},   {0xa8e0, 0xa8f1},   {0xa8ff, 0xa8ff},   {0xa926, 0xa92d},   {0xa947, 0xa951},
    {0xa980, 0xa982},   {0xa9b3, 0xa9b3},   {0xa9b6, 0xa9b9},   {0xa9bc, 0xa9bd},   {0xa9e5, 0xa9e5},
    {0xaa29, 0xaa2e},   {0xaa31, 0xaa32},   {0xaa35, 0xaa36},   {0xaa43, 0xaa43},   {0xaa4c, 0xaa4c},
    {0xaa7c, 0xaa7c},   {0xaab0, 0xaab0},   {0xaab2, 0xaab4},   {0xaab7, 0xaab8},   {0xaabe, 0xaabf},
    {0xaac1, 0xaac1},   {0xaaec, 0xaaed},   {0xaaf6, 0xaaf6},   {0xabe5, 0xabe5},   {0xabe8, 0xabe8},
    {0xabed, 0xabed},   {0xfb1e, 0xfb1e},   {0xfe00, 0xfe0f},   {0xfe20, 0xfe2f},   {0xfeff, 0xfeff},
    {0xfff9, 0xfffb},   {0x101fd, 0x101fd}, {0x102e0, 0x102e0}, {0x10376, 0x1037a}, {0x10a01, 0x10a0f},
    {0x10a38, 0x10a3f}, {0x10ae5, 0x10ae6}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11001, 0x11001}, {0x11038, 0x11046}, {0x11070, 0x11070}, {0x11073, 0x11074},
    {0x1107f, 0x11081}, {0x110b3, 0x110b6}, {0x110b9, 0x110ba}, {0x110c2, 0x110c2}, {0x11100, 0x11102},
    {0x11127, 0x1112b}, {0x1112d, 0x11134}, {0x11173, 0x11173}, {0x11180, 0x11181}, {0x111b6, 0x111be},
    {0x111c9, 0x111cc}, {0x111cf, 0x111cf}, {0x1122f, 0x11231}, {0x11234, 0x11234}, {0x11236, 0x11237},
    {0x1123e, 0x1123e}, {0x112df, 0x112df}, {0x112e3, 0x112ea}, {0x11300, 0x11301}, {0x1133b, 0x1133c},
    {0x11340, 0x11340}, {0x11366, 0x11374}, {0x11438, 0x1143f}, {0x11442, 0x11444}, {0x11446, 0x11446},
    {0x1145e, 0x1145e}, {0x114b3, 0x114b8}, {0x114ba, 0x114ba}, {0x114bf, 0x114c0}, {0x114c2, 0x114c3},
    {0x115b2, 0x115b5}, {0x115bc, 0x115bd}, {0x115bf, 0x115c0}, {0x115dc, 0x115dd}, {0x11633, 0x1163a},
    {0x1163d, 0x1163d}, {0x1163f, 0x11640}, {0x116ab, 0x116ab}, {0x116ad, 0x116ad}, {0x116b0, 0x116b5},
    {0x116b7, 0x116b7}, {0x1171d, 0x1171f}, {0x11722, 0x11725}, {0x11727, 0x1172b}, {0x1182f, 0x11837},
    {0x11839, 0x1183a}, {0x1193b, 0x1193c}, {0x1193e, 0x1193e}, {0x11943, 0x11943}, {0x119d4, 0x119db},
    {0x119e0, 0x119e0}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47},
    {0x11a51, 0x11a56}, {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96}, {0x11a98, 0x11a99}, {0x11c30, 0x11c3d},
    {0x11c3f, 0x11c3f}, {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3}, {0x11cb5, 0x11cb6},
    {0x11d31, 0x11d45}, {0x11d47, 0x11d47}, {0x11d90, 0x11d91}, {0x11d95, 0x11d95}, {0x11d97, 0x11d97},
    {0x11ef3, 0x11ef4}, {0x13430, 0x13438}, {0x16af0, 0x16af4}, {0x16b30, 0x16b36}, {0x16f4f, 0x16f4f},
    {0x16f8f, 0x16f92}, {0x16fe4, 0x16fe4}, {0x1bc9d, 0x1bc9e}, {0x1bca0, 0x1cf46}, {0x1d167, 0x1d169},
    {0x1d173, 0x1d182}, {0x1d185, 0x1d18b}, {0x1d1aa, 0x1d1ad}, {0x1d242, 0x1d244}, {0x1da00, 0x1da36},
    {0x1da3b, 0x1da6c}, {0x1da75, 0x1da75}, {0x1da84, 0x1da84}, {0x1da9b, 0x1daaf}, {0x1e000, 0x1e02a},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e8d0, 0x1e8d6}, {0x1e944, 0x1e94a},
    {0xe0001, 0xe01ef}};
static const struct range double_width[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},   {0x23f0, 0x23f0},
    {0x23f3, 0x23f3},   {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267f, 0x267f},
    {0x2693, 0x2693},   {0x26a1, 0x26a1},   {0x26aa, 0x26ab},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},
    {0x26ce, 0x26ce},   {0x26d4, 0x26d4},   {0x26ea, 0x26ea},   {0x26f2, 0x26f3},   {0x26f5, 0x26f5},
    {0x26fa, 0x26fa},   {0x26fd, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},   {0x2728, 0x2728},
    {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
    {0x27b0, 0x27b0},   {0x27bf, 0x27bf},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2b55, 0x2b55},
    {0x2e80, 0x3029},   {0x302e, 0x303e},   {0x3041, 0x3096},   {0x309b, 0x3247},   {0x3250, 0x4dbf},
    {0x4e00, 0xa4c6},   {0xa960, 0xa97c},   {0xac00, 0xd7a3},   {0xf900, 0xfad9},   {0xfe10, 0xfe19},
    {0xfe30, 0xfe6b},   {0xff01, 0xff60},   {0xffe0, 0xffe6},   {0x16fe0, 0x16fe3}, {0x16ff0, 0x1b2fb},
    {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f200, 0x1f320},
    {0x1f32d, 0x1f335}, {0x1f337, 0x1f37c}, {0x1f37e, 0x1f393}, {0x1f3a0, 0x1f3ca}, {0x1f3cf, 0x1f3d3},
    {0x1f3e0, 0x1f3f0}, {0x1f3f4, 0x1f3f4}, {0x1f3f8, 0x1f43e}, {0x1f440, 0x1f440}, {0x1f442, 0x1f4fc},
    {0x1f4ff, 0x1f53d}, {0x1f54b, 0x1f54e}, {0x1f550, 0x1f567}, {0x1f57a, 0x1f57a}, {0x1f595, 0x1f596},
    {0x1f5a4, 0x1f5a4}, {0x1f5fb, 0x1f64f}, {0x1f680, 0x1f6c5}, {0x1f6cc, 0x1f6cc}, {0x1f6d0, 0x1f6d2},
    {0x1f6d5, 0x1f6df}, {0x1f6eb, 0x1f6ec}, {0x1f6f4, 0x1f6fc}, {0x1f7e0, 0x1f7f0}, {0x1f90c, 0x1f93a},
    {0x1f93c, 0x1f945}, {0x1f947, 0x1f9ff}, {0x1fa70, 0x1faf6}, {0x20000, 0x3fffd}};

static bool in_ranges(uint32_t code, const struct range *ranges, size_t count)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else if (code < ranges[middle].first)
            high = middle;
        else
            return true;
    }
    return false;
}

size_t ts_text_columns(const char *text, size_t size)
{
    size_t columns = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code = 0;
        size_t length = decode(text + at, size - at, &code);
        at += length ? length : 1;
        if (code < 0x300) /* nothing below is wide or combining; a bad byte counts as one, as terminals draw it */
            columns++;
        else if (in_ranges(code, double_width, sizeof double_width / sizeof double_width[0]))
            columns += 2;
        else if (!in_ranges(code, zero_width, sizeof zero_width / sizeof zero_width[0]))
            columns++;
    }
    return columns;
}

/* Compares the runs of digits at *a and *b as numbers of any length and moves both behind them. */
static int compare_runs(const char **a, const char **b)
{
    size_t a_length = 0, b_length = 0;
    int order;
    while (**a == '0')
        ++*a;
    while (**b == '0')
        ++*b;
    while (ts_is_digit((*a)[a_length]))
        a_length++;
    while (ts_is_digit((*b)[b_length]))
        b_length++;
    order = a_length != b_length ? (a_length < b_length ? -1 : 1) : memcmp(*a, *b, a_length);
    *a += a_length;
    *b += b_length;
    return order;
}

int ts_natural_compare(const char *a, const char *b)
{
    const char *x = a, *y = b;
    for (;;) {
        if (ts_is_digit(*x) && ts_is_digit(*y)) {
            int order = compare_runs(&x, &y);
            if (order)
                return order;
        } else if (*x != *y) {
            return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
        } else if (*x == '\0') {
            return strcmp(a, b);
        } else {
            x++;
            y++;
        }
    }
}

/* value in the largest unit that leaves at least 1, rounded half up to three digits, trailing zeros dropped.
 * In whole numbers throughout: a double would round 999.5 and its like by luck. */
static char *shorten(uint64_t value, const char *const *units, size_t unit_count, char *text, size_t text_size)
{
    uint64_t unit = 1, step, scaled;
    size_t which = 0;
    int decimals;
    while (which + 1 < unit_count && value / unit >= 1000) {
        unit *= 1000;
        which++;
    }
    decimals = which == 0 || value / unit >= 100 ? 0 : value / unit >= 10 ? 1 : 2;
    step = decimals == 2 ? unit / 100 : decimals == 1 ? unit / 10 : unit;
    scaled = value / step;
    if (value % step >= step - step / 2 && step > 1)
        scaled++;
    if (decimals == 0 && scaled == 1000 && which + 1 < unit_count) {
        scaled = 1;
        which++;
    }
    while (decimals > 0 && scaled % 10 == 0) {
        scaled /= 10;
        decimals--;
    }
    if (decimals == 0) { /* below 1000, but for the last unit of ts_human_params: 2^64 / 10^12 */
        snprintf(text, text_size, "%" PRIu32 "%s", (uint32_t)scaled, units[which]);
    } else {
        const uint16_t small = (uint16_t)scaled, ten = decimals == 2 ? 100 : 10; /* below 1000 always */
        snprintf(text, text_size, "%u.%0*u%s", small / ten, decimals, small % ten, units[which]);
    }
    return text;
}

char *ts_human_bytes(uint64_t bytes, char text[16])
{
    static const char *const units[] = {" B", " kB", " MB", " GB", " TB", " PB", " EB"};
    return shorten(bytes, units, sizeof units / sizeof units[0], text, 16);
}

char *ts_human_params(uint64_t count, char text[16])
{
    static const char *const units[] = {"", " K", " M", " B", " T"};
    return shorten(count, units, sizeof units / sizeof units[0], text, 16);
}

char *ts_human_count(uint64_t count, char text[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *out = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

bool ts_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool ts_ends_with(const char *text, const char *suffix)
{
    size_t text_length = strlen(text), suffix_length = strlen(suffix);
    return suffix_length <= text_length && strcmp(text + text_length - suffix_length, suffix) == 0;
}
