/* Owns what is said where the router agrees and the output of its experts does not: one weight that is not used, the
 * gate of a shared expert, and single experts that are wrong. How several are mixed is asked in experts_mixing.c. */
#include "base/ordered.h"
#include "diagnose/experts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"

#define WORTHWHILE 0.3
#define WRONG      30.0  /* times noise, in energy */
#define CALM       12.0  /* times what the calmest quarter of the rows errs by */
#define FEW        0.1   /* tokens that do not fit: one may be routed elsewhere, or its expert be nearly right */
#define HAS_A_SAY  0.25  /* of the largest weight */
#define CLEARED    65536 /* tokens that are looked at for their experts alone */

static bool predict_single(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *weights = ts_scene_actor(the_case->scene, formula->pairs[0]);
    bool twice = *(const int *)formula->numbers;
    if (!weights || weights->rows != the_case->actor->rows || weights->width != 1)
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double weight = (double)weights->b[i / the_case->actor->width];
        out[i] = the_case->expected[i] * (twice ? weight : weight > 0 ? 1 / weight : 0);
    }
    return true;
}

/* What may become of a shared expert's gate instead of a sigmoid. */
enum { UNGATED, NO_SIGMOID, SILU, OF_MINUS, LEFT_OUT, TWICE, GATINGS };

static bool predict_shared_gate(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *shared = ts_scene_actor(the_case->scene, formula->pairs[0]),
                          *gate = ts_scene_actor(the_case->scene, formula->pairs[1]);
    const int gating = *(const int *)formula->numbers;
    const size_t width = the_case->actor->width;
    if (!shared || !gate || shared->rows * shared->width != the_case->total || gate->rows != the_case->actor->rows ||
        gate->width != 1)
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        const double g = (double)gate->b[i / width], own = ts_shared_part(gate, true, i / width);
        const double other = gating == UNGATED      ? 1
                             : gating == NO_SIGMOID ? g
                             : gating == SILU       ? g * own
                             : gating == OF_MINUS   ? 1 - own
                             : gating == TWICE      ? 2 * own
                                                    : 0;
        out[i] = the_case->expected[i] + (other - own) * (double)shared->b[i];
    }
    return true;
}

/* The gate of a shared expert, which is a number per token: where both were captured it can be said what is done with
 * it, in the gated expert itself and in the sum that holds it. */
void ts_propose_shared_gate(struct ts_case *the_case, const struct ts_router *all)
{
    static const int gatings[GATINGS] = {UNGATED, NO_SIGMOID, SILU, OF_MINUS, LEFT_OUT, TWICE};
    static const char *const texts[GATINGS] = {
        [UNGATED] = "the candidate does not apply the gate of the shared expert: %s counts in full",
        [NO_SIGMOID] = "the candidate multiplies the shared expert %s with its gate as it is, without the sigmoid",
        [SILU] = "the candidate multiplies the shared expert %s with silu(gate), the reference with sigmoid(gate)",
        [OF_MINUS] = "the candidate multiplies the shared expert %s with 1 - sigmoid(gate)",
        [LEFT_OUT] = "the difference is minus the sigmoid of its gate times %s: the shared expert is left out",
        [TWICE] = "the candidate adds the sigmoid of its gate times %s twice: the shared expert counts double"};
    static const char *const ids[GATINGS] = {[LEFT_OUT] = "term-missing", [TWICE] = "term-extra"};
    const struct ts_router known = ts_router_with_terms(the_case, all);
    double *out = ts_case_scratch(the_case);
    struct ts_formula formula = {.predict = predict_shared_gate, .size = sizeof *gatings, .pair_count = 2};
    const int *best;
    if (!out || !known.shared || !known.shared_gate)
        return;
    formula.pairs[0] = known.shared->pair;
    formula.pairs[1] = known.shared_gate->pair;
    best = ts_formula_best(the_case, &formula, gatings, GATINGS, WORTHWHILE, out);
    if (best) {
        ts_formula_next(the_case, &formula);
        ts_propose(the_case, ids[*best] ? ids[*best] : "router-gate", out, 0,
                   "the shared expert and its gate: that it goes through a sigmoid, once, and is added once",
                   texts[*best], ts_case_name(the_case, known.shared));
    }
}

double ts_fit_routed(const struct ts_case *the_case, const struct ts_router *router, double *out)
{
    const struct ts_actor *shared = router->shared, *gate = router->shared_gate;
    const size_t width = the_case->actor->width;
    double dot = 0, size = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < the_case->total; i++) {
            const double a = shared ? ts_shared_part(gate, false, i / width) * (double)shared->a[i] : 0;
            const double b = shared ? ts_shared_part(gate, true, i / width) * (double)shared->b[i] : 0;
            const double expected = the_case->expected[i] - a, found = the_case->found[i] - b;
            if (pass)
                out[i] = dot / size * expected + b;
            else if (isfinite(expected) && isfinite(found)) {
                dot += expected * found;
                size += expected * expected;
            }
        }
    return size > 0 ? dot / size : (double)NAN;
}

struct routed {
    double factor;
};

static bool predict_routed(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *shared = ts_scene_actor(the_case->scene, formula->pairs[0]),
                          *gate = ts_scene_actor(the_case->scene, formula->pairs[1]);
    const double factor = ((const struct routed *)formula->numbers)->factor;
    const size_t width = the_case->actor->width;
    if (!shared || !gate || shared->rows * shared->width != the_case->total || gate->rows != the_case->actor->rows ||
        gate->width != 1)
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = factor * (the_case->expected[i] - ts_shared_part(gate, false, i / width) * (double)shared->a[i]) +
                 ts_shared_part(gate, true, i / width) * (double)shared->b[i];
    return true;
}

void ts_propose_routed_part(struct ts_case *the_case, const struct ts_router *all)
{
    const struct ts_router known = ts_router_with_terms(the_case, all);
    double *out = ts_case_scratch(the_case);
    struct routed routed;
    struct ts_formula formula = {
        .predict = predict_routed, .numbers = &routed, .size = sizeof routed, .pair_count = 2, .reference = true};
    if (!out || !known.shared || !known.shared_gate) /* without a gate it is a term of a sum as any other */
        return;
    routed.factor = ts_fit_routed(the_case, &known, out);
    formula.pairs[0] = known.shared->pair;
    formula.pairs[1] = known.shared_gate->pair;
    if (!isfinite(routed.factor))
        return;
    ts_formula_next(the_case, &formula);
    ts_propose(the_case, "scaled", out, 1, "routed_scaling_factor, and partial sums over ranks",
               "in what is added to %s times the sigmoid of its gate: the experts that were routed to count %.4g times "
               "what they should",
               ts_case_name(the_case, known.shared), routed.factor);
}

/* With one expert per token its weight is a factor of the row. */
static void propose_single(struct ts_case *the_case, const struct ts_router *router)
{
    static const char *const texts[] = {"the candidate does not apply the router's weight",
                                        "the candidate applies the router's weight twice"};
    double *prediction = ts_case_scratch(the_case);
    if (!router->weights || router->chosen != 1 || !prediction)
        return;
    for (int twice = 0; twice < 2; twice++) {
        struct ts_formula formula = {.predict = predict_single,
                                     .numbers = &twice,
                                     .size = sizeof twice,
                                     .pairs = {router->weights->pair},
                                     .pair_count = 1};
        if (!predict_single(the_case, &formula, prediction))
            return;
        ts_formula_next(the_case, &formula);
        ts_propose(the_case, "router-gate", prediction, 0, "where the router's weight is multiplied in", "%s",
                   texts[twice]);
    }
}

bool ts_experts_of(const struct ts_case *the_case, const struct ts_router *router, size_t row, int64_t *experts)
{
    int64_t other[TS_MOST_CHOSEN];
    if (router->indices)
        return ts_read_indices(router->indices, the_case->scene->taken[row], router->chosen, experts, other);
    ts_choose_experts(router->logits->a + row * router->logits->width, router->logits->width, router->chosen, experts);
    return true;
}

/* Whether an expert has a say in a token: one with a small weight may be wrong and not show. */
static bool matters(const float *logits, int64_t expert, const int64_t *chosen, size_t count)
{
    double largest = -INFINITY;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, (double)logits[chosen[i]]);
    return exp((double)logits[expert] - largest) > HAS_A_SAY;
}

static bool are_experts(const int64_t *chosen, size_t count, size_t experts)
{
    for (size_t i = 0; i < count; i++)
        if (chosen[i] < 0 || (uint64_t)chosen[i] >= experts)
            return false;
    return true;
}

/* Of a long sequence the tokens that are not in the case speak for their experts as well: those that agree. */
static void clear_experts(const struct ts_case *the_case, const struct ts_router *router, double noise, double *right)
{
    const struct ts_glance *glance = ts_case_glance(the_case);
    size_t experts = router->logits->width;
    int64_t chosen[TS_MOST_CHOSEN], other[TS_MOST_CHOSEN];
    float logits[TS_MOST_EXPERTS];
    uint64_t stride = glance ? glance->tokens / CLEARED + 1 : 1;
    for (uint64_t token = 0; glance && token < glance->tokens; token += stride) {
        if (glance->error[token] > WRONG * noise * glance->size[token])
            continue;
        if (!ts_read_logits(the_case, router->logits, false, token, logits) ||
            (router->indices && !ts_read_indices(router->indices, token, router->chosen, chosen, other)))
            return;
        if (!router->indices)
            ts_choose_experts(logits, experts, router->chosen, chosen);
        for (size_t i = 0; i < router->chosen && are_experts(chosen, router->chosen, experts); i++)
            if (matters(logits, chosen[i], chosen, router->chosen))
                right[chosen[i]]++;
    }
}

/* A row that says nothing about experts: it went to others, on a near tie. */
static bool went_elsewhere(const struct ts_case *the_case, const struct ts_router *router, size_t row)
{
    return ts_case_aside(the_case, row) || (!router->indices && ts_router_flips(router->logits, row, router->chosen));
}

/* What is wrong with some experts: which, and which rows are. */
struct some_experts {
    double noise;   /* energy of it over what is expected */
    size_t indices; /* pair; SIZE_MAX: the largest logits choose */
    size_t chosen;
    char names[120]; /* in words; which they are is in the table */
};

/* Slots of a tally: rows that are wrong or right and went to one of them or to none. */
enum { WRONG_WITH, WRONG_WITHOUT, RIGHT_WITH, RIGHT_WITHOUT };

bool ts_is_wrong_row(const struct ts_case *the_case, size_t row, double noise)
{
    size_t width = the_case->actor->width;
    double own = 0, cost = ts_rows_cost(the_case, the_case->expected, row, 1);
    for (size_t i = row * width; i < (row + 1) * width; i++)
        own += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
    return cost > WRONG * noise * own && cost > 0;
}

static bool count_some(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                       struct ts_tally *tally)
{
    const struct some_experts *some = formula->numbers;
    struct ts_router router = {.logits = ts_scene_actor(the_case->scene, formula->pairs[0]),
                               .indices = some->indices == SIZE_MAX ? NULL : ts_pair_at(the_case, some->indices),
                               .chosen = some->chosen};
    int64_t chosen[TS_MOST_CHOSEN];
    (void)out;
    if (!router.logits || router.logits->rows != the_case->actor->rows || router.logits->width != formula->table_count)
        return false;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        bool with = false, wrong = ts_is_wrong_row(the_case, row, some->noise);
        if (!ts_experts_of(the_case, &router, row, chosen))
            return false;
        for (size_t i = 0; i < router.chosen; i++)
            with =
                with || (chosen[i] >= 0 && (uint64_t)chosen[i] < formula->table_count && formula->table[chosen[i]] > 0);
        if (!went_elsewhere(the_case, &router, row))
            tally->sums[wrong ? with ? WRONG_WITH : WRONG_WITHOUT : with ? RIGHT_WITH : RIGHT_WITHOUT]++;
    }
    return true;
}

static const char *tell_some(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                             double *share)
{
    const struct some_experts *some = formula->numbers;
    double wrong = tally->sums[WRONG_WITH] + tally->sums[WRONG_WITHOUT];
    double with = tally->sums[WRONG_WITH] + tally->sums[RIGHT_WITH];
    if (!(tally->sums[WRONG_WITH] > 0))
        return *share = 0, NULL;
    *share *= tally->sums[WRONG_WITH] / wrong * tally->sums[WRONG_WITH] / with;
    if (wrong == tally->sums[WRONG_WITH] && with == tally->sums[WRONG_WITH])
        return ts_case_text(the_case, "only the %.0f tokens that went to expert%s %s are wrong; the other %.0f agree",
                            wrong, strchr(some->names, ',') ? "s" : "", some->names, tally->sums[RIGHT_WITHOUT]);
    return ts_case_text(
        the_case,
        "%.0f tokens went to expert%s %s, and %.0f of them are wrong; of the other %.0f tokens, %.0f are wrong", with,
        strchr(some->names, ',') ? "s" : "", some->names, tally->sums[WRONG_WITH],
        tally->sums[RIGHT_WITHOUT] + tally->sums[WRONG_WITHOUT], tally->sums[WRONG_WITHOUT]);
}

/* A level that calm rows stay below, as noise is given to is_wrong: in a coarse run experts err by more than one
 * rounding.
 */
static double calm_level(const struct ts_case *the_case)
{
    size_t rows = the_case->actor->rows, width = the_case->actor->width, used = 0;
    double *levels = calloc(rows, sizeof *levels), calm = 0;
    for (size_t row = 0; row < rows && levels; row++) {
        double own = 0;
        for (size_t i = row * width; i < (row + 1) * width; i++)
            own += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
        if (own > 0 && !ts_case_aside(the_case, row))
            levels[used++] = ts_rows_cost(the_case, the_case->expected, row, 1) / own;
    }
    if (levels)
        calm = ts_nth(levels, used, used / 4);
    free(levels);
    return calm * CALM / WRONG;
}

/* The expert that most of the wrong tokens went to, of those that no right one did (seen is 0); -1 without any. */
static int64_t most_blamed(const struct ts_case *the_case, const struct ts_router *router, const bool *wrong,
                           const double *seen)
{
    size_t experts = router->logits->width, *counts = calloc(experts, sizeof *counts), most = 0;
    int64_t chosen[TS_MOST_CHOSEN], best = -1;
    for (size_t row = 0; row < the_case->actor->rows && counts; row++) {
        if (!wrong[row] || !ts_experts_of(the_case, router, row, chosen))
            continue;
        for (size_t i = 0; i < router->chosen; i++)
            if (chosen[i] >= 0 && (uint64_t)chosen[i] < experts && seen[chosen[i]] == 0)
                counts[chosen[i]]++;
    }
    for (size_t i = 0; i < experts && counts; i++)
        if (counts[i] > most) {
            most = counts[i];
            best = (int64_t)i;
        }
    free(counts);
    return best;
}

/* Wrong exactly for the tokens that went to some experts. */
bool ts_propose_some_experts(struct ts_case *the_case, const struct ts_router *router)
{
    size_t experts = router->logits->width, rows = the_case->actor->rows;
    size_t culprits = 0, wrong_rows = 0, explained = 0, said = 0;
    int64_t chosen[TS_MOST_CHOSEN];
    double size = 0;
    /* of each expert: -1 clean, 1 suspect; then how many tokens in which it has a say are wrong; then right */
    double *seen = calloc(3 * experts, sizeof *seen);
    bool *wrong = calloc(rows, sizeof *wrong), good = false;
    struct some_experts some = {.indices =
                                    router->indices ? (size_t)(router->indices - ts_pair_at(the_case, 0)) : SIZE_MAX,
                                .chosen = router->chosen};
    for (size_t i = 0; i < the_case->total; i++)
        size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
    some.noise = fmax(size > 0 ? the_case->noise / size : 0, calm_level(the_case));
    for (size_t row = 0; row < rows && seen && wrong; row++) {
        const float *logits = router->logits->a + row * experts;
        if (went_elsewhere(the_case, router, row) || !ts_experts_of(the_case, router, row, chosen))
            continue;
        wrong[row] = ts_is_wrong_row(the_case, row, some.noise);
        wrong_rows += wrong[row];
        for (size_t i = 0; i < router->chosen && are_experts(chosen, router->chosen, experts); i++)
            if (matters(logits, chosen[i], chosen, router->chosen))
                seen[(wrong[row] ? experts : 2 * experts) + (size_t)chosen[i]]++;
    }
    if (ts_propose_capacity(the_case, router, some.noise)) {
        free(seen);
        free(wrong);
        return true;
    }
    if (seen && wrong)
        clear_experts(the_case, router, some.noise, seen + 2 * experts);
    for (size_t i = 0; i < experts && seen; i++)
        seen[i] = seen[2 * experts + i] <= FEW * seen[experts + i] ? 0 : -1;
    /* every wrong token has an expert that next to no right one has; as few of them as explain all are named, because
     * of many experts some are never chosen but by a wrong token, by chance */
    while (seen && wrong) {
        int64_t best = most_blamed(the_case, router, wrong, seen);
        if (best < 0)
            break;
        if (said < sizeof some.names - 24)
            said += (size_t)snprintf(some.names + said, sizeof some.names - said, "%s%" PRId64, said ? ", " : "", best);
        seen[best] = 1;
        culprits++;
        for (size_t row = 0; row < rows; row++) {
            if (!wrong[row] || !ts_experts_of(the_case, router, row, chosen))
                continue;
            for (size_t i = 0; i < router->chosen; i++)
                if (wrong[row] && chosen[i] == best) {
                    wrong[row] = false;
                    explained++;
                }
        }
    }
    for (size_t i = 0; i < experts && seen; i++)
        seen[i] = seen[i] > 0;
    if (wrong_rows >= 2 && wrong_rows + 2 <= rows && (double)explained >= (1 - FEW / 2) * (double)wrong_rows &&
        culprits * 2 <= experts && culprits * 2 <= wrong_rows) {
        struct ts_formula formula = {.count = count_some,
                                     .tell = tell_some,
                                     .numbers = &some,
                                     .size = sizeof some,
                                     .table = seen,
                                     .table_count = experts,
                                     .pairs = {router->logits->pair},
                                     .pair_count = 1,
                                     .reference = true};
        double share = wrong_rows >= 4 && wrong_rows + 4 <= rows ? 0.9 : 0.8;
        struct ts_tally tally;
        const char *text;
        ts_tally_open(&tally);
        text = count_some(the_case, &formula, NULL, &tally) ? tell_some(the_case, &formula, &tally, &share) : NULL;
        ts_formula_next(the_case, &formula);
        if (text)
            ts_propose_plain(the_case, "router-gate", share, "the weights and the order of these experts", "%s", text);
        good = true;
    }
    free(seen);
    free(wrong);
    return good;
}

void ts_propose_mixed(struct ts_case *the_case, const struct ts_router *router)
{
    propose_single(the_case, router);
    (void)ts_propose_some_experts(the_case, router);
    ts_propose_mixing(the_case, router);
}
