/* Types: values that went through another element type. Clamped to its range or by a softcap, rounded to fewer bits;
 * bits read as another type are in types_confused.c, quantization grids in types_quantized.c and float_grid.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "diagnose/families.h"
#include "diagnose/float_grid.h"
#include "diagnose/formula.h"
#include "diagnose/types.h"

/* Elements beyond the border that are looked at. */
#define BORDER_MOST    4096
#define CAP_PROBES     4096 /* elements that a softcap is searched on */
#define CAPS_PROBES    512  /* and two of them */
#define FAR_LESS       0.05 /* of what one cap leaves, two may */
#define CAP_BINS       64
#define SURELY         8.0 /* roundings: what lies so far beyond a border was not rounded to it */
#define LEAST_CAP      0.5
#define FLAT           0.98 /* of the cap: from there on its inverse magnifies rounding a hundredfold */
#define LEAST_DISTINCT 5
#define SURE_OF_F16    8

/* Where values that should lie far beyond the largest one found stand together, rounded or quantized after the clamp:
 * their middle, or NaN. sign -1: of the low end. */
static double soft_border(const struct ts_case *the_case, double border, double sign)
{
    double *values = malloc(BORDER_MOST * sizeof *values), middle = NAN;
    size_t count = 0, near = 0;
    for (size_t i = 0; values && i < the_case->total && count < BORDER_MOST; i++)
        if (isfinite(the_case->found[i]) && sign * the_case->expected[i] > 1.15 * sign * border)
            values[count++] = the_case->found[i];
    if (count >= 4 && sign * border > 0) {
        middle = ts_nth(values, count, count / 2);
        for (size_t i = 0; i < count; i++)
            near += fabs(values[i] - middle) < 0.06 * fabs(middle);
        if (near * 10 < count * 9)
            middle = NAN;
    }
    free(values);
    return middle;
}

/* A clamp: nothing beyond. */
struct limits {
    double low, high;
    bool both, above; /* which ends are clamped */
};

static bool predict_limited(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct limits *limits = formula->numbers;
    for (size_t i = 0; i < the_case->total; i++) {
        double x = the_case->expected[i];
        out[i] = x < limits->low ? limits->low : x > limits->high ? limits->high : x;
    }
    return true;
}

static bool count_limited(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                          struct ts_tally *tally)
{
    const struct limits *limits = formula->numbers;
    (void)out;
    for (size_t i = 0; i < the_case->total; i++)
        tally->sums[0] += the_case->expected[i] < limits->low || the_case->expected[i] > limits->high;
    return true;
}

static const char *limited_text(struct ts_case *the_case, const struct limits *limits, uint64_t beyond,
                                const char *among)
{
    if (limits->both)
        return ts_case_text(the_case, "%" PRIu64 " elements%s are clamped to the range %.6g to %.6g", beyond, among,
                            limits->low, limits->high);
    return ts_case_text(the_case, "%" PRIu64 " elements%s are clamped: nothing lies %s %.6g", beyond, among,
                        limits->above ? "above" : "below", limits->above ? limits->high : limits->low);
}

static const char *tell_limited(struct ts_case *the_case, const struct ts_formula *formula,
                                const struct ts_tally *tally, double *share)
{
    (void)share;
    return limited_text(the_case, formula->numbers, (uint64_t)tally->sums[0], "");
}

static void clamped(struct ts_case *the_case, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    struct limits limits = {0};
    double low = INFINITY, high = -INFINITY;
    double slack = SURELY * ts_rounding(actor->bits_b < actor->bits_a ? actor->bits_b : actor->bits_a);
    size_t at_low = 0, at_high = 0, beyond = 0;
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->found[i])) {
            low = the_case->found[i] < low ? the_case->found[i] : low;
            high = the_case->found[i] > high ? the_case->found[i] : high;
        }
    if (!(low < high))
        return;
    for (size_t i = 0; i < the_case->total; i++) {
        double x = the_case->expected[i];
        at_low += the_case->found[i] == low && x <= low - slack * fabs(low);
        at_high += the_case->found[i] == high && x >= high + slack * fabs(high);
        beyond += x < low || x > high;
        prediction[i] = x < low ? low : x > high ? high : x;
    }
    /* one element at the border is only the largest one */
    if (at_low < 2 && at_high < 2) {
        double soft_low = soft_border(the_case, low, -1), soft_high = soft_border(the_case, high, 1);
        if (isnan(soft_low) && isnan(soft_high))
            return;
        low = isnan(soft_low) ? -(double)INFINITY : soft_low;
        high = isnan(soft_high) ? (double)INFINITY : soft_high;
        for (size_t i = 0; i < the_case->total; i++) {
            double x = the_case->expected[i];
            prediction[i] = x < low ? low : x > high ? high : x;
        }
        at_low = at_high = 2;
    }
    if (!beyond)
        return;
    limits.both = at_low > 1 && at_high > 1 && isfinite(low) && isfinite(high);
    limits.above = isfinite(high) && at_high > 1;
    /* of the other end it is only the farthest one */
    limits.low = limits.both || !limits.above ? low : -(double)INFINITY;
    limits.high = limits.both || limits.above ? high : (double)INFINITY;
    beyond = 0;
    for (size_t i = 0; i < the_case->total; i++)
        beyond += the_case->expected[i] < limits.low || the_case->expected[i] > limits.high;
    if (beyond == the_case->total) /* one number everywhere: no clamp would be needed to say so */
        return;
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_limited,
                                                   .count = count_limited,
                                                   .tell = tell_limited,
                                                   .numbers = &limits,
                                                   .size = sizeof limits});
    ts_propose(
        the_case, "clamped", prediction, limits.both ? 2 : 1,
        "a clamp, a saturating conversion (the largest f16 is 65504, the largest e4m3 448), an activation with a limit",
        "%s", limited_text(the_case, &limits, beyond, ts_case_complete(the_case) ? "" : " examined"));
}

/* What the softcap makes of x, or, when it is missing, what it made x of; NaN at the border, which has no answer. */
static double capped(double x, double cap, bool missing)
{
    if (!isfinite(x))
        return x;
    if (!missing)
        return cap * tanh(x / cap);
    return fabs(x) < cap * (1 - 1e-7) ? cap * atanh(x / cap) : (double)NAN;
}

/* Error that a cap leaves on a spread of elements, relative to what is there without it. Counted on the side that is
 * capped: where the curve is flat, what it was made of is anyone's guess. */
static double left_by_cap(const struct ts_case *the_case, double cap, bool missing)
{
    size_t step = the_case->total / CAP_PROBES + 1;
    double left = 0, error = 0;
    for (size_t i = 0; i < the_case->total; i += step) {
        double plain = missing ? the_case->found[i] : the_case->expected[i], value = capped(plain, cap, false);
        double end = missing ? the_case->expected[i] : the_case->found[i];
        if (!isfinite(plain) || !isfinite(end))
            continue;
        left += (end - value) * (end - value);
        error += (end - plain) * (end - plain);
    }
    return error > 0 ? left / error : 1;
}

/* Any two numbers lie on the curve of some cap: it takes several that differ, where the curve bends, and a cap of a
 * size that somebody would choose. */
static bool is_curve(const struct ts_case *the_case, double cap, bool missing)
{
    size_t step = the_case->total / CAP_PROBES + 1, distinct = 0;
    bool seen[CAP_BINS] = {false};
    if (!(cap >= LEAST_CAP))
        return false;
    for (size_t i = 0; i < the_case->total; i += step) {
        double x = fabs(the_case->expected[i]), bent = capped(x, cap, missing);
        if (!isfinite(bent) || !(fabs(bent - x) > 1e-3 * x))
            continue;
        seen[(size_t)((missing ? x : bent) / cap * (CAP_BINS - 1))] = true;
    }
    for (size_t bin = 0; bin < CAP_BINS; bin++)
        distinct += seen[bin];
    return distinct >= LEAST_DISTINCT;
}

static void predict_softcap(const struct ts_case *the_case, double cap, bool missing, double *out)
{
    for (size_t i = 0; i < the_case->total; i++) {
        double back = missing ? capped(the_case->found[i], cap, false) - the_case->expected[i] : 0;
        out[i] = capped(the_case->expected[i], cap, missing);
        /* at the end of the curve any number will do that leads there */
        if (isnan(out[i]) || (missing && fabs(the_case->expected[i]) > FLAT * cap && fabs(back) < 1e-3 * cap))
            out[i] = the_case->found[i];
    }
}

static bool predict_capped(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    predict_softcap(the_case, formula->table[0], false, out);
    return true;
}

static bool predict_uncapped(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    predict_softcap(the_case, formula->table[0], true, out);
    return true;
}

/* What one cap makes of a number that another cap made of it. */
static double recapped(double x, double from, double to)
{
    return capped(capped(x, from, true), to, false);
}

/* Two caps: the wide one, of the side that bends less, and the narrow one; what they leave is counted on the latter. */
struct caps {
    double wide, narrow, left;
};

static double left_by_caps(const struct ts_case *the_case, double wide, double narrow, bool found_is_wide)
{
    size_t step = the_case->total / CAPS_PROBES + 1;
    double left = 0, error = 0;
    for (size_t i = 0; i < the_case->total; i += step) {
        double x = found_is_wide ? the_case->found[i] : the_case->expected[i];
        double end = found_is_wide ? the_case->expected[i] : the_case->found[i], value = recapped(x, wide, narrow);
        if (!isfinite(x) || !isfinite(end) || isnan(value))
            continue;
        left += (end - value) * (end - value);
        error += (end - x) * (end - x);
    }
    return error > 0 ? left / error : 1;
}

/* The narrow cap that goes with a wide one. */
static double narrow_of(const struct ts_case *the_case, double wide, double floor, bool found_is_wide, double *left)
{
    double low = log(floor * 1.0000001), high = log(wide);
    for (int step = 0; step < 24; step++) {
        double a = low + (high - low) / 3, b = high - (high - low) / 3;
        if (left_by_caps(the_case, wide, exp(a), found_is_wide) < left_by_caps(the_case, wide, exp(b), found_is_wide))
            high = b;
        else
            low = a;
    }
    *left = left_by_caps(the_case, wide, exp((low + high) / 2), found_is_wide);
    return exp((low + high) / 2);
}

/* Caps on both sides, which differ: only where they explain far more than a cap on one of them does. */
static bool find_caps(const struct ts_case *the_case, double largest, double floor, bool found_is_wide, double single,
                      struct caps *caps)
{
    double low = log(largest * 1.0000001), high = log(largest * 30), whole[2];
    for (int step = 0; step < 24; step++) {
        double a = low + (high - low) / 3, b = high - (high - low) / 3, left_a, left_b;
        (void)narrow_of(the_case, exp(a), floor, found_is_wide, &left_a);
        (void)narrow_of(the_case, exp(b), floor, found_is_wide, &left_b);
        if (left_a < left_b)
            high = b;
        else
            low = a;
    }
    caps->wide = exp((low + high) / 2);
    caps->narrow = narrow_of(the_case, caps->wide, floor, found_is_wide, &caps->left);
    whole[0] = nearbyint(caps->wide); /* ones that somebody chose */
    whole[1] = nearbyint(caps->narrow);
    if (whole[0] > largest && whole[1] > floor &&
        left_by_caps(the_case, whole[0], whole[1], found_is_wide) < 2 * caps->left + 1e-7)
        *caps = (struct caps){whole[0], whole[1], caps->left};
    return caps->left < FAR_LESS * single && caps->wide < 20 * largest && caps->narrow < 0.98 * caps->wide;
}

static bool predict_recapped(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    double from = formula->table[0], to = formula->table[1];
    for (size_t i = 0; i < the_case->total; i++) {
        double back = recapped(the_case->found[i], to, from) - the_case->expected[i];
        out[i] = recapped(the_case->expected[i], from, to);
        if (isnan(out[i]) || (to > from && fabs(the_case->expected[i]) > FLAT * from && fabs(back) < 1e-3 * from))
            out[i] = the_case->found[i];
    }
    return true;
}

/* cap * tanh(x / cap), in the candidate only, in the reference only, or another one in each. */
static void softcapped(struct ts_case *the_case, double *prediction)
{
    double largest = 0, expected = 0;
    for (size_t i = 0; i < the_case->total; i++) {
        if (isfinite(the_case->found[i]) && fabs(the_case->found[i]) > largest)
            largest = fabs(the_case->found[i]);
        if (isfinite(the_case->expected[i]) && fabs(the_case->expected[i]) > expected)
            expected = fabs(the_case->expected[i]);
    }
    for (int missing = 0; missing < 2; missing++) {
        /* the capped side lies below the cap: look from there upwards */
        double floor = missing ? expected : largest, low, high, best, left;
        static const double usual[] = {15, 20, 30, 50, 100};
        struct caps caps;
        if (!(floor > 0) || (missing ? largest <= expected : expected <= largest))
            continue;
        low = log(floor * 1.0000001);
        high = log(floor * 30);
        for (int step = 0; step < 32; step++) {
            double a = low + (high - low) / 3, b = high - (high - low) / 3;
            if (left_by_cap(the_case, exp(a), missing) < left_by_cap(the_case, exp(b), missing))
                high = b;
            else
                low = a;
        }
        best = exp((low + high) / 2);
        left = left_by_cap(the_case, best, missing);
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) /* one that somebody chose, when it fits as well */
            if (usual[i] > floor && left_by_cap(the_case, usual[i], missing) < 1.5 * left + 1e-9) {
                best = usual[i];
                left = left_by_cap(the_case, best, missing);
            }
        if (left > 0.5 || !is_curve(the_case, best, missing))
            continue;
        if (find_caps(the_case, missing ? largest : expected, floor, missing, left, &caps)) {
            double table[2] = {missing ? caps.narrow : caps.wide, missing ? caps.wide : caps.narrow};
            struct ts_formula formula = {.predict = predict_recapped, .table = table, .table_count = 2};
            (void)predict_recapped(the_case, &formula, prediction);
            ts_formula_next(the_case, &formula);
            ts_propose(the_case, "clamped", prediction, 2, "softcapping of scores or logits (logit_softcapping)",
                       "another softcap: the candidate caps at %.4g, the reference at %.4g (cap * tanh(x / cap))",
                       table[1], table[0]);
            continue;
        }
        predict_softcap(the_case, best, missing, prediction);
        ts_formula_next(the_case, &(struct ts_formula){.predict = missing ? predict_uncapped : predict_capped,
                                                       .table = &best,
                                                       .table_count = 1});
        ts_propose(
            the_case, "clamped", prediction, 1, "softcapping of scores or logits (logit_softcapping)",
            !missing ? "the candidate applies a softcap: %.4g * tanh(x / %.4g)"
            /* no cap that anybody chose: a wider one in the candidate looks so, where rounding hides the rest */
            : fabs(best - nearbyint(best)) > 0.01 * best
                ? "the softcap is missing or different: the reference is about %.4g * tanh(x / %.4g) of the candidate"
                : "the softcap is missing: the reference is %.4g * tanh(x / %.4g) of the candidate",
            best, best);
    }
}

/* Rounded to so many stored mantissa bits, to nearest even or towards zero. */
static double rounded(double value, int bits, bool cut)
{
    uint64_t word, rest = ((uint64_t)1 << (52 - bits)) - 1; /* of the 52 that a double stores */
    if (value == 0 || !isfinite(value))
        return value;
    memcpy(&word, &value, sizeof word);
    if (!cut) /* half a step, less the least bit where the last one kept is even; carries move the exponent on */
        word += rest / 2 + (word >> (52 - bits) & 1);
    word &= ~rest;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Both have ten bits behind the point: f16 ends at 65504 and has a grid of 2^-24 at the bottom. */
static const char *ten_bits(const struct ts_case *the_case)
{
    size_t chances = 0; /* bits that would be there if it were TF32, each in half of the cases */
    if (ts_case_pair(the_case)->b.tensor->type == TS_F16)
        return "f16";
    for (size_t i = 0; i < the_case->total; i++) {
        double x = fabs(the_case->found[i]);
        if (isfinite(x) && (x > 65504 || (x > 0 && ldexp(x, 24) != nearbyint(ldexp(x, 24)))))
            return "TF32";
        if (x > 0 && x < 0x1p-14) {
            int exponent;
            (void)frexp(x, &exponent);
            chances += (size_t)(-13 - exponent);
        }
    }
    return chances >= SURE_OF_F16 ? "f16" : "f16 or TF32";
}

struct rounding {
    int bits;
    bool cut;
};

static bool predict_rounded(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct rounding *how = formula->numbers;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = rounded((double)the_case->actor->a[i], how->bits, how->cut);
    return true;
}

static void rounded_to(struct ts_case *the_case)
{
    static const struct {
        int bits;
        const char *name;
    } types[] = {{10, "f16 or TF32"}, {7, "bf16"}, {3, "e4m3"}, {2, "e5m2"}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int cut = 0; cut < 2; cut++) {
            size_t equal = 0, changed = 0, counted = 0;
            double made = 0, left = 0, share;
            for (size_t i = 0; i < the_case->total; i++) {
                double a = (double)the_case->actor->a[i], b = the_case->found[i];
                if (a == 0 || !isfinite(a) || !isfinite(b))
                    continue;
                if (counted == 4096 && equal < 3900) /* clear enough */
                    break;
                counted++;
                equal += rounded(a, types[t].bits, cut) == b;
                changed += a != b;
                made += (b - a) * (b - a);
                left += (b - rounded(a, types[t].bits, cut)) * (b - rounded(a, types[t].bits, cut));
            }
            if (counted < 16 || !changed || (double)equal < 0.98 * (double)counted)
                continue;
            /* nearly all are rounded, and the few that are not may be the matter */
            share = (double)equal / (double)counted * (made > 0 ? 1 - left / made : 1);
            ts_formula_next(the_case, &(struct ts_formula){.predict = predict_rounded,
                                                           .numbers = &(struct rounding){types[t].bits, cut},
                                                           .size = sizeof(struct rounding),
                                                           .exact = true});
            ts_propose_plain(the_case, "rounding", share,
                             cut ? "conversions: they should round to nearest, not drop bits"
                                 : "nothing: this is the precision of the type, not a fault",
                             cut ? "%.1f %% of the elements are the reference's%s truncated to %s instead of rounded"
                                 : "%.1f %% of the elements are the reference's%s rounded to %s",
                             100 * (double)equal / (double)counted, cut ? " values" : "",
                             types[t].bits == 10 ? ten_bits(the_case) : types[t].name);
            return;
        }
}

static void propose(struct ts_case *the_case)
{
    double *prediction = ts_case_scratch(the_case);
    if (!prediction)
        return;
    rounded_to(the_case);
    if (!the_case->delta || !the_case->delta->exact) { /* integers are a grid by themselves */
        ts_propose_quantized(the_case);
        if (ts_type_info(the_case->scene->pairs[the_case->actor->pair].b.tensor->type)->kind != TS_CLASS_QUANT)
            ts_propose_float_grid(the_case); /* else it is known what it was quantized to */
    }
    if (ts_case_quiet(the_case) || !(the_case->error > 0))
        return;
    clamped(the_case, prediction);
    softcapped(the_case, prediction);
    ts_propose_confused(the_case, prediction);
}

const struct ts_family ts_family_types = {.name = "types", .propose = propose};
