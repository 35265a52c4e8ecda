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

static void number_json(struct ts_json_writer *json, const char *name, double value, const char *text)
{
    ts_json_begin_object(json);
    ts_field_text(json, "name", name);
    ts_field_number(json, "value", value);
    ts_field_text(json, "text", text);
    ts_json_end_object(json);
}

static void words_json(struct ts_json_writer *json, const char *name, const char *value, const char *text)
{
    ts_json_begin_object(json);
    ts_field_text(json, "name", name);
    ts_field_text(json, "value", value);
    ts_field_text(json, "text", text);
    ts_json_end_object(json);
}

static void evidence_json(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis,
                          const struct ts_cause_proof *proof)
{
    ts_json_key(json, "evidence");
    ts_json_begin_array(json);
    if (diagnosis->against)
        words_json(json, "against", diagnosis->against, "what the candidate was compared with");
    if (proof->of)
        words_json(json, "part", proof->of, "the part of it that was examined");
    if (proof->of_rows > 0) {
        number_json(json, "rows", proof->rows, "tokens or rows that the cause was tested on");
        number_json(json, "of_rows", proof->of_rows, "how many there are");
    }
    if (proof->elements > 0) { /* of NaN alone nothing can be summed up */
        number_json(json, "elements", proof->elements, "examined elements that carry the error");
        number_json(json, "error", proof->error, "size of the error, relative to what was expected");
        number_json(json, "rounding", proof->rounding, "size of what rounding alone explains");
    }
    if (proof->predicted) {
        number_json(json, "left", proof->left, "size of what remains once the cause is accounted for");
        number_json(json, "explained", proof->explained, "share of the error's energy that the cause explains");
        number_json(json, "fitted", (double)proof->fitted, "free parameters that were fitted to the candidate");
    }
    ts_json_end_array(json);
}

void ts_cause_json(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis, const struct ts_cause *cause)
{
    ts_json_begin_object(json);
    ts_field_text(json, "id", cause->id);
    ts_field_number(json, "confidence", cause->confidence);
    ts_field_text(json, "summary", cause->summary);
    ts_field_text(json, "check", cause->check);
    if (cause->tied)
        ts_field_bool(json, "tied", true);
    evidence_json(json, diagnosis, &cause->proof);
    ts_json_end_object(json);
}

void ts_field_causes(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis)
{
    ts_json_key(json, "causes");
    ts_json_begin_array(json);
    for (size_t i = 0; diagnosis && i < diagnosis->count; i++)
        ts_cause_json(json, diagnosis, &diagnosis->causes[i]);
    ts_json_end_array(json);
    if (diagnosis && !diagnosis->count && diagnosis->strongest)
        ts_field_text(json, "strongest_structure", diagnosis->strongest);
}
