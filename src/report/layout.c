#include "report/layout.h"

#include <string.h>

#include "base/text.h"

void ts_put_styled(const struct ts_layout *layout, struct ts_buffer *out, enum ts_style style, const char *text)
{
    static const char *const codes[] = {"", "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[33m", "\033[34m"};
    bool styled = layout->colour && style != TS_STYLE_PLAIN;
    if (styled)
        ts_buffer_string(out, codes[style]);
    ts_buffer_string(out, text);
    if (styled)
        ts_buffer_string(out, "\033[0m");
}

void ts_put_spaces(struct ts_buffer *out, size_t count)
{
    while (count--)
        ts_buffer_byte(out, ' ');
}

/* Bytes of the longest prefix of text that takes at most `columns`. */
static size_t prefix_of_columns(const char *text, size_t size, size_t columns)
{
    size_t at = 0, used = 0;
    while (at < size) {
        size_t next = at + 1;
        while (next < size && ((unsigned char)text[next] & 0xc0) == 0x80)
            next++;
        used += ts_text_columns(text + at, next - at);
        if (used > columns)
            break;
        at = next;
    }
    return at;
}

/* Where the first number begins; size when there is none. */
static size_t number_in(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size && !ts_is_digit(text[at]))
        at++;
    return at;
}

/* Where the longest suffix that takes at most `columns` begins, not before `from`. */
static size_t suffix_of_columns(const char *text, size_t size, size_t from, size_t columns)
{
    size_t start = size, used = 0;
    while (start > from) {
        size_t before = start - 1;
        while (before > from && ((unsigned char)text[before] & 0xc0) == 0x80)
            before--;
        used += ts_text_columns(text + before, start - before);
        if (used > columns)
            break;
        start = before;
    }
    return start;
}

size_t ts_put_name(const struct ts_layout *layout, struct ts_buffer *out, const char *name, size_t columns)
{
    struct ts_buffer safe;
    const char *const dots = layout->unicode ? "…" : "~";
    size_t width, tail, from = 0, head, start, number, end;
    ts_buffer_init(&safe, (size_t)16 << 20);
    ts_text_escape(&safe, name, strlen(name));
    width = ts_text_columns(safe.data ? safe.data : "", safe.size);
    if (width <= columns || columns < 5) {
        ts_buffer_append(out, safe.data ? safe.data : "", safe.size);
        ts_buffer_release(&safe);
        return width;
    }
    /* the end of a name tells more than its middle: a third for the head */
    head = prefix_of_columns(safe.data, safe.size, (columns - 1) / 3);
    tail = columns - 1 - ts_text_columns(safe.data, head);
    start = suffix_of_columns(safe.data, safe.size, head, tail);
    /* the number of the layer tells even more: without a head there may be room for it, or in place of one */
    tail = suffix_of_columns(safe.data, safe.size, 0, columns - 1);
    number = end = number_in(safe.data, safe.size);
    while (end < safe.size && ts_is_digit(safe.data[end]))
        end++;
    if (number < safe.size && number >= tail) {
        head = 0;
        start = tail;
    } else if (width <= 3 * columns && !strchr(safe.data, '/') && number < start && end > head &&
               2 * (end - number) + 4 < columns) { /* left out, or cut in two; a path or a text has other numbers */
        from = number;
        head = end;
        start = suffix_of_columns(safe.data, safe.size, end, columns - 2 - (end - number));
    }
    ts_buffer_string(out, from ? dots : "");
    ts_buffer_append(out, safe.data + from, head - from);
    ts_buffer_string(out, dots);
    ts_buffer_append(out, safe.data + start, safe.size - start);
    width = (from > 0) + ts_text_columns(safe.data + from, head - from) + 1 +
            ts_text_columns(safe.data + start, safe.size - start);
    ts_buffer_release(&safe);
    return width;
}

size_t ts_name_columns(const char *name)
{
    struct ts_buffer safe;
    size_t width;
    ts_buffer_init(&safe, (size_t)16 << 20);
    ts_text_escape(&safe, name, strlen(name));
    width = safe.data ? ts_text_columns(safe.data, safe.size) : 0;
    ts_buffer_release(&safe);
    return width;
}

static void break_line(struct ts_buffer *out, size_t indent)
{
    ts_buffer_byte(out, '\n');
    ts_put_spaces(out, indent);
}

/* Puts a word of which at least one column fits; returns the column after it. */
static size_t put_word(const struct ts_layout *layout, struct ts_buffer *out, const char *word, size_t size,
                       size_t column, size_t indent)
{
    while (size) {
        size_t room = layout->width > column ? layout->width - column : 0;
        size_t piece = prefix_of_columns(word, size, room);
        if (!piece && column > indent) {
            break_line(out, indent);
            column = indent;
            continue;
        }
        if (!piece) /* not even one character fits: let it stick out rather than loop */
            piece = size;
        ts_buffer_append(out, word, piece);
        column += ts_text_columns(word, piece);
        word += piece;
        size -= piece;
    }
    return column;
}

static void wrap(const struct ts_layout *layout, struct ts_buffer *out, const char *text, size_t column, size_t indent,
                 bool break_words)
{
    struct ts_buffer safe;
    const char *at, *end;
    bool first = true;
    ts_buffer_init(&safe, (size_t)1 << 20);
    ts_text_escape(&safe, text, strlen(text));
    at = safe.data ? safe.data : "";
    end = at + safe.size;
    while (at < end) {
        const char *space = memchr(at, ' ', (size_t)(end - at));
        size_t size = space ? (size_t)(space - at) : (size_t)(end - at), width = ts_text_columns(at, size);
        if (!first && column + 1 + width > layout->width) {
            break_line(out, indent);
            column = indent;
        } else if (!first) {
            ts_buffer_byte(out, ' ');
            column++;
        } else if (break_words && column > indent && column + width > layout->width) {
            break_line(out, indent);
            column = indent;
        }
        if (break_words) {
            column = put_word(layout, out, at, size, column, indent);
        } else {
            ts_buffer_append(out, at, size);
            column += width;
        }
        at += size + (space != NULL);
        first = false;
    }
    ts_buffer_release(&safe);
}

void ts_put_wrapped(const struct ts_layout *layout, struct ts_buffer *out, const char *text, size_t column,
                    size_t indent)
{
    wrap(layout, out, text, column, indent, false);
}

void ts_put_folded(const struct ts_layout *layout, struct ts_buffer *out, const char *text, size_t column,
                   size_t indent)
{
    wrap(layout, out, text, column, indent, true);
}
