/* Operations: the words of which model families are written. Each captures its output under its name, in the scope of
 * the run; "" as a name captures nothing. All of them do nothing after an error, and check weights only in a plan. */
#ifndef TS_MODEL_OPERATIONS_H
#define TS_MODEL_OPERATIONS_H

#include "model/run.h"

/* One row of name.weight [vocabulary, width] per token, times a factor (1: as it is) that is rounded to the precision
 * of the run before. */
struct ts_act ts_embed(struct ts_run *run, const char *name, size_t vocabulary, size_t width, double factor);

/* x · Wᵀ (+ b): name.weight [width, x.width], name.bias [width]. */
struct ts_act ts_linear(struct ts_run *run, const char *name, struct ts_act x, size_t width, bool bias);
/* The same with any weight [width, x.width], for tied heads, stacked experts and other storage; bias may be NULL. */
struct ts_act ts_linear_view(struct ts_run *run, const char *name, struct ts_act x, const struct ts_view *weight,
                             const struct ts_view *bias);
/* A parameter of the scope: "scope.name", with its shape checked. NULL when it is not there. */
const struct ts_view *ts_parameter(struct ts_run *run, const char *name, unsigned rank, const uint64_t *shape);
/* All its values. */
const float *ts_parameter_values(struct ts_run *run, const struct ts_view *view);

enum ts_norm {
    TS_NORM_RMS,      /* x / rms(x), rounded, times w: Llama and most others */
    TS_NORM_RMS_PLUS, /* x / rms(x) times (1 + w), in fp32: Gemma 2 and 3 */
    TS_NORM_RMS_WIDE, /* x / rms(x) times w, in fp32: Gemma 3n, gpt-oss */
    TS_NORM_RMS_BARE, /* no weight */
    TS_NORM_LAYER     /* (x - mean) / std times w plus b */
};
/* Over each row, or over each of x.heads parts of it when the weight is of one head. */
struct ts_act ts_norm(struct ts_run *run, const char *name, struct ts_act x, enum ts_norm kind, double eps,
                      size_t heads);

enum ts_function {
    TS_SILU,
    TS_GELU,
    TS_GELU_TANH,
    TS_GELU_NEW /* the same in steps */,
    TS_GELU_QUICK,
    TS_RELU,
    TS_SIGMOID,
    TS_TANH
};
/* The function of that name in a config ("silu", "gelu_pytorch_tanh"); an unknown one is an error of the run. */
enum ts_function ts_function_named(struct ts_run *run, const char *key, const char *otherwise);
struct ts_act ts_activate(struct ts_run *run, const char *name, struct ts_act x, enum ts_function function);
float ts_function_of(enum ts_function function, float x);

struct ts_act ts_sum(struct ts_run *run, const char *name, struct ts_act a, struct ts_act b);
struct ts_act ts_multiply(struct ts_run *run, const char *name, struct ts_act a, struct ts_act b);
/* Times a factor that the library keeps as a tensor, and so in the precision of the run. */
struct ts_act ts_scale(struct ts_run *run, const char *name, struct ts_act x, double factor);
/* Over a number that the library takes as it is. */
struct ts_act ts_divide(struct ts_run *run, const char *name, struct ts_act x, double by);
/* limit * tanh(x / limit) */
struct ts_act ts_softcap(struct ts_run *run, const char *name, struct ts_act x, double limit);
/* Columns [first, first + width) of each row. */
struct ts_act ts_columns(struct ts_run *run, struct ts_act x, size_t first, size_t width);

/* down(f(gate(x)) * up(x)) in the scope `name`: the gated MLP nearly all families have. The capture of the whole is the
 * scope's own. */
struct ts_act ts_gated_mlp(struct ts_run *run, const char *name, struct ts_act x, size_t inner,
                           enum ts_function function, bool bias);

/* The head, from the last norm's output: lm_head.weight, or the embedding (a full name) where they are tied; captured
 * as "lm_head", then, softcapped when the limit is not 0, as "logits". Nothing when layers were left out. */
void ts_head(struct ts_run *run, struct ts_act x, const char *embedding, size_t vocabulary, bool tied, double softcap);

#endif
