#include "diagnose/glance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "tensor/mask.h"

#define MOST_TOKENS ((uint64_t)1 << 20)
#define PIECE       ((uint64_t)1 << 16) /* elements read at a time */
#define BEHIND      ((uint64_t)1 << 22) /* elements whose pages may stay resident behind the walk */
/* A token stands out when it errs so many times as much as the calm ones, in energy; and by how little, of the worst.
 */
#define STANDS_OUT  40.0
#define BELOW_WORST 1e-6
#define PREFIX      16 /* the first tokens are taken without gaps: what they see is among them */
#define RUNS        6  /* stretches of tokens whose borders are looked at */

void ts_glance_release(struct ts_glance *glance)
{
    free(glance->error);
    free(glance->size);
    free(glance->errs);
    *glance = (struct ts_glance){0};
}

static void add(struct ts_glance *glance, uint64_t token, bool scores, const float *a, const float *b, uint64_t count)
{
    double error = 0, size = 0;
    for (uint64_t i = 0; i < count; i++) {
        const bool masked = ts_is_masked_score((double)a[i]) && ts_is_masked_score((double)b[i]);
        double x = (double)a[i], d = (double)b[i] - x;
        if (scores && masked)
            continue;
        if (isfinite(d)) {
            error += d * d;
            size += x * x;
        } else if (!(a[i] == b[i] || (isnan(a[i]) && isnan(b[i])) || masked)) {
            error = (double)INFINITY; /* masks of both sides may be written otherwise */
        }
    }
    glance->error[token] += error;
    glance->size[token] += size;
}

static bool walk(struct ts_glance *glance, const struct ts_scene *scene, size_t index, float *a, float *b)
{
    const struct ts_pair *pair = &scene->pairs[index];
    struct ts_error ignored;
    struct ts_token_axis axis;
    uint64_t count = pair->a.count, forgotten = 0;
    if (!ts_scene_axis(scene, index, &axis))
        return false;
    for (uint64_t from = 0; from < count; from += PIECE) {
        uint64_t here = count - from < PIECE ? count - from : PIECE;
        if (ts_view_read_f32(&pair->a, from, (size_t)here, a, &ignored) != TS_OK ||
            ts_view_read_f32(&pair->b, from, (size_t)here, b, &ignored) != TS_OK)
            return false;
        for (uint64_t i = 0; i < here;) {
            uint64_t at = from + i, left = axis.after - at % axis.after;
            uint64_t token = at / axis.after % axis.size + at / axis.length * axis.sequence;
            left = left < here - i ? left : here - i;
            if (token >= glance->tokens)
                return false;
            add(glance, token, pair->masked, a + i, b + i, left);
            i += left;
        }
        if (from - forgotten > BEHIND) {
            ts_view_forget(&pair->a, forgotten, from - forgotten);
            ts_view_forget(&pair->b, forgotten, from - forgotten);
            forgotten = from;
        }
    }
    ts_view_forget(&pair->a, 0, count);
    ts_view_forget(&pair->b, 0, count);
    return true;
}

/* Which tokens err, held against the calmest tenth. A token far smaller than the others errs by their size. */
static void find_erring(struct ts_glance *glance)
{
    double *levels = malloc((size_t)glance->tokens * 2 * sizeof *levels), *sorted, typical, calm, limit, worst = 0;
    size_t count = (size_t)glance->tokens;
    if (!levels)
        return;
    sorted = levels + count;
    memcpy(sorted, glance->size, count * sizeof *sorted);
    typical = ts_nth(sorted, count, count / 2);
    for (size_t t = 0; t < count; t++) {
        double size = glance->size[t] > typical ? glance->size[t] : typical;
        levels[t] = glance->error[t] == 0 ? 0 : size > 0 ? glance->error[t] / size : (double)INFINITY;
        worst = isfinite(levels[t]) && levels[t] > worst ? levels[t] : worst;
    }
    memcpy(sorted, levels, count * sizeof *sorted);
    calm = ts_nth(sorted, count, count / 10);
    limit = STANDS_OUT * calm;
    if (!(limit < worst)) /* all err alike: none stands out but what is not finite */
        limit = calm < (double)INFINITY ? worst : 0;
    limit = limit > BELOW_WORST * worst ? limit : BELOW_WORST * worst;
    glance->first = glance->tokens;
    for (size_t t = 0; t < count; t++) {
        glance->errs[t] = levels[t] > limit;
        if (!glance->errs[t])
            continue;
        glance->erring++;
        glance->last = t;
        glance->first = glance->first == glance->tokens ? t : glance->first;
        glance->runs += t == 0 || !glance->errs[t - 1];
    }
    free(levels);
}

void ts_glance_measure(struct ts_glance *glance, const struct ts_scene *scene, size_t index)
{
    float *a, *b;
    uint64_t token;
    const struct ts_pair *pair = &scene->pairs[index];
    *glance = (struct ts_glance){0};
    if (scene->tokens < 2 || scene->tokens > MOST_TOKENS || pair->problem || pair->a.count != pair->b.count ||
        ts_type_info(pair->a.tensor->type)->components != 1 || ts_type_info(pair->b.tensor->type)->components != 1 ||
        !ts_scene_token(scene, index, 0, &token))
        return;
    glance->tokens = scene->tokens;
    glance->error = calloc((size_t)scene->tokens, sizeof *glance->error);
    glance->size = calloc((size_t)scene->tokens, sizeof *glance->size);
    glance->errs = calloc((size_t)scene->tokens, sizeof *glance->errs);
    a = malloc(PIECE * sizeof *a);
    b = malloc(PIECE * sizeof *b);
    if (glance->error && glance->size && glance->errs && a && b && walk(glance, scene, index, a, b))
        find_erring(glance);
    else
        ts_glance_release(glance);
    free(a);
    free(b);
}

/* The tokens that are taken, while they are chosen. */
struct choice {
    bool *taken;
    uint64_t first, end; /* of the sequences that may be looked at */
    size_t count, wanted;
};

static void take(struct choice *choice, uint64_t token)
{
    if (token < choice->first || token >= choice->end || choice->count >= choice->wanted || choice->taken[token])
        return;
    choice->taken[token] = true;
    choice->count++;
}

/* Spread evenly over the tokens that err, or over those that do not. */
static void take_spread(struct choice *choice, const struct ts_glance *glance, bool erring, size_t number)
{
    uint64_t seen = 0, there = 0;
    size_t chosen = 0;
    for (uint64_t t = choice->first; t < choice->end; t++)
        there += glance->errs[t] == erring;
    for (uint64_t t = choice->first; t < choice->end && number; t++)
        if (glance->errs[t] == erring && seen++ * number >= there * chosen) {
            take(choice, t);
            chosen++;
        }
}

static void take_borders(struct choice *choice, const struct ts_glance *glance)
{
    size_t runs = 0;
    for (uint64_t t = choice->first; t < choice->end && runs < RUNS; t++) {
        if (!glance->errs[t] || (t > choice->first && glance->errs[t - 1]))
            continue;
        for (uint64_t k = t > 2 ? t - 2 : 0; k < t + 3; k++)
            take(choice, k);
        runs++;
        while (t + 1 < choice->end && glance->errs[t + 1])
            t++;
        for (uint64_t k = t; k < t + 3; k++)
            take(choice, k);
    }
}

void ts_glance_take(const struct ts_glance *glance, struct ts_scene *scene, const struct ts_delta *delta, size_t index,
                    size_t wanted)
{
    uint64_t sequence = ts_scene_sequence(scene), token;
    struct choice choice = {.wanted = wanted < scene->taken_count ? wanted : scene->taken_count};
    size_t at = 0, edge = choice.wanted / 8;
    bool lone;
    if (!glance->tokens || !choice.wanted)
        return;
    lone = scene->taken[0] / sequence == scene->taken[scene->taken_count - 1] / sequence;
    choice.first = lone ? scene->taken[0] / sequence * sequence : 0;
    choice.end = lone ? choice.first + sequence : glance->tokens;
    if (choice.end - choice.first <= choice.wanted || !(choice.taken = calloc((size_t)glance->tokens, 1)))
        return;
    if (delta && ts_scene_token(scene, index, delta->worst, &token))
        take(&choice, token);
    if (delta && ts_scene_token(scene, index, delta->first_non_finite_mismatch, &token))
        take(&choice, token);
    for (uint64_t i = 0; i < edge; i++) {
        take(&choice, choice.first + i);
        take(&choice, choice.end - 1 - i);
    }
    take_borders(&choice, glance);
    take_spread(&choice, glance, true, choice.wanted / 4);
    for (uint64_t i = 0; i < PREFIX && choice.count < choice.wanted - choice.wanted / 4; i++)
        take(&choice, choice.first + i);
    take_spread(&choice, glance, false, choice.wanted - choice.count);
    take_spread(&choice, glance, true, choice.wanted - choice.count);
    for (uint64_t t = choice.first; t < choice.end && choice.count < choice.wanted; t++)
        take(&choice, t);
    for (uint64_t t = choice.first; t < choice.end; t++)
        if (choice.taken[t])
            scene->taken[at++] = t;
    scene->taken_count = at;
    free(choice.taken);
}
