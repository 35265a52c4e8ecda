/* Norm: what goes wrong in a normalization whose weights and epsilon were learnt from the reference. All of it would be
 * seen by the algebra as a factor per channel or per row; here it is said what the factor is, with no freedom at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/variant.h"

#define BETTER           1.1 /* an epsilon that is not a usual one must leave that many times less */
#define MOST_OTHER_NORMS 12
#define WORTHWHILE       0.3

struct norm {
    struct ts_case *the_case;
    const double *input; /* the candidate's; of a norm of a sum the sum */
    double *prediction;
};

static const double *apply(const struct norm *norm, const struct ts_operation *operation)
{
    double *inputs[3] = {(double *)norm->input, NULL, NULL}; /* a norm of a sum is given the sum at once */
    struct ts_operation one = *operation;
    one.input_count = 1; /* a sum of two stands added up in norm->input */
    ts_operation_apply(norm->the_case->scene, &one, norm->the_case->actor, inputs, norm->prediction);
    return norm->prediction;
}

/* The same operation with another table. A norm with a scale and a shift that were not captured looks like one with the
 * weight 1 + scale and the bias shift. */
enum change { PLUS_ONE, MINUS_ONE, ONES, SQUARED, NO_BIAS, EXCHANGED, SCALE_AND_SHIFT, BIAS_FIRST, CHANGES };

static void change_numbers(enum change change, double *weight, double *bias)
{
    const double w = *weight, b = *bias;
    *weight = change == PLUS_ONE          ? 1 + w
              : change == MINUS_ONE       ? w - 1
              : change == ONES            ? 1
              : change == SQUARED         ? w * w
              : change == EXCHANGED       ? b
              : change == SCALE_AND_SHIFT ? 1 + b
                                          : w;
    *bias = change == NO_BIAS           ? 0
            : change == EXCHANGED       ? w
            : change == SCALE_AND_SHIFT ? w - 1
            : change == BIAS_FIRST      ? b * w
                                        : b;
}

static void other_weights(const struct norm *norm)
{
    static const struct {
        const char *id, *check, *text;
    } words[CHANGES] = {
        {"channel-scaled", "whether this norm applies w or 1 + w, and whether the file was converted twice",
         "each channel has the factor (1 + w) / w: the candidate applies the weight as 1 + w"},
        {"channel-scaled", "whether this norm applies w or 1 + w (Gemma and its kin)",
         "each channel has the factor (w - 1) / w: the candidate leaves out the 1 of 1 + w"},
        {"channel-scaled", "whether the norm's weight is loaded and applied",
         "each channel has the factor 1 / w: the candidate does not apply the norm's weight"},
        {"channel-scaled", "whether the weight is folded into the next layer and applied here as well",
         "each channel has the factor w: the candidate applies the norm's weight twice"},
        {"offset", "whether the norm's bias is loaded and applied", "the candidate does not apply the norm's bias"},
        {"channel-scaled", "which of the two tensors is bound to weight and which to bias",
         "the candidate's norm has its weight and its bias exchanged"},
        {"modulation", "the order of scale and shift in the chunks of the modulation",
         "scale and shift of this norm are exchanged: where the reference computes x * (1 + scale) + shift, the "
         "candidate computes x * (1 + shift) + scale"},
        {"modulation", "the order of scaling and shifting behind the norm",
         "the candidate adds the bias (or shift) before it multiplies by the weight (or scale), the reference behind "
         "it"},
    };
    struct ts_operation changed = norm->the_case->operation;
    size_t group = changed.group;
    double *table = malloc(changed.table_count * sizeof *table), bias = 0;
    for (size_t i = 0; i < group; i++)
        bias += fabs(changed.table[group + i]);
    for (int change = 0; table && change < CHANGES; change++) {
        const struct ts_operation *right = &norm->the_case->operation;
        if (change >= NO_BIAS && bias == 0)
            continue;
        memcpy(table, right->table, changed.table_count * sizeof *table);
        for (size_t i = 0; i < group; i++)
            change_numbers((enum change)change, table + i, table + group + i);
        changed.table = table;
        ts_formula_operation(norm->the_case, &changed);
        ts_propose(norm->the_case, words[change].id, apply(norm, &changed), 0, words[change].check, "%s",
                   words[change].text);
    }
    free(table);
}

static void other_mean(const struct norm *norm)
{
    struct ts_operation changed = norm->the_case->operation;
    changed.centred = !changed.centred;
    ts_formula_operation(norm->the_case, &changed);
    ts_propose(norm->the_case, "centering", apply(norm, &changed), 0,
               "which norm the candidate uses: LayerNorm or RMSNorm",
               changed.centred
                   ? "the candidate removes the mean of each row, as LayerNorm does; the reference's norm does not"
                   : "the candidate does not remove the mean of each row, as in RMSNorm; the reference's norm does");
    if (!changed.centred && changed.flag) { /* RMSNorm has no bias */
        double *table = calloc(changed.table_count, sizeof *table);
        if (table)
            memcpy(table, changed.table, changed.group * sizeof *table);
        changed.table = table;
        if (table)
            ts_formula_operation(norm->the_case, &changed);
        if (table)
            ts_propose(norm->the_case, "centering", apply(norm, &changed), 0,
                       "which norm the candidate uses: LayerNorm or RMSNorm",
                       "the candidate uses an RMSNorm (the mean of each row is not removed, and there is no bias), the "
                       "reference a LayerNorm");
        free(table);
    }
}

/* The norm of several heads at once, or of each head where all are meant. */
static void other_group(const struct norm *norm)
{
    const struct ts_actor *actor = norm->the_case->actor;
    const struct ts_operation *right = &norm->the_case->operation;
    struct ts_operation changed = *right;
    double *table;
    changed.group = right->group == actor->width ? actor->inner : actor->width;
    if (changed.group == right->group || changed.group < 2 || right->group != actor->inner)
        return;
    table = malloc(2 * changed.group * sizeof *table);
    for (size_t i = 0; table && i < changed.group; i++) {
        table[i] = right->table[i % right->group];
        table[changed.group + i] = right->table[right->group + i % right->group];
    }
    changed.table = table;
    changed.table_count = 2 * changed.group;
    if (table)
        ts_formula_operation(norm->the_case, &changed);
    if (table)
        ts_propose(norm->the_case, "row-scaled", apply(norm, &changed), 0, "the axis over which the norm is taken",
                   "the candidate normalizes all %zu channels of a token together instead of each head's %zu",
                   actor->width, right->group);
    free(table);
}

static void by_pieces(const struct ts_case *the_case, const double *input, size_t size, double *out)
{
    const struct ts_operation *right = &the_case->operation;
    for (size_t start = 0; start + size <= the_case->total; start += size) {
        double mean = 0, squares = 0;
        for (size_t i = start; right->centred && i < start + size; i++)
            mean += input[i] / (double)size;
        for (size_t i = start; i < start + size; i++)
            squares += (input[i] - mean) * (input[i] - mean) / (double)size;
        for (size_t i = start; i < start + size; i++)
            out[i] = (input[i] - mean) / sqrt(squares + right->epsilon) * right->table[i % right->group] +
                     right->table[right->group + i % right->group];
    }
}

static bool predict_pieces(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const double *input = ts_case_norm_input(the_case);
    if (input)
        by_pieces(the_case, input, *(const size_t *)formula->numbers, out);
    return input != NULL;
}

/* Each of several equal pieces of the row has a mean of its own: a rank, a head or a group that is normalized alone. */
static void pieces(const struct norm *norm)
{
    const struct ts_operation *right = &norm->the_case->operation;
    size_t group = right->group, total = norm->the_case->total, best = 0;
    double most = 0.5;
    for (size_t parts = 2; parts <= 64 && parts * 2 <= group; parts++) {
        double share;
        if (group % parts)
            continue;
        by_pieces(norm->the_case, norm->input, group / parts, norm->prediction);
        share = ts_explained(norm->the_case, norm->prediction);
        if (share > most) {
            most = share;
            best = group / parts;
        }
    }
    if (!best || total % group)
        return;
    by_pieces(norm->the_case, norm->input, best, norm->prediction);
    ts_formula_next(norm->the_case,
                    &(struct ts_formula){.predict = predict_pieces, .numbers = &best, .size = sizeof best});
    ts_propose(norm->the_case, "row-scaled", norm->prediction, 1,
               "the axis over which the norm is taken; for a sharded row, whether the sum of squares is reduced over "
               "all ranks",
               "the candidate normalizes pieces of %zu channels instead of all %zu together", best, group);
}

/* The epsilon behind the root, or below it as it should be. */
static void behind_root(const struct ts_case *the_case, const double *input, double epsilon, double *out)
{
    const struct ts_operation *right = &the_case->operation;
    size_t group = right->group;
    for (size_t start = 0; start + group <= the_case->total; start += group) {
        double mean = 0, squares = 0, root;
        for (size_t i = start; right->centred && i < start + group; i++)
            mean += input[i] / (double)group;
        for (size_t i = start; i < start + group; i++)
            squares += (input[i] - mean) * (input[i] - mean) / (double)group;
        root = sqrt(squares) + epsilon;
        for (size_t i = 0; i < group; i++)
            out[start + i] =
                (root > 0 ? (input[start + i] - mean) / root : 0) * right->table[i] + right->table[group + i];
    }
}

static bool predict_behind_root(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const double *input = ts_case_norm_input(the_case);
    if (input)
        behind_root(the_case, input, *(const double *)formula->numbers, out);
    return input != NULL;
}

static double left_behind_root(const struct norm *norm, double epsilon)
{
    behind_root(norm->the_case, norm->input, epsilon, norm->prediction);
    return ts_rows_cost(norm->the_case, norm->prediction, 0, norm->the_case->actor->rows);
}

/* root(squares) + epsilon where the root of both is meant: an epsilon that counts shrinks large rows as well. */
static bool epsilon_behind_root(const struct norm *norm, double left_below)
{
    double low = log(1e-8), high = log(100.0), best;
    for (int step = 0; step < 60; step++) {
        double left = low + (high - low) / 3, right = high - (high - low) / 3;
        if (left_behind_root(norm, exp(left)) > left_behind_root(norm, exp(right)))
            low = left;
        else
            high = right;
    }
    best = exp((low + high) / 2);
    if (left_behind_root(norm, best) * BETTER >= left_below ||
        ts_explained(norm->the_case, norm->prediction) < WORTHWHILE)
        return false;
    ts_formula_next(norm->the_case,
                    &(struct ts_formula){.predict = predict_behind_root, .numbers = &best, .size = sizeof best});
    ts_propose(norm->the_case, "row-scaled", norm->prediction, 1,
               "where the epsilon of this norm is added, and which it is (rms_norm_eps)",
               "the candidate adds an epsilon of %.3g behind the root, x / (root + eps), where the reference adds %.3g "
               "below it",
               best, norm->the_case->operation.epsilon);
    return true;
}

/* What is left with another epsilon. Not the share it explains, which is one for all that noise cannot tell apart. */
static double left_with(const struct norm *norm, double epsilon)
{
    struct ts_operation changed = norm->the_case->operation;
    changed.epsilon = epsilon;
    return ts_rows_cost(norm->the_case, apply(norm, &changed), 0, norm->the_case->actor->rows);
}

static void other_epsilon(const struct norm *norm)
{
    static const double usual[] = {0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10};
    struct ts_operation changed = norm->the_case->operation;
    double best = 0, least = INFINITY, low, high, between;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        double left = left_with(norm, usual[i]);
        if (left < least) {
            least = left;
            best = usual[i];
        }
    }
    /* none of the usual ones: between its neighbours, by ternary search on the logarithm */
    low = log(best > 0 ? best / 10 : 1e-14);
    high = log(best > 0 ? best * 10 : 1e-6);
    for (int step = 0; step < 40; step++) {
        double left = low + (high - low) / 3, right = high - (high - low) / 3;
        if (left_with(norm, exp(left)) > left_with(norm, exp(right)))
            low = left;
        else
            high = right;
    }
    between = exp((low + high) / 2);
    if (left_with(norm, between) * BETTER < least)
        best = between;
    if (epsilon_behind_root(norm, fmin(least, left_with(norm, best))))
        return;
    changed.epsilon = best;
    if (ts_explained(norm->the_case, apply(norm, &changed)) < WORTHWHILE)
        return;
    ts_formula_operation(norm->the_case, &changed);
    ts_propose(norm->the_case, "row-scaled", apply(norm, &changed), 1, "the epsilon of this norm (rms_norm_eps)",
               "another epsilon: %.3g in the candidate, %.3g in the reference (each row's factor fits it)", best,
               norm->the_case->operation.epsilon);
}

/* What the norm makes before its bias, times one factor. */
static const double *scaled_before_bias(const struct norm *norm, double factor)
{
    const struct ts_operation *right = &norm->the_case->operation;
    size_t width = norm->the_case->actor->width;
    double *factors = malloc(2 * width * sizeof *factors);
    for (size_t i = 0; factors && i < width; i++) {
        factors[i] = factor;
        factors[width + i] = (1 - factor) * right->table[right->group + i % right->group];
    }
    if (factors)
        ts_formula_channels(norm->the_case, factors, factors + width);
    free(factors);
    for (size_t i = 0; i < norm->the_case->total; i++) {
        double bias = right->table[right->group + i % right->group];
        norm->prediction[i] = (norm->the_case->expected[i] - bias) * factor + bias;
    }
    return norm->prediction;
}

static void undivided(const struct ts_case *the_case, const double *input, bool centred, double *out)
{
    const struct ts_operation *right = &the_case->operation;
    size_t group = right->group;
    for (size_t start = 0; start + group <= the_case->total; start += group) {
        double mean = 0;
        for (size_t i = 0; centred && i < group; i++)
            mean += input[start + i];
        mean /= (double)group;
        for (size_t i = 0; i < group; i++)
            out[start + i] = (input[start + i] - mean) * right->table[i] + right->table[group + i];
    }
}

static bool predict_undivided(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const double *input = ts_case_norm_input(the_case);
    if (input)
        undivided(the_case, input, *(const bool *)formula->numbers, out);
    return input != NULL;
}

/* Weights without the division, the variance over n - 1, and a sum where the mean belongs. */
static void other_size(const struct norm *norm)
{
    size_t group = norm->the_case->operation.group;
    bool centred = norm->the_case->operation.centred;
    for (int kept = 0; kept < (centred ? 2 : 1); kept++) { /* a LayerNorm may leave out both */
        bool removed = centred && !kept;
        undivided(norm->the_case, norm->input, removed, norm->prediction);
        ts_formula_next(norm->the_case, &(struct ts_formula){
                                            .predict = predict_undivided, .numbers = &removed, .size = sizeof removed});
        ts_propose(norm->the_case, "row-scaled", norm->prediction, 0,
                   centred ? "whether each row is divided by its standard deviation"
                           : "whether each row is divided by its root mean square",
                   kept ? "the candidate applies the weight and the bias but does not normalize: it neither removes "
                          "the mean of the row nor divides it by its standard deviation"
                        : "the candidate applies the weight but does not divide the row by its root mean square");
    }
    ts_propose(
        norm->the_case, "scaled", scaled_before_bias(norm, 1 / sqrt((double)group)), 0,
        "that the root is taken of the mean of the squares, not of their sum",
        "the candidate divides the row by the root of the sum of its squares instead of their mean: a factor of 1/√%zu",
        group);
    ts_propose(norm->the_case, "scaled", scaled_before_bias(norm, sqrt((double)(group - 1) / (double)group)), 0,
               "that the variance is taken over n, not n - 1",
               "every element is %.6g times what it should be: the candidate takes the variance over n - 1 = %zu",
               sqrt((double)(group - 1) / (double)group), group - 1);
}

static bool is_called_norm(const char *name)
{
    return strstr(name, "norm") || strstr(name, "ln_") || strstr(name, ".ln");
}

/* Weight and bias per channel, fitted: of a norm that the trace does not show. */
static void fitted_weights(const struct norm *norm)
{
    const struct ts_operation *right = &norm->the_case->operation;
    size_t group = right->group;
    struct ts_operation changed = *right;
    double *sums = calloc(4 * group, sizeof *sums), *table = calloc(2 * group, sizeof *table);
    const double *plain;
    changed.table = table;
    for (size_t i = 0; i < group && table; i++)
        table[i] = 1;
    if (sums && table && norm->the_case->total / group >= 6) {
        plain = apply(norm, &changed);
        for (size_t i = 0; i < norm->the_case->total; i++) {
            double *s = sums + i % group * 4, x = plain[i], y = norm->the_case->found[i];
            if (!isfinite(y) || ts_case_aside(norm->the_case, i / norm->the_case->actor->width))
                continue;
            s[0] += x;
            s[1] += x * x;
            s[2] += y;
            s[3] += x * y;
        }
        for (size_t i = 0; i < group; i++) {
            const double *s = sums + 4 * i;
            double count = (double)(norm->the_case->total / group), spread = s[1] - s[0] * s[0] / count;
            table[i] = spread > 0 ? (s[3] - s[0] * s[2] / count) / spread : 0;
            table[group + i] = (s[2] - table[i] * s[0]) / count;
        }
        ts_formula_operation(norm->the_case, &changed);
        ts_propose(norm->the_case, "channel-scaled", apply(norm, &changed), 2 * group,
                   "which norm's weight and bias are loaded here",
                   "the candidate's norm has another weight and another bias in each of %zu channels", group);
    }
    free(sums);
    free(table);
}

/* This norm's weights in place of the right ones; whether it is a norm. */
static bool try_weights_of(const struct norm *norm, struct ts_scene *scene, const struct ts_actor *other)
{
    const struct ts_operation *right = &norm->the_case->operation;
    struct ts_operation learnt, changed = *right;
    const struct ts_pair *first = ts_case_pair(norm->the_case) - norm->the_case->actor->pair;
    const char *name = first[other->pair].name;
    struct ts_error ignored;
    if (other->width != norm->the_case->actor->width || !is_called_norm(name))
        return false;
    if (ts_operation_learn(scene, other, &learnt, &ignored) != TS_OK)
        return true;
    if (learnt.kind == TS_OPERATION_NORM && learnt.group == right->group) {
        changed.table = learnt.table;
        ts_formula_operation(norm->the_case, &changed);
        ts_propose(norm->the_case, "channel-scaled", apply(norm, &changed), 1, "which norm's weight is loaded here",
                   "each channel has the factor w' / w, where w' is the weight of %s: the candidate uses that norm's "
                   "weight here",
                   name);
    }
    ts_operation_release(&learnt);
    return true;
}

/* The weights of another norm that the trace shows, before this one or after it. */
static void weights_of_another(const struct norm *norm)
{
    size_t own = norm->the_case->actor->pair, seen = 0, count = ts_case_pair_count(norm->the_case);
    struct ts_scene scene;
    struct ts_error ignored;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= own && seen < MOST_OTHER_NORMS; back++) {
        const struct ts_actor *other = ts_scene_actor(norm->the_case->scene, own - back);
        seen += other && try_weights_of(norm, norm->the_case->scene, other);
    }
    if (ts_scene_open_like(&scene, norm->the_case->scene, &ignored) != TS_OK)
        return;
    scene.loaded = own;
    for (size_t ahead = 0; ahead < TS_SCENE_WINDOW && own + ahead < count && seen < 2 * MOST_OTHER_NORMS; ahead++) {
        const struct ts_actor *other = ts_scene_next(&scene, &ignored);
        if (!other)
            break;
        seen += ahead > 0 && other->usable && try_weights_of(norm, &scene, other);
    }
    ts_scene_release(&scene);
}

static void propose(struct ts_case *the_case)
{
    struct norm norm = {.the_case = the_case};
    if (the_case->operation.kind != TS_OPERATION_NORM || !(the_case->error > 0) || ts_case_quiet(the_case))
        return;
    norm.input = ts_case_norm_input(the_case);
    norm.prediction = ts_case_scratch(the_case);
    if (!norm.input || !norm.prediction)
        return;
    other_mean(&norm);
    other_weights(&norm);
    other_group(&norm);
    pieces(&norm);
    other_epsilon(&norm);
    other_size(&norm);
    weights_of_another(&norm);
    if (the_case->operation.flag)
        fitted_weights(&norm);
}

const struct ts_family ts_family_norm = {.name = "norm", .propose = propose};
