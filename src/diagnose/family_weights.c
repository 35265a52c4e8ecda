/* Weights: what a parameter of a checkpoint tells by itself when it has no relation to the reference's: a fresh
 * initialization has a shape of its own. */
#include <stdlib.h>

#include "compare/judge.h"
#include "diagnose/families.h"

struct moments {
    double mean, std, kurtosis;
};

static struct moments moments_of(const double *values, size_t count)
{
    struct moments m = {0};
    double square = 0, fourth = 0;
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) {
            m.mean += values[i];
            used++;
        }
    m.mean /= used ? (double)used : 1;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) {
            double d = values[i] - m.mean;
            square += d * d;
            fourth += d * d * d * d;
        }
    m.std = used ? sqrt(square / (double)used) : 0;
    m.kurtosis = square > 0 ? fourth * (double)used / (square * square) : 0;
    return m;
}

static void propose(struct ts_case *the_case)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    double dot = 0, a = 0, b = 0, cosine, inputs, error;
    struct moments found, expected;
    const char *looks = "";
    bool weights;
    if (!ts_case_direct(the_case) || the_case->total < 256 || pair->a.rank < 2 || ts_case_quiet(the_case))
        return;
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->expected[i]) && isfinite(the_case->found[i])) {
            dot += the_case->expected[i] * the_case->found[i];
            a += the_case->expected[i] * the_case->expected[i];
            b += the_case->found[i] * the_case->found[i];
        }
    if (!(a > 0) || !(b > 0))
        return;
    cosine = dot / sqrt(a * b);
    /* unrelated numbers are this alike by chance */
    if (fabs(cosine) > 0.05 + 4 / sqrt((double)the_case->total))
        return;
    found = moments_of(the_case->found, the_case->total);
    expected = moments_of(the_case->expected, the_case->total);
    weights = ts_judge_are_weights(the_case->scene->pairs, the_case->scene->pair_count) || ts_is_weight(pair->name);
    inputs = (double)pair->a.shape[pair->a.rank - 1];
    error = 6 / sqrt((double)the_case->total); /* of a kurtosis estimated from so many, some standard errors */
    if (weights && fabs(found.mean) < 4 * found.std / sqrt((double)the_case->total)) {
        if (fabs(found.kurtosis - 1.8) < error)
            looks = fabs(found.std * sqrt(3 * inputs) - 1) < 0.03
                        ? "; it is uniform between -1/sqrt(inputs) and 1/sqrt(inputs), as torch.nn.Linear starts"
                        : "; it is uniform, as a fresh initialization is";
        else if (fabs(found.kurtosis - 3) < 2 * error)
            looks = fabs(found.std - 0.02) < 4e-4
                        ? "; it is normal with a standard deviation of 0.02, as a fresh initialization is"
                        : "; it is normal to within chance, as a fresh initialization is";
    }
    ts_propose_plain(the_case, "unrelated", looks[0] ? 0.95 : 0.85,
                     looks[0]  ? "whether this weight was loaded at all: a name that did not match, a missing shard"
                     : weights ? "whether this is the same model, the same layer and the same training step"
                               : "whether both runs were given the same input, and load the same weights up to here",
                     "no relation to the reference (cosine %.3f); standard deviation %.4g against %.4g, kurtosis %.2f "
                     "against %.2f%s",
                     cosine, found.std, expected.std, found.kurtosis, expected.kurtosis, looks);
}

const struct ts_family ts_family_weights = {.name = "weights", .propose = propose};
