#include "compare/comparison_guesses.h"

#include "base/table.h"
#include "pair/sketch.h"
#include "tensor/layer.h"

/* Sketches of the same numbers, as other types round them or quantizing moves them, are nearer than this; those of
 * unrelated ones about 1 apart. */
#define SAME_NUMBERS 0.3
/* Fewer numbers that agree acquit nothing. */
#define FEWEST 8

static bool is_loose(const struct ts_comparison *comparison, size_t i)
{
    return comparison->pairing.pairs[i].guess && comparison->judgement.verdicts[i].judged == TS_JUDGED_DIFFERS;
}

/* The view has every number of one tensor once, and as it is stored. */
static bool is_whole(const struct ts_view *view)
{
    return view->join == TS_JOIN_NONE && !ts_view_is_computed(view) && view->count == view->tensor->count &&
           !view->tensor->sampled;
}

/* Both sides hold all of a tensor, and not the same numbers. */
static enum ts_status holds_others(const struct ts_pair *pair, bool *others, struct ts_error *error)
{
    struct ts_sketch a, b;
    *others = false;
    if (!is_whole(&pair->a) || !is_whole(&pair->b) || pair->a.count != pair->b.count)
        return TS_OK;
    TS_TRY(ts_sketch_make(pair->a.tensor, &a, error));
    TS_TRY(ts_sketch_make(pair->b.tensor, &b, error));
    *others = ts_sketch_distance(&a, &b) > SAME_NUMBERS;
    return TS_OK;
}

/* The last layer of which a pair agrees that is no guess; -1 when there is none. */
static int64_t last_sound_layer(const struct ts_comparison *comparison)
{
    int64_t last = -1;
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        const enum ts_judged judged = comparison->judgement.verdicts[i].judged;
        uint64_t layer;
        if ((judged == TS_JUDGED_OK || judged == TS_JUDGED_NOISE) && !pair->guess && !pair->by_order &&
            pair->a.count >= FEWEST && ts_layer_of(pair->name, &layer) && layer <= INT32_MAX && (int64_t)layer > last)
            last = (int64_t)layer;
    }
    return last;
}

/* What a tensor is called in every layer, and how it is taken: where the layout is not known in one of them, it is not
 * in the others. NULL without memory. */
static const char *kind_of(const struct ts_pair *pair, struct ts_arena *arena)
{
    char *key = ts_arena_printf(arena, "%s|%s", pair->name, pair->recipe), *to = key;
    for (const char *at = key; key && *at; at++)
        if (*at < '0' || *at > '9')
            *to++ = *at;
    if (key)
        *to = '\0';
    return key;
}

/* The kinds of which a later layer acquits one. */
static enum ts_status list_acquitted(const struct ts_comparison *comparison, const bool *open, struct ts_arena *arena,
                                     struct ts_table *kinds, struct ts_error *error)
{
    const int64_t sound = last_sound_layer(comparison);
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        const char *kind;
        uint64_t layer;
        if (!open[i] || sound < 1 || !ts_layer_of(pair->name, &layer) || layer >= (uint64_t)sound)
            continue;
        kind = kind_of(pair, arena);
        if (!kind)
            return ts_fail_memory(error);
        ts_table_put(kinds, kind, i, NULL);
    }
    return TS_OK;
}

static enum ts_status decide(struct ts_comparison *comparison, const bool *open, size_t sure, struct ts_arena *arena,
                             const struct ts_table *kinds, bool *changed, struct ts_error *error)
{
    struct ts_judgement *judgement = &comparison->judgement;
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        struct ts_verdict *verdict = &judgement->verdicts[i];
        const char *kind = open[i] ? kind_of(&comparison->pairing.pairs[i], arena) : NULL;
        bool acquitted;
        if (!open[i])
            continue;
        if (!kind)
            return ts_fail_memory(error);
        acquitted = ts_table_get(kinds, kind) != SIZE_MAX;
        if (sure && !judgement->weights && !acquitted)
            continue;
        verdict->judged = TS_JUDGED_UNKNOWN;
        verdict->made_here = false;
        verdict->why = acquitted
                           ? "no layout makes the values agree, but what later layers compute does: it is the "
                             "layout that is not known"
                           : "no layout makes the values agree, and nothing else says that they are wrong: it may "
                             "be one that is not known (--map or --dims say which)";
        *changed = true;
    }
    return TS_OK;
}

enum ts_status ts_leave_guesses_open(struct ts_comparison *comparison, bool *changed, struct ts_error *error)
{
    const size_t count = comparison->pairing.count;
    const struct ts_judgement *judgement = &comparison->judgement;
    struct ts_table kinds = {0};
    struct ts_arena arena;
    enum ts_status status = TS_OK;
    size_t loose = 0, sure = 0;
    bool *open;
    *changed = false;
    for (size_t i = 0; i < count; i++)
        loose += is_loose(comparison, i);
    if (!loose)
        return TS_OK;
    ts_arena_init(&arena, (size_t)1 << 30);
    open = ts_arena_array(&arena, count, sizeof *open);
    if (!open || !ts_table_init(&kinds, loose))
        status = ts_fail_memory(error);
    for (size_t i = 0; i < count && status == TS_OK; i++) {
        bool others = false;
        if (is_loose(comparison, i))
            status = holds_others(&comparison->pairing.pairs[i], &others, error);
        open[i] = is_loose(comparison, i) && !others;
        sure += judgement->verdicts[i].judged == TS_JUDGED_DIFFERS && !open[i];
    }
    if (status == TS_OK && !judgement->weights)
        status = list_acquitted(comparison, open, &arena, &kinds, error);
    if (status == TS_OK)
        status = decide(comparison, open, sure, &arena, &kinds, changed, error);
    ts_table_release(&kinds);
    ts_arena_release(&arena);
    return status;
}
