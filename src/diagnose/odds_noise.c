#include "diagnose/odds_noise.h"

#include <math.h>

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

double ts_odds_noise_try(const struct ts_odds_noise *noise, double scale, double share, double *left)
{
    const size_t rows = noise->rows;
    double solved[TS_ODDS_ROWS][TS_ODDS_ROWS], pivot[TS_ODDS_ROWS], factor[TS_ODDS_ROWS] = {0}, logs = 0, trace = 0;
    for (size_t s = 0; s < rows; s++) {
        const double before = s ? scale * noise->beside[s - 1] : 0;
        factor[s] = s ? before / pivot[s - 1] : 0;
        pivot[s] = scale * noise->diagonal[s] + share - factor[s] * before;
        if (!(pivot[s] > 0) || !isfinite(pivot[s]))
            return -INFINITY;
        logs += log(pivot[s]) / (double)rows;
        for (size_t t = 0; t < rows; t++)
            solved[s][t] = noise->products[s][t] - (s ? factor[s] * solved[s - 1][t] : 0);
    }
    for (size_t s = rows; s-- > 0;) {
        for (size_t t = 0; t < rows; t++)
            solved[s][t] = solved[s][t] / pivot[s] - (s + 1 < rows ? factor[s + 1] * solved[s + 1][t] : 0);
        trace += solved[s][s];
    }
    *left = trace / (double)rows;
    return -0.5 * (noise->log_energy + logs + *left);
}
