#include "diagnose/odds_noise.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The mirror's part in m, [rows, rows] and symmetric, from index `first` on: m - v w' - w v'. v is zero before `first`;
 * what m has in rows and columns before `from` is left alone. */
static void reflect(double *m, size_t rows, size_t from, size_t first, const double *v, double twice)
{
    double w[TS_ODDS_ROWS], along = 0;
    for (size_t i = from; i < rows; i++) {
        double sum = 0;
        for (size_t j = first; j < rows; j++)
            sum += m[i * rows + j] * v[j];
        w[i] = twice * sum;
    }
    for (size_t i = first; i < rows; i++)
        along += 0.5 * twice * v[i] * w[i];
    for (size_t i = first; i < rows; i++)
        w[i] -= along * v[i];
    for (size_t i = from; i < rows; i++) {
        for (size_t j = first; j < rows; j++)
            m[i * rows + j] -= w[i] * v[j];
        if (i >= first)
            for (size_t j = from; j < rows; j++)
                m[i * rows + j] -= v[i] * w[j];
    }
}

void ts_odds_noise_open(struct ts_odds_noise *noise, double *covariance, const double *products, size_t rows,
                        size_t width, const double *energy)
{
    double turned[TS_ODDS_ROWS * TS_ODDS_ROWS], size[TS_ODDS_ROWS];
    noise->rows = rows;
    noise->log_energy = 0;
    for (size_t t = 0; t < rows; t++) {
        size[t] = sqrt(energy[t]);
        noise->log_energy += log(energy[t]) / (double)rows;
    }
    for (size_t s = 0; s < rows; s++)
        for (size_t t = 0; t < rows; t++) {
            covariance[s * rows + t] /= size[s] * size[t];
            turned[s * rows + t] = products[s * rows + t] / (size[s] * size[t] * (double)width);
        }
    for (size_t k = 0; k + 2 < rows; k++) { /* what stands in column k below the number beside the diagonal goes */
        double v[TS_ODDS_ROWS] = {0}, length = 0;
        for (size_t i = k + 1; i < rows; i++) {
            v[i] = covariance[i * rows + k];
            length += v[i] * v[i];
        }
        if (!(length > v[k + 1] * v[k + 1]))
            continue;
        v[k + 1] += copysign(sqrt(length), v[k + 1]);
        length = 0;
        for (size_t i = k + 1; i < rows; i++)
            length += v[i] * v[i];
        reflect(covariance, rows, k, k + 1, v, 2 / length);
        reflect(turned, rows, 0, k + 1, v, 2 / length);
    }
    for (size_t s = 0; s < rows; s++) {
        noise->diagonal[s] = covariance[s * rows + s];
        noise->beside[s] = s + 1 < rows ? covariance[(s + 1) * rows + s] : 0;
        for (size_t t = 0; t < rows; t++)
            noise->products[s][t] = turned[s * rows + t];
    }
}

/* What elimination makes of the covariance, times `scale`, with rounding on its diagonal. */
struct elimination {
    double pivot[TS_ODDS_ROWS], factor[TS_ODDS_ROWS];
};

static bool eliminate(const struct ts_odds_noise *noise, double scale, double share, struct elimination *done)
{
    for (size_t s = 0; s < noise->rows; s++) {
        const double before = s ? scale * noise->beside[s - 1] : 0;
        done->factor[s] = s ? before / done->pivot[s - 1] : 0;
        done->pivot[s] = scale * noise->diagonal[s] + share - done->factor[s] * before;
        if (!(done->pivot[s] > 0) || !isfinite(done->pivot[s]))
            return false;
    }
    return true;
}

/* Replaces the columns of a table by the covariance's inverse times them. Returns the trace. */
static double solve(const struct ts_odds_noise *noise, const struct elimination *done, double scale,
                    double table[TS_ODDS_ROWS][TS_ODDS_ROWS])
{
    const size_t rows = noise->rows;
    double trace = 0;
    for (size_t s = 1; s < rows; s++)
        for (size_t t = 0; t < rows; t++)
            table[s][t] -= done->factor[s] * table[s - 1][t];
    for (size_t s = rows; s-- > 0;) {
        const double beside = s + 1 < rows ? scale * noise->beside[s] : 0;
        for (size_t t = 0; t < rows; t++)
            table[s][t] = (table[s][t] - (s + 1 < rows ? beside * table[s + 1][t] : 0)) / done->pivot[s];
        trace += table[s][s];
    }
    return trace;
}

double ts_odds_noise_try(const struct ts_odds_noise *noise, double scale, double share, double *left)
{
    double solved[TS_ODDS_ROWS][TS_ODDS_ROWS], logs = 0;
    struct elimination done = {{0}, {0}};
    if (!eliminate(noise, scale, share, &done))
        return -INFINITY;
    for (size_t s = 0; s < noise->rows; s++) {
        logs += log(done.pivot[s]) / (double)noise->rows;
        memcpy(solved[s], noise->products[s], noise->rows * sizeof *solved[s]);
    }
    *left = solve(noise, &done, scale, solved) / (double)noise->rows;
    return -0.5 * (noise->log_energy + logs + *left);
}

double ts_odds_noise_left(const struct ts_odds_noise *noise, double scale, double share, double *directions,
                          double *uneven)
{
    const size_t rows = noise->rows;
    double solved[TS_ODDS_ROWS][TS_ODDS_ROWS], twice[TS_ODDS_ROWS][TS_ODDS_ROWS] = {0}, left = 0, squares = 0;
    struct elimination done = {{0}, {0}};
    *directions = *uneven = 0;
    if (!eliminate(noise, scale, share, &done))
        return INFINITY;
    for (size_t s = 0; s < rows; s++)
        twice[s][s] = 1;
    *directions = (double)rows - share * solve(noise, &done, scale, twice);
    for (size_t s = 0; s < rows; s++)
        memcpy(solved[s], noise->products[s], rows * sizeof *solved[s]);
    (void)solve(noise, &done, scale, solved);
    memcpy(twice, solved, sizeof twice);
    (void)solve(noise, &done, scale, twice);
    for (size_t s = 0; s < rows; s++)
        for (size_t t = 0; t < rows; t++)
            solved[s][t] -= share * twice[s][t];
    for (size_t s = 0; s < rows; s++) {
        left += solved[s][s];
        for (size_t t = 0; t < rows; t++)
            squares += solved[s][t] * solved[t][s];
    }
    *uneven = *directions * squares / (left * left);
    return left / *directions;
}
