/* Memory: what happens to buffers, whatever the model computes. NaN and infinities born here, zeros, constants and
 * older data where new values should be, and a few elements that were hit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "diagnose/formula.h"
#include "diagnose/region.h"

#define NOISE_TAIL  40 /* times its usual size, squared: as far as noise goes in a million elements */
#define FEW_BITS    4  /* bits that may have been flipped together */
#define LARGEST_F16 65504.0
/* What is masked lies below this, when it is not minus infinity. */
#define MASKED -1e4f
/* A hit of single elements: no more than this share of them, and no more than so many. */
#define FEW_SHARE 1e-3
#define FEW_MOST  64
#define FEW_LEAST 4
/* Shorter runs of one value happen by themselves. */
#define RUN_LEAST 8

/* "[3,0,17]" where a token or a row is more than a list of numbers, else in words. */
static void place_text(const struct ts_case *the_case, size_t i, char *text, size_t room)
{
    const struct ts_actor *actor = the_case->actor;
    const struct ts_view *view = &ts_case_pair(the_case)->a;
    unsigned axes = 0;
    uint64_t flat, after = view->count;
    for (unsigned axis = 0; axis < view->rank; axis++)
        axes += view->shape[axis] > 1;
    if ((axes > (actor->heads > 1 ? 3u : 2u) || ts_case_folded(the_case)) && ts_case_index(the_case, i, &flat)) {
        size_t used = 0;
        for (unsigned axis = 0; axis < view->rank && used < room; axis++) {
            after /= view->shape[axis];
            used += (size_t)snprintf(text + used, room - used, "%s%" PRIu64, axis ? "," : "[", flat / after);
            flat %= after;
        }
        if (used < room)
            snprintf(text + used, room - used, "]");
        return;
    }
    if (actor->heads > 1)
        snprintf(text, room, "token %" PRIu64 ", head %zu, channel %zu", ts_case_row(the_case, i / actor->width),
                 i % actor->width / actor->inner, i % actor->inner);
    else
        snprintf(text, room, "%s %" PRIu64 ", %s %zu", ts_case_direct(the_case) ? "row" : "token",
                 ts_case_row(the_case, i / actor->width), ts_case_direct(the_case) ? "column" : "channel",
                 i % actor->width);
}

/* " looked at" where the case is a sample of its tensor. */
static const char *looked_at(const struct ts_case *the_case)
{
    return ts_case_complete(the_case) ? "" : " looked at";
}

/* Newest earlier tensor of the candidate that holds a NaN or an infinity, SIZE_MAX when none does. */
static size_t born_before(struct ts_case *the_case, double *value)
{
    size_t newest = the_case->actor->pair;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= newest; back++) {
        const struct ts_actor *other = ts_scene_actor(the_case->scene, newest - back);
        for (size_t i = 0; other && i < other->rows * other->width; i++)
            if (!isfinite(other->b[i]) && isfinite(other->a[i])) {
                *value = (double)other->b[i];
                return newest - back;
            }
    }
    return SIZE_MAX;
}

/* Whole rows of NaN: a softmax over nothing, a norm of nothing. */
static bool by_whole_rows(const struct ts_case *the_case, const bool *mask)
{
    const struct ts_actor *actor = the_case->actor;
    bool any = false;
    for (size_t start = 0; start + actor->inner <= the_case->total; start += actor->inner) {
        size_t number = 0;
        for (size_t i = start; i < start + actor->inner; i++)
            number += mask[i];
        if (number && number < actor->inner && !(number > 1 && actor->inner == actor->sequence))
            return false;
        any = any || number;
    }
    return any && actor->inner > 1;
}

static void propose_nan(struct ts_case *the_case, const bool *mask, size_t number, size_t first, bool infinities)
{
    char place[96];
    const char *why;
    double before = 0;
    size_t source = born_before(the_case, &before);
    bool zero_input = false;
    for (unsigned k = 0; k < the_case->operation.input_count; k++) {
        const struct ts_actor *input = ts_scene_actor(the_case->scene, the_case->operation.inputs[k]);
        size_t row = first / the_case->actor->width;
        bool zeros = input && input->rows == the_case->actor->rows;
        for (size_t i = 0; zeros && i < input->width; i++)
            zeros = input->b[row * input->width + i] == 0;
        zero_input = zero_input || zeros;
    }
    place_text(the_case, first, place, sizeof place);
    if (source != SIZE_MAX)
        why = ts_case_text(the_case, "; %s, before it, already holds %s", the_case->scene->pairs[source].name,
                           isnan(before) ? "NaN" : "an infinity, and inf - inf or 0 * inf makes NaN");
    else if (infinities)
        why = "; there are infinities beside them, and inf - inf or 0 * inf makes NaN";
    else if (zero_input)
        why = "; its input is all zero there, so that a norm without epsilon divides 0 by 0";
    else if (the_case->operation.kind == TS_OPERATION_SOFTMAX || by_whole_rows(the_case, mask))
        why = "; whole rows of them: a softmax over a row that is masked everywhere divides 0 by 0, and a sum past the "
              "largest number does the rest";
    else
        why =
            "; nothing before it is NaN or infinite, so that it is born here: 0 / 0, the root of a negative number, an "
            "overflow inside a kernel, or memory that was never written";
    /* beside infinities it is their child */
    ts_propose_plain(the_case, "nan", infinities ? 0.95 : 1,
                     "what is divided, rooted or exponentiated here, and in which precision",
                     "%zu of %zu elements%s %s NaN, %s %s%s", number, the_case->total, looked_at(the_case),
                     number == 1 ? "is" : "are", number == 1 ? "at" : "the first at", place, why);
}

static void propose_inf(struct ts_case *the_case, size_t number, size_t first)
{
    char place[96];
    double before = 0, largest = 0, wanted = fabs(the_case->expected[first]);
    size_t source = born_before(the_case, &before), above = 0;
    const char *why;
    for (size_t i = 0; i < the_case->total; i++) {
        double size = fabs(the_case->found[i]);
        if (isinf(the_case->found[i]))
            above += fabs(the_case->expected[i]) > 0.99 * LARGEST_F16;
        else if (size > largest)
            largest = size;
    }
    place_text(the_case, first, place, sizeof place);
    if (above == number)
        why = ts_case_text(the_case,
                           ": %.6g is expected there, above %.0f, the largest f16 (every one of them is, and nothing "
                           "finite is larger than %.6g)",
                           wanted, LARGEST_F16, largest);
    else if (source != SIZE_MAX)
        why = ts_case_text(the_case, "; %s, before it, already holds one", the_case->scene->pairs[source].name);
    else
        why = ts_case_text(the_case,
                           " where %.6g is expected: an overflow on the way (f16 ends at %.0f, e4m3 at 448), or a "
                           "division by zero",
                           wanted, LARGEST_F16);
    ts_propose_plain(the_case, "inf", 1,
                     "the precision of this step: bf16 or f32 do not overflow there, or scale before and after",
                     "%zu of %zu elements%s %s infinite, %s %s%s", number, the_case->total, looked_at(the_case),
                     number == 1 ? "is" : "are", number == 1 ? "at" : "the first at", place, why);
}

/* Minus infinities that are a mask: the reference masks as well (with something far below all numbers that mean
 * anything), or every head has them at the same places. */
static bool is_masking(const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t low = 0;
    float largest = 0;
    for (size_t i = 0; i < the_case->total; i++)
        largest = isfinite(actor->a[i]) && actor->a[i] > largest ? actor->a[i] : largest;
    for (size_t i = 0; i < the_case->total; i++) {
        if (the_case->expected[i] == -INFINITY || (actor->a[i] < MASKED && -actor->a[i] > 8 * largest))
            return true;
        low += the_case->found[i] == -INFINITY;
    }
    if (low < 2 || actor->heads < 2 || actor->inner != actor->sequence)
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        if ((the_case->found[i] == -INFINITY) !=
            (the_case->found[i / actor->width * actor->width + i % actor->inner] == -INFINITY))
            return false;
    return true;
}

static void non_finite(struct ts_case *the_case, bool *mask)
{
    bool masking = is_masking(the_case);
    size_t nans = 0, first_nan = 0, infs = 0, first_inf = 0, only_reference = 0;
    memset(mask, 0, the_case->total * sizeof *mask);
    for (size_t i = 0; i < the_case->total; i++) {
        double found = the_case->found[i], reference = (double)the_case->actor->a[i];
        if (isnan(found) && !isnan(reference)) {
            first_nan = nans++ ? first_nan : i;
            mask[i] = true;
        } else if (isinf(found) && isfinite(reference) && !(found < 0 && masking)) {
            first_inf = infs++ ? first_inf : i;
        } else if (isfinite(found) && (isnan(reference) || reference == INFINITY)) {
            only_reference++;
        }
    }
    if (nans)
        propose_nan(the_case, mask, nans, first_nan, infs > 0);
    if (infs)
        propose_inf(the_case, infs, first_inf);
    if (only_reference && !nans && !infs)
        ts_propose_plain(the_case, "nan", 0.9, "the reference: its own run went wrong here",
                         "%zu of %zu elements %s NaN or infinite in the reference and %s in the candidate",
                         only_reference, the_case->total, only_reference == 1 ? "is" : "are",
                         only_reference == 1 ? "a number" : "numbers");
}

/* Predicts `value(i)` on the mask and what was expected elsewhere. */
static void fill(const struct ts_case *the_case, const bool *mask, double *prediction)
{
    for (size_t i = 0; i < the_case->total; i++)
        prediction[i] = mask[i] ? the_case->found[i] : the_case->expected[i];
}

/* One value, or an older tensor's, wherever it is found in the channels that have some of it here. */
static bool predict_left_over(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const bool *channels = formula->numbers;
    const struct ts_actor *older = formula->pair_count ? ts_scene_actor(the_case->scene, formula->pairs[0]) : NULL;
    size_t width = the_case->actor->width;
    if (formula->size != width * sizeof *channels ||
        (formula->pair_count && (!older || older->rows * older->width != the_case->total)))
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double value = older ? (double)older->b[i] : formula->table[0];
        out[i] = channels[i % width] && the_case->found[i] == value && (!older || value != 0) ? value
                                                                                              : the_case->expected[i];
    }
    return true;
}

/* older: NULL for the value. */
static void give_left_over(struct ts_case *the_case, const bool *mask, double value, const struct ts_actor *older)
{
    size_t width = the_case->actor->width;
    bool *channels = calloc(width, sizeof *channels);
    for (size_t i = 0; channels && i < the_case->total; i++)
        channels[i % width] = channels[i % width] || mask[i];
    if (channels)
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_left_over,
                                                       .numbers = channels,
                                                       .size = width * sizeof *channels,
                                                       .table = &value,
                                                       .table_count = 1,
                                                       .pairs = {older ? older->pair : 0},
                                                       .pair_count = older ? 1 : 0});
    free(channels);
}

/* Not one element that counts is left out. */
static bool is_everything(const struct ts_case *the_case, const bool *mask)
{
    for (size_t i = 0; i < the_case->total; i++)
        if (!mask[i] && !ts_case_aside(the_case, i / the_case->actor->width))
            return false;
    return true;
}

static void zeros(struct ts_case *the_case, bool *mask, double *prediction)
{
    struct ts_region region;
    size_t wanted = 0;
    /* a part of a sum is zero to within the sum's rounding */
    double nothing = ts_case_is_part(the_case) ? 4 * sqrt(the_case->noise / (double)the_case->total) : 0;
    for (size_t i = 0; i < the_case->total; i++) {
        /* expected zeros join a region and cannot make one */
        mask[i] = fabs(the_case->found[i]) <= nothing;
        wanted += mask[i] && fabs(the_case->expected[i]) > 2 * nothing && isfinite(the_case->expected[i]);
    }
    ts_region_trim(the_case, mask);
    if (!wanted || !ts_region_of(the_case, mask, &region))
        return;
    if (!region.rectangle ||
        (region.whole &&
         !is_everything(the_case, mask))) { /* zeros that belong there may spoil the shape: without them */
        for (size_t i = 0; i < the_case->total; i++)
            mask[i] = mask[i] && fabs(the_case->expected[i]) > 2 * nothing;
        ts_region_of(the_case, mask, &region);
    }
    fill(the_case, mask, prediction);
    if (region.whole)
        ts_formula_affine(the_case, 0, 0);
    else
        give_left_over(the_case, mask, 0, NULL);
    if (region.whole) /* predicting nothing at all is the measure of other hypotheses, so that it cannot measure this */
        ts_propose_measured(the_case, "zeros", 0, 0, "whether this step ran, and whether its result was written",
                            is_everything(the_case, mask) ? "every element is zero"
                                                          : "nearly every element is zero (%zu of %zu)",
                            region.count, the_case->total);
    else
        ts_propose(the_case, "zeros", prediction, region.pieces,
                   "whether all of it is computed and written: the grid of a kernel, a slice, a mask, a padded length",
                   "%s: zero (%zu of %zu elements%s)", region.text, region.count, the_case->total, looked_at(the_case));
}

/* Runs of one value, not zero, where different ones are expected. */
static void unwritten(struct ts_case *the_case, bool *mask, double *prediction)
{
    struct ts_region region;
    double value = 0;
    size_t longest = 0;
    for (size_t i = 0; i < the_case->total;) {
        size_t end = i + 1;
        while (end < the_case->total && the_case->found[end] == the_case->found[i])
            end++;
        if (end - i > longest && the_case->found[i] != 0 && isfinite(the_case->found[i]) &&
            the_case->expected[i] != the_case->expected[end - 1]) {
            longest = end - i;
            value = the_case->found[i];
        }
        i = end;
    }
    if (longest < RUN_LEAST)
        return;
    for (size_t i = 0; i < the_case->total; i++)
        mask[i] = the_case->found[i] == value;
    ts_region_trim(the_case, mask);
    if (!ts_region_of(the_case, mask, &region))
        return;
    fill(the_case, mask, prediction);
    if (region.whole)
        ts_formula_affine(the_case, 0, value);
    else
        give_left_over(the_case, mask, value, NULL);
    if (region.whole)
        ts_propose_measured(the_case, "unwritten", 0, 1,
                            "whether the step ran at all: this is what the buffer was filled with",
                            "every element is %.9g (bits 0x%08" PRIx32 ")", value, ts_float_bits((float)value));
    else
        ts_propose(the_case, "unwritten", prediction, region.pieces + 1,
                   "whether all of it is written: this is what the buffer was filled with before",
                   "%s: %zu elements are all %.9g (bits 0x%08" PRIx32 ")", region.text, region.count, value,
                   ts_float_bits((float)value));
}

/* Elements that are bit for bit an older tensor's, where something else was expected. */
static void stale(struct ts_case *the_case, bool *mask, double *prediction)
{
    size_t newest = the_case->actor->pair;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= newest; back++) {
        const struct ts_actor *other = ts_scene_actor(the_case->scene, newest - back);
        struct ts_region region;
        size_t number = 0, written = 0;
        if (!other || other->rows * other->width != the_case->total)
            continue;
        for (size_t i = 0; i < the_case->total; i++) {
            double older = (double)other->b[i];
            mask[i] = older == the_case->found[i] && older != 0 && older != the_case->expected[i];
            number += mask[i];
            written += the_case->found[i] != 0;
        }
        if (number >= RUN_LEAST && number * 20 > written * 19 &&
            written * 20 < the_case->total * 19) { /* it is that tensor, but for what is masked */
            fill(the_case, mask, prediction);
            give_left_over(the_case, mask, 0, other);
            ts_propose(the_case, "skipped-op", prediction, 0,
                       ts_case_text(the_case, "whether the step from %s to here runs", ts_case_name(the_case, other)),
                       "the candidate holds %s unchanged wherever it is not zero: the step from there to here was not "
                       "applied",
                       ts_case_name(the_case, other));
            continue;
        }
        ts_region_trim(the_case, mask);
        if (number < RUN_LEAST || !ts_region_of(the_case, mask, &region) || region.whole)
            continue;
        fill(the_case, mask, prediction);
        give_left_over(the_case, mask, 0, other);
        ts_propose(the_case, "stale", prediction, region.pieces,
                   "whether all of it is written: buffers that are reused, the length a kernel is given",
                   "%s: %zu elements still hold %s", region.text, region.count, ts_case_name(the_case, other));
    }
}

/* A row whose numbers are those of another, and not all the same. */
static bool is_copy(const double *row, const double *other, size_t width)
{
    bool spread = false;
    for (size_t i = 1; i < width && !spread; i++)
        spread = row[i] != row[0];
    return spread && memcmp(row, other, width * sizeof *row) == 0;
}

/* Rows that repeat the row before, or the first one. Of a long sequence the row before may not be at hand. */
static void repeated_rows(struct ts_case *the_case, bool *mask, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    size_t number[2] = {0, 0}, width = actor->width;
    struct ts_region region;
    char text[2][80];
    bool *chosen;
    if (actor->rows < 2 || width < RUN_LEAST || !(chosen = calloc(2 * actor->rows, sizeof *chosen)))
        return;
    memset(mask, 0, the_case->total * sizeof *mask);
    for (size_t row = 1; row < actor->rows; row++) {
        const double *now = the_case->found + row * width;
        bool neighbours = ts_case_row(the_case, row) == ts_case_row(the_case, row - 1) + 1;
        bool before = neighbours && is_copy(now, now - width, width), first = is_copy(now, the_case->found, width);
        if (!before && !first)
            continue;
        chosen[(before ? 0 : actor->rows) + row] = true;
        number[before ? 0 : 1]++;
        for (size_t i = row * width; i < (row + 1) * width; i++)
            mask[i] = the_case->found[i] != the_case->expected[i];
    }
    if (ts_region_of(the_case, mask, &region)) {
        const char *one = ts_case_direct(the_case) ? "row" : "token";
        fill(the_case, mask, prediction);
        for (int way = 0; way < 2; way++)
            ts_region_list(the_case, chosen + (way ? actor->rows : 0), actor->rows, true, text[way], sizeof text[way]);
        if (number[0])
            ts_propose(the_case, "stale", prediction, region.pieces,
                       "whether the position advances: the same row is read or written again",
                       number[0] == 1 ? "%s %s repeats the %s before it%s%s" : "%ss %s repeat the %s before them%s%s",
                       one, text[0], one, number[1] ? "; the first one is repeated by " : "", number[1] ? text[1] : "");
        else
            ts_propose(the_case, "stale", prediction, region.pieces,
                       "whether the position advances: the same row is read or written again",
                       number[1] == 1 ? "%s %s repeats %s %" PRIu64 ", the first one"
                                      : "%ss %s repeat %s %" PRIu64 ", the first one",
                       one, text[1], one, ts_case_row(the_case, 0));
    }
    free(chosen);
}

/* The code of a number that f16 holds: codes of one sign are in the order of their values. */
static uint32_t f16_code(float value)
{
    uint32_t low = 0, high = 0x7c00;
    while (low + 1 < high) {
        uint32_t middle = (low + high) / 2;
        if (ts_f16_to_float((uint16_t)middle) <= fabsf(value))
            low = middle;
        else
            high = middle;
    }
    return low | (signbit(value) ? 0x8000u : 0);
}

static int encode(double value, enum ts_type type, uint32_t *bits)
{
    *bits = type == TS_F16 ? f16_code((float)value) : ts_float_bits((float)value) >> (type == TS_BF16 ? 16 : 0);
    return type == TS_F32 ? 32 : 16;
}

static double decode(uint32_t bits, enum ts_type type)
{
    return (double)(type == TS_F16 ? ts_f16_to_float((uint16_t)bits)
                                   : ts_float_from_bits(type == TS_BF16 ? bits << 16 : bits));
}

/* The one bit whose flip brings the value back to what was expected, noise aside; -1 when there is none. xored: it, or
 * the few bits in which the two differ. */
static int flipped_bit(const struct ts_case *the_case, size_t i, uint32_t *xored)
{
    uint32_t bits;
    enum ts_type type = ts_case_pair(the_case)->b.tensor->type == TS_F16 ? TS_F16
                        : the_case->actor->bits_b == 7                   ? TS_BF16
                                                                         : TS_F32;
    int width = encode(the_case->found[i], type, &bits), best = -1;
    double expected = the_case->expected[i], closest = 0.02 * fabs(expected) + 1e-30;
    double slack = 4 * sqrt(the_case->noise / (double)the_case->total);
    if (slack > closest && fabs(the_case->found[i] - expected) > 4 * slack)
        closest = slack;
    for (int bit = 0; bit < width; bit++) {
        double back = decode(bits ^ (uint32_t)1 << bit, type);
        if (isfinite(back) && fabs(back - expected) < closest) {
            closest = fabs(back - expected);
            best = bit;
        }
    }
    (void)encode(expected, type, xored);
    *xored = best >= 0 ? (uint32_t)1 << best : *xored ^ bits;
    return best;
}

static void sparse(struct ts_case *the_case)
{
    double costs[FEW_MOST + 1] = {0};
    size_t most = (size_t)(FEW_SHARE * (double)the_case->total), few = 0, kept = 0, flips = 0, shown = 0;
    double above = the_case->error - the_case->noise, sum = 0, least = 0, certain;
    const double usual = the_case->noise / (double)the_case->total;
    char text[512] = "";
    size_t used = 0, first = SIZE_MAX;
    bool together = true;
    most = most < FEW_LEAST ? FEW_LEAST : most > FEW_MOST ? FEW_MOST : most;
    if (the_case->total < 16 * FEW_LEAST || !(above > 0))
        return;
    /* the largest most + 1 of them, in order */
    for (size_t i = 0; i < the_case->total; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        size_t at = kept;
        if (ts_case_aside(the_case, i / the_case->actor->width) || !(cost > 0) ||
            (kept == most + 1 && cost <= costs[kept - 1]))
            continue;
        while (at > 0 && costs[at - 1] < cost)
            at--;
        kept += kept < most + 1;
        memmove(&costs[at + 1], &costs[at], (kept - 1 - at) * sizeof *costs);
        costs[at] = cost;
    }
    /* until the next one is far below, or no more than noise makes; else this is only the tail of something spread */
    while (few < most && costs[few] > 0 &&
           (sum < 0.9 * above || (costs[few] > NOISE_TAIL * usual && costs[few] > 0.03 * costs[few - 1])))
        sum += costs[few++];
    if (sum < 0.9 * above || !few || (costs[few] > NOISE_TAIL * usual && costs[few] > 0.03 * costs[few - 1]))
        return;
    least = costs[few - 1];
    for (size_t i = 0; i < the_case->total; i++)
        if (ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]) >= least) {
            if (!isfinite(the_case->found[i]) || !isfinite(the_case->expected[i])) /* a mask that differs */
                return;
            first = first == SIZE_MAX ? i % the_case->actor->width : first;
            together = together && i % the_case->actor->width == first;
        }
    if (few > 2 && together) /* a channel, in few rows */
        return;
    for (size_t i = 0; i < the_case->total && shown < 4; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        uint32_t xored;
        char place[96];
        int bit;
        if (cost < least || ts_case_aside(the_case, i / the_case->actor->width))
            continue;
        bit = flipped_bit(the_case, i, &xored);
        flips += bit >= 0;
        place_text(the_case, i, place, sizeof place);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s: %.6g for %.6g", shown ? "; " : "", place,
                                 the_case->found[i], the_case->expected[i]);
        if (bit >= 0 && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, " (xor 0x%" PRIx32 ": bit %d)", xored, bit);
        else if (used < sizeof text && __builtin_popcount(xored) <= FEW_BITS)
            used += (size_t)snprintf(text + used, sizeof text - used, " (xor 0x%" PRIx32 ": %d bits)", xored,
                                     __builtin_popcount(xored));
        used = used < sizeof text ? used : sizeof text - 1;
        shown++;
    }
    /* of a single row it cannot be told from a bad channel */
    certain = the_case->actor->rows > 1 ? 0.97 : 0.75;
    ts_propose_plain(the_case, "sparse", sum < above ? certain * sum / above : certain,
                     flips == shown ? "the memory or the transport: one bit of each was flipped"
                                    : "a race, an index out of range, a boundary of a kernel, memory that is shared",
                     few == 1 ? "%zu of %zu elements%s makes %.0f %% of the error%s: %s"
                              : "%zu of %zu elements%s make %.0f %% of the error%s: %s",
                     few, the_case->total, looked_at(the_case), sum / above < 1 ? 100 * sum / above : 100,
                     the_case->noise > above ? " that is no noise" : "", text);
}

static void propose(struct ts_case *the_case)
{
    bool *mask = calloc(the_case->total, sizeof *mask);
    double *prediction = ts_case_scratch(the_case);
    if (mask && prediction) {
        non_finite(the_case, mask);
        if (the_case->error > 0) {
            zeros(the_case, mask, prediction);
            unwritten(the_case, mask, prediction);
            stale(the_case, mask, prediction);
            repeated_rows(the_case, mask, prediction);
            sparse(the_case);
        }
    }
    free(mask);
}

const struct ts_family ts_family_memory = {.name = "memory", .propose = propose};
