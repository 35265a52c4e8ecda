/* Owns the formulas that several families share. */
#include "diagnose/formula.h"

#include <stdlib.h>
#include <string.h>

#include "diagnose/case.h"
#include "diagnose/variant.h"

#define MOST_BYTES   ((size_t)1 << 25) /* of all formulas of a case */
#define SAME_NUMBERS 0.2               /* numbers that are no further apart, of their size, are meant to be one */

/* A formula about a part of a case, for the whole. */
struct lifted {
    struct ts_formula inner;
    enum ts_part part;
    size_t pair;
    const char *about; /* the words before those of the claim */
};

/* The part as it was laid open where the claim was found (parts.c). */
struct opened {
    struct ts_case_state *state; /* NULL: it could not be opened */
    double *expected, *found, *factors;
};

static void close_part(struct opened *part)
{
    if (part->state)
        ts_case_drop_scratch(part->state);
    free(part->state);
    free(part->expected);
    free(part->found);
    free(part->factors);
}

static bool lay_open(struct ts_case *the_case, const struct lifted *lifted, struct opened *part)
{
    const struct ts_actor *term;
    if (lifted->part == TS_PART_NORM)
        return ts_case_before_norm(the_case, part->expected, part->found, part->factors);
    term = ts_scene_actor(the_case->scene, lifted->pair);
    if (!term || term->rows * term->width != the_case->total)
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double value = (double)term->b[i];
        part->expected[i] = lifted->part == TS_PART_TERM
                                ? value
                                : the_case->expected[i] - (lifted->part == TS_PART_ADDED ? value : (double)term->a[i]);
        part->found[i] = the_case->found[i] - (lifted->part == TS_PART_TERM ? the_case->expected[i] - value : value);
    }
    return true;
}

/* To be closed, whatever it returns. */
static bool open_part(struct ts_case *the_case, const struct lifted *lifted, struct opened *part)
{
    *part = (struct opened){.state = malloc(sizeof *part->state),
                            .expected = malloc(the_case->total * sizeof *part->expected),
                            .found = malloc(the_case->total * sizeof *part->found),
                            .factors = calloc(the_case->total, sizeof *part->factors)};
    if (!part->state)
        return false;
    *part->state = *(const struct ts_case_state *)the_case;
    part->state->face.operation = (struct ts_operation){0};
    part->state->face.expected = part->expected;
    part->state->face.found = part->found;
    part->state->cached = part->state->scratch_count = 0;
    return part->expected && part->found && part->factors && lay_open(the_case, lifted, part);
}

/* The formula on the part, and the rest put back. */
static bool predict_lifted(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct lifted *lifted = formula->numbers;
    const struct ts_operation *norm = &the_case->operation;
    struct opened part;
    bool good = open_part(the_case, lifted, &part) && lifted->inner.predict(&part.state->face, &lifted->inner, out);
    for (size_t i = 0; i < the_case->total && good; i++)
        if (lifted->part == TS_PART_NORM) {
            double weight = norm->table[i % norm->group], factor = part.factors[i / norm->group];
            out[i] = fabs(weight) > TS_LEAST_WEIGHT && factor != 0
                         ? out[i] / factor * weight + norm->table[norm->group + i % norm->group]
                         : the_case->found[i];
        } else {
            out[i] += the_case->found[i] - part.found[i];
        }
    close_part(&part);
    return good;
}

static bool count_lifted(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                         struct ts_tally *tally)
{
    const struct lifted *lifted = formula->numbers;
    struct opened part;
    double *inner = lifted->inner.predict ? malloc(the_case->total * sizeof *inner) : NULL;
    bool good = open_part(the_case, lifted, &part) && (inner || !lifted->inner.predict) &&
                (!inner || lifted->inner.predict(&part.state->face, &lifted->inner, inner)) &&
                lifted->inner.count(&part.state->face, &lifted->inner, inner, tally);
    (void)out;
    close_part(&part);
    free(inner);
    return good;
}

static const char *tell_lifted(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                               double *share)
{
    const struct lifted *lifted = formula->numbers;
    const char *text = lifted->inner.tell(the_case, &lifted->inner, tally, share);
    return text ? ts_case_text(the_case, "%s: %s", lifted->about, text) : NULL;
}

void ts_tally_open(struct ts_tally *tally)
{
    *tally = (struct ts_tally){.least = (double)INFINITY, .most = -(double)INFINITY};
}

void ts_tally_add(struct ts_tally *tally, const struct ts_tally *behind)
{
    for (size_t k = 0; k < TS_TALLY_SUMS; k++)
        tally->sums[k] += behind->sums[k];
    tally->least = fmin(tally->least, behind->least);
    tally->most = fmax(tally->most, behind->most);
    for (size_t k = 0; k < behind->place_count && tally->place_count < TS_TALLY_PLACES; k++)
        tally->places[tally->place_count++] = behind->places[k];
}

void ts_tally_place(struct ts_tally *tally, const struct ts_case *the_case, size_t i)
{
    struct ts_tally_place *place = &tally->places[tally->place_count];
    size_t width = the_case->actor->width;
    if (tally->place_count == TS_TALLY_PLACES)
        return;
    *place = (struct ts_tally_place){.row = ts_case_row(the_case, i / width),
                                     .column = i % width,
                                     .found = the_case->found[i],
                                     .expected = the_case->expected[i]};
    if (!ts_case_index(the_case, i, &place->flat))
        place->flat = UINT64_MAX;
    tally->place_count++;
}

bool ts_count_related(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                      struct ts_tally *tally)
{
    (void)formula;
    (void)out;
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->found[i]) && isfinite(the_case->expected[i])) {
            tally->sums[TS_RELATED_DOT] += the_case->found[i] * the_case->expected[i];
            tally->sums[TS_RELATED_EXPECTED] += the_case->expected[i] * the_case->expected[i];
            tally->sums[TS_RELATED_FOUND] += the_case->found[i] * the_case->found[i];
            tally->sums[TS_RELATED_COUNT]++;
        }
    return true;
}

/* A copy that lives as long as the case does. */
static bool keep(struct ts_case_state *state, const struct ts_formula *formula, struct ts_formula *kept)
{
    void *numbers, *table;
    if (!state->formulas.limit)
        ts_arena_init(&state->formulas, MOST_BYTES);
    numbers = ts_arena_alloc(&state->formulas, formula->size);
    table = ts_arena_array(&state->formulas, formula->table_count, sizeof *formula->table);
    if (!numbers || !table)
        return false;
    if (formula->size)
        memcpy(numbers, formula->numbers, formula->size);
    if (formula->table_count)
        memcpy(table, formula->table, formula->table_count * sizeof *formula->table);
    *kept = *formula;
    kept->numbers = numbers;
    kept->table = table;
    return true;
}

const void *ts_formula_best(struct ts_case *the_case, struct ts_formula *formula, const void *ways, size_t count,
                            double least, double *out)
{
    const void *best = NULL;
    for (size_t i = 0; i < count; i++) {
        double share;
        formula->numbers = (const char *)ways + i * formula->size;
        share = formula->predict(the_case, formula, out) ? ts_explained(the_case, out) : 0;
        if (share > least) {
            least = share;
            best = formula->numbers;
        }
    }
    formula->numbers = best;
    return best && formula->predict(the_case, formula, out) ? best : NULL;
}

void ts_formula_next(struct ts_case *the_case, const struct ts_formula *formula)
{
    struct ts_case_state *state = (struct ts_case_state *)the_case;
    struct ts_formula whole, kept;
    struct lifted lifted = {.part = state->part, .pair = state->part_pair, .about = state->about};
    state->next = (struct ts_formula){0};
    /* what holds every row is proved already */
    if ((state->complete && !formula->sampled) || state->only || state->proving)
        return;
    if (!state->about) {
        if (keep(state, formula, &kept))
            state->next = kept;
        return;
    }
    if (state->part == TS_PART_OTHER || formula->proved || formula->pair_count == 3 ||
        !keep(state->whole, formula, &lifted.inner))
        return;
    whole = *formula;
    whole.predict = formula->predict ? predict_lifted : NULL;
    whole.count = formula->count ? count_lifted : NULL;
    whole.tell = formula->tell ? tell_lifted : NULL;
    whole.predict_parts = NULL; /* these know nothing of the rest of the sum */
    whole.product = NULL;
    whole.numbers = &lifted;
    whole.size = sizeof lifted;
    whole.table_count = 0;
    if (state->part != TS_PART_NORM)
        whole.pairs[whole.pair_count++] = state->part_pair;
    whole.reference = whole.reference || state->part == TS_PART_STREAM;
    if (keep(state->whole, &whole, &kept))
        state->next = kept;
}

static bool predict_affine(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    double factor = formula->table[0], offset = formula->table[1];
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = factor * the_case->expected[i] + offset;
    return true;
}

void ts_formula_affine(struct ts_case *the_case, double factor, double offset)
{
    double numbers[2] = {factor, offset};
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_affine, .table = numbers, .table_count = 2});
}

static bool predict_channels(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    size_t width = the_case->actor->width;
    const double *factors = formula->table, *offsets = formula->table + width;
    if (formula->table_count != 2 * width)
        return false;
    for (size_t start = 0; start < the_case->total; start += width)
        for (size_t i = 0; i < width; i++)
            out[start + i] = factors[i] * the_case->expected[start + i] + offsets[i];
    return true;
}

void ts_formula_channels(struct ts_case *the_case, const double *factors, const double *offsets)
{
    size_t width = the_case->actor->width;
    double *table = calloc(2 * width, sizeof *table);
    for (size_t i = 0; table && i < width; i++) {
        table[i] = factors ? factors[i] : 1;
        table[width + i] = offsets ? offsets[i] : 0;
    }
    if (table)
        ts_formula_next(the_case,
                        &(struct ts_formula){.predict = predict_channels, .table = table, .table_count = 2 * width});
    free(table);
}

struct by_rows {
    bool heads, offset;
    double low, high; /* none: high < low */
};

/* The number of a row, which must be one that was found, or do nothing. */
static double limited(const struct by_rows *how, double number, double nothing)
{
    double near = number < how->low ? how->low : number > how->high ? how->high : number;
    return fabs(number - near) <= fabs(number - nothing) ? near : nothing;
}

static bool predict_rows(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct by_rows *how = formula->numbers;
    size_t size = how->heads ? the_case->actor->inner : the_case->actor->width;
    for (size_t start = 0; start + size <= the_case->total; start += size) {
        double xx = 0, xy = 0, apart = 0, count = 0, factor, offset;
        for (size_t i = start; i < start + size; i++) {
            double x = the_case->expected[i], y = the_case->found[i];
            if (!isfinite(x) || !isfinite(y))
                continue;
            xx += x * x;
            xy += x * y;
            apart += y - x;
            count++;
        }
        factor = !how->offset && xx > 0 ? xy / xx : 1;
        offset = how->offset && count > 0 ? apart / count : 0;
        if (how->high >= how->low) {
            factor = how->offset ? 1 : limited(how, factor, 1);
            offset = how->offset ? limited(how, offset, 0) : 0;
        }
        for (size_t i = start; i < start + size; i++)
            out[i] = factor * the_case->expected[i] + offset;
    }
    return true;
}

void ts_formula_rows(struct ts_case *the_case, bool heads, bool offset, double low, double high)
{
    double slack = high - low + 0.001 * fmax(fabs(low), fabs(high));
    struct by_rows how = {heads, offset, 1, 0};
    if (high - low < SAME_NUMBERS * fmax(fabs(low), fabs(high))) {
        how.low = low - slack;
        how.high = high + slack;
    }
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_rows, .numbers = &how, .size = sizeof how});
}

static bool predict_sum(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = formula->table[0] != 0 ? formula->table[0] * the_case->expected[i] : 0;
    for (unsigned k = 0; k < formula->pair_count; k++) {
        const struct ts_actor *term = ts_scene_actor(the_case->scene, formula->pairs[k]);
        double times = formula->table[1 + k];
        if (!term || term->rows * term->width != the_case->total)
            return false;
        for (size_t i = 0; i < the_case->total; i++)
            out[i] += times * (double)term->b[i];
    }
    for (size_t i = 0; i < the_case->total; i++) /* masks come with the step */
        out[i] = the_case->expected[i] == -INFINITY ? -(double)INFINITY : out[i];
    return true;
}

void ts_formula_sum(struct ts_case *the_case, double expected, const size_t *pairs, const double *times, unsigned count)
{
    double table[4] = {expected};
    struct ts_formula formula = {.predict = predict_sum, .table = table, .table_count = 1 + count, .pair_count = count};
    for (unsigned k = 0; k < count && k < 3; k++) {
        formula.pairs[k] = pairs[k];
        table[1 + k] = times[k];
    }
    if (count <= 3)
        ts_formula_next(the_case, &formula);
}

static bool predict_operation(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    struct ts_operation operation = *(const struct ts_operation *)formula->numbers;
    operation.table = operation.table_count ? (double *)formula->table : NULL;
    if (operation.kind == TS_OPERATION_ROTARY) { /* by the angles of these rows */
        operation.table = the_case->operation.table;
        operation.table_count = the_case->operation.table_count;
    }
    return ts_formula_apply(the_case, &operation, out);
}

/* Angles are those of the rows it was learnt on; of other rows they are known where the case's own operation turns the
 * same pairs. */
static bool turns_alike(const struct ts_operation *a, const struct ts_operation *b)
{
    return a->kind == TS_OPERATION_ROTARY && b->kind == TS_OPERATION_ROTARY && a->group == b->group &&
           a->heads == b->heads && a->interleaved == b->interleaved;
}

void ts_formula_operation(struct ts_case *the_case, const struct ts_operation *operation)
{
    bool turns = operation->kind == TS_OPERATION_ROTARY;
    struct ts_formula formula = {.predict = predict_operation,
                                 .numbers = operation,
                                 .size = sizeof *operation,
                                 .table = operation->table,
                                 .table_count = operation->table && !turns ? operation->table_count : 0,
                                 .pair_count = operation->input_count,
                                 .work = ts_operation_work(the_case, operation)};
    memcpy(formula.pairs, operation->inputs, sizeof formula.pairs);
    if (operation->kind != TS_OPERATION_NONE && (!turns || turns_alike(operation, &the_case->operation)))
        ts_formula_next(the_case, &formula);
}

double ts_operation_work(const struct ts_case *the_case, const struct ts_operation *operation)
{
    const struct ts_actor *first = ts_scene_actor(the_case->scene, operation->inputs[0]);
    size_t heads;
    if (!ts_operation_is_product(operation) || !first)
        return 0;
    if (operation->kind == TS_OPERATION_CONTEXT) /* probabilities times values */
        return (double)first->width * (double)the_case->actor->width / (double)(first->heads ? first->heads : 1);
    heads = the_case->actor->heads ? the_case->actor->heads : 1;
    return (double)the_case->actor->width * (double)first->width / (double)heads;
}

bool ts_formula_apply(struct ts_case *the_case, const struct ts_operation *operation, double *out)
{
    double *inputs[3] = {NULL, NULL, NULL};
    bool good = true;
    for (unsigned k = 0; k < operation->input_count && good; k++) {
        const struct ts_actor *input = ts_operation_input(the_case->scene, operation, k);
        good = input && (inputs[k] = ts_as_doubles(input->b, input->rows * input->width)) != NULL;
    }
    if (good)
        ts_operation_apply(the_case->scene, operation, the_case->actor, inputs, out);
    for (int k = 0; k < 3; k++)
        free(inputs[k]);
    return good;
}

static bool predict_order(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const size_t *order = formula->numbers;
    size_t width = the_case->actor->width;
    if (formula->size != width * sizeof *order || (formula->table_count && formula->table_count != width))
        return false;
    for (size_t start = 0; start < the_case->total; start += width)
        for (size_t i = 0; i < width; i++) {
            out[start + i] = order[i] < width ? the_case->expected[start + order[i]] : 0;
            if (formula->table_count)
                out[start + i] += formula->table[i];
        }
    return true;
}

void ts_formula_order(struct ts_case *the_case, const size_t *order, const double *offsets)
{
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_order,
                                                   .numbers = order,
                                                   .size = the_case->actor->width * sizeof *order,
                                                   .table = offsets,
                                                   .table_count = offsets ? the_case->actor->width : 0});
}

struct other {
    size_t pair;
    struct ts_rows_moved moved;
};

#define NOWHERE UINT64_MAX
#define EMPTY   (UINT64_MAX - 1)

/* The row of the reference that a row holds; NOWHERE beyond its end. */
static uint64_t source_of(const struct ts_rows_moved *moved, uint64_t row, uint64_t all)
{
    int64_t at = (int64_t)row + moved->step;
    if (moved->reversed)
        at = (int64_t)(all - 1) - (int64_t)row;
    else if (moved->around)
        at = (at % (int64_t)all + (int64_t)all) % (int64_t)all;
    else if (moved->length) {
        size_t from = row / moved->length < TS_ROWS_PLACES ? moved->from[row / moved->length] : SIZE_MAX;
        if (from == TS_ROWS_EMPTY)
            return EMPTY;
        at = from < TS_ROWS_PLACES ? (int64_t)(from * moved->length + row % moved->length) : -1;
    }
    return at < 0 || (uint64_t)at >= all ? NOWHERE : (uint64_t)at;
}

static bool predict_other(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    const struct ts_scene *scene = &state->scene;
    const struct other *other = formula->numbers;
    const struct ts_actor *actor = the_case->actor;
    const struct ts_view *view = &scene->pairs[other->pair].a;
    size_t width = actor->width, run;
    uint64_t all = state->direct ? view->count / width : ts_scene_sequence(scene);
    float *values = malloc(actor->rows * width * sizeof *values);
    bool good = values != NULL;
    for (size_t row = 0; row < actor->rows && good; row += run) {
        uint64_t from = ts_case_row(the_case, row), at = source_of(&other->moved, from, all);
        struct ts_error ignored;
        run = 1;
        if (at == NOWHERE || at == EMPTY) {
            for (size_t i = row * width; i < (row + 1) * width; i++)
                out[i] = at == EMPTY ? 0 : the_case->found[i];
            continue;
        }
        while (row + run < actor->rows && ts_case_row(the_case, row + run) == from + run &&
               source_of(&other->moved, from + run, all) == at + run)
            run++;
        if (state->direct) {
            good = ts_view_read_f64(view, at * width, run * width, out + row * width, &ignored) == TS_OK;
            ts_view_forget(view, at * width, run * width);
            continue;
        }
        good = ts_scene_read(scene, other->pair, false, ts_scene_first(scene) + at, run, 0, width, values, &ignored) ==
               TS_OK;
        for (size_t i = 0; i < run * width && good; i++)
            out[row * width + i] = (double)values[i];
    }
    free(values);
    return good;
}

static void give_other(struct ts_case *the_case, const struct other *other)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    if (!state->direct || state->own_last == the_case->actor->width)
        ts_formula_next(the_case,
                        &(struct ts_formula){.predict = predict_other, .numbers = other, .size = sizeof *other});
}

void ts_formula_other(struct ts_case *the_case, size_t pair)
{
    give_other(the_case, &(struct other){.pair = pair});
}

void ts_formula_moved(struct ts_case *the_case, const struct ts_rows_moved *moved)
{
    give_other(the_case, &(struct other){.pair = the_case->actor->pair, .moved = *moved});
}

static bool predict_slices(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *from = ts_scene_actor(the_case->scene, formula->pairs[0]), *actor = the_case->actor;
    const size_t *order = formula->numbers;
    if (!from || from->rows != actor->rows || formula->size != actor->width * sizeof *order)
        return false;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < actor->width; i++)
            out[row * actor->width + i] = (double)from->b[row * from->width + order[i]];
    return true;
}

void ts_formula_slices(struct ts_case *the_case, size_t pair, const size_t *order)
{
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_slices,
                                                   .numbers = order,
                                                   .size = the_case->actor->width * sizeof *order,
                                                   .pairs = {pair},
                                                   .pair_count = 1});
}
