/* Owns experts whose sum alone was captured, with a shared expert in it, and the router's logits: nothing predicts what
 * they make. But weights that are made otherwise change each token's sum by as much as the weights of its experts
 * change, which is known, times what experts make, which is nearly the same in all tokens. So the sizes of the tokens'
 * errors tell how the weights are made. */
#include <math.h>
#include <stdlib.h>

#include "diagnose/experts.h"
#include "diagnose/variant.h"

#define MOST_CHOSEN  8
#define FEWEST_ROWS  12
#define LEAST_SPREAD 0.35 /* in the logarithm: sizes that vary no more tell nothing */
#define MOST_LEFT    0.35 /* of what experts make of a token */
#define MOST_OF_IT   0.8  /* of the variance */
#define AS_GOOD      1.4  /* times the variance that the best one leaves */

/* How the weights of the chosen experts are made. */
enum way { DIVIDED, PLAIN, SIGMOIDS, DIVIDED_SIGMOIDS, EQUAL, REVERSED, FIRST_ALONE, WAYS };

/* What a candidate does that makes them so, where the reference has a softmax whose chosen probabilities are divided by
 * their sum. */
static const char *const deeds[WAYS] = {[PLAIN] =
                                            "does not divide the probabilities of the chosen experts by their sum",
                                        [SIGMOIDS] = "makes weights of sigmoids",
                                        [DIVIDED_SIGMOIDS] = "makes weights of sigmoids",
                                        [EQUAL] = "gives all of them the same weight",
                                        [REVERSED] = "gives each of them the weight of another",
                                        [FIRST_ALONE] = "adds the first expert alone"};

static void weigh(enum way way, const float *logits, size_t experts, size_t chosen, double *out)
{
    const bool sigmoid = way == SIGMOIDS || way == DIVIDED_SIGMOIDS;
    int64_t list[MOST_CHOSEN];
    ts_choose_experts(logits, experts, chosen, list);
    ts_weigh_experts(&(struct ts_gate){sigmoid, way != PLAIN && way != SIGMOIDS}, logits, experts, list, chosen, out);
    for (size_t i = 0; i < chosen && way == EQUAL; i++)
        out[i] = 1 / (double)chosen;
    for (size_t i = 0; i < chosen / 2 && way == REVERSED; i++) {
        const double first = out[i];
        out[i] = out[chosen - 1 - i];
        out[chosen - 1 - i] = first;
    }
    for (size_t i = 1; i < chosen && way == FIRST_ALONE; i++)
        out[i] = 0;
}

/* Variance of the logarithms of the tokens' errors over what these weights change; of the errors alone without. */
static double variance(const struct ts_case *the_case, const struct ts_actor *logits, enum way way, size_t chosen,
                       const double *costs, size_t *rows)
{
    double sum = 0, square = 0, right[MOST_CHOSEN], other[MOST_CHOSEN];
    *rows = 0;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        const float *at = logits->a + row * logits->width;
        double change = 0, value;
        if (!(costs[row] > 0) || !isfinite(costs[row]) || (chosen && ts_router_flips(logits, row, chosen)))
            continue;
        if (chosen) {
            weigh(DIVIDED, at, logits->width, chosen, right);
            weigh(way, at, logits->width, chosen, other);
        }
        for (size_t i = 0; i < chosen; i++)
            change += (other[i] - right[i]) * (other[i] - right[i]);
        if (chosen && change < 1e-12)
            return INFINITY;
        value = (log(costs[row]) - (chosen ? log(change) : 0)) / 2;
        sum += value;
        square += value * value;
        ++*rows;
    }
    return *rows ? square / (double)*rows - sum / (double)*rows * (sum / (double)*rows) : INFINITY;
}

void ts_propose_experts_by_size(struct ts_case *the_case, const struct ts_actor *logits)
{
    double *costs = malloc(the_case->actor->rows * sizeof *costs), all, least = INFINITY, found[WAYS], following = 0;
    size_t chosen = 0, rows = 0, told = 0, count = 0;
    enum way best = DIVIDED;
    const char *text = "";
    if (!costs)
        return;
    for (size_t row = 0; row < the_case->actor->rows; row++)
        costs[row] = fmax(0, ts_rows_cost(the_case, the_case->expected, row, 1) -
                                 the_case->noise / (double)the_case->actor->rows);
    all = variance(the_case, logits, DIVIDED, 0, costs, &rows);
    for (size_t k = 2; k <= MOST_CHOSEN && 2 * k <= logits->width && all > LEAST_SPREAD * LEAST_SPREAD; k++)
        for (int way = PLAIN; way < WAYS; way++) {
            const double left = variance(the_case, logits, (enum way)way, k, costs, &rows);
            if (rows >= FEWEST_ROWS && left < least) {
                least = left;
                best = (enum way)way;
                chosen = k;
                told = rows;
            }
        }
    if (!chosen || least > MOST_LEFT * MOST_LEFT || least > (1 - MOST_OF_IT) * all) {
        free(costs);
        return;
    }
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->found[i]) && isfinite(the_case->expected[i]))
            following += (the_case->found[i] - the_case->expected[i]) * the_case->expected[i];
    for (int way = PLAIN; way < WAYS; way++)
        found[way] = variance(the_case, logits, (enum way)way, chosen, costs, &rows);
    free(costs);
    if (best == PLAIN && following > 0) /* more than the reference, which was less than one in sum */
        text = "divides the probabilities of the chosen experts by their sum, where the reference does not";
    else
        for (int way = PLAIN; way < WAYS; way++) {
            if (!(found[way] <= AS_GOOD * least) || (way == DIVIDED_SIGMOIDS && found[SIGMOIDS] <= AS_GOOD * least))
                continue;
            text = ts_case_text(the_case, "%s%s%s", text, count ? ", or " : "", deeds[way]);
            count++;
        }
    ts_formula_next(the_case, &(struct ts_formula){.told_by = told});
    ts_propose_plain(the_case, "router-gate", (count > 1 ? 0.7 : 0.8) * (1 - least / all),
                     "how the router's weights are made and applied: norm_topk_prob, scoring_func; capture them to be "
                     "sure",
                     "the two sides weigh the experts that %s chooses differently: the tokens' errors have the sizes "
                     "(%.0f %% of their variance, with %zu experts for a token) that they have where the candidate %s",
                     ts_case_name(the_case, logits), 100 * (1 - least / all), chosen, text);
}
