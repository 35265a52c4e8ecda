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
