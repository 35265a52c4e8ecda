/* Values from elsewhere for a run: a candidate's own captures (local mode), or single tensors (injection). */
#ifndef TS_CLI_TRACE_LOCAL_H
#define TS_CLI_TRACE_LOCAL_H

#include "base/table.h"
#include "cli/model_input.h"
#include "pair/pair.h"
#include "read/open.h"

struct trace_feed {
    struct ts_feed feed;
    /* private */
    struct ts_bundle *reference, *candidate;
    struct ts_pairing pairing;
    struct ts_table names; /* point -> pair */
    bool paired;
    struct injected {
        const char *name;
        struct ts_bundle *bundle;
        const struct ts_tensor *tensor;
        bool used;
    } * injected;
    size_t injected_count;
};

/* Runs the model once to know its points, and pairs them with the candidate's tensors as compare does. */
int trace_feed_local(struct trace_feed *feed, const char *candidate, const struct ts_open_options *open,
                     struct ts_model *model, const struct ts_trace_options *options, const struct model_input *input,
                     struct ts_pool *pool);
/* The model run on the candidate's own inputs, operation by operation, as a bundle: what each operation should have
 * given. The token ids are those of the options, else of the metadata of `tokens_of` or of the candidate. */
int trace_local(const char *model, const char *candidate, const char *tokens_of, const struct ts_open_options *open,
                const struct model_input_options *options, const struct command *command, struct ts_bundle **local);
/* From NAME=FILE each. */
int trace_feed_inject(struct trace_feed *feed, const struct command *command, const struct option_list *list);
/* The name of an injected tensor that no point of the run has asked for, or NULL. */
const char *trace_feed_unused(const struct trace_feed *feed);
void trace_feed_release(struct trace_feed *feed);

#endif
