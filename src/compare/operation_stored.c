/* Owns norms whose weights were stored in sixteen bits on one side. Checkpoints are, and many programs compute with
 * them in f32: then a norm differs by its weights, each by less than one rounding, far more than its numbers' own
 * precision explains. A weight that is wrong is no such number, or not the one next to the reference's. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "compare/operation_search.h"

#define OFF_FROM   1.2     /* times what rounding explains: below it there is nothing to explain */
#define MOST_ERROR 0x1p-7  /* that such weights make */
#define SLACK      0x1p-16 /* of a weight that is found from a few rows of f32 */

/* By what the candidate's weight of each channel differs from the reference's, over all rows. False without memory. */
static bool fit_factors(struct ts_scene *scene, const struct ts_operation *norm, const struct ts_actor *actor,
                        double *factors)
{
    const size_t total = actor->rows * actor->width;
    double *inputs[2] = {NULL, NULL}, *out = malloc(total * sizeof *out), *sums = calloc(norm->group, sizeof *sums);
    bool good = out && sums;
    for (unsigned k = 0; k < norm->input_count && good; k++) {
        const struct ts_actor *input = ts_operation_input(scene, norm, k);
        inputs[k] = input ? ts_as_doubles(input->b, input->rows * input->width) : NULL;
        good = inputs[k] != NULL;
    }
    if (good)
        ts_operation_apply(scene, norm, actor, inputs, out);
    for (size_t i = 0; i < total && good; i++)
        if (isfinite(out[i]) && isfinite(actor->b[i])) {
            factors[i % norm->group] += out[i] * (double)actor->b[i];
            sums[i % norm->group] += out[i] * out[i];
        }
    for (size_t i = 0; i < norm->group && good; i++)
        factors[i] = sums[i] > 0 ? factors[i] / sums[i] : 1;
    free(inputs[0]);
    free(inputs[1]);
    free(out);
    free(sums);
    return good;
}

static double step_at(double value, int bits)
{
    return ldexp(1, ilogb(fmax(fabs(value), DBL_MIN)) - bits);
}

/* Each weight of the candidate is a number of so many bits, and the reference's rounds to it; `added` is what the norm
 * adds to the weight that is stored. */
static bool are_rounded(const struct ts_operation *norm, const double *factors, int bits, double added, double slack,
                        double *weights)
{
    for (size_t i = 0; i < norm->group; i++) {
        double wanted = norm->table[i], own = wanted * factors[i], near = slack * fabs(wanted);
        double step = step_at(own - added, bits);
        weights[i] = added + nearbyint((own - added) / step) * step;
        /* steps double at a power of two, which may lie between the weight and what it was rounded to */
        step = fmax(step, step_at(wanted - added, bits));
        if (!(fabs(own - weights[i]) <= near) || !(fabs(wanted - weights[i]) <= near + step / 2))
            return false;
    }
    return true;
}

enum ts_status ts_operation_replay_stored(struct ts_scene *scene, const struct ts_operation *operation,
                                          const struct ts_actor *actor, struct ts_replay *replay,
                                          struct ts_error *error)
{
    static const int stored[] = {10, 7};
    const double slack = fmax(SLACK, 4 * ts_rounding(actor->bits_b));
    struct ts_operation own = *operation;
    double *factors;
    enum ts_status status = TS_OK;
    bool found = false;
    if (operation->kind != TS_OPERATION_NORM || operation->flag || !(replay->ratio > OFF_FROM) ||
        replay->local > MOST_ERROR)
        return TS_OK;
    factors = calloc(operation->group, sizeof *factors);
    own.table = calloc(operation->table_count, sizeof *own.table);
    if (factors && own.table && fit_factors(scene, operation, actor, factors))
        for (int k = 0; k < 4 && !found; k++)
            found = are_rounded(operation, factors, stored[k / 2], k % 2, slack, own.table);
    if (found) {
        struct ts_replay with_own;
        status = ts_operation_replay(scene, &own, actor, &with_own, error);
        if (status == TS_OK && with_own.ratio < replay->ratio)
            *replay = with_own;
    }
    free(factors);
    free(own.table);
    return status;
}
