#include "compare/scene.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* Tokens taken of a longer sequence; all of them up to WHOLE. */
#define TAKEN 48
#define WHOLE 256
/* Numbers of one side of one actor: 4 MiB of floats. */
#define LARGEST ((uint64_t)1 << 22)

double ts_rounding(int mantissa_bits)
{
    return ldexp(0.2123, -mantissa_bits);
}

int ts_mantissa_bits(const float *values, size_t count)
{
    static const int steps[] = {2, 3, 7, 10};
    size_t over[4] = {0}, alike[4] = {0}, counted = 0;
    uint32_t first[4] = {0};
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = ts_float_bits(values[i]);
        if ((bits & 0x7fffffff) == 0 || (bits & 0x7f800000) == 0x7f800000)
            continue;
        counted++;
        for (int k = 0; k < 4; k++) {
            bool finer = (bits & ((1u << (23 - steps[k])) - 1)) != 0;
            first[k] = finer && !over[k] ? bits & 0x7fffffff : first[k];
            over[k] += finer;
            alike[k] += finer && (bits & 0x7fffffff) == first[k];
        }
    }
    if (!counted)
        return 23;
    for (int k = 0; k < 4; k++)
        /* one in two hundred may be a constant, and any number of the same one: values that were clamped */
        if ((over[k] == alike[k] ? over[k] * 2 : over[k] * 200) <= counted && (counted >= 32 || !over[k]))
            return steps[k];
    return 23;
}

/* The shape without its ones in front. */
static const uint64_t *squeezed(const struct ts_view *view, unsigned *rank, unsigned *dropped)
{
    *dropped = 0;
    while (*dropped + 1 < view->rank && view->shape[*dropped] == 1)
        ++*dropped;
    *rank = view->rank - *dropped;
    return view->shape + *dropped;
}

/* The most common first axis of matrices and their kin is the sequence. */
static uint64_t find_tokens(const struct ts_pair *pairs, size_t count)
{
    uint64_t sizes[256];
    size_t votes[256], used = 0, best = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned rank, dropped;
        const uint64_t *shape;
        size_t k;
        if (pairs[i].problem || pairs[i].a.rank < 2)
            continue;
        shape = squeezed(&pairs[i].a, &rank, &dropped);
        if (rank < 2) { /* [1, hidden]: a single token */
            static const uint64_t one = 1;
            shape = &one;
            rank = 2;
        }
        for (k = 0; k < used && sizes[k] != shape[0]; k++) {
        }
        if (k == used && used < 256) {
            sizes[used] = shape[0];
            votes[used++] = 0;
        }
        if (k < used)
            votes[k] += rank == 2 ? 2 : 1; /* hidden states are plain matrices */
    }
    for (size_t k = 1; k < used; k++)
        if (votes[k] > votes[best])
            best = k;
    return used ? sizes[best] : 0;
}

/* Where the tokens stand in tensors with heads whose number is another one, and how many heads the scores have. */
static void find_heads(struct ts_scene *scene)
{
    size_t first = 0, second = 0;
    for (size_t i = 0; i < scene->pair_count; i++) {
        unsigned rank, dropped;
        const uint64_t *shape;
        if (scene->pairs[i].problem || scene->pairs[i].a.rank < 3)
            continue;
        shape = squeezed(&scene->pairs[i].a, &rank, &dropped);
        if (rank == 3 && (shape[0] == scene->tokens) != (shape[1] == scene->tokens))
            ++*(shape[0] == scene->tokens ? &first : &second);
        if (rank == 3 && shape[1] == scene->tokens && shape[2] == scene->tokens && shape[0] <= 1024)
            scene->score_heads = (size_t)shape[0];
    }
    scene->heads_first = second > first;
}

enum ts_status ts_scene_open(struct ts_scene *scene, const struct ts_pair *pairs, size_t count, struct ts_error *error)
{
    *scene = (struct ts_scene){.pairs = pairs, .pair_count = count};
    scene->tokens = find_tokens(pairs, count);
    find_heads(scene);
    scene->taken_count = scene->tokens <= WHOLE ? (size_t)scene->tokens : TAKEN;
    scene->taken = calloc(scene->taken_count + 1, sizeof *scene->taken);
    scene->aside = calloc(scene->taken_count + 1, sizeof *scene->aside);
    if (!scene->taken || !scene->aside) {
        ts_scene_release(scene);
        return ts_fail_memory(error);
    }
    for (size_t i = 0; i < scene->taken_count; i++)
        /* both ends, where positions and masks go wrong first, and a spread between */
        scene->taken[i] = scene->tokens <= WHOLE ? i
                          : i < 8                ? i
                          : i >= TAKEN - 8       ? scene->tokens - (TAKEN - i)
                                                 : 8 + (i - 8) * (scene->tokens - 16) / (TAKEN - 16);
    return TS_OK;
}

void ts_scene_release(struct ts_scene *scene)
{
    for (size_t i = 0; i < TS_SCENE_WINDOW; i++) {
        free(scene->window[i].a);
        free(scene->window[i].b);
    }
    free(scene->taken);
    free(scene->aside);
    free(scene->turn.table);
    *scene = (struct ts_scene){0};
}

#define FORGET_ABOVE ((uint64_t)4 << 20) /* elements */

/* One side, tokens first. axis: which axis of the squeezed shape holds the tokens. */
static enum ts_status load_side(const struct ts_scene *scene, const struct ts_view *view, unsigned axis,
                                const uint64_t *shape, unsigned rank, size_t width, float *out, struct ts_error *error)
{
    uint64_t before = 1, after = 1;
    for (unsigned i = 0; i < axis && axis < rank; i++)
        before *= shape[i];
    for (unsigned i = axis + 1; i < rank; i++)
        after *= shape[i];
    if (axis == rank) /* no tokens in it: one row that serves them all */
        return ts_view_read_f32(view, 0, width, out, error);
    for (size_t row = 0; row < scene->taken_count; row++) {
        for (uint64_t i = 0; i < before; i++)
            TS_TRY(ts_view_read_f32(view, (i * shape[axis] + scene->taken[row]) * after, (size_t)after,
                                    out + row * width + i * after, error));
        /* of a large tensor not even the pages around these rows stay resident */
        if (view->count > FORGET_ABOVE && (row % 32 == 31 || row + 1 == scene->taken_count))
            ts_view_forget(view, 0, view->count);
    }
    return TS_OK;
}

static void measure(const struct ts_scene *scene, struct ts_actor *actor)
{
    double error = 0, norm = 0;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < actor->width && (actor->rows == 1 || !scene->aside[row]); i++) {
            double a = (double)actor->a[row * actor->width + i], b = (double)actor->b[row * actor->width + i];
            if (isfinite(a) && isfinite(b)) {
                error += (b - a) * (b - a);
                norm += a * a;
            }
        }
    actor->norm_a = sqrt(norm);
    actor->error = norm > 0 ? sqrt(error / norm) : error > 0 ? (double)INFINITY : 0.0;
}

/* Scores are captured with their mask: one very low value, many times. Where the reference has it and the candidate is
 * as low, both become minus infinity, which every measure leaves out. */
static void hide_mask(struct ts_actor *actor)
{
    size_t total = actor->rows * actor->width, masked = 0;
    float lowest = INFINITY;
    for (size_t i = 0; i < total; i++)
        lowest = actor->a[i] < lowest ? actor->a[i] : lowest;
    if (!(lowest < -1e4f))
        return;
    for (size_t i = 0; i < total; i++)
        masked += actor->a[i] == lowest;
    if (masked < 2 || masked * 100 < total)
        return;
    for (size_t i = 0; i < total; i++)
        if (actor->a[i] == lowest) {
            actor->a[i] = -INFINITY;
            if (actor->b[i] < -1e4f)
                actor->b[i] = -INFINITY;
        }
}

/* Equal but for one character: q and k. */
static bool are_siblings(const char *a, const char *b)
{
    size_t differences = 0;
    for (; *a && *b; a++, b++)
        differences += *a != *b;
    return !*a && !*b && differences == 1;
}

/* Scores or probabilities with as many heads as tokens: a causal mask tells rows from heads, as it hides the keys
 * behind a row. Are the rows in front? */
static bool is_masked_by_first(const struct ts_pair *pair, uint64_t size)
{
    float values[64];
    struct ts_error ignored;
    if (size > 64)
        return false;
    for (uint64_t i = 0; i < size * size; i++) {
        uint64_t row = i / size;
        if (ts_view_read_f32(&pair->a, i * size, (size_t)size, values, &ignored) != TS_OK)
            return false;
        for (uint64_t key = row + 1; key < size; key++)
            if (values[key] != 0 && !(values[key] < -1e4f))
                return false;
    }
    return true;
}

/* As many heads as tokens: the axis is that of a sibling with another number of heads (keys have fewer), or that of
 * most. Scores have their heads in front, unless a mask on them or on their probabilities says otherwise. */
static unsigned ambiguous_axis(const struct ts_scene *scene, size_t pair, const uint64_t *shape)
{
    size_t first = pair > 4 ? pair - 4 : 0;
    for (size_t i = first; i <= pair + 4 && i < scene->pair_count; i++) {
        unsigned rank, dropped;
        const uint64_t *other;
        if (scene->pairs[i].problem || scene->pairs[i].a.rank < 3)
            continue;
        other = squeezed(&scene->pairs[i].a, &rank, &dropped);
        if (rank == 3 && shape[2] == scene->tokens && memcmp(shape, other, 3 * sizeof *shape) == 0 &&
            is_masked_by_first(&scene->pairs[i], scene->tokens))
            return 0;
        if (rank == 3 && are_siblings(scene->pairs[i].name, scene->pairs[pair].name) &&
            (other[0] == scene->tokens) != (other[1] == scene->tokens))
            return other[0] == scene->tokens ? 0 : 1;
    }
    return shape[2] == scene->tokens || scene->heads_first ? 1 : 0;
}

/* Where the tokens are: their axis among the squeezed ones, `rank` when there are none in it. */
static unsigned token_axis(const struct ts_scene *scene, size_t pair, const uint64_t *shape, unsigned rank)
{
    for (unsigned i = 0; i < rank && scene->tokens > 1; i++)
        if (shape[i] == scene->tokens)
            return i == 0 && rank == 3 && shape[1] == scene->tokens ? ambiguous_axis(scene, pair, shape) : i;
    return rank;
}

/* What the values use, or what is left of them when they were printed. */
static int bits_of(const struct ts_view *view, const float *values, size_t count)
{
    const int bits = ts_mantissa_bits(values, count), printed = view->tensor->printed_bits;
    return printed && printed < bits ? printed : bits;
}

bool ts_scene_token(const struct ts_scene *scene, size_t i, uint64_t index, uint64_t *token)
{
    const struct ts_pair *pair = &scene->pairs[i];
    unsigned rank, dropped, axis;
    const uint64_t *shape;
    uint64_t after = 1;
    if (pair->problem || pair->a.rank == 0 || index >= pair->a.count)
        return false;
    shape = squeezed(&pair->a, &rank, &dropped);
    axis = token_axis(scene, i, shape, rank);
    if (axis == rank)
        return false;
    for (unsigned k = axis + 1; k < rank; k++)
        after *= shape[k];
    *token = index / after % scene->tokens;
    return true;
}

void ts_scene_take(struct ts_scene *scene, const uint64_t *tokens, size_t count)
{
    bool replaced[TAKEN] = {false};
    if (scene->taken_count == scene->tokens || scene->loaded)
        return;
    for (size_t i = 0; i < count; i++) {
        size_t nearest = TAKEN;
        bool present = tokens[i] >= scene->tokens;
        for (size_t k = 0; k < scene->taken_count; k++)
            present = present || scene->taken[k] == tokens[i];
        /* the order stays when a token takes the place of one beside it; the ends stay */
        for (size_t k = 8; k + 8 < scene->taken_count && !present; k++)
            if (!replaced[k] && scene->taken[k - 1] < tokens[i] && tokens[i] < scene->taken[k + 1])
                nearest = k;
        if (nearest < TAKEN) {
            scene->taken[nearest] = tokens[i];
            replaced[nearest] = true;
        }
    }
}

static enum ts_status load(struct ts_scene *scene, struct ts_actor *actor, struct ts_error *error)
{
    const struct ts_pair *pair = &scene->pairs[actor->pair];
    unsigned rank, dropped, axis;
    const uint64_t *shape;
    uint64_t width;
    bool single = scene->tokens == 1;
    actor->error = (double)NAN;
    if (pair->problem || pair->a.rank == 0 || pair->a.count == 0 || !scene->tokens || pair->guess ||
        ts_type_is_integer(pair->a.tensor->type) || ts_type_is_integer(pair->b.tensor->type) ||
        ts_type_info(pair->a.tensor->type)->components != 1 || ts_type_info(pair->b.tensor->type)->components != 1)
        return TS_OK;
    shape = squeezed(&pair->a, &rank, &dropped);
    axis = token_axis(scene, actor->pair, shape, rank);
    actor->rows = axis < rank ? scene->taken_count : 1;
    width = axis < rank ? pair->a.count / scene->tokens : pair->a.count;
    if (width * actor->rows > LARGEST)
        return TS_OK;
    actor->width = (size_t)width;
    actor->whole = single || (axis < rank && scene->taken_count == scene->tokens);
    actor->heads = 1;
    if (rank >= 3 && axis < rank)
        actor->heads = (size_t)shape[axis == 0 ? 1 : 0];
    else if (single && rank >= 2)
        actor->heads = (size_t)shape[0];
    actor->inner = actor->heads ? actor->width / actor->heads : 0;
    actor->a = malloc(actor->rows * actor->width * sizeof *actor->a);
    actor->b = malloc(actor->rows * actor->width * sizeof *actor->b);
    if (!actor->a || !actor->b)
        return ts_fail_memory(error);
    TS_TRY(load_side(scene, &pair->a, axis, shape, rank, actor->width, actor->a, error));
    TS_TRY(load_side(scene, &pair->b, axis, shape, rank, actor->width, actor->b, error));
    hide_mask(actor);
    actor->bits_a = bits_of(&pair->a, actor->a, actor->rows * actor->width);
    actor->bits_b = bits_of(&pair->b, actor->b, actor->rows * actor->width);
    actor->usable = true;
    measure(scene, actor);
    return TS_OK;
}

struct ts_actor *ts_scene_next(struct ts_scene *scene, struct ts_error *error)
{
    struct ts_actor *actor = &scene->window[scene->loaded % TS_SCENE_WINDOW];
    free(actor->a);
    free(actor->b);
    *actor = (struct ts_actor){.pair = scene->loaded};
    if (load(scene, actor, error) != TS_OK)
        return NULL;
    scene->loaded++;
    return actor;
}

struct ts_actor *ts_scene_actor(struct ts_scene *scene, size_t pair)
{
    struct ts_actor *actor = &scene->window[pair % TS_SCENE_WINDOW];
    return pair < scene->loaded && actor->pair == pair && actor->usable ? actor : NULL;
}
