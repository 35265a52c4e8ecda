/* Owns the search: which operation on which earlier tensors gives the newest one, in the reference.
 *
 * Candidates are tried on a few elements or rows first; only what fits there is tried on everything. Of several that
 * fit the one with the smallest residual wins, so that a bf16 reference does not take gelu for its tanh approximation
 * when the other fits better. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/operation.h"

#define MOST_INPUTS 24 /* earlier tensors of the right size that are considered */
#define PROBES      64 /* elements looked at first */

struct search {
    struct ts_scene *scene;
    const struct ts_actor *actor;
    size_t total;
    double tolerance;
    const struct ts_actor *same[MOST_INPUTS]; /* newest first: as many rows and numbers as the actor */
    size_t same_count;
    const struct ts_actor *all[TS_SCENE_WINDOW]; /* newest first: every usable earlier one */
    size_t all_count;
    size_t probes[PROBES];
    size_t probe_count;
    struct ts_operation best;
};

/* Residual of x against the actor's reference over n elements given by a function of the index. */
static double residual_of(const struct search *search, const double *values)
{
    const float *y = search->actor->a;
    double error = 0, size = 0;
    for (size_t i = 0; i < search->total; i++) {
        double expected = (double)y[i];
        if (expected < -1e4 || !isfinite(expected)) /* masked scores */
            continue;
        error += (values[i] - expected) * (values[i] - expected);
        size += expected * expected;
    }
    return size > 0 ? sqrt(error / size) : error > 0 ? (double)INFINITY : 0;
}

static double *as_doubles(const float *values, size_t count)
{
    double *copy = malloc((count ? count : 1) * sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        copy[i] = (double)values[i];
    return copy;
}

/* Applies a candidate to the reference's own inputs and keeps it when it is the best so far. Takes the table over. */
static bool consider(struct search *search, struct ts_operation *candidate)
{
    double *inputs[3] = {NULL, NULL, NULL}, *out = malloc(search->total * sizeof *out);
    bool good = out != NULL, kept = false;
    for (unsigned i = 0; i < candidate->input_count && good; i++) {
        const struct ts_actor *input = ts_scene_actor(search->scene, candidate->inputs[i]);
        inputs[i] = as_doubles(input->a, input->rows * input->width);
        good = inputs[i] != NULL;
    }
    if (good) {
        ts_operation_apply(search->scene, candidate, search->actor, inputs, out);
        candidate->residual = residual_of(search, out);
        if (candidate->residual < search->tolerance &&
            (search->best.kind == TS_OPERATION_NONE || candidate->residual < 0.5 * search->best.residual)) {
            ts_operation_release(&search->best);
            search->best = *candidate;
            candidate->table = NULL;
            kept = true;
        }
    }
    for (int i = 0; i < 3; i++)
        free(inputs[i]);
    free(out);
    free(candidate->table);
    candidate->table = NULL;
    return kept;
}

static double probe_residual(const struct search *search, const double *values)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < search->probe_count; i++) {
        double expected = (double)search->actor->a[search->probes[i]];
        if (!isfinite(expected)) /* masked */
            continue;
        error += (values[i] - expected) * (values[i] - expected);
        size += expected * expected;
    }
    return size > 0 ? sqrt(error / size) : error > 0 ? (double)INFINITY : 0;
}

static void learn_sums(struct search *search)
{
    double values[PROBES];
    for (size_t i = 0; i < search->same_count; i++) {
        const float *x = search->same[i]->a;
        struct ts_operation copy = {.kind = TS_OPERATION_COPY, .inputs = {search->same[i]->pair}, .input_count = 1};
        for (size_t k = 0; k < search->probe_count; k++)
            values[k] = (double)x[search->probes[k]];
        if (probe_residual(search, values) < search->tolerance && consider(search, &copy))
            return;
    }
    for (size_t i = 0; i < search->same_count; i++)
        for (size_t j = i + 1; j < search->same_count; j++) {
            const float *x = search->same[i]->a, *y = search->same[j]->a;
            for (size_t k = 0; k < search->probe_count; k++)
                values[k] = (double)x[search->probes[k]] + (double)y[search->probes[k]];
            if (probe_residual(search, values) < search->tolerance) {
                struct ts_operation sum = {.kind = TS_OPERATION_SUM,
                                           .inputs = {search->same[i]->pair, search->same[j]->pair},
                                           .input_count = 2};
                consider(search, &sum);
            }
        }
    if (search->best.kind != TS_OPERATION_NONE)
        return;
    for (size_t i = 0; i < search->same_count && i < 12; i++)
        for (size_t j = i + 1; j < search->same_count && j < 12; j++)
            for (size_t l = j + 1; l < search->same_count; l++) {
                for (size_t k = 0; k < search->probe_count; k++)
                    values[k] = (double)search->same[i]->a[search->probes[k]] +
                                (double)search->same[j]->a[search->probes[k]] +
                                (double)search->same[l]->a[search->probes[k]];
                if (probe_residual(search, values) < search->tolerance) {
                    struct ts_operation sum = {
                        .kind = TS_OPERATION_SUM,
                        .inputs = {search->same[i]->pair, search->same[j]->pair, search->same[l]->pair},
                        .input_count = 3};
                    consider(search, &sum);
                }
            }
}

/* The c of y = c tanh(x / c), from the largest x: the right side grows with c. 0 when no c fits. */
static double softcap_of(const struct search *search, const float *x)
{
    size_t at = 0;
    double low, high = 1e4, from, to;
    for (size_t i = 1; i < search->total; i++)
        if (isfinite(search->actor->a[i]) && isfinite(x[i]) &&
            (fabsf(x[i]) > fabsf(x[at]) || !isfinite(search->actor->a[at])))
            at = i;
    from = fabs((double)x[at]);
    to = fabs((double)search->actor->a[at]);
    if (!(to > 0) || !(from > to * 1.0001))
        return 0;
    low = to * 1.0000001;
    for (int step = 0; step < 80; step++) {
        double middle = sqrt(low * high);
        *(middle * tanh(from / middle) < to ? &low : &high) = middle;
    }
    /* people choose round caps; a fitted one near such a number is that number */
    return fabs(low - round(low)) < 1e-3 * low ? round(low) : low;
}

static void learn_scale(struct search *search)
{
    for (size_t i = 0; i < search->same_count && i < 6; i++) {
        const float *x = search->same[i]->a;
        double dot = 0, square = 0, values[PROBES];
        struct ts_operation scale = {.kind = TS_OPERATION_SCALE, .inputs = {search->same[i]->pair}, .input_count = 1};
        for (size_t k = 0; k < search->total; k++)
            if (isfinite(x[k]) && isfinite(search->actor->a[k])) {
                dot += (double)x[k] * (double)search->actor->a[k];
                square += (double)x[k] * (double)x[k];
            }
        if (!(square > 0))
            continue;
        scale.factor = dot / square;
        for (size_t k = 0; k < search->probe_count; k++)
            values[k] = scale.factor * (double)x[search->probes[k]];
        if (probe_residual(search, values) < search->tolerance) {
            consider(search, &scale);
            continue;
        }
        scale.factor = softcap_of(search, x);
        scale.flag = true;
        if (scale.factor > 0) {
            for (size_t k = 0; k < search->probe_count; k++)
                values[k] = scale.factor * tanh((double)x[search->probes[k]] / scale.factor);
            if (probe_residual(search, values) < search->tolerance)
                consider(search, &scale);
        }
    }
}

/* Weight and bias per channel by least squares over all groups; a bias only when it helps. */
static bool fit_norm(const struct search *search, const struct ts_actor *input, const struct ts_actor *other,
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
static bool may_be_norm(const struct search *search, const struct ts_actor *input, const struct ts_actor *other,
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

/* One input, or the sum of two: a residual stream that was not captured itself. */
static void learn_norm_of(struct search *search, const struct ts_actor *input, const struct ts_actor *other)
{
    static const double epsilons[] = {1e-6, 1e-5, 0, 1e-8, 1e-12};
    size_t groups_of[2] = {search->actor->inner, search->actor->width};
    for (int g = 0; g < (groups_of[0] == groups_of[1] ? 1 : 2); g++) {
        size_t group = groups_of[g];
        /* fewer groups than these fit by chance, with a weight per channel free */
        if (group < 2 || search->total / group < 4)
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
                if (variant > 1 && search->total / group < 6)
                    continue;
                if (e == 0 && !may_be_norm(search, input, other, group, variant > 0, variant > 1))
                    break;
                if (fit_norm(search, input, other, &norm))
                    consider(search, &norm);
                if (e == 0 && norm.residual > 0.02) /* far off: another epsilon will not mend it */
                    break;
            }
    }
}

static void learn_norms(struct search *search)
{
    for (size_t i = 0; i < search->same_count; i++)
        learn_norm_of(search, search->same[i], NULL);
    for (size_t i = 0; i < search->same_count && i < 10 && search->best.kind == TS_OPERATION_NONE; i++)
        for (size_t j = i + 1; j < search->same_count && j < 10; j++)
            learn_norm_of(search, search->same[i], search->same[j]);
}

/* Angles per token and pair, common to all heads: more equations than unknowns only with two heads or more. */
static bool fit_rotary(const struct search *search, const struct ts_actor *input, struct ts_operation *rotary)
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
            size = hypot(real, imaginary);
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
static bool may_be_rotation(const struct search *search, const struct ts_actor *input)
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

/* Keys of one head give no equations to spare, but they turn as the queries did. */
static bool turns_as_before(struct search *search, const struct ts_actor *input)
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
    return consider(search, &rotary);
}

static void remember_turn(struct search *search)
{
    struct ts_turn *turn = &search->scene->turn;
    const struct ts_operation *rotary = &search->best;
    double *copy = malloc(rotary->table_count * sizeof *copy);
    if (!copy)
        return;
    memcpy(copy, rotary->table, rotary->table_count * sizeof *copy);
    free(turn->table);
    *turn = (struct ts_turn){.table = copy,
                             .rows = search->actor->rows,
                             .group = rotary->group,
                             .head = search->actor->width / rotary->heads,
                             .factor = rotary->factor,
                             .interleaved = rotary->interleaved};
}

static void learn_rotary(struct search *search)
{
    const struct ts_actor *actor = search->actor;
    for (size_t i = 0; i < search->same_count && i < 10; i++) {
        size_t fewest = actor->heads > 1 ? actor->heads : 2, most = actor->heads > 1 ? actor->heads : 128;
        if (!may_be_rotation(search, search->same[i]))
            continue;
        if (turns_as_before(search, search->same[i]))
            return;
        /* captured flat, any number of heads that divides is tried */
        for (size_t heads = fewest; heads <= most; heads++)
            for (int variant = 0; variant < 6 && actor->width % heads == 0; variant++) {
                struct ts_operation rotary = {.kind = TS_OPERATION_ROTARY,
                                              .inputs = {search->same[i]->pair},
                                              .input_count = 1,
                                              .factor = 1,
                                              .heads = heads,
                                              .interleaved = variant % 2,
                                              /* all, half or a quarter of a head turns */
                                              .group = actor->width / heads >> variant / 2};
                if (rotary.group < 4 || rotary.group % 2)
                    continue;
                if (fit_rotary(search, search->same[i], &rotary) && consider(search, &rotary)) {
                    remember_turn(search);
                    return;
                }
            }
    }
}

static void learn_activations(struct search *search)
{
    double values[PROBES];
    for (size_t i = 0; i < search->same_count && i < 8; i++)
        for (size_t j = 0; j <= search->same_count && j <= 8; j++) {
            bool alone = j == search->same_count || j == 8;
            if (j == i)
                continue;
            for (int f = 0; f < TS_ACTIVATION_COUNT; f++) {
                struct ts_operation act = {.kind = TS_OPERATION_ACTIVATION,
                                           .inputs = {search->same[i]->pair, alone ? 0 : search->same[j]->pair},
                                           .input_count = alone ? 1 : 2,
                                           .activation = (enum ts_activation)f};
                if (f == TS_ACTIVATION_IDENTITY && (alone || j < i))
                    continue;
                for (size_t k = 0; k < search->probe_count; k++)
                    values[k] = ts_activation_value(act.activation, (double)search->same[i]->a[search->probes[k]]) *
                                (alone ? 1 : (double)search->same[j]->a[search->probes[k]]);
                if (probe_residual(search, values) < search->tolerance)
                    consider(search, &act);
            }
        }
}

/* q and k can be the operands of [rows, heads, keys] scores: as many numbers per head, key heads that divide the heads.
 */
static bool fit_together(const struct ts_actor *actor, const struct ts_actor *q, const struct ts_actor *k)
{
    size_t size;
    if (q == k || q->rows != actor->rows || k->rows != actor->rows || q->width % actor->heads || k->width > q->width)
        return false;
    size = q->width / actor->heads;
    return size >= 2 && k->width % size == 0 && actor->heads % (k->width / size) == 0;
}

static double product(const struct ts_actor *actor, const struct ts_actor *q, const struct ts_actor *k, size_t row,
                      size_t head, size_t key)
{
    size_t size = q->width / actor->heads, repeat = actor->heads / (k->width / size);
    const float *x = q->a + row * q->width + head * size, *y = k->a + key * k->width + head / repeat * size;
    double sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Gate and up as halves of one projection, in either order. */
static void learn_fused_activation(struct search *search)
{
    const struct ts_actor *actor = search->actor;
    double values[PROBES];
    for (size_t i = 0; i < search->all_count && i < 6; i++) {
        const struct ts_actor *input = search->all[i];
        if (input->rows != actor->rows || input->width != 2 * actor->width)
            continue;
        for (unsigned gate = 0; gate < 2; gate++)
            for (int f = 0; f < TS_ACTIVATION_COUNT; f++) {
                struct ts_operation act = {.kind = TS_OPERATION_ACTIVATION,
                                           .inputs = {input->pair},
                                           .input_count = 1,
                                           .fused = true,
                                           .chunk = gate,
                                           .other_chunk = 1 - gate,
                                           .activation = (enum ts_activation)f};
                for (size_t k = 0; k < search->probe_count; k++) {
                    size_t at = search->probes[k], row = at / actor->width * input->width, column = at % actor->width;
                    values[k] =
                        ts_activation_value(act.activation, (double)input->a[row + gate * actor->width + column]) *
                        (double)input->a[row + (1 - gate) * actor->width + column];
                }
                if (probe_residual(search, values) < search->tolerance)
                    consider(search, &act);
            }
    }
}

static void learn_scores(struct search *search)
{
    const struct ts_actor *actor = search->actor;
    if (!actor->whole || actor->heads < 1 || actor->inner != actor->rows)
        return;
    for (size_t i = 0; i < search->all_count; i++)
        for (size_t j = 0; j < search->all_count; j++) {
            const struct ts_actor *q = search->all[i], *k = search->all[j];
            struct ts_operation scores = {
                .kind = TS_OPERATION_SCORES, .inputs = {q->pair, k->pair}, .input_count = 2, .factor = 1};
            double dot = 0, square = 0, size = 0;
            if (!fit_together(actor, q, k))
                continue;
            /* the factor from one row of each head; then everything */
            for (size_t head = 0; head < actor->heads; head++)
                for (size_t key = 0; key < actor->inner; key++) {
                    size_t row = actor->rows - 1 - head % actor->rows;
                    double y = (double)actor->a[row * actor->width + head * actor->inner + key], sum;
                    if (y < -1e4 || !isfinite(y))
                        continue;
                    sum = product(actor, q, k, row, head, key);
                    dot += sum * y;
                    square += sum * sum;
                    size += y * y;
                }
            /* a line through the probed rows must explain them before everything is computed */
            if (!(square > 0) || !(size > 0) || 1 - dot * dot / (square * size) > 1e-2)
                continue;
            scores.factor = dot / square;
            if (consider(search, &scores))
                return;
        }
}

/* Probabilities straight from queries and keys, the scores not captured: within a row, log p is factor * q . k and a
 * constant, so the factor is a slope. */
static void learn_probabilities(struct search *search)
{
    const struct ts_actor *actor = search->actor;
    for (size_t i = 0; i < search->all_count; i++)
        for (size_t j = 0; j < search->all_count; j++) {
            const struct ts_actor *q = search->all[i], *k = search->all[j];
            struct ts_operation softmax = {
                .kind = TS_OPERATION_SOFTMAX, .inputs = {q->pair, k->pair}, .input_count = 2};
            double covariance = 0, variance = 0, spread = 0;
            if (!fit_together(actor, q, k))
                continue;
            for (size_t head = 0; head < actor->heads; head++) {
                size_t row = actor->rows - 1 - head % (actor->rows / 2 + 1), used = 0;
                double mean_s = 0, mean_p = 0, products = 0, squares = 0, logs = 0;
                for (size_t key = 0; key < actor->inner; key++) {
                    double p = (double)actor->a[row * actor->width + head * actor->inner + key], s;
                    if (!(p > 1e-6))
                        continue;
                    s = product(actor, q, k, row, head, key);
                    p = log(p);
                    mean_s += s;
                    mean_p += p;
                    products += s * p;
                    squares += s * s;
                    logs += p * p;
                    used++;
                }
                if (used > 1) {
                    covariance += products - mean_s * mean_p / (double)used;
                    variance += squares - mean_s * mean_s / (double)used;
                    spread += logs - mean_p * mean_p / (double)used;
                }
            }
            if (!(variance > 0) || !(spread > 0) || 1 - covariance * covariance / (variance * spread) > 2e-2)
                continue;
            softmax.factor = covariance / variance;
            if (consider(search, &softmax))
                return;
        }
}

static void learn_softmax(struct search *search)
{
    const struct ts_actor *actor = search->actor;
    double first = 0;
    for (size_t i = 0; i < actor->inner; i++) {
        if (actor->a[i] < 0)
            return;
        first += (double)actor->a[i];
    }
    if (!(fabs(first - 1) < 0.02)) /* no probabilities */
        return;
    for (size_t i = 0; i < search->same_count && i < 4; i++) {
        struct ts_operation softmax = {
            .kind = TS_OPERATION_SOFTMAX, .inputs = {search->same[i]->pair}, .input_count = 1};
        consider(search, &softmax);
    }
    if (search->best.kind == TS_OPERATION_NONE && actor->whole && actor->inner == actor->rows)
        learn_probabilities(search);
}

static void learn_context(struct search *search)
{
    const struct ts_actor *actor = search->actor;
    for (size_t i = 0; i < search->all_count && i < 8; i++) {
        const struct ts_actor *p = search->all[i];
        if (!p->whole || p->rows != actor->rows || p->inner != p->rows || p->heads < 1 || actor->width % p->heads)
            continue;
        for (size_t j = 0; j < search->all_count; j++) {
            const struct ts_actor *v = search->all[j];
            size_t inner = actor->width / p->heads;
            struct ts_operation context = {
                .kind = TS_OPERATION_CONTEXT, .inputs = {p->pair, v->pair}, .input_count = 2};
            if (j == i || !v->whole || v->rows != actor->rows || !inner || v->width % inner || v->width < inner ||
                v->width / inner > p->heads || p->heads % (v->width / inner))
                continue;
            if (consider(search, &context))
                return;
        }
    }
}

/* The factor between what an operation with factor 1 gives and the reference. */
static double fitted_factor(struct search *search, const struct ts_operation *operation)
{
    const struct ts_actor *input = ts_scene_actor(search->scene, operation->inputs[0]);
    double *in = as_doubles(input->a, input->rows * input->width), *out = malloc(search->total * sizeof *out);
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

static void learn_topk(struct search *search)
{
    const struct ts_actor *actor = search->actor;
    if (actor->heads != 1 || actor->width > 64)
        return;
    for (size_t i = 0; i < search->all_count && i < 6; i++) {
        const struct ts_actor *logits = search->all[i];
        if (logits->rows != actor->rows || logits->width < actor->width || logits->width > 4096)
            continue;
        for (int variant = 0; variant < 4; variant++) {
            struct ts_operation topk = {.kind = TS_OPERATION_TOPK,
                                        .inputs = {logits->pair},
                                        .input_count = 1,
                                        .factor = 1,
                                        .flag = variant % 2,
                                        .sigmoid = variant / 2};
            if (consider(search, &topk))
                continue;
            topk.factor = fitted_factor(search, &topk); /* routed scaling */
            if (actor->rows > 1 && topk.factor > 0.05 && topk.factor < 100)
                consider(search, &topk);
        }
    }
}

/* Chunks of a modulation tensor: 2 to 9 times as wide, one row per token or one for all. */
static void learn_modulation(struct search *search)
{
    const struct ts_actor *actor = search->actor;
    double values[PROBES];
    for (size_t m = 0; m < search->all_count; m++) {
        const struct ts_actor *from = search->all[m];
        unsigned chunks = (unsigned)(from->width / actor->width);
        if (from->width % actor->width || chunks < 2 || chunks > 9 || (from->rows != 1 && from->rows != actor->rows))
            continue;
#define CHUNK(c, at)                                                                                                   \
    ((double)                                                                                                          \
         from->a[(from->rows == 1 ? 0 : (at) / actor->width) * from->width + (c)*actor->width + (at) % actor->width])
        for (size_t i = 0; i < search->same_count && i < 12; i++) {
            const float *x = search->same[i]->a;
            for (unsigned scale = 0; scale < chunks; scale++)
                for (unsigned shift = 0; shift < chunks; shift++)
                    for (int one = 1; one >= 0 && shift != scale; one--) {
                        struct ts_operation modulate = {.kind = TS_OPERATION_MODULATE,
                                                        .inputs = {search->same[i]->pair, from->pair},
                                                        .input_count = 2,
                                                        .chunk = scale,
                                                        .other_chunk = shift,
                                                        .flag = one};
                        for (size_t k = 0; k < search->probe_count; k++) {
                            size_t at = search->probes[k];
                            values[k] = (double)x[at] * (one + CHUNK(scale, at)) + CHUNK(shift, at);
                        }
                        if (probe_residual(search, values) < search->tolerance)
                            consider(search, &modulate);
                    }
            for (size_t j = 0; j < search->same_count && j < 12; j++)
                for (unsigned gate = 0; gate < chunks && j != i; gate++) {
                    const float *y = search->same[j]->a;
                    struct ts_operation sum = {.kind = TS_OPERATION_GATED_SUM,
                                               .inputs = {search->same[i]->pair, search->same[j]->pair, from->pair},
                                               .input_count = 3,
                                               .chunk = gate};
                    double dot = 0, square = 0;
                    for (size_t k = 0; k < search->probe_count; k++) {
                        size_t at = search->probes[k];
                        double term = (double)y[at] * CHUNK(gate, at);
                        dot += term * ((double)actor->a[at] - (double)x[at]);
                        square += term * term;
                    }
                    if (!(square > 0))
                        continue;
                    sum.factor = dot / square;
                    for (size_t k = 0; k < search->probe_count; k++) {
                        size_t at = search->probes[k];
                        values[k] = (double)x[at] + sum.factor * (double)y[at] * CHUNK(gate, at);
                    }
                    if (probe_residual(search, values) < search->tolerance)
                        consider(search, &sum);
                }
        }
#undef CHUNK
    }
}

static void gather(struct search *search)
{
    size_t newest = search->actor->pair;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= newest; back++) {
        const struct ts_actor *other = ts_scene_actor(search->scene, newest - back);
        if (!other || !(other->norm_a > 0))
            continue;
        search->all[search->all_count++] = other;
        if (other->rows == search->actor->rows && other->width == search->actor->width &&
            search->same_count < MOST_INPUTS)
            search->same[search->same_count++] = other;
    }
    search->probe_count = search->total < PROBES ? search->total : PROBES;
    for (size_t i = 0; i < search->probe_count; i++) /* a stride without common factors with the usual sizes */
        search->probes[i] = search->total <= PROBES ? i : (i * 1000003 + 12345) % search->total;
}

enum ts_status ts_operation_learn(struct ts_scene *scene, const struct ts_actor *actor, struct ts_operation *operation,
                                  struct ts_error *error)
{
    struct search search = {.scene = scene, .actor = actor, .total = actor->rows * actor->width};
    /* what has no free constants before what has one per channel: a modulation common to all tokens also fits as a norm
     */
    void (*const steps[])(struct search *) = {learn_sums,       learn_activations, learn_fused_activation,
                                              learn_modulation, learn_softmax,     learn_topk,
                                              learn_context,    learn_scores,      learn_scale,
                                              learn_norms,      learn_rotary};
    (void)error;
    *operation = (struct ts_operation){0};
    if (!actor->usable || !(actor->norm_a > 0) || (actor->rows < 2 && scene->tokens != 1))
        return TS_OK;
    /* a few roundings of the reference's own precision; double's worth of slack for sums in fp32 */
    search.tolerance = 6 * ts_rounding(actor->bits_a);
    if (search.tolerance < 2e-5)
        search.tolerance = 2e-5;
    gather(&search);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && search.best.kind == TS_OPERATION_NONE; i++)
        steps[i](&search);
    *operation = search.best;
    return TS_OK;
}
