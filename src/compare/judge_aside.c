/* Owns what tokens that are set aside leave: in the scores and probabilities of the others, and to be judged at all. */
#include <stdlib.h>
#include <string.h>

#include "compare/judge_state.h"
#include "tensor/layer.h"

#define RELATED  0.7 /* error of a stream that still has something of the reference */
#define FEW_LEFT 3   /* tokens, and one of so many, that are no sample any more: */
#define FEW_OF   5

static bool is_a_share(const float *lane, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(lane[i] >= 0))
            return false;
        sum += (double)lane[i];
    }
    return sum < 1.01;
}

/* Whatever a key that is set aside takes of a row's probability, the other keys and a sink lack: what they had before
 * is (1 - its share there) / (1 - its share here) of what they have. `b` has the reference's numbers at such keys. */
static void give_back(const struct ts_actor *actor, float *b)
{
    const size_t lanes = actor->rows * actor->width / actor->inner;
    for (size_t lane = 0; lane < lanes; lane++)
        if (!is_a_share(actor->a + lane * actor->inner, actor->inner) ||
            !is_a_share(actor->b + lane * actor->inner, actor->inner))
            return;
    for (size_t lane = 0; lane < lanes; lane++) {
        const float *there = actor->a + lane * actor->inner, *here = actor->b + lane * actor->inner;
        float *out = b + lane * actor->inner;
        double share_there = 0, share_here = 0, factor;
        for (size_t i = 0; i < actor->inner; i++)
            if (out[i] != here[i]) {
                share_there += (double)there[i];
                share_here += (double)here[i];
            }
        factor = share_here < 1 ? (1 - share_there) / (1 - share_here) : 0;
        for (size_t i = 0; i < actor->inner; i++)
            if (out[i] == here[i])
                out[i] = (float)((double)here[i] * factor);
    }
}

/* [tokens, keys], of heads or of one head alone: there the name must tell it from any other square. */
static bool are_scores(const struct ts_judge *state, const struct ts_actor *actor)
{
    const char *name = state->pairs[actor->pair].name;
    if (actor->apart || (actor->inner != actor->sequence && actor->inner != actor->sequence + 1))
        return false;
    return actor->heads > 1 || strstr(name, "score") || strstr(name, "prob") || strstr(name, "attn_weights") ||
           strstr(name, "softmax");
}

float *ts_judge_without_aside(const struct ts_judge *state, const struct ts_actor *actor, struct ts_actor *copy)
{
    const struct ts_scene *scene = &state->scene;
    const size_t total = actor->rows * actor->width;
    float *b = NULL;
    if (!are_scores(state, actor))
        return NULL;
    for (size_t key = 0; key < scene->taken_count; key++) {
        const size_t place = (size_t)(scene->taken[key] % actor->sequence);
        if (!scene->aside[key])
            continue;
        if (!b && !(b = malloc(total * sizeof *b)))
            return NULL;
        if (copy->b != b)
            copy->b = memcpy(b, actor->b, total * sizeof *b);
        for (size_t at = place; at < total; at += actor->inner)
            if (ts_scene_keys(scene, actor, at / actor->width) + place == scene->taken[key] - ts_scene_first(scene))
                b[at] = actor->a[at];
    }
    if (b)
        give_back(actor, b);
    return b;
}

bool ts_judge_has_nobody_left(const struct ts_judge *state, size_t i)
{
    return !state->learnt[i] && state->out->verdicts[i].judged == TS_JUDGED_NOISE && state->scene.taken_count &&
           !state->reordered[i] && state->gone[i] == state->scene.taken_count;
}

bool ts_judge_is_mostly_gone(const struct ts_judge *state)
{
    size_t gone = 0, all = 0;
    for (size_t i = 0; i < state->out->count; i++) {
        all += !state->learnt[i] && state->out->verdicts[i].judged == TS_JUDGED_NOISE;
        gone += ts_judge_has_nobody_left(state, i);
    }
    return gone * 2 > all;
}

static size_t count_left(const struct ts_scene *scene)
{
    size_t left = 0;
    for (size_t row = 0; row < scene->taken_count; row++)
        left += !scene->aside[row];
    return left;
}

void ts_judge_bring_back(struct ts_judge *state, size_t i)
{
    struct ts_scene *scene = &state->scene;
    const size_t left = count_left(scene);
    uint64_t layer;
    if (left == scene->taken_count || left > FEW_LEFT || left * FEW_OF > scene->taken_count)
        return;
    /* what other experts gave is in the stream where the layer ends, and not before */
    if (i == 0 || !ts_layer_of(state->pairs[i - 1].name, &layer) ||
        ts_same_layer(state->pairs[i].name, state->pairs[i - 1].name) ||
        state->gone[i - 1] != scene->taken_count - left || !(state->deltas[i - 1].rel_l2 < RELATED))
        return;
    if (!state->returned) {
        state->returned_at = i;
        if (!(state->returned = calloc(scene->taken_count + 1, sizeof *state->returned)))
            return;
    }
    for (size_t row = 0; row < scene->taken_count; row++) {
        state->returned[row] = state->returned[row] || scene->aside[row];
        scene->aside[row] = false;
    }
}

void ts_judge_note_aside(struct ts_judge *state)
{
    struct ts_judgement *out = state->out;
    const size_t all = state->scene.taken_count, end = out->first < out->count ? out->first : out->count;
    size_t few = SIZE_MAX, none = SIZE_MAX, most = 0;
    for (size_t i = 0; i < end; i++) {
        most = state->gone[i] > most ? state->gone[i] : most;
        few = few == SIZE_MAX && state->gone[i] * 2 > all ? i : few;
        none = none == SIZE_MAX && all && state->gone[i] == all ? i : none;
    }
    if (few == SIZE_MAX)
        return;
    if (state->returned && state->returned_at < end)
        ts_judge_note(
            out, ts_judge_say(out,
                              "before \"%s\", %s of the %zu tokens that are looked at have taken different %s than the "
                              "reference's; from there on they are judged by what came into them, which tells less; a "
                              "longer prompt leaves more",
                              state->pairs[state->returned_at].name, none != SIZE_MAX ? "all" : "nearly all", all,
                              out->keys_aside ? "experts or keys" : "experts"));
    else if (none != SIZE_MAX)
        ts_judge_note(
            out, ts_judge_say(out,
                              "from \"%s\" on, all %zu tokens that are looked at have taken different %s than the "
                              "reference's: there only what can be replayed is judged; a longer prompt leaves more",
                              state->pairs[none].name, all, out->keys_aside ? "experts or keys" : "experts"));
    else
        ts_judge_note(
            out,
            ts_judge_say(out,
                         "from \"%s\" on, fewer than half of the tokens could be judged, %zu of %zu in the end: the "
                         "others took different %s; a longer prompt leaves more",
                         state->pairs[few].name, all - most, all, out->keys_aside ? "experts or keys" : "experts"));
}
