/* Owns the tokens that are looked at, and loading tensors of a trace with them: the window of a scene. */
#include "compare/scene.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "compare/delta_close.h"
#include "compare/scene_place.h"
#include "tensor/mask.h"
#include "tensor/view_box.h"
#include "tensor/view_far.h"

/* Tokens taken of a longer sequence; all of them up to WHOLE, where tensors have no more than WHOLE_NUMBERS with them,
 * as there is nothing that so many do not tell; and never more than the window has room for. */
#define TAKEN         48
#define TAKEN_LEAST   12
#define WHOLE         256
#define WHOLE_NUMBERS ((uint64_t)1 << 16)
#define WINDOW_MOST   ((uint64_t)80 << 20) /* bytes of both sides */
#define HELD_MOST     ((size_t)96 << 20)   /* the same with what has no tokens, or more numbers than most */
#define VOCABULARY    ((uint64_t)1 << 16)  /* numbers of a token that only logits have, of which there are few */
#define FORGET_ABOVE  ((uint64_t)4 << 20)  /* elements */
#define FORGET_WHOLE  ((uint64_t)1 << 18)  /* the same of what is read as a whole */
#define MANY          512                  /* elements read at a time */
/* Bytes that come along with a look at one: 64 KB, or two megabytes where the system keeps the file in such pages. */
#define BESIDE ((uint64_t)2 << 20)
/* Numbers of one side of one actor: 16 MiB of floats; the logits of some tokens may have more. */
#define LARGEST      ((uint64_t)1 << 22)
#define LARGEST_LAST ((uint64_t)1 << 23)
/* A run's judge has several at once, and takes the first tokens of those that have more; not fewer than these. */
#define WIDE_MOST  ((uint64_t)1 << 21)
#define WIDE_LEAST 4
/* The same for scores of a long sequence, and for its keys and values with every token: one, and all that are held. */
#define SCORES_MOST  ((uint64_t)1 << 21)
#define ALL_MOST     ((uint64_t)1 << 22)
#define ALL_TOGETHER ((uint64_t)3 << 22)
/* A sequence of its own shows in other tensors with as many rows: half as many of these as this. Of the other end of
 * cross-attention each layer has keys and values. */
#define NEIGHBOURS 8
/* The most that a print loses of a number, over 2^-bits of it or of a typical one: with d digits half of 10^(1 - d),
 * where bits are those of which 0.2123 * 2^-bits is 0.1338 * 10^(1 - d); with as many decimals each it is less. */
#define PRINTED 0.8
/* Steps of a grid are so many times that, or whatever is printed lies on it. */
#define TELLING 8

double ts_rounding(int mantissa_bits)
{
    return ldexp(0.2123, -mantissa_bits);
}

int ts_mantissa_bits(const float *values, size_t count)
{
    static const int steps[] = {2, 3, 7, 10};
    size_t over[4] = {0}, alike[4] = {0}, counted = 0;
    uint32_t first[4] = {0}, only = 0;
    bool constant = true;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = ts_float_bits(values[i]);
        if ((bits & 0x7fffffff) == 0 || (bits & 0x7f800000) == 0x7f800000)
            continue;
        only = counted++ ? only : bits & 0x7fffffff;
        constant = constant && (bits & 0x7fffffff) == only;
        for (int k = 0; k < 4; k++) {
            bool finer = (bits & ((1u << (23 - steps[k])) - 1)) != 0;
            first[k] = finer && !over[k] ? bits & 0x7fffffff : first[k];
            over[k] += finer;
            alike[k] += finer && (bits & 0x7fffffff) == first[k];
        }
    }
    if (!counted || (constant && counted >= 8)) /* one number, however often, says nothing about the others */
        return 23;
    /* few small whole numbers are on every grid: for one of fp8 it takes more of them */
    for (int k = counted < 32 ? 2 : 0; k < 4; k++)
        /* one in two hundred may be a constant, and any number of the same one: values that were clamped */
        if ((over[k] == alike[k] ? over[k] * 2 : over[k] * 200) <= counted && (counted >= 32 || !over[k]))
            return steps[k];
    return 23;
}

/* The distance of a number from those with so few bits behind its first, and of two of them. */
static double distance_to_grid(double value, int bits, double *step)
{
    int exponent;
    frexp(value, &exponent);
    *step = ldexp(1, exponent - 1 - bits);
    return fabs(value - nearbyint(value / *step) * *step);
}

int ts_printed_mantissa_bits(const float *values, size_t count, int printed)
{
    static const int steps[] = {2, 3, 7, 10};
    double squares = 0, typical;
    size_t finite = 0;
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0 && isfinite(values[i])) {
            squares += (double)values[i] * (double)values[i];
            finite++;
        }
    typical = finite ? sqrt(squares / (double)finite) : 0;
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        size_t told = 0, off = 0, same = 0;
        double first = 0;
        for (size_t i = 0; i < count; i++) {
            const double value = fabs((double)values[i]), lost = PRINTED * ldexp(fmax(value, typical), -printed);
            double step, distance;
            if (value == 0 || !isfinite(value))
                continue;
            distance = distance_to_grid(value, steps[k], &step);
            if (step < TELLING * lost) /* anything is as near as that */
                continue;
            first = told++ ? first : value;
            same += value == first;
            off += distance > lost;
        }
        if (told >= (steps[k] < 7 ? 32 : 12) && same < told && off * 200 <= told)
            return steps[k] < printed ? steps[k] : printed;
    }
    return printed;
}

uint64_t ts_scene_sequence(const struct ts_scene *scene)
{
    return scene->batch > 1 ? scene->tokens / scene->batch : scene->tokens;
}

/* Scores of every head with every key are far wider than anything else: of those fewer tokens are held. */
static size_t rows_for(const struct ts_scene *scene)
{
    uint64_t widest = ts_place_scores(scene), rows = widest ? SCORES_MOST / widest : TAKEN, mean, window, room;
    ts_place_widths(scene, VOCABULARY, &mean, &window);
    room = window ? WINDOW_MOST / (2 * sizeof(float) * window) : scene->tokens;
    if (scene->tokens <= WHOLE && scene->tokens <= room && scene->tokens * mean <= WHOLE_NUMBERS)
        return (size_t)scene->tokens;
    rows = rows > room ? room : rows;
    rows = rows > TAKEN ? TAKEN : rows < TAKEN_LEAST ? TAKEN_LEAST : rows;
    return rows < scene->tokens ? (size_t)rows : (size_t)scene->tokens;
}

/* Tokens at either end that are always among those taken. */
static size_t edge_of(const struct ts_scene *scene)
{
    return scene->taken_count / 4 < 8 ? scene->taken_count / 4 : 8;
}

/* `tokens` 0: as many as most tensors have. */
static enum ts_status open_with(struct ts_scene *scene, const struct ts_pair *pairs, size_t count, uint64_t tokens,
                                struct ts_error *error)
{
    uint64_t sequence = 0;
    size_t edge;
    *scene = (struct ts_scene){.pairs = pairs, .pair_count = count, .tokens = tokens, .batch = 1};
    if (!tokens) {
        scene->batch = ts_place_batch(pairs, count, &sequence);
        scene->tokens = scene->batch > 1 ? scene->batch * sequence : ts_place_tokens(pairs, count);
    }
    ts_place_heads(scene);
    scene->taken_count = rows_for(scene);
    scene->taken = calloc(scene->taken_count + 1, sizeof *scene->taken);
    scene->aside = calloc(scene->taken_count + 1, sizeof *scene->aside);
    if (!scene->taken || !scene->aside) {
        ts_scene_release(scene);
        return ts_fail_memory(error);
    }
    edge = edge_of(scene);
    for (size_t i = 0; i < scene->taken_count; i++)
        /* both ends, where positions and masks go wrong first, and a spread between */
        scene->taken[i] = scene->taken_count == scene->tokens ? i
                          : i < edge                          ? i
                          : i >= scene->taken_count - edge
                              ? scene->tokens - (scene->taken_count - i)
                              : edge + (i - edge) * (scene->tokens - 2 * edge) / (scene->taken_count - 2 * edge);
    return TS_OK;
}

enum ts_status ts_scene_open(struct ts_scene *scene, const struct ts_pair *pairs, size_t count, struct ts_error *error)
{
    return open_with(scene, pairs, count, 0, error);
}

enum ts_status ts_scene_open_like(struct ts_scene *scene, const struct ts_scene *other, struct ts_error *error)
{
    TS_TRY(open_with(scene, other->pairs, other->pair_count, other->batch > 1 ? 0 : other->tokens, error));
    if (other->taken_count <= scene->taken_count) {
        scene->taken_count = other->taken_count;
        memcpy(scene->taken, other->taken, other->taken_count * sizeof *other->taken);
    }
    return TS_OK;
}

static void drop_all(struct ts_scene *scene)
{
    for (size_t i = 0; i < scene->all_count; i++) {
        free(scene->all[i].a);
        free(scene->all[i].b);
    }
    scene->all_count = 0;
}

void ts_scene_release(struct ts_scene *scene)
{
    drop_all(scene);
    for (size_t i = 0; i < TS_SCENE_WINDOW; i++)
        ts_scene_drop(&scene->window[i]);
    free(scene->taken);
    free(scene->aside);
    free(scene->turn.table);
    *scene = (struct ts_scene){0};
}

static enum ts_status read_token(const struct ts_scene *scene, const struct ts_view *view, const struct ts_place *place,
                                 uint64_t token, uint64_t column, uint64_t count, float *out, struct ts_error *error)
{
    const uint64_t *shape = place->shape;
    uint64_t after = 1, length = 1, sequence = ts_scene_sequence(scene), start, own;
    for (unsigned i = 0; i < place->rank; i++) {
        length *= shape[i];
        after *= i > place->axis ? shape[i] : 1;
    }
    start = place->batched ? token / sequence * length : 0;
    own = place->all ? token : token % sequence;
    while (count) {
        uint64_t within = column % after, piece = after - within < count ? after - within : count;
        TS_TRY(ts_view_read_f32(view, start + (column / after * shape[place->axis] + own) * after + within,
                                (size_t)piece, out, error));
        out += piece;
        column += piece;
        count -= piece;
    }
    return TS_OK;
}

/* Far from each other in the file, and each token a row of the view: [tokens, width]. */
static bool is_rows_of(const struct ts_scene *scene, const struct ts_view *view, const struct ts_place *place,
                       const struct ts_actor *actor)
{
    return view->rank == 2 && place->rank == 2 && place->axis == 0 && !place->batched &&
           view->shape[1] == actor->width && (place->all || ts_scene_sequence(scene) >= view->shape[0]) &&
           scene->taken[scene->taken_count - 1] < view->shape[0] && ts_view_is_far(view);
}

/* One side, tokens first. */
static enum ts_status load_side(const struct ts_scene *scene, const struct ts_view *view, const struct ts_place *place,
                                const struct ts_actor *actor, float *out, struct ts_error *error)
{
    uint64_t sequence = ts_scene_sequence(scene);
    if (place->axis == place->rank) { /* no tokens in it: a row that serves all tokens of its sequence */
        uint64_t first = actor->rows == 1 && place->batched ? scene->taken[0] / sequence : 0;
        TS_TRY(ts_view_read_f32(view, first * actor->width, actor->rows * actor->width, out, error));
        if (view->count > FORGET_WHOLE)
            ts_view_forget(view, 0, view->count);
        return TS_OK;
    }
    if (is_rows_of(scene, view, place, actor))
        return ts_view_read_rows_f32(view, scene->taken, actor->rows, out, error);
    for (size_t row = 0; row < actor->rows; row++) {
        TS_TRY(read_token(scene, view, place, scene->taken[row], 0, actor->width, out + row * actor->width, error));
        /* of a large tensor not even the pages around these rows stay resident */
        if (view->count > FORGET_ABOVE && (row % 32 == 31 || row + 1 == actor->rows))
            ts_view_forget(view, 0, view->count);
    }
    return TS_OK;
}

void ts_scene_measure(const struct ts_scene *scene, struct ts_actor *actor)
{
    double error = 0, norm = 0;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < actor->width && (actor->rows == 1 || actor->apart || !scene->aside[row]); i++) {
            double a = (double)actor->a[row * actor->width + i], b = (double)actor->b[row * actor->width + i];
            if (isfinite(a) && isfinite(b)) {
                error += (b - a) * (b - a);
                norm += a * a;
            }
        }
    actor->norm_a = sqrt(norm);
    actor->error = norm > 0 ? sqrt(error / norm) : error > 0 ? (double)INFINITY : 0.0;
}

/* Scores are captured with their mask. What a mask made of them becomes minus infinity, which every measure leaves out.
 * Elsewhere one very low value, many times, is taken for a mask where the reference has it and the candidate is as low.
 */
static void hide_mask(const struct ts_pair *pair, struct ts_actor *actor)
{
    size_t total = actor->rows * actor->width, masked = 0;
    float lowest = INFINITY;
    if (pair->masked) {
        ts_hide_masked_scores(actor->a, total);
        ts_hide_masked_scores(actor->b, total);
        return;
    }
    for (size_t i = 0; i < total; i++)
        lowest = actor->a[i] < lowest ? actor->a[i] : lowest;
    if (!ts_is_masked_score((double)lowest))
        return;
    for (size_t i = 0; i < total; i++)
        masked += actor->a[i] == lowest;
    if (masked < 2 || masked * 100 < total)
        return;
    for (size_t i = 0; i < total; i++)
        if (actor->a[i] == lowest) {
            actor->a[i] = -INFINITY;
            if (ts_is_masked_score((double)actor->b[i]))
                actor->b[i] = -INFINITY;
        }
}

enum ts_status ts_scene_open_near(struct ts_scene *scene, const struct ts_pair *pairs, size_t count, size_t index,
                                  struct ts_error *error)
{
    struct ts_place place;
    TS_TRY(ts_scene_open(scene, pairs, count, error));
    if (index >= count || scene->batch > 1 || pairs[index].problem || pairs[index].a.rank < 2)
        return TS_OK;
    ts_place_find(scene, index, &place);
    if (place.axis < place.rank || place.rank < 2)
        return TS_OK;
    /* scores have their heads in front of it */
    for (unsigned axis = 0; axis < 2 && axis + 1 < place.rank; axis++) {
        uint64_t own = place.shape[axis];
        size_t votes = 0;
        for (size_t i = 0; i < count && votes < NEIGHBOURS / 2 && own > 1; i++) {
            struct ts_place other;
            if (i == index || pairs[i].problem || pairs[i].a.rank < 2)
                continue;
            ts_place_find(scene, i, &other);
            votes += other.axis == other.rank && other.rank >= 2 && other.shape[0] == own;
        }
        if (votes < NEIGHBOURS / 2)
            continue;
        ts_scene_release(scene);
        return open_with(scene, pairs, count, own, error);
    }
    return TS_OK;
}

size_t ts_scene_row(const struct ts_scene *scene, const struct ts_actor *from, size_t row)
{
    if (from->rows == 1)
        return 0;
    return from->apart ? (size_t)(scene->taken[row] / ts_scene_sequence(scene)) : row;
}

uint64_t ts_scene_first(const struct ts_scene *scene)
{
    uint64_t sequence = ts_scene_sequence(scene), first = sequence ? scene->taken[0] / sequence : 0;
    bool lone = sequence && scene->taken_count && scene->taken[scene->taken_count - 1] / sequence == first;
    return lone ? first * sequence : 0;
}

void ts_scene_token_text(const struct ts_scene *scene, uint64_t token, char *out, size_t size)
{
    uint64_t sequence = ts_scene_sequence(scene);
    if (scene->batch > 1)
        snprintf(out, size, "token %" PRIu64 " of sequence %" PRIu64, token % sequence, token / sequence);
    else
        snprintf(out, size, "token %" PRIu64, token);
}

/* What the values use, or what is left of them when they were printed, or what their parts use. */
static int bits_of(const struct ts_view *view, const float *values, size_t count)
{
    const int bits = view->join == TS_JOIN_SUM ? ts_bits_in_use(view) : ts_mantissa_bits(values, count);
    const int printed = view->tensor->printed_bits;
    return printed && printed < bits ? ts_printed_mantissa_bits(values, count, printed) : bits;
}

void ts_scene_choose(struct ts_scene *scene, uint64_t token)
{
    uint64_t sequence = ts_scene_sequence(scene), first = sequence ? token / sequence * sequence : 0;
    size_t kept = 0;
    if (scene->batch <= 1 || scene->loaded || token >= scene->tokens)
        return;
    if (sequence <= scene->taken_count && sequence <= WHOLE) { /* all of it, even where a spread was taken */
        for (size_t i = 0; i < sequence; i++)
            scene->taken[kept++] = first + i;
    } else {
        for (size_t i = 0; i < scene->taken_count; i++)
            if (scene->taken[i] >= first && scene->taken[i] < first + sequence)
                scene->taken[kept++] = scene->taken[i];
    }
    scene->taken_count = kept ? kept : scene->taken_count;
}

void ts_scene_take(struct ts_scene *scene, const uint64_t *tokens, size_t count)
{
    bool replaced[TAKEN] = {false};
    size_t edge = edge_of(scene);
    if (scene->taken_count == scene->tokens || scene->taken_count > TAKEN || scene->loaded)
        return;
    for (size_t i = 0; i < count; i++) {
        size_t nearest = TAKEN;
        bool present = tokens[i] >= scene->tokens;
        for (size_t k = 0; k < scene->taken_count; k++)
            present = present || scene->taken[k] == tokens[i];
        /* the order stays when a token takes the place of one beside it; the ends stay */
        for (size_t k = edge; k + edge < scene->taken_count && !present; k++)
            if (!replaced[k] && scene->taken[k - 1] < tokens[i] && tokens[i] < scene->taken[k + 1])
                nearest = k;
        if (nearest < TAKEN) {
            scene->taken[nearest] = tokens[i];
            replaced[nearest] = true;
        }
    }
}

/* Are all the tokens that are looked at of one sequence? */
static bool is_lone(const struct ts_scene *scene)
{
    uint64_t sequence = ts_scene_sequence(scene);
    return scene->taken[0] / sequence == scene->taken[scene->taken_count - 1] / sequence;
}

/* Nothing but a few comes behind it. */
static bool is_last(const struct ts_scene *scene, size_t pair)
{
    return scene->pair_count - pair <= 4;
}

static enum ts_status load(const struct ts_scene *scene, struct ts_actor *actor, struct ts_error *error)
{
    const struct ts_pair *pair = &scene->pairs[actor->pair];
    struct ts_place place;
    uint64_t width, sequence = ts_scene_sequence(scene);
    bool single = scene->tokens == 1, tokens, lone;
    actor->error = (double)NAN;
    if (pair->problem || pair->a.rank == 0 || pair->a.count == 0 || !scene->tokens || pair->guess ||
        ts_type_is_integer(pair->a.tensor->type) || ts_type_is_integer(pair->b.tensor->type) ||
        ts_type_info(pair->a.tensor->type)->components != 1 || ts_type_info(pair->b.tensor->type)->components != 1)
        return TS_OK;
    ts_place_find(scene, actor->pair, &place);
    tokens = place.axis < place.rank;
    lone = is_lone(scene);
    actor->apart = !tokens && place.batched;
    actor->rows = tokens ? scene->taken_count : actor->apart && !lone ? (size_t)scene->batch : 1;
    width = pair->a.count / (place.batched ? scene->batch : 1) / (tokens ? place.shape[place.axis] : 1);
    if (scene->first_will_do && tokens && width <= WIDE_MOST / WIDE_LEAST && width * actor->rows > WIDE_MOST)
        actor->rows = (size_t)(WIDE_MOST / width);
    if (width > LARGEST_LAST || width * actor->rows > (is_last(scene, actor->pair) ? LARGEST_LAST : LARGEST))
        return TS_OK;
    actor->width = (size_t)width;
    actor->whole = single || (tokens && actor->rows == (lone ? sequence : scene->tokens));
    actor->sequence = tokens && !single ? (size_t)sequence : actor->rows;
    actor->heads = 1;
    if (place.rank >= 3 && tokens)
        actor->heads = (size_t)place.shape[place.axis == 0 ? 1 : 0];
    else if (single && place.rank >= 2)
        actor->heads = (size_t)place.shape[0];
    actor->inner = actor->heads ? actor->width / actor->heads : 0;
    actor->a = malloc(actor->rows * actor->width * sizeof *actor->a);
    actor->b = malloc(actor->rows * actor->width * sizeof *actor->b);
    if (!actor->a || !actor->b)
        return ts_fail_memory(error);
    TS_TRY(load_side(scene, &pair->a, &place, actor, actor->a, error));
    TS_TRY(load_side(scene, &pair->b, &place, actor, actor->b, error));
    hide_mask(pair, actor);
    actor->bits_a = bits_of(&pair->a, actor->a, actor->rows * actor->width);
    actor->bits_b = bits_of(&pair->b, actor->b, actor->rows * actor->width);
    actor->usable = true;
    ts_scene_measure(scene, actor);
    return TS_OK;
}

struct ts_actor *ts_scene_next(struct ts_scene *scene, struct ts_error *error)
{
    struct ts_actor actor;
    return ts_scene_load(scene, scene->loaded, &actor, error) == TS_OK ? ts_scene_enter(scene, &actor) : NULL;
}

enum ts_status ts_scene_load(const struct ts_scene *scene, size_t pair, struct ts_actor *actor, struct ts_error *error)
{
    enum ts_status status;
    *actor = (struct ts_actor){.pair = pair};
    status = load(scene, actor, error);
    if (status != TS_OK)
        ts_scene_drop(actor);
    return status;
}

static size_t held_by(const struct ts_actor *actor)
{
    return actor->usable ? actor->rows * actor->width * (sizeof *actor->a + sizeof *actor->b) : 0;
}

/* Caches of a fixed length and other giants without tokens are held as a whole: as many as there is room for. The
 * largest leave first, of equals the oldest; the newest stays. */
static void make_room(struct ts_scene *scene)
{
    size_t held = 0;
    for (size_t i = 0; i < TS_SCENE_WINDOW; i++)
        held += held_by(&scene->window[i]);
    while (held > HELD_MOST) {
        struct ts_actor *largest = NULL;
        for (size_t i = 0; i < TS_SCENE_WINDOW; i++) {
            struct ts_actor *one = &scene->window[i];
            if (one->pair + 1 < scene->loaded && held_by(one) &&
                (!largest || held_by(one) > held_by(largest) ||
                 (held_by(one) == held_by(largest) && one->pair < largest->pair)))
                largest = one;
        }
        if (!largest)
            return;
        held -= held_by(largest);
        ts_scene_drop(largest);
    }
}

struct ts_actor *ts_scene_enter(struct ts_scene *scene, struct ts_actor *actor)
{
    struct ts_actor *place = &scene->window[scene->loaded % TS_SCENE_WINDOW];
    drop_all(scene);
    ts_scene_drop(place);
    *place = *actor;
    *actor = (struct ts_actor){0};
    scene->loaded++;
    make_room(scene);
    return place;
}

void ts_scene_drop(struct ts_actor *actor)
{
    free(actor->a);
    free(actor->b);
    *actor = (struct ts_actor){.pair = actor->pair};
}

const struct ts_actor *ts_scene_foresee(const struct ts_scene *scene, const struct ts_actor *next, size_t count,
                                        struct ts_scene *foreseen)
{
    *foreseen = *scene;
    foreseen->turn.borrowed = true;
    foreseen->all_count = 0;
    for (size_t i = 0; i < count; i++)
        foreseen->window[foreseen->loaded++ % TS_SCENE_WINDOW] = next[i];
    return &foreseen->window[(foreseen->loaded - 1) % TS_SCENE_WINDOW];
}

void ts_scene_foreseen_release(struct ts_scene *foreseen)
{
    drop_all(foreseen);
    if (!foreseen->turn.borrowed)
        free(foreseen->turn.table);
    *foreseen = (struct ts_scene){0};
}

struct ts_actor *ts_scene_actor(struct ts_scene *scene, size_t pair)
{
    struct ts_actor *actor = &scene->window[pair % TS_SCENE_WINDOW];
    return pair < scene->loaded && actor->pair == pair && actor->usable ? actor : NULL;
}

/* Gives back what reading these tokens brought. Others may be reading beside it: where they stand one behind the other,
 * what is theirs stays. */
static void forget_tokens(const struct ts_scene *scene, const struct ts_view *view, const struct ts_place *place,
                          uint64_t first, size_t tokens)
{
    const uint64_t sequence = ts_scene_sequence(scene), row = view->count / place->shape[place->axis];
    const uint64_t own = place->all ? first : first % sequence;
    const uint64_t beside = BESIDE / (view->tensor->bytes / view->tensor->count + 1) + 1;
    uint64_t from = own * row, to = from + tokens * row;
    if (place->axis != 0 || place->batched || own + tokens > place->shape[0] || !ts_view_bytes(view)) {
        ts_view_forget(view, 0, view->count);
        return;
    }
    from = from > beside ? from - beside : 0;
    to = view->count - to > beside ? to + beside : view->count;
    ts_view_forget(view, from, to - from);
}

enum ts_status ts_scene_read(const struct ts_scene *scene, size_t pair, bool candidate, uint64_t first, size_t tokens,
                             size_t column, size_t count, float *out, struct ts_error *error)
{
    const struct ts_view *view = candidate ? &scene->pairs[pair].b : &scene->pairs[pair].a;
    struct ts_place place;
    ts_place_find(scene, pair, &place);
    if (place.axis == place.rank)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "%s has no tokens", scene->pairs[pair].name);
    for (size_t row = 0; row < tokens; row++)
        TS_TRY(read_token(scene, view, &place, first + row, column, count, out + row * count, error));
    /* a few numbers at a time are counted where they are read, and are read in their thousands */
    if (view->count > FORGET_ABOVE && tokens * count > MANY)
        forget_tokens(scene, view, &place, first, tokens);
    return TS_OK;
}

const struct ts_actor *ts_scene_all(struct ts_scene *scene, size_t pair)
{
    const struct ts_actor *actor = ts_scene_actor(scene, pair);
    struct ts_actor *all = &scene->all[scene->all_count];
    uint64_t first = ts_scene_first(scene), tokens, held = 0;
    struct ts_error ignored;
    bool good;
    if (!actor || actor->whole || actor->apart || actor->rows != scene->taken_count || scene->tokens <= 1)
        return actor && actor->whole ? actor : NULL;
    tokens = is_lone(scene) ? ts_scene_sequence(scene) : scene->tokens;
    for (size_t i = 0; i < scene->all_count; i++) {
        if (scene->all[i].pair == pair)
            return &scene->all[i];
        held += (uint64_t)scene->all[i].rows * scene->all[i].width;
    }
    if (scene->all_count == TS_SCENE_ALL || tokens > ALL_MOST / actor->width ||
        held + tokens * actor->width > ALL_TOGETHER)
        return NULL;
    *all = *actor;
    all->rows = (size_t)tokens;
    all->whole = true;
    all->a = malloc(all->rows * all->width * sizeof *all->a);
    all->b = malloc(all->rows * all->width * sizeof *all->b);
    good = all->a && all->b &&
           ts_scene_read(scene, pair, false, first, all->rows, 0, all->width, all->a, &ignored) == TS_OK &&
           ts_scene_read(scene, pair, true, first, all->rows, 0, all->width, all->b, &ignored) == TS_OK;
    if (!good) {
        free(all->a);
        free(all->b);
        return NULL;
    }
    scene->all_count++;
    return all;
}

size_t ts_scene_position(const struct ts_scene *scene, const struct ts_actor *actor, size_t row)
{
    return (size_t)(scene->taken[actor->skipped + row] % ts_scene_sequence(scene));
}

size_t ts_scene_keys(const struct ts_scene *scene, const struct ts_actor *actor, size_t row)
{
    uint64_t sequence = ts_scene_sequence(scene);
    return (size_t)(scene->taken[actor->skipped + row] / sequence * sequence - ts_scene_first(scene));
}
