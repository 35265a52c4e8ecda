/* Owns the walk over numbers that have no header: rows, and brackets as Python prints them. */
#include "read/text_plain.h"

#include <inttypes.h>
#include <string.h>

#include "read/type_name.h"

/* How much of a bad word an error shows. */
#define SHOWN_WORD ((size_t)40)
/* "tensor([...], device='cuda:0', dtype=torch.float16, grad_fn=<AddBackward0>)": what follows the numbers is short. */
#define PRINT_TAIL ((size_t)512)

struct walk {
    const char *text;
    size_t size, at;
    bool cut;
    struct ts_values *values;
    struct ts_plain *plain;
    char separator; /* ',' or ';' once one stood between two numbers */
};

uint64_t ts_plain_line(const char *text, size_t at)
{
    uint64_t line = 1;
    for (const char *from = text, *end = text + at; (from = memchr(from, '\n', (size_t)(end - from))) != NULL; from++)
        line++;
    return line;
}

enum ts_status ts_plain_fail(const char *text, size_t size, size_t at, struct ts_error *error)
{
    size_t end = at;
    while (end < size && end - at < SHOWN_WORD && (end == at || !ts_plain_ends(text[end])))
        end++;
    if (at >= size)
        return ts_fail(error, TS_ERR_FORMAT, at, "line %" PRIu64 ": the text ends where a number was expected",
                       ts_plain_line(text, size));
    return ts_fail(error, TS_ERR_FORMAT, at, "line %" PRIu64 ": \"%.*s\" is not a number", ts_plain_line(text, at),
                   (int)(end - at), text + at);
}

bool ts_plain_shape(const char *text, size_t size, uint64_t *shape, unsigned *rank)
{
    size_t at = 0;
    bool separated = true;
    *rank = 0;
    if (size >= 10 && memcmp(text, "torch.Size", 10) == 0)
        at = 10;
    for (; at < size; at++) {
        char c = text[at];
        if (c >= '0' && c <= '9') {
            uint64_t axis = 0;
            if (!separated || *rank == TS_MAX_RANK)
                return false;
            for (; at < size && text[at] >= '0' && text[at] <= '9'; at++)
                if (__builtin_mul_overflow(axis, 10, &axis) ||
                    __builtin_add_overflow(axis, (uint64_t)(text[at] - '0'), &axis))
                    return false;
            shape[(*rank)++] = axis;
            separated = false;
            at--;
        } else if (c == ',' || c == 'x' || c == 'X' || c == '*' || c == ' ' || c == '\t') {
            separated = true;
        } else if (!strchr("()[]{}", c) || c == '\0') {
            return false;
        }
    }
    return true;
}

static enum ts_status add_number(struct walk *walk, struct ts_error *error)
{
    struct ts_number number;
    const bool single = walk->values && walk->values->single;
    size_t used = ts_number_scan(walk->text + walk->at, walk->size - walk->at, single, &number);
    if (used == 0 || (walk->at + used < walk->size && !ts_plain_ends(walk->text[walk->at + used])))
        return ts_plain_fail(walk->text, walk->size, walk->at, error);
    walk->at += used;
    walk->plain->numbers++;
    if (!walk->values)
        return TS_OK;
    ts_values_passed(walk->values, walk->text + walk->at);
    return ts_values_add(walk->values, &number, error);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static bool is_separator(char c)
{
    return c == ',' || c == ';' || is_blank(c);
}

static void skip_blanks(struct walk *walk)
{
    while (walk->at < walk->size && is_blank(walk->text[walk->at]))
        walk->at++;
}

/* Moves to the line break, or to the end. */
static void skip_line(struct walk *walk)
{
    const char *end = memchr(walk->text + walk->at, '\n', walk->size - walk->at);
    walk->at = end ? (size_t)(end - walk->text) : walk->size;
}

/* Steps over blanks and at most one separator. True when another number must follow on this line. */
static enum ts_status between(struct walk *walk, bool *ended, struct ts_error *error)
{
    char found = 0;
    skip_blanks(walk);
    if (walk->at < walk->size && (walk->text[walk->at] == ',' || walk->text[walk->at] == ';')) {
        found = walk->text[walk->at++];
        skip_blanks(walk);
    }
    *ended = walk->at >= walk->size || walk->text[walk->at] == '\n' || walk->text[walk->at] == '#';
    if (*ended || !found)
        return TS_OK;
    if (walk->text[walk->at] == ',' || walk->text[walk->at] == ';') {
        if (walk->values)
            return ts_fail(error, TS_ERR_FORMAT, walk->at,
                           "line %" PRIu64 ": a number is missing between two separators",
                           ts_plain_line(walk->text, walk->at));
        while (walk->at < walk->size && is_separator(walk->text[walk->at]))
            walk->at++;
        *ended = walk->at >= walk->size || walk->text[walk->at] == '\n';
        return TS_OK;
    }
    if (walk->values && walk->separator && walk->separator != found)
        return ts_fail(error, TS_ERR_FORMAT, walk->at,
                       "line %" PRIu64 ": both , and ; stand between numbers; if the commas are decimal points, write "
                       "points",
                       ts_plain_line(walk->text, walk->at));
    walk->separator = found;
    return TS_OK;
}

static enum ts_status read_row(struct walk *walk, struct ts_error *error)
{
    uint64_t columns = 0;
    bool ended = false;
    while (!ended) {
        TS_TRY(add_number(walk, error));
        columns++;
        TS_TRY(between(walk, &ended, error));
    }
    if (walk->plain->rows == 0)
        walk->plain->columns = columns;
    else if (walk->plain->columns != columns)
        walk->plain->uneven = true;
    walk->plain->rows++;
    return TS_OK;
}

static enum ts_status read_rows(struct walk *walk, struct ts_error *error)
{
    while (walk->at < walk->size) {
        char c = walk->text[walk->at];
        if (c == '\n' || is_blank(c))
            walk->at++;
        else if (c == '#')
            skip_line(walk);
        else
            TS_TRY(read_row(walk, error));
    }
    return TS_OK;
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

/* The word at `at` is True or False, as Python prints bool. */
static bool read_bool(struct walk *walk, bool *value)
{
    const char *from = walk->text + walk->at;
    const size_t left = walk->size - walk->at;
    size_t used;
    *value = left >= 4 && (memcmp(from, "True", 4) == 0 || memcmp(from, "true", 4) == 0);
    if (!*value && !(left >= 5 && (memcmp(from, "False", 5) == 0 || memcmp(from, "false", 5) == 0)))
        return false;
    used = *value ? 4 : 5;
    if (left > used && !ts_plain_ends(from[used]))
        return false;
    walk->at += used;
    return true;
}

static enum ts_status read_leaf(struct walk *walk, struct ts_error *error)
{
    bool value;
    if (!read_bool(walk, &value))
        return add_number(walk, error);
    walk->plain->numbers++;
    return walk->values ? ts_values_add_bool(walk->values, value, error) : TS_OK;
}

static enum ts_status fail_ragged(const struct walk *walk, struct ts_error *error)
{
    if (walk->plain->nest.deep)
        return ts_fail(error, TS_ERR_LIMIT, walk->at, "brackets nest deeper than %d levels", TS_MAX_RANK);
    return ts_fail(error, TS_ERR_FORMAT, walk->at,
                   "line %" PRIu64 ": the bracketed lists differ in length, so they have no shape",
                   ts_plain_line(walk->text, walk->at));
}

/* A list in brackets, from its '[' to its ']'. Commas are as good as spaces: numpy prints none. */
static enum ts_status read_brackets(struct walk *walk, struct ts_error *error)
{
    struct ts_nest *nest = &walk->plain->nest;
    do {
        char c = walk->at < walk->size ? walk->text[walk->at] : '\0';
        if (walk->at >= walk->size) {
            if (walk->cut)
                return TS_OK;
            return ts_fail(error, TS_ERR_FORMAT, walk->at, "the text ends inside %u open brackets: it was cut off",
                           nest->depth);
        }
        if (c == '[' || c == ']') {
            if (c == '[')
                ts_nest_open(nest);
            else
                ts_nest_close(nest);
            walk->at++;
        } else if (c == '\n' || c == ',' || is_blank(c)) {
            walk->at++;
        } else if (c == '.' && walk->size - walk->at >= 3 && memcmp(walk->text + walk->at, "...", 3) == 0) {
            walk->plain->ellipsis = true;
            walk->at += 3;
        } else {
            ts_nest_value(nest);
            TS_TRY(read_leaf(walk, error));
        }
        if ((nest->ragged || nest->deep) && walk->values)
            return fail_ragged(walk, error);
    } while (nest->depth > 0);
    return TS_OK;
}

/* Steps over "Parameter containing:" and "tensor(". *called: a parenthesis is open. */
static bool read_opening(struct walk *walk, bool *called)
{
    static const char parameter[] = "Parameter containing:";
    size_t at = walk->at;
    *called = false;
    if (walk->size - at >= sizeof parameter - 1 && memcmp(walk->text + at, parameter, sizeof parameter - 1) == 0)
        at += sizeof parameter - 1;
    while (at < walk->size && (walk->text[at] == '\n' || is_blank(walk->text[at])))
        at++;
    if (at < walk->size && walk->text[at] == '[') {
        walk->at = at;
        return true;
    }
    while (at < walk->size && is_word(walk->text[at]))
        at++;
    if (at >= walk->size || walk->text[at] != '(' || at == walk->at)
        return false;
    *called = true;
    walk->at = at + 1;
    return true;
}

static bool names_word(const char *text, size_t left, const char *name)
{
    size_t length = strlen(name);
    return left >= length && memcmp(text, name, length) == 0;
}

/* Finds "dtype=" and "size=" or "shape=" behind the numbers. They are wanted before: dtype says how to store them. */
static void find_keywords(struct walk *walk)
{
    const size_t from = walk->size - walk->at > PRINT_TAIL ? walk->size - PRINT_TAIL : walk->at;
    const char *text = walk->text;
    size_t at = walk->size;
    while (at > from && text[at - 1] != ']')
        at--;
    for (; at < walk->size; at++) {
        const char *key = text + at;
        const size_t left = walk->size - at;
        size_t begin, end;
        bool is_type = names_word(key, left, "dtype="), is_size = names_word(key, left, "size=");
        if (!is_type && !is_size && !names_word(key, left, "shape="))
            continue;
        begin = end = at + (is_size ? 5 : 6);
        if (is_type) {
            begin += begin < walk->size && text[begin] == '\'';
            end = begin + (begin < walk->size && strchr("<>=|", text[begin]) && text[begin]);
            while (end < walk->size && is_word(text[end]))
                end++;
            walk->plain->dtype = text + begin;
            walk->plain->dtype_size = end - begin;
        } else {
            while (end < walk->size && text[end] != ')')
                end++;
            walk->plain->shape = text + begin;
            walk->plain->shape_size = end - begin;
        }
        at = end > at ? end - 1 : at;
    }
}

static enum ts_status read_print(struct walk *walk, bool called, struct ts_error *error)
{
    enum ts_type type;
    bool swapped;
    walk->plain->bracketed = true;
    if (called)
        find_keywords(walk);
    if (walk->values && walk->plain->dtype &&
        ts_type_from_name(walk->plain->dtype, walk->plain->dtype_size, &type, &swapped))
        ts_values_begin(walk->values, type);
    while (walk->at < walk->size && (walk->text[walk->at] == '\n' || is_blank(walk->text[walk->at])))
        walk->at++;
    if (walk->at < walk->size && walk->text[walk->at] == '[') {
        TS_TRY(read_brackets(walk, error));
    } else {
        ts_nest_value(&walk->plain->nest); /* tensor(3.5) */
        TS_TRY(read_leaf(walk, error));
    }
    if (walk->at >= walk->size && walk->cut)
        return TS_OK;
    if (called) {
        size_t close = walk->size;
        while (close > walk->at && walk->text[close - 1] != ')')
            close--;
        if (close == walk->at && !walk->cut)
            return ts_fail(error, TS_ERR_FORMAT, walk->size,
                           "the text ends before the closing parenthesis: it was cut off");
        walk->at = close > walk->at ? close : walk->size;
    }
    for (; walk->at < walk->size; walk->at++)
        if (walk->text[walk->at] == '[' && !walk->values) /* numbers too; the reading complains */
            return TS_OK;
        else if (walk->text[walk->at] != '\n' && !is_blank(walk->text[walk->at]))
            return ts_fail(error, TS_ERR_FORMAT, walk->at,
                           "line %" PRIu64 ": more text follows the bracketed list; one list per file can be read",
                           ts_plain_line(walk->text, walk->at));
    return TS_OK;
}

/* Counts the fields of a line of names: quoted or bare words with the separator of the line between them. */
static uint64_t count_names(const char *line, size_t size)
{
    const char separator = memchr(line, ',', size) ? ',' : memchr(line, ';', size) ? ';' : '\0';
    uint64_t fields = 0;
    bool inside = false;
    if (separator) {
        for (size_t i = 0; i < size; i++)
            fields += line[i] == separator;
        return fields + 1;
    }
    for (size_t i = 0; i < size; i++) {
        if (!is_blank(line[i]) && !inside)
            fields++;
        inside = !is_blank(line[i]);
    }
    return fields;
}

/* The first line is no row of numbers; the next one is, and has as many fields: then it names the columns. */
static bool take_names(struct walk *walk)
{
    struct ts_plain scratch = {0};
    struct walk ahead = *walk;
    struct ts_error ignored;
    size_t size;
    skip_line(&ahead);
    size = ahead.at - walk->at;
    while (ahead.at < ahead.size && (ahead.text[ahead.at] == '\n' || is_blank(ahead.text[ahead.at])))
        ahead.at++;
    ahead.plain = &scratch;
    ahead.values = NULL;
    if (ahead.at >= ahead.size || read_row(&ahead, &ignored) != TS_OK ||
        scratch.columns != count_names(walk->text + walk->at, size))
        return false;
    walk->plain->names = walk->text + walk->at;
    walk->plain->names_size = size;
    while (walk->plain->names_size && is_blank(walk->plain->names[walk->plain->names_size - 1]))
        walk->plain->names_size--;
    walk->at += size;
    return true;
}

enum ts_status ts_plain_parse(const char *text, size_t size, bool cut, struct ts_values *values, struct ts_plain *plain,
                              struct ts_error *error)
{
    struct walk walk = {.text = text, .size = size, .cut = cut, .values = values, .plain = plain};
    struct ts_number number;
    size_t used;
    bool called;
    *plain = (struct ts_plain){0};
    while (walk.at < size) { /* comments before anything else */
        char c = text[walk.at];
        if (c == '#')
            skip_line(&walk);
        else if (c != '\n' && !is_blank(c))
            break;
        else
            walk.at++;
    }
    if (walk.at >= size)
        return TS_OK;
    used = ts_number_scan(text + walk.at, size - walk.at, false, &number);
    if (used && (walk.at + used == size || ts_plain_ends(text[walk.at + used])))
        return read_rows(&walk, error);
    if (read_opening(&walk, &called))
        return read_print(&walk, called, error);
    if (!take_names(&walk))
        return ts_plain_fail(text, size, walk.at, error);
    return read_rows(&walk, error);
}
