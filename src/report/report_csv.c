/* Owns the CSV report. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "report/changes.h"
#include "report/facts.h"
#include "report/report.h"

/* One field. Spreadsheets run text that begins with one of =+-@ as a formula, and names come from hostile files. */
static void put_text(struct ts_buffer *out, const char *text)
{
    struct ts_buffer safe;
    ts_buffer_init(&safe, (size_t)64 << 20);
    if (text[0] && strchr("=+-@", text[0]))
        ts_buffer_byte(&safe, '\'');
    ts_text_escape(&safe, text, strlen(text));
    if (safe.failed)
        out->failed = true;
    if (safe.size && strpbrk(safe.data, "\",\n\r")) {
        ts_buffer_byte(out, '"');
        for (size_t i = 0; i < safe.size; i++) {
            if (safe.data[i] == '"')
                ts_buffer_byte(out, '"');
            ts_buffer_byte(out, safe.data[i]);
        }
        ts_buffer_byte(out, '"');
    } else if (safe.size) {
        ts_buffer_append(out, safe.data, safe.size);
    }
    ts_buffer_release(&safe);
}

static void put_number(struct ts_buffer *out, double value)
{
    char text[TS_JSON_NUMBER_SIZE];
    ts_json_number_text(text, value);
    ts_buffer_printf(out, ",%s", text);
}

/* changed_fraction, rel_change, change_rank (with a + when there are more than could be counted), stable_rank */
static void put_change(const struct ts_comparison *comparison, size_t i, struct ts_buffer *out)
{
    const struct ts_change_rank *rank = comparison->ranks ? &comparison->ranks[i] : NULL;
    if (comparison->pairing.pairs[i].problem) {
        ts_buffer_string(out, ",,,,");
        return;
    }
    put_number(out, ts_changed_fraction(&comparison->deltas[i]));
    put_number(out, ts_shown_delta(&comparison->deltas[i]).rel_l2);
    if (!rank || !rank->known) {
        ts_buffer_string(out, ",,");
        return;
    }
    ts_buffer_printf(out, ",%u%s", rank->rank, rank->at_least ? "+" : "");
    if (rank->value_count)
        put_number(out, rank->stable);
    else
        ts_buffer_byte(out, ',');
}

static void put_pair(const struct ts_comparison *comparison, size_t i, const struct ts_report_options *options,
                     struct ts_buffer *out)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    const struct ts_delta shown = ts_shown_delta(&comparison->deltas[i]), *delta = &shown;
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
    struct ts_buffer text;
    ts_buffer_init(&text, 65536);
    ts_buffer_printf(out, "%zu,", i);
    put_text(out, pair->name);
    ts_buffer_byte(out, ',');
    put_text(out, pair->name_b);
    ts_buffer_printf(out, ",%s,%s,", ts_judged_name(verdict->judged), i == comparison->judgement.first ? "first" : "");
    ts_put_pair_shape(&text, pair);
    put_text(out, text.data ? text.data : "");
    ts_buffer_printf(out, ",%s,%s,", ts_view_type_name(&pair->a), ts_view_type_name(&pair->b));
    put_text(out, pair->recipe ? pair->recipe : "");
    if (pair->problem) {
        ts_buffer_string(out, ",,,,,,,,,,,,,,,,,");
    } else {
        put_number(out, delta->rel_l2);
        put_number(out, isnan(delta->rel_l2) ? delta->rel_l2 : verdict->roundings);
        put_number(out, delta->max_abs);
        ts_buffer_byte(out, ',');
        ts_buffer_clear(&text);
        if (delta->worst < pair->a.count)
            ts_put_coordinates(&text, &pair->a, delta->worst);
        put_text(out, text.data ? text.data : "");
        put_number(out, delta->mean_abs);
        put_number(out, delta->mse);
        put_number(out, delta->max_rel);
        put_number(out, delta->max_ulp);
        put_number(out, delta->cosine);
        put_number(out, delta->norm_ratio);
        ts_buffer_printf(out, ",%" PRIu64, delta->mismatched);
        if (ts_comparison_same_bytes(comparison, i)) /* what bytes alone do not tell */
            ts_buffer_string(out, ",,,,");
        else
            ts_buffer_printf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, delta->a.nan, delta->b.nan,
                             delta->a.positive_inf + delta->a.negative_inf,
                             delta->b.positive_inf + delta->b.negative_inf);
        ts_buffer_printf(out, ",%s,", options->grades ? ts_comparison_grade(delta) : "");
    }
    put_text(out, ts_reason(comparison, i));
    put_change(comparison, i, out);
    ts_buffer_string(out, "\r\n");
    ts_buffer_release(&text);
}

/* A tensor without partner: its name on its side, the rest empty. */
static void put_lone(const struct ts_tensor *tensor, bool candidate, bool idle, struct ts_buffer *out)
{
    struct ts_buffer text;
    ts_buffer_init(&text, 65536);
    ts_buffer_string(out, candidate ? ",," : ",");
    put_text(out, tensor->name);
    ts_buffer_printf(out, candidate ? ",%s,," : ",,%s,,", idle ? "idle" : "unmatched");
    ts_tensor_shape_text(tensor, &text);
    put_text(out, text.data ? text.data : "");
    ts_buffer_printf(out, candidate ? ",,%s" : ",%s,", ts_tensor_type_name(tensor));
    ts_buffer_printf(out, ",,,,,,,,,,,,,,,,,,%s,,,,\r\n",
                     idle        ? TS_IDLE_TEXT
                     : candidate ? "only in the candidate"
                                 : "only in the reference");
    ts_buffer_release(&text);
}

void ts_report_csv(const struct ts_comparison *comparison, const struct ts_report_options *options,
                   struct ts_buffer *out)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    ts_buffer_string(out, "index,name,name_b,verdict,divergence,shape,dtype_a,dtype_b,recipe,rel_l2,roundings,max_abs,"
                          "worst,mean_abs,mse,max_rel,max_ulp,cosine,norm_ratio,mismatched,nan_a,nan_b,inf_a,inf_b,"
                          "grade,why,changed_fraction,rel_change,change_rank,stable_rank\r\n");
    for (size_t i = 0; i < pairing->count && !out->failed; i++)
        put_pair(comparison, i, options, out);
    for (size_t i = 0; i < pairing->only_a_count && !out->failed; i++)
        put_lone(pairing->only_a[i], false, false, out);
    for (size_t i = 0; i < pairing->only_b_count && !out->failed; i++)
        put_lone(pairing->only_b[i], true, false, out);
    for (size_t i = 0; i < pairing->idle_a_count && !out->failed; i++)
        put_lone(pairing->idle_a[i], false, true, out);
    for (size_t i = 0; i < pairing->idle_b_count && !out->failed; i++)
        put_lone(pairing->idle_b[i], true, true, out);
}
