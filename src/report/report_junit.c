/* Owns the JUnit report: what build servers read. One suite; one case per pair, per tensor without partner and per
 * member that could not be read. */
#include <inttypes.h>

#include "report/facts.h"
#include "report/markup.h"
#include "report/report.h"

/* Build servers choke on attributes without end. */
#define NAME_MOST 1000

struct totals {
    size_t tests, failures, errors, skipped;
};

static void begin_case(struct ts_buffer *out, const char *group, const char *name)
{
    ts_buffer_string(out, "  <testcase classname=\"tsleuth.");
    ts_buffer_string(out, group);
    ts_buffer_string(out, "\" name=\"");
    ts_put_markup(out, name, NAME_MOST);
    ts_buffer_string(out, "\"");
}

static void put_pair(const struct ts_comparison *comparison, size_t i, struct ts_buffer *out)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    const struct ts_delta *delta = &comparison->deltas[i];
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
    bool differs = verdict->judged == TS_JUDGED_DIFFERS;
    struct ts_buffer remark;
    begin_case(out, "pair", pair->name);
    if (!differs && verdict->judged != TS_JUDGED_UNKNOWN) {
        ts_buffer_string(out, "/>\n");
        return;
    }
    ts_buffer_printf(out, ">\n    <%s message=\"", differs ? "failure" : "error");
    if (i == comparison->judgement.first)
        ts_buffer_string(out, "first divergence: ");
    ts_put_markup(out, ts_reason(comparison, i), NAME_MOST);
    ts_buffer_string(out, "\">");
    if (differs && !delta->compared && delta->non_finite_mismatch) {
        ts_buffer_printf(out,
                         "%" PRIu64
                         " NaN or infinite on one side and something else on the other, and no element finite on both",
                         delta->non_finite_mismatch);
    } else if (differs) {
        ts_buffer_printf(out, "relative error %.6g, %.4g roundings, largest difference %.6g", delta->rel_l2,
                         verdict->roundings, delta->max_abs);
        if (delta->worst < pair->a.count) {
            if (pair->a.rank) {
                ts_buffer_string(out, " at ");
                ts_put_coordinates(out, &pair->a, delta->worst);
            }
            ts_buffer_string(out, " (");
            if (!ts_put_integers(out, pair, delta->worst))
                ts_buffer_printf(out, "reference %.9g, candidate %.9g", delta->worst_a, delta->worst_b);
            ts_buffer_byte(out, ')');
        }
        ts_buffer_printf(out, ", cosine %.9g", delta->cosine);
        if (delta->non_finite_mismatch)
            ts_buffer_printf(out, ", %" PRIu64 " NaN or infinite on one side and something else on the other",
                             delta->non_finite_mismatch);
    }
    ts_buffer_init(&remark, (size_t)1 << 20);
    ts_put_remark(&remark, pair);
    if (remark.size) {
        ts_buffer_byte(out, '\n');
        ts_put_markup(out, remark.data, NAME_MOST);
    }
    ts_buffer_release(&remark);
    ts_buffer_printf(out, "</%s>\n  </testcase>\n", differs ? "failure" : "error");
}

/* Missing tensors fail a build only when the comparison as a whole says that it is incomplete. */
static void put_lone(const struct ts_tensor *tensor, const char *side, bool harm, struct ts_buffer *out)
{
    begin_case(out, side, tensor->name);
    ts_buffer_printf(out, ">\n    <%s message=\"only in the %s\"/>\n  </testcase>\n", harm ? "error" : "skipped", side);
}

static void put_idle(const struct ts_tensor *const *tensors, size_t count, const char *side, struct ts_buffer *out)
{
    for (size_t i = 0; i < count && !out->failed; i++) {
        begin_case(out, side, tensors[i]->name);
        ts_buffer_string(out, ">\n    <skipped message=\"" TS_IDLE_TEXT "\"/>\n  </testcase>\n");
    }
}

static void put_skips(const struct ts_bundle *bundle, const char *side, struct ts_buffer *out)
{
    for (size_t i = 0; i < bundle->skip_count; i++) {
        if (bundle->skips[i].harmless)
            continue;
        begin_case(out, side, bundle->skips[i].path);
        ts_buffer_string(out, ">\n    <error message=\"");
        ts_put_markup(out, bundle->skips[i].reason, NAME_MOST);
        ts_buffer_string(out, "\"/>\n  </testcase>\n");
    }
}

static struct totals count(const struct ts_comparison *comparison, bool harm)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    size_t lone = pairing->only_a_count + pairing->only_b_count;
    struct totals totals = {0};
    for (size_t i = 0; i < pairing->count; i++) {
        totals.failures += comparison->judgement.verdicts[i].judged == TS_JUDGED_DIFFERS;
        totals.errors += comparison->judgement.verdicts[i].judged == TS_JUDGED_UNKNOWN;
    }
    totals.errors += ts_harmful_skips(comparison->a) + ts_harmful_skips(comparison->b);
    totals.skipped = pairing->idle_a_count + pairing->idle_b_count;
    totals.tests =
        pairing->count + lone + totals.skipped + ts_harmful_skips(comparison->a) + ts_harmful_skips(comparison->b);
    *(harm ? &totals.errors : &totals.skipped) += lone;
    return totals;
}

void ts_report_junit(const struct ts_comparison *comparison, const struct ts_report_options *options,
                     struct ts_buffer *out)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    bool harm = comparison->outcome == TS_OUTCOME_INCOMPLETE;
    struct totals totals = count(comparison, harm);
    bool silent = harm && !totals.errors; /* the verdict alone says so: then it is a case of its own */
    (void)options;
    ts_buffer_string(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"tsleuth compare\"");
    ts_buffer_printf(out, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\">\n", totals.tests + silent,
                     totals.failures, totals.errors + silent, totals.skipped);
    ts_buffer_string(out, "  <properties>\n    <property name=\"reference\" value=\"");
    ts_put_markup(out, comparison->a->path, NAME_MOST);
    ts_buffer_string(out, "\"/>\n    <property name=\"candidate\" value=\"");
    ts_put_markup(out, comparison->b->path, NAME_MOST);
    ts_buffer_printf(out, "\"/>\n    <property name=\"verdict\" value=\"%s\"/>\n  </properties>\n",
                     ts_outcome_name(comparison->outcome));
    for (size_t i = 0; i < pairing->count && !out->failed; i++)
        put_pair(comparison, i, out);
    for (size_t i = 0; i < pairing->only_a_count && !out->failed; i++)
        put_lone(pairing->only_a[i], "reference", harm, out);
    for (size_t i = 0; i < pairing->only_b_count && !out->failed; i++)
        put_lone(pairing->only_b[i], "candidate", harm, out);
    put_idle(pairing->idle_a, pairing->idle_a_count, "reference", out);
    put_idle(pairing->idle_b, pairing->idle_b_count, "candidate", out);
    put_skips(comparison->a, "reference", out);
    put_skips(comparison->b, "candidate", out);
    if (silent) {
        begin_case(out, "comparison", "complete");
        ts_buffer_string(out, ">\n    <error message=\"");
        ts_put_markup(out, comparison->outcome_text ? comparison->outcome_text : "incomplete", NAME_MOST);
        ts_buffer_string(out, "\"/>\n  </testcase>\n");
    }
    ts_buffer_string(out, "</testsuite>\n");
}
