/* Owns what is tried when one side is in shards: how the ranks of a parallel run put a tensor together. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pair/align_search.h"

/* Costs stand above those of layouts: a join that needs no layout goes first. */
#define COST_EQUAL       0u
#define COST_JOIN        1u
#define COST_SUM         5u
#define COST_SOME        10u /* only every n-th rank */
#define COST_ZIGZAG      25u
#define COST_FUSED       30u
#define COST_INTERLEAVED 40u
#define COST_ONE         50u /* one rank of several that differ */

/* A join that agrees this well is the one; the less likely ones are then not tried. */
#define GOOD 0.3
/* No head is wider. */
#define MAX_WIDTH 65536

struct joining {
    struct ts_align_search *search;
    const struct ts_view *whole;
    struct ts_view *shards;
    size_t count;
    unsigned side; /* on which the shards stand */
};

static struct ts_arena *scratch(const struct joining *j)
{
    return &j->search->scratch;
}

/* Candidates for one way of joining. The whole tensor moves: a joined view cannot be cut everywhere. */
static void add_joined(const struct joining *j, const struct ts_view *joined, const char *words, unsigned cost)
{
    struct ts_align_layouts layouts = {.words = {"", ""}, .cost = cost, .limit = 24};
    if (!words || joined->count != j->whole->count)
        return;
    layouts.view[j->side] = *joined;
    layouts.view[1 - j->side] = *j->whole;
    layouts.words[j->side] = words;
    layouts.moving = 1 - j->side;
    /* equal shapes need no other order of axes; but weights may be transposed */
    layouts.whole_axes = ts_align_equal_shapes(joined, j->whole);
    layouts.in_order = layouts.whole_axes && !j->search->hints->weights;
    ts_align_add_layouts(j->search, &layouts);
}

/* All shards alike but along `axis`. */
static bool fits_along(const struct joining *j, unsigned axis)
{
    const struct ts_view *first = j->shards;
    for (size_t i = 0; i < j->count; i++) {
        if (j->shards[i].rank != first->rank)
            return false;
        for (unsigned k = 0; k < first->rank; k++)
            if (k != axis && j->shards[i].shape[k] != first->shape[k])
                return false;
    }
    return true;
}

static bool alike(const struct joining *j)
{
    return fits_along(j, UINT32_MAX);
}

static void add_plain_joins(const struct joining *j)
{
    for (unsigned axis = 0; axis < j->shards->rank; axis++) {
        struct ts_view joined;
        if (fits_along(j, axis) && ts_view_join(TS_JOIN_CONCAT, axis, j->shards, j->count, scratch(j), &joined))
            add_joined(j, &joined, ts_arena_printf(scratch(j), "join %zu shards on axis %u", j->count, axis),
                       COST_JOIN);
    }
}

/* Fewer pieces than ranks (key and value heads): each is held by `copies` neighbouring ranks. */
static void add_some_ranks(const struct joining *j)
{
    for (size_t copies = 2; copies < j->count; copies++) {
        size_t count = j->count / copies;
        struct ts_view *some, joined;
        if (j->count % copies != 0 || !(some = ts_arena_array(scratch(j), count, sizeof *some)))
            continue;
        for (size_t i = 0; i < count; i++)
            some[i] = j->shards[i * copies];
        for (unsigned axis = 0; axis < j->shards->rank; axis++)
            if (fits_along(j, axis) && ts_view_join(TS_JOIN_CONCAT, axis, some, count, scratch(j), &joined))
                add_joined(j, &joined,
                           ts_arena_printf(scratch(j), "join %zu of %zu shards, step %zu, on axis %u", count, j->count,
                                           copies, axis),
                           COST_SOME);
    }
}

static void add_sum(const struct joining *j)
{
    struct ts_view sum;
    if (alike(j) && ts_view_join(TS_JOIN_SUM, 0, j->shards, j->count, scratch(j), &sum))
        add_joined(j, &sum, ts_arena_printf(scratch(j), "sum of %zu shards", j->count), COST_SUM);
}

/* Equal shards, or one of unequal ones. Ranks that differ from rank 0 are named. */
static enum ts_status add_single_ranks(const struct joining *j, struct ts_error *error)
{
    struct ts_buffer differ;
    size_t different = 0;
    if (!alike(j) || j->shards->count != j->whole->count)
        return TS_OK;
    ts_buffer_init(&differ, 4096);
    for (size_t i = 1; i < j->count; i++) {
        struct ts_align_search same = *j->search;
        struct ts_align_fit fit;
        enum ts_status status;
        same.scale[0] = same.scale[1] = j->search->scale[j->side];
        status = ts_align_measure(&same, &j->shards[0], &j->shards[i], 8192, &fit, error);
        if (status != TS_OK) {
            ts_buffer_release(&differ);
            return status;
        }
        if (fit.fit > 0.1) { /* more than honest noise between ranks */
            ts_buffer_printf(&differ, "%s%zu", different ? " " : "", i);
            different++;
        }
    }
    if (different == 0) {
        add_joined(j, &j->shards[0], ts_arena_printf(scratch(j), "rank 0 of %zu equal shards", j->count), COST_EQUAL);
    } else {
        for (size_t i = 0; i < j->count; i++)
            add_joined(j, &j->shards[i],
                       i || different + 1 == j->count
                           ? ts_arena_printf(scratch(j), "rank %zu of %zu, which differ", i, j->count)
                           : ts_arena_printf(scratch(j), "rank 0 of %zu, rank%s %s differ%s", j->count,
                                             different > 1 ? "s" : "", differ.data, different > 1 ? "" : "s"),
                       COST_ONE + (i ? 1 : 0));
    }
    ts_buffer_release(&differ);
    return TS_OK;
}

/* Heads dealt out to the ranks in turn: entry [head, rank, width] of the whole axis is [head, width] of that rank. */
static void add_interleaved(const struct joining *j, unsigned axis)
{
    const struct ts_view *first = j->shards;
    const uint64_t size = first->shape[axis];
    uint64_t shape[TS_MAX_RANK];
    if (first->rank + 2 > TS_MAX_RANK)
        return;
    for (uint64_t width = 1; width < size && width <= MAX_WIDTH; width++) {
        struct ts_view *apart, joined;
        unsigned cost = COST_INTERLEAVED;
        size_t i;
        if (size % width != 0 || !(apart = ts_arena_array(scratch(j), j->count, sizeof *apart)))
            continue;
        memcpy(shape, first->shape, axis * sizeof *shape);
        memcpy(shape + axis, (uint64_t[3]){size / width, 1, width}, 3 * sizeof *shape);
        memcpy(shape + axis + 3, first->shape + axis + 1, (first->rank - axis - 1) * sizeof *shape);
        for (i = 0; i < j->count; i++)
            if (!ts_view_reshape(&j->shards[i], shape, first->rank + 2, scratch(j), &apart[i]))
                break;
        if (i < j->count || !ts_view_join(TS_JOIN_CONCAT, axis + 1, apart, j->count, scratch(j), &joined))
            continue;
        if (j->search->hints->heads && size * j->count == j->search->hints->heads * width)
            cost -= 5;
        add_joined(j, &joined,
                   ts_arena_printf(scratch(j), "join %zu shards on axis %u, heads of %" PRIu64 " interleaved", j->count,
                                   axis, width),
                   cost);
    }
}

/* Each rank holds its share of `parts` projections one after the other. sizes: of a share. Where there are fewer key
 * and value heads than ranks, the shares behind the first are held by `copies` ranks each. */
static void add_fused(const struct joining *j, unsigned axis, const uint64_t *sizes, unsigned parts, size_t copies)
{
    struct ts_view *pieces = ts_arena_array(scratch(j), parts * j->count, sizeof *pieces), joined;
    uint64_t begin = 0;
    size_t count = 0;
    const char *words;
    for (unsigned part = 0; pieces && part < parts; begin += sizes[part++])
        for (size_t i = 0; i < j->count; i += part ? copies : 1)
            if (!ts_view_slice(&j->shards[i], axis, begin, sizes[part], 1, scratch(j), &pieces[count++]))
                return;
    if (!pieces || !ts_view_join(TS_JOIN_CONCAT, axis, pieces, count, scratch(j), &joined))
        return;
    words = ts_arena_printf(scratch(j), "join %zu shards on axis %u, in %u parts %" PRIu64 "+%" PRIu64, j->count, axis,
                            parts, sizes[0], sizes[1]);
    if (words && parts == 3)
        words = ts_arena_printf(scratch(j), "%s+%" PRIu64, words, sizes[2]);
    if (words && copies > 1)
        words = ts_arena_printf(scratch(j), "%s, %zu copies of each but the first", words, copies);
    add_joined(j, &joined, words, COST_FUSED + (unsigned)(copies > 1));
}

static void add_all_fused(const struct joining *j, unsigned axis)
{
    const uint64_t size = j->shards->shape[axis];
    if (size % 2 == 0)
        add_fused(j, axis, (uint64_t[2]){size / 2, size / 2}, 2, 1);
    /* `group` query heads to each key and value head of a rank */
    for (uint64_t group = 1; group <= 32; group++) {
        uint64_t keys = size / (group + 2);
        if (size % (group + 2) != 0)
            continue;
        for (size_t copies = 1; copies <= j->count; copies++)
            if (j->count % copies == 0)
                add_fused(j, axis, (uint64_t[3]){group * keys, keys, keys}, 3, copies);
    }
}

/* Context parallel: rank r holds chunk r from the front and chunk r from the back. */
static void add_zigzag(const struct joining *j, unsigned axis)
{
    const uint64_t half = j->shards->shape[axis] / 2;
    struct ts_view *pieces = ts_arena_array(scratch(j), 2 * j->count, sizeof *pieces), joined;
    if (!pieces || j->shards->shape[axis] % 2 != 0)
        return;
    for (size_t i = 0; i < j->count; i++)
        if (!ts_view_slice(&j->shards[i], axis, 0, half, 1, scratch(j), &pieces[i]) ||
            !ts_view_slice(&j->shards[i], axis, half, half, 1, scratch(j), &pieces[2 * j->count - 1 - i]))
            return;
    if (ts_view_join(TS_JOIN_CONCAT, axis, pieces, 2 * j->count, scratch(j), &joined))
        add_joined(j, &joined, ts_arena_printf(scratch(j), "join %zu shards on axis %u, zigzag", j->count, axis),
                   COST_ZIGZAG);
}

/* Joined as they are they may be larger than the whole (padding in each or at the end) or smaller (some ranks are
 * missing). */
static enum ts_status add_joined_slices(const struct joining *j, struct ts_error *error)
{
    for (unsigned axis = 0; axis < j->shards->rank; axis++) {
        struct ts_align_layouts layouts = {.words = {"", ""}, .cost = COST_JOIN, .moving = 1 - j->side, .limit = 24};
        struct ts_view *joined = &layouts.view[j->side];
        if (!fits_along(j, axis) || !ts_view_join(TS_JOIN_CONCAT, axis, j->shards, j->count, scratch(j), joined) ||
            joined->count == j->whole->count)
            continue;
        layouts.view[1 - j->side] = *j->whole;
        layouts.words[j->side] = ts_arena_printf(scratch(j), "join %zu shards on axis %u", j->count, axis);
        if (layouts.words[j->side])
            TS_TRY(ts_align_add_slices(j->search, &layouts, error));
    }
    return TS_OK;
}

static enum ts_status join_search(const struct joining *j, struct ts_error *error)
{
    double score;
    TS_TRY(add_single_ranks(j, error));
    add_plain_joins(j);
    add_sum(j);
    TS_TRY(ts_align_best_score(j->search, &score, error));
    if (score < GOOD)
        return TS_OK;
    add_some_ranks(j);
    for (unsigned axis = 0; alike(j) && axis < j->shards->rank; axis++) {
        add_zigzag(j, axis);
        add_all_fused(j, axis);
        add_interleaved(j, axis);
    }
    TS_TRY(ts_align_best_score(j->search, &score, error));
    if (score < GOOD)
        return TS_OK;
    return add_joined_slices(j, error);
}

enum ts_status ts_align_shards(const struct ts_view *whole, struct ts_view *shards, size_t count, bool shards_are_b,
                               const struct ts_align_hints *hints, struct ts_arena *arena, struct ts_alignment *out,
                               struct ts_error *error)
{
    struct ts_align_search search;
    struct joining j = {.search = &search, .whole = whole, .shards = shards, .count = count, .side = shards_are_b};
    const struct ts_view *a = shards_are_b ? whole : shards, *b = shards_are_b ? shards : whole;
    const struct ts_align_candidate *winner = NULL;
    enum ts_status status;
    bool possible = count > 0;
    if (count == 0)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "there are no shards to align");
    if (count == 1)
        return ts_align(a, b, hints, arena, out, error);
    ts_alignment_init(out, a, b);
    for (size_t i = 0; i < count; i++)
        possible = possible && shards[i].count > 0 && whole->count > 0 &&
                   ts_type_info(shards[i].tensor->type)->components == ts_type_info(whole->tensor->type)->components;
    if (!possible)
        return ts_align_no_layout(a, b, shards_are_b ? 0 : count, shards_are_b ? count : 0, arena, out, error);
    status = ts_align_search_init(&search, a, b, hints, error);
    if (status == TS_OK)
        status = join_search(&j, error);
    if (status == TS_OK)
        status = ts_align_choose(&search, out, &winner, error);
    if (status == TS_OK && winner)
        status = ts_align_finish(winner, arena, out, error);
    else if (status == TS_OK)
        status = ts_align_no_layout(a, b, shards_are_b ? 0 : count, shards_are_b ? count : 0, arena, out, error);
    ts_align_search_release(&search);
    return status;
}
