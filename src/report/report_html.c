/* Owns the HTML report: one page that stands alone, opens offline and loads nothing. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "report/facts.h"
#include "report/html.h"
#include "report/markup.h"
#include "report/png.h"

/* A page with more rows than this is of no use to anyone; then only what differs is listed, up to as many. */
#define ROWS 10000
/* Entries of a list. */
#define SOME 200

struct page {
    const struct ts_comparison *comparison;
    const struct ts_report_options *options;
    struct ts_buffer *out;
};

static const char *const classes[] = {"ok", "noise", "differs", "unknown"};

static void put(const struct page *page, const char *markup)
{
    ts_buffer_string(page->out, markup);
}

static void put_text(const struct page *page, const char *text)
{
    ts_put_markup(page->out, text, 2000);
}

static void put_name(const struct page *page, const char *name)
{
    ts_put_markup(page->out, name, TS_HTML_NAME);
}

/* The script is allowed by its digest: nothing a file brings along can run, even if an escape were missing. */
static void put_head(const struct page *page)
{
    uint8_t digest[TS_SHA256_SIZE];
    ts_sha256(ts_html_script, strlen(ts_html_script), digest);
    put(page, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\""
              "Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
              "script-src 'sha256-");
    ts_put_base64(page->out, digest, sizeof digest);
    put(page, "'; base-uri 'none'; form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, "
              "initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    put(page, ts_outcome_name(page->comparison->outcome));
    put(page, ": ");
    ts_put_markup(page->out, page->comparison->b->path, 80);
    put(page, " against ");
    ts_put_markup(page->out, page->comparison->a->path, 80);
    put(page, "</title>\n<style>\n");
    put(page, ts_html_style);
    put(page, "</style>\n</head>\n<body>\n<main>\n");
}

static void put_input(const struct page *page, bool candidate)
{
    const struct ts_bundle *bundle = candidate ? page->comparison->b : page->comparison->a;
    int held = ts_held_precision(page->comparison, candidate);
    char bytes[16], count[32];
    ts_buffer_printf(page->out, "<dt>%s</dt><dd><code>", candidate ? "candidate" : "reference");
    put_text(page, bundle->path);
    ts_buffer_printf(page->out, "</code> <span class=\"dim\">%s tensor%s, ", ts_human_count(bundle->count, count),
                     bundle->count == 1 ? "" : "s");
    if (bundle->count) {
        ts_put_types(page->out, bundle);
        if (held >= 0) {
            put(page, " holding ");
            ts_put_precision(page->out, held);
            put(page, " values");
        }
        put(page, ", ");
    }
    put(page, ts_human_bytes(bundle->file_bytes, bytes));
    put(page, "</span></dd>\n");
}

static void put_note(const struct page *page, const char *label, const char *note)
{
    ts_buffer_printf(page->out, "<dt>%s</dt><dd>", label);
    put_text(page, note);
    put(page, "</dd>\n");
}

static void put_aside(const struct page *page)
{
    const struct ts_judgement *judgement = &page->comparison->judgement;
    if (!judgement->aside_count)
        return;
    ts_buffer_printf(page->out,
                     "<dt>set aside</dt><dd>%zu of %" PRIu64 " tokens that were routed to other experts on a near tie:",
                     judgement->aside_count, judgement->tokens);
    for (size_t i = 0; i < judgement->aside_count && i < SOME; i++)
        ts_buffer_printf(page->out, "%s %" PRIu64, i ? "," : "", judgement->aside[i]);
    put(page, judgement->aside_count > SOME ? " …</dd>\n" : "</dd>\n");
}

static void put_summary(const struct page *page)
{
    const struct ts_comparison *comparison = page->comparison;
    const char *outcome = ts_outcome_name(comparison->outcome);
    ts_buffer_printf(page->out, "<h1><span class=\"badge %s\">%s</span> ", outcome, outcome);
    put_text(page, comparison->outcome_text ? comparison->outcome_text : "");
    put(page, "</h1>\n<section><dl>\n");
    put_input(page, false);
    put_input(page, true);
    if (comparison->pairing.count) {
        put(page, "<dt>paired</dt><dd>");
        ts_put_pairing(page->out, comparison);
        if (comparison->pairing.order) {
            put(page, ", in ");
            put_text(page, comparison->pairing.order);
        }
        put(page, "</dd>\n");
    }
    for (size_t i = 0; i < comparison->pairing.note_count; i++)
        put_note(page, "note", comparison->pairing.notes[i]);
    put_aside(page);
    for (size_t i = 0; i < comparison->judgement.note_count; i++)
        put_note(page, "note", comparison->judgement.notes[i]);
    for (size_t i = 0; i < comparison->doubt_count; i++)
        put_note(page, "doubt", comparison->doubts[i]);
    put(page, "</dl></section>\n");
}

static void put_link(const struct page *page, size_t i)
{
    const struct ts_verdict *verdict = &page->comparison->judgement.verdicts[i];
    ts_buffer_printf(page->out, "<a class=\"name\" href=\"#t%zu\">", i);
    put_name(page, page->comparison->pairing.pairs[i].name);
    ts_buffer_printf(page->out, "</a> <span class=\"dim v-%s\">", classes[verdict->judged]);
    ts_put_standing(page->out, page->comparison, i);
    put(page, "</span>");
}

static void put_links(const struct page *page, const char *label, const size_t *pairs, size_t count)
{
    if (!count)
        return;
    ts_buffer_printf(page->out, "<dt>%s</dt><dd>", label);
    for (size_t i = 0; i < count; i++) {
        put(page, i ? "<br>" : "");
        put_link(page, pairs[i]);
    }
    put(page, "</dd>\n");
}

static void put_fact(const struct page *page, const char *label, const char *fact)
{
    if (!fact || !fact[0])
        return;
    ts_buffer_printf(page->out, "<dt>%s</dt><dd>", label);
    put_text(page, fact);
    put(page, "</dd>\n");
}

static void put_causes(const struct page *page)
{
    const struct ts_diagnosis *diagnosis = page->options->diagnosis;
    if (!diagnosis)
        return;
    if (!diagnosis->count)
        put_fact(page, "structure", diagnosis->strongest);
    for (size_t i = 0; i < diagnosis->count; i++) {
        ts_buffer_printf(page->out, "<dt>%s</dt><dd><strong>", i ? "or" : "cause");
        put_text(page, diagnosis->causes[i].id);
        ts_buffer_printf(page->out, "</strong> (%.2f) ", diagnosis->causes[i].confidence);
        put_text(page, diagnosis->causes[i].summary ? diagnosis->causes[i].summary : "");
        put(page, "</dd>\n");
        put_fact(page, "check", diagnosis->causes[i].check);
    }
}

static void put_divergence(const struct page *page)
{
    const struct ts_comparison *comparison = page->comparison;
    size_t first = comparison->judgement.first, inputs[TS_MOST_INPUTS], near[2], count;
    const struct ts_pair *pair;
    struct ts_buffer remark;
    double a, b;
    uint64_t at;
    if (first >= comparison->pairing.count)
        return;
    pair = &comparison->pairing.pairs[first];
    ts_buffer_printf(page->out, "<section><h2>First divergence: <a class=\"name\" href=\"#t%zu\">", first);
    put_name(page, pair->name);
    put(page, "</a></h2>\n<dl>\n");
    put_causes(page);
    put_fact(page, "why", ts_reason(comparison, first));
    put_fact(page, "operation", comparison->judgement.verdicts[first].operation);
    put_links(page, "inputs", inputs, ts_operation_inputs(comparison, first, inputs));
    ts_buffer_init(&remark, (size_t)1 << 20);
    ts_put_remark(&remark, pair);
    put_fact(page, "pairing", remark.data);
    ts_buffer_release(&remark);
    at = ts_worst_element(comparison, first, &a, &b);
    if (at != UINT64_MAX) {
        ts_buffer_printf(page->out, "<dt>worst</dt><dd>reference %.6g, candidate %.6g at ", a, b);
        ts_put_coordinates(page->out, &pair->a, at);
        put(page, "</dd>\n");
    }
    count = 0;
    for (size_t i = first > 2 ? first - 2 : 0; i < first; i++)
        near[count++] = i;
    put_links(page, "before", near, count);
    count = 0;
    for (size_t i = first + 1; i < comparison->pairing.count && count < 2; i++)
        near[count++] = i;
    put_links(page, "after", near, count);
    put(page, "</dl></section>\n");
}

static void put_number(const struct page *page, double value)
{
    ts_buffer_printf(page->out, "<td class=\"num\" data-v=\"%.6g\">", isinf(value) ? copysign(1e300, value) : value);
    ts_put_short(page->out, value);
    put(page, "</td>");
}

/* Below the name: why, and under which name and layout it stands on the other side. */
static void put_small(const struct page *page, const char *text)
{
    if (!text || !text[0])
        return;
    put(page, "<span class=\"dim\">");
    ts_put_markup(page->out, text, 400);
    put(page, "</span>");
}

static void put_row(const struct page *page, size_t i)
{
    const struct ts_comparison *comparison = page->comparison;
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    const struct ts_delta *delta = &comparison->deltas[i];
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
    bool first = i == comparison->judgement.first;
    const char *type_a = ts_view_type_name(&pair->a), *type_b = ts_view_type_name(&pair->b);
    struct ts_buffer remark;
    ts_buffer_printf(page->out,
                     "<tr id=\"t%zu\" data-verdict=\"%s\"%s><td class=\"num\" data-v=\"%zu\">%zu</td><td data-v=\"%d\" "
                     "class=\"v-%s\">%s</td><td class=\"name\">",
                     i, classes[verdict->judged], first ? " class=\"first\"" : "", i, i, (int)verdict->judged,
                     classes[verdict->judged], ts_judged_name(verdict->judged));
    put_name(page, pair->name);
    put(page, first ? "<b>first divergence</b>" : "");
    ts_buffer_init(&remark, (size_t)1 << 20);
    ts_put_remark(&remark, pair);
    put_small(page, remark.data);
    ts_buffer_release(&remark);
    put_small(page, ts_reason(comparison, i));
    put_small(page, verdict->operation);
    ts_buffer_printf(page->out, "</td><td class=\"shape\" data-v=\"%" PRIu64 "\">", pair->a.count);
    ts_put_pair_shape(page->out, pair);
    ts_buffer_printf(page->out, "</td><td>%s%s%s</td>", type_a, strcmp(type_a, type_b) ? " / " : "",
                     strcmp(type_a, type_b) ? type_b : "");
    if (pair->problem) {
        for (int k = 0; k < 5; k++)
            put(page, "<td class=\"num\" data-v=\"nan\"></td>");
        put(page, "<td class=\"shape\"></td>");
    } else {
        put_number(page, delta->rel_l2);
        put_number(page, ts_has_roundings(comparison, i) ? verdict->roundings : (double)NAN);
        put_number(page, delta->max_abs);
        ts_buffer_printf(page->out, "<td class=\"num\" data-v=\"%.9g\">%.6g</td>", delta->cosine, delta->cosine);
        ts_buffer_printf(page->out, "<td class=\"num\" data-v=\"%.9g\">%.6g</td>", delta->norm_ratio,
                         delta->norm_ratio);
        put(page, "<td class=\"shape\">");
        if (delta->non_finite_mismatch)
            ts_buffer_printf(page->out, "%" PRIu64 " nan/inf ", delta->non_finite_mismatch);
        if (delta->worst < pair->a.count && delta->unequal)
            ts_put_coordinates(page->out, &pair->a, delta->worst);
        put(page, "</td>");
    }
    if (page->options->grades)
        ts_buffer_printf(page->out, "<td>%s</td>", pair->problem ? "" : ts_comparison_grade(delta));
    put(page, "</tr>\n");
}

static void put_tools(const struct page *page)
{
    put(page, "<div class=\"tools\"><input type=\"search\" id=\"query\" placeholder=\"filter by name\" "
              "aria-label=\"filter by name\">");
    for (int i = TS_JUDGED_OK; i <= TS_JUDGED_UNKNOWN; i++)
        if (page->comparison->judgement.counts[i])
            ts_buffer_printf(page->out,
                             "<label><input type=\"checkbox\" checked data-show=\"%s\"> <span class=\"v-%s\">%s</span> "
                             "%zu</label>",
                             classes[i], classes[i], ts_judged_name((enum ts_judged)i),
                             page->comparison->judgement.counts[i]);
    put(page, "<span class=\"dim\" id=\"shown\"></span></div>\n");
}

static void put_table(const struct page *page)
{
    static const char *const heads[] = {"#",         "verdict", "tensor", "shape",      "type",    "error",
                                        "roundings", "max |d|", "cosine", "norm ratio", "worst at"};
    const struct ts_pairing *pairing = &page->comparison->pairing;
    bool some = pairing->count > ROWS;
    size_t shown = 0;
    if (!pairing->count)
        return;
    put(page, "<section><h2>All pairs, in execution order</h2>\n");
    put_tools(page);
    put(page, "<div class=\"scroll\"><table id=\"pairs\"><thead><tr>");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        ts_buffer_printf(page->out, "<th%s><button>%s</button></th>",
                         i == 0 || (i > 4 && i < 10) ? " class=\"num\"" : "", heads[i]);
    put(page,
        page->options->grades ? "<th><button>grade</button></th></tr></thead>\n<tbody>\n" : "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < pairing->count && shown < ROWS && !page->out->failed; i++)
        if (!some || page->comparison->judgement.verdicts[i].judged >= TS_JUDGED_DIFFERS) {
            put_row(page, i);
            shown++;
        }
    put(page, "</tbody></table></div>\n");
    if (some)
        ts_buffer_printf(page->out,
                         "<p class=\"dim\">%zu rows are left out here; --json and --csv have them all.</p>\n",
                         pairing->count - shown);
    put(page, "</section>\n");
}

static void put_unmatched(const struct page *page, const char *side, const struct ts_tensor *const *tensors,
                          size_t count)
{
    if (!count)
        return;
    ts_buffer_printf(page->out, "<details open><summary>only in the %s: %zu tensor%s</summary>\n<ul>\n", side, count,
                     count == 1 ? "" : "s");
    for (size_t i = 0; i < count && i < SOME; i++) {
        put(page, "<li><span class=\"name\">");
        put_name(page, tensors[i]->name);
        ts_buffer_printf(page->out, "</span> <span class=\"dim\">%s ", ts_tensor_type_name(tensors[i]));
        ts_tensor_shape_text(tensors[i], page->out);
        put(page, "</span></li>\n");
    }
    if (count > SOME)
        ts_buffer_printf(page->out, "<li>and %zu more</li>\n", count - SOME);
    put(page, "</ul></details>\n");
}

static void put_skips(const struct page *page, const char *side, const struct ts_bundle *bundle, bool harmless)
{
    size_t harmful = ts_harmful_skips(bundle), count = harmless ? bundle->skip_count - harmful : harmful, shown = 0;
    if (!count)
        return;
    ts_buffer_printf(page->out, "<details%s><summary>%s the %s: %zu file%s</summary>\n<ul>\n", harmless ? "" : " open",
                     harmless ? "no tensors in" : "could not be read in", side, count, count == 1 ? "" : "s");
    for (size_t i = 0; i < bundle->skip_count && shown < SOME; i++) {
        if (bundle->skips[i].harmless != harmless)
            continue;
        shown++;
        put(page, "<li><span class=\"name\">");
        put_name(page, bundle->skips[i].path);
        put(page, "</span> <span class=\"dim\">");
        put_text(page, bundle->skips[i].reason);
        put(page, "</span></li>\n");
    }
    if (shown < count)
        ts_buffer_printf(page->out, "<li>and %zu more</li>\n", count - shown);
    put(page, "</ul></details>\n");
}

static void put_rest(const struct page *page)
{
    const struct ts_comparison *comparison = page->comparison;
    const struct ts_pairing *pairing = &comparison->pairing;
    if (pairing->only_a_count + pairing->only_b_count + comparison->a->skip_count + comparison->b->skip_count) {
        put(page, "<section><h2>Not compared</h2>\n");
        put_unmatched(page, "reference", pairing->only_a, pairing->only_a_count);
        put_unmatched(page, "candidate", pairing->only_b, pairing->only_b_count);
        for (int harmless = 0; harmless < 2; harmless++) {
            put_skips(page, "reference", comparison->a, harmless);
            put_skips(page, "candidate", comparison->b, harmless);
        }
        put(page, "</section>\n");
    }
    put(page, "</main>\n<script>");
    put(page, ts_html_script);
    put(page, "</script>\n</body>\n</html>\n");
}

enum ts_status ts_report_html(const struct ts_comparison *comparison, const struct ts_report_options *options,
                              struct ts_buffer *out, struct ts_error *error)
{
    const struct page page = {.comparison = comparison, .options = options, .out = out};
    put_head(&page);
    put_summary(&page);
    put_divergence(&page);
    ts_put_html_chart(out, comparison);
    TS_TRY(ts_put_html_heatmaps(out, comparison, error));
    put_table(&page);
    put_rest(&page);
    return TS_OK;
}
