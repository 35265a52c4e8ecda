/* Owns the language of expectation files: words, numbers, bounds, shapes, and patterns of names. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "check/expect.h"

#define FILE_LIMIT  ((size_t)16 << 20)
#define ARENA_LIMIT ((size_t)1 << 30)
#define WORD_LIMIT  4096

static const char *const names[TS_PROPERTIES] = {
    [TS_PROPERTY_SHAPE] = "shape",
    [TS_PROPERTY_DTYPE] = "dtype",
    [TS_PROPERTY_TENSORS] = "tensors",
    [TS_PROPERTY_FINITE] = "finite",
    [TS_PROPERTY_RANGE] = "range",
    [TS_PROPERTY_MIN] = "min",
    [TS_PROPERTY_MAX] = "max",
    [TS_PROPERTY_MEAN] = "mean",
    [TS_PROPERTY_STD] = "std",
    [TS_PROPERTY_RMS] = "rms",
    [TS_PROPERTY_NORM] = "norm",
    [TS_PROPERTY_SUM] = "sum",
    [TS_PROPERTY_ZEROS] = "zeros",
    [TS_PROPERTY_SPARSITY] = "sparsity",
    [TS_PROPERTY_ROWS_SUM] = "rows-sum",
    [TS_PROPERTY_ENTROPY] = "entropy",
    [TS_PROPERTY_RELATIVE_ERROR] = "relative-error-to",
};

struct parser {
    const char *text, *at, *end; /* end: of the line */
    const char *line_start;
    size_t line;
    struct ts_expect *expect;
    size_t capacity;
    struct ts_error *error;
};

const char *ts_property_name(enum ts_property property)
{
    return names[property];
}

static enum ts_status wrong(const struct parser *parser, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum ts_status wrong(const struct parser *parser, const char *at, const char *format, ...)
{
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return ts_fail(parser->error, TS_ERR_FORMAT, TS_NO_OFFSET, "line %zu, column %zu: %s", parser->line,
                   (size_t)(at - parser->line_start) + 1, message);
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

/* A comment begins a line or stands behind a blank. */
static void skip_blanks(struct parser *parser)
{
    while (parser->at < parser->end && is_blank(*parser->at))
        parser->at++;
    if (parser->at < parser->end && *parser->at == '#')
        parser->at = parser->end;
}

static bool at_end(struct parser *parser)
{
    skip_blanks(parser);
    return parser->at == parser->end;
}

static size_t word_length(const struct parser *parser)
{
    const char *at = parser->at;
    while (at < parser->end && !is_blank(*at))
        at++;
    return (size_t)(at - parser->at);
}

static enum ts_status take_quoted(struct parser *parser, const char **word)
{
    const char *start = parser->at++;
    char text[WORD_LIMIT];
    size_t length = 0;
    for (;; parser->at++) {
        char byte;
        if (parser->at == parser->end)
            return wrong(parser, start, "a name in quotes that does not end");
        byte = *parser->at;
        if (byte == '"')
            break;
        if (byte == '\\') {
            char digits[3] = "", *end = digits;
            if (parser->end - parser->at >= 4 && parser->at[1] == 'x') {
                memcpy(digits, parser->at + 2, 2);
                byte = (char)strtoul(digits, &end, 16);
                if (end != digits + 2 || !byte)
                    return wrong(parser, parser->at, "\\x needs two hexadecimal digits that are not 00");
                parser->at += 3;
            } else if (parser->end - parser->at >= 2 && (parser->at[1] == '"' || parser->at[1] == '\\')) {
                byte = *++parser->at;
            } else {
                return wrong(parser, parser->at, "a backslash stands before \", \\ or xNN");
            }
        }
        if (length + 1 == sizeof text)
            return wrong(parser, start, "a name of more than %d bytes", WORD_LIMIT - 1);
        text[length++] = byte;
    }
    parser->at++;
    if (!(*word = ts_arena_copy(&parser->expect->arena, text, length)))
        return ts_fail_memory(parser->error);
    return TS_OK;
}

static enum ts_status take_word(struct parser *parser, const char **word)
{
    size_t length = word_length(parser);
    if (length >= WORD_LIMIT)
        return wrong(parser, parser->at, "a word of more than %d bytes", WORD_LIMIT - 1);
    if (!(*word = ts_arena_copy(&parser->expect->arena, parser->at, length)))
        return ts_fail_memory(parser->error);
    parser->at += length;
    return TS_OK;
}

static bool take_byte(struct parser *parser, char byte)
{
    skip_blanks(parser);
    if (parser->at == parser->end || *parser->at != byte)
        return false;
    parser->at++;
    return true;
}

static enum ts_status take_number(struct parser *parser, double *number)
{
    char text[64], *end;
    size_t length = 0;
    skip_blanks(parser);
    while (parser->at + length < parser->end && length + 1 < sizeof text &&
           (strchr("+-.0123456789eEinfINF", parser->at[length]) && parser->at[length])) {
        text[length] = parser->at[length];
        length++;
        /* "1+-0.5" is a number and what it may be off by */
        if (length > 1 && (parser->at[length - 1] == '+' || parser->at[length - 1] == '-') &&
            parser->at[length - 2] != 'e' && parser->at[length - 2] != 'E') {
            length--;
            break;
        }
    }
    text[length] = '\0';
    *number = strtod(text, &end);
    if (!length || *end || isnan(*number))
        return wrong(parser, parser->at, "expected a number");
    parser->at += length;
    return TS_OK;
}

/* "±", "+-" or "+/-". */
static bool take_plus_minus(struct parser *parser)
{
    static const char *const signs[] = {"±", "+-", "+/-"};
    const char *before = parser->at;
    skip_blanks(parser);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        size_t length = strlen(signs[i]);
        if ((size_t)(parser->end - parser->at) >= length && memcmp(parser->at, signs[i], length) == 0) {
            parser->at += length;
            return true;
        }
    }
    parser->at = before;
    return false;
}

/* "[A,B]", "X ±E", "X ±P%", "< X", "<= X", "> X", ">= X", "X". */
static enum ts_status take_bounds(struct parser *parser, struct ts_bounds *bounds)
{
    const char *start;
    double number, off = 0;
    *bounds = (struct ts_bounds){.low = -INFINITY, .high = INFINITY};
    if (at_end(parser))
        return wrong(parser, parser->at, "expected [LOW,HIGH], a number, or one behind < or >");
    start = parser->at;
    if (take_byte(parser, '[')) {
        TS_TRY(take_number(parser, &bounds->low));
        if (!take_byte(parser, ','))
            return wrong(parser, parser->at, "expected a comma between the two bounds");
        TS_TRY(take_number(parser, &bounds->high));
        if (!take_byte(parser, ']'))
            return wrong(parser, parser->at, "expected ] behind the two bounds");
        if (bounds->low > bounds->high)
            return wrong(parser, start, "the lower bound %g is above the upper one, %g", bounds->low, bounds->high);
        return TS_OK;
    }
    if (*parser->at == '<' || *parser->at == '>') {
        bool less = *parser->at++ == '<', equal = parser->at < parser->end && *parser->at == '=';
        parser->at += equal;
        TS_TRY(take_number(parser, less ? &bounds->high : &bounds->low));
        *(less ? &bounds->high_open : &bounds->low_open) = !equal;
        return TS_OK;
    }
    TS_TRY(take_number(parser, &number));
    if (take_plus_minus(parser)) {
        TS_TRY(take_number(parser, &off));
        if (off < 0)
            return wrong(parser, start, "a number may not be off by less than nothing");
        if (parser->at < parser->end && *parser->at == '%') {
            parser->at++;
            off *= fabs(number) / 100;
        }
    }
    bounds->low = number - off;
    bounds->high = number + off;
    return TS_OK;
}

static enum ts_status take_shape(struct parser *parser, struct ts_expectation *expectation)
{
    uint64_t sizes[TS_MAX_RANK];
    unsigned rank = 0;
    if (!take_byte(parser, '['))
        return wrong(parser, parser->at, "expected a shape such as [1,4,*,*]");
    while (!take_byte(parser, ']')) {
        if (rank == TS_MAX_RANK)
            return wrong(parser, parser->at, "a shape of more than %d sizes", TS_MAX_RANK);
        if (rank && !take_byte(parser, ','))
            return wrong(parser, parser->at, "expected a comma or ] in a shape");
        skip_blanks(parser);
        if (take_byte(parser, '*')) {
            sizes[rank++] = TS_ANY_SIZE;
        } else {
            uint64_t size = 0;
            const char *start = parser->at;
            while (parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9') {
                if (size > (INT64_MAX - 9) / 10)
                    return wrong(parser, start, "a size past 2^63");
                size = size * 10 + (uint64_t)(*parser->at++ - '0');
            }
            if (parser->at == start)
                return wrong(parser, start, "expected a size or * in a shape");
            sizes[rank++] = size;
        }
    }
    expectation->rank = rank;
    expectation->shape = ts_arena_array(&parser->expect->arena, rank, sizeof *sizes);
    if (!expectation->shape)
        return ts_fail_memory(parser->error);
    memcpy(expectation->shape, sizes, rank * sizeof *sizes);
    return TS_OK;
}

static enum ts_status take_reference(struct parser *parser, struct ts_expectation *expectation)
{
    if (at_end(parser))
        return wrong(parser, parser->at, "expected a file behind relative-error-to");
    TS_TRY(*parser->at == '"' ? take_quoted(parser, &expectation->file) : take_word(parser, &expectation->file));
    if (!at_end(parser) && *parser->at != '<')
        TS_TRY(*parser->at == '"' ? take_quoted(parser, &expectation->tensor)
                                  : take_word(parser, &expectation->tensor));
    if (at_end(parser) || *parser->at != '<')
        return wrong(parser, parser->at, "expected < and the largest error behind relative-error-to FILE [TENSOR]");
    return take_bounds(parser, &expectation->bounds);
}

static enum ts_status add(struct parser *parser, const struct ts_expectation *expectation)
{
    struct ts_expect *expect = parser->expect;
    if (expect->count == parser->capacity) {
        size_t larger = parser->capacity ? 2 * parser->capacity : 64;
        struct ts_expectation *list = ts_arena_array(&expect->arena, larger, sizeof *list);
        if (!list)
            return ts_fail_memory(parser->error);
        if (expect->count)
            memcpy(list, expect->list, expect->count * sizeof *list);
        expect->list = list;
        parser->capacity = larger;
    }
    expect->list[expect->count++] = *expectation;
    return TS_OK;
}

static enum ts_status take_property(struct parser *parser, struct ts_expectation *line)
{
    struct ts_expectation one = *line;
    const char *start = parser->at, *end;
    size_t length = word_length(parser), property = 0;
    /* a bracket or a sign may stand right behind the word */
    for (size_t i = 0; i < length; i++)
        if (strchr("[<>", start[i]))
            length = i;
    while (property < TS_PROPERTIES &&
           (strlen(names[property]) != length || memcmp(names[property], start, length) != 0))
        property++;
    if (property == TS_PROPERTIES) {
        char known[400] = "";
        size_t used = 0;
        for (size_t i = 0; i < TS_PROPERTIES; i++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
        return wrong(parser, start, "\"%.*s\" is not a property; these are: %s, optional",
                     (int)(length < 40 ? length : 40), start, known);
    }
    parser->at += length;
    one.property = (enum ts_property)property;
    one.column = (size_t)(start - parser->line_start) + 1;
    one.bounds = (struct ts_bounds){.low = -INFINITY, .high = INFINITY};
    if (property == TS_PROPERTY_SHAPE) {
        TS_TRY(take_shape(parser, &one));
    } else if (property == TS_PROPERTY_DTYPE) {
        if (at_end(parser))
            return wrong(parser, parser->at, "expected an element type such as f32 or bf16,f16 behind dtype");
        TS_TRY(take_word(parser, &one.types));
    } else if (property == TS_PROPERTY_RELATIVE_ERROR) {
        TS_TRY(take_reference(parser, &one));
    } else if (property != TS_PROPERTY_FINITE) {
        TS_TRY(take_bounds(parser, &one.bounds));
        if (property == TS_PROPERTY_RANGE && (one.bounds.low_open || one.bounds.high_open))
            return wrong(parser, start, "range takes [LOW,HIGH]; for one side there are min and max");
    }
    end = parser->at;
    if (!(one.text = ts_arena_copy(&parser->expect->arena, start, (size_t)(end - start))))
        return ts_fail_memory(parser->error);
    if (end < parser->end && !is_blank(*end))
        return wrong(parser, end, "expected a blank behind \"%s\"", one.text);
    return add(parser, &one);
}

/* The pattern and whether the line has the word "optional" anywhere among its properties. */
static enum ts_status take_line(struct parser *parser)
{
    struct ts_expectation line = {.line = parser->line};
    size_t first = parser->expect->count, length;
    const char *start;
    if (at_end(parser))
        return TS_OK;
    length = word_length(parser);
    if (*parser->at != '"' && length > 1 && parser->at[length - 1] == ':') {
        TS_TRY(take_word(parser, &line.label));
        ((char *)(uintptr_t)line.label)[length - 1] = '\0';
        if (at_end(parser))
            return wrong(parser, parser->at, "expected a tensor's name or a pattern behind \"%.40s:\"", line.label);
    }
    line.exact = *parser->at == '"';
    TS_TRY(line.exact ? take_quoted(parser, &line.pattern) : take_word(parser, &line.pattern));
    if (at_end(parser))
        return wrong(parser, parser->at, "expected a property behind \"%.60s\", such as finite or range [0,1]",
                     line.pattern);
    while (!at_end(parser)) {
        start = parser->at;
        if (word_length(parser) == 8 && memcmp(start, "optional", 8) == 0) {
            line.optional = true;
            parser->at += 8;
        } else {
            TS_TRY(take_property(parser, &line));
        }
    }
    if (first == parser->expect->count)
        return wrong(parser, parser->at, "expected a property beside \"optional\"");
    for (size_t i = first; i < parser->expect->count; i++)
        parser->expect->list[i].optional = line.optional;
    return TS_OK;
}

enum ts_status ts_expect_parse(const void *text, size_t size, struct ts_expect *expect, struct ts_error *error)
{
    struct parser parser = {.text = text, .at = text, .line_start = text, .expect = expect, .error = error};
    const char *end = (const char *)text + size;
    enum ts_status status = TS_OK;
    *expect = (struct ts_expect){0};
    ts_arena_init(&expect->arena, ARENA_LIMIT);
    if (size > FILE_LIMIT)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "expectations of %zu bytes, at most %zu are read", size,
                       FILE_LIMIT);
    while (status == TS_OK && parser.line_start < end) {
        const char *stop = memchr(parser.line_start, '\n', (size_t)(end - parser.line_start));
        parser.line++;
        parser.at = parser.line_start;
        parser.end = stop ? stop : end;
        if (memchr(parser.at, '\0', (size_t)(parser.end - parser.at)))
            status = wrong(&parser, memchr(parser.at, '\0', (size_t)(parser.end - parser.at)), "a NUL byte");
        else
            status = take_line(&parser);
        parser.line_start = parser.end + (stop ? 1 : 0);
    }
    if (status == TS_OK && !expect->count)
        status = ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "there is not one expectation in it");
    if (status != TS_OK)
        ts_expect_release(expect);
    return status;
}

void ts_expect_release(struct ts_expect *expect)
{
    ts_arena_release(&expect->arena);
    *expect = (struct ts_expect){0};
}

/* One of the set at *pattern, "[a-z]"; moves behind it. A bracket that does not close is a byte like others. */
static bool in_set(const char **pattern, char byte)
{
    const char *at = *pattern + 1;
    bool negated = *at == '!', found = false;
    at += negated;
    for (const char *first = at; *at && (*at != ']' || at == first); at++) {
        if (at[1] == '-' && at[2] && at[2] != ']') {
            found =
                found || ((unsigned char)at[0] <= (unsigned char)byte && (unsigned char)byte <= (unsigned char)at[2]);
            at += 2;
        } else {
            found = found || *at == byte;
        }
    }
    if (!*at) {
        ++*pattern;
        return byte == '[';
    }
    *pattern = at + 1;
    return found != negated;
}

/* Of the stars only the last one seen is tried again, so that the time is at most the product of the lengths. */
bool ts_expect_fits(const char *pattern, const char *name)
{
    const char *star = NULL, *tried = NULL;
    while (*name) {
        const char *next = pattern;
        bool fits = false;
        if (*pattern == '*') {
            star = ++pattern;
            tried = name;
            continue;
        }
        if (*pattern == '[') {
            fits = in_set(&next, *name);
        } else if (*pattern) {
            fits = *pattern == '?' || *pattern == *name;
            next = pattern + 1;
        }
        if (fits) {
            pattern = next;
            name++;
        } else if (star) {
            pattern = star;
            name = ++tried;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}
