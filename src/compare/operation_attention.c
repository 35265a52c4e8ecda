/* Owns attention in one step: queries, keys and values in, context out, and nothing captured between, as kernels that
 * never write their scores leave it. Learnt are the factor, which keys a token sees, and a softcap. Sinks and biases by
 * distance are not tried. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/operation_search.h"

#define NEWEST     14                  /* earlier tensors among which the inputs are */
#define MOST_WORK  ((double)(1 << 27)) /* multiplications of one pass */
#define CLOSE      3.0                 /* times the tolerance, for one head of one token */
#define ON_A_LINE  0.95                /* of the squares: a softcap bends it a little */
#define LOOKED_AT  8                   /* numbers of a head */
#define MOST_SCORE 500.0               /* that exp() still has a number for */
#define LOOKS      12                  /* tokens looked at first */
#define STEPS      4 /* lengths of a window that are tried: the first key it hides may have mattered little */

/* Keys that a token at this place sees: [*from, *to). */
static void seen_keys(const struct ts_operation *operation, size_t position, size_t sequence, size_t *from, size_t *to)
{
    *to = operation->flag ? position + 1 : sequence;
    *from = operation->flag && operation->group && *to > operation->group ? *to - operation->group : 0;
}

/* Where the numbers of each head begin in a row of queries, keys and values: they may be parts of one tensor. */
enum side { QUERIES, KEYS, VALUES, SIDES };

struct sides {
    const struct ts_actor *actors[SIDES]; /* of keys and values every token */
    const double *numbers[SIDES];
};

static size_t place_of(const struct ts_operation *operation, enum side side, size_t head)
{
    return (size_t)operation->table[side * operation->heads + head];
}

static const double *numbers_at(const struct ts_operation *operation, const struct sides *sides, enum side side,
                                size_t row, size_t head)
{
    return sides->numbers[side] + row * sides->actors[side]->width + place_of(operation, side, head);
}

/* Scores of one head of one token for the keys that it sees. */
static void score(const struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                  const struct sides *sides, size_t row, size_t head, size_t from, size_t to, double *scores)
{
    const size_t first = ts_scene_keys(scene, actor, row);
    const double *query = numbers_at(operation, sides, QUERIES, row, head);
    for (size_t key = from; key < to; key++) {
        const double *other = numbers_at(operation, sides, KEYS, first + key, head);
        const double plain = operation->factor * ts_dot(query, other, operation->size);
        scores[key] = operation->cap > 0 ? operation->cap * tanh(plain / operation->cap) : plain;
        if (operation->shaken > 0)
            scores[key] *= 1 + operation->shaken * ts_noise_at(actor->pair + 1,
                                                               (row * operation->heads + head) * actor->sequence + key);
    }
}

/* One head of one token. `weights` has room for a sequence. */
static void attend(const struct ts_scene *scene, const struct ts_operation *operation, const struct ts_actor *actor,
                   const struct sides *sides, size_t row, size_t head, double *weights, double *out)
{
    const size_t inner = actor->width / operation->heads, first = ts_scene_keys(scene, actor, row);
    double largest = -INFINITY, sum = 0;
    size_t from, to;
    seen_keys(operation, ts_scene_position(scene, actor, row), actor->sequence, &from, &to);
    score(scene, operation, actor, sides, row, head, from, to, weights);
    for (size_t key = from; key < to; key++)
        largest = weights[key] > largest ? weights[key] : largest;
    memset(out, 0, inner * sizeof *out);
    for (size_t key = from; key < to; key++) {
        const double *value = numbers_at(operation, sides, VALUES, first + key, head);
        const double weight = exp(weights[key] - largest);
        sum += weight;
        for (size_t i = 0; i < inner; i++)
            out[i] += weight * value[i];
    }
    for (size_t i = 0; i < inner; i++)
        out[i] /= sum;
}

/* One head of all tokens, its softmax over the queries of each key. `sums` has room for every token, `weights` for a
 * sequence. Exponentials that overflow leave NaN, which are nobody's result. */
static void attend_across(const struct ts_scene *scene, const struct ts_operation *operation,
                          const struct ts_actor *actor, const struct sides *sides, size_t head, double *weights,
                          double *sums, double *out)
{
    const size_t inner = actor->width / operation->heads;
    memset(sums, 0, actor->rows * sizeof *sums);
    for (size_t at = 0; at < 2 * actor->rows; at++) {
        const size_t row = at % actor->rows, first = ts_scene_keys(scene, actor, row);
        double *to = out + row * actor->width + head * inner;
        size_t from, end;
        seen_keys(operation, ts_scene_position(scene, actor, row), actor->sequence, &from, &end);
        score(scene, operation, actor, sides, row, head, from, end, weights);
        if (at >= actor->rows)
            memset(to, 0, inner * sizeof *to);
        for (size_t key = from; key < end; key++) {
            const double *value = numbers_at(operation, sides, VALUES, first + key, head), weight = exp(weights[key]);
            if (at < actor->rows)
                sums[first + key] += weight;
            for (size_t i = 0; i < inner && at >= actor->rows; i++)
                to[i] += weight / sums[first + key] * value[i];
        }
    }
}

bool ts_apply_attention_across(const struct ts_scene *scene, const struct ts_operation *operation,
                               const struct ts_actor *actor, const struct ts_actor *const from[3],
                               double *const *inputs, double *out)
{
    const struct sides sides = {{from[0], from[1], from[2]}, {inputs[0], inputs[1], inputs[2]}};
    double *weights = malloc((actor->sequence + actor->rows) * sizeof *weights);
    const bool good = weights && actor->whole;
    for (size_t head = 0; head < operation->heads && good; head++)
        attend_across(scene, operation, actor, &sides, head, weights, weights + actor->sequence, out);
    free(weights);
    return good;
}

void ts_apply_attention(const struct ts_scene *scene, const struct ts_operation *operation,
                        const struct ts_actor *actor, const struct ts_actor *const from[3], double *const *inputs,
                        double *out)
{
    const struct sides sides = {{from[0], from[1], from[2]}, {inputs[0], inputs[1], inputs[2]}};
    const size_t inner = actor->width / operation->heads;
    double *weights = malloc(actor->sequence * sizeof *weights);
    if (!weights)
        memset(out, 0, actor->rows * actor->width * sizeof *out);
    for (size_t row = 0; row < actor->rows && weights; row++)
        for (size_t head = 0; head < operation->heads; head++)
            attend(scene, operation, actor, &sides, row, head, weights, out + row * actor->width + head * inner);
    free(weights);
}

/* Something to learn from: the sides with every token as doubles, and room. The operation's table is the look's. */
struct look {
    struct ts_search *search;
    struct ts_operation operation;
    struct sides sides;
    double *numbers[SIDES], *weights, *out;
};

static bool is_close(const struct ts_search *search, double error, double size)
{
    return error <= CLOSE * CLOSE * search->tolerance * search->tolerance * size;
}

static bool fits_at(const struct look *look, size_t row, size_t head)
{
    const struct ts_actor *actor = look->search->actor;
    const size_t inner = actor->width / look->operation.heads;
    const float *wanted = actor->a + row * actor->width + head * inner;
    double error = 0, size = 0;
    attend(look->search->scene, &look->operation, actor, &look->sides, row, head, look->weights, look->out);
    for (size_t i = 0; i < inner; i++) {
        error += (look->out[i] - (double)wanted[i]) * (look->out[i] - (double)wanted[i]);
        size += (double)wanted[i] * (double)wanted[i];
    }
    return is_close(look->search, error, size);
}

/* Some tokens, each with another head; of few tokens all. */
static bool fits(const struct look *look)
{
    const size_t rows = look->search->actor->rows, count = rows < LOOKS ? rows : LOOKS;
    for (size_t i = 0; i < count; i++)
        if (!fits_at(look, rows - 1 - i * rows / count, i % look->operation.heads))
            return false;
    return true;
}

static bool consider(struct look *look)
{
    struct ts_operation operation = look->operation;
    const size_t bytes = operation.table_count * sizeof *operation.table;
    if (!fits(look))
        return false;
    operation.table = malloc(bytes);
    if (!operation.table)
        return false;
    memcpy(operation.table, look->operation.table, bytes);
    return ts_search_consider(look->search, &operation);
}

/* A window hides the first key from the token that is as far behind as the window is long: the first one that does not
 * fit. */
static bool consider_window(struct look *look)
{
    const struct ts_actor *actor = look->search->actor;
    size_t length = 0;
    bool good = true;
    for (size_t row = 0; row < actor->rows && good; row++) {
        length = ts_scene_position(look->search->scene, actor, row);
        for (size_t head = 0; head < look->operation.heads && good; head++)
            good = fits_at(look, row, head);
    }
    for (size_t step = 0; !good && step < STEPS && length > step + 1; step++) {
        look->operation.group = length - step;
        if (consider(look))
            return true;
    }
    look->operation.group = 0;
    return false;
}

static bool learn_constants(struct look *look)
{
    static const double caps[] = {50, 30, 20, 15, 100};
    const double usual = 1 / sqrt((double)look->operation.size);
    const double factors[2] = {usual, look->operation.factor};
    for (size_t f = 0; f < 2; f++) {
        look->operation.factor = factors[f];
        if (!(factors[f] > 0) || (f && fabs(factors[f] / usual - 1) < 1e-3))
            continue;
        if (consider(look) || (look->operation.flag && consider_window(look)))
            return true;
    }
    look->operation.factor = usual;
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        look->operation.cap = caps[i];
        if (consider(look) || (look->operation.flag && consider_window(look)))
            return true;
    }
    return false;
}

/* Three tensors, or one, with the places that are in the table. */
static bool learn_three(struct ts_search *search, const struct ts_actor *const from[SIDES], size_t heads, size_t size,
                        double *places, bool causal, double factor)
{
    struct look look = {.search = search,
                        .operation = {.kind = TS_OPERATION_ATTENTION,
                                      .inputs = {from[0]->pair, from[1]->pair, from[2]->pair},
                                      .input_count = SIDES,
                                      .heads = heads,
                                      .size = size,
                                      .factor = factor,
                                      .flag = causal,
                                      .table = places,
                                      .table_count = SIDES * heads}};
    bool found = false, good = true;
    look.weights = malloc(search->actor->sequence * sizeof *look.weights);
    look.out = malloc(search->actor->width * sizeof *look.out);
    for (int side = 0; side < SIDES && good; side++) {
        const struct ts_actor *actor = side ? ts_scene_all(search->scene, from[side]->pair) : from[side];
        look.numbers[side] = actor ? ts_as_doubles(actor->a, actor->rows * actor->width) : NULL;
        look.sides.actors[side] = actor;
        look.sides.numbers[side] = look.numbers[side];
        good = look.numbers[side] != NULL;
    }
    if (good && look.weights && look.out)
        found = learn_constants(&look);
    for (int side = 0; side < SIDES; side++)
        free(look.numbers[side]);
    free(look.weights);
    free(look.out);
    return found;
}

static bool has_tokens_of(const struct ts_actor *other, const struct ts_actor *actor)
{
    return other->rows == actor->rows && !other->apart;
}

static bool is_affordable(const struct ts_actor *actor, const struct ts_actor *q)
{
    return (double)q->rows * (double)actor->sequence * (double)(q->width + actor->width) <= MOST_WORK;
}

/* Heads of a tensor that may be the queries; 0 when it cannot. */
static size_t query_heads(const struct ts_actor *actor, const struct ts_actor *q)
{
    const size_t heads = q->heads > 1 ? q->heads : actor->heads;
    return has_tokens_of(q, actor) && heads > 1 && actor->width % heads == 0 && q->width % heads == 0 &&
                   q->width / heads >= 2 && is_affordable(actor, q)
               ? heads
               : 0;
}

static bool is_key(const struct ts_actor *q, const struct ts_actor *k, size_t heads)
{
    const size_t size = q->width / heads;
    return k != q && has_tokens_of(k, q) && k->width <= q->width && k->width % size == 0 &&
           heads % (k->width / size) == 0 && (k->heads == 1 || k->inner == size);
}

/* The second token sees two keys: c = p * v0 + (1 - p) * v1, and log(p / (1 - p)) is the factor times the difference of
 * the two products. A line through the heads, if they lie on one; 0 when they do not, or when there is no such token.
 * Nearly all queries and keys that are tried fail here, before anything large is read. */
static double slope_of_second(const struct ts_search *search, const struct ts_actor *const from[SIDES], size_t heads,
                              size_t size, const double *places)
{
    const struct ts_actor *actor = search->actor;
    const size_t inner = actor->width / heads;
    double xx = 0, xy = 0, yy = 0;
    if (ts_scene_position(search->scene, actor, 0) != 0 || ts_scene_position(search->scene, actor, 1) != 1)
        return 0;
    for (size_t head = 0; head < heads; head++) {
        const float *q = from[QUERIES]->a + from[QUERIES]->width + (size_t)places[head], *k[2], *v[2];
        double along = 0, length = 0, product = 0, share;
        for (size_t row = 0; row < 2; row++) {
            k[row] = from[KEYS]->a + row * from[KEYS]->width + (size_t)places[heads + head];
            v[row] = from[VALUES]->a + row * from[VALUES]->width + (size_t)places[2 * heads + head];
        }
        for (size_t i = 0; i < inner; i++) {
            const double step = (double)v[0][i] - (double)v[1][i];
            along += ((double)actor->a[actor->width + head * inner + i] - (double)v[1][i]) * step;
            length += step * step;
        }
        for (size_t i = 0; i < size; i++)
            product += (double)q[i] * ((double)k[0][i] - (double)k[1][i]);
        share = length > 0 ? along / length : 0;
        if (share > 1e-4 && share < 1 - 1e-4) {
            xx += product * product;
            xy += product * log(share / (1 - share));
            yy += log(share / (1 - share)) * log(share / (1 - share));
        }
    }
    return xy > 0 && xy * xy > ON_A_LINE * xx * yy ? xy / xx : 0;
}

/* Numbers of `size` to a head, one behind the other, heads that share them side by side. */
static void place_in_order(double *places, size_t heads, size_t width, size_t size, size_t start)
{
    const size_t repeat = heads / (width / size);
    for (size_t head = 0; head < heads; head++)
        places[head] = (double)(start + head / repeat * size);
}

/* A token that sees itself alone has its own value for context: where that stands in a row of v, for each head. */
static bool find_values(const struct ts_search *search, const struct ts_actor *v, size_t heads, double *places)
{
    const struct ts_actor *actor = search->actor;
    const size_t inner = actor->width / heads;
    if (ts_scene_position(search->scene, actor, 0) != 0 || !has_tokens_of(v, actor))
        return false;
    for (size_t head = 0; head < heads; head++) {
        const float *wanted = actor->a + head * inner;
        bool found = false;
        for (size_t at = 0; at + inner <= v->width && !found; at++) {
            double error = 0, size = 0;
            for (size_t i = 0; i < inner && (i < 4 || is_close(search, error, 16 * size)); i++) {
                error += ((double)v->a[at + i] - (double)wanted[i]) * ((double)v->a[at + i] - (double)wanted[i]);
                size += (double)wanted[i] * (double)wanted[i];
                found = i + 1 == inner && size > 0 && is_close(search, error, size);
            }
            places[head] = (double)at;
        }
        if (!found)
            return false;
    }
    return true;
}

static bool is_value(const struct ts_actor *actor, const struct ts_actor *v, size_t heads)
{
    const size_t inner = actor->width / heads;
    return has_tokens_of(v, actor) && v->width % inner == 0 && v->width <= actor->width &&
           heads % (v->width / inner) == 0;
}

static bool learn_causal(struct ts_search *search, const struct ts_actor *const from[SIDES], size_t heads, size_t size,
                         double *places)
{
    const double factor = slope_of_second(search, from, heads, size, places);
    return factor > 0 && learn_three(search, from, heads, size, places, true, factor);
}

/* The same for tokens that see all others: one head of one of them, before anything is turned into doubles. All tokens
 * are at hand. */
static bool may_see_all(const struct ts_search *search, const struct ts_actor *const from[SIDES], size_t heads,
                        size_t size, const double *places)
{
    const struct ts_actor *actor = search->actor;
    const size_t inner = actor->width / heads, row = actor->rows / 2, first = ts_scene_keys(search->scene, actor, row);
    const float *q = from[QUERIES]->a + row * from[QUERIES]->width + (size_t)places[0];
    const float *wanted = actor->a + row * actor->width;
    double sum = 0, error = 0, length = 0, found[LOOKED_AT] = {0};
    const size_t numbers = inner < LOOKED_AT ? inner : LOOKED_AT;
    for (size_t key = 0; key < actor->sequence; key++) {
        const float *k = from[KEYS]->a + (first + key) * from[KEYS]->width + (size_t)places[heads];
        const float *v = from[VALUES]->a + (first + key) * from[VALUES]->width + (size_t)places[2 * heads];
        double score = 0;
        for (size_t i = 0; i < size; i++)
            score += (double)q[i] * (double)k[i];
        score = exp(fmin(score / sqrt((double)size), MOST_SCORE));
        sum += score;
        for (size_t i = 0; i < numbers; i++)
            found[i] += score * (double)v[i];
    }
    for (size_t i = 0; i < numbers; i++) {
        error += (found[i] / sum - (double)wanted[i]) * (found[i] / sum - (double)wanted[i]);
        length += (double)wanted[i] * (double)wanted[i];
    }
    return is_close(search, error, 4 * length);
}

/* Queries and keys before the values in one tensor, three of the same width. The heads are the context's: what axes the
 * three have is another matter. */
static bool learn_thirds(struct ts_search *search, const struct ts_actor *whole, double *places, bool *causal)
{
    const struct ts_actor *const from[SIDES] = {whole, whole, whole};
    const size_t heads = search->actor->heads, width = search->actor->width;
    if (heads < 2 || whole->width != 3 * width || !is_affordable(search->actor, whole) ||
        !find_values(search, whole, heads, places + 2 * heads))
        return false;
    *causal = true;
    place_in_order(places, heads, width, width / heads, 0);
    place_in_order(places + heads, heads, width, width / heads, width);
    return learn_causal(search, from, heads, width / heads, places);
}

static bool learn_with(struct ts_search *search, const struct ts_actor *q, const struct ts_actor *v, size_t heads,
                       double *places, bool causal)
{
    const size_t size = q->width / heads;
    for (size_t j = 0; j < search->all_count && j < NEWEST; j++) {
        const struct ts_actor *const from[SIDES] = {q, search->all[j], v};
        if (from[1] == v || !is_key(q, from[1], heads))
            continue;
        place_in_order(places, heads, q->width, size, 0);
        place_in_order(places + heads, heads, from[1]->width, size, 0);
        if (causal ? learn_causal(search, from, heads, size, places)
                   : may_see_all(search, from, heads, size, places) &&
                         learn_three(search, from, heads, size, places, false, 0))
            return true;
    }
    return false;
}

void ts_learn_attention(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    const size_t count = search->all_count < NEWEST ? search->all_count : NEWEST;
    double *places;
    bool causal = false, found = false;
    if (!search->scene->in_one_step || actor->apart || actor->rows < 3 || actor->sequence < 3 ||
        !(places = malloc(SIDES * actor->width * sizeof *places)))
        return;
    /* first those that see only what came before them; all of many tokens are too many to try on a guess */
    for (int turn = 0; turn < (actor->whole ? 2 : 1) && !causal && !found; turn++)
        for (size_t i = 0; i < count && !found; i++) {
            const struct ts_actor *q = search->all[i];
            const size_t heads = query_heads(actor, q);
            found = turn == 0 && learn_thirds(search, q, places, &causal);
            for (size_t l = 0; l < count && heads && !found; l++) {
                const struct ts_actor *v = search->all[l];
                if (v == q || (turn ? !is_value(actor, v, heads) : !find_values(search, v, heads, places + 2 * heads)))
                    continue;
                causal = causal || turn == 0;
                if (turn)
                    place_in_order(places + 2 * heads, heads, v->width, actor->width / heads, 0);
                found = learn_with(search, q, v, heads, places, turn == 0);
            }
        }
    free(places);
}
