/* Metrics of a pair as JSON: one writer for the report and for the server. */
#ifndef TS_REPORT_METRICS_JSON_H
#define TS_REPORT_METRICS_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "compare/delta.h"
#include "tensor/view.h"

struct ts_metrics_form {
    bool same_bytes; /* nothing but the bytes was looked at: what they do not tell is null */
    bool counted;    /* statistics of a side say its count, NaN and infinities too, and "compared" is there */
    bool detail;     /* quantiles and profiles, from the second look */
    bool unranked;   /* what the rows would choose cannot be told */
};

/* The coordinates of an element; null when it lies outside. */
void ts_place_json(struct ts_json_writer *json, const char *key, const struct ts_view *view, uint64_t index);
/* Fields inside an open object. Places are told in a's coordinates. */
void ts_metrics_json(struct ts_json_writer *json, const struct ts_delta *measured, const struct ts_view *a,
                     const struct ts_view *b, const struct ts_metrics_form *form);

#endif
