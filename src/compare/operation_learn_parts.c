/* Owns learning what takes a part of an earlier tensor. A projection may hold more than one thing: the latent of all
 * heads and the numbers of a key that turn, the keys of each head and its values. Parts stand at the beginning or at
 * the end, of a row or of every head in it. They are cut out and tried as if they had been captured by themselves. */
#include <stdlib.h>
#include <string.h>

#include "compare/operation_search.h"

#define MOST_WIDE    6 /* earlier tensors of which parts are tried */
#define LEAST_PART   4 /* numbers */
#define LOOK_NUMBERS 4
#define LOOK_ROOM    9    /* times the square of the error that is allowed of all */
#define VALUE_OFF    0.05 /* relative: coarse ones were rounded on the way */

/* A part of `from` as an actor of its own, the reference's numbers alone; false when there is none. */
static bool cut(const struct ts_actor *from, size_t stride, size_t place, size_t inner, struct ts_actor *part)
{
    const size_t parts = stride ? from->width / stride : 0;
    if (!parts || from->width % stride || place + inner > stride || inner == stride)
        return false;
    *part = *from;
    part->width = parts * inner;
    part->heads = parts;
    part->inner = inner;
    part->b = NULL;
    part->a = malloc((from->rows * part->width + 1) * sizeof *part->a);
    for (size_t i = 0; i < from->rows * parts && part->a; i++)
        memcpy(part->a + i * inner, from->a + i / parts * from->width + i % parts * stride + place,
               inner * sizeof *part->a);
    return part->a != NULL;
}

/* With this part in the place of what has the size of the actor. */
static void learn_of(struct ts_search *search, const struct ts_actor *from, size_t heads, size_t place,
                     void (*learn)(struct ts_search *))
{
    struct ts_search own = *search;
    struct ts_actor part;
    const size_t stride = heads ? from->width / heads : 0;
    if (!cut(from, stride, place, search->actor->width / heads, &part))
        return;
    own.same[0] = &part;
    own.same_count = 1;
    own.stride = stride;
    own.place = place;
    learn(&own);
    search->best = own.best;
    free(part.a);
}

static void learn_of_wider(struct ts_search *search, size_t heads, void (*learn)(struct ts_search *))
{
    const struct ts_actor *actor = search->actor;
    size_t wide = 0;
    if (!heads || actor->width % heads)
        return;
    for (size_t i = 0; i < search->all_count && wide < MOST_WIDE && search->best.kind == TS_OPERATION_NONE; i++) {
        const struct ts_actor *from = search->all[i];
        if (from->rows != actor->rows || from->apart || from->width <= actor->width || from->width % heads ||
            from->inner == from->sequence)
            continue;
        wide++;
        learn_of(search, from, heads, (from->width - actor->width) / heads, learn);
        if (search->best.kind == TS_OPERATION_NONE)
            learn_of(search, from, heads, 0, learn);
    }
}

static void learn_copy(struct ts_search *search)
{
    struct ts_operation copy = {.kind = TS_OPERATION_COPY, .inputs = {search->same[0]->pair}, .input_count = 1};
    ts_search_consider(search, &copy);
}

/* A look at some numbers of the last row. */
static bool may_be_copied(const struct ts_search *search, const struct ts_actor *from, size_t stride, size_t place)
{
    const struct ts_actor *actor = search->actor;
    const size_t parts = from->width / stride, inner = actor->width / parts, last = actor->rows - 1;
    const size_t apart = parts > 1 ? parts - 1 : 1; /* the first part and the last one */
    double error = 0, size = 0;
    for (size_t i = 0; i < LOOK_NUMBERS && i < inner; i++)
        for (size_t part = 0; part < parts; part += apart) {
            const double x = (double)from->a[last * from->width + part * stride + place + i];
            const double y = (double)actor->a[last * actor->width + part * inner + i];
            error += (x - y) * (x - y);
            size += y * y;
        }
    return error <= LOOK_ROOM * search->tolerance * search->tolerance * size;
}

/* Queries, keys and values as a fused projection holds them, one behind the other or those of each head together: what
 * a run without rotary embedding takes apart. Any part has an angle of zero as well, so this comes before the turns. */
static void learn_copies(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    size_t wide = 0;
    for (size_t k = 0; k < search->all_count && wide < MOST_WIDE && search->best.kind == TS_OPERATION_NONE; k++) {
        const struct ts_actor *from = search->all[k];
        if (from->rows != actor->rows || from->apart || from->width <= actor->width || from->inner == from->sequence)
            continue;
        wide++;
        for (size_t parts = 1; parts * LEAST_PART <= actor->width && search->best.kind == TS_OPERATION_NONE; parts++) {
            const size_t stride = from->width / parts, inner = actor->width / parts;
            if (from->width % parts || actor->width % parts)
                continue;
            for (size_t place = 0; place + inner <= stride && search->best.kind == TS_OPERATION_NONE; place++)
                if (may_be_copied(search, from, stride, place))
                    learn_of(search, from, parts, place, learn_copy);
        }
    }
}

/* Scores and what stands beside the tokens have no parts in this sense. */
static bool may_be_part(const struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    return !actor->apart && actor->inner != actor->sequence && search->best.kind == TS_OPERATION_NONE;
}

static bool tries_parts(const struct ts_search *search)
{
    return search->scene->in_parts && may_be_part(search);
}

void ts_learn_parts_that_turn(struct ts_search *search)
{
    if (tries_parts(search))
        learn_of_wider(search, search->actor->heads, ts_learn_rotary);
}

/* A first token that sees itself alone has its own value for context: nearly all that are no values are seen to be none
 * there, before those of all tokens are read. */
static bool may_be_values(const struct ts_search *search, const struct ts_actor *p, const struct ts_actor *from,
                          size_t stride, size_t place)
{
    const struct ts_actor *actor = search->actor;
    const size_t inner = actor->width / p->heads, repeat = p->heads / (from->width / stride);
    double error = 0, size = 0;
    if (ts_scene_position(search->scene, actor, 0) != 0)
        return true;
    for (size_t head = 0; head < p->heads; head++) {
        const float *value = from->a + head / repeat * stride + place, *out = actor->a + head * inner;
        if (p->a[head * p->inner] != 1)
            return true;
        for (size_t i = 0; i < inner; i++) {
            error += ((double)value[i] - (double)out[i]) * ((double)value[i] - (double)out[i]);
            size += (double)out[i] * (double)out[i];
        }
    }
    return error <= VALUE_OFF * VALUE_OFF * size;
}

/* Values beside keys, in each head that has its own. */
static void learn_context(struct ts_search *search, const struct ts_actor *p, const struct ts_actor *from)
{
    const size_t inner = search->actor->width / p->heads;
    const struct ts_actor *all = NULL;
    for (size_t heads = p->heads; heads > 0 && search->best.kind == TS_OPERATION_NONE; heads--) {
        const size_t stride = from->width / heads;
        if (p->heads % heads || from->width % heads || stride <= inner)
            continue;
        for (int end = 1; end >= 0 && search->best.kind == TS_OPERATION_NONE; end--) {
            struct ts_operation context = {
                .kind = TS_OPERATION_CONTEXT, .inputs = {p->pair, from->pair}, .input_count = 2};
            const size_t place = end ? stride - inner : 0;
            struct ts_actor part;
            if (!may_be_values(search, p, from, stride, place) ||
                (!all && !(all = ts_scene_all(search->scene, from->pair))) || !cut(all, stride, place, inner, &part))
                continue;
            search->stride = stride;
            search->place = place;
            if (ts_may_be_context(search, p, &part))
                ts_search_consider(search, &context);
            search->stride = search->place = 0;
            free(part.a);
        }
    }
}

static void learn_contexts(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    for (size_t i = 0; i < search->all_count && i < 8; i++) {
        const struct ts_actor *p = search->all[i];
        size_t wide = 0;
        if (!ts_may_attend(p) || p->rows != actor->rows || actor->width % p->heads || actor->width == p->heads)
            continue;
        for (size_t j = 0; j < search->all_count && wide < MOST_WIDE && search->best.kind == TS_OPERATION_NONE; j++) {
            const struct ts_actor *from = search->all[j];
            if (j == i || from->apart || from->rows != actor->rows || from->inner == from->sequence ||
                from->width <= actor->width / p->heads)
                continue;
            wide++;
            learn_context(search, p, from);
        }
    }
}

void ts_learn_parts(struct ts_search *search)
{
    if (may_be_part(search))
        learn_copies(search);
    if (!tries_parts(search))
        return;
    learn_contexts(search);
    learn_of_wider(search, 1, ts_learn_norms);
    ts_learn_parts_that_turn(search);
}
