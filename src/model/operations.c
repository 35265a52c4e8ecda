/* Owns the operations that work on whole rows: products with weights, norms, activation functions, sums. */
#include "model/operations.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/linear.h"

#define MOST_TROUBLES 100000 /* weights that are missing or of another shape */

/* Room for a result of the same size that is shown in the same way. */
static struct ts_act like(struct ts_run *run, struct ts_act x)
{
    struct ts_act y = ts_new(run, x.rows, x.width);
    y.layout = x.layout;
    y.heads = x.heads;
    return y;
}

static void capture_named(struct ts_run *run, const char *name, struct ts_act x)
{
    if (name[0])
        ts_capture(run, name, x);
}

const struct ts_view *ts_parameter(struct ts_run *run, const char *name, unsigned rank, const uint64_t *shape)
{
    char text[768];
    const struct ts_view *view;
    if (!ts_ok(run))
        return NULL;
    view = ts_model_weights_need(run->weights, ts_full_name(run, name, text), rank, shape);
    /* a config that promises millions is not followed to its end */
    if (run->weights->missing_count + run->weights->wrong_count > MOST_TROUBLES)
        run->error.status = ts_model_weights_check(run->weights, true, &run->error);
    return view;
}

/* The parameter "scope.name.ending". */
static const struct ts_view *parameter_of(struct ts_run *run, const char *name, const char *ending, unsigned rank,
                                          const uint64_t *shape)
{
    char text[768];
    snprintf(text, sizeof text, "%s%s%s", name, name[0] ? "." : "", ending);
    return ts_parameter(run, text, rank, shape);
}

const float *ts_parameter_values(struct ts_run *run, const struct ts_view *view)
{
    float *values;
    if (!ts_real(run) || !view)
        return NULL;
    values = ts_scratch(run, (size_t)view->count);
    if (values)
        run->error.status = ts_view_read_f32(view, 0, (size_t)view->count, values, &run->error);
    return ts_ok(run) ? values : NULL;
}

struct ts_act ts_embed(struct ts_run *run, const char *name, size_t vocabulary, size_t width, double factor)
{
    float by = (float)factor;
    const struct ts_view *table = parameter_of(run, name, "weight", 2, (uint64_t[]){vocabulary, width});
    struct ts_act x = ts_new(run, run->token_count, width);
    for (size_t i = 0; i < run->token_count && ts_ok(run); i++) {
        int64_t id = run->tokens[i];
        if (id < 0 || (uint64_t)id >= vocabulary)
            ts_run_fail(run, TS_ERR_USAGE, "token %zu is %lld, and the vocabulary has %zu", i, (long long)id,
                        vocabulary);
        else if (ts_real(run) && table)
            run->error.status = ts_view_read_f32(table, (uint64_t)id * width, width, x.data + i * width, &run->error);
    }
    ts_round(run, &by, 1);
    if (ts_real(run)) {
        for (size_t i = 0; i < x.rows * width && factor != 1; i++)
            x.data[i] *= by;
        ts_round(run, x.data, x.rows * width);
    }
    capture_named(run, name, x);
    return x;
}

struct ts_act ts_linear_view(struct ts_run *run, const char *name, struct ts_act x, const struct ts_view *weight,
                             const struct ts_view *bias)
{
    size_t width = weight ? (size_t)weight->shape[0] : 1;
    struct ts_act y = ts_new(run, x.rows, width);
    y.layout = x.layout == TS_FLAT ? TS_FLAT : TS_BATCHED;
    if (ts_real(run) && weight) {
        run->error.status = ts_linear_apply(run->pool, x.data, x.rows, weight, run->fast, y.data, &run->error);
        if (bias) {
            struct ts_block *mark = ts_mark(run);
            const float *b = ts_parameter_values(run, bias);
            for (size_t i = 0; b && i < y.rows; i++)
                for (size_t j = 0; j < width; j++)
                    y.data[i * width + j] += b[j];
            ts_forget(run, mark, NULL);
        }
        if (ts_ok(run))
            ts_round(run, y.data, y.rows * width);
    }
    capture_named(run, name, y);
    return y;
}

struct ts_act ts_linear(struct ts_run *run, const char *name, struct ts_act x, size_t width, bool bias)
{
    const struct ts_view *weight = parameter_of(run, name, "weight", 2, (uint64_t[]){width, x.width}), *b = NULL;
    struct ts_act y;
    if (bias)
        b = parameter_of(run, name, "bias", 1, (uint64_t[]){width});
    if (!weight) { /* a plan goes on with what it should be */
        y = ts_new(run, x.rows, width);
        y.layout = x.layout == TS_FLAT ? TS_FLAT : TS_BATCHED;
        if (!run->plan)
            ts_run_fail(run, TS_ERR_FORMAT, "the weight of %s is missing", name);
        capture_named(run, name, y);
        return y;
    }
    return ts_linear_view(run, name, x, weight, b);
}

static void norm_row(const struct ts_run *run, const float *x, float *y, size_t width, enum ts_norm kind, double eps,
                     const float *weight, const float *bias)
{
    double squares = 0, mean = 0, factor;
    if (kind == TS_NORM_LAYER) {
        for (size_t i = 0; i < width; i++)
            mean += (double)x[i];
        mean /= (double)width;
    }
    for (size_t i = 0; i < width; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    factor = 1 / sqrt(squares / (double)width + eps);
    for (size_t i = 0; i < width; i++)
        y[i] = (float)(((double)x[i] - mean) * factor);
    if (kind == TS_NORM_RMS) /* stored before the weight */
        ts_round(run, y, width);
    for (size_t i = 0; i < width && weight; i++)
        y[i] *= kind == TS_NORM_RMS_PLUS ? 1 + weight[i] : weight[i];
    for (size_t i = 0; i < width && bias; i++)
        y[i] += bias[i];
    ts_round(run, y, width);
}

struct ts_act ts_norm(struct ts_run *run, const char *name, struct ts_act x, enum ts_norm kind, double eps,
                      size_t heads)
{
    size_t parts = heads ? heads : 1, width = x.width / parts;
    const struct ts_view *weight = NULL, *bias = NULL;
    struct ts_act y = like(run, x);
    struct ts_block *mark;
    if (kind != TS_NORM_RMS_BARE)
        weight = parameter_of(run, name, "weight", 1, (uint64_t[]){width});
    if (kind == TS_NORM_LAYER)
        bias = parameter_of(run, name, "bias", 1, (uint64_t[]){width});
    mark = ts_mark(run);
    if (ts_real(run)) {
        const float *w = ts_parameter_values(run, weight), *b = ts_parameter_values(run, bias);
        for (size_t i = 0; i < x.rows * parts && ts_ok(run); i++)
            norm_row(run, x.data + i * width, y.data + i * width, width, kind, eps, w, b);
    }
    ts_forget(run, mark, NULL);
    capture_named(run, name, y);
    return y;
}

static const struct {
    const char *name;
    enum ts_function function;
} functions[] = {
    {"silu", TS_SILU},
    {"swish", TS_SILU},
    {"gelu", TS_GELU},
    {"gelu_new", TS_GELU_NEW},
    {"gelu_pytorch_tanh", TS_GELU_TANH},
    {"gelu_fast", TS_GELU_TANH},
    {"quick_gelu", TS_GELU_QUICK},
    {"relu", TS_RELU},
    {"sigmoid", TS_SIGMOID},
    {"tanh", TS_TANH},
};

enum ts_function ts_function_named(struct ts_run *run, const char *key, const char *otherwise)
{
    const char *name = ts_model_config_text(run->config, key);
    if (!name)
        name = otherwise;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            return functions[i].function;
    ts_run_fail(run, TS_ERR_UNSUPPORTED, "the config says %s is \"%s\", an activation this program does not know", key,
                name);
    return TS_SILU;
}

float ts_function_of(enum ts_function function, float x)
{
    switch (function) {
    case TS_SILU:
        return x / (1 + expf(-x));
    case TS_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case TS_GELU_TANH:
    case TS_GELU_NEW:
        return 0.5f * x * (1 + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case TS_GELU_QUICK:
        return x / (1 + expf(-1.702f * x));
    case TS_RELU:
        return x > 0 ? x : x == x ? 0 : x;
    case TS_SIGMOID:
        return 1 / (1 + expf(-x));
    case TS_TANH:
        return tanhf(x);
    }
    return x;
}

/* GPT-2's gelu is written out in the library, and so each of its steps is stored in the precision of the run. */
static float gelu_in_steps(const struct ts_run *run, float x)
{
    float steps[2] = {x * x, 0.5f * x};
    ts_round(run, steps, 2);
    steps[0] *= x;
    ts_round(run, steps, 1);
    steps[0] *= 0.044715f;
    ts_round(run, steps, 1);
    steps[0] += x;
    ts_round(run, steps, 1);
    steps[0] *= 0.79788456080286536f;
    ts_round(run, steps, 1);
    steps[0] = tanhf(steps[0]);
    ts_round(run, steps, 1);
    steps[0] += 1;
    ts_round(run, steps, 1);
    return steps[0] * steps[1];
}

struct ts_act ts_activate(struct ts_run *run, const char *name, struct ts_act x, enum ts_function function)
{
    struct ts_act y = like(run, x);
    if (ts_real(run)) {
        for (size_t i = 0; i < x.rows * x.width; i++)
            y.data[i] = function == TS_GELU_NEW && run->compute != TS_COMPUTE_F32 ? gelu_in_steps(run, x.data[i])
                                                                                  : ts_function_of(function, x.data[i]);
        ts_round(run, y.data, x.rows * x.width);
    }
    capture_named(run, name, y);
    return y;
}

/* Both operands must be of one size: a family that gets it wrong is told, instead of reading beyond. */
static struct ts_act begin_binary(struct ts_run *run, const char *name, struct ts_act a, struct ts_act b)
{
    if (ts_ok(run) && (a.rows != b.rows || a.width != b.width))
        ts_run_fail(run, TS_ERR_FORMAT, "%s.%s adds or multiplies [%zu,%zu] and [%zu,%zu]", run->scope, name, a.rows,
                    a.width, b.rows, b.width);
    return like(run, a);
}

struct ts_act ts_sum(struct ts_run *run, const char *name, struct ts_act a, struct ts_act b)
{
    struct ts_act y = begin_binary(run, name, a, b);
    if (ts_real(run)) {
        for (size_t i = 0; i < a.rows * a.width; i++)
            y.data[i] = a.data[i] + b.data[i];
        ts_round(run, y.data, a.rows * a.width);
    }
    capture_named(run, name, y);
    return y;
}

struct ts_act ts_multiply(struct ts_run *run, const char *name, struct ts_act a, struct ts_act b)
{
    struct ts_act y = begin_binary(run, name, a, b);
    if (ts_real(run)) {
        for (size_t i = 0; i < a.rows * a.width; i++)
            y.data[i] = a.data[i] * b.data[i];
        ts_round(run, y.data, a.rows * a.width);
    }
    capture_named(run, name, y);
    return y;
}

struct ts_act ts_scale(struct ts_run *run, const char *name, struct ts_act x, double factor)
{
    struct ts_act y = like(run, x);
    if (ts_real(run)) {
        float by = (float)factor;
        ts_round(run, &by, 1);
        for (size_t i = 0; i < x.rows * x.width; i++)
            y.data[i] = x.data[i] * by;
        ts_round(run, y.data, x.rows * x.width);
    }
    capture_named(run, name, y);
    return y;
}

struct ts_act ts_divide(struct ts_run *run, const char *name, struct ts_act x, double by)
{
    struct ts_act y = like(run, x);
    if (ts_real(run)) {
        for (size_t i = 0; i < x.rows * x.width; i++)
            y.data[i] = x.data[i] / (float)by;
        ts_round(run, y.data, x.rows * x.width);
    }
    capture_named(run, name, y);
    return y;
}

struct ts_act ts_softcap(struct ts_run *run, const char *name, struct ts_act x, double limit)
{
    struct ts_act y = ts_divide(run, "", x, limit);
    if (ts_real(run)) {
        for (size_t i = 0; i < x.rows * x.width; i++)
            y.data[i] = tanhf(y.data[i]);
        ts_round(run, y.data, x.rows * x.width);
        for (size_t i = 0; i < x.rows * x.width; i++)
            y.data[i] *= (float)limit;
        ts_round(run, y.data, x.rows * x.width);
    }
    capture_named(run, name, y);
    return y;
}

struct ts_act ts_columns(struct ts_run *run, struct ts_act x, size_t first, size_t width)
{
    struct ts_act y;
    if (ts_ok(run) && (first > x.width || width > x.width - first))
        ts_run_fail(run, TS_ERR_FORMAT, "columns %zu to %zu of %zu", first, first + width, x.width);
    y = ts_new(run, x.rows, width);
    y.layout = x.layout == TS_FLAT ? TS_FLAT : TS_BATCHED;
    for (size_t i = 0; i < x.rows && ts_real(run); i++)
        memcpy(y.data + i * width, x.data + i * x.width + first, width * sizeof *y.data);
    return y;
}

struct ts_act ts_gated_mlp(struct ts_run *run, const char *name, struct ts_act x, size_t inner,
                           enum ts_function function, bool bias)
{
    size_t scope = ts_enter(run, "%s", name);
    struct ts_act gate = ts_linear(run, "gate_proj", x, inner, bias);
    struct ts_act active = ts_activate(run, "act_fn", gate, function);
    struct ts_act up = ts_linear(run, "up_proj", x, inner, bias);
    struct ts_act product = ts_multiply(run, "intermediate", active, up);
    struct ts_act down = ts_linear(run, "down_proj", product, x.width, bias);
    ts_capture(run, "", down);
    ts_leave(run, scope);
    return down;
}

void ts_head(struct ts_run *run, struct ts_act x, const char *embedding, size_t vocabulary, bool tied, double softcap)
{
    struct ts_act logits;
    if (run->cut)
        return;
    if (tied) {
        const struct ts_view *table;
        ts_model_weights_ignore(run->weights, "lm_head.weight");
        table = ts_model_weights_need(run->weights, embedding, 2, (uint64_t[]){vocabulary, x.width});
        logits = ts_linear_view(run, "lm_head", x, table, NULL);
    } else {
        logits = ts_linear(run, "lm_head", x, vocabulary, false);
    }
    if (softcap > 0)
        logits = ts_softcap(run, "", logits, softcap);
    ts_capture(run, "logits", logits);
}
