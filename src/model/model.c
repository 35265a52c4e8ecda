/* Owns opening a model and walking it. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "model/blas.h"
#include "model/gguf_model.h"
#include "read/open.h"

static enum ts_status choose_family(struct ts_model *model, struct ts_error *error)
{
    struct ts_buffer known;
    enum ts_status status;
    model->type = ts_model_config_text(&model->config, "model_type");
    if (!model->type)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "the config has no model_type");
    model->family = ts_model_family_of(model->type);
    if (model->family)
        return TS_OK;
    ts_buffer_init(&known, 4096);
    ts_model_family_list(&known);
    status = ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                     "the model is of type \"%.60s\", which cannot be run yet; these can: %s", model->type,
                     known.data ? known.data : "");
    ts_buffer_release(&known);
    return status;
}

static enum ts_status read_config(struct ts_model *model, struct ts_error *error)
{
    if (!model->bundle->config)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "there is no config.json beside the weights; give the model's folder");
    if (ts_model_config_parse(model->bundle->config->data, (size_t)model->bundle->config->size, &model->config,
                              error) != TS_OK)
        return ts_error_path(error, model->bundle->config->path);
    return TS_OK;
}

/* A folder may hold more than the model (captured traces, other formats), so the usual names come first, then all of
 * it. */
static enum ts_status open_weights(const char *path, const struct ts_open_options *options, struct ts_bundle **bundle,
                                   struct ts_error *error)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors",
                                        "pytorch_model.bin.index.json", "pytorch_model.bin"};
    struct stat info;
    bool folder = ts_starts_with(path, "hf://") || (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    for (size_t i = 0; folder && i < sizeof names / sizeof *names; i++) {
        char *file;
        enum ts_status status;
        if (asprintf(&file, "%s/%s", path, names[i]) < 0)
            return ts_fail_memory(error);
        status = !ts_starts_with(path, "hf://") && access(file, F_OK) != 0 ? TS_ERR_IO
                                                                           : ts_open(file, options, bundle, error);
        free(file);
        if (status != TS_ERR_IO)
            return status;
    }
    return ts_open(path, options, bundle, error);
}

static enum ts_status open_gguf(struct ts_model *model, struct ts_error *error)
{
    const struct ts_gguf_architecture *architecture;
    TS_TRY(ts_gguf_architecture(model->bundle, &architecture, error));
    TS_TRY(ts_gguf_settings(model->bundle, architecture, &model->config, error));
    TS_TRY(choose_family(model, error));
    return ts_gguf_weights(model->bundle, architecture, &model->config, &model->weights, error);
}

static enum ts_status refuse_empty(const struct ts_bundle *bundle, struct ts_error *error)
{
    for (size_t i = 0; i < bundle->skip_count; i++)
        if (!bundle->skips[i].harmless)
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                           "there is not one weight in it that can be read; %.100s: %.200s", bundle->skips[i].path,
                           bundle->skips[i].reason);
    return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "there is not one weight in it that can be read");
}

static enum ts_status open_checkpoint(struct ts_model *model, struct ts_error *error)
{
    TS_TRY(read_config(model, error));
    TS_TRY(choose_family(model, error));
    if (!model->bundle->count)
        return refuse_empty(model->bundle, error);
    return ts_model_weights_init(&model->weights, model->bundle, error);
}

enum ts_status ts_model_of(struct ts_bundle *bundle, struct ts_model *model, struct ts_error *error)
{
    enum ts_status status;
    *model = (struct ts_model){.bundle = bundle};
    status = ts_gguf_is_model(bundle) ? open_gguf(model, error) : open_checkpoint(model, error);
    if (status != TS_OK)
        ts_model_release(model);
    return status;
}

static enum ts_status open_model(const char *path, const struct ts_open_options *options, struct ts_model *model,
                                 struct ts_error *error)
{
    struct ts_bundle *bundle;
    *model = (struct ts_model){0};
    TS_TRY(open_weights(path, options, &bundle, error));
    return ts_model_of(bundle, model, error) == TS_OK ? TS_OK : ts_error_path(error, path);
}

enum ts_status ts_model_open(const char *path, struct ts_model *model, struct ts_error *error)
{
    return open_model(path, NULL, model, error);
}

enum ts_status ts_model_open_linked(const char *path, struct ts_model *model, struct ts_error *error)
{
    return open_model(path, &(struct ts_open_options){.follow_links = true}, model, error);
}

void ts_model_release(struct ts_model *model)
{
    ts_model_weights_release(&model->weights);
    ts_model_config_release(&model->config);
    ts_bundle_free(model->bundle);
    *model = (struct ts_model){0};
}

static enum ts_status walk(struct ts_model *model, const struct ts_model_options *options, const int64_t *tokens,
                           size_t token_count, struct ts_pool *pool, const struct ts_watcher *watcher, bool plan,
                           struct ts_error *error)
{
    struct ts_run run = {.config = &model->config,
                         .weights = &model->weights,
                         .pool = pool,
                         .watcher = watcher,
                         .tokens = tokens,
                         .token_count = token_count,
                         .compute = options->compute,
                         .fast = options->fast,
                         .cache = options->cache,
                         .each_expert = options->each_expert,
                         .layer_limit = options->layer_limit ? options->layer_limit : SIZE_MAX,
                         .plan = plan};
    ts_error_clear(&run.error);
    model->family->forward(&run);
    ts_run_release(&run);
    model->window = run.window;
    if (run.error.status == TS_OK)
        return TS_OK;
    *error = run.error;
    return error->status;
}

/* A weight that is missing may be in a file that is cut off. */
static void list_unread(const struct ts_bundle *bundle, struct ts_buffer *out)
{
    bool told = false;
    for (size_t i = 0; i < bundle->skip_count; i++) {
        if (bundle->skips[i].harmless)
            continue;
        if (!told)
            ts_buffer_string(out, "could not be read:\n");
        told = true;
        ts_text_escape(out, bundle->skips[i].path, strlen(bundle->skips[i].path));
        ts_buffer_printf(out, ": %s\n", bundle->skips[i].reason);
    }
}

/* Nothing is missed, and yet a GGUF file has a tensor that cannot be read: a second one of the same name. A folder may
 * hold anything beside the model. */
static enum ts_status refuse_unread(const struct ts_bundle *bundle, struct ts_error *error)
{
    for (size_t i = 0; i < bundle->skip_count && ts_gguf_is_model(bundle); i++)
        if (!bundle->skips[i].harmless)
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "%.200s %.200s; --allow-unused runs without it",
                           bundle->skips[i].path, bundle->skips[i].reason);
    return TS_OK;
}

enum ts_status ts_model_plan(struct ts_model *model, const struct ts_model_options *options, const int64_t *tokens,
                             size_t token_count, struct ts_pool *pool, const struct ts_watcher *watcher,
                             struct ts_buffer *trouble, struct ts_error *error)
{
    if (!token_count)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "there are no tokens to run");
    if (options->fast && !ts_blas_load())
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                       "the fast mode needs OpenBLAS, which is not installed (libopenblas0); leave --fast out");
    ts_model_weights_restart(&model->weights);
    TS_TRY(walk(model, options, tokens, token_count, pool, watcher, true, error));
    /* buffers that older files carry along, which are computed and not learnt */
    ts_model_weights_ignore(&model->weights, "rotary_emb.inv_freq");
    if (trouble)
        ts_model_weights_list(&model->weights, options->allow_unused, trouble);
    if (trouble && model->weights.missing_count)
        list_unread(model->bundle, trouble);
    TS_TRY(ts_model_weights_check(&model->weights, options->allow_unused, error));
    return options->allow_unused ? TS_OK : refuse_unread(model->bundle, error);
}

enum ts_status ts_model_run(struct ts_model *model, const struct ts_model_options *options, const int64_t *tokens,
                            size_t token_count, struct ts_pool *pool, const struct ts_watcher *watcher,
                            struct ts_error *error)
{
    return walk(model, options, tokens, token_count, pool, watcher, false, error);
}
