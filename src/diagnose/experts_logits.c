/* Owns what router logits alone tell, where neither the chosen experts nor their weights were captured, as with hooks
 * on modules: weights that are not divided by their sum, and tokens that went elsewhere on a near tie. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "compare/gathered.h"
#include "diagnose/experts.h"
#include "diagnose/variant.h"
#include "tensor/layer.h"

#define NEARLY_EQUAL 0.1 /* relative error of logits that agree */
#define CALM_ROW     4   /* times the median row's error energy */
#define MOST_OF_IT   0.9 /* of the error, in the tokens that flipped */
#define MOST_LEFT    0.03
#define ROUNDINGS    64.0 /* in energy */

bool ts_router_flips(const struct ts_actor *logits, size_t row, size_t chosen)
{
    const float *a = logits->a + row * logits->width, *b = logits->b + row * logits->width;
    int64_t right[TS_MOST_CHOSEN], found[TS_MOST_CHOSEN];
    double moved = 0, size = 0;
    for (size_t i = 0; i < logits->width; i++) {
        moved += ((double)b[i] - (double)a[i]) * ((double)b[i] - (double)a[i]);
        size += (double)a[i] * (double)a[i];
    }
    if (!(moved < NEARLY_EQUAL * NEARLY_EQUAL * size))
        return false;
    ts_choose_experts(a, logits->width, chosen, right);
    ts_choose_experts(b, logits->width, chosen, found);
    return !ts_are_same_experts(right, found, chosen);
}

/* How the weights of the chosen experts add up. */
struct summed {
    size_t chosen;
    bool sigmoid, divided; /* the candidate divides by it, and the reference does not */
};

static double sum_of_chosen(const float *logits, size_t experts, const struct summed *summed)
{
    double weights[TS_MOST_CHOSEN], sum = 0;
    int64_t chosen[TS_MOST_CHOSEN];
    ts_choose_experts(logits, experts, summed->chosen, chosen);
    ts_weigh_experts(&(struct ts_gate){.sigmoid = summed->sigmoid}, logits, experts, chosen, summed->chosen, weights);
    for (size_t i = 0; i < summed->chosen; i++)
        sum += weights[i];
    return sum;
}

static bool predict_summed(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct summed *summed = formula->numbers;
    const struct ts_actor *actors[3] = {NULL};
    size_t width = the_case->actor->width;
    for (size_t i = 0; i < formula->pair_count; i++) {
        actors[i] = ts_scene_actor(the_case->scene, formula->pairs[i]);
        if (!actors[i] || actors[i]->rows != the_case->actor->rows || (i == 1 && actors[i]->width != width))
            return false;
    }
    if (actors[0]->width <= summed->chosen)
        return false;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        const struct ts_actor *logits = actors[0], *shared = actors[1], *gate = actors[2];
        double sum = sum_of_chosen(logits->b + row * logits->width, logits->width, summed);
        const double factor = summed->divided ? 1 / sum : sum;
        const double part_a = ts_shared_part(gate, false, row), part_b = ts_shared_part(gate, true, row);
        bool elsewhere = ts_router_flips(logits, row, summed->chosen); /* and no factor of the reference's */
        for (size_t i = row * width; i < (row + 1) * width; i++)
            out[i] = elsewhere ? the_case->found[i]
                     : shared  ? (the_case->expected[i] - part_a * (double)shared->a[i]) * factor +
                                    part_b * (double)shared->b[i]
                              : the_case->expected[i] * factor;
    }
    return true;
}

/* Share of the error that one factor for all tokens explains, of what there is beside a shared expert. */
static double explained_by_one(const struct ts_case *the_case, const struct ts_router *router)
{
    double *prediction = malloc(the_case->total * sizeof *prediction + 1), share = 0;
    if (prediction && isfinite(ts_fit_routed(the_case, router, prediction)))
        share = ts_explained(the_case, prediction);
    free(prediction);
    return share;
}

/* Share of the error that is in tokens which went elsewhere. */
static double explained_by_flips(const struct ts_case *the_case, const struct ts_actor *logits, size_t chosen)
{
    double all = 0, inside = 0;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        double cost = ts_rows_cost(the_case, the_case->expected, row, 1);
        all += cost;
        inside += ts_router_flips(logits, row, chosen) ? cost : 0;
    }
    return all > 0 ? inside / all : 0;
}

/* A factor is precise: what it leaves of the error is rounding, of which more than one may have come together. */
static bool is_precise(const struct ts_case *the_case, double explained)
{
    return (1 - explained) * the_case->error <= fmax(MOST_LEFT * the_case->error, ROUNDINGS * the_case->noise);
}

bool ts_propose_summed_experts(struct ts_case *the_case, const struct ts_router *all)
{
    const struct ts_router router = ts_router_with_terms(the_case, all);
    const struct ts_actor *logits = router.logits;
    double *prediction = ts_case_scratch(the_case), most = fmax(0.5, explained_by_one(the_case, &router) + 0.02);
    struct summed best = {0};
    struct ts_formula formula = {
        .predict = predict_summed, .size = sizeof best, .pairs = {logits->pair}, .pair_count = 1, .reference = true};
    if (router.shared)
        formula.pairs[formula.pair_count++] = router.shared->pair;
    if (router.shared && router.shared_gate)
        formula.pairs[formula.pair_count++] = router.shared_gate->pair;
    for (unsigned at = 0; at < 4 * TS_GUESSED_CHOSEN && prediction; at++) {
        struct summed one = {at / 4 + 1, at % 2, at / 2 % 2};
        double share;
        formula.numbers = &one;
        if (one.chosen * 2 > logits->width || !predict_summed(the_case, &formula, prediction))
            break;
        share = ts_explained(the_case, prediction);
        if (share > most && share > 0.5 + 0.5 * explained_by_flips(the_case, logits, one.chosen) &&
            is_precise(the_case, share)) {
            most = share;
            best = one;
        }
    }
    formula.numbers = &best;
    if (best.chosen && predict_summed(the_case, &formula, prediction)) {
        ts_formula_next(the_case, &formula);
        ts_propose(the_case, "router-gate", prediction, 1, "norm_topk_prob",
                   "%seach token is scaled by %sthe sum of the %zu largest %s of %s: the candidate %s",
                   router.shared
                       ? ts_case_text(the_case, "in what is added to %s%s: ", ts_case_name(the_case, router.shared),
                                      router.shared_gate ? " times the sigmoid of its gate" : "")
                       : "",
                   best.divided ? "one over " : "", best.chosen, best.sigmoid ? "sigmoids" : "softmax probabilities",
                   ts_case_name(the_case, logits),
                   best.divided ? "divides the weights of the chosen experts by their sum, the reference does not"
                                : "does not divide the weights of the chosen experts by their sum, the reference does");
        return true;
    }
    return false;
}

void ts_propose_by_logits(struct ts_case *the_case, const struct ts_router *all, bool inside)
{
    if (ts_propose_summed_experts(the_case, all))
        return;
    for (size_t chosen = 1; chosen <= TS_GUESSED_CHOSEN && chosen * 2 <= all->logits->width; chosen++) {
        struct ts_router router = {.logits = all->logits, .chosen = chosen};
        if (ts_propose_some_experts(the_case, &router))
            return;
    }
    if (!inside)
        ts_propose_ways(the_case, all);
}

/* A gate that goes through an activation is called so too, as ffn_gate is; but it is no narrower than what it is made
 * of, or than the other half of the product, and a router is. */
bool ts_is_router(const struct ts_case *the_case, const struct ts_actor *actor)
{
    const char *name = ts_case_name(the_case, actor);
    const struct ts_pair *pair = &the_case->scene->pairs[actor->pair];
    return strstr(name, "router") ||
           (strstr(name, "gate") && !strstr(name, "proj") && !(actor->pair && pair->a.count > pair[-1].a.count / 2));
}

/* What came into the case's layer, where that is behind the layer of these logits: the first tensor there. */
static const struct ts_actor *behind_layer(struct ts_case *the_case, const struct ts_actor *logits)
{
    uint64_t layer, other;
    if (!ts_layer_of(ts_case_name(the_case, logits), &layer))
        return NULL;
    for (size_t pair = logits->pair + 1; pair < the_case->actor->pair; pair++) {
        const struct ts_actor *actor = ts_scene_actor(the_case->scene, pair);
        if (actor && actor->rows == logits->rows && ts_layer_of(ts_case_name(the_case, actor), &other) && other > layer)
            return actor;
    }
    return NULL;
}

/* A token that took other experts errs in all that follows: one that errs there as most do went the same way. The error
 * of every row, in `errors`, and up to which it is calm; behind them there is room for as many again. */
static double calm_error(const struct ts_actor *actor, double *errors)
{
    for (size_t i = 0; i < actor->rows; i++) {
        double error = 0, size = 0;
        for (size_t k = i * actor->width; k < (i + 1) * actor->width; k++) {
            double d = (double)actor->b[k] - (double)actor->a[k];
            error += isfinite(d) ? d * d : 0;
            size += isfinite(d) ? (double)actor->a[k] * (double)actor->a[k] : 0;
        }
        errors[i] = errors[actor->rows + i] = size > 0 ? error / size : 0;
    }
    return CALM_ROW * ts_nth(errors + actor->rows, actor->rows, actor->rows / 2);
}

/* Marks the rows that flip before the case's tensor; how many they are. */
static size_t mark_flips(struct ts_case *the_case, size_t chosen, bool *marked, const struct ts_actor **first)
{
    const struct ts_actor *actor = the_case->actor;
    size_t count = 0;
    double *errors = malloc(2 * actor->rows * sizeof *errors), calm = 0;
    memset(marked, 0, actor->rows * sizeof *marked);
    for (size_t back = 1; errors && back < TS_SCENE_WINDOW && back <= actor->pair; back++) {
        const struct ts_actor *logits = ts_scene_actor(the_case->scene, actor->pair - back), *behind;
        if (!logits || logits->rows != actor->rows || logits->heads != 1 || logits->width <= chosen + 1 ||
            logits->width >= TS_MOST_EXPERTS || !ts_is_router(the_case, logits))
            continue;
        behind = behind_layer(the_case, logits);
        if (behind)
            calm = calm_error(behind, errors);
        for (size_t row = 0; row < actor->rows; row++)
            if (!marked[row] && ts_router_flips(logits, row, chosen) && !(behind && errors[row] <= calm)) {
                marked[row] = true;
                *first = logits;
                count++;
            }
    }
    free(errors);
    return count;
}

/* What each row errs by beyond what rows do that are as wrong as most; the sum of it, 0 where that is not most of it.
 */
static double outstanding(const struct ts_case *the_case, double *costs, double *of_all)
{
    size_t rows = the_case->actor->rows;
    double *sorted = malloc(rows * sizeof *sorted), usual, all = 0, whole = 0;
    *of_all = 0;
    for (size_t row = 0; row < rows && sorted; row++) {
        sorted[row] = costs[row] = ts_rows_cost(the_case, the_case->expected, row, 1);
        whole += costs[row];
    }
    if (!sorted)
        return 0;
    usual = 4 * ts_nth(sorted, rows, rows / 2);
    for (size_t row = 0; row < rows; row++) {
        costs[row] = fmax(costs[row] - usual, 0);
        all += costs[row];
    }
    free(sorted);
    *of_all = whole > 0 ? all / whole : 0;
    return *of_all > 0.5 ? all : 0;
}

void ts_propose_unseen_routing(struct ts_case *the_case)
{
    size_t rows = the_case->actor->rows, said = 0, flipped = 0;
    bool *marked = calloc(rows, sizeof *marked);
    double *costs = calloc(rows, sizeof *costs), share = 0, of_all = 0;
    const double all = costs ? outstanding(the_case, costs, &of_all) : 0;
    const struct ts_actor *logits = NULL;
    char tokens[160] = "";
    for (size_t chosen = 1; chosen <= TS_GUESSED_CHOSEN && marked && all > 0 && share < MOST_OF_IT; chosen++) {
        flipped = mark_flips(the_case, chosen, marked, &logits);
        share = 0;
        for (size_t row = 0; row < rows && flipped && flipped * 4 <= rows; row++)
            share += marked[row] ? costs[row] / all : 0;
    }
    for (size_t row = 0; row < rows && share >= MOST_OF_IT; row++)
        if (marked[row] && said < sizeof tokens - 32)
            said += (size_t)snprintf(tokens + said, sizeof tokens - said, "%s%" PRIu64, said ? ", " : "",
                                     ts_case_row(the_case, row));
    if (share >= MOST_OF_IT)
        ts_propose_plain(the_case, "routing", 0.98 * share * of_all,
                         "nothing, if only these tokens differ: near ties fall either way; capture the chosen experts "
                         "to have them set aside",
                         "%.0f %% of the error is beyond what most tokens err by and in %zu token%s (%s) whose top "
                         "scores in %s or an earlier router are so nearly tied that the two runs choose different "
                         "experts",
                         100 * share * of_all, flipped, flipped == 1 ? "" : "s", tokens,
                         ts_case_name(the_case, logits));
    free(marked);
    free(costs);
}
