/* Owns the search for bits that are read as another type: predicted element by element, and put to every element of the
 * tensor by counting those that agree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "diagnose/families.h"
#include "diagnose/formula.h"
#include "diagnose/layout.h"
#include "diagnose/types.h"

#define FEW_CONFUSED  2048 /* elements looked at before all are */
#define LEAST_COUNTED 16
#define AGREE         0.7 /* of those that are wrong */
#define EXPLAINED     0.9
#define BF16_ROUNDING 1.66e-3 /* relative */

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

/* A way of reading bits. */
struct reading {
    void (*fill)(const struct ts_case *the_case, const struct reading *reading, size_t total, double *out, bool *told);
    enum confusion confusion;
    uint16_t (*bits)(double); /* two numbers become one */
    float (*value)(uint16_t); /* or one becomes two */
    enum ts_type from, to;    /* or codes are those of another type */
    double slack;             /* noise of an element */
    bool halves;              /* it says something about every second element only */
    char what[96];
};

/* Slots of a tally. */
enum { NEAR, COUNTED };

static void fill_confused(const struct ts_case *the_case, const struct reading *reading, size_t total, double *out,
                          bool *told)
{
    for (size_t i = 0; i < total; i++)
        out[i] = confuse(reading->confusion, the_case->expected[i]);
    memset(told, true, total * sizeof *told);
}

static bool is_reversal(const struct reading *reading)
{
    return reading->fill == fill_confused && reading->confusion >= SWAPPED_F32 && reading->confusion <= SWAPPED_BF16;
}

/* Sixteen bits can be read back as what they were: reversed once more, or as the other type. */
static bool is_undone(const struct reading *reading, enum confusion *back)
{
    *back = reading->confusion == BF16_AS_F16   ? F16_AS_BF16
            : reading->confusion == F16_AS_BF16 ? BF16_AS_F16
                                                : reading->confusion;
    return is_reversal(reading) ||
           (reading->fill == fill_confused && (reading->confusion == BF16_AS_F16 || reading->confusion == F16_AS_BF16));
}

/* Reading bits otherwise makes of the last ones, which are noise, the sign and the exponent: what was found is turned
 * back instead. A number that noise may hide tells nothing. */
static bool is_told(const struct reading *reading, double expected)
{
    enum confusion back;
    return !is_undone(reading, &back) || fabs(expected) > 8 * reading->slack;
}

static bool is_turned_back(const struct reading *reading, double found, double expected)
{
    enum confusion back;
    return is_undone(reading, &back) && is_told(reading, expected) &&
           fabs(confuse(back, found) - expected) <= 0.02 * fabs(expected) + reading->slack;
}

static const char *what_to_check(const struct reading *reading)
{
    return is_reversal(reading) ? "the byte order of the file and of what reads it"
                                : "the dtype passed to the reader, the kernel or the view";
}

/* Agreement by elements: bits read as another type range over the whole of it, and sums see the largest only. Counted
 * are the elements that are wrong. */
static void count_agreeing(const struct ts_case *the_case, const struct reading *reading, size_t total, double *out,
                           bool *told, struct ts_tally *tally)
{
    double slack = reading->slack;
    size_t near = 0, counted = 0;
    memset(told, 0, total * sizeof *told);
    reading->fill(the_case, reading, total, out, told);
    for (size_t i = 0; i < total; i++) {
        double found = the_case->found[i], value = out[i], expected = the_case->expected[i];
        bool same;
        /* what is masked on both sides is right: the difference of two infinities is no number, here or in what was
         * expected of a term */
        if (!told[i] || found == expected || (isnan(found) && isnan(expected)) ||
            fabs(found - expected) <= 0.05 * fabs(expected) + slack)
            continue;
        same = (isnan(found) && isnan(value)) || found == value || fabs(found - value) <= 0.02 * fabs(value) ||
               is_turned_back(reading, found, expected);
        /* never written, or noise may hide either: it tells nothing */
        if (!same && ((fabs(found) <= slack && fabs(value) <= slack) || !is_told(reading, expected)))
            continue;
        counted++;
        near += same || fabs(found - value) <= 0.02 * fabs(value) + slack;
    }
    tally->sums[NEAR] += (double)near;
    tally->sums[COUNTED] += (double)counted;
}

static bool count(struct ts_case *the_case, const struct ts_formula *formula, const double *out, struct ts_tally *tally)
{
    double *prediction = ts_case_scratch(the_case);
    bool *told = malloc(the_case->total * sizeof *told), good = prediction && told;
    (void)out;
    if (good)
        count_agreeing(the_case, formula->numbers, the_case->total, prediction, told, tally);
    free(told);
    return good;
}

static const char *sentence(struct ts_case *the_case, const struct reading *reading, double share)
{
    return ts_case_text(the_case, "%.0f %% of %s are what you get when %s", 100 * share,
                        reading->halves ? "every second element" : "the elements", reading->what);
}

static const char *tell(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                        double *share)
{
    *share = tally->sums[COUNTED] > 0 ? tally->sums[NEAR] / tally->sums[COUNTED] : *share;
    return sentence(the_case, formula->numbers, *share);
}

/* The share of the first elements, of those that are wrong, that this reading predicts; 0 where few are. */
static double agreement(const struct ts_case *the_case, const struct reading *reading, size_t total, double *out)
{
    struct ts_tally tally;
    bool *told = malloc(total * sizeof *told);
    ts_tally_open(&tally);
    if (told)
        count_agreeing(the_case, reading, total, out, told, &tally);
    free(told);
    /* of two halves one is past the end, and of it every second element */
    return tally.sums[COUNTED] >= LEAST_COUNTED &&
                   tally.sums[COUNTED] * (reading->bits || reading->value ? 8 : 4) > (double)total
               ? tally.sums[NEAR] / tally.sums[COUNTED]
               : 0;
}

static bool predict(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct reading *reading = formula->numbers;
    bool *told = malloc(the_case->total * sizeof *told);
    if (told)
        reading->fill(the_case, reading, the_case->total, out, told);
    free(told);
    return told != NULL;
}

/* Types whose exponents count from another number differ by a factor, which says it more simply. */
static bool is_multiple(const struct ts_case *the_case, const double *prediction)
{
    double factor = 0;
    for (size_t i = 0; i < the_case->total; i++) {
        if (the_case->expected[i] == 0)
            continue;
        factor = factor == 0 ? prediction[i] / the_case->expected[i] : factor;
        if (prediction[i] != factor * the_case->expected[i])
            return false;
    }
    return true;
}

static void try_reading(struct ts_case *the_case, const struct reading *reading, double *prediction)
{
    double share = agreement(the_case, reading, the_case->total, prediction);
    bool bounded = reading->from != reading->to;
    if (!(share > AGREE))
        return;
    /* eight bits do not range far: sums of squares see them all, and what is exact is worth more than what is near */
    for (size_t i = 0; i < the_case->total && bounded; i++)
        bounded = isfinite(prediction[i]);
    if (bounded && !is_multiple(the_case, prediction)) {
        ts_formula_next(
            the_case,
            &(struct ts_formula){
                .predict = predict, .count = count, .tell = tell, .numbers = reading, .size = sizeof *reading});
        ts_propose(the_case, "dtype-confusion", prediction, 0, what_to_check(reading), "%s",
                   sentence(the_case, reading, share));
    }
    ts_formula_next(the_case,
                    &(struct ts_formula){.count = count, .tell = tell, .numbers = reading, .size = sizeof *reading});
    ts_propose_plain(the_case, "dtype-confusion", share, what_to_check(reading), "%s",
                     sentence(the_case, reading, share));
}

static double slack_of(const struct ts_case *the_case)
{
    return 4 * sqrt(the_case->noise / (double)the_case->total);
}

/* The level of what noise made, as bits that are read otherwise show it: the case's own, which is part of an error that
 * may be without bounds, or that of bf16. */
static double slack_of_bits(const struct ts_case *the_case)
{
    double size = 0;
    for (size_t i = 0; i < the_case->total; i++)
        size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
    return fmin(slack_of(the_case), 4 * BF16_ROUNDING * sqrt(size / (double)the_case->total));
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
        struct reading reading = {.fill = fill_confused,
                                  .confusion = (enum confusion)kind,
                                  .slack = kind <= SWAPPED_BF16 ? slack_of_bits(the_case) : slack_of(the_case)};
        bool same = true;
        snprintf(reading.what, sizeof reading.what, "%s", what[kind]);
        /* on a few first */
        if (the_case->total > FEW_CONFUSED && agreement(the_case, &reading, FEW_CONFUSED, prediction) < 0.5)
            continue;
        if (kind >= U8_FOR_I8 && !are_bytes(the_case, kind == U8_FOR_I8))
            continue;
        for (size_t i = 0; i < the_case->total && same; i++)
            same = confuse(reading.confusion, the_case->expected[i]) == the_case->expected[i];
        if (!same)
            try_reading(the_case, &reading, prediction);
    }
}

bool ts_bits_are_explained(const struct ts_case *the_case)
{
    double *out = malloc(the_case->total * sizeof *out);
    const size_t total = the_case->total < FEW_CONFUSED ? the_case->total : FEW_CONFUSED;
    bool explained = false;
    for (int kind = SWAPPED_F32; kind <= SWAPPED_BF16 && out && !explained; kind++) {
        const struct reading reading = {
            .fill = fill_confused, .confusion = (enum confusion)kind, .slack = slack_of_bits(the_case)};
        explained = agreement(the_case, &reading, total, out) > EXPLAINED;
    }
    free(out);
    return explained;
}

/* What is expected from a place of the flat memory on, whether the case holds it or not. False where it ends. */
static bool read_expected(const struct ts_case *the_case, uint64_t first, size_t count, double *out)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    struct ts_error ignored;
    bool good;
    if (!ts_case_complete(the_case)) {
        good = first + count <= pair->a.count && ts_view_read_f64(&pair->a, first, count, out, &ignored) == TS_OK;
        if (good)
            ts_view_forget(&pair->a, first, count);
        return good;
    }
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
static void fill_widths(const struct ts_case *the_case, const struct reading *reading, size_t total, double *out,
                        bool *told)
{
    size_t width = the_case->actor->width;
    double *row = malloc((2 * width + 2) * sizeof *row);
    for (size_t r = 0; r < total / width && row; r++) {
        uint64_t own = (ts_case_complete(the_case) ? r : ts_case_row(the_case, r)) * width;
        size_t at = r * width;
        if (!(reading->bits ? read_expected(the_case, 2 * own, 2 * width, row)
                            : read_expected(the_case, own / 2, (width + own % 2 + 1) / 2, row)))
            break; /* what is behind the end is anyone's guess */
        for (size_t i = 0; i < width; i++) {
            told[at + i] = reading->bits || (own + i) % 2;
            if (reading->bits)
                out[at + i] = joined(row + 2 * i, reading->bits);
            else if (told[at + i])
                out[at + i] = (double)reading->value((uint16_t)(ts_float_bits((float)row[(own % 2 + i) / 2]) >> 16));
        }
    }
    free(row);
}

static void confused_widths(struct ts_case *the_case, double *prediction)
{
    static const struct {
        uint16_t (*bits)(double);
        float (*value)(uint16_t);
        const char *text;
    } ways[] = {{bf16_bits, NULL, "pairs of bf16 are read as f32"},
                {f16_bits, NULL, "pairs of f16 are read as f32"},
                {NULL, ts_bf16_to_float, "f32 is read as pairs of bf16"},
                {NULL, ts_f16_to_float, "f32 is read as pairs of f16"}};
    bool memory = ts_case_complete(the_case) || ts_layout_reads_memory(the_case) ||
                  (ts_case_direct(the_case) && ts_type_info(ts_case_pair(the_case)->a.tensor->type)->components == 1);
    if (the_case->total < 64 || !memory)
        return;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct reading reading = {.fill = fill_widths,
                                  .bits = ways[w].bits,
                                  .value = ways[w].value,
                                  .slack = slack_of(the_case),
                                  .halves = ways[w].value != NULL};
        snprintf(reading.what, sizeof reading.what, "%s", ways[w].text);
        try_reading(the_case, &reading, prediction);
    }
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

/* Codes of a type by their values. */
struct codes {
    float values[256];
    uint8_t sorted[256];
    size_t count;
};

static void sort_codes(enum ts_type type, struct codes *codes)
{
    table_of(type, codes->values);
    codes->count = 0;
    for (int c = 0; c < 256; c++) {
        size_t at = codes->count;
        if (isnan(codes->values[c]) || (codes->values[c] == 0 && c))
            continue;
        while (at > 0 && codes->values[codes->sorted[at - 1]] > codes->values[c]) {
            codes->sorted[at] = codes->sorted[at - 1];
            at--;
        }
        codes->sorted[at] = (uint8_t)c;
        codes->count++;
    }
}

/* The code of an exact value, -1 when it is none. */
static int code_of(const struct codes *codes, double value)
{
    size_t low = 0, high = codes->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((double)codes->values[codes->sorted[middle]] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < codes->count && (double)codes->values[codes->sorted[low]] == value ? codes->sorted[low] : -1;
}

static void fill_float8(const struct ts_case *the_case, const struct reading *reading, size_t total, double *out,
                        bool *told)
{
    struct codes codes;
    float to[256];
    sort_codes(reading->from, &codes);
    table_of(reading->to, to);
    for (size_t i = 0; i < total; i++) {
        int code = code_of(&codes, the_case->expected[i]);
        told[i] = true; /* what has no code was not read from one */
        out[i] = code >= 0 ? (double)to[code] : the_case->expected[i];
    }
}

static bool are_codes(const struct ts_case *the_case, enum ts_type type, const double *values)
{
    struct codes codes;
    sort_codes(type, &codes);
    for (size_t i = 0; i < the_case->total; i++)
        if (!isnan(values[i]) && code_of(&codes, values[i]) < 0)
            return false;
    return true;
}

/* Codes of one 8-bit type read as another. The expected values must be exact ones of the first. Where what was found
 * are exact ones of some type, it is that type, and a step of so few bits is no noise. */
static void confused_float8(struct ts_case *the_case, double *prediction)
{
    bool codes[sizeof float8 / sizeof *float8], any = false;
    for (size_t b = 0; b < sizeof float8 / sizeof *float8; b++) {
        codes[b] = are_codes(the_case, float8[b], the_case->found);
        any = any || codes[b];
    }
    for (size_t a = 0; a < sizeof float8 / sizeof *float8; a++) {
        bool exact = are_codes(the_case, float8[a], the_case->expected);
        for (size_t b = 0; b < sizeof float8 / sizeof *float8 && exact; b++) {
            struct reading reading = {
                .fill = fill_float8, .from = float8[a], .to = float8[b], .slack = any ? 0 : slack_of(the_case)};
            snprintf(reading.what, sizeof reading.what, "codes of %s are read as %s", ts_type_info(float8[a])->name,
                     ts_type_info(float8[b])->name);
            if (a != b && (codes[b] || !any))
                try_reading(the_case, &reading, prediction);
        }
    }
}

/* Signed bytes under a scale of their own that are read as unsigned, or the reverse: every number of one sign, or
 * every one beyond half of the range, is off by 256 steps, and no other. step: 256 of them; below 0 for the reverse. */
static void fill_bytes(const struct ts_case *the_case, double step, double *out)
{
    for (size_t i = 0; i < the_case->total; i++) {
        const double x = the_case->expected[i];
        out[i] = x + (step > 0 ? x < -step / 512 ? step : 0 : x > -step * (127.5 / 256) ? step : 0);
    }
}

static bool predict_bytes(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    fill_bytes(the_case, *(const double *)formula->numbers, out);
    return true;
}

/* Numbers of one size, beside zeros: a sign that is lost looks like a byte. */
static bool are_of_one_size(const struct ts_case *the_case)
{
    double size = 0;
    for (size_t i = 0; i < the_case->total; i++) {
        const double own = fabs(the_case->expected[i]);
        if (own > 0 && size > 0 && own != size)
            return false;
        size = own > 0 ? own : size;
    }
    return true;
}

static void confused_bytes(struct ts_case *the_case, double *prediction)
{
    static const char *const what[] = {"unsigned bytes are read as signed", "signed bytes are read as unsigned"};
    double furthest = 0, most = 0;
    for (size_t i = 0; i < the_case->total; i++) {
        const double off = the_case->found[i] - the_case->expected[i];
        furthest = isfinite(off) && fabs(off) > fabs(furthest) ? off : furthest;
        most = isfinite(the_case->expected[i]) ? fmax(most, fabs(the_case->expected[i])) : most;
    }
    if (furthest != 0) {
        const int to_unsigned = furthest > 0;
        double sum = 0, step;
        size_t count = 0;
        for (size_t i = 0; i < the_case->total; i++) {
            const double off = (the_case->found[i] - the_case->expected[i]) / furthest;
            if (isfinite(off) && off > 0.5) {
                sum += off * furthest;
                count++;
            }
        }
        step = sum / (double)count;
        /* 256 steps, of which the largest number has no more than 128, or 255 */
        if (count < LEAST_COUNTED || fabs(step) < (to_unsigned ? 1.98 : 0.99) * most || are_of_one_size(the_case))
            return;
        fill_bytes(the_case, step, prediction);
        ts_formula_next(the_case,
                        &(struct ts_formula){.predict = predict_bytes, .numbers = &step, .size = sizeof step});
        ts_propose(the_case, "dtype-confusion", prediction, 1, "the dtype passed to the reader, the kernel or the view",
                   "numbers %s are off by %.5g, as %s with a scale of %.4g",
                   to_unsigned ? "below 0" : "of the upper half", step, what[to_unsigned], fabs(step) / 256);
    }
}

void ts_propose_confused(struct ts_case *the_case, double *prediction)
{
    confused(the_case, prediction);
    confused_widths(the_case, prediction);
    confused_float8(the_case, prediction);
    confused_bytes(the_case, prediction);
}
