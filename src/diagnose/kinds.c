/* Owns the ids of causes, and which of several says more. */
#include "diagnose/kinds.h"

#include <string.h>

/* Of two that explain as much the one that says more comes first. These break ties and nothing else. */
struct kind {
    const char *id;
    double bonus;
};

static const struct kind kinds[] = {
    /* names a step of the model */
    {"activation", 0.05},
    {"mask", 0.05},
    {"softmax", 0.05},
    {"rotation", 0.05},
    {"term-missing", 0.05},
    {"term-extra", 0.05},
    {"skipped-op", 0.055},
    {"wrong-input", 0.05},
    {"modulation", 0.05},
    {"router-gate", 0.05},
    {"routing", 0.05},
    {"swapped-with", 0.05},
    {"transposed-weight", 0.05},
    /* names what happened to the memory */
    {"nan", 0.08},
    {"inf", 0.08},
    {"zeros", 0.05},
    {"stale", 0.045},
    {"unwritten", 0.045}, /* one number to the last bit: before one offset for all */
    {"sparse", 0.04},
    {"dtype-confusion", 0.09}, /* before nan and inf, which some of the bits are bound to be */
    {"permuted", 0.05},
    {"shifted", 0.05},
    /* names a relation */
    {"sign-flipped", 0.035},
    {"centering", 0.04},
    {"clamped", 0.03},
    {"scaled", 0.03},
    {"offset", 0.025},
    {"row-scaled", 0.025},
    {"channel-scaled", 0.025},
    {"affine", 0.02},
    {"quantization", 0.02},
    {"rounding", 0.02},
    /* names a place */
    {"heads", 0},
    {"rows", 0},
    {"channels", 0},
    {"unrelated", -0.3},
};

const char *ts_cause_id(size_t index)
{
    return index < sizeof kinds / sizeof *kinds ? kinds[index].id : NULL;
}

double ts_kind_bonus(const char *id)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].id, id) == 0)
            return kinds[i].bonus;
    return 0;
}
