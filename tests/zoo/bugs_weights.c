/* Owns the bugs of weights, and damage to one tensor. */
#include <string.h>

#include "bugs.h"

static void scale_all(float *values, int count, float factor)
{
    for (int i = 0; values && i < count; i++)
        values[i] *= factor;
}

static void swap_rows(float *a, float *b, int count)
{
    for (int i = 0; i < count; i++) {
        float other = a[i];
        a[i] = b[i];
        b[i] = other;
    }
}

/* Weights. */

static struct zoo_matrix *some_matrix(struct zoo_model *m, int l, struct zoo_random *r)
{
    struct zoo_layer *layer = &m->layer[l];
    struct zoo_matrix *all[] = {&layer->q,  &layer->k,    &layer->v,      &layer->o,         &layer->gate,
                                &layer->up, &layer->down, &layer->router, &layer->modulation};
    for (;;) {
        struct zoo_matrix *matrix = all[zoo_random_below(r, (int)(sizeof all / sizeof *all))];
        if (matrix->weight)
            return matrix;
    }
}

static struct zoo_matrix *some_biased(struct zoo_model *m, int l, struct zoo_random *r)
{
    for (int tries = 0; tries < 64; tries++) {
        struct zoo_matrix *matrix = some_matrix(m, l, r);
        if (matrix->bias)
            return matrix;
    }
    return NULL;
}

BUG(bias_missing)
{
    struct zoo_matrix *matrix = some_biased(m, l, r);
    if (matrix)
        matrix->bias = NULL;
    return matrix != NULL;
}

BUG(bias_doubled)
{
    struct zoo_matrix *matrix = some_biased(m, l, r);
    if (matrix)
        scale_all(matrix->bias, matrix->out, 2);
    return matrix != NULL;
}

BUG(input_channel_zeroed)
{
    struct zoo_matrix *matrix = some_matrix(m, l, r);
    int channel = zoo_random_below(r, matrix->in);
    for (int i = 0; i < matrix->out; i++)
        matrix->weight[i * matrix->in + channel] = 0;
    return true;
}

BUG(output_channel_zeroed)
{
    struct zoo_matrix *matrix = some_matrix(m, l, r);
    int channel = zoo_random_below(r, matrix->out);
    memset(matrix->weight + channel * matrix->in, 0, (size_t)matrix->in * sizeof(float));
    return true;
}

/* Exponent bits worth a factor of 16 and of 256, up or down. */
BUG(bit_flipped)
{
    struct zoo_matrix *matrix = some_matrix(m, l, r);
    float *weight = matrix->weight + zoo_random_below(r, matrix->out * matrix->in);
    uint32_t bits;
    memcpy(&bits, weight, sizeof bits);
    bits ^= 1u << (zoo_random_chance(r, 0.5) ? 25 : 26);
    memcpy(weight, &bits, sizeof bits);
    return true;
}

BUG(weight_transposed)
{
    struct zoo_matrix *matrix = some_matrix(m, l, r);
    for (int i = 0; i < matrix->out && matrix->out == matrix->in; i++)
        for (int j = 0; j < i; j++) {
            float other = matrix->weight[i * matrix->in + j];
            matrix->weight[i * matrix->in + j] = matrix->weight[j * matrix->in + i];
            matrix->weight[j * matrix->in + i] = other;
        }
    return matrix->out == matrix->in;
}

BUG(weight_of_another_layer)
{
    struct zoo_random same = *r;
    struct zoo_matrix *here = some_matrix(m, l, r);
    struct zoo_matrix *there = some_matrix(m, (l + 1) % m->config->layers, &same);
    *here = *there;
    return m->config->layers > 1;
}

BUG(q_heads_permuted)
{
    struct zoo_matrix *q = &m->layer[l].q;
    int size = m->config->head_size * q->in, a = zoo_random_below(r, m->config->heads);
    int b = (a + 1 + zoo_random_below(r, m->config->heads - 1)) % m->config->heads;
    swap_rows(q->weight + a * size, q->weight + b * size, size);
    return true;
}

BUG(partial_sum_missing)
{
    struct zoo_matrix *matrix = zoo_random_chance(r, 0.5) ? &m->layer[l].o : &m->layer[l].down;
    for (int i = 0; i < matrix->out && matrix->weight; i++)
        memset(matrix->weight + i * matrix->in + matrix->in / 2, 0, (size_t)(matrix->in / 2) * sizeof(float));
    return matrix->weight != NULL;
}

BUG(reduced_twice)
{
    struct zoo_matrix *matrix = zoo_random_chance(r, 0.5) ? &m->layer[l].o : &m->layer[l].down;
    if (matrix->weight)
        scale_all(matrix->weight, matrix->out * matrix->in, 2);
    if (matrix->weight && matrix->bias)
        scale_all(matrix->bias, matrix->out, 2);
    return matrix->weight != NULL;
}

BUG(output_channel_negated)
{
    struct zoo_matrix *matrix = some_matrix(m, l, r);
    int channel = zoo_random_below(r, matrix->out);
    scale_all(matrix->weight + channel * matrix->in, matrix->in, -1);
    return true;
}

/* Damage to one tensor of the layer. */

static bool damage(struct zoo_model *m, int l, struct zoo_random *r, enum zoo_damage_kind kind)
{
    static const enum zoo_point anywhere[] = {
        ZOO_ATTN_NORM,    ZOO_Q,    ZOO_K,   ZOO_V,    ZOO_CONTEXT, ZOO_O, ZOO_ATTN_RESIDUAL, ZOO_MLP_NORM, ZOO_UP,
        ZOO_INTERMEDIATE, ZOO_DOWN, ZOO_MLP, ZOO_LAYER};
    m->damage = (struct zoo_damage){.kind = kind,
                                    .point = anywhere[zoo_random_below(r, (int)(sizeof anywhere / sizeof *anywhere))],
                                    .layer = l,
                                    .seed = zoo_random_next(r)};
    return true;
}

#define DAMAGE(name, kind)                                                                                             \
    BUG(name)                                                                                                          \
    {                                                                                                                  \
        return damage(m, l, r, kind);                                                                                  \
    }
DAMAGE(few_nan, ZOO_DAMAGE_NAN)
DAMAGE(few_infinite, ZOO_DAMAGE_INF)
DAMAGE(few_wrong, ZOO_DAMAGE_SPARSE)
DAMAGE(zero_tail, ZOO_DAMAGE_ZERO_TAIL)
DAMAGE(stale_chunk, ZOO_DAMAGE_STALE)
DAMAGE(token_rolled, ZOO_DAMAGE_ROLLED)
DAMAGE(sign_flipped, ZOO_DAMAGE_SIGN)
DAMAGE(head_zero, ZOO_DAMAGE_ZERO_HEAD)
DAMAGE(head_offset, ZOO_DAMAGE_HEAD_OFFSET)
DAMAGE(type_confused, ZOO_DAMAGE_TYPE)
DAMAGE(channel_scaled, ZOO_DAMAGE_CHANNEL)
DAMAGE(clamped, ZOO_DAMAGE_CLAMPED)
DAMAGE(unwritten, ZOO_DAMAGE_UNWRITTEN)
DAMAGE(scaled, ZOO_DAMAGE_SCALED)
DAMAGE(row_copied, ZOO_DAMAGE_ROW_COPIED)
