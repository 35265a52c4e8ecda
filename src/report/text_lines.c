#include "report/text_lines.h"

#include <stdlib.h>

#include "report/changes.h"
#include "report/facts.h"

/* Differing tensors shown after the first divergence: enough to see where it goes, not the whole wake. */
#define FOLLOWERS 3
/* Rows of changed tensors of two checkpoints without --all. */
#define CHANGED_MOST 40

struct list {
    const struct ts_comparison *comparison;
    const struct ts_report_options *options;
    struct ts_line *lines;
    size_t count;
};

bool ts_pair_agrees(const struct ts_comparison *comparison, size_t index)
{
    return comparison->judgement.verdicts[index].judged <= TS_JUDGED_NOISE;
}

static enum ts_judged judged(const struct list *list, size_t i)
{
    return list->comparison->judgement.verdicts[i].judged;
}

static bool agrees(const struct list *list, size_t i)
{
    return ts_pair_agrees(list->comparison, i);
}

static void add_line(struct list *list, enum ts_line_kind kind, size_t first, size_t last)
{
    list->lines[list->count++] = (struct ts_line){.kind = kind, .first = first, .last = last};
}

/* Every pair that is asked for in a line of its own. */
static bool list_rows(struct list *list)
{
    const struct ts_report_options *options = list->options;
    size_t count;
    bool good;
    size_t *sorted = ts_sorted_pairs(list->comparison, options->only, ts_sort_of(list->comparison, options),
                                     options->top ? options->top : SIZE_MAX, &count);
    for (size_t i = 0; sorted && i < count; i++)
        add_line(list, TS_LINE_ROW, sorted[i], sorted[i]);
    good = sorted != NULL;
    free(sorted);
    return good;
}

/* What changed, most of it first, in rows; the rest in one line each. */
static bool list_changes(struct list *list)
{
    const struct ts_comparison *comparison = list->comparison;
    size_t count, shown = 0, counts[3] = {0}, largest[3] = {0};
    bool good;
    size_t *sorted = ts_sorted_pairs(comparison, 0, ts_sort_of(comparison, list->options), SIZE_MAX, &count);
    for (size_t i = 0; sorted && i < count; i++) {
        size_t pair = sorted[i], kind;
        if (ts_is_equal(comparison, pair))
            kind = TS_LINE_SAME - TS_LINE_REST;
        else if (judged(list, pair) != TS_JUDGED_UNKNOWN && !ts_is_changed(comparison, pair))
            kind = TS_LINE_ROUNDED - TS_LINE_REST;
        else
            kind = 0;
        if (!kind && shown++ < CHANGED_MOST) {
            add_line(list, TS_LINE_ROW, pair, pair);
            continue;
        }
        if (!counts[kind]++ || ts_badness(comparison, pair) > ts_badness(comparison, largest[kind]))
            largest[kind] = pair;
    }
    for (size_t kind = 0; kind < 3; kind++)
        if (counts[kind])
            add_line(list, (enum ts_line_kind)(TS_LINE_REST + kind), counts[kind], largest[kind]);
    good = sorted != NULL;
    free(sorted);
    return good;
}

/* Runs that agree, and longer runs that could not be compared, take one line; after the first divergence and a few
 * followers one line tells the rest. The last tensor is shown even then: it is what the model gives out. */
static void list_folded(struct list *list)
{
    size_t count = list->comparison->pairing.count, differing = 0;
    for (size_t i = 0, last; i < count; i = last + 1) {
        last = i;
        if (judged(list, i) == TS_JUDGED_DIFFERS) {
            if (++differing > 1 + FOLLOWERS && count - i > 2) {
                bool apart = judged(list, count - 1) == TS_JUDGED_DIFFERS;
                add_line(list, TS_LINE_WAKE, i, apart ? count - 2 : count - 1);
                if (apart)
                    add_line(list, TS_LINE_ROW, count - 1, count - 1);
                return;
            }
            add_line(list, TS_LINE_ROW, i, i);
            continue;
        }
        while (last + 1 < count && judged(list, last + 1) != TS_JUDGED_DIFFERS &&
               agrees(list, last + 1) == agrees(list, i))
            last++;
        if (last - i < 1 || (!agrees(list, i) && last - i < 3))
            for (size_t k = i; k <= last; k++)
                add_line(list, TS_LINE_ROW, k, k);
        else
            add_line(list, TS_LINE_RUN, i, last);
    }
}

struct ts_line *ts_list_lines(const struct ts_comparison *comparison, const struct ts_report_options *options,
                              size_t *count)
{
    struct list list = {.comparison = comparison, .options = options};
    bool good = true;
    *count = 0;
    list.lines = calloc(comparison->pairing.count + 3, sizeof *list.lines);
    if (!list.lines)
        return NULL;
    if (options->top || options->all || options->only || (options->sort && !comparison->judgement.weights))
        good = list_rows(&list);
    else if (comparison->judgement.weights)
        good = list_changes(&list);
    else
        list_folded(&list);
    if (!good) {
        free(list.lines);
        return NULL;
    }
    *count = list.count;
    return list.lines;
}
