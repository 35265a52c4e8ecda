#include "compare/structure_parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A token with so many times the median token's error energy took another way: another expert, if anything honest. */
#define STRAY 25.0
/* Correlation of a stream with itself one layer on; that of other tensors is that of chance. */
#define CONTINUES          0.25
#define MOST_ELEMENTS      ((size_t)1 << 22)
#define RELATED            0.3
#define LONE_CHANNEL       4     /* numbers of a head, of which the worst may be left out */
#define LEAST_SHARE        1e-12 /* of an error's energy: a token may have none */
#define CONSTANT_SIZE      0.1   /* of the median channel's variation, in the reference */
#define CONSTANT_ROUNDINGS 16
#define CONSTANT_OTHERS    0.5 /* energy of the median channel's error, by what it varies: others keep that */
#define NARROW_LEAST       64  /* numbers of tokens that have few each */
#define FEW_WIDTH          32  /* of two or three tokens */
#define INPUTS             12  /* tensors before, in which something may have stood out */
#define NORM_WITHIN        4   /* tensors before, of which one may be the norm that q, k and v share */
#define SMALL_ROW          0.25
#define ZERO_LEAST         16 /* numbers of a token that are not zero in the reference */

/* The energy of the row that errs least over the median row's: the larger of what its error and what its relative error
 * say, so that neither a small row nor a large one counts. `errors` holds the `used` rows with a size and is
 * reordered. */
static double least_row(double *errors, const double *ratios, const double *sizes, size_t rows, size_t used,
                        double median)
{
    double least = (double)INFINITY, typical;
    size_t at = 0, best = 0;
    for (size_t row = 0; row < rows; row++) {
        if (!(sizes[row] > 0))
            continue;
        if (ratios[row] < least) {
            least = ratios[row];
            best = at;
        }
        at++;
    }
    if (!used || !(median > 0))
        return 1;
    typical = errors[best];
    typical /= fmax(median_of(errors, used), DBL_MIN);
    return fmax(least / median, typical);
}

/* How far the tokens' errors lie from each other: the spread of the logarithm of their energy, about the median. Each
 * counts as little as it can, by itself or by its size, so that neither a small token nor a large one counts. */
static double unevenness(const double *errors, const double *ratios, const double *sizes, size_t rows, size_t used,
                         double median, double *scratch)
{
    double squares = 0, typical;
    size_t at = 0;
    memcpy(scratch, errors, used * sizeof *scratch);
    typical = median_of(scratch, used);
    if (!(median > 0) || !(typical > 0))
        return 0;
    for (size_t row = 0; row < rows; row++) {
        double itself, sized;
        if (!(sizes[row] > 0))
            continue;
        itself = log(fmax(errors[at++] / typical, LEAST_SHARE));
        sized = log(fmax(ratios[row] / median, LEAST_SHARE));
        if (itself * sized > 0)
            squares += fmin(itself * itself, sized * sized);
    }
    return sqrt(squares / (double)used);
}

/* Probabilities of a token that sees one key: they are 1 whatever the scores are, and tell nothing. */
static bool is_certain(const struct ts_actor *actor, size_t row)
{
    const float *a = actor->a + row * actor->width;
    size_t ones = 0;
    for (size_t i = 0; i < actor->width; i++) {
        if (a[i] != 0 && a[i] != 1)
            return false;
        ones += a[i] == 1;
    }
    return ones == actor->heads;
}

double ts_structure_rows(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    double *ratios, *sizes, *sorted, *errors, largest = 0, median, typical;
    size_t used = 0, at = 0;
    if (!actor->usable || actor->rows < 4)
        return 0;
    ratios = calloc(actor->rows * 4, sizeof *ratios);
    if (!ratios)
        return 0;
    sizes = ratios + actor->rows;
    sorted = sizes + actor->rows;
    errors = sorted + actor->rows;
    for (size_t row = 0; row < actor->rows; row++) {
        for (size_t i = row * actor->width; i < (row + 1) * actor->width && counts(scene, actor, row); i++) {
            double d = (double)actor->b[i] - (double)actor->a[i];
            if (isfinite(d)) {
                ratios[row] += d * d;
                sizes[row] += (double)actor->a[i] * (double)actor->a[i];
            }
        }
        if (ratios[row] == 0 && is_certain(actor, row))
            sizes[row] = 0;
        if (sizes[row] > 0)
            sorted[used++] = sizes[row];
    }
    /* a row far smaller than the others errs by their size, not by its own: products cancel */
    typical = median_of(sorted, used);
    used = 0;
    for (size_t row = 0; row < actor->rows; row++) {
        if (!(sizes[row] > 0))
            continue;
        errors[used] = ratios[row];
        ratios[row] /= sizes[row] > typical ? sizes[row] : typical;
        sorted[used++] = ratios[row];
    }
    for (size_t row = 0; row < actor->rows; row++)
        if (ratios[row] > largest) {
            largest = ratios[row];
            at = row;
        }
    median = median_of(sorted, used);
    if (structure) {
        double calm = 0;
        structure->uneven = unevenness(errors, ratios, sizes, actor->rows, used, median, sorted);
        structure->least_row = least_row(errors, ratios, sizes, actor->rows, used, median);
        for (size_t row = 0; row < actor->rows; row++) {
            bool stray = ratios[row] > STRAY * median;
            structure->strays += stray;
            structure->worst_rows += ratios[row] > 0.25 * largest;
            calm += stray || !(sizes[row] > 0) ? 0 : ratios[row];
        }
        structure->calm = used > structure->strays ? sqrt(calm / (double)(used - structure->strays)) : 0;
        structure->worst_row = at;
        structure->row_error = sqrt(largest);
    }
    free(ratios);
    return ratio_to(largest, median);
}

/* Size of a head: the inner axis that most tensors with heads have. */
static size_t head_size(struct ts_scene *scene)
{
    size_t found = 0;
    for (size_t i = 0; i < TS_SCENE_WINDOW; i++)
        if (scene->window[i].usable && scene->window[i].heads > 1 &&
            scene->window[i].inner != scene->window[i].sequence)
            found = scene->window[i].inner;
    return found;
}

static double correlation(double dot, double one, double other)
{
    return one > 0 && other > 0 ? dot / sqrt(one * other) : 0;
}

double ts_offset_share(double offset, double alike)
{
    return (offset - alike) / fmax(1 - alike, 1e-9);
}

/* Offset, alike and slope, from sums per channel: of d^2, a^2, d, a and d * a. With every channel counted alike as
 * well: a channel far larger than the others errs by its own rounding, which says nothing of the tensor. */
static void measure_common(struct ts_structure *structure, size_t width, size_t rows, const double *error,
                           const double *size, const double *sum, const double *mean, const double *dot)
{
    double common = 0, common_a = 0, errors = 0, sizes = 0, dots = 0, all, each, count = (double)rows;
    double even = 0, even_dot = 0, even_common = 0, even_common_a = 0, channels = 0;
    size_t most = 0;
    for (size_t i = 0; i < width; i++) {
        most = error[i] > error[most] ? i : most;
        errors += error[i];
        sizes += size[i];
        dots += dot[i];
        common += sum[i] * sum[i];
        common_a += mean[i] * mean[i];
        if (size[i] > 0) {
            even += error[i] / size[i];
            even_dot += dot[i] / size[i];
            even_common += sum[i] * sum[i] / size[i];
            even_common_a += mean[i] * mean[i] / size[i];
            channels++;
        }
    }
    if (errors > 0 && sizes > 0 && rows) {
        structure->alike = common_a / (count * sizes);
        structure->offset = fmin(ts_offset_share(common / (count * errors), structure->alike),
                                 ts_offset_share(even_common / (count * even), even_common_a / (count * channels)));
    }
    if (2 * error[most] > errors && sizes > size[most])
        structure->rest = sqrt((errors - error[most]) / (sizes - size[most]));
    all = correlation(dots, errors, sizes);
    each = correlation(even_dot, even, channels);
    structure->slope = fabs(each) < fabs(all) ? each : all;
}

/* Of all numbers as they are. */
static double slope_of(struct ts_scene *scene, const struct ts_actor *actor)
{
    double errors = 0, sizes = 0, dots = 0;
    for (size_t i = 0; i < actor->rows * actor->width; i++) {
        double a = (double)actor->a[i], d = (double)actor->b[i] - a;
        if (!isfinite(d) || !counts(scene, actor, i / actor->width))
            continue;
        errors += d * d;
        sizes += a * a;
        dots += d * a;
    }
    return correlation(dots, errors, sizes);
}

double ts_structure_channel(struct ts_scene *scene, const struct ts_actor *actor, size_t channel)
{
    double *error, *size, *scratch, typical, found = 0;
    if (!actor->usable || actor->rows < 4 || actor->width < TS_STRUCTURE_WIDTH || channel >= actor->width ||
        !(error = calloc(actor->width * 3, sizeof *error)))
        return 0;
    size = error + actor->width;
    scratch = size + actor->width;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < actor->width && counts(scene, actor, row); i++) {
            double a = (double)actor->a[row * actor->width + i], d = (double)actor->b[row * actor->width + i] - a;
            if (!isfinite(d))
                continue;
            error[i] += d * d;
            size[i] += a * a;
        }
    memcpy(scratch, size, actor->width * sizeof *scratch);
    typical = median_of(scratch, actor->width);
    if (typical > 0) {
        for (size_t i = 0; i < actor->width; i++)
            scratch[i] = sqrt(error[i] / (size[i] + typical));
        found = scratch[channel];
        found = ratio_to(found, median_of(scratch, actor->width));
    }
    free(error);
    return found;
}

double ts_structure_update(struct ts_scene *scene, const struct ts_actor *before, const struct ts_actor *actor)
{
    double error = 0, added = 0, dot = 0, sizes = 0, others = 0;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = row * actor->width; i < (row + 1) * actor->width && counts(scene, actor, row); i++) {
            double a = (double)actor->a[i], old = (double)before->a[i];
            double d = (double)actor->b[i] - a - ((double)before->b[i] - old);
            if (!isfinite(d))
                continue;
            error += d * d;
            added += (a - old) * (a - old);
            dot += a * old;
            sizes += a * a;
            others += old * old;
        }
    return correlation(dot, sizes, others) > CONTINUES && added > 0 ? sqrt(error / added) : 0;
}

double ts_channel_limit(const struct ts_structure *structure)
{
    double rows = structure->rows ? (double)structure->rows : 16, alike = fmax(0, 2 * structure->alike - 1);
    return fmax(TS_CHANNEL_LIMIT, TS_CHANNEL_FEW * sqrt(16 / (1 + (rows - 1) * (1 - alike))));
}

/* Rows that take part in a channel's error, each measured by its own size: (sum of squares)^2 over the sum of fourth
 * powers. */
static double rows_of_channel(struct ts_scene *scene, const struct ts_actor *actor, size_t channel)
{
    double squares = 0, fourths = 0;
    for (size_t row = 0; row < actor->rows; row++) {
        const float *a = actor->a + row * actor->width, *b = actor->b + row * actor->width;
        double size = 0, d = (double)b[channel] - (double)a[channel];
        if (!counts(scene, actor, row) || !isfinite(d))
            continue;
        for (size_t i = 0; i < actor->width; i++)
            size += isfinite(a[i]) ? (double)a[i] * (double)a[i] : 0;
        if (size > 0) {
            squares += d * d / size;
            fourths += d * d / size * (d * d / size);
        }
    }
    return fourths > 0 ? squares * squares / fourths : 0;
}

static bool is_mostly_related(const struct ts_actor *actor)
{
    size_t related = 0;
    for (size_t row = 0; row < actor->rows; row++) {
        double dot = 0, one = 0, other = 0;
        for (size_t i = row * actor->width; i < (row + 1) * actor->width; i++)
            if (isfinite(actor->a[i]) && isfinite(actor->b[i])) {
                dot += (double)actor->a[i] * (double)actor->b[i];
                one += (double)actor->a[i] * (double)actor->a[i];
                other += (double)actor->b[i] * (double)actor->b[i];
            }
        related += correlation(dot, one, other) > RELATED;
    }
    return related * 2 > actor->rows;
}

/* The same, of a tensor that is given an axis of heads right behind it, where none before it has one. */
static size_t head_size_behind(const struct ts_scene *scene, const struct ts_actor *actor)
{
    const struct ts_view *own = &scene->pairs[actor->pair].a;
    for (size_t k = actor->pair + 1; k < scene->pair_count && k <= actor->pair + INPUTS; k++) {
        const struct ts_view *view = &scene->pairs[k].a;
        const uint64_t inner = view->rank ? view->shape[view->rank - 1] : 0;
        if (!scene->pairs[k].problem && view->rank > own->rank && view->count == own->count && inner > 1 &&
            inner != actor->sequence && inner < actor->width && actor->width % inner == 0)
            return (size_t)inner;
    }
    return 0;
}

/* Numbers of a head of this actor. Heads of scores and probabilities are not held against each other: near ties make of
 * one what they make of no other. 0: none. */
static size_t own_head_size(struct ts_scene *scene, const struct ts_actor *actor)
{
    const char *name = scene->pairs[actor->pair].name;
    const size_t size = actor->heads < 2 ? head_size(scene) : 0;
    if (actor->heads < 2)
        return size ? size : head_size_behind(scene, actor);
    return actor->inner == actor->sequence || strstr(name, "prob") || strstr(name, "score") ? 0 : actor->inner;
}

/* Channels of the candidate that are the same number in every token, zero or a bias, while the reference's differ from
 * token to token about as much as other channels do. On a grid so coarse that neighbours became equal elsewhere, whole
 * channels may; and where most channels err by as much as they vary, one that does not vary is nothing special. varies:
 * the squared distance from the mean, of each channel; scratch as many as there are channels. */
static void find_constant_channels(struct ts_scene *scene, const struct ts_actor *actor, const double *error,
                                   const double *size, const double *mean, double *varies, double *scratch,
                                   struct ts_structure *structure)
{
    const size_t width = actor->width;
    const double rounding = exp2(-actor->bits_b);
    size_t equal = 0, pairs = 0, found = 0, last = SIZE_MAX;
    double typical;
    for (size_t i = 0; i < width; i++)
        scratch[i] = varies[i] = fmax(size[i] - mean[i] * mean[i] / (double)structure->rows, 0);
    typical = median_of(scratch, width);
    for (size_t i = 0; i < width; i++)
        scratch[i] = ratio_to(error[i], varies[i]);
    if (median_of(scratch, width) > CONSTANT_OTHERS)
        return;
    memset(scratch, 0, width * sizeof *scratch); /* how often the number changes */
    for (size_t row = 0; row < actor->rows; row++) {
        if (!counts(scene, actor, row))
            continue;
        for (size_t i = 0; i < width && last != SIZE_MAX; i++)
            scratch[i] += actor->b[row * width + i] != actor->b[last * width + i];
        last = row;
    }
    for (size_t i = width; i-- > 0;) {
        double bias = fabs(mean[i]) / (double)structure->rows;
        if (varies[i] > CONSTANT_SIZE * typical && scratch[i] == 0 &&
            sqrt(varies[i] / (double)structure->rows) > CONSTANT_ROUNDINGS * rounding * bias) {
            structure->constant_channel = i;
            found++;
        } else if (varies[i] > 0) {
            pairs += structure->rows - 1;
            equal += structure->rows - 1 - (size_t)scratch[i];
        }
    }
    if (typical > 0 && equal <= pairs / 64)
        structure->constant_channels = found;
}

/* The relative error of a row, by its own size, over that of the median row; and the row's size over the median one's.
 * Of the first `width` numbers of each: keys in few numbers have those beside them that turn. */
static double row_alone(struct ts_scene *scene, const struct ts_actor *actor, size_t width, size_t at, double *small)
{
    double *errors = calloc(actor->rows * 2, sizeof *errors), *sizes = errors ? errors + actor->rows : NULL, found = 0;
    double size = 0;
    size_t used = 0;
    *small = 1;
    for (size_t row = 0; row < actor->rows && errors; row++) {
        double error = 0, own = 0;
        for (size_t i = row * actor->width; i < row * actor->width + width; i++) {
            double d = (double)actor->b[i] - (double)actor->a[i];
            if (isfinite(d)) {
                error += d * d;
                own += (double)actor->a[i] * (double)actor->a[i];
            }
        }
        if (row == at && own > 0) {
            found = sqrt(error / own);
            size = own;
        }
        if (!(own > 0) || !counts(scene, actor, row))
            continue;
        errors[used] = sqrt(error / own);
        sizes[used++] = own;
    }
    if (used && size > 0) {
        *small = size / median_of(sizes, used);
        found = ratio_to(found, median_of(errors, used));
    }
    free(errors);
    return found;
}

/* The relative error of a row. */
static double row_error(const struct ts_actor *actor, size_t row)
{
    double error = 0, size = 0;
    for (size_t i = row * actor->width; i < (row + 1) * actor->width; i++) {
        double d = (double)actor->b[i] - (double)actor->a[i];
        error += isfinite(d) ? d * d : 0;
        size += isfinite(d) ? (double)actor->a[i] * (double)actor->a[i] : 0;
    }
    return size > 0 ? sqrt(error / size) : 0;
}

static double square_error(const struct ts_actor *actor, size_t row)
{
    double error = 0;
    for (size_t i = row * actor->width; i < (row + 1) * actor->width; i++) {
        double d = (double)actor->b[i] - (double)actor->a[i];
        error += isfinite(d) ? d * d : 0;
    }
    return error;
}

/* The energy of a row's error over the median row's, whatever their sizes: a product makes errors of errors, and a row
 * that comes out small of it errs by no less for that. With `before`, what became of the row's error there. */
static double row_energy(struct ts_scene *scene, const struct ts_actor *actor, const struct ts_actor *before, size_t at)
{
    double *errors = calloc(actor->rows, sizeof *errors), found = 0;
    size_t used = 0;
    for (size_t row = 0; row < actor->rows && errors; row++) {
        double error = square_error(actor, row);
        if (before)
            error = ratio_to(error, square_error(before, row));
        if (row == at)
            found = error;
        if (counts(scene, actor, row))
            errors[used++] = error;
    }
    found = used ? ratio_to(found, median_of(errors, used)) : 0;
    free(errors);
    return found;
}

/* The energy of one head's relative error over the median head's. */
static double head_alone(struct ts_scene *scene, const struct ts_actor *actor, size_t at)
{
    double *ratios = calloc(actor->heads, sizeof *ratios), found;
    if (!ratios)
        return 0;
    for (size_t head = 0; head < actor->heads; head++) {
        double error = 0, size = 0;
        for (size_t row = 0; row < actor->rows; row++)
            for (size_t i = 0; i < actor->inner && counts(scene, actor, row); i++) {
                size_t k = row * actor->width + head * actor->inner + i;
                double d = (double)actor->b[k] - (double)actor->a[k];
                if (isfinite(d)) {
                    error += d * d;
                    size += (double)actor->a[k] * (double)actor->a[k];
                }
            }
        ratios[head] = size > 0 ? error / size : 0;
    }
    found = ratios[at];
    found = ratio_to(found, ts_nth(ratios, actor->heads, (actor->heads - 1) / 2));
    free(ratios);
    return found;
}

/* The share that is the same in every token, of the reference or of the error. */
static double alike_of(struct ts_scene *scene, const struct ts_actor *actor, bool error)
{
    double common = 0, sizes = 0;
    size_t rows = 0;
    for (size_t row = 0; row < actor->rows; row++)
        rows += counts(scene, actor, row);
    for (size_t i = 0; i < actor->width; i++) {
        double sum = 0;
        for (size_t row = 0; row < actor->rows; row++) {
            const size_t at = row * actor->width + i;
            double value = error ? (double)actor->b[at] - (double)actor->a[at] : (double)actor->a[at];
            if (!isfinite(value) || !counts(scene, actor, row))
                continue;
            sum += value;
            sizes += value * value;
        }
        common += sum * sum;
    }
    return sizes > 0 ? common / ((double)rows * sizes) : 0;
}

/* Weights that are rounded err by what they take, not by what they make of it: where tokens share more of what goes in
 * than of what comes out, the error is as much the same in all of them as that is. So it is where the error that came
 * in is the same in all of them, as attention makes it that looks at one token. */
static void grant_alike_inputs(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    double came = 0, whole = structure->offset * (1 - structure->alike) + structure->alike;
    for (size_t back = 1; back <= NORM_WITHIN && back <= actor->pair; back++) {
        const struct ts_actor *before = ts_scene_actor(scene, actor->pair - back);
        bool norm = strstr(scene->pairs[actor->pair - back].name, "norm") != NULL;
        if (before && before->rows == actor->rows && !before->apart && before->inner != before->sequence &&
            (back == 1 || norm))
            came = fmax(came, fmax(alike_of(scene, before, false), alike_of(scene, before, true)));
        if (norm)
            break;
    }
    if (came > structure->alike)
        structure->offset = fmin(structure->offset, ts_offset_share(whole, came));
}

/* The row of the token that is the key of this channel of scores; as many as there are rows when there is none. */
static size_t key_row(const struct ts_scene *scene, const struct ts_actor *actor, size_t channel)
{
    size_t row = 0;
    if (actor->inner != actor->sequence || actor->apart)
        return actor->rows;
    while (row < actor->rows && ts_scene_position(scene, actor, row) != channel % actor->inner)
        row++;
    return row;
}

/* What stood out before may stand out here: a head of the probabilities in the context, a key in the scores, a token
 * that is small, and errs by its size, behind a norm, and one that errs far more than others, which it may hide by
 * being larger. */
static void inherit_structure(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    const size_t blocks = structure->block_size ? actor->width / structure->block_size : 0;
    const size_t key = key_row(scene, actor, structure->worst_channel);
    double small, own;
    row_alone(scene, actor, actor->width, structure->worst_row, &own);
    for (size_t back = 1; back <= INPUTS && back <= actor->pair; back++) {
        const struct ts_actor *before = ts_scene_actor(scene, actor->pair - back);
        if (!before || before->rows != actor->rows || before->apart)
            continue;
        if (structure->block > TS_BLOCK_LIMIT && before->heads == blocks)
            structure->inherited_block =
                fmax(structure->inherited_block, head_alone(scene, before, structure->worst_block));
        if (key < actor->rows && structure->channel > TS_CHANNEL_LIMIT)
            structure->inherited_channel =
                fmax(structure->inherited_channel, row_alone(scene, before, before->width, key, &small));
        if (structure->row > TS_ROW_LIMIT) {
            size_t width = before->width < actor->width ? before->width : actor->width;
            double came = row_alone(scene, before, width, structure->worst_row, &small);
            if (small < SMALL_ROW && own > SMALL_ROW)
                structure->inherited_row = fmax(structure->inherited_row, came * came);
            structure->inherited_row =
                fmax(structure->inherited_row, row_energy(scene, before, NULL, structure->worst_row));
        }
        if (back == 1 && structure->row > STRAY) {
            double came = row_alone(scene, before, before->width, structure->worst_row, &small);
            structure->row_before = fmax(came * came, row_energy(scene, before, NULL, structure->worst_row));
            structure->row_gain = row_energy(scene, actor, before, structure->worst_row);
            structure->row_error_before = row_error(before, structure->worst_row);
        }
    }
}

/* Of two or three tokens: what all of them have in common, where they have numbers enough. */
static void measure_few(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    double common = 0, errors = 0;
    if (actor->rows < 2 || actor->width < FEW_WIDTH || actor->apart)
        return;
    for (size_t row = 0; row < actor->rows; row++)
        if (!counts(scene, actor, row))
            return;
    for (size_t i = 0; i < actor->width; i++) {
        double sum = 0;
        for (size_t row = 0; row < actor->rows; row++) {
            double d = (double)actor->b[row * actor->width + i] - (double)actor->a[row * actor->width + i];
            if (!isfinite(d))
                return;
            sum += d;
            errors += d * d;
        }
        common += sum * sum;
    }
    structure->alike = alike_of(scene, actor, false);
    structure->offset = errors > 0 ? ts_offset_share(common / ((double)actor->rows * errors), structure->alike) : 0;
    grant_alike_inputs(scene, actor, structure);
}

/* Tokens whose numbers are all zero in the candidate, and about as large as those of others in the reference. No
 * precision makes that of so many numbers. */
static void find_zero_rows(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    double *sizes = calloc(actor->rows, sizeof *sizes), typical;
    size_t used = 0;
    for (int pass = 0; pass < 2 && sizes; pass++) {
        typical = pass ? median_of(sizes, used) : 0;
        for (size_t row = 0; row < actor->rows; row++) {
            const float *a = actor->a + row * actor->width, *b = actor->b + row * actor->width;
            double size = 0;
            size_t numbers = 0, left = 0;
            for (size_t i = 0; i < actor->width; i++) {
                size += (double)a[i] * (double)a[i];
                numbers += a[i] != 0;
                left += b[i] != 0;
            }
            if (!pass)
                sizes[used++] = isfinite(size) ? size : 0;
            else if (!left && numbers >= ZERO_LEAST && size > SMALL_ROW * typical && counts(scene, actor, row) &&
                     !structure->zero_rows++)
                structure->zero_row = row;
        }
    }
    free(sizes);
}

/* Error energy of a head over its size and `added`, without its worst channel and without the token that errs most in
 * it: near ties of one token's softmax are no matter of its head. Each channel counts by its weight. */
static double head_of_most(struct ts_scene *scene, const struct ts_actor *actor, size_t from, size_t head, size_t worst,
                           double added, const double *weights)
{
    double error = 0, size = 0, most = 0, size_of_most = 0;
    for (size_t row = 0; row < actor->rows; row++) {
        double e = 0, s = 0;
        for (size_t i = from; i < from + head && counts(scene, actor, row); i++) {
            double a = (double)actor->a[row * actor->width + i], d = (double)actor->b[row * actor->width + i] - a;
            if (i == worst || !isfinite(d))
                continue;
            e += d * d * weights[i];
            s += a * a * weights[i];
        }
        error += e;
        size += s;
        if (e > most) {
            most = e;
            size_of_most = s;
        }
    }
    return size > size_of_most ? (error - most) / (size - size_of_most + added) : 0;
}

/* Channels of heads: sums of their errors and sizes, and what each counts. */
struct channels {
    const double *error, *size, *weights;
    double typical;
    size_t head, heads;
};

/* The error energy of each head over its size into `all`, without its worst channel; the smaller one of that and of
 * the same without a token into `most`. */
static void measure_heads(struct ts_scene *scene, const struct ts_actor *actor, const struct channels *channels,
                          double *all, double *most)
{
    for (size_t block = 0; block < channels->heads; block++) {
        const size_t from = block * channels->head;
        size_t worst = from;
        double e = 0, z = 0, added = 0;
        for (size_t i = from; i < from + channels->head; i++) {
            e += channels->error[i] * channels->weights[i];
            z += channels->size[i] * channels->weights[i];
            added += channels->typical * channels->weights[i];
            worst = channels->error[i] * channels->weights[i] > channels->error[worst] * channels->weights[worst]
                        ? i
                        : worst;
        }
        if (channels->head >= LONE_CHANNEL) { /* what one channel does is no matter of its head */
            e = fmax(e - channels->error[worst] * channels->weights[worst], 0);
            z = fmax(z - channels->size[worst] * channels->weights[worst], 0);
        }
        /* what a product rounds off has the size of what goes in, however small the result */
        all[block] = z > 0 ? e / (z + added) : 0;
        most[block] =
            fmin(all[block], head_of_most(scene, actor, from, channels->head,
                                          channels->head >= LONE_CHANNEL ? worst : SIZE_MAX, added, channels->weights));
    }
}

/* The head that stands out: by all of its channels as they are, and with each measured by its own size as well. A
 * channel that is a thousand times as large as the others hides what its head errs by, and other heads seem to stand
 * out. */
static void find_head(struct ts_scene *scene, const struct ts_actor *actor, struct channels *channels,
                      struct ts_structure *structure)
{
    const size_t width = actor->width, heads = channels->heads;
    double *room = malloc((width + 4 * heads) * sizeof *room), *weights = room, *ratios[2];
    if (!room)
        return;
    channels->weights = weights;
    for (int each = 0; each < 2; each++) {
        double *all = ratios[each] = room + width + 2 * (size_t)each * heads, *most = all + heads, median;
        for (size_t i = 0; i < width; i++)
            weights[i] =
                each && channels->size[i] + channels->typical > 0 ? 1 / (channels->size[i] + channels->typical) : 1;
        measure_heads(scene, actor, channels, all, most);
        median = ts_nth(all, heads, (heads - 1) / 2); /* the lower one of two */
        for (size_t block = 0; block < heads; block++)
            all[block] = ratio_to(most[block], median);
    }
    for (size_t block = 0; block < heads; block++) {
        const double ratio = fmin(ratios[0][block], ratios[1][block]);
        if (ratio > structure->block) {
            structure->block = ratio;
            structure->worst_block = block;
        }
    }
    structure->block_size = channels->head;
    free(room);
}

void ts_structure_measure(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    double *error, *size, *scratch, *sum, *mean, *dot, *varies, typical, median;
    size_t head = own_head_size(scene, actor), rows, counted = 0;
    for (size_t row = 0; actor->usable && row < actor->rows; row++)
        counted += counts(scene, actor, row);
    if (actor->usable)
        structure->mostly_related = is_mostly_related(actor);
    /* where many tokens are set aside, the few that are left are mostly numbers that were set aside as keys */
    if (actor->usable && actor->rows * actor->width >= 16 && actor->rows * actor->width <= MOST_ELEMENTS &&
        (counted * 2 > actor->rows || actor->rows < 4))
        ts_structure_elements(scene, actor, structure);
    /* a factor shows in all numbers together, however few each token has: a router has four */
    if (actor->usable && actor->rows * actor->width >= (actor->rows < 4 ? 16 : NARROW_LEAST))
        structure->slope = slope_of(scene, actor);
    if (actor->usable && actor->rows < 4) {
        measure_few(scene, actor, structure);
        find_zero_rows(scene, actor, structure);
    }
    if (!actor->usable || actor->rows < 4 || actor->width < TS_STRUCTURE_WIDTH)
        return;
    error = calloc(actor->width * 7, sizeof *error);
    if (!error)
        return;
    size = error + actor->width;
    scratch = size + actor->width;
    sum = scratch + actor->width;
    mean = sum + actor->width;
    dot = mean + actor->width;
    varies = dot + actor->width;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < actor->width && counts(scene, actor, row); i++) {
            double a = (double)actor->a[row * actor->width + i], d = (double)actor->b[row * actor->width + i] - a;
            if (!isfinite(d))
                continue;
            error[i] += d * d;
            size[i] += a * a;
            sum[i] += d;
            mean[i] += a;
            dot[i] += d * a;
        }
    structure->rows = rows = counted;
    find_zero_rows(scene, actor, structure);
    structure->known = rows >= 4; /* fewer are left where most tokens took other experts */
    measure_common(structure, actor->width, rows, error, size, sum, mean, dot);
    memcpy(scratch, size, actor->width * sizeof *scratch);
    typical = median_of(scratch, actor->width);
    if (structure->known)
        find_constant_channels(scene, actor, error, size, mean, varies, scratch, structure);
    for (size_t i = 0; i < actor->width; i++)
        scratch[i] = sqrt(error[i] / (size[i] + typical));
    for (size_t i = 0; i < actor->width; i++)
        if (scratch[i] > structure->channel) {
            structure->channel = scratch[i];
            structure->worst_channel = i;
        }
    structure->channel_gap =
        ratio_to(structure->channel, ts_nth(scratch, actor->width, actor->width - 1 - actor->width / 16));
    median = median_of(scratch, actor->width);
    structure->channel_error = structure->channel;
    structure->channel_rows = rows_of_channel(scene, actor, structure->worst_channel);
    /* where tokens are set aside, and most channels are keys that went with them, there are no others to stand out of
     */
    structure->channel = median > 0 || counted == actor->rows ? ratio_to(structure->channel, median) : 0;
    if (head >= 2 && actor->width % head == 0 && actor->width / head >= 2) {
        struct channels channels = {
            .error = error, .size = size, .typical = typical, .head = head, .heads = actor->width / head};
        find_head(scene, actor, &channels, structure);
    }
    free(error);
    structure->row = ts_structure_rows(scene, actor, structure);
    grant_alike_inputs(scene, actor, structure);
    inherit_structure(scene, actor, structure);
}
