/* The tree of sketches finds what a look at all of them finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"
#include "pair/sketch_tree.h"

enum { MOST = 700 };

struct met {
    const struct ts_sketch *sketches, *one;
    bool seen[MOST];
    size_t count, least;
    bool stop;
};

static void visit(void *context, size_t at, double *limit)
{
    struct met *met = context;
    assert_false(met->seen[at]); /* nobody is met twice */
    met->seen[at] = true;
    met->count++;
    if (met->stop && ts_sketch_distance(met->one, &met->sketches[at]) < *limit) {
        met->least = at;
        *limit = ts_sketch_distance(met->one, &met->sketches[at]);
    }
}

/* Of spread points, of points that agree in most waves, and of points that are all one. */
static void test_near(void **state)
{
    static const size_t counts[] = {0, 1, 2, 6, 7, 8, 100, MOST};
    static const double limits[] = {0, 0.02, 0.08, 0.3, 5};
    static const double spreads[] = {1, 0.05, 0};
    static struct ts_sketch sketches[MOST];
    static struct ts_sketch_point points[MOST];
    (void)state;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (size_t m = 0; m < sizeof spreads / sizeof *spreads; m++) {
            const size_t count = counts[k];
            for (size_t i = 0; i < count; i++) {
                sketches[i] = (struct ts_sketch){.count = 64, .hash = i, .norm = 1};
                for (unsigned w = 0; w < TS_SKETCH_WAVES; w++)
                    sketches[i].waves[w] = (w == 3 ? 1 : spreads[m]) * 2 * dice_number();
                if (i % 3 == 1) /* near the one before it */
                    for (unsigned w = 0; w < TS_SKETCH_WAVES; w++)
                        sketches[i].waves[w] = sketches[i - 1].waves[w] + 0.05 * 2 * dice_number();
                points[i] = ts_sketch_point(&sketches[i], i);
            }
            ts_sketch_tree_build(points, count);
            for (size_t i = 0; i < count; i += 1 + count / 20)
                for (size_t n = 0; n < sizeof limits / sizeof *limits; n++) {
                    struct met met = {.sketches = sketches, .one = &sketches[i]};
                    struct met nearest = {.sketches = sketches, .one = &sketches[i], .least = i, .stop = true};
                    ts_sketch_tree_search(points, count, &sketches[i], limits[n], visit, &met);
                    for (size_t j = 0; j < count; j++)
                        assert_true(met.seen[j] || ts_sketch_distance(&sketches[i], &sketches[j]) >= limits[n]);
                    /* a limit that shrinks to what was found leaves the nearest, here the same one */
                    ts_sketch_tree_search(points, count, &sketches[i], limits[n] + 1e-9, visit, &nearest);
                    assert_int_equal(nearest.least, i);
                    assert_true(nearest.count <= count);
                }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_near)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
