/* JSON fields: a key and its value in one call, for every JSON result. */
#ifndef TS_REPORT_JSON_FIELDS_H
#define TS_REPORT_JSON_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "diagnose/diagnose.h"

void ts_field_text(struct ts_json_writer *json, const char *key, const char *value); /* null when it is NULL */
void ts_field_number(struct ts_json_writer *json, const char *key, double value);
void ts_field_count(struct ts_json_writer *json, const char *key, uint64_t value);
void ts_field_bool(struct ts_json_writer *json, const char *key, bool value);
void ts_field_null(struct ts_json_writer *json, const char *key);
/* A list of whole numbers: shapes, places. */
void ts_field_counts(struct ts_json_writer *json, const char *key, const uint64_t *values, size_t count);
void ts_field_texts(struct ts_json_writer *json, const char *key, const char *const *texts, size_t count);
/* One cause with its evidence: a list of {"name", "value", "text"}, the text saying what the value is. */
void ts_cause_json(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis, const struct ts_cause *cause);
/* "causes", and what is most telling where there is none. */
void ts_field_causes(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis);

#endif
