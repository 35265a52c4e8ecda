/* Owns the list of tensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/facts.h"
#include "report/json_fields.h"
#include "serve/causes.h"
#include "serve/handlers.h"
#include "serve/opened.h"

static const char *const columns[] = {"id",     "name",    "name_b",  "layer",   "stage",     "verdict",
                                      "shape",  "dtype_a", "dtype_b", "max_abs", "rel_l2",    "roundings",
                                      "cosine", "count",   "how",     "recipe",  "ambiguous", "guess",
                                      "floor",  "why",     "problem", "remapped"};
/* of one side alone, behind the others */
static const char *const stat_columns[] = {"min", "max", "mean", "std", "nan", "inf", "zeros"};

static void number_or_null(struct ts_json_writer *json, bool known, double value)
{
    if (known)
        ts_json_number(json, value);
    else
        ts_json_null(json);
}

static void text_or_null(struct ts_json_writer *json, const char *text)
{
    if (text)
        ts_json_string(json, text);
    else
        ts_json_null(json);
}

static void shape_json(struct ts_json_writer *json, const uint64_t *shape, unsigned rank)
{
    ts_json_begin_array(json);
    for (unsigned i = 0; i < rank; i++)
        ts_json_uint(json, shape[i]);
    ts_json_end_array(json);
}

static void place_json(struct ts_json_writer *json, const struct ts_name *name)
{
    if (name->layer >= 0)
        ts_json_int(json, name->layer);
    else
        ts_json_null(json);
    text_or_null(json, name->kind && *name->kind ? name->kind : NULL);
}

double ts_noise_floor(const struct ts_delta *delta)
{
    /* the RMS of one rounding to m stored bits, relative: 0.2123 * 2^-m */
    return delta->exact ? 0 : ldexp(0.2123, -ts_pair_precision(delta));
}

/* A pair that was mapped by hand keeps its names, and shows what was measured under the mapping. */
static void pair_row(struct ts_json_writer *json, struct ts_opened *opened, size_t i)
{
    const struct ts_comparison *comparison = &opened->comparison;
    const struct ts_pair *found = &comparison->pairing.pairs[i], *pair;
    const struct ts_verdict *verdict;
    struct ts_delta shown;
    const struct ts_delta *delta = &shown;
    const struct ts_remap *remap;
    bool known;
    pthread_mutex_lock(&opened->lock);
    remap = opened->remaps[i];
    pair = remap ? &remap->pair : found;
    shown = ts_shown_delta(remap ? &remap->delta : &comparison->deltas[i]);
    verdict = remap ? &remap->judgement.verdicts[0] : &comparison->judgement.verdicts[i];
    known = !pair->problem;
    ts_json_begin_array(json);
    ts_json_uint(json, i);
    ts_json_string(json, found->name);
    text_or_null(json, found->name_b);
    place_json(json, &opened->pair_names.list[i]);
    ts_json_string(json, ts_judged_name(verdict->judged));
    shape_json(json, pair->a.shape, pair->a.rank);
    ts_json_string(json, ts_view_type_name(&pair->a));
    ts_json_string(json, ts_view_type_name(&pair->b));
    number_or_null(json, known, delta->max_abs);
    number_or_null(json, known, delta->rel_l2);
    number_or_null(json, known && !remap && ts_has_roundings(comparison, i), verdict->roundings);
    number_or_null(json, known, delta->cosine);
    ts_json_uint(json, pair->a.count);
    text_or_null(json, pair->how);
    ts_json_string(json, pair->recipe ? pair->recipe : "");
    ts_json_bool(json, pair->ambiguous);
    ts_json_bool(json, pair->guess);
    number_or_null(json, known, ts_noise_floor(delta));
    text_or_null(json, verdict->why);
    text_or_null(json, pair->problem);
    ts_json_bool(json, remap != NULL);
    pthread_mutex_unlock(&opened->lock);
    ts_json_end_array(json);
}

/* Of one side alone: the same columns, and statistics behind them. */
static void tensor_row(struct ts_json_writer *json, const struct ts_opened *opened, unsigned side, size_t i)
{
    const struct ts_tensor *tensor = opened->bundles[side]->tensors[i];
    const struct ts_stats *stats = &opened->stats[i];
    char id[32];
    snprintf(id, sizeof id, "%c%zu", side ? 'b' : 'a', i);
    ts_json_begin_array(json);
    ts_json_string(json, id);
    ts_json_string(json, tensor->name);
    ts_json_null(json);
    place_json(json, &opened->pair_names.list[i]);
    ts_json_null(json);
    shape_json(json, tensor->shape, tensor->rank);
    ts_json_string(json, ts_tensor_type_name(tensor));
    for (unsigned k = 0; k < 5; k++)
        ts_json_null(json);
    ts_json_uint(json, tensor->count);
    for (unsigned k = 0; k < 7; k++)
        ts_json_null(json);
    ts_json_bool(json, false);
    number_or_null(json, stats->finite > 0, stats->min);
    number_or_null(json, stats->finite > 0, stats->max);
    number_or_null(json, stats->finite > 0, stats->mean);
    number_or_null(json, stats->finite > 0, stats->std);
    ts_json_uint(json, stats->nan);
    ts_json_uint(json, stats->positive_inf + stats->negative_inf);
    ts_json_uint(json, stats->zeros);
    ts_json_end_array(json);
}

static void columns_json(struct ts_json_writer *json, bool compared)
{
    ts_json_key(json, "columns");
    ts_json_begin_array(json);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        ts_json_string(json, columns[i]);
    for (size_t i = 0; !compared && i < sizeof stat_columns / sizeof *stat_columns; i++)
        ts_json_string(json, stat_columns[i]);
    ts_json_end_array(json);
}

static void side_json(struct ts_json_writer *json, const struct ts_opened *opened, unsigned side)
{
    const struct ts_bundle *bundle = opened->bundles[side];
    ts_json_key(json, side ? "b" : "a");
    if (!bundle) {
        ts_json_null(json);
        return;
    }
    ts_json_begin_object(json);
    ts_field_text(json, "name", opened->names[side]);
    ts_field_text(json, "format", bundle->format);
    ts_field_count(json, "tensors", bundle->count);
    ts_field_count(json, "bytes", bundle->file_bytes);
    ts_field_text(json, "order", bundle->order);
    ts_json_end_object(json);
}

/* Ids are places in the bundle; the lists keep its order, so one walk finds them all. */
static void alone_json(struct ts_json_writer *json, const struct ts_opened *opened, unsigned side)
{
    const struct ts_pairing *pairing = &opened->comparison.pairing;
    const struct ts_tensor **list = side ? pairing->only_b : pairing->only_a;
    size_t count = !opened->compared ? 0 : side ? pairing->only_b_count : pairing->only_a_count, at = 0;
    ts_json_key(json, side ? "only_b" : "only_a");
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++) {
        const struct ts_bundle *bundle = opened->bundles[side];
        char id[32];
        size_t from = at;
        while (bundle->tensors[at] != list[i]) {
            at = at + 1 < bundle->count ? at + 1 : 0;
            if (at == from)
                break;
        }
        snprintf(id, sizeof id, "%c%zu", side ? 'b' : 'a', at);
        ts_json_begin_object(json);
        ts_field_text(json, "id", id);
        ts_field_text(json, "name", list[i]->name);
        ts_field_counts(json, "shape", list[i]->shape, list[i]->rank);
        ts_field_text(json, "dtype", ts_tensor_type_name(list[i]));
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
}

static void skips_json(struct ts_json_writer *json, const struct ts_opened *opened)
{
    ts_json_key(json, "skipped");
    ts_json_begin_array(json);
    for (unsigned side = 0; side < 2; side++)
        for (size_t i = 0; opened->bundles[side] && i < opened->bundles[side]->skip_count; i++) {
            const struct ts_skip *skip = &opened->bundles[side]->skips[i];
            ts_json_begin_object(json);
            ts_field_text(json, "path", skip->path);
            ts_field_text(json, "reason", skip->reason);
            ts_field_text(json, "side", side ? "b" : "a");
            ts_field_bool(json, "harmless", skip->harmless);
            ts_json_end_object(json);
        }
    ts_json_end_array(json);
}

static void findings_json(struct ts_json_writer *json, const struct ts_check *check)
{
    static const char *const severities[] = {"note", "warning", "fault"};
    ts_json_key(json, "findings");
    ts_json_begin_array(json);
    for (size_t i = 0; i < check->count; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "id", check->issues[i].id);
        ts_field_text(json, "severity", severities[check->issues[i].severity]);
        ts_field_text(json, "tensor", check->issues[i].tensor);
        ts_field_text(json, "text", check->issues[i].text);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
}

static void summary_json(struct ts_json_writer *json, const struct ts_opened *opened)
{
    const struct ts_comparison *comparison = &opened->comparison;
    ts_field_text(json, "verdict", opened->compared ? ts_outcome_name(comparison->outcome) : NULL);
    ts_field_text(json, "summary", opened->compared ? comparison->outcome_text : NULL);
    ts_json_key(json, "first");
    if (opened->compared && comparison->judgement.first != SIZE_MAX)
        ts_json_uint(json, comparison->judgement.first);
    else
        ts_json_null(json);
    ts_json_key(json, "causes");
    ts_causes_json(json, opened->diagnosed ? &opened->diagnosis : NULL);
    ts_field_texts(json, "doubts", comparison->doubts, comparison->doubt_count);
    ts_field_texts(json, "notes", comparison->judgement.notes, comparison->judgement.note_count);
    ts_field_bool(json, "weights", comparison->judgement.weights);
    ts_field_text(json, "order", opened->compared ? comparison->pairing.order : NULL);
    ts_json_key(json, "layer_offset");
    ts_json_int(json, comparison->pairing.layer_offset);
}

void ts_handle_tensors(struct ts_call *call)
{
    struct ts_opened *opened = call->opened;
    struct ts_json_writer *json = ts_call_json(call, 200);
    unsigned side = opened->bundles[0] ? 0 : 1;
    ts_json_begin_object(json);
    summary_json(json, opened);
    side_json(json, opened, 0);
    side_json(json, opened, 1);
    columns_json(json, opened->compared);
    ts_json_key(json, "rows");
    ts_json_begin_array(json);
    for (size_t i = 0; opened->compared && i < opened->comparison.pairing.count; i++)
        pair_row(json, opened, i);
    for (size_t i = 0; !opened->compared && i < opened->bundles[side]->count; i++)
        tensor_row(json, opened, side, i);
    ts_json_end_array(json);
    alone_json(json, opened, 0);
    alone_json(json, opened, 1);
    skips_json(json, opened);
    if (opened->stats)
        findings_json(json, &opened->check);
    ts_json_end_object(json);
    ts_json_finish(json);
}
