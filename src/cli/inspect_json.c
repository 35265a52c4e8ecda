/* Owns the JSON form of `tsleuth inspect`: schema tsleuth.inspect/1. */
#include <string.h>

#include "cli/inspect.h"

static void index_json(struct ts_json_writer *json, const char *key, const struct ts_tensor *tensor, uint64_t index)
{
    uint64_t at[TS_MAX_RANK];
    ts_json_key(json, key);
    if (index == TS_NOWHERE) {
        ts_json_null(json);
        return;
    }
    ts_flat_to_coordinates(tensor, index, at);
    ts_json_begin_array(json);
    for (unsigned i = 0; i < tensor->rank; i++)
        ts_json_uint(json, at[i]);
    ts_json_end_array(json);
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
        number_json(json, "mean", stats->mean);
        number_json(json, "std", stats->std);
        number_json(json, "norm", stats->norm);
        index_json(json, "at_min", tensor, stats->at_min);
        index_json(json, "at_max", tensor, stats->at_max);
    }
    count_json(json, "zeros", stats->zeros);
    count_json(json, "nan", stats->nan);
    count_json(json, "positive_inf", stats->positive_inf);
    count_json(json, "negative_inf", stats->negative_inf);
    index_json(json, "first_nan", tensor, stats->first_nan);
    index_json(json, "first_inf", tensor, stats->first_inf);
    if (stats->finite > 1 && stats->max > stats->min &&
        ts_stats_histogram(tensor, stats, HISTOGRAM_BINS, counts, &sampled, &ignored) == TS_OK) {
        ts_json_key(json, "histogram");
        ts_json_begin_object(json);
        count_json(json, "sampled", sampled);
        ts_json_key(json, "counts");
        ts_json_begin_array(json);
        for (unsigned i = 0; i < HISTOGRAM_BINS; i++)
            ts_json_uint(json, counts[i]);
        ts_json_end_array(json);
        ts_json_end_object(json);
    }
    ts_json_end_object(json);
}

static void string_json(struct ts_json_writer *json, const char *key, const char *value)
{
    ts_json_key(json, key);
    if (value)
        ts_json_string(json, value);
    else
        ts_json_null(json);
}

static void tensor_json(struct ts_json_writer *json, const struct ts_tensor *tensor, const struct ts_stats *stats)
{
    ts_json_begin_object(json);
    string_json(json, "name", tensor->name);
    string_json(json, "file", tensor->file);
    string_json(json, "dtype", ts_tensor_type_name(tensor));
    ts_json_key(json, "shape");
    ts_json_begin_array(json);
    for (unsigned i = 0; i < tensor->rank; i++)
        ts_json_uint(json, tensor->shape[i]);
    ts_json_end_array(json);
    count_json(json, "elements", tensor->count);
    count_json(json, "bytes", tensor->bytes);
    if (tensor->type != TS_CODED)
        count_json(json, "offset", tensor->span_offset);
    if (tensor->sampled) {
        ts_json_key(json, "sampled");
        ts_json_bool(json, true);
    }
    if (tensor->attributes) {
        ts_json_key(json, "attributes");
        ts_json_begin_object(json);
        for (const struct ts_attribute *a = tensor->attributes; a; a = a->next)
            string_json(json, a->key, a->value);
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
        string_json(json, "file", bundle->metas[i].file);
        string_json(json, "key", bundle->metas[i].key);
        string_json(json, "value", bundle->metas[i].value);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "skipped");
    ts_json_begin_array(json);
    for (size_t i = 0; i < bundle->skip_count; i++) {
        ts_json_begin_object(json);
        string_json(json, "path", bundle->skips[i].path);
        string_json(json, "reason", bundle->skips[i].reason);
        ts_json_key(json, "harmless");
        ts_json_bool(json, bundle->skips[i].harmless);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_key(json, "findings");
    ts_json_begin_array(json);
    for (size_t i = 0; i < bundle->finding_count; i++) {
        ts_json_begin_object(json);
        string_json(json, "tensor", bundle->findings[i].tensor);
        string_json(json, "text", bundle->findings[i].text);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
}

static void check_json(struct ts_json_writer *json, const struct ts_check *check)
{
    static const char *const names[] = {"note", "warning", "fault"};
    ts_json_key(json, "check");
    ts_json_begin_object(json);
    count_json(json, "faults", check->faults);
    count_json(json, "warnings", check->warnings);
    ts_json_key(json, "issues");
    ts_json_begin_array(json);
    for (size_t i = 0; i < check->count; i++) {
        ts_json_begin_object(json);
        string_json(json, "id", check->issues[i].id);
        string_json(json, "severity", names[check->issues[i].severity]);
        string_json(json, "tensor", check->issues[i].tensor);
        string_json(json, "text", check->issues[i].text);
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
    string_json(json, "schema", "tsleuth.inspect/1");
    string_json(json, "path", bundle->path);
    string_json(json, "format", bundle->format);
    string_json(json, "order", bundle->order);
    count_json(json, "file_bytes", bundle->file_bytes);
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
