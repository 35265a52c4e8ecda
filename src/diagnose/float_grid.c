/* Owns the grids of small floats under a scale: e4m3, e5m2 and e2m1 as checkpoints and kernels use them, with one scale
 * for all, for each row or column, or for each block. Grids of even steps are in family_types.c. */
#include "diagnose/float_grid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_LEVELS 128
#define BINADES     6    /* how far below the largest level the largest value of a block may lie */
#define NEAR        5e-3 /* of a level: what scales and results that were rounded to bf16 are off by */
#define FITS        0.99 /* of a block's elements */
#define BLOCKS_GOOD 0.97
#define FIRST_LOOK  8 /* blocks, of which one must fit */
#define MOST_BLOCKS 128
#define MOST_OF_ONE 4096 /* elements that are looked at where one scale serves all */
#define RATIO_LEAST                                                                                                    \
    0.7                 /* error over that of such levels: whole numbers up to eight are levels of e5m2 as well, but   \
                         */
#define RATIO_MOST 1.35 /* lie further apart */

struct levels {
    const char *name;
    int mantissa, bias;
    double largest;
    double value[MOST_LEVELS]; /* above zero, ascending */
    size_t count;
};

static void fill_levels(struct levels *levels)
{
    double value = 0;
    for (int code = 1; levels->count < MOST_LEVELS && value < levels->largest; code++) {
        int exponent = code >> levels->mantissa, fraction = code & ((1 << levels->mantissa) - 1);
        value = exponent ? ldexp((1 << levels->mantissa) + fraction, exponent - levels->bias - levels->mantissa)
                         : ldexp(fraction, 1 - levels->bias - levels->mantissa);
        levels->value[levels->count++] = value;
    }
}

/* Distance from the nearest level, over it; zero is a level. spacing: to the next one. */
static double distance(const struct levels *levels, double size, double *spacing)
{
    size_t low = 0, high = levels->count - 1;
    double below, above;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (levels->value[middle] <= size)
            low = middle;
        else
            high = middle;
    }
    below = size < levels->value[0] ? 0 : levels->value[low];
    above = size < levels->value[0] ? levels->value[0] : levels->value[high];
    *spacing = above - below;
    if (size - below < above - size)
        return below > 0 ? (size - below) / below : size / above;
    return fabs(above - size) / above;
}

/* Elements first, first + step, ... of the case. */
struct lane {
    size_t first, step, count;
};

/* The scale under which a lane lies on the levels; 0 when there is none. */
static double scale_of(const struct ts_case *the_case, const struct levels *levels, const struct lane *lane)
{
    double largest = 0, spacing;
    size_t used = 0;
    for (size_t i = 0; i < lane->count; i++) {
        double found = the_case->found[lane->first + i * lane->step];
        if (!isfinite(found))
            return 0;
        used += found != 0;
        largest = fabs(found) > largest ? fabs(found) : largest;
    }
    if (used < 12 || used * 4 < lane->count)
        return 0;
    for (size_t k = levels->count; k-- > 0 && levels->value[k] * (1 << BINADES) > levels->largest;) {
        double scale = largest / levels->value[k];
        size_t off = 0;
        for (size_t i = 0; i < lane->count && (double)off <= (1 - FITS) * (double)lane->count; i++)
            off += distance(levels, fabs(the_case->found[lane->first + i * lane->step]) / scale, &spacing) > NEAR;
        if ((double)off <= (1 - FITS) * (double)lane->count)
            return scale;
    }
    return 0;
}

/* How wrong a lane is, over what rounding to the levels makes of it. */
static void add_errors(const struct ts_case *the_case, const struct levels *levels, const struct lane *lane,
                       double scale, double *error, double *ideal)
{
    for (size_t i = 0; i < lane->count; i++) {
        size_t at = lane->first + i * lane->step;
        double right = (double)the_case->actor->a[at], off = the_case->found[at] - right, spacing;
        if (!isfinite(right))
            continue;
        (void)distance(levels, fmin(fabs(right) / scale, levels->largest), &spacing);
        *error += off * off;
        *ideal += spacing * scale * spacing * scale / 12;
    }
}

enum spread { ALL, ROWS, COLUMNS, BLOCKS };

static struct lane lane_of(const struct ts_case *the_case, enum spread spread, size_t size, size_t number)
{
    size_t width = the_case->actor->width;
    if (spread == ALL) {
        size_t step = the_case->total / MOST_OF_ONE + 1;
        return (struct lane){0, step, the_case->total / step};
    }
    if (spread == COLUMNS)
        return (struct lane){number, width, the_case->actor->rows};
    return (struct lane){number * size, 1, size};
}

static bool try_grid(struct ts_case *the_case, const struct levels *levels, enum spread spread, size_t size)
{
    size_t width = the_case->actor->width;
    size_t all = spread == ALL ? 1 : spread == COLUMNS ? width : the_case->total / size, stride = all / MOST_BLOCKS + 1;
    size_t looked = 0, good = 0, even = 0;
    double error = 0, ideal = 0, scales = 0, ratio;
    char where[64], under[192];
    for (size_t number = 0; number < all; number += stride) {
        struct lane lane = lane_of(the_case, spread, size, number);
        double scale = scale_of(the_case, levels, &lane);
        int exponent;
        if (looked++ == FIRST_LOOK && !good)
            return false;
        if (!(scale > 0))
            continue;
        good++;
        scales += scale;
        even += frexp(scale, &exponent) == 0.5;
        add_errors(the_case, levels, &lane, scale, &error, &ideal);
    }
    ratio = ideal > 0 ? sqrt(error / ideal) : 0;
    if (!good || (double)good < BLOCKS_GOOD * (double)looked || ratio < RATIO_LEAST || ratio > RATIO_MOST)
        return false;
    if (spread == BLOCKS)
        snprintf(where, sizeof where, "each block of %zu", size);
    else
        snprintf(where, sizeof where, "%s", spread == ALL ? "all" : spread == ROWS ? "each row" : "each channel");
    if (spread == ALL && even == good)
        snprintf(under, sizeof under, "without a scale, or under a power of two");
    else
        snprintf(under, sizeof under, "under a scale for %s, %.4g%s%s", where, scales / (double)good,
                 spread == ALL ? "" : " on average", even == good ? ", powers of two (as MX formats have them)" : "");
    ts_propose_plain(the_case, "quantization", (spread == ALL && even ? 0.9 : 0.97) * (double)good / (double)looked,
                     "nothing, when this quantization is meant; else the file or the setting it comes from",
                     "values lie on the levels of %s %s; the error is %.2f times what such levels must make",
                     levels->name, under, ratio);
    return true;
}

void ts_propose_float_grid(struct ts_case *the_case)
{
    static const size_t sizes[] = {256, 128, 64, 32, 16};
    struct levels kinds[] = {{.name = "e2m1 (fp4)", .mantissa = 1, .bias = 1, .largest = 6},
                             {.name = "e5m2", .mantissa = 2, .bias = 15, .largest = 57344},
                             {.name = "e4m3", .mantissa = 3, .bias = 7, .largest = 448}};
    size_t width = the_case->actor->width;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const struct levels *levels = &kinds[k];
        fill_levels(&kinds[k]);
        if (try_grid(the_case, levels, ALL, 0) || (width >= 16 && try_grid(the_case, levels, ROWS, width)) ||
            (the_case->actor->rows >= 16 && try_grid(the_case, levels, COLUMNS, 0)))
            return;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            if (width > sizes[s] && width % sizes[s] == 0 && try_grid(the_case, levels, BLOCKS, sizes[s]))
                return;
    }
}
