/* Owns what is said about NaN and infinities that stand on one side only: how many there are in the whole tensor, which
 * is the first, and what may have made them; or that they are bits that nothing computed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/families.h"
#include "diagnose/memory.h"
#include "diagnose/types.h"
#include "tensor/mask.h"

#define LARGEST_F16 65504.0
#define FILL_VARIES 0.01f /* of a mask that is not minus infinity: rounding, and what it is added to */

/* Random bits are numbers of any size. An overflow leaves large ones, an underflow small ones: no computation leaves
 * some that are this much larger than all that is expected, and others this much smaller than what is expected in their
 * place. How many of either tell it. */
#define APART      0x1p40
#define FEWEST_OFF 8

/* What an element has to be to be counted. */
enum kind { A_NUMBER, IS_NAN, IS_INFINITE, ONLY_REFERENCE, ARE_BITS };

/* A finding about them, of some rows or of all. */
struct finding {
    enum kind kind;
    bool masking;    /* minus infinity is a mask */
    bool infinities; /* there are some beside the NaN */
    const char *why; /* of NaN, kept as long as the diagnosis */
    const char *before;
    bool flipped;   /* one bit makes the first NaN of what was expected */
    double largest; /* that is expected */
};

/* Slots of a tally. */
enum { HITS, ELEMENTS, ABOVE, NON_FINITE };

void ts_place_text(const struct ts_case *the_case, const struct ts_tally_place *place, char *text, size_t room)
{
    const struct ts_actor *actor = the_case->actor;
    const struct ts_view *view = &ts_case_pair(the_case)->a;
    unsigned axes = 0;
    uint64_t flat = place->flat, after = view->count;
    for (unsigned axis = 0; axis < view->rank; axis++)
        axes += view->shape[axis] > 1;
    if ((axes > (actor->heads > 1 ? 3u : 2u) || ts_case_folded(the_case)) && flat != UINT64_MAX) {
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
    if (ts_case_is_image(the_case))
        snprintf(text, room, "channel %" PRIu64 ", line %zu, column %zu", place->row, place->column / actor->inner,
                 place->column % actor->inner);
    else if (actor->heads > 1)
        snprintf(text, room, "token %" PRIu64 ", head %zu, channel %zu", place->row, place->column / actor->inner,
                 place->column % actor->inner);
    else
        snprintf(text, room, "%s %" PRIu64 ", %s %zu", ts_case_direct(the_case) ? "row" : "token", place->row,
                 ts_case_direct(the_case) ? "column" : "channel", place->column);
}

const char *ts_looked_at(const struct ts_case *the_case)
{
    return ts_case_complete(the_case) ? "" : " examined";
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

/* The reference masks with a number far below all that mean anything: one for all, which was added to them once or
 * twice. Other numbers of that size are merely large. */
static bool fills_mask(const struct ts_case *the_case)
{
    const float *a = the_case->actor->a;
    float largest = 0, fill = -INFINITY;
    size_t filled = 0;
    for (size_t i = 0; i < the_case->total; i++)
        largest = isfinite(a[i]) && a[i] > largest ? a[i] : largest;
    for (size_t i = 0; i < the_case->total; i++)
        if (ts_is_masked_score((double)a[i]) && -a[i] > 8 * largest) {
            fill = a[i] > fill ? a[i] : fill;
            filled++;
        }
    for (size_t i = 0; i < the_case->total; i++)
        if (ts_is_masked_score((double)a[i]) && -a[i] > 8 * largest) {
            const float off = fminf(fabsf(a[i] - fill), fabsf(a[i] - 2 * fill));
            if (!(off <= 8 * largest - FILL_VARIES * fill))
                return false;
        }
    return filled > 1;
}

/* Minus infinities that are a mask: the reference masks as well, or every head has them at the same places. */
static bool is_masking(const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t low = 0;
    if (fills_mask(the_case))
        return true;
    for (size_t i = 0; i < the_case->total; i++) {
        if (the_case->expected[i] == -INFINITY)
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

static enum kind kind_of(const struct ts_case *the_case, size_t i, bool masking)
{
    double found = the_case->found[i], reference = (double)the_case->actor->a[i];
    if (isnan(found) && !isnan(reference))
        return IS_NAN;
    if (isinf(found) && isfinite(reference) && !(found < 0 && masking))
        return IS_INFINITE;
    return isfinite(found) && (isnan(reference) || reference == INFINITY) ? ONLY_REFERENCE : A_NUMBER;
}

static bool is_tiny(const struct ts_case *the_case, size_t i)
{
    return the_case->found[i] != 0 && fabs(the_case->found[i]) * APART < fabs(the_case->expected[i]);
}

static bool is_huge(const struct ts_case *the_case, const struct finding *finding, size_t i)
{
    return isfinite(the_case->found[i]) && fabs(the_case->found[i]) > APART * finding->largest;
}

static bool is_counted(const struct ts_case *the_case, const struct finding *finding, size_t i)
{
    enum kind kind = kind_of(the_case, i, finding->masking);
    return finding->kind != ARE_BITS
               ? kind == finding->kind
               : kind == IS_NAN || kind == IS_INFINITE || is_tiny(the_case, i) || is_huge(the_case, finding, i);
}

static bool count(struct ts_case *the_case, const struct ts_formula *formula, const double *out, struct ts_tally *tally)
{
    const struct finding *finding = formula->numbers;
    (void)out;
    tally->sums[ELEMENTS] += (double)the_case->total;
    for (size_t i = 0; i < the_case->total; i++) {
        if (isfinite(the_case->found[i]))
            tally->most = fmax(tally->most, fabs(the_case->found[i]));
        if (is_tiny(the_case, i))
            tally->least = fmin(tally->least, fabs(the_case->found[i]));
        if (!is_counted(the_case, finding, i))
            continue;
        tally->sums[HITS]++;
        tally->sums[NON_FINITE] += !isfinite(the_case->found[i]);
        tally->sums[ABOVE] += fabs(the_case->expected[i]) > 0.99 * LARGEST_F16;
        ts_tally_place(tally, the_case, i);
    }
    return true;
}

/* Why they are infinite, as the first one and all of them show. */
static const char *why_infinite(struct ts_case *the_case, const struct finding *finding, const struct ts_tally *tally)
{
    double wanted = tally->places[0].expected;
    if (tally->sums[ABOVE] == tally->sums[HITS])
        return ts_case_text(
            the_case,
            ": %.6g is expected there, %s%.0f, the largest f16 (all of them should be beyond it, and no "
            "finite element exceeds %.6g)",
            wanted, wanted < 0 ? "below -" : "above ", LARGEST_F16, fmax(tally->most, 0));
    if (finding->before)
        return ts_case_text(the_case, "; %s before it already holds one", finding->before);
    return ts_case_text(the_case,
                        ", where %.6g is expected: an overflow on the way (the largest f16 is %.0f, the largest e4m3 "
                        "448) or a division by zero",
                        wanted, LARGEST_F16);
}

/* The sentence with the numbers of a tally. among: " examined" when they are not those of everything. */
static const char *sentence(struct ts_case *the_case, const struct finding *finding, const struct ts_tally *tally,
                            const char *among)
{
    uint64_t number = (uint64_t)tally->sums[HITS], all = (uint64_t)tally->sums[ELEMENTS];
    char place[96];
    ts_place_text(the_case, &tally->places[0], place, sizeof place);
    if (finding->kind == ONLY_REFERENCE)
        return ts_case_text(the_case,
                            "%" PRIu64 " of %" PRIu64 " elements%s %s NaN or infinite in the reference and %s in the "
                            "candidate",
                            number, all, among, number == 1 ? "is" : "are", number == 1 ? "a number" : "numbers");
    if (finding->kind == ARE_BITS)
        return ts_case_text(the_case,
                            "%" PRIu64 " of %" PRIu64 " elements%s, the first at %s, hold bits that nothing computed: "
                            "%snumbers from %.2g to %.2g, where the largest expected is %.4g",
                            number, all, among, place, tally->sums[NON_FINITE] > 0 ? "NaN or infinities, and " : "",
                            tally->least, tally->most, finding->largest);
    return ts_case_text(the_case, "%" PRIu64 " of %" PRIu64 " elements%s %s %s, %s %s%s", number, all, among,
                        number == 1 ? "is" : "are", finding->kind == IS_NAN ? "NaN" : "infinite",
                        number == 1 ? "at" : "the first at", place,
                        finding->kind == IS_NAN ? finding->why : why_infinite(the_case, finding, tally));
}

static const char *tell(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                        double *share)
{
    (void)share;
    return tally->place_count ? sentence(the_case, formula->numbers, tally, "") : NULL;
}

static bool is_weight(const struct ts_case *the_case)
{
    return ts_is_weight(ts_case_pair(the_case)->name);
}

static const char *why_nan(struct ts_case *the_case, struct finding *finding, const bool *mask, size_t first,
                           double before)
{
    bool zero_input = false;
    double value;
    int bit = ts_bit_of_nan(the_case, the_case->found[first], the_case->expected[first], &value);
    finding->flipped = bit >= 0;
    if (finding->flipped)
        return ts_case_text(the_case, "; it is one flipped bit away from %.6g (xor 0x%" PRIx32 ": bit %d)", value,
                            (uint32_t)1 << bit, bit);
    if (is_weight(the_case)) /* nothing has made it, and no other tensor of the file has a part in it */
        return "";
    for (unsigned k = 0; k < the_case->operation.input_count; k++) {
        const struct ts_actor *input = ts_scene_actor(the_case->scene, the_case->operation.inputs[k]);
        size_t row = first / the_case->actor->width;
        bool zeros = input && input->rows == the_case->actor->rows;
        for (size_t i = 0; zeros && i < input->width; i++)
            zeros = input->b[row * input->width + i] == 0;
        zero_input = zero_input || zeros;
    }
    if (finding->before)
        return ts_case_text(the_case, "; %s before it already holds %s", finding->before,
                            isnan(before) ? "NaN" : "an infinity, and inf - inf or 0 * inf makes NaN");
    if (finding->infinities)
        return "; there are infinities beside them, and inf - inf or 0 * inf makes NaN";
    if (the_case->operation.kind == TS_OPERATION_COPY)
        return ts_case_text(the_case,
                            "; the reference copies %s here, which holds numbers in the candidate too: memory that was "
                            "never written, or something between them that makes NaN",
                            the_case->scene->pairs[the_case->operation.inputs[0]].name);
    if (zero_input)
        return "; its input is all zero there, so a norm without epsilon divides 0 by 0";
    if (the_case->operation.kind == TS_OPERATION_NORM && by_whole_rows(the_case, mask))
        return "; whole rows of them: a sum of squares that overflows, or a row that is divided by zero (0 / 0)";
    if (the_case->operation.kind == TS_OPERATION_SOFTMAX || by_whole_rows(the_case, mask))
        return "; whole rows of them: a softmax over a fully masked row (0 / 0), or a sum that overflows";
    return "; nothing before it is NaN or infinite, so it starts here: 0 / 0, the root of a negative number, an "
           "overflow inside a kernel, or unwritten memory";
}

static void propose(struct ts_case *the_case, struct finding *finding)
{
    static const struct {
        const char *id, *check, *check_file; /* of a step in a run, of a weight */
    } words[] = {[IS_NAN] = {"nan", "the divisions, roots and exponentials in this step, and their precision",
                             "how the file was made: training that diverged, or memory that was never written"},
                 [IS_INFINITE] = {"inf",
                                  "the precision of this step: bf16 or f32 do not overflow there, or scale before and "
                                  "after",
                                  "how the file was made: training that diverged, or a type with a smaller range"},
                 [ONLY_REFERENCE] = {"nan", "the reference: its own run went wrong here",
                                     "the reference: its own file is damaged here"},
                 [ARE_BITS] = {"unwritten",
                               "whether all of it is written: the length of loops and copies, a stride, a race; or "
                               "what else these bytes are, and their type",
                               "how the file was made: memory that was never written, an offset, or the type that "
                               "these bytes are given"}};
    struct ts_formula formula = {.count = count, .tell = tell, .numbers = finding, .size = sizeof *finding};
    struct ts_tally tally;
    /* beside infinities it is their child */
    double confidence = finding->kind == ONLY_REFERENCE                  ? 0.9
                        : finding->kind == IS_NAN && finding->infinities ? 0.95
                                                                         : 1;
    ts_tally_open(&tally);
    (void)count(the_case, &formula, NULL, &tally);
    ts_formula_next(the_case, &formula);
    ts_propose_plain(the_case, words[finding->kind].id, confidence,
                     finding->flipped
                         ? "memory or transport: one bit was flipped"
                         : ts_case_check(the_case, words[finding->kind].check, words[finding->kind].check_file),
                     "%s", sentence(the_case, finding, &tally, ts_looked_at(the_case)));
}

/* Whether there are as many that are too large as too small. */
static bool are_bits(const struct ts_case *the_case, struct finding *finding, size_t non_finite)
{
    size_t tiny = 0, huge = non_finite;
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->expected[i]))
            finding->largest = fmax(finding->largest, fabs(the_case->expected[i]));
    for (size_t i = 0; i < the_case->total; i++) {
        tiny += is_tiny(the_case, i);
        huge += is_huge(the_case, finding, i);
    }
    return tiny >= FEWEST_OFF && huge >= FEWEST_OFF && tiny < 4 * huge && huge < 4 * tiny;
}

void ts_propose_non_finite(struct ts_case *the_case)
{
    struct finding finding = {.masking = is_masking(the_case)};
    size_t number[ONLY_REFERENCE + 1] = {0}, first = 0, source;
    bool *mask = calloc(the_case->total, sizeof *mask);
    double before = 0;
    bool bits;
    for (size_t i = 0; i < the_case->total && mask; i++) {
        enum kind kind = kind_of(the_case, i, finding.masking);
        mask[i] = kind == IS_NAN;
        first = mask[i] && !number[IS_NAN] ? i : first;
        number[kind]++;
    }
    if (mask && !is_weight(the_case) && (number[IS_NAN] || number[IS_INFINITE])) {
        source = born_before(the_case, &before);
        finding.before = source == SIZE_MAX ? NULL : the_case->scene->pairs[source].name;
    }
    finding.infinities = number[IS_INFINITE] > 0;
    bits = are_bits(the_case, &finding, number[IS_NAN] + number[IS_INFINITE]);
    /* bytes in reverse order make NaN and infinities of anything */
    if ((bits || number[IS_NAN] || number[IS_INFINITE]) && ts_bits_are_explained(the_case)) {
        free(mask);
        return;
    }
    if (bits) {
        finding.kind = ARE_BITS;
        propose(the_case, &finding);
        free(mask);
        return;
    }
    if (number[IS_NAN]) {
        finding.kind = IS_NAN;
        finding.why = why_nan(the_case, &finding, mask, first, before);
        propose(the_case, &finding);
    }
    if (number[IS_INFINITE]) {
        finding.kind = IS_INFINITE;
        finding.flipped = false;
        propose(the_case, &finding);
    }
    if (number[ONLY_REFERENCE] && !number[IS_NAN] && !number[IS_INFINITE]) {
        finding.kind = ONLY_REFERENCE;
        propose(the_case, &finding);
    }
    free(mask);
}
