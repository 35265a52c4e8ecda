#include "compare/comparison_edits.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "compare/structure.h"

/* Steps of types that are finer than these are what arithmetic in another order changes. */
#define COARSE_BITS 10
#define BF16_BITS   7
/* Quantizing to a grid that fits the values best makes them smaller, by the square of the error; scales that are powers
 * of two cut off the largest of a block, by half of it at most (MXFP4, of evenly spread values), and none makes them
 * larger by more than a sixth of it (IQ3_S). Chance adds its part. */
#define SLOPE_ABOVE  0.35
#define SLOPE_BELOW  0.55
#define SLOPE_CHANCE 5.0
/* A row that is wrong errs by as much as it is large, where others err by the grid's part of theirs. */
#define ROW_ERROR 0.7
#define ROW_TIMES 4.0
#define ROW_LEAST 1e-6 /* of the median row's energy: what is smaller may vanish in the scale */
#define FEWEST    8    /* rows, so that there is something usual */

static bool is_plain(const struct ts_view *view)
{
    return ts_type_info(view->tensor->type)->kind == TS_CLASS_FLOAT && view->join != TS_JOIN_SUM && !view->decay;
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

/* The candidate as a multiple of the reference, by least squares. */
static bool is_multiple(const struct ts_pair *pair, const struct ts_delta *delta, double *slope)
{
    const double error = delta->rel_l2, chance = SLOPE_CHANCE * error / sqrt((double)delta->compared + 1);
    double room = error * error + chance;
    *slope = delta->cosine * delta->norm_ratio;
    room += (*slope > 1 ? SLOPE_ABOVE : SLOPE_BELOW) * error;
    return is_quantized(pair) && delta->compared && fabs(*slope - 1) > room;
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
static uint64_t odd_row(const struct ts_profile *profile, double *own, double *usual)
{
    double *values = malloc((size_t)(profile->size + 1) * sizeof *values), energy;
    uint64_t worst = UINT64_MAX;
    size_t count = 0;
    *own = *usual = 0;
    for (uint64_t i = 0; values && i < profile->size; i++)
        if (profile->reference[i] > 0)
            values[count++] = profile->reference[i];
    energy = values ? ts_nth(values, count, count / 2) : 0;
    count = 0;
    for (uint64_t i = 0; values && i < profile->size; i++) {
        double error;
        if (!(profile->reference[i] > ROW_LEAST * energy))
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
        row = odd_row(&delta->profiles[0], &own, &usual);
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
