/* Owns damage: what a bad buffer, copy or store does to one tensor on its way. */
#include <math.h>
#include <string.h>

#include "zoo.h"

/* An older tensor of the same size: the same point one layer up, or the newest one that fits. */
static const float *older(const struct zoo_run *run, enum zoo_point point, int layer, int total)
{
    const struct zoo_tensor *found = zoo_trace_find(run->trace, point, layer - 1);
    for (int i = run->trace->count - 1; i >= 0 && !found; i--) {
        const struct zoo_tensor *t = &run->trace->tensors[i];
        if (t->rows * t->heads * t->inner == total)
            found = t;
    }
    return found ? found->values : NULL;
}

static void stale(const struct zoo_run *run, float *values, enum zoo_point point, int layer, int total,
                  struct zoo_random *random)
{
    const float *from = older(run, point, layer, total);
    int length = total / 4, start = zoo_random_below(random, total - length + 1);
    if (from)
        memcpy(values + start, from + start, (size_t)length * sizeof *values);
}

static void one_head(float *values, int rows, int heads, int inner, bool zero, struct zoo_random *random)
{
    /* a tensor without heads is damaged in a quarter of its channels */
    int width = heads * inner, size = heads > 1 ? inner : inner / 4;
    int start = heads > 1 ? zoo_random_below(random, heads) * inner : zoo_random_below(random, 4) * size;
    double square = 0;
    float offset;
    for (int i = 0; i < rows * width; i++)
        square += (double)values[i] * (double)values[i];
    offset = (float)(0.7 * sqrt(square / (rows * width)));
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < size; i++)
            values[row * width + start + i] = zero ? 0 : values[row * width + start + i] + offset;
}

static void few_elements(float *values, int total, float what, bool replace, struct zoo_random *random)
{
    for (int i = 0; i < 3; i++) {
        int at = zoo_random_below(random, total);
        values[at] = replace ? what : (values[at] + 0.1f) * what;
    }
}

static void rolled(float *values, int rows, int width)
{
    float last;
    for (int i = 0; i < width; i++) {
        last = values[(rows - 1) * width + i];
        for (int row = rows - 1; row > 0; row--)
            values[row * width + i] = values[(row - 1) * width + i];
        values[i] = last;
    }
}

/* bf16 bits taken for half precision's. */
static float mistaken(float value)
{
    return zoo_f16_value(zoo_bf16_bits(value));
}

void zoo_damage_apply(const struct zoo_run *run, float *values, int layer, enum zoo_point point, int rows, int heads,
                      int inner)
{
    const struct zoo_damage *damage = &run->model->damage;
    struct zoo_random random = zoo_random_from(damage->seed, 5);
    int width = heads * inner, total = rows * width, channel;
    double square = 0;
    if (damage->kind == ZOO_DAMAGE_NONE || damage->point != point || damage->layer != layer)
        return;
    switch (damage->kind) {
    case ZOO_DAMAGE_NAN:
        few_elements(values, total, NAN, true, &random);
        break;
    case ZOO_DAMAGE_INF:
        few_elements(values, total, INFINITY, true, &random);
        break;
    case ZOO_DAMAGE_SPARSE:
        few_elements(values, total, -64, false, &random);
        break;
    case ZOO_DAMAGE_ZERO_TAIL:
        memset(values + (total - total / 5), 0, (size_t)(total / 5) * sizeof *values);
        break;
    case ZOO_DAMAGE_STALE:
        stale(run, values, point, layer, total, &random);
        break;
    case ZOO_DAMAGE_ROLLED:
        rolled(values, rows, width);
        break;
    case ZOO_DAMAGE_SIGN:
        for (int i = 0; i < total; i++)
            values[i] = -values[i];
        break;
    case ZOO_DAMAGE_ZERO_HEAD:
    case ZOO_DAMAGE_HEAD_OFFSET:
        one_head(values, rows, heads, inner, damage->kind == ZOO_DAMAGE_ZERO_HEAD, &random);
        break;
    case ZOO_DAMAGE_TYPE:
        for (int i = 0; i < total; i++)
            values[i] = mistaken(values[i]);
        break;
    case ZOO_DAMAGE_CHANNEL:
        channel = zoo_random_below(&random, width);
        for (int row = 0; row < rows; row++)
            values[row * width + channel] *= 3;
        break;
    case ZOO_DAMAGE_CLAMPED:
        for (int i = 0; i < total; i++)
            square += (double)values[i] * (double)values[i];
        for (int i = 0; i < total; i++)
            values[i] = fmaxf(-(float)sqrt(square / total), fminf(values[i], (float)sqrt(square / total)));
        break;
    case ZOO_DAMAGE_UNWRITTEN:
        for (int i = total / 2; i < total; i++)
            values[i] = values[total / 2];
        break;
    case ZOO_DAMAGE_SCALED:
        for (int i = 0; i < total; i++)
            values[i] *= 1.5f;
        break;
    case ZOO_DAMAGE_ROW_COPIED:
        if (rows > 1)
            memcpy(values + (rows - 1) * width, values + (rows - 2) * width, (size_t)width * sizeof *values);
        break;
    default:
        break;
    }
    for (int i = 0; i < total; i++) /* whatever was stored is in the run's own format */
        values[i] = zoo_round(run->numerics->wide_sums ? ZOO_F32 : run->numerics->format, values[i]);
}
