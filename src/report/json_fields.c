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
