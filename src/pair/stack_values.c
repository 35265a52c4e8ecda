/* Owns stacks that no name tells: programs that keep weights, activations or caches of all layers in one array call it
 * wq, qkvw, resid or kv. What the other side has of every layer is a series; a tensor that is as large as all of a
 * series, or of two that go together, and holds the values of some layer where they belong, is a stack of it. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "pair/stacks.h"

/* Smaller pieces prove nothing. */
#define FEWEST 8
/* Stacks that are held against series in all; beyond that names have to do. */
#define MOST_TRIES 4096
/* Series of one size that are tried two by two. */
#define MOST_TWINS 12
/* Series, the smallest first, that are tried as some of the layers of a stack. */
#define MOST_SIZES 256
/* Stacks that have to be in order before others are placed between them. */
#define LEAST_HELD 2

/* The same tensor of each layer, or the hidden states of a run. */
struct series {
    struct ts_stack_member *list;
    size_t count;
    uint64_t all;            /* elements of all of them */
    const struct series *of; /* not NULL: the one that this is a layer of */
};

/* A stack and what it may hold: a series, or two of them, as the two parts of each layer; or queries, keys and values.
 */
#define MOST_PARTS 3
struct candidate {
    size_t whole;
    const struct series *series[MOST_PARTS];
    struct ts_stack_way way;
    bool tied, taken;
};

struct search {
    struct ts_pairer *pairer;
    const struct ts_side *side, *other; /* that of the stacks, that of the series */
    struct series *series;              /* by size */
    size_t series_count;
    struct ts_stack_member *list; /* for the stack that is looked at */
    struct candidate *candidates;
    size_t count, tries;
    const struct series **held; /* what each stack was found to hold */
    size_t votes[TS_MAX_RANK];  /* axes of layers that were found */
};

static bool one_series(const struct ts_called *left, const struct ts_called *right)
{
    return strcmp(left->kind, right->kind) == 0 && strcmp(left->label, right->label) == 0 &&
           strcmp(left->scope, right->scope) == 0;
}

static int by_size(const void *a, const void *b)
{
    const struct series *left = a, *right = b;
    if (left->all != right->all)
        return left->all < right->all ? -1 : 1;
    return left->list[0].index < right->list[0].index ? -1 : left->list[0].index > right->list[0].index;
}

static uint64_t size_of(const struct search *search, size_t index)
{
    return search->other->bundle->tensors[index]->count;
}

/* Adds a series of tensors in their order; leaves it where they are not of one size, or few. */
static void add_series(struct search *search, struct ts_stack_member *list, size_t count)
{
    const uint64_t size = count ? size_of(search, list[0].index) : 0;
    if (count < 2 || size < FEWEST || size > UINT64_MAX / count)
        return;
    for (size_t i = 0; i < count; i++)
        if (size_of(search, list[i].index) != size || (i && list[i].layer == list[i - 1].layer))
            return;
    search->series[search->series_count++] = (struct series){list, count, size * count, NULL};
}

/* What output_hidden_states gives: the embedding, and what each layer makes; the last layer's, or the last norm's. */
static void add_hidden(struct search *search, const struct series *layers, struct ts_stack_member *room)
{
    size_t embedding = SIZE_MAX, norm = SIZE_MAX;
    for (size_t i = 0; i < search->other->count; i++) {
        const struct ts_name *name = &search->other->read.list[i];
        if (search->other->taken[i] || name->layer >= 0 || name->rank >= 0)
            continue;
        if (strcmp(name->kind, "token_embd") == 0)
            embedding = i;
        if (strcmp(name->kind, "output_norm") == 0)
            norm = i;
    }
    if (embedding == SIZE_MAX)
        return;
    for (int normed = 0; normed < 2; normed++, room += layers->count + 1) {
        room[0] = (struct ts_stack_member){embedding, 0, 0, 0};
        for (size_t i = 0; i < layers->count; i++)
            room[i + 1] = (struct ts_stack_member){layers->list[i].index, (int64_t)i + 1, 0, 0};
        if (normed)
            room[layers->count].index = norm;
        if (!normed || norm != SIZE_MAX)
            add_series(search, room, layers->count + 1);
    }
}

/* All series of the other side, by size. */
static enum ts_status find_series(struct search *search, struct ts_error *error)
{
    struct ts_arena *arena = &search->pairer->scratch;
    const struct ts_side *other = search->other;
    struct ts_called *all = ts_arena_array(arena, other->count, sizeof *all);
    struct ts_stack_member *members = ts_arena_array(arena, other->count, sizeof *members);
    struct ts_stack_member *hidden = ts_arena_array(arena, 2 * other->count + 2, sizeof *hidden);
    size_t count = 0, found;
    search->series = ts_arena_array(arena, other->count + 2, sizeof *search->series);
    search->list = ts_arena_array(arena, other->count + 2, sizeof *search->list);
    if (!all || !members || !hidden || !search->series || !search->list)
        return ts_fail_memory(error);
    for (size_t i = 0; i < other->count; i++) {
        const struct ts_name *name = &other->read.list[i];
        if (!other->taken[i] && name->rank < 0 && name->expert < 0 && name->layer >= 0)
            all[count++] = (struct ts_called){name->kind, name->scope, other->labels[i], name->layer, i};
    }
    if (count)
        qsort(all, count, sizeof *all, ts_by_called);
    for (size_t i = 0; i < count; i++)
        members[i] = (struct ts_stack_member){all[i].index, all[i].layer, 0, 0};
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && one_series(&all[from], &all[to]);)
            to++;
        found = search->series_count;
        add_series(search, members + from, to - from);
        if (search->series_count > found && strcmp(all[from].kind, "layer_out") == 0 && hidden) {
            add_hidden(search, &search->series[found], hidden);
            hidden = NULL; /* an encoder's and a decoder's are not told apart */
        }
    }
    if (search->series_count)
        qsort(search->series, search->series_count, sizeof *search->series, by_size);
    return TS_OK;
}

/* The stack with the members of a candidate. */
static struct ts_stack open_stack(const struct search *search, const struct candidate *candidate)
{
    const struct series *const *series = candidate->series;
    struct ts_stack stack = {.pairer = search->pairer,
                             .is_b = search->side == &search->pairer->b,
                             .by_values = true,
                             .whole = candidate->whole,
                             .list = search->list,
                             .layers = series[0]->count > 1 ? series[0]->count : 0,
                             .parts = series[1] ? series[2] ? 3 : 2 : 0};
    for (size_t i = 0; i < series[0]->count; i++)
        for (unsigned part = 0; part < MOST_PARTS && series[part]; part++) {
            stack.list[stack.count] = series[part]->list[i];
            stack.list[stack.count].entry = i;
            stack.list[stack.count++].part = part;
        }
    return stack;
}

static enum ts_status try_candidate(struct search *search, size_t whole, const struct series *const *series,
                                    size_t parts, struct ts_error *error)
{
    struct candidate candidate = {.whole = whole};
    const unsigned ends = 1U | 1U << (parts - 1);
    struct ts_stack stack;
    bool any;
    for (size_t part = 0; part < parts; part++) {
        candidate.series[part] = series[part];
        for (size_t i = 0; i < series[0]->count; i++)
            if (series[part]->list[i].layer != series[0]->list[i].layer)
                return TS_OK;
    }
    if (search->tries == MOST_TRIES)
        return TS_OK;
    search->tries++;
    if (atomic_load(&ts_cancelled))
        return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    stack = open_stack(search, &candidate);
    TS_TRY(ts_stack_choose(&stack, &candidate.way, &candidate.tied, &any, error));
    if (any && candidate.way.agreeing && (candidate.way.agreeing_parts & ends) == ends &&
        (stack.layers || candidate.way.agreeing == parts))
        search->candidates[search->count++] = candidate;
    return TS_OK;
}

/* Where the series with so many elements begin. */
static size_t first_of(const struct search *search, uint64_t all)
{
    size_t low = 0, high = search->series_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (search->series[middle].all < all)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has_axis(const struct ts_tensor *tensor, uint64_t size)
{
    for (unsigned i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == size)
            return true;
    return false;
}

/* Layers that were captured on one side only are in the stack besides. */
static enum ts_status try_some_layers(struct search *search, size_t whole, struct ts_error *error)
{
    const struct ts_tensor *tensor = search->side->bundle->tensors[whole];
    for (size_t i = 0; i < search->series_count && search->series[i].all < tensor->count && i < MOST_SIZES; i++) {
        const uint64_t size = search->series[i].all / search->series[i].count;
        if (tensor->count % size == 0 && has_axis(tensor, tensor->count / size))
            TS_TRY(try_candidate(search, whole, &(const struct series *){&search->series[i]}, 1, error));
    }
    return TS_OK;
}

static enum ts_status try_whole(struct search *search, size_t whole, struct ts_error *error)
{
    const struct ts_tensor *tensor = search->side->bundle->tensors[whole];
    const size_t before = search->count;
    size_t from = first_of(search, tensor->count), to;
    for (; from < search->series_count && search->series[from].all == tensor->count; from++)
        if (has_axis(tensor, search->series[from].count))
            TS_TRY(try_candidate(search, whole, &(const struct series *){&search->series[from]}, 1, error));
    if (search->count == before)
        TS_TRY(try_some_layers(search, whole, error));
    if (search->count > before || tensor->count % 2 || !has_axis(tensor, 2))
        return TS_OK;
    from = to = first_of(search, tensor->count / 2);
    while (to < search->series_count && search->series[to].all == tensor->count / 2)
        to++;
    for (size_t i = from; i < to && to - from <= MOST_TWINS; i++)
        for (size_t k = from; k < to; k++)
            if (i != k && search->series[i].count == search->series[k].count &&
                has_axis(tensor, search->series[i].count))
                TS_TRY(try_candidate(search, whole, (const struct series *[]){&search->series[i], &search->series[k]},
                                     2, error));
    return TS_OK;
}

/* The layer of the other side that belongs to a tensor of one. */
static int64_t layer_of(const struct search *search, size_t whole)
{
    return search->side->read.list[whole].layer +
           (search->side == &search->pairer->a ? -search->pairer->offset : search->pairer->offset);
}

/* The member of a series that belongs to a layer, as a series of its own; NULL: none. */
static enum ts_status one_layer(const struct search *search, const struct series *series, int64_t layer,
                                const struct series **out, struct ts_error *error)
{
    struct ts_arena *arena = &search->pairer->scratch;
    *out = NULL;
    for (size_t i = 0; i < series->count; i++)
        if (series->list[i].layer == layer) {
            struct series *one = ts_arena_alloc(arena, sizeof *one);
            if (!one)
                return ts_fail_memory(error);
            *one = (struct series){&series->list[i], 1, series->all / series->count, series};
            *out = one;
        }
    return TS_OK;
}

static bool is_kind(const struct search *search, const struct series *series, const char *begin)
{
    return strncmp(search->other->read.list[series->list[0].index].kind, begin, strlen(begin)) == 0;
}

/* What stands in the list, two by two, or three by three where names say that these are queries, keys and values. */
static enum ts_status try_together(struct search *search, size_t whole, const struct series *const *list, size_t count,
                                   size_t parts, struct ts_error *error)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) {
            if (i == k || (parts == 3 && (!is_kind(search, list[i], "attn_q") || !is_kind(search, list[k], "attn_k"))))
                continue;
            for (size_t l = 0; l < (parts == 3 ? count : 1); l++)
                if (parts == 2 || is_kind(search, list[l], "attn_v"))
                    TS_TRY(try_candidate(search, whole, (const struct series *[]){list[i], list[k], list[l]}, parts,
                                         error));
        }
    return TS_OK;
}

/* A tensor of one layer: two of that layer in one, as keys and values are kept, or three. */
static enum ts_status try_layer(struct search *search, size_t whole, size_t parts, struct ts_error *error)
{
    const struct ts_tensor *tensor = search->side->bundle->tensors[whole];
    const struct series *list[MOST_TWINS];
    size_t count = 0;
    if (tensor->count % parts || !has_axis(tensor, parts))
        return TS_OK;
    for (size_t i = 0; i < search->series_count && count < MOST_TWINS; i++) {
        if (search->series[i].all / search->series[i].count != tensor->count / parts)
            continue;
        TS_TRY(one_layer(search, &search->series[i], layer_of(search, whole), &list[count], error));
        count += list[count] != NULL;
    }
    return try_together(search, whole, list, count, parts, error);
}

static bool is_free(const struct search *search, const struct candidate *candidate)
{
    if (search->side->taken[candidate->whole])
        return false;
    for (int part = 0; part < MOST_PARTS && candidate->series[part]; part++)
        for (size_t i = 0; i < candidate->series[part]->count; i++)
            if (search->other->taken[candidate->series[part]->list[i].index])
                return false;
    return true;
}

/* Whether two candidates want the same tensor. */
static bool share(const struct candidate *left, const struct candidate *right)
{
    bool any = left->whole == right->whole;
    for (int i = 0; i < MOST_PARTS && left->series[i]; i++)
        for (int k = 0; k < MOST_PARTS && right->series[k] && !any; k++)
            any = left->series[i]->list == right->series[k]->list;
    return any;
}

/* How a candidate stands against another that wants the same: 1 it is surely better, 0 neither is, -1. */
static int rank(const struct candidate *left, const struct candidate *right)
{
    const double one = left->way.error, other = right->way.error;
    if (left->way.agreeing != right->way.agreeing)
        return left->way.agreeing > right->way.agreeing ? 1 : -1;
    if (one <= TS_STACK_AS_WELL * other + 1e-12 && other <= TS_STACK_AS_WELL * one + 1e-12)
        return 0;
    return one < other ? 1 : -1;
}

/* The stack is now what its members are, of all layers. */
static enum ts_status take(struct search *search, const struct candidate *candidate, bool tied, const char *how,
                           struct ts_error *error)
{
    struct ts_name *name = &search->side->read.list[candidate->whole];
    struct ts_stack stack = open_stack(search, candidate);
    const struct ts_name *member = &search->other->read.list[stack.list[0].index];
    name->stacked = stack.layers > 0;
    if (!candidate->series[1]) {
        name->kind = member->kind;
        name->weight = member->weight;
    }
    search->held[candidate->whole] = stack.layers ? candidate->series[0] : NULL;
    if (candidate->way.layer_axis != TS_NO_AXIS)
        search->votes[candidate->way.layer_axis]++;
    return ts_stack_pair(&stack, &candidate->way, tied, how, error);
}

/* Takes what nothing else disputes, again and again; where that is all, the first of those that fit equally well. */
static enum ts_status settle(struct search *search, struct ts_error *error)
{
    for (bool guess = false;;) {
        bool any = false;
        for (size_t i = 0; i < search->count && !(guess && any); i++) {
            struct candidate *candidate = &search->candidates[i];
            int worst = 1;
            if (!is_free(search, candidate))
                continue;
            for (size_t k = 0; k < search->count && worst >= 0; k++)
                if (k != i && share(candidate, &search->candidates[k]) && is_free(search, &search->candidates[k])) {
                    const int against = rank(candidate, &search->candidates[k]);
                    worst = against < worst ? against : worst;
                }
            if (worst < (guess ? 0 : 1))
                continue;
            TS_TRY(take(search, candidate, candidate->tied || worst == 0, "content", error));
            candidate->taken = any = true;
        }
        if (!any && guess)
            return TS_OK;
        guess = !any;
    }
}

/* What a tensor of one layer was found to hold it holds in the others too: behind a fault no values tell it. */
static enum ts_status carry_layers(struct search *search, struct ts_error *error)
{
    for (size_t i = 0; i < search->count; i++) {
        const struct candidate *found = &search->candidates[i];
        const struct ts_name *name = &search->side->read.list[found->whole];
        if (!found->taken || !found->series[0]->of)
            continue;
        for (size_t k = 0; k < search->side->count; k++) {
            const struct ts_name *other = &search->side->read.list[k];
            struct candidate candidate = {.whole = k, .way = found->way};
            bool all =
                !search->side->taken[k] && other->layer >= 0 && other->rank < 0 &&
                strcmp(other->kind, name->kind) == 0 && strcmp(other->scope, name->scope) == 0 &&
                ts_tensor_same_shape(search->side->bundle->tensors[k], search->side->bundle->tensors[found->whole]);
            for (int part = 0; all && part < MOST_PARTS && found->series[part]; part++) {
                TS_TRY(one_layer(search, found->series[part]->of, layer_of(search, k), &candidate.series[part], error));
                all = candidate.series[part] != NULL;
            }
            if (all && is_free(search, &candidate))
                TS_TRY(take(search, &candidate, false, "content of other layers", error));
        }
    }
    return TS_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct series *left = *(const struct series *const *)a, *right = *(const struct series *const *)b;
    return left->list[0].index < right->list[0].index ? -1 : left->list[0].index > right->list[0].index;
}

/* Whether a series is still to be had, and the numbers of a stack may be it. */
static bool may_hold(const struct search *search, size_t whole, const struct series *series)
{
    const struct ts_tensor *tensor = search->side->bundle->tensors[whole];
    const struct candidate candidate = {.whole = whole, .series = {series}};
    return series->all == tensor->count && has_axis(tensor, series->count) && is_free(search, &candidate);
}

static bool is_stack(const struct search *search, size_t index)
{
    const struct ts_name *name = &search->side->read.list[index];
    return name->layer < 0 && name->rank < 0 && search->side->bundle->tensors[index]->rank >= 2;
}

/* Pairs the stacks [from, to) with the series of a stretch, where as many of one size are on both sides. */
static enum ts_status place_stretch(struct search *search, size_t from, size_t to, const struct series *const *series,
                                    size_t count, size_t *placed, struct ts_error *error)
{
    for (size_t i = from; i < to; i++) {
        struct candidate candidate = {.whole = i};
        struct ts_stack stack;
        size_t stacks = 0, there = 0;
        bool any;
        if (search->side->taken[i] || !is_stack(search, i))
            continue;
        for (size_t k = 0; k < count; k++)
            if (may_hold(search, i, series[k])) {
                candidate.series[0] = candidate.series[0] ? candidate.series[0] : series[k];
                there++;
            }
        for (size_t k = i; k < to && there; k++) /* those before it have been taken, or have nothing to hold */
            stacks += !search->side->taken[k] && is_stack(search, k) && may_hold(search, k, candidate.series[0]);
        if (!there || stacks != there)
            continue;
        stack = open_stack(search, &candidate);
        stack.by_values = false;
        for (unsigned axis = 0; axis < TS_MAX_RANK; axis++)
            stack.votes[axis][0] = search->votes[axis];
        TS_TRY(ts_stack_choose(&stack, &candidate.way, &candidate.tied, &any, error));
        if (any) {
            size_t before = search->pairer->count;
            TS_TRY(take(search, &candidate, false, "place in order", error));
            for (; before < search->pairer->count; before++)
                search->pairer->found[before].pair.by_order = true;
            *placed += stack.count;
        }
    }
    return TS_OK;
}

/* Behind a fault no values agree. Where the stacks that were found stand in the order of their series, one that is left
 * is a series that is left between the same two. */
static enum ts_status place_rest(struct search *search, struct ts_error *error)
{
    const struct series **order = ts_arena_array(&search->pairer->scratch, search->series_count, sizeof *order);
    size_t count = 0, held = 0, from = 0, begin = 0, placed = 0;
    if (!order)
        return ts_fail_memory(error);
    for (size_t i = 0; i < search->series_count; i++)
        if (search->other->read.list[search->series[i].list[0].index].layer >= 0) /* no hidden states */
            order[count++] = &search->series[i];
    if (count)
        qsort(order, count, sizeof *order, by_place);
    for (size_t i = 0, last = 0; i < search->side->count; i++) {
        size_t at = last;
        if (!search->held[i])
            continue;
        while (at < count && order[at] != search->held[i])
            at++;
        if (at == count)
            return TS_OK;
        last = at + 1;
        held++;
    }
    for (size_t i = 0; i <= search->side->count && held >= LEAST_HELD; i++) {
        size_t end = begin;
        if (i < search->side->count && !search->held[i])
            continue;
        while (end < count && (i == search->side->count || order[end] != search->held[i]))
            end++;
        TS_TRY(place_stretch(search, from, i, order + begin, end - begin, &placed, error));
        from = i + 1;
        begin = end + 1 < count ? end + 1 : count;
    }
    if (!placed)
        return TS_OK;
    return ts_pairer_note(search->pairer, error,
                          "%zu pair%s with pieces of stacks %s made by position alone, as neither names nor values "
                          "tell (correct %s with --map)",
                          placed, placed == 1 ? "" : "s", placed == 1 ? "was" : "were", placed == 1 ? "it" : "them");
}

enum ts_status ts_match_stack_values(struct ts_pairer *pairer, struct ts_error *error)
{
    for (int is_b = 0; is_b < 2; is_b++) {
        struct search search = {
            .pairer = pairer, .side = is_b ? &pairer->b : &pairer->a, .other = is_b ? &pairer->a : &pairer->b};
        if (!search.side->read.list || !search.other->read.list)
            return TS_OK;
        TS_TRY(find_series(&search, error));
        if (!search.series_count)
            continue;
        search.candidates = ts_arena_array(&pairer->scratch, MOST_TRIES, sizeof *search.candidates);
        search.held = ts_arena_array(&pairer->scratch, search.side->count, sizeof *search.held);
        if (!search.candidates || !search.held)
            return ts_fail_memory(error);
        for (size_t i = 0; i < search.side->count; i++)
            if (!search.side->taken[i] && is_stack(&search, i))
                TS_TRY(try_whole(&search, i, error));
            else
                for (size_t parts = 2; parts <= MOST_PARTS && !search.side->taken[i]; parts++)
                    if (search.side->read.list[i].rank < 0 && search.side->read.list[i].layer >= 0)
                        TS_TRY(try_layer(&search, i, parts, error));
        TS_TRY(settle(&search, error));
        TS_TRY(carry_layers(&search, error));
        TS_TRY(place_rest(&search, error));
    }
    return TS_OK;
}
