/* Layout: the right values in the wrong order. Swaps of axes are tried on a few elements, then proved on everything;
 * where no swap fits, rows and columns are matched by content, and what comes out is said as runs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/layout.h"
#include "diagnose/match.h"
#include "diagnose/region.h"
#include "diagnose/shuffle.h"
#include "diagnose/variant.h"

#define PROBES       192
#define FIRST_PROBES 16
#define MOST_TRIED   20000
#define BEST_KEPT    3
#define TILE         ((uint64_t)1 << 16) /* elements compared at a time when a swap is proved */
#define TILES_KEPT   4                   /* tiles whose pages may stay resident */
/* Share of the probes' energy that may be left. */
#define WORTH 0.5
/* Confidence of a swap beside which nothing else need be looked for. */
#define NEARLY_ALL 0.95
/* Of tokens that are moved: how many must be, so that it is no chance, and what may be left of their error. */
#define LEAST_MOVED 3
#define MOVED_LEFT  0.03
/* Numbers that stand the other way round: so many at least, and what that must explain. */
#define LEAST_FLIPPED 4
#define FLIP_EXPLAINS 0.5

/* The values that are shuffled: in memory, or of a pair too large for it. */
struct source {
    struct ts_case *the_case;
    const struct ts_view *view; /* NULL: the case's expected values */
    uint64_t rows, columns;     /* of the domain */
};

struct trial {
    struct ts_shuffle shuffle;
    double left;
};

struct probing {
    struct source source;
    uint64_t at[PROBES]; /* in the domain */
    double found[PROBES], base;
    size_t count;
    bool across; /* between rows alone */
    struct trial best[BEST_KEPT];
    size_t kept;
};

static uint64_t domain_index(const struct source *source, size_t i)
{
    size_t width = source->the_case->actor->width;
    return source->view ? ts_case_row(source->the_case, i / width) * source->columns + i % width : i;
}

static double value_at(struct source *source, uint64_t i)
{
    double value = NAN;
    struct ts_error ignored;
    if (!source->view)
        return source->the_case->expected[i];
    return ts_view_read_f64(source->view, i, 1, &value, &ignored) == TS_OK ? value : (double)NAN;
}

bool ts_layout_reads_memory(const struct ts_case *the_case)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    const struct ts_actor *actor = the_case->actor;
    return !ts_case_direct(the_case) && !ts_case_is_part(the_case) && !actor->whole && !actor->apart &&
           the_case->scene->batch <= 1 && ts_tokens_come_first(the_case) && pair->a.count == pair->b.count &&
           pair->a.count == the_case->scene->tokens * actor->width;
}

/* All of the tokens, where the case holds some: what moves from token to token is seen there alone. */
static struct source source_of(struct ts_case *the_case, bool all_tokens)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    struct source source = {.the_case = the_case, .rows = the_case->actor->rows, .columns = the_case->actor->width};
    if (ts_case_direct(the_case) && !ts_case_complete(the_case)) {
        source.view = &pair->a;
        source.columns = pair->a.shape[pair->a.rank - 1];
        source.rows = pair->a.count / source.columns;
    }
    if (all_tokens) {
        source.view = &pair->a;
        source.rows = pair->a.count / source.columns;
    }
    return source;
}

/* Elements that are wrong, spread without a pattern. */
static void choose_probes(struct probing *probing)
{
    struct ts_case *the_case = probing->source.the_case;
    double typical = the_case->error / (double)the_case->total;
    for (size_t n = 0; n < 64 * PROBES && probing->count < PROBES; n++) {
        size_t i = (size_t)((n * 0x9e3779b97f4a7c15u >> 11) % the_case->total);
        double found = the_case->found[i], cost = ts_element_cost(found, the_case->expected[i], the_case->expected[i]);
        if (!(cost > 0.01 * typical) || ts_case_aside(the_case, i / the_case->actor->width))
            continue;
        probing->at[probing->count] = domain_index(&probing->source, i);
        probing->found[probing->count++] = found;
        probing->base += found * found < cost ? found * found : cost;
    }
}

static void try_shuffle(const struct ts_shuffle *shuffle, void *context)
{
    struct probing *probing = context;
    double left = 0;
    size_t at;
    if (probing->across && shuffle->outer % probing->source.rows == 0) /* inside the rows: tried on what is expected */
        return;
    for (size_t k = 0; k < probing->kept; k++) /* some are enumerated in several ways */
        if (probing->best[k].shuffle.outer == shuffle->outer && probing->best[k].shuffle.first == shuffle->first &&
            probing->best[k].shuffle.second == shuffle->second)
            return;
    for (size_t i = 0; i < probing->count; i++) {
        double value = value_at(&probing->source, ts_shuffle_source(shuffle, probing->at[i]));
        left += (value - probing->found[i]) * (value - probing->found[i]);
        if (!(left < WORTH * probing->base) ||
            (i == FIRST_PROBES && left * (double)probing->count > 2 * (double)i * probing->base))
            return;
    }
    for (at = 0; at < probing->kept && probing->best[at].left <= left; at++) {
    }
    if (at == BEST_KEPT)
        return;
    if (probing->kept < BEST_KEPT)
        probing->kept++;
    memmove(&probing->best[at + 1], &probing->best[at], (probing->kept - 1 - at) * sizeof *probing->best);
    probing->best[at] = (struct trial){*shuffle, left};
}

/* Error and size of one tile of the swapped axes, read row by row on the reference's side. */
static bool prove_tile(const struct ts_view *a, const struct ts_view *b, const uint64_t *from, const uint64_t *count,
                       double *values, struct ts_arena *arena, double *left, double *size)
{
    struct ts_view tile_a = *a, tile_b = *b;
    struct ts_error ignored;
    size_t total = 1;
    for (unsigned axis = 0; axis < 4; axis++) {
        total *= (size_t)count[axis];
        if (!ts_view_slice(&tile_a, axis, from[axis], count[axis], 1, arena, &tile_a) ||
            !ts_view_slice(&tile_b, axis, from[axis], count[axis], 1, arena, &tile_b))
            return false;
    }
    if (ts_view_read_f64(&tile_a, 0, total, values, &ignored) != TS_OK ||
        ts_view_read_f64(&tile_b, 0, total, values + total, &ignored) != TS_OK)
        return false;
    for (size_t i = 0; i < total; i++) {
        double x = values[i], y = values[total + i];
        if (isfinite(x) && isfinite(y)) {
            *left += (x - y) * (x - y);
            *size += x * x;
        }
    }
    return true;
}

/* Of everything, not only of what the case holds: share of the values' energy that stays wrong. In tiles, so that both
 * sides are read in pieces of memory that lie together. NaN when the views cannot be cut so. */
static double prove(struct ts_case *the_case, const struct ts_shuffle *shuffle)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    uint64_t shape[4] = {shuffle->outer, shuffle->first, shuffle->second, shuffle->inner};
    uint64_t swapped_shape[4] = {shuffle->outer, shuffle->second, shuffle->first, shuffle->inner};
    static const unsigned order[4] = {0, 2, 1, 3};
    uint64_t tile[4], at[4], done = 0;
    struct ts_view a, split, b;
    struct ts_arena arena, scratch;
    double *values = malloc(2 * TILE * sizeof *values), left = 0, size = 0;
    bool good;
    ts_arena_init(&arena, 1 << 16);
    good = values && ts_view_reshape(&pair->a, shape, 4, &arena, &a) &&
           ts_view_reshape(&pair->b, swapped_shape, 4, &arena, &split) && ts_view_permute(&split, order, &arena, &b);
    tile[3] = shape[3] < 256 ? shape[3] : 256;
    tile[2] = shape[2] < TILE / tile[3] / 16 ? shape[2] : TILE / tile[3] / 16;
    tile[2] = tile[2] > 256 ? 256 : tile[2];
    tile[1] = shape[1] < TILE / tile[3] / tile[2] ? shape[1] : TILE / tile[3] / tile[2];
    tile[0] = shape[0] < TILE / tile[3] / tile[2] / tile[1] ? shape[0] : TILE / tile[3] / tile[2] / tile[1];
    for (at[0] = 0; good && at[0] < shape[0]; at[0] += tile[0])
        for (at[1] = 0; good && at[1] < shape[1]; at[1] += tile[1])
            for (at[2] = 0; good && at[2] < shape[2]; at[2] += tile[2])
                for (at[3] = 0; good && at[3] < shape[3]; at[3] += tile[3]) {
                    uint64_t count[4];
                    for (unsigned axis = 0; axis < 4; axis++)
                        count[axis] = shape[axis] - at[axis] < tile[axis] ? shape[axis] - at[axis] : tile[axis];
                    ts_arena_init(&scratch, 1 << 16);
                    good = prove_tile(&a, &b, at, count, values, &scratch, &left, &size);
                    ts_arena_release(&scratch);
                    if (++done % TILES_KEPT == 0) { /* of every row a tile crosses some pages come along */
                        ts_view_forget(&pair->a, 0, pair->a.count);
                        ts_view_forget(&pair->b, 0, pair->b.count);
                    }
                }
    ts_arena_release(&arena);
    free(values);
    return !good ? (double)NAN : size > 0 ? left / size : 0;
}

/* A sequence of a batch in another order: the reference's, read where it lies. */
static bool predict_shuffled(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_shuffle *shuffle = formula->numbers;
    const struct ts_actor *all = ts_scene_all(the_case->scene, the_case->actor->pair);
    size_t width = the_case->actor->width;
    if (!all || shuffle->outer * shuffle->first * shuffle->second * shuffle->inner != (uint64_t)all->rows * width)
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = (double)all->a[ts_shuffle_source(shuffle, ts_case_row(the_case, i / width) * width + i % width)];
    return true;
}

/* For rows that are not in the case, where its memory cannot be cut as the shuffle does: inside the rows it is the same
 * for all of them, and between them the same for every sequence. */
static void give_shuffle(struct ts_case *the_case, const struct ts_shuffle *shuffle)
{
    const struct ts_actor *actor = the_case->actor;
    struct ts_shuffle one = *shuffle;
    size_t *order;
    if (shuffle->outer % actor->rows == 0 && (order = malloc(actor->width * sizeof *order))) {
        one.outer /= actor->rows;
        for (size_t i = 0; i < actor->width; i++)
            order[i] = (size_t)ts_shuffle_source(&one, i);
        ts_formula_order(the_case, order, NULL);
        free(order);
    } else if (shuffle->outer % actor->rows && actor->whole && actor->rows == actor->sequence) {
        ts_formula_next(the_case,
                        &(struct ts_formula){.predict = predict_shuffled, .numbers = shuffle, .size = sizeof *shuffle});
    }
}

/* True when one of them explains next to everything. */
static bool swaps(struct ts_case *the_case, double *prediction, bool all_tokens)
{
    bool all = false;
    const struct ts_actor *actor = the_case->actor;
    const struct ts_pair *pair = ts_case_pair(the_case);
    struct probing probing = {.source = source_of(the_case, all_tokens), .across = all_tokens};
    uint64_t tokens_first[3] = {probing.source.rows, actor->heads, actor->inner};
    bool direct = ts_case_direct(the_case);
    char text[256], recipe[160];
    choose_probes(&probing);
    if (probing.count < 8)
        return false;
    ts_shuffle_each(probing.source.rows, probing.source.columns, direct || actor->whole || all_tokens,
                    direct ? pair->a.shape : tokens_first, direct ? pair->a.rank : 3, MOST_TRIED, try_shuffle,
                    &probing);
    for (size_t k = 0; k < probing.kept; k++) {
        const struct ts_shuffle *shuffle = &probing.best[k].shuffle;
        const char *check;
        struct ts_shuffle full;
        double left = (double)NAN, sure;
        for (size_t i = 0; i < the_case->total; i++)
            prediction[i] = value_at(&probing.source, ts_shuffle_source(shuffle, domain_index(&probing.source, i)));
        ts_shuffle_text(shuffle, probing.source.rows, probing.source.columns, actor->heads, text, sizeof text);
        full = *shuffle;
        if (!direct && !all_tokens) { /* some tokens, or one sequence, stand for all of them */
            uint64_t tokens = pair->a.count / actor->width;
            full.outer =
                full.outer % actor->rows == 0 ? full.outer / actor->rows * tokens : full.outer * (tokens / actor->rows);
        }
        ts_shuffle_recipe(&full, recipe, sizeof recipe);
        if (ts_case_wants(the_case, "") && /* not once more for every batch of a proof */
            (direct || ts_tokens_come_first(the_case)) && !ts_case_complete(the_case) &&
            ts_explained(the_case, prediction) > 0.5)
            left = prove(the_case, &full);
        if (left >= 0.5)
            continue;
        check = ts_case_text(the_case, "the reshapes and transposes around this tensor; to undo: %s%s", recipe,
                             ts_recipe_remark(the_case));
        if (isnan(left)) {
            if (!direct && !all_tokens)
                give_shuffle(the_case, shuffle);
            sure = ts_propose(the_case, "permuted", prediction, 1, check, "the same values in another order: %s", text);
        } else { /* of all of it, or of what is at hand: what is left there, whichever is more */
            ts_formula_next(the_case, &(struct ts_formula){.proved = true});
            sure = ts_propose_measured(
                the_case, "permuted", fmax(left, 1 - ts_explained(the_case, prediction)), 1, check,
                "the same values in another order: %s (on all %" PRIu64 " elements, with a relative error of %.2g)",
                text, pair->a.count, sqrt(left));
        }
        all = all || sure > NEARLY_ALL;
    }
    return all;
}

/* A norm over heads that were cut out wrongly: another order before the operation. */
struct before {
    struct ts_case *the_case;
    const double *input;
    double *shuffled, *out;
    struct ts_actor some; /* a few rows of the actor */
    struct trial best;
};

static void apply_before(struct before *before, const struct ts_shuffle *shuffle, const struct ts_actor *actor)
{
    double *inputs[3] = {before->shuffled, NULL, NULL};
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        before->shuffled[i] = before->input[ts_shuffle_source(shuffle, i)];
    ts_operation_apply(before->the_case->scene, &before->the_case->operation, actor, inputs, before->out);
}

static void try_before(const struct ts_shuffle *shuffle, void *context)
{
    struct before *before = context;
    double left = 0;
    apply_before(before, shuffle, &before->some);
    for (size_t i = 0; i < before->some.rows * before->some.width; i++)
        left += (before->the_case->found[i] - before->out[i]) * (before->the_case->found[i] - before->out[i]);
    if (left < before->best.left)
        before->best = (struct trial){*shuffle, left};
}

#define TURNED_MOST ((size_t)1 << 16)

/* What the norm or the rotation is given by the candidate. */
static const double *before_input(struct ts_case *the_case)
{
    const struct ts_actor *from = ts_scene_actor(the_case->scene, the_case->operation.inputs[0]);
    double *values;
    if (the_case->operation.kind != TS_OPERATION_ROTARY)
        return ts_case_norm_input(the_case);
    if (!from || from->rows * from->width != the_case->total || !(values = ts_case_scratch(the_case)))
        return NULL;
    for (size_t i = 0; i < the_case->total; i++)
        values[i] = (double)from->b[i];
    return values;
}

/* The norm, or the rotation, of values in another order, for other rows. */
static bool predict_before(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    struct ts_shuffle shuffle = *(const struct ts_shuffle *)formula->numbers; /* of one row */
    struct before before = {.the_case = the_case, .out = out};
    before.input = before_input(the_case);
    before.shuffled = ts_case_scratch(the_case);
    shuffle.outer *= the_case->actor->rows;
    if (before.input && before.shuffled)
        apply_before(&before, &shuffle, the_case->actor);
    return before.input && before.shuffled;
}

static void swaps_before(struct ts_case *the_case, double *prediction)
{
    const struct ts_operation *operation = &the_case->operation;
    const struct ts_actor *actor = the_case->actor, *from;
    struct before before = {.the_case = the_case, .out = prediction, .some = *actor};
    char text[256], recipe[160];
    bool turned = operation->kind == TS_OPERATION_ROTARY && the_case->total <= TURNED_MOST;
    if ((operation->kind != TS_OPERATION_NORM && !turned) ||
        !(from = ts_scene_actor(the_case->scene, operation->inputs[0])))
        return;
    before.input = before_input(the_case);
    before.shuffled = ts_case_scratch(the_case);
    if (!before.input || !before.shuffled)
        return;
    /* angles belong to positions, so that all rows turn or none do */
    before.some.rows = turned || actor->rows < 3 ? actor->rows : 3;
    for (size_t i = 0; i < before.some.rows * before.some.width; i++)
        before.best.left += 0.5 * the_case->found[i] * the_case->found[i];
    ts_shuffle_each(before.some.rows, actor->width, false, NULL, 0, (size_t)1e8 / (before.some.rows * actor->width),
                    try_before, &before);
    if (!before.best.shuffle.outer)
        return;
    if (before.best.shuffle.outer % before.some.rows == 0) {
        struct ts_shuffle one = before.best.shuffle;
        one.outer /= before.some.rows;
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_before, .numbers = &one, .size = sizeof one});
    }
    before.best.shuffle.outer = before.best.shuffle.outer / before.some.rows * actor->rows;
    apply_before(&before, &before.best.shuffle, actor);
    ts_shuffle_text(&before.best.shuffle, actor->rows, actor->width, actor->heads, text, sizeof text);
    ts_shuffle_recipe(&before.best.shuffle, recipe, sizeof recipe);
    ts_propose(the_case, "permuted", prediction, 1,
               ts_case_text(the_case, "how %s is split into heads; to undo: %s", ts_case_name(the_case, from), recipe),
               "the candidate's %s gets the values of %s in another order: %s", turned ? "rotation" : "norm",
               ts_case_name(the_case, from), text);
}

/* What a prediction leaves of the error of some rows, over that error. */
static double left_in(const struct ts_case *the_case, const double *prediction, const bool *rows, bool which)
{
    double left = 0, error = 0;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        if (rows[row] != which)
            continue;
        left += ts_rows_cost(the_case, prediction, row, 1);
        error += ts_rows_cost(the_case, the_case->expected, row, 1);
    }
    return error > 0 ? left / error : 1;
}

/* Rows moved by a few places within each sequence, what falls off the end coming back at the other, or something new
 * following there. Tokens that occur twice would make another permutation of it. */
static void moves(struct ts_case *the_case, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    size_t length = actor->sequence, width = actor->width;
    bool *new;
    if (ts_case_direct(the_case) || !actor->whole || length < 3 || actor->rows % length || actor->inner == length ||
        !(new = malloc(actor->rows * sizeof *new)))
        return;
    for (int step = -3; step <= 3; step++) {
        size_t by = (size_t)abs(step);
        bool around;
        if (step == 0 || 2 * by > length)
            continue;
        for (size_t row = 0; row < actor->rows; row++) {
            size_t first = row / length * length, at = row - first,
                   from = (at + length + (size_t)(step + 3) - 3) % length;
            new[row] = step < 0 ? at < by : at + by >= length;
            memcpy(prediction + row * width, the_case->expected + (first + from) * width, width * sizeof *prediction);
        }
        if (!(left_in(the_case, prediction, new, false) < MOVED_LEFT))
            continue;
        around = left_in(the_case, prediction, new, true) < MOVED_LEFT;
        if (!around && by + LEAST_MOVED > length) /* of so few others, chance makes what is left */
            continue;
        for (size_t row = 0; row < actor->rows && !around; row++)
            if (new[row])
                memcpy(prediction + row * width, the_case->found + row * width, width * sizeof *prediction);
        if (around)
            ts_formula_moved(the_case, &(struct ts_rows_moved){.step = step, .around = true});
        ts_propose(the_case, "shifted", prediction, around ? 1 : 1 + by * (actor->rows / length) * width,
                   "positions: a cache offset, a token prepended or dropped, padding on the other side, a roll",
                   "tokens are shifted by %d%s: position i holds what belongs at i %c %d%s", -step,
                   around ? ", wrapping around" : "", step < 0 ? '-' : '+', abs(step),
                   around     ? ""
                   : step < 0 ? "; the first ones are not in the reference"
                              : "; the last ones are not in the reference");
    }
    free(new);
}

/* Channels the other way round, all of them or those of each head. Nothing is fitted, so that noise hides none of it:
 * by content a channel is known again where few tokens or coarse weights leave it unlike the others. */
static void flips_channels(struct ts_case *the_case, double *prediction, size_t length)
{
    const size_t width = the_case->actor->width;
    size_t *order = malloc(width * sizeof *order);
    for (size_t i = 0; order && i < width; i++)
        order[i] = i / length * length + length - 1 - i % length;
    for (size_t i = 0; order && i < the_case->total; i++)
        prediction[i] = the_case->expected[i / width * width + order[i % width]];
    if (order && ts_explained(the_case, prediction) > FLIP_EXPLAINS) {
        ts_formula_order(the_case, order, NULL);
        ts_propose(the_case, "permuted", prediction, 0,
                   ts_case_text(the_case,
                                "a flip, a negative stride, or rows of a weight that are read from the wrong end; to "
                                "undo: reshape(-1, %zu).flip(1), then reshape back",
                                length),
                   length == width ? "channels are in reverse order"
                                   : "the channels of each head are in reverse order");
    }
    free(order);
}

static void flips_tokens(struct ts_case *the_case, double *prediction, uint64_t tokens)
{
    ts_formula_moved(the_case, &(struct ts_rows_moved){.reversed = true});
    ts_propose(the_case, "permuted", prediction, 0,
               ts_case_text(the_case,
                            "a flip, a negative stride, or the wrong end of an axis; to undo: reshape(%" PRIu64
                            ", %zu).flip(0), then reshape back",
                            tokens, the_case->actor->width),
               "tokens are in reverse order");
}

/* The last token first: of a long sequence, where matching by content sees single tokens only. */
static void flips(struct ts_case *the_case, double *prediction)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    uint64_t width = the_case->actor->width, tokens = pair->a.count / width;
    struct ts_error ignored;
    for (size_t row = 0; row < the_case->actor->rows; row++)
        if (ts_view_read_f64(&pair->a, (tokens - 1 - ts_case_row(the_case, row)) * width, (size_t)width,
                             prediction + row * width, &ignored) != TS_OK)
            return;
    if (ts_explained(the_case, prediction) > FLIP_EXPLAINS)
        flips_tokens(the_case, prediction, tokens);
}

static void flips_in_memory(struct ts_case *the_case, double *prediction)
{
    const struct ts_actor *actor = the_case->actor;
    const size_t rows = actor->rows, width = actor->width;
    if (!ts_case_direct(the_case) && actor->whole && actor->sequence == rows && rows >= LEAST_MOVED) {
        for (size_t row = 0; row < rows; row++)
            memcpy(prediction + row * width, the_case->expected + (rows - 1 - row) * width, width * sizeof *prediction);
        if (ts_explained(the_case, prediction) > FLIP_EXPLAINS)
            flips_tokens(the_case, prediction, rows);
    }
    if (width >= LEAST_FLIPPED)
        flips_channels(the_case, prediction, width);
    if (actor->inner >= LEAST_FLIPPED && actor->inner < width && width % actor->inner == 0)
        flips_channels(the_case, prediction, actor->inner);
}

static void propose(struct ts_case *the_case)
{
    double *prediction = ts_case_scratch(the_case);
    bool all;
    if (!prediction || !(the_case->error > 0) || ts_case_quiet(the_case))
        return;
    all = swaps(the_case, prediction, false);
    if (ts_layout_reads_memory(the_case)) {
        all = swaps(the_case, prediction, true) || all;
        if (all && !ts_case_wants(the_case, "")) /* a batch of a proof, and it holds there */
            return;
        flips(the_case, prediction);
    }
    if (!all) {
        ts_layout_axes(the_case, prediction);
        ts_layout_but_bias(the_case, prediction);
    }
    swaps_before(the_case, prediction);
    moves(the_case, prediction);
    ts_layout_batch(the_case, prediction);
    ts_layout_pitches(the_case, prediction);
    ts_layout_strides(the_case, prediction);
    ts_match_rows(the_case, prediction);
    ts_match_columns(the_case, prediction);
    ts_match_blocks(the_case, prediction);
    flips_in_memory(the_case, prediction);
    ts_layout_values(the_case, prediction);
}

const struct ts_family ts_family_layout = {.name = "layout", .propose = propose};
