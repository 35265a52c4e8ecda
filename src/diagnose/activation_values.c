/* Owns another activation that is told by its results alone, where what goes in was not captured: a fused projection,
 * the inside of experts. silu and its like fall to a least value and rise from there, so that a result has one argument
 * if it is positive and two if it is not; what the other function makes of one of them is what the candidate holds. */
#include <stdlib.h>

#include "diagnose/functions.h"
#include "diagnose/variant.h"

#define KNOTS     4096
#define LEVEL     30.0 /* from here on a result is its argument */
#define LEFT_END  (-40.0)
#define LEFT_OVER 0.2 /* of the error of positive results may be left: those have no choice */
#define AS_GOOD   2.0 /* times what the best leaves: rounding hides which it is */
#define LEAST     64
#define ON_TOP    0.8 /* of the error must be explained by a function too many */

/* The functions that have a least value, and where. */
static const struct bowl {
    enum ts_activation function;
    double bottom;
} bowls[] = {{TS_ACTIVATION_SILU, -1.2784645427610738},
             {TS_ACTIVATION_GELU, -0.7517915246935645},
             {TS_ACTIVATION_GELU_TANH, -0.7524614220710162},
             {TS_ACTIVATION_QUICK_GELU, -0.7511542554412890}};

/* What another function makes of the arguments of a result, by the root of its height above the least one, in which
 * both arguments are smooth. */
struct curve {
    double least, step;
    double right[KNOTS + 1], left[KNOTS + 1];
};

/* The argument beyond the bottom, towards `end`, at which the function has this value. */
static double argument(const struct bowl *bowl, double end, double value)
{
    double near = bowl->bottom, far = end;
    for (int i = 0; i < 60; i++) {
        double middle = (near + far) / 2;
        if (ts_activation_value(bowl->function, middle) < value)
            near = middle;
        else
            far = middle;
    }
    return (near + far) / 2;
}

static void draw(const struct bowl *bowl, enum ts_activation other, struct curve *curve)
{
    curve->least = ts_activation_value(bowl->function, bowl->bottom);
    curve->step = sqrt(LEVEL - curve->least) / KNOTS;
    for (size_t k = 0; k <= KNOTS; k++) {
        double root = (double)k * curve->step, value = curve->least + root * root;
        curve->right[k] = ts_activation_value(other, argument(bowl, LEVEL + 1, value));
        curve->left[k] = value < 0 ? ts_activation_value(other, argument(bowl, LEFT_END, value)) : 0;
    }
}

static double on_curve(const double *knots, double at)
{
    size_t k = at < KNOTS ? (size_t)at : KNOTS - 1;
    return knots[k] + (at - (double)k) * (knots[k + 1] - knots[k]);
}

static double value_of(const struct curve *curve, enum ts_activation other, double expected, double found)
{
    double at = expected > curve->least ? sqrt(expected - curve->least) / curve->step : 0, right, left;
    if (!isfinite(expected) || expected >= LEVEL)
        return isfinite(expected) ? ts_activation_value(other, expected) : expected;
    right = on_curve(curve->right, at);
    left = expected < 0 ? on_curve(curve->left, at) : right;
    return fabs(left - found) < fabs(right - found) ? left : right;
}

struct functions {
    size_t bowl;
    enum ts_activation other;
};

static bool predict(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct functions *functions = formula->numbers;
    struct curve *curve = malloc(sizeof *curve);
    if (!curve)
        return false;
    draw(&bowls[functions->bowl], functions->other, curve);
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = value_of(curve, functions->other, the_case->expected[i], the_case->found[i]);
    free(curve);
    return true;
}

/* The results can be this function's: they go down to its least value, or most of the way, and not below. */
static bool can_be(const struct bowl *bowl, double lowest, int bits)
{
    double least = ts_activation_value(bowl->function, bowl->bottom);
    return lowest < 0.5 * least && lowest > least * (1 + 4 * ldexp(1, -bits));
}

/* What is left of the error of results that are above zero, over that error. */
static double left_above(const struct ts_case *the_case, const double *prediction)
{
    double left = 0, error = 0;
    for (size_t i = 0; i < the_case->total; i++) {
        double expected = the_case->expected[i], found = the_case->found[i];
        if (!(expected > 0) || !isfinite(found) || ts_case_aside(the_case, i / the_case->actor->width))
            continue;
        left += (found - prediction[i]) * (found - prediction[i]);
        error += (found - expected) * (found - expected);
    }
    return error > 0 ? left / error : 1;
}

void ts_propose_other_function(struct ts_case *the_case)
{
    double *prediction = ts_case_scratch(the_case), lowest = 0, least = 1, second = 1;
    enum ts_activation twin = TS_ACTIVATION_COUNT;
    int bits = the_case->actor->bits_a;
    struct functions best = {.other = TS_ACTIVATION_COUNT};
    if (!prediction || the_case->total < LEAST || ts_case_quiet(the_case))
        return;
    for (size_t i = 0; i < the_case->total; i++)
        lowest = the_case->expected[i] < lowest ? the_case->expected[i] : lowest;
    for (size_t bowl = 0; bowl < sizeof bowls / sizeof *bowls; bowl++)
        for (int other = 0; other < TS_ACTIVATION_COUNT && can_be(&bowls[bowl], lowest, bits); other++) {
            struct functions functions = {bowl, (enum ts_activation)other};
            struct ts_formula formula = {.numbers = &functions};
            double left;
            if (functions.other == bowls[bowl].function || !predict(the_case, &formula, prediction) ||
                !(left_above(the_case, prediction) < LEFT_OVER))
                continue;
            left = 1 - ts_explained(the_case, prediction);
            if (left < least) {
                second = least;
                twin = best.bowl == bowl ? best.other : TS_ACTIVATION_COUNT;
                least = left;
                best = functions;
            } else if (left < second) {
                second = left;
                twin = best.bowl == bowl ? functions.other : TS_ACTIVATION_COUNT;
            }
        }
    if (best.other == TS_ACTIVATION_COUNT)
        return;
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict, .numbers = &best, .size = sizeof best});
    if (predict(the_case, &(struct ts_formula){.numbers = &best}, prediction))
        ts_propose(the_case, "activation", prediction, 2,
                   "the activation function (hidden_act), and which projection it is applied to",
                   "the candidate applies %s%s, the reference %s (inferred from the outputs alone)",
                   best.other == TS_ACTIVATION_IDENTITY ? "no activation" : ts_activation_name(best.other),
                   twin == TS_ACTIVATION_COUNT || second > AS_GOOD * fmax(least, 1e-9)
                       ? ""
                       : ts_case_text(the_case, " (or %s; rounding hides the difference)", ts_activation_name(twin)),
                   ts_activation_name(bowls[best.bowl].function));
}

/* Functions that may be applied to what is right already: those that models apply, and squares. */
enum { SQUARE = TS_FUNCTIONS, SIGNED_SQUARE, CUBE, RESULTS };

static double value_on_top(size_t function, double x)
{
    return function == SQUARE          ? x * x
           : function == SIGNED_SQUARE ? x * fabs(x)
           : function == CUBE          ? x * x * x
                                       : ts_function_value(function, x);
}

static const char *name_on_top(size_t function)
{
    return function == SQUARE ? "x * x" : function == SIGNED_SQUARE ? "x * |x|" : "x * x * x";
}

static bool predict_on_top(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const size_t *function = formula->numbers;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = value_on_top(*function, the_case->expected[i]);
    return true;
}

/* What one factor does as well is no function: near zero silu is half of what it is given. */
static bool is_a_factor(const struct ts_case *the_case, const double *prediction)
{
    double products = 0, squares = 0, by_factor = 0, by_function = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < the_case->total; i++) {
            const double x = the_case->expected[i], y = the_case->found[i];
            if (!isfinite(x) || !isfinite(y))
                continue;
            if (pass) {
                by_factor += (y - products / squares * x) * (y - products / squares * x);
                by_function += (y - prediction[i]) * (y - prediction[i]);
            } else {
                products += x * y;
                squares += x * x;
            }
        }
    return squares > 0 && by_factor <= by_function;
}

void ts_propose_function_on_top(struct ts_case *the_case)
{
    double *prediction = ts_case_scratch(the_case);
    struct ts_formula formula = {.predict = predict_on_top, .size = sizeof(size_t)};
    size_t functions[RESULTS], count = 0;
    const size_t *best;
    if (!prediction || ts_case_direct(the_case) || the_case->total < LEAST || ts_case_quiet(the_case) ||
        !ts_case_wants(the_case, "activation"))
        return;
    for (size_t f = 0; f < RESULTS; f++)
        if (f != TS_ACTIVATION_IDENTITY)
            functions[count++] = f;
    best = ts_formula_best(the_case, &formula, functions, count, ON_TOP, prediction);
    if (!best || is_a_factor(the_case, prediction))
        return;
    ts_formula_next(the_case, &formula);
    ts_propose(the_case, "activation", prediction, 0, "a function that is applied to this tensor on one side only",
               "each number is %s%s where x is expected: a function too many",
               *best < TS_FUNCTIONS ? ts_function_name(*best) : name_on_top(*best), *best < TS_FUNCTIONS ? "(x)" : "");
}
