/* What a model is run on, from options that trace, debug and compare share: a prompt, token ids, or a default sentence.
 */
#ifndef TS_CLI_MODEL_INPUT_H
#define TS_CLI_MODEL_INPUT_H

#include "cli/command.h"
#include "model/tokenizer.h"
#include "model/trace.h"

struct model_input_options {
    const char *prompt, *tokens, *tokens_file;
    bool quick;
};

/* Entries for a list of options. */
#define MODEL_INPUT_OPTIONS(input)                                                                                     \
    {"prompt", OPTION_TEXT, &(input).prompt}, {"tokens", OPTION_TEXT, &(input).tokens},                                \
        {"tokens-file", OPTION_TEXT, &(input).tokens_file},                                                            \
    {                                                                                                                  \
        "quick", OPTION_FLAG, &(input).quick                                                                           \
    }

struct model_input {
    int64_t *tokens;
    size_t count;
    struct ts_tokenizer *tokenizer; /* NULL where the model brings none */
    char *ids;                      /* "[1, 2, 3]", as metadata */
    const char *model;              /* as given */
};

/* The precision that --compute names, fp32 without it; the exit status to leave with, EXIT_MATCH when all is well. */
int model_compute(const struct command *command, const char *text, enum ts_compute *compute);
/* Ids from text: separated by commas, blanks or line breaks, in brackets or not. False when something else stands there
 * or without memory. */
bool model_input_ids(const char *text, int64_t **tokens, size_t *count);
/* Reads what the options say; the exit status to leave with, EXIT_MATCH when all is well. */
int model_input_read(const struct command *command, const struct model_input_options *options, const char *path,
                     const struct ts_model *model, struct model_input *input);
void model_input_release(struct model_input *input);
/* Appends the piece of text that a token stands for, quoted and escaped; nothing without a tokenizer. */
void model_input_piece(const struct model_input *input, int64_t id, struct ts_buffer *out);

/* What is wrong with a model's weights, in full, on standard error. */
void model_tell_trouble(const struct ts_buffer *trouble);
/* The trace with the facts of this run in its metadata. */
enum ts_status model_trace(struct ts_model *model, const struct ts_trace_options *options,
                           const struct model_input *input, struct ts_pool *pool, int file,
                           struct ts_trace_summary *summary, struct ts_buffer *trouble, struct ts_error *error);

#endif
