/* Owns the softmax over the queries of each key, in place of the keys of each query. */
#include <stdlib.h>

#include "diagnose/attention_long.h"
#include "diagnose/formula.h"

#define SCORES_READ ((double)(1 << 26)) /* numbers of both tensors */
#define ONE_NEARLY  0.01                /* what rows of probabilities may sum to beside one */

/* Sums of exponentials that grow: the largest exponent so far is taken out. */
struct growing {
    double largest, sum;
};

static void grow(struct growing *growing, double exponent)
{
    if (exponent > growing->largest) {
        growing->sum = growing->sum * exp(growing->largest - exponent) + 1;
        growing->largest = exponent;
    } else {
        growing->sum += exp(exponent - growing->largest);
    }
}

/* Rows that sum to one over the keys are no softmax over anything else. */
static bool sums_over_keys(const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t ones = 0, lanes = the_case->total / actor->inner;
    for (size_t lane = 0; lane < lanes; lane++) {
        double sum = 0;
        for (size_t i = 0; i < actor->inner; i++)
            sum += the_case->found[lane * actor->inner + i];
        ones += fabs(sum - 1) < ONE_NEARLY;
    }
    return ones * 2 > lanes;
}

/* The table: the largest score of each key, then the sum of exponentials over its queries. */
static bool predict_over_queries(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor,
                          *scores = ts_scene_actor(the_case->scene, the_case->operation.inputs[0]);
    size_t width = actor->width;
    if (!scores || scores->rows != actor->rows || scores->width != width || formula->table_count != 2 * width)
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double sum = formula->table[width + i % width];
        out[i] = actor->a[i] > 0 && sum > 0 ? exp((double)scores->b[i] - formula->table[i % width]) / sum : 0;
    }
    return true;
}

bool ts_softmax_over_queries(struct ts_case *the_case, const double *scores, double *out)
{
    const struct ts_actor *actor = the_case->actor;
    const struct ts_scene *scene = the_case->scene;
    uint64_t tokens = ts_scene_sequence(scene), first = ts_scene_first(scene);
    size_t from = the_case->operation.inputs[0], width = actor->width;
    struct growing *sums = NULL;
    float *row = NULL;
    double *table = NULL;
    struct ts_error ignored;
    bool good = (double)tokens * (double)width * 2 <= SCORES_READ && ts_case_wants(the_case, "softmax") &&
                !sums_over_keys(the_case);
    if (good) {
        sums = malloc(width * sizeof *sums);
        row = malloc(2 * width * sizeof *row);
        good = sums && row;
    }
    for (size_t i = 0; i < width && good; i++)
        sums[i] = (struct growing){-INFINITY, 0};
    for (uint64_t token = 0; token < tokens && good; token++) {
        good = ts_scene_read(scene, from, true, first + token, 1, 0, width, row, &ignored) == TS_OK &&
               ts_scene_read(scene, actor->pair, false, first + token, 1, 0, width, row + width, &ignored) == TS_OK;
        for (size_t i = 0; i < width && good; i++)
            if (row[width + i] > 0 && isfinite(row[i])) /* visible in the reference */
                grow(&sums[i], (double)row[i]);
    }
    for (size_t i = 0; i < actor->rows * width && good; i++) {
        const struct growing *sum = &sums[i % width];
        out[i] = actor->a[i] > 0 && sum->sum > 0 ? exp(scores[i] - sum->largest) / sum->sum : 0;
    }
    if (good && (table = malloc(2 * width * sizeof *table))) {
        for (size_t i = 0; i < width; i++) {
            table[i] = sums[i].largest;
            table[width + i] = sums[i].sum;
        }
        ts_formula_next(
            the_case, &(struct ts_formula){.predict = predict_over_queries, .table = table, .table_count = 2 * width});
    }
    free(table);
    free(sums);
    free(row);
    return good;
}

/* The same where each sequence has its own sums, which are taken from all of its queries. */
static bool predict_over_all(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor, *all = ts_scene_all(the_case->scene, actor->pair);
    const struct ts_actor *scores = ts_scene_all(the_case->scene, the_case->operation.inputs[0]);
    const struct ts_actor *own = ts_scene_actor(the_case->scene, the_case->operation.inputs[0]);
    size_t width = actor->width;
    struct growing *sums;
    (void)formula;
    if (!all || !scores || !own || scores->rows != all->rows || scores->width != width || own->rows != actor->rows ||
        !(sums = malloc(width * sizeof *sums)))
        return false;
    for (size_t i = 0; i < width; i++)
        sums[i] = (struct growing){-INFINITY, 0};
    for (size_t i = 0; i < all->rows * width; i++)
        if (all->a[i] > 0 && isfinite(scores->b[i])) /* visible in the reference */
            grow(&sums[i % width], (double)scores->b[i]);
    for (size_t i = 0; i < the_case->total; i++) {
        const struct growing *sum = &sums[i % width];
        out[i] = actor->a[i] > 0 && sum->sum > 0 ? exp((double)own->b[i] - sum->largest) / sum->sum : 0;
    }
    free(sums);
    return true;
}

void ts_give_over_queries(struct ts_case *the_case)
{
    if (the_case->operation.kind == TS_OPERATION_SOFTMAX && the_case->operation.input_count == 1)
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_over_all});
}
