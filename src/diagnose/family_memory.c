/* Memory: what happens to buffers, whatever the model computes. NaN and infinities born here (memory_nan.c), zeros,
 * constants and older data where new values should be, and a few elements that were hit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "diagnose/formula.h"
#include "diagnose/memory.h"
#include "diagnose/region.h"
#include "diagnose/variant.h"

#define NOISE_TAIL 40 /* times its usual size, squared: as far as noise goes in a million elements */
#define FEW_BITS   4  /* bits that may have been flipped together */
/* A hit of single elements: no more than this share of them, and no more than so many. */
#define FEW_SHARE 1e-3
#define FEW_MOST  64
#define FEW_LEAST 4
#define FEW_SMALL 8 /* of tensors with a hundred times as many */
#define FEW_FLOOR 1e-8
/* Of the error may be elsewhere, above the noise, where few numbers are said to be wrong; and how much of such a claim
 * is left where more is. */
#define FEW_ELSEWHERE 0.02
#define FEW_DOUBTED   0.6
/* Shorter runs of one value happen by themselves. */
#define RUN_LEAST 8
/* Tokens of which a channel may be said to hold one number: in fewer, eight bits agree by chance. */
#define STEADY_ROWS 5

/* Predicts `value(i)` on the mask and what was expected elsewhere. */
static void fill(const struct ts_case *the_case, const bool *mask, double *prediction)
{
    for (size_t i = 0; i < the_case->total; i++)
        prediction[i] = mask[i] ? the_case->found[i] : the_case->expected[i];
}

/* What is left over of something else: in these channels, and the words around the number of its elements. */
struct left_over {
    const char *before, *after; /* kept as long as the diagnosis; NULL: nothing is counted */
    bool channels[];
};

/* Slots of a tally. */
enum { HITS, ELEMENTS, HIT_COST, COST };

/* One value, or an older tensor's, wherever it is found in the channels that have some of it here. */
static bool predict_left_over(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct left_over *left = formula->numbers;
    const struct ts_actor *older = formula->pair_count ? ts_scene_actor(the_case->scene, formula->pairs[0]) : NULL;
    size_t width = the_case->actor->width;
    if (formula->size != sizeof *left + width * sizeof *left->channels ||
        (formula->pair_count && (!older || older->rows * older->width != the_case->total)))
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double value = older ? (double)older->b[i] : formula->table[0];
        out[i] = left->channels[i % width] && the_case->found[i] == value && (!older || value != 0)
                     ? value
                     : the_case->expected[i];
    }
    return true;
}

static bool count_left_over(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                            struct ts_tally *tally)
{
    const struct left_over *left = formula->numbers;
    size_t width = the_case->actor->width;
    tally->sums[ELEMENTS] += (double)the_case->total;
    for (size_t i = 0; i < the_case->total; i++) /* of an older tensor what was expected is no news */
        tally->sums[HITS] += left->channels[i % width] && out[i] == the_case->found[i] &&
                             (formula->pair_count ? out[i] != the_case->expected[i] : out[i] == formula->table[0]);
    return true;
}

static const char *tell_left_over(struct ts_case *the_case, const struct ts_formula *formula,
                                  const struct ts_tally *tally, double *share)
{
    const struct left_over *left = formula->numbers;
    (void)share;
    return ts_case_text(the_case, "%s%" PRIu64 " of %" PRIu64 "%s", left->before, (uint64_t)tally->sums[HITS],
                        (uint64_t)tally->sums[ELEMENTS], left->after);
}

/* older: NULL for the value. before: of the summary, NULL: it has no numbers. */
static void give_left_over(struct ts_case *the_case, const bool *mask, double value, const struct ts_actor *older,
                           const char *before, const char *after)
{
    size_t width = the_case->actor->width, size = sizeof(struct left_over) + width * sizeof(bool);
    struct left_over *left = calloc(1, size);
    if (!left)
        return;
    left->before = before;
    left->after = after;
    for (size_t i = 0; i < the_case->total; i++)
        left->channels[i % width] = left->channels[i % width] || mask[i];
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_left_over,
                                                   .count = before ? count_left_over : NULL,
                                                   .tell = before ? tell_left_over : NULL,
                                                   .numbers = left,
                                                   .size = size,
                                                   .table = &value,
                                                   .table_count = 1,
                                                   .pairs = {older ? older->pair : 0},
                                                   .pair_count = older ? 1 : 0});
    free(left);
}

static bool predict_constant(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = formula->table[0];
    return true;
}

static bool count_constant(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                           struct ts_tally *tally)
{
    (void)formula;
    tally->sums[ELEMENTS] += (double)the_case->total;
    for (size_t i = 0; i < the_case->total; i++)
        tally->sums[HITS] += the_case->found[i] == out[i] || ts_case_aside(the_case, i / the_case->actor->width);
    return true;
}

/* How much of everything it is, and what. */
static const char *all_of_it(struct ts_case *the_case, double value, double hits, double elements)
{
    const char *what =
        value == 0 ? "zero" : ts_case_text(the_case, "%.9g (bits 0x%08" PRIx32 ")", value, ts_float_bits((float)value));
    if (hits == elements)
        return ts_case_text(the_case, "every element of the candidate is %s", what);
    return ts_case_text(the_case, "nearly every element of the candidate is %s (%" PRIu64 " of %" PRIu64 ")", what,
                        (uint64_t)hits, (uint64_t)elements);
}

static const char *tell_constant(struct ts_case *the_case, const struct ts_formula *formula,
                                 const struct ts_tally *tally, double *share)
{
    (void)share;
    return all_of_it(the_case, formula->table[0], tally->sums[HITS], tally->sums[ELEMENTS]);
}

static void give_constant(struct ts_case *the_case, double value)
{
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_constant,
                                                   .count = count_constant,
                                                   .tell = tell_constant,
                                                   .table = &value,
                                                   .table_count = 1});
}

/* Not one element that counts is left out. */
static bool is_everything(const struct ts_case *the_case, const bool *mask)
{
    for (size_t i = 0; i < the_case->total; i++)
        if (!mask[i] && !ts_case_aside(the_case, i / the_case->actor->width))
            return false;
    return true;
}

/* A part of a sum is zero to within the sum's rounding. */
static double nothing_of(const struct ts_case *the_case)
{
    return ts_case_is_part(the_case) ? 4 * sqrt(the_case->noise / (double)the_case->total) : 0;
}

static void zeros(struct ts_case *the_case, bool *mask, double *prediction)
{
    struct ts_region region;
    size_t wanted = 0;
    const double nothing = nothing_of(the_case);
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
        give_constant(the_case, 0);
    else
        give_left_over(the_case, mask, 0, NULL, ts_case_text(the_case, "the candidate is zero in %s (", region.text),
                       " elements)");
    if (region.whole) /* predicting nothing at all is the measure of other hypotheses, so that it cannot measure this */
        ts_propose_measured(the_case, "zeros", 0, 0,
                            ts_case_check(the_case, "whether this step ran, and whether its result was written",
                                          "whether this weight was loaded before it was written"),
                            "%s",
                            all_of_it(the_case, 0,
                                      (double)(is_everything(the_case, mask) ? the_case->total : region.count),
                                      (double)the_case->total));
    else
        ts_propose(
            the_case, "zeros", prediction, region.pieces,
            ts_case_check(
                the_case,
                "whether this part is computed and written: the grid of a kernel, a slice, a mask, a padded length",
                "whether this part was loaded and converted: a shard, an expert or a slice that is missing"),
            "the candidate is zero in %s (%zu of %zu elements%s)", region.text, region.count, the_case->total,
            ts_looked_at(the_case));
}

/* Where scores are masked, another number as low masks as well, unless it is one byte over and over, as memory is
 * filled. */
static bool is_of_a_mask(const struct ts_case *the_case, double value)
{
    const uint32_t bits = ts_float_bits((float)value), byte = bits >> 24;
    bool masks = false;
    for (size_t i = 0; i < the_case->total && !masks; i++)
        masks = the_case->expected[i] == -INFINITY;
    return masks && !ts_is_allowed(value) && (bits >> 16 & 0xff) != byte;
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
    if (longest < RUN_LEAST || is_of_a_mask(the_case, value))
        return;
    for (size_t i = 0; i < the_case->total; i++)
        mask[i] = the_case->found[i] == value;
    ts_region_trim(the_case, mask);
    if (!ts_region_of(the_case, mask, &region))
        return;
    fill(the_case, mask, prediction);
    if (region.whole)
        give_constant(the_case, value);
    else
        give_left_over(the_case, mask, value, NULL, ts_case_text(the_case, "%s: ", region.text),
                       ts_case_text(the_case, " elements are all %.9g (bits 0x%08" PRIx32 ")", value,
                                    ts_float_bits((float)value)));
    if (region.whole)
        ts_propose_measured(
            the_case, "unwritten", 0, 1,
            ts_case_check(
                the_case, "whether this step ran at all: the value looks like what the buffer was filled with",
                "whether this weight was loaded before it was written: the value looks like what it was filled with"),
            "%s", all_of_it(the_case, value, (double)the_case->total, (double)the_case->total));
    else
        ts_propose(the_case, "unwritten", prediction, region.pieces + 1,
                   "whether all of it is written: the value looks like what the buffer was filled with",
                   "%s: %zu elements are all %.9g (bits 0x%08" PRIx32 ")", region.text, region.count, value,
                   ts_float_bits((float)value));
}

/* NaN in the table: the channel is as expected. */
static bool predict_steady(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    size_t width = the_case->actor->width;
    if (formula->table_count != width)
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = isnan(formula->table[i % width]) ? the_case->expected[i] : formula->table[i % width];
    return true;
}

/* Channels that hold one number each, to the last bit, in all tokens: a product with zeros, and the bias that is added
 * to it. Where it is zero everywhere, zeros() says so. */
static void steady_channels(struct ts_case *the_case, bool *mask, double *prediction)
{
    const size_t rows = the_case->actor->rows, width = the_case->actor->width;
    struct ts_region region;
    double *steady;
    size_t count = 0, biased = 0;
    if (rows < STEADY_ROWS || ts_case_direct(the_case) || ts_case_is_part(the_case))
        return;
    steady = malloc(width * sizeof *steady);
    memset(mask, 0, the_case->total * sizeof *mask);
    for (size_t i = 0; i < width && steady; i++) {
        bool same = isfinite(the_case->found[i]) != 0, spread = false;
        for (size_t row = 1; row < rows && same; row++) {
            same = the_case->found[row * width + i] == the_case->found[i];
            spread = spread || the_case->expected[row * width + i] != the_case->expected[i];
        }
        steady[i] = same && spread ? the_case->found[i] : (double)NAN;
        count += same && spread;
        biased += same && spread && the_case->found[i] != 0;
        for (size_t row = 0; row < rows && same && spread; row++)
            mask[row * width + i] = true;
    }
    /* all of them: every token repeats the first one, unless a norm with a bias was given zeros */
    if (steady && biased && (count < width || the_case->operation.kind == TS_OPERATION_NORM) &&
        ts_region_of(the_case, mask, &region)) {
        fill(the_case, mask, prediction);
        ts_formula_next(the_case,
                        &(struct ts_formula){.predict = predict_steady, .table = steady, .table_count = width});
        ts_propose(the_case, "zeros", prediction, region.pieces + count,
                   count < width ? "whether the weights of these channels are loaded: only the bias is left"
                                 : "the input of the norm: only its bias is left",
                   count < width ? "%s: one value per channel, the same in every %s, as zero weights and a bias give"
                                 : "%s: one value per channel, the same in every %s, as a norm of zeros gives",
                   region.text, ts_case_row_word(the_case));
    }
    free(steady);
}

/* Elements that are bit for bit an older tensor's, where something else was expected. */
static void stale(struct ts_case *the_case, bool *mask, double *prediction)
{
    size_t newest = the_case->actor->pair;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= newest; back++) {
        const struct ts_actor *other = ts_scene_actor(the_case->scene, newest - back);
        struct ts_region region;
        size_t number = 0, written = 0, unlike = 0;
        if (!other || other->rows * other->width != the_case->total)
            continue;
        for (size_t i = 0; i < the_case->total; i++) {
            double older = (double)other->b[i];
            unlike += (older > 0) != (the_case->found[i] != 0);
            mask[i] = older == the_case->found[i] && older != 0 && older != the_case->expected[i];
            number += mask[i];
            written += the_case->found[i] != 0;
        }
        if (number >= RUN_LEAST && number * 20 > written * 19 &&
            written * 20 < the_case->total * 19) { /* it is that tensor, but for what is masked */
            if (!unlike)                           /* or relu, which is no step that is missing */
                continue;
            fill(the_case, mask, prediction);
            give_left_over(the_case, mask, 0, other, NULL, NULL);
            ts_propose(
                the_case, "skipped-op", prediction, 0,
                ts_case_text(the_case, "whether the step from %s to this tensor runs", ts_case_name(the_case, other)),
                "where it is not zero, the candidate holds %s unchanged: this step was not applied",
                ts_case_name(the_case, other));
            continue;
        }
        ts_region_trim(the_case, mask);
        if (number < RUN_LEAST || !ts_region_of(the_case, mask, &region) || region.whole)
            continue;
        fill(the_case, mask, prediction);
        give_left_over(the_case, mask, 0, other, ts_case_text(the_case, "%s: ", region.text),
                       ts_case_text(the_case, " elements still hold %s", ts_case_name(the_case, other)));
        ts_propose(the_case, "stale", prediction, region.pieces,
                   "whether all of it is written: a reused buffer, the length passed to the kernel",
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

/* Which rows are told to repeat another. */
struct repeats {
    bool before, first; /* the one before, the first one, which is in the table */
    uint64_t first_row;
};

/* A row of the candidate, in the case or not. */
static bool read_row(const struct ts_case *the_case, uint64_t row, double *out)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    size_t width = the_case->actor->width;
    struct ts_error ignored;
    float *values;
    bool good;
    if (ts_case_direct(the_case))
        return ts_view_read_f64(&pair->b, row * width, width, out, &ignored) == TS_OK;
    values = malloc(width * sizeof *values);
    good = values && ts_scene_read(the_case->scene, the_case->actor->pair, true, ts_scene_first(the_case->scene) + row,
                                   1, 0, width, values, &ignored) == TS_OK;
    for (size_t i = 0; i < width && good; i++)
        out[i] = (double)values[i];
    free(values);
    return good;
}

/* Which of the two a row of the case repeats: 1 the one before it, 2 the first one, 0 none. */
static int repeats_what(const struct ts_case *the_case, const struct ts_formula *formula, size_t row, double *spare)
{
    const struct repeats *repeats = formula->numbers;
    size_t width = the_case->actor->width;
    uint64_t own = ts_case_row(the_case, row);
    const double *now = the_case->found + row * width, *before = NULL;
    if (repeats->before && own) {
        if (row && ts_case_row(the_case, row - 1) + 1 == own)
            before = now - width;
        else if (!ts_case_complete(the_case)) /* of a long sequence it may not be at hand */
            before = read_row(the_case, own - 1, spare) ? spare : NULL;
        if (before && is_copy(now, before, width))
            return 1;
    }
    return repeats->first && own != repeats->first_row && is_copy(now, formula->table, width) ? 2 : 0;
}

static bool predict_repeats(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    size_t width = the_case->actor->width;
    double *spare = malloc(width * sizeof *spare);
    for (size_t row = 0; row < the_case->actor->rows && spare; row++)
        memcpy(out + row * width,
               (repeats_what(the_case, formula, row, spare) ? the_case->found : the_case->expected) + row * width,
               width * sizeof *out);
    free(spare);
    return spare != NULL;
}

enum { BEFORE, FIRST };

static bool count_repeats(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                          struct ts_tally *tally)
{
    size_t width = the_case->actor->width;
    double *spare = malloc(width * sizeof *spare);
    (void)out;
    for (size_t row = 0; row < the_case->actor->rows && spare; row++) {
        int what = repeats_what(the_case, formula, row, spare);
        if (!what || memcmp(the_case->found + row * width, the_case->expected + row * width,
                            width * sizeof *the_case->found) == 0)
            continue;
        tally->sums[what == 1 ? BEFORE : FIRST]++;
        ts_tally_place(tally, the_case, row * width);
    }
    free(spare);
    return spare != NULL;
}

static const char *tell_repeats(struct ts_case *the_case, const struct ts_formula *formula,
                                const struct ts_tally *tally, double *share)
{
    const struct repeats *repeats = formula->numbers;
    const char *one = ts_case_row_word(the_case), *first = "";
    uint64_t before = (uint64_t)tally->sums[BEFORE], number = (uint64_t)tally->sums[FIRST];
    (void)share;
    if (!tally->place_count)
        return NULL;
    if (number)
        first = ts_case_text(the_case, "%s%" PRIu64 " %s%s repeat%s %s %" PRIu64 ", the first one", before ? "; " : "",
                             number, one, number == 1 ? "" : "s", number == 1 ? "s" : "", one, repeats->first_row);
    return ts_case_text(the_case, "%s%s, first %s %" PRIu64,
                        before ? ts_case_text(the_case, "%" PRIu64 " %s%s repeat%s the %s before %s", before, one,
                                              before == 1 ? "" : "s", before == 1 ? "s" : "", one,
                                              before == 1 ? "it" : "them")
                               : "",
                        first, one, tally->places[0].row);
}

/* Rows that repeat the row before, or the first one. */
static void repeated_rows(struct ts_case *the_case, bool *mask, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    size_t number[2] = {0, 0}, width = actor->width;
    struct repeats repeats = {true, true, ts_case_row(the_case, 0)};
    struct ts_formula formula = {.numbers = &repeats, .table = the_case->found};
    struct ts_region region;
    char text[2][80];
    double *spare;
    bool *chosen;
    if (actor->rows < 2 || width < RUN_LEAST)
        return;
    chosen = calloc(2 * actor->rows, sizeof *chosen);
    spare = malloc(width * sizeof *spare);
    memset(mask, 0, the_case->total * sizeof *mask);
    for (size_t row = 0; row < actor->rows && chosen && spare; row++) {
        int what = repeats_what(the_case, &formula, row, spare);
        if (!what)
            continue;
        chosen[(what == 1 ? 0 : actor->rows) + row] = true;
        number[what == 1 ? 0 : 1]++;
        for (size_t i = row * width; i < (row + 1) * width; i++)
            mask[i] = the_case->found[i] != the_case->expected[i];
    }
    if (chosen && ts_region_of(the_case, mask, &region)) {
        const char *one = ts_case_row_word(the_case);
        repeats.before = number[0] > 0;
        repeats.first = number[1] > 0;
        fill(the_case, mask, prediction);
        for (int way = 0; way < 2; way++)
            ts_region_list(the_case, chosen + (way ? actor->rows : 0), actor->rows, true, text[way], sizeof text[way]);
        if (!ts_case_folded(the_case))
            ts_formula_next(the_case, &(struct ts_formula){.predict = predict_repeats,
                                                           .count = count_repeats,
                                                           .tell = tell_repeats,
                                                           .numbers = &repeats,
                                                           .size = sizeof repeats,
                                                           .table = the_case->found,
                                                           .table_count = width});
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
    free(spare);
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

static enum ts_type type_of_bits(const struct ts_case *the_case)
{
    return ts_case_pair(the_case)->b.tensor->type == TS_F16 ? TS_F16 : the_case->actor->bits_b == 7 ? TS_BF16 : TS_F32;
}

/* The one bit whose flip brings these to less than `closest` from what was expected; -1 when there is none. */
static int bit_that_flipped(uint32_t bits, int width, enum ts_type type, double expected, double closest)
{
    int best = -1;
    for (int bit = 0; bit < width; bit++) {
        double back = decode(bits ^ (uint32_t)1 << bit, type);
        if (isfinite(back) && fabs(back - expected) < closest) {
            closest = fabs(back - expected);
            best = bit;
        }
    }
    return best;
}

int ts_bit_of_nan(const struct ts_case *the_case, double found, double expected, double *value)
{
    enum ts_type type = type_of_bits(the_case);
    uint32_t bits, quiet = type == TS_BF16 ? 1u << 6 : 1u << 22;
    int width = encode(found, type, &bits);
    /* what processors make themselves has nothing but the quiet bit; conversions set that one */
    if (type == TS_F16 || (bits & (quiet - 1)) == 0)
        return -1;
    for (int way = 0; way < 2; way++, bits ^= quiet) {
        int bit = bit_that_flipped(bits, width, type, expected, 0.02 * fabs(expected));
        *value = bit < 0 ? 0 : decode(bits ^ (uint32_t)1 << bit, type);
        if (bit >= 0)
            return bit;
    }
    return -1;
}

/* The one bit whose flip brings the value back to what was expected, noise aside; -1 when there is none. xored: it, or
 * the few bits in which the two differ. */
static int flipped_bit(const struct ts_case *the_case, double found, double expected, uint32_t *xored)
{
    uint32_t bits;
    enum ts_type type = type_of_bits(the_case);
    int width = encode(found, type, &bits), best;
    /* where it is off by little, nearly any bit brings it as close as that, but not much closer than it is */
    double closest = 0.02 * fmin(fabs(expected), fabs(found - expected)) + 1e-30;
    double slack = 4 * sqrt(the_case->noise / (double)the_case->total);
    if (slack > closest && fabs(found - expected) > 4 * slack)
        closest = slack;
    best = bit_that_flipped(bits, width, type, expected, closest);
    (void)encode(expected, type, xored);
    *xored = best >= 0 ? (uint32_t)1 << best : *xored ^ bits;
    return best;
}

/* "token 3, channel 5: 2 instead of 1 (xor ...)" of the first ones; returns how many of them are one flipped bit. */
static size_t list_hits(const struct ts_case *the_case, const struct ts_tally *tally, char *text, size_t room)
{
    size_t used = 0, flips = 0;
    text[0] = 0;
    for (size_t k = 0; k < tally->place_count; k++) {
        const struct ts_tally_place *at = &tally->places[k];
        char place[96];
        uint32_t xored;
        int bit = flipped_bit(the_case, at->found, at->expected, &xored);
        flips += bit >= 0;
        ts_place_text(the_case, at, place, sizeof place);
        used += (size_t)snprintf(text + used, room - used, "%s%s: %.6g instead of %.6g", k ? "; " : "", place,
                                 at->found, at->expected);
        if (bit >= 0 && used < room)
            used += (size_t)snprintf(text + used, room - used, " (xor 0x%" PRIx32 ": bit %d)", xored, bit);
        else if (used < room && __builtin_popcount(xored) <= FEW_BITS)
            used += (size_t)snprintf(text + used, room - used, " (xor 0x%" PRIx32 ": %d bits)", xored,
                                     __builtin_popcount(xored));
        used = used < room ? used : room - 1;
    }
    return flips;
}

/* Each of them is what was expected but for one bit, to the last of the others: no wrong computation does that. */
static bool are_flips(const struct ts_case *the_case, const struct ts_tally *tally)
{
    enum ts_type type = type_of_bits(the_case);
    for (size_t k = 0; k < tally->place_count; k++) {
        uint32_t found, expected;
        (void)encode(tally->places[k].found, type, &found);
        (void)encode(tally->places[k].expected, type, &expected);
        if (__builtin_popcount(found ^ expected) != 1 || decode(expected, type) != tally->places[k].expected)
            return false;
    }
    return tally->place_count > 0;
}

/* Single elements that were hit. */
struct hits {
    double least;   /* cost of one */
    double usual;   /* noise of an element */
    double certain; /* that they were */
    bool loud;      /* noise makes most of the error */
};

static bool count_hits(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                       struct ts_tally *tally)
{
    const struct hits *hits = formula->numbers;
    (void)out;
    tally->sums[ELEMENTS] += (double)the_case->total;
    for (size_t i = 0; i < the_case->total; i++) {
        double cost;
        if (the_case->found[i] == the_case->expected[i]) /* nearly all are */
            continue;
        cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        if (!(cost > 0) || ts_case_aside(the_case, i / the_case->actor->width))
            continue;
        tally->sums[COST] += cost;
        if (cost < hits->least)
            continue;
        tally->sums[HITS]++;
        tally->sums[HIT_COST] += cost;
        ts_tally_place(tally, the_case, i);
    }
    return true;
}

static const char *hits_text(struct ts_case *the_case, const struct hits *hits, const struct ts_tally *tally,
                             double share, const char *among)
{
    char text[512];
    uint64_t number = (uint64_t)tally->sums[HITS];
    (void)list_hits(the_case, tally, text, sizeof text);
    return ts_case_text(the_case, "%" PRIu64 " of %" PRIu64 " elements%s account%s for %.0f %% of the error%s: %s",
                        number, (uint64_t)tally->sums[ELEMENTS], among, number == 1 ? "s" : "", 100 * share,
                        hits->loud ? " above the noise" : "", text);
}

static const char *tell_hits(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                             double *share)
{
    const struct hits *hits = formula->numbers;
    double above = tally->sums[COST] - hits->usual * tally->sums[ELEMENTS], part;
    part = above > 0 && tally->sums[HIT_COST] < above ? tally->sums[HIT_COST] / above : 1;
    *share = tally->sums[HITS] > fmax(FEW_MOST, FEW_SHARE * tally->sums[ELEMENTS]) ? 0 : hits->certain * part;
    return hits_text(the_case, hits, tally, part, "");
}

static void sparse(struct ts_case *the_case)
{
    double costs[FEW_MOST + 1] = {0};
    size_t most = (size_t)(FEW_SHARE * (double)the_case->total), few = 0, kept = 0, flips;
    double above = the_case->error - the_case->noise, sum = 0, least = 0, part;
    const double usual = the_case->noise / (double)the_case->total;
    char text[512];
    size_t first = SIZE_MAX, begin = the_case->total, end = 0;
    bool together = true, flipped;
    struct hits hits = {.usual = usual, .loud = the_case->noise > above};
    struct ts_formula formula = {.count = count_hits, .tell = tell_hits, .numbers = &hits, .size = sizeof hits};
    struct ts_tally tally;
    if (most < FEW_SMALL)
        most = the_case->total < 100 * FEW_SMALL ? FEW_LEAST : FEW_SMALL;
    most = most > FEW_MOST ? FEW_MOST : most;
    if (!(above > 0) || ts_case_ordinary(the_case))
        return;
    most = the_case->total < 16 * FEW_LEAST ? 1 : most;
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
            begin = i < begin ? i : begin;
            end = i;
            first = first == SIZE_MAX ? i % the_case->actor->width : first;
            together = together && i % the_case->actor->width == first;
        }
    if (few > 2 && together) /* a channel, in few rows */
        return;
    if (few > FEW_LEAST && end - begin < 16 * few) /* a short row */
        return;
    hits.least = least;
    ts_tally_open(&tally);
    (void)count_hits(the_case, &formula, NULL, &tally);
    flipped = are_flips(the_case, &tally);
    if (the_case->total < 16 * FEW_LEAST && !flipped) /* one of so few may be anything */
        return;
    flips = list_hits(the_case, &tally, text, sizeof text);
    part = sum < above ? sum / above : 1;
    /* of a single row it cannot be told from a bad channel */
    hits.certain = the_case->actor->rows > 1 || flipped ? 0.97 : 0.75;
    if (above - sum > FEW_ELSEWHERE * above && above - sum > NOISE_TAIL * the_case->noise)
        hits.certain *= FEW_DOUBTED;
    /* elsewhere a hit may be smaller, but above what is none here: among so many more noise reaches further, and
     * tokens have more or less of it. Some that are a ten-thousandth in size of those at hand count for nothing. */
    hits.least = costs[few] > 0 ? fmin(least, fmax(4 * costs[few], FEW_FLOOR * least)) : 0;
    ts_formula_next(the_case, &formula);
    ts_propose_plain(the_case, "sparse", hits.certain * part,
                     flips == tally.place_count
                         ? "memory or transport: one bit of each was flipped"
                         : ts_case_check(the_case, "a race, an index out of range, a kernel boundary, shared memory",
                                         "how the file was written, copied or edited since"),
                     "%s", hits_text(the_case, &hits, &tally, part, ts_looked_at(the_case)));
}

static void propose(struct ts_case *the_case)
{
    bool *mask = calloc(the_case->total, sizeof *mask);
    double *prediction = ts_case_scratch(the_case);
    if (mask && prediction) {
        ts_propose_non_finite(the_case);
        if (the_case->error > 0) {
            zeros(the_case, mask, prediction);
            ts_propose_dropout(the_case, nothing_of(the_case));
            unwritten(the_case, mask, prediction);
            steady_channels(the_case, mask, prediction);
            ts_propose_empty_lines(the_case);
            stale(the_case, mask, prediction);
            repeated_rows(the_case, mask, prediction);
            sparse(the_case);
        }
    }
    free(mask);
}

const struct ts_family ts_family_memory = {.name = "memory", .propose = propose};
