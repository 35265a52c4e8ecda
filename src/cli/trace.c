/* Owns `tsleuth trace`: a forward pass in fp32 with every intermediate captured. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "cli/child.h"
#include "cli/command.h"
#include "cli/model_input.h"
#include "cli/trace_local.h"
#include "model/linear.h"
#include "model/trace.h"

static const char help[] =
    "usage: tsleuth trace MODEL [OPTIONS]\n"
    "\n"
    "Runs a model on this machine, deterministically and in fp32, and writes every\n"
    "intermediate tensor to a safetensors file, in execution order, under the names\n"
    "of transformers' modules. MODEL is a Hugging Face folder (config.json and\n"
    "weights), a GGUF file, or hf://owner/repo in the local cache. Weights are used\n"
    "at their exact values, a block at a time; a weight that is missing, left over or\n"
    "of the wrong shape is an error that names it.\n"
    "\n"
    "  --prompt TEXT        the input; needs the model's tokenizer.json or GGUF\n"
    "  --tokens 1,2,3       the input as token ids\n"
    "  --tokens-file FILE   the same from a file: ids separated by commas or blanks\n"
    "  --quick              one token, without a beginning-of-text token\n"
    "  -o, --output FILE    where to write (default trace.safetensors)\n"
    "  --points REGEX       keep only points whose name matches\n"
    "  --layers A-B         run up to layer B and keep points from layer A on\n"
    "  --each-expert        keep each expert's own output, too\n"
    "  --names qwen3|gemma3n  the names of those debugging systems\n"
    "  --list               show the points and their shapes; run nothing\n"
    "  --compute fp32|bf16|fp16  round where transformers does in that precision\n"
    "  --fast               products by OpenBLAS: other bits, less time\n"
    "  --no-cache           layers that share keys and values compute their own\n"
    "  --inject NAME=FILE   go on from the tensor NAME as FILE has it; repeatable\n"
    "  --local CANDIDATE    compute each operation from the candidate's own captured\n"
    "                       inputs, so that only its own error is seen\n"
    "  --stats              report what attention, gates and experts did\n"
    "  --json FILE          the summary as JSON; - for standard output\n"
    "  --allow-unused       weights that the architecture does not use are fine\n"
    "  --follow-links       follow symbolic links that leave the model's folder\n"
    "\nExit status: 0 fine, 2 no point matches the --local candidate, 3 wrong usage, unreadable\n"
    "input, or weights that do not fit the model.\n"
    "\n"
    "examples:\n"
    "  tsleuth trace Qwen3-0.6B --prompt 'The capital of France is' -o ref.safetensors\n"
    "  tsleuth trace model.gguf --tokens 1,15043,3186 --layers 0-3 --stats\n"
    "  tsleuth trace Qwen3-0.6B --points 'q_rope|k_rope' --compute bf16\n"
    "  tsleuth trace Qwen3-0.6B --tokens 1,2,3 --local mine.safetensors -o local.safetensors\n";

#define TOKENS_SHOWN 256

struct request {
    struct model_input_options input;
    const char *output, *layers, *compute, *local, *json;
    struct option_list inject;
    struct ts_trace_options trace;
    bool list, stats, no_cache, follow_links;
};

static int parse_layers(struct request *request)
{
    char *end;
    unsigned long first, last;
    if (!request->layers)
        return EXIT_MATCH;
    errno = 0;
    first = last = strtoul(request->layers, &end, 10);
    if (*end == '-' && end != request->layers)
        last = strtoul(end + 1, &end, 10);
    if (errno || end == request->layers || *end || last < first || last > 1000000 || request->layers[0] == '-')
        return tell_usage(&command_trace, "--layers is a number or a range such as 0-3, not \"%s\"", request->layers);
    request->trace.first_layer = first;
    request->trace.model.layer_limit = last + 1;
    return EXIT_MATCH;
}

static void list_point(void *context, const struct ts_point *point)
{
    struct ts_buffer *out = context;
    ts_buffer_printf(out, "  ");
    ts_text_escape(out, point->name, strlen(point->name));
    ts_buffer_string(out, "  [");
    for (unsigned i = 0; i < point->rank; i++)
        ts_buffer_printf(out, i ? ",%" PRIu64 : "%" PRIu64, point->shape[i]);
    ts_buffer_string(out, point->integer ? "] i64\n" : "]\n");
    if (out->size > 65536)
        flush_out(out);
}

static const char *next_text(const struct model_input *input, int64_t id, struct ts_buffer *out)
{
    ts_buffer_clear(out);
    model_input_piece(input, id, out);
    return out->data ? out->data : "";
}

static void tell_observations(const struct ts_trace_summary *summary, struct ts_buffer *out)
{
    static const char *const titles[] = {"entropy of each head over the keys it sees (1: all alike)",
                                         "share of gates that are shut", "share of the tokens at each expert",
                                         "root mean square of each stream"};
    for (unsigned kind = 0; kind < 4; kind++) {
        bool told = false;
        for (size_t i = 0; i < summary->observation_count; i++) {
            const struct ts_observation *one = &summary->observations[i];
            if (one->kind != kind)
                continue;
            if (!told)
                ts_buffer_printf(out, "\n%s\n", titles[kind]);
            told = true;
            ts_buffer_printf(out, "  %-40s", one->point);
            for (size_t k = 0; k < one->count && k < 16; k++)
                ts_buffer_printf(out, " %.3g", (double)one->values[k]);
            ts_buffer_string(out, one->count > 16 ? " ...\n" : "\n");
        }
    }
}

static void tell_text(const struct request *request, const struct ts_model *model, const struct model_input *input,
                      const struct ts_trace_summary *summary, double seconds)
{
    struct ts_buffer out, piece, line;
    char bytes[16], text[256];
    const char *blind;
    ts_buffer_init(&out, (size_t)16 << 20);
    ts_buffer_init(&piece, 4096);
    ts_buffer_init(&line, (size_t)1 << 20);
    ts_buffer_printf(&line, "%s, %zu token%s", model->type, input->count, input->count == 1 ? "" : "s");
    if (input->tokenizer) {
        ts_buffer_string(&line, ":");
        for (size_t i = 0; i < input->count && i < TOKENS_SHOWN; i++)
            ts_buffer_printf(&line, " %" PRId64 " %s", input->tokens[i], next_text(input, input->tokens[i], &piece));
        ts_buffer_string(&line, input->count > TOKENS_SHOWN ? " ..." : "");
    }
    put_wrapped(&out, line.data ? line.data : "", 0, 2);
    ts_buffer_byte(&out, '\n');
    ts_buffer_clear(&line);
    ts_buffer_printf(&out, "%zu points, %s, in %.2f s: %s\n", summary->points, ts_human_bytes(summary->bytes, bytes),
                     seconds, request->output);
    if (summary->next_count) {
        ts_buffer_string(&line, "next token:");
        for (size_t i = 0; i < summary->next_count; i++)
            ts_buffer_printf(&line, "%s %" PRId64 "%s%s %.1f %%", i ? "," : "", summary->next[i].id,
                             input->tokenizer ? " " : "", next_text(input, summary->next[i].id, &piece),
                             100 * summary->next[i].probability);
        put_wrapped(&out, line.data ? line.data : "", 0, 2);
        ts_buffer_byte(&out, '\n');
    }
    if (request->stats)
        tell_observations(summary, &out);
    for (unsigned i = 0; (blind = ts_trace_blind_spot(model, input->count, i, text)); i++) {
        ts_buffer_string(&out, "note: ");
        put_wrapped(&out, blind, 6, 6);
        ts_buffer_byte(&out, '\n');
    }
    flush_out(&out);
    ts_buffer_release(&line);
    ts_buffer_release(&piece);
    ts_buffer_release(&out);
}

/* What each token stands for, with bytes that are no text as \xNN; null for an id that the tokenizer does not have. */
static void tell_pieces(struct ts_json_writer *json, const struct model_input *input)
{
    struct ts_buffer shown;
    ts_buffer_init(&shown, (size_t)1 << 20);
    ts_json_key(json, "pieces");
    ts_json_begin_array(json);
    for (size_t i = 0; i < input->count; i++) {
        const char *piece =
            input->tokens[i] <= UINT32_MAX ? ts_token_piece(input->tokenizer, (uint32_t)input->tokens[i]) : NULL;
        ts_buffer_clear(&shown);
        if (piece)
            ts_text_escape(&shown, piece, strlen(piece));
        if (piece)
            ts_json_string(json, shown.data ? shown.data : "");
        else
            ts_json_null(json);
    }
    ts_json_end_array(json);
    ts_buffer_release(&shown);
}

static bool tell_json(const char *path, const struct request *request, const struct ts_model *model,
                      const struct model_input *input, const struct ts_trace_summary *summary, double seconds)
{
    static const char *const kinds[] = {"attention_entropy", "gates_shut", "expert_load", "stream_rms"};
    struct json_file file;
    struct ts_json_writer *json = &file.writer;
    const char *blind;
    char text[256];
    if (!json_file_open(&file, path))
        return false;
    ts_json_begin_object(json);
    ts_json_key(json, "schema");
    ts_json_string(json, "tsleuth.trace/1");
    ts_json_key(json, "model_type");
    ts_json_string(json, model->type);
    ts_json_key(json, "output");
    ts_json_string(json, request->output);
    ts_json_key(json, "tokens");
    ts_json_begin_array(json);
    for (size_t i = 0; i < input->count; i++)
        ts_json_int(json, input->tokens[i]);
    ts_json_end_array(json);
    if (input->tokenizer)
        tell_pieces(json, input);
    ts_json_key(json, "points");
    ts_json_uint(json, summary->points);
    ts_json_key(json, "bytes");
    ts_json_uint(json, summary->bytes);
    ts_json_key(json, "seconds");
    ts_json_number(json, seconds);
    ts_json_key(json, "next");
    ts_json_begin_array(json);
    for (size_t i = 0; i < summary->next_count; i++) {
        ts_json_begin_object(json);
        ts_json_key(json, "id");
        ts_json_int(json, summary->next[i].id);
        ts_json_key(json, "probability");
        ts_json_number(json, summary->next[i].probability);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "observations");
    ts_json_begin_array(json);
    for (size_t i = 0; i < summary->observation_count; i++) {
        const struct ts_observation *one = &summary->observations[i];
        ts_json_begin_object(json);
        ts_json_key(json, "point");
        ts_json_string(json, one->point);
        ts_json_key(json, kinds[one->kind]);
        ts_json_begin_array(json);
        for (size_t k = 0; k < one->count; k++)
            ts_json_number(json, (double)one->values[k]);
        ts_json_end_array(json);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "notes");
    ts_json_begin_array(json);
    for (unsigned i = 0; (blind = ts_trace_blind_spot(model, input->count, i, text)); i++)
        ts_json_string(json, blind);
    ts_json_end_array(json);
    ts_json_end_object(json);
    return json_file_close(&file);
}

static int tell_trouble(const struct ts_error *error, const struct ts_buffer *trouble)
{
    int status = tell_error(error);
    model_tell_trouble(trouble);
    return status;
}

static int write_trace(struct request *request, struct ts_model *model, const struct model_input *input,
                       struct ts_pool *pool, const struct trace_feed *feed)
{
    const char *unused;
    struct ts_trace_summary summary;
    struct ts_progress progress;
    struct ts_buffer trouble;
    struct ts_error error;
    struct output output;
    struct timespec start;
    double seconds;
    int status = EXIT_MATCH;
    enum ts_status result;
    if (!output_open(&output, request->output))
        return EXIT_TROUBLE;
    if (output.file == stdout) {
        tell_usage(&command_trace, "a trace is written in places and needs a file: --output FILE");
        return EXIT_TROUBLE;
    }
    ts_buffer_init(&trouble, (size_t)8 << 20);
    clock_gettime(CLOCK_MONOTONIC, &start);
    ts_progress_start(&progress, "running", 0);
    request->trace.progress = &progress;
    result = model_trace(model, &request->trace, input, pool, fileno(output.file), &summary, &trouble, &error);
    ts_progress_finish(&progress);
    seconds = seconds_since(&start);
    if (result != TS_OK) {
        status = tell_trouble(&error, &trouble);
        output_discard(&output);
    } else if ((unused = trace_feed_unused(feed))) {
        status = tell_usage(&command_trace, "there is no point \"%s\" to inject; --list shows them", unused);
        output_discard(&output);
    } else if (!output_close(&output)) {
        status = EXIT_TROUBLE;
    } else {
        if (!request->json || strcmp(request->json, "-") != 0)
            tell_text(request, model, input, &summary, seconds);
        if (request->json && !tell_json(request->json, request, model, input, &summary, seconds))
            status = EXIT_TROUBLE;
    }
    ts_buffer_release(&trouble);
    ts_trace_summary_release(&summary);
    return status;
}

static int list_points(const struct request *request, struct ts_model *model, const struct model_input *input,
                       struct ts_pool *pool)
{
    struct ts_buffer out, trouble;
    struct ts_error error;
    int status = EXIT_MATCH;
    ts_buffer_init(&out, (size_t)1 << 20);
    ts_buffer_init(&trouble, (size_t)8 << 20);
    if (ts_trace_list(model, &request->trace, input->tokens, input->count, pool, list_point, &out, &trouble, &error) !=
        TS_OK)
        status = tell_trouble(&error, &trouble);
    flush_out(&out);
    ts_buffer_release(&trouble);
    ts_buffer_release(&out);
    return status;
}

static int trace(struct request *request, const char *path)
{
    struct ts_model model;
    struct model_input input;
    struct ts_error error;
    struct ts_pool *pool;
    int status;
    if ((request->follow_links ? ts_model_open_linked : ts_model_open)(path, &model, &error) != TS_OK)
        return tell_error(&error);
    status = model_input_read(&command_trace, &request->input, path, &model, &input);
    pool = ts_pool_new(0);
    if (!pool && status == EXIT_MATCH) {
        ts_fail_memory(&error);
        status = tell_error(&error);
    }
    if (status == EXIT_MATCH && request->list)
        status = list_points(request, &model, &input, pool);
    else if (status == EXIT_MATCH) {
        struct trace_feed feed = {0};
        const struct ts_open_options open = {.follow_links = request->follow_links};
        status = request->local ? trace_feed_local(&feed, request->local, &open, &model, &request->trace, &input, pool)
                 : request->inject.count ? trace_feed_inject(&feed, &command_trace, &request->inject)
                                         : EXIT_MATCH;
        if (request->local || request->inject.count)
            request->trace.feed = &feed.feed;
        if (status == EXIT_MATCH)
            status = write_trace(request, &model, &input, pool, &feed);
        trace_feed_release(&feed);
    }
    ts_pool_free(pool);
    model_input_release(&input);
    ts_model_release(&model);
    return status;
}

static int run(int argc, char **argv)
{
    struct request request = {.output = "trace.safetensors"};
    const char *operands[1];
    size_t count;
    bool asked;
    int status;
    const struct option list[] = {MODEL_INPUT_OPTIONS(request.input),
                                  {"output", OPTION_TEXT, &request.output},
                                  {"o", OPTION_TEXT, &request.output},
                                  {"points", OPTION_TEXT, &request.trace.points},
                                  {"layers", OPTION_TEXT, &request.layers},
                                  {"each-expert", OPTION_FLAG, &request.trace.model.each_expert},
                                  {"names", OPTION_TEXT, &request.trace.names},
                                  {"list", OPTION_FLAG, &request.list},
                                  {"compute", OPTION_TEXT, &request.compute},
                                  {"fast", OPTION_FLAG, &request.trace.model.fast},
                                  {"no-cache", OPTION_FLAG, &request.no_cache},
                                  {"inject", OPTION_LIST, &request.inject},
                                  {"local", OPTION_TEXT, &request.local},
                                  {"stats", OPTION_FLAG, &request.stats},
                                  {"json", OPTION_TEXT, &request.json},
                                  {"allow-unused", OPTION_FLAG, &request.trace.model.allow_unused},
                                  {"follow-links", OPTION_FLAG, &request.follow_links},
                                  {NULL, OPTION_FLAG, NULL}};
    if (!options_parse(&command_trace, argc, argv, list, operands, 1, &count, &asked))
        return EXIT_TROUBLE;
    if (asked)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (count != 1)
        return tell_usage(&command_trace, "which model? Give its folder or GGUF file");
    request.trace.model.cache = !request.no_cache;
    if ((status = parse_layers(&request)) != EXIT_MATCH ||
        (status = model_compute(&command_trace, request.compute, &request.trace.model.compute)) != EXIT_MATCH)
        return status;
    if (request.local && request.inject.count)
        return tell_usage(&command_trace, "--local and --inject do not go together");
    return trace(&request, operands[0]);
}

const struct command command_trace = {
    .name = "trace", .summary = "run a model and capture every intermediate", .help = help, .run = run};
