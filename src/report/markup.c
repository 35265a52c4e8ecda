#include "report/markup.h"

#include <string.h>

#include "report/layout.h"

void ts_put_markup(struct ts_buffer *out, const char *text, size_t columns)
{
    static const struct ts_layout anywhere = {.unicode = true};
    struct ts_buffer safe;
    ts_buffer_init(&safe, (size_t)16 << 20);
    ts_put_name(&anywhere, &safe, text, columns);
    for (size_t i = 0; i < safe.size; i++) {
        switch (safe.data[i]) {
        case '&':
            ts_buffer_string(out, "&amp;");
            break;
        case '<':
            ts_buffer_string(out, "&lt;");
            break;
        case '>':
            ts_buffer_string(out, "&gt;");
            break;
        case '"':
            ts_buffer_string(out, "&quot;");
            break;
        case '\'':
            ts_buffer_string(out, "&#39;");
            break;
        case '\xef': /* U+FFFE and U+FFFF, which XML does not allow in any form */
            if (i + 2 < safe.size && safe.data[i + 1] == '\xbf' && (unsigned char)safe.data[i + 2] >= 0xbe) {
                ts_buffer_printf(out, "\\u{fff%c}", safe.data[i + 2] == '\xbe' ? 'e' : 'f');
                i += 2;
                break;
            }
            ts_buffer_byte(out, safe.data[i]);
            break;
        default:
            ts_buffer_byte(out, safe.data[i]);
        }
    }
    if (safe.failed)
        out->failed = true;
    ts_buffer_release(&safe);
}
