/* Owns routing and the mixture of experts. */
#include "model/experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any model has; a plan looks at each of them. */
#define MOST_EXPERTS 65536

/* The largest `count` of values, best first, the lower index at a tie. */
static void best_of(const float *values, size_t size, size_t count, int64_t *indices)
{
    for (size_t k = 0; k < count; k++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < size; i++) {
            bool taken = false;
            for (size_t j = 0; j < k; j++)
                taken = taken || indices[j] == (int64_t)i;
            if (!taken && (best == SIZE_MAX || values[i] > values[best] || (isnan(values[best]) && !isnan(values[i]))))
                best = i;
        }
        indices[k] = (int64_t)best;
    }
}

static void softmax(float *values, size_t count)
{
    float largest = -(float)INFINITY;
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        largest = values[i] > largest ? values[i] : largest;
    for (size_t i = 0; i < count; i++) {
        values[i] = expf(values[i] - largest);
        sum += (double)values[i];
    }
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((double)values[i] / sum);
}

static void route_softmax(const struct ts_router_settings *settings, float *scores, float *weights, int64_t *indices)
{
    if (settings->kind == TS_ROUTER_SOFTMAX)
        softmax(scores, settings->experts);
    best_of(scores, settings->experts, settings->chosen, indices);
    for (size_t k = 0; k < settings->chosen; k++)
        weights[k] = scores[indices[k]];
    if (settings->kind == TS_ROUTER_SOFTMAX_BEST)
        softmax(weights, settings->chosen);
}

/* A group is as good as its two best experts together; experts outside the best groups count as zero. */
static void route_sigmoid(const struct ts_router_settings *settings, float *scores, float *choice, float *groups,
                          float *weights, int64_t *indices)
{
    size_t size = settings->experts / settings->groups;
    for (size_t i = 0; i < settings->experts; i++) {
        scores[i] = 1 / (1 + expf(-scores[i]));
        choice[i] = scores[i] + (settings->bias ? settings->bias[i] : 0);
    }
    if (settings->groups > 1) {
        int64_t two[2], kept[64];
        for (size_t g = 0; g < settings->groups; g++) {
            best_of(choice + g * size, size, size > 1 ? 2 : 1, two);
            groups[g] = choice[g * size + (size_t)two[0]] + (size > 1 ? choice[g * size + (size_t)two[1]] : 0);
        }
        best_of(groups, settings->groups, settings->chosen_groups, kept);
        for (size_t i = 0; i < settings->experts; i++) {
            bool in = false;
            for (size_t g = 0; g < settings->chosen_groups; g++)
                in = in || (size_t)kept[g] == i / size;
            choice[i] = in ? choice[i] : 0;
        }
    }
    best_of(choice, settings->experts, settings->chosen, indices);
    for (size_t k = 0; k < settings->chosen; k++)
        weights[k] = scores[indices[k]];
}

static void weigh(const struct ts_router_settings *settings, float *weights)
{
    if (settings->renormalise) {
        double sum = settings->kind == TS_ROUTER_SIGMOID ? 1e-20 : 0;
        for (size_t k = 0; k < settings->chosen; k++)
            sum += (double)weights[k];
        for (size_t k = 0; k < settings->chosen; k++)
            weights[k] = (float)((double)weights[k] / sum);
    }
    for (size_t k = 0; k < settings->chosen && settings->factor > 0; k++)
        weights[k] *= (float)settings->factor;
}

static void tell_misfit(struct ts_run *run, const struct ts_router_settings *settings)
{
    if (settings->experts > MOST_EXPERTS)
        ts_run_fail(run, TS_ERR_LIMIT, "the config has %zu experts, and at most %d are believed", settings->experts,
                    MOST_EXPERTS);
    else if (settings->chosen > settings->experts)
        ts_run_fail(run, TS_ERR_FORMAT, "the config sends each token to %zu experts, and there are %zu",
                    settings->chosen, settings->experts);
    else
        ts_run_fail(run, TS_ERR_FORMAT, "%zu of %zu experts, in %zu of %zu groups: these do not fit", settings->chosen,
                    settings->experts, settings->chosen_groups, settings->groups);
}

struct ts_routing ts_route(struct ts_run *run, const char *name, struct ts_act logits,
                           const struct ts_router_settings *settings)
{
    struct ts_routing routing = {.experts = settings->experts, .chosen = settings->chosen};
    size_t experts = settings->experts, chosen = settings->chosen;
    char point[256];
    float *scratch;
    if (ts_ok(run) && (!chosen || chosen > experts || experts > MOST_EXPERTS || logits.width != experts ||
                       (settings->kind == TS_ROUTER_SIGMOID &&
                        (!settings->groups || settings->groups > 64 || experts % settings->groups ||
                         !settings->chosen_groups || settings->chosen_groups > settings->groups))))
        tell_misfit(run, settings);
    routing.chosen_weights = ts_new(run, logits.rows, chosen);
    routing.chosen_weights.layout = TS_FLAT;
    routing.weights = routing.chosen_weights.data;
    routing.indices = (int64_t *)(void *)ts_scratch(run, 2 * logits.rows * chosen);
    scratch = ts_scratch(run, 2 * experts + settings->groups + 1);
    for (size_t t = 0; t < logits.rows && ts_real(run); t++) {
        float *weights = routing.weights + t * chosen;
        int64_t *indices = routing.indices + t * chosen;
        memcpy(scratch, logits.data + t * experts, experts * sizeof *scratch);
        if (settings->kind == TS_ROUTER_SIGMOID)
            route_sigmoid(settings, scratch, scratch + experts, scratch + 2 * experts, weights, indices);
        else
            route_softmax(settings, scratch, weights, indices);
        weigh(settings, weights);
    }
    run->wide = routing.wide = settings->wide;
    if (ts_real(run))
        ts_round(run, routing.weights, logits.rows * chosen);
    snprintf(point, sizeof point, "%s.1", name);
    ts_capture(run, point, routing.chosen_weights);
    run->wide = false;
    snprintf(point, sizeof point, "%s.2", name);
    ts_capture_integers(run, point, routing.indices, 2, (uint64_t[]){logits.rows, chosen}, experts);
    return routing;
}

/* The rows that go to an expert, and after it the way back. */
struct gathered {
    size_t *places, count; /* index into [tokens][chosen] */
};

static void capture_expert(struct ts_run *run, size_t expert, struct ts_act said, const struct gathered *gathered,
                           size_t tokens, size_t chosen)
{
    struct ts_block *mark = ts_mark(run);
    struct ts_act whole = ts_new(run, tokens, said.width);
    char name[64];
    whole.layout = TS_FLAT;
    if (ts_real(run)) {
        memset(whole.data, 0, tokens * said.width * sizeof *whole.data);
        for (size_t i = 0; i < gathered->count; i++)
            memcpy(whole.data + gathered->places[i] / chosen * said.width, said.data + i * said.width,
                   said.width * sizeof *said.data);
    }
    snprintf(name, sizeof name, "experts.%zu", expert);
    ts_capture(run, name, whole);
    ts_forget(run, mark, NULL);
}

static struct ts_act gather(struct ts_run *run, struct ts_act x, const struct gathered *gathered, size_t chosen)
{
    struct ts_act rows = ts_new(run, run->plan ? 1 : gathered->count, x.width);
    rows.layout = TS_FLAT;
    for (size_t i = 0; i < gathered->count && ts_real(run); i++)
        memcpy(rows.data + i * x.width, x.data + gathered->places[i] / chosen * x.width, x.width * sizeof *x.data);
    return rows;
}

/* In a plan nothing is chosen yet, and every expert is looked at. */
static void find_places(const struct ts_run *run, const struct ts_routing *routing, size_t tokens, size_t expert,
                        struct gathered *gathered)
{
    gathered->count = 0;
    for (size_t i = 0; i < tokens * routing->chosen && !run->plan; i++)
        if (routing->indices[i] == (int64_t)expert)
            gathered->places[gathered->count++] = i;
}

/* What the activation functions of all experts gave, by expert and then by token. */
static struct ts_act activate(struct ts_run *run, struct ts_act x, const struct ts_routing *routing, size_t inner,
                              const struct ts_expert *expert, void *context, struct gathered *gathered)
{
    struct ts_act active = ts_new(run, x.rows * routing->chosen, inner);
    size_t done = 0;
    active.layout = TS_FLAT;
    for (size_t e = 0; e < routing->experts && ts_ok(run); e++) {
        struct ts_block *mark = ts_mark(run);
        struct ts_act one;
        find_places(run, routing, x.rows, e, gathered);
        if (run->plan || gathered->count) {
            one = expert->act(run, e, gather(run, x, gathered, routing->chosen), context);
            if (ts_real(run))
                memcpy(active.data + done * inner, one.data, gathered->count * inner * sizeof *one.data);
        }
        done += gathered->count;
        ts_forget(run, mark, NULL);
    }
    ts_capture(run, "experts.act_fn", active);
    return active;
}

struct ts_act ts_mix(struct ts_run *run, struct ts_act x, const struct ts_routing *routing, size_t inner,
                     const struct ts_expert *expert, void *context)
{
    struct ts_act out = ts_new(run, x.rows, x.width), active = {0},
                  said_by_all = ts_new(run, x.rows * routing->chosen, x.width);
    struct gathered gathered = {.places = malloc((x.rows * routing->chosen + 1) * sizeof(size_t))};
    size_t done = 0;
    out.layout = TS_FLAT;
    if (!gathered.places && ts_ok(run))
        ts_fail_memory(&run->error);
    if (expert->act && ts_ok(run))
        active = activate(run, x, routing, inner, expert, context, &gathered);
    for (size_t e = 0; e < routing->experts && ts_ok(run); e++) {
        struct ts_block *mark = ts_mark(run);
        struct ts_act said = {.width = x.width};
        find_places(run, routing, x.rows, e, &gathered);
        if (run->plan || gathered.count) {
            struct ts_act acted = {.data = active.data ? active.data + done * inner : NULL,
                                   .rows = gathered.count,
                                   .width = inner,
                                   .layout = TS_FLAT};
            said = expert->say(run, e, gather(run, x, &gathered, routing->chosen), acted, context);
        }
        for (size_t i = 0; i < gathered.count && ts_real(run); i++) {
            size_t place = gathered.places[i];
            memcpy(said_by_all.data + place * x.width, said.data + i * x.width, x.width * sizeof *said.data);
        }
        done += gathered.count;
        if (run->each_expert)
            capture_expert(run, e, said, &gathered, x.rows, routing->chosen);
        ts_forget(run, mark, NULL);
    }
    free(gathered.places);
    for (size_t t = 0; t < x.rows && ts_real(run); t++) {
        float *to = out.data + t * x.width;
        memset(to, 0, x.width * sizeof *to);
        for (size_t k = 0; k < routing->chosen; k++) {
            float *from = said_by_all.data + (t * routing->chosen + k) * x.width,
                  weight = routing->weights[t * routing->chosen + k];
            for (size_t i = 0; i < x.width; i++)
                from[i] *= weight;
            if (!routing->wide)
                ts_round(run, from, x.width);
            for (size_t i = 0; i < x.width; i++)
                to[i] += from[i];
        }
    }
    if (ts_real(run))
        ts_round(run, out.data, x.rows * x.width);
    ts_capture(run, "experts", out);
    return out;
}

/* A slice of a stacked weight [experts, rows, columns]: rows [first, first + count) of one expert. */
static const struct ts_view *slice_of(struct ts_run *run, const struct ts_view *stack, size_t expert, size_t first,
                                      size_t count)
{
    struct ts_view *views = ts_arena_array(&run->weights->arena, 3, sizeof *views);
    if (!views || !ts_view_slice(stack, 0, expert, 1, 1, &run->weights->arena, &views[0]) ||
        !ts_view_slice(&views[0], 1, first, count, 1, &run->weights->arena, &views[1]) ||
        !ts_view_reshape(&views[1], (uint64_t[]){count, stack->shape[2]}, 2, &run->weights->arena, &views[2])) {
        if (ts_ok(run))
            ts_fail_memory(&run->error);
        return NULL;
    }
    return &views[2];
}

/* A name with the file's scope in place of the last word of ours. */
static const char *in_other_scope(const struct ts_run *run, const char *scope, const char *name, char text[768])
{
    const char *last = strrchr(run->scope, '.');
    snprintf(text, 768, "%.*s%s.%s", last ? (int)(last - run->scope + 1) : 0, run->scope, scope, name);
    return text;
}

struct ts_act ts_router_logits(struct ts_run *run, const char *name, const char *other_scope, struct ts_act x,
                               size_t experts, bool bias)
{
    const struct ts_view *weight = NULL, *b = NULL;
    struct ts_act logits;
    char full[768], text[256];
    x.layout = TS_FLAT;
    snprintf(text, sizeof text, "%s.weight", name);
    if (other_scope && ts_model_weights_find(run->weights, in_other_scope(run, other_scope, text, full)))
        weight = ts_model_weights_need(run->weights, full, 2, (uint64_t[]){experts, x.width});
    else
        weight = ts_parameter(run, text, 2, (uint64_t[]){experts, x.width});
    snprintf(text, sizeof text, "%s.bias", name);
    if (bias)
        b = ts_parameter(run, text, 1, (uint64_t[]){experts});
    logits = weight ? ts_linear_view(run, "", x, weight, b) : ts_new(run, x.rows, experts);
    logits.layout = TS_FLAT;
    snprintf(text, sizeof text, "%s.0", name);
    ts_capture(run, text, logits);
    return logits;
}

/* Whether a stack [experts, rows, columns] has this expert. */
static bool fits(const struct ts_model_weight *stack, size_t expert, size_t rows, size_t columns)
{
    const struct ts_view *view = &stack->view;
    return view->rank == 3 && view->shape[0] > expert && view->shape[1] == rows && view->shape[2] == columns;
}

static const struct ts_view *expert_weight(struct ts_run *run, const struct ts_gated_experts *how, size_t expert,
                                           const char *which, size_t rows, size_t columns)
{
    char name[256], full[768];
    struct ts_model_weight *stack;
    bool down = which == how->down;
    snprintf(name, sizeof name, "%s.%s", how->name, down ? "down_proj" : "gate_up_proj");
    stack = ts_model_weights_find(run->weights, ts_full_name(run, name, full));
    if (stack && fits(stack, expert, down ? rows : 2 * rows, columns))
        return slice_of(run, &stack->view, expert, which == how->up ? rows : 0, rows);
    if (!stack && !down) { /* one stack for each of the two */
        snprintf(name, sizeof name, "%s.%s", how->name, which == how->up ? "up_proj" : "gate_proj");
        stack = ts_model_weights_find(run->weights, ts_full_name(run, name, full));
        if (stack && fits(stack, expert, rows, columns))
            return slice_of(run, &stack->view, expert, 0, rows);
    }
    if (stack) { /* told once, and not for every expert */
        if (expert == 0 || (stack->view.rank && stack->view.shape[0] == expert))
            ts_model_weights_need(run->weights, full, 3,
                                  (uint64_t[]){expert + 1, strstr(name, "gate_up") ? 2 * rows : rows, columns});
        return NULL;
    }
    snprintf(name, sizeof name, "%s.%zu.%s.weight", how->name, expert, which);
    if (how->other_scope && ts_model_weights_find(run->weights, in_other_scope(run, how->other_scope, name, full)))
        return ts_model_weights_need(run->weights, full, 2, (uint64_t[]){rows, columns});
    return ts_parameter(run, name, 2, (uint64_t[]){rows, columns});
}

static struct ts_act gated_act(struct ts_run *run, size_t expert, struct ts_act rows, void *context)
{
    const struct ts_gated_experts *how = context;
    const struct ts_view *gate = expert_weight(run, how, expert, how->gate, how->inner, rows.width);
    if (run->plan || !ts_ok(run))
        return ts_new(run, rows.rows, how->inner);
    return ts_activate(run, "", ts_linear_view(run, "", rows, gate, NULL), how->function);
}

static struct ts_act gated_say(struct ts_run *run, size_t expert, struct ts_act rows, struct ts_act active,
                               void *context)
{
    const struct ts_gated_experts *how = context;
    const struct ts_view *up = expert_weight(run, how, expert, how->up, how->inner, rows.width),
                         *down = expert_weight(run, how, expert, how->down, rows.width, how->inner);
    if (run->plan || !ts_ok(run))
        return ts_new(run, rows.rows, rows.width);
    return ts_linear_view(run, "", ts_multiply(run, "", active, ts_linear_view(run, "", rows, up, NULL)), down, NULL);
}

const struct ts_expert ts_gated_expert = {.act = gated_act, .say = gated_say};
