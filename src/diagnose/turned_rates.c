#include "diagnose/turned_rates.h"

#include <math.h>

#define FEWEST_PAIRS 4
#define MOST_OFF     64  /* positions */
#define LOWEST       3.0 /* logarithms of theta: 20 to 10^9 */
#define HIGHEST      20.8
#define STEPS        240
#define STEPS_OF_TWO 72
#define WORTH        1e-6 /* of all: what a position further off must explain more */
#define LEFT         1e-2 /* of the square of all rates: of what is said */
#define AS_GOOD      2.0  /* one factor says more than another theta that leaves half as much */

/* The base's logarithm gives what a position turns this pair by. */
static double step_of(double logarithm, size_t pair, size_t pairs)
{
    return exp(-logarithm * (double)pair / (double)pairs);
}

static double shift_score(const double complex *turns, size_t pairs, double positions, double logarithm)
{
    double score = 0;
    for (size_t i = 0; i < pairs; i++)
        score += creal(turns[i] * cexp(-I * positions * step_of(logarithm, i, pairs)));
    return score;
}

bool ts_read_shift(const double complex *turns, size_t pairs, struct ts_turned_rates *found)
{
    double all = 0, best = -INFINITY, positions = 0, logarithm = 0, width = (HIGHEST - LOWEST) / STEPS;
    for (size_t i = 0; i < pairs; i++)
        all += cabs(turns[i]);
    if (pairs < FEWEST_PAIRS || !(all > 0))
        return false;
    for (int off = 2; off < 2 * MOST_OFF + 2; off++)
        for (int step = 0; step <= STEPS; step++) {
            double at = LOWEST + step * width, sign = off % 2 ? -1 : 1;
            double score = shift_score(turns, pairs, sign * (off / 2), at);
            if (score > best + WORTH * all) {
                best = score;
                positions = sign * (off / 2);
                logarithm = at;
            }
        }
    for (int pass = 0; pass < 6; pass++) {
        double middle = logarithm;
        width /= 5;
        for (int step = -6; step <= 6; step++) {
            double score = shift_score(turns, pairs, positions, middle + step * width);
            if (score > best) {
                best = score;
                logarithm = middle + step * width;
            }
        }
    }
    *found = (struct ts_turned_rates){.theta = exp(logarithm), .factor = 1, .positions = positions};
    return true;
}

struct growth {
    const double *rates, *weights;
    size_t pairs;
};

/* What the best factor on the steps of this base leaves of the rates. */
static double left_by_factor(const struct growth *growth, double logarithm, double *factor)
{
    double upper = 0, lower = 0, left = 0;
    for (size_t i = 0; i < growth->pairs; i++) {
        double step = step_of(logarithm, i, growth->pairs);
        upper += growth->weights[i] * growth->rates[i] * step;
        lower += growth->weights[i] * step * step;
    }
    *factor = upper / lower;
    for (size_t i = 0; i < growth->pairs; i++) {
        double miss = growth->rates[i] - *factor * step_of(logarithm, i, growth->pairs);
        left += growth->weights[i] * miss * miss;
    }
    return left;
}

static double left_by_two(const struct growth *growth, double logarithm, double other)
{
    double left = 0;
    for (size_t i = 0; i < growth->pairs; i++) {
        double miss = growth->rates[i] - step_of(other, i, growth->pairs) + step_of(logarithm, i, growth->pairs);
        left += growth->weights[i] * miss * miss;
    }
    return left;
}

static double find_factor(const struct growth *growth, double *logarithm, double *factor)
{
    double best = INFINITY, width = (HIGHEST - LOWEST) / STEPS, own;
    for (int pass = 0; pass < 8; pass++) {
        double middle = pass ? *logarithm : (LOWEST + HIGHEST) / 2;
        int reach = pass ? 6 : STEPS / 2;
        for (int step = -reach; step <= reach; step++) {
            double left = left_by_factor(growth, middle + step * width, &own);
            if (left < best) {
                best = left;
                *logarithm = middle + step * width;
                *factor = own;
            }
        }
        width /= 5;
    }
    return best;
}

static double find_two(const struct growth *growth, double *logarithm, double *other)
{
    double best = INFINITY, width = (HIGHEST - LOWEST) / STEPS_OF_TWO;
    for (int pass = 0; pass < 24; pass++) {
        double middle = pass ? *logarithm : (LOWEST + HIGHEST) / 2, beside = pass ? *other : middle;
        int reach = pass ? 5 : STEPS_OF_TWO / 2;
        for (int step = -reach; step <= reach; step++)
            for (int way = -reach; way <= reach; way++) {
                double left = left_by_two(growth, middle + step * width, beside + way * width);
                if (left < best) {
                    best = left;
                    *logarithm = middle + step * width;
                    *other = beside + way * width;
                }
            }
        width /= 2;
    }
    return best;
}

bool ts_read_growth(const double *rates, const double *weights, size_t pairs, struct ts_turned_rates *found)
{
    struct growth growth = {rates, weights, pairs};
    double all = 0, scaled, two, base = 0, factor = 0, own = 0, other = 0;
    for (size_t i = 0; i < pairs; i++)
        all += weights[i] * rates[i] * rates[i];
    if (pairs < FEWEST_PAIRS || !(all > 0))
        return false;
    scaled = find_factor(&growth, &base, &factor);
    two = find_two(&growth, &own, &other);
    if (!(fmin(scaled, two) < LEFT * all))
        return false;
    if (scaled <= AS_GOOD * two + WORTH * all)
        *found = (struct ts_turned_rates){.theta = exp(base), .factor = 1 + factor};
    else
        *found = (struct ts_turned_rates){.theta = exp(own), .theta_b = exp(other), .factor = 1};
    return true;
}

void ts_turned_angles(const struct ts_turned_rates *rates, size_t pairs, double *angles)
{
    for (size_t i = 0; i < pairs; i++) {
        double own = step_of(log(rates->theta), i, pairs);
        angles[i] = rates->theta_b > 0 ? step_of(log(rates->theta_b), i, pairs) - own
                                       : (rates->factor - 1 + rates->positions) * own;
    }
}
