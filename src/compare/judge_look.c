/* Owns looking at each pair of a run: what it holds, how it came about, whether that gives it again from the
 * candidate's own inputs, and how its error is spread.
 *
 * Pairs are looked at some at a time, on all threads, each in the scene as it will be when its turn has come. What
 * follows from a look is settled in order. Two things that a look may have missed are caught up with there: tokens that
 * a pair just before has set aside, and a rotation that one just before has shown. So everything is as if one pair had
 * been looked at after the other, whatever the number of threads. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "compare/delta_close.h"
#include "compare/judge_state.h"
#include "compare/scene_place.h"
#include "tensor/layer.h"

/* Pairs that are looked at together: enough for many threads, no more than the window of a scene has, and no more than
 * this memory holds beside the window, but two. */
#define TOGETHER 32
_Static_assert(TOGETHER < TS_SCENE_WINDOW, "those together have to fit into the window of a scene");
#define AHEAD_MOST ((size_t)24 << 20)
/* Replaying takes six doubles for a number. Threads wait where those of all would take more than this; what takes more
 * by itself is looked at when all else is done. */
#define REPLAY_BYTES (6 * sizeof(double))
#define REPLAYS_MOST ((size_t)64 << 20)
/* No mask is as high as this, no score as low. */
#define VISIBLE (-1000.0f)
#define PARTS   4      /* pairs before, of which one may be a part */
#define ONE_OF  100000 /* elements, of which one alone is never honest noise */

/* What can be told of a pair before those in front of it are settled. */
struct look {
    bool done;
    enum ts_status status;
    struct ts_error error;
    size_t shown, hidden; /* elements that only the reference masks, or the candidate; nothing else is known then */
    struct ts_operation operation;
    struct ts_turn turn; /* a rotation that was not known before; without a table: none */
    struct ts_replay replay;
    /* what tokens that are set aside have no part in: */
    double error_without;   /* where numbers of other tokens had to be put right for it; else NaN */
    double error_of_scores; /* of probabilities: that of what they came from; else NaN */
    struct ts_structure structure;
    double update; /* as in struct ts_judge */
    size_t follows;
    bool part;
    double stray;
};

struct looks {
    struct ts_judge *state;
    size_t first, count; /* pairs */
    struct ts_actor actors[TOGETHER];
    struct look each[TOGETHER];
    bool *aside;          /* as it was when they were looked at */
    bool *hidden;         /* tokens that are set aside for one pair only */
    bool turned;          /* one of them has shown a new rotation */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t given_back;
    size_t taken; /* bytes that replays may be using */
};

/* A scale and a shift, that no token has for itself, in one tensor before; that of the norm itself, or of another one
 * like it. What experts gathered is no such tensor, however many times as wide. Where some layers are coarser than
 * others, it is as coarse as any that was used. */
static double error_of_modulation(struct ts_judge *state, size_t i)
{
    const struct ts_actor *actor = ts_scene_actor(&state->scene, i);
    double used = 0;
    for (size_t k = 0; k < i; k++)
        used = state->kinds[k] == TS_OPERATION_MODULATE ? fmax(used, state->modulated[k]) : used;
    for (size_t back = 1; actor && back <= TS_INHERIT_FROM && back <= i; back++) {
        const struct ts_actor *before = ts_scene_actor(&state->scene, i - back);
        if (before && before->rows < actor->rows && before->width >= 2 * actor->width &&
            before->width % actor->width == 0 && before->width / actor->width <= TS_MOST_CHUNKS &&
            !state->reordered[i - back] && isfinite(before->error))
            return fmax(before->error, used);
    }
    return 0;
}

/* What is added to the stream is used, however small a part of it that is. */
static void note_use(struct ts_judge *state, size_t i, const struct ts_operation *operation,
                     const struct ts_replay *replay)
{
    if ((operation->kind == TS_OPERATION_SUM || operation->kind == TS_OPERATION_SCALED_SUM ||
         operation->kind == TS_OPERATION_GATED_SUM) &&
        replay->ratio <= TS_FOLLOWS_FROM)
        for (unsigned k = 0; k < operation->input_count; k++)
            if (!state->used[operation->inputs[k]])
                state->used[operation->inputs[k]] = i + 1;
}

static void note_replay(struct ts_judge *state, size_t i, const struct ts_operation *operation,
                        const struct ts_replay *replay)
{
    struct ts_verdict *verdict = &state->out->verdicts[i];
    struct ts_buffer text;
    ts_buffer_init(&text, 4096);
    ts_operation_text(&state->scene, operation, &text);
    if (replay->rounded)
        ts_buffer_printf(&text, ", rounded to %s on the way", replay->rounded);
    verdict->operation = ts_arena_string(&state->out->arena, text.data ? text.data : "");
    ts_buffer_release(&text);
    verdict->noise_ratio = replay->ratio;
    state->replays[i] = *replay;
    state->kinds[i] = operation->kind;
    state->takes[i] = operation->input_count ? operation->inputs[0] + 1 : 0;
    note_use(state, i, operation, replay);
    state->products[i] = ts_operation_is_product(operation);
    state->adaptive[i] = operation->kind == TS_OPERATION_NORM && operation->centred && operation->flag;
    if (state->adaptive[i])
        state->modulated[i] = error_of_modulation(state, i);
    else if (operation->kind == TS_OPERATION_MODULATE)
        state->modulated[i] = state->errors[operation->inputs[1]];
}

/* Activations are often looked up in tables of half precision. An error as small as that is a table unless another
 * function explains it. */
static enum ts_status forgive_tables(struct ts_scene *scene, const struct ts_operation *operation,
                                     const struct ts_actor *actor, struct ts_replay *replay, struct ts_error *error)
{
    if (operation->kind != TS_OPERATION_ACTIVATION || replay->local > 2e-3 ||
        (replay->ratio <= TS_FOLLOWS_FROM && replay->worst_channel_part <= TS_REPLAY_CHANNEL / 2))
        return TS_OK;
    for (int f = 0; f < TS_ACTIVATION_COUNT; f++) {
        struct ts_operation other = *operation;
        struct ts_replay rival;
        other.activation = (enum ts_activation)f;
        if (other.activation == operation->activation)
            continue;
        TS_TRY(ts_operation_replay(scene, &other, actor, &rival, error));
        if (rival.local < 0.5 * replay->local)
            return TS_OK;
    }
    replay->ratio = replay->worst_part = replay->worst_channel_part = 1;
    replay->slope = 0;
    return TS_OK;
}

/* A number that stood out in what came in may stand out here. */
static void inherit_element(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    const size_t i = actor->pair;
    for (size_t back = 1; structure->element > TS_ELEMENT_LIMIT && back <= TS_INHERIT_FROM && back <= i; back++) {
        const struct ts_actor *before = ts_scene_actor(scene, i - back);
        if (before && before->rows == actor->rows && before->width == actor->width)
            structure->inherited_element =
                fmax(structure->inherited_element, ts_structure_element(scene, before, structure->worst_element));
    }
}

/* And so may a channel. */
static void inherit_channel(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    const size_t i = actor->pair;
    for (size_t back = 1; structure->channel > ts_channel_limit(structure) && back <= TS_INHERIT_FROM && back <= i;
         back++) {
        const struct ts_actor *before = ts_scene_actor(scene, i - back);
        if (before && before->rows == actor->rows && before->width == actor->width)
            structure->inherited_channel =
                fmax(structure->inherited_channel, ts_structure_channel(scene, before, structure->worst_channel));
    }
}

/* lowest: of its type, where that masks. */
static bool is_visible(float score, double lowest)
{
    return score > VISIBLE && (double)score > lowest;
}

/* Masked by a low number on one side, which the scene shows as minus infinity, and plainly visible on the other: no sum
 * shows it. */
static bool is_one_sided(const struct ts_scene *scene, const struct ts_actor *actor, struct look *look)
{
    const struct ts_masks masks = ts_masks_of(&scene->pairs[actor->pair]);
    const bool tokens = !actor->apart && actor->rows == scene->taken_count;
    look->shown = look->hidden = 0;
    for (size_t i = 0; i < actor->rows * actor->width; i++) {
        if (tokens && scene->aside[i / actor->width])
            continue;
        look->shown += actor->a[i] == -INFINITY && is_visible(actor->b[i], masks.lowest_b);
        look->hidden += actor->b[i] == -INFINITY && is_visible(actor->a[i], masks.lowest_a);
    }
    return look->shown || look->hidden;
}

static const char *tell_one_sided(const struct ts_judge *state, const struct look *look)
{
    const size_t count = look->shown + look->hidden;
    return ts_judge_say(state->out, "%zu element%s masked %s", count, count == 1 ? " is" : "s are",
                        !look->hidden  ? "in the reference and not in the candidate"
                        : !look->shown ? "in the candidate and not in the reference"
                                       : "on one side only");
}

/* Of a tensor that nothing replays: most of the error is made by a single element of many. No rounding does that. */
static void note_one_element(struct ts_judge *state, size_t i)
{
    const struct ts_delta *delta = &state->deltas[i];
    double energy = delta->mse * (double)delta->compared, size = delta->a.norm / sqrt(fmax(1, (double)delta->compared));
    if (delta->compared >= ONE_OF && delta->max_abs * delta->max_abs > 0.5 * energy &&
        delta->max_abs > 1000 * ts_judge_rounding(delta) * fmax(size, fabs(delta->worst_a)))
        ts_judge_differs(state, i, "one element makes up most of its error, and rounding does not explain it");
}

/* The weights of experts stand before the indices they belong to in most captures: tokens that chose others are set
 * aside in time. */
static void look_ahead(struct ts_judge *state, size_t i)
{
    for (size_t k = i + 1; k <= i + 2 && k < state->out->count && state->deltas[i].unequal; k++)
        if (!state->pairs[k].problem && state->deltas[k].unequal && state->deltas[k].exact && !state->deltas[i].exact &&
            state->pairs[k].a.count == state->pairs[i].a.count)
            ts_judge_integers(state, k);
}

/* The stream goes on from layer to layer: what a layer added to it errs by its own, where that was not captured. The
 * first layer continues the embeddings. */
static void note_update(const struct ts_judge *state, struct ts_scene *scene, const struct ts_actor *actor,
                        struct look *look)
{
    const size_t i = actor->pair;
    const char *name = state->pairs[i].name;
    uint64_t layer;
    if (ts_judge_is_norm(name))
        return;
    for (size_t back = 1; back <= i && back < TS_SCENE_WINDOW; back++) {
        const struct ts_actor *before = ts_scene_actor(scene, i - back);
        const char *other = state->pairs[i - back].name;
        if (!before || before->rows != actor->rows || before->width != actor->width || ts_judge_is_norm(other) ||
            (ts_layer_of(other, &layer) && !ts_judge_same_point(other, name)))
            continue;
        look->update = ts_structure_update(scene, before, actor);
        look->follows = look->update > 0 ? i - back + 1 : 0;
        return;
    }
}

/* Numbers of the reference that stand side by side in a wider tensor just before: q, k or v, captured once more. */
static bool is_part(struct ts_scene *scene, const struct ts_actor *actor)
{
    for (size_t back = 1; back <= actor->pair && back <= PARTS; back++) {
        const struct ts_actor *whole = ts_scene_actor(scene, actor->pair - back);
        size_t inner = actor->inner < actor->width ? actor->inner : actor->width;
        if (!whole || whole->rows != actor->rows || whole->width <= actor->width || inner < 4)
            continue;
        for (size_t at = 0; at + inner <= whole->width; at++)
            if (memcmp(whole->a + at, actor->a, inner * sizeof *actor->a) == 0)
                return true;
    }
    return false;
}

/* Neither a problem nor anything that is judged by other means. */
static bool is_looked_at(const struct ts_judge *state, const struct ts_actor *actor)
{
    const struct ts_delta *delta = &state->deltas[actor->pair];
    const struct ts_pair *pair = &state->pairs[actor->pair];
    return actor->usable && !pair->problem && !delta->exact && !ts_type_is_integer(pair->a.tensor->type) &&
           !delta->non_finite_mismatch;
}

static void match(const struct ts_judge *state, struct ts_scene *scene, const struct ts_actor *actor, struct look *look)
{
    if (look->operation.kind != TS_OPERATION_NONE && state->deltas[actor->pair].unequal)
        look->replay.matched = ts_operation_match(scene, &look->operation, actor, (struct ts_operation[2]){0});
}

static enum ts_status replay(const struct ts_judge *state, struct ts_scene *scene, const struct ts_actor *actor,
                             struct look *look)
{
    if (look->operation.kind == TS_OPERATION_NONE)
        return TS_OK;
    TS_TRY(ts_operation_replay(scene, &look->operation, actor, &look->replay, &look->error));
    TS_TRY(forgive_tables(scene, &look->operation, actor, &look->replay, &look->error));
    TS_TRY(ts_operation_replay_stored(scene, &look->operation, actor, &look->replay, &look->error));
    TS_TRY(ts_operation_replay_rounded(scene, &look->operation, actor, &look->replay, &look->error));
    match(state, scene, actor, look);
    return TS_OK;
}

/* How the error of what was not learnt is spread over tokens and channels. */
static void measure(const struct ts_judge *state, struct ts_scene *scene, const struct ts_actor *actor,
                    struct look *look)
{
    const enum ts_operation_kind kind = look->operation.kind;
    struct ts_actor calm = *actor;
    float *without = kind == TS_OPERATION_NONE ? ts_judge_without_aside(state, actor, &calm) : NULL, *scores;
    look->error_without = (double)NAN;
    if (without) {
        ts_scene_measure(scene, &calm);
        look->error_without = calm.error;
    }
    look->stray = ts_structure_rows(scene, &calm, NULL);
    look->error_of_scores = (double)NAN;
    look->structure = (struct ts_structure){0};
    look->update = 0;
    look->follows = 0;
    scores = kind == TS_OPERATION_NONE ? ts_judge_as_scores(state, scene, &calm, &calm) : NULL;
    if (scores) {
        look->error_of_scores = calm.error;
        ts_structure_measure(scene, &calm, &look->structure);
        look->structure.by_distance = ts_judge_errs_by_distance(scene, &calm);
    } else if (kind == TS_OPERATION_NONE || kind == TS_OPERATION_ATTENTION) {
        ts_structure_measure(scene, &calm, &look->structure);
        inherit_element(scene, &calm, &look->structure);
        inherit_channel(scene, &calm, &look->structure);
        note_update(state, scene, &calm, look);
        look->part = is_part(scene, &calm);
    }
    free(scores);
    free(without);
}

/* All that can be told of an actor in this scene. */
static void look_at(const struct ts_judge *state, struct ts_scene *scene, const struct ts_actor *actor,
                    struct look *look)
{
    look->done = true;
    if (!is_looked_at(state, actor) || is_one_sided(scene, actor, look))
        return;
    look->status = ts_operation_learn(scene, actor, &look->operation, &look->error);
    if (look->status == TS_OK)
        look->status = replay(state, scene, actor, look);
    if (look->status == TS_OK)
        measure(state, scene, actor, look);
}

static void load_one(void *context, uint64_t index, unsigned worker)
{
    struct looks *looks = context;
    struct look *look = &looks->each[index];
    (void)worker;
    look->status = atomic_load(&ts_cancelled)
                       ? ts_fail(&look->error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted")
                       : ts_scene_load(&looks->state->scene, looks->first + index, &looks->actors[index], &look->error);
}

static void look_at_one(void *context, uint64_t index, unsigned worker)
{
    struct looks *looks = context;
    struct look *look = &looks->each[index];
    const struct ts_actor *actor = &looks->actors[index];
    const size_t needed = actor->rows * actor->width * REPLAY_BYTES;
    struct ts_scene scene;
    (void)worker;
    if (atomic_load(&ts_cancelled)) {
        look->status = ts_fail(&look->error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        return;
    }
    if (needed > REPLAYS_MOST)
        return;
    pthread_mutex_lock(&looks->lock);
    while (looks->taken && looks->taken + needed > REPLAYS_MOST)
        pthread_cond_wait(&looks->given_back, &looks->lock);
    looks->taken += needed;
    pthread_mutex_unlock(&looks->lock);
    actor = ts_scene_foresee(&looks->state->scene, looks->actors, index + 1, &scene);
    look_at(looks->state, &scene, actor, look);
    if (!scene.turn.borrowed) {
        look->turn = scene.turn;
        scene.turn.borrowed = true;
    }
    ts_scene_foreseen_release(&scene);
    pthread_mutex_lock(&looks->lock);
    looks->taken -= needed;
    pthread_cond_broadcast(&looks->given_back);
    pthread_mutex_unlock(&looks->lock);
}

static bool is_aside_changed(const struct looks *looks)
{
    const struct ts_scene *scene = &looks->state->scene;
    return memcmp(looks->aside, scene->aside, scene->taken_count * sizeof *looks->aside) != 0;
}

/* The look with what those before it have shown since. */
static enum ts_status catch_up(struct looks *looks, const struct ts_actor *actor, struct look *look)
{
    struct ts_judge *state = looks->state;
    const enum ts_operation_kind kind = look->operation.kind;
    const double *before = state->scene.turn.table;
    if (!look->done || ((look->shown || look->hidden) && is_aside_changed(looks))) {
        look_at(state, &state->scene, actor, look);
        looks->turned = looks->turned || state->scene.turn.table != before;
        return look->status;
    }
    if (look->shown || look->hidden)
        return TS_OK;
    if (looks->turned && (kind == TS_OPERATION_NONE || kind == TS_OPERATION_ROTARY || kind == TS_OPERATION_ATTENTION) &&
        ts_operation_turn_again(&state->scene, actor, &look->operation)) {
        TS_TRY(replay(state, &state->scene, actor, look));
        measure(state, &state->scene, actor, look);
    } else if (look->turn.table) {
        free(state->scene.turn.table);
        state->scene.turn = look->turn;
        look->turn.table = NULL;
        looks->turned = true;
    }
    if (is_aside_changed(looks))
        match(state, &state->scene, actor, look);
    return TS_OK;
}

/* Tokens of an actor that are set aside. */
static size_t count_gone(const struct ts_scene *scene, const struct ts_actor *actor)
{
    size_t gone = 0;
    for (size_t row = 0; row < scene->taken_count && actor->rows == scene->taken_count && !actor->apart; row++)
        gone += scene->aside[row];
    return actor->rows > 1 ? gone : 0;
}

/* Weights of experts are judged with the choice that was captured beside them, which has a judge of its own. By that
 * one's word, the largest that the reference took may be the largest by chance, of a few tokens and with biases that
 * were not captured. And where the choice is wrong, weights that stand before it are the first that differ. */
static enum ts_status heed_choice(struct ts_judge *state, const struct ts_actor *actor, struct look *look)
{
    const size_t i = actor->pair;
    const bool fails = look->replay.ratio > TS_FOLLOWS_FROM || look->replay.worst_part > TS_REPLAY_LIMIT;
    struct ts_replay by_choice;
    size_t choice;
    if (look->operation.kind != TS_OPERATION_TOPK || !state->deltas[i].unequal || !(fails || look->operation.table) ||
        !ts_operation_choice(&state->scene, actor, &look->operation, &choice))
        return TS_OK;
    if (state->out->verdicts[choice].judged == TS_JUDGED_DIFFERS) {
        if (choice > i)
            ts_judge_differs(state, i, "its experts are not those that the candidate's own logits choose");
        return TS_OK;
    }
    TS_TRY(ts_operation_replay(&state->scene, &look->operation, actor, &by_choice, &look->error));
    if (by_choice.ratio <= look->replay.ratio)
        look->replay = by_choice;
    return TS_OK;
}

/* Takes over what a look has found. */
static void keep(struct ts_judge *state, size_t i, const struct look *look)
{
    if (isfinite(look->error_without))
        state->errors[i] = look->error_without;
    if (!state->learnt[i] || state->kinds[i] == TS_OPERATION_ATTENTION) {
        state->structures[i] = look->structure;
        state->levels[i] = look->error_of_scores;
        if (!isfinite(look->error_of_scores))
            note_one_element(state, i);
        state->updates[i] = look->update;
        state->follows[i] = look->follows;
        state->parts[i] = look->part;
    }
    state->strays[i] = look->stray;
    for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i; back++)
        if (state->strays[i - back] > state->structures[i].inherited_row)
            state->structures[i].inherited_row = state->strays[i - back];
}

/* The delta alone knows of tokens that are not looked at, but not which ones are set aside. */
static double error_of(const struct ts_judge *state, const struct ts_actor *actor)
{
    const struct ts_scene *scene = &state->scene;
    const double all = state->deltas[actor->pair].rel_l2;
    bool known = !actor->usable || (actor->rows > 1 && !actor->apart && actor->rows < scene->taken_count);
    for (size_t row = 0; row < scene->taken_count && actor->usable && known; row++)
        known = !scene->aside[row];
    return !actor->usable ? all : known ? fmax(all, actor->error) : actor->error;
}

/* What follows from the look at one pair that has entered the scene, those before it being settled. */
static enum ts_status settle_actor(struct looks *looks, size_t k, struct ts_actor *actor, struct ts_error *error)
{
    struct ts_judge *state = looks->state;
    struct look *look = &looks->each[k];
    const size_t i = looks->first + k;
    const struct ts_delta *delta = &state->deltas[i];
    if (actor->usable && delta->unequal)
        ts_judge_set_scattered_aside(state, actor);
    if (actor->usable && is_aside_changed(looks))
        ts_scene_measure(&state->scene, actor);
    state->errors[i] = state->pairs[i].problem ? (double)NAN : error_of(state, actor);
    if (state->pairs[i].problem)
        return TS_OK;
    if (delta->exact || ts_type_is_integer(state->pairs[i].a.tensor->type)) {
        state->errors[i] = (double)NAN;
        state->learnt[i] = true; /* neither growth nor structure applies */
        if (delta->unequal)
            ts_judge_integers(state, i);
        return TS_OK;
    }
    if (delta->non_finite_mismatch) {
        ts_judge_differs(state, i,
                         ts_judge_say(state->out,
                                      "%" PRIu64
                                      " element%s NaN or infinite on one side and something else on the other",
                                      delta->non_finite_mismatch, delta->non_finite_mismatch == 1 ? " is" : "s are"));
        return TS_OK;
    }
    state->reordered[i] = ts_judge_reordered(state, i, &state->errors[i]);
    if (!actor->usable) {
        note_one_element(state, i);
        return TS_OK;
    }
    if (catch_up(looks, actor, look) != TS_OK) {
        *error = look->error;
        return look->status;
    }
    if (look->shown || look->hidden) {
        ts_judge_differs(state, i, tell_one_sided(state, look));
        return TS_OK;
    }
    if ((look->status = heed_choice(state, actor, look)) != TS_OK) {
        *error = look->error;
        return look->status;
    }
    if (look->operation.kind != TS_OPERATION_NONE) {
        state->learnt[i] = true;
        note_replay(state, i, &look->operation, &look->replay);
        ts_judge_set_aside(state, &look->operation, actor, look->replay.ratio <= TS_REPLAY_FINE * TS_REPLAY_LIMIT);
    }
    if (state->reordered[i])
        return TS_OK;
    if (is_aside_changed(looks))
        measure(state, &state->scene, actor, look);
    keep(state, i, look);
    return TS_OK;
}

static enum ts_status settle(struct looks *looks, size_t k, struct ts_error *error)
{
    struct ts_judge *state = looks->state;
    struct ts_actor *actor;
    enum ts_status status;
    bool hidden;
    ts_judge_bring_back(state, looks->first + k);
    look_ahead(state, looks->first + k);
    actor = ts_scene_enter(&state->scene, &looks->actors[k]);
    hidden = ts_judge_hide_turned(state, looks->first + k, actor, looks->hidden);
    status = settle_actor(looks, k, actor, error);
    for (size_t row = 0; hidden && row < state->scene.taken_count; row++)
        state->scene.aside[row] = state->scene.aside[row] && !looks->hidden[row];
    if (actor->usable)
        state->gone[looks->first + k] = count_gone(&state->scene, actor);
    return status;
}

static void run(struct ts_pool *pool, struct looks *looks, void (*work)(void *, uint64_t, unsigned))
{
    if (pool)
        ts_pool_run(pool, looks->count, work, looks);
    for (size_t i = 0; i < looks->count && !pool; i++)
        work(looks, i, 0);
}

static enum ts_status look_together(struct looks *looks, struct ts_pool *pool, struct ts_error *error)
{
    struct ts_scene *scene = &looks->state->scene;
    memcpy(looks->aside, scene->aside, scene->taken_count * sizeof *looks->aside);
    memset(looks->each, 0, sizeof looks->each);
    looks->turned = false;
    run(pool, looks, load_one);
    for (size_t k = 0; k < looks->count; k++)
        if (looks->each[k].status != TS_OK) {
            *error = looks->each[k].error;
            return looks->each[k].status;
        }
    run(pool, looks, look_at_one);
    for (size_t k = 0; k < looks->count; k++) {
        if (looks->each[k].status != TS_OK) {
            *error = looks->each[k].error;
            return looks->each[k].status;
        }
        TS_TRY(settle(looks, k, error));
        ts_judge_apply_flips(looks->state, looks->first + k);
    }
    return TS_OK;
}

/* How many pairs from this one on are looked at together. */
static size_t choose_count(const struct ts_judge *state, size_t first)
{
    const struct ts_scene *scene = &state->scene;
    size_t count = 0, bytes = 0;
    while (count < TOGETHER && first + count < state->out->count && (count < 2 || bytes < AHEAD_MOST)) {
        const uint64_t numbers = ts_place_numbers(scene, first + count++);
        bytes += (size_t)fmin((double)numbers * 2 * sizeof(float), (double)AHEAD_MOST);
    }
    return count;
}

enum ts_status ts_judge_look(struct ts_judge *state, struct ts_pool *pool, struct ts_error *error)
{
    struct looks *looks = calloc(1, sizeof *looks);
    struct ts_progress progress;
    enum ts_status status = TS_OK;
    uint64_t elements = 0;
    if (!looks || !(looks->aside = calloc(2 * state->scene.taken_count + 1, sizeof *looks->aside))) {
        free(looks);
        return ts_fail_memory(error);
    }
    looks->hidden = looks->aside + state->scene.taken_count;
    pthread_mutex_init(&looks->lock, NULL);
    pthread_cond_init(&looks->given_back, NULL);
    for (size_t i = 0; i < state->out->count; i++)
        elements += state->pairs[i].a.count;
    ts_progress_start_elements(&progress, "judging", elements);
    looks->state = state;
    for (size_t i = 0; i < state->out->count && status == TS_OK; i += looks->count) {
        looks->first = i;
        looks->count = choose_count(state, i);
        status = look_together(looks, pool, error);
        for (size_t k = 0; k < looks->count; k++) {
            ts_scene_drop(&looks->actors[k]);
            ts_operation_release(&looks->each[k].operation);
            free(looks->each[k].turn.table);
            ts_progress_add(&progress, state->pairs[i + k].a.count);
        }
    }
    ts_progress_finish(&progress);
    pthread_cond_destroy(&looks->given_back);
    pthread_mutex_destroy(&looks->lock);
    free(looks->aside);
    free(looks);
    return status;
}
