/* Owns the pairing of what names leave over: tensors whose values are the same in any order, and no others'. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "pair/pairing.h"
#include "pair/sketch.h"
#include "pair/sketch_tree.h"

/* Sketches of bf16 copies of fp32 tensors are 0.01 apart, those of norm weights, which vary little around 1, 0.05; of
 * some hundred unrelated tensors of one distribution the nearest is 0.15 away, or 0.05 when they are alike in a special
 * way. So the best must be near, and the next one much further away; what slips through is looked at element by element
 * in the end. */
#define CLOSE   0.08
#define FURTHER 4
#define APART   0.02
/* How far the same values in another order count as apart. */
#define REORDERED 0.03
/* Norms differ by no more than this where sketches are near. */
#define NORMS 0.1
/* What found its partner is nobody's rival any more, so what is left is looked at again, as long as that helps. */
#define MOST_LOOKS 4
/* How near two must be, and how many times further away the next one. */
struct nearness {
    double close, further;
};
static const struct nearness by_sketch = {CLOSE, FURTHER};
/* Where the values of both are looked at before they are taken for one: errors of 0.015 that are not rounding may well
 * put sketches 0.1 apart. */
static const struct nearness by_values = {0.15, 1.5};
/* Fewer elements prove nothing. */
#define FEWEST 8
/* Elements of one side that are walked, some seconds' worth; beyond that names have to do. */
#define MOST ((uint64_t)1 << 29)
/* The error up to which two tensors are surely one, on so many runs of 16 elements. */
#define SURE      0.05
#define SURE_RUNS 32

struct leftover {
    size_t index;
    struct ts_sketch sketch;
    size_t best; /* in the other list; SIZE_MAX */
};

struct leftovers {
    const struct ts_bundle *bundle;
    struct ts_progress *progress;
    struct leftover *list;
    size_t count;
    atomic_size_t failed; /* the first that could not be read, or SIZE_MAX */
};

/* Sizes that occur on a side, ascending. */
static bool sizes_left(const struct ts_side *side, struct ts_arena *arena, uint64_t **sizes, size_t *count)
{
    *sizes = ts_arena_array(arena, side->count, sizeof **sizes);
    *count = 0;
    if (!*sizes)
        return false;
    for (size_t i = 0; i < side->count; i++)
        if (!side->taken[i])
            (*sizes)[(*count)++] = side->bundle->tensors[i]->count;
    if (*count)
        qsort(*sizes, *count, sizeof **sizes, ts_by_number);
    return true;
}

/* only: those that are looked at, or NULL for all. */
static bool gather(const struct ts_side *side, const bool *only, const uint64_t *sizes, size_t size_count,
                   struct ts_arena *arena, struct leftovers *out, uint64_t *elements)
{
    size_t *indices;
    *out = (struct leftovers){.bundle = side->bundle, .failed = SIZE_MAX};
    indices = ts_arena_array(arena, side->count, sizeof *indices);
    *elements = 0;
    if (!indices)
        return false;
    for (size_t i = 0; i < side->count; i++) {
        const uint64_t count = side->bundle->tensors[i]->count;
        if (side->taken[i] || (only && !only[i]) || count < FEWEST || !size_count ||
            !bsearch(&count, sizes, size_count, sizeof *sizes, ts_by_number))
            continue;
        indices[out->count++] = i;
        *elements = *elements > MOST ? *elements : *elements + count;
    }
    if (!(out->list = ts_arena_array(arena, out->count, sizeof *out->list)))
        return false;
    for (size_t i = 0; i < out->count; i++) {
        out->list[i].best = SIZE_MAX;
        out->list[i].index = indices[i];
    }
    return true;
}

static void sketch_one(void *context, uint64_t index, unsigned worker)
{
    struct leftovers *left = context;
    struct leftover *one = &left->list[index];
    struct ts_error ignored;
    size_t first = atomic_load(&left->failed);
    (void)worker;
    if (ts_sketch_make(left->bundle->tensors[one->index], &one->sketch, &ignored) != TS_OK)
        while (index < first && !atomic_compare_exchange_weak(&left->failed, &first, (size_t)index))
            ;
    ts_progress_add(left->progress, left->bundle->tensors[one->index]->bytes);
}

static enum ts_status sketch_all(struct ts_pairer *pairer, struct leftovers *left, struct ts_error *error)
{
    left->progress = pairer->progress;
    if (pairer->pool)
        ts_pool_run(pairer->pool, left->count, sketch_one, left);
    else
        for (size_t i = 0; i < left->count; i++)
            sketch_one(left, i, 0);
    /* an error is larger than a sketch, and so it is not kept for each: the first is met again */
    for (size_t i = left->failed; i < left->count; i++)
        TS_TRY(ts_sketch_make(left->bundle->tensors[left->list[i].index], &left->list[i].sketch, error));
    return TS_OK;
}

/* By size, then by norm: only neighbours can be equal. */
static int by_norm(const void *a, const void *b)
{
    const struct leftover *left = a, *right = b;
    if (left->sketch.count != right->sketch.count)
        return left->sketch.count < right->sketch.count ? -1 : 1;
    if (left->sketch.norm != right->sketch.norm)
        return left->sketch.norm < right->sketch.norm ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* Bags of values may be equal in another order. For equal shapes the projection tells, so that of two such tensors the
 * one in the same order is nearer; without a better one the other will do. From `limit` on nothing is exact. */
static double distance(const struct leftovers *a, const struct leftover *one, const struct leftovers *b,
                       const struct leftover *other, double limit)
{
    double apart = ts_sketch_distance_below(&one->sketch, &other->sketch, limit);
    if (apart < CLOSE && ts_tensor_same_shape(a->bundle->tensors[one->index], b->bundle->tensors[other->index]))
        apart = fmax(apart, fmin(fabs(one->sketch.projection - other->sketch.projection), REORDERED));
    return apart;
}

/* The tensors of one side as a tree for each size. */
struct trees {
    const struct leftovers *of;
    struct ts_sketch_point *points;
};

/* Where those of this size begin, or end. */
static size_t bound_of_size(const struct leftovers *of, uint64_t count, bool end)
{
    size_t low = 0, high = of->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (of->list[middle].sketch.count < count || (end && of->list[middle].sketch.count == count))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_trees(const struct leftovers *of, struct ts_arena *arena, struct trees *trees)
{
    *trees = (struct trees){of, ts_arena_array(arena, of->count, sizeof *trees->points)};
    if (!trees->points)
        return false;
    for (size_t i = 0; i < of->count; i++)
        trees->points[i] = ts_sketch_point(&of->list[i].sketch, i);
    for (size_t from = 0, to; from < of->count; from = to) {
        to = bound_of_size(of, of->list[from].sketch.count, true);
        ts_sketch_tree_build(trees->points + from, to - from);
    }
    return true;
}

/* One tensor that looks for its like. */
struct nearest {
    const struct leftovers *from, *to;
    const struct leftover *one;
    size_t best;
    double distance, second;
};

/* Keeps the nearest two. */
static void visit_near(void *context, size_t at, double *limit)
{
    struct nearest *nearest = context;
    double apart = distance(nearest->from, nearest->one, nearest->to, &nearest->to->list[at], *limit);
    if (!(apart < *limit))
        return;
    if (apart < nearest->distance) {
        nearest->second = nearest->distance;
        nearest->distance = apart;
        nearest->best = at;
    } else {
        nearest->second = apart;
    }
    if (nearest->second < APART) /* two that are this near already are too many, whatever else there is */
        *limit = -1;
    else
        *limit = fmin(*limit, nearest->second);
}

/* Looks for one more, of about the same norm: there need not be a nearer one. */
static void visit_rivals(void *context, size_t at, double *limit)
{
    struct nearest *nearest = context;
    const struct leftover *other = &nearest->to->list[at];
    const double norm = nearest->one->sketch.norm;
    double apart;
    if (at == nearest->best || other->sketch.norm < norm * (1 - NORMS) || other->sketch.norm * (1 - NORMS) > norm)
        return;
    apart = distance(nearest->from, nearest->one, nearest->to, other, *limit);
    if (apart < *limit) {
        nearest->second = apart;
        *limit = -1;
    }
}

struct search {
    const struct leftovers *from;
    struct trees trees;
    struct nearness nearness;
};

static void search_one(void *context, uint64_t index, unsigned worker)
{
    const struct search *search = context;
    const struct leftovers *to = search->trees.of;
    struct leftover *one = &search->from->list[index];
    double limit;
    struct nearest nearest = {search->from, to, one, SIZE_MAX, INFINITY, INFINITY};
    const size_t start = bound_of_size(to, one->sketch.count, false),
                 count = bound_of_size(to, one->sketch.count, true) - start;
    const struct ts_sketch_point *points = search->trees.points + start;
    (void)worker;
    if (one->best != SIZE_MAX || one->sketch.constant || atomic_load(&ts_cancelled))
        return;
    ts_sketch_tree_search(points, count, &one->sketch, search->nearness.close, visit_near, &nearest);
    if (!(nearest.distance < search->nearness.close))
        return;
    limit = fmax(APART, search->nearness.further * nearest.distance);
    if (limit > search->nearness.close && !(nearest.second < limit)) /* a rival may be further away than what is near */
        ts_sketch_tree_search(points, count, &one->sketch, limit, visit_rivals, &nearest);
    if (!(nearest.second < limit))
        one->best = nearest.best;
}

/* For each of `from` the one of `to` that is close while no other is. Both are sorted by norm. */
static enum ts_status find_best(struct ts_pairer *pairer, const struct leftovers *from, const struct leftovers *to,
                                const struct nearness *nearness, struct ts_error *error)
{
    const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
    struct search search = {.from = from, .nearness = *nearness};
    if (!make_trees(to, &pairer->scratch, &search.trees))
        return ts_fail_memory(error);
    if (pairer->pool)
        ts_pool_run(pairer->pool, from->count, search_one, &search);
    else
        for (size_t i = 0; i < from->count; i++)
            search_one(&search, i, 0);
    ts_arena_rewind(&pairer->scratch, mark);
    return atomic_load(&ts_cancelled) ? ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted") : TS_OK;
}

static int by_index(const void *a, const void *b)
{
    const size_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

static int by_hash(const void *a, const void *b)
{
    const struct leftover *left = *(const struct leftover *const *)a, *right = *(const struct leftover *const *)b;
    if (left->sketch.count != right->sketch.count)
        return left->sketch.count < right->sketch.count ? -1 : 1;
    if (left->sketch.hash != right->sketch.hash)
        return left->sketch.hash < right->sketch.hash ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* Those that have found nothing, by what they hold. */
static struct leftover **list_alone(const struct leftovers *of, struct ts_arena *arena, size_t *count)
{
    struct leftover **list = ts_arena_array(arena, of->count, sizeof *list);
    *count = 0;
    for (size_t i = 0; list && i < of->count; i++)
        if (of->list[i].best == SIZE_MAX && !of->list[i].sketch.constant)
            list[(*count)++] = &of->list[i];
    if (list && *count)
        qsort(list, *count, sizeof *list, by_hash);
    return list;
}

static size_t same_hash(struct leftover *const *list, size_t from, size_t count)
{
    size_t to = from + 1;
    while (to < count && list[to]->sketch.count == list[from]->sketch.count &&
           list[to]->sketch.hash == list[from]->sketch.hash)
        to++;
    return to;
}

/* Tensors of both sides that hold the same values, and have found nothing else. */
struct same {
    struct leftover *const *of_a, *const *of_b;
    size_t count_a, count_b;
};

struct found {
    const struct leftovers *a, *b;
    size_t (*pairs)[2];
    size_t count;
};

static bool each_same(struct found *found, struct ts_arena *arena, void (*take)(struct found *, const struct same *))
{
    const struct ts_arena_mark mark = ts_arena_mark(arena);
    size_t count_a, count_b;
    struct leftover **of_a = list_alone(found->a, arena, &count_a), **of_b = list_alone(found->b, arena, &count_b);
    const bool done = of_a && of_b;
    for (size_t i = 0, k = 0; done && i < count_a && k < count_b;) {
        const size_t end_a = same_hash(of_a, i, count_a), end_b = same_hash(of_b, k, count_b);
        const struct ts_sketch *one = &of_a[i]->sketch, *other = &of_b[k]->sketch;
        const bool same = one->count == other->count && one->hash == other->hash;
        const bool before = one->count != other->count ? one->count < other->count : one->hash < other->hash;
        if (same)
            take(found, &(struct same){of_a + i, of_b + k, end_a - i, end_b - k});
        i = same || before ? end_a : i;
        k = same || !before ? end_b : k;
    }
    ts_arena_rewind(arena, mark);
    return done;
}

/* The same values once on each side: nothing can be nearer, and nobody has to look for it. */
static void take_equal(struct found *found, const struct same *same)
{
    struct leftover *one = same->of_a[0], *other = same->of_b[0];
    if (same->count_a != 1 || same->count_b != 1)
        return;
    one->best = (size_t)(other - found->b->list);
    other->best = (size_t)(one - found->a->list);
}

/* The same values several times over, as often on both sides: which stands beside which makes no difference. */
static void take_copies(struct found *found, const struct same *same)
{
    for (size_t i = 0; same->count_a == same->count_b && i < same->count_a; i++) {
        found->pairs[found->count][0] = same->of_a[i]->index;
        found->pairs[found->count++][1] = same->of_b[i]->index;
    }
}

/* What belongs together by content, ascending. *too_many: nobody has looked. */
static enum ts_status find(struct ts_pairer *pairer, const bool *only_a, const bool *only_b,
                           const struct nearness *nearness, size_t (**pairs)[2], size_t *paired, bool *too_many,
                           struct ts_error *error)
{
    struct ts_arena *arena = &pairer->scratch;
    uint64_t *sizes_a, *sizes_b, elements_a, elements_b;
    size_t count_a, count_b;
    struct leftovers a, b;
    struct found found = {&a, &b, NULL, 0};
    *paired = 0;
    *too_many = false;
    if (!sizes_left(&pairer->a, arena, &sizes_a, &count_a) || !sizes_left(&pairer->b, arena, &sizes_b, &count_b) ||
        !gather(&pairer->a, only_a, sizes_b, count_b, arena, &a, &elements_a) ||
        !gather(&pairer->b, only_b, sizes_a, count_a, arena, &b, &elements_b))
        return ts_fail_memory(error);
    *too_many = elements_a > MOST || elements_b > MOST;
    if (a.count == 0 || b.count == 0 || *too_many)
        return TS_OK;
    TS_TRY(sketch_all(pairer, &a, error));
    TS_TRY(sketch_all(pairer, &b, error));
    qsort(a.list, a.count, sizeof *a.list, by_norm);
    qsort(b.list, b.count, sizeof *b.list, by_norm);
    *pairs = ts_arena_array(arena, a.count, sizeof **pairs);
    found.pairs = *pairs;
    if (!*pairs || !each_same(&found, arena, take_equal))
        return ts_fail_memory(error);
    TS_TRY(find_best(pairer, &a, &b, nearness, error));
    TS_TRY(find_best(pairer, &b, &a, nearness, error));
    for (size_t i = 0; i < a.count; i++)
        if (a.list[i].best != SIZE_MAX && b.list[a.list[i].best].best == i) {
            found.pairs[found.count][0] = a.list[i].index;
            found.pairs[found.count++][1] = b.list[a.list[i].best].index;
        }
    if (!each_same(&found, arena, take_copies))
        return ts_fail_memory(error);
    *paired = found.count;
    if (*paired)
        qsort(*pairs, *paired, sizeof **pairs, by_index);
    return TS_OK;
}

/* Looks at the values of two tensors that hold the same ones in some order: in the layout that they are in, or that
 * aligns them. */
static enum ts_status look_at_values(struct ts_pairer *pairer, size_t a, size_t b, bool *agree, struct ts_error *error)
{
    const struct ts_tensor *left = pairer->a.bundle->tensors[a], *right = pairer->b.bundle->tensors[b];
    struct ts_arena *arena = &pairer->scratch;
    struct ts_agreement agreement = {INFINITY, 0};
    struct ts_alignment alignment = {0};
    *agree = false;
    if (!ts_view_of(left, arena, &alignment.a) || !ts_view_of(right, arena, &alignment.b))
        return ts_fail_memory(error);
    if (!ts_tensor_same_shape(left, right)) {
        const struct ts_view one = alignment.a, other = alignment.b;
        struct ts_align_hints hints = ts_layout_hints(pairer, a, b, true);
        hints.lengths = NULL; /* they are the run's, and nothing is known of it yet */
        TS_TRY(ts_align(&one, &other, &hints, arena, &alignment, error));
    }
    if (!alignment.problem && !alignment.guess)
        TS_TRY(ts_agree(&alignment.a, &alignment.b, SURE_RUNS, &agreement, error));
    *agree = agreement.error < SURE;
    return TS_OK;
}

enum ts_status ts_content_find(struct ts_pairer *pairer, const bool *only_a, const bool *only_b, size_t (**pairs)[2],
                               size_t *count, struct ts_error *error)
{
    bool too_many;
    size_t kept = 0;
    TS_TRY(find(pairer, only_a, only_b, &by_sketch, pairs, count, &too_many, error));
    for (size_t i = 0; i < *count; i++) {
        const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
        enum ts_status status;
        bool agree;
        status = look_at_values(pairer, (*pairs)[i][0], (*pairs)[i][1], &agree, error);
        ts_arena_rewind(&pairer->scratch, mark);
        TS_TRY(status);
        if (agree)
            memmove((*pairs)[kept++], (*pairs)[i], sizeof **pairs);
    }
    *count = kept;
    return TS_OK;
}

/* One look at what is left. *more: it found some, and so what stood beside them may have no rival any more. A later
 * look has fewer rivals to be warned by: it wants the values themselves to be near. */
static enum ts_status match_left(struct ts_pairer *pairer, bool first, bool *more, struct ts_error *error)
{
    const size_t before = pairer->count;
    size_t(*pairs)[2], count;
    bool too_many;
    TS_TRY(find(pairer, NULL, NULL, first ? &by_sketch : &by_values, &pairs, &count, &too_many, error));
    if (too_many && first)
        return ts_pairer_note(
            pairer, error,
            "the tensors left unpaired by name are too large to be paired by content; pair them with --map");
    for (size_t i = 0; i < count; i++) {
        bool agree = true;
        if (!first)
            TS_TRY(look_at_values(pairer, pairs[i][0], pairs[i][1], &agree, error));
        if (agree)
            TS_TRY(ts_layout_proved(pairer, pairs[i][0], pairs[i][1], "content", error));
    }
    *more = pairer->count > before;
    return TS_OK;
}

enum ts_status ts_match_content(struct ts_pairer *pairer, struct ts_error *error)
{
    bool more = true;
    for (int look = 0; look < MOST_LOOKS && more; look++) {
        const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
        more = false;
        TS_TRY(match_left(pairer, look == 0, &more, error));
        ts_arena_rewind(&pairer->scratch, mark);
    }
    return TS_OK;
}
