/* Owns what is tried when one side has more elements than the other: a piece of the larger one is laid against the
 * smaller. Along which axis follows from the counts; where the piece begins is looked for in the values. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pair/align_search.h"

/* A piece that agrees this well is the one; the less likely ways to cut are then not tried. */
#define FOUND 0.3
/* Of what was left out by a cut, this many elements are looked at for being zero; where there are more, nothing is
 * said. */
#define REST_LIMIT ((uint64_t)1 << 20)
/* More shards than this are looked for like any other offset. */
#define MAX_SHARDS 256
/* Offsets that are tried one by one, on small samples. */
#define MAX_OFFSETS 65536
#define SCAN_BUDGET 64
#define SCAN_GLANCE 8   /* before that, a few */
#define SCAN_HOPE   1.9 /* worse scores on so few are not worth a second look */
#define SCAN_KEEP   4
/* No head is wider. */
#define MAX_WIDTH 65536
/* Axes that may be cut at the same time. */
#define MAX_CUTS 4

/* Axes that are tried in every order. */
#define MAX_TURNED 4

#define COST_CUT         10u /* above every likely layout */
#define COST_SHIFT       1u  /* does not begin at 0 */
#define COST_STEP        2u
#define COST_ANYWHERE    4u /* neither at an end nor a shard */
#define COST_INTERLEAVED 20u
#define COST_FUSED       20u
#define COST_TURNED      4u
#define COST_ODD         20u /* fused, though the name says otherwise */

struct cutting {
    struct ts_align_search *search;
    const struct ts_align_layouts *given;
    unsigned large; /* the side that is cut */
    unsigned axis;
    uint64_t size, need; /* of the axis, and how much of it makes the counts equal */
    unsigned family;     /* where copies lie along the axis, any of them will do */
};

static bool drop_axis(struct ts_align_search *search, const struct ts_view *view, unsigned axis, struct ts_view *out)
{
    uint64_t shape[TS_MAX_RANK];
    unsigned rank = 0;
    for (unsigned i = 0; i < view->rank; i++)
        if (i != axis)
            shape[rank++] = view->shape[i];
    return ts_view_reshape(view, shape, rank, &search->scratch, out);
}

static const char *cut_words(struct ts_arena *arena, unsigned axis, uint64_t start, uint64_t need, uint64_t size)
{
    if (need == 1)
        return ts_arena_printf(arena, "index %" PRIu64 " of %" PRIu64 " on axis %u", start, size, axis);
    if (size % need == 0 && start % need == 0 && size / need <= TS_ALIGN_MOST_SHARDS)
        return ts_arena_printf(arena, "shard %" PRIu64 " of %" PRIu64 " on axis %u", start / need, size / need, axis);
    if (start == 1 && need == size - 1)
        return ts_arena_printf(arena, "skip the first of %" PRIu64 " on axis %u", size, axis);
    return ts_arena_printf(arena, "take %" PRIu64 "..%" PRIu64 " of %" PRIu64 " on axis %u", start, start + need, size,
                           axis);
}

/* Entries [start, start + need) of an axis and the words for it; an axis cut to one entry is dropped. */
static bool cut(struct ts_align_search *search, const struct ts_view *view, unsigned axis, uint64_t start,
                uint64_t need, const char *before, struct ts_view *out, const char **words)
{
    struct ts_view piece;
    const char *own = cut_words(&search->scratch, axis, start, need, view->shape[axis]);
    if (!own || !ts_view_slice(view, axis, start, need, 1, &search->scratch, &piece))
        return false;
    *words = ts_align_words(search, before, own);
    if (need > 1) {
        *out = piece;
        return true;
    }
    return drop_axis(search, &piece, axis, out);
}

static void add_cut(const struct cutting *c, uint64_t start, unsigned cost, size_t limit)
{
    struct ts_align_layouts layouts = *c->given;
    struct ts_view *view = ts_arena_alloc(&c->search->scratch, sizeof *view);
    if (!view)
        return;
    *view = c->given->view[c->large];
    if (!cut(c->search, view, c->axis, start, c->need, c->given->words[c->large], &layouts.view[c->large],
             &layouts.words[c->large]))
        return;
    layouts.cost += COST_CUT + cost;
    layouts.family = c->family;
    layouts.limit = limit;
    layouts.cut =
        (struct ts_align_cut){.of = view, .axis = c->axis, .start = start, .count = c->need, .all = view->count};
    ts_align_add_layouts(c->search, &layouts);
}

/* The likely places: the beginning, the end, after the first entry, and each shard. */
static void add_likely(const struct cutting *c)
{
    const uint64_t shards = c->size % c->need == 0 ? c->size / c->need : 0;
    if (shards && shards <= MAX_SHARDS) {
        for (uint64_t i = 0; i < shards; i++)
            add_cut(c, i * c->need, i ? COST_SHIFT : 0u, shards <= 16 ? 24 : 8);
    } else {
        add_cut(c, 0, 0, 24);
        add_cut(c, c->size - c->need, COST_SHIFT, 24);
    }
    if (c->size - c->need > 1 && c->need > 1)
        add_cut(c, 1, COST_SHIFT, 8);
}

/* Every offset, with the plainest two layouts, on a few elements; the best become candidates. Shifting a plain view is
 * a change of its offset. */
static enum ts_status scan_offsets(const struct cutting *c, struct ts_error *error)
{
    struct ts_align_search *search = c->search;
    const struct ts_view *view = &c->given->view[c->large];
    const size_t before = search->count;
    struct {
        uint64_t start;
        double score;
    } best[SCAN_KEEP];
    size_t kept = 0, layouts;
    if (view->join != TS_JOIN_NONE || c->size - c->need > MAX_OFFSETS)
        return TS_OK;
    add_cut(c, 0, 0, 2);
    layouts = search->count;
    for (size_t i = before; i < layouts; i++)
        for (uint64_t start = 1; start < c->size - c->need; start++) {
            struct ts_view moved[2] = {search->list[i].view[0], search->list[i].view[1]};
            struct ts_align_fit fit;
            size_t place;
            moved[c->large].offset += start * (uint64_t)view->strides[c->axis];
            TS_TRY(ts_align_measure(search, &moved[0], &moved[1], SCAN_GLANCE, &fit, error));
            if (fit.score > SCAN_HOPE)
                continue;
            TS_TRY(ts_align_measure(search, &moved[0], &moved[1], SCAN_BUDGET, &fit, error));
            for (place = kept; place > 0 && best[place - 1].score > fit.score; place--)
                if (place < SCAN_KEEP)
                    best[place] = best[place - 1];
            if (place < SCAN_KEEP) {
                best[place].start = start;
                best[place].score = fit.score;
                kept += kept < SCAN_KEEP;
            }
        }
    search->count = before;
    for (size_t i = 0; i < kept; i++)
        add_cut(c, best[i].start, COST_ANYWHERE, 2);
    return TS_OK;
}

/* Head by head to each rank in turn, or the n-th entry to the n-th rank: [heads, ranks, width], one rank of it. */
static void add_interleaved(const struct cutting *c)
{
    const struct ts_view *view = &c->given->view[c->large];
    const uint64_t ranks = c->size / c->need;
    uint64_t shape[TS_MAX_RANK];
    if (c->size % c->need != 0 || ranks > 64 || view->rank + 2 > TS_MAX_RANK)
        return;
    for (uint64_t width = 1; width < c->need && width <= MAX_WIDTH; width++) {
        struct ts_align_layouts layouts = *c->given;
        struct ts_view apart, piece;
        if (c->need % width != 0)
            continue;
        memcpy(shape, view->shape, c->axis * sizeof *shape);
        memcpy(shape + c->axis, (uint64_t[3]){c->need / width, ranks, width}, 3 * sizeof *shape);
        memcpy(shape + c->axis + 3, view->shape + c->axis + 1, (view->rank - c->axis - 1) * sizeof *shape);
        if (!ts_view_reshape(view, shape, view->rank + 2, &c->search->scratch, &apart))
            continue;
        for (uint64_t rank = 0; rank < ranks; rank++) {
            const char *words =
                width == 1
                    ? ts_arena_printf(&c->search->scratch, "step %" PRIu64 " from %" PRIu64 " on axis %u", ranks, rank,
                                      c->axis)
                    : ts_arena_printf(&c->search->scratch,
                                      "shard %" PRIu64 " of %" PRIu64 " on axis %u, heads of %" PRIu64 " interleaved",
                                      rank, ranks, c->axis, width);
            if (!words || !ts_view_slice(&apart, c->axis + 1, rank, 1, 1, &c->search->scratch, &piece) ||
                !drop_axis(c->search, &piece, c->axis + 1, &layouts.view[c->large]))
                return;
            if (width == 1 && !drop_axis(c->search, &layouts.view[c->large], c->axis + 1, &layouts.view[c->large]))
                return;
            layouts.words[c->large] = ts_align_words(c->search, c->given->words[c->large], words);
            layouts.cost =
                c->given->cost + COST_CUT + (width > 1 ? COST_INTERLEAVED : COST_STEP) + (rank ? COST_SHIFT : 0u);
            if (c->search->hints->heads && c->size == c->search->hints->heads * width)
                layouts.cost = c->given->cost + COST_CUT + COST_INTERLEAVED / 2;
            layouts.family = c->family;
            layouts.limit = 2;
            ts_align_add_layouts(c->search, &layouts);
        }
    }
}

/* Fused projections are cut part by part: rank r holds its share of q, of k and of v, one after the other. */
static void add_fused_shares(const struct cutting *c, const uint64_t *parts, unsigned count)
{
    const struct ts_view *view = &c->given->view[c->large];
    const uint64_t ranks = c->size / c->need;
    for (unsigned i = 0; i < count; i++)
        if (parts[i] % ranks != 0)
            return;
    for (uint64_t rank = 0; rank < ranks; rank++) {
        struct ts_align_layouts layouts = *c->given;
        struct ts_view *shares = ts_arena_array(&c->search->scratch, count, sizeof *shares);
        const char *words;
        uint64_t begin = 0;
        for (unsigned i = 0; shares && i < count; begin += parts[i++])
            if (!ts_view_slice(view, c->axis, begin + rank * (parts[i] / ranks), parts[i] / ranks, 1,
                               &c->search->scratch, &shares[i]))
                return;
        if (!shares ||
            !ts_view_join(TS_JOIN_CONCAT, c->axis, shares, count, &c->search->scratch, &layouts.view[c->large]))
            return;
        words = ts_arena_printf(&c->search->scratch,
                                "shard %" PRIu64 " of %" PRIu64 " on axis %u, in %u parts %" PRIu64 "+%" PRIu64, rank,
                                ranks, c->axis, count, parts[0], parts[1]);
        if (words && count == 3)
            words = ts_arena_printf(&c->search->scratch, "%s+%" PRIu64, words, parts[2]);
        if (!words)
            return;
        layouts.words[c->large] = ts_align_words(c->search, c->given->words[c->large], words);
        layouts.moving = 1 - c->large;
        layouts.cost += COST_CUT + COST_FUSED + (c->search->hints->separate ? COST_ODD : 0);
        layouts.family = c->family;
        layouts.limit = 2;
        ts_align_add_layouts(c->search, &layouts);
    }
}

static void add_fused(const struct cutting *c)
{
    if (c->size % c->need != 0 || c->size / c->need > 64)
        return;
    if (c->size % 2 == 0)
        add_fused_shares(c, (uint64_t[2]){c->size / 2, c->size / 2}, 2);
    /* `group` query heads to each key and value head */
    for (uint64_t group = 1; group <= 16; group++)
        if (c->size % (group + 2) == 0) {
            uint64_t keys = c->size / (group + 2);
            add_fused_shares(c, (uint64_t[3]){group * keys, keys, keys}, 3);
        }
}

/* Several axes cut, each at its beginning or its end, both sides where each is longer somewhere. No other layout than
 * axis by axis; what cuts both sides must agree well to count at all. was_cut: sides that were cut before; both where
 * it has to agree in any case. */
static enum ts_status add_boxes(struct ts_align_search *search, const struct ts_align_layouts *given,
                                const bool was_cut[2], struct ts_error *error)
{
    const uint64_t least = given->view[0].count < given->view[1].count ? given->view[0].count : given->view[1].count;
    unsigned axes[MAX_CUTS], count = 0;
    bool both[2] = {was_cut[0], was_cut[1]};
    if (given->view[0].rank != given->view[1].rank)
        return TS_OK;
    for (unsigned i = 0; i < given->view[0].rank; i++) {
        uint64_t a = given->view[0].shape[i], b = given->view[1].shape[i];
        if (a == b)
            continue;
        if (count == MAX_CUTS || a == 0 || b == 0)
            return TS_OK;
        both[a < b] = true;
        axes[count++] = i;
    }
    for (unsigned ends = 0; ends < 1u << count; ends++) {
        struct ts_align_layouts layouts = *given;
        struct ts_align_fit fit;
        for (unsigned i = count; i-- > 0;) {
            unsigned side = layouts.view[0].shape[axes[i]] < layouts.view[1].shape[axes[i]];
            struct ts_view *view = &layouts.view[side];
            uint64_t size = view->shape[axes[i]], need = layouts.view[1 - side].shape[axes[i]];
            uint64_t start = ends >> i & 1 ? size - need : 0;
            const char *words = cut_words(&search->scratch, axes[i], start, need, size);
            if (!words || !ts_view_slice(view, axes[i], start, need, 1, &search->scratch, view))
                return TS_OK;
            layouts.words[side] = ts_align_words(search, layouts.words[side], words);
            layouts.cost += COST_CUT + (start ? COST_SHIFT : 0u);
        }
        layouts.limit = 1;
        layouts.whole_axes = true;
        if (both[0] && both[1]) {
            /* so few agree by chance, and a corner of each is not the tensor */
            if (layouts.view[0].count < TS_ALIGN_FEWEST || layouts.view[0].count < least / 4)
                continue;
            TS_TRY(ts_align_measure(search, &layouts.view[0], &layouts.view[1], 512, &fit, error));
            if (fit.fit < 2 * FOUND)
                TS_TRY(ts_align_measure(search, &layouts.view[0], &layouts.view[1], 8192, &fit, error));
            if (fit.fit >= FOUND)
                continue;
        }
        ts_align_add_layouts(search, &layouts);
    }
    return TS_OK;
}

static bool squeeze(struct ts_align_search *search, const struct ts_view *view, const char *before, struct ts_view *out,
                    const char **words)
{
    const char *text = "squeeze";
    *out = *view;
    for (unsigned i = 0, removed = 0; i < out->rank;) {
        if (out->shape[i] != 1) {
            i++;
            continue;
        }
        text = ts_arena_printf(&search->scratch, "%s %u", text, i + removed++);
        if (!text || !drop_axis(search, out, i, out))
            return false;
    }
    *words = out->rank == view->rank ? before : ts_align_words(search, before, text);
    return true;
}

static void swap(unsigned *one, unsigned *other)
{
    unsigned keep = *one;
    *one = *other;
    *other = keep;
}

/* The next order of the axes; false behind the last. */
static bool next_order(unsigned *order, unsigned count)
{
    unsigned low = count, high = count;
    while (--low > 0 && order[low - 1] > order[low])
        ;
    if (low == 0)
        return false;
    while (order[--high] < order[low - 1])
        ;
    swap(&order[low - 1], &order[high]);
    for (unsigned i = low, k = count - 1; i < k; i++, k--)
        swap(&order[i], &order[k]);
    return true;
}

/* The same with the axes of the smaller side in another order: several sequences, padded and with heads apart, against
 * one. */
static enum ts_status add_turned_boxes(struct ts_align_search *search, const struct ts_align_layouts *given,
                                       unsigned large, struct ts_error *error)
{
    const unsigned small = 1 - large, rank = given->view[small].rank;
    unsigned order[MAX_TURNED];
    if (rank < 2 || rank > MAX_TURNED || given->view[large].rank != rank || given->view[small].join != TS_JOIN_NONE)
        return TS_OK;
    for (unsigned i = 0; i < rank; i++)
        order[i] = i;
    while (next_order(order, rank)) {
        struct ts_align_layouts turned = *given;
        char text[32] = "permute";
        bool common = false; /* what has no axis in common is no piece of the other */
        for (unsigned i = 0; i < rank; i++) {
            snprintf(text + strlen(text), sizeof text - strlen(text), " %u", order[i]);
            common = common || given->view[small].shape[order[i]] == given->view[large].shape[i];
        }
        if (!common || !ts_view_permute(&given->view[small], order, &search->scratch, &turned.view[small]))
            continue;
        turned.words[small] = ts_align_words(search, given->words[small], rank == 2 ? "transpose" : text);
        turned.cost += COST_TURNED;
        TS_TRY(add_boxes(search, &turned, (bool[2]){true, true}, error));
    }
    return TS_OK;
}

/* As they are, and with one entry of one axis more that the larger side has. */
static enum ts_status add_several_cuts(struct ts_align_search *search, const struct ts_align_layouts *given,
                                       unsigned large, struct ts_error *error)
{
    struct ts_align_layouts squeezed = *given;
    for (unsigned side = 0; side < 2; side++)
        if (!squeeze(search, &given->view[side], given->words[side], &squeezed.view[side], &squeezed.words[side]))
            return TS_OK;
    TS_TRY(add_boxes(search, &squeezed, (bool[2]){false, false}, error));
    TS_TRY(add_turned_boxes(search, &squeezed, large, error));
    if (squeezed.view[large].rank != squeezed.view[1 - large].rank + 1)
        return TS_OK;
    for (unsigned axis = 0; axis < squeezed.view[large].rank; axis++) {
        uint64_t size = squeezed.view[large].shape[axis];
        for (uint64_t i = 0; i < size && i < 16; i++) {
            struct ts_align_layouts one = squeezed;
            if (!cut(search, &squeezed.view[large], axis, i, 1, squeezed.words[large], &one.view[large],
                     &one.words[large]))
                return TS_OK;
            one.cost += COST_CUT + (i ? COST_SHIFT : 0u);
            TS_TRY(add_boxes(search, &one, (bool[2]){large == 0, large == 1}, error));
            TS_TRY(add_turned_boxes(search, &one, large, error));
        }
    }
    return TS_OK;
}

/* How much of the axis makes the counts equal; 0 when no whole number of entries does. */
static uint64_t entries_needed(const struct ts_view *large, const struct ts_view *small, unsigned axis)
{
    uint64_t others = large->count / large->shape[axis];
    return small->count % others == 0 ? small->count / others : 0;
}

enum ts_status ts_align_add_slices(struct ts_align_search *search, const struct ts_align_layouts *given,
                                   struct ts_error *error)
{
    const unsigned large = given->view[0].count < given->view[1].count;
    const struct ts_view *view = &given->view[large];
    struct cutting c = {.search = search, .given = given, .large = large};
    double score;
    if (given->view[1 - large].count == 0)
        return TS_OK;
    for (unsigned step = 0; step < 2; step++) {
        for (c.axis = 0; c.axis < view->rank; c.axis++) {
            c.size = view->shape[c.axis];
            c.need = entries_needed(view, &given->view[1 - large], c.axis);
            if (c.need == 0 || c.size == 1)
                continue;
            c.family = 1 + c.axis;
            if (step == 0) {
                add_likely(&c);
                continue;
            }
            TS_TRY(scan_offsets(&c, error));
            add_interleaved(&c);
            add_fused(&c);
        }
        TS_TRY(ts_align_best_score(search, &score, error));
        if (score < FOUND)
            return TS_OK;
    }
    /* all sequences of a batch before one of them */
    TS_TRY(ts_align_add_packed(search, given, error));
    TS_TRY(ts_align_best_score(search, &score, error));
    return score < FOUND ? TS_OK : add_several_cuts(search, given, large, error);
}

enum ts_status ts_align_look_at_rest(struct ts_align_search *search, struct ts_align_candidate *winner,
                                     struct ts_error *error)
{
    const struct ts_align_cut *cut = &winner->cut;
    double values[2 * 1024];
    size_t components;
    unsigned side;
    if (!cut->of || (cut->of->join != TS_JOIN_NONE && cut->of->join != TS_JOIN_CONCAT) ||
        cut->of->shape[cut->axis] % cut->count == 0)
        return TS_OK;
    components = ts_type_info(cut->of->tensor->type)->components;
    for (unsigned part = 0; part < 2; part++) {
        uint64_t start = part ? cut->start + cut->count : 0;
        uint64_t count = part ? cut->of->shape[cut->axis] - start : cut->start;
        struct ts_view rest;
        if (count == 0)
            continue;
        if (!ts_view_slice(cut->of, cut->axis, start, count, 1, &search->scratch, &rest) || rest.count > REST_LIMIT)
            return TS_OK;
        for (uint64_t first = 0; first < rest.count; first += 1024) {
            size_t now = rest.count - first < 1024 ? (size_t)(rest.count - first) : 1024;
            TS_TRY(ts_view_read_f64(&rest, first, now, values, error));
            for (size_t i = 0; i < now * components; i++)
                if (values[i] != 0)
                    return TS_OK;
        }
    }
    side = winner->view[1].tensor == cut->of->tensor && winner->view[0].tensor != cut->of->tensor;
    winner->zeros = true;
    winner->words[side] = ts_arena_printf(&search->scratch, "%s (the rest is zero)", winner->words[side]);
    return winner->words[side] ? TS_OK : ts_fail_memory(error);
}
