/* With the model's weights at hand: which weight was used, and how. */
#include "test_causes.h"

enum { LAYERS = 4, OWN = 2 }; /* of the file; the one that runs */

static double *in_file(struct side *side, const char *format, int layer, size_t rows, size_t columns, double mean)
{
    double *values = weights(rows * (columns ? columns : 1), mean, columns ? 1.2 / sqrt((double)columns) : 0.3);
    struct point *kept = &side->file[side->file_count++];
    assert_true(side->file_count <= sizeof side->file / sizeof *side->file);
    *kept = (struct point){.rank = columns ? 2 : 1, .shape = {rows, columns}, .values = values};
    kept->count = rows * (columns ? columns : 1);
    snprintf(kept->own_name, sizeof kept->own_name, format, layer);
    return values;
}

/* The norm of a layer and its projections, of the layer OWN. */
static void make_weighed(struct side *side)
{
    const struct way *way = side->way;
    size_t wide = hidden(side->size), inner = side->size->inner, tokens = side->size->tokens;
    double *norm[LAYERS], *q[LAYERS], *bias[LAYERS], *k[LAYERS], *gate[LAYERS], *loose = weights(wide * wide, 0, 0.1);
    double *other = point(side, "model.layers.2.other", SHAPE(tokens, wide)), *x, *normed, *to;
    const double *from, *matrix;
    for (int layer = 0; layer < LAYERS; layer++) {
        norm[layer] = in_file(side, "model.layers.%d.input_layernorm.weight", layer, wide, 0, 1);
        q[layer] = in_file(side, "model.layers.%d.self_attn.q_proj.weight", layer, wide, wide, 0);
        bias[layer] = in_file(side, "model.layers.%d.self_attn.q_proj.bias", layer, wide, 0, 0);
        k[layer] = in_file(side, "model.layers.%d.self_attn.k_proj.weight", layer, wide, wide, 0);
        gate[layer] = in_file(side, "model.layers.%d.mlp.gate_proj.weight", layer, inner, wide, 0);
    }
    memcpy(other, weights(tokens * wide, 0, 1), tokens * wide * sizeof *other);
    settle(side, other);
    x = point(side, "model.layers.2.input", SHAPE(tokens, wide));
    memcpy(x, weights(tokens * wide, 0.1, 1), tokens * wide * sizeof *x);
    settle(side, x);
    normed = point(side, "model.layers.2.input_layernorm", SHAPE(tokens, wide));
    for (size_t at = 0; at < tokens * wide; at++) {
        double square = 0, w = norm[way->weights == NORM_OF_ANOTHER ? 3 : OWN][at % wide];
        for (size_t i = 0; i < wide; i++)
            square += x[at / wide * wide + i] * x[at / wide * wide + i] / (double)wide;
        w = way->weights == NORM_PLUS_ONE ? 1 + w : way->weights == NORM_NOT_APPLIED ? 1 : w;
        normed[at] = x[at] / sqrt(square + 1e-6) * w;
    }
    settle(side, normed);
    from = way->weights == OTHER_INPUT ? other : normed;
    matrix = way->weights == OF_ANOTHER_LAYER ? q[1]
             : way->weights == OF_THE_KEYS    ? k[OWN]
             : way->weights == RANDOM         ? loose
                                              : q[OWN];
    to = point(side, "model.layers.2.self_attn.q_proj", SHAPE(tokens, side->size->heads, side->size->head));
    for (size_t at = 0; at < tokens * wide; at++) {
        double times = way->weights == WITHOUT_BIAS ? 0 : way->weights == BIAS_TWICE ? 2 : 1;
        bool turned = way->weights == TRANSPOSED;
        size_t head = side->size->head, line = at % wide;
        if (way->weights == ROTARY_ROWS)
            line = line / head * head + line % 2 * (head / 2) + line % head / 2;
        to[at] =
            dot(side, from + at / wide * wide, turned ? matrix + line : matrix + line * wide, wide, turned ? wide : 1) +
            times * bias[way->weights == OF_ANOTHER_LAYER || way->weights == BIAS_OF_ANOTHER ? 1 : OWN][line];
    }
    settle(side, to);
    to = point(side, "model.layers.2.mlp.gate_proj", SHAPE(tokens, inner));
    matrix = gate[way->weights == OF_ANOTHER_LAYER ? 1 : OWN];
    for (size_t at = 0; at < tokens * inner; at++) /* the same memory as [in, out] */
        to[at] = way->weights == TRANSPOSED
                     ? dot(side, normed + at / inner * wide, matrix + at % inner, wide, inner)
                     : dot(side, normed + at / inner * wide, matrix + at % inner * wide, wide, 1);
    settle(side, to);
}

#define Q    .at = "model.layers.2.self_attn.q_proj", .made = make_weighed
#define GATE .at = "model.layers.2.mlp.gate_proj", .made = make_weighed
#define NORM .at = "model.layers.2.input_layernorm", .made = make_weighed

static const struct row rows[] = {
    {"swapped-with", "another layer's weight, with the file", Q, .candidate = {.weights = OF_ANOTHER_LAYER},
     .words = {"model.layers.1.self_attn.q_proj.weight", "instead of model.layers.2.self_attn.q_proj.weight"},
     .near = "unrelated transposed-weight"},
    {"swapped-with", "another layer's gate, with the file", GATE, .candidate = {.weights = OF_ANOTHER_LAYER},
     .words = {"model.layers.1.mlp.gate_proj.weight"}, .near = "unrelated"},
    {"swapped-with", "keys for queries, with the file", Q, .candidate = {.weights = OF_THE_KEYS},
     .words = {"model.layers.2.self_attn.k_proj.weight"}, .near = "unrelated permuted"},
    {"transposed-weight", "square, with the file", Q, .candidate = {.weights = TRANSPOSED},
     .words = {"model.layers.2.self_attn.q_proj.weight"}, .check = "transpose(0, 1)", .near = "permuted unrelated"},
    {"transposed-weight", "the memory, with the file", GATE, .candidate = {.weights = TRANSPOSED},
     .words = {"model.layers.2.mlp.gate_proj.weight"}, .near = "permuted unrelated"},
    {"unrelated", "random, with the file", Q, .candidate = {.weights = RANDOM},
     .words = {"weights not loaded or random"}, .near = "swapped-with transposed-weight wrong-input"},
    {"offset", "bias missing, with the file", Q, .candidate = {.weights = WITHOUT_BIAS},
     .words = {"model.layers.2.self_attn.q_proj.bias"}, .near = "unrelated"},
    {"offset", "bias twice, with the file", Q, .candidate = {.weights = BIAS_TWICE},
     .words = {"model.layers.2.self_attn.q_proj.bias"}, .near = "scaled"},
    {"offset", "another layer's bias, with the file", Q, .candidate = {.weights = BIAS_OF_ANOTHER},
     .words = {"adds model.layers.1.self_attn.q_proj.bias instead of",
               "instead of model.layers.2.self_attn.q_proj.bias"},
     .near = "swapped-with affine"},
    {"wrong-input", "with the file", Q, .candidate = {.weights = OTHER_INPUT}, .words = {"model.layers.2.other"},
     .near = "unrelated swapped-with"},
    {"permuted", "rotary rows, with the file", Q, .candidate = {.weights = ROTARY_ROWS},
     .words = {"rows of model.layers.2.self_attn.q_proj.weight"}, .near = "unrelated rotation"},
    {"channel-scaled", "another norm's weight, with the file", NORM, .candidate = {.weights = NORM_OF_ANOTHER},
     .words = {"model.layers.3.input_layernorm.weight", "model.layers.2.input_layernorm.weight"}, .near = "row-scaled"},
    {"channel-scaled", "1 + w, with the file", NORM, .candidate = {.weights = NORM_PLUS_ONE}, .words = {"1 + "},
     .near = "offset affine"},
    {"channel-scaled", "no weight, with the file", NORM, .candidate = {.weights = NORM_NOT_APPLIED},
     .words = {"model.layers.2.input_layernorm.weight", "does not apply"}, .near = "skipped-op"},
};

const struct table causes_weights = TABLE("weights", rows);
