/* Owns the HTML report: one page that stands alone, opens offline and loads nothing. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "report/changes.h"
#include "report/facts.h"
#include "report/html.h"
#include "report/markup.h"
#include "report/png.h"

/* Entries of a list. */
#define SOME 200

/* The script is allowed by its digest: nothing a file brings along can run, even if an escape were missing. */
static void put_head(const struct ts_page *page)
{
    uint8_t digest[TS_SHA256_SIZE];
    ts_sha256(ts_html_script, strlen(ts_html_script), digest);
    ts_page_put(page,
                "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\""
                "Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
                "script-src 'sha256-");
    ts_put_base64(page->out, digest, sizeof digest);
    ts_page_put(page,
                "'; base-uri 'none'; form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, "
                "initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    ts_page_put(page, ts_outcome_name(page->comparison->outcome));
    ts_page_put(page, ": ");
    ts_put_markup(page->out, page->comparison->b->path, 80);
    ts_page_put(page, " against ");
    ts_put_markup(page->out, page->comparison->a->path, 80);
    ts_page_put(page, "</title>\n<style>\n");
    ts_page_put(page, ts_html_style);
    ts_page_put(page, "</style>\n</head>\n<body>\n<main>\n");
}

static void put_input(const struct ts_page *page, bool candidate)
{
    const struct ts_bundle *bundle = candidate ? page->comparison->b : page->comparison->a;
    char bytes[16], count[32];
    ts_buffer_printf(page->out, "<dt>%s</dt><dd><code>", candidate ? "B (candidate)" : "A (reference)");
    ts_page_text(page, bundle->path);
    ts_buffer_printf(page->out, "</code> <span class=\"dim\">%s tensor%s, ", ts_human_count(bundle->count, count),
                     bundle->count == 1 ? "" : "s");
    if (bundle->count) {
        ts_put_types_in_use(page->out, page->comparison, candidate);
        ts_page_put(page, ", ");
    }
    ts_page_put(page, ts_human_bytes(bundle->file_bytes, bytes));
    ts_put_cost(page->out, page->options->costs, candidate);
    ts_page_put(page, "</span></dd>\n");
}

static void put_note(const struct ts_page *page, const char *label, const char *note)
{
    ts_buffer_printf(page->out, "<dt>%s</dt><dd>", label);
    ts_page_text(page, note);
    ts_page_put(page, "</dd>\n");
}

static void put_aside(const struct ts_page *page)
{
    struct ts_buffer line;
    ts_buffer_init(&line, (size_t)1 << 20);
    for (int guessed = 0; guessed < 2; guessed++) {
        ts_buffer_clear(&line);
        if (ts_put_aside(&line, &page->comparison->judgement, guessed, SOME))
            put_note(page, guessed ? "set aside (a guess)" : "set aside", line.data ? line.data : "");
    }
    ts_buffer_release(&line);
}

/* A sentence made by one of the functions that put one; nothing when it puts none. */
static void put_made(const struct ts_page *page, const char *label,
                     void (*make)(struct ts_buffer *out, const struct ts_comparison *comparison))
{
    struct ts_buffer text;
    ts_buffer_init(&text, (size_t)16 << 20);
    make(&text, page->comparison);
    if (text.size)
        put_note(page, label, text.data);
    ts_buffer_release(&text);
}

/* What the difference means for the choice of tokens. */
static void put_rankings(const struct ts_page *page)
{
    struct ts_buffer text;
    ts_buffer_init(&text, (size_t)16 << 20);
    for (size_t i = 0; i < page->comparison->pairing.count; i++)
        if (ts_is_output(page->comparison, i)) {
            ts_buffer_clear(&text);
            ts_buffer_printf(&text, "%s: ", page->comparison->pairing.pairs[i].name);
            ts_put_ranking(&text, page->comparison, i);
            put_note(page, "ranking", text.data ? text.data : "");
        }
    ts_buffer_release(&text);
}

static void put_summary(const struct ts_page *page)
{
    const struct ts_comparison *comparison = page->comparison;
    const char *outcome = ts_outcome_name(comparison->outcome);
    ts_buffer_printf(page->out, "<h1><span class=\"badge %s\">%s</span> ", outcome, outcome);
    ts_page_text(page, comparison->outcome_text ? comparison->outcome_text : "");
    ts_page_put(page, "</h1>\n<section><dl>\n");
    put_input(page, false);
    put_input(page, true);
    if (comparison->pairing.count) {
        ts_page_put(page, "<dt>paired</dt><dd>");
        ts_put_pairing(page->out, comparison);
        if (comparison->pairing.order) {
            ts_page_put(page, ", in the ");
            ts_page_text(page, comparison->pairing.order);
        }
        ts_page_put(page, "</dd>\n");
    }
    if (comparison->judgement.weights)
        put_made(page, "changed", ts_put_changes);
    put_made(page, "rank", ts_put_ranks);
    put_rankings(page);
    for (size_t i = 0; i < comparison->pairing.note_count; i++)
        put_note(page, "note", comparison->pairing.notes[i]);
    put_aside(page);
    for (size_t i = 0; i < comparison->judgement.note_count; i++)
        put_note(page, "note", comparison->judgement.notes[i]);
    for (size_t i = 0; i < comparison->doubt_count; i++)
        put_note(page, "warning", comparison->doubts[i]);
    ts_page_put(page, "</dl></section>\n");
}

static void put_link(const struct ts_page *page, size_t i)
{
    const struct ts_verdict *verdict = &page->comparison->judgement.verdicts[i];
    ts_buffer_printf(page->out, "<a class=\"name\" href=\"#t%zu\">", i);
    ts_page_name(page, page->comparison->pairing.pairs[i].name);
    ts_buffer_printf(page->out, "</a> <span class=\"dim v-%s\">", ts_html_classes[verdict->judged]);
    ts_put_standing(page->out, page->comparison, i);
    ts_page_put(page, "</span>");
}

static void put_links(const struct ts_page *page, const char *label, const size_t *pairs, size_t count)
{
    if (!count)
        return;
    ts_buffer_printf(page->out, "<dt>%s</dt><dd>", label);
    for (size_t i = 0; i < count; i++) {
        ts_page_put(page, i ? "<br>" : "");
        put_link(page, pairs[i]);
    }
    ts_page_put(page, "</dd>\n");
}

static void put_fact(const struct ts_page *page, const char *label, const char *fact)
{
    if (!fact || !fact[0])
        return;
    ts_buffer_printf(page->out, "<dt>%s</dt><dd>", label);
    ts_page_text(page, fact);
    ts_page_put(page, "</dd>\n");
}

static void put_causes(const struct ts_page *page)
{
    const struct ts_diagnosis *diagnosis = page->options->diagnosis;
    if (!diagnosis)
        return;
    if (!diagnosis->count && !page->comparison->judgement.weights)
        put_fact(page, "structure", diagnosis->strongest);
    for (size_t i = 0; i < diagnosis->count; i++) {
        ts_buffer_printf(page->out, "<dt>%s</dt><dd><strong>", i ? "or" : "cause");
        ts_page_text(page, diagnosis->causes[i].id);
        ts_buffer_printf(page->out, "</strong> (%.2f%s): ", diagnosis->causes[i].confidence,
                         diagnosis->causes[i].tied ? ", a tie" : "");
        ts_page_text(page, diagnosis->causes[i].summary ? diagnosis->causes[i].summary : "");
        ts_page_put(page, "</dd>\n");
        put_fact(page, "check", diagnosis->causes[i].check);
    }
}

static void put_divergence(const struct ts_page *page)
{
    const struct ts_comparison *comparison = page->comparison;
    size_t first = comparison->judgement.first, inputs[TS_MOST_INPUTS], near[2], count;
    const struct ts_pair *pair;
    struct ts_buffer remark;
    double a, b;
    uint64_t at;
    bool weights = comparison->judgement.weights;
    if (first >= comparison->pairing.count)
        return;
    pair = &comparison->pairing.pairs[first];
    ts_buffer_printf(page->out, "<section><h2>%s: <a class=\"name\" href=\"#t%zu\">",
                     weights ? "First differing tensor" : "First divergence", first);
    ts_page_name(page, pair->name);
    ts_page_put(page, "</a></h2>\n<dl>\n");
    put_causes(page);
    put_fact(page, "why", ts_reason(comparison, first));
    put_fact(page, "operation", comparison->judgement.verdicts[first].operation);
    put_links(page, "inputs", inputs, ts_operation_inputs(comparison, first, inputs));
    ts_buffer_init(&remark, (size_t)1 << 20);
    ts_put_remark(&remark, pair);
    put_fact(page, "pairing", remark.data);
    ts_buffer_clear(&remark);
    ts_put_uncaptured(&remark, comparison, first);
    put_fact(page, "between", remark.size ? remark.data : NULL);
    ts_buffer_release(&remark);
    at = ts_worst_element(comparison, first, &a, &b);
    if (at != UINT64_MAX) {
        ts_page_put(page, "<dt>worst</dt><dd>");
        ts_put_two(page->out, pair, at, a, b);
        if (pair->a.rank) {
            ts_page_put(page, " at ");
            ts_put_coordinates(page->out, &pair->a, at);
        }
        ts_page_put(page, "</dd>\n");
    }
    count = 0;
    for (size_t i = first > 2 ? first - 2 : 0; i < first && !weights; i++)
        near[count++] = i;
    put_links(page, "before", near, count);
    count = 0;
    for (size_t i = first + 1; i < comparison->pairing.count && count < 2 && !weights; i++)
        near[count++] = i;
    put_links(page, "after", near, count);
    ts_page_put(page, "</dl></section>\n");
}

static void put_unmatched(const struct ts_page *page, const char *heading, const struct ts_tensor *const *tensors,
                          size_t count)
{
    if (!count)
        return;
    ts_buffer_printf(page->out, "<details open><summary>%s: %zu tensor%s</summary>\n<ul>\n", heading, count,
                     count == 1 ? "" : "s");
    for (size_t i = 0; i < count && i < SOME; i++) {
        ts_page_put(page, "<li><span class=\"name\">");
        ts_page_name(page, tensors[i]->name);
        ts_buffer_printf(page->out, "</span> <span class=\"dim\">%s ", ts_tensor_type_name(tensors[i]));
        ts_tensor_shape_text(tensors[i], page->out);
        ts_page_put(page, "</span></li>\n");
    }
    if (count > SOME)
        ts_buffer_printf(page->out, "<li>and %zu more</li>\n", count - SOME);
    ts_page_put(page, "</ul></details>\n");
}

static void put_skips(const struct ts_page *page, const char *side, const struct ts_bundle *bundle, bool harmless)
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
        ts_page_put(page, "<li><span class=\"name\">");
        ts_page_name(page, bundle->skips[i].path);
        ts_page_put(page, "</span> <span class=\"dim\">");
        ts_page_text(page, bundle->skips[i].reason);
        ts_page_put(page, "</span></li>\n");
    }
    if (shown < count)
        ts_buffer_printf(page->out, "<li>and %zu more</li>\n", count - shown);
    ts_page_put(page, "</ul></details>\n");
}

static void put_rest(const struct ts_page *page)
{
    const struct ts_comparison *comparison = page->comparison;
    const struct ts_pairing *pairing = &comparison->pairing;
    if (pairing->only_a_count + pairing->only_b_count + pairing->idle_a_count + pairing->idle_b_count +
        comparison->a->skip_count + comparison->b->skip_count) {
        ts_page_put(page, "<section><h2>Not compared</h2>\n");
        put_unmatched(page, "only in the reference", pairing->only_a, pairing->only_a_count);
        put_unmatched(page, "only in the candidate", pairing->only_b, pairing->only_b_count);
        put_unmatched(page, "reference, " TS_IDLE_TEXT, pairing->idle_a, pairing->idle_a_count);
        put_unmatched(page, "candidate, " TS_IDLE_TEXT, pairing->idle_b, pairing->idle_b_count);
        for (int harmless = 0; harmless < 2; harmless++) {
            put_skips(page, "reference", comparison->a, harmless);
            put_skips(page, "candidate", comparison->b, harmless);
        }
        ts_page_put(page, "</section>\n");
    }
    ts_page_put(page, "</main>\n<script>");
    ts_page_put(page, ts_html_script);
    ts_page_put(page, "</script>\n</body>\n</html>\n");
}

enum ts_status ts_report_html(const struct ts_comparison *comparison, const struct ts_report_options *options,
                              struct ts_buffer *out, struct ts_error *error)
{
    const struct ts_page page = {.comparison = comparison, .options = options, .out = out};
    put_head(&page);
    put_summary(&page);
    put_divergence(&page);
    ts_put_html_chart(out, comparison);
    if (comparison->judgement.weights) /* of checkpoints the table says most */
        TS_TRY(ts_put_html_table(&page, error));
    TS_TRY(ts_put_html_heatmaps(out, comparison, error));
    if (!comparison->judgement.weights)
        TS_TRY(ts_put_html_table(&page, error));
    put_rest(&page);
    return TS_OK;
}
