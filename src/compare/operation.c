/* Owns applying and replaying operations; learning is in operation_learn.c. */
#include "compare/operation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/grid.h"
#include "compare/operation_across.h"
#include "compare/operation_search.h"

static const char *const activation_names[TS_ACTIVATION_COUNT] = {
    "silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "sigmoid", "tanh", "relu_squared", "softplus", "identity"};

const char *ts_activation_name(enum ts_activation activation)
{
    return activation_names[activation];
}

double ts_activation_value(enum ts_activation activation, double x)
{
    switch (activation) {
    case TS_ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case TS_ACTIVATION_GELU:
        return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case TS_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case TS_ACTIVATION_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case TS_ACTIVATION_RELU:
        return x > 0 ? x : 0;
    case TS_ACTIVATION_SIGMOID:
        return 1 / (1 + exp(-x));
    case TS_ACTIVATION_TANH:
        return tanh(x);
    case TS_ACTIVATION_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    case TS_ACTIVATION_SOFTPLUS:
        return x > 30 ? x : log1p(exp(x));
    default:
        return x;
    }
}

/* From this ratio on it is worth asking whether the values came off a quantized store. Its error is known so well that
 * a quarter of it stands for one rounding: the limits are then a few times what the store rounds off. */
#define GRID_FROM       2.0
#define GRID_SHARE      4.0
#define FEWEST_OF_SCALE 8 /* numbers that share one: no head is smaller */
/* Another function or epsilon: from which ratio on it is looked for, in how many numbers, and what it may leave of the
 * error, and of what one factor for all leaves. */
#define RIVAL_FROM   1.0
#define RIVAL_LOCAL  8.0 /* roundings */
#define RIVAL_COUNT  256
#define RIVAL_SHARE  0.5
#define RIVAL_MARGIN 0.7

/* In place: out holds what is to be normalized. */
static void apply_norm(const struct ts_operation *operation, size_t total, double *out)
{
    size_t group = operation->group;
    const double *weight = operation->table, *bias = operation->table + group;
    for (size_t start = 0; start + group <= total; start += group) {
        double mean = 0, square = 0, factor;
        for (size_t i = 0; operation->centred && i < group; i++)
            mean += out[start + i];
        mean /= (double)group;
        for (size_t i = 0; i < group; i++)
            square += (out[start + i] - mean) * (out[start + i] - mean);
        factor = 1 / sqrt(square / (double)group + operation->epsilon);
        for (size_t i = 0; i < group; i++)
            out[start + i] = (out[start + i] - mean) * factor * weight[i] + bias[i];
    }
}

static void apply_rotary(const struct ts_operation *operation, const struct ts_actor *actor, const double *in,
                         double *out)
{
    size_t pairs = operation->group / 2, inner = actor->width / operation->heads;
    const double *cosine = operation->table, *sine = operation->table + actor->rows * pairs;
    memcpy(out, in, actor->rows * actor->width * sizeof *out);
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t head = 0; head < operation->heads; head++)
            for (size_t i = 0; i < pairs; i++) {
                size_t base = row * actor->width + head * inner;
                size_t x = base + (operation->interleaved ? 2 * i : i);
                size_t y = operation->interleaved ? x + 1 : x + pairs;
                double c = operation->factor * cosine[row * pairs + i], s = operation->factor * sine[row * pairs + i];
                out[x] = in[x] * c - in[y] * s;
                out[y] = in[x] * s + in[y] * c;
            }
}

static bool is_masked(double value)
{
    return value < -1e4;
}

/* Heads are the output's; inputs may have been captured flat, [tokens, heads * size]. What the reference masks is left
 * as it is: it will not be looked at. */
static void apply_scores(const struct ts_scene *scene, const struct ts_operation *operation,
                         const struct ts_actor *actor, const struct ts_actor *q, const struct ts_actor *k,
                         const double *queries, const double *keys, double *out)
{
    size_t size = q->width / actor->heads, key_heads = k->width / size, repeat = actor->heads / key_heads;
    bool scores = operation->kind == TS_OPERATION_SCORES, done = false;
    if (scene->in_f32)
        done = ts_across_scores(&(struct ts_across){.rows = queries,
                                                    .row_count = actor->rows,
                                                    .heads = actor->heads,
                                                    .part = size,
                                                    .all = keys + ts_scene_keys(scene, actor, 0) * k->width,
                                                    .keys = actor->inner,
                                                    .width = k->width,
                                                    .size = size},
                                out);
    for (size_t row = 0; row < actor->rows; row++) {
        size_t first = ts_scene_keys(scene, actor, row), position = ts_scene_position(scene, actor, row);
        for (size_t head = 0; head < actor->heads; head++)
            for (size_t key = 0; key < actor->inner; key++) {
                size_t at = row * actor->width + head * actor->inner + key;
                const double *x = queries + row * q->width + head * size;
                const double *y = keys + (first + key) * k->width + head / repeat * size;
                double sum = 0;
                if (!(scores && is_masked((double)actor->a[at])) && !(!scores && actor->a[at] == 0))
                    sum = operation->factor * (done ? out[at] : ts_dot(x, y, size));
                sum = operation->cap > 0 ? operation->cap * tanh(sum / operation->cap) : sum;
                if (scores && operation->table)
                    sum += operation->table[head * (2 * actor->sequence - 1) + actor->sequence - 1 + key - position];
                out[at] = sum;
            }
    }
}

/* In place. A sink is one more score per head that takes its share and is not kept. */
/* Probabilities below this vanish in half precision; a score may be so much below the largest one. */
#define VANISHED (-14.0)
#define NO_SCORE (-1000.0) /* masks are written as lower numbers */

/* Whether element i of the row at `start` takes part. The mask is read off the reference's zeros; but of a score far
 * below the row's largest nothing is left without any mask, and whether there was one, the candidate knows. */
static bool is_visible(const struct ts_actor *actor, const float *scores, size_t start, size_t i, double largest)
{
    if (actor->a[start + i] != 0)
        return true;
    return scores && actor->b[start + i] != 0 && (double)scores[start + i] > NO_SCORE &&
           (double)scores[start + i] < largest + VANISHED;
}

static double largest_visible(const struct ts_actor *actor, const float *scores, size_t start)
{
    double largest = -INFINITY;
    for (size_t i = 0; scores && i < actor->inner; i++)
        if (actor->a[start + i] != 0 && (double)scores[start + i] > largest)
            largest = (double)scores[start + i];
    return largest;
}

/* `scores`: those of the reference, NULL when they were not captured. */
static void apply_softmax(const struct ts_operation *operation, const struct ts_actor *actor, const float *scores,
                          double *out)
{
    for (size_t start = 0; start + actor->inner <= actor->rows * actor->width; start += actor->inner) {
        double sink = operation->table ? operation->table[start / actor->inner % actor->heads] : -INFINITY;
        double largest = sink, sum = 0, highest = largest_visible(actor, scores, start);
        for (size_t i = 0; i < actor->inner; i++)
            if (is_visible(actor, scores, start, i, highest) && out[start + i] > largest)
                largest = out[start + i];
        for (size_t i = 0; i < actor->inner; i++) {
            out[start + i] = is_visible(actor, scores, start, i, highest) ? exp(out[start + i] - largest) : 0;
            sum += out[start + i];
        }
        sum += isfinite(sink) ? exp(sink - largest) : 0;
        for (size_t i = 0; i < actor->inner; i++)
            out[start + i] = sum > 0 ? out[start + i] / sum : 0;
    }
}

static void apply_context(const struct ts_scene *scene, const struct ts_actor *actor, const struct ts_actor *p,
                          const struct ts_actor *v, const double *probabilities, const double *values, double *out)
{
    size_t keys = p->inner, inner = actor->width / p->heads, value_heads = v->width / inner;
    size_t repeat = p->heads / value_heads;
    if (scene->in_f32 &&
        ts_across_context(&(struct ts_across){.rows = probabilities,
                                              .row_count = actor->rows,
                                              .heads = p->heads,
                                              .part = keys,
                                              .all = values + ts_scene_keys(scene, actor, 0) * v->width,
                                              .keys = keys,
                                              .width = v->width,
                                              .size = inner},
                          out))
        return;
    memset(out, 0, actor->rows * actor->width * sizeof *out);
    for (size_t row = 0; row < actor->rows; row++) {
        size_t first = ts_scene_keys(scene, actor, row);
        for (size_t head = 0; head < p->heads; head++)
            for (size_t key = 0; key < keys; key++) {
                double weight = probabilities[row * p->width + head * keys + key];
                const double *from = values + (first + key) * v->width + head / repeat * inner;
                double *to = out + row * actor->width + head * inner;
                for (size_t i = 0; weight != 0 && i < inner; i++)
                    to[i] += weight * from[i];
            }
    }
}

static int descending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left > right ? -1 : left < right;
}

/* Which of a row's numbers is the i-th that was chosen: of those in falling order the i-th. */
static size_t chosen_at(const struct ts_operation *operation, size_t at, size_t i)
{
    return operation->table ? (size_t)operation->table[at] : i;
}

static void apply_topk(const struct ts_operation *operation, const struct ts_actor *actor,
                       const struct ts_actor *logits, const double *in, double *out)
{
    double *row_values = malloc(logits->width * sizeof *row_values);
    for (size_t row = 0; row < actor->rows && row_values; row++) {
        const double *from = in + row * logits->width;
        double largest = -INFINITY, sum = 0, kept = 0;
        for (size_t i = 0; i < logits->width; i++)
            largest = from[i] > largest ? from[i] : largest;
        for (size_t i = 0; i < logits->width; i++) {
            row_values[i] = operation->sigmoid ? 1 / (1 + exp(-from[i])) : exp(from[i] - largest);
            sum += row_values[i];
        }
        if (!operation->table)
            qsort(row_values, logits->width, sizeof *row_values, descending);
        for (size_t i = 0; i < actor->width; i++)
            kept += row_values[chosen_at(operation, row * actor->width + i, i)];
        for (size_t i = 0; i < actor->width; i++)
            out[row * actor->width + i] = operation->factor *
                                          row_values[chosen_at(operation, row * actor->width + i, i)] /
                                          (operation->flag      ? kept
                                           : operation->sigmoid ? 1
                                                                : sum);
    }
    free(row_values);
}

/* Element [row, i] of a modulation tensor's chunk; a single row serves all tokens. */
static double chunk_value(const struct ts_scene *scene, const struct ts_actor *m, const double *in, size_t row,
                          unsigned chunk, size_t width, size_t i)
{
    return in[ts_scene_row(scene, m, row) * m->width + chunk * width + i];
}

double ts_operation_operand(const struct ts_operation *operation, const struct ts_actor *actor,
                            const struct ts_actor *const from[3], double *const *inputs, unsigned slot, size_t i)
{
    unsigned input = operation->fused ? 0 : slot;
    return inputs[input][i / actor->width * from[input]->width + operation->places[slot] + i % actor->width];
}

bool ts_operation_has_two(const struct ts_operation *operation)
{
    return operation->fused || operation->input_count > 1;
}

static double activated(const struct ts_operation *operation, const struct ts_actor *actor,
                        const struct ts_actor *const from[3], double *const *inputs, size_t i)
{
    double x = ts_operation_operand(operation, actor, from, inputs, 0, i), y;
    if (!ts_operation_has_two(operation))
        return ts_activation_value(operation->activation, x);
    y = ts_operation_operand(operation, actor, from, inputs, 1, i);
    return operation->summed ? ts_activation_value(operation->activation, x + y)
                             : ts_activation_value(operation->activation, x) * y;
}

bool ts_operation_is_product(const struct ts_operation *operation)
{
    return operation->kind == TS_OPERATION_SCORES || operation->kind == TS_OPERATION_CONTEXT ||
           operation->kind == TS_OPERATION_ATTENTION ||
           (operation->kind == TS_OPERATION_SOFTMAX && operation->input_count > 1);
}

const struct ts_actor *ts_operation_input(struct ts_scene *scene, const struct ts_operation *operation, unsigned slot)
{
    return slot >= 1 && ts_operation_is_product(operation) ? ts_scene_all(scene, operation->inputs[slot])
                                                           : ts_scene_actor(scene, operation->inputs[slot]);
}

double *ts_as_doubles(const float *values, size_t count)
{
    double *copy = malloc((count ? count : 1) * sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        copy[i] = (double)values[i];
    return copy;
}

void ts_operation_apply(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                        double *const *inputs, double *out)
{
    size_t total = actor->rows * actor->width;
    const struct ts_actor *from[3] = {NULL, NULL, NULL};
    for (unsigned i = 0; i < operation->input_count; i++)
        from[i] = ts_operation_input(scene, operation, i);
    switch (operation->kind) {
    case TS_OPERATION_COPY:
        memcpy(out, inputs[0], total * sizeof *out);
        break;
    case TS_OPERATION_SUM:
        for (size_t i = 0; i < total; i++)
            out[i] = inputs[0][i] + inputs[1][i] + (operation->input_count > 2 ? inputs[2][i] : 0);
        break;
    case TS_OPERATION_SCALED_SUM:
        for (size_t i = 0; i < total; i++)
            out[i] = inputs[0][i] + operation->factor * inputs[1][i];
        break;
    case TS_OPERATION_NORM:
        for (size_t i = 0; i < total; i++)
            out[i] = inputs[0][i] + (operation->input_count > 1 && inputs[1] ? inputs[1][i] : 0);
        apply_norm(operation, total, out);
        break;
    case TS_OPERATION_ROTARY:
        apply_rotary(operation, actor, inputs[0], out);
        break;
    case TS_OPERATION_ACTIVATION:
        for (size_t i = 0; i < total; i++)
            out[i] = activated(operation, actor, from, inputs, i);
        break;
    case TS_OPERATION_SCORES:
        apply_scores(scene, operation, actor, from[0], from[1], inputs[0], inputs[1], out);
        break;
    case TS_OPERATION_SOFTMAX:
        if (operation->input_count > 1)
            apply_scores(scene, operation, actor, from[0], from[1], inputs[0], inputs[1], out);
        else
            memcpy(out, inputs[0], total * sizeof *out);
        apply_softmax(operation, actor, operation->input_count > 1 ? NULL : from[0]->a, out);
        break;
    case TS_OPERATION_CONTEXT:
        apply_context(scene, actor, from[0], from[1], inputs[0], inputs[1], out);
        break;
    case TS_OPERATION_ATTENTION:
        ts_apply_attention(scene, operation, actor, from, inputs, out);
        break;
    case TS_OPERATION_TOPK:
        apply_topk(operation, actor, from[0], inputs[0], out);
        break;
    case TS_OPERATION_MODULATE:
        for (size_t i = 0; i < total; i++) {
            size_t row = i / actor->width, column = i % actor->width;
            double scale = chunk_value(scene, from[1], inputs[1], row, operation->chunk, actor->width, column);
            double shift = chunk_value(scene, from[1], inputs[1], row, operation->other_chunk, actor->width, column);
            out[i] = inputs[0][i] * (scale + (operation->flag ? 1 : 0)) + shift;
        }
        break;
    case TS_OPERATION_GATED_SUM:
        for (size_t i = 0; i < total; i++)
            out[i] = inputs[0][i] + operation->factor * inputs[1][i] *
                                        chunk_value(scene, from[2], inputs[2], i / actor->width, operation->chunk,
                                                    actor->width, i % actor->width);
        break;
    case TS_OPERATION_SCALE:
        for (size_t i = 0; i < total; i++)
            out[i] = operation->factor * (operation->flag ? tanh(inputs[0][i] / operation->factor) : inputs[0][i]);
        break;
    default:
        memset(out, 0, total * sizeof *out);
        break;
    }
    for (size_t i = 0; i < total; i++)
        if (is_masked((double)actor->a[i]))
            out[i] = -INFINITY;
}

void ts_operation_release(struct ts_operation *operation)
{
    free(operation->table);
    *operation = (struct ts_operation){0};
}

double ts_noise_at(uint64_t seed, uint64_t index)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
    double sum = 0;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 29;
    for (int i = 0; i < 4; i++)
        sum += (double)(x >> (16 * i) & 0xffff) / 65536.0 - 0.5;
    return sum * 1.7320508; /* four uniform numbers have a variance of one third */
}

/* Scratch of a replay: inputs of the candidate as doubles, the same with one more rounding each, both results. */
struct scratch {
    double *plain[3], *shaken[3], *expected, *moved;
};

static void scratch_release(struct scratch *scratch)
{
    for (int i = 0; i < 3; i++) {
        free(scratch->plain[i]);
        free(scratch->shaken[i]);
    }
    free(scratch->expected);
    free(scratch->moved);
}

/* What one rounding of an input is. A coarse input of a fine output was exact where it is as coarse in the reference
 * (weights of sixteen bits), or where the operation is computed in one go, as sums and probabilities are; elsewhere
 * something may have been rounded as the input was, halfway. The precision of a matrix product does not show in its
 * operands: tensor cores round f32 to TF32 inside, so a product's inputs are granted that much. */
static double input_rounding(const struct ts_operation *operation, const struct ts_actor *actor,
                             const struct ts_actor *input)
{
    enum ts_operation_kind kind = operation->kind;
    int bits = input->bits_b;
    if ((kind == TS_OPERATION_COPY || kind == TS_OPERATION_SUM || kind == TS_OPERATION_SOFTMAX ||
         kind == TS_OPERATION_CONTEXT || input->bits_a <= bits) &&
        actor->bits_b > bits)
        bits = actor->bits_b;
    if (ts_operation_is_product(operation))
        bits = bits > 10 ? 10 : bits;
    return ts_rounding(bits);
}

static bool scratch_fill(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                         struct scratch *scratch)
{
    size_t total = actor->rows * actor->width;
    scratch->expected = malloc(total * sizeof(double));
    scratch->moved = malloc(total * sizeof(double));
    if (!scratch->expected || !scratch->moved)
        return false;
    for (unsigned k = 0; k < operation->input_count; k++) {
        const struct ts_actor *input = ts_operation_input(scene, operation, k);
        size_t count = input->rows * input->width;
        double rounding = input_rounding(operation, actor, input);
        scratch->plain[k] = malloc(count * sizeof(double));
        scratch->shaken[k] = malloc(count * sizeof(double));
        if (!scratch->plain[k] || !scratch->shaken[k])
            return false;
        for (size_t i = 0; i < count; i++) {
            scratch->plain[k][i] = (double)input->b[i];
            scratch->shaken[k][i] = (double)input->b[i] * (1 + rounding * ts_noise_at(input->pair + 1, i));
        }
    }
    return true;
}

/* Squares of what differs and of what rounding explains, over one part, and how many numbers it has. */
struct balance {
    double error, moved, size, count;
};

static double ratio_of(const struct balance *balance, double rounding, double residual)
{
    double explained = sqrt(balance->moved) + (rounding + 2 * residual) * sqrt(balance->size);
    double error = sqrt(balance->error);
    return error == 0 ? 0 : explained > 0 ? error / explained : (double)INFINITY;
}

static void add_element(struct balance *balance, double found, double expected, double moved)
{
    if (isinf(expected) && expected < 0) { /* masked in the reference: anything that low will do */
        if (!is_masked(found))
            balance->error += found * found + 1;
        return;
    }
    if (!isfinite(found) || !isfinite(expected)) {
        if (!(isnan(found) && isnan(expected)) && found != expected)
            balance->error = (double)INFINITY;
        return;
    }
    balance->error += (found - expected) * (found - expected);
    balance->moved += isfinite(moved) ? (moved - expected) * (moved - expected) : 0;
    balance->size += expected * expected;
    balance->count++;
}

static double correlation(double dot, double one, double other)
{
    return one > 0 && other > 0 && isfinite(one) ? dot / sqrt(one * other) : 0;
}

/* Fills in the worst channel and the slope. */
static void weigh_channels(const struct ts_operation *operation, const struct ts_actor *actor,
                           const struct scratch *scratch, const struct balance *all, double rounding,
                           struct ts_replay *replay)
{
    double typical = all->count > 0 ? all->size / all->count : 0, moved = all->count > 0 ? all->moved / all->count : 0;
    double all_dot = 0, even_dot = 0, even_error = 0, channels = 0;
    for (size_t channel = 0; channel < actor->width; channel++) {
        struct balance part = {0};
        double ratio, dot = 0;
        for (size_t i = channel; i < actor->rows * actor->width; i += actor->width) {
            double found = (double)actor->b[i], expected = scratch->expected[i];
            add_element(&part, found, expected, scratch->moved[i]);
            if (isfinite(expected) && isfinite(found))
                dot += (found - expected) * expected;
        }
        all_dot += dot;
        if (part.size > 0) {
            even_dot += dot / part.size;
            even_error += part.error / part.size;
            channels++;
        }
        if (actor->rows < 4)
            continue;
        /* a channel that is small, or happened to move little, is judged by the others */
        part.size = fmax(part.size, 1e-2 * typical * part.count);
        part.moved = fmax(part.moved, 0.25 * moved * part.count);
        ratio = ratio_of(&part, rounding, operation->residual);
        if (ratio > replay->worst_channel_part) {
            replay->worst_channel_part = ratio;
            replay->worst_channel = channel;
        }
    }
    /* with every channel counted alike, so that one far larger than the others does not decide it by how its few
     * numbers were rounded */
    all_dot = correlation(all_dot, all->error, all->size);
    even_dot = correlation(even_dot, even_error, channels);
    replay->slope = fabs(even_dot) < fabs(all_dot) ? even_dot : all_dot;
}

/* Fills in ratio, local and the worst part. */
static void weigh(const struct ts_operation *operation, const struct ts_actor *actor, const struct scratch *scratch,
                  double rounding, struct ts_replay *replay)
{
    struct balance all = {0};
    double typical;
    *replay = (struct ts_replay){0};
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        add_element(&all, (double)actor->b[i], scratch->expected[i], scratch->moved[i]);
    replay->ratio = ratio_of(&all, rounding, operation->residual);
    replay->local = all.size > 0 ? sqrt(all.error / all.size) : all.error > 0 ? (double)INFINITY : 0;
    weigh_channels(operation, actor, scratch, &all, rounding, replay);
    typical = sqrt(all.size / (double)(actor->rows * actor->heads));
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t head = 0; head < actor->heads; head++) {
            struct balance part = {0};
            double ratio;
            size_t start = row * actor->width + head * actor->inner;
            for (size_t i = start; i < start + actor->inner; i++)
                add_element(&part, (double)actor->b[i], scratch->expected[i], scratch->moved[i]);
            /* a part far below the others' size is judged by theirs: its own rounding says little */
            if (part.size < typical * typical * 1e-4)
                part.size = typical * typical * 1e-4;
            /* nor may a few numbers that happened to move little be judged by that alone */
            part.moved = fmax(part.moved, (part.count < 8 ? 1 : 0.25) * all.moved / fmax(all.count, 1) * part.count);
            ratio = ratio_of(&part, rounding, operation->residual);
            if (ratio > replay->worst_part) {
                replay->worst_part = ratio;
                replay->worst_row = row;
                replay->worst_head = head;
            }
        }
}

/* Captures without an axis of heads do not show how many numbers share a scale: parts of any size are tried for what a
 * cache gives back, keys that were turned and values. */
static double grid_error(const struct ts_operation *operation, const struct ts_actor *actor)
{
    double error = ts_grid_error(actor->b, actor->rows * actor->heads, actor->inner);
    bool flat = actor->heads == 1 && (operation->kind == TS_OPERATION_COPY || operation->kind == TS_OPERATION_ROTARY);
    for (size_t size = actor->width / 2; size >= FEWEST_OF_SCALE && error == 0 && flat; size--)
        if (actor->width % size == 0)
            error = ts_grid_error(actor->b, actor->rows * (actor->width / size), size);
    return error;
}

/* What the same operation gives with something else that is usual in its place; false behind the last. */
static bool apply_rival(struct ts_scene *scene, const struct ts_operation *operation, size_t index,
                        const struct ts_actor *actor, const struct scratch *scratch, double *out)
{
    static const double epsilons[] = {0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2};
    static const double caps[] = {10, 15, 20, 25, 30, 40, 50, 100};
    static const double hidden_caps[] = {0, 15, 20, 30, 50, 100}; /* no cap, too, which may be what is usual */
    struct ts_operation rival = *operation;
    if (operation->kind == TS_OPERATION_ATTENTION && index == sizeof hidden_caps / sizeof *hidden_caps) {
        const struct ts_actor *from[3];
        for (unsigned i = 0; i < 3; i++)
            from[i] = ts_operation_input(scene, operation, i);
        return ts_apply_attention_across(scene, operation, actor, from, scratch->plain, out);
    }
    if (operation->kind == TS_OPERATION_SCORES && !(operation->cap > 0) && index < sizeof caps / sizeof *caps) {
        for (size_t i = 0; i < actor->rows * actor->width; i++)
            out[i] = isinf(scratch->expected[i]) ? scratch->expected[i]
                                                 : caps[index] * tanh(scratch->expected[i] / caps[index]);
        return true;
    }
    if ((operation->kind == TS_OPERATION_ATTENTION || operation->cap > 0 ||
         (operation->kind == TS_OPERATION_SOFTMAX && operation->input_count > 1)) &&
        index < sizeof hidden_caps / sizeof *hidden_caps)
        rival.cap = hidden_caps[index];
    else if (operation->kind == TS_OPERATION_ACTIVATION && index < TS_ACTIVATION_COUNT)
        rival.activation = (enum ts_activation)index;
    else if (operation->kind == TS_OPERATION_NORM && index < sizeof epsilons / sizeof *epsilons)
        rival.epsilon = epsilons[index];
    else
        return false;
    ts_operation_apply(scene, &rival, actor, scratch->plain, out);
    return true;
}

/* Rounding has no function: where another one than the reference's leaves far less of the error, what it leaves is what
 * rounding makes, and the ratio is taken to that; and so it is with a soft cap on scores. One factor for all must leave
 * more, which cut off numbers make. */
static void weigh_rivals(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                         struct scratch *scratch, double rounding, struct ts_replay *replay)
{
    size_t total = actor->rows * actor->width;
    double scaled = replay->local * sqrt(1 - replay->slope * replay->slope), best = replay->local;
    /* attention is granted more than it may need */
    if (!(replay->ratio > RIVAL_FROM ||
          (ts_operation_is_product(operation) && replay->local > RIVAL_LOCAL * rounding)) ||
        total < RIVAL_COUNT)
        return;
    for (size_t index = 0; apply_rival(scene, operation, index, actor, scratch, scratch->moved); index++) {
        struct balance all = {0};
        for (size_t i = 0; i < total; i++)
            add_element(&all, (double)actor->b[i], scratch->moved[i], scratch->moved[i]);
        best = all.size > 0 ? fmin(best, sqrt(all.error / all.size)) : best;
    }
    if (best > 0 && best < RIVAL_SHARE * replay->local && best < RIVAL_MARGIN * scaled) {
        replay->ratio = fmax(replay->ratio, replay->local / best);
        replay->rival = replay->local / best;
    }
}

enum ts_status ts_operation_replay(struct ts_scene *scene, const struct ts_operation *operation,
                                   const struct ts_actor *actor, struct ts_replay *replay, struct ts_error *error)
{
    struct scratch scratch = {0};
    double rounding = ts_rounding(actor->bits_b < actor->bits_a ? actor->bits_b : actor->bits_a);
    *replay = (struct ts_replay){0};
    if (!scratch_fill(scene, operation, actor, &scratch)) {
        scratch_release(&scratch);
        return ts_fail_memory(error);
    }
    ts_operation_apply(scene, operation, actor, scratch.plain, scratch.expected);
    ts_operation_apply(scene, operation, actor, scratch.shaken, scratch.moved);
    weigh(operation, actor, &scratch, rounding, replay);
    if (replay->ratio > GRID_FROM || replay->worst_part > GRID_FROM || replay->worst_channel_part > GRID_FROM) {
        double grid = grid_error(operation, actor) / GRID_SHARE;
        if (grid > rounding)
            weigh(operation, actor, &scratch, grid, replay);
    }
    weigh_rivals(scene, operation, actor, &scratch, rounding, replay);
    scratch_release(&scratch);
    return TS_OK;
}

static void operand_text(const struct ts_operation *operation, const char *name, unsigned slot, struct ts_buffer *out)
{
    ts_buffer_string(out, name);
    if (operation->part[slot])
        ts_buffer_printf(out, "[%zu:%zu]", operation->places[slot], operation->places[slot] + operation->size);
}

void ts_operation_text(const struct ts_scene *scene, const struct ts_operation *operation, struct ts_buffer *out)
{
    const char *names[3] = {"", "", ""};
    for (unsigned i = 0; i < operation->input_count; i++)
        names[i] = scene->pairs[operation->inputs[i]].name;
    switch (operation->kind) {
    case TS_OPERATION_COPY:
        ts_buffer_printf(out, "%s", names[0]);
        break;
    case TS_OPERATION_SUM:
        ts_buffer_printf(out, "%s + %s", names[0], names[1]);
        if (operation->input_count > 2)
            ts_buffer_printf(out, " + %s", names[2]);
        break;
    case TS_OPERATION_SCALED_SUM:
        ts_buffer_printf(out, "%s + %.6g * %s", names[0], operation->factor, names[1]);
        break;
    case TS_OPERATION_NORM:
        ts_buffer_printf(out, "%s(%s%s%s)", operation->centred ? "layer norm" : "RMS norm", names[0],
                         operation->input_count > 1 ? " + " : "", names[1]);
        break;
    case TS_OPERATION_ROTARY:
        ts_buffer_printf(out, "rotary(%s), %s pairs", names[0], operation->interleaved ? "interleaved" : "half-split");
        break;
    case TS_OPERATION_ACTIVATION:
        ts_buffer_printf(out, "%s(", ts_activation_name(operation->activation));
        operand_text(operation, names[0], 0, out);
        ts_buffer_string(out, !ts_operation_has_two(operation) ? ")" : operation->summed ? " + " : ") * ");
        if (ts_operation_has_two(operation))
            operand_text(operation, names[operation->fused ? 0 : 1], 1, out);
        if (operation->summed)
            ts_buffer_string(out, ")");
        break;
    case TS_OPERATION_SCORES:
        ts_buffer_printf(out, "%.6g * %s . %s%s", operation->factor, names[0], names[1],
                         operation->table ? " + a bias by distance" : "");
        if (operation->cap > 0)
            ts_buffer_printf(out, ", softcap %.6g", operation->cap);
        break;
    case TS_OPERATION_SOFTMAX:
        if (operation->input_count > 1)
            ts_buffer_printf(out, "softmax(%.6g * %s . %s)", operation->factor, names[0], names[1]);
        else
            ts_buffer_printf(out, "softmax(%s)%s", names[0], operation->table ? " with sinks" : "");
        if (operation->input_count > 1 && operation->cap > 0)
            ts_buffer_printf(out, ", softcap %.6g", operation->cap);
        break;
    case TS_OPERATION_CONTEXT:
        ts_buffer_printf(out, "%s x %s", names[0], names[1]);
        break;
    case TS_OPERATION_ATTENTION:
        ts_buffer_printf(out, "%s attention(%s, %s, %s), factor %.6g", operation->flag ? "causal" : "full", names[0],
                         names[1], names[2], operation->factor);
        if (operation->group)
            ts_buffer_printf(out, ", window %zu", operation->group);
        if (operation->cap > 0)
            ts_buffer_printf(out, ", softcap %.6g", operation->cap);
        break;
    case TS_OPERATION_TOPK:
        ts_buffer_printf(out, "largest %s of %s%s", operation->sigmoid ? "sigmoids" : "softmax probabilities", names[0],
                         operation->flag ? ", renormalized" : "");
        break;
    case TS_OPERATION_MODULATE:
        ts_buffer_printf(out, "%s * (%sscale) + shift of %s", names[0], operation->flag ? "1 + " : "", names[1]);
        break;
    case TS_OPERATION_GATED_SUM:
        ts_buffer_printf(out, "%s + gate of %s * %s", names[0], names[2], names[1]);
        break;
    case TS_OPERATION_SCALE:
        ts_buffer_printf(out, operation->flag ? "softcap %.6g of %s" : "%.6g * %s", operation->factor, names[0]);
        break;
    default:
        break;
    }
}
