/* Run: one forward pass, seen from a model family's file.
 *
 * A family is a function that walks the model as its paper does, calling the operations of model/operations.h. Errors
 * stick: the first one is kept in run->error, and every operation after it does nothing, so the walk needs no checks.
 *
 * The same function is walked twice. First as a plan: activations have sizes and no numbers, weights are looked up and
 * their shapes checked, points are announced. What is missing or left over is known before any arithmetic. Then for
 * real.
 *
 * Names follow the modules: ts_enter(run, "layers.%u", i) opens a scope, ts_leave closes it, and the weight of
 * ts_linear(run, "q_proj", ...) is "model.layers.0.self_attn.q_proj.weight" while its output is captured as
 * "model.layers.0.self_attn.q_proj". */
#ifndef TS_MODEL_RUN_H
#define TS_MODEL_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "model/config.h"
#include "model/weights.h"

/* How an activation is shown when it is captured; in memory it is always [tokens, width], heads side by side. */
enum ts_shown {
    TS_BATCHED,      /* [1, tokens, width] */
    TS_FLAT,         /* [tokens, width] */
    TS_TOKENS_HEADS, /* [1, tokens, heads, head size] */
    TS_HEADS_TOKENS  /* [1, heads, tokens, head size] */
};

struct ts_act {
    float *data; /* NULL in a plan and after an error */
    size_t rows, width;
    size_t heads; /* for the two layouts with heads; width is heads times the head size */
    enum ts_shown layout;
};

enum ts_compute { TS_COMPUTE_F32, TS_COMPUTE_BF16, TS_COMPUTE_F16 };

/* A point as it passes by. */
struct ts_point {
    const char *name;
    unsigned rank;
    uint64_t shape[4];
    const float *values;     /* NULL in a plan */
    bool integer;            /* integers instead of values: chosen experts */
    const int64_t *integers; /* NULL in a plan */
    bool wide;               /* fp32 whatever the precision of the run */
};

/* Who watches the run. */
struct ts_watcher {
    void *context;
    /* Is the point of any interest? Intermediates that nobody wants are not kept whole. May be NULL: all are. */
    bool (*wanted)(void *context, const char *name);
    /* Called once per point, in execution order, in the plan and in the run. */
    enum ts_status (*take)(void *context, const struct ts_point *point, struct ts_error *error);
    /* Other values for a point, in the point's own shape: false when there are none. In local mode the computed values
     * have been taken before; when injecting, the replaced ones are. May be NULL. */
    enum ts_status (*replace)(void *context, const struct ts_point *point, float *values, bool *found,
                              struct ts_error *error);
    bool local;
};

struct ts_block; /* memory of an activation */

struct ts_run {
    const struct ts_model_config *config;
    struct ts_model_weights *weights;
    struct ts_pool *pool;
    const struct ts_watcher *watcher;
    const int64_t *tokens;
    size_t token_count;
    enum ts_compute compute;
    bool fast;          /* products by OpenBLAS */
    bool cache;         /* as with a key-value cache object: layers that share keys and values use those of another */
    bool each_expert;   /* capture every expert's output */
    size_t layer_limit; /* layers [0, layer_limit) are run, and the head only when that is all of them */
    bool plan;
    bool wide;             /* what follows is kept in fp32 whatever the precision of the run: some routers */
    struct ts_error error; /* sticks; status TS_OK while all is well */
    /* private */
    char scope[512];
    size_t scope_length;
    struct ts_block *blocks;
    struct ts_seen *seen; /* names of points so far, to number the repeated ones */
    bool cut;             /* fewer layers were run than the model has */
    bool muted;           /* a plan has passed the last layer that will be run */
    size_t window;        /* the narrowest one of any layer; 0: none */
};

static inline bool ts_ok(const struct ts_run *run)
{
    return run->error.status == TS_OK;
}
/* Real work is to be done: no error and no plan. */
static inline bool ts_real(const struct ts_run *run)
{
    return run->error.status == TS_OK && !run->plan;
}
/* Keeps the first error. */
void ts_run_fail(struct ts_run *run, enum ts_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Opens a scope below the current one; returns what ts_leave needs to close it. */
size_t ts_enter(struct ts_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ts_leave(struct ts_run *run, size_t mark);
/* "scope.name" in text; "scope" for an empty name. */
const char *ts_full_name(const struct ts_run *run, const char *name, char text[768]);

/* Memory. Activations live until the run ends or ts_forget, which frees all that were made since the mark, but one. */
struct ts_act ts_new(struct ts_run *run, size_t rows, size_t width);
struct ts_act ts_copy(struct ts_run *run, struct ts_act x);
float *ts_scratch(struct ts_run *run, size_t count); /* NULL in a plan and after an error */
struct ts_block *ts_mark(const struct ts_run *run);
void ts_forget(struct ts_run *run, struct ts_block *mark, const struct ts_act *keep);
/* A copy that outlives ts_forget, in place of what was held before; freed by ts_let_go. */
void ts_hold(struct ts_run *run, struct ts_act *held, struct ts_act x);
void ts_let_go(struct ts_act *held);

/* The point "scope.name": rounds to the precision of the run, hands it to the watcher, and takes replaced values. */
void ts_capture(struct ts_run *run, const char *name, struct ts_act x);
/* The same for any shape, stored row by row. */
void ts_capture_values(struct ts_run *run, const char *name, float *values, unsigned rank, const uint64_t *shape);
/* The same for numbers of experts, each below `limit`. Replaced values that are none are an error when injecting; in
 * local mode the computed ones stand. */
void ts_capture_integers(struct ts_run *run, const char *name, int64_t *values, unsigned rank, const uint64_t *shape,
                         size_t limit);
/* Whether somebody looks at "scope.name". */
bool ts_wanted(const struct ts_run *run, const char *name);
/* Rounds to the precision of the run; nothing in fp32. Operations call it where transformers would store a tensor. */
void ts_round(const struct ts_run *run, float *values, size_t count);

/* Settings. A missing or absurd one, and one that is something else than a number or a flag, is an error that names the
 * key and says what was found. */
size_t ts_need(struct ts_run *run, const char *key);                    /* at least 1 */
size_t ts_count(struct ts_run *run, const char *key, size_t otherwise); /* where absent or null */
double ts_number(struct ts_run *run, const char *key, double otherwise);
double ts_positive(struct ts_run *run, const char *key, double otherwise); /* a number above zero */
bool ts_flag(struct ts_run *run, const char *key, bool otherwise);
/* The layers to walk of the model's: fewer where the user asked for it. */
size_t ts_layers(struct ts_run *run, size_t of_model);

void ts_run_release(struct ts_run *run);

#endif
