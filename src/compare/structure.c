#include "compare/structure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* Reorders values. */
static double median_of(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return count ? values[count / 2] : 0;
}

static bool counts(const struct ts_scene *scene, const struct ts_actor *actor, size_t row)
{
    return actor->rows == 1 || !scene->aside[row];
}

double ts_structure_rows(struct ts_scene *scene, const struct ts_actor *actor, size_t *worst, double *worst_error)
{
    double *ratios, *sizes, *sorted, largest = 0, median, typical;
    size_t used = 0, at = 0;
    if (!actor->usable || actor->rows < 4)
        return 0;
    ratios = calloc(actor->rows * 3, sizeof *ratios);
    if (!ratios)
        return 0;
    sizes = ratios + actor->rows;
    sorted = sizes + actor->rows;
    for (size_t row = 0; row < actor->rows; row++) {
        for (size_t i = row * actor->width; i < (row + 1) * actor->width && counts(scene, actor, row); i++) {
            double d = (double)actor->b[i] - (double)actor->a[i];
            if (isfinite(d)) {
                ratios[row] += d * d;
                sizes[row] += (double)actor->a[i] * (double)actor->a[i];
            }
        }
        if (sizes[row] > 0)
            sorted[used++] = sizes[row];
    }
    /* a row far smaller than the others errs by their size, not by its own: products cancel */
    typical = median_of(sorted, used);
    used = 0;
    for (size_t row = 0; row < actor->rows; row++) {
        if (!(sizes[row] > 0))
            continue;
        ratios[row] /= sizes[row] > typical ? sizes[row] : typical;
        sorted[used++] = ratios[row];
    }
    for (size_t row = 0; row < actor->rows; row++)
        if (ratios[row] > largest) {
            largest = ratios[row];
            at = row;
        }
    median = median_of(sorted, used);
    free(ratios);
    if (worst)
        *worst = at;
    if (worst_error)
        *worst_error = sqrt(largest);
    return median > 0 ? largest / median : 0;
}

/* Size of a head: the inner axis that most tensors with heads have. */
static size_t head_size(struct ts_scene *scene)
{
    size_t found = 0;
    for (size_t i = 0; i < TS_SCENE_WINDOW; i++)
        if (scene->window[i].usable && scene->window[i].heads > 1 && scene->window[i].inner != scene->window[i].rows)
            found = scene->window[i].inner;
    return found;
}

void ts_structure_measure(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure)
{
    double *error, *size, *scratch, *sum, common = 0, typical, dot = 0, all_error = 0, all_size = 0, median;
    size_t head = head_size(scene), rows = 0;
    if (!actor->usable || actor->rows < 4 || actor->width < 8)
        return;
    error = calloc(actor->width * 4, sizeof *error);
    if (!error)
        return;
    size = error + actor->width;
    scratch = size + actor->width;
    sum = scratch + actor->width;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < actor->width && counts(scene, actor, row); i++) {
            double a = (double)actor->a[row * actor->width + i], d = (double)actor->b[row * actor->width + i] - a;
            if (!isfinite(d))
                continue;
            error[i] += d * d;
            size[i] += a * a;
            sum[i] += d;
            dot += d * a;
        }
    for (size_t i = 0; i < actor->width; i++) {
        all_error += error[i];
        all_size += size[i];
        common += sum[i] * sum[i];
    }
    for (size_t row = 0; row < actor->rows; row++)
        rows += counts(scene, actor, row);
    structure->offset = all_error > 0 && rows ? common / ((double)rows * all_error) : 0;
    structure->known = true;
    structure->slope = all_error > 0 && all_size > 0 ? dot / sqrt(all_error * all_size) : 0;
    memcpy(scratch, size, actor->width * sizeof *scratch);
    typical = median_of(scratch, actor->width);
    for (size_t i = 0; i < actor->width; i++)
        scratch[i] = sqrt(error[i] / (size[i] + typical));
    for (size_t i = 0; i < actor->width; i++)
        if (scratch[i] > structure->channel) {
            structure->channel = scratch[i];
            structure->worst_channel = i;
        }
    median = median_of(scratch, actor->width);
    structure->channel = median > 0 ? structure->channel / median : 0;
    if (head >= 2 && actor->width % head == 0 && actor->width / head >= 2) {
        size_t blocks = actor->width / head;
        for (size_t block = 0; block < blocks; block++) {
            double e = 0, s = 0;
            for (size_t i = block * head; i < (block + 1) * head; i++) {
                e += error[i];
                s += size[i];
            }
            scratch[block] = s > 0 ? e / s : 0;
            if (scratch[block] > structure->block) {
                structure->block = scratch[block];
                structure->worst_block = block;
            }
        }
        structure->block_size = head;
        qsort(scratch, blocks, sizeof *scratch, by_value);
        median = scratch[(blocks - 1) / 2]; /* the lower one of two */
        structure->block = median > 0 ? structure->block / median : 0;
    }
    free(error);
    structure->row = ts_structure_rows(scene, actor, &structure->worst_row, &structure->row_error);
}
