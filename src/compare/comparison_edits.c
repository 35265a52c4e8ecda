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
/* A row that is wrong errs by as much as it is large, where others err by the grid's part of theirs. */
#define ROW_ERROR 0.7
#define ROW_TIMES 4.0
#define ROW_LEAST 1e-6 /* of the median row's energy: what is smaller may vanish in the scale */
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

/* The candidate as a multiple of the reference, by least squares. */
static bool is_multiple(const struct ts_pair *pair, const struct ts_delta *delta, double *slope)
{
    const double error = delta->rel_l2, chance = SLOPE_CHANCE * error / sqrt((double)delta->compared + 1);
    double room = chance + SCALE_STEP, beside;
    *slope = delta->cosine * delta->norm_ratio;
    beside = sqrt(fmax(0, error * error - (*slope - 1) * (*slope - 1)));
    if (is_even_pair(pair) && *slope > 1)
        room += SLOPE_EVEN * error;
    else if (is_even_pair(pair))
        room += (cuts_off(pair, delta) ? SLOPE_BELOW : SLOPE_EVEN) * error + error * error;
    else
        room += error * error + fmax(beside < ALIKE * grid_of(pair) ? PATTERN_STEP : 0,
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
        double slope;
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
        else if (is_multiple(pair, delta, &slope))
            differs(verdict, ts_arena_printf(&judgement->arena,
                                             "it is %.4g times the reference, beside an error of %.3g that quantizing "
                                             "explains",
                                             slope, delta->rel_l2));
        found = found || verdict->judged == TS_JUDGED_DIFFERS;
    }
    return found;
}

/* The row that errs most beside its size, where that is far more than rows do; SIZE_MAX when none does. */
static uint64_t odd_row(const struct ts_profile *profile, uint64_t width, double *own, double *usual)
{
    double *values = malloc((size_t)(profile->size + 1) * sizeof *values), energy, least;
    uint64_t worst = UINT64_MAX;
    size_t count = 0;
    *own = *usual = 0;
    for (uint64_t i = 0; values && i < profile->size; i++)
        if (profile->reference[i] > 0)
            values[count++] = profile->reference[i];
    energy = values ? ts_nth(values, count, count / 2) : 0;
    least = fmax(ROW_LEAST * energy, ROW_SMALL * ROW_SMALL * (double)width);
    count = 0;
    for (uint64_t i = 0; values && i < profile->size; i++) {
        double error;
        if (!(profile->reference[i] > least))
            continue;
        error = sqrt(profile->error[i] / profile->reference[i]);
        values[count++] = error;
        if (error > *own) {
            *own = error;
            worst = i;
        }
    }
    if (values && count >= FEWEST)
        *usual = ts_nth(values, count, count / 2);
    free(values);
    return count >= FEWEST && *own > ROW_ERROR && *own > ROW_TIMES * *usual ? worst : UINT64_MAX;
}

bool ts_find_odd_rows(struct ts_comparison *comparison)
{
    struct ts_judgement *judgement = &comparison->judgement;
    bool found = false;
    for (size_t i = 0; i < judgement->count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        const struct ts_delta *delta = &comparison->deltas[i];
        struct ts_verdict *verdict = &judgement->verdicts[i];
        double own, usual;
        uint64_t row;
        if (verdict->judged != TS_JUDGED_NOISE || verdict->allowed || verdict->three_ways || !is_quantized(pair) ||
            !delta->profiles || pair->a.rank < 2 || !delta->profiles[0].error)
            continue;
        row = odd_row(&delta->profiles[0], pair->a.count / delta->profiles[0].size, &own, &usual);
        if (row == UINT64_MAX)
            continue;
        differs(verdict, ts_arena_printf(&judgement->arena,
                                         "%s %" PRIu64 " errs by %.3g of its size where the others err by %.3g: "
                                         "quantizing does not do that",
                                         pair->a.rank == 2 ? "row" : "entry", row, own, usual));
        found = true;
    }
    return found;
}
