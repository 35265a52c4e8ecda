/* Owns what goes wrong inside of the experts, whose inside nobody captured: another activation. It changes all tokens
 * alike, whatever the router's weights are. If what the gate and the other half of an expert are made of is normal, how
 * much of a token stays and how much is there besides are two numbers that follow from the two functions and from the
 * size of what goes into them, which alone is not known. Coarser weights leave what the reference holds as it is. */
#include <math.h>

#include "diagnose/experts.h"
#include "diagnose/variant.h"

#define MOST_LEFT  0.25 /* of a row, squared: more is not alike */
#define CLOSE      0.03
#define LEAST_SURE 6.0  /* times the error of the mean: rounded weights reach 4 */
#define SHOWN      0.02 /* of what the reference holds */
#define COARSE     3.0  /* times what the logits err by: coarse weights in all of a run made experts err by 2 */
#define SIZES      40   /* of what goes into the function, from a third to three, that are tried */
#define STEPS      240  /* of an integral from minus six to six */
#define SURE       0.55

enum function { SILU, GELU, RELU, NONE, OTHER_OPERAND };

static double apply(enum function function, double x)
{
    switch (function) {
    case SILU:
        return x / (1 + exp(-x));
    case GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case RELU:
        return fmax(x, 0);
    default:
        return x;
    }
}

/* What becomes of f(g) * u where it is other(g) * u, or f(u) * g. */
static void predict(enum function function, enum function other, double size, double *slope, double *rest)
{
    double own = 0, both = 0, others = 0, turned = 0, all = 0;
    for (int step = -STEPS / 2; step <= STEPS / 2; step++) {
        const double z = 12.0 * step / STEPS, weight = exp(-z * z / 2), x = size * z;
        const double f = apply(function, x), g = apply(other, x);
        all += weight;
        own += weight * f * f;
        both += weight * f * g;
        others += weight * g * g;
        turned += weight * f * x;
    }
    *slope = other == OTHER_OPERAND ? turned * turned / (own * all * size * size) : both / own;
    *rest = sqrt(fmax((other == OTHER_OPERAND ? 1 : others / own) - *slope * *slope, 0));
}

void ts_propose_inside(struct ts_case *the_case, const struct ts_alike *alike)
{
    static const char *const names[] = {"silu", "gelu", "relu", "no function", "gate and up exchanged"};
    const char *text = "";
    if (alike->left > MOST_LEFT || fabs(alike->slope - 1) < SHOWN ||
        alike->rest < COARSE * fabs(alike->slope) * alike->came ||
        fabs(alike->slope - 1) < LEAST_SURE * alike->spread / sqrt((double)alike->rows))
        return;
    for (int function = SILU; function <= GELU; function++)
        for (int other = SILU; other <= OTHER_OPERAND; other++) {
            double least = CLOSE, of = 0;
            for (int i = 0; i <= SIZES && other != function; i++) {
                const double size = exp2(log2(3) * (2.0 * i / SIZES - 1));
                double slope, rest, along, besides;
                predict((enum function)function, (enum function)other, size, &slope, &rest);
                along = (alike->slope - slope) / rest;
                besides = log(alike->rest / rest);
                if (along * along + besides * besides < least) {
                    least = along * along + besides * besides;
                    of = size;
                }
            }
            if (of > 0 && other == OTHER_OPERAND)
                text = ts_case_text(the_case, "%s%s%s with %s of values of size %.2g", text, *text ? ", or " : "",
                                    names[other], names[function], of);
            else if (of > 0)
                text = ts_case_text(the_case, "%s%s%s in place of %s with values of size %.2g", text,
                                    *text ? ", or " : "", names[other], names[function], of);
        }
    if (!*text)
        return;
    ts_formula_next(the_case, &(struct ts_formula){.told_by = alike->rows});
    ts_propose_plain(the_case, "activation", SURE,
                     "the experts' activation, and which half of their first weight is the gate; capture the inside of "
                     "one expert to be sure",
                     "all tokens are changed alike, whatever their experts weigh: each holds %.3g times what the "
                     "reference has, and %.3g of its size besides, as another activation inside of the experts makes "
                     "it: %s",
                     alike->slope, alike->rest, text);
}
