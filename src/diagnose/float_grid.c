/* Owns the grids of small floats under a scale: e4m3, e5m2 and e2m1 as checkpoints and kernels use them, with one scale
 * for all, for each row or column, or for each block. Grids of even steps are in types_quantized.c. */
#include "diagnose/float_grid.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "diagnose/formula.h"

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
        used = 0;
        for (size_t i = 0; i < lane->count && (double)off <= (1 - FITS) * (double)lane->count; i++) {
            double size = fabs(the_case->found[lane->first + i * lane->step]) / scale;
            off += distance(levels, size, &spacing) > NEAR;
            used += size > levels->value[0] / 2; /* what is far smaller is on no level */
        }
        if ((double)off <= (1 - FITS) * (double)lane->count && used >= 12 && used * 4 >= lane->count)
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

/* A claim. */
struct grid {
    struct levels levels;
    enum spread spread;
    size_t size;  /* of a block */
    double scale; /* ALL; of columns the scales are in the table */
    double modesty;
};

/* Slots of a tally: lanes or elements, those that fit, and of lanes what they show. */
enum { LOOKED, GOOD, SCALES, EVEN, ERROR, IDEAL };

static void add_lane(const struct ts_case *the_case, const struct levels *levels, const struct lane *lane, double scale,
                     struct ts_tally *tally)
{
    int exponent;
    tally->sums[LOOKED]++;
    if (!(scale > 0))
        return;
    tally->sums[GOOD]++;
    tally->sums[SCALES] += scale;
    tally->sums[EVEN] += frexp(scale, &exponent) == 0.5;
    add_errors(the_case, levels, lane, scale, &tally->sums[ERROR], &tally->sums[IDEAL]);
}

/* One element under a scale that is known. Above the largest level the binades go on: which of them is the last one the
 * rows at hand may not have shown. */
static void add_element(const struct ts_case *the_case, const struct levels *levels, size_t i, double scale,
                        struct ts_tally *tally)
{
    double found = fabs(the_case->found[i]), right = fabs((double)the_case->actor->a[i]), spacing, factor = 1, over;
    if (!isfinite(found))
        return;
    tally->sums[LOOKED]++;
    over = scale > 0 ? found / scale / levels->largest : (double)INFINITY;
    if (!isfinite(over))
        return;
    if (over > 1)
        factor = exp2(-ceil(log2(over)));
    if (distance(levels, found / scale * factor, &spacing) > NEAR)
        return;
    tally->sums[GOOD]++;
    if (!isfinite(right))
        return;
    tally->sums[ERROR] +=
        (the_case->found[i] - (double)the_case->actor->a[i]) * (the_case->found[i] - (double)the_case->actor->a[i]);
    (void)distance(levels, fmin(right / scale * factor, levels->largest), &spacing);
    tally->sums[IDEAL] += spacing * scale / factor * spacing * scale / factor / 12;
}

/* The block is the reference's, which says nothing. */
static bool is_equal(const struct ts_case *the_case, const struct lane *lane)
{
    for (size_t i = 0; i < lane->count; i++)
        if (the_case->found[lane->first + i * lane->step] != (double)the_case->actor->a[lane->first + i * lane->step])
            return false;
    return true;
}

static bool count(struct ts_case *the_case, const struct ts_formula *formula, const double *out, struct ts_tally *tally)
{
    const struct grid *grid = formula->numbers;
    bool lanes = grid->spread == ROWS || grid->spread == BLOCKS;
    size_t width = the_case->actor->width;
    (void)out;
    if (grid->spread == COLUMNS && formula->table_count != width)
        return false;
    for (size_t number = 0; lanes && number < the_case->total / grid->size; number++) {
        struct lane lane = lane_of(the_case, grid->spread, grid->size, number);
        if (!is_equal(the_case, &lane))
            add_lane(the_case, &grid->levels, &lane, scale_of(the_case, &grid->levels, &lane), tally);
    }
    for (size_t i = 0; !lanes && i < the_case->total; i++)
        add_element(the_case, &grid->levels, i, grid->spread == ALL ? grid->scale : formula->table[i % width], tally);
    return true;
}

static double ratio_of(const struct ts_tally *tally)
{
    return tally->sums[IDEAL] > 0 ? sqrt(tally->sums[ERROR] / tally->sums[IDEAL]) : 0;
}

/* The sentence with the numbers of a tally. even: every scale is a power of two. */
static const char *sentence(struct ts_case *the_case, const struct grid *grid, const struct ts_tally *tally,
                            double scale, bool even)
{
    char where[64], under[192];
    const char *few = "";
    double off = tally->sums[LOOKED] - tally->sums[GOOD];
    if (grid->spread == BLOCKS)
        snprintf(where, sizeof where, "each block of %zu", grid->size);
    else
        snprintf(where, sizeof where, "%s",
                 grid->spread == ALL    ? "all"
                 : grid->spread == ROWS ? "each row"
                                        : "each channel");
    if (grid->spread == ALL && even)
        snprintf(under, sizeof under, "without a scale or with a power of two as scale");
    else
        snprintf(under, sizeof under, "with a scale for %s, %.4g%s%s", where, scale,
                 grid->spread == ALL ? "" : " on average", even ? ", powers of two (as in MX formats)" : "");
    if (off > 0)
        few = ts_case_text(the_case, "; %" PRIu64 " of %" PRIu64 " %s do not fit", (uint64_t)off,
                           (uint64_t)tally->sums[LOOKED],
                           grid->spread == ROWS     ? "rows"
                           : grid->spread == BLOCKS ? "blocks"
                                                    : "elements");
    return ts_case_text(the_case,
                        "the values lie on the levels of %s %s; the error is %.2f times what such levels must cause%s",
                        grid->levels.name, under, ratio_of(tally), few);
}

static const char *tell(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                        double *share)
{
    const struct grid *grid = formula->numbers;
    bool lanes = grid->spread == ROWS || grid->spread == BLOCKS;
    int exponent;
    *share = tally->sums[LOOKED] > 0 ? grid->modesty * tally->sums[GOOD] / tally->sums[LOOKED] : *share;
    if (!(tally->sums[GOOD] > 0))
        return NULL;
    if (ratio_of(tally) < RATIO_LEAST || ratio_of(tally) > RATIO_MOST)
        *share = 0;
    return sentence(the_case, grid, tally, lanes ? tally->sums[SCALES] / tally->sums[GOOD] : grid->scale,
                    lanes ? tally->sums[EVEN] == tally->sums[GOOD] : frexp(grid->scale, &exponent) == 0.5);
}

/* For other rows: the scale of every column, in the rows that are here. */
static double *scales_of_all(const struct ts_case *the_case, const struct grid *grid)
{
    size_t width = the_case->actor->width;
    double *scales = calloc(width, sizeof *scales);
    for (size_t c = 0; c < width && scales; c++) {
        struct lane lane = lane_of(the_case, COLUMNS, 0, c);
        scales[c] = scale_of(the_case, &grid->levels, &lane);
    }
    return scales;
}

static bool try_grid(struct ts_case *the_case, const struct levels *levels, enum spread spread, size_t size)
{
    size_t width = the_case->actor->width;
    size_t all = spread == ALL ? 1 : spread == COLUMNS ? width : the_case->total / size, stride = all / MOST_BLOCKS + 1;
    struct grid grid = {.levels = *levels, .spread = spread, .size = size};
    struct ts_tally tally, seen;
    double *scales = NULL;
    bool even;
    ts_tally_open(&tally);
    for (size_t number = 0; number < all; number += stride) {
        struct lane lane = lane_of(the_case, spread, size, number);
        if (tally.sums[LOOKED] == FIRST_LOOK && !(tally.sums[GOOD] > 0))
            return false;
        add_lane(the_case, levels, &lane, scale_of(the_case, levels, &lane), &tally);
    }
    if (!(tally.sums[GOOD] > 0) || tally.sums[GOOD] < BLOCKS_GOOD * tally.sums[LOOKED] ||
        ratio_of(&tally) < RATIO_LEAST || ratio_of(&tally) > RATIO_MOST)
        return false;
    even = tally.sums[EVEN] == tally.sums[GOOD];
    grid.scale = tally.sums[SCALES] / tally.sums[GOOD];
    grid.modesty = spread == ALL && even ? 0.9 : 0.97;
    if (spread == COLUMNS && !ts_case_complete(the_case))
        scales = scales_of_all(the_case, &grid);
    ts_formula_next(the_case, &(struct ts_formula){.count = count,
                                                   .tell = tell,
                                                   .numbers = &grid,
                                                   .size = sizeof grid,
                                                   .table = scales,
                                                   .table_count = scales ? width : 0});
    free(scales);
    seen = tally;
    seen.sums[LOOKED] = seen.sums[GOOD]; /* how many do not is said of all of them */
    ts_propose_plain(the_case, "quantization", grid.modesty * tally.sums[GOOD] / tally.sums[LOOKED],
                     "nothing, if this quantization is intended; otherwise the file or setting it comes from", "%s",
                     sentence(the_case, &grid, &seen, grid.scale, even));
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
