/* Owns what is said where the router agrees and the output of its experts does not: weights that are not used, experts
 * that are mixed otherwise, and single experts that are wrong. */
#include "base/ordered.h"
#include "diagnose/experts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"

#define WORTHWHILE 0.3
#define SPARED     1e-3  /* 1 less the cosine of a row that agrees */
#define WRONG      30.0  /* times noise, in energy */
#define CALM       12.0  /* times what the calmest quarter of the rows errs by */
#define FEW        0.1   /* tokens that do not fit: one may be routed elsewhere, or its expert be nearly right */
#define HAS_A_SAY  0.25  /* of the largest weight */
#define LEAST_ROWS 6     /* that tell how weights that differ from row to row are used */
#define NO_WORSE   1.2   /* times what is left when nothing but the mean of all rows is known */
#define RELATED    0.25  /* cosine of rows that have something in common */
#define CLEARED    65536 /* tokens that are looked at for their experts alone */

/* How much of a shared expert is in a row, on one side. */
static double shared_part(const struct ts_actor *gate, bool candidate, size_t row)
{
    return gate ? 1 / (1 + exp(-(double)(candidate ? gate->b : gate->a)[row])) : 1;
}

/* What is left of the reference without it. */
static double left_without(const struct ts_case *the_case, const struct ts_actor *shared, const struct ts_actor *gate)
{
    const size_t width = the_case->actor->width;
    double left = 0;
    for (size_t i = 0; i < the_case->total; i++) {
        double rest = the_case->expected[i];
        if (shared)
            rest -= shared_part(gate, false, i / width) * (double)shared->a[i];
        left += isfinite(rest) ? rest * rest : 0;
    }
    return left;
}

/* A shared expert was captured in this layer; whether it is a term of this tensor, and what its gate does to it, the
 * reference tells: experts are unrelated, so that least is left without what is in the sum. */
static struct ts_router with_its_terms(const struct ts_case *the_case, const struct ts_router *router)
{
    struct ts_router found = *router;
    double least = left_without(the_case, NULL, NULL), left;
    found.shared = found.shared_gate = NULL;
    if (router->shared && (left = left_without(the_case, router->shared, NULL)) < least) {
        least = left;
        found.shared = router->shared;
    }
    if (router->shared && router->shared_gate && left_without(the_case, router->shared, router->shared_gate) < least) {
        found.shared = router->shared;
        found.shared_gate = router->shared_gate;
    }
    return found;
}

/* What rows of the output look like beside the reference when experts are mixed otherwise. Outputs of different experts
 * are taken as unrelated and of equal size: then weights w and v give vectors with the cosine w.v / (|w| |v|) and sizes
 * in the proportion |v| / |w|. First what is measured, of the chosen experts alone: the cosine, and the logarithm of
 * the proportion. */
static void measure_row(const struct ts_case *the_case, const struct ts_router *router, size_t row, double *cosine,
                        double *size)
{
    const struct ts_actor *shared = router->shared;
    const double part_a = shared_part(router->shared_gate, false, row);
    const double part_b = shared_part(router->shared_gate, true, row);
    size_t width = the_case->actor->width;
    double dot = 0, expected = 0, found = 0;
    for (size_t i = row * width; i < (row + 1) * width; i++) {
        double a = the_case->expected[i] - (shared ? part_a * (double)shared->a[i] : 0);
        double b = the_case->found[i] - (shared ? part_b * (double)shared->b[i] : 0);
        if (isfinite(a) && isfinite(b)) {
            dot += b * a;
            expected += a * a;
            found += b * b;
        }
    }
    *cosine = expected > 0 && found > 0 ? dot / sqrt(expected * found) : 0;
    *size = expected > 0 && found > 0 ? 0.5 * log(found / expected) : 0;
}

/* The first is as the reference mixes; of ties the first counts. */
enum {
    SAME_WEIGHTS,
    EQUAL_WEIGHTS,
    MEAN_WEIGHTS,
    REVERSED_WEIGHTS,
    WEIGHTS_TWICE,
    FIRST_ALONE,
    LAST_LEFT_OUT,
    OTHER_EXPERTS,
    MIXINGS
};

static double mixed_weight(int mixing, const float *weights, size_t chosen, size_t i)
{
    const double own = (double)weights[i];
    switch (mixing) {
    case EQUAL_WEIGHTS:
        return 1;
    case MEAN_WEIGHTS:
        return 1 / (double)chosen;
    case REVERSED_WEIGHTS:
        return (double)weights[chosen - 1 - i];
    case WEIGHTS_TWICE:
        return own * own;
    case FIRST_ALONE:
        return i ? 0 : own;
    case LAST_LEFT_OUT:
        return i + 1 < chosen ? own : 0;
    default:
        return own;
    }
}

/* Cosine and logarithm of size that a way of mixing predicts for a row. */
static void predict_row(int mixing, const float *weights, size_t chosen, double *cosine, double *size)
{
    double dot = 0, own = 0, other = 0;
    *cosine = mixing != OTHER_EXPERTS;
    *size = 0;
    for (size_t i = 0; i < chosen && mixing != OTHER_EXPERTS; i++) {
        const double weight = mixed_weight(mixing, weights, chosen, i);
        dot += (double)weights[i] * weight;
        own += (double)weights[i] * (double)weights[i];
        other += weight * weight;
    }
    if (own > 0 && other > 0) {
        *cosine = dot / sqrt(own * other);
        *size = 0.5 * log(other / own);
    }
}

/* Experts that are mixed otherwise change every channel: half of them must not hold nearly all of the error. */
static bool is_spread(const struct ts_case *the_case)
{
    size_t width = the_case->actor->width;
    double *parts = calloc(width, sizeof *parts), lower = 0, all = 0;
    for (size_t i = 0; i < the_case->total && parts; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        parts[i % width] += cost > 0 ? cost : 0;
    }
    if (parts)
        qsort(parts, width, sizeof *parts, ts_by_value);
    for (size_t i = 0; i < width && parts; i++) {
        lower += i < width / 2 ? parts[i] : 0;
        all += parts[i];
    }
    free(parts);
    return lower > 0.03 * all;
}

/* Slots of a tally of ways to mix: the distance from each; rows; sums of what is measured and of its squares; and rows
 * that one would have changed and that agree. */
enum { ROWS = MIXINGS, COSINES, SQUARE_COSINES, SIZES, SQUARE_SIZES, SPARED_ROWS };
_Static_assert(SPARED_ROWS < TS_TALLY_SUMS, "a tally has so many sums");

/* Adds rows; spared are those of one way. */
static void add_mixings(const struct ts_case *the_case, const struct ts_router *router, int way, struct ts_tally *tally)
{
    const struct ts_actor *weights = router->weights;
    size_t chosen = weights->width;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        double cosine, size;
        if (ts_case_aside(the_case, row))
            continue;
        measure_row(the_case, router, row, &cosine, &size);
        tally->sums[COSINES] += cosine;
        tally->sums[SQUARE_COSINES] += cosine * cosine;
        tally->sums[SIZES] += size;
        tally->sums[SQUARE_SIZES] += size * size;
        tally->sums[ROWS]++;
        for (int mixing = 0; mixing < MIXINGS; mixing++) {
            double predicted, grown;
            predict_row(mixing, weights->b + row * chosen, chosen, &predicted, &grown);
            tally->sums[SPARED_ROWS] += mixing == way && cosine > 1 - SPARED && predicted < 1 - 20 * SPARED;
            tally->sums[mixing] += (cosine - predicted) * (cosine - predicted) + (size - grown) * (size - grown);
        }
    }
}

/* Weights differ from row to row, and so must what other weights make of them. Whatever goes wrong inside of the
 * experts, an activation or the layout of a weight, changes all rows about as much: their mean alone, two numbers that
 * are fitted, then says more than any way of mixing, which has none. */
static bool follows_the_weights(const struct ts_tally *tally, int mixing)
{
    const double *sums = tally->sums, rows = sums[ROWS];
    const double uneven = sums[SQUARE_COSINES] - sums[COSINES] * sums[COSINES] / rows + sums[SQUARE_SIZES] -
                          sums[SIZES] * sums[SIZES] / rows;
    return rows >= LEAST_ROWS && sums[mixing] <= NO_WORSE * uneven * rows / (rows - 2);
}

/* What the rows of a tally look like. */
static int best_mixing(const struct ts_tally *tally)
{
    int best = 0;
    for (int mixing = 1; mixing < MIXINGS; mixing++)
        if (tally->sums[mixing] < tally->sums[best])
            best = mixing;
    return best == SAME_WEIGHTS || best == OTHER_EXPERTS || follows_the_weights(tally, best) ? best : OTHER_EXPERTS;
}

/* How sure one is, as the rows of a tally show it; 0 when it is not so. */
static double sure_of_mixing(const struct ts_tally *tally, int mixing)
{
    double rows = tally->sums[ROWS];
    /* it would have changed every row: one that agrees speaks against it */
    if (!(rows > 0) || mixing == SAME_WEIGHTS || best_mixing(tally) != mixing || tally->sums[mixing] > 0.4 * rows ||
        tally->sums[SPARED_ROWS] * 8 > rows)
        return 0;
    return mixing == OTHER_EXPERTS             ? 0.55 /* it says all that "unrelated" would, and more */
           : tally->sums[mixing] < 0.16 * rows ? 0.7
                                               : 0.66;
}

static const char *mixing_text(struct ts_case *the_case, const struct ts_tally *tally, int mixing)
{
    static const char *const texts[MIXINGS] = {
        [EQUAL_WEIGHTS] = "the rows look like a plain sum of the chosen experts, without the router's weights",
        [MEAN_WEIGHTS] = "the rows look like a plain mean of the chosen experts, without the router's weights",
        [REVERSED_WEIGHTS] = "the rows look as if the router's weights went to the wrong one of the chosen experts",
        [WEIGHTS_TWICE] = "the rows look as if the router's weights were applied twice",
        [FIRST_ALONE] = "the rows look like the first of the chosen experts alone",
        [LAST_LEFT_OUT] = "the rows look as if the last of the chosen experts were left out"};
    const double cosine = tally->sums[COSINES] / tally->sums[ROWS];
    const char *text =
        mixing != OTHER_EXPERTS
            ? texts[mixing]
            : ts_case_text(
                  the_case,
                  "the rows have the right size but %s other experts than the chosen ones, has the experts in "
                  "another order, or their weights are not loaded or laid out otherwise (gate and up exchanged "
                  "or interleaved, a transpose)",
                  fabs(cosine) < RELATED
                      ? "no relation to the reference; the candidate uses"
                      : "little relation to the reference; the candidate gives the router's weights to the wrong "
                        "ones, uses");
    return ts_case_text(
        the_case,
        "the router's weights and choices agree but the experts' output does not (mean cosine of a row %.2f): %s",
        cosine, text);
}

static bool count_mixing(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                         struct ts_tally *tally)
{
    const size_t rows = the_case->actor->rows;
    const struct ts_actor *actors[3] = {NULL};
    struct ts_router router;
    (void)out;
    for (size_t i = 0; i < formula->pair_count; i++) {
        actors[i] = ts_scene_actor(the_case->scene, formula->pairs[i]);
        if (!actors[i] || actors[i]->rows != rows)
            return false;
    }
    router = (struct ts_router){.weights = actors[0], .shared = actors[1], .shared_gate = actors[2]};
    if (router.weights->width > TS_MOST_CHOSEN || (router.shared && router.shared->width != the_case->actor->width))
        return false;
    add_mixings(the_case, &router, *(const int *)formula->numbers, tally);
    return true;
}

static const char *tell_mixing(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                               double *share)
{
    int mixing = *(const int *)formula->numbers;
    *share = sure_of_mixing(tally, mixing);
    return *share > 0 ? mixing_text(the_case, tally, mixing) : NULL;
}

/* The experts' output is wrong although the router agrees. */
static void propose_mixing(struct ts_case *the_case, const struct ts_router *all)
{
    const struct ts_router known = with_its_terms(the_case, all), *router = &known;
    struct ts_formula formula = {
        .count = count_mixing, .tell = tell_mixing, .size = sizeof(int), .pair_count = 1, .reference = true};
    struct ts_tally tally;
    int best;
    if (!router->weights || router->chosen > TS_MOST_CHOSEN || !is_spread(the_case))
        return;
    ts_tally_open(&tally);
    add_mixings(the_case, router, -1, &tally);
    best = best_mixing(&tally);
    ts_tally_open(&tally);
    add_mixings(the_case, router, best, &tally);
    if (!(sure_of_mixing(&tally, best) > 0))
        return;
    formula.numbers = &best;
    formula.pairs[0] = router->weights->pair;
    if (router->shared)
        formula.pairs[formula.pair_count++] = router->shared->pair;
    if (router->shared && router->shared_gate)
        formula.pairs[formula.pair_count++] = router->shared_gate->pair;
    ts_formula_next(the_case, &formula);
    ts_propose_plain(the_case, "router-gate", sure_of_mixing(&tally, best),
                     "how the router's weights and indices reach the experts, and the order of the experts' weights",
                     "%s", mixing_text(the_case, &tally, best));
}

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
enum { UNGATED, NO_SIGMOID, SILU, OF_MINUS, GATINGS };

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
        const double g = (double)gate->b[i / width], own = shared_part(gate, true, i / width);
        const double other = gating == UNGATED ? 1 : gating == NO_SIGMOID ? g : gating == SILU ? g * own : 1 - own;
        out[i] = the_case->expected[i] + (other - own) * (double)shared->b[i];
    }
    return true;
}

/* The gate of a shared expert, which is a number per token: where both were captured it can be said what is done with
 * it, in the gated expert itself and in the sum that holds it. */
void ts_propose_shared_gate(struct ts_case *the_case, const struct ts_router *all)
{
    static const int gatings[GATINGS] = {UNGATED, NO_SIGMOID, SILU, OF_MINUS};
    static const char *const texts[GATINGS] = {
        [UNGATED] = "the candidate does not apply the gate of the shared expert: %s counts in full",
        [NO_SIGMOID] = "the candidate multiplies the shared expert %s with its gate as it is, without the sigmoid",
        [SILU] = "the candidate multiplies the shared expert %s with silu(gate), the reference with sigmoid(gate)",
        [OF_MINUS] = "the candidate multiplies the shared expert %s with 1 - sigmoid(gate)"};
    const struct ts_router known = with_its_terms(the_case, all);
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
        ts_propose(the_case, "router-gate", out, 0,
                   "the gate of the shared expert: that it goes through a sigmoid, once", texts[*best],
                   ts_case_name(the_case, known.shared));
    }
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

/* The experts of a token in the reference: captured, or those with the largest logits. */
static bool experts_of(const struct ts_case *the_case, const struct ts_router *router, size_t row, int64_t *experts)
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

static bool is_wrong(const struct ts_case *the_case, size_t row, double noise)
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
        bool with = false, wrong = is_wrong(the_case, row, some->noise);
        if (!experts_of(the_case, &router, row, chosen))
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
        if (!wrong[row] || !experts_of(the_case, router, row, chosen))
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
        if (went_elsewhere(the_case, router, row) || !experts_of(the_case, router, row, chosen))
            continue;
        wrong[row] = is_wrong(the_case, row, some.noise);
        wrong_rows += wrong[row];
        for (size_t i = 0; i < router->chosen && are_experts(chosen, router->chosen, experts); i++)
            if (matters(logits, chosen[i], chosen, router->chosen))
                seen[(wrong[row] ? experts : 2 * experts) + (size_t)chosen[i]]++;
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
            if (!wrong[row] || !experts_of(the_case, router, row, chosen))
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
    propose_mixing(the_case, router);
}
