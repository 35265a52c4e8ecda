/* Owns the decision: which candidate the values agree under, whether another one does as well, and when to say that
 * none does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pair/align_search.h"

/* Samples grow as candidates become few. */
static const struct {
    uint64_t budget;
    size_t keep;
} levels[] = {{512, 32}, {8192, 8}, {65536, 4}};
#define LEVELS (sizeof levels / sizeof *levels)
/* The end: everything, up to this many elements, which takes a few hundredths of a second. */
#define EVERYTHING ((uint64_t)4 << 20)

/* Scores nearer than this are equal, and the plainer candidate goes first. */
#define TIE 1.1
/* A runner-up nearer than this might as well be the right one. */
#define CLOSE 1.5
/* Below this distance a factor or an offset apart is still the same tensor. */
#define RELATED 0.6
/* When nothing agrees, only plain candidates are worth showing: a cut (10 and 1 for its place) and a swap or two. */
#define GUESS_COST 14

struct ts_align_candidate *ts_align_add(struct ts_align_search *search)
{
    if (search->count >= search->limit)
        return NULL;
    if (search->count == search->capacity) {
        size_t capacity = search->capacity ? 2 * search->capacity : 16;
        struct ts_align_candidate *list = ts_arena_array(&search->scratch, capacity, sizeof *list);
        if (!list)
            return NULL;
        if (search->count)
            memcpy(list, search->list, search->count * sizeof *list);
        search->list = list;
        search->capacity = capacity;
    }
    return &search->list[search->count++];
}

const char *ts_align_words(struct ts_align_search *search, const char *first, const char *second)
{
    const char *words = second;
    if (*first)
        words = *second ? ts_arena_printf(&search->scratch, "%s, %s", first, second) : first;
    else if (*second)
        words = ts_arena_string(&search->scratch, second);
    return words ? words : "";
}

bool ts_align_is_costly(const struct ts_view *view)
{
    return view->join != TS_JOIN_NONE || view->tensor->type == TS_CODED ||
           ts_type_info(view->tensor->type)->block_elements != 1;
}

/* Where an element of a view comes from. */
struct origin {
    const struct ts_tensor *tensor;
    uint64_t index;
    size_t added; /* partial sums it is made of */
};

static struct origin origin_of(const struct ts_view *view, uint64_t flat)
{
    struct origin origin = {.tensor = view->tensor, .index = view->offset, .added = 1};
    if (view->join == TS_JOIN_NONE) {
        for (unsigned i = view->rank; i-- > 0; flat /= view->shape[i])
            origin.index += flat % view->shape[i] * (uint64_t)view->strides[i];
    } else if (view->join == TS_JOIN_SUM) {
        origin = origin_of(&view->parts[0], flat);
        origin.added *= view->part_count;
    } else {
        uint64_t inner = 1, row, outer, rest;
        size_t part = 0;
        for (unsigned i = view->axis + 1; i < view->rank; i++)
            inner *= view->shape[i];
        row = view->shape[view->axis] * inner;
        outer = flat / row;
        rest = flat % row;
        while (rest >= view->parts[part].shape[view->axis] * inner)
            rest -= view->parts[part++].shape[view->axis] * inner;
        return origin_of(&view->parts[part], outer * view->parts[part].shape[view->axis] * inner + rest);
    }
    return origin;
}

/* The opposite, for plain views: strides of what was cut from a row-major tensor nest, so the largest comes first. */
static bool find_index(const struct ts_view *view, uint64_t index, uint64_t *flat)
{
    uint64_t at[TS_MAX_RANK] = {0};
    bool done[TS_MAX_RANK] = {false};
    if (index < view->offset)
        return false;
    index -= view->offset;
    for (unsigned round = 0; round < view->rank; round++) {
        unsigned largest = TS_MAX_RANK;
        for (unsigned i = 0; i < view->rank; i++)
            if (!done[i] && (largest == TS_MAX_RANK || view->strides[i] > view->strides[largest]))
                largest = i;
        done[largest] = true;
        if (view->shape[largest] == 1 || view->strides[largest] == 0)
            continue;
        at[largest] = index / (uint64_t)view->strides[largest];
        if (at[largest] >= view->shape[largest])
            return false;
        index -= at[largest] * (uint64_t)view->strides[largest];
    }
    *flat = 0;
    for (unsigned i = 0; i < view->rank; i++)
        *flat = *flat * view->shape[i] + at[i];
    return index == 0;
}

/* Where the element of a tensor stands in a view, whatever it is joined of. Of sums the first part speaks. */
static bool find_origin(const struct ts_view *view, const struct ts_tensor *tensor, uint64_t index, uint64_t *flat)
{
    uint64_t inner = 1, before = 0, here;
    if (view->join == TS_JOIN_NONE)
        return view->tensor == tensor && find_index(view, index, flat);
    if (view->join == TS_JOIN_SUM)
        return find_origin(&view->parts[0], tensor, index, flat);
    for (unsigned i = view->axis + 1; i < view->rank; i++)
        inner *= view->shape[i];
    for (size_t i = 0; i < view->part_count; i++) {
        uint64_t row = view->parts[i].shape[view->axis] * inner;
        if (find_origin(&view->parts[i], tensor, index, &here)) {
            *flat = here / row * view->shape[view->axis] * inner + before + here % row;
            return true;
        }
        before += row;
    }
    return false;
}

bool ts_align_same_map(const struct ts_align_candidate *one, const struct ts_align_candidate *other)
{
    const uint64_t count = one->view[0].count, probes = count < 256 ? count : 256;
    unsigned plain = 0;
    if (other->view[0].count != count)
        return false;
    /* looked up where that is quickest */
    if (one->view[1].join == TS_JOIN_NONE && other->view[1].join == TS_JOIN_NONE)
        plain = one->view[0].join != TS_JOIN_NONE || other->view[0].join != TS_JOIN_NONE;
    for (uint64_t i = 0; i < probes; i++) {
        uint64_t there, here = count < 256 ? i : i * (count / 256) + (i * UINT64_C(2654435761) >> 7) % (count / 256);
        struct origin key = origin_of(&one->view[plain], here), found, mine, its;
        if (!find_origin(&other->view[plain], key.tensor, key.index, &there))
            return false;
        found = origin_of(&other->view[plain], there);
        mine = origin_of(&one->view[1 - plain], here);
        its = origin_of(&other->view[1 - plain], there);
        if (mine.tensor != its.tensor || mine.index != its.index || mine.added != its.added || key.added != found.added)
            return false;
    }
    return true;
}

static int better_first(const void *one, const void *other)
{
    const struct ts_align_candidate *a = one, *b = other;
    if (a->fit.score != b->fit.score)
        return a->fit.score < b->fit.score ? -1 : 1;
    return a->cost < b->cost ? -1 : a->cost > b->cost;
}

enum ts_status ts_align_best_score(struct ts_align_search *search, double *score, struct ts_error *error)
{
    *score = INFINITY;
    for (size_t i = 0; i < search->count; i++) {
        struct ts_align_candidate *candidate = &search->list[i];
        TS_TRY(ts_align_measure(search, &candidate->view[0], &candidate->view[1], levels[0].budget, &candidate->fit,
                                error));
        *score = candidate->fit.score < *score ? candidate->fit.score : *score;
    }
    return TS_OK;
}

/* The one to take among `count` sorted candidates: the best, or a plainer one that is as good, or the one that the axis
 * names ask for unless the values speak against it. */
static struct ts_align_candidate *pick(struct ts_align_candidate *sorted, size_t count)
{
    struct ts_align_candidate *best = sorted;
    const double tie = sorted->fit.score * TIE + 1e-12, close = sorted->fit.score * CLOSE + 1e-12;
    for (size_t i = 0; i < count; i++)
        if (sorted[i].named && sorted[i].fit.score <= close)
            return &sorted[i];
    for (size_t i = 1; i < count && sorted[i].fit.score <= tie; i++)
        if (sorted[i].cost < best->cost)
            best = &sorted[i];
    return best;
}

/* The best that pairs other elements, and no fewer: a piece of the winner's fits as well as the whole. */
static const struct ts_align_candidate *runner_up(const struct ts_align_candidate *sorted, size_t count,
                                                  const struct ts_align_candidate *winner)
{
    for (size_t i = 0; i < count; i++)
        if (&sorted[i] != winner && sorted[i].view[0].count >= winner->view[0].count &&
            !ts_align_same_map(&sorted[i], winner))
            return &sorted[i];
    return NULL;
}

static struct ts_align_candidate *plainest(struct ts_align_candidate *sorted, size_t count)
{
    struct ts_align_candidate *found = sorted;
    for (size_t i = 0; i < count; i++) {
        if (sorted[i].named)
            return &sorted[i];
        if (sorted[i].cost < found->cost)
            found = &sorted[i];
    }
    return found;
}

/* Moves what is worth another look to the front: sorted[0] and sorted[1], what is not clearly worse, the plainest and
 * the named ones, which are what is shown when nothing agrees. Of candidates that pair the same elements the plainest
 * stands for all. Order is kept. */
static size_t keep_good(struct ts_align_candidate *sorted, size_t count, size_t at_most)
{
    const double limit = 3 * sorted->fit.score + 0.05;
    const unsigned plain_cost = plainest(sorted, count)->cost;
    size_t kept = 0;
    bool have_plain = false;
    for (size_t i = 0; i < count; i++) {
        bool good = kept < at_most && (kept < 2 || sorted[i].fit.score <= limit);
        size_t same = 0;
        if (!good && !sorted[i].named && (have_plain || sorted[i].cost != plain_cost))
            continue;
        have_plain = have_plain || sorted[i].cost == plain_cost;
        while (same < kept && !ts_align_same_map(&sorted[same], &sorted[i]))
            same++;
        if (same == kept)
            sorted[kept++] = sorted[i];
        else if (sorted[i].named > sorted[same].named ||
                 (sorted[i].named == sorted[same].named && sorted[i].cost < sorted[same].cost))
            sorted[same] = sorted[i];
    }
    return kept;
}

static enum ts_status measure_all(const struct ts_align_search *search, struct ts_align_candidate *list, size_t count,
                                  uint64_t budget, struct ts_error *error)
{
    for (size_t i = 0; i < count; i++)
        TS_TRY(ts_align_measure(search, &list[i].view[0], &list[i].view[1], budget, &list[i].fit, error));
    qsort(list, count, sizeof *list, better_first);
    return TS_OK;
}

/* Measures on growing samples, dropping what is clearly worse; *count are left, sorted. Where several stay close to the
 * end, everything is read for each of them: they may differ in a few places only. */
static enum ts_status narrow(const struct ts_align_search *search, size_t *count, struct ts_error *error)
{
    struct ts_align_candidate *list = search->list;
    const uint64_t elements = list[0].view[0].count;
    *count = search->count;
    for (size_t level = 0; level < LEVELS; level++) {
        TS_TRY(measure_all(search, list, *count, levels[level].budget, error));
        *count = keep_good(list, *count, levels[level].keep);
        if (elements <= levels[level].budget)
            return TS_OK;
    }
    if (*count > 1 && list[0].fit.score < RELATED && list[1].fit.score <= CLOSE * list[0].fit.score + 1e-12)
        return measure_all(search, list, *count, EVERYTHING, error);
    return TS_OK;
}

/* Which of several equal copies is taken changes nothing. */
static enum ts_status equal_copies(const struct ts_align_search *search, const struct ts_align_candidate *one,
                                   const struct ts_align_candidate *other, bool *equal, struct ts_error *error)
{
    *equal = false;
    if (!one->family || one->family != other->family)
        return TS_OK;
    *equal = true;
    for (unsigned side = 0; side < 2 && *equal; side++) {
        struct ts_align_search same = *search;
        struct ts_align_fit fit;
        same.scale[0] = same.scale[1] = search->scale[side];
        if (!ts_align_equal_shapes(&one->view[side], &other->view[side])) {
            *equal = false;
            break;
        }
        TS_TRY(ts_align_measure(&same, &one->view[side], &other->view[side], levels[LEVELS - 1].budget, &fit, error));
        *equal = fit.fit == 0;
    }
    return TS_OK;
}

/* So small a piece that the other tensor is no part of this one, whatever the counts allow, unless its values say so;
 * and a few values agree with some of so many by chance. */
static bool is_crumb(const struct ts_align_candidate *candidate, bool guess)
{
    return candidate->cut.all / TS_ALIGN_MOST_SHARDS > candidate->view[0].count &&
           (guess || candidate->view[0].count < TS_ALIGN_FEWEST);
}

enum ts_status ts_align_choose(struct ts_align_search *search, struct ts_alignment *out,
                               const struct ts_align_candidate **winner, struct ts_error *error)
{
    struct ts_align_candidate *list = search->list, *best;
    const struct ts_align_candidate *second;
    size_t count;
    bool copies;
    *winner = NULL;
    out->runner_up = INFINITY;
    if (search->count == 0)
        return TS_OK;
    TS_TRY(narrow(search, &count, error));
    best = pick(list, count);
    second = runner_up(list, count, best);
    if (second)
        out->runner_up = second->fit.error;
    if (best->fit.fit < TS_ALIGN_AGREES) {
        bool near = second && second->fit.fit <= CLOSE * best->fit.fit + 1e-12;
        if (near && !best->named) {
            TS_TRY(equal_copies(search, best, second, &copies, error));
            out->ambiguous = !copies && best->fit.fit <= RELATED;
            out->guess = !copies && best->fit.fit > RELATED;
        }
    } else {
        bool apart = !second || best->fit.relation < second->fit.relation / CLOSE;
        out->guess = !best->named && !(apart && best->fit.relation < RELATED);
        if (out->guess && !(apart && second))
            best = plainest(list, count);
    }
    if (best->certain)
        out->guess = out->ambiguous = false;
    if ((out->guess && best->cost > GUESS_COST) || is_crumb(best, out->guess)) {
        out->guess = out->ambiguous = false;
        out->runner_up = INFINITY;
        return TS_OK;
    }
    if (best->view[0].count > levels[LEVELS - 1].budget)
        TS_TRY(ts_align_measure(search, &best->view[0], &best->view[1], EVERYTHING, &best->fit, error));
    out->error = best->fit.error;
    memcpy(out->copied, best->copied, sizeof out->copied);
    out->ranks_of = best->ranks_of;
    out->lacking = best->lacking;
    *winner = best;
    return TS_OK;
}

static bool copy_view(const struct ts_view *view, struct ts_arena *arena, struct ts_view *out)
{
    *out = *view;
    out->shape = ts_arena_array(arena, view->rank, sizeof *out->shape);
    if (!out->shape)
        return false;
    if (view->rank)
        memcpy(out->shape, view->shape, view->rank * sizeof *out->shape);
    if (view->join == TS_JOIN_NONE) {
        out->strides = ts_arena_array(arena, view->rank, sizeof *out->strides);
        if (out->strides && view->rank)
            memcpy(out->strides, view->strides, view->rank * sizeof *out->strides);
        return out->strides;
    }
    out->parts = ts_arena_array(arena, view->part_count, sizeof *out->parts);
    for (size_t i = 0; out->parts && i < view->part_count; i++)
        if (!copy_view(&view->parts[i], arena, &out->parts[i]))
            return false;
    return out->parts;
}

enum ts_status ts_align_finish(const struct ts_align_candidate *winner, struct ts_arena *arena,
                               struct ts_alignment *out, struct ts_error *error)
{
    const char *a = winner->words[0], *b = winner->words[1];
    out->zeros = winner->zeros;
    if (!copy_view(&winner->view[0], arena, &out->a) || !copy_view(&winner->view[1], arena, &out->b))
        return ts_fail_memory(error);
    if (*a && *b)
        out->recipe = ts_arena_printf(arena, "A: %s; B: %s", a, b);
    else if (*a || *b)
        out->recipe = ts_arena_printf(arena, *a ? "A: %s" : "B: %s", *a ? a : b);
    else
        out->recipe = "";
    return out->recipe ? TS_OK : ts_fail_memory(error);
}
