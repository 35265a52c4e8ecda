/* Owns flips that nobody saw: tokens that took other experts where neither the choice nor the logits were captured, as
 * far as the structure of the error and the names tell. */
#include <stdlib.h>
#include <string.h>

#include "compare/judge_state.h"
#include "tensor/layer.h"

#define NOISE_TIMES    4.0  /* what the others err by, over what came in */
#define AGAIN          5.0  /* times what it did before: a token stands out anew */
#define FLIPPED        0.1  /* error of a token with another expert */
#define FLIPPED_TIMES  10.0 /* that of the others, in a model that is known to have some beside a large stream */
#define FLIPPED_MOST   3.0  /* another expert's result is not much larger */
#define STRAY_AGAIN    15.0 /* a token stands out in another layer too, whatever the noise has become there */
#define FLIPS_OF_NOISE 24.0 /* share of tokens that so much noise gives other experts, at most */

/* No more tokens than noise of this size gives other experts in all layers so far. The others are calm. */
static bool are_so_few(const struct ts_judge *state, size_t i, double base)
{
    const struct ts_structure *own = &state->structures[i];
    uint64_t layer;
    return own->known && own->strays && own->row_error >= fmin(FLIPPED, FLIPPED_TIMES * own->calm) &&
           own->calm <= NOISE_TIMES * base && ts_layer_of(state->pairs[i].name, &layer) &&
           (double)own->strays <=
               fmin(0.2, FLIPS_OF_NOISE * base * (double)(layer + 1)) * (double)state->scene.taken_count;
}

/* A module that no experts are in, by its name: of attention, or a projection of an MLP. */
static bool has_no_experts(const char *name)
{
    static const char *const modules[] = {"attn", "attention", "gate_proj", "up_proj", "down_proj", "fc1", "fc2"};
    for (size_t k = 0; k < sizeof modules / sizeof *modules && !strstr(name, "expert"); k++)
        if (strstr(name, modules[k]))
            return true;
    return false;
}

bool ts_judge_is_end_projection(const struct ts_judge *state, size_t i)
{
    const char *name = state->pairs[i].name, *end = strrchr(name, '.'), *before;
    if (!(state->structures[i].row_before > 0) || strstr(name, "expert") ||
        !ts_same_layer(name, before = state->pairs[i - 1].name))
        return false;
    name = end ? end + 1 : name;
    if (strcmp(name, "o_proj") == 0 || strcmp(name, "out_proj") == 0)
        return (ts_judge_is_norm(before) || strstr(before, "context")) &&
               2 * state->pairs[i - 1].a.count >= state->pairs[i].a.count; /* and none of a small part */
    return strcmp(name, "down_proj") == 0;
}

/* Such a tensor behind calm ones of its own layer: no experts are between. */
static bool is_behind_calm_input(const struct ts_judge *state, size_t i, uint64_t layer)
{
    const struct ts_structure *own = &state->structures[i];
    uint64_t other;
    if (ts_judge_is_end_projection(state, i))
        return own->row > AGAIN * own->row_before;
    if (!has_no_experts(state->pairs[i].name))
        return false;
    for (size_t k = i; k-- > 0 && (!ts_layer_of(state->pairs[k].name, &other) || other == layer);)
        if (state->structures[k].known)
            return state->structures[k].strays == 0;
    return false;
}

/* What each token took in this layer is known, and who took something else was set aside. */
static bool is_choice_known(const struct ts_judge *state, size_t i)
{
    for (size_t k = i; k-- > 0 && ts_same_layer(state->pairs[k].name, state->pairs[i].name);)
        if (state->pairs[k].strays)
            return state->pairs[k].strays->all;
    return false;
}

bool ts_judge_are_unseen_flips(struct ts_judge *state, size_t i, double base)
{
    const struct ts_structure *own = &state->structures[i];
    size_t near[2 * TS_POINTS_NEAR], count, alike = 0, others = 0, fresh = 0, last = SIZE_MAX;
    uint64_t layer;
    bool more = false;
    if ((ts_layer_of(state->pairs[i].name, &layer) && is_behind_calm_input(state, i, layer)) ||
        is_choice_known(state, i))
        return false;
    if (!own->known || !own->strays || own->strays * 3 > state->scene.taken_count || own->row_error < FLIPPED ||
        own->row_error > FLIPPED_MOST ||
        (!state->points.pairs && !ts_points_open(&state->points, state->pairs, state->out->count)))
        return false;
    count = ts_points_near(&state->points, i, near);
    for (size_t n = 0; n < count; n++) {
        const size_t k = near[n];
        const struct ts_structure *other = &state->structures[k];
        if (!other->known)
            continue;
        others++;
        if (other->row > STRAY_AGAIN && other->row_error > FLIPPED && other->worst_row != own->worst_row) {
            alike += other->row > 3 * other->inherited_row;
            fresh += other->worst_row != last; /* in the stream those of earlier layers stay */
            last = other->worst_row;
        }
        /* those that attention carries the error to err far less than the first */
        more = more ||
               (k > i && other->row > STRAY_AGAIN && other->row_error > FLIPPED && other->worst_rows > own->worst_rows);
    }
    return (alike >= 2 && alike * 2 >= others) || ((alike || fresh >= 2 || more) && are_so_few(state, i, base));
}

/* Routers' logits, weights and choices, of all layers: names are read once. False without memory. */
static bool list_routing(struct ts_judge *state)
{
    if (state->routing)
        return true;
    state->routing = calloc(state->out->count + 1, sizeof *state->routing);
    for (size_t k = 0; state->routing && k < state->out->count; k++) {
        const struct ts_pair *pair = &state->pairs[k];
        struct ts_judge_routing one = {.pair = k, .integers = ts_type_is_integer(pair->a.tensor->type)};
        one.sure = one.integers || strstr(pair->name, "router");
        state->experts = state->experts || strstr(pair->name, "expert") || strstr(pair->name, "moe");
        if ((one.sure || ts_judge_is_router(pair->name)) && ts_layer_of(pair->name, &one.layer))
            state->routing[state->routing_count++] = one;
    }
    return state->routing != NULL;
}

enum ts_judge_hidden ts_judge_hides_routing(struct ts_judge *state, size_t i, double base)
{
    const bool output = strstr(state->pairs[i].name, "experts") && !strstr(state->pairs[i].name, "shared");
    bool experts, elsewhere = false, here = false;
    uint64_t layer;
    if (!are_so_few(state, i, base) || !ts_layer_of(state->pairs[i].name, &layer) ||
        is_behind_calm_input(state, i, layer) || !list_routing(state))
        return TS_HIDDEN_NOTHING;
    experts = state->experts;
    for (size_t k = 0; k < state->routing_count; k++) {
        const struct ts_judge_routing *one = &state->routing[k];
        /* gates that are no narrower than the stream are those of an activation */
        if (!one->sure && state->pairs[one->pair].a.count > state->pairs[i].a.count / 2)
            continue;
        if (one->layer == layer && !(output && ts_judge_is_router(state->pairs[one->pair].name)) &&
            !ts_judge_has_open_flips(state, one->pair))
            return TS_HIDDEN_NOTHING;
        experts = experts || !one->integers;
        here = here || one->layer == layer;
        elsewhere = true;
    }
    return !experts ? TS_HIDDEN_NOTHING : here ? TS_HIDDEN_CHOICE : elsewhere ? TS_HIDDEN_LAYER : TS_HIDDEN_ROUTING;
}
