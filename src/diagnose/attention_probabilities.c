/* Owns probabilities of which neither scores nor queries and keys were captured, as models hand them out themselves:
 * what a mask, a temperature and a softmax make of them shows in the two sides alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_mask.h"
#include "diagnose/formula.h"
#include "diagnose/variant.h"

#define FEWEST_ROWS 4
#define ONE_NEARLY  0.02 /* what the rows of 16 bits may sum to beside one */
#define NEARLY_ALL  0.9
#define HOLDS       0.9  /* share of the error: these claims are precise, or nothing */
#define NO_POWER    0.02 /* a temperature nearer to one than this is none */
#define NO_BAND     0.02 /* entries of a mask that may be otherwise, where it is told as a band */
#define SMALLEST    1e-6 /* smaller ones are left of logarithms by their rounding alone */

enum relation {
    OTHER_MASK, /* the same odds between the keys that both sides see */
    LATE_MASK,  /* the reference's numbers, times what is left of each row */
    POWER,      /* the reference's numbers, to a power */
    LOGARITHMS  /* of which the reference's numbers are the softmax */
};

struct claim {
    enum relation relation;
    double power;
    struct ts_mask_shape shape; /* what the candidate sees, of OTHER_MASK */
};

/* The softmax of the candidate's keys, where the reference tells what they weigh against each other; keys that it hides
 * are taken as they are found. */
static void predict_masked(const unsigned char *allowed, const double *expected, const double *found, size_t keys,
                           double *out)
{
    double known = 0, share = 0;
    bool inside = true;
    for (size_t key = 0; key < keys; key++) {
        if (!allowed[key])
            continue;
        inside = inside && expected[key] > 0;
        known += expected[key] > 0 ? expected[key] : 0;
        share += expected[key] > 0 ? found[key] : 0;
    }
    share = inside ? 1 : share;
    for (size_t key = 0; key < keys; key++)
        out[key] = !allowed[key] ? 0 : expected[key] > 0 ? expected[key] * share / known : found[key];
}

static void predict_power(double power, const double *expected, size_t keys, double *out)
{
    double sum = 0;
    for (size_t key = 0; key < keys; key++) {
        out[key] = expected[key] > 0 ? pow(expected[key], power) : 0;
        sum += out[key];
    }
    for (size_t key = 0; key < keys && sum > 0; key++)
        out[key] /= sum;
}

static void predict_late(const double *expected, const double *found, size_t keys, double *out)
{
    double sum = 0;
    for (size_t key = 0; key < keys; key++)
        sum += found[key];
    for (size_t key = 0; key < keys; key++)
        out[key] = sum * expected[key];
}

static void predict_logarithms(const double *expected, const double *found, size_t keys, double *out)
{
    double mean = 0, weight = 0;
    for (size_t key = 0; key < keys; key++)
        if (expected[key] > 0) {
            mean += expected[key] * (found[key] - log(expected[key]));
            weight += expected[key];
        }
    for (size_t key = 0; key < keys; key++)
        out[key] = expected[key] > 0 ? log(expected[key]) + mean / weight : found[key];
}

static bool predict_claim(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct claim *claim = formula->numbers;
    const struct ts_actor *actor = the_case->actor;
    const size_t keys = actor->inner;
    struct ts_mask mask = {0}, found = {0};
    bool good = true;
    if (claim->relation == OTHER_MASK && (good = ts_mask_open(&mask, the_case) && ts_mask_open(&found, the_case))) {
        ts_mask_read(&found, actor, actor->b, false);
        ts_mask_band(&mask, &claim->shape);
        ts_mask_fill(&mask, &claim->shape, &found, NULL);
    }
    for (size_t start = 0; start < the_case->total && good; start += keys) {
        const double *x = the_case->expected + start, *y = the_case->found + start;
        if (claim->relation == OTHER_MASK)
            predict_masked(mask.allowed + start / actor->width * keys, x, y, keys, out + start);
        else if (claim->relation == POWER)
            predict_power(claim->power, x, keys, out + start);
        else if (claim->relation == LATE_MASK)
            predict_late(x, y, keys, out + start);
        else
            predict_logarithms(x, y, keys, out + start);
    }
    ts_mask_close(&mask);
    ts_mask_close(&found);
    return good;
}

/* Share of rows that sum to one, and what the first and the last row of each head sum to on average. */
struct totals {
    double ones, first, last;
    bool negative;
};

static struct totals add_up(const struct ts_actor *actor, const double *values)
{
    struct totals totals = {0};
    const size_t lanes = actor->rows * actor->heads;
    for (size_t lane = 0; lane < lanes; lane++) {
        double sum = 0;
        for (size_t i = lane * actor->inner; i < (lane + 1) * actor->inner; i++) {
            sum += values[i];
            totals.negative = totals.negative || values[i] < 0;
        }
        totals.ones += fabs(sum - 1) < ONE_NEARLY ? 1 / (double)lanes : 0;
        totals.first += lane < actor->heads ? sum / (double)actor->heads : 0;
        totals.last += lane >= lanes - actor->heads ? sum / (double)actor->heads : 0;
    }
    return totals;
}

/* How much steeper the candidate's logarithms are, each key counted for what it weighs. */
static double find_power(const struct ts_case *the_case)
{
    double upper = 0, lower = 0;
    for (size_t start = 0; start < the_case->total; start += the_case->actor->inner) {
        double weight = 0, x = 0, y = 0, xx = 0, xy = 0;
        for (size_t i = start; i < start + the_case->actor->inner; i++) {
            double own = the_case->expected[i], a, b;
            if (!(own > SMALLEST) || !(the_case->found[i] > SMALLEST))
                continue;
            a = log(own);
            b = log(the_case->found[i]);
            weight += own;
            x += own * a;
            y += own * b;
            xx += own * a * a;
            xy += own * a * b;
        }
        if (weight > 0) {
            upper += xy - x * y / weight;
            lower += xx - x * x / weight;
        }
    }
    return lower > 0 ? upper / lower : 1;
}

/* Fills `out` and says whether that explains nearly all of the error; the next proposal is of this claim then. */
static bool holds(struct ts_case *the_case, const struct claim *claim, double *out)
{
    struct ts_formula formula = {.predict = predict_claim, .numbers = claim, .size = sizeof *claim};
    if (!predict_claim(the_case, &formula, out) || ts_explained(the_case, out) < HOLDS)
        return false;
    ts_formula_next(the_case, &formula);
    return true;
}

static void propose_mask(struct ts_case *the_case, double *out)
{
    const struct ts_actor *actor = the_case->actor;
    struct ts_mask reference = {0}, found = {0}, band = {0};
    struct claim claim = {.relation = OTHER_MASK};
    struct ts_mask_shape own;
    if (ts_mask_open(&reference, the_case) && ts_mask_open(&found, the_case) && ts_mask_open(&band, the_case)) {
        ts_mask_read(&reference, actor, actor->a, false);
        ts_mask_read(&found, actor, actor->b, false);
        claim.shape = ts_mask_describe(&found);
        own = ts_mask_describe(&reference);
        ts_mask_band(&band, &claim.shape);
        ts_mask_fill(&band, &claim.shape, &found, NULL);
        if (!ts_is_one_shape(&claim.shape, &own) &&
            (double)ts_mask_differences(&band, &found) <= NO_BAND * (double)(found.rows * found.keys) &&
            holds(the_case, &claim, out))
            ts_propose(the_case, "mask", out, 0, ts_mask_check(&claim.shape, &own),
                       "in the candidate %s; in the reference %s", ts_mask_text(the_case, &claim.shape, actor->inner),
                       ts_mask_text(the_case, &own, actor->inner));
    }
    ts_mask_close(&reference);
    ts_mask_close(&found);
    ts_mask_close(&band);
}

void ts_propose_probabilities(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    struct claim claim = {.relation = POWER};
    double *out = ts_case_scratch(the_case);
    struct totals own, found;
    if (!out || actor->inner != actor->sequence || actor->rows < FEWEST_ROWS ||
        actor->width != actor->heads * actor->inner)
        return;
    own = add_up(actor, the_case->expected);
    found = add_up(actor, the_case->found);
    if (own.negative || own.ones < NEARLY_ALL)
        return;
    if (!found.negative && found.ones >= NEARLY_ALL) {
        propose_mask(the_case, out);
        claim.power = find_power(the_case);
        if (fabs(claim.power - 1) > NO_POWER && claim.power > 0 && holds(the_case, &claim, out))
            ts_propose(the_case, "softmax", out, 1,
                       "the scale of the scores: 1 / sqrt(head_dim) applied twice or left out, or a temperature",
                       "the candidate's softmax has another temperature: it scales the scores by %.3g", claim.power);
        return;
    }
    claim.relation = found.negative ? LOGARITHMS : LATE_MASK;
    if (found.negative && holds(the_case, &claim, out))
        ts_propose(the_case, "softmax", out, actor->rows * actor->heads, "whether the softmax is applied",
                   "the candidate applies no softmax: the reference is the softmax of the candidate's numbers");
    /* the last token sees everything: no mask that comes late takes anything from it */
    if (!found.negative && fabs(found.last - 1) < ONE_NEARLY && found.first < NEARLY_ALL &&
        holds(the_case, &claim, out))
        ts_propose(the_case, "mask", out, 0, "that the mask is added to the scores before the softmax",
                   "the candidate applies the mask after the softmax and does not normalize again");
}
