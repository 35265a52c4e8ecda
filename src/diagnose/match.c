/* Owns the matching of rows and columns by content. Each line (a row or a column) is known by some of its numbers;
 * lines are sorted by a sum of those with mixed signs, and the nearest one is looked for around the place where the
 * found line's own sum falls. */
#include "diagnose/match.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/region.h"

#define SIGNS       24 /* numbers that a line is known by */
#define MOST_BLOCKS 64
#define LEAST       3  /* fewer match by chance */
#define REACH       96 /* lines looked at on either side */
#define MOST_READ   ((uint64_t)1 << 23)
#define CLOSE       0.1 /* of a line's energy may be left */
#define STAYS       0.5 /* a line that fits nearly as well where it is, stays */

struct keyed {
    double key;
    size_t line;
};

/* Lines of the domain: reference lines may be more than the case holds (large weights). */
#define BEHIND ((size_t)256) /* lines whose pages may stay resident behind the walk */

struct lines {
    struct ts_case *the_case;
    bool columns;
    const struct ts_view *view; /* NULL: the reference lines are those of the case, or of the scene */
    uint64_t view_columns;
    bool tokens;               /* the reference lines are all tokens of a long sequence */
    struct ts_token_axis axis; /* where those are */
    size_t count, found_count; /* reference lines, found lines */
    size_t signs;
    double *reference, *found; /* [count, signs] */
    struct keyed *order;       /* reference lines by key */
    size_t *from;              /* per found line: the reference line, SIZE_MAX when none is near */
    bool *empty;               /* per found line: nothing but zeros */
    size_t runs, moved, emptied;
};

static size_t own_place(const struct lines *lines, size_t line)
{
    return (lines->view || lines->tokens) && !lines->columns ? (size_t)ts_case_row(lines->the_case, line) : line;
}

static size_t across_at(const struct lines *lines, size_t sign)
{
    const struct ts_actor *actor = lines->the_case->actor;
    size_t length = lines->columns ? actor->rows : actor->width;
    return lines->signs < 2 ? 0 : sign * (length - 1) / (lines->signs - 1);
}

static double case_value(const struct lines *lines, const double *values, size_t line, size_t across)
{
    size_t width = lines->the_case->actor->width;
    double value = lines->columns ? values[across * width + line] : values[line * width + across];
    return isfinite(value) ? value : 0;
}

static double key_of(const struct lines *lines, const double *signs)
{
    static const double weights[] = {1, -0.83, 0.71, -1.13, 0.91, 1.07, -0.97};
    double key = 0;
    for (size_t k = 0; k < lines->signs; k++)
        key += weights[k % (sizeof weights / sizeof *weights)] * signs[k];
    return key;
}

static int by_key(const void *a, const void *b)
{
    double left = ((const struct keyed *)a)->key, right = ((const struct keyed *)b)->key;
    return left < right ? -1 : left > right;
}

/* Numbers of a token that may not be in the case. */
static bool read_token(const struct lines *lines, bool candidate, size_t token, size_t first, size_t count, double *out)
{
    const struct ts_case *the_case = lines->the_case;
    float values[256];
    struct ts_error ignored;
    for (size_t done = 0; done < count;) {
        size_t piece = count - done < 256 ? count - done : 256;
        if (ts_scene_read(the_case->scene, the_case->actor->pair, candidate, ts_scene_first(the_case->scene) + token, 1,
                          first + done, piece, values, &ignored) != TS_OK)
            return false;
        for (size_t i = 0; i < piece; i++)
            out[done + i] = isfinite(values[i]) ? (double)values[i] : 0;
        done += piece;
    }
    return true;
}

/* One number of such a token; its pages are given back by the caller, some tokens at a time. */
static bool read_number(const struct lines *lines, bool candidate, size_t token, size_t column, double *out)
{
    const struct ts_pair *pair = ts_case_pair(lines->the_case);
    const struct ts_token_axis *axis = &lines->axis;
    uint64_t own = ts_scene_first(lines->the_case->scene) + token, start = 0;
    struct ts_error ignored;
    if (axis->sequence) {
        start = own / axis->sequence * axis->length;
        own %= axis->sequence;
    }
    if (ts_view_read_f64(candidate ? &pair->b : &pair->a,
                         start + (column / axis->after * axis->size + own) * axis->after + column % axis->after, 1, out,
                         &ignored) != TS_OK)
        return false;
    *out = isfinite(*out) ? (double)(float)*out : 0; /* as scenes hold them */
    return true;
}

static bool read_signs(const struct lines *lines, bool candidate, size_t line, double *signs)
{
    struct ts_error ignored;
    for (size_t k = 0; k < lines->signs; k++)
        if (lines->tokens) {
            if (!read_number(lines, candidate, line, across_at(lines, k), &signs[k]))
                return false;
        } else if (!lines->view) {
            signs[k] = case_value(lines, lines->the_case->expected, line, across_at(lines, k));
        } else if (ts_view_read_f64(lines->view, line * lines->view_columns + across_at(lines, k), 1, &signs[k],
                                    &ignored) != TS_OK ||
                   !isfinite(signs[k])) {
            signs[k] = 0;
        }
    return true;
}

/* Some tokens of a long sequence: what they hold may belong to any other. */
static bool has_more_tokens(const struct ts_case *the_case)
{
    const struct ts_scene *scene = the_case->scene;
    return ts_case_glance(the_case) && the_case->actor->rows == scene->taken_count &&
           the_case->actor->rows < ts_scene_sequence(scene) && ts_scene_sequence(scene) <= MOST_READ / SIGNS &&
           scene->taken[scene->taken_count - 1] - ts_scene_first(scene) < ts_scene_sequence(scene);
}

static bool open_lines(struct lines *lines, struct ts_case *the_case, bool columns)
{
    const struct ts_actor *actor = the_case->actor;
    const struct ts_pair *pair = ts_case_pair(the_case);
    size_t length = columns ? actor->rows : actor->width;
    *lines = (struct lines){.the_case = the_case, .columns = columns};
    lines->found_count = lines->count = columns ? actor->width : actor->rows;
    lines->signs = length < SIGNS ? length : SIGNS;
    if (ts_case_direct(the_case) && !ts_case_complete(the_case) && !columns) {
        lines->view = &pair->a;
        lines->view_columns = pair->a.shape[pair->a.rank - 1];
        if (pair->a.count / lines->view_columns > MOST_READ / SIGNS || lines->view_columns > actor->width)
            return false;
        lines->count = (size_t)(pair->a.count / lines->view_columns);
    }
    if (!columns && !ts_case_direct(the_case) && !ts_case_is_part(the_case) && has_more_tokens(the_case) &&
        ts_scene_axis(the_case->scene, actor->pair, &lines->axis)) {
        lines->tokens = true;
        lines->count = (size_t)ts_scene_sequence(the_case->scene);
    }
    if (lines->signs < LEAST || lines->count < 2)
        return false;
    lines->reference = malloc(lines->count * lines->signs * sizeof(double));
    lines->found = malloc(lines->found_count * lines->signs * sizeof(double));
    lines->order = malloc(lines->count * sizeof *lines->order);
    lines->from = malloc(lines->found_count * sizeof *lines->from);
    lines->empty = calloc(lines->found_count, sizeof *lines->empty);
    if (!lines->reference || !lines->found || !lines->order || !lines->from || !lines->empty)
        return false;
    for (size_t line = 0; line < lines->found_count; line++)
        for (size_t k = 0; k < lines->signs; k++)
            lines->found[line * lines->signs + k] = case_value(lines, the_case->found, line, across_at(lines, k));
    for (size_t line = 0; line < lines->count; line++) {
        double *signs = lines->reference + line * lines->signs;
        if (!read_signs(lines, false, line, signs))
            return false;
        lines->order[line] = (struct keyed){key_of(lines, signs), line};
        if (lines->view && line % BEHIND == BEHIND - 1) /* a few numbers of each line, and the pages around them */
            ts_view_forget(lines->view, (line + 1 - BEHIND) * lines->view_columns, BEHIND * lines->view_columns);
        if (lines->tokens && (line % BEHIND == BEHIND - 1 || line + 1 == lines->count))
            ts_view_forget(&pair->a, 0, pair->a.count);
    }
    qsort(lines->order, lines->count, sizeof *lines->order, by_key);
    return true;
}

static void close_lines(struct lines *lines)
{
    free(lines->reference);
    free(lines->found);
    free(lines->order);
    free(lines->from);
    free(lines->empty);
}

static double distance(const struct lines *lines, size_t line, size_t reference)
{
    const double *a = lines->found + line * lines->signs, *b = lines->reference + reference * lines->signs;
    double sum = 0;
    for (size_t k = 0; k < lines->signs; k++)
        sum += (a[k] - b[k]) * (a[k] - b[k]);
    return sum;
}

static size_t nearest(const struct lines *lines, size_t line, size_t before)
{
    const double *signs = lines->found + line * lines->signs;
    double key = key_of(lines, signs), energy = 0, best, other;
    size_t low = 0, high = lines->count, at = SIZE_MAX, own = own_place(lines, line);
    for (size_t k = 0; k < lines->signs; k++)
        energy += signs[k] * signs[k];
    if (!(energy > 0))
        return SIZE_MAX;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (lines->order[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    best = CLOSE * energy;
    for (size_t i = low > REACH ? low - REACH : 0; i < lines->count && i < low + REACH; i++) {
        other = distance(lines, line, lines->order[i].line);
        if (other < best) {
            best = other;
            at = lines->order[i].line;
        }
    }
    if (at == SIZE_MAX)
        return at;
    /* equal lines: stay, or go on with the run */
    if (own < lines->count && STAYS * distance(lines, line, own) <= best)
        return own;
    if (before != SIZE_MAX && before + 1 < lines->count && STAYS * distance(lines, line, before + 1) <= best)
        return before + 1;
    return at;
}

/* Signed distance a line has moved. */
static int64_t step_of(const struct lines *lines, size_t line)
{
    return (int64_t)lines->from[line] - (int64_t)own_place(lines, line);
}

/* One line of the reference into the prediction. */
static void take(const struct lines *lines, size_t line, double *prediction)
{
    const struct ts_case *the_case = lines->the_case;
    size_t width = the_case->actor->width, rows = the_case->actor->rows, from = lines->from[line];
    struct ts_error ignored;
    for (size_t i = 0; lines->empty[line] && i < (lines->columns ? rows : width); i++)
        prediction[lines->columns ? i * width + line : line * width + i] = 0;
    if (lines->empty[line])
        return;
    if (from == SIZE_MAX)
        from = own_place(lines, line);
    if (lines->columns)
        for (size_t row = 0; row < rows; row++)
            prediction[row * width + line] = the_case->expected[row * width + from];
    else if (lines->tokens && (step_of(lines, line) == 0 || lines->from[line] == SIZE_MAX ||
                               !read_token(lines, false, from, 0, width, prediction + line * width)))
        memcpy(prediction + line * width, the_case->expected + line * width, width * sizeof *prediction);
    else if (lines->tokens)
        return;
    else if (!lines->view)
        memcpy(prediction + line * width, the_case->expected + from * width, width * sizeof *prediction);
    else if (ts_view_read_f64(lines->view, from * lines->view_columns, width, prediction + line * width, &ignored) !=
             TS_OK)
        memcpy(prediction + line * width, the_case->expected + line * width, width * sizeof *prediction);
}

/* The common step of nearly all lines that moved, 0 when there is none. */
static int64_t common_step(const struct lines *lines)
{
    int64_t step = 0;
    size_t votes = 0, agree = 0;
    for (size_t i = 0; i < lines->found_count; i++) { /* a majority survives this */
        if (lines->from[i] == SIZE_MAX)
            continue;
        if (!votes)
            step = step_of(lines, i);
        votes = step_of(lines, i) == step ? votes + 1 : votes - 1;
    }
    for (size_t i = 0; i < lines->found_count; i++)
        agree += lines->from[i] != SIZE_MAX && step_of(lines, i) == step;
    return agree * 4 >= lines->found_count * 3 ? step : 0;
}

static bool is_reversed(const struct lines *lines)
{
    size_t agree = 0;
    for (size_t i = 0; i < lines->found_count; i++)
        agree += lines->from[i] == lines->count - 1 - own_place(lines, i);
    return lines->count == lines->found_count && agree * 10 >= lines->count * 9;
}

/* The length of blocks that moved as wholes, and where what each holds belongs; 0 otherwise. */
static size_t block_order(const struct lines *lines, size_t *from)
{
    size_t length = 0;
    if (lines->view || lines->tokens || lines->count < 2)
        return 0;
    for (size_t i = 0, start = 0; i <= lines->found_count; i++) {
        bool ends = i == lines->found_count || (i > start && lines->from[i] != lines->from[i - 1] + 1);
        if (i < lines->found_count && lines->from[i] == SIZE_MAX)
            return 0;
        if (ends) {
            size_t run = i - start;
            while (length) { /* greatest common divisor of the runs */
                size_t rest = run % length;
                run = length;
                length = rest;
            }
            length = run;
            start = i;
        }
    }
    if (length < 2 || length >= lines->found_count || lines->found_count / length > MOST_BLOCKS)
        return 0;
    for (size_t i = 0; i < lines->found_count; i += length) {
        if (lines->from[i] % length)
            return 0;
        from[i / length] = lines->from[i] / length;
    }
    return length;
}

/* Nothing but zeros, where the numbers that a line is known by should not be. */
static bool is_empty(const struct lines *lines, size_t line)
{
    const struct ts_actor *actor = lines->the_case->actor;
    bool wanted = false;
    for (size_t i = 0; i < (lines->columns ? actor->rows : actor->width); i++) {
        if (case_value(lines, lines->the_case->found, line, i) != 0)
            return false;
        wanted = wanted || case_value(lines, lines->the_case->expected, line, i) != 0;
    }
    return wanted;
}

/* The same for a weight of which some rows are known: blocks that moved as wholes. Returns their length. */
static size_t sampled_blocks(const struct lines *lines, size_t *from)
{
    for (size_t blocks = 2; (lines->view || lines->tokens) && !lines->columns && blocks <= MOST_BLOCKS; blocks++) {
        size_t length = lines->count / blocks;
        bool fits = lines->count % blocks == 0 && lines->found_count >= 2 * blocks;
        for (size_t b = 0; b < blocks; b++)
            from[b] = SIZE_MAX;
        for (size_t i = 0; i < lines->found_count && fits; i++) {
            size_t own = own_place(lines, i), block = own / length, other = lines->from[i] / length;
            fits = lines->from[i] != SIZE_MAX && lines->from[i] % length == own % length &&
                   (from[block] == SIZE_MAX || from[block] == other);
            from[block] = other;
        }
        for (size_t b = 0; b < blocks && fits; b++)
            fits = from[b] < blocks;
        if (fits)
            return length;
    }
    return 0;
}

static void list_blocks(const size_t *blocks, size_t count, size_t most, char *text, size_t room)
{
    size_t used = 0;
    for (size_t b = 0; b < count && b < most && used + 8 < room; b++)
        used += (size_t)snprintf(text + used, room - used, "%s%zu", b ? ", " : "", blocks[b]);
    if (count > most && used < room)
        snprintf(text + used, room - used, " ...");
}

bool ts_tokens_come_first(const struct ts_case *the_case)
{
    const struct ts_view *view = &ts_case_pair(the_case)->a;
    unsigned axis = 0;
    while (axis + 1 < view->rank && view->shape[axis] == 1)
        axis++;
    return view->rank && view->shape[axis] == the_case->scene->tokens;
}

const char *ts_recipe_remark(const struct ts_case *the_case)
{
    return ts_case_direct(the_case) || ts_tokens_come_first(the_case) ? "" : ", with the tokens' axis put first";
}

/* "; to undo: reshape(2, 3, 4)[:, [2, 0, 1]], then its own shape": block b holds what belongs at from[b]. "" when some
 * are lost. */
static const char *undo(struct ts_case *the_case, uint64_t outer, const size_t *from, size_t blocks, uint64_t inner)
{
    size_t back[MOST_BLOCKS];
    char text[320] = "";
    for (size_t b = 0; b < blocks; b++)
        back[b] = SIZE_MAX;
    for (size_t b = 0; b < blocks; b++)
        if (from[b] < blocks)
            back[from[b]] = b;
    for (size_t b = 0; b < blocks; b++)
        if (back[b] == SIZE_MAX)
            return "";
    list_blocks(back, blocks, MOST_BLOCKS, text, sizeof text);
    return ts_case_text(the_case, "; to undo: reshape(%" PRIu64 ", %zu, %" PRIu64 ")[:, [%s]], then its own shape%s",
                        outer, blocks, inner, text, ts_recipe_remark(the_case));
}

/* All rows of the pair, and the numbers of each. */
static uint64_t all_rows(const struct lines *lines, uint64_t *width)
{
    *width = lines->view ? lines->view_columns : lines->the_case->actor->width;
    return ts_case_pair(lines->the_case)->a.count / *width;
}

static void count_runs(struct lines *lines)
{
    for (size_t i = 0; i < lines->found_count; i++) {
        lines->empty[i] = lines->from[i] == SIZE_MAX && is_empty(lines, i);
        lines->emptied += lines->empty[i];
        lines->runs += lines->empty[i] && (i == 0 || !lines->empty[i - 1]);
        if (lines->from[i] == SIZE_MAX || step_of(lines, i) == 0)
            continue;
        lines->moved++;
        lines->runs += i == 0 || lines->from[i - 1] == SIZE_MAX || step_of(lines, i) != step_of(lines, i - 1);
    }
}

/* The candidate holds this token where it belongs. */
static bool is_in_place(const struct lines *lines, size_t token)
{
    double signs[SIGNS], error = 0, size = 0;
    const double *wanted = lines->reference + token * lines->signs;
    if (!read_signs(lines, true, token, signs))
        return false;
    for (size_t k = 0; k < lines->signs; k++) {
        error += (signs[k] - wanted[k]) * (signs[k] - wanted[k]);
        size += wanted[k] * wanted[k];
    }
    return error <= CLOSE * size;
}

/* Every line that moved is still where it belongs as well: it was copied, not moved. */
static bool are_copies(const struct lines *lines)
{
    for (size_t i = 0; i < lines->found_count && lines->tokens; i++)
        if (lines->from[i] != SIZE_MAX && step_of(lines, i) != 0 && !is_in_place(lines, lines->from[i]))
            return false;
    if (lines->tokens)
        return true;
    for (size_t i = 0; i < lines->found_count; i++)
        if (lines->from[i] != SIZE_MAX && step_of(lines, i) != 0 &&
            (lines->from[i] >= lines->found_count || lines->from[lines->from[i]] != lines->from[i]))
            return false;
    return !lines->view;
}

/* Whole heads, or some channels. */
static const char *copied_heads(const struct lines *lines, const bool *moved)
{
    const struct ts_actor *actor = lines->the_case->actor;
    for (size_t i = 0; i < lines->found_count; i++)
        if (actor->heads < 2 || moved[i] != moved[i / actor->inner * actor->inner])
            return "channels";
    return "heads";
}

static void say_copies(const struct lines *lines, const double *prediction, const char *what)
{
    bool *moved = calloc(lines->found_count, sizeof *moved);
    char text[128];
    size_t first = SIZE_MAX;
    bool behind = true;
    if (!moved)
        return;
    for (size_t i = 0; i < lines->found_count; i++) {
        moved[i] = lines->from[i] != SIZE_MAX && step_of(lines, i) != 0;
        first = moved[i] && first == SIZE_MAX ? i : first;
    }
    ts_region_list(lines->the_case, moved, lines->found_count, !lines->columns, text, sizeof text);
    for (size_t i = 0; i < lines->found_count; i++)
        behind = behind && (!moved[i] || step_of(lines, i) == -1);
    if (!lines->columns && behind && !ts_case_direct(lines->the_case))
        ts_propose(lines->the_case, "stale", prediction, 2 * lines->runs,
                   "whether they are written at all: a position that does not advance, a slot that is written twice",
                   "%s %s hold again what belongs to the one before: %zu is a copy of %zu", what, text,
                   own_place(lines, first), lines->from[first]);
    else
        ts_propose(lines->the_case, lines->columns ? copied_heads(lines, moved) : "rows", prediction, 2 * lines->runs,
                   lines->columns || ts_case_direct(lines->the_case)
                       ? "the piece that is loaded or computed there: a shard or a head of another rank, read twice"
                       : "which token is looked up or read there: its id, its slot, its position",
                   "%s %s hold what belongs elsewhere, and is there as well: %zu is a copy of %zu", what, text,
                   own_place(lines, first), lines->from[first]);
    free(moved);
}

static void say(struct lines *lines, const double *prediction)
{
    struct ts_case *the_case = lines->the_case;
    const char *what = lines->columns             ? ts_case_direct(the_case) ? "columns" : "channels"
                       : ts_case_direct(the_case) ? "rows"
                                                  : "tokens";
    char order[256] = "";
    int64_t step = common_step(lines);
    size_t length, blocks, first, from[MOST_BLOCKS];
    uint64_t width, rows = all_rows(lines, &width);
    if (!step && are_copies(lines)) {
        say_copies(lines, prediction, what);
        return;
    }
    if (step) {
        ts_propose(the_case, "shifted", prediction, 1,
                   lines->columns
                       ? "an index, a slice or a pointer that is off"
                       : "positions: an offset of the cache, a token prepended or dropped, padding on the other "
                         "side, a roll",
                   "%s are moved by %" PRId64 ": place i holds what belongs at i %c %" PRId64, what, -step,
                   step < 0 ? '-' : '+', step < 0 ? -step : step);
        return;
    }
    if (is_reversed(lines)) {
        ts_propose(the_case, "permuted", prediction, 1,
                   ts_case_text(the_case,
                                "a flip, a negative stride, the other end of an axis; to undo: reshape(%" PRIu64
                                ", %" PRIu64 ").flip(%d), then its own shape%s",
                                rows, width, lines->columns ? 1 : 0, ts_recipe_remark(the_case)),
                   "%s stand in reverse order", what);
        return;
    }
    if ((length = block_order(lines, from)) > 0 || (length = sampled_blocks(lines, from)) > 0) {
        const char *fix = "";
        blocks = lines->count / length;
        list_blocks(from, blocks, 16, order, sizeof order);
        if (lines->columns || lines->count == rows) /* else some tokens stand for all */
            fix = undo(the_case, lines->columns ? rows : 1, from, blocks, lines->columns ? length : length * width);
        if (blocks == 2)
            ts_propose(the_case, "permuted", prediction, 1,
                       ts_case_text(the_case,
                                    "the order of the two halves: gate and up, scale and shift, sine and cosine%s",
                                    fix),
                       "the two halves of the %s are swapped (%zu each)", what, length);
        else
            ts_propose(the_case, "permuted", prediction, blocks,
                       ts_case_text(the_case, "the order of %s%s",
                                    blocks == 3 || blocks == 6
                                        ? "the pieces: q, k and v, or shift, scale and gate of a modulation"
                                        : "heads, experts or shards",
                                    fix),
                       "blocks of %zu %s stand in the order %s", length, what, order);
        return;
    }
    for (first = 0; first < lines->found_count && (lines->from[first] == SIZE_MAX || !step_of(lines, first)); first++) {
    }
    ts_propose(the_case, "permuted", prediction, 2 * lines->runs,
               "the order in which they are gathered, split or written",
               "%zu of %zu %s stand elsewhere, in %zu runs; the first: %zu holds what belongs at %zu%s", lines->moved,
               lines->found_count, what, lines->runs, own_place(lines, first), lines->from[first],
               lines->emptied ? ts_case_text(the_case, "; %zu are zero", lines->emptied) : "");
}

/* Blocks of a vector in another order: halves of a bias, q, k and v of another. Of lines of one number each nothing can
 * be told; of blocks of several it can. */
void ts_match_blocks(struct ts_case *the_case, double *prediction)
{
    size_t total = the_case->total, from[MOST_BLOCKS];
    if ((the_case->actor->rows != 1 && the_case->actor->width != 1) || !ts_case_complete(the_case))
        return;
    for (size_t blocks = 2; blocks <= MOST_BLOCKS && total / blocks >= LEAST; blocks++) {
        size_t length = total / blocks, moved = 0;
        char order[256] = "";
        for (size_t b = 0; b < blocks && total % blocks == 0; b++) {
            double energy = 0, best;
            from[b] = SIZE_MAX;
            for (size_t i = 0; i < length; i++)
                energy += the_case->found[b * length + i] * the_case->found[b * length + i];
            best = CLOSE * energy;
            for (size_t s = 0; s < blocks; s++) {
                double left = 0;
                for (size_t i = 0; i < length && left < best; i++) {
                    double d = the_case->found[b * length + i] - the_case->expected[s * length + i];
                    left += d * d;
                }
                if (left < best) {
                    best = left;
                    from[b] = s;
                }
            }
            if (from[b] == SIZE_MAX)
                break;
            moved += from[b] != b;
            memcpy(prediction + b * length, the_case->expected + from[b] * length, length * sizeof *prediction);
            if (b + 1 < blocks || !moved)
                continue;
            list_blocks(from, blocks, MOST_BLOCKS, order, sizeof order);
            ts_propose(the_case, "permuted", prediction, blocks == 2 ? 1 : blocks,
                       ts_case_text(the_case, "the order of the pieces: gate and up, scale and shift, q, k and v%s",
                                    undo(the_case, 1, from, blocks, length)),
                       blocks == 2 ? "the two halves are swapped (%zu numbers each)"
                                   : "blocks of %zu numbers stand in the order %s",
                       length, order);
            return;
        }
    }
}

/* For rows that are not in the case: channels stand as they do here, and rows that moved alike have moved alike. */
static void give_formula(const struct lines *lines)
{
    struct ts_case *the_case = lines->the_case;
    int64_t step = common_step(lines);
    if (!lines->columns) {
        if (step && !lines->emptied)
            ts_formula_other(the_case, the_case->actor->pair, step);
    } else if (!lines->emptied) {
        size_t *order = malloc(lines->count * sizeof *order);
        for (size_t i = 0; order && i < lines->count; i++)
            order[i] = lines->from[i] == SIZE_MAX ? i : lines->from[i];
        if (order)
            ts_formula_order(the_case, order);
        free(order);
    }
}

static void match(struct ts_case *the_case, bool columns, double *prediction)
{
    struct lines lines;
    if (open_lines(&lines, the_case, columns)) {
        for (size_t i = 0; i < lines.found_count; i++)
            lines.from[i] = nearest(&lines, i, i ? lines.from[i - 1] : SIZE_MAX);
        count_runs(&lines);
        if (lines.moved) {
            for (size_t i = 0; i < lines.found_count; i++)
                take(&lines, i, prediction);
            give_formula(&lines);
            say(&lines, prediction);
        }
    }
    close_lines(&lines);
}

void ts_match_rows(struct ts_case *the_case, double *prediction)
{
    match(the_case, false, prediction);
}

void ts_match_columns(struct ts_case *the_case, double *prediction)
{
    match(the_case, true, prediction);
}
