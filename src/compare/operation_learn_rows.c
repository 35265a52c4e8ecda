/* Owns learning what works on whole rows: norms, rotations, and the choice of a router. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/operation_search.h"

#define CHOICE_BACK  4    /* pairs between the experts that were chosen and their weights */
#define CHOICE_AHEAD 2    /* and where the weights were captured first */
#define LEAST_GROUPS 4    /* that a norm is learnt from: fewer fit by chance, with a weight per channel free */
#define WITH_BIAS    5    /* the same with a bias, which is one more unknown per channel */
#define SAME_NUMBER  0.05 /* of the sum of both sizes: numbers that differ by less say nothing about a weight */
/* Pairs and heads that are looked at before a turn is fitted, and how many times the error that is allowed of all they
 * may have. */
#define LOOK_PAIRS 16
#define LOOK_HEADS 4
#define LOOK_ROOM  3.0

/* Weight and bias per channel by least squares over all groups; a bias only when it helps. */
static bool fit_norm(const struct ts_search *search, const struct ts_actor *input, const struct ts_actor *other,
                     struct ts_operation *norm)
{
    size_t group = norm->group, groups = search->total / group;
    double *sums = calloc(group * 4, sizeof *sums), *table = calloc(group * 2, sizeof *table);
    if (!sums || !table) {
        free(sums);
        free(table);
        return false;
    }
    for (size_t g = 0; g < groups; g++) {
        const float *first = input->a + g * group, *second = other ? other->a + g * group : NULL;
        const float *y = search->actor->a + g * group;
        double mean = 0, square = 0, factor;
#define X(i) ((double)first[i] + (second ? (double)second[i] : 0))
        for (size_t i = 0; norm->centred && i < group; i++)
            mean += X(i);
        mean /= (double)group;
        for (size_t i = 0; i < group; i++)
            square += (X(i) - mean) * (X(i) - mean);
        factor = 1 / sqrt(square / (double)group + norm->epsilon);
        for (size_t i = 0; i < group; i++) {
            double n = (X(i) - mean) * factor;
#undef X
            sums[4 * i] += n;
            sums[4 * i + 1] += n * n;
            sums[4 * i + 2] += (double)y[i];
            sums[4 * i + 3] += n * (double)y[i];
        }
    }
    for (size_t i = 0; i < group; i++) {
        const double *s = sums + 4 * i;
        double count = (double)groups, spread = s[1] - s[0] * s[0] / count;
        if (norm->flag && spread > 1e-9 * s[1]) {
            table[i] = (s[3] - s[0] * s[2] / count) / spread;
            table[group + i] = (s[2] - table[i] * s[0]) / count;
        } else {
            table[i] = s[1] > 0 ? s[3] / s[1] : 0;
        }
    }
    free(sums);
    norm->table = table;
    norm->table_count = group * 2;
    return true;
}

/* A quick look at three groups and sixteen channels: normalized inputs and outputs of a norm stand in one proportion
 * per channel (or on one line, with a bias), whatever the weights are. Keeps the full fit to the few that can succeed.
 */
static bool may_be_norm(const struct ts_search *search, const struct ts_actor *input, const struct ts_actor *other,
                        size_t group, bool centred, bool biased)
{
    size_t groups = search->total / group, chosen[3] = {0, groups / 2, groups - 1}, passed = 0, looked_at = 0;
    double mean[3] = {0}, factor[3];
    for (int k = 0; k < 3; k++) {
        const float *x = input->a + chosen[k] * group, *y = other ? other->a + chosen[k] * group : NULL;
        double sum = 0, square = 0;
        for (size_t i = 0; i < group; i++) {
            double value = (double)x[i] + (y ? (double)y[i] : 0);
            sum += value;
            square += value * value;
        }
        mean[k] = centred ? sum / (double)group : 0;
        square = square / (double)group - mean[k] * mean[k];
        factor[k] = square > 0 ? 1 / sqrt(square) : 0;
    }
    for (size_t i = 0; i < group; i += group / 16 + 1) {
        double n[3], y[3], left, right;
        for (int k = 0; k < 3; k++) {
            size_t at = chosen[k] * group + i;
            n[k] = ((double)input->a[at] + (other ? (double)other->a[at] : 0) - mean[k]) * factor[k];
            y[k] = (double)search->actor->a[at];
        }
        if (biased) { /* the same slope between any two */
            left = (y[1] - y[0]) * (n[2] - n[0]);
            right = (y[2] - y[0]) * (n[1] - n[0]);
            passed += fabs(left - right) <= 0.1 * (fabs(left) + fabs(right)) + 1e-6;
        } else {
            left = y[0] * n[1];
            right = y[1] * n[0];
            passed += fabs(left - right) <= 0.1 * (fabs(left) + fabs(right)) + 1e-6;
            left = y[0] * n[2];
            right = y[2] * n[0];
            passed += fabs(left - right) <= 0.1 * (fabs(left) + fabs(right)) + 1e-6;
            looked_at++;
        }
        looked_at++;
    }
    return passed * 4 >= looked_at * 3;
}

static bool are_alike(const float *one, const float *other, size_t count)
{
    size_t apart = 0;
    for (size_t i = 0; i < count; i++)
        apart += fabsf(one[i] - other[i]) > (float)SAME_NUMBER * (fabsf(one[i]) + fabsf(other[i]));
    return apart * 4 <= count;
}

/* How many groups are unlike each other, up to WITH_BIAS. A prompt of one token over and over has the same row for all
 * of them, and from one row any tensor is a norm of any other, with the right weights. */
static size_t different_groups(const struct ts_search *search, size_t group)
{
    const float *seen[WITH_BIAS];
    size_t count = 0;
    for (size_t g = 0; g < search->total / group && count < WITH_BIAS; g++) {
        const float *values = search->actor->a + g * group;
        size_t k = 0;
        while (k < count && !are_alike(seen[k], values, group))
            k++;
        if (k == count)
            seen[count++] = values;
    }
    return count;
}

/* An adaptive norm has no weights of its own. Nothing is free in it, so that rows that are all alike show it as well:
 * beside channels that are a thousand times as large as the others, all tokens are. */
static bool without_weights(struct ts_operation *norm)
{
    norm->table = calloc(norm->group * 2, sizeof *norm->table);
    norm->table_count = norm->table ? norm->group * 2 : 0;
    for (size_t i = 0; i < norm->group && norm->table; i++)
        norm->table[i] = 1;
    return norm->table != NULL;
}

/* One input, or the sum of two: a residual stream that was not captured itself. */
static void learn_norm_of(struct ts_search *search, const struct ts_actor *input, const struct ts_actor *other)
{
    static const double epsilons[] = {1e-6, 1e-5, 0, 1e-8, 1e-12};
    size_t heads = search->scene->score_heads, width = search->actor->width;
    /* captured flat, the norm of a head shows only by the scores' number of heads */
    size_t groups_of[3] = {search->actor->inner, width, heads && width % heads == 0 ? width / heads : width};
    for (int g = 0; g < 3; g++) {
        size_t group = groups_of[g], different = 0;
        if ((g > 0 && group == groups_of[0]) || (g == 2 && group == width))
            continue;
        if (group < 2 || search->total / group < LEAST_GROUPS)
            continue;
        for (int variant = 0; variant < 3; variant++) /* RMS; layer norm; layer norm with bias */
            for (size_t e = 0; e < sizeof epsilons / sizeof *epsilons; e++) {
                struct ts_operation norm = {.kind = TS_OPERATION_NORM,
                                            .inputs = {input->pair, other ? other->pair : 0},
                                            .input_count = other ? 2 : 1,
                                            .group = group,
                                            .centred = variant > 0,
                                            .flag = variant > 1,
                                            .epsilon = epsilons[e]};
                if (e == 0 && !may_be_norm(search, input, other, group, variant > 0, variant > 1))
                    break;
                different = different ? different : different_groups(search, group);
                if (different < LEAST_GROUPS && variant < 2) {
                    if (without_weights(&norm))
                        ts_search_consider(search, &norm);
                } else if (different < (variant > 1 ? WITH_BIAS : LEAST_GROUPS)) {
                    break;
                } else if (fit_norm(search, input, other, &norm)) {
                    ts_search_consider(search, &norm);
                }
                if (e == 0 && norm.residual > 0.02) /* far off: another epsilon will not mend it */
                    break;
            }
    }
}

void ts_learn_norms(struct ts_search *search)
{
    for (size_t i = 0; i < search->same_count; i++)
        learn_norm_of(search, search->same[i], NULL);
    for (size_t i = 0; i < search->same_count && i < 10 && search->best.kind == TS_OPERATION_NONE; i++)
        for (size_t j = i + 1; j < search->same_count && j < 10; j++)
            learn_norm_of(search, search->same[i], search->same[j]);
}

/* Angles per token and pair, common to all heads. Of a single head they leave its lengths as equations, one for each
 * pair. */
static bool fit_rotary(const struct ts_search *search, const struct ts_actor *input, struct ts_operation *rotary)
{
    const struct ts_actor *actor = search->actor;
    size_t pairs = rotary->group / 2, inner = actor->width / rotary->heads;
    double *table = calloc(actor->rows * pairs * 2, sizeof *table), before = 0, after = 0;
    if (!table)
        return false;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < pairs; i++) {
            double real = 0, imaginary = 0, size;
            for (size_t head = 0; head < rotary->heads; head++) {
                size_t base = row * actor->width + head * inner;
                size_t x = base + (rotary->interleaved ? 2 * i : i), y = rotary->interleaved ? x + 1 : x + pairs;
                double ax = (double)input->a[x], ay = (double)input->a[y];
                double bx = (double)actor->a[x], by = (double)actor->a[y];
                real += bx * ax + by * ay;
                imaginary += by * ax - bx * ay;
                before += ax * ax + ay * ay;
                after += bx * bx + by * by;
            }
            size = sqrt(real * real + imaginary * imaginary); /* hypot has other last bits on each processor */
            table[row * pairs + i] = size > 0 ? real / size : 1;
            table[actor->rows * pairs + row * pairs + i] = size > 0 ? imaginary / size : 0;
        }
    /* long-context scalings also stretch by one factor */
    rotary->factor = before > 0 ? sqrt(after / before) : 1;
    if (fabs(rotary->factor - 1) < 1e-3)
        rotary->factor = 1;
    rotary->table = table;
    rotary->table_count = actor->rows * pairs * 2;
    return true;
}

/* Every row keeps its length up to one common factor: what a rotation must do before it is worth fitting. */
static bool may_be_rotation(const struct ts_search *search, const struct ts_actor *input)
{
    const struct ts_actor *actor = search->actor;
    double first = 0;
    for (size_t row = 0; row < actor->rows; row++) {
        double before = 0, after = 0;
        for (size_t i = row * actor->width; i < (row + 1) * actor->width; i++) {
            before += (double)input->a[i] * (double)input->a[i];
            after += (double)actor->a[i] * (double)actor->a[i];
        }
        if (!(before > 0))
            return false;
        first = row ? first : after / before;
        if (fabs(after / before - first) > 0.02 * first)
            return false;
    }
    return true;
}

bool ts_may_turn(const float *from, const float *to, size_t width, const struct ts_operation *rotary, double tolerance)
{
    const size_t pairs = rotary->group / 2, inner = width / rotary->heads, still = inner - rotary->group;
    const size_t heads = rotary->heads < LOOK_HEADS ? rotary->heads : LOOK_HEADS;
    double before = 0, after = 0, turned = 0, left = 0, size = 0;
    for (size_t i = 0; i < pairs; i += pairs / LOOK_PAIRS + 1) {
        double real = 0, imaginary = 0;
        for (size_t head = 0; head < heads; head++) {
            size_t x = head * inner + (rotary->interleaved ? 2 * i : i), y = rotary->interleaved ? x + 1 : x + pairs;
            double ax = (double)from[x], ay = (double)from[y], bx = (double)to[x], by = (double)to[y];
            real += bx * ax + by * ay;
            imaginary += by * ax - bx * ay;
            before += ax * ax + ay * ay;
            after += bx * bx + by * by;
        }
        turned += sqrt(real * real + imaginary * imaginary);
    }
    for (size_t i = 0; i < still; i += still / LOOK_PAIRS + 1)
        for (size_t head = 0; head < heads; head++) {
            size_t x = head * inner + rotary->group + i;
            double by = (double)to[x] - (double)from[x];
            left += by * by;
            size += (double)to[x] * (double)to[x];
        }
    /* what the best angles and the best factor leave */
    left += before > 0 ? after - turned * turned / before : after;
    return after > 0 && left <= LOOK_ROOM * LOOK_ROOM * tolerance * tolerance * (after + size);
}

/* Keys of one head give no equations to spare, but they turn as the queries did. */
static bool turns_as_before(struct ts_search *search, const struct ts_actor *input)
{
    const struct ts_scene *scene = search->scene;
    const struct ts_actor *actor = search->actor;
    struct ts_operation rotary = {.kind = TS_OPERATION_ROTARY,
                                  .inputs = {input->pair},
                                  .input_count = 1,
                                  .factor = scene->turn.factor,
                                  .interleaved = scene->turn.interleaved,
                                  .group = scene->turn.group};
    if (!scene->turn.table || scene->turn.rows != actor->rows || actor->width % scene->turn.head)
        return false;
    rotary.heads = actor->width / scene->turn.head;
    rotary.table_count = actor->rows * rotary.group;
    rotary.table = malloc(rotary.table_count * sizeof *rotary.table);
    if (!rotary.table)
        return false;
    memcpy(rotary.table, scene->turn.table, rotary.table_count * sizeof *rotary.table);
    return ts_search_consider(search, &rotary);
}

static void remember_turn(struct ts_search *search)
{
    struct ts_turn *turn = &search->scene->turn;
    const struct ts_operation *rotary = &search->best;
    double *copy = malloc(rotary->table_count * sizeof *copy);
    if (!copy)
        return;
    memcpy(copy, rotary->table, rotary->table_count * sizeof *copy);
    if (!turn->borrowed)
        free(turn->table);
    *turn = (struct ts_turn){.table = copy,
                             .rows = search->actor->rows,
                             .group = rotary->group,
                             .head = search->actor->width / rotary->heads,
                             .factor = rotary->factor,
                             .interleaved = rotary->interleaved};
}

size_t ts_turning_numbers(size_t head, size_t n)
{
    size_t even = head / 2 * 2, behind = n < 3 ? 0 : 2 * (n - 3);
    if (n < 3)
        return head >> n;
    return behind + 4 <= even ? even - behind : 0;
}

void ts_learn_rotary(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    for (size_t i = 0; i < search->same_count && i < 10; i++) {
        size_t fewest = actor->heads, most = actor->heads > 1 ? actor->heads : 128, fitted = 0;
        const size_t last = (actor->rows - 1) * actor->width;
        if (!may_be_rotation(search, search->same[i]))
            continue;
        if (turns_as_before(search, search->same[i]))
            return;
        /* captured flat, any number of heads that divides is tried: most of them first, because neighbours that turn in
         * pairs do so in larger heads as well, with more freedom */
        for (size_t heads = most; heads >= fewest; heads--)
            for (size_t variant = 0; actor->width % heads == 0 && fitted < TS_TURNS_FITTED; variant++) {
                struct ts_operation rotary = {.kind = TS_OPERATION_ROTARY,
                                              .inputs = {search->same[i]->pair},
                                              .input_count = 1,
                                              .factor = 1,
                                              .heads = heads,
                                              .interleaved = variant % 2,
                                              .group = ts_turning_numbers(actor->width / heads, variant / 2)};
                if (!rotary.group)
                    break;
                if (rotary.group < 4 || rotary.group % 2 ||
                    !ts_may_turn(search->same[i]->a + last, actor->a + last, actor->width, &rotary, search->tolerance))
                    continue;
                fitted++;
                if (fit_rotary(search, search->same[i], &rotary) && ts_search_consider(search, &rotary)) {
                    remember_turn(search);
                    return;
                }
            }
    }
}

/* The factor between what an operation with factor 1 gives and the reference. */
static double fitted_factor(struct ts_search *search, const struct ts_operation *operation)
{
    const struct ts_actor *input = ts_scene_actor(search->scene, operation->inputs[0]);
    double *in = ts_as_doubles(input->a, input->rows * input->width), *out = malloc(search->total * sizeof *out);
    double dot = 0, square = 0;
    if (in && out) {
        ts_operation_apply(search->scene, operation, search->actor, &in, out);
        for (size_t i = 0; i < search->total; i++) {
            dot += out[i] * (double)search->actor->a[i];
            square += out[i] * out[i];
        }
    }
    free(in);
    free(out);
    return square > 0 ? dot / square : 1;
}

/* Pair `index` holds a choice of experts, as many for each row as the actor has numbers: the reference's, then the
 * candidate's. It is read from the files: it may come behind the actor. */
static bool read_choice_of(const struct ts_scene *scene, const struct ts_actor *actor, size_t index, size_t experts,
                           double *table)
{
    const struct ts_pair *pair = &scene->pairs[index];
    const size_t total = actor->rows * actor->width;
    if (pair->problem || !ts_type_is_integer(pair->a.tensor->type) || !ts_type_is_integer(pair->b.tensor->type) ||
        pair->a.count != total || pair->b.count != total)
        return false;
    for (size_t i = 0; i < 2 * total; i++) {
        struct ts_error ignored;
        int64_t expert = -1;
        if (ts_view_read_i64(i < total ? &pair->a : &pair->b, i % total, 1, &expert, &ignored) != TS_OK || expert < 0 ||
            expert >= (int64_t)experts)
            return false;
        table[i] = (double)expert;
    }
    return true;
}

/* The experts that were chosen, captured as integers shortly before the weights or right behind them. NULL when there
 * are none; else *choice is their pair. */
static double *read_choice(const struct ts_scene *scene, const struct ts_actor *actor, size_t experts, size_t *choice)
{
    size_t total = actor->rows * actor->width;
    double *table = actor->whole && actor->rows == scene->taken_count ? malloc(2 * total * sizeof *table) : NULL;
    for (size_t back = 1; table && back <= CHOICE_BACK && back <= actor->pair; back++)
        if (read_choice_of(scene, actor, *choice = actor->pair - back, experts, table))
            return table;
    for (size_t ahead = 1; table && ahead <= CHOICE_AHEAD && actor->pair + ahead < scene->pair_count; ahead++)
        if (read_choice_of(scene, actor, *choice = actor->pair + ahead, experts, table))
            return table;
    free(table);
    return NULL;
}

/* The weights of chosen experts are above 0 and fall. */
static bool may_be_chosen(const struct ts_actor *actor, bool *falling)
{
    *falling = true;
    for (size_t i = 0; i < actor->rows * actor->width; i++) {
        if (!(actor->a[i] >= 0))
            return false;
        *falling = *falling && !(i % actor->width && actor->a[i] > actor->a[i - 1]);
    }
    return true;
}

static bool choose_as_captured(const struct ts_scene *scene, const struct ts_actor *actor, size_t experts,
                               struct ts_operation *topk)
{
    size_t choice;
    topk->table = read_choice(scene, actor, experts, &choice);
    topk->table_count = topk->table ? 2 * actor->rows * actor->width : 0;
    return topk->table != NULL;
}

/* Of both sides' choices the candidate's, with which it is replayed. */
static void keep_own_choice(struct ts_operation *topk)
{
    topk->table_count /= 2;
    memcpy(topk->table, topk->table + topk->table_count, topk->table_count * sizeof *topk->table);
}

bool ts_operation_choice(struct ts_scene *scene, const struct ts_actor *actor, struct ts_operation *operation,
                         size_t *choice)
{
    const struct ts_actor *logits = ts_scene_actor(scene, operation->inputs[0]);
    double *table =
        operation->kind == TS_OPERATION_TOPK && logits ? read_choice(scene, actor, logits->width, choice) : NULL;
    if (!table)
        return false;
    free(operation->table);
    operation->table = table;
    operation->table_count = 2 * actor->rows * actor->width;
    keep_own_choice(operation);
    return true;
}

void ts_learn_topk(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    bool falling;
    if (actor->heads != 1 || actor->width > 64 || !may_be_chosen(actor, &falling))
        return;
    for (size_t i = 0; i < search->all_count && i < 6; i++) {
        const struct ts_actor *logits = search->all[i];
        if (logits->rows != actor->rows || logits->width < actor->width || logits->width > 4096)
            continue;
        for (int variant = falling ? 0 : 4; variant < 8; variant++) {
            struct ts_operation topk = {.kind = TS_OPERATION_TOPK,
                                        .inputs = {logits->pair},
                                        .input_count = 1,
                                        .factor = 1,
                                        .flag = variant % 2,
                                        .sigmoid = variant / 2 % 2};
            if (variant >= 4 && search->best.kind == TS_OPERATION_TOPK && !search->best.table)
                return; /* the largest are chosen */
            if (variant >= 4 && !choose_as_captured(search->scene, actor, logits->width, &topk))
                break;
            if (ts_search_consider(search, &topk))
                continue;
            if (variant >= 4 && !choose_as_captured(search->scene, actor, logits->width, &topk))
                break;
            topk.factor = fitted_factor(search, &topk); /* routed scaling */
            if (actor->rows > 1 && topk.factor > 0.05 && topk.factor < 100)
                ts_search_consider(search, &topk);
            else
                free(topk.table);
        }
    }
    if (search->best.kind == TS_OPERATION_TOPK && search->best.table)
        keep_own_choice(&search->best);
}
