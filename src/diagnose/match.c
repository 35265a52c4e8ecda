/* Owns the rows and columns that are found again in another place (compare/row_match.h), and what they predict. */
#include "diagnose/match.h"

#include <stdlib.h>
#include <string.h>

#include "diagnose/lines.h"

#define LEAST         3 /* fewer match by chance */
#define CENTRED_LEAST 6 /* the same, of numbers whose mean was taken off */
#define MOST_READ     ((uint64_t)1 << 23)
#define BEHIND        ((size_t)256) /* lines whose pages may stay resident behind the walk */
#define WORTHWHILE    0.3
#define NEARLY_ALL    0.97
#define AS_GOOD       1e-3              /* of the error: does not matter */
#define MOST_LINES    ((size_t)1 << 17) /* all of which are matched */

size_t ts_own_place(const struct ts_lines *lines, size_t line)
{
    return (lines->view || lines->tokens) && !lines->columns && !lines->all ? (size_t)ts_case_row(lines->the_case, line)
                                                                            : line;
}

int64_t ts_step_of(const struct ts_lines *lines, size_t line)
{
    return (int64_t)lines->from[line] - (int64_t)ts_own_place(lines, line);
}

static size_t across_at(const struct ts_lines *lines, size_t sign)
{
    const struct ts_actor *actor = lines->the_case->actor;
    size_t length = lines->columns ? actor->rows : actor->width;
    return ts_row_sign_at(sign, lines->signs, length);
}

static double case_value(const struct ts_lines *lines, const double *values, size_t line, size_t across)
{
    size_t width = lines->the_case->actor->width;
    double value = lines->columns ? values[across * width + line] : values[line * width + across];
    return isfinite(value) ? value : 0;
}

/* What a line of either side is measured from. */
static double centre_of(const struct ts_lines *lines, bool candidate, size_t line)
{
    return lines->centres ? lines->centres[line + (candidate ? lines->count : 0)] : 0;
}

static bool find_centres(struct ts_lines *lines)
{
    const struct ts_case *the_case = lines->the_case;
    size_t rows = the_case->actor->rows;
    double *centres = calloc(2 * lines->count, sizeof *centres);
    for (size_t i = 0; i < lines->count && centres; i++)
        for (size_t row = 0; row < rows; row++) {
            centres[i] += case_value(lines, the_case->expected, i, row) / (double)rows;
            centres[lines->count + i] += case_value(lines, the_case->found, i, row) / (double)rows;
        }
    lines->centres = centres;
    return centres != NULL;
}

/* Numbers of a token that may not be in the case. */
static bool read_token(const struct ts_lines *lines, bool candidate, size_t token, size_t first, size_t count,
                       double *out)
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
static bool read_number(const struct ts_lines *lines, bool candidate, size_t token, size_t column, double *out)
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

/* The numbers that a line of either side is known by. */
static bool read_signs(const struct ts_lines *lines, bool candidate, size_t line, double *signs)
{
    struct ts_error ignored;
    for (size_t k = 0; k < lines->signs; k++)
        if (lines->tokens) {
            if (!read_number(lines, candidate, line, across_at(lines, k), &signs[k]))
                return false;
        } else if (!lines->view) {
            signs[k] =
                case_value(lines, lines->the_case->expected, line, across_at(lines, k)) - centre_of(lines, false, line);
        } else if (ts_view_read_f64(candidate ? &ts_case_pair(lines->the_case)->b : lines->view,
                                    line * lines->view_columns + across_at(lines, k), 1, &signs[k],
                                    &ignored) != TS_OK ||
                   !isfinite(signs[k])) {
            signs[k] = 0;
        }
    return true;
}

bool ts_is_in_place(const struct ts_lines *lines, size_t token)
{
    double signs[TS_ROW_SIGNS], size = 0;
    const double *wanted = lines->reference + token * lines->signs;
    if (!read_signs(lines, true, token, signs))
        return false;
    for (size_t k = 0; k < lines->signs; k++)
        size += wanted[k] * wanted[k];
    return ts_row_book_distance(&lines->book, signs, token) <= TS_LINE_CLOSE * size;
}

/* Some tokens of a long sequence: what they hold may belong to any other. */
static bool has_more_tokens(const struct ts_case *the_case)
{
    const struct ts_scene *scene = the_case->scene;
    return ts_case_glance(the_case) && the_case->actor->rows == scene->taken_count &&
           the_case->actor->rows < ts_scene_sequence(scene) && ts_scene_sequence(scene) <= MOST_READ / TS_ROW_SIGNS &&
           scene->taken[scene->taken_count - 1] - ts_scene_first(scene) < ts_scene_sequence(scene);
}

static bool open_lines(struct ts_lines *lines, struct ts_case *the_case, bool columns, bool centred)
{
    const struct ts_actor *actor = the_case->actor;
    const struct ts_pair *pair = ts_case_pair(the_case);
    size_t length = columns ? actor->rows : actor->width;
    *lines = (struct ts_lines){.the_case = the_case, .columns = columns};
    lines->found_count = lines->count = columns ? actor->width : actor->rows;
    lines->signs = length < TS_ROW_SIGNS ? length : TS_ROW_SIGNS;
    if (ts_case_direct(the_case) && !ts_case_complete(the_case) && !columns) {
        lines->view = &pair->a;
        lines->view_columns = pair->a.shape[pair->a.rank - 1];
        if (pair->a.count / lines->view_columns > MOST_READ / TS_ROW_SIGNS || lines->view_columns > actor->width)
            return false;
        lines->count = (size_t)(pair->a.count / lines->view_columns);
    }
    if (!columns && !ts_case_direct(the_case) && !ts_case_is_part(the_case) && has_more_tokens(the_case) &&
        ts_scene_axis(the_case->scene, actor->pair, &lines->axis)) {
        lines->tokens = true;
        lines->count = (size_t)ts_scene_sequence(the_case->scene);
    }
    if (lines->signs < LEAST || lines->count < 2 || (centred && !find_centres(lines)))
        return false;
    lines->reference = malloc(lines->count * lines->signs * sizeof(double));
    lines->found = malloc(lines->found_count * lines->signs * sizeof(double));
    lines->from = malloc(lines->found_count * sizeof *lines->from);
    lines->empty = calloc(lines->found_count, sizeof *lines->empty);
    if (!lines->reference || !lines->found || !lines->from || !lines->empty)
        return false;
    for (size_t line = 0; line < lines->found_count; line++)
        for (size_t k = 0; k < lines->signs; k++)
            lines->found[line * lines->signs + k] =
                case_value(lines, the_case->found, line, across_at(lines, k)) - centre_of(lines, true, line);
    for (size_t line = 0; line < lines->count; line++) {
        if (!read_signs(lines, false, line, lines->reference + line * lines->signs))
            return false;
        if (lines->view && line % BEHIND == BEHIND - 1) /* a few numbers of each line, and the pages around them */
            ts_view_forget(lines->view, (line + 1 - BEHIND) * lines->view_columns, BEHIND * lines->view_columns);
        if (lines->tokens && (line % BEHIND == BEHIND - 1 || line + 1 == lines->count))
            ts_view_forget(&pair->a, 0, pair->a.count);
    }
    return ts_row_book_open(&lines->book, lines->reference, lines->count, lines->signs);
}

static void close_lines(struct ts_lines *lines)
{
    free(lines->reference);
    free(lines->found);
    ts_row_book_release(&lines->book);
    free(lines->from);
    free(lines->empty);
    free(lines->centres);
}

/* The line that these signs are, SIZE_MAX when none is near. */
static size_t find_near(const struct ts_row_book *book, const double *signs, size_t own, size_t before)
{
    double energy = 0;
    for (size_t k = 0; k < book->signs; k++)
        energy += signs[k] * signs[k];
    return ts_row_book_find(book, signs, TS_LINE_CLOSE * energy, own, before, NULL).row;
}

static void find_lines(struct ts_lines *lines)
{
    for (size_t i = 0; i < lines->found_count; i++)
        lines->from[i] = find_near(&lines->book, lines->found + i * lines->signs, ts_own_place(lines, i),
                                   i ? lines->from[i - 1] : SIZE_MAX);
}

/* What is added to a line that moved without its mean. */
static double offset_of(const struct ts_lines *lines, size_t line)
{
    size_t from = lines->from[line];
    return from == SIZE_MAX || from == line ? 0 : centre_of(lines, true, line) - centre_of(lines, false, from);
}

/* One line of the reference into the prediction. */
static void take(const struct ts_lines *lines, size_t line, double *prediction)
{
    const struct ts_case *the_case = lines->the_case;
    size_t width = the_case->actor->width, rows = the_case->actor->rows, from = lines->from[line];
    struct ts_error ignored;
    for (size_t i = 0; lines->empty[line] && i < (lines->columns ? rows : width); i++)
        prediction[lines->columns ? i * width + line : line * width + i] = 0;
    if (lines->empty[line])
        return;
    if (from == SIZE_MAX)
        from = ts_own_place(lines, line);
    if (lines->columns)
        for (size_t row = 0; row < rows; row++)
            prediction[row * width + line] = the_case->expected[row * width + from] + offset_of(lines, line);
    else if (lines->tokens && (ts_step_of(lines, line) == 0 || lines->from[line] == SIZE_MAX ||
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

/* Nothing but zeros, where the numbers that a line is known by should not be. */
static bool is_empty(const struct ts_lines *lines, size_t line)
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

static void count_runs(struct ts_lines *lines)
{
    for (size_t i = 0; i < lines->found_count; i++) {
        if (!lines->all)
            lines->empty[i] = lines->from[i] == SIZE_MAX && is_empty(lines, i);
        lines->emptied += lines->empty[i];
        lines->runs += lines->empty[i] && (i == 0 || !lines->empty[i - 1]);
        if (lines->from[i] == SIZE_MAX || ts_step_of(lines, i) == 0)
            continue;
        lines->moved++;
        lines->runs += i == 0 || lines->from[i - 1] == SIZE_MAX || ts_step_of(lines, i) != ts_step_of(lines, i - 1);
    }
}

/* The case holds one sequence of a batch, every token of it. */
static bool is_whole_sequence(const struct ts_lines *lines)
{
    const struct ts_actor *actor = lines->the_case->actor;
    return !lines->view && !lines->tokens && !lines->columns && actor->whole && actor->rows == actor->sequence &&
           actor->rows <= TS_ROWS_PLACES;
}

/* For rows that are not in the case: channels stand as they do here, and rows that moved alike have moved alike. False
 * when there is no rule for them. */
static bool give_formula(const struct ts_lines *lines)
{
    struct ts_case *the_case = lines->the_case;
    struct ts_rows_moved moved = {.step = ts_common_step(lines)};
    if (lines->emptied && (lines->view || lines->tokens))
        return false;
    if (lines->columns) {
        size_t *order = malloc(lines->count * sizeof *order);
        double *offsets = malloc(lines->count * sizeof *offsets);
        for (size_t i = 0; order && offsets && i < lines->count; i++) {
            order[i] = lines->empty[i] ? SIZE_MAX : lines->from[i] == SIZE_MAX ? i : lines->from[i];
            offsets[i] = offset_of(lines, i);
        }
        if (order && offsets)
            ts_formula_order(the_case, order, lines->centres ? offsets : NULL);
        free(order);
        free(offsets);
        return true;
    }
    if (moved.step && lines->emptied)
        moved.step = 0;
    moved.reversed = !moved.step && ts_is_reversed(lines);
    if (!moved.step && !moved.reversed)
        moved.length = ts_sampled_blocks(lines, moved.from);
    if (!moved.step && !moved.reversed && !moved.length && is_whole_sequence(lines)) {
        moved.length = 1; /* every other sequence of the batch in the same order */
        for (size_t i = 0; i < lines->count; i++)
            moved.from[i] = lines->empty[i] ? TS_ROWS_EMPTY : lines->from[i] == SIZE_MAX ? i : lines->from[i];
    }
    if (!moved.step && !moved.reversed && !moved.length)
        return false;
    ts_formula_moved(the_case, &moved);
    return true;
}

/* A row of either side, in the case or not. */
static bool read_row(const struct ts_lines *lines, bool candidate, size_t row, double *out)
{
    const struct ts_pair *pair = ts_case_pair(lines->the_case);
    size_t width = lines->the_case->actor->width;
    struct ts_error ignored;
    if (lines->tokens)
        return read_token(lines, candidate, row, 0, width, out);
    if (ts_view_read_f64(candidate ? &pair->b : &pair->a, row * lines->view_columns, width, out, &ignored) != TS_OK)
        return false;
    for (size_t i = 0; i < width; i++)
        out[i] = isfinite(out[i]) ? out[i] : 0;
    return true;
}

/* What the matching of all rows leaves, over what there is to explain. */
static bool measure_all(struct ts_lines *lines)
{
    const struct ts_pair *pair = ts_case_pair(lines->the_case);
    size_t width = lines->the_case->actor->width;
    double *found = malloc(3 * width * sizeof *found), *right = found + width, *source = right + width;
    double error = 0, left = 0, size = 0;
    bool good = found != NULL;
    for (size_t line = 0; line < lines->count && good; line++) {
        double own = 0, energy = 0, rest = 0;
        size_t from = lines->from[line];
        good = read_row(lines, true, line, found) && read_row(lines, false, line, right) &&
               (from == SIZE_MAX || from == line || read_row(lines, false, from, source));
        for (size_t i = 0; i < width && good; i++) {
            double value = from == SIZE_MAX || from == line ? right[i] : source[i];
            own += (found[i] - right[i]) * (found[i] - right[i]);
            rest += (found[i] - value) * (found[i] - value);
            energy += found[i] * found[i];
        }
        lines->empty[line] = from == SIZE_MAX && energy == 0 && own > 0;
        error += own;
        left += lines->empty[line] ? 0 : rest;
        size += energy;
        if (line % BEHIND == BEHIND - 1 || line + 1 == lines->count) {
            ts_view_forget(&pair->a, 0, pair->a.count);
            ts_view_forget(&pair->b, 0, pair->b.count);
        }
    }
    free(found);
    lines->left_share = left / (size < error ? size : error);
    return good && error > 0 && size > 0;
}

/* What is expected is what the reference holds, or next to it: rows that are not at hand are read there. */
static bool is_reference_expected(const struct ts_case *the_case)
{
    double apart = 0;
    for (size_t i = 0; i < the_case->total; i++) {
        double d = the_case->expected[i] - (double)the_case->actor->a[i];
        apart += isfinite(d) ? d * d : 0;
    }
    return apart <= AS_GOOD * the_case->error;
}

/* Every row of the pair is matched, or of the sequence at hand, where there is no rule by which they moved: then it is
 * proved on everything. */
static bool match_all(struct ts_lines *lines)
{
    struct ts_case *the_case = lines->the_case;
    const struct ts_pair *pair = ts_case_pair(the_case);
    size_t width = the_case->actor->width;
    double *found;
    size_t *from;
    bool *empty, good;
    if (lines->columns || (!lines->view && !lines->tokens) || lines->count > MOST_LINES ||
        !is_reference_expected(the_case) || !ts_case_wants(the_case, "") ||
        (lines->view && width != lines->view_columns) ||
        (lines->tokens && the_case->scene->batch > 1 && lines->count > TS_ROWS_PLACES))
        return false;
    found = malloc(lines->count * lines->signs * sizeof *found);
    from = malloc(lines->count * sizeof *from);
    empty = calloc(lines->count, sizeof *empty);
    good = found && from && empty;
    for (size_t line = 0; line < lines->count && good; line++) {
        good = read_signs(lines, true, line, found + line * lines->signs);
        if (line % BEHIND == BEHIND - 1 || line + 1 == lines->count)
            ts_view_forget(&pair->b, 0, pair->b.count);
    }
    if (!good) {
        free(found);
        free(from);
        free(empty);
        return false;
    }
    free(lines->found);
    free(lines->from);
    free(lines->empty);
    lines->found = found;
    lines->from = from;
    lines->empty = empty;
    lines->found_count = lines->count;
    lines->all = true;
    lines->runs = lines->moved = lines->emptied = 0;
    find_lines(lines);
    if (!measure_all(lines))
        return false;
    count_runs(lines);
    return true;
}

/* All of them are known: of a batch those of one sequence, and every other one in the same order. */
static void give_matched(const struct ts_lines *lines)
{
    struct ts_rows_moved moved = {.length = 1};
    if (!lines->tokens || lines->the_case->scene->batch <= 1) {
        ts_formula_next(lines->the_case, &(struct ts_formula){.proved = true});
        return;
    }
    for (size_t i = 0; i < lines->count && i < TS_ROWS_PLACES; i++)
        moved.from[i] = lines->empty[i] ? TS_ROWS_EMPTY : lines->from[i] == SIZE_MAX ? i : lines->from[i];
    ts_formula_moved(lines->the_case, &moved);
}

/* Returns the share of the error that it explains. */
static double match(struct ts_case *the_case, bool columns, bool centred, double *prediction)
{
    struct ts_lines lines;
    bool good = open_lines(&lines, the_case, columns, centred);
    double explained;
    if (good) {
        find_lines(&lines);
        count_runs(&lines);
    }
    if (good && lines.moved) {
        for (size_t i = 0; i < lines.found_count; i++)
            take(&lines, i, prediction);
        if (!give_formula(&lines) && ts_explained(the_case, prediction) > WORTHWHILE && match_all(&lines) &&
            lines.moved)
            give_matched(&lines);
        if (lines.moved)
            ts_lines_say(&lines, prediction);
    }
    explained = good && lines.moved ? ts_explained(the_case, prediction) : 0;
    close_lines(&lines);
    return explained;
}

void ts_match_rows(struct ts_case *the_case, double *prediction)
{
    match(the_case, false, false, prediction);
}

void ts_match_columns(struct ts_case *the_case, double *prediction)
{
    /* a projection whose weights moved and whose bias did not */
    if (match(the_case, true, false, prediction) < NEARLY_ALL && !ts_case_direct(the_case) &&
        the_case->actor->rows >= CENTRED_LEAST)
        match(the_case, true, true, prediction);
}

/* Where what each block of a vector holds belongs. False when one is found nowhere, or all are in their places. */
static bool find_blocks(const struct ts_case *the_case, size_t blocks, size_t *from)
{
    const size_t length = the_case->total / blocks;
    struct ts_row_book book;
    bool good = ts_row_book_open(&book, the_case->expected, blocks, length), moved = false;
    for (size_t b = 0; b < blocks && good; b++) {
        from[b] = find_near(&book, the_case->found + b * length, b, SIZE_MAX);
        good = from[b] != SIZE_MAX;
        moved = moved || from[b] != b;
    }
    ts_row_book_release(&book);
    return good && moved;
}

/* Blocks of a vector in another order: halves of a bias, q, k and v of another. Of lines of one number each nothing can
 * be told; of blocks of several it can. */
void ts_match_blocks(struct ts_case *the_case, double *prediction)
{
    const size_t total = the_case->total;
    size_t from[TS_LINE_BLOCKS];
    if ((the_case->actor->rows != 1 && the_case->actor->width != 1) || !ts_case_complete(the_case))
        return;
    for (size_t blocks = 2; blocks <= TS_LINE_BLOCKS && total / blocks >= LEAST; blocks++) {
        const size_t length = total / blocks;
        if (total % blocks || !find_blocks(the_case, blocks, from))
            continue;
        for (size_t b = 0; b < blocks; b++)
            memcpy(prediction + b * length, the_case->expected + from[b] * length, length * sizeof *prediction);
        ts_blocks_say(the_case, from, blocks, prediction);
        return;
    }
}
