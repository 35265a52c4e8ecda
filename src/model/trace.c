/* Owns writing a run to a file: which points are kept, under which names, and the plan before it. */
#include "model/trace.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/trace_file.h"
#include "tensor/layer.h"

struct writing {
    const struct ts_trace_options *options;
    struct ts_trace_file file;
    struct ts_trace_summary *summary; /* NULL while planning */
    regex_t points;
    bool filtered;
    size_t layers, experts;
    void (*each)(void *context, const struct ts_point *point); /* instead of a file */
    void *each_context;
};

static bool is_kept(const struct writing *writing, const char *name)
{
    uint64_t layer;
    if (writing->options->first_layer && ts_layer_of(name, &layer) && layer < writing->options->first_layer)
        return false;
    return !writing->filtered || regexec(&writing->points, name, 0, NULL, 0) == 0;
}

static bool wanted(void *context, const char *name)
{
    return is_kept(context, name);
}

static uint64_t bytes_of(const struct ts_point *point)
{
    uint64_t bytes = point->integer ? sizeof(int64_t) : sizeof(float);
    for (unsigned i = 0; i < point->rank; i++)
        bytes *= point->shape[i];
    return bytes;
}

static enum ts_status keep(struct writing *writing, const struct ts_point *point, struct ts_error *error)
{
    if (writing->each) {
        writing->each(writing->each_context, point);
        return TS_OK;
    }
    if (writing->summary)
        ts_progress_add(writing->options->progress, bytes_of(point));
    if (!writing->summary)
        return ts_trace_file_announce(&writing->file, point, error);
    return ts_trace_file_put(&writing->file, point, error);
}

static enum ts_status take(void *context, const struct ts_point *point, struct ts_error *error)
{
    struct writing *writing = context;
    struct ts_point renamed = *point;
    char text[800];
    if (writing->summary && !ts_trace_observe(writing->summary, point, writing->experts))
        return ts_fail_memory(error);
    if (!is_kept(writing, point->name))
        return TS_OK;
    if (!writing->options->names)
        return keep(writing, point, error);
    renamed.name = ts_trace_rename(writing->options->names, point->name, text);
    if (renamed.name)
        TS_TRY(keep(writing, &renamed, error));
    renamed.name = ts_trace_input_name(writing->options->names, point->name, writing->layers, text);
    return renamed.name ? keep(writing, &renamed, error) : TS_OK;
}

static enum ts_status replace(void *context, const struct ts_point *point, float *values, bool *found,
                              struct ts_error *error)
{
    const struct ts_feed *feed = ((struct writing *)context)->options->feed;
    return feed->replace(feed->context, point, values, found, error);
}

static size_t setting(const struct ts_model *model, const char *const *keys)
{
    for (; *keys; keys++) {
        double value = ts_model_config_number(&model->config, *keys, 0);
        if (value >= 1 && value < 1e6)
            return (size_t)value;
    }
    return 0;
}

static enum ts_status begin(struct writing *writing, const struct ts_model *model,
                            const struct ts_trace_options *options, struct ts_error *error)
{
    *writing = (struct writing){.options = options, .filtered = options->points != NULL};
    writing->layers = setting(model, (const char *const[]){"num_hidden_layers", "n_layer", NULL});
    writing->experts =
        setting(model, (const char *const[]){"num_local_experts", "num_experts", "n_routed_experts", NULL});
    if (options->names && !ts_trace_naming_known(options->names))
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "names can be those of \"qwen3\" or \"gemma3n\", not \"%s\"",
                       options->names);
    if (writing->layers && options->first_layer >= writing->layers)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "layer %zu is asked for, and the model has layers 0 to %zu",
                       options->first_layer, writing->layers - 1);
    if (writing->filtered && regcomp(&writing->points, options->points, REG_EXTENDED | REG_NOSUB) != 0)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%s\" is not a regular expression", options->points);
    ts_trace_file_init(&writing->file, options->model.compute);
    return TS_OK;
}

static void end(struct writing *writing)
{
    if (writing->filtered)
        regfree(&writing->points);
    ts_trace_file_release(&writing->file);
}

enum ts_status ts_trace_list(struct ts_model *model, const struct ts_trace_options *options, const int64_t *tokens,
                             size_t token_count, struct ts_pool *pool,
                             void (*each)(void *context, const struct ts_point *point), void *context,
                             struct ts_buffer *trouble, struct ts_error *error)
{
    struct writing writing;
    struct ts_watcher watcher = {.context = &writing, .wanted = wanted, .take = take};
    enum ts_status status;
    TS_TRY(begin(&writing, model, options, error));
    writing.each = each;
    writing.each_context = context;
    status = ts_model_plan(model, &options->model, tokens, token_count, pool, &watcher, trouble, error);
    end(&writing);
    return status;
}

enum ts_status ts_trace_write(struct ts_model *model, const struct ts_trace_options *options, const int64_t *tokens,
                              size_t token_count, struct ts_pool *pool, int file, const char *const *metadata,
                              struct ts_trace_summary *summary, struct ts_buffer *trouble, struct ts_error *error)
{
    struct writing writing;
    struct ts_watcher watcher = {.context = &writing, .wanted = wanted, .take = take};
    enum ts_status status;
    *summary = (struct ts_trace_summary){0};
    ts_arena_init(&summary->arena, (size_t)256 << 20);
    TS_TRY(begin(&writing, model, options, error));
    status = ts_model_plan(model, &options->model, tokens, token_count, pool, &watcher, trouble, error);
    if (status == TS_OK && !writing.file.count)
        status = ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "no point has a name that is asked for; --list shows them");
    if (status == TS_OK)
        status = ts_trace_file_begin(&writing.file, file, metadata, error);
    if (status == TS_OK) {
        writing.summary = summary;
        if (options->progress)
            options->progress->total = writing.file.data_bytes;
        summary->points = writing.file.count;
        summary->bytes = writing.file.data_start + writing.file.data_bytes;
        if (options->feed) {
            watcher.replace = replace;
            watcher.local = options->feed->local;
        }
        status = ts_model_run(model, &options->model, tokens, token_count, pool, &watcher, error);
    }
    end(&writing);
    return status;
}

const char *ts_trace_blind_spot(const struct ts_model *model, size_t token_count, unsigned index, char text[256])
{
    unsigned at = 0;
    if (token_count == 1 && index == at++)
        return "one token cannot reveal errors of rotary positions, of the mask or of the order of keys";
    if (token_count > 1 && model->window && token_count <= model->window && index == at++) {
        snprintf(text, 256, "%zu tokens do not fill the sliding window of %zu: errors of the window stay unseen",
                 token_count, model->window);
        return text;
    }
    return NULL;
}
