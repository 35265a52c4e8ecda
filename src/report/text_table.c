#include "report/text_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "report/changes.h"
#include "report/facts.h"
#include "report/text_lines.h"

/* A name shortened below this says little; columns are given up before that happens. */
#define NAME_LEAST 28
#define SHAPE_MOST 24

/* Of traces and of checkpoints: what stands in the second and third column depends on which. */
enum column { SHAPE, ERROR, ROUNDINGS, RATIO, RANK, GRADE, WORST, COLUMNS };

struct cells {
    struct ts_buffer column[COLUMNS];
};

struct widths {
    size_t name, column[COLUMNS];
    bool place;     /* where the worst element is */
    bool two_lines; /* the name has a line of its own */
};

struct table {
    const struct ts_comparison *comparison;
    const struct ts_report_options *options;
    const struct ts_layout *layout;
    struct ts_line *lines;
    size_t count;
};

static bool are_checkpoints(const struct table *table)
{
    return table->comparison->judgement.weights;
}

static enum ts_judged judged(const struct table *table, size_t i)
{
    return table->comparison->judgement.verdicts[i].judged;
}

static void put_worst(struct ts_buffer *out, const struct ts_pair *pair, const struct ts_delta *delta, bool place)
{
    uint64_t at = delta->worst;
    if (delta->non_finite_mismatch) {
        ts_buffer_printf(out, "%" PRIu64 " element%s", delta->non_finite_mismatch,
                         delta->non_finite_mismatch == 1 ? "" : "s");
        at = delta->first_non_finite_mismatch;
    } else if (delta->worst >= pair->a.count) {
        return;
    } else {
        ts_buffer_printf(out, "%.3g", delta->max_abs);
    }
    if (place && at < pair->a.count && pair->a.rank) {
        ts_buffer_string(out, delta->non_finite_mismatch > 1 ? " from " : " at ");
        ts_put_coordinates(out, &pair->a, at);
    }
}

/* "0.23", or "nan/inf" when that is what is wrong. */
static void put_error(struct ts_buffer *out, const struct ts_delta *delta)
{
    if (delta->non_finite_mismatch)
        ts_buffer_string(out, "nan/inf");
    else
        ts_put_short(out, delta->rel_l2);
}

static void change_cells(const struct table *table, size_t i, struct cells *cells)
{
    const struct ts_delta *delta = &table->comparison->deltas[i];
    ts_put_changed(&cells->column[ERROR], table->comparison, i);
    if (ts_is_equal(table->comparison, i))
        return;
    put_error(&cells->column[ROUNDINGS], delta);
    ts_put_ratio(&cells->column[RATIO], delta->norm_ratio);
    if (table->comparison->ranks)
        ts_put_rank(&cells->column[RANK], &table->comparison->ranks[i], table->layout->unicode);
}

static void error_cells(const struct table *table, size_t i, bool place, struct cells *cells)
{
    const struct ts_delta *delta = &table->comparison->deltas[i];
    if (ts_is_equal(table->comparison, i)) {
        ts_buffer_string(&cells->column[ERROR], "equal");
        return;
    }
    put_error(&cells->column[ERROR], delta);
    if (!ts_has_roundings(table->comparison, i))
        ts_buffer_byte(&cells->column[ROUNDINGS], '-');
    else
        ts_put_short(&cells->column[ROUNDINGS], table->comparison->judgement.verdicts[i].roundings);
    if (table->comparison->ranks)
        ts_put_rank(&cells->column[RANK], &table->comparison->ranks[i], table->layout->unicode);
    put_worst(&cells->column[WORST], &table->comparison->pairing.pairs[i], delta, place);
}

static void row_cells(const struct table *table, size_t i, bool place, struct cells *cells)
{
    const struct ts_pair *pair = &table->comparison->pairing.pairs[i];
    struct ts_buffer shape;
    ts_buffer_init(&shape, 65536);
    ts_put_pair_shape(&shape, pair);
    ts_put_name(table->layout, &cells->column[SHAPE], shape.data ? shape.data : "", SHAPE_MOST);
    ts_buffer_release(&shape);
    if (pair->problem) {
        ts_buffer_string(&cells->column[ERROR], "cannot tell");
        return;
    }
    if (are_checkpoints(table))
        change_cells(table, i, cells);
    else
        error_cells(table, i, place, cells);
    if (table->options->grades)
        ts_buffer_string(&cells->column[GRADE], ts_comparison_grade(&table->comparison->deltas[i]));
}

static void run_cells(const struct table *table, const struct ts_line *line, struct cells *cells)
{
    const struct ts_comparison *comparison = table->comparison;
    double most = 0;
    bool noise = false, equal = true, allowed = false;
    const char *grade = NULL;
    static const char order[] = "EGAS"; /* first letters of the grades, best first */
    ts_buffer_printf(&cells->column[SHAPE], "%zu pairs", line->last - line->first + 1);
    if (!ts_pair_agrees(table->comparison, line->first)) {
        ts_buffer_string(&cells->column[ERROR], "cannot tell");
        return;
    }
    for (size_t i = line->first; i <= line->last; i++) {
        const struct ts_delta *delta = &comparison->deltas[i];
        double roundings = comparison->judgement.verdicts[i].roundings;
        noise = noise || judged(table, i) == TS_JUDGED_NOISE;
        allowed = allowed || comparison->judgement.verdicts[i].allowed;
        equal = equal && ts_is_equal(comparison, i);
        if (!delta->exact && roundings > most)
            most = roundings;
        if (table->options->grades) {
            const char *its = ts_comparison_grade(delta);
            if (!grade || strchr(order, its[0]) > strchr(order, grade[0]))
                grade = its;
        }
    }
    ts_buffer_string(&cells->column[ERROR], allowed ? "allowed" : noise ? "noise" : equal ? "equal" : "ok");
    if (!equal) {
        ts_buffer_string(&cells->column[ROUNDINGS], table->layout->unicode ? "≤ " : "<= ");
        ts_put_short(&cells->column[ROUNDINGS], most);
    }
    if (grade)
        ts_buffer_string(&cells->column[GRADE], grade);
}

static void make_cells(const struct table *table, const struct ts_line *line, bool place, struct cells *cells)
{
    for (size_t i = 0; i < COLUMNS; i++)
        ts_buffer_init(&cells->column[i], 65536);
    if (line->kind == TS_LINE_ROW)
        row_cells(table, line->first, place, cells);
    else if (line->kind == TS_LINE_RUN)
        run_cells(table, line, cells);
}

static void head_cells(const struct table *table, struct cells *cells)
{
    static const char *const traces[COLUMNS] = {"shape", "error", "roundings", "", "rank", "grade", "worst"};
    static const char *const checkpoints[COLUMNS] = {"shape", "changed", "change", "norm ratio", "rank", "grade", ""};
    make_cells(table, &(struct ts_line){.kind = TS_LINE_WAKE}, false, cells);
    for (size_t i = 0; i < COLUMNS; i++)
        ts_buffer_string(&cells->column[i], (are_checkpoints(table) ? checkpoints : traces)[i]);
}

static void release_cells(struct cells *cells)
{
    for (size_t i = 0; i < COLUMNS; i++)
        ts_buffer_release(&cells->column[i]);
}

static const char *text_of(const struct ts_buffer *buffer)
{
    return buffer->data ? buffer->data : "";
}

static void widen(struct widths *widths, const struct cells *cells)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        size_t columns = ts_text_columns(text_of(&cells->column[i]), cells->column[i].size);
        widths->column[i] = columns > widths->column[i] ? columns : widths->column[i];
    }
}

/* All columns but the name, with the gaps before them. */
static size_t rest_of(const struct widths *widths)
{
    size_t rest = 0;
    for (size_t i = 0; i < COLUMNS; i++)
        rest += widths->column[i] ? 2 + widths->column[i] : 0;
    return rest;
}

/* Stands before the last name of a run when there is no room for its first. */
static const char up_to[] = "up to ";

/* Columns of the name, or of both names of a run, or of its last alone. */
static size_t name_need(const struct table *table, const struct ts_line *line, bool both)
{
    const struct ts_pair *pairs = table->comparison->pairing.pairs;
    if (line->kind == TS_LINE_ROW)
        return ts_name_columns(pairs[line->first].name);
    return (both ? ts_name_columns(pairs[line->first].name) + 3 : strlen(up_to)) +
           ts_name_columns(pairs[line->last].name);
}

static bool has_cells(const struct ts_line *line)
{
    return line->kind == TS_LINE_ROW || line->kind == TS_LINE_RUN;
}

static size_t most_need(const struct table *table, bool both)
{
    size_t need = strlen("tensor");
    for (size_t i = 0; i < table->count; i++)
        if (has_cells(&table->lines[i])) {
            size_t columns = name_need(table, &table->lines[i], both);
            need = columns > need ? columns : need;
        }
    return need;
}

/* The widths all cells need, heads as well; columns without a cell have none. */
static struct widths measure(const struct table *table, bool place)
{
    struct widths widths = {.place = place};
    struct cells cells;
    for (size_t i = 0; i < table->count; i++) {
        make_cells(table, &table->lines[i], place, &cells);
        widen(&widths, &cells);
        release_cells(&cells);
    }
    widths.column[ROUNDINGS] += !widths.column[ROUNDINGS]; /* the head of a table stays the same */
    head_cells(table, &cells);
    for (size_t i = 0; i < COLUMNS; i++)
        if (!widths.column[i])
            ts_buffer_clear(&cells.column[i]);
    widen(&widths, &cells);
    release_cells(&cells);
    return widths;
}

/* Gives up the place of the worst element, then the worst element and the ratio of norms, then one line per row, until
 * names have room; then the shape and, from the last, all columns but the error, until the rest has. */
static struct widths fit(const struct table *table)
{
    struct widths widths = {.name = 6};
    size_t need = most_need(table, true), least, room;
    least = need < NAME_LEAST ? need : NAME_LEAST;
    for (int attempt = 0; attempt < 3; attempt++) {
        widths = measure(table, attempt == 0);
        if (attempt == 2)
            widths.column[WORST] = widths.column[RATIO] = 0;
        room = rest_of(&widths) + 4;
        room = table->layout->width > room ? table->layout->width - room : 0;
        if (room >= least) {
            need = need <= room ? need : most_need(table, false);
            widths.name = need < room ? need : room;
            return widths;
        }
    }
    widths.two_lines = true;
    widths.name = table->layout->width > 14 ? table->layout->width - 4 : 10;
    if (rest_of(&widths) + 4 > table->layout->width)
        widths.column[SHAPE] = 0;
    for (size_t i = COLUMNS; i-- > ERROR + 1 && rest_of(&widths) + 4 > table->layout->width;)
        widths.column[i] = 0;
    return widths;
}

static void put_cell(struct ts_buffer *out, const struct ts_buffer *cell, size_t width, bool last)
{
    size_t columns = ts_text_columns(text_of(cell), cell->size);
    ts_put_spaces(out, 2);
    ts_buffer_string(out, text_of(cell));
    if (!last)
        ts_put_spaces(out, width > columns ? width - columns : 0);
}

/* The cells after the name, without spaces at the end of the line. */
static void put_cells(struct ts_buffer *out, const struct cells *cells, const struct widths *widths)
{
    size_t last = 0;
    for (size_t i = 0; i < COLUMNS; i++)
        if (widths->column[i] && cells->column[i].size)
            last = i;
    for (size_t i = 0; i <= last; i++)
        if (widths->column[i])
            put_cell(out, &cells->column[i], widths->column[i], i == last);
}

static void put_head(const struct table *table, const struct widths *widths, struct ts_buffer *out)
{
    struct ts_buffer line;
    struct cells cells;
    head_cells(table, &cells);
    ts_buffer_init(&line, 4096);
    ts_buffer_string(&line, "    tensor");
    if (widths->two_lines)
        ts_buffer_string(&line, "\n    ");
    else
        ts_put_spaces(&line, widths->name - 6);
    put_cells(&line, &cells, widths);
    ts_buffer_byte(&line, '\n');
    ts_put_styled(table->layout, out, TS_STYLE_DIM, text_of(&line));
    ts_buffer_release(&line);
    release_cells(&cells);
}

static void put_mark(const struct table *table, const struct ts_line *line, struct ts_buffer *out)
{
    static const char *const marks[][2] = {{".", "✓"}, {"~", "≈"}, {"x", "✗"}, {"?", "?"}};
    static const enum ts_style styles[] = {TS_STYLE_GREEN, TS_STYLE_GREEN, TS_STYLE_RED, TS_STYLE_YELLOW};
    ts_put_spaces(out, 2);
    if (line->kind == TS_LINE_ROW) {
        enum ts_judged verdict = judged(table, line->first);
        ts_put_styled(table->layout, out, styles[verdict], marks[verdict][table->layout->unicode]);
        ts_buffer_byte(out, ' ');
    } else {
        ts_put_spaces(out, 2);
    }
}

static size_t put_names(const struct table *table, const struct ts_line *line, size_t room, struct ts_buffer *out)
{
    const struct ts_pair *pairs = table->comparison->pairing.pairs;
    size_t used;
    if (line->kind == TS_LINE_ROW)
        return ts_put_name(table->layout, out, pairs[line->first].name, room);
    if (name_need(table, line, true) <= room) {
        used = ts_put_name(table->layout, out, pairs[line->first].name, room) + 3;
        ts_buffer_string(out, table->layout->unicode ? " … " : " - ");
        return used + ts_put_name(table->layout, out, pairs[line->last].name, room - used);
    }
    /* the last name is the one next to what comes */
    ts_buffer_string(out, up_to);
    used = strlen(up_to);
    return used + ts_put_name(table->layout, out, pairs[line->last].name, room - used);
}

static void put_wake(const struct table *table, const struct ts_line *line, struct ts_buffer *out)
{
    size_t counts[4] = {0};
    struct ts_buffer text;
    for (size_t i = line->first; i <= line->last; i++)
        counts[judged(table, i)]++;
    ts_buffer_init(&text, 4096);
    ts_buffer_printf(&text, "%s %zu more tensor%s%s", table->layout->unicode ? "…" : "...", counts[TS_JUDGED_DIFFERS],
                     counts[TS_JUDGED_DIFFERS] == 1 ? " differs" : "s differ",
                     table->comparison->judgement.weights ? "" : " downstream");
    if (counts[TS_JUDGED_OK] + counts[TS_JUDGED_NOISE])
        ts_buffer_printf(&text, ", %zu agree%s", counts[TS_JUDGED_OK] + counts[TS_JUDGED_NOISE],
                         counts[TS_JUDGED_OK] + counts[TS_JUDGED_NOISE] == 1 ? "s" : "");
    if (counts[TS_JUDGED_UNKNOWN])
        ts_buffer_printf(&text, ", %zu cannot be compared", counts[TS_JUDGED_UNKNOWN]);
    ts_put_spaces(out, 4);
    ts_put_folded(table->layout, out, text_of(&text), 4, 4);
    ts_buffer_byte(out, '\n');
    ts_buffer_release(&text);
}

/* "279 tensors are unchanged" */
static void put_fold(const struct table *table, const struct ts_line *line, struct ts_buffer *out)
{
    const char *plural = line->first == 1 ? " is" : "s are";
    struct ts_buffer text;
    ts_buffer_init(&text, 4096);
    if (line->kind == TS_LINE_SAME) {
        ts_buffer_printf(&text, "%zu tensor%s unchanged", line->first, plural);
    } else {
        if (line->kind == TS_LINE_ROUNDED)
            ts_buffer_printf(&text, "%zu tensor%s unchanged up to rounding, by at most ", line->first, plural);
        else
            ts_buffer_printf(&text, "%s %zu more tensor%s changed, by at most ", table->layout->unicode ? "…" : "...",
                             line->first, line->first == 1 ? "" : "s");
        put_error(&text, &table->comparison->deltas[line->last]);
        ts_buffer_string(&text, line->kind == TS_LINE_ROUNDED ? "" : "; see them with --all");
    }
    ts_put_spaces(out, 4);
    ts_put_folded(table->layout, out, text_of(&text), 4, 4);
    ts_buffer_byte(out, '\n');
    ts_buffer_release(&text);
}

/* Under a row: why it could not be compared, under which name and layout it stands on the other side. */
static void put_remark(const struct table *table, const struct ts_line *line, struct ts_buffer *out)
{
    const struct ts_pair *pair = &table->comparison->pairing.pairs[line->first];
    struct ts_buffer text;
    ts_buffer_init(&text, (size_t)1 << 20);
    if (judged(table, line->first) == TS_JUDGED_UNKNOWN)
        ts_buffer_string(&text, ts_reason(table->comparison, line->first));
    else if (table->options->all || judged(table, line->first) == TS_JUDGED_DIFFERS)
        ts_put_remark(&text, pair);
    else if (pair->recipe) /* a layout that was found is told with what it makes equal */
        ts_buffer_printf(&text, "%s%s", pair->recipe,
                         !pair->ambiguous  ? ""
                         : pair->recipe[0] ? "; another layout fits as well"
                                           : "another layout fits as well");
    if (text.size) {
        ts_put_spaces(out, 6);
        ts_put_folded(table->layout, out, text.data, 6, 6);
        ts_buffer_byte(out, '\n');
    }
    ts_buffer_release(&text);
}

static void put_line(const struct table *table, const struct ts_line *line, const struct widths *widths,
                     struct ts_buffer *out)
{
    struct cells cells;
    size_t used;
    if (line->kind == TS_LINE_WAKE) {
        put_wake(table, line, out);
        return;
    }
    if (!has_cells(line)) {
        put_fold(table, line, out);
        return;
    }
    make_cells(table, line, widths->place, &cells);
    put_mark(table, line, out);
    used = put_names(table, line, widths->name, out);
    if (widths->two_lines)
        ts_buffer_string(out, "\n    ");
    else
        ts_put_spaces(out, widths->name > used ? widths->name - used : 0);
    put_cells(out, &cells, widths);
    ts_buffer_byte(out, '\n');
    if (line->kind == TS_LINE_ROW)
        put_remark(table, line, out);
    release_cells(&cells);
}

void ts_put_table(const struct ts_comparison *comparison, const struct ts_report_options *options,
                  const struct ts_layout *layout, struct ts_buffer *out)
{
    struct table table = {.comparison = comparison, .options = options, .layout = layout};
    struct widths widths = {0};
    if (!comparison->pairing.count)
        return;
    table.lines = ts_list_lines(comparison, options, &table.count);
    if (!table.lines) {
        out->failed = true;
        return;
    }
    ts_buffer_byte(out, '\n');
    if (!table.count)
        ts_buffer_string(out, "    no tensor is of that kind\n");
    else if (has_cells(&table.lines[0])) {
        widths = fit(&table);
        put_head(&table, &widths, out);
    }
    for (size_t i = 0; i < table.count && !out->failed; i++)
        put_line(&table, &table.lines[i], &widths, out);
    free(table.lines);
}
