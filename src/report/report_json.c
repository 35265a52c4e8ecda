/* Owns the JSON report, schema tsleuth.report/1. Fields may be added; those that are there keep their meaning. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "compare/exact.h"
#include "report/changes.h"
#include "report/facts.h"
#include "report/json_fields.h"
#include "report/metrics_json.h"
#include "report/report.h"

static void input_json(struct ts_json_writer *json, const struct ts_comparison *comparison,
                       const struct ts_report_cost *costs, bool candidate)
{
    const struct ts_bundle *bundle = candidate ? comparison->b : comparison->a;
    int held = ts_held_precision(comparison, candidate);
    struct ts_buffer text;
    ts_buffer_init(&text, 65536);
    ts_json_key(json, candidate ? "b" : "a");
    ts_json_begin_object(json);
    ts_field_text(json, "path", bundle->path);
    ts_field_text(json, "format", bundle->format);
    ts_field_count(json, "tensors", bundle->count);
    ts_field_count(json, "bytes", bundle->file_bytes);
    ts_put_types(&text, bundle);
    ts_field_text(json, "types", text.data ? text.data : "");
    ts_buffer_clear(&text);
    if (held >= 0)
        ts_put_precision(&text, held);
    ts_field_text(json, "holds", held >= 0 ? text.data : NULL);
    ts_field_text(json, "order", bundle->order);
    if (costs && costs[candidate].seconds > 0)
        ts_field_number(json, "seconds", costs[candidate].seconds);
    if (costs && costs[candidate].peak_bytes)
        ts_field_count(json, "peak_bytes", costs[candidate].peak_bytes);
    ts_json_end_object(json);
    ts_buffer_release(&text);
}

static void first_json(struct ts_json_writer *json, const struct ts_comparison *comparison)
{
    size_t first = comparison->judgement.first, inputs[TS_MOST_INPUTS], count, from;
    ts_json_key(json, "first_divergence");
    if (first >= comparison->pairing.count) {
        ts_json_null(json);
        return;
    }
    count = ts_operation_inputs(comparison, first, inputs);
    ts_json_begin_object(json);
    ts_field_text(json, "name", comparison->pairing.pairs[first].name);
    ts_field_text(json, "name_b", comparison->pairing.pairs[first].name_b);
    ts_field_count(json, "index", first);
    ts_field_text(json, "why", ts_reason(comparison, first));
    ts_field_text(json, "operation", comparison->judgement.verdicts[first].operation);
    ts_json_key(json, "inputs");
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++)
        ts_json_string(json, comparison->pairing.pairs[inputs[i]].name);
    ts_json_end_array(json);
    count = ts_uncaptured(comparison, first, &from);
    ts_json_key(json, "not_in_b"); /* points of the reference between the pair before it and this one */
    ts_json_begin_array(json);
    for (size_t i = from; i < from + count; i++)
        ts_json_string(json, comparison->pairing.only_a[i]->name);
    ts_json_end_array(json);
    ts_json_end_object(json);
}

/* What the words of a tensor mean: nobody should have to guess what an error is relative to. */
static void definitions_json(struct ts_json_writer *json)
{
    static const char *const words[][2] = {
        {"difference", "candidate - reference, of elements that are finite on both sides and not masked on both"},
        {"rel_l2", "norm of the difference / norm of the reference"},
        {"max_rel", "largest |difference| / |reference|, of elements where the reference is not 0"},
        {"max_ulp",
         "largest |difference| / distance of neighbours of the coarser type at the larger of the two numbers"},
        {"norm_ratio", "norm of the candidate / norm of the reference"},
        {"roundings", "(rel_l2 / 0.2123 / 2^-m)^2, m the mantissa bits of the coarser precision"},
        {"mismatched", "elements with |difference| > atol + rtol * |reference|, and those that are NaN or "
                       "infinite on one side and something else on the other"},
        {"allclose", "no |difference| > t + t * |reference|; a NaN on both sides is equal"},
        {"quantiles", "of |difference|; p50 is the median, of_elements how many were looked at"},
        {"profiles",
         "rel_l2 along each axis of shape, in up to 16 stretches; most_at has this share of the squared error"}};
    ts_json_key(json, "definitions");
    ts_json_begin_object(json);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ts_field_text(json, words[i][0], words[i][1]);
    ts_json_end_object(json);
}

/* Of B - A: null when it has none, and why. */
static void rank_json(struct ts_json_writer *json, const struct ts_change_rank *rank)
{
    ts_json_key(json, "change_rank");
    ts_json_begin_object(json);
    if (!rank->known) {
        ts_field_null(json, "rank");
        ts_field_text(json, "reason", rank->reason);
        ts_json_end_object(json);
        return;
    }
    ts_field_count(json, "rank", rank->rank);
    ts_field_bool(json, "at_least", rank->at_least);
    ts_field_counts(json, "matrix", (const uint64_t[]){rank->rows, rank->columns}, 2);
    if (rank->value_count) {
        ts_field_count(json, "probed", rank->probed);
        ts_field_number(json, "floor", rank->floor);
        ts_field_number(json, "stable_rank", rank->stable);
        if (isnan(rank->effective))
            ts_field_null(json, "effective_rank");
        else
            ts_field_number(json, "effective_rank", rank->effective);
        ts_json_key(json, "singular_values");
        ts_json_begin_array(json);
        for (unsigned i = 0; i < rank->value_count; i++)
            ts_json_number(json, rank->values[i]);
        ts_json_end_array(json);
    }
    ts_json_end_object(json);
}

static void delta_json(struct ts_json_writer *json, const struct ts_comparison *comparison, size_t i,
                       const struct ts_report_options *options)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    const struct ts_delta *delta = &comparison->deltas[i];
    ts_metrics_json(json, delta, &pair->a, &pair->b,
                    &(struct ts_metrics_form){.same_bytes = ts_comparison_same_bytes(comparison, i),
                                              .detail = true,
                                              .unranked = !ts_has_ranking(comparison, i)});
    if (comparison->ranks)
        rank_json(json, &comparison->ranks[i]);
    if (options->grades)
        ts_field_text(json, "grade", ts_comparison_grade(delta));
}

static void place_json(struct ts_json_writer *json, const char *key, uint64_t place)
{
    if (place != TS_EXACT_NOWHERE) {
        ts_field_count(json, key, place);
    } else {
        ts_json_key(json, key);
        ts_json_null(json);
    }
}

/* Bit by bit: which byte of its data, and of each file, is the first that differs. */
static void bytes_json(struct ts_json_writer *json, const struct ts_comparison *comparison, size_t i)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    uint64_t first = comparison->first_bytes[i], in_a, in_b;
    ts_json_key(json, "same_bytes");
    if (first == TS_EXACT_UNKNOWN)
        ts_json_null(json);
    else
        ts_json_bool(json, first == TS_EXACT_EQUAL);
    ts_json_key(json, "first_byte");
    if (first >= TS_EXACT_UNKNOWN) {
        ts_json_null(json);
        return;
    }
    ts_exact_places(pair, first, &in_a, &in_b);
    ts_json_begin_object(json);
    ts_field_count(json, "of_data", first);
    place_json(json, "of_file_a", in_a);
    place_json(json, "of_file_b", in_b);
    ts_json_end_object(json);
}

/* A pair that could not be compared has the same fields, null where nothing was measured: readers need no exception. */
static void nothing_json(struct ts_json_writer *json)
{
    static const char *const keys[] = {"max_abs", "worst",      "mean_abs",         "mse",        "rmse",  "rel_l2",
                                       "cosine",  "norm_ratio", "changed_fraction", "rel_change", "nan_a", "nan_b",
                                       "inf_a",   "inf_b",      "mismatched"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ts_field_null(json, keys[i]);
}

static void pair_json(struct ts_json_writer *json, const struct ts_comparison *comparison, size_t i,
                      const struct ts_report_options *options)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
    ts_json_begin_object(json);
    ts_field_text(json, "name", pair->name);
    ts_field_text(json, "name_b", pair->name_b);
    ts_field_text(json, "verdict", ts_judged_name(verdict->judged));
    ts_field_text(json, "why", verdict->why);
    if (verdict->judged == TS_JUDGED_DIFFERS)
        ts_field_bool(json, "made_here", verdict->made_here);
    if (verdict->three_ways) {
        ts_field_number(json, "l2_over_own", verdict->over_own[0]);
        ts_field_number(json, "max_over_own", verdict->over_own[1]);
    }
    ts_field_text(json, "operation", verdict->operation);
    ts_field_text(json, "how", pair->how);
    ts_field_text(json, "recipe", pair->recipe ? pair->recipe : "");
    ts_field_bool(json, "ambiguous", pair->ambiguous);
    ts_field_bool(json, "guess", pair->guess);
    ts_field_bool(json, "by_size", pair->by_size);
    ts_field_bool(json, "by_order", pair->by_order);
    ts_field_counts(json, "shape", pair->a.shape, pair->a.rank);
    if (pair->problem)
        ts_field_counts(json, "shape_b", pair->b.shape, pair->b.rank);
    ts_field_text(json, "problem", pair->problem);
    ts_field_bool(json, "sampled", ts_is_sampled(pair));
    ts_field_text(json, "dtype_a", ts_view_type_name(&pair->a));
    ts_field_text(json, "dtype_b", ts_view_type_name(&pair->b));
    ts_json_key(json, "roundings");
    if (pair->problem)
        ts_json_null(json);
    else
        ts_json_number(json, isnan(ts_shown_delta(&comparison->deltas[i]).rel_l2) ? (double)NAN : verdict->roundings);
    ts_json_key(json, "noise_ratio");
    if (pair->problem || isnan(verdict->noise_ratio)) /* NaN says it was not replayed */
        ts_json_null(json);
    else
        ts_json_number(json, verdict->noise_ratio);
    if (pair->problem)
        nothing_json(json);
    else
        delta_json(json, comparison, i, options);
    if (comparison->first_bytes)
        bytes_json(json, comparison, i);
    ts_json_end_object(json);
}

static void unmatched_json(struct ts_json_writer *json, const char *key, const struct ts_tensor *const *tensors,
                           size_t count)
{
    ts_json_key(json, key);
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "name", tensors[i]->name);
        ts_field_text(json, "dtype", ts_tensor_type_name(tensors[i]));
        ts_field_counts(json, "shape", tensors[i]->shape, tensors[i]->rank);
        ts_field_text(json, "file", tensors[i]->file);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
}

static void skips_json(struct ts_json_writer *json, const char *side, const struct ts_bundle *bundle)
{
    for (size_t i = 0; i < bundle->skip_count; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "side", side);
        ts_field_text(json, "path", bundle->skips[i].path);
        ts_field_text(json, "reason", bundle->skips[i].reason);
        ts_field_bool(json, "harmless", bundle->skips[i].harmless);
        ts_json_end_object(json);
    }
}

static void pairing_json(struct ts_json_writer *json, const struct ts_comparison *comparison)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    ts_json_key(json, "pairing");
    ts_json_begin_object(json);
    ts_field_count(json, "pairs", pairing->count);
    ts_field_count(json, "filtered", comparison->filtered);
    ts_field_text(json, "order", pairing->order);
    ts_json_key(json, "layer_offset");
    ts_json_int(json, pairing->layer_offset);
    ts_field_texts(json, "notes", pairing->notes, pairing->note_count);
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
    ts_field_number(json, "rtol", tolerance->rtol);
    ts_field_number(json, "atol", tolerance->atol);
    ts_json_end_object(json);
}

/* Two checkpoints: what changed and where. */
static void changes_json(struct ts_json_writer *json, const struct ts_comparison *comparison)
{
    struct ts_buffer text;
    size_t unchanged = 0;
    if (!comparison->judgement.weights)
        return;
    for (size_t i = 0; i < comparison->pairing.count; i++)
        unchanged += ts_is_equal(comparison, i);
    ts_buffer_init(&text, (size_t)16 << 20);
    ts_json_key(json, "changes");
    ts_json_begin_object(json);
    ts_field_count(json, "tensors", comparison->pairing.count);
    ts_field_count(json, "changed", ts_changed_count(comparison));
    ts_field_count(json, "unchanged", unchanged);
    ts_put_changes(&text, comparison);
    ts_field_text(json, "summary", text.data);
    ts_buffer_clear(&text);
    ts_put_ranks(&text, comparison);
    ts_field_text(json, "ranks", text.size ? text.data : NULL);
    ts_json_end_object(json);
    ts_buffer_release(&text);
}

static void counts_json(struct ts_json_writer *json, const struct ts_judgement *judgement)
{
    ts_json_key(json, "counts");
    ts_json_begin_object(json);
    for (int i = TS_JUDGED_OK; i <= TS_JUDGED_UNKNOWN; i++)
        ts_field_count(json, ts_judged_name((enum ts_judged)i), judgement->counts[i]);
    ts_json_end_object(json);
}

static void aside_json(struct ts_json_writer *json, const struct ts_judgement *judgement)
{
    ts_field_count(json, "tokens", judgement->tokens);
    ts_json_key(json, "tokens_set_aside");
    ts_json_begin_array(json);
    for (size_t i = 0; i < judgement->aside_count; i++)
        ts_json_uint(json, judgement->aside[i]);
    ts_json_end_array(json);
    ts_json_key(json, "tokens_set_aside_by_guess");
    ts_json_begin_array(json);
    for (size_t i = 0; i < judgement->aside_count && judgement->guessed; i++)
        if (judgement->guessed[i])
            ts_json_uint(json, judgement->aside[i]);
    ts_json_end_array(json);
}

void ts_report_json(const struct ts_comparison *comparison, const struct ts_report_options *options,
                    struct ts_json_writer *json)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    ts_json_begin_object(json);
    ts_field_text(json, "schema", "tsleuth.report/1");
    ts_field_text(json, "verdict", ts_outcome_name(comparison->outcome));
    ts_field_text(json, "summary", comparison->outcome_text);
    ts_field_bool(json, "weights", comparison->judgement.weights);
    input_json(json, comparison, options->costs, false);
    input_json(json, comparison, options->costs, true);
    pairing_json(json, comparison);
    counts_json(json, &comparison->judgement);
    changes_json(json, comparison);
    tolerance_json(json, options->tolerance);
    definitions_json(json);
    first_json(json, comparison);
    ts_field_causes(json, options->diagnosis);
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
    unmatched_json(json, "idle_a", pairing->idle_a, pairing->idle_a_count);
    unmatched_json(json, "idle_b", pairing->idle_b, pairing->idle_b_count);
    aside_json(json, &comparison->judgement);
    ts_field_texts(json, "notes", comparison->judgement.notes, comparison->judgement.note_count);
    ts_field_texts(json, "doubts", comparison->doubts, comparison->doubt_count);
    ts_json_end_object(json);
}
