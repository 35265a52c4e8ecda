/* Weights: what a parameter of a checkpoint tells by itself when it has no relation to the reference's: a fresh
 * initialization has a shape of its own. */
#include <stdlib.h>

#include "compare/judge.h"
#include "diagnose/families.h"
#include "diagnose/formula.h"

#define SAME_KURTOSIS 0.01 /* rounding to short types moves it by less */

/* Slots of a tally: the product of both sides, how many, and sums of the first four powers of each side's distance from
 * a number near its mean. */
enum { DOT, COUNT, OF_EXPECTED, OF_FOUND = OF_EXPECTED + 4 };
_Static_assert(OF_FOUND + 4 <= TS_TALLY_SUMS, "a tally has so many sums");

struct moments {
    double mean, std, kurtosis, square; /* the last: about zero */
};

static void add_powers(double distance, double *sums)
{
    double power = distance;
    for (int k = 0; k < 4; k++, power *= distance)
        sums[k] += power;
}

/* The table: a number near the mean of each side. */
static bool count(struct ts_case *the_case, const struct ts_formula *formula, const double *out, struct ts_tally *tally)
{
    (void)out;
    for (size_t i = 0; i < the_case->total; i++) {
        double x = the_case->expected[i], y = the_case->found[i];
        if (!isfinite(x) || !isfinite(y))
            continue;
        tally->sums[DOT] += x * y;
        tally->sums[COUNT]++;
        add_powers(x - formula->table[0], tally->sums + OF_EXPECTED);
        add_powers(y - formula->table[1], tally->sums + OF_FOUND);
    }
    return true;
}

static struct moments moments_of(const double *sums, double count, double near)
{
    struct moments m = {0};
    double off = sums[0] / count, square = sums[1] / count - off * off;
    double fourth = sums[3] / count - 4 * off * sums[2] / count + 6 * off * off * sums[1] / count - 3 * pow(off, 4);
    m.mean = near + off;
    m.std = square > 0 ? sqrt(square) : 0;
    m.kurtosis = square > 0 ? fourth / (square * square) : 0;
    m.square = sums[1] + 2 * near * sums[0] + count * near * near;
    return m;
}

static bool are_weights(const struct ts_case *the_case)
{
    return ts_judge_are_weights(the_case->scene->pairs, the_case->scene->pair_count) ||
           ts_is_weight(ts_case_pair(the_case)->name);
}

/* What such numbers look like; "" when like nothing. */
static const char *looks_like(const struct ts_case *the_case, const struct moments *found, double number)
{
    const struct ts_view *view = &ts_case_pair(the_case)->a;
    double inputs = (double)view->shape[view->rank - 1];
    double error = fmax(6 / sqrt(number), SAME_KURTOSIS); /* of an estimate from so many, some standard errors */
    if (!are_weights(the_case) || fabs(found->mean) >= 4 * found->std / sqrt(number))
        return "";
    if (fabs(found->kurtosis - 1.8) < error)
        return fabs(found->std * sqrt(3 * inputs) - 1) < 0.03
                   ? "; it is uniform between -1/sqrt(inputs) and 1/sqrt(inputs), like a fresh torch.nn.Linear"
                   : "; it is uniform, like a fresh initialization";
    if (fabs(found->kurtosis - 3) < 2 * error)
        return fabs(found->std - 0.02) < 4e-4
                   ? "; it is normal with a standard deviation of 0.02, like a fresh initialization"
                   : "; it is normally distributed, like a fresh initialization";
    return "";
}

/* The sentence, and what it looks like; NULL when the two are related. */
static const char *sentence(struct ts_case *the_case, const struct ts_tally *tally, const double *near,
                            const char **looks)
{
    double number = tally->sums[COUNT], cosine;
    struct moments expected = moments_of(tally->sums + OF_EXPECTED, number, near[0]);
    struct moments found = moments_of(tally->sums + OF_FOUND, number, near[1]);
    if (!(expected.square > 0) || !(found.square > 0))
        return NULL;
    cosine = tally->sums[DOT] / sqrt(expected.square * found.square);
    /* unrelated numbers are this alike by chance */
    if (fabs(cosine) > 0.05 + 4 / sqrt(number))
        return NULL;
    *looks = looks_like(the_case, &found, number);
    return ts_case_text(the_case,
                        "no relation to the reference (cosine %.3f); the candidate has a standard deviation of %.4g "
                        "(reference %.4g) and a kurtosis of %.2f (reference %.2f)%s",
                        cosine, found.std, expected.std, found.kurtosis, expected.kurtosis, *looks);
}

static double sure_of(const char *looks)
{
    return looks[0] ? 0.95 : 0.85;
}

static const char *tell(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                        double *share)
{
    const char *looks, *text = sentence(the_case, tally, formula->table, &looks);
    *share = text ? sure_of(looks) : 0;
    return text;
}

static void propose(struct ts_case *the_case)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    double near[2] = {0, 0}, number = 0;
    struct ts_formula formula = {.count = count, .tell = tell, .table = near, .table_count = 2};
    struct ts_tally tally;
    const char *looks, *text;
    if (!ts_case_direct(the_case) || the_case->total < 256 || pair->a.rank < 2 || ts_case_quiet(the_case))
        return;
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->expected[i]) && isfinite(the_case->found[i])) {
            near[0] += the_case->expected[i];
            near[1] += the_case->found[i];
            number++;
        }
    near[0] /= number > 0 ? number : 1;
    near[1] /= number > 0 ? number : 1;
    ts_tally_open(&tally);
    (void)count(the_case, &formula, NULL, &tally);
    if (!(number > 0) || !(text = sentence(the_case, &tally, near, &looks)))
        return;
    ts_formula_next(the_case, &formula);
    ts_propose_plain(the_case, "unrelated", sure_of(looks),
                     looks[0] ? "whether this weight was loaded at all: a name that did not match, a missing shard"
                     : are_weights(the_case)
                         ? "whether this is the same model, the same layer and the same training step"
                         : "whether both runs got the same input, and loaded the same weights up to here",
                     "%s", text);
}

const struct ts_family ts_family_weights = {.name = "weights", .propose = propose};
