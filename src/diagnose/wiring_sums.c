/* Owns the search for terms: sums and differences of earlier tensors that explain what was found. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/pattern.h"
#include "diagnose/variant.h"
#include "diagnose/wiring.h"

/* So much of an error that elements follow one by one is no missing part. */
#define FOLLOWS    0.97
#define WORTHWHILE 0.3

/* The factor that the candidate's sum has on all terms but one: of those that faults make the nearest one, or what
 * fits; 1 where there is none. */
static double factor_of_rest(const struct ts_case *the_case, const double *kept, bool *fitted)
{
    static const double usual[] = {0, 2, -1, 0.5};
    double dot = 0, square = 0;
    *fitted = false;
    for (size_t i = 0; i < the_case->total; i++) {
        double rest = the_case->expected[i] - kept[i], found = the_case->found[i] - kept[i];
        if (isfinite(rest) && isfinite(found)) {
            dot += rest * found;
            square += rest * rest;
        }
    }
    if (!(square > 0))
        return 1;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (fabs(dot / square - usual[i]) < 0.12)
            return usual[i];
    *fitted = true;
    return dot / square;
}

/* Two of three terms missing at once, subtracted, or added twice: the stream after the first of two additions, or what
 * a branch made, was not captured. */
static void propose_subset(struct ts_case *the_case)
{
    const struct ts_operation *operation = &the_case->operation;
    struct ts_variants variants;
    if (operation->kind != TS_OPERATION_SUM || operation->input_count < 3 ||
        !ts_variants_open(&variants, the_case, operation))
        return;
    for (unsigned slot = 0; slot < 3; slot++) { /* one is right; with two right the terms' own search finds it */
        const double *kept = variants.inputs[slot];
        const char *check =
            ts_case_text(the_case, "the additions that make %s", ts_case_name(the_case, the_case->actor));
        const char *right = ts_case_name(the_case, variants.from[slot]);
        const char *rest[2] = {ts_case_name(the_case, variants.from[(slot + 1) % 3]),
                               ts_case_name(the_case, variants.from[(slot + 2) % 3])};
        bool fitted;
        double factor = factor_of_rest(the_case, kept, &fitted), times = 1 - factor;
        for (size_t i = 0; i < the_case->total; i++)
            variants.out[i] = factor * the_case->expected[i] + times * kept[i];
        if (fitted && (fabs(factor - 1) < 0.12 || ts_explained(the_case, variants.out) < 0.9))
            continue; /* a factor that means nothing must explain nearly all */
        ts_formula_sum(the_case, factor, &variants.from[slot]->pair, &times, 1);
        if (factor == 0)
            ts_propose(the_case, "term-missing", variants.out, 0, check,
                       "only %s is left of the sum: %s and %s are missing", right, rest[0], rest[1]);
        else if (factor == 2)
            ts_propose(the_case, "term-extra", variants.out, 0, check, "the candidate adds the sum of %s and %s twice",
                       rest[0], rest[1]);
        else if (factor == -1)
            ts_propose(the_case, "sign-flipped", variants.out, 0, check,
                       "the candidate subtracts %s and %s instead of adding them", rest[0], rest[1]);
        else
            ts_propose(the_case, "scaled", variants.out, fitted ? 1 : 0, check,
                       "the candidate adds %s and %s with a factor of %.4g instead of 1", rest[0], rest[1], factor);
    }
    ts_variants_close(&variants);
}

/* One captured tensor in place of two terms: their norm, where their sum belongs. */
static void propose_replaced(struct ts_case *the_case)
{
    const struct ts_operation *operation = &the_case->operation;
    struct ts_variants variants;
    const struct ts_actor *best = NULL;
    unsigned kept = 0;
    double most = WORTHWHILE;
    if (operation->kind != TS_OPERATION_SUM || operation->input_count != 3 ||
        !ts_variants_open(&variants, the_case, operation))
        return;
    for (size_t back = 1; back < TS_SCENE_WINDOW; back++) {
        const struct ts_actor *other = ts_earlier(the_case, back);
        if (!ts_same_size(the_case, other) || ts_is_input(the_case, other->pair))
            continue;
        for (unsigned slot = 0; slot < 3; slot++) {
            double share;
            for (size_t i = variants.first * other->width; i < (variants.first + variants.count) * other->width; i++)
                variants.out[i] = (double)other->b[i] + variants.inputs[slot][i];
            share = ts_variants_share(&variants, variants.out);
            if (share > most) {
                most = share;
                best = other;
                kept = slot;
            }
        }
    }
    if (best) {
        for (size_t i = 0; i < the_case->total; i++)
            variants.out[i] = (double)best->b[i] + variants.inputs[kept][i];
        ts_formula_sum(the_case, 0, (size_t[]){best->pair, variants.from[kept]->pair}, (double[]){1, 1}, 2);
        ts_propose(the_case, "wrong-input", variants.out, 0,
                   ts_case_text(the_case, "the additions that make %s", ts_case_name(the_case, the_case->actor)),
                   "the candidate adds %s to %s instead of %s + %s", ts_case_name(the_case, best),
                   ts_case_name(the_case, variants.from[kept]), ts_case_name(the_case, variants.from[(kept + 1) % 3]),
                   ts_case_name(the_case, variants.from[(kept + 2) % 3]));
    }
    ts_variants_close(&variants);
}

/* A sum that was captured nowhere goes on in the residual stream: is it whole there? Looks for two later tensors of
 * which one is the other plus the sum, in the reference; then at the same in the candidate. */
static bool is_whole_later(struct ts_case *the_case, const struct ts_variants *variants, unsigned kept)
{
    const struct ts_actor *x = variants->from[0], *y = variants->from[1], *alone = variants->from[kept];
    size_t first = the_case->actor->pair + 1, count = ts_case_pair_count(the_case), total = the_case->total;
    struct ts_scene scene;
    struct ts_error ignored;
    bool whole = false, known = false;
    if (ts_scene_open_like(&scene, the_case->scene, &ignored) != TS_OK)
        return false;
    scene.loaded = first;
    for (size_t later = first; later < count && later < first + 16 && !known; later++) {
        const struct ts_actor *sum = ts_scene_next(&scene, &ignored);
        if (!sum)
            break;
        for (size_t part = first; part < later && !known && ts_same_size(the_case, sum) && sum->usable; part++) {
            const struct ts_actor *term = ts_scene_actor(&scene, part);
            double error = 0, size = 0, with = 0, without = 0;
            if (!ts_same_size(the_case, term))
                continue;
            for (size_t i = 0; i < total; i++) {
                double expected = (double)x->a[i] + (double)y->a[i] + (double)term->a[i];
                double found = (double)sum->b[i] - (double)term->b[i];
                error += (expected - (double)sum->a[i]) * (expected - (double)sum->a[i]);
                size += (double)sum->a[i] * (double)sum->a[i];
                with += (found - (double)x->b[i] - (double)y->b[i]) * (found - (double)x->b[i] - (double)y->b[i]);
                without += (found - (double)alone->b[i]) * (found - (double)alone->b[i]);
            }
            known = size > 0 && error < 1e-4 * size;
            whole = known && with < without;
        }
    }
    ts_scene_release(&scene);
    return whole;
}

/* The norm of multiples of its two inputs. */
static bool predict_norm_of_multiples(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_operation *norm = &the_case->operation;
    double *inputs[3] = {NULL, NULL, NULL};
    for (unsigned k = 0; k < 2; k++) {
        const struct ts_actor *input = ts_scene_actor(the_case->scene, norm->inputs[k]);
        if (!input || input->rows * input->width != the_case->total || !(inputs[k] = ts_case_scratch(the_case)))
            return false;
        for (size_t i = 0; i < the_case->total; i++)
            inputs[k][i] = formula->table[k] * (double)input->b[i];
    }
    ts_operation_apply(the_case->scene, norm, the_case->actor, inputs, out);
    return true;
}

static void give_norm_of_multiples(struct ts_case *the_case, double first, double second)
{
    double times[2] = {first, second};
    ts_formula_next(the_case,
                    &(struct ts_formula){.predict = predict_norm_of_multiples, .table = times, .table_count = 2});
}

/* The norm of one tensor is given a sum that was captured nowhere: blocks that stand behind each other instead of side
 * by side. */
static void propose_norm_of_more(struct ts_case *the_case)
{
    struct ts_operation changed = the_case->operation;
    struct ts_variants variants;
    const struct ts_actor *best = NULL;
    double *inputs[3] = {NULL, NULL, NULL}, *added = NULL, most = WORTHWHILE;
    if (changed.kind != TS_OPERATION_NORM || changed.input_count != 1 ||
        !ts_variants_open(&variants, the_case, &the_case->operation))
        return;
    inputs[0] = variants.inputs[0];
    changed.input_count = 2;
    for (size_t back = 1; back < TS_SCENE_WINDOW; back++) {
        const struct ts_actor *other = ts_earlier(the_case, back);
        double share;
        if (!ts_same_size(the_case, other) || other == variants.from[0] ||
            !(inputs[1] = ts_as_doubles(other->b, the_case->total)))
            continue;
        changed.inputs[1] = other->pair;
        share = ts_variants_try(&variants, &changed, inputs);
        if (share > most) {
            most = share;
            best = other;
            free(added);
            added = inputs[1];
        } else {
            free(inputs[1]);
        }
    }
    if (best) {
        inputs[1] = added;
        changed.inputs[1] = best->pair;
        ts_formula_operation(the_case, &changed);
        ts_propose(the_case, "wrong-input", ts_variants_apply(&variants, &changed, inputs), 0,
                   "which tensor is passed to this norm: parallel or serial blocks",
                   "the candidate normalizes %s + %s instead of %s alone", ts_case_name(the_case, variants.from[0]),
                   ts_case_name(the_case, best), ts_case_name(the_case, variants.from[0]));
    }
    free(added);
    ts_variants_close(&variants);
}

/* The norm of a sum that was captured nowhere: its terms in other proportions, or the norm left out. */
static void propose_norm_of_sum(struct ts_case *the_case)
{
    static const struct {
        double first, second;
        const char *id;
    } ways[] = {{1, 0, "term-missing"}, {0, 1, "term-missing"},  {2, 1, "term-extra"},
                {1, 2, "term-extra"},   {1, -1, "sign-flipped"}, {-1, 1, "sign-flipped"}};
    const struct ts_operation *norm = &the_case->operation;
    struct ts_variants variants;
    const char *names[2];
    double *scaled[3] = {NULL, NULL, NULL};
    if (norm->kind != TS_OPERATION_NORM || norm->input_count < 2 || !ts_variants_open(&variants, the_case, norm))
        return;
    names[0] = ts_case_name(the_case, variants.from[0]);
    names[1] = ts_case_name(the_case, variants.from[1]);
    for (size_t i = 0; i < the_case->total; i++)
        variants.out[i] = variants.inputs[0][i] + variants.inputs[1][i];
    ts_formula_sum(the_case, 0, norm->inputs, (double[]){1, 1}, 2);
    ts_propose(the_case, "skipped-op", variants.out, 0, "whether the norm is applied",
               "the candidate holds %s + %s: the norm was not applied", names[0], names[1]);
    scaled[0] = ts_case_scratch(the_case);
    scaled[1] = ts_case_scratch(the_case);
    for (size_t w = 0; w < sizeof ways / sizeof *ways && scaled[0] && scaled[1]; w++) {
        unsigned kept = ways[w].first == 0;
        bool missing = ways[w].first == 0 || ways[w].second == 0;
        const double *prediction;
        for (size_t i = 0; i < the_case->total; i++) {
            scaled[0][i] = ways[w].first * variants.inputs[0][i];
            scaled[1][i] = ways[w].second * variants.inputs[1][i];
        }
        if (ts_variants_try(&variants, norm, scaled) < WORTHWHILE)
            continue;
        prediction = ts_variants_apply(&variants, norm, scaled);
        give_norm_of_multiples(the_case, ways[w].first, ways[w].second);
        if (missing && is_whole_later(the_case, &variants, kept))
            ts_propose(
                the_case, "wrong-input", prediction, 0, "which tensor is passed to this norm",
                "the candidate normalizes %s alone instead of %s + %s; its residual stream after the norm has both",
                names[kept], names[0], names[1]);
        else
            ts_propose(the_case, ways[w].id, prediction, 0, "the addition before the norm",
                       missing ? "%s is missing from the input of the norm (%g * %s + %g * %s)"
                               : "%s has another factor in the input of the norm (%g * %s + %g * %s)",
                       missing ? names[1 - kept] : names[ways[w].first == 1], ways[w].first, names[0], ways[w].second,
                       names[1]);
    }
    ts_variants_close(&variants);
}

/* Multiples that faults make: a term left out or added once more; of a sum's own terms also subtracted, or halved. */
static double nearest_multiple(double coefficient, bool own_term)
{
    static const double multiples[] = {1, -1, 2, -2, 0.5, -0.5, 3, -3};
    for (size_t i = 0; i < (own_term ? sizeof multiples / sizeof *multiples : 2); i++)
        if (fabs(coefficient - multiples[i]) < 0.12 * fabs(multiples[i]))
            return multiples[i];
    return 0;
}

/* The factor that the reference puts on this term of a sum. */
static double unit_of(const struct ts_case *the_case, const struct ts_actor *term)
{
    const struct ts_operation *sum = &the_case->operation;
    return sum->kind == TS_OPERATION_SCALED_SUM && sum->inputs[1] == term->pair ? sum->factor : 1;
}

static void say_term(struct ts_case *the_case, const struct ts_actor *term, double multiple, bool fitted,
                     const double *prediction)
{
    const char *name = ts_case_name(the_case, term);
    const double unit = unit_of(the_case, term);
    bool own_term = ts_is_input(the_case, term->pair) && (the_case->operation.kind == TS_OPERATION_SUM || unit != 1);
    const char *check = ts_case_text(the_case, "the additions that make %s", ts_case_name(the_case, the_case->actor));
    if (multiple == -1)
        ts_propose(the_case, "term-missing", prediction, 0, check, "the difference is minus %s: this term %s", name,
                   own_term ? "of the sum is missing" : "is missing, or is subtracted");
    else if (multiple == 1)
        ts_propose(the_case, "term-extra", prediction, 0, check, "the candidate adds %s %s", name,
                   own_term ? "twice" : "where it does not belong");
    else if (multiple == -2)
        ts_propose(the_case, "sign-flipped", prediction, 0, check, "the candidate subtracts %s instead of adding it",
                   name);
    else
        ts_propose(the_case, "scaled", prediction, fitted ? 1 : 0, check,
                   "the candidate adds %s with a factor of %.4g instead of %.4g", name, (1 + multiple) * unit, unit);
}

/* The difference is a multiple of an earlier tensor. */
static void propose_terms(struct ts_case *the_case)
{
    double *prediction = ts_case_scratch(the_case), most = WORTHWHILE, coefficient = 0;
    const struct ts_actor *best = NULL;
    bool fitted = false;
    if (!prediction)
        return;
    for (size_t back = 1; back < TS_SCENE_WINDOW; back++) {
        const struct ts_actor *term = ts_earlier(the_case, back);
        double dot = 0, square = 0, multiple, share, unit;
        bool own_term;
        /* "1 +" missing in a modulation has its own words, and so has a copy that is no copy */
        if (!ts_same_size(the_case, term) ||
            ((the_case->operation.kind == TS_OPERATION_MODULATE || the_case->operation.kind == TS_OPERATION_COPY) &&
             ts_is_input(the_case, term->pair)))
            continue;
        for (size_t i = 0; i < the_case->total; i++) {
            double difference = the_case->found[i] - the_case->expected[i], value = (double)term->b[i];
            if (isfinite(difference) && isfinite(value)) {
                dot += difference * value;
                square += value * value;
            }
        }
        if (!(square > 0) || dot * dot < WORTHWHILE * square * the_case->error * 0.5)
            continue;
        own_term = the_case->operation.kind == TS_OPERATION_SUM && ts_is_input(the_case, term->pair);
        unit = unit_of(the_case, term);
        multiple = unit * nearest_multiple(dot / square / unit, own_term || unit != 1);
        if (multiple == 0 && !own_term)
            continue;
        for (size_t i = 0; i < the_case->total; i++)
            prediction[i] = the_case->expected[i] + (multiple != 0 ? multiple : dot / square) * (double)term->b[i];
        share = ts_explained(the_case, prediction) - (multiple == 0 ? 0.02 : 0);
        /* a multiple that means nothing must explain nearly all */
        if (share > most + 1e-9 && (multiple != 0 || share > 0.9)) {
            most = share;
            best = term;
            fitted = multiple == 0;
            coefficient = fitted ? dot / square : multiple;
        }
    }
    if (!best)
        return;
    for (size_t i = 0; i < the_case->total; i++)
        prediction[i] = the_case->expected[i] + coefficient * (double)best->b[i];
    ts_formula_sum(the_case, 1, &best->pair, &coefficient, 1);
    say_term(the_case, best, fitted ? coefficient : coefficient / unit_of(the_case, best), fitted, prediction);
}

/* Coefficients of x and y in z over every `step`-th number, by least squares; returns the share of z that is left. */
static double fit_two(const float *x, const float *y, const float *z, size_t total, size_t step, double *a, double *b)
{
    double xx = 0, xy = 0, yy = 0, xz = 0, yz = 0, zz = 0, determinant;
    for (size_t i = 0; i < total; i += step) {
        double p = (double)x[i], q = (double)y[i], r = (double)z[i];
        if (!isfinite(p) || !isfinite(q) || !isfinite(r))
            continue;
        xx += p * p;
        xy += p * q;
        yy += q * q;
        xz += p * r;
        yz += q * r;
        zz += r * r;
    }
    determinant = xx * yy - xy * xy;
    if (!(determinant > 1e-9 * xx * yy) || !(zz > 0))
        return 1;
    *a = (xz * yy - yz * xy) / determinant;
    *b = (yz * xx - xz * xy) / determinant;
    return (zz - *a * xz - *b * yz) / zz;
}

/* Two tensors with factors of their own (residual multipliers): learnt here from the reference, then other factors
 * looked for in the candidate. */
static void propose_factors(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor, *near[10];
    size_t count = 0, step = the_case->total / 16384 + 1;
    double *prediction, limit = 8 * ts_rounding(actor->bits_a);
    limit = limit > 1e-4 ? limit * limit : 1e-8;
    if ((the_case->operation.kind != TS_OPERATION_NONE && the_case->operation.kind != TS_OPERATION_SCALED_SUM) ||
        !(prediction = ts_case_scratch(the_case)))
        return;
    for (size_t back = 1; back < TS_SCENE_WINDOW && count < 10; back++) {
        const struct ts_actor *other = ts_earlier(the_case, back);
        if (ts_same_size(the_case, other))
            near[count++] = other;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++) {
            double right[2], wrong[2];
            bool second;
            if (fit_two(near[i]->a, near[k]->a, actor->a, the_case->total, step, &right[0], &right[1]) > limit ||
                fabs(right[0]) < 1e-3 || fabs(right[1]) < 1e-3 ||
                fit_two(near[i]->b, near[k]->b, actor->b, the_case->total, step, &wrong[0], &wrong[1]) > 0.1)
                continue;
            for (size_t n = 0; n < the_case->total; n++)
                prediction[n] = wrong[0] * (double)near[i]->b[n] + wrong[1] * (double)near[k]->b[n];
            second = fabs(wrong[1] - right[1]) > fabs(wrong[0] - right[0]);
            ts_formula_sum(the_case, 0, (size_t[]){near[i]->pair, near[k]->pair}, wrong, 2);
            ts_propose(the_case, "scaled", prediction, 2,
                       "the factor of the residual branch: residual_multiplier, or a scale of the branch",
                       "the candidate adds %s with a factor of %.4g, the reference with %.4g (the other term, %s: %.4g "
                       "and %.4g)",
                       ts_case_name(the_case, near[second ? k : i]), wrong[second], right[second],
                       ts_case_name(the_case, near[second ? i : k]), wrong[!second], right[!second]);
            return;
        }
}

/* Slots of a tally about a part that is missing: products of what was found with what was expected, and of each with
 * itself; rows, those that follow with a slope of one, and those that agree. */
enum { DOT, FOUND, EXPECTED, NUMBERS, ROWS, NEAR, AGREEING };

/* Parts that have something in common tilt the slope, by this at most: what blurs or sharpens tilts it by more. */
#define TILTED 0.1

/* typical: error of a row. */
static void add_slopes(const struct ts_case *the_case, double typical, struct ts_tally *tally)
{
    size_t width = the_case->actor->width;
    tally->sums[NUMBERS] += (double)the_case->total;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        double dot = 0, found = 0, expected = 0, chance;
        for (size_t i = row * width; i < (row + 1) * width; i++) {
            if (!isfinite(the_case->found[i]) || !isfinite(the_case->expected[i]))
                continue;
            dot += the_case->found[i] * the_case->expected[i];
            found += the_case->found[i] * the_case->found[i];
            expected += the_case->expected[i] * the_case->expected[i];
        }
        tally->sums[DOT] += dot;
        tally->sums[FOUND] += found;
        tally->sums[EXPECTED] += expected;
        if (!(found > 0) || ts_case_aside(the_case, row))
            continue;
        /* the slope strays by the size of what is missing over what is there, over the root of the numbers */
        chance = sqrt(fabs(expected / found - 1) / (double)width);
        tally->sums[NEAR] += fabs(dot / found - 1) < 3 * chance + 0.02;
        tally->sums[AGREEING] += expected + found - 2 * dot < 1e-3 * typical;
        tally->sums[ROWS]++;
    }
}

/* How sure one is that a part is missing, as the rows of a tally show it; 0 when it is not so. */
static double sure_of_part(const struct ts_case *the_case, const struct ts_tally *tally)
{
    double found = tally->sums[FOUND], expected = tally->sums[EXPECTED], rows = tally->sums[ROWS];
    double cosine = tally->sums[DOT] / sqrt(found * expected), slope = tally->sums[DOT] / found;
    double error = sqrt((expected / found > 1 ? expected / found - 1 : 0) / tally->sums[NUMBERS]);
    /* attention that spreads over more tokens makes less of what differs between them: it looks much the same */
    bool attention = ts_names_attention(ts_case_name(the_case, the_case->actor));
    bool exact = fabs(slope - 1) < 4 * error + 0.03 && tally->sums[NEAR] >= 0.8 * rows;
    /* one row has one slope, which anything may have */
    if (!(found > 0) || !(expected > 0) || the_case->actor->width < 16 || rows < 2)
        return 0;
    if (!(cosine > 0.4) || cosine >= 0.93 ||
        (!exact && (attention || fabs(slope - 1) >= TILTED || found >= 0.9 * expected)))
        return 0;
    return !exact ? 0.4 : attention ? 0.45 : cosine * cosine < 0.4 ? 0.75 : 0.65;
}

static const char *part_text(struct ts_case *the_case, const struct ts_tally *tally)
{
    return ts_case_text(the_case,
                        "a part of a sum is missing: the reference is the candidate plus something unrelated to it "
                        "(slope %.3f; the candidate has %.0f %% of the energy)",
                        tally->sums[DOT] / tally->sums[FOUND], 100 * tally->sums[FOUND] / tally->sums[EXPECTED]);
}

static bool count_slopes(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                         struct ts_tally *tally)
{
    (void)out;
    add_slopes(the_case, formula->table[0], tally);
    return true;
}

static const char *tell_slopes(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                               double *share)
{
    (void)formula;
    /* what is missing is missing in every token */
    *share = sure_of_part(the_case, tally) * (1 - tally->sums[AGREEING] / fmax(tally->sums[ROWS], 1));
    return part_text(the_case, tally);
}

/* A part of a sum is missing that was captured nowhere: a rank's share, a block of inputs. What is left is the
 * reference less something that has nothing to do with it, so the reference follows it with a slope of one, in every
 * row. */
static void propose_partial_sum(struct ts_case *the_case)
{
    double typical = the_case->error / (double)the_case->actor->rows, sure;
    struct ts_tally tally;
    if (the_case->operation.kind != TS_OPERATION_NONE)
        return;
    ts_tally_open(&tally);
    add_slopes(the_case, typical, &tally);
    sure = sure_of_part(the_case, &tally);
    /* a part that is missing is missing in every token; attention leaves the first or the last alone */
    if (tally.sums[AGREEING] > 0 || !(sure > 0))
        return;
    /* what an element should be does not tell what is missing of it, or that is another function of it */
    if (ts_pattern_of_value(the_case) > FOLLOWS)
        return;
    ts_formula_next(the_case, &(struct ts_formula){
                                  .count = count_slopes, .tell = tell_slopes, .table = &typical, .table_count = 1});
    ts_propose_plain(the_case, "term-missing", sure,
                     "sums over ranks (all-reduce), blocks of inputs or experts: whether all parts are added", "%s",
                     part_text(the_case, &tally));
}

void ts_wiring_sums(struct ts_case *the_case)
{
    propose_terms(the_case);
    propose_subset(the_case);
    propose_replaced(the_case);
    propose_norm_of_sum(the_case);
    propose_norm_of_more(the_case);
    propose_partial_sum(the_case);
    propose_factors(the_case);
}
