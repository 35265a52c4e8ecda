/* What all commands share: the descriptor, options, the terminal, and how errors are told. */
#ifndef TS_CLI_COMMAND_H
#define TS_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json.h"
#include "report/layout.h"
#include "tensor/bundle.h"

/* Exit status, as in the README. */
enum { EXIT_MATCH = 0, EXIT_DIFFER = 1, EXIT_INCOMPLETE = 2, EXIT_TROUBLE = 3 };

struct command {
    const char *name;
    const char *summary;               /* one line for `tsleuth --help` */
    const char *help;                  /* everything for `tsleuth NAME --help` */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct command command_check, command_compare, command_debug, command_explain, command_inspect,
    command_serve, command_show, command_trace;

/* Options: long ones, `--name value` or `--name=value`, in any order; `--` ends them; "-" is an operand. */
struct option {
    const char *name; /* without dashes; ends the list with NULL */
    enum { OPTION_FLAG, OPTION_TEXT, OPTION_COUNT, OPTION_INTEGER, OPTION_NUMBER, OPTION_LIST } kind;
    void *value; /* bool *, const char **, uint64_t *, int64_t *, double *, struct option_list * */
};

/* An option that may be given several times. */
#define OPTION_LIST_MOST 255
struct option_list {
    const char *texts[OPTION_LIST_MOST + 1]; /* NULL-terminated */
    size_t count;
};

/* Operands go to operands[], *count of them. False after telling what is wrong; *help is set by --help or -h. */
bool options_parse(const struct command *command, int argc, char **argv, const struct option *options,
                   const char **operands, size_t most, size_t *count, bool *help);

/* Terminal: width in columns (COLUMNS, else the terminal, else 80); colour when standard output is a terminal and
 * NO_COLOR is not set; Unicode when the locale takes UTF-8. */
extern struct ts_layout terminal;
void terminal_init(void);

/* The functions of report/layout.h, for this terminal. */
void put_styled(struct ts_buffer *out, enum ts_style style, const char *text);
size_t put_name(struct ts_buffer *out, const char *name, size_t columns);
void put_spaces(struct ts_buffer *out, size_t count);
void put_wrapped(struct ts_buffer *out, const char *text, size_t column, size_t indent);
/* Writes the buffer to standard output and clears it; false when the reader has gone. */
bool flush_out(struct ts_buffer *out);

/* Says the error on standard error: "tsleuth: path: at byte 12: tensor "x": message". Returns EXIT_TROUBLE. */
int tell_error(const struct ts_error *error);
int tell_usage(const struct command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Results: to a file, which appears whole under its name or not at all, or to "-", standard output. Devices and pipes
 * are written to directly. Whatever fails is told when it is closed. */
struct output {
    FILE *file;
    const char *path;
    char target[4096];    /* the path with links resolved */
    char temporary[4096]; /* beside the target; "" when the file has no name yet, or needs none */
    bool unnamed, failed;
    int reason; /* errno of the first write that failed */
};

bool output_open(struct output *output, const char *path);
bool output_possible(const char *path); /* a file could be written there now; tells why not. Leaves nothing behind */
void output_write(struct output *output, const void *data, size_t size);
bool output_close(struct output *output);
void output_discard(struct output *output); /* closes it; nothing appears under the name */
/* Removes what is half written. For signal handlers, before they end the program: calls nothing but unlink. */
void output_abandon(void);

struct json_file {
    struct ts_json_writer writer;
    struct ts_buffer buffer;
    struct output output;
};

bool json_file_open(struct json_file *json, const char *path);
bool json_file_close(struct json_file *json);

#endif
