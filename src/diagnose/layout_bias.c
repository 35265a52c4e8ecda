/* Owns weights whose rows are in another order while the bias is not: what differs between tokens moves, and what is
 * the same in all of them stays. Of few tokens no channel is known by its numbers; but an order that has a rule (a swap
 * of axes, a step) is held against all channels at once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "diagnose/formula.h"
#include "diagnose/layout.h"
#include "diagnose/shuffle.h"

#define LEAST_TOKENS   3
#define MOST_TOKENS    5 /* more tell channels from each other: match.c */
#define LEAST_CHANNELS 8
#define MOST_CHANNELS  64 /* that orders are tried on, spread over all */
#define MOST_TRIED     20000
/* Of what tells tokens apart: what an order may leave of it on trial, and what of it the right one leaves. */
#define WORTH   0.5
#define MATCHES 0.1

struct centred {
    struct ts_case *the_case;
    double *expected, *found; /* [rows, width], without the mean of each channel */
    double *offsets;          /* the mean of what was found, of each channel */
    size_t rows, width, tokens;
    struct ts_shuffle best;
    size_t step; /* in place of a swap; 0: none, the width: all the other way round */
    double left, size;
};

static bool open_centred(struct centred *centred, struct ts_case *the_case)
{
    const size_t rows = the_case->actor->rows, width = the_case->actor->width;
    *centred = (struct centred){.the_case = the_case, .rows = rows, .width = width, .left = INFINITY};
    centred->expected = calloc(2 * rows * width + width, sizeof *centred->expected);
    if (!centred->expected)
        return false;
    centred->found = centred->expected + rows * width;
    centred->offsets = centred->found + rows * width;
    for (size_t row = 0; row < rows; row++)
        centred->tokens += !ts_case_aside(the_case, row);
    for (size_t i = 0; i < width; i++) {
        double expected = 0, found = 0;
        for (size_t row = 0; row < rows; row++)
            if (!ts_case_aside(the_case, row)) {
                expected += the_case->expected[row * width + i];
                found += the_case->found[row * width + i];
            }
        centred->offsets[i] = found / (double)centred->tokens;
        for (size_t row = 0; row < rows; row++)
            if (!ts_case_aside(the_case, row)) {
                const size_t at = row * width + i;
                centred->expected[at] = the_case->expected[at] - expected / (double)centred->tokens;
                centred->found[at] = the_case->found[at] - centred->offsets[i];
                centred->size += centred->found[at] * centred->found[at];
            }
    }
    return centred->tokens >= LEAST_TOKENS && isfinite(centred->size) && centred->size > 0;
}

static size_t source_of(const struct centred *centred, const struct ts_shuffle *swap, size_t step, size_t channel)
{
    if (step == centred->width)
        return centred->width - 1 - channel;
    return step ? (channel + centred->width - step) % centred->width : (size_t)ts_shuffle_source(swap, channel);
}

/* What an order leaves of what tells tokens apart, of some channels. */
static double left_by(const struct centred *centred, const struct ts_shuffle *swap, size_t step, size_t most_channels)
{
    const size_t channels = centred->width < most_channels ? centred->width : most_channels;
    double left = 0, size = 0;
    for (size_t c = 0; c < channels; c++) {
        const size_t to = c * centred->width / channels, from = source_of(centred, swap, step, to);
        for (size_t row = 0; row < centred->rows; row++) {
            const double found = centred->found[row * centred->width + to];
            const double off = found - centred->expected[row * centred->width + from];
            left += off * off;
            size += found * found;
        }
        if (c == channels / 4 && !(left < WORTH * size))
            return INFINITY;
    }
    return left < WORTH * size ? left / size : (double)INFINITY;
}

static void consider(struct centred *centred, const struct ts_shuffle *swap, size_t step)
{
    const double left = left_by(centred, swap, step, MOST_CHANNELS);
    if (!(left < centred->left))
        return;
    centred->left = left;
    centred->step = step;
    centred->best = swap ? *swap : (struct ts_shuffle){0};
}

static void try_swap(const struct ts_shuffle *swap, void *context)
{
    consider(context, swap, 0);
}

static void propose_best(const struct centred *centred, double *prediction)
{
    struct ts_case *the_case = centred->the_case;
    const size_t width = centred->width;
    size_t *order = malloc(width * sizeof *order);
    double *offsets = calloc(width, sizeof *offsets);
    const bool flipped = centred->step == width;
    const bool heads = the_case->actor->heads > 1 && centred->step % the_case->actor->inner == 0;
    char text[256];
    for (size_t i = 0; order && offsets && i < width; i++) {
        order[i] = source_of(centred, &centred->best, centred->step, i);
        offsets[i] = centred->offsets[i];
        for (size_t row = 0; row < centred->rows; row++)
            if (!ts_case_aside(the_case, row))
                offsets[i] -= the_case->expected[row * width + order[i]] / (double)centred->tokens;
        for (size_t row = 0; row < centred->rows; row++)
            prediction[row * width + i] = the_case->expected[row * width + order[i]] + offsets[i];
    }
    if (order && offsets) {
        if (flipped)
            snprintf(text, sizeof text, "channels are in reverse order");
        else if (centred->step)
            snprintf(text, sizeof text, "channels are %zu further %s, around the end",
                     centred->step <= width / 2 ? centred->step : width - centred->step,
                     centred->step <= width / 2 ? "on" : "back");
        else
            ts_shuffle_text(&centred->best, 1, width, the_case->actor->heads, text, sizeof text);
        ts_formula_order(the_case, order, offsets);
        ts_propose(the_case, centred->step && !flipped && !heads ? "shifted" : "permuted", prediction, width,
                   "the order of the rows of the weight, and that of its bias",
                   "%s, except for a constant added to each in every token: the weights are out of place, the bias is "
                   "not",
                   text);
    }
    free(order);
    free(offsets);
}

void ts_layout_but_bias(struct ts_case *the_case, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    struct centred centred;
    if (ts_case_direct(the_case) || the_case->operation.kind != TS_OPERATION_NONE || actor->rows < LEAST_TOKENS ||
        actor->rows > MOST_TOKENS || actor->width < LEAST_CHANNELS)
        return;
    if (open_centred(&centred, the_case)) {
        ts_shuffle_each(1, actor->width, false, NULL, 0, MOST_TRIED, try_swap, &centred);
        for (size_t step = 1; step <= actor->width; step++)
            consider(&centred, NULL, step);
        if (isfinite(centred.left) && left_by(&centred, &centred.best, centred.step, actor->width) < MATCHES)
            propose_best(&centred, prediction);
    }
    free(centred.expected);
}
