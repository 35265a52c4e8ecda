/* Owns the structure of an error number by number: which one errs far more than the others, for its size, for its token
 * and for its channel, and whether a few are hit and the rest is not. */
#include "compare/structure_parts.h"

#include <math.h>
#include <stdlib.h>

#define BESIDE_ELEMENT 2 /* others of a token that may err as much as the one that stands out */
/* A number is calm below a thirtieth of the RMS error, as one in forty is of errors that are normal. Most: three of
 * four.
 */
#define SCATTERED_CALM  30.0
#define SCATTERED_OF    2
#define SCATTERED_LEAST 8

/* The error of one number over what those of its token and of its channel make likely: a large number that goes in
 * makes errors of all that it is multiplied with. */
static double error_alone(struct ts_scene *scene, const struct ts_actor *actor, size_t index)
{
    double others = 0, row = 0, channel = 0, own = fabs((double)actor->b[index] - (double)actor->a[index]);
    size_t other_count = 0, row_count = 0, channel_count = 0;
    for (size_t i = 0; i < actor->rows * actor->width; i++) {
        double d = (double)actor->b[i] - (double)actor->a[i];
        if (i == index || !isfinite(d) || !counts(scene, actor, i / actor->width))
            continue;
        if (i / actor->width == index / actor->width) {
            row += d * d;
            row_count++;
        } else if (i % actor->width == index % actor->width) {
            channel += d * d;
            channel_count++;
        } else {
            others += d * d;
            other_count++;
        }
    }
    if (!(row > 0) || !(channel > 0) || !(others > 0))
        return 0;
    return own * sqrt(others / (double)other_count / (row / (double)row_count) / (channel / (double)channel_count));
}

/* Zero on both sides, as activations make it of half of all numbers and masks of others: nothing that could err. */
static bool is_silent(const struct ts_actor *actor, size_t i)
{
    return actor->a[i] == 0 && actor->b[i] == 0;
}

/* Numbers of a token or a channel, and those of them that err. */
struct spared {
    size_t all, loud;
};

/* Of those that have such numbers at all. */
static bool are_mostly_calm(const struct spared *lines, size_t count)
{
    size_t all = 0, loud = 0;
    for (size_t i = 0; i < count; i++)
        if (lines[i].loud) {
            all += lines[i].all;
            loud += lines[i].loud;
        }
    return loud >= SCATTERED_LEAST && loud * SCATTERED_OF < all;
}

static double element_error(const struct ts_actor *actor, size_t i, double typical)
{
    double a = (double)actor->a[i];
    return fabs((double)actor->b[i] - a) / (fabs(a) + typical);
}

static bool is_scattered(struct ts_scene *scene, const struct ts_actor *actor, double typical)
{
    size_t total = actor->rows * actor->width, used = 0;
    struct spared *rows = calloc(actor->rows + actor->width, sizeof *rows), *channels;
    double squares = 0;
    bool scattered;
    if (!rows)
        return false;
    channels = rows + actor->rows;
    for (size_t i = 0; i < total; i++) {
        double error = element_error(actor, i, typical);
        if (isfinite(error) && counts(scene, actor, i / actor->width)) {
            squares += error * error;
            used++;
        }
    }
    for (size_t i = 0; i < total; i++) {
        double error = element_error(actor, i, typical);
        bool loud = error * error * SCATTERED_CALM * SCATTERED_CALM * (double)used > squares;
        if (!isfinite(error) || !counts(scene, actor, i / actor->width) || is_silent(actor, i))
            continue;
        rows[i / actor->width].all++;
        channels[i % actor->width].all++;
        rows[i / actor->width].loud += loud;
        channels[i % actor->width].loud += loud;
    }
    scattered = are_mostly_calm(rows, actor->rows) && are_mostly_calm(channels, actor->width);
    free(rows);
    return scattered;
}

/* Its error, as it is, is twice that of all but a few others of its token: where a norm makes much of some numbers
 * together, the one that happens to be small there errs most for its size, and no more than they do. */
static bool errs_most_of_token(const struct ts_actor *actor, size_t at)
{
    const size_t first = at / actor->width * actor->width;
    const double own = fabs((double)actor->b[at] - (double)actor->a[at]);
    size_t others = 0;
    for (size_t i = first; i < first + actor->width; i++)
        others += i != at && 2 * fabs((double)actor->b[i] - (double)actor->a[i]) > own;
    return others <= BESIDE_ELEMENT;
}

/* The error of a head of one token, but for this number, over that of the median head of all tokens. */
static double error_of_head(struct ts_scene *scene, const struct ts_actor *actor, size_t at)
{
    const size_t heads = actor->inner ? actor->rows * actor->width / actor->inner : 0;
    double *errors = actor->heads > 1 ? calloc(heads, sizeof *errors) : NULL, own = 0;
    size_t used = 0;
    for (size_t head = 0; head < heads && errors; head++) {
        double error = 0, size = 0;
        for (size_t i = head * actor->inner; i < (head + 1) * actor->inner; i++) {
            double d = (double)actor->b[i] - (double)actor->a[i];
            error += isfinite(d) && i != at ? d * d : 0;
            size += isfinite(d) ? (double)actor->a[i] * (double)actor->a[i] : 0;
        }
        if (!(size > 0) || !counts(scene, actor, head * actor->inner / actor->width))
            continue;
        errors[used++] = sqrt(error / size);
        if (head == at / actor->inner)
            own = sqrt(error / size);
    }
    own = used ? ratio_to(own, median_of(errors, used)) : 0;
    free(errors);
    return own;
}

/* Every number by itself. `only`: the worst is looked for at this place alone, or everywhere from SIZE_MAX. */
static void measure_elements(struct ts_scene *scene, const struct ts_actor *actor, size_t only,
                             struct ts_structure *structure)
{
    size_t total = actor->rows * actor->width, used = 0;
    double *scratch = calloc(total, sizeof *scratch), typical;
    for (size_t i = 0; i < total && scratch; i++)
        if (isfinite(actor->a[i]) && isfinite(actor->b[i]) && !is_silent(actor, i) &&
            counts(scene, actor, i / actor->width))
            scratch[used++] = fabs((double)actor->a[i]);
    typical = scratch ? median_of(scratch, used) : 0;
    used = 0;
    for (size_t i = 0; i < total && typical > 0; i++) {
        double error = element_error(actor, i, typical);
        if (!isfinite(error) || is_silent(actor, i) || !counts(scene, actor, i / actor->width))
            continue;
        scratch[used++] = error;
        if (error > structure->element && (only == SIZE_MAX || only == i)) {
            structure->element = error;
            structure->worst_element = i;
        }
    }
    /* of fewer, two tokens' worth is most of them */
    if (only == SIZE_MAX && actor->width >= TS_STRUCTURE_WIDTH && used > 2 * actor->rows)
        structure->element_gap = ratio_to(structure->element, ts_nth(scratch, used, used - 1 - 2 * actor->rows));
    structure->element = typical > 0 ? ratio_to(structure->element, median_of(scratch, used)) : 0;
    if (only == SIZE_MAX && structure->element > TS_ELEMENT_MANY && errs_most_of_token(actor, structure->worst_element))
        structure->element_alone = error_alone(scene, actor, structure->worst_element);
    if (structure->element_alone > TS_ELEMENT_ALONE)
        structure->element_head = error_of_head(scene, actor, structure->worst_element);
    if (only == SIZE_MAX && structure->element > SCATTERED_CALM)
        structure->scattered = is_scattered(scene, actor, typical);
    free(scratch);
}

double ts_structure_element(struct ts_scene *scene, const struct ts_actor *actor, size_t index)
{
    struct ts_structure structure = {0};
    measure_elements(scene, actor, index, &structure);
    return structure.element;
}

void ts_structure_elements(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    measure_elements(scene, actor, SIZE_MAX, structure);
}

bool ts_element_stands_out(const struct ts_structure *structure)
{
    return structure->known ? structure->element > TS_ELEMENT_MANY && structure->element_gap > TS_ELEMENT_MANY_GAP &&
                                  structure->element_alone > TS_ELEMENT_ALONE
                            : structure->element > TS_ELEMENT_LIMIT && structure->element_gap > TS_ELEMENT_GAP;
}
