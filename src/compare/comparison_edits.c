#include "compare/comparison_edits.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "compare/structure.h"

/* Steps of types that are finer than these are what arithmetic in another order changes. */
#define COARSE_BITS 10
#define BF16_BITS   7
/* Quantizing to a grid that fits the values best makes them smaller, by the square of the error. Even grids (Q4_0,
 * Q4_K, IQ4_NL and all of that kind) do no more: of 16 distributions, from evenly spread to one in a hundred, their
 * factor stays within a seventh of the error. Scales that are powers of two cut off the largest of a block, by half of
 * it (MXFP4); of the patterns of IQ1 to IQ3 and of three values alone none makes them larger by more than a quarter, or
 * two fifths where nearly all are zero. Chance adds its part. */
#define SLOPE_EVEN   0.15
#define SLOPE_ABOVE  0.42
#define SLOPE_BELOW  0.62
#define SLOPE_CHANCE 5.0
/* The scale of a block is rounded as well, to f16 or to six bits of that: where all blocks are alike (three values, one
 * value), all of them by the same factor. Patterns and powers of two round it by up to a quarter, which is the whole
 * error of such a tensor: what is left beside the factor is far below what so many bits make of others. */
#define SCALE_STEP   0.008
#define PATTERN_STEP 0.25
#define ALIKE        0.3
#define FEW_LARGE    4.0 /* times the root of the mean square: few numbers of a bell are as large as that */
/* The error of a tensor whose blocks of 32 have one large number each, in units of 2^-bits: a grid over the range of
 * the block errs by a step / sqrt(12), and sqrt(32) / sqrt(12) is 1.6; types with a minimum spend half a bit on it or
 * more. */
#define BLOCK_ERROR 3.6
/* Patterns (IQ2, IQ3) and three values do worse on such tensors than their bits say. No fit errs by more than all there
 * is, and what is no relative of the reference has no such cosine. */
#define PATTERN_ERROR  5.0
#define PATTERN_COSINE 0.4
/* A row that is wrong errs by as much as it is large, where others err by the grid's part of theirs. An honest grid is
 * at its worst where a block has one large number, or one of each sign, and all others fall between two steps: of three
 * bits (Q3_K, 16 numbers) that is sqrt(15) / 8, of four (Q4_0, 32) sqrt(31) / 16; of the four levels of Q2_K, none of
 * which is zero then, sqrt(14 / 2) / 3. */
#define ROW_ERROR        0.7
#define ROW_ERROR_COARSE 0.95 /* of fewer than three bits */
#define ROW_TIMES        4.0
#define ROW_LEAST        1e-6 /* of the median row's energy: what is smaller may vanish in the scale */
/* Scales are f16, whose smallest number is 2^-24, and those of Q6_K or IQ4_XS a 4096th of the largest number: rows of
 * such a size may vanish as well. */
#define ROW_SMALL 0x1p-13
#define FEWEST    8 /* rows, so that there is something usual */

/* Its numbers are those of the file: a step of w is several of 1 + w where that is small. */
static bool is_plain(const struct ts_view *view)
{
    return ts_type_info(view->tensor->type)->kind == TS_CLASS_FLOAT && view->join != TS_JOIN_SUM &&
           !ts_view_is_computed(view);
}

static bool is_quantized(const struct ts_pair *pair)
{
    return ts_type_info(pair->a.tensor->type)->kind == TS_CLASS_QUANT ||
           ts_type_info(pair->b.tensor->type)->kind == TS_CLASS_QUANT;
}

/* The largest change in steps of the coarser of what both sides use; 0 when that is not known. The type tells how large
 * steps are near zero; bf16 values in wider storage have none that are larger there. */
static double steps_of(const struct ts_pair *pair, const struct ts_delta *delta)
{
    const int a = ts_type_info(pair->a.tensor->type)->mantissa_bits,
              b = ts_type_info(pair->b.tensor->type)->mantissa_bits, type = a < b ? a : b,
              used = delta->precision_a < delta->precision_b ? delta->precision_a : delta->precision_b;
    if (used <= 0 || used > COARSE_BITS || (used != type && used != BF16_BITS))
        return 0;
    return ldexp(delta->max_ulp, used - type);
}

/* Rounding moves a number by one step at most, and by less than 2^-24, the smallest step of f16, in a file that went
 * through that type: whoever moved it further changed its value. */
static bool is_edited(const struct ts_pair *pair, const struct ts_delta *delta)
{
    return is_plain(&pair->a) && is_plain(&pair->b) && delta->max_abs > 0x1p-24 && steps_of(pair, delta) > 1;
}

/* Values of a block are a scale times whole numbers, or times a fixed ladder of sixteen: not patterns of several, nor
 * scales that are powers of two, nor three values. */
static bool is_even(enum ts_type type)
{
    static const enum ts_block_type even[] = {
        TS_BLOCK_Q4_0, TS_BLOCK_Q4_1, TS_BLOCK_Q5_0, TS_BLOCK_Q5_1, TS_BLOCK_Q8_0,   TS_BLOCK_Q8_1,  TS_BLOCK_Q2_K,
        TS_BLOCK_Q3_K, TS_BLOCK_Q4_K, TS_BLOCK_Q5_K, TS_BLOCK_Q6_K, TS_BLOCK_IQ4_NL, TS_BLOCK_IQ4_XS};
    if (ts_type_info(type)->kind != TS_CLASS_QUANT)
        return true;
    for (size_t i = 0; i < sizeof even / sizeof *even; i++)
        if (type == ts_type_of_block(even[i]))
            return true;
    return false;
}

/* Codes -8 to 7: numbers as large as the largest one, of the other sign, are cut off by an eighth. Where they are many,
 * as in a tensor of three values, that is a factor. */
static bool cuts_off(const struct ts_pair *pair, const struct ts_delta *delta)
{
    const enum ts_type four = ts_type_of_block(TS_BLOCK_Q4_0), five = ts_type_of_block(TS_BLOCK_Q5_0);
    const double largest = fmax(fabs(delta->a.min), fabs(delta->a.max));
    return (pair->a.tensor->type == four || pair->b.tensor->type == four || pair->a.tensor->type == five ||
            pair->b.tensor->type == five) &&
           largest * sqrt((double)delta->compared) < FEW_LARGE * delta->a.norm;
}

static bool is_even_pair(const struct ts_pair *pair)
{
    return is_even(pair->a.tensor->type) && is_even(pair->b.tensor->type);
}

/* 2^-bits of the coarser quantized side, whole bits. */
static double grid_of(const struct ts_pair *pair)
{
    double grid = 0;
    for (int side = 0; side < 2; side++) {
        const struct ts_tensor *tensor = side ? pair->b.tensor : pair->a.tensor;
        if (ts_type_info(tensor->type)->kind == TS_CLASS_QUANT && tensor->count)
            grid = fmax(grid, exp2(-floor((double)tensor->bytes * 8 / (double)tensor->count)));
    }
    return grid;
}

bool ts_is_multiple(const struct ts_pair *pair, const struct ts_delta *delta, double *slope, double *beside)
{
    const double error = delta->rel_l2, chance = SLOPE_CHANCE * error / sqrt((double)delta->compared + 1);
    double room = chance + SCALE_STEP;
    *slope = delta->cosine * delta->norm_ratio; /* by least squares */
    *beside = sqrt(fmax(0, error * error - (*slope - 1) * (*slope - 1)));
    if (is_even_pair(pair) && *slope > 1)
        room += SLOPE_EVEN * error;
    else if (is_even_pair(pair))
        room += (cuts_off(pair, delta) ? SLOPE_BELOW : SLOPE_EVEN) * error + error * error;
    else
        room += error * error + fmax(*beside < ALIKE * grid_of(pair) ? PATTERN_STEP : 0,
                                     (*slope > 1 ? SLOPE_ABOVE : SLOPE_BELOW) * error);
    return is_quantized(pair) && delta->compared && fabs(*slope - 1) > room;
}

/* More than most tensors of so many bits err by, and less than some honest ones do. */
static bool is_badly_quantized(const struct ts_pair *pair, const struct ts_delta *delta)
{
    const double most = (is_even_pair(pair) ? BLOCK_ERROR : PATTERN_ERROR) * grid_of(pair);
    return is_quantized(pair) && !delta->exact && !delta->non_finite_mismatch && delta->rel_l2 <= fmin(1, most) &&
           delta->cosine > PATTERN_COSINE;
}

static void differs(struct ts_verdict *verdict, const char *why)
{
    verdict->judged = TS_JUDGED_DIFFERS;
    verdict->made_here = true;
    verdict->why = why;
}

bool ts_find_edits(struct ts_comparison *comparison)
{
    struct ts_judgement *judgement = &comparison->judgement;
    bool found = false;
    for (size_t i = 0; i < judgement->count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        struct ts_verdict *verdict = &judgement->verdicts[i];
        const struct ts_delta *delta = &comparison->deltas[i];
        double slope, beside;
        if (verdict->judged == TS_JUDGED_DIFFERS && is_badly_quantized(pair, delta)) {
            verdict->judged = TS_JUDGED_NOISE;
            verdict->made_here = false;
            verdict->why =
                ts_arena_printf(&judgement->arena, "quantizing to so few bits errs by %.3g here", delta->rel_l2);
            found = true;
        }
        if (verdict->judged > TS_JUDGED_NOISE || pair->problem || !delta->unequal)
            continue;
        if (is_edited(pair, delta))
            differs(verdict,
                    ts_arena_printf(&judgement->arena,
                                    "%.3g %% of its elements changed, by up to %.3g steps of the %s: rounding does not "
                                    "do that",
                                    100 * (double)delta->unequal / (double)delta->count, steps_of(pair, delta),
                                    pair->a.tensor->type == pair->b.tensor->type ? "type that both files have"
                                                                                 : "coarser type"));
        else if (ts_is_multiple(pair, delta, &slope, &beside))
            differs(verdict, ts_arena_printf(&judgement->arena,
                                             "it is %.4g times the reference, beside an error of %.3g that quantizing "
                                             "explains",
                                             slope, beside));
        found = found || verdict->judged == TS_JUDGED_DIFFERS;
    }
    return found;
}

static bool is_odd(const struct ts_pair *pair, double own, double usual)
{
    return own > (grid_of(pair) > 0.125 ? ROW_ERROR_COARSE : ROW_ERROR) && own > ROW_TIMES * usual;
}

/* Rows consist of whole blocks of a grid that is even: each has scales of its own, whatever stands beside it. */
static bool has_own_scales(const struct ts_view *view)
{
    const uint64_t block = ts_type_info(view->tensor->type)->block_elements, width = view->shape[view->rank - 1];
    if (view->join == TS_JOIN_SUM || !is_even(view->tensor->type))
        return false;
    for (size_t i = 0; view->join != TS_JOIN_NONE && i < view->part_count; i++)
        if (view->parts[i].rank != view->rank || !has_own_scales(&view->parts[i]))
            return false;
    return view->join != TS_JOIN_NONE || block == 1 ||
           (view->strides[view->rank - 1] == 1 && width % block == 0 && view->offset % block == 0);
}

/* The row that errs most beside its size; UINT64_MAX when there are too few. Where rows share a scale, it swallows a
 * small one: that errs by the step of all, and by no more than they do. */
static uint64_t worst_row(const struct ts_profile *profile, uint64_t width, bool shared, double *own, double *usual)
{
    double *values = malloc((size_t)(profile->size + 1) * sizeof *values), least, swallowed;
    uint64_t worst = UINT64_MAX;
    size_t count = 0;
    *own = *usual = 0;
    if (!values)
        return worst;
    for (uint64_t i = 0; i < profile->size; i++)
        if (profile->reference[i] > 0)
            values[count++] = profile->reference[i];
    least = fmax(ROW_LEAST * ts_nth(values, count, count / 2), ROW_SMALL * ROW_SMALL * (double)width);
    count = 0;
    for (uint64_t i = 0; i < profile->size && shared; i++)
        if (profile->reference[i] > least) /* some rows were not looked at, and are zeros */
            values[count++] = profile->error[i];
    swallowed = ROW_TIMES * ROW_TIMES * ts_nth(values, count, count / 2);
    count = 0;
    for (uint64_t i = 0; i < profile->size; i++) {
        double error;
        if (!(profile->reference[i] > least))
            continue;
        error = sqrt(profile->error[i] / profile->reference[i]);
        values[count++] = error;
        if (error > *own && profile->error[i] > swallowed) {
            *own = error;
            worst = i;
        }
    }
    if (count >= FEWEST)
        *usual = ts_nth(values, count, count / 2);
    free(values);
    return count >= FEWEST ? worst : UINT64_MAX;
}

/* Error and energy of a row that starts at an element; the energy is that of the side that was quantized from. False
 * when it cannot be read. */
static bool measure_row(const struct ts_pair *pair, uint64_t start, uint64_t width, double *error, double *energy)
{
    const bool from_b = ts_type_info(pair->b.tensor->type)->kind != TS_CLASS_QUANT;
    struct ts_error ignored;
    double a[256], b[256];
    *error = *energy = 0;
    for (uint64_t from = start, end = start + width; from < end;) {
        const size_t now = end - from < 256 ? (size_t)(end - from) : 256;
        if (ts_view_read_f64(&pair->a, from, now, a, &ignored) != TS_OK ||
            ts_view_read_f64(&pair->b, from, now, b, &ignored) != TS_OK)
            return false;
        for (size_t i = 0; i < now; i++) {
            *error += (b[i] - a[i]) * (b[i] - a[i]);
            *energy += from_b ? b[i] * b[i] : a[i] * a[i];
        }
        from += now;
    }
    return true;
}

/* A profile has what all experts err by in a row, and of a large tensor some rows only. But a row that is wrong errs by
 * its largest number, and others by a step of theirs: of all rows the one that holds the largest difference is looked
 * at by itself. */
static bool is_worst_row_odd(const struct ts_pair *pair, const struct ts_delta *delta, double *own)
{
    const uint64_t width = pair->a.shape[pair->a.rank - 1], rows = width ? pair->a.count / width : 0;
    double error, energy, least;
    if (rows < FEWEST || delta->worst >= pair->a.count ||
        !measure_row(pair, delta->worst / width * width, width, &error, &energy))
        return false;
    least = fmax(ROW_LEAST * delta->a.norm * delta->a.norm / (double)rows, ROW_SMALL * ROW_SMALL * (double)width);
    *own = energy > 0 ? sqrt(error / energy) : 0;
    return energy > least && is_odd(pair, *own, delta->rel_l2);
}

/* "7" of a matrix, "[3,7]" of a stack of them. */
static const char *name_row(const struct ts_view *view, uint64_t element, struct ts_arena *arena)
{
    const uint64_t row = element / view->shape[view->rank - 1];
    uint64_t rest = row;
    const char *text = "]";
    if (view->rank == 2)
        return ts_arena_printf(arena, "%" PRIu64, row);
    for (unsigned axis = view->rank - 1; axis-- > 0; rest /= view->shape[axis])
        text = ts_arena_printf(arena, "%s%" PRIu64 "%s", axis ? "," : "[", rest % view->shape[axis], text);
    return text;
}

bool ts_find_odd_rows(struct ts_comparison *comparison)
{
    struct ts_judgement *judgement = &comparison->judgement;
    bool found = false;
    for (size_t i = 0; i < judgement->count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        const struct ts_delta *delta = &comparison->deltas[i];
        struct ts_verdict *verdict = &judgement->verdicts[i];
        bool shared;
        double own, usual;
        uint64_t row = UINT64_MAX;
        if (verdict->judged != TS_JUDGED_NOISE || verdict->allowed || verdict->three_ways || !is_quantized(pair) ||
            pair->a.rank < 2)
            continue;
        shared = !has_own_scales(&pair->a) || !has_own_scales(&pair->b);
        if (delta->profiles && delta->profiles[0].error)
            row = worst_row(&delta->profiles[0], pair->a.count / delta->profiles[0].size, shared, &own, &usual);
        if (row != UINT64_MAX && is_odd(pair, own, usual))
            differs(verdict, ts_arena_printf(&judgement->arena,
                                             "%s %" PRIu64 " errs by %.3g of its size where the others err by %.3g: "
                                             "quantizing does not do that",
                                             pair->a.rank == 2 ? "row" : "entry", row, own, usual));
        else if (!shared && is_worst_row_odd(pair, delta, &own))
            differs(verdict, ts_arena_printf(&judgement->arena,
                                             "row %s errs by %.3g of its size where all together err by %.3g: "
                                             "quantizing does not do that",
                                             name_row(&pair->a, delta->worst, &judgement->arena), own, delta->rel_l2));
        else
            continue;
        found = true;
    }
    return found;
}
