/* Owns `tsleuth inspect`: options, what is gathered, exit status. */
#include "cli/inspect.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const char help[] = "usage: tsleuth inspect X [OPTIONS]\n"
                           "\n"
                           "Lists the tensors of a file, a folder, an archive or a cached Hugging Face\n"
                           "repository, with element types, shapes, sizes, metadata, totals, and every\n"
                           "member that could not be read, with the reason.\n"
                           "\n"
                           "  --stats            min, max, mean, std, norm, zeros, NaN and Inf with the first\n"
                           "                     place of each, and a small histogram\n"
                           "  --check            look for what is broken or suspicious: truncated, NaN,\n"
                           "                     constant or half-filled tensors, copies, weights that\n"
                           "                     config.json promises and the file lacks, bad quantization\n"
                           "                     groups; exit status 1 when something is found\n"
                           "  --filter REGEX     only tensors whose name matches (POSIX extended)\n"
                           "  --sort KEY         order (default), name or size\n"
                           "  --raw              quantized weights as their stored parts\n"
                           "  --all              every metadata entry, nothing shortened\n"
                           "  --json FILE        the result as JSON; - for standard output\n"
                           "  --follow-links     follow symbolic links that leave the folder\n"
                           "  --spool-limit GB   most temporary space for unpacking (default 64)\n"
                           "\n"
                           "examples:\n"
                           "  tsleuth inspect model.safetensors\n"
                           "  tsleuth inspect llama-3/ --stats --filter 'layers\\.0\\.'\n"
                           "  tsleuth inspect dumps.tar.gz --check\n"
                           "  tsleuth inspect model-Q4_K_M.gguf --sort size --json - | jq .totals\n"
                           "  tsleuth inspect hf://Qwen/Qwen3-0.6B\n";

static int by_name(const void *a, const void *b)
{
    const struct ts_tensor *const *left = a, *const *right = b;
    return ts_natural_compare((*left)->name, (*right)->name);
}

static int by_size(const void *a, const void *b)
{
    const struct ts_tensor *const *left = a, *const *right = b;
    if ((*left)->bytes != (*right)->bytes)
        return (*left)->bytes > (*right)->bytes ? -1 : 1;
    return by_name(a, b);
}

static bool select_tensors(struct inspection *inspection, const regex_t *filter, const char *sort,
                           struct ts_error *error)
{
    struct ts_bundle *bundle = inspection->bundle;
    inspection->tensors = calloc(bundle->count + 1, sizeof(struct ts_tensor *));
    if (!inspection->tensors) {
        ts_fail_memory(error);
        return false;
    }
    for (size_t i = 0; i < bundle->count; i++)
        if (!filter || regexec(filter, bundle->tensors[i]->name, 0, NULL, 0) == 0)
            inspection->tensors[inspection->count++] = bundle->tensors[i];
    if (strcmp(sort, "order") != 0)
        qsort(inspection->tensors, inspection->count, sizeof *inspection->tensors,
              strcmp(sort, "name") == 0 ? by_name : by_size);
    return true;
}

static enum ts_status measure(struct inspection *inspection, bool check, struct ts_error *error)
{
    struct ts_pool *pool = ts_pool_new(0);
    struct ts_progress progress;
    uint64_t bytes = 0;
    enum ts_status status;
    struct ts_bundle *bundle = inspection->bundle;
    struct ts_tensor **tensors = check ? bundle->tensors : inspection->tensors;
    size_t count = check ? bundle->count : inspection->count;
    struct ts_stats *stats = calloc(count + 1, sizeof *stats);
    if (!pool || !stats) {
        status = ts_fail_memory(error);
    } else {
        for (size_t i = 0; i < count; i++)
            bytes += tensors[i]->bytes;
        ts_progress_start(&progress, "statistics", bytes);
        status = ts_stats_run(pool, tensors, count, stats, &progress, error);
        ts_progress_finish(&progress);
    }
    if (status == TS_OK && check) {
        inspection->check = calloc(1, sizeof *inspection->check);
        ts_progress_start(&progress, "checking", bytes);
        status = inspection->check ? ts_check_run(pool, bundle, stats, &progress, inspection->check, error)
                                   : ts_fail_memory(error);
        ts_progress_finish(&progress);
        free(stats);
    } else {
        inspection->stats = stats;
    }
    if (pool)
        ts_pool_free(pool);
    return status;
}

static void release(struct inspection *inspection)
{
    if (inspection->check)
        ts_check_release(inspection->check);
    free(inspection->check);
    free(inspection->stats);
    free(inspection->tensors);
    totals_release(&inspection->totals);
    ts_bundle_free(inspection->bundle);
}

/* 1 when the check found something, 2 when something of value could not be read, else 0. */
static int verdict(const struct inspection *inspection)
{
    if (inspection->check && inspection->check->faults + inspection->check->warnings > 0)
        return EXIT_DIFFER;
    for (size_t i = 0; i < inspection->bundle->skip_count; i++)
        if (!inspection->bundle->skips[i].harmless)
            return EXIT_INCOMPLETE;
    return inspection->bundle->count ? EXIT_MATCH : EXIT_INCOMPLETE;
}

struct settings {
    const char *filter, *sort, *json;
    bool stats, check;
    regex_t regex;
};

static int inspect(struct inspection *inspection, struct settings *settings)
{
    struct ts_error error;
    bool good;
    if (!select_tensors(inspection, settings->filter ? &settings->regex : NULL, settings->sort, &error))
        return tell_error(&error);
    if (settings->stats && measure(inspection, false, &error) != TS_OK)
        return tell_error(&error);
    if (settings->check && measure(inspection, true, &error) != TS_OK)
        return tell_error(&error);
    if (totals_of(inspection->tensors, inspection->count, &inspection->totals, &error) != TS_OK)
        return tell_error(&error);
    good = !settings->json || inspect_json(inspection, settings->json);
    if (!settings->json || strcmp(settings->json, "-") != 0)
        good = inspect_text(inspection) && good;
    return good ? verdict(inspection) : EXIT_TROUBLE;
}

int inspect_check(const char *path, const struct ts_open_options *open, const char *json)
{
    struct settings settings = {.sort = "order", .json = json, .check = true};
    struct inspection inspection = {0};
    struct ts_error error;
    int result =
        ts_open(path, open, &inspection.bundle, &error) == TS_OK ? inspect(&inspection, &settings) : tell_error(&error);
    release(&inspection);
    return result;
}

static int run(int argc, char **argv)
{
    struct settings settings = {.sort = "order"};
    struct ts_open_options open = {0};
    struct inspection inspection = {0};
    uint64_t spool_gigabytes = 0;
    const char *path;
    size_t operands;
    bool wants_help;
    int result;
    struct ts_error error;
    const struct option options[] = {{"stats", OPTION_FLAG, &settings.stats},
                                     {"check", OPTION_FLAG, &settings.check},
                                     {"filter", OPTION_TEXT, &settings.filter},
                                     {"sort", OPTION_TEXT, &settings.sort},
                                     {"raw", OPTION_FLAG, &open.raw},
                                     {"all", OPTION_FLAG, &inspection.all},
                                     {"json", OPTION_TEXT, &settings.json},
                                     {"follow-links", OPTION_FLAG, &open.follow_links},
                                     {"spool-limit", OPTION_COUNT, &spool_gigabytes},
                                     {NULL, OPTION_FLAG, NULL}};
    if (!options_parse(&command_inspect, argc, argv, options, &path, 1, &operands, &wants_help))
        return EXIT_TROUBLE;
    if (wants_help)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (!operands)
        return tell_usage(&command_inspect, "no input; give a file, a folder or an archive");
    if (strcmp(settings.sort, "order") != 0 && strcmp(settings.sort, "name") != 0 && strcmp(settings.sort, "size") != 0)
        return tell_usage(&command_inspect, "--sort takes order, name or size, not \"%s\"", settings.sort);
    if (spool_gigabytes > 1000000)
        return tell_usage(&command_inspect, "--spool-limit is in gigabytes");
    open.spool_limit = spool_gigabytes * 1000000000;
    if (settings.filter && regcomp(&settings.regex, settings.filter, REG_EXTENDED | REG_NOSUB) != 0)
        return tell_usage(&command_inspect, "--filter \"%s\" is not a regular expression", settings.filter);
    result = ts_open(path, &open, &inspection.bundle, &error) == TS_OK ? inspect(&inspection, &settings)
                                                                       : tell_error(&error);
    release(&inspection);
    if (settings.filter)
        regfree(&settings.regex);
    return result;
}

const struct command command_inspect = {
    .name = "inspect",
    .summary = "list what an input holds; statistics; integrity check",
    .help = help,
    .run = run,
};
