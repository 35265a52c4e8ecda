#include "report/text_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "report/facts.h"

/* Differing tensors shown after the first divergence: enough to see where it goes, not the whole wake. */
#define FOLLOWERS 3
/* A name shortened below this says little; columns are given up before that happens. */
#define NAME_LEAST 28
#define SHAPE_MOST 24

enum kind { ROW, RUN, WAKE };

struct line {
    enum kind kind;
    size_t first, last; /* pairs */
};

struct cells {
    struct ts_buffer shape, error, roundings, grade, worst;
};

struct widths {
    size_t name, shape, error, roundings, grade, worst;
    bool place;     /* where the worst element is */
    bool two_lines; /* the name has a line of its own */
};

struct table {
    const struct ts_comparison *comparison;
    const struct ts_report_options *options;
    const struct ts_layout *layout;
    struct line *lines;
    size_t count;
};

static enum ts_judged judged(const struct table *table, size_t i)
{
    return table->comparison->judgement.verdicts[i].judged;
}

static bool agrees(const struct table *table, size_t i)
{
    return judged(table, i) == TS_JUDGED_OK || judged(table, i) == TS_JUDGED_NOISE;
}

static void add_line(struct table *table, enum kind kind, size_t first, size_t last)
{
    table->lines[table->count++] = (struct line){.kind = kind, .first = first, .last = last};
}

/* Every pair that is asked for in a line of its own. */
static void list_rows(struct table *table)
{
    for (size_t i = 0; i < table->comparison->pairing.count; i++)
        if (!table->options->only || table->options->only & 1u << judged(table, i))
            add_line(table, ROW, i, i);
}

static bool list_worst(struct table *table)
{
    size_t count;
    size_t *worst = ts_worst_pairs(table->comparison, table->options->only, table->options->top, &count);
    for (size_t i = 0; worst && i < count; i++)
        add_line(table, ROW, worst[i], worst[i]);
    free(worst);
    return worst != NULL;
}

/* Runs that agree, and longer runs that could not be compared, take one line; after the first divergence and a few
 * followers one line tells the rest. The last tensor is shown even then: it is what the model gives out. */
static void list_folded(struct table *table)
{
    size_t count = table->comparison->pairing.count, differing = 0;
    for (size_t i = 0, last; i < count; i = last + 1) {
        last = i;
        if (judged(table, i) == TS_JUDGED_DIFFERS) {
            if (++differing > 1 + FOLLOWERS && count - i > 2) {
                bool apart = judged(table, count - 1) == TS_JUDGED_DIFFERS;
                add_line(table, WAKE, i, apart ? count - 2 : count - 1);
                if (apart)
                    add_line(table, ROW, count - 1, count - 1);
                return;
            }
            add_line(table, ROW, i, i);
            continue;
        }
        while (last + 1 < count && judged(table, last + 1) != TS_JUDGED_DIFFERS &&
               agrees(table, last + 1) == agrees(table, i))
            last++;
        if (last - i < 1 || (!agrees(table, i) && last - i < 3))
            for (size_t k = i; k <= last; k++)
                add_line(table, ROW, k, k);
        else
            add_line(table, RUN, i, last);
    }
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
    if (place && at < pair->a.count) {
        ts_buffer_string(out, delta->non_finite_mismatch > 1 ? " from " : " at ");
        ts_put_coordinates(out, &pair->a, at);
    }
}

static void row_cells(const struct table *table, size_t i, bool place, struct cells *cells)
{
    const struct ts_pair *pair = &table->comparison->pairing.pairs[i];
    const struct ts_delta *delta = &table->comparison->deltas[i];
    struct ts_buffer shape;
    ts_buffer_init(&shape, 65536);
    ts_put_pair_shape(&shape, pair);
    ts_put_name(table->layout, &cells->shape, shape.data ? shape.data : "", SHAPE_MOST);
    ts_buffer_release(&shape);
    if (pair->problem) {
        ts_buffer_string(&cells->error, "cannot tell");
        return;
    }
    if (ts_is_equal(table->comparison, i)) {
        ts_buffer_string(&cells->error, "equal");
    } else {
        if (delta->non_finite_mismatch)
            ts_buffer_string(&cells->error, "nan/inf");
        else
            ts_put_short(&cells->error, delta->rel_l2);
        if (!ts_has_roundings(table->comparison, i))
            ts_buffer_byte(&cells->roundings, '-');
        else
            ts_put_short(&cells->roundings, table->comparison->judgement.verdicts[i].roundings);
        put_worst(&cells->worst, pair, delta, place);
    }
    if (table->options->grades)
        ts_buffer_string(&cells->grade, ts_comparison_grade(delta));
}

static void run_cells(const struct table *table, const struct line *line, struct cells *cells)
{
    const struct ts_comparison *comparison = table->comparison;
    double most = 0;
    bool noise = false, equal = true;
    const char *grade = NULL;
    static const char order[] = "EGAS"; /* first letters of the grades, best first */
    ts_buffer_printf(&cells->shape, "%zu pairs", line->last - line->first + 1);
    if (!agrees(table, line->first)) {
        ts_buffer_string(&cells->error, "cannot tell");
        return;
    }
    for (size_t i = line->first; i <= line->last; i++) {
        const struct ts_delta *delta = &comparison->deltas[i];
        double roundings = comparison->judgement.verdicts[i].roundings;
        noise = noise || judged(table, i) == TS_JUDGED_NOISE;
        equal = equal && ts_is_equal(comparison, i);
        if (!delta->exact && roundings > most)
            most = roundings;
        if (table->options->grades) {
            const char *its = ts_comparison_grade(delta);
            if (!grade || strchr(order, its[0]) > strchr(order, grade[0]))
                grade = its;
        }
    }
    ts_buffer_string(&cells->error, noise ? "noise" : equal ? "equal" : "ok");
    if (!equal) {
        ts_buffer_string(&cells->roundings, table->layout->unicode ? "≤ " : "<= ");
        ts_put_short(&cells->roundings, most);
    }
    if (grade)
        ts_buffer_string(&cells->grade, grade);
}

static void make_cells(const struct table *table, const struct line *line, bool place, struct cells *cells)
{
    struct ts_buffer *const all[] = {&cells->shape, &cells->error, &cells->roundings, &cells->grade, &cells->worst};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ts_buffer_init(all[i], 65536);
    if (line->kind == ROW)
        row_cells(table, line->first, place, cells);
    else if (line->kind == RUN)
        run_cells(table, line, cells);
}

static void release_cells(struct cells *cells)
{
    ts_buffer_release(&cells->shape);
    ts_buffer_release(&cells->error);
    ts_buffer_release(&cells->roundings);
    ts_buffer_release(&cells->grade);
    ts_buffer_release(&cells->worst);
}

static const char *text_of(const struct ts_buffer *buffer)
{
    return buffer->data ? buffer->data : "";
}

static void widen(size_t *width, const struct ts_buffer *cell)
{
    size_t columns = ts_text_columns(text_of(cell), cell->size);
    *width = columns > *width ? columns : *width;
}

/* All columns but the name, with the gaps before them. */
static size_t rest_of(const struct widths *widths)
{
    return (widths->shape ? 2 + widths->shape : 0) + 2 + widths->error + 2 + widths->roundings +
           (widths->grade ? 2 + widths->grade : 0) + (widths->worst ? 2 + widths->worst : 0);
}

static size_t name_need(const struct table *table, const struct line *line)
{
    const struct ts_pair *pairs = table->comparison->pairing.pairs;
    size_t columns = ts_name_columns(pairs[line->first].name);
    return line->kind == RUN ? columns + 3 + ts_name_columns(pairs[line->last].name) : columns;
}

/* Gives up the place of the worst element, then the worst element, then one line per row, until names have room. */
static struct widths fit(const struct table *table)
{
    struct widths widths = {.name = 6};
    size_t need = 6, least, room;
    for (size_t i = 0; i < table->count; i++)
        if (table->lines[i].kind != WAKE) {
            size_t columns = name_need(table, &table->lines[i]);
            need = columns > need ? columns : need;
        }
    least = need < NAME_LEAST ? need : NAME_LEAST;
    for (int attempt = 0; attempt < 3; attempt++) {
        widths = (struct widths){.shape = 5, .error = 5, .roundings = 9, .place = attempt == 0};
        for (size_t i = 0; i < table->count; i++) {
            struct cells cells;
            make_cells(table, &table->lines[i], widths.place, &cells);
            widen(&widths.shape, &cells.shape);
            widen(&widths.error, &cells.error);
            widen(&widths.roundings, &cells.roundings);
            widen(&widths.grade, &cells.grade);
            if (attempt < 2)
                widen(&widths.worst, &cells.worst);
            release_cells(&cells);
        }
        if (widths.worst && widths.worst < 5) /* its head */
            widths.worst = 5;
        room = rest_of(&widths) + 4;
        room = table->layout->width > room ? table->layout->width - room : 0;
        if (room >= least) {
            widths.name = need < room ? need : room;
            return widths;
        }
    }
    widths.two_lines = true;
    widths.name = table->layout->width > 14 ? table->layout->width - 4 : 10;
    if (rest_of(&widths) + 4 > table->layout->width)
        widths.shape = 0;
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
    const struct ts_buffer *const all[] = {&cells->shape, &cells->error, &cells->roundings, &cells->grade,
                                           &cells->worst};
    const size_t width[] = {widths->shape, widths->error, widths->roundings, widths->grade, widths->worst};
    size_t last = 0;
    for (size_t i = 0; i < 5; i++)
        if (width[i] && all[i]->size)
            last = i;
    for (size_t i = 0; i <= last; i++)
        if (width[i])
            put_cell(out, all[i], width[i], i == last);
}

static void put_head(const struct table *table, const struct widths *widths, struct ts_buffer *out)
{
    struct ts_buffer line;
    struct cells cells;
    make_cells(table, &(struct line){.kind = WAKE}, false, &cells);
    ts_buffer_string(&cells.shape, "shape");
    ts_buffer_string(&cells.error, "error");
    ts_buffer_string(&cells.roundings, "roundings");
    ts_buffer_string(&cells.grade, widths->grade ? "grade" : "");
    ts_buffer_string(&cells.worst, widths->worst ? "worst" : "");
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

static void put_mark(const struct table *table, const struct line *line, struct ts_buffer *out)
{
    static const char *const marks[][2] = {{".", "✓"}, {"~", "≈"}, {"x", "✗"}, {"?", "?"}};
    static const enum ts_style styles[] = {TS_STYLE_GREEN, TS_STYLE_GREEN, TS_STYLE_RED, TS_STYLE_YELLOW};
    ts_put_spaces(out, 2);
    if (line->kind == ROW) {
        enum ts_judged verdict = judged(table, line->first);
        ts_put_styled(table->layout, out, styles[verdict], marks[verdict][table->layout->unicode]);
        ts_buffer_byte(out, ' ');
    } else {
        ts_put_spaces(out, 2);
    }
}

static size_t put_names(const struct table *table, const struct line *line, size_t room, struct ts_buffer *out)
{
    const struct ts_pair *pairs = table->comparison->pairing.pairs;
    size_t used, head;
    if (line->kind == ROW)
        return ts_put_name(table->layout, out, pairs[line->first].name, room);
    /* the last name is the one next to what comes: it is shortened only when little would be left for the first */
    used = ts_name_columns(pairs[line->last].name);
    if (room < 16 && name_need(table, line) > room)
        return ts_put_name(table->layout, out, pairs[line->last].name, room);
    head = used + 3 + 6 <= room || name_need(table, line) <= room ? room - 3 - used : (room - 3) / 2;
    used = ts_put_name(table->layout, out, pairs[line->first].name, head) + 3;
    ts_buffer_string(out, table->layout->unicode ? " … " : " - ");
    return used + ts_put_name(table->layout, out, pairs[line->last].name, room - used);
}

static void put_wake(const struct table *table, const struct line *line, struct ts_buffer *out)
{
    size_t counts[4] = {0};
    struct ts_buffer text;
    for (size_t i = line->first; i <= line->last; i++)
        counts[judged(table, i)]++;
    ts_buffer_init(&text, 4096);
    ts_buffer_printf(&text, "%s %zu further tensor%s%s", table->layout->unicode ? "…" : "...",
                     counts[TS_JUDGED_DIFFERS], counts[TS_JUDGED_DIFFERS] == 1 ? " differs" : "s differ",
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

/* Under a row: why it could not be compared, under which name and layout it stands on the other side. */
static void put_remark(const struct table *table, const struct line *line, struct ts_buffer *out)
{
    const struct ts_pair *pair = &table->comparison->pairing.pairs[line->first];
    struct ts_buffer text;
    ts_buffer_init(&text, (size_t)1 << 20);
    if (judged(table, line->first) == TS_JUDGED_UNKNOWN)
        ts_buffer_string(&text, ts_reason(table->comparison, line->first));
    else if (table->options->all || judged(table, line->first) == TS_JUDGED_DIFFERS)
        ts_put_remark(&text, pair);
    if (text.size) {
        ts_put_spaces(out, 6);
        ts_put_folded(table->layout, out, text.data, 6, 6);
        ts_buffer_byte(out, '\n');
    }
    ts_buffer_release(&text);
}

static void put_line(const struct table *table, const struct line *line, const struct widths *widths,
                     struct ts_buffer *out)
{
    struct cells cells;
    size_t used;
    if (line->kind == WAKE) {
        put_wake(table, line, out);
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
    if (line->kind == ROW)
        put_remark(table, line, out);
    release_cells(&cells);
}

void ts_put_table(const struct ts_comparison *comparison, const struct ts_report_options *options,
                  const struct ts_layout *layout, struct ts_buffer *out)
{
    struct table table = {.comparison = comparison, .options = options, .layout = layout};
    struct widths widths;
    if (!comparison->pairing.count)
        return;
    table.lines = calloc(comparison->pairing.count + 1, sizeof *table.lines);
    if (!table.lines) {
        out->failed = true;
        return;
    }
    if (options->top) {
        if (!list_worst(&table))
            out->failed = true;
    } else if (options->all || options->only) {
        list_rows(&table);
    } else {
        list_folded(&table);
    }
    ts_buffer_byte(out, '\n');
    if (table.count) {
        widths = fit(&table);
        put_head(&table, &widths, out);
    } else {
        ts_buffer_string(out, "    no tensor of that kind\n");
    }
    for (size_t i = 0; i < table.count && !out->failed; i++)
        put_line(&table, &table.lines[i], &widths, out);
    free(table.lines);
}
