/* Owns `tsleuth compare`: options, both inputs, the reports, exit status. */
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/progress.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/debug.h"
#include "cli/inputs.h"
#include "cli/trace_local.h"
#include "report/report.h"

static const char help[] = "usage: tsleuth compare REFERENCE CANDIDATE [OPTIONS]\n"
                           "\n"
                           "Compares two inputs (files, folders, archives, cached Hugging Face\n"
                           "repositories) tensor by tensor in execution order, tells floating-point noise\n"
                           "from bugs, and names the first tensor that is really wrong and why. The two\n"
                           "sides may use different names and layouts. For two checkpoints it says which\n"
                           "weights changed, by how much and where.\n"
                           "\n"
                           "  --checkpoint       the inputs are weights: each is judged by itself\n"
                           "  --trace            the inputs are captures of two runs, judged in execution\n"
                           "                     order; without either option the names decide\n"
                           "\n"
                           "judging (by default what rounding explains is learnt from the run itself)\n"
                           "  --rtol X --atol X  judge by |d| <= atol + rtol * |reference| only; one that is\n"
                           "                     not given is 0\n"
                           "  --rule 'REGEX: METRIC < X'\n"
                           "                     judge tensors whose name matches by this; repeatable, the\n"
                           "                     last match counts; also with >. Metrics: max_abs, mean_abs,\n"
                           "                     mse, rel_l2, max_rel, max_ulp, cosine, norm_ratio,\n"
                           "                     roundings, mismatched\n"
                           "  --grades           grade as EXCELLENT, GOOD, ACCEPTABLE or SIGNIFICANT; only\n"
                           "                     the last counts as different\n"
                           "  --exact            compare bit by bit\n"
                           "  --high-precision FILE\n"
                           "                     judge both runs against this one, made in higher precision\n"
                           "\n"
                           "diagnosing (see docs/causes.md)\n"
                           "  --weights PATH     the model's weights: lets products be replayed and causes\n"
                           "                     name the weight\n"
                           "  --weights-b PATH   the candidate's own weights, if they differ\n"
                           "  --config FILE      the model's config.json; without it the one beside the\n"
                           "                     weights. Tells the judge of experts, too\n"
                           "\n"
                           "a model as the reference\n"
                           "  --model PATH       run this model (a folder or a GGUF file) on the candidate's\n"
                           "                     own captured inputs, one operation at a time, so that each\n"
                           "                     shows only its own error; REFERENCE may be left out\n"
                           "  --tokens 1,2,3     its token ids, if the captures do not say; or --prompt TEXT,\n"
                           "                     --tokens-file FILE, --quick for a single token\n"
                           "\n"
                           "pairing\n"
                           "  --map FILE         lines of \"reference name = candidate name\", or JSON\n"
                           "  --save-map FILE    write the pairs that were found, for --map\n"
                           "  --rename 's/A/B/'  rewrite the candidate's names first; repeatable\n"
                           "  --order FILE       names in execution order, one per line\n"
                           "  --dims 'REGEX: tokens heads dim; ...'\n"
                           "                     name the axes of tensors; 'A:REGEX: ...' and 'B:REGEX: ...'\n"
                           "                     for one side only\n"
                           "  --partial          the candidate captured fewer points on purpose: what only\n"
                           "                     the reference has does not make the result incomplete\n"
                           "  --layer-offset N   layer of the reference minus layer of the candidate\n"
                           "  --raw              take quantized weights as their stored parts\n"
                           "\n"
                           "checkpoints\n"
                           "  --rank             the rank of each matrix's change: low for a merged LoRA,\n"
                           "                     full for training\n"
                           "\n"
                           "the report\n"
                           "  --filter REGEX     only tensors whose name matches (POSIX extended)\n"
                           "  --all              one line for each tensor, every list in full\n"
                           "  --only KIND        show only differing, noise, ok or unknown tensors\n"
                           "  --top N            show the N largest errors or changes, largest first\n"
                           "  --sort KEY         changed, order, name, error or size (default: changed for\n"
                           "                     checkpoints, order for traces)\n"
                           "  --json FILE        write the report as JSON; - for standard output\n"
                           "  --html FILE        ... as one HTML page with a chart, the table and heat maps\n"
                           "  --junit FILE       ... as JUnit XML, for build servers\n"
                           "  --csv FILE         ... as CSV, for spreadsheets\n"
                           "\n"
                           "  --follow-links     follow symbolic links that leave the folder\n"
                           "  --spool-limit GB   most temporary space for unpacking (default 64)\n"
                           "\n"
                           "Lines fit the terminal or COLUMNS; NO_COLOR turns colour off.\n"
                           "\n"
                           "Exit status: 0 match, 1 differ, 2 incomplete (something could not be compared,\n"
                           "and the report says what), 3 wrong usage or unreadable input.\n"
                           "\n"
                           "examples:\n"
                           "  tsleuth compare reference.safetensors candidate.safetensors\n"
                           "  tsleuth compare hf_dump.pt my_dump/ --html report.html\n"
                           "  tsleuth compare tp1.zip tp8.tar.gz --layer-offset -3 --all\n"
                           "  tsleuth compare model.safetensors model.gguf --only differing --top 20\n"
                           "  tsleuth compare base/ finetuned/ --rank --csv changes.csv\n"
                           "  tsleuth compare mine.safetensors --model Qwen3-0.6B\n"
                           "  tsleuth compare a.npz b.npz --rtol 1e-3 --atol 1e-5 --junit result.xml\n"
                           "  tsleuth compare a b --rule 'logits: cosine > 0.99' --rule 'norm: max_ulp < 4'\n";

enum form { FORM_JSON, FORM_HTML, FORM_JUNIT, FORM_CSV, FORMS };

struct settings {
    struct ts_open_options open;
    struct ts_comparison_options compare;
    struct ts_report_options report;
    struct option_list renames, rules;
    double rtol, atol;
    uint64_t top, spool_gigabytes;
    const char *only, *sort, *save_map;
    bool checkpoint, trace;
    const char *weights, *weights_b, *config; /* for the diagnosis */
    const char *model;                        /* to be run on the candidate's own inputs */
    struct model_input_options model_input;
    const char *paths[FORMS];
};

static const char *const form_names[FORMS] = {"json", "html", "junit", "csv"};

/* The judged kinds that --only means, 0 when it is not a word we know. */
static unsigned kinds_of(const char *only)
{
    static const struct {
        const char *word;
        unsigned kinds;
    } words[] = {{"differing", 1u << TS_JUDGED_DIFFERS},
                 {"differs", 1u << TS_JUDGED_DIFFERS},
                 {"noise", 1u << TS_JUDGED_NOISE},
                 {"ok", 1u << TS_JUDGED_OK},
                 {"unknown", 1u << TS_JUDGED_UNKNOWN}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(only, words[i].word) == 0)
            return words[i].kinds;
    return 0;
}

static bool sort_of(const char *word, enum ts_sort *sort)
{
    static const struct {
        const char *word;
        enum ts_sort sort;
    } words[] = {{"changed", TS_SORT_CHANGED},
                 {"order", TS_SORT_ORDER},
                 {"name", TS_SORT_NAME},
                 {"error", TS_SORT_ERROR},
                 {"size", TS_SORT_SIZE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0) {
            *sort = words[i].sort;
            return true;
        }
    return false;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat left, right;
    return stat(a, &left) == 0 && stat(b, &right) == 0 && left.st_dev == right.st_dev && left.st_ino == right.st_ino &&
           S_ISREG(left.st_mode);
}

/* Results must not land in an input, nor two of them in one place, nor where nothing can be written. */
static bool check_outputs(const struct settings *settings, const char *const *inputs)
{
    const char *paths[FORMS + 1], *names[FORMS + 1];
    for (int i = 0; i < FORMS; i++) {
        paths[i] = settings->paths[i];
        names[i] = form_names[i];
    }
    paths[FORMS] = settings->save_map;
    names[FORMS] = "save-map";
    for (int i = 0; i <= FORMS; i++) {
        if (!paths[i])
            continue;
        for (int k = 0; k < i; k++)
            if (paths[k] && (strcmp(paths[i], paths[k]) == 0 || is_same_file(paths[i], paths[k]))) {
                tell_usage(&command_compare, "--%s and --%s both write to \"%s\"", names[k], names[i], paths[i]);
                return false;
            }
        for (int k = 0; k < 2; k++)
            if (inputs[k] && is_same_file(paths[i], inputs[k])) {
                tell_usage(&command_compare, "--%s would overwrite the input \"%s\"", names[i], inputs[k]);
                return false;
            }
        if (!output_possible(paths[i])) /* said now, not behind an hour of comparing */
            return false;
    }
    return true;
}

/* What the options mean together. False after telling what is wrong. */
static bool settle(struct settings *settings, const char *const *inputs)
{
    struct ts_comparison_options *compare = &settings->compare;
    struct ts_delta_options *delta = &compare->delta;
    regex_t regex;
    if (settings->spool_gigabytes > 1000000) {
        tell_usage(&command_compare, "--spool-limit is in gigabytes");
        return false;
    }
    settings->open.spool_limit = settings->spool_gigabytes * 1000000000;
    delta->given = !isnan(settings->rtol) || !isnan(settings->atol);
    if (delta->given) {
        delta->tolerance.rtol = isnan(settings->rtol) ? 0 : settings->rtol;
        delta->tolerance.atol = isnan(settings->atol) ? 0 : settings->atol;
        if (!(delta->tolerance.rtol >= 0) || !(delta->tolerance.atol >= 0)) {
            tell_usage(&command_compare, "--rtol and --atol must not be negative");
            return false;
        }
        compare->fixed_tolerance = true;
        settings->report.tolerance = &delta->tolerance;
    }
    if (delta->exact && (delta->given || compare->grades || compare->high_precision || settings->rules.count)) {
        tell_usage(&command_compare, "--exact compares bytes and cannot be combined with %s",
                   delta->given            ? "--rtol and --atol"
                   : compare->grades       ? "--grades"
                   : settings->rules.count ? "--rule"
                                           : "--high-precision");
        return false;
    }
    if (delta->given && compare->grades) {
        tell_usage(&command_compare, "--grades cannot be combined with --rtol or --atol: each judges every tensor");
        return false;
    }
    settings->report.grades = compare->grades;
    settings->report.top = settings->top < SIZE_MAX ? (size_t)settings->top : SIZE_MAX;
    if (settings->only && !(settings->report.only = kinds_of(settings->only))) {
        tell_usage(&command_compare, "--only takes differing, noise, ok or unknown, not \"%s\"", settings->only);
        return false;
    }
    if (settings->sort && !sort_of(settings->sort, &settings->report.sort)) {
        tell_usage(&command_compare, "--sort takes changed, order, name, error or size, not \"%s\"", settings->sort);
        return false;
    }
    if (settings->checkpoint && settings->trace) {
        tell_usage(&command_compare, "--checkpoint and --trace cannot be combined");
        return false;
    }
    compare->subject = settings->checkpoint ? TS_SUBJECT_CHECKPOINTS
                       : settings->trace    ? TS_SUBJECT_TRACES
                                            : TS_SUBJECT_GUESS;
    if (compare->filter) {
        if (regcomp(&regex, compare->filter, REG_EXTENDED | REG_NOSUB) != 0) {
            tell_usage(&command_compare, "--filter \"%s\" is not a regular expression", compare->filter);
            return false;
        }
        regfree(&regex);
    }
    compare->pair.layer_offset_given = compare->pair.layer_offset != INT64_MIN;
    if (!compare->pair.layer_offset_given)
        compare->pair.layer_offset = 0;
    compare->pair.renames = settings->renames.count ? settings->renames.texts : NULL;
    compare->rules = settings->rules.count ? settings->rules.texts : NULL;
    compare->pair.by_content = true;
    return check_outputs(settings, inputs);
}

static bool write_json(const struct ts_comparison *comparison, const struct settings *settings)
{
    struct json_file file;
    if (!json_file_open(&file, settings->paths[FORM_JSON]))
        return false;
    ts_report_json(comparison, &settings->report, &file.writer);
    return json_file_close(&file);
}

/* The whole report is made before its file is opened. */
static bool write_form(const struct ts_comparison *comparison, const struct settings *settings, enum form form)
{
    struct ts_buffer buffer;
    struct ts_error error;
    struct output output;
    bool good = true;
    if (form == FORM_JSON)
        return write_json(comparison, settings);
    ts_buffer_init(&buffer, (size_t)2 << 30);
    if (form == FORM_CSV)
        ts_report_csv(comparison, &settings->report, &buffer);
    else if (form == FORM_JUNIT)
        ts_report_junit(comparison, &settings->report, &buffer);
    else if (ts_report_html(comparison, &settings->report, &buffer, &error) != TS_OK)
        good = tell_error(&error) == EXIT_MATCH;
    if (good && buffer.failed) {
        fprintf(stderr, "tsleuth: the report for \"%s\" does not fit in memory\n", settings->paths[form]);
        good = false;
    }
    if (good && output_open(&output, settings->paths[form])) {
        output_write(&output, buffer.data, buffer.size);
        good = output_close(&output);
    } else {
        good = false;
    }
    ts_buffer_release(&buffer);
    return good;
}

static bool write_map(const struct ts_comparison *comparison, const char *path)
{
    struct ts_buffer buffer;
    struct ts_error error;
    struct output output;
    bool good;
    ts_buffer_init(&buffer, (size_t)1 << 30);
    if (ts_pairing_put(&comparison->pairing, &buffer, &error) != TS_OK) {
        tell_error(&error);
        good = false;
    } else if ((good = output_open(&output, path))) {
        output_write(&output, buffer.data, buffer.size);
        good = output_close(&output);
    }
    ts_buffer_release(&buffer);
    return good;
}

static bool write_text(const struct ts_comparison *comparison, const struct settings *settings)
{
    struct ts_layout layout = terminal;
    struct ts_buffer buffer;
    bool good;
    layout.hints = terminal.hints && !settings->model; /* its run is not kept, and nothing else could open it */
    ts_buffer_init(&buffer, (size_t)2 << 30);
    ts_report_text(comparison, &settings->report, &layout, &buffer);
    good = !buffer.failed && flush_out(&buffer);
    ts_buffer_release(&buffer);
    return good;
}

static int report(const struct ts_comparison *comparison, const struct settings *settings)
{
    static const int statuses[] = {EXIT_MATCH, EXIT_DIFFER, EXIT_INCOMPLETE};
    bool good = true, quiet = false;
    if (settings->save_map)
        good = write_map(comparison, settings->save_map);
    for (int i = 0; i < FORMS; i++)
        if (settings->paths[i] && !atomic_load(&ts_cancelled)) {
            good = write_form(comparison, settings, (enum form)i) && good;
            quiet = quiet || strcmp(settings->paths[i], "-") == 0;
        }
    if (!quiet && !atomic_load(&ts_cancelled))
        good = write_text(comparison, settings) && good;
    if (atomic_load(&ts_cancelled))
        return EXIT_TROUBLE;
    return good ? statuses[comparison->outcome] : EXIT_TROUBLE;
}

/* Why the first divergence diverges is part of every report. */
static int explain_and_report(const struct ts_comparison *comparison, const struct ts_evidence *evidence,
                              const struct settings *settings)
{
    const size_t first = comparison->judgement.first;
    struct ts_diagnosis diagnosis;
    struct settings explained;
    struct ts_error error;
    int result;
    if (first == SIZE_MAX)
        return report(comparison, settings);
    if (ts_diagnose_with(comparison->pairing.pairs, comparison->deltas, comparison->pairing.count, first, evidence,
                         &diagnosis, &error) != TS_OK)
        return tell_error(&error);
    if (settings->compare.delta.exact && !diagnosis.count) /* bytes are equal or not: nothing is rounding */
        diagnosis.strongest = NULL;
    explained = *settings;
    explained.report.diagnosis = &diagnosis;
    result = report(comparison, &explained);
    ts_diagnosis_release(&diagnosis);
    return result;
}

/* With a model at hand the reference is what each of its operations gives for the candidate's own inputs. */
static int compare_with_model(const char *const *inputs, const struct settings *settings,
                              struct ts_comparison *comparison)
{
    struct ts_bundle *local, *candidate;
    struct ts_error error;
    int status = trace_local(settings->model, inputs[1], inputs[0], &settings->open, &settings->model_input,
                             &command_compare, &local);
    if (status != EXIT_MATCH)
        return status;
    if (ts_open(inputs[1], &settings->open, &candidate, &error) != TS_OK) {
        ts_bundle_free(local);
        return tell_error(&error);
    }
    return compare_bundles(local, candidate, &settings->compare, comparison) ? EXIT_MATCH : EXIT_TROUBLE;
}

/* Evidence is opened first: what is wrong with it is told before hours of reading, and the judge asks it for experts.
 */
static int compare(const char *const *inputs, struct settings *settings)
{
    struct ts_comparison comparison;
    struct ts_evidence *evidence;
    struct ts_error error;
    int result = EXIT_MATCH;
    if (ts_evidence_open(settings->weights, settings->weights_b, settings->config, &settings->open, &evidence,
                         &error) != TS_OK)
        return tell_error(&error);
    settings->compare.experts = ts_evidence_experts(evidence);
    if (settings->model)
        result = compare_with_model(inputs, settings, &comparison);
    else if (!compare_inputs(inputs, &settings->open, &settings->compare, &comparison))
        result = EXIT_TROUBLE;
    if (result == EXIT_MATCH) {
        result = explain_and_report(&comparison, evidence, settings);
        ts_comparison_release(&comparison);
    }
    ts_evidence_free(evidence);
    return result;
}

int compare_measured(int argc, char **argv, const struct ts_report_cost *costs)
{
    struct settings settings = {.rtol = (double)NAN, .atol = (double)NAN, .report.costs = costs};
    struct ts_comparison_options *options_compare = &settings.compare;
    const char *inputs[2] = {NULL, NULL};
    size_t operands;
    bool wants_help;
    const struct option options[] = {{"rtol", OPTION_NUMBER, &settings.rtol},
                                     {"atol", OPTION_NUMBER, &settings.atol},
                                     {"rule", OPTION_LIST, &settings.rules},
                                     {"grades", OPTION_FLAG, &options_compare->grades},
                                     {"exact", OPTION_FLAG, &options_compare->delta.exact},
                                     {"high-precision", OPTION_TEXT, &options_compare->high_precision},
                                     {"weights", OPTION_TEXT, &settings.weights},
                                     {"weights-b", OPTION_TEXT, &settings.weights_b},
                                     {"config", OPTION_TEXT, &settings.config},
                                     {"model", OPTION_TEXT, &settings.model},
                                     {"partial", OPTION_FLAG, &options_compare->partial},
                                     MODEL_INPUT_OPTIONS(settings.model_input),
                                     {"map", OPTION_TEXT, &options_compare->pair.map_file},
                                     {"save-map", OPTION_TEXT, &settings.save_map},
                                     {"rename", OPTION_LIST, &settings.renames},
                                     {"order", OPTION_TEXT, &options_compare->pair.order_file},
                                     {"dims", OPTION_TEXT, &options_compare->pair.dims},
                                     {"layer-offset", OPTION_INTEGER, &options_compare->pair.layer_offset},
                                     {"raw", OPTION_FLAG, &settings.open.raw},
                                     {"filter", OPTION_TEXT, &options_compare->filter},
                                     {"all", OPTION_FLAG, &settings.report.all},
                                     {"only", OPTION_TEXT, &settings.only},
                                     {"top", OPTION_COUNT, &settings.top},
                                     {"sort", OPTION_TEXT, &settings.sort},
                                     {"checkpoint", OPTION_FLAG, &settings.checkpoint},
                                     {"trace", OPTION_FLAG, &settings.trace},
                                     {"rank", OPTION_FLAG, &options_compare->rank},
                                     {"json", OPTION_TEXT, &settings.paths[FORM_JSON]},
                                     {"html", OPTION_TEXT, &settings.paths[FORM_HTML]},
                                     {"junit", OPTION_TEXT, &settings.paths[FORM_JUNIT]},
                                     {"csv", OPTION_TEXT, &settings.paths[FORM_CSV]},
                                     {"follow-links", OPTION_FLAG, &settings.open.follow_links},
                                     {"spool-limit", OPTION_COUNT, &settings.spool_gigabytes},
                                     {NULL, OPTION_FLAG, NULL}};
    options_compare->pair.layer_offset = INT64_MIN;
    if (!options_parse(&command_compare, argc, argv, options, inputs, 2, &operands, &wants_help))
        return EXIT_TROUBLE;
    if (wants_help)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (settings.model) /* which captures every point there is */
        options_compare->partial = true;
    if (operands == 1 && settings.model) { /* the model is the reference */
        inputs[1] = inputs[0];
        inputs[0] = NULL;
        operands = 2;
    }
    if (operands < 2)
        return tell_usage(&command_compare, "%s",
                          operands ? "only one input; give the reference, then the candidate"
                                   : "no input; give the reference, then the candidate");
    if (!settle(&settings, inputs))
        return EXIT_TROUBLE;
    return compare(inputs, &settings);
}

static int run(int argc, char **argv)
{
    return compare_measured(argc, argv, NULL);
}

const struct command command_compare = {
    .name = "compare",
    .summary = "find where a candidate parts ways with a reference",
    .help = help,
    .run = run,
};
