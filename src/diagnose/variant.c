#include "diagnose/variant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements tried first: enough for hundreds of equations per hypothesis, small enough for hundreds of hypotheses. */
#define TRIED          65536
#define TRIED_PRODUCTS 8192 /* where each is a dot product */

bool ts_case_in_scene(const struct ts_case *the_case)
{
    return the_case->actor && the_case->actor->usable && the_case->total && !ts_case_direct(the_case) &&
           !ts_case_quiet(the_case);
}

double ts_rows_cost(const struct ts_case *the_case, const double *prediction, size_t first, size_t count)
{
    size_t width = the_case->actor->width;
    double sum = 0;
    for (size_t row = first; row < first + count; row++) {
        if (ts_case_aside(the_case, row))
            continue;
        for (size_t i = row * width; i < (row + 1) * width; i++) {
            double cost = ts_element_cost(the_case->found[i], prediction[i], the_case->expected[i]);
            /* a prediction that is no number where the candidate has one is as wrong as can be */
            if (cost < 0 && isfinite(the_case->found[i]))
                cost = 4 * the_case->found[i] * the_case->found[i] + 1;
            sum += cost > 0 ? cost : 0;
        }
    }
    return sum;
}

void ts_worst_rows(const struct ts_case *the_case, size_t elements, size_t *first, size_t *count)
{
    size_t rows = the_case->actor->rows, width = the_case->actor->width, worst = 0;
    double largest = -1;
    *count = elements / (width ? width : 1);
    *count = *count < 1 ? 1 : *count;
    *first = 0;
    if (*count >= rows) {
        *count = rows;
        return;
    }
    for (size_t row = 0; row < rows; row++) {
        double cost = ts_rows_cost(the_case, the_case->expected, row, 1);
        if (cost > largest) {
            largest = cost;
            worst = row;
        }
    }
    *first = worst > *count / 2 ? worst - *count / 2 : 0;
    if (*first + *count > rows)
        *first = rows - *count;
}

bool ts_variants_open(struct ts_variants *variants, struct ts_case *the_case, const struct ts_operation *operation)
{
    bool products = ts_operation_is_product(operation), good;
    *variants = (struct ts_variants){.the_case = the_case, .operation = operation};
    if (!ts_case_in_scene(the_case) || operation->kind == TS_OPERATION_NONE)
        return false;
    variants->out = malloc(the_case->total * sizeof *variants->out);
    good = variants->out != NULL;
    for (unsigned i = 0; i < operation->input_count && good; i++) {
        const struct ts_actor *from = ts_operation_input(the_case->scene, operation, i);
        variants->from[i] = from;
        if (from)
            variants->inputs[i] = ts_as_doubles(from->b, from->rows * from->width);
        good = variants->inputs[i] != NULL;
    }
    if (!good) {
        ts_variants_close(variants);
        return false;
    }
    ts_worst_rows(the_case, products ? TRIED_PRODUCTS : TRIED, &variants->first, &variants->count);
    if (operation->kind == TS_OPERATION_ROTARY ||
        (operation->kind == TS_OPERATION_TOPK && operation->table)) { /* its table is bound to all rows */
        variants->first = 0;
        variants->count = the_case->actor->rows;
    }
    variants->cost = ts_rows_cost(the_case, the_case->expected, variants->first, variants->count);
    return true;
}

void ts_variants_close(struct ts_variants *variants)
{
    for (int i = 0; i < 3; i++)
        free(variants->inputs[i]);
    free(variants->out);
    *variants = (struct ts_variants){0};
}

bool ts_variants_by_rows(const struct ts_variants *variants, const struct ts_operation *operation, unsigned slot)
{
    const struct ts_actor *from = ts_scene_actor(variants->the_case->scene, operation->inputs[slot]);
    if (slot == 1 && ts_operation_is_product(operation))
        return false;
    return from && from->rows == variants->the_case->actor->rows && from->rows > 1;
}

double ts_variants_share(const struct ts_variants *variants, const double *prediction)
{
    double cost = ts_rows_cost(variants->the_case, prediction, variants->first, variants->count);
    return variants->cost > 0 ? 1 - cost / variants->cost : 0;
}

double ts_variants_try(struct ts_variants *variants, const struct ts_operation *operation, double *const *inputs)
{
    const struct ts_case *the_case = variants->the_case;
    struct ts_actor part = *the_case->actor;
    double *moved[3] = {NULL, NULL, NULL};
    for (unsigned i = 0; i < operation->input_count; i++) {
        const struct ts_actor *from = ts_scene_actor(the_case->scene, operation->inputs[i]);
        moved[i] = inputs[i];
        if (from && ts_variants_by_rows(variants, operation, i))
            moved[i] += variants->first * from->width;
    }
    part.a += variants->first * part.width;
    part.b += variants->first * part.width;
    part.rows = variants->count;
    part.skipped = variants->first;
    ts_operation_apply(the_case->scene, operation, &part, moved, variants->out + variants->first * part.width);
    return ts_variants_share(variants, variants->out);
}

const double *ts_variants_apply(struct ts_variants *variants, const struct ts_operation *operation,
                                double *const *inputs)
{
    ts_operation_apply(variants->the_case->scene, operation, variants->the_case->actor, inputs, variants->out);
    return variants->out;
}

const char *ts_plain_number(double value, int digits, char text[32])
{
    double unit = value > 0 ? pow(10, floor(log10(value)) - digits + 1) : 1;
    if (value >= 1000 && value < 1e12)
        snprintf(text, 32, "%.0f", unit > 1 ? nearbyint(value / unit) * unit : value);
    else
        snprintf(text, 32, "%.*g", digits, value);
    return text;
}
