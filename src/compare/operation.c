/* Owns applying operations, and their words; learning is in operation_learn.c, replaying in operation_replay.c. */
#include "compare/operation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "compare/operation_across.h"
#include "compare/operation_search.h"
#include "tensor/mask.h"

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
                if (!(scores && ts_is_masked_score((double)actor->a[at])) && !(!scores && actor->a[at] == 0))
                    sum = operation->factor * (done ? out[at] : ts_dot(x, y, size));
                sum = operation->cap > 0 ? operation->cap * tanh(sum / operation->cap) : sum;
                sum = operation->shaken > 0 ? sum * (1 + operation->shaken * ts_noise_at(actor->pair + 1, at)) : sum;
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

/* The reference's scores were captured with the mask of this row. */
static bool show_mask(const struct ts_actor *actor, const float *scores, size_t start)
{
    for (size_t i = 0; scores && i < actor->inner; i++)
        if (actor->a[start + i] == 0 && (double)scores[start + i] < NO_SCORE)
            return true;
    return false;
}

/* Whether element i of the row at `start` takes part: `own`, its score, says so where masks were captured with the
 * scores, as sparse attention has them, which may choose other keys. Else the mask is read off the reference's zeros;
 * but of a score far below the row's largest nothing is left without any mask, and whether there was one, the candidate
 * knows. */
static bool is_visible(const struct ts_actor *actor, const float *scores, size_t start, size_t i, double largest,
                       const double *own)
{
    if (own)
        return own[start + i] > NO_SCORE;
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
        const double *own = show_mask(actor, scores, start) ? out : NULL;
        for (size_t i = 0; i < actor->inner; i++)
            if (is_visible(actor, scores, start, i, highest, own) && out[start + i] > largest)
                largest = out[start + i];
        for (size_t i = 0; i < actor->inner; i++) {
            out[start + i] = is_visible(actor, scores, start, i, highest, own) ? exp(out[start + i] - largest) : 0;
            sum += out[start + i];
        }
        sum += isfinite(sink) ? exp(sink - largest) : 0;
        for (size_t i = 0; i < actor->inner; i++)
            out[start + i] = sum > 0 ? out[start + i] / sum : 0;
    }
}

/* Of every `stride` numbers those from `place` on, `inner` of them; NULL without memory. */
static double *part_of(const double *values, size_t rows, size_t width, size_t stride, size_t place, size_t inner)
{
    const size_t parts = width / stride;
    double *out = malloc((rows * parts * inner + 1) * sizeof *out);
    for (size_t i = 0; i < rows * parts && out; i++)
        memcpy(out + i * inner, values + i / parts * width + i % parts * stride + place, inner * sizeof *out);
    return out;
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
            qsort(row_values, logits->width, sizeof *row_values, ts_by_falling_value);
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
    const size_t step = operation->alternate && operation->part[slot] ? 2 : 1;
    return inputs[input][i / actor->width * from[input]->width + operation->places[slot] + step * (i % actor->width)];
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
    if (operation->limit > 0) {
        x = fmin(x, operation->limit);
        y = fmax(-operation->limit, fmin(y, operation->limit));
    }
    y += operation->plus;
    return operation->summed ? ts_activation_value(operation->activation, x + y)
                             : ts_activation_value(operation->activation, x) * y;
}

bool ts_operation_is_by_place(enum ts_operation_kind kind)
{
    return kind == TS_OPERATION_COPY || kind == TS_OPERATION_SUM || kind == TS_OPERATION_SCALED_SUM ||
           kind == TS_OPERATION_GATED_SUM || kind == TS_OPERATION_MODULATE || kind == TS_OPERATION_NORM;
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

/* The last input is a part of what was captured: as if it had been captured by itself. */
static void apply_to_part(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                          double *const *inputs, double *out)
{
    const unsigned last = operation->input_count - 1;
    const struct ts_actor *from = ts_operation_input(scene, operation, last);
    const size_t parts = from->width / operation->stride;
    struct ts_operation whole = *operation;
    struct ts_actor cut = *from;
    double *given[3] = {inputs[0], inputs[1], inputs[2]};
    size_t inner = actor->width / parts;
    if (operation->kind == TS_OPERATION_CONTEXT) {
        const struct ts_actor *p = ts_operation_input(scene, operation, 0);
        inner = actor->width / p->heads;
    }
    whole.stride = whole.place = 0;
    cut.width = parts * inner;
    given[last] = part_of(inputs[last], from->rows, from->width, operation->stride, operation->place, inner);
    if (!given[last])
        memset(out, 0, actor->rows * actor->width * sizeof *out);
    else if (operation->kind == TS_OPERATION_CONTEXT)
        apply_context(scene, actor, ts_operation_input(scene, operation, 0), &cut, given[0], given[1], out);
    else
        ts_operation_apply(scene, &whole, actor, given, out);
    free(given[last]);
}

void ts_operation_apply(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                        double *const *inputs, double *out)
{
    const bool scores = ts_may_be_masked(actor);
    size_t total = actor->rows * actor->width;
    const struct ts_actor *from[3] = {NULL, NULL, NULL};
    if (operation->stride) {
        apply_to_part(scene, operation, actor, inputs, out);
        return;
    }
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
            double shift =
                operation->other_chunk == TS_NO_CHUNK
                    ? 0
                    : chunk_value(scene, from[1], inputs[1], row, operation->other_chunk, actor->width, column);
            out[i] = inputs[0][i] * (scale + (operation->flag ? 1 : 0)) + shift;
        }
        break;
    case TS_OPERATION_GATED_SUM:
        for (size_t i = 0; i < total; i++) {
            double gate = chunk_value(scene, from[2], inputs[2], i / actor->width, operation->chunk, actor->width,
                                      i % actor->width);
            out[i] = inputs[0][i] + operation->factor * (operation->flag ? tanh(gate) : gate) * inputs[1][i];
        }
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
        if (isinf(actor->a[i]) ? actor->a[i] < 0 : scores && ts_is_masked_score((double)actor->a[i]))
            out[i] = -INFINITY;
}

void ts_operation_release(struct ts_operation *operation)
{
    free(operation->table);
    *operation = (struct ts_operation){0};
}

static void operand_text(const struct ts_operation *operation, const char *name, unsigned slot, struct ts_buffer *out)
{
    ts_buffer_string(out, name);
    if (operation->part[slot] && operation->alternate)
        ts_buffer_printf(out, "[%zu::2]", operation->places[slot]);
    else if (operation->part[slot])
        ts_buffer_printf(out, "[%zu:%zu]", operation->places[slot], operation->places[slot] + operation->size);
}

void ts_operation_text(const struct ts_scene *scene, const struct ts_operation *operation, struct ts_buffer *out)
{
    const char *names[3] = {"", "", ""};
    for (unsigned i = 0; i < operation->input_count; i++)
        names[i] = scene->pairs[operation->inputs[i]].name;
    if (operation->stride)
        ts_buffer_printf(out, "of each %zu numbers those from %zu on: ", operation->stride, operation->place);
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
        if (operation->plus)
            ts_buffer_string(out, "(");
        if (ts_operation_has_two(operation))
            operand_text(operation, names[operation->fused ? 0 : 1], 1, out);
        if (operation->summed || operation->plus)
            ts_buffer_string(out, operation->plus ? " + 1)" : ")");
        if (operation->limit > 0)
            ts_buffer_printf(out, ", its inputs clipped at %.4g", operation->limit);
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
        if (operation->other_chunk == TS_NO_CHUNK)
            ts_buffer_printf(out, operation->flag ? "%s * (1 + scale of %s)" : "%s * scale of %s", names[0], names[1]);
        else
            ts_buffer_printf(out, "%s * (%sscale) + shift of %s", names[0], operation->flag ? "1 + " : "", names[1]);
        break;
    case TS_OPERATION_GATED_SUM:
        ts_buffer_printf(out, operation->flag ? "%s + tanh(gate of %s) * %s" : "%s + gate of %s * %s", names[0],
                         names[2], names[1]);
        break;
    case TS_OPERATION_SCALE:
        ts_buffer_printf(out, operation->flag ? "softcap %.6g of %s" : "%.6g * %s", operation->factor, names[0]);
        break;
    default:
        break;
    }
}
