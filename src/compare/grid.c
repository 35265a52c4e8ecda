#include "compare/grid.h"

#include <math.h>
#include <stdbool.h>

/* Values that lie anywhere have a mean squared distance of 1/12 of a step from the nearest point; those of a grid that
 * were rounded to sixteen bits afterwards a few per cent of that. Twelve that lie this close do so by chance once in a
 * million times. */
#define NEAR   (0.1 / 12)
#define FEWEST 12

struct closeness {
    double squares; /* of distances, in steps */
    size_t count;
};

static bool is_near(const struct closeness *closeness)
{
    return closeness->count >= FEWEST && closeness->squares <= NEAR * (double)closeness->count;
}

/* Distance from the integers. What a store gives back that is not 0 is one step at least: beside a number far larger
 * than all others these are near 0 and on no grid. */
static double distance_to_integer(double value)
{
    return value < 0.5 ? 0.5 : value - nearbyint(value);
}

/* Distance of a number above 0 from e4m3's points, in steps of its binade. Subnormal ones aside, which scales keep away
 * from. */
static double distance_to_e4m3(double value)
{
    int exponent;
    double steps = 16 * frexp(value, &exponent);
    return steps - nearbyint(steps);
}

static double largest_of(const float *values, size_t size)
{
    double largest = 0;
    for (size_t i = 0; i < size; i++)
        largest = isfinite(values[i]) && fabs((double)values[i]) > largest ? fabs((double)values[i]) : largest;
    return largest;
}

/* levels: the integer that a part's largest number became; 0 for e4m3, whose largest is 448. The largest itself says
 * nothing: it is on the grid by definition. */
static double part_error(const float *values, size_t parts, size_t size, int levels)
{
    struct closeness closeness = {0};
    double energy = 0, explained = 0;
    for (size_t part = 0; part < parts; part++) {
        const float *from = values + part * size;
        double largest = largest_of(from, size), step = largest / (levels ? levels : 448);
        for (size_t i = 0; i < size && step > 0; i++) {
            double value = fabs((double)from[i]) / step, distance;
            if (!isfinite(value))
                continue;
            energy += (double)from[i] * (double)from[i];
            explained += step * step / 12;
            if (fabs((double)from[i]) == largest || value == 0)
                continue;
            distance = levels ? distance_to_integer(value) : distance_to_e4m3(value);
            closeness.squares += distance * distance;
            closeness.count++;
        }
    }
    if (!is_near(&closeness))
        return 0;
    return levels ? sqrt(explained / energy) : ldexp(0.2123, -3);
}

/* A scale for all, anywhere in its octave. A sample tells. */
static double common_error(const float *values, size_t count)
{
    for (int k = 0; k < 256; k++) {
        double scale = exp2(k / 256.0);
        struct closeness closeness = {0};
        for (size_t i = 0; i < count && closeness.count < 64; i++) {
            double distance;
            if (values[i] == 0 || !isfinite(values[i]))
                continue;
            distance = distance_to_e4m3(fabs((double)values[i]) * scale);
            closeness.squares += distance * distance;
            closeness.count++;
        }
        if (is_near(&closeness))
            return ldexp(0.2123, -3);
    }
    return 0;
}

double ts_grid_error(const float *values, size_t parts, size_t size)
{
    /* the coarser ones first: what lies on them lies on the finer ones as well */
    static const int levels[] = {7, 0, 127};
    double error = 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels && error == 0; i++)
        error = part_error(values, parts, size, levels[i]);
    return error != 0 ? error : common_error(values, parts * size);
}
