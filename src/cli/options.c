/* Owns option parsing for every command. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"

int tell_usage(const struct command *command, const char *format, ...)
{
    va_list args;
    char text[512];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "tsleuth %s: %s\nTry 'tsleuth %s --help'.\n", command->name, text, command->name);
    return EXIT_TROUBLE;
}

static const struct option *find_option(const struct option *options, const char *name, size_t length)
{
    for (; options->name; options++)
        if (strlen(options->name) == length && memcmp(options->name, name, length) == 0)
            return options;
    return NULL;
}

static bool add_to_list(const struct command *command, const struct option *option, const char *text)
{
    struct option_list *list = option->value;
    if (list->count == OPTION_LIST_MOST) {
        tell_usage(command, "--%s is given more than %d times", option->name, OPTION_LIST_MOST);
        return false;
    }
    list->texts[list->count++] = text;
    return true;
}

static bool set_value(const struct command *command, const struct option *option, const char *text)
{
    char *end = NULL;
    errno = 0;
    switch (option->kind) {
    case OPTION_FLAG: /* takes none */
        return false;
    case OPTION_TEXT:
        *(const char **)option->value = text;
        return true;
    case OPTION_LIST:
        return add_to_list(command, option, text);
    case OPTION_COUNT:
        *(uint64_t *)option->value = strtoull(text, &end, 10);
        if (*text == '-') /* strtoull would wrap it */
            end = NULL;
        break;
    case OPTION_INTEGER:
        *(int64_t *)option->value = strtoll(text, &end, 10);
        break;
    case OPTION_NUMBER:
        *(double *)option->value = strtod(text, &end);
        if (isnan(*(double *)option->value))
            end = NULL; /* "nan" is no number */
        break;
    }
    if (errno || !end || *end || end == text) {
        tell_usage(command, "--%s needs a %s, not \"%s\"", option->name,
                   option->kind == OPTION_NUMBER ? "number" : "whole number", text);
        return false;
    }
    return true;
}

bool options_parse(const struct command *command, int argc, char **argv, const struct option *options,
                   const char **operands, size_t most, size_t *count, bool *help)
{
    bool only_operands = false;
    *count = 0;
    *help = false;
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i], *equals;
        const struct option *option;
        size_t length;
        if (only_operands || text[0] != '-' || text[1] == '\0') {
            if (*count == most) {
                tell_usage(command, "unexpected argument \"%s\"", text);
                return false;
            }
            operands[(*count)++] = text;
            continue;
        }
        if (strcmp(text, "--") == 0) {
            only_operands = true;
            continue;
        }
        if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0) {
            *help = true;
            return true;
        }
        equals = strchr(text, '=');
        length = equals ? (size_t)(equals - text) : strlen(text);
        if (length == 2 && text[1] != '-') /* "-o", where a command has an option of one letter */
            option = find_option(options, text + 1, 1);
        else
            option = length > 3 && text[1] == '-' ? find_option(options, text + 2, length - 2) : NULL;
        if (!option) {
            tell_usage(command, "unknown option \"%.*s\"", (int)length, text);
            return false;
        }
        if (option->kind == OPTION_FLAG) {
            if (equals) {
                tell_usage(command, "--%s takes no value", option->name);
                return false;
            }
            *(bool *)option->value = true;
        } else if (equals) {
            if (!set_value(command, option, equals + 1))
                return false;
        } else if (i + 1 < argc) {
            if (!set_value(command, option, argv[++i]))
                return false;
        } else {
            tell_usage(command, "--%s needs a value", option->name);
            return false;
        }
    }
    return true;
}
