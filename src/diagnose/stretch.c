/* Owns the walk of a formula over every row of a pair, a stretch of rows at a time, on every processor: what the error
 * is there, and what the formula leaves of it. A stretch is a small case of its own that holds the pair and the
 * tensors that the formula reads, and nothing else. */
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/progress.h"
#include "diagnose/case.h"
#include "diagnose/directions.h"
#include "diagnose/stretch_sums.h"
#include "tensor/mask.h"

#define STRETCH     ((size_t)1 << 16) /* numbers of a stretch, or one row: in the cache, and a millisecond of work */
#define LONGER      4                 /* times that, where every stretch reads all keys */
#define TOGETHER    ((size_t)1 << 20) /* and where rows share a weight, or keys and values, that are turned for them: */
#define TURNED      32.0              /* that takes as long as so many rows do */
#define MOST_WORK   1.6e10            /* multiplications for a walk, where rows cost far more than their numbers */
#define ACROSS_WORK 3.2e11            /* the same for products across captured tokens, in f32, some rows together */
#define LEAST_PARTS 16                /* that such a walk has, so that some of them can be left out */
#define MOST_ROWS   ((uint64_t)1 << 24) /* of which it is noted where the formula fails */
#define ALONG       ((uint64_t)1 << 19) /* elements: two megabytes, where pages are large */
#define NOTHING     1e-3                /* of the usual error of a row: is none */
#define BY_CHANCE   4.0                 /* so much more than the usual noise is still noise in one row */

struct result {
    struct ts_sums sums;
    size_t rows, failing;
    uint64_t first_failing;
    struct ts_tally tally;
    bool failed;
};

struct worker {
    struct ts_case_state state;
    double *out, *angles;
    float *piece;
    size_t borrowed; /* keys and values with every token that the whole case holds already, of its one sequence */
    bool ready, broken;
};

struct walk {
    const struct ts_case_state *whole;
    const struct ts_formula *formula;
    double noise, limit;         /* of a row: noise over size; share of its error that may be left */
    double least;                /* error of an element that carries some */
    double typical;              /* error of a row */
    size_t pairs[8], pair_count; /* what a stretch holds */
    bool masked[8];
    size_t widest;
    uint64_t first, rows;          /* that are walked */
    uint64_t sequence;             /* rows of one: no stretch crosses its end */
    uint64_t parts, count, chosen; /* stretches of a sequence, of all, and those that are walked */
    size_t step;                   /* rows of a stretch */
    bool by_parts, few;            /* all at once, by parts of their columns; products with a few directions will do */
    bool directed;                 /* products with random directions are compared */
    float *directions;
    struct ts_directed own, claimed; /* what is expected, where it is a product, and what is predicted */
    struct worker *workers;
    struct result *results;
    bool *fails; /* per row, where there are not too many */
    struct ts_progress *progress;
};

static size_t place_of(const struct walk *walk)
{
    return walk->whole->face.actor->pair;
}

static bool holds(const struct walk *walk, size_t pair)
{
    for (size_t i = 0; i < walk->pair_count; i++)
        if (walk->pairs[i] == pair)
            return true;
    return false;
}

/* Which tensors a stretch needs; false when one of them is not in the scene. */
static bool find_pairs(struct walk *walk)
{
    const struct ts_operation *operation = &walk->whole->face.operation;
    struct ts_scene *scene = (struct ts_scene *)&walk->whole->scene;
    walk->pairs[walk->pair_count++] = place_of(walk);
    for (unsigned k = 0; k < operation->input_count && operation->kind != TS_OPERATION_NONE; k++)
        if (!holds(walk, operation->inputs[k]))
            walk->pairs[walk->pair_count++] = operation->inputs[k];
    if (walk->whole->replayed && !holds(walk, walk->whole->product.input->pair))
        walk->pairs[walk->pair_count++] = walk->whole->product.input->pair;
    for (unsigned k = 0; k < walk->formula->pair_count; k++)
        if (!holds(walk, walk->formula->pairs[k]))
            walk->pairs[walk->pair_count++] = walk->formula->pairs[k];
    for (size_t i = 0; i < walk->pair_count; i++) {
        const struct ts_actor *actor = ts_scene_actor(scene, walk->pairs[i]);
        if (!actor)
            return false;
        walk->masked[i] = scene->pairs[walk->pairs[i]].masked;
        for (size_t k = 0; k < actor->rows * actor->width && !walk->masked[i]; k++)
            walk->masked[i] = actor->a[k] == -INFINITY;
        walk->widest = actor->width > walk->widest ? actor->width : walk->widest;
    }
    return true;
}

static bool has_tokens(const struct walk *walk, const struct ts_actor *actor)
{
    struct ts_token_axis axis;
    return !actor->apart && actor->rows == walk->whole->scene.taken_count &&
           ts_scene_axis(&walk->whole->scene, actor->pair, &axis);
}

/* What is expected stands in the trace, so that parts of it can be read alone. */
static bool has_parts(const struct walk *walk)
{
    const struct ts_case_state *whole = walk->whole;
    return !whole->direct && !whole->replayed && whole->face.operation.kind == TS_OPERATION_NONE && !walk->masked[0];
}

/* A product of captured tensors, many rows of which meet the same keys. */
static bool is_across(const struct ts_operation *operation)
{
    return ts_operation_is_product(operation) && operation->kind != TS_OPERATION_ATTENTION;
}

/* What is expected stands in the trace, or is a product as well. */
static bool may_direct(const struct walk *walk)
{
    const struct ts_case_state *whole = walk->whole;
    return !whole->direct && !walk->masked[0] && !walk->formula->count &&
           (whole->replayed || whole->face.operation.kind == TS_OPERATION_NONE);
}

static bool open_walk(struct walk *walk)
{
    const struct ts_case_state *whole = walk->whole;
    const struct ts_actor *actor = whole->face.actor;
    const struct ts_view *view = &whole->scene.pairs[actor->pair].a;
    double work = walk->formula->product ? 0 : walk->formula->work, most = MOST_WORK;
    double fast = walk->formula->product ? walk->formula->work : 0, across = 0; /* by products in f32 */
    if (whole->direct) {
        unsigned components = (unsigned)(actor->width / whole->own_last);
        if (walk->formula->pair_count || actor->width != whole->own_last * components)
            return false;
        walk->rows = walk->sequence = view->count / whole->own_last;
    } else {
        if (!find_pairs(walk) || !has_tokens(walk, actor))
            return false;
        if (whole->replayed)
            fast += ts_product_work(&whole->product, actor) / (double)actor->rows;
        walk->rows = whole->scene.tokens;
        walk->sequence = ts_scene_sequence(&whole->scene);
        /* weights that were learnt may be those of its sequence; angles are found anew */
        if (whole->face.operation.table && whole->face.operation.kind != TS_OPERATION_ROTARY &&
            walk->sequence < walk->rows) {
            walk->first = ts_scene_first(&whole->scene);
            walk->rows = walk->sequence;
        }
        if (is_across(&whole->face.operation)) {
            across = work + ts_operation_work(&whole->face, &whole->face.operation);
            work = 0;
        } else {
            work += ts_operation_work(&whole->face, &whole->face.operation);
        }
    }
    walk->directed = walk->directed && fast * (double)walk->rows > MOST_WORK && may_direct(walk);
    fast = walk->directed ? 0 : fast;
    walk->step = (work > 0 ? LONGER * STRETCH : STRETCH) / (actor->width + 1) + 1;
    if (fast > 0 || across > 0)
        walk->step = TOGETHER / (walk->widest + 1) + 1;
    work += across * MOST_WORK / (whole->settled ? TS_WEAKER_WORK : ACROSS_WORK);
    fast *= 1 + TURNED / (double)walk->step;
    work += fast * MOST_WORK / (whole->settled ? TS_WEAKER_WORK : TS_PARTS_WORK);
    if (walk->by_parts)
        most = whole->settled ? TS_WEAKER_WORK : TS_PARTS_WORK;
    while (walk->step > 1 && work * (double)walk->step > most / LEAST_PARTS)
        walk->step /= 2;
    if (walk->by_parts) {
        if (!has_parts(walk))
            return false;
        walk->step = TS_PARTS_ROWS;
        walk->few = work * (double)walk->rows > fmin(most, TS_WHOLE_WORK);
        work = walk->few ? walk->formula->work_few : work;
    }
    walk->parts = (walk->sequence + walk->step - 1) / walk->step;
    walk->count = walk->parts * (walk->rows / walk->sequence);
    walk->chosen = walk->count;
    if (work * (double)walk->rows > most)
        walk->chosen = (uint64_t)((double)walk->count * most / (work * (double)walk->rows)) + 1;
    return walk->chosen <= SIZE_MAX / sizeof *walk->results;
}

/* Room for `rows` rows of a tensor like the whole case's. */
static bool take_place(struct worker *worker, const struct ts_actor *like, size_t rows)
{
    struct ts_actor *actor = &worker->state.scene.window[like->pair % TS_SCENE_WINDOW];
    *actor = *like;
    actor->whole = false;
    actor->a = malloc(rows * like->width * sizeof *actor->a);
    actor->b = malloc(rows * like->width * sizeof *actor->b);
    return actor->a && actor->b;
}

static bool open_worker(const struct walk *walk, struct worker *worker)
{
    const struct ts_case_state *whole = walk->whole;
    const struct ts_scene *scene = &whole->scene;
    struct ts_case_state *state = &worker->state;
    size_t total = walk->step * whole->face.actor->width;
    bool good;
    state->deltas = whole->deltas;
    state->pair_count = whole->pair_count;
    state->direct = whole->direct;
    state->own_last = whole->own_last;
    state->proving = true;
    state->scene = (struct ts_scene){.pairs = scene->pairs,
                                     .pair_count = scene->pair_count,
                                     .tokens = scene->tokens,
                                     .batch = scene->batch,
                                     .heads_first = scene->heads_first,
                                     .score_heads = scene->score_heads,
                                     .in_f32 = true,
                                     .loaded = place_of(walk) + 1};
    if (walk->sequence == scene->tokens) {
        memcpy(state->scene.all, scene->all, sizeof scene->all);
        state->scene.all_count = worker->borrowed = scene->all_count;
    }
    state->scene.taken = calloc(walk->step + 1, sizeof *state->scene.taken);
    state->scene.aside = calloc(walk->step + 1, sizeof *state->scene.aside);
    state->own_rows = calloc(walk->step, sizeof *state->own_rows);
    state->expected = malloc(total * sizeof *state->expected);
    state->found = malloc(total * sizeof *state->found);
    worker->out = malloc(total * sizeof *worker->out);
    worker->piece = malloc((walk->step * walk->widest + 1) * sizeof *worker->piece);
    good = worker->piece && state->scene.taken && state->scene.aside && state->own_rows && state->expected &&
           state->found && worker->out;
    if (whole->direct) {
        state->own = *whole->face.actor;
        state->own.a = malloc(total * sizeof *state->own.a);
        state->own.b = malloc(total * sizeof *state->own.b);
        good = good && state->own.a && state->own.b;
        state->face.actor = &state->own;
    } else {
        for (size_t i = 0; i < walk->pair_count && good; i++) {
            const struct ts_actor *like = ts_scene_actor((struct ts_scene *)scene, walk->pairs[i]);
            good = take_place(worker, like, has_tokens(walk, like) ? walk->step : like->rows);
        }
        state->face.actor = &state->scene.window[place_of(walk) % TS_SCENE_WINDOW];
    }
    state->face.scene = &state->scene;
    state->face.expected = state->expected;
    state->face.found = state->found;
    state->face.operation = whole->face.operation;
    if (whole->face.operation.kind == TS_OPERATION_ROTARY) {
        worker->angles = malloc(walk->step * whole->face.operation.group * sizeof *worker->angles);
        good = good && worker->angles;
    }
    return good;
}

static void close_worker(struct worker *worker)
{
    struct ts_case_state *state = &worker->state;
    for (size_t i = 0; i < worker->borrowed; i++)
        state->scene.all[i].a = state->scene.all[i].b = NULL;
    ts_case_drop_scratch(state);
    free(worker->out);
    free(worker->angles);
    free(worker->piece);
    free(state->own.a);
    free(state->own.b);
    free(state->own_rows);
    free(state->expected);
    free(state->found);
    ts_scene_release(&state->scene);
}

/* A very low value stands for a mask, as in the whole case. */
static void hide_mask(const struct ts_pair *pair, struct ts_actor *actor)
{
    if (pair->masked) {
        ts_hide_masked_scores(actor->a, actor->rows * actor->width);
        ts_hide_masked_scores(actor->b, actor->rows * actor->width);
        return;
    }
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        if (ts_is_masked_score((double)actor->a[i]) && ts_is_masked_score((double)actor->b[i]))
            actor->a[i] = actor->b[i] = -INFINITY;
}

/* Gives pages back, and those beside them, which the system maps along and whose own turn may be over. */
static void forget(const struct ts_view *view, uint64_t from, uint64_t count)
{
    uint64_t start = from > ALONG ? from - ALONG : 0, end = from + count + ALONG;
    ts_view_forget(view, start, (end < view->count ? end : view->count) - start);
}

/* Reads rows in the layout of an actor, and gives their pages back: where tokens come first they stand in one piece,
 * elsewhere they do so for each head. */
static bool read_rows(const struct worker *worker, const struct ts_actor *actor, bool candidate, uint64_t first,
                      size_t rows, float *out)
{
    const struct ts_pair *pair = &worker->state.scene.pairs[actor->pair];
    const struct ts_view *view = candidate ? &pair->b : &pair->a;
    struct ts_token_axis axis;
    struct ts_error ignored;
    uint64_t start;
    if (!ts_scene_axis(&worker->state.scene, actor->pair, &axis))
        return false;
    start =
        axis.sequence ? first / axis.sequence * axis.length + first % axis.sequence * axis.after : first * axis.after;
    for (uint64_t outer = 0; outer * axis.after < actor->width; outer++) {
        uint64_t from = start + outer * axis.size * axis.after;
        bool whole = axis.after == actor->width;
        if (ts_view_read_f32(view, from, rows * (size_t)axis.after, whole ? out : worker->piece, &ignored) != TS_OK)
            return false;
        forget(view, from, rows * axis.after);
        for (size_t row = 0; row < rows && !whole; row++)
            memcpy(out + row * actor->width + outer * axis.after, worker->piece + row * axis.after,
                   (size_t)axis.after * sizeof *out);
    }
    return true;
}

static bool load_pair(const struct walk *walk, struct worker *worker, size_t at, uint64_t first, size_t rows)
{
    struct ts_scene *scene = &worker->state.scene;
    size_t pair = walk->pairs[at];
    const struct ts_actor *like = ts_scene_actor((struct ts_scene *)&walk->whole->scene, pair);
    struct ts_actor *actor = &scene->window[pair % TS_SCENE_WINDOW];
    struct ts_error ignored;
    const enum ts_operation_kind kind = walk->whole->face.operation.kind;
    bool both = pair == place_of(walk) || walk->formula->reference || walk->masked[at] || kind == TS_OPERATION_ROTARY ||
                kind == TS_OPERATION_SOFTMAX;
    if (has_tokens(walk, like)) {
        actor->rows = rows;
        if (!read_rows(worker, actor, true, first, rows, actor->b) ||
            (both && !read_rows(worker, actor, false, first, rows, actor->a)))
            return false;
        if (walk->masked[at])
            hide_mask(&scene->pairs[pair], actor);
        return true;
    }
    if (!actor->apart) { /* one row for all */
        memcpy(actor->a, like->a, like->rows * like->width * sizeof *actor->a);
        memcpy(actor->b, like->b, like->rows * like->width * sizeof *actor->b);
        return true;
    }
    actor->rows = 1; /* one for each sequence */
    return ts_view_read_f32(&scene->pairs[pair].b, first / walk->sequence * actor->width, actor->width, actor->b,
                            &ignored) == TS_OK &&
           ts_view_read_f32(&scene->pairs[pair].a, first / walk->sequence * actor->width, actor->width, actor->a,
                            &ignored) == TS_OK;
}

/* By which angles the reference turns these rows. */
static void find_angles(struct worker *worker)
{
    struct ts_case *face = &worker->state.face;
    struct ts_operation *rotary = &face->operation;
    const struct ts_actor *actor = face->actor, *input = ts_scene_actor(face->scene, rotary->inputs[0]);
    size_t pairs = rotary->group / 2, inner = actor->width / rotary->heads;
    rotary->table = worker->angles;
    rotary->table_count = 2 * actor->rows * pairs;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < pairs; i++) {
            double real = 0, imaginary = 0, size;
            for (size_t head = 0; head < rotary->heads; head++) {
                size_t x = row * actor->width + head * inner + (rotary->interleaved ? 2 * i : i);
                size_t y = x + (rotary->interleaved ? 1 : pairs);
                real += (double)actor->a[x] * (double)input->a[x] + (double)actor->a[y] * (double)input->a[y];
                imaginary += (double)actor->a[y] * (double)input->a[x] - (double)actor->a[x] * (double)input->a[y];
            }
            size = sqrt(real * real + imaginary * imaginary); /* as when it was learnt */
            rotary->table[row * pairs + i] = size > 0 ? real / size : 1;
            rotary->table[(actor->rows + row) * pairs + i] = size > 0 ? imaginary / size : 0;
        }
}

static bool load_direct(const struct walk *walk, struct worker *worker, uint64_t first, size_t rows)
{
    struct ts_case_state *state = &worker->state;
    const struct ts_pair *pair = &state->scene.pairs[place_of(walk)];
    struct ts_actor *actor = &state->own;
    uint64_t from = first * state->own_last, count = rows * state->own_last;
    struct ts_error ignored;
    actor->rows = rows;
    for (size_t i = 0; i < rows; i++)
        state->own_rows[i] = first + i;
    if (ts_view_read_f64(&pair->a, from, (size_t)count, state->expected, &ignored) != TS_OK ||
        ts_view_read_f64(&pair->b, from, (size_t)count, state->found, &ignored) != TS_OK)
        return false;
    forget(&pair->a, from, count);
    forget(&pair->b, from, count);
    for (size_t i = 0; i < rows * actor->width; i++) {
        actor->a[i] = (float)state->expected[i];
        actor->b[i] = (float)state->found[i];
    }
    return true;
}

static bool load_tokens(const struct walk *walk, struct worker *worker, uint64_t first, size_t rows)
{
    struct ts_case_state *state = &worker->state;
    struct ts_scene *scene = &state->scene;
    const struct ts_actor *actor = state->face.actor;
    /* keys and values of every token are kept as long as they are those of the sequence */
    if (scene->taken_count && scene->taken[0] / walk->sequence != first / walk->sequence) {
        for (size_t i = 0; i < scene->all_count; i++) {
            free(scene->all[i].a);
            free(scene->all[i].b);
        }
        scene->all_count = 0;
    }
    scene->taken_count = rows;
    for (size_t i = 0; i < rows; i++)
        scene->taken[i] = first + i;
    memset(scene->aside, 0, walk->step * sizeof *scene->aside);
    ts_case_set_aside(state, actor->pair);
    for (size_t i = 0; i < walk->pair_count; i++)
        if (!load_pair(walk, worker, i, first, rows))
            return false;
    for (size_t i = 0; i < rows * actor->width; i++) {
        state->expected[i] = (double)actor->a[i];
        state->found[i] = (double)actor->b[i];
    }
    if (walk->directed) /* that is, in the directions */
        return true;
    if (walk->whole->replayed) {
        struct ts_product product = walk->whole->product;
        product.input = ts_scene_actor(scene, product.input->pair);
        return product.input && ts_product_replay(&product, actor, state->expected);
    }
    if (state->face.operation.kind == TS_OPERATION_NONE)
        return true;
    if (state->face.operation.kind == TS_OPERATION_ROTARY)
        find_angles(worker);
    return ts_formula_apply(&state->face, &state->face.operation, state->expected);
}

/* A row of a stretch is done. */
static void note_row(const struct walk *walk, uint64_t row, const struct ts_sums *sums, bool aside,
                     struct result *result)
{
    double noise = BY_CHANCE * walk->noise * sums->expected;
    bool fails = walk->formula->exact
                     ? sums->counted - sums->equal > walk->limit * sums->counted
                     : sums->left > noise + walk->limit * sums->error && sums->left > NOTHING * walk->typical;
    result->rows++;
    if (aside)
        return;
    ts_sums_add(&result->sums, sums);
    if (fails && !result->failing++)
        result->first_failing = row;
    if (fails && walk->fails)
        walk->fails[row] = true;
}

static void measure(const struct walk *walk, struct worker *worker, uint64_t first, struct result *result)
{
    const struct ts_case *face = &worker->state.face;
    const double *out = walk->formula->predict ? worker->out : face->found; /* a finding leaves nothing */
    size_t width = face->actor->width;
    for (size_t row = 0; row < face->actor->rows; row++) {
        size_t at = row * width;
        struct ts_sums sums =
            ts_sums_of(face->expected + at, face->found + at, out + at, width, walk->least, walk->formula->exact);
        note_row(walk, first + row, &sums, ts_case_aside(face, row), result);
    }
}

/* The same in the directions; what carries the error is told by the trace. */
static bool measure_directed(const struct walk *walk, struct worker *worker, uint64_t first, struct result *result)
{
    struct ts_case *face = &worker->state.face;
    size_t rows = face->actor->rows, width = face->actor->width;
    double *expected = malloc(3 * rows * TS_DIRECTIONS * sizeof *expected), *found = expected + rows * TS_DIRECTIONS;
    double *out = found + rows * TS_DIRECTIONS;
    const struct ts_actor *from = NULL;
    struct ts_product claimed;
    struct ts_actor input = {0};
    bool good = expected && walk->formula->product(face, walk->formula, &claimed, &input) && input.rows == rows;
    if (walk->whole->replayed)
        from = ts_scene_actor(face->scene, walk->whole->product.input->pair);
    good = good && (from || !walk->whole->replayed) &&
           ts_directions_of(input.b, rows, input.width, walk->claimed.weights, walk->claimed.offsets, out) &&
           ts_directions_of(face->actor->b, rows, width, walk->directions, NULL, found) &&
           (from ? ts_directions_of(from->b, rows, from->width, walk->own.weights, walk->own.offsets, expected)
                 : ts_directions_of(face->actor->a, rows, width, walk->directions, NULL, expected));
    for (size_t row = 0; row < rows && good; row++) {
        size_t at = row * width, k = row * TS_DIRECTIONS;
        struct ts_sums seen = ts_sums_directed(expected + k, found + k, out + k);
        struct ts_sums sums =
            ts_sums_of(face->expected + at, face->found + at, face->found + at, width, walk->least, false);
        if (from)
            seen.elements = sums.elements;
        else
            sums.left = seen.left;
        good = isfinite(seen.left + seen.error);
        note_row(walk, first + row, from ? &seen : &sums, ts_case_aside(face, row), result);
    }
    free(expected);
    free(input.b);
    return good;
}

/* The weights, in directions. */
static bool open_directions(struct walk *walk)
{
    const struct ts_case_state *whole = walk->whole;
    size_t width = whole->face.actor->width;
    struct ts_product claimed;
    struct ts_actor input = {0};
    bool good = (walk->directions = ts_directions_draw(width)) &&
                walk->formula->product((struct ts_case *)&whole->face, walk->formula, &claimed, &input) &&
                ts_directed_open(&walk->claimed, &claimed, width, walk->directions) &&
                (!whole->replayed || ts_directed_open(&walk->own, &whole->product, width, walk->directions));
    free(input.b);
    return good;
}

/* Which stretch comes so manieth: of all of them an even spread. */
static uint64_t place_in(const struct walk *walk, uint64_t index)
{
    return walk->chosen < walk->count ? index * walk->count / walk->chosen : index;
}

/* Its first row, and how many it has. */
static uint64_t rows_of(const struct walk *walk, uint64_t index, size_t *rows)
{
    uint64_t at = place_in(walk, index), within = at % walk->parts * walk->step;
    *rows = walk->sequence - within < walk->step ? (size_t)(walk->sequence - within) : walk->step;
    return walk->first + at / walk->parts * walk->sequence + within;
}

static void walk_stretch(void *context, uint64_t index, unsigned number)
{
    struct walk *walk = context;
    struct worker *worker = &walk->workers[number];
    struct result *result = &walk->results[index];
    struct ts_case *face = &worker->state.face;
    size_t rows;
    uint64_t first = rows_of(walk, index, &rows);
    result->failed = true;
    worker->broken = worker->broken || (!worker->ready && !open_worker(walk, worker));
    worker->ready = true;
    if (worker->broken || atomic_load(&ts_cancelled))
        return;
    if (walk->whole->direct ? !load_direct(walk, worker, first, rows) : !load_tokens(walk, worker, first, rows))
        return;
    face->total = rows * face->actor->width;
    if (walk->directed) {
        result->failed = !measure_directed(walk, worker, first, result);
        ts_progress_add(walk->progress, face->total);
        return;
    }
    if (walk->formula->predict && !walk->formula->predict(face, walk->formula, worker->out))
        return;
    ts_tally_open(&result->tally);
    if (walk->formula->count &&
        !walk->formula->count(face, walk->formula, walk->formula->predict ? worker->out : NULL, &result->tally))
        return;
    ts_case_drop_scratch(&worker->state);
    measure(walk, worker, first, result);
    result->failed = false;
    ts_progress_add(walk->progress, face->total);
}

/* Rows whose columns come one part after the other. */
struct parts {
    const struct walk *walk;
    struct ts_sums *sums; /* of each row, walk->step for each stretch */
};

/* What a row's numbers in some columns add. */
static struct ts_sums sums_of_part(const struct walk *walk, const struct ts_columns *part, const double *expected,
                                   const double *found, size_t row)
{
    const double *out = part->out + row * part->stride;
    struct ts_sums sums = ts_sums_of(expected, found, part->directions ? found : out, part->count, walk->least, false);
    for (size_t k = 0; k < part->direction_count; k++) {
        double product = 0;
        for (size_t i = 0; i < part->count; i++)
            product += found[i] * part->directions[i * part->direction_count + k];
        sums.left += (product - out[k]) * (product - out[k]);
    }
    return sums;
}

static bool take_parts(void *context, uint64_t index, const struct ts_columns *columns, size_t count)
{
    struct parts *parts = context;
    const struct walk *walk = parts->walk;
    const struct ts_scene *scene = &walk->whole->scene;
    size_t rows, from = columns[0].first, span = columns[count - 1].first + columns[count - 1].count - from;
    uint64_t first = rows_of(walk, index, &rows);
    float *a = malloc(2 * rows * span * sizeof *a), *b = a + rows * span;
    double *expected = malloc(2 * span * sizeof *expected), *found = expected + span;
    struct ts_error ignored;
    bool good = a && expected &&
                ts_scene_read(scene, place_of(walk), false, first, rows, from, span, a, &ignored) == TS_OK &&
                ts_scene_read(scene, place_of(walk), true, first, rows, from, span, b, &ignored) == TS_OK;
    for (size_t row = 0; row < rows && good; row++) {
        for (size_t i = 0; i < span; i++) {
            expected[i] = (double)a[row * span + i];
            found[i] = (double)b[row * span + i];
        }
        for (size_t part = 0; part < count && good; part++) {
            size_t at = columns[part].first - from;
            struct ts_sums sums = sums_of_part(walk, &columns[part], expected + at, found + at, row);
            ts_sums_add(&parts->sums[index * walk->step + row], &sums);
            good = isfinite(sums.left);
        }
    }
    ts_progress_add(walk->progress, rows * span);
    free(a);
    free(expected);
    return good;
}

/* Marks the rows that are not judged any more. */
static bool *find_aside(const struct walk *walk)
{
    struct ts_case_state *state = calloc(1, sizeof *state);
    uint64_t *rows = calloc((size_t)walk->chosen * walk->step, sizeof *rows);
    bool *aside = calloc((size_t)walk->chosen * walk->step, sizeof *aside);
    if (state && rows && aside) {
        for (uint64_t i = 0; i < walk->chosen; i++) {
            size_t count;
            uint64_t first = rows_of(walk, i, &count);
            for (size_t row = 0; row < walk->step; row++) /* the last of a short stretch stands for those behind it */
                rows[i * walk->step + row] = first + (row < count ? row : count - 1);
        }
        state->deltas = walk->whole->deltas;
        state->scene = (struct ts_scene){.pairs = walk->whole->scene.pairs,
                                         .tokens = walk->whole->scene.tokens,
                                         .taken = rows,
                                         .taken_count = (size_t)walk->chosen * walk->step,
                                         .aside = aside};
        ts_case_set_aside(state, place_of(walk));
    } else {
        free(aside);
        aside = NULL;
    }
    free(state);
    free(rows);
    return aside;
}

/* All stretches at once, a part of their columns after the other. */
static bool walk_parts(struct walk *walk)
{
    struct parts parts = {.walk = walk, .sums = calloc((size_t)walk->chosen * walk->step, sizeof *parts.sums)};
    struct ts_stretch *stretches = calloc((size_t)walk->chosen, sizeof *stretches);
    bool *aside = find_aside(walk), good = parts.sums && stretches && aside;
    for (uint64_t i = 0; i < walk->chosen && good; i++)
        stretches[i].first = rows_of(walk, i, &stretches[i].rows);
    good = good && walk->formula->predict_parts((struct ts_case *)&walk->whole->face, walk->formula, stretches,
                                                (size_t)walk->chosen, walk->few, take_parts, &parts);
    for (uint64_t i = 0; i < walk->chosen && good; i++)
        for (size_t row = 0; row < stretches[i].rows; row++)
            note_row(walk, stretches[i].first + row, &parts.sums[i * walk->step + row], aside[i * walk->step + row],
                     &walk->results[i]);
    free(parts.sums);
    free(stretches);
    free(aside);
    return good;
}

static uint64_t sequence_of(const struct walk *walk, uint64_t index)
{
    return place_in(walk, index) / walk->parts;
}

/* Whether a sequence, which is not the one that the claim was found in, has no error. */
static bool is_calm(const struct walk *walk, uint64_t sequence, const struct ts_sums *sums)
{
    const struct ts_scene *scene = &walk->whole->scene;
    double rounding = BY_CHANCE * walk->noise * sums->expected, nothing = NOTHING * walk->typical;
    return walk->rows > walk->sequence && scene->taken[0] / walk->sequence != sequence &&
           sums->error <= rounding + nothing * (double)walk->sequence;
}

/* Adds up in order, so that nothing depends on who came first. */
static bool add_up(const struct walk *walk, struct ts_everywhere *all)
{
    struct ts_sums sums = {0};
    ts_tally_open(&all->tally);
    for (uint64_t i = 0; i < walk->chosen && walk->formula->count; i++)
        ts_tally_add(&all->tally, &walk->results[i].tally);
    for (uint64_t from = 0, end; from < walk->chosen; from = end) {
        struct ts_sums own = {0};
        for (end = from; end < walk->chosen && sequence_of(walk, end) == sequence_of(walk, from); end++) {
            if (walk->results[end].failed)
                return false;
            ts_sums_add(&own, &walk->results[end].sums);
        }
        /* of a batch some sequences may be right: a claim about what is wrong says nothing about them */
        if (walk->formula->predict && is_calm(walk, sequence_of(walk, from), &own)) {
            all->calm++;
            if (walk->fails)
                memset(walk->fails + walk->first + sequence_of(walk, from) * walk->sequence, 0,
                       (size_t)walk->sequence * sizeof *walk->fails);
            continue;
        }
        ts_sums_add(&sums, &own);
        for (uint64_t i = from; i < end; i++) {
            const struct result *result = &walk->results[i];
            all->rows += result->rows;
            if (result->failing && !all->failing)
                all->first_failing = result->first_failing;
            all->failing += result->failing;
        }
    }
    all->error = sums.error;
    all->left = sums.left;
    all->expected = sums.expected;
    all->found = sums.found;
    for (uint64_t row = 0, seen = 0; walk->fails && row < walk->first + walk->rows; row++)
        if (walk->fails[row] && seen++ * TS_CASE_FAILING / all->failing >= all->some_count &&
            all->some_count < TS_CASE_FAILING)
            all->some[all->some_count++] = row;
    all->elements = sums.elements;
    all->equal = sums.counted > 0 ? sums.equal / sums.counted : 1;
    return true;
}

static bool walk_stretches(struct walk *walk)
{
    struct ts_pool *pool = ts_pool_new(0);
    bool good;
    walk->workers = pool ? calloc(ts_pool_width(pool), sizeof *walk->workers) : NULL;
    good = walk->workers;
    if (good)
        ts_pool_run(pool, walk->chosen, walk_stretch, walk);
    for (unsigned i = 0; good && i < ts_pool_width(pool); i++)
        close_worker(&walk->workers[i]);
    free(walk->workers);
    ts_pool_free(pool);
    return good;
}

static bool walk_all(struct walk walk, struct ts_everywhere *all)
{
    const struct ts_case_state *state = walk.whole;
    struct ts_progress progress;
    bool good = false;
    *all = (struct ts_everywhere){0};
    if (!open_walk(&walk))
        return false;
    ts_progress_start_elements(&progress, "proving", walk.chosen * walk.step * state->face.actor->width);
    walk.progress = &progress;
    walk.results = calloc((size_t)walk.chosen, sizeof *walk.results);
    walk.fails = walk.first + walk.rows < MOST_ROWS ? calloc((size_t)(walk.first + walk.rows), 1) : NULL;
    if (walk.results && (!walk.directed || open_directions(&walk)) &&
        (walk.by_parts ? walk_parts(&walk) : walk_stretches(&walk))) {
        good = add_up(&walk, all);
        all->directed = walk.directed || walk.few;
        all->of_rows = state->direct ? walk.rows : state->scene.tokens;
        /* what is left over of a folded axis has not been looked at */
        if (state->direct && state->scene.pairs[place_of(&walk)].a.count % state->own_last)
            all->of_rows++;
    }
    ts_progress_finish(&progress);
    free(walk.results);
    free(walk.fails);
    free(walk.directions);
    ts_directed_close(&walk.own);
    ts_directed_close(&walk.claimed);
    return good;
}

bool ts_case_everywhere(const struct ts_case_state *state, const struct ts_formula *formula, double noise, double limit,
                        struct ts_everywhere *all)
{
    struct walk walk = {.whole = state, .formula = formula, .noise = noise, .limit = limit};
    double counted = 0;
    if (formula->count_at_once) {
        *all = (struct ts_everywhere){0};
        ts_tally_open(&all->tally);
        return formula->count_at_once((struct ts_case *)&state->face, formula, all);
    }
    for (size_t i = 0; i < state->face.total; i++)
        counted += state->face.found[i] != state->face.expected[i];
    walk.typical = state->face.error / (double)state->face.actor->rows;
    walk.least = counted > 0 ? 1e-3 * state->face.error / counted : 0;
    walk.by_parts = formula->predict_parts;
    walk.directed = formula->product;
    if ((walk.by_parts || walk.directed) && walk_all(walk, all))
        return true;
    walk.by_parts = walk.directed = false;
    return walk_all(walk, all);
}
