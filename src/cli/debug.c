/* Owns `tsleuth debug`: the whole loop in one command. Reference, candidate, comparison, for one prompt or many. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/progress.h"
#include "base/system.h"
#include "base/text.h"
#include "cli/child.h"
#include "cli/command.h"
#include "cli/debug.h"
#include "cli/model_input.h"

static const char help[] = "usage: tsleuth debug MODEL [OPTIONS] -- COMMAND ...\n"
                           "\n"
                           "Runs MODEL here for a reference, runs COMMAND as the candidate on the same\n"
                           "tokens, then compares what both captured, names the first divergence and its\n"
                           "cause. The reference is kept and used again while the model and the tokens stay\n"
                           "the same. The candidate finds in its environment\n"
                           "\n"
                           "  TSLEUTH_DUMP         a folder to write its tensors to, in any format\n"
                           "  TSLEUTH_TOKENS       the token ids, separated by commas\n"
                           "  TSLEUTH_TOKENS_FILE  a file with them\n"
                           "  TSLEUTH_PROMPT       the prompt, where there is one\n"
                           "\n"
                           "and {dump}, {tokens}, {tokens_file} and {prompt} in its arguments stand for\n"
                           "these. include/tsleuth_dump.h and the Python package write there by themselves.\n"
                           "\n"
                           "  --prompt TEXT | --tokens 1,2,3 | --tokens-file FILE | --quick   the input\n"
                           "  --prompts FILE       several prompts, one per line; stops at the first\n"
                           "                       mismatch unless --keep-going is given\n"
                           "  --keep-going         report every prompt\n"
                           "  --compute fp32|bf16|fp16   precision of the reference (default fp32)\n"
                           "  --folder DIR         where both sides are kept (default tsleuth-debug)\n"
                           "  --skip-reference     use the existing reference\n"
                           "  --skip-candidate     use the candidate's existing dump\n"
                           "  --option OPTION      handed to compare as it is, such as --option --all or\n"
                           "                       --option --html={folder}/report.html; repeatable. {folder}\n"
                           "                       is the folder above, or the prompt's own in it\n"
                           "  --allow-unused       weights that the architecture does not use are fine\n"
                           "  --follow-links       follow symbolic links that leave the model's folder\n"
                           "\n"
                           "The folder also holds run.json: seconds and peak memory of both sides, and the\n"
                           "candidate's exit status; and candidate.log, what it printed.\n"
                           "\n"
                           "The exit status is compare's: 0 match, 1 differ, 2 incomplete, 3 trouble.\n"
                           "\n"
                           "examples:\n"
                           "  tsleuth debug Qwen3-0.6B --prompt 'Hello there' -- ./engine --ids {tokens}\n"
                           "  tsleuth debug model.gguf --tokens 1,2,3 -- python3 port.py --out {dump}\n"
                           "  tsleuth debug Qwen3-0.6B --prompts prompts.txt --keep-going -- ./engine\n";

struct request {
    struct model_input_options input;
    const char *model, *prompts, *folder, *compute;
    struct option_list options;
    struct ts_trace_options trace;
    bool keep_going, skip_reference, skip_candidate, follow_links;
    char *const *command;
};

/* Of the last change: a model may be written twice within a second. */
static long nanoseconds_of(const struct stat *info)
{
#ifdef __APPLE__
    return info->st_mtimespec.tv_nsec;
#else
    return info->st_mtim.tv_nsec;
#endif
}

static void put_file(struct ts_buffer *key, const struct ts_source *source)
{
    struct stat info;
    ts_buffer_printf(key, "file %s %" PRIu64, source->path, source->size);
    if (stat(source->path, &info) == 0)
        ts_buffer_printf(key, " %lld.%09ld", (long long)info.st_mtime, nanoseconds_of(&info));
    ts_buffer_byte(key, '\n');
}

/* What the reference depends on: another model, other tokens or another precision make it stale. */
static char *key_of(const struct request *request, const struct ts_model *model, const struct model_input *input)
{
    struct ts_buffer key;
    char *text, *real = realpath(request->model, NULL);
    ts_buffer_init(&key, (size_t)64 << 20);
    ts_buffer_printf(&key, "tsleuth %s\nmodel %s\n", TS_VERSION, real ? real : request->model);
    free(real);
    for (size_t i = 0; i < model->bundle->source_count; i++)
        put_file(&key, model->bundle->sources[i]);
    if (model->bundle->config)
        put_file(&key, model->bundle->config);
    ts_buffer_printf(&key, "compute %d\ntokens %s\n", (int)request->trace.model.compute, input->ids);
    text = key.failed ? NULL : strdup(key.data);
    ts_buffer_release(&key);
    return text;
}

static bool is_current(const struct debug_folder *folder, const char *key)
{
    char *old = debug_read_text(folder->key);
    struct stat info;
    bool same = old && key && strcmp(old, key) == 0 && stat(folder->reference, &info) == 0;
    free(old);
    return same;
}

/* The one that is there is used as it is; what it was made from is said where it is something else. */
static int find_reference(const struct request *request, const struct ts_model *model, const struct model_input *input,
                          const struct debug_folder *folder)
{
    struct stat info;
    char *key;
    if (stat(folder->reference, &info) != 0) {
        fprintf(stderr, "tsleuth: there is no reference to use, \"%s\": %s; leave out --skip-reference\n",
                folder->reference, strerror(errno));
        return EXIT_TROUBLE;
    }
    key = key_of(request, model, input);
    if (!is_current(folder, key))
        printf("note       the reference was made of another model, of other tokens or in another precision\n");
    free(key);
    return EXIT_MATCH;
}

/* Linux counts what the parent had before this program was started as well, except in /proc. */
static uint64_t own_peak(void)
{
    char *status = TS_LINUX ? debug_read_text("/proc/self/status") : NULL,
         *at = status ? strstr(status, "VmHWM:") : NULL;
    uint64_t bytes = at ? strtoull(at + strlen("VmHWM:"), NULL, 10) * 1024 : 0;
    struct rusage usage;
    free(status);
    if (!bytes && getrusage(RUSAGE_SELF, &usage) == 0)
        bytes = child_peak(&usage);
    return bytes;
}

static int make_reference(const struct request *request, struct ts_model *model, const struct model_input *input,
                          const struct debug_folder *folder, struct ts_pool *pool, struct debug_facts *facts)
{
    struct ts_trace_options options = request->trace;
    struct ts_trace_summary summary;
    struct ts_progress progress;
    struct ts_buffer trouble;
    struct ts_error error;
    struct output output;
    struct timespec start;
    char bytes[16], peak[16];
    enum ts_status status;
    char *key = key_of(request, model, input);
    facts->reused = is_current(folder, key);
    if (facts->reused) {
        printf("reference  unchanged, used again: %s\n", folder->reference);
        free(key);
        return EXIT_MATCH;
    }
    if (!output_open(&output, folder->reference)) {
        free(key);
        return EXIT_TROUBLE;
    }
    ts_buffer_init(&trouble, (size_t)1 << 20);
    ts_progress_start(&progress, "reference", 0);
    options.progress = &progress;
    clock_gettime(CLOCK_MONOTONIC, &start);
    status = model_trace(model, &options, input, pool, fileno(output.file), &summary, &trouble, &error);
    ts_progress_finish(&progress);
    if (status != TS_OK) {
        tell_error(&error);
        model_tell_trouble(&trouble);
        output_discard(&output);
    } else if (!output_close(&output) || !key || !debug_write_text(folder->key, key)) {
        status = TS_ERR_IO;
    } else {
        facts->reference.seconds = seconds_since(&start);
        facts->reference.peak_bytes = own_peak();
        printf("reference  %zu points, %s, in %.2f s, at most %s of memory\n", summary.points,
               ts_human_bytes(summary.bytes, bytes), facts->reference.seconds,
               ts_human_bytes(facts->reference.peak_bytes, peak));
    }
    ts_trace_summary_release(&summary);
    ts_buffer_release(&trouble);
    free(key);
    return status == TS_OK ? EXIT_MATCH : EXIT_TROUBLE;
}

/* The argument with its placeholders filled in, to be freed. */
static char *fill_in(const char *argument, const char *const *words)
{
    struct ts_buffer out;
    char *text;
    ts_buffer_init(&out, (size_t)64 << 20);
    ts_buffer_append(&out, "", 0);
    while (*argument) {
        size_t i = 0;
        while (words[i] && !ts_starts_with(argument, words[i]))
            i += 2;
        if (words[i]) {
            ts_buffer_string(&out, words[i + 1]);
            argument += strlen(words[i]);
        } else {
            ts_buffer_byte(&out, *argument++);
        }
    }
    text = out.failed ? NULL : strdup(out.data ? out.data : "");
    ts_buffer_release(&out);
    return text;
}

static int tell_failure(const struct request *request, const struct debug_folder *folder, const struct child *child,
                        bool dumped)
{
    if (child->status < 0)
        fprintf(stderr, "tsleuth: the candidate was ended by signal %d (%s)%s\n", -child->status,
                strsignal(-child->status), dumped ? "; what it dumped before is compared" : "");
    else if (child->status > 0)
        fprintf(stderr, "tsleuth: the candidate left with status %d%s\n", child->status,
                dumped ? "; what it dumped before is compared" : "");
    if (!dumped)
        fprintf(stderr,
                "tsleuth: the candidate dumped nothing into \"%s\"; it should write its tensors to the folder\n"
                "that TSLEUTH_DUMP or {dump} names\n",
                folder->dump);
    fprintf(stderr, "the last lines of \"%s\":\n", request->command[0]);
    debug_show_log(folder->log, stderr);
    return dumped ? EXIT_INCOMPLETE : EXIT_TROUBLE;
}

static int run_candidate(const struct request *request, const struct model_input *input, const char *prompt,
                         const struct debug_folder *folder, struct child *child)
{
    char *ids = strdup(input->ids), *to = ids, **arguments, bytes[16];
    size_t count = 0;
    bool good, dumped;
    int status = EXIT_TROUBLE;
    if (!ids)
        return EXIT_TROUBLE;
    for (const char *from = input->ids; *from; from++) /* "[1, 2]" as "1,2" */
        if (!strchr("[] ", *from))
            *to++ = *from;
    *to = '\0';
    while (request->command[count])
        count++;
    arguments = calloc(count + 1, sizeof *arguments);
    good = arguments && debug_write_text(folder->tokens, ids);
    {
        const char *const words[] = {"{tokens_file}", folder->tokens, "{tokens}", ids, "{dump}",
                                     folder->dump,    "{prompt}",     prompt,     NULL};
        const char *const environment[] = {
            "TSLEUTH_DUMP", folder->dump,          "TSLEUTH_TOKENS", ids, "TSLEUTH_PROMPT",
            prompt,         "TSLEUTH_TOKENS_FILE", folder->tokens,   NULL};
        for (size_t i = 0; good && i < count; i++)
            good = (arguments[i] = fill_in(request->command[i], words)) != NULL;
        if (!good || !debug_folder_fresh_dump(folder)) {
            fprintf(stderr, "tsleuth: cannot prepare \"%s\": %s\n", folder->dump, strerror(errno));
        } else if (!child_run(arguments, environment, folder->log, child)) {
            fprintf(stderr, "tsleuth: cannot run \"%s\": %s\n", arguments[0], strerror(errno));
        } else if (atomic_load(&ts_cancelled)) {
            fprintf(stderr, "tsleuth: interrupted\n");
        } else {
            dumped = debug_folder_has_dump(folder);
            printf("candidate  in %.2f s, at most %s of memory\n", child->seconds,
                   ts_human_bytes(child->peak_bytes, bytes));
            fflush(stdout);
            status = child->status || !dumped ? tell_failure(request, folder, child, dumped) : EXIT_MATCH;
        }
    }
    for (size_t i = 0; arguments && i < count; i++)
        free(arguments[i]);
    free(arguments);
    free(ids);
    return status;
}

/* Compare is called as a person would: its report, its options, its exit status. {folder} in an option is the round's
 * folder, so that each of many prompts has reports of its own. */
static int compare(const struct request *request, const struct debug_folder *folder, const struct debug_facts *facts)
{
    const struct ts_report_cost costs[] = {{facts->reference.seconds, facts->reference.peak_bytes},
                                           {facts->candidate.seconds, facts->candidate.peak_bytes}};
    const char *const words[] = {"{folder}", folder->path, NULL};
    char *arguments[OPTION_LIST_MOST + 5];
    int count = 0, own, status = EXIT_TROUBLE;
    arguments[count++] = (char *)"compare";
    arguments[count++] = (char *)folder->reference;
    arguments[count++] = (char *)folder->dump;
    arguments[count++] = (char *)"--partial"; /* the reference captures every point there is */
    own = count;
    for (size_t i = 0; i < request->options.count; i++)
        if ((arguments[count] = fill_in(request->options.texts[i], words)))
            count++;
    arguments[count] = NULL;
    putchar('\n');
    fflush(stdout);
    if ((size_t)(count - own) == request->options.count)
        status = compare_measured(count, arguments, costs);
    while (count > own)
        free(arguments[--count]);
    return status;
}

static int one_round(const struct request *request, struct ts_model *model, const struct model_input_options *options,
                     const char *path, struct ts_pool *pool)
{
    struct debug_folder folder;
    struct debug_facts facts;
    struct model_input input;
    struct ts_watcher nobody = {0};
    struct ts_error error;
    char text[256];
    const char *blind;
    int status, crashed = EXIT_MATCH;
    if (!debug_folder_open(path, &folder)) {
        fprintf(stderr, "tsleuth: cannot work in \"%s\": %s\n", path, strerror(errno));
        return EXIT_TROUBLE;
    }
    status = model_input_read(&command_debug, options, request->model, model, &input);
    if (status != EXIT_MATCH)
        return status;
    debug_facts_read(&folder, &facts);
    /* a plan that fails is told where the reference is made */
    if (ts_model_plan(model, &request->trace.model, input.tokens, input.count, pool, &nobody, NULL, &error) == TS_OK)
        for (unsigned i = 0; (blind = ts_trace_blind_spot(model, input.count, i, text)); i++)
            printf("note       %s\n", blind);
    if (!request->skip_reference)
        status = make_reference(request, model, &input, &folder, pool, &facts);
    else
        status = find_reference(request, model, &input, &folder);
    facts.reused = facts.reused || request->skip_reference;
    if (status == EXIT_MATCH && !request->skip_candidate) {
        fflush(stdout);
        facts.candidate = (struct child){0};
        crashed = run_candidate(request, &input, options->prompt ? options->prompt : "", &folder, &facts.candidate);
        status = crashed == EXIT_TROUBLE ? EXIT_TROUBLE : EXIT_MATCH;
    }
    if ((status == EXIT_MATCH || facts.candidate.seconds > 0) && !atomic_load(&ts_cancelled))
        debug_facts_write(&folder, &facts);
    model_input_release(&input);
    if (status != EXIT_MATCH || atomic_load(&ts_cancelled))
        return EXIT_TROUBLE;
    status = compare(request, &folder, &facts);
    return status == EXIT_MATCH ? crashed : status;
}

static int worse(int a, int b)
{
    static const int rank[] = {[EXIT_MATCH] = 0, [EXIT_DIFFER] = 2, [EXIT_INCOMPLETE] = 1, [EXIT_TROUBLE] = 3};
    return rank[a] >= rank[b] ? a : b;
}

/* Each prompt has a folder of its own; the summary says how each went. */
static int all_prompts(const struct request *request, struct ts_model *model, struct ts_pool *pool)
{
    static const char *const words[] = {"match", "differ", "incomplete", "trouble"};
    char *text = debug_read_text(request->prompts), *line, *rest;
    struct debug_folder outer;
    struct ts_buffer summary;
    int worst = EXIT_MATCH;
    size_t number = 0;
    if (!text)
        return debug_tell_unreadable(request->prompts);
    if (!text[strspn(text, "\r\n")]) {
        fprintf(stderr, "tsleuth: \"%s\" has no prompts; it should have one on each line\n", request->prompts);
        free(text);
        return EXIT_TROUBLE;
    }
    if (!debug_folder_open(request->folder, &outer)) {
        fprintf(stderr, "tsleuth: cannot work in \"%s\": %s\n", request->folder, strerror(errno));
        free(text);
        return EXIT_TROUBLE;
    }
    ts_buffer_init(&summary, (size_t)16 << 20);
    for (line = text; line && *line; line = rest) {
        struct model_input_options options = {.prompt = line, .quick = request->input.quick};
        char folder[4200];
        int status;
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = '\0';
        line[strcspn(line, "\r")] = '\0';
        if (!*line)
            continue;
        snprintf(folder, sizeof folder, "%s/prompt-%04zu", request->folder, ++number);
        printf("%sprompt %zu: %s\n", number > 1 ? "\n" : "", number, line);
        status = one_round(request, model, &options, folder, pool);
        worst = worse(status, worst);
        ts_buffer_printf(&summary, "  %4zu  %-10s  ", number, words[status]);
        ts_text_escape(&summary, line, strlen(line) < 50 ? strlen(line) : 50);
        ts_buffer_byte(&summary, '\n');
        if (status != EXIT_MATCH && !request->keep_going) {
            if (rest && *rest)
                ts_buffer_string(&summary, "  the prompts behind it were not run; --keep-going runs them all\n");
            break;
        }
    }
    printf("\nprompts\n%s", summary.data ? summary.data : "");
    ts_buffer_release(&summary);
    free(text);
    return worst;
}

static int debug(const struct request *request)
{
    struct ts_model model;
    struct ts_error error;
    struct ts_pool *pool;
    int status;
    if ((request->follow_links ? ts_model_open_linked : ts_model_open)(request->model, &model, &error) != TS_OK)
        return tell_error(&error);
    pool = ts_pool_new(0);
    if (!pool) {
        ts_model_release(&model);
        ts_fail_memory(&error);
        return tell_error(&error);
    }
    status = request->prompts ? all_prompts(request, &model, pool)
                              : one_round(request, &model, &request->input, request->folder, pool);
    ts_pool_free(pool);
    ts_model_release(&model);
    return status;
}

static int run(int argc, char **argv)
{
    struct request request = {.folder = "tsleuth-debug", .trace.model.cache = true};
    const char *operands[1];
    size_t count;
    bool asked;
    int own = 1, status;
    const struct option list[] = {MODEL_INPUT_OPTIONS(request.input),
                                  {"prompts", OPTION_TEXT, &request.prompts},
                                  {"keep-going", OPTION_FLAG, &request.keep_going},
                                  {"compute", OPTION_TEXT, &request.compute},
                                  {"folder", OPTION_TEXT, &request.folder},
                                  {"skip-reference", OPTION_FLAG, &request.skip_reference},
                                  {"skip-candidate", OPTION_FLAG, &request.skip_candidate},
                                  {"option", OPTION_LIST, &request.options},
                                  {"allow-unused", OPTION_FLAG, &request.trace.model.allow_unused},
                                  {"follow-links", OPTION_FLAG, &request.follow_links},
                                  {NULL, OPTION_FLAG, NULL}};
    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    if (!options_parse(&command_debug, own, argv, list, operands, 1, &count, &asked))
        return EXIT_TROUBLE;
    if (asked)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (count != 1)
        return tell_usage(&command_debug, "which model? Give its folder or GGUF file");
    request.model = operands[0];
    request.command = argv + (own < argc ? own + 1 : argc);
    if (!request.command[0] && !request.skip_candidate)
        return tell_usage(&command_debug, "what is to be debugged? Give its command behind --");
    if ((status = model_compute(&command_debug, request.compute, &request.trace.model.compute)) != EXIT_MATCH)
        return status;
    if (request.prompts && (request.input.prompt || request.input.tokens || request.input.tokens_file))
        return tell_usage(&command_debug, "--prompts takes the place of --prompt and --tokens");
    return debug(&request);
}

const struct command command_debug = {
    .name = "debug", .summary = "run a model, run your program, compare the two", .help = help, .run = run};
