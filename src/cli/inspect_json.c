/* Owns the JSON form of `tsleuth inspect`: schema tsleuth.inspect/1. */
#include <string.h>

#include "cli/inspect.h"
#include "report/json_fields.h"

static void index_json(struct ts_json_writer *json, const char *key, const struct ts_tensor *tensor, uint64_t index)
{
    uint64_t at[TS_MAX_RANK];
    if (index == TS_NOWHERE) {
        ts_field_null(json, key);
        return;
    }
    ts_flat_to_coordinates(tensor, index, at);
    ts_field_counts(json, key, at, tensor->rank);
}

/* 64-bit integers beyond what a double holds are given exactly. */
static void extreme_json(struct ts_json_writer *json, const char *key, const struct ts_tensor *tensor, int64_t exact,
                         double value)
{
    ts_json_key(json, key);
    if (tensor->type == TS_U64)
        ts_json_uint(json, (uint64_t)exact);
    else if (ts_type_is_integer(tensor->type))
        ts_json_int(json, exact);
    else
        ts_json_number(json, value);
}

static void stats_json(struct ts_json_writer *json, const struct ts_tensor *tensor, const struct ts_stats *stats)
{
    uint64_t counts[HISTOGRAM_BINS], sampled;
    struct ts_error ignored;
    ts_json_key(json, "stats");
    ts_json_begin_object(json);
    if (stats->finite) {
        extreme_json(json, "min", tensor, stats->exact_min, stats->min);
        extreme_json(json, "max", tensor, stats->exact_max, stats->max);
        ts_field_number(json, "mean", stats->mean);
        ts_field_number(json, "std", stats->std);
        ts_field_number(json, "norm", stats->norm);
        index_json(json, "at_min", tensor, stats->at_min);
        index_json(json, "at_max", tensor, stats->at_max);
    }
    ts_field_count(json, "zeros", stats->zeros);
    ts_field_count(json, "nan", stats->nan);
    ts_field_count(json, "positive_inf", stats->positive_inf);
    ts_field_count(json, "negative_inf", stats->negative_inf);
    index_json(json, "first_nan", tensor, stats->first_nan);
    index_json(json, "first_inf", tensor, stats->first_inf);
    if (stats->finite > 1 && stats->max > stats->min &&
        ts_stats_histogram(tensor, stats, HISTOGRAM_BINS, counts, &sampled, &ignored) == TS_OK) {
        ts_json_key(json, "histogram");
        ts_json_begin_object(json);
        ts_field_count(json, "sampled", sampled);
        ts_field_counts(json, "counts", counts, HISTOGRAM_BINS);
        ts_json_end_object(json);
    }
    ts_json_end_object(json);
}

static void tensor_json(struct ts_json_writer *json, const struct ts_tensor *tensor, const struct ts_stats *stats)
{
    ts_json_begin_object(json);
    ts_field_text(json, "name", tensor->name);
    ts_field_text(json, "file", tensor->file);
    ts_field_text(json, "dtype", ts_tensor_type_name(tensor));
    ts_field_counts(json, "shape", tensor->shape, tensor->rank);
    ts_field_count(json, "elements", tensor->count);
    ts_field_count(json, "bytes", tensor->bytes);
    if (tensor->type != TS_CODED)
        ts_field_count(json, "offset", tensor->span_offset);
    if (tensor->sampled)
        ts_field_bool(json, "sampled", true);
    if (tensor->attributes) {
        ts_json_key(json, "attributes");
        ts_json_begin_object(json);
        for (const struct ts_attribute *a = tensor->attributes; a; a = a->next)
            ts_field_text(json, a->key, a->value);
        ts_json_end_object(json);
    }
    if (stats)
        stats_json(json, tensor, stats);
    ts_json_end_object(json);
}

static void lists_json(struct ts_json_writer *json, const struct ts_bundle *bundle)
{
    ts_json_key(json, "metadata");
    ts_json_begin_array(json);
    for (size_t i = 0; i < bundle->meta_count; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "file", bundle->metas[i].file);
        ts_field_text(json, "key", bundle->metas[i].key);
        ts_field_text(json, "value", bundle->metas[i].value);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "skipped");
    ts_json_begin_array(json);
    for (size_t i = 0; i < bundle->skip_count; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "path", bundle->skips[i].path);
        ts_field_text(json, "reason", bundle->skips[i].reason);
        ts_field_bool(json, "harmless", bundle->skips[i].harmless);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "findings");
    ts_json_begin_array(json);
    for (size_t i = 0; i < bundle->finding_count; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "tensor", bundle->findings[i].tensor);
        ts_field_text(json, "text", bundle->findings[i].text);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
}

static void check_json(struct ts_json_writer *json, const struct ts_check *check)
{
    static const char *const names[] = {"note", "warning", "fault"};
    ts_json_key(json, "check");
    ts_json_begin_object(json);
    ts_field_count(json, "faults", check->faults);
    ts_field_count(json, "warnings", check->warnings);
    ts_json_key(json, "issues");
    ts_json_begin_array(json);
    for (size_t i = 0; i < check->count; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "id", check->issues[i].id);
        ts_field_text(json, "severity", names[check->issues[i].severity]);
        ts_field_text(json, "tensor", check->issues[i].tensor);
        ts_field_text(json, "text", check->issues[i].text);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_end_object(json);
}

bool inspect_json(const struct inspection *inspection, const char *path)
{
    const struct ts_bundle *bundle = inspection->bundle;
    struct json_file file;
    struct ts_json_writer *json = &file.writer;
    if (!json_file_open(&file, path))
        return false;
    ts_json_begin_object(json);
    ts_field_text(json, "schema", "tsleuth.inspect/1");
    ts_field_text(json, "path", bundle->path);
    ts_field_text(json, "format", bundle->format);
    ts_field_text(json, "order", bundle->order);
    ts_field_count(json, "file_bytes", bundle->file_bytes);
    config_json(json, bundle);
    totals_json(json, &inspection->totals);
    lists_json(json, bundle);
    if (inspection->check)
        check_json(json, inspection->check);
    ts_json_key(json, "tensors");
    ts_json_begin_array(json);
    for (size_t i = 0; i < inspection->count; i++)
        tensor_json(json, inspection->tensors[i], inspection->stats ? &inspection->stats[i] : NULL);
    ts_json_end_array(json);
    ts_json_end_object(json);
    return json_file_close(&file);
}
