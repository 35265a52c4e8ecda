/* Algebra: the candidate is a simple function of what was expected of it: one factor, one offset, a factor or an offset
 * per channel, per row or per head. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/comparison_edits.h"
#include "diagnose/factor.h"
#include "diagnose/formula.h"
#include "diagnose/product.h"
#include "diagnose/region.h"
#include "diagnose/variant.h"

/* A part (a row, a channel) gets a parameter of its own when it errs this many times more than noise would make it. */
#define STANDS_OUT 6.0
/* And this share of the worst part's error: in a clean run the noise is known only roughly. */
#define BESIDE_THE_WORST 1e-12
/* A few channels: a sixteenth of all. */
#define AMONG_THE_FEW 0.03
#define FEW_OF        16
#define NEARLY_ALL    0.9
/* Of the energy of the parts that have a factor of their own: what the factors must give. */
#define LEAST_GIVEN 0.5
/* An offset for each part must explain this much more than one for all. */
#define WORTH_MORE 0.005
/* Of what differs from token to token, what may stay unexplained by one number per channel, and by two. */
#define ONE_NUMBER  0.33
#define TWO_NUMBERS 0.08
#define RESEMBLES   0.5 /* cosine */
/* Of a factor that shows in all numbers of a quantized weight together. */
#define QUANTIZED_SURE 0.9
#define QUANTIZED_CHECK                                                                                                \
    "a scale that is missing, applied twice or computed from another size; the file that was quantized"
/* Tokens whose factors rise: so many, from less than that, to one within that. */
#define RISING_ROWS  8
#define BEGINS_BELOW 0.5
#define ABOUT_ONE    0.1
#define USUAL_DIGITS 4
#define MOST_DIGITS  9
/* A factor beside a bias: of so many tokens, that far from one and from zero, which explains so much; how far means
 * move at least, in energy, beside what the factor would move them. */
#define FEWEST_ROWS  5
#define NO_FACTOR    0.05
#define BUT_BIAS     0.9
#define SAME_MEAN    0.1
#define LEAST_SPREAD 1e-9 /* of the size, that tells a factor from a constant */
#define BIAS_WORTH   0.05 /* more than without constants */

/* Sums of one part, over the elements that count. */
struct sums {
    double count, x, y, xx, xy, yy, error;
};

enum partition { BY_ROW, BY_HEAD_OF_ROW, BY_CHANNEL, BY_CHANNEL_OF_HEAD, BY_HEAD, ALL };

static size_t parts_of(const struct ts_actor *actor, enum partition partition)
{
    switch (partition) {
    case BY_ROW:
        return actor->rows;
    case BY_HEAD_OF_ROW:
        return actor->rows * actor->heads;
    case BY_CHANNEL:
        return actor->width;
    case BY_CHANNEL_OF_HEAD:
        return actor->inner;
    case BY_HEAD:
        return actor->heads;
    default:
        return 1;
    }
}

static size_t part_at(const struct ts_actor *actor, enum partition partition, size_t i)
{
    switch (partition) {
    case BY_ROW:
        return i / actor->width;
    case BY_HEAD_OF_ROW:
        return i / actor->inner;
    case BY_CHANNEL:
        return i % actor->width;
    case BY_CHANNEL_OF_HEAD:
        return i % actor->inner;
    case BY_HEAD:
        return i % actor->width / actor->inner;
    default:
        return 0;
    }
}

static bool counts(const struct ts_case *the_case, size_t i)
{
    return isfinite(the_case->expected[i]) && isfinite(the_case->found[i]) &&
           !ts_case_aside(the_case, i / the_case->actor->width);
}

static struct sums *add_up(const struct ts_case *the_case, enum partition partition, size_t *parts)
{
    struct sums *sums;
    *parts = parts_of(the_case->actor, partition);
    sums = calloc(*parts, sizeof *sums);
    for (size_t i = 0; sums && i < the_case->total; i++) {
        struct sums *part = &sums[part_at(the_case->actor, partition, i)];
        double x = the_case->expected[i], y = the_case->found[i];
        if (!counts(the_case, i))
            continue;
        part->count++;
        part->x += x;
        part->y += y;
        part->xx += x * x;
        part->xy += x * y;
        part->yy += y * y;
        part->error += (y - x) * (y - x);
    }
    return sums;
}

/* Parts that err more than their share of the noise; the others keep what was expected. */
static size_t choose(const struct ts_case *the_case, const struct sums *sums, size_t parts, bool *chosen)
{
    double size = 0, count = 0, worst = 0;
    size_t number = 0;
    for (size_t p = 0; p < parts; p++) {
        size += sums[p].xx;
        count += sums[p].count;
        worst = sums[p].error > worst ? sums[p].error : worst;
    }
    for (size_t p = 0; p < parts; p++) {
        /* half by size and half by number, so that near-zero parts are not taken for bad ones */
        double share = size > 0 && count > 0 ? 0.5 * sums[p].xx / size + 0.5 * sums[p].count / count : 1;
        chosen[p] = sums[p].error > STANDS_OUT * the_case->noise * share && sums[p].error > BESIDE_THE_WORST * worst;
        number += chosen[p];
    }
    return number;
}

/* Of channels, where a few hold nearly all of the error: those alone. What the others err by is left to noise, which a
 * number for each would follow. */
static size_t choose_few(const struct sums *sums, size_t parts, bool *chosen, size_t number)
{
    double worst = 0, all = 0, held = 0;
    size_t few = 0;
    for (size_t p = 0; p < parts; p++) {
        all += sums[p].error;
        worst = sums[p].error > worst ? sums[p].error : worst;
    }
    for (size_t p = 0; p < parts; p++)
        if (chosen[p] && sums[p].error > AMONG_THE_FEW * worst) {
            held += sums[p].error;
            few++;
        }
    if (few * FEW_OF > parts || held < NEARLY_ALL * all)
        return number;
    for (size_t p = 0; p < parts; p++)
        chosen[p] = chosen[p] && sums[p].error > AMONG_THE_FEW * worst;
    return few;
}

/* What has no relation to the reference has the factor zero, nearly, and that predicts its size away: a factor must
 * give most of what the chosen parts hold. */
static bool are_multiples(const struct sums *sums, size_t parts, const bool *chosen)
{
    double given = 0, held = 0;
    for (size_t p = 0; p < parts; p++)
        if (chosen[p] && sums[p].xx > 0) {
            given += sums[p].xy * sums[p].xy / sums[p].xx;
            held += sums[p].yy;
        }
    return given > LEAST_GIVEN * held;
}

/* A weight whose error as a whole is no more than quantizing makes: all of its numbers together show the factor. */
static bool is_quantized_multiple(const struct ts_case *the_case)
{
    double slope, beside;
    return ts_case_quiet(the_case) && ts_case_direct(the_case) && the_case->delta &&
           ts_is_multiple(&the_case->scene->pairs[the_case->actor->pair], the_case->delta, &slope, &beside);
}

/* What a factor is, in words: the usual suspects and the model's own sizes. */
static void whole_tensor(struct ts_case *the_case, double *prediction)
{
    size_t parts;
    struct sums *all = add_up(the_case, ALL, &parts);
    double factor, offset, slope, left = 0, spread, inherited;
    char what[336];
    if (!all || all->count < 2 || !(all->xx > 0)) {
        free(all);
        return;
    }
    factor = all->xy / all->xx;
    for (size_t i = 0; i < the_case->total; i++) {
        prediction[i] = factor * the_case->expected[i];
        if (counts(the_case, i))
            left += (the_case->found[i] - prediction[i]) * (the_case->found[i] - prediction[i]);
    }
    /* four standard errors of the fit, and what a constant rounded to bf16 is off by */
    spread = 4 * sqrt(left / (all->count * all->xx));
    /* what the run makes of itself elsewhere moves the factor as well; a factor that is known to no better than a
     * twentieth has no name */
    inherited = fmin(0.5 * sqrt(the_case->noise / all->xx) / fabs(factor), 0.01);
    ts_factor_text(the_case, factor, fmin(fmax(spread / fabs(factor), fmax(inherited, 2e-3)), 0.05), what, sizeof what);
    if (is_quantized_multiple(the_case))
        ts_propose_below_noise(the_case, "scaled", QUANTIZED_SURE, QUANTIZED_CHECK,
                               "every element is %.4g times what it should be%s, beside an error that quantizing "
                               "explains",
                               factor, what);
    ts_formula_affine(the_case, factor, 0);
    /* a tenth of it and more under coarse weights */
    if (fabs(factor + 1) < 0.02 + spread + 0.5 * sqrt(the_case->noise / all->xx))
        ts_propose(the_case, "sign-flipped", prediction, 1,
                   "a missing or doubled minus, a - b instead of b - a, a sine or cosine with the wrong sign",
                   "every element has the opposite sign (factor %.4g)", factor);
    else if (fabs(factor) > 1e-3 && fabs(factor) > spread) /* else it is no factor, but no relation */
        ts_propose(the_case, "scaled", prediction, 1,
                   strstr(ts_case_name(the_case, the_case->actor), "expert")
                       ? "a scale that is missing, applied twice or computed from another size: routed_scaling_factor"
                       : "a scale that is missing, applied twice or computed from another size",
                   "every element is %.*g times what it should be%s", ts_factor_digits(factor), factor, what);

    offset = (all->y - all->x) / all->count;
    for (size_t i = 0; i < the_case->total; i++)
        prediction[i] = the_case->expected[i] + offset;
    ts_formula_affine(the_case, 1, offset);
    ts_propose(the_case, "offset", prediction, 1,
               "a constant that is added or left out: (1 + w), an epsilon, a zero point",
               "every element is off by %+.6g", offset);

    spread = all->xx - all->x * all->x / all->count;
    if (spread > 1e-12 * all->xx) {
        slope = (all->xy - all->x * all->y / all->count) / spread;
        offset = (all->y - slope * all->x) / all->count;
        for (size_t i = 0; i < the_case->total; i++)
            prediction[i] = slope * the_case->expected[i] + offset;
        ts_formula_affine(the_case, slope, offset);
        if (fabs(slope) > 1e-3 && fabs(slope) > 4 * sqrt(left / (all->count * spread)))
            ts_propose(the_case, "affine", prediction, 2,
                       "a scale and a zero point, or the normalization of the inputs",
                       "every element is %.6g times what it should be, plus %.6g", slope, offset);
    }
    free(all);
}

/* "channels 16 to 31", "rows 3, 7, 9 and 4 more" */
static void list_chosen(const struct ts_case *the_case, const bool *chosen, size_t parts, bool rows, char *text,
                        size_t room)
{
    size_t first = SIZE_MAX, last = 0, number = 0, used = 0;
    for (size_t p = 0; p < parts; p++)
        if (chosen[p]) {
            first = first == SIZE_MAX ? p : first;
            last = p;
            number++;
        }
    text[0] = 0;
    if (number == 0)
        return;
    if (number > 2 && last - first + 1 == number) {
        snprintf(text, room, "%" PRIu64 " to %" PRIu64, rows ? ts_case_row(the_case, first) : first,
                 rows ? ts_case_row(the_case, last) : last);
        return;
    }
    for (size_t p = 0, listed = 0; p < parts; p++)
        if (chosen[p] && listed++ < 4 && used < room)
            used += (size_t)snprintf(text + used, room - used, "%s%" PRIu64, listed > 1 ? ", " : "",
                                     rows ? ts_case_row(the_case, p) : (uint64_t)p);
    if (number > 4 && used < room)
        snprintf(text + used, room - used, " and %zu more", number - 4);
}

/* Found and expected look alike, as they do but for a bias or the weight of a norm. */
static bool resembles(const struct ts_case *the_case)
{
    double dot = 0, found = 0, expected = 0;
    for (size_t i = 0; i < the_case->total; i++)
        if (counts(the_case, i)) {
            dot += the_case->found[i] * the_case->expected[i];
            found += the_case->found[i] * the_case->found[i];
            expected += the_case->expected[i] * the_case->expected[i];
        }
    return dot > RESEMBLES * sqrt(found * expected);
}

/* Tokens that have most in common follow any number per channel: what differs from token to token must follow as well.
 * True when the prediction leaves less than a share of that, noise aside. Where they differ by no more than noise they
 * follow nothing, and it is one of many things that may have made another row of numbers, unless that is much like the
 * right one. */
static bool follows_tokens(const struct ts_case *the_case, const double *prediction, double share)
{
    size_t width = the_case->actor->width, rows = the_case->actor->rows;
    double varying = 0, left = 0;
    for (size_t i = 0; i < width; i++) {
        double mean = 0, count = 0;
        for (size_t row = 0; row < rows; row++)
            if (counts(the_case, row * width + i)) {
                mean += the_case->found[row * width + i];
                count++;
            }
        mean /= count > 0 ? count : 1;
        for (size_t at = i; at < rows * width; at += width)
            if (counts(the_case, at)) {
                varying += (the_case->found[at] - mean) * (the_case->found[at] - mean);
                left += (the_case->found[at] - prediction[at]) * (the_case->found[at] - prediction[at]);
            }
    }
    return left - the_case->noise <= share * varying && (varying > the_case->noise || resembles(the_case));
}

/* One factor for a run of channels: a head that is folded into the width, a shard. A factor per channel says the same
 * with more words: true when it says no more, `share` being what that explains. */
static bool one_run(struct ts_case *the_case, const struct sums *sums, const bool *chosen, size_t parts, double share,
                    double *prediction)
{
    size_t first = 0, last = parts, size;
    double xx = 0, xy = 0, factor, *factors;
    while (first < parts && !chosen[first])
        first++;
    while (last > first && !chosen[last - 1])
        last--;
    if (!prediction || last - first < 4 || 2 * (last - first) > parts + parts / 2)
        return false;
    for (size_t p = first; p < last; p++) {
        xx += sums[p].xx;
        xy += sums[p].xy;
    }
    if (!(xx > 0) || !(fabs(xy / xx) > 0.02) || /* zeros have a name of their own */
        !(factors = malloc(parts * sizeof *factors)))
        return false;
    factor = xy / xx;
    for (size_t i = 0; i < the_case->total; i++) {
        size_t p = i % the_case->actor->width;
        prediction[i] = the_case->expected[i] * (p >= first && p < last ? factor : 1);
        factors[p] = p >= first && p < last ? factor : 1;
    }
    ts_formula_channels(the_case, factors, NULL);
    free(factors);
    size = ts_folded_head(the_case);
    if (size && (last - first) % size == 0 && first % size == 0)
        ts_propose(the_case, "heads", prediction, 3, "this head's weights, its sign and its scale",
                   "channels %zu to %zu (head %zu of %zu%s) are %.5g times what they should be", first, last - 1,
                   first / size, parts / size, last - first > size ? " and the next" : "", factor);
    else
        ts_propose(the_case, "channels", prediction, 3,
                   "the slice, shard or block of the weights that makes these channels: its sign, its scale",
                   "channels %zu to %zu of %zu are %.5g times what they should be", first, last - 1, parts, factor);
    return ts_explained(the_case, prediction) > share - WORTH_MORE;
}

/* The numbers of the parts for rows that are not here; where each row has its own they are fitted to it. */
static void give_formula(struct ts_case *the_case, enum partition partition, const double *numbers, bool offset,
                         double low, double high)
{
    const struct ts_actor *actor = the_case->actor;
    double *wide;
    if (partition == BY_ROW || partition == BY_HEAD_OF_ROW) {
        ts_formula_rows(the_case, partition == BY_HEAD_OF_ROW, offset, low, high);
        return;
    }
    wide = malloc(actor->width * sizeof *wide);
    for (size_t i = 0; wide && i < actor->width; i++)
        wide[i] = numbers[part_at(actor, partition, i)];
    if (wide)
        ts_formula_channels(the_case, offset ? NULL : wide, offset ? wide : NULL);
    free(wide);
}

struct words {
    const char *scaled_id, *scaled_check, *offset_id, *offset_check, *what, *per;
};

/* One constant for all explains as much as one for each part. */
static bool is_one_offset(struct ts_case *the_case, const struct sums *sums, size_t parts, double explained)
{
    double *prediction = ts_case_scratch(the_case), count = 0, offset = 0;
    for (size_t p = 0; p < parts; p++) {
        count += sums[p].count;
        offset += sums[p].y - sums[p].x;
    }
    for (size_t i = 0; prediction && i < the_case->total; i++)
        prediction[i] = the_case->expected[i] + offset / count;
    return prediction && count > 0 && ts_explained(the_case, prediction) > explained - WORTH_MORE;
}

/* All that err are one head, which has a claim of its own with fewer numbers. */
static bool are_of_one_head(const struct ts_actor *actor, const bool *chosen, size_t parts)
{
    size_t head = SIZE_MAX;
    for (size_t p = 0; p < parts; p++) {
        if (!chosen[p])
            continue;
        if (head != SIZE_MAX && p % actor->heads != head)
            return false;
        head = p % actor->heads;
    }
    return true;
}

/* `squares` of so many numbers with this sum are those of one number. */
static bool is_one_number(double count, double sum, double squares)
{
    return count > 1 && squares * count - sum * sum <= 1e-12 * squares * count;
}

/* What is one number in all of a part follows nothing that is expected there, if that is not one number as well: it was
 * never written. */
static bool hold_one_number(const struct sums *sums, size_t parts, const bool *chosen)
{
    for (size_t p = 0; p < parts; p++)
        if (chosen[p] && (!is_one_number(sums[p].count, sums[p].y, sums[p].yy) ||
                          is_one_number(sums[p].count, sums[p].x, sums[p].xx)))
            return false;
    return true;
}

/* Parts that hold nothing but zeros are for "zeros" to say: a factor of 0 for them would take others along, which err
 * as noise does. Returns how many are left. */
static size_t without_zeros(const struct sums *sums, size_t parts, bool *chosen)
{
    size_t left = 0;
    for (size_t p = 0; p < parts; p++) {
        chosen[p] = chosen[p] && !(sums[p].xx > 0 && sums[p].yy == 0);
        left += chosen[p];
    }
    return left;
}

/* How many digits tell the two numbers apart, and as many as people read where that takes none. */
static int digits_between(double low, double high)
{
    double size = fmax(fabs(low), fabs(high)), apart = fabs(high - low);
    int digits = apart > 0 ? (int)ceil(log10(size / apart)) + 2 : USUAL_DIGITS;
    return digits < USUAL_DIGITS ? USUAL_DIGITS : digits > MOST_DIGITS ? MOST_DIGITS : digits;
}

/* "each channel has its own factor, from 0.9 to 1.1", "channel 3 is 1.51 times what it should be". which: the parts
 * that err, where not all do. */
static const char *parts_text(struct ts_case *the_case, enum partition partition, const struct words *words,
                              size_t number, size_t parts, const char *which, bool offset, double low, double high)
{
    const char *what = partition == BY_ROW ? ts_case_row_word(the_case) : words->what;
    const int digits = digits_between(low, high);
    if (number == parts)
        return ts_case_text(the_case,
                            offset ? "each %s is off by its own constant%s, from %.*g to %.*g"
                                   : "each %s has its own factor%s, from %.*g to %.*g",
                            what, words->per, digits, low, digits, high);
    if (partition == BY_HEAD_OF_ROW) /* a number of head and row together names neither */
        return ts_case_text(the_case, "%zu of the %zu heads of all %ss are each off by a factor, from %.*g to %.*g",
                            number, parts, ts_case_row_word(the_case), digits, low, digits, high);
    if (number == 1)
        return ts_case_text(the_case, offset ? "%s %s is off by %+.4g%s" : "%s %s is %.4g times what it should be%s",
                            what, which, low, words->per);
    if (fabs(high - low) <= 1e-4 * fabs(high))
        return ts_case_text(the_case,
                            offset ? "%ss %s are off by %+.4g%s" : "%ss %s are %.4g times what they should be%s", what,
                            which, high, words->per);
    return ts_case_text(the_case,
                        offset ? "%ss %s are each off by a constant, from %.*g to %.*g%s"
                               : "%ss %s are each off by a factor, from %.*g to %.*g%s",
                        what, which, digits, low, digits, high, words->per);
}

static bool is_attended(const struct ts_case *the_case)
{
    return the_case->operation.kind == TS_OPERATION_NONE && ts_names_attention(ts_case_name(the_case, the_case->actor));
}

/* Factors of tokens that rise from little to one: the first ones miss what they gave to all that come behind them, and
 * the last one has nothing behind it. */
static bool rise_to_one(const struct ts_case *the_case, const double *factors)
{
    const size_t rows = the_case->actor->rows, part = rows / 4;
    double sums[4] = {0};
    if (rows < RISING_ROWS || the_case->actor->sequence < rows ||
        ts_case_row(the_case, rows - 1) + 1 != (uint64_t)the_case->actor->sequence)
        return false;
    for (size_t row = 0; row < 4 * part; row++) {
        if (!(factors[row] > 0 && factors[row] < 1 + ABOUT_ONE))
            return false;
        sums[row / part] += factors[row] / (double)part;
    }
    return factors[0] < BEGINS_BELOW && fabs(factors[rows - 1] - 1) < ABOUT_ONE && sums[1] > sums[0] &&
           sums[2] > sums[1] && sums[3] > sums[2];
}

/* A factor, then an offset, for each part that errs. */
static void by_part(struct ts_case *the_case, enum partition partition, const struct words *words, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    size_t parts, number;
    struct sums *sums = add_up(the_case, partition, &parts);
    bool *chosen = calloc(parts ? parts : 1, sizeof *chosen);
    double low = INFINITY, high = -INFINITY, *numbers = calloc(parts ? parts : 1, sizeof *numbers);
    bool one = false;
    char which[128];
    if (!sums || !chosen || !numbers || parts < 2 || !choose(the_case, sums, parts, chosen) ||
        !(number = without_zeros(sums, parts, chosen)))
        goto done;
    if (partition == BY_CHANNEL)
        number = choose_few(sums, parts, chosen, number);
    list_chosen(the_case, chosen, parts, partition == BY_ROW, which, sizeof which);
    for (size_t p = 0; p < parts; p++)
        if (chosen[p] && sums[p].xx > 0) {
            double factor = sums[p].xy / sums[p].xx;
            low = factor < low ? factor : low;
            high = factor > high ? factor : high;
        }
    for (size_t i = 0; i < the_case->total; i++) {
        size_t p = part_at(actor, partition, i);
        numbers[p] = chosen[p] && sums[p].xx > 0 ? sums[p].xy / sums[p].xx : 1;
        prediction[i] = the_case->expected[i] * numbers[p];
    }
    if (partition == BY_HEAD_OF_ROW && actor->rows > 1)
        one = are_of_one_head(actor, chosen, parts);
    if (partition == BY_CHANNEL)
        one = one_run(the_case, sums, chosen, parts, ts_explained(the_case, prediction), ts_case_scratch(the_case));
    if (partition == BY_ROW && is_attended(the_case) && rise_to_one(the_case, numbers)) {
        give_formula(the_case, partition, numbers, false, low, high);
        ts_propose(
            the_case, "mask", prediction, number,
            "where the mask is applied: in front of the softmax, not behind it, so that the probabilities of "
            "what a token sees add up to one",
            "each token is smaller by a factor that rises from %.4g in the first to %.4g in the last, as if keys "
            "that come later took their share of the softmax and gave nothing",
            numbers[0], numbers[parts - 1]);
    }
    give_formula(the_case, partition, numbers, false, low, high);
    if (!one && (fabs(low) > 1e-3 || fabs(high) > 1e-3) && /* all near zero: that is for "zeros" to say */
        are_multiples(sums, parts, chosen) &&
        (partition != BY_CHANNEL || number * 2 < parts || follows_tokens(the_case, prediction, ONE_NUMBER)))
        ts_propose(the_case, words->scaled_id, prediction, number, words->scaled_check, "%s",
                   parts_text(the_case, partition, words, number, parts, which, false, low, high));
    if (!words->offset_id)
        goto done;
    low = INFINITY, high = -INFINITY;
    for (size_t p = 0; p < parts; p++)
        if (chosen[p]) {
            double offset = (sums[p].y - sums[p].x) / sums[p].count;
            low = offset < low ? offset : low;
            high = offset > high ? offset : high;
        }
    for (size_t i = 0; i < the_case->total; i++) {
        size_t p = part_at(actor, partition, i);
        numbers[p] = chosen[p] ? (sums[p].y - sums[p].x) / sums[p].count : 0;
        prediction[i] = the_case->expected[i] + numbers[p];
    }
    give_formula(the_case, partition, numbers, true, low, high);
    /* a constant per channel follows the mean of anything over a few rows: a bias leaves nothing */
    if (partition == BY_CHANNEL &&
        (ts_explained(the_case, prediction) < 0.9 || !follows_tokens(the_case, prediction, ONE_NUMBER)))
        number = 0;
    if ((number == parts && is_one_offset(the_case, sums, parts, ts_explained(the_case, prediction))) ||
        hold_one_number(sums, parts, chosen))
        number = 0;
    if (number)
        ts_propose(the_case, words->offset_id, prediction, number, words->offset_check, "%s",
                   parts_text(the_case, partition, words, number, parts, which, true, low, high));
done:
    free(sums);
    free(chosen);
    free(numbers);
}

/* A factor and an offset per channel: two normalizations of inputs, or a norm with weight and bias. */
static void affine_by_channel(struct ts_case *the_case, enum partition partition, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    size_t parts, follow = 0;
    struct sums *sums;
    double *factors, *offsets;
    if ((partition == BY_CHANNEL ? actor->rows : actor->width) < 6 || !(sums = add_up(the_case, partition, &parts)))
        return;
    factors = calloc(2 * parts, sizeof *factors);
    if (!factors) {
        free(sums);
        return;
    }
    offsets = factors + parts;
    for (size_t i = 0; i < the_case->total; i++) {
        size_t p = part_at(actor, partition, i);
        const struct sums *s = &sums[p];
        double spread = s->xx - s->x * s->x / s->count, slope = 1;
        if (s->count > 2 && spread > LEAST_SPREAD * s->xx)
            slope = (s->xy - s->x * s->y / s->count) / spread;
        follow += fabs(slope) > 1e-3;
        prediction[i] = s->count > 0 ? slope * (the_case->expected[i] - s->x / s->count) + s->y / s->count : 0;
        factors[p] = s->count > 0 ? slope : 0;
        offsets[p] = s->count > 0 ? (s->y - slope * s->x) / s->count : 0;
    }
    if (partition == BY_CHANNEL)
        ts_formula_channels(the_case, factors, offsets);
    /* two numbers per channel follow anything of low rank half of the way: this is for what they give exactly; factors
     * of zero would make a relation of any constant */
    if (2 * follow > the_case->total && ts_explained(the_case, prediction) > 0.97 &&
        follows_tokens(the_case, prediction, TWO_NUMBERS))
        ts_propose(the_case, "affine", prediction, 2 * parts,
                   partition == BY_CHANNEL ? "the weight and bias of a norm, or the mean and variance of its inputs"
                                           : "a norm's weight, bias, groups, epsilon, running mean and variance",
                   "each channel has its own factor and its own offset");
    free(sums);
    free(factors);
}

/* One factor for all that differs between tokens, and a constant for each channel: a factor on what goes into a product
 * with a bias, or on its weight. Half as many numbers as a factor and an offset for each channel are. */
static void scaled_but_bias(struct ts_case *the_case, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    size_t parts;
    struct sums *sums = actor->rows < FEWEST_ROWS ? NULL : add_up(the_case, BY_CHANNEL, &parts);
    double *factors = sums ? calloc(2 * parts, sizeof *factors) : NULL, xx = 0, xy = 0, factor, kept = 0, moved = 0;
    double all_xx = 0, all_xy = 0, alone = 0;
    for (size_t p = 0; factors && p < parts; p++)
        if (sums[p].count > 0) {
            all_xx += sums[p].xx;
            all_xy += sums[p].xy;
            xx += sums[p].xx - sums[p].x * sums[p].x / sums[p].count;
            xy += sums[p].xy - sums[p].x * sums[p].y / sums[p].count;
        }
    factor = xx > LEAST_SPREAD * all_xx ? xy / xx : 1; /* of tokens that are the same, rounding alone differs */
    for (size_t p = 0; factors && p < parts; p++)
        if (sums[p].count > 0) {
            const double x = sums[p].x / sums[p].count, y = sums[p].y / sums[p].count;
            factors[p] = factor;
            factors[parts + p] = y - factor * x;
            moved += (y - factor * x) * (y - factor * x); /* what a factor without a bias would leave */
            kept += (y - x) * (y - x);
        }
    /* around the same mean, that is another temperature of attention; and with no constant it is a factor */
    if (factors && fabs(factor - 1) > NO_FACTOR && fabs(factor) > NO_FACTOR &&
        (!is_attended(the_case) || kept > SAME_MEAN * moved)) {
        for (size_t i = 0; i < the_case->total; i++)
            prediction[i] = all_xy / all_xx * the_case->expected[i];
        alone = ts_explained(the_case, prediction);
        for (size_t i = 0; i < the_case->total; i++)
            prediction[i] = factor * the_case->expected[i] + factors[parts + i % actor->width];
        if (ts_explained(the_case, prediction) > fmax(BUT_BIAS, alone + BIAS_WORTH) &&
            follows_tokens(the_case, prediction, TWO_NUMBERS)) {
            ts_formula_channels(the_case, factors, factors + parts);
            ts_propose(the_case, factor < 0 && fabs(factor + 1) < NO_FACTOR ? "sign-flipped" : "scaled", prediction,
                       1 + parts, "a factor on what goes into this product, or on its weight, and not on its bias",
                       "what differs between tokens is %.4g times what it should be, and each channel has a constant "
                       "beside it that is not: a bias",
                       factor);
        }
    }
    free(sums);
    free(factors);
}

/* What a product makes, by its name: it has no weight of a norm. */
static bool is_projection(const struct ts_case *the_case)
{
    const char *name = ts_case_name(the_case, the_case->actor);
    return the_case->operation.kind == TS_OPERATION_NONE && !strstr(name, "norm") && !strstr(name, "rope") &&
           (strstr(name, "proj") || strstr(name, "c_fc") || strstr(name, "fc1") || strstr(name, "fc2") ||
            ts_names_operand(name));
}

static void propose(struct ts_case *the_case)
{
    static const struct words row = {
        "row-scaled", "a norm that is missing or has another epsilon, or a scale per token",
        "centering",  "whether the mean is removed (LayerNorm) or not (RMSNorm)",
        "row",        ""};
    static const struct words attended = {
        "row-scaled",
        "probabilities that do not add up to one (a mask behind the softmax, attention sinks), a norm that is "
        "missing, or a scale per token",
        "centering",
        "whether the mean is removed (LayerNorm) or not (RMSNorm)",
        "row",
        ""};
    static const struct words head_of_row = {"row-scaled",
                                             "a norm over each head that is missing or has another epsilon",
                                             NULL,
                                             NULL,
                                             "head of each token",
                                             ""};
    static const struct words channel = {
        "channel-scaled", "a norm's weight: missing, (1 + w) instead of w, or another layer's; or a scale per channel",
        "offset",         "a bias that is missing, added twice or another layer's",
        "channel",        ""};
    static const struct words projected = {
        "channel-scaled",
        "the rows of the weight that makes these channels: their scales if it is quantized, a norm's "
        "weight that is folded into it, a shard",
        "offset",
        "a bias that is missing, added twice or another layer's",
        "channel",
        ""};
    static const struct words channel_of_head = {
        "channel-scaled", "the weight of a norm over heads: missing, (1 + w) instead of w, or another layer's",
        "offset",         "a bias that is missing or another layer's",
        "channel",        ", the same in every head"};
    static const struct words head = {"heads", "a scale per head, or one head's weights",
                                      "heads", "a bias per head, or one head's weights",
                                      "head",  ""};
    static const struct words plane = {
        "channel-scaled", "a norm's weight, its running variance or epsilon, or a scale per channel",
        "offset",         "a bias or a running mean that is missing, added twice or another layer's",
        "channel",        ""};
    const struct ts_actor *actor = the_case->actor;
    double *prediction = ts_case_scratch(the_case);
    if (!prediction || !(the_case->error > 0))
        return;
    whole_tensor(the_case, prediction);
    if (ts_case_is_image(the_case)) {
        by_part(the_case, BY_ROW, &plane, prediction);
        affine_by_channel(the_case, BY_ROW, prediction);
        return;
    }
    if (actor->rows > 1)
        by_part(the_case, BY_ROW, is_attended(the_case) ? &attended : &row, prediction);
    if (actor->width > 1 && actor->rows > 1)
        by_part(the_case, BY_CHANNEL, is_projection(the_case) ? &projected : &channel, prediction);
    if (actor->heads > 1 && actor->inner > 1) {
        by_part(the_case, BY_HEAD_OF_ROW, &head_of_row, prediction);
        by_part(the_case, BY_CHANNEL_OF_HEAD, &channel_of_head, prediction);
        by_part(the_case, BY_HEAD, &head, prediction);
    }
    if (is_projection(the_case))
        scaled_but_bias(the_case, prediction);
    affine_by_channel(the_case, BY_CHANNEL, prediction);
}

const struct ts_family ts_family_algebra = {.name = "algebra", .propose = propose};
