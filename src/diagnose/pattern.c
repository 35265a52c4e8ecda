#include "diagnose/pattern.h"

#include <math.h>
#include <stdlib.h>

#include "base/ordered.h"

/* Stretches of a curve, and elements that each must have. */
#define STRETCHES    64
#define LEAST_PLACES 16
/* Fewer rows or channels are of low rank by themselves. */
#define LEAST_SIDES 8
#define ROUNDS      30

/* The value first, which they are sorted by. */
struct place {
    double value, error;
};

/* What a straight line through some places leaves of their errors. */
static double left_by_line(const struct place *places, size_t count)
{
    double n = (double)count, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
    for (size_t i = 0; i < count; i++) {
        x += places[i].value / n;
        y += places[i].error / n;
    }
    for (size_t i = 0; i < count; i++) {
        double from = places[i].value - x, error = places[i].error - y;
        xx += from * from;
        xy += from * error;
        yy += error * error;
    }
    return xx > 0 ? yy - xy * xy / xx : yy;
}

double ts_pattern_of_value(const struct ts_case *the_case)
{
    struct place *places = malloc(the_case->total * sizeof *places);
    size_t count = 0, stretches;
    double energy = 0, left = 0, freedom;
    for (size_t i = 0; places && i < the_case->total; i++) {
        double error = the_case->found[i] - the_case->expected[i];
        if (!isfinite(error))
            continue;
        places[count++] = (struct place){the_case->expected[i], error};
        energy += error * error;
    }
    stretches = count / LEAST_PLACES < STRETCHES ? count / LEAST_PLACES : STRETCHES;
    freedom = 2 * (double)stretches;
    if (!places || !stretches || !(energy > 0)) {
        free(places);
        return 0;
    }
    qsort(places, count, sizeof *places, ts_by_value);
    for (size_t k = 0; k < stretches; k++)
        left += left_by_line(places + k * count / stretches, (k + 1) * count / stretches - k * count / stretches);
    free(places);
    return 1 - left / energy * (double)count / ((double)count - freedom);
}

double ts_pattern_of_rank_one(const struct ts_case *the_case)
{
    size_t rows = the_case->actor->rows, width = the_case->actor->width;
    double *along = calloc(rows + width, sizeof *along), *across = along ? along + rows : NULL;
    double energy = 0, size = 0, share = 0;
    for (size_t i = 0; along && i < width; i++)
        across[i] = 1 + (double)(i * 7 % 5); /* not at right angles to anything that is likely */
    for (int round = 0; round < ROUNDS && along && rows >= LEAST_SIDES && width >= LEAST_SIDES; round++) {
        size = 0;
        for (size_t i = 0; i < width; i++)
            size += across[i] * across[i];
        energy = share = 0;
        for (size_t row = 0; row < rows; row++) {
            along[row] = 0;
            for (size_t i = 0; i < width; i++) {
                double error = the_case->found[row * width + i] - the_case->expected[row * width + i];
                along[row] += isfinite(error) && size > 0 ? error * across[i] / sqrt(size) : 0;
                energy += isfinite(error) ? error * error : 0;
            }
            share += along[row] * along[row];
        }
        for (size_t i = 0; i < width; i++)
            across[i] = 0;
        for (size_t row = 0; row < rows; row++)
            for (size_t i = 0; i < width; i++) {
                double error = the_case->found[row * width + i] - the_case->expected[row * width + i];
                across[i] += isfinite(error) ? error * along[row] : 0;
            }
    }
    free(along);
    return energy > 0 ? share / energy : 0;
}
