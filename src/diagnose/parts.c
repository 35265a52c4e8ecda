/* Owns second looks: a sum hides what is wrong with one of its terms, and a norm spreads over the row what is wrong
 * with a few of its inputs; so the terms and the inputs are looked at by themselves. */
#include <stdlib.h>

#include "base/ordered.h"
#include "diagnose/case.h"
#include "diagnose/experts.h"

/* A cause with this much evidence explains all there is. */
#define SETTLED 0.8
/* Of the error behind a norm, by what is wrong before it. */
#define WORTHWHILE 0.3

/* Runs the families that need nothing but numbers on another expectation. */
static void look_at_part(struct ts_case_state *state, double *expected, double *found, double noise_factor,
                         enum ts_part kind, size_t pair, const char *about)
{
    static const struct ts_family *const families[] = {&ts_family_memory, &ts_family_types, &ts_family_layout,
                                                       &ts_family_algebra};
    struct ts_case_state *part = malloc(sizeof *part);
    if (!part)
        return;
    ts_case_of_part(part, state, expected, found, noise_factor, about);
    part->part = kind;
    part->part_pair = pair;
    for (size_t i = 0; i < sizeof families / sizeof *families && part->face.error > 0; i++) {
        families[i]->propose(&part->face);
        ts_case_drop_scratch(part);
    }
    if (kind == TS_PART_STREAM && part->face.error > 0) {
        ts_propose_added_experts(&part->face);
        ts_case_drop_scratch(part);
    }
    ts_case_release_part(part);
    free(part);
}

/* The newest earlier tensor that this one is mostly made of: the residual stream one step before. */
static const struct ts_actor *stream_before(struct ts_case_state *state)
{
    const struct ts_actor *actor = state->face.actor, *best = NULL;
    double most = 0.5;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= actor->pair; back++) {
        const struct ts_actor *other = ts_scene_actor(&state->scene, actor->pair - back);
        double dot = 0, cosine;
        size_t apart = 0;
        if (!other || other->rows != actor->rows || other->width != actor->width || !(other->norm_a > 0))
            continue;
        for (size_t i = 0; i < state->face.total; i++) {
            dot += (double)actor->a[i] * (double)other->a[i];
            if (!(fabsf(actor->a[i] - other->a[i]) <= 1e-3f * fabsf(other->a[i])))
                apart++;
        }
        cosine = dot / (actor->norm_a * other->norm_a);
        if (cosine > most && apart * 20 >= state->face.total) { /* nothing was added to one that is the same */
            most = cosine;
            best = other;
        }
    }
    return best;
}

/* The weights are divided off, and the size of each row is the one that brings most of its numbers back to what the
 * norm was given. What is wrong with a few of them then stands alone. */
bool ts_case_before_norm(struct ts_case *the_case, double *expected, double *found, double *factors)
{
    const struct ts_operation *operation = &the_case->operation;
    const double *input = ts_case_norm_input(the_case);
    size_t group = operation->group, total = the_case->total;
    double *ratios = input && group ? malloc(group * sizeof *ratios) : NULL;
    bool good;
    for (size_t start = 0; ratios && start + group <= total; start += group) {
        size_t used = 0;
        double mean = 0, factor;
        for (size_t i = 0; operation->centred && i < group; i++)
            mean += input[start + i] / (double)group;
        for (size_t i = 0; i < group; i++) {
            double weight = operation->table[i], x = input[start + i] - mean;
            expected[start + i] = x;
            found[start + i] = fabs(weight) > TS_LEAST_WEIGHT
                                   ? (the_case->found[start + i] - operation->table[group + i]) / weight
                                   : 0;
            if (found[start + i] != 0 && isfinite(found[start + i]))
                ratios[used++] = x / found[start + i];
        }
        factor = used ? ts_nth(ratios, used, used / 2) : 1;
        factors[start / group] = factor;
        for (size_t i = 0; i < group; i++)
            found[start + i] *= factor;
    }
    good = ratios != NULL;
    free(ratios);
    return good;
}

/* The norm of what it would have been given is what was found. Not so where rows have other factors for other reasons:
 * those are divided off, and rounding alone is left before the norm. */
static bool makes_the_error(const struct ts_case *the_case, double *found)
{
    double *inputs[3] = {found, NULL, NULL}, *out = malloc(the_case->total * sizeof *out);
    struct ts_operation one = the_case->operation;
    bool makes = out != NULL;
    one.input_count = 1; /* of a sum: it stands added up */
    for (size_t i = 0; i < the_case->total && makes; i++)
        if (!isfinite(found[i])) { /* of which no norm is known */
            free(out);
            return true;
        }
    if (makes) {
        ts_operation_apply(the_case->scene, &one, the_case->actor, inputs, out);
        makes = ts_explained(the_case, out) > WORTHWHILE;
    }
    free(out);
    return makes;
}

static void look_before_the_norm(struct ts_case_state *state, double *expected, double *found)
{
    size_t group = state->face.operation.group, total = state->face.total;
    double *factors = group ? calloc(total / group + 1, sizeof *factors) : NULL, size = 0, size_after = 0;
    if (factors && ts_case_before_norm(&state->face, expected, found, factors)) {
        for (size_t i = 0; i < total; i++) {
            size += state->face.expected[i] * state->face.expected[i];
            size_after += expected[i] * expected[i];
        }
        if (size > 0 && makes_the_error(&state->face, found))
            look_at_part(state, expected, found, size_after / size, TS_PART_NORM, 0, "in the input of the norm");
    }
    free(factors);
    ts_case_drop_scratch(state);
}

/* A sum hides what is wrong with one of its terms: without the other terms it is laid open. */
void ts_case_look_at_parts(struct ts_case_state *state)
{
    const struct ts_operation *operation = &state->face.operation;
    const struct ts_actor *terms[3] = {NULL, NULL, NULL}, *before = NULL;
    double *expected, *found;
    size_t total = state->face.total, count = 0;
    if (state->direct || state->quiet || !(state->face.error > 0) ||
        (state->book->count && state->book->entries[0].evidence > SETTLED))
        return;
    expected = malloc(total * sizeof *expected);
    found = malloc(total * sizeof *found);
    if (operation->kind == TS_OPERATION_SUM)
        for (unsigned k = 0; k < operation->input_count; k++)
            terms[count++] = ts_scene_actor(&state->scene, operation->inputs[k]);
    else if (operation->kind == TS_OPERATION_NONE)
        before = stream_before(state);
    for (size_t k = 0; k < count && expected && found; k++) {
        for (size_t i = 0; i < total; i++) {
            expected[i] = (double)terms[k]->b[i];
            found[i] = state->face.found[i] - (state->face.expected[i] - expected[i]);
        }
        look_at_part(state, expected, found, 1, TS_PART_TERM, terms[k]->pair,
                     ts_case_text(&state->face, "in the term %s of the sum", ts_case_name(&state->face, terms[k])));
    }
    for (unsigned k = 0; operation->kind == TS_OPERATION_GATED_SUM && k < operation->input_count; k++) {
        const struct ts_actor *term = ts_scene_actor(&state->scene, operation->inputs[k]);
        if (!expected || !found || !term || term->rows * term->width != total)
            continue;
        for (size_t i = 0; i < total; i++) {
            expected[i] = state->face.expected[i] - (double)term->b[i];
            found[i] = state->face.found[i] - (double)term->b[i];
        }
        look_at_part(state, expected, found, 1, TS_PART_ADDED, term->pair,
                     ts_case_text(&state->face, "in what is added to %s", ts_case_name(&state->face, term)));
    }
    if (operation->kind == TS_OPERATION_NORM && expected && found)
        look_before_the_norm(state, expected, found);
    if (before && expected && found) {
        for (size_t i = 0; i < total; i++) {
            expected[i] = state->face.expected[i] - (double)before->a[i];
            found[i] = state->face.found[i] - (double)before->b[i];
        }
        look_at_part(state, expected, found, 1, TS_PART_STREAM, before->pair,
                     ts_case_text(&state->face, "in what is added to %s", ts_case_name(&state->face, before)));
    }
    free(expected);
    free(found);
}
