/* Owns the elementary operations of a forward pass, each with the roundings of the run's numerics. */
#include <math.h>
#include <string.h>

#include "zoo.h"

float zoo_dot(enum zoo_sum sum, const float *a, const float *b, int count)
{
    float lane[8] = {0}, total = 0;
    int i = 0;
    switch (sum) {
    case ZOO_SUM_FORWARD:
        for (; i < count; i++)
            total += a[i] * b[i];
        return total;
    case ZOO_SUM_BACKWARD:
        for (i = count - 1; i >= 0; i--)
            total += a[i] * b[i];
        return total;
    case ZOO_SUM_PAIRS: /* the halves' sums: another order than the lanes' */
        if (count > 16)
            return zoo_dot(ZOO_SUM_LANES, a, b, count / 2) +
                   zoo_dot(ZOO_SUM_LANES, a + count / 2, b + count / 2, count - count / 2);
        break;
    default:
        break;
    }
    for (; i + 8 <= count; i += 8)
        for (int k = 0; k < 8; k++)
            lane[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        lane[0] += a[i] * b[i];
    for (int k = 0; k < 8; k++)
        total += lane[k];
    return total;
}

void zoo_linear(const struct zoo_run *run, const struct zoo_matrix *matrix, const float *in, int rows, float *out)
{
    const struct zoo_numerics *n = run->numerics;
    struct zoo_arena scratch = {0};
    const float *weight = matrix->weight;
    float *line = zoo_floats(&scratch, matrix->in);
    if (n->products != n->format) {
        float *rounded = zoo_floats(&scratch, matrix->out * matrix->in);
        for (int i = 0; i < matrix->out * matrix->in; i++)
            rounded[i] = zoo_round(n->products, weight[i]);
        weight = rounded;
    }
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < matrix->in; i++)
            line[i] = zoo_round(n->products, in[row * matrix->in + i]);
        zoo_quantize_row(n->activation, line, matrix->in);
        for (int i = 0; i < matrix->out; i++) {
            float sum = zoo_dot(n->sum, weight + i * matrix->in, line, matrix->in);
            if (matrix->bias)
                sum = (n->fused ? sum : zoo_round(n->format, sum)) + matrix->bias[i];
            out[row * matrix->out + i] = zoo_round(n->format, sum);
        }
    }
    zoo_arena_release(&scratch);
}

/* One over the root of the variance (or mean square), and the mean that goes off (0 where none does). */
static float scale_of(const struct zoo_numerics *n, const struct zoo_norm *norm, const float *x, float *mean)
{
    float sum = 0, square = 0;
    int size = norm->size;
    for (int i = 0; norm->centred && i < size; i++)
        sum += x[n->sum == ZOO_SUM_BACKWARD ? size - 1 - i : i];
    *mean = sum / (float)size;
    for (int i = 0; i < size; i++) {
        float d = x[n->sum == ZOO_SUM_BACKWARD ? size - 1 - i : i] - (n->one_pass ? 0 : *mean);
        square += d * d;
    }
    square = square / (float)size - (n->one_pass ? *mean * *mean : 0);
    return 1 / sqrtf(square + (float)norm->epsilon);
}

void zoo_norm(const struct zoo_run *run, const struct zoo_norm *norm, const float *in, int groups, float *out)
{
    const struct zoo_numerics *n = run->numerics;
    bool wide = n->wide_norms || n->fused;
    for (int g = 0; g < groups; g++) {
        const float *x = in + g * norm->size;
        float *y = out + g * norm->size, mean, factor = scale_of(n, norm, x, &mean);
        for (int i = 0; i < norm->size; i++) {
            float weight = norm->weight ? norm->weight[i] + (norm->plus_one ? 1.0f : 0.0f) : 1.0f;
            float value = (x[i] - mean) * factor;
            if (!wide && !norm->centred) /* frameworks round once before the weight; layer norms are one kernel */
                value = zoo_round(n->format, value);
            y[i] = zoo_round(n->format, value * weight + (norm->bias ? norm->bias[i] : 0.0f));
        }
    }
}

void zoo_rotate(const struct zoo_run *run, const struct zoo_rope *rope, const float *in, int rows, int heads, int size,
                float *out)
{
    const struct zoo_numerics *n = run->numerics;
    int half = rope->size / 2;
    memcpy(out, in, (size_t)(rows * heads * size) * sizeof *out);
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < half; i++) {
            double position = (row + rope->offset + (row == rows - 1 ? rope->late : 0)) * rope->sign / rope->factor;
            double angle = rope->times * position * pow(rope->theta, -2.0 * i / rope->size);
            float c = (float)cos(angle), s = (float)sin(angle);
            if (!n->fused) {
                c = zoo_round(n->format, c);
                s = zoo_round(n->format, s);
            }
            for (int head = 0; head < heads; head++) {
                int base = (row * heads + head) * size;
                int a = base + (rope->interleaved ? 2 * i : i), b = rope->interleaved ? a + 1 : a + half;
                float ac = in[a] * c, as = in[a] * s, bc = in[b] * c, bs = in[b] * s;
                if (!n->fused) {
                    ac = zoo_round(n->format, ac);
                    as = zoo_round(n->format, as);
                    bc = zoo_round(n->format, bc);
                    bs = zoo_round(n->format, bs);
                }
                out[a] = zoo_round(n->format, ac - bs);
                out[b] = zoo_round(n->format, bc + as);
            }
        }
}

float zoo_activate(enum zoo_activation activation, float x)
{
    switch (activation) {
    case ZOO_SILU:
        return x / (1 + expf(-x));
    case ZOO_GELU:
        return 0.5f * x * (1 + erff(x * (float)M_SQRT1_2));
    case ZOO_GELU_TANH:
        return 0.5f * x * (1 + tanhf((float)sqrt(2 / M_PI) * (x + 0.044715f * x * x * x)));
    case ZOO_QUICK_GELU:
        return x / (1 + expf(-1.702f * x));
    case ZOO_RELU:
        return x > 0 ? x : 0;
    default:
        return x;
    }
}

static bool attends(const struct zoo_layer *layer, int query, int key)
{
    int last = query + layer->mask_shift;
    return (!layer->causal || key <= (last < 0 ? 0 : last)) && (!layer->window || key > query - layer->window);
}

/* softmax over the keys (or, wrongly, over the queries) of scores [tokens, heads, tokens], in place. */
static void softmax(const struct zoo_run *run, const struct zoo_layer *layer, float *scores)
{
    const struct zoo_config *c = run->model->config;
    int t = c->tokens, outer = c->heads * t;
    int step = layer->softmax_over_queries ? outer : 1;
    for (int one = 0; one < t; one++)
        for (int head = 0; head < c->heads; head++) {
            float *line = layer->softmax_over_queries ? scores + head * t + one : scores + one * outer + head * t;
            float largest = -INFINITY, sum = 0;
            for (int i = 0; i < t; i++) {
                bool seen = layer->softmax_over_queries ? attends(layer, i, one) : attends(layer, one, i);
                line[i * step] = seen ? line[i * step] / (float)layer->temperature : -INFINITY;
                largest = line[i * step] > largest ? line[i * step] : largest;
            }
            for (int i = 0; i < t; i++) {
                line[i * step] = isinf(line[i * step]) ? 0 : expf(line[i * step] - largest);
                sum += line[i * step];
            }
            for (int i = 0; i < t; i++)
                line[i * step] = zoo_round(run->numerics->format, sum > 0 ? line[i * step] / sum : 0);
        }
}

/* Which key-value head serves a query head. */
static int kv_head(const struct zoo_config *c, const struct zoo_layer *layer, int head)
{
    int found = layer->kv_tiled ? head % c->kv_heads : head / (c->heads / c->kv_heads);
    return found == layer->kv_copied ? (found + 1) % c->kv_heads : found;
}

/* Blocks of eight keys with a running maximum; the weights go into the product in the run's format, unnormalized. */
static void online_context(const struct zoo_run *run, const struct zoo_layer *layer, const float *scores,
                           const float *v, float *context)
{
    const struct zoo_config *c = run->model->config;
    int t = c->tokens, d = c->head_size;
    for (int row = 0; row < t; row++)
        for (int head = 0; head < c->heads; head++) {
            float *out = context + (row * c->heads + head) * d, largest = -INFINITY, sum = 0;
            memset(out, 0, (size_t)d * sizeof *out);
            for (int start = 0; start < t; start += 8) {
                float before = largest, shrink;
                int end = start + 8 < t ? start + 8 : t;
                const float *line = scores + (row * c->heads + head) * t;
                for (int key = start; key < end; key++)
                    if (attends(layer, row, key) && line[key] / (float)layer->temperature > largest)
                        largest = line[key] / (float)layer->temperature;
                if (isinf(largest))
                    continue;
                shrink = isinf(before) ? 0 : expf(before - largest);
                sum *= shrink;
                for (int i = 0; i < d; i++)
                    out[i] *= shrink;
                for (int key = start; key < end; key++) {
                    float p = attends(layer, row, key) ? expf(line[key] / (float)layer->temperature - largest) : 0;
                    const float *from = v + (key * c->kv_heads + kv_head(c, layer, head)) * d;
                    sum += p;
                    for (int i = 0; i < d && p != 0; i++)
                        out[i] += zoo_round(run->numerics->products, p) * from[i];
                }
            }
            for (int i = 0; i < d; i++)
                out[i] = zoo_round(run->numerics->format, out[i] / sum);
        }
}

static void plain_context(const struct zoo_run *run, const struct zoo_layer *layer, const float *probabilities,
                          const float *v, float *context)
{
    const struct zoo_config *c = run->model->config;
    int t = c->tokens, d = c->head_size;
    for (int row = 0; row < t; row++)
        for (int head = 0; head < c->heads; head++) {
            float *out = context + (row * c->heads + head) * d;
            memset(out, 0, (size_t)d * sizeof *out);
            for (int k = 0; k < t; k++) {
                int key = run->numerics->sum == ZOO_SUM_BACKWARD ? t - 1 - k : k;
                const float *from = v + (key * c->kv_heads + kv_head(c, layer, head)) * d;
                float p = zoo_round(run->numerics->products, probabilities[(row * c->heads + head) * t + key]);
                for (int i = 0; i < d; i++)
                    out[i] += p * from[i];
            }
            for (int i = 0; i < d; i++)
                out[i] = zoo_round(run->numerics->format, out[i]);
        }
}

/* What was captured before the mask goes in, or after it. */
static void emit_scores(struct zoo_run *run, int index, float *scores)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    enum zoo_format format = run->numerics->format;
    float least = format == ZOO_F16 ? -65504.0f : format == ZOO_BF16 ? -0x1.fep127f : -0x1.fffffep127f;
    float low = c->masked == ZOO_SCORES_INFINITE ? -INFINITY : least;
    int t = c->tokens;
    for (int row = 0; row < t && c->masked != ZOO_SCORES_UNMASKED; row++)
        for (int head = 0; head < c->heads; head++)
            for (int key = 0; key < t; key++)
                if (!attends(layer, row, key))
                    scores[(row * c->heads + head) * t + key] = low;
    zoo_emit(run, ZOO_SCORES, index, scores, t, c->heads, t);
}

/* What goes into a product. */
static float *rounded_copy(struct zoo_run *run, const float *values, int count)
{
    float *copy = zoo_floats(&run->arena, count);
    for (int i = 0; i < count; i++)
        copy[i] = zoo_round(run->numerics->products, values[i]);
    return copy;
}

void zoo_attention(struct zoo_run *run, int index, const float *q, const float *k, const float *v, float *context)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_numerics *n = run->numerics;
    const struct zoo_layer *layer = &run->model->layer[index];
    int t = c->tokens, d = c->head_size;
    float *scores = zoo_floats(&run->arena, t * c->heads * t);
    float *queries = rounded_copy(run, q, t * c->heads * d), *keys = rounded_copy(run, k, t * c->kv_heads * d);
    float *values = rounded_copy(run, v, t * c->kv_heads * d);
    for (int row = 0; row < t; row++)
        for (int head = 0; head < c->heads; head++)
            for (int key = 0; key < t; key++) {
                float sum = zoo_dot(n->sum, queries + (row * c->heads + head) * d,
                                    keys + (key * c->kv_heads + kv_head(c, layer, head)) * d, d);
                if (!n->fused)
                    sum = zoo_round(n->format, sum);
                scores[(row * c->heads + head) * t + key] = zoo_round(n->format, sum * (float)layer->scale);
            }
    if (c->score_cap > 0) {
        zoo_emit(run, ZOO_SCORES_RAW, index, scores, t, c->heads, t);
        for (int i = 0; i < t * c->heads * t && layer->score_cap > 0; i++) {
            float x = scores[i] / (float)layer->score_cap;
            x = tanhf(n->fused ? x : zoo_round(n->format, x));
            scores[i] = zoo_round(n->format, (n->fused ? x : zoo_round(n->format, x)) * (float)layer->score_cap);
        }
    }
    emit_scores(run, index, scores);
    if (n->online && !layer->softmax_over_queries) {
        float *kept = zoo_floats(&run->arena, t * c->heads * t);
        memcpy(kept, scores, (size_t)(t * c->heads * t) * sizeof *kept);
        softmax(run, layer, scores);
        zoo_emit(run, ZOO_PROBS, index, scores, t, c->heads, t);
        online_context(run, layer, kept, values, context);
    } else {
        softmax(run, layer, scores);
        zoo_emit(run, ZOO_PROBS, index, scores, t, c->heads, t);
        plain_context(run, layer, scores, values, context);
    }
}
