/* Owns how alike two tables of products are. */
#include "diagnose/attention_tables.h"

#include <stdlib.h>
#include <string.h>

#define LANES 8 /* sums that are added to in turn, for the sake of the processor */

#define OF_MOVED   0.2 /* how much each of the three ways to compare counts */
#define OF_FINER   0.5
#define OF_CROSSED 0.3

/* What counts as a relation: how alike products must be, by how many standard deviations above what chance makes, which
 * is drawn so many times. A projection to as many numbers as it is given adds as much of its own to products of
 * unrelated rows as these have, so that true ones are alike by 0.7. */
#define RELATED   0.3
#define CHANCES   4
#define DRAWS     32
#define OWN_SHARE 0.03 /* of a row, that no earlier one has; less is noise */

double ts_product_of(const double *x, const double *y, size_t width)
{
    double lanes[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lanes[k] += x[i + k] * y[i + k];
    for (size_t k = 0; k < LANES; k++)
        sum += lanes[k];
    for (; i < width; i++)
        sum += x[i] * y[i];
    return sum;
}

void ts_products_of(const double *x, const double *y, size_t tokens, size_t width, bool centred, double *out)
{
    double *mean = calloc(2 * tokens + 1, sizeof *mean), all = 0;
    for (size_t s = 0; s < tokens; s++)
        for (size_t t = 0; t < tokens; t++) {
            double sum = ts_product_of(x + s * width, y + t * width, width);
            out[s * tokens + t] = isfinite(sum) ? sum : 0;
        }
    for (size_t s = 0; s < tokens && centred && mean; s++)
        for (size_t t = 0; t < tokens; t++) {
            mean[s] += out[s * tokens + t] / (double)tokens;
            mean[tokens + t] += out[s * tokens + t] / (double)tokens;
            all += out[s * tokens + t] / (double)(tokens * tokens);
        }
    for (size_t s = 0; s < tokens && centred && mean; s++)
        for (size_t t = 0; t < tokens; t++)
            out[s * tokens + t] += all - mean[s] - mean[tokens + t];
    free(mean);
}

double ts_table_cosine(const double *a, const double *b, size_t tokens)
{
    double dot = 0, left = 0, right = 0;
    for (size_t i = 0; i < tokens * tokens; i++) {
        dot += a[i] * b[i];
        left += a[i] * a[i];
        right += b[i] * b[i];
    }
    return left > 0 && right > 0 ? dot / sqrt(left * right) : 0;
}

/* Sums of products between what is predicted (A), what was found (B), and what the sizes of the rows alone make of each
 * (SA, SB): of whole tables, of crossed ones, and of different tokens only. CHANCE: squares of what the projection may
 * add to a crossed product, times its width. DIRECTIONS: one over how many stand for the predicted rows, or 0. */
enum {
    MOVED_AB,
    MOVED_AA,
    MOVED_BB,
    CROSSED_AB,
    CROSSED_AA,
    CROSSED_BB,
    CHANCE,
    AB,
    AA,
    BB,
    A_SA,
    SA_SA,
    B_SB,
    SB_SB,
    SA_B,
    A_SB,
    SA_SB,
    DIRECTIONS,
    SUMS
};
_Static_assert(SUMS <= TS_TALLY_SUMS, "a tally has so many sums");

void ts_tables_add(const struct ts_tables *tables, const double *sizes, size_t tokens, double *sums)
{
    for (size_t s = 0; s < tokens; s++)
        for (size_t t = 0; t < tokens; t++) {
            size_t at = s * tokens + t;
            double a = tables->moved[at], b = tables->moved_found[at], x = tables->crossed[at];
            double own_a = sqrt(fabs(tables->moved[s * tokens + s] * tables->moved[t * tokens + t]));
            double own_b = sqrt(fabs(tables->moved_found[s * tokens + s] * tables->moved_found[t * tokens + t]));
            sums[MOVED_AB] += a * b;
            sums[MOVED_AA] += a * a;
            sums[MOVED_BB] += b * b;
            sums[CROSSED_AB] += x * tables->crossed_found[at];
            sums[CROSSED_AA] += x * x;
            sums[CROSSED_BB] += tables->crossed_found[at] * tables->crossed_found[at];
            sums[CHANCE] += sizes ? sizes[s] * tables->moved[t * tokens + t] : 0;
            if (s == t)
                continue;
            sums[AB] += a * b;
            sums[AA] += a * a;
            sums[BB] += b * b;
            sums[A_SA] += a * own_a;
            sums[SA_SA] += own_a * own_a;
            sums[B_SB] += b * own_b;
            sums[SB_SB] += own_b * own_b;
            sums[SA_B] += own_a * b;
            sums[A_SB] += a * own_b;
            sums[SA_SB] += own_a * own_b;
        }
}

static double cosine(double dot, double left, double right)
{
    return left > 0 && right > 0 ? dot / sqrt(left * right) : 0;
}

/* Between different tokens, without what the sizes of the rows alone make of a table: rows that are all unrelated, or
 * that all move one way, resemble each other under any hypothesis. left: what there is of the prediction. */
static double finer(const double *sums, double *left)
{
    double slope_a = sums[SA_SA] > 0 ? sums[A_SA] / sums[SA_SA] : 0;
    double slope_b = sums[SB_SB] > 0 ? sums[B_SB] / sums[SB_SB] : 0;
    double dot = sums[AB] - slope_a * sums[SA_B] - slope_b * sums[A_SB] + slope_a * slope_b * sums[SA_SB];
    *left = sums[AA] - slope_a * sums[A_SA];
    return cosine(dot, *left, sums[BB] - slope_b * sums[B_SB]);
}

double ts_tables_likeness(const double *sums)
{
    double left;
    return OF_MOVED * cosine(sums[MOVED_AB], sums[MOVED_AA], sums[MOVED_BB]) + OF_FINER * finer(sums, &left) +
           OF_CROSSED * cosine(sums[CROSSED_AB], sums[CROSSED_AA], sums[CROSSED_BB]);
}

void ts_tables_direct(double *sums, double directions)
{
    sums[DIRECTIONS] = 1 / directions;
}

/* How much of products is seen behind what chance adds to them: the projection to what was found, and directions to
 * what is predicted, of whose square `all` is what there is and `chance` what is added, over so many. */
static double seen(double all, double chance, double width, double directions)
{
    double own = all - directions * chance;
    return own > 0 ? own / all * own / (own + chance / width) : 0;
}

double ts_tables_fair(const double *sums, double width)
{
    double left, alike = finer(sums, &left), across = cosine(sums[CROSSED_AB], sums[CROSSED_AA], sums[CROSSED_BB]);
    double finer_seen = seen(left, sums[SA_SA] + sums[AA], width, sums[DIRECTIONS]);
    double crossed_seen = seen(sums[CROSSED_AA], sums[CHANCE] + sums[CROSSED_AA], width, sums[DIRECTIONS]);
    double of_finer = left > 0 ? OF_FINER * finer_seen : 0;
    double of_crossed = sums[CROSSED_AA] > 0 ? OF_CROSSED * crossed_seen : 0;
    alike = of_finer > 0 ? fmin(1, alike / sqrt(finer_seen)) : 0;
    across = of_crossed > 0 ? fmin(1, across / sqrt(crossed_seen)) : 0;
    return (OF_MOVED * cosine(sums[MOVED_AB], sums[MOVED_AA], sums[MOVED_BB]) + of_finer * alike +
            of_crossed * across) /
           (OF_MOVED + of_finer + of_crossed);
}

/* Makes rows stand upright on those before them, of length one, so that what they share counts once; those that bring
 * next to nothing of their own are gone. */
static void straighten(double *rows, size_t count, size_t width)
{
    for (size_t row = 0; row < count; row++) {
        double *own = rows + row * width, square = 0, left = 0;
        for (size_t i = 0; i < width; i++)
            square += own[i] * own[i];
        for (size_t back = 0; back < row; back++) {
            const double *other = rows + back * width;
            double dot = 0;
            for (size_t i = 0; i < width; i++)
                dot += own[i] * other[i];
            for (size_t i = 0; i < width; i++)
                own[i] -= dot * other[i];
        }
        for (size_t i = 0; i < width; i++)
            left += own[i] * own[i];
        left = left > OWN_SHARE * OWN_SHARE * square ? 1 / sqrt(left) : 0;
        for (size_t i = 0; i < width; i++)
            own[i] *= left;
    }
}

double ts_relation(double *own, double *context, size_t wide, const double *expected, const double *found, size_t width,
                   size_t tokens)
{
    size_t table = tokens * tokens;
    double *room = malloc((2 * tokens * width + 2 * table) * sizeof *room), *upright = room;
    double *wanted = room + 2 * tokens * width, *crossed = wanted + table, likeness = 0, mean = 0, square = 0;
    uint32_t dice = 1;
    if (!room)
        return 0;
    memcpy(upright, expected, tokens * width * sizeof *room);
    memcpy(upright + tokens * width, found, tokens * width * sizeof *room);
    straighten(upright, tokens, width);
    straighten(upright + tokens * width, tokens, width);
    straighten(own, tokens, wide);
    straighten(context, tokens, wide);
    ts_products_of(upright, upright + tokens * width, tokens, width, false, wanted);
    for (int draw = 0; draw <= DRAWS; draw++) {
        double alike;
        ts_products_of(own, context, tokens, wide, false, crossed);
        alike = ts_table_cosine(crossed, wanted, tokens);
        likeness = draw ? likeness : alike;
        mean += draw ? alike / DRAWS : 0;
        square += draw ? alike * alike / DRAWS : 0;
        for (size_t i = 0; i < wide; i++) {
            dice = dice * 1664525u + 1013904223u;
            for (size_t t = 0; t < tokens && dice >> 31; t++)
                context[t * wide + i] *= -1;
        }
    }
    free(room);
    return likeness > RELATED && likeness > mean + CHANCES * sqrt(fmax(square - mean * mean, 0)) ? likeness : 0;
}
