/* Owns streams in two parts: engines that add the residual inside the next norm give what a layer computed and the
 * stream it belongs to as two tensors, where others give their sum. The tensor that has the name is half of it then. */
#include <stdlib.h>
#include <string.h>

#include "pair/pairing.h"

#define SUM_RUNS 256
/* The sum is the tensor of the other side by its values, and the tensor by itself is not. */
#define IS_SUM  0.25
#define IS_HALF 3.0 /* times as far off */
/* What may be looked at for all pairs of a side, so that a layer of many thousand tensors takes no time: a tensor that
 * is passed over counts one, one that is added up as many as that takes. */
#define MOST_LOOKS ((uint64_t)1 << 22)
#define ADDED_UP   64

struct spare {
    int64_t layer;
    size_t index;
};

struct spares {
    struct ts_pairer *pairer;
    struct ts_side *side;
    bool of_b;
    struct spare *list; /* tensors of a layer without a partner, by layer */
    size_t count;
    const char **kinds; /* of both parts, one behind the other, where a sum was proved */
    size_t kind_count;
    uint64_t looks;
};

static int by_layer(const void *a, const void *b)
{
    const struct spare *left = a, *right = b;
    if (left->layer != right->layer)
        return left->layer < right->layer ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static void list_spares(struct spares *spares)
{
    const struct ts_side *side = spares->side;
    for (size_t i = 0; i < side->count; i++) {
        const struct ts_name *name = &side->read.list[i];
        if (!side->taken[i] && name->layer >= 0 && !name->weight &&
            ts_type_info(side->bundle->tensors[i]->type)->kind == TS_CLASS_FLOAT)
            spares->list[spares->count++] = (struct spare){name->layer, i};
    }
    qsort(spares->list, spares->count, sizeof *spares->list, by_layer);
}

static size_t first_of_layer(const struct spares *spares, int64_t layer)
{
    size_t low = 0, high = spares->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (spares->list[middle].layer < layer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool are_alike(const struct ts_tensor *one, const struct ts_tensor *other)
{
    return one->type == other->type && ts_tensor_same_shape(one, other);
}

static bool is_known(const struct spares *spares, const char *kind, const char *other)
{
    for (size_t i = 0; i < spares->kind_count; i++)
        if (strcmp(spares->kinds[2 * i], kind) == 0 && strcmp(spares->kinds[2 * i + 1], other) == 0)
            return true;
    return false;
}

/* Ranks that hold the same as this one are taken with it. */
static enum ts_status take_with_copies(struct spares *spares, size_t chosen, struct ts_error *error)
{
    struct ts_side *side = spares->side;
    const struct ts_name *name = &side->read.list[chosen];
    struct ts_view one, other;
    side->taken[chosen] = true;
    if (!ts_view_of(side->bundle->tensors[chosen], &spares->pairer->scratch, &one))
        return ts_fail_memory(error);
    for (size_t at = first_of_layer(spares, name->layer); at < spares->count && spares->list[at].layer == name->layer;
         at++) {
        const size_t i = spares->list[at].index;
        const struct ts_name *own = &side->read.list[i];
        bool identical = false;
        if (side->taken[i] || own->rank == name->rank || strcmp(own->text, name->text) != 0 ||
            !are_alike(side->bundle->tensors[i], side->bundle->tensors[chosen]))
            continue;
        if (!ts_view_of(side->bundle->tensors[i], &spares->pairer->scratch, &other))
            return ts_fail_memory(error);
        TS_TRY(ts_ranks_identical(&one, &other, &identical, error));
        side->taken[i] = identical;
    }
    return TS_OK;
}

/* What the tensor is called behind its layer, as it stands in the file. */
static const char *words_of(const struct spares *spares, size_t i)
{
    const char *words = spares->side->read.list[i].text, *name = spares->side->bundle->tensors[i]->name;
    const size_t length = strlen(words), of_name = strlen(name);
    for (size_t k = 0; k < length && length <= of_name; k++)
        if (words[k] != '_' && words[k] != name[of_name - length + k])
            return words;
    return length <= of_name ? name + (of_name - length) : words;
}

/* The half and another tensor in its layout, which is yet to be put in. */
static bool open_sum(const struct spares *spares, const struct ts_view *half, struct ts_view *sum)
{
    struct ts_arena *arena = &spares->pairer->out->arena;
    struct ts_view *parts = ts_arena_array(arena, 2, sizeof *parts);
    if (!parts)
        return false;
    parts[0] = parts[1] = *half;
    return ts_view_join(TS_JOIN_SUM, 0, parts, 2, arena, sum);
}

static enum ts_status take_sum(struct spares *spares, struct ts_found *found, size_t chosen, const struct ts_view *sum,
                               struct ts_error *error)
{
    struct ts_arena *arena = &spares->pairer->out->arena;
    struct ts_pair *pair = &found->pair;
    const size_t own = spares->of_b ? found->b : found->a;
    const size_t both[2] = {own, chosen};
    const char *recipe = ts_arena_printf(arena, "%c: plus %s", spares->of_b ? 'B' : 'A', words_of(spares, chosen));
    if (!recipe)
        return ts_fail_memory(error);
    TS_TRY(ts_layout_recipes(spares->pairer, pair->recipe, recipe, &pair->recipe, error));
    if (!pair->members[spares->of_b] &&
        !(pair->members[spares->of_b] = ts_layout_members(spares->side, both, 2, arena)))
        return ts_fail_memory(error);
    *(spares->of_b ? &pair->b : &pair->a) = *sum;
    pair->ambiguous = pair->guess = pair->by_size = false;
    return take_with_copies(spares, chosen, error);
}

/* proved: by the values; else as sums of these kinds were proved in other layers, unless the tensor is right by itself
 * and the sum is not. */
static enum ts_status look_at(struct spares *spares, struct ts_found *found, bool proved, struct ts_error *error)
{
    struct ts_pair *pair = &found->pair;
    const struct ts_view *half = spares->of_b ? &pair->b : &pair->a, *other = spares->of_b ? &pair->a : &pair->b;
    const struct ts_name *name = &spares->side->read.list[spares->of_b ? found->b : found->a];
    struct ts_agreement alone = {0, 0}, together;
    struct ts_view sum = {0};
    bool asked = false;
    if (pair->problem || pair->by_hand || name->layer < 0 || half->join != TS_JOIN_NONE || ts_view_is_computed(half) ||
        half->count != half->tensor->count)
        return TS_OK;
    for (size_t at = first_of_layer(spares, name->layer);
         at < spares->count && spares->list[at].layer == name->layer && spares->looks++ < MOST_LOOKS; at++) {
        const size_t i = spares->list[at].index;
        const struct ts_name *own = &spares->side->read.list[i];
        const struct ts_tensor *tensor = spares->side->bundle->tensors[i];
        if (spares->side->taken[i] || own->rank != name->rank || own->sequence != name->sequence ||
            strcmp(own->scope, name->scope) != 0 || !are_alike(tensor, half->tensor) ||
            (!proved && !is_known(spares, name->text, own->text)))
            continue;
        if (!asked) {
            TS_TRY(ts_agree(other, half, SUM_RUNS, &alone, error));
            if (alone.error < IS_SUM && proved)
                return TS_OK;
            if (!open_sum(spares, half, &sum))
                return ts_fail_memory(error);
        }
        asked = true;
        sum.parts[1].tensor = tensor;
        spares->looks += ADDED_UP;
        TS_TRY(ts_agree(other, &sum, SUM_RUNS, &together, error));
        if (proved && !(together.error < IS_SUM && IS_HALF * together.error < alone.error))
            continue;
        if (!proved && alone.error < IS_SUM && alone.error <= together.error)
            return TS_OK;
        if (proved && !is_known(spares, name->text, own->text)) {
            spares->kinds[2 * spares->kind_count] = name->text;
            spares->kinds[2 * spares->kind_count++ + 1] = own->text;
        }
        return take_sum(spares, found, i, &sum, error);
    }
    return TS_OK;
}

enum ts_status ts_match_sums(struct ts_pairer *pairer, struct ts_error *error)
{
    if (!pairer->a.read.list || !pairer->b.read.list)
        return TS_OK;
    for (int of_b = 0; of_b < 2; of_b++) {
        struct spares spares = {.pairer = pairer, .side = of_b ? &pairer->b : &pairer->a, .of_b = of_b};
        spares.list = ts_arena_array(&pairer->scratch, spares.side->count, sizeof *spares.list);
        spares.kinds = ts_arena_array(&pairer->scratch, 2 * pairer->count, sizeof *spares.kinds);
        if (!spares.list || !spares.kinds)
            return ts_fail_memory(error);
        list_spares(&spares);
        for (int proved = 1; proved >= 0 && spares.count && (proved || spares.kind_count); proved--, spares.looks = 0)
            for (size_t i = 0; i < pairer->count; i++)
                TS_TRY(look_at(&spares, &pairer->found[i], proved, error));
    }
    return TS_OK;
}
