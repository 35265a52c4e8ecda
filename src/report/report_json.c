/* Owns the JSON report, schema tsleuth.report/1. Fields may be added; those that are there keep their meaning. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/facts.h"
#include "report/report.h"

static void text_json(struct ts_json_writer *json, const char *key, const char *value)
{
    ts_json_key(json, key);
    if (value)
        ts_json_string(json, value);
    else
        ts_json_null(json);
}

static void number_json(struct ts_json_writer *json, const char *key, double value)
{
    ts_json_key(json, key);
    ts_json_number(json, value);
}

static void count_json(struct ts_json_writer *json, const char *key, uint64_t value)
{
    ts_json_key(json, key);
    ts_json_uint(json, value);
}

static void bool_json(struct ts_json_writer *json, const char *key, bool value)
{
    ts_json_key(json, key);
    ts_json_bool(json, value);
}

static void shape_json(struct ts_json_writer *json, const char *key, const uint64_t *shape, unsigned rank)
{
    ts_json_key(json, key);
    ts_json_begin_array(json);
    for (unsigned i = 0; i < rank; i++)
        ts_json_uint(json, shape[i]);
    ts_json_end_array(json);
}

static void place_json(struct ts_json_writer *json, const char *key, const struct ts_view *view, uint64_t index)
{
    uint64_t at[TS_MAX_RANK] = {0};
    if (index >= view->count || view->rank > TS_MAX_RANK) {
        text_json(json, key, NULL);
        return;
    }
    ts_view_coordinates(view, index, at);
    shape_json(json, key, at, view->rank);
}

static void names_json(struct ts_json_writer *json, const char *key, const char *const *texts, size_t count)
{
    ts_json_key(json, key);
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++)
        ts_json_string(json, texts[i]);
    ts_json_end_array(json);
}

static void input_json(struct ts_json_writer *json, const struct ts_comparison *comparison, bool candidate)
{
    const struct ts_bundle *bundle = candidate ? comparison->b : comparison->a;
    int held = ts_held_precision(comparison, candidate);
    struct ts_buffer text;
    ts_buffer_init(&text, 65536);
    ts_json_key(json, candidate ? "b" : "a");
    ts_json_begin_object(json);
    text_json(json, "path", bundle->path);
    text_json(json, "format", bundle->format);
    count_json(json, "tensors", bundle->count);
    count_json(json, "bytes", bundle->file_bytes);
    ts_put_types(&text, bundle);
    text_json(json, "types", text.data ? text.data : "");
    ts_buffer_clear(&text);
    if (held >= 0)
        ts_put_precision(&text, held);
    text_json(json, "holds", held >= 0 ? text.data : NULL);
    text_json(json, "order", bundle->order);
    ts_json_end_object(json);
    ts_buffer_release(&text);
}

static void first_json(struct ts_json_writer *json, const struct ts_comparison *comparison)
{
    size_t first = comparison->judgement.first, inputs[TS_MOST_INPUTS], count;
    ts_json_key(json, "first_divergence");
    if (first >= comparison->pairing.count) {
        ts_json_null(json);
        return;
    }
    count = ts_operation_inputs(comparison, first, inputs);
    ts_json_begin_object(json);
    text_json(json, "name", comparison->pairing.pairs[first].name);
    text_json(json, "name_b", comparison->pairing.pairs[first].name_b);
    count_json(json, "index", first);
    text_json(json, "why", ts_reason(comparison, first));
    text_json(json, "operation", comparison->judgement.verdicts[first].operation);
    ts_json_key(json, "inputs");
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++)
        ts_json_string(json, comparison->pairing.pairs[inputs[i]].name);
    ts_json_end_array(json);
    ts_json_end_object(json);
}

static void causes_json(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis)
{
    ts_json_key(json, "causes");
    ts_json_begin_array(json);
    for (size_t i = 0; diagnosis && i < diagnosis->count; i++) {
        ts_json_begin_object(json);
        text_json(json, "id", diagnosis->causes[i].id);
        number_json(json, "confidence", diagnosis->causes[i].confidence);
        text_json(json, "summary", diagnosis->causes[i].summary);
        text_json(json, "check", diagnosis->causes[i].check);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    if (diagnosis && !diagnosis->count && diagnosis->strongest)
        text_json(json, "strongest_structure", diagnosis->strongest);
}

/* min, max, mean and std of one side. */
static void side_json(struct ts_json_writer *json, const char *key, const struct ts_side *side)
{
    ts_json_key(json, key);
    ts_json_begin_object(json);
    number_json(json, "min", side->min);
    number_json(json, "max", side->max);
    number_json(json, "mean", side->mean);
    number_json(json, "std", side->std);
    number_json(json, "norm", side->norm);
    ts_json_end_object(json);
}

static void close_json(struct ts_json_writer *json, const struct ts_delta *delta)
{
    static const char *const names[TS_DELTA_TOLERANCES] = {"1e-3", "1e-4", "1e-5"};
    ts_json_key(json, "allclose");
    ts_json_begin_object(json);
    for (unsigned i = 0; i < TS_DELTA_TOLERANCES; i++)
        bool_json(json, names[i], delta->allclose[i]);
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
        number_json(json, names[i], delta->quantiles[i]);
    ts_json_end_object(json);
}

/* Logits and probabilities only: whether the same tokens would be chosen. */
static void ranking_json(struct ts_json_writer *json, const struct ts_ranking *ranking)
{
    if (!ranking->known)
        return;
    ts_json_key(json, "ranking");
    ts_json_begin_object(json);
    number_json(json, "rows", ranking->rows);
    number_json(json, "same_first", ranking->same_first);
    number_json(json, "top10_overlap", ranking->top_overlap);
    number_json(json, "worst_rank_of_first", ranking->worst_rank);
    number_json(json, "mean_kl", ranking->divergence);
    number_json(json, "max_kl", ranking->max_divergence);
    ts_json_end_object(json);
}

static void delta_json(struct ts_json_writer *json, const struct ts_pair *pair, const struct ts_delta *delta,
                       const struct ts_report_options *options)
{
    count_json(json, "elements", delta->count);
    bool_json(json, "identical", delta->identical);
    bool_json(json, "exact", delta->exact);
    number_json(json, "max_abs", delta->max_abs);
    place_json(json, "worst", &pair->a, delta->worst);
    if (delta->worst < pair->a.count) {
        number_json(json, "worst_a", delta->worst_a);
        number_json(json, "worst_b", delta->worst_b);
    }
    number_json(json, "mean_abs", delta->mean_abs);
    number_json(json, "mean", delta->mean);
    number_json(json, "mse", delta->mse);
    number_json(json, "rel_l2", delta->rel_l2);
    number_json(json, "max_rel", delta->max_rel);
    number_json(json, "max_ulp", delta->max_ulp);
    number_json(json, "cosine", delta->cosine);
    number_json(json, "norm_ratio", delta->norm_ratio);
    count_json(json, "unequal", delta->unequal);
    count_json(json, "mismatched", delta->mismatched);
    count_json(json, "nan_a", delta->a.nan);
    count_json(json, "nan_b", delta->b.nan);
    count_json(json, "inf_a", delta->a.positive_inf + delta->a.negative_inf);
    count_json(json, "inf_b", delta->b.positive_inf + delta->b.negative_inf);
    count_json(json, "nan_both", delta->nan_both);
    count_json(json, "inf_both", delta->inf_both);
    count_json(json, "masked", delta->masked);
    count_json(json, "non_finite_mismatch", delta->non_finite_mismatch);
    if (delta->non_finite_mismatch)
        place_json(json, "first_non_finite_mismatch", &pair->a, delta->first_non_finite_mismatch);
    close_json(json, delta);
    quantiles_json(json, delta);
    ranking_json(json, &delta->ranking);
    side_json(json, "stats_a", &delta->a);
    side_json(json, "stats_b", &delta->b);
    ts_json_key(json, "precision_a");
    ts_json_int(json, delta->precision_a);
    ts_json_key(json, "precision_b");
    ts_json_int(json, delta->precision_b);
    if (options->grades)
        text_json(json, "grade", ts_comparison_grade(delta));
}

/* A pair that could not be compared has the same fields, null where nothing was measured: readers need no exception. */
static void nothing_json(struct ts_json_writer *json)
{
    static const char *const keys[] = {"max_abs",    "worst", "mean_abs", "mse",   "rel_l2", "cosine",
                                       "norm_ratio", "nan_a", "nan_b",    "inf_a", "inf_b",  "mismatched"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        text_json(json, keys[i], NULL);
}

static void pair_json(struct ts_json_writer *json, const struct ts_comparison *comparison, size_t i,
                      const struct ts_report_options *options)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
    ts_json_begin_object(json);
    text_json(json, "name", pair->name);
    text_json(json, "name_b", pair->name_b);
    text_json(json, "verdict", ts_judged_name(verdict->judged));
    text_json(json, "why", verdict->why);
    if (verdict->judged == TS_JUDGED_DIFFERS)
        bool_json(json, "made_here", verdict->made_here);
    text_json(json, "operation", verdict->operation);
    text_json(json, "how", pair->how);
    text_json(json, "recipe", pair->recipe ? pair->recipe : "");
    bool_json(json, "ambiguous", pair->ambiguous);
    bool_json(json, "guess", pair->guess);
    shape_json(json, "shape", pair->a.shape, pair->a.rank);
    if (pair->problem)
        shape_json(json, "shape_b", pair->b.shape, pair->b.rank);
    text_json(json, "problem", pair->problem);
    bool_json(json, "sampled", ts_is_sampled(pair));
    text_json(json, "dtype_a", ts_view_type_name(&pair->a));
    text_json(json, "dtype_b", ts_view_type_name(&pair->b));
    ts_json_key(json, "roundings");
    if (pair->problem)
        ts_json_null(json);
    else
        ts_json_number(json, verdict->roundings);
    ts_json_key(json, "noise_ratio");
    if (pair->problem || isnan(verdict->noise_ratio)) /* NaN says it was not replayed */
        ts_json_null(json);
    else
        ts_json_number(json, verdict->noise_ratio);
    if (pair->problem)
        nothing_json(json);
    else
        delta_json(json, pair, &comparison->deltas[i], options);
    ts_json_end_object(json);
}

static void unmatched_json(struct ts_json_writer *json, const char *key, const struct ts_tensor *const *tensors,
                           size_t count)
{
    ts_json_key(json, key);
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++) {
        ts_json_begin_object(json);
        text_json(json, "name", tensors[i]->name);
        text_json(json, "dtype", ts_tensor_type_name(tensors[i]));
        shape_json(json, "shape", tensors[i]->shape, tensors[i]->rank);
        text_json(json, "file", tensors[i]->file);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
}

static void skips_json(struct ts_json_writer *json, const char *side, const struct ts_bundle *bundle)
{
    for (size_t i = 0; i < bundle->skip_count; i++) {
        ts_json_begin_object(json);
        text_json(json, "side", side);
        text_json(json, "path", bundle->skips[i].path);
        text_json(json, "reason", bundle->skips[i].reason);
        bool_json(json, "harmless", bundle->skips[i].harmless);
        ts_json_end_object(json);
    }
}

static void pairing_json(struct ts_json_writer *json, const struct ts_comparison *comparison)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    ts_json_key(json, "pairing");
    ts_json_begin_object(json);
    count_json(json, "pairs", pairing->count);
    text_json(json, "order", pairing->order);
    ts_json_key(json, "layer_offset");
    ts_json_int(json, pairing->layer_offset);
    names_json(json, "notes", pairing->notes, pairing->note_count);
    ts_json_end_object(json);
}

static void tolerance_json(struct ts_json_writer *json, const struct ts_tolerance *tolerance)
{
    ts_json_key(json, "tolerance");
    if (!tolerance) {
        ts_json_null(json);
        return;
    }
    ts_json_begin_object(json);
    number_json(json, "rtol", tolerance->rtol);
    number_json(json, "atol", tolerance->atol);
    ts_json_end_object(json);
}

static void counts_json(struct ts_json_writer *json, const struct ts_judgement *judgement)
{
    ts_json_key(json, "counts");
    ts_json_begin_object(json);
    for (int i = TS_JUDGED_OK; i <= TS_JUDGED_UNKNOWN; i++)
        count_json(json, ts_judged_name((enum ts_judged)i), judgement->counts[i]);
    ts_json_end_object(json);
}

static void aside_json(struct ts_json_writer *json, const struct ts_judgement *judgement)
{
    count_json(json, "tokens", judgement->tokens);
    ts_json_key(json, "tokens_set_aside");
    ts_json_begin_array(json);
    for (size_t i = 0; i < judgement->aside_count; i++)
        ts_json_uint(json, judgement->aside[i]);
    ts_json_end_array(json);
}

void ts_report_json(const struct ts_comparison *comparison, const struct ts_report_options *options,
                    struct ts_json_writer *json)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    ts_json_begin_object(json);
    text_json(json, "schema", "tsleuth.report/1");
    text_json(json, "verdict", ts_outcome_name(comparison->outcome));
    text_json(json, "summary", comparison->outcome_text);
    bool_json(json, "weights", comparison->judgement.weights);
    input_json(json, comparison, false);
    input_json(json, comparison, true);
    pairing_json(json, comparison);
    counts_json(json, &comparison->judgement);
    tolerance_json(json, options->tolerance);
    first_json(json, comparison);
    causes_json(json, options->diagnosis);
    ts_json_key(json, "tensors");
    ts_json_begin_array(json);
    for (size_t i = 0; i < pairing->count; i++)
        pair_json(json, comparison, i, options);
    ts_json_end_array(json);
    unmatched_json(json, "unmatched_a", pairing->only_a, pairing->only_a_count);
    unmatched_json(json, "unmatched_b", pairing->only_b, pairing->only_b_count);
    ts_json_key(json, "skipped");
    ts_json_begin_array(json);
    skips_json(json, "a", comparison->a);
    skips_json(json, "b", comparison->b);
    ts_json_end_array(json);
    aside_json(json, &comparison->judgement);
    names_json(json, "notes", comparison->judgement.notes, comparison->judgement.note_count);
    names_json(json, "doubts", comparison->doubts, comparison->doubt_count);
    ts_json_end_object(json);
}
