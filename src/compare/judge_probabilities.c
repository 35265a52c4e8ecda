/* Owns probabilities whose scores were not captured: they are judged as the scores they came from.
 *
 * A softmax makes of an error d of a score a relative error d of its probability: rounding is small beside the scores,
 * whose size the probabilities do not have. Where scores are large, honest errors of probabilities are as well, in the
 * tokens and keys that are nearly tied. The logarithm of a probability is its score but for what all keys of a row
 * share, and there errors are as even as in any other product. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/judge_state.h"

/* Rounded to sixteen bits, less than this has lost its digits; where a row has no such large share, less than a part of
 * its largest. What both sides have below it is taken for equal. */
#define LEAST_SHARE   0x1p-13
#define LEAST_OF_MOST 0x1p-4
#define LEAST_FREE    4 /* numbers of a token that are free to err: of fewer, chance makes any error */
/* Tokens with so many before them tell keys that are near from others; so many steps from key to key are counted. Those
 * of near keys have 0.14 of the energy of others in the least even of honest runs, and half of it in most. */
#define LEAST_DISTANCE 4
#define LEAST_STEPS    24
#define NEAR_KEYS      0.08
/* How far the sum of a row may be from 1: numbers of eight bits, rounded alike. */
#define SUM_OFF 0.02

/* A row of probabilities, or one that was masked as a whole. */
static bool is_whole(const float *lane, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(lane[i] >= 0))
            return false;
        sum += (double)lane[i];
    }
    return sum == 0 || fabs(sum - 1) < SUM_OFF;
}

static double least_share(const float *lane, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, (double)lane[i]);
    return fmin(LEAST_SHARE, LEAST_OF_MOST * most);
}

/* Scores of one row, about their mean. Keys that neither side gives a share are 0 in both. Rows that see few keys count
 * as much as others. The numbers of it that are free: one is what the others leave. */
static size_t take_logarithms(const float *a, const float *b, size_t count, float *out_a, float *out_b)
{
    const double least = least_share(a, count);
    double mean_a = 0, mean_b = 0, scale;
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (!((double)fmaxf(a[i], b[i]) > least))
            continue;
        mean_a += log(fmax((double)a[i], least));
        mean_b += log(fmax((double)b[i], least));
        used++;
    }
    scale = used > 1 ? sqrt((double)count / (double)(used - 1)) : 0;
    for (size_t i = 0; i < count; i++) {
        const bool known = used > 1 && (double)fmaxf(a[i], b[i]) > least;
        out_a[i] = known ? (float)(scale * (log(fmax((double)a[i], least)) - mean_a / (double)used)) : 0;
        out_b[i] = known ? (float)(scale * (log(fmax((double)b[i], least)) - mean_b / (double)used)) : 0;
    }
    return used > 1 ? used - 1 : 0;
}

/* One token, with all its heads. */
static void take_token(const struct ts_actor *actor, size_t row, float *out_a, float *out_b)
{
    size_t free_numbers = 0;
    for (size_t at = row * actor->width; at < (row + 1) * actor->width; at += actor->inner)
        free_numbers += take_logarithms(actor->a + at, actor->b + at, actor->inner, out_a + at, out_b + at);
    for (size_t at = row * actor->width; at < (row + 1) * actor->width && free_numbers < LEAST_FREE; at++)
        out_a[at] = out_b[at] = 0;
}

/* The error of one score less that of the next, squared; NaN where one of them is not known. */
static double step(const float *a, const float *b, size_t key)
{
    double d[2];
    for (size_t i = 0; i < 2; i++) {
        d[i] = (double)b[key + i] - (double)a[key + i];
        if (a[key + i] == 0 && b[key + i] == 0)
            return (double)NAN;
    }
    return (d[1] - d[0]) * (d[1] - d[0]);
}

bool ts_judge_errs_by_distance(const struct ts_scene *scene, const struct ts_actor *scores)
{
    double near = 0, far = 0;
    size_t near_count = 0, far_count = 0;
    if (scores->inner != scores->sequence || scores->rows != scene->taken_count)
        return false;
    for (size_t row = 0; row < scores->rows; row++) {
        const size_t own = (size_t)(scene->taken[row] % scores->sequence);
        for (size_t at = row * scores->width; at < (row + 1) * scores->width; at += scores->inner) {
            const float *a = scores->a + at, *b = scores->b + at;
            const double here = own < LEAST_DISTANCE || scene->aside[row] ? (double)NAN : step(a, b, own - 1);
            if (!isfinite(here))
                continue;
            near += here;
            near_count++;
            for (size_t key = 0; key + 1 <= own / 2; key++) {
                const double there = step(a, b, key);
                far += isfinite(there) ? there : 0;
                far_count += isfinite(there);
            }
        }
    }
    return near_count >= LEAST_STEPS && far_count >= LEAST_STEPS &&
           near / (double)near_count < NEAR_KEYS * far / (double)far_count;
}

/* Where scores hardly differ, what is rounded is the probabilities, whose error is one of their own size: the logarithm
 * of each counts as 1 more. */
static double relative_error(const struct ts_scene *scene, const struct ts_actor *scores)
{
    double error = 0, size = 0;
    for (size_t row = 0; row < scores->rows; row++)
        for (size_t i = row * scores->width; i < (row + 1) * scores->width && !scene->aside[row]; i++) {
            const double a = (double)scores->a[i], b = (double)scores->b[i];
            error += (b - a) * (b - a);
            size += a * a + (a != 0 || b != 0);
        }
    return size > 0 ? sqrt(error / size) : 0;
}

/* [tokens, keys], of heads, or by its name. */
static bool may_be_probabilities(const struct ts_judge *state, const struct ts_actor *actor)
{
    const char *name = state->pairs[actor->pair].name;
    return actor->inner > 1 && actor->rows > 1 && !actor->apart && !ts_judge_is_router(name) &&
           (actor->heads > 1 || strstr(name, "prob") || strstr(name, "attn_weights") || strstr(name, "softmax"));
}

float *ts_judge_as_scores(const struct ts_judge *state, const struct ts_scene *scene, const struct ts_actor *actor,
                          struct ts_actor *copy)
{
    const size_t total = actor->rows * actor->width, lanes = actor->inner ? total / actor->inner : 0;
    float *both;
    if (!may_be_probabilities(state, actor))
        return NULL;
    for (size_t lane = 0; lane < lanes; lane++)
        if (!is_whole(actor->a + lane * actor->inner, actor->inner) ||
            !is_whole(actor->b + lane * actor->inner, actor->inner))
            return NULL;
    both = malloc((2 * total + 1) * sizeof *both);
    for (size_t row = 0; both && row < actor->rows; row++)
        take_token(actor, row, both, both + total);
    if (both) {
        copy->a = both;
        copy->b = both + total;
        copy->error = relative_error(scene, copy);
    }
    return both;
}
