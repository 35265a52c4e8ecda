/* Layout: putting words and hostile names on a terminal of a given width.
 *
 * Everything goes into a buffer. Names and sentences are escaped here, so that nothing from a file reaches the terminal
 * as it is; ts_put_styled alone takes text as it comes. */
#ifndef TS_REPORT_LAYOUT_H
#define TS_REPORT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

struct ts_layout {
    unsigned width; /* columns */
    bool colour;
    bool unicode; /* the terminal takes UTF-8 */
    bool hints;   /* somebody is reading: say what to type next */
};

enum ts_style {
    TS_STYLE_PLAIN,
    TS_STYLE_BOLD,
    TS_STYLE_DIM,
    TS_STYLE_RED,
    TS_STYLE_GREEN,
    TS_STYLE_YELLOW,
    TS_STYLE_BLUE
};

/* Appends text, coloured when the layout is. Text must be escaped already. */
void ts_put_styled(const struct ts_layout *layout, struct ts_buffer *out, enum ts_style style, const char *text);
void ts_put_spaces(struct ts_buffer *out, size_t count);
/* Appends a name from a file: escaped, and shortened in the middle when wider than `columns`. Returns its columns. */
size_t ts_put_name(const struct ts_layout *layout, struct ts_buffer *out, const char *name, size_t columns);
/* The columns it takes in full. */
size_t ts_name_columns(const char *name);
/* Appends words, breaking lines at the width; later lines begin with `indent` spaces, and the first is taken to have
 * `column` columns already. A word wider than a line sticks out; with ts_put_folded it is broken. */
void ts_put_wrapped(const struct ts_layout *layout, struct ts_buffer *out, const char *text, size_t column,
                    size_t indent);
void ts_put_folded(const struct ts_layout *layout, struct ts_buffer *out, const char *text, size_t column,
                   size_t indent);

#endif
