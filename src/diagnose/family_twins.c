/* Twins: the other kind of gelu, or another epsilon, which change each number by less than it is rounded by. All of
 * them together tell (compare/operation_match.c); no other family has an error to explain then. */
#include "diagnose/variant.h"

#define SURE 0.9

static void propose(struct ts_case *the_case)
{
    const struct ts_operation *operation = &the_case->operation;
    struct ts_operation sides[2];
    double errors;
    if (ts_case_direct(the_case) || ts_case_is_part(the_case) || !the_case->total ||
        !((errors = ts_operation_match(the_case->scene, operation, the_case->actor, sides)) > 0))
        return;
    if (operation->kind == TS_OPERATION_NORM)
        ts_propose_below_noise(the_case, "row-scaled", SURE, "the epsilon of this norm (rms_norm_eps)",
                               "another epsilon: %.3g in the candidate, %.3g in the reference; no single number is off "
                               "by more than rounding, but together they show it by %.0f standard errors",
                               sides[1].epsilon, sides[0].epsilon, errors);
    else
        ts_propose_below_noise(the_case, "activation", SURE, "the activation function (hidden_act)",
                               "the candidate applies %s, the reference %s; no single number is off by more than "
                               "rounding, but together they show it by %.0f standard errors",
                               ts_activation_name(sides[1].activation), ts_activation_name(sides[0].activation),
                               errors);
}

const struct ts_family ts_family_twins = {"twins", propose};
