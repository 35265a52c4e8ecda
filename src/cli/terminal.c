/* Owns the terminal: its width and colour, what goes to it, and how errors are told. */
#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/command.h"

struct ts_layout terminal = {.width = 80};

void terminal_init(void)
{
    const char *columns = getenv("COLUMNS"), *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    struct winsize size;
    unsigned long width = columns ? strtoul(columns, NULL, 10) : 0;
    if (width < 20 || width > 10000)
        width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 ? size.ws_col : 80;
    terminal.width = (unsigned)width;
    terminal.colour = isatty(STDOUT_FILENO) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
    terminal.hints = isatty(STDOUT_FILENO);
    terminal.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void put_styled(struct ts_buffer *out, enum ts_style style, const char *text)
{
    ts_put_styled(&terminal, out, style, text);
}

void put_spaces(struct ts_buffer *out, size_t count)
{
    ts_put_spaces(out, count);
}

size_t put_name(struct ts_buffer *out, const char *name, size_t columns)
{
    return ts_put_name(&terminal, out, name, columns);
}

void put_wrapped(struct ts_buffer *out, const char *text, size_t column, size_t indent)
{
    ts_put_wrapped(&terminal, out, text, column, indent);
}

bool flush_out(struct ts_buffer *out)
{
    bool good = !out->failed && (!out->size || fwrite(out->data, 1, out->size, stdout) == out->size);
    ts_buffer_clear(out);
    good = good && fflush(stdout) == 0;
    if (!good)
        fprintf(stderr, "tsleuth: cannot write to standard output: %s\n", strerror(errno));
    return good;
}

int tell_error(const struct ts_error *error)
{
    struct ts_buffer out;
    ts_buffer_init(&out, 65536);
    ts_buffer_string(&out, "tsleuth: ");
    if (error->path[0]) {
        ts_text_escape(&out, error->path, strlen(error->path));
        ts_buffer_string(&out, ": ");
    }
    if (error->offset != TS_NO_OFFSET)
        ts_buffer_printf(&out, "at byte %" PRIu64 ": ", error->offset);
    if (error->tensor[0]) {
        ts_buffer_string(&out, "tensor \"");
        ts_text_escape(&out, error->tensor, strlen(error->tensor));
        ts_buffer_string(&out, "\": ");
    }
    ts_text_escape(&out, error->message, strlen(error->message));
    ts_buffer_byte(&out, '\n');
    fputs(out.data ? out.data : "tsleuth: out of memory\n", stderr);
    ts_buffer_release(&out);
    return EXIT_TROUBLE;
}
