/* Owns what families see of a case beyond its values. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/case.h"

/* Families may keep values of many earlier tensors: 48 of 4 million doubles would be too much. */
#define VALUES_MOST ((size_t)1 << 27)

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* "experts.down_proj", "experts.gate_up_proj", "experts.w1": what is stacked over all experts is a parameter, and of
 * one expert, "experts.3.down_proj", the output of a step. */
static bool is_of_all_experts(const char *name)
{
    const char *at = strstr(name, "experts."), *rest = at ? at + strlen("experts.") : NULL;
    return rest && (at == name || at[-1] == '.') && !strchr(rest, '.') &&
           (strstr(rest, "_proj") || (rest[0] == 'w' && rest[1] >= '1' && rest[1] <= '3' && !rest[2]));
}

/* Parameters are matrices without tokens, whatever sizes they have in common with the sequence. */
bool ts_is_weight(const char *name)
{
    return is_of_all_experts(name) || ends_with(name, "weight") || ends_with(name, "bias") ||
           ends_with(name, ".scale") || strstr(name, ".weight.") ||
           strstr(name, ".weight_"); /* "gate.weights" are a router's output */
}

const char *ts_case_check(const struct ts_case *the_case, const char *of_step, const char *of_weight)
{
    return ts_is_weight(ts_case_pair(the_case)->name) ? of_weight : of_step;
}

const double *ts_case_values(struct ts_case *the_case, const struct ts_actor *actor, bool candidate)
{
    struct ts_case_state *state = (struct ts_case_state *)the_case;
    const float *from = candidate ? actor->b : actor->a;
    double *values;
    if (!actor->usable || actor->rows != the_case->actor->rows || actor->width != the_case->actor->width)
        return NULL;
    for (size_t i = 0; i < state->cached; i++)
        if (state->cache[i].actor == actor && state->cache[i].candidate == candidate)
            return state->cache[i].values;
    if (state->cached == 2 * TS_SCENE_WINDOW || (state->cached + 1) * the_case->total > VALUES_MOST)
        return NULL;
    values = malloc(the_case->total * sizeof *values);
    for (size_t i = 0; values && i < the_case->total; i++)
        values[i] = (double)from[i];
    if (values)
        state->cache[state->cached++] = (struct ts_case_values){actor, candidate, values};
    return values;
}

const double *ts_case_norm_input(struct ts_case *the_case)
{
    const struct ts_operation *operation = &the_case->operation;
    double *sum;
    if (operation->kind != TS_OPERATION_NORM || !(sum = ts_case_scratch(the_case)))
        return NULL;
    for (unsigned k = 0; k < operation->input_count; k++) {
        const struct ts_actor *input = ts_scene_actor(the_case->scene, operation->inputs[k]);
        if (!input || input->rows * input->width != the_case->total)
            return NULL;
        for (size_t i = 0; i < the_case->total; i++)
            sum[i] += (double)input->b[i];
    }
    return sum;
}

double *ts_case_scratch(struct ts_case *the_case)
{
    struct ts_case_state *state = (struct ts_case_state *)the_case;
    double *scratch;
    if (state->scratch_count == sizeof state->scratch / sizeof *state->scratch)
        return NULL;
    scratch = calloc(the_case->total, sizeof *scratch);
    if (scratch)
        state->scratch[state->scratch_count++] = scratch;
    return scratch;
}

const char *ts_case_name(const struct ts_case *the_case, const struct ts_actor *actor)
{
    return the_case->scene->pairs[actor->pair].name;
}

bool ts_case_aside(const struct ts_case *the_case, size_t row)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    if (state->gathered)
        return state->gathered[state->own_rows[row]] == SIZE_MAX;
    return !state->direct && the_case->actor->rows == state->scene.taken_count && state->scene.aside[row];
}

bool ts_case_index(const struct ts_case *the_case, size_t i, uint64_t *flat)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    const struct ts_actor *actor = the_case->actor;
    const struct ts_view *view = &state->scene.pairs[actor->pair].a;
    if (!state->direct)
        return ts_scene_index(&state->scene, actor, i, flat);
    *flat = state->own_rows[i / actor->width] * state->own_last + i % actor->width;
    return actor->width <= state->own_last && *flat < view->count;
}

bool ts_case_folded(const struct ts_case *the_case)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    const struct ts_view *view = &state->scene.pairs[the_case->actor->pair].a;
    return state->direct && view->rank && state->own_last < view->shape[view->rank - 1];
}

uint64_t ts_case_row(const struct ts_case *the_case, size_t row)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    return state->direct                                       ? state->own_rows[row]
           : the_case->actor->rows == state->scene.taken_count ? state->scene.taken[row] - ts_scene_first(&state->scene)
                                                               : row;
}

const struct ts_product *ts_case_product(const struct ts_case *the_case)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    return state->product.weight ? &state->product : NULL;
}

const struct ts_evidence *ts_case_evidence(const struct ts_case *the_case)
{
    return ((const struct ts_case_state *)the_case)->evidence;
}

bool ts_case_has_weights(const struct ts_case *the_case)
{
    const struct ts_evidence *evidence = ts_case_evidence(the_case);
    return evidence && evidence->counts[TS_WEIGHTS_REFERENCE] > 0;
}

bool ts_case_direct(const struct ts_case *the_case)
{
    return ((const struct ts_case_state *)the_case)->direct;
}

static bool is_image(const struct ts_view *view)
{
    return view->rank == 4 && view->shape[0] == 1 && view->shape[2] > 1 && view->shape[3] > 1;
}

bool ts_case_is_image(const struct ts_case *the_case)
{
    const struct ts_scene *scene = the_case->scene;
    const struct ts_view *own = &scene->pairs[the_case->actor->pair].a;
    size_t images = 0, others = 0;
    if (ts_case_direct(the_case) || !is_image(own) || the_case->actor->rows != own->shape[1] ||
        the_case->actor->width != own->shape[2] * own->shape[3])
        return false;
    /* tokens, heads and head size are four axes as well, but never most of a run */
    for (size_t i = 0; i < scene->pair_count; i++) {
        images += is_image(&scene->pairs[i].a);
        others += scene->pairs[i].a.rank >= 2 && !is_image(&scene->pairs[i].a);
    }
    return images > others;
}

const char *ts_case_row_word(const struct ts_case *the_case)
{
    return ts_case_direct(the_case) ? "row" : ts_case_is_image(the_case) ? "channel" : "token";
}

bool ts_case_is_part(const struct ts_case *the_case)
{
    return ((const struct ts_case_state *)the_case)->about != NULL;
}

const struct ts_glance *ts_case_glance(const struct ts_case *the_case)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    return state->glance.tokens && !state->direct ? &state->glance : NULL;
}

bool ts_case_wants(const struct ts_case *the_case, const char *id)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    return !state->only || strcmp(state->only, id) == 0;
}

bool ts_case_complete(const struct ts_case *the_case)
{
    return ((const struct ts_case_state *)the_case)->complete;
}

const struct ts_pair *ts_case_pair(const struct ts_case *the_case)
{
    return &the_case->scene->pairs[the_case->actor->pair];
}

size_t ts_case_pair_count(const struct ts_case *the_case)
{
    return ((const struct ts_case_state *)the_case)->pair_count;
}

bool ts_case_quiet(const struct ts_case *the_case)
{
    return ((const struct ts_case_state *)the_case)->quiet;
}

bool ts_case_ordinary(const struct ts_case *the_case)
{
    return ((const struct ts_case_state *)the_case)->ordinary;
}

const char *ts_case_text(struct ts_case *the_case, const char *format, ...)
{
    va_list args;
    const char *kept;
    va_start(args, format);
    kept = ts_arena_vsay(&the_case->diagnosis->arena, format, args);
    va_end(args);
    return kept;
}
