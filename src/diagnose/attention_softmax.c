/* Owns the softmax over the queries of each key, in place of the keys of each query. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/pool.h"
#include "base/progress.h"
#include "diagnose/attention_long.h"
#include "diagnose/formula.h"

#define SCORES_READ 0x1p31 /* numbers of both tensors: some seconds on two processors */
#define ONE_NEARLY  0.01   /* what rows of probabilities may sum to beside one */
#define WORTHWHILE  0.5    /* share of the error that sums of any size must explain, before they are taken */
#define COLUMNS     1024   /* keys whose sums are taken together, */
#define QUERIES     32     /* and how many queries are read for them at a time */

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

/* Sums over all queries of a sequence: a run of keys is one task, so that each key's are added up in order. */
struct over_queries {
    const struct ts_case *the_case;
    struct growing *sums; /* [width] */
    atomic_bool failed;
};

static void add_columns(void *context, uint64_t index, unsigned worker)
{
    struct over_queries *over = context;
    const struct ts_case *the_case = over->the_case;
    const struct ts_scene *scene = the_case->scene;
    uint64_t tokens = ts_scene_sequence(scene), first = ts_scene_first(scene);
    size_t column = (size_t)index * COLUMNS, left = the_case->actor->width - column;
    size_t count = left < COLUMNS ? left : COLUMNS, queries;
    float *scores = malloc(2 * QUERIES * COLUMNS * sizeof *scores), *own = scores + QUERIES * COLUMNS;
    struct ts_error ignored;
    bool good = scores;
    (void)worker;
    for (uint64_t token = 0; token < tokens && good; token += queries) {
        queries = tokens - token < QUERIES ? (size_t)(tokens - token) : QUERIES;
        good = !atomic_load(&ts_cancelled) &&
               ts_scene_read(scene, the_case->operation.inputs[0], true, first + token, queries, column, count, scores,
                             &ignored) == TS_OK &&
               ts_scene_read(scene, the_case->actor->pair, false, first + token, queries, column, count, own,
                             &ignored) == TS_OK;
        for (size_t i = 0; i < queries * count && good; i++)
            if (own[i] > 0 && isfinite(scores[i])) /* visible in the reference */
                grow(&over->sums[column + i % count], (double)scores[i]);
    }
    free(scores);
    if (!good)
        atomic_store(&over->failed, true);
}

/* Whether it can be so: with a factor for each key that fits the rows at hand best, there is no better sum. */
static bool may_be_over_queries(struct ts_case *the_case, const double *scores, double *out)
{
    const struct ts_actor *actor = the_case->actor;
    for (size_t i = 0; i < actor->width; i++) {
        double largest = -INFINITY, ee = 0, ef = 0;
        for (size_t at = i; at < the_case->total; at += actor->width)
            if (actor->a[at] > 0 && scores[at] > largest)
                largest = scores[at];
        for (size_t at = i; at < the_case->total; at += actor->width) {
            out[at] = actor->a[at] > 0 && isfinite(largest) ? exp(scores[at] - largest) : 0;
            ee += out[at] * out[at];
            ef += out[at] * the_case->found[at];
        }
        for (size_t at = i; at < the_case->total; at += actor->width)
            out[at] *= ee > 0 ? ef / ee : 0;
    }
    return ts_explained(the_case, out) > WORTHWHILE;
}

static bool sum_over_queries(struct ts_case *the_case, struct growing *sums)
{
    struct over_queries over = {.the_case = the_case, .sums = sums};
    const struct ts_pair *pairs = the_case->scene->pairs;
    const struct ts_view *views[2] = {&pairs[the_case->operation.inputs[0]].b, &pairs[the_case->actor->pair].a};
    struct ts_pool *pool = ts_pool_new(0);
    for (size_t i = 0; i < the_case->actor->width; i++)
        sums[i] = (struct growing){-INFINITY, 0};
    if (pool)
        ts_pool_run(pool, (the_case->actor->width + COLUMNS - 1) / COLUMNS, add_columns, &over);
    for (int k = 0; k < 2; k++)
        ts_view_forget(views[k], 0, views[k]->count);
    ts_pool_free(pool);
    return pool && !atomic_load(&over.failed);
}

bool ts_softmax_over_queries(struct ts_case *the_case, const double *scores, double *out)
{
    const struct ts_actor *actor = the_case->actor;
    size_t width = actor->width;
    struct growing *sums = NULL;
    double *table = NULL;
    bool good = (double)ts_scene_sequence(the_case->scene) * (double)width * 2 <= SCORES_READ &&
                ts_case_wants(the_case, "softmax") && !sums_over_keys(the_case) &&
                may_be_over_queries(the_case, scores, out) && (sums = malloc(width * sizeof *sums)) &&
                sum_over_queries(the_case, sums);
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
