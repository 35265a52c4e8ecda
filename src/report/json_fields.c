#include "report/json_fields.h"

void ts_field_text(struct ts_json_writer *json, const char *key, const char *value)
{
    ts_json_key(json, key);
    if (value)
        ts_json_string(json, value);
    else
        ts_json_null(json);
}

void ts_field_number(struct ts_json_writer *json, const char *key, double value)
{
    ts_json_key(json, key);
    ts_json_number(json, value);
}

void ts_field_count(struct ts_json_writer *json, const char *key, uint64_t value)
{
    ts_json_key(json, key);
    ts_json_uint(json, value);
}

void ts_field_bool(struct ts_json_writer *json, const char *key, bool value)
{
    ts_json_key(json, key);
    ts_json_bool(json, value);
}

void ts_field_null(struct ts_json_writer *json, const char *key)
{
    ts_json_key(json, key);
    ts_json_null(json);
}

void ts_field_counts(struct ts_json_writer *json, const char *key, const uint64_t *values, size_t count)
{
    ts_json_key(json, key);
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++)
        ts_json_uint(json, values[i]);
    ts_json_end_array(json);
}

void ts_field_texts(struct ts_json_writer *json, const char *key, const char *const *texts, size_t count)
{
    ts_json_key(json, key);
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++)
        ts_json_string(json, texts[i]);
    ts_json_end_array(json);
}

void ts_field_causes(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis)
{
    ts_json_key(json, "causes");
    ts_json_begin_array(json);
    for (size_t i = 0; diagnosis && i < diagnosis->count; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "id", diagnosis->causes[i].id);
        ts_field_number(json, "confidence", diagnosis->causes[i].confidence);
        ts_field_text(json, "summary", diagnosis->causes[i].summary);
        ts_field_text(json, "check", diagnosis->causes[i].check);
        if (diagnosis->causes[i].tied) {
            ts_json_key(json, "tied");
            ts_json_bool(json, true);
        }
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    if (diagnosis && !diagnosis->count && diagnosis->strongest)
        ts_field_text(json, "strongest_structure", diagnosis->strongest);
}
