#include "base/ordered.h"

#include <stdint.h>

int ts_by_value(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

int ts_by_falling_value(const void *a, const void *b)
{
    return ts_by_value(b, a);
}

int ts_by_number(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

double ts_nth(double *values, size_t count, size_t nth)
{
    size_t first = 0, last = count;
    if (nth >= count)
        return 0;
    while (last - first > 1) {
        double pivot = values[first + (last - first) / 2], swap;
        size_t below = first, at = first, above = last; /* [first, below) is less, [above, last) more than the pivot */
        while (at < above) {
            if (values[at] < pivot) {
                swap = values[below];
                values[below++] = values[at];
                values[at++] = swap;
            } else if (values[at] > pivot) {
                swap = values[--above];
                values[above] = values[at];
                values[at] = swap;
            } else {
                at++;
            }
        }
        if (nth < below)
            last = below;
        else if (nth >= above)
            first = above;
        else
            break;
    }
    return values[nth];
}
