#include "pair/sketch_tree.h"

#include <math.h>

/* Fewer points are looked at one by one. */
#define LEAF 6
/* Coordinates are floats, of some tens at most: what they are wrong by is granted. */
#define GRANTED 1e-4

struct ts_sketch_point ts_sketch_point(const struct ts_sketch *sketch, size_t at)
{
    struct ts_sketch_point point = {.at = at};
    for (unsigned i = 0; i < TS_SKETCH_WAVES; i++)
        point.waves[i] = isfinite(sketch->waves[i]) ? (float)sketch->waves[i] : 0; /* order needs numbers */
    return point;
}

/* What is not greater than the middle one goes before it, what is not less behind it. */
static void halve(struct ts_sketch_point *points, size_t count, unsigned wave)
{
    const ptrdiff_t middle = (ptrdiff_t)(count / 2);
    ptrdiff_t low = 0, high = (ptrdiff_t)count - 1;
    while (low < high) {
        const float pivot = points[low + (high - low) / 2].waves[wave];
        ptrdiff_t left = low, right = high;
        while (left <= right) {
            while (points[left].waves[wave] < pivot)
                left++;
            while (points[right].waves[wave] > pivot)
                right--;
            if (left <= right) {
                const struct ts_sketch_point moved = points[left];
                points[left++] = points[right];
                points[right--] = moved;
            }
        }
        low = right < middle ? left : low;
        high = middle < left ? right : high;
    }
}

static void build(struct ts_sketch_point *points, size_t count, unsigned wave)
{
    const size_t middle = count / 2;
    const unsigned next = (wave + 1) % TS_SKETCH_WAVES;
    if (count <= LEAF)
        return;
    halve(points, count, wave);
    build(points, middle, next);
    build(points + middle + 1, count - middle - 1, next);
}

void ts_sketch_tree_build(struct ts_sketch_point *points, size_t count)
{
    build(points, count, 0);
}

struct search {
    struct ts_sketch_point point;
    double limit;
    ts_sketch_visit *visit;
    void *context;
};

static double reach_of(const struct search *search)
{
    return 4 * search->limit + GRANTED; /* waves count for a fourth of what they differ by */
}

static void look_at(struct search *search, const struct ts_sketch_point *point)
{
    const float reach = (float)reach_of(search);
    for (unsigned i = 0; i < TS_SKETCH_WAVES; i++)
        if (fabsf(search->point.waves[i] - point->waves[i]) > reach)
            return;
    search->visit(search->context, point->at, &search->limit);
}

static void search_half(struct search *search, const struct ts_sketch_point *points, size_t count, unsigned wave)
{
    const size_t middle = count / 2;
    const unsigned next = (wave + 1) % TS_SKETCH_WAVES;
    double behind;
    if (count <= LEAF) {
        for (size_t i = 0; i < count && search->limit >= 0; i++)
            look_at(search, &points[i]);
        return;
    }
    behind = (double)search->point.waves[wave] - (double)points[middle].waves[wave];
    look_at(search, &points[middle]);
    if (search->limit >= 0 && behind <= reach_of(search))
        search_half(search, points, middle, next);
    if (search->limit >= 0 && -behind <= reach_of(search))
        search_half(search, points + middle + 1, count - middle - 1, next);
}

void ts_sketch_tree_search(const struct ts_sketch_point *points, size_t count, const struct ts_sketch *sketch,
                           double limit, ts_sketch_visit *visit, void *context)
{
    struct search search = {ts_sketch_point(sketch, 0), limit, visit, context};
    search_half(&search, points, count, 0);
}
