/* Owns replaying operations on the candidate's inputs: what it made of them, in units of what rounding explains. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "compare/grid.h"
#include "compare/operation_search.h"
#include "tensor/mask.h"

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

/* Numbers may be rounded between where they are captured and where they are used: an accumulator in f32 that is stored
 * in sixteen bits, a sum of two that is before a third is added, keys and values that go through a cache in eight.
 * Replayed as it was used, such an operation is exact again, and no bug becomes exact by rounding what goes in. From
 * what ratio on this is tried, and up to what error; in how many numbers; what it may leave, and of what there was. */
#define WAY_FROM   2.0
#define WAY_MOST   0.1 /* of sums; the terms of a product may be far larger than it is, and so may what they round */
#define WAY_COUNT  16
#define WAY_LEAVES 2.0
#define WAY_SHARE  0.25
#define WAY_TIES   0.5  /* where no more is left than another rounding of the inputs makes */
#define TIE        1e-6 /* relative: a few roundings of f32 */
#define CALM_BELOW 1.5  /* ratio of what is as near as rounding explains */
/* A channel is looked at by itself over so many rows, and the middle one of so many. */
#define FEWEST_ROWS     4
#define FEWEST_CHANNELS 16

/* Of those with scales: which numbers share one. A cache has one for each head of a token, for each token, for all of
 * it, or, of keys, for each channel. */
enum grid {
    BF16,
    F16,
    E4M3,
    E4M3_HEADS,
    INT8_HEADS,
    E4M3_TOKENS,
    INT8_TOKENS,
    E4M3_ALL,
    INT8_ALL,
    INT8_CHANNELS,
    GRIDS
};

static const char *const grid_names[GRIDS] = {"bf16",
                                              "f16",
                                              "e4m3",
                                              "e4m3 with a scale for each head",
                                              "int8 with a scale for each head",
                                              "e4m3 with a scale for each token",
                                              "int8 with a scale for each token",
                                              "e4m3 with one scale",
                                              "int8 with one scale",
                                              "int8 with a scale for each channel"};

static bool is_int8(enum grid grid)
{
    return grid == INT8_HEADS || grid == INT8_TOKENS || grid == INT8_ALL || grid == INT8_CHANNELS;
}

struct way {
    enum grid grid;
    unsigned inputs; /* a bit for each that is rounded */
    bool inner;      /* of a sum of three: two are added and rounded before this one is */
    unsigned apart;
};

/* To so many stored mantissa bits, to even. */
static double to_bits(double value, int bits)
{
    int exponent;
    double mantissa = frexp(value, &exponent);
    return isfinite(value) ? ldexp(nearbyint(ldexp(mantissa, bits + 1)), exponent - bits - 1) : value;
}

/* Steps end at 2^-9, numbers at 448. */
static double to_e4m3(double value)
{
    double rounded = fabs(value) < 0x1p-6 ? nearbyint(value * 0x1p9) * 0x1p-9 : to_bits(value, 3);
    return fmin(fmax(rounded, -448), 448);
}

/* In steps of a scale: value / step is known to the rounding of a division in f32, so that a number between two points
 * may have become either. `other`: where it is, the one that is further from even. */
static double to_point(enum grid grid, double steps, bool other)
{
    double point = is_int8(grid) ? nearbyint(steps) : to_e4m3(steps);
    for (int side = -1; side <= 1 && other; side += 2) {
        double near = steps * (1 + side * TIE);
        near = is_int8(grid) ? nearbyint(near) : to_e4m3(near);
        if (near != point)
            return near;
    }
    return point;
}

/* How many numbers of keys or values share a scale: a head of a token. Where they were captured without an axis of
 * heads, the queries or the context tell its size. */
static size_t size_of_head(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                           const struct ts_actor *input)
{
    const struct ts_actor *queries = ts_operation_input(scene, operation, 0);
    size_t size = operation->heads ? input->width / operation->heads : 0;
    if (operation->stride && operation->kind == TS_OPERATION_CONTEXT)
        return actor->width / queries->heads; /* of the values; these are the probabilities */
    if (input->heads > 1)
        return input->inner;
    if (!size && operation->kind == TS_OPERATION_CONTEXT)
        size = actor->inner;
    else if (!size)
        size = queries->heads > 1 ? queries->inner : queries->width / actor->heads;
    return size && input->width % size == 0 ? size : input->width;
}

/* In place: numbers that share a scale, `stride` apart, as they come back from its grid. */
static void round_part(enum grid grid, double *values, size_t count, size_t stride, bool other)
{
    double most = 0, step;
    for (size_t i = 0; i < count * stride; i += stride)
        most = isfinite(values[i]) ? fmax(most, fabs(values[i])) : most;
    step = most / (is_int8(grid) ? 127 : 448);
    for (size_t i = 0; i < count * stride && step > 0; i += stride)
        values[i] = step * to_point(grid, values[i] / step, other);
}

/* In place: the numbers of an input as they come back from a grid; `head` of them make a head, of which the operation
 * may take a part of each `stride`. `other`: where two points are as near, the other one. */
static void round_input(enum grid grid, const struct ts_operation *operation, const struct ts_actor *input, size_t head,
                        bool other, double *values)
{
    const size_t total = input->rows * input->width;
    const bool part =
        operation->kind == TS_OPERATION_CONTEXT && operation->stride && (grid == E4M3_HEADS || grid == INT8_HEADS);
    size_t size = head;
    if (grid == BF16 || grid == F16 || grid == E4M3) {
        for (size_t i = 0; i < total; i++)
            values[i] = grid == E4M3 ? to_e4m3(values[i]) : to_bits(values[i], grid == BF16 ? 7 : 10);
        return;
    }
    if (grid == INT8_CHANNELS) {
        for (size_t channel = 0; channel < input->width; channel++)
            round_part(grid, values + channel, input->rows, input->width, other);
        return;
    }
    if (grid == E4M3_TOKENS || grid == INT8_TOKENS)
        size = input->width;
    if (grid == E4M3_ALL || grid == INT8_ALL)
        size = total;
    for (size_t start = part ? operation->place : 0; start + size <= total && size;
         start += part ? operation->stride : size)
        round_part(grid, values + start, size, 1, other);
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
/* Squares of what differs and of what rounding explains, over one part, and how many numbers it has. */
struct balance {
    double error, moved, size, count;
};

struct scratch {
    double *plain[3], *shaken[3], *expected, *moved;
    struct balance *parts; /* of as many channels or heads of rows as there are */
    double *room;          /* a number for each of these */
};

static void scratch_release(struct scratch *scratch)
{
    for (int i = 0; i < 3; i++) {
        free(scratch->plain[i]);
        free(scratch->shaken[i]);
    }
    free(scratch->expected);
    free(scratch->moved);
    free(scratch->parts);
    free(scratch->room);
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
                         const struct way *way, struct scratch *scratch)
{
    const size_t total = actor->rows * actor->width;
    const size_t parts = actor->rows * actor->heads > actor->width ? actor->rows * actor->heads : actor->width;
    scratch->expected = malloc(total * sizeof(double));
    scratch->moved = malloc(total * sizeof(double));
    scratch->parts = malloc(parts * sizeof *scratch->parts);
    scratch->room = malloc(parts * sizeof *scratch->room);
    if (!scratch->expected || !scratch->moved || !scratch->parts || !scratch->room)
        return false;
    for (unsigned k = 0; k < operation->input_count; k++) {
        const struct ts_actor *input = ts_operation_input(scene, operation, k);
        size_t count = input->rows * input->width;
        double rounding = input_rounding(operation, actor, input);
        scratch->plain[k] = malloc(count * sizeof(double));
        scratch->shaken[k] = malloc(count * sizeof(double));
        if (!scratch->plain[k] || !scratch->shaken[k])
            return false;
        for (size_t i = 0; i < count; i++)
            scratch->plain[k][i] = scratch->shaken[k][i] = (double)input->b[i];
        if (way && way->inputs >> k & 1) {
            size_t size = size_of_head(scene, operation, actor, input);
            round_input(way->grid, operation, input, size, false, scratch->plain[k]);
            round_input(way->grid, operation, input, size, true, scratch->shaken[k]);
        }
        for (size_t i = 0; i < count; i++)
            scratch->shaken[k][i] *= 1 + rounding * ts_noise_at(input->pair + 1, i);
    }
    return true;
}

static double ratio_of(const struct balance *balance, double rounding, double residual)
{
    double explained = sqrt(balance->moved) + (rounding + 2 * residual) * sqrt(balance->size);
    double error = sqrt(balance->error);
    return error == 0 ? 0 : explained > 0 ? error / explained : (double)INFINITY;
}

static void add_element(struct balance *balance, double found, double expected, double moved)
{
    if (isinf(expected) && expected < 0) { /* masked in the reference: anything that low will do */
        if (!ts_is_masked_score(found))
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

/* What a number of a channel (or of a row) usually has of size and of what rounding moves. */
struct usual {
    double size, moved;
};

/* Where numbers are made by place, that of the middle part, else that of all numbers together. room: a number for each
 * part. */
static struct usual usual_of(const struct balance *parts, size_t count, const struct balance *all, bool by_place,
                             double *room)
{
    struct usual usual = {all->count > 0 ? all->size / all->count : 0, all->count > 0 ? all->moved / all->count : 0};
    if (by_place) {
        for (size_t i = 0; i < count; i++)
            room[i] = parts[i].count > 0 ? parts[i].size / parts[i].count : 0;
        usual.size = fmin(usual.size, ts_nth(room, count, count / 2));
        for (size_t i = 0; i < count; i++)
            room[i] = parts[i].count > 0 ? parts[i].moved / parts[i].count : 0;
        usual.moved = fmin(usual.moved, ts_nth(room, count, count / 2));
    }
    return usual;
}

/* Fills in the worst channel and the slope, and, where numbers are made by place, raises the ratio to that of the
 * middle channel. */
static void weigh_channels(const struct ts_operation *operation, const struct ts_actor *actor,
                           const struct scratch *scratch, const struct balance *all, double rounding, bool by_place,
                           struct ts_replay *replay)
{
    const size_t width = actor->width;
    double all_dot = 0, even_dot = 0, even_error = 0, channels = 0;
    struct usual usual;
    memset(scratch->parts, 0, width * sizeof *scratch->parts);
    for (size_t channel = 0; channel < width; channel++) {
        struct balance *part = scratch->parts + channel;
        double dot = 0;
        for (size_t i = channel; i < actor->rows * width; i += width) {
            double found = (double)actor->b[i], expected = scratch->expected[i];
            add_element(part, found, expected, scratch->moved[i]);
            if (isfinite(expected) && isfinite(found))
                dot += (found - expected) * expected;
        }
        all_dot += dot;
        if (part->size > 0) {
            even_dot += dot / part->size;
            even_error += part->error / part->size;
            channels++;
        }
    }
    usual = usual_of(scratch->parts, width, all, by_place, scratch->room);
    for (size_t channel = 0; channel < width && actor->rows >= FEWEST_ROWS; channel++) {
        struct balance *part = scratch->parts + channel;
        /* a channel that is small, or happened to move little, is judged by the others */
        part->size = fmax(part->size, 1e-2 * usual.size * part->count);
        part->moved = fmax(part->moved, 0.25 * usual.moved * part->count);
        scratch->room[channel] = ratio_of(part, rounding, operation->residual);
        if (scratch->room[channel] > replay->worst_channel_part) {
            replay->worst_channel_part = scratch->room[channel];
            replay->worst_channel = channel;
        }
    }
    if (by_place && actor->rows >= FEWEST_ROWS && width >= FEWEST_CHANNELS)
        replay->ratio = fmax(replay->ratio, ts_nth(scratch->room, width, width / 2));
    /* with every channel counted alike, so that one far larger than the others does not decide it by how its few
     * numbers were rounded */
    all_dot = correlation(all_dot, all->error, all->size);
    even_dot = correlation(even_dot, even_error, channels);
    replay->slope = fabs(even_dot) < fabs(all_dot) ? even_dot : all_dot;
}

/* Fills in ratio, local and the worst part. by_place: as is_by_place tells, unless all numbers share a grid. */
static void weigh(const struct ts_operation *operation, const struct ts_actor *actor, const struct scratch *scratch,
                  double rounding, bool by_place, struct ts_replay *replay)
{
    const size_t parts = actor->rows * actor->heads;
    struct balance all = {0};
    struct usual usual;
    double calm = 0;
    *replay = (struct ts_replay){0};
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        add_element(&all, (double)actor->b[i], scratch->expected[i], scratch->moved[i]);
    replay->ratio = ratio_of(&all, rounding, operation->residual);
    replay->local = all.size > 0 ? sqrt(all.error / all.size) : all.error > 0 ? (double)INFINITY : 0;
    weigh_channels(operation, actor, scratch, &all, rounding, by_place, replay);
    memset(scratch->parts, 0, parts * sizeof *scratch->parts);
    for (size_t k = 0; k < parts; k++) {
        const size_t start = k / actor->heads * actor->width + k % actor->heads * actor->inner;
        for (size_t i = start; i < start + actor->inner; i++)
            add_element(scratch->parts + k, (double)actor->b[i], scratch->expected[i], scratch->moved[i]);
    }
    usual = usual_of(scratch->parts, parts, &all, by_place, scratch->room);
    for (size_t k = 0; k < parts; k++) {
        struct balance *part = scratch->parts + k;
        double ratio;
        /* a part far below the others' size is judged by theirs: its own rounding says little */
        part->size = fmax(part->size, 1e-4 * (by_place ? usual.size * part->count : all.size / (double)parts));
        /* nor may a few numbers that happened to move little be judged by that alone */
        part->moved = fmax(part->moved, (part->count < 8 ? 1 : 0.25) * usual.moved * part->count);
        ratio = ratio_of(part, rounding, operation->residual);
        calm += ratio < CALM_BELOW;
        if (ratio > replay->worst_part) {
            replay->worst_part = ratio;
            replay->worst_row = k / actor->heads;
            replay->worst_head = k % actor->heads;
        }
    }
    replay->calm = calm / (double)parts;
}

/* A scale for each head, the same in every token, as a cache has that was calibrated before. */
static double grid_error_of_heads(const struct ts_actor *actor)
{
    const size_t size = actor->rows * actor->inner;
    float *values = malloc(size * sizeof *values);
    double most = 0;
    for (size_t head = 0; values && head < actor->heads; head++) {
        double error;
        for (size_t row = 0; row < actor->rows; row++)
            memcpy(values + row * actor->inner, actor->b + row * actor->width + head * actor->inner,
                   actor->inner * sizeof *values);
        error = ts_grid_error(values, 1, size);
        most = error > 0 ? fmax(most, error) : 0;
        if (!(error > 0))
            break;
    }
    free(values);
    return most;
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
    return error == 0 && actor->heads > 1 ? grid_error_of_heads(actor) : error;
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

/* The sum of all but one of three inputs, rounded, and that one added to it. */
static void apply_inner_sum(const struct way *way, size_t total, double *const *inputs, double *out)
{
    const double *x = inputs[(way->apart + 1) % 3], *y = inputs[(way->apart + 2) % 3], *z = inputs[way->apart];
    for (size_t i = 0; i < total; i++)
        out[i] = to_bits(x[i] + y[i], way->grid == BF16 ? 7 : 10) + z[i];
}

static bool hides_scores(const struct ts_operation *operation)
{
    return operation->kind == TS_OPERATION_ATTENTION ||
           (operation->kind == TS_OPERATION_SOFTMAX && operation->input_count > 1);
}

/* Scores between queries and probabilities were written in the type of both, by most programs that are no single
 * kernel: beside scores of thirty, a rounding of bf16 is a tenth of a probability. */
static double score_rounding(struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor)
{
    const struct ts_actor *queries = ts_operation_input(scene, operation, 0);
    return !hides_scores(operation) ? 0
                                    : ts_rounding(queries->bits_b < actor->bits_b ? queries->bits_b : actor->bits_b);
}

/* Two keys that are nearly tied share a probability by what one rounding makes of the difference of two scores: a draw
 * of that may be nearly nothing by chance, and no other number of the row makes up for it. So the row moves by what all
 * draws make on average at least. */
static void move_probabilities(const struct ts_actor *actor, double rounding, struct scratch *scratch)
{
    for (size_t start = 0; start + actor->inner <= actor->rows * actor->width; start += actor->inner) {
        const double *scores = scratch->plain[0] + start, *expected = scratch->expected + start;
        double *moved = scratch->moved + start, shared = 0;
        for (size_t i = 0; i < actor->inner; i++)
            shared += expected[i] > 0 ? pow(expected[i] * rounding * scores[i], 2) : 0;
        for (size_t i = 0; i < actor->inner; i++) {
            double own = expected[i] > 0 ? pow(rounding * scores[i], 2) * (1 - 2 * expected[i]) : 0;
            double usual = fmin(1, expected[i] * sqrt(fmax(0, own + shared)));
            if (fabs(moved[i] - expected[i]) < usual)
                moved[i] = expected[i] + usual;
        }
    }
}

/* way: NULL where inputs are used as they were captured. */
static enum ts_status replay_by(struct ts_scene *scene, const struct ts_operation *operation,
                                const struct ts_actor *actor, const struct way *way, struct ts_replay *replay,
                                struct ts_error *error)
{
    struct scratch scratch = {0};
    struct ts_operation moved = *operation;
    const size_t total = actor->rows * actor->width;
    double rounding = ts_rounding(actor->bits_b < actor->bits_a ? actor->bits_b : actor->bits_a);
    *replay = (struct ts_replay){0};
    if (!scratch_fill(scene, operation, actor, way, &scratch)) {
        scratch_release(&scratch);
        return ts_fail_memory(error);
    }
    moved.shaken = score_rounding(scene, operation, actor);
    ts_operation_apply(scene, operation, actor, scratch.plain, scratch.expected);
    ts_operation_apply(scene, &moved, actor, scratch.shaken, scratch.moved);
    if (operation->kind == TS_OPERATION_SOFTMAX && operation->input_count == 1)
        move_probabilities(actor, input_rounding(operation, actor, ts_operation_input(scene, operation, 0)), &scratch);
    if (way && way->inner) {
        apply_inner_sum(way, total, scratch.plain, scratch.expected);
        apply_inner_sum(way, total, scratch.shaken, scratch.moved);
    }
    weigh(operation, actor, &scratch, rounding, ts_operation_is_by_place(operation->kind), replay);
    if (replay->ratio > GRID_FROM || replay->worst_part > GRID_FROM || replay->worst_channel_part > GRID_FROM) {
        double grid = grid_error(operation, actor) / GRID_SHARE;
        if (grid > rounding)
            weigh(operation, actor, &scratch, grid, false, replay);
    }
    if (!way)
        weigh_rivals(scene, operation, actor, &scratch, rounding, replay);
    scratch_release(&scratch);
    return TS_OK;
}

enum ts_status ts_operation_replay(struct ts_scene *scene, const struct ts_operation *operation,
                                   const struct ts_actor *actor, struct ts_replay *replay, struct ts_error *error)
{
    return replay_by(scene, operation, actor, NULL, replay, error);
}

/* The next way that an operation may have gone; false behind the last. */
static bool next_way(const struct ts_operation *operation, size_t index, struct way *way)
{
    const unsigned count = operation->input_count;
    const bool product = ts_operation_is_product(operation);
    static const enum grid sixteen[] = {BF16, F16};
    *way = (struct way){.grid = sixteen[index % 2], .inputs = (1u << count) - 1};
    if (index < 2)
        return true;
    index -= 2;
    if (operation->kind == TS_OPERATION_SUM && count == 3) {
        *way = (struct way){.grid = sixteen[index % 2], .inner = true, .apart = (unsigned)index / 2};
        return index < 6;
    }
    /* a cache has keys and values, and no queries or probabilities */
    *way = (struct way){.grid = E4M3 + index, .inputs = (1u << count) - 2};
    return product && count > 1 && E4M3 + index < GRIDS;
}

enum ts_status ts_operation_replay_rounded(struct ts_scene *scene, const struct ts_operation *operation,
                                           const struct ts_actor *actor, struct ts_replay *replay,
                                           struct ts_error *error)
{
    struct way way;
    const double part =
        (ts_operation_is_product(operation) ? 4 : 2) * WAY_LEAVES; /* of a product a head of a token strays more */
    if (!(replay->ratio > WAY_FROM) || (replay->local > WAY_MOST && !ts_operation_is_product(operation)) ||
        actor->rows * actor->width < WAY_COUNT)
        return TS_OK;
    for (size_t index = 0; next_way(operation, index, &way); index++) {
        struct ts_replay by_way;
        double share;
        TS_TRY(replay_by(scene, operation, actor, &way, &by_way, error));
        /* of ties more may be left than a quarter: as much as they can change */
        share = by_way.ratio <= 1 ? WAY_TIES : WAY_SHARE;
        if (by_way.ratio <= WAY_LEAVES && by_way.worst_part <= part && by_way.local < share * replay->local) {
            *replay = by_way;
            replay->rounded = grid_names[way.grid];
            return TS_OK;
        }
    }
    return TS_OK;
}
