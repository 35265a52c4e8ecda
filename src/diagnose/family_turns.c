/* Turns: the cosines or sines of a rotary embedding, captured as a table of their own, [tokens, pairs].
 *
 * A column of such a table is a wave, x[t] = A cos((t + offset) f) or its sine, so that x[t + 1] + x[t - 1] = 2 cos(f)
 * x[t] whatever its phase and height: its frequency is a quotient of two sums. The frequencies of a plain rotary
 * embedding fall as theta^(-2 i / size) / factor, a straight line in their logarithms. Nothing here goes by names: what
 * is no wave in the reference is left alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/families.h"
#include "diagnose/formula.h"

#define ROWS_LEAST    4
#define FASTEST       3.0
#define OFFSET_MOST   64
#define WAVES         0.9               /* confidence in frequencies that follow no line */
#define SEARCHED_MOST ((size_t)1 << 14) /* numbers of a table whose base is looked for */

/* One side of the table. */
struct table {
    double *frequency; /* per column, 0 where it is too slow to tell */
    double theta, factor, height;
    long offset; /* of the positions */
    bool sine;
    double misfit; /* share of its energy that theta, factor, offset and height leave */
};

static double at(const struct ts_case *the_case, const double *values, size_t row, size_t column)
{
    return values[row * the_case->actor->width + column];
}

/* The pair that a column belongs to. Halves stand one behind the other, or every number twice, or once. */
static size_t pair_of(size_t column, size_t width, int doubled)
{
    return doubled == 1 ? column % (width / 2) : doubled == 2 ? column / 2 : column;
}

static int doubling(const struct ts_case *the_case, const double *values)
{
    size_t width = the_case->actor->width, rows = the_case->actor->rows;
    double halves = 0, twins = 0, all = 0;
    if (width % 2)
        return 0;
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < width / 2; i++) {
            double half = at(the_case, values, row, i) - at(the_case, values, row, i + width / 2);
            double twin = at(the_case, values, row, 2 * i) - at(the_case, values, row, 2 * i + 1);
            halves += half * half;
            twins += twin * twin;
            all += at(the_case, values, row, i) * at(the_case, values, row, i);
        }
    return halves < 1e-4 * all ? 1 : twins < 1e-4 * all ? 2 : 0;
}

/* Slower waves hardly move from token to token: what a frequency f changes, f^2 / 2, is lost in rounding. */
static double slowest(int bits)
{
    return fmin(fmax(sqrt(4 * ldexp(1, -bits)), 2e-3), 0.3);
}

/* The row stands between its neighbours: of a long sequence not all are at hand. */
static bool has_neighbours(const struct ts_case *the_case, size_t row)
{
    uint64_t own = ts_case_row(the_case, row);
    return ts_case_row(the_case, row - 1) + 1 == own && ts_case_row(the_case, row + 1) == own + 1;
}

/* Frequencies of all columns; false when most of them are no waves. */
static bool measure(const struct ts_case *the_case, const double *values, int bits, double *frequency)
{
    size_t width = the_case->actor->width, rows = the_case->actor->rows, waves = 0, between = 0;
    for (size_t row = 1; row + 1 < rows; row++)
        between += has_neighbours(the_case, row);
    if (between < ROWS_LEAST - 2)
        return false;
    for (size_t i = 0; i < width; i++) {
        double dot = 0, square = 0, left = 0, cosine;
        for (size_t row = 1; row + 1 < rows; row++) {
            double x = at(the_case, values, row, i);
            if (!has_neighbours(the_case, row))
                continue;
            dot += x * (at(the_case, values, row - 1, i) + at(the_case, values, row + 1, i)) / 2;
            square += x * x;
        }
        cosine = square > 0 ? dot / square : 1;
        for (size_t row = 1; row + 1 < rows; row++) {
            double rest = at(the_case, values, row - 1, i) + at(the_case, values, row + 1, i) -
                          2 * cosine * at(the_case, values, row, i);
            left += has_neighbours(the_case, row) ? rest * rest / 4 : 0;
        }
        waves += isfinite(left) && left <= 1e-3 * square && fabs(cosine) <= 1.001;
        frequency[i] = fabs(cosine) < 1 ? acos(cosine) : 0;
        if (frequency[i] < slowest(bits) || frequency[i] > FASTEST)
            frequency[i] = 0;
    }
    return waves * 10 >= width * 9;
}

static double wave(const struct table *table, double position, double frequency)
{
    return table->height * (table->sine ? sin(position * frequency) : cos(position * frequency));
}

static double place_of(const struct ts_case *the_case, size_t row)
{
    return (double)ts_case_row(the_case, row);
}

/* theta and factor from the line of logarithms, then phase and height from the whole table. */
static bool fit(const struct ts_case *the_case, const double *values, int doubled, struct table *table)
{
    size_t width = the_case->actor->width, rows = the_case->actor->rows, used = 0;
    size_t pairs = doubled ? width / 2 : width;
    double x = 0, y = 0, xx = 0, xy = 0, energy = 0, slope, best = INFINITY;
    for (size_t i = 0; i < width; i++)
        if (table->frequency[i] > 0) {
            double place = (double)pair_of(i, width, doubled) / (double)pairs, level = log(table->frequency[i]);
            x += place;
            y += level;
            xx += place * place;
            xy += place * level;
            used++;
        }
    if (used < 3 || !(xx * (double)used - x * x > 0))
        return false;
    slope = (xy * (double)used - x * y) / (xx * (double)used - x * x);
    table->theta = exp(-slope);
    table->factor = exp(-(y - slope * x) / (double)used);
    if (fabs(table->factor - round(table->factor)) < 0.02 * table->factor && table->factor > 0.9)
        table->factor = round(table->factor);
    for (size_t i = 0; i < rows * width; i++)
        energy += values[i] * values[i];
    for (int sine = 0; sine < 2; sine++)
        for (long offset = -OFFSET_MOST; offset <= OFFSET_MOST; offset++) {
            struct table guess = {.height = 1, .sine = sine};
            double dot = 0, square = 0, left;
            for (size_t row = 0; row < rows && row < 32; row++)
                for (size_t i = 0; i < width; i++) {
                    double place = (double)pair_of(i, width, doubled) / (double)pairs;
                    double f = exp(slope * place) / table->factor,
                           w = wave(&guess, place_of(the_case, row) + (double)offset, f);
                    dot += w * at(the_case, values, row, i);
                    square += w * w;
                }
            left = square > 0 ? -dot * fabs(dot) / square : INFINITY; /* the height is above 0 */
            if (left < best - 1e-9 * energy || (left < best + 1e-9 * energy && labs(offset) < labs(table->offset))) {
                best = left;
                table->sine = sine;
                table->offset = offset;
                table->height = dot / square;
            }
        }
    return true;
}

/* What these numbers give, and how far from the values it is. */
static void draw(const struct ts_case *the_case, const double *values, int doubled, struct table *table, double *out)
{
    size_t width = the_case->actor->width, rows = the_case->actor->rows, pairs = doubled ? width / 2 : width;
    double left = 0, energy = 0;
    for (size_t i = 0; i < width; i++) {
        double place = (double)pair_of(i, width, doubled) / (double)pairs;
        double f = pow(table->theta, -place) / table->factor;
        for (size_t row = 0; row < rows; row++) {
            double y = wave(table, place_of(the_case, row) + (double)table->offset, f), rest;
            rest = at(the_case, values, row, i) - y;
            out[row * width + i] = y;
            left += rest * rest;
            energy += at(the_case, values, row, i) * at(the_case, values, row, i);
        }
    }
    table->misfit = energy > 0 ? left / energy : 1;
}

/* Bases are round numbers. */
static double rounded(double value)
{
    double unit = pow(10, floor(log10(value)) - 1), near = round(value / unit) * unit;
    return value > 0 && fabs(near - value) < 0.01 * value ? near : value;
}

/* Where one of the usual bases is as good as the fitted one, it is that. */
static void settle(const struct ts_case *the_case, const double *values, int doubled, struct table *table, double *out)
{
    static const double usual[] = {1e3, 1e4, 2e4, 5e4, 1e5, 1.5e5, 1.6e5, 2e5, 2.5e5, 5e5, 1e6, 5e6, 8e6, 1e7};
    struct table best = *table;
    draw(the_case, values, doubled, &best, out);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        struct table guess = *table;
        guess.theta = usual[i];
        if (fabs(log(usual[i] / table->theta)) > 0.3)
            continue;
        draw(the_case, values, doubled, &guess, out);
        if (guess.misfit < 1.05 * best.misfit)
            best = guess;
    }
    *table = best;
    draw(the_case, values, doubled, table, out);
}

/* Where sixteen bits leave too few waves that move from token to token, the base is looked for: all else is taken to be
 * the reference's. */
static bool search(const struct ts_case *the_case, const double *values, int doubled, const struct table *like,
                   struct table *table, double *out)
{
    struct table best = {.misfit = INFINITY};
    double step = 0.05;
    if (the_case->total > SEARCHED_MOST)
        return false;
    for (double level = log(10); level < log(1e9); level += step) {
        struct table guess = *like;
        guess.theta = exp(level);
        draw(the_case, values, doubled, &guess, out);
        best = guess.misfit < best.misfit ? guess : best;
    }
    for (; step > 1e-4; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            struct table guess = best;
            guess.theta = best.theta * exp(side * step);
            draw(the_case, values, doubled, &guess, out);
            best = guess.misfit < best.misfit ? guess : best;
        }
    best.frequency = table->frequency;
    *table = best;
    return true;
}

/* "; theta is 1000000 in the candidate, 10000 in the reference; positions are off by +1" */
static const char *differences(struct ts_case *the_case, const struct table *a, const struct table *b)
{
    char text[320];
    size_t used = 0;
#define ADD(...) used += (size_t)snprintf(text + used, sizeof text - used, __VA_ARGS__)
    text[0] = 0;
    if (fabs(log(a->theta / b->theta)) > 0.02)
        ADD("; theta is %.10g in the candidate, %.10g in the reference", rounded(b->theta), rounded(a->theta));
    if (fabs(a->factor / b->factor - 1) > 0.02)
        ADD("; positions are divided by %.4g in the candidate, by %.4g in the reference (rope scaling)", b->factor,
            a->factor);
    if (a->offset != b->offset)
        ADD("; positions are off by %+ld", b->offset - a->offset);
    if (fabs(a->height / b->height - 1) > 5e-3)
        ADD("; the amplitude is %.6g in the candidate, %.6g in the reference (attention factor)", b->height, a->height);
    if (a->sine != b->sine)
        ADD("; the candidate holds %s, the reference %s", b->sine ? "sines" : "cosines", a->sine ? "sines" : "cosines");
#undef ADD
    return text[0] ? ts_case_text(the_case, "%s", text) : "";
}

/* A table by its numbers, for other rows. */
struct waves {
    struct table table;
    int doubled;
};

static bool predict(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct waves *waves = formula->numbers;
    struct table table = waves->table;
    draw(the_case, the_case->found, waves->doubled, &table, out);
    return true;
}

/* Slots of a tally: what the candidate's frequencies leave of its waves, and what the reference's do. */
enum { LEFT, MADE };

/* The table: frequencies of the reference, then of the candidate; 0 where they are not held against each other. */
static bool count(struct ts_case *the_case, const struct ts_formula *formula, const double *out, struct ts_tally *tally)
{
    size_t width = the_case->actor->width;
    (void)out;
    if (formula->table_count != 2 * width)
        return false;
    for (size_t i = 0; i < width; i++) {
        double cosine_a = cos(formula->table[i]), cosine_b = cos(formula->table[width + i]);
        for (size_t row = 1; row + 1 < the_case->actor->rows && formula->table[i] > 0; row++) {
            double x = at(the_case, the_case->found, row, i), sum;
            sum = at(the_case, the_case->found, row - 1, i) + at(the_case, the_case->found, row + 1, i);
            if (!has_neighbours(the_case, row) || !isfinite(x) || !isfinite(sum))
                continue;
            tally->sums[LEFT] += (sum / 2 - cosine_b * x) * (sum / 2 - cosine_b * x);
            tally->sums[MADE] += (sum / 2 - cosine_a * x) * (sum / 2 - cosine_a * x);
        }
    }
    return true;
}

static const char *tell(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                        double *share)
{
    (void)the_case;
    (void)formula;
    if (tally->sums[MADE] > 0)
        *share = WAVES * fmax(0, 1 - tally->sums[LEFT] / tally->sums[MADE]);
    return NULL;
}

/* Scalings that bend the line of frequencies (llama3, yarn): told by the pairs where they differ. */
static void other_frequencies(struct ts_case *the_case, const struct table *a, const struct table *b)
{
    size_t width = the_case->actor->width, differing = 0, first = 0, last = 0;
    double least = INFINITY, most = 0, *table;
    for (size_t i = 0; i < width; i++)
        if (a->frequency[i] > 0 && b->frequency[i] > 0 && fabs(a->frequency[i] / b->frequency[i] - 1) > 5e-3) {
            double ratio = b->frequency[i] / a->frequency[i];
            first = differing++ ? first : i;
            last = i;
            least = ratio < least ? ratio : least;
            most = ratio > most ? ratio : most;
        }
    if (differing && (table = calloc(2 * width, sizeof *table))) {
        for (size_t i = 0; i < width; i++)
            if (a->frequency[i] > 0 && b->frequency[i] > 0 && fabs(a->frequency[i] / b->frequency[i] - 1) > 5e-3) {
                table[i] = a->frequency[i];
                table[width + i] = b->frequency[i];
            }
        ts_formula_next(the_case,
                        &(struct ts_formula){.count = count, .tell = tell, .table = table, .table_count = 2 * width});
        free(table);
    }
    if (differing)
        ts_propose_plain(the_case, "rotation", WAVES, "the candidate's rope_theta and rope_scaling",
                         "a table of rotary angles: in columns %zu to %zu the candidate's frequencies are %.4g to %.4g "
                         "times the reference's",
                         first, last, least, most);
}

static void propose(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    struct table a = {0}, b = {0};
    double *prediction = ts_case_scratch(the_case), *frequencies;
    int doubled;
    if (!prediction || ts_case_direct(the_case) || ts_case_quiet(the_case) || actor->heads != 1 ||
        actor->rows < ROWS_LEAST || actor->width < 4)
        return;
    if (ts_case_complete(the_case) ? actor->sequence != actor->rows || !actor->whole
                                   : actor->rows != the_case->scene->taken_count)
        return;
    for (size_t i = 0; i < the_case->total; i++)
        if (!(fabs(the_case->expected[i]) < 4) || !(fabs(the_case->found[i]) < 4))
            return;
    frequencies = calloc(2 * actor->width, sizeof *frequencies);
    if (!frequencies)
        return;
    a.frequency = frequencies;
    b.frequency = frequencies + actor->width;
    doubled = doubling(the_case, the_case->expected);
    if (measure(the_case, the_case->expected, actor->bits_a, a.frequency) &&
        measure(the_case, the_case->found, actor->bits_b, b.frequency)) {
        bool known = fit(the_case, the_case->expected, doubled, &a);
        struct waves waves = {.doubled = doubled};
        const char *text;
        if (known)
            settle(the_case, the_case->expected, doubled, &a, prediction);
        known = known && (fit(the_case, the_case->found, doubled, &b) ||
                          search(the_case, the_case->found, doubled, &a, &b, prediction));
        if (known)
            settle(the_case, the_case->found, doubled, &b, prediction);
        text = known && a.misfit < 0.02 && b.misfit < 0.02 ? differences(the_case, &a, &b) : "";
        waves.table = b;
        waves.table.frequency = NULL;
        if (text[0])
            ts_formula_next(the_case,
                            &(struct ts_formula){.predict = predict, .numbers = &waves, .size = sizeof waves});
        if (text[0])
            ts_propose(the_case, "rotation", prediction, 4, "the candidate's rope_theta, rope_scaling and position ids",
                       "a table of rotary angles (%s)%s", b.sine ? "sines" : "cosines", text);
        else
            other_frequencies(the_case, &a, &b);
    }
    free(frequencies);
}

const struct ts_family ts_family_turns = {.name = "turns", .propose = propose};
