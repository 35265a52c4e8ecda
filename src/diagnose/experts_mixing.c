/* Owns how the chosen experts are mixed, read off what becomes of each token where what experts make is not known.
 * Their outputs are taken as unrelated and of equal size. Then weights w in the reference and v in the candidate leave
 * of a token w.v / w.w times what the reference has, and as much besides, unrelated to it, as the rest of v. Both
 * differ from token to token as the router's weights do, and every way to mix has its own. */
#include <math.h>
#include <stdlib.h>

#include "base/ordered.h"
#include "diagnose/experts.h"
#include "diagnose/variant.h"

#define MOST_MIXED     16  /* experts of a token */
#define LEAST_ROWS     6   /* that tell how weights that differ from row to row are used */
#define LEAST_TOLD     12  /* the same where the weights were not captured */
#define NO_WORSE       1.2 /* times what is left when nothing but the mean of all rows is known */
#define BETTER         0.6 /* times that: what ways must leave that are many, and fewer where a shared expert was captured */
#define BETTER_BESIDE  0.8
#define MOST_LEFT      0.4 /* of a row, squared, in logarithms */
#define RELATED        0.25
#define ROUNDINGS      3.0 /* that come together in experts: what they make and their sums are rounded */
#define LEAST_REST     1e-6
#define LEAST_SHOWN    2e-3 /* of a row: one that is changed less is off by a factor, and told as such, */
#define ABOVE_NOISE    2.0  /* and so is one that is changed by less than this times noise */
#define NATS           8.0  /* apart: of two ways, the worse one is none */
#define AS_GOOD        1.25 /* times what the best one leaves */
#define TOLD_WAYS      3    /* more that are as good tell nothing, */
#define EACH_WAY       0.06 /* and each of them takes some of the confidence */
#define SURE_OF_OTHERS 0.55 /* it says all that "unrelated" would, and more */
#define GATES          4
#define ASIDES         5

/* What may stand in the sum beside the experts, over the energy of theirs. */
static const double asides[ASIDES] = {0, 0.3, 1, 2, 4};

double ts_shared_part(const struct ts_actor *gate, bool candidate, size_t row)
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
            rest -= ts_shared_part(gate, false, i / width) * (double)shared->a[i];
        left += isfinite(rest) ? rest * rest : 0;
    }
    return left;
}

/* Experts are unrelated, so that least is left without what is in the sum. */
struct ts_router ts_router_with_terms(const struct ts_case *the_case, const struct ts_router *router)
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

/* The first is as the reference mixes; of ties the first counts. Those behind the first list are told by captured
 * logits alone. */
enum mixing {
    SAME_WEIGHTS,
    EQUAL_WEIGHTS,
    MEAN_WEIGHTS,
    REVERSED_WEIGHTS,
    WEIGHTS_TWICE,
    FIRST_ALONE,
    FIRST_FOR_ALL,
    LAST_LEFT_OUT,
    ONE_LESS,
    OTHER_EXPERTS,
    MIXINGS,
    SOFTMAX = MIXINGS,
    SOFTMAX_DIVIDED,
    SIGMOIDS,
    SIGMOIDS_DIVIDED,
    ONE_MORE,
    /* beside something else in the sum that was not captured */
    EXPERTS_TWICE,
    EXPERTS_HALF,
    REST_TWICE,
    REST_LEFT_OUT,
    WAYS
};

static const char *const texts[WAYS] = {
    [EQUAL_WEIGHTS] = "like a plain sum of the chosen experts, without the router's weights",
    [MEAN_WEIGHTS] = "like a plain mean of the chosen experts, without the router's weights",
    [REVERSED_WEIGHTS] = "as if the router's weights went to the wrong one of the chosen experts",
    [WEIGHTS_TWICE] = "as if the router's weights were applied twice",
    [FIRST_ALONE] = "like the first of the chosen experts alone",
    [FIRST_FOR_ALL] = "as if the first expert's weight were that of all chosen ones",
    [LAST_LEFT_OUT] = "as if the last of the chosen experts were left out",
    [ONE_LESS] = "as if the last of the chosen experts were left out, and the others shared its weight",
    [SOFTMAX] = "as if weights were softmax probabilities that are not divided by their sum",
    [SOFTMAX_DIVIDED] = "as if weights were softmax probabilities divided by their sum",
    [SIGMOIDS] = "as if weights were sigmoids that are not divided by their sum",
    [SIGMOIDS_DIVIDED] = "as if weights were sigmoids divided by their sum",
    [ONE_MORE] = "as if each token had one expert more",
    [EXPERTS_TWICE] = "as if the experts counted twice beside what else is in the sum",
    [EXPERTS_HALF] = "as if the experts counted half beside what else is in the sum",
    [REST_TWICE] = "as if what else is in the sum were added twice",
    [REST_LEFT_OUT] = "as if what else is in the sum were left out"};

/* What becomes of a token: how many times what is expected it holds, and how much of its size besides. */
struct change {
    double slope, rest;
};

/* What of a row is rounding: no less is found in it, nor expected. noise: as a part of what is expected, in amplitude.
 */
static double least_rest(double slope, double noise)
{
    return fmax(LEAST_REST, ROUNDINGS * noise * fmax(1, fabs(slope)));
}

static struct change measure_row(const struct ts_case *the_case, const struct ts_router *router, size_t row,
                                 double noise)
{
    const struct ts_actor *shared = router->shared;
    const double part_a = ts_shared_part(router->shared_gate, false, row);
    const double part_b = ts_shared_part(router->shared_gate, true, row);
    size_t width = the_case->actor->width;
    double dot = 0, expected = 0, found = 0, slope;
    for (size_t i = row * width; i < (row + 1) * width; i++) {
        double a = the_case->expected[i] - (shared ? part_a * (double)shared->a[i] : 0);
        double b = the_case->found[i] - (shared ? part_b * (double)shared->b[i] : 0);
        if (isfinite(a) && isfinite(b)) {
            dot += b * a;
            expected += a * a;
            found += b * b;
        }
    }
    if (!(expected > 0))
        return (struct change){1, LEAST_REST};
    slope = dot / expected;
    return (struct change){slope, fmax(sqrt(fmax(found / expected - slope * slope, 0)), least_rest(slope, noise))};
}

/* The weight of chosen expert i, of so many whose weights have this sum. */
static double mixed_weight(enum mixing mixing, const double *weights, size_t chosen, double sum, size_t i)
{
    switch (mixing) {
    case EQUAL_WEIGHTS:
        return 1;
    case MEAN_WEIGHTS:
        return 1 / (double)chosen;
    case REVERSED_WEIGHTS:
        return weights[chosen - 1 - i];
    case WEIGHTS_TWICE:
        return weights[i] * weights[i];
    case FIRST_ALONE:
        return i ? 0 : weights[i];
    case FIRST_FOR_ALL:
        return weights[0];
    case LAST_LEFT_OUT:
        return i + 1 < chosen ? weights[i] : 0;
    case ONE_LESS:
        return i + 1 < chosen && sum > weights[chosen - 1] ? weights[i] * sum / (sum - weights[chosen - 1]) : 0;
    default:
        return weights[i];
    }
}

/* What a token becomes with the weights v in place of w; v may have some more. aside: energy of what else is in the
 * sum, which the candidate takes so many times. NaN where there are no weights, as of tokens that pad a batch. */
static struct change predict_change(const double *w, size_t count, const double *v, size_t more, double aside,
                                    double times)
{
    double dot = times * aside, own = aside, other = times * times * aside, slope;
    for (size_t i = 0; i < count + more; i++) {
        dot += i < count ? w[i] * v[i] : 0;
        own += i < count ? w[i] * w[i] : 0;
        other += v[i] * v[i];
    }
    if (!(own > 0))
        return (struct change){(double)NAN, (double)NAN};
    slope = dot / own;
    return (struct change){slope, sqrt(fmax(other / own - slope * slope, 0))};
}

static struct change predict_mixing(enum mixing mixing, const double *weights, size_t chosen, double aside)
{
    double mixed[TS_MOST_CHOSEN], sum = 0;
    for (size_t i = 0; i < chosen; i++)
        sum += weights[i];
    for (size_t i = 0; i < chosen; i++)
        mixed[i] = mixed_weight(mixing, weights, chosen, sum, i);
    return predict_change(weights, chosen, mixed, 0, aside, 1);
}

/* How far a row is from what is predicted, squared: in parts of what it must hold besides, and in the logarithm of
 * that. Where both are lost in rounding, it tells nothing. */
static double distance(struct change found, struct change predicted, double noise)
{
    const double rest = fmax(predicted.rest, least_rest(predicted.slope, noise));
    const double along = (found.slope - predicted.slope) / rest, besides = log(found.rest / rest);
    return along * along + besides * besides;
}

/* Whether anything is. */
static bool is_predicted(struct change predicted)
{
    return isfinite(predicted.slope) && isfinite(predicted.rest);
}

/* How far a row is from one that other experts made: no cosine, and no other size. */
static double distance_from_others(struct change found)
{
    const double size = hypot(found.slope, found.rest), cosine = found.slope / size;
    return cosine * cosine + log(size) * log(size);
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

/* Of what experts make, without the shared one. */
static double noise_of(const struct ts_case *the_case, const struct ts_router *router)
{
    const double size = left_without(the_case, router->shared, router->shared_gate);
    return size > 0 ? sqrt(the_case->noise / size) : 0;
}

/* Slots of a tally of ways to mix: the distance from each; rows; sums of what is measured and of its squares. */
enum { ROWS = MIXINGS, SLOPES, SQUARE_SLOPES, RESTS, SQUARE_RESTS, TALLY_END };
_Static_assert(TALLY_END <= TS_TALLY_SUMS, "a tally has so many sums");

static void add_row(struct ts_tally *tally, struct change found)
{
    tally->sums[SLOPES] += found.slope;
    tally->sums[SQUARE_SLOPES] += found.slope * found.slope;
    tally->sums[RESTS] += log(found.rest);
    tally->sums[SQUARE_RESTS] += log(found.rest) * log(found.rest);
    tally->sums[ROWS]++;
}

static void add_mixings(const struct ts_case *the_case, const struct ts_router *router, double noise,
                        struct ts_tally *tally)
{
    const size_t chosen = router->weights->width;
    double weights[TS_MOST_CHOSEN];
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        struct change found;
        for (size_t i = 0; i < chosen; i++)
            weights[i] = (double)router->weights->b[row * chosen + i];
        if (ts_case_aside(the_case, row) || !is_predicted(predict_mixing(SAME_WEIGHTS, weights, chosen, 0)))
            continue;
        found = measure_row(the_case, router, row, noise);
        add_row(tally, found);
        tally->sums[OTHER_EXPERTS] += distance_from_others(found);
        for (int mixing = 0; mixing < OTHER_EXPERTS; mixing++)
            tally->sums[mixing] += distance(found, predict_mixing((enum mixing)mixing, weights, chosen, 0), noise);
    }
}

/* What all rows leave that become the same, two numbers that are fitted: whatever goes wrong inside of the experts, an
 * activation or the layout of a weight, changes all rows about as much. Weights differ from row to row, and so must
 * what other weights make of them. */
static double left_by_all_alike(const struct ts_tally *tally)
{
    const double *sums = tally->sums, rows = sums[ROWS];
    const double rest = exp(sums[RESTS] / rows), slope = sums[SLOPES] / rows;
    return rows > 2 ? (fmax(sums[SQUARE_SLOPES] - rows * slope * slope, 0) / (rest * rest) +
                       fmax(sums[SQUARE_RESTS] - sums[RESTS] * sums[RESTS] / rows, 0)) /
                          (rows - 2)
                    : 0;
}

/* Relative error of the logits: what comes into the experts errs by as much. */
static double error_of(const struct ts_case *the_case, const struct ts_actor *logits)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < logits->rows * logits->width; i++) {
        const double d = (double)logits->b[i] - (double)logits->a[i];
        if (isfinite(d) && !ts_case_aside(the_case, i / logits->width)) {
            error += d * d;
            size += (double)logits->a[i] * (double)logits->a[i];
        }
    }
    return size > 0 ? sqrt(error / size) : 0;
}

static void propose_inside(struct ts_case *the_case, const struct ts_router *router, const struct ts_tally *tally)
{
    const double *sums = tally->sums, rows = sums[ROWS], slope = sums[SLOPES] / fmax(rows, 1);
    if (rows >= LEAST_TOLD)
        ts_propose_inside(the_case,
                          &(struct ts_alike){.slope = slope,
                                             .spread = sqrt(fmax(sums[SQUARE_SLOPES] / rows - slope * slope, 0)),
                                             .rest = exp(sums[RESTS] / rows),
                                             .left = left_by_all_alike(tally),
                                             .came = error_of(the_case, router->logits),
                                             .rows = (size_t)rows});
}

/* What the rows of a tally look like. */
static enum mixing best_mixing(const struct ts_tally *tally)
{
    enum mixing best = SAME_WEIGHTS;
    for (int mixing = 1; mixing < MIXINGS; mixing++)
        if (tally->sums[mixing] < tally->sums[best])
            best = (enum mixing)mixing;
    if (best != SAME_WEIGHTS && best != OTHER_EXPERTS &&
        (tally->sums[ROWS] < LEAST_ROWS || tally->sums[best] > NO_WORSE * left_by_all_alike(tally) * tally->sums[ROWS]))
        return OTHER_EXPERTS;
    return best;
}

/* How sure a way is that leaves so much of a row, where all rows alike leave that much. */
static double sure_of(double left, double alike)
{
    return 0.66 + 0.3 * fmax(0, 1 - left / alike);
}

/* How sure one is, as the rows of a tally show it; 0 when it is not so. */
static double sure_of_mixing(const struct ts_tally *tally, enum mixing mixing)
{
    const double rows = tally->sums[ROWS];
    if (!(rows > 0) || mixing == SAME_WEIGHTS || best_mixing(tally) != mixing || tally->sums[mixing] > MOST_LEFT * rows)
        return 0;
    return mixing == OTHER_EXPERTS ? SURE_OF_OTHERS : sure_of(tally->sums[mixing] / rows, left_by_all_alike(tally));
}

/* logits: their name, where those alone are known to agree. */
static const char *mixing_text(struct ts_case *the_case, const struct ts_tally *tally, enum mixing mixing,
                               const char *logits)
{
    const double slope = tally->sums[SLOPES] / tally->sums[ROWS];
    const double rest = exp(tally->sums[RESTS] / tally->sums[ROWS]), cosine = slope / hypot(slope, rest);
    const char *text =
        mixing != OTHER_EXPERTS
            ? texts[mixing]
            : ts_case_text(
                  the_case,
                  "have the right size but %s other experts than the chosen ones, has the experts in "
                  "another order, or their weights are not loaded or laid out otherwise (gate and up exchanged "
                  "or interleaved, a transpose), or they compute something else",
                  fabs(cosine) < RELATED
                      ? "no relation to the reference; the candidate uses"
                      : "little relation to the reference; the candidate gives the router's weights to the wrong "
                        "ones, uses");
    return ts_case_text(the_case, "%s but the experts' output does not (mean cosine of a row %.2f): the rows %s%s",
                        logits ? ts_case_text(the_case, "%s agrees", logits) : "the router's weights and choices agree",
                        cosine, mixing == OTHER_EXPERTS ? "" : "look ", text);
}

struct mixed {
    enum mixing mixing;
    double noise;
};

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
    add_mixings(the_case, &router, ((const struct mixed *)formula->numbers)->noise, tally);
    return true;
}

static const char *tell_mixing(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                               double *share)
{
    const struct mixed *mixed = formula->numbers;
    *share = sure_of_mixing(tally, mixed->mixing);
    return *share > 0 ? mixing_text(the_case, tally, mixed->mixing, NULL) : NULL;
}

void ts_propose_mixing(struct ts_case *the_case, const struct ts_router *all)
{
    const struct ts_router known = ts_router_with_terms(the_case, all), *router = &known;
    struct ts_formula formula = {
        .count = count_mixing, .tell = tell_mixing, .size = sizeof(struct mixed), .pair_count = 1, .reference = true};
    struct ts_tally tally;
    struct mixed mixed;
    if (!router->weights || router->chosen > TS_MOST_CHOSEN || !is_spread(the_case))
        return;
    mixed.noise = noise_of(the_case, router);
    ts_tally_open(&tally);
    add_mixings(the_case, router, mixed.noise, &tally);
    mixed.mixing = best_mixing(&tally);
    if (!(sure_of_mixing(&tally, mixed.mixing) > 0)) {
        propose_inside(the_case, router, &tally);
        return;
    }
    formula.numbers = &mixed;
    formula.pairs[0] = router->weights->pair;
    if (router->shared)
        formula.pairs[formula.pair_count++] = router->shared->pair;
    if (router->shared && router->shared_gate)
        formula.pairs[formula.pair_count++] = router->shared_gate->pair;
    ts_formula_next(the_case, &formula);
    ts_propose_plain(the_case, "router-gate", sure_of_mixing(&tally, mixed.mixing),
                     "how the router's weights and indices reach the experts, and the order of the experts' weights",
                     "%s", mixing_text(the_case, &tally, mixed.mixing, NULL));
}

/* One way to mix, where neither the weights nor how many there are was captured: how the reference weighs, and what the
 * candidate does instead. */
struct way {
    struct ts_gate gate;
    size_t chosen;
    enum mixing mixing;
    double aside; /* what is in the sum and was not captured, over the energy of the experts' share */
    double left;  /* of a row */
};

/* What a token becomes that way. list: the experts with the largest logits, one more than are chosen. */
static struct change predict_way(const struct way *way, double aside, const float *logits, size_t experts,
                                 const int64_t *list)
{
    double own[MOST_MIXED + 1], other[MOST_MIXED + 1];
    const bool more = way->mixing == ONE_MORE;
    ts_weigh_experts(&way->gate, logits, experts, list, way->chosen, own);
    if (way->mixing < MIXINGS)
        return predict_mixing(way->mixing, own, way->chosen, aside);
    if (way->mixing >= EXPERTS_TWICE) {
        const double factor = way->mixing == EXPERTS_TWICE ? 2 : way->mixing == EXPERTS_HALF ? 0.5 : 1;
        const double times = way->mixing == REST_TWICE ? 2 : way->mixing == REST_LEFT_OUT ? 0 : 1;
        for (size_t i = 0; i < way->chosen; i++)
            other[i] = factor * own[i];
        return predict_change(own, way->chosen, other, 0, aside, times);
    }
    ts_weigh_experts(
        more ? &way->gate
             : &(struct ts_gate){.sigmoid = way->mixing == SIGMOIDS || way->mixing == SIGMOIDS_DIVIDED,
                                 .divided = way->mixing == SOFTMAX_DIVIDED || way->mixing == SIGMOIDS_DIVIDED},
        logits, experts, list, way->chosen + more, other);
    return predict_change(own, way->chosen, other, more, aside, 1);
}

/* Says nothing that is said otherwise: the same weights, or the same for one expert and for two. */
static bool is_a_way(const struct way *way)
{
    const bool two = way->chosen == 2;
    if (way->mixing >= EXPERTS_TWICE)
        return way->aside > 0;
    if (way->mixing == SAME_WEIGHTS || way->mixing == OTHER_EXPERTS || (way->chosen == 1 && way->mixing != ONE_MORE))
        return false;
    if (way->mixing == LAST_LEFT_OUT)
        return !two;
    if (way->mixing == SOFTMAX || way->mixing == SOFTMAX_DIVIDED)
        return way->gate.sigmoid;
    return !((way->mixing == SIGMOIDS || way->mixing == SIGMOIDS_DIVIDED) && way->gate.sigmoid);
}

/* Fills in what the way leaves of a row; the tally tells what rows have in common. False when it changes so little that
 * it is off by factors, or few rows tell. */
static bool try_way(const struct ts_case *the_case, const struct ts_router *router, const struct change *changes,
                    double noise, struct way *way, struct ts_tally *tally)
{
    const struct ts_actor *logits = router->logits;
    int64_t list[MOST_MIXED + 1];
    size_t shown = 0;
    double aside = 0;
    ts_tally_open(tally);
    way->left = 0;
    for (size_t row = 0; row < the_case->actor->rows && way->aside > 0; row++) {
        double own[MOST_MIXED + 1];
        const float *at = logits->b + row * logits->width;
        ts_choose_experts(at, logits->width, way->chosen, list);
        ts_weigh_experts(&way->gate, at, logits->width, list, way->chosen, own);
        for (size_t i = 0; i < way->chosen; i++)
            aside += isfinite(own[i]) ? way->aside * own[i] * own[i] / (double)the_case->actor->rows : 0;
    }
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        const float *at = logits->b + row * logits->width;
        struct change found, predicted;
        if (ts_case_aside(the_case, row) || ts_router_flips(logits, row, way->chosen))
            continue;
        ts_choose_experts(at, logits->width, way->chosen + 1, list);
        found = changes[row];
        predicted =
            way->mixing == OTHER_EXPERTS ? (struct change){0, 1} : predict_way(way, aside, at, logits->width, list);
        if (!is_predicted(predicted))
            continue;
        way->left += way->mixing == OTHER_EXPERTS ? distance_from_others(found) : distance(found, predicted, noise);
        shown += predicted.rest > fmax(LEAST_SHOWN, ABOVE_NOISE * noise);
        add_row(tally, found);
    }
    way->left /= fmax(tally->sums[ROWS], 1);
    return tally->sums[ROWS] >= LEAST_TOLD && 2 * (double)shown > tally->sums[ROWS];
}

/* chosen: 0 where ways with different numbers are as good. */
static const char *way_text(struct ts_case *the_case, const struct ts_router *router, size_t chosen,
                            const bool *as_good, size_t count)
{
    const char *text = "", *many = chosen ? ts_case_text(the_case, ", with %zu for a token", chosen) : "";
    for (int mixing = 0; mixing < WAYS; mixing++)
        if (as_good[mixing])
            text = ts_case_text(the_case, "%s%s%s", text, *text ? ", or " : "", texts[mixing]);
    return ts_case_text(the_case,
                        "the two sides weigh the experts that %s chooses differently%s%s: of each token the candidate "
                        "holds as much of what the reference has, and as much besides, %s",
                        ts_case_name(the_case, router->logits), many, count > 1 ? ", in one of several ways" : "",
                        text);
}

/* Tries all ways, with what may stand in the sum beside the experts; the good ones are put into `ways`, and the best
 * one is left in `best`, with what all rows alike leave. How many there are. */
static size_t try_ways(const struct ts_case *the_case, const struct ts_router *router, const struct change *changes,
                       double noise, struct way *ways, struct way *best, struct ts_tally *of_best)
{
    static const struct ts_gate gates[] = {{false, false}, {false, true}, {true, false}, {true, true}};
    size_t count = 0;
    for (size_t chosen = 1; chosen <= TS_GUESSED_CHOSEN && 2 * chosen <= router->logits->width; chosen++)
        for (size_t i = 0; i < ASIDES * (size_t)GATES * WAYS; i++) {
            struct way way = {gates[i / WAYS % GATES], chosen, (enum mixing)(i % WAYS), asides[i / WAYS / GATES], 0};
            struct ts_tally tally;
            if ((way.aside > 0 && router->shared) || !is_a_way(&way) ||
                !try_way(the_case, router, changes, noise, &way, &tally) ||
                way.left > fmin(MOST_LEFT, (router->shared ? BETTER_BESIDE : BETTER) * left_by_all_alike(&tally)))
                continue;
            ways[count++] = way;
            if (way.left < best->left) {
                *best = way;
                *of_best = tally;
            }
        }
    return count;
}

void ts_propose_ways(struct ts_case *the_case, const struct ts_router *all)
{
    const struct ts_router known = ts_router_with_terms(the_case, all);
    const size_t rows = the_case->actor->rows;
    const double noise = noise_of(the_case, &known);
    struct change *changes = calloc(rows, sizeof *changes);
    struct way best = {.left = (double)INFINITY}, other = {.chosen = 1, .mixing = OTHER_EXPERTS};
    struct way *ways = calloc((size_t)ASIDES * GATES * WAYS * TS_GUESSED_CHOSEN, sizeof *ways);
    struct ts_tally tally;
    bool as_good[WAYS] = {false}, good = changes && ways && is_spread(the_case);
    size_t count = 0, kinds = 0, many;
    double limit;
    for (size_t row = 0; row < rows && good; row++)
        changes[row] = measure_row(the_case, &known, row, noise);
    if (good)
        count = try_ways(the_case, &known, changes, noise, ways, &best, &tally);
    many = best.chosen;
    limit = count ? best.left * fmax(AS_GOOD, exp(NATS / tally.sums[ROWS])) : 0;
    for (const struct way *way = ways; way < ways + count; way++)
        if (way->left <= limit) {
            kinds += !as_good[way->mixing];
            as_good[way->mixing] = true;
            many = way->chosen == many ? many : 0;
        }
    if (kinds && kinds <= TOLD_WAYS) {
        ts_formula_next(the_case, &(struct ts_formula){.told_by = rows});
        ts_propose_plain(the_case, "router-gate",
                         sure_of(best.left, left_by_all_alike(&tally)) - EACH_WAY * (double)kinds,
                         "how the router's weights are made and applied: norm_topk_prob, scoring_func, the number of "
                         "experts for a token; capture the weights to be sure",
                         "%s", way_text(the_case, &known, many, as_good, kinds));
    } else if (!count && good && try_way(the_case, &known, changes, noise, &other, &tally) && other.left <= MOST_LEFT) {
        ts_formula_next(the_case, &(struct ts_formula){.told_by = rows});
        ts_propose_plain(the_case, "router-gate", SURE_OF_OTHERS,
                         "how the router's choice reaches the experts, and the order of the experts' weights", "%s",
                         mixing_text(the_case, &tally, OTHER_EXPERTS, ts_case_name(the_case, known.logits)));
    } else if (!count && good && known.shared) { /* otherwise there may be one that was not captured */
        propose_inside(the_case, &known, &tally);
    }
    free(changes);
    free(ways);
}
