/* Owns `tsleuth check`: the integrity check, and expectations held against an input. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "check/expect.h"
#include "cli/command.h"
#include "cli/inspect.h"
#include "io/source.h"
#include "read/open.h"
#include "report/json_fields.h"

static const char help[] = "usage: tsleuth check X [OPTIONS]\n"
                           "       tsleuth check X --expect FILE [OPTIONS]\n"
                           "       tsleuth check X --record FILE [OPTIONS]\n"
                           "\n"
                           "Without --expect looks for what is broken or suspicious in X, as inspect --check\n"
                           "does. With it, checks the tensors of X against what FILE expects of them: shapes,\n"
                           "ranges, NaN and Inf, norms, sums of rows, entropy, sparsity, errors against a\n"
                           "reference. Each is reported with what was measured; one that matches no tensor\n"
                           "fails. docs/check.md describes the whole language; in short, a line is\n"
                           "\n"
                           "  layers.*.attn_probs  shape [1,4,*,*]  finite  rows-sum 1 ±1e-3  entropy [0.2,1]\n"
                           "  img_in               range [-15,16]  norm 123 ±5%\n"
                           "  blk.0.ffn_up.weight  relative-error-to ref.safetensors < 0.02\n"
                           "\n"
                           "  --expect FILE      the expectations\n"
                           "  --record FILE      write expectations from X, a good run; - for standard output\n"
                           "  --margin PERCENT   how much wider recorded ranges are (default 10)\n"
                           "  --failed           show only what failed or could not be decided\n"
                           "  --json FILE        the result as JSON; - for standard output\n"
                           "  --raw              quantized weights as their stored parts\n"
                           "  --follow-links     follow symbolic links that leave the folder\n"
                           "  --spool-limit GB   most temporary space for unpacking (default 64)\n"
                           "\n"
                           "Exit status: 0 all as expected, 1 something is not, 2 something could not be\n"
                           "decided, 3 wrong usage, an expectation that cannot be read, or unreadable input.\n"
                           "\n"
                           "examples:\n"
                           "  tsleuth check model.safetensors\n"
                           "  tsleuth check good.safetensors --record expected.txt\n"
                           "  tsleuth check mine.safetensors --expect expected.txt --failed\n";

struct request {
    const char *expect, *record, *json;
    double margin;
    bool failed;
    struct ts_open_options open;
};

struct checked {
    const struct ts_bundle *bundle;
    const char *file;
    const struct ts_expect *expect;
    const struct ts_expect_result *results;
    size_t passed, failed, unknown;
};

static void put_measured(struct ts_buffer *out, double low, double high)
{
    if (isnan(low) && isnan(high))
        return;
    if (low == high)
        ts_buffer_printf(out, "%.6g", low);
    else
        ts_buffer_printf(out, "%.6g to %.6g", low, high);
}

static void put_escaped(struct ts_buffer *out, const char *text)
{
    ts_text_escape(out, text, strlen(text));
}

/* "  fail  img_in  range [-15,16]: -22 to 31 in blocks.3.img_in, the first of 2 in 12 (line 4)" */
static void put_result(struct ts_buffer *out, const struct ts_expectation *expectation,
                       const struct ts_expect_result *result)
{
    static const char *const words[] = {"ok", "fail", "unknown"};
    static const enum ts_style styles[] = {TS_STYLE_GREEN, TS_STYLE_RED, TS_STYLE_YELLOW};
    ts_buffer_string(out, "  ");
    put_styled(out, styles[result->verdict], words[result->verdict]);
    put_spaces(out, 9 - strlen(words[result->verdict]));
    if (expectation->label) {
        put_escaped(out, expectation->label);
        ts_buffer_string(out, ": ");
    }
    put_escaped(out, expectation->pattern);
    ts_buffer_string(out, "  ");
    put_escaped(out, expectation->text);
    ts_buffer_string(out, ": ");
    if (result->verdict == TS_EXPECTED_PASS) {
        if (isnan(result->low) || expectation->property == TS_PROPERTY_FINITE)
            ts_buffer_string(out, result->tensors ? "yes" : "no tensor fits");
        else
            put_measured(out, result->low, result->high);
        if (result->tensors > 1 && expectation->property != TS_PROPERTY_TENSORS)
            ts_buffer_printf(out, " in %zu tensors", result->tensors);
    } else {
        if (result->why)
            put_escaped(out, result->why);
        else
            put_measured(out, result->measured, result->measured_to);
        if (!result->why && isnan(result->measured))
            ts_buffer_string(out, "nan");
        if (result->first && strcmp(result->first->name, expectation->pattern) != 0) {
            ts_buffer_string(out, " in ");
            put_escaped(out, result->first->name);
        }
        if (result->failed > 1)
            ts_buffer_printf(out, ", the first of %zu in %zu tensors", result->failed, result->tensors);
        ts_buffer_printf(out, " (line %zu)", expectation->line);
    }
    ts_buffer_byte(out, '\n');
}

static bool tell_text(const struct checked *checked, bool failed_only)
{
    struct ts_buffer out;
    bool good = true;
    ts_buffer_init(&out, (size_t)64 << 20);
    put_name(&out, checked->bundle->path, 1000);
    ts_buffer_byte(&out, '\n');
    for (size_t i = 0; i < checked->expect->count && good; i++) {
        if (!failed_only || checked->results[i].verdict != TS_EXPECTED_PASS)
            put_result(&out, &checked->expect->list[i], &checked->results[i]);
        if (out.size > 65536)
            good = flush_out(&out);
    }
    for (size_t i = 0; i < checked->bundle->skip_count; i++)
        if (!checked->bundle->skips[i].harmless) {
            ts_buffer_string(&out, "  unread   ");
            put_escaped(&out, checked->bundle->skips[i].path);
            ts_buffer_string(&out, ": ");
            put_escaped(&out, checked->bundle->skips[i].reason);
            ts_buffer_byte(&out, '\n');
        }
    ts_buffer_printf(&out, "\n%zu of %zu expectations hold", checked->passed, checked->expect->count);
    if (checked->failed)
        ts_buffer_printf(&out, ", %zu fail", checked->failed);
    if (checked->unknown)
        ts_buffer_printf(&out, ", %zu cannot be decided", checked->unknown);
    ts_buffer_byte(&out, '\n');
    good = good && flush_out(&out);
    ts_buffer_release(&out);
    return good;
}

static void number_or_null(struct ts_json_writer *json, const char *key, double value)
{
    if (isnan(value))
        ts_field_null(json, key);
    else
        ts_field_number(json, key, value);
}

static bool tell_json(const struct checked *checked, const char *path)
{
    static const char *const words[] = {"pass", "fail", "unknown"};
    struct json_file file;
    struct ts_json_writer *json = &file.writer;
    if (!json_file_open(&file, path))
        return false;
    ts_json_begin_object(json);
    ts_field_text(json, "schema", "tsleuth.check/1");
    ts_field_text(json, "input", checked->bundle->path);
    ts_field_text(json, "expectations", checked->file);
    ts_field_count(json, "passed", checked->passed);
    ts_field_count(json, "failed", checked->failed);
    ts_field_count(json, "unknown", checked->unknown);
    ts_json_key(json, "results");
    ts_json_begin_array(json);
    for (size_t i = 0; i < checked->expect->count; i++) {
        const struct ts_expectation *expectation = &checked->expect->list[i];
        const struct ts_expect_result *result = &checked->results[i];
        ts_json_begin_object(json);
        ts_field_count(json, "line", expectation->line);
        ts_field_count(json, "column", expectation->column);
        ts_field_text(json, "label", expectation->label);
        ts_field_text(json, "pattern", expectation->pattern);
        ts_field_text(json, "property", ts_property_name(expectation->property));
        ts_field_text(json, "expected", expectation->text);
        ts_field_text(json, "verdict", words[result->verdict]);
        ts_field_count(json, "tensors", result->tensors);
        ts_field_count(json, "failed", result->failed);
        number_or_null(json, "low", result->low);
        number_or_null(json, "high", result->high);
        ts_field_text(json, "first_failed", result->first ? result->first->name : NULL);
        ts_field_text(json, "why", result->why);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "unread");
    ts_json_begin_array(json);
    for (size_t i = 0; i < checked->bundle->skip_count; i++)
        if (!checked->bundle->skips[i].harmless) {
            ts_json_begin_object(json);
            ts_field_text(json, "path", checked->bundle->skips[i].path);
            ts_field_text(json, "reason", checked->bundle->skips[i].reason);
            ts_json_end_object(json);
        }
    ts_json_end_array(json);
    ts_json_end_object(json);
    return json_file_close(&file);
}

static int verdict(const struct checked *checked)
{
    if (checked->failed)
        return EXIT_DIFFER;
    for (size_t i = 0; i < checked->bundle->skip_count; i++)
        if (!checked->bundle->skips[i].harmless)
            return EXIT_INCOMPLETE;
    return checked->unknown ? EXIT_INCOMPLETE : EXIT_MATCH;
}

static uint64_t bytes_of(const struct ts_bundle *bundle)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < bundle->count; i++)
        bytes += bundle->tensors[i]->bytes;
    return bytes;
}

static int hold(const struct request *request, const struct ts_bundle *bundle, const struct ts_expect *expect,
                struct ts_pool *pool)
{
    struct checked checked = {.bundle = bundle, .file = request->expect, .expect = expect};
    const char *slash = strrchr(request->expect, '/');
    struct ts_expect_result *results = calloc(expect->count + 1, sizeof *results);
    char *folder =
        slash ? strndup(request->expect, (size_t)(slash - request->expect) + (slash == request->expect)) : strdup(".");
    struct ts_arena arena;
    struct ts_progress progress;
    struct ts_error error;
    enum ts_status status;
    bool good = true;
    int result;
    ts_arena_init(&arena, (size_t)1 << 30);
    if (!results || !folder) {
        status = ts_fail_memory(&error);
    } else {
        ts_progress_start(&progress, "measuring", bytes_of(bundle));
        status = ts_expect_run(pool, bundle, expect, folder, results, &arena, &progress, &error);
        ts_progress_finish(&progress);
    }
    if (status == TS_OK) {
        checked.results = results;
        for (size_t i = 0; i < expect->count; i++) {
            checked.passed += results[i].verdict == TS_EXPECTED_PASS;
            checked.failed += results[i].verdict == TS_EXPECTED_FAIL;
            checked.unknown += results[i].verdict == TS_EXPECTED_UNKNOWN;
        }
        good = !request->json || tell_json(&checked, request->json);
        if (!request->json || strcmp(request->json, "-") != 0)
            good = tell_text(&checked, request->failed) && good;
        result = good ? verdict(&checked) : EXIT_TROUBLE;
    } else {
        result = tell_error(&error);
    }
    ts_arena_release(&arena);
    free(results);
    free(folder);
    return result;
}

static int expect_file(const struct request *request, const struct ts_bundle *bundle, struct ts_pool *pool)
{
    struct ts_source *source;
    struct ts_expect expect;
    struct ts_error error;
    int result;
    if (ts_source_open(request->expect, &source, &error) != TS_OK)
        return tell_error(&error);
    if (ts_expect_parse(source->data, (size_t)source->size, &expect, &error) == TS_OK) {
        result = hold(request, bundle, &expect, pool);
        ts_expect_release(&expect);
    } else {
        ts_error_path(&error, request->expect);
        result = tell_error(&error);
    }
    ts_source_release(source);
    return result;
}

static int record_file(const struct request *request, const struct ts_bundle *bundle, struct ts_pool *pool)
{
    struct ts_progress progress;
    struct ts_buffer text;
    struct output output;
    struct ts_error error;
    enum ts_status status;
    int result = EXIT_TROUBLE;
    ts_buffer_init(&text, (size_t)256 << 20);
    ts_progress_start(&progress, "measuring", bytes_of(bundle));
    status = ts_expect_record(pool, bundle, request->margin / 100, &text, &progress, &error);
    ts_progress_finish(&progress);
    if (status != TS_OK) {
        result = tell_error(&error);
    } else if (output_open(&output, request->record)) {
        output_write(&output, text.data, text.size);
        result = output_close(&output) ? EXIT_MATCH : EXIT_TROUBLE;
    }
    for (size_t i = 0; i < bundle->skip_count && result == EXIT_MATCH; i++)
        if (!bundle->skips[i].harmless) {
            fputs("tsleuth: not all of the input could be read; see tsleuth inspect\n", stderr);
            result = EXIT_INCOMPLETE;
        }
    ts_buffer_release(&text);
    return result;
}

static int run(int argc, char **argv)
{
    struct request request = {.margin = 10};
    uint64_t spool_gigabytes = 0;
    struct ts_bundle *bundle;
    struct ts_pool *pool;
    struct ts_error error;
    const char *path;
    size_t operands;
    bool wants_help;
    int result;
    const struct option options[] = {{"expect", OPTION_TEXT, &request.expect},
                                     {"record", OPTION_TEXT, &request.record},
                                     {"margin", OPTION_NUMBER, &request.margin},
                                     {"failed", OPTION_FLAG, &request.failed},
                                     {"json", OPTION_TEXT, &request.json},
                                     {"raw", OPTION_FLAG, &request.open.raw},
                                     {"follow-links", OPTION_FLAG, &request.open.follow_links},
                                     {"spool-limit", OPTION_COUNT, &spool_gigabytes},
                                     {NULL, OPTION_FLAG, NULL}};
    if (!options_parse(&command_check, argc, argv, options, &path, 1, &operands, &wants_help))
        return EXIT_TROUBLE;
    if (wants_help)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (!operands)
        return tell_usage(&command_check, "no input; give a file, a folder or an archive");
    if (request.expect && request.record)
        return tell_usage(&command_check, "--expect and --record cannot be combined");
    if (request.record && request.json)
        return tell_usage(&command_check, "--record writes no JSON");
    if (!(request.margin >= 0 && request.margin <= 1000))
        return tell_usage(&command_check, "--margin is a percentage from 0 to 1000");
    if (spool_gigabytes > 1000000)
        return tell_usage(&command_check, "--spool-limit is in gigabytes");
    request.open.spool_limit = spool_gigabytes * 1000000000;
    if (!request.expect && !request.record)
        return inspect_check(path, &request.open, request.json);
    if (ts_open(path, &request.open, &bundle, &error) != TS_OK)
        return tell_error(&error);
    pool = ts_pool_new(0);
    if (!pool) {
        ts_fail_memory(&error);
        result = tell_error(&error);
    } else {
        result = request.expect ? expect_file(&request, bundle, pool) : record_file(&request, bundle, pool);
        ts_pool_free(pool);
    }
    ts_bundle_free(bundle);
    return result;
}

const struct command command_check = {
    .name = "check",
    .summary = "find what is broken, or check against expectations",
    .help = help,
    .run = run,
};
