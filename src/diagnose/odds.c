#include "diagnose/odds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Multiplications for one table of products. */
#define TABLE_WORK ((size_t)1 << 21)
#define LEAST_ROWS 2
/* Channels that are looked at, spread over all: each is worth as much as any other, and a vocabulary has more than
 * anybody needs. */
#define MOST_CHANNELS 4096
/* A row counts if this much of its energy is not in those before it: what is left of it would be rounding. */
#define OF_ITS_OWN 1e-4
/* Added to a row's own product, over its size: what f32 makes of the reference. */
#define GRAIN 1e-10
/* The candidate's rounding is of one of these sizes, up to this share of a token's energy. */
#define NOISE_STEP  10.0
#define NOISE_MOST  1e-2
#define NOISE_LEAST GRAIN /* nothing is told nearer than that */
/* Directions in which a hypothesis says more than this share of a token's energy tell whether it fits: what f32 makes
 * of the reference is below. */
#define TELLS (100 * NOISE_LEAST)
/* What a hypothesis leaves over what it must leave, as a logarithm: so much off, what chance makes of it, and more
 * where the weight prefers some directions. */
#define LEFT_OFF     0.2
#define LEFT_CHANCES 3.0
#define LEFT_UNEVEN  0.8
/* Scales of other weights that are tried around the likeliest one. */
#define SCALES     2
#define SCALE_STEP 1.2
/* Nats that it is above the rest. */
#define EVIDENCE_LEAST 12.0
#define EVIDENCE_HALF  16.0
#define EVIDENCE_SURE  200.0 /* from here on one may fit better than it says */
/* x makes the reference if the products of its tokens are those of so many channels at least, and of so many of those
 * that there can be. */
#define CHANNELS_LEAST 3.0
#define CHANNELS_SHARE 0.1
/* And of so many of all where no direction of x counts for more than others. In runs that were made, weights drawn at
 * random left nine tenths of them and more, two thirds where those behind some heads were 2.3 times as large as behind
 * others, and half of them at 5 times, where what was told of a head was wrong. */
#define CHANNELS_EVEN 0.7
/* What is left out keeps nothing of the error, what something as large replaces a half. */
#define KEPT_OFF 0.25
/* What of the error is rounding that nothing else knows of, where all is to be explained. */
#define REST_MOST 0.01
/* A hypothesis that leaves less than this share of what was found fits, whatever it could have left. */
#define NEXT_TO_NOTHING 1e-3

/* Variance of a bias, over that of what the weight makes. */
static const double levels[] = {0, 0.01, 0.1, 1, 10};

static double dot(const double *x, const double *y, size_t count)
{
    double sums[4] = {0};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t k = 0; k < 4; k++) /* in turn, for the sake of the processor */
            sums[k] += x[i + k] * y[i + k];
    for (; i < count; i++)
        sums[0] += x[i] * y[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* out += factor times a' b, all [rows, rows]. */
static void add_turned(const double *a, const double *b, size_t rows, double factor, double *out)
{
    for (size_t k = 0; k < rows; k++)
        for (size_t s = 0; s < rows; s++) {
            const double *from = b + k * rows, share = factor * a[k * rows + s];
            double *to = out + s * rows;
            for (size_t t = 0; t < rows; t++)
                to[t] += share * from[t];
        }
}

/* Replaces a covariance by its lower root; false when it has none. */
static bool take_root(double *table, size_t rows)
{
    for (size_t s = 0; s < rows; s++)
        for (size_t t = 0; t <= s; t++) {
            double rest = table[s * rows + t] - dot(table + s * rows, table + t * rows, t);
            if (s > t)
                table[s * rows + t] = rest / table[t * rows + t];
            else if (rest > 0 && isfinite(rest))
                table[s * rows + s] = sqrt(rest);
            else
                return false;
        }
    return true;
}

/* Replaces values, [rows, width], by the root's inverse times them. */
static void solve(const double *root, size_t rows, double *values, size_t width)
{
    for (size_t s = 0; s < rows; s++) {
        double *row = values + s * width;
        for (size_t t = 0; t < s; t++) {
            const double *before = values + t * width, factor = root[s * rows + t];
            for (size_t i = 0; i < width; i++)
                row[i] -= factor * before[i];
        }
        for (size_t i = 0; i < width; i++)
            row[i] /= root[s * rows + s];
    }
}

static double mean_of_diagonal(const double *table, size_t rows)
{
    double sum = 0;
    for (size_t t = 0; t < rows; t++)
        sum += table[t * rows + t] / (double)rows;
    return sum;
}

static double log_of_root(const double *root, size_t rows)
{
    double sum = 0;
    for (size_t t = 0; t < rows; t++)
        sum += 2 * log(root[t * rows + t]);
    return sum / (double)rows;
}

/* The root's inverse times the products of some rows, times the inverse again: those of the rows that it makes of them.
 * Their trace is how far the rows are from nothing, in the covariance's own measure. */
static void solve_products(const double *root, size_t rows, const double *products, double *solved)
{
    memcpy(solved, products, rows * rows * sizeof *solved);
    solve(root, rows, solved, rows);
    for (size_t s = 0; s < rows; s++)
        for (size_t t = 0; t < s; t++) {
            double above = solved[t * rows + s];
            solved[t * rows + s] = solved[s * rows + t];
            solved[s * rows + t] = above;
        }
    solve(root, rows, solved, rows);
}

/* What a covariance, which becomes its root, is to be multiplied by to make some rows of `width` numbers likeliest;
 * solved: room for a table. NaN when it has no root. */
static double best_scale(double *covariance, size_t rows, const double *products, size_t width, double *solved)
{
    if (!take_root(covariance, rows))
        return NAN;
    solve_products(covariance, rows, products, solved);
    return mean_of_diagonal(solved, rows) / (double)width;
}

static void add_products(const double *x, const double *y, size_t rows, size_t width, double *out)
{
    for (size_t s = 0; s < rows; s++)
        for (size_t t = 0; t < rows; t++)
            out[s * rows + t] = x == y && t < s ? out[t * rows + s] : dot(x + s * width, y + t * width, width);
}

size_t ts_odds_spread(size_t rows, size_t inputs, size_t list[TS_ODDS_ROWS])
{
    size_t most = TS_ODDS_ROWS;
    while (most > LEAST_ROWS && most * most * inputs > TABLE_WORK)
        most--;
    most = most < rows ? most : rows;
    for (size_t step = 0; step < most; step++)
        list[step] = step * rows / most;
    return most;
}

/* Tokens that count for themselves, among those that are listed. */
static void choose_rows(struct ts_odds *odds, const size_t *list, size_t most, const double *x)
{
    const struct ts_case *the_case = odds->the_case;
    size_t inputs = odds->inputs;
    double *basis = malloc((most * inputs + 1) * sizeof *basis);
    for (size_t step = 0; basis && step < most; step++) {
        size_t row = list[step], kept = odds->rows;
        double *own = basis + kept * inputs, size, left;
        if (ts_case_aside(the_case, row))
            continue;
        memcpy(own, x + row * inputs, inputs * sizeof *own);
        size = dot(own, own, inputs);
        for (size_t k = 0; k < kept; k++) {
            double share = dot(own, basis + k * inputs, inputs);
            for (size_t i = 0; i < inputs; i++)
                own[i] -= share * basis[k * inputs + i];
        }
        left = dot(own, own, inputs);
        if (!isfinite(size) || !(left > OF_ITS_OWN * size) || kept + 1 > inputs)
            continue;
        for (size_t i = 0; i < inputs; i++)
            own[i] /= sqrt(left);
        odds->list[odds->rows++] = row;
    }
    free(basis);
}

/* The products of the tokens of what was expected, and found if it is asked for, and the rows of x: no more of the
 * values is needed. */
static bool take_values(struct ts_odds *odds, const double *x, bool with_found)
{
    const struct ts_case *the_case = odds->the_case;
    const size_t width = odds->outputs, rows = odds->rows, all = the_case->actor->width, table = rows * rows;
    double *expected = malloc(2 * rows * width * sizeof *expected), *found = expected ? expected + rows * width : NULL;
    bool usable = true;
    odds->x = malloc((2 * rows * odds->inputs + 6 * table) * sizeof *odds->x);
    if (!odds->x || !expected) {
        free(expected);
        return false;
    }
    odds->other = odds->x + rows * odds->inputs;
    odds->expected = odds->other + rows * odds->inputs;
    odds->both = odds->expected + table;
    odds->found = odds->both + table;
    odds->root = odds->found + table;
    odds->solved = odds->root + table;
    odds->solved_both = odds->solved + table;
    for (size_t t = 0; t < rows; t++) {
        memcpy(odds->x + t * odds->inputs, x + odds->list[t] * odds->inputs, odds->inputs * sizeof *x);
        for (size_t i = 0; i < width; i++) {
            const size_t at = odds->list[t] * all + i * all / width;
            expected[t * width + i] = (double)the_case->actor->a[at];
            found[t * width + i] = the_case->found[at];
        }
        odds->energy[t] = dot(found + t * width, found + t * width, width) / (double)width;
        usable = usable && isfinite(odds->energy[t]) && odds->energy[t] > 0;
    }
    if (usable)
        add_products(expected, expected, rows, width, odds->expected);
    if (usable && with_found) {
        add_products(expected, found, rows, width, odds->both);
        add_products(found, found, rows, width, odds->found);
    }
    free(expected);
    return usable;
}

static double most_channels(const struct ts_odds *odds)
{
    return (double)(odds->inputs < odds->outputs ? odds->inputs : odds->outputs);
}

/* The bias' variance that makes the reference likeliest, and the scale of everything with it, where root and solved are
 * those without a bias, which adds one number to all products. Returns the log-likelihood of a number. */
static double choose_level(struct ts_odds *odds, double mean)
{
    const size_t rows = odds->rows;
    double ones[TS_ODDS_ROWS] = {0}, length, along = 0, best = -INFINITY;
    for (size_t t = 0; t < rows; t++)
        ones[t] = 1;
    solve(odds->root, rows, ones, 1);
    length = dot(ones, ones, rows);
    for (size_t s = 0; s < rows; s++)
        along += ones[s] * dot(ones, odds->solved + s * rows, rows);
    for (size_t k = 0; k < sizeof levels / sizeof *levels; k++) {
        const double level = levels[k] * mean, more = 1 + level * length;
        const double left = mean_of_diagonal(odds->solved, rows) - level * along / (more * (double)rows);
        const double scale = left / (double)odds->outputs;
        const double fit = -0.5 * (log_of_root(odds->root, rows) + log(more) / (double)rows + log(scale) + 1);
        if (scale > 0 && fit > best) {
            best = fit;
            odds->level = level;
            odds->scale = scale;
        }
    }
    return best;
}

/* The root of the products of x, and what it makes of those of the reference. */
static bool root_products(struct ts_odds *odds, const double *products, double mean)
{
    const size_t rows = odds->rows;
    for (size_t i = 0; i < rows * rows; i++)
        odds->root[i] = products[i] + odds->level + (i % (rows + 1) ? 0 : GRAIN * mean);
    if (!take_root(odds->root, rows))
        return false;
    solve_products(odds->root, rows, odds->expected, odds->solved);
    return true;
}

/* How the reference's tokens stand to each other, with what bias. */
static bool learn(struct ts_odds *odds)
{
    const size_t rows = odds->rows, width = odds->outputs;
    double products[TS_ODDS_ROWS * TS_ODDS_ROWS], best, without = 0, apart = 0, mean;
    add_products(odds->x, odds->x, rows, odds->inputs, products);
    mean = mean_of_diagonal(products, rows);
    odds->level = 0;
    if (!root_products(odds, products, mean))
        return false;
    best = choose_level(odds, mean);
    if (!isfinite(best) || (odds->level > 0 && !root_products(odds, products, mean)))
        return false;
    for (size_t s = 0; s < rows; s++) {
        without -= 0.5 * (log(odds->expected[s * (rows + 1)] / (double)width) + 1) / (double)rows;
        for (size_t t = 0; t < rows; t++) {
            const double product = odds->solved[s * rows + t] / ((double)width * odds->scale) - (s == t);
            apart += product * product / (double)(rows * (rows + 1));
        }
    }
    odds->channels = fmin(1 / apart, (double)width);
    odds->own = odds->channels * (double)rows * (best - without);
    return odds->channels >= CHANNELS_LEAST && odds->channels >= CHANNELS_SHARE * most_channels(odds) &&
           isfinite(odds->own);
}

/* Rows with an energy of their own each: of what was found, of the error, or of what a factor of its own leaves of
 * each. */
static double without_input(const struct ts_odds *odds)
{
    size_t rows = odds->rows, width = odds->outputs;
    double unrelated = 0, error = 0, scaled = 0;
    for (size_t t = 0; t < rows; t++) {
        const size_t at = t * (rows + 1);
        const double own = odds->expected[at], both = odds->both[at], found = odds->found[at];
        double floor = odds->noise * found, off = fmax(found - 2 * both + own, floor);
        double left = fmax(own > 0 ? found - both * both / own : found, floor);
        unrelated -= 0.5 * (log(found / (double)width) + 1) / (double)rows;
        error -= 0.5 * (log(off / (double)width) + 1) / (double)rows;
        scaled -= 0.5 * (log(left / (double)width) + 1) / (double)rows;
    }
    scaled -= 0.5 * log((double)width) / (double)width; /* the price of a factor for each row */
    return fmax(unrelated, fmax(error, scaled));
}

/* With the rounding that fits best: the likelihood of what was found, and what it leaves over what it must. */
static double best_noise(const struct ts_odds_noise *line, double scale, double *left, double *share)
{
    double best = -INFINITY;
    for (double noise = NOISE_LEAST; noise <= NOISE_MOST * 1.001; noise *= NOISE_STEP) {
        double rest, fit = ts_odds_noise_try(line, scale, noise, &rest);
        if (fit > best) {
            best = fit;
            *left = rest;
            *share = noise;
        }
    }
    return best;
}

/* Other weights, or weights or a bias that are a little off, on the right input. */
static double with_other_weights(const struct ts_odds *odds, const double *own)
{
    enum { WEIGHT, A_LITTLE, BIAS };
    const size_t rows = odds->rows, width = odds->outputs, table = rows * rows;
    double *room = malloc((5 * table + rows * odds->inputs) * sizeof *room), best = -INFINITY;
    double *given = room, *covariance = room + table, *products = room + 2 * table, *trial = room + 3 * table;
    double *solved = room + 4 * table, *x = room + 5 * table;
    struct ts_odds_noise line;
    if (!room)
        return INFINITY;
    for (size_t t = 0; t < rows; t++)
        memcpy(x + t * odds->inputs, own + odds->list[t] * odds->inputs, odds->inputs * sizeof *x);
    add_products(x, x, rows, odds->inputs, given);
    for (int what = WEIGHT; what <= BIAS; what++) {
        double scale, left, share;
        for (size_t i = 0; i < table; i++) {
            const size_t turned = i % rows * rows + i / rows;
            products[i] = odds->found[i];
            if (what != WEIGHT)
                products[i] += odds->expected[i] - odds->both[i] - odds->both[turned];
            covariance[i] = trial[i] = what == BIAS ? 1 : given[i] + odds->level;
        }
        for (size_t t = 0; t < rows; t++) /* what the scale is found with */
            trial[t * (rows + 1)] *= 1 + NOISE_MOST;
        scale = best_scale(trial, rows, products, width, solved);
        if (!(scale > 0))
            continue;
        ts_odds_noise_open(&line, covariance, products, rows, width, odds->energy);
        for (int step = -SCALES; step <= SCALES; step++)
            best = fmax(best, best_noise(&line, scale * pow(SCALE_STEP, step), &left, &share));
    }
    free(room);
    return best;
}

bool ts_odds_choose(struct ts_odds *odds, struct ts_case *the_case, const size_t *list, size_t count,
                    const double *basis, size_t inputs)
{
    const size_t width = the_case->actor->width;
    *odds = (struct ts_odds){
        .the_case = the_case, .inputs = inputs, .outputs = width < MOST_CHANNELS ? width : MOST_CHANNELS};
    choose_rows(odds, list, count, basis);
    return odds->rows >= LEAST_ROWS;
}

static bool take_and_learn(struct ts_odds *odds, const double *x, bool with_found)
{
    if (take_values(odds, x, with_found) && learn(odds))
        return true;
    ts_odds_close(odds);
    return false;
}

bool ts_odds_learn(struct ts_odds *odds, const double *x)
{
    return take_and_learn(odds, x, false);
}

bool ts_odds_open(struct ts_odds *odds, const double *x, const double *own)
{
    const struct ts_case *the_case = odds->the_case;
    double size = 0;
    if (!take_and_learn(odds, x, true))
        return false;
    memcpy(odds->solved_both, odds->both, odds->rows * odds->rows * sizeof *odds->both);
    solve(odds->root, odds->rows, odds->solved_both, odds->rows);
    for (size_t i = 0; i < the_case->total; i++)
        size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
    odds->noise = fmin(fmax(the_case->noise / size, NOISE_LEAST), NOISE_MOST);
    odds->none = fmax(without_input(odds), with_other_weights(odds, own));
    return true;
}

void ts_odds_close(struct ts_odds *odds)
{
    free(odds->x);
    odds->x = NULL;
}

/* The covariance of the candidate's tokens, given the reference's, and in `left` the products of what was found less
 * what is expected then. across: the products of the reference's tokens with the candidate's, [rows, rows], spoilt. */
static void condition(const struct ts_odds *odds, double *across, double *covariance, double *left)
{
    const size_t rows = odds->rows, table = rows * rows;
    double room[TS_ODDS_ROWS * TS_ODDS_ROWS] = {0};
    solve(odds->root, rows, across, rows);
    add_turned(across, across, rows, -1, covariance);
    for (size_t i = 0; i < table; i++)
        covariance[i] *= odds->scale;
    add_turned(across, odds->solved_both, rows, 1, room);
    for (size_t i = 0; i < table; i++)
        left[i] = odds->found[i] - room[i] - room[i % rows * rows + i / rows];
    memset(room, 0, sizeof room);
    add_turned(odds->solved, across, rows, 1, room);
    add_turned(across, room, rows, 1, left);
}

/* The logarithm of the share of its tokens in which a hypothesis must leave something: so many tokens of the reference
 * tell the weight in as many directions, and in the others alone it leaves anything. Of long sequences, some of which
 * are looked at, claims are heard first that are put to all tokens. Nor is anything left in tokens that it does not
 * change. */
static double log_of_unknown(const struct ts_odds *odds, const double *covariance)
{
    const struct ts_scene *scene = odds->the_case->scene;
    double unknown = (double)odds->inputs - (double)odds->rows, changed = 0;
    for (size_t t = 0; t < odds->rows; t++)
        changed += covariance[t * (odds->rows + 1)] > NOISE_STEP * NOISE_LEAST * odds->energy[t];
    if (odds->put_to_all || scene->taken_count == scene->tokens)
        changed = fmin(changed, fmax(unknown, 0));
    return fmin(0, log(changed / (double)odds->rows));
}

/* The products of the chosen rows of some values, which are left in odds->other. */
static void take_products(struct ts_odds *odds, const double *values, double *across, double *own)
{
    const size_t rows = odds->rows, inputs = odds->inputs;
    for (size_t t = 0; t < rows; t++)
        memcpy(odds->other + t * inputs, values + odds->list[t] * inputs, inputs * sizeof *values);
    if (across)
        add_products(odds->x, odds->other, rows, inputs, across);
    add_products(odds->other, odds->other, rows, inputs, own);
}

/* The product of two rows of the error. */
static double error_at(const struct ts_odds *odds, size_t s, size_t t)
{
    const size_t at = s * odds->rows + t;
    return odds->found[at] - odds->both[at] - odds->both[t * odds->rows + s] + odds->expected[at];
}

bool ts_odds_try(struct ts_odds *odds, const double *other, const double *apart, struct ts_odds_fit *fit)
{
    const size_t rows = odds->rows, width = odds->outputs, table = rows * rows;
    double *room = malloc(3 * table * sizeof *room), best, left = 0, share = 0, off, least, slack, evidence;
    double error = 0, found = 0, wrong = 0, told, directions, uneven, differs = 0, stands = 0;
    double *across = room, *covariance = room + table, *products = room + 2 * table;
    struct ts_odds_noise line;
    if (!room)
        return false;
    take_products(odds, other, across, covariance);
    if (apart)
        take_products(odds, apart, NULL, products);
    for (size_t i = 0; i < table; i++) {
        across[i] += odds->level;
        covariance[i] += odds->level + (apart ? products[i] : 0);
    }
    for (size_t t = 0; t < rows; t++) { /* what differs, and what of it stands in what is given */
        const size_t at = t * (rows + 1);
        const double own = covariance[at] - odds->level;
        differs += own - 2 * (across[at] - odds->level) +
                   dot(odds->x + t * odds->inputs, odds->x + t * odds->inputs, odds->inputs);
        stands += own - (across[at] - odds->level);
    }
    condition(odds, across, covariance, products);
    for (size_t t = 0; t < rows; t++) {
        error += products[t * (rows + 1)] / (double)width;
        found += odds->energy[t];
        wrong += error_at(odds, t, t) / (double)width;
    }
    least = log_of_unknown(odds, covariance);
    ts_odds_noise_open(&line, covariance, products, rows, width, odds->energy);
    best = best_noise(&line, 1, &left, &share);
    told = ts_odds_noise_left(&line, 1, fmax(share, TELLS), &directions, &uneven);
    free(room);
    slack = LEFT_UNEVEN * (1 - fmin(odds->channels / most_channels(odds), 1));
    off = LEFT_OFF + LEFT_CHANCES * sqrt(2 / (odds->channels * (double)rows)) + slack;
    evidence = odds->channels * (double)rows * (best - odds->none);
    *fit = (struct ts_odds_fit){.evidence = evidence,
                                .left = left,
                                .fits =
                                    (log(left) < off && log(left) > least - (evidence > EVIDENCE_SURE ? 2 : 1) * off) ||
                                    (left < 1 && error < NEXT_TO_NOTHING * found)};
    off = LEFT_OFF + LEFT_CHANCES * sqrt(2 / (odds->channels * directions)) + slack;
    fit->told = directions >= 1 && fabs(log(told)) < off;
    fit->keeps = stands / differs;
    fit->uneven = uneven / (1 + (directions + 1) / odds->channels);
    fit->rest = fmax(share - NOISE_STEP * odds->noise, 0) * found / wrong;
    return isfinite(best);
}

double ts_odds_kept(const struct ts_odds *odds, double *chance)
{
    const size_t rows = odds->rows;
    double error = 0, kept = 0, spread = 0;
    for (size_t s = 0; s < rows; s++) {
        error += error_at(odds, s, s);
        kept += odds->found[s * (rows + 1)] - odds->both[s * (rows + 1)];
        for (size_t t = 0; t < rows; t++)
            spread += error_at(odds, s, t) * odds->found[s * rows + t];
    }
    *chance = sqrt(fmax(spread, 0) / (double)odds->outputs) / error;
    return kept / error;
}

bool ts_odds_keep(const struct ts_odds *odds, double share)
{
    double chance, kept = ts_odds_kept(odds, &chance);
    return fabs(kept - share) < KEPT_OFF * fmax(1, fabs(share)) + chance;
}

bool ts_odds_even(const struct ts_odds *odds)
{
    return odds->channels >= CHANNELS_EVEN * (double)odds->outputs;
}

bool ts_odds_hold(const struct ts_odds_fit *fit)
{
    return fit->fits && fit->evidence > EVIDENCE_LEAST;
}

bool ts_odds_hold_exactly(const struct ts_odds_fit *fit, double uneven)
{
    return fit->told && fit->uneven < uneven && fit->rest < REST_MOST && fit->evidence > EVIDENCE_LEAST;
}

double ts_odds_sure(double evidence)
{
    return 0.5 + 0.4 * (1 - exp(-evidence / EVIDENCE_HALF));
}
