#include "compare/symmetric.h"

#include <math.h>
#include <stdlib.h>

#include "base/ordered.h"

/* A column loses its parts along others again until little is lost: twice is enough, unless nothing is left of it. */
#define ROUNDS 4
#define SWEEPS 40

static double dot(const double *a, const double *b, size_t n)
{
    double sums[4] = {0}; /* several, so that one addition need not wait for the other */
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++)
            sums[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void ts_orthonormalize(double *columns, size_t n, size_t count)
{
    for (size_t c = 0; c < count; c++) {
        double *column = columns + c * n, norm = sqrt(dot(column, column, n)), left = 0;
        for (int round = 0; round < ROUNDS && norm > 0; round++) {
            for (size_t i = 0; i < n; i++)
                column[i] /= norm;
            for (size_t k = 0; k < c; k++) {
                const double *other = columns + k * n;
                double along = dot(column, other, n);
                for (size_t i = 0; i < n; i++)
                    column[i] -= along * other[i];
            }
            left = norm = sqrt(dot(column, column, n));
            if (left > 0.5)
                break;
        }
        for (size_t i = 0; i < n; i++)
            column[i] = left > 0.5 ? column[i] / left : 0;
    }
}

/* Turns rows and columns p and q so that the entry between them becomes zero. */
static void turn(double *matrix, size_t size, size_t p, size_t q)
{
    double between = matrix[p * size + q], theta, t, c, s;
    if (between == 0)
        return;
    theta = (matrix[q * size + q] - matrix[p * size + p]) / (2 * between);
    t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    c = 1 / sqrt(t * t + 1);
    s = t * c;
    for (size_t k = 0; k < size; k++) {
        double x = matrix[p * size + k], y = matrix[q * size + k];
        matrix[p * size + k] = c * x - s * y;
        matrix[q * size + k] = s * x + c * y;
    }
    for (size_t k = 0; k < size; k++) {
        double x = matrix[k * size + p], y = matrix[k * size + q];
        matrix[k * size + p] = c * x - s * y;
        matrix[k * size + q] = s * x + c * y;
    }
}

void ts_symmetric_eigenvalues(double *matrix, size_t size, double *values)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double off = 0, on = 0;
        for (size_t p = 0; p < size; p++) {
            on += matrix[p * size + p] * matrix[p * size + p];
            for (size_t q = p + 1; q < size; q++)
                off += matrix[p * size + q] * matrix[p * size + q];
        }
        if (!(off > 1e-36 * on))
            break;
        for (size_t p = 0; p < size; p++)
            for (size_t q = p + 1; q < size; q++)
                turn(matrix, size, p, q);
    }
    for (size_t i = 0; i < size; i++)
        values[i] = matrix[i * size + i];
    qsort(values, size, sizeof *values, ts_by_falling_value);
}
