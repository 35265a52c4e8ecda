/* Owns the input of a model run: prompts, ids and the tokenizer beside the model. */
#include "cli/model_input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/debug.h"
#include "io/source.h"

/* Long enough to reveal positions and the mask, and every window of the small test models. */
static const char default_prompt[] = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.";
#define IDS_LIMIT   ((size_t)64 << 20) /* bytes of a file of ids */
#define MOST_TOKENS 1000000

bool model_input_ids(const char *text, int64_t **tokens, size_t *count)
{
    size_t capacity = 0;
    const char *at = text;
    *tokens = NULL;
    *count = 0;
    for (;;) {
        char *end;
        long long id;
        at += strspn(at, " \t\r\n,[]");
        if (!*at)
            break;
        errno = 0;
        id = strtoll(at, &end, 10);
        if (end == at || errno || id < 0 || (*end && !strchr(" \t\r\n,[]", *end)) || *count == MOST_TOKENS)
            break;
        if (*count == capacity) {
            int64_t *larger;
            capacity = capacity ? 2 * capacity : 64;
            if (!(larger = realloc(*tokens, capacity * sizeof *larger)))
                break;
            *tokens = larger;
        }
        (*tokens)[(*count)++] = id;
        at = end;
    }
    if (!*at && *count)
        return true;
    free(*tokens);
    *tokens = NULL;
    *count = 0;
    return false;
}

int model_compute(const struct command *command, const char *text, enum ts_compute *compute)
{
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    for (size_t i = 0; i < 3; i++)
        if (!text || strcmp(text, names[i]) == 0) {
            *compute = (enum ts_compute)i;
            return EXIT_MATCH;
        }
    return tell_usage(command, "--compute is fp32, bf16 or fp16, not \"%s\"", text);
}

/* The tokenizer that the model brings: in a GGUF file itself, or a tokenizer.json in the folder, which for hf://... is
 * that of its config. NULL with no error when there is none. */
static bool open_tokenizer(const char *path, const struct ts_model *model, struct ts_tokenizer **tokenizer,
                           struct ts_error *error)
{
    struct ts_source *source;
    struct stat info;
    const char *slash;
    char *file;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    int length;
    if (ts_starts_with(path, "hf://") && model->bundle->config)
        path = model->bundle->config->path;
    slash = strrchr(path, '/');
    length = folder ? (int)strlen(path) : slash ? (int)(slash - path) : 1;
    *tokenizer = NULL;
    if (ts_starts_with(model->bundle->format, "gguf")) {
        *tokenizer = ts_tokenizer_from_gguf(model->bundle, error);
        return *tokenizer != NULL;
    }
    if (asprintf(&file, "%.*s/tokenizer.json", length, folder || slash ? path : ".") < 0) {
        ts_fail_memory(error);
        return false;
    }
    if (stat(file, &info) != 0) {
        free(file);
        return true;
    }
    if (ts_source_open(file, &source, error) == TS_OK) {
        *tokenizer = ts_tokenizer_from_json((const char *)source->data, (size_t)source->size, error);
        ts_source_release(source);
    }
    if (!*tokenizer)
        ts_error_path(error, file);
    free(file);
    return *tokenizer != NULL;
}

static int tokenize(struct model_input *input, const char *text, bool special)
{
    struct ts_error error;
    uint32_t *ids;
    if (!ts_tokenize(input->tokenizer, text, strlen(text), special, &ids, &input->count, &error))
        return tell_error(&error);
    input->tokens = malloc((input->count + 1) * sizeof *input->tokens);
    for (size_t i = 0; input->tokens && i < input->count; i++)
        input->tokens[i] = ids[i];
    free(ids);
    if (input->tokens)
        return EXIT_MATCH;
    ts_fail_memory(&error);
    return tell_error(&error);
}

static int read_ids_file(const struct command *command, const char *path, struct model_input *input)
{
    char *text = debug_read_text(path);
    bool good;
    if (!text)
        return debug_tell_unreadable(path);
    good = model_input_ids(text, &input->tokens, &input->count);
    free(text);
    return good ? EXIT_MATCH : tell_usage(command, "\"%s\" is not a list of token ids", path);
}

/* "[1, 2, 3]" */
static char *ids_text(const struct model_input *input)
{
    struct ts_buffer out;
    char *text;
    ts_buffer_init(&out, IDS_LIMIT);
    for (size_t i = 0; i < input->count; i++)
        ts_buffer_printf(&out, i ? ", %" PRId64 : "[%" PRId64, input->tokens[i]);
    ts_buffer_byte(&out, ']');
    text = out.failed ? NULL : strdup(out.data);
    ts_buffer_release(&out);
    return text;
}

int model_input_read(const struct command *command, const struct model_input_options *options, const char *path,
                     const struct ts_model *model, struct model_input *input)
{
    int given = (options->prompt != NULL) + (options->tokens != NULL) + (options->tokens_file != NULL);
    struct ts_error error;
    int status = EXIT_MATCH;
    *input = (struct model_input){.model = path};
    if (given > 1)
        return tell_usage(command, "only one of --prompt, --tokens and --tokens-file can be given");
    ts_error_clear(&error);
    if (!open_tokenizer(path, model, &input->tokenizer, &error) && !options->tokens && !options->tokens_file) {
        tell_error(&error);
        fputs("tsleuth: token ids can be given instead: --tokens 1,2,3\n", stderr);
        return EXIT_TROUBLE;
    }
    if (options->tokens) {
        if (!model_input_ids(options->tokens, &input->tokens, &input->count))
            status = tell_usage(command, "--tokens needs ids such as 1,2,3, not \"%s\"", options->tokens);
    } else if (options->tokens_file) {
        status = read_ids_file(command, options->tokens_file, input);
    } else if (!input->tokenizer) {
        status = tell_usage(command, "there is no tokenizer.json beside the model; give token ids: --tokens 1,2,3");
    } else if (options->prompt) {
        status = tokenize(input, options->prompt, !options->quick);
    } else {
        status = tokenize(input, options->quick ? "Hello" : default_prompt, !options->quick);
    }
    if (status == EXIT_MATCH && options->quick && input->count > 1)
        input->count = 1;
    if (status == EXIT_MATCH && !input->count)
        status = tell_usage(command, "the prompt has no tokens");
    if (status == EXIT_MATCH && !(input->ids = ids_text(input))) {
        ts_fail_memory(&error);
        status = tell_error(&error);
    }
    if (status != EXIT_MATCH)
        model_input_release(input);
    return status;
}

void model_input_release(struct model_input *input)
{
    free(input->tokens);
    free(input->ids);
    ts_tokenizer_free(input->tokenizer);
    *input = (struct model_input){0};
}

void model_input_piece(const struct model_input *input, int64_t id, struct ts_buffer *out)
{
    const char *piece =
        input->tokenizer && id >= 0 && id <= UINT32_MAX ? ts_token_piece(input->tokenizer, (uint32_t)id) : NULL;
    if (!piece)
        return;
    ts_buffer_byte(out, '"');
    ts_text_escape(out, piece, strlen(piece));
    ts_buffer_byte(out, '"');
}

void model_tell_trouble(const struct ts_buffer *trouble)
{
    if (trouble->size)
        fwrite(trouble->data, 1, trouble->size, stderr);
    if (trouble->failed)
        fputs("... and so on\n", stderr);
}

enum ts_status model_trace(struct ts_model *model, const struct ts_trace_options *options,
                           const struct model_input *input, struct ts_pool *pool, int file,
                           struct ts_trace_summary *summary, struct ts_buffer *trouble, struct ts_error *error)
{
    static const char *const precisions[] = {"float32", "bfloat16", "float16"};
    struct ts_buffer facts;
    struct ts_json_writer json;
    struct tm parts;
    time_t now = time(NULL);
    char start[32] = "";
    enum ts_status status;
    *summary = (struct ts_trace_summary){0};
    if (gmtime_r(&now, &parts))
        strftime(start, sizeof start, "%Y-%m-%dT%H:%M:%SZ", &parts);
    ts_buffer_init(&facts, IDS_LIMIT);
    ts_json_writer_init(&json, &facts, 0);
    ts_json_begin_object(&json);
    ts_json_key(&json, "program");
    ts_json_string(&json, "tsleuth " TS_VERSION);
    ts_json_key(&json, "model");
    ts_json_string(&json, input->model);
    ts_json_key(&json, "model_type");
    ts_json_string(&json, model->type);
    ts_json_key(&json, "precision");
    ts_json_string(&json, precisions[options->model.compute]);
    ts_json_key(&json, "start");
    ts_json_string(&json, start);
    ts_json_end_object(&json);
    if (facts.failed)
        status = ts_fail_memory(error);
    else
        status = ts_trace_write(model, options, input->tokens, input->count, pool, file,
                                (const char *const[]){"token_ids", input->ids, "tsleuth.run", facts.data, NULL},
                                summary, trouble, error);
    ts_buffer_release(&facts);
    return status;
}
