/* From Oniguruma's dialect of regular expressions to PCRE2's: the words that mean different things.
 *
 *     \s \w \h and their opposites     other sets of characters, spelled out
 *     \b \B                            by that \w
 *     \p{Han}                          the script itself, not its extensions
 *     \p{Letter}                       names PCRE2 does not know
 *     [a[bc]] [a&&[^b]]                sets inside sets and their intersection, as lookaheads
 *     {,3}                             {0,3}
 *     {1,3}+                           one or more of {1,3}; PCRE2 would make it possessive
 *     (?m)                             . matches newlines: (?s)
 *     \uFFFF                           \x{FFFF}
 *
 * What is left is the same in both, or an error of PCRE2's. */
#include "model/tokenizer_regex.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Groups and sets that can stand inside each other; those of tokenizers reach four. */
#define MAX_DEPTH 64
#define MAX_SETS  8

#define SPACES "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORDS  "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Outside of sets \w has the fractions and superscripts of Latin-1 too. */
#define LATIN_WORDS WORDS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define HEXES       "0-9A-Fa-f"

struct translation {
    const char *pattern;
    size_t size, at;
    struct ts_buffer *out;
    struct ts_error *error;
};

static enum ts_status refuse(const struct translation *t, const char *why)
{
    return ts_fail(t->error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "the pattern \"%.*s\" cannot be used: %s",
                   t->size > 200 ? 200 : (int)t->size, t->pattern, why);
}

static char peek(const struct translation *t, size_t ahead)
{
    return ahead < t->size - t->at ? t->pattern[t->at + ahead] : '\0';
}

/* What PCRE2 calls a property that Oniguruma knows by another name; sets are written without brackets. */
static const char *const property_names[][2] = {
    {"Alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"Any", "\\p{Any}"},
    {"Decimal_Number", "\\p{Nd}"},
    {"Digit", "\\p{Nd}"},
    {"Letter", "\\p{L}"},
    {"Lowercase_Letter", "\\p{Ll}"},
    {"Mark", "\\p{M}"},
    {"Modifier_Letter", "\\p{Lm}"},
    {"Number", "\\p{N}"},
    {"Other_Letter", "\\p{Lo}"},
    {"Punctuation", "\\p{P}"},
    {"Separator", "\\p{Z}"},
    {"Space", SPACES},
    {"Symbol", "\\p{S}"},
    {"Titlecase_Letter", "\\p{Lt}"},
    {"Uppercase_Letter", "\\p{Lu}"},
    {"White_Space", SPACES},
    {"Word", WORDS},
};

/* Scripts that share characters with others: PCRE2 would count those in. */
static const char *const scripts[] = {
    "Arabic",   "Armenian", "Bengali",  "Bopomofo", "Cyrillic",  "Devanagari", "Ethiopic", "Georgian",
    "Greek",    "Gujarati", "Gurmukhi", "Han",      "Hangul",    "Hebrew",     "Hiragana", "Kannada",
    "Katakana", "Khmer",    "Lao",      "Latin",    "Malayalam", "Mongolian",  "Myanmar",  "Oriya",
    "Sinhala",  "Syriac",   "Tamil",    "Telugu",   "Thaana",    "Thai",       "Tibetan",
};

static bool same_name(const char *name, size_t size, const char *known)
{
    size_t i = 0;
    for (; *known; known++) {
        if (*known == '_' && (i == size || name[i] != '_'))
            continue; /* names are told apart by their letters only */
        if (i == size || tolower((unsigned char)name[i]) != tolower((unsigned char)*known))
            return false;
        i++;
    }
    return i == size;
}

/* \p{...} at t->at, into out as what may stand in a set; *negative when it has to be a set of its own, [^...]. */
static enum ts_status take_property(struct translation *t, struct ts_buffer *out, bool *negative)
{
    const char *name, *end;
    size_t size;
    *negative = peek(t, 1) == 'P';
    if (peek(t, 2) != '{')
        return refuse(t, "\\p without {");
    name = t->pattern + t->at + 3;
    end = memchr(name, '}', t->size - t->at - 3);
    if (!end)
        return refuse(t, "\\p{ without }");
    t->at = (size_t)(end - t->pattern) + 1;
    if (name < end && *name == '^') {
        *negative = !*negative;
        name++;
    }
    size = (size_t)(end - name);
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            return refuse(t, "a property with a name of other characters than letters, digits and _");
    for (size_t i = 0; i < sizeof property_names / sizeof *property_names; i++)
        if (same_name(name, size, property_names[i][0])) {
            ts_buffer_string(out, property_names[i][1]);
            return TS_OK;
        }
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (same_name(name, size, scripts[i])) {
            ts_buffer_printf(out, "\\p{sc:%s}", scripts[i]);
            return TS_OK;
        }
    ts_buffer_printf(out, "\\p{%.*s}", (int)size, name);
    return TS_OK;
}

/* One escape that is a set of characters or one of them, as take_property. *taken false: it is none of those. */
static enum ts_status take_set_escape(struct translation *t, struct ts_buffer *out, bool *negative, bool *taken)
{
    const char kind = peek(t, 1);
    *taken = true;
    *negative = kind == 'S' || kind == 'W' || kind == 'H';
    switch (kind) {
    case 'p':
    case 'P':
        return take_property(t, out, negative);
    case 's':
    case 'S':
        ts_buffer_string(out, SPACES);
        break;
    case 'w':
    case 'W':
        ts_buffer_string(out, WORDS);
        break;
    case 'h':
    case 'H':
        ts_buffer_string(out, HEXES);
        break;
    case 'u':
        for (size_t i = 2; i < 6; i++)
            if (!isxdigit((unsigned char)peek(t, i)))
                return refuse(t, "\\u without four hexadecimal digits");
        ts_buffer_printf(out, "\\x{%.4s}", t->pattern + t->at + 2);
        t->at += 6;
        return TS_OK;
    default:
        *taken = false;
        return TS_OK;
    }
    t->at += 2;
    return TS_OK;
}

/* A whole character, escaped where it would mean something in a set. */
static void copy_character(struct translation *t, struct ts_buffer *out)
{
    do
        ts_buffer_byte(out, t->pattern[t->at++]);
    while (t->at < t->size && ((unsigned char)t->pattern[t->at] & 0xc0) == 0x80);
}

static enum ts_status take_set(struct translation *t, unsigned depth, struct ts_buffer *out);

/* [:alpha:] at t->at: in Unicode, as Oniguruma has them. */
static enum ts_status take_posix(struct translation *t, struct ts_buffer *items, struct ts_buffer *others)
{
    static const char *const names[][2] = {
        {"alnum", "\\p{Alphabetic}\\p{Nd}"},
        {"alpha", "\\p{Alphabetic}"},
        {"ascii", "\\x{0}-\\x{7f}"},
        {"blank", "\\t\\p{Zs}"},
        {"cntrl", "\\p{Cc}"},
        {"digit", "\\p{Nd}"},
        {"lower", "\\p{Lowercase}"},
        {"punct", "\\p{P}$+<=>\\^`|~"},
        {"space", SPACES},
        {"upper", "\\p{Uppercase}"},
        {"word", WORDS},
        {"xdigit", HEXES},
    };
    const char *name = t->pattern + t->at + 2, *end = memmem(name, t->size - t->at - 2, ":]", 2);
    const bool negative = end && name < end && *name == '^';
    if (negative)
        name++;
    for (size_t i = 0; end && i < sizeof names / sizeof *names; i++)
        if ((size_t)(end - name) == strlen(names[i][0]) && memcmp(name, names[i][0], (size_t)(end - name)) == 0) {
            if (negative)
                ts_buffer_printf(others, "|[^%s]", names[i][1]);
            else
                ts_buffer_string(items, names[i][1]);
            t->at = (size_t)(end - t->pattern) + 2;
            return TS_OK;
        }
    return refuse(t, "it has [: without the name of a set and :]");
}

/* Up to && or the end of the set: `items` gets what a set of PCRE2's can hold, `others` alternatives that are sets of
 * their own. */
static enum ts_status take_members(struct translation *t, unsigned depth, struct ts_buffer *items,
                                   struct ts_buffer *others)
{
    bool first = true;
    for (;; first = false) {
        if (t->at >= t->size)
            return refuse(t, "[ without ]");
        const char character = peek(t, 0);
        if (character == ']' && first) {
            ts_buffer_string(items, "\\]");
            t->at++;
        } else if (character == ']' || (character == '&' && peek(t, 1) == '&')) {
            return TS_OK;
        } else if (character == '[' && peek(t, 1) == ':') {
            TS_TRY(take_posix(t, items, others));
        } else if (character == '[') {
            ts_buffer_byte(others, '|');
            TS_TRY(take_set(t, depth + 1, others));
        } else if (character == '\\') {
            struct ts_buffer set;
            enum ts_status status;
            bool negative, taken;
            if (t->size - t->at < 2)
                return refuse(t, "it ends with a backslash");
            ts_buffer_init(&set, 4096);
            status = take_set_escape(t, &set, &negative, &taken);
            if (status == TS_OK && taken && negative)
                ts_buffer_printf(others, "|[^%s]", set.data);
            else if (status == TS_OK && taken)
                ts_buffer_string(items, set.data);
            ts_buffer_release(&set);
            if (status != TS_OK)
                return status;
            if (!taken) {
                ts_buffer_byte(items, t->pattern[t->at++]);
                copy_character(t, items);
            }
        } else {
            copy_character(t, items);
        }
    }
}

/* One operand of && as an expression for one character. */
static enum ts_status take_operand(struct translation *t, unsigned depth, struct ts_buffer *out, bool negative,
                                   bool *plain)
{
    struct ts_buffer items, others;
    enum ts_status status;
    ts_buffer_init(&items, out->limit);
    ts_buffer_init(&others, out->limit);
    status = take_members(t, depth, &items, &others);
    if (status == TS_OK) {
        const bool more = peek(t, 0) == '&';
        *plain = others.size == 0 && !more;
        if (items.size == 0 && others.size == 0)
            status = refuse(t, "a set without members");
        else if (others.size == 0)
            ts_buffer_printf(out, "[%s%s]", negative && *plain ? "^" : "", items.data);
        else if (items.size == 0)
            ts_buffer_printf(out, "(?:%s)", others.data + 1);
        else
            ts_buffer_printf(out, "(?:[%s]%s)", items.data, others.data);
        if (items.failed || others.failed)
            status = ts_fail_memory(t->error);
    }
    ts_buffer_release(&items);
    ts_buffer_release(&others);
    return status;
}

/* [...] at t->at, as an expression that matches one character. */
static enum ts_status take_set(struct translation *t, unsigned depth, struct ts_buffer *out)
{
    struct ts_buffer all, operand;
    enum ts_status status = TS_OK;
    bool negative = false, plain = true;
    if (depth == MAX_SETS)
        return refuse(t, "sets are nested too deeply");
    t->at++;
    if (peek(t, 0) == '^') {
        negative = true;
        t->at++;
    }
    ts_buffer_init(&all, out->limit);
    ts_buffer_init(&operand, out->limit);
    for (bool several = false; status == TS_OK; several = true) {
        ts_buffer_clear(&operand);
        status = take_operand(t, depth, &operand, negative && !several, &plain);
        if (status != TS_OK)
            break;
        const bool last = peek(t, 0) == ']';
        if (several)
            plain = false;
        ts_buffer_printf(&all, last ? "%s" : "(?=%s)", operand.data);
        t->at += last ? 1 : 2;
        if (last)
            break;
    }
    if (status == TS_OK) {
        if (plain)
            ts_buffer_string(out, all.data);
        else if (negative)
            ts_buffer_printf(out, "(?:(?!%s)(?s:.))", all.data);
        else
            ts_buffer_printf(out, "(?:%s)", all.data);
        if (all.failed || operand.failed)
            status = ts_fail_memory(t->error);
    }
    ts_buffer_release(&all);
    ts_buffer_release(&operand);
    return status;
}

static enum ts_status take_escape(struct translation *t)
{
    static const char in[] = "[" LATIN_WORDS "]", out[] = "[^" LATIN_WORDS "]";
    static const char boundary[] =
        "(?:(?<=[" LATIN_WORDS "])(?![" LATIN_WORDS "])|(?<![" LATIN_WORDS "])(?=[" LATIN_WORDS "]))";
    static const char inside[] =
        "(?:(?<=[" LATIN_WORDS "])(?=[" LATIN_WORDS "])|(?<![" LATIN_WORDS "])(?![" LATIN_WORDS "]))";
    struct ts_buffer set;
    enum ts_status status;
    bool negative, taken;
    if (t->size - t->at < 2)
        return refuse(t, "it ends with a backslash");
    if (strchr("bBwW", peek(t, 1)) && peek(t, 1)) {
        const char kind = peek(t, 1);
        ts_buffer_string(t->out, kind == 'b' ? boundary : kind == 'B' ? inside : kind == 'w' ? in : out);
        t->at += 2;
        return TS_OK;
    }
    ts_buffer_init(&set, 4096);
    status = take_set_escape(t, &set, &negative, &taken);
    if (status == TS_OK && taken)
        ts_buffer_printf(t->out, "[%s%s]", negative ? "^" : "", set.data);
    ts_buffer_release(&set);
    if (status == TS_OK && !taken) {
        if (strchr("KGkgQECNLlU", peek(t, 1)) && peek(t, 1))
            return refuse(t, "it uses an escape that means different things in different dialects");
        ts_buffer_byte(t->out, t->pattern[t->at++]);
        copy_character(t, t->out);
    }
    return status;
}

/* "(?m" and its like at t->at: letters in front of : or ). Other groups are left to PCRE2. */
static void take_group(struct translation *t)
{
    size_t end = 1;
    ts_buffer_byte(t->out, t->pattern[t->at++]);
    if (peek(t, 0) != '?')
        return;
    while (strchr("imx-", peek(t, end)) && peek(t, end))
        end++;
    if (peek(t, end) != ':' && peek(t, end) != ')')
        return;
    for (size_t i = 0; i < end; i++) {
        const char letter = t->pattern[t->at++];
        ts_buffer_byte(t->out, letter == 'm' ? 's' : letter);
    }
}

/* {n,m} at t->at when it is one. The atom it counts starts at `atom` in out. */
static enum ts_status take_count(struct translation *t, size_t atom, bool *taken)
{
    size_t end = 1, digits = 0;
    char count[64];
    while (isdigit((unsigned char)peek(t, end)) || peek(t, end) == ',')
        digits += peek(t, end++) != ',';
    *taken = peek(t, end) == '}' && digits > 0 && end < 32;
    if (!*taken)
        return TS_OK;
    snprintf(count, sizeof count, "{%s%.*s", peek(t, 1) == ',' ? "0" : "", (int)end, t->pattern + t->at + 1);
    t->at += end + 1;
    if (peek(t, 0) != '+') {
        ts_buffer_string(t->out, count);
        return TS_OK;
    }
    /* Wrap what is counted: out is the atom, moved behind "(?:". */
    if (!ts_buffer_append(t->out, "(?:", 3))
        return ts_fail_memory(t->error);
    memmove(t->out->data + atom + 3, t->out->data + atom, t->out->size - 3 - atom);
    memcpy(t->out->data + atom, "(?:", 3);
    ts_buffer_printf(t->out, "%s)", count);
    return TS_OK;
}

enum ts_status ts_pattern_translate(const char *pattern, size_t size, struct ts_buffer *out, struct ts_error *error)
{
    struct translation t = {.pattern = pattern, .size = size, .out = out, .error = error};
    size_t groups[MAX_DEPTH], depth = 0, atom = 0;
    if (size && memchr(pattern, '\0', size))
        return refuse(&t, "it holds a NUL");
    while (t.at < size) {
        const size_t before = out->size;
        bool taken = false;
        switch (pattern[t.at]) {
        case '\\':
            TS_TRY(take_escape(&t));
            atom = before;
            break;
        case '[':
            TS_TRY(take_set(&t, 0, out));
            atom = before;
            break;
        case '(':
            if (depth == MAX_DEPTH)
                return refuse(&t, "groups are nested too deeply");
            if (peek(&t, 1) == '*')
                return refuse(&t, "it begins a group with (*");
            groups[depth++] = before;
            take_group(&t);
            break;
        case ')':
            if (depth == 0)
                return refuse(&t, ") without (");
            atom = groups[--depth];
            ts_buffer_byte(out, pattern[t.at++]);
            break;
        case '{':
            TS_TRY(take_count(&t, atom, &taken));
            if (!taken) {
                ts_buffer_string(out, "\\{");
                t.at++;
            }
            break;
        case '*':
        case '+':
        case '?':
        case '|':
            ts_buffer_byte(out, pattern[t.at++]);
            break;
        default:
            copy_character(&t, out);
            atom = before;
        }
    }
    return out->failed ? ts_fail_memory(error) : TS_OK;
}
