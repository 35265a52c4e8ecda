/* Owns what is noise in a case: what replaying its operation says, what the tensors around it say, and what is left
 * above it. */
#include <stdlib.h>

#include "base/ordered.h"
#include "compare/structure.h"
#include "diagnose/case.h"

/* Neighbours with more error than this say nothing about noise: something is wrong with them as well. */
#define LONE       0.05 /* of the largest error, squared: what belongs to it where one element is wrong by itself */
#define LEVEL_MOST 0.7
#define LEVEL_LOOK 12 /* earlier tensors whose error says what this run's noise is */

enum ts_status ts_case_replay(struct ts_case_state *state, double *noise, struct ts_error *error)
{
    const struct ts_actor *actor = state->face.actor;
    const struct ts_operation *operation = &state->face.operation;
    double *plain[3] = {NULL, NULL, NULL}, *shaken[3] = {NULL, NULL, NULL}, *moved = NULL;
    double drift = 0, size = 0, rounding = ts_rounding(actor->bits_b < actor->bits_a ? actor->bits_b : actor->bits_a);
    bool good = (moved = malloc(state->face.total * sizeof *moved)) != NULL;
    for (unsigned k = 0; k < operation->input_count && good; k++) {
        const struct ts_actor *input = ts_operation_input(&state->scene, operation, k);
        size_t count = input->rows * input->width;
        double step = ts_rounding(input->bits_b);
        plain[k] = malloc(count * sizeof **plain);
        shaken[k] = malloc(count * sizeof **shaken);
        good = plain[k] && shaken[k];
        for (size_t i = 0; i < count && good; i++) {
            plain[k][i] = (double)input->b[i];
            shaken[k][i] = (double)input->b[i] * (1 + step * ts_noise_at(input->pair + 1, i));
        }
    }
    if (good) {
        ts_operation_apply(&state->scene, operation, actor, plain, state->expected);
        ts_operation_apply(&state->scene, operation, actor, shaken, moved);
        for (size_t i = 0; i < state->face.total; i++)
            if (isfinite(state->expected[i]) && isfinite(moved[i])) {
                drift += (moved[i] - state->expected[i]) * (moved[i] - state->expected[i]);
                size += state->expected[i] * state->expected[i];
            }
        drift = sqrt(drift) + (rounding + 2 * operation->residual) * sqrt(size);
        *noise = drift * drift;
    }
    for (int k = 0; k < 3; k++) {
        free(plain[k]);
        free(shaken[k]);
    }
    free(moved);
    return good ? TS_OK : ts_fail_memory(error);
}

double ts_case_agreed_noise(const struct ts_case_state *state, const struct ts_replay *judged, double own)
{
    double error = 0;
    if (!isfinite(judged->ratio) || !(judged->ratio > 0))
        return own;
    for (size_t i = 0; i < state->face.total; i++) {
        double cost = ts_element_cost(state->found[i], state->expected[i], state->expected[i]);
        error += cost > 0 ? cost : 0;
    }
    return error / (judged->ratio * judged->ratio);
}

/* Relative error of the tensors around: of those before in a trace, on both sides in a checkpoint. */
static double usual_level(const struct ts_case_state *state, size_t index)
{
    double levels[LEVEL_LOOK];
    size_t count = 0;
    for (size_t step = 1; step < state->pair_count && count < LEVEL_LOOK && state->deltas; step++)
        for (int side = 0; side < (state->direct && !state->gathered ? 2 : 1) && count < LEVEL_LOOK; side++) {
            size_t i = side ? index + step : index - step;
            const struct ts_actor *actor;
            double level;
            if ((side ? index + step >= state->pair_count : step > index) || state->scene.pairs[i].problem)
                continue;
            actor = state->direct ? NULL : ts_scene_actor((struct ts_scene *)&state->scene, i);
            level = actor ? actor->error : state->deltas[i].rel_l2;
            if (isfinite(level) && level > 0 && level < LEVEL_MOST && !state->deltas[i].exact)
                levels[count++] = level;
        }
    return ts_nth(levels, count, count / 2);
}

/* Error energy of the whole if every row (or column) were as wrong as the one in the middle: what is left when the
 * error is confined to a minority. Infinity when there are too few. */
static double spread_of_the_middle(const struct ts_case_state *state, bool columns)
{
    const struct ts_actor *actor = state->face.actor;
    size_t parts = columns ? actor->width : actor->rows, used = 0;
    double *error, *size, all = 0, middle;
    if (parts < 8 || (columns && actor->rows < 2))
        return (double)INFINITY;
    error = calloc(parts * 2, sizeof *error);
    if (!error)
        return (double)INFINITY;
    size = error + parts;
    for (size_t i = 0; i < state->face.total; i++) {
        size_t row = i / actor->width, part = columns ? i % actor->width : row;
        double cost = ts_element_cost(state->found[i], state->expected[i], state->expected[i]);
        if (cost < 0 || ts_case_aside(&state->face, row) || !isfinite(state->expected[i]))
            continue;
        error[part] += cost;
        size[part] += state->expected[i] * state->expected[i];
        all += state->expected[i] * state->expected[i];
    }
    for (size_t part = 0; part < parts; part++)
        if (size[part] > 0)
            error[used++] = error[part] / size[part];
    middle = used >= 8 ? ts_nth(error, used, used / 2) * all : (double)INFINITY;
    free(error);
    return middle;
}

/* True when no row (or head of a row) is further off than chance allows. */
static bool parts_are_quiet(const struct ts_case_state *state, double noise)
{
    const struct ts_actor *actor = state->face.actor;
    double size = 0;
    for (size_t i = 0; i < state->face.total; i++)
        if (isfinite(state->expected[i]))
            size += state->expected[i] * state->expected[i];
    for (size_t start = 0; start + actor->inner <= state->face.total; start += actor->inner) {
        double error = 0, own = 0, floor = 1e-4 * size / (double)(actor->rows * actor->heads);
        for (size_t i = start; i < start + actor->inner; i++) {
            double cost = ts_element_cost(state->found[i], state->expected[i], state->expected[i]);
            error += cost > 0 ? cost : 0;
            own += isfinite(state->expected[i]) ? state->expected[i] * state->expected[i] : 0;
        }
        own = own > floor ? own : floor;
        if (!ts_case_aside(&state->face, start / actor->width) && size > 0 && error > 100 * noise * own / size)
            return false;
    }
    return true;
}

/* Error energy that the best factor and offset leave: no more of a weight's difference is noise. */
static double beyond_a_line(const struct ts_case_state *state)
{
    double count = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0, left;
    for (size_t i = 0; i < state->face.total; i++) {
        if (!isfinite(state->expected[i]) || !isfinite(state->found[i]))
            continue;
        count++;
        x += state->expected[i];
        y += state->found[i];
        xx += state->expected[i] * state->expected[i];
        xy += state->expected[i] * state->found[i];
        yy += state->found[i] * state->found[i];
    }
    if (count < 3)
        return (double)INFINITY;
    xx -= x * x / count;
    xy -= x * y / count;
    left = yy - y * y / count - (xx > 0 ? xy * xy / xx : 0);
    return left > 0 ? left : 0;
}

void ts_case_weigh(struct ts_case_state *state, size_t index, double modelled)
{
    struct ts_case *face = &state->face;
    const struct ts_actor *actor = face->actor;
    double size = 0, level, rounding = ts_rounding(actor->bits_b < actor->bits_a ? actor->bits_b : actor->bits_a);
    double rows, columns, limit, own, counted = 0, most = 0, outliers = 0;
    bool lone = false, learnt = face->operation.kind != TS_OPERATION_NONE;
    bool weight = state->direct && ts_is_weight(ts_case_pair(face)->name);
    for (size_t i = 0; i < face->total; i++) {
        double cost = ts_element_cost(face->found[i], face->expected[i], face->expected[i]);
        if (cost < 0 || ts_case_aside(face, i / actor->width))
            continue;
        face->error += cost;
        most = cost > most ? cost : most;
        counted += cost > 0;
        state->size += isfinite(face->found[i]) ? face->found[i] * face->found[i] : 0;
        size += isfinite(face->expected[i]) ? face->expected[i] * face->expected[i] : 0;
    }
    level = usual_level(state, index);
    level = level > 2 * rounding ? level : 2 * rounding;
    own = 2 * rounding;
    if (state->replayed) /* the reference's own distance from the product is no fault of the candidate's */
        level = level > 2 * state->product.residual ? level : 2 * state->product.residual;
    face->noise = learnt ? modelled : level * level * size;
    if (learnt) {
        state->quiet = face->error <= 25 * face->noise && parts_are_quiet(state, face->noise);
    } else {
        struct ts_structure structure = {0};
        if (!state->direct && !state->replayed)
            ts_structure_measure(&state->scene, actor, &structure);
        /* into a weight nothing comes: that others differ as much does not make its own difference noise */
        state->ordinary = weight && face->error <= 4 * face->noise;
        state->quiet = face->error <= 4 * (weight ? own * own * size : face->noise) &&
                       structure.channel <= ts_channel_limit(&structure) && structure.block <= TS_BLOCK_LIMIT &&
                       structure.row <= TS_ROW_LIMIT &&
                       ((!state->direct && !state->replayed) || parts_are_quiet(state, face->noise));
        lone = state->quiet && ts_element_stands_out(&structure);
        state->quiet = state->quiet && !lone;
    }
    rows = spread_of_the_middle(state, false);
    columns = spread_of_the_middle(state, true);
    limit = 1.5 * (rows < columns ? rows : columns);
    if (weight)
        limit = fmin(limit, fmax(beyond_a_line(state), own * own * size));
    face->noise = face->noise < limit ? face->noise : limit;
    face->noise = face->noise < 0.8 * face->error ? face->noise : 0.8 * face->error;
    for (size_t i = 0; i < face->total && lone; i++) {
        double cost = ts_element_cost(face->found[i], face->expected[i], face->expected[i]);
        outliers += cost > LONE * most && !ts_case_aside(face, i / actor->width) ? cost : 0;
    }
    if (lone) /* all but these is noise */
        face->noise = face->error - outliers;
    for (size_t i = 0; i < face->total; i++) {
        double cost = ts_element_cost(face->found[i], face->expected[i], face->expected[i]);
        state->elements += cost > 0 && !ts_case_aside(face, i / actor->width) && cost * counted > 1e-3 * face->error;
    }
}
