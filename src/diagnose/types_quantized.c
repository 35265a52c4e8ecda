/* Owns grids of even steps that values lie on: one for all, one for each block, one for each channel. What was seen on
 * some blocks is put to every element of the tensor. Grids of small floats are in float_grid.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/families.h"
#include "diagnose/formula.h"
#include "diagnose/types.h"

#define LEAST_COLUMN 64   /* rows, so that a channel shows its grid */
#define ONE_STEP     1.01 /* steps of all blocks are that near each other where there is one for all */
#define SOME_BLOCKS  256  /* are enough to see it */
#define SOME_COLUMNS 128
#define FIRST_BLOCKS 16 /* half of them must lie on a grid, or the rest is not looked at */
#define MOST_CODES   256
#define HALF_A_STEP  1.05 /* steps that a value may be off by: zero points and ends move it by more than a half */
#define OFF_GRID     0.04 /* of a step, and so much more for so many steps from where it is counted from */
#define FAR_STEPS    64

static const char *const check =
    "nothing, if this quantization is intended; otherwise the file or setting it comes from";

enum spread { ALL, BLOCKS, COLUMNS };

/* A claim. */
struct grid {
    enum spread spread;
    size_t size;         /* of a block */
    double step, origin; /* ALL */
    unsigned codes;      /* COLUMNS: most levels that one shows; its steps and origins are in the table */
    double modesty;
};

/* Slots of a tally: blocks or elements, those that lie on a grid, their error and what their steps must make of it. */
enum { LOOKED, GOOD, STEPS, ERROR, IDEAL };

/* A grid of `levels` steps per block, from the block's own values; 0 when they do not lie on one. */
static double step_of(const double *values, size_t count, unsigned *codes)
{
    double sorted[256], step = INFINITY, low = INFINITY, high = -INFINITY;
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0, end = distinct;
        if (!isfinite(values[i]))
            return 0;
        while (at < end) {
            size_t middle = (at + end) / 2;
            if (sorted[middle] < values[i])
                at = middle + 1;
            else
                end = middle;
        }
        if (at < distinct && sorted[at] == values[i])
            continue;
        if (distinct == 256)
            return 0;
        memmove(sorted + at + 1, sorted + at, (distinct - at) * sizeof *sorted);
        sorted[at] = values[i];
        distinct++;
    }
    if (distinct < 3)
        return 0;
    low = sorted[0];
    high = sorted[distinct - 1];
    for (size_t i = 1; i < distinct; i++)
        step = sorted[i] - sorted[i - 1] < step ? sorted[i] - sorted[i - 1] : step;
    if (step < (high - low) / 300)
        return 0;
    for (size_t i = 1; i < distinct; i++) {
        double steps = (sorted[i] - low) / step;
        if (fabs(steps - nearbyint(steps)) > 0.04 * (1 + steps / 64))
            return 0;
    }
    *codes = (unsigned)nearbyint((high - low) / step) + 1;
    return step;
}

/* The same of a small block, in which few neighbours on the grid occur: scales are made so that the largest value is
 * the last level, and every other one then is a whole number of steps. */
static double step_of_largest(const double *values, size_t count, unsigned *codes)
{
    static const unsigned levels[] = {7, 8, 15, 31, 127};
    double largest = 0;
    size_t zeros = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            return 0;
        largest = fabs(values[i]) > largest ? fabs(values[i]) : largest;
        zeros += values[i] == 0;
    }
    for (size_t k = 0; k < sizeof levels / sizeof *levels && largest > 0 && zeros * 2 < count; k++) {
        double step = largest / levels[k];
        size_t i = 0;
        while (i < count && fabs(values[i] / step - nearbyint(values[i] / step)) < 0.035)
            i++;
        *codes = 2 * levels[k] + 1;
        if (i == count)
            return step;
    }
    return 0;
}

/* One block: what it shows is added to the tally. A block that is the reference's says nothing where all are looked
 * at. */
static void add_block(const double *found, const float *right, size_t size, bool equal_too, struct ts_tally *tally,
                      double *finest)
{
    unsigned codes = 0;
    double step, worst = 0, sum = 0;
    bool equal = !equal_too;
    for (size_t i = 0; i < size && equal; i++)
        equal = found[i] == (double)right[i];
    if (equal)
        return;
    step = step_of(found, size, &codes);
    step = step > 0 ? step : step_of_largest(found, size, &codes);
    tally->sums[LOOKED]++;
    for (size_t i = 0; i < size && step > 0; i++) {
        double d = fabs(found[i] - (double)right[i]);
        worst = d > worst ? d : worst;
        sum += d * d;
    }
    if (!(step > 0) || worst > HALF_A_STEP * step || codes > MOST_CODES)
        return;
    tally->sums[GOOD]++;
    tally->sums[STEPS] += step;
    tally->sums[ERROR] += sum;
    tally->sums[IDEAL] += step * step / 12 * (double)size;
    tally->most = fmax(tally->most, (double)codes);
    *finest = step < *finest ? step : *finest;
    tally->least = fmin(tally->least, -step); /* the coarsest one */
}

/* One element on a grid that is known. */
static void add_element(double found, double right, double step, double origin, struct ts_tally *tally)
{
    double steps = (found - origin) / step, off = fabs(found - right);
    if (!isfinite(found))
        return;
    tally->sums[LOOKED]++;
    if (!(step > 0) || fabs(steps - nearbyint(steps)) > OFF_GRID * (1 + fabs(steps) / FAR_STEPS) ||
        off > HALF_A_STEP * step)
        return;
    tally->sums[GOOD]++;
    tally->sums[ERROR] += off * off;
    tally->sums[IDEAL] += step * step / 12;
}

static bool count(struct ts_case *the_case, const struct ts_formula *formula, const double *out, struct ts_tally *tally)
{
    const struct grid *grid = formula->numbers;
    const struct ts_actor *actor = the_case->actor;
    const double *steps = formula->table, *origins = steps + actor->width;
    double finest = INFINITY;
    (void)out;
    if (grid->spread == COLUMNS && formula->table_count != 2 * actor->width)
        return false;
    for (size_t i = 0; i + grid->size <= the_case->total && grid->spread == BLOCKS; i += grid->size)
        add_block(the_case->found + i, actor->a + i, grid->size, false, tally, &finest);
    for (size_t i = 0; i < the_case->total && grid->spread != BLOCKS; i++) {
        size_t c = i % actor->width;
        bool columns = grid->spread == COLUMNS;
        add_element(the_case->found[i], (double)actor->a[i], columns ? steps[c] : grid->step,
                    columns ? origins[c] : grid->origin, tally);
        if (!columns && isfinite(the_case->found[i])) {
            tally->least = fmin(tally->least, the_case->found[i]);
            tally->most = fmax(tally->most, the_case->found[i]);
        }
    }
    return true;
}

static double ratio_of(const struct ts_tally *tally)
{
    return tally->sums[IDEAL] > 0 ? sqrt(tally->sums[ERROR] / tally->sums[IDEAL]) : 0;
}

/* The sentence with the numbers of a tally. step: the mean one. */
static const char *sentence(struct ts_case *the_case, const struct grid *grid, const struct ts_tally *tally,
                            double step)
{
    double levels = grid->spread == ALL ? nearbyint((tally->most - tally->least) / grid->step) + 1 : tally->most;
    double looked = tally->sums[LOOKED], off = looked - tally->sums[GOOD];
    const char *few = "";
    levels = grid->spread == COLUMNS ? (double)grid->codes : levels;
    if (off > 0)
        few = ts_case_text(the_case, "; %" PRIu64 " of %" PRIu64 " %s do not fit", (uint64_t)off, (uint64_t)looked,
                           grid->spread == BLOCKS ? "blocks" : "elements");
    if (grid->spread == ALL)
        return ts_case_text(the_case,
                            "all values lie on one grid: %.0f levels (%.0f bits), a step of %.4g; the error is %.2f "
                            "times what such steps must cause%s",
                            levels, ceil(log2(levels)), step, ratio_of(tally), few);
    if (grid->spread == COLUMNS)
        return ts_case_text(the_case,
                            "the values of each channel lie on a grid of their own: up to %.0f levels (%.0f bits), a "
                            "step of %.4g on average; the error is %.2f times what such steps must cause%s",
                            levels, ceil(log2(levels)), step, ratio_of(tally), few);
    return ts_case_text(the_case,
                        "the values of each block of %zu lie on a grid of their own: up to %.0f levels (%.0f bits), a "
                        "step of %.4g on average; the error is %.2f times what such steps must cause%s",
                        grid->size, levels, ceil(log2(levels)), step, ratio_of(tally), few);
}

static const char *tell(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                        double *share)
{
    const struct grid *grid = formula->numbers;
    double step = grid->step;
    *share = tally->sums[LOOKED] > 0 ? grid->modesty * tally->sums[GOOD] / tally->sums[LOOKED] : *share;
    if (grid->spread == BLOCKS && tally->sums[GOOD] > 0)
        step = tally->sums[STEPS] / tally->sums[GOOD];
    return tally->sums[GOOD] > 0 ? sentence(the_case, grid, tally, step) : NULL;
}

static void say(struct ts_case *the_case, const struct grid *grid, const double *table, size_t table_count,
                const struct ts_tally *tally)
{
    struct ts_tally seen = *tally;
    ts_formula_next(the_case, &(struct ts_formula){.count = count,
                                                   .tell = tell,
                                                   .numbers = grid,
                                                   .size = sizeof *grid,
                                                   .table = table,
                                                   .table_count = table_count});
    seen.sums[LOOKED] = seen.sums[GOOD]; /* on some blocks: how many do not is said of all */
    ts_propose_plain(the_case, "quantization", grid->modesty * tally->sums[GOOD] / tally->sums[LOOKED], check, "%s",
                     sentence(the_case, grid, &seen, grid->step));
}

/* The value nearest to zero, from which steps are counted. */
static double origin_of(const double *values, size_t count)
{
    double origin = INFINITY;
    for (size_t i = 0; i < count; i++)
        if (fabs(values[i]) < fabs(origin))
            origin = values[i];
    return origin;
}

/* The steps of all channels, for other rows. */
static double *steps_of_all(const struct ts_case *the_case, double *column)
{
    const struct ts_actor *actor = the_case->actor;
    double *table = calloc(2 * actor->width, sizeof *table);
    for (size_t c = 0; c < actor->width && table; c++) {
        unsigned codes = 0;
        for (size_t row = 0; row < actor->rows; row++)
            column[row] = the_case->found[row * actor->width + c];
        table[c] = step_of(column, actor->rows, &codes);
        table[c] = table[c] > 0 ? table[c] : step_of_largest(column, actor->rows, &codes);
        table[actor->width + c] = origin_of(column, actor->rows);
    }
    return table;
}

/* A grid of its own in each channel, which is no run of numbers. */
static void quantized_columns(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t stride = actor->width / SOME_COLUMNS + 1, columns = 0, good = 0;
    double *column = malloc(actor->rows * sizeof *column), *table = NULL;
    struct grid grid = {.spread = COLUMNS, .modesty = 0.94};
    struct ts_tally tally;
    ts_tally_open(&tally);
    for (size_t c = 0;
         c < actor->width && column && actor->rows >= LEAST_COLUMN && !(the_case->delta && the_case->delta->exact);
         c += stride) {
        unsigned codes = 0;
        int exponent;
        double step, worst = 0, sum = 0;
        for (size_t row = 0; row < actor->rows; row++)
            column[row] = the_case->found[row * actor->width + c];
        step = step_of(column, actor->rows, &codes);
        step = step > 0 ? step : step_of_largest(column, actor->rows, &codes);
        for (size_t row = 0; row < actor->rows && step > 0; row++) {
            double d = fabs(column[row] - (double)actor->a[row * actor->width + c]);
            worst = d > worst ? d : worst;
            sum += d * d;
        }
        if (columns++ == 8 && !good)
            break;
        /* numbers of one binade that were rounded to some type lie on powers of two */
        if (!(step > 0) || worst > HALF_A_STEP * step || codes > MOST_CODES || frexp(step, &exponent) == 0.5)
            continue;
        good++;
        grid.step += step;
        tally.sums[ERROR] += sum;
        tally.sums[IDEAL] += step * step / 12 * (double)actor->rows;
        grid.codes = codes > grid.codes ? codes : grid.codes;
    }
    tally.sums[LOOKED] = (double)columns;
    tally.sums[GOOD] = (double)good;
    /* else the reference lies on it as well */
    if (tally.sums[ERROR] > 0.25 * tally.sums[IDEAL] && columns >= 2 && (double)good >= 0.9 * (double)columns &&
        grid.codes >= 2) {
        grid.step /= (double)good;
        table = ts_case_complete(the_case) ? NULL : steps_of_all(the_case, column);
        say(the_case, &grid, table, table ? 2 * actor->width : 0, &tally);
    }
    free(table);
    free(column);
}

/* Where one grid serves all: its ends in what is here, and its step as they show it. */
static void measure_one(const struct ts_case *the_case, struct grid *grid, struct ts_tally *tally)
{
    double levels;
    tally->least = INFINITY;
    tally->most = -INFINITY;
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->found[i])) {
            tally->least = fmin(tally->least, the_case->found[i]);
            tally->most = fmax(tally->most, the_case->found[i]);
        }
    levels = nearbyint((tally->most - tally->least) / grid->step);
    grid->step = levels > 0 ? (tally->most - tally->least) / levels : grid->step;
    grid->origin = origin_of(the_case->found, the_case->total);
}

/* The levels of a block in the type that the candidate's file declares, whole bits of it: that these are used is known,
 * and was taken into account before anything was said to differ. 0: it declares none. */
static double levels_declared(const struct ts_case *the_case)
{
    const struct ts_tensor *tensor = the_case->scene->pairs[the_case->actor->pair].b.tensor;
    if (ts_type_info(tensor->type)->kind != TS_CLASS_QUANT || !tensor->count)
        return 0;
    return exp2(floor((double)tensor->bytes * 8 / (double)tensor->count));
}

/* Blocks of one size: true when it is said of them. The first ones tell whether an unusual size is worth the others. */
static bool quantized_blocks(struct ts_case *the_case, size_t size, bool usual)
{
    const struct ts_actor *actor = the_case->actor;
    struct grid grid = {.spread = BLOCKS, .size = size, .modesty = 0.95};
    size_t stride = the_case->total / size / SOME_BLOCKS + 1;
    double finest = INFINITY;
    struct ts_tally tally;
    ts_tally_open(&tally);
    for (size_t b = 0; b * size + size <= the_case->total; b += stride) {
        add_block(the_case->found + b * size, actor->a + b * size, size, true, &tally, &finest);
        if (!usual && tally.sums[LOOKED] == FIRST_BLOCKS && tally.sums[GOOD] < 0.5 * FIRST_BLOCKS)
            return false;
    }
    if (tally.sums[LOOKED] < 2 || tally.sums[GOOD] < 0.9 * tally.sums[LOOKED] || tally.most < 2)
        return false;
    if (tally.most > levels_declared(the_case) / 2 && levels_declared(the_case) > 0)
        return true;
    grid.step = tally.sums[STEPS] / tally.sums[GOOD];
    if (size == actor->width && -tally.least < ONE_STEP * finest) {
        grid.spread = ALL;
        measure_one(the_case, &grid, &tally);
    }
    say(the_case, &grid, NULL, 0, &tally);
    return true;
}

/* Values on a grid of its own in each block, the error no more than half a step. */
void ts_propose_quantized(struct ts_case *the_case)
{
    size_t width = the_case->actor->width;
    if (width >= 8 && quantized_blocks(the_case, width, true))
        return;
    for (size_t size = 256; size >= 8; size--) { /* the largest that fits: pieces of a block lie on its grid as well */
        bool usual = (size & (size - 1)) == 0;
        if (width % size == 0 && width != size && (usual || size >= 16) && quantized_blocks(the_case, size, usual))
            return;
    }
    quantized_columns(the_case);
}
