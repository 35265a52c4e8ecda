/* Types: values that went through another element type. Clamped to its range or by a softcap, bits read as another
 * type, rounded to fewer bits, put on a quantization grid. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "diagnose/families.h"
#include "diagnose/float_grid.h"
#include "diagnose/formula.h"
#include "diagnose/layout.h"

/* Elements beyond the border that are looked at. */
#define LEAST_COLUMN   64   /* rows, so that a channel shows its grid */
#define ONE_STEP       1.01 /* steps of all blocks are that near each other where there is one for all */
#define BORDER_MOST    4096
#define FEW_CONFUSED   2048 /* elements looked at before all are */
#define CAP_PROBES     4096 /* elements that a softcap is searched on */
#define CAP_BINS       64
#define SURELY         8.0 /* roundings: what lies so far beyond a border was not rounded to it */
#define LEAST_CAP      0.5
#define FLAT           0.98 /* of the cap: from there on its inverse magnifies rounding a hundredfold */
#define LEAST_DISTINCT 5
#define SURE_OF_F16    8

/* The candidate never leaves a range that the expected values leave. */
static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

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
        qsort(values, count, sizeof *values, by_value);
        middle = values[count / 2];
        for (size_t i = 0; i < count; i++)
            near += fabs(values[i] - middle) < 0.06 * fabs(middle);
        if (near * 10 < count * 9)
            middle = NAN;
    }
    free(values);
    return middle;
}

static void clamped(struct ts_case *the_case, double *prediction)
{
    static const char *const check =
        "a clamp, a saturating conversion (f16 ends at 65504, e4m3 at 448), an activation with a limit";
    const struct ts_actor *actor = the_case->actor;
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
    ts_formula_clamp(the_case, low, high);
    if (at_low > 1 && at_high > 1 && isfinite(low) && isfinite(high))
        ts_propose(the_case, "clamped", prediction, 2, check,
                   "%zu elements that should lie beyond stand at the border of %.6g to %.6g", beyond, low, high);
    else /* of the other end it is only the farthest one */
        ts_propose(the_case, "clamped", prediction, 1, check,
                   "%zu elements that should lie beyond stand at the border: nothing lies %s %.6g", beyond,
                   isfinite(high) && at_high > 1 ? "above" : "below", isfinite(high) && at_high > 1 ? high : low);
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

/* cap * tanh(x / cap), in the candidate only or in the reference only. */
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
        predict_softcap(the_case, best, missing, prediction);
        ts_formula_next(the_case, &(struct ts_formula){.predict = missing ? predict_uncapped : predict_capped,
                                                       .table = &best,
                                                       .table_count = 1});
        ts_propose(the_case, "clamped", prediction, 1, "softcapping of scores or logits (logit_softcapping)",
                   missing ? "the softcap is missing: the reference is %.4g * tanh(x / %.4g) of it"
                           : "it is capped softly: %.4g * tanh(x / %.4g)",
                   best, best);
    }
}

static uint16_t bf16_bits(double value)
{
    uint32_t bits = ts_float_bits((float)value);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* To nearest, ties to even; saturates to infinity. */
static uint16_t f16_bits(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value), scaled;
    int exponent;
    if (isnan(value))
        return 0x7e00;
    if (size >= 65520)
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-25)
        return sign;
    (void)frexp(size, &exponent);
    exponent = exponent < -13 ? -13 : exponent;
    scaled = nearbyint(ldexp(size, 11 - exponent)); /* 11 significant bits, fewer below 2^-14 */
    if (scaled >= 2048) {
        scaled /= 2;
        exponent++;
    }
    /* the leading bit of a normal number stands for one more in the exponent */
    return (uint16_t)(sign + (scaled < 1024 ? 0u : (unsigned)(exponent + 13) << 10) + (unsigned)scaled);
}

enum confusion { BF16_AS_F16, F16_AS_BF16, SWAPPED_F32, SWAPPED_F16, SWAPPED_BF16, U8_FOR_I8, I8_FOR_U8, CONFUSIONS };

static double confuse(enum confusion confusion, double x)
{
    switch (confusion) {
    case BF16_AS_F16:
        return (double)ts_f16_to_float(bf16_bits(x));
    case F16_AS_BF16:
        return (double)ts_bf16_to_float(f16_bits(x));
    case SWAPPED_F32:
        return (double)ts_float_from_bits(__builtin_bswap32(ts_float_bits((float)x)));
    case SWAPPED_F16:
        return (double)ts_f16_to_float(__builtin_bswap16(f16_bits(x)));
    case SWAPPED_BF16:
        return (double)ts_bf16_to_float(__builtin_bswap16(bf16_bits(x)));
    case U8_FOR_I8:
        return x < 0 ? x + 256 : x;
    default:
        return x > 127 ? x - 256 : x;
    }
}

/* Agreement by elements: bits read as another type range over the whole of it, and sums see the largest only. Counted
 * are the elements that are wrong. */
static double agreement(const struct ts_case *the_case, const double *prediction, size_t total)
{
    double slack = 4 * sqrt(the_case->noise / (double)the_case->total);
    size_t near = 0, counted = 0;
    for (size_t i = 0; i < total; i++) {
        double found = the_case->found[i], value = prediction[i], expected = the_case->expected[i];
        if (fabs(found - expected) <= 0.05 * fabs(expected) + slack)
            continue;
        counted++;
        near += (isnan(found) && isnan(value)) || found == value || fabs(found - value) <= 0.02 * fabs(value) + slack;
    }
    return counted >= 16 && counted * 4 > total ? (double)near / (double)counted : 0;
}

static void say_confused(struct ts_case *the_case, const double *prediction, size_t total, const char *what)
{
    double share = agreement(the_case, prediction, total);
    if (share > 0.7)
        ts_propose_plain(the_case, "dtype-confusion", share,
                         "the element type given to the reader, the kernel or the view",
                         "%.0f %% of the elements are what comes out when %s", 100 * share, what);
}

/* The same where a prediction says something about some elements only: of the first rows, and of f32 every second. */
static void say_widths(struct ts_case *the_case, const double *prediction, size_t rows, bool pairs, const char *what)
{
    double slack = 4 * sqrt(the_case->noise / (double)the_case->total), share;
    size_t near = 0, counted = 0, width = the_case->actor->width;
    for (size_t i = 0; i < rows * width; i++) {
        uint64_t own = (ts_case_complete(the_case) ? i / width : ts_case_row(the_case, i / width)) * width + i % width;
        double found = the_case->found[i], value = prediction[i], expected = the_case->expected[i];
        if (!pairs && own % 2 == 0)
            continue;
        if (fabs(found - expected) <= 0.05 * fabs(expected) + slack)
            continue;
        counted++;
        near += (isnan(found) && isnan(value)) || found == value || fabs(found - value) <= 0.02 * fabs(value) + slack;
    }
    share = counted >= 16 && counted * 8 > the_case->total ? (double)near / (double)counted : 0;
    if (share > 0.7)
        ts_propose_plain(the_case, "dtype-confusion", share,
                         "the element type given to the reader, the kernel or the view",
                         pairs ? "%.0f %% of the elements are what comes out when %s"
                               : "%.0f %% of every second element are what comes out when %s",
                         100 * share, what);
}

static bool are_bytes(const struct ts_case *the_case, bool with_sign)
{
    for (size_t i = 0; i < the_case->total; i++) {
        double x = the_case->expected[i];
        if (x != nearbyint(x) || x < (with_sign ? -128 : 0) || x > (with_sign ? 127 : 255))
            return false;
    }
    return true;
}

static void confused(struct ts_case *the_case, double *prediction)
{
    static const char *const what[CONFUSIONS] = {"bf16 bits are read as f16",
                                                 "f16 bits are read as bf16",
                                                 "the bytes of f32 are in reverse order",
                                                 "the bytes of f16 are in reverse order",
                                                 "the bytes of bf16 are in reverse order",
                                                 "signed bytes are read as unsigned",
                                                 "unsigned bytes are read as signed"};
    for (int kind = 0; kind < CONFUSIONS; kind++) {
        bool same = true;
        /* on a few first */
        for (size_t i = 0; i < the_case->total && i < FEW_CONFUSED; i++)
            prediction[i] = confuse((enum confusion)kind, the_case->expected[i]);
        if (the_case->total > FEW_CONFUSED && agreement(the_case, prediction, FEW_CONFUSED) < 0.5)
            continue;
        if (kind >= U8_FOR_I8 && !are_bytes(the_case, kind == U8_FOR_I8))
            continue;
        for (size_t i = 0; i < the_case->total; i++) {
            prediction[i] = confuse((enum confusion)kind, the_case->expected[i]);
            same = same && prediction[i] == the_case->expected[i];
        }
        if (!same)
            say_confused(the_case, prediction, the_case->total, what[kind]);
    }
}

/* What is expected from a place of the flat memory on, whether the case holds it or not. False where it ends. */
static bool read_expected(const struct ts_case *the_case, uint64_t first, size_t count, double *out)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    struct ts_error ignored;
    if (!ts_case_complete(the_case))
        return first + count <= pair->a.count && ts_view_read_f64(&pair->a, first, count, out, &ignored) == TS_OK;
    if (first + count > the_case->total)
        return false;
    memcpy(out, the_case->expected + first, count * sizeof *out);
    return true;
}

/* Two numbers of 16 bits as one of 32. */
static double joined(const double *pair, uint16_t (*bits)(double))
{
    return (double)ts_float_from_bits((uint32_t)bits(pair[1]) << 16 | bits(pair[0]));
}

/* Two bf16 or f16 read as one f32, and f32 read as pairs of them: the values stand at other places, in the first half.
 * Of f32 the lower halves are as good as drawn at random, and only the upper ones count. */
static void confused_widths(struct ts_case *the_case, double *prediction)
{
    static const struct {
        bool pairs;
        uint16_t (*bits)(double);
        float (*value)(uint16_t);
        const char *text;
    } ways[] = {{true, bf16_bits, NULL, "pairs of bf16 are read as f32"},
                {true, f16_bits, NULL, "pairs of f16 are read as f32"},
                {false, NULL, ts_bf16_to_float, "f32 is read as pairs of bf16"},
                {false, NULL, ts_f16_to_float, "f32 is read as pairs of f16"}};
    size_t width = the_case->actor->width;
    double *row = malloc((2 * width + 2) * sizeof *row);
    if (the_case->total < 64 || (!ts_case_complete(the_case) && !ts_layout_reads_memory(the_case))) {
        free(row);
        return;
    }
    for (size_t w = 0; w < sizeof ways / sizeof *ways && row; w++) {
        size_t r = 0;
        for (; r < the_case->actor->rows; r++) {
            uint64_t own = (ts_case_complete(the_case) ? r : ts_case_row(the_case, r)) * width;
            double *out = prediction + r * width;
            if (ways[w].pairs && !read_expected(the_case, 2 * own, 2 * width, row))
                break; /* what is behind the end is anyone's guess */
            if (!ways[w].pairs && !read_expected(the_case, own / 2, (width + own % 2 + 1) / 2, row))
                break;
            for (size_t i = 0; i < width; i++)
                if (ways[w].pairs)
                    out[i] = joined(row + 2 * i, ways[w].bits);
                else if ((own + i) % 2)
                    out[i] = (double)ways[w].value((uint16_t)(ts_float_bits((float)row[(own % 2 + i) / 2]) >> 16));
        }
        say_widths(the_case, prediction, r, ways[w].pairs, ways[w].text);
    }
    free(row);
}

/* Every value of an 8-bit type, by code. */
static void table_of(enum ts_type type, float *table)
{
    uint8_t codes[256];
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    ts_type_decode_f32(type, false, codes, 256, table);
}

static const enum ts_type float8[] = {TS_F8_E4M3, TS_F8_E5M2, TS_F8_E4M3FNUZ, TS_F8_E5M2FNUZ};

/* Codes of one 8-bit type read as another. The expected values must be exact ones of the first. */
static void confused_float8(struct ts_case *the_case, double *prediction)
{
    float from[256], to[256];
    for (size_t a = 0; a < sizeof float8 / sizeof *float8; a++) {
        bool exact = true;
        int16_t *codes = malloc(the_case->total * sizeof *codes);
        table_of(float8[a], from);
        for (size_t i = 0; codes && i < the_case->total && exact; i++) {
            codes[i] = -1;
            for (int c = 0; c < 256 && codes[i] < 0; c++)
                if ((double)from[c] == the_case->expected[i] && (from[c] != 0 || c == 0))
                    codes[i] = (int16_t)c;
            exact = codes[i] >= 0;
        }
        for (size_t b = 0; b < sizeof float8 / sizeof *float8 && codes && exact; b++) {
            char what[96];
            if (a == b)
                continue;
            table_of(float8[b], to);
            for (size_t i = 0; i < the_case->total; i++)
                prediction[i] = (double)to[codes[i]];
            snprintf(what, sizeof what, "codes of %s are read as %s", ts_type_info(float8[a])->name,
                     ts_type_info(float8[b])->name);
            say_confused(the_case, prediction, the_case->total, what);
        }
        free(codes);
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
                             cut ? "conversions: to nearest, not by dropping bits"
                                 : "nothing: this is the precision of the type and no fault",
                             cut ? "%.1f %% of the elements are the reference's %s, cut off to %s instead of rounded"
                                 : "%.1f %% of the elements are the reference's%s rounded to %s",
                             100 * (double)equal / (double)counted, cut ? " values" : "",
                             types[t].bits == 10 ? ten_bits(the_case) : types[t].name);
            return;
        }
}

/* A grid of `levels` steps per block, from the block's own values; 0 when they do not lie on one. */
static double step_of(const double *values, size_t count, unsigned *codes)
{
    double sorted[256], step = INFINITY, low = INFINITY, high = -INFINITY;
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0, end = distinct;
        if (!isfinite(values[i]))
            return 0;
        while (at < end) {
            size_t middle = (at + end) / 2;
            if (sorted[middle] < values[i])
                at = middle + 1;
            else
                end = middle;
        }
        if (at < distinct && sorted[at] == values[i])
            continue;
        if (distinct == 256)
            return 0;
        memmove(sorted + at + 1, sorted + at, (distinct - at) * sizeof *sorted);
        sorted[at] = values[i];
        distinct++;
    }
    if (distinct < 3)
        return 0;
    low = sorted[0];
    high = sorted[distinct - 1];
    for (size_t i = 1; i < distinct; i++)
        step = sorted[i] - sorted[i - 1] < step ? sorted[i] - sorted[i - 1] : step;
    if (step < (high - low) / 300)
        return 0;
    for (size_t i = 1; i < distinct; i++) {
        double steps = (sorted[i] - low) / step;
        if (fabs(steps - nearbyint(steps)) > 0.04 * (1 + steps / 64))
            return 0;
    }
    *codes = (unsigned)nearbyint((high - low) / step) + 1;
    return step;
}

/* The same of a small block, in which few neighbours on the grid occur: scales are made so that the largest value is
 * the last level, and every other one then is a whole number of steps. */
static double step_of_largest(const double *values, size_t count, unsigned *codes)
{
    static const unsigned levels[] = {7, 8, 15, 31};
    double largest = 0;
    size_t zeros = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            return 0;
        largest = fabs(values[i]) > largest ? fabs(values[i]) : largest;
        zeros += values[i] == 0;
    }
    for (size_t k = 0; k < sizeof levels / sizeof *levels && largest > 0 && zeros * 2 < count; k++) {
        double step = largest / levels[k];
        size_t i = 0;
        while (i < count && fabs(values[i] / step - nearbyint(values[i] / step)) < 0.035)
            i++;
        *codes = 2 * levels[k] + 1;
        if (i == count)
            return step;
    }
    return 0;
}

/* Levels of one grid between the smallest and the largest value. */
static double levels_of(const struct ts_case *the_case, double step)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->found[i])) {
            low = fmin(low, the_case->found[i]);
            high = fmax(high, the_case->found[i]);
        }
    return high > low ? nearbyint((high - low) / step) + 1 : 1;
}

/* A grid of its own in each channel, which is no run of numbers. */
static void quantized_columns(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t stride = actor->width / 128 + 1, columns = 0, good = 0;
    double *column = malloc(actor->rows * sizeof *column), steps = 0, error = 0, ideal = 0;
    unsigned most = 0;
    for (size_t c = 0;
         c < actor->width && column && actor->rows >= LEAST_COLUMN && !(the_case->delta && the_case->delta->exact);
         c += stride) {
        unsigned codes = 0;
        int exponent;
        double step, worst = 0, sum = 0;
        for (size_t row = 0; row < actor->rows; row++)
            column[row] = the_case->found[row * actor->width + c];
        step = step_of(column, actor->rows, &codes);
        step = step > 0 ? step : step_of_largest(column, actor->rows, &codes);
        for (size_t row = 0; row < actor->rows && step > 0; row++) {
            double d = fabs(column[row] - (double)actor->a[row * actor->width + c]);
            worst = d > worst ? d : worst;
            sum += d * d;
        }
        if (columns++ == 8 && !good)
            break;
        /* numbers of one binade that were rounded to some type lie on powers of two */
        if (!(step > 0) || worst > 1.05 * step || codes > 256 || frexp(step, &exponent) == 0.5)
            continue;
        good++;
        steps += step;
        error += sum;
        ideal += step * step / 12 * (double)actor->rows;
        most = codes > most ? codes : most;
    }
    free(column);
    if (!(error > 0.25 * ideal)) /* the reference lies on it as well */
        return;
    if (columns >= 2 && (double)good >= 0.9 * (double)columns && most >= 2)
        ts_propose_plain(the_case, "quantization", 0.94 * (double)good / (double)columns,
                         "nothing, when this quantization is meant; else the file or the setting it comes from",
                         "values lie on a grid of their own in each channel, up to %u levels (%.0f bits), a step of "
                         "%.4g on average; the error is %.2f times what such steps must make",
                         most, ceil(log2((double)most)), steps / (double)good, ideal > 0 ? sqrt(error / ideal) : 0);
}

/* Values on a grid of its own in each block, the error no more than half a step. */
static void quantized(struct ts_case *the_case)
{
    static const size_t sizes[] = {256, 128, 64, 32, 16, 8}; /* after whole rows: the largest that fits */
    const struct ts_actor *actor = the_case->actor;
    size_t width = actor->width;
    for (size_t s = 0; s <= sizeof sizes / sizeof *sizes; s++) {
        size_t size = s ? sizes[s - 1] : width, blocks = 0, good = 0, stride;
        double steps = 0, error = 0, ideal = 0, finest = INFINITY, coarsest = 0;
        unsigned most = 0;
        if (size < 8 || width % size || (s && size == width))
            continue;
        stride = the_case->total / size / 256 + 1; /* some hundred blocks are enough */
        for (size_t b = 0; b * size + size <= the_case->total; b += stride) {
            unsigned codes = 0;
            double step = step_of(the_case->found + b * size, size, &codes), worst = 0, sum = 0;
            if (!(step > 0))
                step = step_of_largest(the_case->found + b * size, size, &codes);
            blocks++;
            for (size_t i = b * size; i < (b + 1) * size && step > 0; i++) {
                double d = fabs(the_case->found[i] - (double)actor->a[i]);
                worst = d > worst ? d : worst;
                sum += d * d;
            }
            if (!(step > 0) || worst > 1.05 * step || codes > 256)
                continue;
            good++;
            steps += step;
            finest = step < finest ? step : finest;
            coarsest = step > coarsest ? step : coarsest;
            error += sum;
            ideal += step * step / 12 * (double)size;
            most = codes > most ? codes : most;
        }
        if (blocks < 2 || (double)good < 0.9 * (double)blocks || most < 2)
            continue;
        if (!s && coarsest < ONE_STEP * finest)
            ts_propose_plain(the_case, "quantization", 0.95 * (double)good / (double)blocks,
                             "nothing, when this quantization is meant; else the file or the setting it comes from",
                             "all values lie on one grid, %.0f levels (%.0f bits), a step of %.4g; the error is %.2f "
                             "times what such steps must make",
                             levels_of(the_case, steps / (double)good),
                             ceil(log2(levels_of(the_case, steps / (double)good))), steps / (double)good,
                             ideal > 0 ? sqrt(error / ideal) : 0);
        else
            ts_propose_plain(
                the_case, "quantization", 0.95 * (double)good / (double)blocks,
                "nothing, when this quantization is meant; else the file or the setting it comes from",
                "values lie on a grid of their own in each block of %zu, up to %u levels (%.0f bits), a step "
                "of %.4g on average; "
                "the error is %.2f times what such steps must make",
                size, most, ceil(log2((double)most)), steps / (double)good, ideal > 0 ? sqrt(error / ideal) : 0);
        return;
    }
    quantized_columns(the_case);
}

static void propose(struct ts_case *the_case)
{
    double *prediction = ts_case_scratch(the_case);
    if (!prediction)
        return;
    rounded_to(the_case);
    if (!the_case->delta || !the_case->delta->exact) /* integers are a grid by themselves */
        quantized(the_case);
    ts_propose_float_grid(the_case);
    if (ts_case_quiet(the_case) || !(the_case->error > 0))
        return;
    clamped(the_case, prediction);
    softcapped(the_case, prediction);
    confused(the_case, prediction);
    confused_widths(the_case, prediction);
    confused_float8(the_case, prediction);
}

const struct ts_family ts_family_types = {.name = "types", .propose = propose};
