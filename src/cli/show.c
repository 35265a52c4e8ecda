/* Owns `tsleuth show`: values of a slice, aligned and with their true coordinates. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/show.h"
#include "read/open.h"

static const char help[] = "usage: tsleuth show X 'NAME[SLICE]' [OPTIONS]\n"
                           "\n"
                           "Prints values of a tensor. SLICE is as in Python: indices, start:stop:step,\n"
                           "negative ones from the end, and one '...'; without it the whole tensor is\n"
                           "meant. More than 1,000 values are shortened unless --all is given. For one\n"
                           "element of a quantized tensor the block, scale and code it is made of are\n"
                           "shown too. NAME may be left out when X has one tensor, and may be the end or\n"
                           "a part of a name when only one tensor fits.\n"
                           "\n"
                           "  --precision N      significant digits (default 6; 0: all that the type has)\n"
                           "  --bits             the stored bits in hexadecimal\n"
                           "  --all              every value, however many\n"
                           "  --raw              quantized weights as their stored parts\n"
                           "  --json FILE        the values as JSON; - for standard output\n"
                           "  --follow-links     follow symbolic links that leave the folder\n"
                           "  --spool-limit GB   most temporary space for unpacking (default 64)\n"
                           "\n"
                           "examples:\n"
                           "  tsleuth show model.safetensors 'model.norm.weight[:8]'\n"
                           "  tsleuth show ref.pt 'layers.0.attn_scores[0, 3, :, -4:]' --precision 9\n"
                           "  tsleuth show model.gguf 'blk.0.ffn_down.weight[17, 42]'\n"
                           "  tsleuth show dump.npy '[..., 0]' --bits\n";

static bool ends_with_part(const char *name, const char *end)
{
    size_t length = strlen(name), suffix = strlen(end);
    return length > suffix && strcmp(name + length - suffix, end) == 0 && strchr(".:/", name[length - suffix - 1]);
}

/* The tensor a person means by `name`: exactly, by its last parts, or by any part, as long as only one fits. */
static struct ts_tensor *find_tensor(const struct ts_bundle *bundle, const char *name, size_t *candidates)
{
    struct ts_tensor *found = NULL;
    *candidates = 0;
    if (!name[0] && bundle->count == 1)
        return bundle->tensors[0];
    if (!name[0])
        return NULL;
    if ((found = ts_bundle_tensor(bundle, name)))
        return found;
    for (int pass = 0; pass < 2; pass++) {
        *candidates = 0;
        for (size_t i = 0; i < bundle->count; i++)
            if (pass ? strstr(bundle->tensors[i]->name, name) != NULL
                     : ends_with_part(bundle->tensors[i]->name, name)) {
                found = bundle->tensors[i];
                ++*candidates;
            }
        if (*candidates)
            return *candidates == 1 ? found : NULL;
    }
    return NULL;
}

static int tell_missing(const struct ts_bundle *bundle, const char *name, size_t candidates)
{
    struct ts_buffer out;
    size_t shown = 0;
    ts_buffer_init(&out, 65536);
    ts_buffer_string(&out, "tsleuth: ");
    if (!bundle->count)
        ts_buffer_string(&out, "the input has no readable tensor; see: tsleuth inspect");
    else if (!name[0])
        ts_buffer_printf(&out, "the input has %zu tensors; say which one, for example", bundle->count);
    else if (candidates)
        ts_buffer_printf(&out, "%zu tensors fit that name:", candidates);
    else
        ts_buffer_string(&out, "no tensor has that name or a part of it; there are");
    for (size_t i = 0; i < bundle->count && shown < 5; i++)
        if (!candidates || strstr(bundle->tensors[i]->name, name)) {
            ts_buffer_string(&out, "\n  ");
            ts_text_escape(&out, bundle->tensors[i]->name, strlen(bundle->tensors[i]->name));
            shown++;
        }
    if (shown && (candidates ? candidates : bundle->count) > shown)
        ts_buffer_string(&out, "\n  ...");
    ts_buffer_byte(&out, '\n');
    fputs(out.data ? out.data : "", stderr);
    ts_buffer_release(&out);
    return EXIT_TROUBLE;
}

/* Names may hold brackets themselves: the whole operand first, then what stands before the last '['. */
static int pick(struct view *view, const struct ts_bundle *bundle, const char *operand)
{
    const char *bracket = strrchr(operand, '[');
    size_t length = strlen(operand), candidates;
    struct ts_error error;
    char *name;
    view->tensor = operand[0] ? ts_bundle_tensor(bundle, operand) : NULL;
    if (!view->tensor && bracket && operand[length - 1] == ']') {
        name = strndup(operand, (size_t)(bracket - operand));
        if (!name)
            return EXIT_TROUBLE;
        view->tensor = find_tensor(bundle, name, &candidates);
        if (!view->tensor)
            tell_missing(bundle, name, candidates);
        free(name);
        if (!view->tensor)
            return EXIT_TROUBLE;
        if (ts_slice_parse(view->tensor, bracket + 1, length - (size_t)(bracket - operand) - 2, &view->slice, &error) !=
            TS_OK) {
            ts_error_tensor(&error, view->tensor->name);
            return tell_error(&error);
        }
        return EXIT_MATCH;
    }
    if (!view->tensor)
        view->tensor = find_tensor(bundle, operand, &candidates);
    if (!view->tensor)
        return tell_missing(bundle, operand, candidates);
    ts_slice_all(view->tensor, &view->slice);
    return EXIT_MATCH;
}

static int run(int argc, char **argv)
{
    struct view view = {0};
    struct ts_open_options open = {0};
    struct ts_bundle *bundle;
    struct ts_error error;
    const char *operands[2] = {NULL, ""}, *json = NULL;
    uint64_t precision = 6, spool_gigabytes = 0;
    size_t count;
    bool wants_help;
    int result;
    const struct option options[] = {{"precision", OPTION_COUNT, &precision},
                                     {"bits", OPTION_FLAG, &view.bits},
                                     {"all", OPTION_FLAG, &view.all},
                                     {"raw", OPTION_FLAG, &open.raw},
                                     {"json", OPTION_TEXT, &json},
                                     {"follow-links", OPTION_FLAG, &open.follow_links},
                                     {"spool-limit", OPTION_COUNT, &spool_gigabytes},
                                     {NULL, OPTION_FLAG, NULL}};
    if (!options_parse(&command_show, argc, argv, options, operands, 2, &count, &wants_help))
        return EXIT_TROUBLE;
    if (wants_help)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (!count)
        return tell_usage(&command_show, "no input; give a file and a tensor's name");
    if (precision > 40)
        return tell_usage(&command_show, "--precision goes up to 40");
    if (spool_gigabytes > 1000000)
        return tell_usage(&command_show, "--spool-limit is in gigabytes");
    open.spool_limit = spool_gigabytes * 1000000000;
    view.precision = (int)precision;
    if (ts_open(operands[0], &open, &bundle, &error) != TS_OK)
        return tell_error(&error);
    result = pick(&view, bundle, operands[1]);
    if (result == EXIT_MATCH)
        result = (json ? show_json(&view, json) : show_text(&view)) ? EXIT_MATCH : EXIT_TROUBLE;
    ts_bundle_free(bundle);
    return result;
}

const struct command command_show = {
    .name = "show",
    .summary = "print values of a slice of one tensor",
    .help = help,
    .run = run,
};
