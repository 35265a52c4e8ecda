/* Owns the sums of a row. */
#include "diagnose/stretch_sums.h"

#include "diagnose/families.h"

#define LANES 8 /* sums that are added to in turn, for the sake of the processor */

/* Masks and what is not a number. */
static struct ts_sums add_slowly(const double *expected, const double *found, const double *out, size_t count,
                                 double least)
{
    struct ts_sums sums = {0};
    for (size_t i = 0; i < count; i++) {
        double error = ts_element_cost(found[i], expected[i], expected[i]), left;
        if (error < 0)
            continue;
        left = ts_element_cost(found[i], out[i], expected[i]);
        sums.error += error;
        sums.left += left < 0 ? 4 * found[i] * found[i] + 1 : left; /* nothing like a number was found */
        sums.expected += isfinite(expected[i]) ? expected[i] * expected[i] : 0;
        sums.found += isfinite(found[i]) ? found[i] * found[i] : 0;
        sums.elements += error > least;
        sums.counted += expected[i] != 0;
        sums.equal += expected[i] != 0 && out[i] == found[i];
    }
    return sums;
}

void ts_sums_add(struct ts_sums *sums, const struct ts_sums *more)
{
    sums->error += more->error;
    sums->left += more->left;
    sums->expected += more->expected;
    sums->found += more->found;
    sums->elements += more->elements;
    sums->counted += more->counted;
    sums->equal += more->equal;
}

struct ts_sums ts_sums_of(const double *expected, const double *found, const double *out, size_t count, double least,
                          bool exact)
{
    double error[LANES] = {0}, left[LANES] = {0}, x[LANES] = {0}, y[LANES] = {0}, many[LANES] = {0};
    struct ts_sums sums = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            double e = expected[i + k], f = found[i + k], p = out[i + k];
            error[k] += (f - e) * (f - e);
            many[k] += (f - e) * (f - e) > least ? 1.0 : 0.0;
            left[k] += (f - p) * (f - p);
            x[k] += e * e;
            y[k] += f * f;
        }
    for (size_t k = 0; k < LANES; k++) {
        sums.error += error[k];
        sums.left += left[k];
        sums.expected += x[k];
        sums.found += y[k];
        sums.elements += many[k];
    }
    if (!isfinite(sums.error + sums.left + sums.expected + sums.found) || exact)
        return add_slowly(expected, found, out, count, least);
    if (i < count) {
        struct ts_sums rest = add_slowly(expected + i, found + i, out + i, count - i, least);
        ts_sums_add(&sums, &rest);
    }
    return sums;
}
