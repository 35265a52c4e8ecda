/* Owns what shows of a weight without having it: products of what goes in with what comes out, between tokens. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/variant.h"
#include "diagnose/wiring.h"

/* Tokens whose products are taken, and multiplications for all of them together. */
#define VARYING_TOKENS     12
#define BESIDE             0.2 /* of what a channel leaves of the expected numbers it may leave of the difference, at most */
#define TOKENS_OF_PRODUCTS 64
#define PRODUCTS_LIMIT     ((size_t)1 << 23)
#define CORRELATED         0.95
#define MIRRORED           0.8
#define MIRRORED_ODDS      28.0
#define TOGETHER           16 /* of all tokens, those whose products are taken with each other */

/* Products of what goes in with what comes out, between tokens s and t: x_s . y_t with y = W x, tokens' means removed
 * so that a bias does not matter. With W transposed x_s . y_t becomes what x_t . y_s was. */
static void token_products(const float *x, const float *y, size_t tokens, size_t width, size_t y_width, double *out)
{
    double *mean = calloc(width * 2, sizeof *mean);
    for (size_t t = 0; t < tokens && mean; t++)
        for (size_t i = 0; i < width; i++) {
            mean[i] += (double)x[t * width + i] / (double)tokens;
            mean[width + i] += (double)y[t * y_width + i] / (double)tokens;
        }
    for (size_t s = 0; s < tokens; s++)
        for (size_t t = 0; t < tokens; t++) {
            double sum = mean ? 0 : (double)NAN;
            for (size_t i = 0; i < width && mean; i++)
                sum += ((double)x[s * width + i] - mean[i]) * ((double)y[t * y_width + i] - mean[width + i]);
            out[s * tokens + t] = sum;
        }
    free(mean);
}

/* How much of the difference in products of some tokens is a mirror image; `offset`: where the square part begins.
 * sums: what is left and what there is are added to them. */
static double mirrored(const struct ts_actor *x, const struct ts_actor *y, size_t offset, size_t first, size_t tokens,
                       double *products, double *sums)
{
    double *reference = products, *candidate = products + tokens * tokens, left = 0, all = 0;
    size_t from = first * x->width, to = first * y->width + offset;
    token_products(x->a + from, y->a + to, tokens, x->width, y->width, reference);
    token_products(x->b + from, y->b + to, tokens, x->width, y->width, candidate);
    for (size_t s = 0; s < tokens; s++)
        for (size_t t = 0; t < tokens; t++) {
            double found = candidate[s * tokens + t];
            if (s == t)
                continue;
            left += (found - reference[t * tokens + s]) * (found - reference[t * tokens + s]);
            all += (found - reference[s * tokens + t]) * (found - reference[s * tokens + t]);
        }
    sums[0] += left;
    sums[1] += all;
    return all > 0 ? 1 - left / all : 0;
}

/* On other rows: between tokens that stand together. */
struct transposed {
    size_t offset, width; /* of the square part */
    const char *part, *from;
};

enum { LEFT, ALL, PRODUCTS };

static bool count_transposed(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                             struct ts_tally *tally)
{
    const struct transposed *how = formula->numbers;
    const struct ts_actor *x = ts_scene_actor(the_case->scene, formula->pairs[0]), *actor = the_case->actor;
    double products[2 * TOGETHER * TOGETHER];
    (void)out;
    if (!x || x->rows != actor->rows || x->width != how->width || how->offset + x->width > actor->width)
        return false;
    for (size_t row = 0; row < actor->rows; row += TOGETHER) {
        size_t tokens = actor->rows - row < TOGETHER ? actor->rows - row : TOGETHER;
        if (tokens < 3) /* without their mean two are one */
            continue;
        (void)mirrored(x, actor, how->offset, row, tokens, products, tally->sums);
        tally->sums[PRODUCTS] += (double)(tokens * (tokens - 1));
    }
    return true;
}

static const char *transposed_text(struct ts_case *the_case, const struct transposed *how, double share,
                                   double products)
{
    return ts_case_text(the_case,
                        "the candidate uses the weight transposed%s: the products of tokens of %s with tokens of the "
                        "output are mirrored (this explains %.1f %% of the difference in %.0f products)",
                        how->part, how->from, 100 * share, products);
}

static const char *tell_transposed(struct ts_case *the_case, const struct ts_formula *formula,
                                   const struct ts_tally *tally, double *share)
{
    if (!(tally->sums[ALL] > 0))
        return NULL;
    *share = fmax(0, 1 - tally->sums[LEFT] / tally->sums[ALL]);
    return transposed_text(the_case, formula->numbers, *share, tally->sums[PRODUCTS]);
}

/* What must be explained of the products of so many tokens, so that the best of two dozen inputs and places does not do
 * it by chance: without their mean they have (n - 1)(n - 2) numbers off the diagonal, and of n unrelated numbers two
 * sums of squares are f times apart with a chance of about f^(n / 2). */
static double least_mirrored(size_t tokens)
{
    double numbers = (double)((tokens - 1) * (tokens - 2));
    return fmax(MIRRORED, 1 - exp(-MIRRORED_ODDS / numbers));
}

/* A square weight used transposed, shown without knowing the weight; alone, or as a part of a fused one. */
static void propose_transposed(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor, *best = NULL;
    size_t tokens = actor->rows < TOKENS_OF_PRODUCTS ? actor->rows : TOKENS_OF_PRODUCTS, looked = 0, from = 0;
    double *products, most;
    struct transposed how;
    if (the_case->operation.kind != TS_OPERATION_NONE || tokens < 4 || actor->width < 4)
        return;
    while (tokens > 8 && tokens * tokens * actor->width > PRODUCTS_LIMIT)
        tokens--;
    most = least_mirrored(tokens);
    products = malloc(2 * tokens * tokens * sizeof *products);
    for (size_t back = 1; back < TS_SCENE_WINDOW && looked < 8 && products; back++) {
        const struct ts_actor *x = ts_earlier(the_case, back);
        size_t offsets[3];
        if (!x || x->rows != actor->rows || x->width > actor->width || x->width < 4)
            continue;
        looked++;
        offsets[0] = 0;
        offsets[1] = x->width;
        offsets[2] = actor->width - x->width;
        for (int o = 0; o < 3; o++) {
            double share;
            if (offsets[o] + x->width > actor->width || (o && offsets[o] == offsets[o - 1]))
                continue;
            share = mirrored(x, actor, offsets[o], 0, tokens, products, (double[2]){0});
            if (share > most) {
                most = share;
                best = x;
                from = offsets[o];
            }
        }
    }
    free(products);
    if (!best)
        return;
    how = (struct transposed){from, best->width, "", ts_case_name(the_case, best)};
    if (best->width < actor->width)
        how.part = ts_case_text(the_case, " for channels %zu to %zu", from, from + best->width - 1);
    ts_formula_next(the_case, &(struct ts_formula){.count = count_transposed,
                                                   .tell = tell_transposed,
                                                   .numbers = &how,
                                                   .size = sizeof how,
                                                   .pairs = {best->pair},
                                                   .pair_count = 1,
                                                   .reference = true,
                                                   .work = (double)(TOGETHER * best->width)});
    ts_propose_plain(the_case, "transposed-weight", most, "the weight's orientation: [out, in] or [in, out]", "%s",
                     transposed_text(the_case, &how, most, (double)(tokens * (tokens - 1))));
}

/* The largest eigenvector of the tokens' products of the difference; returns its share of the energy. */
static double main_direction(const struct ts_case *the_case, size_t tokens, double *direction)
{
    size_t width = the_case->actor->width;
    double *products = calloc(tokens * tokens + tokens, sizeof *products), *next, trace = 0, largest = 0;
    if (!products)
        return 0;
    next = products + tokens * tokens;
    for (size_t s = 0; s < tokens; s++)
        for (size_t t = 0; t <= s; t++) {
            double sum = 0;
            for (size_t i = 0; i < width; i++)
                sum += (the_case->found[s * width + i] - the_case->expected[s * width + i]) *
                       (the_case->found[t * width + i] - the_case->expected[t * width + i]);
            products[s * tokens + t] = products[t * tokens + s] = sum;
            trace += s == t ? sum : 0;
        }
    for (size_t t = 0; t < tokens; t++)
        direction[t] = 1 + 0.1 * (double)(t % 7);
    for (int step = 0; step < 60; step++) {
        double size = 0;
        for (size_t s = 0; s < tokens; s++) {
            next[s] = 0;
            for (size_t t = 0; t < tokens; t++)
                next[s] += products[s * tokens + t] * direction[t];
            size += next[s] * next[s];
        }
        if (!(size > 0) || !isfinite(size))
            break;
        largest = sqrt(size);
        for (size_t t = 0; t < tokens; t++)
            direction[t] = next[t] / largest;
    }
    free(products);
    return trace > 0 && isfinite(trace) ? largest / trace : 0;
}

/* What was expected, plus one channel of an input times a vector. */
static bool predict_channel(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor, *from = ts_scene_actor(the_case->scene, formula->pairs[0]);
    size_t channel = *(const size_t *)formula->numbers;
    if (!from || from->rows != actor->rows || formula->table_count != actor->width)
        return false;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < actor->width; i++)
            out[row * actor->width + i] = the_case->expected[row * actor->width + i] +
                                          formula->table[i] * (double)from->b[row * from->width + channel];
    return true;
}

/* A channel that is nearly the same for all tokens is no better than a bias, unless what it varies by is followed too,
 * in more tokens than one of many channels follows by chance. */
static bool follows_varying(const double *direction, const struct ts_actor *x, size_t channel, size_t tokens)
{
    double n = (double)tokens, d = 0, dd = 0, v = 0, vv = 0, dv = 0;
    for (size_t t = 0; t < tokens; t++) {
        double value = (double)x->b[t * x->width + channel];
        d += direction[t];
        dd += direction[t] * direction[t];
        v += value;
        vv += value * value;
        dv += direction[t] * value;
    }
    if (v * v < 0.8 * vv * n)
        return true;
    dv -= d * v / n;
    return tokens >= VARYING_TOKENS && dv * dv > 0.9 * (dd - d * d / n) * (vv - v * v / n);
}

/* The share of what is expected, or of the difference, that one channel of an input does not make, with whatever
 * weights. */
static double left_beside(const struct ts_case *the_case, const struct ts_actor *x, size_t channel, bool difference)
{
    const struct ts_actor *actor = the_case->actor;
    double all = 0, made = 0, square = 0;
    for (size_t t = 0; t < actor->rows; t++)
        square += (double)x->b[t * x->width + channel] * (double)x->b[t * x->width + channel];
    for (size_t o = 0; o < actor->width; o++) {
        double dot = 0;
        for (size_t t = 0; t < actor->rows; t++) {
            size_t i = t * actor->width + o;
            double value = difference ? the_case->found[i] - the_case->expected[i] : the_case->expected[i];
            dot += (double)x->b[t * x->width + channel] * value;
            all += value * value;
        }
        made += square > 0 ? dot * dot / square : 0;
    }
    return all > 0 ? fmax(1 - made / all, 0) : 1;
}

/* Where a channel makes nearly all of what is expected, it makes nearly all of any difference too, and that says
 * nothing about the channel. */
static bool makes_all_of_it(const struct ts_case *the_case, const struct ts_actor *x, size_t channel)
{
    return left_beside(the_case, x, channel, true) > BESIDE * left_beside(the_case, x, channel, false);
}

/* The difference is one channel of an input times a vector: a column of a weight is wrong, or one number of it. */
static void propose_input_channel(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor, *best = NULL;
    size_t tokens = actor->rows < TOKENS_OF_PRODUCTS ? actor->rows : TOKENS_OF_PRODUCTS, channel = 0, worst = 0;
    double direction[TOKENS_OF_PRODUCTS], most = 0.9, *prediction, *weights, all = 0, largest = 0, fourth = 0;
    if (the_case->operation.kind != TS_OPERATION_NONE || tokens < 6 ||
        strstr(ts_case_name(the_case, actor), "norm")) /* no product */
        return;
    while (tokens > 8 && tokens * tokens * actor->width > PRODUCTS_LIMIT)
        tokens--;
    if (main_direction(the_case, tokens, direction) < 0.7)
        return;
    for (size_t t = 0; t < tokens; t++)
        fourth += direction[t] * direction[t] * direction[t] * direction[t];
    if (fourth > 0.8) /* one token: some channel of some input is large there and nowhere else */
        return;
    for (size_t back = 1; back < TS_SCENE_WINDOW; back++) {
        const struct ts_actor *x = ts_earlier(the_case, back);
        for (size_t i = 0; x && x->rows == actor->rows && i < x->width; i++) {
            double dot = 0, square = 0;
            for (size_t t = 0; t < tokens; t++) {
                dot += direction[t] * (double)x->b[t * x->width + i];
                square += (double)x->b[t * x->width + i] * (double)x->b[t * x->width + i];
            }
            if (square > 0 && dot * dot / square > most && follows_varying(direction, x, i, tokens)) {
                most = dot * dot / square;
                best = x;
                channel = i;
            }
        }
    }
    prediction = ts_case_scratch(the_case);
    if (!best || !prediction || makes_all_of_it(the_case, best, channel))
        return;
    weights = malloc(actor->width * sizeof *weights);
    for (size_t o = 0; o < actor->width; o++) {
        double dot = 0, square = 0, weight;
        for (size_t t = 0; t < actor->rows; t++) {
            double x = (double)best->b[t * best->width + channel];
            dot += x * (the_case->found[t * actor->width + o] - the_case->expected[t * actor->width + o]);
            square += x * x;
        }
        weight = square > 0 ? dot / square : 0;
        if (weights)
            weights[o] = weight;
        all += weight * weight;
        if (weight * weight > largest) {
            largest = weight * weight;
            worst = o;
        }
        for (size_t t = 0; t < actor->rows; t++)
            prediction[t * actor->width + o] =
                the_case->expected[t * actor->width + o] + weight * (double)best->b[t * best->width + channel];
    }
    if (weights)
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_channel,
                                                       .numbers = &channel,
                                                       .size = sizeof channel,
                                                       .table = weights,
                                                       .table_count = actor->width,
                                                       .pairs = {best->pair},
                                                       .pair_count = 1});
    free(weights);
    if (largest > 0.9 * all)
        ts_propose(the_case, "channels", prediction, 2, "this one number of the weight: a flipped bit",
                   "channel %zu is off by %.4g times channel %zu of %s: one number of the weight is wrong", worst,
                   sqrt(largest), channel, ts_case_name(the_case, best));
    else
        ts_propose(the_case, "term-missing", prediction, actor->width,
                   "this column of the weight: zeroed, skipped, or quantized away",
                   "the difference is what channel %zu of %s contributes: the candidate leaves that input out, or its "
                   "weights for it are wrong",
                   channel, ts_case_name(the_case, best));
}

/* Of one token a norm's weight follows from any input exactly: weight = output / normalized input. That weight on
 * another input must then give what was found. */
static void normalized(const float *values, size_t count, bool centred, double *out)
{
    double mean = 0, square = 0;
    for (size_t i = 0; i < count && centred; i++)
        mean += (double)values[i] / (double)count;
    for (size_t i = 0; i < count; i++)
        square += ((double)values[i] - mean) * ((double)values[i] - mean) / (double)count;
    for (size_t i = 0; i < count; i++)
        out[i] = square > 0 ? ((double)values[i] - mean) / sqrt(square) : 0;
}

static void propose_single_norm(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor, *best[2] = {NULL, NULL};
    double *prediction = ts_case_scratch(the_case), *right = ts_case_scratch(the_case),
           *wrong = ts_case_scratch(the_case), most = 0.9;
    if (the_case->operation.kind != TS_OPERATION_NONE || actor->rows != 1 || actor->width < 16 || !prediction ||
        !right || !wrong)
        return;
    for (int centred = 0; centred < 2; centred++)
        for (size_t back = 1; back < TS_SCENE_WINDOW; back++) {
            const struct ts_actor *x = ts_earlier(the_case, back);
            if (!ts_same_size(the_case, x))
                continue;
            normalized(x->a, actor->width, centred, right);
            for (size_t other = 1; other < TS_SCENE_WINDOW; other++) {
                const struct ts_actor *y = ts_earlier(the_case, other);
                double share;
                if (!ts_same_size(the_case, y) || y == x)
                    continue;
                normalized(y->b, actor->width, centred, wrong);
                for (size_t i = 0; i < actor->width; i++)
                    prediction[i] = right[i] != 0 ? (double)actor->a[i] / right[i] * wrong[i] : 0;
                share = ts_explained(the_case, prediction);
                if (share > most) {
                    most = share;
                    best[0] = x;
                    best[1] = y;
                }
            }
        }
    if (!best[0])
        return;
    ts_propose_plain(
        the_case, "wrong-input", most,
        ts_case_text(the_case, "which tensor is passed to the norm that makes %s", ts_case_name(the_case, actor)),
        "the candidate normalizes %s instead of %s", ts_case_name(the_case, best[1]), ts_case_name(the_case, best[0]));
}

/* Slots of a tally about tokens that are too large: sums of the logarithms of a row's length and of its factor, and
 * what one factor per token leaves. */
enum { SX, SY, SXX, SYY, SXY, ROWS, UNLIKE, DIFFERENT };

/* Adds one row of the case and of the tensor whose length it may have. False when it has no factor. */
static bool add_length(const struct ts_case *the_case, const struct ts_actor *x, size_t row, double *sums)
{
    size_t width = the_case->actor->width;
    double dot = 0, square = 0, found = 0, long_square = 0, level, factor;
    for (size_t i = row * width; i < (row + 1) * width; i++) {
        dot += the_case->found[i] * the_case->expected[i];
        square += the_case->expected[i] * the_case->expected[i];
        found += the_case->found[i] * the_case->found[i];
    }
    if (!(square > 0) || !(dot > 0) || !isfinite(found))
        return false;
    for (size_t i = row * x->width; i < (row + 1) * x->width; i++)
        long_square += (double)x->b[i] * (double)x->b[i];
    level = 0.5 * log(long_square / (double)x->width);
    factor = log(dot / square);
    sums[SX] += level;
    sums[SY] += factor;
    sums[SXX] += level * level;
    sums[SYY] += factor * factor;
    sums[SXY] += level * factor;
    sums[ROWS]++;
    sums[UNLIKE] += found - dot * dot / square;
    sums[DIFFERENT] += found - 2 * dot + square;
    return true;
}

/* The correlation, where the factor is the length; 0 otherwise. */
static double follows_length(const double *sums)
{
    double n = sums[ROWS], spread = sums[SXX] - sums[SX] * sums[SX] / n, both = sums[SXY] - sums[SX] * sums[SY] / n;
    double fit = both / sqrt(spread * (sums[SYY] - sums[SY] * sums[SY] / n));
    if (!(n > 0) || sums[UNLIKE] > 0.5 * sums[DIFFERENT])
        return 0;
    /* rows of one length say nothing; and the factor must be that length, not a power of it */
    return spread > 0.01 * n && fabs(both / spread - 1) < 0.2 && fabs((sums[SY] - sums[SX]) / n) < 0.35 ? fit : 0;
}

static double sure_of_length(const double *sums)
{
    return 0.5 + 0.4 * (1 - sums[UNLIKE] / sums[DIFFERENT]);
}

static const char *length_text(struct ts_case *the_case, const char *name, double fit)
{
    return ts_case_text(the_case,
                        "each token is too large in proportion to the length of its row in %s (correlation %.3f): the "
                        "candidate passes that tensor to the projection without the norm",
                        name, fit);
}

static bool count_lengths(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                          struct ts_tally *tally)
{
    const struct ts_actor *x = ts_scene_actor(the_case->scene, formula->pairs[0]);
    (void)out;
    if (!x || x->rows != the_case->actor->rows)
        return false;
    for (size_t row = 0; row < x->rows; row++)
        if (!add_length(the_case, x, row, tally->sums)) {
            /* all of it is left where there is none */
            double cost = ts_rows_cost(the_case, the_case->expected, row, 1);
            tally->sums[UNLIKE] += cost;
            tally->sums[DIFFERENT] += cost;
        }
    return true;
}

static const char *tell_lengths(struct ts_case *the_case, const struct ts_formula *formula,
                                const struct ts_tally *tally, double *share)
{
    double fit = follows_length(tally->sums);
    *share = fit > CORRELATED ? sure_of_length(tally->sums) : 0;
    return length_text(the_case, the_case->scene->pairs[formula->pairs[0]].name, fit);
}

/* A product with what a norm should have divided: each token comes out as many times too large as that tensor's row is
 * long. The norm's weights are in it too, so that one factor per token explains most and not all of it. */
static void propose_undivided(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor, *best = NULL;
    size_t rows = actor->rows < TOKENS_OF_PRODUCTS ? actor->rows : TOKENS_OF_PRODUCTS;
    double most = CORRELATED, sure = 0;
    if (the_case->operation.kind != TS_OPERATION_NONE || rows < 5 || actor->width < 8)
        return;
    for (size_t back = 1; back < 16; back++) {
        const struct ts_actor *x = ts_earlier(the_case, back);
        double sums[TS_TALLY_SUMS] = {0}, fit;
        if (!x || x->rows != actor->rows)
            continue;
        for (size_t row = 0; row < rows; row++)
            if (!add_length(the_case, x, row, sums))
                return;
        if (sums[UNLIKE] > 0.5 * sums[DIFFERENT])
            return;
        fit = follows_length(sums);
        if (fit > most) {
            most = fit;
            best = x;
            sure = sure_of_length(sums);
        }
    }
    if (!best)
        return;
    ts_formula_next(
        the_case,
        &(struct ts_formula){.count = count_lengths, .tell = tell_lengths, .pairs = {best->pair}, .pair_count = 1});
    ts_propose_plain(the_case, "wrong-input", sure, "the input of this projection: the norm before it must be applied",
                     "%s", length_text(the_case, ts_case_name(the_case, best), most));
}

void ts_wiring_weights(struct ts_case *the_case)
{
    if (the_case->operation.kind != TS_OPERATION_NONE)
        return;
    propose_transposed(the_case);
    propose_input_channel(the_case);
    propose_single_norm(the_case);
    propose_undivided(the_case);
}
