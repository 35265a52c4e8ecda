/* Owns everything about one tensor or pair as JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/facts.h"
#include "report/json_fields.h"
#include "report/metrics_json.h"
#include "serve/causes.h"
#include "serve/detail.h"
#include "serve/handlers.h"

/* The words of the report's tensors, and a few more. */
static void metrics_json(struct ts_json_writer *json, const struct ts_focus *subject)
{
    const struct ts_delta *delta = subject->delta;
    ts_metrics_json(json, delta, &subject->views[0], &subject->views[1], &(struct ts_metrics_form){.counted = true});
    ts_field_number(json, "floor", ts_noise_floor(delta));
    if (subject->verdict) {
        ts_field_number(json, "roundings", subject->verdict->roundings);
        ts_json_key(json, "noise_ratio");
        if (isnan(subject->verdict->noise_ratio)) /* it was not replayed */
            ts_json_null(json);
        else
            ts_json_number(json, subject->verdict->noise_ratio);
    }
    if (!delta->non_finite_mismatch)
        ts_field_null(json, "first_non_finite_mismatch");
}

/* Axis names that the file gives: "tokens,heads" or "tokens heads". */
static void axis_name(const struct ts_tensor *tensor, unsigned rank, unsigned axis, char *out, size_t size)
{
    const char *names = ts_tensor_attribute(tensor, "axes");
    unsigned count = 0;
    out[0] = '\0';
    for (const char *at = names; at && *at;) {
        size_t length = strcspn(at, ", ");
        if (count++ == axis && length < size) {
            memcpy(out, at, length);
            out[length] = '\0';
        }
        at += length;
        at += strspn(at, ", ");
    }
    if (count != rank)
        out[0] = '\0';
}

static void profiles_json(struct ts_json_writer *json, const struct ts_focus *subject, const struct ts_detail *detail)
{
    const struct ts_tensor *tensor = subject->views[subject->has[0] ? 0 : 1].tensor;
    ts_json_key(json, "profiles");
    ts_json_begin_array(json);
    for (unsigned axis = 0; axis < subject->rank; axis++) {
        const struct ts_axis_profile *profile = &detail->profiles[axis];
        uint64_t bins = subject->shape[axis] < TS_PROFILE_BINS ? subject->shape[axis] : TS_PROFILE_BINS;
        char name[64];
        axis_name(tensor, subject->rank, axis, name, sizeof name);
        ts_json_begin_object(json);
        ts_field_count(json, "axis", axis);
        ts_field_text(json, "name", name[0] ? name : NULL);
        ts_field_count(json, "size", subject->shape[axis]);
        ts_json_key(json, "rms");
        ts_json_begin_array(json);
        for (uint64_t i = 0; i < bins; i++)
            if (profile->count[i])
                ts_json_number(json, sqrt(profile->sum[i] / (double)profile->count[i]));
            else
                ts_json_null(json);
        ts_json_end_array(json);
        ts_json_key(json, "max");
        ts_json_begin_array(json);
        for (uint64_t i = 0; i < bins; i++)
            ts_json_number(json, profile->max[i]);
        ts_json_end_array(json);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
}

static void edges_json(struct ts_json_writer *json, const char *key, const double range[2])
{
    ts_json_key(json, key);
    ts_json_begin_array(json);
    for (unsigned i = 0; !isnan(range[0]) && i <= TS_HISTOGRAM_BINS; i++)
        ts_json_number(json, range[0] + (range[1] - range[0]) * i / TS_HISTOGRAM_BINS);
    ts_json_end_array(json);
}

static void histograms_json(struct ts_json_writer *json, const struct ts_focus *subject, const struct ts_detail *detail)
{
    static const char *const keys[] = {"a", "b", "difference"};
    ts_json_key(json, "histograms");
    ts_json_begin_object(json);
    edges_json(json, "edges", detail->range);
    edges_json(json, "difference_edges", detail->difference_range);
    for (unsigned i = 0; i < 3; i++)
        if (i == 2 ? subject->has[0] && subject->has[1] : subject->has[i])
            ts_field_counts(json, keys[i], detail->counts[i], TS_HISTOGRAM_BINS);
        else
            ts_field_null(json, keys[i]);
    ts_json_end_object(json);
}

static void quantiles_json(struct ts_json_writer *json, const struct ts_detail *detail)
{
    static const char *const names[TS_DELTA_QUANTILES] = {"p50", "p90", "p99", "p99_9", "p100"};
    ts_json_key(json, "quantiles");
    if (!detail->has_quantiles) {
        ts_json_null(json);
        return;
    }
    ts_json_begin_object(json);
    for (unsigned i = 0; i < TS_DELTA_QUANTILES; i++)
        ts_field_number(json, names[i], detail->quantiles[i]);
    ts_json_end_object(json);
}

static void pair_json(struct ts_json_writer *json, const struct ts_focus *subject)
{
    const struct ts_pair *pair = subject->pair;
    const struct ts_verdict *verdict = subject->verdict;
    ts_field_count(json, "id", subject->index);
    ts_field_text(json, "name", pair->name);
    ts_field_text(json, "name_b", pair->name_b);
    ts_field_counts(json, "shape_a", pair->a.tensor->shape, pair->a.tensor->rank);
    ts_field_counts(json, "shape_b", pair->b.tensor->shape, pair->b.tensor->rank);
    ts_field_text(json, "dtype_a", ts_view_type_name(&pair->a));
    ts_field_text(json, "dtype_b", ts_view_type_name(&pair->b));
    ts_field_text(json, "file_a", pair->a.tensor->file);
    ts_field_text(json, "file_b", pair->b.tensor->file);
    ts_field_text(json, "how", pair->how);
    ts_field_text(json, "recipe", pair->recipe ? pair->recipe : "");
    ts_field_bool(json, "ambiguous", pair->ambiguous);
    ts_field_bool(json, "guess", pair->guess);
    ts_field_text(json, "problem", pair->problem);
    ts_field_bool(json, "sampled", ts_is_sampled(pair));
    ts_field_bool(json, "remapped", subject->remap != NULL);
    if (subject->remap) {
        ts_json_key(json, "mapping");
        ts_remap_json(json, subject->remap);
    }
    ts_field_text(json, "verdict", verdict ? ts_judged_name(verdict->judged) : NULL);
    ts_field_text(json, "why", verdict ? verdict->why : NULL);
    ts_field_text(json, "operation", verdict ? verdict->operation : NULL);
    if (verdict && verdict->judged == TS_JUDGED_DIFFERS)
        ts_field_bool(json, "made_here", verdict->made_here);
}

static void attributes_json(struct ts_json_writer *json, const struct ts_tensor *tensor)
{
    ts_json_key(json, "attributes");
    ts_json_begin_object(json);
    for (const struct ts_attribute *one = tensor->attributes; one; one = one->next)
        ts_field_text(json, one->key, one->value);
    ts_json_end_object(json);
}

/* A tensor of one side; the statistics are there when it was opened alone. */
static void tensor_json(struct ts_json_writer *json, const struct ts_focus *subject)
{
    const struct ts_tensor *tensor = subject->tensor;
    const struct ts_stats *stats = subject->opened->stats ? &subject->opened->stats[subject->index] : NULL;
    unsigned side = subject->has[0] ? 0 : 1;
    const struct ts_view *view = &subject->views[side];
    char id[32];
    snprintf(id, sizeof id, "%c%zu", side ? 'b' : 'a', subject->index);
    ts_field_text(json, "id", id);
    ts_field_text(json, "name", tensor->name);
    ts_field_null(json, "name_b");
    ts_field_text(json, "dtype", ts_tensor_type_name(tensor));
    ts_field_text(json, side ? "dtype_b" : "dtype_a", ts_tensor_type_name(tensor));
    ts_field_text(json, side ? "file_b" : "file_a", tensor->file);
    ts_field_counts(json, side ? "shape_b" : "shape_a", tensor->shape, tensor->rank);
    ts_field_count(json, "bytes", tensor->bytes);
    attributes_json(json, tensor);
    ts_field_null(json, "verdict");
    if (!stats)
        return;
    ts_json_key(json, "stats");
    ts_json_begin_object(json);
    ts_field_number(json, "min", stats->min);
    ts_field_number(json, "max", stats->max);
    ts_field_number(json, "mean", stats->mean);
    ts_field_number(json, "std", stats->std);
    ts_field_number(json, "norm", stats->norm);
    ts_field_count(json, "nan", stats->nan);
    ts_field_count(json, "inf", stats->positive_inf + stats->negative_inf);
    ts_field_count(json, "zeros", stats->zeros);
    ts_field_count(json, "count", stats->count);
    ts_json_end_object(json);
    ts_place_json(json, "first_nan", view, stats->first_nan);
    ts_place_json(json, "first_inf", view, stats->first_inf);
}

void ts_tensor_answer(struct ts_call *call, struct ts_focus *subject)
{
    struct ts_json_writer *json;
    struct ts_detail detail;
    struct ts_error error;
    if (ts_detail_make(call, subject, &detail, &error) != TS_OK) {
        ts_call_error(call, &error);
        ts_detail_release(&detail);
        return;
    }
    json = ts_call_json(call, 200);
    ts_json_begin_object(json);
    if (subject->pair)
        pair_json(json, subject);
    else
        tensor_json(json, subject);
    ts_field_counts(json, "shape", subject->shape, subject->rank);
    ts_field_count(json, "count", subject->count);
    if (subject->delta)
        metrics_json(json, subject);
    profiles_json(json, subject, &detail);
    histograms_json(json, subject, &detail);
    quantiles_json(json, &detail);
    ts_field_count(json, "looked_at", detail.looked);
    ts_field_bool(json, "looked_at_all", !detail.sampled);
    ts_json_end_object(json);
    ts_json_finish(json);
    ts_detail_release(&detail);
}

void ts_handle_tensor(struct ts_call *call)
{
    struct ts_focus subject;
    if (!ts_focus_take(call, &subject))
        return;
    ts_tensor_answer(call, &subject);
    ts_focus_release(&subject);
}
