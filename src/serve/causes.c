/* Owns /causes: hypotheses about one pair, tested when somebody asks. */
#include "serve/causes.h"

#include "report/json_fields.h"
#include "serve/handlers.h"
#include "serve/opened.h"

void ts_causes_json(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis)
{
    ts_json_begin_array(json);
    for (size_t i = 0; diagnosis && i < diagnosis->count; i++)
        ts_cause_json(json, diagnosis, &diagnosis->causes[i]);
    if (diagnosis && !diagnosis->count && diagnosis->strongest) {
        ts_json_begin_object(json);
        ts_field_text(json, "id", "structure");
        ts_field_number(json, "confidence", 0);
        ts_field_text(json, "summary", diagnosis->strongest);
        ts_field_text(json, "check", NULL);
        ts_json_key(json, "evidence");
        ts_json_begin_array(json);
        ts_json_end_array(json);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
}

void ts_handle_causes(struct ts_call *call)
{
    const struct ts_comparison *comparison = &call->opened->comparison;
    struct ts_focus subject;
    struct ts_diagnosis diagnosis;
    struct ts_error error;
    enum ts_status status;
    if (!ts_focus_take(call, &subject))
        return;
    if (!subject.pair) {
        ts_call_fail(call, 409, NULL, "a tensor without partner differs from nothing");
    } else if (subject.pair->problem) {
        ts_call_fail(call, 409, "map it by hand", "the pair cannot be compared: %s", subject.pair->problem);
    } else if (!subject.delta->unequal && !subject.delta->non_finite_mismatch) {
        struct ts_json_writer *json = ts_call_json(call, 200);
        ts_causes_json(json, NULL);
        ts_json_finish(json);
    } else {
        status = subject.remap ? ts_diagnose(subject.pair, subject.delta, 1, 0, &diagnosis, &error)
                               : ts_diagnose(comparison->pairing.pairs, comparison->deltas, comparison->pairing.count,
                                             subject.index, &diagnosis, &error);
        if (status == TS_OK) {
            struct ts_json_writer *json = ts_call_json(call, 200);
            ts_causes_json(json, &diagnosis);
            ts_json_finish(json);
            ts_diagnosis_release(&diagnosis);
        } else {
            ts_call_error(call, &error);
        }
        ts_opened_forget_pages(call->opened);
    }
    ts_focus_release(&subject);
}
