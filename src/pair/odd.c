/* Owns layouts that only one tensor needs, or that only one does without: where its siblings in other layers are the
 * same on both sides as they stand, a tensor that agrees only when it is turned is no habit of a format but a fault,
 * and so is one that agrees as it stands where a converter has turned all others. They are left for the comparison to
 * find. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/table.h"
#include "pair/pairing.h"

/* Relative error of two captures, in this order of their axes or in that: where they are compared in so many places. */
#define DISAGREES 0.5
#define LOOK_RUNS 32
/* Captures of a kind that agree in no order, behind which no more are looked at: those behind a fault. */
#define MOST_LOST 3
/* Tensors behind a capture that are enough to tell that nothing took it in another order. */
#define BEHIND 2

struct kin {
    size_t plain, turned;
    size_t converted;           /* of those that are turned, by a converter */
    const struct ts_turn *turn; /* of the first of these */
};

/* All of one tensor, whatever the order of its elements. */
static bool is_whole(const struct ts_view *view)
{
    for (size_t i = 0; i < view->part_count; i++)
        if (view->join != TS_JOIN_CONCAT || view->parts[i].join != TS_JOIN_NONE ||
            view->parts[i].tensor != view->tensor)
            return false;
    return view->count == view->tensor->count;
}

/* One tensor against one of the same shape, for which the layout was nobody's declaration. */
static bool is_candidate(const struct ts_pair *pair)
{
    const struct ts_tensor *a = pair->a.tensor, *b = pair->b.tensor;
    return !pair->problem && !pair->by_hand && !pair->guess && !pair->padded && !pair->members[0] &&
           !pair->members[1] && strcmp(pair->how, "map") != 0 && strncmp(pair->how, "content", 7) != 0 &&
           strcmp(pair->how, "tied") != 0 && is_whole(&pair->a) && is_whole(&pair->b) && !pair->a.decay &&
           !pair->b.decay && !pair->a.flags && !pair->b.flags && ts_tensor_same_shape(a, b);
}

/* The name with its numbers left out. */
static const char *kind_of(const char *name, struct ts_arena *arena)
{
    char *kind = ts_arena_alloc(arena, strlen(name) + 1), *at = kind;
    if (!kind)
        return NULL;
    for (; *name; name++)
        if (!isdigit((unsigned char)*name))
            *at++ = *name;
        else if (at == kind || at[-1] != '#')
            *at++ = '#';
    *at = '\0';
    return kind;
}

/* What is turned is the habit: where the architecture asks for it, of as many as are not. */
static bool is_turned_by_habit(const struct kin *kin)
{
    return kin->turn &&
           (kin->turn->expected ? kin->converted >= kin->plain : kin->converted >= 2 && kin->converted > kin->plain);
}

/* As it stands. */
static enum ts_status take_plainly(struct ts_pair *pair, struct ts_arena *arena, struct ts_error *error)
{
    if (!ts_view_of(pair->a.tensor, arena, &pair->a) || !ts_view_of(pair->b.tensor, arena, &pair->b))
        return ts_fail_memory(error);
    pair->recipe = "";
    pair->turn = NULL;
    pair->ambiguous = pair->zeros = false;
    return TS_OK;
}

/* As its siblings are. */
static enum ts_status turn_too(struct ts_pair *pair, const struct ts_turn *turn, struct ts_arena *arena,
                               struct ts_error *error)
{
    struct ts_view *side = turn->on_b ? &pair->b : &pair->a, turned;
    if (!ts_layout_turn(turn, side, arena, &turned))
        return TS_OK; /* of another shape */
    *side = turned;
    pair->turn = turn;
    pair->recipe = ts_layout_turn_text(turn, arena);
    return pair->recipe ? TS_OK : ts_fail_memory(error);
}

/* One whole tensor against the shards of another of its shape: which side the whole one is on, or -1. */
static int whole_beside_shards(const struct ts_pair *pair)
{
    const int side = pair->members[0] ? 1 : 0;
    const struct ts_view *whole = side ? &pair->b : &pair->a;
    if (pair->problem || pair->by_hand || pair->guess || pair->turn || strcmp(pair->how, "map") == 0 ||
        !pair->members[0] == !pair->members[1] || !is_whole(whole) || ts_view_is_computed(whole) ||
        whole->tensor->rank != whole->rank ||
        memcmp(whole->tensor->shape, whole->shape, whole->rank * sizeof *whole->shape) != 0)
        return -1;
    return side;
}

/* What a recipe does to the other side, and whether it does anything to this one. */
static const char *without_side(const char *recipe, int side, struct ts_arena *arena, bool *turned)
{
    const char *end = strstr(recipe, "; "), *own = side ? "B: " : "A: ";
    const bool first = strncmp(recipe, own, 3) == 0, second = end && strncmp(end + 2, own, 3) == 0;
    *turned = first || second;
    if (!*turned)
        return recipe;
    if (!end)
        return "";
    return first ? end + 2 : ts_arena_printf(arena, "%.*s", (int)(end - recipe), recipe);
}

/* A whole tensor beside shards. */
struct beside {
    int side; /* it is on; -1: there is none */
    bool turned;
    const char *rest; /* of the recipe: how the shards are put together */
    size_t family;    /* the first of those whose shards are put together so, in whatever layer */
};

static bool list_beside(const struct ts_pairing *pairing, struct ts_arena *arena, struct ts_arena *scratch,
                        struct ts_table *table, struct beside *list, struct kin *kin)
{
    for (size_t i = 0; i < pairing->count; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        struct beside *one = &list[i];
        const char *kind, *key;
        one->side = whole_beside_shards(pair);
        if (one->side < 0)
            continue;
        one->rest = without_side(pair->recipe, one->side, arena, &one->turned);
        kind = kind_of(pair->name, scratch);
        key = one->rest && kind ? ts_arena_printf(scratch, "%d %s|%s", one->side, kind, one->rest) : NULL;
        if (!key)
            return false;
        one->family = i;
        ts_table_put(table, key, i, &one->family);
        *(one->turned ? &kin[one->family].turned : &kin[one->family].plain) += 1;
    }
    return true;
}

/* The same beside shards: the whole tensor is turned where those of most layers are not, and the shards are put
 * together as theirs are. */
static enum ts_status drop_beside_shards(struct ts_pairing *pairing, struct ts_arena *scratch, struct ts_error *error)
{
    struct beside *list;
    struct kin *kin;
    struct ts_table table = {0};
    bool done, any = false;
    for (size_t i = 0; i < pairing->count && !any; i++)
        any = whole_beside_shards(&pairing->pairs[i]) >= 0;
    if (!any)
        return TS_OK;
    list = ts_arena_array(scratch, pairing->count, sizeof *list);
    kin = ts_arena_array(scratch, pairing->count, sizeof *kin);
    done = list && kin && ts_table_init(&table, pairing->count) &&
           list_beside(pairing, &pairing->arena, scratch, &table, list, kin);
    for (size_t i = 0; i < pairing->count && done; i++) {
        struct ts_pair *pair = &pairing->pairs[i];
        struct ts_view *whole = list[i].side == 1 ? &pair->b : &pair->a;
        const struct kin *mine = &kin[list[i].family];
        if (list[i].side < 0 || !list[i].turned || mine->plain < 2 || mine->plain <= mine->turned)
            continue;
        done = ts_view_of(whole->tensor, &pairing->arena, whole);
        pair->recipe = list[i].rest;
        pair->ambiguous = pair->zeros = false;
    }
    ts_table_release(&table);
    return done ? TS_OK : ts_fail_memory(error);
}

/* One whole tensor against one, in whatever layout. */
static bool may_follow(const struct ts_pair *pair)
{
    return !pair->problem && !pair->by_hand && !pair->padded && !pair->members[0] && !pair->members[1] && !pair->turn &&
           strcmp(pair->how, "map") != 0 && strncmp(pair->how, "content", 7) != 0 && strcmp(pair->how, "tied") != 0 &&
           pair->a.join == TS_JOIN_NONE && pair->b.join == TS_JOIN_NONE && !ts_view_is_computed(&pair->a) &&
           !ts_view_is_computed(&pair->b) && is_whole(&pair->a) && is_whole(&pair->b);
}

static void put_shape(struct ts_buffer *out, const struct ts_tensor *tensor)
{
    ts_buffer_byte(out, '|');
    for (unsigned i = 0; i < tensor->rank; i++)
        ts_buffer_printf(out, "%" PRIu64 ",", tensor->shape[i]);
}

/* Pairs of one kind and of the same shapes. */
struct habit {
    size_t members;
    size_t usual, count; /* the pair with the most usual recipe, and how many have that */
};

/* The first pair that has this key: `index`, unless one was met before. False without memory. */
static bool first_with(struct ts_table *table, const char *key, size_t index, struct ts_arena *scratch, size_t *first)
{
    const char *kept;
    *first = ts_table_get(table, key);
    if (*first != SIZE_MAX)
        return true;
    *first = index;
    kept = ts_arena_string(scratch, key);
    return kept && ts_table_put(table, kept, index, NULL);
}

static bool list_habits(const struct ts_pairing *pairing, struct ts_arena *scratch, struct ts_table tables[2],
                        struct habit *habits, size_t *family, size_t *with_recipe)
{
    struct ts_buffer key;
    bool good = true;
    ts_buffer_init(&key, (size_t)1 << 20);
    for (size_t i = 0; i < pairing->count && good; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        const char *kind;
        size_t same = i;
        family[i] = SIZE_MAX;
        if (!may_follow(pair))
            continue;
        kind = kind_of(pair->name, scratch);
        ts_buffer_clear(&key);
        ts_buffer_string(&key, kind ? kind : "");
        put_shape(&key, pair->a.tensor);
        put_shape(&key, pair->b.tensor);
        good = !key.failed && kind && first_with(&tables[0], key.data, i, scratch, &family[i]);
        if (!good)
            break;
        habits[family[i]].members++;
        if (pair->guess) /* no values speak for its layout */
            continue;
        ts_buffer_printf(&key, "|%s", pair->recipe);
        good = !key.failed && first_with(&tables[1], key.data, i, scratch, &same);
        if (!good)
            break;
        if (++with_recipe[same] > habits[family[i]].count)
            habits[family[i]] =
                (struct habit){.members = habits[family[i]].members, .usual = same, .count = with_recipe[same]};
    }
    ts_buffer_release(&key);
    return good;
}

/* What most layers need, the others need too: a tensor that agrees only in another layout, or in none, was stored in
 * another one. */
static enum ts_status follow_siblings(struct ts_pairing *pairing, struct ts_arena *scratch, struct ts_error *error)
{
    struct habit *habits;
    size_t *family, *with_recipe;
    struct ts_table tables[2] = {{0}};
    bool done, any = false;
    for (size_t i = 0; i < pairing->count && !any; i++)
        any = *pairing->pairs[i].recipe;
    if (!any) /* as they stand is all that there is */
        return TS_OK;
    habits = ts_arena_array(scratch, pairing->count, sizeof *habits);
    family = ts_arena_array(scratch, pairing->count, sizeof *family);
    with_recipe = ts_arena_array(scratch, pairing->count, sizeof *with_recipe);
    done = habits && family && with_recipe && ts_table_init(&tables[0], pairing->count) &&
           ts_table_init(&tables[1], pairing->count) &&
           list_habits(pairing, scratch, tables, habits, family, with_recipe);
    for (size_t i = 0; i < pairing->count && done; i++) {
        struct ts_pair *pair = &pairing->pairs[i];
        const struct habit *habit = family[i] == SIZE_MAX ? NULL : &habits[family[i]];
        const struct ts_pair *usual = habit ? &pairing->pairs[habit->usual] : NULL;
        const struct ts_tensor *a = pair->a.tensor, *b = pair->b.tensor;
        if (!usual || habit->count < 2 || 2 * habit->count <= habit->members || !*usual->recipe ||
            strcmp(usual->recipe, pair->recipe) == 0)
            continue;
        pair->a = usual->a;
        pair->b = usual->b;
        pair->a.tensor = a;
        pair->b.tensor = b;
        pair->recipe = usual->recipe;
        pair->ambiguous = pair->guess = pair->by_size = false;
        pair->zeros = usual->zeros;
    }
    ts_table_release(&tables[0]);
    ts_table_release(&tables[1]);
    return done ? TS_OK : ts_fail_memory(error);
}

/* Captures of equal shapes, two axes of which are equally long, that disagree as they stand and agree in another order
 * of these axes. */
struct turned {
    size_t family;     /* the first of the kind, in whatever layer; SIZE_MAX: it is none of these */
    size_t lost;       /* how many of the family agree in no order; of the first of it */
    bool plain, found; /* agrees as it stands; or in another order, which is: */
    struct ts_alignment alignment;
};

/* Another order of the axes and nothing else. */
static bool is_reordered(const struct ts_view *view)
{
    return view->join == TS_JOIN_NONE && view->rank == view->tensor->rank && view->count == view->tensor->count &&
           !ts_view_is_computed(view);
}

static bool has_equal_axes(const struct ts_tensor *tensor)
{
    for (unsigned i = 0; i < tensor->rank; i++)
        for (unsigned k = 0; k < i; k++)
            if (tensor->shape[i] > 1 && tensor->shape[i] == tensor->shape[k])
                return true;
    return false;
}

/* *lost: how many of its family agree in no order. */
static enum ts_status look_turned(struct ts_pairing *pairing, const struct ts_pair *pair, struct turned *turned,
                                  size_t *lost, struct ts_error *error)
{
    const struct ts_align_hints hints = {.weights = true}; /* for which other orders are tried */
    struct ts_agreement agreement;
    TS_TRY(ts_agree(&pair->a, &pair->b, LOOK_RUNS, &agreement, error));
    turned->plain = agreement.error <= DISAGREES;
    if (turned->plain || *lost == MOST_LOST)
        return TS_OK;
    TS_TRY(ts_align(&pair->a, &pair->b, &hints, &pairing->arena, &turned->alignment, error));
    turned->found = !turned->alignment.problem && !turned->alignment.guess && !turned->alignment.ambiguous &&
                    *turned->alignment.recipe && is_reordered(&turned->alignment.a) &&
                    is_reordered(&turned->alignment.b);
    *lost += !turned->found;
    return TS_OK;
}

/* A pair whose sizes leave no choice stands in that order. */
static bool is_shown_elsewhere(const struct ts_pairing *pairing, const struct ts_pair *pair, const char *recipe)
{
    for (size_t i = 0; i < pairing->count; i++) {
        const struct ts_pair *other = &pairing->pairs[i];
        if (strcmp(other->recipe, recipe) == 0 && may_follow(other) && !other->guess && !other->ambiguous &&
            !other->by_size && other->a.tensor->rank == pair->a.tensor->rank &&
            other->b.tensor->rank == pair->b.tensor->rank && !ts_tensor_same_shape(other->a.tensor, other->b.tensor))
            return true;
    }
    return false;
}

/* Everything behind pair i agrees, up to the next of its kind: what was computed of it was not in another order. */
static enum ts_status is_borne_out(const struct ts_pairing *pairing, const struct turned *list, size_t i, bool *out,
                                   struct ts_error *error)
{
    size_t agree = 0;
    *out = false;
    for (size_t k = i + 1; k < pairing->count && list[k].family != list[i].family; k++) {
        const struct ts_pair *pair = &pairing->pairs[k];
        struct ts_agreement agreement;
        if (pair->problem || list[k].found)
            continue;
        TS_TRY(ts_agree(&pair->a, &pair->b, LOOK_RUNS, &agreement, error));
        if (!(agreement.error <= DISAGREES))
            return TS_OK;
        agree++;
    }
    *out = agree >= BEHIND;
    return TS_OK;
}

/* The order of axes that all of a kind need, in two layers or more, and that is no fault: the first that was found in
 * it, or SIZE_MAX. Behind a fault no order is found. */
static enum ts_status find_habit(const struct ts_pairing *pairing, const struct turned *list, size_t family,
                                 size_t *habit, struct ts_error *error)
{
    size_t members = 0, plain = 0, found = 0, same = 0, first = SIZE_MAX;
    bool borne_out = false;
    *habit = SIZE_MAX;
    for (size_t i = family; i < pairing->count; i++) {
        if (list[i].family != family)
            continue;
        members++;
        plain += list[i].plain;
        if (!list[i].found)
            continue;
        found++;
        first = first == SIZE_MAX ? i : first;
        same += strcmp(list[first].alignment.recipe, list[i].alignment.recipe) == 0;
        if (!borne_out)
            TS_TRY(is_borne_out(pairing, list, i, &borne_out, error));
    }
    if (2 * same > found && same >= plain &&
        ((members > 1 && same > plain && borne_out) ||
         is_shown_elsewhere(pairing, &pairing->pairs[first], list[first].alignment.recipe)))
        *habit = first;
    return TS_OK;
}

static void take_order(struct ts_pair *pair, const struct ts_alignment *order)
{
    const struct ts_tensor *a = pair->a.tensor, *b = pair->b.tensor;
    pair->a = order->a;
    pair->b = order->b;
    pair->a.tensor = a;
    pair->b.tensor = b;
    pair->recipe = order->recipe;
}

/* Where the run shows that one side is captured in another order of axes that are equally long, heads and tokens of a
 * prompt of as many tokens as heads, that is its layout and no fault. */
static enum ts_status take_captured_order(struct ts_pairing *pairing, struct ts_arena *scratch, struct ts_error *error)
{
    struct turned *list = ts_arena_array(scratch, pairing->count + 1, sizeof *list);
    struct ts_table table = {0};
    enum ts_status status = TS_OK;
    bool any = false;
    if (!list || !ts_table_init(&table, pairing->count + 1))
        return ts_fail_memory(error);
    for (size_t i = 0; i < pairing->count && status == TS_OK; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        const char *kind;
        list[i].family = SIZE_MAX;
        if (*pair->recipe || pair->turn || !is_candidate(pair) || ts_is_parameter(pair->name) ||
            !has_equal_axes(pair->a.tensor))
            continue;
        kind = kind_of(pair->name, scratch);
        if (!kind || !first_with(&table, kind, i, scratch, &list[i].family))
            status = ts_fail_memory(error);
        else
            status = look_turned(pairing, pair, &list[i], &list[list[i].family].lost, error);
        any = any || list[i].found;
    }
    for (size_t family = 0; any && family < pairing->count && status == TS_OK; family++) {
        size_t habit = SIZE_MAX;
        if (list[family].family == family)
            status = find_habit(pairing, list, family, &habit, error);
        for (size_t i = family; i < pairing->count && habit != SIZE_MAX; i++)
            if (list[i].family == family &&
                (list[i].found || ts_tensor_same_shape(pairing->pairs[i].a.tensor, pairing->pairs[habit].a.tensor)))
                take_order(&pairing->pairs[i], &list[list[i].found ? i : habit].alignment);
    }
    ts_table_release(&table);
    return status;
}

enum ts_status ts_drop_odd_layouts(struct ts_pairing *pairing, struct ts_error *error)
{
    struct kin *kin = calloc(pairing->count + 1, sizeof *kin);
    size_t *family = calloc(pairing->count + 1, sizeof *family), turned = 0;
    bool *candidate = calloc(pairing->count + 1, sizeof *candidate);
    struct ts_table table = {0};
    struct ts_arena scratch;
    enum ts_status status = TS_OK;
    ts_arena_init(&scratch, (size_t)1 << 30);
    for (size_t i = 0; i < pairing->count && candidate; i++) {
        candidate[i] = is_candidate(&pairing->pairs[i]);
        turned += candidate[i] && *pairing->pairs[i].recipe;
    }
    if (!kin || !family || !candidate || (turned && !ts_table_init(&table, pairing->count)))
        status = ts_fail_memory(error);
    for (size_t i = 0; i < pairing->count && turned && status == TS_OK; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        const char *kind = candidate[i] ? kind_of(pair->name, &scratch) : "";
        if (!kind) {
            status = ts_fail_memory(error);
        } else if (*kind) {
            struct kin *mine;
            family[i] = i;
            ts_table_put(&table, kind, i, &family[i]);
            mine = &kin[family[i]];
            *(*pair->recipe ? &mine->turned : &mine->plain) += 1;
            mine->converted += pair->turn != NULL;
            mine->turn = mine->turn ? mine->turn : pair->turn;
        }
    }
    for (size_t i = 0; i < pairing->count && turned && status == TS_OK; i++) {
        struct ts_pair *pair = &pairing->pairs[i];
        const struct kin *mine = &kin[family[i]];
        if (!candidate[i])
            continue;
        if (*pair->recipe && mine->plain >= 2 && mine->plain > mine->turned)
            status = take_plainly(pair, &pairing->arena, error);
        else if (!*pair->recipe && is_turned_by_habit(mine))
            status = turn_too(pair, mine->turn, &pairing->arena, error);
    }
    if (status == TS_OK)
        status = drop_beside_shards(pairing, &scratch, error);
    if (status == TS_OK)
        status = take_captured_order(pairing, &scratch, error);
    if (status == TS_OK)
        status = follow_siblings(pairing, &scratch, error);
    ts_table_release(&table);
    ts_arena_release(&scratch);
    free(candidate);
    free(family);
    free(kin);
    return status;
}
