/* Owns dropout that is on in the candidate: numbers that are zero here and there, while all others are larger by what
 * that takes away on average. */
#include <math.h>
#include <stdlib.h>

#include "diagnose/memory.h"
#include "diagnose/variant.h"

#define LEAST_SHARE 0.02 /* of numbers that are dropped */
#define MOST_SHARE  0.9
#define LEAST_ZEROS 8
#define STRAYS      4.0  /* standard deviations by which chance drops more or fewer */
#define OFF         0.01 /* and what rounding makes of the factor */
#define TYPICAL     0.05 /* of the root mean square: numbers below it are zero by rounding as well */
#define BITS        8    /* of a number that is fitted; whether one is dropped takes one bit */
#define GATHERED    3.0  /* times as uneven over tokens or channels as chance makes it */

struct dropout {
    double factor, nothing; /* of what is kept; what counts as zero */
};

/* Numbers of a token or a channel that are large enough to tell, and how many of them are zero. */
struct line {
    size_t count, zeros;
};

static bool predict(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct dropout *dropout = formula->numbers;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = fabs(the_case->found[i]) <= dropout->nothing ? 0 : dropout->factor * the_case->expected[i];
    return true;
}

/* How uneven zeros are over the lines of one direction, over what chance makes of it: near 1 where they are drawn. */
static double unevenness(const struct line *lines, size_t count, double share)
{
    double sum = 0;
    size_t seen = 0;
    for (size_t i = 0; i < count; i++) {
        const double off = (double)lines[i].zeros - share * (double)lines[i].count;
        if (!lines[i].count)
            continue;
        sum += off * off / ((double)lines[i].count * share * (1 - share));
        seen++;
    }
    return seen ? sum / (double)seen : 0;
}

void ts_propose_dropout(struct ts_case *the_case, double nothing)
{
    struct dropout dropout = {.nothing = nothing};
    struct ts_formula formula = {.predict = predict, .numbers = &dropout, .size = sizeof dropout};
    double squares = 0, products = 0, own = 0, least, share, dropped, spread, *out = ts_case_scratch(the_case);
    const size_t rows = the_case->actor->rows, width = the_case->actor->width;
    struct line *lines = calloc(rows + width, sizeof *lines), *columns = lines ? lines + rows : NULL;
    size_t finite = 0, count = 0, zeros = 0;
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->expected[i]) && the_case->expected[i] != 0) {
            squares += the_case->expected[i] * the_case->expected[i];
            finite++;
        }
    least = fmax(2 * nothing, TYPICAL * sqrt(squares / (double)(finite ? finite : 1)));
    for (size_t i = 0; i < the_case->total && lines; i++) {
        const double expected = the_case->expected[i], found = the_case->found[i];
        if (!isfinite(expected) || !isfinite(found) || fabs(expected) <= least || ts_case_aside(the_case, i / width))
            continue;
        count++;
        lines[i / width].count++;
        columns[i % width].count++;
        if (fabs(found) <= nothing) {
            zeros++;
            lines[i / width].zeros++;
            columns[i % width].zeros++;
        } else {
            products += found * expected;
            own += expected * expected;
        }
    }
    share = count ? (double)zeros / (double)count : 0;
    dropout.factor = own > 0 ? products / own : 0;
    dropped = 1 - 1 / dropout.factor;
    spread = sqrt(share * (1 - share) / (double)(count ? count : 1));
    if (!out || zeros < LEAST_ZEROS || share < LEAST_SHARE || share > MOST_SHARE ||
        !(fabs(dropped - share) <= STRAYS * spread + OFF) || unevenness(lines, rows, share) > GATHERED ||
        unevenness(columns, width, share) > GATHERED || !predict(the_case, &formula, out)) {
        free(lines);
        return;
    }
    free(lines);
    ts_formula_next(the_case, &formula);
    ts_propose(the_case, "zeros", out, 1 + zeros / BITS,
               "whether the candidate runs in training mode (model.eval() in PyTorch), and the dropout of this step",
               "%.2g %% of the numbers are zero, here and there, and all others are %.4g times what they should be: "
               "dropout is on, with p = %.2g",
               100 * share, dropout.factor, dropped);
}
