/* Owns the layouts that two shapes of equal counts allow, and the words for them.
 *
 * One side, the fixed one, keeps the order of its axes; the other moves. Each axis of the moving side is cut into
 * pieces, and each axis of the fixed side is filled with pieces, from the outermost: a piece is all that is left of a
 * moving axis when that divides what is still needed, or as much as is needed when that divides what is left. [9,128]
 * is filled from [4,9,32] so: 9 from axis 1; then 4 from axis 0 and 32 from axis 2. Pieces of one axis of the fixed
 * side that do not lie side by side on the moving side stay axes of their own, and the fixed side is split to match. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/align_search.h"

#define MAX_AXES    6 /* that are not 1; 720 orders */
#define MAX_PIECES  12
#define MAX_FOUND   2000
#define MAX_STEPS   200000 /* of the search, which may run into dead ends */
#define MOST_TURNED 24     /* orders of the axes beside which heads are turned */
#define MAX_FACTOR  65536  /* of an axis whose rows are in another order: no head is wider, no model has more heads */

/* What plainness is made of; only the order matters. An inversion of two axes costs 1. */
#define COST_SPLIT  2  /* of the moving side */
#define COST_MERGE  1  /* on the moving side, or splitting the fixed one */
#define COST_INSIDE 3  /* pieces of one axis swapped */
#define COST_FLAT   40 /* the same numbers in the same order, though the axes say otherwise */

struct piece {
    uint64_t size;
    uint64_t inner; /* entries of its axis that lie inside one step of it */
    unsigned axis;  /* of the moving side */
    unsigned target;
};

struct layout {
    unsigned count, cost;
    bool flat;
    uint64_t hash; /* of the order of elements: layouts with different ones differ */
    struct piece pieces[MAX_PIECES];
};

/* Both sides without their axes of one element, except those that both begin with. */
struct frame {
    const struct ts_align_layouts *given;
    unsigned fixed, moving, lead;
    unsigned rank[2];
    uint64_t shape[2][TS_MAX_RANK];
    unsigned axis[2][TS_MAX_RANK]; /* where they stand in the view */
};

struct enumeration {
    const struct frame *frame;
    uint64_t left[MAX_AXES],
        inside[MAX_AXES]; /* of each moving axis: what is not placed, and what was cut off inside */
    struct layout now;
    struct layout *found;
    size_t count;
    unsigned steps;
    bool cut_inside;
};

static void frame_init(const struct ts_align_layouts *given, struct frame *frame)
{
    const struct ts_view *a = &given->view[0], *b = &given->view[1];
    frame->given = given;
    frame->moving = given->moving;
    frame->fixed = 1 - given->moving;
    frame->lead = 0;
    while (frame->lead < a->rank && frame->lead < b->rank && a->shape[frame->lead] == 1 && b->shape[frame->lead] == 1)
        frame->lead++;
    for (unsigned side = 0; side < 2; side++) {
        const struct ts_view *view = &given->view[side];
        frame->rank[side] = 0;
        for (unsigned i = frame->lead; i < view->rank; i++) {
            if (view->shape[i] == 1)
                continue;
            frame->axis[side][frame->rank[side]] = i;
            frame->shape[side][frame->rank[side]++] = view->shape[i];
        }
    }
}

static uint64_t piece_stride(const struct frame *frame, const struct piece *piece)
{
    uint64_t stride = piece->inner;
    for (unsigned i = piece->axis + 1; i < frame->rank[frame->moving]; i++)
        stride *= frame->shape[frame->moving][i];
    return stride;
}

/* The second continues the first: together they are one axis of the moving side. */
static bool chained(const struct frame *frame, const struct piece *first, const struct piece *second)
{
    return piece_stride(frame, first) == second->size * piece_stride(frame, second);
}

/* The same order of elements, however it is cut. */
static bool same_layout(const struct frame *frame, const struct layout *one, const struct layout *other)
{
    unsigned i = 0, j = 0;
    while (i < one->count && j < other->count) {
        uint64_t size = one->pieces[i].size, other_size = other->pieces[j].size;
        while (i + 1 < one->count && chained(frame, &one->pieces[i], &one->pieces[i + 1]))
            size *= one->pieces[++i].size;
        while (j + 1 < other->count && chained(frame, &other->pieces[j], &other->pieces[j + 1]))
            other_size *= other->pieces[++j].size;
        if (size != other_size || piece_stride(frame, &one->pieces[i++]) != piece_stride(frame, &other->pieces[j++]))
            return false;
    }
    return i == one->count && j == other->count;
}

static uint64_t hash_layout(const struct frame *frame, const struct layout *layout)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < layout->count; i++) {
        uint64_t size = layout->pieces[i].size;
        while (i + 1 < layout->count && chained(frame, &layout->pieces[i], &layout->pieces[i + 1]))
            size *= layout->pieces[++i].size;
        hash = (hash ^ size) * UINT64_C(0x9e3779b97f4a7c15);
        hash = (hash ^ hash >> 29 ^ piece_stride(frame, &layout->pieces[i])) * UINT64_C(0xbf58476d1ce4e5b9);
    }
    return hash;
}

static unsigned layout_cost(const struct frame *frame, const struct layout *layout)
{
    unsigned cost = (layout->count - frame->rank[frame->moving]) * COST_SPLIT +
                    (layout->count - frame->rank[frame->fixed]) * COST_MERGE;
    for (unsigned i = 0; i < layout->count; i++)
        for (unsigned k = i + 1; k < layout->count; k++) {
            const struct piece *first = &layout->pieces[i], *second = &layout->pieces[k];
            if (first->axis == second->axis)
                cost += first->inner < second->inner ? COST_INSIDE : 0;
            else
                cost += first->axis > second->axis;
        }
    return cost;
}

static void record(struct enumeration *e)
{
    e->now.cost = layout_cost(e->frame, &e->now);
    e->now.hash = hash_layout(e->frame, &e->now);
    for (size_t i = 0; i < e->count; i++)
        if (e->found[i].hash == e->now.hash && same_layout(e->frame, &e->found[i], &e->now)) {
            if (e->now.cost < e->found[i].cost)
                e->found[i] = e->now;
            return;
        }
    e->found[e->count++] = e->now;
}

/* How much of what is left of an axis goes where `need` is needed; 1 for nothing. */
static uint64_t piece_size(const struct enumeration *e, uint64_t need, uint64_t left)
{
    if (need % left == 0)
        return left;
    if (left % need == 0)
        return need;
    while (e->frame->given->deep && need) { /* Euclid */
        uint64_t rest = left % need;
        left = need;
        need = rest;
    }
    return need ? 1 : left;
}

/* Fills fixed axis `target`, of which `need` entries per outer step are still to be found. The depth is bounded by
 * MAX_PIECES. */
static void place(struct enumeration *e, unsigned target, uint64_t need)
{
    const struct frame *frame = e->frame;
    if (e->count == MAX_FOUND || e->steps++ > MAX_STEPS)
        return;
    while (need == 1 && target + 1 < frame->rank[frame->fixed])
        need = frame->shape[frame->fixed][++target];
    if (need == 1) {
        record(e);
        return;
    }
    if (e->now.count == MAX_PIECES)
        return;
    for (unsigned axis = 0; axis < frame->rank[frame->moving]; axis++) {
        uint64_t left = e->left[axis], inside = e->inside[axis];
        struct piece *piece = &e->now.pieces[e->now.count];
        *piece = (struct piece){.size = piece_size(e, need, left), .axis = axis, .target = target};
        if (piece->size == 1)
            continue;
        piece->inner = left / piece->size * inside;
        e->now.count++;
        e->left[axis] = left / piece->size;
        place(e, target, need / piece->size);
        if (e->cut_inside && left > piece->size) {
            piece->inner = inside;
            e->inside[axis] = inside * piece->size;
            place(e, target, need / piece->size);
        }
        e->left[axis] = left;
        e->inside[axis] = inside;
        e->now.count--;
    }
}

static void enumerate(struct enumeration *e)
{
    const struct frame *frame = e->frame;
    for (unsigned i = 0; i < frame->rank[frame->moving]; i++) {
        e->left[i] = frame->shape[frame->moving][i];
        e->inside[i] = 1;
    }
    e->now.count = 0;
    e->steps = 0;
    place(e, 0, frame->rank[frame->fixed] ? frame->shape[frame->fixed][0] : 1);
}

/* How the moving side is cut and where the pieces go. */
struct plan {
    unsigned count;
    unsigned sorted[MAX_PIECES];   /* pieces in the order in which they lie on the moving side */
    unsigned position[MAX_PIECES]; /* of each piece there */
    unsigned groups;               /* axes of the result */
    unsigned group[MAX_PIECES];    /* of each piece */
    uint64_t size[MAX_PIECES];     /* of each group */
};

/* The strides of the moving view let two pieces that are chained be one axis: between those of a slice may lie what was
 * left out. */
static bool mergeable(const struct frame *frame, const struct piece *first, const struct piece *second)
{
    const struct ts_view *view = &frame->given->view[frame->moving];
    int64_t strides[2];
    if (view->join != TS_JOIN_NONE)
        return true;
    strides[0] = view->strides[frame->axis[frame->moving][first->axis]] * (int64_t)first->inner;
    strides[1] = view->strides[frame->axis[frame->moving][second->axis]] * (int64_t)second->inner;
    return strides[0] == strides[1] * (int64_t)second->size;
}

static void make_plan(const struct frame *frame, const struct layout *layout, struct plan *plan)
{
    plan->count = layout->count;
    plan->groups = 0;
    for (unsigned i = 0; i < layout->count; i++) {
        const struct piece *piece = &layout->pieces[i];
        unsigned before = 0;
        for (unsigned k = 0; k < layout->count; k++) {
            const struct piece *other = &layout->pieces[k];
            before += other->axis < piece->axis || (other->axis == piece->axis && other->inner > piece->inner);
        }
        plan->position[i] = before;
        plan->sorted[before] = i;
        if (i == 0 || piece[-1].target != piece->target || !chained(frame, &piece[-1], piece) ||
            !mergeable(frame, &piece[-1], piece))
            plan->size[plan->groups++] = 1;
        plan->group[i] = plan->groups - 1;
        plan->size[plan->groups - 1] *= piece->size;
    }
}

static void append(struct ts_buffer *words, const char *separator, const char *text)
{
    if (words->size)
        ts_buffer_string(words, separator);
    ts_buffer_string(words, text);
}

static void say_squeeze(const struct frame *frame, unsigned side, struct ts_buffer *words)
{
    const struct ts_view *view = &frame->given->view[side];
    unsigned ones = view->rank - frame->lead - frame->rank[side], next = 0;
    if (!ones)
        return;
    append(words, ", ", "squeeze");
    if (ones == view->rank)
        return;
    for (unsigned i = frame->lead; i < view->rank; i++) {
        if (next < frame->rank[side] && frame->axis[side][next] == i)
            next++;
        else
            ts_buffer_printf(words, " %u", i);
    }
}

/* "split 1 as 4x32": one axis into `count` sizes. */
static void say_split(unsigned axis, const uint64_t *sizes, unsigned count, struct ts_buffer *words)
{
    append(words, ", ", "split");
    ts_buffer_printf(words, " %u as", axis);
    for (unsigned i = 0; i < count; i++)
        ts_buffer_printf(words, "%s%" PRIu64, i ? "x" : " ", sizes[i]);
}

/* Axis i of the result is axis order[i]. Two axes are transposed, one exchange is a swap. */
static void say_permute(const unsigned *order, unsigned count, unsigned lead, struct ts_buffer *words)
{
    unsigned moved = 0, first = 0, second = 0;
    for (unsigned i = count; i-- > 0;)
        if (order[i] != i) {
            second = moved++ ? second : i;
            first = i;
        }
    if (!moved)
        return;
    if (moved == 2 && lead + count == 2) {
        append(words, ", ", "transpose");
    } else if (moved == 2) {
        append(words, ", ", "swap");
        ts_buffer_printf(words, " %u %u", lead + first, lead + second);
    } else {
        append(words, ", ", "permute");
        for (unsigned i = 0; i < lead; i++)
            ts_buffer_printf(words, " %u", i);
        for (unsigned i = 0; i < count; i++)
            ts_buffer_printf(words, " %u", lead + order[i]);
    }
}

/* Splits and merges from the last axis to the first, so that the numbers of the others hold. */
static void say_moving(const struct frame *frame, const struct layout *layout, const struct plan *plan,
                       struct ts_buffer *words)
{
    uint64_t sizes[MAX_PIECES];
    say_squeeze(frame, frame->moving, words);
    for (unsigned axis = frame->rank[frame->moving]; axis-- > 0;) {
        unsigned count = 0;
        for (unsigned i = 0; i < plan->count; i++)
            if (layout->pieces[plan->sorted[i]].axis == axis)
                sizes[count++] = layout->pieces[plan->sorted[i]].size;
        if (count > 1)
            say_split(frame->lead + axis, sizes, count, words);
    }
    say_permute(plan->position, plan->count, frame->lead, words);
    for (unsigned last = plan->count; last-- > 0;) {
        unsigned first = last;
        while (first > 0 && plan->group[first - 1] == plan->group[last])
            first--;
        if (first < last) {
            append(words, ", ", "merge");
            for (unsigned i = first; i <= last; i++)
                ts_buffer_printf(words, " %u", frame->lead + i);
        }
        last = first;
    }
}

static void say_fixed(const struct frame *frame, const struct layout *layout, const struct plan *plan,
                      struct ts_buffer *words)
{
    uint64_t sizes[MAX_PIECES];
    say_squeeze(frame, frame->fixed, words);
    for (unsigned target = frame->rank[frame->fixed]; target-- > 0;) {
        unsigned count = 0;
        for (unsigned i = 0; i < plan->count; i++)
            if (layout->pieces[i].target == target && (i == 0 || plan->group[i] != plan->group[i - 1]))
                sizes[count++] = plan->size[plan->group[i]];
        if (count > 1)
            say_split(frame->lead + target, sizes, count, words);
    }
}

/* Cuts, moves and merges. False when the strides of a sliced or joined view do not allow it. */
static bool make_views(struct ts_align_search *search, const struct frame *frame, const struct layout *layout,
                       const struct plan *plan, struct ts_view view[2])
{
    const struct ts_view *given = frame->given->view;
    uint64_t shape[TS_MAX_RANK + MAX_PIECES];
    unsigned order[TS_MAX_RANK + MAX_PIECES], lead = frame->lead;
    struct ts_view cut, moved;
    if (lead + plan->count > TS_MAX_RANK)
        return false;
    for (unsigned i = 0; i < lead; i++) {
        shape[i] = 1;
        order[i] = i;
    }
    for (unsigned i = 0; i < plan->count; i++) {
        shape[lead + i] = layout->pieces[plan->sorted[i]].size;
        order[lead + i] = lead + plan->position[i];
    }
    if (!ts_view_reshape(&given[frame->moving], shape, lead + plan->count, &search->scratch, &cut) ||
        !ts_view_permute(&cut, order, &search->scratch, &moved))
        return false;
    memcpy(shape + lead, plan->size, plan->groups * sizeof *shape);
    return ts_view_reshape(&moved, shape, lead + plan->groups, &search->scratch, &view[frame->moving]) &&
           ts_view_reshape(&given[frame->fixed], shape, lead + plan->groups, &search->scratch, &view[frame->fixed]);
}

static bool make_flat(struct ts_align_search *search, const struct frame *frame, struct ts_view view[2],
                      struct ts_buffer *words)
{
    uint64_t shape[TS_MAX_RANK];
    unsigned rank = frame->lead + frame->rank[frame->fixed];
    for (unsigned i = 0; i < rank; i++)
        shape[i] = i < frame->lead ? 1 : frame->shape[frame->fixed][i - frame->lead];
    for (unsigned side = 0; side < 2; side++)
        if (!ts_view_reshape(&frame->given->view[side], shape, rank, &search->scratch, &view[side]))
            return false;
    say_squeeze(frame, frame->fixed, &words[frame->fixed]);
    append(&words[frame->moving], ", ", "read as [");
    for (unsigned i = 0; i < rank; i++)
        ts_buffer_printf(&words[frame->moving], "%s%" PRIu64, i ? "," : "", shape[i]);
    ts_buffer_byte(&words[frame->moving], ']');
    return true;
}

/* The axis-th name of "tokens heads dim" or "tokens,heads"; what follows a bracket ("heads[tp]") is no part of it. */
static bool axis_name(const char *names, unsigned axis, const char **name, size_t *size)
{
    static const char separators[] = " ,;";
    for (const char *at = names + strspn(names, separators); *at; at += strspn(at, separators)) {
        size_t length = strcspn(at, separators);
        if (axis-- == 0) {
            *name = at;
            *size = strcspn(at, " ,;[");
            return true;
        }
        at += length;
    }
    return false;
}

static unsigned count_names(const char *names)
{
    unsigned count = 0;
    const char *name;
    size_t size;
    while (names && axis_name(names, count, &name, &size))
        count++;
    return count;
}

/* Names, where both sides have one for every axis, lead each axis to its namesake. */
static bool names_agree(const struct ts_align_search *search, const struct frame *frame, const struct layout *layout)
{
    const char *names[2] = {search->hints->axes_a, search->hints->axes_b}, *one, *other;
    size_t one_size, other_size;
    if (layout->flat || layout->count == 0 || layout->count != frame->rank[0] || layout->count != frame->rank[1])
        return false;
    for (unsigned side = 0; side < 2; side++)
        if (count_names(names[side]) != frame->given->view[side].rank)
            return false;
    for (unsigned i = 0; i < layout->count; i++)
        if (!axis_name(names[frame->fixed], frame->axis[frame->fixed][layout->pieces[i].target], &one, &one_size) ||
            !axis_name(names[frame->moving], frame->axis[frame->moving][layout->pieces[i].axis], &other, &other_size) ||
            one_size != other_size || memcmp(one, other, one_size) != 0)
            return false;
    return true;
}

static void add_layout(struct ts_align_search *search, const struct frame *frame, const struct layout *layout)
{
    struct ts_align_candidate made = {.family = frame->given->family,
                                      .ranks_of = frame->given->ranks_of,
                                      .lacking = frame->given->lacking,
                                      .cut = frame->given->cut},
                              *candidate;
    struct ts_buffer words[2];
    struct plan plan;
    bool fits;
    ts_buffer_init(&words[0], 4096);
    ts_buffer_init(&words[1], 4096);
    if (layout->flat) {
        fits = make_flat(search, frame, made.view, words);
    } else {
        make_plan(frame, layout, &plan);
        fits = make_views(search, frame, layout, &plan, made.view);
        if (fits) {
            say_moving(frame, layout, &plan, &words[frame->moving]);
            say_fixed(frame, layout, &plan, &words[frame->fixed]);
        }
    }
    if (fits && (candidate = ts_align_add(search))) {
        made.cost = frame->given->cost + layout->cost;
        made.named = names_agree(search, frame, layout);
        for (unsigned side = 0; side < 2; side++)
            made.words[side] =
                ts_align_words(search, frame->given->words[side], words[side].size ? words[side].data : "");
        *candidate = made;
    }
    ts_buffer_release(&words[0]);
    ts_buffer_release(&words[1]);
}

static int plainer_first(const void *one, const void *other)
{
    const struct layout *a = one, *b = other;
    return a->cost < b->cost ? -1 : a->cost > b->cost;
}

/* The numbers one after the other, as if only the shape had been written wrong. */
static void record_flat(const struct frame *frame, struct enumeration *e)
{
    struct layout flat = {.count = frame->rank[frame->moving], .flat = true, .cost = COST_FLAT};
    for (unsigned i = 0; i < flat.count && i < MAX_PIECES; i++)
        flat.pieces[i] = (struct piece){.size = frame->shape[frame->moving][i], .inner = 1, .axis = i};
    for (size_t i = 0; i < e->count; i++)
        if (same_layout(frame, &e->found[i], &flat))
            return;
    e->found[e->count++] = flat;
}

/* Axis by axis; for shapes that are equal but for ones, also where there are too many axes to permute. */
static void record_identity(const struct frame *frame, struct enumeration *e)
{
    if (frame->rank[0] != frame->rank[1] || frame->rank[0] > MAX_PIECES)
        return;
    e->now.count = frame->rank[0];
    for (unsigned i = 0; i < e->now.count; i++) {
        if (frame->shape[0][i] != frame->shape[1][i])
            return;
        e->now.pieces[i] = (struct piece){.size = frame->shape[0][i], .inner = 1, .axis = i, .target = i};
    }
    record(e);
}

void ts_align_add_layouts(struct ts_align_search *search, const struct ts_align_layouts *given)
{
    struct frame frame;
    struct enumeration e = {.frame = &frame};
    frame_init(given, &frame);
    e.found = malloc((MAX_FOUND + 1) * sizeof *e.found);
    if (!e.found)
        return;
    record_identity(&frame, &e);
    if (frame.rank[0] <= MAX_AXES && frame.rank[1] <= MAX_AXES && !given->in_order) {
        enumerate(&e);
        if (!given->whole_axes) {
            e.cut_inside = true; /* after the others: when there are too many, these are the ones to lose */
            enumerate(&e);
        }
    }
    if (given->whole_axes) {
        size_t kept = 0;
        for (size_t i = 0; i < e.count; i++)
            if (e.found[i].count == frame.rank[0] && e.found[i].count == frame.rank[1])
                e.found[kept++] = e.found[i];
        e.count = kept;
    } else if (frame.rank[frame.moving] <= MAX_PIECES) {
        record_flat(&frame, &e);
    }
    qsort(e.found, e.count, sizeof *e.found, plainer_first);
    for (size_t i = 0; i < e.count && i < given->limit; i++)
        add_layout(search, &frame, &e.found[i]);
    free(e.found);
}

/* Axis `axis` of both sides, cut into w * x * y * z on the moving side, with x and y exchanged. */
static void add_row_order(struct ts_align_search *search, const struct frame *frame, unsigned axis,
                          const uint64_t cut[4])
{
    static const unsigned order[4] = {0, 2, 1, 3};
    struct layout layout = {.cost = 20};
    for (unsigned i = 0; i < frame->rank[0]; i++) {
        if (i != axis) {
            layout.pieces[layout.count++] =
                (struct piece){.size = frame->shape[0][i], .inner = 1, .axis = i, .target = i};
            continue;
        }
        for (unsigned k = 0; k < 4; k++) {
            uint64_t inner = 1;
            for (unsigned j = order[k] + 1; j < 4; j++)
                inner *= cut[j];
            if (cut[order[k]] > 1)
                layout.pieces[layout.count++] =
                    (struct piece){.size = cut[order[k]], .inner = inner, .axis = i, .target = i};
        }
    }
    /* the number of heads, where it is known, is the likely outermost factor */
    if (search->hints->heads && cut[0] == search->hints->heads)
        layout.cost -= 10;
    add_layout(search, frame, &layout);
}

void ts_align_add_row_orders(struct ts_align_search *search, const struct ts_align_layouts *given)
{
    struct frame frame;
    frame_init(given, &frame);
    if (frame.rank[0] > MAX_AXES)
        return;
    for (unsigned axis = 0; axis < frame.rank[0]; axis++) {
        uint64_t size = frame.shape[0][axis];
        /* rotary embeddings: each head as halves on one side and as pairs on the other */
        for (uint64_t half = 2; half <= size / 2 && half <= MAX_FACTOR; half++) {
            if (size % (2 * half) != 0)
                continue;
            add_row_order(search, &frame, axis, (uint64_t[4]){size / 2 / half, 2, half, 1});
            if (half > 2)
                add_row_order(search, &frame, axis, (uint64_t[4]){size / 2 / half, half, 2, 1});
        }
        /* fused projections: q, k, v (or gate, up) one after the other, or head by head (rank by rank) */
        for (uint64_t parts = 2; parts <= 3; parts++)
            for (uint64_t heads = 2; heads <= size / parts && heads <= MAX_FACTOR; heads++) {
                if (size % (parts * heads) != 0 || (parts == 2 && heads * 2 == size))
                    continue;
                add_row_order(search, &frame, axis, (uint64_t[4]){1, parts, heads, size / parts / heads});
                if (parts != heads)
                    add_row_order(search, &frame, axis, (uint64_t[4]){1, heads, parts, size / parts / heads});
            }
    }
}

/* Axes in another order, and the last one as halves on one side and as pairs on the other. */
void ts_align_add_turned_heads(struct ts_align_search *search, const struct ts_align_layouts *given)
{
    struct ts_align_layouts orders = *given;
    const size_t first = search->count;
    size_t end;
    orders.whole_axes = true;
    orders.limit = MOST_TURNED;
    ts_align_add_layouts(search, &orders);
    end = search->count;
    for (size_t i = first; i < end; i++) {
        const struct ts_align_candidate one = search->list[i];
        struct ts_align_layouts layouts = {.view = {one.view[0], one.view[1]},
                                           .words = {one.words[0], one.words[1]},
                                           .moving = given->moving,
                                           .cost = one.cost};
        struct frame frame;
        uint64_t size;
        unsigned last;
        frame_init(&layouts, &frame);
        if (!frame.rank[0] || frame.rank[0] > MAX_AXES)
            continue;
        last = frame.rank[0] - 1;
        size = frame.shape[0][last];
        if (size % 2 || size < 4)
            continue;
        add_row_order(search, &frame, last, (uint64_t[4]){1, 2, size / 2, 1});
        if (size > 4)
            add_row_order(search, &frame, last, (uint64_t[4]){1, size / 2, 2, 1});
    }
}
