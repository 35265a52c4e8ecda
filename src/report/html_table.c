/* Owns the table of the HTML report. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/changes.h"
#include "report/facts.h"
#include "report/html.h"
#include "report/markup.h"

/* A page with more rows than this is of no use to anyone; then only what differs is listed, up to as many. */
#define ROWS 10000

static void put_number(const struct ts_page *page, double value)
{
    ts_buffer_printf(page->out, "<td class=\"num\" data-v=\"%.6g\">", isinf(value) ? copysign(1e300, value) : value);
    ts_put_short(page->out, value);
    ts_page_put(page, "</td>");
}

/* Below the name: why, and under which name and layout it stands on the other side. */
static void put_small(const struct ts_page *page, const char *text)
{
    if (!text || !text[0])
        return;
    ts_page_put(page, "<span class=\"dim\">");
    ts_put_markup(page->out, text, 400);
    ts_page_put(page, "</span>");
}

/* Number of columns with numbers before the last, which says where. */
static int number_columns(const struct ts_page *page)
{
    return 5 + (page->comparison->ranks != NULL);
}

static void put_rank(const struct ts_page *page, const struct ts_change_rank *rank)
{
    ts_buffer_printf(page->out, "<td class=\"num\" data-v=\"%g\"", rank->known ? (double)rank->rank : (double)NAN);
    if (!rank->known && rank->reason)
        ts_buffer_printf(page->out, " title=\"%s\"", rank->reason); /* a word of ours, not of a file */
    ts_page_put(page, ">");
    ts_put_rank(page->out, rank, true);
    ts_page_put(page, "</td>");
}

static void put_error(const struct ts_page *page, const struct ts_delta *delta)
{
    if (delta->non_finite_mismatch)
        ts_page_put(page, "<td class=\"num\" data-v=\"1e300\">nan/inf</td>");
    else
        put_number(page, delta->rel_l2);
}

/* Error and roundings of runs; how much of a checkpoint's tensor changed, and by how much. */
static void put_numbers(const struct ts_page *page, size_t i)
{
    const struct ts_comparison *comparison = page->comparison;
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    const struct ts_delta shown = ts_shown_delta(&comparison->deltas[i]), *delta = &shown;
    if (pair->problem) {
        for (int k = 0; k < number_columns(page); k++)
            ts_page_put(page, "<td class=\"num\" data-v=\"nan\"></td>");
        ts_page_put(page, "<td class=\"shape\"></td>");
        return;
    }
    if (comparison->judgement.weights) {
        ts_buffer_printf(page->out, "<td class=\"num\" data-v=\"%.6g\">", ts_changed_fraction(delta));
        ts_put_changed(page->out, comparison, i);
        ts_page_put(page, "</td>");
        put_error(page, delta);
    } else {
        put_error(page, delta);
        if (ts_has_roundings(comparison, i))
            put_number(page, comparison->judgement.verdicts[i].roundings);
        else
            ts_page_put(page, "<td class=\"num\" data-v=\"nan\">-</td>");
    }
    put_number(page, delta->max_abs);
    ts_buffer_printf(page->out, "<td class=\"num\" data-v=\"%.9g\">%.6g</td>", delta->cosine, delta->cosine);
    ts_buffer_printf(page->out, "<td class=\"num\" data-v=\"%.9g\">%.6g</td>", delta->norm_ratio, delta->norm_ratio);
    if (comparison->ranks)
        put_rank(page, &comparison->ranks[i]);
    ts_page_put(page, "<td class=\"shape\">");
    if (delta->non_finite_mismatch)
        ts_buffer_printf(page->out, "%" PRIu64 " nan/inf ", delta->non_finite_mismatch);
    if (delta->worst < pair->a.count && delta->unequal)
        ts_put_coordinates(page->out, &pair->a, delta->worst);
    ts_page_put(page, "</td>");
}

static void put_row(const struct ts_page *page, size_t i)
{
    const struct ts_comparison *comparison = page->comparison;
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    const struct ts_delta *delta = &comparison->deltas[i];
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
    bool first = i == comparison->judgement.first && !comparison->judgement.weights;
    const char *type_a = ts_view_type_name(&pair->a), *type_b = ts_view_type_name(&pair->b);
    struct ts_buffer remark;
    ts_buffer_printf(page->out,
                     "<tr id=\"t%zu\" data-verdict=\"%s\"%s><td class=\"num\" data-v=\"%zu\">%zu</td><td data-v=\"%d\" "
                     "class=\"v-%s\">%s</td><td class=\"name\">",
                     i, ts_html_classes[verdict->judged], first ? " class=\"first\"" : "", i, i, (int)verdict->judged,
                     ts_html_classes[verdict->judged], ts_judged_name(verdict->judged));
    ts_page_name(page, pair->name);
    ts_page_put(page, first ? "<b>first divergence</b>" : "");
    ts_buffer_init(&remark, (size_t)1 << 20);
    ts_put_remark(&remark, pair);
    put_small(page, remark.data);
    ts_buffer_release(&remark);
    /* why weights differ stands in the columns already, unless it is no number */
    if (!comparison->judgement.weights || pair->problem || delta->non_finite_mismatch || comparison->first_bytes)
        put_small(page, ts_reason(comparison, i));
    put_small(page, verdict->operation);
    if (ts_has_ranking(comparison, i)) {
        ts_buffer_init(&remark, 4096);
        ts_put_ranking(&remark, page->comparison, i);
        put_small(page, remark.data);
        ts_buffer_release(&remark);
    }
    ts_buffer_printf(page->out, "</td><td class=\"shape\" data-v=\"%" PRIu64 "\">", pair->a.count);
    ts_put_pair_shape(page->out, pair);
    ts_buffer_printf(page->out, "</td><td>%s%s%s</td>", type_a, strcmp(type_a, type_b) ? " / " : "",
                     strcmp(type_a, type_b) ? type_b : "");
    put_numbers(page, i);
    if (page->options->grades)
        ts_buffer_printf(page->out, "<td>%s</td>", pair->problem ? "" : ts_comparison_grade(delta));
    ts_page_put(page, "</tr>\n");
}

static void put_tools(const struct ts_page *page)
{
    size_t counts[4] = {0}; /* of the rows */
    ts_page_put(page, "<div class=\"tools\"><input type=\"search\" id=\"query\" placeholder=\"filter by name\" "
                      "aria-label=\"filter by name\">");
    for (size_t i = 0; i < page->comparison->pairing.count; i++)
        if (!page->comparison->judgement.weights || !ts_is_equal(page->comparison, i))
            counts[page->comparison->judgement.verdicts[i].judged]++;
    for (int i = TS_JUDGED_OK; i <= TS_JUDGED_UNKNOWN; i++)
        if (counts[i])
            ts_buffer_printf(page->out,
                             "<label><input type=\"checkbox\" checked data-show=\"%s\"> <span class=\"v-%s\">%s</span> "
                             "%zu</label>",
                             ts_html_classes[i], ts_html_classes[i], ts_judged_name((enum ts_judged)i), counts[i]);
    ts_page_put(page, "<span class=\"dim\" id=\"shown\"></span></div>\n");
}

static void put_heads(const struct ts_page *page)
{
    static const char *const before[] = {"#", "verdict", "tensor", "shape", "type"};
    static const char *const runs[] = {"error", "roundings"}, *const checkpoints[] = {"changed", "change"};
    static const char *const after[] = {"max |d|", "cosine", "norm ratio"};
    ts_page_put(page, "<div class=\"scroll\"><table id=\"pairs\"><thead><tr>");
    for (size_t i = 0; i < 5; i++)
        ts_buffer_printf(page->out, "<th%s><button>%s</button></th>", i ? "" : " class=\"num\"", before[i]);
    for (size_t i = 0; i < 2; i++)
        ts_buffer_printf(page->out, "<th class=\"num\"><button>%s</button></th>",
                         (page->comparison->judgement.weights ? checkpoints : runs)[i]);
    for (size_t i = 0; i < 3; i++)
        ts_buffer_printf(page->out, "<th class=\"num\"><button>%s</button></th>", after[i]);
    if (page->comparison->ranks)
        ts_buffer_printf(page->out, "<th class=\"num\" title=\"%s\"><button>rank</button></th>", ts_rank_method);
    ts_page_put(page, "<th><button>worst at</button></th>");
    ts_page_put(page, page->options->grades ? "<th><button>grade</button></th>" : "");
    ts_page_put(page, "</tr></thead>\n<tbody>\n");
}

/* Tensors of a checkpoint that are the same take one line; opened, it has their names. */
static void put_unchanged(const struct ts_page *page, size_t count)
{
    const struct ts_comparison *comparison = page->comparison;
    size_t shown = 0;
    ts_buffer_printf(page->out, "<details id=\"same\"><summary>%zu tensor%s unchanged</summary>\n<ul>\n", count,
                     count == 1 ? " is" : "s are");
    for (size_t i = 0; i < comparison->pairing.count && shown < ROWS; i++)
        if (ts_is_equal(comparison, i)) {
            shown++;
            ts_buffer_printf(page->out, "<li id=\"t%zu\"><span class=\"name\">", i);
            ts_page_name(page, comparison->pairing.pairs[i].name);
            ts_page_put(page, "</span> <span class=\"dim\">");
            ts_put_pair_shape(page->out, &comparison->pairing.pairs[i]);
            ts_page_put(page, "</span></li>\n");
        }
    if (shown < count)
        ts_buffer_printf(page->out, "<li>and %zu more</li>\n", count - shown);
    ts_page_put(page, "</ul></details>\n");
}

static void put_rows(const struct ts_page *page, const size_t *sorted, size_t count)
{
    const struct ts_comparison *comparison = page->comparison;
    bool weights = comparison->judgement.weights, some = false;
    size_t shown = 0, equal = 0, rows = 0;
    for (size_t k = 0; k < count; k++)
        equal += weights && ts_is_equal(comparison, k);
    some = count - equal > ROWS;
    if (count > equal)
        put_heads(page);
    for (size_t k = 0; k < count && !page->out->failed; k++) {
        size_t i = sorted[k];
        if (weights && ts_is_equal(comparison, i))
            continue;
        rows++;
        if (shown < ROWS && (!some || weights || comparison->judgement.verdicts[i].judged >= TS_JUDGED_DIFFERS)) {
            put_row(page, i);
            shown++;
        }
    }
    if (count > equal)
        ts_page_put(page, "</tbody></table></div>\n");
    if (equal)
        put_unchanged(page, equal);
    if (shown < rows)
        ts_buffer_printf(page->out,
                         "<p class=\"dim\">%zu rows are left out here; --json and --csv list them all.</p>\n",
                         rows - shown);
}

enum ts_status ts_put_html_table(const struct ts_page *page, struct ts_error *error)
{
    static const char *const titles[] = {[TS_SORT_ORDER] = "in execution order",
                                         [TS_SORT_NAME] = "by name",
                                         [TS_SORT_CHANGED] = "most changed first",
                                         [TS_SORT_ERROR] = "largest error first",
                                         [TS_SORT_SIZE] = "largest first"};
    enum ts_sort sort = page->options->sort                   ? page->options->sort
                        : page->comparison->judgement.weights ? TS_SORT_CHANGED
                                                              : TS_SORT_ORDER;
    size_t count;
    size_t *sorted;
    if (!page->comparison->pairing.count)
        return TS_OK;
    sorted = ts_sorted_pairs(page->comparison, 0, sort, SIZE_MAX, &count);
    if (!sorted)
        return ts_fail_memory(error);
    ts_buffer_printf(page->out, "<section><h2>All pairs, %s</h2>\n", titles[sort]);
    put_tools(page);
    put_rows(page, sorted, count);
    ts_page_put(page, "</section>\n");
    free(sorted);
    return TS_OK;
}
