/* Owns telling near twins apart: the two kinds of gelu, and epsilons. What one gives instead of the other is less than
 * one rounding of sixteen bits in nearly every number. But it is the same function in all of them, and rounding is
 * none: added up over all numbers, along what the twin would change, it stands far above what chance leaves. */
#include <math.h>
#include <stdlib.h>

#include "compare/operation_search.h"

#define LEAST_ROWS    6    /* fewer do not tell how far chance goes */
#define LEAST_NUMBERS 1024 /* nor do fewer of these */
#define SMALL         0.02 /* of the usual size: numbers below are rounded as those are, halfway to them */
#define OFF           0.15 /* of the factor, which is 1 for the twin and 0 for the operation itself */
#define KNOWN         0.1  /* standard error of the factor */
#define COARSE        10   /* bits of a mantissa that hide which one it is */

/* Least squares of what was found over what the twin would change, every number by what it is rounded by. */
struct along {
    double factor, error; /* its standard error */
};

static bool counts(const struct ts_scene *scene, const struct ts_actor *actor, size_t row)
{
    return !scene->aside || actor->apart || actor->rows != scene->taken_count || !scene->aside[row];
}

/* Leaving out one part after the other says how far chance goes, also where a few parts tell nearly everything, and
 * where errors are shared: by a token, whose one factor was rounded, or by a channel, whose weight was. */
static double error_without(const double *products, const double *squares, size_t count, double factor, double all)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double moved = (products[i] - factor * squares[i]) / (all - squares[i]);
        sum += squares[i] > 0 ? moved * moved : 0;
    }
    return sqrt(sum);
}

/* NaN where it cannot be told. sums: twice rows + width. */
static struct along measure(const struct ts_scene *scene, const struct ts_actor *actor, const float *found,
                            const double *expected, const double *twin, double *sums)
{
    const size_t width = actor->width, total = actor->rows * width, parts = actor->rows + width;
    double floor = 0, common = 0, shared = 0, size = 0, product = 0, square = 0;
    struct along along;
    for (size_t i = 0; i < total; i++)
        floor += isfinite(expected[i]) ? expected[i] * expected[i] * SMALL * SMALL / (double)total : 0;
    for (size_t i = 0; i < total; i++)
        if (isfinite(expected[i]) && isfinite(twin[i]) && isfinite(found[i]) && counts(scene, actor, i / width)) {
            double weight = 1 / (expected[i] * expected[i] + floor);
            common += weight * (twin[i] - expected[i]) * expected[i];
            shared += weight * ((double)found[i] - expected[i]) * expected[i];
            size += weight * expected[i] * expected[i];
        }
    for (size_t i = 0; i < 2 * parts; i++)
        sums[i] = 0;
    for (size_t i = 0; i < total; i++) {
        double weight = 1 / (expected[i] * expected[i] + floor), change, error = (double)found[i] - expected[i];
        if (!isfinite(error) || !isfinite(twin[i]) || !counts(scene, actor, i / width))
            continue;
        /* one factor for all is what cutting off makes */
        change = twin[i] - expected[i] - common / size * expected[i];
        error -= shared / size * expected[i];
        product += weight * error * change;
        square += weight * change * change;
        sums[i / width] += weight * error * change;
        sums[actor->rows + i % width] += weight * error * change;
        sums[parts + i / width] += weight * change * change;
        sums[parts + actor->rows + i % width] += weight * change * change;
    }
    along.factor = product / square;
    along.error = fmax(error_without(sums, sums + parts, actor->rows, along.factor, square),
                       error_without(sums + actor->rows, sums + parts + actor->rows, width, along.factor, square));
    return along;
}

/* One side of both: as the operation, and as the twin. */
static bool apply_both(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_operation *twin,
                       const struct ts_actor *actor, bool candidate, double *expected, double *other)
{
    double *inputs[3] = {NULL, NULL, NULL};
    bool good = true;
    for (unsigned k = 0; k < operation->input_count && good; k++) {
        const struct ts_actor *input = ts_operation_input(scene, operation, k);
        inputs[k] = input ? ts_as_doubles(candidate ? input->b : input->a, input->rows * input->width) : NULL;
        good = inputs[k] != NULL;
    }
    if (good) {
        ts_operation_apply(scene, operation, actor, inputs, expected);
        ts_operation_apply(scene, twin, actor, inputs, other);
    }
    for (int k = 0; k < 3; k++)
        free(inputs[k]);
    return good;
}

/* The next twin that is usual; false behind the last. */
static bool next_twin(const struct ts_operation *operation, size_t index, struct ts_operation *twin)
{
    static const double epsilons[] = {0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2};
    *twin = *operation;
    if (operation->kind == TS_OPERATION_NORM && index < sizeof epsilons / sizeof *epsilons) {
        twin->epsilon = epsilons[index];
        return true;
    }
    if (operation->kind != TS_OPERATION_ACTIVATION || index ||
        (operation->activation != TS_ACTIVATION_GELU && operation->activation != TS_ACTIVATION_GELU_TANH))
        return false;
    twin->activation = operation->activation == TS_ACTIVATION_GELU ? TS_ACTIVATION_GELU_TANH : TS_ACTIVATION_GELU;
    return true;
}

static bool is_near(const struct along *along, double factor)
{
    return fabs(along->factor - factor) < OFF && along->error < KNOWN;
}

double ts_operation_match(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                          struct ts_operation sides[2])
{
    const size_t total = actor->rows * actor->width;
    double *room = NULL, matched = 0;
    struct ts_operation twin;
    if ((operation->kind != TS_OPERATION_NORM && operation->kind != TS_OPERATION_ACTIVATION) ||
        actor->rows < LEAST_ROWS || total < LEAST_NUMBERS ||
        !(room = malloc((2 * total + 2 * (actor->rows + actor->width)) * sizeof *room)))
        return 0;
    for (size_t index = 0; !(matched > 0) && next_twin(operation, index, &twin); index++) {
        struct along found, known;
        bool is_twin;
        if ((twin.epsilon == operation->epsilon && twin.activation == operation->activation) ||
            !apply_both(scene, operation, &twin, actor, true, room, room + total))
            continue;
        found = measure(scene, actor, actor->b, room, room + total, room + 2 * total);
        is_twin = is_near(&found, 1);
        /* a coarse reference may have been taken for the twin */
        if ((!is_twin && !(is_near(&found, 0) && actor->bits_a <= COARSE)) ||
            !apply_both(scene, operation, &twin, actor, false, room, room + total))
            continue;
        known = measure(scene, actor, actor->a, room, room + total, room + 2 * total);
        if (!is_near(&known, is_twin ? 0 : 1))
            continue;
        matched = 1 / fmax(fmax(found.error, known.error), 1e-6);
        sides[0] = is_twin ? *operation : twin;
        sides[1] = is_twin ? twin : *operation;
    }
    free(room);
    return matched;
}
