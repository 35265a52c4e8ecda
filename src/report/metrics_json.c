/* Owns the metrics of a pair as JSON. Fields may be added; those that are there keep their meaning. */
#include "report/metrics_json.h"

#include <math.h>

#include "report/changes.h"
#include "report/facts.h"
#include "report/json_fields.h"
#include "report/plane.h"

void ts_place_json(struct ts_json_writer *json, const char *key, const struct ts_view *view, uint64_t index)
{
    uint64_t at[TS_MAX_RANK] = {0};
    if (index >= view->count || view->rank > TS_MAX_RANK) {
        ts_field_null(json, key);
        return;
    }
    ts_view_coordinates(view, index, at);
    ts_field_counts(json, key, at, view->rank);
}

/* min, max, mean, std and norm of one side. */
static void side_json(struct ts_json_writer *json, const char *key, const struct ts_side *side,
                      const struct ts_delta *counted)
{
    ts_json_key(json, key);
    ts_json_begin_object(json);
    ts_field_number(json, "min", side->min);
    ts_field_number(json, "max", side->max);
    ts_field_number(json, "mean", side->mean);
    ts_field_number(json, "std", side->std);
    ts_field_number(json, "norm", side->norm);
    if (counted) {
        ts_field_count(json, "nan", side->nan);
        ts_field_count(json, "inf", side->positive_inf + side->negative_inf);
        ts_field_count(json, "count", counted->count);
    }
    ts_json_end_object(json);
}

static void close_json(struct ts_json_writer *json, const struct ts_delta *delta)
{
    static const char *const names[TS_DELTA_TOLERANCES] = {"1e-3", "1e-4", "1e-5"};
    ts_json_key(json, "allclose");
    ts_json_begin_object(json);
    for (unsigned i = 0; i < TS_DELTA_TOLERANCES; i++)
        ts_field_bool(json, names[i], delta->allclose[i]);
    ts_json_end_object(json);
}

/* Of |d|. */
static void quantiles_json(struct ts_json_writer *json, const struct ts_delta *delta)
{
    static const char *const names[TS_DELTA_QUANTILES] = {"p50", "p90", "p99", "p99_9", "p100"};
    ts_json_key(json, "quantiles");
    if (!delta->profiles) { /* both are made in the second look, which not every pair gets */
        ts_json_null(json);
        return;
    }
    ts_json_begin_object(json);
    for (unsigned i = 0; i < TS_DELTA_QUANTILES; i++)
        ts_field_number(json, names[i], delta->quantiles[i]);
    ts_field_count(json, "of_elements", delta->looked_at);
    ts_json_end_object(json);
}

#define PROFILE_BINS 16

/* A shape, not a measurement: four digits say it. */
static double shortened(double value)
{
    double unit;
    if (value == 0 || !isfinite(value))
        return value;
    unit = pow(10, 3 - floor(log10(fabs(value))));
    return isfinite(unit) ? round(value * unit) / unit : value;
}

/* Relative error of equal stretches of an axis, and the index that has most of the squared error. */
static void profile_json(struct ts_json_writer *json, const struct ts_profile *profile, unsigned axis)
{
    const unsigned bins = profile->size < PROFILE_BINS ? (unsigned)profile->size : PROFILE_BINS;
    double all = 0;
    uint64_t most = 0;
    for (uint64_t k = 0; k < profile->size; k++) {
        all += profile->error[k];
        most = profile->error[k] > profile->error[most] ? k : most;
    }
    ts_json_begin_object(json);
    ts_field_count(json, "axis", axis);
    ts_field_count(json, "size", profile->size);
    ts_field_count(json, "most_at", most);
    ts_field_number(json, "share", all > 0 ? profile->error[most] / all : 0);
    ts_json_key(json, "rel_l2");
    ts_json_begin_array(json);
    for (unsigned i = 0; i < bins; i++) {
        double error = 0, reference = 0;
        for (uint64_t k = ts_cut(profile->size, bins, i); k < ts_cut(profile->size, bins, i + 1); k++) {
            error += profile->error[k];
            reference += profile->reference[k];
        }
        ts_json_number(json, error > 0 ? shortened(sqrt(error) / sqrt(reference)) : 0);
    }
    ts_json_end_array(json);
    ts_json_end_object(json);
}

/* Along which rows, heads or channels the error lies; axes are those of "shape". */
static void profiles_json(struct ts_json_writer *json, const struct ts_delta *delta)
{
    ts_json_key(json, "profiles");
    if (!delta->profiles) {
        ts_json_null(json);
        return;
    }
    ts_json_begin_array(json);
    for (unsigned axis = 0; axis < delta->rank; axis++)
        if (delta->profiles[axis].error && delta->profiles[axis].size > 1)
            profile_json(json, &delta->profiles[axis], axis);
    ts_json_end_array(json);
}

/* Logits and probabilities only: whether the same tokens would be chosen. */
static void ranking_json(struct ts_json_writer *json, const struct ts_ranking *ranking)
{
    if (!ranking->known)
        return;
    ts_json_key(json, "ranking");
    ts_json_begin_object(json);
    ts_field_number(json, "rows", ranking->rows);
    ts_field_number(json, "all_rows", ranking->all_rows);
    ts_field_number(json, "same_first", ranking->same_first);
    ts_field_number(json, "top10_overlap", ranking->top_overlap);
    ts_field_number(json, "worst_rank_of_first", ranking->worst_rank);
    ts_field_number(json, "mean_kl", ranking->divergence);
    ts_field_number(json, "max_kl", ranking->max_divergence);
    ts_json_end_object(json);
}

/* What bytes alone do not tell. */
static void unmeasured_json(struct ts_json_writer *json)
{
    static const char *const keys[] = {"nan_a",     "nan_b",   "inf_a",   "inf_b",       "nan_both",    "inf_both",
                                       "quantiles", "stats_a", "stats_b", "precision_a", "precision_b", "profiles"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ts_field_null(json, keys[i]);
}

static void measured_json(struct ts_json_writer *json, const struct ts_delta *delta, const struct ts_metrics_form *form)
{
    ts_field_count(json, "nan_a", delta->a.nan);
    ts_field_count(json, "nan_b", delta->b.nan);
    ts_field_count(json, "inf_a", delta->a.positive_inf + delta->a.negative_inf);
    ts_field_count(json, "inf_b", delta->b.positive_inf + delta->b.negative_inf);
    ts_field_count(json, "nan_both", delta->nan_both);
    ts_field_count(json, "inf_both", delta->inf_both);
    if (form->detail) {
        quantiles_json(json, delta);
        profiles_json(json, delta);
    }
    if (!form->unranked)
        ranking_json(json, &delta->ranking);
    side_json(json, "stats_a", &delta->a, form->counted ? delta : NULL);
    side_json(json, "stats_b", &delta->b, form->counted ? delta : NULL);
    ts_json_key(json, "precision_a");
    ts_json_int(json, delta->precision_a);
    ts_json_key(json, "precision_b");
    ts_json_int(json, delta->precision_b);
}

/* Of integers all digits, which a double may not have. */
static void element_json(struct ts_json_writer *json, const char *key, const struct ts_view *view, uint64_t at,
                         bool exact, double value)
{
    struct ts_error ignored;
    int64_t integer;
    if (!exact || ts_view_read_i64(view, at, 1, &integer, &ignored) != TS_OK) {
        ts_field_number(json, key, value);
        return;
    }
    ts_json_key(json, key);
    if (view->tensor->type == TS_U64)
        ts_json_uint(json, (uint64_t)integer);
    else
        ts_json_int(json, integer);
}

void ts_metrics_json(struct ts_json_writer *json, const struct ts_delta *measured, const struct ts_view *a,
                     const struct ts_view *b, const struct ts_metrics_form *form)
{
    const struct ts_delta shown = ts_shown_delta(measured), *delta = &shown;
    ts_field_count(json, "elements", delta->count);
    if (form->counted)
        ts_field_count(json, "compared", delta->compared);
    ts_field_bool(json, "identical", delta->identical);
    ts_field_bool(json, "exact", delta->exact);
    ts_field_number(json, "max_abs", delta->max_abs);
    ts_place_json(json, "worst", a, delta->worst);
    if (delta->worst < a->count) {
        const char *in_a = ts_pair_member(a, delta->worst), *in_b = ts_pair_member(b, delta->worst);
        element_json(json, "worst_a", a, delta->worst, delta->exact, delta->worst_a);
        element_json(json, "worst_b", b, delta->worst, delta->exact, delta->worst_b);
        if (in_a) /* of shards: which one's */
            ts_field_text(json, "worst_in_a", in_a);
        if (in_b)
            ts_field_text(json, "worst_in_b", in_b);
    }
    ts_field_number(json, "mean_abs", delta->mean_abs);
    ts_field_number(json, "mean", delta->mean);
    ts_field_number(json, "mse", delta->mse);
    ts_field_number(json, "rmse", delta->rmse);
    ts_field_number(json, "rel_l2", delta->rel_l2);
    ts_field_number(json, "max_rel", delta->max_rel);
    ts_field_number(json, "max_ulp", delta->max_ulp);
    ts_field_number(json, "cosine", delta->cosine);
    ts_field_number(json, "norm_ratio", delta->norm_ratio);
    ts_field_count(json, "unequal", delta->unequal);
    ts_field_number(json, "changed_fraction", ts_changed_fraction(delta));
    ts_field_number(json, "rel_change", delta->rel_l2);
    ts_field_count(json, "mismatched", delta->mismatched);
    ts_field_count(json, "masked", delta->masked);
    ts_field_count(json, "non_finite_mismatch", delta->non_finite_mismatch);
    if (delta->non_finite_mismatch)
        ts_place_json(json, "first_non_finite_mismatch", a, delta->first_non_finite_mismatch);
    close_json(json, delta);
    if (form->same_bytes)
        unmeasured_json(json);
    else
        measured_json(json, delta, form);
}
