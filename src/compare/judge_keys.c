/* Owns judging which keys sparse attention chose: integers, so many for each token, that an indexer ranked highest.
 *
 * A token may look at itself and at what is before it. Where it has fewer keys than it may choose, the rest is masked:
 * those numbers mean nothing, and no two kernels agree on them. The order says nothing either. Of keys that are nearly
 * tied, noise exchanges some; the tokens that look at others for it are set aside. */
#include <inttypes.h>
#include <stdlib.h>

#include "compare/judge_state.h"

#define MOST_KEYS ((uint64_t)1 << 16) /* of a token */
#define BACK      8                   /* earlier pairs that the ranking may come from */
/* Tokens with a tie, of the keys there are for all of them, times the error that came in: four times as many as lie
 * that close at the rank that decides. */
#define TIES_BY_ERROR 2.0

/* One token's keys on both sides, and for each key there is the last look at a side that found it. */
struct keys {
    const struct ts_pair *pair;
    uint64_t count, sequence;
    int64_t *a, *b;
    uint64_t *found, look;
};

static bool read_keys(struct keys *keys, uint64_t token)
{
    struct ts_error ignored;
    const uint64_t first = token * keys->count;
    return ts_view_read_i64(&keys->pair->a, first, (size_t)keys->count, keys->a, &ignored) == TS_OK &&
           ts_view_read_i64(&keys->pair->b, first, (size_t)keys->count, keys->b, &ignored) == TS_OK;
}

/* How many keys that the token may see are among these; `visible`: how many it may. UINT64_MAX: they are no keys. */
static uint64_t count_seen(struct keys *keys, const int64_t *own, uint64_t visible)
{
    uint64_t seen = 0;
    keys->look++;
    for (uint64_t k = 0; k < keys->count; k++) {
        if (own[k] == -1)
            continue;
        if (own[k] < 0 || (uint64_t)own[k] >= keys->sequence || keys->found[own[k]] == keys->look)
            return UINT64_MAX;
        keys->found[own[k]] = keys->look;
        seen += (uint64_t)own[k] < visible;
    }
    return seen;
}

/* Every token of the reference takes as many of the keys that it may see as it can, and some look at late ones. */
static bool are_keys(struct keys *keys, uint64_t tokens)
{
    bool late = false;
    for (uint64_t token = 0; token < tokens; token++) {
        const uint64_t visible = token % keys->sequence + 1, most = visible < keys->count ? visible : keys->count;
        if (!read_keys(keys, token) || count_seen(keys, keys->a, visible) != most)
            return false;
        for (uint64_t k = 0; k < keys->count; k++)
            late = late || (keys->a[k] < (int64_t)visible && 2 * keys->a[k] > (int64_t)keys->sequence);
    }
    return late;
}

/* Keys of the reference's that the candidate's token does not take. */
static uint64_t count_exchanged(struct keys *keys, uint64_t visible)
{
    uint64_t others = 0;
    count_seen(keys, keys->b, visible);
    for (uint64_t k = 0; k < keys->count; k++)
        others += keys->a[k] >= 0 && (uint64_t)keys->a[k] < visible && keys->found[keys->a[k]] != keys->look;
    return others;
}

/* What tokens that are set aside err by reaches the others too. */
static double came_in(const struct ts_judge *state, size_t i)
{
    double came = 0;
    for (size_t back = 1; back <= BACK && back <= i; back++) {
        if (isfinite(state->errors[i - back]))
            came = fmax(came, state->errors[i - back]);
        if (state->gone[i - back])
            came = fmax(came, 0.5 * state->deltas[i - back].rel_l2);
    }
    return came;
}

/* The row of a token that is looked at, or SIZE_MAX. */
static size_t row_of(const struct ts_judge *state, uint64_t token)
{
    size_t low = 0, high = state->scene.taken_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (state->scene.taken[middle] == token)
            return middle;
        if (state->scene.taken[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

static void judge(struct ts_judge *state, size_t i, struct keys *keys)
{
    double room = 0;
    size_t flipped = 0, unlikely = 0;
    for (uint64_t token = 0; token < state->scene.tokens; token++) {
        const uint64_t visible = token % keys->sequence + 1, most = visible < keys->count ? visible : keys->count;
        const size_t row = row_of(state, token);
        if (!read_keys(keys, token) || count_seen(keys, keys->b, visible) != most) {
            ts_judge_differs(
                state, i, ts_judge_say(state->out, "token %" PRIu64 " does not take the keys that it may see", token));
            return;
        }
        room += visible > keys->count ? (double)visible : 0;
        if (!count_exchanged(keys, visible))
            continue;
        flipped++;
        /* whoever takes nearly all takes some that nothing speaks for, and whose scores are all zero */
        unlikely += visible > 2 * keys->count && !(row != SIZE_MAX && state->scene.aside[row]);
    }
    if ((double)unlikely > fmax(2, TIES_BY_ERROR * came_in(state, i) * room)) {
        ts_judge_differs(
            state, i,
            ts_judge_say(state->out, "%zu tokens look at different keys, more than near ties explain", unlikely));
        return;
    }
    for (size_t row = 0; row < state->scene.taken_count && flipped; row++)
        if (read_keys(keys, state->scene.taken[row]) &&
            count_exchanged(keys, state->scene.taken[row] % keys->sequence + 1))
            ts_judge_leave_out(state, row, true);
    state->out->keys_aside = state->out->keys_aside || flipped;
    state->out->verdicts[i].judged = TS_JUDGED_NOISE;
    state->out->verdicts[i].why =
        flipped ? ts_judge_say(state->out,
                               "%zu token%s at different keys, apparently on a near tie; %s set aside from here on",
                               flipped, flipped == 1 ? " looks" : "s look", flipped == 1 ? "it is" : "they are")
                : "the same keys in another order; those behind a token are masked and mean nothing";
}

bool ts_judge_keys(struct ts_judge *state, size_t i)
{
    const uint64_t tokens = state->scene.tokens, sequence = ts_scene_sequence(&state->scene);
    struct keys keys = {.pair = &state->pairs[i], .sequence = sequence};
    bool good;
    if (tokens <= 1 || !sequence || keys.pair->a.count % tokens || keys.pair->a.count != keys.pair->b.count)
        return false;
    keys.count = keys.pair->a.count / tokens;
    if (keys.count < 2 || keys.count > MOST_KEYS || keys.count > sequence)
        return false;
    keys.a = malloc((size_t)keys.count * sizeof *keys.a);
    keys.b = malloc((size_t)keys.count * sizeof *keys.b);
    keys.found = calloc((size_t)sequence, sizeof *keys.found);
    good = keys.a && keys.b && keys.found && are_keys(&keys, tokens);
    if (good)
        judge(state, i, &keys);
    free(keys.a);
    free(keys.b);
    free(keys.found);
    return good;
}
