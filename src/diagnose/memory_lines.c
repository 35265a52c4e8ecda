/* Owns tokens that are zero and channels that are one number, where the run's noise hides how much they err: no
 * precision makes that of so many numbers, however much it rounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "diagnose/case.h"
#include "diagnose/formula.h"
#include "diagnose/memory.h"
#include "diagnose/region.h"

#define LEAST      16   /* numbers of a token, and eight tokens of a channel, of which most are not zero */
#define LEAST_ROWS 8    /* fewer are enough where it is zero */
#define ROW_SIZE   0.25 /* energy of such a token over the median one's */
#define VARIES     0.1  /* what such a channel varies by, over the median one */
#define SURE       0.9
#define MOST_SHARE 2 /* more than a half are no lines among others */

/* Marks tokens that are all zero; the number of them. */
static size_t zero_tokens(const struct ts_case *the_case, double *sizes, bool *mask)
{
    const size_t rows = the_case->actor->rows, width = the_case->actor->width;
    double typical = 0;
    size_t found = 0;
    for (int pass = 0; pass < 2; pass++) {
        typical = pass ? ts_nth(sizes, rows, rows / 2) : 0;
        for (size_t row = 0; row < rows; row++) {
            double size = 0;
            size_t numbers = 0, left = 0;
            for (size_t i = row * width; i < (row + 1) * width; i++) {
                double value = the_case->expected[i];
                size += isfinite(value) ? value * value : 0;
                numbers += value != 0;
                left += the_case->found[i] != 0;
            }
            if (!pass)
                sizes[row] = size;
            else if (!left && numbers >= LEAST && size > ROW_SIZE * typical && !ts_case_aside(the_case, row)) {
                for (size_t i = row * width; i < (row + 1) * width; i++)
                    mask[i] = true;
                found++;
            }
        }
    }
    return found;
}

/* Marks channels that are one number in every token, and how many of these are not zero. */
static size_t steady_channels(const struct ts_case *the_case, double *varies, bool *mask, size_t *biased)
{
    const size_t rows = the_case->actor->rows, width = the_case->actor->width;
    double typical = 0;
    size_t found = 0;
    *biased = 0;
    for (int pass = 0; pass < 2; pass++) {
        typical = pass ? ts_nth(varies, width, width / 2) : 0;
        for (size_t channel = 0; channel < width; channel++) {
            double sum = 0, squares = 0, first = the_case->found[channel];
            size_t numbers = 0, others = 0;
            for (size_t row = 0; row < rows; row++) {
                double value = the_case->expected[row * width + channel];
                if (!isfinite(value))
                    continue;
                sum += value;
                squares += value * value;
                numbers += value != 0;
                others += the_case->found[row * width + channel] != first;
            }
            squares -= sum * sum / (double)rows;
            if (!pass)
                varies[channel] = squares;
            else if (!others && isfinite(first) && (rows >= LEAST_ROWS || first == 0) && 2 * numbers > rows &&
                     squares > VARIES * typical) {
                for (size_t row = 0; row < rows; row++)
                    mask[row * width + channel] = true;
                *biased += first != 0;
                found++;
            }
        }
    }
    return found;
}

/* The table: what each channel holds in every token, infinity where it holds no one number. Counts what moves all the
 * same: rows of a sample may be alike where all are not. */
static bool count_moving(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                         struct ts_tally *tally)
{
    const size_t width = the_case->actor->width;
    (void)out;
    if (formula->table_count != width)
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        tally->sums[0] += isfinite(formula->table[i % width]) && the_case->found[i] != formula->table[i % width];
    return true;
}

static const char *tell_moving(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                               double *share)
{
    (void)the_case;
    (void)formula;
    *share = tally->sums[0] > 0 ? 0 : *share;
    return NULL;
}

static void give_steady(struct ts_case *the_case, const bool *mask)
{
    const size_t width = the_case->actor->width;
    double *table = malloc(width * sizeof *table);
    for (size_t channel = 0; channel < width && table; channel++)
        table[channel] = mask[channel] ? the_case->found[channel] : (double)INFINITY;
    if (table)
        ts_formula_next(
            the_case,
            &(struct ts_formula){.count = count_moving, .tell = tell_moving, .table = table, .table_count = width});
    free(table);
}

static void say(struct ts_case *the_case, const char *check, const char *summary)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    if (state->quiet)
        ts_propose_below_noise(the_case, "zeros", SURE, check, "%s", summary);
    else
        ts_propose_plain(the_case, "zeros", SURE, check, "%s", summary);
}

void ts_propose_empty_lines(struct ts_case *the_case)
{
    const size_t rows = the_case->actor->rows, width = the_case->actor->width;
    size_t most = rows > width ? rows : width, found, biased;
    bool *mask;
    double *sizes;
    struct ts_region region;
    if (ts_case_direct(the_case) || ts_case_is_part(the_case) || the_case->operation.kind != TS_OPERATION_NONE ||
        rows < 4 || width < LEAST)
        return;
    mask = calloc(the_case->total, sizeof *mask);
    sizes = calloc(most, sizeof *sizes);
    if (mask && sizes) {
        found = zero_tokens(the_case, sizes, mask);
        if (found && found * MOST_SHARE <= rows && ts_region_of(the_case, mask, &region))
            say(the_case,
                "whether this part is computed and written: the grid of a kernel, a slice, a mask, a padded length",
                ts_case_text(the_case, "the candidate is zero in %s (%zu of %zu elements%s)", region.text, region.count,
                             the_case->total, ts_looked_at(the_case)));
        memset(mask, 0, the_case->total * sizeof *mask);
        found = steady_channels(the_case, sizes, mask, &biased);
        if (found && found * MOST_SHARE <= width && ts_region_of(the_case, mask, &region)) {
            give_steady(the_case, mask);
            say(the_case, "whether the weights of these channels are loaded",
                biased
                    ? ts_case_text(the_case,
                                   "%s: one value per channel, the same in every %s, as zero weights and a bias give",
                                   region.text, ts_case_row_word(the_case))
                    : ts_case_text(the_case, "the candidate is zero in %s, in every %s", region.text,
                                   ts_case_row_word(the_case)));
        }
    }
    free(mask);
    free(sizes);
}
