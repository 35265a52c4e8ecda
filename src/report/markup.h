/* Markup: text from hostile files inside XML and HTML. */
#ifndef TS_REPORT_MARKUP_H
#define TS_REPORT_MARKUP_H

#include <stddef.h>

#include "base/buffer.h"

/* Appends text that is safe between tags and between double quotes, in XML as well as in HTML: control characters,
 * bidirectional marks and broken UTF-8 as in ts_text_escape, then & < > " '. What takes more than `columns` is
 * shortened in the middle. */
void ts_put_markup(struct ts_buffer *out, const char *text, size_t columns);

#endif
