/* Layout, where no recipe fits: both sides hold the same values, each as often, in an order that is nothing but itself.
 * It is still worth knowing that every value was computed and none is wrong. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "diagnose/layout.h"

/* How sure it is that the order is all that is wrong: something with a recipe comes before it. */
#define CERTAIN 0.8
/* So many values must there be, and at least half of all elements must be unlike each other: what takes few values has
 * the same ones by chance. */
#define LEAST_VALUES 5
/* What a reverse order must explain, and how many elements must then be as near as this: masked ones are so far off
 * that they alone would do. */
#define REVERSED 0.97
#define MOST     0.95
#define NEAR     0.02

static double *in_order(const double *values, size_t count)
{
    double *sorted = malloc(count * sizeof *sorted);
    if (sorted) {
        memcpy(sorted, values, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, ts_by_value);
    }
    return sorted;
}

/* A sum that does not know the order. */
static uint64_t sum_of_bits(const double *values, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        sum += bits ^ bits >> 29;
    }
    return sum;
}

static bool are_same_values(const struct ts_case *the_case)
{
    double *expected, *found;
    size_t different = 1, i = 0;
    if (sum_of_bits(the_case->expected, the_case->total) != sum_of_bits(the_case->found, the_case->total))
        return false;
    expected = in_order(the_case->expected, the_case->total);
    found = in_order(the_case->found, the_case->total);
    while (expected && found && i < the_case->total && expected[i] == found[i]) {
        different += i > 0 && expected[i] != expected[i - 1];
        i++;
    }
    free(expected);
    free(found);
    return i == the_case->total && different >= LEAST_VALUES && 2 * different >= the_case->total;
}

void ts_layout_values(struct ts_case *the_case, double *prediction)
{
    size_t total = the_case->total, moved = 0, near = 0, first = SIZE_MAX, from = 0;
    if (!ts_case_complete(the_case) || total < LEAST_VALUES)
        return;
    for (size_t i = 0; i < total; i++) {
        moved += the_case->found[i] != the_case->expected[i];
        first = first == SIZE_MAX && the_case->found[i] != the_case->expected[i] ? i : first;
        prediction[i] = the_case->expected[total - 1 - i];
        near += fabs(prediction[i] - the_case->found[i]) <= NEAR * fabs(the_case->found[i]);
    }
    if ((double)near >= MOST * (double)total && ts_explained(the_case, prediction) > REVERSED) {
        ts_propose(
            the_case, "permuted", prediction, 0,
            "a flip, a negative stride, or the wrong end of an axis; to undo: reshape(-1).flip(0), then reshape back",
            "all elements are in reverse order");
        return;
    }
    if (!are_same_values(the_case))
        return;
    while (first < total && from + 1 < total && the_case->expected[from] != the_case->found[first])
        from++;
    ts_propose_plain(the_case, "permuted", CERTAIN,
                     "the strides, gather indices and reshapes before this tensor: no value is wrong, only its place",
                     "the same values in another order, which no swap of axes and no order of rows or columns "
                     "explains: %zu of %zu elements are out of place; element %zu holds what belongs at %zu",
                     moved, total, first, from);
}
