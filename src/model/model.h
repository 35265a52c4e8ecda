/* Model: a folder (config.json and weights) or a GGUF file, opened and ready to run. */
#ifndef TS_MODEL_MODEL_H
#define TS_MODEL_MODEL_H

#include "base/pool.h"
#include "model/config.h"
#include "model/families.h"
#include "model/run.h"
#include "model/weights.h"
#include "tensor/bundle.h"

struct ts_model {
    struct ts_bundle *bundle;
    struct ts_model_config config;
    struct ts_model_weights weights;
    const struct ts_model_family *family;
    const char *type; /* model_type */
    size_t window;    /* after a plan: the narrowest sliding window of its layers, 0 when none slides */
};

struct ts_model_options {
    enum ts_compute compute;
    bool fast, cache, each_expert;
    bool allow_unused;  /* weights that the architecture does not use are no error */
    size_t layer_limit; /* 0: all layers */
};

enum ts_status ts_model_open(const char *path, struct ts_model *model, struct ts_error *error);
/* The same, and symbolic links in its folder may lead out of it. */
enum ts_status ts_model_open_linked(const char *path, struct ts_model *model, struct ts_error *error);
/* The same from a bundle, which belongs to the model from here on, also when this fails. */
enum ts_status ts_model_of(struct ts_bundle *bundle, struct ts_model *model, struct ts_error *error);
void ts_model_release(struct ts_model *model);

/* Walks the model without arithmetic: checks the config and every weight, and announces each point to the watcher.
 * Tells what is wrong with the weights in full in `trouble` (may be NULL). */
enum ts_status ts_model_plan(struct ts_model *model, const struct ts_model_options *options, const int64_t *tokens,
                             size_t token_count, struct ts_pool *pool, const struct ts_watcher *watcher,
                             struct ts_buffer *trouble, struct ts_error *error);
/* The forward pass, after a plan. */
enum ts_status ts_model_run(struct ts_model *model, const struct ts_model_options *options, const int64_t *tokens,
                            size_t token_count, struct ts_pool *pool, const struct ts_watcher *watcher,
                            struct ts_error *error);

#endif
