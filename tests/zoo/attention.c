/* Owns the attention half of a layer, from the normed input to the output projection. */
#include <math.h>
#include <string.h>

#include "zoo.h"

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
            float largest = layer->sink ? layer->sink[head] : -INFINITY, sum = 0;
            for (int i = 0; i < t; i++) {
                bool seen = layer->softmax_over_queries ? attends(layer, i, one) : attends(layer, one, i);
                line[i * step] = seen ? line[i * step] / (float)layer->temperature : -INFINITY;
                largest = line[i * step] > largest ? line[i * step] : largest;
            }
            for (int i = 0; i < t; i++) {
                line[i * step] = isinf(line[i * step]) ? 0 : expf(line[i * step] - largest);
                sum += line[i * step];
            }
            if (layer->sink)
                sum += expf(layer->sink[head] - largest);
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
            float *out = context + (row * c->heads + head) * d;
            float largest = layer->sink ? layer->sink[head] : -INFINITY, sum = layer->sink ? 1 : 0;
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

static void attend(struct zoo_run *run, int index, const float *q, const float *k, const float *v, float *context)
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
    if (c->score_cap > 0 || c->alibi) {
        zoo_emit(run, ZOO_SCORES_RAW, index, scores, t, c->heads, t);
        for (int i = 0; i < t * c->heads * t && layer->score_cap > 0; i++) {
            float x = scores[i] / (float)layer->score_cap;
            x = tanhf(n->fused ? x : zoo_round(n->format, x));
            scores[i] = zoo_round(n->format, (n->fused ? x : zoo_round(n->format, x)) * (float)layer->score_cap);
        }
        for (int i = 0; i < t * c->heads * t && layer->slope != 0; i++) {
            int distance = i % t - i / (c->heads * t), head = i / t % c->heads;
            double slope = layer->slope * pow(2, -8.0 * head / c->heads);
            scores[i] = zoo_round(n->format, scores[i] + (float)(slope * distance));
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

/* Keys or values as a quantized cache gives them back, per token and head. */
static void store(const struct zoo_run *run, float *values)
{
    const struct zoo_config *c = run->model->config;
    if (run->numerics->cache == ZOO_WEIGHTS_PLAIN)
        return;
    for (int i = 0; i < c->tokens * c->kv_heads; i++)
        zoo_quantize_row(run->numerics->cache, values + i * c->head_size, c->head_size);
    for (int i = 0; i < c->tokens * c->kv_heads * c->head_size; i++)
        values[i] = zoo_round(run->numerics->format, values[i]);
}

/* Query, key and value from the normed input to what attention takes. */
static void project(struct zoo_run *run, int index, const float *in, float **q, float **k, float **v)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    int t = c->tokens, d = c->head_size, wide = c->heads * d, narrow = c->kv_heads * d;
    float *parts[3] = {zoo_floats(&run->arena, t * wide), zoo_floats(&run->arena, t * narrow),
                       zoo_floats(&run->arena, t * narrow)};
    const struct zoo_matrix *matrices[3] = {&layer->q, &layer->k, &layer->v};
    for (int i = 0; i < 3; i++)
        zoo_linear(run, matrices[i], in, t, parts[i]);
    if (c->fused_qkv)
        zoo_emit_fused(run, ZOO_QKV, index, parts, (const int[]){wide, narrow, narrow}, 3, t);
    if (layer->swap_qk) { /* only where both have the same size */
        float *other = parts[0];
        parts[0] = parts[1];
        parts[1] = other;
    }
    if (run->numerics->cache_shown) {
        if (!c->rotary_size)
            store(run, parts[1]);
        store(run, parts[2]);
    }
    zoo_emit(run, ZOO_Q, index, parts[0], t, c->heads, d);
    zoo_emit(run, ZOO_K, index, parts[1], t, c->kv_heads, d);
    zoo_emit(run, ZOO_V, index, parts[2], t, c->kv_heads, d);
    *q = parts[0];
    *k = parts[1];
    *v = parts[2];
}

static void head_layout(const struct zoo_config *c, const float *in, float *out)
{
    for (int row = 0; row < c->tokens; row++)
        for (int head = 0; head < c->heads; head++)
            for (int i = 0; i < c->head_size; i++)
                out[(row * c->heads + head) * c->head_size + i] =
                    in[row * c->heads * c->head_size + i * c->heads + head];
}

static void norm_and_turn(struct zoo_run *run, int index, float **q, float **k)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    int t = c->tokens, d = c->head_size;
    float *out;
    if (layer->head_layout) {
        out = zoo_floats(&run->arena, t * c->heads * d);
        head_layout(c, *q, out);
        *q = out;
    }
    if (c->qk_norm) {
        out = zoo_floats(&run->arena, t * c->heads * d);
        if (layer->q_norm.on)
            zoo_norm(run, &layer->q_norm, *q, t * c->heads * d / layer->q_norm.size, out);
        else
            memcpy(out, *q, (size_t)(t * c->heads * d) * sizeof *out);
        zoo_emit(run, ZOO_Q_NORM, index, out, t, c->heads, d);
        *q = out;
        out = zoo_floats(&run->arena, t * c->kv_heads * d);
        if (layer->k_norm.on)
            zoo_norm(run, &layer->k_norm, *k, t * c->kv_heads * d / layer->k_norm.size, out);
        else
            memcpy(out, *k, (size_t)(t * c->kv_heads * d) * sizeof *out);
        zoo_emit(run, ZOO_K_NORM, index, out, t, c->kv_heads, d);
        *k = out;
    }
    if (c->rotary_size) {
        out = zoo_floats(&run->arena, t * c->heads * d);
        zoo_rotate(run, &layer->q_rope, *q, t, c->heads, d, out);
        zoo_emit(run, ZOO_Q_ROPE, index, out, t, c->heads, d);
        *q = out;
        out = zoo_floats(&run->arena, t * c->kv_heads * d);
        zoo_rotate(run, &layer->k_rope, *k, t, c->kv_heads, d, out);
        if (run->numerics->cache_shown)
            store(run, out);
        zoo_emit(run, ZOO_K_ROPE, index, out, t, c->kv_heads, d);
        *k = out;
    }
}

/* What the cache makes of keys and values. */
static void cached(struct zoo_run *run, const struct zoo_layer *layer, float **k, float **v)
{
    const struct zoo_config *c = run->model->config;
    int width = c->kv_heads * c->head_size, total = c->tokens * width, stale = layer->stale_token;
    float *keys = zoo_floats(&run->arena, total), *values = zoo_floats(&run->arena, total);
    memcpy(keys, *k, (size_t)total * sizeof *keys);
    memcpy(values, layer->previous_v && run->previous_v ? run->previous_v : *v, (size_t)total * sizeof *values);
    store(run, keys);
    store(run, values);
    if (stale > 0) {
        memcpy(keys + stale * width, keys + (stale - 1) * width, (size_t)width * sizeof *keys);
        memcpy(values + stale * width, values + (stale - 1) * width, (size_t)width * sizeof *values);
    }
    run->previous_v = *v;
    *k = keys;
    *v = values;
}

void zoo_attention(struct zoo_run *run, int index, const float *in, float *out)
{
    const struct zoo_config *c = run->model->config;
    const struct zoo_layer *layer = &run->model->layer[index];
    float *q, *k, *v, *context = zoo_floats(&run->arena, c->tokens * c->heads * c->head_size);
    project(run, index, in, &q, &k, &v);
    norm_and_turn(run, index, &q, &k);
    cached(run, layer, &k, &v);
    attend(run, index, q, k, v, context);
    zoo_emit(run, ZOO_CONTEXT, index, context, c->tokens, c->heads, c->head_size);
    zoo_linear(run, &layer->o, context, c->tokens, out);
    zoo_emit(run, ZOO_O, index, out, c->tokens, 1, c->hidden);
    zoo_emit(run, ZOO_ATTENTION, index, out, c->tokens, 1, c->hidden);
}
